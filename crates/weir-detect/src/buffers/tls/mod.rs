//! TLS handshakes (RFC 5246, RFC 8446): what both hellos say, and the certificates that come in
//! clear.

mod certificate;
mod check;
mod hello;
mod ja3;
mod ja4;
mod ssl2;
mod state;
mod tell;
mod walk;

use super::event::{AppEvent, AppEvents};
use super::progress::Progress;
use crate::heap::heap_size;
use crate::rule::Buffer;
pub(crate) use certificate::{Certificate, EPOCH, Moment};
pub(crate) use hello::Hello;
pub(crate) use ssl2::names_later as names_later_ssl;
use state::Heartbeat;
use walk::Walk;

/// Bytes of one direction's handshake that are kept, at most; the rest is not looked at.
const HANDSHAKE_LEN_MAX: usize = 64 * 1024;
/// Certificates of a chain that are looked at, at most.
const CERTIFICATES_MAX: usize = 16;

/// Kinds of records (RFC 8446 s5.1).
pub(crate) const RECORD_HANDSHAKE: u8 = 22;
const RECORD_CHANGE_CIPHER_SPEC: u8 = 20;
const RECORD_ALERT: u8 = 21;
const RECORD_APPLICATION: u8 = 23;
const RECORD_HEARTBEAT: u8 = 24;
/// The level of an alert that ends the connection.
const ALERT_FATAL: u8 = 2;
/// The major version of SSL 2.
const SSL2: u8 = 2;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;

/// What a connection's handshakes have told so far.
#[derive(Debug, Default)]
pub(crate) struct Session {
    sides: [Side; 2],
    /// What was odd.
    pub(crate) events: AppEvents,
    /// Of that, what was not handed over, by the side whose rules are to look at it.
    fresh: [Vec<AppEvent>; 2],
    progress: [Progress; 2],
    /// A side has said that what follows is encrypted.
    is_ciphered: bool,
    heartbeat: Heartbeat,
    /// Something came that is no record.
    has_failed: bool,
    /// Messages that came with the last piece: a bit each, as [`SslState`] counts them.
    seen: u8,
    /// Encrypted data came behind the hellos.
    has_data: bool,
    /// The server wants to know who its client is.
    asks_client: bool,
    /// Whose certificate left nothing more to await.
    settled_by: Option<usize>,
    /// It was told of.
    is_told: bool,
}
heap_size!(Session { sides });

/// Messages of the handshake that `ssl_state` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslState {
    ClientHello,
    ServerHello,
    ClientKeyExchange,
    ServerKeyExchange,
    /// Another.
    Unknown,
}

#[derive(Debug, Default)]
struct Side {
    /// A record that is not whole yet, behind bytes of those that were taken in.
    record: Vec<u8>,
    taken: usize,
    /// Handshake messages that are not whole yet.
    handshake: Vec<u8>,
    is_done: bool,
    /// It has said its own hello.
    has_greeted: bool,
    /// Its further records are encrypted.
    is_encrypted: bool,
    /// Through the records behind those that are looked into.
    walk: Walk,
    said: Said,
}
heap_size!(Side { record, handshake, said });

impl Side {
    /// What has come and was not taken in.
    fn rest(&self) -> &[u8] {
        &self.record[self.taken..]
    }

    /// Lets go of what was taken in, all of it at once: records may be many and short.
    fn let_go(&mut self) {
        self.record.drain(..std::mem::take(&mut self.taken));
    }
}

/// What a side has said.
#[derive(Debug, Default)]
struct Said {
    hello: Option<Hello>,
    /// The version of its records, before a hello said better.
    version: Option<u16>,
    chain: Vec<Vec<u8>>,
    /// Of the first certificate.
    certificate: Option<Certificate>,
}
heap_size!(Said { hello, chain, certificate });

/// Whether a stream that begins so may be TLS: with a record of a handshake, in which other
/// messages may come before the hello (RFC 5246 s7.4.1.1), or, a client's, with a hello of SSL 2.
pub(crate) fn begins(side: usize, bytes: &[u8]) -> bool {
    // The minor number of a client's first record is ignored (RFC 8446 s5.1).
    let is_hello = || matches!(bytes, [RECORD_HANDSHAKE, 3, _, _, _, CLIENT_HELLO, 0, ..]);
    matches!(bytes, [RECORD_HANDSHAKE, 3, 0..=4, _, _, ..])
        || (side == 0 && (is_hello() || ssl2::begins(bytes)))
}

impl Session {
    /// Takes in the next bytes of a side; whether they told something.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8]) -> bool {
        if self.sides[side].is_done {
            self.pass(side, bytes);
            return false;
        }
        self.sides[side].record.extend_from_slice(bytes);
        self.seen = 0;
        let mut told = false;
        let (mut records, all) = (0, self.sides[side].record.len());
        while !self.sides[side].is_done {
            let is_of_ssl2 = ssl2::is_record(self.sides[side].rest());
            let Some(told_more) = self.next_record(side) else { break };
            told |= told_more;
            records += usize::from(is_of_ssl2);
            if ssl2::are_too_many(records, all) && !self.sides[side].rest().is_empty() {
                self.raise(AppEvent::TlsManyRecords);
                self.has_failed = true;
                self.sides[side].is_done = true;
                self.lose(side);
            }
        }
        self.settle(side);
        let state = &mut self.sides[side];
        state.let_go();
        if state.is_done || state.record.len() + state.handshake.len() > HANDSHAKE_LEN_MAX {
            state.is_done = true;
            state.handshake = Vec::new();
            told |= state.said.hello.is_some();
            let behind = std::mem::take(&mut state.record);
            self.pass(side, &behind);
        }
        told
    }

    /// Takes in a side's next record, if it is whole; whether it told something.
    fn next_record(&mut self, side: usize) -> Option<bool> {
        let state = &mut self.sides[side];
        if ssl2::is_record(state.rest()) {
            return self.record_of_ssl2(side);
        }
        let [kind, major, minor, high, low, rest @ ..] = state.rest() else {
            return None;
        };
        let (kind, major, minor) = (*kind, *major, *minor);
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let is_known = matches!(kind, RECORD_CHANGE_CIPHER_SPEC..=RECORD_HEARTBEAT);
        // Drafts of version 1.3 have numbers of their own.
        let is_odd = !matches!((major, minor), (3, 0..=4) | (0x7f, _));
        // Servers that do not know a client's number yet take any (RFC 8446 s5.1).
        let is_taken = side == 0 && major == 3 && kind == RECORD_HANDSHAKE && !state.is_encrypted;
        let has_version = !is_odd || is_taken;
        if !is_known || !has_version || kind == RECORD_APPLICATION {
            state.is_done = true;
            self.has_failed |= !is_known || !has_version;
            match is_known {
                true if has_version => {}
                true if major != SSL2 => self.raise(AppEvent::TlsRecordVersion),
                true => {}
                false => self.raise(AppEvent::TlsRecordType),
            }
            return None;
        }
        let fragment = rest.get(..length)?.to_vec();
        let version = u16::from_be_bytes([major, minor]);
        state.said.version.get_or_insert(version);
        state.taken += 5 + length;
        if is_odd {
            self.raise(AppEvent::TlsRecordVersion);
        }
        let state = &mut self.sides[side];
        match kind {
            RECORD_CHANGE_CIPHER_SPEC => {
                state.is_encrypted = true;
                // Behind a retry it says nothing (RFC 8446 D.4): another hello follows in clear.
                let retries = self.sides[1].said.hello.as_ref().is_some_and(Hello::asks_again);
                self.sides[side].is_done = !retries;
                self.change_cipher(side);
            }
            RECORD_ALERT => self.alert(side, &fragment),
            RECORD_HEARTBEAT => self.heartbeat(side, length, Some(&fragment)),
            _ => {
                state.handshake.extend_from_slice(&fragment);
                return Some(self.messages(side));
            }
        }
        Some(false)
    }

    /// The same for a record of SSL 2.
    fn record_of_ssl2(&mut self, side: usize) -> Option<bool> {
        let record = ssl2::record(self.sides[side].rest())?;
        if let Some(fault) = record.fault {
            if fault == ssl2::Fault::Header {
                self.raise(AppEvent::TlsSsl2Header);
            }
            self.raise(AppEvent::TlsRecord);
            self.has_failed = true;
            self.sides[side].is_done = true;
            self.lose(side);
            return None;
        }
        if record.is_error {
            self.raise(AppEvent::TlsErrorMessage);
        }
        let greets = record.is_hello && side == 0;
        if greets {
            self.sides[0].has_greeted = true;
            self.progress[0].reach(state::HELLO);
            self.sides[0].said.version.get_or_insert(record.version);
        }
        self.sides[side].taken += record.length;
        Some(greets)
    }

    /// What was odd and not looked at with this side before.
    pub(crate) fn take_events(&mut self, side: usize) -> Vec<AppEvent> {
        std::mem::take(&mut self.fresh[side])
    }

    /// Whether something came that is no record, behind which nobody finds the next one.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn raise(&mut self, event: AppEvent) {
        if self.events.raise(event) {
            self.fresh.iter_mut().for_each(|it| it.push(event));
        }
    }

    /// A level and a description (RFC 5246 s7.2).
    fn alert(&mut self, side: usize, fragment: &[u8]) {
        match fragment {
            [_] => self.raise(AppEvent::TlsAlert),
            [ALERT_FATAL, ..] if !self.is_ciphered => self.close(side),
            _ => {}
        }
    }

    /// Whether encrypted data came behind both sides' hellos, and all that comes is records: one
    /// side alone makes nobody believe that.
    pub(crate) fn has_data(&self) -> bool {
        self.has_data && !self.has_failed && !self.sides.iter().any(|it| it.walk.is_odd())
    }

    /// Whether all that comes is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.sides.iter().all(|it| it.is_encrypted && it.is_done)
    }

    /// Calls `look` with each instance of the buffer until it says yes; whether it did.
    pub(crate) fn each(
        &self,
        side: usize,
        buffer: Buffer,
        look: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let said = &self.sides[side].said;
        let mut some = |bytes: &[u8]| !bytes.is_empty() && look(bytes);
        if let (Buffer::TlsCertificates, chain) = (buffer, &said.chain) {
            return chain.iter().any(|it| some(it));
        }
        if let Some(certificate) = &said.certificate {
            match buffer {
                Buffer::TlsSubject => return some(&certificate.subject),
                Buffer::TlsIssuer => return some(&certificate.issuer),
                Buffer::TlsSerial => return some(&certificate.serial),
                Buffer::TlsFingerprint => return some(&certificate.fingerprint),
                Buffer::TlsAlternativeName => {
                    return certificate.alternative_names.iter().any(|it| some(it));
                }
                _ => {}
            }
        }
        let Some(hello) = &said.hello else { return false };
        match (buffer, side) {
            (Buffer::TlsRandom, _) => some(&hello.random),
            (Buffer::TlsRandomTime, _) => some(hello.random.get(..4).unwrap_or_default()),
            (Buffer::TlsRandomBytes, _) => some(hello.random.get(4..).unwrap_or_default()),
            (Buffer::TlsAlpn, _) => hello.protocols.iter().any(|it| some(it)),
            (Buffer::TlsSni, 0) => hello.server_name.as_deref().is_some_and(some),
            (Buffer::Ja3Hash, 0) | (Buffer::Ja3sHash, 1) => some(&hello.ja3.hash),
            (Buffer::Ja3String, 0) | (Buffer::Ja3sString, 1) => some(&hello.ja3.line),
            (Buffer::Ja4Hash, 0) => some(&hello.ja4),
            _ => false,
        }
    }

    /// Takes the whole messages out of a side's handshake.
    fn messages(&mut self, side: usize) -> bool {
        let mut told = false;
        let mut handshake = std::mem::take(&mut self.sides[side].handshake);
        let mut taken = 0;
        while let Some((kind, body)) = message(&handshake[taken..]) {
            taken += 4 + body.len();
            match kind {
                CLIENT_HELLO | SERVER_HELLO => {
                    let is_client = kind == CLIENT_HELLO;
                    let hello = Hello::read(body, is_client);
                    hello.events.iter().for_each(|it| self.raise(*it));
                    let said = &mut self.sides[usize::from(!is_client)].said;
                    said.hello = Some(hello);
                    if is_client == (side == 0) {
                        self.sides[side].has_greeted = true;
                        self.progress[side].reach(state::HELLO);
                    }
                    self.see(
                        [SslState::ServerHello, SslState::ClientHello][usize::from(is_client)],
                    );
                    told = true;
                }
                CERTIFICATE => {
                    self.certificates(side, body);
                    told = true;
                }
                SERVER_HELLO_DONE if side == 1 => {
                    self.progress[1].reach(state::SERVER_HELLO_DONE);
                }
                CERTIFICATE_REQUEST if side == 1 => self.asks_client = true,
                SERVER_KEY_EXCHANGE => {
                    self.see(SslState::ServerKeyExchange);
                    told = true;
                }
                CLIENT_KEY_EXCHANGE => {
                    self.see(SslState::ClientKeyExchange);
                    told = true;
                }
                kind if !HANDSHAKES.contains(&kind) => self.raise(AppEvent::TlsHandshakeMessage),
                _ => {}
            }
        }
        // That it is none, its kind says before its end comes.
        if let [kind, _, _, _, ..] = handshake[taken..]
            && !HANDSHAKES.contains(&kind)
        {
            self.raise(AppEvent::TlsHandshakeMessage);
        }
        handshake.drain(..taken);
        self.sides[side].handshake = handshake;
        told
    }

    /// Notes that a message came.
    fn see(&mut self, state: SslState) {
        self.seen |= 1 << state as u8;
    }

    /// A chain of certificates (RFC 5246 s7.4.2).
    fn certificates(&mut self, side: usize, body: &[u8]) {
        let chain = certificates(body);
        let event = match is_chain(body) {
            true => chain.first().and_then(|it| check::fault(it)),
            false => Some(AppEvent::TlsCertificate),
        };
        let said = &mut self.sides[side].said;
        said.certificate = chain.first().and_then(|it| Certificate::read(it));
        said.chain = chain;
        let names = said.certificate.as_ref().map_or(0, |it| it.alternative_names.len());
        if side == 1 && names >= certificate::NAMES_MAX {
            self.raise(AppEvent::TlsManyAlternativeNames);
        }
        self.progress[side].reach(state::CERTIFICATE[side]);
        event.into_iter().for_each(|it| self.raise(it));
    }
}

/// The first message of a handshake, if it is whole: its type and body.
fn message(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    counted(rest, 3).map(|(body, _)| (*kind, body))
}

/// `length` bytes whose count is written in `width` bytes before them, and what follows.
pub(crate) fn counted(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_at_checked(width)?;
    let length = count.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

/// Messages of a handshake that may come in clear (RFC 5246 s7.4 and extensions).
const HANDSHAKES: [u8; 13] = [0, 1, 2, 4, 11, 12, 13, 14, 15, 16, 20, 21, 22];

/// Whether the lengths in a chain of certificates are those of what is there.
fn is_chain(body: &[u8]) -> bool {
    let Some((mut list, _)) = counted(body, 3) else { return true };
    while !list.is_empty() {
        let Some((_, rest)) = counted(list, 3) else { return false };
        list = rest;
    }
    true
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

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
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
        assert!(begins(0, &bytes) && begins(1, &bytes));
        for piece in 1..bytes.len() {
            let mut session = Session::default();
            let told = bytes.chunks(piece).map(|it| session.take(0, it)).filter(|it| *it).count();
            assert_eq!(told, 1, "{piece}");
            assert!(session.each(0, Buffer::TlsSni, &mut |it| it == b"www.example.org"));
        }
    }

    #[test]
    fn what_comes_before_a_hello_does_not_hide_it() {
        let hello = hello(b"www.example.org");
        let asked = record(0, b"");
        let in_one = [&[RECORD_HANDSHAKE, 3, 1, 0, hello[4] + 4, 0, 0, 0, 0], &hello[5..]].concat();
        let in_own = [asked.as_slice(), &asked, &hello].concat();
        let empty = [&[RECORD_HANDSHAKE, 3, 1, 0, 0], hello.as_slice()].concat();
        for bytes in [in_one, in_own, empty] {
            assert!(begins(0, &bytes) && begins(1, &bytes));
            let mut session = Session::default();
            assert!(session.take(0, &bytes));
            assert!(session.each(0, Buffer::TlsSni, &mut |it| it == b"www.example.org"));
            assert!(session.each(0, Buffer::Ja3Hash, &mut |it| it.len() == 32));
        }
    }

    /// Let go of one by one, they would take minutes.
    #[test]
    fn many_short_records_do_not_hide_a_hello() {
        let mut bytes = [RECORD_ALERT, 3, 1, 0, 0].repeat(1 << 20);
        bytes.extend(hello(b"www.example.org"));
        let mut session = Session::default();
        assert!(session.take(0, &bytes));
        assert!(session.each(0, Buffer::TlsSni, &mut |it| it == b"www.example.org"));
    }

    #[test]
    fn a_hello_that_a_server_asked_for_again_is_read_behind_a_change_of_ciphers() {
        let mut retry = vec![3, 3];
        retry.extend(hex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"));
        retry.extend([0, 0x13, 1, 0]);
        let change = [RECORD_CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];
        let data = [RECORD_APPLICATION, 3, 3, 0, 1, 9];
        for asks_again in [true, false] {
            let mut session = Session::default();
            session.take(0, &hello(b"first.example"));
            retry[2] ^= u8::from(!asks_again);
            session.take(1, &[&record(SERVER_HELLO, &retry)[..], &change].concat());
            session.take(0, &[&change[..], &hello(b"second.example")].concat());
            let is_second = session.each(0, Buffer::TlsSni, &mut |it| it == b"second.example");
            assert_eq!(is_second, asks_again);
            assert_eq!(session.is_encrypted(), !asks_again);
            for side in [0, 1] {
                session.take(side, &data);
            }
            assert!(session.is_encrypted());
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    }

    #[test]
    fn certificates_are_taken_apart() {
        let mut session = Session::default();
        let body = [0, 0, 9, 0, 0, 2, 0x30, 0, 0, 0, 1, 9];
        assert!(session.take(1, &record(CERTIFICATE, &body)));
        assert_eq!(session.sides[1].said.chain, [vec![0x30, 0], vec![9]]);
    }

    #[test]
    fn what_is_no_record_ends_the_look() {
        let mut session = Session::default();
        assert!(!session.take(0, b"\x0a / HTTP/1.1\r\n"));
        assert!(session.sides[0].is_done);
        assert_eq!(session.take_events(0), [AppEvent::TlsRecordType]);
        assert!(!session.take(0, &hello(b"a.org")));
    }

    #[test]
    fn what_is_odd_about_records_and_hellos_is_named() {
        use AppEvent::*;
        let whole = hello(b"a.org");
        let mut long = whole.clone();
        long[9 + 34] = 250;
        let mut kind = whole.clone();
        let at = whole.len() - 8;
        kind[at] = 1;
        let records: [(&[u8], &[AppEvent]); 11] = [
            (&whole, &[]),
            (&long, &[TlsHandshakeLength]),
            (&kind, &[TlsNameType]),
            (b"\x1e\x03\x01\0\x01a", &[TlsRecordType]),
            (b"\x15\x03\x01\0\x02\x02\x28", &[]),
            (b"\x16\x03\x09\0\x01a", &[TlsRecordVersion]),
            (b"\x15\x03\x01\0\x01\x02", &[TlsAlert]),
            (b"\x18\x03\x01\0\x03\x01\x40\0", &[TlsOverflowHeartbeat]),
            (b"\x18\x03\x01\0\x04\x01\0\x01a", &[TlsInvalidHeartbeat]),
            (b"\x16\x03\x01\0\x04\x63\0\0\0", &[TlsHandshakeMessage]),
            (b"\x16\x03\x01\0\x04\x63\xff\xff\xff", &[TlsHandshakeMessage]),
        ];
        for (record, events) in records {
            let mut session = Session::default();
            session.take(0, record);
            for side in [0, 1] {
                assert_eq!(session.take_events(side), events, "{record:?}");
            }
        }
    }
}
