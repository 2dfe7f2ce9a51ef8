//! Connections whose beginning was not seen, beside what Suricata 8.0.7 makes of them by its
//! settings: `stream.midstream`, `midstream-policy` and `async-oneside`, offline and inline.
//!
//! `testdata/judged/midstream.tsv` has Suricata's answers, a line for each setting and connection:
//! with which of its packets, from 0 on, is told what. Where Suricata is installed it is asked
//! again; with `WEIR_WRITE` set its answers are written there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::applications::{suricata_in, write_capture};
use crate::judged_overlaps::compare;
use crate::verify::verified;

/// What each packet of a connection is: of the client (`>`) or the server (`<`), its flags, and
/// what it says.
const CONNECTIONS: [(&str, &str); 8] = [
    ("whole", ">S <SA >A >PAq <A <PAr >A >FA <FA >A"),
    ("from the last of the handshake", ">A >PAq <A <PAr >A >FA <FA >A"),
    ("from the request", ">PAq <A <PAr >A >FA <FA >A"),
    ("the client alone", ">S >A >PAq >A >FA >A"),
    ("reset", ">PAq <R"),
    ("empty", ">A <A >A <A"),
    ("a reset alone", ">R"),
    ("the end alone", ">FA <FA >A"),
];
const REQUEST: &[u8] = b"GET /secret HTTP/1.1\r\nHost: a.example\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer";

const RULES: &str = "\
    alert tcp any any -> any any (content:\"secret\"; sid:1;)\n\
    alert http any any -> any any (http.uri; content:\"secret\"; sid:2;)\n\
    alert tcp any any -> any any (flow:to_client,only_stream; content:\"answer\"; sid:4;)\n\
    alert tcp any any -> any any (flags:S+; sid:5;)\n\
    alert tcp any any -> any any (flow:not_established; sid:6;)\n";

const POLICIES: [&str; 8] =
    ["", "ignore", "drop-flow", "pass-flow", "bypass", "drop-packet", "pass-packet", "reject"];

const PORT: u16 = 40_000;

/// The packets of a connection, of the client's port by its place.
fn packets(place: usize, connection: &str) -> Vec<Vec<u8>> {
    let mut next: [u32; 2] = [1000, 5000];
    let mut packets = Vec::new();
    for packet in connection.split(' ') {
        let side = usize::from(packet.starts_with('<'));
        let flag = |(letter, flag): (char, u8)| if packet.contains(letter) { flag } else { 0 };
        let flags: u8 =
            [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('A', 16)].into_iter().map(flag).sum();
        let said = match packet.chars().last() {
            Some('q') => REQUEST,
            Some('r') => RESPONSE,
            _ => b"",
        };
        let mut ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let mut ports = [PORT + place as u16, 80].map(u16::to_be_bytes);
        ends.rotate_left(side);
        ports.rotate_left(side);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((40 + said.len() as u16).to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
        frame.extend(ends.concat());
        frame.extend(ports.concat());
        frame.extend(next[side].to_be_bytes());
        let seen = if flags & 16 == 0 { 0 } else { next[1 - side] };
        frame.extend(seen.to_be_bytes());
        frame.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        frame.extend(said);
        packets.push(frame);
        next[side] += said.len() as u32 + u32::from(flags & 3 != 0);
    }
    packets
}

/// Settings, by a name for them.
fn settings() -> Vec<(String, String)> {
    let yaml = fs::read_to_string(file().with_file_name("suricata.yaml")).unwrap();
    let types = "types: [alert, {anomaly: {types: {decode: no}}}, {flow: {exception-policy: yes}}, \
                 {drop: {alerts: yes, flows: all}}, http]";
    let yaml = yaml.replace("types: [alert]", types);
    let mut settings = Vec::new();
    for (follows, policy, one_side, mode) in (0..2 * POLICIES.len() * 4).map(|it| {
        let is = |at: usize| it >> at & 1 == 1;
        (is(0), POLICIES[it >> 3], is(1), if is(2) { "ips" } else { "ids" })
    }) {
        let of_policy = match policy {
            "" => String::new(),
            policy => format!("  midstream-policy: {policy}\n"),
        };
        let stream =
            format!("stream:\n  midstream: {follows}\n  async-oneside: {one_side}\n{of_policy}");
        let name = format!("{mode} midstream {follows} async {one_side} {policy}");
        settings.push((name, yaml.replace("stream:\n", &stream)));
    }
    settings
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged/midstream.tsv")
}

/// What is told of each connection, by its place.
fn told(eve: &str, first: &[u64]) -> BTreeMap<usize, String> {
    let mut told: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        let ports = [&event["src_port"], &event["dest_port"]].map(|it| it.as_u64().unwrap_or(0));
        let Some(place) = ports[0].max(ports[1]).checked_sub(PORT.into()) else {
            continue;
        };
        let place = place as usize;
        let packet = event["pcap_cnt"].as_u64();
        let packet = packet.map_or("end".into(), |it| (it - first[place] - 1).to_string());
        let kind = event["event_type"].as_str().unwrap();
        let what = match kind {
            "alert" => event["alert"]["signature_id"].to_string(),
            "anomaly" => event["anomaly"]["event"].as_str().unwrap().to_owned(),
            "drop" => event["drop"]["reason"].as_str().unwrap().to_owned(),
            "flow" => {
                let flow = &event["flow"];
                let policy = &flow["exception_policy"][0]["policy"];
                let told = [&flow["state"], &flow["action"], policy, &event["tcp"]["tcp_flags"]];
                told.map(|it| it.as_str().unwrap_or("-")).join(" ")
            }
            _ => String::new(),
        };
        told.entry(place).or_default().push(format!("{packet} {kind} {what}").trim_end().into());
    }
    let join = |(place, mut told): (usize, Vec<String>)| {
        told.sort();
        (place, told.join(", "))
    };
    told.into_iter().map(join).collect()
}

#[test]
fn connections_without_a_beginning_are_taken_as_by_suricata() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut frames, mut first) = (Vec::new(), Vec::new());
    for (place, (_, connection)) in CONNECTIONS.iter().enumerate() {
        first.push(frames.len() as u64);
        frames.extend(packets(place, connection));
    }
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for (place, (setting, yaml)) in settings().into_iter().enumerate() {
        // Folders whose names have `ips` in them are read inline.
        let folder = scratch.path().join(format!("{}{place}", &setting[..3]));
        fs::create_dir(&folder).unwrap();
        let inline = if setting.starts_with("ips") { "--simulate-ips" } else { "" };
        let test = format!(
            "args: [-k none {inline}]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n"
        );
        for (name, text) in [("test.yaml", &*test), ("suricata.yaml", &yaml), ("test.rules", RULES)]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        write_capture(&folder.join("in.pcap"), &frames);
        let lines = |eve: &str| -> Vec<String> {
            let told = told(eve, &first);
            let of = |(place, (name, _)): (usize, &(&str, &str))| {
                let told = told.get(&place).map_or("", String::as_str);
                format!("{}\t{name}\t{told}", setting.trim_end())
            };
            CONNECTIONS.iter().enumerate().map(of).collect()
        };
        if let Some(eve) = suricata_in("judged-midstream", &folder, inline) {
            theirs.extend(lines(&eve));
        }
        assert_eq!(verified(&folder)["passed"], 1, "{setting}");
        ours.extend(lines(&fs::read_to_string(folder.join("eve.json")).unwrap()));
    }
    // A packet that ends what was not seen, of a flow that is let past: Suricata drops it inline.
    let is_judged = |it: &&String| !(it.starts_with("ips") && it.contains("bypass\tthe end alone"));
    theirs.retain(|it| is_judged(&it));
    ours.retain(|it| is_judged(&it));
    compare(&file(), &theirs, &ours);
}
