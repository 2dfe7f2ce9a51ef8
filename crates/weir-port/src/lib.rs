//! Frames in and out of the gateway. The only system calls and the only unsafe code of the data
//! path live here.

pub mod port;

pub use port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
