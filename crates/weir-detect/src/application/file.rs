//! A file that an application carries, whole or in pieces that may come in any order.

use crate::digest::{Digester, Digests, FileDigests};
use crate::heap::heap_size;

/// Bytes of a file that are kept for rules, at most.
pub(crate) const FILE_LEN_MAX: usize = 100 * 1024;

/// The bytes of a file so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// As far as they are kept.
    pub(crate) bytes: Vec<u8>,
    /// Of all that came.
    pub(crate) size: u64,
    digester: Option<Box<Digester>>,
    /// Pieces that lie ahead, where they begin, in order and apart from each other.
    ahead: Vec<(u64, Vec<u8>)>,
    /// Bytes that are missing before those that came last.
    missing: u64,
}
heap_size!(Content { bytes, digester, ahead });

/// Pieces of a file that may lie ahead, at most.
const AHEAD_MAX: usize = 64;

impl Content {
    /// Takes in bytes; with the first of them it is decided which digests there will be.
    pub(crate) fn add(&mut self, bytes: &[u8], wanted: FileDigests) {
        if self.size == 0 && self.digester.is_none() {
            self.digester = Digester::of(wanted);
        }
        let room = FILE_LEN_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.size += bytes.len() as u64;
        self.digester.iter_mut().for_each(|it| it.update(bytes));
    }

    /// Takes in bytes of a place in the file. Those ahead wait, as far as there is room; of bytes
    /// that come again the last count. `passed` bytes behind them were not kept. Whether others are
    /// in a place that had some.
    pub(crate) fn add_at(
        &mut self,
        at: u64,
        (bytes, passed): (&[u8], u64),
        wanted: FileDigests,
    ) -> bool {
        let position = self.position();
        let differs;
        if at > position {
            differs = self.wait(at, bytes);
            let held: usize = self.ahead.iter().map(|it| it.1.len()).sum();
            if self.ahead.len() > AHEAD_MAX || held > FILE_LEN_MAX {
                self.add_first(wanted);
            }
        } else {
            let known = usize::try_from(position - at).unwrap_or(usize::MAX).min(bytes.len());
            differs = self.rewrite(at.saturating_sub(self.missing), &bytes[..known]);
            self.add(&bytes[known..], wanted);
            if passed > 0 && at.saturating_add(bytes.len() as u64) == self.position() {
                self.size += passed;
                self.digester = None;
            }
        }
        while self.ahead.first().is_some_and(|it| it.0 <= self.position()) {
            self.add_first(wanted);
        }
        differs
    }

    /// Whether nothing is missing before what came.
    pub(crate) fn is_whole(&self) -> bool {
        self.ahead.is_empty()
    }

    /// How many bytes came, those that wait included.
    pub(crate) fn size_in_all(&self) -> u64 {
        self.ahead.iter().fold(self.size, |size, it| size.saturating_add(it.1.len() as u64))
    }

    /// All that is kept, in stretches without a gap.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = &[u8]> {
        let kept = Some(self.bytes.as_slice()).filter(|it| !it.is_empty() || self.ahead.is_empty());
        kept.into_iter().chain(self.ahead.iter().map(|it| it.1.as_slice()))
    }

    /// Bytes of all stretches.
    pub(crate) fn kept(&self) -> usize {
        self.stretches().map(<[u8]>::len).sum()
    }

    /// Up to where it came.
    pub(crate) fn position(&self) -> u64 {
        self.size.saturating_add(self.missing)
    }

    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> bool {
        let Some(place) = usize::try_from(at).ok().and_then(|at| self.bytes.get_mut(at..)) else {
            return false;
        };
        let count = bytes.len().min(place.len());
        put(&mut place[..count], &bytes[..count])
    }

    /// Keeps a piece that lies ahead, with those that it touches; whether it has other bytes than
    /// they.
    fn wait(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = |it: &(u64, Vec<u8>)| it.0.saturating_add(it.1.len() as u64);
        let own_end = at.saturating_add(bytes.len() as u64);
        let first = self.ahead.partition_point(|it| end(it) < at);
        let behind = self.ahead.partition_point(|it| it.0 <= own_end).max(first);
        let mut piece = (at, Vec::new());
        let mut differs = false;
        for (start, known) in self.ahead.drain(first..behind) {
            let (from, to) = (start.max(at), start.saturating_add(known.len() as u64).min(own_end));
            if from < to {
                let of = |start: u64| (from - start) as usize..(to - start) as usize;
                differs |= known[of(start)] != bytes[of(at)];
            }
            piece.0 = piece.0.min(start);
            let place = (start - piece.0) as usize;
            piece.1.resize(piece.1.len().max(place + known.len()), 0);
            piece.1[place..place + known.len()].copy_from_slice(&known);
        }
        let place = (at - piece.0) as usize;
        piece.1.resize(piece.1.len().max(place + bytes.len()), 0);
        piece.1[place..place + bytes.len()].copy_from_slice(bytes);
        self.ahead.insert(first, piece);
        differs
    }

    /// Takes in the first piece that waits; what is missing before it does not come.
    fn add_first(&mut self, wanted: FileDigests) {
        let (at, piece) = self.ahead.remove(0);
        let position = self.position();
        let known = usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX);
        self.missing += at.saturating_sub(position);
        self.add(piece.get(known..).unwrap_or_default(), wanted);
    }

    /// Digests of all that came.
    pub(crate) fn digests(&self) -> Digests {
        self.digester.as_ref().map(|it| it.digests()).unwrap_or_default()
    }
}

/// Puts bytes in the place of others; whether they differ.
fn put(place: &mut [u8], bytes: &[u8]) -> bool {
    let differs = *place != *bytes;
    place.copy_from_slice(bytes);
    differs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(pieces: &[(u64, &[u8])]) -> Vec<Vec<u8>> {
        let mut content = Content::default();
        for (at, bytes) in pieces {
            content.add_at(*at, (bytes, 0), FileDigests::default());
        }
        content.stretches().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn pieces_are_put_in_their_place_in_whatever_order_they_come() {
        assert_eq!(stretches(&[(4, b"ware"), (0, b"malw")]), [b"malwware"]);
        assert_eq!(stretches(&[(3, b"def"), (9, b"j"), (6, b"ghi"), (0, b"abc")]), [b"abcdefghij"]);
        assert_eq!(stretches(&[(0, b"evilXXXX"), (4, b"file")]), [b"evilfile"]);
        assert_eq!(stretches(&[(5, b"bc"), (9, b"d"), (4, b"ab")]), [&b"abc"[..], b"d"]);
        assert_eq!(stretches(&[]), [b""]);
    }

    #[test]
    fn what_is_not_kept_counts_and_has_no_digest() {
        let wanted = FileDigests { md5: true, ..FileDigests::default() };
        let mut content = Content::default();
        content.add_at(0, (b"abc", 0), wanted);
        assert_ne!(content.digests(), Digests::default());
        content.add_at(3, (b"def", 10), wanted);
        assert_eq!((content.size, content.digests()), (16, Digests::default()));
        content.add_at(20, (b"ahead", 10), wanted);
        assert_eq!(content.size, 16);
    }

    #[test]
    fn it_is_said_where_other_bytes_come_to_a_place() {
        let mut content = Content::default();
        let pieces: [(u64, &[u8], bool); 6] = [
            (0, b"abcd", false),
            (2, b"cdef", false),
            (1, b"X", true),
            (10, b"k", false),
            (9, b"jk", false),
            (9, b"jK", true),
        ];
        for (at, bytes, differs) in pieces {
            assert_eq!(content.add_at(at, (bytes, 0), FileDigests::default()), differs, "{at}");
        }
    }

    #[test]
    fn places_beyond_all_files_are_taken_too() {
        let mut content = Content::default();
        for at in [u64::MAX, u64::MAX - 3, 5, u64::MAX - 1] {
            content.add_at(at, (b"0123456789", 0), FileDigests::default());
        }
        assert!(content.size_in_all() >= 20);
        content.add_at(u64::MAX, (b"more", 0), FileDigests::default());
    }

    #[test]
    fn what_lies_ahead_is_bounded_and_kept_when_nothing_more_comes() {
        let mut content = Content::default();
        for at in 0..200 {
            content.add_at(1 + 2 * at, (b"x", 0), FileDigests::default());
        }
        assert!(content.ahead.len() <= AHEAD_MAX);
        assert_eq!((content.size_in_all(), content.kept()), (200, 200));
    }
}
