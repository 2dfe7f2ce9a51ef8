//! The fast path of one pair, between the engine, which knows the flows, and the kernel, which
//! carries them.
//!
//! ```text
//!   engine --Command--> kernel's table     kernel's slots, events --fold, notice--> engine
//!   relay: a ring was empty --quiet--> kernel: what waited there has left, flows may change over
//! ```
//!
//! A flow changes to the fast path at a frame before which all of its frames have left this
//! process: the worker says when its rings were empty, and the kernel compares. When that does not
//! come by itself, because a sender keeps the ring filled, the worker holds the other direction
//! back for a few milliseconds: a sender that hears nothing stops. Back to the slow path goes
//! everything at once (another policy, a gateway that hung): first all slots are void, then what
//! the kernel still has on its way is waited for, and only then the rings are read again.

use std::time::Duration;

use anyhow::{Result, bail};
use weir_engine::fastpath::{self, Clocks, Command, FastPath as Table};
use weir_engine::pipeline::Engine;
use weir_engine::policy::Policy;
use weir_engine::verdict::Side;
use weir_port::fastpath::now_ns;
use weir_port::{FastPath, FastPathOptions, Guard, GuardMode};
use weir_wire::fastpath::Slot;

use super::relay::{Moved, Relay};
use super::worker::clock;
use crate::api::dto::FastPathSnapshot;
use crate::config::settings::{Driver, FastPathMode, Limits, Pair};

/// From the filter's decision until a frame can be seen in the ring: a copy, and interrupts.
const ARRIVAL_NS: u64 = 100_000;
/// From a send until the frame has left the kernel's queues on this machine.
const DEPARTURE_NS: u64 = 200_000;
/// How long what the kernel carries is waited for before the rings are read again.
const RETURN: Duration = Duration::from_millis(2);
/// Commands carried out in one round: each is a system call.
const COMMANDS_PER_ROUND: usize = 64;
/// Slots read in one tick.
const SLOTS_PER_TICK: usize = 2048;
/// Events taken in one round.
const EVENTS_PER_ROUND: usize = 256;
/// A flow that waits for longer than this to change over has the other direction held back.
const PATIENCE_NS: u64 = 200_000_000;
/// For how long, at most, and how often.
const HOLD_NS_MAX: u64 = 5_000_000;
const HOLD_EVERY_NS: u64 = 1_000_000_000;
const HOLD_NAP: Duration = Duration::from_micros(100);

/// The kernel's side of a pair's fast path, and what it is waiting for.
pub struct Carrier {
    kernel: FastPath,
    /// Raised whenever all slots become void; zero: nothing is carried.
    generation: u32,
    is_open: bool,
    /// Whether somebody beside the engine wants every packet.
    is_watched: bool,
    sides: [Changeover; 2],
    opcodes: [u64; 256],
    /// Where the next tick goes on reading slots.
    next_slot: usize,
    numbers: Vec<u32>,
    held_ns: u64,
    voided: u64,
    holds: u64,
}

/// What one side needs to change flows over.
#[derive(Clone, Copy, Debug, Default)]
struct Changeover {
    /// Whether a flow waits for it.
    is_wanted: bool,
    /// When the oldest began to wait.
    since_ns: u64,
    /// Nothing received before the first was left at the second.
    emptied: Option<(u64, u64)>,
    /// What the kernel was told last.
    quiet_ns: u64,
}

/// How a pair begins.
pub struct Begun {
    /// Its guard.
    pub guard: Guard,
    /// Its fast path, if it may have one.
    pub carrier: Option<Carrier>,
    /// Why it has none.
    pub why_not: Option<String>,
}

/// Shuts the pair's ports for everybody else, with a fast path between them if the configuration
/// asks for one.
///
/// # Errors
/// The guard cannot be attached, or `fastpath = "tc"` cannot be had.
pub fn begin(pair: &Pair, limits: &Limits, mode: GuardMode) -> Result<Begun> {
    let why_not = match (pair.fastpath, pair.driver) {
        (FastPathMode::Off, _) => Some("switched off".to_owned()),
        (_, Driver::Xdp) => Some("driver = \"xdp\" takes all frames before tc".to_owned()),
        (_, Driver::Packet) => None,
    };
    let without = |why_not: String| -> Result<Begun> {
        let guard = Guard::attach(&pair.host, &pair.wire, mode)?;
        Ok(Begun { guard, carrier: None, why_not: Some(why_not) })
    };
    if let Some(why_not) = why_not {
        return without(why_not);
    }
    let options =
        FastPathOptions { flows_max: limits.fast_flows, opcode_words: fastpath::opcode_words() };
    match Guard::attach_with_fast_path(&pair.host, &pair.wire, mode, &options) {
        Ok((guard, kernel)) => {
            Ok(Begun { guard, carrier: Some(Carrier::new(kernel)), why_not: None })
        }
        Err(error) if pair.fastpath == FastPathMode::Tc => bail!(error),
        Err(error) => {
            tracing::warn!(pair = pair.name, %error, "no fast path: every packet takes the slow");
            without(error.to_string())
        }
    }
}

impl Carrier {
    fn new(kernel: FastPath) -> Self {
        Self {
            kernel,
            generation: 0,
            is_open: false,
            is_watched: false,
            sides: [Changeover::default(); 2],
            opcodes: [0; 256],
            next_slot: 0,
            numbers: Vec::new(),
            held_ns: 0,
            voided: 0,
            holds: 0,
        }
    }

    /// The kernel's part, for the ports' filters.
    pub fn kernel(&self) -> &FastPath {
        &self.kernel
    }

    /// A table for the engine of this pair.
    pub fn table(&self, seed: u128) -> Table {
        Table::new(self.kernel.flows_max(), seed)
    }

    /// Lets flows be carried, if `policy` has any that may be.
    pub fn open(&mut self, policy: &Policy) {
        self.is_open = fastpath::allows(policy) && !self.is_watched;
        if self.is_open {
            self.generation = self.generation.wrapping_add(1).max(1);
            self.kernel.forget_heartbeat();
            let _first = self.kernel.heartbeat();
            self.kernel.set_epoch(self.generation);
        }
    }

    /// Takes note whether an evidence ring or a mirror wants every packet: then nothing is carried.
    pub fn set_watched(&mut self, relay: &mut Relay) {
        let is_watched = relay.bystanders().want_packets();
        if std::mem::replace(&mut self.is_watched, is_watched) != is_watched {
            let policy = relay.engine().policy().clone();
            self.close(relay.engine());
            self.open(&policy);
        }
    }

    /// Has all flows take the slow path, in order: nothing that came later leaves before what the
    /// kernel carries. Their counts are folded.
    pub fn close(&mut self, engine: &mut Engine) {
        if !self.is_open {
            return;
        }
        self.kernel.set_epoch(0);
        std::thread::sleep(RETURN);
        self.fold_all(engine);
        engine.void_fast_path();
        self.sides = [Changeover::default(); 2];
        self.is_open = false;
        self.voided += 1;
    }

    /// What is due after every round of the relay, begun at `begun_ns` when somebody waits.
    pub fn after_round(&mut self, engine: &mut Engine, moved: Moved, begun_ns: u64) {
        self.take_events(engine);
        self.carry_out(engine);
        if begun_ns == 0 {
            return;
        }
        let now = now_ns();
        for (index, moved) in [moved.host, moved.wire].into_iter().enumerate() {
            let side = &mut self.sides[index];
            if !side.is_wanted {
                continue;
            }
            match side.emptied {
                Some((before, at)) if now.saturating_sub(at) >= DEPARTURE_NS => {
                    side.quiet_ns = before.saturating_sub(ARRIVAL_NS);
                    self.kernel.set_quiet(index, side.quiet_ns);
                    side.emptied = None;
                }
                None if moved == 0 => side.emptied = Some((begun_ns, now)),
                _ => {}
            }
        }
    }

    /// When a round begins, if a flow waits to change over; else zero, which costs nothing.
    pub fn round_begins(&self) -> u64 {
        if self.sides.iter().any(|side| side.is_wanted) { now_ns() } else { 0 }
    }

    /// How long the worker may sleep.
    pub fn nap(&self, longest: Duration) -> Duration {
        let is_due = self.sides.iter().any(|side| side.is_wanted);
        if is_due { longest.min(Duration::from_nanos(DEPARTURE_NS)) } else { longest }
    }

    /// What is due ten times a second: the lease, the counts, flows that wait for too long.
    ///
    /// # Errors
    /// A port is lost.
    pub fn tick(&mut self, relay: &mut Relay) -> Result<()> {
        if self.is_open && !self.kernel.heartbeat() {
            tracing::warn!("the gateway came to a halt; the fast path begins anew");
            let policy = relay.engine().policy().clone();
            self.close(relay.engine());
            self.open(&policy);
        }
        let engine = relay.engine();
        self.numbers.clear();
        let numbers = engine.fast_path().map(|table| table.numbers());
        self.numbers.extend(numbers.into_iter().flatten());
        let count = self.numbers.len().min(SLOTS_PER_TICK);
        let (mut waits, mut first) = ([false; 2], self.next_slot);
        if first >= self.numbers.len() {
            first = 0;
        }
        for at in 0..count {
            let number = self.numbers[(first + at) % self.numbers.len()];
            self.fold(engine, number, &mut waits);
        }
        self.next_slot = first + count;
        self.fold_opcodes(engine);
        self.note_waiting(waits);
        self.hold_back(relay)
    }

    /// Takes in all that the kernel counted.
    pub fn fold_all(&mut self, engine: &mut Engine) {
        self.take_events(engine);
        self.numbers.clear();
        let numbers = engine.fast_path().map(|table| table.numbers());
        self.numbers.extend(numbers.into_iter().flatten());
        let mut waits = [false; 2];
        for at in 0..self.numbers.len() {
            self.fold(engine, self.numbers[at], &mut waits);
        }
        self.fold_opcodes(engine);
    }

    /// What `weir status` shows.
    pub fn snapshot(&self, engine: &mut Engine, setting: FastPathMode) -> FastPathSnapshot {
        let events_lost = self.kernel.events_lost();
        let state = match (self.is_open, engine.policy().seals()) {
            (true, _) => "open".to_owned(),
            _ if self.is_watched => {
                "shut: the evidence ring or a mirror wants every packet".to_owned()
            }
            (false, true) => "shut: the policy seals".to_owned(),
            (false, false) => "shut: the policy drops what no peer protects".to_owned(),
        };
        let Some(table) = engine.fast_path() else { return FastPathSnapshot::default() };
        let counters = table.counters();
        FastPathSnapshot {
            setting: setting.name().to_owned(),
            state,
            flows: table.len() as u64,
            flows_max: self.kernel.flows_max().into(),
            installed: counters.installed,
            removed: counters.removed,
            refused_packets: counters.refused_packets,
            events: counters.events,
            events_lost,
            voided: self.voided,
            holds: self.holds,
            ..FastPathSnapshot::default()
        }
    }

    fn fold(&mut self, engine: &mut Engine, number: u32, waits: &mut [bool; 2]) {
        let clocks = Clocks { now: clock(), monotonic_ns: now_ns() };
        let slot = self.kernel.take(number);
        let folded = engine.fold(number, &slot, clocks);
        if let Some(bytes) = folded.path_mtu {
            self.kernel.set_path_mtu(number, bytes);
        }
        let Some(side) = folded.side else { return };
        let is_waiting = slot.epoch == self.generation && slot.is_fast == 0;
        waits[side as usize] |=
            is_waiting && slot.slow_last_ns >= self.sides[side as usize].quiet_ns;
    }

    fn fold_opcodes(&mut self, engine: &mut Engine) {
        let Ok(now) = self.kernel.opcode_packets() else { return };
        let since: [u64; 256] =
            std::array::from_fn(|byte| now[byte].wrapping_sub(self.opcodes[byte]));
        self.opcodes = now;
        engine.fold_opcodes(&since);
    }

    fn take_events(&mut self, engine: &mut Engine) {
        for _ in 0..EVENTS_PER_ROUND {
            let Some(event) = self.kernel.next_event() else { return };
            engine.notice(&event, Clocks { now: clock(), monotonic_ns: now_ns() });
        }
    }

    fn carry_out(&mut self, engine: &mut Engine) {
        let Some(table) = engine.fast_path() else { return };
        for _ in 0..COMMANDS_PER_ROUND {
            let Some(command) = table.next_command() else { return };
            match command {
                Command::Install { key, number, path_mtu, source_port } => {
                    let slot = Slot {
                        epoch: self.generation,
                        path_mtu: path_mtu.into(),
                        source_port: source_port.into(),
                        ..Slot::default()
                    };
                    if let Err(error) = self.kernel.insert(&key, number, &slot) {
                        tracing::debug!(%error, "a flow stays on the slow path");
                        table.refuse(number);
                        continue;
                    }
                    self.sides[usize::from(key.side & 1)].wait();
                }
                Command::Remove { key } => {
                    if let Err(error) = self.kernel.remove(&key) {
                        tracing::warn!(%error, "a flow cannot be taken off the fast path");
                    }
                }
            }
        }
    }

    fn note_waiting(&mut self, waits: [bool; 2]) {
        for (side, waits) in self.sides.iter_mut().zip(waits) {
            match waits {
                true => side.wait(),
                false => side.is_wanted = false,
            }
        }
    }

    /// Lets the flows of one side change over that have waited for too long: reads that side alone
    /// until it has been empty for long enough.
    fn hold_back(&mut self, relay: &mut Relay) -> Result<()> {
        let begun = now_ns();
        if begun.saturating_sub(self.held_ns) < HOLD_EVERY_NS {
            return Ok(());
        }
        let is_late = |side: &Changeover| {
            side.is_wanted && begun.saturating_sub(side.since_ns) >= PATIENCE_NS
        };
        let Some(late) = self.sides.iter().position(is_late) else { return Ok(()) };
        let side = if late == 0 { Side::Host } else { Side::Wire };
        (self.held_ns, self.holds) = (begun, self.holds + 1);
        let mut empty_since = None;
        loop {
            let before = now_ns();
            if relay.half_round(side)? > 0 {
                empty_since = None;
            } else {
                let since = *empty_since.get_or_insert(before);
                let now = now_ns();
                if now - since >= ARRIVAL_NS + DEPARTURE_NS {
                    self.sides[late].quiet_ns = now - ARRIVAL_NS - DEPARTURE_NS;
                    self.kernel.set_quiet(late, self.sides[late].quiet_ns);
                    break;
                }
                relay.wait_for(side, HOLD_NAP)?;
            }
            if before - begun >= HOLD_NS_MAX {
                break;
            }
        }
        // The other side next time, if it waits too.
        self.sides[late].since_ns = now_ns();
        Ok(())
    }
}

impl Changeover {
    fn wait(&mut self) {
        if !self.is_wanted {
            *self = Self { is_wanted: true, since_ns: now_ns(), emptied: None, ..*self };
        }
    }
}
