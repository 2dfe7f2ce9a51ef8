//! The capture readers: pcap, pcapng, ERF.
//!
//! `cargo +nightly fuzz run capture`; `crates/weir-port/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-port/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|file: &[u8]| exercise::exercise_input(file));
