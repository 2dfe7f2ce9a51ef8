//! How far Suricata 8.0.7 takes packets apart, where Weir goes further: a test whose judge it is
//! sees no more (`weir verify`).

use weir_detect::decode::Event;
use weir_detect::{icmp, tags};
use weir_wire::frame::Link;
use weir_wire::ip::{Ipv4Header, protocol};
use weir_wire::parse::{Fault, Network, Parsed, Transport};

use super::layers::Layer;

/// Where IPv4's header names what it carries (RFC 791 s3.1).
const PROTOCOL_OFFSET: usize = 9;
/// Where IPv6's header has its hop limit (RFC 8200 s3).
const HOP_LIMIT_OFFSET: usize = 7;
/// Labels of MPLS.
const LABELS: [[u8; 2]; 2] = [[0x88, 0x47], [0x88, 0x48]];
/// What stands before IPv6, where Teredo's sender proves who it is (RFC 4380 s5.1.1).
const TEREDO_AUTHENTICATION: [u8; 2] = [0, 1];

/// Takes from a packet what Suricata does not find: what stands behind labels that no packet
/// follows, IP that is no whole packet, IPv4 whose options end nowhere, the inside of an
/// authentication header over IPv4, headers that cannot be, and payloads of protocols that it knows
/// nothing of. A length in a type's place is an unknown type to it.
pub(super) fn know_no_more(layer: &mut Layer<'_>) {
    let Layer { bytes, link, parsed, events, .. } = layer;
    events.extend(length_as_type(bytes, *link));
    events.retain(|it| *it != Event::Ipv6TooSmall);
    let hides = |it: &Event| {
        use Event as E;
        let is_label = matches!(it, E::MplsRouterAlert | E::MplsImplicitNull | E::MplsReserved);
        let is_no_v4 = matches!(
            it,
            E::Ipv4TooSmall
                | E::Ipv4WrongVersion
                | E::Ipv4HeaderTooSmall
                | E::Ipv4LengthTooSmall
                | E::Ipv4Truncated
        );
        let is_no_v6 = matches!(it, E::Ipv6TooSmall | E::Ipv6WrongVersion | E::Ipv6Truncated);
        let is_too_deep = matches!(it, E::VlanTooManyLayers | E::TooManyLayers);
        is_label || is_no_v4 || is_no_v6 || is_too_deep
    };
    let has_broken_options = has_broken_options(bytes, parsed);
    if has_broken_options {
        events.retain(|it| it.name().starts_with("decoder.ipv4."));
    }
    let is_none = events.contains(&Event::Ipv6WithIcmpv4) || has_broken_options;
    if events.iter().any(hides) || is_none {
        *parsed = Parsed { link: parsed.link, end: parsed.end, ..Parsed::default() };
        return;
    }
    let is_v4 = parsed.network == Network::Ipv4;
    let named = bytes.get(usize::from(parsed.network_offset) + PROTOCOL_OFFSET);
    if is_v4 && named == Some(&protocol::AH) {
        (parsed.protocol, parsed.rdma, parsed.tunnel) = (protocol::AH, None, None);
    }
    let is_bad = parsed.fault == Some(Fault::Malformed)
        && matches!(parsed.protocol, protocol::TCP | protocol::UDP);
    if parsed.fragment.is_none() && (is_bad || !is_known(parsed)) {
        parsed.transport = Transport::None;
        parsed.payload_offset =
            parsed.payload_offset.max(parsed.end.try_into().unwrap_or(u16::MAX));
    }
    if let Transport::Icmp { kind, code } = parsed.transport {
        layer.payload = Some(message_payload(bytes, parsed, [kind, code]));
    }
}

/// Where what ICMP carries begins and ends for Suricata: of types of ICMPv6 and codes that it does
/// not know, four bytes behind the message's beginning and eight before its end; it is nothing
/// where a message of ICMP is cut short.
fn message_payload(bytes: &[u8], parsed: &Parsed, [kind, code]: [u8; 2]) -> [usize; 2] {
    let start = usize::from(parsed.transport_offset);
    let end = parsed.end as usize;
    let is_known = match kind {
        2 | 128 | 129 => code == 0,
        1 => code <= 6,
        3 => code <= 1,
        4 => code <= 2,
        _ => false,
    };
    if parsed.network == Network::Ipv6 && !is_known {
        let from = (start + 4).min(end);
        return [from, end.saturating_sub(8).max(from)];
    }
    let from = icmp::payload_offset(parsed, bytes).filter(|_| end >= start + 8);
    [from.unwrap_or(end), end]
}

/// Layers that Suricata counts up to a packet's addresses (`decoder.max-layers`), `labels` of MPLS
/// among them: one for the capture, and one for what carries another.
pub(super) fn layers(layer: &Layer<'_>, labels: usize) -> usize {
    let Layer { parsed, vlans, .. } = layer;
    let own = usize::from(layer.link != Link::Ip)
        + vlans.ids().len()
        + labels
        + usize::from(parsed.network != Network::None);
    match layer.outer {
        None => 1 + own,
        Some(outer) if layer.source == "defrag" => layers(outer, 0),
        Some(outer) => {
            layers(outer, 0) + 1 + own + usize::from(outer.parsed.protocol == protocol::GRE)
        }
    }
}

/// What is odd about a frame that says how long it is where others say what it carries (IEEE
/// 802.3), behind its tags.
fn length_as_type(bytes: &[u8], link: Link) -> Vec<Event> {
    const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
    const LENGTH_MAX: u16 = 0x5ff;
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let is_tag = |at: usize| word(at).is_some_and(|it| TAGS.contains(&it));
    let mut at = 12;
    while is_tag(at) {
        at += 4;
    }
    let is_length = link == Link::Ethernet && word(at).is_some_and(|it| it <= LENGTH_MAX);
    let unknown = [Event::EthernetUnknownType, Event::VlanUnknownType];
    unknown[..if at == 12 { 1 } else { 2 }].iter().filter(|_| is_length).copied().collect()
}

/// Whether the options of IPv4 end behind their header: it is none for Suricata.
fn has_broken_options(bytes: &[u8], parsed: &Parsed) -> bool {
    let start = usize::from(parsed.network_offset);
    let Some(first) = bytes.get(start).filter(|_| parsed.network == Network::Ipv4) else {
        return false;
    };
    let end = start + usize::from(first & 15) * 4;
    let mut options = bytes.get(start + Ipv4Header::LEN..end).unwrap_or_default();
    loop {
        options = match options {
            [0, ..] => return false,
            [1, behind @ ..] => behind,
            [_, length, ..] => match options.get(usize::from(*length)..) {
                Some(behind) if *length >= 2 => behind,
                _ => return true,
            },
            _ => return false,
        }
    }
}

/// Whether Suricata looks behind the headers of IP.
fn is_known(parsed: &Parsed) -> bool {
    use protocol::{ESP, GRE, ICMP, ICMPV6, IPV4, IPV6, NO_NEXT_HEADER, SCTP, TCP, UDP};
    match (parsed.network, parsed.protocol) {
        (Network::Ipv4, ICMPV6 | NO_NEXT_HEADER) => false,
        (Network::Ipv4 | Network::Ipv6, number) => {
            let is_tunnel = matches!(number, IPV4 | IPV6 | GRE);
            let is_transport = matches!(number, ICMP | TCP | UDP | ESP | ICMPV6 | SCTP);
            is_tunnel || is_transport || number == NO_NEXT_HEADER || parsed.rdma.is_some()
        }
        _ => true,
    }
}

/// Whether Suricata does not look at what a datagram carries, which begins at `start`: behind
/// Teredo's authentication, or without hops, and labels in a frame of VXLAN.
pub(super) fn is_closed(outer: &Layer<'_>, start: usize, source: &str) -> bool {
    let payload = outer.parsed.payload(outer.bytes);
    let kind = outer.bytes.get(start + 12..start + 14);
    match source {
        "teredo tunnel" => {
            let has_no_hops = outer.bytes.get(start + HOP_LIMIT_OFFSET) == Some(&0);
            payload.starts_with(&TEREDO_AUTHENTICATION) || has_no_hops
        }
        "vxlan encapsulation" => LABELS.iter().any(|it| kind == Some(it)),
        _ => false,
    }
}

/// Whether rules look at no payload of a datagram, because what is in it is decoded, which begins
/// with `link`'s header.
pub(super) fn is_carrier(outer: &Parsed, inner: &[u8], link: Link, source: &str) -> bool {
    let network = tags::look_behind(inner, link, inner.len() as u32).parsed.network;
    let is_decoded = match network {
        Network::Ipv4 | Network::Ipv6 => true,
        Network::Arp => source == "geneve encapsulation",
        _ => false,
    };
    outer.protocol == protocol::UDP && is_decoded
}
