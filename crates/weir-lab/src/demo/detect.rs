//! Rules at work: what host B may not do to host A over TCP and over RDMA, and its harmless twins.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::BYPASS_RATE_PER_SECOND;
use crate::gateways::Gateways;
use crate::interrupt;
use crate::topology::{Lab, Side};
use crate::traffic::attack::PATTERN;
use crate::traffic::frames::planned;
use crate::traffic::{Kind, bypass};

/// Numbers of the two rules.
const SID_TCP: u64 = 1_000_001;
const SID_RDMA: u64 = 1_000_002;
/// Frames of each kind.
const FRAMES: usize = 300;

/// What became of attacks and their twins.
#[derive(Debug, Serialize)]
pub struct DetectionReport {
    /// Each beside the other.
    pub kinds: Vec<AttackReport>,
    /// Packets that gateway A dropped as `rule`.
    pub dropped: u64,
}

/// What became of one kind.
#[derive(Debug, Serialize)]
pub struct AttackReport {
    /// Its name as traffic.
    pub kind: String,
    /// The rule that is to stop it; absent: it is harmless.
    pub sid: Option<u64>,
    /// Frames that the hosts sent.
    pub sent: u64,
    /// Of them, arrived exactly as sent.
    pub arrived: u64,
    /// Packets that the rule dropped, as gateway A counts them.
    pub dropped_by_rule: u64,
    /// Alerts in EVE with the rule's number.
    pub alerts: u64,
}

/// Two rules for gateway A, in a file of the lab, and a file for their alerts.
///
/// # Errors
/// The lab's folder cannot be written.
pub fn tables(lab: &Lab) -> Result<String> {
    let file = lab.folder().join("gw-a.rules");
    let rules = format!(
        "drop tcp any any -> any any (msg:\"LAB request for a secret file\"; \
         content:\"{PATTERN}\"; classtype:attempted-admin; sid:{SID_TCP}; rev:1;)\n\
         drop rdma any any -> any any (msg:\"LAB atomic on memory\"; \
         rdma.opcode:atomic; classtype:attempted-admin; sid:{SID_RDMA}; rev:1;)\n"
    );
    fs::write(&file, rules).with_context(|| format!("cannot write {}", file.display()))?;
    let eve = eve(lab.folder());
    Ok(format!("\n[rules]\npaths = {file:?}\neve = {eve:?}\n"))
}

/// Where gateway A writes its alerts.
pub fn eve(folder: &Path) -> PathBuf {
    folder.join("gw-a-eve.json")
}

/// Has gateway A take the rules, and sends each attack behind its twin.
pub(super) fn run(lab: &Lab, gateways: &Gateways) -> Result<DetectionReport> {
    gateways.add_tables(lab, Side::A, &tables(lab)?)?;
    let mut kinds = Vec::new();
    for (kind, sid) in [
        (Kind::BenignTcp, None),
        (Kind::AttackTcp, Some(SID_TCP)),
        (Kind::RdmaRead, None),
        (Kind::AttackRdma, Some(SID_RDMA)),
    ] {
        kinds.push(send(lab, gateways, kind, sid)?);
    }
    let status = gateways.status(Side::A)?;
    let dropped = ["host", "wire"].map(|side| {
        let path = format!("/pairs/0/{side}/dropped_by_reason/rule");
        status.pointer(&path).and_then(Value::as_u64).unwrap_or_default()
    });
    Ok(DetectionReport { kinds, dropped: dropped.iter().sum() })
}

fn send(lab: &Lab, gateways: &Gateways, kind: Kind, sid: Option<u64>) -> Result<AttackReport> {
    let exchange = bypass::exchange(lab, &planned(kind, FRAMES)?, BYPASS_RATE_PER_SECOND)?;
    let mut report = AttackReport {
        kind: kind.name().to_owned(),
        sid,
        sent: exchange.sent,
        arrived: exchange.intact,
        dropped_by_rule: 0,
        alerts: 0,
    };
    let Some(sid) = sid else { return Ok(report) };
    let status = gateways.status(Side::A)?;
    let drops = status.pointer("/pairs/0/detection/drops").and_then(Value::as_array);
    let of_rule = drops.into_iter().flatten().find(|it| it["sid"] == sid);
    report.dropped_by_rule = of_rule.and_then(|it| it["packets"].as_u64()).unwrap_or_default();
    // Written a few times a second.
    interrupt::until("alert in EVE", std::time::Duration::from_secs(10), || {
        report.alerts = alerts(&eve(lab.folder()), sid)?;
        Ok(report.alerts > 0)
    })?;
    Ok(report)
}

/// Lines of kind `alert` with this rule's number.
fn alerts(eve: &Path, sid: u64) -> Result<u64> {
    let text = fs::read_to_string(eve).with_context(|| format!("cannot read {}", eve.display()))?;
    let is_of_rule = |line: &&str| {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else { return false };
        event["event_type"] == "alert" && event["alert"]["signature_id"] == sid
    };
    Ok(text.lines().filter(is_of_rule).count() as u64)
}

impl DetectionReport {
    /// What is not as the rules say.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for AttackReport { kind, sid, sent, arrived, dropped_by_rule, .. } in &self.kinds {
            let due = if sid.is_none() { *sent } else { 0 };
            if *arrived != due {
                failures.push(format!("{kind}: {arrived} of {sent} arrived, not {due}"));
            }
            if sid.is_some() && dropped_by_rule != sent {
                failures.push(format!("{kind}: its rule dropped {dropped_by_rule} of {sent}"));
            }
        }
        let by_rules: u64 = self.kinds.iter().map(|it| it.dropped_by_rule).sum();
        if by_rules != self.dropped {
            let dropped = self.dropped;
            failures.push(format!("rules dropped {by_rules} packets, and {dropped} were counted"));
        }
        failures
    }
}
