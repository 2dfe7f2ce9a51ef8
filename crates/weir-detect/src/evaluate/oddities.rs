//! What messages tell beside what rules look for in them: what is odd about them, and records.

use std::ops::ControlFlow;

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::buffers::event::AppEvent;
use crate::conversation::{Message, Progress};
use crate::decode::Event;
use crate::detector::Decision;
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::record::ApplicationRecord;
use crate::rule::Buffer;
use crate::ruleset::RuleSet;

/// What is told of a TLS session, by EVE's names.
const TLS_FIELDS: [(&str, Buffer); 5] = [
    ("sni", Buffer::TlsSni),
    ("subject", Buffer::TlsSubject),
    ("issuerdn", Buffer::TlsIssuer),
    ("serial", Buffer::TlsSerial),
    ("fingerprint", Buffer::TlsFingerprint),
];
/// Messages that wait to be told, at most; those beyond are not.
const TOLD_MAX: usize = 4096;

impl Evaluator {
    /// Forgets what was odd about the packet before.
    pub(crate) fn begin(&mut self) {
        self.stream_events.clear();
        self.app_events.clear();
        self.rewritten = 0;
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
            () => None,
        };
        let is_told = rules.needs().events || self.tells_events || self.looks_for_records;
        if !is_told || (of_stream.is_none() && progress.event.is_none()) {
            return None;
        }
        let more = of_stream.into_iter().chain(progress.event);
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
    ) -> ControlFlow<bool> {
        self.candidates.clear();
        self.gather_odd(scene, events);
        let sight =
            Sight { payload: Some(Bytes::whole(payload)), message: Some(message), is_stream: true };
        self.each(flow, scene, alerts, decision, &|rule| rule.is_of_application().then_some(sight))
    }

    /// Rules that ask for what is odd.
    pub(super) fn gather_odd(&mut self, scene: &Scene<'_>, events: &[AppEvent]) {
        for event in events {
            scene.rules.bare().of_app_event(*event, &mut self.candidates);
        }
        self.app_events.extend_from_slice(events);
    }

    /// Keeps what there is to tell of a message, where somebody takes it and has room.
    pub(super) fn note_message(&mut self, flow: &Flow, scene: &Scene<'_>, message: Message<'_>) {
        let Some(told) = self.told.as_mut().filter(|it| it.len() < TOLD_MAX) else { return };
        let mut fields = Vec::new();
        let kind = match message {
            Message::Http(..) | Message::Ssh(_) | Message::Unit(_) => return,
            Message::Dns(message) => {
                let kind: &[u8] = if message.is_response { b"answer" } else { b"query" };
                fields.push(("type", kind.to_vec()));
                fields.extend(message.questions.iter().map(|it| ("rrname", it.clone())));
                "dns"
            }
            Message::Tls(..) => {
                for (name, buffer) in TLS_FIELDS {
                    message.each(buffer, &mut |bytes| {
                        fields.push((name, bytes.to_vec()));
                        true
                    });
                }
                "tls"
            }
        };
        if !fields.is_empty() {
            let (time, flow) = (scene.now, flow.view(scene.direction));
            let protocol = scene.view.parsed.protocol;
            told.push(ApplicationRecord { time, flow, protocol, kind, fields });
        }
    }
}
