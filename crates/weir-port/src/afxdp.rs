//! AF_XDP port: frames by kernel bypass, in copy mode, over as many buffers as they need.
//!
//! ```text
//!   device --> XDP program (bpf/redirect.bpf.c) --> queue's receive ring --> Frame, in its chunk
//!          several buffers a packet (XDP_USE_SG) ---------------> Frame, put together in one
//!   Outgoing --copied into chunks--> transmit ring of one queue --> device
//! ```
//!
//! A port has a socket on each receive queue of its interface and sends by one of them, so that
//! what it sends stays in order.
//!
//! What is selected never reaches the kernel's stack: neither its firewall nor its tcpdump sees it.
//! The program's fallback is to drop, and it goes when the port is closed. XDP knows no
//! super-packets and no partial checksums: native XDP on a veth switches segmentation offload off
//! for its peer, a checksum that a local sender left to an adapter is told by its value, and a
//! frame sent with one is completed here.
#![allow(unsafe_code)]

mod open;
mod queue;
mod rings;
mod socket;
mod umem;

pub use open::{QUEUES_MAX, Selection, XdpAttach, XdpOpenError, XdpOptions};

use std::io;
use std::os::fd::RawFd;

use weir_wire::frame::Frame;

use crate::interface::LinkCounters;
use crate::netlink::Netlink;
use crate::port::{Outgoing, Port, PortCounters, Transmitted};
use crate::room::{HEADROOM, TAILROOM};
use crate::sys::any_readable::AnyReadable;
use crate::sys::socket::Socket;
use rings::Received;
use socket::QueueSocket;
use umem::CHUNK_LENS;

/// Buffers that the kernel takes for one packet (MAX_SKB_FRAGS and the first).
const BUFFERS_MAX: usize = 17;
/// A packet of several buffers is put together here.
const LINEAR_LEN: usize = HEADROOM + BUFFERS_MAX * CHUNK_LENS[1] + TAILROOM;

/// All queues of an interface, or a worker's part of them.
#[derive(Debug)]
pub struct XdpPort {
    name: String,
    index: i32,
    /// A socket on each queue; at least one.
    sockets: Vec<QueueSocket>,
    /// Which of them sends.
    sender: usize,
    /// Which is received from next, so that none waits for another.
    next: usize,
    /// `None`: there is one socket, and that is polled itself.
    readable: Option<AnyReadable>,
    received: Vec<Received>,
    linear: Vec<Box<[u8]>>,
    netlink: Netlink,
    at_open: LinkCounters,
    /// Holds the XDP program on the interface.
    program: Option<open::Program>,
    /// Holds its promiscuity.
    _listening: Option<Socket>,
}

impl Port for XdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { sockets, next, received, linear, .. } = self;
        for _ in 0..sockets.len() {
            let at = *next;
            *next = (at + 1) % sockets.len();
            let count = sockets[at].receive((&mut *received, &mut *linear), &mut *handle);
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        self.sockets[self.sender].transmit(frames)
    }

    fn counters(&mut self) -> PortCounters {
        let mut counters = self.own_counters();
        if let Ok(link) = LinkCounters::read(&mut self.netlink, self.index) {
            let since = link.since(&self.at_open);
            counters.device_dropped = since.rx_lost() + since.tx_dropped;
        }
        counters
    }

    fn own_counters(&mut self) -> PortCounters {
        let counters = self.sockets.iter_mut().map(QueueSocket::counters);
        counters.fold(PortCounters::default(), |sum, one| PortCounters {
            received_frames: sum.received_frames + one.received_frames,
            received_bytes: sum.received_bytes + one.received_bytes,
            sent_frames: sum.sent_frames + one.sent_frames,
            sent_bytes: sum.sent_bytes + one.sent_bytes,
            lost_ring_full: sum.lost_ring_full + one.lost_ring_full,
            lost_truncated: sum.lost_truncated + one.lost_truncated,
            send_queue_full: sum.send_queue_full + one.send_queue_full,
            send_too_large: sum.send_too_large + one.send_too_large,
            send_refused: sum.send_refused + one.send_refused,
            ..sum
        })
    }

    fn lost_on_arrival(&mut self) -> u64 {
        let counters = self.own_counters();
        counters.lost_ring_full + counters.lost_truncated
    }

    fn poll_fd(&self) -> Option<RawFd> {
        let of_one = || self.sockets.first().map(QueueSocket::fd);
        self.readable.as_ref().map(AnyReadable::fd).or_else(of_one)
    }

    fn take_error(&mut self) -> Option<io::Error> {
        // Each is asked: one that is not reports readiness for ever.
        self.sockets.iter_mut().fold(None, |first, socket| {
            let own = socket.take_error();
            first.or(own)
        })
    }
}

impl XdpPort {
    /// Takes no more frames off the interface, which are the kernel's from now on; what already
    /// waits in the ring can still be received, so that afterwards the counters are complete.
    pub fn stop_receiving(&mut self) {
        self.program = None;
    }
}
