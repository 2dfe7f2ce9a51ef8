//! Packets of the gateway's own that go the way of the host's: answers to what the wire sent and a
//! line of access or a rule rejects, and the pieces of what was too big.
//!
//! ```text
//!   answer to the host --> host port
//!   answer to the wire --> as the host's packets: routed, sealed --> wire port
//! ```
//!
//! An answer to a packet's sender goes back where that came from; one to its receiver goes on.

use weir_wire::frame::{Frame, Link, Meta, Offload};
use weir_wire::parse::parse_frame;

use super::{Engine, goes_to_wire};
use crate::access::ANSWER_LEN_MAX;
use crate::arrive;
use crate::leave;
use crate::output::{Destination, Part};
use crate::plain::End;
use crate::policy::Route;
use crate::run::Run;
use crate::verdict::{DropReason, Side, Verdict};

/// Room around a packet for what seals it.
const ROOM: usize = 128;

/// Stands for the frame of such a packet, which is none of the batch.
const ANSWER: u32 = u32::MAX;

impl Engine {
    /// Sends the answer to what was just rejected, if `verdict` says that anything was.
    #[inline]
    pub(super) fn answer_rejected(&mut self, side: Side, verdict: Verdict) {
        if let Verdict::Drop(reason @ (DropReason::AccessDenied | DropReason::Rule)) = verdict {
            self.answer(side, reason);
        }
    }

    #[cold]
    fn answer(&mut self, side: Side, reason: DropReason) {
        let other = if side == Side::Host { Side::Wire } else { Side::Host };
        for (end, to) in [(End::Sender, side), (End::Receiver, other)] {
            let Some(answer) = self.plain.take_answer(reason, end) else { continue };
            let mut buffer = [0; ROOM + ANSWER_LEN_MAX + ROOM];
            let (after, original_len) = (ROOM + answer.len(), answer.len() as u32);
            buffer[ROOM..after].copy_from_slice(answer);
            let (time, offload) = (self.now, Offload::default());
            let meta = Meta { time, original_len, link: Link::Ethernet, offload };
            let mut frame = Frame::new(&mut buffer, ROOM, after, meta);
            // What cannot go is lost: its receiver asks again.
            let _ = match to {
                Side::Host => self.answer_host(&mut frame),
                Side::Wire => self.send_as_host(&mut frame),
            };
        }
    }

    /// Sends an answer to the host, which knows clients by the masquerade's address.
    fn answer_host(&mut self, frame: &mut Frame<'_>) -> Result<(), DropReason> {
        let Self { policy, nat, output, .. } = self;
        let mut parsed = parse_frame(frame);
        // It is the gateway's kernel that the packet was for, and no host.
        if arrive::is_own(policy, &parsed) {
            return Ok(());
        }
        if let Some(nat) = nat
            && let Some(Route::Peer(peer)) = policy.route_to(&parsed.source)
        {
            nat.masquerade(policy, peer as usize, frame, &mut parsed)?;
        }
        leave::answer_host(output, frame.bytes());
        Ok(())
    }

    /// Sends the fragments of a packet of the host's that was counted as a whole.
    ///
    /// # Errors
    /// Why one of them cannot go; those before it are on their way, and worth nothing.
    pub(super) fn send_pieces(&mut self, pieces: &[Vec<u8>]) -> Result<Verdict, DropReason> {
        for piece in pieces {
            let mut buffer = [&[0; ROOM][..], piece, &[0; ROOM]].concat();
            let (original_len, offload) = (piece.len() as u32, Offload::default());
            let meta = Meta { time: self.now, original_len, link: Link::Ethernet, offload };
            self.send_as_host(&mut Frame::new(&mut buffer, ROOM, ROOM + piece.len(), meta))?;
        }
        self.counters.too_big_cut += 1;
        Ok(Verdict::Sealed)
    }

    /// Sends a frame the way of those that come from the host.
    fn send_as_host(&mut self, frame: &mut Frame<'_>) -> Result<(), DropReason> {
        let mut run = Run::default();
        run.walk(frame);
        let before = (self.output.packets.len(), self.output.parts.len());
        let verdict = self.onward(ANSWER, frame, &mut run, None)?;
        if goes_to_wire(verdict) {
            self.output.send_whole(Destination::Wire, ANSWER, frame);
        }
        for at in before.1..self.output.parts.len() {
            let Part::Frame { frame: ANSWER, range } = &self.output.parts[at] else { continue };
            let piece = &frame.bytes()[range.start as usize..range.end as usize];
            let Some(place) = self.output.allocate(piece.len()) else {
                self.output.packets.truncate(before.0);
                self.output.parts.truncate(before.1);
                return Err(DropReason::ArenaFull);
            };
            self.output.arena_mut(&place).copy_from_slice(piece);
            self.output.parts[at] = Part::Arena(place);
        }
        Ok(())
    }
}
