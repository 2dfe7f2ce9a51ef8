//! Compounds of NFS version 4 (RFC 7530 s16, RFC 8881 s18): several operations in one call, of
//! which each has its own form. What is behind one whose form is not known is not looked at.

use super::Xdr;

/// Operations of a compound that are looked at, at most.
const OPERATIONS_MAX: usize = 64;

pub(super) const COMMIT: u32 = 5;
pub(super) const CREATE: u32 = 6;
pub(super) const LOOKUP: u32 = 15;
pub(super) const OPEN: u32 = 18;
pub(super) const READ: u32 = 25;
pub(super) const REMOVE: u32 = 28;
pub(super) const RENAME: u32 = 29;
pub(super) const WRITE: u32 = 38;

/// An operation that a call asks for, as far as files are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// The file that what follows is about.
    Handle(&'a [u8]),
    /// The handle of a file is wanted.
    GetHandle,
    Open(&'a [u8]),
    Lookup(&'a [u8]),
    Create(&'a [u8]),
    Remove(&'a [u8]),
    Rename(&'a [u8], &'a [u8]),
    /// From that byte on.
    Read(u64),
    /// From that byte on; how it is to be kept, how many bytes there are, and those that are here.
    Write(u64, u32, u64, &'a [u8]),
    Close,
    Commit,
    /// Another, by its number.
    Other(u32),
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<'a> {
    Handle(&'a [u8]),
    /// Whether the file ends there, how many bytes there are, and those that are here.
    Read(bool, u64, &'a [u8]),
    Other(u32),
}

/// The operations of a call.
pub(super) fn asked<'a>(xdr: &mut Xdr<'a>) -> Option<Vec<Asked<'a>>> {
    let (_tag, _minor) = (xdr.opaque()?, xdr.number()?);
    let count = xdr.number()? as usize;
    let operations = (0..count.min(OPERATIONS_MAX)).map_while(|_| one_asked(xdr));
    Some(operations.collect())
}

/// The status of an answer, and its operations.
pub(super) fn told<'a>(xdr: &mut Xdr<'a>) -> Option<(u32, Vec<Told<'a>>)> {
    let (status, _tag) = (xdr.number()?, xdr.opaque()?);
    let count = xdr.number()? as usize;
    let operations = (0..count.min(OPERATIONS_MAX)).map_while(|_| one_told(xdr));
    Some((status, operations.collect()))
}

fn one_asked<'a>(xdr: &mut Xdr<'a>) -> Option<Asked<'a>> {
    const STATE: usize = 16;
    let number = xdr.number()?;
    let fixed = match number {
        // Nothing.
        16 | 23 | 24 | 27 | 31 | 32 => 0,
        3 | 19 | 58 => 4,
        7 | 30 | 57 => 8,
        8 | 44 | 36 => STATE,
        20 => STATE + 4,
        21 => STATE + 12,
        53 => STATE + 16,
        14 => 8 + STATE + 16,
        _ => return in_parts(number, xdr),
    };
    xdr.pass(fixed)?;
    Some(Asked::Other(number))
}

fn in_parts<'a>(number: u32, xdr: &mut Xdr<'a>) -> Option<Asked<'a>> {
    Some(match number {
        4 => {
            xdr.pass(20)?;
            Asked::Close
        }
        COMMIT => {
            xdr.pass(12)?;
            Asked::Commit
        }
        CREATE => {
            match xdr.number()? {
                3 | 4 => xdr.pass(8)?,
                5 => drop(xdr.opaque()?),
                _ => {}
            }
            let name = xdr.opaque()?;
            attributes(xdr)?;
            Asked::Create(name)
        }
        10 => Asked::GetHandle,
        LOOKUP => Asked::Lookup(xdr.opaque()?),
        OPEN => open(xdr)?,
        22 => Asked::Handle(xdr.opaque()?),
        READ => {
            xdr.pass(16)?;
            let at = xdr.wide()?;
            xdr.pass(4)?;
            Asked::Read(at)
        }
        REMOVE => Asked::Remove(xdr.opaque()?),
        RENAME => Asked::Rename(xdr.opaque()?, xdr.opaque()?),
        WRITE => {
            xdr.pass(16)?;
            let (at, stable) = (xdr.wide()?, xdr.number()?);
            let (length, data) = xdr.data()?;
            xdr.pass_data(length);
            Asked::Write(at, stable, length, data)
        }
        _ => {
            beside(number, xdr)?;
            Asked::Other(number)
        }
    })
}

/// Passes over an operation that is about no file's name and content.
fn beside(number: u32, xdr: &mut Xdr<'_>) -> Option<()> {
    match number {
        9 => bitmap(xdr),
        11 | 33 => xdr.opaque().map(drop),
        12 => {
            xdr.pass(24)?;
            // An owner that is known, or a new one.
            match xdr.number()? {
                0 => xdr.pass(20),
                _ => {
                    xdr.pass(32)?;
                    xdr.opaque().map(drop)
                }
            }
        }
        13 => {
            xdr.pass(28)?;
            xdr.opaque().map(drop)
        }
        17 | 37 => attributes(xdr),
        26 => {
            xdr.pass(24)?;
            bitmap(xdr)
        }
        34 => {
            xdr.pass(16)?;
            attributes(xdr)
        }
        35 => {
            xdr.pass(8)?;
            let (_id, _program, _net, _address) =
                (xdr.opaque()?, xdr.number()?, xdr.opaque()?, xdr.opaque()?);
            xdr.pass(4)
        }
        _ => None,
    }
}

/// Which file is opened: by its name, or none that is named.
fn open<'a>(xdr: &mut Xdr<'a>) -> Option<Asked<'a>> {
    xdr.pass(20)?;
    xdr.opaque()?;
    if xdr.number()? == 1 {
        match xdr.number()? {
            0 | 1 => attributes(xdr)?,
            2 => xdr.pass(8)?,
            3 => {
                xdr.pass(8)?;
                attributes(xdr)?;
            }
            _ => return None,
        }
    }
    Some(match xdr.number()? {
        0 | 3 => Asked::Open(xdr.opaque()?),
        1 => {
            xdr.pass(4)?;
            Asked::Other(OPEN)
        }
        2 => {
            xdr.pass(16)?;
            Asked::Open(xdr.opaque()?)
        }
        4 | 6 => Asked::Other(OPEN),
        5 => {
            xdr.pass(16)?;
            Asked::Other(OPEN)
        }
        _ => return None,
    })
}

fn one_told<'a>(xdr: &mut Xdr<'a>) -> Option<Told<'a>> {
    let (number, status) = (xdr.number()?, xdr.number()?);
    if status != 0 {
        return Some(Told::Other(number));
    }
    let fixed = match number {
        7 | 8 | 13 | 15..=17 | 19 | 22..=24 | 30..=32 | 36 | 37 | 44 | 57 | 58 => 0,
        3 | 5 => 8,
        4 | 12 | 14 | 20 | 21 | 35 | WRITE => 16,
        11 | REMOVE => 20,
        53 => 36,
        RENAME => 40,
        CREATE => 20,
        10 => return Some(Told::Handle(xdr.opaque()?)),
        READ => {
            let is_last = xdr.number()? == 1;
            let (length, data) = xdr.data()?;
            xdr.pass_data(length);
            return Some(Told::Read(is_last, length, data));
        }
        9 => {
            attributes(xdr)?;
            0
        }
        27 => {
            xdr.opaque()?;
            0
        }
        34 => {
            bitmap(xdr)?;
            0
        }
        OPEN => {
            opened(xdr)?;
            0
        }
        _ => return None,
    };
    xdr.pass(fixed)?;
    if number == CREATE {
        bitmap(xdr)?;
    }
    Some(Told::Other(number))
}

/// What opening a file gives: also what its client may do with it by itself.
fn opened(xdr: &mut Xdr<'_>) -> Option<()> {
    xdr.pass(40)?;
    bitmap(xdr)?;
    let access = |xdr: &mut Xdr<'_>| {
        xdr.pass(12)?;
        xdr.opaque().map(drop)
    };
    match xdr.number()? {
        0 => Some(()),
        1 => {
            xdr.pass(20)?;
            access(xdr)
        }
        2 => {
            xdr.pass(32)?;
            access(xdr)
        }
        3 => match xdr.number()? {
            1 | 2 => xdr.pass(4),
            _ => Some(()),
        },
        _ => None,
    }
}

/// Which attributes there are.
fn bitmap(xdr: &mut Xdr<'_>) -> Option<()> {
    let words = xdr.number()? as usize;
    xdr.pass(words.checked_mul(4)?)
}

/// Attributes: which, and their values.
fn attributes(xdr: &mut Xdr<'_>) -> Option<()> {
    bitmap(xdr)?;
    xdr.opaque().map(drop)
}
