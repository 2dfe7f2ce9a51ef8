//! What must hold for any input of the fuzz targets `esp_open` and `offload`.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weir_engine::esp::open::{OpenError, OpeningSa, OpeningState};
use weir_engine::esp::outer::{combine_ecn, strip_etherip, strip_outer, write_ecn};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::esp::transport::{open_transport, seal_transport};
use weir_engine::esp::{esp_len, next_header};
use weir_engine::offload::checksum;
use weir_engine::offload::gather::Gather;
use weir_engine::offload::segment::Cut;
use weir_engine::output::{Destination, Output};
use weir_wire::frame::{Frame, Link, Meta, Offload, PartialChecksum, SegmentKind, Segmentation};
use weir_wire::parse::{Parsed, parse_frame};

const ROOM: usize = 128;
const SPI: u32 = 0x1000;
const KEY: [u8; 16] = [7; 16];
const SALT: [u8; 4] = [7; 4];

/// A byte of flags, then bytes that are taken for a packet from the wire, for what an authentic
/// sender encrypted, for a packet to seal, and for kept state.
pub(crate) fn esp_open(input: &[u8]) {
    let [flags, bytes @ ..] = input else { return };
    let parameters = SaParameters {
        extended_sequence: flags & 1 != 0,
        replay_window: 64,
        ..SaParameters::new(Spi::new(SPI).unwrap(), &[7; 20]).unwrap()
    };
    let link = if flags & 2 != 0 { Link::Ip } else { Link::Ethernet };
    hostile_packet(&parameters, link, bytes);
    authentic_text(&parameters, bytes);
    plain_packet(&parameters, bytes);
    kept_state(&parameters, bytes);
}

fn hostile_packet(parameters: &SaParameters, link: Link, bytes: &[u8]) {
    let mut opening = OpeningSa::new(parameters, None).unwrap();
    in_frame(bytes, link, |frame| {
        let parsed = parse_frame(frame);
        if strip_outer(frame, &parsed) {
            assert!(opening.open(frame).is_err());
        }
    });
    in_frame(bytes, link, |frame| assert!(opening.open(frame).is_err()));
    in_frame(bytes, link, |frame| assert!(open_transport(&mut opening, frame, 0).is_err()));
    assert!(!opening.is_dirty() && opening.highest().0 == 0, "a forgery moved the window");
}

/// Behind a good ICV anything may stand: the peer may be broken, or taken over.
fn authentic_text(parameters: &SaParameters, bytes: &[u8]) {
    let mut text = bytes.to_vec();
    text.truncate(text.len() / 4 * 4);
    if text.is_empty() {
        return;
    }
    let (low, number) = ([0, 0, 0, 5], 5_u64.to_be_bytes());
    let authenticated = match parameters.extended_sequence {
        true => [&SPI.to_be_bytes()[..], &number].concat(),
        false => [SPI.to_be_bytes(), low].concat(),
    };
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&SALT);
    nonce[4..].copy_from_slice(&number);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).unwrap());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(authenticated), &mut text).unwrap();
    let header = [SPI.to_be_bytes(), low].concat();
    let packet = [&header[..], &number, &text, tag.as_ref()].concat();
    let mut opening = OpeningSa::new(parameters, None).unwrap();
    in_frame(&packet, Link::Ip, |frame| match opening.open(frame) {
        Ok(opened) => {
            assert!(bytes.starts_with(frame.bytes()));
            assert_eq!(opened.sequence.0, 5);
            strip_etherip(frame);
            for ecn in 0..4 {
                if let Some(ecn) = combine_ecn(ecn, bytes[0]) {
                    write_ecn(frame.bytes_mut(), ecn);
                }
            }
        }
        Err(error) => assert_eq!(error, OpenError::Trailer),
    });
    assert_eq!(opening.highest().0, 5);
}

fn plain_packet(parameters: &SaParameters, bytes: &[u8]) {
    let mut sealing = SealingSa::new(parameters, None).unwrap();
    sealing.extend_reservation(&sealing.reservation_needed().unwrap());
    let mut opening = OpeningSa::new(parameters, None).unwrap();
    in_frame(bytes, Link::Ip, |frame| {
        sealing.seal(frame, next_header::IPV4).unwrap();
        assert_eq!(frame.len(), esp_len(bytes.len()));
        opening.open(frame).unwrap();
        assert_eq!(frame.bytes(), bytes);
    });
    in_frame(bytes, Link::Ip, |frame| {
        if seal_transport(&mut sealing, frame, 0, None, 0).is_ok() {
            open_transport(&mut opening, frame, 0).unwrap();
            let (mut before, mut after) = (bytes[..frame.len()].to_vec(), frame.bytes().to_vec());
            same_zeros(&mut before);
            same_zeros(&mut after);
            assert_eq!(before, after, "what was sealed comes back");
        }
    });
}

/// An IPv4 checksum of all ones means the same as zero, and may come back as zero (RFC 1624 s3).
fn same_zeros(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 && packet[10..12] == [0xff, 0xff] {
        packet[10..12].fill(0);
    }
}

fn kept_state(parameters: &SaParameters, bytes: &[u8]) {
    let _ = SealingState::decode(bytes);
    if let Ok(state) = OpeningState::decode(bytes) {
        let _ = OpeningSa::new(parameters, Some(&state));
    }
}

/// Five bytes of offload, then a frame: what a hostile host could hand over as a super-packet.
pub(crate) fn offload(input: &[u8]) {
    let Some(([kind, segment_len @ .., start, field], bytes)) = input.split_first_chunk::<5>()
    else {
        return;
    };
    let kinds = [SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp];
    let segment_len = u16::from_be_bytes(*segment_len);
    let segmentation = Segmentation {
        kind: kinds[usize::from(*kind) % kinds.len()],
        segment_len,
        header_len: 0,
        ecn: false,
    };
    let partial = PartialChecksum { start: (*start).into(), field: (*field).into() };
    in_frame(bytes, Link::Ethernet, |frame| {
        frame.meta.offload.checksum = Some(partial);
        checksum::complete(frame);
    });
    let mut segments = Vec::new();
    in_frame(bytes, Link::Ethernet, |frame| {
        frame.meta.offload = Offload { segmentation: Some(segmentation), ..Offload::default() };
        let parsed = parse_frame(frame);
        let Some(Ok(mut cut)) = Cut::new(frame, &parsed) else { return };
        let payload: usize = (0..cut.count()).map(|index| cut.payload(index).len()).sum();
        assert_eq!(payload, parsed.end as usize - cut.header_len());
        for index in 0..cut.count().min(64) {
            let range = cut.next_in_place(frame.bytes_mut()).expect("a segment of the count");
            let segment = frame.bytes()[range].to_vec();
            assert!(segment.len() <= cut.longest());
            assert_eq!(segment.len() - cut.header_len(), cut.payload(index).len());
            segments.push(segment);
        }
    });
    gathered(&segments);
    let pieces: Vec<Vec<u8>> =
        bytes.chunks(usize::from(segment_len).max(1)).take(64).map(<[u8]>::to_vec).collect();
    gathered(&pieces);
}

/// Gathering loses no byte of TCP payload, whatever the frames are.
fn gathered(packets: &[Vec<u8>]) {
    let mut buffers: Vec<Vec<u8>> = packets.to_vec();
    let mut frames: Vec<Frame<'_>> = buffers
        .iter_mut()
        .map(|buffer| {
            let end = buffer.len();
            let meta = Meta { original_len: end as u32, ..Meta::default() };
            Frame::new(buffer, 0, end, meta)
        })
        .collect();
    let parsed: Vec<Parsed> = frames.iter().map(parse_frame).collect();
    let (mut output, mut gather) = (Output::new(0), Gather::new());
    for (index, parsed) in parsed.iter().enumerate() {
        gather.push(&frames, index as u32, parsed, Destination::Host, &mut output);
    }
    gather.finish(&mut frames, &mut output);
    let mut segments = 0;
    for packet in &output.packets {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        let len: usize = parts.iter().map(|part| output.resolve(part, &frames).len()).sum();
        segments += match packet.offload.segmentation {
            Some(cut) => {
                assert!(len <= 65_535 + 22);
                (len - usize::from(cut.header_len)).div_ceil(cut.segment_len.into())
            }
            None => 1,
        };
    }
    assert_eq!(segments, packets.len());
}

fn in_frame(bytes: &[u8], link: Link, work: impl FnOnce(&mut Frame<'_>)) {
    let mut buffer = [&[0; ROOM][..], bytes, &[0; ROOM]].concat();
    let meta = Meta { link, original_len: bytes.len() as u32, ..Meta::default() };
    work(&mut Frame::new(&mut buffer, ROOM, ROOM + bytes.len(), meta));
}
