//! The receive ring of a packet socket, version 3 (Linux Documentation/networking/packet_mmap.rst):
//! memory shared with the kernel, cut into large blocks that change hands by a status word. The
//! kernel packs packets into a block one behind the other and hands it over when it is full or its
//! timer runs out, so that a packet takes the room it needs and a wake-up brings hundreds.

use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::receive_ring::{STATUS_KERNEL, STATUS_USER};
use super::socket::Socket;

const SOL_PACKET: i32 = 263;
const PACKET_RX_RING: i32 = 5;

/// `struct tpacket_req3`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct RingRequest {
    block_len: u32,
    blocks: u32,
    slot_len: u32,
    slots: u32,
    retire_after_ms: u32,
    private_len: u32,
    features: u32,
}

/// `struct tpacket_block_desc`, version 1.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable)]
struct BlockHeader {
    version: u32,
    private_offset: u32,
    status: u32,
    packets: u32,
    first_packet: u32,
    len: u32,
    sequence: u64,
    first_time: [u32; 2],
    last_time: [u32; 2],
}

/// `struct tpacket3_hdr`, before each packet of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable)]
pub(crate) struct PacketHeader {
    /// From this header to the next; 0: it is the last.
    pub(crate) next: u32,
    pub(crate) seconds: u32,
    pub(crate) nanoseconds: u32,
    /// Bytes present.
    pub(crate) snap_len: u32,
    /// Bytes on the wire, without a stripped VLAN tag.
    pub(crate) len: u32,
    pub(crate) status: u32,
    /// From this header to the packet's first byte.
    pub(crate) mac_offset: u16,
    network_offset: u16,
    flow_hash: u32,
    pub(crate) vlan_tci: u32,
    pub(crate) vlan_tpid: u16,
    padding: [u8; 10],
}

const _: () = assert!(size_of::<BlockHeader>() == 48 && size_of::<PacketHeader>() == 48);

/// The mapped ring and our place in it.
#[derive(Debug)]
pub(crate) struct BlockRing {
    memory: NonNull<u8>,
    block_len: usize,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread.
unsafe impl Send for BlockRing {}

impl BlockRing {
    /// Asks the kernel for `blocks` blocks of `block_len` bytes (a multiple of the page size) and
    /// maps them. The socket must have been set to version 3.
    pub(crate) fn create(
        socket: &Socket,
        block_len: usize,
        blocks: usize,
        retire_after_ms: u32,
    ) -> io::Result<Self> {
        /// The kernel wants slots to divide a block; version 3 has no other use for them.
        const SLOT_LEN: usize = 2048;
        let request = RingRequest {
            block_len: block_len as u32,
            blocks: blocks as u32,
            slot_len: SLOT_LEN as u32,
            slots: (block_len / SLOT_LEN * blocks) as u32,
            retire_after_ms,
            private_len: 0,
            features: 0,
        };
        socket.set(SOL_PACKET, PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the length is the ring's.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                block_len * blocks,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, block_len, blocks, next: 0 })
    }

    /// The block whose turn it is: its bytes, the packets in it and where the first begins. `None`:
    /// the kernel has it. It stays ours until [`BlockRing::give_back`].
    pub(crate) fn block(&mut self) -> Option<Block<'_>> {
        if self.status().load(Ordering::Acquire) & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status word gave this block to us and was read with acquire order. It lies in
        // the mapping, and `&mut self` keeps it from being handed out twice or given back while
        // the slice lives. No other thread of ours touches the status word, which lies in it.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.block_len) };
        let (header, _) = BlockHeader::read_from_prefix(bytes).ok()?;
        Some(Block { packets: header.packets, first: header.first_packet as usize, bytes })
    }

    /// Gives the block whose turn it is to the kernel; then it is the next one's turn.
    pub(crate) fn give_back(&mut self) {
        self.status().store(STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `next` is below the count of blocks, so the offset lies inside the mapping.
        unsafe { self.memory.add(self.next * self.block_len) }
    }

    fn status(&self) -> &AtomicU32 {
        let offset = offset_of!(BlockHeader, status);
        // SAFETY: blocks are page-aligned and begin with their header; while no `Block` lives, only
        // atomic accesses to the status word are made on our side.
        unsafe { AtomicU32::from_ptr(self.start().add(offset).cast().as_ptr()) }
    }
}

impl Drop for BlockRing {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and no block borrows it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.block_len * self.blocks) };
    }
}

/// A block held by us.
pub(crate) struct Block<'r> {
    pub(crate) packets: u32,
    /// Where the first packet's header begins in `bytes`.
    pub(crate) first: usize,
    pub(crate) bytes: &'r mut [u8],
}
