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

pub mod supervisor;

pub mod preflight;

pub mod lock;

pub mod state;

pub mod history;

pub mod plan;

pub mod prepare;

pub mod worker;

mod exchange;
pub mod pair_control;
pub mod workers;

pub mod keying;
mod order_queue;
pub mod sharing;

mod port_watch;
pub mod ports;
pub mod relay;

pub mod carry;
pub mod gate;

pub mod forgeries;
pub mod leak;
pub mod rollout;

pub mod front_end;
pub mod front_end_socket;

mod alarm;
mod clock;
mod entropy;

pub mod access_log;
mod blocks;
pub mod bystanders;
mod telling;

pub mod mirror;
mod moderation;
mod owners;
mod tables;
mod vm_watch;

pub mod evidence;

pub mod publish;
pub mod recorder;
pub mod show;

pub mod secrets;

pub mod control;

pub mod kernel_esp;
pub mod notify;
pub mod offload;
pub mod openvpn;
mod xfrm_socket;
