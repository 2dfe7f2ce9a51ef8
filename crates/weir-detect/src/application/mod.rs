//! Applications beside HTTP, TLS, DNS and SSH: each is told by how a flow begins, and taken apart
//! by a parser of its own (docs/adr/0240).
//!
//! ```text
//!  stream, datagrams -> beginning -> parser -+- units: rules look at them, once each
//!                                            |- records: EVE's events
//!                                            `- announced: connections that will come
//! ```

mod begin;
pub(crate) mod ber;
mod bittorrent;
mod choice;
mod dcerpc;
mod dhcp;
mod dnp3;
pub(crate) mod enip;
mod expected;
mod file;
mod ftp;
mod ike;
mod krb5;
mod ldap;
mod mime;
mod modbus;
mod mqtt;
pub(crate) mod names;
pub(crate) mod nfs;
mod pgsql;
mod pop3;
mod quic;
mod rdp;
mod rfb;
mod rpc;
mod sdp;
mod sip;
mod small;
mod smb;
mod smtp;
mod snmp;
pub(crate) mod unit;
pub(crate) mod websocket;

use std::collections::VecDeque;
use std::fmt::Debug;

pub(crate) use begin::{Beginning, TransportProtocol, beginning, behind_session_service};
pub use choice::{ApplicationChoice, Wanted};
pub use expected::Expected;
pub(crate) use ldap::is_foreign as is_foreign_ldap;
use unit::{Announced, Objects, Said};

use crate::heap::{HeapSize, heap_size};
use crate::rule::Protocol;
use crate::value::Object;

/// Takes an application apart. Whatever comes, what it keeps is bounded.
pub(crate) trait Parser: Debug + Send + HeapSize {
    /// Takes in a side's next bytes, or its next datagram.
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said);

    /// So many bytes of a side are missing: whether what follows can still be read.
    fn lose(&mut self, _side: usize, _count: u64) -> bool {
        false
    }

    /// A side says no more.
    fn close(&mut self, _side: usize, _said: &mut Said) {}

    /// The flow ends: what was not told yet.
    fn end(&mut self, _said: &mut Said) {}

    /// What is told by now of a transaction, and of the files that a side sends with it.
    fn told_now(&self, _number: u64, _side: usize) -> Option<(Objects, Vec<Object>)> {
        None
    }

    /// Whether a stream that is looked at in chunks is to be looked at with what came last.
    fn asks_for_look(&self) -> bool {
        false
    }

    /// Whether from here on TLS is spoken.
    fn becomes_tls(&self) -> bool {
        false
    }

    /// Whether what came with the agreement to speak TLS, behind it, is none.
    fn is_followed(&self) -> bool {
        false
    }
}

/// What is spoken by datagrams. Nothing keeps a client from sending one of another application
/// first, which its server passes over: each that begins is taken apart, at most once a protocol.
#[derive(Debug)]
pub(crate) struct Dialogue {
    /// Of the last datagram that told one.
    pub(crate) protocol: Protocol,
    parsers: Vec<(Protocol, Option<Box<dyn Parser>>)>,
    choice: ApplicationChoice,
}

impl HeapSize for Dialogue {
    fn heap_size(&self) -> usize {
        self.parsers.iter().map(|it| it.1.heap_size()).sum()
    }
}

impl Dialogue {
    /// One that begins with such a datagram of `side`; `port` is the server's.
    pub(crate) fn begun(
        side: usize,
        bytes: &[u8],
        port: u16,
        choice: ApplicationChoice,
    ) -> Option<Self> {
        let protocol = told_by(side, bytes, port, choice)?;
        Some(Self { protocol, parsers: vec![(protocol, chosen(protocol, choice))], choice })
    }

    pub(crate) fn take(&mut self, side: usize, bytes: &[u8], port: u16, said: &mut Said) {
        if let Some(protocol) = told_by(side, bytes, port, self.choice) {
            let is_known = self.parsers.iter().any(|it| it.0 == protocol);
            if !is_known && side == 0 {
                self.parsers.push((protocol, chosen(protocol, self.choice)));
            }
            if is_known || side == 0 {
                self.protocol = protocol;
            }
        }
        let spoken = self.parsers.iter_mut().find(|it| it.0 == self.protocol);
        if let Some((_, Some(parser))) = spoken {
            parser.take(side, bytes, said);
        }
    }

    /// What there is to tell of it when its flow ends.
    pub(crate) fn end(&mut self) -> Said {
        let mut said = Said::default();
        for parser in self.parsers.iter_mut().filter_map(|it| it.1.as_mut()) {
            parser.end(&mut said);
        }
        said
    }
}

/// What a datagram begins, if that is looked for.
fn told_by(side: usize, bytes: &[u8], port: u16, choice: ApplicationChoice) -> Option<Protocol> {
    match beginning(TransportProtocol::Udp, side, bytes, port) {
        Beginning::Is(protocol) if !choice.is_off(TransportProtocol::Udp, protocol) => {
            Some(protocol)
        }
        _ => None,
    }
}

/// The parser of an application of datagrams, if it is to be taken apart.
fn chosen(protocol: Protocol, choice: ApplicationChoice) -> Option<Box<dyn Parser>> {
    let is_parsed = !choice.is_unparsed(protocol);
    is_parsed.then(|| parser(TransportProtocol::Udp, protocol)).flatten()
}

/// The parser of an application, where there is one.
pub(crate) fn parser(transport: TransportProtocol, protocol: Protocol) -> Option<Box<dyn Parser>> {
    let is_stream = transport == TransportProtocol::Tcp;
    Some(match protocol {
        Protocol::Sip if is_stream => Box::new(sip::Sip::of_streams()),
        Protocol::Sip => Box::new(sip::Sip::of_datagrams()),
        Protocol::Krb5 if is_stream => Box::new(krb5::Krb5::of_streams()),
        Protocol::Krb5 => Box::new(krb5::Krb5::default()),
        Protocol::Mqtt => Box::new(mqtt::Mqtt::default()),
        Protocol::Dhcp => Box::new(dhcp::Dhcp::default()),
        Protocol::Ntp => Box::new(small::Ntp::default()),
        Protocol::Tftp => Box::new(small::Tftp::default()),
        Protocol::Mdns => Box::new(small::Mdns::default()),
        Protocol::BittorrentDht => Box::new(bittorrent::Bittorrent::default()),
        Protocol::Modbus => Box::new(modbus::Modbus::default()),
        Protocol::Ldap => Box::new(ldap::Ldap::default()),
        Protocol::Dcerpc if is_stream => Box::new(dcerpc::Dcerpc::default()),
        Protocol::Dcerpc => Box::new(dcerpc::Datagrams::default()),
        Protocol::Smb => Box::new(smb::Smb::default()),
        Protocol::Ike => Box::new(ike::Ike::default()),
        Protocol::Pgsql => Box::new(pgsql::Pgsql::default()),
        Protocol::Dnp3 => Box::new(dnp3::Dnp3::default()),
        Protocol::Enip if is_stream => Box::new(enip::Enip::default()),
        Protocol::Enip => Box::new(enip::Enip::of_datagrams()),
        Protocol::Nfs if is_stream => Box::new(nfs::Nfs::of_streams()),
        Protocol::Nfs => Box::new(nfs::Nfs::of_datagrams()),
        Protocol::Pop3 => Box::new(pop3::Pop3::default()),
        Protocol::Quic => Box::new(quic::Quic::default()),
        Protocol::Rdp => Box::new(rdp::Rdp::default()),
        Protocol::Rfb => Box::new(rfb::Rfb::default()),
        Protocol::Smtp => Box::new(smtp::Smtp::default()),
        Protocol::Ftp => Box::new(ftp::Ftp::default()),
        Protocol::Snmp => Box::new(snmp::Snmp::default()),
        _ => return None,
    })
}

/// The parser of a connection for data that FTP has announced.
pub(crate) fn data_of_ftp(announced: Announced) -> Box<dyn Parser> {
    Box::new(ftp::Data::new(announced))
}

/// Requests that nobody has answered: those that wait, and those that were forgotten.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    forgotten: usize,
}

/// Requests without an answer that are not odd, at most (Suricata's limit of transactions).
const UNANSWERED_MAX: usize = 1024;

impl Unanswered {
    /// Makes room for one more among `most` that wait; whether there are too many without it.
    pub(crate) fn make_room<T>(&mut self, waiting: &mut VecDeque<T>, most: usize) -> bool {
        if waiting.len() == most {
            waiting.pop_front();
            self.forgotten += 1;
        }
        waiting.len() + self.forgotten > UNANSWERED_MAX
    }
}

/// A side's lines, each without its end.
#[derive(Debug)]
pub(crate) struct Lines {
    held: Vec<u8>,
    /// Bytes of a line, at most; what is behind them up to its end is passed over.
    max: usize,
    is_passing: bool,
}
heap_size!(Lines { held });

/// A line, and whether it was longer than it may be.
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_cut: bool,
}

impl Lines {
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Vec::new(), max, is_passing: false }
    }

    /// Takes bytes from the front of `rest`, up to the end of a line.
    pub(crate) fn next(&mut self, rest: &mut &[u8]) -> Option<Line> {
        let end = rest.iter().position(|it| *it == b'\n');
        let (taken, behind) = rest.split_at(end.map_or(rest.len(), |it| it + 1));
        *rest = behind;
        let room = self.max.saturating_sub(self.held.len());
        self.held.extend_from_slice(&taken[..taken.len().min(room)]);
        self.is_passing |= taken.len() > room;
        end?;
        let mut bytes = std::mem::take(&mut self.held);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        Some(Line { bytes, is_cut: std::mem::take(&mut self.is_passing) })
    }
}

/// A side's bytes until a message is whole.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// Bytes that are passed over before the next message.
    skipped: u64,
    /// Bytes were missing, and nobody knows where the next message begins.
    is_lost: bool,
}
heap_size!(Held { bytes });

/// Bytes of a message that waits for its rest, at most.
const HELD_MAX: usize = 128 * 1024;

impl Held {
    /// Takes in bytes; those that are passed over are gone.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let passed = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(bytes.len());
        self.skipped -= passed as u64;
        self.bytes.extend_from_slice(&bytes[passed..]);
    }

    /// So many bytes are missing. Of the message that is held, `length` is known, perhaps: what is
    /// left of it is passed over.
    pub(crate) fn lose(&mut self, count: u64, length: Option<u64>) {
        let held = std::mem::take(&mut self.bytes).len() as u64;
        let rest = match (self.skipped, length.filter(|_| held > 0)) {
            (0, Some(length)) => length.saturating_sub(held),
            (skipped, _) => skipped,
        };
        self.skipped = rest.saturating_sub(count);
        self.is_lost |= count > rest;
    }

    /// Takes in bytes, from where a message begins on if some were missing: `find` tells, of bytes
    /// of which the last `kept` are looked at again.
    pub(crate) fn add_from(
        &mut self,
        bytes: &[u8],
        kept: usize,
        find: impl Fn(&[u8]) -> Option<usize>,
    ) {
        self.add(bytes);
        if self.is_lost {
            let found = find(&self.bytes);
            self.is_lost = found.is_none();
            let passed = found.unwrap_or(self.bytes.len().saturating_sub(kept));
            self.bytes.drain(..passed);
        }
    }

    /// Whether it is not known where the next message begins.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets the first bytes, those to come included.
    pub(crate) fn drop(&mut self, count: u64) {
        let held = usize::try_from(count).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.drain(..held);
        self.skipped += count - held as u64;
    }

    /// The first `count` bytes, once they are there.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        (self.bytes.len() >= count).then(|| self.bytes.drain(..count).collect())
    }

    /// Whether more waits than may.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes.len() > HELD_MAX
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        for piece in 1..12 {
            let mut lines = Lines::new(6);
            let mut found = Vec::new();
            for bytes in b"ab\r\ncd\n0123456789\r\n\r\nx".chunks(piece) {
                let mut rest = bytes;
                while let Some(line) = lines.next(&mut rest) {
                    found.push((line.bytes, line.is_cut));
                }
            }
            let expected = [
                (b"ab".to_vec(), false),
                (b"cd".to_vec(), false),
                (b"012345".to_vec(), true),
                (Vec::new(), false),
            ];
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn messages_are_found_again_behind_what_is_missing() {
        let find = |it: &[u8]| it.iter().position(|it| *it == b'M');
        let mut held = Held::default();
        held.add(b"M12");
        // Of a message of eight bytes three are missing, then one more than there are.
        held.lose(3, Some(8));
        held.add_from(b"67Mab", 0, find);
        assert_eq!((held.is_lost(), held.bytes()), (false, &b"Mab"[..]));
        held.lose(6, Some(8));
        held.add_from(b"4567", 0, find);
        assert!(held.is_lost() && held.bytes().is_empty());
        held.add_from(b"xMc", 0, find);
        assert_eq!((held.is_lost(), held.bytes()), (false, &b"Mc"[..]));
    }

    #[test]
    fn what_is_passed_over_is_not_held() {
        let mut held = Held::default();
        held.add(b"abc");
        held.drop(5);
        held.add(b"defg");
        assert_eq!(held.bytes(), b"fg");
        assert_eq!(held.take(2), Some(b"fg".to_vec()));
        assert_eq!(held.take(1), None);
    }
}
