//! Frames in and out of the gateway. The only system calls and the only unsafe code of the data
//! path live here.

pub mod port;

pub mod capture;
pub mod memory;
mod room;

pub use capture::{CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter};
pub use memory::MemoryPort;
pub use port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
