//! Where the units of protocols end in a stream.

use crate::buffers::ssh;
use crate::rule::Protocol;

/// How a side's bytes go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Too few are there to tell.
    Open,
    /// With a unit of so many bytes.
    Is(u64),
    /// So many bytes are none.
    Passed(u64),
    /// With nothing that has frames, from here on.
    Unknown,
}

/// What was said before and has to be known.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By side: SSH's further packets are encrypted.
    is_encrypted: [bool; 2],
    /// SMTP's client sends a mail.
    is_mail: bool,
    /// And has said that it will.
    is_announced: bool,
    /// RFB's messages of each side so far, and the authentication that the client chose.
    messages: [u8; 2],
    choice: u8,
}

/// What HTTP/2's clients begin with (RFC 9113 s3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SSH's message that all that follows is encrypted (RFC 4253 s7.3).
const NEWKEYS: u8 = 21;
/// Bytes of one of its packets, at most (Suricata passes over those that are longer).
const SSH_LEN_MAX: u64 = 256 * 1024;

impl State {
    /// How `bytes` of a side begin.
    pub(super) fn length(&mut self, protocol: Protocol, side: usize, bytes: &[u8]) -> Length {
        match protocol {
            Protocol::Tls => tls(bytes),
            Protocol::Smb => counted(bytes, 1, 3, 4),
            Protocol::Dns => counted(bytes, 0, 2, 2),
            Protocol::Nfs => match bytes.first_chunk() {
                Some(mark) => Length::Is(u64::from(u32::from_be_bytes(*mark) & 0x7fff_ffff) + 4),
                None => Length::Open,
            },
            Protocol::Http2 | Protocol::Doh2 => http2(bytes),
            Protocol::Websocket => websocket(bytes),
            Protocol::Mqtt => mqtt(bytes),
            Protocol::Enip => match bytes.get(2..4) {
                Some(length) => Length::Is(24 + u64::from(length[0]) + (u64::from(length[1]) << 8)),
                None => Length::Open,
            },
            Protocol::Ldap => ber(bytes),
            Protocol::Dcerpc => dcerpc(bytes),
            Protocol::Sip => sip(bytes),
            Protocol::Ssh => self.ssh(side, bytes),
            Protocol::Smtp => self.smtp(side, bytes),
            Protocol::Telnet => telnet(side, bytes),
            Protocol::Rfb => self.rfb(side, bytes),
            _ => Length::Unknown,
        }
    }

    fn ssh(&mut self, side: usize, bytes: &[u8]) -> Length {
        if self.is_encrypted[side] {
            return Length::Unknown;
        }
        if ssh::begins(bytes) {
            return match line(bytes) {
                Some(length) => Length::Passed(length),
                None => Length::Open,
            };
        }
        let (Some(length), Some(message)) = (number(bytes, 0, 4), bytes.get(5)) else {
            return Length::Open;
        };
        // This one goes on in clear.
        self.is_encrypted[side] = *message == NEWKEYS && bytes.len() as u64 >= length + 4;
        if length > SSH_LEN_MAX { Length::Unknown } else { Length::Is(length + 4) }
    }

    /// The messages of a handshake with a password (RFC 6143 s7.1 to 7.3), one after the other.
    fn rfb(&mut self, side: usize, bytes: &[u8]) -> Length {
        const PASSWORD: u8 = 2;
        let has_password = self.choice == PASSWORD;
        let length = match (side, self.messages[side]) {
            (_, 0) => Some(12),
            (1, 1) => bytes.first().map(|it| u64::from(*it) + 1),
            (0, 1) => {
                self.choice = bytes.first().copied().unwrap_or_default();
                Some(1)
            }
            (_, 2) if has_password => Some(16),
            (1, 3) if has_password => Some(4),
            (0, 3) if has_password => Some(1),
            (1, 4) => number(bytes, 20, 4).map(|it| it + 24),
            _ => return Length::Unknown,
        };
        let Some(length) = length else { return Length::Open };
        self.messages[side] += u8::from(bytes.len() as u64 >= length);
        Length::Is(length)
    }

    /// Lines, and the mail behind DATA to the line with a dot alone (RFC 5321 s4.1.1.4).
    fn smtp(&mut self, side: usize, bytes: &[u8]) -> Length {
        let Some(length) = line(bytes) else { return Length::Open };
        let words = &bytes[..length as usize];
        if side == 1 {
            let begins = self.is_announced && words.starts_with(b"354");
            self.is_mail |= begins;
            self.is_announced &= !begins;
            return Length::Is(length);
        }
        if !self.is_mail {
            self.is_announced = words.trim_ascii().eq_ignore_ascii_case(b"DATA");
            return Length::Is(length);
        }
        const END: &[u8] = b"\r\n.\r\n";
        let end = bytes.windows(END.len()).position(|it| it == END);
        match end {
            Some(end) => {
                self.is_mail = false;
                Length::Is((end + END.len()) as u64)
            }
            None => Length::Open,
        }
    }
}

/// A number of `count` bytes, the most significant first.
fn number(bytes: &[u8], at: usize, count: usize) -> Option<u64> {
    let digits = bytes.get(at..at + count)?;
    Some(digits.iter().fold(0, |sum, it| sum << 8 | u64::from(*it)))
}

/// A unit whose head of so many bytes says how long the rest is.
fn counted(bytes: &[u8], at: usize, count: usize, head: u64) -> Length {
    number(bytes, at, count).map_or(Length::Open, |it| Length::Is(it + head))
}

/// Bytes of the first line, its end included.
fn line(bytes: &[u8]) -> Option<u64> {
    Some(memchr::memchr(b'\n', bytes)? as u64 + 1)
}

/// A record (RFC 8446 s5.1), or a message of SSL 2.
fn tls(bytes: &[u8]) -> Length {
    match bytes {
        [first, second, kind, ..] if first & 0x80 != 0 && *kind <= 8 => {
            Length::Is((u64::from(first & 0x7f) << 8 | u64::from(*second)) + 2)
        }
        [0x14..=0x18, 3, ..] | [_] | [] => counted(bytes, 3, 2, 5),
        [first, _] if first & 0x80 != 0 => Length::Open,
        _ => Length::Unknown,
    }
}

/// The stream that a frame of HTTP/2 belongs to, if it is none of the connection's (RFC 9113 s4.1).
pub(super) fn stream_of(frame: &[u8]) -> Option<u32> {
    let stream = frame.get(5..9)?;
    let stream = u32::from_be_bytes([stream[0] & 0x7f, stream[1], stream[2], stream[3]]);
    (stream != 0).then_some(stream)
}

fn http2(bytes: &[u8]) -> Length {
    match bytes.len() < PREFACE.len() {
        true if PREFACE.starts_with(bytes) => Length::Open,
        _ if bytes.starts_with(PREFACE) => Length::Passed(PREFACE.len() as u64),
        _ => counted(bytes, 0, 3, 9),
    }
}

/// A frame (RFC 6455 s5.2).
fn websocket(bytes: &[u8]) -> Length {
    let Some(second) = bytes.get(1) else { return Length::Open };
    let mask = if second & 0x80 != 0 { 4 } else { 0 };
    match second & 0x7f {
        126 => counted(bytes, 2, 2, 4 + mask),
        127 => match number(bytes, 2, 8) {
            Some(length) => Length::Is(length.saturating_add(10 + mask)),
            None => Length::Open,
        },
        short => Length::Is(u64::from(short) + 2 + mask),
    }
}

/// A packet, whose length has one to four bytes of seven bits (MQTT 3.1.1 s2.2.3).
fn mqtt(bytes: &[u8]) -> Length {
    let digits = bytes.get(1..).unwrap_or_default();
    let more = digits.iter().take(4).take_while(|it| **it & 0x80 != 0).count();
    if more == 4 {
        return Length::Unknown;
    }
    if digits.len() <= more {
        return Length::Open;
    }
    let length = digits[..=more].iter().rev().fold(0, |sum, it| sum << 7 | u64::from(it & 0x7f));
    Length::Is(length + more as u64 + 2)
}

/// A command (RFC 854), a command with an option or what is said about one up to its end (RFC
/// 855), a line, or a server's question.
fn telnet(side: usize, bytes: &[u8]) -> Length {
    const COMMAND: u8 = 0xff;
    const ABOUT: u8 = 0xfa;
    const END: [u8; 2] = [COMMAND, 0xf0];
    let length = match bytes {
        [COMMAND] => None,
        [COMMAND, ABOUT, ..] => bytes.windows(2).position(|it| it == END).map(|it| it as u64),
        [COMMAND, 0xfb..=0xfe, _, ..] => Some(3),
        [COMMAND, 0xfb..=0xfe] => None,
        [COMMAND, ..] => Some(2),
        _ if side == 1 && bytes.ends_with(b": ") && line(bytes).is_none() => {
            Some(bytes.len() as u64)
        }
        _ => line(bytes),
    };
    length.map_or(Length::Open, Length::Is)
}

/// A value with its tag (X.690 s8.1).
fn ber(bytes: &[u8]) -> Length {
    let Some(first) = bytes.get(1) else { return Length::Open };
    match first {
        0..=0x7f => Length::Is(u64::from(*first) + 2),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            counted(bytes, 2, count, count as u64 + 2)
        }
        _ => Length::Unknown,
    }
}

/// A message of a connection (C706 s12.6).
fn dcerpc(bytes: &[u8]) -> Length {
    let (Some(order), Some(length)) = (bytes.get(4), bytes.get(8..10)) else {
        return Length::Open;
    };
    let length = [length[0], length[1]];
    let is_little = order & 0x10 != 0;
    match if is_little { u16::from_le_bytes(length) } else { u16::from_be_bytes(length) } {
        0..16 => Length::Unknown,
        length => Length::Is(length.into()),
    }
}

/// A head, and as much of a body as it says (RFC 3261 s18.3).
fn sip(bytes: &[u8]) -> Length {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = bytes.windows(END.len()).position(|it| it == END) else { return Length::Open };
    let lines = bytes[..end].split(|it| *it == b'\n');
    let mut lengths = lines.filter_map(|it| {
        let place = memchr::memchr(b':', it)?;
        let name = it[..place].trim_ascii();
        let is_length =
            name.eq_ignore_ascii_case(b"Content-Length") || name.eq_ignore_ascii_case(b"l");
        let value = is_length.then(|| it[place + 1..].trim_ascii())?;
        std::str::from_utf8(value).ok()?.parse::<u32>().ok()
    });
    let body = lengths.next_back().unwrap_or_default();
    Length::Is((end + END.len()) as u64 + u64::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(protocol: Protocol, bytes: &[u8]) -> Length {
        State::default().length(protocol, 0, bytes)
    }

    #[test]
    fn heads_tell_how_long_a_unit_is() {
        assert_eq!(length(Protocol::Tls, b"\x16\x03\x01\x00\x10..."), Length::Is(21));
        assert_eq!(length(Protocol::Tls, b"\x80\x2e\x01\x00\x02"), Length::Is(48));
        assert_eq!(length(Protocol::Smb, b"\0\0\x01\0"), Length::Is(260));
        assert_eq!(length(Protocol::Nfs, b"\x80\0\0\x28"), Length::Is(44));
        assert_eq!(length(Protocol::Mqtt, b"\x30\x80\x01"), Length::Is(131));
        assert_eq!(length(Protocol::Ldap, b"\x30\x82\x01\0"), Length::Is(260));
        assert_eq!(length(Protocol::Websocket, b"\x81\xfe\x01\0"), Length::Is(264));
        assert_eq!(length(Protocol::Http2, PREFACE), Length::Passed(24));
        assert_eq!(length(Protocol::Telnet, b"\xff\xfd\x18\xff"), Length::Is(3));
        assert_eq!(length(Protocol::Telnet, b"\xff\xfa\x18\x00vt\xff\xf0ls"), Length::Is(6));
        assert_eq!(length(Protocol::Telnet, b"ls\r\nps"), Length::Is(4));
        let bytes = [5, 0, 0, 3, 0x10, 0, 0, 0, 0x20, 0];
        assert_eq!(length(Protocol::Dcerpc, &bytes), Length::Is(32));
        let invite = b"INVITE sip:a SIP/2.0\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(length(Protocol::Sip, invite), Length::Is(invite.len() as u64));
    }

    #[test]
    fn what_is_too_short_stays_open_and_what_is_none_is_unknown() {
        assert_eq!(length(Protocol::Tls, b"\x16\x03\x01"), Length::Open);
        assert_eq!(length(Protocol::Tls, b"GET"), Length::Unknown);
        assert_eq!(length(Protocol::Http2, b"PRI * "), Length::Open);
        assert_eq!(length(Protocol::Mqtt, b"\x30\x80"), Length::Open);
        assert_eq!(length(Protocol::Mqtt, b"\x30\xff\xff\xff\xff"), Length::Unknown);
        assert_eq!(length(Protocol::Ssh, b"SSH-2.0-x"), Length::Open);
    }

    #[test]
    fn messages_of_a_handshake_follow_each_other() {
        let mut state = State::default();
        let mut length = |side, bytes: &[u8]| state.length(Protocol::Rfb, side, bytes);
        assert_eq!(length(1, b"RFB 003.008"), Length::Is(12));
        assert_eq!(length(1, b"RFB 003.008\n"), Length::Is(12));
        assert_eq!(length(0, b"RFB 003.008\n"), Length::Is(12));
        assert_eq!(length(1, b"\x02\x01\x02"), Length::Is(3));
        assert_eq!(length(0, b"\x02"), Length::Is(1));
        assert_eq!(length(1, &[0; 16]), Length::Is(16));
        assert_eq!(length(0, &[0; 16]), Length::Is(16));
        assert_eq!(length(1, &[0; 4]), Length::Is(4));
        assert_eq!(length(0, &[1]), Length::Is(1));
        assert_eq!(length(1, &[0; 24]), Length::Is(24));
        assert_eq!(length(1, b"pictures"), Length::Unknown);
    }

    #[test]
    fn a_mail_is_one_unit_behind_its_announcement() {
        let mut state = State::default();
        let mut length = |side, bytes: &[u8]| state.length(Protocol::Smtp, side, bytes);
        assert_eq!(length(0, b"DATA\r\n"), Length::Is(6));
        assert_eq!(length(1, b"354 go\r\n"), Length::Is(8));
        assert_eq!(length(0, b"Subject: x\r\n\r\n"), Length::Open);
        assert_eq!(length(0, b"Subject: x\r\n\r\ntext\r\n.\r\nQUIT\r\n"), Length::Is(23));
    }
}
