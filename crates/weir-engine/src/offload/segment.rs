//! Cutting a super-packet into segments (what hosts call TSO, GSO or UDP_SEGMENT).
//!
//! Two ways, one arithmetic. [`Cut::write_headers`] gives a segment's headers, to be sent before
//! its piece of the payload. [`Cut::next_in_place`] writes them into the super-packet itself, over
//! the payload of the segment before, so that each segment in turn lies in one piece and can be
//! sealed into another buffer in one pass:
//!
//! ```text
//! | headers | payload 0 | payload 1 | payload 2 |
//! |<----- segment 0 --->|
//!             | headers | payload 1 |             payload 0 is spent by now
//!                         | headers | payload 2 |
//! ```

use std::ops::Range;

use arrayvec::ArrayVec;
use weir_wire::checksum::Sum;
use weir_wire::frame::{Frame, Offload, SegmentKind};
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp::flags;

use super::checksum::pseudo_header;
use crate::esp::outer::{ETHERIP_LEN, OuterError, prepend_etherip};
use crate::verdict::DropReason;

/// The longest headers that are repeated: EtherIP, Ethernet with two tags, IPv6 with 60 bytes of
/// extension headers, TCP with options.
pub const HEADERS_LEN_MAX: usize = 2 + 14 + 8 + 40 + 60 + 60;

const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;
const UDP_LEN: usize = 8;

/// Why a super-packet cannot be cut: its headers are not what its offload says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("super-packet whose headers contradict its offload")]
pub struct CutError;

impl From<CutError> for DropReason {
    fn from(_: CutError) -> Self {
        DropReason::Malformed
    }
}

/// A super-packet's plan: headers once, and all sums that do not change from segment to segment.
#[derive(Clone, Debug)]
pub struct Cut {
    headers: ArrayVec<u8, HEADERS_LEN_MAX>,
    network_offset: usize,
    transport_offset: usize,
    is_ipv6: bool,
    transport: CutTransport,
    segment_len: usize,
    /// Of the whole super-packet, counted from the frame's first byte.
    payload: Range<usize>,
    /// IPv4: over the header less length and identification.
    network_sum: Sum,
    /// Over pseudo header and transport header, less what [`Cut::write_headers`] adds.
    transport_sum: Sum,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
enum CutTransport {
    Tcp { sequence: u32 },
    Udp { has_checksum: bool },
}

impl Cut {
    /// The plan for `frame`, whose offload names a segmentation. `None` when it names none.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn new(frame: &Frame<'_>, parsed: &Parsed) -> Option<Result<Self, CutError>> {
        frame.meta.offload.segmentation?;
        Some(Self::plan(frame.bytes(), parsed, &frame.meta.offload).ok_or(CutError))
    }

    /// The plan for `bytes`, by an offload that names a segmentation.
    pub(super) fn plan(bytes: &[u8], parsed: &Parsed, offload: &Offload) -> Option<Self> {
        let segmentation = offload.segmentation?;
        let is_ipv6 = match parsed.network {
            Network::Ipv4 => false,
            Network::Ipv6 => true,
            _ => return None,
        };
        let transport_offset = usize::from(parsed.transport_offset);
        let bytes = bytes.get(..parsed.end as usize)?;
        let (transport, transport_len) = match (segmentation.kind, parsed.transport, is_ipv6) {
            (SegmentKind::TcpV4, Transport::Tcp { sequence, .. }, false)
            | (SegmentKind::TcpV6, Transport::Tcp { sequence, .. }, true) => {
                let words = bytes.get(transport_offset + 12)? >> 4;
                (CutTransport::Tcp { sequence }, usize::from(words).max(5) * 4)
            }
            (SegmentKind::Udp, Transport::Udp { .. } | Transport::Esp { in_udp: true, .. }, _) => {
                let field = bytes.get(transport_offset + 6..transport_offset + 8)?;
                let has_checksum = offload.checksum.is_some() || field != [0, 0];
                (CutTransport::Udp { has_checksum }, UDP_LEN)
            }
            _ => return None,
        };
        let header_len = transport_offset + transport_len;
        if segmentation.segment_len == 0 || parsed.fault.is_some() || parsed.fragment.is_some() {
            return None;
        }
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(bytes.get(..header_len)?).ok()?;
        let mut cut = Self {
            headers,
            network_offset: parsed.network_offset.into(),
            transport_offset,
            is_ipv6,
            transport,
            segment_len: segmentation.segment_len.into(),
            payload: header_len..bytes.len(),
            network_sum: Sum::new(),
            transport_sum: Sum::new(),
            next: 0,
        };
        cut.sum_up(parsed);
        Some(cut)
    }

    /// Clears in the headers what each segment fills in, and sums up the rest.
    fn sum_up(&mut self, parsed: &Parsed) {
        let (network, transport) = self.headers.split_at_mut(self.transport_offset);
        let network = &mut network[self.network_offset..];
        if !self.is_ipv6 {
            network[2..4].fill(0);
            network[10..12].fill(0);
            let id = u16::from_be_bytes([network[4], network[5]]);
            // The identification is kept for counting on, so its part is taken off the sum.
            self.network_sum = Sum::new().with(network).with_u16(!id);
        }
        let protocol = match self.transport {
            CutTransport::Tcp { .. } => {
                transport[16..18].fill(0);
                let kept = Sum::new().with(&transport[..4]).with(&transport[8..12]);
                self.transport_sum = kept.with(&transport[14..]);
                TCP_PROTOCOL
            }
            CutTransport::Udp { .. } => {
                self.transport_sum = Sum::new().with(&transport[..4]);
                UDP_PROTOCOL
            }
        };
        let pseudo = pseudo_header(parsed, protocol, 0);
        self.transport_sum = self.transport_sum.with_u16(pseudo.folded());
    }

    /// How many segments there are; at least one.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment_len).max(1)
    }

    /// Bytes of headers before each segment's payload.
    pub fn header_len(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of the longest segment, headers included.
    pub fn longest(&self) -> usize {
        self.headers.len() + self.segment_len.min(self.payload.len())
    }

    /// Where in a segment the network header starts.
    pub fn network_offset(&self) -> usize {
        self.network_offset
    }

    /// Where in the super-packet the payload of segment `index` lies.
    #[inline]
    pub fn payload(&self, index: usize) -> Range<usize> {
        let start = (self.payload.start + index * self.segment_len).min(self.payload.end);
        start..(start + self.segment_len).min(self.payload.end)
    }

    /// Lets every segment begin with an EtherIP header; `frame`, which gets one too, is the
    /// super-packet that this plan was made for.
    ///
    /// # Errors
    /// [`OuterError::NoRoom`].
    pub fn with_etherip(mut self, frame: &mut Frame<'_>) -> Result<Self, OuterError> {
        prepend_etherip(frame)?;
        let mut headers = ArrayVec::new();
        let start = &frame.bytes()[..ETHERIP_LEN];
        headers.try_extend_from_slice(start).map_err(|_| OuterError::NoRoom)?;
        headers.try_extend_from_slice(&self.headers).map_err(|_| OuterError::NoRoom)?;
        self.headers = headers;
        self.network_offset += ETHERIP_LEN;
        self.transport_offset += ETHERIP_LEN;
        self.payload = self.payload.start + ETHERIP_LEN..self.payload.end + ETHERIP_LEN;
        Ok(self)
    }

    /// Writes the headers of segment `index` into `out`, [`Cut::header_len`] bytes, with lengths,
    /// identification, sequence number, flags and every checksum right. `payload` is the segment's.
    #[inline]
    pub fn write_headers(&self, index: usize, payload: &[u8], out: &mut [u8]) {
        out.copy_from_slice(&self.headers);
        let (network, transport) = out.split_at_mut(self.transport_offset);
        let network = &mut network[self.network_offset..];
        let transport_len = transport.len() + payload.len();
        let network_len = network.len() + transport_len;
        if self.is_ipv6 {
            network[4..6].copy_from_slice(&((network_len - 40) as u16).to_be_bytes());
        } else {
            let id = u16::from_be_bytes([network[4], network[5]]).wrapping_add(index as u16);
            let sum = self.network_sum.with_u16(network_len as u16).with_u16(id);
            network[2..4].copy_from_slice(&(network_len as u16).to_be_bytes());
            network[4..6].copy_from_slice(&id.to_be_bytes());
            network[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
        }
        let sum = self.transport_sum.with_u16(transport_len as u16);
        match self.transport {
            CutTransport::Tcp { sequence } => {
                let sequence = sequence.wrapping_add((index * self.segment_len) as u32);
                transport[4..8].copy_from_slice(&sequence.to_be_bytes());
                transport[13] &= self.flags_of(index);
                let sum = sum.with(&transport[4..8]).with(&transport[12..14]).with(payload);
                // As hosts complete theirs: TCP takes either zero (RFC 1624 s3).
                transport[16..18].copy_from_slice(&sum.udp_checksum().to_be_bytes());
            }
            CutTransport::Udp { has_checksum } => {
                transport[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
                let checksum = match has_checksum {
                    true => sum.with_u16(transport_len as u16).with(payload).udp_checksum(),
                    false => 0,
                };
                transport[6..8].copy_from_slice(&checksum.to_be_bytes());
            }
        }
    }

    /// The next segment, made inside `bytes`, the super-packet's: the range where it lies whole.
    /// Spends the segment before it. `None` after the last.
    #[inline]
    pub fn next_in_place(&mut self, bytes: &mut [u8]) -> Option<Range<usize>> {
        let index = self.next;
        if index >= self.count() {
            return None;
        }
        self.next += 1;
        let payload = self.payload(index);
        let start = payload.start - self.headers.len();
        let (before, rest) = bytes.split_at_mut_checked(payload.start)?;
        self.write_headers(index, rest.get(..payload.len())?, &mut before[start..]);
        Some(start..payload.end)
    }

    /// The flags that segment `index` may have: the end's only at the end, and "congestion window
    /// reduced" once (RFC 3168 s6.1.2).
    #[inline]
    fn flags_of(&self, index: usize) -> u8 {
        let mut kept = !0;
        if index > 0 {
            kept &= !flags::CWR;
        }
        if index + 1 < self.count() {
            kept &= !(flags::FIN | flags::PSH);
        }
        kept
    }
}
