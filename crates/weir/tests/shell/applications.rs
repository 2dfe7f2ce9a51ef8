//! `weir read` on conversations of many applications, judged by what Suricata 8.0.7 says of them.
//!
//! `testdata/applications` has a conversation a file, and beside it what Suricata told of it, an
//! event a line, but for what depends on a run. Where Suricata is installed it is asked again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What no two runs have alike, or what is said of the packet alone.
const PASSED_OVER: [&str; 10] = [
    "timestamp",
    "flow_id",
    "pcap_cnt",
    "pcap_filename",
    "ip_v",
    "pkt_src",
    "community_id",
    "parent_id",
    "vlan",
    "metadata",
];
const ENDS: [[u8; 4]; 2] = [[192, 0, 2, 1], [10, 0, 0, 2]];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/applications")
}

/// The events of other kinds than flows, without what is passed over, sorted.
fn told(eve: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in eve.lines() {
        let mut event: BTreeMap<String, Value> = serde_json::from_str(line).expect("EVE");
        let kind = event["event_type"].as_str().unwrap_or_default().to_owned();
        if matches!(kind.as_str(), "flow" | "stats" | "netflow" | "anomaly") {
            continue;
        }
        // Suricata keeps these in no order.
        let payloads = event.get_mut("ike").and_then(|it| it.get_mut("payload"));
        if let Some(Value::Array(payloads)) = payloads {
            payloads.sort_by_key(Value::to_string);
        }
        PASSED_OVER.iter().for_each(|it| _ = event.remove(*it));
        lines.push(serde_json::to_string(&event).expect("JSON"));
    }
    lines.sort();
    lines
}

/// Bytes that a line of a conversation stands for.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, length) = match (first, behind) {
            (b'\\', [b'x', high, low, ..]) => {
                let digit = |it: &u8| char::from(*it).to_digit(16).expect("a digit") as u8;
                (digit(high) << 4 | digit(low), 4)
            }
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}

/// A flow of a conversation: the protocol, ports and next sequence numbers of client and server.
struct Flow {
    is_tcp: bool,
    ports: [u16; 2],
    next: [u32; 2],
}

impl Flow {
    fn frame(&self, side: usize, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut rest = self.ports[side].to_be_bytes().to_vec();
        rest.extend(self.ports[1 - side].to_be_bytes());
        if self.is_tcp {
            let acknowledged = if flags & 16 != 0 { self.next[1 - side] } else { 0 };
            rest.extend(self.next[side].to_be_bytes());
            rest.extend(acknowledged.to_be_bytes());
            rest.extend([0x50, flags, 0xff, 0, 0, 0, 0, 0]);
        } else {
            rest.extend((8 + data.len() as u16).to_be_bytes());
            rest.extend([0, 0]);
        }
        rest.extend(data);
        let protocol = if self.is_tcp { 6 } else { 17 };
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((20 + rest.len() as u16).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(ENDS[side]);
        frame.extend(ENDS[1 - side]);
        frame.extend(rest);
        frame
    }

    fn segment(&mut self, side: usize, flags: u8, data: &[u8], frames: &mut Vec<Vec<u8>>) {
        frames.push(self.frame(side, flags, data));
        let own = u32::from(flags & 3 != 0) + data.len() as u32;
        self.next[side] = self.next[side].wrapping_add(own);
    }

    fn end(&mut self, frames: &mut Vec<Vec<u8>>) {
        if self.is_tcp {
            self.segment(0, 17, b"", frames);
            self.segment(1, 17, b"", frames);
            self.segment(0, 16, b"", frames);
        }
    }
}

/// The packets of a conversation: `tcp PORT` or `udp PORT [from PORT]` begins a flow, `> bytes` are
/// the client's and `< bytes` the server's, and `+N bytes` the client's so far ahead of its next,
/// which the server does not acknowledge.
pub(crate) fn frames(conversation: &str) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut flow: Option<Flow> = None;
    let mut count = 0;
    for line in conversation.lines().filter(|it| !it.is_empty() && !it.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        if let [kind @ ("tcp" | "udp"), port, from @ ..] = words.as_slice() {
            flow.iter_mut().for_each(|it| it.end(&mut frames));
            let own = from.get(1).map_or(40_000 + count, |it| it.parse().expect("a port"));
            count += 1;
            let ports = [own, port.parse().expect("a port")];
            let mut new = Flow { is_tcp: *kind == "tcp", ports, next: [1000, 5000] };
            if new.is_tcp {
                new.segment(0, 2, b"", &mut frames);
                new.segment(1, 18, b"", &mut frames);
                new.segment(0, 16, b"", &mut frames);
            }
            flow = Some(new);
            continue;
        }
        let flow = flow.as_mut().expect("a flow before its bytes");
        if let Some((ahead, text)) = line.strip_prefix('+').and_then(|it| it.split_once(' ')) {
            let next = flow.next;
            flow.next[0] += ahead.parse::<u32>().expect("a number");
            flow.segment(0, 24, &bytes(text), &mut frames);
            flow.next = next;
            continue;
        }
        let side = usize::from(line.starts_with('<'));
        flow.segment(side, 24, &bytes(&line[2..]), &mut frames);
        if flow.is_tcp {
            flow.segment(1 - side, 16, b"", &mut frames);
        }
    }
    flow.iter_mut().for_each(|it| it.end(&mut frames));
    frames
}

/// A pcap file, packets ten milliseconds apart.
pub(crate) fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    write_capture_every(10_000, path, frames);
}

/// The same, packets so many microseconds apart.
pub(crate) fn write_capture_every(apart_us: u64, path: &Path, frames: &[Vec<u8>]) {
    let mut file: Vec<u8> = Vec::new();
    [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1]
        .iter()
        .for_each(|it| file.extend(it.to_le_bytes()));
    for (index, bytes) in (0..).zip(frames) {
        let time_us = 1_700_000_000_000_000 + index * apart_us;
        let (second, micros) = ((time_us / 1_000_000) as u32, (time_us % 1_000_000) as u32);
        let length = bytes.len() as u32;
        [second, micros, length, length].iter().for_each(|it| file.extend(it.to_le_bytes()));
        file.extend(bytes);
    }
    fs::write(path, file).unwrap();
}

/// What is told of `capture` here, with further `options`.
fn ours(capture: &Path, scratch: &Path, options: &[&str]) -> Vec<String> {
    let (rules, eve) = (scratch.join("none.rules"), scratch.join("eve.json"));
    fs::write(&rules, "alert tcp any any -> any any (content:\"xqz9\"; sid:1;)\n").unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--no-checksums"]).args(options);
    weir.arg("--rules").arg(&rules).arg("--eve").arg(&eve).arg(capture);
    assert!(weir.output().unwrap().status.success());
    told(&fs::read_to_string(&eve).unwrap())
}

/// The root that Suricata is installed in; none, loudly, where there is none.
pub(crate) fn suricata_root() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let root = home.join(".cache/weir/suricata");
    if root.join("usr/bin/suricata").exists() {
        return Some(root);
    }
    eprintln!("SKIPPED: no Suricata in {}", root.display());
    None
}

/// Its configuration for these captures.
pub(crate) fn suricata_yaml() -> String {
    fs::read_to_string(folder().join("suricata.yaml")).unwrap()
}

/// EVE of the Suricata that is installed, with this configuration, for a test of this `name`; none,
/// loudly, where there is none.
pub(crate) fn suricata(name: &str, yaml: &str, capture: &Path) -> Option<String> {
    suricata_with(name, yaml, "", capture)
}

/// The same with rules.
pub(crate) fn suricata_with(name: &str, yaml: &str, rules: &str, capture: &Path) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(capture, folder.path().join("in.pcap")).unwrap();
    fs::write(folder.path().join("suricata.yaml"), yaml).unwrap();
    fs::write(folder.path().join("test.rules"), rules).unwrap();
    suricata_in(name, folder.path(), "")
}

/// The same with what is in `folder`: `in.pcap`, `suricata.yaml`, `test.rules` and what they name.
pub(crate) fn suricata_in(name: &str, folder: &Path, arguments: &str) -> Option<String> {
    let root = suricata_root()?;
    let name = format!("{name}-{}", std::process::id());
    let inside = root.join(&name);
    fs::create_dir_all(&inside).unwrap();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), inside.join(entry.file_name())).unwrap();
    }
    let line = format!(
        "cd /{name} && rm -f eve.json && exec suricata -c suricata.yaml -S test.rules -l . -k none \
         --runmode single -r in.pcap {arguments}"
    );
    let output = Command::new("chroot").arg(&root).args(["sh", "-c", &line]).output().unwrap();
    let eve = fs::read_to_string(inside.join("eve.json"));
    fs::remove_dir_all(&inside).unwrap();
    assert!(eve.is_ok(), "{}", String::from_utf8_lossy(&output.stderr));
    eve.ok()
}

/// The conversations.
pub(crate) fn conversations() -> Vec<PathBuf> {
    let files = fs::read_dir(folder()).unwrap().map(|it| it.unwrap().path());
    let mut names: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "txt")).collect();
    names.sort();
    assert!(names.len() >= 17, "{names:?}");
    names
}

#[test]
fn applications_are_told_of_as_suricata_does() {
    let scratch = std::env::temp_dir().join(format!("weir-applications-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    // Those without are of their buffers alone (`buffers.rs`).
    for path in conversations().iter().filter(|it| it.with_extension("eve").exists()) {
        let capture = scratch.join("in.pcap");
        write_capture(&capture, &frames(&fs::read_to_string(path).unwrap()));
        let expected = fs::read_to_string(path.with_extension("eve")).unwrap();
        let expected = told(&expected);
        assert_eq!(ours(&capture, &scratch, &[]), expected, "{}", path.display());
        if let Some(theirs) = suricata("applications", &suricata_yaml(), &capture) {
            assert_eq!(told(&theirs), expected, "Suricata, {}", path.display());
        }
    }
    fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn version_2_of_dns_is_written_as_suricata_does() {
    let scratch = tempfile::tempdir().unwrap();
    let capture = scratch.path().join("in.pcap");
    let conversation = fs::read_to_string(folder().join("dns.txt")).unwrap();
    write_capture(&capture, &frames(&conversation));
    let expected = told(&fs::read_to_string(folder().join("dns-version-2.eve")).unwrap());
    let yaml = suricata_yaml().replace(" dns, ", " {dns: {version: 2}}, ");
    assert_eq!(ours(&capture, scratch.path(), &["--dns-version", "2"]), expected);
    if let Some(theirs) = suricata("dns2", &yaml, &capture) {
        assert_eq!(told(&theirs), expected, "Suricata");
    }
}

/// The events of connections that others announced: kind, ports, and whether it was the one that
/// speaks FTP.
fn announced(eve: &str) -> Vec<String> {
    let events = eve.lines().map(|it| serde_json::from_str(it).expect("EVE"));
    let events: Vec<Value> = events.collect();
    let ftp = &events.iter().find(|it| it["event_type"] == "ftp").unwrap()["flow_id"];
    let of_children = events.iter().filter_map(|it| {
        let kind = it["event_type"].as_str().filter(|it| matches!(*it, "fileinfo" | "ftp_data"))?;
        let is_of_ftp = it.get("parent_id")? == ftp;
        Some(format!("{kind} {} {} {is_of_ftp}", it["src_port"], it["dest_port"]))
    });
    let mut of_children: Vec<String> = of_children.collect();
    of_children.sort();
    of_children
}

#[test]
fn connections_name_the_one_that_announced_them_as_suricata_does() {
    let scratch = tempfile::tempdir().unwrap();
    let capture = scratch.path().join("in.pcap");
    let conversation = fs::read_to_string(folder().join("ftp.txt")).unwrap();
    write_capture(&capture, &frames(&conversation));
    ours(&capture, scratch.path(), &[]);
    let ours = announced(&fs::read_to_string(scratch.path().join("eve.json")).unwrap());
    // What Suricata 8.0.7 tells of them.
    let expected = [
        "fileinfo 40002 50002 true",
        "fileinfo 50000 40001 true",
        "ftp_data 40001 50000 true",
        "ftp_data 40002 50002 true",
    ];
    assert_eq!(ours, expected);
    if let Some(theirs) = suricata("announced", &suricata_yaml(), &capture) {
        assert_eq!(announced(&theirs), expected, "Suricata");
    }
}
