//! What a packet carries that is one itself: VXLAN, GENEVE, GRE, ERSPAN, IP in IP, PPTP, Teredo.

use weir_wire::ethernet::ethertype;
use weir_wire::frame::Link;
use weir_wire::parse::{Network, Parsed, Transport, TunnelKind};

const IP_IN_IP: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const PORT_TEREDO: u16 = 3544;

/// Whether a packet may carry another, or is a piece of one: [`inner`] is worth a look, or
/// [`Fragments`](crate::fragments::Fragments).
#[inline]
pub fn wraps(parsed: &Parsed) -> bool {
    let is_teredo =
        |source: u16, destination: u16| source == PORT_TEREDO || destination == PORT_TEREDO;
    parsed.tunnel.is_some()
        || parsed.fragment.is_some()
        || is_overtagged(parsed)
        || match parsed.transport {
            Transport::Udp { source, destination } => is_teredo(source, destination),
            Transport::None => matches!(parsed.protocol, IP_IN_IP | IPV6 | GRE),
            _ => false,
        }
}

/// Whether it has more VLAN tags than are walked over: what follows them nobody knows.
pub fn is_overtagged(parsed: &Parsed) -> bool {
    parsed.fault.is_some() && ethertype::is_vlan(parsed.link.ethertype)
}

/// Where the packet begins that another carries, and what it begins with.
pub fn inner(bytes: &[u8], parsed: &Parsed) -> Option<(usize, Link, &'static str)> {
    if let Some(tunnel) = parsed.tunnel {
        let at = usize::from(tunnel.inner_offset);
        // What VXLAN carries are IP packets: the frame around them is passed over.
        const IPV4: [u8; 2] = ethertype::IPV4.to_be_bytes();
        const IPV6: [u8; 2] = ethertype::IPV6.to_be_bytes();
        if tunnel.kind == TunnelKind::Vxlan
            && let Some([a, b]) = bytes.get(at + 12..at + 14)
            && matches!([*a, *b], IPV4 | IPV6)
        {
            return Some((at + 14, Link::Ip, "vxlan encapsulation"));
        }
        let source = match tunnel.kind {
            TunnelKind::Vxlan => "vxlan encapsulation",
            TunnelKind::Geneve => "geneve encapsulation",
            TunnelKind::Gre | TunnelKind::Erspan => "gre tunnel",
        };
        return Some((tunnel.inner_offset.into(), tunnel.inner_link, source));
    }
    let transport = usize::from(parsed.transport_offset);
    let is_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
    match (parsed.protocol, parsed.transport) {
        (IP_IN_IP | IPV6, _) if is_ip => {
            let is_v4 = parsed.network == Network::Ipv4;
            Some((transport, Link::Ip, if is_v4 { "ipv4 tunnel" } else { "ipv6 tunnel" }))
        }
        (GRE, _) if is_ip => {
            const PPP: [u8; 2] = [0x88, 0x0b];
            let is_ppp = bytes.get(transport + 2..transport + 4)? == PPP;
            is_ppp.then_some((usize::from(ppp_offset(bytes, transport)?), Link::Ppp, "gre tunnel"))
        }
        (_, Transport::Udp { source, destination })
            if source == PORT_TEREDO || destination == PORT_TEREDO =>
        {
            teredo(bytes, parsed)
        }
        _ => None,
    }
}

/// Behind a GRE header of version 0 or 1 (RFC 2637), which carries PPP.
fn ppp_offset(bytes: &[u8], at: usize) -> Option<u16> {
    let [flags, more] = *bytes.get(at..at + 2)?.first_chunk()?;
    let bit = |byte: u8, mask: u8| usize::from(byte & mask != 0);
    let length = match more & 7 {
        0 => 4 + 4 * (bit(flags, 0xc0) + bit(flags, 0x20) + bit(flags, 0x10)),
        1 => 8 + 4 * (bit(flags, 0x10) + bit(more, 0x80)),
        _ => return None,
    };
    u16::try_from(at + length).ok()
}

/// IPv6 behind what Teredo may put before it (RFC 4380).
fn teredo(bytes: &[u8], parsed: &Parsed) -> Option<(usize, Link, &'static str)> {
    let mut at = usize::from(parsed.payload_offset);
    if let [0, 1, name, value, ..] = bytes.get(at..)? {
        at += 4 + usize::from(*name) + usize::from(*value) + 9;
    }
    if let [0, 0, ..] = bytes.get(at..)? {
        at += 8;
    }
    let header = bytes.get(at..)?;
    let length = usize::from(u16::from_be_bytes([*header.get(4)?, *header.get(5)?]));
    let is_whole = header.first()? >> 4 == 6 && header.len() >= 40 + length;
    is_whole.then_some((at, Link::Ip, "teredo tunnel"))
}
