//! ICMP echo by iputils ping.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Namespace;
use crate::process::Running;

/// Between two requests.
const INTERVAL: Duration = Duration::from_millis(50);
/// An answer that takes longer is lost.
const LATE: Duration = Duration::from_secs(30);
/// Sending on a busy machine takes this many times as long as it should, at most.
const SLOWER: u32 = 5;

/// What ping counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Answers received.
    pub answered: u64,
}

/// Sends `count` echo requests with `payload_len` bytes of payload, 20 a second. Where some are
/// answered, it waits for the last answer no longer than the others took.
///
/// # Errors
/// ping is missing, or does not say what it counted. Unanswered requests are not an error.
pub fn ping(from: &Namespace, target: &str, count: u32, payload_len: u32) -> Result<PingReport> {
    let mut command = from.command("ping");
    command.args(["-q", "-n", "-i", &text(INTERVAL), "-W", "1", "-M", "do"]);
    command.args(["-c", &count.to_string(), "-s", &payload_len.to_string(), target]);
    let limit = Duration::from_secs(10) + Duration::from_millis(1100) * count;
    let finished = Running::start(&mut command)?.finish(limit)?;
    parse(&finished.stdout).with_context(|| format!("ping said: {}", finished.stderr.trim()))
}

/// The same where all are to be answered, and late is not lost: asks on until as many answers are
/// there, and counts those to the first `count` requests. On a machine too busy to send so many,
/// the report says how many were sent.
///
/// # Errors
/// As of [`ping`].
pub fn ping_all(from: &Namespace, target: &str, count: u32, len: u32) -> Result<PingReport> {
    ping_all_every(INTERVAL, from, target, count, len)
}

/// The same, one request in each `interval`.
///
/// # Errors
/// As of [`ping`].
pub fn ping_all_every(
    interval: Duration,
    from: &Namespace,
    target: &str,
    count: u32,
    payload_len: u32,
) -> Result<PingReport> {
    let mut command = from.command("ping");
    let end = LATE + interval * count * SLOWER;
    command.args(["-n", "-i", &text(interval), "-M", "do", "-w", &end.as_secs().to_string()]);
    command.args(["-c", &count.to_string(), "-s", &payload_len.to_string(), target]);
    let finished = Running::start(&mut command)?.finish(end + LATE)?;
    let said = parse(&finished.stdout);
    let said = said.with_context(|| format!("ping said: {}", finished.stderr.trim()))?;
    let answers: BTreeSet<u32> = finished.stdout.lines().filter_map(answer).collect();
    let answered = answers.range(1..=count).count() as u64;
    Ok(PingReport { sent: said.sent.min(u64::from(count)), answered })
}

fn text(interval: Duration) -> String {
    interval.as_secs_f64().to_string()
}

/// The number of the request that a line tells the answer of.
fn answer(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once(" bytes from ")?;
    rest.split_once("icmp_seq=")?.1.split_whitespace().next()?.parse().ok()
}

fn parse(said: &str) -> Option<PingReport> {
    let line = said.lines().find(|line| line.contains(" packets transmitted"))?;
    let number = |part: &str| part.split_whitespace().next()?.parse().ok();
    let mut parts = line.split(',');
    Some(PingReport { sent: number(parts.next()?)?, answered: number(parts.next()?)? })
}
