//! Text to settings: whatever stands in a configuration file, there is an answer, and a refusal has
//! a reason.
//!
//! `cargo +nightly fuzz run config`; `crates/weir/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise_input(input));
