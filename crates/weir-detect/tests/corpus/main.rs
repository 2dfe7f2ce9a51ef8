//! Replays the kept corpora of the `rules` and `streams` fuzz targets, whole, cut at every length
//! and with bits turned.

#![allow(clippy::disallowed_methods, reason = "only the detector itself does without these")]

mod exercise;
mod streams;

use std::path::Path;

fn replay(name: &str, least: usize, exercise: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is kept") {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        exercise(&input);
        for end in (0..input.len()).step_by(7) {
            exercise(&input[..end]);
        }
        for place in (0..input.len()).step_by(5) {
            let mut turned = input.clone();
            turned[place] ^= 1 << (place % 8);
            exercise(&turned);
        }
        inputs += 1;
    }
    assert!(inputs >= least, "{inputs} inputs");
}

#[test]
fn any_rules_and_frames_are_taken_without_a_panic() {
    replay("rules", 4, exercise::exercise);
}

#[test]
fn any_pieces_of_a_connection_are_taken_without_a_panic() {
    replay("streams", 40, streams::exercise);
}

/// Inputs of `streams`, and rules that match in them: what each is kept to reach.
const REACHED: [(&str, &[u32]); 24] = [
    ("bittorrent-udp-6881", &[68]),
    ("dcerpc", &[21, 86]),
    ("dnp3", &[65, 66]),
    ("dns", &[83]),
    ("doh2", &[70]),
    ("enip", &[91]),
    ("ftp-data-active", &[72]),
    ("ftp-data-passive", &[19, 71]),
    ("http", &[6, 80]),
    ("http2", &[3, 7, 81]),
    ("ldap", &[90]),
    ("modbus", &[29]),
    ("mqtt", &[26, 89]),
    ("nfs-tcp-2049", &[63, 64, 88]),
    ("nfs-udp-2049", &[63, 88]),
    ("pgsql", &[30]),
    ("rfb", &[27, 95]),
    ("sip", &[87]),
    ("small-udp-5353", &[96]),
    ("smb", &[20, 85]),
    ("smtp", &[18, 94]),
    ("telnet", &[69, 93]),
    ("tftp-udp-69", &[67]),
    ("websocket", &[92]),
];

#[test]
fn kept_inputs_reach_what_they_are_kept_for() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/streams");
    let mut missing = Vec::new();
    for (name, sids) in REACHED {
        let found = streams::matched(&std::fs::read(folder.join(name)).unwrap());
        missing.extend(sids.iter().filter(|it| !found.contains(it)).map(|it| (name, *it)));
    }
    assert_eq!(missing, []);
}
