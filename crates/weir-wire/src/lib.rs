//! Wire formats: bytes to typed views. No I/O, no allocation, no unsafe.
//!
//! [`parse::parse`] walks once over a packet's headers and says what it found; the other modules
//! hold the layouts it reads, in the order a packet meets them, for those who look closer or
//! change fields in place.

#![forbid(unsafe_code)]

pub mod frame;

pub mod ethernet;

pub mod arp;
pub mod ip;

pub mod icmp;
pub mod tcp;
pub mod udp;

pub mod esp;
pub mod tunnel;

pub mod grh;
pub mod lrh;

pub mod ipoib;

pub mod bth;
pub mod ext;
mod opcode;

pub mod mad;

pub mod cm;

pub mod checksum;
pub mod covered;
pub mod icrc;

pub mod parse;
mod plain;
mod walk;
pub mod walker;

pub mod fastpath;
