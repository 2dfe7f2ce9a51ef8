//! One socket on one queue: what is received there, and what is sent by it.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use weir_wire::checksum::{Sum, unfinished};
use weir_wire::ethernet::ip_offset;
use weir_wire::frame::{Frame, Meta, PartialChecksum, Time};

use super::BUFFERS_MAX;
use super::queue::Queue;
use super::rings::{ReceiveRing, Received, TransmitRing};
use super::umem::{Chunk, Umem};
use crate::port::{BATCH, Outgoing, PortCounters, Transmitted};
use crate::room::{HEADROOM, TAILROOM};
use crate::sys::clock;
use crate::sys::socket::Socket;

/// Times the kernel is asked to send what waits, 32 packets each, before that is left for later.
const KICKS_MAX: usize = 64;

/// Looks at the rings that sockets share while another has them, before a frame is given up for
/// lack of room.
const LOOKS_MAX: usize = 64;

/// A worker's socket on one queue.
#[derive(Debug)]
pub(super) struct QueueSocket {
    /// Which of the queue's sockets this is.
    pub(super) number: usize,
    /// To be received into again.
    pub(super) returned: Vec<Chunk>,
    /// To send from.
    pub(super) free: Vec<Chunk>,
    pub(super) scratch: Vec<u8>,
    pub(super) counters: PortCounters,
    pub(super) receive: ReceiveRing,
    pub(super) transmit: TransmitRing,
    /// After the rings: the kernel lets go of the memory when the last socket closes.
    pub(super) socket: Socket,
    pub(super) queue: Arc<Queue>,
}

impl QueueSocket {
    /// Passes what waits to `handle`, at most [`BATCH`] frames; `linear` has room for those of
    /// several buffers.
    pub(super) fn receive(
        &mut self,
        (received, linear): (&mut Vec<Received>, &mut Vec<Box<[u8]>>),
        handle: &mut dyn FnMut(&mut [Frame<'_>]),
    ) -> usize {
        self.receive.take(BATCH, received);
        if received.is_empty() {
            self.give_back();
            return 0;
        }
        let Self { queue, counters, returned, .. } = self;
        let umem = &queue.umem;
        let time = clock::time();
        let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
        let mut linear = linear.iter_mut();
        let mut buffers = received.as_mut_slice();
        while let Some(last) = buffers.iter().position(|buffer| !buffer.continues) {
            let (packet, rest) = buffers.split_at_mut(last + 1);
            buffers = rest;
            let Some(frame) = frame_of(umem, packet, &mut linear, time) else {
                counters.lost_truncated += 1;
                continue;
            };
            counters.received_bytes += frame.len() as u64;
            frames.push(frame);
        }
        let count = frames.len();
        counters.received_frames += count as u64;
        if count > 0 {
            handle(&mut frames);
        }
        drop(frames);
        returned.extend(received.drain(..).map(|buffer| buffer.chunk));
        self.give_back();
        count
    }

    /// Sends frames in their order.
    pub(super) fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        self.take_back();
        let mut done = Transmitted::default();
        for frame in frames {
            match self.queue(frame) {
                Ok(len) => {
                    done.sent += 1;
                    self.counters.sent_bytes += len as u64;
                }
                Err(refused) => {
                    done.dropped += 1;
                    match refused {
                        Refused::QueueFull => self.counters.send_queue_full += 1,
                        Refused::TooLarge => self.counters.send_too_large += 1,
                    }
                }
            }
        }
        self.counters.sent_frames += done.sent;
        self.transmit.publish();
        self.kick();
        done
    }

    pub(super) fn counters(&mut self) -> PortCounters {
        // struct xdp_statistics: receive dropped, invalid received, invalid sent, receive ring
        // full, fill ring empty, transmit ring empty.
        if let Ok(statistics) = self.socket.option::<[u64; 6]>(libc::SOL_XDP, libc::XDP_STATISTICS)
        {
            self.counters.lost_ring_full = statistics[0] + statistics[3];
            self.counters.send_refused = statistics[2];
        }
        self.counters
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.socket.take_error()
    }
}

/// Why a frame was not queued.
enum Refused {
    QueueFull,
    TooLarge,
}

impl QueueSocket {
    /// Gives the kernel back what it may receive into, unless another socket is at it.
    fn give_back(&mut self) {
        let Some(mut rings) = self.queue.rings() else { return };
        rings.give(self.returned.drain(..));
        if rings.needs_wakeup() {
            let _ = self.socket.receive(&mut [], libc::MSG_DONTWAIT);
        }
    }

    /// Takes back what was sent. False: another socket is at it.
    fn take_back(&mut self) -> bool {
        let Some(mut rings) = self.queue.rings() else { return false };
        rings.take(self.number, &mut self.free);
        true
    }

    /// Copies a frame into chunks and queues these; its length.
    fn queue(&mut self, frame: &Outgoing<'_>) -> Result<usize, Refused> {
        let len: usize = frame.parts.iter().map(|part| part.len()).sum();
        let buffers = len.div_ceil(self.queue.umem.layout().chunk_len);
        if frame.offload.segmentation.is_some() || buffers > BUFFERS_MAX || len == 0 {
            return Err(Refused::TooLarge);
        }
        if self.free.len() < buffers || self.transmit.free() < buffers {
            self.transmit.publish();
            self.kick();
            (0..LOOKS_MAX).find(|_| self.take_back());
        }
        if self.free.len() < buffers || self.transmit.free() < buffers {
            return Err(Refused::QueueFull);
        }
        match frame.offload.checksum {
            None => self.copy_in(frame.parts, buffers),
            Some(partial) => {
                let mut whole = std::mem::take(&mut self.scratch);
                whole.clear();
                frame.parts.iter().for_each(|part| whole.extend_from_slice(part));
                complete_checksum(&mut whole, partial);
                self.copy_in(&[IoSlice::new(&whole)], buffers);
                self.scratch = whole;
            }
        }
        Ok(len)
    }

    fn copy_in(&mut self, parts: &[IoSlice<'_>], buffers: usize) {
        let mut parts = parts.iter().map(|part| &part[..]);
        let mut part: &[u8] = &[];
        let umem = &self.queue.umem;
        let chunk_len = umem.layout().chunk_len;
        for number in 1..=buffers {
            let mut chunk = self.free.pop().expect("counted before");
            let bytes = umem.bytes(&mut chunk);
            let mut filled = 0;
            while filled < chunk_len {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let count = part.len().min(chunk_len - filled);
                let (now, later) = part.split_at(count);
                bytes[filled..filled + count].copy_from_slice(now);
                filled += count;
                part = later;
            }
            self.transmit.push(chunk, filled, number < buffers);
        }
    }

    /// Has the kernel send what waits, as far as the device takes it, and takes chunks back.
    fn kick(&mut self) {
        for _ in 0..KICKS_MAX {
            if self.transmit.waiting() == 0 {
                break;
            }
            let _ = self.socket.kick();
            self.take_back();
        }
        self.take_back();
    }
}

/// The packet in these buffers: in place where it is one with room behind it, else put together.
fn frame_of<'b>(
    umem: &'b Umem,
    packet: &'b mut [Received],
    linear: &mut std::slice::IterMut<'b, Box<[u8]>>,
    time: Time,
) -> Option<Frame<'b>> {
    let len: usize = packet.iter().map(|buffer| buffer.len).sum();
    let mut meta = Meta { time, original_len: len as u32, ..Meta::default() };
    let chunk_len = umem.layout().chunk_len;
    let roomy = |buffer: &Received| {
        buffer.start >= HEADROOM && buffer.start + buffer.len + TAILROOM <= chunk_len
    };
    if packet.len() == 1 && packet.iter().all(roomy) {
        let Received { chunk, start, len, .. } = packet.first_mut()?;
        let bytes = umem.bytes(chunk);
        meta.offload.checksum = left_to_adapter(&bytes[*start..*start + *len]);
        return Some(Frame::new(bytes, *start, *start + *len, meta));
    }
    let whole = linear.next()?;
    let mut end = HEADROOM;
    for Received { chunk, start, len, .. } in packet {
        let bytes = umem.bytes(chunk);
        whole.get_mut(end..end + *len)?.copy_from_slice(&bytes[*start..*start + *len]);
        end += *len;
    }
    meta.offload.checksum = left_to_adapter(&whole[HEADROOM..end]);
    let fits = end + TAILROOM <= whole.len();
    fits.then(|| Frame::new(&mut whole[..], HEADROOM, end, meta))
}

/// The checksum that the frame's sender left to an adapter: XDP does not say, but its value does.
fn left_to_adapter(frame: &[u8]) -> Option<PartialChecksum> {
    unfinished(frame, ip_offset(frame)?)
}

/// Finishes a checksum whose field holds the pseudo header's sum.
fn complete_checksum(packet: &mut [u8], partial: PartialChecksum) {
    let (start, field) = (usize::from(partial.start), usize::from(partial.field));
    if start > packet.len() || field + 2 > packet.len() {
        return;
    }
    let checksum = Sum::new().with(&packet[start..]).udp_checksum();
    packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}
