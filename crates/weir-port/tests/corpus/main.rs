//! Replays what the fuzz target `capture` found worth keeping, on the stable compiler.

mod exercise;

use std::fs;
use std::path::Path;

#[test]
fn every_kept_file_is_read_or_refused_without_a_fault_of_ours() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture");
    let mut replayed = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is part of the project") {
        let path = entry.expect("the corpus can be read").path();
        exercise::exercise_input(&fs::read(&path).expect("the corpus can be read"));
        replayed += 1;
    }
    assert!(replayed >= 12, "{replayed} inputs in {folder:?}");
}
