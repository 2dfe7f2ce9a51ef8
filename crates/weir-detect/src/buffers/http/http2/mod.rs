//! HTTP/2 in clear (RFC 9113): frames of both sides to transactions, one a stream.
//!
//! A frame that belongs to no stream but to the connection is a transaction of its own.

mod doh;
mod frame;
mod hpack;
mod huffman;
mod streams;
pub(super) mod tell;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use frame::{ERROR_NAMES, FRAME_NAMES, Frames, SETTINGS_NAMES};
use frame::{HEAD_LEN, Head};
use hpack::{Block, Decoder};
pub(super) use hpack::{Header, Note};
use streams::Streams;

use super::half::{BodyWanted, Data};
use super::transaction::Transaction;
use crate::application::unit::Record;
use crate::buffers::dns;
use crate::buffers::event::AppEvent;
use crate::heap::{heap_size, no_heap};
use crate::record::HttpRecord;
use crate::ruleset::Successors;

/// What a client begins with.
const MAGIC: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Transactions that are kept, at most, when the next piece comes; open ones are let go last.
const TRANSACTIONS_MAX: usize = 256;
/// Of one piece, so many: more than the frames of the longest piece that a port hands over whole.
const FRESH_MAX: usize = 8192;
/// Bytes of a frame other than data, and of a block of headers, at most; what is longer is passed
/// over, and what it would have had remembered with it.
const BLOCK_LEN_MAX: usize = 64 * 1024;
/// Bytes of headers that a block gives, at most; the rest is not looked at. Ten bytes may name a
/// long header again for a stream of its own: beyond so many of one piece, a block gives less.
const LIST_LEN_MAX: usize = 64 * 1024;
const LISTS_LEN_MAX: usize = 2 << 20;
const LIST_LEN_SMALL: usize = 4 * 1024;
/// Numbers of streams that were let go or are over, and that are remembered, at most.
const ODD_MAX: usize = 64;
/// Streams that are over and may go on in their transaction, at most.
const ENDED_MAX: usize = 1024;
/// Bytes of a priority within a frame of headers.
const PRIORITY_LEN: usize = 5;

/// What a side's next bytes are.
#[derive(Clone, Copy, Debug, Default)]
enum Expect {
    /// What a client begins with.
    Magic,
    #[default]
    Head,
    /// A whole frame.
    Frame(Head),
    /// So many bytes of data of a transaction.
    Data(Head, u64, usize),
    /// So many bytes that are not looked at.
    Skip(usize),
    /// Nothing that is HTTP/2.
    Nothing,
}

/// Headers whose block is not whole.
#[derive(Debug)]
struct Gathered {
    head: Head,
    /// The stream that it promises.
    promised: Option<u32>,
    block: Vec<u8>,
}
heap_size!(Gathered { block });

/// What a piece of a block of headers brought.
enum Gathering {
    /// It means nothing.
    Broken,
    /// More is to come.
    Begun,
    /// More came than is kept.
    TooLong,
    /// The head of its first frame, and what the block says.
    Whole(Head, Block),
}

#[derive(Debug, Default)]
struct Side {
    expect: Expect,
    held: Vec<u8>,
    decoder: Decoder,
    gathered: Option<Gathered>,
}
heap_size!(Side { held, decoder, gathered });

/// A stream that both sides ended: what comes in it in the same piece, and in the next of the other
/// side, is its transaction's still, for Suricata has not let that go then.
#[derive(Debug)]
struct Ended {
    stream: u32,
    number: u64,
    /// Who ended it last.
    side: usize,
    /// The other side sent a piece behind it.
    is_passed: bool,
}
no_heap!(Ended);

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    sides: [Side; 2],
    transactions: Streams,
    /// Streams that both sides ended.
    ended: VecDeque<Ended>,
    /// Transactions with something odd that a side has not looked at.
    odd: [Vec<u64>; 2],
    /// Bytes of headers that the blocks of the piece at hand gave.
    listed: usize,
    /// A client began with something else.
    pub(crate) has_failed: bool,
    /// What somebody wants of the bodies of each side.
    pub(crate) wanted: [BodyWanted; 2],
    /// Messages of DNS that were not handed over.
    dns: Vec<dns::Message>,
    /// Some came.
    pub(crate) carries_dns: bool,
}
heap_size!(Connection { sides, transactions, ended, odd, dns });

/// Whether a stream that begins so is a client's.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl Connection {
    /// One that both sides agree on from its beginning.
    pub(crate) fn new() -> Self {
        let mut connection = Self::default();
        connection.sides[0].expect = Expect::Magic;
        connection
    }

    /// One that goes on from HTTP/1 (`Upgrade: h2c`), with the transactions there, the first of
    /// which has that number.
    pub(super) fn upgraded(transactions: VecDeque<Transaction>, first: u64) -> Self {
        // The request that asked for it is the first stream's (RFC 7540 s3.2).
        let asked = transactions.back().map(Transaction::request_fields).unwrap_or_default();
        let transactions = Streams::behind(transactions, first);
        let mut upgraded = Self { transactions, ..Self::new() };
        let number = upgraded.of_stream(1);
        if let Some(transaction) = upgraded.transaction(number) {
            transaction.half_or_new(0).put_fields(asked, &[]);
        }
        upgraded.end(number, 0);
        upgraded
    }

    /// Takes in the next bytes of a side. `progressed` gets the number of each transaction that
    /// they brought further.
    pub(crate) fn take(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) {
        self.transactions.shrink(TRANSACTIONS_MAX);
        self.listed = 0;
        self.forget_ended(side);
        let mut held = std::mem::take(&mut self.sides[side].held);
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(bytes);
        }
        let given: &[u8] = if is_held { &held } else { bytes };
        let mut used = 0;
        while used < given.len() {
            match self.step(side, &given[used..], progressed) {
                Some(count) => used += count,
                None => break,
            }
        }
        let rest = given[used..].to_vec();
        let is_over = matches!(self.sides[side].expect, Expect::Nothing);
        self.sides[side].held = if is_over { Vec::new() } else { rest };
        progressed.sort_unstable();
        progressed.dedup();
    }

    /// Streams that are over begin anew.
    fn forget_ended(&mut self, side: usize) {
        let Self { ended, transactions, .. } = self;
        ended.retain_mut(|it| {
            let is_gone = it.side == side || it.is_passed;
            it.is_passed = true;
            if is_gone {
                transactions.forget(it.stream, it.number);
            }
            !is_gone
        });
    }

    /// Bytes taken by what `side` expects; `None`: more are needed.
    fn step(&mut self, side: usize, bytes: &[u8], progressed: &mut Vec<u64>) -> Option<usize> {
        match self.sides[side].expect {
            Expect::Magic => {
                let magic = bytes.get(..MAGIC.len())?;
                let is_right = magic == MAGIC;
                self.sides[side].expect = if is_right { Expect::Head } else { Expect::Nothing };
                if !is_right {
                    let number = self.push(0, Transaction::default());
                    self.raise(side, number, AppEvent::Http2Magic);
                    self.has_failed = true;
                }
                Some(MAGIC.len())
            }
            Expect::Head => {
                let head = Head::of(bytes)?;
                self.begin(side, head, progressed);
                Some(HEAD_LEN)
            }
            Expect::Frame(head) => {
                let payload = bytes.get(..head.length)?;
                self.sides[side].expect = Expect::Head;
                self.frame(side, head, payload, progressed);
                Some(head.length)
            }
            Expect::Data(head, number, left) => {
                let count = left.min(bytes.len());
                let left = left - count;
                // It may have been let go meanwhile.
                let number = match self.transaction(number) {
                    Some(_) => number,
                    None => self.of_stream(head.stream),
                };
                progressed.push(number);
                self.data(side, (head, number), &bytes[..count], left == 0);
                self.sides[side].expect =
                    if left == 0 { Expect::Head } else { Expect::Data(head, number, left) };
                Some(count)
            }
            Expect::Skip(left) => {
                let count = left.min(bytes.len());
                let left = left - count;
                self.sides[side].expect = if left == 0 { Expect::Head } else { Expect::Skip(left) };
                Some(count)
            }
            Expect::Nothing => None,
        }
    }

    /// A frame begins.
    fn begin(&mut self, side: usize, head: Head, progressed: &mut Vec<u64>) {
        self.sides[side].expect = match head {
            Head { kind: frame::DATA, flags, length, .. }
                if flags & frame::PADDED == 0 && length > 0 =>
            {
                let number = self.of_frame(side, &head);
                Expect::Data(head, number, length)
            }
            Head { length, .. } if length <= BLOCK_LEN_MAX => Expect::Frame(head),
            Head { length, .. } => {
                let number = self.of_stream(head.stream);
                self.raise(side, number, AppEvent::Http2LongFrame);
                Expect::Skip(length)
            }
        };
        if matches!(self.sides[side].expect, Expect::Frame(Head { length: 0, .. })) {
            // Nothing of it is still to come.
            self.sides[side].expect = Expect::Head;
            self.frame(side, head, &[], progressed);
        }
    }

    /// The transaction of a frame that begins, with what is odd about that.
    fn of_frame(&mut self, side: usize, head: &Head) -> u64 {
        let number = self.of_stream(head.stream);
        let is_late =
            !matches!(head.kind, frame::PRIORITY | frame::RST_STREAM | frame::WINDOW_UPDATE);
        let is_over = self.transaction(number).is_some_and(|it| it.is_over());
        let events = [
            (is_late && is_over).then_some(AppEvent::Http2StreamReuse),
            head.odd_length(),
            (head.kind == frame::DATA && head.stream == 0).then_some(AppEvent::Http2DataStreamZero),
        ];
        events.into_iter().flatten().for_each(|it| self.raise(side, number, it));
        number
    }

    /// A frame other than data without padding, whole.
    fn frame(&mut self, side: usize, mut head: Head, payload: &[u8], progressed: &mut Vec<u64>) {
        // Settings that say nothing, such as an acknowledgment, are no transaction.
        if head.kind == frame::SETTINGS && head.length == 0 {
            return;
        }
        let payload = unpadded(&head, payload);
        let is_of_headers =
            matches!(head.kind, frame::HEADERS | frame::PUSH_PROMISE | frame::CONTINUATION);
        let gathering = match payload {
            Some(payload) if is_of_headers => self.gather(side, &mut head, payload),
            Some(_) => Gathering::Begun,
            None => Gathering::Broken,
        };
        let number = self.of_frame(side, &head);
        progressed.push(number);
        let payload = payload.unwrap_or_default();
        match (gathering, head.kind) {
            (Gathering::Broken, _) => {
                self.raise(side, number, AppEvent::Http2FrameData);
                return;
            }
            (Gathering::TooLong, _) => self.raise(side, number, AppEvent::Http2TooLong),
            (Gathering::Whole(first, block), _) => self.put(side, number, first, block),
            (_, frame::DATA) => return self.data(side, (head, number), payload, true),
            (_, frame::RST_STREAM) => {
                self.transactions.end(number, true);
                let transaction = self.transaction(number);
                let halves = transaction.map(|it| [it.request.as_mut(), it.response.as_mut()]);
                // Nobody waits for more of it, although some may come.
                halves.into_iter().flatten().flatten().for_each(|it| it.is_cut = true);
            }
            _ => {}
        }
        if let Some(transaction) = self.transaction(number) {
            transaction.frames_mut(side).take(&head, payload);
        }
    }

    /// Takes in a piece of a block of headers. What is promised is the promised stream's, unless
    /// the connection's is named.
    fn gather(&mut self, side: usize, head: &mut Head, payload: &[u8]) -> Gathering {
        let state = &mut self.sides[side];
        let mut promised = None;
        let piece = match head.kind {
            frame::HEADERS if head.has(frame::HAS_PRIORITY) => payload.get(PRIORITY_LEN..),
            frame::PUSH_PROMISE => payload.split_first_chunk().map(|(stream, rest)| {
                promised = Some(u32::from_be_bytes(*stream) & 0x7fff_ffff);
                rest
            }),
            _ => Some(payload),
        };
        let Some(piece) = piece else { return Gathering::Broken };
        let is_more = head.kind == frame::CONTINUATION;
        let begun = state.gathered.take();
        let begun = begun.filter(|it| is_more && it.head.stream == head.stream);
        // As Suricata does, what begins otherwise is read as if it were whole.
        let is_whole = head.has(frame::END_HEADERS) || begun.is_none() && is_more;
        let new = || Gathered { head: *head, promised, block: Vec::new() };
        let mut gathered = begun.unwrap_or_else(new);
        gathered.block.extend_from_slice(piece);
        if gathered.block.len() > BLOCK_LEN_MAX {
            return Gathering::TooLong;
        }
        if !is_whole {
            state.gathered = Some(gathered);
            return Gathering::Begun;
        }
        let room = if self.listed < LISTS_LEN_MAX { LIST_LEN_MAX } else { LIST_LEN_SMALL };
        let block = state.decoder.take(&gathered.block, room);
        if block.is_broken {
            return Gathering::Broken;
        }
        self.listed += block.len;
        if let Some(stream) = gathered.promised.filter(|_| head.stream != 0) {
            head.stream = stream;
        }
        Gathering::Whole(gathered.head, block)
    }

    /// Puts a block's headers, whose first frame had that head.
    fn put(&mut self, side: usize, number: u64, head: Head, block: Block) {
        let events = [
            block.is_odd.then_some(AppEvent::Http2Header),
            block.is_table_full.then_some(AppEvent::Http2TableOverflow),
        ];
        events.into_iter().flatten().for_each(|it| self.raise(side, number, it));
        let Some(transaction) = self.transaction(number) else { return };
        transaction.frames_mut(side).resize(&block.sizes);
        let is_kept = transaction.half_or_new(side).put_fields(block.headers, &block.notes);
        if block.is_cut || !is_kept {
            self.raise(side, number, AppEvent::Http2TooLong);
        }
        if head.kind == frame::HEADERS && head.has(frame::END_STREAM) {
            self.end(number, side);
        }
        self.check(number, side);
    }

    /// Takes in data of a stream; with `is_whole`, to the end of its frame.
    fn data(&mut self, side: usize, (head, number): (Head, u64), bytes: &[u8], is_whole: bool) {
        let wanted = self.wanted[side];
        let Some(transaction) = self.transaction(number) else { return };
        let frames = transaction.frames_mut(side);
        if frames.kinds.last() != Some(&frame::DATA) {
            frames.take(&head, &[]);
        }
        if head.stream == 0 {
            return;
        }
        let half = transaction.half_or_new(side);
        // Behind its end nothing belongs to a file.
        if half.data == Data::Whole {
            return;
        }
        half.data = Data::Part;
        let is_bomb = half.add_body(bytes, wanted).is_some();
        let is_end = is_whole && head.has(frame::END_STREAM);
        if is_end {
            half.data = Data::Whole;
        }
        if is_bomb {
            self.raise(side, number, AppEvent::Http2Bomb);
        }
        if is_end {
            self.end(number, side);
        }
    }

    /// A side says no more in a stream.
    fn end(&mut self, number: u64, side: usize) {
        let half = self.transaction(number).and_then(|it| it.half_mut(side));
        // Nine bytes say it again: its body is read once.
        let Some(half) = half.filter(|it| !it.is_complete) else { return };
        half.complete();
        let message = doh::message(half, side).and_then(|it| dns::parse(&it));
        self.carries_dns |= message.is_some();
        self.dns.extend(message);
        if let Some(stream) = self.transactions.end(number, false) {
            if self.ended.len() == ENDED_MAX
                && let Some(Ended { stream, number, .. }) = self.ended.pop_front()
            {
                self.transactions.forget(stream, number);
            }
            self.ended.push_back(Ended { stream, number, side, is_passed: false });
        }
    }

    /// Messages of DNS that streams have carried since this was asked last.
    pub(crate) fn take_dns(&mut self) -> Vec<dns::Message> {
        std::mem::take(&mut self.dns)
    }

    /// What is odd about whom a request is for.
    fn check(&mut self, number: u64, side: usize) {
        let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) else { return };
        let Some(authority) = half.header(b":authority") else { return };
        let is_other = |host: &[u8]| !host.eq_ignore_ascii_case(authority);
        let differs = half.header(b"host").is_some_and(is_other);
        let has_user = authority.contains(&b'@');
        if differs {
            self.raise(side, number, AppEvent::Http2HostMismatch);
        }
        if has_user {
            self.raise(side, number, AppEvent::Http2UserInfo);
        }
    }

    /// The transaction of a stream.
    pub(crate) fn find(&self, stream: u32) -> Option<u64> {
        self.transactions.find(stream)
    }

    /// The transaction of a stream, a new one where there is none; of the connection always a new
    /// one.
    fn of_stream(&mut self, stream: u32) -> u64 {
        match self.transactions.find(stream) {
            Some(number) => number,
            None => self.push(stream, Transaction::of_stream(stream)),
        }
    }

    fn push(&mut self, stream: u32, transaction: Transaction) -> u64 {
        self.transactions.shrink(FRESH_MAX - 1);
        self.transactions.push(stream, transaction)
    }

    fn raise(&mut self, side: usize, number: u64, event: AppEvent) {
        let transaction = self.transaction(number);
        let is_new = transaction.is_some_and(|it| {
            it.raise_again(side, event).unwrap_or_else(|| it.events.raise(event))
        });
        for odd in self.odd.iter_mut().filter(|_| is_new) {
            if !odd.contains(&number) && odd.len() < ODD_MAX {
                odd.push(number);
            }
        }
    }

    /// Transactions about which something is odd that a side has not looked at.
    pub(crate) fn take_odd(&mut self, side: usize) -> Vec<u64> {
        std::mem::take(&mut self.odd[side])
    }

    /// The transaction of that number, unless it was let go.
    pub(crate) fn transaction(&mut self, number: u64) -> Option<&mut Transaction> {
        self.transactions.get_mut(number)
    }

    /// The same, to look at.
    pub(crate) fn transaction_of(&self, number: u64) -> Option<&Transaction> {
        self.transactions.get(number)
    }

    /// What is told of transactions that were not told of before, with all headers of those sides.
    pub(crate) fn records(&mut self, headers: [bool; 2]) -> Vec<HttpRecord> {
        let numbered = self.transactions.iter_mut();
        let told = |(number, it): (u64, &mut Transaction)| {
            Some(HttpRecord { number, ..it.record(headers)? })
        };
        numbered.filter_map(told).collect()
    }

    /// What is told of files of which more was to come when the connection ended.
    pub(crate) fn cut_files(&mut self) -> Vec<Record> {
        let numbered = self.transactions.iter_mut();
        let of_sides = numbered.flat_map(|(number, it)| {
            [0, 1].map(|side| it.take_cut_files(side, number)).into_iter().flatten()
        });
        of_sides.collect()
    }

    /// Other rules run from here on.
    pub(crate) fn change_rules(&mut self, successors: &Successors) {
        self.transactions.iter_mut().for_each(|(_, it)| it.change_rules(successors));
    }
}

/// A frame's payload without its padding; `None`: there is more of that than payload. Of data that
/// is all of it then, as Suricata has it.
fn unpadded<'a>(head: &Head, payload: &'a [u8]) -> Option<&'a [u8]> {
    let may_be = matches!(head.kind, frame::DATA | frame::HEADERS | frame::PUSH_PROMISE);
    if !may_be || !head.has(frame::PADDED) {
        return Some(payload);
    }
    let without = payload
        .split_first()
        .and_then(|(length, rest)| rest.get(..rest.len().checked_sub(usize::from(*length))?));
    without.or((head.kind == frame::DATA).then_some(payload))
}
