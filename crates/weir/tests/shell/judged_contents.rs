//! What rules find in bytes, judged by Suricata 8.0.7: contents with every modifier and what may
//! stand between them, in datagrams; the same in streams that come in pieces, offline and inline,
//! of no known application and of HTTP.
//!
//! `testdata/judged/contents.tsv` and `streams.tsv` have a line for each rule: what it asks, and
//! Suricata's answer. Where Suricata is installed it is asked again; with `WEIR_WRITE` set its
//! answers are written there, for the rules that the files have.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::applications::{frames, suricata_in, write_capture};
use crate::judged_overlaps::compare;
use crate::verify::verified;

const YAML: &str = "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: \
    eve.json\n      types: [alert]\npacket-alert-max: 255\nmpm-algo: ac\nspm-algo: bm\n";
/// The first flow's port.
const PORT: usize = 41_000;
/// Rules of one run: a packet has no more alerts than `packet-alert-max`.
const RULES: usize = 240;

/// All texts of one to four of these letters.
fn payloads() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut from = 0;
    for _ in 0..4 {
        let until = all.len();
        for place in from..until {
            ["a", "b", "1"].iter().for_each(|it| all.push(format!("{}{it}", all[place])));
        }
        from = until;
    }
    all.remove(0);
    all
}

/// Streams in pieces; the client's with `>`, the server's with `<`.
const STREAMS: [&str; 20] = [
    ">a1",
    ">11",
    ">a1 >11",
    ">11 >a1",
    ">11 >22",
    "<a1",
    "<11",
    ">a1 <11",
    ">11 <a1",
    ">a1 <a1",
    ">ab >1a >b",
    ">b <1a >ab",
    ">1 >1 >1",
    "<ab <ab <b1",
    ">abab1",
    ">1a1b1",
    ">bb >aa",
    "<a >a <1",
    ">1b >ab <ba <b",
    ">aa1bb",
];

/// The same of HTTP: requests to a path, with a body or not, and answers with a body; `|` where a
/// message is cut.
const HTTP: [&str; 18] = [
    ">a1 <b",
    ">b1 <b",
    ">a1 <b >b1 <b",
    ">b1 <b >a1 <b",
    ">b|1 <b",
    ">a|1 <b",
    ">b1:bb <b",
    ">b1:ba <b",
    ">b1:|ba <b",
    ">a1:|bb <b",
    ">b1:b|a <b",
    ">b <ba",
    ">b <b >b <a",
    ">b <a >b <b",
    ">b <|a",
    ">b <|b|b|a",
    ">a >b <b <b",
    ">a1 <1 >1a <a1",
];

/// A message of HTTP, in its pieces.
fn message(side: char, text: &str) -> Vec<String> {
    let whole = match side {
        '>' => {
            let (path, body) = text.split_once(':').unwrap_or((text, ""));
            let length = body.replace('|', "").len();
            let [method, head] = match length {
                0 => ["GET", String::new().leak()],
                _ => ["POST", format!("Content-Length: {length}\\r\\n").leak()],
            };
            format!("{method} /{path} HTTP/1.1\\r\\nHost: h\\r\\n{head}\\r\\n{body}")
        }
        _ => {
            let length = text.replace('|', "").len();
            format!("HTTP/1.1 200 OK\\r\\nContent-Length: {length}\\r\\n\\r\\n{text}")
        }
    };
    whole.split('|').map(str::to_owned).collect()
}

/// What is said, a flow for each.
fn conversation(kind: &str) -> Vec<String> {
    let flow = |words: &str, is_http: bool| {
        let mut lines = String::new();
        for word in words.split(' ') {
            let side = word.chars().next().unwrap();
            let pieces = match is_http {
                true => message(side, &word[1..]),
                false => vec![word[1..].to_owned()],
            };
            pieces.iter().for_each(|it| writeln!(lines, "{side} {it}").unwrap());
        }
        lines
    };
    match kind {
        "datagrams" => payloads().iter().map(|it| format!("> {it}\n")).collect(),
        "http" => HTTP.iter().map(|it| flow(it, true)).collect(),
        _ => STREAMS.iter().map(|it| flow(it, false)).collect(),
    }
}

/// Which rules match which packets: rule, flow, place in it.
type Found = BTreeSet<(usize, usize, u64)>;

/// What both find with these rules: Suricata, where it is, and Weir.
fn found(kind: &str, rules: &[&str]) -> (Option<Found>, Found) {
    let scratch = tempfile::tempdir().unwrap();
    let (mut packets, mut first) = (Vec::new(), Vec::new());
    let port = if kind == "http" { 80 } else { 9999 };
    let transport = if kind == "datagrams" { "udp" } else { "tcp" };
    for (place, said) in conversation(kind).iter().enumerate() {
        first.push(packets.len() as u64);
        packets.extend(frames(&format!("{transport} {port} from {}\n{said}", PORT + place)));
    }
    write_capture(&scratch.path().join("in.pcap"), &packets);
    let inline = if kind == "inline" { ", --simulate-ips" } else { "" };
    let test =
        format!("args: [-k none{inline}]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n");
    let mut text = String::new();
    for (sid, rule) in (1..).zip(rules) {
        writeln!(text, "{}sid:{sid};)", rule.strip_suffix(')').unwrap()).unwrap();
    }
    for (name, text) in [("test.yaml", &*test), ("suricata.yaml", YAML), ("test.rules", &text)] {
        fs::write(scratch.path().join(name), text).unwrap();
    }
    let places = |eve: &str| alerts(eve, &first);
    let arguments = if kind == "inline" { "--simulate-ips" } else { "" };
    let theirs = suricata_in(&format!("judged-{kind}"), scratch.path(), arguments);
    assert_eq!(verified(scratch.path())["passed"], 1);
    let ours = fs::read_to_string(scratch.path().join("eve.json")).unwrap();
    (theirs.map(|it| places(&it)), places(&ours))
}

fn alerts(eve: &str, first: &[u64]) -> Found {
    let events = eve.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let alerts = events.filter(|it| it["event_type"] == "alert");
    let place = |it: Value| {
        let ports = [&it["src_port"], &it["dest_port"]].map(|it| it.as_u64().unwrap());
        let flow = ports[0].max(ports[1]) as usize - PORT;
        // What is told at a flow's end has no packet.
        let packet = it["pcap_cnt"].as_u64().map_or(0, |it| it - first[flow]);
        (it["alert"]["signature_id"].as_u64().unwrap() as usize - 1, flow, packet)
    };
    alerts.map(place).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged")
}

/// Compares the lines of a file, of which `kind_of` tells where their rules look.
fn judge(name: &str, kinds: &[&str], kind_of: impl Fn(&str) -> Option<&str>) {
    let list = folder().join(name);
    let text = fs::read_to_string(&list).unwrap();
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for kind in kinds {
        let of_kind = |it: &&str| kind_of(it).is_none_or(|it| it == *kind);
        let lines: Vec<&str> =
            text.lines().filter_map(|it| it.split('\t').next()).filter(of_kind).collect();
        assert!(lines.len() > 20, "{kind}");
        for lines in lines.chunks(RULES) {
            let rules: Vec<&str> = lines.iter().map(|it| rule(it)).collect();
            let (of_suricata, of_weir) = found(kind, &rules);
            theirs.extend(of_suricata.iter().flat_map(|it| answers(lines, it)));
            ours.extend(answers(lines, &of_weir));
        }
    }
    compare(&list, &theirs, &ours);
}

/// The rule of a line, without where it looks.
fn rule(line: &str) -> &str {
    line.split_once(": ").map_or(line, |it| it.1)
}

/// A line for each rule: where it matches.
fn answers(lines: &[&str], found: &Found) -> Vec<String> {
    let answer = |(place, line): (usize, &&str)| {
        let of_rule = found.iter().filter(|it| it.0 == place);
        let places: Vec<_> = of_rule.map(|it| format!("{}.{}", it.1, it.2)).collect();
        format!("{line}\t{}", places.join(" "))
    };
    lines.iter().enumerate().map(answer).collect()
}

#[test]
fn contents_stand_in_datagrams_where_suricata_has_them() {
    judge("contents.tsv", &["datagrams"], |_| None);
}

#[test]
fn contents_stand_in_streams_where_suricata_has_them() {
    judge("streams.tsv", &["offline", "inline", "http"], |it| it.split_once(": ").map(|it| it.0));
}
