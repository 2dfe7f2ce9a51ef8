//! Where records go when they leave the engine: sinks that export them.
//!
//! ```text
//!  worker --RecordSender (bounded, never waits)--> a thread per collector
//!                  Encoder (records -> messages) --> UDP | TCP | TLS --spool while it is down
//! ```
//!
//! What this crate never does: touch a packet, or make the data path wait.

#![forbid(unsafe_code)]

pub mod sink;
