//! Messages of SMB 1 and 2 and of DCE/RPC, made by hand.

use std::fmt::Write as _;

/// Numbers of so many bytes, the lowest first.
pub(super) fn le(numbers: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (width, number) in numbers {
        let end = bytes.len() + width;
        bytes.extend(number.to_le_bytes());
        bytes.resize(end, 0);
    }
    bytes
}

pub(super) fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The head of a message of version 2.
#[derive(Clone, Copy)]
pub(super) struct Two {
    pub(super) command: u16,
    pub(super) number: u64,
    pub(super) status: u32,
    /// 1: an answer; 2: it goes on with what was put off.
    pub(super) flags: u32,
}

impl Two {
    pub(super) fn with(self, body: &[u8]) -> Vec<u8> {
        let head = le(&[
            (2, 64),
            (2, 1),
            (4, self.status.into()),
            (2, self.command.into()),
            (2, 1),
            (4, self.flags.into()),
            (4, 0),
            (8, self.number),
            (4, 0),
            (4, if self.flags & 2 != 0 { 0 } else { 1 }),
            (8, 0x11),
            (8, 0),
            (8, 0),
        ]);
        [b"\xfeSMB", &head[..], body].concat()
    }
}

/// A message of version 1.
pub(super) fn one(
    command: u8,
    is_answer: bool,
    status: u32,
    words: &[u8],
    bytes: &[u8],
) -> Vec<u8> {
    let flags = if is_answer { 0x98 } else { 0x18 };
    let head = [b"\xffSMB", &[command][..], &le(&[(4, status.into()), (1, flags), (2, 0xc001)])];
    let rest = le(&[(8, 0), (4, 0), (2, 1), (2, 7), (2, 2), (2, command.into())]);
    let count = [(words.len() / 2) as u8];
    let length = le(&[(2, bytes.len() as u64)]);
    [&head.concat()[..], &rest, &count, words, &length, bytes].concat()
}

/// Messages as one record.
pub(super) fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes(), message].concat()
}

/// A line of a conversation.
pub(super) fn line(side: usize, bytes: &[u8]) -> String {
    let mut line = ["> ", "< "][side].to_owned();
    for byte in bytes {
        write!(line, "\\x{byte:02x}").unwrap();
    }
    line.push('\n');
    line
}

/// Messages of one record, each with where the next begins.
pub(super) fn compound(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        if place + 1 < messages.len() {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = (message.len() as u32).to_le_bytes();
            message[20..24].copy_from_slice(&next);
        }
        all.extend(message);
    }
    all
}

/// The server's service, and how arguments are written, as DCE/RPC names them.
const SERVICE: [u8; 16] =
    [0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 1, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88];
const SYNTAX: [u8; 16] =
    [4, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 8, 0, 0x2b, 0x10, 0x48, 0x60];

/// A message of DCE/RPC.
pub(super) fn call(kind: u8, flags: u8, number: u32, body: &[u8]) -> Vec<u8> {
    let length = le(&[(2, 16 + body.len() as u64), (2, 0), (4, number.into())]);
    [&[5, 0, kind, flags, 0x10, 0, 0, 0][..], &length, body].concat()
}

/// Who binds so many contexts to the service; and what is said to each.
pub(super) fn bind(kind: u8, contexts: &[u16]) -> Vec<u8> {
    let mut body = le(&[(2, 4280), (2, 4280), (4, 0), (4, contexts.len() as u64)]);
    for context in contexts {
        body.extend(le(&[(2, (*context).into()), (2, 1)]));
        body.extend([&SERVICE[..], &[3, 0, 0, 0], &SYNTAX, &[2, 0, 0, 0]].concat());
    }
    call(kind, 3, 1, &body)
}

pub(super) fn bound(kind: u8, results: &[u16]) -> Vec<u8> {
    let mut body = le(&[(2, 4280), (2, 4280), (4, 1), (2, 4), (4, 0x31_33_35), (2, 0)]);
    body.extend(le(&[(4, results.len() as u64)]));
    for result in results {
        body.extend(le(&[(2, (*result).into()), (2, (*result).into())]));
        body.extend([&SYNTAX[..], &[2, 0, 0, 0]].concat());
    }
    call(kind, 3, 1, &body)
}
