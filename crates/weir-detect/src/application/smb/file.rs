//! Files that are open: their bytes, in whatever order they come, and what is told of them.

use super::pipe::Pipe;
use super::{FILES_MAX, Head, LATER_MAX, RELATED, Smb, guid, told_text};
use crate::application::file::Content;
use crate::application::rpc::Rpc;
use crate::application::unit::{FileState, FileTold, Record, Said, Unit};
use crate::buffers::event::AppEvent;
use crate::digest::Digests;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// Pieces of a file ahead of others, and their bytes, at most; more are odd (Suricata's limits).
const AHEAD_MAX: usize = 64;
const AHEAD_LEN_MAX: u64 = 64 << 20;
const QUEUE_SIZE: [AppEvent; 2] = [AppEvent::SmbWriteQueueSize, AppEvent::SmbReadQueueSize];
const QUEUE_COUNT: [AppEvent; 2] = [AppEvent::SmbWriteQueueCount, AppEvent::SmbReadQueueCount];
/// A file is looked at again when it has grown by so much.
const FILE_STEP: usize = 16 * 1024;

/// A file that is open, or a pipe.
#[derive(Debug)]
pub(super) struct File {
    pub(super) identifier: u128,
    /// Empty of its share's root, too.
    pub(super) name: Vec<u8>,
    /// It was seen opened.
    is_known: bool,
    pub(super) pipe: Option<Box<Pipe>>,
    /// What is written to it, and read.
    pub(super) moved: [Option<Box<Moved>>; 2],
    version: u8,
    /// Its client is closing it.
    pub(super) is_closing: bool,
}
heap_size!(File { name, pipe, moved });

/// Bytes of a file that go one way: a transaction.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) number: u64,
    content: Content,
    looked_at: usize,
    /// Up to where it lies together, and pieces ahead of that.
    together: u64,
    ahead: Vec<(u64, u64)>,
    /// It was told that there are too many of them.
    is_scattered: bool,
    /// Rules have looked at all of it.
    is_over: bool,
    session: u64,
    tree: u32,
    share: Vec<u8>,
}
heap_size!(Moved { content, ahead, share });

impl Smb {
    pub(super) fn open(&mut self, identifier: u128, name: Vec<u8>, head: &Head, said: &mut Said) {
        let is_pipe = self.trees.iter().any(|it| it.identifier == head.tree && it.is_pipe);
        let known = self.files.iter_mut().find(|it| it.identifier == identifier);
        // Its client did not wait to be told that it is open.
        if let Some(file) = known.filter(|it| is_pipe && it.pipe.is_some()) {
            if let Some(pipe) = &mut file.pipe {
                (pipe.is_told, pipe.is_aside) = (Pipe::of(&name).is_told, false);
            }
            (file.name, file.is_known) = (name, true);
            return;
        }
        self.close(identifier, said);
        if self.files.len() == FILES_MAX {
            self.files.remove(0);
        }
        self.files.push(File {
            identifier,
            pipe: is_pipe.then(|| Box::new(Pipe::of(&name))),
            name,
            is_known: true,
            moved: [None, None],
            version: head.version,
            is_closing: false,
        });
    }

    pub(super) fn close(&mut self, identifier: u128, said: &mut Said) {
        let Some(place) = self.files.iter().position(|it| it.identifier == identifier) else {
            return;
        };
        let mut file = self.files.remove(place);
        for side in [0, 1] {
            self.finish(&mut file, side, said);
            self.tell_file(&file, side, FileState::Closed, said);
        }
        self.tell_calls_later(file.pipe.take());
    }

    /// Rules look at what was moved of a file that is closed, unless they have. It is its sender's.
    pub(super) fn finish(&self, file: &mut File, side: usize, said: &mut Said) {
        let Some(moved) = file.moved[side].as_mut().filter(|it| !it.is_over) else { return };
        moved.is_over = true;
        let Some(mut unit) = self.file_unit(file, FileState::Closed, side) else { return };
        let content = file.moved[side].iter().map(|it| &it.content);
        for content in content {
            unit.whole_file(content.size, content.digests());
            if !content.is_whole() {
                // Suricata does not count what lies behind a hole.
                unit.whole_file(content.size_in_all(), Digests::default());
            }
        }
        match side == self.side {
            true => said.units.push(unit),
            false if said.later.len() < LATER_MAX => said.later.push(unit),
            false => {}
        }
    }

    /// What there is to tell of a file that was moved.
    pub(super) fn tell_file(&self, file: &File, side: usize, state: FileState, said: &mut Said) {
        let Some(moved) = &file.moved[side] else { return };
        let object = self.file_object(file, moved, side, state);
        said.records.push(Record::new("smb", moved.number, object.clone()));
        let (name, number) = (file.told_name(side).1, moved.number);
        let (size, digests) = (moved.content.size, moved.content.digests());
        let told = FileTold { name, size, digests, side, range: None };
        said.records.push(Record::file_in(state, number, vec![("smb", object)], &told));
    }

    fn file_object(&self, file: &File, moved: &Moved, side: usize, state: FileState) -> Object {
        let command = match (file.version, side) {
            (1, 0) => "SMB1_COMMAND_WRITE_ANDX",
            (1, _) => "SMB1_COMMAND_READ_ANDX",
            (_, 0) => "SMB2_COMMAND_WRITE",
            _ => "SMB2_COMMAND_READ",
        };
        let mut object = Object::default()
            .with("id", moved.number + 1)
            .with("dialect", self.dialect.as_deref().unwrap_or("unknown"))
            .with("command", command);
        let is_old = file.version == 1;
        // What is read is mostly looked at when it is closed.
        if !is_old && (state == FileState::Closed || state == FileState::Open && side == 1) {
            object.put("status", "STATUS_SUCCESS");
            object.put("status_code", "0x0");
        }
        object.put("session_id", if is_old { 0 } else { moved.session });
        object.put("tree_id", if is_old { 0 } else { moved.tree });
        object.put("filename", told_text(file.told_name(side).0));
        // Who writes by version 2 has none there.
        let share = if side == 0 && !is_old { &[][..] } else { &moved.share };
        object.put("share", told_text(share));
        object.put("fuid", file.spelt());
        object
    }

    fn file_unit(&self, file: &File, state: FileState, side: usize) -> Option<Unit> {
        let moved = file.moved[side].as_ref()?;
        let mut unit = Unit::new(Protocol::Smb, moved.number);
        unit.number(Field::SmbVersion, file.version);
        unit.text(Buffer::FileName, &file.name);
        moved.content.stretches().for_each(|it| unit.text(Buffer::FileData, it));
        unit.tells("smb", self.file_object(file, moved, side, state));
        let name = file.told_name(side).1;
        let (size, digests) = (moved.content.size, moved.content.digests());
        let told = FileTold { name, size, digests, side, range: None };
        unit.files.push(told.object(state, moved.number));
        Some(unit)
    }

    /// The place of a file among those that are open. One that nobody has seen opened has no name,
    /// but for [`RELATED`].
    fn place_of(&mut self, identifier: u128, head: &Head, said: &mut Said) -> usize {
        if let Some(place) = self.files.iter().position(|it| it.identifier == identifier) {
            return place;
        }
        let name = self.related.clone().filter(|_| identifier == RELATED);
        self.open(identifier, name.unwrap_or_default(), head, said);
        self.files.last_mut().into_iter().for_each(|it| it.is_known = false);
        self.files.len() - 1
    }

    /// Bytes of a file or pipe that a side sends: where in the file they lie, what was kept of
    /// them, and how many they are.
    pub(super) fn content(
        &mut self,
        (side, identifier): (usize, u128),
        (at, bytes, length): (Option<u64>, &[u8], u64),
        head: &Head,
        said: &mut Said,
    ) {
        let place = self.place_of(identifier, head, said);
        let tree = self.trees.iter().find(|it| it.identifier == head.tree);
        let file = &mut self.files[place];
        // What it is nobody knows, where its share was not told: calls begin in their own way.
        let is_unknown = tree.is_none() && !file.is_known && file.is_untouched();
        if is_unknown && Rpc::begins(bytes) {
            file.pipe = Some(Box::new(Pipe::told()));
        }
        if let Some(pipe) = file.pipe.as_mut().filter(|it| !it.is_aside) {
            pipe.is_told |= head.version == 1;
            return self.call(side, place, bytes, head, said);
        }
        let count = &mut self.count;
        let moved = file.moved[side].get_or_insert_with(|| {
            *count += 1;
            let share = tree.map(|it| it.name.clone()).unwrap_or_default();
            Box::new(Moved::new(*count - 1, head, share))
        });
        let overlaps = at.is_some_and(|at| at < moved.together);
        let queue = at.and_then(|at| moved.place(side, at, length));
        // What lies about its length is not longer for it.
        let passed = if self.is_cut { length.saturating_sub(bytes.len() as u64) } else { 0 };
        let is_worth = moved.add(at, (bytes, passed), said);
        let number = moved.number;
        if is_worth {
            said.units.extend(self.file_unit(&self.files[place], FileState::Open, side));
        }
        for event in overlaps.then_some(AppEvent::SmbOverlap).into_iter().chain(queue) {
            let mut unit = Unit::new(Protocol::Smb, number);
            unit.odd(event);
            said.units.push(unit);
        }
    }

    /// Bytes that no receiver takes: a file's, more than a message may move, or fewer than it says.
    /// Rules look at them by themselves.
    pub(super) fn stray(&self, identifier: u128, bytes: &[u8], said: &mut Said) {
        let mut unit = self.aside();
        unit.number(Field::SmbVersion, 2_u8);
        let file = self.files.iter().find(|it| it.identifier == identifier);
        unit.some_text(Buffer::FileName, file.map(|it| it.name.as_slice()));
        unit.text(Buffer::FileData, bytes);
        said.units.push(unit);
    }

    pub(super) fn is_pipe(&self, identifier: u128) -> bool {
        let is_pipe = |it: &File| it.pipe.as_ref().is_some_and(|it| !it.is_aside);
        self.files.iter().any(|it| it.identifier == identifier && is_pipe(it))
    }

    /// A pipe's bytes: whatever share it is of, its client calls it so. A file stays one: whoever
    /// asks that of one, and is refused, hides nothing of it. Whether it is told of.
    pub(super) fn transceive(
        &mut self,
        (side, identifier): (usize, u128),
        bytes: &[u8],
        head: &Head,
        said: &mut Said,
    ) -> bool {
        let place = self.place_of(identifier, head, said);
        let file = &mut self.files[place];
        let is_aside = file.is_known || !file.is_untouched();
        let pipe = file.pipe.get_or_insert_with(|| {
            let mut pipe = Pipe::of(&file.name);
            pipe.is_aside = is_aside;
            Box::new(pipe)
        });
        let is_told = pipe.is_told;
        self.call(side, place, bytes, head, said);
        is_told
    }
}

impl File {
    /// The newest transaction of it that goes on.
    pub(super) fn newest_number(&self) -> Option<u64> {
        let moved = self.moved.iter().flatten().map(|it| it.number);
        moved.chain(self.pipe.as_ref().and_then(|it| it.newest_number())).max()
    }

    /// Nothing of it was moved, and it is no pipe as far as is known.
    fn is_untouched(&self) -> bool {
        self.pipe.is_none() && self.moved.iter().all(Option::is_none)
    }

    /// Its name as a transaction tells it, and as a file's.
    fn told_name(&self, side: usize) -> (&[u8], Option<&[u8]>) {
        // Whose name Suricata makes up.
        let has_none = (side == 0) == (self.version == 1);
        match (self.name.as_slice(), side) {
            (b"", _) if has_none && !self.is_known => (b"<unknown>", Some(b"<unknown>")),
            (b"", _) => (b"", None),
            // Who writes in the record that opens it has no name for it yet.
            (name, 0) if self.identifier == RELATED => (&name[..0], None),
            (name, _) => (name, Some(name)),
        }
    }

    /// Its identifier as EVE spells it.
    fn spelt(&self) -> String {
        match self.version {
            1 => format!("{:04x}", self.identifier),
            _ => guid(&self.identifier.to_le_bytes()),
        }
    }
}

impl Moved {
    fn new(number: u64, head: &Head, share: Vec<u8>) -> Self {
        Self {
            number,
            content: Content::default(),
            looked_at: 0,
            together: 0,
            ahead: Vec::new(),
            is_scattered: false,
            is_over: false,
            session: head.session,
            tree: head.tree,
            share,
        }
    }

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

    /// Notes where a piece lies; what is odd about those that lie ahead.
    fn place(&mut self, side: usize, at: u64, length: u64) -> Option<AppEvent> {
        if at <= self.together {
            self.together = self.together.max(at.saturating_add(length));
            while let Some(next) = self.ahead.iter().position(|it| it.0 <= self.together) {
                let (at, length) = self.ahead.swap_remove(next);
                self.together = self.together.max(at.saturating_add(length));
            }
            return None;
        }
        let waiting: u64 = self.ahead.iter().map(|it| it.1).sum();
        let event = match () {
            () if waiting.saturating_add(length) > AHEAD_LEN_MAX => QUEUE_SIZE[side],
            () if self.ahead.len() >= AHEAD_MAX => QUEUE_COUNT[side],
            () => {
                self.ahead.push((at, length));
                return None;
            }
        };
        (!std::mem::replace(&mut self.is_scattered, true)).then_some(event)
    }
}
