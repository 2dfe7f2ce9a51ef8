//! Floods of initiations: public-key work is kept for those who receive where they send from.

use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::state::{Effect, Now, Report};

use super::world::{MS, PORT, SECOND, Setup, World, identity, tunnel};

/// What a stranger who knows the public key of gateway 1 sends.
fn initiation() -> Vec<u8> {
    let victim = identity(1).public();
    let mut stranger = tunnel(9, vec![victim]);
    let now = Now { elapsed_ns: SECOND, unix_ns: SECOND };
    let path = Path::to([203, 0, 113, 1].into(), PORT);
    let wanted = Report { wanted: Some(Some(path)), ..Report::default() };
    let mut effects = Vec::new();
    stranger.report(now, &victim, &wanted, &mut effects);
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
