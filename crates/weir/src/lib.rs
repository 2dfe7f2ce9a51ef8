//! Weir, a transparent security gateway for RDMA networks: everything but `main`.
//!
//! ```text
//!   cli/      what the user types, what the user reads
//!    |
//!   config/   file -> settings -> policy, or every problem at once
//!    |
//!   daemon/   one process: a worker per pair of ports, control socket, reload, kept state
//!    |
//!   api/      what the daemon says of itself
//!
//!   read/     captures instead of ports
//!   rules     rule files for the detector, and where addresses are
//!   capture/  ports into captures
//! ```
//!
//! Never touches the bytes of a packet: that is `weir-engine`'s, and the ports are `weir-port`'s.

#![forbid(unsafe_code)]

#[macro_use]
mod tell;

pub mod cli;

pub mod config;

pub mod daemon;

pub mod api;

pub mod read;

pub mod rules;

pub mod countries;

pub mod verify;

pub mod capture;

pub mod source;

pub mod doctor;

pub mod machine;

pub mod utc;
