//! Rules against the payload of an RDMA operation that its packets bring piece by piece.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::conversation::Progress;
use crate::detector::{Decision, Unseen};
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::matcher::SOUGHT_MAX;
use crate::packet::View;
use crate::payload::fast_end;
use crate::rdma::operation::Piece;
use crate::rule::Rule;
use crate::ruleset::RuleSet;

impl Evaluator {
    /// Hears a packet of RDMA, where a rule looks into operations.
    pub(super) fn hear_operation(
        &mut self,
        rules: &RuleSet,
        flow: &mut Flow,
        view: &View<'_>,
        progress: &mut Progress,
    ) {
        if !rules.needs().operations {
            return;
        }
        match flow.hear_operation(view, &self.limits) {
            Piece::None => {}
            Piece::Here => progress.is_part = true,
            Piece::Lost => self.refused = Some(Unseen::Conflict),
        }
    }

    /// Rules whose fast pattern is in the packet, or lies over the border to the one before, or
    /// came with an earlier one; and rules without one. Called behind the look at the packet, whose
    /// candidates are still there.
    pub(super) fn look_at_operation(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let Some(mut operations) = flow.operations.take() else {
            return;
        };
        let rules = scene.rules;
        self.candidates.retain(|it| rules.rule(*it).is_of_operation());
        let mut of_packet = std::mem::take(&mut self.of_operations);
        let mut matched = std::mem::take(&mut self.matched);
        of_packet.clone_from(&self.candidates);
        matched.clear();
        for operation in operations.at_hand() {
            self.candidates.clone_from(&of_packet);
            let (window, before, new) = operation.window();
            let of_what = (scene.direction, scene.kind(flow));
            let Self { candidates, scratch, .. } = self;
            rules.payloads().scan_border(of_what, (window, new), scratch, candidates);
            // Where a pattern cannot count, its rule would wait for more.
            let scanned = (new + SOUGHT_MAX).min(window.len());
            let from = before + (window.len() - scanned) as u64;
            let may_count = |it: &Rule| it.is_of_operation() && from < fast_end(it);
            candidates.retain(|it| may_count(rules.rule(*it)));
            candidates.extend_from_slice(operation.waiting());
            self.settle(scene);
            let view = &View { operation: Some(operation.head()), ..*scene.view };
            let scene = &Scene { view, ..*scene };
            let candidates = std::mem::take(&mut self.candidates);
            for index in &candidates {
                // In another version of the operation too.
                if operation.is_matched(*index) || matched.contains(index) {
                    continue;
                }
                let rule = rules.rule(*index);
                let (bytes, before, _) = operation.window();
                let goes_on = !operation.is_whole();
                let payload =
                    Some(Bytes { before, is_open: goes_on, goes_on, ..Bytes::whole(bytes) });
                let sight = Sight { payload, message: None, is_stream: false };
                if self.matches(rule, flow, scene, sight) {
                    self.act((rule, *index, sight), flow, scene, alerts, decision);
                    matched.push(*index);
                    // What is dropped comes again, and is dropped again.
                    if *decision == Decision::Pass {
                        operation.match_ends(*index);
                    }
                } else if rule.fast.is_some() && !operation.wait(*index) {
                    self.counters.candidates_lost += 1;
                }
            }
            self.candidates = candidates;
        }
        if *decision == Decision::Pass {
            operations.let_go();
        }
        flow.operations = Some(operations);
        (self.of_operations, self.matched) = (of_packet, matched);
    }
}
