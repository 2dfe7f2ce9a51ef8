//! Frames: the units of a protocol as they lie in what a side says, for rules that ask for their
//! bytes and for EVE (docs/adr/0252).
//!
//! ```text
//!  a side's bytes -> lengths: where a unit ends -> parts: what lies where in it -> frames
//! ```
//!
//! Nothing is found here unless somebody asks for frames.

mod kinds;
mod lengths;
mod parts;

use std::collections::BTreeSet;

use crate::buffers::http::MessageEnd;
use crate::heap::heap_size;
use crate::rule::{Protocol, Rule};
use crate::value::{Object, base64, printable};
pub(crate) use kinds::FrameKind;
use lengths::Length;

/// Bytes of a unit that are looked at, at most; the rest is passed over.
const UNIT_LEN_MAX: usize = 64 * 1024;
/// Frames that wait for their side's next packet, at most.
const OWED_MAX: usize = 64;
/// Bytes of a frame that are told of, at most.
const TOLD_LEN_MAX: usize = 4096;

/// A unit, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) side: usize,
    /// Which of its side's units it is, or is a part of.
    pub(crate) unit: u64,
    /// It comes with a packet that does not bring its message.
    pub(crate) is_late: bool,
    /// Its message, by the place among those of its packet.
    pub(crate) message: Option<usize>,
    /// The stream of HTTP/2 that it names.
    pub(crate) stream: Option<u32>,
    /// Its number among those of its side that are asked for; none until they are counted.
    number: u64,
    /// The transaction that it belongs to, as EVE's `frame` numbers it.
    pub(crate) transaction: Option<u64>,
    /// Where it begins in its side's stream; `None`: in a datagram.
    place: Option<u64>,
    /// How long it is, looked at or not.
    length: u64,
    pub(crate) bytes: Vec<u8>,
}
heap_size!(Frame { bytes });

impl Frame {
    fn new(kind: FrameKind, side: usize, length: u64, bytes: Vec<u8>) -> Self {
        Self {
            kind,
            side,
            length,
            bytes,
            unit: 0,
            is_late: false,
            message: None,
            stream: None,
            number: 0,
            transaction: None,
            place: None,
        }
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.place.is_none()
    }

    /// What is told of it, as EVE's `frame`.
    pub(crate) fn object(&self) -> Object {
        let told = &self.bytes[..self.bytes.len().min(TOLD_LEN_MAX)];
        let mut object = Object::default()
            .with("type", self.kind.name())
            .with("id", self.number)
            .with("direction", ["toserver", "toclient"][self.side]);
        object.put_some("stream_offset", self.place);
        let mut object = object
            .with("length", self.length)
            .with("complete", self.bytes.len() as u64 == self.length)
            .with("payload", base64(told))
            .with("payload_printable", printable(told));
        object.put_some("tx_id", self.transaction);
        object
    }
}

/// Frames that rules ask for: others are not counted where nobody is told of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskedFrames {
    kinds: BTreeSet<FrameKind>,
    /// What speaks in streams that are asked for as a whole: each is its side's first frame.
    streams: BTreeSet<Protocol>,
}

impl AskedFrames {
    pub(crate) fn add(&mut self, rule: &Rule) {
        self.kinds.extend(rule.frame());
        self.streams.extend(rule.stream_of);
    }
}

/// How many frames each side of a flow had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameCounts {
    protocol: Option<Protocol>,
    sides: [u64; 2],
}

impl FrameCounts {
    /// Gives frames their numbers. Those that nobody asks for go; `None`: all are asked for.
    pub(crate) fn count(&mut self, frames: &mut Vec<Frame>, asked: Option<&AskedFrames>) {
        frames.retain(|it| asked.is_none_or(|asked| asked.kinds.contains(&it.kind)));
        for frame in frames {
            let protocol = frame.kind.protocol();
            if self.protocol.replace(protocol) != Some(protocol) {
                let is_asked = asked.is_none_or(|it| it.streams.contains(&protocol));
                self.sides = [u64::from(is_asked && frame.place.is_some()); 2];
            }
            self.sides[frame.side] += 1;
            frame.number = self.sides[frame.side];
        }
    }
}

/// Finds the frames of a flow.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    sides: [Side; 2],
    state: lengths::State,
}
heap_size!(Framer { sides });

/// How far a side has come.
#[derive(Debug, Default)]
struct Side {
    /// A unit that has begun.
    held: Vec<u8>,
    /// Where it begins in the stream.
    place: u64,
    /// Bytes of it beyond those that are held.
    beyond: u64,
    /// Bytes that are passed over before the next one.
    skipped: u64,
    /// Nobody knows where the next one begins.
    is_lost: bool,
    /// Units that were told of.
    units: u64,
    /// Frames that were found with a packet of the other side.
    owed: Vec<Frame>,
}
heap_size!(Side { held, owed });

impl Framer {
    /// Finds frames in a side's next bytes. `ends` has the places in them where messages of HTTP/1
    /// ended.
    pub(crate) fn take(
        &mut self,
        protocol: Protocol,
        side: usize,
        (bytes, ends): (&[u8], &[MessageEnd]),
        found: &mut Vec<Frame>,
    ) {
        let Self { sides, state } = self;
        let own = &mut sides[side];
        found.append(&mut own.owed);
        if own.is_lost {
            return;
        }
        if protocol == Protocol::Http {
            return own.messages(side, (bytes, ends), found);
        }
        if own.beyond > 0 {
            return own.lose();
        }
        let skipped = bytes.len().min(usize::try_from(own.skipped).unwrap_or(usize::MAX));
        own.pass(skipped);
        own.held.extend_from_slice(&bytes[skipped..]);
        while !own.held.is_empty() {
            match state.length(protocol, side, &own.held) {
                Length::Open if own.held.len() <= UNIT_LEN_MAX => break,
                Length::Open | Length::Unknown => return own.lose(),
                Length::Passed(length) => own.drop(length),
                Length::Is(length) => {
                    let known = own.held.len().min(UNIT_LEN_MAX);
                    if (known as u64) < length && known < UNIT_LEN_MAX {
                        break;
                    }
                    own.tell(protocol, side, length, found);
                    own.drop(length);
                }
            }
        }
    }

    /// The same for what the other side's packet brought to light: they come with this side's next.
    pub(crate) fn take_late(
        &mut self,
        protocol: Protocol,
        side: usize,
        bytes: (&[u8], &[MessageEnd]),
    ) {
        let mut found = Vec::new();
        self.take(protocol, side, bytes, &mut found);
        found.truncate(OWED_MAX);
        found.iter_mut().for_each(|it| it.is_late = true);
        self.sides[side].owed = found;
    }

    /// A side says no more.
    /// What it was saying in HTTP/1 is part of that transaction.
    pub(crate) fn close(&mut self, side: usize, number: u64, found: &mut Vec<Frame>) {
        self.sides[side].end_message(side, number, found);
        self.sides[side].lose();
    }

    /// Bytes are missing for good.
    pub(crate) fn lose(&mut self) {
        self.sides.iter_mut().for_each(Side::lose);
    }
}

/// The frames of a datagram.
pub(crate) fn of_datagram(protocol: Protocol, side: usize, bytes: &[u8], found: &mut Vec<Frame>) {
    let known = bytes.len().min(UNIT_LEN_MAX);
    parts::of_datagram(protocol, side, &bytes[..known], &mut |name, part| {
        let Some(kind) = FrameKind::of(protocol, name) else { return };
        let Some(bytes) = bytes.get(part.clone()) else { return };
        let length = part.len() as u64;
        found.push(Frame::new(kind, side, length, bytes.to_vec()));
    });
}

impl Side {
    /// Tells of the unit that is held, which is so long, and of its parts.
    fn tell(&mut self, protocol: Protocol, side: usize, length: u64, found: &mut Vec<Frame>) {
        let Self { held, place, units, .. } = self;
        let known = held.len().min(UNIT_LEN_MAX).min(usize::try_from(length).unwrap_or(usize::MAX));
        let unit = &held[..known];
        let is_cut = (known as u64) < length;
        let is_of_streams = matches!(protocol, Protocol::Http2 | Protocol::Doh2);
        let stream = is_of_streams.then(|| lengths::stream_of(unit)).flatten();
        parts::of_unit(protocol, side, unit, &mut |name, part| {
            let Some(kind) = FrameKind::of(protocol, name) else { return };
            let Some(bytes) = unit.get(part.clone()) else { return };
            // What is as long as what is known goes on to the end.
            let own = if is_cut && part.end == known { length - part.start as u64 } else { 0 };
            found.push(Frame {
                unit: *units,
                stream,
                place: Some(*place + part.start as u64),
                ..Frame::new(kind, side, own.max(part.len() as u64), bytes.to_vec())
            });
        });
        self.units += 1;
    }

    /// Messages of HTTP/1, whose lengths their parser tells.
    fn messages(
        &mut self,
        side: usize,
        (bytes, ends): (&[u8], &[MessageEnd]),
        found: &mut Vec<Frame>,
    ) {
        let mut from = 0;
        for MessageEnd { at, number } in ends {
            self.hold(bytes.get(from..*at).unwrap_or_default());
            self.end_message(side, *number, found);
            from = *at;
        }
        self.hold(bytes.get(from..).unwrap_or_default());
    }

    fn hold(&mut self, bytes: &[u8]) {
        let room = UNIT_LEN_MAX.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..room]);
        self.beyond += (bytes.len() - room) as u64;
    }

    /// The message that is held has ended, which is part of that transaction.
    fn end_message(&mut self, side: usize, number: u64, found: &mut Vec<Frame>) {
        let length = self.held.len() as u64 + std::mem::take(&mut self.beyond);
        let before = found.len();
        if length > 0 {
            self.tell(Protocol::Http, side, length, found);
        }
        found[before..].iter_mut().for_each(|it| it.transaction = Some(number));
        self.held.clear();
        self.place += length;
    }

    fn drop(&mut self, length: u64) {
        let held = self.held.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        self.held.drain(..held);
        self.place += held as u64;
        self.skipped = length - held as u64;
    }

    fn pass(&mut self, count: usize) {
        self.place += count as u64;
        self.skipped -= count as u64;
    }

    fn lose(&mut self) {
        (self.is_lost, self.held) = (true, Vec::new());
    }
}
