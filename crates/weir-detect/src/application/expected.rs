//! Connections that others have announced: FTP's for data.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::unit::Announced;
use crate::alert::FlowKey;

/// Connections that are waited for, at most; the oldest are forgotten.
const EXPECTED_MAX: usize = 1024;

/// Where connections are waited for, and which flow has announced each. Its clones are one: the
/// announced connection may come to another worker.
#[derive(Clone, Debug, Default)]
pub struct Expected(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many are waited for: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    waiting: Mutex<VecDeque<Awaited>>,
}

#[derive(Debug)]
struct Awaited {
    ends: Ends,
    announced: Announced,
    parent: FlowKey,
    /// Of the detectors that look at the same traffic.
    seed: u64,
}

/// Who opens a connection, and to whom.
pub(crate) type Ends = [[u8; 16]; 2];

impl Expected {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Awaited>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a connection between `ends`, for detectors with this seed.
    pub(crate) fn add(&self, seed: u64, ends: Ends, announced: Announced, parent: FlowKey) {
        let mut waiting = self.waiting();
        let is_same =
            |it: &Awaited| (it.seed, it.ends, it.announced.port) == (seed, ends, announced.port);
        waiting.retain(|it| !is_same(it));
        if waiting.len() == EXPECTED_MAX {
            waiting.pop_front();
        }
        waiting.push_back(Awaited { ends, announced, parent, seed });
        self.0.count.store(waiting.len(), Ordering::Release);
    }

    /// What was announced about a connection to that port, which begins.
    pub(crate) fn take(&self, seed: u64, ends: Ends, port: u16) -> Option<(Announced, FlowKey)> {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = self.waiting();
        let is_it = |it: &Awaited| (it.seed, it.ends, it.announced.port) == (seed, ends, port);
        let place = waiting.iter().position(is_it)?;
        let awaited = waiting.remove(place);
        self.0.count.store(waiting.len(), Ordering::Release);
        awaited.map(|it| (it.announced, it.parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_worker_announced_another_takes_once() {
        let (one, ends) = (Expected::default(), [[1; 16], [2; 16]]);
        let other = one.clone();
        let announced = |file: &[u8]| Announced {
            is_active: false,
            port: 40_000,
            command: b"RETR".to_vec(),
            file: file.to_vec(),
        };
        one.add(7, ends, announced(b"old"), FlowKey::default());
        one.add(7, ends, announced(b"new"), FlowKey::default());
        one.add(8, ends, announced(b"another pair's"), FlowKey::default());
        assert_eq!(other.take(7, ends, 40_001), None);
        assert_eq!(other.take(7, ends, 40_000).unwrap().0.file, b"new");
        assert_eq!(other.take(7, ends, 40_000), None);
        for port in 0..2 * EXPECTED_MAX as u16 {
            one.add(7, ends, Announced { port, ..announced(b"") }, FlowKey::default());
        }
        assert_eq!(other.waiting().len(), EXPECTED_MAX);
        assert_eq!(other.take(7, ends, 0), None, "the oldest was forgotten");
    }
}
