//! Where it stands: behind the joint and the route on the way to the host, before them
//! on the way back.

use weir_wire::ethernet::ethertype;
use weir_wire::frame::{Frame, Time};
use weir_wire::parse::{Network, Parsed, Transport};

use super::Nat;
use crate::policy::{Policy, mapped};
use crate::verdict::DropReason;

const ETHERNET_LEN: usize = 14;

impl Nat {
    /// What masquerades as `policy` says; what is translated goes on, but for clients that are
    /// gone.
    pub(crate) fn renewed(before: Option<Box<Nat>>, policy: &Policy) -> Option<Box<Nat>> {
        let address = policy.masquerade.map(|it| it.octets())?;
        let mut nat = match before {
            Some(nat) if nat.address() == address => nat,
            _ => Box::new(Nat::new(address)),
        };
        nat.retain(|client| policy.peer_for(&mapped(client.into())).is_some());
        Some(nat)
    }

    /// Gives a packet that a client sent its source for the host. `inner` describes it.
    pub(crate) fn masquerade(
        &mut self,
        policy: &Policy,
        peer: usize,
        frame: &mut Frame<'_>,
        inner: &mut Parsed,
    ) -> Result<(), DropReason> {
        let is_client = policy.peers[peer].mode.is_client();
        if !is_client || inner.network != Network::Ipv4 {
            return Ok(());
        }
        // An ICRC covers the address.
        if inner.rdma.is_some() {
            return Err(DropReason::NatProtocol);
        }
        let (now, partial) = (frame.meta.time, frame.meta.offload.checksum);
        let at = usize::from(inner.network_offset);
        let packet = frame.bytes_mut().get_mut(at..).ok_or(DropReason::Malformed)?;
        self.outbound(now, packet, partial)?;
        inner.source = mapped(self.address().into());
        let at = usize::from(inner.transport_offset);
        if let (Transport::Tcp { source, .. } | Transport::Udp { source, .. }, Some([a, b, ..])) =
            (&mut inner.transport, frame.bytes().get(at..))
            && inner.fragment.is_none_or(|it| it.offset == 0)
        {
            *source = u16::from_be_bytes([*a, *b]);
        }
        Ok(())
    }

    /// Gives a frame that the host sent to the masquerade's address its client's.
    pub(crate) fn unmasquerade(&mut self, frame: &mut Frame<'_>) -> Result<(), DropReason> {
        let (now, partial) = (frame.meta.time, frame.meta.offload.checksum);
        let Some((link, packet)) = frame.bytes_mut().split_at_mut_checked(ETHERNET_LEN) else {
            return Ok(());
        };
        if link[12..] != ethertype::IPV4.to_be_bytes() {
            return Ok(());
        }
        self.inbound(now, packet, partial)
    }

    /// Has an ICMP error of our own, which speaks of a packet to a client, speak of what the host
    /// sent. `frame` is the error, with its link header.
    pub(crate) fn masquerade_answer(&mut self, now: Time, frame: &mut [u8]) {
        if let Some(packet) = frame.get_mut(ETHERNET_LEN..) {
            // It speaks of one who is not masqueraded: then it is right as it is.
            let _ = self.outbound(now, packet, None);
        }
    }
}
