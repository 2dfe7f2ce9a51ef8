//! Where the hosts behind the host port are.

use std::collections::BTreeMap;

use weir_wire::frame::Frame;
use weir_wire::parse::{MacAddress, Network, Parsed};
use weir_wire::walker::Walker;

use crate::verdict::DropReason;

/// Hosts behind the host port, by the source addresses of what they send. Needed only where ESP
/// tunnels end at an own address: the outer Ethernet header then leads to us and not to the host.
#[derive(Debug, Default)]
pub(crate) struct HostAddresses {
    known: BTreeMap<[u8; 16], MacAddress>,
}

/// Hosts remembered; a further one is not, and packets to it are dropped as `neighbour_unknown`.
pub(crate) const HOSTS_MAX: usize = 4096;

impl HostAddresses {
    /// Remembers where `parsed`, seen on the host port, came from; true when that is news.
    pub(crate) fn learn(&mut self, parsed: &Parsed) -> bool {
        // A host that only listens says who it is by ARP.
        let speaks = matches!(parsed.network, Network::Arp | Network::Ipv4 | Network::Ipv6);
        speaks && parsed.source != [0; 16] && self.note(parsed.source, parsed.link.source)
    }

    /// Remembers where `address` is; true when that is news.
    pub(crate) fn note(&mut self, address: [u8; 16], mac: MacAddress) -> bool {
        let room = self.known.len() < HOSTS_MAX;
        match self.known.get_mut(&address) {
            Some(known) => std::mem::replace(known, mac) != mac,
            None if room => self.known.insert(address, mac).is_none(),
            None => false,
        }
    }

    /// Sends the frame to the host that its packet is for.
    pub(crate) fn lead(&self, frame: &mut Frame<'_>, inner: &mut Walker) -> Result<(), DropReason> {
        let to = &inner.parsed().destination;
        let mac = self.find(to).ok_or(DropReason::NeighbourUnknown)?;
        frame.bytes_mut()[..6].copy_from_slice(&mac.0);
        inner.parsed_mut().link.destination = mac;
        Ok(())
    }

    fn find(&self, address: &[u8; 16]) -> Option<MacAddress> {
        self.known.get(address).copied()
    }
}
