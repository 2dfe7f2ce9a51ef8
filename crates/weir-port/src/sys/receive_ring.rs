//! The receive ring of a packet socket, version 2 (Linux Documentation/networking/packet_mmap.rst):
//! memory shared with the kernel, cut into slots that change hands by a status word.

use std::cell::Cell;
use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::socket::Socket;

const SOL_PACKET: i32 = 263;
const PACKET_RX_RING: i32 = 5;
const PAGE_LEN: usize = 4096;
const BLOCK_LEN_MAX: usize = 256 * 1024;
const ALIGNMENT: usize = 16;

pub(crate) const STATUS_KERNEL: u32 = 0;
pub(crate) const STATUS_USER: u32 = 1;
/// The frame did not fit the slot and waits whole in the socket's queue.
pub(crate) const STATUS_COPY: u32 = 1 << 1;
pub(crate) const STATUS_VLAN_VALID: u32 = 1 << 4;
pub(crate) const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// `struct tpacket2_hdr` (linux/if_packet.h).
#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable)]
struct SlotHeader {
    status: u32,
    len: u32,
    snap_len: u32,
    mac_offset: u16,
    network_offset: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

const HEADER_LEN: usize = size_of::<SlotHeader>();
const _: () = assert!(HEADER_LEN == 32);
const _: () = assert!(offset_of!(SlotHeader, status) == 0);

/// `struct tpacket_req`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct RingRequest {
    block_len: u32,
    blocks: u32,
    slot_len: u32,
    slots: u32,
}

/// How the ring's memory is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    block_len: usize,
    blocks: usize,
    slot_len: usize,
    slots_per_block: usize,
}

impl Geometry {
    /// At least `slots` slots of at least `slot_len` bytes, in blocks that waste least.
    pub(crate) fn new(slot_len: usize, slots: usize) -> Self {
        let slot_len = slot_len.max(HEADER_LEN * 2).next_multiple_of(ALIGNMENT);
        let wasted = |block_len: usize| (block_len % slot_len) * (BLOCK_LEN_MAX / block_len);
        let sizes = (0..).map(|power| PAGE_LEN << power).take_while(|len| *len <= BLOCK_LEN_MAX);
        let block_len = sizes
            .filter(|block_len| *block_len >= slot_len)
            .min_by_key(|block_len| wasted(*block_len))
            .unwrap_or_else(|| slot_len.next_multiple_of(PAGE_LEN));
        let slots_per_block = block_len / slot_len;
        let blocks = slots.max(1).div_ceil(slots_per_block);
        Self { block_len, blocks, slot_len, slots_per_block }
    }

    pub(crate) fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks * self.block_len
    }
}

/// The mapped ring and our place in it.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    memory: NonNull<u8>,
    geometry: Geometry,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Asks the kernel for the ring and maps it. Version and reserve must have been set.
    pub(crate) fn create(socket: &Socket, geometry: Geometry) -> io::Result<Self> {
        let request = RingRequest {
            block_len: geometry.block_len as u32,
            blocks: geometry.blocks as u32,
            slot_len: geometry.slot_len as u32,
            slots: geometry.slots() as u32,
        };
        socket.set(SOL_PACKET, PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the length is the ring's.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                geometry.bytes(),
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
        Ok(Self { memory, geometry, next: 0 })
    }

    /// The slots that wait; they go back to the kernel when the batch is dropped.
    pub(crate) fn batch(&mut self) -> RingBatch<'_> {
        RingBatch { ring: self, taken: Cell::new(0) }
    }

    fn slot_pointer(&self, number: usize) -> NonNull<u8> {
        let number = number % self.geometry.slots();
        let block = number / self.geometry.slots_per_block;
        let offset = block * self.geometry.block_len
            + (number % self.geometry.slots_per_block) * self.geometry.slot_len;
        // SAFETY: `number` is below the count of slots, so the offset lies inside the mapping.
        unsafe { self.memory.add(offset) }
    }

    fn status(&self, number: usize) -> &AtomicU32 {
        // SAFETY: slots are 16-byte aligned and begin with the status word; only atomic accesses
        // to it are made on our side while the mapping lives.
        unsafe { AtomicU32::from_ptr(self.slot_pointer(number).cast().as_ptr()) }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and no batch borrows it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.geometry.bytes()) };
    }
}

/// A run of slots held by us.
pub(crate) struct RingBatch<'r> {
    ring: &'r mut ReceiveRing,
    taken: Cell<usize>,
}

/// One received frame in its slot.
pub(crate) struct Slot<'b> {
    /// `STATUS_*` bits.
    pub(crate) status: u32,
    /// Length on the wire, without a stripped VLAN tag.
    pub(crate) len: usize,
    /// Bytes present, from `start`.
    pub(crate) snap_len: usize,
    /// Where the frame begins in `bytes`.
    pub(crate) start: usize,
    /// Unix time in nanoseconds.
    pub(crate) time_ns: u64,
    /// Tag control information and tag protocol of a stripped tag, where `status` says so.
    pub(crate) vlan: (u16, u16),
    /// The slot without its header.
    pub(crate) bytes: &'b mut [u8],
}

impl RingBatch<'_> {
    /// The next waiting slot; `None` when the kernel owns it.
    pub(crate) fn take(&self) -> Option<Slot<'_>> {
        let taken = self.taken.get();
        if taken >= self.ring.geometry.slots() {
            return None;
        }
        let number = self.ring.next + taken;
        let status = self.ring.status(number).load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        self.taken.set(taken + 1);
        let slot = self.ring.slot_pointer(number);
        // SAFETY: the status word gave this slot to us and was read with acquire order. Each slot
        // is handed out once a batch (`taken` counts up and never wraps round the ring), and is
        // given back only when the batch is dropped, which the slot's lifetime forbids before.
        let (header, bytes) = unsafe {
            let header = slot.cast::<SlotHeader>().read();
            let len = self.ring.geometry.slot_len - HEADER_LEN;
            (header, std::slice::from_raw_parts_mut(slot.add(HEADER_LEN).as_ptr(), len))
        };
        let start = usize::from(header.mac_offset).saturating_sub(HEADER_LEN).min(bytes.len());
        let time_ns = u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanoseconds);
        Some(Slot {
            status,
            len: header.len as usize,
            snap_len: (header.snap_len as usize).min(bytes.len() - start),
            start,
            time_ns,
            vlan: (header.vlan_tci, header.vlan_tpid),
            bytes,
        })
    }
}

impl Drop for RingBatch<'_> {
    fn drop(&mut self) {
        for index in 0..self.taken.get() {
            let status = self.ring.status(self.ring.next + index);
            status.store(STATUS_KERNEL, Ordering::Release);
        }
        self.ring.next = (self.ring.next + self.taken.get()) % self.ring.geometry.slots();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_inside_blocks_and_little_is_wasted() {
        for slot_len in [100, 1866, 2048, 4096, 9354, 65_900, 300_000] {
            let geometry = Geometry::new(slot_len, 1000);
            assert!(geometry.slots() >= 1000 && geometry.slot_len >= slot_len);
            assert!(geometry.slots_per_block * geometry.slot_len <= geometry.block_len);
            assert!(geometry.block_len.is_multiple_of(PAGE_LEN));
            assert!(geometry.bytes() <= slot_len * 1000 * 3 / 2, "{geometry:?}");
        }
    }
}
