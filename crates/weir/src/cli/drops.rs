//! `weir drops`: what a running gateway dropped, and why.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use weir_engine::verdict::DropReason;

use super::args::StatusArgs;
use super::explain::{GUARD, SENT_BY_OWN_STACK};
use super::print_json;
use super::status::ask_status;
use super::terminal::shown;
use crate::api::dto::{AccessSnapshot, PairSnapshot, Snapshot};

/// Runs `weir drops`.
///
/// # Errors
/// No gateway answers.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let snapshot = ask_status(&args.run_dir, args.name.as_deref())?;
    let drops = drops(&snapshot);
    if args.json {
        print_json(&drops)?;
        return Ok(ExitCode::SUCCESS);
    }
    if drops.is_empty() {
        println!("nothing was dropped");
    }
    print!("{}{}", words(&drops), would_drop(&snapshot));
    Ok(ExitCode::SUCCESS)
}

/// For people: a line for each port and reason, and behind it what dropped there. Lines of access
/// and rules count for both ports of a pair together: where both dropped, they follow at the end.
fn words(drops: &[Dropped]) -> String {
    let mut text = String::new();
    for drop in drops {
        let Dropped { count, reason, interface, meaning, .. } = drop;
        text += &format!("{count:>14}  {reason:<22} {interface:<10} {meaning}\n");
        if !drop.is_of_both {
            text += &drop.blamed(*count);
        }
    }
    for drop in drops {
        let Some(count) = drop.both_ports else { continue };
        let Dropped { pair, reason, .. } = drop;
        text +=
            &format!("\n{count:>14}  {reason:<22} both ports of pair {} together\n", shown(pair));
        text += &drop.blamed(count);
    }
    text
}

/// Packets that rules would have dropped, and that passed: for rules that only watch, or for who is
/// allowed. By pair, most frequent first.
fn would_drop(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for pair in &snapshot.pairs {
        let rules = pair.detection.iter().flat_map(|it| &it.drops);
        let mut rules: Vec<_> = rules.filter(|it| it.would_drop > 0).collect();
        rules.sort_by_key(|it| std::cmp::Reverse(it.would_drop));
        let count: u64 = rules.iter().map(|it| it.would_drop).sum();
        if count > 0 {
            let pair = shown(&pair.name);
            text += &format!("\n{count:>14}  packets of pair {pair} would have been dropped\n");
        }
        for rule in rules {
            let signature = shown(&rule.signature);
            text += &format!("{:>18}  by rule {} {signature}\n", rule.would_drop, rule.sid);
        }
    }
    text
}

#[derive(Default, Serialize)]
struct Dropped {
    pair: String,
    /// Packets that lines of access dropped for this reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_line: BTreeMap<String, u64>,
    /// Packets that rules dropped.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_rule: BTreeMap<String, u64>,
    /// Both ports dropped for this reason: so many. `by_line` and `by_rule` are of both, and stand
    /// at the first of them only.
    #[serde(skip_serializing_if = "Option::is_none")]
    both_ports: Option<u64>,
    /// The other port of its pair dropped for this reason too.
    #[serde(skip)]
    is_of_both: bool,
    interface: String,
    side: &'static str,
    reason: String,
    count: u64,
    meaning: &'static str,
}

impl Dropped {
    /// What dropped, of `count` packets, most frequent first.
    fn blamed(&self, count: u64) -> String {
        let lines = self.by_line.iter().map(|(name, packets)| ("line", name, packets));
        let rules = self.by_rule.iter().map(|(name, packets)| ("rule", name, packets));
        let mut all: Vec<_> = lines.chain(rules).collect();
        all.sort_by_key(|(_, _, packets)| std::cmp::Reverse(**packets));
        let mut text = String::new();
        for (kind, name, packets) in all {
            text += &format!("{packets:>18}  by {kind} {}\n", shown(name));
        }
        // Counts of rules begin anew with other rules; those of ports do not.
        let known: u64 = self.by_rule.values().sum();
        if self.reason == DropReason::Rule.name() && known < count {
            let rest = count - known;
            text += &format!(
                "{rest:>18}  by rules before the last reload, floods cut early, other pieces of \
                 datagrams\n"
            );
        }
        text
    }
}

fn drops(snapshot: &Snapshot) -> Vec<Dropped> {
    let mut drops = Vec::new();
    for pair in &snapshot.pairs {
        let first = drops.len();
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
                    ..Dropped::default()
                });
            };
            for (reason, count) in &side.dropped_by_reason {
                add(reason, *count, meaning(reason));
            }
            for (reason, count, meaning) in side.port.losses() {
                add(reason, count, meaning);
            }
            if side.guard_dropped > 0 {
                add(GUARD, side.guard_dropped, SENT_BY_OWN_STACK);
            }
        }
        blame(pair, &mut drops[first..]);
    }
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.count));
    drops
}

/// Adds what dropped to the pair's `drops`: lines of access and rules.
fn blame(pair: &PairSnapshot, drops: &mut [Dropped]) {
    let access = pair.access.iter().flat_map(AccessSnapshot::denied);
    let mut by_line: BTreeMap<_, _> = access.map(|it| (it.name.clone(), it.packets)).collect();
    // Those of rules include packets that passed, for who is allowed or because rules watch.
    let rules = pair.detection.iter().flat_map(|it| &it.drops);
    let rules = rules.map(|it| (it, it.packets.saturating_sub(it.would_drop)));
    let mut by_rule: BTreeMap<_, _> = rules
        .filter(|(_, dropped)| *dropped > 0)
        .map(|(it, dropped)| (format!("{} {}", it.sid, it.signature), dropped))
        .collect();
    let mut put = |reason: DropReason, put: &mut dyn FnMut(&mut Dropped)| {
        let mut of_reason: Vec<_> =
            drops.iter_mut().filter(|it| it.reason == reason.name()).collect();
        let sum = of_reason.iter().map(|it| it.count).sum();
        let is_of_both = of_reason.len() > 1;
        of_reason.iter_mut().for_each(|it| it.is_of_both = is_of_both);
        if let Some(most) = of_reason.iter_mut().max_by_key(|it| it.count) {
            put(most);
            most.both_ports = is_of_both.then_some(sum);
        }
    };
    put(DropReason::AccessDenied, &mut |it| it.by_line = std::mem::take(&mut by_line));
    put(DropReason::Rule, &mut |it| it.by_rule = std::mem::take(&mut by_rule));
}

fn meaning(reason: &str) -> &'static str {
    let known = DropReason::ALL.iter().find(|it| it.name() == reason);
    known.map_or("A reason that this program does not know.", |it| it.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::dto::{DetectionSnapshot, RuleDropsSnapshot};

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

    fn of_rule(sid: u32, packets: u64, would_drop: u64) -> RuleDropsSnapshot {
        RuleDropsSnapshot { sid, signature: format!("rule {sid}"), packets, would_drop }
    }

    #[test]
    fn what_rules_would_have_dropped_stands_apart() {
        let mut pair = PairSnapshot { name: "port0".into(), ..PairSnapshot::default() };
        let drops = vec![of_rule(7, 2200, 1200), of_rule(8, 5, 5), of_rule(9, 10, 0)];
        pair.detection = Some(DetectionSnapshot { drops, ..DetectionSnapshot::default() });
        let text = would_drop(&Snapshot { pairs: vec![pair], ..Default::default() });
        let lines: Vec<_> = text.lines().skip(1).map(str::trim).collect();
        let expected = [
            "1205  packets of pair port0 would have been dropped",
            "1200  by rule 7 rule 7",
            "5  by rule 8 rule 8",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn rules_are_shown_once_with_what_they_dropped() {
        let mut pair = PairSnapshot { name: "port0".into(), ..PairSnapshot::default() };
        let drops_of_rules = vec![of_rule(7, 2200, 1200), of_rule(8, 5, 5), of_rule(9, 10, 0)];
        pair.detection =
            Some(DetectionSnapshot { drops: drops_of_rules, ..DetectionSnapshot::default() });
        pair.host.interface = "p0".into();
        pair.host.dropped_by_reason = BTreeMap::from([("rule".to_owned(), 1010)]);
        let shown = |pair: &PairSnapshot| {
            let snapshot = Snapshot { pairs: vec![pair.clone()], ..Default::default() };
            words(&drops(&snapshot))
        };
        let one = shown(&pair);
        let lines: Vec<_> = one.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines, ["1000  by rule 7 rule 7", "10  by rule 9 rule 9"]);
        pair.wire.interface = "p1".into();
        pair.wire.dropped_by_reason = BTreeMap::from([("rule".to_owned(), 20)]);
        let both = shown(&pair);
        assert_eq!(both.matches("by rule 7").count(), 1);
        assert!(
            both.contains(
                "\n          1030  rule                   both ports of pair port0 together\n"
            ),
            "{both}"
        );
        assert_eq!(both.matches("by rules before the last reload").count(), 1, "{both}");
        assert!(both.ends_with(
            "20  by rules before the last reload, floods cut early, other pieces of datagrams\n"
        ));
    }
}
