//! What the detector keeps of a flow, in a bounded slab.

mod counts;
mod later;
mod notes;
mod past;
mod record;
mod tcp;
mod told;
mod turned;

use std::collections::VecDeque;

use weir_wire::frame::Time;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags;

use crate::alert::{End, FlowKey};
use crate::application::Dialogue;
use crate::application::unit::Said;
use crate::buffers::event::AppEvent;
use crate::conversation::Conversation;
use crate::detector::{Direction, Limits, Timeouts};
use crate::digest::FileDigests;
use crate::evaluate::PutTag;
use crate::frame::FrameCounts;
use crate::heap::{HeapSize, heap_size};
use crate::packet::View;
use crate::rdma::operation::{Operations, Piece};
use crate::record::SpokenBeside;
use crate::rule::{Buffer, Counted, Header, RuleIndex};
use crate::ruleset::{RuleSet, Successors};
use crate::sequence::before;
use crate::session::Session;
use later::Later;
pub(crate) use later::{Effect, HeardStream, Waiting};
pub(crate) use notes::{Change, Notes};
pub(crate) use tcp::Tcp;

/// Where a flow's state is in the detector's slab. The caller keeps it with its own state of the
/// flow and hands it to [`release`](crate::Detector::release) once, when the flow ends.
/// `FlowSlot::default()` has no state yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSlot(u32);

/// After so many bytes, or as many as before, it is found out anew how much memory a flow holds.
const WEIGH_LEN: u64 = 2048;
/// Flows of which that is not yet found out, at most.
const LISTED_MAX: usize = 64;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// Datagrams of a server that are tried for what is spoken. A client's all are: what it says first
/// is no more its last word than a later one is.
const TRIES_MAX: u8 = 4;
/// Rules and oddities of transactions that are remembered, of one flow, at most.
const UNITS_MAX: usize = 256;
/// Bits and integers of one flow, at most; a rule's further ones are not kept, and counted.
const BITS_MAX: usize = 256;
/// Texts that rules captured of one flow or packet, at most; likewise.
pub(crate) const TEXTS_MAX: usize = 32;

/// One flow.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) initiator: End,
    pub(crate) responder: End,
    pub(crate) start: Time,
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
    pub(crate) tcp: Tcp,
    /// Whether rules about ends alone have looked at a packet of a side, and at a piece of one: a
    /// piece has no ports for them.
    pub(crate) is_looked_at: [[bool; 2]; 2],
    /// It began where another was that went past the rules.
    is_successor: bool,
    /// Other rules run since a side's last packet.
    has_other_rules: [bool; 2],
    /// A packet that was dropped was told of, of each side.
    pub(crate) is_drop_told: [bool; 2],
    /// Established before the packet at hand, or it brings data to who takes them for those of a
    /// connection.
    pub(crate) is_established: bool,
    /// The packet at hand sets the connection up.
    pub(crate) is_set_up: bool,
    pub(crate) dropped_by: Option<RuleIndex>,
    /// Whose packet was dropped first, and the rest with it.
    pub(crate) dropped_from: Option<Direction>,
    /// The parser of its application has given up.
    has_failed: bool,
    /// It goes on for all that.
    is_excused: bool,
    /// For that, nothing more of it passes.
    pub(crate) is_cut_off: bool,
    pub(crate) is_passed: bool,
    /// It goes on although this rule drops it: nothing more is looked at, all is told.
    pub(crate) blocked_by: Option<RuleIndex>,
    /// The SYN that its connection begins with was seen.
    has_syn: bool,
    /// A rule said that it is looked at no further.
    pub(crate) is_bypassed: bool,
    /// Packets and bytes that passed without a look since.
    bypassed: Option<Box<[[u64; 2]; 2]>>,
    /// The flow that announced it.
    pub(crate) parent: Option<Box<FlowKey>>,
    /// What a record tells of it in the end.
    pub(crate) told: told::RecordState,
    /// How its TCP goes on, where somebody asks.
    pub(crate) session: Option<Box<Session>>,
    /// The last timestamp of each side's segments.
    timestamps: [Option<u32>; 2],
    /// The timestamp of the first SYN.
    first_timestamp: Option<u32>,
    /// What rules have noted of it.
    notes: Notes,
    /// What rules have done to it that is still to take effect.
    later: Option<Box<Later>>,
    /// Bits of transactions, each by the transaction's number, the oldest first.
    bits_of_transactions: VecDeque<(u64, u32)>,
    /// What rules tag of it, and the rules whose tags are put with the packet at hand.
    pub(crate) tags: Vec<PutTag>,
    pub(crate) due_tags: Vec<RuleIndex>,
    /// The last entropy of each buffer that rules asked for; of none: of `base64_data`.
    entropies: Vec<(Option<Buffer>, f64)>,
    /// Set for TCP, where some rule looks at streams.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// That of a successor, or of the connection before, which its packets are no part of now.
    other: Option<Box<Conversation>>,
    /// How many frames it had, where somebody asks for them.
    pub(crate) frames: Option<Box<FrameCounts>>,
    /// What datagrams say, once it is known.
    pub(crate) dialogue: Option<Box<Dialogue>>,
    /// Operations of RDMA under way, where some rule looks into their payload.
    pub(crate) operations: Option<Box<Operations>>,
    /// Datagrams that were tried for what they say, before any did.
    tried: u8,
    /// Rules that matched units, by side and transaction; and what was told to be odd of them.
    pub(crate) matched: Vec<(RuleIndex, usize, u64)>,
    pub(crate) odd: Vec<(AppEvent, u64)>,
    /// Counts of thresholds that are kept by flow: rule, matches, next alert (backoff).
    pub(crate) counts: Vec<(RuleIndex, u32, u32)>,
    /// Memory that it held, and bytes that it had carried, when that was found out last.
    memory: usize,
    weighed_at: u64,
    /// It is among those of [`Slab::listed`].
    is_listed: bool,
}
heap_size!(Flow { conversation, other, dialogue, operations, notes, later });

impl Flow {
    /// Bytes that it has carried since it was found out what it holds.
    fn unweighed(&self) -> u64 {
        self.bytes[0] + self.bytes[1] - self.weighed_at
    }

    /// Takes the packet into account, before rules see it. Connections are taken up without their
    /// beginning where the limits say so.
    pub(crate) fn update(
        &mut self,
        now: Time,
        direction: Direction,
        view: &View<'_>,
        limits: &Limits,
    ) {
        let (side, midstream) = (direction.index(), limits.midstream);
        if self.packets == [0, 0] {
            self.start = now;
            let source = End { address: view.parsed.source, port: view.source_port };
            let destination = End { address: view.parsed.destination, port: view.destination_port };
            (self.initiator, self.responder) = match direction {
                Direction::Initiator => (source, destination),
                Direction::Responder => (destination, source),
            };
        }
        let is_taken_up = midstream && self.is_taken_up();
        self.tell(now, side, view, midstream);
        self.packets[side] += 1;
        self.bytes[side] += view.bytes.len() as u64;
        match view.parsed.transport {
            Transport::Tcp { flags: seen, .. } => {
                let before = self.tcp;
                if !view.is_lost() && !self.is_dropped() {
                    self.has_syn |= seen & (flags::SYN | flags::ACK) == flags::SYN;
                    self.tcp = before.after(direction, seen);
                    self.choose_connection(before, seen);
                }
                self.is_set_up = self.tcp == Tcp::Established && before != Tcp::Established;
                // Who takes data with a SYN takes them as those of a connection. So does a server
                // that gets them with what answers it, and a client that has its answer.
                let is_of_connection =
                    self.is_set_up || (before == Tcp::SynAck && direction == Direction::Responder);
                let brings = !view.payload.is_empty() && seen & (flags::SYN | flags::RST) == 0;
                // Who is in the way and lets older connections pass looks at each of their packets.
                let is_older = limits.sees_all
                    && !limits.refuses_midstream
                    && self.is_midstream()
                    && seen & (flags::SYN | flags::RST) == 0;
                let session = self
                    .session
                    .as_ref()
                    .filter(|it| limits.as_suricata.wants_handshakes && it.state().is_some());
                let is_set_up = match session {
                    Some(session) => session.has_set_up(),
                    None => {
                        before == Tcp::Established
                            || (is_of_connection && brings && !view.is_lost())
                    }
                };
                let is_taken_up = is_taken_up && session.is_none();
                self.is_established = is_set_up || is_taken_up || is_older || view.has_early_data();
            }
            _ => self.is_established = self.packets[0] > 0 && self.packets[1] > 0,
        }
    }

    /// Another connection begins between its ends: what rules noted was of the one before.
    pub(crate) fn renew(&mut self) {
        self.is_looked_at = Default::default();
        self.is_drop_told = [false; 2];
        self.notes.clear();
        (self.later, self.frames) = (None, None);
        self.bits_of_transactions.clear();
        self.entropies.clear();
        (self.tags, self.due_tags) = Default::default();
        self.matched.clear();
        self.odd.clear();
        self.counts.clear();
        self.is_bypassed = false;
        (self.has_failed, self.is_excused, self.is_cut_off) = (false, false, false);
        (self.bypassed, self.parent) = (None, None);
    }

    /// How long it may be silent before it is over, as Suricata has it.
    pub(crate) fn patience_ns(&self, timeouts: &Timeouts) -> u64 {
        const NS_PER_S: u64 = 1_000_000_000;
        let is_answered = self.packets.iter().all(|it| *it > 0);
        let of_datagrams = match self.told.protocol {
            PROTOCOL_UDP => timeouts.udp,
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => timeouts.icmp,
            _ => timeouts.other,
        };
        let seconds = match self.told.protocol {
            PROTOCOL_TCP => {
                let stage = self.session.as_ref().map_or(0, |it| it.stage());
                timeouts.tcp[stage]
            }
            // No responder has a timer for the rest of a message.
            _ if self.operations.is_some() => 600,
            _ => of_datagrams[usize::from(is_answered)],
        };
        seconds * NS_PER_S
    }

    /// The parser of its application gives up; whether it is the first time.
    pub(crate) fn fail(&mut self) -> bool {
        !std::mem::replace(&mut self.has_failed, true)
    }

    /// Whether the parser of its application has given up, and nobody lets it pass for all that.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.has_failed && !self.is_excused && !self.is_passed && !self.is_bypassed
    }

    /// It goes on although its parser has given up.
    pub(crate) fn excuse(&mut self) {
        (self.is_excused, self.is_cut_off) = (true, false);
    }

    /// It goes on although a rule has dropped it.
    pub(crate) fn forgive(&mut self) {
        (self.dropped_by, self.dropped_from, self.is_drop_told) = (None, None, [false; 2]);
        // Nor do rules about addresses take it for settled.
        self.is_looked_at = Default::default();
    }

    /// Whether it goes from where to where a rule says, or back.
    fn is_between_ends_of(&self, header: &Header) -> bool {
        let end = |it: &End| (u128::from_be_bytes(it.address), it.port);
        let [one, other] = [&self.initiator, &self.responder].map(end);
        let has_ports = matches!(self.told.protocol, PROTOCOL_TCP | PROTOCOL_UDP);
        header.is_between(one, other, has_ports) || header.is_between(other, one, has_ports)
    }

    /// Notes whose packet it is for which the rest is dropped, if that is so.
    pub(crate) fn note_dropper(&mut self, direction: Direction) {
        self.dropped_from = self.dropped_by.and(self.dropped_from.or(Some(direction)));
    }

    /// A rule drops the rest of it, unless one before it lets that pass; who only tells lets it go
    /// on.
    pub(crate) fn drop_by(&mut self, rule: RuleIndex, limits: &Limits) {
        if self.is_passed {
            return;
        }
        match limits.as_suricata.only_tells {
            true => (self.is_passed, self.blocked_by) = (true, Some(rule)),
            false => self.dropped_by = Some(rule),
        }
    }

    /// A rule lets a packet pass, and with it the flow that a later rule has dropped.
    pub(crate) fn pass_instead(&mut self, passer: RuleIndex) {
        self.dropped_by.take_if(|it| *it > passer);
        if self.blocked_by.take_if(|it| *it > passer).is_some() {
            self.is_passed = false;
        }
    }

    /// Whether the rest of it is dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped_by.is_some() || self.is_cut_off
    }

    /// Whether it is more than an attempt of one end: both spoke, and a connection was set up, or
    /// began before anybody looked.
    pub(crate) fn is_begun(&self) -> bool {
        let is_set_up = matches!(self.tcp, Tcp::Established | Tcp::Unknown);
        self.packets.iter().all(|it| *it > 0) && (is_set_up || self.told.protocol != PROTOCOL_TCP)
    }

    /// Whether it is a connection that began before anybody looked.
    pub(crate) fn is_midstream(&self) -> bool {
        let is_challenged = self.tcp == Tcp::Challenged;
        self.told.protocol == PROTOCOL_TCP && (!self.has_syn || is_challenged)
    }

    /// Whether nobody follows its connection: it has not begun, and was not taken up.
    pub(crate) fn is_unfollowed(&self) -> bool {
        self.session.as_ref().is_none_or(|it| it.state().is_none())
    }

    /// Whether it is followed without its beginning, by packets before: as established from the
    /// second packet on; an answer to a SYN that nobody saw has to be answered first.
    pub(crate) fn is_taken_up(&self) -> bool {
        let [client, server] = self.told.tcp_flags;
        let due = if (client | server) & flags::SYN == 0 { 1 } else { 2 };
        self.is_midstream()
            && matches!(self.tcp, Tcp::Unknown | Tcp::Challenged)
            && self.told.is_followed
            && self.packets[0] + self.packets[1] >= due
    }

    /// Hears a datagram.
    pub(crate) fn hear(
        &mut self,
        direction: Direction,
        view: &View<'_>,
        (wanted, limits): (FileDigests, &Limits),
    ) -> Said {
        let dhcp_extended = limits.dhcp_extended;
        let choice = limits.as_suricata.applications;
        let knows_no_more = limits.as_suricata.knows_no_more;
        let mut said = Said { dhcp_extended, knows_no_more, ..Said::with_digests(wanted) };
        let (side, port) = (direction.index(), self.responder.port);
        let may_begin = match knows_no_more {
            // Suricata goes by the first of each side; whoever answers in SIP is no client of it.
            true => self.packets[side] <= 1 && (side == 1 || !view.payload.starts_with(b"SIP/2.0")),
            false => direction == Direction::Initiator || self.tried < TRIES_MAX,
        };
        if self.dialogue.is_none() && may_begin && !view.payload.is_empty() {
            self.tried = self.tried.saturating_add(1);
            self.dialogue = Dialogue::begun(side, view.payload, port, choice).map(Box::new);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.take(side, view.payload, port, &mut said);
        }
        said
    }

    /// Hears a packet of RDMA: whether it is one of several of its operation.
    pub(crate) fn hear_operation(&mut self, view: &View<'_>, limits: &Limits) -> Piece {
        // What its receiver drops is no piece of one.
        let is_taken = view.parsed.rdma.is_some() && !view.is_damaged;
        match is_taken {
            true => self.operations.get_or_insert_default().take(self.told.last, view, limits),
            false => Piece::None,
        }
    }

    /// Whether a rule is new to a transaction, and if so, that it matched it.
    pub(crate) fn is_matched(&self, rule: RuleIndex, side: usize, number: u64) -> bool {
        self.matched.contains(&(rule, side, number))
    }

    /// A rule matched a transaction: it does not again. Of old transactions that is forgotten.
    pub(crate) fn match_unit(&mut self, rule: RuleIndex, side: usize, number: u64) {
        if self.matched.len() == UNITS_MAX {
            self.matched.remove(0);
        }
        self.matched.push((rule, side, number));
    }

    /// What of `events` was not told of the transaction before.
    pub(crate) fn new_events(&mut self, events: &[AppEvent], number: u64) -> Vec<AppEvent> {
        let mut new = events.to_vec();
        new.retain(|it| !self.odd.contains(&(*it, number)));
        for event in &new {
            if self.odd.len() == UNITS_MAX {
                self.odd.remove(0);
            }
            self.odd.push((*event, number));
        }
        new
    }

    /// Whether both sides began and neither answered: no connection, and what they say is none.
    pub(crate) fn is_refused(&self) -> bool {
        self.tcp == Tcp::Crossed
    }

    /// Whether a segment's timestamps are as RFC 7323 wants them: none goes back, and the answer
    /// to a SYN echoes the SYN's.
    pub(crate) fn check_timestamps(&mut self, direction: Direction, view: &View<'_>) -> bool {
        let Some((value, echo)) = view.tcp_timestamps() else { return true };
        let side = direction.index();
        // Of several SYNs any may be the one that is answered.
        let first = self.first_timestamp.zip(self.timestamps[0]);
        let is_none = |(first, last)| before(echo, first) || before(last, echo);
        if side == 1 && self.tcp == Tcp::Syn && echo != 0 && first.is_some_and(is_none) {
            return false;
        }
        let known = self.timestamps[side];
        if known.is_some_and(|it| before(value.wrapping_add(1), it)) {
            return false;
        }
        // What stands next alone counts: others may have overtaken it (RFC 7323 s4.3).
        let Transport::Tcp { sequence, .. } = view.parsed.transport else { return true };
        let is_next = |it: &Session| it.next(side).is_none_or(|next| next == sequence);
        if known.is_none() || view.is_syn() || self.session.as_deref().is_none_or(is_next) {
            self.timestamps[side] = Some(value);
        }
        if side == 0 && self.tcp == Tcp::Unknown {
            self.first_timestamp = Some(value);
        }
        true
    }

    /// What is spoken beside what it is told to speak; where acknowledgments count, so far.
    pub(crate) fn beside(&self, waits: bool) -> SpokenBeside {
        let beside = self.conversation.as_ref().map(|it| it.spoken(waits)).unwrap_or_default();
        let is_other = |it: &&str| Some(*it) != self.told.application;
        SpokenBeside { original: beside.original.filter(is_other), ..beside }
    }

    /// What is counted of each side; of the time that it lasts, the same for both.
    pub(crate) fn counted(&self, what: Counted, now: Time) -> [u64; 2] {
        match what {
            Counted::Packets => self.packets,
            Counted::Bytes => self.bytes,
            Counted::Seconds => {
                let second = |it: Time| it.0 / 1_000_000_000;
                [second(now).saturating_sub(second(self.start)); 2]
            }
        }
    }

    /// What rules have noted of it, as those see it that look now.
    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Changes what is noted of it, for who looks now; whether there was room.
    pub(crate) fn note(&mut self, change: &Change) -> bool {
        self.notes.make(change)
    }

    pub(crate) fn transaction_has_bit(&self, number: u64, bit: u32) -> bool {
        self.bits_of_transactions.contains(&(number, bit))
    }

    /// Sets or unsets a bit of a transaction. That of the oldest makes room where there is none.
    pub(crate) fn put_bit_of_transaction(&mut self, number: u64, bit: u32, is_set: bool) {
        let bits = &mut self.bits_of_transactions;
        bits.retain(|it| *it != (number, bit));
        if is_set {
            if bits.len() == BITS_MAX {
                bits.pop_front();
            }
            bits.push_back((number, bit));
        }
    }

    /// Notes the entropy of a buffer that a rule asked for.
    pub(crate) fn note_entropy(&mut self, buffer: Option<Buffer>, entropy: f64) {
        match self.entropies.iter_mut().find(|it| it.0 == buffer) {
            Some(known) => known.1 = entropy,
            None => self.entropies.push((buffer, entropy)),
        }
    }

    pub(crate) fn entropies(&self) -> &[(Option<Buffer>, f64)] {
        &self.entropies
    }
}

/// Flows by their slots.
#[derive(Debug)]
pub(crate) struct Slab {
    flows: Vec<Flow>,
    free: Vec<u32>,
    capacity: usize,
    memory: usize,
    /// Flows of which it is to be found out what they hold, once [`LISTED_MAX`] others have said
    /// something.
    listed: VecDeque<FlowSlot>,
}

impl Slab {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(u32::MAX as usize - 1);
        let (flows, free, listed) = Default::default();
        Self { flows, free, capacity, memory: 0, listed }
    }

    /// How many flows have a slot.
    pub(crate) fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// The flow of `slot`, which gets one if it is none yet; `None`: all are taken.
    pub(crate) fn at(&mut self, slot: &mut FlowSlot) -> Option<&mut Flow> {
        if slot.0 == 0 {
            *slot = self.take()?;
        }
        self.flows.get_mut(slot.0 as usize - 1)
    }

    fn take(&mut self) -> Option<FlowSlot> {
        if let Some(free) = self.free.pop() {
            return Some(FlowSlot(free));
        }
        if self.flows.len() == self.capacity {
            return None;
        }
        self.flows.push(Flow::default());
        Some(FlowSlot(self.flows.len() as u32))
    }

    /// The same, to change.
    pub(crate) fn taken_mut(&mut self, slot: FlowSlot) -> Option<&mut Flow> {
        self.flows.get_mut((slot.0 as usize).checked_sub(1)?)
    }

    /// The flow of a slot that was taken.
    pub(crate) fn taken(&self, slot: FlowSlot) -> Option<&Flow> {
        self.flows.get((slot.0 as usize).checked_sub(1)?)
    }

    /// Bytes of memory that flows hold for what they say.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Finds out what the flow of a slot holds, if it has carried enough since that was done. One
    /// that has not is found out about later, if it says no more: little may become much.
    pub(crate) fn weigh(&mut self, slot: FlowSlot) {
        let Some(flow) = self.taken_mut(slot) else { return };
        if flow.unweighed() >= WEIGH_LEN.min(flow.weighed_at) {
            return self.weigh_now(slot);
        }
        if std::mem::replace(&mut flow.is_listed, true) {
            return;
        }
        self.listed.push_back(slot);
        if self.listed.len() > LISTED_MAX
            && let Some(first) = self.listed.pop_front()
        {
            if let Some(flow) = self.taken_mut(first) {
                flow.is_listed = false;
            }
            self.weigh_now(first);
        }
    }

    /// Finds out what the flow of a slot holds.
    pub(crate) fn weigh_now(&mut self, slot: FlowSlot) {
        let Some(flow) = self.taken_mut(slot) else { return };
        let size = flow.heap_size();
        let before = std::mem::replace(&mut flow.memory, size);
        flow.weighed_at = flow.bytes[0] + flow.bytes[1];
        self.memory = self.memory - before + size;
    }

    /// Frees a slot. One that is none is none still.
    pub(crate) fn release(&mut self, slot: FlowSlot) {
        if let Some(flow) = (slot.0 as usize).checked_sub(1).and_then(|at| self.flows.get_mut(at)) {
            self.memory -= flow.memory;
            *flow = Flow::default();
            self.free.push(slot.0);
        }
    }

    /// All of them go on, whatever rules have dropped.
    pub(crate) fn forgive_all(&mut self) {
        self.flows.iter_mut().for_each(Flow::forgive);
    }

    /// Other rules run from here on.
    pub(crate) fn change_rules(&mut self, successors: &Successors, rules: &RuleSet) {
        let bit = |name: u32| successors.bit(name);
        for flow in &mut self.flows {
            flow.is_looked_at = Default::default();
            let counts = std::mem::take(&mut flow.counts).into_iter();
            flow.counts =
                counts.filter_map(|it| Some((successors.rule(it.0)?, it.1, it.2))).collect();
            flow.later = None;
            (flow.tags, flow.due_tags) = Default::default();
            flow.notes.rename(successors);
            let named = std::mem::take(&mut flow.bits_of_transactions).into_iter();
            flow.bits_of_transactions = named.filter_map(|it| Some((it.0, bit(it.1)?))).collect();
            flow.operations.iter_mut().for_each(|it| it.change_rules(successors));
            for conversation in [&mut flow.conversation, &mut flow.other].into_iter().flatten() {
                conversation.change_rules(successors);
            }
            successors.rename(&mut flow.matched, |it| &mut it.0);
            let dropped_by = flow.dropped_by.and_then(|it| successors.rule(it));
            // What a rule names by a list or a variable may be another matter now.
            let still_drops = |it: &RuleIndex| {
                let rule = rules.rule(*it);
                rule.action.is_blocking() && flow.is_between_ends_of(&rule.header)
            };
            flow.dropped_by = dropped_by.filter(still_drops);
            flow.dropped_from = flow.dropped_by.and(flow.dropped_from);
            flow.is_passed = false;
            flow.is_bypassed = false;
            flow.has_other_rules = [true; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_says_little_and_holds_much_is_weighed_when_others_have_spoken() {
        let mut slab = Slab::new(1000);
        let speak = |slab: &mut Slab, slot: &mut FlowSlot, bytes: u64, holds: usize| {
            let flow = slab.at(slot).unwrap();
            flow.bytes[0] += bytes;
            flow.note(&Change::Text(0, vec![0; holds]));
            slab.weigh(*slot);
        };
        let mut slots = vec![FlowSlot::default(); 200];
        for slot in &mut slots {
            speak(&mut slab, slot, 5000, 0);
        }
        let before = slab.memory();
        for (number, slot) in (1..).zip(&mut slots) {
            speak(&mut slab, slot, 100, 100_000);
            let known = (slab.memory() - before) / 100_000;
            assert!(known + LISTED_MAX >= number, "{known} of {number}");
        }
        for slot in slots {
            slab.release(slot);
        }
        assert_eq!(slab.memory(), 0);
    }
}
