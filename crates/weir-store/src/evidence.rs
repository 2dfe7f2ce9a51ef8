//! The evidence ring: the last packets of a pair of ports, in memory of a fixed size, for the
//! moment when somebody asks what led to this.
//!
//! ```text
//!   worker --record--> [ segment ][ segment ]...[ segment being filled ]   oldest goes first
//!                          \__________\____________ snapshot: shared, not copied
//! ```
//!
//! A packet costs one copy of at most the snap length. Segments are taken from the system once, and
//! used in turn; a whole segment is forgotten at a time. A snapshot shares the segments: a ring
//! that comes round to one while a reader still holds it takes a new one instead, so that reading
//! never holds up the worker and costs at most the ring's size again.

use std::sync::Arc;

use weir_engine::verdict::Verdict;
use weir_wire::frame::Time;

/// Bytes of a segment. Any packet fits: super-packets have 64 KiB.
pub const SEGMENT_BYTES: usize = 1 << 20;
/// The fewest segments of a ring: one to fill, one to keep.
const SEGMENTS_MIN: usize = 2;
/// Before each packet: time, lengths, port, verdict.
const HEADER_BYTES: usize = 24;
const ALIGNMENT: usize = 8;
/// A verdict not yet given.
const UNDECIDED: [u8; 2] = [u8::MAX; 2];

/// Where a packet was seen and which way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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
    /// Memory, rounded down to whole segments, two at least.
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
    /// Of those, cut to the snap length.
    pub cut: u64,
    /// Of those, forgotten to make room.
    pub overwritten: u64,
    /// When the oldest packet in the ring was seen.
    pub oldest: Option<Time>,
}

/// The ring of one pair of ports.
#[derive(Debug)]
pub struct EvidenceRing {
    segments: Vec<Arc<Segment>>,
    /// The one being filled.
    current: usize,
    snap_bytes: usize,
    recorded: u64,
    cut: u64,
    overwritten: u64,
}

#[derive(Clone, Debug)]
struct Segment {
    /// Taken zeroed: it costs nothing until it is touched.
    bytes: Vec<u8>,
    used: usize,
    packets: u64,
    first: Time,
}

/// A packet's place in the ring, to give its verdict by.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    segment: usize,
    at: usize,
}

/// A packet as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence<'a> {
    /// When it was seen.
    pub time: Time,
    /// Where, and which way it went.
    pub place: Place,
    /// Its fate; `None` in the middle of a batch.
    pub verdict: Option<Verdict>,
    /// Its length on the wire.
    pub original_len: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

/// The content of a ring at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The oldest first.
    segments: Vec<Arc<Segment>>,
}

impl Segment {
    fn new() -> Self {
        Self { bytes: vec![0; SEGMENT_BYTES], used: 0, packets: 0, first: Time::default() }
    }
}

impl EvidenceRing {
    /// An empty ring.
    pub fn new(options: EvidenceOptions) -> Self {
        let count = (options.bytes / SEGMENT_BYTES).max(SEGMENTS_MIN);
        let snap_bytes = options.snap_bytes.min(SEGMENT_BYTES - HEADER_BYTES - ALIGNMENT);
        let segments = (0..count).map(|_| Arc::new(Segment::new())).collect();
        Self { segments, current: 0, snap_bytes, recorded: 0, cut: 0, overwritten: 0 }
    }

    /// Records a packet whose verdict is not known yet; see [`EvidenceRing::decide`].
    pub fn record(&mut self, time: Time, place: Place, original_len: u32, packet: &[u8]) -> Mark {
        let kept = &packet[..packet.len().min(self.snap_bytes)];
        let len = (HEADER_BYTES + kept.len()).next_multiple_of(ALIGNMENT);
        if self.segments[self.current].used + len > SEGMENT_BYTES {
            self.advance();
        }
        self.recorded += 1;
        self.cut += u64::from(kept.len() < packet.len());
        let index = self.current;
        let segment = writable(&mut self.segments[index]);
        if segment.packets == 0 {
            segment.first = time;
        }
        let at = segment.used;
        let record = &mut segment.bytes[at..at + len];
        record[..8].copy_from_slice(&time.0.to_ne_bytes());
        record[8..12].copy_from_slice(&(kept.len() as u32).to_ne_bytes());
        record[12..16].copy_from_slice(&original_len.to_ne_bytes());
        record[16] = place as u8;
        record[17..19].copy_from_slice(&UNDECIDED);
        record[HEADER_BYTES..HEADER_BYTES + kept.len()].copy_from_slice(kept);
        segment.used += len;
        segment.packets += 1;
        Mark { segment: index, at }
    }

    /// Gives a packet of this batch its verdict.
    pub fn decide(&mut self, mark: Mark, verdict: Verdict) {
        let segment = writable(&mut self.segments[mark.segment]);
        if mark.at + HEADER_BYTES <= segment.used {
            segment.bytes[mark.at + 17..mark.at + 19].copy_from_slice(&verdict.code());
        }
    }

    /// What the ring holds now; later packets do not change it.
    pub fn snapshot(&self) -> Snapshot {
        let oldest = (self.current + 1) % self.segments.len();
        let (newer, older) = self.segments.split_at(oldest);
        let used = older.iter().chain(newer).filter(|segment| segment.packets > 0);
        Snapshot { segments: used.cloned().collect() }
    }

    /// What it holds and held.
    pub fn counters(&self) -> EvidenceCounters {
        let filled = || self.segments.iter().filter(|segment| segment.packets > 0);
        EvidenceCounters {
            packets: filled().map(|segment| segment.packets).sum(),
            bytes: filled().map(|segment| segment.used as u64).sum(),
            capacity_bytes: (self.segments.len() * SEGMENT_BYTES) as u64,
            recorded: self.recorded,
            cut: self.cut,
            overwritten: self.overwritten,
            oldest: filled().map(|segment| segment.first).min(),
        }
    }

    /// Begins the next segment and forgets what it held.
    fn advance(&mut self) {
        self.current = (self.current + 1) % self.segments.len();
        let segment = &mut self.segments[self.current];
        self.overwritten += segment.packets;
        match Arc::get_mut(segment) {
            Some(segment) => (segment.used, segment.packets) = (0, 0),
            // Somebody still reads it.
            None => *segment = Arc::new(Segment::new()),
        }
    }
}

/// The segment, to write to: a copy of its own where a snapshot shares it.
fn writable(segment: &mut Arc<Segment>) -> &mut Segment {
    Arc::make_mut(segment)
}

impl Snapshot {
    /// Its packets, the oldest first.
    pub fn packets(&self) -> impl Iterator<Item = Evidence<'_>> {
        self.segments.iter().flat_map(|segment| Records { rest: &segment.bytes[..segment.used] })
    }
}

struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Evidence<'a>;

    fn next(&mut self) -> Option<Evidence<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER_BYTES>()?;
        let (time, lens) = header.split_first_chunk::<8>()?;
        let (len, lens) = lens.split_first_chunk::<4>()?;
        let (original_len, marks) = lens.split_first_chunk::<4>()?;
        let len = u32::from_ne_bytes(*len) as usize;
        let bytes = rest.get(..len)?;
        self.rest =
            self.rest.get((HEADER_BYTES + len).next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(Evidence {
            time: Time(u64::from_ne_bytes(*time)),
            place: match marks[0] {
                0 => Place::FromHost,
                1 => Place::ToHost,
                _ => Place::FromWire,
            },
            verdict: Verdict::of_code([marks[1], marks[2]]),
            original_len: u32::from_ne_bytes(*original_len),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::verdict::DropReason;

    use super::*;

    fn ring(segments: usize, snap_bytes: usize) -> EvidenceRing {
        EvidenceRing::new(EvidenceOptions { bytes: segments * SEGMENT_BYTES, snap_bytes })
    }

    #[test]
    fn packets_come_out_as_they_went_in_with_their_verdicts() {
        let mut ring = ring(2, 100);
        let verdicts = [Verdict::Sealed, Verdict::Drop(DropReason::ReplayOld)];
        for (number, verdict) in verdicts.into_iter().enumerate() {
            let packet = vec![number as u8; 60 + 80 * number];
            let mark = ring.record(Time(7), Place::FromWire, packet.len() as u32, &packet);
            ring.decide(mark, verdict);
        }
        ring.record(Time(8), Place::ToHost, 9000, &[3; 9]);
        let snapshot = ring.snapshot();
        let seen: Vec<_> = snapshot.packets().collect();
        assert_eq!(seen.len(), 3);
        assert_eq!((seen[0].bytes, seen[0].verdict), (&[0; 60][..], Some(Verdict::Sealed)));
        assert_eq!((seen[1].bytes, seen[1].original_len), (&[1; 100][..], 140));
        assert_eq!(seen[1].verdict, Some(Verdict::Drop(DropReason::ReplayOld)));
        assert_eq!((seen[2].place, seen[2].verdict), (Place::ToHost, None));
        assert_eq!((ring.counters().recorded, ring.counters().cut), (3, 1));
    }

    #[test]
    fn the_oldest_go_first_and_are_counted() {
        let mut ring = ring(3, 4096);
        for number in 0..5000u64 {
            ring.record(Time(number), Place::FromHost, 1000, &number.to_ne_bytes().repeat(125));
        }
        let counters = ring.counters();
        assert!(counters.packets > 2000 && counters.overwritten > 1000, "{counters:?}");
        assert_eq!(counters.packets + counters.overwritten, counters.recorded);
        let snapshot = ring.snapshot();
        let times: Vec<u64> = snapshot.packets().map(|it| it.time.0).collect();
        assert!(times.iter().copied().eq(counters.overwritten..5000), "in order, without gap");
        assert_eq!(counters.oldest, Some(Time(counters.overwritten)));
    }

    #[test]
    fn a_snapshot_stays_as_it_was_while_the_ring_goes_on() {
        let mut ring = ring(2, 4096);
        ring.record(Time(1), Place::FromHost, 5, b"first");
        let snapshot = ring.snapshot();
        for number in 0..10_000 {
            ring.record(Time(number), Place::FromHost, 1000, &[9; 1000]);
        }
        let seen: Vec<_> = snapshot.packets().map(|it| it.bytes.to_vec()).collect();
        assert_eq!(seen, [b"first".to_vec()]);
        assert_eq!(ring.segments.len(), 2);
    }

    #[test]
    fn time_that_runs_backwards_does_no_harm() {
        let mut ring = ring(2, 64);
        for time in [9, 3, 5] {
            ring.record(Time(time), Place::FromHost, 1, &[0]);
        }
        let times: Vec<u64> = ring.snapshot().packets().map(|it| it.time.0).collect();
        assert_eq!(times, [9, 3, 5]);
    }
}
