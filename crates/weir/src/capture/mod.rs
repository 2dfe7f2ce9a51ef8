//! `weir capture`: one interface into capture files, with every packet accounted for.
//!
//! ```text
//!   interface --> kernel filter --> ring --> selection --> snap --> 1 MiB of blocks --> file(s)
//!                 (not counted)      |          |                         |
//!                                 lost: full  filtered out           not written
//! ```
//!
//! [`Counts::add_up`] is the law: what the kernel's tap took is what was lost for want of room in
//! the ring and what was received; what was received was filtered out, came after the end, was not
//! written, or is in a file. One thread does all of it: the ring bridges the disk's pauses.

mod counts;
mod files;
mod names;
mod run;
mod segment;
mod select;
mod sniffer;

pub use counts::Counts;
pub use files::{FileLimits, Target};
pub use names::NamePattern;
pub use run::{Ending, Plan, Progress, Report, capture};
pub use select::{Selection, opcode_named};
