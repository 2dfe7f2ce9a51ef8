//! Floods that need not be received: a rule drops all of them, so that the gate in the kernel can.
//!
//! ```text
//!   packet dropped by a bare flood rule -> wanted --shell--> the gate drops the rest of it
//!   the gate's counts --dropped_early--> the rule's count, the flood's bucket: over or not
//! ```
//!
//! What the gate lets through (a trickle, who was answered, SYNs that are sent again) is judged
//! here as ever.

use std::collections::HashMap;

use weir_detect::{Flood, RuleIndex};

/// Floods that are held by a gate for one worker, at most; those beyond are dropped at the joint.
pub const FLOODS_MAX: usize = 512;
/// Floods that wait to be held.
const WANTED_MAX: usize = 64;

/// One worker's floods that the gate drops, or is to.
#[derive(Debug, Default)]
pub(super) struct Early {
    wanted: Vec<Flood>,
    /// By the rule that drops them; those that are wanted, too.
    held: HashMap<Flood, RuleIndex>,
}

impl Early {
    /// Has a flood dropped by the gate from now on, if there is room.
    pub(super) fn want(&mut self, flood: Flood, rule: RuleIndex) {
        if self.wanted.len() == WANTED_MAX || self.held.len() == FLOODS_MAX {
            return;
        }
        if let std::collections::hash_map::Entry::Vacant(place) = self.held.entry(flood) {
            place.insert(rule);
            self.wanted.push(flood);
        }
    }

    /// Takes what is wanted since this was asked last.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, Flood> {
        self.wanted.drain(..)
    }

    /// The rule that drops a flood that is held.
    pub(super) fn rule(&self, flood: &Flood) -> Option<RuleIndex> {
        self.held.get(flood).copied()
    }

    /// The gate does not drop it, or no longer.
    pub(super) fn release(&mut self, flood: &Flood) {
        self.held.remove(flood);
    }

    /// Other rules: what is held is asked for again.
    pub(super) fn clear(&mut self) {
        self.wanted.clear();
        self.held.clear();
    }
}
