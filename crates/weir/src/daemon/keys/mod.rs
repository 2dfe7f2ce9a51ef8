//! Keys of associations: handshakes, front ends, and what of them must be on the disk.

pub mod front_end;
pub mod front_end_socket;
pub mod keying;
pub(super) mod order_queue;
pub(super) mod owners;
pub mod secrets;
pub mod state;
