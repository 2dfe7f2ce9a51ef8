//! Where a message's head ends, what is known of it before, and what it says of what follows.

use super::half::{Half, Head};
use super::transaction::begins_response;
use super::{Connection, Expect, Upgrade, odd};

/// Looks at a head that is not whole, at most; from then on it has to grow to twice its size first.
const LOOKS_MAX: u8 = 16;

/// How far bytes were looked through for the end of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Where the line begins that is not whole yet.
    pub(super) line: usize,
    /// Bytes that were looked at.
    looked_at: usize,
    /// Where the header begins that the next line may go on with; there the others are known.
    known: usize,
    /// Bytes of the head that were told, and how often some were.
    told: usize,
    looks: u8,
}

impl Search {
    /// Bytes through the empty line that ends headers; those before are the same as last time. A
    /// line of blanks is none: receivers take it for more of the header before.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let from = self.looked_at.min(bytes.len());
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            if *byte == b'\n' {
                match self.line {
                    0 => self.known = at + 1,
                    line if matches!(&bytes[line..at], b"" | b"\r") => return Some(at + 1),
                    line if !matches!(bytes[line], b' ' | b'\t') => self.known = line,
                    _ => {}
                }
                self.line = at + 1;
            }
        }
        // A line that begins with no blank ends the header before it.
        if self.line > 0 && bytes.get(self.line).is_some_and(|it| !b" \t\r\n".contains(it)) {
            self.known = self.line;
        }
        self.looked_at = bytes.len();
        None
    }

    /// Bytes that are known of a head whose end has not come, if they are to be told.
    fn begun(&mut self) -> Option<usize> {
        let is_due = self.looks < LOOKS_MAX || self.known / 2 >= self.told;
        if self.known <= self.told || !is_due {
            return None;
        }
        self.looks = self.looks.saturating_add(1);
        self.told = self.known;
        Some(self.known)
    }

    /// No more of the head is to come; whether that is new.
    pub(super) fn ends(&mut self) -> bool {
        std::mem::replace(&mut self.told, usize::MAX) < usize::MAX
    }
}

impl Connection {
    /// Tells what has come of a head that is not whole: its line, and headers that are. Who waits
    /// for its end sees a request too late, or never.
    pub(super) fn begin_head(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        if let Some(known) = self.sides[side].search.begun() {
            let number = self.put_head(side, &bytes[..known], Head::Begun);
            // Of a request, the rest belongs there.
            self.begun = self.begun.or(number.filter(|_| side == 0));
            progressed.extend(number);
        }
    }

    /// Tells a head of which no more comes; its transaction.
    pub(super) fn cut_head(&mut self, side: usize, bytes: &[u8]) -> Option<u64> {
        let number = self.put_head(side, bytes, Head::Cut)?;
        self.transaction(number)?.half_mut(side)?.complete();
        Some(number)
    }

    fn put_head(&mut self, side: usize, bytes: &[u8], head: Head) -> Option<u64> {
        if side == 0 {
            let mut half = Half::request(bytes);
            half.head = head;
            let mut events = Vec::new();
            if head == Head::Begun {
                odd::of_headers(&half.raw_headers, true, &mut events);
            }
            let number = self.push_request(half);
            self.sides[0].current = number;
            events.into_iter().for_each(|it| self.raise(0, it));
            return Some(number);
        }
        let number = self.sides[1].current;
        let transaction = self.transaction(number).filter(|_| begins_response(bytes))?;
        let mut half = Half::response(bytes);
        half.head = head;
        transaction.response = Some(half);
        Some(number)
    }
}

/// What a response that switches protocols goes on in.
pub(super) fn upgrade_of(half: &Half) -> Option<Upgrade> {
    let name = half.header(b"upgrade")?;
    let extensions = half.header(b"sec-websocket-extensions").unwrap_or_default();
    match () {
        () if name == b"h2c" => Some(Upgrade::Http2),
        () if name.eq_ignore_ascii_case(b"websocket") => {
            Some(Upgrade::Websocket { deflates: odd::contains(extensions, b"permessage-deflate") })
        }
        () => None,
    }
}

/// What follows the headers of `half`.
pub(super) fn body_of(half: &Half, is_response: bool) -> Expect {
    let encoding = half.header(b"transfer-encoding");
    if encoding.is_some_and(|it| it.to_ascii_lowercase().windows(7).any(|it| it == b"chunked")) {
        return Expect::ChunkSize;
    }
    match half.header(b"content-length").and_then(odd::length) {
        Some(0) => Expect::Head,
        Some(length) => Expect::Body(length),
        None if is_response => Expect::BodyToEnd,
        // Of a request that says neither where a body ends nor how it is sent: many a receiver
        // gives up, others read no body.
        None => Expect::Head,
    }
}

/// Whether anybody can read where the body of a message ends, as far as its head says that.
pub(super) fn is_framed(half: &Half, is_response: bool) -> bool {
    let encoding = half.header(b"transfer-encoding");
    match encoding.map(|it| it.to_ascii_lowercase().windows(7).any(|it| it == b"chunked")) {
        Some(true) => true,
        Some(false) if !is_response => false,
        _ => half.header(b"content-length").is_none_or(|it| odd::length(it).is_some()),
    }
}

/// The digits of a chunk's size (RFC 9112 s7.1). To most, `0x16` and `0_16` are an end; wget takes
/// the first for more, Python's libraries both, and what follows is their body.
pub(super) fn chunk_digits(line: &[u8]) -> String {
    let line = match line {
        [b'0', b'x' | b'X' | b'_', rest @ ..]
            if rest.first().is_some_and(u8::is_ascii_hexdigit) =>
        {
            rest
        }
        other => other,
    };
    let digits = line.iter().take_while(|it| it.is_ascii_hexdigit());
    digits.map(|it| char::from(*it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks_are_read_as_by_who_takes_most() {
        for (line, digits) in [
            ("16\r", "16"),
            ("1a;b=c", "1a"),
            ("0x16", "16"),
            ("0_16", "16"),
            ("1_6", "1"),
            ("0xg", "0"),
            ("x1", ""),
        ] {
            assert_eq!(chunk_digits(line.as_bytes()), digits, "{line}");
        }
    }

    #[test]
    fn a_head_ends_at_its_first_empty_line_and_each_byte_is_looked_at_once() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n \r\n\r\nbody\n\n";
        let mut search = Search::default();
        for known in 0..head.len() {
            let before = search.looked_at;
            match search.end(&head[..known]) {
                Some(end) => {
                    assert_eq!((end, known), (30, 30));
                    return;
                }
                None => assert_eq!((before, search.looked_at), (known.saturating_sub(1), known)),
            }
        }
        panic!("no end");
    }
}
