//! Which two directions belong to one connected queue pair, as their connection managers agree it
//! (IBTA Vol 1 ch. 12): REQ names the requester's queue pair, REP the responder's.
//!
//! A starting PSN is the number that its sender wants to receive first, so the responder's requests
//! start with the REQ's and the requester's with the REP's.
//!
//! A pair learned this way is exact, and known before its first packet. The messages must run
//! between the addresses that the data will use, as rdma_cm's do.

use std::ops::Range;

use weir_wire::bth::{Psn, Qpn, Service};
use weir_wire::cm::{self, ConnectReply, ConnectRequest, Message};
use weir_wire::mad;

use super::key::QueuePairKey;
use super::qp::RdmaPacket;
use crate::flow::HashSeed;
use crate::verdict::Side;
use weir_wire::frame::Time;

/// REQs remembered until their REP comes; a power of two.
const REQUESTS: usize = 8192;
/// Places for those that hash alike. When all are taken, the one goes that needs its place least:
/// that pair is then left to [`super::pairing`].
const PLACES: usize = 8;
/// A REQ that nobody has answered may still be answered for so long: its service may take its time.
const UNANSWERED_NS: u64 = 600 * 1_000_000_000;
/// A REP is repeated for so long, if its REQ does not say that it is longer.
const REPEATED_NS: u64 = 60 * 1_000_000_000;

/// A REQ says something else than one of the same name that may still be answered. Its receiver
/// takes it for that one's repetition, if it has that one (Linux, `cm_insert_remote_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

#[derive(Clone, Copy, Debug)]
struct Requested {
    hash: u64,
    offer: Offer,
    /// REP came.
    is_answered: bool,
    /// How long its receiver repeats a REP.
    repeated_ns: u64,
    /// Until then a REP may come that answers it.
    until: Time,
}

/// What a REQ offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
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
    ///
    /// # Errors
    /// [`Contradiction`]; the earlier REQ stays.
    #[inline]
    pub(crate) fn learn(
        &mut self,
        packet: &RdmaPacket<'_>,
        seed: &HashSeed,
    ) -> Result<Option<Connection>, Contradiction> {
        if !mad::is_management(packet.rdma) {
            return Ok(None);
        }
        let key = QueuePairKey::of(packet.parsed, packet.rdma, None);
        match cm::message(packet.bytes, packet.parsed) {
            Some((_, Message::Request(request))) => {
                self.note(&key, request, packet, seed).map(|()| None)
            }
            Some((_, Message::Reply(reply))) => Ok(self.complete(&key, reply, packet, seed)),
            _ => Ok(None),
        }
    }

    fn note(
        &mut self,
        key: &QueuePairKey,
        request: &ConnectRequest,
        packet: &RdmaPacket<'_>,
        seed: &HashSeed,
    ) -> Result<(), Contradiction> {
        let service = match request.transport_service() {
            0 => Service::ReliableConnection,
            1 => Service::UnreliableConnection,
            3 => Service::ExtendedReliableConnection,
            _ => return Ok(()),
        };
        if self.requests.is_empty() {
            self.requests = vec![None; REQUESTS];
        }
        let hash = key.request_hash(request.local_comm_id.get(), seed);
        let offer = Offer {
            qpn: request.local_qpn(),
            psn: request.starting_psn(),
            path_mtu: request.path_mtu().map_or(0, |mtu| mtu.bytes() as u16),
            service,
            service_id: request.service_id.get(),
            alternate: request.alternate_gids().unwrap_or_default(),
            side: packet.side,
        };
        let places = &mut self.requests[places(hash)];
        let of_name = |it: &&mut Option<Requested>| it.is_some_and(|it| it.hash == hash);
        let place = match places.iter_mut().find(of_name) {
            Some(Some(it)) if it.offer != offer && packet.now < it.until => {
                return Err(Contradiction);
            }
            Some(place) => place,
            None => least_needed(places, packet.now),
        };
        let repeated_ns = request.reply_repeated_ns().max(REPEATED_NS);
        let until = packet.now.plus_ns(repeated_ns.max(UNANSWERED_NS));
        *place = Some(Requested { hash, offer, is_answered: false, repeated_ns, until });
        Ok(())
    }

    fn complete(
        &mut self,
        key: &QueuePairKey,
        reply: &ConnectReply,
        packet: &RdmaPacket<'_>,
        seed: &HashSeed,
    ) -> Option<Connection> {
        let hash = key.answered_hash(reply.remote_comm_id.get(), seed);
        let places = self.requests.get_mut(places(hash))?;
        let it = places.iter_mut().flatten().find(|it| it.hash == hash && !it.is_answered)?;
        // Its receiver is behind the other port.
        it.is_answered = it.offer.side.is_none() || it.offer.side != packet.side;
        it.until = packet.now.plus_ns(it.repeated_ns);
        let requested = it.offer;
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
            sides: [requested.side, packet.side],
        })
    }
}
/// Where a REQ of that hash may lie.
fn places(hash: u64) -> Range<usize> {
    let first = hash as usize % (REQUESTS / PLACES) * PLACES;
    first..first + PLACES
}

/// A free place, or that of a REQ that is over, or is answered, or came first.
fn least_needed(places: &mut [Option<Requested>], now: Time) -> &mut Option<Requested> {
    let need = |it: &Option<Requested>| match it {
        Some(it) if now < it.until => (1 + u8::from(!it.is_answered), it.until),
        _ => (0, Time::default()),
    };
    let least = (0..places.len()).min_by_key(|at| need(&places[*at])).unwrap_or_default();
    &mut places[least]
}
