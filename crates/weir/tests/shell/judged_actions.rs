//! What several rules do together to a packet and its flow, judged by Suricata 8.0.7: actions,
//! bits, thresholds, and rules about nothing but addresses, which are looked at once a side.
//!
//! Each case is a few rules over one short capture. `testdata/judged/actions.tsv` has Suricata's
//! answers. Where Suricata is installed it is asked again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::applications::{suricata_in, write_capture};
use crate::verify::verified;

const ACTIONS: [&str; 4] = ["alert", "drop", "reject", "pass"];
/// What the setting rule and the asking rule do with a bit.
const BITS: [[&str; 2]; 3] = [["set", "isset"], ["set", "isnotset"], ["toggle", "isset"]];
/// What both look for besides.
const CONTENTS: [[&str; 2]; 4] =
    [["", ""], ["content:\"BB\"; ", ""], ["", "content:\"B\"; "], ["content:\"BB\"; "; 2]];
/// How often a rule may tell, or act: in the rule, or in `threshold.config`.
const LIMITS: [[&str; 2]; 8] = [
    ["threshold:type limit,track by_src,count 2,seconds 60; ", ""],
    ["threshold:type threshold,track by_dst,count 2,seconds 60; ", ""],
    ["threshold:type both,track by_both,count 2,seconds 60; ", ""],
    ["threshold:type limit,track by_flow,count 1,seconds 60; ", ""],
    ["detection_filter:track by_src,count 2,seconds 60; ", ""],
    ["", "suppress gen_id 1, sig_id 1"],
    ["", "suppress gen_id 1, sig_id 1, track by_src, ip 10.0.0.1"],
    ["threshold:type threshold,track by_rule,count 3,seconds 60; ", "suppress gen_id 1, sig_id 1"],
];
/// Where rules are for.
const ENDS: [&str; 4] = ["any any", "10.0.0.2 any", "!10.0.0.2 any", "any [80,53000]"];
/// What they ask and do besides.
const KEYWORDS: [&str; 13] = [
    "",
    "ip_proto:17; ",
    "ip_proto:!1; ",
    "ttl:64; ",
    "flowbits:set,x; ",
    "flowbits:toggle,x; ",
    "flowbits:unset,x; ",
    "hostbits:set,x,src; ",
    "flowint:xxx, +, 1; ",
    "flow:to_server; ",
    "flow:established; ",
    "dsize:2; ",
    "noalert; ",
];

/// A test of suricata-verify's format that keeps the events.
const CHECKS: &str = "checks:\n- shell:\n    args: cp eve.json $TEST_DIR\n";
/// What is told.
const YAML: &str = "%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [alert, {drop: {alerts: yes, flows: all}}, flow]
threshold-file: threshold.config
";

/// Rules, what is said about them outside of them, and whether they stand in the way.
struct Case {
    rules: Vec<String>,
    thresholds: String,
    is_inline: bool,
}

fn rule(action: &str, head: &str, options: &str, sid: u32) -> String {
    format!("{action} {head} (msg:\"{sid}\"; {options}sid:{sid};)")
}

/// Rules that put and ask for a bit, and one that does neither.
fn bits() -> Vec<Case> {
    let all = "udp any any -> any any";
    let mut cases = Vec::new();
    for (place, setter) in (0..).zip(ACTIONS) {
        for (other_place, asker) in (place..).zip(["alert", "drop", "pass"]) {
            for (turn, third) in (other_place..).zip(["", "alert", "drop", "pass"]) {
                let [put, ask] = BITS[turn % BITS.len()];
                let [of_setter, of_asker] = CONTENTS[(place + turn) % CONTENTS.len()];
                let mut rules = vec![
                    rule(setter, all, &format!("{of_setter}flowbits:{put},x; "), 1),
                    rule(asker, all, &format!("{of_asker}flowbits:{ask},x; "), 2),
                ];
                if !third.is_empty() {
                    rules.push(rule(third, all, "content:\"B\"; ", 3));
                }
                cases.push((rules, String::new()));
            }
        }
    }
    both_ways(cases)
}

/// Rules that match too often.
fn rates() -> Vec<Case> {
    let mut cases = Vec::new();
    for action in ACTIONS {
        for new in ACTIONS {
            for other in ["", "drop"] {
                let mut rules = vec![rule(action, "udp any any -> any any", "content:\"B\"; ", 1)];
                if !other.is_empty() {
                    rules.push(rule(other, "udp any any -> any 53000", "content:\"B\"; ", 2));
                }
                let often = "track by_src, count 1, seconds 60";
                let rate = format!(
                    "rate_filter gen_id 1, sig_id 1, {often}, new_action {new}, timeout 60"
                );
                cases.push((rules, rate));
            }
        }
    }
    both_ways(cases)
}

/// Rules that tell or act only so often.
fn limits() -> Vec<Case> {
    let mut cases = Vec::new();
    let all = "udp any any -> any any";
    for (place, action) in ACTIONS.iter().enumerate() {
        for (turn, [options, thresholds]) in LIMITS.iter().enumerate() {
            let content = ["", "content:\"B\"; "][(place + turn) % 2];
            let limited = rule(action, all, &format!("{content}{options}"), 1);
            let other = rule("alert", all, "content:\"B\"; ", 2);
            cases.push((vec![limited, other], (*thresholds).to_owned()));
        }
    }
    both_ways(cases)
}

/// Rules that ask little, and one of each packet.
fn ends() -> Vec<Case> {
    let mut cases = Vec::new();
    for (turn, keyword) in KEYWORDS.iter().enumerate() {
        for (place, action) in ACTIONS.iter().enumerate() {
            let protocol = ["ip", "udp", "ip"][(turn + place) % 3];
            let head = format!("{protocol} any any -> {}", ENDS[(turn + place) % ENDS.len()]);
            let of_ends = rule(action, &head, keyword, 1);
            let other = rule("alert", "ip any any -> any any", "ttl:64; ", 2);
            cases.push((vec![of_ends, other], String::new()));
        }
    }
    both_ways(cases)
}

/// Each of them offline and in the way.
fn both_ways(cases: Vec<(Vec<String>, String)>) -> Vec<Case> {
    let mut both = Vec::new();
    for (rules, thresholds) in cases {
        for is_inline in [false, true] {
            let (rules, thresholds) = (rules.clone(), thresholds.clone());
            both.push(Case { rules, thresholds, is_inline });
        }
    }
    both
}

/// Two flows of UDP, of which both ends say the same twice, and a connection.
fn frames() -> Vec<Vec<u8>> {
    let frame = |protocol: u8, side: usize, body: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((20 + body.len() as u16).to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
        let mut ends = [[10, 0, 0, 1_u8], [10, 0, 0, 2]];
        ends.rotate_left(side);
        frame.extend(ends.concat());
        frame.extend(body);
        frame
    };
    let ports = |client: u16, server: u16, side: usize| {
        let mut ports = [client, server].map(u16::to_be_bytes);
        ports.rotate_left(side);
        ports.concat()
    };
    let datagram = |client, side, data: &[u8]| {
        let length = (8 + data.len() as u16).to_be_bytes();
        frame(17, side, &[&ports(client, 53_000, side), &length[..], &[0; 2], data].concat())
    };
    let mut frames = Vec::new();
    for _ in 0..2 {
        for (client, data) in [(1000, b"BB"), (1001, b"AB")] {
            frames.extend([0, 1].map(|side| datagram(client, side, data)));
        }
    }
    let mut next = [100_u32, 500];
    let segments: [(usize, u8, &[u8]); 6] =
        [(0, 2, b""), (1, 18, b""), (0, 16, b""), (0, 24, b"AB"), (1, 24, b"BB"), (0, 16, b"")];
    for (side, flags, data) in segments {
        let seen = if flags & 16 == 0 { 0 } else { next[1 - side] };
        let numbers = [next[side].to_be_bytes(), seen.to_be_bytes()].concat();
        let head = [&ports(2000, 80, side), &numbers[..], &[0x50, flags, 4, 0, 0, 0, 0, 0]];
        frames.push(frame(6, side, &[&head.concat(), data].concat()));
        next[side] += data.len() as u32 + u32::from(flags >> 1 & 1);
    }
    frames
}

/// What EVE says: with each packet the rules that tell, `!` behind those that block it, and why it
/// is dropped; of each flow what becomes of it, and its bits.
fn told(eve: &str) -> String {
    let mut packets: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut flows = Vec::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        let text = |place: &str| event.pointer(place).and_then(Value::as_str);
        // Those that are told when a flow is over come last.
        let number = event["pcap_cnt"].as_u64().unwrap_or(99);
        match text("/event_type") {
            Some("alert") => {
                let sid = &event["alert"]["signature_id"];
                let blocks = if text("/alert/action") == Some("blocked") { "!" } else { "" };
                packets.entry(number).or_default().push(format!("{sid}{blocks}"));
            }
            Some("drop") => {
                let reason = text("/drop/reason").unwrap_or("?").replace(' ', "-");
                let by = event["alert"]["signature_id"].as_u64();
                let by = by.map(|it| format!("={it}")).unwrap_or_default();
                packets.entry(number).or_default().push(format!("{reason}{by}"));
            }
            Some("flow") => {
                let action = text("/flow/action").unwrap_or("-");
                let alerted = if event["flow"]["alerted"] == true { "+" } else { "" };
                let noted = event["metadata"].to_string().replace('"', "");
                let noted = if matches!(&*noted, "null" | "{}") { "" } else { &noted };
                let port = event["src_port"].as_u64().expect("a port");
                flows.push(format!("{port}:{action}{alerted}{noted}"));
            }
            _ => {}
        }
    }
    flows.sort();
    let mut told = String::new();
    for (number, mut what) in packets {
        what.sort();
        write!(told, "{number}:{} ", what.join(",")).unwrap();
    }
    format!("{told}{}", flows.join(" "))
}

impl Case {
    /// What tells it from all others.
    fn name(&self) -> String {
        let way = if self.is_inline { "inline" } else { "offline" };
        let thresholds = if self.thresholds.is_empty() { "-" } else { &self.thresholds };
        format!("{way}\t{}\t{thresholds}", self.rules.join(" "))
    }

    /// Its files.
    fn write(&self, folder: &Path, capture: &Path) {
        fs::create_dir_all(folder).unwrap();
        let arguments = if self.is_inline { "[-k none, --simulate-ips]" } else { "[-k none]" };
        let test = format!("args: {arguments}\n{CHECKS}");
        let rules = self.rules.join("\n") + "\n";
        let thresholds = format!("{}\n", self.thresholds);
        fs::copy(capture, folder.join("in.pcap")).unwrap();
        for (name, text) in [
            ("test.yaml", &*test),
            ("suricata.yaml", YAML),
            ("test.rules", &rules),
            ("threshold.config", &thresholds),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged/actions.tsv")
}

#[test]
fn rules_act_together_as_by_suricata() {
    let text = fs::read_to_string(file()).unwrap_or_default();
    let kept: BTreeMap<&str, &str> = text.lines().filter_map(|it| it.rsplit_once('\t')).collect();
    let scratch = tempfile::tempdir().unwrap();
    let capture = scratch.path().join("in.pcap");
    write_capture(&capture, &frames());
    let cases: Vec<Case> = [bits(), rates(), limits(), ends()].into_iter().flatten().collect();
    let tests = scratch.path().join("tests");
    let folder = |index: usize| tests.join(format!("{index:04}"));
    cases.iter().enumerate().for_each(|(index, it)| it.write(&folder(index), &capture));
    let report = verified(&tests);
    assert_eq!(report["passed"], cases.len(), "{report:#}");
    let (mut theirs, mut ours) = (String::new(), String::new());
    for (index, case) in cases.iter().enumerate() {
        let name = case.name();
        let wanted = kept.get(&*name).copied().unwrap_or_default();
        let inline = if case.is_inline { "--simulate-ips" } else { "" };
        if let Some(eve) = suricata_in("judged-actions", &folder(index), inline) {
            let found = told(&eve);
            if found != wanted {
                writeln!(theirs, "{name}\t{found}").unwrap();
            }
        }
        let found = told(&fs::read_to_string(folder(index).join("eve.json")).unwrap());
        if found != wanted {
            writeln!(ours, "{name}\t{found}").unwrap();
        }
    }
    assert!(theirs.is_empty() && ours.is_empty(), "Suricata:\n{theirs}\nweir:\n{ours}");
    assert_eq!(kept.len(), cases.len(), "one answer for each case");
}
