//! The memory that an AF_XDP socket shares with the kernel, in chunks with one owner each.

use std::io;
use std::ptr::NonNull;

/// Bytes of a chunk: one page, the most that the aligned mode of every kernel takes, or the least.
/// The kernel reaches this memory by pages of 4 KiB whatever pages it has here; two packets on one
/// spare it every other translation.
pub(super) const CHUNK_LENS: [usize; 2] = [2048, 4096];

/// The right to touch one chunk. Not `Copy` and not `Clone`: whoever holds it owns the chunk's
/// bytes, and giving it to a ring gives them to the kernel.
#[derive(Debug)]
pub(super) struct Chunk {
    /// In the kernel's terms: its offset in the memory.
    address: u64,
}

/// Where chunks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many.
    pub(super) chunks: u32,
    /// Bytes of each, one of [`CHUNK_LENS`].
    pub(super) chunk_len: usize,
}

impl Layout {
    /// Bytes of the memory.
    pub(super) fn len(&self) -> usize {
        self.chunks as usize * self.chunk_len
    }

    /// The chunk that the kernel gives back, and the offset in it, from an address in a ring.
    ///
    /// # Safety
    /// The address must come from a ring of this memory's socket, be within the memory, and be
    /// taken once: then the kernel no longer uses the chunk and no other handle for it exists.
    pub(super) unsafe fn chunk_at(&self, address: u64) -> (Chunk, usize) {
        let offset = address % self.chunk_len as u64;
        (Chunk { address: address - offset }, offset as usize)
    }
}

impl Chunk {
    /// The chunk's address in the kernel's terms.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Its place among the memory's chunks.
    pub(super) fn number(&self, layout: Layout) -> usize {
        self.address as usize / layout.chunk_len
    }
}

/// The memory.
#[derive(Debug)]
pub(super) struct Umem {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread; access to its
// bytes is ruled by `Chunk`.
unsafe impl Send for Umem {}

// SAFETY: a shared reference gives bytes to who brings the one handle of a chunk alone; two threads
// never have the same.
unsafe impl Sync for Umem {}

impl Umem {
    /// Fresh memory, and the one handle of each chunk.
    pub(super) fn create(layout: Layout) -> io::Result<(Self, Vec<Chunk>)> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory: NonNull<u8> =
            NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        // Huge pages spare translations; where there are none, it works without.
        // SAFETY: advice about our own new mapping, of its exact length.
        unsafe { libc::madvise(memory.as_ptr().cast(), layout.len(), libc::MADV_HUGEPAGE) };
        let addresses = (0..u64::from(layout.chunks)).map(|it| it * layout.chunk_len as u64);
        Ok((Self { memory, layout }, addresses.map(|address| Chunk { address }).collect()))
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The bytes of a chunk, for as long as its handle is borrowed.
    ///
    /// # Panics
    /// When the handle is of another, larger memory: a bug of this module.
    pub(super) fn bytes<'c>(&'c self, chunk: &'c mut Chunk) -> &'c mut [u8] {
        let start = chunk.address as usize;
        let end = start + self.layout.chunk_len;
        assert!(end <= self.layout.len(), "a chunk lies inside its memory");
        // SAFETY: in bounds as just asserted; the handle is unique and borrowed mutably, so
        // nobody else, the kernel included, uses these bytes meanwhile.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.add(start).as_ptr(), self.layout.chunk_len)
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; handles cannot reach it without this value. The
        // kernel keeps its own reference to the pages while the socket lives.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.layout.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap() {
        for chunk_len in CHUNK_LENS {
            let (umem, mut chunks) = Umem::create(Layout { chunks: 8, chunk_len }).unwrap();
            for (number, chunk) in chunks.iter_mut().enumerate() {
                umem.bytes(chunk).fill(number as u8);
            }
            for (number, chunk) in chunks.iter_mut().enumerate() {
                assert_eq!(umem.bytes(chunk), vec![number as u8; chunk_len]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "inside its memory")]
    fn foreign_chunk_is_refused() {
        let (small, _) = Umem::create(Layout { chunks: 1, chunk_len: 4096 }).unwrap();
        let (_, mut chunks) = Umem::create(Layout { chunks: 2, chunk_len: 4096 }).unwrap();
        small.bytes(&mut chunks[1]);
    }
}
