//! SMB, versions 1 to 3 (MS-CIFS, MS-SMB, MS-SMB2): shares, files, who logs in, and DCE/RPC over
//! pipes.

mod one;
mod session;
mod two;

use std::collections::VecDeque;
use std::ops::Range;

use super::file::Content;
use super::rpc::{Order, Progress, Rpc};
use super::unit::{FileState, FileTold, Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::{HeapSize, heap_size};
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, text};

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
/// Pieces of a file ahead of others, and their bytes, at most; more are odd (Suricata's limits).
const AHEAD_MAX: usize = 64;
const AHEAD_LEN_MAX: u64 = 64 << 20;
const QUEUE_SIZE: [AppEvent; 2] = [AppEvent::SmbWriteQueueSize, AppEvent::SmbReadQueueSize];
const QUEUE_COUNT: [AppEvent; 2] = [AppEvent::SmbWriteQueueCount, AppEvent::SmbReadQueueCount];
/// A file is looked at again when it has grown by so much.
const FILE_STEP: usize = 16 * 1024;

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
heap_size!(Smb { held, offered, waiting, trees, files, related });

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
    Close(u128),
    Pipe(u128),
    /// Another name for a file, or its end.
    Change,
}

impl HeapSize for Asked {
    fn heap_size(&self) -> usize {
        match self {
            Self::Tree(name) | Self::File(name) => name.heap_size(),
            Self::Other | Self::Read(..) | Self::Close(_) | Self::Pipe(_) | Self::Change => 0,
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

/// A file that is open, or a pipe.
#[derive(Debug)]
struct File {
    identifier: u128,
    name: Vec<u8>,
    rpc: Option<Box<Rpc>>,
    share: Vec<u8>,
    session: u64,
    tree: u32,
    /// Calls that wait for an answer: theirs, their transaction's number, and the command.
    calls: Vec<(u32, u64, String)>,
    /// The number of the transaction that moves it, and who sends it, once it moves.
    moved: Option<(u64, usize)>,
    content: Content,
    looked_at: usize,
    version: u8,
    /// Where what was written last ends.
    end: u64,
    /// Up to where it lies together, and pieces ahead of that.
    together: u64,
    ahead: Vec<(u64, u64)>,
    /// It was told that there are too many of them.
    is_scattered: bool,
    /// Its client is closing it; and rules have looked at all of it.
    is_closing: bool,
    is_over: bool,
}
heap_size!(File { name, rpc, share, calls, content, ahead });

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
            it.windows(HEAD_LEN).position(|it| matches!(it, [0, .., 0xff | 0xfe, b'S', b'M', b'B']))
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
            file.content.finish(said.wanted);
            self.tell_file(&file, said);
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
            [0xfd | 0xfc, b'S', b'M', b'B', ..] => Some(()),
            _ => return self.odd(AppEvent::SmbMalformed, said),
        };
        if read.is_none() {
            self.odd(AppEvent::SmbMalformed, said);
            said.has_failed = true;
        }
    }

    /// Tells of something odd about a message that is perhaps no transaction.
    fn odd(&self, event: AppEvent, said: &mut Said) {
        let mut unit = self.unit();
        unit.odd(event);
        said.units.push(unit);
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
        let number = self.count;
        if is_told {
            self.count += 1;
        } else if !unit.has_texts() {
            // Nobody asks about what only moves bytes.
            let head = head.clone();
            return self.keep(Request { head, number, asked, ..Request::default() }, said);
        }
        unit.number = number;
        unit.number(Field::SmbVersion, head.version);
        let request = Request { head: head.clone(), number, object: told, asked, is_told };
        let object = self.asked_object(&request);
        unit.tells("smb", object.clone());
        said.units.push(unit);
        match head.is_alone() {
            true => said.records.push(Record::new("smb", number, object)),
            false => self.keep(request, said),
        }
    }

    /// What a request told.
    fn asked_object(&self, request: &Request) -> Object {
        let mut object = self.object(&request.head, request.number);
        object.put("session_id", request.head.session);
        object.put("tree_id", request.head.tree);
        request.object.iter().for_each(|(name, value)| object.put(name.to_owned(), value.clone()));
        object
    }

    /// What is told of a request without an answer.
    fn unanswered_object(&self, request: &Request) -> Object {
        let mut object = self.asked_object(request);
        match &request.asked {
            Asked::Tree(name) => {
                object.put("share", text(name));
                if request.head.version > 1 {
                    object.put("share_type", "UNKNOWN");
                }
            }
            Asked::File(_) => nothing_opened(&mut object),
            _ if object.value("client_guid").is_some() => object.put("server_guid", ""),
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

    /// An answer, with what it tells.
    fn answer(
        &mut self,
        head: &Head,
        mut unit: Unit,
        (request, told): (Request, Object),
        said: &mut Said,
    ) {
        if !request.is_told {
            return;
        }
        unit.number = request.number;
        unit.number(Field::SmbVersion, head.version);
        let mut object = self.object(head, request.number);
        object.put("status", two::status_name(head.status));
        object.put("status_code", format!("{:#x}", head.status));
        object.put("session_id", head.session);
        object.put("tree_id", head.tree);
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

    fn open(&mut self, identifier: u128, name: Vec<u8>, head: &Head, said: &mut Said) {
        let tree = self.trees.iter().find(|it| it.identifier == head.tree);
        let is_pipe = tree.is_some_and(|it| it.is_pipe);
        let known = self.files.iter_mut().find(|it| it.identifier == identifier);
        // Its client did not wait to be told that it is open.
        if let Some(file) = known.filter(|it| is_pipe && it.rpc.is_some()) {
            file.name = name;
            return;
        }
        self.close(identifier, said);
        let tree = self.trees.iter().find(|it| it.identifier == head.tree);
        if self.files.len() == FILES_MAX {
            self.files.remove(0);
        }
        let rpc = is_pipe.then(Box::default);
        self.files.push(File {
            identifier,
            name,
            rpc,
            share: tree.map(|it| it.name.clone()).unwrap_or_default(),
            session: head.session,
            tree: head.tree,
            calls: Vec::new(),
            moved: None,
            content: Content::default(),
            looked_at: 0,
            version: head.version,
            end: 0,
            together: 0,
            ahead: Vec::new(),
            is_scattered: false,
            is_closing: false,
            is_over: false,
        });
    }

    fn close(&mut self, identifier: u128, said: &mut Said) {
        if let Some(place) = self.files.iter().position(|it| it.identifier == identifier) {
            let mut file = self.files.remove(place);
            file.content.finish(said.wanted);
            if let Some((number, side)) = file.moved.filter(|_| !file.is_over) {
                let mut unit = self.file_unit(&file, FileState::Closed, number, side);
                unit.whole_file(file.content.size, file.content.digests());
                // It is its sender's.
                match side == self.side {
                    true => said.units.push(unit),
                    false if said.later.len() < LATER_MAX => said.later.push(unit),
                    false => {}
                }
            }
            self.tell_file(&file, said);
        }
    }

    /// What there is to tell of a file that was moved.
    fn tell_file(&self, file: &File, said: &mut Said) {
        let Some((number, side)) = file.moved else { return };
        let content = &file.content;
        let object = self.file_object(file, number, side);
        said.records.push(Record::new("smb", number, object.clone()));
        let (size, digests) = (content.size, content.digests());
        let told = FileTold { name: Some(&file.name), size, digests, side, range: None };
        said.records.push(Record::file(number, vec![("smb", object)], &told));
    }

    fn file_object(&self, file: &File, number: u64, side: usize) -> Object {
        let command = match (file.version, side) {
            (1, 0) => "SMB1_COMMAND_WRITE_ANDX",
            (1, _) => "SMB1_COMMAND_READ_ANDX",
            (_, 0) => "SMB2_COMMAND_WRITE",
            _ => "SMB2_COMMAND_READ",
        };
        let mut object = Object::default()
            .with("id", number + 1)
            .with("dialect", self.dialect.as_deref().unwrap_or("unknown"))
            .with("command", command);
        let is_old = file.version == 1;
        if !is_old {
            object.put("status", "STATUS_SUCCESS");
            object.put("status_code", "0x0");
        }
        object.put("session_id", if is_old { 0 } else { file.session });
        object.put("tree_id", if is_old { 0 } else { file.tree });
        object.put("filename", text(&file.name));
        // Who writes by version 2 has none there.
        object.put("share", if side == 0 && !is_old { String::new() } else { text(&file.share) });
        object.put("fuid", file.spelt());
        object
    }

    /// Notes where bytes are written; whether others were there.
    fn overlaps(&mut self, identifier: u128, at: u64, length: u64) -> bool {
        let file = self.files.iter_mut().find(|it| it.identifier == identifier);
        let Some(file) = file.filter(|it| it.rpc.is_none()) else { return false };
        let before = std::mem::replace(&mut file.end, at.saturating_add(length));
        at < before
    }

    /// Notes a piece of a file that a side sends; what is odd about those that lie ahead.
    fn place(&mut self, (side, identifier): (usize, u128), at: u64, length: u64, said: &mut Said) {
        let file = self.files.iter_mut().find(|it| it.identifier == identifier);
        let Some(file) = file.filter(|it| it.rpc.is_none()) else { return };
        if at <= file.together {
            file.together = file.together.max(at.saturating_add(length));
            while let Some(next) = file.ahead.iter().position(|it| it.0 <= file.together) {
                let (at, length) = file.ahead.swap_remove(next);
                file.together = file.together.max(at.saturating_add(length));
            }
            return;
        }
        let waiting: u64 = file.ahead.iter().map(|it| it.1).sum();
        let event = match () {
            () if waiting.saturating_add(length) > AHEAD_LEN_MAX => QUEUE_SIZE[side],
            () if file.ahead.len() >= AHEAD_MAX => QUEUE_COUNT[side],
            () => return file.ahead.push((at, length)),
        };
        if !std::mem::replace(&mut file.is_scattered, true) {
            self.odd(event, said);
        }
    }

    /// Bytes of a file or pipe that a side sends: where in the file they lie, what was kept of
    /// them, and how many they are. One that nobody has seen opened has no name, but for
    /// [`RELATED`].
    fn content(
        &mut self,
        (side, identifier): (usize, u128),
        (at, bytes, length): (Option<u64>, &[u8], u64),
        head: &Head,
        said: &mut Said,
    ) {
        let place = self.files.iter().position(|it| it.identifier == identifier);
        let place = place.unwrap_or_else(|| {
            let name = self.related.clone().filter(|_| identifier == RELATED);
            self.open(identifier, name.unwrap_or_default(), head, said);
            // What it is nobody knows, where its share was not told: calls begin in their own way.
            if self.trees.iter().all(|it| it.identifier != head.tree) && Rpc::begins(bytes) {
                self.files.last_mut().into_iter().for_each(|it| it.rpc = Some(Box::default()));
            }
            self.files.len() - 1
        });
        let is_cut = self.is_cut;
        let file = &mut self.files[place];
        if file.rpc.is_some() {
            return self.call(side, place, bytes, head, said);
        }
        let number = match file.moved {
            Some((number, _)) => number,
            None => {
                self.count += 1;
                file.moved = Some((self.count - 1, side));
                self.count - 1
            }
        };
        // What lies about its length is not longer for it.
        let passed = if is_cut { length.saturating_sub(bytes.len() as u64) } else { 0 };
        if file.add(at, (bytes, passed), said) {
            let file = &self.files[place];
            said.units.push(self.file_unit(file, FileState::Open, number, side));
        }
    }

    fn file_unit(&self, file: &File, state: FileState, number: u64, side: usize) -> Unit {
        let mut unit = Unit::new(Protocol::Smb, number);
        unit.number(Field::SmbVersion, file.version);
        unit.text(Buffer::FileName, &file.name);
        file.content.stretches().for_each(|it| unit.text(Buffer::FileData, it));
        unit.tells("smb", self.file_object(file, number, side));
        let (size, digests) = (file.content.size, file.content.digests());
        let told = FileTold { name: Some(&file.name), size, digests, side, range: None };
        unit.files.push(told.object(state, number));
        unit
    }
}

impl Smb {
    /// Bytes of a pipe: each call is a transaction of its own.
    fn call(&mut self, side: usize, place: usize, bytes: &[u8], head: &Head, said: &mut Said) {
        let Self { files, count, dialect, .. } = self;
        let file = &mut files[place];
        let (Some(rpc), calls) = (&mut file.rpc, &mut file.calls) else { return };
        rpc.take(side, bytes, &mut |rpc, Progress { call, is_done }| {
            let known = calls.iter().position(|it| it.0 == call.identifier);
            let known = known.unwrap_or_else(|| {
                if calls.len() == WAITING_MAX {
                    calls.remove(0);
                }
                calls.push((call.identifier, *count, head.command_name.clone()));
                *count += 1;
                calls.len() - 1
            });
            let (_, number, command) = &calls[known];
            let object = Object::default()
                .with("id", number + 1)
                .with("dialect", dialect.as_deref().unwrap_or("unknown"))
                .with("command", command.as_str())
                .with("status", "STATUS_SUCCESS")
                .with("status_code", "0x0")
                .with("session_id", head.session)
                .with("tree_id", head.tree)
                .with("dcerpc", call.object(true));
            let mut unit = Unit::new(Protocol::Smb, *number);
            unit.number(Field::SmbVersion, head.version);
            rpc.fill(&call, side, &mut unit);
            unit.tells("smb", object.clone());
            said.units.push(unit);
            if is_done {
                said.records.push(Record::new("smb", *number, object));
                calls.remove(known);
            }
        });
    }
}

impl File {
    /// Takes in bytes; whether they are worth a look.
    fn add(&mut self, at: Option<u64>, bytes: (&[u8], u64), said: &Said) -> bool {
        let at = at.unwrap_or(self.content.position());
        let differs = self.content.add_at(at, bytes, said.wanted);
        let kept = self.content.kept();
        let step = if said.is_inline { 1 } else { FILE_STEP };
        let is_worth = differs || kept < FILE_STEP || kept >= self.looked_at + step;
        if is_worth {
            self.looked_at = kept;
        }
        is_worth
    }

    /// Its identifier as EVE spells it.
    fn spelt(&self) -> String {
        match self.version {
            1 => format!("{:04x}", self.identifier),
            _ => guid(&self.identifier.to_le_bytes()),
        }
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

/// UTF-16 in little-endian order as text.
fn wide(bytes: &[u8]) -> Vec<u8> {
    let units = bytes.chunks_exact(2).map(|it| u16::from_le_bytes([it[0], it[1]]));
    let units: Vec<u16> = units.collect();
    String::from_utf16_lossy(&units).trim_end_matches('\0').as_bytes().to_vec()
}

/// A share's name to the fields that tell of it.
fn share(name: &[u8], is_pipe: bool, unit: &mut Unit, told: &mut Object) {
    unit.text(share_buffer(is_pipe), name);
    told.put(if is_pipe { "named_pipe" } else { "share" }, text(name));
}

/// Where rules look for a share's name. Only the answer says what is shared, but that pipes are
/// shared as `IPC$` (MS-SMB2 s2.2.10) is known before.
fn share_buffer(is_pipe: bool) -> Buffer {
    if is_pipe { Buffer::SmbPipe } else { Buffer::SmbShare }
}

/// What the options of a request say that it opens.
fn opened_as(options: u32) -> &'static str {
    if options & 1 != 0 { "directory" } else { "filename" }
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
