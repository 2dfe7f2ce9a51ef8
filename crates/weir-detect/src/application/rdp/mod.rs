//! RDP (MS-RDPBCGR): how a connection begins, up to the server's answer to the client's settings,
//! or to its certificate where TLS begins.
//!
//! ```text
//!  client                      server
//!  initial_request  ------->
//!                   <-------   initial_response
//!  connect_request  ------->                        (or TLS from here on)
//!                   <-------   connect_response     (or tls_handshake)
//! ```

mod layouts;
mod settings;

use super::names::{Names, name_of};
use super::unit::{Said, Unit};
use super::{Held, Parser};
use crate::buffers::tls::Certificate;
use crate::heap::heap_size;
use crate::rule::Protocol;
use crate::value::Object;

/// The version of a packet (RFC 1006 s6), and bytes of its head.
const VERSION: u8 = 3;
const HEAD_LEN: usize = 4;
/// What is said in a packet: the first half of the byte behind its length (X.224 s13).
const REQUEST: u8 = 0xe0;
const CONFIRM: u8 = 0xd0;
/// Length, kind and end of a packet with data (X.224 s13.7).
const DATA: [u8; 3] = [2, 0xf0, 0x80];
/// Kinds of data (T.125 s7): what a client wants to connect with, and the server's answer.
const CONNECT_REQUEST: [u8; 2] = [0x7f, 0x65];
const CONNECT_RESPONSE: [u8; 2] = [0x7f, 0x66];
/// TLS: bytes of a record's head, its kind and that of a message with certificates, and bytes of a
/// record at most (RFC 8446 s5.1).
const RECORD_HEAD_LEN: usize = 5;
const HANDSHAKE: u8 = 22;
const CERTIFICATE: u8 = 11;
const RECORD_LEN_MAX: usize = 1 << 14;
/// Certificates of a chain that are looked at, at most.
const CHAIN_MAX: usize = 16;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Rdp {
    held: [Held; 2],
    count: u64,
    is_tls: bool,
    /// Nothing more is told of it.
    is_over: bool,
}
heap_size!(Rdp { held });

impl Parser for Rdp {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over {
            return;
        }
        self.held[side].add(bytes);
        while !self.is_over {
            let next = if self.is_tls { self.record(side, said) } else { self.packet(side, said) };
            if next.is_none() {
                break;
            }
        }
        if self.is_over {
            self.held.iter_mut().for_each(Held::clear);
        }
    }
}

impl Rdp {
    /// The next packet of a side; `None`: it is not whole.
    fn packet(&mut self, side: usize, said: &mut Said) -> Option<()> {
        let bytes = self.held[side].bytes();
        if *bytes.first()? != VERSION {
            self.is_tls = bytes[0] == HANDSHAKE;
            self.is_over = !self.is_tls;
            said.has_failed |= self.is_over;
            return Some(());
        }
        let head: [u8; HEAD_LEN] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length < HEAD_LEN {
            (self.is_over, said.has_failed) = (true, true);
            return None;
        }
        let packet = self.held[side].take(length)?;
        let content = &packet[HEAD_LEN..];
        let object = match side {
            0 => initial_request(content).or_else(|| connect_request(content)),
            _ => initial_response(content).or_else(|| {
                let kind = content.strip_prefix(&DATA)?;
                self.is_over = kind.starts_with(&CONNECT_RESPONSE);
                self.is_over.then(|| Object::default().with("event_type", "connect_response"))
            }),
        };
        if let Some(object) = object {
            self.tell(side, object, said);
        }
        Some(())
    }

    /// The next record of TLS; `None`: it is not whole.
    fn record(&mut self, side: usize, said: &mut Said) -> Option<()> {
        let head: [u8; RECORD_HEAD_LEN] = *self.held[side].bytes().first_chunk()?;
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length > RECORD_LEN_MAX {
            (self.is_over, said.has_failed) = (true, true);
            return None;
        }
        let record = self.held[side].take(RECORD_HEAD_LEN + length)?;
        if side == 1
            && head[0] == HANDSHAKE
            && let Some(serials) = serials(&record[RECORD_HEAD_LEN..])
        {
            let object = Object::default().with("event_type", "tls_handshake");
            self.tell(side, object.with("x509_serials", serials), said);
            self.is_over = true;
        }
        Some(())
    }

    fn tell(&mut self, side: usize, object: Object, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Rdp, self.count);
        self.count += 1;
        let mut whole = Object::default().with("tx_id", self.count);
        object.iter().for_each(|(name, value)| whole.put(name.to_owned(), value.clone()));
        unit.tells("rdp", whole);
        said.message(unit, side);
    }
}

/// What stands behind the fixed part of a request or confirmation of class 0 (X.224 s13.3, s13.4).
fn variable(kind: u8, content: &[u8]) -> Option<&[u8]> {
    let [length, code, 0, 0, _, _, 0, rest @ ..] = content else { return None };
    let is_kind = *length != 0xff && code & 0xfe == kind;
    let length = usize::from(*length).checked_sub(6).filter(|_| is_kind)?;
    rest.get(..length)
}

/// A negotiation: kind, flags, its length, which is always 8, and a number (s2.2.1.1.1).
fn negotiation(kind: u8, bytes: &[u8]) -> Option<(u8, u32)> {
    let [own, flags, 8, 0, a, b, c, d, ..] = bytes else { return None };
    (*own == kind).then(|| (*flags, u32::from_le_bytes([*a, *b, *c, *d])))
}

/// What a client begins with: who it is, and what it can (s2.2.1.1).
fn initial_request(content: &[u8]) -> Option<Object> {
    const FLAGS: Names = &[
        ("restricted_admin_mode_required", 1),
        ("redirected_authentication_mode_required", 2),
        ("correlation_info_present", 8),
    ];
    let mut rest = variable(REQUEST, content)?;
    let mut object = Object::default().with("event_type", "initial_request");
    if let Some(behind) = rest.strip_prefix(b"Cookie: mstshash=") {
        let end = memchr::memmem::find(behind, b"\r\n")?;
        if let Ok(cookie) = std::str::from_utf8(&behind[..end]) {
            object.put("cookie", cookie);
            rest = &behind[end + 2..];
        }
    }
    let is_known = |it: &(u8, u32)| it.0 & !0x0b == 0 && it.1 & !0x0f == 0;
    if let Some((flags, _)) = negotiation(1, rest).filter(is_known) {
        put_flags(&mut object, "flags", FLAGS, flags.into());
    }
    Some(object)
}

/// What the server says to that: what is to be spoken, or why not (s2.2.1.2).
fn initial_response(content: &[u8]) -> Option<Object> {
    const FLAGS: Names = &[
        ("extended_client_data", 1),
        ("dynvc_gfx", 2),
        ("restricted_admin", 8),
        ("redirected_authentication", 16),
    ];
    const PROTOCOLS: Names =
        &[("rdp", 0), ("ssl", 1), ("hybrid", 2), ("rds_tls", 4), ("hybrid_ex", 8)];
    const REASONS: Names = &[
        ("ssl required by server", 1),
        ("ssl not allowed by server", 2),
        ("ssl cert not on server", 3),
        ("inconsistent flags", 4),
        ("hybrid required by server", 5),
        ("ssl with user auth required by server", 6),
    ];
    let rest = variable(CONFIRM, content)?;
    let mut object = Object::default().with("event_type", "initial_response");
    if let Some((flags, number)) = negotiation(2, rest).filter(|it| it.0 & !0x1f == 0)
        && let Some(protocol) = name_of(PROTOCOLS, number)
    {
        put_flags(&mut object, "server_supports", FLAGS, flags.into());
        object.put("protocol", protocol);
    }
    if let Some((_, code)) = negotiation(3, rest)
        && let Some(reason) = name_of(REASONS, code)
    {
        object.put("error_code", code);
        object.put("reason", reason);
    }
    Some(object)
}

fn connect_request(content: &[u8]) -> Option<Object> {
    let data = content.strip_prefix(&DATA)?.strip_prefix(&CONNECT_REQUEST)?;
    settings::described(data)
}

/// Names of the bits that are set, if any is.
fn put_flags(object: &mut Object, name: &'static str, names: Names, bits: u32) {
    if bits != 0 {
        let set = names.iter().filter(|it| i64::from(bits) & it.1 != 0);
        object.put(name, set.map(|it| it.0).collect::<Vec<_>>());
    }
}

/// Serial numbers of the certificates in a record, if it has a message with some (RFC 5246 s7.4.2).
fn serials(mut messages: &[u8]) -> Option<Vec<String>> {
    while let [kind, rest @ ..] = messages {
        let (body, behind) = long(rest)?;
        messages = behind;
        if *kind != CERTIFICATE {
            continue;
        }
        let (mut chain, _) = long(body)?;
        let mut serials = Vec::new();
        while let Some((certificate, behind)) = long(chain).filter(|_| serials.len() < CHAIN_MAX) {
            chain = behind;
            serials.extend(Certificate::read(certificate).map(|it| serial(&it)));
        }
        return Some(serials);
    }
    None
}

/// What stands behind its length of three bytes, and what follows.
fn long(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [high, middle, low, rest @ ..] = bytes else { return None };
    rest.split_at_checked(u32::from_be_bytes([0, *high, *middle, *low]) as usize)
}

/// The number as hexadecimal digits without zeros before it.
fn serial(certificate: &Certificate) -> String {
    let text = String::from_utf8_lossy(&certificate.serial).replace(':', "").to_lowercase();
    let digits = text.trim_start_matches('0');
    if digits.is_empty() { "0" } else { digits }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    /// What is told when these were said, a byte at a time.
    fn told(lines: &[(usize, &[u8])]) -> Vec<Object> {
        let (mut rdp, mut said) = (Rdp::default(), Said::default());
        for (side, bytes) in lines {
            bytes.chunks(1).for_each(|it| rdp.take(*side, it, &mut said));
        }
        said.records.into_iter().map(|mut it| it.objects.remove(0).1).collect()
    }

    #[test]
    fn a_client_tells_its_name_and_a_server_what_is_to_be_spoken() {
        let request =
            b"\x03\0\0\x2a\x25\xe0\0\0\0\0\0Cookie: mstshash=me\r\n\x01\x08\x08\0\x03\0\0\0";
        let mut request = request.to_vec();
        (request[3], request[4]) = (request.len() as u8, request.len() as u8 - 5);
        let answer = b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\x03\x08\0\x02\0\0\0";
        let refusal = b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x03\0\x08\0\x05\0\0\0";
        let told = told(&[(0, &request), (1, answer), (1, refusal)]);
        let [request, answer, refusal] = &told[..] else { panic!("{told:?}") };
        assert_eq!(request.value("tx_id"), Some(&1_u64.into()));
        assert_eq!(request.value("cookie"), Some(&"me".into()));
        assert_eq!(request.value("flags"), Some(&vec!["correlation_info_present"].into()));
        let supported: Value = vec!["extended_client_data", "dynvc_gfx"].into();
        assert_eq!(answer.value("server_supports"), Some(&supported));
        assert_eq!(answer.value("protocol"), Some(&"hybrid".into()));
        assert_eq!(refusal.value("error_code"), Some(&5_u32.into()));
        assert_eq!(refusal.value("reason"), Some(&"hybrid required by server".into()));
    }

    #[test]
    fn nothing_is_told_behind_the_answer_to_the_settings() {
        let answer = b"\x03\0\0\x09\x02\xf0\x80\x7f\x66";
        let told = told(&[(1, answer), (1, answer), (0, answer)]);
        let [answer] = &told[..] else { panic!("{told:?}") };
        assert_eq!(answer.value("event_type"), Some(&"connect_response".into()));
    }

    #[test]
    fn what_is_neither_a_packet_nor_tls_ends_it() {
        let confirm = b"\x03\0\0\x0b\x06\xd0\0\0\x12\x34\0";
        assert_eq!(told(&[(1, confirm), (0, b"GET /"), (1, confirm)]).len(), 1);
        assert_eq!(told(&[(1, b"\x03\0\0\x03"), (1, confirm)]).len(), 0);
    }
}
