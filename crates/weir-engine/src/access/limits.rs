//! How much a line lets pass: token buckets by source, and by queue pair.
//!
//! Of several workers of a pair each has buckets of its own. What a source takes out of one
//! worker's is told to the others ten times a second ([`Spent`], docs/adr/0181), so that a limit
//! holds for the pair: it is exceeded by what passes until the others have heard of it. A queue
//! pair's packets all come to one worker.

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

/// Buckets of an account: messages, bytes that READs ask for, bits, connections asked for.
const BUCKETS: usize = 4;
const MESSAGES: usize = 0;
const READ_BYTES: usize = 1;
const BITS: usize = 2;
const CONNECTS: usize = 3;

/// Accounts that are told of at a time; those beyond wait for their next packet.
const CHANGED_MAX: usize = 4096;

/// A bucket owes an hour at most.
const DEBT_MAX_NS: u64 = 3600 * NS_PER_S;

/// Of one source, or of one of its queue pairs, with one line.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    key: u64,
    /// When each bucket is full again.
    full_at: [Time; BUCKETS],
    /// What was taken out and the other workers have not heard of.
    untold_ns: [u64; BUCKETS],
    is_changed: bool,
}

/// What a source has taken out of one worker's buckets by a line, as time that fills them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    key: u64,
    ns: [u64; BUCKETS],
}

/// All accounts.
#[derive(Debug)]
pub(super) struct Limiter {
    seed: HashSeed,
    index: Index,
    accounts: Slab<Account>,
    /// Whose accounts the other workers are to hear of; `None`: there are none.
    changed: Option<Vec<u64>>,
    /// Packets that were dropped.
    pub(super) limited: u64,
}

impl Limiter {
    pub(super) fn new(seed: HashSeed) -> Self {
        let (index, accounts) = (Index::new(ACCOUNTS_MAX), Slab::new(ACCOUNTS_MAX));
        Self { seed, index, accounts, changed: None, limited: 0 }
    }

    /// Takes a packet's cost out of its source's accounts; says whether there was enough.
    pub(super) fn take(&mut self, limits: &Limits, cost: &Cost) -> bool {
        let line = cost.line.index().map_or(0, |it| it as u64 + 1);
        let Cost { now, .. } = *cost;
        let mut account = *self.account(self.seed.hash(&[line, cost.source, 0]), now);
        let is_message = cost.starts_message && cost.operation != Operation::Connect;
        let mut spend = |bucket, rate, units| account.spend(bucket, rate, units, now);
        let has_enough = spend(MESSAGES, limits.messages, u64::from(is_message))
            && spend(READ_BYTES, limits.read_bytes, cost.read_bytes)
            && spend(CONNECTS, limits.connects, u64::from(cost.asks_for_connection))
            && spend(BITS, limits.source_bits, cost.bits)
            && self.take_of_queue_pair(limits, line, cost);
        if !has_enough {
            self.limited += 1;
            return false;
        }
        if let Some(changed) = &mut self.changed
            && !account.is_changed
            && changed.len() < CHANGED_MAX
        {
            account.is_changed = true;
            changed.push(account.key);
        }
        *self.account(account.key, now) = account;
        true
    }

    /// What the other workers have not heard of, at most [`CHANGED_MAX`] accounts. It is kept from
    /// the first time on that somebody asks.
    pub(super) fn take_spent(&mut self, mut tell: impl FnMut(Spent)) {
        let Self { index, accounts, changed, .. } = self;
        let changed = changed.get_or_insert_with(|| Vec::with_capacity(CHANGED_MAX));
        for key in changed.drain(..) {
            let found = index.find(key, |at| accounts.value(at).key == key);
            let Some(account) = found.map(|at| accounts.value_mut(at)) else { continue };
            account.is_changed = false;
            tell(Spent { key, ns: std::mem::take(&mut account.untold_ns) });
        }
    }

    /// Takes out of our buckets what another worker gave out of its own.
    pub(super) fn note_spent(&mut self, spent: &Spent, now: Time) {
        let account = self.account(spent.key, now);
        for (full_at, more) in account.full_at.iter_mut().zip(spent.ns) {
            let owed = owed_ns(*full_at, now);
            *full_at = now.plus_ns(owed.saturating_add(more).min(DEBT_MAX_NS));
        }
    }

    fn take_of_queue_pair(&mut self, limits: &Limits, line: u64, cost: &Cost) -> bool {
        if limits.queue_pair_bits.is_none() {
            return true;
        }
        let key = self.seed.hash(&[line, cost.source, cost.queue_pair.max(1)]);
        self.account(key, cost.now).spend(BITS, limits.queue_pair_bits, cost.bits, cost.now)
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

impl Account {
    /// Takes `units` out of a bucket that a second fills with `rate` of them.
    fn spend(&mut self, bucket: usize, rate: Option<u64>, units: u64, now: Time) -> bool {
        let (full_at, untold) = (&mut self.full_at[bucket], &mut self.untold_ns[bucket]);
        let before = *full_at;
        let is_enough = spend(full_at, rate, units, now);
        if *full_at != before {
            *untold += owed_ns(*full_at, now) - owed_ns(before, now);
        }
        is_enough
    }
}

/// Until the bucket is full again. Further off than one can be: the clock was set back.
fn owed_ns(full_at: Time, now: Time) -> u64 {
    Some(full_at.since_ns(now)).filter(|owed| *owed <= DEBT_MAX_NS).unwrap_or(0)
}

fn spend(full_at: &mut Time, rate: Option<u64>, units: u64, now: Time) -> bool {
    let Some(rate) = rate.filter(|_| units > 0) else { return true };
    let cost = u128::from(units) * u128::from(NS_PER_S) / u128::from(rate.max(1));
    let cost = u64::try_from(cost).unwrap_or(u64::MAX);
    let owed = owed_ns(*full_at, now);
    if owed > NS_PER_S - cost.min(NS_PER_S) {
        return false;
    }
    *full_at = now.plus_ns(owed.saturating_add(cost).min(DEBT_MAX_NS));
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
    fn workers_that_tell_each_other_keep_one_limit_together() {
        let limits = Limits { messages: Some(100), ..Limits::default() };
        let start = Time(1_700_000_000_000_000_000);
        let cost = |ms: u64| Cost {
            now: start.plus_ns(ms * 1_000_000),
            line: LineNumber::DEFAULT,
            source: 7,
            queue_pair: 0,
            operation: Operation::Write,
            starts_message: true,
            asks_for_connection: false,
            read_bytes: 0,
            bits: 8,
        };
        let passed = |tells: bool| {
            let mut workers: Vec<_> = (0..4).map(|_| Limiter::new(HashSeed::new(7))).collect();
            workers.iter_mut().for_each(|it| it.take_spent(|_| ()));
            let mut passed = 0;
            for ms in 0..20_000 {
                for worker in &mut workers {
                    passed += u64::from(worker.take(&limits, &cost(ms)));
                }
                for teller in (0..4).filter(|_| tells && ms % 100 == 0) {
                    let mut spent = Vec::new();
                    workers[teller].take_spent(|it| spent.push(it));
                    for hearer in (0..4).filter(|hearer| *hearer != teller) {
                        spent.iter().for_each(|it| workers[hearer].note_spent(it, cost(ms).now));
                    }
                }
            }
            passed
        };
        // Twenty seconds' worth, and a bucket of each at the beginning.
        assert!((2_000..2_500).contains(&passed(true)), "{}", passed(true));
        assert!(passed(false) > 8_000);
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
