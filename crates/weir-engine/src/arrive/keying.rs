//! Handshake datagrams: taken out of the wire's frames, and sent.

use weir_wire::frame::{Frame, Offload, Time};
use weir_wire::parse::{Parsed, Transport};

use crate::counters::Counters;
use crate::esp::outer::{
    OuterFields, OuterHeader, OuterLink, UdpChecksum, UdpEncapsulation, UdpSource,
};
use crate::neighbour::Neighbours;
use crate::output::{Destination, Output, Part};
use crate::peer::{HOP_LIMIT, link_of};
use crate::policy::{Policy, address};
use crate::tunnel::path::{Path, Remote};
use crate::tunnel::{MESSAGE_LEN_MAX, MESSAGE_LEN_MIN};
use crate::verdict::DropReason;

/// Handshake datagrams that wait to be taken, at most; more of them are dropped as `keying_busy`.
pub const INBOX_MAX: usize = 256;

/// Datagrams that wait, each with where it came from.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<(Path, Vec<u8>)>);

impl Inbox {
    /// Takes a handshake datagram, from UDP port `port`, out of a frame from the wire.
    ///
    /// # Errors
    /// Why it is dropped.
    #[cold]
    pub(crate) fn take_in(
        &mut self,
        policy: &Policy,
        frame: &Frame<'_>,
        parsed: &Parsed,
        port: u16,
    ) -> Result<(), DropReason> {
        let payload = usize::from(parsed.payload_offset)..parsed.end as usize;
        let datagram = frame.bytes().get(payload).ok_or(DropReason::Malformed)?;
        if !(MESSAGE_LEN_MIN..=MESSAGE_LEN_MAX).contains(&datagram.len()) {
            return Err(DropReason::Malformed);
        }
        if self.0.len() >= INBOX_MAX {
            return Err(DropReason::KeyingBusy);
        }
        let remote = Remote { address: address(&parsed.source), port };
        let mut link = link_of(frame, parsed).ok_or(DropReason::Malformed)?;
        let (to, from) = link[..12].split_at_mut(6);
        to.swap_with_slice(from);
        let borrowed = policy.own.is_none().then(|| address(&parsed.destination));
        self.0.push((Path { remote, borrowed, link }, datagram.to_vec()));
        Ok(())
    }

    /// Hands over those that wait.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Path, Vec<u8>)> {
        self.0.drain(..)
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The source port of a frame from the wire that is a handshake's: it is for us, or for what stands
/// behind a gateway that borrows addresses, from what stands behind a peer.
#[inline]
pub(super) fn source(policy: &Policy, parsed: &Parsed) -> Option<u16> {
    let Transport::Udp { source, destination } = parsed.transport else { return None };
    if policy.keying_port != Some(destination) {
        return None;
    }
    let behind = |address| {
        let peer = &policy.peers[policy.peer_for(address)?];
        peer.agreed.filter(|_| peer.endpoint.is_none())
    };
    let ours = match &policy.own {
        Some(own) => own.holds(&parsed.destination),
        None => behind(&parsed.source).is_some(),
    };
    ours.then_some(source)
}

/// Sends a handshake datagram; false while nobody has answered for the next hop's address: then try
/// again.
pub(crate) fn send(
    now: Time,
    policy: &Policy,
    neighbours: &mut Neighbours,
    (output, counters): (&mut Output, &mut Counters),
    (path, datagram): (&Path, &[u8]),
) -> bool {
    let Some(port) = policy.keying_port else { return true };
    let udp = UdpEncapsulation {
        source: UdpSource::Fixed(port),
        destination_port: path.remote.port,
        checksum: UdpChecksum::Full,
    };
    let remote = path.remote.address;
    let own = policy.own.as_ref().and_then(|own| own.source_for(remote));
    let Some(source) = path.borrowed.or(own) else { return true };
    let mut outer = None;
    if path.link.is_empty() {
        let Some(own) = policy.own.as_ref() else { return false };
        neighbours.follow(remote, None, now);
        let Some(destination) = neighbours.mac_for(remote, now) else { return false };
        outer = Some(OuterLink { destination, source: own.mac, vlan_tci: own.vlan });
    }
    let made = OuterHeader::new(outer, source, remote, HOP_LIMIT, Some(udp));
    let (Ok(header), link) = (made, &path.link) else { return true };
    let Some(range) = output.allocate(link.len() + header.len() + datagram.len()) else {
        return false;
    };
    let (front, packet) = output.arena_mut(&range).split_at_mut(link.len());
    front.copy_from_slice(link);
    packet[header.len()..].copy_from_slice(datagram);
    if header.write(packet, OuterFields::default()).is_ok() {
        counters.keying_sent += 1;
        output.send(Destination::Wire, Offload::default(), Part::Arena(range));
    }
    true
}
