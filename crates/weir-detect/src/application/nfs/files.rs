//! Files that are read and written, piece by piece.

use super::Nfs;
use super::call::{Asked, Transaction};
use crate::application::file::Content;
use crate::application::unit::{Said, Unit};
use crate::digest::FileDigests;
use crate::heap::heap_size;
use crate::rule::Buffer;

/// A client wants what it writes to be kept before it is answered (RFC 1813 s3.3.7).
pub(super) const FILE_SYNC: u32 = 2;
/// Files that rules see at a time, at most.
const SEEN_MAX: usize = 64;

/// What rules see of a file: all that came of it. Suricata begins anew with each piece that is to
/// be kept at once, and ends at the piece that is the last of the file, which others overtake.
#[derive(Debug)]
pub(super) struct Seen {
    side: usize,
    handle: Vec<u8>,
    content: Content,
}
heap_size!(Seen { handle, content });

/// A piece of a file.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) at: u64,
    /// How many bytes it has, and those that were kept of them.
    pub(super) data: (u64, &'a [u8]),
    pub(super) is_last: bool,
    pub(super) side: usize,
}

impl Nfs {
    /// A piece of the file of a call.
    pub(super) fn piece(&mut self, piece: Piece<'_>, asked: &Asked, said: &mut Said) {
        let Piece { at, data: (length, data), is_last, side } = piece;
        // Over UDP Suricata computes all of a file in a side's first message.
        let wanted = match (&self.held, said.wanted) {
            (None, wanted) if wanted != FileDigests::default() && !self.has_spoken[side] => {
                FileDigests { md5: true, sha1: true, sha256: true }
            }
            (_, wanted) => wanted,
        };
        if length == 0 {
            return;
        }
        // What lies about its length is not longer for it.
        let passed = if self.is_cut[side] { length - data.len() as u64 } else { 0 };
        let (place, is_new) = self.mover(asked, side, said);
        let spoken = self.speaks_with(asked);
        let transaction = &mut self.transactions[place];
        let Some(moved) = &mut transaction.moved else { return };
        moved.pieces += u32::from(!is_new);
        let is_last = is_last && !moved.is_undone;
        if !moved.is_undone {
            moved.take(at, length, (data, passed), wanted);
        }
        moved.is_undone |= is_last && !is_new && side == 0 && asked.version == 4;
        if is_last {
            end(transaction, asked.identifier, spoken, wanted, said);
        }
        let mut unit = self.transactions[place].unit(spoken, side);
        if is_new && side == 1 {
            said.later.push(self.transactions[place].unit(spoken, 0));
        }
        self.show((side, &asked.handle, &asked.name), at, (data, passed), &mut unit);
        if is_last && let Some(moved) = &self.transactions[place].moved {
            unit.whole_file(moved.content.size, moved.content.digests());
        }
        said.units.push(unit);
    }

    /// The place of the transaction that moves the file of a call, and whether it begins here.
    fn mover(&mut self, asked: &Asked, side: usize, said: &mut Said) -> (usize, bool) {
        let is_open = |it: &Transaction| {
            let moved = it.moved.as_ref();
            moved.is_some_and(|it| it.side == side && it.is_open()) && it.handle == asked.handle
        };
        if let Some(place) = self.transactions.iter().position(is_open) {
            return (place, false);
        }
        let new = Transaction::nobody(self.count, asked.identifier, asked.procedure);
        let new = self.add(new.moves(side), said);
        new.version = Some(asked.version).filter(|_| side == 0);
        new.handle.clone_from(&asked.handle);
        new.name.clone_from(&asked.name);
        (self.transactions.len() - 1, true)
    }

    /// The version that the flow speaks when a call's file is told: by then it was answered.
    fn speaks_with(&self, asked: &Asked) -> u32 {
        if self.spoken == 0 { asked.version } else { self.spoken }
    }

    /// What a client wrote of a file is to be kept: it ends; `is_piece` of version 3.
    pub(super) fn keep(&mut self, asked: &Asked, is_piece: bool, said: &mut Said) {
        let spoken = self.speaks_with(asked);
        let is_open = |it: &&mut Transaction| {
            it.handle == asked.handle
                && it.moved.as_ref().is_some_and(|it| it.side == 0 && it.is_open())
        };
        let Some(transaction) = self.transactions.iter_mut().find(is_open) else { return };
        let Some(moved) = &mut transaction.moved else { return };
        if std::mem::take(&mut moved.is_undone) {
            (moved.last, moved.is_told) = (Some(asked.identifier), true);
            return said.records.push(transaction.record(spoken).from(0));
        }
        moved.pieces += u32::from(is_piece);
        moved.is_astray = false;
        end(transaction, asked.identifier, spoken, said.wanted, said);
        let mut unit = transaction.unit(spoken, 0);
        if let Some(moved) = &transaction.moved {
            unit.whole_file(moved.content.size, moved.content.digests());
        }
        self.seen(&mut unit, 0, &asked.handle);
        unit.text(Buffer::FileName, &asked.name);
        said.units.push(unit);
    }

    /// Puts what rules see of a file, with more bytes of it.
    pub(super) fn show(
        &mut self,
        (side, handle, name): (usize, &[u8], &[u8]),
        at: u64,
        data: (&[u8], u64),
        unit: &mut Unit,
    ) {
        let place = self.seen.iter().position(|it| it.side == side && it.handle == handle);
        let content = match place {
            Some(place) => self.seen.remove(place).content,
            None => Content::default(),
        };
        if self.seen.len() == SEEN_MAX {
            self.seen.remove(0);
        }
        let mut seen = Seen { side, handle: handle.to_vec(), content };
        seen.content.add_at(at, data, FileDigests::default());
        self.seen.push(seen);
        let known = self.files.iter().find(|it| name.is_empty() && it.handle == handle);
        unit.text(Buffer::FileName, known.map_or(name, |it| &it.name));
        self.seen(unit, side, handle);
    }

    fn seen(&self, unit: &mut Unit, side: usize, handle: &[u8]) {
        let seen = self.seen.iter().filter(|it| it.side == side && it.handle == handle);
        seen.for_each(|it| it.content.stretches().for_each(|it| unit.text(Buffer::FileData, it)));
    }
}

/// A file ends with the message of that number.
fn end(
    transaction: &mut Transaction,
    identifier: u32,
    spoken: u32,
    wanted: FileDigests,
    said: &mut Said,
) {
    let Some(moved) = &mut transaction.moved else { return };
    moved.last = Some(identifier);
    // An empty one has digests too.
    moved.content.add(&[], wanted);
    let is_read = moved.side == 1;
    transaction.is_over = true;
    said.records.extend(transaction.file(spoken));
    if is_read {
        said.records.push(transaction.record(spoken));
    }
}
