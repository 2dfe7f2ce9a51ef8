//! One process: a worker per pair of ports, and around them what an appliance needs.
//!
//! ```text
//!   signals, control socket --> supervisor --commands--> worker (one per pair)
//!                                   ^                      |
//!                                   +--published counters--+
//!   keying: handshakes --associations--> worker, datagrams <--> worker
//!   state: reserver thread <--reservations-- worker, replay state --pwrite--> disk
//! ```
//!
//! Control reaches a worker only as a whole plan; a worker answers only with values. No lock is
//! shared with the data path.

pub mod control;

pub mod pair;

pub mod keys;

pub mod watch;

mod clock;
mod entropy;
