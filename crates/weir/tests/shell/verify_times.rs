//! How long flows may be silent, and fragments wait, until `weir verify` takes them for over: as
//! Suricata 8.0.7, which was asked.

use std::path::Path;

use serde_json::Value;

use crate::applications::write_capture_every;
use crate::verify::{segment, verified};
use crate::verify_decoding::{datagram, piece};

const SECOND_US: u64 = 1_000_000;
const EVE: &str = "%YAML 1.1\n---\noutputs:\n  - eve-log: {enabled: yes, filename: eve.json, \
                   types: [alert, flow]}\n";
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What fails of a test of frames that come so many seconds apart; without settings of its own it
/// has Suricata's.
fn failures(
    (name, yaml): (&str, Option<&str>),
    apart_s: u64,
    frames: &[Vec<u8>],
    wanted: &[(&str, u32)],
) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("times").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    write_capture_every(apart_s * SECOND_US, &folder.join("in.pcap"), frames);
    let rules = "alert udp any any -> any 53 (content:\"aaaa\"; dsize:48; sid:1;)\n";
    std::fs::write(folder.join("test.rules"), rules).unwrap();
    if let Some(yaml) = yaml {
        std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
    }
    let filters = wanted
        .iter()
        .map(|(what, count)| format!("  - filter: {{count: {count}, match: {{{what}}}}}\n"));
    let test = format!("args: [-k none]\nchecks:\n{}", filters.collect::<String>());
    std::fs::write(folder.join("test.yaml"), test).unwrap();
    let report = verified(&folder);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "{report:#}");
    cases.iter().filter(|it| it["result"] != "passed").cloned().collect()
}

#[test]
fn a_flow_is_over_after_a_time_that_depends_on_its_state_and_on_settings() {
    let syn = segment(false, [10, 0], SYN, b"");
    let answer = segment(true, [20, 11], SYN | ACK, b"");
    let ack = segment(false, [11, 21], ACK, b"");
    let reset = segment(false, [11, 0], RST, b"");
    let begun = vec![syn.clone(), syn.clone()];
    let set_up = vec![syn.clone(), answer.clone(), ack.clone(), ack.clone()];
    let closed = vec![syn, answer, ack.clone(), reset, ack];
    let said = format!("{EVE}flow-timeouts: {{tcp: {{new: 100, established: 20, closed: 5}}}}\n");
    let over = "event_type: flow, flow.reason: timeout";
    for (name, yaml, frames, apart_s, count) in [
        ("begun", None, &begun, 59, 0),
        ("begun-over", None, &begun, 61, 1),
        ("begun-program", Some(EVE), &begun, 31, 1),
        ("begun-said", Some(said.as_str()), &begun, 99, 0),
        ("set-up", None, &set_up, 59, 0),
        ("set-up-said", Some(said.as_str()), &set_up, 21, 1),
        ("closed", None, &closed, 59, 0),
        ("closed-program", Some(EVE), &closed, 9, 0),
        ("closed-program-over", Some(EVE), &closed, 11, 1),
        ("closed-said", Some(said.as_str()), &closed, 6, 1),
    ] {
        let failed = failures((name, yaml), apart_s, frames, &[(over, count)]);
        assert_eq!(failed, Vec::<Value>::new(), "{name}");
    }
}

#[test]
fn fragments_wait_since_the_last_of_them() {
    let whole = datagram([1000, 53], 56, &[b'a'; 48]);
    let [first, next, last] = [0, 16, 32].map(|it| &whole[it..]);
    let pieces = [piece(0, true, &first[..16]), piece(2, true, &next[..16]), piece(4, false, last)];
    let alert = "event_type: alert, alert.signature_id: 1";
    let said = format!("{EVE}defrag: {{timeout: 25}}\n");
    for (name, yaml, apart_s, count) in [
        ("pieces", None, 50, 1),
        ("pieces-late", None, 70, 0),
        ("pieces-said", Some(said.as_str()), 20, 1),
        ("pieces-said-late", Some(said.as_str()), 30, 0),
    ] {
        let failed = failures((name, yaml), apart_s, &pieces, &[(alert, count)]);
        assert_eq!(failed, Vec::<Value>::new(), "{name}");
    }
}
