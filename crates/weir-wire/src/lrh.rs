//! Native InfiniBand's local route header (IBTA Vol 1 s7.7).

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A local route header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Lrh {
    /// Virtual lane (high four bits), link version.
    pub lane_and_version: u8,
    /// Service level (high four bits), next header (low two).
    pub service_and_next: u8,
    /// Destination LID.
    pub destination: U16,
    /// Length in words from this header's first byte through the ICRC (low eleven bits).
    pub length: U16,
    /// Source LID.
    pub source: U16,
}

/// What follows an LRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkNextHeader {
    /// A raw packet with an EtherType.
    RawEthertype,
    /// A raw packet: IPv6.
    RawIpv6,
    /// A BTH.
    Local,
    /// A GRH, then a BTH.
    Global,
}

impl Lrh {
    /// Its length in bytes.
    pub const LEN: usize = 8;

    /// Virtual lane; 15 is for subnet management.
    #[inline]
    pub fn virtual_lane(&self) -> u8 {
        self.lane_and_version >> 4
    }

    /// Link version.
    #[inline]
    pub fn version(&self) -> u8 {
        self.lane_and_version & 15
    }

    /// Service level.
    #[inline]
    pub fn service_level(&self) -> u8 {
        self.service_and_next >> 4
    }

    /// What follows.
    #[inline]
    pub fn next_header(&self) -> LinkNextHeader {
        match self.service_and_next & 3 {
            0 => LinkNextHeader::RawEthertype,
            1 => LinkNextHeader::RawIpv6,
            2 => LinkNextHeader::Local,
            _ => LinkNextHeader::Global,
        }
    }

    /// Bytes from this header through the ICRC (the VCRC follows).
    #[inline]
    pub fn packet_len(&self) -> usize {
        usize::from(self.length.get() & 0x7ff) * 4
    }
}

const _: () = assert!(size_of::<Lrh>() == Lrh::LEN);

/// A LID in the address form of [`crate::parse::Parsed`]: in the last two bytes.
#[inline]
pub const fn lid_address(lid: u16) -> [u8; 16] {
    let [high, low] = lid.to_be_bytes();
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]
}
