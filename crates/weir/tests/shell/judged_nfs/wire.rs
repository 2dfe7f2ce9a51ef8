//! Messages of ONC RPC and NFS, made by hand.

use std::fmt::Write as _;

pub(super) fn numbers(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|it| it.to_be_bytes()).collect()
}

pub(super) fn wide(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub(super) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = [&numbers(&[bytes.len() as u32])[..], bytes].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// A call of a user of Unix.
pub(super) fn call(number: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let head = numbers(&[number, 0, 2, 100_003, version, procedure, 1]);
    let user = [&numbers(&[7])[..], &opaque(b"host"), &numbers(&[1000, 100, 0])].concat();
    [&head[..], &opaque(&user), &numbers(&[0, 0]), arguments].concat()
}

/// An answer to a call that was accepted.
pub(super) fn reply(number: u32, result: &[u8]) -> Vec<u8> {
    reply_of(number, (0, &[]), 0, result)
}

/// The same with what proves who answers, by its flavour, and what became of the call.
pub(super) fn reply_of(number: u32, proof: (u32, &[u8]), state: u32, result: &[u8]) -> Vec<u8> {
    [&numbers(&[number, 1, 0, proof.0])[..], &opaque(proof.1), &numbers(&[state]), result].concat()
}

/// A record of one fragment.
pub(super) fn record(message: &[u8]) -> Vec<u8> {
    [&numbers(&[1 << 31 | message.len() as u32])[..], message].concat()
}

pub(super) fn operation(number: u32, arguments: &[u8]) -> Vec<u8> {
    [&numbers(&[number])[..], arguments].concat()
}

/// The result of an operation, with its status.
pub(super) fn failed(number: u32, status: u32, result: &[u8]) -> Vec<u8> {
    [&numbers(&[number, status])[..], result].concat()
}

pub(super) fn compound(operations: &[Vec<u8>]) -> Vec<u8> {
    [numbers(&[0, 0, operations.len() as u32]), operations.concat()].concat()
}

pub(super) fn results(results: &[Vec<u8>], status: u32) -> Vec<u8> {
    [numbers(&[status, 0, results.len() as u32]), results.concat()].concat()
}

/// A line of a conversation.
pub(super) fn line(side: usize, bytes: &[u8]) -> String {
    let mut line = format!("{} ", if side == 0 { '>' } else { '<' });
    bytes.iter().for_each(|it| write!(line, "\\x{it:02x}").unwrap());
    line.push('\n');
    line
}
