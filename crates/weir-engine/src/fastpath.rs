//! Which flows the kernel may carry, and what it counted of them.
//!
//! ```text
//!   slow path: packet passed as it is --consider--> Command::Install --> the kernel's table
//!   the kernel's slots --fold--> the meter's flows and conversations, the sides' counters
//!   the kernel's events --notice--> sequence numbers, path MTU; the verdict, looked at again
//!   idle, another policy, another verdict --> Command::Remove
//! ```
//!
//! A flow is one direction. It may be carried once its verdict is settled: passed as it is, under a
//! policy that seals nothing and passes what it does not know. What the kernel cannot know stays
//! unknown in the records and is said so: packets it carried count as unchecked (ICRC), and no
//! response is timed.

use std::collections::VecDeque;

use weir_detect::alert::End;
use weir_wire::bth::{Extension, Opcode, Operation, Position, Service};
use weir_wire::fastpath::kind::PORTS;
use weir_wire::fastpath::{Key, STARTED, Slot, is_slow, opcode_flag};
use weir_wire::frame::{Frame, Time};
use weir_wire::parse::Parsed;

use crate::counters::Counters;
use crate::flow::index::Index;
use crate::flow::{FlowDirection, FlowKey, HashSeed};
use crate::meter::{Fold, Meter, Observed};
use crate::policy::{Action, Policy};
use crate::rdma::{OperationClass, QueuePairKey};
use crate::verdict::Side;

/// Packets of a direction that take the slow path before the kernel is asked to carry it: most
/// flows are shorter, and those behind them know their partner.
const SETTLED_PACKETS: u64 = 8;
/// The same for a connected queue pair whose other direction was never seen.
const SETTLED_PACKETS_ALONE: u64 = 1024;
/// A slot is not used again before this: the kernel may still be counting its last packet.
const RETIRE_NS: u64 = 200_000_000;
/// A direction that was silent for so long makes room for others.
const IDLE_NS: u64 = 5_000_000_000;

/// What the kernel's table is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Carry a flow.
    Install(Install),
    /// Carry `key` no longer.
    Remove {
        /// Which flow.
        key: Key,
        /// The slot that it is counted in.
        number: u32,
    },
}

/// A flow to carry, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// Which flow.
    pub key: Key,
    /// The slot to count it in.
    pub number: u32,
    path_mtu: u16,
    source_port: u16,
    request_next: u32,
    response_next: u32,
}

impl Install {
    /// The slot at its beginning, under the policy of `epoch`.
    pub fn slot(&self, epoch: u32) -> Slot {
        Slot {
            epoch,
            path_mtu: self.path_mtu.into(),
            source_port: self.source_port.into(),
            request_next: self.request_next,
            response_next: self.response_next,
            ..Slot::default()
        }
    }
}

/// Both clocks at one moment: frames and records know the one, the kernel's slots the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// As frames are stamped.
    pub now: Time,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub monotonic_ns: u64,
}

/// What became of a fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Bytes of payload per packet, when the kernel does not know it yet.
    pub path_mtu: Option<u16>,
    /// Side that the slot's flow comes in by, while it is installed.
    pub side: Option<Side>,
}

/// What the fast path did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathCounters {
    /// Directions that the kernel was asked to carry.
    pub installed: u64,
    /// Directions that it was asked not to carry any more.
    pub removed: u64,
    /// Packets on the slow path whose flow found no room in the table.
    pub refused_packets: u64,
    /// Events taken in.
    pub events: u64,
    /// Directions removed because a copied packet had another verdict.
    pub verdicts_changed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel was not told yet: the slot is as its last flow left it.
    Asked,
    Installed,
    /// Not to be found any more, and still carried: the kernel was not told yet.
    Leaving,
    /// Removed at this moment (CLOCK_MONOTONIC); its last counts may be to come.
    Retiring(u64),
}

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    hash: u64,
    flow: Option<(FlowKey, FlowDirection)>,
    queue_pair: Option<(QueuePairKey, Service)>,
    /// As it was when it was last folded.
    folded: Slot,
    state: State,
    begun_ns: u64,
}

/// The flows that the kernel carries, or is asked to.
#[derive(Debug)]
pub struct FastPath {
    seed: HashSeed,
    index: Index,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// At most one installation and one removal a slot.
    commands: VecDeque<Command>,
    installed: usize,
    counters: FastPathCounters,
    monotonic_ns: u64,
}

/// A carried packet's direction, to take in an event of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) key: Key,
    pub(crate) queue_pair: Option<QueuePairKey>,
}

impl Carried {
    /// Side of the gateway that it came in by.
    pub(crate) fn side(&self) -> Side {
        if self.key.side == 0 { Side::Host } else { Side::Wire }
    }

    /// The kernel keeps the outer tag beside the frame; the key knows it.
    pub(crate) fn put_vlans_back(&self, parsed: &mut Parsed) {
        let (outer, inner) = ((self.key.vlans >> 12) as u16, (self.key.vlans & 0xfff) as u16);
        if self.key.vlans != 0 {
            parsed.link.vlan_tci = [outer, inner];
            parsed.link.vlan_count = if inner == 0 { 1 } else { 2 };
        }
    }
}

impl FastPath {
    /// An empty table for `flows_max` directions (at least one), keyed by `seed`.
    pub fn new(flows_max: u32, seed: u128) -> Self {
        let limit = flows_max.max(1);
        Self {
            seed: HashSeed::new(seed),
            index: Index::new(limit as usize),
            entries: (0..limit).map(|_| None).collect(),
            free: (0..limit).rev().collect(),
            commands: VecDeque::new(),
            installed: 0,
            counters: FastPathCounters::default(),
            monotonic_ns: 0,
        }
    }

    /// The next thing to tell the kernel. Say that it was told ([`FastPath::installed`],
    /// [`FastPath::removed`]), or that it would not hear ([`FastPath::refuse`]).
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The kernel has slot `number` as [`Install::slot`] says, and carries its flow from now on.
    pub fn installed(&mut self, number: u32, monotonic_ns: u64) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if entry.state == State::Asked {
            (entry.state, entry.begun_ns) = (State::Installed, monotonic_ns);
        }
    }

    /// The kernel forgot the flow of slot `number`; what it counts at this moment is counted yet.
    pub fn removed(&mut self, number: u32, monotonic_ns: u64) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if entry.state == State::Leaving {
            entry.state = State::Retiring(monotonic_ns);
        }
    }

    /// Directions that the kernel carries, or will once they are quiet.
    pub fn len(&self) -> usize {
        self.installed
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.installed == 0
    }

    /// What it did.
    pub fn counters(&self) -> FastPathCounters {
        self.counters
    }

    /// Slots in use, those that are to be read a last time included.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let in_use = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        in_use.map(|(number, _)| number as u32)
    }

    /// Looks at a frame that was passed as it is, where `policy` lets the kernel carry any.
    #[inline]
    pub(crate) fn look_at(
        &mut self,
        policy: &Policy,
        meter: &Meter,
        side: Side,
        (frame, parsed): (&Frame<'_>, &Parsed),
        seen: impl FnOnce() -> Observed,
    ) {
        let is_odd = parsed.rdma.is_some() && frame.meta.offload.segmentation.is_some();
        if !is_odd && allows(policy) {
            self.consider(meter, side, (frame.bytes(), parsed), seen());
        }
    }

    /// Whether the kernel can carry packets like this one.
    fn consider(&mut self, meter: &Meter, side: Side, packet: (&[u8], &Parsed), seen: Observed) {
        let (bytes, parsed) = packet;
        let Some(key) = Key::of(parsed, bytes, side as u8) else { return };
        let Some(settled) = settled(meter, parsed, bytes, seen) else { return };
        let hash = self.hash(&key);
        if self.find(&key, hash).is_some() {
            return;
        }
        let Some(number) = self.free.pop() else {
            self.counters.refused_packets += 1;
            return;
        };
        if self.index.insert(hash, number).is_err() {
            self.free.push(number);
            self.counters.refused_packets += 1;
            return;
        }
        self.entries[number as usize] = Some(Entry {
            key,
            hash,
            flow: FlowKey::of(parsed),
            queue_pair: settled.queue_pair,
            folded: Slot::default(),
            state: State::Asked,
            begun_ns: self.monotonic_ns,
        });
        self.installed += 1;
        self.counters.installed += 1;
        let Settled { path_mtu, source_port, request_next, response_next, .. } = settled;
        self.commands.push_back(Command::Install(Install {
            key,
            number,
            path_mtu,
            source_port,
            request_next,
            response_next,
        }));
    }

    /// Takes in what slot `number` counts now.
    pub(crate) fn fold(
        &mut self,
        number: u32,
        slot: &Slot,
        clocks: Clocks,
        meter: &mut Meter,
        counters: &mut Counters,
    ) -> Folded {
        self.monotonic_ns = clocks.monotonic_ns;
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else {
            return Folded::default();
        };
        if entry.state == State::Asked {
            return Folded::default();
        }
        let side = if entry.key.side == 0 { Side::Host } else { Side::Wire };
        let is_installed = entry.state == State::Installed;
        let mut folded = Folded { side: is_installed.then_some(side), path_mtu: None };
        if slot.frames != entry.folded.frames {
            let delta = difference(slot, &entry.folded);
            counters.side_mut(side).count_fast(delta.frames, delta.bytes);
            let age_ns = clocks.monotonic_ns.saturating_sub(slot.last_ns);
            let path_mtu = meter.fold(&Fold {
                last: Time(clocks.now.0.saturating_sub(age_ns)),
                now: clocks.now,
                side,
                key: &entry.key,
                flow: entry.flow,
                queue_pair: entry.queue_pair,
                counted: &delta,
            });
            folded.path_mtu = (path_mtu != 0 && slot.path_mtu == 0).then_some(path_mtu);
        }
        entry.folded = *slot;
        let active_ns = slot.last_ns.max(entry.begun_ns);
        let silent_ns = clocks.monotonic_ns.saturating_sub(active_ns);
        match entry.state {
            State::Installed if silent_ns >= IDLE_NS => self.retire(number),
            State::Retiring(since) if clocks.monotonic_ns.saturating_sub(since) >= RETIRE_NS => {
                self.release(number);
            }
            _ => {}
        }
        folded
    }

    /// Ends all of it: the policy changed. The kernel's slots are void already by their epoch.
    pub(crate) fn void(&mut self) {
        self.commands.retain(|command| matches!(command, Command::Remove { .. }));
        let numbers: Vec<u32> = self.numbers().collect();
        for number in numbers {
            match self.state(number) {
                // Its command went just now.
                Some(State::Asked) => self.forget(number),
                _ => self.retire(number),
            }
        }
    }

    /// The kernel could not be told to carry slot `number`: its flow stays on the slow path.
    pub fn refuse(&mut self, number: u32) {
        if self.state(number) == Some(State::Asked) {
            self.forget(number);
            self.counters.refused_packets += 1;
        }
    }

    /// Whose slot it is, for an event.
    pub(crate) fn notice(&mut self, number: u32) -> Option<Carried> {
        self.counters.events += 1;
        let entry = self.entries.get(number as usize)?.as_ref()?;
        // Of the slot's last flow.
        if entry.state == State::Asked {
            return None;
        }
        Some(Carried { key: entry.key, queue_pair: entry.queue_pair.map(|(key, _)| key) })
    }

    /// Has the kernel carry what goes between two ends no longer: rules look at it again.
    pub(crate) fn bring_back(&mut self, ends: [End; 2]) {
        let is_of = |key: &Key| {
            let source = End { address: key.source, port: key.source_port };
            let destination = End { address: key.destination, port: key.destination_port };
            key.kind == PORTS && (ends == [source, destination] || ends == [destination, source])
        };
        let found = |it: &Option<Entry>| it.as_ref().is_some_and(|it| is_of(&it.key));
        let numbers = (0..).zip(&self.entries).filter(|(_, it)| found(it));
        let numbers: Vec<u32> = numbers.map(|(number, _)| number).collect();
        for number in numbers {
            if self.state(number) != Some(State::Asked) {
                self.retire(number);
                continue;
            }
            let is_other =
                |it: &Command| !matches!(it, Command::Install(it) if it.number == number);
            self.commands.retain(is_other);
            self.forget(number);
        }
    }

    /// A copied packet of slot `number` would not be passed any more.
    pub(crate) fn end(&mut self, number: u32) {
        self.counters.verdicts_changed += 1;
        self.retire(number);
    }

    fn state(&self, number: u32) -> Option<State> {
        self.entries.get(number as usize)?.as_ref().map(|entry| entry.state)
    }

    /// Has the kernel carry slot `number` no longer.
    fn retire(&mut self, number: u32) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if entry.state == State::Installed {
            entry.state = State::Leaving;
            let key = entry.key;
            self.commands.push_back(Command::Remove { key, number });
            self.hide(number);
        }
    }

    /// Gives up slot `number`, which the kernel never carried.
    fn forget(&mut self, number: u32) {
        self.hide(number);
        self.release(number);
    }

    /// Not to be found any more: if the flow goes on, it gets another slot.
    fn hide(&mut self, number: u32) {
        let Some(Some(entry)) = self.entries.get(number as usize) else { return };
        self.index.remove(entry.hash, number);
        self.installed -= 1;
        self.counters.removed += 1;
    }

    fn release(&mut self, number: u32) {
        self.entries[number as usize] = None;
        self.free.push(number);
    }

    fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        self.index.find(hash, |at| {
            self.entries[at as usize].as_ref().is_some_and(|entry| entry.key == *key)
        })
    }

    fn hash(&self, key: &Key) -> u64 {
        self.seed.hash(&key.words())
    }
}

/// Whether flows may be carried under `policy` at all: it seals nothing, stops nobody and passes
/// what it does not know; rules, if there are any, look at no flow for ever, and at everybody's:
/// who is allowed now may not be so soon.
pub fn allows(policy: &Policy) -> bool {
    !policy.seals()
        && policy.default == Action::Clear
        && !policy.stops_anybody()
        && policy.rules.as_ref().is_none_or(|rules| {
            let spares = policy.blocks.as_ref().is_some_and(|it| it.spare_anybody());
            rules.limits.bypass_bytes.is_some() && !spares
        })
}

/// What the kernel must know of each opcode, as bpf/fastpath.h has it.
pub fn opcode_words() -> [u32; 256] {
    std::array::from_fn(|byte| opcode_word(Opcode(byte as u8)))
}

fn opcode_word(opcode: Opcode) -> u32 {
    use opcode_flag::{DATAGRAM, ENDS_MESSAGE, FULL, READ, REQUEST, RESPONSE, SLOW, SYNDROME};
    /// From the start of RETH and AtomicETH to their R_Key.
    const KEY_OFFSET: usize = 8;

    let flag = |holds: bool, flag: u32| if holds { flag } else { 0 };
    let service = opcode.service();
    let is_reliable =
        matches!(service, Service::ReliableConnection | Service::ExtendedReliableConnection);
    let is_numbered = is_reliable || service == Service::UnreliableConnection;
    let keyed = opcode
        .extension_offset(Extension::Reth)
        .or_else(|| opcode.extension_offset(Extension::AtomicEth))
        .filter(|_| is_numbered && opcode.is_request());
    let syndrome = opcode.extension_offset(Extension::Aeth);
    // One that does not stand first is left to the gateway too: reliable datagrams only.
    let slow = is_slow(opcode) || syndrome.is_some_and(|offset| offset != 0);
    opcode.extensions_len() as u32
        | keyed.map_or(0, |offset| (offset + KEY_OFFSET) as u32) << 8
        | (OperationClass::of(opcode) as u32) << 16
        | flag(is_numbered && opcode.is_request(), REQUEST)
        | flag(
            is_reliable && opcode.is_response() && opcode.operation() != Operation::Acknowledge,
            RESPONSE,
        )
        | flag(opcode.is_request() && opcode.ends_message(), ENDS_MESSAGE)
        | flag(syndrome.is_some() && service != Service::UnreliableConnection, SYNDROME)
        | flag(matches!(opcode.position(), Position::First | Position::Middle), FULL)
        | flag(service == Service::UnreliableDatagram, DATAGRAM)
        | flag(opcode.operation() == Operation::ReadRequest, READ)
        | flag(slow, SLOW)
}

/// What the meter knows of a flow that has been seen for long enough.
#[derive(Default)]
struct Settled {
    queue_pair: Option<(QueuePairKey, Service)>,
    path_mtu: u16,
    source_port: u16,
    request_next: u32,
    response_next: u32,
}

fn settled(meter: &Meter, parsed: &Parsed, bytes: &[u8], seen: Observed) -> Option<Settled> {
    let Some(rdma) = &parsed.rdma else {
        let (_, direction) = FlowKey::of(parsed)?;
        let entry = meter.flows().entry(seen.flow?)?;
        let packets = entry.counters[direction.index()].packets;
        return (packets >= SETTLED_PACKETS).then(Settled::default);
    };
    let service = rdma.opcode.service();
    let is_connected = match service {
        Service::ReliableConnection | Service::ExtendedReliableConnection => true,
        Service::UnreliableConnection | Service::UnreliableDatagram => false,
        _ => return None,
    };
    let source_qp = (service == Service::UnreliableDatagram)
        .then(|| weir_wire::ext::deth(bytes, rdma).map(|deth| deth.source_qp()))
        .flatten();
    let key = QueuePairKey::of(parsed, rdma, source_qp);
    let conversation = meter.conversations().entry(seen.conversation?)?;
    let direction = conversation.directions().find(|direction| direction.key == key)?;
    let is_alone = is_connected && conversation.is_half();
    let wanted = if is_alone { SETTLED_PACKETS_ALONE } else { SETTLED_PACKETS };
    let [request_next, response_next] = direction.next_numbers().map(|next| match next {
        Some(next) => next.value() | STARTED,
        None => 0,
    });
    (direction.counters.total().packets >= wanted).then_some(Settled {
        queue_pair: Some((key, service)),
        path_mtu: conversation.path_mtu,
        source_port: direction.source_port,
        request_next,
        response_next,
    })
}

/// What `new` counted since `old`; the fields that are taken, and those that are states, as in
/// `new`.
fn difference(new: &Slot, old: &Slot) -> Slot {
    let mut delta = *new;
    delta.frames = new.frames.wrapping_sub(old.frames);
    delta.packets = new.packets.wrapping_sub(old.packets);
    delta.bytes = new.bytes.wrapping_sub(old.bytes);
    delta.ecn_marked = new.ecn_marked.wrapping_sub(old.ecn_marked);
    delta.marked = new.marked.wrapping_sub(old.marked);
    delta.foreign_packets = new.foreign_packets.wrapping_sub(old.foreign_packets);
    delta.foreign_bytes = new.foreign_bytes.wrapping_sub(old.foreign_bytes);
    delta.payload_bytes = new.payload_bytes.wrapping_sub(old.payload_bytes);
    delta.messages = new.messages.wrapping_sub(old.messages);
    for (class, old) in delta.classes.iter_mut().zip(&old.classes) {
        class.packets = class.packets.wrapping_sub(old.packets);
        class.bytes = class.bytes.wrapping_sub(old.bytes);
    }
    for (nak, old) in delta.naks.iter_mut().zip(&old.naks) {
        *nak = nak.wrapping_sub(*old);
    }
    delta.rnr_naks = new.rnr_naks.wrapping_sub(old.rnr_naks);
    delta.cnp = new.cnp.wrapping_sub(old.cnp);
    delta
}
