//! Segments in a file of a fixed size, the oldest overwritten first.
//!
//! ```text
//!   page: "weir evidence 1", whose packets | slot | slot | ...
//!   slot: page: "WEIRSLOT", which segment, its extent, checksums | the segment's records
//! ```
//!
//! The room is taken from the disk at once, so that it is there when it is needed. A slot's records
//! are written before its head: a slot that was cut short by a crash fails its checksum and is
//! passed over.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use weir_engine::policy::FrameClass;
use weir_engine::verdict::DropReason;
use weir_wire::frame::Time;

use super::segment::PAGE_BYTES;
use super::{Extent, SEGMENT_BYTES, SegmentId};

/// Bytes of a slot: a page for its head, and a segment.
pub const SLOT_BYTES: usize = PAGE_BYTES + SEGMENT_BYTES;
/// The fewest slots of a file: one is being overwritten, and the rest is worth keeping.
pub const SLOTS_MIN: usize = 8;

const FILE_MAGIC: &str = "weir evidence 1";
const SLOT_MAGIC: &[u8; 8] = b"WEIRSLOT";
/// Numbers in a slot's head, behind the magic; the checksum of them is one more.
const SLOT_WORDS: usize = 9;
const SLOT_CHECKSUM_AT: usize = 8 + SLOT_WORDS * 8;

/// Whose packets a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The gateway's name.
    pub gateway: String,
    /// The pair's name.
    pub pair: String,
    /// Its interface towards the host.
    pub host: String,
    /// Its interface towards the fabric.
    pub wire: String,
    /// Which of the pair's workers recorded them, 0 to 15.
    pub worker: usize,
}

impl Label {
    /// The name of the file: a pair has one for each worker.
    pub fn file_name(&self) -> String {
        let Self { gateway, pair, worker, .. } = self;
        match worker {
            0 => format!("{gateway}-{pair}.evidence"),
            number => format!("{gateway}-{pair}.worker-{number}.evidence"),
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceFileError {
    /// The operating system refused.
    #[error("{path}: cannot {what}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The answer.
        error: io::Error,
    },
    /// The disk has no room for it.
    #[error("{path}: there is no room for {mib} MiB; make room, or set a smaller disk_mib")]
    Full {
        /// The file.
        path: PathBuf,
        /// What it wants.
        mib: u64,
    },
    /// Something else is there.
    #[error("{0}: this is no evidence file of this version of weir; move it away")]
    Foreign(PathBuf),
    /// Another process writes to it.
    #[error("{0}: another gateway writes to it; give one of them another folder or name")]
    InUse(PathBuf),
}

/// A slot that holds a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where in the file it lies.
    index: usize,
    /// Counts the segments that the file was given: the order in which they were recorded.
    sequence: u64,
    /// The segment.
    pub segment: SegmentId,
    /// What it holds.
    pub extent: Extent,
    /// Of its records.
    checksum: u32,
    /// Of the names of all verdicts, as the writer knew them.
    vocabulary: u32,
}

/// The file of a pair, to read.
#[derive(Debug)]
pub struct EvidenceFile {
    file: File,
    label: Label,
    /// The oldest first.
    slots: Vec<Slot>,
    capacity_slots: usize,
}

impl EvidenceFile {
    /// Opens the file at `path`, which a gateway may be writing to.
    ///
    /// # Errors
    /// [`EvidenceFileError`].
    pub fn open(path: &Path) -> Result<Self, EvidenceFileError> {
        let read = |what, error| EvidenceFileError::Io { path: path.to_owned(), what, error };
        let file = File::open(path).map_err(|error| read("open it", error))?;
        let label = read_label(&file).map_err(|error| read("read it", error))?;
        let label = label.ok_or_else(|| EvidenceFileError::Foreign(path.to_owned()))?;
        let len = file.metadata().map_err(|error| read("read it", error))?.len();
        let capacity_slots = slots_in(len);
        let slots = read_slots(&file, capacity_slots).map_err(|error| read("read it", error))?;
        Ok(Self { file, label, slots, capacity_slots })
    }

    /// Whose packets it holds.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The slots that hold something, the oldest first.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Bytes of records that it can hold.
    pub fn capacity_bytes(&self) -> u64 {
        (self.capacity_slots * SEGMENT_BYTES) as u64
    }

    /// Reads the records of `slot` into `records`. False: it is damaged, or was overwritten since
    /// the file was opened.
    ///
    /// # Errors
    /// The disk's own.
    pub fn read(&self, slot: &Slot, records: &mut Vec<u8>) -> io::Result<bool> {
        records.resize(slot.extent.used, 0);
        match self.file.read_exact_at(records, slot_at(slot.index) + PAGE_BYTES as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            result => result?,
        }
        Ok(crc32fast::hash(records) == slot.checksum)
    }

    /// Whether the verdicts in `slot` mean what this program takes them for: another version may
    /// have numbered them otherwise.
    pub fn knows_verdicts(slot: &Slot) -> bool {
        slot.vocabulary == vocabulary()
    }
}

/// The file of a pair, to write; locked against a second writer.
#[derive(Debug)]
pub(super) struct SlotFile {
    path: PathBuf,
    file: File,
    is_direct: bool,
    /// By index.
    slots: Vec<Option<Slot>>,
    newest: Option<Slot>,
    packets: u64,
    bytes: u64,
    vocabulary: u32,
    head: Box<Page>,
}

#[derive(Debug)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

impl SlotFile {
    /// Opens or makes the file of `label` in `folder`, of `count` slots. What it holds stays, as
    /// far as `count` lets it.
    ///
    /// # Errors
    /// [`EvidenceFileError`].
    pub(super) fn open(
        folder: &Path,
        label: &Label,
        count: usize,
    ) -> Result<Self, EvidenceFileError> {
        let path = folder.join(label.file_name());
        let failed = |what, error| EvidenceFileError::Io { path: folder.to_owned(), what, error };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| failed("make this folder", error))?;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path);
        let failed = |what, error| EvidenceFileError::Io { path: path.clone(), what, error };
        let file = opened.map_err(|error| failed("open it", error))?;
        let owner = file.metadata().map_err(|error| failed("read it", error))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(EvidenceFileError::Foreign(path));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(EvidenceFileError::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(failed("lock it", error)),
        }
        let len = file.metadata().map_err(|error| failed("read it", error))?.len();
        let known = read_label(&file).map_err(|error| failed("read it", error))?;
        if len > 0 && known.is_none() {
            return Err(EvidenceFileError::Foreign(path));
        }
        take_room(&file, &path, len, slot_at(count))?;
        let mut head = Box::new(Page([0; PAGE_BYTES]));
        write_label(label, &mut head.0);
        file.write_all_at(&head.0, 0).map_err(|error| failed("write to it", error))?;
        let held = read_slots(&file, count).map_err(|error| failed("read it", error))?;
        let mut slots = vec![None; count];
        for slot in &held {
            slots[slot.index] = Some(*slot);
        }
        let is_direct = set_direct(&file, true);
        Ok(Self {
            path,
            file,
            is_direct,
            slots,
            newest: held.last().copied(),
            packets: held.iter().map(|slot| slot.extent.packets).sum(),
            bytes: held.iter().map(|slot| slot.extent.used as u64).sum(),
            vocabulary: vocabulary(),
            head,
        })
    }

    /// Writes the segment: `pages` begins at a page, holds its records and ends with one. What lies
    /// before `from` in them is there already when the segment was the last one written.
    ///
    /// # Errors
    /// The disk's own; the slot is lost then.
    pub(super) fn write(
        &mut self,
        segment: SegmentId,
        extent: Extent,
        pages: &[u8],
        from: usize,
    ) -> Result<(), EvidenceFileError> {
        let again = self.newest.filter(|newest| newest.segment == segment);
        let next = || match self.newest {
            Some(newest) => ((newest.index + 1) % self.slots.len(), newest.sequence + 1),
            None => (0, 1),
        };
        let (index, sequence) = again.map_or_else(next, |it| (it.index, it.sequence));
        let from = if again.is_some() { from - from % PAGE_BYTES } else { 0 };
        let checksum = crc32fast::hash(&pages[..extent.used]);
        let vocabulary = self.vocabulary;
        let slot = Slot { index, sequence, segment, extent, checksum, vocabulary };
        slot.encode(&mut self.head.0);
        let at = slot_at(index);
        let written = write_pages(&self.file, &mut self.is_direct, &pages[from..], {
            at + (PAGE_BYTES + from) as u64
        })
        .and_then(|()| write_pages(&self.file, &mut self.is_direct, &self.head.0, at));
        let path = || self.path.clone();
        written.map_err(|error| EvidenceFileError::Io {
            path: path(),
            what: "write to it",
            error,
        })?;
        let before = self.slots[index].replace(slot).map(|it| it.extent).unwrap_or_default();
        self.packets = self.packets + extent.packets - before.packets;
        self.bytes = self.bytes + extent.used as u64 - before.used as u64;
        self.newest = Some(slot);
        Ok(())
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub(super) fn sync(&self) -> Result<(), EvidenceFileError> {
        let path = || self.path.clone();
        let failed = |error| EvidenceFileError::Io { path: path(), what: "write to it", error };
        self.file.sync_data().map_err(failed)
    }

    /// Packets, bytes of records, and the time of the oldest packet.
    pub(super) fn holds(&self) -> (u64, u64, Option<Time>) {
        let behind = self.newest.map_or(0, |newest| newest.index + 1);
        let (newer, older) = self.slots.split_at(behind);
        let oldest = older.iter().chain(newer).flatten().next();
        (self.packets, self.bytes, oldest.map(|slot| slot.extent.first))
    }

    /// Bytes of records that it can hold.
    pub(super) fn capacity_bytes(&self) -> u64 {
        (self.slots.len() * SEGMENT_BYTES) as u64
    }
}

/// Past the page cache where the file system can: the disk takes it from our memory.
fn write_pages(file: &File, is_direct: &mut bool, pages: &[u8], at: u64) -> io::Result<()> {
    match file.write_all_at(pages, at) {
        Err(error) if *is_direct && error.kind() == io::ErrorKind::InvalidInput => {
            *is_direct = set_direct(file, false);
            file.write_all_at(pages, at)
        }
        result => result,
    }
}

/// Whether it writes past the page cache from here on.
fn set_direct(file: &File, wanted: bool) -> bool {
    let set = rustix::fs::fcntl_getfl(file).and_then(|mut flags| {
        flags.set(OFlags::DIRECT, wanted);
        rustix::fs::fcntl_setfl(file, flags)
    });
    wanted && set.is_ok()
}

/// Makes the file as long as it is to be, with every block its own.
fn take_room(file: &File, path: &Path, len: u64, wanted: u64) -> Result<(), EvidenceFileError> {
    let failed = |what, error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            EvidenceFileError::Full { path: path.to_owned(), mib: wanted >> 20 }
        }
        _ => EvidenceFileError::Io { path: path.to_owned(), what, error },
    };
    file.set_len(wanted).map_err(|error| failed("size it", error))?;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, wanted) {
        Ok(()) => Ok(()),
        // A file system that cannot: blocks come as they are written.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(error) => {
            let _ = file.set_len(len.min(wanted));
            Err(failed("take room for it", error.into()))
        }
    }
}

fn slot_at(index: usize) -> u64 {
    (PAGE_BYTES + index * SLOT_BYTES) as u64
}

fn slots_in(len: u64) -> usize {
    (len.saturating_sub(PAGE_BYTES as u64) / SLOT_BYTES as u64) as usize
}

/// The slots that hold something, the oldest first.
fn read_slots(file: &File, count: usize) -> io::Result<Vec<Slot>> {
    let mut slots = Vec::new();
    let mut head = [0; SLOT_CHECKSUM_AT + 4];
    for index in 0..count {
        match file.read_exact_at(&mut head, slot_at(index)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            result => result?,
        }
        slots.extend(Slot::decode(index, &head));
    }
    slots.sort_by_key(|slot| slot.sequence);
    Ok(slots)
}

impl Slot {
    fn encode(&self, page: &mut [u8; PAGE_BYTES]) {
        let Extent { used, packets, first, last } = self.extent;
        let words: [u64; SLOT_WORDS] = [
            self.sequence,
            self.segment.ring,
            self.segment.number,
            used as u64,
            packets,
            first.0,
            last.0,
            self.checksum.into(),
            self.vocabulary.into(),
        ];
        page.fill(0);
        page[..8].copy_from_slice(SLOT_MAGIC);
        for (bytes, word) in page[8..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32fast::hash(&page[..SLOT_CHECKSUM_AT]);
        page[SLOT_CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_le_bytes());
    }

    fn decode(index: usize, head: &[u8; SLOT_CHECKSUM_AT + 4]) -> Option<Self> {
        let (covered, checksum) = head.split_at(SLOT_CHECKSUM_AT);
        let words = covered.strip_prefix(SLOT_MAGIC)?;
        if crc32fast::hash(covered).to_le_bytes() != checksum {
            return None;
        }
        let mut words = words.as_chunks::<8>().0.iter().map(|it| u64::from_le_bytes(*it));
        let mut next = || words.next();
        Some(Self {
            index,
            sequence: next()?,
            segment: SegmentId { ring: next()?, number: next()? },
            extent: Extent {
                used: usize::try_from(next()?).ok().filter(|used| *used <= SEGMENT_BYTES)?,
                packets: next()?,
                first: Time(next()?),
                last: Time(next()?),
            },
            checksum: next()? as u32,
            vocabulary: next()? as u32,
        })
    }
}

/// What tells versions apart whose verdicts have other numbers.
fn vocabulary() -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for name in DropReason::ALL.iter().map(|it| it.name()) {
        hasher.update(name.as_bytes());
    }
    for name in FrameClass::ALL.iter().map(|it| it.name()) {
        hasher.update(name.as_bytes());
    }
    hasher.finalize()
}

/// The file's first page, which `head -c 200` shows too.
fn write_label(label: &Label, page: &mut [u8; PAGE_BYTES]) {
    let Label { gateway, pair, host, wire, worker } = label;
    let text = format!(
        "{FILE_MAGIC}\ngateway {gateway}\npair {pair}\nhost {host}\nwire {wire}\nworker {worker}\n"
    );
    page.fill(0);
    let end = text.floor_char_boundary(PAGE_BYTES - 1);
    page[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// `None`: another kind of file.
fn read_label(file: &File) -> io::Result<Option<Label>> {
    let mut page = [0; PAGE_BYTES];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let end = page.iter().position(|byte| *byte == 0).unwrap_or(PAGE_BYTES);
    let text = String::from_utf8_lossy(&page[..end]);
    let mut lines = text.lines();
    if lines.next() != Some(FILE_MAGIC) {
        return Ok(None);
    }
    let mut label = Label::default();
    for (key, value) in lines.filter_map(|line| line.split_once(' ')) {
        let place = match key {
            "gateway" => &mut label.gateway,
            "pair" => &mut label.pair,
            "host" => &mut label.host,
            "wire" => &mut label.wire,
            "worker" => {
                label.worker = value.parse().unwrap_or_default();
                continue;
            }
            _ => continue,
        };
        value.clone_into(place);
    }
    Ok(Some(label))
}
