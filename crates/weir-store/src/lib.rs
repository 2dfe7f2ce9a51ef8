//! Where records go when they leave the engine: sinks that export them, the store that
//! keeps them; and the ring that keeps the last packets for whoever asks.
//!
//! ```text
//!  worker --RecordSender (bounded, never waits)--> a thread per collector
//!                  Encoder (records -> messages) --> UDP | TCP | TLS --spool while it is down
//!  worker --StoreSender (bounded, never waits)--> Store: one SQLite file, read by Reader
//!  other exporters --collect (NetFlow, IPFIX)--> Store, in a process of its own
//!  worker --DatasetSender (bounded, never waits)--> a thread: files of sets that rules change
//!  worker --EvidenceRing (one copy, no allocation)--> Snapshot
//! ```
//!
//! What this crate never does: change a packet, or make the data path wait.

#![forbid(unsafe_code)]

pub mod clock;
pub mod collect;
pub mod datasets;
pub mod entropy;
pub mod evidence;
pub mod names;
pub mod sink;
pub mod sqlite;

/// What a drop reason means, in a sentence; `None`: there is none of this name.
pub fn meaning(reason: &str) -> Option<&'static str> {
    use weir_engine::verdict::DropReason;
    DropReason::ALL.iter().find(|it| it.name() == reason).map(|it| it.meaning())
}
