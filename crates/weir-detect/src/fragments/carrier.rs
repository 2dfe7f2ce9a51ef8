//! What carries a piece of a datagram through a tunnel. A piece that another tunnel brings is of
//! another datagram, and one whose carrier its receiver discards is none.

use weir_wire::checksum::Sum;
use weir_wire::ip::protocol;
use weir_wire::parse::{Network, Parsed};

use super::ETHERNET_LEN;
use crate::checksums::{is_carrier_wrong, is_shorter};

/// Congestion was met on the way (RFC 3168 s5), and who can tell its sender.
const CONGESTED: u8 = 3;
const ECN: u8 = 3;
/// Flags of GRE's first byte (RFC 2784, RFC 2890), and the version that PPTP has (RFC 2637).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;
const GRE_VERSION: u8 = 7;

/// A packet that carries another, and what carries it in turn.
#[derive(Clone, Copy, Debug)]
pub struct Carrier<'c> {
    /// From its link header on.
    pub bytes: &'c [u8],
    /// What the walk found.
    pub parsed: &'c Parsed,
    /// Where in it the packet begins that it carries.
    pub inner: usize,
    /// Its transport checksum is right, or left to an adapter.
    pub is_verified: bool,
    /// What carries it.
    pub outer: Option<&'c Carrier<'c>>,
}

/// The way of a piece: of which tunnels it comes, and what decides whether their ends take it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) tunnels: Vec<u8>,
    pub(super) lead: Vec<u8>,
}

impl Way {
    /// That of a packet with such ECN bits, which this brings.
    pub(super) fn by(carrier: Option<&Carrier<'_>>, traffic_class: u8) -> Self {
        let mut way = Self::default();
        let (mut next, mut inner_ecn) = (carrier, traffic_class & ECN);
        while let Some(carrier) = next {
            carrier.tell(&mut way, inner_ecn);
            inner_ecn = carrier.parsed.traffic_class & ECN;
            next = carrier.outer;
        }
        way
    }
}

impl Carrier<'_> {
    fn tell(&self, way: &mut Way, inner_ecn: u8) {
        let Self { bytes, parsed, .. } = self;
        let (network, transport) =
            (usize::from(parsed.network_offset), usize::from(parsed.transport_offset));
        way.tunnels.extend(parsed.source.iter().chain(&parsed.destination));
        way.tunnels.push(parsed.protocol);
        self.tell_tunnel(transport, &mut way.tunnels);
        let lead = &mut way.lead;
        if network >= ETHERNET_LEN {
            lead.extend_from_slice(&bytes[..6]);
            lead.extend_from_slice(&bytes[12..network]);
        }
        let header_len = if parsed.network == Network::Ipv6 { 40 } else { 20 };
        lead.extend_from_slice(bytes.get(network + header_len..transport).unwrap_or_default());
        // A packet whose sender knows nothing of ECN ends where its carrier met congestion (RFC
        // 6040 s4.2).
        let is_lost = inner_ecn == 0 && parsed.traffic_class & ECN == CONGESTED;
        let is_wrong = is_carrier_wrong(bytes, parsed, self.is_verified) || self.is_gre_wrong();
        let is_shorter = is_shorter(bytes, parsed);
        lead.extend([parsed.hop_limit, is_lost.into(), is_wrong.into(), is_shorter.into()]);
    }

    /// Which of the tunnels between its ends it is.
    fn tell_tunnel(&self, transport: usize, tunnels: &mut Vec<u8>) {
        let Self { bytes, parsed, inner, .. } = self;
        let header = bytes.get(transport..*inner).unwrap_or_default();
        match header {
            [_, _, _, _, _, _, _, _, behind @ ..] if parsed.protocol == protocol::UDP => {
                tunnels.extend(&header[2..4]);
                tunnels.extend(behind);
            }
            [flags, version, kind @ ..] if parsed.protocol == protocol::GRE => {
                tunnels.extend([*flags, *version]);
                tunnels.extend(kind.iter().take(2));
                // Of PPTP the number of the call, behind the length.
                let (at, len) = match (version & GRE_VERSION, flags & GRE_CHECKSUM) {
                    (1, _) => (4, 2),
                    (_, 0) => (2, 4),
                    _ => (6, 4),
                };
                if flags & GRE_KEY != 0 {
                    tunnels.extend(kind.iter().skip(at).take(len));
                }
            }
            _ => {}
        }
    }

    fn is_gre_wrong(&self) -> bool {
        let Self { bytes, parsed, .. } = self;
        let end = (parsed.end as usize).min(bytes.len());
        let packet = bytes.get(usize::from(parsed.transport_offset)..end).unwrap_or_default();
        let has_checksum = packet.first().is_some_and(|it| it & GRE_CHECKSUM != 0);
        parsed.protocol == protocol::GRE && has_checksum && Sum::new().with(packet).checksum() != 0
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::checksum::pseudo_header_v4;
    use weir_wire::frame::{Link, Time};
    use weir_wire::parse::parse;

    use super::super::{Fragments, Policy, Taken};
    use super::*;

    const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

    fn ip(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend((20 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 7]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(ADDRESSES.concat());
        let sum = Sum::new().with(&packet).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }

    fn vxlan(fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut udp = vec![0x15, 0xb3, 0x12, 0xb5, 0, 0, 0, 0];
        udp.extend([8, 0, 0, 0, 0, 0, 5, 0]);
        udp.extend([3; 12]);
        udp.extend([8, 0]);
        udp.extend(ip(protocol::UDP, fragment, payload));
        let len = udp.len() as u16;
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        let sum = pseudo_header_v4(ADDRESSES[0], ADDRESSES[1], protocol::UDP, len).with(&udp);
        udp[6..8].copy_from_slice(&sum.udp_checksum().to_be_bytes());
        [vec![2; 12], vec![8, 0], ip(protocol::UDP, 0, &udp)].concat()
    }

    fn take(fragments: &mut Fragments, frame: &[u8], inner: usize) -> Taken {
        let outer = parse(frame, Link::Ethernet, frame.len() as u32);
        let carrier =
            Carrier { bytes: frame, parsed: &outer, inner, is_verified: false, outer: None };
        let piece = &frame[inner..];
        let parsed = parse(piece, Link::Ip, piece.len() as u32);
        fragments.take_from(Time(1), piece, &parsed, Some(&carrier))
    }

    const INNER: usize = 14 + 20 + 8 + 8 + 14;
    const FIRST: u16 = 0x2000;
    const LAST: u16 = 2;

    #[test]
    fn pieces_of_one_tunnel_make_a_datagram_whatever_port_it_chose() {
        let mut fragments = Fragments::new(Policy::Linux, 0);
        fragments.refuse_conflicts(true);
        assert_eq!(take(&mut fragments, &vxlan(FIRST, &[1; 16]), INNER).whole, None);
        let mut last = vxlan(LAST, b"evil");
        // Another source port, and the checksum that goes with it.
        (last[34], last[40]) = (0x16, last[40].wrapping_sub(1));
        assert!(take(&mut fragments, &last, INNER).whole.is_some());
    }

    #[test]
    fn what_another_tunnel_brings_or_no_receiver_takes_makes_no_datagram_whole() {
        const HOP_LIMIT: usize = 14 + 8;
        const DESTINATION: usize = 14 + 19;
        const UDP_CHECKSUM: usize = 34 + 6;
        const VNI: usize = 34 + 8 + 6;
        const TRAFFIC_CLASS: usize = 14 + 1;
        for (what, at, bits) in [
            ("another MAC address", 0, 1),
            ("another VNI", VNI, 1),
            ("reserved bits of VXLAN", VNI + 1, 1),
            ("another end of the tunnel", DESTINATION, 1),
            ("a wrong header", 14 + 10, 1),
            ("other hops left", HOP_LIMIT, 1),
            ("a wrong checksum", UDP_CHECKSUM, 1),
            ("a carrier that met congestion", TRAFFIC_CLASS, CONGESTED),
        ] {
            for is_first in [true, false] {
                let mut fragments = Fragments::new(Policy::Linux, 0);
                fragments.refuse_conflicts(true);
                let pieces = [vxlan(FIRST, &[1; 16]), vxlan(LAST, b"good")];
                let (mut decoy, other) = if is_first {
                    pieces.into()
                } else {
                    let [first, last] = pieces;
                    (last, first)
                };
                decoy[at] ^= bits;
                assert_eq!(take(&mut fragments, &decoy, INNER).whole, None, "{what}");
                assert_eq!(take(&mut fragments, &other, INNER).whole, None, "{what}");
            }
        }
    }

    #[test]
    fn calls_and_keys_of_gre_are_tunnels_and_numbers_are_not() {
        let gre = |header: &[u8], fragment, payload: &[u8]| {
            let carried = [header, &ip(protocol::UDP, fragment, payload)].concat();
            [vec![2; 12], vec![8, 0], ip(protocol::GRE, 0, &carried)].concat()
        };
        let whole = |one: &[u8], other: &[u8]| {
            let mut fragments = Fragments::new(Policy::Linux, 0);
            fragments.refuse_conflicts(true);
            let inner = 34 + one.len();
            take(&mut fragments, &gre(one, FIRST, &[1; 16]), inner);
            take(&mut fragments, &gre(other, LAST, b"evil"), inner).whole.is_some()
        };
        let keyed = |key: u8, number: u8| [0x30, 0, 8, 0, 0, 0, 0, key, 0, 0, 0, number];
        assert!(whole(&keyed(1, 1), &keyed(1, 2)));
        assert!(!whole(&keyed(1, 1), &keyed(2, 2)));
        let call = |call: u8, len: u8| [0x30, 1, 0x88, 0xb, 0, len, 0, call, 0, 0, 0, len];
        assert!(whole(&call(1, 30), &call(1, 20)));
        assert!(!whole(&call(1, 30), &call(2, 30)));
        let summed = |error: u16, fragment, payload: &[u8]| {
            let mut frame = gre(&[0x80, 0, 8, 0, 0, 0, 0, 0], fragment, payload);
            let sum = Sum::new().with(&frame[34..]).checksum() ^ error;
            frame[38..40].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        for (error, is_whole) in [(0, true), (1, false)] {
            let mut fragments = Fragments::new(Policy::Linux, 0);
            fragments.refuse_conflicts(true);
            take(&mut fragments, &summed(0, FIRST, &[1; 16]), 42);
            let taken = take(&mut fragments, &summed(error, LAST, b"evil"), 42);
            assert_eq!(taken.whole.is_some(), is_whole, "{error}");
        }
    }
}
