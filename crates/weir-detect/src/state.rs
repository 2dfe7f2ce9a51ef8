//! What rules remember beyond a flow: bits of hosts, and how often they matched.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::{FixedState, FoldHasher};
use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::Entry;
use weir_wire::frame::Time;

use crate::rule::{RateFilter, RuleIndex, Threshold, ThresholdKind};
use crate::ruleset::Successors;
use crate::shared::Unshared;

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
pub(crate) type Hosts = (u128, u128);

/// A bit of hosts by its number, and until when it is set; `None`: it is not.
pub(crate) type Bit = ((u32, Hosts), Option<Time>);

/// What is remembered by a key, for so many keys, from the one that was used longest ago to the one
/// that was used last.
#[derive(Debug)]
struct Table<K, V> {
    entries: LinkedHashMap<K, V, Keyed>,
    capacity: usize,
    /// When those that are over were looked for last.
    swept: Option<Time>,
    /// Those that were let go before they were over.
    lost: u64,
}

impl<K: Eq + Hash, V> Table<K, V> {
    fn new(capacity: usize, seed: u64) -> Self {
        let entries = LinkedHashMap::with_hasher(Keyed(seed));
        Self { entries, capacity, swept: None, lost: 0 }
    }

    /// The value of `key`, which is used now and begins with `fresh`; `None`: there is room for
    /// none. A full table makes room: those that are over go, once a second at most, for that is a
    /// walk. Else the one that was used longest ago goes, the first of the list: whoever is counted
    /// again and again stays, and a table full of made up addresses counts honest hosts too.
    fn get(&mut self, now: Time, key: K, fresh: V, is_over: impl Fn(&V) -> bool) -> Option<&mut V> {
        let is_full = self.entries.len() >= self.capacity;
        if is_full && !self.entries.contains_key(&key) {
            let is_due = self.swept.is_none_or(|it| now.since_ns(it) >= NS_PER_S);
            if is_due {
                self.swept = Some(now);
                self.entries.retain(|_, it| !is_over(it));
            }
            if self.entries.len() >= self.capacity {
                self.entries.pop_front()?;
                self.lost += 1;
            }
        }
        let entry = self.entries.entry(key);
        Some(match entry {
            Entry::Occupied(mut known) => {
                known.to_back();
                known.into_mut()
            }
            Entry::Vacant(place) => place.insert(fresh),
        })
    }

    /// By the keys that they have from now on; those that have none go.
    fn rename(&mut self, key: impl Fn(K) -> Option<K>) {
        let known: Vec<_> = self.entries.drain().collect();
        self.entries.extend(known.into_iter().filter_map(|(it, value)| Some((key(it)?, value))));
    }
}

/// Bits of hosts and pairs of hosts, each until its time.
#[derive(Debug)]
pub(crate) struct HostBits {
    until: Table<(u32, Hosts), Time>,
    unshared: Unshared<(u32, Hosts), Option<Time>>,
}

impl HostBits {
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        Self { until: Table::new(capacity, seed), unshared: Unshared::new(seed) }
    }

    pub(crate) fn has(&self, now: Time, bit: u32, hosts: Hosts) -> bool {
        self.until.entries.get(&(bit, hosts)).is_some_and(|until| now <= *until)
    }

    /// Sets a bit; whether there was room for it. One that is set has its time already, as in
    /// Suricata: who goes on setting it does not extend that.
    pub(crate) fn set(&mut self, now: Time, bit: u32, hosts: Hosts, expire_s: u64) -> bool {
        if self.has(now, bit, hosts) {
            self.until.entries.to_back(&(bit, hosts));
            return true;
        }
        let until = now.plus_ns(expire_s.saturating_mul(NS_PER_S));
        let has_room = self.put(now, (bit, hosts), until);
        if has_room {
            self.unshared.change((bit, hosts), |it| *it = Some(until));
        }
        has_room
    }

    fn put(&mut self, now: Time, bit: (u32, Hosts), until: Time) -> bool {
        let place = self.until.get(now, bit, until, |until| now > *until);
        place.map(|it| *it = until).is_some()
    }

    pub(crate) fn unset(&mut self, bit: u32, hosts: Hosts) {
        if self.until.entries.remove(&(bit, hosts)).is_some() {
            self.unshared.change((bit, hosts), |it| *it = None);
        }
    }

    /// Other rules run from here on.
    pub(crate) fn rename(&mut self, successors: &Successors) {
        let renamed = |(bit, hosts)| Some((successors.bit(bit)?, hosts));
        self.until.rename(renamed);
        self.unshared.rename(renamed);
    }

    /// Bits that were let go for others since this was asked last.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.until.lost)
    }

    /// Keeps what it sets and unsets for others from now on.
    pub(crate) fn share(&mut self) {
        self.unshared.share();
    }

    pub(crate) fn take_shared(&mut self) -> Vec<Bit> {
        self.unshared.take()
    }

    /// Takes over what another detector did to its bits.
    pub(crate) fn add_shared(&mut self, now: Time, bits: &[Bit]) {
        for (bit, until) in bits {
            match until {
                Some(until) => drop(self.put(now, *bit, *until)),
                None => drop(self.until.entries.remove(bit)),
            }
        }
    }
}

/// How often a rule matched since a moment. Below 0 where two detectors began anew at once for the
/// same matches.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    since: Time,
    matches: i64,
    /// Who counts up to an alert and no further has told it.
    is_told: bool,
}

impl Count {
    fn begin(since: Time) -> Self {
        Self { since, ..Self::default() }
    }

    fn is_over(&self, now: Time, seconds: u32) -> bool {
        now.since_ns(self.since) > u64::from(seconds) * NS_PER_S
    }

    /// Nobody counts for longer than this with the rules in use, save a few.
    fn is_old(&self, now: Time) -> bool {
        now.since_ns(self.since) >= 600 * NS_PER_S
    }
}

/// Of a rule, whether by its filter, and whom it tracks.
pub(crate) type CountKey = (RuleIndex, bool, Hosts);

/// Of a rule, and whom it tracks.
pub(crate) type RateKey = (RuleIndex, Hosts);

/// What one detector added to a count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountChange {
    since: Time,
    seconds: u32,
    by: i64,
    is_told: bool,
}

/// The same of a rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateChange {
    since: Time,
    seconds: u32,
    by: i64,
    until: Option<Time>,
}

pub(crate) type CountChanges = Vec<(CountKey, CountChange)>;

pub(crate) type RateChanges = Vec<(RateKey, RateChange)>;

/// Counts of rules by whom they track.
#[derive(Debug)]
pub(crate) struct Thresholds {
    counts: Table<CountKey, Count>,
    rates: Table<RateKey, Rate>,
    unshared_counts: Unshared<CountKey, CountChange>,
    unshared_rates: Unshared<RateKey, RateChange>,
}

/// How often a rule matched since a moment, and until when that was too often.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    count: Count,
    until: Option<Time>,
}

impl Rate {
    fn begin(since: Time) -> Self {
        Self { count: Count::begin(since), until: None }
    }

    fn is_old(&self, now: Time) -> bool {
        self.count.is_old(now) && self.until.is_none_or(|until| until <= now)
    }
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
        let (counts, rates) = (Table::new(capacity, seed), Table::new(capacity, seed));
        let (unshared_counts, unshared_rates) = (Unshared::new(seed), Unshared::new(seed));
        Self { counts, rates, unshared_counts, unshared_rates }
    }

    /// Other rules run from here on.
    pub(crate) fn rename(&mut self, successors: &Successors) {
        let of_count = |(rule, is_filter, hosts)| Some((successors.rule(rule)?, is_filter, hosts));
        let of_rate = |(rule, hosts)| Some((successors.rule(rule)?, hosts));
        self.counts.rename(of_count);
        self.unshared_counts.rename(of_count);
        self.rates.rename(of_rate);
        self.unshared_rates.rename(of_rate);
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
        let fresh = Rate::begin(now);
        let rate = self.rates.get(now, key, fresh, |it| it.is_old(now))?;
        match rate.until {
            Some(until) if now < until => return Some(true),
            // As by Suricata, the match that finds the time over is not counted, and those before
            // it still are.
            Some(_) => {
                rate.until = None;
                return Some(false);
            }
            None => {}
        }
        if rate.count.is_over(now, filter.seconds) {
            *rate = fresh;
        }
        rate.count.matches = rate.count.matches.saturating_add(1);
        let is_too_often = rate.count.matches > filter.count.into();
        if is_too_often {
            // Whole seconds, the last one included.
            let seconds = now.0 / NS_PER_S + u64::from(filter.timeout_s) + 1;
            rate.until = Some(Time(seconds.saturating_mul(NS_PER_S)));
        }
        let (since, until) = (rate.count.since, rate.until);
        self.unshared_rates.change(key, |it| {
            *it = RateChange { since, seconds: filter.seconds, by: it.by + 1, until };
        });
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
        let count = self.counts.get(now, key, Count::begin(now), |it| it.is_old(now))?;
        if count.is_over(now, threshold.seconds) {
            *count = Count::begin(now);
        }
        let before = count.matches;
        count.matches = count.matches.saturating_add(1);
        let wanted = i64::from(threshold.count);
        let verdict = match threshold.kind {
            ThresholdKind::Limit if count.matches <= wanted => Verdict::Alert,
            ThresholdKind::Limit => Verdict::Silent,
            ThresholdKind::Threshold if count.matches >= wanted => {
                // More than were wanted came by what another told, and count towards the next.
                count.matches -= wanted;
                Verdict::Alert
            }
            ThresholdKind::Both if count.matches < wanted => Verdict::NoMatch,
            ThresholdKind::Both if std::mem::replace(&mut count.is_told, true) => Verdict::Silent,
            ThresholdKind::Both => Verdict::Alert,
            ThresholdKind::Filter if count.matches > wanted => Verdict::Alert,
            _ => Verdict::NoMatch,
        };
        let Count { since, matches, is_told } = *count;
        self.unshared_counts.change(key, |it| {
            let by = it.by + matches - before;
            *it = CountChange { since, seconds: threshold.seconds, by, is_told };
        });
        Some(verdict)
    }

    /// Counts that were let go for others since this was asked last.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.counts.lost) + std::mem::take(&mut self.rates.lost)
    }

    /// Keeps what it counts for others from now on.
    pub(crate) fn share(&mut self) {
        self.unshared_counts.share();
        self.unshared_rates.share();
    }

    pub(crate) fn take_shared(&mut self) -> (CountChanges, RateChanges) {
        (self.unshared_counts.take(), self.unshared_rates.take())
    }

    /// Adds what another detector counted.
    pub(crate) fn add_shared(
        &mut self,
        now: Time,
        counts: &[(CountKey, CountChange)],
        rates: &[(RateKey, RateChange)],
    ) {
        for (key, change) in counts {
            let fresh = Count::begin(change.since);
            let count = self.counts.get(now, *key, fresh, |it| it.is_old(now));
            let Some(count) = count else { continue };
            if count.is_over(now, change.seconds) {
                *count = Count::begin(change.since);
            }
            count.matches = count.matches.saturating_add(change.by);
            count.is_told |= change.is_told;
        }
        for (key, change) in rates {
            let fresh = Rate::begin(change.since);
            let rate = self.rates.get(now, *key, fresh, |it| it.is_old(now));
            let Some(rate) = rate else { continue };
            if rate.count.is_over(now, change.seconds) {
                let until = rate.until;
                *rate = Rate { until, ..Rate::begin(change.since) };
            }
            rate.count.matches = rate.count.matches.saturating_add(change.by);
            rate.until = rate.until.max(change.until);
        }
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

    /// Two detectors that count by turns and tell each other after every `every` matches; how often
    /// they alerted, both together.
    fn alerts_of_two(kind: ThresholdKind, count: u32, matches: u64, every: u64) -> usize {
        let threshold = Threshold { kind, track: Track::Source, count, seconds: 60, multiplier: 1 };
        let mut both = [Thresholds::new(4, 0), Thresholds::new(4, 0)];
        both.iter_mut().for_each(Thresholds::share);
        let mut alerts = 0;
        for number in 0..matches {
            let now = Time(NS_PER_S + number);
            let one = &mut both[number as usize % 2];
            let verdict = one.count(now, RuleIndex(0), &threshold, (1, 0));
            alerts += usize::from(verdict == Some(Verdict::Alert));
            if number % every == every - 1 {
                let told = both.each_mut().map(Thresholds::take_shared);
                for (hearer, (counts, rates)) in both.iter_mut().rev().zip(&told) {
                    hearer.add_shared(now, counts, rates);
                }
            }
        }
        alerts
    }

    #[test]
    fn two_detectors_that_tell_each_other_alert_as_one_would() {
        use ThresholdKind::{Both, Filter, Limit, Threshold};
        // At each match: exactly as one would. Seldom: a few more or less, and in the long run the
        // same.
        for (kind, one, seldom) in [
            (Limit, 10, 10..=20),
            (Threshold, 100, 95..=105),
            (Both, 1, 1..=2),
            (Filter, 990, 980..=990),
        ] {
            assert_eq!(alerts_of_two(kind, 10, 1000, 1), one, "{kind:?}");
            let alerts = alerts_of_two(kind, 10, 1000, 12);
            assert!(seldom.contains(&alerts), "{kind:?}: {alerts}");
        }
    }

    #[test]
    fn a_rate_that_is_exceeded_at_one_detector_is_at_the_other() {
        let filter = RateFilter {
            track: Track::Source,
            count: 3,
            seconds: 10,
            timeout_s: 60,
            action: crate::rule::Action::Drop,
        };
        let mut both = [Thresholds::new(4, 0), Thresholds::new(4, 0)];
        both.iter_mut().for_each(Thresholds::share);
        let now = Time(NS_PER_S);
        let [one, other] = &mut both;
        for _ in 0..2 {
            assert_eq!(one.rate(now, RuleIndex(0), &filter, (1, 0)), Some(false));
            assert_eq!(other.rate(now, RuleIndex(0), &filter, (1, 0)), Some(false));
        }
        let (counts, rates) = one.take_shared();
        other.add_shared(now, &counts, &rates);
        assert_eq!(other.rate(now, RuleIndex(0), &filter, (1, 0)), Some(true), "two and three");
        let (counts, rates) = other.take_shared();
        one.add_shared(now, &counts, &rates);
        let later = now.plus_ns(30 * NS_PER_S);
        assert_eq!(one.rate(later, RuleIndex(0), &filter, (1, 0)), Some(true), "for its time");
    }

    #[test]
    fn bits_of_hosts_are_set_and_unset_for_others_too() {
        let mut both = [HostBits::new(4, 7), HostBits::new(4, 7)];
        both.iter_mut().for_each(HostBits::share);
        let [one, other] = &mut both;
        assert!(one.set(Time(0), 1, (1, 0), 5));
        other.add_shared(Time(1), &one.take_shared());
        assert!(other.has(Time(2), 1, (1, 0)) && !other.has(Time(6 * NS_PER_S), 1, (1, 0)));
        other.unset(1, (1, 0));
        one.add_shared(Time(3), &other.take_shared());
        assert!(!one.has(Time(4), 1, (1, 0)));
        assert!(one.take_shared().is_empty(), "what was heard is not told again");
    }

    #[test]
    fn a_full_table_lets_go_what_is_over_and_then_what_was_set_longest_ago() {
        let mut bits = HostBits::new(2, 7);
        let second = |it: u64| Time(it * NS_PER_S);
        assert!(bits.set(second(0), 1, (1, 0), 50) && bits.set(second(1), 1, (2, 0), 5));
        assert!(bits.set(second(7), 1, (3, 0), 50));
        let has = |bits: &HostBits, at| [1, 2, 3, 4].map(|it| bits.has(second(at), 1, (it, 0)));
        assert_eq!(has(&bits, 7), [true, false, true, false], "the second was over");
        assert!(bits.set(second(8), 1, (1, 0), 50), "again");
        assert!(bits.set(second(9), 1, (4, 0), 50));
        assert_eq!(has(&bits, 9), [true, false, false, true]);
        bits.add_shared(second(9), &[((1, (3, 0)), Some(second(60)))]);
        assert_eq!(has(&bits, 9), [false, false, true, true], "what others set too");
        assert!(!HostBits::new(0, 7).set(second(0), 1, (1, 0), 50));
    }

    #[test]
    fn a_full_table_is_walked_once_a_second_at_most() {
        let mut table = Table::new(2, 7);
        let walks = std::cell::Cell::new(0);
        let mut at = |ms: u64, key: u32| {
            let is_over = |_: &()| {
                walks.set(walks.get() + 1);
                false
            };
            assert!(table.get(Time(ms * NS_PER_S / 1000), key, (), is_over).is_some());
            walks.take()
        };
        let times = [0, 1, 5000, 5001, 5999, 6000, 6001, 4000];
        let keys = 0_u32..;
        let walked: Vec<u32> = times.iter().zip(keys).map(|(ms, key)| at(*ms, key)).collect();
        assert_eq!(walked, [0, 0, 2, 0, 0, 2, 0, 0], "nor where clocks are set back");
        assert_eq!(at(9000, 7), 0, "one that is there");
    }

    #[test]
    fn a_table_full_of_others_counts_whoever_comes_next() {
        let threshold = Threshold {
            kind: ThresholdKind::Filter,
            track: Track::Source,
            count: 2,
            seconds: 60,
            multiplier: 1,
        };
        let filter = RateFilter {
            track: Track::Source,
            count: 2,
            seconds: 60,
            timeout_s: 60,
            action: crate::rule::Action::Drop,
        };
        let mut thresholds = Thresholds::new(4, 0);
        let mut seen = Vec::new();
        // An honest host, among as many others as there is room for beside it.
        for (number, source) in [9, 1, 2, 3, 9, 4, 5, 6, 9].into_iter().enumerate() {
            let now = Time(NS_PER_S + number as u64);
            let verdict = thresholds.count(now, RuleIndex(0), &threshold, (source, 0));
            let rate = thresholds.rate(now, RuleIndex(0), &filter, (source, 0));
            seen.push((verdict, rate));
        }
        let (first, third) =
            ((Some(Verdict::NoMatch), Some(false)), (Some(Verdict::Alert), Some(true)));
        assert_eq!(seen[..8], [first; 8]);
        assert_eq!(seen[8], third, "it is still counted");
        let (counts, rates) = {
            let mut other = Thresholds::new(4, 0);
            other.share();
            other.count(Time(NS_PER_S), RuleIndex(0), &threshold, (7, 0));
            other.rate(Time(NS_PER_S), RuleIndex(0), &filter, (7, 0));
            other.take_shared()
        };
        thresholds.add_shared(Time(NS_PER_S), &counts, &rates);
        assert!(thresholds.counts.entries.contains_key(&(RuleIndex(0), true, (7, 0))));
        assert!(thresholds.rates.entries.contains_key(&(RuleIndex(0), (7, 0))));
    }
}
