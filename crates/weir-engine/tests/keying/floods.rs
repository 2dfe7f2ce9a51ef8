//! Floods of initiations: public-key work is kept for those who receive where they send from.

use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Digest};
use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::state::{Effect, Now, PeerActivity, Tunnel};

use super::world::{MS, PORT, SECOND, Setup, World, identity, tunnel};

/// What a stranger who knows the public key of gateway 1 sends.
fn initiation() -> Vec<u8> {
    let victim = identity(1).public();
    let mut stranger = tunnel(9, vec![victim]);
    let now = Now { elapsed_ns: SECOND, unix_ns: SECOND };
    let path = Path::to([203, 0, 113, 1].into(), PORT);
    let wanted = PeerActivity { wanted: Some(Some(path)), ..PeerActivity::default() };
    let mut effects = Vec::new();
    stranger.note_activity(now, &victim, &wanted, &mut effects);
    stranger.tick(now, &mut effects);
    match effects.remove(0) {
        Effect::Send { datagram, .. } => datagram,
        other => panic!("{other:?}"),
    }
}

/// `count` initiations, each from another address.
fn flood(world: &mut World, datagram: &[u8], count: u32) -> usize {
    let now = Now { elapsed_ns: world.elapsed_ns, unix_ns: world.elapsed_ns };
    let mut effects = Vec::new();
    for number in 0..count {
        let [_, b, c, d] = number.to_be_bytes();
        let path = Path::to([10, b, c, d].into(), PORT);
        world.sides[0].tunnel.handle(now, &path, datagram, &mut effects);
    }
    effects.len()
}

#[test]
fn a_flood_gets_cookies_instead_of_work_and_a_peer_gets_through_with_its_cookie() {
    let mut world = World::new([Setup::new(0), Setup::new(1)].map(|mut setup| {
        setup.knows_endpoint = setup.seed == 1001;
        setup
    }));
    let datagram = initiation();
    let mut answered = flood(&mut world, &datagram, 500);
    for _ in 0..30 {
        answered += flood(&mut world, &datagram, 200);
        world.run(100 * MS);
    }
    let counters = world.counters(0);
    assert_eq!(counters.cookies_sent as usize, answered + counters_of_peer(&world));
    assert!(counters.unknown_peer <= 4 * 401, "work on {} of 6500", counters.unknown_peer);
    assert!(world.sides[0].tunnel.is_loaded(Now { elapsed_ns: world.elapsed_ns, unix_ns: 0 }));
    assert!(world.counters(1).cookies_received > 0);
    assert_eq!(world.states(), [PeerState::Up; 2], "the peer got through");
}

/// Cookies that the real peer got.
fn counters_of_peer(world: &World) -> usize {
    world.counters(1).cookies_received as usize
}

#[test]
fn without_a_flood_nobody_gets_a_cookie() {
    let mut world = World::connected();
    let datagram = initiation();
    assert_eq!(flood(&mut world, &datagram, 100), 0);
    world.run(SECOND);
    assert_eq!(world.counters(0).cookies_sent, 0);
    assert_eq!(world.counters(0).unknown_peer, 100);
}

#[test]
fn an_address_with_a_cookie_gets_its_share_and_no_more() {
    let mut world = World::connected();
    let datagram = initiation();
    flood(&mut world, &datagram, 500);
    // The peer initiates under load again and again, as one that lost its mind would.
    let before = world.counters(0);
    for round in 0..50 {
        world.restart(1, |setup| setup.seed = 5000 + round);
        for _ in 0..3 {
            world.pass(10 * MS);
            flood(&mut world, &datagram, 100);
            world.deliver_all();
        }
    }
    let after = world.counters(0);
    assert!(after.refused + after.cookies_sent > before.refused + before.cookies_sent);
    let seconds = 2;
    assert!(after.responses_sent - before.responses_sent <= 20 * seconds + 5);
}

/// A gateway that waits for an answer, and what it sent.
fn waiting() -> (Tunnel, Vec<u8>) {
    let peer = identity(2).public();
    let mut tunnel = tunnel(1, vec![peer]);
    let path = Path::to([203, 0, 113, 2].into(), PORT);
    let wanted = PeerActivity { wanted: Some(Some(path)), ..PeerActivity::default() };
    let (now, mut effects) = (at(SECOND), Vec::new());
    tunnel.note_activity(now, &peer, &wanted, &mut effects);
    tunnel.tick(now, &mut effects);
    (tunnel, sent(&mut effects).unwrap())
}

pub(super) fn at(elapsed_ns: u64) -> Now {
    Now { elapsed_ns, unix_ns: elapsed_ns }
}

pub(super) fn sent(effects: &mut Vec<Effect>) -> Option<Vec<u8>> {
    effects.drain(..).find_map(|it| match it {
        Effect::Send { datagram, .. } => Some(datagram),
        _ => None,
    })
}

#[test]
fn forged_answers_cost_no_more_work_than_initiations_and_the_true_one_gets_through() {
    let (mut initiator, initiation) = waiting();
    let path = Path::to([203, 0, 113, 2].into(), PORT);
    let mut responder = tunnel(2, vec![identity(1).public()]);
    let mut effects = Vec::new();
    responder.handle(at(SECOND), &path, &initiation, &mut effects);
    let answer = sent(&mut effects).expect("an answer");
    // Whoever sees the answer pass by changes its sealed part and adds the right mac1.
    let mut forged = answer.clone();
    let noise = answer.len() - 2 * 16 - 4;
    forged[noise] ^= 1;
    let covered = forged.len() - 2 * 16;
    forged.truncate(covered);
    finish(&mut forged, &identity(1).public());
    for number in 0..2000_u32 {
        let [_, b, c, d] = number.to_be_bytes();
        let from = Path::to([10, b, c, d].into(), PORT);
        initiator.handle(at(SECOND + u64::from(number)), &from, &forged, &mut effects);
    }
    let counters = initiator.counters();
    assert!((300..=410).contains(&counters.not_authentic), "worked on {counters:?}");
    assert!(counters.cookies_sent >= 1500, "{counters:?}");
    effects.clear();
    // Under load the true one gets a cookie, too; what is sent again bears it.
    let now = at(SECOND + 10 * MS);
    initiator.handle(now, &path, &answer, &mut effects);
    let cookie = sent(&mut effects).expect("a cookie");
    assert_eq!(initiator.counters().handshakes, 0);
    responder.handle(now, &path, &cookie, &mut effects);
    assert_eq!(responder.counters().cookies_received, 1);
    let later = at(initiator.next_deadline().unwrap());
    initiator.tick(later, &mut effects);
    let again = sent(&mut effects).expect("another initiation");
    for number in 0..500 {
        initiator.handle(
            later,
            &Path::to([10, 9, 0, 1].into(), PORT + number),
            &again,
            &mut effects,
        );
    }
    effects.clear();
    responder.handle(later, &path, &again, &mut effects);
    let answer = sent(&mut effects).expect("another answer");
    initiator.handle(later, &path, &answer, &mut effects);
    assert_eq!(initiator.counters().handshakes, 1, "{:?}", initiator.counters());
}

/// What any sender can add to a message for the owner of `key`: mac1 (WireGuard 5.4.4), no mac2.
pub(super) fn finish(message: &mut Vec<u8>, key: &PublicKey) {
    let keyed = Blake2s256::new().chain_update(b"mac1----").chain_update(key.0).finalize();
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&keyed).unwrap();
    Mac::update(&mut mac, message);
    message.extend_from_slice(&mac.finalize().into_bytes());
    message.extend_from_slice(&[0; 16]);
}
