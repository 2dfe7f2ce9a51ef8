//! Which slot a packet's flow has: by its two ends, or by one direction of a queue pair.
//!
//! The table is the detector's own. The meter's entries end after seconds of silence, and an attack
//! that pauses for longer must not be forgotten.

use std::hash::{Hash, Hasher};

use foldhash::fast::FixedState;
use hashlink::LinkedHashMap;
use weir_wire::frame::{Link, Time};
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::{Parsed, Transport, parse};
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::alert::{Alerts, End, FlowView, TransactionView};
use crate::detector::{Decision, Detector, Direction, Limits, Marks, Packet};
use crate::flow::FlowSlot;
use crate::older;
use crate::packet::Vlans;
use crate::record::{EndReason, FlowRecord, SpokenBeside};

mod ended;
mod over;
mod streams;

use ended::Ended;
use over::Over;

/// A flow that was silent for so long has ended: Suricata's timeout of an established connection.
const QUIET_NS: u64 = 600_000_000_000;
/// Adapters send RoCE v2 from UDP ports from here on: the high bits are 0xc000, the others spread
/// queue pairs over paths.
const ADAPTERS_FIRST: u16 = 0xc000;

/// What comes within so long behind the second FIN acknowledges it, or is on its way.
const LAST_WORDS_NS: u64 = 2_000_000_000;

/// Flows that are passed over, at most, where one has to leave that matters less.
const SPARED_MAX: usize = 8;
/// Flows forgotten for the sake of memory with one packet, at most.
const SAVED_MAX: usize = 64;

/// Flows from the one that was silent longest to the one that spoke last. At the bound, of their
/// number or of the memory that they hold ([`Limits::memory`]), the connection leaves that has been
/// over longest, or, if none is, the first flow; one that was dropped, or answered, only if those
/// behind it are (docs/adr/0297).
#[derive(Debug)]
pub struct FlowTable {
    entries: LinkedHashMap<Key, Entry, FixedState>,
    over: Over,
    max: usize,
    memory_max: usize,
    evicted: u64,
    midstream: bool,
    /// Older connections pass, whoever is heard of first: ports tell who their server is.
    passes_older: bool,
    ignores_vlans: bool,
    ended: Ended,
}

/// Whether a flow is passed over that was silent longest.
type Spares = fn(&Detector, &Key, &Entry) -> bool;

/// Both ends of a flow, the lesser first; or a sender and the queue pair that it sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    ends: [([u8; 16], u32); 2],
    protocol: u8,
    vlans: Vlans,
    /// Beyond which port the end is that is first.
    port: Option<u8>,
}

/// Marks the number of a queue pair, so that it is nobody's port.
const QUEUE_PAIR: u32 = 1 << 31;

impl Key {
    fn is_of_queue_pair(&self) -> bool {
        self.ends[1].1 & QUEUE_PAIR != 0
    }
}

impl Hash for Key {
    /// In few words: a packet's key is hashed once.
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (address, port) in &self.ends {
            state.write_u128(u128::from_ne_bytes(*address));
            state.write_u32(*port);
        }
        state.write_u8(self.protocol);
        state.write_u8(self.port.unwrap_or(2));
        state.write_u64(self.vlans.ids().iter().fold(0, |all, id| all << 16 | u64::from(*id)));
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: FlowSlot,
    /// Whether the end that is first in the key sent the first packet.
    first_is_initiator: bool,
    last: Time,
    /// Which of its ends have said that they end: bits, by whether they are first in the key.
    ended: u8,
    /// When both ends had all that the other said, and said no more.
    over: Option<Time>,
}

/// Both ends of a flow have said that they end, or one has reset it.
const BOTH: u8 = 3;

impl FlowTable {
    /// A table for as many flows as `limits` has slots, at least one.
    pub fn new(limits: Limits) -> Self {
        let entries = LinkedHashMap::with_hasher(FixedState::with_seed(limits.seed));
        let Limits { midstream, ignores_vlans, .. } = limits;
        let max = limits.flows.max(1);
        let memory_max = limits.memory;
        Self {
            entries,
            over: Over::default(),
            max,
            memory_max,
            evicted: 0,
            midstream,
            passes_older: passes_older(&limits),
            ignores_vlans,
            ended: Ended::default(),
        }
    }

    /// Keeps what there is to tell of flows that end, for [`FlowTable::take_ended`].
    pub fn keep_records(&mut self) {
        self.ended.records = Some(Vec::new());
    }

    /// Whether it does.
    pub fn keeps_records(&self) -> bool {
        self.ended.records.is_some()
    }

    /// Flows that ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<FlowRecord> {
        self.ended.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Between whom flows were that went past the rules and do so no more, since this was asked
    /// last: who carries them elsewhere is to bring them here again.
    pub fn take_returned(&mut self) -> Vec<[End; 2]> {
        std::mem::take(&mut self.ended.returned)
    }

    /// Ends all flows, in the order in which they spoke last.
    pub fn flush(&mut self, detector: &mut Detector) {
        while let Some((key, entry)) = self.entries.pop_front() {
            self.ended.take(key, entry, EndReason::Shutdown, detector);
        }
    }

    /// The flow of a packet, and whether the end that is first in the key sent it.
    fn key(&self, packet: &Packet<'_>) -> (Key, bool) {
        // A gateway's two sides may tag differently: only a decoder tells flows apart by VLANs.
        let vlans = packet.decoded.map(|it| it.vlans).filter(|_| !self.ignores_vlans);
        // A tag with a priority alone is of no VLAN (IEEE 802.1Q s6.9.1).
        let vlans = vlans.filter(|it| it.ids().iter().any(|id| *id != 0));
        key(packet, vlans.unwrap_or_default())
    }

    /// What rules have noted of a packet's flow.
    pub fn marks(&self, detector: &Detector, packet: &Packet<'_>) -> Marks {
        let entry = self.entries.get(&self.key(packet).0);
        entry.map(|it| detector.marks(it.slot)).unwrap_or_default()
    }

    /// Whether a packet is of a flow that is known.
    pub fn knows(&self, packet: &Packet<'_>) -> bool {
        self.entries.contains_key(&self.key(packet).0)
    }

    /// What is spoken in a packet's flow, where it is known.
    pub fn application(&self, detector: &Detector, packet: &Packet<'_>) -> Option<&'static str> {
        self.entries.get(&self.key(packet).0).and_then(|it| detector.application(it.slot))
    }

    /// Whether a packet's connection has ended: both ends have closed it, or one has reset it.
    pub fn has_ended(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        self.entries.get(&self.key(packet).0).is_some_and(|it| detector.has_ended(it.slot))
    }

    /// What is told of a transaction of a packet's flow as it stands now, and of the files that its
    /// client, or its server, sends with it; `None` where what is told of such does not change.
    pub fn transaction(
        &self,
        detector: &Detector,
        packet: &Packet<'_>,
        (number, to_server): (u64, bool),
    ) -> Option<TransactionView> {
        let entry = self.entries.get(&self.key(packet).0)?;
        let direction = if to_server { Direction::Initiator } else { Direction::Responder };
        detector.transaction(entry.slot, direction, number)
    }

    /// What is spoken in a packet's flow beside that.
    pub fn beside(&self, detector: &Detector, packet: &Packet<'_>) -> SpokenBeside {
        let entry = self.entries.get(&self.key(packet).0);
        entry.map(|it| detector.beside(it.slot)).unwrap_or_default()
    }

    /// The packet's flow is over: what rules have done to it takes effect (docs/adr/0313). Whether
    /// one lets it pass.
    pub fn take_all_effect(&mut self, detector: &mut Detector, packet: &Packet<'_>) -> bool {
        let slot = self.entries.get(&self.key(packet).0).map(|it| it.slot);
        slot.is_some_and(|it| detector.take_all_effect(it))
    }

    /// Whether what is spoken in a packet's flow was looked for, and is none that is known.
    pub fn has_failed(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        self.entries.get(&self.key(packet).0).is_some_and(|it| detector.has_failed(it.slot))
    }

    /// Whether a rule lets a packet's flow pass from now on.
    pub fn is_let_pass(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        self.entries.get(&self.key(packet).0).is_some_and(|it| detector.is_let_pass(it.slot))
    }

    /// Whether rules see nothing of what comes in a packet's flow from now on.
    pub fn is_sealed(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        self.entries.get(&self.key(packet).0).is_some_and(|it| detector.is_sealed(it.slot))
    }

    /// Nobody is told of alerts about the packet at hand: they are no alerts of its flow.
    pub fn take_back_alerts(&self, detector: &mut Detector, packet: &Packet<'_>) {
        let slot = self.entries.get(&self.key(packet).0).map(|it| it.slot);
        slot.into_iter().for_each(|it| detector.take_back_alerts(it));
    }

    /// Nobody follows the connection of the packet at hand further: its flags are not told.
    pub fn leave(&self, detector: &mut Detector, packet: &Packet<'_>) {
        let slot = self.entries.get(&self.key(packet).0).map(|it| it.slot);
        slot.into_iter().for_each(|it| detector.leave(it));
    }

    /// The sequence number up to which rules about bytes have looked at the stream of the last
    /// packet's sender, with a detector that waits for acknowledgments.
    pub fn looked_at(&self, detector: &Detector, packet: &Packet<'_>) -> Option<u32> {
        let (key, from_first) = self.key(packet);
        let entry = self.entries.get(&key)?;
        detector.looked_at(entry.slot, entry.direction(from_first))
    }

    /// A packet's flow so far, if it has a slot.
    pub fn view(&self, detector: &Detector, packet: &Packet<'_>) -> Option<FlowView> {
        let (key, from_first) = self.key(packet);
        let entry = self.entries.get(&key)?;
        detector.view(entry.slot, entry.direction_of(from_first, packet.parsed))
    }

    /// What a TCP segment says where its sender said other bytes in the same place before: those,
    /// and its own where nothing came, and whether that is an overlap to be told of, and
    /// once more; `None`: it says nothing else.
    pub fn as_known(
        &self,
        detector: &Detector,
        packet: &Packet<'_>,
    ) -> Option<(Vec<u8>, [bool; 2])> {
        let (key, from_first) = self.key(packet);
        let entry = self.entries.get(&key)?;
        let Transport::Tcp { sequence, .. } = packet.parsed.transport else { return None };
        let payload = packet.parsed.payload(packet.bytes);
        detector.as_known(entry.slot, entry.direction(from_first), sequence, payload)
    }

    /// Whether the connection of a TCP segment, which its receiver takes, has not begun with it or
    /// before.
    pub fn is_unbegun(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        let entry = self.entries.get(&self.key(packet).0);
        entry.is_some_and(|it| !detector.is_spoiled(packet) && detector.is_unbegun(it.slot))
    }

    /// Whether the connection of a TCP segment was taken up without its beginning.
    pub fn is_taken_up(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        self.entries.get(&self.key(packet).0).is_some_and(|it| detector.is_taken_up(it.slot))
    }

    /// Whether of the connection of a TCP segment the side alone is seen that sent it.
    pub fn is_alone(&self, detector: &Detector, packet: &Packet<'_>) -> bool {
        let (key, from_first) = self.key(packet);
        let side = |it: &Entry| it.direction(from_first).index();
        self.entries.get(&key).is_some_and(|it| detector.is_alone(it.slot, side(it)))
    }

    /// Has a packet's flow go on although its parser has given up: see [`Detector::excuse`].
    pub fn excuse(&mut self, detector: &mut Detector, packet: &Packet<'_>) {
        if let Some(entry) = self.entries.get_mut(&self.key(packet).0) {
            detector.excuse(&mut entry.slot);
        }
    }

    /// Has a packet's flow go on although a rule has dropped it: see [`Detector::forgive`].
    pub fn forgive(&mut self, detector: &mut Detector, packet: &Packet<'_>) {
        let (key, _) = self.key(packet);
        if let Some(entry) = self.entries.get_mut(&key) {
            detector.forgive(&mut entry.slot);
        }
    }

    /// Has `detector` look at a packet, in the state of its flow: see [`Detector::inspect`].
    ///
    /// RoCE v2 that an adapter may not take is looked at as a datagram, too: a socket may have its
    /// port.
    pub fn inspect(
        &mut self,
        detector: &mut Detector,
        now: Time,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        let told = alerts.len();
        let decision = self.inspect_once(detector, now, packet, alerts);
        let Some(parsed) = datagram_beside_rdma(packet).filter(|_| decision == Decision::Pass)
        else {
            return decision;
        };
        let datagram = Packet { parsed: &parsed, icrc: None, ..*packet };
        let told_again = alerts.len();
        detector.set_again(true);
        let decision = self.inspect_once(detector, now, &datagram, alerts);
        detector.set_again(false);
        alerts.take_back_told(told..told_again);
        decision
    }

    fn inspect_once(
        &mut self,
        detector: &mut Detector,
        now: Time,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        let parsed = packet.parsed;
        let (key, from_first) = self.key(packet);
        let follows = (self.midstream, self.passes_older);
        let new = || Entry::new(from_first != is_from_server(packet, follows), now);
        let (mut old, mut succeeds) = (None, false);
        let entry = match self.entries.to_back(&key) {
            Some(entry) => {
                let patience = detector.patience_ns(entry.slot).unwrap_or(QUIET_NS);
                let is_quiet = now.since_ns(entry.last) >= patience;
                let begins_anew = begins(parsed) && entry.may_begin_anew(from_first, detector);
                // Nobody follows whether it is over.
                succeeds = begins(parsed) && detector.is_let_go(entry.slot);
                if is_quiet || ((begins_anew || succeeds) && !detector.is_spoiled(packet)) {
                    // A connection that only paused has its client still, whatever its ports are.
                    let pauses = self.passes_older && goes_on(parsed);
                    let kept = Entry { first_is_initiator: entry.first_is_initiator, ..new() };
                    let reason = if is_quiet { EndReason::Timeout } else { EndReason::Reused };
                    let before = std::mem::replace(entry, if pauses { kept } else { new() });
                    old = Some((before, reason));
                }
                entry
            }
            None => {
                self.make_room(detector);
                self.entries.entry(key).or_insert_with(new)
            }
        };
        if let Some((old, reason)) = old {
            self.ended.take(key, old, reason, detector);
            if succeeds {
                detector.succeed(&mut entry.slot);
            }
        }
        entry.last = now;
        if self.midstream {
            entry.turn_by(from_first, detector, packet);
        }
        let ended = entry.ended | ends(parsed, from_first);
        if ended != entry.ended && !detector.is_spoiled(packet) {
            entry.ended = ended;
        }
        let direction = entry.direction_of(from_first, parsed);
        let decision = detector.inspect(now, &mut entry.slot, direction, packet, alerts);
        if decision != Decision::Pass && !detector.dropped_by_flow() {
            self.ended.note_return(&key, entry.slot, detector);
        }
        if entry.ended == BOTH && entry.over.is_none() && detector.is_over(entry.slot) {
            entry.over = Some(now);
            self.over.push(key, now);
            if self.over.len() > self.max {
                self.end_over(detector);
            }
        }
        self.save_memory(detector);
        decision
    }

    /// Forgets flows while all hold more memory than they may; not the last one, which has just
    /// spoken.
    fn save_memory(&mut self, detector: &mut Detector) {
        for _ in 0..SAVED_MAX {
            if detector.memory() <= self.memory_max || self.entries.len() < 2 {
                return;
            }
            self.end_one(detector, |detector, _, entry| detector.is_dropped(entry.slot));
        }
    }

    /// Ends at most `max` flows: connections that have been over for a minute, and flows that have
    /// been silent for ten.
    pub fn expire(&mut self, now: Time, max: usize, detector: &mut Detector) {
        for _ in 0..max {
            if let Some(over) = self.over.pop_old(now) {
                self.end_if_over(over, detector);
                continue;
            }
            match self.entries.front() {
                Some((_, oldest)) if now.since_ns(oldest.last) > QUIET_NS => {}
                _ => return,
            }
            self.end_oldest(EndReason::Timeout, detector);
        }
    }

    /// Goes on with limits that have changed.
    pub fn limit_as(&mut self, limits: &Limits) {
        self.memory_max = limits.memory;
        self.passes_older = passes_older(limits);
    }

    /// Flows that left before their time, for there was no room, or no memory.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Flows in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no flow is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn make_room(&mut self, detector: &mut Detector) {
        if self.entries.len() >= self.max {
            // Anybody can send what begins flows.
            self.end_one(detector, |detector, key, Entry { slot, .. }| {
                detector.is_begun(*slot) || detector.is_dropped(*slot) || key.is_of_queue_pair()
            });
        }
    }

    /// Ends a connection that is over, or else, before its time, the flow that was silent longest
    /// of those that are not spared.
    fn end_one(&mut self, detector: &mut Detector, spares: Spares) {
        if !self.end_over(detector) {
            for _ in 0..SPARED_MAX {
                let Some((key, entry)) = self.entries.front() else { break };
                if !spares(detector, key, entry) {
                    break;
                }
                let key = *key;
                self.entries.to_back(&key);
            }
            self.end_oldest(EndReason::Forced, detector);
            self.evicted += 1;
        }
    }

    /// Ends the connection that has been over longest; whether there is one.
    fn end_over(&mut self, detector: &mut Detector) -> bool {
        while let Some(over) = self.over.pop() {
            if self.end_if_over(over, detector) {
                return true;
            }
        }
        false
    }

    /// Ends a connection that was over then, unless its ends have begun another; whether it has.
    fn end_if_over(&mut self, (key, then): (Key, Time), detector: &mut Detector) -> bool {
        let Some(entry) = self.entries.get_mut(&key).filter(|it| it.over == Some(then)) else {
            return false;
        };
        // More was said after all.
        let goes_on = entry.last.since_ns(then) > LAST_WORDS_NS && !detector.follows(entry.slot);
        if goes_on || !detector.is_over(entry.slot) {
            entry.over = None;
            return false;
        }
        let entry = self.entries.remove(&key);
        entry.map(|it| self.ended.take(key, it, EndReason::Timeout, detector)).is_some()
    }

    fn end_oldest(&mut self, reason: EndReason, detector: &mut Detector) {
        if let Some((key, entry)) = self.entries.pop_front() {
            self.ended.take(key, entry, reason, detector);
        }
    }
}

impl Entry {
    /// Whether another connection may begin in its place by a SYN of this end.
    fn may_begin_anew(&self, from_first: bool, detector: &Detector) -> bool {
        if let Some(is_replaceable) = detector.is_replaceable(self.slot) {
            return is_replaceable;
        }
        let side = self.direction(from_first);
        // What a server says first is of no connection: it does not make it the client.
        let is_first = side == Direction::Responder && !detector.has_beginning(self.slot);
        let has_ended = self.ended & bit(from_first) != 0;
        is_first || (has_ended && detector.may_be_over_for(self.slot, side))
    }

    fn new(from_first: bool, now: Time) -> Self {
        Self {
            slot: FlowSlot::default(),
            first_is_initiator: from_first,
            last: now,
            ended: 0,
            over: None,
        }
    }

    /// The sender turns out to be the server: it says what servers say, and is the first who says
    /// anything.
    fn turn_by(&mut self, from_first: bool, detector: &mut Detector, packet: &Packet<'_>) {
        let is_client = self.direction(from_first) == Direction::Initiator;
        if is_client && older::is_answer(packet) && detector.turn(&mut self.slot) {
            self.first_is_initiator = !from_first;
        }
    }

    /// The direction of a packet. What carries IP packets has no sides: each end begins as the
    /// other does, and all count as the first one's, as Suricata has it.
    fn direction_of(&self, from_first: bool, parsed: &Parsed) -> Direction {
        match parsed.protocol {
            4 | 41 if parsed.rdma.is_none() => Direction::Initiator,
            _ => self.direction(from_first),
        }
    }

    fn direction(&self, from_first: bool) -> Direction {
        match self.first_is_initiator == from_first {
            true => Direction::Initiator,
            false => Direction::Responder,
        }
    }
}

/// A packet of RoCE v2 as a datagram, where it comes from a port that adapters do not send from, or
/// has no right ICRC.
#[inline]
fn datagram_beside_rdma(packet: &Packet<'_>) -> Option<Parsed> {
    let parsed = packet.parsed;
    let Transport::Udp { source, .. } = parsed.transport else { return None };
    let is_odd = source < ADAPTERS_FIRST || packet.icrc == Some(IcrcStatus::Invalid);
    if parsed.rdma.is_none() || !is_odd { None } else { parsed.datagram_of_rdma(packet.bytes) }
}

/// The flow of a packet, in such VLANs, and whether the end that is first in the key sent it.
fn key(packet: &Packet<'_>, vlans: Vlans) -> (Key, bool) {
    let datagram = packet.parsed.datagram(packet.bytes);
    let parsed = datagram.as_ref().unwrap_or(packet.parsed);
    if let Some(rdma) = &parsed.rdma {
        let queue_pair = rdma.destination_qp.value() | QUEUE_PAIR;
        let ends = [(parsed.source, 0), (parsed.destination, queue_pair)];
        return (Key { ends, protocol: parsed.protocol, vlans, port: packet.port }, true);
    }
    if packet.decoded.is_some()
        && let Some(found) = complaint(packet, vlans)
    {
        return found;
    }
    let (source, destination) = match parsed.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source.into(), destination.into())
        }
        // A question and its answer are one flow.
        Transport::Icmp { kind, .. } => (kind.into(), icmp_answer(parsed.protocol, kind).into()),
        Transport::Esp { spi, .. } => (spi, spi),
        _ => (0, 0),
    };
    let (from, to) = ((parsed.source, source), (parsed.destination, destination));
    let from_first = from <= to;
    let ends = if from_first { [from, to] } else { [to, from] };
    let port = packet.port.map(|it| if from_first { it } else { 1 - it });
    (Key { ends, protocol: parsed.protocol, vlans, port }, from_first)
}

/// The flow of which a packet of TCP or UDP did not arrive, as an ICMP message about it says, and
/// whether the end that is first in the key sent the message.
fn complaint(packet: &Packet<'_>, vlans: Vlans) -> Option<(Key, bool)> {
    const UNREACHABLE: u8 = 3;
    let parsed = packet.parsed;
    if parsed.protocol != 1
        || !matches!(parsed.transport, Transport::Icmp { kind: UNREACHABLE, .. })
    {
        return None;
    }
    let about = packet.bytes.get(usize::from(parsed.payload_offset)..parsed.end as usize)?;
    let about = parse(about, Link::Ip, u16::MAX.into());
    let (source, destination) = match about.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source.into(), destination.into())
        }
        _ => return None,
    };
    let (from, to) = ((about.source, source), (about.destination, destination));
    // Who complains got the packet.
    let from_first = to <= from;
    let ends = if from_first { [to, from] } else { [from, to] };
    Some((Key { ends, protocol: about.protocol, vlans, port: None }, from_first))
}

/// The type of ICMP that answers another, or is answered by it.
fn icmp_answer(protocol: u8, kind: u8) -> u8 {
    match (protocol, kind) {
        (1, 0) => 8,
        (1, 8) => 0,
        (1, 9) => 10,
        (1, 10) => 9,
        (1, 13..=18) => {
            if kind % 2 == 1 {
                kind + 1
            } else {
                kind - 1
            }
        }
        (58, 128) => 129,
        (58, 129) => 128,
        (58, 133) => 134,
        (58, 134) => 133,
        (58, 135) => 136,
        (58, 136) => 135,
        _ => 0,
    }
}

/// Whether who sends a flow's first packet is its server, where flows are followed, or pass, whose
/// beginning was not seen.
fn is_from_server(packet: &Packet<'_>, (midstream, passes_older): (bool, bool)) -> bool {
    let parsed = packet.parsed;
    (midstream && (answers(parsed) || older::is_answer(packet)))
        || (passes_older && older::has_ports_of_server(parsed))
}

/// Whether it is a TCP segment that begins no connection.
fn goes_on(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & SYN == 0)
}

/// Whether connections pass that are older than a look at them, by whoever is in their way.
fn passes_older(limits: &Limits) -> bool {
    limits.sees_all && !limits.refuses_midstream
}

fn answers(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & (SYN | ACK) == SYN | ACK)
}

fn begins(parsed: &Parsed) -> bool {
    const ALL: u8 = SYN | ACK | FIN | RST;
    matches!(parsed.transport, Transport::Tcp { flags, .. } if flags & ALL == SYN)
}

/// Who ends a flow has a bit.
fn bit(from_first: bool) -> u8 {
    1 << u8::from(from_first)
}

fn ends(parsed: &Parsed, from_first: bool) -> u8 {
    match parsed.transport {
        Transport::Tcp { flags, .. } if flags & RST != 0 => BOTH,
        Transport::Tcp { flags, .. } if flags & FIN != 0 => bit(from_first),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
