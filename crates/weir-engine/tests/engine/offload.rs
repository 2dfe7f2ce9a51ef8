//! Cutting and gathering read as their specification: segments are what the sender's network card
//! would have made, and gathering undoes it without touching a payload byte.

use super::buffers::Packet;
use proptest::prelude::*;
use weir_engine::offload::checksum;
use weir_engine::offload::gather::Gather;
use weir_engine::offload::segment::Cut;
use weir_engine::output::{Destination, Output};
use weir_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use weir_wire::frame::{
    Frame, Link, Meta, Offload, PartialChecksum, SegmentKind, Segmentation, Time,
};
use weir_wire::parse::{Network, Parsed, Transport, parse};
use weir_wire::tcp::flags;

/// A conversation's fixed part, and what a segment of it says.
#[derive(Clone, Debug)]
struct Segment {
    ipv6: bool,
    vlan: bool,
    udp: bool,
    flow: u8,
    traffic_class: u8,
    id: u16,
    sequence: u32,
    flags: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Segment {
    fn tcp(sequence: u32, payload: &[u8]) -> Self {
        Self {
            ipv6: false,
            vlan: false,
            udp: false,
            flow: 1,
            traffic_class: 2,
            id: 0x1234,
            sequence,
            flags: flags::ACK,
            options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8],
            payload: payload.to_vec(),
        }
    }

    /// Its bytes with every checksum right, by word-wise arithmetic of this file.
    fn bytes(&self) -> Vec<u8> {
        let mut transport = vec![0x10, self.flow, 0x1f, 0x90];
        if self.udp {
            let len = 8 + self.payload.len() as u16;
            transport.extend(len.to_be_bytes());
            transport.extend([0, 0]);
        } else {
            transport.extend(self.sequence.to_be_bytes());
            transport.extend([0, 0, 0, 7]);
            transport.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags, 2, 0]);
            transport.extend([0, 0, 0, 0]);
            transport.extend(&self.options);
        }
        let field = if self.udp { 6 } else { 16 };
        let protocol = if self.udp { 17 } else { 6 };
        transport.extend(&self.payload);
        let len = transport.len();
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if self.vlan {
            bytes.extend([0x81, 0, 0, 5]);
        }
        let pseudo = if self.ipv6 {
            bytes.extend([0x86, 0xdd, 0x60 | self.traffic_class >> 4, self.traffic_class << 4]);
            bytes.extend([0, 0]);
            bytes.extend((len as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend([[1; 16], [2; 16]].concat());
            pseudo_header_v6(&[1; 16], &[2; 16], protocol, len as u32)
        } else {
            let mut header = vec![0x45, self.traffic_class];
            header.extend((20 + len as u16).to_be_bytes());
            header.extend(self.id.to_be_bytes());
            header.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = Sum::new().with(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend([8, 0]);
            bytes.extend(header);
            pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], protocol, len as u16)
        };
        let sum = pseudo.with(&transport).udp_checksum();
        transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(transport);
        bytes
    }

    /// As a host hands it over: a super-packet of `segment_len`, its checksum partial.
    fn super_packet(&self, segment_len: u16) -> Packet {
        let mut bytes = self.bytes();
        let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
        let kind = match (self.udp, self.ipv6) {
            (true, _) => SegmentKind::Udp,
            (false, false) => SegmentKind::TcpV4,
            (false, true) => SegmentKind::TcpV6,
        };
        let start = parsed.transport_offset;
        let field = start + if self.udp { 6 } else { 16 };
        let pseudo = pseudo_of(&bytes, &parsed).folded();
        bytes[field.into()..][..2].copy_from_slice(&pseudo.to_be_bytes());
        let header_len = parsed.payload_offset;
        let offload = Offload {
            checksum: Some(PartialChecksum { start, field }),
            segmentation: Some(Segmentation { kind, segment_len, header_len, ecn: false }),
            ..Offload::default()
        };
        let original_len = bytes.len() as u32;
        Packet::with_meta(
            &bytes,
            Meta { time: Time(0), original_len, link: Link::Ethernet, offload },
        )
    }

    /// The segments that a network card makes of it, one by one.
    fn segments(&self, segment_len: usize) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = self.payload.chunks(segment_len).collect();
        let last = pieces.len() - 1;
        pieces
            .iter()
            .enumerate()
            .map(|(index, piece)| {
                let mut segment = self.clone();
                segment.payload = piece.to_vec();
                segment.id = self.id.wrapping_add(index as u16);
                segment.sequence = self.sequence.wrapping_add((index * segment_len) as u32);
                if index > 0 {
                    segment.flags &= !flags::CWR;
                }
                if index < last {
                    segment.flags &= !(flags::PSH | flags::FIN);
                }
                segment.bytes()
            })
            .collect()
    }
}

fn pseudo_of(bytes: &[u8], parsed: &Parsed) -> Sum {
    let len = bytes.len() - usize::from(parsed.transport_offset);
    let network = &bytes[parsed.network_offset.into()..];
    if parsed.network == Network::Ipv6 {
        let source = network[8..24].try_into().unwrap();
        let destination = network[24..40].try_into().unwrap();
        pseudo_header_v6(source, destination, parsed.protocol, len as u32)
    } else {
        let source = network[12..16].try_into().unwrap();
        let destination = network[16..20].try_into().unwrap();
        pseudo_header_v4(source, destination, parsed.protocol, len as u16)
    }
}

fn super_packets() -> impl Strategy<Value = (Segment, u16)> {
    let shape = (any::<[bool; 3]>(), any::<u32>(), any::<u16>(), 0_u8..4);
    let flags = prop::sample::select(vec![
        flags::ACK,
        flags::ACK | flags::PSH,
        flags::ACK | flags::PSH | flags::FIN,
        flags::ACK | flags::ECE,
        flags::ACK | flags::CWR,
    ]);
    (shape, flags, 1_usize..4000, 40_u16..1500, 0_usize..4).prop_map(
        |((shape, sequence, id, traffic_class), flags, len, segment_len, options)| {
            let payload: Vec<u8> = (0..len).map(|index| (index * 31 + index / 251) as u8).collect();
            let mut segment = Segment::tcp(sequence, &payload);
            [segment.ipv6, segment.vlan, segment.udp] = shape;
            segment.id = id;
            segment.traffic_class = traffic_class;
            segment.flags = flags;
            segment.options = vec![1; options * 4];
            (segment, segment_len)
        },
    )
}

/// Runs `packets` through a gatherer and returns what it sends: bytes and offload of each.
fn gather(packets: &mut [Packet], destination: Destination) -> Vec<(Vec<u8>, Offload)> {
    let parsed: Vec<Parsed> = packets.iter().map(|p| p.parse(Link::Ethernet)).collect();
    let mut frames: Vec<Frame<'_>> = packets.iter_mut().map(Packet::frame).collect();
    let mut output = Output::new(0);
    let mut gather = Gather::new();
    for (index, parsed) in parsed.iter().enumerate() {
        gather.push(&frames, index as u32, parsed, destination, &mut output);
    }
    gather.finish(&mut frames, &mut output);
    let sent = output.packets.iter().map(|packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        let bytes: Vec<&[u8]> = parts.iter().map(|part| output.resolve(part, &frames)).collect();
        (bytes.concat(), packet.offload)
    });
    sent.collect()
}

fn gather_bytes(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
    gather_for(Destination::Host, packets)
}

fn gather_for(destination: Destination, packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
    let mut packets: Vec<Packet> = packets.iter().map(|bytes| Packet::new(bytes)).collect();
    gather(&mut packets, destination)
}

/// What a network card makes of what the gatherer sent: the segments again.
fn cut(bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    if offload.segmentation.is_none() {
        return vec![bytes.to_vec()];
    }
    let meta = Meta { offload, original_len: bytes.len() as u32, ..Meta::default() };
    let mut packet = Packet::with_meta(bytes, meta);
    let parsed = packet.parse(Link::Ethernet);
    let mut frame = packet.frame();
    let mut cut = Cut::new(&frame, &parsed).unwrap().unwrap();
    let mut segments = Vec::new();
    while let Some(range) = cut.next_in_place(frame.bytes_mut()) {
        segments.push(frame.bytes()[range].to_vec());
    }
    segments
}

proptest! {
    #[test]
    fn segments_are_what_a_network_card_makes((segment, segment_len) in super_packets()) {
        let expected = segment.segments(segment_len.into());
        let packet = segment.super_packet(segment_len);
        prop_assert_eq!(cut(packet.bytes(), packet.meta.offload), expected.clone());

        let mut packet = packet;
        let parsed = packet.parse(Link::Ethernet);
        let frame = packet.frame();
        let plan = Cut::new(&frame, &parsed).unwrap().unwrap();
        prop_assert_eq!(plan.count(), expected.len());
        for (index, expected) in expected.iter().enumerate() {
            let payload = &frame.bytes()[plan.payload(index)];
            let mut headers = vec![0xee; plan.header_len()];
            plan.write_headers(index, payload, &mut headers);
            prop_assert_eq!(&[&headers[..], payload].concat(), expected);
            prop_assert!(expected.len() <= plan.longest());
        }
    }

    #[test]
    fn etherip_stands_before_every_segment((segment, segment_len) in super_packets()) {
        let mut packet = segment.super_packet(segment_len);
        let parsed = packet.parse(Link::Ethernet);
        let mut frame = packet.frame();
        let plan = Cut::new(&frame, &parsed).unwrap().unwrap();
        let mut plan = plan.with_etherip(&mut frame).unwrap();
        for expected in segment.segments(segment_len.into()) {
            let range = plan.next_in_place(frame.bytes_mut()).unwrap();
            prop_assert_eq!(&frame.bytes()[range], &[&[0x30, 0], &expected[..]].concat());
        }
        prop_assert_eq!(plan.next_in_place(frame.bytes_mut()), None);
    }

    #[test]
    fn a_completed_checksum_is_the_right_one((segment, _) in super_packets()) {
        let mut packet = segment.super_packet(1);
        prop_assert!(packet.change(checksum::complete));
        prop_assert_eq!(packet.bytes(), segment.bytes());
        prop_assert_eq!(packet.meta.offload.checksum, None);
    }

    /// Several flows, interleaved; what is sent, cut again, holds every packet once, each flow in
    /// its order.
    #[test]
    fn gathering_loses_mixes_and_reorders_nothing(
        picks in prop::collection::vec((0_u8..3, 0_u8..12, any::<u64>()), 1..64),
        ipv6 in any::<bool>(), to_wire in any::<bool>(),
    ) {
        let mut sequences = [1_u32, u32::MAX - 1500, 77_000];
        let mut ids = [0_u16; 3];
        let mut sent = Vec::new();
        for (flow, kind, seed) in picks {
            let state = &mut sequences[usize::from(flow)];
            let len = if kind == 0 { 30 } else { 500 };
            let payload: Vec<u8> = (0..len).map(|i| (seed >> (i % 56)) as u8).collect();
            let mut segment = Segment::tcp(*state, &payload);
            segment.ipv6 = ipv6;
            segment.flow = flow;
            segment.id = ids[usize::from(flow)];
            ids[usize::from(flow)] += 1;
            match kind {
                1 => segment.payload.clear(),
                2 => segment.flags |= flags::PSH,
                3 => segment.sequence = state.wrapping_add(1000),
                4 => segment.traffic_class = 3,
                5 => segment.flags |= flags::FIN,
                6 => segment.options[11] = 7,
                _ => {}
            }
            *state = state.wrapping_add(segment.payload.len() as u32);
            let mut bytes = segment.bytes();
            if kind == 7 {
                *bytes.last_mut().unwrap() ^= 1;
            }
            sent.push(bytes);
        }
        let destination = if to_wire { Destination::Wire } else { Destination::Host };
        let received = gather_for(destination, &sent);
        let again: Vec<Vec<u8>> = received.iter().flat_map(|(b, o)| cut(b, *o)).collect();
        for flow in 0..3 {
            let of_flow = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
                let offset = if ipv6 { 55 } else { 35 };
                packets.iter().filter(|bytes| bytes[offset] == flow).cloned().collect()
            };
            prop_assert_eq!(of_flow(&again), of_flow(&sent));
        }
        prop_assert_eq!(again.len(), sent.len());
    }

    #[test]
    fn hostile_super_packets_are_refused_or_cut(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        (segment, segment_len) in super_packets(),
        noise in prop::collection::vec((0_usize..120, any::<u8>()), 0..6),
        kind in prop::sample::select(vec![
            SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp,
        ]),
        take_noise in any::<bool>(), truncated in 0_usize..300,
    ) {
        if !take_noise {
            bytes = segment.bytes();
            bytes.truncate(truncated.max(14));
            for (at, value) in noise {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
        }
        let segmentation = Segmentation { kind, segment_len, header_len: 54, ecn: false };
        let offload = Offload { segmentation: Some(segmentation), ..Offload::default() };
        let original_len = bytes.len() as u32;
        let meta = Meta { offload, original_len, ..Meta::default() };
        let mut packet = Packet::with_meta(&bytes, meta);
        let parsed = packet.parse(Link::Ethernet);
        let mut frame = packet.frame();
        if let Some(Ok(mut cut)) = Cut::new(&frame, &parsed) {
            while let Some(range) = cut.next_in_place(frame.bytes_mut()) {
                prop_assert!(range.end <= bytes.len());
            }
        }
    }
}

#[test]
fn a_full_run_of_segments_becomes_one_super_packet() {
    for ipv6 in [false, true] {
        let payload: Vec<u8> = (0..30_000).map(|index| (index / 7) as u8).collect();
        let mut segment = Segment::tcp(u32::MAX - 5, &payload);
        segment.ipv6 = ipv6;
        segment.flags |= flags::PSH;
        let mut packets: Vec<Packet> =
            segment.segments(1448).iter().map(|bytes| Packet::new(bytes)).collect();
        packets[3].meta.offload.checksum_verified = true;
        let mut received = gather(&mut packets, Destination::Host);
        assert_eq!(received.len(), 1);
        let (bytes, offload) = received.remove(0);
        let expected = segment.super_packet(1448);
        assert_eq!(bytes, expected.bytes());
        assert_eq!(offload.segmentation, expected.meta.offload.segmentation);
        assert_eq!(offload.checksum, expected.meta.offload.checksum);
    }
}

#[test]
fn a_super_packet_ends_where_an_ip_packet_must() {
    let payload = vec![9; 8948 * 12];
    let packets = Segment::tcp(1, &payload).segments(8948);
    let received = gather_bytes(&packets);
    assert_eq!(received.iter().map(|(bytes, _)| bytes.len()).max(), Some(14 + 52 + 7 * 8948));
    assert_eq!(received.len(), 2);
}

#[test]
fn a_wrong_checksum_is_left_for_the_host_to_see() {
    let mut packets = Segment::tcp(1, &[5; 4000]).segments(1000);
    packets[1][100] ^= 1;
    packets[3][24] ^= 1;
    let received = gather_bytes(&packets);
    let lens: Vec<usize> = received.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [1066; 4], "neither TCP's nor IPv4's is papered over");
    assert_eq!(received[1].0, packets[1]);
}

#[test]
fn link_padding_does_not_become_payload() {
    let segments = Segment::tcp(1, &[5; 8]).segments(2);
    let padded: Vec<Vec<u8>> = segments.iter().map(|s| [s, &[0; 4][..]].concat()).collect();
    let received = gather_bytes(&padded);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].0.len(), 14 + 52 + 8);
}

#[test]
fn the_wire_is_given_what_comes_out_of_the_cutter_as_it_was_sent() {
    let segments = |change: fn(&mut Segment, u16)| -> Vec<Vec<u8>> {
        let numbered = (0..4_u16).map(|number| {
            let mut segment = Segment::tcp(1 + 2 * u32::from(number), &[number as u8; 2]);
            segment.id += number;
            change(&mut segment, number);
            segment.bytes()
        });
        numbered.collect()
    };
    let sent = |packets: &[Vec<u8>]| {
        let sent = gather_for(Destination::Wire, packets);
        let again: Vec<Vec<u8>> = sent.iter().flat_map(|(b, o)| cut(b, *o)).collect();
        assert_eq!(again, packets);
        sent.len()
    };
    let as_sent = segments(|_, _| {});
    assert_eq!(sent(&as_sent), 1);
    assert_eq!(sent(&segments(|it, _| it.ipv6 = true)), 1);
    let unnumbered = segments(|it, _| it.id = 0);
    assert_eq!(sent(&unnumbered), 4, "a cutter would number them");
    assert_eq!(gather_bytes(&unnumbered).len(), 1, "a host reads no such numbers");
    let padded: Vec<Vec<u8>> = as_sent.iter().map(|it| [it, &[0; 4][..]].concat()).collect();
    assert_eq!(sent(&padded), 4);
    let mut trailed = as_sent;
    trailed[0].extend([7; 4]);
    assert_eq!(sent(&trailed), 2);
}

#[test]
fn a_batch_beyond_the_bound_still_passes() {
    let packets: Vec<Vec<u8>> = Segment::tcp(1, &[5; 200]).segments(2);
    let received = gather_bytes(&packets);
    let again: Vec<Vec<u8>> = received.iter().flat_map(|(b, o)| cut(b, *o)).collect();
    assert_eq!(again, packets);
}

#[test]
fn a_frame_without_segmentation_needs_no_cut() {
    let mut packet = Packet::new(&Segment::tcp(1, &[5; 200]).bytes());
    let parsed = packet.parse(Link::Ethernet);
    assert!(matches!(parsed.transport, Transport::Tcp { .. }));
    assert!(Cut::new(&packet.frame(), &parsed).is_none());
}
