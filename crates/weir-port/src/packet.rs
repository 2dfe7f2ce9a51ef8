//! AF_PACKET port: a shared receive ring, frames changed in place in its slots, and sends that
//! gather straight from the caller's memory.
//!
//! ```text
//!   kernel --> slot [ header | room >= 192 | vnet | frame | room ]  --> Frame, in place
//!          --> slot flagged COPY, frame whole in the socket's queue --> Frame in a 64 KiB buffer
//!   Outgoing --> sendmmsg [ vnet | piece | piece ... ] --> device, past its queueing discipline
//! ```
//!
//! Version 2 of the ring, since version 3 holds frames back by a timer (2-4 ms measured). Slots are
//! sized by the interface's MTU, so that RDMA frames stay in the ring while super-packets take the
//! queue. There is no transmit ring: on veth the kernel gives its slots back while the receiver
//! still reads their pages.

mod filter;
mod frame_filter;
mod join;
mod listener;
mod open;

pub use filter::{FilterError, KernelFilter};
pub(crate) use frame_filter::FilterInstruction;
pub use frame_filter::FrameFilter;
pub use listener::{ListenOptions, PacketListener, RETIRE_AFTER_MS};
pub use open::{Fanout, FanoutMode, OpenError, PacketOptions};
pub(crate) use open::{Opening, hear_all_addresses};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta, Offload, Time};
use zerocopy::{FromBytes, IntoBytes};

use crate::fastpath::FastPath;
use crate::gate::Gate;
use crate::interface::LinkCounters;
use crate::netlink::Netlink;
use crate::port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
use crate::room::{HEADROOM, TAILROOM};
use crate::sys::receive_ring::{
    ReceiveRing, STATUS_COPY, STATUS_VLAN_TPID_VALID, STATUS_VLAN_VALID, Slot,
};
use crate::sys::send::{Message, PIECES_MAX, Refused, SendBatch};
use crate::sys::socket::Socket;
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};
use join::Joined;

/// Longest frame taken whole: 64 KiB of IP and its Ethernet header with two tags.
const SUPER_PACKET_LEN_MAX: usize = 65_536 + 22;
/// Super-packets handed over in one batch: what they fill stays in a second-level cache.
const SUPER_PACKETS: usize = 16;
const VLAN_TAG_LEN: usize = 4;
const ETHERTYPE_VLAN: u16 = 0x8100;

/// One interface, received from and sent to by packet sockets.
#[derive(Debug)]
pub struct PacketPort {
    name: String,
    index: i32,
    receiver: Socket,
    ring: ReceiveRing,
    super_packets: Vec<Box<[u8]>>,
    /// Past the queueing discipline, and through it.
    direct: Socket,
    queued: Socket,
    is_all_queued: bool,
    batch: SendBatch,
    netlink: Netlink,
    at_open: LinkCounters,
    counters: PortCounters,
    accept_cut: bool,
    send_attempts: u32,
    /// Whether the kernel cuts UDP super-packets, as far as is known (Linux 6.2).
    joins: bool,
}

impl Port for PacketPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { ring, super_packets, receiver, counters, accept_cut, .. } = self;
        let batch = ring.batch();
        let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
        let mut buffers = super_packets.iter_mut();
        while !frames.is_full() && buffers.len() > 0 {
            let Some(slot) = batch.take() else { break };
            match frame_of(slot, receiver, &mut buffers, *accept_cut) {
                Some(frame) => {
                    counters.received_frames += 1;
                    counters.received_bytes += frame.len() as u64;
                    frames.push(frame);
                }
                None => counters.lost_truncated += 1,
            }
        }
        if !frames.is_empty() {
            handle(&mut frames);
        }
        Ok(frames.len())
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        let mut done = Transmitted::default();
        // A flow's frames go the same way, or they would overtake each other.
        let joins = self.joins;
        let is_queued = |frame: &Outgoing<'_>| is_queued(frame, joins);
        let runs = frames.chunk_by(|one, next| is_queued(one) == is_queued(next));
        for chunk in runs.flat_map(|run| run.chunks(BATCH)) {
            let sent = self.transmit_batch(chunk);
            done.sent += sent;
            done.dropped += chunk.len() as u64 - sent;
        }
        done
    }

    fn lost_on_arrival(&mut self) -> u64 {
        let _unreadable = self.read_losses();
        self.counters.lost_ring_full + self.counters.lost_truncated
    }

    fn counters(&mut self) -> PortCounters {
        let mut counters = self.own_counters();
        if let Ok(link) = LinkCounters::read(&mut self.netlink, self.index) {
            let since = link.since(&self.at_open);
            let silent_sends = since.tx_dropped.saturating_sub(counters.refused_by_device);
            counters.device_dropped = since.rx_lost() + silent_sends;
        }
        counters
    }

    fn own_counters(&mut self) -> PortCounters {
        let _unreadable = self.read_losses();
        self.counters
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.receiver.fd())
    }

    fn arrived_frames(&mut self) -> Option<u64> {
        self.read_losses().ok()?;
        let PortCounters { received_frames, lost_ring_full, lost_truncated, .. } = self.counters;
        Some(received_frames + lost_ring_full + lost_truncated)
    }

    /// A frame is charged to its socket until it is freed, or taken by who it is for.
    fn unsent_bytes(&self) -> Option<u64> {
        let sockets = [&self.direct, &self.queued];
        sockets.iter().map(|socket| socket.unsent_bytes().ok()).sum()
    }

    fn set_through_discipline(&mut self, through: bool) {
        self.is_all_queued = through;
    }

    fn take_error(&mut self) -> Option<io::Error> {
        self.receiver.take_error()
    }
}

/// Reading it sets the kernel's counts to zero.
const PACKET_STATISTICS: i32 = 6;

impl PacketPort {
    /// What the port itself counted; unlike [`Port::counters`] it does not ask the kernel for its
    /// losses.
    pub fn counts(&self) -> &PortCounters {
        &self.counters
    }

    /// Lets nothing more into the ring; what already waits there can still be received, so that
    /// afterwards the counters are complete.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn stop_receiving(&mut self) -> io::Result<()> {
        KernelFilter::nothing().attach(&self.receiver)
    }

    /// Lets every frame into the ring: for ports that were opened with [`KernelFilter::nothing`]
    /// until all members of their fanout group had joined.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn start_receiving(&mut self) -> io::Result<()> {
        KernelFilter::everything().attach(&self.receiver)
    }

    /// Has `program` share out the frames of the fanout group ([`FanoutMode::Program`]).
    ///
    /// # Errors
    /// The kernel refuses the program, or the port is in no such group.
    pub fn steer_by(&mut self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.receiver.set(open::SOL_PACKET, open::PACKET_FANOUT_DATA, &program.as_raw_fd())
    }

    /// Lets the fast path take its flows' frames before they reach the ring. For its counts to be
    /// exact the port is opened with [`KernelFilter::nothing`], so that this filter has seen every
    /// frame that was received.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn filter_fast_path(&self, fast_path: &FastPath) -> io::Result<()> {
        let filter = fast_path.filter();
        self.receiver.set(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &filter.as_raw_fd())
    }

    /// Lets the gate drop frames before they reach the ring. For its counts to be exact the port is
    /// opened with [`KernelFilter::nothing`]. A fast path's filter asks the gate itself.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn filter_by(&self, gate: &Gate) -> io::Result<()> {
        self.receiver.set(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &gate.raw_filter())
    }

    fn read_losses(&mut self) -> io::Result<()> {
        let [_, drops]: [u32; 2] = self.receiver.option(open::SOL_PACKET, PACKET_STATISTICS)?;
        self.counters.lost_ring_full += u64::from(drops);
        Ok(())
    }

    fn transmit_batch(&mut self, frames: &[Outgoing<'_>]) -> u64 {
        if frames.iter().any(|frame| frame.parts.len() >= PIECES_MAX) {
            // Nothing of ours cuts a packet so small; send the rest one by one.
            let (fit, unfit): (Vec<_>, Vec<_>) =
                frames.iter().partition(|frame| frame.parts.len() < PIECES_MAX);
            self.counters.send_too_large += unfit.len() as u64;
            return fit.iter().map(|frame| self.transmit_batch(std::slice::from_ref(frame))).sum();
        }
        let first = frames.first();
        let is_queued = self.is_all_queued || first.is_some_and(|it| is_queued(it, self.joins));
        let joined = self.join_runs(frames);
        let Self { batch, direct, queued, counters, send_attempts, .. } = self;
        let sender = if is_queued { queued } else { direct };
        let mut messages = ArrayVec::<Message<'_>, BATCH>::new();
        let mut rest = frames;
        for joined in &joined {
            let (together, behind) = rest.split_at(joined.as_ref().map_or(1, |it| it.count));
            messages.push(match joined {
                Some(Joined { headers, offload, len, .. }) => {
                    let header = VnetHeader::before(offload, *len);
                    Message { header, headers, frames: together }
                }
                None => Message::of(&together[0]),
            });
            rest = behind;
        }
        let mut lost = [false; BATCH];
        let mut attempts = 0;
        let mut ended = None;
        batch.send(sender.fd(), &messages, |index, error| {
            let full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
            let count = messages[index].frames.len() as u64;
            if count > 1 && error.raw_os_error() == Some(libc::EINVAL) {
                ended = Some(index);
                return Refused::End;
            }
            counters.refused_by_device += u64::from(error.raw_os_error() == Some(libc::ENOBUFS));
            attempts += 1;
            if full && attempts < *send_attempts {
                // The receiver may be waiting for this very core.
                std::thread::yield_now();
                return Refused::Again;
            }
            attempts = 0;
            lost[index] = true;
            match error.raw_os_error() {
                _ if full => counters.send_queue_full += count,
                Some(libc::EMSGSIZE) => counters.send_too_large += count,
                _ => counters.send_refused += count,
            }
            Refused::Lost
        });
        let mut sent = 0;
        for (message, lost) in messages.iter().zip(lost).take(ended.unwrap_or(BATCH)) {
            if !lost {
                sent += message.frames.len() as u64;
                let parts = message.frames.iter().flat_map(|frame| frame.parts);
                counters.sent_bytes += parts.map(|part| part.len() as u64).sum::<u64>();
            }
        }
        counters.sent_frames += sent;
        if let Some(ended) = ended {
            // A kernel that cuts no UDP super-packets, or a device that it cannot cut them for.
            self.joins = false;
            let done: usize = messages[..ended].iter().map(|message| message.frames.len()).sum();
            return sent + self.transmit_batch(&frames[done..]);
        }
        sent
    }

    /// For each message to send: how frames are joined, or `None` for one by itself.
    fn join_runs(&self, frames: &[Outgoing<'_>]) -> ArrayVec<Option<Joined>, BATCH> {
        let mut runs = ArrayVec::new();
        let mut rest = frames;
        while !rest.is_empty() {
            let joined = if self.joins { join::join(rest) } else { None };
            rest = &rest[joined.as_ref().map_or(1, |it| it.count)..];
            runs.push(joined);
        }
        runs
    }
}

/// Whether the device, or the kernel for it, may have to cut the frame: what goes past the queueing
/// discipline is never cut.
fn is_queued(frame: &Outgoing<'_>, joins: bool) -> bool {
    frame.offload.segmentation.is_some() || joins && frame.offload.joinable.is_some()
}

/// The frame in `slot`, or from the socket's queue where the slot says that it waits there. `None`:
/// no buffer held it whole, or its metadata contradict it.
fn frame_of<'b>(
    slot: Slot<'b>,
    receiver: &Socket,
    buffers: &mut std::slice::IterMut<'b, Box<[u8]>>,
    accept_cut: bool,
) -> Option<Frame<'b>> {
    let Slot { status, len: original_len, snap_len, start, time_ns, vlan, bytes } = slot;
    let (buffer, start, len) = if status & STATUS_COPY != 0 {
        let buffer = buffers.next()?;
        let len = receive_whole(receiver, buffer)?;
        (&mut buffer[..], HEADROOM, len)
    } else if snap_len < original_len && !accept_cut {
        return None;
    } else if bytes.len() < start + snap_len + TAILROOM {
        let (buffer, len) = (buffers.next()?, snap_len);
        let from = start - VNET_HEADER_LEN;
        let to = HEADROOM - VNET_HEADER_LEN;
        let copied = VNET_HEADER_LEN + len;
        buffer.get_mut(to..to + copied)?.copy_from_slice(&bytes[from..from + copied]);
        (&mut buffer[..], HEADROOM, len)
    } else {
        (bytes, start, snap_len)
    };
    let end = start + len;
    let (header, _) = VnetHeader::read_from_prefix(&buffer[start - VNET_HEADER_LEN..end]).ok()?;
    let offload = match header.to_offload(&buffer[start..end]) {
        // Its metadata may speak of what was cut off.
        None if accept_cut => Offload::default(),
        offload => offload?,
    };
    let original_len = original_len as u32;
    let meta = Meta { time: Time(time_ns), original_len, offload, ..Meta::default() };
    let mut frame = Frame::new(buffer, start, end, meta);
    if status & STATUS_VLAN_VALID != 0 {
        let protocol = if status & STATUS_VLAN_TPID_VALID != 0 { vlan.1 } else { ETHERTYPE_VLAN };
        insert_tag(&mut frame, protocol, vlan.0);
    }
    Some(frame)
}

/// Takes the next frame of the socket's queue into `buffer`, its virtio header before the
/// headroom's end; `None` when it is not there (the queue was full) or longer than the buffer.
fn receive_whole(receiver: &Socket, buffer: &mut [u8]) -> Option<usize> {
    let room = buffer.len() - TAILROOM;
    let into = &mut buffer[HEADROOM - VNET_HEADER_LEN..room];
    let count = receiver.receive(into, libc::MSG_DONTWAIT | libc::MSG_TRUNC).ok()?;
    if count > into.len() {
        return None;
    }
    count.checked_sub(VNET_HEADER_LEN)
}

/// Puts back the tag that the kernel took out.
fn insert_tag(frame: &mut Frame<'_>, protocol: u16, control: u16) {
    if frame.len() < 12 {
        return;
    }
    let Some(bytes) = frame.prepend(VLAN_TAG_LEN) else { return };
    bytes.copy_within(VLAN_TAG_LEN..VLAN_TAG_LEN + 12, 0);
    bytes[12..14].copy_from_slice(protocol.to_be_bytes().as_bytes());
    bytes[14..16].copy_from_slice(control.to_be_bytes().as_bytes());
    frame.meta.original_len += VLAN_TAG_LEN as u32;
    frame.meta.offload = frame.meta.offload.shifted(VLAN_TAG_LEN as u16);
}
