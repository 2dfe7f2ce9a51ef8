//! Addresses decide, and no MAC address, tag or key says otherwise: what a forged ARP answer, a
//! stack of VLAN tags or another peer's key may try.

use weir_engine::policy::FrameClass;
use weir_engine::proof::WireProof;

use super::*;

const GROUP_MACS: [[u8; 6]; 5] = [
    [0xff; 6],
    [0x01, 0x00, 0x5e, 0, 0, 2],
    [0x33, 0x33, 0, 0, 0, 2],
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
    [0x01, 0x80, 0xc2, 0, 0, 0],
];
const ICMPV6: u8 = 58;
const IBA: u8 = 0x1b;

/// Swaps the policy for one in which every class of frames passes in clear.
fn with_clear_groups(mut gateway: Gateway) -> Gateway {
    let mut policy = gateway.engine.policy().clone();
    for class in FrameClass::ALL {
        policy.frames.set(class, Action::Clear);
    }
    policy.epoch += 1;
    gateway.engine.swap(policy, Associations::default()).unwrap();
    gateway.tick();
    gateway
}

/// A gateway at whose wire every class of frames passes in clear, its peer found.
fn lenient() -> Gateway {
    with_clear_groups(pair(Mode::Ethernet, true).0)
}

fn admits(gateway: &Gateway, frame: &[u8]) -> bool {
    WireProof::new(gateway.engine.policy()).admit(frame, frame.len())
}

/// `packet` in a frame to another MAC address.
fn to_mac(mac: [u8; 6], mut packet: Vec<u8>) -> Vec<u8> {
    packet[..6].copy_from_slice(&mac);
    packet
}

/// A UDP packet to another IPv4 address.
fn udp_to(address: [u8; 4]) -> Vec<u8> {
    let mut packet = udp(64);
    packet[30..34].copy_from_slice(&address);
    packet[24..26].fill(0);
    let sum = weir_wire::checksum::ipv4_header(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A UDP packet that says it is from another IPv4 address.
fn udp_from(address: [u8; 4]) -> Vec<u8> {
    let mut packet = udp(64);
    packet[26..30].copy_from_slice(&address);
    packet[24..26].fill(0);
    let sum = weir_wire::checksum::ipv4_header(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// An IPv6 packet, or a RoCE v1 packet's GRH, which has the same form.
fn ipv6(ethertype: u16, to: [u8; 16], next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, hop_limit];
    header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend(to);
    ethernet(ethertype, &[&header, payload].concat())
}

fn v6(text: &str) -> [u8; 16] {
    mapped(text.parse().unwrap())
}

/// A RoCE v1 packet: SEND only, to queue pair 2, of 16 bytes and a made-up ICRC.
fn roce_v1(to: [u8; 16]) -> Vec<u8> {
    let bth = [4, 0, 0xff, 0xff, 0, 0, 0, 2, 0, 0, 0, 1];
    ipv6(0x8915, to, IBA, 64, &[&bth[..], &[7; 20]].concat())
}

/// A frame's packet behind as many more VLAN tags of no VLAN.
fn with_tags(count: usize, packet: &[u8]) -> Vec<u8> {
    let tags = [0x81, 0, 0, 0].repeat(count);
    [&packet[..12], &tags, &packet[12..]].concat()
}

#[test]
fn a_group_mac_puts_no_packet_to_a_host_of_a_peer_in_clear() {
    let packets = [udp(64), ipv6(0x86dd, v6("fd00::2"), 17, 64, &udp(8)[34..])];
    let packets = packets.into_iter().chain([roce_v1(v6("fd00::2")), udp_to([10, 0, 0, 255])]);
    for packet in packets {
        for mac in GROUP_MACS {
            let mut a = lenient();
            let frame = to_mac(mac, packet.clone());
            let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&frame)));
            assert_eq!(wire.len(), 1, "{mac:x?}: it is sealed");
            let parsed = parse(&wire[0], Link::Ethernet, wire[0].len() as u32);
            assert!(matches!(parsed.transport, Transport::Esp { .. }), "{mac:x?} {parsed:?}");
            assert!(admits(&a, &wire[0]));
            assert!(!admits(&a, &frame), "{mac:x?}: the check before the wire thinks the same");
        }
    }
}

#[test]
fn plaintext_of_a_peers_host_in_a_group_frame_does_not_reach_the_host() {
    for packet in [udp(64), roce_v1(v6("fd00::2")), udp_to([10, 0, 0, 255])] {
        for mac in GROUP_MACS {
            let mut a = lenient();
            let sent = a.receive(Side::Wire, &[to_mac(mac, packet.clone())]);
            assert!(sent.is_empty(), "{mac:x?}");
            assert_eq!(a.dropped(Side::Wire, DropReason::NotSealed), 1);
        }
    }
}

#[test]
fn what_goes_to_a_group_by_its_address_is_a_groups_whatever_its_mac() {
    let groups = [
        (udp_to([239, 1, 1, 1]), FrameClass::Multicast),
        (udp_to([255; 4]), FrameClass::Broadcast),
        (ipv6(0x86dd, v6("ff02::1"), 17, 1, &udp(8)[34..]), FrameClass::Multicast),
        (roce_v1(v6("ff0e::ffff:239.1.1.1")), FrameClass::Multicast),
    ];
    for (packet, class) in groups {
        for mac in [GROUP_MACS[1], HOST_B] {
            let mut a = lenient();
            let frame = to_mac(mac, packet.clone());
            let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&frame)));
            assert_eq!(wire, from_ref(&frame), "{class:?} {mac:x?}");
            assert!(admits(&a, &frame));
            let arrived = only(Destination::Host, a.receive(Side::Wire, from_ref(&frame)));
            assert_eq!(arrived, [frame]);
            let [host, wire] = [&a.counters().host, &a.counters().wire];
            assert_eq!(
                (host.clear_by_class[class as usize], wire.clear_by_class[class as usize]),
                (1, 1)
            );
        }
    }
}

#[test]
fn frames_without_addresses_are_told_by_their_mac() {
    let experiment = to_mac(GROUP_MACS[1], ethernet(0x88b5, &[0; 50]));
    let mut a = lenient();
    let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&experiment)));
    assert_eq!(wire, from_ref(&experiment));
    assert!(admits(&a, &experiment));
}

#[test]
fn neighbour_discovery_in_clear_is_what_no_router_passed_on() {
    let solicitation = |kind, code, hop_limit, before: &[u8]| {
        let next = if before.is_empty() { ICMPV6 } else { 60 };
        let message = [before, &[kind, code, 0, 0, 0, 0, 0, 0][..], &[9; 16]].concat();
        ipv6(0x86dd, v6("fd00::2"), next, hop_limit, &message)
    };
    let destination_options = [ICMPV6, 0, 1, 4, 0, 0, 0, 0];
    let cases = [
        (solicitation(135, 0, 255, &[]), true, "as RFC 4861 has it"),
        (solicitation(136, 0, 255, &[]), true, "an answer"),
        (solicitation(135, 0, 64, &[]), false, "a hop limit that receivers refuse"),
        (solicitation(137, 1, 255, &[]), false, "a code that there is not"),
        (solicitation(135, 0, 255, &destination_options), false, "behind another header"),
        (solicitation(128, 0, 255, &[]), false, "an echo"),
    ];
    for (frame, is_clear, what) in cases {
        let mut a = lenient();
        let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&frame)));
        assert_eq!(wire[0] == frame, is_clear, "{what}");
        assert_eq!(admits(&a, &frame), is_clear, "{what}");
        assert_eq!(!a.receive(Side::Wire, &[frame]).is_empty(), is_clear, "{what}, taken");
    }
}

#[test]
fn packets_behind_more_than_two_tags_are_dropped_where_the_pair_seals() {
    for (tags, passes) in [(0, true), (1, true), (2, true), (3, false), (4, false)] {
        let (mut a, mut b) = pair(Mode::Ethernet, true);
        let frame = with_tags(tags, &udp(64));
        let wire = only(Destination::Wire, a.receive(Side::Host, from_ref(&frame)));
        let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
        assert_eq!(arrived, vec![frame; usize::from(passes)], "{tags} tags");
        assert_eq!(a.dropped(Side::Host, DropReason::Malformed), u64::from(!passes));
    }
    // Where all else is forwarded, and where a peer gets the rest in clear.
    for (default, sealing) in [(Action::Clear, None), (Action::Drop, Some(Sealing::Prefer))] {
        let mut a = lenient();
        let mut policy = a.engine.policy().clone();
        policy.default = default;
        let strict = Peer {
            protects: vec![Prefix::new([10, 0, 0, 0].into(), 24)],
            everything: false,
            ..policy.peers[0].clone()
        };
        let rest = sealing.map(|sealing| Peer {
            name: "rest".into(),
            sealing,
            seal_spi: None,
            open_spis: Vec::new(),
            ..policy.peers[0].clone()
        });
        let policy = policy.with_peers([strict].into_iter().chain(rest).collect());
        a.engine.swap(policy, Associations::default()).unwrap();
        for mac in [HOST_A, GROUP_MACS[1]] {
            let frame = to_mac(mac, with_tags(3, &udp(64)));
            assert!(a.receive(Side::Wire, from_ref(&frame)).is_empty(), "spoofed");
            assert!(a.receive(Side::Host, from_ref(&frame)).is_empty());
            assert!(!admits(&a, &frame), "the check before the wire thinks the same");
        }
        assert_eq!(a.dropped(Side::Wire, DropReason::Malformed), 2);
    }
}

/// `b` has a second peer, in front of 10.7.0.0/16, whose packets it opens by `spi`.
fn with_second_peer(mut b: Gateway, spi: u32) -> Gateway {
    let policy = b.engine.policy().clone();
    let second = Peer {
        name: "second".into(),
        protects: vec![Prefix::new([10, 7, 0, 0].into(), 16)],
        everything: false,
        seal_spi: None,
        open_spis: vec![spi],
        ..policy.peers[0].clone()
    };
    let peers = [policy.peers.clone(), vec![second]].concat();
    let associations = Associations { opening: vec![opening(spi)], ..Associations::default() };
    b.engine.swap(policy.with_peers(peers), associations).unwrap();
    b.tick();
    b
}

#[test]
fn a_peer_that_protects_everything_may_not_speak_as_another_peers_hosts() {
    for (mode, own) in [
        (Mode::Ethernet, true),
        (Mode::Tunnel, true),
        (Mode::Tunnel, false),
        (Mode::Transport, false),
    ] {
        let (mut a, b) = pair(mode, own);
        let mut b = with_second_peer(b, 0x2002);
        let mut host = udp_from([10, 0, 0, 2]);
        host[6..12].copy_from_slice(&HOST_B);
        host[30..34].copy_from_slice(&[10, 0, 0, 1]);
        b.receive(Side::Host, &[host]);
        // One flow's packets come after another's, and each is asked for its own source.
        let spoken = [[10, 0, 0, 1], [10, 7, 0, 1], [10, 7, 0, 1], [10, 0, 0, 1]].map(udp_from);
        let wire = only(Destination::Wire, a.receive(Side::Host, &spoken));
        let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
        let sources: Vec<_> = arrived.iter().map(|frame| frame[26..30].to_vec()).collect();
        assert_eq!(sources, [[10, 0, 0, 1], [10, 0, 0, 1]], "{mode:?}, own address {own}");
        assert_eq!(b.dropped(Side::Wire, DropReason::SelectorMismatch), 2);

        // The second peer's own key serves for its hosts, and for no others.
        let sender = Associations { sealing: vec![sealing(0x2002)], ..Associations::default() };
        rekey(&mut a, Some(0x2002), &[], sender);
        let wire = only(Destination::Wire, a.receive(Side::Host, &spoken));
        let arrived = only(Destination::Host, b.receive(Side::Wire, &wire));
        let sources: Vec<_> = arrived.iter().map(|frame| frame[26..30].to_vec()).collect();
        assert_eq!(sources, [[10, 7, 0, 1], [10, 7, 0, 1]], "{mode:?}, own address {own}");
    }
}

#[test]
fn plaintext_to_a_group_is_the_affair_of_the_peer_that_its_source_is_behind() {
    let (a, _) = pair(Mode::Ethernet, true);
    let mut a = with_second_peer(a, 0x2002);
    let mut policy = a.engine.policy().clone();
    policy.peers[0].sealing = Sealing::Prefer;
    let peers = policy.peers.clone();
    a.engine.swap(policy.with_peers(peers), Associations::default()).unwrap();
    let group = |source| {
        let mut packet = udp_from(source);
        packet[..6].copy_from_slice(&GROUP_MACS[1]);
        packet[30..34].copy_from_slice(&[239, 1, 1, 1]);
        packet
    };
    assert_eq!(a.receive(Side::Wire, &[group([10, 0, 0, 2])]).len(), 1, "it may be in clear");
    assert!(a.receive(Side::Wire, &[group([10, 7, 0, 1])]).is_empty(), "it may not");
    assert_eq!(a.dropped(Side::Wire, DropReason::NotSealed), 1);
}
