//! A packet socket that only listens, for captures and meters: a ring of large blocks, packed by
//! the kernel.
//!
//! ```text
//!   kernel --> block of 1 MiB [ header | packet | header | packet ... ] --> Frame, in place
//! ```
//!
//! A gateway's port cannot use it: the kernel hands a block over when it is full, or after
//! [`RETIRE_AFTER_MS`], and a frame has little room around it. For a listener that is the fastest
//! way: a small packet takes no more than its own room in the ring, and one wake-up brings a block.

use std::io;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta, Time};
use zerocopy::FromBytes;

use super::open::{self, Opening, PACKET_IGNORE_OUTGOING, PACKET_VERSION};
use super::{ETHERTYPE_VLAN, KernelFilter, OpenError, PACKET_STATISTICS, insert_tag};
use crate::interface::{Interface, LinkCounters};
use crate::netlink::Netlink;
use crate::port::{BATCH, PortCounters};
use crate::sys::block_ring::{Block, BlockRing, PacketHeader};
use crate::sys::receive_ring::{STATUS_VLAN_TPID_VALID, STATUS_VLAN_VALID};
use crate::sys::socket::Socket;

/// Longest wait of a packet in a block that does not fill, milliseconds.
pub const RETIRE_AFTER_MS: u32 = 50;

const RING_VERSION_3: i32 = 2;
/// Holds sixteen super-packets; hundreds of blocks still make a ring that fills evenly.
const BLOCK_LEN: usize = 1 << 20;
/// The kernel fills one while we read another.
const BLOCKS_MIN: usize = 2;
const HEADER_LEN: usize = size_of::<PacketHeader>();

/// How an interface is listened to.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Kernel memory for the ring, rounded up to whole blocks of 1 MiB, two at least.
    pub ring_bytes: usize,
    /// Hear frames for every address.
    pub promiscuous: bool,
    /// Hear only what it takes, and no more of each frame than it says.
    pub filter: Option<KernelFilter>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { ring_bytes: 256 << 20, promiscuous: true, filter: None }
    }
}

/// One interface, listened to: what arrives there and what this machine sends there.
#[derive(Debug)]
pub struct PacketListener {
    name: String,
    index: i32,
    socket: Socket,
    ring: BlockRing,
    cursor: Option<Cursor>,
    netlink: Netlink,
    at_open: LinkCounters,
    counters: PortCounters,
}

/// Where we are in the block that is being read.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The next packet's header.
    at: usize,
    packets_left: u32,
}

impl PacketListener {
    /// Opens `interface` in the calling thread's network namespace. Frames are heard from this
    /// moment on.
    ///
    /// # Errors
    /// [`OpenError`]: no such interface, no privilege, no memory for the ring.
    pub fn open(interface: &str, options: &ListenOptions) -> Result<Self, OpenError> {
        let opening = Opening(interface);
        let known = opening.step("find it", Interface::find(interface))?;
        let index = opening.step("read its number", known.index())?;
        let socket = opening.step("open a packet socket", open::packet_socket())?;
        opening.step("set up its receiver", prepare(&socket, options))?;
        let blocks = options.ring_bytes.div_ceil(BLOCK_LEN).max(BLOCKS_MIN);
        let ring = BlockRing::create(&socket, BLOCK_LEN, blocks, RETIRE_AFTER_MS);
        let ring = opening.step("map its receive ring", ring)?;
        let mut netlink = opening.step("open a netlink socket", Netlink::open())?;
        let at_open = opening.step("read its counters", LinkCounters::read(&mut netlink, index))?;
        // From here frames arrive.
        opening.step("bind to it", socket.bind_link(index, open::ALL_PROTOCOLS))?;
        if options.promiscuous {
            let set = open::hear_all_addresses(&socket, index);
            opening.step("receive for all addresses", set)?;
        }
        let (name, counters) = (interface.to_owned(), PortCounters::default());
        Ok(Self { name, index, socket, ring, cursor: None, netlink, at_open, counters })
    }

    /// The interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Passes the frames that wait, at most [`BATCH`], to `handle`; returns how many. Zero: none
    /// waits. Each has room for a VLAN tag before it and none behind: good to look at, not to
    /// forward. One longer than the kernel had room for is cut.
    pub fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> usize {
        loop {
            let Self { ring, cursor, counters, .. } = self;
            let Some(block) = ring.block() else { return 0 };
            let start = Cursor { at: block.first, packets_left: block.packets };
            let cursor = cursor.get_or_insert(start);
            let count = receive_from(block, cursor, counters, handle);
            if cursor.packets_left == 0 {
                self.cursor = None;
                self.ring.give_back();
            }
            if count > 0 {
                return count;
            }
        }
    }

    /// Totals, read from the kernel where they live there.
    pub fn counters(&mut self) -> PortCounters {
        if let Ok([_, drops, _]) =
            self.socket.option::<[u32; 3]>(open::SOL_PACKET, PACKET_STATISTICS)
        {
            self.counters.lost_ring_full += u64::from(drops);
        }
        if let Ok(link) = LinkCounters::read(&mut self.netlink, self.index) {
            let since = link.since(&self.at_open);
            self.counters.device_dropped = since.rx_lost() + since.tx_dropped;
        }
        self.counters
    }

    /// What to poll for readability.
    pub fn poll_fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Lets nothing more into the ring; what already waits there can still be received, in
    /// [`RETIRE_AFTER_MS`] all of it, so that afterwards the counters are complete.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn stop_receiving(&mut self) -> io::Result<()> {
        KernelFilter::nothing().attach(&self.socket)
    }

    /// What the socket has to complain of since it was last asked: above all `ENETDOWN` when its
    /// interface went down or away. Polling reports readiness until this is asked.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.socket.take_error()
    }
}

/// Passes the next batch of `block` to `handle`, and how many that were.
fn receive_from(
    block: Block<'_>,
    cursor: &mut Cursor,
    counters: &mut PortCounters,
    handle: &mut dyn FnMut(&mut [Frame<'_>]),
) -> usize {
    let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
    let mut rest = block.bytes.get_mut(cursor.at..).unwrap_or_default();
    while !frames.is_full() && cursor.packets_left > 0 {
        cursor.packets_left -= 1;
        let Ok((header, _)) = PacketHeader::read_from_prefix(rest) else { break };
        let len = match header.next as usize {
            0 => rest.len(),
            next => next.min(rest.len()),
        };
        cursor.at += len;
        let (packet, behind) = rest.split_at_mut(len);
        rest = behind;
        match frame_of(&header, packet) {
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
    frames.len()
}

fn prepare(socket: &Socket, options: &ListenOptions) -> io::Result<()> {
    socket.set(open::SOL_PACKET, PACKET_VERSION, &RING_VERSION_3)?;
    socket.set(open::SOL_PACKET, PACKET_IGNORE_OUTGOING, &0i32)?;
    match &options.filter {
        Some(filter) => filter.attach(socket),
        None => Ok(()),
    }
}

/// The frame behind `header`, in `packet`, which begins with that header. `None`: they contradict
/// each other.
fn frame_of<'b>(header: &PacketHeader, packet: &'b mut [u8]) -> Option<Frame<'b>> {
    let start = usize::from(header.mac_offset);
    let end = start + header.snap_len as usize;
    if start < HEADER_LEN || end > packet.len() {
        return None;
    }
    let time = u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanoseconds);
    let meta = Meta { time: Time(time), original_len: header.len, ..Meta::default() };
    let mut frame = Frame::new(packet, start, end, meta);
    if header.status & STATUS_VLAN_VALID != 0 {
        let given = header.status & STATUS_VLAN_TPID_VALID != 0;
        let protocol = if given { header.vlan_tpid } else { ETHERTYPE_VLAN };
        insert_tag(&mut frame, protocol, header.vlan_tci as u16);
    }
    Some(frame)
}
