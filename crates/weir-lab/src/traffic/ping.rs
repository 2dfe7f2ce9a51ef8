//! ICMP echo by iputils ping.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Namespace;
use crate::process::Running;

/// What ping counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Answers received.
    pub answered: u64,
}

/// Sends `count` echo requests with `payload_len` bytes of payload, 20 a second.
///
/// # Errors
/// ping is missing, or does not say what it counted. Unanswered requests are not an error.
pub fn ping(from: &Namespace, target: &str, count: u32, payload_len: u32) -> Result<PingReport> {
    ping_every(Duration::from_millis(50), from, target, count, payload_len)
}

/// The same, one request in each `interval`.
///
/// # Errors
/// As of [`ping`].
pub fn ping_every(
    interval: Duration,
    from: &Namespace,
    target: &str,
    count: u32,
    payload_len: u32,
) -> Result<PingReport> {
    let interval = interval.as_secs_f64().to_string();
    let mut command = from.command("ping");
    command.args(["-q", "-n", "-i", &interval, "-W", "1", "-M", "do", "-c", &count.to_string()]);
    command.args(["-s", &payload_len.to_string(), target]);
    let limit = Duration::from_secs(10) + Duration::from_millis(1100) * count;
    let finished = Running::start(&mut command)?.finish(limit)?;
    parse(&finished.stdout).with_context(|| format!("ping said: {}", finished.stderr.trim()))
}

fn parse(said: &str) -> Option<PingReport> {
    let line = said.lines().find(|line| line.contains(" packets transmitted"))?;
    let number = |part: &str| part.split_whitespace().next()?.parse().ok();
    let mut parts = line.split(',');
    Some(PingReport { sent: number(parts.next()?)?, answered: number(parts.next()?)? })
}
