//! Whether a packet's checksums are right (`tcpv4-csum` and the like).

use weir_wire::checksum::Sum;
use weir_wire::parse::{Network, Parsed};

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

/// Whether a packet is a TCP segment whose checksum, or whose IPv4 header's, is wrong.
pub(crate) fn is_segment_wrong(bytes: &[u8], parsed: &Parsed) -> bool {
    let is_wrong = |of| is_valid(of, bytes, parsed) == Some(false);
    match parsed.network {
        Network::Ipv4 => {
            parsed.protocol == TCP && (is_wrong(Checksum::Ipv4) || is_wrong(Checksum::Tcpv4))
        }
        _ => is_wrong(Checksum::Tcpv6),
    }
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
    let segment = bytes.get(usize::from(parsed.transport_offset)..parsed.end as usize)?;
    if matches!(of, Checksum::Udpv4) && segment.get(6..8)? == [0, 0] {
        // The sender gave none.
        return None;
    }
    let mut head = Sum::new();
    if of != Checksum::Icmpv4 {
        let width = if network == Network::Ipv4 { 12.. } else { 0.. };
        head = head.with(&parsed.source[width.clone()]).with(&parsed.destination[width]);
        head = head.with_u16(u16::from(protocol)).with_u32(segment.len() as u32);
    }
    // The last piece, which may be odd.
    Some(is_whole(head.with(segment)))
}

/// Whether the ones-complement sum over all, checksum included, is what it must be.
fn is_whole(sum: Sum) -> bool {
    sum.folded() == 0xffff
}
