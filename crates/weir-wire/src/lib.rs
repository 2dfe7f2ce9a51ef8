//! Wire formats: bytes to typed views. No I/O, no allocation, no unsafe.

#![forbid(unsafe_code)]

pub mod frame;

pub mod bth;
pub mod parse;
