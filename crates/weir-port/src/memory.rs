//! A port in memory: two ends of a cable made of queues, for tests and benches.
//!
//! ```
//! use weir_port::{MemoryPort, Port};
//! let (mut near, mut far) = MemoryPort::pair("near", "far", 64);
//! near.push(b"a frame", Default::default());
//! let mut seen = Vec::new();
//! near.receive(&mut |frames| seen.extend(frames.iter().map(|f| f.bytes().to_vec())))?;
//! assert_eq!(seen, [b"a frame"]);
//! # let _ = far.counters();
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_wire::frame::{Frame, Meta};

use crate::port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
use crate::room::RoomyBuffers;

/// A frame at rest: its bytes and what is known of it.
pub type StoredFrame = (Vec<u8>, Meta);

/// One end of a cable: what it transmits waits at the other end.
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    incoming: Arc<Mutex<VecDeque<StoredFrame>>>,
    outgoing: Arc<Mutex<VecDeque<StoredFrame>>>,
    capacity: usize,
    buffers: RoomyBuffers,
    counters: PortCounters,
}

impl MemoryPort {
    /// Two connected ports. Each direction holds at most `capacity` frames; one more is counted as
    /// `send_queue_full`.
    pub fn pair(near: &str, far: &str, capacity: usize) -> (Self, Self) {
        let there = Arc::<Mutex<VecDeque<StoredFrame>>>::default();
        let back = Arc::<Mutex<VecDeque<StoredFrame>>>::default();
        let end = |name: &str, incoming: &Arc<_>, outgoing: &Arc<_>| Self {
            name: name.to_owned(),
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            capacity,
            buffers: RoomyBuffers::new(BATCH),
            counters: PortCounters::default(),
        };
        (end(near, &back, &there), end(far, &there, &back))
    }

    /// Puts a frame where [`Port::receive`] of this end finds it, whatever the capacity.
    pub fn push(&mut self, bytes: &[u8], meta: Meta) {
        queue(&self.incoming).push_back((bytes.to_vec(), meta));
    }
}

/// A queue survives the panic of whoever held it: its frames are whole.
fn queue(shared: &Mutex<VecDeque<StoredFrame>>) -> MutexGuard<'_, VecDeque<StoredFrame>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let batch: Vec<StoredFrame> = {
            let mut waiting = queue(&self.incoming);
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        };
        if batch.is_empty() {
            return Ok(0);
        }
        self.counters.received_frames += batch.len() as u64;
        self.counters.received_bytes += batch.iter().map(|(b, _)| b.len() as u64).sum::<u64>();
        let packets = batch.iter().map(|(bytes, meta)| (bytes.as_slice(), *meta));
        self.buffers.with_copies(packets, handle);
        Ok(batch.len())
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        let mut waiting = queue(&self.outgoing);
        let mut done = Transmitted::default();
        for frame in frames {
            if waiting.len() >= self.capacity {
                done.dropped += 1;
                continue;
            }
            let bytes =
                frame.parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>();
            done.sent += 1;
            self.counters.sent_bytes += bytes.len() as u64;
            let original_len = bytes.len() as u32;
            let meta = Meta { original_len, offload: frame.offload, ..Meta::default() };
            waiting.push_back((bytes, meta));
        }
        self.counters.sent_frames += done.sent;
        self.counters.send_queue_full += done.dropped;
        done
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    #[test]
    fn frames_arrive_whole_at_the_other_end_with_room_around() {
        let (mut near, mut far) = MemoryPort::pair("near", "far", 8);
        let parts = [IoSlice::new(b"head"), IoSlice::new(b"tail")];
        let frame = Outgoing { parts: &parts, offload: Default::default() };
        assert_eq!(near.transmit(&[frame]), Transmitted { sent: 1, dropped: 0 });
        let count = far
            .receive(&mut |frames| {
                assert_eq!(frames[0].bytes(), b"headtail");
                assert!(frames[0].headroom() >= 128 && frames[0].tailroom() >= 64);
            })
            .unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn full_queue_is_counted_and_keeps_what_it_holds() {
        let (mut near, mut far) = MemoryPort::pair("near", "far", 2);
        let parts = [IoSlice::new(b"x")];
        let frame = || Outgoing { parts: &parts, offload: Default::default() };
        let done = near.transmit(&[frame(), frame(), frame()]);
        assert_eq!(done, Transmitted { sent: 2, dropped: 1 });
        assert_eq!(near.counters().send_queue_full, 1);
        assert_eq!(far.receive(&mut |_| ()).unwrap(), 2);
    }

    #[test]
    fn empty_port_does_not_call() {
        let (mut near, _far) = MemoryPort::pair("near", "far", 2);
        assert_eq!(near.receive(&mut |_| panic!("nothing waits")).unwrap(), 0);
    }
}
