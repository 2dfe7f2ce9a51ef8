//! Later fragments have no ports: they go where the first of their packet went.

use std::collections::{HashMap, VecDeque};

use weir_wire::frame::Time;

use super::packet::{End, Packet};

/// Packets whose fragments are remembered; at the bound the oldest is forgotten.
const PACKETS_MAX: usize = 1024;
/// A receiver waits no longer for the rest of a packet (RFC 791 s3.2).
const LIFE_NS: u64 = 15_000_000_000;

/// What the fragments of one packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    translated: End,
    addresses: [[u8; 4]; 2],
    identification: (u16, u8),
}

impl Part {
    /// Of a packet before it is translated at `end`.
    pub(super) fn of(packet: &Packet<'_>, end: End) -> Self {
        let addresses = [End::Source, End::Destination].map(|it| packet.address(it));
        Self { translated: end, addresses, identification: packet.identification() }
    }
}

/// Packets whose first fragment came.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    known: HashMap<Part, ([u8; 4], Time)>,
    order: VecDeque<Part>,
}

impl Fragments {
    /// The first fragment of a packet was given `address`.
    pub(super) fn note(&mut self, now: Time, part: Part, address: [u8; 4]) {
        if self.known.insert(part, (address, now)).is_some() {
            return;
        }
        self.order.push_back(part);
        if self.order.len() > PACKETS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// What the first fragment was given.
    pub(super) fn find(&self, now: Time, part: &Part) -> Option<[u8; 4]> {
        let (address, at) = self.known.get(part)?;
        (now.since_ns(*at) < LIFE_NS).then_some(*address)
    }
}
