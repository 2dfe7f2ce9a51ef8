//! A file as a sliding window of contiguous bytes, filled by a thread that reads ahead.
//!
//! Each block has free room before its bytes, so that the piece of a record that the previous
//! block's end cut off is put in front of its rest: one short copy a block, none a record.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::BLOCK_LEN_MAX;

/// Bytes asked from the file at once: fits a core's second-level cache, so that the parser reads
/// what the copy from the page cache has just written there.
const READ_LEN: usize = 1024 * 1024;

/// Blocks in flight: one parsed, one full, one being filled.
const BLOCKS: usize = 3;

/// The window. `bytes[start..end]` of the current block is what is left of it.
#[derive(Debug)]
pub(super) struct Blocks {
    filled: Receiver<io::Result<Filled>>,
    empty: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    exhausted: bool,
}

#[derive(Debug)]
struct Filled {
    block: Vec<u8>,
    end: usize,
}

impl Blocks {
    /// Starts the thread that reads `source`. It ends with the source, or when this is dropped and
    /// its current read returns.
    pub(super) fn start(source: impl Read + Send + 'static) -> Self {
        let (empty, to_fill) = sync_channel::<Vec<u8>>(BLOCKS);
        let (done, filled) = sync_channel(BLOCKS);
        for _ in 1..BLOCKS {
            // The channel holds all blocks that exist, so this cannot block or fail.
            let _ = empty.send(vec![0; BLOCK_LEN_MAX + READ_LEN]);
        }
        thread::spawn(move || read_ahead(source, &to_fill, &done));
        let current = vec![0; BLOCK_LEN_MAX + READ_LEN];
        let at = BLOCK_LEN_MAX;
        Self { filled, empty, current, start: at, end: at, offset: 0, exhausted: false }
    }

    /// What is at hand.
    pub(super) fn window(&self) -> &[u8] {
        &self.current[self.start..self.end]
    }

    /// What is at hand, to change.
    pub(super) fn window_mut(&mut self) -> &mut [u8] {
        &mut self.current[self.start..self.end]
    }

    /// Bytes of the file before the window.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the window is empty and stays so.
    pub(super) fn at_end(&self) -> bool {
        self.exhausted && self.start == self.end
    }

    /// Moves the window's front over `len` bytes of it.
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }

    /// Drops what is left.
    pub(super) fn end(&mut self) {
        self.exhausted = true;
        self.consume(self.end - self.start);
    }

    /// Makes at least `len` bytes contiguous; false when the file ends before. `len` is at most
    /// [`BLOCK_LEN_MAX`].
    pub(super) fn fill(&mut self, len: usize) -> io::Result<bool> {
        debug_assert!(len <= BLOCK_LEN_MAX, "a record is bounded before it is asked for");
        while self.end - self.start < len {
            if !self.next_block()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves the window's front over `len` bytes, also beyond the window; false when the file ends
    /// before.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<bool> {
        let mut left = len;
        loop {
            let step = left.min((self.end - self.start) as u64);
            self.consume(step as usize);
            left -= step;
            if left == 0 {
                return Ok(true);
            }
            if !self.next_block()? {
                return Ok(false);
            }
        }
    }

    /// Takes the next block and puts what is left of the current one before it.
    fn next_block(&mut self) -> io::Result<bool> {
        if self.exhausted {
            return Ok(false);
        }
        let Ok(result) = self.filled.recv() else {
            self.exhausted = true;
            return Ok(false);
        };
        let Filled { mut block, end } = result.inspect_err(|_| self.exhausted = true)?;
        let left = self.end - self.start;
        let start = BLOCK_LEN_MAX - left;
        block[start..BLOCK_LEN_MAX].copy_from_slice(&self.current[self.start..self.end]);
        // The reader may have ended: then nobody wants the block.
        let _ = self.empty.send(std::mem::replace(&mut self.current, block));
        (self.start, self.end) = (start, end);
        Ok(true)
    }
}

/// Fills empty blocks from `source` until it ends, fails, or nobody listens.
fn read_ahead(
    mut source: impl Read,
    to_fill: &Receiver<Vec<u8>>,
    done: &SyncSender<io::Result<Filled>>,
) {
    while let Ok(mut block) = to_fill.recv() {
        let count = loop {
            match source.read(&mut block[BLOCK_LEN_MAX..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let message = match count {
            Ok(0) => return,
            Ok(count) => Ok(Filled { block, end: BLOCK_LEN_MAX + count }),
            Err(error) => Err(error),
        };
        let failed = message.is_err();
        if done.send(message).is_err() || failed {
            return;
        }
    }
}
