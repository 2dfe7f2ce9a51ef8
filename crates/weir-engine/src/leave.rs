//! What leaves as it is: gathered segments, whole frames; and what a sender must be told.

use weir_wire::frame::{Frame, Offload, Time};
use weir_wire::parse::Parsed;

use crate::counters::Counters;
use crate::mtu::{self, AnswerLimit};
use crate::nat::Nat;
use crate::offload::gather::Gather;
use crate::output::{Destination, Output, Part};
use crate::peer::PeerEntry;
use crate::policy::Policy;

/// Sends a frame that is in clear, to the host or to the wire.
#[inline]
pub(crate) fn in_clear(
    policy: &Policy,
    gather: &mut Gather,
    output: &mut Output,
    (frames, index): (&[Frame<'_>], usize),
    (parsed, destination): (&Parsed, Destination),
) {
    if policy.gather && Gather::concerns(parsed) {
        gather.push(frames, index as u32, parsed, destination, output);
    } else {
        output.send_whole(destination, index as u32, &frames[index]);
    }
}

/// What answers a sender whose packet does not fit.
pub(crate) struct Answering<'a> {
    pub(crate) now: Time,
    pub(crate) limit: &'a mut AnswerLimit,
    pub(crate) nat: Option<&'a mut Nat>,
    pub(crate) output: &'a mut Output,
    pub(crate) counters: &'a mut Counters,
}

impl Answering<'_> {
    /// Tells the sender of a packet for `peer` by ICMP that it is too big, where it should be told.
    #[cold]
    pub(crate) fn too_big(self, peer: &PeerEntry, frame: &Frame<'_>, parsed: &Parsed) {
        if !mtu::may_answer(parsed, frame.bytes()) || !self.limit.take(self.now) {
            return;
        }
        let ip_mtu = peer.ip_mtu(parsed);
        let Some(range) = self.output.allocate(mtu::answer_len(parsed)) else { return };
        let answer = self.output.arena_mut(&range);
        mtu::answer_too_big(parsed, frame.bytes(), ip_mtu, answer);
        if let Some(nat) = self.nat {
            nat.masquerade_answer(self.now, answer);
        }
        self.output.send(Destination::Host, Offload::default(), Part::Arena(range));
        self.counters.too_big_answered += 1;
    }
}

/// Sends `answer`, a whole frame of the gateway's own, to the host.
pub(crate) fn answer_host(output: &mut Output, answer: &[u8]) {
    let Some(range) = output.allocate(answer.len()) else { return };
    output.arena_mut(&range).copy_from_slice(answer);
    output.send(Destination::Host, Offload::default(), Part::Arena(range));
}
