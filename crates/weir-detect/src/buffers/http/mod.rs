//! HTTP/1 (RFC 9112): both directions of a connection to transactions, and their parts to buffers.
//!
//! Chunked bodies are put together, compressed ones inflated.

mod inflate;
mod transaction;
mod uri;

use std::collections::VecDeque;

use crate::record::HttpRecord;
pub(crate) use transaction::{Fresh, Half, Transaction, is_body};

/// Transactions that wait for their response, at most; the oldest are let go.
const TRANSACTIONS_MAX: usize = 64;
/// Bytes of a request's method that no list knows, and of a line that begins with one.
const METHOD_LEN_MAX: usize = 32;
const REQUEST_LINE_MAX: usize = 4096;
/// Bytes of a start line and headers, at most; a longer one ends the look at that side.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Bytes of a chunk's size line, at most.
const CHUNK_LINE_MAX: usize = 256;

/// What a side's next bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    /// A start line and headers.
    #[default]
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// A body that the connection's end ends.
    BodyToEnd,
    /// The size of a chunk.
    ChunkSize,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line feed behind a chunk.
    ChunkEnd,
    /// Lines behind the last chunk.
    Trailer,
    /// Nothing that is HTTP.
    Nothing,
}

#[derive(Debug, Default)]
struct Side {
    expect: Expect,
    held: Vec<u8>,
    /// The transaction that its next bytes belong to.
    current: u64,
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    sides: [Side; 2],
    transactions: VecDeque<Transaction>,
    /// Number of the first in `transactions`.
    first: u64,
}

/// Whether a stream that begins so is a client's: a method and a space.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    const METHODS: &[&[u8]] = &[
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"PUT ",
        b"OPTIONS ",
        b"DELETE ",
        b"CONNECT ",
        b"TRACE ",
        b"PATCH ",
        b"PROPFIND ",
        b"PROPPATCH ",
        b"MKCOL ",
        b"COPY ",
        b"MOVE ",
        b"LOCK ",
        b"UNLOCK ",
        b"SEARCH ",
        b"DEBUG ",
        b"INDEX ",
        b"LINK ",
        b"UNLINK ",
        b"REPORT ",
        b"VERSION-CONTROL ",
        b"CHECKOUT ",
        b"CHECKIN ",
        b"SUBSCRIBE ",
        b"UNSUBSCRIBE ",
        b"NOTIFY ",
        b"M-SEARCH ",
        b"ARBITRARY ",
        b"RPC_CONNECT ",
        b"BPROPFIND ",
        b"POLL ",
        b"REQMOD ",
        b"RESPMOD ",
        b"INVALID ",
        b"TRACK ",
    ];
    METHODS.iter().any(|it| bytes.starts_with(it))
}

/// Whether a stream that begins so is a client's, whatever its method: a word first, the version
/// last in the line. `None`: too little was said.
pub(crate) fn begins_with_any_method(bytes: &[u8]) -> Option<bool> {
    let known = &bytes[..bytes.len().min(REQUEST_LINE_MAX)];
    let end = known.iter().position(|it| *it == b'\n');
    let line = &known[..end.unwrap_or(known.len())];
    let is_of_word = |it: &&u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
    let word = line.iter().take_while(is_of_word).count();
    let is_method =
        (1..=METHOD_LEN_MAX).contains(&word) && line.get(word).is_none_or(|it| *it == b' ');
    match (is_method, end) {
        (true, None) if known.len() < REQUEST_LINE_MAX => None,
        (true, Some(_)) => Some(line.windows(8).any(|it| it == b" HTTP/1.")),
        _ => Some(false),
    }
}

impl Connection {
    /// Takes in the next bytes of a side. `progressed` gets the number of each transaction that
    /// they brought further, once, in order.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        let mut held = std::mem::take(&mut self.sides[side].held);
        // Bytes of bodies mostly: they are not held, and so not copied.
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(bytes);
        }
        let given: &[u8] = if is_held { &held } else { bytes };
        let (mut used, length) = (0, given.len());
        while used < length && self.sides[side].expect != Expect::Nothing {
            match self.step(side, &given[used..], progressed) {
                Some(count) => used += count,
                None => break,
            }
        }
        if self.sides[side].expect == Expect::Nothing || length - used > HEAD_LEN_MAX {
            held = Vec::new();
            self.sides[side].expect = Expect::Nothing;
        } else if is_held {
            held.drain(..used);
        } else {
            held.extend_from_slice(&bytes[used..]);
        }
        self.sides[side].held = held;
        progressed.dedup();
    }

    /// The transaction of that number, unless it was let go.
    pub(crate) fn transaction(&mut self, number: u64) -> Option<&mut Transaction> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.transactions.get_mut(at)
    }

    /// What is told of transactions that were not told of before.
    pub(crate) fn records(&mut self) -> Vec<HttpRecord> {
        let numbered = (self.first..).zip(&mut self.transactions);
        let told = numbered.filter_map(|(number, it)| Some(HttpRecord { number, ..it.record()? }));
        told.collect()
    }

    /// Other rules run from here on.
    pub(crate) fn forget_rules(&mut self) {
        for transaction in &mut self.transactions {
            transaction.matched.clear();
            transaction.waiting = Default::default();
        }
    }

    /// The same, to look at.
    pub(crate) fn transaction_of(&self, number: u64) -> Option<&Transaction> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.transactions.get(at)
    }

    /// Bytes taken by what `side` expects; `None`: more are needed.
    fn step(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) -> Option<usize> {
        let current = self.sides[side].current;
        match self.sides[side].expect {
            Expect::Head => self.head(side, bytes, progressed),
            Expect::Body(left) | Expect::Chunk(left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                self.body(side, &bytes[..count], progressed);
                let left = left - count as u64;
                let is_chunk = matches!(self.sides[side].expect, Expect::Chunk(_));
                match (left, is_chunk) {
                    (0, true) => self.sides[side].expect = Expect::ChunkEnd,
                    (0, false) => self.complete(side, progressed),
                    (left, true) => self.sides[side].expect = Expect::Chunk(left),
                    (left, false) => self.sides[side].expect = Expect::Body(left),
                }
                Some(count)
            }
            Expect::BodyToEnd => {
                self.body(side, bytes, progressed);
                Some(bytes.len())
            }
            Expect::ChunkEnd => {
                let end = bytes.iter().position(|it| *it == b'\n');
                if end.is_none() && bytes.len() > CHUNK_LINE_MAX {
                    self.sides[side].expect = Expect::Nothing;
                }
                let end = end?;
                self.sides[side].expect = Expect::ChunkSize;
                Some(end + 1)
            }
            Expect::ChunkSize => {
                let Some(end) = bytes.iter().position(|it| *it == b'\n') else {
                    if bytes.len() > CHUNK_LINE_MAX {
                        self.sides[side].expect = Expect::Nothing;
                    }
                    return None;
                };
                let digits = bytes[..end].iter().take_while(|it| it.is_ascii_hexdigit());
                let text: String = digits.map(|it| char::from(*it)).collect();
                self.sides[side].expect = match u64::from_str_radix(&text, 16) {
                    Ok(0) => Expect::Trailer,
                    Ok(size) => Expect::Chunk(size),
                    Err(_) => Expect::Nothing,
                };
                Some(end + 1)
            }
            Expect::Trailer => {
                let end = bytes.iter().position(|it| *it == b'\n')?;
                if bytes[..end].trim_ascii().is_empty() {
                    self.complete(side, progressed);
                }
                progressed.push(current);
                Some(end + 1)
            }
            Expect::Nothing => None,
        }
    }

    fn head(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) -> Option<usize> {
        // Empty lines before a start line are passed over.
        let blank = bytes.iter().take_while(|it| matches!(it, b'\r' | b'\n')).count();
        let end = blank + head_len(&bytes[blank..])?;
        let head = &bytes[blank..end];
        if side == 0 {
            self.request(head, progressed);
        } else {
            self.response(head, progressed);
        }
        Some(end)
    }

    fn request(&mut self, head: &[u8], progressed: &mut Vec<u64>) {
        let Some(half) = Half::request(head) else {
            self.sides[0].expect = Expect::Nothing;
            return;
        };
        if self.transactions.len() == TRANSACTIONS_MAX {
            self.transactions.pop_front();
            self.first += 1;
        }
        let number = self.first + self.transactions.len() as u64;
        let expect = body_of(&half, false);
        let is_tunnel = half.method.as_slice() == b"CONNECT";
        self.transactions.push_back(Transaction { request: Some(half), ..Transaction::default() });
        self.sides[0].current = number;
        progressed.push(number);
        self.sides[0].expect = expect;
        if expect == Expect::Head {
            self.complete(0, progressed);
        }
        if is_tunnel {
            self.sides[0].expect = Expect::Nothing;
        }
    }

    fn response(&mut self, head: &[u8], progressed: &mut Vec<u64>) {
        let number = self.sides[1].current.max(self.first);
        self.sides[1].current = number;
        let Some(half) = Half::response(head) else {
            self.sides[1].expect = Expect::Nothing;
            return;
        };
        if self.transaction(number).is_none() {
            self.transactions.push_back(Transaction::default());
        }
        let Some(transaction) = self.transaction(number) else {
            self.sides[1].expect = Expect::Nothing;
            return;
        };
        let request = transaction.request.as_ref();
        let is_head = request.is_some_and(|it| it.method.as_slice() == b"HEAD");
        let status = half.status.clone();
        let is_interim = status.starts_with(b"1");
        let has_body = !is_head && !is_interim && !matches!(status.as_slice(), b"204" | b"304");
        let expect = if has_body { body_of(&half, true) } else { Expect::Head };
        transaction.response = Some(half);
        progressed.push(number);
        self.sides[1].expect = expect;
        if expect == Expect::Head && !is_interim {
            self.complete(1, progressed);
        }
    }

    fn body(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        let number = self.sides[side].current;
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
            half.add_body(bytes);
        }
        progressed.push(number);
    }

    fn complete(&mut self, side: usize, progressed: &mut Vec<u64>) {
        let number = self.sides[side].current;
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
            half.is_complete = true;
        }
        progressed.push(number);
        self.sides[side].expect = Expect::Head;
        if side == 1 {
            self.sides[1].current += 1;
        }
    }
}

/// Bytes through the empty line that ends headers.
fn head_len(bytes: &[u8]) -> Option<usize> {
    let mut line_start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            if bytes[line_start..at].trim_ascii().is_empty() && line_start > 0 {
                return Some(at + 1);
            }
            line_start = at + 1;
        }
    }
    None
}

/// What follows the headers of `half`.
fn body_of(half: &Half, is_response: bool) -> Expect {
    let encoding = half.header(b"transfer-encoding");
    if encoding.is_some_and(|it| it.to_ascii_lowercase().windows(7).any(|it| it == b"chunked")) {
        return Expect::ChunkSize;
    }
    let length = half.header(b"content-length");
    let length = length.and_then(|it| std::str::from_utf8(it.trim_ascii()).ok()?.parse().ok());
    match length {
        Some(0) => Expect::Head,
        Some(length) => Expect::Body(length),
        None if is_response => Expect::BodyToEnd,
        None => Expect::Head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Buffer;

    fn one(side: usize, connection: &mut Connection, buffer: Buffer) -> Vec<u8> {
        let mut found = Vec::new();
        let transaction = connection.transaction(0).unwrap();
        transaction.each(side, buffer, &mut |it| {
            found = it.to_vec();
            true
        });
        found
    }

    const REQUEST: &[u8] = b"POST /a%20b/../c?x=%41 HTTP/1.1\r\nHost: Example.ORG:80\r\n\
        Cookie: k=v\r\nContent-Length: 3\r\n\r\nabc";
    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

    #[test]
    fn both_sides_are_taken_apart_however_they_are_cut() {
        for piece in 1..60 {
            let mut connection = Connection::default();
            let mut progressed = Vec::new();
            REQUEST.chunks(piece).for_each(|it| connection.take(0, it, &mut progressed));
            RESPONSE.chunks(piece).for_each(|it| connection.take(1, it, &mut progressed));
            let request = |connection: &mut _, buffer| one(0, connection, buffer);
            assert_eq!(request(&mut connection, Buffer::HttpUri), b"/c?x=A");
            assert_eq!(request(&mut connection, Buffer::HttpUriRaw), b"/a%20b/../c?x=%41");
            assert_eq!(request(&mut connection, Buffer::HttpMethod), b"POST");
            assert_eq!(request(&mut connection, Buffer::HttpHost), b"example.org");
            assert_eq!(request(&mut connection, Buffer::HttpHostRaw), b"Example.ORG:80");
            assert_eq!(request(&mut connection, Buffer::HttpCookie), b"k=v");
            assert_eq!(request(&mut connection, Buffer::HttpRequestBody), b"abc");
            assert_eq!(
                request(&mut connection, Buffer::HttpHeader),
                b"Host: Example.ORG:80\r\nContent-Length: 3\r\n"
            );
            assert_eq!(
                request(&mut connection, Buffer::HttpHeaderNames),
                b"\r\nHost\r\nCookie\r\nContent-Length\r\n\r\n"
            );
            assert_eq!(one(1, &mut connection, Buffer::HttpStatusCode), b"200");
            assert_eq!(one(1, &mut connection, Buffer::FileData), b"abcde", "{piece}");
        }
    }

    #[test]
    fn requests_that_follow_each_other_are_told_apart() {
        let mut connection = Connection::default();
        let mut progressed = Vec::new();
        connection.take(0, b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n", &mut progressed);
        assert_eq!(progressed, [0, 1]);
        connection.take(1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &mut progressed);
        connection.take(1, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", &mut progressed);
        let second = connection.transaction(1).unwrap();
        assert_eq!(second.response.as_ref().unwrap().status, b"404");
    }

    #[test]
    fn what_is_not_http_ends_the_look() {
        let mut connection = Connection::default();
        connection.take(0, b"\x16\x03\x01\n\n\n", &mut Vec::new());
        assert_eq!(connection.sides[0].expect, Expect::Nothing);
        connection.take(1, &[b'a'; HEAD_LEN_MAX + 1], &mut Vec::new());
        assert!(connection.sides[1].held.is_empty());
    }
}
