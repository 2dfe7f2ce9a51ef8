//! InfiniBand's global routing header (IBTA Vol 1 s8.3): an IPv6 header by another name.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A global routing header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Grh {
    /// Version (four bits), traffic class (eight), flow label (twenty).
    pub version_class_flow: U32,
    /// Bytes behind this header through the ICRC.
    pub payload_len: U16,
    /// 0x1b when a BTH follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
}

impl Grh {
    /// Its length in bytes.
    pub const LEN: usize = 40;

    /// Version number: 6.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Traffic class.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Flow label.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0xf_ffff
    }
}

const _: () = assert!(size_of::<Grh>() == Grh::LEN);
