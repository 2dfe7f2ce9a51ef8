//! The one walk over a packet's headers: bytes in, [`Parsed`] out.
//!
//! Every stage reads this instead of walking again. Offsets count from the frame's first byte.
//! The walk never fails: it stops where the bytes stop making sense, says why in
//! [`Parsed::fault`], and keeps what it found up to there.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bth::{Opcode, PartitionKey, Psn, Qpn};
use crate::frame::{Frame, Link};
use crate::udp::UdpHeader;
use crate::walk;

/// An Ethernet address.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether it names a group (broadcast included) rather than one station.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Link-layer fields (zero for links that lack them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFields {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// The innermost EtherType, behind all VLAN tags.
    pub ethertype: u16,
    /// VLAN tags found (0, 1 or 2), outermost TCI first.
    pub vlan_count: u8,
    /// Their tag control information (priority, DEI, VID).
    pub vlan_tci: [u16; 2],
}

/// Which network header the packet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None that we know, or it was malformed.
    #[default]
    None,
    /// ARP (RFC 826).
    Arp,
    /// IPv4 (RFC 791).
    Ipv4,
    /// IPv6 (RFC 8200).
    Ipv6,
    /// An InfiniBand global routing header: RoCE v1, or native behind an LRH.
    Grh,
    /// A native InfiniBand packet without GRH; addresses are LIDs.
    Lrh,
}

/// A fragment's place in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identification (IPv4: 16 bits).
    pub id: u32,
    /// Offset in bytes of this piece.
    pub offset: u16,
    /// Whether more pieces follow.
    pub more: bool,
}

/// The transport header, by what the stages need of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Not known, absent, or a later fragment.
    #[default]
    None,
    /// TCP (RFC 9293).
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Sequence number.
        sequence: u32,
        /// Acknowledgment number.
        acknowledgment: u32,
        /// The flag byte (CWR ECE URG ACK PSH RST SYN FIN).
        flags: u8,
    },
    /// UDP (RFC 768).
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// ESP (RFC 4303), directly over IP or in UDP (RFC 3948). Its header ends where the payload
    /// begins ([`Parsed::payload_offset`]).
    Esp {
        /// Security parameters index.
        spi: u32,
        /// Low 32 bits of the sequence number.
        sequence: u32,
        /// Whether a UDP header stands before it.
        in_udp: bool,
    },
}

/// How an RDMA packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encapsulation {
    /// EtherType 0x8915, GRH (IBTA Annex A16).
    RoceV1,
    /// UDP port 4791 (IBTA Annex A17).
    RoceV2,
    /// LRH, with or without GRH.
    InfiniBand,
}

/// The base transport header and where the parts around it lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdma {
    /// How it travels.
    pub encapsulation: Encapsulation,
    /// Operation.
    pub opcode: Opcode,
    /// Destination queue pair.
    pub destination_qp: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
    /// Partition key.
    pub partition_key: PartitionKey,
    /// The BTH's flag byte: solicited event, MigReq, pad count (2 bits), transport version.
    pub flags: u8,
    /// BTH byte 4: FECN, BECN (bits 7, 6), as RoCE v1 and native InfiniBand mark congestion.
    pub congestion: u8,
    /// Whether the sender asks for an acknowledgment.
    pub ack_request: bool,
    /// Offset of the BTH.
    pub bth_offset: u16,
    /// Offset of the first payload byte, behind every extended header; at most the bytes present.
    pub payload_offset: u16,
    /// Payload bytes on the wire, padding excluded; a capture may hold fewer.
    pub payload_len: u16,
    /// Offset of the ICRC; `None` when the capture was cut before it, or in a fragment.
    pub icrc_offset: Option<u16>,
}

/// A tunnel that the walk looked into (VXLAN, GENEVE, GRE). The other fields describe the outer
/// packet; [`parse_inner`] describes the inner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Which.
    pub kind: TunnelKind,
    /// VNI, or the GRE key.
    pub id: u32,
    /// First byte of the inner packet; at most the bytes present.
    pub inner_offset: u16,
    /// What that byte belongs to.
    pub inner_link: Link,
}

/// Tunnel protocols known to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2784, RFC 2890.
    Gre,
    /// ERSPAN over GRE.
    Erspan,
}

/// Why the walk stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The capture holds fewer bytes than the wire did.
    Truncated,
    /// A header says something impossible (a length beyond the packet, a bad version).
    Malformed,
}

/// All that one walk finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Ethernet fields.
    pub link: LinkFields,
    /// Which network header.
    pub network: Network,
    /// Source address: IPv4 mapped (::ffff:a.b.c.d), IPv6, GID, or a LID in the last two bytes.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// The upper-layer protocol, behind every IPv6 extension header.
    pub protocol: u8,
    /// DSCP (high six bits) and ECN (low two), or the GRH's traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Set on a fragment.
    pub fragment: Option<Fragment>,
    /// The transport header.
    pub transport: Transport,
    /// Set when the packet is RDMA.
    pub rdma: Option<Rdma>,
    /// Set when the packet carries another.
    pub tunnel: Option<Tunnel>,
    /// Offset of the network header (equal to the link header's length; 0 for a lone LRH).
    pub network_offset: u16,
    /// Offset of the transport header (ESP in UDP: the UDP header); at most the bytes present.
    pub transport_offset: u16,
    /// Offset of the first byte behind the transport header; at most the bytes present.
    pub payload_offset: u16,
    /// End of the network packet: link padding (native InfiniBand: the VCRC) lies behind it. At
    /// most the bytes present.
    pub end: u32,
    /// Why the walk stopped early, if it did.
    pub fault: Option<Fault>,
}

impl Parsed {
    /// The bytes present behind the transport header, link padding excluded. `bytes` is the frame
    /// that was parsed.
    #[inline]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(usize::from(self.payload_offset)..self.end as usize).unwrap_or_default()
    }

    /// The datagram that brings ESP in UDP (RFC 3948), as whoever does not open it has it: anybody
    /// may send from that port what is no ESP. `None` for all else.
    #[inline]
    pub fn datagram(&self, bytes: &[u8]) -> Option<Self> {
        let Transport::Esp { in_udp: true, .. } = self.transport else { return None };
        self.as_datagram(bytes)
    }

    /// The datagram that brings RoCE v2, as a socket has it whose port is 4791. `None` for all
    /// else.
    #[inline]
    pub fn datagram_of_rdma(&self, bytes: &[u8]) -> Option<Self> {
        let is_whole = self.fragment.is_none() && self.fault.is_none();
        let is_of_udp = self.rdma?.encapsulation == Encapsulation::RoceV2;
        let datagram = (is_whole && is_of_udp).then(|| self.as_datagram(bytes)).flatten()?;
        Some(Self { rdma: None, ..datagram })
    }

    fn as_datagram(&self, bytes: &[u8]) -> Option<Self> {
        let ports = bytes.get(usize::from(self.transport_offset)..)?.first_chunk::<4>()?;
        let [a, b, c, d] = *ports;
        let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let payload_offset = self.transport_offset + UdpHeader::LEN as u16;
        Some(Self { transport: Transport::Udp { source, destination }, payload_offset, ..*self })
    }
}

impl Rdma {
    /// Bytes between payload and ICRC that fill up a word (0-3).
    #[inline]
    pub fn pad_count(&self) -> u8 {
        (self.flags >> 4) & 3
    }

    /// The payload bytes present, without padding. `bytes` is the frame that was parsed.
    #[inline]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let present = bytes.get(usize::from(self.payload_offset)..).unwrap_or_default();
        &present[..present.len().min(usize::from(self.payload_len))]
    }
}

/// Walks over `bytes`, whose first byte belongs to `link`.
///
/// `original_len` is the packet's length on the wire: it tells a capture that was cut short
/// ([`Fault::Truncated`]) from a packet that contradicts itself ([`Fault::Malformed`]). Never
/// panics, and takes time bounded by a small number of headers, not by the bytes.
#[inline]
pub fn parse(bytes: &[u8], link: Link, original_len: u32) -> Parsed {
    let mut parsed = Parsed::default();
    walk::walk(&mut parsed, bytes, link, original_len);
    parsed
}

/// [`parse`] into memory of the caller, who walks over many packets and wants no copy of each
/// description.
#[inline]
pub fn parse_into(parsed: &mut Parsed, bytes: &[u8], link: Link, original_len: u32) {
    walk::walk(parsed, bytes, link, original_len);
}

/// [`parse`], by what a frame knows of itself.
#[inline]
pub fn parse_frame(frame: &Frame<'_>) -> Parsed {
    parse(frame.bytes(), frame.meta.link, frame.meta.original_len)
}

/// Walks over the packet that `tunnel` carries. `bytes` and `outer` are the outer frame and what
/// its walk found; the answer's offsets count from `bytes[tunnel.inner_offset]`.
pub fn parse_inner(bytes: &[u8], outer: &Parsed, tunnel: &Tunnel, original_len: u32) -> Parsed {
    let start = usize::from(tunnel.inner_offset);
    let end = if outer.fault == Some(Fault::Truncated) { bytes.len() } else { outer.end as usize };
    let inner = bytes.get(start..end).unwrap_or_default();
    let original_len = match outer.fault {
        Some(Fault::Truncated) => original_len.saturating_sub(start as u32),
        _ => inner.len() as u32,
    };
    parse(inner, tunnel.inner_link, original_len)
}
