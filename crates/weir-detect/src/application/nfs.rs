//! NFS, versions 2 to 4 (RFC 1094, 1813, 7530), over ONC RPC (RFC 5531): which files are used.
//!
//! ```text
//!   call --asked--> answer     a transaction, told with its answer
//!    |                |
//!    +--pieces--------+        a file: a transaction from its first piece to its last
//! ```

mod answer;
mod begin;
mod call;
mod compound;
mod files;
mod four;
mod names;
mod xdr;

use std::collections::VecDeque;

use super::unit::{Objects, Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::Protocol;
use crate::value::Object;
pub(crate) use begin::{Beginning, begins};
use call::{Asked, Head, Transaction};
use files::{Piece, Seen};
use xdr::Xdr;

/// Program of NFS.
const PROGRAM: u32 = 100_003;
/// Bytes of a call's head, its record's mark before it.
const HEAD_LEN: usize = 20;
/// Bytes without which a message has no head.
const MESSAGE_LEN: usize = 24;
/// Calls that wait for an answer, files whose names are known, and transactions, at most.
const WAITING_MAX: usize = 256;
const FILES_MAX: usize = 256;
const TRANSACTIONS_MAX: usize = 512;
/// Bytes of a record that are looked into, at most.
const RECORD_LEN_MAX: usize = 100 * 1024;

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;
/// Procedures of version 2 that are not told as others.
const SECOND_READ: u32 = 6;
const SECOND_WRITECACHE: u32 = 7;
const SECOND_WRITE: u32 = 8;
const SECOND_RENAME: u32 = 11;
/// Several operations at once.
const COMPOUND: u32 = 1;

/// A flow between a client and a server.
#[derive(Debug, Default)]
pub(crate) struct Nfs {
    /// Bytes of streams; datagrams are whole.
    held: Option<[Held; 2]>,
    /// Fragments of a record that goes on.
    parts: [Vec<u8>; 2],
    waiting: VecDeque<Asked>,
    transactions: VecDeque<Transaction>,
    unanswered: Unanswered,
    /// Handles and the names that lead to them.
    files: VecDeque<Known>,
    /// What rules see of files.
    seen: Vec<Seen>,
    /// The version that was told first, and that Suricata has all its transactions be of; 0: none.
    spoken: u32,
    count: u64,
    /// Of the record of a side not all is looked into.
    is_cut: [bool; 2],
    /// Sides that said something.
    has_spoken: [bool; 2],
}
heap_size!(Nfs { held, parts, waiting, transactions, files, seen });

/// A handle and the name that led to it.
#[derive(Debug)]
struct Known {
    handle: Vec<u8>,
    name: Vec<u8>,
    /// Suricata knows it too: what names a file without opening it, rules alone see.
    is_told: bool,
}
heap_size!(Known { handle, name });

/// Whether a record of a side's begins so: a call of NFS, or a reply that was accepted (RFC 5531 s9
/// and s11).
fn is_head(side: usize, head: &[u8]) -> bool {
    let words: Vec<u32> = head
        .chunks_exact(4)
        .filter_map(|it| it.first_chunk().map(|it| u32::from_be_bytes(*it)))
        .collect();
    match (side, words.as_slice()) {
        (0, [mark, _, 0, 2, program, ..]) => mark >> 31 == 1 && *program == PROGRAM,
        (1, [mark, _, 1, 0, flavor, ..]) => mark >> 31 == 1 && *flavor <= 6,
        _ => false,
    }
}

impl Parser for Nfs {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        match self.held {
            Some(_) => self.records(side, bytes, said),
            None => self.message(side, bytes, said),
        }
        self.has_spoken[side] |= !bytes.is_empty();
    }

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return true };
        let mark = held.bytes().first_chunk().map(|it| u32::from_be_bytes(*it));
        held.lose(count, mark.map(|it| 4 + u64::from(it & 0x7fff_ffff)));
        self.parts[side].clear();
        self.is_cut[side] = false;
        true
    }

    fn told_now(&self, number: u64, side: usize) -> Option<(Objects, Vec<Object>)> {
        let transaction = self.transactions.iter().find(|it| it.number == number)?;
        let unit = transaction.unit(self.spoken, side);
        Some((unit.objects.as_ref().clone(), unit.files))
    }

    fn end(&mut self, said: &mut Said) {
        self.waiting.clear();
        let transactions = std::mem::take(&mut self.transactions);
        // What is left of datagrams is not told of, as with Suricata.
        if self.held.is_some() {
            let mut records: Vec<_> =
                transactions.iter().flat_map(|it| it.left(self.spoken)).collect();
            if !self.has_spoken[1] {
                records.iter_mut().filter(|it| it.kind == "nfs").for_each(|it| it.side = Some(0));
            }
            said.records.append(&mut records);
        }
    }
}

impl Nfs {
    pub(crate) fn of_datagrams() -> Self {
        Self::default()
    }

    pub(crate) fn of_streams() -> Self {
        Self { held: Some(Default::default()), ..Self::of_datagrams() }
    }

    /// More of a side's stream.
    fn records(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some(held) = &mut self.held else { return };
        held[side].add_from(bytes, HEAD_LEN - 1, |it| {
            it.windows(HEAD_LEN).position(|it| is_head(side, it))
        });
        if held[side].is_lost() {
            return;
        }
        loop {
            let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return };
            let Some(mark) = held.bytes().first_chunk().map(|it| u32::from_be_bytes(*it)) else {
                return;
            };
            let length = (mark & 0x7fff_ffff) as usize;
            let looked_into = 4 + length.min(RECORD_LEN_MAX);
            if held.bytes().len() < looked_into {
                return;
            }
            let room = RECORD_LEN_MAX.saturating_sub(self.parts[side].len());
            let part = &held.bytes()[4..looked_into];
            self.parts[side].extend_from_slice(&part[..part.len().min(room)]);
            self.is_cut[side] |= length > room;
            held.drop(4 + length as u64);
            if mark >> 31 == 1 {
                let record = std::mem::take(&mut self.parts[side]);
                self.message(side, &record, said);
                self.is_cut[side] = false;
            }
        }
    }

    fn message(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let kind = bytes.get(4..8).and_then(|it| it.first_chunk());
        let kind = kind.map(|it| u32::from_be_bytes(*it));
        let is_whole = bytes.len() >= MESSAGE_LEN;
        if is_whole && self.held.is_some() && kind == Some(1 - side as u32) {
            // Servers call back by the same connection (RFC 8881 s2.10.3.1).
            return self.malformed(false, said);
        }
        if !is_whole || kind != Some(side as u32) {
            return self.fail(said);
        }
        let is_read = match side {
            0 => self.call(bytes, said),
            _ => self.answer(bytes, said),
        };
        if is_read.is_none() {
            self.malformed(true, said);
        }
    }

    /// It is odd; told of the transaction that began last, with what ends it if it is its `own`.
    fn malformed(&self, is_own: bool, said: &mut Said) {
        let Some(last) = self.transactions.back() else { return };
        let mut unit = last.unit(self.spoken, 0);
        unit.odd(AppEvent::NfsMalformed);
        if last.is_over && !is_own {
            // It was told: rules alone hear of it.
            unit.is_aside = true;
            return said.later.push(unit);
        }
        said.tell(unit);
    }

    /// It is no message: Suricata reads no more of a stream, and tells what there is.
    fn fail(&mut self, said: &mut Said) {
        if self.held.is_none() {
            let mut alone = Transaction::nobody(self.count, 0, 0);
            alone.is_over = true;
            self.add(alone, said);
            self.malformed(true, said);
            if let Some(alone) = self.transactions.back() {
                said.records.push(alone.record(self.spoken));
            }
            return;
        }
        self.malformed(false, said);
        said.has_failed = true;
        let spoken = self.spoken;
        for it in self.transactions.iter_mut().filter(|it| it.moved.is_none() && !it.is_over) {
            it.is_over = true;
            said.records.extend(Some(it.record(spoken)).filter(|_| !it.is_quiet(spoken)));
        }
    }

    /// Takes in a transaction; of too many the first ends.
    fn add(&mut self, transaction: Transaction, said: &mut Said) -> &mut Transaction {
        if self.transactions.len() == TRANSACTIONS_MAX
            && let Some(first) = self.transactions.pop_front()
        {
            said.records.extend(first.left(self.spoken));
        }
        self.count = transaction.number + 1;
        self.transactions.push_back(transaction);
        let last = self.transactions.len() - 1;
        &mut self.transactions[last]
    }

    fn call(&mut self, bytes: &[u8], said: &mut Said) -> Option<()> {
        let over: Vec<u64> = self.over().collect();
        match Head::read(bytes)? {
            // Lists of access are asked for by the same connection.
            Some(head) if head.program != PROGRAM => {}
            Some(head) if self.asks(&head, said).is_some() => {}
            _ => self.malformed(false, said),
        }
        // With its next packet the client's side was looked at to its end.
        self.transactions.retain(|it| over.binary_search(&it.number).is_err());
        Some(())
    }

    /// Transactions of which nothing is left to tell.
    fn over(&self) -> impl Iterator<Item = u64> + '_ {
        let is_stream = self.held.is_some();
        let is_kept = move |it: &Transaction| is_stream && it.is_written();
        self.transactions.iter().filter(move |it| it.is_over && !is_kept(it)).map(|it| it.number)
    }

    fn speak(&mut self, version: u32) {
        if self.spoken == 0 {
            self.spoken = version;
        }
    }

    fn asks(&mut self, head: &Head<'_>, said: &mut Said) -> Option<()> {
        let mut asked = Asked {
            identifier: head.identifier,
            version: head.version,
            procedure: head.procedure,
            is_signed: head.is_signed,
            handle: Vec::new(),
            name: Vec::new(),
            found: Vec::new(),
            reads: Vec::new(),
            number: None,
        };
        let is_read = match head.version {
            4 if head.procedure == COMPOUND => self.compound(head, &mut asked, said),
            4 => Some(()),
            3 => self.third(head, &mut asked, said),
            _ => self.second(head, &mut asked, said),
        };
        if self.unanswered.make_room(&mut self.waiting, WAITING_MAX) {
            let mut unit = Unit::new(Protocol::Nfs, asked.number.unwrap_or(self.count));
            unit.odd(AppEvent::NfsMany);
            said.units.push(unit);
        }
        // The one that asked first is answered.
        if let Some(place) = self.waiting.iter().position(|it| it.identifier == asked.identifier)
            && let Some(before) = self.waiting.remove(place)
        {
            asked.number = before.number.or(asked.number);
        }
        self.waiting.push_back(asked);
        is_read
    }

    /// A call of version 2: of files it tells none, but where it reads.
    fn second(&mut self, head: &Head<'_>, asked: &mut Asked, said: &mut Said) -> Option<()> {
        let mut xdr = head.arguments;
        match head.procedure {
            SECOND_READ => {
                asked.handle = xdr.bytes(32).unwrap_or_default().to_vec();
                asked.reads = vec![(asked.handle.clone(), xdr.number().unwrap_or(0).into())];
            }
            SECOND_WRITECACHE => {}
            _ => self.begin(Transaction::new(self.count, head), asked, said),
        }
        Some(())
    }

    /// A call of version 3.
    fn third(&mut self, head: &Head<'_>, asked: &mut Asked, said: &mut Said) -> Option<()> {
        let mut xdr = head.arguments;
        let (procedure, is_of_file) = (head.procedure, is_of_file(head.procedure));
        self.speak(3);
        let named = self.named(procedure, xdr);
        let (name, rename) = named.clone().unwrap_or_default();
        let has_handle = is_of_file && (named.is_some() || matches!(procedure, LOOKUP | CREATE));
        let handle = if has_handle { xdr.handle().unwrap_or_default() } else { &[] };
        (asked.handle, asked.name) = (handle.to_vec(), name.clone());
        match procedure {
            WRITE => {
                let (at, _, stable) = (xdr.wide()?, xdr.number()?, xdr.number()?);
                let is_last = stable == files::FILE_SYNC;
                let piece = Piece { at, data: xdr.data()?, is_last, side: 0 };
                self.piece(piece, asked, said);
                return Some(());
            }
            COMMIT => {
                self.keep(asked, true, said);
                return Some(());
            }
            READ => {
                asked.reads = vec![(asked.handle.clone(), xdr.wide().unwrap_or(0))];
                let is_same = |it: &&Transaction| it.reads(&asked.handle);
                if self.transactions.iter().any(|it| is_same(&it)) {
                    return Some(());
                }
            }
            _ => {}
        }
        let mut new = Transaction::new(self.count, head);
        if procedure == READ {
            new = new.moves(1);
        }
        if procedure != LOOKUP {
            new.handle.clone_from(&asked.handle);
        }
        (new.name, new.rename) = (name, rename);
        if named.is_none() && is_of_file {
            self.malformed(false, said);
        }
        self.begin(new, asked, said);
        Some(())
    }

    /// A transaction that a call is.
    fn begin(&mut self, new: Transaction, asked: &mut Asked, said: &mut Said) {
        asked.number = Some(new.number);
        let spoken = self.spoken;
        let unit = self.add(new, said).unit(spoken, 0);
        said.units.push(unit);
    }

    /// The file that a call of version 3 names, or has a handle of.
    #[allow(clippy::type_complexity)]
    fn named(
        &self,
        procedure: u32,
        mut xdr: Xdr<'_>,
    ) -> Option<(Vec<u8>, Option<(Vec<u8>, Vec<u8>)>)> {
        if !is_of_file(procedure) {
            return None;
        }
        let handle = xdr.handle()?;
        Some(match procedure {
            LOOKUP | CREATE | MKDIR | REMOVE | RMDIR => (xdr.name()?.to_vec(), None),
            RENAME => {
                let from = xdr.name()?.to_vec();
                let _ = xdr.opaque()?;
                (from.clone(), Some((from, xdr.name()?.to_vec())))
            }
            _ => {
                xdr.pass(match procedure {
                    ACCESS => 4,
                    READ | COMMIT => 12,
                    READDIRPLUS => 24,
                    _ => 0,
                })?;
                (self.name_of(handle), None)
            }
        })
    }

    /// The name that led to a handle, as it is told.
    fn name_of(&self, handle: &[u8]) -> Vec<u8> {
        let known = self.files.iter().find(|it| it.handle == handle && it.is_told);
        known.map(|it| it.name.clone()).unwrap_or_default()
    }

    /// The handle of a file that was named.
    fn learn(&mut self, handle: &[u8], name: &[u8], is_told: bool) {
        if !is_told && !self.name_of(handle).is_empty() {
            return;
        }
        self.files.retain(|it| it.handle != handle);
        if self.files.len() == FILES_MAX {
            self.files.pop_front();
        }
        self.files.push_back(Known { handle: handle.to_vec(), name: name.to_vec(), is_told });
    }
}

impl Transaction {
    /// Whether it is a file that is written, which is told with the end of its flow.
    fn is_written(&self) -> bool {
        self.moved.as_ref().is_some_and(|it| it.side == 0 && !it.is_told)
    }

    /// Whether it reads that file.
    fn reads(&self, handle: &[u8]) -> bool {
        self.handle == handle && self.moved.as_ref().is_some_and(|it| it.side == 1)
    }

    /// What was not told of it when nothing more comes.
    fn left(&self, spoken: u32) -> Vec<Record> {
        if self.is_quiet(spoken) || self.is_over && !self.is_written() {
            return Vec::new();
        }
        let file = Some(self).filter(|it| !it.is_over).and_then(|it| it.file(spoken));
        file.into_iter().chain([self.record(spoken)]).collect()
    }
}

/// Whether the file that a call of version 3 has a handle of is told.
fn is_of_file(procedure: u32) -> bool {
    let has_handle = matches!(
        procedure,
        GETATTR | LOOKUP | ACCESS | READ..=MKDIR | REMOVE..=RENAME
    );
    has_handle || matches!(procedure, READDIRPLUS | COMMIT)
}

#[cfg(test)]
mod tests;
