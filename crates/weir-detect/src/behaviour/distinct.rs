//! How many different values somebody uses, in little memory: a bitmap in which each value sets a
//! bit by its hash (linear counting, Whang et al., TODS 1990).

use weir_wire::frame::Time;

use super::NS_PER_S;

/// Bits of a bitmap: of more than six times as many values nothing can be said.
const BITS: usize = 1 << 13;
const WORDS: usize = BITS / 64;
/// A value is forgotten when it was not used for so long, or for twice of it.
const FORGOTTEN_NS: u64 = 30 * NS_PER_S;

/// Values that were used of late.
#[derive(Clone, Debug)]
pub(super) struct Distinct {
    /// Those of the period at hand, and of the one before.
    current: [u64; WORDS],
    before: [u64; WORDS],
    begin: Time,
    /// Bits that neither has.
    free: u32,
    /// What is left of a value that was counted in parts.
    rest: u32,
}

impl Default for Distinct {
    fn default() -> Self {
        let (current, before) = ([0; WORDS], [0; WORDS]);
        Self { current, before, begin: Time(0), free: BITS as u32, rest: 0 }
    }
}

impl Distinct {
    /// Takes a value in by its hash; how many more different ones there are since. A new value
    /// finds a free bit with a chance of `free / BITS`, so that one that does stands for `BITS /
    /// free` of them.
    pub(super) fn add(&mut self, now: Time, hash: u64) -> u32 {
        if now.since_ns(self.begin) >= FORGOTTEN_NS {
            let is_over = now.since_ns(self.begin) >= 2 * FORGOTTEN_NS;
            self.before = if is_over { [0; WORDS] } else { self.current };
            self.current = [0; WORDS];
            self.begin = now;
            self.free = self.before.iter().map(|it| it.count_zeros()).sum();
        }
        let place = hash as usize % BITS;
        let (word, bit) = (place / 64, 1 << (place % 64));
        let is_free = (self.current[word] | self.before[word]) & bit == 0;
        self.current[word] |= bit;
        if !is_free {
            return 0;
        }
        let parts = self.rest + BITS as u32;
        let more = parts / self.free;
        self.rest = parts % self.free;
        self.free -= 1;
        more
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::state::Keyed;

    fn second(number: u64) -> Time {
        Time(number * NS_PER_S)
    }

    fn add(distinct: &mut Distinct, now: Time, values: std::ops::Range<u32>) -> u32 {
        values.map(|it| distinct.add(now, Keyed(7).hash_one(it))).sum()
    }

    #[test]
    fn different_values_are_counted_to_some_percent() {
        for count in [10, 1_000, 4_096, 20_000] {
            let mut distinct = Distinct::default();
            let counted = add(&mut distinct, second(100), 0..count);
            assert!(counted.abs_diff(count) <= count / 20 + 1, "{count}: {counted}");
            assert_eq!(add(&mut distinct, second(101), 0..count), 0, "none is new");
        }
    }

    #[test]
    fn values_in_use_stay_known_and_others_are_forgotten() {
        let mut distinct = Distinct::default();
        assert!(add(&mut distinct, second(100), 0..1_000) > 900);
        for now in (110..500).step_by(10) {
            assert_eq!(add(&mut distinct, second(now), 0..1_000), 0, "{now}");
        }
        assert!(add(&mut distinct, second(600), 0..1_000) > 900);
    }

    #[test]
    fn a_full_bitmap_counts_no_more() {
        let mut distinct = Distinct::default();
        assert!(add(&mut distinct, second(100), 0..400_000) > 40_000);
        assert_eq!(add(&mut distinct, second(101), 400_000..500_000), 0);
        assert!(add(&mut distinct, second(200), 0..1_000) > 900, "until it is forgotten");
    }
}
