//! SDP (RFC 8866): what SIP's bodies say of a session.

use super::unit::Unit;
use crate::rule::Buffer;
use crate::value::{Object, Value};

/// Lines of a description, at most.
const LINES_MAX: usize = 1024;

/// A session, or one of its media.
#[derive(Default)]
struct Part {
    object: Object,
    times: Vec<Object>,
    bandwidths: Vec<Value>,
    attributes: Vec<Value>,
}

impl Part {
    fn end(mut self) -> Object {
        if !self.times.is_empty() {
            self.object.put("time_descriptions", self.times);
        }
        if !self.bandwidths.is_empty() {
            self.object.put("bandwidths", Value::List(self.bandwidths));
        }
        if !self.attributes.is_empty() {
            self.object.put("attributes", Value::List(self.attributes));
        }
        self.object
    }
}

/// Whether it is one that Suricata cannot read: its name is more than letters, digits and blanks,
/// or a line is missing that each has.
pub(super) fn is_foreign(body: &[u8]) -> bool {
    let lines = || body.split(|it| *it == b'\n').map(<[u8]>::trim_ascii_end);
    let is_plain = |it: &u8| it.is_ascii_alphanumeric() || *it == b' ';
    let is_odd = |it: &[u8]| it.strip_prefix(b"s=").is_some_and(|it| !it.iter().all(is_plain));
    let lacks = |it: &[u8]| !lines().any(|line| line.starts_with(it));
    lines().next().is_none_or(|it| it != b"v=0")
        || [&b"o="[..], b"s=", b"t="].into_iter().any(lacks)
        || lines().any(is_odd)
}

/// EVE's `sdp` of a body; its fields go to the unit.
pub(super) fn describe(body: &[u8], unit: &mut Unit) -> Option<Object> {
    let mut session = Part::default();
    let mut media: Vec<Part> = Vec::new();
    let lines = body.split(|it| *it == b'\n').map(<[u8]>::trim_ascii_end);
    for line in lines.filter(|it| !it.is_empty()).take(LINES_MAX) {
        let [letter, b'=', value @ ..] = line else { return None };
        if *letter == b'm' {
            unit.text(Buffer::SdpMedia, value);
            let object = Object::default().with("media", value);
            media.push(Part { object, ..Part::default() });
            continue;
        }
        let is_of_session = media.is_empty();
        let part = media.last_mut().unwrap_or(&mut session);
        let (name, buffer) = match (letter, is_of_session) {
            (b't', true) => {
                unit.text(Buffer::SdpTime, value);
                part.times.push(Object::default().with("time", value));
                continue;
            }
            (b'r', true) => {
                unit.text(Buffer::SdpRepeatTime, value);
                if let Some(time) = part.times.last_mut() {
                    time.put("repeat_time", value);
                }
                continue;
            }
            (b'a', _) => {
                unit.text(Buffer::SdpAttribute, value);
                part.attributes.push(value.into());
                continue;
            }
            (b'b', _) => {
                unit.text(Buffer::SdpBandwidth, value);
                part.bandwidths.push(value.into());
                continue;
            }
            (b'o', true) => ("origin", Buffer::SdpOrigin),
            (b's', true) => ("session_name", Buffer::SdpSessionName),
            (b'i', true) => ("session_info", Buffer::SdpSessionInfo),
            (b'i', false) => ("media_info", Buffer::SdpMediaInfo),
            (b'u', true) => ("uri", Buffer::SdpUri),
            (b'e', true) => ("email", Buffer::SdpEmail),
            (b'p', true) => ("phone_number", Buffer::SdpPhoneNumber),
            (b'c', true) => ("connection_data", Buffer::SdpConnection),
            (b'c', false) => ("connection_data", Buffer::SdpMediaConnection),
            (b'z', true) => ("timezone", Buffer::SdpTimezone),
            (b'k', true) => ("encryption_key", Buffer::SdpKey),
            (b'k', false) => ("encryption_key", Buffer::SdpMediaKey),
            _ => continue,
        };
        unit.text(buffer, value);
        part.object.put(name, value);
    }
    let mut object = session.end();
    if !media.is_empty() {
        let media: Vec<Object> = media.into_iter().map(Part::end).collect();
        object.put("media_descriptions", media);
    }
    Some(object).filter(|it| !it.is_empty())
}
