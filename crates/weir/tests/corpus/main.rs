//! The kept inputs of the fuzz target `config`, replayed on the stable compiler.

mod exercise;

use std::path::Path;

#[test]
fn every_kept_configuration_is_accepted_or_refused_with_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let mut replayed = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        exercise::exercise_input(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 8, "{replayed} inputs");
}
