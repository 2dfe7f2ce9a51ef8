//! Super-packets inside a tunnel: a host's kernel hands what it sends into VXLAN, GENEVE, GRE or IP
//! in IP over uncut (over `veth`, for one), and one that joins what comes at a port (GRO) does so
//! inside GRE and IP in IP too.
//!
//! ```text
//! | Ethernet | outer IP | UDP or GRE, and more | inner IP | TCP or UDP | payload ...
//!                                                          ^ the checksum that is left to do
//! ```
//!
//! No header of virtio tells that there is a tunnel, so no port takes one back, and ESP has to seal
//! packets that exist. So each is cut before anybody looks at it. What stands between the outer and
//! the inner header need not be known: it is the same in each segment, but for lengths and
//! checksums of UDP and GRE. Kernels join nothing that is inside two tunnels.

use std::ops::Range;

use weir_wire::checksum::Sum;
use weir_wire::ethernet::ip_offset;
use weir_wire::frame::{Frame, Link, SegmentKind};
use weir_wire::ip::protocol::{GRE, TCP, UDP};
use weir_wire::parse::{Network, Parsed, parse, parse_frame};

use super::checksum::pseudo_header;
use super::segment::Cut;

/// Flags of GRE's first byte: a checksum (RFC 2784), a sequence number (RFC 2890).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_SEQUENCE: u8 = 0x10;
/// An IPv4 header without options, and an IPv6 header.
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// The plan for a super-packet that another packet carries.
#[derive(Debug)]
pub(super) struct CarriedCut {
    outer: Parsed,
    /// The packet that is carried begins here.
    inner: usize,
    cut: Cut,
}

/// Whether `frame` is a super-packet that another may carry: not one of TCP right over IP, nor of
/// UDP whose own checksum is left to do.
#[inline]
pub(super) fn may_be(frame: &Frame<'_>) -> bool {
    let offload = &frame.meta.offload;
    let (Some(segmentation), Some(checksum)) = (offload.segmentation, offload.checksum) else {
        return false;
    };
    let protocol = if segmentation.kind == SegmentKind::Udp { UDP } else { TCP };
    let bytes = frame.bytes();
    let Some((at, header)) = ip_offset(bytes).and_then(|at| Some((at, bytes.get(at..)?))) else {
        return true;
    };
    let len = match header {
        [first, ..] if first >> 4 == 4 && header.get(9) == Some(&protocol) => {
            usize::from(first & 15) * 4
        }
        [first, ..] if first >> 4 == 6 && header.get(6) == Some(&protocol) => IPV6_LEN,
        _ => return true,
    };
    at + len != usize::from(checksum.start)
}

impl CarriedCut {
    /// The plan for `frame`; `None`: it carries no super-packet, or one that cannot be cut.
    pub(super) fn new(frame: &Frame<'_>) -> Option<Self> {
        let offload = frame.meta.offload;
        let start = usize::from(offload.checksum?.start);
        let outer = parse_frame(frame);
        let is_ip = matches!(outer.network, Network::Ipv4 | Network::Ipv6);
        let behind = usize::from(outer.transport_offset);
        let header_len = if outer.network == Network::Ipv6 { IPV6_LEN } else { IPV4_LEN };
        let has_header = behind >= usize::from(outer.network_offset) + header_len;
        let is_odd = outer.fault.is_some() || outer.fragment.is_some();
        if !is_ip || !has_header || behind >= start || is_odd {
            return None;
        }
        let bytes = frame.bytes();
        if outer.protocol == GRE && bytes.get(behind)? & GRE_SEQUENCE != 0 {
            return None;
        }
        let inner = inner_header(bytes, behind, start, offload.segmentation?.kind)?;
        let len = u32::try_from(bytes.len() - inner).ok()?;
        let parsed = parse(&bytes[inner..], Link::Ip, len);
        if usize::from(parsed.transport_offset) != start - inner {
            return None;
        }
        let cut = Cut::plan(&bytes[inner..], &parsed, &offload)?;
        Some(Self { outer, inner, cut })
    }

    /// How many segments there are.
    pub(super) fn count(&self) -> usize {
        self.cut.count()
    }

    /// Bytes of the longest segment, all headers included.
    pub(super) fn longest(&self) -> usize {
        self.inner + self.cut.longest()
    }

    /// Writes segment `index` of the super-packet `bytes` to the beginning of `out`; its length.
    pub(super) fn write(&self, index: usize, bytes: &[u8], out: &mut [u8]) -> usize {
        let Range { start, end } = self.cut.payload(index);
        let payload = &bytes[self.inner + start..self.inner + end];
        let headers_end = self.inner + self.cut.header_len();
        let len = headers_end + payload.len();
        out[..self.inner].copy_from_slice(&bytes[..self.inner]);
        self.cut.write_headers(index, payload, &mut out[self.inner..headers_end]);
        out[headers_end..len].copy_from_slice(payload);
        self.finish(index, &mut out[..len]);
        len
    }

    /// Lengths, identification and checksums of the headers around segment `index`.
    fn finish(&self, index: usize, segment: &mut [u8]) {
        let Self { outer, .. } = self;
        let behind = usize::from(outer.transport_offset);
        let (before, packet) = segment.split_at_mut(behind);
        let network = &mut before[usize::from(outer.network_offset)..];
        if outer.network == Network::Ipv6 {
            let len = network.len() - IPV6_LEN + packet.len();
            network[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        } else {
            let len = network.len() + packet.len();
            let id = u16::from_be_bytes([network[4], network[5]]).wrapping_add(index as u16);
            network[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            network[4..6].copy_from_slice(&id.to_be_bytes());
            network[10..12].fill(0);
            let sum = Sum::new().with(network).checksum();
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        match outer.protocol {
            UDP => {
                let len = packet.len() as u16;
                packet[4..6].copy_from_slice(&len.to_be_bytes());
                // Tunnels may go without (RFC 6935).
                if packet[6..8] != [0, 0] {
                    packet[6..8].fill(0);
                    let sum = pseudo_header(outer, UDP, len.into()).with(packet).udp_checksum();
                    packet[6..8].copy_from_slice(&sum.to_be_bytes());
                }
            }
            GRE if packet[0] & GRE_CHECKSUM != 0 => {
                packet[4..6].fill(0);
                let sum = Sum::new().with(packet).checksum();
                packet[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            _ => {}
        }
    }
}

/// Where the IP header begins that stands right before the transport header at `start`.
fn inner_header(bytes: &[u8], behind: usize, start: usize, kind: SegmentKind) -> Option<usize> {
    let protocol = if kind == SegmentKind::Udp { UDP } else { TCP };
    let is_ipv4 = |at: &usize| {
        let words = (start - at) / 4;
        bytes[*at] == 0x40 | words as u8 && bytes[at + 9] == protocol
    };
    let ipv4 = || (IPV4_LEN..=60).step_by(4).filter_map(|len| start.checked_sub(len)).find(is_ipv4);
    let is_ipv6 = |at: &usize| bytes[*at] >> 4 == 6 && bytes[at + 6] == protocol;
    let ipv6 = || start.checked_sub(IPV6_LEN).filter(is_ipv6);
    let found = match kind {
        SegmentKind::TcpV4 => ipv4(),
        SegmentKind::TcpV6 => ipv6(),
        SegmentKind::Udp => ipv4().or_else(ipv6),
    };
    found.filter(|it| *it >= behind && bytes.len() > start)
}

#[cfg(test)]
mod tests {
    use weir_wire::frame::{Meta, Offload, PartialChecksum, Segmentation};
    use weir_wire::parse::parse_inner;

    use super::super::datagrams::{Datagrams, Joined};
    use super::*;

    const SEGMENT_LEN: u16 = 1000;

    fn ipv4(protocol: u8, behind: &[u8]) -> Vec<u8> {
        let len = (20 + behind.len() as u16).to_be_bytes();
        let first = [0x45, 0, len[0], len[1], 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
        [&first[..], &[192, 0, 2, 1, 192, 0, 2, 2], behind].concat()
    }

    fn ipv6(protocol: u8, behind: &[u8]) -> Vec<u8> {
        let len = (behind.len() as u16).to_be_bytes();
        let first = [0x60, 0, 0, 0, len[0], len[1], protocol, 64];
        [&first[..], &[0xfd; 16], &[0xfe; 16], behind].concat()
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        [&[0x10, 0, 0, 80, 0, 0, 0, 9, 0, 0, 0, 7, 0x50, 0x18, 1, 0, 0, 0, 0, 0], payload].concat()
    }

    fn udp(port: u16, checksum: u8, behind: &[u8]) -> Vec<u8> {
        let [len, port] = [8 + behind.len() as u16, port].map(u16::to_be_bytes);
        [&[0x20, 0, port[0], port[1], len[0], len[1], checksum, 0], behind].concat()
    }

    fn ethernet(kind: u16, behind: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &kind.to_be_bytes(), behind].concat()
    }

    /// The packets that a super-packet stands for whose innermost transport header is of `header`
    /// bytes, and stands before `payload` more.
    fn cut(mut bytes: Vec<u8>, kind: SegmentKind, header: usize, payload: usize) -> Vec<Vec<u8>> {
        let start = (bytes.len() - payload - header) as u16;
        let field = start + if kind == SegmentKind::Udp { 6 } else { 16 };
        let header_len = start + header as u16;
        let segmentation = Segmentation { kind, segment_len: SEGMENT_LEN, header_len, ecn: false };
        let offload = Offload {
            checksum: Some(PartialChecksum { start, field }),
            segmentation: Some(segmentation),
            ..Offload::default()
        };
        let len = bytes.len();
        let meta = Meta { original_len: len as u32, offload, ..Meta::default() };
        let mut found = Vec::new();
        let frame = Frame::new(&mut bytes, 0, len, meta);
        Datagrams::default().each_batch(&mut [frame], Joined::None, &mut |frames| {
            found.extend(frames.iter().map(|it| it.bytes().to_vec()));
        });
        found
    }

    /// Whether the checksum of a header and what it covers is right.
    fn is_right(sum: Sum, bytes: &[u8]) -> bool {
        sum.with(bytes).checksum() == 0
    }

    #[test]
    fn each_segment_is_a_packet_in_its_tunnel_with_every_length_and_checksum() {
        let payload: Vec<u8> = (0..2500_u32).map(|it| it as u8).collect();
        let v4 = ipv4(6, &tcp(&payload));
        let v6 = ipv6(6, &tcp(&payload));
        let vxlan = |inner: &[u8]| [&[8, 0, 0, 0, 0, 0, 9, 0], inner].concat();
        let in_udp = |sum, kind, inner: &[u8]| udp(4789, sum, &vxlan(&ethernet(kind, inner)));
        let gre = |flags: u8, kind: u16, inner: &[u8]| {
            let more: &[u8] = if flags == 0 { &[] } else { &[0; 4] };
            [&[flags, 0], &kind.to_be_bytes()[..], more, inner].concat()
        };
        for (name, bytes, kind) in [
            ("VXLAN", ethernet(0x800, &ipv4(17, &in_udp(0, 0x800, &v4))), SegmentKind::TcpV4),
            ("VXLAN v6", ethernet(0x86dd, &ipv6(17, &in_udp(9, 0x86dd, &v6))), SegmentKind::TcpV6),
            ("GRE", ethernet(0x800, &ipv4(47, &gre(0, 0x800, &v4))), SegmentKind::TcpV4),
            ("GRE sum", ethernet(0x800, &ipv4(47, &gre(0x80, 0x86dd, &v6))), SegmentKind::TcpV6),
            ("IP in IP", ethernet(0x800, &ipv4(4, &v4)), SegmentKind::TcpV4),
            ("6in4", ethernet(0x800, &ipv4(41, &v6)), SegmentKind::TcpV6),
        ] {
            let found = cut(bytes, kind, 20, payload.len());
            assert_eq!(found.len(), 3, "{name}");
            let mut carried = Vec::new();
            for (index, packet) in found.iter().enumerate() {
                let len = packet.len() as u32;
                let outer = parse(packet, Link::Ethernet, len);
                assert_eq!((outer.fault, outer.end), (None, len), "{name}");
                let behind = &packet[usize::from(outer.transport_offset)..];
                if outer.network == Network::Ipv4 {
                    let header = &packet[14..34];
                    assert!(is_right(Sum::new(), header), "{name}");
                    assert_eq!(header[4..6], [0x12, 0x34 + index as u8], "{name}");
                }
                if outer.protocol == UDP && behind[6..8] != [0, 0] {
                    let sum = pseudo_header(&outer, UDP, behind.len() as u32);
                    assert!(is_right(sum, behind), "{name}");
                }
                if outer.protocol == GRE && behind[0] != 0 {
                    assert!(is_right(Sum::new(), behind), "{name}");
                }
                // Of IP in IP the walk says no more than that.
                let at = outer.tunnel.map_or(outer.transport_offset, |it| it.inner_offset);
                let bytes = &packet[usize::from(at)..];
                let inner = match &outer.tunnel {
                    Some(tunnel) => parse_inner(packet, &outer, tunnel, len),
                    None => parse(bytes, Link::Ip, bytes.len() as u32),
                };
                let segment = &bytes[usize::from(inner.transport_offset)..];
                let sum = pseudo_header(&inner, TCP, segment.len() as u32);
                assert!(is_right(sum, segment), "{name}");
                assert_eq!(segment[13] & 8 != 0, index == 2, "{name}: PSH with the last");
                carried.extend_from_slice(inner.payload(bytes));
            }
            assert_eq!(carried, payload, "{name}");
        }
    }

    #[test]
    fn datagrams_in_a_tunnel_are_cut_too_and_nothing_else_is() {
        let payload = vec![7; 2500];
        let inner = ipv4(17, &udp(53, 0, &payload));
        let tunnel = [&[8, 0, 0, 0, 0, 0, 9, 0], &ethernet(0x800, &inner)[..]].concat();
        let bytes = ethernet(0x800, &ipv4(17, &udp(4789, 0, &tunnel)));
        assert_eq!(cut(bytes, SegmentKind::Udp, 8, payload.len()).len(), 3);
        let own = ethernet(0x800, &ipv4(6, &tcp(&payload)));
        let ordered = [&[0x10, 0, 8, 0, 0, 0, 0, 1][..], &ipv4(6, &tcp(&payload))].concat();
        let bytes = ethernet(0x800, &ipv4(47, &ordered));
        // Its length reaches beyond the frame.
        let mut long = ethernet(0x800, &ipv4(4, &ipv4(6, &tcp(&payload))));
        long[16..18].fill(0xff);
        let tagged = [&own[..12], &[0x81, 0, 0, 5], &own[12..]].concat();
        for bytes in [own, bytes, long, tagged] {
            assert_eq!(cut(bytes.clone(), SegmentKind::TcpV4, 20, payload.len()), [bytes]);
        }
    }
}
