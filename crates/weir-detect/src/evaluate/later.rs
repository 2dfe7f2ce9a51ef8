//! Where streams are looked at once they are acknowledged (docs/adr/0313): what rules about them
//! do takes effect then.

use super::looks::Looked;
use super::{Evaluator, Sight};
use crate::conversation::is_in_chunks;
use crate::detector::{Decision, Direction};
use crate::flow::{Effect, Flow, HeardStream, Waiting};
use crate::packet::View;
use crate::rule::{Buffer, BufferTest, Rule};
use crate::session::Closing;

/// The entropy of a buffer, reckoned for a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reckoned {
    /// None: `base64_data`.
    buffer: Option<Buffer>,
    entropy: f64,
    /// What was seen belongs to more than the packet at hand.
    is_stream: bool,
}

impl Evaluator {
    /// The last of each buffer counts.
    pub(super) fn note_entropy(&mut self, buffer: Option<Buffer>, entropy: f64, is_stream: bool) {
        self.entropies.retain(|it| it.buffer != buffer);
        self.entropies.push(Reckoned { buffer, entropy, is_stream });
    }

    /// Notes with the flow what was reckoned with the packet at hand.
    pub(super) fn tell_entropies(&mut self, flow: &mut Flow, side: Direction) {
        for Reckoned { buffer, entropy, is_stream } in self.entropies.drain(..) {
            match self.heard.filter(|_| is_stream) {
                Some(heard) => {
                    let effect = Effect::Entropy(buffer, entropy);
                    let waiting = Waiting { effect, side, end: heard.length, is_of_bytes: false };
                    flow.put_off(waiting, &self.limits);
                }
                None => flow.note_entropy(buffer, entropy),
            }
        }
    }

    /// How far the stream of a packet's side has come with it, for who waits. Whether rules about
    /// bytes look at more of it now.
    pub(super) fn hear_stream(
        &mut self,
        flow: &mut Flow,
        direction: Direction,
        view: &View<'_>,
        reaches_depth: bool,
    ) -> bool {
        self.heard = None;
        self.is_heard_out = false;
        if !self.limits.waits_for_acknowledgment || !view.is_tcp() {
            return false;
        }
        let Some(conversation) = &mut flow.conversation else { return false };
        let side = direction.index();
        let (length, acknowledged) = conversation.heard(side);
        // With what is no part of the connection nothing takes effect.
        let acknowledged = match view.closing {
            Closing::Reset => length,
            Closing::None if view.is_refused => 0,
            Closing::None | Closing::Behind => acknowledged,
        };
        let closes = match flow.session.as_ref().filter(|it| it.state().is_some()) {
            // As far as both ends are, which is more than a FIN says.
            Some(session) => session.is_replaceable(),
            None => view.closes() && !view.is_refused,
        };
        self.reaches_depth = reaches_depth && self.limits.as_suricata.stops_at_depth;
        let is_at_once = closes || self.reaches_depth || !is_in_chunks(flow.told.application, side);
        let (before, looked_at) = conversation.look_through(side, acknowledged, is_at_once);
        self.heard = Some(HeardStream { length, acknowledged, looked_at });
        self.is_heard_out = view.payload.is_empty() && acknowledged >= length;
        looked_at > before
    }

    /// Notes that the packet's side has ended a message with it, if it has.
    pub(super) fn note_message_end(&self, flow: &mut Flow, direction: Direction, view: &View<'_>) {
        if let Some(conversation) = &mut flow.conversation
            && self.heard.is_some()
            && !view.payload.is_empty()
        {
            conversation.note_message_end(direction.index());
        }
    }

    /// The number up to which rules about bytes have looked at the stream of the last packet's
    /// side, for who waits.
    pub(crate) fn looked_at(&self, flow: &Flow, direction: Direction) -> Option<u32> {
        let looked_at = self.heard?.looked_at;
        flow.conversation.as_ref()?.number_at(direction.index(), looked_at)
    }

    /// Whether what is looked at of a stream has what a rule asks of bytes: what must not be there,
    /// or is to stand at the end, may have been so for a while alone.
    pub(crate) fn holds_still(&mut self, rule: &Rule, flow: &Flow, direction: Direction) -> bool {
        let Some(conversation) = &flow.conversation else { return true };
        let sight = Sight::of_stream(conversation.chunk(direction.index()));
        self.forget_look();
        let is_of_payload = |it: &&BufferTest| it.key.buffer == Buffer::Payload;
        rule.buffers.iter().filter(is_of_payload).all(|it| self.payload_holds(it, sight))
    }

    /// Set where what a rule does on that sight waits.
    pub(super) fn is_put_off(&self, sight: &Sight<'_>) -> Option<bool> {
        let waits = self.heard.is_some() && !self.is_heard_out;
        (waits && sight.is_stream).then_some(sight.message.is_none())
    }

    /// Puts it off, if what the rule at hand does waits; whether it does.
    pub(super) fn put_off(&self, flow: &mut Flow, side: Direction, effect: Effect) -> bool {
        let Some((heard, is_of_bytes)) = self.heard.zip(self.puts_off) else { return false };
        flow.put_off(Waiting { effect, side, end: heard.length, is_of_bytes }, &self.limits);
        true
    }

    /// A rule has let the packet pass, or the rest of its flow with it, at once or later.
    pub(super) fn pass(
        &mut self,
        flow: &mut Flow,
        direction: Direction,
        looked: Looked,
        decision: Decision,
    ) {
        let is_of_packet = looked.at_packet.is_some();
        let may_wait = self.heard.is_some() && !self.is_heard_out;
        let waits = may_wait && (!is_of_packet || looked.at_packet != looked.at_rest);
        self.is_passed = decision == Decision::Pass
            && match waits {
                true => is_of_packet,
                false => looked.at_rest.is_some(),
            };
        if let Some(is_of_flow) = looked.at_rest {
            match waits {
                true if is_of_flow => _ = self.put_off(flow, direction, Effect::Pass(self.passer)),
                true => {}
                false => flow.is_passed |= is_of_flow,
            }
        }
    }
}
