//! The second half of the way of pieces whose datagram was judged (docs/adr/0281).
//!
//! ```text
//!   Reassembled --judged--> pieces: from the host --> route --> protect --> wire port
//!                                   from the wire --> NAT, clamp ---------> host port
//!                                                 `-> for the gateway ----> its kernel
//! ```

use weir_wire::frame::{Frame, Time};
use weir_wire::parse::{Parsed, parse_frame};

use super::{Engine, Onward, Reassembled, goes_to_host, goes_to_wire};
use crate::classify::frame_class;
use crate::engine::Origin;
use crate::leave;
use crate::mtu;
use crate::output::{Destination, Output};
use crate::peer::PeerId;
use crate::protect::{self, Protector};
use crate::route::route;
use crate::run::Run;
use crate::verdict::{DropReason, Side, Verdict};

impl Engine {
    /// Judges a datagram whose flow is this worker's; the answer to one that is rejected is in the
    /// output.
    ///
    /// # Errors
    /// Why its pieces are to be dropped.
    pub fn judge_reassembled(
        &mut self,
        now: Time,
        reassembled: &Reassembled,
    ) -> Result<(), DropReason> {
        self.at(now);
        let Some(datagram) = reassembled.datagram() else { return Ok(()) };
        let judged = self.plain.judge_whole(reassembled.side(), now, datagram);
        if let Err(reason) = judged {
            self.answer_rejected(reassembled.side(), Verdict::Drop(reason));
        }
        judged
    }

    /// Sends pieces on whose datagram passed: `onward` of each, all of one side. Like
    /// [`Engine::process`].
    pub fn go_on(&mut self, now: Time, onward: &[Onward], pieces: &mut [Frame<'_>]) -> &Output {
        self.at(now);
        let mut run = Run::default();
        for (index, onward) in onward.iter().enumerate().take(pieces.len()) {
            let frame = &mut pieces[index];
            run.walk(frame);
            let place = index as u32;
            let verdict = match onward.way {
                Origin::Host => self.onward(place, frame, &mut run, None),
                Origin::Opened(peer) => self.on_to_host(peer, frame, &mut run),
                Origin::Plain(verdict) => Ok(self.on_in_clear(verdict, frame, run.parsed())),
                Origin::Kernel(peer, port) => match self.peers.index(peer) {
                    Some(peer) => self.opened_by_kernel(peer, port, frame, &mut run),
                    None => Err(DropReason::NoAssociation),
                },
                Origin::Own => Ok(self.hand_to_own(place, frame)),
            };
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            self.output.verdicts.push(verdict);
            onward.count(&mut self.counters, verdict);
            let destination = match onward.side {
                Side::Host => goes_to_wire(verdict).then_some(Destination::Wire),
                Side::Wire => goes_to_host(verdict).then_some(Destination::Host),
            };
            if let Some(destination) = destination {
                let Self { policy, gather, output, .. } = self;
                let clear = (run.parsed(), destination);
                leave::in_clear(policy, gather, output, (pieces, index), clear);
            }
        }
        self.gather.finish(pieces, &mut self.output);
        &self.output
    }

    /// The first piece of a datagram that does not fit where it goes, if there is one, which is
    /// counted by whoever refuses it. The others are dropped, and counted as too big: those that
    /// went on would wait at their receiver, for the next datagram of this number, which is judged
    /// without them.
    pub fn drop_but_misfit(&mut self, onward: &[Onward], pieces: &[Frame<'_>]) -> Option<usize> {
        let misfit = onward.iter().zip(pieces).position(|(way, piece)| !self.fits(*way, piece))?;
        for (_, onward) in onward.iter().enumerate().filter(|it| it.0 != misfit) {
            onward.count(&mut self.counters, Verdict::Drop(DropReason::TooBig));
        }
        Some(misfit)
    }

    fn fits(&self, onward: Onward, piece: &Frame<'_>) -> bool {
        let parsed = parse_frame(piece);
        let len = (parsed.end as usize).saturating_sub(parsed.network_offset.into());
        match onward.way {
            Origin::Host => {}
            // The kernel takes what came.
            Origin::Own => return true,
            _ => return len <= usize::from(self.policy.host_mtu),
        }
        let routed = route(&self.policy, frame_class(&parsed), Side::Host, &parsed);
        let peer = routed.ok().flatten().and_then(|peer| Some((peer, self.peers.get(peer)?)));
        let Some((peer, entry)) = peer else {
            return len <= usize::from(self.policy.wire_mtu);
        };
        let may_cut = Protector::of(&self.policy.peers[peer]).writes_outer_headers();
        entry.fits(&parsed, piece.len())
            || (may_cut && mtu::cut(&parsed, piece.bytes(), entry.ip_mtu(&parsed)).is_some())
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
