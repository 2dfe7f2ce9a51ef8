//! Pieces of a TCP connection, in any order, for every application that is taken apart.
//!
//! `cargo +nightly fuzz run streams`; `crates/weir-detect/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-detect/tests/corpus/streams.rs"]
mod streams;

libfuzzer_sys::fuzz_target!(|input: &[u8]| streams::exercise(input));
