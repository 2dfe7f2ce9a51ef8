//! Handshakes over a network that an enemy has: datagrams changed, repeated, lost, late, made up.
//!
//! `cargo +nightly fuzz run keying`; `crates/weir-engine/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-engine/tests/corpus/keying.rs"]
mod keying;

libfuzzer_sys::fuzz_target!(|input: &[u8]| keying::keying(input));
