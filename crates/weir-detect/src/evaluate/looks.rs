//! The looks at a packet, in their order: as such, at an operation of RDMA, at the stream, at
//! frames, at messages.

use std::ops::ControlFlow;

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::conversation::Progress;
use crate::detector::Decision;
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::rule::RuleIndex;

/// How the looks at a packet went: each breaks where a rule ended it; with true if the flow passes
/// from here on.
pub(super) struct Looked {
    pub(super) at_packet: ControlFlow<bool>,
    /// At what its flow says.
    pub(super) at_rest: ControlFlow<bool>,
}

impl Looked {
    pub(super) fn is_continue(&self) -> bool {
        self.at_packet.is_continue() && self.at_rest.is_continue()
    }
}

impl Evaluator {
    pub(super) fn look_at(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) -> Looked {
        let at_packet = self.look_and_take_effect(flow, scene, progress, alerts, decision);
        // What is looked at once acknowledged is so with another packet.
        let is_other = self.heard.is_some() && at_packet == ControlFlow::Break(false);
        let mut outcome = if is_other { ControlFlow::Continue(()) } else { at_packet };
        (self.bits_put, self.first_putter) = (false, RuleIndex(u32::MAX));
        if outcome.is_continue() && progress.is_part {
            outcome = self.look_at_operation(flow, scene, alerts, decision);
        }
        if outcome.is_continue() {
            outcome = self.look_at_stream(flow, scene, progress, alerts, decision);
        }
        // Bits that a rule about messages puts, those about packets see with the next packet.
        let is_seen = self.bits_put && self.heard.is_none();
        if outcome.is_continue() && is_seen && !self.late.is_empty() {
            outcome = self.look_again(flow, scene, progress, alerts, decision);
        }
        if outcome.is_continue() {
            outcome = self.look_at_frames(flow, scene, progress, alerts, decision);
        }
        // What is said is told, whatever is decided of it before that.
        self.is_mute |= outcome.is_break();
        if outcome.is_continue() || self.narrates() {
            let last = self.look_at_messages(flow, scene, progress, alerts, decision);
            outcome = if outcome.is_continue() { last } else { outcome };
        }
        Looked { at_packet, at_rest: outcome }
    }

    /// The look at the packet as such. What waited for an acknowledgment takes effect with it.
    fn look_and_take_effect(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) -> ControlFlow<bool> {
        let Some(heard) = self.heard else {
            return self.look_at_packet(flow, scene, progress, alerts, decision);
        };
        let heard = (scene.direction, heard.acknowledged);
        flow.take_effect(heard, true, &self.limits);
        flow.swap_notes();
        let outcome = self.look_at_packet(flow, scene, progress, alerts, decision);
        flow.swap_notes();
        if outcome.is_break() {
            return outcome;
        }
        let passer = flow.take_effect(heard, false, &self.limits);
        self.is_mute |= flow.is_passed || flow.is_to_pass() || flow.is_to_drop();
        let Some(rule) = passer else { return outcome };
        self.passed_by = Some(rule);
        self.pass_instead(rule, flow, alerts, decision);
        ControlFlow::Break(true)
    }

    /// Rules about packets whose bits the look at the stream has changed.
    fn look_again(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) -> ControlFlow<bool> {
        self.candidates.clear();
        // Those before it had their turn.
        let first = self.first_putter;
        self.candidates.extend(self.late.drain(..).filter(|it| *it > first));
        let payload = (!progress.is_opaque).then_some(Bytes::whole(scene.view.payload));
        let sight = Sight { payload, message: None, is_stream: false };
        self.each(flow, scene, alerts, decision, &|_| Some(sight))
    }
}
