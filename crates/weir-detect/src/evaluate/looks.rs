//! The looks at a packet, in their order: as such, at an operation of RDMA, at the stream, at
//! frames, at messages.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::conversation::Progress;
use crate::detector::Decision;
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::rule::RuleIndex;

/// Whether a rule lets the packet pass; with true the rest of its flow too.
pub(super) struct Looked {
    pub(super) at_packet: Option<bool>,
    /// At what its flow says.
    pub(super) at_rest: Option<bool>,
}

impl Looked {
    pub(super) fn passes(&self) -> bool {
        self.at_packet.or(self.at_rest).is_some()
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
        self.passes = None;
        self.look_and_take_effect(flow, scene, progress, alerts, decision);
        let at_packet = self.passes;
        // What is looked at once acknowledged is so with another packet.
        self.passes.take_if(|is_of_flow| self.heard.is_some() && !*is_of_flow);
        (self.bits_put, self.first_putter) = (false, RuleIndex(u32::MAX));
        if progress.is_part {
            self.look_at_operation(flow, scene, alerts, decision);
        }
        self.look_at_stream(flow, scene, progress, alerts, decision);
        // Bits that a rule about messages puts, those about packets see with the next packet.
        let is_seen = self.bits_put && self.heard.is_none();
        if is_seen && !self.late.is_empty() {
            self.look_again(flow, scene, progress, alerts, decision);
        }
        self.look_at_frames(flow, scene, progress, alerts, decision);
        self.look_at_messages(flow, scene, progress, alerts, decision);
        Looked { at_packet, at_rest: self.passes }
    }

    /// The look at the packet as such. What waited for an acknowledgment takes effect with it.
    fn look_and_take_effect(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let Some(heard) = self.heard else {
            return self.look_at_packet(flow, scene, progress, alerts, decision);
        };
        let heard = (scene.direction, heard);
        flow.take_effect(heard, true, &self.limits);
        flow.swap_notes();
        self.look_at_packet(flow, scene, progress, alerts, decision);
        flow.swap_notes();
        if self.passes.is_some() {
            return;
        }
        let passer = flow.take_effect(heard, false, &self.limits);
        self.is_mute |= flow.is_passed || flow.is_to_pass() || flow.is_to_drop();
        let Some(rule) = passer else { return };
        self.passed_by = Some(rule);
        self.pass_instead(rule, flow, alerts, decision);
        (self.passer, self.passes) = (rule, Some(true));
    }

    /// Rules about packets whose bits the look at the stream has changed.
    fn look_again(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        progress: &Progress,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.candidates.clear();
        // Those before it had their turn.
        let first = self.first_putter;
        self.candidates.extend(self.late.drain(..).filter(|it| *it > first));
        let payload = (!progress.is_opaque).then_some(Bytes::whole(scene.view.payload));
        let sight = Sight { payload, message: None, is_stream: false };
        self.each(flow, scene, alerts, decision, &|_| Some(sight));
    }
}
