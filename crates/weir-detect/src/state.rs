//! What rules remember beyond a flow: bits of hosts, and how often they matched.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::{FixedState, FoldHasher};
use weir_wire::frame::Time;

use crate::rule::{RateFilter, RuleIndex, Threshold, ThresholdKind};

const NS_PER_S: u64 = 1_000_000_000;

/// Keys the tables, so that nobody outside can tell which entries collide. Several tables are asked
/// about each packet: SipHash took a seventh of what RDMA's detectors cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keyed(pub(crate) u64);

impl BuildHasher for Keyed {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        FixedState::with_seed(self.0).build_hasher()
    }
}

/// Two addresses, one of which may be none.
type Hosts = (u128, u128);

/// Bits of hosts and pairs of hosts, each until its time.
#[derive(Debug)]
pub(crate) struct HostBits {
    until: HashMap<(u32, Hosts), Time, Keyed>,
    capacity: usize,
}

impl HostBits {
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        Self { until: HashMap::with_hasher(Keyed(seed)), capacity }
    }

    pub(crate) fn has(&self, now: Time, bit: u32, hosts: Hosts) -> bool {
        self.until.get(&(bit, hosts)).is_some_and(|until| now < *until)
    }

    /// Sets a bit; whether there was room for it.
    pub(crate) fn set(&mut self, now: Time, bit: u32, hosts: Hosts, expire_s: u64) -> bool {
        if self.until.len() == self.capacity && !self.until.contains_key(&(bit, hosts)) {
            self.until.retain(|_, until| now < *until);
            if self.until.len() == self.capacity {
                return false;
            }
        }
        self.until.insert((bit, hosts), now.plus_ns(expire_s.saturating_mul(NS_PER_S)));
        true
    }

    pub(crate) fn unset(&mut self, bit: u32, hosts: Hosts) {
        self.until.remove(&(bit, hosts));
    }

    pub(crate) fn clear(&mut self) {
        self.until.clear();
    }
}

/// How often a rule matched since a moment.
#[derive(Clone, Copy, Debug)]
struct Count {
    since: Time,
    matches: u32,
}

/// Counts of rules by whom they track.
#[derive(Debug)]
pub(crate) struct Thresholds {
    counts: HashMap<(RuleIndex, bool, Hosts), Count, Keyed>,
    rates: HashMap<(RuleIndex, Hosts), Rate, Keyed>,
    capacity: usize,
}

/// How often a rule matched since a moment, and until when that was too often.
#[derive(Clone, Copy, Debug)]
struct Rate {
    count: Count,
    until: Option<Time>,
}

/// What a threshold says of one more match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Alert, and act.
    Alert,
    /// Act, and say nothing.
    Silent,
    /// The rule has not matched yet.
    NoMatch,
}

impl Thresholds {
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        let (counts, rates) =
            (HashMap::with_hasher(Keyed(seed)), HashMap::with_hasher(Keyed(seed)));
        Self { counts, rates, capacity }
    }

    pub(crate) fn clear(&mut self) {
        self.counts.clear();
        self.rates.clear();
    }

    /// Counts a match of `rule` for `hosts`; whether it matches too often, `None`: there is no
    /// room to count it.
    pub(crate) fn rate(
        &mut self,
        now: Time,
        rule: RuleIndex,
        filter: &RateFilter,
        hosts: Hosts,
    ) -> Option<bool> {
        let key = (rule, hosts);
        if self.rates.len() == self.capacity && !self.rates.contains_key(&key) {
            self.rates.retain(|_, it| it.until.is_some_and(|until| now < until));
            if self.rates.len() == self.capacity {
                return None;
            }
        }
        let fresh = Rate { count: Count { since: now, matches: 0 }, until: None };
        let rate = self.rates.entry(key).or_insert(fresh);
        match rate.until {
            Some(until) if now < until => return Some(true),
            Some(_) => *rate = fresh,
            None => {}
        }
        if now.since_ns(rate.count.since) > u64::from(filter.seconds) * NS_PER_S {
            *rate = fresh;
        }
        rate.count.matches = rate.count.matches.saturating_add(1);
        let is_too_often = rate.count.matches > filter.count;
        if is_too_often {
            rate.until = Some(now.plus_ns(u64::from(filter.timeout_s) * NS_PER_S));
        }
        Some(is_too_often)
    }

    /// Counts a match of `rule` for `hosts`; `None`: there is no room to count it.
    pub(crate) fn count(
        &mut self,
        now: Time,
        rule: RuleIndex,
        threshold: &Threshold,
        hosts: Hosts,
    ) -> Option<Verdict> {
        let key = (rule, threshold.kind == ThresholdKind::Filter, hosts);
        if self.counts.len() == self.capacity && !self.counts.contains_key(&key) {
            // Nobody counts for longer than this with the rules in use, save a few.
            const OLD_NS: u64 = 600 * NS_PER_S;
            self.counts.retain(|_, it| now.since_ns(it.since) < OLD_NS);
            if self.counts.len() == self.capacity {
                return None;
            }
        }
        let count = self.counts.entry(key).or_insert(Count { since: now, matches: 0 });
        let window_ns = u64::from(threshold.seconds) * NS_PER_S;
        if now.since_ns(count.since) > window_ns {
            *count = Count { since: now, matches: 0 };
        }
        count.matches = count.matches.saturating_add(1);
        Some(match threshold.kind {
            ThresholdKind::Limit if count.matches <= threshold.count => Verdict::Alert,
            ThresholdKind::Limit => Verdict::Silent,
            ThresholdKind::Threshold if count.matches >= threshold.count => {
                count.matches = 0;
                Verdict::Alert
            }
            ThresholdKind::Both if count.matches == threshold.count => Verdict::Alert,
            ThresholdKind::Both if count.matches > threshold.count => Verdict::Silent,
            ThresholdKind::Filter if count.matches > threshold.count => Verdict::Alert,
            _ => Verdict::NoMatch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Track;

    fn said(kind: ThresholdKind, seconds: &[u64]) -> Vec<Verdict> {
        let threshold =
            Threshold { kind, track: Track::Source, count: 2, seconds: 10, multiplier: 1 };
        let mut thresholds = Thresholds::new(4, 0);
        let at = |it: &u64| Time(it * NS_PER_S);
        let mut count = |it| thresholds.count(at(it), RuleIndex(0), &threshold, (1, 0)).unwrap();
        seconds.iter().map(&mut count).collect()
    }

    #[test]
    fn each_kind_of_threshold_counts_in_its_own_way() {
        use Verdict::{Alert, NoMatch, Silent};
        let seconds = [1, 2, 3, 4, 20];
        assert_eq!(said(ThresholdKind::Limit, &seconds), [Alert, Alert, Silent, Silent, Alert]);
        assert_eq!(
            said(ThresholdKind::Threshold, &seconds),
            [NoMatch, Alert, NoMatch, Alert, NoMatch]
        );
        assert_eq!(said(ThresholdKind::Both, &seconds), [NoMatch, Alert, Silent, Silent, NoMatch]);
        assert_eq!(
            said(ThresholdKind::Filter, &seconds),
            [NoMatch, NoMatch, Alert, Alert, NoMatch]
        );
    }

    #[test]
    fn a_full_table_counts_nothing_new_until_something_is_old() {
        let mut bits = HostBits::new(1, 7);
        assert!(bits.set(Time(0), 1, (1, 0), 5));
        assert!(!bits.set(Time(1), 1, (2, 0), 5));
        assert!(bits.set(Time(6 * NS_PER_S), 1, (2, 0), 5));
        assert!(!bits.has(Time(6 * NS_PER_S), 1, (1, 0)));
        assert!(bits.has(Time(6 * NS_PER_S), 1, (2, 0)));
    }
}
