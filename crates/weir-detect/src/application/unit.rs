//! What applications say, in one form for all: units with fields that rules ask for, and records.

use std::sync::Arc;

use crate::buffers::event::{AppEvent, AppEvents};
use crate::digest::{Digests, FileDigests};
use crate::heap::HeapSize;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, Value, hex};

/// Bytes of one text of a unit that rules look at, at most.
pub(crate) const TEXT_LEN_MAX: usize = 100 * 1024;
/// Texts, and numbers, of a unit, at most.
const FIELDS_MAX: usize = 1024;

/// A transaction so far, or a message: what rules look at, once it came further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) protocol: Protocol,
    /// Of the transaction, in its flow.
    pub(crate) number: u64,
    texts: Vec<(Buffer, Vec<u8>)>,
    numbers: Vec<(Field, i64)>,
    /// Of files that are whole.
    digests: Vec<Digests>,
    /// The states that its transaction came through since rules looked at it; `None`: it is whole.
    pub(crate) states: Option<(usize, usize)>,
    /// No more of its transaction comes.
    pub(crate) is_last: bool,
    /// Numbers of the call that it is have their lowest byte first.
    pub(crate) is_little: bool,
    /// Files were told of with units before it.
    pub(crate) had_files: bool,
    pub(crate) events: AppEvents,
    /// It belongs to no transaction: rules alone hear of what is odd about it.
    pub(crate) is_aside: bool,
    /// What alerts tell of it, by the names of EVE's objects.
    pub(crate) objects: Arc<Objects>,
    /// Files that its side sends with it, as alerts tell of them.
    pub(crate) files: Vec<Object>,
}

impl HeapSize for Unit {
    fn heap_size(&self) -> usize {
        self.texts.iter().map(|it| size_of_val(it) + it.1.heap_size()).sum()
    }
}

/// Bytes of a file's name that are told, at most.
const FILE_NAME_LEN_MAX: usize = 4096;

/// Objects of an event.
pub(crate) type Objects = Vec<(&'static str, Object)>;

impl Unit {
    pub(crate) fn new(protocol: Protocol, number: u64) -> Self {
        Self {
            protocol,
            number,
            texts: Vec::new(),
            numbers: Vec::new(),
            digests: Vec::new(),
            states: None,
            is_last: false,
            is_little: false,
            had_files: false,
            events: AppEvents::default(),
            is_aside: false,
            objects: Arc::default(),
            files: Vec::new(),
        }
    }

    /// Puts a text that rules look at.
    pub(crate) fn text(&mut self, buffer: Buffer, bytes: &[u8]) {
        if self.texts.len() < FIELDS_MAX {
            self.texts.push((buffer, bytes[..bytes.len().min(TEXT_LEN_MAX)].to_vec()));
        }
    }

    /// Puts a text, if it is there.
    pub(crate) fn some_text(&mut self, buffer: Buffer, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            self.text(buffer, bytes);
        }
    }

    /// Puts a number that rules compare.
    pub(crate) fn number(&mut self, field: Field, number: impl Into<i64>) {
        if self.numbers.len() < FIELDS_MAX {
            self.numbers.push((field, number.into()));
        }
    }

    /// Puts what a file is that is whole: its size, and its digests.
    pub(crate) fn whole_file(&mut self, size: u64, digests: Digests) {
        self.number(Field::FileSize, i64::try_from(size).unwrap_or(i64::MAX));
        if digests != Digests::default() && self.digests.len() < FIELDS_MAX {
            self.digests.push(digests);
        }
    }

    /// Puts what an earlier unit of the same transaction had before what this one has.
    pub(crate) fn go_on_from(&mut self, before: &Self) {
        let texts = before.texts.iter().cloned().chain(std::mem::take(&mut self.texts));
        self.texts = texts.take(FIELDS_MAX).collect();
        let numbers = before.numbers.iter().copied().chain(std::mem::take(&mut self.numbers));
        self.numbers = numbers.take(FIELDS_MAX).collect();
    }

    pub(crate) fn has_texts(&self) -> bool {
        !self.texts.is_empty()
    }

    pub(crate) fn odd(&mut self, event: AppEvent) {
        self.events.raise(event);
    }

    /// Puts what alerts tell of it.
    pub(crate) fn tells(&mut self, name: &'static str, object: Object) {
        Arc::make_mut(&mut self.objects).push((name, object));
    }

    /// Calls `look` with each text of the buffer until it says yes; whether it did.
    pub(crate) fn each(&self, buffer: Buffer, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.texts.iter().filter(|it| it.0 == buffer).any(|it| look(&it.1))
    }

    /// Whether a buffer that it does not have is one that its transaction lacks.
    pub(crate) fn is_behind(&self, buffer: Buffer) -> bool {
        match self.protocol {
            Protocol::Ftp
            | Protocol::Ike
            | Protocol::Krb5
            | Protocol::Mdns
            | Protocol::Quic
            | Protocol::Rfb
            | Protocol::Snmp
            | Protocol::Websocket => false,
            Protocol::Smb => buffer != Buffer::FileData,
            Protocol::Smtp => {
                let is_of_file = matches!(buffer, Buffer::FileData | Buffer::FileName);
                self.is_last && !(is_of_file && self.had_files)
            }
            _ => true,
        }
    }

    /// The digests of files that are whole.
    pub(crate) fn digests(&self) -> &[Digests] {
        &self.digests
    }

    /// The numbers of that field, in their order.
    pub(crate) fn numbers(&self, field: Field) -> impl Iterator<Item = i64> + '_ {
        self.numbers.iter().filter(move |it| it.0 == field).map(|it| it.1)
    }
}

/// What EVE tells of a transaction that is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// EVE's `event_type`.
    pub(crate) kind: &'static str,
    pub(crate) number: Option<u64>,
    pub(crate) objects: Objects,
    /// Who sent what it tells of; `None`: it is told from the client's side.
    pub(crate) side: Option<usize>,
}

impl HeapSize for Record {
    fn heap_size(&self) -> usize {
        self.objects.iter().map(|it| size_of_val(it) + it.1.heap_size()).sum()
    }
}

impl Record {
    pub(crate) fn new(kind: &'static str, number: u64, object: Object) -> Self {
        Self { kind, number: Some(number), objects: vec![(kind, object)], side: None }
    }

    /// A file of a transaction that `side` has sent, and what is told of the transaction.
    pub(crate) fn file(number: u64, objects: Objects, file: &FileTold<'_>) -> Self {
        Self::file_in(FileState::Closed, number, objects, file)
    }

    /// The same of a file in that state.
    pub(crate) fn file_in(
        state: FileState,
        number: u64,
        mut objects: Objects,
        file: &FileTold<'_>,
    ) -> Self {
        objects.push(("fileinfo", file.object(state, number)));
        Self { kind: "fileinfo", number: None, objects, side: Some(file.side) }
    }

    /// The same, told from the side that sent it.
    pub(crate) fn from(self, side: usize) -> Self {
        Self { side: Some(side), ..self }
    }
}

/// What is told of a file.
pub(crate) struct FileTold<'a> {
    /// Without, it has none.
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) size: u64,
    pub(crate) digests: Digests,
    /// Who sent it.
    pub(crate) side: usize,
    /// Its first and last byte in a file of which it is a part.
    pub(crate) range: Option<[u64; 2]>,
}

/// How far a file came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// It is whole.
    Closed,
    /// More of it is to come.
    Open,
    /// Its connection ended before it did.
    Truncated,
}

impl FileTold<'_> {
    /// As EVE has it, of the transaction of that number.
    pub(crate) fn object(&self, state: FileState, number: u64) -> Object {
        let state = match state {
            FileState::Closed => "CLOSED",
            FileState::Open => "UNKNOWN",
            FileState::Truncated => "TRUNCATED",
        };
        let mut object = Object::default();
        object.put_some("filename", self.name.map(|it| &it[..it.len().min(FILE_NAME_LEN_MAX)]));
        object.put("gaps", false);
        object.put("state", state);
        object.put("stored", false);
        object.put("size", self.size);
        object.put("tx_id", number);
        if let Some([start, end]) = self.range {
            object.put("start", start);
            object.put("end", end);
        }
        let Digests { md5, sha1, sha256 } = &self.digests;
        let md5 = md5.as_ref().map(|it| ("md5", &it[..]));
        let sha1 = sha1.as_ref().map(|it| ("sha1", &it[..]));
        let sha256 = sha256.as_ref().map(|it| ("sha256", &it[..]));
        for (name, digest) in [md5, sha1, sha256].into_iter().flatten() {
            object.put(name, hex(digest, ""));
        }
        object
    }
}

/// A connection that this one has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Whether the server opens it, to the client.
    pub(crate) is_active: bool,
    pub(crate) port: u16,
    /// The command that it is for, and the file that it names.
    pub(crate) command: Vec<u8>,
    pub(crate) file: Vec<u8>,
}

/// What came of the bytes at hand.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) units: Vec<Unit>,
    pub(crate) records: Vec<Record>,
    pub(crate) announced: Vec<Announced>,
    /// Transactions of the other side that came further: its next packet is looked at with them.
    pub(crate) later: Vec<Unit>,
    /// The parser gives up, or cannot read a message at all.
    pub(crate) has_failed: bool,
    /// What parsers are to compute of files.
    pub(crate) wanted: FileDigests,
    /// No piece of a file waits for others: it would be gone.
    pub(crate) is_inline: bool,
    /// Nothing is read that Suricata does not read.
    pub(crate) knows_no_more: bool,
    /// All of DHCP is told.
    pub(crate) dhcp_extended: bool,
}

impl Said {
    /// Nothing yet, where such digests are wanted of files.
    pub(crate) fn with_digests(wanted: FileDigests) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Tells of a unit. What is odd about it is either side's: the other's next packet is looked at
    /// with it too.
    pub(crate) fn tell(&mut self, unit: Unit) {
        if !unit.events.as_slice().is_empty() {
            self.later.push(unit.clone());
        }
        self.units.push(unit);
    }

    /// Nothing more can be read.
    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Tells of a message that cannot be read.
    pub(crate) fn unreadable(&mut self, unit: Unit) {
        self.has_failed = true;
        self.units.push(unit);
    }

    /// Tells of a unit that is a message of its own: rules look at it, and it is recorded as
    /// alerts tell of it.
    pub(crate) fn message(&mut self, unit: Unit, side: usize) {
        if let Some((kind, _)) = unit.objects.first() {
            self.records.push(Record {
                kind,
                number: Some(unit.number),
                objects: unit.objects.as_ref().clone(),
                side: Some(side),
            });
        }
        self.units.push(unit);
    }
}

impl From<&Objects> for Value {
    fn from(objects: &Objects) -> Self {
        let mut all = Object::default();
        objects.iter().for_each(|(name, object)| all.put(*name, object.clone()));
        all.into()
    }
}
