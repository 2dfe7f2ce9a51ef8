//! The gate of one pair, between the engine, which knows who is blocked and what a flood is, and
//! the kernel, which drops it before it is received (docs/adr/0130).
//!
//! ```text
//!   Blocks (shared lists) ---changes---> kernel's tries       worker 0
//!   engine --take_floods--> kernel's table of floods          each worker its own
//!   kernel's counts --> the blocks', the rules', the sides' counters
//! ```
//!
//! All of it is done by the worker's tick, ten times a second. What the gate does not drop yet is
//! dropped at the joint, for the same reason.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_detect::Flood;
use weir_engine::pipeline::Engine;
use weir_engine::plain::{Block, Blocks};
use weir_engine::policy::Prefix;
use weir_engine::verdict::{DropReason, Side};
use weir_port::gate::TUNNEL_PORTS_MAX;
use weir_port::{Gate, GateCount, GateDrops, GateFlood, GatePrefix, GateTerms, GuardError};
use weir_wire::frame::Time;

/// Entries of the kernel's tries that are changed in one tick; each is a system call.
const CHANGES_PER_TICK: usize = 512;
/// Blocks whose counts are read in one tick.
const COUNTS_PER_TICK: usize = 256;

/// A pair's gate, for all of its workers.
#[derive(Clone, Debug)]
pub struct SharedGate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    gate: Gate,
    terms: GateTerms,
    floods: usize,
    blocks: usize,
    allowed: usize,
    /// What the kernel was told last.
    told: Option<(GateTerms, [bool; 3])>,
}

/// One worker's part in it.
#[derive(Debug)]
pub struct GateWatch {
    shared: SharedGate,
    floods: Vec<Held>,
    /// Worker 0's.
    lists: Option<Lists>,
}

#[derive(Debug)]
struct Held {
    flood: Flood,
    in_kernel: GateFlood,
    /// Frames that were told the engine.
    told: u64,
}

/// What the kernel's tries hold, and what is to change of it.
#[derive(Debug, Default)]
struct Lists {
    generation: Option<u64>,
    /// Tells who changed the lists that they are in force.
    follower: Option<Arc<AtomicU64>>,
    blocks: Vec<InstalledBlock>,
    allowed: Vec<GatePrefix>,
    changes: VecDeque<Change>,
    next: usize,
    told: [GateDrops; 2],
}

#[derive(Debug)]
struct InstalledBlock {
    prefix: GatePrefix,
    block: Arc<Block>,
    told: GateCount,
}

#[derive(Debug)]
enum Change {
    Block(Arc<Block>),
    Unblock(GatePrefix),
    Allow(GatePrefix),
    Disallow(GatePrefix),
}

impl SharedGate {
    /// A gate that drops nothing yet. `seed` keys what it remembers.
    pub fn new(gate: Gate, seed: u128) -> Self {
        let terms = GateTerms { seed: seed as u64, ..GateTerms::default() };
        let state = State { gate, terms, floods: 0, blocks: 0, allowed: 0, told: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Has the filter stand before a port's socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn filter(&self, port: &weir_port::PacketPort) -> std::io::Result<()> {
        port.filter_by(&self.lock().gate)
    }

    /// Opens a port of AF_XDP behind it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<T, E>(&self, open: impl FnOnce(&mut Gate) -> Result<T, E>) -> Result<T, E> {
        open(&mut self.lock().gate)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells the kernel what there is to do, where that changed.
    fn tell(&mut self) -> Result<(), GuardError> {
        let has = [self.blocks > 0, self.allowed > 0, self.floods > 0];
        if self.told != Some((self.terms, has)) {
            self.gate.set(&self.terms, has[0], has[1], has[2])?;
            self.told = Some((self.terms, has));
        }
        Ok(())
    }
}

impl GateWatch {
    /// The part of worker `number`.
    pub fn new(shared: SharedGate, number: usize) -> Self {
        let lists = (number == 0).then(Lists::default);
        Self { shared, floods: Vec::new(), lists }
    }

    /// Ten times a second: tells the kernel what to drop, and the engine what was.
    pub fn tick(&mut self, engine: &mut Engine, now: Time) {
        if let Err(error) = self.try_tick(engine, now) {
            tracing::warn!(%error, "the gate: what it does not drop is dropped behind it");
        }
    }

    fn try_tick(&mut self, engine: &mut Engine, now: Time) -> Result<(), GuardError> {
        let Self { shared, floods, lists } = self;
        let mut state = shared.lock();
        if let Some(lists) = lists {
            state.terms.learns = engine.asks_for_answers();
            state.terms.tunnel_ports = tunnel_ports(engine);
            lists.renew(engine.policy().blocks.as_deref());
            lists.carry_out(&mut state, now)?;
            lists.count(&state.gate, engine)?;
        }
        follow_floods(&mut state, floods, engine, now)?;
        state.tell()?;
        if let Some(lists) = lists {
            lists.tell_in_force();
        }
        Ok(())
    }
}

/// UDP ports whose datagrams are the gateway's own, whoever sends them.
fn tunnel_ports(engine: &Engine) -> [u16; TUNNEL_PORTS_MAX] {
    let mut ports = [0; TUNNEL_PORTS_MAX];
    ports[0] = engine.policy().keying_port.unwrap_or_default();
    ports
}

/// Counts what was dropped of the floods at hand, lets those pass that are over, and takes on new
/// ones.
fn follow_floods(
    state: &mut State,
    floods: &mut Vec<Held>,
    engine: &mut Engine,
    now: Time,
) -> Result<(), GuardError> {
    let mut at = 0;
    while let Some(held) = floods.get_mut(at) {
        let frames = state.gate.stopped(&held.in_kernel)?.frames;
        let more = frames.saturating_sub(std::mem::replace(&mut held.told, frames));
        if engine.flood_goes_on(now, &held.flood, more) {
            at += 1;
            continue;
        }
        // What cannot be released now is tried again with the next tick.
        state.gate.let_flood_pass(&held.in_kernel)?;
        floods.swap_remove(at);
        state.floods -= 1;
    }
    let mut wanted = Vec::new();
    engine.take_floods(&mut |flood| wanted.push(flood));
    for flood in wanted {
        let in_kernel = GateFlood {
            network: flood.network,
            bits: flood.bits,
            talker: flood.talker,
            kind: flood.kind as u8,
            by_destination: flood.by_destination,
            trickle: flood.trickle(),
        };
        match state.gate.stop_flood(&in_kernel) {
            Ok(true) => {
                state.floods += 1;
                floods.push(Held { flood, in_kernel, told: 0 });
            }
            // Another worker has it, or there is no room.
            Ok(false) => engine.release_flood(&flood),
            Err(error) => {
                tracing::debug!(%error, "a flood is dropped at the joint");
                engine.release_flood(&flood);
            }
        }
    }
    Ok(())
}

impl Lists {
    /// Notes what is to change, if the lists did.
    fn renew(&mut self, blocks: Option<&Blocks>) {
        let generation = blocks.map_or(0, Blocks::generation);
        if self.follower.is_none() {
            self.follower = blocks.map(Blocks::follow);
        }
        if self.generation == Some(generation) || !self.changes.is_empty() {
            return;
        }
        self.generation = Some(generation);
        let (mut blocked, allowed) = blocks.map(Blocks::lists).unwrap_or_default();
        blocked.retain(|it| !spares_v4_within(&it.prefix));
        blocked.sort_by_key(|it| gate_prefix(&it.prefix));
        let find = |prefix: &GatePrefix| {
            let at = blocked.binary_search_by_key(prefix, |it| gate_prefix(&it.prefix));
            at.ok().map(|at| &blocked[at])
        };
        let stays = |kept: &InstalledBlock| {
            find(&kept.prefix).is_some_and(|it| Arc::ptr_eq(it, &kept.block))
        };
        for kept in self.blocks.iter().filter(|it| !stays(it)) {
            self.changes.push_back(Change::Unblock(kept.prefix));
        }
        let mut known: Vec<_> =
            self.blocks.iter().filter(|it| stays(it)).map(|it| it.prefix).collect();
        known.sort_unstable();
        for block in &blocked {
            if known.binary_search(&gate_prefix(&block.prefix)).is_err() {
                self.changes.push_back(Change::Block(Arc::clone(block)));
            }
        }
        let mut wanted: Vec<_> = allowed.iter().map(gate_prefix).collect();
        wanted.sort_unstable();
        let gone = self.allowed.iter().filter(|it| wanted.binary_search(it).is_err());
        self.changes.extend(gone.map(|it| Change::Disallow(*it)));
        let is_new = |it: &&GatePrefix| !self.allowed.contains(it);
        // Who is allowed is let through before anybody is blocked.
        for prefix in wanted.iter().filter(is_new) {
            self.changes.push_front(Change::Allow(*prefix));
        }
    }

    /// Says which change is in force, once all of it is.
    fn tell_in_force(&self) {
        if let (Some(follower), Some(generation), true) =
            (&self.follower, self.generation, self.changes.is_empty())
        {
            follower.store(generation, Ordering::Release);
        }
    }

    /// Carries out some of what is to change.
    fn carry_out(&mut self, state: &mut State, now: Time) -> Result<(), GuardError> {
        for _ in 0..CHANGES_PER_TICK {
            let Some(change) = self.changes.pop_front() else { break };
            match change {
                Change::Block(block) => {
                    let prefix = gate_prefix(&block.prefix);
                    state.gate.block(prefix, block.until.map(|until| until.since_ns(now)))?;
                    self.blocks.push(InstalledBlock { prefix, block, told: GateCount::default() });
                }
                Change::Unblock(prefix) => {
                    let count = state.gate.unblock(prefix)?;
                    let at = self.blocks.iter().position(|it| it.prefix == prefix);
                    if let Some(at) = at {
                        self.blocks.swap_remove(at).tell(count);
                    }
                }
                Change::Allow(prefix) => {
                    state.gate.allow(prefix)?;
                    self.allowed.push(prefix);
                }
                Change::Disallow(prefix) => {
                    state.gate.disallow(prefix)?;
                    self.allowed.retain(|it| *it != prefix);
                }
            }
        }
        (state.blocks, state.allowed) = (self.blocks.len(), self.allowed.len());
        Ok(())
    }

    /// Adds what was dropped to the sides' counters, and to some of the blocks'.
    fn count(&mut self, gate: &Gate, engine: &mut Engine) -> Result<(), GuardError> {
        for _ in 0..self.blocks.len().min(COUNTS_PER_TICK) {
            self.next = (self.next + 1) % self.blocks.len();
            let kept = &mut self.blocks[self.next];
            kept.tell(gate.blocked_by(kept.prefix)?);
        }
        let now = gate.drops()?;
        let before = std::mem::replace(&mut self.told, now);
        for (side, place) in [(Side::Host, 0), (Side::Wire, 1)] {
            let (now, before) = (now[place], before[place]);
            for (reason, now, before) in [
                (DropReason::Blocked, now.blocked, before.blocked),
                (DropReason::Rule, now.floods, before.floods),
            ] {
                let frames = now.frames.saturating_sub(before.frames);
                engine.note_early_drops(side, reason, frames, now.bytes - before.bytes);
            }
        }
        Ok(())
    }
}

impl InstalledBlock {
    fn tell(&mut self, now: GateCount) {
        let before = std::mem::replace(&mut self.told, now);
        let more = |now: u64, before: u64| now.saturating_sub(before);
        self.block.add(more(now.frames, before.frames), more(now.bytes, before.bytes));
    }
}

/// Whether it holds IPv6 addresses around those that stand for IPv4's, and not these: the kernel's
/// tries cannot say that, and the joint does.
fn spares_v4_within(prefix: &Prefix) -> bool {
    const MAPPED: u128 = 0xffff << 32;
    const MAPPED_BITS: u32 = 96;
    let bits = prefix.prefix_len();
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    bits <= MAPPED_BITS
        && MAPPED & mask == prefix.first()
        && !prefix.contains(&MAPPED.to_be_bytes())
}

fn gate_prefix(prefix: &Prefix) -> GatePrefix {
    GatePrefix { address: prefix.first().to_be_bytes(), bits: prefix.prefix_len() }
}
