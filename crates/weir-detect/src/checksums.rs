//! Whether a packet's checksums are right (`tcpv4-csum` and the like).

use weir_wire::checksum::Sum;
use weir_wire::ip::protocol;
use weir_wire::parse::{Network, Parsed};

use crate::detector::Limits;

/// Which checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Ipv4,
    Tcpv4,
    Tcpv6,
    Udpv4,
    Udpv6,
    Icmpv4,
    Icmpv6,
}

impl Checksum {
    /// Whether adapters compute it for their hosts.
    pub(crate) fn is_transport(self) -> bool {
        matches!(self, Self::Tcpv4 | Self::Tcpv6 | Self::Udpv4 | Self::Udpv6)
    }
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const IPV6_LEN: usize = 40;

/// Whether a packet is a TCP segment that no receiver takes for its headers: its checksum is wrong,
/// or its IPv4 header's (which Suricata lets pass), or its header ends nowhere.
pub(crate) fn is_segment_wrong(bytes: &[u8], parsed: &Parsed, limits: &Limits) -> bool {
    let is_piece = parsed.fragment.is_some();
    if !is_piece && parsed.protocol == TCP && parsed.fault.is_some() {
        return true;
    }
    let is_wrong = |of| is_valid(of, bytes, parsed) == Some(false);
    match parsed.network {
        Network::Ipv4 => {
            let looks_at_ip = !limits.as_suricata.trusts_ip_headers;
            let is_ip_wrong = || looks_at_ip && is_wrong(Checksum::Ipv4);
            // Of TCP a piece says nothing: the whole is looked at.
            let is_tcp_wrong = || !is_piece && is_wrong(Checksum::Tcpv4);
            parsed.protocol == TCP && (is_ip_wrong() || is_tcp_wrong())
        }
        _ => !is_piece && is_wrong(Checksum::Tcpv6),
    }
}

/// The same of a packet that carries another; its transport checksum may be known to be right.
pub(crate) fn is_carrier_wrong(bytes: &[u8], parsed: &Parsed, is_verified: bool) -> bool {
    let is_wrong = |of| is_valid(of, bytes, parsed) == Some(false);
    let transport = if parsed.network == Network::Ipv6 { Checksum::Udpv6 } else { Checksum::Udpv4 };
    is_wrong(Checksum::Ipv4) || (!is_verified && is_wrong(transport))
}

/// Whether UDP says that its datagram ends before its packet does.
pub(crate) fn is_shorter(bytes: &[u8], parsed: &Parsed) -> bool {
    transport_end(parsed, bytes) != parsed.end as usize
}

/// Whether it is right; `None` where the packet has none, or is cut.
pub(crate) fn is_valid(of: Checksum, bytes: &[u8], parsed: &Parsed) -> Option<bool> {
    let (network, protocol) = match of {
        Checksum::Ipv4 => (Network::Ipv4, parsed.protocol),
        Checksum::Tcpv4 => (Network::Ipv4, TCP),
        Checksum::Tcpv6 => (Network::Ipv6, TCP),
        Checksum::Udpv4 => (Network::Ipv4, UDP),
        Checksum::Udpv6 => (Network::Ipv6, UDP),
        Checksum::Icmpv4 => (Network::Ipv4, ICMP),
        Checksum::Icmpv6 => (Network::Ipv6, ICMPV6),
    };
    if parsed.network != network || parsed.protocol != protocol || parsed.fault.is_some() {
        return None;
    }
    if of == Checksum::Ipv4 {
        let at = usize::from(parsed.network_offset);
        let length = usize::from(bytes.get(at)? & 15) * 4;
        return Some(is_whole(Sum::new().with(bytes.get(at..at + length)?)));
    }
    if parsed.fragment.is_some() {
        return None;
    }
    let segment = bytes.get(usize::from(parsed.transport_offset)..transport_end(parsed, bytes))?;
    if matches!(of, Checksum::Udpv4) && segment.get(6..8)? == [0, 0] {
        // The sender gave none.
        return None;
    }
    if of == Checksum::Icmpv4 {
        return Some(is_whole(Sum::new().with(segment)));
    }
    let width = if network == Network::Ipv4 { 12.. } else { 0.. };
    let body = Sum::new().with_u16(u16::from(protocol)).with_u32(segment.len() as u32);
    // The last piece, which may be odd.
    let is_right = |source: &[u8], destination: &[u8]| {
        is_whole(body.with(source).with(destination).with(segment))
    };
    let (source, destination) = (&parsed.source[width.clone()], &parsed.destination[width]);
    if is_right(source, destination) {
        return Some(true);
    }
    let routed = Routed::of(bytes, parsed);
    let is_routed = routed.home.is_some() || routed.last.is_some();
    Some(is_routed && is_right(routed.home.unwrap_or(source), routed.last.unwrap_or(destination)))
}

/// The payload of a UDP datagram: what lies behind its length is none of it.
pub(crate) fn datagram<'a>(parsed: &Parsed, bytes: &'a [u8]) -> &'a [u8] {
    let range = usize::from(parsed.payload_offset)..transport_end(parsed, bytes);
    bytes.get(range).unwrap_or_default()
}

/// Where the transport's packet ends: for UDP, where its length says.
fn transport_end(parsed: &Parsed, bytes: &[u8]) -> usize {
    let end = parsed.end as usize;
    let at = usize::from(parsed.transport_offset);
    match bytes.get(at + 4..at + 6) {
        Some(&[high, low]) if parsed.protocol == UDP && parsed.fragment.is_none() => {
            match usize::from(u16::from_be_bytes([high, low])) {
                0..8 => end,
                length => end.min(at + length),
            }
        }
        _ => end,
    }
}

/// Addresses of an IPv6 packet that its checksum is over in the place of those of its header
/// (RFC 8200 s8.1, RFC 6275 s6.3).
#[derive(Default)]
struct Routed<'a> {
    /// The last hop of a routing header.
    last: Option<&'a [u8]>,
    /// The home address that the sender is away from.
    home: Option<&'a [u8]>,
}

impl<'a> Routed<'a> {
    fn of(bytes: &'a [u8], parsed: &Parsed) -> Self {
        let mut routed = Self::default();
        let start = usize::from(parsed.network_offset);
        let range = start + IPV6_LEN..usize::from(parsed.transport_offset);
        let (Some(mut headers), Some(mut kind)) = (bytes.get(range), bytes.get(start + 6).copied())
        else {
            return routed;
        };
        while parsed.network == Network::Ipv6
            && matches!(
                kind,
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS
            )
            && let [next, length, ..] = headers
        {
            let Some((header, rest)) = headers.split_at_checked(8 + 8 * usize::from(*length))
            else {
                break;
            };
            match kind {
                protocol::ROUTING => routed.last = last_hop(header).or(routed.last),
                protocol::DESTINATION_OPTIONS => routed.home = home_address(header).or(routed.home),
                _ => {}
            }
            (kind, headers) = (*next, rest);
        }
        routed
    }
}

/// The last of the hops that a routing header has left.
fn last_hop(header: &[u8]) -> Option<&[u8]> {
    const SOURCE_ROUTE: u8 = 0;
    const MOBILE: u8 = 2;
    const SEGMENTS: u8 = 4;
    let (kind, left) = (*header.get(2)?, *header.get(3)?);
    let addresses = header.get(8..).filter(|_| left > 0)?;
    match kind {
        // The last hop stands first (RFC 8754 s2).
        SEGMENTS => addresses.get(..16),
        SOURCE_ROUTE | MOBILE => addresses.len().checked_sub(16).and_then(|it| addresses.get(it..)),
        _ => None,
    }
}

/// What a home address option says.
fn home_address(header: &[u8]) -> Option<&[u8]> {
    const HOME_ADDRESS: u8 = 0xc9;
    let mut options = header.get(2..)?;
    loop {
        options = match options {
            [0, rest @ ..] => rest,
            [HOME_ADDRESS, 16, rest @ ..] => return rest.get(..16),
            [_, length, rest @ ..] => rest.get(usize::from(*length)..)?,
            _ => return None,
        };
    }
}

/// Whether the ones-complement sum over all, checksum included, is what it must be.
fn is_whole(sum: Sum) -> bool {
    sum.folded() == 0xffff
}
