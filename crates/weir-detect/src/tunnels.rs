//! What a packet carries that is one itself: VXLAN, GENEVE, GRE, ERSPAN, IP in IP, PPTP, Teredo,
//! and IP over InfiniBand in packets of native InfiniBand.

use weir_wire::bth::Opcode;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::Link;
use weir_wire::ip::{Ipv4Header, Ipv6Header};
use weir_wire::ipoib::{IpoibArp, IpoibHeader};
use weir_wire::parse::{Encapsulation, Network, Parsed, Rdma, Transport, Tunnel, TunnelKind};
use weir_wire::tunnel::{GeneveHeader, VxlanHeader, inner_link};
use weir_wire::udp::{PORT_GENEVE, PORT_VXLAN};
use zerocopy::FromBytes;

use crate::tags;

const IP_IN_IP: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
/// Ports of each kind, at most.
pub const PORTS_MAX: usize = 4;

/// The UDP ports at which datagrams carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPorts {
    /// VXLAN (RFC 7348), by the destination; Linux's own default is 8472, which some overlays keep.
    pub vxlan: Ports,
    /// GENEVE (RFC 8926), by the destination.
    pub geneve: Ports,
    /// Teredo (RFC 4380), by either end.
    pub teredo: Ports,
}

/// Some UDP ports, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Whichever it is.
    Any,
    /// These; places that are left over are 0.
    These([u16; PORTS_MAX]),
}

impl Ports {
    /// None at all.
    pub const NONE: Self = Self::These([0; PORTS_MAX]);

    /// A few of them; `None`: more than [`PORTS_MAX`].
    pub fn of(ports: &[u16]) -> Option<Self> {
        let mut these = [0; PORTS_MAX];
        these.get_mut(..ports.len())?.copy_from_slice(ports);
        Some(Self::These(these))
    }

    const fn one(port: u16) -> Self {
        Self::These([port, 0, 0, 0])
    }

    #[inline]
    fn has(&self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::These(these) => port != 0 && these.contains(&port),
        }
    }
}

impl Default for TunnelPorts {
    fn default() -> Self {
        let (vxlan, geneve) = (Ports::one(PORT_VXLAN), Ports::one(PORT_GENEVE));
        Self { vxlan, geneve, teredo: Ports::one(3544) }
    }
}

/// What a packet carries: where it begins, with which link, and how EVE calls it.
pub type Inner = (usize, Link, &'static str);

/// Whether it has more VLAN tags than are walked over: what follows them nobody knows.
pub fn is_overtagged(parsed: &Parsed) -> bool {
    parsed.fault.is_some() && ethertype::is_vlan(parsed.link.ethertype)
}

/// Where what a packet carries ends: before the padding and the ICRC of native InfiniBand.
pub fn inner_end(parsed: &Parsed) -> usize {
    let end = parsed.end as usize;
    let message = native(parsed).map(|it| [it.payload_offset, it.payload_len].map(usize::from));
    message.map_or(end, |[offset, length]| end.min(offset + length))
}

/// What is said of RDMA that needs no Ethernet.
#[inline]
fn native(parsed: &Parsed) -> Option<&Rdma> {
    parsed.rdma.as_ref().filter(|it| it.encapsulation == Encapsulation::InfiniBand)
}

impl TunnelPorts {
    /// The ports of VXLAN and GENEVE: who sends there chooses the source port by what is carried.
    pub fn by_destination(&self) -> Vec<u16> {
        let these = |ports: &Ports| match ports {
            Ports::Any => [0; PORTS_MAX],
            Ports::These(these) => *these,
        };
        let ports = [these(&self.vxlan), these(&self.geneve)].concat();
        ports.into_iter().filter(|it| *it != 0).collect()
    }

    /// Whether a packet may carry another, or is a piece of one: [`TunnelPorts::inner`] is worth a
    /// look, or [`Fragments`](crate::fragments::Fragments).
    #[inline]
    pub fn wraps(&self, parsed: &Parsed) -> bool {
        parsed.tunnel.is_some()
            || parsed.fragment.is_some()
            || is_overtagged(parsed)
            || tags::hides(parsed)
            || match parsed.transport {
                Transport::Udp { source, destination } => {
                    self.vxlan.has(destination)
                        || self.geneve.has(destination)
                        || self.is_teredo(source, destination)
                }
                Transport::None => {
                    matches!(parsed.protocol, IP_IN_IP | IPV6 | GRE) || native(parsed).is_some()
                }
                // From port 4500 to one of these, perhaps.
                Transport::Esp { in_udp, .. } => in_udp,
                _ => false,
            }
    }

    #[inline]
    fn is_teredo(&self, source: u16, destination: u16) -> bool {
        self.teredo.has(source) || self.teredo.has(destination)
    }

    /// What a packet carries, if it does.
    pub fn inner(&self, bytes: &[u8], parsed: &Parsed) -> Option<Inner> {
        if let Some(Tunnel { kind: TunnelKind::Gre | TunnelKind::Erspan, .. }) = parsed.tunnel {
            let tunnel = parsed.tunnel?;
            return Some((tunnel.inner_offset.into(), tunnel.inner_link, "gre tunnel"));
        }
        let datagram = parsed.datagram(bytes);
        let parsed = datagram.as_ref().unwrap_or(parsed);
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
                let offset = usize::from(ppp_offset(bytes, transport)?);
                is_ppp.then_some((offset, Link::Ppp, "gre tunnel"))
            }
            (_, Transport::Udp { source, destination }) => {
                let at = usize::from(parsed.payload_offset);
                let vxlan = || vxlan(bytes, at).filter(|_| self.vxlan.has(destination));
                let geneve = || geneve(bytes, at).filter(|_| self.geneve.has(destination));
                let teredo = || teredo(bytes, at).filter(|_| self.is_teredo(source, destination));
                vxlan().or_else(geneve).or_else(teredo)
            }
            _ => ipoib(bytes, native(parsed)?),
        }
    }
}

/// Behind a VXLAN header. What it carries are IP packets: the frame around them is passed over.
fn vxlan(bytes: &[u8], at: usize) -> Option<Inner> {
    const IPV4: [u8; 2] = ethertype::IPV4.to_be_bytes();
    const IPV6: [u8; 2] = ethertype::IPV6.to_be_bytes();
    let (header, _) = VxlanHeader::ref_from_prefix(bytes.get(at..)?).ok()?;
    header.vni()?;
    let at = at + size_of::<VxlanHeader>();
    Some(match bytes.get(at + 12..at + 14) {
        Some([a, b]) if matches!([*a, *b], IPV4 | IPV6) => {
            (at + 14, Link::Ip, "vxlan encapsulation")
        }
        _ => (at, Link::Ethernet, "vxlan encapsulation"),
    })
}

/// Behind a GENEVE header and its options.
fn geneve(bytes: &[u8], at: usize) -> Option<Inner> {
    let (header, _) = GeneveHeader::ref_from_prefix(bytes.get(at..)?).ok()?;
    let link = inner_link(header.protocol.get()).filter(|_| header.version() == 0)?;
    Some((at + header.header_len(), link, "geneve encapsulation"))
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
fn teredo(bytes: &[u8], mut at: usize) -> Option<Inner> {
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

/// Behind the header of IPoIB, as datagrams have it (RFC 4391 s6), and messages of connected mode
/// that are one packet (RFC 4755). A capture does not tell which queue pairs are for IPoIB: what
/// fits is taken for it (docs/adr/0320). Of IP, the header is passed over.
fn ipoib(bytes: &[u8], rdma: &Rdma) -> Option<Inner> {
    const SENDS: [Opcode; 3] = [Opcode::UD_SEND_ONLY, Opcode::RC_SEND_ONLY, Opcode::UC_SEND_ONLY];
    let payload = Some(rdma.payload(bytes)).filter(|_| SENDS.contains(&rdma.opcode))?;
    let (header, packet) = IpoibHeader::ref_from_prefix(payload).ok()?;
    let at = usize::from(rdma.payload_offset);
    let (fits, start, link) = match header.ethertype.get() {
        ethertype::IPV4 => (is_ipv4(packet), at + IpoibHeader::LEN, Link::Ip),
        ethertype::IPV6 => (is_ipv6(packet), at + IpoibHeader::LEN, Link::Ip),
        ethertype::ARP => {
            let arp = IpoibArp::of(packet);
            (arp.is_some_and(|it| it.is_ipv4_over_infiniband()), at, Link::Ipoib)
        }
        _ => return None,
    };
    fits.then_some((start, link, "ipoib encapsulation"))
}

/// Whether this is a packet of IPv4, whole.
fn is_ipv4(packet: &[u8]) -> bool {
    Ipv4Header::ref_from_prefix(packet).is_ok_and(|(header, _)| {
        let (head, total) = (header.header_len(), usize::from(header.total_len.get()));
        let is_header = header.version() == 4 && head >= Ipv4Header::LEN;
        is_header && (head..=packet.len()).contains(&total)
    })
}

/// Whether this is a packet of IPv6, whole.
fn is_ipv6(packet: &[u8]) -> bool {
    Ipv6Header::ref_from_prefix(packet).is_ok_and(|(header, behind)| {
        header.version() == 6 && usize::from(header.payload_len.get()) <= behind.len()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_wire::parse::parse;

    use super::*;

    fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0, 0, (28 + payload.len()) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 8 + payload.len() as u8, 0, 0]);
        bytes.extend(payload);
        bytes
    }

    fn inner(ports: TunnelPorts, port: u16, payload: &[u8]) -> Option<Inner> {
        let bytes = datagram(port, payload);
        let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
        let inner = ports.inner(&bytes, &parsed);
        assert!(inner.is_none() || ports.wraps(&parsed), "{parsed:?}");
        inner
    }

    #[test]
    fn a_datagram_carries_a_packet_at_its_kind_s_ports_alone() {
        let usual = TunnelPorts::default();
        let mut vxlan = [0; 30];
        (vxlan[0], vxlan[20]) = (8, 8);
        let in_ip = Some((42 + 22, Link::Ip, "vxlan encapsulation"));
        assert_eq!(inner(usual, 4789, &vxlan), in_ip);
        assert_eq!(inner(usual, 8472, &vxlan), None);
        let linux = TunnelPorts { vxlan: Ports::of(&[8472]).unwrap(), ..usual };
        assert_eq!(inner(linux, 8472, &vxlan), in_ip);
        assert_eq!(inner(linux, 4789, &vxlan), None);
        vxlan[0] = 0;
        assert_eq!(inner(usual, 4789, &vxlan), None, "without a VNI");

        let geneve = [1, 0, 0x65, 0x58, 0, 0, 7, 0, 0, 0, 0, 0];
        let in_ethernet = Some((42 + 12, Link::Ethernet, "geneve encapsulation"));
        assert_eq!(inner(usual, 6081, &geneve), in_ethernet);
        let none = TunnelPorts { geneve: Ports::NONE, ..usual };
        assert_eq!(inner(none, 6081, &geneve), None);

        let mut teredo = [0; 40];
        teredo[0] = 0x60;
        let in_teredo = Some((42, Link::Ip, "teredo tunnel"));
        assert_eq!(inner(usual, 3544, &teredo), in_teredo);
        assert_eq!(inner(usual, 99, &teredo), None);
        assert_eq!(inner(TunnelPorts { teredo: Ports::Any, ..usual }, 99, &teredo), in_teredo);
        assert_eq!(Ports::of(&[1; 5]), None);
    }

    proptest! {
        #[test]
        fn what_a_message_of_infiniband_carries_lies_in_it(
            opcode in prop::sample::select(&[0x04_u8, 0x24, 0x64, 0x65, 0x0a]),
            kind in prop::sample::select(&[[8_u8, 0], [0x86, 0xdd], [8, 6]]),
            first in prop::sample::select(&[0x45_u8, 0x4f, 0x60, 0]),
            behind in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let extension = match opcode { 0x64 => 8, 0x65 => 12, 0x0a => 16, _ => 0 };
            let mut bytes = vec![0, 2, 0, 2, 0, 0, 0, 1, opcode];
            bytes.resize(20 + extension, 0);
            bytes.extend([kind[0], kind[1], 0, 0, first, 0, 0]);
            bytes.extend(behind);
            bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
            bytes[5] = (bytes.len() / 4) as u8;
            bytes.extend([0; 2]);
            let parsed = parse(&bytes, Link::InfiniBand, bytes.len() as u32);
            prop_assert!(TunnelPorts::default().wraps(&parsed));
            let inner = TunnelPorts::default().inner(&bytes, &parsed);
            let is_send = matches!(opcode, 0x04 | 0x24 | 0x64);
            prop_assert!(is_send || inner.is_none());
            if let Some((start, link, _)) = inner {
                let inner = bytes.get(start..inner_end(&parsed)).expect("within the packet");
                let found = parse(inner, link, inner.len() as u32);
                prop_assert!(found.network != Network::None);
            }
        }
    }
}
