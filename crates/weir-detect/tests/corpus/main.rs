//! Replays the kept corpus of the `rules` fuzz target, whole, cut at every length and with bits
//! turned.

mod exercise;

use std::path::Path;

#[test]
fn any_rules_and_frames_are_taken_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rules");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is kept") {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        exercise::exercise(&input);
        for end in (0..input.len()).step_by(7) {
            exercise::exercise(&input[..end]);
        }
        for place in (0..input.len()).step_by(5) {
            let mut turned = input.clone();
            turned[place] ^= 1 << (place % 8);
            exercise::exercise(&turned);
        }
        inputs += 1;
    }
    assert!(inputs >= 4, "{inputs} inputs");
}
