//! A glance at the first bytes of a frame: what is it, as far as anybody on the wire can tell?
//!
//! Written apart from `weir_wire::parse` on purpose. What decides that a frame is sealed and what
//! proves that it was must not share a mistake.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::policy::FrameClass;

/// Bytes that ESP with AES-GCM cannot do without: SPI, sequence number, IV, ICV (RFC 4106 s3).
const ESP_LEN_MIN: usize = 4 + 4 + 8 + 16;
/// SPIs below are reserved (RFC 4303 s2.1).
const SPI_MIN: u32 = 256;
/// UDP port of IKE's non-ESP marker and of ESP in UDP (RFC 3948).
pub(super) const NAT_TRAVERSAL_PORT: u16 = 4500;
/// UDP port of IKE.
pub(super) const IKE_PORT: u16 = 500;
/// VLAN tags and IPv6 extension headers that are passed over, at most.
const TAGS_MAX: usize = 2;
const EXTENSIONS_MAX: usize = 8;

/// What the first bytes of a frame say. Nothing of it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Destination MAC address.
    pub to: [u8; 6],
    /// Source MAC address.
    pub from: [u8; 6],
    /// EtherType behind VLAN tags.
    pub ethertype: u16,
    /// Source and destination in 16 bytes, IPv4 mapped; absent where there are none.
    pub addresses: Option<([u8; 16], [u8; 16])>,
    /// IP protocol, 0 where there is no IP.
    pub protocol: u8,
    /// What stands behind.
    pub kind: Kind,
}

/// What stands behind the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IP protocol 50, long enough to be sealed.
    Esp(EspNumbers),
    /// UDP. `esp` is set when the payload could be ESP, whatever the ports.
    Udp {
        /// Source and destination port.
        ports: (u16, u16),
        /// First four bytes of the payload; fewer are filled up with zeros.
        word: [u8; 4],
        /// Bytes of payload.
        payload_len: usize,
        /// Where the payload begins.
        payload_offset: usize,
    },
    /// TCP.
    Tcp {
        /// Source and destination port.
        ports: (u16, u16),
    },
    /// ICMP, by type.
    Icmp(u8),
    /// ICMPv6, by type, neighbour discovery excepted.
    Icmpv6(u8),
    /// Neighbour discovery as its receivers take it (RFC 4861): right behind the IPv6 header, hop
    /// limit 255, code 0.
    Discovery,
    /// ARP.
    Arp,
    /// Another protocol, or none that is known.
    Other,
    /// The headers are cut off or contradict themselves, or a later fragment.
    Unreadable,
}

/// What is readable of an ESP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspNumbers {
    /// Security parameters index.
    pub spi: u32,
    /// Low 32 bits of the sequence number.
    pub sequence: u32,
}

impl Glance {
    /// Looks at a frame of `len` bytes, whose first are `bytes`. `None`: no Ethernet header.
    #[inline]
    pub fn at(bytes: &[u8], len: usize) -> Option<Self> {
        let (to, rest) = bytes.split_first_chunk::<6>()?;
        let from = rest.first_chunk::<6>()?;
        let mut offset = 12;
        let mut ethertype = word16(bytes, offset)?;
        for _ in 0..TAGS_MAX {
            if !is_tag(ethertype) {
                break;
            }
            offset += 4;
            ethertype = word16(bytes, offset)?;
        }
        offset += 2;
        let mut glance = Self {
            to: *to,
            from: *from,
            ethertype,
            addresses: None,
            protocol: 0,
            kind: Kind::Other,
        };
        let found = match ethertype {
            0x0800 => glance.look_ipv4(bytes, offset, len),
            0x86dd => glance.look_ipv6(bytes, offset, len),
            0x0806 => glance.look_arp(bytes, offset),
            // RoCE v1: a GRH has its addresses where IPv6 has them.
            0x8915 => addresses_v6(bytes, offset).map(|it| glance.addresses = Some(it)),
            // What is behind a further tag, somebody else may read.
            tag if is_tag(tag) => None,
            _ => Some(()),
        };
        if found.is_none() {
            glance.kind = Kind::Unreadable;
        }
        Some(glance)
    }

    #[inline]
    fn look_ipv4(&mut self, bytes: &[u8], offset: usize, len: usize) -> Option<()> {
        let header = bytes.get(offset..)?.first_chunk::<20>()?;
        let address = |at: usize| {
            let mut mapped = [0; 16];
            mapped[10..12].fill(0xff);
            mapped[12..].copy_from_slice(&header[at..at + 4]);
            mapped
        };
        self.addresses = Some((address(12), address(16)));
        self.protocol = header[9];
        let header_len = usize::from(header[0] & 15) * 4;
        let is_later_fragment = word16(header, 6)? & 0x1fff != 0;
        if header[0] >> 4 != 4 || header_len < 20 || is_later_fragment {
            return None;
        }
        let end = len.min(offset + usize::from(word16(header, 2)?));
        self.look_transport(bytes, offset + header_len, end)
    }

    #[inline]
    fn look_ipv6(&mut self, bytes: &[u8], offset: usize, len: usize) -> Option<()> {
        self.addresses = Some(addresses_v6(bytes, offset)?);
        if bytes[offset] >> 4 != 6 {
            return None;
        }
        let end = len.min(offset + 40 + usize::from(word16(bytes, offset + 4)?));
        self.protocol = bytes[offset + 6];
        let mut at = offset + 40;
        for _ in 0..EXTENSIONS_MAX {
            match self.protocol {
                0 | 43 | 60 => {
                    let [next, words] = *bytes.get(at..)?.first_chunk::<2>()?;
                    self.protocol = next;
                    at += (usize::from(words) + 1) * 8;
                }
                44 => {
                    self.protocol = *bytes.get(at)?;
                    if word16(bytes, at + 2)? & 0xfff8 != 0 {
                        return None;
                    }
                    at += 8;
                }
                _ => break,
            }
        }
        self.look_transport(bytes, at, end)?;
        let is_from_the_link = bytes[offset + 6] == 58 && bytes[offset + 7] == 255;
        if is_from_the_link && matches!(bytes.get(at..at + 2)?, [133..=137, 0]) {
            self.kind = Kind::Discovery;
        }
        Some(())
    }

    #[inline]
    fn look_transport(&mut self, bytes: &[u8], at: usize, end: usize) -> Option<()> {
        let ports = || Some((word16(bytes, at)?, word16(bytes, at + 2)?));
        self.kind = match self.protocol {
            50 => Kind::Esp(esp(bytes, at, end)?),
            17 => {
                let payload_offset = at + 8;
                let payload_len = end.checked_sub(payload_offset)?;
                let mut word = [0; 4];
                let shown = bytes.get(payload_offset..).unwrap_or_default();
                for (to, from) in word.iter_mut().zip(shown.iter().take(payload_len)) {
                    *to = *from;
                }
                Kind::Udp { ports: ports()?, word, payload_len, payload_offset }
            }
            6 => Kind::Tcp { ports: ports()? },
            1 => Kind::Icmp(*bytes.get(at)?),
            58 => Kind::Icmpv6(*bytes.get(at)?),
            _ => Kind::Other,
        };
        Some(())
    }

    fn look_arp(&mut self, bytes: &[u8], offset: usize) -> Option<()> {
        let address = |at: usize| -> Option<[u8; 16]> {
            let four: &[u8; 4] = bytes.get(offset + at..)?.first_chunk()?;
            Some(Ipv4Addr::from(*four).to_ipv6_mapped().octets())
        };
        self.kind = Kind::Arp;
        self.addresses = Some((address(14)?, address(24)?));
        Some(())
    }

    /// What the frame is when it is ESP over IP or, where `in_udp` takes its ports, ESP in UDP.
    /// `bytes` are those that were looked at.
    #[inline]
    pub fn esp(&self, bytes: &[u8], in_udp: impl Fn((u16, u16)) -> bool) -> Option<EspNumbers> {
        match self.kind {
            Kind::Esp(numbers) => Some(numbers),
            Kind::Udp { ports, payload_len, payload_offset, .. } if in_udp(ports) => {
                esp(bytes, payload_offset, payload_offset + payload_len)
            }
            _ => None,
        }
    }

    /// The class of a frame that no address decides, with its name in configurations.
    #[inline]
    pub fn class(&self) -> Option<FrameClass> {
        let by_protocol = match (self.ethertype, self.kind) {
            (0x88cc, _) => Some(FrameClass::Lldp),
            (0x8809, _) => Some(FrameClass::Lacp),
            (0x888e, _) => Some(FrameClass::Eapol),
            (0x88f7, _) => Some(FrameClass::Ptp),
            (0x8808, _) => Some(FrameClass::Pause),
            (0x0806, _) => Some(FrameClass::Arp),
            (_, Kind::Discovery) => Some(FrameClass::NeighbourDiscovery),
            _ => None,
        };
        if by_protocol.is_some() {
            return by_protocol;
        }
        // Where there are addresses, or should be, a MAC address says nothing.
        if matches!(self.ethertype, 0x0800 | 0x86dd | 0x8915) || is_tag(self.ethertype) {
            return match readable(self.addresses?.1) {
                IpAddr::V4(Ipv4Addr::BROADCAST) => Some(FrameClass::Broadcast),
                to if to.is_multicast() => Some(FrameClass::Multicast),
                _ => None,
            };
        }
        if self.to[0] & 1 == 0 {
            return None;
        }
        Some(match self.to {
            [1, 0x80, 0xc2, 0, 0, 0] => FrameClass::Stp,
            [1, 0x80, 0xc2, 0, 0, 1..=15] => FrameClass::LinkLocal,
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => FrameClass::Broadcast,
            _ => FrameClass::Multicast,
        })
    }

    /// Ports of TCP or UDP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.kind {
            Kind::Udp { ports, .. } | Kind::Tcp { ports } => Some(ports),
            _ => None,
        }
    }
}

/// A frame's headers in one line, for logs and reports; never a byte of its payload.
impl std::fmt::Display for Glance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mac = |bytes: [u8; 6]| weir_wire::parse::MacAddress(bytes);
        write!(f, "{} > {} ethertype {:#06x}", mac(self.from), mac(self.to), self.ethertype)?;
        let Some((source, destination)) = self.addresses else { return Ok(()) };
        let (source, destination) = (readable(source), readable(destination));
        match self.ports() {
            Some((from, to)) => {
                write!(f, ", {source} port {from} > {destination} port {to}")?;
            }
            None => write!(f, ", {source} > {destination}")?,
        }
        match self.protocol {
            0 => Ok(()),
            protocol => write!(f, ", IP protocol {protocol}"),
        }
    }
}

/// The address in 16 bytes, IPv4 unmapped.
pub fn readable(address: [u8; 16]) -> IpAddr {
    IpAddr::from(Ipv6Addr::from(address)).to_canonical()
}

#[inline]
fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

#[inline]
fn esp(bytes: &[u8], at: usize, end: usize) -> Option<EspNumbers> {
    let header = bytes.get(at..)?.first_chunk::<8>()?;
    let (spi, sequence) = header.split_at(4);
    let number = |four: &[u8]| four.try_into().map(u32::from_be_bytes).ok();
    let numbers = EspNumbers { spi: number(spi)?, sequence: number(sequence)? };
    (numbers.spi >= SPI_MIN && end.checked_sub(at)? >= ESP_LEN_MIN).then_some(numbers)
}

#[inline]
fn addresses_v6(bytes: &[u8], offset: usize) -> Option<([u8; 16], [u8; 16])> {
    let header = bytes.get(offset..)?.first_chunk::<40>()?;
    let address = |at: usize| header[at..].first_chunk::<16>().copied();
    Some((address(8)?, address(24)?))
}

#[inline]
fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

#[cfg(test)]
mod tests {
    use weir_wire::frame::Link;
    use weir_wire::parse::{Network, Transport, parse};

    use super::*;
    use crate::classify::frame_class;

    /// The two ways of looking agree on every packet of the corpus that both can read.
    #[allow(clippy::disallowed_methods, reason = "captures are files")]
    #[test]
    fn a_glance_agrees_with_the_walk_on_real_captures() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
        let mut compared = 0;
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            let Ok(bytes) = std::fs::read(file.path()) else { continue };
            for frame in records(&bytes) {
                let Some(glance) = Glance::at(frame, frame.len()) else { continue };
                let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
                assert_eq!(glance.ethertype, parsed.link.ethertype);
                assert_eq!(glance.class(), frame_class(&parsed), "{glance}");
                if matches!(parsed.network, Network::Ipv4 | Network::Ipv6 | Network::Grh) {
                    assert_eq!(glance.addresses, Some((parsed.source, parsed.destination)));
                }
                if let Transport::Udp { source, destination } = parsed.transport {
                    assert_eq!(glance.ports(), Some((source, destination)));
                }
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared} frames");
    }

    /// The frames of a little-endian pcap file; nothing for any other.
    fn records(file: &[u8]) -> Vec<&[u8]> {
        let mut frames = Vec::new();
        let magic = file.first_chunk::<4>().map(|it| u32::from_le_bytes(*it));
        if !matches!(magic, Some(0xa1b2_c3d4 | 0xa1b2_3c4d)) {
            return frames;
        }
        let mut rest = &file[24..];
        while let Some((header, behind)) = rest.split_first_chunk::<16>() {
            let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
            let Some((frame, behind)) = behind.split_at_checked(len) else { break };
            frames.push(frame);
            rest = behind;
        }
        frames
    }

    #[test]
    fn short_esp_and_reserved_spis_are_no_seal() {
        let frame = |spi: u32, len: usize| {
            let mut bytes = vec![2; 12];
            bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 50, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            bytes[16..18].copy_from_slice(&(20 + len as u16).to_be_bytes());
            bytes.extend(spi.to_be_bytes());
            bytes.resize(34 + len, 7);
            Glance::at(&bytes, bytes.len()).unwrap().kind
        };
        assert!(matches!(frame(256, 32), Kind::Esp(EspNumbers { spi: 256, .. })));
        assert_eq!(frame(256, 31), Kind::Unreadable);
        assert_eq!(frame(255, 200), Kind::Unreadable);
    }
}
