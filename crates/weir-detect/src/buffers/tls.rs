//! TLS handshakes (RFC 5246, RFC 8446): whom a client asks for, and the server's certificates.

use super::certificate::{self, Names};
use super::ja3::{self, Fingerprint};
use super::ja4;
use crate::digest;
use crate::rule::Buffer;

/// Bytes of one direction's handshake that are kept, at most; the rest is not looked at.
const HANDSHAKE_LEN_MAX: usize = 64 * 1024;
/// Certificates of a chain that are looked at, at most.
const CERTIFICATES_MAX: usize = 16;

const RECORD_HANDSHAKE: u8 = 22;
const RECORD_CHANGE_CIPHER_SPEC: u8 = 20;
const RECORD_ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const EXTENSION_SERVER_NAME: u16 = 0;

/// What a connection's handshakes have told so far.
#[derive(Debug, Default)]
pub(crate) struct Session {
    sides: [Side; 2],
    pub(crate) server_name: Option<Vec<u8>>,
    pub(crate) certificates: Vec<Vec<u8>>,
    pub(crate) names: Names,
    /// SHA-1 of the first certificate, `0a:1b:...`.
    fingerprint: Vec<u8>,
    /// What each side's hello says it can.
    hellos: [Fingerprint; 2],
    ja4: Vec<u8>,
    /// The version that the server chose.
    version: Option<u16>,
}

#[derive(Debug, Default)]
struct Side {
    /// A record that is not whole yet.
    record: Vec<u8>,
    /// Handshake messages that are not whole yet.
    handshake: Vec<u8>,
    is_done: bool,
    /// Its further records are encrypted.
    is_encrypted: bool,
}

/// Whether a stream that begins so may be TLS.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [RECORD_HANDSHAKE, 3, 0..=4, _, _, CLIENT_HELLO | 2, ..])
}

impl Session {
    /// Takes in the next bytes of a side; whether they told something.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8]) -> bool {
        if self.sides[side].is_done {
            return false;
        }
        self.sides[side].record.extend_from_slice(bytes);
        let mut told = false;
        loop {
            let state = &mut self.sides[side];
            let [kind, 3, _, high, low, rest @ ..] = state.record.as_slice() else {
                state.is_done |= state.record.len() >= 5;
                break;
            };
            let kind = *kind;
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            match kind {
                RECORD_HANDSHAKE => {}
                RECORD_CHANGE_CIPHER_SPEC | RECORD_ALERT => {
                    if rest.len() < length {
                        break;
                    }
                    state.record.drain(..5 + length);
                    state.is_done = kind == RECORD_CHANGE_CIPHER_SPEC;
                    state.is_encrypted = state.is_done;
                    continue;
                }
                _ => {
                    state.is_done = true;
                    break;
                }
            }
            if rest.len() < length {
                break;
            }
            let fragment = rest[..length].to_vec();
            state.record.drain(..5 + length);
            state.handshake.extend_from_slice(&fragment);
            told |= self.messages(side);
        }
        let state = &mut self.sides[side];
        if state.is_done || state.record.len() + state.handshake.len() > HANDSHAKE_LEN_MAX {
            let is_encrypted = state.is_encrypted;
            *state = Side { is_done: true, is_encrypted, ..Side::default() };
        }
        told
    }

    /// The version that the server chose, as its hello writes it.
    pub(crate) fn version(&self) -> Option<u16> {
        self.version
    }

    /// Whether all that comes is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.sides.iter().all(|it| it.is_encrypted)
    }

    /// Calls `look` with each instance of the buffer until it says yes; whether it did.
    pub(crate) fn each(
        &self,
        side: usize,
        buffer: Buffer,
        look: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let mut some = |bytes: &[u8]| !bytes.is_empty() && look(bytes);
        match (buffer, side) {
            (Buffer::TlsSni, 0) => self.server_name.as_deref().is_some_and(some),
            (Buffer::TlsCertificates, 1) => self.certificates.iter().any(|it| some(it)),
            (Buffer::TlsSubject, 1) => some(&self.names.subject),
            (Buffer::TlsIssuer, 1) => some(&self.names.issuer),
            (Buffer::TlsSerial, 1) => some(&self.names.serial),
            (Buffer::TlsFingerprint, 1) => some(&self.fingerprint),
            (Buffer::Ja3Hash, 0) => some(&self.hellos[0].hash),
            (Buffer::Ja3String, 0) => some(&self.hellos[0].line),
            (Buffer::Ja4Hash, 0) => some(&self.ja4),
            (Buffer::Ja3sHash, 1) => some(&self.hellos[1].hash),
            (Buffer::Ja3sString, 1) => some(&self.hellos[1].line),
            _ => false,
        }
    }

    /// Takes the whole messages out of a side's handshake.
    fn messages(&mut self, side: usize) -> bool {
        let mut told = false;
        loop {
            let handshake = &self.sides[side].handshake;
            let [kind, a, b, c, rest @ ..] = handshake.as_slice() else { return told };
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let (kind, Some(body)) = (*kind, rest.get(..length).map(<[u8]>::to_vec)) else {
                return told;
            };
            self.sides[side].handshake.drain(..4 + length);
            match kind {
                CLIENT_HELLO => {
                    self.server_name = server_name(&body);
                    self.hellos[0] = ja3::of_client(&body).unwrap_or_default();
                    self.ja4 = ja4::of_client(&body).unwrap_or_default();
                    told = true;
                }
                SERVER_HELLO => {
                    self.hellos[1] = ja3::of_server(&body).unwrap_or_default();
                    self.version = ja4::chosen_version(&body);
                    told = true;
                }
                CERTIFICATE => {
                    self.certificates = certificates(&body);
                    let first = self.certificates.first();
                    let pairs = |it: &Vec<u8>| digest::sha1(it).map(|it| format!("{it:02x}"));
                    let fingerprint = first.map(|it| pairs(it).join(":").into_bytes());
                    self.fingerprint = fingerprint.unwrap_or_default();
                    self.names = first.and_then(|it| certificate::names(it)).unwrap_or_default();
                    told = true;
                }
                _ => {}
            }
        }
    }
}

/// `length` bytes whose count is written in `width` bytes before them, and what follows.
pub(super) fn counted(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_at_checked(width)?;
    let length = count.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

fn server_name(hello: &[u8]) -> Option<Vec<u8>> {
    let rest = hello.get(34..)?;
    let (_session, rest) = counted(rest, 1)?;
    let (_suites, rest) = counted(rest, 2)?;
    let (_compressions, rest) = counted(rest, 1)?;
    let (mut extensions, _) = counted(rest, 2)?;
    while let [high, low, rest @ ..] = extensions {
        let (body, behind) = counted(rest, 2)?;
        if u16::from_be_bytes([*high, *low]) == EXTENSION_SERVER_NAME {
            let (list, _) = counted(body, 2)?;
            let (name, _) = counted(list.get(1..)?, 2)?;
            return Some(name.to_vec());
        }
        extensions = behind;
    }
    None
}

fn certificates(body: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let Some((mut list, _)) = counted(body, 3) else { return found };
    while let Some((certificate, rest)) = counted(list, 3) {
        if found.len() == CERTIFICATES_MAX {
            break;
        }
        found.push(certificate.to_vec());
        list = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![kind, 0];
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        let mut record = vec![RECORD_HANDSHAKE, 3, 1];
        record.extend((message.len() as u16).to_be_bytes());
        record.extend(message);
        record
    }

    fn hello(name: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([0; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let length = name.len() as u16;
        body.extend((length + 9).to_be_bytes());
        body.extend([0, 0]);
        body.extend((length + 5).to_be_bytes());
        body.extend((length + 3).to_be_bytes());
        body.push(0);
        body.extend(length.to_be_bytes());
        body.extend(name);
        record(CLIENT_HELLO, &body)
    }

    #[test]
    fn the_server_name_is_read_however_the_stream_is_cut() {
        let bytes = hello(b"www.example.org");
        assert!(begins(&bytes));
        for piece in 1..bytes.len() {
            let mut session = Session::default();
            let told = bytes.chunks(piece).map(|it| session.take(0, it)).filter(|it| *it).count();
            assert_eq!(told, 1, "{piece}");
            assert_eq!(session.server_name.as_deref(), Some(b"www.example.org".as_slice()));
        }
    }

    #[test]
    fn certificates_are_taken_apart() {
        let mut session = Session::default();
        let body = [0, 0, 9, 0, 0, 2, 0x30, 0, 0, 0, 1, 9];
        assert!(session.take(1, &record(CERTIFICATE, &body)));
        assert_eq!(session.certificates, [vec![0x30, 0], vec![9]]);
    }

    #[test]
    fn what_is_no_record_ends_the_look() {
        let mut session = Session::default();
        assert!(!session.take(0, b"GET / HTTP/1.1\r\n"));
        assert!(session.sides[0].is_done);
    }
}
