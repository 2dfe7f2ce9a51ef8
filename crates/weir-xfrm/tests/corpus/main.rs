//! Replays the kept corpus of the `xfrm` fuzz target, whole, cut at every length and with bits
//! turned: requests as `ip xfrm` makes them, and what became of them.

mod exercise;

use std::path::Path;

#[test]
fn malformed_netlink_is_answered_and_never_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/xfrm");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is kept") {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        exercise::exercise(&input);
        for end in 0..input.len() {
            exercise::exercise(&input[..end]);
        }
        for place in 0..input.len() {
            let mut turned = input.clone();
            turned[place] ^= 1 << (place % 8);
            exercise::exercise(&turned);
        }
        inputs += 1;
    }
    assert!(inputs >= 5, "{inputs} inputs");
}
