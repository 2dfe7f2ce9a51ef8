//! A file as a sliding window of contiguous bytes, filled by a thread that reads ahead.
//!
//! The kernel is given whole pages to copy to: on AMD Zen 3 a copy to 16 bytes behind a page's
//! beginning, which is where the allocator puts large blocks, takes four times as long.
//!
//! Each block has free room before its bytes, so that the piece of a record that the previous
//! block's end cut off is put in front of its rest: one short copy a block, none a record.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::BLOCK_LEN_MAX;

/// Bytes asked from the file at once: few calls, yet the parser finds most of what the copy from
/// the page cache has just written still in the processor's caches.
const READ_LEN: usize = 1024 * 1024;

/// Bytes of a page, or of what is copied as if it were one.
const PAGE_LEN: usize = 4096;

/// Room, what is read, and as much as it takes to begin it on a page.
const BLOCK_BYTES: usize = BLOCK_LEN_MAX + PAGE_LEN + READ_LEN;

/// Between two looks whether anybody wants more of a source that says nothing.
const LOOK: Duration = Duration::from_millis(100);

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
    /// Nobody wants more.
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Filled {
    block: Vec<u8>,
    end: usize,
}

impl Blocks {
    /// Starts the thread that reads `source`. It ends with the source, or when this is dropped and
    /// its current read returns.
    pub(super) fn start(source: impl Read + Send + 'static, is_over: Arc<AtomicBool>) -> Self {
        let (empty, to_fill) = sync_channel::<Vec<u8>>(BLOCKS);
        let (done, filled) = sync_channel(BLOCKS);
        for _ in 1..BLOCKS {
            // The channel holds all blocks that exist, so this cannot block or fail.
            let _ = empty.send(vec![0; BLOCK_BYTES]);
        }
        thread::spawn(move || read_ahead(source, &to_fill, &done));
        let current = vec![0; BLOCK_BYTES];
        let at = front(&current);
        Self { filled, empty, current, start: at, end: at, offset: 0, exhausted: false, is_over }
    }

    /// Whether nobody wants more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
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
        let received = loop {
            match self.filled.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) if !self.is_over() => {}
                received => break received,
            }
        };
        let Ok(result) = received else {
            self.exhausted = true;
            return Ok(false);
        };
        let Filled { mut block, end } = result.inspect_err(|_| self.exhausted = true)?;
        let left = self.end - self.start;
        let front = front(&block);
        let start = front - left;
        block[start..front].copy_from_slice(&self.current[self.start..self.end]);
        // The reader may have ended: then nobody wants the block.
        let _ = self.empty.send(std::mem::replace(&mut self.current, block));
        (self.start, self.end) = (start, end);
        Ok(true)
    }
}

/// Where what is read begins: on a page, with room for the longest record before it.
fn front(block: &[u8]) -> usize {
    let start = block.as_ptr() as usize + BLOCK_LEN_MAX;
    BLOCK_LEN_MAX + start.next_multiple_of(PAGE_LEN) - start
}

/// Fills empty blocks from `source` until it ends, fails, or nobody listens.
fn read_ahead(
    mut source: impl Read,
    to_fill: &Receiver<Vec<u8>>,
    done: &SyncSender<io::Result<Filled>>,
) {
    while let Ok(mut block) = to_fill.recv() {
        let front = front(&block);
        let count = loop {
            match source.read(&mut block[front..front + READ_LEN]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let message = match count {
            Ok(0) => return,
            Ok(count) => Ok(Filled { block, end: front + count }),
            Err(error) => Err(error),
        };
        let failed = message.is_err();
        if done.send(message).is_err() || failed {
            return;
        }
    }
}
