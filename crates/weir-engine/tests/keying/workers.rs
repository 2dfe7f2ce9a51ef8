//! Gateways with several workers: one handshake makes all their associations.

use std::collections::BTreeSet;

use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::rekey::Limits;
use weir_wire::frame::Link;
use weir_wire::parse::{Transport, parse};

use super::world::{MS, SECOND, Setup, World, terms};

fn world(workers: [u8; 2], limits: Limits, ml_kem: bool) -> World {
    let setups = [0, 1].map(|side| {
        let terms = Terms { workers: workers[side], ..terms(ml_kem) };
        Setup { limits, terms, ..Setup::new(side) }
    });
    World::new(setups)
}

/// SPIs of the ESP packets that wait on the wire.
pub(crate) fn spis(world: &World) -> BTreeSet<u32> {
    let spi = |frame: &Vec<u8>| match parse(frame, Link::Ethernet, frame.len() as u32).transport {
        Transport::Esp { spi, .. } => Some(spi),
        _ => None,
    };
    world.wire.iter().filter_map(|it| spi(&it.frame)).collect()
}

#[test]
fn the_lesser_number_of_workers_is_used_each_with_an_association() {
    let pairs = [([1, 1], 1), ([4, 2], 2), ([2, 4], 2), ([3, 3], 3), ([1, 4], 1), ([16, 16], 16)];
    for (workers, expected) in pairs {
        for ml_kem in [false, true] {
            let mut world = world(workers, Limits::default(), ml_kem);
            world.run(2 * SECOND);
            assert_eq!(world.states(), [PeerState::Up; 2], "{workers:?}");
            for side in 0..2 {
                let marks: Vec<_> = (0..64).map(|_| world.send(side)).collect();
                let used = spis(&world);
                assert_eq!(used.len(), expected, "{workers:?}");
                if expected > 1 {
                    let base = used.first().unwrap();
                    assert!(
                        base.is_multiple_of(16)
                            && used.last() == Some(&(base + expected as u32 - 1))
                    );
                }
                world.deliver_all();
                assert_eq!(world.received(1 - side), marks, "{workers:?}");
            }
        }
    }
}

#[test]
fn all_workers_change_to_new_keys_and_lose_nothing_though_only_the_first_is_heard() {
    let limits = Limits { rekey_after_ns: 3 * SECOND, ..Limits::default() };
    let mut world = world([4, 4], limits, false);
    world.run(2 * SECOND);
    let mut before = BTreeSet::new();
    for round in 0..120 {
        // Traffic one way alone: who only sends is confirmed by worker 0's signs of life.
        let marks: Vec<_> = (0..8).map(|_| world.send(round / 60)).collect();
        let used = spis(&world);
        assert_eq!(used.len(), 4, "round {round}");
        before.extend(used);
        world.run(200 * MS);
        assert_eq!(world.received(1 - round / 60), marks, "round {round}");
    }
    assert!(before.len() >= 4 * 6, "{} SPIs: keys were renewed", before.len());
}

#[test]
fn a_gateway_that_comes_back_with_fewer_workers_is_followed() {
    let mut world = world([4, 4], Limits::default(), false);
    world.run(2 * SECOND);
    for workers in [2, 1, 3] {
        world.restart(1, |setup| setup.terms.workers = workers);
        world.run(20 * SECOND);
        let marks: Vec<_> = (0..16).map(|_| world.send(0)).collect();
        assert_eq!(spis(&world).len(), usize::from(workers));
        world.deliver_all();
        assert_eq!(world.received(1), marks, "{workers} workers");
    }
}
