//! What a frame's sender says that it left to an adapter, held against the frame, before anybody
//! looks at it.
//!
//! Whoever writes virtio's header (a guest, a container with packet sockets) says where a checksum
//! goes, and from where on a super-packet is cut. That place may be a port, or the payload: then
//! whoever finishes the frame writes there two bytes of the sender's choice, behind rules and
//! access lines. So what is not the packet's own transport checksum is finished here, and what
//! would be cut elsewhere than it was read is dropped (docs/adr/0302).

use weir_wire::checksum::{Leavable, leavable};
use weir_wire::ethernet::ip_offset;
use weir_wire::frame::{Frame, Link, Offload, PartialChecksum, SegmentKind};
use weir_wire::ip::protocol::{SCTP, TCP, UDP};
use weir_wire::parse::{Network, parse_frame};

use super::checksum::{complete, pseudo_header};
use crate::verdict::DropReason;

const TCP_FIELD: usize = 16;
const UDP_FIELD: usize = 6;
const SCTP_FIELD: usize = 8;

/// Makes what `frame` says of its undone parts true, or does them.
///
/// # Errors
/// [`DropReason::Malformed`]: a super-packet whose headers are not what it says, or a checksum
/// outside the frame.
#[inline]
pub(crate) fn settle(frame: &mut Frame<'_>) -> Result<(), DropReason> {
    let Offload { checksum, segmentation, .. } = frame.meta.offload;
    if checksum.is_none() && segmentation.is_none() {
        return Ok(());
    }
    let is_own = |own: &Leavable| {
        own.end == frame.len()
            && checksum.is_none_or(|it| it == own.place)
            && segmentation.is_none_or(|it| is_of(it.kind, own.protocol, own.is_v6))
    };
    let Some(own) = own(frame).filter(is_own) else { return settle_odd(frame) };
    if checksum.is_some() {
        leave(frame, own.place, own.sum);
    }
    Ok(())
}

/// The same for packets that few senders make: with IPv6 extension headers, bytes behind their end,
/// or of other protocols; and for those whose sender lies.
#[cold]
fn settle_odd(frame: &mut Frame<'_>) -> Result<(), DropReason> {
    let Offload { checksum, segmentation, .. } = frame.meta.offload;
    let parsed = parse_frame(frame);
    let (start, end) = (usize::from(parsed.transport_offset), parsed.end as usize);
    let field = match parsed.protocol {
        TCP => TCP_FIELD,
        UDP => UDP_FIELD,
        _ => SCTP_FIELD,
    };
    let is_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
    let has_ports = is_ip && parsed.fragment.is_none() && parsed.fault.is_none();
    let is_own = |it: PartialChecksum| {
        has_ports && usize::from(it.start) == start && usize::from(it.field) == start + field
    };
    if let Some(segmentation) = segmentation {
        let is_v6 = parsed.network == Network::Ipv6;
        let is_true = has_ports
            && is_of(segmentation.kind, parsed.protocol, is_v6)
            && checksum.is_none_or(is_own)
            && end == frame.len();
        // Its adapter cuts what is there, not what the IP header says is.
        if !is_true {
            return Err(DropReason::Malformed);
        }
        if let Some(place) = checksum {
            let length = u32::try_from(end - start).or(Err(DropReason::Malformed))?;
            leave(frame, place, pseudo_header(&parsed, parsed.protocol, length).folded());
        }
        return Ok(());
    }
    if let Some(place) = checksum.filter(|it| is_own(*it))
        && parsed.protocol == SCTP
    {
        return finish_sctp(frame, place, end);
    }
    // Whether the result is right is for whoever reads the packet to see.
    frame.meta.offload.checksum_verified = false;
    if complete(frame) { Ok(()) } else { Err(DropReason::Malformed) }
}

/// SCTP's is another sum (RFC 9260, appendix A), in the byte order of its polynomial.
fn finish_sctp(
    frame: &mut Frame<'_>,
    place: PartialChecksum,
    end: usize,
) -> Result<(), DropReason> {
    let (start, field) = (usize::from(place.start), usize::from(place.field));
    let packet = frame.bytes_mut().get_mut(start..end).ok_or(DropReason::Malformed)?;
    let at = field - start;
    packet.get_mut(at..at + 4).ok_or(DropReason::Malformed)?.fill(0);
    let checksum = crc32c::crc32c(packet);
    packet[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    frame.meta.offload.checksum = None;
    Ok(())
}

/// The transport checksum of a packet right behind its Ethernet header and tags.
#[inline]
fn own(frame: &Frame<'_>) -> Option<Leavable> {
    let bytes = frame.bytes();
    let network = match frame.meta.link {
        Link::Ip => 0,
        Link::Ethernet => ip_offset(bytes)?,
        _ => return None,
    };
    leavable(bytes, network)
}

#[inline]
fn is_of(kind: SegmentKind, protocol: u8, is_v6: bool) -> bool {
    match kind {
        SegmentKind::Udp => protocol == UDP,
        SegmentKind::TcpV4 => protocol == TCP && !is_v6,
        SegmentKind::TcpV6 => protocol == TCP && is_v6,
    }
}

/// Writes what a sender writes that leaves a checksum: another sum would make a wrong one of it.
#[inline]
fn leave(frame: &mut Frame<'_>, place: PartialChecksum, sum: u16) {
    let field = usize::from(place.field);
    frame.bytes_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use weir_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
    use weir_wire::frame::{Meta, Segmentation};

    use super::*;

    const TCP_START: u16 = 34;
    const PAYLOAD: &[u8] = b"evil-command and more";

    fn packet(protocol: u8, transport_len: u8) -> Vec<u8> {
        let len = 20 + transport_len + PAYLOAD.len() as u8;
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0, 0, len, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.resize(bytes.len() + usize::from(transport_len), 0);
        bytes[TCP_START as usize..][..4].copy_from_slice(&[0x10, 0, 0x1f, 0x90]);
        match protocol {
            TCP => bytes[46] = 0x50,
            UDP => bytes[39] = transport_len + PAYLOAD.len() as u8,
            _ => {}
        }
        bytes.extend(PAYLOAD);
        bytes
    }

    fn partial(start: u16, field: u16) -> Offload {
        let checksum = Some(PartialChecksum { start, field });
        Offload { checksum, checksum_verified: true, ..Offload::default() }
    }

    fn joined(kind: SegmentKind, offload: Offload) -> Offload {
        let segmentation = Segmentation { kind, segment_len: 8, header_len: 54, ecn: false };
        Offload { segmentation: Some(segmentation), ..offload }
    }

    /// The frame's bytes and offload once it is settled.
    fn settled(mut bytes: Vec<u8>, offload: Offload) -> Result<(Vec<u8>, Offload), DropReason> {
        let len = bytes.len();
        let meta = Meta { offload, original_len: len as u32, ..Meta::default() };
        let mut frame = Frame::new(&mut bytes, 0, len, meta);
        settle(&mut frame)?;
        let offload = frame.meta.offload;
        Ok((bytes, offload))
    }

    fn sum_of(bytes: &[u8], protocol: u8) -> Sum {
        let len = (bytes.len() - TCP_START as usize) as u16;
        pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], protocol, len)
    }

    #[test]
    fn the_packets_own_checksum_is_left_to_the_adapter() {
        for (protocol, len, field) in [(TCP, 20, 50), (UDP, 8, 40)] {
            let mut bytes = packet(protocol, len);
            let sum = sum_of(&bytes, protocol).folded();
            for stood in [sum, 0x1234, 0] {
                bytes[field..field + 2].copy_from_slice(&stood.to_be_bytes());
                let offload = partial(TCP_START, field as u16);
                let (after, kept) = settled(bytes.clone(), offload).unwrap();
                bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                assert_eq!((after, kept), (bytes.clone(), offload), "{protocol} {stood:#x}");
            }
        }
    }

    #[test]
    fn a_checksum_on_a_port_or_in_the_payload_is_written_before_anybody_looks() {
        for (start, field) in [(34, 36), (54, 56), (14, 40), (50, 50), (34, 40)] {
            let bytes = packet(TCP, 20);
            let (after, offload) = settled(bytes.clone(), partial(start, field)).unwrap();
            let mut finished = bytes.clone();
            let sum = Sum::new().with(&bytes[usize::from(start)..]).udp_checksum();
            finished[usize::from(field)..][..2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(after, finished, "{start} {field}");
            assert_eq!((offload.checksum, offload.checksum_verified), (None, false));
        }
    }

    #[test]
    fn padding_under_a_checksum_is_summed_as_adapters_do() {
        let mut bytes = packet(TCP, 20);
        let sum = sum_of(&bytes, TCP);
        bytes[50..52].copy_from_slice(&sum.folded().to_be_bytes());
        bytes.extend([7; 3]);
        let (after, offload) = settled(bytes, partial(TCP_START, 50)).unwrap();
        let end = after.len() - 3;
        // Wrong for the packet, which ends before: for whoever verifies it.
        assert_ne!(sum.with(&after[34..end]).checksum(), 0);
        assert_eq!((offload.checksum, offload.checksum_verified), (None, false));
    }

    #[test]
    fn super_packets_are_cut_where_they_are_read_or_dropped() {
        let own = partial(TCP_START, 50);
        let tcp = packet(TCP, 20);
        for offload in [own, Offload::default()] {
            assert!(settled(tcp.clone(), joined(SegmentKind::TcpV4, offload)).is_ok());
        }
        let is_refused = |bytes: Vec<u8>, kind, offload| {
            assert_eq!(settled(bytes, joined(kind, offload)), Err(DropReason::Malformed));
        };
        is_refused(tcp.clone(), SegmentKind::TcpV4, partial(54, 70));
        is_refused(tcp.clone(), SegmentKind::TcpV6, own);
        is_refused(tcp.clone(), SegmentKind::Udp, own);
        is_refused(packet(UDP, 8), SegmentKind::TcpV4, partial(TCP_START, 40));
        let behind_its_end = [tcp.as_slice(), b"unread"].concat();
        is_refused(behind_its_end, SegmentKind::TcpV4, own);
        is_refused(tcp[..60].to_vec(), SegmentKind::TcpV4, own);
    }

    #[test]
    fn behind_extension_headers_it_is_the_same() {
        let mut bytes = vec![2; 12];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8 + 20 + PAYLOAD.len() as u8, 60, 64]);
        bytes.extend([[0x20; 16], [0x30; 16]].concat());
        bytes.extend([TCP, 0, 1, 4, 0, 0, 0, 0]);
        bytes.extend([&packet(TCP, 20)[34..54], PAYLOAD].concat());
        let sum = pseudo_header_v6(&[0x20; 16], &[0x30; 16], TCP, 20 + PAYLOAD.len() as u32);
        bytes[78..80].copy_from_slice(&sum.folded().to_be_bytes());
        let (after, offload) = settled(bytes.clone(), partial(62, 78)).unwrap();
        assert_eq!((sum.with(&after[62..]).checksum(), offload.checksum), (0, None));
        let offload = joined(SegmentKind::TcpV6, partial(62, 78));
        assert_eq!(settled(bytes.clone(), offload), Ok((bytes, offload)));
    }

    #[test]
    fn the_sum_of_sctp_is_its_own() {
        let bytes = packet(SCTP, 12);
        let (after, offload) = settled(bytes.clone(), partial(34, 42)).unwrap();
        let checksum = u32::from_le_bytes(*after[42..].first_chunk().unwrap());
        assert_eq!(checksum, crc32c::crc32c(&bytes[34..]));
        assert_eq!((offload.checksum, offload.checksum_verified), (None, true));
        // The example of RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_place_outside_the_frame_is_refused() {
        for (start, field) in [(34, 200), (200, 200), (u16::MAX, u16::MAX)] {
            let refused = settled(packet(TCP, 20), partial(start, field));
            assert_eq!(refused, Err(DropReason::Malformed));
        }
    }
}
