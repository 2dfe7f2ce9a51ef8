//! The walk's short cut for what nearly every packet is: Ethernet without tags, IPv4 without
//! options, whole, and UDP, TCP or ESP behind it.
//!
//! One length check stands for the many of [`crate::walk`], and every field is written once. It
//! takes only what it can describe without a doubt, just as the long way would (the tests compare
//! them); all else is left to that.

use crate::esp::EspHeader;
use crate::ethernet::ethertype;
use crate::ip::{Ipv4Header, mapped, protocol};
use crate::parse::{LinkFields, MacAddress, Network, Parsed, Transport};
use crate::tcp::TcpHeader;
use crate::udp::{PORT_ESP, PORT_GENEVE, PORT_ROCE_V2, PORT_VXLAN, UdpHeader};

const NETWORK: usize = 14;
const TOTAL_LEN: usize = NETWORK + 2;
const TRANSPORT: usize = NETWORK + Ipv4Header::LEN;
const UDP_PAYLOAD: usize = TRANSPORT + UdpHeader::LEN;
/// Ethernet, IPv4 and the shortest transport header.
pub(crate) const HEAD: usize = TRANSPORT + 8;
/// Version 4, five words.
const VERSION_AND_LENGTH: u8 = 0x45;
/// More-fragments and the fragment's offset.
const FRAGMENT_BITS: u16 = 0x3fff;

/// A plain packet was described.
pub(crate) struct Plain {
    /// RoCE v2: a BTH begins here, and the UDP datagram ends there.
    pub(crate) rdma: Option<(usize, usize)>,
}

/// Describes a plain packet, all of whose bytes are present. `None`, and `parsed` as it was, when
/// it is not plain.
#[inline]
pub(crate) fn walk(parsed: &mut Parsed, bytes: &[u8]) -> Option<Plain> {
    let head = bytes.first_chunk::<HEAD>()?;
    let end = NETWORK + usize::from(word(head, TOTAL_LEN));
    let is_plain = word(head, 12) == ethertype::IPV4
        && head[NETWORK] == VERSION_AND_LENGTH
        && word(head, NETWORK + 6) & FRAGMENT_BITS == 0
        && (HEAD..=bytes.len()).contains(&end);
    if !is_plain {
        return None;
    }
    let kind = head[NETWORK + 9];
    let (transport, payload_offset, rdma) = upper(kind, head, bytes, end)?;
    let address = |at: usize| mapped([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let mac = |at: usize| {
        MacAddress([head[at], head[at + 1], head[at + 2], head[at + 3], head[at + 4], head[at + 5]])
    };
    *parsed = Parsed {
        link: LinkFields {
            destination: mac(0),
            source: mac(6),
            ethertype: ethertype::IPV4,
            vlan_count: 0,
            vlan_tci: [0; 2],
        },
        network: Network::Ipv4,
        source: address(NETWORK + 12),
        destination: address(NETWORK + 16),
        protocol: kind,
        traffic_class: head[NETWORK + 1],
        hop_limit: head[NETWORK + 8],
        fragment: None,
        transport,
        rdma: None,
        tunnel: None,
        network_offset: NETWORK as u16,
        transport_offset: TRANSPORT as u16,
        payload_offset: payload_offset as u16,
        end: end as u32,
        fault: None,
    };
    Some(Plain { rdma })
}

/// Describes a plain packet, all of whose bytes are present, that begins as the one did that
/// `parsed` describes, whose head was `before`. `None`, and `parsed` as it was, when it does not.
#[inline]
pub(crate) fn follow(parsed: &mut Parsed, before: &[u8; HEAD], bytes: &[u8]) -> Option<Plain> {
    let head = bytes.first_chunk::<HEAD>()?;
    let end = NETWORK + usize::from(word(head, TOTAL_LEN));
    if !begins_alike(head, before) || !(HEAD..=bytes.len()).contains(&end) {
        return None;
    }
    // Ports, or the SPI behind IP, are as before.
    let rdma = match &mut parsed.transport {
        Transport::Esp { sequence, in_udp: false, .. } => {
            *sequence = long(head, TRANSPORT + 4);
            None
        }
        Transport::Udp { destination: PORT_ROCE_V2, .. } => {
            Some((UDP_PAYLOAD, datagram_end(head, end)?))
        }
        Transport::Udp { source, destination }
            if *source != PORT_ESP && *destination != PORT_ESP =>
        {
            datagram_end(head, end)?;
            None
        }
        _ => follow_upper(parsed, head, bytes, end)?.rdma,
    };
    parsed.end = end as u32;
    parsed.rdma = None;
    parsed.fault = None;
    Some(Plain { rdma })
}

/// [`follow`] where more of the transport header differs than was compared.
#[inline(never)]
fn follow_upper(parsed: &mut Parsed, head: &[u8; HEAD], bytes: &[u8], end: usize) -> Option<Plain> {
    let (transport, payload_offset, rdma) = upper(parsed.protocol, head, bytes, end)?;
    let spi = |transport: &Transport| match transport {
        Transport::Esp { spi, .. } => Some(*spi),
        _ => None,
    };
    if spi(&parsed.transport) != spi(&transport) {
        return None;
    }
    parsed.transport = transport;
    parsed.payload_offset = payload_offset as u16;
    Some(Plain { rdma })
}

/// Whether two heads differ at most in length, identification, checksum, and behind the ports (or
/// the SPI): in what no packet of a flow shares with the next.
#[inline]
fn begins_alike(one: &[u8; HEAD], other: &[u8; HEAD]) -> bool {
    one[..TOTAL_LEN] == other[..TOTAL_LEN]
        && one[NETWORK + 6..NETWORK + 10] == other[NETWORK + 6..NETWORK + 10]
        && one[NETWORK + 12..TRANSPORT + 4] == other[NETWORK + 12..TRANSPORT + 4]
}

/// The transport header, where its payload begins, and where a BTH stands.
type Upper = (Transport, usize, Option<(usize, usize)>);

#[inline]
fn upper(kind: u8, head: &[u8; HEAD], bytes: &[u8], end: usize) -> Option<Upper> {
    match kind {
        protocol::UDP => udp(head, bytes, end),
        protocol::TCP => tcp(bytes, end),
        protocol::ESP => {
            let (spi, sequence) = (long(head, TRANSPORT), long(head, TRANSPORT + 4));
            let transport = Transport::Esp { spi, sequence, in_udp: false };
            Some((transport, TRANSPORT + EspHeader::LEN, None))
        }
        _ => None,
    }
}

#[inline]
fn udp(head: &[u8; HEAD], bytes: &[u8], end: usize) -> Option<Upper> {
    let (source, destination) = (word(head, TRANSPORT), word(head, TRANSPORT + 2));
    let datagram_end = datagram_end(head, end)?;
    let datagram = Transport::Udp { source, destination };
    match (source, destination) {
        (_, PORT_ROCE_V2) => Some((datagram, UDP_PAYLOAD, Some((UDP_PAYLOAD, datagram_end)))),
        (_, PORT_VXLAN | PORT_GENEVE) => None,
        (PORT_ESP, _) | (_, PORT_ESP) => {
            let header = bytes[..datagram_end].get(UDP_PAYLOAD..)?.first_chunk::<8>();
            match header.map(|header| (long(header, 0), long(header, 4))) {
                // A keepalive, or the marker of IKE.
                None | Some((0, _)) => Some((datagram, UDP_PAYLOAD, None)),
                Some((spi, sequence)) => {
                    let transport = Transport::Esp { spi, sequence, in_udp: true };
                    Some((transport, UDP_PAYLOAD + EspHeader::LEN, None))
                }
            }
        }
        _ => Some((datagram, UDP_PAYLOAD, None)),
    }
}

/// Where the UDP datagram ends, in a packet that does so at `end`.
#[inline]
fn datagram_end(head: &[u8; HEAD], end: usize) -> Option<usize> {
    let len = usize::from(word(head, TRANSPORT + 4));
    (UdpHeader::LEN..=end - TRANSPORT).contains(&len).then_some(TRANSPORT + len)
}

#[inline]
fn tcp(bytes: &[u8], end: usize) -> Option<Upper> {
    let header = bytes.get(TRANSPORT..)?.first_chunk::<{ TcpHeader::LEN }>()?;
    let payload_offset = TRANSPORT + usize::from(header[12] >> 4) * 4;
    if payload_offset < TRANSPORT + TcpHeader::LEN || payload_offset > end {
        return None;
    }
    let transport = Transport::Tcp {
        source: word(header, 0),
        destination: word(header, 2),
        sequence: long(header, 4),
        acknowledgment: long(header, 8),
        flags: header[13],
    };
    Some((transport, payload_offset, None))
}

#[inline]
fn word<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn long<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
