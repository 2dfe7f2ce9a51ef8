//! What the sockets of one queue have together: the memory, and the two rings of which the kernel
//! has one a queue, whoever of them receives or sends.
//!
//! ```text
//!   memory | share of socket 0 to receive | of socket 1 | ... | of socket 0 to send | of 1 | ...
//!   fill ring <------- chunks of anybody who has received -------------------+
//!   completion ring ---> whoever looks sorts them by owner ---> each takes its own
//! ```
//!
//! Nobody waits for the lock: who finds it taken keeps what it has until its next look. With one
//! socket it is always free.

use std::sync::{Mutex, MutexGuard, TryLockError};

use super::rings::{CompletionRing, FillRing};
use super::umem::{Chunk, Umem};

/// The memory of a queue and its common rings.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) umem: Umem,
    rings: Mutex<Rings>,
}

/// The rings of which there is one a queue.
#[derive(Debug)]
pub(super) struct Rings {
    fill: FillRing,
    completion: CompletionRing,
    /// Where chunks to send from begin, how many each socket has that sends, and which those are.
    first: usize,
    share: usize,
    senders: Vec<usize>,
    /// What comes back in one look, and of each socket what it has not taken yet.
    completed: Vec<Chunk>,
    free: Vec<Vec<Chunk>>,
}

impl Queue {
    /// For `sockets`, of which each of the `senders` sends from `share` of the chunks behind the
    /// `first` ones.
    pub(super) fn new(
        umem: Umem,
        (fill, completion): (FillRing, CompletionRing),
        (first, share): (usize, usize),
        (sockets, senders): (usize, Vec<usize>),
    ) -> Self {
        let completed = Vec::with_capacity(share * senders.len());
        let mut free: Vec<_> = (0..sockets).map(|_| Vec::new()).collect();
        senders.iter().for_each(|it| free[*it].reserve_exact(share));
        let rings = Rings { fill, completion, first, share, senders, completed, free };
        Self { umem, rings: Mutex::new(rings) }
    }

    /// The rings, unless another socket has them at this moment.
    pub(super) fn rings(&self) -> Option<MutexGuard<'_, Rings>> {
        match self.rings.try_lock() {
            Ok(rings) => Some(rings),
            // What panicked left no ring half written: positions change at the end.
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Rings {
    /// Gives the kernel chunks to receive into.
    pub(super) fn give(&mut self, chunks: impl Iterator<Item = Chunk>) {
        self.fill.give(chunks);
    }

    /// Whether the kernel must be told that there are chunks to receive into.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Takes back the chunks of `socket` whose sending is over.
    pub(super) fn take(&mut self, socket: usize, into: &mut Vec<Chunk>) {
        let Self { completion, completed, free, first, share, senders, .. } = self;
        completion.take(completed);
        for chunk in completed.drain(..) {
            let sender = (chunk.number(completion.layout()) - *first) / *share;
            free[senders[sender]].push(chunk);
        }
        into.append(&mut free[socket]);
    }
}
