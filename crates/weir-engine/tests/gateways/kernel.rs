//! Peers whose ESP the gateway's kernel does.

use std::sync::Arc;

use weir_engine::access::{AccessAction, AccessPolicy, Line, Operation, Operations, Party, Terms};
use weir_engine::policy::KernelEsp;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::state::PeerActivity;

use super::*;

/// A gateway whose kernel does the ESP of a peer at 192.0.2.2 that has 10.0.0.2 behind it.
fn by_kernel() -> Gateway {
    let mut a = gateway(Mode::Tunnel, true, 1, 2);
    let policy = a.engine.policy().clone();
    let kernel = KernelEsp { place: 0, spis: Some([0x1001, 0x1002]), nic_reaches: None };
    let peer = Peer {
        seal_spi: None,
        open_spis: Vec::new(),
        protects: vec![Prefix::new([10, 0, 0, 2].into(), 32)],
        everything: false,
        kernel: Some(kernel),
        ..policy.peers[0].clone()
    };
    a.engine.swap(policy.with_peers(vec![peer]), Associations::default()).unwrap();
    a
}

/// Lets it find its peer.
fn found(mut a: Gateway) -> Gateway {
    let question = only(Destination::Wire, a.tick());
    only(Destination::Punt, a.receive(Side::Wire, &[arp_answer(&question[0], GATEWAY_B)]));
    a
}

/// What the kernel opened comes by the xfrm interface: an IP packet.
fn opened(a: &mut Gateway, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = [vec![0; 192], packet.to_vec(), vec![0; 64]].concat();
    let end = buffer.len() - 64;
    let mut frames = [Frame::new(&mut buffer, 192, end, Meta::default())];
    let output = a.engine.process_opened(Time(9), 0, &mut frames);
    only(Destination::Host, collect(output, &frames))
}

#[test]
fn what_the_kernel_is_to_seal_goes_there_as_the_packet_that_it_is_and_nowhere_else() {
    let mut a = by_kernel();
    assert!(a.receive(Side::Host, &[udp(100)]).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::NeighbourUnknown), 1, "no hop yet");
    let mut a = found(a);
    let packet = udp(100);
    let handed = only(Destination::Kernel(0), a.receive(Side::Host, from_ref(&packet)));
    assert_eq!(handed, [&packet[14..]], "without its link header, its TTL as it was");
    let too_big = udp(1500);
    let answer = only(Destination::Host, a.receive(Side::Host, &[too_big]));
    assert_eq!(answer[0][34..36], [3, 4], "fragmentation needed");
    let whole = super_packet(5000, 1300);
    let cut = only(Destination::Kernel(0), a.receive_offloaded(Side::Host, &[whole]));
    assert_eq!(cut.len(), 4, "a packet for each number that the kernel uses");
    assert!(cut.iter().all(|packet| packet.len() <= 1440 && packet[0] == 0x45));
    assert_eq!((a.counters().host.handed, a.counters().host.sealed), (2, 0));
    assert_eq!(a.engine.peer_counters(0).sealed_packets, 5);
    a.engine.note_kernel(0, true);
    assert!(a.receive(Side::Host, &[packet]).is_empty(), "the kernel lost it");
    assert_eq!(a.dropped(Side::Host, DropReason::KernelEsp), 1);
}

#[test]
fn what_the_kernel_opened_is_held_to_what_its_peer_may_send() {
    let mut a = found(by_kernel());
    a.receive(Side::Host, &[udp(1)]);
    let mut answer = udp(30)[14..].to_vec();
    answer[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    let arrived = opened(&mut a, &answer);
    assert_eq!(arrived[0][..14], [&HOST_A[..], &GATEWAY_A, &[8, 0]].concat());
    assert_eq!(arrived[0][14..], answer);
    answer[15] = 3;
    assert!(opened(&mut a, &answer).is_empty());
    answer[0] = 0x55;
    assert!(opened(&mut a, &answer).is_empty());
    let counters = &a.counters().kernel;
    assert_eq!((counters.received, counters.opened), (3, 1));
    assert_eq!(counters.dropped_for(DropReason::SelectorMismatch), 1);
    assert_eq!(counters.dropped_for(DropReason::EspTrailer), 1);
}

/// Kernels join what they open: the packet comes without its link, and so do the places in it.
#[test]
fn a_super_packet_that_the_kernel_opened_goes_on() {
    let mut a = found(by_kernel());
    a.receive(Side::Host, &[udp(1)]);
    let Sent { mut bytes, offload } = super_packet(5000, 1300);
    bytes.drain(..14);
    bytes[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    let back = |at: u16| at - 14;
    let checksum =
        offload.checksum.map(|it| PartialChecksum { start: back(it.start), field: back(it.field) });
    let segmentation =
        offload.segmentation.map(|it| Segmentation { header_len: back(it.header_len), ..it });
    let offload = Offload { checksum, segmentation, ..offload };
    let mut buffer = [vec![0; 192], bytes.clone(), vec![0; 64]].concat();
    let end = buffer.len() - 64;
    let mut frames = [Frame::new(&mut buffer, 192, end, Meta { offload, ..Meta::default() })];
    let output = a.engine.process_opened(Time(9), 0, &mut frames);
    let arrived = collect(output, &frames);
    assert_eq!(arrived.len(), 1, "{:?}", a.counters().kernel);
    assert_eq!(arrived[0].1.bytes.len(), 14 + bytes.len());
    assert_eq!(arrived[0].1.offload.checksum.map(|it| it.start), Some(34));
}

#[test]
fn a_peer_of_the_kernels_may_not_speak_as_another_peers_hosts_either() {
    let mut a = found(by_kernel());
    a.receive(Side::Host, &[udp(1)]);
    let policy = a.engine.policy().clone();
    let rest = Peer { protects: vec![Prefix::ALL], everything: true, ..policy.peers[0].clone() };
    let host = Prefix::new([10, 0, 0, 2].into(), 32);
    let second = Peer { name: "second".into(), protects: vec![host], ..rest.clone() };
    let second = Peer { everything: false, kernel: None, ..second };
    a.engine.swap(policy.with_peers(vec![rest, second]), Associations::default()).unwrap();
    let mut packet = udp(30)[14..].to_vec();
    packet[12..20].copy_from_slice(&[10, 0, 0, 3, 10, 0, 0, 1]);
    assert_eq!(opened(&mut a, &packet).len(), 1, "it is in front of everything");
    packet[15] = 2;
    assert!(opened(&mut a, &packet).is_empty(), "but for what another is in front of");
    assert_eq!(a.counters().kernel.dropped_for(DropReason::SelectorMismatch), 1);
}

#[test]
fn esp_for_the_kernel_is_left_to_it_and_other_esp_is_not() {
    let mut a = found(by_kernel());
    let mut b = gateway(Mode::Tunnel, true, 2, 1);
    let question = only(Destination::Wire, b.tick());
    b.receive(Side::Wire, &[arp_answer(&question[0], GATEWAY_A)]);
    let esp = only(Destination::Wire, b.receive(Side::Host, &[udp(10)]));
    assert!(a.receive(Side::Wire, &esp).is_empty());
    assert_eq!(a.counters().wire.handed, 1);
    let mut other = esp[0].clone();
    other[37] ^= 0x10;
    assert!(a.receive(Side::Wire, &[other]).is_empty());
    let mut stranger = esp[0].clone();
    stranger[29] = 9;
    assert!(a.receive(Side::Wire, &[stranger]).is_empty());
    assert_eq!(a.dropped(Side::Wire, DropReason::UnknownSpi), 2);
    assert!(a.receive(Side::Wire, &[udp(10)]).is_empty(), "and nothing is taken in clear");
}

#[test]
fn agreed_keys_are_told_by_spi_and_without_them_nothing_is_handed_over() {
    let mut a = by_kernel();
    let policy = a.engine.policy().clone();
    let identity = PublicKey([7; 32]);
    let peer = Peer {
        kernel: Some(KernelEsp { place: 0, spis: None, nic_reaches: None }),
        agreed: Some(identity),
        ..policy.peers[0].clone()
    };
    let policy = policy.with_peers(vec![peer]);
    a.engine.swap(policy.clone(), Associations::default()).unwrap();
    let mut a = found(a);
    a.engine.set_kernel_associations(0, None, &[]);
    let packet = udp(100);
    assert!(a.receive(Side::Host, from_ref(&packet)).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::NoAssociation), 1);
    let mut told = activities(&mut a);
    assert!(told.pop().is_some_and(|it| it.wanted.is_some()), "keys are asked for");

    a.engine.set_kernel_associations(0, Some(0x5001), &[0x6001, 0x6002]);
    let handed = |a: &mut Gateway| only(Destination::Kernel(0), a.receive(Side::Host, &[udp(1)]));
    assert_eq!(handed(&mut a).len(), 1);
    a.engine.set_path_mtu(&identity, 1000);
    a.engine.swap(policy, Associations::default()).unwrap();
    assert_eq!(handed(&mut a).len(), 1, "a reload changes nothing");
    assert!(a.receive(Side::Host, &[udp(1300)]).iter().all(|it| it.0 == Destination::Host));

    // A sign of life is an IP packet for nobody; the other gateway's is heard, and no host's.
    a.engine.begin();
    a.engine.keepalive(&identity);
    let said = only(Destination::Kernel(0), collect(a.engine.output(), &[]));
    assert_eq!((said[0].len(), said[0][9]), (20, 59), "from us to the peer, of no protocol");
    let mut answer = said[0].clone();
    answer[12..20].rotate_left(4);
    assert!(opened(&mut a, &answer).is_empty());
    assert_eq!((a.counters().kernel.consumed, a.counters().kernel.opened), (1, 0));
    let used =
        PeerActivity { heard: true, sealed: Some((0x5001, 3, 60)), ..PeerActivity::default() };
    a.engine.note_kernel_use(0, &used);
    assert_eq!(activities(&mut a), [used]);
}

fn activities(a: &mut Gateway) -> Vec<PeerActivity> {
    let mut activities = Vec::new();
    a.engine.take_activity(&mut |_, activity| {
        activities.push(activity);
        true
    });
    activities
}

#[test]
fn what_a_nic_opened_is_left_to_the_guard_and_comes_by_the_xfrm_interface() {
    let mut a = by_kernel();
    let policy = a.engine.policy().clone();
    let identity = PublicKey([7; 32]);
    let kernel = KernelEsp { place: 0, spis: None, nic_reaches: Some([10, 0, 0, 2].into()) };
    let peer = Peer { kernel: Some(kernel), agreed: Some(identity), ..policy.peers[0].clone() };
    a.engine.swap(policy.with_peers(vec![peer]), Associations::default()).unwrap();
    let mut a = found(a);
    a.engine.set_kernel_associations(0, Some(0x5001), &[0x6001]);
    a.receive(Side::Host, &[udp(1)]);
    let mut answer = udp(30);
    answer[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    assert!(a.receive(Side::Wire, from_ref(&answer)).is_empty(), "nothing in clear passes");
    assert_eq!(a.counters().wire.handed, 1);
    assert_eq!(opened(&mut a, &answer[14..]).len(), 1);

    // Between the gateways: to an address that the NIC takes, and back as the other one does it.
    a.engine.begin();
    a.engine.keepalive(&identity);
    let said = only(Destination::Kernel(0), collect(a.engine.output(), &[]));
    assert_eq!((said[0][9], &said[0][12..20]), (59, &[192, 0, 2, 1, 10, 0, 0, 2][..]));
    let [own, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(std::net::IpAddr::from);
    let silent = weir_engine::esp::silent::silent_packet(other, own, &[], 0).unwrap();
    assert!(opened(&mut a, &silent).is_empty());
    assert_eq!(a.counters().kernel.consumed, 1);
    let framed = [&answer[..14], &silent].concat();
    assert!(a.receive(Side::Wire, &[framed]).is_empty(), "not for the gateway's own kernel");
    assert_eq!(a.counters().wire.handed, 2);
}

/// A datagram of RoCE v2 with one request: 10 an RDMA WRITE, 12 a READ.
fn roce(opcode: u8) -> Vec<u8> {
    let bth = [opcode, 0, 0xff, 0xff, 0, 0, 0, 0x17, 0, 0, 0, 9];
    let reth = [&[0; 8][..], &[0, 0, 0, 0x77], &[0, 0, 0, 16]].concat();
    let payload = vec![0xdd; if opcode == 10 { 16 } else { 0 }];
    let mut datagram = vec![0xc0, 1, 0x12, 0xb7, 0, 0, 0, 0];
    datagram.extend([&bth[..], &reth, &payload, &[0; 4]].concat());
    let len = (datagram.len() as u16).to_be_bytes();
    datagram[4..6].copy_from_slice(&len);
    ipv4(17, 0, &datagram)
}

#[test]
fn lines_of_access_judge_what_the_kernel_is_to_seal_and_what_it_opened() {
    let mut a = by_kernel();
    let no_writes = Line {
        name: "no-writes".into(),
        from: Party::any(),
        to: Party::any(),
        operations: Operations::of([Operation::Write]),
        terms: Terms::default(),
        limits: None,
        action: AccessAction::Deny,
        log: false,
    };
    let mut policy = a.engine.policy().clone();
    policy.access = Some(Arc::new(AccessPolicy::new(vec![no_writes], AccessAction::Allow)));
    a.engine.swap(policy, Associations::default()).unwrap();
    let mut a = found(a);
    let (write, read) = (roce(10), roce(12));
    assert!(a.receive(Side::Host, from_ref(&write)).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::AccessDenied), 1);
    assert_eq!(only(Destination::Kernel(0), a.receive(Side::Host, from_ref(&read))).len(), 1);
    let from_there = |packet: &[u8]| {
        let mut packet = packet[14..].to_vec();
        packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        packet
    };
    assert!(opened(&mut a, &from_there(&write)).is_empty());
    assert_eq!(a.counters().kernel.dropped_for(DropReason::AccessDenied), 1);
    assert_eq!(opened(&mut a, &from_there(&read)).len(), 1);
}
