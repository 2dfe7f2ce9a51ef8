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
const BURSTER: &str = "10.77.0.34";
const ASKER: &str = "10.77.0.32";
const FLOODER: &str = "10.77.0.33";
/// These are honest: one reads all the time, one with many queue pairs, one connects.
const PACED: &str = "10.77.0.41";
const READER: &str = "10.77.0.42";
const USER: &str = "10.77.0.43";

/// Connections that a rule would tell of if they were not used, and twice as many that are not.
const USED: usize = 80;
const UNUSED: usize = 160;
const USED_MEANWHILE: usize = 3;
const GUESSES: usize = 24;
/// As many as the rule wants: none is left that it could stop when the last one is refused.
const BURST: usize = 5;
const READS: usize = 20_000;

/// The rules as they are shipped, but for the rate of READs: an emulated machine makes no million
/// of them a second. Keys and connections are counted by the shipped thresholds.
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

/// The last line of JSON in what a program of `guest` said until its end.
#[track_caller]
fn run(guest: &mut Guest, arguments: &str) -> Value {
    let [_, server] = HOST_V4;
    let (program, rest) = arguments.split_once(' ').unwrap();
    let line = format!("{VERBS} {program} {server} {rest}");
    last(&guest.run(&line, RUN).unwrap().success().unwrap())
}

#[track_caller]
fn last(said: &str) -> Value {
    let told = said.lines().rev().find_map(|line| serde_json::from_str(line).ok()).expect(said);
    eprintln!("{told}");
    told
}

/// How work ended, one by one.
fn statuses(told: &Value) -> Vec<u64> {
    told["statuses"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn count(statuses: &[u64], status: u64) -> usize {
    statuses.iter().filter(|it| **it == status).count()
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

/// What `weir drops` says that a rule dropped.
fn dropped_by(gateways: &Gateways, rule: u64) -> u64 {
    let drops = gateways.drops(Side::A).unwrap();
    let mark = format!("by rule {rule} ");
    let line = drops.lines().find(|it| it.contains(&mark));
    let packets = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
    packets.unwrap_or_default()
}

/// The rule tells of `source` in EVE, and drops are counted.
#[track_caller]
fn is_told_and_dropped(lab: &Lab, gateways: &Gateways, source: &str, rule: u64, before: u64) {
    let is_told = || Ok(alerts(lab).contains_key(&(source.to_owned(), rule)));
    interrupt::until("alert in EVE", PATIENCE, is_told).unwrap();
    // Alerts leave at once, counts with the next tick.
    let is_counted = || Ok(dropped_by(gateways, rule) > before);
    interrupt::until("count of what was dropped", PATIENCE, is_counted).unwrap();
    eprintln!("{source}: {} dropped by {rule}", dropped_by(gateways, rule) - before);
}

/// Refused by the responder itself until the gateway knows; from then on nobody answers. Who
/// guesses goes on where the key is known to be right.
fn guessed_keys(lab: &Lab, gateways: &Gateways, a: &mut Guest) {
    let twin = run(a, &format!("guess {READER} {GUESSES} right"));
    assert_eq!(statuses(&twin), [SUCCESS; GUESSES]);
    let told = run(a, &format!("guess {GUESSER} {GUESSES} wrong"));
    let guesses = statuses(&told);
    assert_eq!(guesses.first(), Some(&REMOTE_ACCESS_ERROR), "{told}");
    assert!(count(&guesses, REMOTE_ACCESS_ERROR) >= 5, "{told}");
    assert!(count(&guesses, RETRIES_EXCEEDED) > 0, "{told}");
    assert_eq!([&told["before"], &told["after"]], [SUCCESS, SUCCESS], "{told}");
    is_told_and_dropped(lab, gateways, GUESSER, KEY_GUESSING, 0);
}

/// Guesses that are all on their way before the last is refused, and then none until refusals count
/// no more: the next burst is told.
fn guessed_keys_in_bursts(lab: &Lab, gateways: &Gateways, a: &mut Guest) {
    let before = dropped_by(gateways, KEY_GUESSING);
    let told = run(a, &format!("burst {BURSTER} {BURST}"));
    assert_eq!(statuses(&told).len(), BURST, "{told}");
    is_told_and_dropped(lab, gateways, BURSTER, KEY_GUESSING, before);
}

/// Requests for connections are dropped once too many are not used; who uses his is served, before
/// and meanwhile.
fn unused_connections(lab: &Lab, gateways: &Gateways, a: &mut Guest, b: &mut Guest) {
    let [_, server] = HOST_V4;
    let serving = b.start(&format!("{VERBS} answer {server}")).unwrap();
    b.wait_for_rdma_server().unwrap_or_else(|error| panic!("{error:#}: {}", serving.output()));
    let twin = run(a, &format!("ask {USER} {USED} used"));
    assert_eq!(statuses(&twin), [SUCCESS; USED]);
    let asking = a.start(&format!("{VERBS} ask {server} {ASKER} {UNUSED} unused")).unwrap();
    asking.wait_for("asked", RUN).unwrap();
    // They are told with the next one, once they were open for a second.
    std::thread::sleep(Duration::from_millis(1_500));
    let _once_more = a.start(&format!("{VERBS} ask {server} {ASKER} 1 unused")).unwrap();
    is_told_and_dropped(lab, gateways, ASKER, QP_EXHAUSTION, 0);
    let twin = run(a, &format!("ask {USER} {USED_MEANWHILE} used"));
    assert_eq!(statuses(&twin), [SUCCESS; USED_MEANWHILE]);
    let answered = last(&serving.output());
    let made = number(&answered, "/made") as usize;
    assert!(made <= USED + USED_MEANWHILE, "nobody used the others: {answered}");
}

/// The flood's queue pairs break, as nobody answers any more.
fn flooded_reads(lab: &Lab, gateways: &Gateways, a: &mut Guest) {
    let told = run(a, &format!("flood {FLOODER} {READS}"));
    let ended = |status: u64| told["ended"][status.to_string()].as_u64().unwrap_or_default();
    assert!(ended(SUCCESS) > 0 && ended(RETRIES_EXCEEDED) > 0, "{told}");
    is_told_and_dropped(lab, gateways, FLOODER, READ_FLOOD, 0);
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
    let all = [GUESSER, BURSTER, ASKER, FLOODER, PACED, READER, USER];
    let adds = all.map(|it| format!("ip address add {it}/24 dev eth0 && ")).concat();
    a.run(&(adds + "true"), RUN).unwrap().success().unwrap();

    let [_, server] = HOST_V4;
    let _serving = b.start(&format!("{VERBS} serve {server}")).unwrap();
    let paced = a.start(&format!("{VERBS} pace {server} {PACED}")).unwrap();
    paced.wait_for("begun", RUN).unwrap();
    guessed_keys(&lab, &gateways, &mut a);
    guessed_keys_in_bursts(&lab, &gateways, &mut a);
    unused_connections(&lab, &gateways, &mut a, &mut b);
    flooded_reads(&lab, &gateways, &mut a);
    a.run("touch /tmp/enough", RUN).unwrap().success().unwrap();

    let paced = last(&paced.finish(RUN).unwrap().success().unwrap());
    let ended = paced["ended"].as_object().unwrap();
    assert!(ended.len() == 1 && ended.contains_key("0"), "{paced}");
    let told = alerts(&lab);
    eprintln!("{told:?}");
    let attackers = [GUESSER, BURSTER, ASKER, FLOODER];
    assert!(told.keys().all(|(who, _)| attackers.contains(&who.as_str())), "{told:?}");
    assert_eq!(gateways.status(Side::A).unwrap()["adds_up"], true);
}
