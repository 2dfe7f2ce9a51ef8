//! DNP3 (IEEE 1815): what a master asks of an outstation, and what it answers.

mod points;

use super::names::{DNP3_INDICATIONS, Names};
use super::unit::{Record, Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, Value};
use points::Head as Points;

const START: [u8; 2] = [0x05, 0x64];
const HEAD_LEN: usize = 10;
/// Bytes of a block behind the head, its checksum not counted.
const BLOCK_LEN: usize = 16;
/// Bytes of an application's message, and objects of one, at most.
const MESSAGE_LEN_MAX: usize = 16 * 1024;
const OBJECTS_MAX: usize = 256;
/// Messages in one piece, and points of an object, that are not odd, at most.
const AT_ONCE_MAX: u32 = 32;
const POINTS_MAX: u32 = 1 << 16;
/// Points of a message that are told of, at most.
const TOLD_MAX: usize = 1024;
/// Functions: that an answer came, what a master reads, and answers.
const CONFIRM: u8 = 0;
const READ: u8 = 1;
const RESPONSE: u8 = 129;
const UNSOLICITED: u8 = 130;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Dnp3 {
    held: [Held; 2],
    /// Pieces of a message so far, by side.
    pieces: [Vec<u8>; 2],
    count: u64,
    /// Messages that came in one piece.
    at_once: u32,
}
heap_size!(Dnp3 { held, pieces });

/// What a frame's head says.
#[derive(Clone, Copy)]
struct Head {
    control: u8,
    destination: u16,
    source: u16,
}

impl Parser for Dnp3 {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.held[side].add(bytes);
        self.at_once = 0;
        while let Some(head) = self.held[side].bytes().first_chunk::<HEAD_LEN>().copied() {
            if head[..2] != START {
                // Up to where a frame may begin.
                let next = memchr::memmem::find(&self.held[side].bytes()[1..], &START);
                let length = self.held[side].bytes().len();
                self.held[side].drop(next.map_or(length - 1, |it| it + 1) as u64);
                continue;
            }
            let Some(length) = usize::from(head[2]).checked_sub(5) else {
                self.odd(AppEvent::Dnp3Length, said);
                self.held[side].drop(2);
                continue;
            };
            let whole = HEAD_LEN + length + 2 * length.div_ceil(BLOCK_LEN);
            let Some(frame) = self.held[side].take(whole) else { return };
            self.frame(side, &frame, said);
        }
    }
}

impl Dnp3 {
    fn odd(&mut self, event: AppEvent, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Dnp3, self.count);
        unit.odd(event);
        said.units.push(unit);
    }

    fn frame(&mut self, side: usize, frame: &[u8], said: &mut Said) {
        let (head, blocks) = frame.split_at(HEAD_LEN);
        if !is_intact(head) {
            return self.odd(AppEvent::Dnp3LinkChecksum, said);
        }
        let mut data = Vec::new();
        for block in blocks.chunks(BLOCK_LEN + 2) {
            if !is_intact(block) {
                return self.odd(AppEvent::Dnp3TransportChecksum, said);
            }
            data.extend_from_slice(&block[..block.len() - 2]);
        }
        let Some((transport, piece)) = data.split_first() else { return };
        let pieces = &mut self.pieces[side];
        if transport & 0x40 != 0 {
            pieces.clear();
        }
        if pieces.len() + piece.len() > MESSAGE_LEN_MAX {
            pieces.clear();
            return self.odd(AppEvent::Dnp3TooLong, said);
        }
        pieces.extend_from_slice(piece);
        if transport & 0x80 != 0 {
            let message = std::mem::take(pieces);
            let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
            let head = Head { control: head[3], destination: word(4), source: word(6) };
            self.message(head, &message, said);
        }
    }

    fn message(&mut self, head: Head, message: &[u8], said: &mut Said) {
        let [control, function, rest @ ..] = message else { return };
        // It says nothing of its own.
        if *function == CONFIRM {
            return;
        }
        let mut unit = Unit::new(Protocol::Dnp3, self.count);
        self.count += 1;
        self.at_once += 1;
        if self.at_once == AT_ONCE_MAX + 1 {
            unit.odd(AppEvent::Dnp3Flooded);
        }
        unit.number(Field::Dnp3Function, *function);
        unit.text(Buffer::Dnp3Data, message);
        let is_answer = matches!(*function, RESPONSE | UNSOLICITED);
        let (indications, rest) = match rest {
            [first, second, rest @ ..] if is_answer => {
                (Some(u16::from_be_bytes([*first, *second])), rest)
            }
            rest => (None, rest),
        };
        let kind = match *function {
            UNSOLICITED => "unsolicited_response",
            RESPONSE => "response",
            _ => "request",
        };
        let mut application = Object::default()
            .with("control", application_control(*control))
            .with("function_code", *function);
        let most = if self.at_once > AT_ONCE_MAX { 0 } else { TOLD_MAX };
        let (objects, is_complete) = objects(rest, *function, most, &mut unit);
        if !objects.is_empty() {
            application.put("objects", Value::List(objects));
        }
        application.put("complete", is_complete);
        let mut object = Object::default()
            .with("type", kind)
            .with("control", link_control(head.control))
            .with("src", head.source)
            .with("dst", head.destination)
            .with("application", application);
        if let Some(bits) = indications {
            unit.number(Field::Dnp3Indications, bits);
            let names = spelt(DNP3_INDICATIONS, bits);
            let mut told = Object::default();
            if !names.is_empty() {
                told.put("indicators", names);
            }
            object.put("iin", told);
        }
        said.records.push(Record::new("dnp3", unit.number, object.clone()));
        // An alert says of which side it speaks.
        let side = if kind == "request" { "request" } else { "response" };
        unit.tells("dnp3", Object::default().with(side, object));
        said.units.push(unit);
    }
}

/// Names of the bits that are set, the highest first.
fn spelt(names: Names, bits: u16) -> Vec<&'static str> {
    let mut set: Vec<_> = names.iter().filter(|it| i64::from(bits) & it.1 != 0).collect();
    set.sort_by_key(|it| std::cmp::Reverse(it.1));
    set.into_iter().map(|it| it.0).collect()
}

fn link_control(control: u8) -> Object {
    Object::default()
        .with("dir", control & 0x80 != 0)
        .with("pri", control & 0x40 != 0)
        .with("fcb", control & 0x20 != 0)
        .with("fcv", control & 0x10 != 0)
        .with("function_code", control & 0x0f)
}

fn application_control(control: u8) -> Object {
    Object::default()
        .with("fir", control & 0x80 != 0)
        .with("fin", control & 0x40 != 0)
        .with("con", control & 0x20 != 0)
        .with("uns", control & 0x10 != 0)
        .with("sequence", control & 0x0f)
}

/// Heads of objects, as far as the lengths of what is between them are known, and `most` of their
/// points; whether to the end.
fn objects(mut rest: &[u8], function: u8, most: usize, unit: &mut Unit) -> (Vec<Value>, bool) {
    let (mut all, mut told) = (Vec::new(), 0);
    while let [group, variation, qualifier, behind @ ..] = rest {
        if all.len() == OBJECTS_MAX {
            unit.odd(AppEvent::Dnp3Objects);
            return (all, false);
        }
        let (prefix, range) = (qualifier >> 4 & 7, qualifier & 15);
        let Some((start, stop, count, behind)) = ranged(range, behind) else { return (all, false) };
        unit.number(Field::Dnp3Object, i64::from(*group) << 8 | i64::from(*variation));
        let mut object = Object::default()
            .with("group", *group)
            .with("variation", *variation)
            .with("qualifier", *qualifier)
            .with("prefix_code", prefix)
            .with("range_code", range)
            .with("start", start)
            .with("stop", stop)
            .with("count", count);
        let points = Points { group: *group, variation: *variation, prefix, start, count };
        // Who reads names objects alone.
        let length = if function == READ { Some(0) } else { points.content_len() };
        let is_many = count > POINTS_MAX;
        let content = length.filter(|_| !is_many).and_then(|it| behind.split_at_checked(it));
        if let Some((content, _)) = content.filter(|it| !it.0.is_empty()) {
            let points = points.points(content, most - told);
            told += points.len();
            object.put_some("points", Some(points).filter(|it| !it.is_empty()));
        }
        all.push(object.into());
        match content {
            Some((_, behind)) => rest = behind,
            None if is_many => unit.odd(AppEvent::Dnp3Points),
            None if length.is_none() => unit.odd(AppEvent::Dnp3Object),
            None => {}
        }
        if content.is_none() {
            return (all, false);
        }
    }
    (all, rest.is_empty())
}

/// First, last and number of points, and what is behind.
fn ranged(range: u8, bytes: &[u8]) -> Option<(u32, u32, u32, &[u8])> {
    let number = |at: usize, length: usize| {
        let digits = bytes.get(at..at + length)?;
        Some(digits.iter().rev().fold(0, |all, it| all << 8 | u32::from(*it)))
    };
    let width = match range {
        0 | 3 | 7 => 1,
        1 | 4 | 8 => 2,
        2 | 5 | 9 => 4,
        6 => return Some((0, 0, 0, bytes)),
        11 => 1,
        _ => return None,
    };
    if range <= 5 {
        let (start, stop) = (number(0, width)?, number(width, width)?);
        let count = stop.checked_sub(start)?.saturating_add(1);
        return Some((start, stop, count, &bytes[2 * width..]));
    }
    let count = number(0, width)?;
    Some((0, 0, count, &bytes[width..]))
}

/// Whether the last two bytes are the checksum of those before (IEEE 1815 s9.2.4.4).
fn is_intact(bytes: &[u8]) -> bool {
    let Some((data, [low, high])) = bytes.split_last_chunk::<2>().map(|(data, it)| (data, *it))
    else {
        return false;
    };
    let mut checksum = 0_u16;
    for byte in data {
        checksum ^= u16::from(*byte);
        for _ in 0..8 {
            let is_odd = checksum & 1 == 1;
            checksum = checksum >> 1 ^ if is_odd { 0xa6bc } else { 0 };
        }
    }
    !checksum == u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request to read class 1 to 3, as the standard's examples have it.
    const READ: &[u8] = b"\x05\x64\x11\xc4\x02\x00\x01\x00\x84\x23\xc0\xc0\x01\x3c\x02\x06\x3c\x03\
        \x06\x3c\x04\x06\x94\x11";

    /// Puts the checksums of a frame of one block.
    fn seal(frame: &mut [u8]) {
        let end = frame.len() - 2;
        for (from, to) in [(0, 8), (10, end)] {
            let mut sum = 0_u16;
            for byte in &frame[from..to] {
                sum ^= u16::from(*byte);
                for _ in 0..8 {
                    sum = if sum & 1 == 1 { sum >> 1 ^ 0xa6bc } else { sum >> 1 };
                }
            }
            frame[to..to + 2].copy_from_slice(&(!sum).to_le_bytes());
        }
    }

    #[test]
    fn a_confirmation_is_not_told() {
        let (mut dnp3, mut said) = (Dnp3::default(), Said::default());
        let mut frame = b"\x05\x64\x08\xc4\x0a\0\x01\0..\xc1\xc0\0..".to_vec();
        seal(&mut frame);
        dnp3.take(0, &frame, &mut said);
        assert!(said.units.is_empty() && said.records.is_empty());
        frame[12] = 13;
        seal(&mut frame);
        dnp3.take(0, &frame, &mut said);
        assert_eq!((said.units[0].number, said.records.len()), (0, 1), "a restart is");
    }

    #[test]
    fn a_request_tells_its_function_and_objects() {
        let (mut dnp3, mut said) = (Dnp3::default(), Said::default());
        let mut frame = READ.to_vec();
        seal(&mut frame);
        frame.chunks(5).for_each(|it| dnp3.take(0, it, &mut said));
        let unit = &said.units[0];
        assert_eq!(unit.numbers(Field::Dnp3Function).next(), Some(1));
        assert_eq!(unit.numbers(Field::Dnp3Object).collect::<Vec<_>>(), [0x3c02, 0x3c03, 0x3c04]);
        frame[12] ^= 1;
        dnp3.take(0, &frame, &mut said);
        assert!(said.units[1].events.has(AppEvent::Dnp3TransportChecksum));
        frame[4] ^= 1;
        dnp3.take(0, &frame, &mut said);
        assert!(said.units[2].events.has(AppEvent::Dnp3LinkChecksum));
    }
}
