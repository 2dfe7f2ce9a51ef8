//! What the detectors of several workers count together (docs/adr/0221): each tells what it counted
//! since it was asked last, and adds what the others did.
//!
//! ```text
//!   packet -> count, bit, mark -> Unshared --ten times a second--> SharedCounts -> the others' own
//! ```

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use weir_wire::frame::Time;

use crate::behaviour::WatchedCounts;
use crate::dataset::Moved;
use crate::ruleset::{RuleSet, Successors};
use crate::state::{Bit, CountChanges, Keyed, RateChanges};

/// Changes of one kind that wait, at most; what is changed beyond them counts for one worker alone.
pub(crate) const CHANGES_MAX: usize = 4096;

/// What one detector counted since it was asked last. Of use to detectors with the same rules, or
/// those before or after them, and the same [`Limits::seed`](crate::Limits::seed).
#[derive(Clone, Debug)]
pub struct SharedCounts {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) counts: CountChanges,
    pub(crate) rates: RateChanges,
    pub(crate) bits: Vec<Bit>,
    pub(crate) sets: Vec<Moved>,
    pub(crate) watched: WatchedCounts,
}

impl SharedCounts {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { counts, rates, bits, sets, watched, .. } = self;
        let is_told = !counts.is_empty() || !rates.is_empty() || !bits.is_empty();
        !is_told && sets.is_empty() && watched.is_empty()
    }

    /// The same by the rules that came after; what was watched begins anew with them.
    fn renamed(&self, successors: &Successors, sets: &[Option<usize>]) -> Self {
        let Self { rules, counts, rates, bits, .. } = self;
        let counts = counts.iter().filter_map(|((rule, is_filter, hosts), change)| {
            Some(((successors.rule(*rule)?, *is_filter, *hosts), *change))
        });
        let rates = rates.iter().filter_map(|((rule, hosts), change)| {
            Some(((successors.rule(*rule)?, *hosts), *change))
        });
        let bits = bits
            .iter()
            .filter_map(|((bit, hosts), until)| Some(((successors.bit(*bit)?, *hosts), *until)));
        let moved = self.sets.iter().filter_map(|((place, value), is_set)| {
            Some(((sets.get(*place).copied().flatten()?, value.clone()), *is_set))
        });
        Self {
            rules: Arc::clone(rules),
            counts: counts.collect(),
            rates: rates.collect(),
            bits: bits.collect(),
            sets: moved.collect(),
            watched: WatchedCounts::default(),
        }
    }
}

/// What other rules than a detector's count, until it has them, or after: workers take new rules
/// one after another.
#[derive(Debug, Default)]
pub(crate) struct OtherRules {
    /// The rules before, and what became of them.
    before: Option<(Weak<RuleSet>, Successors, Vec<Option<usize>>)>,
    /// Counted by rules that are to come, perhaps, and when.
    ahead: Vec<(Time, SharedCounts)>,
}

/// Rounds that wait for rules to come, at most: those of some seconds, of a few workers.
const AHEAD_MAX: usize = 64;

impl OtherRules {
    /// What was counted by the rules before, as those that run count it; keeps what is not theirs,
    /// which may be of the next.
    pub(crate) fn take(&mut self, now: Time, shared: &SharedCounts) -> Option<SharedCounts> {
        match &self.before {
            Some((rules, successors, sets)) if rules.as_ptr() == Arc::as_ptr(&shared.rules) => {
                Some(shared.renamed(successors, sets))
            }
            _ => {
                if self.ahead.len() < AHEAD_MAX {
                    self.ahead.push((now, shared.clone()));
                }
                None
            }
        }
    }

    /// `rules` run from now on in the place of those `before`. Returns what was counted by them so
    /// far.
    pub(crate) fn swap(
        &mut self,
        rules: &Arc<RuleSet>,
        before: &Arc<RuleSet>,
        successors: Successors,
        sets: Vec<Option<usize>>,
    ) -> Vec<(Time, SharedCounts)> {
        self.before = Some((Arc::downgrade(before), successors, sets));
        let ahead = std::mem::take(&mut self.ahead);
        ahead.into_iter().filter(|(_, it)| Arc::ptr_eq(&it.rules, rules)).collect()
    }
}

/// Changes by what they are of, which the other detectors have not heard of; nothing is kept until
/// somebody shares them.
#[derive(Debug)]
pub(crate) struct Unshared<K, V> {
    changes: Option<HashMap<K, V, Keyed>>,
    seed: u64,
}

impl<K: Eq + Hash, V: Default> Unshared<K, V> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { changes: None, seed }
    }

    /// Keeps changes from now on.
    pub(crate) fn share(&mut self) {
        let keyed = Keyed(self.seed);
        self.changes.get_or_insert_with(|| HashMap::with_capacity_and_hasher(CHANGES_MAX, keyed));
    }

    /// Notes a change of what `key` stands for, as far as there is room.
    #[inline]
    pub(crate) fn change(&mut self, key: K, change: impl FnOnce(&mut V)) {
        let Some(changes) = &mut self.changes else { return };
        if changes.len() < CHANGES_MAX || changes.contains_key(&key) {
            change(changes.entry(key).or_default());
        }
    }

    pub(crate) fn take(&mut self) -> Vec<(K, V)> {
        self.changes.iter_mut().flat_map(HashMap::drain).collect()
    }

    /// By the keys that they have from now on; those that have none go.
    pub(crate) fn rename(&mut self, key: impl Fn(K) -> Option<K>) {
        let Some(changes) = &mut self.changes else { return };
        let known: Vec<_> = changes.drain().collect();
        changes.extend(known.into_iter().filter_map(|(it, change)| Some((key(it)?, change))));
    }
}
