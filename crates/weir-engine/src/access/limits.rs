//! How much a line lets pass: token buckets by source, and by queue pair.

use weir_wire::frame::Time;

use super::lines::{LineNumber, Operation};
use crate::flow::HashSeed;
use crate::flow::index::Index;
use crate::flow::slab::Slab;

/// Accounts at once: at the bound the least recently used leaves, and comes back full.
pub const ACCOUNTS_MAX: usize = 1 << 16;

const NS_PER_S: u64 = 1_000_000_000;

/// What one source may do by a line; `None`: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Messages a second.
    pub messages: Option<u64>,
    /// Bytes that it asks for by READ, a second.
    pub read_bytes: Option<u64>,
    /// Bits a second.
    pub source_bits: Option<u64>,
    /// Bits a second to each queue pair.
    pub queue_pair_bits: Option<u64>,
    /// Connections that it asks for, a second.
    pub connects: Option<u64>,
    /// Connections that stand.
    pub queue_pairs: Option<u64>,
}

/// A packet's cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) now: Time,
    pub(super) line: LineNumber,
    /// Fingerprints of its source, and of the queue pair that it is for.
    pub(super) source: u64,
    pub(super) queue_pair: u64,
    pub(super) operation: Operation,
    pub(super) starts_message: bool,
    pub(super) asks_for_connection: bool,
    pub(super) read_bytes: u64,
    pub(super) bits: u64,
}

/// Of one source, or of one of its queue pairs, with one line.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    key: u64,
    /// When each bucket is full again.
    messages: Time,
    read_bytes: Time,
    bits: Time,
    connects: Time,
}

/// All accounts.
#[derive(Debug)]
pub(super) struct Limiter {
    seed: HashSeed,
    index: Index,
    accounts: Slab<Account>,
    /// Packets that were dropped.
    pub(super) limited: u64,
}

impl Limiter {
    pub(super) fn new(seed: HashSeed) -> Self {
        let (index, accounts) = (Index::new(ACCOUNTS_MAX), Slab::new(ACCOUNTS_MAX));
        Self { seed, index, accounts, limited: 0 }
    }

    /// Takes a packet's cost out of its source's accounts; says whether there was enough.
    pub(super) fn take(&mut self, limits: &Limits, cost: &Cost) -> bool {
        let line = cost.line.index().map_or(0, |it| it as u64 + 1);
        let Cost { now, .. } = *cost;
        let mut account = *self.account(self.seed.hash(&[line, cost.source, 0]), now);
        let is_message = cost.starts_message && cost.operation != Operation::Connect;
        let has_enough = (!is_message || spend(&mut account.messages, limits.messages, 1, now))
            && spend(&mut account.read_bytes, limits.read_bytes, cost.read_bytes, now)
            && (!cost.asks_for_connection || spend(&mut account.connects, limits.connects, 1, now))
            && spend(&mut account.bits, limits.source_bits, cost.bits, now)
            && self.take_of_queue_pair(limits, line, cost);
        if has_enough {
            *self.account(account.key, now) = account;
        } else {
            self.limited += 1;
        }
        has_enough
    }

    fn take_of_queue_pair(&mut self, limits: &Limits, line: u64, cost: &Cost) -> bool {
        if limits.queue_pair_bits.is_none() {
            return true;
        }
        let key = self.seed.hash(&[line, cost.source, cost.queue_pair.max(1)]);
        let account = self.account(key, cost.now);
        spend(&mut account.bits, limits.queue_pair_bits, cost.bits, cost.now)
    }

    fn account(&mut self, key: u64, now: Time) -> &mut Account {
        let found = self.index.find(key, |at| self.accounts.value(at).key == key);
        let at = found.unwrap_or_else(|| self.open(key, now));
        self.accounts.touch(at, now)
    }

    fn open(&mut self, key: u64, now: Time) -> u32 {
        if self.accounts.is_full()
            && let Some(oldest) = self.accounts.oldest()
        {
            self.close(oldest);
        }
        let at = self.accounts.insert(Account { key, ..Account::default() }, now);
        while let Err(in_the_way) = self.index.insert(key, at) {
            self.close(in_the_way);
        }
        at
    }

    fn close(&mut self, at: u32) {
        let key = self.accounts.remove(at).key;
        self.index.remove(key, at);
    }
}

/// Takes `units` out of a bucket that a second fills with `rate` of them.
fn spend(full_at: &mut Time, rate: Option<u64>, units: u64, now: Time) -> bool {
    let Some(rate) = rate.filter(|_| units > 0) else { return true };
    let cost = u128::from(units) * u128::from(NS_PER_S) / u128::from(rate.max(1));
    let cost = u64::try_from(cost).unwrap_or(u64::MAX);
    let owed = full_at.since_ns(now);
    // Further off than a bucket can be: the clock was set back.
    let owed = if owed > 3600 * NS_PER_S { 0 } else { owed };
    if owed > NS_PER_S - cost.min(NS_PER_S) {
        return false;
    }
    *full_at = now.plus_ns(owed.saturating_add(cost).min(3600 * NS_PER_S));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_a_second_s_worth_at_once_and_then_its_rate() {
        let (mut full_at, start) = (Time::default(), Time(1_700_000_000_000_000_000));
        let mut take = |ms: u64| {
            let now = start.plus_ns(ms * 1_000_000);
            (0..1000).filter(|_| spend(&mut full_at, Some(100), 1, now)).count()
        };
        assert_eq!([take(0), take(10), take(20), take(120), take(5_000)], [100, 1, 1, 10, 100]);
    }

    #[test]
    fn what_costs_more_than_a_second_s_worth_passes_once_and_is_paid_off() {
        let (mut full_at, start) = (Time::default(), Time(1_700_000_000_000_000_000));
        assert!(spend(&mut full_at, Some(100), 500, start));
        assert!(!spend(&mut full_at, Some(100), 1, start.plus_ns(3_900_000_000)));
        assert!(spend(&mut full_at, Some(100), 1, start.plus_ns(4_100_000_000)));
    }

    #[test]
    fn accounts_are_bounded() {
        let mut limiter = Limiter::new(HashSeed::new(7));
        for source in 0..ACCOUNTS_MAX as u64 + 1000 {
            limiter.account(limiter.seed.hash(&[1, source, 0]), Time(source));
        }
        assert_eq!(limiter.accounts.len(), ACCOUNTS_MAX);
    }
}
