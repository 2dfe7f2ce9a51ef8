//! Frames: which transaction each belongs to, the rules about them, and what is told of them.

use std::ops::ControlFlow;
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
    /// Numbers the packet's frames, and finds their transactions.
    pub(super) fn settle_frames(&self, flow: &mut Flow, rules: &RuleSet, progress: &mut Progress) {
        let Some(first) = progress.frames.first().map(|it| it.unit) else { return };
        let asked = (!self.tells_frames).then(|| rules.asked_frames());
        flow.frames.get_or_insert_default().count(&mut progress.frames, asked);
        for frame in &mut progress.frames {
            let update = message_of(&progress.messages, frame.unit.saturating_sub(first));
            frame.transaction = transaction_of(frame, flow, update, first);
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
    ) -> ControlFlow<bool> {
        let first = progress.frames.first().map_or(0, |it| it.unit);
        for frame in &progress.frames {
            self.candidates.clear();
            let Self { candidates, scratch, .. } = self;
            scene.rules.of_frame(frame, scratch, candidates);
            if self.candidates.is_empty() {
                continue;
            }
            let update = message_of(&progress.messages, frame.unit.saturating_sub(first));
            self.transaction = self.told_of_frame(flow, frame, update);
            let message = Some(Message::Frame(frame));
            let sight = Sight { payload: None, message, is_stream: true };
            let outcome = self.each(flow, scene, alerts, decision, &|_| Some(sight));
            self.transaction = None;
            outcome?;
        }
        ControlFlow::Continue(())
    }

    /// What alerts tell of a frame and its transaction; `None`: of the frame alone.
    fn told_of_frame(
        &self,
        flow: &mut Flow,
        frame: &Frame,
        update: Option<&MessageUpdate>,
    ) -> Option<TransactionView> {
        let number = frame.transaction?;
        let told = match update {
            Some(MessageUpdate::Unit(unit)) => Some(told_of_unit(unit)),
            Some(MessageUpdate::Dns(message)) => {
                self.tell_of_message(Message::Dns(message), number)
            }
            _ if matches!(frame.kind.protocol(), Protocol::Http1 | Protocol::Http2) => {
                let conversation = flow.conversation.as_mut()?;
                let own = number - u64::from(frame.stream.is_some());
                let (transaction, _) = conversation.transaction(own, frame.side)?;
                self.tell_of_message(Message::Http(transaction, frame.side), own)
            }
            _ => None,
        }?;
        let mut objects = Arc::unwrap_or_clone(told.objects);
        objects.push(("frame", frame.object()));
        Some(TransactionView { number: Some(number), objects: Arc::new(objects), ..told })
    }

    fn tell_of_message(&self, message: Message<'_>, number: u64) -> Option<TransactionView> {
        self.tell_of(Sight { payload: None, message: Some(message), is_stream: true }, number)
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

/// What the unit of that place in a packet says, where each unit says something.
fn message_of(messages: &[MessageUpdate], place: u64) -> Option<&MessageUpdate> {
    let is_message = |it: &&MessageUpdate| {
        matches!(it, MessageUpdate::Unit(_) | MessageUpdate::Dns(_) | MessageUpdate::Http(_))
    };
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    messages.iter().filter(is_message).nth(place)
}

/// A frame's transaction as EVE numbers it: those of some parsers begin at 1 there.
fn transaction_of(
    frame: &Frame,
    flow: &mut Flow,
    update: Option<&MessageUpdate>,
    first: u64,
) -> Option<u64> {
    match (frame.kind.protocol(), update) {
        (Protocol::Http1, _) => Some(frame.unit),
        (Protocol::Http2, _) => {
            let conversation = flow.conversation.as_ref()?;
            Some(conversation.transaction_of_stream(frame.stream?)? + 1)
        }
        (Protocol::Dns, Some(MessageUpdate::Dns(_))) => {
            Some(flow.told.transactions + (frame.unit - first) + 1)
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
