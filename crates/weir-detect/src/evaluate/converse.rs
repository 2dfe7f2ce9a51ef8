//! What a packet brings further: its stream, messages in it, and frames.

use super::Evaluator;
use crate::application::TransportProtocol;
use crate::buffers::dns;
use crate::conversation::{Conversation, MessageUpdate, Progress};
use crate::detector::{Direction, Limits, Unseen};
use crate::flow::Flow;
use crate::frame;
use crate::packet::View;
use crate::rule::Protocol;
use crate::ruleset::RuleSet;
use crate::session::Closing;
use crate::stream::Refusals;

/// Where DNS is spoken over UDP.
const PORT_DNS: u16 = 53;

impl Evaluator {
    /// Puts the packet's segment in its place, and hears what is spoken.
    pub(super) fn converse(
        &mut self,
        rules: &RuleSet,
        flow: &mut Flow,
        direction: Direction,
        view: &View<'_>,
    ) -> Progress {
        let mut needs = rules.needs();
        if self.looks_for_records || self.tells_events || self.limits.refuses_parser_errors {
            (needs.streams, needs.applications) = (true, true);
        }
        // Rules about ends look once more at what goes past; nobody follows its streams.
        if flow.goes_past(&self.limits) || (!needs.streams && !needs.applications) {
            // Rules that come later find it in its middle.
            flow.conversation = None;
            return Progress::default();
        }
        // A piece may never become a segment: the datagram is looked at when it is whole.
        if view.is_lost() || view.is_piece() {
            let is_beside = view.events.iter().any(|it| it.is_of_segment_beside());
            let is_refused = view.is_refused && view.closing != Closing::Behind && !is_beside;
            let is_opaque = is_refused && self.limits.refuses_invalid;
            return Progress { is_opaque, ..Progress::default() };
        }
        if self.is_unanswered(flow, view) {
            return Progress::default();
        }
        needs.frames |= self.tells_frames;
        if view.is_tcp() && (view.is_syn() || !flow.is_refused()) {
            let ends = [flow.initiator.address, flow.responder.address];
            let new = || self.new_conversation(ends, needs.frames);
            let conversation = flow.conversation.get_or_insert_with(new);
            let (seed, port) = (self.limits.seed, flow.responder.port);
            let announced = conversation.is_silent().then(|| self.expected.take(seed, ends, port));
            if let Some((announced, parent)) = announced.flatten() {
                conversation.announce(announced);
                flow.parent = Some(Box::new(parent));
            }
            conversation.wanted = self.digests.and(needs.digests);
            conversation.set_room(self.has_room && self.limits.sees_all);
            let progress = conversation.take(direction, view, &self.limits);
            self.count_segment(&progress);
            flow.told.has_gap[direction.index()] |= progress.gaps > 0;
            let is_urgent = || view.is_urgent() && !view.payload.is_empty();
            let Limits { refuses_conflicts, only_watches, .. } = self.limits;
            let taken_in = refuses_conflicts && only_watches && is_urgent();
            self.refused = progress.refused.or(taken_in.then_some(Unseen::Conflict));
            return progress;
        }
        if self.is_heard_no_more(flow) || !view.is_of(Protocol::Udp) || view.parsed.fault.is_some()
        {
            return Progress::default();
        }
        let mut progress = Progress::default();
        let mut spoken = None;
        if needs.applications && self.is_dns(flow, view) {
            progress.messages =
                dns::parse(view.payload).map(MessageUpdate::Dns).into_iter().collect();
            spoken = (!progress.messages.is_empty()).then_some(Protocol::Dns);
        } else if needs.applications {
            let wanted = (self.digests.and(needs.digests), &self.limits);
            progress = Progress::of(flow.hear(direction, view, wanted));
            spoken = flow.dialogue.as_ref().map(|it| it.protocol);
        }
        if let Some(protocol) = spoken.filter(|_| needs.frames) {
            frame::of_datagram(protocol, direction.index(), view.payload, &mut progress.frames);
        }
        progress
    }

    /// Who only tells hears no more of what a rule would drop, nor anybody of what is left alone.
    fn is_heard_no_more(&self, flow: &Flow) -> bool {
        let is_blocked = self.limits.as_suricata.only_tells && flow.blocked_by.is_some();
        is_blocked || flow.told.is_left
    }

    /// Whether a datagram is one of DNS, by its ports.
    fn is_dns(&self, flow: &Flow, view: &View<'_>) -> bool {
        let is_off =
            self.limits.as_suricata.applications.is_off(TransportProtocol::Udp, Protocol::Dns);
        let is_dns = match self.limits.as_suricata.knows_no_more {
            // Suricata knows it by whom the flow's first packet is for.
            true => flow.responder.port == PORT_DNS,
            false => view.source_port == PORT_DNS || view.destination_port == PORT_DNS,
        };
        is_dns && !is_off
    }

    fn count_segment(&mut self, progress: &Progress) {
        self.counters.unacceptable_segments += u64::from(progress.is_unacceptable);
        self.counters.stream_gaps += u64::from(progress.gaps);
        self.counters.stream_overlaps[0] += u64::from(progress.overlaps);
        self.counters.stream_overlaps[1] += u64::from(progress.differs);
        self.counters.stream_depths += u64::from(progress.reaches_depth);
    }

    /// Whether it is a segment of a connection that is not followed, for its SYN was not answered.
    fn is_unanswered(&self, flow: &Flow, view: &View<'_>) -> bool {
        let Limits { as_suricata, midstream, .. } = self.limits;
        let is_unanswered = match flow.session.as_ref() {
            Some(session) if session.state().is_some() => !session.is_under_way(),
            _ => !midstream,
        };
        as_suricata.wants_handshakes && view.is_tcp() && !view.is_syn() && is_unanswered
    }

    /// A connection of which nothing was seen; `ends` are its client's and its server's addresses.
    fn new_conversation(&self, ends: [[u8; 16]; 2], finds_frames: bool) -> Box<Conversation> {
        let mut new = Conversation::between(ends.map(|it| self.hosts.system(it)));
        if finds_frames {
            new.find_frames();
        }
        let Limits { refuses_gaps: gaps, refuses_conflicts: conflicts, .. } = self.limits;
        let only_told = self.limits.only_watches;
        new.refuse(Refusals { gaps, conflicts, only_told });
        new.limit(self.limits.stream_depth);
        Box::new(new)
    }
}
