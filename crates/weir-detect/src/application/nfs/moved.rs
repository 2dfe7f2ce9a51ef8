//! Files that calls of NFS read and write: a transaction each, from the first of its pieces on.

use super::{Call, FILE_SYNC, FILES_MAX, Nfs, READ_MAX, Xdr};
use crate::application::file::Content;
use crate::application::unit::{FileState, FileTold, Record, Said, Unit};
use crate::heap::heap_size;
use crate::rule::Buffer;
use crate::value::Object;

/// What is told, by its names.
pub(super) type Objects = Vec<(&'static str, Object)>;

/// A file that is written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) call: Call,
    pub(super) content: Content,
    pub(super) pieces: u32,
    /// The call that brought the last piece, or asked for the file to be kept.
    pub(super) last: u32,
    /// How long it was when it was told of.
    pub(super) told: Option<u64>,
}
heap_size!(Written { call, content });

/// A file that is read: a transaction from its first call on.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) call: Call,
    pub(super) content: Content,
    pub(super) pieces: u32,
    /// Its last piece came.
    pub(super) is_over: bool,
}
heap_size!(Reading { call, content });

impl Reading {
    /// What is told of a file whose last piece did not come.
    pub(super) fn end(self) -> Vec<Record> {
        let Self { call, content, pieces, .. } = self;
        let (number, name) = (call.number, call.file_name().map(<[u8]>::to_vec));
        let (size, digests) = (content.size, content.digests());
        let told = FileTold { name: name.as_deref(), size, digests, side: 1, range: None };
        let told_of = call.unanswered(pieces);
        let file = told_of
            .as_ref()
            .map(|it| Record::file_in(FileState::Truncated, number, it.objects.clone(), &told));
        [told_of, file].into_iter().flatten().collect()
    }
}

impl Written {
    fn new(call: Call) -> Self {
        let last = call.identifier;
        Self { call, content: Content::default(), pieces: 0, last, told: None }
    }

    /// The file ends with its flow, and is told of if it has grown since it was; what is told of
    /// its writing.
    pub(super) fn end(mut self, said: &mut Said) -> Record {
        self.content.finish(said.wanted);
        if self.told != Some(self.content.size) {
            self.tell(said);
        }
        let (number, objects) = (Some(self.call.number), self.objects());
        Record { kind: "nfs", number, objects, side: None }
    }

    /// The file is to be kept as it is: it is told of, once.
    pub(super) fn keep(&mut self, said: &mut Said) {
        if self.told.is_none() {
            self.tell(said);
        }
    }

    fn tell(&mut self, said: &mut Said) {
        self.told = Some(self.content.size);
        said.records.push(Record::file(self.call.number, self.objects(), &self.file()));
    }

    fn file(&self) -> FileTold<'_> {
        let (size, digests) = (self.content.size, self.content.digests());
        FileTold { name: self.call.file_name(), size, digests, side: 0, range: None }
    }

    fn objects(&self) -> Objects {
        let Self { call, pieces, last, .. } = self;
        let chunks = Object::default()
            .with("first", true)
            .with("last", true)
            .with("last_xid", *last)
            .with("chunks", pieces.saturating_sub(1));
        let object = call.object(Some("OK".to_owned())).with("write", chunks);
        // Who wrote is not told.
        let rpc = Call { credentials: Object::default(), kind: "NULL", ..call.clone() };
        vec![("rpc", rpc.rpc("ACCEPTED")), ("nfs", object)]
    }
}

impl Nfs {
    /// Of so many bytes, those that are not kept: what lies about its length is not longer for it.
    fn passed(&self, length: u64, data: &[u8]) -> u64 {
        if self.is_cut { length - data.len() as u64 } else { 0 }
    }

    pub(super) fn is_written(&self, handle: &[u8]) -> bool {
        self.written.iter().any(|it| it.call.handle == handle)
    }

    /// The transaction that reads a file.
    pub(super) fn reader_of(&self, handle: &[u8]) -> Option<u64> {
        let read = self.read.iter().filter(|it| !it.is_over).map(|it| &it.call);
        let reads = |it: &&Call| it.reads();
        let mut calls = read.chain(self.waiting.iter().filter(reads));
        calls.find(|it| it.handle == handle).map(|it| it.number)
    }

    /// More of a file.
    pub(super) fn write(&mut self, call: Call, mut xdr: Xdr<'_>, said: &mut Said) {
        let (Some(at), Some(_), Some(stable)) = (xdr.wide(), xdr.number(), xdr.number()) else {
            return;
        };
        let Some(data) = xdr.data() else { return };
        self.write_piece(call, (at, stable), data, said);
    }

    /// The same from byte `at` on, and how it is to be kept: so many bytes, and those of them that
    /// are here.
    pub(super) fn write_piece(
        &mut self,
        call: Call,
        (at, stable): (u64, u32),
        (length, data): (u64, &[u8]),
        said: &mut Said,
    ) {
        let last = call.identifier;
        let place = self.written.iter().position(|it| it.call.handle == call.handle);
        let place = place.unwrap_or_else(|| {
            if self.written.len() == FILES_MAX {
                self.written.remove(0);
            }
            self.written.push(Written::new(call));
            self.written.len() - 1
        });
        let passed = self.passed(length, data);
        let file = &mut self.written[place];
        (file.pieces, file.last) = (file.pieces + 1, last);
        file.content.add_at(at, (data, passed), said.wanted);
        let mut unit = file.call.unit();
        unit.text(Buffer::FileName, &file.call.name);
        file.content.stretches().for_each(|it| unit.text(Buffer::FileData, it));
        // With these bytes the file is to be on the disk.
        if stable == FILE_SYNC && file.content.is_whole() {
            unit.whole_file(file.content.size, file.content.digests());
            file.keep(said);
        }
        unit.tells("nfs", file.call.object(None));
        let is_kept = file.told == Some(file.content.size);
        let state = if is_kept { FileState::Closed } else { FileState::Open };
        unit.files.push(file.file().object(state, file.call.number));
        said.units.push(unit);
    }

    /// What came of a file that is read; whether it is the last piece, with which it is told.
    pub(super) fn read(
        &mut self,
        call: &Call,
        mut xdr: Xdr<'_>,
        (objects, unit): (&mut Objects, &mut Unit),
        said: &mut Said,
    ) -> Option<bool> {
        if xdr.number()? == 1 {
            xdr.pass(84)?;
        }
        let (_, is_last) = (xdr.number()?, xdr.number()? == 1);
        let data = xdr.data()?;
        self.read_piece(call, (is_last, data), (objects, unit), said);
        Some(is_last)
    }

    /// The same: whether it is the last piece, how many bytes it has, and those that are here.
    pub(super) fn read_piece(
        &mut self,
        call: &Call,
        (is_last, (length, data)): (bool, (u64, &[u8])),
        (objects, unit): (&mut Objects, &mut Unit),
        said: &mut Said,
    ) {
        let passed = self.passed(length, data);
        let reading = self.reading_of(call, said);
        reading.pieces += 1;
        reading.content.add_at(call.at, (data, passed), said.wanted);
        unit.text(Buffer::FileName, &call.name);
        reading.content.stretches().for_each(|it| unit.text(Buffer::FileData, it));
        let chunks = Object::default()
            .with("first", true)
            .with("last", is_last)
            .with("last_xid", call.identifier)
            .with("chunks", call.chunks(reading.pieces));
        objects[0].1 = reading.call.rpc("ACCEPTED");
        objects[1].1.put("read", chunks);
        if is_last {
            // Answers overtake each other: what lies before may come yet.
            reading.is_over = true;
            let mut content = reading.content.clone();
            content.finish(said.wanted);
            let (size, digests) = (content.size, content.digests());
            unit.whole_file(size, digests);
            let told = FileTold { name: call.file_name(), size, digests, side: 1, range: None };
            unit.files.push(told.object(FileState::Closed, call.number));
            said.records.push(Record::file(call.number, objects.clone(), &told));
        }
    }

    /// The file that a call reads. One that makes room for it is told as it ends here.
    fn reading_of(&mut self, call: &Call, said: &mut Said) -> &mut Reading {
        self.read.retain(|it| !(it.is_over && it.content.is_whole()));
        let place = self.read.iter().position(|it| it.call.handle == call.handle);
        let place = place.unwrap_or_else(|| {
            if self.read.len() == READ_MAX {
                let oldest = self.read.remove(0);
                if !oldest.is_over {
                    said.records.extend(oldest.end());
                }
            }
            let (call, content) = (call.clone(), Content::default());
            self.read.push(Reading { call, content, pieces: 0, is_over: false });
            self.read.len() - 1
        });
        &mut self.read[place]
    }
}
