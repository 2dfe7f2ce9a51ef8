//! Frames in conversations of many applications, judged by Suricata 8.0.7.
//!
//! `testdata/applications/frames.tsv` has what it finds in the conversations beside it, a frame a
//! line: the conversation, the application, the kind, who sent it, where in the stream, how long,
//! its number, the transaction's. `WEIR_WRITE=1` writes what Suricata says of the conversations
//! that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::applications::{frames, suricata, suricata_yaml, write_capture};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/applications")
}

/// The frames among events, a line each, sorted.
fn told(name: &str, eve: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        let frame = &event["frame"];
        // Of streams as a whole nothing is told here.
        if event["event_type"] != "frame" || frame["type"] == "stream" {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |of: &str| frame[of].as_u64().map_or("-".to_owned(), |it| it.to_string());
        let fields = [
            name.to_owned(),
            text(&event["app_proto"]),
            text(&frame["type"]),
            text(&frame["direction"]),
            number("stream_offset"),
            number("length"),
            number("id"),
            number("tx_id"),
        ];
        lines.push(fields.join("\t"));
    }
    lines.sort();
    lines
}

/// What is found in `capture` here.
fn ours(capture: &Path, scratch: &Path) -> String {
    let (rules, eve) = (scratch.join("none.rules"), scratch.join("eve.json"));
    fs::write(&rules, "alert tcp any any -> any any (content:\"xqz9\"; sid:1;)\n").unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--no-checksums", "--types", "frame", "--rules"]).arg(&rules);
    assert!(weir.arg("--eve").arg(&eve).arg(capture).output().unwrap().status.success());
    fs::read_to_string(&eve).unwrap()
}

/// Suricata's configuration, to tell of frames alone.
fn frames_alone() -> String {
    let yaml = suricata_yaml();
    let (before, behind) = yaml.split_once("types: [").expect("a list of types");
    let (_, behind) = behind.split_once("]\n").expect("its end");
    format!("{before}types: [{{frame: {{enabled: yes}}}}]\n{behind}")
}

#[test]
fn frames_are_those_that_suricata_finds() {
    let scratch = std::env::temp_dir().join(format!("weir-frames-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let list = fs::read_to_string(folder().join("frames.tsv")).unwrap();
    let mut expected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in list.lines() {
        let name = line.split('\t').next().unwrap_or_default();
        expected.entry(name).or_default().push(line.to_owned());
    }
    assert!(expected.len() >= 8, "{:?}", expected.keys());
    let mut all = Vec::new();
    for (name, expected) in expected {
        let capture = scratch.join("in.pcap");
        let text = fs::read_to_string(folder().join(name).with_extension("txt")).unwrap();
        write_capture(&capture, &frames(&text));
        if std::env::var_os("WEIR_WRITE").is_some() {
            let theirs = suricata("frames", &frames_alone(), &capture).expect("Suricata");
            all.extend(told(name, &theirs));
            continue;
        }
        let found = told(name, &ours(&capture, &scratch));
        let missing: Vec<_> = expected.iter().filter(|it| !found.contains(it)).collect();
        let more: Vec<_> = found.iter().filter(|it| !expected.contains(it)).collect();
        assert!(
            missing.is_empty() && more.is_empty(),
            "{name}: {missing:#?} not found, {more:#?} not Suricata's"
        );
        assert_eq!(found.len(), expected.len(), "{name}");
        if let Some(theirs) = suricata("frames", &frames_alone(), &capture) {
            assert_eq!(told(name, &theirs), expected, "Suricata, {name}");
        }
    }
    if !all.is_empty() {
        fs::write(folder().join("frames.tsv"), all.join("\n") + "\n").unwrap();
    }
    fs::remove_dir_all(&scratch).unwrap();
}
