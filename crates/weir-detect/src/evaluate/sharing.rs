//! What a detector keeps over a change of its rules, and tells others of the same pair.

use std::sync::Arc;

use weir_wire::frame::Time;

use super::Evaluator;
use crate::behaviour::WatchedCounts;
use crate::matcher::MatcherError;
use crate::ruleset::{RuleSet, Successors};
use crate::shared::SharedCounts;

impl Evaluator {
    /// Other rules run from here on. Returns the places of sets by those that they had.
    pub(crate) fn swap(
        &mut self,
        rules: &RuleSet,
        successors: &Successors,
    ) -> Result<Vec<Option<usize>>, MatcherError> {
        self.scratch = rules.scratch()?;
        self.host_bits.rename(successors);
        self.hosts = rules.hosts().clone();
        self.thresholds.rename(successors);
        Ok(self.sets.swap(rules.datasets()))
    }

    /// Keeps what it counts for other detectors from now on.
    pub(crate) fn share(&mut self) {
        self.host_bits.share();
        self.thresholds.share();
        self.sets.share();
    }

    /// What it counted since this was asked last, but for what is watched.
    pub(crate) fn take_shared(
        &mut self,
        rules: Arc<RuleSet>,
        watched: WatchedCounts,
    ) -> SharedCounts {
        let (counts, rates) = self.thresholds.take_shared();
        let bits = self.host_bits.take_shared();
        SharedCounts { rules, counts, rates, bits, sets: self.sets.take_shared(), watched }
    }

    /// Adds what a detector with the same rules counted.
    pub(crate) fn add_shared(&mut self, now: Time, shared: &SharedCounts) {
        self.thresholds.add_shared(now, &shared.counts, &shared.rates);
        self.host_bits.add_shared(now, &shared.bits);
        self.sets.add_shared(&shared.sets);
    }
}
