//! NETLINK_XFRM from a front end: requests in any order, shape and number.
//!
//! `cargo +nightly fuzz run xfrm`; `crates/weir-xfrm/tests/corpus` replays the kept inputs.

#![no_main]

#[path = "../../crates/weir-xfrm/tests/corpus/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|input: &[u8]| exercise::exercise(input));
