//! virtio's network header (virtio 1.2, section 5.1.6), by which packet sockets and TAPs say what a
//! frame's sender left undone, to and from [`Offload`]. The one place where this is translated.

use weir_wire::ethernet::ip_offset;
use weir_wire::frame::{Offload, PartialChecksum, SegmentKind, Segmentation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::port::Outgoing;

/// Bytes of the header without the count of merged buffers.
pub(crate) const VNET_HEADER_LEN: usize = 10;

/// Bytes that the kernel is asked to keep in a sent frame's first buffer: every header stack we
/// know. Without a value it would look for one contiguous buffer for the whole frame.
const LINEAR_LEN: u16 = 256;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The header as it stands in memory, in the machine's byte order ("legacy").
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    segment_len: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

const _: () = assert!(size_of::<VnetHeader>() == VNET_HEADER_LEN);

impl VnetHeader {
    /// What `frame`, the bytes behind this header, still needs. `None`: the header contradicts the
    /// frame, or announces a kind of segments that we did not agree to.
    pub(crate) fn to_offload(self, frame: &[u8]) -> Option<Offload> {
        let checksum = if self.flags & NEEDS_CHECKSUM != 0 {
            let start = self.checksum_start;
            let field = start.checked_add(self.checksum_offset)?;
            if usize::from(field) + 2 > frame.len() {
                return None;
            }
            Some(PartialChecksum { start, field })
        } else {
            None
        };
        let kind = match self.gso_type & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 => Some(SegmentKind::TcpV4),
            GSO_TCPV6 => Some(SegmentKind::TcpV6),
            GSO_UDP_L4 => Some(SegmentKind::Udp),
            _ => return None,
        };
        let segmentation = match kind {
            Some(kind) => Some(self.segmentation(kind, checksum, frame)?),
            None => None,
        };
        let checksum_verified = self.flags & (DATA_VALID | NEEDS_CHECKSUM) != 0;
        Some(Offload { checksum, segmentation, checksum_verified, joinable: None })
    }

    /// The header's own length field is a hint (the kernel gives its first buffer's length), so
    /// the transport header is measured.
    fn segmentation(
        self,
        kind: SegmentKind,
        checksum: Option<PartialChecksum>,
        frame: &[u8],
    ) -> Option<Segmentation> {
        let transport = match checksum {
            Some(checksum) => usize::from(checksum.start),
            None => transport_offset(frame)?,
        };
        let transport_len = match kind {
            SegmentKind::Udp => 8,
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => {
                usize::from(frame.get(transport + 12)? >> 4) * 4
            }
        };
        let header_len = transport + transport_len;
        if header_len > frame.len() || self.segment_len == 0 {
            return None;
        }
        Some(Segmentation {
            kind,
            segment_len: self.segment_len,
            header_len: u16::try_from(header_len).ok()?,
            ecn: self.gso_type & GSO_ECN != 0,
        })
    }

    /// The header that goes before a frame to send.
    pub(crate) fn for_outgoing(frame: &Outgoing<'_>) -> Self {
        Self::before(&frame.offload, frame.parts.iter().map(|part| part.len()).sum())
    }

    /// The header that goes before `len` bytes.
    pub(crate) fn before(offload: &Offload, len: usize) -> Self {
        let mut header = Self::from_offload(offload);
        header.header_len = header.header_len.max(LINEAR_LEN).min(len.min(0xffff) as u16);
        header
    }

    fn from_offload(offload: &Offload) -> Self {
        let mut header = Self::default();
        if let Some(checksum) = offload.checksum {
            header.flags = NEEDS_CHECKSUM;
            header.checksum_start = checksum.start;
            header.checksum_offset = checksum.field.saturating_sub(checksum.start);
        } else if offload.checksum_verified {
            header.flags = DATA_VALID;
        }
        if let Some(segmentation) = offload.segmentation {
            header.gso_type = match segmentation.kind {
                SegmentKind::TcpV4 => GSO_TCPV4,
                SegmentKind::TcpV6 => GSO_TCPV6,
                SegmentKind::Udp => GSO_UDP_L4,
            };
            if segmentation.ecn {
                header.gso_type |= GSO_ECN;
            }
            header.segment_len = segmentation.segment_len;
            header.header_len = segmentation.header_len;
        }
        header
    }
}

/// Where the transport header of a plain or tagged IP packet without IPv6 extensions begins. Only
/// super-packets that the adapter put together (LRO) come without this in their metadata.
fn transport_offset(frame: &[u8]) -> Option<usize> {
    let at = ip_offset(frame)?;
    match frame.get(at)? >> 4 {
        4 => Some(at + usize::from(frame[at] & 0xf) * 4),
        _ => Some(at + 40),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    fn tcp_frame(tag: bool, options_len: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if tag {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend([8, 0, 0x45]);
        frame.resize(frame.len() + 19, 0);
        let transport = frame.len();
        frame.resize(transport + 20 + options_len + 4000, 0);
        frame[transport + 12] = (((20 + options_len) / 4) as u8) << 4;
        frame
    }

    fn round_trip(offload: Offload, frame: &[u8]) -> Option<Offload> {
        let parts = [IoSlice::new(frame)];
        VnetHeader::for_outgoing(&Outgoing { parts: &parts, offload }).to_offload(frame)
    }

    #[test]
    fn super_packets_keep_their_cut() {
        for (tag, kind, ecn) in [
            (false, SegmentKind::TcpV4, false),
            (true, SegmentKind::TcpV4, true),
            (false, SegmentKind::TcpV6, true),
        ] {
            let frame = tcp_frame(tag, 12);
            let start: u16 = if tag { 38 } else { 34 };
            let offload = Offload {
                checksum: Some(PartialChecksum { start, field: start + 16 }),
                segmentation: Some(Segmentation {
                    kind,
                    segment_len: 1448,
                    header_len: start + 32,
                    ecn,
                }),
                checksum_verified: true,
                joinable: None,
            };
            assert_eq!(round_trip(offload, &frame), Some(offload));
        }
    }

    #[test]
    fn udp_segments_repeat_an_eight_byte_header() {
        let frame = tcp_frame(false, 0);
        let offload = Offload {
            checksum: Some(PartialChecksum { start: 34, field: 40 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::Udp,
                segment_len: 1200,
                header_len: 42,
                ecn: false,
            }),
            checksum_verified: true,
            joinable: None,
        };
        assert_eq!(round_trip(offload, &frame), Some(offload));
    }

    #[test]
    fn header_length_is_measured_where_no_checksum_says_it() {
        let frame = tcp_frame(true, 8);
        let header = VnetHeader {
            gso_type: GSO_TCPV4,
            header_len: 9,
            segment_len: 1000,
            flags: DATA_VALID,
            ..VnetHeader::default()
        };
        let offload = header.to_offload(&frame).unwrap();
        assert_eq!(offload.segmentation.unwrap().header_len, 18 + 20 + 28);
        assert!(offload.checksum_verified && offload.checksum.is_none());
    }

    #[test]
    fn contradictions_are_refused() {
        let frame = [0u8; 60];
        let beyond = VnetHeader { flags: NEEDS_CHECKSUM, checksum_start: 59, ..Default::default() };
        assert_eq!(beyond.to_offload(&frame), None);
        let wraps = VnetHeader {
            flags: NEEDS_CHECKSUM,
            checksum_start: 0xffff,
            checksum_offset: 6,
            ..Default::default()
        };
        assert_eq!(wraps.to_offload(&frame), None);
        let unknown = VnetHeader { gso_type: 3, segment_len: 100, ..Default::default() };
        assert_eq!(unknown.to_offload(&frame), None);
        let empty = VnetHeader { gso_type: GSO_TCPV4, flags: NEEDS_CHECKSUM, ..Default::default() };
        assert_eq!(empty.to_offload(&frame), None);
    }

    #[test]
    fn shifting_moves_every_offset() {
        let offload = Offload {
            checksum: Some(PartialChecksum { start: 34, field: 50 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::TcpV4,
                segment_len: 1448,
                header_len: 66,
                ecn: false,
            }),
            checksum_verified: true,
            joinable: None,
        };
        let moved = offload.shifted(4);
        assert_eq!(moved.checksum, Some(PartialChecksum { start: 38, field: 54 }));
        assert_eq!(moved.segmentation.unwrap().header_len, 70);
    }

    #[test]
    fn short_frames_do_not_claim_more_header_than_they_have() {
        let parts = [IoSlice::new(&[0; 60])];
        let header =
            VnetHeader::for_outgoing(&Outgoing { parts: &parts, offload: Offload::default() });
        assert_eq!(header, VnetHeader { header_len: 60, ..VnetHeader::default() });
    }
}
