//! The kernel's NETLINK_XFRM as Weir answers it: what `ip xfrm`, charon and pluto say becomes
//! associations and selectors of the engine.
//!
//! ```text
//!   ip xfrm, charon --preload/--> Unix socket --daemon--> Xfrm::handle --> answers, notices
//!                                                           |
//!                                    states, policies --> Plan: peers, selectors, associations
//!                                                           |
//!   expire, acquire, mapping <-- Xfrm::tick <-- what the worker counts
//! ```
//!
//! Answers, error numbers and their order are the kernel's (`net/xfrm/xfrm_user.c` is the
//! specification; no code of it is here). What Weir does not do it refuses with a number that the
//! kernel would give without that feature, and with words that `ip` prints. Sans-I/O: no socket,
//! clock or random source. The library that is preloaded into front ends is C, in `preload/`.

#![forbid(unsafe_code)]

pub mod uapi;

pub mod netlink;

pub mod refusal;

pub mod state;

pub mod policy;

pub mod database;

mod answer;
mod notice;
mod policies;
mod states;

pub mod plan;

pub mod program;

/// The library that turns a process's NETLINK_XFRM socket into a conversation with the gateway.
pub const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libweir_xfrm.so"));
