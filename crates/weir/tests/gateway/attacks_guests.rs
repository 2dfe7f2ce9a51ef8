//! Attacks by real RDMA: verbs programs in one Soft-RoCE guest guess keys, ask for connections that
//! they never use, and flood READs, while the same programs run as honest hosts run them. The
//! gateway of the attacker's side has the rules of `rules/rdma.rules`.

use std::collections::BTreeMap;
use std::path::Path;

use weir_lab::demo::eve_file;
use weir_lab::topology::{HOST_V4, Hosts};
use weir_lab::vm::{Guest, GuestKernel};

use super::*;

/// What runs in the guests, which have this machine's file system below `/run/machine`.
const VERBS: &str = concat!(
    "exec /usr/bin/python3 /run/machine",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gateway/attacks_verbs.py"
);
/// Emulated machines are slow when the host is busy.
const RUN: Duration = Duration::from_secs(300);

/// Completions, as libibverbs numbers them.
const SUCCESS: u64 = 0;
const REMOTE_ACCESS_ERROR: u64 = 10;
const RETRIES_EXCEEDED: u64 = 12;

/// Rules, by their numbers.
const KEY_GUESSING: u64 = 3_200_004;
const QP_EXHAUSTION: u64 = 3_200_005;
const READ_FLOOD: u64 = 3_200_014;

/// Addresses of host A. Each attack comes from one of its own, which tells who is told of.
const GUESSER: &str = "10.77.0.31";
const ASKER: &str = "10.77.0.32";
const FLOODER: &str = "10.77.0.33";
/// These are honest: one reads all the time, one with many queue pairs, one connects.
const PACED: &str = "10.77.0.41";
const READER: &str = "10.77.0.42";
const USER: &str = "10.77.0.43";

/// Connections that a rule would tell of if they were not used, and twice as many that are not.
const USED: usize = 80;
const UNUSED: usize = 160;
const GUESSES: usize = 24;
const READS: usize = 20_000;

/// The rules as they are shipped, but for the rate of READs: an emulated machine makes no million of
/// them a second, only some hundreds.
fn rules(lab: &Lab) -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules/rdma.rules");
    let shipped = std::fs::read_to_string(shipped).unwrap();
    let rate = "flood:rdma_read, by_src, rate ";
    let text = shipped.replace(&format!("{rate}1000000"), &format!("{rate}100"));
    assert_ne!(text, shipped, "the rule of READ floods has another rate");
    let file = lab.folder().join("attacks.rules");
    std::fs::write(&file, text).unwrap();
    let eve = eve_file(lab.folder());
    format!("\n[rules]\npaths = [\"{}\"]\neve = \"{}\"\n", file.display(), eve.display())
}

/// The lines of JSON of what a program said.
fn lines_of(said: &str, what: &str) -> Vec<Value> {
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|it| it["what"] == what).collect()
}

/// Runs the script in a guest to its end.
#[track_caller]
fn run(guest: &mut Guest, arguments: &str) -> String {
    guest.run(&format!("{VERBS} {arguments}"), RUN).unwrap().success().unwrap()
}

/// Alerts in EVE, by who they tell of and the rule.
fn alerts(lab: &Lab) -> BTreeMap<(String, u64), usize> {
    let text = std::fs::read_to_string(eve_file(lab.folder())).unwrap_or_default();
    let mut alerts = BTreeMap::new();
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (source, rule) = (event["src_ip"].as_str(), event["alert"]["signature_id"].as_u64());
        if let (Some(source), Some(rule), true) = (source, rule, event["event_type"] == "alert") {
            *alerts.entry((source.to_owned(), rule)).or_default() += 1;
        }
    }
    alerts
}

/// What the gateway dropped by a rule.
fn dropped_by(gateways: &Gateways, rule: u64) -> u64 {
    let drops = gateways.drops(Side::A).unwrap();
    let line = drops.lines().find(|it| it.contains(&rule.to_string()));
    eprintln!("{drops}");
    line.map_or(0, |_| 1)
}

/// The rule tells of `source` in EVE, and drops are counted.
#[track_caller]
fn is_told_and_dropped(lab: &Lab, gateways: &Gateways, source: &str, rule: u64) {
    let is_told = || Ok(alerts(lab).contains_key(&(source.to_owned(), rule)));
    interrupt::until("alert in EVE", PATIENCE, is_told).unwrap();
    assert!(dropped_by(gateways, rule) > 0);
}

/// Refused by the responder itself until the gateway knows; from then on nobody answers.
fn guessed_keys(lab: &Lab, gateways: &Gateways, a: &mut Guest) {
    let ended = |said: &str, what: &str| -> Vec<u64> {
        lines_of(said, what).iter().filter_map(|it| it["status"].as_u64()).collect()
    };
    let said = run(a, &format!("guess {} {READER} {GUESSES} right", HOST_V4[1]));
    assert_eq!(ended(&said, "guess"), [SUCCESS; GUESSES], "{said}");
    let said = run(a, &format!("guess {} {GUESSER} {GUESSES} wrong", HOST_V4[1]));
    let guesses = ended(&said, "guess");
    eprintln!("guesses ended {guesses:?}");
    let refused = guesses.iter().take_while(|it| **it == REMOTE_ACCESS_ERROR).count();
    assert!(refused >= 5 && refused < GUESSES, "{said}");
    assert!(guesses[refused..].contains(&RETRIES_EXCEEDED), "{said}");
    for what in ["before", "after"] {
        assert_eq!(ended(&said, what), [SUCCESS], "by the right key {what}: {said}");
    }
    is_told_and_dropped(lab, gateways, GUESSER, KEY_GUESSING);
}

/// Requests for connections are dropped once too many are not used; who uses his is served.
fn unused_connections(lab: &Lab, gateways: &Gateways, a: &mut Guest, b: &mut Guest) {
    let serving = b.start(&format!("{VERBS} answer {}", HOST_V4[1])).unwrap();
    b.wait_for_rdma_server().unwrap();
    let used = |a: &mut Guest, count: usize| {
        let said = run(a, &format!("ask {} {USER} {count} used", HOST_V4[1]));
        eprintln!("{said}");
        let told = lines_of(&said, "used").pop().unwrap();
        let is_success = |it: &Value| *it == SUCCESS;
        let statuses = told["statuses"].as_array().unwrap();
        assert!(statuses.len() == count && statuses.iter().all(is_success), "{said}");
    };
    used(a, USED);
    let asking = format!("{VERBS} ask {} {ASKER} {UNUSED} unused", HOST_V4[1]);
    let asking = a.start(&asking).unwrap();
    asking.wait_for("asked", RUN).unwrap();
    eprintln!("{}", asking.output());
    is_told_and_dropped(lab, gateways, ASKER, QP_EXHAUSTION);
    used(a, 3);
    let answered = serving.output();
    eprintln!("{}", answered.lines().last().unwrap_or_default());
}

/// The flood's queue pairs break, as nobody answers any more.
fn flooded_reads(lab: &Lab, gateways: &Gateways, a: &mut Guest) {
    let said = run(a, &format!("flood {} {FLOODER} {READS}", HOST_V4[1]));
    eprintln!("{said}");
    let told = lines_of(&said, "flood").pop().unwrap();
    let ended = |status: u64| told["ended"][status.to_string()].as_u64().unwrap_or(0);
    assert!(ended(SUCCESS) > 0 && ended(RETRIES_EXCEEDED) > 0, "{said}");
    is_told_and_dropped(lab, gateways, FLOODER, READ_FLOOD);
}

#[test]
fn attacks_by_verbs_are_told_and_stopped_and_their_twins_are_not() {
    const TEST: &str = "attacks_by_verbs_are_told_and_stopped";
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: {TEST}: {reason:#}"),
    };
    let verbs = Command::new("/usr/bin/python3").args(["-c", "import pyverbs.cmid"]).output();
    if !verbs.is_ok_and(|it| it.status.success()) {
        return eprintln!("SKIPPED: {TEST} needs python3-pyverbs");
    }
    let plan = Plan { hosts: Hosts::Guests, ..Plan::default() };
    let Some(Stand { _turn, lab }) = stand_with(TEST, plan) else { return };
    let mut a = Guest::boot(&lab, Side::A, &kernel).unwrap();
    let mut b = Guest::boot(&lab, Side::B, &kernel).unwrap();
    let setup = Setup { tables_of_a: rules(&lab), ..sealed() };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    a.wait_ready().unwrap();
    b.wait_ready().unwrap();
    let all = [GUESSER, ASKER, FLOODER, PACED, READER, USER];
    let adds = all.map(|it| format!("ip address add {it}/24 dev eth0 && ")).concat();
    a.run(&(adds + "true"), RUN).unwrap().success().unwrap();

    let _serving = b.start(&format!("{VERBS} serve {}", HOST_V4[1])).unwrap();
    let paced = a.start(&format!("{VERBS} pace {} {PACED}", HOST_V4[1])).unwrap();
    paced.wait_for("begun", RUN).unwrap();
    guessed_keys(&lab, &gateways, &mut a);
    unused_connections(&lab, &gateways, &mut a, &mut b);
    flooded_reads(&lab, &gateways, &mut a);
    a.run("touch /tmp/enough", RUN).unwrap().success().unwrap();
    let said = paced.finish(RUN).unwrap().success().unwrap();
    eprintln!("{said}");
    let ended = &lines_of(&said, "paced").pop().unwrap()["ended"];
    assert!(ended.as_object().unwrap().keys().all(|it| it == "0"), "{said}");
    let told = alerts(&lab);
    eprintln!("{told:?}");
    let attackers = [GUESSER, ASKER, FLOODER];
    assert!(told.keys().all(|(who, _)| attackers.contains(&who.as_str())), "{told:?}");
    assert_eq!(gateways.status(Side::A).unwrap()["adds_up"], true);
}
