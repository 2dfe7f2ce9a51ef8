//! Transactions of a connection, by their numbers and by their streams.

use std::collections::{BTreeMap, VecDeque};

use crate::buffers::http::transaction::Transaction;
use crate::heap::heap_size;

/// A transaction that is kept.
#[derive(Debug)]
struct Kept {
    /// 0: the connection's.
    stream: u32,
    /// It is among those that are over.
    is_over: bool,
    transaction: Transaction,
}
heap_size!(Kept { transaction });

/// Numbers go up and are not given again; those of transactions that were let go name nothing.
#[derive(Debug, Default)]
pub(super) struct Streams {
    kept: BTreeMap<u64, Box<Kept>>,
    /// By a stream, the number of its transaction: a frame takes nine bytes, and must not cost a
    /// walk.
    of_stream: BTreeMap<u32, u64>,
    next: u64,
    /// Those of the connection, and those that nobody says more in: both from the oldest on.
    idle: VecDeque<u64>,
    over: VecDeque<u64>,
}
heap_size!(Streams { kept, of_stream, idle, over });

impl Streams {
    /// With transactions of HTTP/1 that came before, the first of which has that number.
    pub(super) fn behind(transactions: VecDeque<Transaction>, first: u64) -> Self {
        let mut streams = Self { next: first, ..Self::default() };
        transactions.into_iter().for_each(|it| _ = streams.push(0, it));
        streams
    }

    /// Keeps one more; its number.
    pub(super) fn push(&mut self, stream: u32, transaction: Transaction) -> u64 {
        let number = self.next;
        self.next += 1;
        if stream == 0 {
            self.idle.push_back(number);
        } else {
            self.of_stream.insert(stream, number);
        }
        self.kept.insert(number, Box::new(Kept { stream, is_over: false, transaction }));
        number
    }

    /// The number of a stream's transaction.
    pub(super) fn find(&self, stream: u32) -> Option<u64> {
        self.of_stream.get(&stream).copied()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Transaction> {
        self.kept.get(&number).map(|it| &it.transaction)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Transaction> {
        self.kept.get_mut(&number).map(|it| &mut it.transaction)
    }

    /// Nobody says more in it if it was reset, or if both sides said that they end; what a server
    /// pushes, in streams of even numbers, nobody asks. Its stream, if both sides just ended it.
    pub(super) fn end(&mut self, number: u64, is_reset: bool) -> Option<u32> {
        let kept = self.kept.get_mut(&number)?;
        let is_asked = kept.transaction.is_complete(0) || kept.stream.is_multiple_of(2);
        let is_over = is_reset || is_asked && kept.transaction.is_complete(1);
        if is_over && kept.stream != 0 && !std::mem::replace(&mut kept.is_over, true) {
            self.over.push_back(number);
        }
        kept.transaction.is_over().then_some(kept.stream)
    }

    /// What comes in that stream from now on belongs to another transaction.
    pub(super) fn forget(&mut self, stream: u32, number: u64) {
        if self.of_stream.get(&stream) == Some(&number) {
            self.of_stream.remove(&stream);
        }
    }

    /// Lets transactions go until there are no more than so many. First those of the connection,
    /// then those that are over, then the oldest: whoever sends much else must not have an open
    /// request forgotten.
    pub(super) fn shrink(&mut self, max: usize) {
        while self.len() > max {
            let spare = self.idle.pop_front().or_else(|| self.over.pop_front());
            let Some(number) = spare.or_else(|| self.kept.keys().next().copied()) else { break };
            let stream = self.kept.remove(&number).map_or(0, |it| it.stream);
            self.forget(stream, number);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// All with their numbers, from the oldest on.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Transaction)> {
        self.kept.iter_mut().map(|(number, it)| (*number, &mut it.transaction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(streams: &mut Streams) -> Vec<u64> {
        streams.iter_mut().map(|it| it.0).collect()
    }

    #[test]
    fn open_streams_are_let_go_last_and_numbers_stay() {
        let http1 = VecDeque::from([Transaction::default()]);
        let mut streams = Streams::behind(http1, 7);
        for stream in [1, 3, 0, 5, 7, 0] {
            streams.push(stream, Transaction::of_stream(stream));
        }
        for side in [0, 1] {
            streams.get_mut(11).unwrap().half_or_new(side).complete();
            streams.end(11, false);
        }
        streams.get_mut(9).unwrap().half_or_new(0).complete();
        streams.end(9, false);
        streams.end(8, true);
        streams.end(8, true);
        for (max, left) in [
            (6, &[8, 9, 10, 11, 12, 13][..]),
            (4, &[8, 9, 11, 12]),
            (3, &[8, 9, 12]),
            (2, &[9, 12]),
            (1, &[12]),
        ] {
            streams.shrink(max);
            assert_eq!(numbers(&mut streams), left);
        }
        assert_eq!([1, 3, 5, 7].map(|it| streams.find(it)), [None, None, None, Some(12)]);
        assert!(streams.get(11).is_none());
        assert_eq!(streams.push(1, Transaction::of_stream(1)), 14, "no number is given again");
    }
}
