//! What lines of access decide, and what is dropped besides, as an alert: in EVE's shape, for the
//! store and for sinks. Its rule is the line, so its number is 0 and its signature names it.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Map, Value, json};
use weir_engine::access::{AccessAction, AccessEvent};
use weir_engine::verdict::DropReason;

use super::alerts::rfc3339;
use super::eve::{Marks, timestamp};
use super::siem_text::SiemEvent;
use crate::sqlite::AlertRow;

/// As grave as a rule of priority 2.
const SEVERITY: u8 = 2;
const CATEGORY: &str = "RDMA access";

/// The event of kind `alert`, and that of kind `drop` where the message went no further.
pub(super) fn lines(event: &AccessEvent, marks: &Marks) -> Vec<Map<String, Value>> {
    let is_blocked = !event.passes();
    let mut alert = json!({
        "action": if is_blocked { "blocked" } else { "allowed" },
        "gid": 1,
        "signature_id": 0,
        "rev": 0,
        "signature": signature(event),
        "category": CATEGORY,
        "severity": SEVERITY,
    });
    if event.action == AccessAction::WouldDeny {
        alert["would_drop"] = true.into();
    }
    let mut first = head(event, "alert", marks);
    first.insert("alert".into(), alert.clone());
    let mut lines = vec![first];
    if is_blocked {
        let mut drop = head(event, "drop", marks);
        drop.insert("drop".into(), json!({ "reason": "access" }));
        drop.insert("alert".into(), alert);
        lines.push(drop);
    }
    lines
}

fn head(event: &AccessEvent, kind: &str, marks: &Marks) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("timestamp".into(), timestamp(event.time).into());
    map.insert("event_type".into(), kind.into());
    map.insert("src_ip".into(), address(&event.from).to_string().into());
    map.insert("dest_ip".into(), address(&event.to).to_string().into());
    map.insert("proto".into(), "RDMA".into());
    marks.put(&mut map);
    let mut access = json!({
        "action": event.action.name(),
        "operation": event.operation.name(),
        "dest_qp": event.destination_qp.value(),
    });
    if let Some(line) = line(event) {
        access["line"] = line.into();
    }
    if let Some(reason) = event.dropped {
        access["reason"] = reason.name().into();
    }
    if let Some(memory) = event.memory {
        access["rkey"] = memory.remote_key.into();
        access["length"] = memory.length.into();
    }
    map.insert("access".into(), access);
    map
}

/// The event as the store keeps it.
pub(super) fn row(event: &AccessEvent, marks: &Marks, pair: &str) -> AlertRow {
    let alert = lines(event, marks).swap_remove(0);
    let action = match event.action {
        _ if event.dropped.is_some() => "blocked",
        AccessAction::Allow => "allowed",
        AccessAction::WouldDeny => "would_block",
        AccessAction::Deny | AccessAction::Reject => "blocked",
    };
    AlertRow {
        number: marks.number.unwrap_or_default(),
        note: None,
        is_suppressed: false,
        time_ns: event.time.0,
        pair: pair.to_owned(),
        sid: 0,
        severity: SEVERITY,
        action: action.to_owned(),
        signature: signature(event),
        category: CATEGORY.to_owned(),
        protocol: "RDMA".to_owned(),
        source: event.from,
        source_port: 0,
        destination: event.to,
        destination_port: 0,
        event: Value::Object(alert).to_string(),
    }
}

/// The event for sinks.
pub(super) fn siem(event: &AccessEvent, mut alert: Map<String, Value>, pair: &str) -> SiemEvent {
    alert.insert("pair".into(), pair.into());
    SiemEvent {
        kind: "alert",
        timestamp: rfc3339(event.time),
        seconds: event.time.0 as f64 / 1e9,
        severity: SEVERITY,
        summary: signature(event),
        event: alert,
    }
}

/// The line that decided; `None`: none was asked.
fn line(event: &AccessEvent) -> Option<&str> {
    event.line.as_deref().or_else(|| event.dropped.is_none().then_some("default"))
}

/// `access: line b-may-not-write denies write`, `access: write to a queue pair of others`
fn signature(event: &AccessEvent) -> String {
    let (line, operation) = (line(event).unwrap_or_default(), event.operation.name());
    match event.dropped {
        Some(DropReason::AccessLimit) => {
            return format!("access: {operation} exceeds the limit of line {line}");
        }
        Some(DropReason::QpForged) => {
            return format!("access: {operation} from others than the queue pair's owner");
        }
        Some(DropReason::AccessNoConnection) => {
            return format!("access: {operation} without a connection");
        }
        Some(DropReason::AccessPsn) => {
            return format!("access: {operation} with a number that nobody waits for");
        }
        Some(reason) => return format!("access: {operation} dropped as {}", reason.name()),
        None => {}
    }
    let does = match event.action {
        AccessAction::Allow => "allows",
        AccessAction::Deny => "denies",
        AccessAction::WouldDeny => "would deny",
        AccessAction::Reject => "rejects",
    };
    format!("access: line {line} {does} {operation}")
}

fn address(bytes: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*bytes)).to_canonical()
}

#[cfg(test)]
mod tests {
    use weir_engine::access::{Memory, Operation};
    use weir_wire::bth::Qpn;
    use weir_wire::frame::Time;

    use super::*;

    fn event(action: AccessAction) -> AccessEvent {
        let mut from = [0; 16];
        from[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
        AccessEvent {
            time: Time(1_700_000_000_000_000_000),
            side: None,
            line: Some("no-writes".into()),
            action,
            dropped: None,
            from,
            to: [0xfd; 16],
            destination_qp: Qpn::new(17),
            operation: Operation::Write,
            memory: Some(Memory { remote_key: 6699, length: 4096 }),
        }
    }

    #[test]
    fn a_denied_message_is_an_alert_and_a_drop_that_name_line_and_memory() {
        let destination = Some("gw-b".into());
        let marks = Marks { destination, number: Some(17), ..Marks::default() };
        let lines = lines(&event(AccessAction::Deny), &marks);
        let kinds: Vec<_> = lines.iter().map(|it| it["event_type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["alert", "drop"]);
        for line in &lines {
            let access = json!({
                "line": "no-writes", "action": "deny", "operation": "write", "dest_qp": 17,
                "rkey": 6699, "length": 4096,
            });
            assert_eq!(line["access"], access);
            assert_eq!((&line["src_ip"], &line["dest_peer"]), (&"10.0.0.2".into(), &"gw-b".into()));
            assert_eq!(line["weir"]["alert_id"], 17);
            assert_eq!(line["alert"]["signature"], "access: line no-writes denies write");
        }
        let row = row(&event(AccessAction::Deny), &marks, "port0");
        assert_eq!((row.action.as_str(), row.sid, row.number), ("blocked", 0, 17));
    }

    #[test]
    fn what_no_line_dropped_is_told_with_its_reason() {
        let limited = DropReason::AccessLimit;
        let over = AccessEvent { dropped: Some(limited), ..event(AccessAction::Allow) };
        let told = lines(&over, &Marks::default());
        assert_eq!(told.len(), 2, "an alert and a drop");
        assert_eq!(told[0]["alert"]["action"], "blocked");
        assert_eq!(told[0]["access"]["reason"], "access_limit");
        assert_eq!(
            told[0]["alert"]["signature"],
            "access: write exceeds the limit of line no-writes"
        );
        assert_eq!(row(&over, &Marks::default(), "port0").action, "blocked");
        let dropped = Some(DropReason::QpForged);
        let forged = AccessEvent { dropped, line: None, ..event(AccessAction::Deny) };
        let told = lines(&forged, &Marks::default());
        assert_eq!((told[0]["access"].get("line"), told.len()), (None, 2));
        let signature = "access: write from others than the queue pair's owner";
        assert_eq!(told[0]["alert"]["signature"], signature);
    }

    #[test]
    fn one_that_would_be_denied_is_an_alert_alone() {
        let lines = lines(&event(AccessAction::WouldDeny), &Marks::default());
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["alert"]["would_drop"], true);
        assert_eq!(lines[0]["alert"]["action"], "allowed");
    }
}
