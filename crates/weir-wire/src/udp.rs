//! UDP (RFC 768), and the ports by which the walk tells what a datagram holds.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RoCE v2 (destination port only).
pub const PORT_ROCE_V2: u16 = 4791;
/// VXLAN (destination port only).
pub const PORT_VXLAN: u16 = 4789;
/// GENEVE (destination port only).
pub const PORT_GENEVE: u16 = 6081;
/// ESP and IKE behind address translation (RFC 3948); either port.
pub const PORT_ESP: u16 = 4500;

/// A UDP header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Bytes of header and payload.
    pub length: U16,
    /// Checksum over pseudo header, header and payload; zero for none (IPv4, tunnels, RoCE v2).
    pub checksum: U16,
}

impl UdpHeader {
    /// Its length in bytes.
    pub const LEN: usize = 8;
}

const _: () = assert!(size_of::<UdpHeader>() == UdpHeader::LEN);
