//! Packets of the gateway's own under the keys that it agreed on: signs of life, and messages about
//! the path's width.
//!
//! | to | what is sealed |
//! |---|---|
//! | a peer in tunnel mode at an address | an IP packet for nobody ([`crate::esp::silent`]) |
//! | any other | a dummy packet of ESP (RFC 4303 s2.6) |

use std::net::IpAddr;

use weir_wire::frame::Offload;

use super::{Parts, kernel};
use crate::esp::outer::{OuterFields, OuterHeader};
use crate::esp::silent::{silent_packet, silent_packet_for_nic};
use crate::esp::{max_inner, next_header};
use crate::output::{Destination, Part};
use crate::peer::{HOP_LIMIT, PeerEntry, Peers};
use crate::policy::Mode;
use crate::tunnel::path::LinkHeader;

/// Seals `message`, padded until the outer IP packet has `size_bytes`, as far as whole blocks
/// reach. `None`: there is nothing to seal it with, or no way to the peer.
pub(crate) fn seal_dummy(
    parts: &mut Parts<'_>,
    index: usize,
    message: &[u8],
    size_bytes: usize,
) -> Option<()> {
    let peer = parts.policy.peers.get(index)?;
    let header = outer_of_dummy(parts.peers, index)?;
    let len = max_inner(size_bytes.saturating_sub(header.network_len())).unwrap_or(0);
    let (payload, protocol) = match ends_of_tunnel(parts, index) {
        Some([source, destination]) => {
            let write = match peer.kernel.is_some_and(|it| it.nic_reaches.is_some()) {
                true => silent_packet_for_nic,
                false => silent_packet,
            };
            let packet = write(source, destination, message, len)?;
            let of_v4 = source.is_ipv4();
            (packet, if of_v4 { next_header::IPV4 } else { next_header::IPV6 })
        }
        None => {
            let mut payload = message.to_vec();
            payload.resize(len.max(message.len()), 0);
            (payload, next_header::DUMMY)
        }
    };
    if let Some(kernel) = peer.kernel {
        return kernel::hand_over_own(parts.peers, parts.output, kernel.place, &payload);
    }
    let entry = parts.peers.get_mut(index)?;
    let link = borrowed_link(entry).unwrap_or_default();
    let association = entry.association.as_mut()?;
    let length = link.len() + header.len() + association.packet_len(payload.len());
    let range = parts.output.allocate(length)?;
    let (front, packet) = parts.output.arena_mut(&range).split_at_mut(link.len());
    front.copy_from_slice(&link);
    association.seal_to(&payload, protocol, &mut packet[header.len()..]).ok()?;
    let checksum = header.write(packet, OuterFields::default()).ok()?;
    let offload = Offload { checksum, ..Offload::default() };
    parts.output.send(Destination::Wire, offload, Part::Arena(range));
    parts.peers.note(index);
    Some(())
}

/// Both gateways' addresses, where a tunnel runs between them; a NIC may not take the other's.
fn ends_of_tunnel(parts: &Parts<'_>, index: usize) -> Option<[IpAddr; 2]> {
    let policy = parts.policy.peers.get(index)?;
    // The other end tells such packets from its hosts' where it knows our address.
    policy.endpoint.filter(|_| policy.mode == Mode::Tunnel)?;
    let endpoint = parts.peers.get(index)?.endpoint()?;
    let destination = policy.kernel.and_then(|it| it.nic_reaches).unwrap_or(endpoint);
    Some([parts.policy.own.as_ref()?.source_for(destination)?, destination])
}

fn outer_of_dummy(peers: &Peers, index: usize) -> Option<OuterHeader> {
    let peer = peers.get(index)?;
    if let Some(header) = peer.outer_header() {
        return Some(header.clone());
    }
    let path = peer.agreed.as_ref()?.path()?;
    let (source, remote) = (path.borrowed?, path.remote.address);
    OuterHeader::new(None, source, remote, HOP_LIMIT, peer.udp()).ok()
}

fn borrowed_link(peer: &PeerEntry) -> Option<LinkHeader> {
    let path = peer.agreed.as_ref()?.path()?;
    path.borrowed.is_some().then(|| path.link.clone())
}
