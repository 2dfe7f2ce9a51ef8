//! Calls that wait for an answer, and what a transaction of NFS tells.

use super::names::{SIGNED_HEAD_LEN, credentials, is_signed, procedure_name, status_name};
use super::xdr::Xdr;
use super::{COMMIT, GETATTR, READ, RENAME, SECOND_RENAME, SECOND_WRITE, WRITE, four};
use crate::application::file::Content;
use crate::application::unit::{FileState, FileTold, Objects, Record, Unit};
use crate::digest::{Digests, FileDigests};
use crate::heap::heap_size;
use crate::rule::{Field, Protocol};
use crate::value::{Object, text};

/// A call that may be answered.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) identifier: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    /// What it brings, and its answer, is signed.
    pub(super) is_signed: bool,
    pub(super) handle: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// The name that leads to the handle that is asked for, which is not told.
    pub(super) found: Vec<u8>,
    /// Where in files it reads, and their handles.
    pub(super) reads: Vec<(Vec<u8>, u64)>,
    /// Its transaction, if it is one.
    pub(super) number: Option<u64>,
}
heap_size!(Asked { handle, name, found, reads });

/// Where a transaction that moves a file stands.
#[derive(Debug)]
pub(super) struct Moved {
    /// Who sends it.
    pub(super) side: usize,
    pub(super) content: Content,
    pub(super) pieces: u32,
    /// The message with which it was over.
    pub(super) last: Option<u32>,
    /// Its last piece lies elsewhere than behind the others.
    pub(super) is_astray: bool,
    /// Its last piece was to be kept at once, but it is not done with before its client asks for
    /// it to be kept, or closes it.
    pub(super) is_undone: bool,
    /// All is told of it.
    pub(super) is_told: bool,
}
heap_size!(Moved { content });

impl Moved {
    /// Whether more of it may come.
    pub(super) fn is_open(&self) -> bool {
        self.last.is_none() || self.is_undone
    }

    /// Takes in a piece that lies there and is so long, as far as it is here.
    pub(super) fn take(&mut self, at: u64, length: u64, data: (&[u8], u64), wanted: FileDigests) {
        let (start, behind) = (self.content.position(), at.saturating_add(length));
        self.is_astray = at > start || behind <= start;
        self.content.add_at(at, data, wanted);
        // Rules see another.
        self.content.bytes = Vec::new();
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) number: u64,
    pub(super) identifier: u32,
    /// What rules about versions see; nothing where an answer alone told of it.
    pub(super) version: Option<u32>,
    pub(super) procedure: u32,
    pub(super) handle: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) rename: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) status: u32,
    pub(super) credentials: Object,
    pub(super) kind: String,
    pub(super) moved: Option<Moved>,
    /// No more of it comes.
    pub(super) is_over: bool,
}
heap_size!(Transaction { handle, name, rename, credentials, kind, moved });

/// The head of a call, and what follows it.
pub(super) struct Head<'a> {
    pub(super) identifier: u32,
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) credentials: (String, Object),
    pub(super) is_signed: bool,
    pub(super) arguments: Xdr<'a>,
}

impl<'a> Head<'a> {
    /// Reads a call; inner: it has a head, but not a whole one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Option<Self>> {
        let mut xdr = Xdr { rest: bytes };
        let (identifier, kind, _) = (xdr.number()?, xdr.number()?, xdr.number()?);
        let (program, version, procedure) = (xdr.number()?, xdr.number()?, xdr.number()?);
        if kind != 0 {
            return None;
        }
        let mut rest = move || {
            let is_signed = is_signed(xdr);
            let credentials = credentials(&mut xdr)?;
            let _ = (xdr.number()?, xdr.opaque()?);
            if is_signed {
                xdr.pass(SIGNED_HEAD_LEN)?;
            }
            let arguments = xdr;
            Some(Self {
                identifier,
                program,
                version,
                procedure,
                credentials,
                is_signed,
                arguments,
            })
        };
        Some(rest())
    }
}

impl Transaction {
    /// One that a call begins.
    pub(super) fn new(number: u64, head: &Head<'_>) -> Self {
        let (kind, credentials) = head.credentials.clone();
        Self {
            version: Some(head.version),
            kind,
            credentials,
            ..Self::nobody(number, head.identifier, head.procedure)
        }
    }

    /// One of which is not told who asked.
    pub(super) fn nobody(number: u64, identifier: u32, procedure: u32) -> Self {
        Self {
            number,
            identifier,
            version: None,
            procedure,
            handle: Vec::new(),
            name: Vec::new(),
            rename: None,
            status: 0,
            credentials: Object::default(),
            kind: "NULL".to_owned(),
            moved: None,
            is_over: false,
        }
    }

    pub(super) fn moves(self, side: usize) -> Self {
        let moved = Moved {
            side,
            content: Content::default(),
            pieces: 0,
            last: None,
            is_astray: false,
            is_undone: false,
            is_told: false,
        };
        Self { moved: Some(moved), ..self }
    }

    /// A unit of a side that rules look at; `spoken` is the version that its flow speaks.
    pub(super) fn unit(&self, spoken: u32, side: usize) -> Unit {
        let mut unit = Unit::new(Protocol::Nfs, self.number);
        if let Some(version) = self.version {
            unit.number(Field::NfsVersion, version);
        }
        unit.number(Field::NfsProcedure, self.procedure);
        for (name, object) in self.objects(spoken) {
            unit.tells(name, object);
        }
        let is_senders = self.moved.as_ref().is_some_and(|it| it.side == side);
        unit.files.extend(self.file_object().filter(|_| is_senders));
        unit
    }

    /// Answers to it are not told of.
    pub(super) fn is_quiet(&self, spoken: u32) -> bool {
        spoken < 4 && matches!(self.procedure, GETATTR | COMMIT)
    }

    pub(super) fn objects(&self, spoken: u32) -> Objects {
        let mut rpc = Object::default()
            .with("xid", self.identifier)
            .with("status", "ACCEPTED")
            .with("auth_type", self.kind.as_str());
        if !self.credentials.is_empty() {
            rpc.put("creds", self.credentials.clone());
        }
        vec![("rpc", rpc), ("nfs", self.object(spoken))]
    }

    fn object(&self, spoken: u32) -> Object {
        let mut object = Object::default()
            .with("version", spoken)
            .with("procedure", procedure_name(spoken, self.procedure))
            .with("filename", text(&self.name));
        if !self.handle.is_empty() {
            let mut checksum = flate2::Crc::new();
            checksum.update(&self.handle);
            object.put("hhash", format!("{:x}", checksum.sum()));
        }
        object.put("id", self.number + 1);
        object.put("file_tx", self.moved.is_some());
        object.put("type", "response");
        if let Some((from, to)) = &self.rename {
            object.put("rename", Object::default().with("from", text(from)).with("to", text(to)));
        } else if matches!((spoken, self.procedure), (2, SECOND_RENAME) | (3, RENAME)) {
            object.put("rename", Object::default().with("from", "").with("to", ""));
        }
        object.put("status", status_name(self.status));
        if let Some(name) = moves(spoken, self.procedure) {
            object.put(name, self.chunks());
        }
        object
    }

    /// How its file is moved.
    fn chunks(&self) -> Object {
        let Some(moved) = &self.moved else {
            return Object::default().with("first", false).with("last", false);
        };
        Object::default()
            .with("first", true)
            .with("last", moved.last.is_some())
            .with("last_xid", moved.last.unwrap_or(0))
            .with("chunks", moved.pieces)
    }

    /// Its file, up to where something is missing; whether it is whole.
    fn file_told<T>(&self, told: impl FnOnce(&FileTold<'_>, bool) -> T) -> Option<T> {
        let moved = self.moved.as_ref()?;
        let Content { size, .. } = moved.content;
        let is_whole = moved.content.is_whole();
        if is_whole && size == 0 {
            return None;
        }
        let is_over = moved.last.is_some() && (!moved.is_astray || size == 0);
        let digests = if is_over { moved.content.digests() } else { Digests::default() };
        let name = Some(self.name.as_slice()).filter(|it| !it.is_empty());
        let file = FileTold { name, size, digests, side: moved.side, range: None };
        Some(told(&file, is_over))
    }

    /// Its file as alerts tell of it.
    fn file_object(&self) -> Option<Object> {
        self.file_told(|file, is_over| {
            file.object(if is_over { FileState::Closed } else { FileState::Open }, self.number)
        })
    }

    /// What is told of its file, as far as it came.
    pub(super) fn file(&self, spoken: u32) -> Option<Record> {
        self.file_told(|file, is_over| {
            let state = if is_over { FileState::Closed } else { FileState::Truncated };
            Record::file_in(state, self.number, self.objects(spoken), file)
        })
    }

    /// What is told of it.
    pub(super) fn record(&self, spoken: u32) -> Record {
        let record = Record::new("nfs", self.number, Object::default()).from(1);
        Record { objects: self.objects(spoken), ..record }
    }
}

/// How what moves files is told, in the version that a flow speaks.
fn moves(spoken: u32, procedure: u32) -> Option<&'static str> {
    Some(match (spoken, procedure) {
        (2 | 3, READ) | (4, four::READ) => "read",
        (2, SECOND_WRITE) | (3, WRITE) | (4, four::WRITE) => "write",
        _ => return None,
    })
}
