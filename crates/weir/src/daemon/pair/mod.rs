//! A pair of ports: its control thread, its workers, and what each of them has.
//!
//! `workers` starts them; `control` is the thread that asks the kernel, `worker` one that moves
//! packets, with `relay` between `ports` and engine, and `bystanders` beside. `plan` and `prepare`
//! are what a configuration makes of a pair; `publish` is how counters leave.

pub(super) mod alerts;
pub mod bystanders;
pub mod control;
pub mod evidence;
pub(super) mod exchange;
pub mod fast_path;
pub mod gate;
pub mod kernel_esp;
pub mod mirror;
pub(super) mod moderation;
pub mod offload;
pub mod plan;
pub mod ports;
pub mod prepare;
pub mod publish;
pub mod relay;
pub mod sharing;
pub(super) mod tables;
pub mod worker;
pub mod workers;
pub(super) mod xfrm_socket;
