//! A packet's fate, decided without I/O: no clock, RNG, socket, thread, file or async in here.
//!
//! [`pipeline::Engine`] takes a batch of frames from one side and returns what to send, as pieces
//! ([`output::Output`]). The modules stand in the order a packet meets them; stages never import
//! each other, only the pipeline knows them all.

#![forbid(unsafe_code)]

pub mod pipeline;

pub mod classify;

pub mod policy;

mod egress;

pub mod mtu;

pub mod flow;
pub mod rdma;

pub mod meter;

pub mod plain;

pub mod access;

pub mod detect;

pub mod fastpath;

pub mod esp;
pub mod tunnel;

pub mod offload;

mod ingress;
mod limit;
mod nat;

pub mod neighbour;

pub mod verdict;

pub mod output;

pub mod proof;

pub mod counters;
