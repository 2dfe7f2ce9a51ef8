//! Rules against a packet: which are worth a look, and which match.
//!
//! A packet is looked at up to three times over: as itself, as the newest piece of its stream, and
//! once for each message of an application that it brought further. Each look has its candidates -
//! rules whose fast pattern is there, and rules without one - in the order of evaluation.

mod consequences;
mod converse;
mod frames;
mod later;
mod looks;
mod matching;
mod messages;
mod oddities;
mod operations;
mod replacements;
mod sessions;
mod sharing;
mod tagging;
mod units;

pub(crate) use tagging::PutTag;

pub use replacements::Replacement;

use weir_wire::frame::Time;

use crate::alert::{Alerts, TransactionView};
use crate::application::Expected;
use crate::buffers;
use crate::buffers::event::AppEvent;
use crate::conversation::{Message, MessageUpdate, Progress};
use crate::dataset::Datasets;
use crate::decode::Event;
use crate::detector::{Counters, Decision, Direction, Limits, Unseen};
use crate::digest::FileDigests;
use crate::flow::{Flow, HeardStream};
use crate::hosts::Hosts;
use crate::inspect::{Bytes, Replaced, Texts, Variables};
use crate::matcher::{MatcherError, Scratch};
use crate::packet::View;
use crate::payload::{Kind, Transport};
use crate::record::{ApplicationRecord, DropRecord, HttpRecord, UnitRecord};
use crate::rule::{Buffer, Protocol, Rule, RuleIndex, Speaks, Speech};
use crate::ruleset::RuleSet;
use crate::session::Closing;
use crate::state::{HostBits, Thresholds};

/// Looks at packets with rules that it is given; keeps what is no flow's.
#[derive(Debug)]
pub(crate) struct Evaluator {
    pub(crate) limits: Limits,
    scratch: Scratch,
    candidates: Vec<RuleIndex>,
    host_bits: HostBits,
    thresholds: Thresholds,
    pub(crate) counters: Counters,
    /// Transactions of HTTP that ended, where somebody takes them.
    pub(crate) records: Option<Vec<HttpRecord>>,
    /// Messages of DNS and TLS, where somebody takes them.
    pub(crate) told: Option<Vec<ApplicationRecord>>,
    /// Transactions of other applications that ended, where somebody takes them.
    pub(crate) units: Option<Vec<UnitRecord>>,
    /// The transaction that is looked at.
    transaction: Option<TransactionView>,
    /// The number of the one of HTTP that is looked at.
    number: u64,
    /// The number, in its flow, of the transaction that rules look at.
    looked_at: Option<u64>,
    /// Messages so far that are a transaction each.
    messages: u64,
    /// Connections that were announced.
    pub(crate) expected: Expected,
    /// Whether streams are looked into for the sake of records alone.
    pub(crate) looks_for_records: bool,
    /// Whether frames are told of although no rule asks.
    pub(crate) tells_frames: bool,
    /// Whether what is odd is looked for although no rule asks.
    pub(crate) tells_events: bool,
    /// What was odd about the last packet in its stream.
    pub(crate) stream_events: Vec<Event>,
    /// What was odd about messages that the last packet brought further.
    pub(crate) app_events: Vec<(AppEvent, Option<u64>)>,
    /// With the last packet the parser of this, which is spoken in its flow, has given up.
    pub(crate) parser_error: Option<&'static str>,
    /// The last packet was dropped because its flow was before.
    pub(crate) by_flow: bool,
    /// It was dropped for its own side's sake.
    pub(crate) by_sender: bool,
    /// The last packet's payload is encrypted: no rule has seen it.
    pub(crate) is_opaque: bool,
    /// A rule has let the last packet pass.
    pub(crate) is_passed: bool,
    /// Which rule that was.
    pub(crate) passed_by: Option<RuleIndex>,
    /// The last rule that let pass, at once or later.
    passer: RuleIndex,
    /// A rule has let the packet at hand pass; with true the rest of its flow too.
    passes: Option<bool>,
    /// Rules about nothing but addresses that match the packet at hand.
    of_addresses: Vec<RuleIndex>,
    /// The packet at hand belongs to no flow.
    pub(crate) is_alone: bool,
    /// No rule is looked at: what is spoken is only told.
    is_mute: bool,
    /// Set where what rules about the stream do waits for its acknowledgment.
    heard: Option<HeardStream>,
    /// The packet at hand brings nothing, and all before is acknowledged: nothing waits for more.
    pub(crate) is_heard_out: bool,
    /// What the rule at hand does waits; with true, it is one about bytes, not about a message.
    puts_off: Option<bool>,
    /// The rule at hand matches so often that `rate_filter` says what it does.
    is_rated: bool,
    /// Why the last packet is none of its stream, and is to go no further.
    pub(crate) refused: Option<Unseen>,
    /// The last packet was dropped because a rule matched too often (`rate_filter`).
    pub(crate) by_rate: bool,
    /// The first in their order of the rules that drop the last packet.
    pub(crate) dropper: Option<RuleIndex>,
    /// Flows hold less than half of the memory that they may.
    pub(crate) has_room: bool,
    /// With the last packet its stream is as long as it may be, and rules that wait for what is
    /// acknowledged look at no more of it.
    pub(crate) reaches_depth: bool,
    /// What the hosts are that connections are between.
    pub(crate) hosts: Hosts,
    /// Digests of files that are told although no rule asks.
    pub(crate) digests: FileDigests,
    /// The number of the first byte of the last packet's stream, or behind a gap of it, that is
    /// another than the one looked at before.
    pub(crate) changed: Option<u32>,
    variables: Variables,
    /// What the expressions of the rule at hand captured.
    captured: Texts,
    /// Contents of the rule at hand that are to be replaced.
    replaced: Vec<Replaced>,
    /// Those of all rules that matched the packet at hand.
    pub(crate) replacements: Vec<Replacement>,
    /// Texts that rules captured of the packet at hand, by their names.
    of_packet: Vec<(u32, Vec<u8>)>,
    pub(crate) sets: Datasets,
    /// Entropies that rules reckoned with the packet at hand.
    entropies: Vec<later::Reckoned>,
    tagging: tagging::Tagging,
    /// Rules about packets whose bits were not as they ask.
    late: Vec<RuleIndex>,
    /// Rules about packets and streams that have matched the packet at hand.
    of_packet_too: Vec<RuleIndex>,
    /// Rules about messages whose fast pattern is in the packet.
    of_message: Vec<RuleIndex>,
    /// Rules about the stream whose fast pattern is in what the packet continues it with.
    of_stream: Vec<RuleIndex>,
    /// They were looked for with those about the packet.
    is_scanned: bool,
    /// Rules about an operation of which the packet at hand is a piece.
    of_operations: Vec<RuleIndex>,
    /// Those of them that matched.
    matched: Vec<RuleIndex>,
    /// Bits of the flow were put since the look at the packet.
    pub(crate) bits_put: bool,
    /// The first rule that put bits since then.
    first_putter: RuleIndex,
    /// There were alerts of the flow before the packet at hand.
    pub(crate) was_alerted: bool,
    /// The alerts of the packet at hand are those from here on.
    first_alert: usize,
    /// The packet at hand has brought its stream further.
    continues: bool,
    /// A rule about what its flow says drops the packet at hand alone.
    withholds: bool,
    /// The last packet, where it is dropped and no alert tells of it: see [`DropRecord`].
    pub(crate) untold_drop: Option<DropRecord>,
    /// Rules that would drop the last packet, if they were not only tried.
    pub(crate) would_drop: Vec<RuleIndex>,
}

/// The packet at hand, and what is known around it.
struct Scene<'a> {
    rules: &'a RuleSet,
    now: Time,
    direction: Direction,
    view: &'a View<'a>,
    application: Option<Protocol>,
    /// The one that rules about packets hear of.
    heard: Option<Protocol>,
    speech: Speech,
    /// The same, as rules about packets hear of it.
    speech_heard: Speech,
    /// Bytes of the two sides' streams so far, SYNs counted as one; `None`: nobody follows them.
    stream_sizes: Option<[u64; 2]>,
    /// With this packet it is decided what its side speaks.
    is_decided: bool,
}

impl<'a> Scene<'a> {
    /// What is known around a packet of that flow.
    fn around(
        rules: &'a RuleSet,
        now: Time,
        direction: Direction,
        view: &'a View<'a>,
        (flow, progress): (&mut Flow, &Progress),
        waits: bool,
    ) -> Self {
        // Of datagrams the first two of a side count, as for Suricata.
        let is_first = flow.packets[direction.index()] <= 2;
        let is_decided = if view.is_tcp() { progress.is_decided } else { is_first };
        let application = match (&flow.conversation, &flow.dialogue) {
            (Some(conversation), _) => conversation.protocol(),
            (None, Some(dialogue)) => Some(dialogue.protocol),
            // A datagram that is no message does not end what is spoken.
            (None, None) => {
                let is_dns = !progress.messages.is_empty()
                    || flow.told.application == Some(Protocol::Dns.name());
                is_dns.then_some(Protocol::Dns)
            }
        };
        if let Some(protocol) = application {
            flow.told.speaks(protocol.name());
        }
        let (stream_sizes, speech) = match &flow.conversation {
            Some(conversation) => (conversation.sizes(), conversation.speech()),
            None => (None, Speech::of(application.map_or(Speaks::Failed, Speaks::Is))),
        };
        let speech_heard = match &flow.conversation {
            Some(conversation) if waits => conversation.speech_heard(),
            _ => speech,
        };
        if application.is_none() {
            flow.told.has_failed |= match &flow.conversation {
                Some(_) => speech.sides == [Speaks::Failed; 2],
                None => view.is_of(Protocol::Udp),
            };
        }
        let is_heard = !(waits && view.is_tcp()) || speech_heard.last != Speaks::Unknown;
        let heard = application.filter(|_| is_heard);
        Self {
            rules,
            now,
            direction,
            view,
            application,
            heard,
            speech,
            speech_heard,
            stream_sizes,
            is_decided,
        }
    }

    /// Which of the payload's patterns may matter.
    fn kind(&self, flow: &Flow) -> Kind {
        let transport = match () {
            () if self.view.is_tcp() => Transport::Tcp,
            () if self.view.is_of(Protocol::Udp) => Transport::Udp,
            () => Transport::Other,
        };
        Kind { transport, application: self.application, port: flow.responder.port }
    }
}

/// What a look is at.
#[derive(Clone, Copy)]
struct Sight<'a> {
    payload: Option<Bytes<'a>>,
    message: Option<Message<'a>>,
    /// What is seen belongs to more than this packet.
    is_stream: bool,
}

impl<'a> Sight<'a> {
    /// Bytes of a stream that goes on, and how many came before them.
    fn of_stream((bytes, before): (&'a [u8], u64)) -> Self {
        let payload = Some(Bytes { before, is_open: true, ..Bytes::whole(bytes) });
        Self { payload, message: None, is_stream: true }
    }
}

/// The window of the stream, and the bytes before it, where the packet's payload is its end and all
/// that is new.
fn continued<'f>(
    flow: &'f Flow,
    scene: &Scene<'_>,
    progress: &Progress,
) -> Option<(&'f [u8], u64)> {
    let payload = scene.view.payload;
    let is_all = progress.new == payload.len() && progress.rewritten == 0;
    if !scene.view.is_tcp() || !progress.is_part || !is_all || progress.island.is_some() {
        return None;
    }
    let window = flow.conversation.as_ref()?.window(scene.direction.index());
    window.0.ends_with(payload).then_some(window)
}

impl Evaluator {
    pub(crate) fn new(rules: &RuleSet, limits: Limits) -> Result<Self, MatcherError> {
        Ok(Self {
            limits,
            scratch: rules.scratch()?,
            candidates: Vec::new(),
            host_bits: HostBits::new(limits.host_bits, limits.seed),
            thresholds: Thresholds::new(limits.thresholds, limits.seed),
            counters: Counters::default(),
            records: None,
            told: None,
            units: None,
            transaction: None,
            number: 0,
            looked_at: None,
            messages: 0,
            expected: Expected::default(),
            looks_for_records: false,
            tells_frames: false,
            tells_events: false,
            parser_error: None,
            by_flow: false,
            by_sender: false,
            is_opaque: false,
            is_passed: false,
            passed_by: None,
            passer: RuleIndex(0),
            passes: None,
            of_addresses: Vec::new(),
            is_mute: false,
            refused: None,
            by_rate: false,
            dropper: None,
            is_rated: false,
            is_alone: false,
            has_room: true,
            hosts: rules.hosts().clone(),
            digests: FileDigests::default(),
            changed: None,
            reaches_depth: false,
            stream_events: Vec::new(),
            app_events: Vec::new(),
            variables: Variables::default(),
            captured: Texts::default(),
            replaced: Vec::new(),
            replacements: Vec::new(),
            of_packet: Vec::new(),
            sets: Datasets::new(rules.datasets(), limits.seed),
            entropies: Vec::new(),
            tagging: tagging::Tagging::default(),
            late: Vec::new(),
            of_packet_too: Vec::new(),
            of_message: Vec::new(),
            of_stream: Vec::new(),
            is_scanned: false,
            of_operations: Vec::new(),
            matched: Vec::new(),
            bits_put: false,
            first_putter: RuleIndex(u32::MAX),
            heard: None,
            is_heard_out: false,
            puts_off: None,
            was_alerted: false,
            first_alert: 0,
            continues: false,
            withholds: false,
            untold_drop: None,
            would_drop: Vec::new(),
        })
    }

    /// What the rules say of a packet that its flow already counts.
    pub(crate) fn packet(
        &mut self,
        rules: &RuleSet,
        now: Time,
        flow: &mut Flow,
        direction: Direction,
        view: &View<'_>,
        alerts: &mut Alerts,
    ) -> Decision {
        if let Some(decision) = self.settled(rules, now, flow, direction, view) {
            return decision;
        }
        let mut progress = self.converse(rules, flow, direction, view);
        progress.is_opaque |= view.is_opaque;
        if progress.is_renewed {
            flow.renew();
        }
        // A stream's parser gives up once; that of datagrams goes on with the next.
        let has_failed = progress.said.has_failed && (flow.fail() || !view.is_tcp());
        self.hear_operation(rules, flow, view, &mut progress);
        self.settle_frames(flow, rules, &mut progress);
        (self.changed, self.is_opaque) = (progress.changed, progress.is_opaque);
        (self.first_alert, self.was_alerted) = (alerts.len(), flow.told.is_alerted);
        (self.continues, self.withholds, self.is_mute) = (progress.new > 0, false, flow.is_passed);
        let events = self.events_with(rules, &progress, view.events);
        let events = events.as_deref().unwrap_or(view.events);
        let view = &View { events, is_opaque: progress.is_opaque, ..*view };
        let has_stream = self.hear_stream(flow, direction, view, progress.reaches_depth);
        let view = &View { has_stream, ..*view };
        let scene = self.scene(rules, now, direction, view, (&mut *flow, &progress));
        self.parser_error = scene.application.filter(|_| has_failed).map(Protocol::name);
        let mut decision = Decision::Pass;
        let looked = self.look_at(flow, &scene, &progress, alerts, &mut decision);
        self.note_message_end(flow, direction, view);
        self.tell_entropies(flow, direction);
        self.follow_tags(rules, now, flow, view);
        if !flow.is_passed {
            self.drop_again(flow, &scene, alerts, (&mut decision, !looked.passes()));
        }
        flow.note_dropper(direction);
        self.note_session(flow, &scene);
        self.pass(flow, direction, looked, decision);
        match decision {
            Decision::Pass => {}
            _ if alerts.len() == self.first_alert => {
                self.note_drop(now, "rules", view, flow, direction);
            }
            _ => flow.is_drop_told[direction.index()] = true,
        }
        self.keep_frames(flow, now, &progress.frames);
        self.keep_said(flow, now, progress.said);
        decision
    }

    /// Rules about packets; rules about streams too, where the packet belongs to none.
    fn look_at_packet(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let view = scene.view;
        self.late.clear();
        self.of_packet_too.clear();
        self.look_at_addresses(flow, scene);
        self.candidates.clear();
        let Self { candidates, scratch, .. } = self;
        for (key, group) in scene.rules.packet_groups() {
            let bytes = match key.buffer {
                Buffer::Payload => view.payload,
                other => view.header_buffer(other).unwrap_or_default(),
            };
            if !bytes.is_empty() {
                group.scan(&buffers::apply(bytes, &key.transforms), scratch, candidates);
            }
        }
        self.scan_payload(flow, scene, progress);
        let Self { candidates, .. } = self;
        let bare = scene.rules.bare();
        let gist = view.gist(scene.direction, flow.is_established);
        bare.of_packets(view, gist, candidates);
        if view.is_tcp() && !progress.is_part && view.has_payload() {
            bare.of_streams(gist, candidates);
        }
        if let Some(application) = scene.heard {
            bare.of_spoken(application, gist, candidates);
        }
        let of_ends = bare.of_ends(view.source, view.destination);
        let is_of_packet = |it: &RuleIndex| !scene.rules.rule(*it).is_of_addresses();
        self.candidates.extend(of_ends.filter(is_of_packet));
        self.candidates.extend_from_slice(&self.of_addresses);
        let is_part = progress.is_part;
        let is_udp = !view.is_tcp();
        // A datagram that is a message is looked at as one.
        let is_message = is_udp && !progress.messages.is_empty();
        if is_message {
            let of_message = |it: &&RuleIndex| !scene.rules.rule(**it).has_only_payload();
            self.of_message.clear();
            self.of_message.extend(self.candidates.iter().filter(of_message));
        }
        let replaces = !self.limits.waits_for_acknowledgment;
        // A packet that says nothing is looked at for the stream that others have said.
        let says_nothing = view.has_stream && view.payload.is_empty();
        let is_beside = says_nothing || self.is_beside(flow, view);
        let is_alone = |rule: &Rule| !(is_part || is_beside && rule.flow.only_stream == Some(true));
        self.each(flow, scene, alerts, decision, &|rule| {
            let needs_packet = rule.needs_packet || (replaces && rule.replaces);
            let is_here = match rule.is_of_application() {
                true if scene.heard.is_none() || rule.is_of_messages(is_message) => false,
                true if rule.is_of_stream() && !view.has_stream && view.payload.is_empty() => false,
                true if says_nothing && rule.is_of_stream() => rule.flow.only_stream != Some(true),
                true => rule.is_of_spoken() || is_udp || needs_packet,
                _ if rule.has_payload() && !view.has_stream && view.payload.is_empty() => false,
                false if is_udp && !rule.is_of_operation() => rule.flow.only_stream != Some(true),
                false => needs_packet || is_alone(rule) || !rule.has_payload(),
            };
            is_here.then_some(Sight {
                payload: (!progress.is_opaque).then_some(Bytes::whole(view.payload)),
                message: None,
                is_stream: false,
            })
        });
    }

    /// What comes with a RST, or behind the end, is none of the stream; nor has a connection one
    /// that Suricata does not follow.
    fn is_beside(&self, flow: &Flow, view: &View<'_>) -> bool {
        let is_unfollowed = self.limits.as_suricata.wants_handshakes && flow.is_unfollowed();
        view.is_reset() || view.closing == Closing::Behind || is_unfollowed
    }

    /// Rules about nothing but addresses, with the first packet of a side. They match before all
    /// others, as by Suricata; what they do comes in its turn.
    fn look_at_addresses(&mut self, flow: &mut Flow, scene: &Scene<'_>) {
        let (bare, view) = (scene.rules.bare(), scene.view);
        self.of_addresses.clear();
        let of_side = &mut flow.is_looked_at[scene.direction.index()];
        if std::mem::replace(&mut of_side[usize::from(view.is_piece())], true) {
            return;
        }
        self.candidates.clear();
        self.candidates.extend_from_slice(&bare.addresses);
        self.candidates.extend(bare.of_ends(view.source, view.destination));
        self.settle(scene);
        let candidates = std::mem::take(&mut self.candidates);
        let sight = Sight { payload: None, message: None, is_stream: false };
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            if rule.is_of_addresses() && self.matches(rule, flow, scene, sight) {
                self.note_match((rule, *index, sight), flow, scene);
                self.of_addresses.push(*index);
            }
        }
        self.candidates = candidates;
    }

    /// Rules whose fast pattern is in the payload.
    fn scan_payload(&mut self, flow: &Flow, scene: &Scene<'_>, progress: &Progress) {
        self.is_scanned = false;
        let view = scene.view;
        let payload = view.payload;
        if payload.is_empty() || progress.is_opaque {
            return;
        }
        let Self { candidates, of_stream, scratch, .. } = self;
        let groups = scene.rules.payloads();
        let of_what = (scene.direction, scene.kind(flow));
        if let Some(window) = continued(flow, scene, progress) {
            self.is_scanned = true;
            of_stream.clear();
            let found = [candidates, of_stream];
            groups.scan_segment(of_what, window, payload.len(), scratch, found);
            return;
        }
        groups.scan_packet(of_what, payload, scratch, candidates);
        if view.is_tcp() && !progress.is_part {
            groups.scan_stream(of_what, (payload, 0), payload.len(), scratch, candidates);
        }
    }

    /// Rules about the stream that the packet's new bytes continue.
    fn look_at_stream(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let side = scene.direction.index();
        let again = self.looks_again(scene, progress);
        let said = progress.new + progress.rewritten + again;
        let last = self.last_piece(flow, scene, progress);
        let is_over = progress.is_opaque || progress.reaches_depth && last.is_none();
        let is_seen = !is_over && (said > 0 || progress.island.is_some());
        let Some(mut conversation) = flow.conversation.take_if(|_| is_seen) else {
            return;
        };
        let island = last.as_ref().or(progress.island.as_ref().filter(|_| said == again));
        self.gather_stream(flow, scene, (progress, island), &mut conversation);
        let since =
            |list: &[(RuleIndex, u64)], rule| list.iter().find(|it| it.0 == rule).map(|it| it.1);
        let candidates = std::mem::take(&mut self.candidates);
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            if !rule.has_only_payload() {
                // A message that comes further, now or later, decides.
                self.wait(&mut conversation, side, *index);
            }
            if !rule.has_only_payload() || !rule.needs_stream || !rule.has_payload() {
                continue;
            }
            // What matched once does not count again, nor what was looked at alone.
            let from = conversation.chunk_from(side);
            let (window, before) = match since(&conversation.matched[side], *index) {
                _ if island.is_some() => island.map_or((&[][..], 0), |it| (&it.1, it.0)),
                _ if again > 0 => conversation.window_end(side, again),
                Some(end) if !rule.weighs_all() => conversation.window_from(side, end.max(from)),
                _ => conversation.window_from(side, from),
            };
            let told_ahead = island.is_some()
                && again == 0
                && since(&conversation.ahead[side], *index).is_some();
            if window.is_empty() || told_ahead {
                continue;
            }
            // Places count from where the look begins.
            let sight = Sight::of_stream((window, before.saturating_sub(from)));
            // What must not be there must not have been there either.
            let (all, all_before) = conversation.window_from(side, from);
            let is_part = island.is_none() && before != all_before && rule.excludes();
            let all = (all, all_before.saturating_sub(from));
            if self.matches(rule, flow, scene, sight)
                && (!is_part || self.matches(rule, flow, scene, Sight::of_stream(all)))
            {
                if self.of_packet_too.contains(index) {
                    self.act_for_flow((rule, *index), flow, *decision);
                } else {
                    self.act((rule, *index, sight), flow, scene, alerts, decision);
                }
                match island {
                    Some(_) => conversation.matched_ahead(side, *index, before),
                    None => conversation.match_ends(side, *index),
                }
            } else if rule.fast.is_some() && island.is_none() {
                self.wait(&mut conversation, side, *index);
            }
        }
        self.candidates = candidates;
        flow.conversation = Some(conversation);
    }

    /// Rules about messages of an application.
    fn look_at_messages(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        if progress.messages.is_empty() {
            return;
        }
        let mut conversation = flow.conversation.take();
        let side = scene.direction.index();
        for told in &progress.messages {
            self.candidates.clear();
            self.looked_at = Some(self.number_of(told));
            flow.told.count(told);
            self.tell_message_of_packet(flow, scene, told, alerts);
            // Their fast pattern is in the stream, or in the packet.
            match &conversation {
                Some(it) => self.candidates.extend(it.waiting[side].iter().map(|it| it.0)),
                None => self.candidates.extend_from_slice(&self.of_message),
            }
            match (told, &mut conversation) {
                (MessageUpdate::Http(number), Some(conversation)) => {
                    match conversation.transaction(*number, side) {
                        Some((transaction, payload)) => {
                            let numbered = (*number, transaction);
                            self.transaction(flow, scene, numbered, payload, alerts, decision)
                        }
                        None => continue,
                    }
                }
                (MessageUpdate::Unit(unit), conversation) => {
                    let payload = conversation.as_ref().map(|it| it.window(side).0);
                    let payload = payload.unwrap_or(scene.view.payload);
                    self.unit(flow, scene, unit, payload, alerts, decision)
                }
                (MessageUpdate::Odd(events), Some(conversation)) => {
                    let payload = conversation.window(side).0;
                    let Some(message) = conversation.message(told, side) else { continue };
                    self.oddities(flow, scene, (message, events), payload, alerts, decision)
                }
                (MessageUpdate::Dns(message), None) => {
                    let payload = scene.view.payload;
                    let message = Message::Dns(message);
                    self.message(flow, scene, message, payload, alerts, decision)
                }
                (MessageUpdate::State, _) if !scene.rules.needs().states => continue,
                (
                    MessageUpdate::Tls | MessageUpdate::Ssh | MessageUpdate::State,
                    Some(conversation),
                ) => self.session(flow, scene, (told, conversation), alerts, decision),
                (told, Some(conversation)) => {
                    let payload = conversation.window(side).0;
                    let Some(message) = conversation.message(told, side) else { continue };
                    self.message(flow, scene, message, payload, alerts, decision)
                }
                _ => continue,
            }
        }
        self.looked_at = None;
        flow.conversation = conversation;
    }
}
