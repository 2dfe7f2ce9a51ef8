//! The looks at a packet, in their order: as such, at an operation of RDMA, at the stream, at
//! frames, at messages.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::conversation::{Conversation, Progress};
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

    pub(super) fn wait(&mut self, conversation: &mut Conversation, side: usize, rule: RuleIndex) {
        self.counters.candidates_lost += u64::from(!conversation.wait(side, rule));
    }

    /// Rules whose fast pattern is in the stream's newest bytes or came with earlier ones, and
    /// rules without one.
    pub(super) fn gather_stream(
        &mut self,
        flow: &Flow,
        scene: &Scene<'_>,
        (progress, island): (&Progress, Option<&(u64, Vec<u8>)>),
        conversation: &mut Conversation,
    ) {
        let side = scene.direction.index();
        self.candidates.clear();
        conversation.forget(side);
        let window = island.map_or(conversation.window(side), |it| (it.1.as_slice(), it.0));
        let new = progress.new + progress.rewritten;
        let new = island.map_or(new, |it| it.1.len());
        let new = new.max(self.limits.as_suricata.looks_again.min(window.0.len()));
        let Self { candidates, scratch, .. } = self;
        if self.is_scanned && self.limits.as_suricata.looks_again == 0 {
            candidates.append(&mut self.of_stream);
        } else {
            let of_what = (scene.direction, scene.kind(flow));
            scene.rules.payloads().scan_stream(of_what, window, new, scratch, candidates);
        }
        conversation.renew(side, candidates);
        let gist = scene.view.gist(scene.direction, flow.is_established);
        scene.rules.bare().of_streams(gist, candidates);
        candidates.extend(conversation.waiting[side].iter().map(|it| it.0));
        self.settle(scene);
    }

    /// Where rules look again at what came before: the segment that reaches its stream's depth, all
    /// of it, if it is not the first. Otherwise it was looked at as a packet, to its end.
    pub(super) fn last_piece(
        &self,
        flow: &Flow,
        scene: &Scene<'_>,
        progress: &Progress,
    ) -> Option<(u64, Vec<u8>)> {
        let goes_on = self.limits.as_suricata.stops_at_depth
            && progress.reaches_depth
            && self.looks_again(scene, progress) > 0;
        let conversation = flow.conversation.as_ref().filter(|_| goes_on)?;
        let is_first = conversation.heard(scene.direction.index()).0 == progress.new as u64;
        (!is_first).then(|| (0, scene.view.payload.to_vec()))
    }
}
