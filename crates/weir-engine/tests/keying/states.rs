//! What the state machine does with messages lost, repeated, forged, and with peers that come, go,
//! move and disagree.

use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::handshake::Mismatch;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::verdict::{DropReason, Side};

use super::world::{MS, PORT, SECOND, Setup, World, preshared, terms};

/// Frames of handshakes that wait on the wire.
fn is_handshake(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == PORT.to_be_bytes()
}

fn handshakes(world: &World) -> Vec<usize> {
    let waiting = world.wire.iter().enumerate();
    waiting.filter(|(_, it)| is_handshake(&it.frame)).map(|(at, _)| at).collect()
}

#[track_caller]
fn assert_carries(world: &mut World) {
    for side in 0..2 {
        let mark = world.send(side);
        world.deliver_all();
        assert_eq!(world.received(1 - side), [mark], "from side {side}");
    }
}

fn setups(change: impl Fn(usize, &mut Setup)) -> [Setup; 2] {
    [0, 1].map(|side| {
        let mut setup = Setup::new(side);
        change(side, &mut setup);
        setup
    })
}

#[test]
fn two_gateways_that_start_at_once_carry_traffic_both_ways() {
    let mut world = World::connected();
    assert_carries(&mut world);
    let nothing = |side| world.dropped(side, Side::Host, DropReason::NoAssociation);
    assert_eq!((nothing(0), nothing(1)), (0, 0));
}

#[test]
fn without_keys_packets_are_dropped_under_their_reason_and_nothing_leaves_in_clear() {
    let mut world = World::new([Setup::new(0), Setup::new(1)]);
    world.wire.clear();
    world.send(0);
    assert_eq!(world.dropped(0, Side::Host, DropReason::NoAssociation), 1);
    assert!(world.wire.is_empty());
}

#[test]
fn ml_kem_and_preshared_keys_are_part_of_the_keys() {
    let mut world = World::new(setups(|_, it| it.terms = terms(true)));
    world.run(2 * SECOND);
    assert_eq!(world.states(), [PeerState::Up; 2]);
    assert_carries(&mut world);
}

#[test]
fn every_message_of_a_handshake_may_be_lost() {
    for lost in 0..6 {
        let mut world = World::new([Setup::new(0), Setup::new(1)]);
        let mut seen = 0;
        for _ in 0..100 {
            world.pass(100 * MS);
            while let Some(next) = world.wire.pop_front() {
                seen += 1;
                if seen - 1 != lost {
                    world.deliver(next);
                }
            }
        }
        assert_eq!(world.states(), [PeerState::Up; 2], "message {lost}");
        assert_carries(&mut world);
    }
}

#[test]
fn keys_are_renewed_without_a_packet_lost_whoever_initiates() {
    let limits = Limits { rekey_after_ns: SECOND, ..Limits::default() };
    let mut world = World::new(setups(|_, it| it.limits = limits));
    world.run(2 * SECOND);
    let before = world.counters(0).handshakes;
    let mut sent = [Vec::new(), Vec::new()];
    for _ in 0..2000 {
        world.pass(5 * MS);
        for (side, sent) in sent.iter_mut().enumerate() {
            sent.push(world.send(side));
        }
        // Packets of the old keys stay under way while the new ones come into use.
        while world.wire.len() > 7 {
            let next = world.wire.pop_front().unwrap();
            world.deliver(next);
        }
    }
    world.deliver_all();
    assert!(world.counters(0).handshakes >= before + 8, "{:?}", world.counters(0));
    assert_eq!(world.received(1), sent[0]);
    assert_eq!(world.received(0), sent[1]);
}

#[test]
fn keys_are_renewed_by_bytes_and_by_packets() {
    let packets = Limits { rekey_after_packets: 1000, ..Limits::default() };
    let bytes = Limits { rekey_after_bytes: 60_000, ..Limits::default() };
    for limits in [packets, bytes] {
        let mut world = World::new(setups(|_, it| it.limits = limits));
        world.run(2 * SECOND);
        let before = world.counters(0).handshakes;
        for _ in 0..30 {
            for _ in 0..110 {
                world.send(0);
            }
            world.run(100 * MS);
        }
        assert!(world.counters(0).handshakes >= before + 3, "{limits:?}");
        assert_eq!(world.received(1).len(), 3300);
    }
}

#[test]
fn simultaneous_initiations_leave_one_pair_of_keys_in_use_and_lose_nothing() {
    let mut world = World::new([Setup::new(0), Setup::new(1)]);
    world.pass(SECOND);
    assert_eq!(handshakes(&world).len(), 2, "both have initiated");
    world.deliver_all();
    world.run(SECOND);
    assert_eq!(world.states(), [PeerState::Up; 2]);
    for _ in 0..10 {
        assert_carries(&mut world);
    }
    for side in 0..2 {
        assert_eq!(world.dropped(side, Side::Wire, DropReason::UnknownSpi), 0);
    }
}

#[test]
fn what_seals_is_counted_although_two_handshakes_ended_crosswise() {
    let limits = Limits { rekey_after_packets: 1000, ..Limits::default() };
    let mut world = World::new(setups(|_, it| it.limits = limits));
    world.pass(SECOND);
    let ours = handshakes(&world).into_iter().find(|at| world.wire[*at].to == 1).unwrap();
    let late = world.wire.remove(ours).unwrap();
    // The other's handshake ends, and its first packet puts its keys in use here: that is reported
    // by the next tick, and before that ours ends too.
    world.deliver_all();
    world.send(1);
    world.deliver_all();
    world.deliver(late);
    world.deliver_all();
    world.run(3 * SECOND);
    assert_eq!(world.counters(0).handshakes, 2);
    for _ in 0..20 {
        for _ in 0..110 {
            world.send(0);
        }
        world.run(100 * MS);
    }
    assert!(world.counters(0).handshakes > 2, "2200 packets, and new keys after 1000");
    assert_eq!(world.received(1).len(), 2200);
}

#[test]
fn a_replayed_initiation_is_refused_and_changes_nothing() {
    let mut world = World::new(setups(|side, it| it.knows_endpoint = side == 0));
    world.pass(SECOND);
    let initiation = world.wire[handshakes(&world)[0]].clone();
    world.deliver_all();
    world.run(2 * SECOND);
    let before = world.counters(1);
    for _ in 0..3 {
        world.deliver(initiation.clone());
    }
    let after = world.counters(1);
    assert_eq!(after.replayed, before.replayed + 3);
    assert_eq!(after.responses_sent, before.responses_sent);
    assert_carries(&mut world);
}

#[test]
fn a_replayed_response_is_refused() {
    let mut world = World::new(setups(|side, it| it.knows_endpoint = side == 0));
    world.pass(SECOND);
    let initiation = world.wire.pop_front().unwrap();
    world.deliver(initiation);
    let response = world.wire[handshakes(&world)[0]].clone();
    world.deliver_all();
    let before = world.counters(0);
    world.deliver(response);
    assert_eq!(world.counters(0).not_authentic, before.not_authentic + 1);
    assert_eq!(world.counters(0).handshakes, before.handshakes);
    assert_carries(&mut world);
}

#[test]
fn a_flipped_bit_anywhere_in_a_message_makes_no_keys() {
    let mut world = World::new(setups(|side, it| it.knows_endpoint = side == 0));
    world.pass(SECOND);
    let initiation = world.wire.pop_front().unwrap();
    // mac2, the last 16 bytes, counts under load only.
    for at in 42..initiation.frame.len() - 16 {
        let mut forged = initiation.clone();
        forged.frame[at] ^= 1 << (at % 8);
        world.deliver(forged);
    }
    let counters = world.counters(1);
    assert_eq!((counters.handshakes, counters.responses_sent), (0, 0), "{counters:?}");
    world.deliver(initiation);
    let response = world.wire.pop_front().unwrap();
    for at in 42..response.frame.len() - 16 {
        let mut forged = response.clone();
        forged.frame[at] ^= 1 << (at % 8);
        world.deliver(forged);
    }
    assert_eq!(world.counters(0).handshakes, 0);
    world.deliver(response);
    world.deliver_all();
    assert_carries(&mut world);
}

#[test]
fn a_wrong_preshared_key_makes_no_keys() {
    let mut world = World::new(setups(|side, it| it.preshared = preshared(side as u8 + 1)));
    world.run(10 * SECOND);
    assert_eq!(world.states(), [PeerState::Dead; 2]);
    assert!(world.counters(0).not_authentic > 3);
    assert_eq!(world.sealed(), 0);
}

#[test]
fn an_unknown_identity_makes_no_keys() {
    let mut world = World::connected();
    let mut stranger = super::world::tunnel(9, vec![super::world::identity(1).public()]);
    let now = weir_engine::tunnel::state::Now { elapsed_ns: 9 * SECOND, unix_ns: 9 * SECOND };
    let path = weir_engine::tunnel::path::Path::to([192, 0, 2, 9].into(), PORT);
    let wanted = weir_engine::tunnel::state::PeerActivity {
        wanted: Some(Some(path.clone())),
        ..Default::default()
    };
    let mut effects = Vec::new();
    stranger.note_activity(now, &super::world::identity(1).public(), &wanted, &mut effects);
    stranger.tick(now, &mut effects);
    let weir_engine::tunnel::state::Effect::Send { datagram, .. } = &effects[0] else { panic!() };
    let now = weir_engine::tunnel::state::Now { elapsed_ns: world.elapsed_ns, unix_ns: 1 };
    world.sides[0].tunnel.handle(now, &path, datagram, &mut Vec::new());
    assert_eq!(world.counters(0).unknown_peer, 1);
}

#[test]
fn ml_kem_on_one_side_is_named_at_both() {
    let mut world = World::new(setups(|side, it| it.terms = terms(side == 0)));
    world.run(5 * SECOND);
    let why = [0, 1].map(|side| world.status(side).mismatch);
    assert_eq!(why[0], Some(Mismatch::MlKem { ours: true, theirs: false }));
    assert_eq!(why[1], Some(Mismatch::MlKem { ours: false, theirs: true }));
    assert!(why[0].unwrap().to_string().contains("set both alike"));
    assert_eq!(world.states(), [PeerState::Dead; 2]);
}

#[test]
fn a_killed_peer_is_found_within_seconds_and_comes_back() {
    let mut world = World::connected();
    let mut dead_after = 0;
    while world.states()[0] != PeerState::Dead {
        world.pass(100 * MS);
        world.wire.clear();
        dead_after += 100 * MS;
        assert!(dead_after < 12 * SECOND);
    }
    world.restart(1, |_| {});
    world.run(6 * SECOND);
    assert_eq!(world.states(), [PeerState::Up; 2]);
    assert_carries(&mut world);
}

#[test]
fn a_restarted_gateway_is_reached_although_its_clock_went_back() {
    let mut world = World::connected();
    world.sides[0].wall_offset_ns = -(3600 * SECOND as i64);
    world.restart(0, |_| {});
    world.run(12 * SECOND);
    assert!(world.counters(1).replayed > 0, "its own initiations look old");
    assert_eq!(world.states(), [PeerState::Up; 2]);
    assert_carries(&mut world);
}

#[test]
fn a_wall_clock_that_jumps_disturbs_no_running_gateway() {
    let limits = Limits { rekey_after_ns: 2 * SECOND, ..Limits::default() };
    let mut world = World::new(setups(|_, it| it.limits = limits));
    world.run(2 * SECOND);
    for offset in [3600, -7200, 100_000, 0] {
        world.sides[0].wall_offset_ns = offset * SECOND as i64;
        let before = world.counters(0).handshakes;
        world.run(5 * SECOND);
        assert!(world.counters(0).handshakes > before, "after {offset} s");
        assert_carries(&mut world);
    }
    assert_eq!(world.counters(1).replayed, 0);
}

#[test]
fn keys_expire_when_they_cannot_be_renewed() {
    let limits = Limits { rekey_after_ns: 5 * SECOND, ..Limits::default() };
    let mut world = World::new(setups(|_, it| it.limits = limits));
    world.run(2 * SECOND);
    for _ in 0..400 {
        world.pass(100 * MS);
        world.wire.retain(|it| !is_handshake(&it.frame));
        world.deliver_all();
    }
    world.wire.clear();
    world.send(0);
    assert!(world.wire.is_empty(), "nothing is sealed by old keys");
    assert_eq!(world.dropped(0, Side::Host, DropReason::NoAssociation), 1);
}

#[test]
fn authentic_packets_from_a_new_address_move_the_endpoint_and_forged_ones_do_not() {
    let mut world = World::connected();
    world.send(1);
    let mut forged = world.wire.pop_front().unwrap();
    forged.frame[29] = 77;
    forged.frame[24..26].copy_from_slice(&[0, 0]);
    let last = forged.frame.len() - 1;
    forged.frame[last] ^= 1;
    world.deliver(forged);
    assert_eq!(world.sides[0].engine.counters().peers_moved, 0);

    world.move_to(1, 9);
    world.send(1);
    world.deliver_all();
    assert_eq!(world.received(0).len(), 1);
    assert_eq!(world.sides[0].engine.counters().peers_moved, 1);
    world.send(0);
    assert_eq!(world.wire[0].frame[30..34], [192, 0, 2, 9], "answers go to the new address");
    world.deliver_all();
    assert_eq!(world.received(1).len(), 1);
    world.run(SECOND);
    let path = world.status(0).path.unwrap();
    assert_eq!(path.remote.address.to_string(), "192.0.2.9");
}

#[test]
fn an_old_packet_from_an_old_address_does_not_move_the_endpoint_back() {
    let mut world = World::connected();
    world.send(1);
    let late = world.wire.pop_front().unwrap();
    world.move_to(1, 9);
    world.send(1);
    world.deliver_all();
    world.deliver(late);
    assert_eq!(world.received(0).len(), 2, "late, and still good");
    assert_eq!(world.sides[0].engine.counters().peers_moved, 1);
}

#[test]
fn a_peer_without_an_endpoint_is_known_once_it_spoke() {
    let mut world = World::new(setups(|side, it| it.knows_endpoint = side == 0));
    world.run(3 * SECOND);
    assert_eq!(world.states(), [PeerState::Up; 2]);
    assert_carries(&mut world);
}

#[test]
fn a_reload_keeps_sessions_and_other_terms_end_them() {
    let mut world = World::connected();
    let before = world.counters(0).handshakes;
    world.configure(0);
    world.move_to(0, 1);
    world.run(500 * MS);
    assert_eq!(world.counters(0).handshakes, before);
    for _ in 0..3 {
        assert_carries(&mut world);
    }
    world.restart(0, |it| it.preshared = preshared(9));
    world.run(500 * MS);
    world.wire.clear();
    world.send(0);
    assert_eq!(world.dropped(0, Side::Host, DropReason::NoAssociation), 1);
}

#[test]
fn associations_that_are_lost_cost_a_handshake_and_not_one_sooner_than_a_second() {
    let mut world = World::connected();
    let before = world.counters(0);
    world.lose(0);
    assert_eq!(world.states()[0], PeerState::Idle);
    world.run(900 * MS);
    assert_eq!(world.counters(0).initiations_sent, before.initiations_sent);
    world.run(SECOND);
    assert_eq!(world.counters(0).initiations_sent, before.initiations_sent + 1);
    assert_carries(&mut world);
}

#[test]
fn who_only_hears_gives_signs_of_life_too() {
    let mut world = World::connected();
    let handshakes = world.counters(0).handshakes + world.counters(1).handshakes;
    for _ in 0..200 {
        world.send(0);
        world.run(100 * MS);
        let heard_age = world.status(0).heard_age_ns.unwrap();
        assert!(heard_age <= 3 * SECOND, "{heard_age} ns of silence to the one that sends");
    }
    let after = world.counters(0).handshakes + world.counters(1).handshakes;
    assert_eq!(after, handshakes, "and nobody called");
}

#[test]
fn idle_peers_stay_up_and_tell_so() {
    let mut world = World::connected();
    world.run(60 * SECOND);
    assert_eq!(world.states(), [PeerState::Up; 2]);
    let heard = world.status(0).heard_age_ns.unwrap();
    assert!(heard <= 3 * SECOND, "{heard}");
    assert_eq!(world.counters(0).handshakes, world.counters(1).handshakes);
}
