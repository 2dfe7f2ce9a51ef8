//! What network cards do for a sender and a receiver, done here where no card does it: checksums,
//! cutting super-packets into segments, gathering segments into super-packets.

mod carried;
pub mod checksum;
pub mod datagrams;
pub mod segment;
pub(crate) mod undone;

pub mod gather;
