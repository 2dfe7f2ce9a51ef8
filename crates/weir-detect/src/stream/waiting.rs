//! What waits behind a gap of a stream: pieces in order, without overlaps.
//!
//! Places are counted from the stream's next byte (`next`), behind which every piece lies.

use std::collections::VecDeque;
use std::ops::Range;

use super::AHEAD_MAX;
use crate::heap::heap_size;

/// Pieces that wait behind a gap, at most, of one direction. Linux takes 768 bytes for one, and
/// joins those that lie together: so many take 12 MiB of a receiver's buffer if each is short.
const PIECES_MAX: usize = 16_384;
/// Bytes of a piece to which others are joined that lie beside it, at most.
pub(super) const JOINED_MAX: usize = 2048;

/// The pieces of one direction.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Sequence number of each one's first byte, and its bytes.
    pieces: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
}
heap_size!(Waiting { pieces });

impl Waiting {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether there are as many pieces as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES_MAX
    }

    /// Whether there are more of them than there may be.
    pub(super) fn is_too_many(&self) -> bool {
        self.pieces.len() > PIECES_MAX
    }

    /// Sequence number of the first byte that waits.
    pub(super) fn first(&self) -> Option<u32> {
        self.pieces.front().map(|it| it.0)
    }

    /// Takes the first piece out.
    pub(super) fn pop(&mut self) -> Option<(u32, Vec<u8>)> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.1.len();
        Some(piece)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(u32, Vec<u8>)> {
        self.pieces.iter()
    }

    /// Those with bytes of a segment's place.
    pub(super) fn within(
        &self,
        next: u32,
        sequence: u32,
        length: usize,
    ) -> impl Iterator<Item = &(u32, Vec<u8>)> {
        self.pieces.range(self.overlapping(next, sequence, length))
    }

    /// Which of them have bytes of a segment's place.
    fn overlapping(&self, next: u32, sequence: u32, length: usize) -> Range<usize> {
        let place = |number: u32| number.wrapping_sub(next) as usize;
        let start = place(sequence);
        let first = self.pieces.partition_point(|it| place(it.0) + it.1.len() <= start);
        let behind = self.pieces.partition_point(|it| place(it.0) < start + length);
        first..behind.max(first)
    }

    /// Whether a segment has other bytes in their places.
    pub(super) fn differs(&self, next: u32, sequence: u32, bytes: &[u8]) -> bool {
        self.within(next, sequence, bytes.len()).any(|(known, piece)| {
            let ahead = known.wrapping_sub(sequence);
            let (piece, bytes) = match ahead < AHEAD_MAX {
                true => (Some(piece.as_slice()), bytes.get(ahead as usize..)),
                false => (piece.get(sequence.wrapping_sub(*known) as usize..), Some(bytes)),
            };
            let both = piece.unwrap_or_default().iter().zip(bytes.unwrap_or_default());
            both.into_iter().any(|(known, byte)| known != byte)
        })
    }

    /// Those with bytes of a segment's place, with how many of their own come before it, and how
    /// many of the segment's before theirs.
    pub(super) fn within_mut(
        &mut self,
        next: u32,
        sequence: u32,
        length: usize,
    ) -> impl Iterator<Item = (usize, usize, &mut [u8])> {
        let among = self.overlapping(next, sequence, length);
        self.pieces.range_mut(among).map(move |(known, piece)| {
            let ahead = known.wrapping_sub(sequence) as i32;
            let before = ahead.min(0).unsigned_abs() as usize;
            (before, ahead.max(0) as usize, piece.as_mut_slice())
        })
    }

    /// The bytes that lie together around `sequence`, as far as `far` on both sides, and how far
    /// behind the stream's end they begin.
    pub(super) fn island(&self, next: u32, sequence: u32, far: usize) -> Option<(usize, Vec<u8>)> {
        let around = self.overlapping(next, sequence, 1);
        if around.is_empty() {
            return None;
        }
        let place = |at: usize| self.pieces[at].0.wrapping_sub(next) as usize;
        let end = |at: usize| place(at) + self.pieces[at].1.len();
        let (mut first, mut last) = (around.start, around.start);
        let (from, to) = (place(around.start), end(around.start));
        while first > 0 && end(first - 1) == place(first) && from - place(first) < far {
            first -= 1;
        }
        while last + 1 < self.pieces.len() && place(last + 1) == end(last) && end(last) - to < far {
            last += 1;
        }
        let bytes = self.pieces.range(first..=last).flat_map(|it| it.1.iter().copied()).collect();
        Some((place(first), bytes))
    }

    /// Keeps the parts of a segment that are not there yet.
    pub(super) fn insert(&mut self, next: u32, sequence: u32, bytes: &[u8]) {
        let place = |sequence: u32| sequence.wrapping_sub(next) as usize;
        let (mut start, end) = (place(sequence), place(sequence) + bytes.len());
        let first = start;
        let mut parts = Vec::new();
        for (known, piece) in self.within(next, sequence, bytes.len()) {
            let (known_start, known_end) = (place(*known), place(*known) + piece.len());
            if known_start > start {
                parts.push((start, end.min(known_start)));
            }
            start = start.max(known_end);
            if start >= end {
                break;
            }
        }
        if start < end {
            parts.push((start, end));
        }
        for (start, end) in parts.into_iter().filter(|(start, end)| start < end) {
            self.keep(next, next.wrapping_add(start as u32), &bytes[start - first..end - first]);
        }
    }

    /// Keeps a piece that overlaps none: with one that it lies beside, if both are short.
    fn keep(&mut self, next: u32, sequence: u32, bytes: &[u8]) {
        let ahead = sequence.wrapping_sub(next);
        self.bytes += bytes.len();
        let at = self.pieces.partition_point(|(known, _)| known.wrapping_sub(next) < ahead);
        let has_room = |piece: &[u8]| piece.len() + bytes.len() <= JOINED_MAX;
        if let Some((known, piece)) = at.checked_sub(1).and_then(|it| self.pieces.get_mut(it))
            && known.wrapping_add(piece.len() as u32) == sequence
            && has_room(piece)
        {
            return piece.extend_from_slice(bytes);
        }
        match self.pieces.get_mut(at) {
            Some((known, piece))
                if sequence.wrapping_add(bytes.len() as u32) == *known && has_room(piece) =>
            {
                *known = sequence;
                piece.splice(..0, bytes.iter().copied());
            }
            _ => self.pieces.insert(at, (sequence, bytes.to_vec())),
        }
    }
}
