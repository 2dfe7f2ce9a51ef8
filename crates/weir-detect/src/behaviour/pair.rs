//! What one host does to another, over all queue pairs between them.

use weir_wire::bth::Psn;
use weir_wire::frame::Time;

use super::{NS_PER_S, Signs};

/// R_Keys, P_Keys and Q_Keys that are remembered, of each.
const KEYS: usize = 16;
/// Refusals by which no later request was told of yet are remembered for so long.
const REFUSED_NS: u64 = 3600 * NS_PER_S;
/// Addresses among which a host that listens to a cache alternates, at most.
const LINES: usize = 4;

/// One direction between two hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    /// When its first packet came; 0: none came.
    pub(super) first: Time,
    /// When it last brought requests or data.
    pub(super) data: Time,
    /// Counts connections that began: what was known of queue pairs is void.
    pub(super) epoch: u32,
    /// The last PSN that was far from what its queue pair expects.
    pub(super) candidate: Option<Psn>,
    /// Connections asked for by this direction, whose data is news: see `exfiltration`.
    pub(super) has_asked: bool,
    pub(super) remote_keys: Keys,
    /// Watches for which enough accesses were refused, since the last request that is told by them,
    /// and when the last one was.
    refused: (Signs, Time),
    pub(super) partitions: Keys,
    pub(super) queue_keys: Keys,
    pub(super) reads: SmallReads,
}

impl Pair {
    /// Enough accesses were refused for those watches.
    pub(super) fn refuse(&mut self, now: Time, signs: Signs) {
        self.refused = (self.refused.0 | signs, now);
    }

    /// The watches for which enough were refused since this was asked last.
    pub(super) fn take_refused(&mut self, now: Time) -> Signs {
        let (signs, last) = std::mem::take(&mut self.refused);
        if now.since_ns(last) < REFUSED_NS { signs } else { 0 }
    }
}

/// The last few different values of a field.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keys {
    keys: [u32; KEYS],
    count: u8,
}

impl Keys {
    pub(super) fn contains(&self, key: u32) -> bool {
        self.keys[..usize::from(self.count).min(KEYS)].contains(&key)
    }

    /// Remembers a key; whether it is new, and not the first.
    pub(super) fn add(&mut self, key: u32) -> bool {
        if self.contains(key) {
            return false;
        }
        self.keys[usize::from(self.count) % KEYS] = key;
        // Counts on from KEYS to twice of it and back: full stays full.
        self.count =
            if usize::from(self.count) + 1 == 2 * KEYS { KEYS as u8 } else { self.count + 1 };
        self.count > 1
    }
}

/// A run of small READs that go back and forth between few addresses (Pythia: they time what is in
/// the adapter's cache).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmallReads {
    addresses: [u64; LINES],
    known: u8,
    last: u64,
    run: u32,
}

impl SmallReads {
    /// Takes a READ's address in; how long the run is now.
    pub(super) fn take(&mut self, address: u64, is_small: bool) -> u32 {
        let known = &self.addresses[..usize::from(self.known)];
        let is_known = known.contains(&address);
        if !is_small
            || (address == self.last && self.run > 0)
            || (!is_known && known.len() == LINES)
        {
            *self = Self::default();
        }
        if !is_known && is_small {
            self.addresses[usize::from(self.known)] = address;
            self.known += 1;
        }
        self.last = address;
        self.run = self.run.saturating_add(u32::from(is_small));
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_new_once_and_the_oldest_are_forgotten() {
        let mut keys = Keys::default();
        assert!(!keys.add(7), "the first is no change");
        assert!(!keys.add(7) && keys.add(8));
        for key in 100..100 + 3 * KEYS as u32 {
            assert!(keys.add(key));
        }
        assert!(!keys.contains(7) && keys.contains(147) && keys.contains(132));
        assert!(!keys.contains(131));
    }

    #[test]
    fn only_small_reads_that_alternate_between_few_addresses_make_a_run() {
        let run = |addresses: &mut dyn Iterator<Item = u64>| {
            let mut reads = SmallReads::default();
            addresses.map(|it| reads.take(it, true)).max().unwrap()
        };
        assert_eq!(run(&mut (0..1000).map(|it| it % 3 * 64)), 1000);
        assert!(run(&mut (0..1000).map(|_| 64)) <= 1, "a poll");
        assert!(run(&mut (0..1000).map(|it| it * 64)) <= LINES as u32, "a scan");
        let mut reads = SmallReads::default();
        assert_eq!(reads.take(0, true), 1);
        assert_eq!(reads.take(64, false), 0, "a large one ends it");
    }
}
