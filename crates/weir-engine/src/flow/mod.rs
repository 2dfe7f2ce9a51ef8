//! Flows: what identifies one, and the bounded table that remembers them.
//!
//! The building blocks ([`hash`], `index`, `slab`) carry the queue-pair conversations of
//! [`crate::rdma`] too.

pub mod hash;
pub mod key;
pub mod table;

pub(crate) mod index;
pub(crate) mod slab;

pub use hash::HashSeed;
pub use key::{FlowDirection, FlowKey};
pub use table::{FlowCounters, FlowEntry, FlowHandle, FlowTable};

/// Why a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No packet for the idle timeout.
    Idle,
    /// The record has run for the active timeout; the flow goes on.
    Active,
    /// The table was full and this the least recently active, or it stood in the way of a newer
    /// one.
    Evicted,
    /// The connection managers gave its queue pairs to a new connection.
    Superseded,
    /// The meter was flushed.
    Flushed,
}

impl Reason {
    /// Its name in JSON and CSV.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Idle => "idle",
            Reason::Active => "active",
            Reason::Evicted => "evicted",
            Reason::Superseded => "superseded",
            Reason::Flushed => "flushed",
        }
    }
}
