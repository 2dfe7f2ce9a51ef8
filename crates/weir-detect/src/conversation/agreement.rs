//! Whether both sides of a connection begin the same application: what a client says and what a
//! server says are told apart, and where they do not agree that is odd.

use crate::application::{ApplicationChoice, TransportProtocol, behind_session_service, nfs};
use crate::buffers::{http, tls};
use crate::decode::Event;
use crate::rule::{Protocol, Speaks};

/// Bytes of a client after which it has not begun any application that is known: at the port of
/// HTTP, and elsewhere; and of a server. With these Suricata has looked for all of its marks.
const CLIENT_LEN_HTTP: usize = 25;
const CLIENT_LEN: usize = 17;
const SERVER_LEN: usize = 10;
const PORT_HTTP: u16 = 80;
const PORT_POP3: u16 = 110;
const PORT_NFS: u16 = 2049;
/// Bytes of one side that may come while the other is silent and nothing is told.
const ALONE_LEN_MAX: u64 = 100_000;

/// What a side has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    /// Too little was said.
    #[default]
    Open,
    Known(Protocol),
    /// None that is known.
    Other,
    /// A message that is whole, and too short to be known by.
    Cut,
}

/// Both sides.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    sides: [Begun; 2],
    /// Who spoke first.
    first: Option<usize>,
    /// The server said that it is ready, as those of FTP and SMTP do; at the port of POP3, whose
    /// clients begin as theirs, as one of POP3.
    is_greeted: bool,
    /// All was said that there is to say.
    is_over: bool,
    /// One side said much, the other nothing, and nothing is told.
    is_skipped: bool,
}

/// Whether a side has said so much that it would be known.
pub(super) fn is_long(side: usize, bytes: &[u8], port: u16) -> bool {
    let least = match (side, port) {
        (1, _) => SERVER_LEN,
        (_, PORT_HTTP) => CLIENT_LEN_HTTP,
        _ => CLIENT_LEN,
    };
    bytes.len() >= least
}

impl Agreement {
    /// Both have agreed to speak something else: what they began before counts no more.
    pub(super) fn change(&mut self) {
        (self.sides, self.is_over) = ([Begun::Open; 2], true);
    }

    /// Whether neither side has begun an application that is known.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.sides, [Begun::Other, Begun::Other | Begun::Cut]) || self.is_skipped
    }

    /// What a side speaks in a connection that is taken for that, as far as it has begun.
    pub(super) fn spoken(&self, side: usize, told: Protocol) -> Speaks {
        match self.sides[side] {
            // Where both sides have agreed on it.
            Begun::Known(Protocol::Http) if told == Protocol::Websocket => Speaks::Is(told),
            // Its clients begin with a word of FTP's.
            Begun::Known(Protocol::Ftp) if told == Protocol::Pop3 => Speaks::Is(told),
            Begun::Known(protocol) if !protocol.means(told) => Speaks::Is(protocol),
            // Of these both sides have a mark.
            Begun::Other
                if matches!(
                    told,
                    Protocol::Http | Protocol::Ssh | Protocol::Smb | Protocol::Nfs
                ) =>
            {
                Speaks::Failed
            }
            _ => Speaks::Is(told),
        }
    }

    /// A side's stream grew; `told` is what the connection is taken for. What is odd about that.
    pub(super) fn look(
        &mut self,
        side: usize,
        (window, before): (&[u8], u64),
        other_len: u64,
        (told, port): (Option<Protocol>, u16),
        choice: ApplicationChoice,
    ) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let first = *self.first.get_or_insert(side);
        let greeting: &[u8] = if port == PORT_POP3 { b"+OK" } else { b"220" };
        self.is_greeted |= side == 1 && window.starts_with(greeting);
        if self.sides[side] == Begun::Open {
            let known = begun(side, window);
            self.sides[side] = match known.filter(|it| !choice.is_off(TransportProtocol::Tcp, *it))
            {
                _ if before == 0 && (told == Some(Protocol::Nfs) || port == PORT_NFS) => {
                    begun_nfs(side, window)
                }
                Some(protocol) if before == 0 => Begun::Known(protocol),
                _ if before == 0 && behind_session_service(window).is_none() => Begun::Open,
                _ if before > 0 || is_long(side, window, port) => Begun::Other,
                _ => Begun::Open,
            };
        }
        let event = match (self.sides, told) {
            // A client of TLS speaks first.
            (_, Some(Protocol::Tls)) if first == 1 => Some(Event::ApplicationWrongSide),
            ([Begun::Known(one), Begun::Known(other)], _) => {
                self.is_over = true;
                (one != other).then_some(Event::ApplicationMismatch)
            }
            // Their servers greet in many ways.
            ([Begun::Known(Protocol::Ftp | Protocol::Smtp), Begun::Other], _) => {
                self.is_over = true;
                (!self.is_greeted).then_some(Event::ApplicationOneSided)
            }
            // What the client began has no mark, but it is known.
            ([Begun::Other, Begun::Known(server)], Some(client)) if client != server => {
                Some(Event::ApplicationMismatch)
            }
            ([Begun::Known(_), Begun::Other | Begun::Cut], _)
            | ([Begun::Other, Begun::Known(_)], _) => Some(Event::ApplicationOneSided),
            ([Begun::Other, Begun::Other], _) => {
                self.is_over = true;
                None
            }
            ([Begun::Known(_), _] | [_, Begun::Known(_)], _) => None,
            _ if before + window.len() as u64 > ALONE_LEN_MAX && other_len == 0 => {
                Some(Event::ApplicationSkipped)
            }
            _ => None,
        };
        self.is_over |= event.is_some();
        self.is_skipped |= event == Some(Event::ApplicationSkipped);
        event
    }
}

/// The application that a side begins, by bytes that no other begins with.
fn begun(side: usize, bytes: &[u8]) -> Option<Protocol> {
    let begins = |words: &[&[u8]]| {
        let is_head =
            |it: &&[u8]| bytes.get(..it.len()).is_some_and(|head| head.eq_ignore_ascii_case(it));
        words.iter().any(is_head)
    };
    Some(match (side, bytes) {
        (_, [b'S', b'S', b'H', b'-', ..]) => Protocol::Ssh,
        (_, [_, _, _, _, 0xff | 0xfe, b'S', b'M', b'B', ..]) => Protocol::Smb,
        _ if behind_session_service(bytes) == Some(true) => Protocol::Smb,
        (0, [0x16, 3, 0..=4, ..]) => Protocol::Tls,
        // In SSL 2's form, for servers that know no other.
        (0, [_, _, 1, 3, 0..=3, ..] | [_, _, 1, 0, 2, ..]) => Protocol::Tls,
        (1, [0x15..=0x17, 3, 0..=4, ..]) => Protocol::Tls,
        (0, _) if bytes.starts_with(b"PRI * HTTP/2.0") => Protocol::Http2,
        // A server begins with its settings.
        (1, [0, 0, _, 4, _, 0, 0, 0, 0, ..]) => Protocol::Http2,
        (0, _) if begins_http(bytes) => Protocol::Http,
        (1, _) if begins(&[b"HTTP/1.0", b"HTTP/1.1", b"HTTP/0.9"]) => Protocol::Http,
        (0, _) if begins(&[b"EHLO", b"HELO", b"QUIT"]) => Protocol::Smtp,
        (0, _) if begins(&[b"USER ", b"PASS ", b"PORT "]) => Protocol::Ftp,
        (1, _) if begins(&[b"220 ("]) => Protocol::Ftp,
        _ if tls::begins(side, bytes) => Protocol::Tls,
        _ => return None,
    })
}

/// Whether a side begins NFS.
fn begun_nfs(side: usize, bytes: &[u8]) -> Begun {
    match nfs::begins(side, bytes) {
        None => Begun::Open,
        Some(nfs::Beginning::Is) => Begun::Known(Protocol::Nfs),
        Some(nfs::Beginning::Not) => Begun::Other,
        Some(nfs::Beginning::Short) => Begun::Cut,
    }
}

/// A method that is known, and a blank.
fn begins_http(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(CLIENT_LEN)];
    let head: Vec<u8> = head.iter().map(|it| if *it == b'\t' { b' ' } else { *it }).collect();
    http::begins(&head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[(usize, &[u8])], told: Option<Protocol>) -> Vec<Event> {
        said_at(80, lines, told)
    }

    fn said_at(port: u16, lines: &[(usize, &[u8])], told: Option<Protocol>) -> Vec<Event> {
        let (mut agreement, mut sides) = (Agreement::default(), [Vec::new(), Vec::new()]);
        let (mut found, choice) = (Vec::new(), ApplicationChoice::default());
        for (side, bytes) in lines {
            sides[*side].extend_from_slice(bytes);
            let other = sides[1 - side].len() as u64;
            found.extend(agreement.look(*side, (&sides[*side], 0), other, (told, port), choice));
        }
        found
    }

    #[test]
    fn sides_that_do_not_agree_are_told_of_once() {
        let get = (0, b"GET / HTTP/1.1\r\n\r\n".as_slice());
        let http = Some(Protocol::Http);
        assert_eq!(said(&[get, (1, b"HTTP/1.1 200 OK\r\n\r\n"), (1, b"SSH-2.0-a\r\n")], http), []);
        assert_eq!(
            said(&[get, (1, b"SSH-2.0-OpenSSH_9.6\r\n"), (1, b"more")], http),
            [Event::ApplicationMismatch]
        );
        assert_eq!(
            said(&[get, (1, b"what the server says"), (1, b"more")], http),
            [Event::ApplicationOneSided]
        );
        assert_eq!(said(&[get, (1, b"too few")], http), []);
        let rdp = (0, b"\x03\0\0\x27\x22\xe0\0\0\0\0\0Cookie: mstshash=y".as_slice());
        assert_eq!(
            said(&[rdp, (1, b"HTTP/1.1 200 OK\r\n\r\n")], Some(Protocol::Rdp)),
            [Event::ApplicationMismatch]
        );
    }

    #[test]
    fn clients_of_pop3_begin_as_those_of_ftp() {
        let user = (0, b"USER bob\r\n".as_slice());
        let (ready, other) =
            ((1, b"+OK ready at last\r\n".as_slice()), (1, b"what is this?".as_slice()));
        let (pop3, ftp) = (Some(Protocol::Pop3), Some(Protocol::Ftp));
        assert_eq!(said_at(110, &[ready, user], pop3), []);
        assert_eq!(said_at(110, &[other, user], pop3), [Event::ApplicationOneSided]);
        assert_eq!(said_at(21, &[ready, user], ftp), [Event::ApplicationOneSided]);
    }

    #[test]
    fn a_server_that_begins_tls_is_on_the_wrong_side() {
        let tls = Some(Protocol::Tls);
        let hello = b"\x16\x03\x03\0\x50\x02\0\0\x4c";
        assert_eq!(said(&[(1, hello)], tls), [Event::ApplicationWrongSide]);
        assert_eq!(said(&[(0, hello), (1, hello)], tls), []);
    }

    #[test]
    fn nobody_knows_what_one_side_alone_says_at_length() {
        let long = vec![7; ALONE_LEN_MAX as usize + 1];
        assert_eq!(said(&[(0, &long)], None), [Event::ApplicationSkipped]);
        assert_eq!(said(&[(0, &long), (1, &long)], None), [Event::ApplicationSkipped]);
        assert_eq!(said(&[(1, b"what the server says"), (0, &long)], None), []);
    }
}
