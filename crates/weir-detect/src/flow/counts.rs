//! Matches that are counted by the flow (`threshold: type backoff`).

use super::Flow;
use crate::rule::RuleIndex;
use crate::state::Verdict;

impl Flow {
    /// Counts a match towards the next alert, which is `multiplier` times as far off each time.
    pub(crate) fn backs_off(&mut self, rule: RuleIndex, count: u32, multiplier: u32) -> Verdict {
        let place = match self.counts.iter().position(|(known, ..)| *known == rule) {
            Some(place) => place,
            None => {
                self.counts.push((rule, 0, count));
                self.counts.len() - 1
            }
        };
        let (_, matches, next) = &mut self.counts[place];
        *matches = matches.saturating_add(1);
        if *matches < *next {
            return if *matches == 1 { Verdict::NoMatch } else { Verdict::Silent };
        }
        *next = next.saturating_mul(multiplier.max(2));
        Verdict::Alert
    }
}
