//! One process: workers that move a pair's packets, and around them what an appliance needs.
//!
//! | room | |
//! |---|---|
//! | [`pair`] | a pair of ports: its workers, and the control thread that asks the kernel for them |
//! | [`keys`] | keys of associations: handshakes, front ends, and what of them must be on the disk |
//! | [`control`] | the gateway's life, and who may ask or command it |
//! | [`watch`] | what looks on and speaks up: ports, leaks, forgeries |
//!
//! ```text
//!   signals, control socket --> control::supervisor --a plan, whole--> pair::worker (N of a pair)
//!                                       ^                                |          |
//!                                       +------ published counters ------+     kernel's orders
//!                                       +------ report ----------- pair::control <--+
//!   keys::keying: handshakes --associations--> worker, datagrams <--> worker
//!   keys::state: reserver thread <--reservations-- worker, replay state --pwrite--> disk
//! ```
//!
//! Control reaches a worker only as a whole plan; a worker answers only with values. No lock is
//! shared with the data path.

pub mod control;
pub mod keys;
pub mod pair;
pub mod watch;
