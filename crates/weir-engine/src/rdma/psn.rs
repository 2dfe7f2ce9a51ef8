//! One stream of packet sequence numbers, as seen in passing (IBTA Vol 1 s9.7).
//!
//! A [`PsnTracker`] follows what one side numbers and tells apart, for each packet: in order; after
//! a gap; late (it fills a gap: reordered or resent after a loss before us); already seen (resent
//! although we had passed it on). It keeps exact account as long as no more than `HOLES`
//! gaps are open; of more, the oldest is given up, and its late packets then count as already seen.

use weir_wire::bth::Psn;

/// A distance from the expected number that no loss explains: the stream restarted (the queue pair
/// was connected again) or somebody injected. More than any window in flight, far less than half
/// the number space.
pub const JUMP_PSNS: i32 = (1 << 16) - 1;

/// Where a packet stands in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsnOrder {
    /// The first packet seen, or the one expected.
    InOrder,
    /// Later than expected: `missing` numbers were skipped.
    Gap {
        /// Numbers skipped.
        missing: u32,
    },
    /// Skipped before, here now.
    Late,
    /// Already seen, or from before the first packet seen.
    Seen,
    /// Farther away than any loss explains ([`JUMP_PSNS`]); the stream goes on from here.
    Jump,
}

/// Six bytes: a million queue pairs have eight each.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(2))]
struct Hole {
    first: u32,
    /// Zero: no hole.
    len: u16,
}

/// The state of one stream, with room for `HOLES` open gaps. Go-back-N closes one before the next
/// opens; more are for reordering.
#[derive(Clone, Copy, Debug)]
pub struct PsnTracker<const HOLES: usize> {
    /// [`UNSTARTED`] until a packet was seen.
    next: u32,
    /// Numbers behind `next` that a READ of unknown packet count may have used up.
    slack: u32,
    holes: [Hole; HOLES],
}

/// No sequence number.
const UNSTARTED: u32 = u32::MAX;

impl<const HOLES: usize> Default for PsnTracker<HOLES> {
    fn default() -> Self {
        Self { next: UNSTARTED, slack: 0, holes: [Hole::default(); HOLES] }
    }
}

impl<const HOLES: usize> PsnTracker<HOLES> {
    /// Takes in a packet that uses `count` numbers from `psn` on, of which it is only known that
    /// there are at least one and at most `count` when `count_is_exact` is false.
    #[inline]
    pub fn observe(&mut self, psn: Psn, count: u32, count_is_exact: bool) -> PsnOrder {
        let distance = psn.distance(Psn::new(self.next));
        let is_started = self.is_started();
        if is_started && distance < 0 {
            return self.observe_behind(psn, distance);
        }
        let order = if !is_started || distance as u32 <= self.slack {
            PsnOrder::InOrder
        } else if distance > JUMP_PSNS.saturating_add(self.slack as i32) {
            self.holes = [Hole::default(); HOLES];
            PsnOrder::Jump
        } else {
            let first = Psn::new(self.next).add(self.slack);
            let missing = distance as u32 - self.slack;
            self.open_hole(Hole { first: first.value(), len: missing as u16 });
            PsnOrder::Gap { missing }
        };
        self.go_on(psn, count, count_is_exact);
        order
    }

    /// Whether `psn` was used by a packet seen lately: at most [`JUMP_PSNS`] before the newest.
    #[inline]
    pub fn has_used(&self, psn: Psn) -> bool {
        let behind = psn.distance(Psn::new(self.next).add(self.slack));
        self.is_started() && (-JUMP_PSNS..0).contains(&behind)
    }

    /// Whether `psn` was skipped and has not come.
    pub fn is_missing(&self, psn: Psn) -> bool {
        let holds =
            |hole: &Hole| (0..i32::from(hole.len)).contains(&psn.distance(Psn::new(hole.first)));
        self.holes.iter().any(holds)
    }

    /// Whether any number before `psn` was.
    pub fn is_missing_before(&self, psn: Psn) -> bool {
        let is_before = |hole: &Hole| hole.len > 0 && psn.distance(Psn::new(hole.first)) > 0;
        self.holes.iter().any(is_before)
    }

    /// Gaps that are open.
    pub fn open_count(&self) -> usize {
        self.holes.iter().filter(|hole| hole.len > 0).count()
    }

    /// The number expected next; of no use before the first.
    pub fn next_expected(&self) -> Psn {
        Psn::new(self.next)
    }

    /// The number that is due, where there is just one.
    pub fn next(&self) -> Option<Psn> {
        (self.is_started() && self.slack == 0).then(|| Psn::new(self.next))
    }

    /// Whether any packet was seen.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.next != UNSTARTED
    }

    /// Lets the stream start at `psn`, as the connection's managers agreed.
    pub fn start_at(&mut self, psn: Psn) {
        *self = Self { next: psn.value(), ..Self::default() };
    }

    /// Takes in a packet that someone else followed the stream to, who was waiting for `expected`:
    /// all numbers up to there came in order.
    pub fn observe_after(
        &mut self,
        expected: Option<Psn>,
        psn: Psn,
        count: u32,
        count_is_exact: bool,
    ) -> PsnOrder {
        let before = *self;
        if let Some(expected) = expected.filter(|it| it.value() != self.next) {
            (self.next, self.slack) = (expected.value(), 0);
        }
        let order = self.observe(psn, count, count_is_exact);
        let is_behind = Psn::new(before.next).distance(Psn::new(self.next)) > 0;
        if before.is_started() && is_behind && order != PsnOrder::Jump {
            (self.next, self.slack) = (before.next, before.slack);
        }
        order
    }

    /// Takes in that all numbers before `next` came in order.
    pub fn advance_to(&mut self, next: Psn) {
        if !self.is_started() || next.distance(Psn::new(self.next)) > 0 {
            (self.next, self.slack) = (next.value(), 0);
        }
    }

    fn go_on(&mut self, psn: Psn, count: u32, count_is_exact: bool) {
        (self.next, self.slack) = match count_is_exact {
            true => (psn.add(count).value(), 0),
            false => (psn.add(1).value(), count.saturating_sub(1)),
        };
    }

    fn observe_behind(&mut self, psn: Psn, distance: i32) -> PsnOrder {
        for at in 0..HOLES {
            let hole = self.holes[at];
            let offset = psn.distance(Psn::new(hole.first));
            if (0..i32::from(hole.len)).contains(&offset) {
                self.fill(at, offset as u16);
                return PsnOrder::Late;
            }
        }
        if distance < -JUMP_PSNS {
            self.holes = [Hole::default(); HOLES];
            self.go_on(psn, 1, true);
            return PsnOrder::Jump;
        }
        PsnOrder::Seen
    }

    /// Takes one number out of a hole; what is left of it on either side stays open.
    fn fill(&mut self, at: usize, offset: u16) {
        let hole = self.holes[at];
        let rest = Hole {
            first: Psn::new(hole.first).add(u32::from(offset) + 1).value(),
            len: hole.len - offset - 1,
        };
        if offset == 0 {
            self.holes[at] = rest;
            return;
        }
        self.holes[at].len = offset;
        if rest.len > 0 {
            self.open_hole(rest);
        }
    }

    fn open_hole(&mut self, hole: Hole) {
        match self.holes.iter_mut().find(|place| place.len == 0) {
            Some(place) => *place = hole,
            None => {
                self.holes.rotate_left(1);
                self.holes[HOLES - 1] = hole;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn orders(psns: &[u32]) -> Vec<PsnOrder> {
        let mut tracker = PsnTracker::<3>::default();
        psns.iter().map(|psn| tracker.observe(Psn::new(*psn), 1, true)).collect()
    }

    use PsnOrder::*;

    #[test]
    fn numbers_in_order_wrap_at_24_bits() {
        assert_eq!(orders(&[0xff_fffe, 0xff_ffff, 0, 1]), [InOrder; 4]);
    }

    #[test]
    fn a_lost_packet_leaves_a_gap_and_is_late_when_it_comes() {
        assert_eq!(orders(&[1, 4, 2, 3, 5]), [InOrder, Gap { missing: 2 }, Late, Late, InOrder]);
    }

    #[test]
    fn go_back_n_tells_what_was_lost_before_us_from_what_was_seen() {
        let got = orders(&[10, 12, 13, 11, 12, 13, 14]);
        assert_eq!(got, [InOrder, Gap { missing: 1 }, InOrder, Late, Seen, Seen, InOrder]);
    }

    #[test]
    fn a_late_packet_that_comes_twice_was_seen_the_second_time() {
        assert_eq!(orders(&[1, 5, 3, 3, 2, 4, 4])[2..], [Late, Seen, Late, Late, Seen]);
    }

    #[test]
    fn a_stream_that_restarts_far_away_is_one_jump_and_no_retransmission() {
        assert_eq!(orders(&[5_000_000, 1_000_000, 1_000_001]), [InOrder, Jump, InOrder]);
        assert_eq!(orders(&[1_000_000, 5_000_000, 5_000_001]), [InOrder, Jump, InOrder]);
    }

    #[test]
    fn a_read_uses_as_many_numbers_as_its_response_has_packets() {
        let mut tracker = PsnTracker::<3>::default();
        assert_eq!(tracker.observe(Psn::new(100), 8, true), InOrder);
        assert_eq!(tracker.observe(Psn::new(108), 1, true), InOrder);
    }

    #[test]
    fn a_read_of_unknown_packet_count_hides_no_more_than_it_may_have_used() {
        let read = |next: u32| {
            let mut tracker = PsnTracker::<3>::default();
            tracker.observe(Psn::new(100), 8, false);
            tracker.observe(Psn::new(next), 1, true)
        };
        assert_eq!([read(101), read(104), read(108)], [InOrder; 3]);
        assert_eq!(read(109), Gap { missing: 1 });
        assert_eq!(read(100), Seen);
    }

    proptest! {
        /// The model remembers every number seen. Steps back stay within three open gaps because
        /// each gap is filled before the next but two opens.
        #[test]
        fn seen_means_seen(
            start in 0u32..1 << 24,
            steps in prop::collection::vec(-6i32..4, 1..200),
        ) {
            let mut tracker = PsnTracker::<3>::default();
            let mut seen = BTreeSet::new();
            let (mut at, mut open_gaps) = (0i32, 0);
            for step in steps {
                at += step;
                let psn = Psn::new(start.wrapping_add(at as u32));
                let first = seen.first().copied().unwrap_or(at);
                if at < first {
                    continue;
                }
                let order = tracker.observe(psn, 1, true);
                match order {
                    Gap { .. } => open_gaps += 1,
                    // Splitting a hole opens another; count generously.
                    Late => open_gaps += 1,
                    _ => {}
                }
                if open_gaps > 3 {
                    return Ok(());
                }
                prop_assert_eq!(order == Seen, !seen.insert(at), "{} {:?}", at, order);
            }
        }
    }
}
