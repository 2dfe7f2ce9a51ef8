//! What stands before an ESP packet on the wire: Ethernet, IPv4 or IPv6, UDP (RFC 3948), and the
//! EtherIP header inside it that carries whole Ethernet frames (RFC 3378).
//!
//! DSCP, VLAN priority and ECN of the inner packet are copied out (RFC 4301 s5.1.2, RFC 6040 normal
//! mode; the policy may map the first two), and congestion met on the way is carried back in by
//! [`combine_ecn`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use weir_wire::checksum::{self, Sum};
use weir_wire::esp::EspHeader;
use weir_wire::frame::{Frame, PartialChecksum};
use weir_wire::parse::{MacAddress, Parsed, Transport};

use super::next_header;
use crate::verdict::DropReason;

/// The UDP port of ESP in UDP (RFC 3948 s2.1).
pub const UDP_PORT: u16 = 4500;

/// The longest header: Ethernet with one tag, IPv6, UDP.
pub const OUTER_LEN_MAX: usize = 14 + 4 + 40 + 8;

/// Where the tag control information of an 802.1Q tag stands.
const TCI_OFFSET: usize = 14;

/// Ethernet and IPv4.
const PLAIN_LEN: usize = 14 + 20;

/// Bytes of an EtherIP header.
pub const ETHERIP_LEN: usize = 2;

const ETHERIP_HEADER: [u8; ETHERIP_LEN] = [0x30, 0];

/// The Ethernet header of the outer packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterLink {
    /// The next hop.
    pub destination: MacAddress,
    /// The wire port.
    pub source: MacAddress,
    /// Tag control information of an 802.1Q tag.
    pub vlan_tci: Option<u16>,
}

/// Whence the UDP source port comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpSource {
    /// This port: 4500 for peers that compare it.
    Fixed(u16),
    /// 49152 to 65535 by the inner flow, so that the fabric spreads flows over its paths.
    Flow,
}

/// How the UDP checksum is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// None (RFC 3948 s2.1; over IPv6 after RFC 6936): ESP checks integrity better.
    Zero,
    /// Computed here: one more pass over the packet.
    Full,
    /// Left to the port: a partial checksum in the frame's offload.
    Partial,
}

/// A UDP header before ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpEncapsulation {
    /// Whence its source port comes.
    pub source: UdpSource,
    /// Its destination port.
    pub destination_port: u16,
    /// How its checksum is filled.
    pub checksum: UdpChecksum,
}

impl UdpEncapsulation {
    /// As RFC 3948 has it: both ports 4500, no checksum.
    pub const STANDARD: UdpEncapsulation = UdpEncapsulation {
        source: UdpSource::Fixed(UDP_PORT),
        destination_port: UDP_PORT,
        checksum: UdpChecksum::Zero,
    };
}

/// What differs from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OuterFields {
    /// DSCP and ECN (0 when the inner packet has none).
    pub traffic_class: u8,
    /// Priority code point of the tag, where there is one: 0 to 7, in the place of the link's own.
    pub pcp: u8,
    /// A number that packets of one inner flow share, for UDP source port and IPv6 flow label.
    pub flow: u16,
}

/// Why the outer headers were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OuterError {
    /// Source and destination are of different families.
    #[error("outer source {0} and destination {1} are not of one address family")]
    Families(IpAddr, IpAddr),
    /// The frame lacks headroom.
    #[error("no room for the outer headers before the packet")]
    NoRoom,
    /// Longer than an IP packet can be.
    #[error("sealed packet longer than 65535 bytes")]
    TooLong,
}

impl From<OuterError> for DropReason {
    fn from(error: OuterError) -> Self {
        match error {
            OuterError::Families(..) => DropReason::NoPolicy,
            OuterError::NoRoom => DropReason::NoRoom,
            OuterError::TooLong => DropReason::TooBig,
        }
    }
}

/// The outer headers of one association, written once; each packet copies and completes them.
#[derive(Clone, Debug)]
pub struct OuterHeader {
    bytes: ArrayVec<u8, OUTER_LEN_MAX>,
    network_offset: usize,
    is_tagged: bool,
    is_ipv6: bool,
    /// IPv4: over the header less length and traffic class. Beside it, over the addresses.
    network_sum: Sum,
    address_sum: Sum,
    udp: Option<UdpEncapsulation>,
}

impl OuterHeader {
    /// Headers from `source` to `destination`. `link` is left out for ports without Ethernet.
    ///
    /// # Errors
    /// [`OuterError::Families`].
    pub fn new(
        link: Option<OuterLink>,
        source: IpAddr,
        destination: IpAddr,
        hop_limit: u8,
        udp: Option<UdpEncapsulation>,
    ) -> Result<Self, OuterError> {
        let mut bytes = ArrayVec::new();
        if let Some(link) = link {
            extend(&mut bytes, &link.destination.0);
            extend(&mut bytes, &link.source.0);
            if let Some(tci) = link.vlan_tci {
                extend(&mut bytes, &[0x81, 0x00]);
                extend(&mut bytes, &tci.to_be_bytes());
            }
            extend(&mut bytes, if source.is_ipv4() { &[0x08, 0x00] } else { &[0x86, 0xdd] });
        }
        let network_offset = bytes.len();
        let protocol = if udp.is_some() { next_header::UDP } else { next_header::ESP };
        let address_len = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                extend(&mut bytes, &ipv4_header(source, destination, hop_limit, protocol));
                8
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                extend(&mut bytes, &ipv6_header(source, destination, hop_limit, protocol));
                32
            }
            _ => return Err(OuterError::Families(source, destination)),
        };
        let network = &bytes[network_offset..];
        let network_sum = Sum::new().with(network);
        let address_sum = Sum::new().with(&network[network.len() - address_len..]);
        if let Some(udp) = udp {
            extend(&mut bytes, &UDP_PORT.to_be_bytes());
            extend(&mut bytes, &udp.destination_port.to_be_bytes());
            extend(&mut bytes, &[0; 4]);
        }
        let is_tagged = link.is_some_and(|it| it.vlan_tci.is_some());
        let is_ipv6 = source.is_ipv6();
        Ok(Self { bytes, network_offset, is_tagged, is_ipv6, network_sum, address_sum, udp })
    }

    /// Their bytes.
    #[expect(clippy::len_without_is_empty, reason = "there is always a header")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Of them, behind the link header.
    pub fn network_len(&self) -> usize {
        self.bytes.len() - self.network_offset
    }

    /// Prepends the headers to the ESP packet in `frame`. With [`UdpChecksum::Partial`] the frame's
    /// offload says what is left to do.
    ///
    /// # Errors
    /// [`OuterError::NoRoom`] and [`OuterError::TooLong`]; the frame is as it was.
    #[inline]
    pub fn prepend(&self, frame: &mut Frame<'_>, fields: OuterFields) -> Result<(), OuterError> {
        self.check_len(frame.len() + self.bytes.len())?;
        let packet = frame.prepend(self.bytes.len()).ok_or(OuterError::NoRoom)?;
        let left = self.complete(packet, fields);
        frame.meta.offload.checksum = left;
        frame.meta.offload.joinable = self.joinable();
        Ok(())
    }

    /// Whether a port may join datagrams with these headers: their length, which
    /// [`Offload::joinable`](weir_wire::frame::Offload::joinable) wants.
    pub fn joinable(&self) -> Option<u16> {
        let udp = self.udp.filter(|udp| udp.checksum == UdpChecksum::Zero);
        udp.map(|_| self.bytes.len() as u16)
    }

    /// Writes the headers into the first [`OuterHeader::len`] bytes of `packet`; behind them stands
    /// the ESP packet. Returns what is left to the port.
    ///
    /// # Errors
    /// [`OuterError::NoRoom`] and [`OuterError::TooLong`].
    #[inline]
    pub fn write(
        &self,
        packet: &mut [u8],
        fields: OuterFields,
    ) -> Result<Option<PartialChecksum>, OuterError> {
        self.check_len(packet.len())?;
        if packet.len() < self.bytes.len() {
            return Err(OuterError::NoRoom);
        }
        Ok(self.complete(packet, fields))
    }

    #[inline]
    fn check_len(&self, packet_len: usize) -> Result<(), OuterError> {
        if packet_len.saturating_sub(self.network_offset) > usize::from(u16::MAX) {
            return Err(OuterError::TooLong);
        }
        Ok(())
    }

    /// `packet` is long enough and not too long.
    #[inline]
    fn complete(&self, packet: &mut [u8], fields: OuterFields) -> Option<PartialChecksum> {
        match (packet.first_chunk_mut(), self.bytes.first_chunk::<PLAIN_LEN>()) {
            // The common one, as a copy of known length.
            (Some(to), Some(from)) if self.bytes.len() == PLAIN_LEN => *to = *from,
            _ => packet[..self.bytes.len()].copy_from_slice(&self.bytes),
        }
        if self.is_tagged {
            packet[TCI_OFFSET] = packet[TCI_OFFSET] & 0x1f | fields.pcp << 5;
        }
        let network = &mut packet[self.network_offset..];
        let traffic_class = fields.traffic_class;
        if self.is_ipv6 {
            // RFC 6438 s3: what spreads flows where no port is seen.
            let flow_label = u32::from(fields.flow);
            let first = 6 << 28 | u32::from(traffic_class) << 20 | flow_label;
            let payload_len = (network.len() - 40) as u16;
            network[..4].copy_from_slice(&first.to_be_bytes());
            network[4..6].copy_from_slice(&payload_len.to_be_bytes());
        } else {
            let total_len = network.len() as u16;
            let sum = self.network_sum.with_u16(traffic_class.into()).with_u16(total_len);
            network[1] = traffic_class;
            network[2..4].copy_from_slice(&total_len.to_be_bytes());
            network[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
        }
        let udp_start = if self.is_ipv6 { 40 } else { 20 };
        let left = write_udp(self.udp?, &mut network[udp_start..], self.address_sum, fields.flow)?;
        let start = (self.network_offset + udp_start) as u16;
        Some(PartialChecksum { start: start + left.start, field: start + left.field })
    }
}

/// Fills a UDP header over the ESP packet behind it. What it returns counts from the UDP header.
#[inline]
pub(super) fn write_udp(
    udp: UdpEncapsulation,
    datagram: &mut [u8],
    addresses: Sum,
    flow: u16,
) -> Option<PartialChecksum> {
    let source = match udp.source {
        UdpSource::Fixed(port) => port,
        UdpSource::Flow => 0xc000 | flow & 0x3fff,
    };
    let len = datagram.len() as u16;
    datagram[..2].copy_from_slice(&source.to_be_bytes());
    datagram[2..4].copy_from_slice(&udp.destination_port.to_be_bytes());
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
    datagram[6..8].fill(0);
    let pseudo = addresses.with_u16(next_header::UDP.into()).with_u16(len);
    let (checksum, left) = match udp.checksum {
        UdpChecksum::Zero => return None,
        UdpChecksum::Full => (pseudo.with(datagram).udp_checksum(), None),
        UdpChecksum::Partial => (pseudo.folded(), Some(PartialChecksum { start: 0, field: 6 })),
    };
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    left
}

/// Never fragmented, so without identification (RFC 6864 s4.1).
pub(super) fn ipv4_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    hop_limit: u8,
    protocol: u8,
) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[6] = 0x40;
    header[8] = hop_limit;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    header
}

pub(super) fn ipv6_header(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    protocol: u8,
) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[6] = protocol;
    header[7] = hop_limit;
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&destination.octets());
    header
}

fn extend(bytes: &mut ArrayVec<u8, OUTER_LEN_MAX>, more: &[u8]) {
    bytes.try_extend_from_slice(more).expect("OUTER_LEN_MAX holds every combination");
}

/// Takes everything around the ESP packet off the frame that was parsed: outer headers, link
/// padding. `false`, and no change, when the frame holds no ESP.
#[inline]
pub fn strip_outer(frame: &mut Frame<'_>, parsed: &Parsed) -> bool {
    let Transport::Esp { .. } = parsed.transport else { return false };
    let start = usize::from(parsed.payload_offset).saturating_sub(EspHeader::LEN);
    frame.truncate(parsed.end as usize);
    frame.trim_front(start);
    true
}

/// Puts an EtherIP header before the Ethernet frame in `frame` (RFC 3378 s3): what is sealed with
/// next header [`next_header::ETHERIP`].
///
/// # Errors
/// [`OuterError::NoRoom`].
#[inline]
pub fn prepend_etherip(frame: &mut Frame<'_>) -> Result<(), OuterError> {
    let bytes = frame.prepend(ETHERIP_LEN).ok_or(OuterError::NoRoom)?;
    bytes[..ETHERIP_LEN].copy_from_slice(&ETHERIP_HEADER);
    Ok(())
}

/// Takes the EtherIP header off; `false`, and no change, when there is none of version 3 (its
/// reserved bits are ignored, RFC 3378 s4).
#[inline]
pub fn strip_etherip(frame: &mut Frame<'_>) -> bool {
    let is_etherip = matches!(frame.bytes(), [first, _, ..] if first >> 4 == 3);
    if is_etherip {
        frame.trim_front(ETHERIP_LEN);
    }
    is_etherip
}

/// The two ECN bits of a traffic class (RFC 3168 s5).
pub const ECN_MASK: u8 = 3;
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const CE: u8 = 3;

/// The inner packet's ECN after decapsulation (RFC 6040 s4.2); `None` demands a drop
/// ([`DropReason::CongestionUnheard`]). Both arguments may be whole traffic classes.
#[inline]
pub fn combine_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN_MASK, outer & ECN_MASK) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (CE, _) => Some(CE),
        (_, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// Writes `ecn` into the IP header (or the GRH of RoCE v1, which has IPv6's form) at `network`'s
/// start, and corrects IPv4's checksum. Leaves anything else as it is.
#[inline]
pub fn write_ecn(network: &mut [u8], ecn: u8) {
    match network {
        [first, traffic_class, rest @ ..] if *first >> 4 == 4 && rest.len() >= 18 => {
            let old = u16::from_be_bytes([*first, *traffic_class]);
            *traffic_class = *traffic_class & !ECN_MASK | ecn & ECN_MASK;
            let new = u16::from_be_bytes([*first, *traffic_class]);
            if old != new {
                let before = u16::from_be_bytes([rest[8], rest[9]]);
                let after = checksum::updated(before, old, new);
                rest[8..10].copy_from_slice(&after.to_be_bytes());
            }
        }
        [first, second, ..] if *first >> 4 == 6 => {
            *second = *second & !(ECN_MASK << 4) | (ecn & ECN_MASK) << 4;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 Figure 4: rows by inner, columns by outer; both in the order Not-ECT, ECT(0),
    /// ECT(1), CE.
    #[test]
    fn ecn_combines_as_figure_4_of_rfc_6040_has_it() {
        let order = [0, 2, 1, 3];
        let figure = [
            [Some(0), Some(0), Some(0), None],
            [Some(2), Some(2), Some(1), Some(3)],
            [Some(1), Some(1), Some(1), Some(3)],
            [Some(3), Some(3), Some(3), Some(3)],
        ];
        for (row, inner) in order.into_iter().enumerate() {
            for (column, outer) in order.into_iter().enumerate() {
                assert_eq!(combine_ecn(inner, outer), figure[row][column], "{inner} in {outer}");
                assert_eq!(combine_ecn(inner | 0xb8, outer | 0x28), figure[row][column]);
            }
        }
    }

    #[test]
    fn an_ecn_mark_keeps_the_header_checksum_right() {
        for ecn in 0..4 {
            let mut header = ipv4_header([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64, 6);
            header[1] = 0xb9;
            let sum = checksum::ipv4_header(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            write_ecn(&mut header, ecn);
            assert_eq!(header[1], 0xb8 | ecn);
            assert_eq!(Sum::new().with(&header).checksum(), 0);
        }
        let mut header = ipv6_header([1; 16].into(), [2; 16].into(), 64, 6);
        header[..2].copy_from_slice(&[0x6b, 0x9f]);
        write_ecn(&mut header, 3);
        assert_eq!(header[..2], [0x6b, 0xbf]);
    }

    #[test]
    fn bytes_that_are_no_ip_header_keep_their_form() {
        for bytes in [&mut [][..], &mut [0x45], &mut [0x45, 0xff, 0], &mut [0x12; 40]] {
            let before = bytes.to_vec();
            write_ecn(bytes, 0);
            assert_eq!(bytes, before);
        }
    }
}
