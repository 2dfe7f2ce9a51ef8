//! What servers answer.

use super::call::Asked;
use super::files::Piece;
use super::names::SIGNED_HEAD_LEN;
use super::xdr::Xdr;
use super::{COMPOUND, CREATE, LOOKUP, MKDIR, Nfs, READ, READDIRPLUS, REMOVE, SECOND_READ};
use crate::application::unit::Said;

/// Bytes of a file's attributes, in versions 3 and 2, and where its size stands in the latter.
const ATTRIBUTES_LEN: usize = 84;
const SECOND_ATTRIBUTES_LEN: usize = 68;
const SECOND_SIZE_AT: usize = 20;

impl Nfs {
    pub(super) fn answer(&mut self, bytes: &[u8], said: &mut Said) -> Option<()> {
        let mut xdr = Xdr { rest: bytes };
        let (identifier, _, state) = (xdr.number()?, xdr.number()?, xdr.number()?);
        if state != 0 {
            return None;
        }
        let _ = (xdr.number()?, xdr.opaque()?, xdr.number()?);
        let Some(place) = self.waiting.iter().position(|it| it.identifier == identifier) else {
            return Some(());
        };
        let mut asked = self.waiting.remove(place)?;
        self.speak(asked.version);
        if asked.is_signed {
            xdr.pass(SIGNED_HEAD_LEN)?;
        }
        match asked.version {
            4 if asked.procedure == COMPOUND || asked.number.is_some() => {
                self.results(&mut asked, xdr, said)
            }
            4 => Some(()),
            3 if asked.procedure == READ => self.read(&asked, xdr, said),
            3 => {
                let is_read = self.found(&asked, xdr);
                self.done(&asked, xdr.number().filter(|_| is_read.is_some()), said);
                is_read
            }
            2 if asked.procedure == SECOND_READ => {
                self.read_second(&asked, xdr, said);
                Some(())
            }
            _ => {
                self.done(&asked, xdr.number(), said);
                Some(())
            }
        }
    }

    /// A call was answered.
    pub(super) fn done(&mut self, asked: &Asked, status: Option<u32>, said: &mut Said) {
        let spoken = self.spoken;
        let found = self.transactions.iter_mut().find(|it| Some(it.number) == asked.number);
        let Some(transaction) = found else { return };
        transaction.status = status.unwrap_or(0);
        transaction.is_over = true;
        if !transaction.is_quiet(spoken) {
            said.records.push(transaction.record(spoken));
            said.units.push(transaction.unit(spoken, 1));
        }
    }

    /// The handles that an answer of version 3 gives.
    fn found(&mut self, asked: &Asked, mut xdr: Xdr<'_>) -> Option<()> {
        let status = match asked.procedure {
            LOOKUP | CREATE | MKDIR | REMOVE | READDIRPLUS => xdr.number(),
            _ => return Some(()),
        };
        let handle = match asked.procedure {
            LOOKUP => (status?, xdr.handle()?).1,
            CREATE => (status?, if xdr.number()? == 1 { xdr.handle()? } else { &[] }).1,
            MKDIR if xdr.number() == Some(1) => xdr.handle().unwrap_or_default(),
            REMOVE => {
                self.files.retain(|it| status != Some(0) || it.name != asked.name);
                return Some(());
            }
            READDIRPLUS => return self.entries(status?, xdr),
            _ => return Some(()),
        };
        let spoken = self.transactions.iter_mut().find(|it| Some(it.number) == asked.number);
        if let Some(transaction) = spoken.filter(|it| it.handle.is_empty() && status == Some(0)) {
            transaction.handle = handle.to_vec();
        }
        if status == Some(0) && !handle.is_empty() {
            self.learn(handle, &asked.name, true);
        }
        Some(())
    }

    /// What is in a folder.
    fn entries(&mut self, status: u32, mut xdr: Xdr<'_>) -> Option<()> {
        if xdr.number()? == 1 {
            xdr.pass(ATTRIBUTES_LEN)?;
        }
        xdr.pass(8)?;
        while status == 0 && xdr.number() == Some(1) {
            if self.entry(&mut xdr).is_none() {
                break;
            }
        }
        Some(())
    }

    fn entry(&mut self, xdr: &mut Xdr<'_>) -> Option<()> {
        xdr.pass(8)?;
        let name = xdr.name()?;
        xdr.pass(8)?;
        if xdr.number()? == 1 {
            xdr.pass(ATTRIBUTES_LEN)?;
        }
        if xdr.number()? == 1 {
            let handle = xdr.handle()?;
            self.learn(handle, name, true);
        }
        Some(())
    }

    /// What was read, in version 3.
    fn read(&mut self, asked: &Asked, mut xdr: Xdr<'_>, said: &mut Said) -> Option<()> {
        let status = xdr.number()?;
        if xdr.number()? == 1 {
            xdr.pass(ATTRIBUTES_LEN)?;
        }
        let (_, is_last) = (xdr.number()?, xdr.number()? == 1);
        let data = xdr.data()?;
        let at = asked.reads.first().map_or(0, |it| it.1);
        if status == 0 {
            self.piece(Piece { at, data, is_last, side: 1 }, asked, said);
        }
        // What is cut is odd.
        (data.1.len() as u64 == data.0 || self.is_cut[1]).then_some(())
    }

    /// The same in version 2: a file is over where one piece has all of it.
    fn read_second(&mut self, asked: &Asked, mut xdr: Xdr<'_>, said: &mut Said) -> Option<()> {
        let status = xdr.number()?;
        let attributes = xdr.bytes(SECOND_ATTRIBUTES_LEN)?;
        let size = attributes.get(SECOND_SIZE_AT..).and_then(|it| it.first_chunk())?;
        let size = u64::from(u32::from_be_bytes(*size));
        let data = xdr.data()?;
        let at = asked.reads.first().map_or(0, |it| it.1);
        if status == 0 {
            let piece = Piece { at, data, is_last: data.0 == size, side: 1 };
            self.piece(piece, asked, said);
        }
        Some(())
    }
}
