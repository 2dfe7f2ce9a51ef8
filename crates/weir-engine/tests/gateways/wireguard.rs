//! WireGuard's data messages on the packet path: super-packets are cut to them and gathered again,
//! and those that leave equal leave joined, and may come so.

use weir_engine::pipeline::Agreed;
use weir_engine::policy::Reach;
use weir_engine::tunnel::handshake::Role;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::path::Path;

use super::joined::{join, sealed};
use super::*;

const PORT: u16 = 51840;
/// Outer headers: Ethernet, IPv4, UDP.
const OUTER_LEN: usize = 14 + 20 + 8;
/// What stands around a packet in a message: header and tag.
const AROUND_LEN: usize = 16 + 16;

fn association(index: u32) -> SaParameters {
    SaParameters::wireguard(Spi::new(index).unwrap(), &[index as u8; 32])
}

fn key(of: u8) -> PublicKey {
    PublicKey([of; 32])
}

/// One of both ends, with a host on the other side of each.
fn end(here: u8, there: u8) -> Gateway {
    let policy = gateway(Mode::Tunnel, true, here, there).engine.policy().clone();
    let peer = Peer {
        mode: Mode::WireGuard,
        endpoint: None,
        everything: false,
        protects: vec![Prefix::new([10, 0, 0, there].into(), 32)],
        seal_spi: None,
        open_spis: Vec::new(),
        agreed: Some(key(there)),
        ..policy.peers[0].clone()
    };
    let mut policy = policy.with_peers(vec![peer]);
    policy.keying_port = Some(PORT);
    let engine = Engine::new(policy, Associations::default(), meter()).unwrap();
    Gateway::of(engine, Time(1))
}

/// What a handshake gives.
fn install(gateway: &mut Gateway, here: u8, there: u8, role: Role) {
    let [own, other] = [here, there].map(|it| 0x1000 + u32::from(it));
    let mut sealing = SealingSa::new(&association(own), None).unwrap();
    let reservation = sealing.reservation_needed().unwrap();
    sealing.extend_reservation(&reservation);
    let agreed = Agreed {
        peer: key(there),
        role,
        path: Path::to([192, 0, 2, there].into(), PORT),
        sealing,
        opening: OpeningSa::new(&association(other), None).unwrap(),
        tags: None,
    };
    assert!(gateway.engine.install(agreed));
}

/// Both ends, which shook hands, found each other and know where their hosts are.
pub(super) fn ends() -> [Gateway; 2] {
    let (mut a, mut b) = (end(1, 2), end(2, 1));
    install(&mut a, 1, 2, Role::Initiator);
    install(&mut b, 2, 1, Role::Responder);
    let question = only(Destination::Wire, a.tick());
    let punted = only(Destination::Punt, b.receive(Side::Wire, &question));
    only(Destination::Punt, a.receive(Side::Wire, &[arp_answer(&punted[0], GATEWAY_B)]));
    let mut spoken = udp(1);
    spoken[..6].copy_from_slice(&HOST_A);
    spoken[6..12].copy_from_slice(&HOST_B);
    spoken[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    b.receive(Side::Host, &[spoken]);
    [a, b]
}

#[test]
fn a_super_packet_leaves_as_messages_in_their_order_and_arrives_as_one() {
    let [mut a, mut b] = ends();
    let whole = super_packet(30_500, 1200);
    let wire = sealed(&mut a, &whole);
    assert_eq!(wire.len(), 26);
    for (at, Sent { bytes, offload }) in wire.iter().enumerate() {
        let message = &bytes[OUTER_LEN..];
        assert_eq!(message[..8], [4, 0, 0, 0, 1, 0x10, 0, 0], "type and receiver");
        assert_eq!(message[8..16], (at as u64).to_le_bytes(), "counters from zero on");
        assert!((message.len() - AROUND_LEN).is_multiple_of(16), "padded");
        assert_eq!(offload.joinable, Some(OUTER_LEN as u16));
    }
    let one_by_one: Vec<Vec<u8>> = wire.iter().map(|it| it.bytes.clone()).collect();
    let arrived = b.receive(Side::Wire, &one_by_one);
    assert_eq!(arrived.len(), 1, "it was gathered again");
    let (to, packet) = &arrived[0];
    assert_eq!(*to, Destination::Host);
    assert_eq!(packet.bytes[54..], whole.bytes[54..], "all of its bytes");
    assert_eq!(packet.bytes[..6], HOST_B);
    assert_eq!(b.engine.peer_counters(0).opened_packets, 26);
}

#[test]
fn messages_that_come_joined_are_opened_as_if_they_had_come_one_by_one() {
    let [mut a, mut b] = ends();
    let [_, mut twin] = ends();
    let wire = sealed(&mut a, &super_packet(30_500, 1200));
    let one_by_one: Vec<Vec<u8>> = wire.iter().map(|it| it.bytes.clone()).collect();
    assert_eq!(b.receive_joined(&[join(&wire)]), twin.receive(Side::Wire, &one_by_one));
    // Once more, they are replays, each by itself.
    assert!(b.receive_joined(&[join(&wire[..5])]).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::ReplayDuplicate), 5);
    // One that was forged takes no other with it.
    let wire = sealed(&mut a, &super_packet(12_000, 1000));
    let mut joined = join(&wire);
    let each = usize::from(joined.offload.segmentation.unwrap().segment_len);
    joined.bytes[OUTER_LEN + 5 * each + 100] ^= 1;
    b.receive_joined(&[joined]);
    assert_eq!(b.dropped(Side::Wire, DropReason::Authentication), 1);
    assert_eq!(b.engine.peer_counters(0).opened_packets, 26 + 11);
}

#[test]
fn a_client_sends_where_its_list_leads_and_from_its_own_address_alone() {
    let [mut a, mut b] = ends();
    let list = |ports| Reach {
        to: Prefix::new([10, 0, 0, 2].into(), 32),
        protocol: Some(17),
        ports: Some(ports),
    };
    let mut sends = |b: &mut Gateway, reaches: Vec<Reach>| {
        let policy = b.engine.policy().clone();
        let peer = Peer { reaches, ..policy.peers[0].clone() };
        b.engine.swap(policy.with_peers(vec![peer]), Associations::default()).unwrap();
        let wire = only(Destination::Wire, a.receive(Side::Host, &[udp(100)]));
        b.receive(Side::Wire, &wire).len()
    };
    // The datagram is for port 0x5678.
    assert_eq!(sends(&mut b, vec![]), 1);
    assert_eq!(sends(&mut b, vec![list((0x5678, 0x5678))]), 1);
    assert_eq!(sends(&mut b, vec![list((1, 0x5677))]), 0);
    assert_eq!(sends(&mut b, vec![list((1, 2)), list((0x5000, 0x6000))]), 1);
    assert_eq!(b.dropped(Side::Wire, DropReason::PeerReach), 1);
    assert_eq!(b.engine.peer_counters(0).denied_packets, 1);
    assert_eq!(b.engine.peer_counters(0).opened_packets, 3);
}

/// A UDP packet between these addresses.
fn between(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut packet = udp(64);
    packet[26..34].copy_from_slice(&[from, to].concat());
    packet[24..26].fill(0);
    let sum = weir_wire::checksum::ipv4_header(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn a_client_and_a_gateway_are_peers_of_one_policy_and_neither_speaks_as_the_other() {
    let [mut a, mut client] = ends();
    let (_, mut far) = pair(Mode::Tunnel, true);
    let of_far = Associations { sealing: vec![sealing(0x2005)], ..Associations::default() };
    rekey(&mut far, Some(0x2005), &[], of_far);
    let policy = a.engine.policy().clone();
    let gateway = Peer {
        name: "gw-far".into(),
        mode: Mode::Tunnel,
        endpoint: Some([192, 0, 2, 2].into()),
        protects: vec![Prefix::new([10, 7, 0, 0].into(), 16)],
        seal_spi: Some(0x2006),
        open_spis: vec![0x2005],
        agreed: None,
        ..policy.peers[0].clone()
    };
    let peers = [policy.peers.clone(), vec![gateway]].concat();
    let associations = Associations {
        sealing: vec![sealing(0x2006)],
        opening: vec![opening(0x2005)],
        ..Associations::default()
    };
    a.engine.swap(policy.with_peers(peers), associations).unwrap();
    a.tick();
    // Each gets what is for it, in its own form.
    let sent = [[10, 0, 0, 2], [10, 7, 0, 1]].map(|to| between([10, 0, 0, 1], to));
    let wire = only(Destination::Wire, a.receive(Side::Host, &sent));
    let ports: Vec<Transport> =
        wire.iter().map(|it| parse(it, Link::Ethernet, it.len() as u32).transport).collect();
    assert!(matches!(ports[0], Transport::Udp { destination: PORT, .. }), "{ports:?}");
    assert!(matches!(ports[1], Transport::Esp { spi: 0x2006, .. }), "{ports:?}");
    assert_eq!(client.receive(Side::Wire, &wire[..1]).len(), 1);
    // And may say what is its own, and nothing of the other's.
    let says = [[10, 0, 0, 2], [10, 7, 0, 1]].map(|from| between(from, [10, 0, 0, 1]));
    for (sender, own) in [(&mut client, 0), (&mut far, 1)] {
        let wire = only(Destination::Wire, sender.receive(Side::Host, &says));
        assert_eq!(wire.len(), 2);
        let arrived = only(Destination::Host, a.receive(Side::Wire, &wire));
        assert_eq!(arrived.len(), 1);
        assert_eq!(arrived[0][26..30], says[own][26..30]);
    }
    assert_eq!(a.dropped(Side::Wire, DropReason::SelectorMismatch), 2);
    assert_eq!(a.engine.peer_counters(0).refused_packets, 1);
    assert_eq!(a.engine.peer_counters(1).refused_packets, 1);
}
