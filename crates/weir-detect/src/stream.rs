//! One direction of a TCP connection, put in order: segments in, the stream's next bytes out.
//!
//! Of bytes that come twice those count that the receiver believes ([`System`]), as long as it has
//! not acknowledged them; then the first. Beside Suricata: until rules have looked at them
//! ([`Stream::may_change`]). What lies ahead of a gap waits, within a bound;
//! beyond it the gap is given up and counted, and the stream goes on behind it.

mod waiting;

use std::collections::VecDeque;

use crate::detector::Unseen;
use crate::heap::heap_size;
use crate::hosts::System;
use crate::sequence::before;
use waiting::Waiting;

/// Bytes that wait behind a gap, at most, of one direction.
const WAITING_MAX: usize = 256 * 1024;
/// The same where there is room: as many as a receiver of Linux's takes by default, whose buffer
/// grows to 32 MiB (`tcp_rmem`; 6 MiB in older kernels).
const WAITING_LONG_MAX: usize = 32 << 20;
/// Bytes of the past that rules about the stream look at together.
const WINDOW_LEN: usize = 4096;
/// Bytes that were not acknowledged and are compared with others in their place, at most; as many
/// as may wait where there is room.
const PAST_LEN: usize = 64 * 1024;
/// Segments that were not acknowledged and are remembered, at most; of older ones the first bytes
/// count.
const SEGMENTS_MAX: usize = 64;
/// How far ahead a segment may lie; one further is none of this stream.
const AHEAD_MAX: u32 = 1 << 30;

/// What came of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes that the stream grew by.
    pub(crate) new: usize,
    /// The segment's bytes belong to the stream, now or later, or already did.
    pub(crate) is_part: bool,
    /// Bytes wait behind a gap that did not before.
    pub(crate) waits: bool,
    /// A gap was given up.
    pub(crate) gaps: u32,
    /// Bytes that it had.
    pub(crate) lost: u32,
    /// Why it is none of the stream, and is to go no further.
    pub(crate) refused: Option<Unseen>,
    /// Bytes that were there already are others now.
    pub(crate) differs: bool,
    /// So many bytes at the stream's end were looked at, and are others now.
    pub(crate) rewritten: usize,
    /// The number of the first byte that is another now, of the stream or, at the latest, of what
    /// waits.
    pub(crate) changed: Option<u32>,
    /// The stream is as long with it as it may be.
    pub(crate) reaches_depth: bool,
}

/// Which byte counts of two with one number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    New,
    Old,
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the stream's next byte.
    next: Option<u32>,
    /// It began by a SYN.
    is_whole: bool,
    /// Bytes before the window.
    before: u64,
    window: Vec<u8>,
    waiting: Waiting,
    refusals: Refusals,
    /// Bytes that it may have; `None`: any number.
    depth: Option<u64>,
    /// What comes is behind them.
    is_full: bool,
    /// It was let go: its sender says no more.
    is_over: bool,
    /// What came before the window and may not have arrived, where others in its place are refused.
    past: VecDeque<u8>,
    /// A byte that the receiver may have had no room for: its acknowledgment tells.
    doubted: Option<(u32, u8)>,
    acknowledged: Option<u32>,
    /// What the receiver is.
    system: System,
    /// Segments may have gone by unseen: see [`Self::may_miss`].
    may_miss: bool,
    /// There is room for what waits: see [`Self::may_wait`].
    may_wait: bool,
    /// What was acknowledged may become other bytes: see [`Self::may_change`].
    may_change: bool,
    /// Where segments begin and end that were not acknowledged, in the order in which they came.
    segments: VecDeque<(u32, u32)>,
    /// The last that was, where the receiver has nothing behind it.
    edge: Option<(u32, u32)>,
}
heap_size!(Stream { window, waiting, past });

/// What is none of a stream, and is to go no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// What finds no room behind a gap; otherwise the gap is given up.
    pub(crate) gaps: bool,
    /// What has other bytes than came before in the same place and were not acknowledged;
    /// otherwise those count that the receiver believes.
    pub(crate) conflicts: bool,
    /// It is said to be refused, and taken in nonetheless.
    pub(crate) only_told: bool,
}

impl Stream {
    /// The receiver is such a system.
    pub(crate) fn set_receiver(&mut self, system: System) {
        self.system = system;
    }

    /// What is refused from now on.
    pub(crate) fn refuse(&mut self, refusals: Refusals) {
        self.refusals = refusals;
    }

    /// Whether segments may go by unseen, as in a capture: what the receiver acknowledges and
    /// nobody saw is then given up.
    pub(crate) fn may_miss(&mut self, may_miss: bool) {
        self.may_miss = may_miss;
    }

    /// Whether there is room for as much behind a gap as receivers have.
    pub(crate) fn may_wait(&mut self, may_wait: bool) {
        self.may_wait = may_wait;
    }

    /// Whether bytes that were acknowledged become others, too, until they count as looked at, as
    /// by Suricata: see [`Self::settle_before`].
    pub(crate) fn may_change(&mut self, may_change: bool) {
        self.may_change = may_change;
    }

    fn waiting_max(&self) -> usize {
        if self.may_wait { WAITING_LONG_MAX } else { WAITING_MAX }
    }

    /// The receiver has everything before this number. One that others have overtaken says nothing,
    /// unless they were about what was never seen: then nobody knows which of them is right.
    pub(crate) fn acknowledge(&mut self, number: u32) {
        let known = self.acknowledged.filter(|it| self.next.is_some_and(|next| !before(next, *it)));
        if known.is_some_and(|it| before(number, it)) {
            return;
        }
        self.acknowledged = Some(number);
        let mut known = self.segments.iter().chain(&self.edge);
        self.edge = known.find(|it| it.1 == number).copied();
        if !self.may_change {
            self.settle_before(number);
        }
    }

    /// What lies before this number is as it is, whatever comes in its place.
    pub(crate) fn settle_before(&mut self, number: u32) {
        self.segments.retain(|(_, end)| before(number, *end));
    }

    /// Bytes of it that the receiver has, and the number behind the last of them, where known.
    pub(crate) fn acknowledged(&self) -> (u64, Option<u32>) {
        let open = self.next.zip(self.acknowledged).map(|(next, it)| next.wrapping_sub(it) as i32);
        let open = open.map_or(u64::MAX, |it| it.max(0) as u64);
        (self.len().saturating_sub(open), self.acknowledged)
    }

    /// The number of the byte that comes next.
    pub(crate) fn next(&self) -> Option<u32> {
        self.next
    }

    /// A byte that comes when the receiver's window seems closed: a probe (RFC 9293 s3.8.6.1),
    /// which may meet the window that opens. Whether another byte came so before: nobody knows
    /// which of them the receiver takes.
    pub(crate) fn doubt(&mut self, sequence: u32, byte: u8) -> bool {
        if self.next != Some(sequence) {
            return false;
        }
        let known = self.doubted.filter(|it| it.0 == sequence).map_or(byte, |it| it.1);
        self.doubted = Some((sequence, known));
        known != byte
    }

    fn is_acknowledged(&self, sequence: u32) -> bool {
        self.acknowledged.is_some_and(|it| it.wrapping_sub(sequence) as i32 > 0)
    }

    /// Takes in the byte that was doubted, if the receiver has taken it.
    fn settle_doubt(&mut self) -> usize {
        let Some((sequence, byte)) = self.doubted else { return 0 };
        let is_taken = self.is_acknowledged(sequence);
        self.doubted = self.doubted.filter(|_| !is_taken && self.next == Some(sequence));
        match is_taken && self.next == Some(sequence) {
            true => self.append(&[byte]),
            false => 0,
        }
    }

    /// The stream begins behind this sequence number (a SYN's).
    pub(crate) fn begin(&mut self, syn: u32) {
        if self.next.is_none() {
            (self.next, self.is_whole) = (Some(syn.wrapping_add(1)), true);
        }
    }

    /// The stream was picked up at this number: what came before was not seen.
    pub(crate) fn pick_up(&mut self, sequence: u32) {
        self.next = Some(sequence);
    }

    /// The same, of a stream that has another beginning: whatever it held goes.
    pub(crate) fn begin_again(&mut self, syn: u32) {
        let Self { system, refusals, depth, .. } = *self;
        *self = Self { system, refusals, depth, ..Self::default() };
        self.begin(syn);
    }

    /// Whether anything was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.before == 0 && self.window.is_empty()
    }

    /// Bytes that were said.
    pub(crate) fn len(&self) -> u64 {
        self.before + self.window.len() as u64
    }

    /// Whether its beginning was seen.
    pub(crate) fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    /// The last bytes, the new ones included, and how many came before them.
    pub(crate) fn window(&self) -> (&[u8], u64) {
        (&self.window, self.before)
    }

    /// Whether a segment of so many bytes ends where the stream does.
    pub(crate) fn ends_at(&self, sequence: u32, count: usize) -> bool {
        self.next == Some(sequence.wrapping_add(count as u32))
    }

    /// The last `count` bytes.
    pub(crate) fn newest(&self, count: usize) -> &[u8] {
        &self.window[self.window.len() - count.min(self.window.len())..]
    }

    /// Whether it began by a SYN.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether it is known where the stream began: by a SYN, and its receiver speaks. Where one
    /// side alone is seen, nobody tells of a connection that was over.
    fn has_known_beginning(&self) -> bool {
        self.is_whole && self.acknowledged.is_some()
    }

    /// Whether the beginning of a stream of which it is known is behind a segment.
    fn begins_behind(&self, sequence: u32) -> bool {
        let Some(next) = self.next.filter(|_| self.has_known_beginning()) else { return false };
        let behind = next.wrapping_sub(sequence);
        behind < AHEAD_MAX && u64::from(behind) > self.before + self.window.len() as u64
    }

    /// It has so many bytes at most.
    pub(crate) fn limit(&mut self, depth: Option<u64>) {
        self.depth = depth;
    }

    /// Takes a segment in, as far as its bytes are within the stream's depth.
    pub(crate) fn take(&mut self, sequence: u32, bytes: &[u8]) -> Taken {
        let Some((next, depth)) = self.next.zip(self.depth) else {
            return self.take_in(sequence, bytes);
        };
        // Once it is full its numbers stand still, and say nothing of what comes gigabytes later.
        if self.is_full {
            return Taken::default();
        }
        let room = depth.saturating_sub(self.before + self.window.len() as u64);
        let ahead = i64::from(sequence.wrapping_sub(next) as i32);
        let within = (room as i64).saturating_sub(ahead).clamp(0, bytes.len() as i64) as usize;
        self.is_full = within < bytes.len();
        let taken = self.take_in(sequence, &bytes[..within]);
        Taken { reaches_depth: self.is_full, is_part: taken.is_part && !self.is_full, ..taken }
    }

    fn take_in(&mut self, sequence: u32, bytes: &[u8]) -> Taken {
        if self.next.is_none() {
            return Taken::default();
        }
        let mut taken = Taken { is_part: !bytes.is_empty(), ..Taken::default() };
        self.forget();
        if self.is_lost_before(sequence, bytes.is_empty()) {
            taken.gaps = 1;
            (taken.new, taken.lost) = self.append_waiting(true);
        }
        if bytes.is_empty() {
            return taken;
        }
        taken.new += self.settle_doubt();
        taken.new += self.append_waiting(false).0;
        let Some(next) = self.next else { return taken };
        let behind = next.wrapping_sub(sequence);
        if self.refusals.conflicts && self.conflicts(sequence, bytes) {
            taken.refused = Some(Unseen::Conflict);
            if !self.refusals.only_told {
                return Taken { differs: true, ..taken };
            }
        }
        let mut is_given_up = false;
        if behind < AHEAD_MAX {
            // It begins at the next byte, or before: what is new of it.
            let behind = behind as usize;
            let new = bytes.get(behind..).unwrap_or_default();
            let is_other = self.waiting.differs(next, next, new);
            if is_other || self.differs(behind, bytes) {
                let settled = self.settle(sequence, bytes, &mut taken);
                // A byte that only keeps a connection alive may be any (RFC 9293 s3.8.4).
                let is_any = self.probes(sequence, bytes.len()) && self.is_acknowledged(sequence);
                taken.differs = is_other || !is_any;
                taken.new += self.append(settled.get(behind..).unwrap_or_default());
            } else {
                taken.new += self.append(new);
            }
        } else {
            let ahead = sequence.wrapping_sub(next);
            if ahead > AHEAD_MAX {
                // Of another connection, perhaps one that is not over.
                let is_refused = self.refusals.conflicts && self.has_known_beginning();
                let refused = is_refused.then_some(Unseen::Conflict);
                return Taken { refused, ..Taken::default() };
            }
            let is_full =
                self.waiting.bytes() + bytes.len() > self.waiting_max() || self.waiting.is_full();
            if self.refusals.gaps && is_full {
                taken.refused = Some(Unseen::Gap);
                if !self.refusals.only_told {
                    return taken;
                }
            }
            taken.differs = self.waiting.differs(next, sequence, bytes);
            if taken.differs {
                self.settle(sequence, bytes, &mut taken);
            }
            let before = self.waiting.bytes();
            self.waiting.insert(next, sequence, bytes);
            is_given_up = self.waiting.bytes() > self.waiting_max() || self.waiting.is_too_many();
            taken.gaps += u32::from(is_given_up);
            taken.waits = taken.differs || self.waiting.bytes() > before;
        }
        let (new, lost) = self.append_waiting(is_given_up);
        taken.new += new;
        taken.lost += lost;
        self.remember(sequence, sequence.wrapping_add(bytes.len() as u32));
        taken
    }

    /// Notes where a segment lies that its receiver may not have yet.
    fn remember(&mut self, start: u32, end: u32) {
        if self.segments.len() == SEGMENTS_MAX {
            self.segments.pop_front();
        }
        self.segments.push_back((start, end));
    }

    /// Whether a segment is one byte in the place of the stream's last.
    fn probes(&self, sequence: u32, length: usize) -> bool {
        length == 1 && self.ends_at(sequence, 1)
    }

    /// Whether Suricata tells of a segment that it has other bytes than came before in its place:
    /// not of one byte in the place of the last, nor where the receiver has them all and more; nor,
    /// where it only watches, of a segment with the very place of another and no third over it.
    pub(crate) fn tells_conflict(&self, sequence: u32, length: usize, only_watches: bool) -> bool {
        let end = sequence.wrapping_add(length as u32);
        let is_other =
            |it: &(u32, u32)| *it != (sequence, end) && before(it.0, end) && before(sequence, it.1);
        let is_same = || {
            let mut known = self.segments.iter().chain(&self.edge);
            self.repeats(sequence, length) && !known.any(is_other)
        };
        let is_old = self.acknowledged.is_some_and(|it| it.wrapping_sub(end) as i32 > 0);
        !(self.probes(sequence, length) || is_old || (only_watches && is_same()))
    }

    /// Whether a segment has the very place of another.
    pub(crate) fn repeats(&self, sequence: u32, length: usize) -> bool {
        let place = (sequence, sequence.wrapping_add(length as u32));
        self.segments.iter().chain(&self.edge).any(|it| *it == place)
    }

    /// Whether some of a segment's bytes lie where others came before: not of one that its receiver
    /// has all of, and more, nor of one byte in the place of the last.
    pub(crate) fn overlaps(&self, sequence: u32, length: usize) -> bool {
        let Some(next) = self.next.filter(|_| length > 0) else { return false };
        let has_some = match (next.wrapping_sub(sequence), sequence.wrapping_sub(next)) {
            (1..AHEAD_MAX, _) => !self.is_empty(),
            (_, ..AHEAD_MAX) => self.waiting.within(next, sequence, length).next().is_some(),
            _ => false,
        };
        has_some && self.tells_conflict(sequence, length, false)
    }

    /// Which bytes count where a segment lies over others, for each of its own: of the last ones
    /// that came there each says so, and the receiver takes the new byte for the old if all of
    /// them let it. `None`: nobody knows them any more.
    fn believed(&self, sequence: u32, length: usize) -> Vec<Option<Counts>> {
        let against = |number: u32| number.wrapping_sub(sequence) as i32;
        let second = (0, length as i32);
        let mut believed = vec![None; length];
        for counts in [Counts::New, Counts::Old] {
            for first in self.segments.iter().map(|it| (against(it.0), against(it.1))) {
                let (start, end) = (first.0.max(0), first.1.min(second.1));
                let takes_second = self.system.takes_second(first, second);
                if start < end && takes_second == (counts == Counts::New) {
                    believed[start as usize..end as usize].fill(Some(counts));
                }
            }
        }
        // Of what the receiver has, others mean nothing to it.
        let known = self.acknowledged.filter(|_| !self.may_change).map_or(0, against).max(0);
        believed[..(known as usize).min(length)].fill(Some(Counts::Old));
        believed
    }

    /// Settles which bytes count where a segment lies over others: those are overwritten by its
    /// own, or its own by theirs. Gives its own as they are then.
    fn settle(&mut self, sequence: u32, bytes: &[u8], taken: &mut Taken) -> Vec<u8> {
        let mut own = bytes.to_vec();
        let Some(next) = self.next else { return own };
        let believed = self.believed(sequence, bytes.len());
        // A known piece's bytes, in the places from `at` of the segment's on: the first of these
        // that is another now.
        let mut settle = |known: &mut [u8], at: usize| {
            let mut first = None;
            let own = own[at..].iter_mut().zip(&believed[at..]);
            for (number, (known, (own, believed))) in known.iter_mut().zip(own).enumerate() {
                match believed {
                    Some(Counts::Old) => *own = *known,
                    Some(Counts::New) if known != own => {
                        *known = *own;
                        first.get_or_insert(at + number);
                    }
                    _ => {}
                }
            }
            first
        };
        let behind = next.wrapping_sub(sequence);
        let (mut first, mut start) = (None, 0);
        let goes_on = behind < AHEAD_MAX;
        if goes_on {
            start = (behind as usize).min(bytes.len());
            let held = (behind as usize).min(self.window.len());
            let skipped = (behind as usize - held).min(bytes.len());
            let place = self.window.len() - held;
            first = settle(&mut self.window[place..], skipped);
            taken.rewritten = first.map_or(0, |it| behind as usize - it);
        }
        let (number, length) = (sequence.wrapping_add(start as u32), bytes.len() - start);
        for (skipped, at, piece) in self.waiting.within_mut(next, number, length) {
            let of_waiting = settle(&mut piece[skipped..], start + at);
            // What waits and is appended with it goes on from there.
            first = first.or(of_waiting.map(|it| if goes_on { start } else { it }));
        }
        taken.changed = first.map(|it| sequence.wrapping_add(it as u32));
        own
    }

    /// Whether bytes before a segment are missing for good: its receiver has them, and nobody saw
    /// them go by.
    fn is_lost_before(&self, sequence: u32, is_empty: bool) -> bool {
        let Some(first) = self.waiting.first() else { return false };
        let is_behind = is_empty || sequence.wrapping_sub(first) as i32 >= 0;
        is_behind && self.may_miss && self.is_acknowledged(first)
    }

    /// Takes in a segment of so many bytes that nobody looks at.
    pub(crate) fn pass(&mut self, sequence: u32, count: usize) -> Taken {
        let Some(next) = self.next else { return Taken::default() };
        let end = sequence.wrapping_add(count as u32);
        let grown = end.wrapping_sub(next);
        if grown < AHEAD_MAX {
            // Gaps no longer matter.
            self.before += (self.window.len() as u64) + u64::from(grown);
            self.window.clear();
            self.past.clear();
            self.waiting = Waiting::default();
            self.next = Some(end);
        }
        let is_new = grown < AHEAD_MAX;
        let gaps = u32::from(is_new && grown as usize > count);
        let new = if is_new { count.min(grown as usize) } else { 0 };
        Taken { new, gaps, is_part: count > 0, ..Taken::default() }
    }

    /// The bytes that lie together around `sequence`, behind a gap, and how many the stream has
    /// before them, the gap's included: as far as [`WINDOW_LEN`] on both sides. Each segment there
    /// is looked at so, and all of it again when the gap is filled.
    pub(crate) fn island(&self, sequence: u32) -> Option<(u64, Vec<u8>)> {
        let next = self.next?;
        let (behind, bytes) = self.waiting.island(next, sequence, WINDOW_LEN)?;
        Some((self.before + (self.window.len() + behind) as u64, bytes))
    }

    /// Lets go of what came, and was looked at; whether there was something.
    pub(crate) fn let_go(&mut self) -> bool {
        let lets_go = self.waiting.is_empty() && self.window.capacity() > 0;
        if lets_go {
            self.before += self.window.len() as u64;
            (self.window, self.past, self.segments) = Default::default();
        }
        self.is_over |= lets_go;
        lets_go
    }

    /// The window and what waits behind it, with words where bytes are missing; without `is_whole`
    /// only what the receiver has, where something is acknowledged.
    pub(crate) fn told(&self, is_whole: bool) -> Vec<u8> {
        let mut told = self.window.clone();
        let Some(mut next) = self.next else { return told };
        let behind = next.wrapping_add(AHEAD_MAX);
        let end = if is_whole { Some(behind) } else { self.acknowledged };
        let Some(end) = end else { return told };
        let open = (next.wrapping_sub(end) as i32).max(0) as usize;
        told.truncate(told.len().saturating_sub(open));
        for (known, piece) in self.waiting.iter().filter(|it| before(it.0, end)) {
            let missing = known.wrapping_sub(next);
            if missing > 0 {
                told.extend_from_slice(format!("[{missing} bytes missing]").as_bytes());
            }
            let has = end.wrapping_sub(*known) as usize;
            told.extend_from_slice(&piece[..has.min(piece.len())]);
            next = known.wrapping_add(piece.len() as u32);
        }
        told
    }

    /// Whether a segment has other bytes than came before in the same place, of those that the
    /// receiver has not acknowledged: of what it has, others mean nothing to it. One that was let
    /// go says no more: what does, nobody can look at together with what came before.
    fn conflicts(&self, sequence: u32, bytes: &[u8]) -> bool {
        let Some(next) = self.next else { return false };
        let end = sequence.wrapping_add(bytes.len() as u32);
        if self.is_over && end.wrapping_sub(next) as i32 > 0 {
            return true;
        }
        let known = self.acknowledged.map_or(0, |it| it.wrapping_sub(sequence) as i32).max(0);
        let Some(bytes) = bytes.get(known as usize..) else { return false };
        let sequence = sequence.wrapping_add(known as u32);
        if self.begins_behind(sequence) && !bytes.is_empty() {
            return true;
        }
        let behind = next.wrapping_sub(sequence);
        if behind > AHEAD_MAX {
            return self.waiting.differs(next, sequence, bytes);
        }
        let behind = behind as usize;
        let ahead = bytes.get(behind..).filter(|it| !it.is_empty());
        if ahead.is_some_and(|it| self.waiting.differs(next, next, it)) {
            return true;
        }
        // Of what is so long ago that it was let go nobody can tell.
        let held = behind.min(self.window.len() + self.past.len());
        let ours = self.past.iter().chain(&self.window);
        let ours = ours.skip(self.past.len() + self.window.len() - held);
        ours.zip(&bytes[(behind - held).min(bytes.len())..]).any(|(ours, it)| ours != it)
    }

    /// The bytes that came before in a segment's place, and its own where none did; `None`: they
    /// are the same.
    pub(crate) fn as_known(&self, sequence: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let next = self.next?;
        let first = next.wrapping_sub(self.window.len() as u32);
        let pieces = self.waiting.iter().map(|it| (it.0, it.1.as_slice()));
        let mut known = bytes.to_vec();
        for (start, piece) in pieces.chain([(first, self.window.as_slice())]) {
            let ahead = start.wrapping_sub(sequence) as i32;
            let (skip, at) = (ahead.min(0).unsigned_abs() as usize, ahead.max(0) as usize);
            let places = known.iter_mut().skip(at);
            places.zip(piece.iter().skip(skip)).for_each(|(place, byte)| *place = *byte);
        }
        (known != bytes).then_some(known)
    }

    /// Whether the bytes of a segment that begins `behind` bytes before the stream's end are others
    /// than those of the window, as far as they are in both.
    fn differs(&self, behind: usize, bytes: &[u8]) -> bool {
        let held = behind.min(self.window.len());
        let known = self.window[self.window.len() - held..].iter();
        known.zip(bytes.iter().skip(behind - held)).any(|(known, byte)| known != byte)
    }

    /// Makes room: the window's older part goes once it is twice as long as it should be.
    fn forget(&mut self) {
        if self.window.len() > 2 * WINDOW_LEN {
            let old = self.window.len() - WINDOW_LEN;
            if self.refusals.conflicts {
                self.keep_past(old);
            }
            self.window.drain(..old);
            self.before += old as u64;
        }
    }

    /// Keeps the first bytes of the window as far as they were not acknowledged.
    fn keep_past(&mut self, count: usize) {
        let next = self.next.unwrap_or_default();
        let most = if self.may_wait { WAITING_LONG_MAX } else { PAST_LEN };
        let open = self.acknowledged.map_or(PAST_LEN, |it| next.wrapping_sub(it) as usize);
        let open = open.min(most).saturating_sub(self.window.len() - count);
        self.past.extend(&self.window[..count]);
        self.past.drain(..self.past.len().saturating_sub(open));
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        self.window.extend_from_slice(bytes);
        self.next = self.next.map(|next| next.wrapping_add(bytes.len() as u32));
        bytes.len()
    }

    /// Appends what waited and has its turn; behind a gap too, if it is given up.
    /// Says how many, and how many were missing.
    fn append_waiting(&mut self, mut give_up: bool) -> (usize, u32) {
        let (mut new, mut lost) = (0, 0);
        while let (Some(next), Some(sequence)) = (self.next, self.waiting.first()) {
            let behind = next.wrapping_sub(sequence);
            if behind >= AHEAD_MAX {
                if !give_up {
                    break;
                }
                // Nothing matches across a gap.
                self.past.clear();
                let gap = sequence.wrapping_sub(next);
                self.before += self.window.len() as u64 + u64::from(gap);
                self.window.clear();
                self.next = Some(sequence);
                lost = gap;
                give_up = false;
                continue;
            }
            let Some((_, bytes)) = self.waiting.pop() else { break };
            new += self.append(bytes.get(behind as usize..).unwrap_or_default());
        }
        (new, lost)
    }
}

#[cfg(test)]
mod tests;
