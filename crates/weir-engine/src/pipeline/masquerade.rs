//! Where [`crate::nat`] stands: behind the joint and the route on the way to the host, before them
//! on the way back.

use weir_wire::ethernet::ethertype;
use weir_wire::frame::Frame;
use weir_wire::ip::unmapped;
use weir_wire::parse::{Network, Parsed, Transport};

use super::Engine;
use crate::nat::Nat;
use crate::policy::{Mode, Policy, mapped};
use crate::verdict::DropReason;

const ETHERNET_LEN: usize = 14;

impl Engine {
    /// Masquerades as `policy` says; what is translated goes on, but for clients that are gone.
    pub(super) fn renew_nat(&mut self, policy: &Policy) {
        let before = self.nat.take();
        let Some(address) = policy.masquerade.map(|it| it.octets()) else { return };
        let mut nat = match before {
            Some(nat) if nat.address() == address => nat,
            _ => Box::new(Nat::new(address)),
        };
        nat.retain(|client| policy.peer_for(&mapped(client.into())).is_some());
        self.nat = Some(nat);
    }

    /// Whether `address` is what clients are seen under.
    pub(super) fn is_masquerade(&self, address: &[u8; 16]) -> bool {
        let own = self.nat.as_ref().map(|it| it.address());
        own.is_some() && own == unmapped(address)
    }

    /// Gives a packet that a client sent its source for the host. `inner` describes it.
    #[inline]
    pub(super) fn masquerade(
        &mut self,
        peer: usize,
        frame: &mut Frame<'_>,
        inner: &mut Parsed,
    ) -> Result<(), DropReason> {
        let Some(nat) = &mut self.nat else { return Ok(()) };
        let is_client = self.policy.peers[peer].mode == Mode::WireGuard;
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
        nat.outbound(now, packet, partial)?;
        inner.source = mapped(nat.address().into());
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
    #[inline]
    pub(super) fn unmasquerade(&mut self, frame: &mut Frame<'_>) -> Result<(), DropReason> {
        let Some(nat) = &mut self.nat else { return Ok(()) };
        let (now, partial) = (frame.meta.time, frame.meta.offload.checksum);
        let Some((link, packet)) = frame.bytes_mut().split_at_mut_checked(ETHERNET_LEN) else {
            return Ok(());
        };
        if link[12..] != ethertype::IPV4.to_be_bytes() {
            return Ok(());
        }
        nat.inbound(now, packet, partial)
    }

    /// Has an ICMP error of our own, which speaks of a packet to a client, speak of what the host
    /// sent.
    pub(super) fn masquerade_answer(&mut self, range: &std::ops::Range<u32>) {
        let Self { nat: Some(nat), output, now, .. } = self else { return };
        if let Some(packet) = output.arena_mut(range).get_mut(ETHERNET_LEN..) {
            // It speaks of one who is not masqueraded: then it is right as it is.
            let _ = nat.outbound(*now, packet, None);
        }
    }
}
