//! ICMP (RFC 792) and ICMPv6 (RFC 4443, neighbour discovery RFC 4861).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse::MacAddress;

/// IPv4 types and codes.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Code under [`UNREACHABLE`]: fragmentation needed; the MTU is in the second word (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

/// IPv6 types.
pub mod v6 {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big; the MTU is in the second word.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

/// The eight bytes every ICMP message starts with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum (ICMPv6: with pseudo header).
    pub checksum: U16,
    /// Identifier and sequence, or an MTU, by type.
    pub rest: U32,
}

/// Neighbour solicitation or advertisement behind its [`IcmpHeader`], with one link-address option.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NeighbourBody {
    /// The address asked or answered for.
    pub target: [u8; 16],
    /// 1: source's, 2: target's link address.
    pub option_kind: u8,
    /// Length of the option in units of eight bytes: 1.
    pub option_len: u8,
    /// The link address.
    pub link_address: MacAddress,
}

impl IcmpHeader {
    /// Its length in bytes.
    pub const LEN: usize = 8;
}

const _: () = assert!(size_of::<IcmpHeader>() == IcmpHeader::LEN);
const _: () = assert!(size_of::<NeighbourBody>() == 24);
