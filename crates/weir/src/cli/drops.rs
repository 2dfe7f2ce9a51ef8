//! `weir drops`: what a running gateway dropped, and why.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weir_engine::verdict::DropReason;

use super::args::StatusArgs;
use super::print_json;
use super::status::ask_status;
use super::terminal::shown;
use crate::api::dto::{AccessSnapshot, PairSnapshot, Snapshot};

/// Runs `weir drops`.
///
/// # Errors
/// No gateway answers.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let drops = drops(&ask_status(&args.run_dir, args.name.as_deref())?);
    if args.json {
        print_json(&drops)?;
        return Ok(ExitCode::SUCCESS);
    }
    if drops.is_empty() {
        println!("nothing was dropped");
    }
    for drop in drops {
        println!("{:>14}  {:<22} {:<10} {}", drop.count, drop.reason, drop.interface, drop.meaning);
        for (line, packets) in &drop.by_line {
            println!("{packets:>18}  by line {}", shown(line));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Dropped {
    pair: String,
    /// Of lines of access and of rules: packets that each dropped, of both sides.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_line: BTreeMap<String, u64>,
    interface: String,
    side: &'static str,
    reason: String,
    count: u64,
    meaning: &'static str,
}

fn drops(snapshot: &Snapshot) -> Vec<Dropped> {
    let mut drops = Vec::new();
    for pair in &snapshot.pairs {
        let kernel = pair.kernel.as_ref().map(|side| ("kernel", side));
        for (name, side) in [("host", &pair.host), ("wire", &pair.wire)].into_iter().chain(kernel) {
            let mut add = |reason: &str, count: u64, meaning: &'static str| {
                drops.push(Dropped {
                    pair: pair.name.clone(),
                    interface: side.interface.clone(),
                    side: name,
                    reason: reason.to_owned(),
                    count,
                    meaning: meaning.trim(),
                    by_line: by_line(pair, reason),
                });
            };
            for (reason, count) in &side.dropped_by_reason {
                add(reason, *count, meaning(reason));
            }
            for (reason, count, meaning) in side.port.losses() {
                add(reason, count, meaning);
            }
            if side.guard_dropped > 0 {
                let meaning = "Sent by the gateway machine's own network stack, not by a host.";
                add("guard", side.guard_dropped, meaning);
            }
        }
    }
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.count));
    drops
}

/// Which lines of access, or which rules, dropped what was dropped for `reason`.
fn by_line(pair: &PairSnapshot, reason: &str) -> BTreeMap<String, u64> {
    if reason == DropReason::Rule.name() {
        let enforced = pair.detection.iter().filter(|it| it.mode == "enforce");
        let rules = enforced.flat_map(|it| &it.drops);
        return rules.map(|it| (format!("{} {}", it.sid, it.signature), it.packets)).collect();
    }
    let access = pair.access.iter().filter(|_| reason == DropReason::AccessDenied.name());
    access.flat_map(AccessSnapshot::denied).map(|it| (it.name.clone(), it.packets)).collect()
}

fn meaning(reason: &str) -> &'static str {
    let known = DropReason::ALL.iter().find(|it| it.name() == reason);
    known.map_or("A reason that this program does not know.", |it| it.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_name_reason_side_and_meaning_most_frequent_first() {
        let mut pair = PairSnapshot::default();
        pair.host.dropped_by_reason = BTreeMap::from([("malformed".to_owned(), 2)]);
        pair.wire.dropped_by_reason = BTreeMap::from([("replay_old".to_owned(), 9)]);
        pair.wire.port.lost_ring_full = 5;
        let drops = drops(&Snapshot { pairs: vec![pair], ..Default::default() });
        let names: Vec<_> =
            drops.iter().map(|it| (it.side, it.reason.as_str(), it.count)).collect();
        let expected =
            [("wire", "replay_old", 9), ("wire", "lost_ring_full", 5), ("host", "malformed", 2)];
        assert_eq!(names, expected);
        assert!(drops[0].meaning.contains("anti-replay"), "{}", drops[0].meaning);
    }
}
