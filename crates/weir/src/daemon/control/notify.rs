//! What the service manager is told (systemd's notify protocol). Without one, nothing happens.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The gateway carries traffic.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// Something that its operator must see.
pub fn alarm(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Nothing is carried yet, and it lives.
pub fn waiting(status: &str) {
    send(&[NotifyState::Status(status), NotifyState::Watchdog]);
}

/// The gateway ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// The service manager's watchdog: it restarts a gateway that stays silent.
#[derive(Debug)]
pub struct Watchdog {
    period: Option<Duration>,
    last: Instant,
}

impl Watchdog {
    /// As the service manager asked for (`WatchdogSec=`); otherwise it does nothing.
    pub fn from_environment(now: Instant) -> Self {
        let mut period_us = 0;
        let enabled = sd_notify::watchdog_enabled(false, &mut period_us);
        // Twice a period: one late report is no reason to be restarted.
        let period = enabled.then(|| Duration::from_micros(period_us) / 2);
        Self { period, last: now }
    }

    /// Reports, when it is time, that the gateway is alive. The caller made sure that it is.
    pub fn alive(&mut self, now: Instant) {
        if self.is_due(now) {
            self.last = now;
            send(&[NotifyState::Watchdog]);
        }
    }

    /// Whether it is time to report.
    pub fn is_due(&self, now: Instant) -> bool {
        self.period.is_some_and(|period| now.duration_since(self.last) >= period)
    }
}
