//! Packets of the gateway's own under the keys that it agreed on: signs of life, and messages about
//! the path's width.
//!
//! | to | what is sealed |
//! |---|---|
//! | a peer in tunnel mode at an address | an IP packet for nobody ([`crate::esp::silent`]) |
//! | any other | a dummy packet of ESP (RFC 4303 s2.6) |

use std::net::IpAddr;

use weir_wire::frame::Offload;

use super::{AgreedPeer, Engine};
use crate::esp::outer::{OuterFields, OuterHeader};
use crate::esp::silent::{silent_packet, silent_packet_for_nic};
use crate::esp::{max_inner, next_header};
use crate::output::{Destination, Part};
use crate::policy::Mode;
use crate::tunnel::key::PublicKey;
use crate::tunnel::path::LinkHeader;

/// Hop limit of outer packets to borrowed addresses.
const HOP_LIMIT: u8 = 64;

impl Engine {
    /// Seals an empty packet into `output()`, which grows until [`Engine::begin`].
    pub fn keepalive(&mut self, peer: &PublicKey) {
        let Some(index) = self.index_of(peer) else { return };
        if self.seal_dummy(index, &[], 0).is_some() {
            self.counters.keepalives_sent += 1;
        }
    }

    /// Seals `message`, padded until the outer IP packet has `size_bytes`, as far as whole blocks
    /// reach.
    pub(super) fn seal_dummy(
        &mut self,
        index: usize,
        message: &[u8],
        size_bytes: usize,
    ) -> Option<()> {
        let header = self.outer_of_dummy(index)?;
        let len = max_inner(size_bytes.saturating_sub(header.network_len())).unwrap_or(0);
        let (payload, protocol) = match self.ends_of_tunnel(index) {
            Some([source, destination]) => {
                let write = match self.is_opened_by_nic(index) {
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
        if let Some(kernel) = self.policy.peers[index].kernel {
            return self.hand_over_own(kernel.place, &payload);
        }
        let Self { sealing, output, .. } = self;
        let peer = &mut sealing[index];
        let association = peer.association.as_mut()?;
        let link = peer.agreed.as_ref().and_then(|it| borrowed_link(it)).unwrap_or_default();
        let length = link.len() + header.len() + association.packet_len(payload.len());
        let range = output.allocate(length)?;
        let (front, packet) = output.arena_mut(&range).split_at_mut(link.len());
        front.copy_from_slice(&link);
        association.seal_to(&payload, protocol, &mut packet[header.len()..]).ok()?;
        let checksum = header.write(packet, OuterFields::default()).ok()?;
        output.send(
            Destination::Wire,
            Offload { checksum, ..Offload::default() },
            Part::Arena(range),
        );
        self.note(index);
        Some(())
    }

    /// Both gateways' addresses, where a tunnel runs between them; a NIC may not take the other's.
    fn ends_of_tunnel(&self, index: usize) -> Option<[IpAddr; 2]> {
        let policy = &self.policy.peers[index];
        // The other end tells such packets from its hosts' where it knows our address.
        policy.endpoint.filter(|_| policy.mode == Mode::Tunnel)?;
        let endpoint = self.sealing[index].endpoint()?;
        let destination = policy.kernel.and_then(|it| it.nic_reaches).unwrap_or(endpoint);
        Some([self.policy.own.as_ref()?.source_for(destination)?, destination])
    }

    fn outer_of_dummy(&self, index: usize) -> Option<OuterHeader> {
        let peer = &self.sealing[index];
        if let Some(header) = peer.outer_header() {
            return Some(header.clone());
        }
        let path = peer.agreed.as_ref()?.path()?;
        let (source, remote) = (path.borrowed?, path.remote.address);
        OuterHeader::new(None, source, remote, HOP_LIMIT, peer.udp()).ok()
    }
}

fn borrowed_link(agreed: &AgreedPeer) -> Option<LinkHeader> {
    agreed.path().filter(|it| it.borrowed.is_some()).map(|it| it.link.clone())
}
