//! SIP (RFC 3261): requests and responses, over datagrams and streams.

use super::unit::{Said, Unit};
use super::{Held, Parser, sdp};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Protocol};
use crate::value::Object;

/// Headers of a message that are looked at, at most.
const HEADERS_MAX: usize = 256;

/// Headers that rules look at: whole name, short name (RFC 3261 s7.3.3).
const HEADERS: [(&str, &str, Buffer); 6] = [
    ("from", "f", Buffer::SipFrom),
    ("to", "t", Buffer::SipTo),
    ("via", "v", Buffer::SipVia),
    ("user-agent", "", Buffer::SipUserAgent),
    ("content-type", "c", Buffer::SipContentType),
    ("content-length", "l", Buffer::SipContentLength),
];

/// What is spoken between two ends.
#[derive(Debug)]
pub(crate) struct Sip {
    /// Bytes of streams; datagrams are whole.
    held: Option<[Held; 2]>,
    /// The head of the message at hand was told, by side.
    told: [bool; 2],
    count: u64,
}
heap_size!(Sip { held });

impl Sip {
    pub(crate) fn of_datagrams() -> Self {
        Self { held: None, told: [false; 2], count: 0 }
    }

    pub(crate) fn of_streams() -> Self {
        Self { held: Some(Default::default()), told: [false; 2], count: 0 }
    }

    fn message(&mut self, side: usize, head: &[u8], body: &[u8], said: &mut Said) {
        let mut unit = Unit::new(Protocol::Sip, self.count);
        // Requests are the client's and responses the server's, who begins each in its way.
        let is_response = head.starts_with(b"SIP/");
        let begun = start(head, &mut unit).filter(|_| is_response == (side == 1));
        let Some(mut object) = begun else {
            // Of a datagram Suricata says nothing then.
            if self.held.is_none() {
                said.has_failed = true;
                return;
            }
            unit = Unit::new(Protocol::Sip, self.count);
            unit.odd(AppEvent::SipInvalid);
            self.count += 1;
            return said.unreadable(unit);
        };
        self.count += 1;
        for (name, value) in headers(&unfolded(head)) {
            let is_meant = |it: &&(&str, &str, Buffer)| {
                name.eq_ignore_ascii_case(it.0.as_bytes())
                    || (!it.1.is_empty() && name.eq_ignore_ascii_case(it.1.as_bytes()))
            };
            if let Some((.., buffer)) = HEADERS.iter().find(is_meant) {
                unit.text(*buffer, value);
            }
        }
        let is_foreign = said.knows_no_more && sdp::is_foreign(body);
        if is_sdp(head, said)
            && !is_foreign
            && let Some(sdp) = sdp::describe(body, &mut unit)
        {
            object.put("sdp", sdp);
        }
        unit.tells("sip", object);
        // In a stream it is no message for Suricata.
        if is_foreign && !body.is_empty() && self.held.is_some() {
            unit.odd(AppEvent::SipInvalid);
            said.fail();
        }
        said.message(unit, side);
    }
}

impl Sip {
    /// The body of a message whose head was told. Suricata takes it for a message, and gives up.
    fn body(&self, head: &[u8], body: &[u8], said: &mut Said) {
        if said.knows_no_more {
            return said.fail();
        }
        let mut unit = Unit::new(Protocol::Sip, self.count.saturating_sub(1));
        let _ = is_sdp(head, said).then(|| sdp::describe(body, &mut unit));
        if unit.has_texts() {
            said.units.push(unit);
        }
    }
}

/// Whether the body describes a session, by its type; Suricata does not ask for that.
fn is_sdp(head: &[u8], said: &Said) -> bool {
    if said.knows_no_more {
        return true;
    }
    headers(&unfolded(head)).any(|(name, value)| {
        let is_type =
            ["content-type", "c"].iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
        is_type && value.to_ascii_lowercase().starts_with(b"application/sdp")
    })
}

/// A head with each header in one line (RFC 3261 s7.3.1).
fn unfolded(head: &[u8]) -> Vec<u8> {
    let mut unfolded = Vec::with_capacity(head.len());
    for (at, byte) in head.iter().enumerate() {
        let goes_on = |at: usize| matches!(head.get(at), Some(b' ' | b'\t'));
        match byte {
            b'\r' if head.get(at + 1) == Some(&b'\n') && goes_on(at + 2) => {}
            b'\n' if goes_on(at + 1) => {}
            other => unfolded.push(*other),
        }
    }
    unfolded
}

impl Parser for Sip {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some(held) = &mut self.held else {
            // What keeps a mapping alive (RFC 5626 s3.5, s4.4.2): blanks, or STUN.
            if bytes.iter().all(|it| matches!(it, b'\r' | b'\n' | 0)) || is_stun(bytes) {
                return;
            }
            let end = end_of_head(bytes).unwrap_or(bytes.len());
            return self.message(side, &bytes[..end], &bytes[end..], said);
        };
        held[side].add(bytes);
        loop {
            let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return };
            // Empty lines keep connections alive.
            let blank = held.bytes().iter().take_while(|it| matches!(it, b'\r' | b'\n')).count();
            held.drop(blank as u64);
            let Some(end) = end_of_head(held.bytes()) else {
                if held.is_too_long() {
                    held.clear();
                    said.has_failed = true;
                }
                return;
            };
            let length = headers(&held.bytes()[..end])
                .find(|it| {
                    it.0.eq_ignore_ascii_case(b"content-length") || it.0.eq_ignore_ascii_case(b"l")
                })
                .and_then(|it| std::str::from_utf8(it.1).ok()?.trim().parse::<usize>().ok());
            let Some(whole) = end.checked_add(length.unwrap_or_default()) else {
                said.has_failed = true;
                return held.clear();
            };
            let told = std::mem::take(&mut self.told[side]);
            let Some(message) = held.take(whole) else {
                // The body need not come: what the head says is told before it.
                let head = (!told).then(|| held.bytes()[..end].to_vec());
                if held.is_too_long() {
                    held.drop(whole as u64);
                } else {
                    self.told[side] = true;
                }
                if let Some(head) = head {
                    self.message(side, &head, &[], said);
                }
                return;
            };
            match told {
                true => self.body(&message[..end], &message[end..], said),
                false => self.message(side, &message[..end], &message[end..], said),
            }
        }
    }
}

/// Whether it is a message of STUN, by its cookie (RFC 8489 s5).
fn is_stun(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|it| it >> 6 == 0) && bytes.get(4..8) == Some(b"\x21\x12\xa4\x42")
}

/// Where a head ends, its empty line included.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|it| it + 4)
}

/// The first line.
fn start(head: &[u8], unit: &mut Unit) -> Option<Object> {
    let line = head.split(|it| *it == b'\n').next()?.trim_ascii_end();
    let mut parts = line.splitn(3, |it| *it == b' ');
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let mut object = Object::default();
    if first.starts_with(b"SIP/") {
        unit.text(Buffer::SipProtocol, first);
        unit.text(Buffer::SipStatusCode, second);
        unit.text(Buffer::SipStatusMessage, third);
        unit.text(Buffer::SipResponseLine, line);
        object.put("version", first);
        object.put("code", second);
        object.put("reason", third);
        object.put("response_line", line);
    } else if third.starts_with(b"SIP/") {
        unit.text(Buffer::SipMethod, first);
        unit.text(Buffer::SipUri, second);
        unit.text(Buffer::SipProtocol, third);
        unit.text(Buffer::SipRequestLine, line);
        object.put("method", first);
        object.put("uri", second);
        object.put("version", third);
        object.put("request_line", line);
    } else {
        return None;
    }
    Some(object)
}

/// Names and values behind the first line.
fn headers(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = head.split(|it| *it == b'\n').skip(1).take(HEADERS_MAX);
    lines.filter_map(|line| {
        let colon = line.iter().position(|it| *it == b':')?;
        Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &str = "INVITE sip:b@example.org SIP/2.0\r\nf: a\r\nVia: one\r\nVia: two\r\n\
        Content-Type: application/sdp\r\nContent-Length: 30\r\n\r\n\
        v=0\r\no=a 1 2\r\ns=-\r\nm=audio 9\r\n";

    #[test]
    fn requests_of_streams_and_datagrams_tell_the_same() {
        let (mut sip, mut said) = (Sip::of_datagrams(), Said::default());
        sip.take(0, INVITE.as_bytes(), &mut said);
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("method"), Some(&"INVITE".into()));
        assert_eq!(object.value("uri"), Some(&"sip:b@example.org".into()));
        assert!(said.units[0].each(Buffer::SipVia, &mut |it| it == b"two"));
        assert!(said.units[0].each(Buffer::SipFrom, &mut |it| it == b"a"));
        let (mut other, mut whole) = (Sip::of_streams(), Said::default());
        other.take(0, INVITE.as_bytes(), &mut whole);
        assert_eq!(whole.records, said.records);
    }

    #[test]
    fn a_head_is_told_before_its_body_comes_and_the_body_when_it_has() {
        let (mut sip, mut said) = (Sip::of_streams(), Said::default());
        INVITE.as_bytes().chunks(7).for_each(|it| sip.take(0, it, &mut said));
        let [head, body] = &said.units[..] else { panic!("{said:?}") };
        assert!(head.each(Buffer::SipMethod, &mut |it| it == b"INVITE"));
        assert!(body.each(Buffer::SdpOrigin, &mut |it| it == b"a 1 2"));
        assert_eq!(said.records.len(), 1);
        let folded = b"INVITE sip:b SIP/2.0\r\nUser-Agent:\r\n evil\r\n\r\n";
        sip.take(0, folded, &mut said);
        assert!(said.units[2].each(Buffer::SipUserAgent, &mut |it| it == b"evil"));
    }

    #[test]
    fn responses_tell_their_status() {
        let (mut sip, mut said) = (Sip::of_datagrams(), Said::default());
        sip.take(1, b"SIP/2.0 180 Ringing it\r\n\r\n", &mut said);
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("code"), Some(&"180".into()));
        assert_eq!(object.value("reason"), Some(&"Ringing it".into()));
        sip.take(1, b"nothing\r\n\r\n", &mut said);
        assert_eq!(said.units.len(), 1, "{said:?}");
        let (mut sip, mut said) = (Sip::of_streams(), Said::default());
        sip.take(1, b"nothing\r\n\r\n", &mut said);
        assert!(said.units[0].events.has(AppEvent::SipInvalid));
    }
}
