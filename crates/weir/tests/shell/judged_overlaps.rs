//! Which bytes count where segments of a TCP stream lie over others, for each kind of receiver,
//! judged by Suricata 8.0.7: what rules see in the end, and where it is told that bytes differ.
//!
//! Each segment has a letter of its own. `testdata/judged/overlaps.tsv` has Suricata's answers.
//! Where Suricata is installed it is asked again; with `WEIR_WRITE` set its answers are written
//! there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::applications::{suricata_in, write_capture_every};
use crate::judged::SYSTEMS;
use crate::verify::verified;

/// Where the segments of each stream begin and end, in the order in which they come. What none of
/// them has comes behind them, as dots.
const STREAMS: [&str; 45] = [
    // Two, the first in its place.
    "0-12 0-12",
    "0-12 4-8",
    "0-12 0-4",
    "0-12 8-12",
    "0-12 0-16",
    "0-12 4-16",
    "0-12 8-16",
    "0-12 0-8",
    // Two behind a gap.
    "4-16 4-16",
    "4-16 8-12",
    "4-16 4-8",
    "4-16 12-16",
    "4-16 4-20",
    "4-16 8-20",
    "4-16 12-20",
    "4-16 2-16",
    "4-16 0-20",
    "4-16 0-8",
    "4-16 2-8",
    "4-16 16-20",
    // More of them.
    "0-12 0-8 4-12",
    "0-12 4-8 0-12",
    "0-12 0-12 0-12",
    "0-12 4-16 8-20",
    "0-12 8-16 4-16",
    "0-12 0-16 0-16",
    "0-12 8-16 16-20",
    "0-12 2-14 2-14 2-16",
    "0-12 0-4 0-4",
    "0-4 2-10 4-8 6-12",
    "4-12 4-8 4-12",
    "4-12 8-16 4-16",
    "5-8 5-13 5-10",
    "5-13 5-8 5-10",
    "5-8 8-12 6-10",
    "5-8 8-12 4-12",
    "5-8 8-12 5-14",
    "4-12 4-12 4-12",
    "4-14 6-10 6-10 6-12",
    "8-16 4-12 6-10",
    "8-16 4-12 2-20",
    "12-16 8-12 4-8 6-14",
    "4-8 12-16 6-14",
    "4-8 12-16 2-18",
    "3-12 10-20 5-15",
];

/// One with a fast pattern is among them: without, Suricata looks at a stream again and again.
const RULES: &str = "\
    alert tcp-stream any any -> any any (content:\"never said\"; sid:3;)\n\
    alert tcp-stream any any -> any any (pcre:\"/[A-Z]/\"; sid:1;)\n\
    alert tcp any any -> any any (stream-event:reassembly_overlap_different_data; sid:2;)\n";
/// Test folders whose names have `ips` in them are read inline.
const MODES: [&str; 2] = ["ids", "ips"];

const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;
const FIRST: [u32; 2] = [1000, 5000];
const PORT: u16 = 20_000;

/// A segment of the client's (0) or the server's (1), of a stream and to a system by their places.
fn frame((stream, system): (usize, usize), side: usize, flags: u8, at: [u32; 2]) -> Vec<u8> {
    let mut ends = [[10, 0, 0, 1], [10, 0, 1, system as u8]];
    let mut ports = [PORT + stream as u16, 8080].map(u16::to_be_bytes);
    ends.rotate_left(side);
    ports.rotate_left(side);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0];
    frame.extend([64, 6, 0, 0]);
    frame.extend(ends.concat());
    frame.extend(ports.concat());
    frame.extend((FIRST[side] + at[0]).to_be_bytes());
    let seen = if flags & ACK == 0 { 0 } else { FIRST[1 - side] + at[1] };
    frame.extend(seen.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// Where segments begin and end, and the byte that each has.
fn segments(stream: &str) -> (Vec<(u32, u32, u8)>, u32) {
    let of =
        |text: &str| text.split_once('-').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
    let places: Vec<(u32, u32)> = stream.split(' ').map(|it| of(it).unwrap()).collect();
    let end = places.iter().map(|it| it.1).max().unwrap();
    let is_there = |at: &u32| places.iter().any(|it| (it.0..it.1).contains(at));
    let mut segments: Vec<_> =
        places.iter().zip(b'A'..).map(|(it, byte)| (it.0, it.1, byte)).collect();
    let mut missing: Vec<(u32, u32, u8)> = Vec::new();
    for at in (0..end).filter(|it| !is_there(it)) {
        match missing.last_mut().filter(|it| it.1 == at) {
            Some(last) => last.1 += 1,
            None => missing.push((at, at + 1, b'.')),
        }
    }
    segments.extend(missing);
    (segments, end)
}

/// The connection of a stream to a system.
fn connection(of: (usize, usize)) -> Vec<Vec<u8>> {
    let mut frames =
        vec![frame(of, 0, SYN, [0, 0]), frame(of, 1, SYN | ACK, [0, 1]), frame(of, 0, ACK, [1, 1])];
    let (segments, end) = segments(STREAMS[of.0]);
    for (from, to, byte) in segments {
        let mut segment = frame(of, 0, PUSH | ACK, [1 + from, 1]);
        segment[17] += (to - from) as u8;
        segment.extend((from..to).map(|_| byte));
        frames.push(segment);
    }
    frames.push(frame(of, 1, ACK, [1, 1 + end]));
    frames.push(frame(of, 0, FIN | ACK, [1 + end, 1]));
    frames.push(frame(of, 1, FIN | ACK, [1, 2 + end]));
    frames.push(frame(of, 0, ACK, [2 + end, 2]));
    frames
}

/// What is told of each connection: the packet, from 0 on, and what rules see of the stream then,
/// or `!` where bytes differ.
fn told(eve: &str, first: &BTreeMap<(usize, usize), u64>) -> BTreeMap<(usize, usize), String> {
    let mut told: BTreeMap<_, Vec<(u64, String)>> = BTreeMap::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        if event["event_type"] != "alert" {
            continue;
        }
        let system = event["dest_ip"].as_str().unwrap().rsplit('.').next().unwrap();
        let of = (
            event["src_port"].as_u64().unwrap() as usize - usize::from(PORT),
            system.parse().unwrap(),
        );
        let what = match event["alert"]["signature_id"].as_u64() {
            Some(1) => event["payload_printable"].as_str().unwrap(),
            _ => "!",
        };
        let packet = event["pcap_cnt"].as_u64().map_or(99, |it| it - first[&of]);
        told.entry(of).or_default().push((packet, what.to_owned()));
    }
    let join = |mut told: Vec<(u64, String)>| {
        told.sort();
        let told: Vec<_> = told.iter().map(|(packet, what)| format!("{packet} {what}")).collect();
        told.join(", ")
    };
    told.into_iter().map(|(of, what)| (of, join(what))).collect()
}

/// A line for each stream: the mode, its segments, a letter for each system, and what the letters
/// stand for.
fn lines(mode: &str, told: &BTreeMap<(usize, usize), String>) -> Vec<String> {
    let line = |(place, stream): (usize, &&str)| {
        let (mut letters, mut answers) = (String::new(), Vec::new());
        for system in 0..SYSTEMS.len() {
            let answer = told.get(&(place, system)).map_or("", String::as_str);
            let known = answers.iter().position(|it| *it == answer).unwrap_or(answers.len());
            if known == answers.len() {
                answers.push(answer);
            }
            letters.push(char::from(b'a' + known as u8));
        }
        let mut line = format!("{mode}\t{stream}\t{letters}");
        answers.iter().for_each(|it| write!(line, "\t{it}").unwrap());
        line
    };
    STREAMS.iter().enumerate().map(line).collect()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged/overlaps.tsv")
}

/// Settings: which system is at each address, and alerts with what they are about.
fn settings() -> String {
    let yaml = fs::read_to_string(file().with_file_name("suricata.yaml")).unwrap();
    let types = "types: [{alert: {payload-printable: yes}}]";
    let mut yaml = yaml.replace("types: [alert]", types) + "host-os-policy:\n";
    for (place, system) in SYSTEMS.iter().enumerate() {
        writeln!(yaml, "  {system}: [10.0.1.{place}/32]").unwrap();
    }
    yaml
}

#[test]
fn segments_over_others_count_as_by_suricata() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut frames, mut first) = (Vec::new(), BTreeMap::new());
    for of in (0..STREAMS.len()).flat_map(|it| (0..SYSTEMS.len()).map(move |system| (it, system))) {
        first.insert(of, frames.len() as u64 + 1);
        frames.extend(connection(of));
    }
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for mode in MODES {
        let folder = scratch.path().join(mode);
        fs::create_dir(&folder).unwrap();
        let inline = if mode == "ips" { "--simulate-ips" } else { "" };
        let test = format!(
            "args: [-k none {inline}]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n"
        );
        for (name, text) in
            [("test.yaml", &*test), ("suricata.yaml", &settings()), ("test.rules", RULES)]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        write_capture_every(20, &folder.join("in.pcap"), &frames);
        if let Some(eve) = suricata_in("judged-overlaps", &folder, inline) {
            theirs.extend(lines(mode, &told(&eve, &first)));
        }
        assert_eq!(verified(&folder)["passed"], 1);
        let eve = fs::read_to_string(folder.join("eve.json")).unwrap();
        ours.extend(lines(mode, &told(&eve, &first)));
    }
    assert_eq!(ours.len(), MODES.len() * STREAMS.len(), "one line for each");
    compare(&file(), &theirs, &ours);
}

/// Has both tell what is kept in `file`, line by line; Suricata is heard where it is installed, and
/// with `WEIR_WRITE` set what it tells is kept.
pub(crate) fn compare(file: &Path, theirs: &[String], ours: &[String]) {
    if !theirs.is_empty() && std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(file, theirs.join("\n") + "\n").unwrap();
    }
    let kept = fs::read_to_string(file).unwrap_or_default();
    let differing = |lines: &[String]| -> String {
        let wrong = lines.iter().zip(kept.lines()).filter(|(line, kept)| line != kept);
        wrong.map(|(line, kept)| format!("{line}\n  not {kept}\n")).collect()
    };
    let [of_suricata, of_weir] = [theirs, ours].map(differing);
    assert_eq!(kept.lines().count(), ours.len(), "one line for each");
    assert!(
        of_suricata.is_empty() && of_weir.is_empty(),
        "Suricata:\n{of_suricata}\nweir:\n{of_weir}"
    );
}
