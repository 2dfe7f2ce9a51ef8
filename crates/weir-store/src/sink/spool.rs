//! Messages that wait on disk while their collector is down: first in, first out, bounded.
//!
//! ```text
//!  DIRECTORY/00000001.spool    oldest segment: "WEIRSPL1", place read so far, messages
//!  DIRECTORY/00000002.spool    message: length (4), data records (4), bytes
//! ```
//!
//! A segment is deleted when its last message was taken. Segments survive the process; the place
//! read so far is written back with each message taken. A tail that was cut short by a crash is
//! passed over with its segment.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"WEIRSPL1";
const HEADER_BYTES: u64 = 16;
const FRAME_BYTES: u64 = 8;

/// Segments that a spool is divided into, about: what is lost of the bound while the oldest one is
/// read.
const SEGMENTS: u64 = 16;

/// The least bytes of a segment: a message of the greatest size.
const SEGMENT_BYTES_MIN: u64 = 1 << 17;

/// Bytes of a message, at most: IPFIX's length field has 16 bits.
const MESSAGE_BYTES_MAX: usize = 65_535;

/// A message with its number of data records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The message.
    pub bytes: Vec<u8>,
    /// Data records in it.
    pub records: u32,
}

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The operating system refused.
    #[error("spool {path}: cannot {what}: {error}; free or repair the disk")]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The answer.
        error: io::Error,
    },
    /// The bound is reached.
    #[error("the spool is full")]
    Full,
}

/// A bounded queue of messages on disk.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    segment_bytes_max: u64,
    /// Numbers of the segments on disk and their lengths, the oldest first.
    segments: std::collections::VecDeque<(u64, u64)>,
    reading: Option<(File, u64)>,
    writing: Option<File>,
    waiting: u64,
}

impl Spool {
    /// Opens the spool in `directory`, which is made if need be, with what is left in it.
    ///
    /// # Errors
    /// [`SpoolError::Io`].
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Self, SpoolError> {
        let failed = |what| {
            let path = directory.to_owned();
            move |error| SpoolError::Io { path, what, error }
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("make it"))?;
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed("list it"))? {
            let entry = entry.map_err(failed("list it"))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|it| it.strip_suffix(".spool")?.parse().ok());
            if let Some(number) = number {
                let length = entry.metadata().map_err(failed("look at it"))?.len();
                segments.push((number, length));
            }
        }
        segments.sort_unstable();
        let mut spool = Self {
            directory: directory.to_owned(),
            bytes_max,
            segment_bytes_max: (bytes_max / SEGMENTS).max(SEGMENT_BYTES_MIN),
            segments: segments.into(),
            reading: None,
            writing: None,
            waiting: 0,
        };
        spool.waiting = spool.count()?;
        Ok(spool)
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Messages that wait.
    pub fn len(&self) -> u64 {
        self.waiting
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, length)| length).sum()
    }

    /// Adds a message.
    ///
    /// # Errors
    /// [`SpoolError::Full`] at the bound; [`SpoolError::Io`].
    pub fn push(&mut self, bytes: &[u8], records: u32) -> Result<(), SpoolError> {
        let added = FRAME_BYTES + bytes.len() as u64;
        let begins = self.writing.is_none()
            || self.segments.back().is_none_or(|(_, length)| {
                length + added > self.segment_bytes_max && *length > HEADER_BYTES
            });
        let header = if begins { HEADER_BYTES } else { 0 };
        if self.bytes() + added + header > self.bytes_max {
            return Err(SpoolError::Full);
        }
        if begins {
            self.begin_segment()?;
        }
        let mut frame = Vec::with_capacity(bytes.len() + FRAME_BYTES as usize);
        frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        frame.extend_from_slice(&records.to_be_bytes());
        frame.extend_from_slice(bytes);
        let (Some(file), Some((number, length))) = (&self.writing, self.segments.back_mut()) else {
            return Err(SpoolError::Full);
        };
        // At its known end, so that what a full disk cut short is written over.
        if let Err(error) = file.write_all_at(&frame, *length) {
            let path = segment_path(&self.directory, *number);
            return Err(SpoolError::Io { path, what: "write to it", error });
        }
        *length += frame.len() as u64;
        self.waiting += 1;
        Ok(())
    }

    /// Takes the oldest message; `None` when there is none.
    ///
    /// # Errors
    /// [`SpoolError::Io`]; the segment at fault is passed over.
    pub fn pop(&mut self) -> Result<Option<Stored>, SpoolError> {
        while let Some((number, length)) = self.segments.front().copied() {
            let path = segment_path(&self.directory, number);
            let taken = self.take(&path, length);
            let failed = |error| SpoolError::Io { path: path.clone(), what: "read it", error };
            match taken {
                Ok(Some(stored)) => {
                    self.waiting = self.waiting.saturating_sub(1);
                    return Ok(Some(stored));
                }
                Ok(None) => self.drop_oldest(&path),
                Err(error) => {
                    self.drop_oldest(&path);
                    self.waiting = self.count().unwrap_or(0);
                    return Err(failed(error));
                }
            }
        }
        self.waiting = 0;
        Ok(None)
    }

    fn begin_segment(&mut self) -> Result<(), SpoolError> {
        let number = self.segments.back().map_or(1, |(number, _)| number + 1);
        let path = segment_path(&self.directory, number);
        let failed = |what| {
            let path = path.clone();
            move |error| SpoolError::Io { path, what, error }
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("make it"))?;
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..].copy_from_slice(&HEADER_BYTES.to_be_bytes());
        file.write_all_at(&header, 0).map_err(failed("write to it"))?;
        self.writing = Some(file);
        self.segments.push_back((number, HEADER_BYTES));
        Ok(())
    }

    /// The next message of the oldest segment; `None` at its end.
    fn take(&mut self, path: &Path, length: u64) -> io::Result<Option<Stored>> {
        if self.reading.is_none() {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let Some(place) = read_place(&file)? else { return Ok(None) };
            self.reading = Some((file, place));
        }
        let Some((file, place)) = &mut self.reading else { return Ok(None) };
        let Some((bytes, records)) = frame_at(file, *place, length)? else { return Ok(None) };
        let next = *place + FRAME_BYTES + u64::from(bytes);
        let mut stored = Stored { bytes: vec![0; bytes as usize], records };
        file.seek(SeekFrom::Start(*place + FRAME_BYTES))?;
        file.read_exact(&mut stored.bytes)?;
        file.write_all_at(&next.to_be_bytes(), MAGIC.len() as u64)?;
        *place = next;
        Ok(Some(stored))
    }

    fn drop_oldest(&mut self, path: &Path) {
        self.reading = None;
        self.segments.pop_front();
        if self.segments.is_empty() {
            self.writing = None;
        }
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "a spool segment cannot be removed");
        }
    }

    /// Messages in all segments.
    fn count(&self) -> Result<u64, SpoolError> {
        let mut count = 0;
        for (number, length) in &self.segments {
            let path = segment_path(&self.directory, *number);
            let counted = File::open(&path).and_then(|file| {
                let mut count = 0;
                let Some(mut place) = read_place(&file)? else { return Ok(0) };
                while let Some((bytes, _)) = frame_at(&file, place, *length)? {
                    place += FRAME_BYTES + u64::from(bytes);
                    count += 1;
                }
                Ok(count)
            });
            count += counted.map_err(|error| SpoolError::Io { path, what: "read it", error })?;
        }
        Ok(count)
    }
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.spool"))
}

/// Where reading goes on; `None`: no segment of ours.
fn read_place(file: &File) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES as usize];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let mut place = [0; 8];
    place.copy_from_slice(&header[8..]);
    let place = u64::from_be_bytes(place);
    Ok((header[..8] == *MAGIC && place >= HEADER_BYTES).then_some(place))
}

/// Length and records of the message at `place`; `None` at the end, or where a crash cut it.
fn frame_at(file: &File, place: u64, length: u64) -> io::Result<Option<(u32, u32)>> {
    if place.saturating_add(FRAME_BYTES) > length {
        return Ok(None);
    }
    let mut frame = [0; FRAME_BYTES as usize];
    file.read_exact_at(&mut frame, place)?;
    let [a, b, c, d, e, f, g, h] = frame;
    let (bytes, records) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let is_whole =
        bytes as usize <= MESSAGE_BYTES_MAX && place + FRAME_BYTES + u64::from(bytes) <= length;
    Ok(is_whole.then_some((bytes, records)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(spool: &mut Spool, numbers: std::ops::Range<u32>) -> u32 {
        let message = |number: u32| number.to_be_bytes().repeat(250);
        numbers.filter(|number| spool.push(&message(*number), *number).is_ok()).count() as u32
    }

    fn popped(spool: &mut Spool) -> Vec<u32> {
        std::iter::from_fn(|| spool.pop().unwrap()).map(|it| it.records).collect()
    }

    #[test]
    fn messages_come_back_in_order_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(pushed(&mut spool, 0..500), 500);
        assert_eq!(spool.len(), 500);
        let first = spool.pop().unwrap().unwrap();
        assert_eq!((first.bytes, first.records), (vec![0; 1000], 0));
        assert_eq!(popped(&mut spool), (1..500).collect::<Vec<_>>());
        assert!(spool.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_waits_survives_the_process_and_what_was_taken_does_not_return() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        pushed(&mut spool, 0..300);
        for _ in 0..7 {
            spool.pop().unwrap();
        }
        drop(spool);
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(spool.len(), 293);
        pushed(&mut spool, 300..310);
        assert_eq!(popped(&mut spool), (7..310).collect::<Vec<_>>());
    }

    #[test]
    fn the_bound_holds_and_space_returns_as_messages_leave() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 18).unwrap();
        let held = pushed(&mut spool, 0..1000);
        assert!((200..262).contains(&held), "{held} messages of 1008 bytes in 256 KiB");
        assert!(spool.bytes() <= 1 << 18);
        assert!(matches!(spool.push(&[0; 1000], 1), Err(SpoolError::Full)));
        for _ in 0..150 {
            spool.pop().unwrap();
        }
        assert_eq!(pushed(&mut spool, 0..100), 100);
    }

    #[test]
    fn a_tail_cut_short_by_a_crash_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        pushed(&mut spool, 0..10);
        drop(spool);
        let segment = folder.path().join("00000001.spool");
        let file = OpenOptions::new().write(true).open(&segment).unwrap();
        file.set_len(file.metadata().unwrap().len() - 3).unwrap();
        std::fs::write(folder.path().join("00000002.spool"), b"not a segment").unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(popped(&mut spool), (0..9).collect::<Vec<_>>());
    }
}
