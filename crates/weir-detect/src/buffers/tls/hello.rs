//! What a side's hello says (RFC 5246 s7.4.1, RFC 8446 s4.1).

use super::counted;
use super::ja3::{self, Fingerprint, is_grease, words};
use super::ja4;
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;

const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
/// The random bytes by which a server asks for another hello (RFC 8446 s4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Of a hello, its version and random bytes.
const HEAD_LEN: usize = 34;
/// Protocols that are offered and kept, at most.
const PROTOCOLS_MAX: usize = 64;

/// What a hello says.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    /// The version in its head, or the best of those in an extension.
    pub(super) version: u16,
    /// Those that a client offers, or the one that a server chose.
    pub(crate) versions: Vec<u16>,
    pub(super) random: Vec<u8>,
    pub(super) session: Vec<u8>,
    /// Suites that are offered; of a server the one that it chose.
    pub(super) suites: Vec<u16>,
    pub(crate) extensions: Vec<u16>,
    pub(crate) signature_algorithms: Vec<u16>,
    /// Whom a client asks for.
    pub(crate) server_name: Option<Vec<u8>>,
    /// What is to be spoken (ALPN).
    pub(crate) protocols: Vec<Vec<u8>>,
    pub(crate) ja3: Fingerprint,
    /// A client's.
    pub(crate) ja4: Vec<u8>,
    /// What Suricata makes of it, where that is something else.
    pub(super) ja4_of_suricata: Option<String>,
    /// What is odd about its lengths and names.
    pub(super) events: Vec<AppEvent>,
}
heap_size!(Hello {
    versions,
    random,
    session,
    suites,
    extensions,
    signature_algorithms,
    server_name,
    protocols
});

impl Hello {
    /// A client's, or a server's; of what is cut as much as is there.
    pub(crate) fn read(bytes: &[u8], is_client: bool) -> Self {
        let mut hello = Self::default();
        if hello.take(bytes, is_client).is_none() {
            hello.events.push(AppEvent::TlsHandshakeLength);
        }
        hello.ja3 = if is_client { ja3::of_client(bytes) } else { ja3::of_server(bytes) }
            .unwrap_or_default();
        if is_client {
            let (ja4, of_suricata) = ja4::of_client(bytes).unwrap_or_default();
            (hello.ja4, hello.ja4_of_suricata) = (ja4.into_bytes(), of_suricata);
        }
        hello
    }

    /// Whether it is a server's that asks the client for another.
    pub(super) fn asks_again(&self) -> bool {
        self.random == RETRY
    }

    /// `None`: a length reaches beyond the message.
    fn take(&mut self, bytes: &[u8], is_client: bool) -> Option<()> {
        self.version = u16::from_be_bytes(*bytes.first_chunk()?);
        self.random = bytes.get(2..HEAD_LEN)?.to_vec();
        let (session, rest) = counted(bytes.get(HEAD_LEN..)?, 1)?;
        self.session = session.to_vec();
        let rest = match is_client {
            true => {
                let (suites, rest) = counted(rest, 2)?;
                self.suites = words(suites).collect();
                if suites.len() % 2 != 0 {
                    return None;
                }
                counted(rest, 1)?.1
            }
            false => {
                let (suite, rest) = rest.split_at_checked(2)?;
                self.suites = words(suite).collect();
                rest.get(1..)?
            }
        };
        if rest.is_empty() {
            return Some(());
        }
        let (mut extensions, _) = counted(rest, 2)?;
        while !extensions.is_empty() {
            let (kind, rest) = extensions.split_at_checked(2)?;
            let (body, behind) = counted(rest, 2)?;
            extensions = behind;
            let kind = u16::from_be_bytes([kind[0], kind[1]]);
            self.extension(kind, body, is_client);
            self.extensions.push(kind);
        }
        Some(())
    }

    fn extension(&mut self, kind: u16, body: &[u8], is_client: bool) {
        match kind {
            SERVER_NAME if is_client => self.name(body),
            SIGNATURE_ALGORITHMS => {
                let list = counted(body, 2).map(|it| it.0).unwrap_or_default();
                self.signature_algorithms = words(list).collect();
            }
            PROTOCOLS => {
                let mut list = counted(body, 2).map(|it| it.0).unwrap_or_default();
                while let Some((name, behind)) = counted(list, 1) {
                    list = behind;
                    if self.protocols.len() < PROTOCOLS_MAX && !name.is_empty() {
                        self.protocols.push(name.to_vec());
                    }
                }
            }
            SUPPORTED_VERSIONS => {
                let body = if is_client { counted(body, 1).map(|it| it.0) } else { Some(body) };
                self.versions = words(body.unwrap_or_default()).collect();
                let named = self.versions.iter().copied().filter(|it| !is_grease(*it));
                self.version = named.max().unwrap_or(self.version);
            }
            _ => {}
        }
    }

    /// Whom a client asks for (RFC 6066 s3).
    fn name(&mut self, body: &[u8]) {
        if self.extensions.contains(&SERVER_NAME) {
            self.events.push(AppEvent::TlsManyNames);
        }
        match body {
            [_, _, 0, name @ ..] if counted(name, 2).is_none() => {
                self.events.push(AppEvent::TlsNameLength);
            }
            [_, _, kind, ..] if *kind != 0 => self.events.push(AppEvent::TlsNameType),
            _ => {}
        }
        if self.server_name.is_none() {
            let list = counted(body, 2).map(|it| it.0).unwrap_or_default();
            let name = list.get(1..).and_then(|it| counted(it, 2));
            self.server_name = name.map(|it| it.0.to_vec());
        }
    }
}
