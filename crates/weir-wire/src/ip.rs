//! Network headers: IPv4 (RFC 791) and IPv6 with its extension headers (RFC 8200).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol numbers, and IPv6 next headers (IANA registry).
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 inside.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// The IBA next header value in a GRH: a BTH follows.
    pub const IBA: u8 = 0x1b;
    /// IPv6 inside.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// GRE.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// Nothing follows.
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// EtherIP (RFC 3378).
    pub const ETHERIP: u8 = 97;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6 mobility header.
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol.
    pub const HIP: u8 = 139;
    /// Shim6.
    pub const SHIM6: u8 = 140;
}

/// An IPv4 header without its options.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (high four bits) and header length in words.
    pub version_and_len: u8,
    /// DSCP (high six bits) and ECN.
    pub traffic_class: u8,
    /// Bytes of header and payload. Writing it voids the checksum and the place of the end.
    pub total_len: U16,
    /// Identification of a fragmented datagram.
    pub id: U16,
    /// Reserved, don't fragment, more fragments (bits 15-13); offset in units of eight bytes.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: u8,
    /// Checksum over the header.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Its length in bytes without options.
    pub const LEN: usize = 20;
    /// "Don't fragment" in [`Ipv4Header::fragment`].
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// "More fragments" in [`Ipv4Header::fragment`].
    pub const MORE_FRAGMENTS: u16 = 0x2000;

    /// Version number.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_and_len >> 4
    }

    /// Header bytes, options included, as the header says; sane only from 20.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_and_len & 15) * 4
    }

    /// Whether it may not be fragmented.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & Self::DONT_FRAGMENT != 0
    }

    /// Whether more fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & Self::MORE_FRAGMENTS != 0
    }

    /// Offset in bytes of this fragment.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.fragment.get() & 0x1fff) << 3
    }
}

/// An IPv6 header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (four bits), traffic class (eight), flow label (twenty).
    pub version_class_flow: U32,
    /// Bytes behind this header. Writing it moves the end.
    pub payload_len: U16,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Its length in bytes.
    pub const LEN: usize = 40;

    /// Version number.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// DSCP (high six bits) and ECN.
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

/// The first bytes that IPv6 extension headers share; the rest depends on which it is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtensionHeader {
    /// What follows.
    pub next_header: u8,
    /// Length beyond the first eight bytes in units of eight (AH: of four, beyond the first two).
    pub length: u8,
}

/// An IPv6 fragment header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FragmentHeader {
    /// What follows in the first fragment.
    pub next_header: u8,
    /// Reserved.
    pub reserved: u8,
    /// Offset in units of eight bytes (bits 15-3), more fragments (bit 0).
    pub offset_and_more: U16,
    /// Identification.
    pub id: U32,
}

const _: () = assert!(size_of::<Ipv4Header>() == Ipv4Header::LEN);
const _: () = assert!(size_of::<Ipv6Header>() == Ipv6Header::LEN);
const _: () = assert!(size_of::<ExtensionHeader>() == 2);
const _: () = assert!(size_of::<FragmentHeader>() == 8);

/// An IPv4 address as ::ffff:a.b.c.d (RFC 4291 s2.5.5.2), the form [`crate::parse::Parsed`] has.
#[inline]
pub const fn mapped(address: [u8; 4]) -> [u8; 16] {
    // In a register, so that whoever reads it back as words does not wait for byte stores.
    (0xffff_0000_0000_u128 | u32::from_be_bytes(address) as u128).to_be_bytes()
}

/// The IPv4 address in ::ffff:a.b.c.d; `None` for any other address.
#[inline]
pub fn unmapped(address: &[u8; 16]) -> Option<[u8; 4]> {
    match address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([*a, *b, *c, *d]),
        _ => None,
    }
}
