//! Base transport header (IBTA Vol 1 s9.2): its newtypes and its view.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::opcode::{Extension, Opcode, Operation, Position, Service};

/// A 24-bit queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

/// A 24-bit packet sequence number; comparison wraps.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Hash)]
pub struct Psn(u32);

/// A partition key: membership bit and 15-bit partition number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(pub u16);

/// The base transport header as it lies on the wire.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Bth {
    /// Opcode.
    pub opcode: u8,
    /// Solicited event (bit 7), MigReq (6), pad count (5, 4), transport header version (3-0).
    pub flags: u8,
    /// Partition key.
    pub partition_key: U16,
    /// FECN (bit 7), BECN (6) in the first byte; destination queue pair in the other three.
    pub congestion_and_qp: U32,
    /// Acknowledge request (bit 31), PSN (23-0).
    pub ack_and_psn: U32,
}

const _: () = assert!(size_of::<Bth>() == Bth::LEN);

impl Bth {
    /// Its length in bytes.
    pub const LEN: usize = 12;

    /// Operation.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// Bytes between payload and ICRC that fill up a word (0-3).
    #[inline]
    pub fn pad_count(&self) -> u8 {
        (self.flags >> 4) & 3
    }

    /// Destination queue pair.
    #[inline]
    pub fn destination_qp(&self) -> Qpn {
        Qpn::new(self.congestion_and_qp.get())
    }

    /// BTH byte 4: FECN, BECN and six reserved bits. The ICRC does not cover it.
    #[inline]
    pub fn congestion(&self) -> u8 {
        (self.congestion_and_qp.get() >> 24) as u8
    }

    /// Packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.ack_and_psn.get())
    }

    /// Whether the sender asks for an acknowledgment.
    #[inline]
    pub fn ack_request(&self) -> bool {
        self.ack_and_psn.get() >> 31 != 0
    }
}

impl Qpn {
    /// Subnet management (SMI).
    pub const SUBNET_MANAGEMENT: Qpn = Qpn(0);
    /// General services (GSI): connection management and the like.
    pub const GENERAL_SERVICES: Qpn = Qpn(1);
    /// Multicast.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Its number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl Psn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Its number.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// This number moved on by `count`, modulo 2^24.
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How far `self` lies after `earlier`: negative when before, in -2^23 .. 2^23.
    pub const fn distance(self, earlier: Psn) -> i32 {
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl PartitionKey {
    /// The default partition, full member.
    pub const DEFAULT: PartitionKey = PartitionKey(0xffff);

    /// Whether the membership bit says full member (else limited).
    pub const fn is_full_member(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// The partition number without the membership bit.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff).add(2), Psn::new(1));
        assert_eq!(Psn::new(1).distance(Psn::new(0xff_ffff)), 2);
        assert_eq!(Psn::new(0xff_ffff).distance(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x80_0000).distance(Psn::new(0)), -0x80_0000);
    }

    #[test]
    fn fields_are_read_from_their_bits() {
        let bytes = [0x0a, 0xb0, 0x80, 0x01, 0x40, 0, 0x11, 0x22, 0x80, 1, 2, 3];
        let bth = Bth::ref_from_bytes(&bytes).unwrap();
        assert_eq!(bth.opcode(), Opcode::RC_WRITE_ONLY);
        assert_eq!(bth.pad_count(), 3);
        assert_eq!(bth.destination_qp(), Qpn::new(0x1122));
        assert_eq!(bth.congestion(), 0x40);
        assert_eq!(bth.psn(), Psn::new(0x01_0203));
        assert!(bth.ack_request());
        assert_eq!(bth.destination_qp().to_string(), "0x001122");
    }
}
