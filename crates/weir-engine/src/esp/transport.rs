//! Transport mode: ESP between an IP header and its payload (RFC 4303 s3.1.1).
//!
//! The headers move towards the front by the length of the ESP header; the payload stays where it
//! is. Packets keep their addresses, so a gateway in the middle needs none of its own.

use std::ops::Range;

use arrayvec::ArrayVec;
use weir_wire::checksum::{self, Sum};
use weir_wire::frame::{Frame, PartialChecksum};

use super::open::{OpenError, Opened, OpeningSa};
use super::outer::{UdpEncapsulation, write_udp};
use super::seal::{SealError, SealingSa};
use super::{ALIGNMENT, HEADER_LEN, ICV_LEN, TRAILER_LEN, next_header};
use crate::verdict::DropReason;

/// The longest run of headers before the payload: Ethernet with two tags, IPv6, and 200 bytes of
/// extension headers.
const HEADERS_LEN_MAX: usize = 14 + 8 + 40 + 200;

const UDP_LEN: usize = 8;

/// The most bytes by which sealing in transport mode lengthens a packet.
pub const OVERHEAD_LEN_MAX: usize = UDP_LEN + HEADER_LEN + ALIGNMENT - 1 + TRAILER_LEN + ICV_LEN;

/// Why a packet was not changed between plain and transport mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No whole IPv4 or IPv6 packet, or more extension headers than are looked at.
    #[error("no IP packet that transport mode understands")]
    Malformed,
    /// A fragment: transport mode seals whole datagrams only (RFC 4303 s3.3.4).
    #[error("a fragment cannot be sealed in transport mode")]
    Fragment,
    /// The sealed packet would exceed 65535 bytes.
    #[error("sealed packet longer than 65535 bytes")]
    TooLong,
    /// Not sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<TransportError> for DropReason {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Malformed => DropReason::Malformed,
            TransportError::Fragment => DropReason::Fragment,
            TransportError::TooLong => DropReason::TooBig,
            TransportError::Seal(error) => error.into(),
            TransportError::Open(error) => error.into(),
        }
    }
}

/// Seals the payload of the IP packet at `network_offset`, with an optional UDP header before ESP
/// (whose source port may come from `flow`). Link padding behind the packet is cut off. A partial
/// checksum must have been completed before.
///
/// # Errors
/// [`TransportError`]; the frame is then to be dropped.
pub fn seal_transport(
    sealing: &mut SealingSa,
    frame: &mut Frame<'_>,
    network_offset: usize,
    udp: Option<UdpEncapsulation>,
    flow: u16,
) -> Result<(), TransportError> {
    let mut headers = Headers::cut(frame, network_offset)?;
    sealing.seal(frame, headers.protocol)?;
    let udp_len = if udp.is_some() { UDP_LEN } else { 0 };
    headers.announce(udp, frame.len() + udp_len)?;
    let packet = frame.prepend(headers.bytes.len() + udp_len).ok_or(SealError::NoRoom)?;
    frame.meta.offload.checksum = headers.write(packet, udp, flow);
    Ok(())
}

/// Like [`seal_transport`], from `packet` into `out` in one pass over memory; `packet`, a segment
/// of a super-packet, stays as it is. Returns the length of the sealed packet and what is left to
/// the port.
///
/// # Errors
/// [`TransportError`]; `NoRoom` when `out` is too short. [`OVERHEAD_LEN_MAX`] more bytes than
/// `packet` has are always enough.
pub fn seal_transport_to(
    sealing: &mut SealingSa,
    packet: &[u8],
    network_offset: usize,
    udp: Option<UdpEncapsulation>,
    flow: u16,
    out: &mut [u8],
) -> Result<(usize, Option<PartialChecksum>), TransportError> {
    let (mut headers, payload) = Headers::find(packet, network_offset)?;
    let udp_len = if udp.is_some() { UDP_LEN } else { 0 };
    let start = headers.bytes.len() + udp_len;
    let sealed = out.get_mut(start..).ok_or(SealError::NoRoom)?;
    let sealed_len = sealing.seal_to(&packet[payload], headers.protocol, sealed)?;
    headers.announce(udp, sealed_len + udp_len)?;
    let left = headers.write(&mut out[..start + sealed_len], udp, flow);
    Ok((start + sealed_len, left))
}

/// Opens the transport-mode packet at `network_offset`: ESP behind the IP header, or behind UDP
/// after it. The frame is then the IP packet as it was before sealing.
///
/// # Errors
/// [`TransportError`]; the frame is then to be dropped.
pub fn open_transport(
    opening: &mut OpeningSa,
    frame: &mut Frame<'_>,
    network_offset: usize,
) -> Result<Opened, TransportError> {
    let mut headers = Headers::cut(frame, network_offset)?;
    match headers.protocol {
        next_header::ESP => {}
        next_header::UDP if frame.len() >= UDP_LEN => frame.trim_front(UDP_LEN),
        _ => return Err(TransportError::Malformed),
    }
    let opened = opening.open(frame)?;
    headers.protocol = opened.next_header;
    headers.finish(frame.len())?;
    let packet = frame.prepend(headers.bytes.len()).ok_or(TransportError::Malformed)?;
    packet[..headers.bytes.len()].copy_from_slice(&headers.bytes);
    frame.meta.offload.checksum = None;
    Ok(opened)
}

/// The headers up to where ESP belongs, taken off a frame.
struct Headers {
    bytes: ArrayVec<u8, HEADERS_LEN_MAX>,
    network_offset: usize,
    /// Where the header before ESP names its successor.
    protocol_field: usize,
    protocol: u8,
    is_ipv6: bool,
}

impl Headers {
    /// Takes them off `frame`, whose bytes are then the IP payload and nothing behind it.
    fn cut(frame: &mut Frame<'_>, network_offset: usize) -> Result<Self, TransportError> {
        let (headers, payload) = Self::find(frame.bytes(), network_offset)?;
        frame.truncate(payload.end);
        frame.trim_front(payload.start);
        Ok(headers)
    }

    /// Copies them, and says where the IP payload lies.
    fn find(bytes: &[u8], network_offset: usize) -> Result<(Self, Range<usize>), TransportError> {
        let network = bytes.get(network_offset..).ok_or(TransportError::Malformed)?;
        let (offsets, is_ipv6) = match network.first().map(|first| first >> 4) {
            Some(4) => (Offsets::in_ipv4(network)?, false),
            Some(6) => (Offsets::in_ipv6(network)?, true),
            _ => return Err(TransportError::Malformed),
        };
        if offsets.payload > offsets.end || offsets.end > network.len() {
            return Err(TransportError::Malformed);
        }
        let payload = network_offset + offsets.payload..network_offset + offsets.end;
        let mut copy = ArrayVec::new();
        copy.try_extend_from_slice(&bytes[..payload.start])
            .map_err(|_| TransportError::Malformed)?;
        let headers = Self {
            bytes: copy,
            network_offset,
            protocol_field: network_offset + offsets.protocol_field,
            protocol: network[offsets.protocol_field],
            is_ipv6,
        };
        Ok((headers, payload))
    }

    /// Lets the IP header announce ESP, or UDP, of `payload_len` bytes.
    fn announce(
        &mut self,
        udp: Option<UdpEncapsulation>,
        payload_len: usize,
    ) -> Result<(), TransportError> {
        self.protocol = if udp.is_some() { next_header::UDP } else { next_header::ESP };
        self.finish(payload_len)
    }

    /// Writes the headers before the ESP packet in `packet`, and the UDP header between.
    fn write(
        &self,
        packet: &mut [u8],
        udp: Option<UdpEncapsulation>,
        flow: u16,
    ) -> Option<PartialChecksum> {
        let (headers, datagram) = packet.split_at_mut(self.bytes.len());
        headers.copy_from_slice(&self.bytes);
        let left = write_udp(udp?, datagram, self.addresses(), flow)?;
        let start = headers.len() as u16;
        Some(PartialChecksum { start: start + left.start, field: start + left.field })
    }

    /// Writes protocol and length; IPv4's checksum follows them by increments, so that one that was
    /// wrong stays wrong.
    fn finish(&mut self, payload_len: usize) -> Result<(), TransportError> {
        let network_len = self.bytes.len() - self.network_offset + payload_len;
        let counted = if self.is_ipv6 { network_len - 40 } else { network_len };
        let counted = u16::try_from(counted).map_err(|_| TransportError::TooLong)?;
        if self.is_ipv6 {
            self.bytes[self.protocol_field] = self.protocol;
            let field = self.network_offset + 4;
            self.bytes[field..field + 2].copy_from_slice(&counted.to_be_bytes());
            return Ok(());
        }
        let header = &mut self.bytes[self.network_offset..];
        let word = |header: &[u8], at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (old_len, old_protocol) = (word(header, 2), word(header, 8));
        header[2..4].copy_from_slice(&counted.to_be_bytes());
        header[9] = self.protocol;
        let sum = checksum::updated(word(header, 10), old_len, counted);
        let sum = checksum::updated(sum, old_protocol, word(header, 8));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Ok(())
    }

    /// The sum over both addresses.
    fn addresses(&self) -> Sum {
        let range = if self.is_ipv6 { 8..40 } else { 12..20 };
        Sum::new().with(&self.bytes[self.network_offset..][range])
    }
}

/// Where ESP belongs in an IP packet, counted from the IP header.
struct Offsets {
    payload: usize,
    protocol_field: usize,
    end: usize,
}

impl Offsets {
    fn in_ipv4(packet: &[u8]) -> Result<Self, TransportError> {
        let header = packet.first_chunk::<20>().ok_or(TransportError::Malformed)?;
        let payload = usize::from(header[0] & 15) * 4;
        let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if payload < 20 {
            return Err(TransportError::Malformed);
        }
        let (more_fragments, fragment_offset) = (header[6] & 0x20, header[6] & 0x1f | header[7]);
        if more_fragments != 0 || fragment_offset != 0 {
            return Err(TransportError::Fragment);
        }
        Ok(Self { payload, protocol_field: 9, end })
    }

    /// Behind hop-by-hop and routing headers, and behind destination options that a routing header
    /// follows: those are for stations on the way (RFC 4303 s3.1.1, RFC 8200 s4.1).
    fn in_ipv6(packet: &[u8]) -> Result<Self, TransportError> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION_OPTIONS: u8 = 60;
        let header = packet.first_chunk::<40>().ok_or(TransportError::Malformed)?;
        let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut offsets = Self { payload: 40, protocol_field: 6, end };
        // Each turn moves on by eight bytes or more, inside what `HEADERS_LEN_MAX` bounds.
        while offsets.payload < HEADERS_LEN_MAX {
            let current = packet[offsets.protocol_field];
            let extension = packet.get(offsets.payload..).unwrap_or(&[]);
            let passed = match (current, extension) {
                (FRAGMENT, _) => return Err(TransportError::Fragment),
                (HOP_BY_HOP | ROUTING, _) => true,
                (DESTINATION_OPTIONS, [next, ..]) => *next == ROUTING,
                _ => false,
            };
            if !passed {
                return Ok(offsets);
            }
            let [_, length, ..] = extension else { return Err(TransportError::Malformed) };
            offsets.protocol_field = offsets.payload;
            offsets.payload += 8 + usize::from(*length) * 8;
        }
        Err(TransportError::Malformed)
    }
}
