//! Detection by rules: packets of a flow in, verdicts and alerts out.
//!
//! ```text
//!  text --rule--> RuleSet (Arc, shared) ----+
//!                                           v
//!  packet --FlowTable--> Detector::inspect --> Decision            Pass | Drop(rule) | Reject(rule) | Unseen
//!            slot,         |    ^     |
//!            direction     v    |     +------> Alerts              bounded, overflow counted
//!                        flow's state (a slab)
//! ```
//!
//! The rules are those of Suricata's language, with RDMA as a protocol and `rdma.*` keywords. A
//! rule runs in full or is refused by name when the rules are loaded.
//!
//! Never reads a clock, socket, file or source of randomness: time is an argument, rule text comes
//! from the caller. Unsafe code is in `matcher/ffi.rs` alone, the pattern matcher's C interface.

#![deny(unsafe_code)]

pub mod rule;

mod addresses;

mod payload;

mod digest;

pub mod dataset;

mod ruleset;

pub mod matcher;

mod packet;

mod flow;

mod older;

mod application;

mod frame;

mod buffers;

mod sequence;
mod session;
mod stream;

mod conversation;

mod rdma;

mod behaviour;

mod inspect;

mod state;

mod evaluate;

pub mod alert;

pub mod headers;

pub mod record;

mod value;

pub mod decode;

pub mod countries;

pub mod reputation;

mod checksums;

pub mod fragments;

mod heap;
pub mod hosts;

pub mod icmp;
pub mod tags;

pub mod tunnels;

mod detector;

mod shared;

mod table;

pub use alert::{Alert, Alerts, Blocked, TextScope};
pub use application::{ApplicationChoice, Expected, Wanted};
pub use behaviour::{Flood, FloodKind, FloodSources, FloodView};
pub use buffers::event::AppEvent;
pub use detector::{
    AsSuricata, Counters, Decision, Decoded, Detector, Direction, Limits, Marks, Packet, Timeouts,
    Unseen,
};
pub use digest::FileDigests;
pub use evaluate::Replacement;
pub use flow::FlowSlot;
pub use packet::{Vlans, said};
pub use rule::load::{Classes, LoadOptions, LoadReport, Loaded, Refusal, RuleSource};
pub use rule::variables::Variables;
pub use rule::{Action, Answered, Rule, RuleIndex};
pub use ruleset::RuleSet;
pub use shared::SharedCounts;
pub use table::FlowTable;
pub use value::printable;
