//! No nonce repeats, whatever is lost, repeated, reordered, killed, or restored from a snapshot
//! with the random bytes of before. `World` watches every frame that leaves.

use proptest::prelude::*;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::rekey::Limits;

use super::world::{MS, SECOND, Setup, World, terms};

#[derive(Clone, Debug)]
enum Step {
    Send(usize, u8),
    Deliver(u8),
    Lose,
    Repeat,
    Swap,
    Pass(u16),
    Kill(usize),
    /// Like a virtual machine that is put back: the same random bytes come again.
    Restore(usize),
    Clock(usize, i32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let side = 0..2_usize;
    let step = prop_oneof![
        4 => (side.clone(), 1..20_u8).prop_map(|(side, count)| Step::Send(side, count)),
        6 => (1..40_u8).prop_map(Step::Deliver),
        1 => Just(Step::Lose),
        1 => Just(Step::Repeat),
        1 => Just(Step::Swap),
        4 => (1..3000_u16).prop_map(Step::Pass),
        1 => side.clone().prop_map(Step::Kill),
        1 => side.clone().prop_map(Step::Restore),
        1 => (side, -100_000..100_000_i32).prop_map(|(side, by)| Step::Clock(side, by)),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_key_seals_twice_with_one_nonce(
        steps in steps(),
        ml_kem: bool,
        workers in [1..5_u8, 1..5],
    ) {
        let limits = Limits { rekey_after_ns: SECOND, ..Limits::default() };
        let setups = [0, 1].map(|side| {
            let terms = Terms { workers: workers[side], ..terms(ml_kem) };
            Setup { limits, terms, ..Setup::new(side) }
        });
        let mut world = World::new(setups);
        for step in steps {
            take(&mut world, step);
        }
        // Whatever happened, both find each other again, and carry traffic.
        world.wire.clear();
        for side in 0..2 {
            world.sides[side].wall_offset_ns = 1_000_000 * SECOND as i64;
        }
        world.run(20 * SECOND);
        world.received(1);
        let marks: Vec<_> = (0..8).map(|_| world.send(0)).collect();
        world.deliver_all();
        prop_assert_eq!(world.received(1), marks, "by all workers that both have");
    }
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Send(side, count) => {
            for _ in 0..count {
                world.send(side);
            }
        }
        Step::Deliver(count) => {
            for _ in 0..count {
                let Some(next) = world.wire.pop_front() else { break };
                world.deliver(next);
            }
        }
        Step::Lose => drop(world.wire.pop_front()),
        Step::Repeat => {
            if let Some(next) = world.wire.front().cloned() {
                world.wire.push_back(next);
            }
        }
        Step::Swap => {
            if world.wire.len() > 1 {
                world.wire.swap(0, 1);
            }
        }
        Step::Pass(ms) => world.pass(u64::from(ms) * MS),
        Step::Kill(side) => world.restart(side, |_| {}),
        Step::Restore(side) => world.restart(side, |setup| setup.seed = 1000 + side as u64),
        Step::Clock(side, by) => world.sides[side].wall_offset_ns += i64::from(by) * MS as i64,
    }
}
