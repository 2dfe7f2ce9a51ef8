//! How often something was marked within so many seconds.

use std::hash::Hash;

use weir_wire::frame::Time;

use super::NS_PER_S;
use super::table::Table;

/// Marks by whoever they are of, over a window that slides by halves.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Table<Count>,
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
        Self { counts: Table::new(capacity, seed) }
    }

    /// Adds `by` to what is marked of `key`; how many there are now within `seconds`.
    pub(super) fn add(&mut self, now: Time, key: impl Hash, by: u32, seconds: u32) -> u32 {
        let (count, _) = self.counts.enter(now, key);
        count.slide(half(now, seconds));
        count.current = count.current.saturating_add(by);
        count.total()
    }

    /// Takes one away again.
    pub(super) fn take(&mut self, now: Time, key: impl Hash, seconds: u32) {
        if let Some(count) = self.counts.get(key) {
            count.slide(half(now, seconds));
            match count.current {
                0 => count.before = count.before.saturating_sub(1),
                _ => count.current -= 1,
            }
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
