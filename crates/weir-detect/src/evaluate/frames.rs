//! Frames: which transaction each belongs to, the rules about them, and what is told of them.

use std::sync::Arc;

use weir_wire::frame::Time;

use super::units::told_of_unit;
use super::{Evaluator, Scene, Sight};
use crate::alert::{Alerts, TransactionView};
use crate::application::unit::{Record, Said};
use crate::conversation::{Message, MessageUpdate, Progress};
use crate::detector::Decision;
use crate::flow::Flow;
use crate::frame::Frame;
use crate::rule::Protocol;
use crate::ruleset::RuleSet;

impl Evaluator {
    /// Numbers the packet's frames, and finds their messages and transactions.
    pub(super) fn settle_frames(&self, flow: &mut Flow, rules: &RuleSet, progress: &mut Progress) {
        if progress.frames.is_empty() {
            return;
        }
        find_messages(&mut progress.frames, &progress.messages);
        let asked = (!self.tells_frames).then(|| rules.asked_frames());
        flow.frames.get_or_insert_default().count(&mut progress.frames, asked);
        for frame in &mut progress.frames {
            let update = frame.message.and_then(|it| progress.messages.get(it));
            frame.transaction = frame.transaction.or_else(|| transaction_of(frame, flow, update));
        }
    }

    /// Rules about frames: each is looked at once, when it is whole or there is no more of it.
    pub(super) fn look_at_frames(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        for frame in &progress.frames {
            self.candidates.clear();
            let Self { candidates, scratch, .. } = self;
            scene.rules.of_frame(frame, scratch, candidates);
            let update = frame.message.and_then(|it| progress.messages.get(it));
            let message = Some(Message::Frame(frame, update));
            let sight = Sight { payload: None, message, is_stream: true };
            self.each(flow, scene, alerts, decision, &|_| Some(sight));
        }
    }

    /// What alerts tell of a frame and its transaction; `None`: of the frame alone.
    pub(super) fn told_of_frame(
        &self,
        flow: &mut Flow,
        frame: &Frame,
        update: Option<&MessageUpdate>,
    ) -> Option<TransactionView> {
        let number = frame.transaction?;
        let told = match update {
            Some(MessageUpdate::Unit(unit)) => Some(told_of_unit(unit)),
            Some(MessageUpdate::Dns(message)) => self.tell_of(Message::Dns(message), number),
            _ if matches!(frame.kind.protocol(), Protocol::Http1 | Protocol::Http2) => {
                let conversation = flow.conversation.as_mut()?;
                let own = number - u64::from(frame.stream.is_some());
                let (transaction, _) = conversation.transaction(own, frame.side)?;
                self.tell_of(Message::Http(transaction, frame.side), own)
            }
            _ => None,
        }?;
        let mut objects = Arc::unwrap_or_clone(told.objects);
        objects.push(("frame", frame.object()));
        Some(TransactionView { number: Some(number), objects: Arc::new(objects), ..told })
    }

    /// Keeps what there is to tell of frames, where somebody takes it.
    pub(super) fn keep_frames(&mut self, flow: &Flow, now: Time, frames: &[Frame]) {
        if !self.tells_frames {
            return;
        }
        let records = frames.iter().map(|it| Record {
            kind: "frame",
            number: None,
            objects: vec![("frame", it.object())],
            side: Some(it.side),
        });
        self.keep_said(flow, now, Said { records: records.collect(), ..Said::default() });
    }
}

/// Finds what each unit of a packet says, where as many messages of its protocol came as units.
fn find_messages(frames: &mut [Frame], messages: &[MessageUpdate]) {
    let Some(protocol) = frames.iter().find(|it| !it.is_late).map(|it| it.kind.protocol()) else {
        return;
    };
    let is_of_it = |it: &MessageUpdate| match it {
        MessageUpdate::Unit(unit) => unit.protocol == protocol,
        MessageUpdate::Dns(_) => protocol == Protocol::Dns,
        _ => false,
    };
    let numbered = messages.iter().enumerate();
    let found: Vec<usize> = numbered.filter(|it| is_of_it(it.1)).map(|it| it.0).collect();
    let is_one = |it: &&mut Frame| !it.is_late && it.kind.protocol() == protocol;
    let (mut last, mut place) = (None, 0);
    for frame in frames.iter_mut().filter(is_one) {
        place += usize::from(last.is_some_and(|it| it != frame.unit));
        last = Some(frame.unit);
        frame.message = found.get(place).copied();
    }
    if place + 1 != found.len() {
        frames.iter_mut().for_each(|it| it.message = None);
    }
}

/// A frame's transaction as EVE numbers it: those of some parsers begin at 1 there. That of HTTP/1
/// is known.
fn transaction_of(frame: &Frame, flow: &Flow, update: Option<&MessageUpdate>) -> Option<u64> {
    match (frame.kind.protocol(), update) {
        (Protocol::Http2, _) => {
            let conversation = flow.conversation.as_ref()?;
            Some(conversation.transaction_of_stream(frame.stream?)? + 1)
        }
        (Protocol::Dns, Some(MessageUpdate::Dns(_))) => {
            Some(flow.told.transactions + frame.message? as u64 + 1)
        }
        (Protocol::Enip, Some(MessageUpdate::Unit(unit))) => Some(unit.number),
        // A datagram's request has none there.
        (Protocol::Ldap, _) if frame.is_datagram() && frame.side == 0 => None,
        (
            Protocol::Sip | Protocol::Ldap | Protocol::Mdns | Protocol::Websocket,
            Some(MessageUpdate::Unit(unit)),
        ) => Some(unit.number + 1),
        _ => None,
    }
}
