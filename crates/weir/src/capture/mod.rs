//! `weir capture`: one interface into capture files, with every packet accounted for.
//!
//! ```text
//!   interface --> kernel filter --> ring --> selection --> snap --> chunk ==> writer --> file(s)
//!                 (not counted)      |          |                  1 MiB        |
//!                                 lost: full  filtered out                 not written
//! ```
//!
//! [`Counts::add_up`] is the law: what the kernel's tap took is what was lost for want of room in
//! the ring and what was received; what was received was filtered out, came after the end, was not
//! written, or is in a file. One thread reads the ring, another one writes: chunks, at most 64 of
//! them, bridge the disk's pauses, and the ring what they cannot.

mod chunk;
mod counts;
mod files;
mod names;
mod outbox;
mod run;
mod segment;
mod select;
mod sniffer;

pub use counts::Counts;
pub use files::{FileLimits, Target};
pub use names::NamePattern;
pub use run::{Ending, Plan, Progress, RecordingReport, capture};
pub use select::{Selection, opcode_named};
