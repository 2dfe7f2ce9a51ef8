//! How often something was marked within so many seconds.

use std::hash::Hash;

use weir_wire::frame::Time;

use super::NS_PER_S;
use super::table::Table;
use crate::shared::Unshared;

/// What was added to a key's marks, by what stands for it and the seconds that they are counted
/// over.
pub(crate) type MarkChange = ((u64, u32), i64);

/// Marks by whoever they are of, over a window that slides by halves.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Table<Count>,
    unshared: Unshared<(u64, u32), i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Half windows since time 0.
    half: u64,
    before: u32,
    current: u32,
}

impl Count {
    fn slide(&mut self, half: u64) {
        match half.saturating_sub(self.half) {
            0 => return,
            1 => self.before = self.current,
            _ => self.before = 0,
        }
        (self.current, self.half) = (0, half);
    }

    fn total(self) -> u32 {
        self.before.saturating_add(self.current)
    }
}

fn half(now: Time, seconds: u32) -> u64 {
    now.0 / (u64::from(seconds) * NS_PER_S / 2).max(1)
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
        count.slide(half(now, seconds));
        let marks = u32::try_from(by.unsigned_abs()).unwrap_or(u32::MAX);
        if by >= 0 {
            count.current = count.current.saturating_add(marks);
        } else {
            let rest = marks.saturating_sub(count.current);
            count.current = count.current.saturating_sub(marks);
            count.before = count.before.saturating_sub(rest);
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
        count.slide(half(now, seconds));
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
        assert_eq!(tally.add(at(6_000), "a", 1, 10), 3, "the half before counts");
        tally.take(at(6_100), "a", 10);
        assert_eq!(tally.count(at(6_200), "a", 10), 2);
        assert_eq!(tally.count(at(11_000), "a", 10), 0, "what was marked is two halves old");
        assert_eq!(tally.count(at(11_000), "b", 10), 0);
    }
}
