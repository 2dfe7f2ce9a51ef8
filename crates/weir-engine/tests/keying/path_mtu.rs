//! The width of the path between two gateways: found, obeyed, lost, and no stranger believed.

use weir_engine::policy::Mode;
use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::path_mtu::PathMtuState;
use weir_engine::verdict::{DropReason, Side};

use super::world::{SECOND, Setup, World, terms};

fn world(wire_carries: usize, mode: Mode) -> World {
    let setup = |side| {
        let mut terms = terms(false);
        terms.mode = mode;
        Setup { probes_path: true, terms, ..Setup::new(side) }
    };
    let mut world = World::new([setup(0), setup(1)]);
    world.wire_carries = wire_carries;
    world
}

#[track_caller]
fn found(world: &World, side: usize) -> u16 {
    let status = world.status(side);
    assert_eq!(status.state, PeerState::Up);
    assert_eq!(status.path_mtu.state, PathMtuState::Found, "{status:?}");
    status.path_mtu.in_force_bytes
}

/// What arrives of a frame of so many bytes.
fn passes(world: &mut World, frame_len: usize) -> bool {
    let mark = world.send_of(0, frame_len);
    world.deliver_all();
    world.received(1) == [mark]
}

#[test]
fn both_gateways_find_what_the_path_carries_in_every_mode_and_obey_it() {
    for mode in [Mode::Ethernet, Mode::Tunnel, Mode::Transport] {
        for carried in [600, 1280, 1500, 1777, 2000] {
            let mut world = world(carried, mode);
            world.run(20 * SECOND);
            for side in 0..2 {
                let found = usize::from(found(&world, side));
                assert!(found <= carried && found + 4 > carried, "{mode:?} {carried}: {found}");
            }
        }
    }
}

#[test]
fn what_is_sealed_fits_the_path_and_what_does_not_is_dropped_as_too_big() {
    let mut world = world(1500, Mode::Ethernet);
    world.run(20 * SECOND);
    assert_eq!(found(&world, 0), 1500);
    // 20 of IP, 8 of ESP, 8 of IV, 2 of EtherIP, 2 of trailer, 16 of ICV.
    let largest = 1500 - 20 - 8 - 8 - 2 - 2 - 16;
    assert!(passes(&mut world, largest));
    assert!(!passes(&mut world, largest + 1));
    assert_eq!(world.dropped(0, Side::Host, DropReason::TooBig), 1, "counted, not lost on the way");
}

#[test]
fn a_path_that_narrows_under_traffic_is_found_again_after_a_black_hole() {
    let mut world = world(2000, Mode::Ethernet);
    world.run(5 * SECOND);
    assert_eq!(found(&world, 0), 2000);
    world.wire_carries = 1400;
    for _ in 0..60 {
        world.send(0);
        world.run(SECOND);
    }
    assert_eq!((found(&world, 0), world.status(0).path_mtu.black_holes), (1400, 1));
    assert_eq!(found(&world, 1), 2000, "who seals nothing asks nothing");
    world.received(1);
    assert!(passes(&mut world, 1300));
}

#[test]
fn icmp_of_strangers_causes_a_question_and_no_more() {
    let mut world = world(2000, Mode::Ethernet);
    world.run(5 * SECOND);
    let spi = world.status(0).spis.unwrap().0;
    world.complain(0, spi ^ 1);
    world.run(SECOND);
    world.complain(0, spi);
    world.run(6 * SECOND);
    assert_eq!(world.sides[0].engine.counters().too_large_heard, 1, "by its SPI");
    assert_eq!((found(&world, 0), world.status(0).path_mtu.black_holes), (2000, 0));
    world.wire_carries = 1500;
    world.complain(0, spi);
    world.run(15 * SECOND);
    assert_eq!(found(&world, 0), 1500, "the question showed that it was true");
}

#[test]
fn a_peer_that_moved_is_asked_anew() {
    let mut world = world(1500, Mode::Ethernet);
    world.run(20 * SECOND);
    assert_eq!(found(&world, 0), 1500);
    world.wire_carries = 2000;
    world.move_to(1, 9);
    world.run(20 * SECOND);
    assert_eq!(found(&world, 0), 2000);
}

#[test]
fn a_rekey_keeps_what_is_known() {
    let mut world = world(1500, Mode::Ethernet);
    world.run(20 * SECOND);
    let handshakes = world.status(0).handshakes;
    world.run(200 * SECOND);
    assert!(world.status(0).handshakes > handshakes, "keys were renewed");
    assert_eq!((found(&world, 0), found(&world, 1)), (1500, 1500));
}
