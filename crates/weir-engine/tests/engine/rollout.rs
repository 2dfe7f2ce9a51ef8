//! One peer that demands a seal and one that does not, behind one pair of ports: whatever happens,
//! the first one's traffic is never in clear.

use proptest::prelude::*;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Agreed, Associations, Engine};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, Mode, Peer, Policy, Prefix, Sealing,
};
use weir_engine::tunnel::handshake::Role;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::path::Path;
use weir_engine::verdict::{DropReason, Side};
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};

const STRICT: u8 = 1;
const LENIENT: u8 = 2;

fn identity(peer: u8) -> PublicKey {
    PublicKey([peer; 32])
}

/// Peer 1, behind 10.1.0.0/16, demands a seal; peer 2, behind the rest or 10.2.0.0/16, is as
/// `lenient` says.
fn policy(epoch: u32, lenient: Sealing, gets_the_rest: bool) -> Policy {
    let peer = |number: u8, sealing, prefixes: Vec<Prefix>, everything| Peer {
        name: format!("peer {number}"),
        mode: Mode::Tunnel,
        encapsulation: Encapsulation::Esp,
        sealing,
        endpoint: None,
        protects: prefixes,
        everything,
        seal_spi: None,
        open_spis: Vec::new(),
        agreed: Some(identity(number)),
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    };
    let net = |second: u8| Prefix::new([10, second, 0, 0].into(), 16);
    let lenients = if gets_the_rest { Prefix::ALL } else { net(2) };
    let mut policy = Policy::watch(epoch, 1500);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    policy.keying_port = Some(51840);
    policy.with_peers(vec![
        peer(STRICT, Sealing::Require, vec![net(1)], false),
        peer(LENIENT, lenient, vec![lenients], gets_the_rest),
    ])
}

fn engine(policy: Policy) -> Engine {
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy, Associations::default(), meter).unwrap()
}

/// A UDP packet between our host, 10.9.0.1, and a host behind `peer`, with `mark` as payload.
fn packet(side: Side, peer: u8, mark: &[u8]) -> Vec<u8> {
    let (ours, theirs) = ([10, 9, 0, 1], [10, peer, 0, 7]);
    let (from, to) = if side == Side::Host { (ours, theirs) } else { (theirs, ours) };
    let total = 28 + mark.len() as u16;
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend([from, to].concat());
    let sum = weir_wire::checksum::ipv4_header(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend([0x12, 0x34, 0x56, 0x78]);
    bytes.extend((8 + mark.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(mark);
    bytes
}

/// What the engine sends when it is given `bytes` from `side`.
fn pass(engine: &mut Engine, side: Side, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = [vec![0; 192], bytes.to_vec(), vec![0; 64]].concat();
    let meta = Meta {
        time: Time(1_000_000),
        original_len: bytes.len() as u32,
        link: Link::Ethernet,
        offload: Offload::default(),
    };
    let end = buffer.len() - 64;
    let mut frames = [Frame::new(&mut buffer, 192, end, meta)];
    engine.process(Time(1_000_000), side, &mut frames);
    let output = engine.output();
    let whole = |packet: &weir_engine::output::Packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        parts.iter().flat_map(|part| output.resolve(part, &frames).to_vec()).collect()
    };
    output.packets.iter().map(whole).collect()
}

fn agree(engine: &mut Engine, peer: u8, spi: u32) {
    let parameters = |spi: u32| {
        let material: Vec<u8> = (0..36).map(|byte| byte ^ spi as u8 ^ (spi >> 8) as u8).collect();
        SaParameters::new(Spi::new(spi).unwrap(), &material).unwrap()
    };
    engine.install(Agreed {
        peer: identity(peer),
        role: Role::Initiator,
        path: Path::to([10, peer, 0, 7].into(), 51840),
        sealing: SealingSa::new(&parameters(spi), None).unwrap(),
        opening: OpeningSa::new(&parameters(spi + 1), None).unwrap(),
        tags: None,
    });
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8),
    Receive(u8),
    Agree(u8),
    Close(u8),
    Hold(u8, bool),
    Reload(Sealing, bool),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let peer = prop_oneof![Just(STRICT), Just(LENIENT)];
    let sealing =
        prop_oneof![Just(Sealing::Observe), Just(Sealing::Prefer), Just(Sealing::Require)];
    prop_oneof![
        4 => peer.clone().prop_map(Step::Send),
        4 => peer.clone().prop_map(Step::Receive),
        2 => peer.clone().prop_map(Step::Agree),
        1 => peer.clone().prop_map(Step::Close),
        2 => (peer, any::<bool>()).prop_map(|(peer, held)| Step::Hold(peer, held)),
        2 => (sealing, any::<bool>()).prop_map(|(sealing, rest)| Step::Reload(sealing, rest)),
        1 => Just(Step::Tick),
    ]
}

proptest! {
    #[test]
    fn traffic_of_a_peer_that_requires_is_never_in_clear_beside_one_that_does_not(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut engine = engine(policy(1, Sealing::Observe, false));
        let (mut spi, mut epoch) = (0x1000, 1);
        let mark = b"THE-PLAINTEXT-OF-A-HOST";
        let shows = |sent: &[Vec<u8>]| {
            sent.iter().any(|bytes| bytes.windows(mark.len()).any(|it| it == mark))
        };
        for step in steps {
            match step {
                Step::Send(peer) => {
                    let lenient = engine.policy().peers[1].sealing;
                    let keyed = engine.is_sealed_to(usize::from(peer - 1));
                    let sent = pass(&mut engine, Side::Host, &packet(Side::Host, peer, mark));
                    let may_show = peer == LENIENT && lenient != Sealing::Require && !keyed;
                    prop_assert_eq!(shows(&sent), may_show);
                }
                Step::Receive(peer) => {
                    let lenient = engine.policy().peers[1].sealing;
                    let sent = pass(&mut engine, Side::Wire, &packet(Side::Wire, peer, mark));
                    let may_pass = peer == LENIENT && lenient != Sealing::Require;
                    prop_assert_eq!(shows(&sent), may_pass);
                }
                Step::Agree(peer) => {
                    spi += 2;
                    agree(&mut engine, peer, spi);
                }
                Step::Close(peer) => engine.close(&identity(peer)),
                Step::Hold(peer, is_held) => engine.hold_in_clear(&identity(peer), is_held),
                Step::Reload(lenient, rest) => {
                    epoch += 1;
                    engine.swap(policy(epoch, lenient, rest), Associations::default()).unwrap();
                }
                Step::Tick => {
                    engine.tick(Time(2_000_000));
                }
            }
            prop_assert!(engine.counters().host.adds_up() && engine.counters().wire.adds_up());
            prop_assert_eq!(engine.clear_counters(0), Default::default());
        }
    }
}

#[test]
fn prefer_is_clear_until_there_are_keys_sealed_with_them_and_clear_while_held() {
    let mut engine = engine(policy(1, Sealing::Prefer, false));
    let plain = packet(Side::Host, LENIENT, &[7; 100]);
    let send = |engine: &mut Engine| pass(engine, Side::Host, &plain) == [plain.clone()];
    assert!(send(&mut engine));
    agree(&mut engine, LENIENT, 0x2000);
    assert!(!send(&mut engine));
    engine.hold_in_clear(&identity(LENIENT), true);
    assert!(send(&mut engine));
    engine.hold_in_clear(&identity(LENIENT), false);
    assert!(!send(&mut engine));
    engine.close(&identity(LENIENT));
    assert!(send(&mut engine));
    assert_eq!(engine.counters().host.unsealed, 3);
    assert_eq!(engine.counters().host.sealed, 2);
    assert_eq!(engine.clear_counters(1).sent_packets, 3);
}

#[test]
fn observe_is_clear_with_keys_too_and_counts_what_would_not_fit() {
    let mut engine = engine(policy(1, Sealing::Observe, false));
    agree(&mut engine, LENIENT, 0x2000);
    for len in [100, 1472] {
        let plain = packet(Side::Host, LENIENT, &vec![7; len]);
        assert_eq!(pass(&mut engine, Side::Host, &plain), [plain]);
    }
    let counters = engine.clear_counters(1);
    assert_eq!((counters.sent_packets, counters.too_big_packets), (2, 1));
}

#[test]
fn a_change_is_told_once_and_counters_and_keys_go_on_through_reloads() {
    let mut engine = engine(policy(1, Sealing::Observe, false));
    let told = |engine: &mut Engine| {
        let mut changes = Vec::new();
        engine.take_sealing_changes(&mut |it| changes.push((it.peer, it.is_sealed)));
        changes
    };
    let peer = || "peer 2".to_owned();
    pass(&mut engine, Side::Host, &packet(Side::Host, LENIENT, &[1; 50]));
    assert_eq!(told(&mut engine), [(peer(), false)]);
    assert_eq!(told(&mut engine), []);
    agree(&mut engine, LENIENT, 0x2000);
    assert_eq!(told(&mut engine), [], "observe does not seal");
    engine.swap(policy(2, Sealing::Prefer, false), Associations::default()).unwrap();
    assert_eq!(told(&mut engine), [(peer(), true)], "the keys were there already");
    assert_eq!(engine.clear_counters(1).sent_packets, 1);
    engine.swap(policy(3, Sealing::Require, false), Associations::default()).unwrap();
    assert_eq!(told(&mut engine), []);
    pass(&mut engine, Side::Wire, &packet(Side::Wire, LENIENT, &[1; 50]));
    assert_eq!(engine.counters().wire.dropped_for(DropReason::NotSealed), 1);
}
