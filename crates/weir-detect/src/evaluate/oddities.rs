//! What messages tell beside what rules look for in them: what is odd about them, and records.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::buffers::event::AppEvent;
use crate::conversation::{Message, Progress};
use crate::decode::Event;
use crate::detector::{Decision, Direction};
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::record::{ApplicationRecord, Oddity};
use crate::ruleset::RuleSet;
use crate::value::Object;

/// Messages that wait to be told, at most; those beyond are not.
const TOLD_MAX: usize = 4096;

impl Evaluator {
    /// What was odd about the packet at hand, in its stream and in what it brought further.
    pub(crate) fn odd(&self, decoded: &[Event]) -> Vec<Oddity> {
        let odd = decoded.iter().chain(&self.stream_events);
        let odd = odd.filter(|it| !it.is_common()).map(|it| Oddity::Packet(*it));
        odd.chain(self.app_events.iter().map(|it| Oddity::Message(it.0, it.1))).collect()
    }

    /// Forgets what was odd about the packet before.
    pub(crate) fn begin(&mut self) {
        self.stream_events.clear();
        self.app_events.clear();
        self.of_packet.clear();
        (self.changed, self.reaches_depth) = (None, false);
    }

    /// What is odd about a packet, with what its place in its stream and what is spoken have shown.
    pub(super) fn events_with(
        &mut self,
        rules: &RuleSet,
        progress: &Progress,
        known: &[Event],
    ) -> Option<Vec<Event>> {
        let of_stream = match () {
            () if progress.gaps > 0 => Some(Event::StreamGap),
            () if progress.differs => Some(Event::StreamOverlapDiffers),
            () if progress.reaches_depth => Some(Event::StreamDepthReached),
            () => None,
        };
        let is_told = rules.needs().events || self.tells_events || self.looks_for_records;
        if !is_told || (of_stream.is_none() && progress.event.is_none()) {
            return None;
        }
        // Who agreed on TLS and speaks something else speaks what nobody expects, too.
        let is_unexpected = progress.event == Some(Event::ApplicationNoTls);
        let unexpected = is_unexpected.then_some(Event::ApplicationUnexpected);
        let more = of_stream.into_iter().chain(progress.event).chain(unexpected);
        self.stream_events.extend(more.clone());
        Some(known.iter().copied().chain(more).collect())
    }

    /// What is odd about a message: rules that ask for that.
    pub(super) fn oddities(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        (message, events): (Message<'_>, &[AppEvent]),
        payload: &[u8],
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.candidates.clear();
        // A session is one transaction.
        let number = (!matches!(message, Message::Dns(_))).then_some(0);
        let new = flow.new_events(events, 0);
        self.gather_odd(scene, (events, &new), number);
        let sight =
            Sight { payload: Some(Bytes::whole(payload)), message: Some(message), is_stream: true };
        self.each(flow, scene, alerts, decision, &|rule| rule.is_of_application().then_some(sight));
    }

    /// Rules that ask for what is odd, in the transaction of this number. They see it with each
    /// side's packets; `new` of it was not told before.
    pub(super) fn gather_odd(
        &mut self,
        scene: &Scene<'_>,
        (events, new): (&[AppEvent], &[AppEvent]),
        number: Option<u64>,
    ) {
        for event in events {
            scene.rules.bare().of_app_event(*event, &mut self.candidates);
        }
        self.app_events.extend(new.iter().map(|it| (*it, number)));
    }

    /// Keeps what there is to tell of a message that stands alone, where somebody takes it and has
    /// room.
    pub(super) fn note_message(&mut self, flow: &Flow, scene: &Scene<'_>, message: Message<'_>) {
        let Message::Dns(message) = message else { return };
        let Some(told) = self.told.as_mut().filter(|it| it.len() < TOLD_MAX) else { return };
        let number = flow.told.last_transaction();
        told.push(record(flow, scene, scene.direction, ("dns", message.object(number))));
    }

    /// Keeps what there is to tell of a session whose beginning is over, likewise.
    pub(super) fn note_session(&mut self, flow: &mut Flow, scene: &Scene<'_>) {
        let Some(told) = self.told.as_mut().filter(|it| it.len() < TOLD_MAX) else { return };
        let as_suricata = &self.limits.as_suricata;
        let conversation = flow.conversation.as_mut();
        let session = conversation.and_then(|it| it.session_record(false, as_suricata));
        told.extend(session.map(|it| record(flow, scene, Direction::Initiator, it)));
    }
}

fn record(
    flow: &Flow,
    scene: &Scene<'_>,
    direction: Direction,
    (kind, object): (&'static str, Object),
) -> ApplicationRecord {
    let (time, flow) = (scene.now, flow.view(direction));
    let protocol = scene.view.parsed.protocol;
    ApplicationRecord { time, flow, protocol, kind, object }
}
