//! The unsafe room: system calls and kernel memory behind safe types. Everything here is a thin
//! layer over one kernel interface; decisions are taken outside.
#![allow(unsafe_code)]

pub(crate) mod any_readable;
pub(crate) mod block_ring;
pub(crate) mod clock;
pub(crate) mod filter_compiler;
pub(crate) mod interface_request;
pub(crate) mod poll;
pub(crate) mod program;
pub(crate) mod receive_ring;
pub(crate) mod send;
pub(crate) mod shared_map;
pub(crate) mod socket;
pub(crate) mod tun;
pub(crate) mod urgent;
