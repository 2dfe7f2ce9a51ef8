//! A piece of a capture file on its way to the disk: whole blocks in memory that a disk can read
//! without the kernel copying it.

use weir_port::capture::{FILLER_LEN_MIN, put_filler, put_packet};
use weir_wire::frame::Meta;

/// What direct writes want their memory, place and length to be a multiple of: no disk's sector is
/// larger.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes at which a chunk leaves: few system calls, and a disk at nearly its full rate.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Room behind, for the packet that goes beyond and for a filler.
const BEYOND_BYTES: usize = 512 << 10;

/// Whole pcapng blocks.
pub(super) struct Chunk {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    /// Packets in it.
    pub(super) packets: u64,
}

impl Chunk {
    pub(super) fn new() -> Self {
        // Zeroed memory costs nothing until it is touched.
        let memory = vec![0; CHUNK_BYTES + BEYOND_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, len: 0, packets: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.packets) = (0, 0);
    }

    /// Adds a packet. False: there is no room, which a chunk below [`CHUNK_BYTES`] always has for
    /// a packet that a kernel hands over.
    pub(super) fn push(&mut self, meta: &Meta, packet: &[u8]) -> bool {
        let room = &mut self.memory[self.start + self.len..];
        let Some(len) = put_packet(room, meta, packet) else { return false };
        self.len += len;
        self.packets += 1;
        true
    }

    /// Adds a block that readers pass over, so that the chunk ends on a multiple of [`ALIGNMENT`]
    /// when it begins at `offset` of its file.
    pub(super) fn align_end(&mut self, offset: u64) {
        let end = (offset % ALIGNMENT as u64) as usize + self.len;
        let mut missing = end.next_multiple_of(ALIGNMENT) - end;
        if missing == 0 {
            return;
        }
        if missing < FILLER_LEN_MIN {
            missing += ALIGNMENT;
        }
        let begin = self.start + self.len;
        if let Some(room) = self.memory.get_mut(begin..begin + missing) {
            put_filler(room);
            self.len += missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_chunk_ends_where_a_sector_does() {
        for offset in [0, 4, 156, 4092] {
            for packets in 0..200 {
                let mut chunk = Chunk::new();
                for _ in 0..packets {
                    assert!(chunk.push(&Meta::default(), &[7; 60]));
                }
                chunk.align_end(offset);
                assert_eq!((offset as usize + chunk.len()) % ALIGNMENT, 0, "{offset} {packets}");
                assert!(chunk.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT));
            }
        }
    }

    #[test]
    fn the_longest_packet_fits_a_chunk_that_has_not_left() {
        let mut chunk = Chunk::new();
        while chunk.len() < CHUNK_BYTES {
            assert!(chunk.push(&Meta::default(), &[0; 256 << 10]));
        }
        chunk.align_end(0);
        assert_eq!(chunk.len() % ALIGNMENT, 0);
    }
}
