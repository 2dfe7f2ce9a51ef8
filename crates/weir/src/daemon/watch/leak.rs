//! The alarm about plaintext that came to the wire port although the policy demands a seal.

use weir_engine::proof::WireProof;
use weir_wire::frame::Time;

use crate::daemon::control::notify;
use crate::daemon::watch::alarm::Period;

/// Between two alarms, whatever happens.
const PERIOD_NS: u64 = 1_000_000_000;

/// Says aloud what the wire's proof counts: in the log and to the service manager, at most once a
/// second.
#[derive(Debug)]
pub struct LeakAlarm {
    told: u64,
    period: Period,
}

impl Default for LeakAlarm {
    fn default() -> Self {
        Self { told: 0, period: Period::of_ns(PERIOD_NS) }
    }
}

impl LeakAlarm {
    /// Looks at what `proof` counted by `now`, and tells what is new.
    pub fn look(&mut self, pair: &str, proof: &WireProof, now: Time) {
        if let Some(news) = self.news(proof, now) {
            let headers = proof.last_plaintext().map(ToString::to_string).unwrap_or_default();
            let counters = proof.counters();
            tracing::error!(
                pair,
                frames = news,
                frames_total = counters.plaintext,
                kept_from_wire = counters.plaintext_dropped,
                last = headers,
                "PLAINTEXT at the wire port: frames that the policy seals were not sealed; this is \
                 a fault in weir, please report it"
            );
            notify::alarm(&format!(
                "ALARM: pair {pair}: {} frames in plaintext at the wire port, {} of them dropped",
                counters.plaintext, counters.plaintext_dropped
            ));
        }
    }

    /// Frames since the last alarm, when it is time to tell of them.
    fn news(&mut self, proof: &WireProof, now: Time) -> Option<u64> {
        let plaintext = proof.counters().plaintext;
        if plaintext == self.told || !self.period.is_over(now) {
            return None;
        }
        self.period.begin(now);
        Some(plaintext - std::mem::replace(&mut self.told, plaintext))
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::policy::{Action, Policy};

    use super::*;

    #[test]
    fn an_alarm_is_given_at_once_and_then_once_a_second() {
        let mut policy = Policy::watch(1, 1500);
        policy.default = Action::Drop;
        let mut proof = WireProof::new(&policy);
        let mut alarm = LeakAlarm::default();
        let second = |tenths: u64| Time(tenths * PERIOD_NS / 10);
        assert_eq!(alarm.news(&proof, second(0)), None, "nothing leaked");
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        proof.admit(&frame, 60);
        assert_eq!(alarm.news(&proof, second(1)), Some(1));
        proof.admit(&frame, 60);
        proof.admit(&frame, 60);
        assert_eq!(alarm.news(&proof, second(5)), None, "not twice a second");
        assert_eq!(alarm.news(&proof, second(11)), Some(2));
        assert_eq!(alarm.news(&proof, second(30)), None, "nothing new");
    }
}
