//! HTTP/1 (RFC 9112): both directions of a connection to transactions, and their parts to buffers.
//!
//! Chunked bodies are put together, compressed ones inflated.

mod begin;
mod behind;
mod files;
mod fit;
mod form;
mod half;
mod head;
pub(crate) mod http2;
mod inflate;
mod joined;
mod names;
mod odd;
mod told;
mod transaction;
mod uri;

use std::collections::VecDeque;

use crate::application::unit::Record;
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::record::HttpRecord;
use crate::ruleset::Successors;
pub(crate) use begin::{begins, begins_with_any_method, behind_blanks};
pub(crate) use half::{BODY_LEN, BodyWanted, Fresh, Half, Look};
use head::{Search, body_of, chunk_digits, is_framed, upgrade_of};
use transaction::begins_response;
pub(crate) use transaction::{Transaction, is_body, is_of_line};

/// Transactions that wait for their response, at most, when the next piece comes; the oldest are
/// let go.
const TRANSACTIONS_MAX: usize = 64;
/// Where in a side's bytes a message ends, and of which transaction it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageEnd {
    pub(crate) at: usize,
    pub(crate) number: u64,
}

/// Bytes of a start line and headers, at most; a longer one ends the look at that side.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Bytes of a line of them that Suricata looks at, at most; with a longer one it gives up.
const LINE_LEN_MAX: usize = 18_000;
/// Oddities of a connection that are told, at most; one more says that there are more.
const EVENTS_MAX: usize = 512;
/// Bytes of a chunk's size line, at most.
const CHUNK_LINE_MAX: usize = 256;
/// Bytes of a chunk, at most (Suricata's limit).
const CHUNK_LEN_MAX: u64 = i32::MAX as u64;

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
    /// What still follows a message in the same piece: the next one, or more of its body.
    Behind,
    /// The rest of a line there that is more of its body.
    BehindLine,
    /// Nothing that is known, until a line begins a request.
    Request,
    /// The rest of a line there.
    RequestLine,
    /// Nothing that is HTTP.
    Nothing,
}

#[derive(Debug, Default)]
struct Side {
    expect: Expect,
    held: Vec<u8>,
    /// How far `held` was looked through for the end of a head.
    search: Search,
    /// The transaction that its next bytes belong to.
    current: u64,
    /// Bytes of the line behind a message that were told as more of its body already.
    behind_told: usize,
    /// With the last bytes that were taken a message of that transaction ended.
    ended: Option<u64>,
    /// It has said that nothing more comes.
    is_closed: bool,
}
heap_size!(Side { held });

/// What follows HTTP/1 (RFC 9110 s7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    Http2,
    Websocket { deflates: bool },
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    sides: [Side; 2],
    transactions: VecDeque<Transaction>,
    /// Number of the first in `transactions`.
    first: u64,
    /// Oddities that came up.
    events: usize,
    /// Transactions with such as a side has not looked at.
    odd: [Vec<u64>; 2],
    /// A transaction whose request has begun, or whose response came before its request's end.
    begun: Option<u64>,
    /// What both sides have agreed to go on in.
    upgrade: Option<Upgrade>,
    /// A proxy has opened a tunnel (RFC 9110 s9.3.6): what follows may be anything.
    is_tunnel: bool,
    /// What the server said in the same piece behind that.
    behind_upgrade: Vec<u8>,
    /// Nobody knows where a message ends, or one is longer than is looked at.
    has_failed: bool,
    /// What somebody wants of the bodies of each side.
    pub(crate) wanted: [BodyWanted; 2],
    /// Where in the bytes at hand messages ended, where somebody asks.
    ends: Option<Vec<MessageEnd>>,
}
heap_size!(Connection { sides, transactions, behind_upgrade });

impl Connection {
    /// Whether all that a side began to say has ended.
    pub(crate) fn is_between_messages(&self, side: usize) -> bool {
        let Side { expect, held, .. } = &self.sides[side];
        held.is_empty() && matches!(expect, Expect::Head | Expect::Behind | Expect::Request)
    }

    /// Takes in the next bytes of a side. `progressed` gets the number of each transaction that
    /// they brought further, once, in order.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        // Not sooner: of what one piece brings, rules look at all.
        let surplus = self.transactions.len().saturating_sub(TRANSACTIONS_MAX);
        self.transactions.drain(..surplus);
        self.first += surplus as u64;
        self.sides[side].is_closed = false;
        let mut held = std::mem::take(&mut self.sides[side].held);
        // Bytes of bodies mostly: they are not held, and so not copied.
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(bytes);
        }
        let given: &[u8] = if is_held { &held } else { bytes };
        let (mut used, length) = (0, given.len());
        let before = length - bytes.len();
        while used < length && self.sides[side].expect != Expect::Nothing {
            match self.step(side, &given[used..], progressed) {
                Some(count) => used += count,
                None => break,
            }
            self.sides[side].search = Search::default();
            let ended = self.sides[side].ended.take();
            if let Some((ends, number)) = self.ends.as_mut().zip(ended) {
                ends.push(MessageEnd { at: used.saturating_sub(before), number });
            }
        }
        if (self.upgrade.is_some() || self.is_tunnel) && side == 1 {
            self.behind_upgrade = given[used..].to_vec();
        }
        if self.sides[side].expect == Expect::Behind && used == length {
            self.sides[side].expect = Expect::Head;
            if side == 1 {
                self.set_behind(true, progressed);
            }
        }
        let state = &mut self.sides[side];
        let rest = &given[used..];
        // Only in a head more than a line is held.
        let line = rest.len() - state.search.line;
        let is_too_long = line > LINE_LEN_MAX && state.expect != Expect::Nothing;
        if is_too_long {
            if side == 0 && state.expect == Expect::Head {
                self.sides[0].current = self.push_request(Half::request(rest));
            }
            self.raise(side, [AppEvent::HttpRequestTooLong, AppEvent::HttpResponseTooLong][side]);
            progressed.push(self.sides[side].current);
        } else if line < rest.len() && self.sides[side].expect == Expect::Head {
            self.begin_head(side, rest, progressed);
        }
        let is_over = self.sides[side].expect == Expect::Nothing;
        if is_over || is_too_long || length - used > HEAD_LEN_MAX {
            held = Vec::new();
            self.has_failed |= !is_over;
            self.sides[side].expect = if is_over { Expect::Nothing } else { lost(side) };
            self.sides[side].search = Search::default();
        } else if is_held {
            held.drain(..used);
        } else {
            held.extend_from_slice(&bytes[used..]);
        }
        self.sides[side].held = held;
        progressed.dedup();
    }

    /// So many bytes of a side are missing: as far as they are of a body, it is by so much shorter;
    /// anything else goes on as if they had not been.
    pub(crate) fn lose(&mut self, side: usize, count: u64) {
        let mut progressed = Vec::new();
        match self.sides[side].expect {
            Expect::Body(left) if left > count => {
                self.sides[side].expect = Expect::Body(left - count)
            }
            Expect::Body(_) => self.complete(side, &mut progressed),
            Expect::Chunk(left) if left > count => {
                self.sides[side].expect = Expect::Chunk(left - count);
            }
            Expect::Chunk(_) => self.sides[side].expect = Expect::ChunkEnd,
            Expect::BehindLine if side == 1 => self.set_behind(true, &mut progressed),
            _ => {}
        }
    }

    /// Whether its messages could not be told apart any more, although it is read on.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The transaction of that number, unless it was let go.
    pub(crate) fn transaction(&mut self, number: u64) -> Option<&mut Transaction> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.transactions.get_mut(at)
    }

    /// What is told of transactions that were not told of before, with all headers of those sides.
    pub(crate) fn records(&mut self, headers: [bool; 2]) -> Vec<HttpRecord> {
        let numbered = (self.first..).zip(&mut self.transactions);
        let told = |(number, it): (u64, &mut Transaction)| {
            Some(HttpRecord { number, ..it.record(headers)? })
        };
        numbered.filter_map(told).collect()
    }

    /// What is told of files of which more was to come when the connection ended.
    pub(crate) fn cut_files(&mut self) -> Vec<Record> {
        let numbered = (self.first..).zip(&mut self.transactions);
        let of_sides = numbered.flat_map(|(number, it)| {
            [0, 1].map(|side| it.take_cut_files(side, number)).into_iter().flatten()
        });
        of_sides.collect()
    }

    /// Other rules run from here on.
    pub(crate) fn change_rules(&mut self, successors: &Successors) {
        for transaction in &mut self.transactions {
            transaction.change_rules(successors);
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
            Expect::Head if side == 0 => self.head(side, bytes, progressed),
            Expect::Head => self.before_response(bytes, progressed),
            Expect::Behind => self.behind(side, bytes, progressed),
            Expect::BehindLine => Some(self.behind_line(side, bytes, progressed)),
            Expect::Request => self.next_request(side, bytes),
            Expect::RequestLine => {
                let end = memchr::memchr(b'\n', bytes);
                self.sides[side].expect = end.map_or(Expect::RequestLine, |_| Expect::Request);
                Some(end.map_or(bytes.len(), |it| it + 1))
            }
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
                    self.has_failed = true;
                    self.sides[side].expect = lost(side);
                    return Some(0);
                }
                let end = end?;
                self.sides[side].expect = Expect::ChunkSize;
                self.count_sent(side, end + 1);
                Some(end + 1)
            }
            Expect::ChunkSize => {
                let taken = self.chunk_size(side, bytes, progressed);
                self.count_sent(side, taken.unwrap_or_default());
                taken
            }
            Expect::Trailer => {
                let end = bytes.iter().position(|it| *it == b'\n')?;
                let (line, number) = (&bytes[..end], self.sides[side].current);
                if line.trim_ascii().is_empty() {
                    self.complete(side, progressed);
                } else if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side))
                {
                    half.put_trailer(line);
                }
                progressed.push(current);
                Some(end + 1)
            }
            Expect::Nothing => None,
        }
    }

    /// Counts bytes of a body that are none of what it carries.
    fn count_sent(&mut self, side: usize, bytes: usize) {
        let number = self.sides[side].current;
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
            half.sent += bytes as u64;
        }
    }

    /// Adds a transaction; its number.
    fn push(&mut self, transaction: Transaction) -> u64 {
        self.transactions.push_back(transaction);
        self.first + self.transactions.len() as u64 - 1
    }

    fn chunk_size(
        &mut self,
        side: usize,
        bytes: &[u8],
        progressed: &mut Vec<u64>,
    ) -> Option<usize> {
        let end = bytes.iter().position(|it| *it == b'\n');
        let line = &bytes[..end.unwrap_or(bytes.len())];
        let blanks = line.iter().take_while(|it| it.is_ascii_whitespace()).count();
        if blanks == line.len() && end.is_some() {
            return Some(line.len() + 1);
        }
        let text = chunk_digits(&line[blanks..]);
        let has_other = text.is_empty() && blanks < line.len();
        if end.is_none() && !has_other && bytes.len() <= CHUNK_LINE_MAX {
            return None;
        }
        let number = u64::from_str_radix(&text, 16).ok();
        let (size, end) = match (number.filter(|it| *it <= CHUNK_LEN_MAX), end) {
            (Some(size), Some(end)) => (size, end),
            _ => {
                // Whoever answers so is taken for one who sends to the end.
                let next = if side == 0 { Expect::Request } else { Expect::BodyToEnd };
                self.sides[side].expect = next;
                self.has_failed |= side == 0;
                if side == 1 {
                    self.raise(1, AppEvent::HttpResponseChunk);
                } else if end.is_none() || number.is_some() {
                    self.raise(0, AppEvent::HttpRequestChunk);
                }
                progressed.push(self.sides[side].current);
                return Some(0);
            }
        };
        if line.contains(&b';') {
            let events = [AppEvent::HttpRequestExtension, AppEvent::HttpResponseExtension];
            self.raise(side, events[side]);
        }
        self.sides[side].expect = if size == 0 { Expect::Trailer } else { Expect::Chunk(size) };
        Some(end + 1)
    }

    /// Adds a request, to the transaction that waits for it or to a new one; its number.
    fn push_request(&mut self, half: Half) -> u64 {
        if let Some(number) = self.begun.take()
            && let Some(transaction) = self.transaction(number)
        {
            transaction.request = Some(half);
            return number;
        }
        self.push(Transaction { request: Some(half), ..Transaction::default() })
    }

    /// Notes something odd about what a side says.
    fn raise(&mut self, side: usize, event: AppEvent) {
        self.raise_of(self.sides[side].current, side, event);
    }

    /// Notes something odd about what a side says in a transaction.
    fn raise_of(&mut self, number: u64, side: usize, event: AppEvent) {
        match self.transaction(number).and_then(|it| it.raise_again(side, event)) {
            Some(true) => return self.look_again(number),
            Some(false) => return,
            None => {}
        }
        self.events += 1;
        let event = match self.events {
            count if count > EVENTS_MAX => return,
            EVENTS_MAX => AppEvent::HttpWarnings,
            _ => event,
        };
        let first = self.first;
        let at = usize::try_from(number.saturating_sub(first)).unwrap_or_default();
        let last = self.transactions.len().saturating_sub(1);
        let at = at.min(last);
        if self.transactions.get_mut(at).is_some_and(|it| it.events.raise(event)) {
            self.look_again(first + at as u64);
        }
    }

    /// Both sides look at a transaction about which something is odd.
    fn look_again(&mut self, number: u64) {
        for odd in &mut self.odd {
            if !odd.contains(&number) && odd.len() < TRANSACTIONS_MAX {
                odd.push(number);
            }
        }
    }

    /// What both sides have agreed to go on in, once, and what the server has said of it.
    pub(crate) fn take_upgrade(&mut self) -> Option<(Upgrade, Vec<u8>)> {
        Some((self.upgrade.take()?, std::mem::take(&mut self.behind_upgrade)))
    }

    /// Whether what follows goes through a tunnel; and how much of it the server has said already.
    pub(crate) fn tunnel(&self) -> Option<usize> {
        self.is_tunnel.then_some(self.behind_upgrade.len())
    }

    /// The transaction that a side's next bytes belong to.
    pub(crate) fn current(&self, side: usize) -> u64 {
        self.sides[side].current
    }

    /// Notes where messages end, from here on.
    pub(crate) fn note_ends(&mut self) {
        self.ends = Some(Vec::new());
    }

    /// Where messages ended in the bytes that were taken last.
    pub(crate) fn take_ends(&mut self) -> Vec<MessageEnd> {
        self.ends.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The connection as it goes on in HTTP/2.
    pub(crate) fn take_http2(&mut self) -> http2::Connection {
        let transactions = std::mem::take(&mut self.transactions);
        let mut upgraded = http2::Connection::upgraded(transactions, self.first);
        upgraded.wanted = self.wanted;
        upgraded
    }

    /// Transactions about which something is odd that a side has not looked at; those that have no
    /// answer later, where somebody `awaits` that.
    pub(crate) fn take_odd(&mut self, side: usize, awaits: bool) -> Vec<u64> {
        let mut odd = std::mem::take(&mut self.odd[side]);
        let is_later = |it: &mut u64| {
            awaits && self.transaction_of(*it).is_some_and(|it| it.half(1).is_none())
        };
        self.odd[side] = odd.extract_if(.., is_later).collect();
        odd
    }

    fn head(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) -> Option<usize> {
        // Empty lines before a start line are passed over.
        let blank = bytes.iter().take_while(|it| matches!(it, b'\r' | b'\n')).count();
        if blank > 0 {
            return Some(blank);
        }
        let end = self.sides[side].search.end(bytes)?;
        let head = &bytes[..end];
        if side == 0 {
            self.request(head, &bytes[end..], progressed);
        } else {
            self.response(head, progressed);
        }
        Some(end)
    }

    /// A request's head, and what came behind it.
    fn request(&mut self, head: &[u8], behind: &[u8], progressed: &mut Vec<u64>) {
        let mut half = Half::request(head);
        if self.wanted[0].keeps_separators {
            half.keep_separators();
        }
        let expect = body_of(&half, false);
        self.has_failed |= !is_framed(&half, false);
        let is_tunnel = half.method.as_slice() == b"CONNECT";
        let line = head.split(|it| *it == b'\n').next().unwrap_or_default();
        let mut events = Vec::new();
        odd::of_request(&half, line.strip_suffix(b"\r").unwrap_or(line), behind, &mut events);
        let number = self.push_request(half);
        self.sides[0].current = number;
        events.into_iter().for_each(|it| self.raise(0, it));
        progressed.push(number);
        self.sides[0].expect = expect;
        if expect == Expect::Head {
            self.complete(0, progressed);
        }
        if is_tunnel {
            // What comes next, the response decides. A proxy that opens no tunnel goes on reading.
            self.sides[0].expect = Expect::Request;
        }
    }

    /// What stands where a response is expected. A line that begins none is a body without a head.
    fn before_response(&mut self, bytes: &[u8], progressed: &mut Vec<u64>) -> Option<usize> {
        let number = self.sides[1].current.max(self.first);
        self.sides[1].current = number;
        if self.transaction(number).is_none() {
            let number = self.push(Transaction::default());
            let asked = self.sides[0].held.trim_ascii();
            let is_line_cut = !asked.contains(&b'\n');
            match asked {
                [_, ..] if self.begun.is_none() => {
                    self.begun = Some(number);
                    if is_line_cut {
                        self.raise(1, AppEvent::HttpLineIncomplete);
                    }
                }
                _ => self.raise(1, AppEvent::HttpUnmatchedResponse),
            }
            progressed.push(number);
        }
        // A line that was looked through for a head's end begins one.
        if self.sides[1].search.line > 0 {
            return self.head(1, bytes, progressed);
        }
        let end = bytes.iter().position(|it| *it == b'\n');
        let line = &bytes[..end.map_or(bytes.len(), |it| it + 1)];
        if begins_response(line) {
            return self.head(1, bytes, progressed);
        }
        let behind = &bytes[end? + 1..];
        let length = line.trim_ascii_end().len();
        if length == 0 || (behind.len() > 1 && (behind[0] == b'H' || length <= 2)) {
            return Some(line.len());
        }
        let wanted = self.wanted[1];
        self.transaction(number)?.half_or_new(1).add_body(line, wanted);
        progressed.push(number);
        if behind.is_empty() {
            self.complete(1, progressed);
        }
        Some(line.len())
    }

    fn response(&mut self, head: &[u8], progressed: &mut Vec<u64>) {
        let number = self.sides[1].current;
        let half = Half::response(head);
        progressed.push(number);
        let Some(transaction) = self.transaction_of(number) else {
            self.sides[1].expect = Expect::Nothing;
            return;
        };
        let request = transaction.request.as_ref();
        let is_asked_by = |method: &[u8]| request.is_some_and(|it| it.method == method);
        let is_head = is_asked_by(b"HEAD");
        let mut events = Vec::new();
        odd::of_response(&half, is_head, &mut events);
        let status = half.status.clone();
        let is_for_tunnel = is_asked_by(b"CONNECT");
        let is_tunnel = is_for_tunnel && status.starts_with(b"2");
        let upgrade = upgrade_of(&half);
        // Clients pass over an offer that they did not ask for, as other interim responses.
        let has_asked = request.is_none_or(|it| it.header(b"upgrade").is_some());
        let framed = half.header(b"content-length").or(half.header(b"transfer-encoding"));
        let has_none = framed.is_none()
            && (status.starts_with(b"1") || matches!(status.as_slice(), b"204" | b"304"));
        let is_interim = status == b"100"
            && half.header(b"transfer-encoding").is_none()
            && half.header(b"content-length").and_then(odd::length).is_none_or(|it| it == 0);
        let expect = match is_head || has_none || is_interim || is_tunnel {
            true => Expect::Head,
            false => body_of(&half, true),
        };
        let has_failed = expect == Expect::BodyToEnd && !is_framed(&half, true);
        events.into_iter().for_each(|it| self.raise(1, it));
        let Some(transaction) = self.transaction(number) else { return };
        let is_again = is_interim && std::mem::replace(&mut transaction.was_continued, is_interim);
        transaction.response = Some(half);
        self.has_failed |= has_failed;
        if is_again {
            self.raise(1, AppEvent::HttpContinueAgain);
        }
        self.sides[1].expect = expect;
        if expect == Expect::Head && !is_interim {
            self.complete(1, progressed);
        }
        if is_for_tunnel && !is_tunnel && !is_interim {
            // The proxy opens none: the client goes on asking.
            let asks = &mut self.sides[0].expect;
            *asks = if *asks == Expect::Request { Expect::Head } else { *asks };
        }
        if is_tunnel || (status == b"101" && has_none && has_asked) {
            // What follows is another protocol.
            (self.upgrade, self.is_tunnel) = (upgrade.filter(|_| !is_tunnel), is_tunnel);
            self.sides[1].ended = Some(self.sides[1].current);
            self.sides.iter_mut().for_each(|it| it.expect = Expect::Nothing);
        }
    }

    fn body(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        let (number, wanted) = (self.sides[side].current, self.wanted[side]);
        let half = self.transaction(number).and_then(|it| it.half_mut(side));
        if let Some(event) = half.and_then(|it| it.add_body(bytes, wanted)) {
            self.raise(side, event);
        }
        progressed.push(number);
    }

    fn complete(&mut self, side: usize, progressed: &mut Vec<u64>) {
        let number = self.sides[side].current;
        let mut events = Vec::new();
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
            half.complete();
            if half.method == b"POST" {
                odd::of_form(half, &mut events);
            }
        }
        events.into_iter().for_each(|it| self.raise(side, it));
        progressed.push(number);
        (self.sides[side].expect, self.sides[side].ended) = (Expect::Behind, Some(number));
        if side == 1 {
            self.sides[1].current += 1;
        }
    }
}

/// What comes behind what is given up: servers that take it go on with the next request.
fn lost(side: usize) -> Expect {
    if side == 0 { Expect::RequestLine } else { Expect::Nothing }
}

#[cfg(test)]
mod tests;
