//! The second half of the way of a piece whose datagram another worker has judged (docs/adr/0220).
//!
//! ```text
//!   Reassembled --judged--> the piece: from the host --> route --> protect --> wire port
//!                                      from the wire --> NAT, clamp --------> host port
//! ```

use weir_wire::frame::{Frame, Time};
use weir_wire::parse::Parsed;

use super::{Engine, Onward, Reassembled, goes_to_host, goes_to_wire};
use crate::classify::frame_class;
use crate::engine::Origin;
use crate::leave;
use crate::output::{Destination, Output};
use crate::peer::PeerId;
use crate::protect;
use crate::route::route;
use crate::run::Run;
use crate::verdict::{DropReason, Side, Verdict};

impl Engine {
    /// Judges a datagram whose flow is this worker's; the answer to one that is rejected is in the
    /// output.
    ///
    /// # Errors
    /// Why its last piece is to be dropped.
    pub fn judge_reassembled(
        &mut self,
        now: Time,
        reassembled: &Reassembled,
    ) -> Result<(), DropReason> {
        self.at(now);
        let (side, datagram) = (reassembled.side(), reassembled.datagram());
        let judged = self.plain.judge_whole(side, now, datagram);
        if let Err(reason) = judged {
            self.answer_rejected(side, Verdict::Drop(reason));
        }
        judged
    }

    /// Sends a piece on whose datagram passed. Like [`Engine::process`] with a batch of one.
    pub fn go_on(&mut self, now: Time, onward: Onward, piece: &mut [Frame<'_>]) -> &Output {
        self.at(now);
        let mut run = Run::default();
        if let [frame] = piece {
            run.walk(frame);
            let verdict = match onward.way {
                Origin::Host => self.onward(0, frame, &mut run, None),
                Origin::Opened(peer) => self.on_to_host(peer, frame, &mut run),
                Origin::Plain(verdict) => Ok(self.on_in_clear(verdict, frame, run.parsed())),
            };
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            self.output.verdicts.push(verdict);
            self.counters.side_mut(onward.side).count(onward.received_bytes, verdict);
        }
        let verdict = self.output.verdicts.last().copied();
        let destination = match onward.side {
            Side::Host => verdict.filter(|it| goes_to_wire(*it)).map(|_| Destination::Wire),
            Side::Wire => verdict.filter(|it| goes_to_host(*it)).map(|_| Destination::Host),
        };
        if let Some(destination) = destination {
            let Self { policy, gather, output, .. } = self;
            leave::in_clear(policy, gather, output, (piece, 0), (run.parsed(), destination));
            gather.finish(piece, output);
        }
        &self.output
    }

    fn on_to_host(
        &mut self,
        peer: PeerId,
        frame: &mut Frame<'_>,
        run: &mut Run,
    ) -> Result<Verdict, DropReason> {
        let Some(peer) = self.peers.index(peer) else { return Err(DropReason::NoAssociation) };
        if let Some(nat) = &mut self.nat {
            nat.masquerade(&self.policy, peer, frame, run.walker.parsed_mut())?;
        }
        self.clamp(peer, frame, run);
        Ok(Verdict::Opened)
    }

    fn on_in_clear(&mut self, verdict: Verdict, frame: &mut Frame<'_>, parsed: &Parsed) -> Verdict {
        if verdict == Verdict::Unsealed
            && let Ok(Some(peer)) = route(&self.policy, frame_class(parsed), Side::Wire, parsed)
        {
            let Self { peers, counters, .. } = self;
            protect::clear::taken(peers, counters, peer, frame, parsed);
        }
        verdict
    }
}
