//! Seeds against two gateways: a seed decides how they are set up, what the wire does to frames,
//! who crashes, reloads, begins again on an older copy of its disk and has its clock set, and what
//! an attacker sends. After each step the invariants of a sealing gateway must hold; when all is
//! quiet again, the tunnel must work.
//!
//! - Nothing but ESP, handshakes and questions for neighbours leaves by a wire port (`World::put`).
//! - No key seals twice with one nonce (`World::watch`).
//! - A host gets each frame once at most, as the other host sent it, and nothing else.
//! - A host gets no WRITE that a line of access denies, and every READ that none does.
//! - Every packet is accounted for by each gateway.
//! - After 30 quiet seconds both directions carry everything.
//!
//! `make simulate SEEDS=n` runs n seeds; a failure names its seed, and `make simulate SEED=n` runs
//! that one alone, with its steps printed.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_engine::tunnel::PeerState;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::Entropy;
use weir_engine::tunnel::rekey::Limits;

use super::world::{Keys, MS, OnWire, SECOND, Seeded, Setup, World, terms};

/// Seeds in `make test`.
const SEEDS: u64 = 1000;
/// Steps of a seed.
const STEPS: u32 = 120;
/// Frames of the past that an attacker keeps.
const RECORDED_MAX: usize = 400;
/// What a tunnel may take to recover, at most: a peer is dead after 12 s, and asks again every 5.
const RECOVERY_NS: u64 = 30 * SECOND;

/// Random numbers of a seed.
struct Dice(Seeded);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_ne_bytes(bytes) % bound.max(1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn side(&mut self) -> usize {
        self.below(2) as usize
    }
}

/// What the wire does, in percent of frames.
#[derive(Debug)]
struct Faults {
    lost: u64,
    repeated: u64,
    delayed: u64,
    damaged: u64,
}

struct Simulation {
    world: World,
    dice: Dice,
    faults: Faults,
    /// Frames that the hosts sent and the other has not received, by mark.
    outstanding: [HashMap<u32, Vec<u8>>; 2],
    recorded: VecDeque<OnWire>,
    told: String,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let from_files = dice.percent(30);
        let ml_kem = dice.percent(30);
        let limits = Limits { rekey_after_ns: SECOND, ..Limits::default() };
        let setups = [0, 1].map(|side| {
            let workers = if from_files { 1 } else { 1 + dice.below(4) as u8 };
            Setup {
                limits,
                terms: Terms { workers, ..terms(ml_kem) },
                keys: if from_files { Keys::Files } else { Keys::Agreed },
                seed: seed.wrapping_mul(2).wrapping_add(side),
                ..Setup::new(side as usize)
            }
        });
        let faults = Faults {
            lost: dice.below(25),
            repeated: dice.below(10),
            delayed: dice.below(30),
            damaged: dice.below(5),
        };
        let told = format!("files {from_files}, ml-kem {ml_kem}, {faults:?}\n");
        Self {
            world: World::new(setups),
            dice,
            faults,
            outstanding: Default::default(),
            recorded: VecDeque::new(),
            told,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        self.recover();
    }

    fn step(&mut self) {
        let side = self.dice.side();
        match self.dice.below(100) {
            0..30 => {
                let count = 1 + self.dice.below(12);
                self.tell(format_args!("host {side} sends {count}"));
                (0..count).for_each(|_| self.send(side));
            }
            30..60 => {
                let count = 1 + self.dice.below(30);
                self.tell(format_args!("the wire carries {count}"));
                self.carry(count as usize);
            }
            60..80 => {
                let ms = 1 + self.dice.below(1500);
                self.tell(format_args!("{ms} ms pass"));
                self.world.pass(ms * MS);
            }
            80..83 => {
                self.tell(format_args!("gateway {side} is killed and starts again"));
                self.world.restart(side, |_| {});
            }
            83 => {
                self.tell(format_args!("somebody copies the disk of gateway {side}"));
                self.world.copy_disk(side);
            }
            84 => self.roll_back(side),
            85..88 => {
                self.tell(format_args!("gateway {side} reads its configuration again"));
                self.world.reload(side);
            }
            88..91 => {
                let by = self.dice.below(200_000) as i64 - 100_000;
                self.tell(format_args!("gateway {side}: its wall clock is set by {by} ms"));
                self.world.sides[side].wall_offset_ns += by * MS as i64;
            }
            91..93 => {
                self.tell(format_args!("gateway {side} loses its associations"));
                self.world.lose(side);
            }
            93..97 => {
                self.tell(format_args!("an attacker sends what was said before"));
                self.replay();
            }
            _ => {
                self.tell(format_args!("an attacker speaks in clear to gateway {side}"));
                self.world.forge(side);
            }
        }
    }

    /// A gateway begins again with the older copy of its disk.
    fn roll_back(&mut self, side: usize) {
        let is_refused = self.world.roll_back(side);
        let words = if is_refused { ", which is refused: there are new keys" } else { "" };
        self.tell(format_args!("gateway {side} starts again on an older copy{words}"));
    }

    fn send(&mut self, side: usize) {
        let (mark, frame) = match self.dice.below(6) {
            // That it arrives is what must not be.
            0 => return drop(self.world.ask(side, true)),
            1 => self.world.ask(side, false),
            _ => {
                let len = 60 + self.dice.below(1200) as usize;
                self.world.send_noted(side, len)
            }
        };
        self.outstanding[side].insert(mark, frame);
    }

    /// The wire carries so many frames, and does to them what it does.
    fn carry(&mut self, count: usize) {
        for _ in 0..count {
            let Some(mut next) = self.world.wire.pop_front() else { return };
            if self.recorded.len() == RECORDED_MAX {
                self.recorded.pop_front();
            }
            self.recorded.push_back(next.clone());
            let Faults { lost, repeated, delayed, damaged } = self.faults;
            if self.dice.percent(lost) {
                continue;
            }
            if self.dice.percent(delayed) {
                self.world.wire.push_back(next);
                continue;
            }
            if self.dice.percent(repeated) {
                self.world.wire.push_back(next.clone());
            }
            if self.dice.percent(damaged) {
                let at = self.dice.below(next.frame.len() as u64) as usize;
                next.frame[at] ^= 1 << self.dice.below(8);
            }
            self.world.deliver(next);
        }
    }

    /// Some of what was on the wire before, whole or cut short, to either side.
    fn replay(&mut self) {
        for _ in 0..1 + self.dice.below(20) {
            if self.recorded.is_empty() {
                return;
            }
            let at = self.dice.below(self.recorded.len() as u64) as usize;
            let mut old = self.recorded[at].clone();
            if self.dice.percent(20) {
                old.to = 1 - old.to;
            }
            if self.dice.percent(20) {
                let len = 14 + self.dice.below(old.frame.len() as u64 - 14) as usize;
                old.frame.truncate(len);
            }
            self.world.deliver(old);
        }
    }

    /// The invariants about what hosts receive, and the counters.
    fn check(&mut self) {
        for side in 0..2 {
            for (mark, frame) in self.world.received_whole(side) {
                let sent = self.outstanding[1 - side].remove(&mark);
                assert_eq!(
                    sent.as_ref(),
                    Some(&frame),
                    "host {side} got frame {mark} that was not sent, or got it twice"
                );
            }
            self.world.assert_adds_up(side);
        }
    }

    /// The faults end: the tunnel works again, both ways.
    fn recover(&mut self) {
        self.tell(format_args!("all is quiet"));
        self.world.wire.clear();
        for side in 0..2 {
            // A clock that was set back goes on from where others have seen it.
            self.world.sides[side].wall_offset_ns = 1_000_000 * SECOND as i64;
        }
        self.world.run(RECOVERY_NS);
        self.check();
        if self.world.agrees() {
            assert_eq!(self.world.states(), [PeerState::Up; 2]);
        }
        for side in 0..2 {
            self.outstanding[side].clear();
            (0..8).for_each(|_| self.send(side));
        }
        self.world.deliver_all();
        self.check();
        for side in 0..2 {
            let left = self.outstanding[side].len();
            assert_eq!(left, 0, "frames of host {side} do not arrive after all is quiet");
        }
    }

    fn tell(&mut self, what: std::fmt::Arguments<'_>) {
        let at_ms = self.world.elapsed_ns / MS;
        let _ = writeln!(self.told, "{at_ms:>8} ms: {what}");
    }
}

/// Runs a seed; what happened, if an invariant did not hold.
fn failure(seed: u64) -> Option<String> {
    let mut simulation = Simulation::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    result.err().map(|_| simulation.told)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().filter(|it| !it.is_empty()).map(|it| it.parse().expect("a number"))
}

#[test]
fn whatever_a_seed_does_the_invariants_hold() {
    if let Some(seed) = number("SEED") {
        let told = failure(seed);
        assert!(told.is_none(), "seed {seed}:\n{}", told.unwrap_or_default());
        return;
    }
    let count = number("SEEDS").unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let failed = std::thread::scope(|scope| {
        let run =
            |first| (first..count).step_by(threads as usize).find(|it| failure(*it).is_some());
        let handles: Vec<_> = (0..threads).map(|it| scope.spawn(move || run(it))).collect();
        handles.into_iter().filter_map(|it| it.join().expect("caught above")).min()
    });
    if let Some(seed) = failed {
        let told = failure(seed).unwrap_or_default();
        panic!("seed {seed} (`make simulate SEED={seed}` runs it alone):\n{told}");
    }
    eprintln!("{count} seeds of {STEPS} steps: every invariant held");
}
