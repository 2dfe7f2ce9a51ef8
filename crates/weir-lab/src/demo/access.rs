//! Lines of access at work: what host B may do to host A's memory, and what not.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::BYPASS_RATE_PER_SECOND;
use crate::gateways::Gateways;
use crate::interrupt;
use crate::topology::{Lab, Side};
use crate::traffic::frames::planned;
use crate::traffic::{Kind, bypass};

/// Host B may read host A's memory, and may not write to it; addresses to be filled in.
const LINES: &str = "
[[access]]
name = \"b-may-read\"
from = \"HOST_B\"
to = \"HOST_A\"
operations = \"read\"
action = \"allow\"

[[access]]
name = \"b-may-not-write\"
from = \"HOST_B\"
to = \"HOST_A\"
operations = \"write\"
action = \"deny\"
";

/// Frames of each kind, at least.
const FRAMES: usize = 300;
/// A gateway that was told of new lines has taken them by then.
const RELOAD: Duration = Duration::from_secs(10);

/// What became of RDMA on the other host's memory.
#[derive(Debug, Serialize)]
pub struct AccessReport {
    /// READ, and WRITE.
    pub kinds: Vec<MemoryReport>,
    /// Packets that gateway A dropped as `access_denied`.
    pub dropped: u64,
}

/// What became of one operation.
#[derive(Debug, Serialize)]
pub struct MemoryReport {
    /// Its name as traffic.
    pub kind: String,
    /// Frames that the hosts sent, answers included.
    pub sent: u64,
    /// Of them, arrived exactly as sent.
    pub arrived: u64,
    /// The line that decided.
    pub line: String,
    /// What it did.
    pub action: String,
    /// Messages that it decided about.
    pub messages: u64,
    /// Their packets.
    pub packets: u64,
}

/// Two lines for gateway A: host B may READ from host A, and may not WRITE.
pub fn lines(lab: &Lab) -> String {
    let [a, b] = Side::BOTH.map(|side| lab.host_v4(side).to_string());
    LINES.replace("HOST_A", &a).replace("HOST_B", &b)
}

/// Has gateway A take the lines, and sends both kinds.
pub(super) fn run(lab: &Lab, gateways: &Gateways) -> Result<AccessReport> {
    gateways.add_tables(lab, Side::A, &lines(lab))?;
    await_lines(gateways)?;
    let mut kinds = Vec::new();
    for (kind, line) in [(Kind::RdmaRead, "b-may-read"), (Kind::RdmaWrite, "b-may-not-write")] {
        let exchange = bypass::exchange(lab, &planned(kind, FRAMES)?, BYPASS_RATE_PER_SECOND)?;
        let hits = gateways.access_hits(Side::A)?;
        let line = find(&hits, line).with_context(|| format!("no line {line} in {hits}"))?;
        let count = |key: &str| line[key].as_u64().unwrap_or_default();
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        kinds.push(MemoryReport {
            kind: kind.name().to_owned(),
            sent: exchange.sent,
            arrived: exchange.intact,
            line: text("name"),
            action: text("action"),
            messages: count("messages"),
            packets: count("packets"),
        });
    }
    let status = gateways.status(Side::A)?;
    let dropped = ["host", "wire"].map(|side| {
        let path = format!("/pairs/0/{side}/dropped_by_reason/access_denied");
        status.pointer(&path).and_then(Value::as_u64).unwrap_or_default()
    });
    Ok(AccessReport { kinds, dropped: dropped.iter().sum() })
}

fn await_lines(gateways: &Gateways) -> Result<()> {
    let begun = Instant::now();
    while find(&gateways.access_hits(Side::A)?, "b-may-read").is_none() {
        interrupt::check()?;
        anyhow::ensure!(begun.elapsed() < RELOAD, "gateway A takes no lines of access");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A line in what `weir access hits --json` says.
fn find<'v>(hits: &'v Value, name: &str) -> Option<&'v Value> {
    hits.pointer("/pairs/0/lines")?.as_array()?.iter().find(|line| line["name"] == name)
}

impl AccessReport {
    /// What is not as the lines say.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for one in &self.kinds {
            let due = if one.action == "allow" { one.sent } else { 0 };
            if one.arrived != due {
                let MemoryReport { kind, arrived, sent, .. } = one;
                failures.push(format!("{kind}: {arrived} of {sent} arrived, not {due}"));
            }
        }
        let denied: u64 =
            self.kinds.iter().filter(|it| it.action == "deny").map(|it| it.packets).sum();
        if denied == 0 || denied != self.dropped {
            let dropped = self.dropped;
            failures.push(format!("lines denied {denied} packets, and {dropped} were dropped"));
        }
        failures
    }
}
