//! What the meter says of a flow or a conversation when its time has come.
//!
//! A record holds what was counted since the one before, so a long flow's records add up to its
//! totals, and none of them repeats another.

use weir_wire::bth::Service;
use weir_wire::frame::Time;

use crate::flow::{FlowCounters, FlowDirection, FlowEntry, FlowKey, Reason};
use crate::rdma::{Conversation, Direction, DirectionCounters, Joined, QueuePairKey, Volume};
use crate::verdict::Side;

/// A record on its way out.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// Of a 5-tuple.
    Flow(&'a FlowRecord),
    /// Of a queue-pair conversation.
    Conversation(&'a ConversationRecord),
}

/// One 5-tuple over a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Which.
    pub key: FlowKey,
    /// First packet of the span.
    pub started: Time,
    /// Last packet of the span.
    pub last: Time,
    /// Who sent the flow's first packet.
    pub initiator: FlowDirection,
    /// Side of the gateway that the flow's first packet came in by.
    pub side: Option<Side>,
    /// Counters, by [`FlowDirection::index`].
    pub counters: [FlowCounters; 2],
    /// Why now.
    pub reason: Reason,
}

/// One direction of a [`ConversationRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionRecord {
    /// From whom to which queue pair.
    pub key: QueuePairKey,
    /// UDP source port of the latest packet (RoCE v2; else zero).
    pub source_port: u16,
    /// Partition key of the latest packet.
    pub partition_key: u16,
    /// Q_Key of the latest datagram.
    pub queue_key: Option<u32>,
    /// What was counted.
    pub counters: DirectionCounters,
}

/// One queue-pair conversation over a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationRecord {
    /// First packet of the span.
    pub started: Time,
    /// Last packet of the span.
    pub last: Time,
    /// Transport service.
    pub service: Service,
    /// How its directions were joined; `No`: only one is known.
    pub joined: Joined,
    /// Side of the gateway that the first direction comes from.
    pub side: Option<Side>,
    /// Path MTU in bytes; zero: not known.
    pub path_mtu: u16,
    /// The direction seen first.
    pub first: DirectionRecord,
    /// The other one.
    pub second: Option<DirectionRecord>,
    /// Why now.
    pub reason: Reason,
}

impl FlowRecord {
    /// What an entry says now.
    pub fn of(entry: &FlowEntry, reason: Reason) -> Self {
        Self {
            key: entry.key,
            started: entry.started,
            last: entry.last,
            initiator: entry.initiator,
            side: entry.side,
            counters: entry.counters,
            reason,
        }
    }

    /// Packets and bytes of both directions.
    pub fn total(&self) -> Volume {
        Volume {
            packets: self.counters.iter().map(|direction| direction.packets).sum(),
            bytes: self.counters.iter().map(|direction| direction.bytes).sum(),
        }
    }
}

impl DirectionRecord {
    fn of(direction: &Direction) -> Self {
        Self {
            key: direction.key,
            source_port: direction.source_port,
            partition_key: direction.partition_key,
            queue_key: direction.queue_key(),
            counters: direction.counters,
        }
    }
}

impl ConversationRecord {
    /// What a conversation says now.
    pub fn of(conversation: &Conversation, reason: Reason) -> Self {
        Self {
            started: conversation.started,
            last: conversation.last(),
            service: conversation.service,
            joined: conversation.joined,
            side: conversation.side,
            path_mtu: conversation.path_mtu,
            first: DirectionRecord::of(&conversation.first),
            second: conversation.second.as_ref().map(DirectionRecord::of),
            reason,
        }
    }

    /// The direction seen first, and the other one if it is known.
    pub fn directions(&self) -> impl Iterator<Item = &DirectionRecord> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// Packets and bytes of both directions.
    pub fn total(&self) -> Volume {
        let totals = self.directions().map(|direction| direction.counters.total());
        totals.fold(Volume::default(), |sum, one| Volume {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        })
    }
}
