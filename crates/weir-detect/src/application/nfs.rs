//! NFS, versions 2 to 4 (RFC 1094, 1813, 7530), over ONC RPC (RFC 5531): which files are used.

mod compound;
mod four;
mod moved;

use std::collections::VecDeque;

use moved::{Reading, Written};

use super::unit::{Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Field, Protocol};
use crate::value::{Object, text};

/// Program of NFS.
const PROGRAM: u32 = 100_003;
/// Bytes of a call's head, its record's mark before it.
const HEAD_LEN: usize = 20;
/// Calls that wait for an answer, and files whose names are known, at most.
const WAITING_MAX: usize = 256;
const FILES_MAX: usize = 256;
/// Files that are read at a time, at most.
const READ_MAX: usize = 16;
/// Bytes of a record that are looked into, at most.
const RECORD_LEN_MAX: usize = 100 * 1024;
/// Flavour of credentials that tell a host and a user (RFC 5531 s14).
const UNIX: u32 = 1;

/// A client wants what it writes to be kept before it is answered (RFC 1813 s3.3.7).
const FILE_SYNC: u32 = 2;

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

/// Procedures of version 2, by their numbers (RFC 1094 s2.2).
const SECOND: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];
/// Where a write stands among them.
const SECOND_WRITE: u32 = 8;

/// A flow between a client and a server.
#[derive(Debug, Default)]
pub(crate) struct Nfs {
    /// Bytes of streams; datagrams are whole.
    held: Option<[Held; 2]>,
    waiting: VecDeque<Call>,
    unanswered: Unanswered,
    /// Handles and the names that lead to them.
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files that clients write.
    written: Vec<Written>,
    /// Files that they read.
    read: Vec<Reading>,
    count: u64,
    /// Of the record at hand not all is looked into.
    is_cut: bool,
}
heap_size!(Nfs { held, waiting, files, written, read });

/// A call that waits for its answer.
#[derive(Clone, Debug)]
struct Call {
    number: u64,
    identifier: u32,
    version: u32,
    procedure: u32,
    handle: Vec<u8>,
    name: Vec<u8>,
    rename: Option<(Vec<u8>, Vec<u8>)>,
    /// Where in the file it reads.
    at: u64,
    credentials: Object,
    kind: &'static str,
    /// It goes on with the transaction of another.
    is_more: bool,
}
heap_size!(Call { handle, name, rename, credentials });

/// Reads numbers and opaque data (RFC 4506).
#[derive(Clone, Copy)]
struct Xdr<'a> {
    rest: &'a [u8],
}

impl<'a> Xdr<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn wide(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let bytes = self.rest.get(..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(bytes)
    }

    /// How many bytes of data there are, and those that were kept of them.
    fn data(&mut self) -> Option<(u64, &'a [u8])> {
        let length = self.number()?;
        let kept = self.rest.len().min(usize::try_from(length).ok()?);
        Some((length.into(), &self.rest[..kept]))
    }

    /// Passes over data of which perhaps not all was kept.
    fn pass_data(&mut self, length: u64) {
        let length = usize::try_from(length).unwrap_or(usize::MAX).next_multiple_of(4);
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    fn pass(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }
}

/// Whether a record of a side's begins so: a call of NFS, or a reply that was accepted (RFC 5531 s9
/// and s11).
fn is_head(side: usize, head: &[u8]) -> bool {
    let words: Vec<u32> = head
        .chunks_exact(4)
        .filter_map(|it| it.first_chunk().map(|it| u32::from_be_bytes(*it)))
        .collect();
    match (side, words.as_slice()) {
        (0, [mark, _, 0, 2, program, ..]) => mark >> 31 == 1 && *program == PROGRAM,
        (1, [mark, _, 1, 0, flavor, ..]) => mark >> 31 == 1 && *flavor <= 6,
        _ => false,
    }
}

impl Parser for Nfs {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some(held) = &mut self.held else { return self.message(side, bytes, said) };
        held[side].add_from(bytes, HEAD_LEN - 1, |it| {
            it.windows(HEAD_LEN).position(|it| is_head(side, it))
        });
        if held[side].is_lost() {
            return;
        }
        loop {
            let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return };
            let Some(mark) = held.bytes().first_chunk().map(|it| u32::from_be_bytes(*it)) else {
                return;
            };
            let length = (mark & 0x7fff_ffff) as usize;
            let looked_into = 4 + length.min(RECORD_LEN_MAX);
            if held.bytes().len() < looked_into {
                return;
            }
            let record = held.bytes()[4..looked_into].to_vec();
            held.drop(4 + length as u64);
            self.is_cut = length > RECORD_LEN_MAX;
            self.message(side, &record, said);
        }
    }

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let Some(held) = self.held.as_mut().map(|it| &mut it[side]) else { return true };
        let mark = held.bytes().first_chunk().map(|it| u32::from_be_bytes(*it));
        held.lose(count, mark.map(|it| 4 + u64::from(it & 0x7fff_ffff)));
        true
    }

    fn end(&mut self, said: &mut Said) {
        let calls = std::mem::take(&mut self.waiting);
        let calls = calls.into_iter().filter(|it| it.version < 4);
        let mut records: Vec<_> = calls.filter_map(|it| it.unanswered(0)).collect();
        for written in std::mem::take(&mut self.written) {
            records.push(written.end(said));
        }
        for reading in std::mem::take(&mut self.read).into_iter().filter(|it| !it.is_over) {
            records.extend(reading.end());
        }
        // What is left of datagrams is not told of, as with Suricata.
        if self.held.is_some() {
            records.sort_by_key(|it| it.number);
            said.records.append(&mut records);
        }
    }
}

impl Nfs {
    pub(crate) fn of_datagrams() -> Self {
        Self::default()
    }

    pub(crate) fn of_streams() -> Self {
        Self { held: Some(Default::default()), ..Self::of_datagrams() }
    }

    fn message(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let is_read = match side {
            0 => self.call(bytes, said),
            _ => self.answer(bytes, said),
        };
        if is_read.is_none() {
            let mut unit = Unit::new(Protocol::Nfs, self.count);
            unit.odd(AppEvent::NfsMalformed);
            said.unreadable(unit);
        }
    }

    fn call(&mut self, bytes: &[u8], said: &mut Said) -> Option<()> {
        let mut xdr = Xdr { rest: bytes };
        let (identifier, kind, _) = (xdr.number()?, xdr.number()?, xdr.number()?);
        let (program, version, procedure) = (xdr.number()?, xdr.number()?, xdr.number()?);
        if kind != 0 || program != PROGRAM {
            return (kind == 0).then_some(());
        }
        let (kind, credentials) = credentials(&mut xdr)?;
        let _ = (xdr.number()?, xdr.opaque()?);
        if version == 4 {
            self.compound(identifier, (procedure, xdr), (kind, credentials), said);
            return Some(());
        }
        let (name, rename) = self.named(version, procedure, xdr).unwrap_or_default();
        let has_file = is_of_file(version, procedure);
        let handle = if has_file { xdr.opaque().unwrap_or_default() } else { &[] }.to_vec();
        let is_more = version == 3 && procedure == WRITE && self.is_written(&handle);
        let first = if version == 3 && procedure == READ { self.reader_of(&handle) } else { None };
        let is_more = is_more || first.is_some();
        let number = first.unwrap_or(self.count);
        // To Suricata what asks for a file to be kept is no transaction.
        self.count += u64::from(!is_more && (version, procedure) != (3, COMMIT));
        let call = Call {
            number,
            identifier,
            version,
            procedure,
            handle,
            name,
            rename,
            at: if version == 3 && procedure == READ { xdr.wide().unwrap_or(0) } else { 0 },
            credentials,
            kind,
            is_more: first.is_some(),
        };
        if version == 3 && procedure == WRITE {
            self.write(call, xdr, said);
            return Some(());
        }
        let mut unit = call.unit();
        unit.tells("rpc", call.rpc("unknown"));
        unit.tells("nfs", call.object(None));
        said.units.push(unit);
        if self.unanswered.make_room(&mut self.waiting, WAITING_MAX) {
            let mut unit = Unit::new(Protocol::Nfs, number);
            unit.odd(AppEvent::NfsMany);
            said.units.push(unit);
        }
        self.waiting.push_back(call);
        Some(())
    }

    /// The file that a call of version 3 names, or has a handle of.
    #[allow(clippy::type_complexity)]
    fn named(
        &self,
        version: u32,
        procedure: u32,
        mut xdr: Xdr<'_>,
    ) -> Option<(Vec<u8>, Option<(Vec<u8>, Vec<u8>)>)> {
        if !is_of_file(version, procedure) {
            return None;
        }
        let handle = xdr.opaque()?;
        Some(match procedure {
            LOOKUP | CREATE | MKDIR | REMOVE | RMDIR => (xdr.opaque()?.to_vec(), None),
            RENAME => {
                let from = xdr.opaque()?.to_vec();
                let _ = xdr.opaque()?;
                (from.clone(), Some((from, xdr.opaque()?.to_vec())))
            }
            _ => {
                let known = self.files.iter().find(|it| it.0 == handle);
                (known.map(|it| it.1.clone()).unwrap_or_default(), None)
            }
        })
    }

    fn answer(&mut self, bytes: &[u8], said: &mut Said) -> Option<()> {
        let mut xdr = Xdr { rest: bytes };
        let (identifier, kind, state) = (xdr.number()?, xdr.number()?, xdr.number()?);
        let place = self.waiting.iter().position(|it| it.identifier == identifier);
        let (Some(place), 1) = (place, kind) else { return Some(()) };
        let call = self.waiting.remove(place)?;
        let mut status = None;
        if call.version == 4 {
            self.compounded(call, (state == 0).then_some(xdr), said);
            return Some(());
        }
        if state == 0 {
            let _ = (xdr.number()?, xdr.opaque()?);
            let accepted = xdr.number()?;
            // A status, but of procedures that do nothing.
            if accepted == 0 && call.procedure != 0 {
                status = Some(xdr.number()?);
            }
        }
        let mut call = call;
        if call.version == 3 && status == Some(0) {
            self.learn(&call, xdr);
            if call.procedure == LOOKUP {
                call.handle = xdr.opaque()?.to_vec();
            }
        } else if call.procedure == LOOKUP {
            call.handle.clear();
        }
        let mut unit = call.unit();
        // Even if it was denied, as with Suricata.
        let rpc = call.rpc("ACCEPTED");
        let object = call.object(Some(status.map_or("OK".to_owned(), status_name)));
        let mut objects = vec![("rpc", rpc), ("nfs", object)];
        // What reads on is told with the last piece of its file.
        let mut is_told = !call.is_quiet() && !call.is_more;
        if call.version == 3 && call.procedure == READ && status == Some(0) {
            let is_last = self.read(&call, xdr, (&mut objects, &mut unit), said);
            is_told = is_last.unwrap_or(is_told);
        }
        if is_told {
            let record = Record::new("nfs", call.number, Object::default()).from(1);
            said.records.push(Record { objects: objects.clone(), ..record });
        }
        if !call.is_quiet() {
            objects.into_iter().for_each(|(name, object)| unit.tells(name, object));
            said.units.push(unit);
        }
        Some(())
    }

    /// The handle that an answer gives of the file that was named.
    fn learn(&mut self, call: &Call, mut xdr: Xdr<'_>) {
        let handle = match call.procedure {
            LOOKUP => xdr.opaque(),
            CREATE | MKDIR => xdr.number().filter(|it| *it == 1).and_then(|_| xdr.opaque()),
            REMOVE => {
                self.files.retain(|it| it.1 != call.name);
                None
            }
            _ => None,
        };
        handle.into_iter().for_each(|it| self.remember(it, &call.name));
    }

    /// A handle leads to the file of this name.
    fn remember(&mut self, handle: &[u8], name: &[u8]) {
        self.files.retain(|it| it.0 != handle);
        if self.files.len() == FILES_MAX {
            self.files.remove(0);
        }
        self.files.push((handle.to_vec(), name.to_vec()));
    }

    /// The name that led to a handle; empty where none did.
    fn name_of(&self, handle: &[u8]) -> Vec<u8> {
        let known = self.files.iter().find(|it| it.0 == handle);
        known.map(|it| it.1.clone()).unwrap_or_default()
    }
}

impl Call {
    fn unit(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Nfs, self.number);
        unit.number(Field::NfsVersion, self.version);
        unit.number(Field::NfsProcedure, self.procedure);
        unit
    }

    /// The name of its file, if that is known.
    fn file_name(&self) -> Option<&[u8]> {
        Some(self.name.as_slice()).filter(|it| !it.is_empty())
    }

    /// Answers to it are not told of.
    fn is_quiet(&self) -> bool {
        self.version < 4 && matches!(self.procedure, GETATTR | COMMIT)
    }

    /// Whether it reads a file.
    fn reads(&self) -> bool {
        matches!((self.version, self.procedure), (3, READ) | (4, four::READ))
    }

    /// How many pieces of a file are told: in version 4 those behind the first.
    fn chunks(&self, pieces: u32) -> u32 {
        pieces.saturating_sub(u32::from(self.version == 4))
    }

    /// What is told of it once its flow ends without an answer.
    fn unanswered(mut self, pieces: u32) -> Option<Record> {
        if self.is_quiet() || (self.version > 3 && !self.reads()) || self.is_more {
            return None;
        }
        if self.procedure == LOOKUP {
            self.handle.clear();
        }
        let mut object = self.object(Some("OK".to_owned()));
        if self.reads() {
            let chunks = Object::default()
                .with("first", true)
                .with("last", false)
                .with("last_xid", 0_u8)
                .with("chunks", self.chunks(pieces));
            object.put("read", chunks);
        }
        let mut record = Record::new("nfs", self.number, object).from(1);
        record.objects.insert(0, ("rpc", self.rpc("ACCEPTED")));
        Some(record)
    }

    fn rpc(&self, status: &str) -> Object {
        let mut object = Object::default()
            .with("xid", self.identifier)
            .with("status", status)
            .with("auth_type", self.kind);
        if !self.credentials.is_empty() {
            object.put("creds", self.credentials.clone());
        }
        object
    }

    fn object(&self, status: Option<String>) -> Object {
        let kind = if status.is_some() { "response" } else { "request" };
        let mut object = Object::default()
            .with("version", self.version)
            .with("procedure", procedure_name(self.version, self.procedure))
            .with("filename", text(&self.name));
        if !self.handle.is_empty() {
            let mut checksum = flate2::Crc::new();
            checksum.update(&self.handle);
            object.put("hhash", format!("{:x}", checksum.sum()));
        }
        let moves = [(3, READ), (3, WRITE), (4, four::READ), (4, four::WRITE)];
        let is_file = moves.contains(&(self.version, self.procedure));
        object.put("id", self.number + 1);
        object.put("file_tx", is_file);
        object.put("type", kind);
        if let Some((from, to)) = &self.rename {
            object.put("rename", Object::default().with("from", text(from)).with("to", text(to)));
        }
        if self.version == 2 && self.procedure == SECOND_WRITE && status.is_some() {
            object.put("write", Object::default().with("first", false).with("last", false));
        }
        object.put_some("status", status);
        object
    }
}

/// Whether the file that a call has a handle of is told.
fn is_of_file(version: u32, procedure: u32) -> bool {
    let has_handle = matches!(procedure, LOOKUP | ACCESS | READ..=MKDIR | REMOVE..=RENAME);
    version == 3 && (has_handle || matches!(procedure, READDIRPLUS | COMMIT))
}

/// The flavour of credentials, and what those of Unix tell.
fn credentials(xdr: &mut Xdr<'_>) -> Option<(&'static str, Object)> {
    let flavour = xdr.number()?;
    let mut inner = Xdr { rest: xdr.opaque()? };
    Some(match flavour {
        0 => ("NULL", Object::default()),
        UNIX => {
            inner.pass(4)?;
            let machine = text(inner.opaque()?);
            let (user, group) = (inner.number()?, inner.number()?);
            let object = Object::default().with("machine_name", machine);
            ("UNIX", object.with("uid", user).with("gid", group))
        }
        2 => ("SHORT", Object::default()),
        3 => ("DH", Object::default()),
        6 => ("GSS", Object::default()),
        _ => ("UNKNOWN", Object::default()),
    })
}

/// As EVE spells them.
fn procedure_name(version: u32, procedure: u32) -> String {
    if version == 4 {
        return match procedure {
            0 => "NULL",
            four::READ => "READ",
            four::WRITE => "WRITE",
            four::REMOVE => "REMOVE",
            _ => "COMPOUND",
        }
        .to_owned();
    }
    if version == 2 {
        let name = SECOND.get(procedure as usize).copied();
        return name.map_or_else(|| procedure.to_string(), str::to_owned);
    }
    let names = super::names::NFS_PROCEDURE;
    let name = super::names::name_of(names, i64::from(procedure));
    name.map_or_else(|| procedure.to_string(), str::to_ascii_uppercase)
}

/// RFC 1813 s2.6, as EVE spells them.
fn status_name(status: u32) -> String {
    match status {
        0 => "OK",
        1 => "ERR_PERM",
        2 => "ERR_NOENT",
        5 => "ERR_IO",
        6 => "ERR_NXIO",
        13 => "ERR_ACCES",
        17 => "ERR_EXIST",
        18 => "ERR_XDEV",
        19 => "ERR_NODEV",
        20 => "ERR_NOTDIR",
        21 => "ERR_ISDIR",
        22 => "ERR_INVAL",
        27 => "ERR_FBIG",
        28 => "ERR_NOSPC",
        30 => "ERR_ROFS",
        31 => "ERR_MLINK",
        63 => "ERR_NAMETOOLONG",
        66 => "ERR_NOTEMPTY",
        69 => "ERR_DQUOT",
        70 => "ERR_STALE",
        71 => "ERR_REMOTE",
        10001 => "ERR_BADHANDLE",
        10002 => "ERR_NOT_SYNC",
        10003 => "ERR_BAD_COOKIE",
        10004 => "ERR_NOTSUPP",
        10005 => "ERR_TOOSMALL",
        10006 => "ERR_SERVERFAULT",
        10007 => "ERR_BADTYPE",
        10008 => "ERR_JUKEBOX",
        other => return other.to_string(),
    }
    .to_owned()
}

#[cfg(test)]
mod tests;
