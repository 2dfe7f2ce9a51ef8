//! What is odd about lines: those that never decide, and those that change nothing.

use super::lines::Operations;
use super::policy::AccessPolicy;

/// What is odd about one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// Another line, of the same effect, decides before it whatever it matches.
    Shadowed {
        /// That line's index.
        by: usize,
    },
    /// Another line, of the opposite effect, decides before it whatever it matches.
    Contradicted {
        /// That line's index.
        by: usize,
    },
    /// Several lines before it decide together whatever it matches.
    Dead,
    /// It does what the default does, and so do all lines after it.
    Idle,
}

impl AccessPolicy {
    /// The odd lines, in their order. One oddity a line, the first of the list that holds.
    pub fn oddities(&self) -> Vec<(usize, Oddity)> {
        let passes = |line: usize| self.lines()[line].action.passes();
        let default = self.default_action().passes();
        let count = self.lines().len();
        let idle_from = (0..count).rev().take_while(|line| passes(*line) == default).last();
        let idle_from = idle_from.unwrap_or(count);
        let oddity = |line| {
            let decided_before = self.decided_before(line);
            let is_idle = line >= idle_from;
            decided_before.or(is_idle.then_some(Oddity::Idle)).map(|it| (line, it))
        };
        (0..count).filter_map(oddity).collect()
    }

    fn decided_before(&self, number: usize) -> Option<Oddity> {
        let line = &self.lines()[number];
        let mut open = line.operations;
        for by in self.perhaps_covering(number).take_while(|by| *by < number) {
            let other = &self.lines()[by];
            let decided = other.operations.and(line.operations);
            let covers = other.from.covers(&line.from)
                && other.to.covers(&line.to)
                && other.terms.cover(&line.terms);
            if decided.is_empty() || !covers {
                continue;
            }
            if decided == line.operations {
                let agree = other.action.passes() == line.action.passes();
                return Some(match agree {
                    true => Oddity::Shadowed { by },
                    false => Oddity::Contradicted { by },
                });
            }
            open = open.without(decided);
        }
        (open == Operations::NONE).then_some(Oddity::Dead)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::{AccessAction, Line, Operation, Party, Terms};
    use super::*;
    use crate::policy::Prefix;

    fn line(from: Option<(&str, u8)>, operations: &[Operation], action: AccessAction) -> Line {
        let prefix = |(text, len): (&str, u8)| Prefix::new(text.parse::<IpAddr>().unwrap(), len);
        let from = from.map_or(Party::any(), |it| Party::new(vec![prefix(it)]));
        let operations = match operations {
            [] => Operations::ALL,
            some => Operations::of(some.iter().copied()),
        };
        let (to, terms) = (Party::any(), Terms::default());
        Line { name: "".into(), from, to, operations, terms, limits: None, action, log: false }
    }

    #[test]
    fn lines_that_never_decide_are_found_and_no_others() {
        use AccessAction::{Allow, Deny};
        use Operation::{Read, Send, Write};
        let (net, host) = (Some(("10.0.0.0", 24)), Some(("10.0.0.7", 32)));
        let lines = vec![
            line(net, &[Read], Allow),
            line(host, &[Read], Allow),
            line(host, &[Read], Deny),
            line(net, &[Write], Deny),
            line(host, &[Read, Write], Allow),
            line(host, &[Read, Send], Deny),
            line(None, &[Read], Deny),
            line(net, &[Send], Allow),
            line(None, &[], Allow),
        ];
        let found = AccessPolicy::new(lines, Allow).oddities();
        let expected = [
            (1, Oddity::Shadowed { by: 0 }),
            (2, Oddity::Contradicted { by: 0 }),
            (4, Oddity::Dead),
            (7, Oddity::Idle),
            (8, Oddity::Idle),
        ];
        assert_eq!(found, expected);
    }
}
