//! Sealed datagrams that leave joined, and come so.

use weir_wire::checksum::Sum;

use super::*;

const UDP_LEN: usize = 8;

/// Equal datagrams with the same headers as one super-packet, as a kernel hands it over that did
/// not cut it.
pub(super) fn join(datagrams: &[Sent]) -> Sent {
    let header_len = usize::from(datagrams[0].offload.joinable.expect("it may be joined"));
    let mut bytes = datagrams[0].bytes.clone();
    for next in &datagrams[1..] {
        bytes.extend(&next.bytes[header_len..]);
    }
    let udp = header_len - UDP_LEN;
    let len = ((bytes.len() - udp) as u16).to_be_bytes();
    bytes[udp + 4..udp + 6].copy_from_slice(&len);
    let total = ((bytes.len() - 14) as u16).to_be_bytes();
    bytes[16..18].copy_from_slice(&total);
    let start = udp as u16;
    let offload = Offload {
        checksum: Some(PartialChecksum { start, field: start + 6 }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::Udp,
            segment_len: (datagrams[0].bytes.len() - header_len) as u16,
            header_len: header_len as u16,
            ecn: false,
        }),
        ..Offload::default()
    };
    Sent { bytes, offload }
}

pub(super) fn sealed(gateway: &mut Gateway, sent: &Sent) -> Vec<Sent> {
    let sent = gateway.receive_offloaded(Side::Host, from_ref(sent));
    sent.into_iter().map(|(_, packet)| packet).collect()
}

#[test]
fn in_udp_every_sealed_packet_may_be_joined_and_says_where_its_headers_end() {
    for (mode, own) in [(Mode::Ethernet, true), (Mode::Tunnel, true), (Mode::Tunnel, false)] {
        let (mut a, _) = pair_in(Encapsulation::UdpSpread, mode, own);
        let alone = Sent { bytes: udp(700), offload: Offload::default() };
        let packets = [sealed(&mut a, &alone), sealed(&mut a, &super_packet(9000, 1000))].concat();
        assert_eq!(packets.len(), 10, "{mode:?} {own}");
        for Sent { bytes, offload } in packets {
            let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
            assert!(matches!(parsed.transport, Transport::Esp { in_udp: true, .. }));
            assert_eq!(offload.joinable, Some(parsed.transport_offset + UDP_LEN as u16));
            assert_eq!(bytes[usize::from(parsed.transport_offset) + 6..][..2], [0, 0]);
        }
    }
    // Without UDP there is nothing that a kernel could cut, and a packet's own IP header counts.
    for (encapsulation, mode) in
        [(Encapsulation::Esp, Mode::Tunnel), (Encapsulation::Udp, Mode::Transport)]
    {
        let (mut a, _) = pair_in(encapsulation, mode, false);
        let packets = sealed(&mut a, &super_packet(9000, 1000));
        assert!(packets.iter().all(|packet| packet.offload.joinable.is_none()), "{mode:?}");
    }
}

#[test]
fn what_comes_joined_is_opened_as_if_it_had_come_one_by_one() {
    for (mode, own) in [(Mode::Ethernet, true), (Mode::Tunnel, false)] {
        let (mut a, mut b) = pair_in(Encapsulation::Udp, mode, own);
        let (_, mut twin) = pair_in(Encapsulation::Udp, mode, own);
        // Segments of one stream, the last of them shorter.
        let wire = sealed(&mut a, &super_packet(30_500, 1200));
        assert_eq!(wire.len(), 26);
        let arrived = b.receive_joined(&[join(&wire)]);
        let one_by_one: Vec<Vec<u8>> = wire.iter().map(|it| it.bytes.clone()).collect();
        assert_eq!(arrived, twin.receive(Side::Wire, &one_by_one), "{mode:?}");
        assert_eq!(arrived.len(), 1, "it was gathered again");
        assert_eq!(b.engine.peer_counters(0).opened_packets, 26);

        // Beside others, in their order; what was there before is a replay.
        let alone = Sent { bytes: udp(100), offload: Offload::default() };
        let before = sealed(&mut a, &alone);
        let behind = sealed(&mut a, &alone);
        let mix = [&before[..], &[join(&wire[..3])], &behind].concat();
        assert_eq!(only(Destination::Host, b.receive_joined(&mix)), [udp(100), udp(100)]);
        assert_eq!(b.dropped(Side::Wire, DropReason::ReplayDuplicate), 3);
    }
}

#[test]
fn one_datagram_that_was_forged_takes_no_other_with_it() {
    let (mut a, mut b) = pair_in(Encapsulation::Udp, Mode::Ethernet, true);
    let wire = sealed(&mut a, &super_packet(12_000, 1000));
    let mut joined = join(&wire);
    let each = usize::from(joined.offload.segmentation.unwrap().segment_len);
    joined.bytes[42 + 5 * each + 100] ^= 1;
    b.receive_joined(&[joined]);
    assert_eq!(b.engine.peer_counters(0).opened_packets, 11);
    assert_eq!(b.dropped(Side::Wire, DropReason::Authentication), 1);
}

/// ESP in UDP need not be ours: what passes to a host keeps the checksum that it had, or none.
#[test]
fn each_datagram_that_was_cut_has_a_checksum_where_the_super_packet_had_one() {
    let (mut a, _) = pair_in(Encapsulation::Udp, Mode::Ethernet, true);
    let mut joined = join(&sealed(&mut a, &super_packet(9000, 1000)));
    for has_checksum in [true, false] {
        if !has_checksum {
            joined.offload.checksum = None;
        }
        let packets = from_ref(&joined);
        let (mut buffers, mut seen) = (buffers(packets), 0);
        let mut frames = frames(Time(1), &mut buffers, packets);
        Datagrams::default().each_batch(&mut frames, Joined::Sealed, &mut |batch| {
            for frame in batch.iter() {
                let (addresses, udp) = (&frame.bytes()[26..34], &frame.bytes()[34..]);
                let sum = Sum::new().with(addresses).with_u16(17).with_u16(udp.len() as u16);
                let right = sum.with(udp).checksum() == 0;
                assert_eq!((udp[6..8] != [0, 0], right), (has_checksum, has_checksum));
                seen += 1;
            }
        });
        assert_eq!(seen, 9);
    }
}

#[test]
fn super_packets_of_others_stay_whole() {
    let mut plain = super_packet(9000, 1000);
    let count_of = |packets: &[Sent]| {
        let (mut buffers, mut seen) = (buffers(packets), Vec::new());
        let mut frames = frames(Time(1), &mut buffers, packets);
        Datagrams::default().each_batch(&mut frames, Joined::Sealed, &mut |batch| {
            seen.extend(batch.iter().map(|frame| frame.bytes().to_vec()));
        });
        let same = seen.iter().eq(packets.iter().map(|packet| &packet.bytes));
        assert!(same, "they are as they were, in their order");
    };
    count_of(&[plain.clone(), plain.clone()]);
    // UDP of a host's, and one that is not what its offload says.
    let mut datagrams = Sent { bytes: udp(3000), offload: plain.offload };
    let segmentation = plain.offload.segmentation.as_mut().unwrap();
    segmentation.kind = SegmentKind::Udp;
    datagrams.offload.segmentation = Some(*segmentation);
    count_of(&[datagrams.clone(), plain, datagrams]);
}

#[test]
fn all_are_cut_where_rules_look_at_them() {
    let mut offload = super_packet(9000, 1000).offload;
    offload.segmentation.as_mut().unwrap().kind = SegmentKind::Udp;
    let packets =
        [Sent { bytes: udp(3000), offload }, Sent { bytes: udp(10), offload: <_>::default() }];
    let (mut buffers, mut seen) = (buffers(&packets), Vec::new());
    let mut frames = frames(Time(1), &mut buffers, &packets);
    Datagrams::default().each_batch(&mut frames, Joined::All, &mut |batch| {
        seen.extend(batch.iter().map(|frame| frame.bytes()[42..].to_vec()));
        assert!(batch.iter().all(|frame| frame.meta.offload.segmentation.is_none()));
    });
    let whole = &packets[0].bytes[42..];
    assert_eq!(seen.pop().as_deref(), Some(&packets[1].bytes[42..]));
    assert!(seen.len() > 1 && seen.concat() == whole, "{}", seen.len());
}
