//! What the kernel counted on the fast path, taken into the same flows, conversations and totals as
//! packets that came by.

use weir_wire::bth::{Psn, Service};
use weir_wire::fastpath::{Key, STARTED, Slot, event, kind};
use weir_wire::frame::Time;
use weir_wire::icrc::IcrcStatus;

use super::meter::{Meter, Observation};
use crate::flow::table::Entered;
use crate::flow::{FlowDirection, FlowEntry, FlowKey};
use crate::rdma::qp::RdmaPacket;
use crate::rdma::{Conversation, QueuePairKey};
use crate::verdict::Side;

/// What the kernel counted of one direction since the last fold.
#[derive(Clone, Copy, Debug)]
pub struct Fold<'a> {
    /// When it carried the direction's last packet.
    pub last: Time,
    /// Now.
    pub now: Time,
    /// Side of the gateway that the direction comes in by.
    pub side: Side,
    /// The direction.
    pub key: &'a Key,
    /// Its 5-tuple, for IP.
    pub flow: Option<(FlowKey, FlowDirection)>,
    /// Its queue pair and service, for RoCE.
    pub queue_pair: Option<(QueuePairKey, Service)>,
    /// The counts; states and taken fields as they are.
    pub counted: &'a Slot,
}

/// What an event tells of a carried packet's place among the others.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// See [`event`].
    pub kinds: u32,
    /// The sequence number that was due, with [`STARTED`].
    pub expected: u32,
    /// The packet's direction.
    pub queue_pair: Option<QueuePairKey>,
    /// The packet, cut short behind its headers.
    pub packet: &'a Observation<'a>,
}

impl Meter {
    /// Counts what the kernel counted. Returns the path MTU of the direction's conversation, zero
    /// while it is not known.
    pub fn fold(&mut self, fold: &Fold<'_>) -> u16 {
        let counted = fold.counted;
        self.totals.packets += counted.packets;
        self.totals.bytes += counted.bytes;
        self.totals.fast_packets += counted.packets;
        let packets = counted.packets.saturating_sub(counted.foreign_packets);
        let bytes = counted.bytes.saturating_sub(counted.foreign_bytes);
        if packets > 0 && fold.key.kind != kind::ROCE_V1 {
            self.fold_flow(fold, packets, bytes);
        }
        let Some((key, service)) = fold.queue_pair else { return 0 };
        let rdma = &mut self.totals.rdma;
        rdma.fold(fold.key.kind, counted);
        let Self { conversations, waiting, limits, .. } = self;
        let timeout = limits.active_timeout_ns;
        let mut leave = |entry: &Conversation, reason| waiting.end_conversation(entry, reason);
        conversations.fold(&key, service, fold, timeout, &mut leave)
    }

    /// Counts packets that the kernel carried, by opcode byte.
    pub fn fold_opcodes(&mut self, packets: &[u64; 256]) {
        for (sum, packets) in self.totals.rdma.opcodes.iter_mut().zip(packets) {
            *sum += packets;
        }
    }

    /// Takes in what one carried packet says beyond the kernel's counts.
    pub fn notice(&mut self, notice: &Notice<'_>) {
        let packet = notice.packet;
        if notice.kinds & event::SOURCE_PORT != 0 {
            self.observe_flow(packet);
        }
        let (Some(key), Some(rdma)) = (notice.queue_pair, &packet.parsed.rdma) else { return };
        let rdma_packet = RdmaPacket {
            now: packet.now,
            side: packet.side,
            bytes: packet.bytes,
            parsed: packet.parsed,
            rdma,
            wire_len: packet.original_len,
            icrc: IcrcStatus::Unchecked,
        };
        let noticed = self.conversations.notice(&key, notice, &rdma_packet);
        self.totals.rdma.notice(&noticed);
    }

    fn fold_flow(&mut self, fold: &Fold<'_>, packets: u64, bytes: u64) {
        let Some((key, direction)) = fold.flow else { return };
        let waiting = &mut self.waiting;
        let mut leave = |entry: &FlowEntry| waiting.evict_flow(entry);
        let side = Some(fold.side);
        let entered = self.flows.enter(&key, direction, fold.last, side, &mut leave);
        let handle = match entered {
            Entered::Known(handle) => handle,
            Entered::New(handle) => {
                self.totals.flows += 1;
                handle
            }
        };
        let Some(entry) = self.flows.touch(handle, fold.last) else { return };
        if fold.last.since_ns(entry.started) >= self.limits.active_timeout_ns && entry.is_counting()
        {
            self.waiting.add_flow(entry, crate::flow::Reason::Active);
            entry.restart(fold.last);
        }
        entry.fold(direction, fold.last, fold.counted, packets, bytes);
    }
}

/// The number in a slot's state, once there is one.
pub(crate) fn started(state: u32) -> Option<Psn> {
    (state & STARTED != 0).then(|| Psn::new(state))
}
