//! A packet's fate, decided without I/O: no clock, RNG, socket, thread, file or async in here.

#![forbid(unsafe_code)]

pub mod classify;

pub mod policy;

pub mod esp;

pub mod offload;

pub mod verdict;

pub mod output;

pub mod counters;
