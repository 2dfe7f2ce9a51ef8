//! How often something was marked within so many seconds.

use std::hash::Hash;

use weir_wire::frame::Time;

use super::NS_PER_S;
use super::table::Table;
use crate::shared::Unshared;

/// What was added to a key's marks, by what stands for it and the seconds that they are counted
/// over.
pub(crate) type MarkChange = ((u64, u32), i64);

/// Parts of a window that marks are counted by, and one more: so many seconds count wherever they
/// begin, and up to an eighth of them before.
const PARTS: usize = 8;

/// Marks by whoever they are of, over a window that slides by eighths.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Table<Count>,
    unshared: Unshared<(u64, u32), i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Parts of the window since time 0.
    part: u64,
    /// What was marked in this part, and in those before it.
    marks: [u32; PARTS + 1],
}

impl Count {
    fn slide(&mut self, part: u64) {
        let by = part.saturating_sub(self.part);
        if by == 0 {
            return;
        }
        let by = usize::try_from(by).unwrap_or(usize::MAX).min(self.marks.len());
        self.marks.rotate_right(by);
        self.marks[..by].fill(0);
        self.part = part;
    }

    fn total(self) -> u32 {
        self.marks.iter().fold(0, |sum, it| sum.saturating_add(*it))
    }
}

fn part(now: Time, seconds: u32) -> u64 {
    now.0 / (u64::from(seconds) * NS_PER_S / PARTS as u64).max(1)
}

impl Tally {
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        Self { counts: Table::new(capacity, seed), unshared: Unshared::new(seed) }
    }

    /// Adds `by` to what is marked of `key`, for other workers too; how many there are now within
    /// `seconds`.
    pub(super) fn add(&mut self, now: Time, key: impl Hash, by: u32, seconds: u32) -> u32 {
        let key = self.counts.key(key);
        if by > 0 {
            self.unshared.change((key, seconds), |it| *it += i64::from(by));
        }
        self.put(now, key, by.into(), seconds)
    }

    /// The same of what no other worker sees.
    pub(super) fn add_here(&mut self, now: Time, key: impl Hash, by: u32, seconds: u32) -> u32 {
        self.put(now, self.counts.key(key), by.into(), seconds)
    }

    fn put(&mut self, now: Time, key: u64, by: i64, seconds: u32) -> u32 {
        let (count, _) = self.counts.enter_key(now, key);
        count.slide(part(now, seconds));
        let mut marks = u32::try_from(by.unsigned_abs()).unwrap_or(u32::MAX);
        if by >= 0 {
            count.marks[0] = count.marks[0].saturating_add(marks);
        } else {
            for counted in &mut count.marks {
                let taken = marks.min(*counted);
                (*counted, marks) = (*counted - taken, marks - taken);
            }
        }
        count.total()
    }

    /// Takes one away again, for other workers too.
    pub(super) fn take(&mut self, now: Time, key: impl Hash, seconds: u32) {
        let key = self.counts.key(key);
        self.unshared.change((key, seconds), |it| *it -= 1);
        self.put(now, key, -1, seconds);
    }

    /// Keeps what is marked for others from now on.
    pub(super) fn share(&mut self) {
        self.unshared.share();
    }

    pub(super) fn take_shared(&mut self) -> Vec<MarkChange> {
        self.unshared.take()
    }

    /// Adds what another worker marked.
    pub(super) fn add_shared(&mut self, now: Time, changes: &[MarkChange]) {
        for ((key, seconds), by) in changes {
            self.put(now, *key, *by, *seconds);
        }
    }

    /// How many there are.
    pub(super) fn count(&mut self, now: Time, key: impl Hash, seconds: u32) -> u32 {
        let Some(count) = self.counts.get(key) else { return 0 };
        count.slide(part(now, seconds));
        count.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_count_for_a_window_and_no_longer() {
        let mut tally = Tally::new(64, 1);
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(tally.add(at(1_000), "a", 2, 10), 2);
        assert_eq!(tally.add(at(6_000), "a", 1, 10), 3, "five seconds later");
        tally.take(at(6_100), "a", 10);
        assert_eq!(tally.count(at(6_200), "a", 10), 2);
        assert_eq!(tally.count(at(12_500), "a", 10), 0, "what was marked is over");
        assert_eq!(tally.count(at(11_000), "b", 10), 0);
    }

    #[test]
    fn marks_within_the_window_count_wherever_it_begins() {
        let at = |ms: u64| Time(1_000_000_000_000 + ms * 1_000_000);
        for begin in (0..20_000).step_by(137) {
            let mut tally = Tally::new(64, 1);
            let marks = (0..5).map(|it| tally.add(at(begin + it * 2_490), "a", 1, 10));
            assert_eq!(marks.last(), Some(5), "{begin}");
            let mut apart = Tally::new(64, 1);
            apart.add(at(begin), "a", 1, 10);
            assert_eq!(apart.add(at(begin + 11_300), "a", 1, 10), 1, "{begin}");
        }
    }
}
