//! The evidence ring: the last packets of a pair of ports, in memory of a fixed size and, where a
//! disk is given, in a file of a fixed size, for the moment when somebody asks what led to this.
//!
//! ```text
//!   worker --record--> [ segment ][ segment ]...[ segment being filled ]   oldest goes first
//!                          |   \__________\____________ snapshot: shared, not copied
//!                          +--- filled: shared with the disk's thread --> slots of a file
//! ```
//!
//! A packet costs one copy of at most the snap length. Segments are taken from the system once, and
//! used in turn; a whole segment is forgotten at a time. A snapshot shares the segments: a ring
//! that comes round to one while a reader still holds it takes a new one instead, so that reading
//! never holds up the worker and costs at most the ring's size again.

mod disk;
mod file;
mod flow;
mod segment;

pub use disk::{DiskCounters, DiskOptions, Ending, EvidenceDisk, files_in};
pub use file::{EvidenceFile, EvidenceFileError, Label, SLOT_BYTES, SLOTS_MIN, Slot};
pub use flow::{FlowEnd, FlowFilter};
pub use segment::{Extent, SEGMENT_BYTES, SegmentId, packets};

use std::sync::Arc;

use segment::{PACKET_BYTES_MAX, Segment};
use weir_engine::verdict::Verdict;
use weir_wire::frame::Time;

/// The fewest segments of a ring: more than a batch of super-packets fills, so that each of them
/// still has its place when it gets its verdict, and a disk's thread may hold some.
pub const SEGMENTS_MIN: usize = 8;

/// Where a packet was seen and which way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// It came from the host, in clear.
    FromHost,
    /// It went to the host, in clear.
    ToHost,
    /// It came from the wire and went no further: as it was there.
    FromWire,
}

/// How a ring is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceOptions {
    /// Memory, rounded down to whole segments, [`SEGMENTS_MIN`] at least.
    pub bytes: usize,
    /// Bytes kept of each packet.
    pub snap_bytes: usize,
}

/// What a ring holds and what it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceCounters {
    /// Packets in the ring.
    pub packets: u64,
    /// Their bytes in memory, headers included.
    pub bytes: u64,
    /// What it can hold.
    pub capacity_bytes: u64,
    /// Packets recorded since the start.
    pub recorded: u64,
    /// Of those, kept short of their length.
    pub cut: u64,
    /// Of those, forgotten to make room.
    pub overwritten: u64,
    /// When the oldest packet in the ring was seen.
    pub oldest: Option<Time>,
}

/// The ring of one pair of ports.
#[derive(Debug)]
pub struct EvidenceRing {
    /// The segment of a number lies at the number modulo their count.
    segments: Vec<Arc<Segment>>,
    /// The one being filled.
    current: SegmentId,
    snap_bytes: usize,
    recorded: u64,
    cut: u64,
    overwritten: u64,
}

/// A packet's place in the ring, to give its verdict by.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    segment: u64,
    at: usize,
}

/// A packet as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence<'a> {
    /// When it was seen.
    pub time: Time,
    /// Where, and which way it went.
    pub point: CapturePoint,
    /// Its fate; `None` in the middle of a batch, and where `is_told`.
    pub verdict: Option<Verdict>,
    /// It is kept whole beside a copy that may be short, and has the verdict: a rule told of it.
    pub is_told: bool,
    /// Its length on the wire.
    pub original_len: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

/// The content of a ring at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The oldest first.
    segments: Vec<Arc<Segment>>,
}

impl Evidence<'_> {
    /// Bytes of its record: the next one begins behind them.
    pub fn record_bytes(&self) -> usize {
        Segment::room_for(self.bytes.len())
    }
}

impl EvidenceRing {
    /// An empty ring, made at `born`.
    pub fn new(options: EvidenceOptions, born: Time) -> Self {
        let current = SegmentId { ring: born.0, number: 0 };
        let mut ring = Self {
            segments: Vec::new(),
            current,
            snap_bytes: 0,
            recorded: 0,
            cut: 0,
            overwritten: 0,
        };
        ring.change(options);
        ring
    }

    /// From the next packet on, another snap length and size; the newest packets stay.
    pub fn change(&mut self, options: EvidenceOptions) {
        self.snap_bytes = options.snap_bytes.min(PACKET_BYTES_MAX);
        let count = (options.bytes / SEGMENT_BYTES).max(SEGMENTS_MIN);
        if count == self.segments.len() {
            return;
        }
        let unused = SegmentId { number: u64::MAX, ..self.current };
        let mut next: Vec<_> = (0..count).map(|_| Arc::new(Segment::new(unused))).collect();
        let oldest_kept = (self.current.number + 1).saturating_sub(count as u64);
        for segment in self.segments.drain(..).filter(|it| it.id != unused) {
            if segment.id.number >= oldest_kept {
                let index = (segment.id.number % count as u64) as usize;
                next[index] = segment;
            } else {
                self.overwritten += segment.extent.packets;
            }
        }
        self.segments = next;
        let current = self.index(self.current.number);
        writable(&mut self.segments[current]).id = self.current;
    }

    /// Records a packet whose verdict is not known yet; see [`EvidenceRing::decide`].
    pub fn record(
        &mut self,
        time: Time,
        point: CapturePoint,
        original_len: u32,
        packet: &[u8],
    ) -> Mark {
        let kept = &packet[..packet.len().min(self.snap_bytes)];
        self.put(time, point, original_len, kept)
    }

    /// Records a packet whole, however short others are kept.
    pub fn record_whole(&mut self, time: Time, point: CapturePoint, packet: &[u8]) -> Mark {
        let kept = &packet[..packet.len().min(PACKET_BYTES_MAX)];
        let mark = self.put(time, point, packet.len() as u32, kept);
        let index = self.index(mark.segment);
        writable(&mut self.segments[index]).mark_told(mark.at);
        mark
    }

    fn put(&mut self, time: Time, point: CapturePoint, original_len: u32, kept: &[u8]) -> Mark {
        let mut index = self.index(self.current.number);
        if self.segments[index].extent.used + Segment::room_for(kept.len()) > SEGMENT_BYTES {
            index = self.advance();
        }
        self.recorded += 1;
        self.cut += u64::from(kept.len() < original_len as usize);
        let segment = writable(&mut self.segments[index]);
        let at = segment.put(time, point, original_len, kept);
        Mark { segment: self.current.number, at }
    }

    /// Gives a packet of this batch its verdict.
    pub fn decide(&mut self, mark: Mark, verdict: Verdict) {
        let index = self.index(mark.segment);
        if self.segments[index].id.number == mark.segment {
            writable(&mut self.segments[index]).decide(mark.at, verdict);
        }
    }

    /// What the ring holds now; later packets do not change it.
    pub fn snapshot(&self) -> Snapshot {
        let oldest = (self.index(self.current.number) + 1) % self.segments.len();
        let (newer, older) = self.segments.split_at(oldest);
        let used = older.iter().chain(newer).filter(|segment| segment.extent.packets > 0);
        Snapshot { segments: used.cloned().collect() }
    }

    /// What it holds and held.
    pub fn counters(&self) -> EvidenceCounters {
        let filled =
            || self.segments.iter().map(|segment| segment.extent).filter(|it| it.packets > 0);
        EvidenceCounters {
            packets: filled().map(|it| it.packets).sum(),
            bytes: filled().map(|it| it.used as u64).sum(),
            capacity_bytes: (self.segments.len() * SEGMENT_BYTES) as u64,
            recorded: self.recorded,
            cut: self.cut,
            overwritten: self.overwritten,
            oldest: filled().map(|it| it.first).min(),
        }
    }

    /// The segment being filled.
    fn current(&self) -> &Arc<Segment> {
        &self.segments[self.index(self.current.number)]
    }

    /// The segment of this number, unless it was forgotten.
    fn segment(&self, number: u64) -> Option<&Arc<Segment>> {
        let segment = &self.segments[self.index(number)];
        (segment.id.number == number).then_some(segment)
    }

    fn index(&self, number: u64) -> usize {
        (number % self.segments.len() as u64) as usize
    }

    /// Begins the next segment and forgets what it held.
    fn advance(&mut self) -> usize {
        self.current.number += 1;
        let index = self.index(self.current.number);
        let segment = &mut self.segments[index];
        self.overwritten += segment.extent.packets;
        match Arc::get_mut(segment) {
            Some(segment) => segment.begin(self.current),
            // Somebody still reads it.
            None => *segment = Arc::new(Segment::new(self.current)),
        }
        index
    }
}

/// The segment, to write to: a copy of its own where a snapshot shares it.
fn writable(segment: &mut Arc<Segment>) -> &mut Segment {
    Arc::make_mut(segment)
}

impl Snapshot {
    /// Its packets, the oldest first.
    pub fn packets(&self) -> impl Iterator<Item = Evidence<'_>> {
        self.records().flat_map(packets)
    }

    /// Their records, a segment at a time, the oldest first: see [`packets`].
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(|segment| segment.records())
    }

    /// Whether it has this segment, which a disk may hold too, or the segment is younger than it.
    pub fn covers(&self, segment: SegmentId) -> bool {
        let oldest = self.segments.first().map(|it| it.id);
        oldest.is_some_and(|it| it.ring == segment.ring && it.number <= segment.number)
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::verdict::DropReason;

    use super::*;

    fn ring(segments: usize, snap_bytes: usize) -> EvidenceRing {
        let options = EvidenceOptions { bytes: segments * SEGMENT_BYTES, snap_bytes };
        EvidenceRing::new(options, Time(1))
    }

    #[test]
    fn packets_come_out_as_they_went_in_with_their_verdicts() {
        let mut ring = ring(2, 100);
        let verdicts = [Verdict::Sealed, Verdict::Drop(DropReason::ReplayOld)];
        for (number, verdict) in verdicts.into_iter().enumerate() {
            let packet = vec![number as u8; 60 + 80 * number];
            let mark = ring.record(Time(7), CapturePoint::FromWire, packet.len() as u32, &packet);
            ring.decide(mark, verdict);
        }
        ring.record(Time(8), CapturePoint::ToHost, 9000, &[3; 9]);
        let snapshot = ring.snapshot();
        let seen: Vec<_> = snapshot.packets().collect();
        assert_eq!(seen.len(), 3);
        assert_eq!((seen[0].bytes, seen[0].verdict), (&[0; 60][..], Some(Verdict::Sealed)));
        assert_eq!((seen[1].bytes, seen[1].original_len), (&[1; 100][..], 140));
        assert_eq!(seen[1].verdict, Some(Verdict::Drop(DropReason::ReplayOld)));
        assert_eq!((seen[2].point, seen[2].verdict), (CapturePoint::ToHost, None));
        assert_eq!((ring.counters().recorded, ring.counters().cut), (3, 2));
    }

    #[test]
    fn the_oldest_go_first_and_are_counted() {
        let mut ring = ring(8, 4096);
        for number in 0..10_000u64 {
            ring.record(
                Time(number),
                CapturePoint::FromHost,
                1000,
                &number.to_ne_bytes().repeat(125),
            );
        }
        let counters = ring.counters();
        assert!(counters.packets > 6000 && counters.overwritten > 1000, "{counters:?}");
        assert_eq!(counters.packets + counters.overwritten, counters.recorded);
        let snapshot = ring.snapshot();
        let times: Vec<u64> = snapshot.packets().map(|it| it.time.0).collect();
        assert!(times.iter().copied().eq(counters.overwritten..10_000), "in order, without gap");
        assert_eq!(counters.oldest, Some(Time(counters.overwritten)));
    }

    #[test]
    fn a_snapshot_stays_as_it_was_while_the_ring_goes_on() {
        let mut ring = ring(2, 4096);
        ring.record(Time(1), CapturePoint::FromHost, 5, b"first");
        let snapshot = ring.snapshot();
        for number in 0..10_000 {
            ring.record(Time(number), CapturePoint::FromHost, 1000, &[9; 1000]);
        }
        let seen: Vec<_> = snapshot.packets().map(|it| it.bytes.to_vec()).collect();
        assert_eq!(seen, [b"first".to_vec()]);
        assert_eq!(ring.segments.len(), SEGMENTS_MIN);
    }

    #[test]
    fn time_that_runs_backwards_does_no_harm() {
        let mut ring = ring(2, 64);
        for time in [9, 3, 5] {
            ring.record(Time(time), CapturePoint::FromHost, 1, &[0]);
        }
        let times: Vec<u64> = ring.snapshot().packets().map(|it| it.time.0).collect();
        assert_eq!(times, [9, 3, 5]);
    }

    #[test]
    fn a_verdict_that_comes_too_late_alters_no_other_packet() {
        let mut ring = ring(8, usize::MAX);
        let late = ring.record(Time(0), CapturePoint::FromHost, 1000, &[7; 1000]);
        for number in 0..8 << 10 {
            ring.record(Time(number), CapturePoint::FromHost, 1000, &[7; 1000]);
        }
        ring.decide(late, Verdict::Drop(DropReason::ReplayOld));
        let snapshot = ring.snapshot();
        assert!(snapshot.packets().all(|it| it.bytes == [7; 1000] && it.verdict.is_none()));
    }

    #[test]
    fn another_size_keeps_the_newest_packets() {
        let mut ring = ring(8, 4096);
        let mut recorded = 0u64;
        let times = |ring: &EvidenceRing| -> Vec<u64> {
            ring.snapshot().packets().map(|it| it.time.0).collect()
        };
        for segments in [20, 9, 12, 8] {
            for _ in 0..12_345 {
                ring.record(Time(recorded), CapturePoint::FromHost, 1000, &[1; 1000]);
                recorded += 1;
            }
            let before = times(&ring);
            ring.change(EvidenceOptions { bytes: segments * SEGMENT_BYTES, snap_bytes: 4096 });
            let after = times(&ring);
            assert!(before.ends_with(&after) && after.last() == Some(&(recorded - 1)));
            assert!(after.len() >= before.len().min((segments - 1) * 1000), "{segments}");
            let counters = ring.counters();
            assert_eq!(counters.packets + counters.overwritten, recorded);
            assert_eq!(counters.capacity_bytes, (segments * SEGMENT_BYTES) as u64);
        }
    }
}
