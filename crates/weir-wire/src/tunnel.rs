//! Tunnels that carry frames or packets in clear: VXLAN (RFC 7348), GENEVE (RFC 8926), GRE
//! (RFC 2784, RFC 2890) and ERSPAN over GRE (types I, II and III).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::ethertype;
use crate::frame::Link;
use crate::parse::TunnelKind;

/// A VXLAN header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct VxlanHeader {
    /// Bit 3: the VNI is valid.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// VNI (high 24 bits).
    pub vni: U32,
}

/// A GENEVE header without its options.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct GeneveHeader {
    /// Version (high two bits) and length of the options in words.
    pub version_and_len: u8,
    /// Control packet (bit 7), critical options (bit 6).
    pub flags: u8,
    /// EtherType of what follows.
    pub protocol: U16,
    /// VNI (high 24 bits).
    pub vni: U32,
}

/// A GRE header without its optional fields.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct GreHeader {
    /// Which optional fields follow; version in the low three bits.
    pub flags: U16,
    /// EtherType of what follows.
    pub protocol: U16,
}

const _: () = assert!(size_of::<VxlanHeader>() == 8);
const _: () = assert!(size_of::<GeneveHeader>() == 8);
const _: () = assert!(size_of::<GreHeader>() == 4);

impl VxlanHeader {
    /// The VNI, when the header says that it holds one.
    #[inline]
    pub fn vni(&self) -> Option<u32> {
        (self.flags & 0x08 != 0).then(|| self.vni.get() >> 8)
    }
}

impl GeneveHeader {
    /// Protocol version; only 0 is defined.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_and_len >> 6
    }

    /// Header bytes, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        size_of::<Self>() + usize::from(self.version_and_len & 0x3f) * 4
    }

    /// The virtual network identifier.
    #[inline]
    pub fn vni(&self) -> u32 {
        self.vni.get() >> 8
    }
}

impl GreHeader {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    /// Source routing and version: this walk reads version 0 without it. Strict routing and
    /// recursion, which receivers are to discard (RFC 2784 s2.3), Linux ignores, as all do with
    /// the other reserved bits: so that they hide nothing, this walk does too.
    const UNKNOWN: u16 = 0x4007;
    /// ERSPAN types I and II.
    const ERSPAN: u16 = 0x88be;
    /// ERSPAN type III.
    const ERSPAN_III: u16 = 0x22eb;

    /// Whether this is GRE as RFC 2784 and RFC 2890 define it.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags.get() & Self::UNKNOWN == 0
    }

    /// Header bytes, optional fields included.
    #[inline]
    pub fn header_len(&self) -> usize {
        let flags = self.flags.get() & (Self::CHECKSUM | Self::KEY | Self::SEQUENCE);
        size_of::<Self>() + flags.count_ones() as usize * 4
    }

    /// Where the key stands from the header's first byte, when there is one.
    #[inline]
    pub fn key_offset(&self) -> Option<usize> {
        let flags = self.flags.get();
        let checksum = if flags & Self::CHECKSUM != 0 { 4 } else { 0 };
        (flags & Self::KEY != 0).then_some(size_of::<Self>() + checksum)
    }

    /// Which ERSPAN header follows, when one does.
    #[inline]
    pub fn erspan(&self) -> Option<ErspanKind> {
        match self.protocol.get() {
            Self::ERSPAN if self.flags.get() & Self::SEQUENCE == 0 => Some(ErspanKind::I),
            Self::ERSPAN => Some(ErspanKind::II),
            Self::ERSPAN_III => Some(ErspanKind::III),
            _ => None,
        }
    }
}

/// The three forms of ERSPAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErspanKind {
    /// No header of its own.
    I,
    /// Eight bytes.
    II,
    /// Twelve bytes, and eight more when the last bit of the twelve says so.
    III,
}

impl ErspanKind {
    /// Bytes of its header, without type III's optional part.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Self::I => 0,
            Self::II => 8,
            Self::III => 12,
        }
    }
}

/// What an EtherType inside a tunnel announces; `None` for what the walk does not enter.
#[inline]
pub fn inner_link(protocol: u16) -> Option<Link> {
    match protocol {
        ethertype::BRIDGED_ETHERNET => Some(Link::Ethernet),
        ethertype::IPV4 | ethertype::IPV6 => Some(Link::Ip),
        _ => None,
    }
}

impl TunnelKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "VXLAN",
            Self::Geneve => "GENEVE",
            Self::Gre => "GRE",
            Self::Erspan => "ERSPAN",
        }
    }
}
