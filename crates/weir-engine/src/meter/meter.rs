//! The meter: every packet is counted here once, whatever its fate.
//!
//! Work per packet is bounded: one look-up for a queue-pair packet (its 5-tuple's place is kept
//! with the conversation), one for any other. Nothing walks a table: idle entries stand at the end
//! of the order of activity, and [`Meter::expire`] takes a few of them per call. A record whose
//! active timeout has passed leaves with the next packet of its flow.

use std::collections::VecDeque;

use weir_wire::bth::Opcode;
use weir_wire::frame::Time;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{Encapsulation, Parsed, Rdma, Transport};

use super::counters::{QueuePairs, Totals};
use super::record::{ConversationRecord, FlowRecord, Record};
use super::train::Train;
use crate::flow::table::Entered;
use crate::flow::{FlowDirection, FlowEntry, FlowHandle, FlowKey, FlowTable, HashSeed, Reason};
use crate::rdma::cm::{Connection, Contradiction};
use crate::rdma::loss::{Charged, Finding, OwnLosses};
use crate::rdma::qp::RdmaPacket;
use crate::rdma::{
    Conversation, ConversationHandle, ConversationTable, LossWay, QueuePairKey, StageData,
};
use crate::verdict::Side;

/// Bounds and timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterLimits {
    /// 5-tuples at once; each takes at most 400 bytes. At the bound the least recently active
    /// leaves.
    pub flows_max: usize,
    /// Queue-pair conversations at once; each takes at most 1 KiB. At the bound, likewise.
    pub conversations_max: usize,
    /// Records that wait to be taken, of each kind. At the bound further ones are lost and counted.
    pub records_max: usize,
    /// A record ends when its flow has been silent for this long, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// A record ends when it has run for this long, in nanoseconds.
    pub active_timeout_ns: u64,
}

impl Default for MeterLimits {
    /// For a gateway: room for a large RDMA cluster's node (65,536 conversations), the timeouts
    /// that collectors expect (15 s idle, 30 s active).
    fn default() -> Self {
        Self {
            flows_max: 1 << 17,
            conversations_max: 1 << 16,
            records_max: 1 << 12,
            idle_timeout_ns: 15_000_000_000,
            active_timeout_ns: 30_000_000_000,
        }
    }
}

impl MeterLimits {
    /// For capture files: no timeout, so that a flow is one record; a million of each.
    pub fn for_captures() -> Self {
        Self {
            flows_max: 1 << 20,
            conversations_max: 1 << 20,
            idle_timeout_ns: u64::MAX,
            active_timeout_ns: u64::MAX,
            ..Self::default()
        }
    }
}

/// Whether to compute a packet's ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Icrc {
    /// Compute and compare it: reads every byte of the packet.
    Check,
    /// Count it as unchecked.
    Skip,
}

/// One packet, as the meter wants it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// When it was received.
    pub now: Time,
    /// Side of the gateway that it came in by; `None` for captures.
    pub side: Option<Side>,
    /// The frame that was parsed.
    pub bytes: &'a [u8],
    /// What the walk found in it.
    pub parsed: &'a Parsed,
    /// Its length on the wire.
    pub original_len: u32,
    /// Packets that it stands for: 1, or a super-packet's segments.
    pub segments: u32,
    /// Whether to compute its ICRC.
    pub icrc: Icrc,
}

/// Where a packet was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Its 5-tuple, for IP packets.
    pub flow: Option<FlowHandle>,
    /// Its queue-pair conversation, for RDMA packets.
    pub conversation: Option<ConversationHandle>,
    /// Which of the conversation's directions it is of: 0, the first, or 1.
    pub direction: u8,
    /// What its ICRC turned out to be; `None` when it is not RDMA.
    pub icrc: Option<IcrcStatus>,
}

/// Where the packets of one flow are counted that come one after another: spares all but the first
/// the look-up. Who keeps it knows that they are of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowPlace(pub(super) Option<(FlowHandle, FlowDirection)>);

impl FlowPlace {
    #[inline]
    pub(crate) fn handle(self) -> Option<FlowHandle> {
        self.0.map(|(handle, _)| handle)
    }
}

/// Counts packets; see the module.
#[derive(Debug)]
pub struct Meter {
    pub(super) limits: MeterLimits,
    seed: HashSeed,
    pub(super) totals: Totals,
    queue_pairs: QueuePairs,
    pub(super) flows: FlowTable,
    pub(super) conversations: ConversationTable,
    own_losses: OwnLosses,
    pub(super) train: Train,
    pub(super) waiting: Waiting,
}

/// Records that wait to be taken.
#[derive(Debug)]
pub(super) struct Waiting {
    flows: VecDeque<FlowRecord>,
    conversations: VecDeque<ConversationRecord>,
    max: usize,
    lost: u64,
    flows_evicted: u64,
    conversations_evicted: u64,
}

impl Meter {
    /// A meter whose tables are keyed by `seed` (128 random bits). Memory is reserved for the
    /// limits and touched as it fills.
    pub fn new(limits: MeterLimits, seed: u128) -> Self {
        let seed = HashSeed::new(seed);
        Self {
            limits,
            seed,
            totals: Totals::default(),
            queue_pairs: QueuePairs::new(limits.conversations_max),
            flows: FlowTable::new(limits.flows_max, seed),
            conversations: ConversationTable::new(limits.conversations_max, seed),
            own_losses: OwnLosses::default(),
            train: Train::default(),
            waiting: Waiting {
                flows: VecDeque::new(),
                conversations: VecDeque::new(),
                max: limits.records_max,
                lost: 0,
                flows_evicted: 0,
                conversations_evicted: 0,
            },
        }
    }

    /// Counts a packet.
    #[inline]
    pub fn observe(&mut self, packet: &Observation<'_>) -> Observed {
        self.observe_at(packet, &mut FlowPlace::default())
    }

    /// Counts a packet of the flow that `place` is of, or of any when that is empty; afterwards it
    /// is of this packet's.
    #[inline]
    pub(crate) fn observe_at(
        &mut self,
        packet: &Observation<'_>,
        place: &mut FlowPlace,
    ) -> Observed {
        self.end_train();
        let is_cut = (packet.original_len as usize) > packet.bytes.len();
        let segments = u64::from(packet.segments.max(1));
        self.totals.count(packet.parsed, segments, packet.original_len, is_cut);
        match &packet.parsed.rdma {
            Some(rdma) => self.observe_rdma(packet, rdma),
            None => {
                let flow = match place.0 {
                    Some((handle, way)) if self.count_flow(handle, way, packet) => Some(handle),
                    _ => {
                        place.0 = self.observe_flow(packet);
                        place.0.map(|(handle, _)| handle)
                    }
                };
                Observed { flow, ..Observed::default() }
            }
        }
    }

    /// Totals so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals;
        totals.flows_evicted = self.waiting.flows_evicted;
        totals.conversations_evicted = self.waiting.conversations_evicted;
        totals.records_lost = self.waiting.lost;
        totals.rdma.queue_pairs = self.queue_pairs.count();
        totals.rdma.conversations = self.conversations.begun();
        totals.rdma.pairings_ambiguous = self.conversations.ambiguous();
        totals
    }

    /// Its bounds and timeouts.
    pub fn limits(&self) -> &MeterLimits {
        &self.limits
    }

    /// The flows under way.
    pub fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// The queue-pair conversations under way.
    pub fn conversations(&self) -> &ConversationTable {
        &self.conversations
    }

    /// Hands over the records that wait, after ending up to `entries_max` idle flows and as many
    /// idle conversations. Call it once per batch: the work is bounded by `entries_max`.
    ///
    /// Returns whether there may be more of them.
    ///
    /// An entry whose last packet lies in the future (the clock was set back) starts anew at `now`.
    pub fn expire(
        &mut self,
        now: Time,
        entries_max: usize,
        take: &mut dyn FnMut(Record<'_>),
    ) -> bool {
        let mut visited = [0; 2];
        for _ in 0..entries_max {
            let Some(oldest) = self.flows.oldest() else { break };
            let Some(entry) = self.flows.entry_mut(oldest) else { break };
            if entry.last > now {
                entry.last = now;
                self.flows.touch(oldest, now);
            } else if now.since_ns(entry.last) < self.limits.idle_timeout_ns {
                break;
            } else if let Some(entry) = self.flows.take(oldest) {
                self.waiting.add_flow(entry, Reason::Idle);
            }
            visited[0] += 1;
        }
        for _ in 0..entries_max {
            let Some(oldest) = self.conversations.oldest() else { break };
            let Some(entry) = self.conversations.entry_mut(oldest) else { break };
            if entry.last() > now {
                entry.rewind_to(now);
                self.conversations.touch(oldest, now);
            } else if now.since_ns(entry.last()) < self.limits.idle_timeout_ns {
                break;
            } else if let Some(entry) = self.conversations.take(oldest) {
                self.waiting.add_conversation(entry, Reason::Idle);
            }
            visited[1] += 1;
        }
        self.waiting.drain(take);
        visited.contains(&entries_max)
    }

    /// Ends every record and hands all over; the tables are empty afterwards.
    pub fn flush(&mut self, take: &mut dyn FnMut(Record<'_>)) {
        self.waiting.drain(take);
        while let Some(oldest) = self.flows.oldest() {
            if let Some(entry) = self.flows.take(oldest).filter(|entry| entry.is_counting()) {
                take(Record::Flow(&FlowRecord::of(entry, Reason::Flushed)));
            }
        }
        while let Some(oldest) = self.conversations.oldest() {
            if let Some(entry) = self.conversations.take(oldest).filter(|one| one.is_counting()) {
                let record = ConversationRecord::of(entry, Reason::Flushed);
                take(Record::Conversation(&record));
            }
        }
    }

    #[inline]
    pub(super) fn observe_flow(
        &mut self,
        packet: &Observation<'_>,
    ) -> Option<(FlowHandle, FlowDirection)> {
        let (key, direction) = FlowKey::of(packet.parsed)?;
        if let Some((handle, entry)) = self.flows.recent(&key, packet.now) {
            count(entry, direction, packet, &self.limits, &mut self.waiting);
            return Some((handle, direction));
        }
        let handle = self.enter_flow(&key, direction, packet.now, packet.side);
        self.count_flow(handle, direction, packet);
        Some((handle, direction))
    }

    /// A flow that was not seen lately, and mostly never.
    #[inline(never)]
    pub(super) fn enter_flow(
        &mut self,
        key: &FlowKey,
        direction: FlowDirection,
        now: Time,
        side: Option<Side>,
    ) -> FlowHandle {
        let waiting = &mut self.waiting;
        let mut leave = |entry: &FlowEntry| waiting.evict_flow(entry);
        match self.flows.enter(key, direction, now, side, &mut leave) {
            Entered::Known(handle) => handle,
            Entered::New(handle) => {
                self.totals.flows += 1;
                handle
            }
        }
    }

    /// Counts a packet of a known flow; says whether the flow is still there.
    #[inline]
    fn count_flow(
        &mut self,
        handle: FlowHandle,
        direction: FlowDirection,
        packet: &Observation<'_>,
    ) -> bool {
        let Some(entry) = self.flows.touch(handle, packet.now) else { return false };
        count(entry, direction, packet, &self.limits, &mut self.waiting);
        true
    }

    #[inline]
    fn observe_rdma(&mut self, packet: &Observation<'_>, rdma: &Rdma) -> Observed {
        let icrc = match packet.icrc {
            Icrc::Check => icrc::check(packet.bytes, packet.parsed),
            Icrc::Skip => IcrcStatus::Unchecked,
        };
        self.totals.rdma.count(rdma, packet.original_len, icrc);
        let rdma_packet = rdma_packet(packet, rdma, icrc);
        let waiting = &mut self.waiting;
        let timeout = self.limits.active_timeout_ns;
        let mut leave = |entry: &Conversation, reason| waiting.end_conversation(entry, reason);
        let observed = self.conversations.observe(&rdma_packet, timeout, &mut leave);
        self.totals.rdma.notice(&observed.noticed);
        if let Some(charged) = observed.noticed.charged {
            self.settle(observed.handle, observed.side, charged, packet.now);
        }
        if observed.is_new_destination && rdma.opcode != Opcode::CNP {
            self.note_queue_pair(observed.handle, observed.side);
        }
        let flow = match rdma.encapsulation {
            Encapsulation::RoceV2 => self.observe_flow_of(&observed, packet),
            _ => None,
        };
        let (conversation, direction) = (Some(observed.handle), observed.side as u8);
        Observed { flow, conversation, direction, icrc: Some(icrc) }
    }

    /// Whether connection managers' messages are taken in by [`Meter::learn`] alone.
    pub(crate) fn set_learns_when_told(&mut self, is_told: bool) {
        self.conversations.learns_when_told = is_told;
    }

    /// Takes in a connection manager's message that was counted, and passes; returns the
    /// connection that it completes.
    pub(crate) fn learn(
        &mut self,
        packet: &Observation<'_>,
    ) -> Result<Option<Connection>, Contradiction> {
        let Some(rdma) = packet.parsed.rdma.as_ref() else { return Ok(None) };
        let packet = rdma_packet(packet, rdma, IcrcStatus::Unchecked);
        let waiting = &mut self.waiting;
        let mut leave = |entry: &Conversation, reason| waiting.end_conversation(entry, reason);
        self.conversations.learn(&packet, &mut leave)
    }

    /// What a later stage keeps of a direction of a conversation.
    #[inline]
    pub(crate) fn stage_data(
        &mut self,
        conversation: ConversationHandle,
        direction: u8,
    ) -> Option<&mut StageData> {
        self.conversations.stage_data(conversation, usize::from(direction))
    }

    /// What was kept of a direction that left before is void.
    pub(crate) fn forget_departed(&mut self, key: &QueuePairKey) {
        self.conversations.forget_departed(key);
    }

    /// A number for the stage data that is written from now on: that of other numbers is void.
    pub(crate) fn next_round(&mut self) -> u16 {
        self.conversations.next_round()
    }

    /// The secret of its tables.
    pub(crate) fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Counts packets that a port lost, not known which. Gaps that show within a second are charged
    /// to the gateway and not to its neighbours, as many as there were packets.
    pub fn note_own_loss(&mut self, way: LossWay, side: Side, packets: u64, now: Time) {
        self.own_losses.note(way, side, packets, now);
    }

    /// Counts that the gateway dropped a packet that [`Meter::observe`] was told of.
    #[cold]
    pub fn note_drop(&mut self, packet: &Observation<'_>) {
        let Some(rdma) = &packet.parsed.rdma else { return };
        let packet = rdma_packet(packet, rdma, IcrcStatus::Unchecked);
        if let Some((handle, side, charged)) = self.conversations.charge_drop(&packet) {
            self.settle(handle, side, charged, packet.now);
        }
    }

    /// Counts what a packet of direction `side` showed, having looked whether it was our own doing.
    #[cold]
    pub(super) fn settle(
        &mut self,
        handle: ConversationHandle,
        side: usize,
        charged: Charged,
        now: Time,
    ) {
        let Some(conversation) = self.conversations.entry_mut(handle) else { return };
        let side = side ^ usize::from(charged.is_of_other);
        let ingress = conversation.ingress(side);
        let own = match (charged.finding, ingress) {
            (Finding::Before(packets), Some(ingress)) => {
                self.own_losses.claim(LossWay::In, ingress, packets, now)
            }
            (Finding::After, Some(ingress)) => {
                self.own_losses.claim(LossWay::Out, ingress.opposite(), 1, now)
            }
            _ => 0,
        };
        if own > 0 {
            conversation.direction_mut(side).counters.losses.own_up(charged.finding, own);
        }
        self.totals.rdma.charge(ingress.unwrap_or(Side::Host), charged.finding, own);
    }

    #[cold]
    fn note_queue_pair(&mut self, handle: ConversationHandle, side: usize) {
        if let Some(direction) = self
            .conversations
            .entry_mut(handle)
            .map(|conversation| conversation.direction_mut(side))
        {
            direction.is_destination_noted = true;
            self.queue_pairs.note(&direction.key, &self.seed);
        }
    }

    /// Counts a queue-pair packet in its 5-tuple, whose place its conversation remembers.
    #[inline]
    fn observe_flow_of(
        &mut self,
        observed: &crate::rdma::table::Observed,
        packet: &Observation<'_>,
    ) -> Option<FlowHandle> {
        let Transport::Udp { source, .. } = packet.parsed.transport else { return None };
        let conversation = self.conversations.entry_mut(observed.handle)?;
        let direction = conversation.direction_mut(observed.side);
        if let Some((handle, way)) = direction.flow(source)
            && self.count_flow(handle, way, packet)
        {
            return Some(handle);
        }
        let (handle, way) = self.observe_flow(packet)?;
        let conversation = self.conversations.entry_mut(observed.handle)?;
        let direction = conversation.direction_mut(observed.side);
        direction.set_flow(handle, way, source);
        Some(handle)
    }
}

#[inline]
pub(super) fn rdma_packet<'a>(
    packet: &Observation<'a>,
    rdma: &'a Rdma,
    icrc: IcrcStatus,
) -> RdmaPacket<'a> {
    RdmaPacket {
        now: packet.now,
        side: packet.side,
        bytes: packet.bytes,
        parsed: packet.parsed,
        rdma,
        wire_len: packet.original_len,
        icrc,
    }
}

/// Ends the record of a flow that has run for the active timeout, and begins its next.
#[inline]
pub(super) fn end_record_when_due(
    entry: &mut FlowEntry,
    now: Time,
    limits: &MeterLimits,
    waiting: &mut Waiting,
) {
    if now.since_ns(entry.started) >= limits.active_timeout_ns && entry.is_counting() {
        waiting.add_flow(entry, Reason::Active);
        entry.restart(now);
    }
}

/// Counts a packet of a flow, whose record ends first when it has run for long enough.
#[inline]
fn count(
    entry: &mut FlowEntry,
    direction: FlowDirection,
    packet: &Observation<'_>,
    limits: &MeterLimits,
    waiting: &mut Waiting,
) {
    end_record_when_due(entry, packet.now, limits, waiting);
    let packets = u64::from(packet.segments.max(1));
    entry.count(direction, packet.now, packet.parsed, packets, packet.original_len);
}

impl Waiting {
    #[cold]
    pub(super) fn add_flow(&mut self, entry: &FlowEntry, reason: Reason) {
        if !entry.is_counting() {
            return;
        }
        match self.flows.len() < self.max {
            true => self.flows.push_back(FlowRecord::of(entry, reason)),
            false => self.lost += 1,
        }
    }

    fn add_conversation(&mut self, entry: &Conversation, reason: Reason) {
        if !entry.is_counting() {
            return;
        }
        match self.conversations.len() < self.max {
            true => self.conversations.push_back(ConversationRecord::of(entry, reason)),
            false => self.lost += 1,
        }
    }

    pub(super) fn evict_flow(&mut self, entry: &FlowEntry) {
        self.flows_evicted += 1;
        self.add_flow(entry, Reason::Evicted);
    }

    pub(super) fn end_conversation(&mut self, entry: &Conversation, reason: Reason) {
        self.conversations_evicted += u64::from(reason == Reason::Evicted);
        self.add_conversation(entry, reason);
    }

    fn drain(&mut self, take: &mut dyn FnMut(Record<'_>)) {
        while let Some(record) = self.flows.pop_front() {
            take(Record::Flow(&record));
        }
        while let Some(record) = self.conversations.pop_front() {
            take(Record::Conversation(&record));
        }
    }
}
