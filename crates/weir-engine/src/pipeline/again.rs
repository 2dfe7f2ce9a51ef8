//! Packets of the gateway's own that go the way of the host's: answers to what the wire sent and a
//! line of access or a rule rejects, and the pieces of what was too big.
//!
//! ```text
//!   rejected of the host's ----> answer --> host port
//!   rejected of the wire's ----> answer --> as the host's packets: routed, sealed --> wire port
//! ```

use weir_wire::frame::{Frame, Link, Meta, Offload};

use super::{Engine, goes_to_wire};
use crate::access::ANSWER_LEN_MAX;
use crate::leave;
use crate::output::{Destination, Part};
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
        let Self { plain, output, now, .. } = self;
        let Some(answer) = plain.take_answer(reason) else { return };
        match side {
            Side::Host => leave::answer_host(output, answer),
            Side::Wire => {
                let mut buffer = [0; ROOM + ANSWER_LEN_MAX + ROOM];
                let end = ROOM + answer.len();
                buffer[ROOM..end].copy_from_slice(answer);
                let original_len = answer.len() as u32;
                let offload = Offload::default();
                let meta = Meta { time: *now, original_len, link: Link::Ethernet, offload };
                // What cannot go is lost: its receiver asks again.
                let _ = self.send_as_host(&mut Frame::new(&mut buffer, ROOM, end, meta));
            }
        }
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
