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
    replay("streams", 20, streams::exercise);
}
