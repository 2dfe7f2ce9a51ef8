//! Rules against sessions of TLS and SSH, which come further message by message.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::conversation::{Conversation, MessageUpdate};
use crate::detector::Decision;
use crate::flow::Flow;
use crate::inspect::Bytes;

impl Evaluator {
    /// A session of which a side has shown more, or that came into another state, which rules look
    /// at that ask: what matched it does not again.
    pub(super) fn session(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        (told, conversation): (&MessageUpdate, &mut Conversation),
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let side = scene.direction.index();
        let Some(message) = conversation.message(told, side) else { return };
        self.gather(scene, message, None);
        self.settle(scene);
        let candidates = std::mem::take(&mut self.candidates);
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            let is_meant = *told != MessageUpdate::State || rule.hook.is_some();
            let is_known = conversation.of_session[side].contains(index);
            if !rule.is_of_messages(false) || !is_meant || is_known {
                continue;
            }
            let payload = Some(Bytes::whole(conversation.window(side).0));
            let message = conversation.message(told, side);
            let sight = Sight { payload, message, is_stream: true };
            if self.matches(rule, flow, scene, sight) {
                self.act((rule, *index, sight), flow, scene, alerts, decision);
                conversation.match_session(side, *index);
            }
        }
        self.candidates = candidates;
    }
}
