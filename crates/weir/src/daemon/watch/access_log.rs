//! What is told of messages that lines of access denied, would deny, or are to be logged, or that
//! were dropped besides: a bounded number of lines in the log, and each as an alert, which goes
//! where alerts go.

use std::net::{IpAddr, Ipv6Addr};

use weir_engine::access::{AccessAction, AccessEvent};
use weir_engine::pipeline::Engine;
use weir_store::sink::AlertSender;
use weir_wire::frame::Time;

use crate::daemon::watch::alarm::Period;

/// Between two rounds of lines.
const PERIOD_NS: u64 = 1_000_000_000;

/// Messages told of in a round; of the others, how many they were.
const TOLD_MAX: u32 = 20;

/// Tells of judged messages, a bounded number a second.
#[derive(Debug)]
pub struct AccessLog {
    round: Period,
    told: u32,
    untold: u64,
    lost_before: u64,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { round: Period::of_ns(PERIOD_NS), told: 0, untold: 0, lost_before: 0 }
    }
}

impl AccessLog {
    /// Takes what `engine` judged by `now`, and tells of it.
    pub fn look(&mut self, pair: &str, engine: &mut Engine, alerts: &AlertSender, now: Time) {
        let Some(access) = engine.access() else { return };
        let lost = access.events_lost();
        self.untold += lost.saturating_sub(std::mem::replace(&mut self.lost_before, lost));
        if self.round.is_over(now) {
            self.end_round(pair);
            self.round.begin(now);
        }
        while let Some(event) = engine.take_access_event() {
            if event.action != AccessAction::Allow || !event.passes() {
                alerts.send_access(event.clone());
            }
            if self.told < TOLD_MAX {
                self.told += 1;
                tell(pair, &event);
            } else {
                self.untold += 1;
            }
        }
    }

    fn end_round(&mut self, pair: &str) {
        self.told = 0;
        let untold = std::mem::take(&mut self.untold);
        if untold > 0 {
            tracing::warn!(pair, messages = untold, "lines of access decided about more messages");
        }
    }
}

fn tell(pair: &str, event: &AccessEvent) {
    let line = event.line.as_deref().or_else(|| event.dropped.is_none().then_some("default"));
    let (from, to) = (shown(&event.from), shown(&event.to));
    let queue_pair = event.destination_qp;
    let operation = event.operation.name();
    let r_key = event.memory.map(|it| format!("{:#010x}", it.remote_key));
    let length = event.memory.map(|it| it.length);
    macro_rules! say {
        ($level:ident, $text:literal $(, $more:ident)*) => {
            tracing::$level!(
                pair, line, %from, %to, %queue_pair, operation, r_key, length, $($more,)* $text
            )
        };
    }
    let reason = event.dropped.map(|it| it.name());
    match event.action {
        _ if reason.is_some() => say!(warn, "access dropped", reason),
        AccessAction::Deny => say!(warn, "access denied"),
        AccessAction::Reject => say!(warn, "access rejected"),
        AccessAction::WouldDeny => say!(warn, "access would be denied"),
        AccessAction::Allow => say!(info, "access allowed"),
    }
}

/// An address in the form of `Parsed`, as people write it.
fn shown(address: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*address)).to_canonical()
}
