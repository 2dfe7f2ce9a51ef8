//! The four rings of an AF_XDP socket (linux/if_xdp.h, Documentation/networking/af_xdp.rst), one
//! type each: fill and transmit take chunks, receive and completion give them back.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::umem::{Chunk, Layout};
use crate::sys::socket::Socket;

/// More buffers of the same packet follow.
const PACKET_CONTINUES: u32 = libc::XDP_PKT_CONTD;

/// A descriptor of the receive and transmit rings (`struct xdp_desc`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    options: u32,
}

/// A ring in shared memory: two counters that only grow, and the entries between them.
#[derive(Debug)]
struct Ring<T> {
    memory: NonNull<u8>,
    memory_len: usize,
    offsets: RingOffsets,
    entries: u32,
    /// Our own counter: the producer's for rings we fill, else the consumer's.
    position: u32,
    entry: std::marker::PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread.
unsafe impl<T> Send for Ring<T> {}

/// Where a ring's parts stand in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug)]
struct RingOffsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

impl From<libc::xdp_ring_offset> for RingOffsets {
    fn from(offsets: libc::xdp_ring_offset) -> Self {
        Self {
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            flags: offsets.flags as usize,
            entries: offsets.desc as usize,
        }
    }
}

impl<T: Copy> Ring<T> {
    /// Asks for a ring of `entries` (a power of two) and maps it.
    fn create(
        socket: &Socket,
        option: i32,
        page_offset: i64,
        offsets: impl Fn(&libc::xdp_mmap_offsets) -> libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two(), "rings are powers of two");
        socket.set(libc::SOL_XDP, option, &entries)?;
        let offsets = RingOffsets::from(offsets(&mmap_offsets(socket)?));
        let memory_len = offsets.entries + entries as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice; the length is the ring's.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                memory_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.fd(),
                page_offset,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        let entry = std::marker::PhantomData;
        Ok(Self { memory, memory_len, offsets, entries, position: 0, entry })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel told this offset of an aligned u32 in the mapping, which lives as
        // long as `self`; both sides access it atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.add(offset).cast().as_ptr()) }
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        let index = (position & (self.entries - 1)) as usize;
        // SAFETY: the masked index is below `entries`, all of which lie inside the mapping.
        unsafe { self.memory.add(self.offsets.entries).cast::<T>().add(index) }
    }

    /// Entries that we may fill, for rings that we produce.
    fn free(&self) -> u32 {
        let consumed = self.counter(self.offsets.consumer).load(Ordering::Acquire);
        self.entries - self.position.wrapping_sub(consumed)
    }

    /// Entries that the kernel has filled, for rings that we consume.
    fn filled(&self) -> u32 {
        let produced = self.counter(self.offsets.producer).load(Ordering::Acquire);
        produced.wrapping_sub(self.position).min(self.entries)
    }

    /// Writes the next entry; visible to the kernel after `publish`. The caller checked `free`.
    fn write(&mut self, value: T) {
        // SAFETY: the entry is in bounds, and the kernel does not read it before `publish`.
        unsafe { self.entry(self.position).write(value) };
        self.position = self.position.wrapping_add(1);
    }

    fn publish(&self) {
        self.counter(self.offsets.producer).store(self.position, Ordering::Release);
    }

    /// Reads the next entry; it is the kernel's again after `release`. The caller checked `filled`.
    fn read(&mut self) -> T {
        // SAFETY: the entry is in bounds, and the acquire load in `filled` made it visible.
        let value = unsafe { self.entry(self.position).read() };
        self.position = self.position.wrapping_add(1);
        value
    }

    fn release(&self) {
        self.counter(self.offsets.consumer).store(self.position, Ordering::Release);
    }

    fn needs_wakeup(&self) -> bool {
        self.counter(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and hands out no reference that outlives it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.memory_len) };
    }
}

fn mmap_offsets(socket: &Socket) -> io::Result<libc::xdp_mmap_offsets> {
    // Four rings of four offsets each.
    let words: [u64; 16] = socket.option(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    let ring = |first: usize| libc::xdp_ring_offset {
        producer: words[first],
        consumer: words[first + 1],
        desc: words[first + 2],
        flags: words[first + 3],
    };
    Ok(libc::xdp_mmap_offsets { rx: ring(0), tx: ring(4), fr: ring(8), cr: ring(12) })
}

/// Empty chunks for the kernel to receive into.
#[derive(Debug)]
pub(super) struct FillRing(Ring<u64>);

impl FillRing {
    pub(super) fn create(socket: &Socket, entries: u32) -> io::Result<Self> {
        let offset = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        Ring::create(socket, libc::XDP_UMEM_FILL_RING, offset, |all| all.fr, entries).map(Self)
    }

    /// Gives chunks to the kernel. The ring has two places for every chunk that is ever received,
    /// so it cannot be full; what did not fit would be returned to nobody and is therefore
    /// asserted.
    pub(super) fn give(&mut self, chunks: impl Iterator<Item = Chunk>) {
        let mut free = self.0.free();
        for chunk in chunks {
            assert!(free > 0, "the fill ring holds all receive chunks twice");
            free -= 1;
            self.0.write(chunk.address());
        }
        self.0.publish();
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// A buffer of a received packet.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) chunk: Chunk,
    pub(super) start: usize,
    pub(super) len: usize,
    /// The packet goes on in the next buffer.
    pub(super) continues: bool,
}

/// Filled chunks from the kernel.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Ring<Descriptor>,
    layout: Layout,
}

impl ReceiveRing {
    pub(super) fn create(socket: &Socket, entries: u32, layout: Layout) -> io::Result<Self> {
        let offset = libc::XDP_PGOFF_RX_RING;
        let ring = Ring::create(socket, libc::XDP_RX_RING, offset, |all| all.rx, entries)?;
        Ok(Self { ring, layout })
    }

    /// Takes the buffers of up to `packets` whole packets.
    pub(super) fn take(&mut self, packets: usize, into: &mut Vec<Received>) {
        let mut whole = 0;
        for _ in 0..self.ring.filled() {
            if whole == packets {
                break;
            }
            let descriptor = self.ring.read();
            let len = descriptor.len as usize;
            // SAFETY: the address comes from the receive ring, is taken once, and is checked
            // against the memory's end.
            let (chunk, start) = unsafe { self.layout.chunk_at(descriptor.address) };
            let Layout { chunk_len, .. } = self.layout;
            let is_within = descriptor.address < self.layout.len() as u64;
            assert!(is_within && start + len <= chunk_len, "kernel bug");
            let continues = descriptor.options & PACKET_CONTINUES != 0;
            whole += usize::from(!continues);
            into.push(Received { chunk, start, len, continues });
        }
        self.ring.release();
    }
}

/// Filled chunks to the kernel.
#[derive(Debug)]
pub(super) struct TransmitRing(Ring<Descriptor>);

impl TransmitRing {
    pub(super) fn create(socket: &Socket, entries: u32) -> io::Result<Self> {
        let offset = libc::XDP_PGOFF_TX_RING;
        Ring::create(socket, libc::XDP_TX_RING, offset, |all| all.tx, entries).map(Self)
    }

    pub(super) fn free(&self) -> usize {
        self.0.free() as usize
    }

    /// Entries that the kernel has not looked at yet.
    pub(super) fn waiting(&self) -> u32 {
        self.0.entries - self.0.free()
    }

    /// Queues one buffer, from its first byte; `publish` shows it to the kernel. The caller
    /// checked `free`.
    pub(super) fn push(&mut self, chunk: Chunk, len: usize, continues: bool) {
        let options = if continues { PACKET_CONTINUES } else { 0 };
        self.0.write(Descriptor { address: chunk.address(), len: len as u32, options });
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

/// Sent chunks from the kernel.
#[derive(Debug)]
pub(super) struct CompletionRing {
    ring: Ring<u64>,
    layout: Layout,
}

impl CompletionRing {
    pub(super) fn create(socket: &Socket, entries: u32, layout: Layout) -> io::Result<Self> {
        let offset = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let option = libc::XDP_UMEM_COMPLETION_RING;
        let ring = Ring::create(socket, option, offset, |all| all.cr, entries)?;
        Ok(Self { ring, layout })
    }

    /// Where its chunks lie.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Takes back every chunk whose sending is over.
    pub(super) fn take(&mut self, into: &mut Vec<Chunk>) {
        for _ in 0..self.ring.filled() {
            let address = self.ring.read();
            assert!(address < self.layout.len() as u64, "kernel bug");
            // SAFETY: the address comes from the completion ring, is taken once, and was checked.
            into.push(unsafe { self.layout.chunk_at(address) }.0);
        }
        self.ring.release();
    }
}
