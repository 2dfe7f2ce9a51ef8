//! Pieces of datagrams, which wait for each other and then for what becomes of the datagram
//! (docs/adr/0281). With several workers the one that has its flow judges it (docs/adr/0220).
//!
//! ```text
//!   piece --> Pieces --last one--> Reassembled --judged--> all of them: go_on, drop_reassembled
//!                                      |         ^
//!                                      `---------`-- judge_reassembled, by another worker
//! ```

use std::collections::HashMap;

use weir_wire::frame::{Frame, Link, Meta, Time};
use weir_wire::parse::parse;

use super::Engine;
use crate::counters::Counters;
use crate::peer::PeerId;
use crate::plain::Aside;
use crate::verdict::{DropReason, Side, Verdict};

/// Datagrams that wait to be taken, at most: more than a batch from either side brings.
pub(crate) const REASSEMBLED_MAX: usize = 256;

/// Room around a piece for what seals it.
const ROOM: usize = 128;

/// Pieces of a datagram that carries a piece of another, at most: 64 KiB over Ethernet are 45.
const CARRIERS_MAX: usize = 64;

/// A datagram made whole, and its pieces, which wait for what becomes of it.
#[derive(Debug, Default)]
pub struct Reassembled {
    /// `None`: it was judged, and its pieces may go on.
    datagram: Option<Vec<u8>>,
    pieces: Vec<Piece>,
}

/// A frame that waits.
#[derive(Debug)]
pub(crate) struct Piece {
    /// With [`ROOM`] at both ends.
    bytes: Vec<u8>,
    meta: Meta,
    onward: Onward,
}

/// Pieces of datagrams that are not whole; what bounds them is [`weir_detect::fragments`].
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    waiting: HashMap<u64, Vec<Piece>>,
    /// The frame that the verdict "held" is about.
    last: Option<Piece>,
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
    /// From the wire, for the gateway itself.
    Own,
    /// Sealed by this peer and opened by the kernel: by the xfrm interface of this number.
    Kernel(PeerId, u16),
}

impl Reassembled {
    /// The port that its pieces came in by.
    pub fn side(&self) -> Side {
        self.pieces.first().map_or(Side::Host, |it| it.onward.side)
    }

    /// The whole datagram in clear, from its Ethernet header on, if somebody is to judge it.
    pub fn datagram(&self) -> Option<&[u8]> {
        self.datagram.as_deref()
    }

    /// The pieces that wait, and where each goes.
    pub fn pieces(&mut self) -> (Vec<Frame<'_>>, Vec<Onward>) {
        let onward = self.pieces.iter().map(|it| it.onward).collect();
        let frames = self.pieces.iter_mut().map(|it| {
            let end = it.bytes.len() - ROOM;
            Frame::new(&mut it.bytes, ROOM, end, it.meta)
        });
        (frames.collect(), onward)
    }
}

impl Pieces {
    /// Those that wait for the datagram of this number.
    fn take(&mut self, number: u64) -> Vec<Piece> {
        self.waiting.remove(&number).unwrap_or_default()
    }

    fn take_all_of(&mut self, side: Side) -> Vec<Piece> {
        let of_side = |_: &u64, it: &mut Vec<Piece>| it.iter().any(|it| it.onward.side == side);
        self.waiting.extract_if(of_side).flat_map(|(_, pieces)| pieces).collect()
    }
}

impl Onward {
    /// The port that the piece came in by.
    pub fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn count(&self, counters: &mut Counters, verdict: Verdict) {
        let side = match self.way {
            Origin::Kernel(..) => &mut counters.kernel,
            _ => counters.side_mut(self.side),
        };
        side.count(self.received_bytes, verdict);
    }
}

impl Engine {
    /// The next datagram that was made whole here. With [`Engine::set_one_of_several`] the worker
    /// of its flow is to judge it; else it was judged. Ask between two batches.
    pub fn take_reassembled(&mut self) -> Option<Box<Reassembled>> {
        self.reassembled.pop_front()
    }

    /// Drops the pieces of a datagram for `reason`, and counts them.
    pub fn drop_reassembled(&mut self, dropped: &Reassembled, reason: DropReason) {
        self.drop_pieces(&dropped.pieces, reason);
    }

    fn drop_pieces(&mut self, pieces: &[Piece], reason: DropReason) {
        if let Some(first) = pieces.first().filter(|_| reason.is_unseen_inside()) {
            let bytes = &first.bytes[ROOM..first.bytes.len() - ROOM];
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            self.plain.tell_drop(first.meta.time, reason, bytes, &parsed);
        }
        for Piece { onward, .. } in pieces {
            onward.count(&mut self.counters, Verdict::Drop(reason));
        }
    }

    /// Drops the pieces from the wire that wait here, which cannot be delivered although they were
    /// opened; returns how many.
    pub fn withhold_reassembled(&mut self) -> u64 {
        let Self { reassembled, pieces, counters, .. } = self;
        let mut withheld = pieces.take_all_of(Side::Wire);
        reassembled.retain_mut(|it| {
            let is_of_host = it.side() == Side::Host;
            if !is_of_host {
                withheld.append(&mut it.pieces);
            }
            is_of_host
        });
        for Piece { onward, .. } in &withheld {
            onward.count(counters, Verdict::Opened);
        }
        withheld.len() as u64
    }

    /// Has a frame wait that passed, and is a piece of something.
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
        let waits = self.plain.aside().is_some_and(|it| it.waits_for.is_some());
        if !waits && self.reassembled.len() >= REASSEMBLED_MAX {
            return Err(DropReason::FlowQueueFull);
        }
        let bytes = [&[0; ROOM][..], frame.bytes(), &[0; ROOM]].concat();
        let onward = Onward { side, way, received_bytes: frame.len() };
        self.pieces.last = Some(Piece { bytes, meta: frame.meta, onward });
        Ok(Verdict::Held)
    }

    /// Puts the frame that had this verdict, and so many bytes when it was received, to the others
    /// of its datagram; or has them share its fate.
    #[cold]
    pub(crate) fn settle_pieces(&mut self, verdict: Verdict, received_bytes: usize) {
        let Some(aside) = self.plain.take_aside() else { return };
        let Aside { waits_for, completes, datagram } = *aside;
        // The innermost began first.
        let completed = completes.iter().rev();
        let mut pieces: Vec<_> = completed.flat_map(|it| self.pieces.take(*it)).collect();
        match (verdict, self.pieces.last.take()) {
            (Verdict::Held, Some(mut last)) => {
                last.onward.received_bytes = received_bytes;
                pieces.push(last);
                match waits_for {
                    Some(_) if pieces.len() > CARRIERS_MAX => {
                        self.drop_pieces(&pieces, DropReason::FragmentsFull);
                    }
                    Some(number) => {
                        self.pieces.waiting.entry(number).or_default().append(&mut pieces);
                    }
                    None => self.reassembled.push_back(Box::new(Reassembled { datagram, pieces })),
                }
            }
            (Verdict::Drop(reason), _) => self.drop_pieces(&pieces, reason),
            // Nobody else decides about pieces.
            _ => self.drop_pieces(&pieces, DropReason::Malformed),
        }
        self.settle_abandoned();
    }

    /// Drops pieces that wait in vain; or lets them go on, where exceptions say so.
    fn settle_abandoned(&mut self) {
        for abandoned in self.plain.take_abandoned() {
            let pieces = self.pieces.take(abandoned.number);
            match abandoned.reason {
                Some(reason) => self.drop_pieces(&pieces, reason),
                None if self.reassembled.len() >= REASSEMBLED_MAX => {
                    self.drop_pieces(&pieces, DropReason::FragmentsFull);
                }
                None => self.release(pieces),
            }
        }
    }

    fn release(&mut self, pieces: Vec<Piece>) {
        if !pieces.is_empty() {
            self.reassembled.push_back(Box::new(Reassembled { datagram: None, pieces }));
        }
    }

    /// Lets all pieces go on, if a new policy wants them held no more.
    pub(crate) fn release_pieces(&mut self) {
        if self.plain.holds_pieces() {
            return;
        }
        for side in [Side::Host, Side::Wire] {
            let pieces = self.pieces.take_all_of(side);
            self.release(pieces);
        }
    }

    /// Gives up datagrams whose other pieces do not come.
    pub(crate) fn expire_pieces(&mut self) {
        self.plain.expire_pieces(self.now);
        self.settle_abandoned();
    }

    /// Moment of the datagrams that are judged for others.
    pub(crate) fn at(&mut self, now: Time) {
        self.output.clear();
        self.now = now;
    }
}
