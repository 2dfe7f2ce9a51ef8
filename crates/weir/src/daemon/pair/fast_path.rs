//! The fast path of one pair, between the engine, which knows the flows, and the kernel, which
//! carries them.
//!
//! ```text
//!   engine --Command--> kernel's table     kernel's slots, events --fold, notice--> engine
//!   kernel's heads of carried frames --take_heads--> evidence
//!   kernel: frames let up --admitted--> gateway: all arrived, all sent, none in a queue
//!   kernel: a flow's latest frame is among these <--departed-- gateway
//! ```
//!
//! A flow changes to the fast path at a frame before which all of its frames have left: the kernel
//! numbers what it lets up, the gateway says up to which number everything is gone, and no time is
//! assumed. When that moment does not come by itself, because a sender keeps the ring filled, the
//! worker holds the other direction back for a few milliseconds: a sender that hears nothing stops.
//! Back to the slow path goes everything at once (another policy, a gateway that hung): first all
//! slots are void, then every processor is made to finish what it carries, and only then the rings
//! are read again. docs/adr/0009 has the argument.

use std::time::Duration;

use anyhow::{Result, bail};
use weir_engine::fastpath::{self, Clocks, Command, FastPath as Table};
use weir_engine::pipeline::Engine;
use weir_engine::policy::Policy;
use weir_engine::verdict::Side;
use weir_port::fastpath::{now_ns, on_every_processor};
use weir_port::{FastPath, FastPathOptions, Guard, GuardMode};
use weir_store::clock;
use weir_wire::fastpath::NONE;
use weir_wire::frame::Time;

use crate::api::dto::FastPathSnapshot;
use crate::config::settings::{Driver, FastPathMode, Limits, Pair};
use crate::daemon::control::openvpn;
use crate::daemon::pair::gate::SharedGate;
use crate::daemon::pair::kernel_esp::KernelEsp;
use crate::daemon::pair::relay::Relay;
use weir_store::entropy::seed;

/// How soon a flow that waits to change over is looked at again when no frame wakes the worker.
const SETTLE_NAP: Duration = Duration::from_micros(200);
/// What a NIC's own queues are given to send what was carried before the rings are read again.
const RETURN: Duration = Duration::from_millis(2);
/// System calls on each processor before that: each works off up to 300 frames that wait there,
/// and the kernel lets 1000 wait (net.core.netdev_max_backlog).
const FLUSHES: usize = 8;
/// Commands carried out in one round: each is a system call.
const COMMANDS_PER_ROUND: usize = 64;
/// Slots read in one tick.
const SLOTS_PER_TICK: usize = 2048;
/// Slots read between two rounds, for what is published.
const SLOTS_PER_SLICE: usize = 512;
/// Events taken in one round.
const EVENTS_PER_ROUND: usize = 256;
/// Heads of carried frames taken in one round, and how long they wait at most: a tenth of their
/// room is full by then at a million frames a second.
const HEADS_PER_ROUND: usize = 512;
const HEADS_NAP: Duration = Duration::from_millis(2);
/// A flow that waits for longer than this to change over has the other direction held back.
const PATIENCE_NS: u64 = 200_000_000;
/// For how long, at most, and how often.
const HOLD_NS_MAX: u64 = 5_000_000;
const HOLD_EVERY_NS: u64 = 1_000_000_000;
const HOLD_NAP: Duration = Duration::from_micros(100);

/// The kernel's side of a pair's fast path, and what it is waiting for.
pub struct FastPathControl {
    kernel: FastPath,
    /// Raised whenever all slots become void; zero: nothing is carried.
    generation: u32,
    is_open: bool,
    /// Whether somebody beside the engine wants every packet whole.
    is_watched: bool,
    /// Whether the evidence gets the heads of what is carried.
    keeps_heads: bool,
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
    /// When one began to wait, or when all could last change over.
    since_ns: u64,
    /// What the kernel was told last: so many frames have left.
    departed: u64,
}

/// How a pair begins.
pub struct Begun {
    /// Its guard.
    pub guard: Guard,
    /// Its fast path, if it may have one: each worker's part.
    pub fast_paths: Vec<FastPathControl>,
    /// Why it has none.
    pub why_not: Option<String>,
    /// What drops frames before the ports' sockets receive them.
    pub gate: Option<SharedGate>,
}

/// Shuts the ports of a pair of which the kernel does some peers' ESP, or daemons end tunnels, and
/// the interfaces that those packets come and go by.
///
/// # Errors
/// The guard cannot be attached.
pub fn begin_with_interfaces(pair: &Pair, kernel: Option<&KernelEsp>) -> Result<Begun> {
    let mut interfaces = kernel.map(KernelEsp::interfaces).unwrap_or_default();
    interfaces.extend(openvpn::devices(pair));
    let has_nic_esp = kernel.is_some_and(KernelEsp::has_nic_esp);
    let mut guard = Guard::attach_with_xfrm(&pair.host, &pair.wire, &interfaces, has_nic_esp)?;
    let gate = gate(&mut guard, pair)?;
    let why_not = Some("this pair seals".to_owned());
    Ok(Begun { guard, fast_paths: Vec::new(), why_not, gate })
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
        let mut guard = Guard::attach(&pair.host, &pair.wire, mode)?;
        let gate = gate(&mut guard, pair)?;
        Ok(Begun { guard, fast_paths: Vec::new(), why_not: Some(why_not), gate })
    };
    if let Some(why_not) = why_not {
        return without(why_not);
    }
    let options = FastPathOptions {
        flows_max: limits.fast_flows,
        workers: pair.workers,
        opcode_words: fastpath::opcode_words(),
    };
    match Guard::attach_with_fast_path(&pair.host, &pair.wire, mode, &options) {
        Ok((mut guard, parts)) => {
            let gate = gate(&mut guard, pair)?;
            let fast_paths = parts.into_iter().map(FastPathControl::new).collect();
            Ok(Begun { guard, fast_paths, why_not: None, gate })
        }
        Err(error) if pair.fastpath == FastPathMode::Tc => bail!(error),
        Err(error) => {
            tracing::warn!(pair = pair.name, %error, "no fast path: every packet takes the slow");
            without(error.to_string())
        }
    }
}

/// The guard's gate, as the pair's ports want it.
fn gate(guard: &mut Guard, pair: &Pair) -> Result<Option<SharedGate>> {
    let gate = match pair.driver {
        Driver::Packet => guard.take_gate(),
        Driver::Xdp => guard.take_gate_for_xdp()?,
    };
    Ok(match gate {
        Some(gate) => Some(SharedGate::new(gate, seed()?)),
        None => None,
    })
}

impl FastPathControl {
    fn new(kernel: FastPath) -> Self {
        Self {
            kernel,
            generation: 0,
            is_open: false,
            is_watched: false,
            keeps_heads: false,
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

    /// Whether it knows that somebody wants every packet whole.
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Takes note what bystanders want: of an evidence ring, heads of what is carried; where one
    /// wants packets whole, or a mirror does, nothing is carried.
    pub fn set_watched(&mut self, relay: &mut Relay) {
        let is_watched = relay.bystanders().want_whole_packets();
        self.keeps_heads = relay.bystanders().evidence.is_some();
        self.kernel.want_heads(self.keeps_heads);
        if !self.keeps_heads {
            // They are nobody's, and not of evidence that is switched on later.
            self.kernel.take_heads(usize::MAX, |_| ());
        }
        if std::mem::replace(&mut self.is_watched, is_watched) != is_watched {
            let policy = relay.engine().policy().clone();
            self.close(relay);
            self.open(&policy);
        }
    }

    /// Has all flows take the slow path, in order: nothing that came later leaves before what the
    /// kernel carries. Their counts are folded.
    pub fn close(&mut self, relay: &mut Relay) {
        if !self.is_open {
            return;
        }
        self.kernel.set_epoch(0);
        let begun_ns = now_ns();
        // The first time each finishes what it began to carry; that may then wait on another one.
        for flushes in [0, FLUSHES] {
            on_every_processor(|| {
                for _ in 0..flushes {
                    let _flushed = relay.arrived_frames(Side::Host);
                }
            });
        }
        std::thread::sleep(RETURN);
        tracing::debug!(held_us = (now_ns() - begun_ns) / 1000, "all flows left the fast path");
        while self.take_heads(relay) == HEADS_PER_ROUND {}
        let engine = relay.engine();
        self.fold_all(engine);
        engine.void_fast_path();
        self.sides.iter_mut().for_each(|side| side.is_wanted = false);
        self.is_open = false;
        self.voided += 1;
    }

    /// What is due before the rings are read: a gateway that came to a halt may have had its flows
    /// sent up meanwhile, and what the kernel carried before must leave first.
    pub fn before_round(&mut self, relay: &mut Relay) {
        let policy = relay.engine().policy();
        if self.is_open != (fastpath::allows(policy) && !self.is_watched) {
            // The first block came, or the last one went.
            let policy = policy.clone();
            self.close(relay);
            self.open(&policy);
        }
        if self.is_open && self.kernel.is_late() {
            tracing::warn!("the gateway came to a halt; the fast path begins anew");
            let policy = relay.engine().policy().clone();
            self.close(relay);
            self.open(&policy);
        }
    }

    /// What is due after every round of the relay.
    pub fn after_round(&mut self, relay: &mut Relay) {
        self.take_heads(relay);
        self.take_events(relay.engine());
        self.carry_out(relay.engine());
        for side in [Side::Host, Side::Wire] {
            if self.sides[side as usize].is_wanted {
                self.settle(relay, side);
            }
        }
    }

    /// How long the worker may sleep.
    pub fn nap(&self, longest: Duration) -> Duration {
        let is_due = |(index, side): (usize, &Changeover)| {
            side.is_wanted && self.kernel.admitted(index) != side.departed
        };
        if self.sides.iter().enumerate().any(is_due) {
            return longest.min(SETTLE_NAP);
        }
        // Heads of other workers' flows come here, too.
        let may_carry = self.is_open && self.kernel.has_heads();
        if self.keeps_heads && may_carry { longest.min(HEADS_NAP) } else { longest }
    }

    /// What is due ten times a second: the lease, the counts, flows that wait for too long.
    ///
    /// # Errors
    /// A port is lost.
    pub fn tick(&mut self, relay: &mut Relay) -> Result<()> {
        if self.is_open && !self.kernel.heartbeat() {
            self.before_round(relay);
        }
        let engine = relay.engine();
        self.renew_numbers(engine);
        let waits = self.fold_next(engine, SLOTS_PER_TICK);
        self.fold_opcodes(engine);
        // Those that were idle end before they can go on.
        self.carry_out(engine);
        self.note_waiting(waits);
        self.hold_back(relay)
    }

    /// Flows that the kernel may carry.
    pub fn carried(&self) -> usize {
        self.numbers.len()
    }

    /// Takes in what the kernel counted of some flows, and goes on there the next time; of how
    /// many.
    pub fn fold_some(&mut self, engine: &mut Engine) -> usize {
        self.take_events(engine);
        self.renew_numbers(engine);
        // Whoever waits is noted by the tick.
        self.fold_next(engine, SLOTS_PER_SLICE);
        self.fold_opcodes(engine);
        self.numbers.len().min(SLOTS_PER_SLICE)
    }

    /// Takes in all that the kernel counted.
    fn fold_all(&mut self, engine: &mut Engine) {
        self.take_events(engine);
        self.renew_numbers(engine);
        self.fold_next(engine, usize::MAX);
        self.fold_opcodes(engine);
    }

    fn renew_numbers(&mut self, engine: &mut Engine) {
        self.numbers.clear();
        let numbers = engine.fast_path().map(|table| table.numbers());
        self.numbers.extend(numbers.into_iter().flatten());
    }

    /// Takes in at most `count` slots; on which sides flows wait.
    fn fold_next(&mut self, engine: &mut Engine, count: usize) -> [bool; 2] {
        let count = self.numbers.len().min(count);
        let (mut waits, mut first) = ([false; 2], self.next_slot);
        if first >= self.numbers.len() {
            first = 0;
        }
        for at in 0..count {
            let number = self.numbers[(first + at) % self.numbers.len()];
            self.fold(engine, number, &mut waits);
        }
        self.next_slot = first + count;
        waits
    }

    /// What `weir status` shows.
    pub fn snapshot(&self, engine: &mut Engine, setting: FastPathMode) -> FastPathSnapshot {
        let events_lost = self.kernel.events_lost();
        let state = match (self.is_open, engine.policy().seals()) {
            (true, _) => "open".to_owned(),
            _ if self.is_watched => {
                "shut: a mirror, or evidence of whole packets, wants every packet".to_owned()
            }
            (false, true) => "shut: the policy seals".to_owned(),
            _ if engine.policy().stops_anybody() => "shut: somebody is blocked".to_owned(),
            _ if engine.policy().rules.is_some() => {
                "shut: rules look at every packet, or leave somebody alone".to_owned()
            }
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
            heads_lost: self.kernel.heads_lost(),
            voided: self.voided,
            holds: self.holds,
            ..FastPathSnapshot::default()
        }
    }

    fn fold(&mut self, engine: &mut Engine, number: u32, waits: &mut [bool; 2]) {
        let clocks = Clocks { now: clock::time(), monotonic_ns: now_ns() };
        let slot = self.kernel.take(number);
        let folded = engine.fold(number, &slot, clocks);
        if let Some(bytes) = folded.path_mtu {
            self.kernel.set_path_mtu(number, bytes);
        }
        let Some(side) = folded.side else { return };
        let has_begun = slot.epoch == self.generation && slot.last_admitted != NONE;
        waits[side as usize] |= has_begun
            && slot.is_fast == 0
            && slot.last_admitted > self.sides[side as usize].departed;
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
            engine.notice(&event, Clocks { now: clock::time(), monotonic_ns: now_ns() });
        }
    }

    /// Hands the heads that wait to the evidence; how many.
    fn take_heads(&mut self, relay: &mut Relay) -> usize {
        if !self.keeps_heads || !self.is_open {
            return 0;
        }
        let (now, monotonic_ns) = (clock::time(), now_ns());
        self.kernel.take_heads(HEADS_PER_ROUND, |head| {
            let age_ns = monotonic_ns.saturating_sub(head.now_ns);
            relay.bystanders().carried(Time(now.0.saturating_sub(age_ns)), head);
        })
    }

    fn carry_out(&mut self, engine: &mut Engine) {
        let Some(table) = engine.fast_path() else { return };
        for _ in 0..COMMANDS_PER_ROUND {
            let Some(command) = table.next_command() else { return };
            match command {
                Command::Install(install) => {
                    let (key, number) = (install.key, install.number);
                    let slot = install.slot(self.generation);
                    if let Err(error) = self.kernel.insert(&key, number, &slot) {
                        tracing::debug!(%error, "a flow stays on the slow path");
                        table.refuse(number);
                        continue;
                    }
                    table.installed(number, now_ns());
                    self.sides[usize::from(key.side & 1)].wait();
                }
                Command::Remove { key, number } => match self.kernel.remove(&key) {
                    Ok(()) => table.removed(number, now_ns()),
                    // Its slot stays what it is, and is counted.
                    Err(error) => {
                        tracing::warn!(%error, "a flow cannot be taken off the fast path");
                    }
                },
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

    /// Lets the flows of `side` change over if of all frames that it ever received none is on its
    /// way any more; whether so.
    fn settle(&mut self, relay: &mut Relay, side: Side) -> bool {
        let (index, out) = match side {
            Side::Host => (0, Side::Wire),
            Side::Wire => (1, Side::Host),
        };
        if self.kernel.admitted(index) != self.sides[index].departed {
            let Some(arrived) = relay.arrived_frames(side) else { return false };
            // Read after what arrived: when they are equal nothing was in between.
            let is_here = self.kernel.admitted(index) == arrived;
            if !is_here || relay.unsent_bytes(out) != Some(0) {
                return false;
            }
            self.sides[index].departed = arrived;
            self.kernel.set_departed(index, arrived);
        }
        self.sides[index].since_ns = now_ns();
        true
    }

    /// Lets the flows of one side change over that have waited for too long: reads that side alone
    /// until nothing of it is on its way.
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
        loop {
            relay.half_round(side)?;
            if self.settle(relay, side) || now_ns().saturating_sub(begun) >= HOLD_NS_MAX {
                break;
            }
            relay.wait_for(side, HOLD_NAP)?;
        }
        // The other side next time, if it waits too.
        self.sides[late].since_ns = now_ns();
        Ok(())
    }
}

impl Changeover {
    fn wait(&mut self) {
        if !self.is_wanted {
            *self = Self { is_wanted: true, since_ns: now_ns(), ..*self };
        }
    }
}
