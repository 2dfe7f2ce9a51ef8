//! Replays the kept inputs of the fuzz targets `esp_open`, `offload` and `keying` (see `fuzz/README.md`).

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

mod exercise;
mod keying;

use std::fs;
use std::path::Path;

#[test]
fn kept_inputs_of_esp_open_hold() {
    replay("esp_open", exercise::esp_open);
}

#[test]
fn kept_inputs_of_offload_hold() {
    replay("offload", exercise::offload);
}

#[test]
fn kept_inputs_of_keying_hold() {
    replay("keying", keying::keying);
}

fn replay(target: &str, exercise: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is part of the project") {
        let path = entry.expect("the corpus can be read").path();
        exercise(&fs::read(&path).expect("the corpus can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}
