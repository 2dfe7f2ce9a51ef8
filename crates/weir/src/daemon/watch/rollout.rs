//! The log of peers that need not be sealed to yet: each time that one's traffic changes between
//! clear and sealed, within a limit.

use std::collections::HashMap;

use weir_engine::pipeline::{Engine, SealingChange};
use weir_engine::policy::Sealing;
use weir_wire::frame::Time;

use crate::daemon::watch::alarm::Period;

/// Between two lines about one peer.
const PERIOD_NS: u64 = 10_000_000_000;

/// Lines at once; of thousands of peers that change together, the others are summed up.
const LINES_MAX: usize = 8;

/// What of each peer was told last.
#[derive(Debug, Default)]
pub struct RolloutLog {
    told: HashMap<String, Logged>,
    changed: Vec<SealingChange>,
}

#[derive(Debug)]
struct Logged {
    period: Period,
    /// What came too soon after.
    waiting: Option<SealingChange>,
    passed_over: u64,
}

impl RolloutLog {
    /// Tells what changed in `engine` by `now`. Call it ten times a second.
    pub fn look(&mut self, pair: &str, engine: &mut Engine, now: Time) {
        engine.take_sealing_changes(&mut |change| self.changed.push(change));
        if self.changed.is_empty() && self.told.is_empty() {
            return;
        }
        if self.told.len() > engine.policy().peers.len() {
            // Some are peers no more; the others are told of once too often.
            self.told.clear();
        }
        let lines = self.lines(now);
        for (change, passed_over) in lines.iter().take(LINES_MAX) {
            say(pair, change, *passed_over);
        }
        if lines.len() > LINES_MAX {
            let more = lines.len() - LINES_MAX;
            tracing::warn!(pair, more, "more peers changed between clear and sealed");
        }
    }

    /// What is due to be told, each with the changes before it that were not.
    fn lines(&mut self, now: Time) -> Vec<(SealingChange, u64)> {
        let mut lines = Vec::new();
        for change in self.changed.drain(..) {
            match self.told.get_mut(&change.peer) {
                None => {
                    let mut period = Period::of_ns(PERIOD_NS);
                    period.begin(now);
                    let told = Logged { period, waiting: None, passed_over: 0 };
                    self.told.insert(change.peer.clone(), told);
                    lines.push((change, 0));
                }
                Some(told) => {
                    told.passed_over += u64::from(told.waiting.replace(change).is_some());
                }
            }
        }
        for told in self.told.values_mut() {
            if !told.period.is_over(now) {
                continue;
            }
            let Some(change) = told.waiting.take() else { continue };
            let passed_over = std::mem::take(&mut told.passed_over);
            told.period.begin(now);
            lines.push((change, passed_over));
        }
        lines
    }
}

fn say(pair: &str, change: &SealingChange, passed_over: u64) {
    let SealingChange { peer, sealing, is_sealed, is_held, counters } = change;
    let (sent, received) = (counters.sent_packets, counters.received_packets);
    match (sealing, is_sealed, is_held) {
        (_, true, _) => {
            tracing::info!(pair, peer, sent, received, passed_over, "sealed from now on");
        }
        (Sealing::Observe, ..) => {
            tracing::warn!(pair, peer, "OBSERVE: its traffic passes in clear, only counted");
        }
        (_, _, true) => tracing::warn!(
            pair,
            peer,
            sent,
            received,
            passed_over,
            "PREFER: it does not answer: its traffic passes IN CLEAR until it is up again"
        ),
        _ => tracing::warn!(
            pair,
            peer,
            sent,
            received,
            passed_over,
            "PREFER: there are no keys yet: its traffic passes IN CLEAR"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(peer: &str, is_sealed: bool) -> SealingChange {
        SealingChange {
            peer: peer.into(),
            sealing: Sealing::Prefer,
            is_sealed,
            is_held: false,
            counters: Default::default(),
        }
    }

    #[test]
    fn a_peer_is_told_of_at_once_and_then_every_ten_seconds_with_its_last_state() {
        let mut log = RolloutLog::default();
        let mut at = |second: u64, new: &[SealingChange]| {
            log.changed.extend(new.iter().cloned());
            log.lines(Time(1 + second * 1_000_000_000))
        };
        assert_eq!(at(0, &[change("b", false)]), [(change("b", false), 0)]);
        for second in 1..9 {
            assert_eq!(at(second, &[change("b", second % 2 == 1)]), []);
        }
        assert_eq!(at(9, &[change("c", true)]), [(change("c", true), 0)], "another one");
        assert_eq!(at(10, &[]), [(change("b", false), 7)]);
        assert_eq!(at(30, &[]), []);
        // A clock that was set back silences nobody.
        assert_eq!(at(3, &[change("b", true)]), [(change("b", true), 0)]);
    }
}
