//! Weir, a transparent security gateway for RDMA networks: everything but `main`.
//!
//! `config` says what a gateway shall do.

#![forbid(unsafe_code)]

pub mod config;
