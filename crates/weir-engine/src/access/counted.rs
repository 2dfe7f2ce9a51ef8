//! What the lines in force did, for who asks.

use std::sync::Arc;

use super::lines::LineNumber;
use super::policy::AccessPolicy;
use super::saved::{SavedOwner, SavingPlace};
use super::state::StateCounters;
use super::{Access, Hits};

impl Access {
    /// The lines in force.
    pub fn policy(&self) -> &Arc<AccessPolicy> {
        &self.policy
    }

    /// How often each line decided, in their order.
    pub fn hits(&self) -> &[Hits] {
        &self.hits
    }

    /// How often each line decided, in their order, and last the default.
    pub fn hits_by_line(&self) -> impl Iterator<Item = (LineNumber, Hits)> {
        let lines = (0..).map(LineNumber).zip(self.hits.iter().copied());
        lines.chain([(LineNumber::DEFAULT, self.default_hits)])
    }

    /// How often no line matched.
    pub fn default_hits(&self) -> Hits {
        self.default_hits
    }

    /// Packets that are RDMA and could not be read.
    pub fn unreadable_packets(&self) -> u64 {
        self.unreadable
    }

    /// Events for which there was no room.
    pub fn events_lost(&self) -> u64 {
        self.events_lost
    }

    /// What was done about queue pair numbers.
    pub fn state_counters(&self) -> StateCounters {
        self.state.counters
    }

    /// How often it changed whom queue pairs belong to.
    pub fn owners_changes(&self) -> u64 {
        self.state.changes()
    }

    /// Appends some of the owners of queue pairs, to be kept over a restart; says whether there are
    /// more. One turn takes some tens of microseconds.
    pub fn save_some(&self, place: &mut SavingPlace, out: &mut Vec<SavedOwner>) -> bool {
        self.state.save_some(place, out)
    }

    /// Packets that were more than a line's limits let pass.
    pub fn limited_packets(&self) -> u64 {
        self.limiter.limited
    }

    /// Packets whose number nobody could have been waiting for.
    pub fn out_of_window_packets(&self) -> u64 {
        self.windows.outside
    }

    /// Queue pairs that have an owner.
    pub fn queue_pairs(&self) -> usize {
        self.state.len()
    }
}
