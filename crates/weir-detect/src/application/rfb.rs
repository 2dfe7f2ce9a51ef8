//! RFB (RFC 6143), which VNC speaks: a handshake, and what the server shows.

use super::unit::{Record, Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, hex};

/// Bytes of a desktop's name, and of a reason, that are kept, at most.
const TEXT_LEN_MAX: usize = 64 * 1024;
/// Bytes of a text that are not odd, at most (Suricata's limit).
const TEXT_LEN_USUAL: usize = 4096;
/// Kinds of authentication.
const NONE: u8 = 1;
const VNC: u8 = 2;

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    ServerVersion,
    ClientVersion,
    /// The server's list of what it accepts, or its choice.
    Securities,
    Choice,
    Challenge,
    Response,
    Outcome,
    Reason,
    ClientInit,
    ServerInit,
    /// Pictures, or what nobody knows.
    Over,
}

impl Next {
    /// The side whose message it is.
    fn speaker(self) -> Option<usize> {
        match self {
            Self::ClientVersion | Self::Choice | Self::Response | Self::ClientInit => Some(0),
            Self::Over => None,
            _ => Some(1),
        }
    }
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Rfb {
    held: [Held; 2],
    next: Next,
    server_version: Option<[Vec<u8>; 2]>,
    client_version: Option<[Vec<u8>; 2]>,
    security: Option<u32>,
    challenge: Option<Vec<u8>>,
    response: Option<Vec<u8>>,
    result: Option<u32>,
    reason: Option<Vec<u8>>,
    is_shared: Option<bool>,
    display: Option<Display>,
    /// A text was longer than is usual.
    is_long: bool,
    is_told: bool,
    /// What came last was part of the handshake.
    is_beginning: bool,
}
heap_size!(Rfb { held, challenge, response, reason });

#[derive(Debug)]
struct Display {
    width: u16,
    height: u16,
    format: [u8; 16],
    name: Vec<u8>,
}

impl Parser for Rfb {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.is_beginning = self.next != Next::Over;
        if !self.is_beginning {
            return;
        }
        self.held[side].add(bytes);
        let mut has_more = false;
        let mut events = Vec::new();
        while let Some(event) = self.step(&mut events) {
            has_more |= event;
        }
        said.has_failed |= events.contains(&AppEvent::RfbMalformed);
        // Who speaks before it is his turn, once the server has begun.
        let is_early = self.next.speaker().is_some_and(|it| it != side);
        if is_early && self.has_begun() && !self.held[side].bytes().is_empty() {
            events.push(AppEvent::RfbConfused);
            self.next = Next::Over;
        }
        if has_more || !events.is_empty() {
            let mut unit = self.unit();
            events.iter().for_each(|it| unit.odd(*it));
            said.units.push(unit);
        }
        if self.next == Next::Over {
            self.held.iter_mut().for_each(Held::clear);
            self.end(said);
        }
        if self.held.iter().any(Held::is_too_long) {
            said.has_failed = true;
            self.next = Next::Over;
        }
    }

    fn asks_for_look(&self) -> bool {
        self.is_beginning
    }

    fn end(&mut self, said: &mut Said) {
        if self.has_begun() && !std::mem::replace(&mut self.is_told, true) {
            said.records.push(Record::new("rfb", 0, self.object()).from(1));
        }
    }
}

impl Rfb {
    /// A client alone is not told of.
    fn has_begun(&self) -> bool {
        self.server_version.is_some()
    }

    /// Takes the next message, if it is whole; whether rules have something to look at.
    fn step(&mut self, events: &mut Vec<AppEvent>) -> Option<bool> {
        let minor = self.client_version.as_ref().map(|it| it[1].clone()).unwrap_or_default();
        let [client, server] = &mut self.held;
        let (next, is_new) = match self.next {
            Next::ServerVersion => {
                self.server_version = Some(version(&server.take(12)?, events)?);
                (Next::ClientVersion, false)
            }
            Next::ClientVersion => {
                self.client_version = Some(version(&client.take(12)?, events)?);
                (Next::Securities, false)
            }
            Next::Securities if minor == b"003" => {
                let chosen = long(&server.take(4)?, 0)?;
                self.security = Some(chosen);
                (after(u8::try_from(chosen).unwrap_or(u8::MAX), true, events), true)
            }
            Next::Securities => {
                let count = *server.bytes().first()?;
                server.take(1 + usize::from(count))?;
                (if count == 0 { Next::Reason } else { Next::Choice }, false)
            }
            Next::Choice => {
                let chosen = client.take(1)?[0];
                self.security = Some(chosen.into());
                (after(chosen, minor == b"007", events), true)
            }
            Next::Challenge => {
                self.challenge = Some(server.take(16)?);
                (Next::Response, false)
            }
            Next::Response => {
                self.response = Some(client.take(16)?);
                (Next::Outcome, false)
            }
            Next::Outcome => {
                let result = long(&server.take(4)?, 0)?;
                self.result = Some(result);
                let next = match result {
                    0 => Next::ClientInit,
                    1 if minor == b"008" => Next::Reason,
                    1 => Next::Over,
                    _ => {
                        events.push(AppEvent::RfbResult);
                        Next::Over
                    }
                };
                (next, true)
            }
            Next::Reason => {
                let length = long(server.bytes(), 0)?;
                note_length(length, &mut self.is_long, events);
                let length = (length as usize).min(TEXT_LEN_MAX);
                self.reason = Some(server.take(4 + length)?.split_off(4));
                (Next::Over, true)
            }
            Next::ClientInit => {
                self.is_shared = Some(client.take(1)?[0] != 0);
                (Next::ServerInit, false)
            }
            Next::ServerInit => {
                note_length(long(server.bytes(), 20)?, &mut self.is_long, events);
                self.display = Some(Display::of(server)?);
                (Next::Over, true)
            }
            Next::Over => return None,
        };
        self.next = next;
        Some(is_new)
    }

    fn unit(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Rfb, 0);
        unit.some_text(Buffer::RfbName, self.display.as_ref().map(|it| it.name.as_slice()));
        if let Some(security) = self.security {
            unit.number(Field::RfbSecurity, security);
        }
        if let Some(result) = self.result {
            unit.number(Field::RfbResult, result);
        }
        unit.tells("rfb", self.object());
        unit
    }

    fn object(&self) -> Object {
        let mut object = Object::default();
        let version = |[major, minor]: &[Vec<u8>; 2]| {
            Object::default().with("major", major).with("minor", minor)
        };
        object.put_some("server_protocol_version", self.server_version.as_ref().map(version));
        object.put_some("client_protocol_version", self.client_version.as_ref().map(version));
        let mut authentication = Object::default();
        authentication.put_some("security_type", self.security);
        if self.security == Some(VNC.into()) {
            let mut vnc = Object::default();
            vnc.put_some("challenge", self.challenge.as_ref().map(|it| hex(it, "")));
            vnc.put_some("response", self.response.as_ref().map(|it| hex(it, "")));
            authentication.put("vnc", vnc);
        }
        // Of others it is not told, as with Suricata.
        if self.result == Some(0) {
            authentication.put("security_result", "OK");
        }
        object.put("authentication", authentication);
        object.put_some("server_security_failure_reason", self.reason.as_ref());
        object.put_some("screen_shared", self.is_shared);
        object.put_some("framebuffer", self.display.as_ref().map(Display::object));
        object
    }
}

impl Display {
    /// What a server says of it, once that is whole.
    fn of(server: &mut Held) -> Option<Self> {
        let head: [u8; 24] = *server.bytes().first_chunk()?;
        let length = u32::from_be_bytes([head[20], head[21], head[22], head[23]]);
        let name = server.take(24 + (length as usize).min(TEXT_LEN_MAX))?.split_off(24);
        let mut format = [0; 16];
        format.copy_from_slice(&head[4..20]);
        let [width, height] = [0, 2].map(|at| u16::from_be_bytes([head[at], head[at + 1]]));
        Some(Self { width, height, format, name })
    }

    fn object(&self) -> Object {
        let [bits, depth, big, colour, a, b, c, d, e, f, red, green, blue, ..] = self.format;
        let format = Object::default()
            .with("bits_per_pixel", bits)
            .with("depth", depth)
            .with("big_endian", big != 0)
            .with("true_color", colour != 0)
            .with("red_max", u16::from_be_bytes([a, b]))
            .with("green_max", u16::from_be_bytes([c, d]))
            .with("blue_max", u16::from_be_bytes([e, f]))
            .with("red_shift", red)
            .with("green_shift", green)
            .with("blue_shift", blue);
        Object::default()
            .with("width", self.width)
            .with("height", self.height)
            .with("name", &self.name)
            .with("pixel_format", format)
    }
}

/// The number of four bytes there.
fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A text has that length: once it is odd that one is long.
fn note_length(length: u32, is_long: &mut bool, events: &mut Vec<AppEvent>) {
    if length as usize > TEXT_LEN_USUAL && !std::mem::replace(is_long, true) {
        events.push(AppEvent::RfbTooLong);
    }
}

/// What follows a choice; `is_quiet`: without authentication nothing is said of its outcome.
fn after(chosen: u8, is_quiet: bool, events: &mut Vec<AppEvent>) -> Next {
    match chosen {
        NONE if is_quiet => Next::ClientInit,
        NONE => Next::Outcome,
        VNC => Next::Challenge,
        0 => Next::Reason,
        _ => {
            events.push(AppEvent::RfbSecurity);
            Next::Over
        }
    }
}

/// `RFB 003.008`, and a line's end.
fn version(line: &[u8], events: &mut Vec<AppEvent>) -> Option<[Vec<u8>; 2]> {
    match line {
        [b'R', b'F', b'B', b' ', major @ .., _] if major.len() == 7 && major[3] == b'.' => {
            Some([major[..3].to_vec(), major[4..].to_vec()])
        }
        _ => {
            events.push(AppEvent::RfbMalformed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn a_handshake_tells_what_is_shown_to_whom() {
        let (mut rfb, mut said) = (Rfb::default(), Said::default());
        let display = [&[0, 8, 0, 4], [32; 16].as_slice(), &[0, 0, 0, 4], b"desk"].concat();
        let lines: [(usize, &[u8]); 9] = [
            (1, b"RFB 003.008\n"),
            (0, b"RFB 003.008\n"),
            (1, b"\x02\x01\x02"),
            (0, b"\x02"),
            (1, &[7; 16]),
            (0, &[8; 16]),
            (1, b"\0\0\0\0"),
            (0, b"\x01"),
            (1, &display),
        ];
        lines.iter().for_each(|(side, bytes)| rfb.take(*side, bytes, &mut said));
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("screen_shared"), Some(&true.into()));
        assert!(said.units.iter().any(|it| it.each(Buffer::RfbName, &mut |it| it == b"desk")));
        assert!(said.units.iter().any(|it| it.numbers(Field::RfbResult).any(|it| it == 0)));
        rfb.take(1, b"pictures", &mut said);
        assert_eq!(said.records.len(), 1);
    }

    /// What is told of a connection of that version when it ends, and what is odd about it.
    fn told(version: &[u8; 12], lines: &[(usize, &[u8])]) -> (Object, Vec<AppEvent>) {
        let (mut rfb, mut said) = (Rfb::default(), Said::default());
        let versions: [(usize, &[u8]); 2] = [(1, version), (0, version)];
        versions.iter().chain(lines).for_each(|(side, bytes)| rfb.take(*side, bytes, &mut said));
        rfb.end(&mut said);
        let Some(Value::Object(object)) = said.records[0].objects[0].1.value("authentication")
        else {
            panic!("{said:?}")
        };
        let events = said.units.iter().flat_map(|it| it.events.as_slice().to_vec());
        (object.clone(), events.collect())
    }

    #[test]
    fn authentication_is_told_even_if_it_has_not_begun() {
        let (refused, _) = told(b"RFB 003.008\n", &[(1, b"\0\0\0\0\x04nope")]);
        assert!(refused.is_empty());
        let (chosen, _) = told(b"RFB 003.008\n", &[(1, b"\x02\x01\x02"), (0, b"\x02")]);
        assert_eq!(chosen.value("vnc"), Some(&Object::default().into()));
    }

    #[test]
    fn of_outcomes_success_alone_is_told_and_others_than_failure_are_odd() {
        let outcome = |bytes: &[u8]| {
            let lines: [(usize, &[u8]); 5] =
                [(1, b"\x02\x01\x02"), (0, b"\x02"), (1, &[7; 16]), (0, &[8; 16]), (1, bytes)];
            let (object, events) = told(b"RFB 003.007\n", &lines);
            (object.value("security_result").cloned(), events)
        };
        assert_eq!(outcome(&[0; 4]), (Some("OK".into()), vec![]));
        assert_eq!(outcome(&[0, 0, 0, 1]), (None, vec![]));
        assert_eq!(outcome(&[0, 0, 0, 2]), (None, vec![AppEvent::RfbResult]));
    }

    #[test]
    fn a_client_alone_is_not_told_of() {
        let (mut rfb, mut said) = (Rfb::default(), Said::default());
        rfb.take(0, b"RFB 003.008\n", &mut said);
        rfb.take(0, b"\x02", &mut said);
        rfb.end(&mut said);
        assert!(said.records.is_empty() && said.units.is_empty());
    }
}
