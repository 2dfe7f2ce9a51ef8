//! Which seat a packet's flow has: by its two ends, or by one direction of a queue pair.
//!
//! The table is the detector's own. The meter's entries end after seconds of silence, and an attack
//! that pauses for longer must not be forgotten.

use hashlink::LinkedHashMap;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Transport};
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::alert::Alerts;
use crate::detector::{Decision, Detector, Direction, Limits, Packet};
use crate::flow::Seat;
use crate::state::Keyed;

/// A flow that was silent for so long has ended: Suricata's timeout of an established connection.
const QUIET_NS: u64 = 600_000_000_000;

/// Flows from the one that was silent longest to the one that spoke last. At the bound, the first
/// leaves.
#[derive(Debug)]
pub struct FlowTable {
    entries: LinkedHashMap<Key, Entry, Keyed>,
    max: usize,
    evicted: u64,
}

/// Both ends of a flow, the lesser first; or a sender and the queue pair that it sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    ends: [([u8; 16], u32); 2],
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seat: Seat,
    /// Whether the end that is first in the key sent the first packet.
    first_is_initiator: bool,
    last: Time,
    has_ended: bool,
}

impl FlowTable {
    /// A table for as many flows as `limits` has seats, at least one.
    pub fn new(limits: Limits) -> Self {
        let entries = LinkedHashMap::with_hasher(Keyed(limits.seed));
        Self { entries, max: limits.flows.max(1), evicted: 0 }
    }

    /// Has `detector` look at a packet, in the state of its flow: see [`Detector::inspect`].
    pub fn inspect(
        &mut self,
        detector: &mut Detector,
        now: Time,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        let parsed = packet.parsed;
        let (key, from_first) = key(parsed);
        if !self.entries.contains_key(&key) {
            self.enter(key, from_first, now, detector);
        }
        // It is there: it was, or came in just now.
        let Some(entry) = self.entries.to_back(&key) else { return Decision::Pass };
        let is_quiet = now.since_ns(entry.last) > QUIET_NS;
        if is_quiet || (entry.has_ended && begins(parsed)) {
            detector.release(entry.seat);
            *entry = Entry::new(from_first, now);
        }
        entry.last = now;
        entry.has_ended |= ends(parsed);
        let direction = match entry.first_is_initiator == from_first {
            true => Direction::Initiator,
            false => Direction::Responder,
        };
        detector.inspect(now, &mut entry.seat, direction, packet, alerts)
    }

    /// Ends at most `max` flows that have been silent for ten minutes.
    pub fn expire(&mut self, now: Time, max: usize, detector: &mut Detector) {
        for _ in 0..max {
            match self.entries.front() {
                Some((_, oldest)) if now.since_ns(oldest.last) > QUIET_NS => {}
                _ => return,
            }
            self.end_oldest(detector);
        }
    }

    /// Flows that left before their time, for there was no room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Flows in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no flow is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn enter(&mut self, key: Key, from_first: bool, now: Time, detector: &mut Detector) {
        if self.entries.len() >= self.max {
            self.end_oldest(detector);
            self.evicted += 1;
        }
        self.entries.insert(key, Entry::new(from_first, now));
    }

    fn end_oldest(&mut self, detector: &mut Detector) {
        if let Some((_, entry)) = self.entries.pop_front() {
            detector.release(entry.seat);
        }
    }
}

impl Entry {
    fn new(from_first: bool, now: Time) -> Self {
        Self { seat: Seat::default(), first_is_initiator: from_first, last: now, has_ended: false }
    }
}

/// The flow of a packet, and whether the end that is first in the key sent it.
fn key(parsed: &Parsed) -> (Key, bool) {
    if let Some(rdma) = &parsed.rdma {
        // Marked, so that it is nobody's port.
        let queue_pair = rdma.destination_qp.value() | 1 << 31;
        let ends = [(parsed.source, 0), (parsed.destination, queue_pair)];
        return (Key { ends, protocol: parsed.protocol }, true);
    }
    let (source, destination) = match parsed.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source.into(), destination.into())
        }
        _ => (0, 0),
    };
    let (from, to) = ((parsed.source, source), (parsed.destination, destination));
    let from_first = from <= to;
    let ends = if from_first { [from, to] } else { [to, from] };
    (Key { ends, protocol: parsed.protocol }, from_first)
}

fn begins(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & (SYN | ACK) == SYN)
}

fn ends(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & (RST | FIN) != 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_wire::frame::Link;
    use weir_wire::parse::parse;

    use super::*;
    use crate::rule::load::{LoadOptions, RuleSource};
    use crate::rule::variables::Variables;
    use crate::ruleset::RuleSet;

    const MINUTE_NS: u64 = 60_000_000_000;
    const SYN_ONLY: u8 = 2;
    const DATA: u8 = 0x18;
    const FIN_ACK: u8 = 0x11;

    struct Bench {
        table: FlowTable,
        detector: Detector,
        alerts: Alerts,
    }

    impl Bench {
        fn new(flows: usize) -> Self {
            let text = "alert tcp any any -> any any (content:\"evil\"; sid:1;)".to_owned();
            let source = RuleSource { name: "test".into(), text };
            let loaded =
                RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
            let limits = Limits { flows, ..Limits::default() };
            let detector = Detector::new(Arc::new(loaded.rules), limits).unwrap();
            Self { table: FlowTable::new(limits), detector, alerts: Alerts::new(8) }
        }

        /// A segment of the client with this port; how many alerts there were.
        fn segment(&mut self, now: u64, port: u16, flags: u8, at: u32, payload: &[u8]) -> usize {
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((40 + payload.len() as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(port.to_be_bytes());
            frame.extend([0, 80]);
            frame.extend(at.to_be_bytes());
            frame.extend([0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
            frame.extend(payload);
            let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
            let packet = Packet { bytes: &frame, parsed: &parsed };
            let Self { table, detector, alerts } = self;
            table.inspect(detector, Time(now), &packet, alerts);
            alerts.drain().count()
        }
    }

    #[test]
    fn a_stream_that_pauses_for_minutes_is_not_forgotten() {
        let mut bench = Bench::new(16);
        bench.segment(1, 1000, SYN_ONLY, 9, b"");
        assert_eq!(bench.segment(2, 1000, DATA, 10, b"ev"), 0);
        assert_eq!(bench.segment(9 * MINUTE_NS, 1000, DATA, 12, b"il"), 1);
    }

    #[test]
    fn a_flow_ends_after_ten_minutes_of_silence() {
        let mut bench = Bench::new(16);
        bench.segment(1, 1000, DATA, 10, b"x");
        bench.table.expire(Time(11 * MINUTE_NS), 8, &mut bench.detector);
        assert_eq!((bench.table.len(), bench.detector.flows()), (0, 0));
    }

    #[test]
    fn a_new_connection_on_the_same_ports_begins_anew() {
        let mut bench = Bench::new(16);
        bench.segment(1, 1000, SYN_ONLY, 9, b"");
        assert_eq!(bench.segment(2, 1000, DATA, 10, b"ev"), 0);
        bench.segment(3, 1000, FIN_ACK, 12, b"");
        bench.segment(4, 1000, SYN_ONLY, 11, b"");
        assert_eq!(bench.segment(5, 1000, DATA, 12, b"il"), 0);
        assert_eq!((bench.table.len(), bench.detector.flows()), (1, 1));
    }

    #[test]
    fn at_the_bound_the_flow_that_was_silent_longest_leaves() {
        let mut bench = Bench::new(2);
        bench.segment(1, 1, SYN_ONLY, 9, b"");
        bench.segment(2, 2, SYN_ONLY, 9, b"");
        bench.segment(3, 1, DATA, 10, b"ev");
        bench.segment(4, 3, SYN_ONLY, 9, b"");
        assert_eq!((bench.table.evicted(), bench.detector.flows()), (1, 2));
        assert_eq!(bench.segment(5, 1, DATA, 12, b"il"), 1, "it spoke after the second");
    }
}
