//! SMB, versions 1 to 3 (MS-CIFS, MS-SMB, MS-SMB2): shares, files, who logs in, and DCE/RPC over
//! pipes.

mod file;
mod names;
mod one;
mod pipe;
mod session;
mod two;

use std::collections::VecDeque;
use std::ops::Range;

use super::rpc::Order;
use super::unit::{FileState, Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::{HeapSize, heap_size};
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;
use file::File;

/// The order of bytes of every number.
const LITTLE: Order = Order { is_little: true };
/// The file that a message of the same record opens (MS-SMB2 s3.3.5.2.7.2).
const RELATED: u128 = u128::MAX;
/// Bytes of a record's head, with the magic number of the message in it.
const HEAD_LEN: usize = 8;
/// Bytes of a record that are looked into, at most.
const RECORD_LEN_MAX: usize = 100 * 1024;
/// Requests that wait for an answer, files and trees that are open, at most.
const WAITING_MAX: usize = 256;
const FILES_MAX: usize = 256;
/// Files that are told of with the other side's next packet, at most.
const LATER_MAX: usize = 16;
/// Places in a record of which the bytes are missing, at most.
const HOLES_MAX: usize = 16;
const TREES_MAX: usize = 64;
/// Bytes that a message may move, at most (Suricata's limit); and less where the server says so.
const MOVED_MAX: u32 = 16 << 20;
/// A side says what only the other may.
const ASTRAY: [AppEvent; 2] = [AppEvent::SmbResponseToServer, AppEvent::SmbRequestToClient];
/// Bytes before what is encrypted (MS-SMB2 s2.2.41).
const TRANSFORM_LEN: usize = 52;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Smb {
    held: [Held; 2],
    dialect: Option<String>,
    /// What a client offered.
    offered: Vec<Vec<u8>>,
    waiting: VecDeque<Request>,
    unanswered: Unanswered,
    is_flooded: bool,
    trees: Vec<Tree>,
    files: Vec<File>,
    /// Calls of pipes that were closed before they were answered, and their transactions.
    unanswered_calls: Vec<(u64, Object)>,
    /// Who speaks.
    side: usize,
    /// Places in the record that a side has begun of which the bytes are missing.
    holes: [Vec<Range<usize>>; 2],
    /// The file that this record opens.
    related: Option<Vec<u8>>,
    count: u64,
    is_over: bool,
    /// Bytes that the server lets a message of version 2 read and write, at most.
    moved_max: [Option<u32>; 2],
    /// Of the record at hand not all is looked into.
    is_cut: bool,
}
heap_size!(Smb { held, offered, waiting, trees, files, unanswered_calls, related });

/// A request, and what is told of it.
#[derive(Debug, Default)]
struct Request {
    head: Head,
    number: u64,
    object: Object,
    /// What the answer is about, where that is for the request to say.
    asked: Asked,
    /// Whether it is a transaction of its own.
    is_told: bool,
    /// It will be answered later.
    is_pending: bool,
}
heap_size!(Request { head, object, asked });

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Other,
    Tree(Vec<u8>),
    File(Vec<u8>),
    /// Of which file, and from where.
    Read(u128, u64),
    /// More of a file than it may.
    TooMuch(u128),
    Close(u128),
    /// A call over a pipe that is a transaction of its own; and one that is none.
    Pipe(u128),
    Transceive(u128),
    /// Another name for a file, or its end.
    Change,
}

impl HeapSize for Asked {
    fn heap_size(&self) -> usize {
        match self {
            Self::Tree(name) | Self::File(name) => name.heap_size(),
            _ => 0,
        }
    }
}

/// A share that is connected.
#[derive(Debug)]
struct Tree {
    identifier: u32,
    name: Vec<u8>,
    is_pipe: bool,
}
heap_size!(Tree { name });

/// What a header says that records tell.
#[derive(Clone, Debug, Default)]
struct Head {
    /// What joins an answer to its request, with the command.
    key: u64,
    command: u16,
    command_name: String,
    status: u32,
    session: u64,
    tree: u32,
    version: u8,
}

heap_size!(Head { command_name });

impl Head {
    /// Whether messages of that kind are transactions: others move bytes, or ask for little.
    fn is_told(&self) -> bool {
        match self.version {
            1 => !matches!(self.command, 0x25 | 0x2e | 0x2f | 0x32),
            _ => !matches!(self.command, 8 | 9 | 16 | 17),
        }
    }

    /// Whether a request of that kind is a transaction by itself, which no answer belongs to.
    fn is_alone(&self) -> bool {
        self.version == 1 && matches!(self.command, 0x24 | 0x33 | 0xa4)
    }
}

impl Parser for Smb {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over {
            return;
        }
        self.side = side;
        self.held[side].add_from(bytes, HEAD_LEN - 1, |it| {
            it.windows(HEAD_LEN).position(|it| matches!(it, [0, .., 0xfc..=0xff, b'S', b'M', b'B']))
        });
        if self.held[side].is_lost() {
            return;
        }
        while let Some(head) = self.held[side].bytes().first_chunk::<4>().copied() {
            let length = u32::from_be_bytes(head) & 0x00ff_ffff;
            let looked_into = 4 + (length as usize).min(RECORD_LEN_MAX);
            if self.held[side].bytes().len() < looked_into {
                return;
            }
            let record = self.held[side].bytes()[4..looked_into].to_vec();
            self.held[side].drop(4 + u64::from(length));
            self.is_cut = length as usize > RECORD_LEN_MAX;
            // Others are the session service's own (RFC 1002 s4.3.1).
            if head[0] == 0 {
                self.record(side, &record, said);
            }
            self.holes[side].clear();
        }
    }

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let head = self.held[side].bytes().first_chunk::<4>().copied();
        let length = head.map(|it| 4 + u64::from(u32::from_be_bytes(it) & 0x00ff_ffff));
        if !self.bridge(side, count, length) {
            self.holes[side].clear();
            self.held[side].lose(count, length);
        }
        true
    }

    fn end(&mut self, said: &mut Said) {
        for it in std::mem::take(&mut self.waiting).into_iter().filter(|it| it.is_told) {
            let object = self.unanswered_object(&it);
            said.records.push(Record::new("smb", it.number, object));
        }
        for mut file in std::mem::take(&mut self.files) {
            for side in [0, 1] {
                self.tell_file(&file, side, FileState::Truncated, said);
            }
            self.tell_calls_later(file.pipe.take());
        }
        for (number, object) in std::mem::take(&mut self.unanswered_calls) {
            said.records.push(Record::new("smb", number, object));
        }
    }
}

impl Smb {
    /// Goes on behind what is missing of the bytes that a message moves, where that is all that is
    /// missing; whether it does.
    fn bridge(&mut self, side: usize, count: u64, length: Option<u64>) -> bool {
        let held = &mut self.held[side];
        let (from, holes) = (held.bytes().len(), &mut self.holes[side]);
        let end = usize::try_from(count).ok().and_then(|it| from.checked_add(it));
        let (Some(end), Some(length)) = (end, length) else { return false };
        let is_within = end <= 4 + RECORD_LEN_MAX && end as u64 <= length;
        let is_moving = held.bytes().get(4..).is_some_and(two::moves);
        if !is_within || !is_moving || holes.len() == HOLES_MAX {
            return false;
        }
        held.add(&vec![0; end - from]);
        holes.push(from..end);
        true
    }

    /// Of bytes of a record those that came: each piece, with how many are before it.
    fn pieces<'a>(&self, data: &'a [u8], at: usize) -> Vec<(usize, &'a [u8])> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for hole in &self.holes[self.side] {
            let place = |it: usize| it.saturating_sub(4 + at).clamp(from, data.len());
            let (begin, end) = (place(hole.start), place(hole.end));
            pieces.push((from, &data[from..begin]));
            from = end;
        }
        pieces.push((from, &data[from..]));
        pieces.retain(|it| !it.1.is_empty() || self.holes[self.side].is_empty());
        pieces
    }

    fn record(&mut self, side: usize, record: &[u8], said: &mut Said) {
        let read = match record {
            [0xff, b'S', b'M', b'B', ..] => one::message(self, side, record, said),
            [0xfe, b'S', b'M', b'B', ..] => two::messages(self, side, record, said),
            // Encrypted, or compressed.
            [0xfd, b'S', b'M', b'B', ..] if record.len() >= TRANSFORM_LEN => Some(()),
            [0xfc, b'S', b'M', b'B', ..] => Some(()),
            [0xfd, b'S', b'M', b'B', ..] => None,
            [_, b'S', b'M', b'B', ..] => return self.odd(AppEvent::SmbMalformed, said),
            _ => None,
        };
        if read.is_none() {
            self.odd(AppEvent::SmbMalformed, said);
            said.has_failed = true;
        }
    }

    /// Something odd about a message that is perhaps no transaction: it is told with the newest one
    /// that goes on. Without any, rules alone hear of it.
    fn odd(&self, event: AppEvent, said: &mut Said) {
        let going_on = self.waiting.iter().filter(|it| it.is_told).map(|it| it.number);
        let newest = going_on.chain(self.files.iter().filter_map(File::newest_number)).max();
        let mut unit = newest.map_or_else(|| self.aside(), |it| Unit::new(Protocol::Smb, it));
        unit.odd(event);
        said.units.push(unit);
    }

    /// What rules look at, and nothing is told of.
    fn aside(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Smb, self.count.saturating_sub(1));
        unit.is_aside = true;
        unit
    }

    /// Whether a message may not move so many bytes.
    fn is_too_much(length: u32, most: Option<u32>) -> bool {
        length > most.unwrap_or(MOVED_MAX).min(MOVED_MAX)
    }

    fn object(&self, head: &Head, number: u64) -> Object {
        let dialect = self.dialect.as_deref().unwrap_or("unknown");
        Object::default()
            .with("id", number + 1)
            .with("dialect", dialect)
            .with("command", head.command_name.as_str())
    }

    /// A request that is to be answered.
    fn request(
        &mut self,
        head: &Head,
        mut unit: Unit,
        (told, asked): (Object, Asked),
        said: &mut Said,
    ) {
        let is_told = match asked {
            Asked::Pipe(_) => false,
            Asked::Change => true,
            _ => head.is_told(),
        };
        let number = self.number_of(head);
        if is_told {
            self.count = self.count.max(number + 1);
        } else if !unit.has_texts() {
            // Nobody asks about what only moves bytes.
            let head = head.clone();
            return self.keep(Request { head, number, asked, ..Request::default() }, said);
        }
        unit.number = number;
        unit.number(Field::SmbVersion, head.version);
        let head_told = head.clone();
        let request =
            Request { head: head_told, number, object: told, asked, is_told, is_pending: false };
        let object = self.asked_object(&request);
        unit.tells("smb", object.clone());
        said.units.push(unit);
        match head.is_alone() {
            true => said.records.push(Record::new("smb", number, object)),
            false => self.keep(request, said),
        }
    }

    /// The number of a request's transaction: who negotiates again goes on with the first.
    fn number_of(&mut self, head: &Head) -> u64 {
        let negotiates = |it: &Head| it.version > 1 && it.command == 0;
        let place = self.waiting.iter().position(|it| negotiates(head) && negotiates(&it.head));
        place.and_then(|it| self.waiting.remove(it)).map_or(self.count, |it| it.number)
    }

    /// What a request told.
    fn asked_object(&self, request: &Request) -> Object {
        let mut object = self.object(&request.head, request.number);
        names::put_status(&mut object, request.is_pending.then_some(names::STATUS_PENDING));
        put_owner(&mut object, &request.head, None);
        request.object.iter().for_each(|(name, value)| object.put(name.to_owned(), value.clone()));
        object
    }

    /// What is told of a request without an answer.
    fn unanswered_object(&self, request: &Request) -> Object {
        let mut object = self.asked_object(request);
        match &request.asked {
            Asked::Tree(name) => {
                object.put("share", told_text(name));
                if request.head.version > 1 {
                    object.put("share_type", "UNKNOWN");
                }
            }
            Asked::File(_) => nothing_opened(&mut object),
            _ if object.value("client_dialects").is_some() => object.put("server_guid", ""),
            _ => {}
        }
        object
    }

    fn keep(&mut self, request: Request, said: &mut Said) {
        let is_many = self.unanswered.make_room(&mut self.waiting, WAITING_MAX);
        self.waiting.push_back(request);
        if is_many && !std::mem::replace(&mut self.is_flooded, true) {
            self.odd(AppEvent::SmbTooMany, said);
        }
    }

    /// The request that an answer is to.
    fn answered(&mut self, head: &Head) -> Option<Request> {
        let name = |it: &Head| (it.key, it.command);
        let is_meant = |it: &Request| name(&it.head) == name(head);
        let place = self.waiting.iter().position(is_meant)?;
        self.waiting.remove(place)
    }

    /// The request of version 1 that version 2 answers (MS-SMB2 s3.3.5.3).
    fn upgraded(&mut self) -> Option<Request> {
        let negotiates = |it: &Head| it.version == 1 && it.command == one::NEGOTIATE.into();
        let place = self.waiting.iter().position(|it| negotiates(&it.head))?;
        self.waiting.remove(place)
    }

    /// A server says that it will answer later.
    fn postpone(&mut self, head: &Head) {
        let name = |it: &Head| (it.key, it.command);
        let request = self.waiting.iter_mut().find(|it| name(&it.head) == name(head));
        let Some(request) = request else { return };
        request.is_pending = true;
        if let Asked::Pipe(file) = request.asked {
            let file = self.files.iter_mut().find(|it| it.identifier == file);
            file.and_then(|it| it.pipe.as_mut()).into_iter().for_each(|it| it.postpone());
        }
    }

    /// An answer, with what it tells.
    fn answer(
        &mut self,
        head: &Head,
        mut unit: Unit,
        (request, told): (Request, Object),
        said: &mut Said,
    ) {
        if !request.is_told {
            unit.is_aside = true;
            said.units.extend(Some(unit).filter(|it| !it.events.as_slice().is_empty()));
            return;
        }
        unit.number = request.number;
        unit.number(Field::SmbVersion, head.version);
        let mut object = self.object(&request.head, request.number);
        names::put_status(&mut object, Some(head.status));
        put_owner(&mut object, &request.head, Some(head));
        for (name, value) in request.object.iter().chain(told.iter()) {
            object.put(name.to_owned(), value.clone());
        }
        unit.tells("smb", object.clone());
        said.units.push(unit);
        said.records.push(Record::new("smb", request.number, object));
    }

    fn unit(&self) -> Unit {
        Unit::new(Protocol::Smb, self.count)
    }

    fn connect(&mut self, identifier: u32, name: Vec<u8>, is_pipe: bool) {
        self.trees.retain(|it| it.identifier != identifier);
        if self.trees.len() == TREES_MAX {
            self.trees.remove(0);
        }
        self.trees.push(Tree { identifier, name, is_pipe });
    }
}

/// An identifier of Windows, as EVE spells those of SMB: each part with its last byte first.
fn guid(bytes: &[u8; 16]) -> String {
    let mut turned = *bytes;
    let parts = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 16)];
    parts.iter().for_each(|(from, to)| turned[*from..*to].reverse());
    let mut spelt = crate::value::hex(&turned, "");
    [8, 13, 18, 23].iter().for_each(|place| spelt.insert(*place, '-'));
    spelt
}

/// UTF-16 in little-endian order as Suricata's rules expect it: its bytes, but for zeros.
fn wide(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|it| *it != 0).collect()
}

/// Seconds since Unix began to count, of Windows' tenths of microseconds (MS-DTYP s2.3.3).
fn unix_seconds(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(11_644_473_600)
}

/// A name as EVE tells it.
fn told_text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Puts the session and the tree of a transaction, as its request has them.
fn put_owner(object: &mut Object, asked: &Head, answer: Option<&Head>) {
    let (session, tree) = match (asked.version, asked.command, answer) {
        (1, command, _) if command == one::NEGOTIATE.into() => (0, 0),
        (1, _, Some(answer)) => (answer.session, answer.tree),
        (1, ..) => (asked.session, asked.tree),
        (_, two::NEGOTIATE, _) => (0, 0),
        (_, two::SESSION_SETUP, Some(answer)) => (answer.session, answer.tree),
        (_, two::TREE_CONNECT, Some(answer)) if answer.status == 0 => (asked.session, answer.tree),
        (_, two::TREE_CONNECT, _) => (asked.session, 0),
        _ => (asked.session, asked.tree),
    };
    object.put("session_id", session);
    object.put("tree_id", tree);
}

/// A share's name to the fields that tell of it.
fn share(name: &[u8], is_pipe: bool, unit: &mut Unit, told: &mut Object) {
    unit.text(share_buffer(is_pipe), name);
    told.put(if is_pipe { "named_pipe" } else { "share" }, told_text(name));
}

/// Where rules look for a share's name. Only the answer says what is shared, but that pipes are
/// shared as `IPC$` (MS-SMB2 s2.2.10) is known before.
fn share_buffer(is_pipe: bool) -> Buffer {
    if is_pipe { Buffer::SmbPipe } else { Buffer::SmbShare }
}

/// What the options of a request say that it opens.
fn opened_as(name: &[u8], options: u32) -> &'static str {
    if options & 1 != 0 && !name.is_empty() { "directory" } else { "filename" }
}

/// What is told of a file that was not opened.
fn nothing_opened(told: &mut Object) {
    ["created", "accessed", "modified", "changed", "size"]
        .iter()
        .for_each(|it| told.put(*it, 0_u8));
    told.put("fuid", "");
}

#[cfg(test)]
mod tests;
