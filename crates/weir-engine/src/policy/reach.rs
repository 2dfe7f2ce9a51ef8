//! Where a client may send: its list of access.

use weir_wire::parse::{Parsed, Transport};

use super::{Peer, Prefix};

/// Entries of one client's list, at most: each packet is compared with all of them.
pub const REACHES_MAX: usize = 64;

/// A place that a client may send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The addresses there.
    pub to: Prefix,
    /// By this IP protocol; `None`: by any.
    pub protocol: Option<u8>,
    /// To these ports, first and last; `None`: to any.
    pub ports: Option<(u16, u16)>,
}

impl Reach {
    /// Whether it holds where `packet` goes. A fragment that is not the first tells no port, and is
    /// held by address and protocol: without the first, nobody can put it together.
    #[inline]
    fn holds(&self, packet: &Parsed) -> bool {
        let is_later = packet.fragment.is_some_and(|it| it.offset > 0);
        let ports_agree = self.ports.is_none_or(|(first, last)| {
            let port = destination_port(packet);
            is_later || port.is_some_and(|port| (first..=last).contains(&port))
        });
        self.to.contains(&packet.destination)
            && self.protocol.is_none_or(|it| it == packet.protocol)
            && ports_agree
    }
}

impl Peer {
    /// Whether the peer may send `packet` where it goes.
    #[inline]
    pub(crate) fn may_reach(&self, packet: &Parsed) -> bool {
        self.reaches.is_empty() || self.reaches.iter().any(|it| it.holds(packet))
    }
}

fn destination_port(packet: &Parsed) -> Option<u16> {
    match packet.transport {
        Transport::Tcp { destination, .. } | Transport::Udp { destination, .. } => {
            Some(destination)
        }
        _ => None,
    }
}
