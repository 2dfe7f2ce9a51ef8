//! Buffers with the head and tail room that the port contract promises, for ports that must copy.

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta};

use crate::port::BATCH;

/// Free bytes before a packet: the largest tunnel headers, a VLAN tag, and some.
pub(crate) const HEADROOM: usize = 192;
/// Free bytes behind a packet: padding, trailer and check value of ESP.
pub(crate) const TAILROOM: usize = 64;

/// One buffer a frame of a batch, grown to the longest packet seen.
#[derive(Debug)]
pub(crate) struct RoomyBuffers {
    buffers: Vec<Vec<u8>>,
}

impl RoomyBuffers {
    pub(crate) fn new(count: usize) -> Self {
        Self { buffers: vec![Vec::new(); count] }
    }

    /// Copies `packets` (no more than there are buffers) and passes the copies to `handle`.
    pub(crate) fn with_copies<'p>(
        &mut self,
        packets: impl Iterator<Item = (&'p [u8], Meta)>,
        handle: &mut dyn FnMut(&mut [Frame<'_>]),
    ) {
        let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
        for (buffer, (packet, meta)) in self.buffers.iter_mut().zip(packets) {
            let end = HEADROOM + packet.len();
            if buffer.len() < end + TAILROOM {
                buffer.resize(end + TAILROOM, 0);
            }
            buffer[HEADROOM..end].copy_from_slice(packet);
            frames.push(Frame::new(&mut buffer[..end + TAILROOM], HEADROOM, end, meta));
        }
        handle(&mut frames);
    }
}
