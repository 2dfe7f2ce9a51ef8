//! What the kernel counted on the fast path, taken into the same flows, conversations and totals as
//! packets that came by.

use weir_wire::bth::{Psn, Service};
use weir_wire::fastpath::{Key, STARTED, Slot, event, kind};
use weir_wire::frame::Time;
use weir_wire::icrc::IcrcStatus;

use super::meter::{Meter, Observation, end_record_when_due, rdma_packet};
use crate::flow::{FlowDirection, FlowKey};
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
        let rdma_packet = rdma_packet(packet, rdma, IcrcStatus::Unchecked);
        let Some((handle, side, noticed)) = self.conversations.notice(&key, notice, &rdma_packet)
        else {
            return;
        };
        self.totals.rdma.notice(&noticed);
        if let Some(charged) = noticed.charged {
            self.settle(handle, side, charged, packet.now);
        }
    }

    fn fold_flow(&mut self, fold: &Fold<'_>, packets: u64, bytes: u64) {
        let Some((key, direction)) = fold.flow else { return };
        let handle = self.enter_flow(&key, direction, fold.last, Some(fold.side));
        let Some(entry) = self.flows.touch(handle, fold.last) else { return };
        end_record_when_due(entry, fold.last, &self.limits, &mut self.waiting);
        entry.fold(direction, fold.last, fold.counted, packets, bytes);
    }
}

/// The number in a slot's state, once there is one.
pub(crate) fn started(state: u32) -> Option<Psn> {
    (state & STARTED != 0).then(|| Psn::new(state))
}
