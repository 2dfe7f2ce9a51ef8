//! Where records go when they leave the engine: sinks that export them; and the ring that keeps the
//! last packets for whoever asks.
//!
//! ```text
//!  worker --RecordSender (bounded, never waits)--> a thread per collector
//!                  Encoder (records -> messages) --> UDP | TCP | TLS --spool while it is down
//!  worker --EvidenceRing (one copy, no allocation)--> Snapshot
//! ```
//!
//! What this crate never does: change a packet, or make the data path wait.

#![forbid(unsafe_code)]

pub mod evidence;
pub mod sink;
