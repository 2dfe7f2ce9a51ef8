//! How sides of a stream begin, as Suricata knows them.

use super::names::credentials;
use super::xdr::Xdr;
use super::{COMMIT, PROGRAM};

/// What a side begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    Is,
    Not,
    /// A record that is whole, and has less than a head.
    Short,
}

/// Bytes that tell a call, and an answer, their marks included.
const CALL_LEN: usize = 32;
const ANSWER_LEN: usize = 28;

/// What a side begins with these bytes; `None`: there are too few.
pub(crate) fn begins(side: usize, bytes: &[u8]) -> Option<Beginning> {
    let mut xdr = Xdr { rest: bytes };
    let mark = xdr.number()?;
    let length = 4 + (mark & 0x7fff_ffff) as usize;
    if bytes.len() < if side == 0 { CALL_LEN } else { ANSWER_LEN } {
        return (bytes.len() >= length).then_some(Beginning::Short);
    }
    let is_such = mark >> 31 == 1
        && match side {
            0 => is_call(xdr).is_some(),
            _ => is_answer(xdr).is_some(),
        };
    Some(if is_such { Beginning::Is } else { Beginning::Not })
}

/// A call of version 3 or 4, its credentials included.
fn is_call(mut xdr: Xdr<'_>) -> Option<()> {
    let (_, kind, version) = (xdr.number()?, xdr.number()?, xdr.number()?);
    let (program, of, procedure) = (xdr.number()?, xdr.number()?, xdr.number()?);
    let head = (kind, version, program, of);
    if !matches!(head, (0, 2, PROGRAM, 3 | 4)) || procedure > COMMIT {
        return None;
    }
    let flavour = xdr.rest.first_chunk().map(|it| u32::from_be_bytes(*it))?;
    if flavour == 6 {
        let mut inner = Xdr { rest: xdr.rest };
        inner.number()?;
        let mut inner = Xdr { rest: inner.opaque()? };
        inner.pass(16)?;
        inner.opaque()?;
    }
    credentials(&mut xdr)?;
    let _ = (xdr.number()?, xdr.opaque()?);
    (flavour <= 6).then_some(())
}

/// An answer to a call that was accepted and could be run, or one that says why it was denied.
fn is_answer(mut xdr: Xdr<'_>) -> Option<()> {
    let (_, kind, state) = (xdr.number()?, xdr.number()?, xdr.number()?);
    match (kind, state) {
        (1, 0) => {
            let _ = (xdr.number()?, xdr.opaque()?);
            (xdr.number()? == 0).then_some(())
        }
        (1, 1) => Some(()),
        _ => None,
    }
}
