//! The memory that an AF_XDP socket shares with the kernel, in chunks with one owner each.

use std::io;
use std::ptr::NonNull;

/// Bytes of a chunk: one page, the most that the aligned mode of every kernel takes.
pub(super) const CHUNK_LEN: usize = 4096;

/// The right to touch one chunk. Not `Copy` and not `Clone`: whoever holds it owns the chunk's
/// bytes, and giving it to a ring gives them to the kernel.
#[derive(Debug)]
pub(super) struct Chunk(u32);

impl Chunk {
    /// The chunk's address in the kernel's terms: its offset in the memory.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * CHUNK_LEN as u64
    }

    /// The chunk that the kernel gives back, and the offset in it, from an address in a ring.
    ///
    /// # Safety
    /// The address must come from a ring of this memory's socket, be within the memory, and be
    /// taken once: then the kernel no longer uses the chunk and no other handle for it exists.
    pub(super) unsafe fn from_address(address: u64) -> (Self, usize) {
        let number = address / CHUNK_LEN as u64;
        (Self(number as u32), (address % CHUNK_LEN as u64) as usize)
    }
}

/// The memory.
#[derive(Debug)]
pub(super) struct Umem {
    memory: NonNull<u8>,
    chunks: u32,
}

// SAFETY: the mapping belongs to this value alone and is valid in every thread; access to its
// bytes is ruled by `Chunk`.
unsafe impl Send for Umem {}

impl Umem {
    /// Fresh memory of `chunks` chunks, and the one handle of each.
    pub(super) fn create(chunks: u32) -> io::Result<(Self, Vec<Chunk>)> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                chunks as usize * CHUNK_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok((Self { memory, chunks }, (0..chunks).map(Chunk).collect()))
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.chunks as usize * CHUNK_LEN
    }

    /// The bytes of a chunk, for as long as its handle is borrowed.
    ///
    /// # Panics
    /// When the handle is of another, larger memory: a bug of this module.
    pub(super) fn bytes<'c>(&'c self, chunk: &'c mut Chunk) -> &'c mut [u8] {
        assert!(chunk.0 < self.chunks, "a chunk lies inside its memory");
        // SAFETY: in bounds as just asserted; the handle is unique and borrowed mutably, so
        // nobody else, the kernel included, uses these bytes meanwhile.
        unsafe {
            let start = self.memory.add(chunk.0 as usize * CHUNK_LEN);
            std::slice::from_raw_parts_mut(start.as_ptr(), CHUNK_LEN)
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; handles cannot reach it without this value. The
        // kernel keeps its own reference to the pages while the socket lives.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap() {
        let (umem, mut chunks) = Umem::create(8).unwrap();
        for (number, chunk) in chunks.iter_mut().enumerate() {
            umem.bytes(chunk).fill(number as u8);
        }
        for (number, chunk) in chunks.iter_mut().enumerate() {
            assert!(umem.bytes(chunk).iter().all(|byte| usize::from(*byte) == number));
        }
    }

    #[test]
    #[should_panic(expected = "inside its memory")]
    fn foreign_chunk_is_refused() {
        let (small, _) = Umem::create(1).unwrap();
        let (_, mut chunks) = Umem::create(2).unwrap();
        small.bytes(&mut chunks[1]);
    }
}
