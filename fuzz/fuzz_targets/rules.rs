//! Rules of any text, then frames of one flow.
//!
//! `cargo +nightly fuzz run rules`; `crates/weir-detect/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-detect/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise(input));
