//! Which two directions belong to one connected queue pair, as their connection managers agree it
//! (IBTA Vol 1 ch. 12): REQ names the requester's queue pair, REP the responder's.
//!
//! A starting PSN is the number that its sender wants to receive first, so the responder's requests
//! start with the REQ's and the requester's with the REP's.
//!
//! A pair learned this way is exact, and known before its first packet. The messages must run
//! between the addresses that the data will use, as rdma_cm's do.

use weir_wire::bth::{Psn, Qpn, Service};
use weir_wire::cm::{self, ConnectReply, ConnectRequest, Message};
use weir_wire::mad;

use super::key::QueuePairKey;
use super::qp::RdmaPacket;
use crate::flow::HashSeed;
use crate::verdict::Side;

/// REQs remembered until their REP comes; a power of two. A newer one takes the place of an older
/// one that hashes alike: that pair is then left to [`super::pairing`].
const REQUESTS: usize = 8192;

#[derive(Clone, Copy, Debug)]
struct Requested {
    hash: u64,
    qpn: Qpn,
    psn: Psn,
    path_mtu: u16,
    service: Service,
    service_id: u64,
    alternate: [[u8; 16]; 2],
    side: Option<Side>,
}

/// What a REQ and its REP agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// From the requester to the responder's queue pair.
    pub(crate) key: QueuePairKey,
    /// First number of that direction.
    pub(crate) psn: Psn,
    /// The requester's queue pair.
    pub(crate) partner_qp: Qpn,
    /// First number towards it.
    pub(crate) partner_psn: Psn,
    /// Payload bytes per packet; zero when the message holds a reserved code.
    pub(crate) path_mtu: u16,
    pub(crate) service: Service,
    /// What the requester asked for.
    pub(crate) service_id: u64,
    /// The managers' names for it, the requester's first.
    pub(crate) comm_ids: [u32; 2],
    /// Addresses of an alternate path that was accepted, the requester's first; zeros: none.
    pub(crate) alternate: [[u8; 16]; 2],
    /// Sides that REQ and REP came in by.
    pub(crate) sides: [Option<Side>; 2],
}

/// REQs that wait for their REP.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    requests: Vec<Option<Requested>>,
}

impl Exchanges {
    /// Takes in a packet; returns the connection that it completes.
    #[inline]
    pub(crate) fn learn(&mut self, packet: &RdmaPacket<'_>, seed: &HashSeed) -> Option<Connection> {
        if !mad::is_management(packet.rdma) {
            return None;
        }
        let key = QueuePairKey::of(packet.parsed, packet.rdma, None);
        match cm::message(packet.bytes, packet.parsed)?.1 {
            Message::Request(request) => {
                self.note(&key, request, packet.side, seed);
                None
            }
            Message::Reply(reply) => self.complete(&key, reply, packet.side, seed),
            _ => None,
        }
    }

    fn note(
        &mut self,
        key: &QueuePairKey,
        request: &ConnectRequest,
        side: Option<Side>,
        seed: &HashSeed,
    ) {
        let service = match request.transport_service() {
            0 => Service::ReliableConnection,
            1 => Service::UnreliableConnection,
            3 => Service::ExtendedReliableConnection,
            _ => return,
        };
        if self.requests.is_empty() {
            self.requests = vec![None; REQUESTS];
        }
        let hash = key.request_hash(request.local_comm_id.get(), seed);
        let path_mtu = request.path_mtu().map_or(0, |mtu| mtu.bytes() as u16);
        let (qpn, psn) = (request.local_qpn(), request.starting_psn());
        let service_id = request.service_id.get();
        let alternate = [request.alternate.local_gid, request.alternate.remote_gid];
        let requested =
            Requested { hash, qpn, psn, path_mtu, service, service_id, alternate, side };
        self.requests[hash as usize % REQUESTS] = Some(requested);
    }

    fn complete(
        &mut self,
        key: &QueuePairKey,
        reply: &ConnectReply,
        side: Option<Side>,
        seed: &HashSeed,
    ) -> Option<Connection> {
        let hash = key.answered_hash(reply.remote_comm_id.get(), seed);
        let place = self.requests.get_mut(hash as usize % REQUESTS)?;
        let requested = place.take_if(|requested| requested.hash == hash)?;
        Some(Connection {
            key: key.reversed_to(reply.local_qpn()),
            psn: reply.starting_psn(),
            partner_qp: requested.qpn,
            partner_psn: requested.psn,
            path_mtu: requested.path_mtu,
            service: requested.service,
            service_id: requested.service_id,
            comm_ids: [reply.remote_comm_id.get(), reply.local_comm_id.get()],
            alternate: match reply.accepts_failover() {
                true => requested.alternate,
                false => [[0; 16]; 2],
            },
            sides: [requested.side, side],
        })
    }
}
