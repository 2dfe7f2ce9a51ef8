//! What the engine hands back for a batch: packets to send, as pieces, so that the shell copies
//! nothing. A piece lies in a received frame (changed in place) or in the engine's arena.

use std::ops::Range;

use weir_wire::frame::{Frame, Offload};

use crate::verdict::Verdict;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the host port.
    Host,
    /// To the wire port.
    Wire,
    /// To the gateway's own kernel or a daemon.
    Punt,
    /// To the kernel's ESP, by the xfrm interface at this place: an IP packet without link header.
    Kernel(u16),
}

/// One piece of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// `range` of the bytes of frame number `frame` of the batch, as they are after processing.
    Frame {
        /// Index into the batch.
        frame: u32,
        /// Bytes of [`Frame::bytes`].
        range: Range<u32>,
    },
    /// `range` of [`Output::arena`].
    Arena(Range<u32>),
}

/// One packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where to.
    pub destination: Destination,
    /// What the port must still do.
    pub offload: Offload,
    /// Its pieces: a range of [`Output::parts`].
    pub parts: Range<u32>,
}

/// A batch's packets. Reused from batch to batch; holds its memory.
#[derive(Debug, Default)]
pub struct Output {
    /// Packets, in the order to send them per destination.
    pub packets: Vec<Packet>,
    /// Their pieces.
    pub parts: Vec<Part>,
    /// What became of each frame of the batch, in its order.
    pub verdicts: Vec<Verdict>,
    /// Bytes made by the engine. Its length is fixed at start; `used` of it are in use.
    arena: Vec<u8>,
    used: usize,
}

impl Output {
    /// An output whose arena holds `arena_bytes`, taken now.
    pub fn new(arena_bytes: usize) -> Self {
        Self { arena: vec![0; arena_bytes], ..Self::default() }
    }

    /// Forgets the last batch.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.parts.clear();
        self.verdicts.clear();
        self.used = 0;
    }

    /// Takes `len` bytes of the arena; `None` when it is full (the caller counts the drop).
    pub fn allocate(&mut self, len: usize) -> Option<Range<u32>> {
        let end = self.used.checked_add(len).filter(|end| *end <= self.arena.len())?;
        let range = self.used as u32..end as u32;
        self.used = end;
        Some(range)
    }

    /// Bytes of the arena that are left.
    pub fn free(&self) -> usize {
        self.arena.len() - self.used
    }

    /// Bytes of the arena.
    pub fn arena(&self, range: &Range<u32>) -> &[u8] {
        &self.arena[range.start as usize..range.end as usize]
    }

    /// Bytes of the arena, to write.
    pub fn arena_mut(&mut self, range: &Range<u32>) -> &mut [u8] {
        &mut self.arena[range.start as usize..range.end as usize]
    }

    /// The bytes of one piece.
    pub fn resolve<'a>(&'a self, part: &Part, frames: &'a [Frame<'_>]) -> &'a [u8] {
        match part {
            Part::Frame { frame, range } => {
                &frames[*frame as usize].bytes()[range.start as usize..range.end as usize]
            }
            Part::Arena(range) => self.arena(range),
        }
    }

    /// Adds a frame of the batch as it is.
    #[inline]
    pub(crate) fn send_whole(&mut self, destination: Destination, index: u32, frame: &Frame<'_>) {
        let range = 0..frame.len() as u32;
        self.send(destination, frame.meta.offload, Part::Frame { frame: index, range });
    }

    /// Adds a packet of one piece.
    pub fn send(&mut self, destination: Destination, offload: Offload, part: Part) {
        let start = self.parts.len() as u32;
        self.parts.push(part);
        self.packets.push(Packet { destination, offload, parts: start..start + 1 });
    }
}
