//! Who sends a flood: few sources that send much each, or so many that they are forged.
//!
//! ```text
//!   source -> Count-Min sketch of two seconds -> its packets, at most -> a talker: twice its share
//!                                             `-> entropy of a row: 0 one source, 1 all alike
//! ```
//!
//! Count-Min: Cormode and Muthukrishnan, J. Algorithms 2005, with the list of the largest that
//! they describe. If talkers send three quarters of a flood, it is theirs, and others are spared.

use weir_wire::frame::Time;

use super::super::NS_PER_S;

const ROWS: usize = 4;
const COLUMNS: usize = 256;
/// A talker sends so many times what each would, if all counters were alike ...
const LOUD: u32 = 2;
/// ... and so many packets at least.
const LOUD_MIN: u32 = 4;
/// Of fewer packets nothing is said.
const TOTAL_MIN: u32 = 256;
/// Of so many all that each could be told: the first of a talker's are not counted as one's.
const SURE: u32 = 4 * (LOUD_MIN - 1) * COLUMNS as u32 / LOUD;
/// Sources that are named.
const NAMED_MAX: usize = 8;

/// The sources of one flood, of this second and the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Talkers {
    second: u64,
    /// This second, the one before.
    seconds: [Second; 2],
    /// The loudest of late, and what was counted of them when they were seen last.
    named: [(u128, u32); NAMED_MAX],
}

#[derive(Clone, Copy, Debug)]
struct Second {
    counts: [[u32; COLUMNS]; ROWS],
    total: u32,
    /// Packets of talkers.
    loud: u32,
}

const EMPTY: Second = Second { counts: [[0; COLUMNS]; ROWS], total: 0, loud: 0 };

impl Default for Talkers {
    fn default() -> Self {
        Self { second: 0, seconds: [EMPTY; 2], named: [(0, 0); NAMED_MAX] }
    }
}

/// What is known of a flood's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloodSources {
    /// From 0, one source, to 1,000: all send alike, as forged ones do.
    pub entropy_permille: u16,
    /// Whether few of them send three quarters of it.
    pub are_few: bool,
    /// The loudest talkers, and their share of the packets, of 1,000. IPv4 addresses are mapped.
    pub loudest: Vec<([u8; 16], u16)>,
}

impl Talkers {
    /// Counts packets of a source, whose hash is secret.
    pub(super) fn add(&mut self, now: Time, source: u128, hash: u64, packets: u32) {
        let second = now.0 / NS_PER_S;
        if second != self.second {
            let is_next = second == self.second + 1;
            self.seconds = [EMPTY, if is_next { self.seconds[0] } else { EMPTY }];
            if !is_next {
                self.named = [(0, 0); NAMED_MAX];
            }
            self.second = second;
        }
        let [current, _] = &mut self.seconds;
        current.total = current.total.saturating_add(packets);
        for (row, column) in columns(hash).into_iter().enumerate() {
            let count = &mut current.counts[row][column];
            *count = count.saturating_add(packets);
        }
        if self.is_talker(hash) {
            let current = &mut self.seconds[0];
            current.loud = current.loud.saturating_add(packets);
            self.name(source, self.count(hash));
        }
    }

    fn name(&mut self, source: u128, count: u32) {
        let known = self.named.iter().position(|(it, _)| *it == source);
        let least = || self.named.iter().enumerate().min_by_key(|(_, (_, count))| *count);
        let Some(at) = known.or_else(|| least().map(|(at, _)| at)) else { return };
        if known.is_some() || self.named[at].1 < count {
            self.named[at] = (source, count);
        }
    }

    /// Packets of a source, or more, in two seconds.
    fn count(&self, hash: u64) -> u32 {
        let of = |(row, column): (usize, usize)| {
            self.seconds.iter().map(|it| it.counts[row][column]).fold(0, u32::saturating_add)
        };
        columns(hash).into_iter().enumerate().map(of).min().unwrap_or_default()
    }

    fn total(&self) -> u32 {
        self.seconds.iter().map(|it| it.total).fold(0, u32::saturating_add)
    }

    /// Whether a source sends more than its share.
    pub(super) fn is_talker(&self, hash: u64) -> bool {
        let count = self.count(hash);
        let share = u64::from(count) * COLUMNS as u64;
        count >= LOUD_MIN && share >= u64::from(LOUD) * u64::from(self.total())
    }

    /// Whether talkers send three quarters of it.
    pub(super) fn are_few(&self) -> bool {
        let loud: u64 = self.seconds.iter().map(|it| u64::from(it.loud)).sum();
        let total = self.total();
        total >= TOTAL_MIN && loud * 4 >= u64::from(total) * 3
    }

    /// Whether it may still turn out that they are few.
    pub(super) fn is_unsure(&self) -> bool {
        self.total() < SURE
    }

    /// What is known; `None` if they are too few packets.
    pub(super) fn tell(&self) -> Option<FloodSources> {
        let total = self.total();
        if total < TOTAL_MIN {
            return None;
        }
        let [current, before] = &self.seconds;
        let pairs = current.counts[0].iter().zip(&before.counts[0]);
        let bits: f32 = pairs
            .map(|(current, before)| (*current as f32 + *before as f32) / total as f32)
            .filter(|share| *share > 0.0)
            .map(|share| -share * share.log2())
            .sum();
        let mut named: Vec<_> = self.named.into_iter().filter(|(_, count)| *count > 0).collect();
        named.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = |count: u32| (u64::from(count) * 1_000 / u64::from(total)).min(1_000) as u16;
        Some(FloodSources {
            entropy_permille: (bits / (COLUMNS as f32).log2() * 1_000.0) as u16,
            are_few: self.are_few(),
            loudest: named.into_iter().map(|(it, of)| (it.to_be_bytes(), share(of))).collect(),
        })
    }
}

/// Where a source counts in each row: a byte of its hash.
fn columns(hash: u64) -> [usize; ROWS] {
    let bytes = hash.to_le_bytes();
    [bytes[0], bytes[1], bytes[2], bytes[3]].map(usize::from)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::state::Keyed;

    fn hash(source: u128) -> u64 {
        Keyed(7).hash_one(source)
    }

    fn flood(sources: u128, packets: u128) -> Talkers {
        let mut talkers = Talkers::default();
        for number in 0..packets {
            let source = number % sources + 1;
            let now = Time(9 * NS_PER_S + number as u64 * 10_000);
            talkers.add(now, source, hash(source), 1);
        }
        talkers
    }

    #[test]
    fn few_sources_are_told_from_forged_ones() {
        for sources in [1, 5, 50, 100] {
            let talkers = flood(sources, 3_000);
            assert!(talkers.are_few(), "{sources}");
            assert!((1..=sources).all(|it| talkers.is_talker(hash(it))), "{sources}");
            let honest = (1_000..2_000).filter(|it| talkers.is_talker(hash(*it))).count();
            assert!(honest < 50, "{sources}: {honest} of a thousand others");
        }
        for packets in [300, 3_000, 60_000] {
            let talkers = flood(packets, packets);
            assert!(!talkers.are_few(), "{packets}");
            assert!(talkers.tell().unwrap().entropy_permille > 900);
        }
    }

    #[test]
    fn the_loudest_are_named() {
        let mut talkers = flood(40_000, 40_000);
        for _ in 0..5_000 {
            talkers.add(Time(9 * NS_PER_S), 99_999, hash(99_999), 1);
        }
        let told = talkers.tell().unwrap();
        assert_eq!(told.loudest[0].0, 99_999_u128.to_be_bytes());
        assert!((100..130).contains(&told.loudest[0].1), "{told:?}");
        assert!(!told.are_few, "the rest of it is forged");
    }

    #[test]
    fn what_is_older_than_two_seconds_is_forgotten() {
        let mut talkers = flood(3, 3_000);
        talkers.add(Time(12 * NS_PER_S), 9, hash(9), 1);
        assert!(!talkers.are_few());
        assert_eq!(talkers.tell(), None);
    }
}
