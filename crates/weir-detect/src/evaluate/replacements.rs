//! What rules write over what they find in a packet (`replace`); whoever has the packet does it.

use std::sync::Arc;

use super::{Evaluator, Sight};
use crate::detector::Detector;
use crate::rule::{Rule, RuleIndex};

/// Contents that are replaced in one packet, at most.
const REPLACEMENTS_MAX: usize = 64;

/// A text that a rule replaces in a packet of TCP or UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The rule that says so.
    pub rule: RuleIndex,
    /// Where it begins, from the payload's first byte.
    pub offset: usize,
    /// What is written there.
    pub bytes: Arc<[u8]>,
}

impl Detector {
    /// Takes what rules replace in the last packet, in the order in which it is to be written.
    pub fn take_replacements(&mut self) -> impl ExactSizeIterator<Item = Replacement> {
        self.evaluator.replacements.drain(..)
    }
}

impl Evaluator {
    /// Keeps what the rule that matched replaces, if it looked at the packet.
    pub(super) fn keep_replaced(&mut self, (rule, index): (&Rule, RuleIndex), sight: Sight<'_>) {
        let is_of_packet = !sight.is_stream && sight.message.is_none();
        if self.replaced.is_empty() || !is_of_packet || rule.is_tried {
            return;
        }
        for (offset, bytes) in self.replaced.drain(..) {
            match self.replacements.len() < REPLACEMENTS_MAX {
                true => self.replacements.push(Replacement { rule: index, offset, bytes }),
                false => self.counters.replacements_lost += 1,
            }
        }
    }
}
