//! Where streams are looked at once they are acknowledged (docs/adr/0313): what rules about them
//! do takes effect then.

use super::looks::Looked;
use super::{Evaluator, Sight};
use crate::detector::{Decision, Direction};
use crate::flow::{Effect, Flow, Waiting};
use crate::packet::View;
use crate::rule::Buffer;
use crate::session::Closing;

/// How far the stream of a packet's side has come, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeardStream {
    pub(super) length: u64,
    /// What its receiver has of it.
    pub(super) acknowledged: u64,
}

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

    pub(super) fn heard_of(
        &self,
        flow: &Flow,
        direction: Direction,
        view: &View<'_>,
    ) -> Option<HeardStream> {
        let conversation = flow.conversation.as_ref();
        let waits = self.limits.waits_for_acknowledgment && view.is_tcp();
        let (length, acknowledged) = conversation.filter(|_| waits)?.heard(direction.index());
        // With what is no part of the connection nothing takes effect.
        let acknowledged = match view.closing {
            Closing::Reset => length,
            Closing::None if view.is_refused => 0,
            Closing::None | Closing::Behind => acknowledged,
        };
        Some(HeardStream { length, acknowledged })
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
