//! The files that a test's checks look into, beside the events: eve.json and others of its kind,
//! fast.log.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::case::Case;

/// Writes what came of `case` to `folder`.
pub(super) fn write(case: &Case, events: &[Value], folder: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = folder.join(Path::new(name).file_name().unwrap_or_default());
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let lines = |kinds: Option<&Vec<Value>>| -> String {
        events.iter().filter(|it| is_of(kinds, it)).map(|it| format!("{it}\n")).collect()
    };
    let of_eve: String = of_eve_json(case, events).map(|it| format!("{it}\n")).collect();
    write("eve.json", &of_eve)?;
    write("fast.log", &events.iter().filter_map(fast).collect::<String>())?;
    let outputs = case.settings.get("outputs").and_then(Value::as_array);
    for log in outputs.into_iter().flatten().filter_map(|it| it.get("eve-log")) {
        let name = log.get("filename").and_then(Value::as_str).filter(|it| *it != "eve.json");
        if let Some(name) = name {
            write(name, &lines(log.get("types").and_then(Value::as_array)))?;
        }
    }
    Ok(())
}

/// The events of eve.json: all that were made, unless there are other logs beside it, and alerts
/// only where they are among its kinds.
pub(super) fn of_eve_json<'e>(
    case: &'e Case,
    events: &'e [Value],
) -> impl Iterator<Item = &'e Value> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array);
    let logs: Vec<_> = outputs.into_iter().flatten().filter_map(|it| it.get("eve-log")).collect();
    let is_it = |log: &&&Value| log.get("filename").is_none_or(|it| it == "eve.json");
    let own = logs.iter().find(is_it).and_then(|it| it.get("types")).and_then(Value::as_array);
    let kinds = own.filter(|_| logs.len() > 1);
    let has_alerts = own.is_none_or(|it| names(it, &json!("alert")));
    events.iter().filter(move |it| is_of(kinds, it) && (has_alerts || it["event_type"] != "alert"))
}

/// Whether a log with these kinds has an event.
fn is_of(kinds: Option<&Vec<Value>>, event: &Value) -> bool {
    kinds.is_none_or(|it| names(it, &event["event_type"]))
}

/// Writes what a run says of itself, as text and as events. Why a rule does not run it says in our
/// own words, so that who looks for Suricata's finds nothing.
pub(super) fn write_log(log: &[(&str, String)], folder: &Path) -> Result<()> {
    let text: String = log.iter().map(|it| format!("{}: detect: {}\n", it.0, it.1)).collect();
    let event = |(level, message): &(&str, String)| {
        let engine = json!({ "message": message, "module": "detect" });
        format!("{}\n", json!({ "event_type": "engine", "log_level": level, "engine": engine }))
    };
    let events: String = log.iter().map(event).collect();
    let of_errors: String =
        text.split_inclusive('\n').filter(|it| !it.starts_with("Info")).collect();
    for (name, text) in [
        ("suricata.log", &text),
        ("suricata.json", &events),
        ("stdout", &text),
        ("stderr", &of_errors),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Whether a list of kinds, each a name or a name with settings, has that one.
fn names(kinds: &[Value], kind: &Value) -> bool {
    let Some(kind) = kind.as_str() else { return false };
    kinds.iter().any(|it| it == kind || it.get(kind).is_some())
}

/// EVE's time as fast.log writes it: `11/14/2023-22:13:20.000000`.
fn time(of_eve: &str) -> String {
    let (date, rest) = of_eve.split_once('T').unwrap_or((of_eve, ""));
    let clock = rest.split(['+', 'Z']).next().unwrap_or_default();
    match date.split('-').collect::<Vec<_>>()[..] {
        [year, month, day] => format!("{month}/{day}/{year}-{clock}"),
        _ => of_eve.to_owned(),
    }
}

/// The line of fast.log for an event, where it is an alert.
fn fast(event: &Value) -> Option<String> {
    let alert = event.get("alert").filter(|_| event["event_type"] == "alert")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let end = |address: &str, port: &str| match event.get(port) {
        Some(port) => format!("{}:{port}", text(&event[address])),
        None => format!("{}:0", text(&event[address])),
    };
    let action = if alert["action"] == "blocked" { "[Drop] " } else { "" };
    let class = text(&alert["category"]);
    let class = if class.is_empty() { "(null)" } else { &class };
    let mut line = String::new();
    // Writing to memory does not fail.
    let _ = writeln!(
        line,
        "{}  {action}[**] [{}:{}:{}] {} [**] [Classification: {}] [Priority: {}] {{{}}} {} -> {}",
        time(event["timestamp"].as_str().unwrap_or_default()),
        alert["gid"],
        alert["signature_id"],
        alert["rev"],
        text(&alert["signature"]),
        class,
        alert["severity"],
        text(&event["proto"]),
        end("src_ip", "src_port"),
        end("dest_ip", "dest_port"),
    );
    Some(line)
}
