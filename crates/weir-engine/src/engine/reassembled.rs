//! Datagrams that their last piece made whole in a worker that may not have their flow
//! (docs/adr/0220).
//!
//! ```text
//!   worker of the pieces --Reassembled--> worker of the flow: judge_reassembled
//!            ^                                  |
//!            `--go_on, or drop_reassembled <----+
//! ```

use weir_wire::frame::{Frame, Meta, Time};

use super::Engine;
use crate::peer::PeerId;
use crate::verdict::{DropReason, Side, Verdict};

/// Datagrams that wait to be taken, at most: more than a batch from either side brings.
pub(crate) const REASSEMBLED_MAX: usize = 256;

/// Room around a piece for what seals it.
const ROOM: usize = 128;

/// A datagram made whole, and the piece that did it, which waits for what becomes of the datagram.
#[derive(Debug)]
pub struct Reassembled {
    datagram: Vec<u8>,
    /// With [`ROOM`] at both ends.
    piece: Vec<u8>,
    meta: Meta,
    onward: Onward,
}

/// Where a piece goes once its datagram has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onward {
    pub(crate) side: Side,
    pub(crate) way: Origin,
    /// Bytes of the frame as it was received.
    pub(crate) received_bytes: usize,
}

/// How a piece came to the joint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the host.
    Host,
    /// From the wire, sealed by this peer.
    Opened(PeerId),
    /// From the wire in clear, with the verdict that it has if it passes.
    Plain(Verdict),
}

impl Reassembled {
    pub(crate) fn new(datagram: Vec<u8>, frame: &Frame<'_>, onward: Onward) -> Self {
        let piece = [&[0; ROOM][..], frame.bytes(), &[0; ROOM]].concat();
        Self { datagram, piece, meta: frame.meta, onward }
    }

    /// The port that its pieces came in by.
    pub fn side(&self) -> Side {
        self.onward.side
    }

    /// The whole datagram in clear, from its Ethernet header on.
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// The piece that waits, and where it goes.
    pub fn piece(&mut self) -> (Frame<'_>, Onward) {
        let end = self.piece.len() - ROOM;
        (Frame::new(&mut self.piece, ROOM, end, self.meta), self.onward)
    }
}

impl Onward {
    /// The port that the piece came in by.
    pub fn side(&self) -> Side {
        self.side
    }
}

impl Engine {
    /// The next datagram that was made whole here and is to be judged by the worker of its flow.
    /// Only with [`Engine::set_one_of_several`]; ask between two batches.
    pub fn take_reassembled(&mut self) -> Option<Box<Reassembled>> {
        self.reassembled.pop_front()
    }

    /// Drops a piece for `reason`, and counts it.
    pub fn drop_reassembled(&mut self, dropped: &Reassembled, reason: DropReason) {
        let Onward { side, received_bytes, .. } = dropped.onward;
        self.counters.side_mut(side).count(received_bytes, Verdict::Drop(reason));
    }

    /// Drops the pieces from the wire that wait here, which cannot be delivered although they were
    /// opened; returns how many.
    pub fn withhold_reassembled(&mut self) -> u64 {
        let Self { reassembled, counters, .. } = self;
        let before = reassembled.len();
        reassembled.retain(|it| {
            let Onward { side, received_bytes, .. } = it.onward;
            if side == Side::Wire {
                counters.wire.count(received_bytes, Verdict::Opened);
            }
            side == Side::Host
        });
        (before - reassembled.len()) as u64
    }

    /// Sets a piece aside until somebody has judged what it made whole.
    ///
    /// # Errors
    /// [`DropReason::FlowQueueFull`].
    #[cold]
    pub(crate) fn hold(
        &mut self,
        frame: &Frame<'_>,
        side: Side,
        way: Origin,
    ) -> Result<Verdict, DropReason> {
        let Some(datagram) = self.plain.take_whole() else { return Err(DropReason::Malformed) };
        if self.reassembled.len() == REASSEMBLED_MAX {
            return Err(DropReason::FlowQueueFull);
        }
        let onward = Onward { side, way, received_bytes: frame.len() };
        self.reassembled.push_back(Box::new(Reassembled::new(datagram, frame, onward)));
        Ok(Verdict::Held)
    }

    /// The frame that was held last had so many bytes when it was received.
    #[cold]
    pub(crate) fn note_held(&mut self, received_bytes: usize) {
        if let Some(last) = self.reassembled.back_mut() {
            last.onward.received_bytes = received_bytes;
        }
    }

    /// Moment of the datagrams that are judged for others.
    pub(crate) fn at(&mut self, now: Time) {
        self.output.clear();
        self.now = now;
    }
}
