//! One worker's detector: every packet of its flows, one after the other.

mod asked;
mod limits;
mod told;

use std::sync::Arc;

use weir_wire::frame::{Link, Time};
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::{Network, Parsed, Transport};

use crate::alert::{Alerts, Text};
use crate::application::Expected;
use crate::behaviour::{Flood, Watcher};
use crate::checksums;
use crate::decode::{self, Event};
use crate::digest::FileDigests;
use crate::evaluate::Evaluator;
use crate::flow::{Flow, FlowSlot, Slab};
use crate::matcher::MatcherError;
use crate::packet::{View, Vlans};
use crate::record::AnomalyRecord;
use crate::rule::RuleIndex;
use crate::ruleset::RuleSet;
use crate::session::Closing;
use crate::shared::{OtherRules, SharedCounts};
pub use limits::{AsSuricata, Limits, Timeouts};

/// Who sent a packet: the sender of its flow's first packet, or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rules say: to the server.
    Initiator,
    /// Rules say: to the client.
    Responder,
}

impl Direction {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Initiator => 0,
            Self::Responder => 1,
        }
    }
}

/// A packet in clear, whole.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// From the link header on.
    pub bytes: &'a [u8],
    /// What the walk over `bytes` found.
    pub parsed: &'a Parsed,
    /// What a decoder has found before that sees more than one packet; none at the joint, where
    /// the detector looks itself.
    pub decoded: Option<Decoded<'a>>,
    /// It was put together from fragments.
    pub is_rebuilt: bool,
    /// Its transport checksum is right, or is left to an adapter: who received it knows that.
    pub is_verified: bool,
    /// What a check of an RDMA packet's ICRC found, where there was one before.
    pub icrc: Option<IcrcStatus>,
    /// By which of two ports it came, 0 or 1, where each end of a flow is beyond one of them: who
    /// speaks in another's name from the wrong side is of another flow.
    pub port: Option<u8>,
}

/// What a decoder knows of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a> {
    /// The VLANs that it is in.
    pub vlans: Vlans,
    /// What is odd about it.
    pub events: &'a [Event],
    /// Rules look at no payload of it: it carries a packet that they look at.
    pub is_carrier: bool,
    /// Where what rules see of it begins and ends, where that is not as it was parsed.
    pub payload: Option<[usize; 2]>,
}

impl<'a> Decoded<'a> {
    /// Of a packet in such VLANs, about which these are odd.
    pub fn new(vlans: Vlans, events: &'a [Event]) -> Self {
        Self { vlans, events, is_carrier: false, payload: None }
    }
}

/// What rules have noted of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// Names of the bits that are set.
    pub bits: Vec<String>,
    /// Counters (`flowint`) and where they stand.
    pub counters: Vec<(String, i64)>,
    /// The last entropy of each buffer that they asked for, in bits a byte, by the names that
    /// Suricata's events have.
    pub entropies: Vec<(String, f64)>,
    /// What their expressions captured of the flow, and of the packet at hand.
    pub texts: Vec<Text>,
}

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on.
    Pass,
    /// It goes no further.
    Drop {
        /// The rule that says so.
        rule: RuleIndex,
    },
    /// It goes no further, and its sender is to be told.
    Reject {
        /// The rule that says so.
        rule: RuleIndex,
    },
    /// It goes no further, for its flow cannot be looked at: see [`Limits`].
    Unseen(Unseen),
}

/// Why a flow cannot be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Its connection began before, or was forgotten since.
    Beginning,
    /// More waits behind a gap in it than is kept.
    Gap,
    /// It has other bytes than came before in the same place, and nobody knows which of them its
    /// receiver takes.
    Conflict,
    /// The parser of its application has given up, with this packet or an earlier one of its flow.
    ParserError,
}

/// What a detector has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets looked at.
    pub packets: u64,
    /// Packets that a rule dropped, or the flow of which one has dropped before.
    pub dropped: u64,
    /// Of those, packets whose sender is to be told.
    pub rejected: u64,
    /// Alerts, those included that found no room.
    pub alerts: u64,
    /// Matches that are not told: a threshold, or the rule itself, says so.
    pub suppressed: u64,
    /// Rules looked at in full.
    pub evaluations: u64,
    /// Packets whose flow found no slot.
    pub packets_without_slot: u64,
    /// Rules that were not looked at: too many for one packet.
    pub candidates_lost: u64,
    /// Looks that were given up after too many tries.
    pub evaluations_given_up: u64,
    /// Regular expressions that ran into their limit.
    pub pcre_limits: u64,
    /// TCP segments with a wrong checksum, which are no part of their connection.
    pub wrong_checksums: u64,
    /// Packets of RDMA with a wrong ICRC, which are no pieces of operations and no evidence.
    pub wrong_icrcs: u64,
    /// TCP segments that their receiver does not take for their sequence number, acknowledgment,
    /// for want of one, or for their timestamp (RFC 9293 s3.10.7.4, RFC 7323 s5.3): no part of
    /// their stream.
    pub unacceptable_segments: u64,
    /// Gaps in streams that were given up.
    pub stream_gaps: u64,
    /// TCP segments with bytes in the place of others that came before, and those of them that are
    /// said to have other bytes.
    pub stream_overlaps: [u64; 2],
    /// Streams that have reached [`Limits::stream_depth`].
    pub stream_depths: u64,
    /// Bits, integers, texts and values of sets that found no room.
    pub bits_lost: u64,
    /// Texts that are not replaced, for too many are in one packet.
    pub replacements_lost: u64,
    /// Matches that a threshold had no room to count.
    pub thresholds_lost: u64,
    /// Packets that were not looked at: their flow was looked at for long enough.
    pub bypassed: u64,
    /// What was odd about packets, where somebody wants to know.
    pub anomalies: u64,
    /// Of that, what found no room.
    pub anomalies_lost: u64,
}

/// One worker's detector: state by flow in a bounded slab, and the rules that all workers share.
#[derive(Debug)]
pub struct Detector {
    rules: Arc<RuleSet>,
    flows: Slab,
    /// Stands in for the flow of a packet that found no slot.
    spare: Flow,
    pub(crate) evaluator: Evaluator,
    /// What rules have watched over many packets; `None`: nothing.
    watcher: Option<Box<Watcher>>,
    seed: u64,
    /// The last packet's flow is looked at no further.
    is_settled: bool,
    /// How the last packet stood in its connection.
    place: Place,
    /// The packet at hand was looked at before, as RDMA, and is counted.
    is_again: bool,
    /// What was odd about packets, and how much of it may wait.
    anomalies: Vec<AnomalyRecord>,
    anomalies_max: usize,
    /// Whether other detectors count together with this one.
    is_one_of_several: bool,
    /// What others of them count whose rules are not these.
    other_rules: OtherRules,
}

impl Detector {
    /// A detector with `rules` and no flow yet.
    ///
    /// # Errors
    /// The matcher has no memory for its scans.
    pub fn new(rules: Arc<RuleSet>, limits: Limits) -> Result<Self, MatcherError> {
        let evaluator = Evaluator::new(&rules, limits)?;
        let flows = Slab::new(limits.flows);
        let mut new = Self {
            rules,
            flows,
            spare: Flow::default(),
            evaluator,
            watcher: None,
            seed: limits.seed,
            is_settled: false,
            place: Place::default(),
            is_again: false,
            anomalies: Vec::new(),
            anomalies_max: 0,
            is_one_of_several: false,
            other_rules: OtherRules::default(),
        };
        new.keep_anomalies(limits.anomalies);
        new.set_digests(limits.digests);
        new.swap_watches();
        Ok(new)
    }

    /// Goes on with other rules. Flows keep their slots; a flow that a rule has dropped stays
    /// dropped if that rule (by sid) is still there and still drops. Bits (by their names), counts
    /// and thresholds (by sid) stay; rules that wait for more begin anew.
    ///
    /// # Errors
    /// The matcher has no memory for its scans; the rules before run on.
    pub fn swap(&mut self, rules: Arc<RuleSet>) -> Result<(), MatcherError> {
        let successors = rules.successors(&self.rules);
        let sets = self.evaluator.swap(&rules, &successors)?;
        self.evaluator.forget();
        self.evaluator.forget_tags();
        self.flows.change_rules(&successors, &rules);
        let ahead = self.other_rules.swap(&rules, &self.rules, successors, sets);
        self.rules = rules;
        self.swap_watches();
        for (then, shared) in ahead {
            self.add_shared(then, &shared);
        }
        Ok(())
    }

    fn swap_watches(&mut self) {
        let watches = self.rules.watches();
        match &mut self.watcher {
            _ if watches.is_empty() => self.watcher = None,
            Some(watcher) => watcher.swap(watches),
            None => self.watcher = Some(Box::new(Watcher::new(watches, self.seed))),
        }
        if self.is_one_of_several {
            self.share();
        }
    }

    /// Keeps what it counts over flows for other detectors from now on, which have the same rules
    /// and seed: see [`Detector::take_shared`].
    pub fn share(&mut self) {
        self.is_one_of_several = true;
        self.evaluator.share();
        if let Some(watcher) = &mut self.watcher {
            watcher.share();
        }
    }

    /// What it counted since this was asked last: thresholds and rates of rules, bits of hosts,
    /// values of sets, floods, scans, what sources were marked by. `None`: nothing.
    pub fn take_shared(&mut self) -> Option<SharedCounts> {
        let watched = self.watcher.as_mut().map(|it| it.take_shared()).unwrap_or_default();
        let shared = self.evaluator.take_shared(Arc::clone(&self.rules), watched);
        (!shared.is_empty()).then_some(shared)
    }

    /// Adds what another detector counted, by the same rules or those before. If it has taken the
    /// next already, that waits for them.
    pub fn add_shared(&mut self, now: Time, shared: &SharedCounts) {
        if !Arc::ptr_eq(&self.rules, &shared.rules) {
            if let Some(renamed) = self.other_rules.take(now, shared) {
                self.evaluator.add_shared(now, &renamed);
            }
            return;
        }
        self.evaluator.add_shared(now, shared);
        if let Some(watcher) = &mut self.watcher {
            watcher.add_shared(now, &shared.watched);
        }
    }

    /// The rules that run.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.evaluator.counters
    }

    /// Bytes of memory that flows hold for what they say.
    pub fn memory(&self) -> usize {
        self.flows.memory()
    }

    /// How many flows have a slot.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Looks at one packet. `slot` is its flow's, which gets one with its first packet; `direction`
    /// tells who sent it. Alerts go to `alerts`.
    pub fn inspect(
        &mut self,
        now: Time,
        slot: &mut FlowSlot,
        direction: Direction,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        self.evaluator.forget();
        self.evaluator.has_room = self.flows.memory() < self.evaluator.limits.memory / 2;
        let datagram = packet.parsed.datagram(packet.bytes);
        let packet = &Packet { parsed: datagram.as_ref().unwrap_or(packet.parsed), ..*packet };
        let decision = self.look(now, slot, direction, packet, alerts);
        self.end_applications(now, *slot);
        let conversation = self.flows.taken_mut(*slot).and_then(|it| it.conversation.as_mut());
        let waits = self.evaluator.limits.waits_for_acknowledgment;
        match conversation.is_some_and(|it| !waits && it.let_go_if_over()) {
            true => self.flows.weigh_now(*slot),
            false => self.flows.weigh(*slot),
        }
        if decision != Decision::Pass {
            return decision;
        }
        let limits = &self.evaluator.limits;
        let flow = self.flows.taken(*slot);
        let is_midstream = || flow.is_some_and(Flow::is_midstream);
        // One datagram that cannot be read says nothing of the next, and anybody can forge one.
        let is_stream = matches!(packet.parsed.transport, Transport::Tcp { .. });
        let is_odd = is_stream || self.evaluator.parser_error.is_some();
        let has_failed = || is_odd && flow.is_some_and(Flow::is_unreadable);
        let refused = match self.evaluator.refused {
            None if limits.refuses_midstream && is_midstream() => Some(Unseen::Beginning),
            None if limits.refuses_parser_errors && has_failed() => Some(Unseen::ParserError),
            refused => refused,
        };
        let Some(why) = refused else { return Decision::Pass };
        let cuts_off = why == Unseen::ParserError && !limits.only_watches;
        let cuts_datagrams = limits.as_suricata.cuts_datagrams;
        if let Some(flow) = self.flows.at(slot) {
            flow.is_cut_off |= cuts_off && (is_stream || cuts_datagrams);
            let view = View::new(packet.bytes, packet.parsed, Vlans::of(packet.parsed), &[]);
            let reason = if cuts_off { "applayer error" } else { "stream error" };
            self.evaluator.note_drop(now, reason, &view, flow, direction);
        }
        Decision::Unseen(why)
    }

    /// Has a flow whose parser has given up go on nevertheless: it is of a host that is let pass.
    pub fn excuse(&mut self, slot: &mut FlowSlot) {
        if let Some(flow) = self.flows.at(slot) {
            flow.excuse();
        }
    }

    /// Has a flow go on that a rule has dropped with a packet of a host that is let pass.
    pub fn forgive(&mut self, slot: &mut FlowSlot) {
        if let Some(flow) = self.flows.at(slot) {
            flow.forgive();
        }
    }

    /// Has all flows go on: what rules have said of them so far dropped nothing.
    pub fn forgive_all(&mut self) {
        self.flows.forgive_all();
    }

    fn has_nothing_to_do(&self) -> bool {
        let Evaluator { records, limits, .. } = &self.evaluator;
        self.rules.is_empty() && records.is_none() && !limits.refuses_parser_errors
    }

    fn look(
        &mut self,
        now: Time,
        slot: &mut FlowSlot,
        direction: Direction,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        (self.is_settled, self.place) = (false, Place::default());
        if self.has_nothing_to_do() {
            return Decision::Pass;
        }
        let Self { rules, flows, spare, evaluator, watcher, .. } = self;
        let mut watcher = watcher.as_mut().filter(|_| !self.is_again);
        let wants_events = rules.needs().events || evaluator.tells_events;
        let own = own_events(packet, wants_events);
        let decoded =
            packet.decoded.unwrap_or_else(|| Decoded::new(Vlans::of(packet.parsed), &own));
        let flow = flows.at(slot).unwrap_or_else(|| {
            evaluator.counters.packets_without_slot += 1;
            *spare = Flow::default();
            spare
        });
        let limits = Some(&evaluator.limits).filter(|it| !flow.is_settled(it));
        let view = View::of(packet, &decoded).checked(limits);
        view.count_wrong(&mut evaluator.counters);
        let mut events = Vec::new();
        evaluator.begin();
        let mut place = Place::default();
        if (packet.decoded.is_some() || wants_events) && may_follow(flow, &view) {
            let found = &mut evaluator.stream_events;
            place = follow(flow, direction, &view, &evaluator.limits, found);
            events = [decoded.events, found].concat();
        }
        self.place = place;
        let events = if events.is_empty() { view.events } else { &events };
        let is_refused = place.is_refused || place.is_ignored;
        let mut view = View { events, is_refused, closing: place.closing, ..view };
        flow.update(now, direction, &view, &evaluator.limits);
        if let Some(watcher) = &mut watcher {
            view.signs = watcher.look(now, flow, direction, &view);
        }
        // Who watches queue pairs, or for floods, counts every packet of theirs.
        let may_settle = (view.is_tcp() || watcher.is_none()) && view.signs == 0;
        if !flow.take_other_rules(direction) && may_settle && flow.is_settled(&evaluator.limits) {
            flow.conversation = None;
            evaluator.counters.packets += 1;
            evaluator.counters.bypassed += 1;
            flow.bypass(direction, &view);
            self.is_settled = true;
            return Decision::Pass;
        }
        let told = alerts.len();
        let decision = evaluator.packet(rules, now, flow, direction, &view, alerts);
        if let (true, Some(watcher)) = (view.signs != 0, watcher) {
            watcher.tell_floods(rules, &view, alerts.from(told));
        }
        evaluator.counters.count(decision);
        if evaluator.tells_events {
            for event in evaluator.odd(decoded.events) {
                evaluator.counters.anomalies += 1;
                let has_room = self.anomalies.len() < self.anomalies_max;
                evaluator.counters.anomalies_lost += u64::from(!has_room);
                if has_room {
                    self.anomalies.push(AnomalyRecord::new(now, event, &view, flow, direction));
                }
            }
        }
        decision
    }

    /// Whether TCP segments with a wrong checksum are no part of their connection from now on.
    pub fn check_segments(&mut self, checks: bool) {
        self.evaluator.limits.checks_segments = checks;
    }

    /// What becomes from now on of packets whose flow cannot be looked at, as `limits` have it;
    /// of gaps and conflicts in connections that begin. And how much memory there is.
    pub fn refuse_as(&mut self, limits: &Limits) {
        let own = &mut self.evaluator.limits;
        own.refuses_midstream = limits.refuses_midstream;
        own.refuses_gaps = limits.refuses_gaps;
        own.refuses_conflicts = limits.refuses_conflicts;
        own.refuses_parser_errors = limits.refuses_parser_errors;
        own.only_watches = limits.only_watches;
        own.memory = limits.memory;
    }

    /// Whether a packet is a TCP segment that its receiver does not take: its checksum is wrong.
    pub(crate) fn is_spoiled(&self, packet: &Packet<'_>) -> bool {
        let limits = &self.evaluator.limits;
        let checks = limits.checks_segments && !packet.is_verified;
        checks && checksums::is_segment_wrong(packet.bytes, packet.parsed, limits)
    }

    /// Waits for announced connections together with others that have a clone of this.
    pub fn expect_with(&mut self, expected: Expected) {
        self.evaluator.expected = expected;
    }

    /// Flows of so many bytes are looked at no further from now on.
    pub fn set_bypass(&mut self, bytes: Option<u64>) {
        self.evaluator.limits.bypass_bytes = bytes;
    }

    /// Such digests of files are told from now on, whether or not a rule asks for them.
    pub fn set_digests(&mut self, digests: FileDigests) {
        self.evaluator.digests = digests;
    }

    /// Whether the last packet was of a flow that is looked at no further.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The flood that `rule` dropped a packet for, if the rule drops all of it and no rule lets
    /// packets pass that others drop: then it may be dropped before it is looked at, and
    /// [`Detector::dropped_early`] is to be told.
    pub fn flood(&mut self, rule: RuleIndex, parsed: &Parsed) -> Option<Flood> {
        let watch = self.rules.flood_of(rule)?;
        let [source, destination] = [parsed.source, parsed.destination].map(u128::from_be_bytes);
        self.watcher.as_mut()?.flood(watch, source, destination)
    }

    /// Takes in how many packets of a flood were dropped before they came here; whether it goes
    /// on.
    pub fn dropped_early(&mut self, now: Time, flood: &Flood, packets: u32) -> bool {
        self.watcher.as_mut().is_some_and(|it| it.dropped_early(now, flood, packets))
    }

    /// The sequence number of the first byte of the last packet's side that was looked at before
    /// and is another now, for its receiver.
    pub fn changed_from(&self) -> Option<u32> {
        self.evaluator.changed
    }

    /// Packets were looked at before from here on, or no more.
    pub(crate) fn set_again(&mut self, is_again: bool) {
        self.is_again = is_again;
    }

    /// Looks at a packet that belongs to no flow: rules that ask something of one do not match,
    /// but for `flow:to_server` alone.
    pub fn inspect_alone(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        let mut slot = FlowSlot::default();
        self.evaluator.is_alone = true;
        let decision = self.inspect(now, &mut slot, Direction::Initiator, packet, alerts);
        self.evaluator.is_alone = false;
        self.release(slot);
        decision
    }

    /// The last bytes of a side's stream of a flow: with `is_whole` those too that the receiver has
    /// not acknowledged.
    pub(crate) fn stream(
        &self,
        slot: FlowSlot,
        direction: Direction,
        is_whole: bool,
    ) -> Option<Vec<u8>> {
        let conversation = self.flows.taken(slot)?.conversation.as_ref()?;
        Some(conversation.told(direction.index(), is_whole))
    }

    pub(crate) fn holds_still(
        &mut self,
        slot: FlowSlot,
        direction: Direction,
        rule: RuleIndex,
    ) -> bool {
        let Some(flow) = self.flows.taken(slot) else { return true };
        let rule = self.rules.rule(rule);
        !rule.may_pass() || self.evaluator.holds_still(rule, flow, direction)
    }

    pub(crate) fn next_number(&self, slot: FlowSlot, direction: Direction) -> Option<u32> {
        let flow = self.flows.taken(slot)?;
        flow.session.as_ref()?.next(direction.index())
    }

    pub(crate) fn as_known(
        &self,
        slot: FlowSlot,
        direction: Direction,
        sequence: u32,
        bytes: &[u8],
    ) -> Option<(Vec<u8>, [bool; 2])> {
        let conversation = self.flows.taken(slot)?.conversation.as_ref()?;
        conversation.as_known(direction.index(), sequence, bytes)
    }

    /// The flow ended: its slot is free for another. A slot is handed back once.
    pub fn release(&mut self, slot: FlowSlot) {
        self.flows.release(slot);
    }
}

impl Counters {
    /// Counts a packet that was looked at.
    fn count(&mut self, decision: Decision) {
        self.packets += 1;
        self.dropped += u64::from(!matches!(decision, Decision::Pass | Decision::Unseen(_)));
        self.rejected += u64::from(matches!(decision, Decision::Reject { .. }));
    }
}

/// What a packet's bytes begin with: at the joint Ethernet, within a tunnel perhaps IP.
fn link(parsed: &Parsed) -> Link {
    match parsed.network {
        Network::Ipv4 | Network::Ipv6 if parsed.network_offset == 0 => Link::Ip,
        _ => Link::Ethernet,
    }
}

/// What is odd about a packet that nobody has taken apart, if that is wanted.
fn own_events(packet: &Packet<'_>, wanted: bool) -> Vec<Event> {
    match packet.decoded.is_none() && wanted {
        true => decode::look(packet.bytes, link(packet.parsed)),
        false => Vec::new(),
    }
}

/// Whether a packet may bring its flow's connection further: not what no receiver takes, or gets.
fn may_follow(flow: &Flow, view: &View<'_>) -> bool {
    view.is_tcp() && !view.is_spoiled && !flow.is_dropped() && !flow.told.is_left
}

/// How a segment stands in its connection.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// It has none, and goes no further.
    is_refused: bool,
    /// It is no part of it, though rules look at it by itself.
    is_ignored: bool,
    closing: Closing,
}

/// Follows the flow's connection by a segment; what is odd about that goes to `found`.
fn follow(
    flow: &mut Flow,
    direction: Direction,
    view: &View<'_>,
    limits: &Limits,
    found: &mut Vec<Event>,
) -> Place {
    let is_timely = flow.check_timestamps(direction, view);
    let (mut goes_on, mut closing) = (is_timely, Closing::None);
    match is_timely {
        // What comes too late is not taken into account.
        false => found.push(Event::StreamInvalidTimestamp),
        true => {
            let is_spoken = flow.told.application.is_some() || flow.told.has_failed;
            let session = flow.session.get_or_insert_default();
            session.speaks(is_spoken || !limits.as_suricata.wants_handshakes);
            found.extend(session.take(direction, view, limits));
            (goes_on, closing) = (!session.is_refused(), session.closing());
        }
    }
    let is_taken_up = limits.midstream && flow.is_taken_up();
    if is_taken_up {
        found.retain(|it| !it.is_without_session());
    }
    let is_known = flow.session.as_ref().is_some_and(|it| it.is_taken_up());
    goes_on |= is_taken_up && !is_known;
    let is_aside = found.iter().any(|it| it.is_of_segment_beside());
    let is_part = goes_on && closing != Closing::Behind && !is_aside;
    Place {
        is_refused: !goes_on && limits.refuses_invalid,
        is_ignored: !is_part && limits.as_suricata.ignores_invalid,
        closing,
    }
}
