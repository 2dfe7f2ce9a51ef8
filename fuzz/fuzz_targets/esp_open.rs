//! Opening ESP: from hostile senders and from authentic ones that send nonsense.
//!
//! `cargo +nightly fuzz run esp_open`; `crates/weir-engine/tests/corpus` replays the kept inputs.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
#[path = "../../crates/weir-engine/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::esp_open(input));
