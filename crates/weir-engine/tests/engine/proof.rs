//! The check before the wire: all that an engine emits for a sealing policy passes, and a leak of
//! any kind does not.

use std::net::IpAddr;

use proptest::prelude::*;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::output::{Destination, Output};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, FrameClass, Mode, OnLeak, OwnAddress, Peer, Policy, Prefix,
};
use weir_engine::proof::WireProof;
use weir_engine::verdict::Side;
use weir_wire::frame::{Frame, Link, Meta, Offload, SegmentKind, Segmentation, Time};
use weir_wire::parse::MacAddress;

const HOST_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const HOST_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 1, 0xa];
const KEYING_PORT: u16 = 51_840;
const SECOND_NS: u64 = 1_000_000_000;

fn policy(mode: Mode, own: bool, encapsulation: Encapsulation) -> Policy {
    let mut policy = Policy::watch(1, 1500);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    policy.keying_port = Some(KEYING_PORT);
    policy.own = own.then(|| OwnAddress {
        mac: MacAddress(GATEWAY),
        addresses: vec![(IpAddr::from([192, 0, 2, 1]), 24)],
        ..OwnAddress::default()
    });
    policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode,
        encapsulation,
        sealing: weir_engine::policy::Sealing::Require,
        endpoint: own.then(|| IpAddr::from([192, 0, 2, 2])),
        protects: vec![Prefix::new(IpAddr::from([10, 0, 0, 0]), 8), Prefix::ALL],
        everything: true,
        seal_spi: Some(0x1001),
        open_spis: vec![0x1002],
        agreed: None,
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }])
}

fn engine(policy: Policy) -> Engine {
    let parameters =
        |spi: u32| SaParameters::new(Spi::new(spi).unwrap(), &[spi as u8; 36]).unwrap();
    let mut sealing = SealingSa::new(&parameters(0x1001), None).unwrap();
    let reservation = sealing.reservation_needed().unwrap();
    sealing.extend_reservation(&reservation);
    let opening = vec![OpeningSa::new(&parameters(0x1002), None).unwrap()];
    let associations = Associations { sealing: vec![sealing], opening, ..Associations::default() };
    Engine::new(policy, associations, Meter::new(MeterLimits::default(), 7)).unwrap()
}

/// What `engine` would send to the wire for `frames` of the host.
fn to_wire(engine: &mut Engine, frames: &[(Vec<u8>, Offload)]) -> Vec<Vec<u8>> {
    let room = |bytes: &[u8]| [&[0; 192], bytes, &[0; 64]].concat();
    let mut buffers: Vec<Vec<u8>> = frames.iter().map(|(bytes, _)| room(bytes)).collect();
    let mut frames: Vec<Frame<'_>> = buffers
        .iter_mut()
        .zip(frames)
        .map(|(buffer, (bytes, offload))| {
            let meta = Meta {
                time: Time(SECOND_NS),
                original_len: bytes.len() as u32,
                link: Link::Ethernet,
                offload: *offload,
            };
            Frame::new(buffer, 192, 192 + bytes.len(), meta)
        })
        .collect();
    engine.process(Time(SECOND_NS), Side::Host, &mut frames);
    wire_packets(engine.output(), &frames)
}

fn wire_packets(output: &Output, frames: &[Frame<'_>]) -> Vec<Vec<u8>> {
    let of = |packet: &weir_engine::output::Packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        parts.iter().flat_map(|part| output.resolve(part, frames).to_vec()).collect()
    };
    output.packets.iter().filter(|it| it.destination == Destination::Wire).map(of).collect()
}

/// The engine learns where its peer is: it asks, and is answered.
fn find_peer(engine: &mut Engine) -> Vec<Vec<u8>> {
    engine.tick(Time(SECOND_NS / 2));
    let questions = wire_packets(engine.output(), &[]);
    for question in &questions {
        let mut answer = question.clone();
        answer[..6].copy_from_slice(&GATEWAY);
        answer[6..12].copy_from_slice(&HOST_B);
        answer[21] = 2;
        answer[22..28].copy_from_slice(&HOST_B);
        answer[28..32].copy_from_slice(&question[38..42]);
        answer[32..42].copy_from_slice(&question[22..32]);
        let mut buffer = [vec![0; 192], answer, vec![0; 64]].concat();
        let end = buffer.len() - 64;
        let meta = Meta { original_len: (end - 192) as u32, ..Meta::default() };
        let mut frames = [Frame::new(&mut buffer, 192, end, meta)];
        engine.process(Time(SECOND_NS / 2), Side::Wire, &mut frames);
    }
    questions
}

fn ethernet(to: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &HOST_A, &ethertype.to_be_bytes(), payload].concat()
}

fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    header.extend([source, destination].concat());
    let sum = weir_wire::checksum::ipv4_header(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, payload.to_vec()].concat()
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let words = [source, destination, 8 + payload.len() as u16, 0];
    [words.map(u16::to_be_bytes).concat(), payload.to_vec()].concat()
}

const MODES: [(Mode, bool); 5] = [
    (Mode::Ethernet, true),
    (Mode::Tunnel, true),
    (Mode::Tunnel, false),
    (Mode::Transport, true),
    (Mode::Transport, false),
];

fn host_frame() -> impl Strategy<Value = (Vec<u8>, Offload)> {
    let bytes = |len| proptest::collection::vec(any::<u8>(), len);
    let to = prop_oneof![
        Just(HOST_B),
        Just([0xff; 6]),
        Just([1, 0x80, 0xc2, 0, 0, 0xe]),
        Just([0x33, 0x33, 0, 0, 0, 1]),
        Just([1, 0, 0x5e, 0, 0, 5]),
    ];
    let ports = prop_oneof![Just(4791u16), Just(4500), Just(500), Just(KEYING_PORT), any::<u16>()];
    let datagram = (ports.clone(), ports, bytes(0..300usize)).prop_map(|(s, d, p)| udp(s, d, &p));
    let transport = prop_oneof![
        datagram.prop_map(|it| (17, it)),
        (any::<u8>(), bytes(0..300usize)),
        (Just(50u8), bytes(0..300usize)),
    ];
    let packet = transport
        .prop_map(|(protocol, payload)| ipv4([10, 0, 0, 1], [10, 0, 0, 2], protocol, &payload));
    let frame = prop_oneof![
        (to.clone(), packet).prop_map(|(to, packet)| ethernet(to, 0x0800, &packet)),
        (to.clone(), any::<u16>(), bytes(0..200usize)).prop_map(|(to, t, p)| ethernet(to, t, &p)),
        (to, Just(0x86dd), bytes(40..200usize)).prop_map(|(to, t, mut p)| {
            p[0] = 0x60;
            let len = p.len() as u16 - 40;
            p[4..6].copy_from_slice(&len.to_be_bytes());
            ethernet(to, t, &p)
        }),
    ];
    let super_packet = (1usize..6000).prop_map(|len| {
        let mut tcp = [4000u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
        tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.resize(20 + len, 0x41);
        let frame = ethernet(HOST_B, 0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, &tcp));
        let segmentation = Segmentation {
            kind: SegmentKind::TcpV4,
            segment_len: 1300,
            header_len: 54,
            ecn: false,
        };
        (frame, Offload { segmentation: Some(segmentation), ..Offload::default() })
    });
    prop_oneof![4 => frame.prop_map(|it| (it, Offload::default())), 1 => super_packet]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_that_an_engine_emits_for_a_sealing_policy_is_admitted(
        which in 0..MODES.len(),
        in_udp: bool,
        clear_classes in proptest::collection::vec(any::<bool>(), FrameClass::ALL.len()),
        forwards: bool,
        frames in proptest::collection::vec(host_frame(), 1..16),
    ) {
        let (mode, own) = MODES[which];
        let encapsulation = if in_udp { Encapsulation::Udp } else { Encapsulation::Esp };
        let mut policy = policy(mode, own, encapsulation);
        for (class, _) in FrameClass::ALL.into_iter().zip(clear_classes).filter(|(_, it)| *it) {
            policy.frames.set(class, Action::Clear);
        }
        if forwards {
            let peers = policy.peers.clone();
            policy.default = Action::Clear;
            policy = policy.with_peers(peers.into_iter().map(|peer| Peer {
                protects: vec![Prefix::new(IpAddr::from([10, 0, 0, 2]), 32)],
                everything: mode == Mode::Ethernet,
                ..peer
            }).collect());
        }
        let mut proof = WireProof::new(&policy);
        let mut engine = engine(policy);
        let questions = find_peer(&mut engine);
        let sent = to_wire(&mut engine, &frames);
        for packet in questions.iter().chain(&sent) {
            prop_assert!(proof.admit(packet, packet.len()), "{:02x?}", packet);
        }
        let counters = proof.counters();
        prop_assert!(counters.adds_up() && counters.plaintext == 0);
        prop_assert_eq!(counters.checked, (questions.len() + sent.len()) as u64);
    }

    #[test]
    fn nothing_that_a_host_sends_is_admitted_as_it_is(
        which in 0..MODES.len(),
        frame in host_frame(),
    ) {
        let (mode, own) = MODES[which];
        // A bump in the wire cannot tell a host's own ESP, or its own handshake, from ours.
        let is_ipv6 = frame.0.get(12..14) == Some(&[0x86, 0xdd]);
        let protocol = frame.0.get(if is_ipv6 { 20 } else { 23 }).copied();
        prop_assume!(mode == Mode::Ethernet || protocol != Some(50));
        let policy = policy(mode, own, Encapsulation::Esp);
        let mut proof = WireProof::new(&policy);
        let is_keying = frame.0.get(34..36) == Some(&KEYING_PORT.to_be_bytes());
        prop_assume!(own || !is_keying);
        prop_assert!(!proof.admit(&frame.0, frame.0.len()), "{:02x?}", frame.0);
        prop_assert_eq!(proof.counters().plaintext_dropped, 1);
    }
}

/// An engine whose policy forwards, in front of a check that knows better.
#[test]
fn what_a_faulty_gateway_leaks_is_kept_from_the_wire_and_counted() {
    let mut leaking = engine_that_forwards();
    let mut proof = WireProof::new(&policy(Mode::Ethernet, true, Encapsulation::Esp));
    let payload = udp(49_152, 4791, &[0x5a; 64]);
    let frame = ethernet(HOST_B, 0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &payload));
    let sent = to_wire(&mut leaking, &[(frame, Offload::default())]);
    assert_eq!(sent.len(), 1, "it leaks");
    assert!(!proof.admit(&sent[0], sent[0].len()));
    assert_eq!((proof.counters().plaintext, proof.counters().plaintext_dropped), (1, 1));
    let last = proof.last_plaintext().unwrap().to_string();
    assert!(last.contains("10.0.0.1 port 49152 > 10.0.0.2 port 4791"), "{last}");
    assert!(!last.contains("5a5a"), "no payload: {last}");
}

fn engine_that_forwards() -> Engine {
    let policy = Policy::watch(1, 1500);
    Engine::new(policy, Associations::default(), Meter::new(MeterLimits::default(), 7)).unwrap()
}

#[test]
fn with_alert_a_leak_leaves_and_is_counted_all_the_same() {
    let mut policy = policy(Mode::Ethernet, true, Encapsulation::Esp);
    policy.on_leak = OnLeak::Alert;
    let mut proof = WireProof::new(&policy);
    let frame = ethernet(HOST_B, 0x88b5, &[7; 50]);
    assert!(proof.admit(&frame, frame.len()));
    assert_eq!((proof.counters().plaintext, proof.counters().plaintext_dropped), (1, 0));
}

#[test]
fn the_gateways_own_questions_pass_only_from_its_own_addresses() {
    let policy = policy(Mode::Ethernet, true, Encapsulation::Esp);
    let own = [192, 0, 2, 1];
    let from = |mac: [u8; 6], address: [u8; 4], protocol: u8, payload: &[u8]| {
        let mut frame = ethernet(HOST_B, 0x0800, &ipv4(address, [192, 0, 2, 9], protocol, payload));
        frame[6..12].copy_from_slice(&mac);
        WireProof::new(&policy).admit(&frame, frame.len())
    };
    let handshake = udp(KEYING_PORT, KEYING_PORT, &[&[1, 0, 0, 0][..], &[9; 144]].concat());
    let marker = udp(4500, 4500, &[0, 0, 0, 0, 1, 2, 3, 4]);
    assert!(from(GATEWAY, own, 1, &[8, 0, 0, 0]), "ICMP");
    assert!(from(GATEWAY, own, 17, &udp(500, 500, &[1; 40])), "IKE");
    assert!(from(GATEWAY, own, 17, &marker), "IKE past a translator");
    assert!(from(GATEWAY, own, 17, &handshake), "keying");
    assert!(!from(GATEWAY, own, 6, &[0; 20]), "TCP of its own is nothing of the kind");
    assert!(!from(HOST_A, own, 1, &[8, 0, 0, 0]), "another MAC");
    for protocol in [1, 17] {
        assert!(!from(GATEWAY, [192, 0, 2, 7], protocol, &marker), "another address");
    }
    assert!(!from(GATEWAY, own, 17, &udp(KEYING_PORT, KEYING_PORT, &[9; 148])), "no handshake");
    assert!(!from(HOST_A, [10, 0, 0, 1], 50, &[9; 64]), "a host's own ESP is not ours");
}

#[test]
fn a_gateway_that_only_watches_has_nothing_to_prove() {
    let mut proof = WireProof::new(&Policy::watch(1, 1500));
    let frame = ethernet(HOST_B, 0x88b5, &[7; 50]);
    assert!(proof.admit(&frame, frame.len()));
    assert_eq!(proof.counters().checked, 0);
}
