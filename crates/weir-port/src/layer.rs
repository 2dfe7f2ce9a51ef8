//! Ports over a port: they stack, as `Recorder<FaultInjector<PacketPort>>`.

mod fault;
mod recorder;
mod tracer;

pub use fault::{FaultCounts, FaultInjector, Faults};
pub use recorder::Recorder;
pub use tracer::Tracer;
