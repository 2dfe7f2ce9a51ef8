//! What the detectors of several workers count together (docs/adr/0221): each tells what it counted
//! since it was asked last, and adds what the others did.
//!
//! ```text
//!   packet -> count, bit, mark -> Unshared --ten times a second--> SharedCounts -> the others' own
//! ```

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::behaviour::WatchedCounts;
use crate::dataset::Moved;
use crate::ruleset::RuleSet;
use crate::state::{Bit, CountChanges, Keyed, RateChanges};

/// Changes of one kind that wait, at most; what is changed beyond them counts for one worker alone.
pub(crate) const CHANGES_MAX: usize = 4096;

/// What one detector counted since it was asked last. Of use to detectors with the same rules, and
/// the same [`Limits::seed`](crate::Limits::seed).
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

    pub(crate) fn clear(&mut self) {
        self.changes.iter_mut().for_each(HashMap::clear);
    }
}
