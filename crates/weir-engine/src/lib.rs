//! A packet's fate, decided without I/O: no clock, RNG, socket, thread, file or async in here.
//!
//! [`pipeline::Engine`] takes a batch of frames from one side and returns what to send, as pieces
//! ([`output::Output`]). The modules stand in the order a packet meets them; stages never import
//! each other, only the pipeline knows them all.

#![forbid(unsafe_code)]

pub mod pipeline;

pub mod engine;

mod arrive;
pub mod classify;
pub mod policy;

pub mod peer;
pub mod protect;

pub mod plain;

pub mod flow;
pub mod rdma;

pub mod meter;

pub mod access;

pub mod detect;

mod nat;

mod route;
mod run;

pub mod fastpath;
pub mod mtu;

pub mod esp;
pub mod tunnel;

pub mod offload;

mod leave;

pub mod neighbour;
mod surroundings;

pub mod verdict;

pub mod output;

pub mod proof;

pub mod counters;
