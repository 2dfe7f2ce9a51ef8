//! A piece of a ring: packets one behind the other, each behind a record header. The same bytes lie
//! in memory and on disk, little-endian.
//!
//! ```text
//!   time 8 | kept length 4 | original length 4 | point 1 | verdict 2 | zero 5 | packet, padded to 8
//! ```

use weir_engine::verdict::Verdict;
use weir_wire::frame::Time;

use super::{CapturePoint, Evidence};

/// Bytes of a segment. Any packet fits: super-packets have 64 KiB.
pub const SEGMENT_BYTES: usize = 1 << 20;
/// What a disk wants memory, place and length of direct writes to be a multiple of: no disk's
/// sector is larger.
pub(super) const PAGE_BYTES: usize = 4096;
/// Before each packet.
const HEADER_BYTES: usize = 24;
const ALIGNMENT: usize = 8;
/// A verdict not yet given.
const UNDECIDED: [u8; 2] = [u8::MAX; 2];
/// The same of what is kept whole beside a copy that has the verdict.
const TOLD: [u8; 2] = [u8::MAX, u8::MAX - 1];
const VERDICT: std::ops::Range<usize> = 17..19;

/// The longest packet that a segment takes.
pub(super) const PACKET_BYTES_MAX: usize = SEGMENT_BYTES - HEADER_BYTES - ALIGNMENT;

/// Which segment of which ring: the same in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SegmentId {
    /// When the ring was made; tells rings of one pair apart.
    pub ring: u64,
    /// Counts the ring's segments.
    pub number: u64,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of records.
    pub used: usize,
    /// Packets.
    pub packets: u64,
    /// When the first of them was seen.
    pub first: Time,
    /// When the last of them was seen.
    pub last: Time,
}

#[derive(Debug)]
pub(super) struct Segment {
    /// Taken zeroed: it costs nothing until it is touched.
    memory: Vec<u8>,
    /// Where a page begins.
    start: usize,
    pub(super) id: SegmentId,
    pub(super) extent: Extent,
}

impl Segment {
    pub(super) fn new(id: SegmentId) -> Self {
        let memory = vec![0; SEGMENT_BYTES + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { memory, start, id, extent: Extent::default() }
    }

    /// One without memory, which holds nothing.
    pub(super) fn empty() -> Self {
        let (id, extent) = (SegmentId::default(), Extent::default());
        Self { memory: Vec::new(), start: 0, id, extent }
    }

    /// Adds records that were put into a segment of the same number behind those of this one.
    pub(super) fn extend(&mut self, records: &[u8], extent: Extent) {
        let at = self.start + self.extent.used;
        self.memory[at..at + records.len()].copy_from_slice(records);
        self.extent = extent;
    }

    /// Forgets what it holds.
    pub(super) fn begin(&mut self, id: SegmentId) {
        (self.id, self.extent) = (id, Extent::default());
    }

    /// Bytes that a packet of `len` takes.
    pub(super) fn room_for(len: usize) -> usize {
        (HEADER_BYTES + len).next_multiple_of(ALIGNMENT)
    }

    /// Adds a packet without a verdict, for which there is room, and says where.
    pub(super) fn put(
        &mut self,
        time: Time,
        point: CapturePoint,
        original_len: u32,
        kept: &[u8],
    ) -> usize {
        let at = self.extent.used;
        let len = Self::room_for(kept.len());
        let record = &mut self.memory[self.start + at..self.start + at + len];
        record[..8].copy_from_slice(&time.0.to_le_bytes());
        record[8..12].copy_from_slice(&(kept.len() as u32).to_le_bytes());
        record[12..16].copy_from_slice(&original_len.to_le_bytes());
        record[16] = point as u8;
        record[VERDICT].copy_from_slice(&UNDECIDED);
        record[HEADER_BYTES..HEADER_BYTES + kept.len()].copy_from_slice(kept);
        if self.extent.packets == 0 {
            self.extent.first = time;
        }
        self.extent.last = time;
        self.extent.used += len;
        self.extent.packets += 1;
        at
    }

    /// Notes that the packet at `at` is kept beside a copy that has the verdict.
    pub(super) fn mark_told(&mut self, at: usize) {
        let at = self.start + at;
        self.memory[at + VERDICT.start..at + VERDICT.end].copy_from_slice(&TOLD);
    }

    /// Gives the packet at `at` its verdict.
    pub(super) fn decide(&mut self, at: usize, verdict: Verdict) {
        let at = self.start + at;
        self.memory[at + VERDICT.start..at + VERDICT.end].copy_from_slice(&verdict.code());
    }

    /// Its records.
    pub(super) fn records(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.extent.used]
    }

    /// Its records and what follows them up to the end of their last page; begins at a page.
    pub(super) fn pages(&self) -> &[u8] {
        let len = self.extent.used.next_multiple_of(PAGE_BYTES);
        &self.memory[self.start..self.start + len]
    }
}

impl Clone for Segment {
    /// Copies what is used.
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.id);
        let (start, used) = (copy.start, self.extent.used);
        copy.memory[start..start + used].copy_from_slice(self.records());
        copy.extent = self.extent;
        copy
    }
}

/// The packets in the records of a segment; ends at what is none.
pub fn packets(records: &[u8]) -> impl Iterator<Item = Evidence<'_>> {
    Records { rest: records }
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
        let len = u32::from_le_bytes(*len) as usize;
        let bytes = rest.get(..len)?;
        self.rest = self.rest.get(Segment::room_for(len)..).unwrap_or_default();
        Some(Evidence {
            time: Time(u64::from_le_bytes(*time)),
            point: match marks[0] {
                0 => CapturePoint::FromHost,
                1 => CapturePoint::ToHost,
                _ => CapturePoint::FromWire,
            },
            verdict: Verdict::of_code([marks[1], marks[2]]),
            is_told: [marks[1], marks[2]] == TOLD,
            original_len: u32::from_le_bytes(*original_len),
            bytes,
        })
    }
}
