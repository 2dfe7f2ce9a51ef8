//! WebSocket (RFC 6455): frames behind an upgrade of HTTP, their payloads without mask and
//! compression (RFC 7692), those of a fragmented message put together.

use flate2::{Decompress, FlushDecompress};

use super::names::{WEBSOCKET_OPCODE, name_of};
use super::unit::{Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::{HeapSize, INFLATE_SIZE, heap_size};
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// Bytes of a payload, and of a message, that are looked at, at most (Suricata's limit).
const PAYLOAD_LEN_MAX: usize = 0xffff;
/// Bytes that a message may become when it is inflated; one that becomes more ends inflating.
const INFLATED_LEN_MAX: usize = 1 << 20;
/// What a sender leaves away at the end of a compressed message (RFC 7692 s7.2.1).
const DEFLATE_END: [u8; 4] = [0, 0, 0xff, 0xff];

const FIN: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const FLAGS: u8 = 0xf0;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
/// Opcodes from here on are of control frames, which may stand within a message.
const CONTROL: u8 = 8;

/// A connection, once HTTP is over.
#[derive(Debug)]
pub(crate) struct Websocket {
    sides: [Side; 2],
    count: u64,
}
heap_size!(Websocket { sides });

#[derive(Debug, Default)]
struct Side {
    held: Held,
    has_spoken: bool,
    /// A message whose last frame has not come.
    message: Vec<u8>,
    is_compressed: bool,
    /// Its messages may come compressed, and can be inflated.
    deflates: bool,
    /// What inflates them, one after the other; made for the first (it is 43 KB).
    inflate: Option<Decompress>,
}

impl HeapSize for Side {
    fn heap_size(&self) -> usize {
        let inflate = self.inflate.as_ref().map_or(0, |_| INFLATE_SIZE);
        self.held.heap_size() + self.message.heap_size() + inflate
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    first: u8,
    mask: Option<[u8; 4]>,
    /// Bytes of the head, and of the payload.
    length: usize,
    payload: u64,
}

impl Head {
    /// Of the frame that begins there; `None`: more bytes are needed (RFC 6455 s5.2).
    fn read(bytes: &[u8]) -> Option<Self> {
        let [first, second, rest @ ..] = bytes else { return None };
        let (payload, rest) = match second & !MASKED {
            126 => {
                let (length, rest) = rest.split_first_chunk()?;
                (u16::from_be_bytes(*length).into(), rest)
            }
            127 => {
                let (length, rest) = rest.split_first_chunk()?;
                (u64::from_be_bytes(*length), rest)
            }
            short => (short.into(), rest),
        };
        let (mask, rest) = match second & MASKED != 0 {
            true => rest.split_first_chunk().map(|(mask, rest)| (Some(*mask), rest))?,
            false => (None, rest),
        };
        Some(Self { first: *first, mask, length: bytes.len() - rest.len(), payload })
    }

    fn opcode(self) -> u8 {
        self.first & !FLAGS
    }

    fn is_last(self) -> bool {
        self.first & FIN != 0
    }
}

impl Websocket {
    /// One whose sides compress messages, or do not.
    pub(crate) fn new(deflates: bool) -> Self {
        let side = || Side { deflates, ..Side::default() };
        Self { sides: [side(), side()], count: 0 }
    }

    /// Whether such bytes are a server's first behind its upgrade, and HTTP's all the same.
    pub(crate) fn is_not_upgraded(&self, side: usize, bytes: &[u8]) -> bool {
        side == 1 && !self.sides[1].has_spoken && bytes.starts_with(b"HTTP/1.")
    }

    fn frame(&mut self, side: usize, head: Head, payload: Vec<u8>, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Websocket, self.count);
        self.count += 1;
        unit.number(Field::WebsocketOpcode, head.opcode());
        unit.number(Field::WebsocketFlags, head.first & FLAGS);
        let mut object = Object::default().with("fin", head.is_last());
        if let Some(mask) = head.mask.map(u32::from_be_bytes) {
            unit.number(Field::WebsocketMask, mask);
            object.put("mask", mask);
        }
        object.put(
            "opcode",
            match name_of(WEBSOCKET_OPCODE, head.opcode()) {
                Some(name) => name.to_owned(),
                None => format!("unknown-{}", head.opcode()),
            },
        );
        if head.payload > PAYLOAD_LEN_MAX as u64 {
            unit.odd(AppEvent::WebsocketSkipped);
        }
        // As Suricata has it: a message with its last frame, of the others what is in them.
        let piece = if head.is_last() { Vec::new() } else { payload.clone() };
        let message = self.sides[side].message(head, payload, &mut unit).unwrap_or(piece);
        if !message.is_empty() {
            unit.text(Buffer::WebsocketPayload, &message);
        }
        unit.tells("websocket", object);
        said.message(unit, side);
    }
}

impl Parser for Websocket {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.sides[side].has_spoken |= !bytes.is_empty();
        self.sides[side].held.add(bytes);
        while let Some(head) = Head::read(self.sides[side].held.bytes()) {
            let length = head.payload.min(PAYLOAD_LEN_MAX as u64) as usize;
            let held = &mut self.sides[side].held;
            let Some(bytes) = held.bytes().get(head.length..head.length + length) else { break };
            let mut payload = bytes.to_vec();
            held.drop((head.length as u64).saturating_add(head.payload));
            if let Some(mask) = head.mask {
                payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
            }
            self.frame(side, head, payload, said);
        }
    }
}

impl Side {
    /// The message that a frame ends: its own, or the one that it is the last piece of.
    fn message(&mut self, head: Head, payload: Vec<u8>, unit: &mut Unit) -> Option<Vec<u8>> {
        let is_cut = head.payload > payload.len() as u64;
        if head.opcode() >= CONTROL {
            return head.is_last().then_some(payload);
        }
        if head.opcode() != CONTINUATION {
            self.message.clear();
            self.is_compressed = head.first & COMPRESSED != 0;
        }
        let room = PAYLOAD_LEN_MAX - self.message.len();
        if payload.len() > room {
            unit.odd(AppEvent::WebsocketTooLong);
        }
        // What follows on a message that is not whole cannot be inflated.
        if self.is_compressed && (is_cut || payload.len() > room) {
            self.inflate_no_more();
        }
        self.message.extend_from_slice(&payload[..payload.len().min(room)]);
        if !head.is_last() {
            return None;
        }
        let message = std::mem::take(&mut self.message);
        if !std::mem::take(&mut self.is_compressed) {
            return Some(message);
        }
        if !self.deflates {
            return Some(message);
        }
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflated(inflate, &message).or_else(|| {
            self.inflate_no_more();
            Some(message)
        })
    }

    fn inflate_no_more(&mut self) {
        (self.deflates, self.inflate) = (false, None);
    }
}

/// What a compressed message was, its beginning at least; `None`: it is none, or a bomb.
fn inflated(inflate: &mut Decompress, message: &[u8]) -> Option<Vec<u8>> {
    let mut inflated = Vec::new();
    let mut made = 0;
    let mut step = vec![0; 4096];
    for part in [message, &DEFLATE_END] {
        let mut rest = part;
        loop {
            let before = (inflate.total_in(), inflate.total_out());
            inflate.decompress(rest, &mut step, FlushDecompress::Sync).ok()?;
            let used = (inflate.total_in() - before.0) as usize;
            let count = (inflate.total_out() - before.1) as usize;
            rest = &rest[used..];
            made += count;
            if made > INFLATED_LEN_MAX {
                return None;
            }
            let room = PAYLOAD_LEN_MAX - inflated.len();
            inflated.extend_from_slice(&step[..count.min(room)]);
            if count < step.len() && (rest.is_empty() || used == 0) {
                break;
            }
        }
    }
    Some(inflated)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        match payload.len() {
            short @ 0..126 => frame.push(MASKED | short as u8),
            long => {
                frame.push(MASKED | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    fn payloads(websocket: &mut Websocket, frames: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut said = Said::default();
        frames.chunks(piece).for_each(|it| websocket.take(0, it, &mut said));
        let mut found = Vec::new();
        for unit in &said.units {
            unit.each(Buffer::WebsocketPayload, &mut |it| {
                found.push(it.to_vec());
                false
            });
        }
        found
    }

    #[test]
    fn fragments_are_one_message_and_a_ping_may_stand_between() {
        let frames =
            [frame(1, b"sword"), frame(0x89, b"ping"), frame(0, b"fi"), frame(0x80, b"sh")]
                .concat();
        for piece in 1..frames.len() {
            let found = payloads(&mut Websocket::new(false), &frames, piece);
            assert_eq!(found, [&b"sword"[..], b"ping", b"fi", b"swordfish"], "{piece}");
        }
    }

    #[test]
    fn messages_are_inflated_one_after_the_other() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let mut frames = Vec::new();
        for _ in 0..2 {
            encoder.write_all(b"swordfish swordfish").unwrap();
            encoder.flush().unwrap();
            let made = std::mem::take(encoder.get_mut());
            frames.extend(frame(0xc1, made.strip_suffix(&DEFLATE_END).unwrap()));
        }
        let found = payloads(&mut Websocket::new(true), &frames, 5);
        assert_eq!(found, [b"swordfish swordfish"; 2]);
        let raw = payloads(&mut Websocket::new(false), &frames, 5);
        assert_ne!(raw, found, "nobody has agreed on that");
    }

    #[test]
    fn long_payloads_are_cut_and_the_next_frame_is_found() {
        let frames = [frame(0x82, &[b'a'; 70_000]), frame(0x81, b"next")].concat();
        let found = payloads(&mut Websocket::new(false), &frames, 1400);
        assert_eq!((found[0].len(), found[1].as_slice()), (PAYLOAD_LEN_MAX, &b"next"[..]));
    }

    #[test]
    fn a_bomb_ends_inflating() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; 4 << 20]).unwrap();
        encoder.flush().unwrap();
        let bomb = std::mem::take(encoder.get_mut());
        assert!(bomb.len() < PAYLOAD_LEN_MAX);
        assert_eq!(inflated(&mut Decompress::new(false), &bomb), None);
    }
}
