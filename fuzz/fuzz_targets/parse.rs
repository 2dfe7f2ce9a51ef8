//! The packet walk, every view behind it, and what the gateway rewrites.
//!
//! `cargo +nightly fuzz run parse`; `crates/weir-wire/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-wire/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise_input(input));
