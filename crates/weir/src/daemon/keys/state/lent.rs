//! Keys that front ends brought: how far each went, on disk, for as long as the directory lives.
//!
//! ```text
//!   state_dir/keys-lent   28 bytes a note: fingerprint, sealed below, accepted up to, checksum
//! ```
//!
//! While a key is in use, state files hold its numbers and a note says so. When its association is
//! removed, a note replaces the files. The latest note of a key counts. Gateways that share the
//! directory append to one file, and read what others appended. No key is ever forgotten: where
//! there is no room for more, a new one is refused.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_engine::esp::sa::Fingerprint;

/// Keys that are remembered, at most: 100 tunnels that rekey each hour take half a year. 28 bytes
/// on disk and about 40 in memory each.
pub(super) const KEYS_MAX: usize = 1 << 20;

/// The number stands in a state file; without the file nobody knows it.
pub(super) const IN_FILE: u64 = u64::MAX;

const NOTE_BYTES: usize = 28;

/// How far a key went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Numbers below this one may have sealed; 0: it never sealed.
    pub(super) sealed_below: u64,
    /// Numbers up to this one count as accepted; 0: it never opened.
    pub(super) accepted_to: u64,
}

/// The notes.
#[derive(Debug)]
pub(super) struct LentKeys {
    path: PathBuf,
    file: File,
    /// Bytes of the file that `reaches` knows.
    read: u64,
    reaches: HashMap<Fingerprint, Reach>,
    max: usize,
}

impl LentKeys {
    /// The notes in `directory`.
    ///
    /// # Errors
    /// The disk refuses, or the notes are damaged.
    pub(super) fn open(directory: &Path, max: usize) -> io::Result<Self> {
        let path = directory.join("keys-lent");
        let file = open_file(&path)?;
        let mut notes = Self { path, file, read: 0, reaches: HashMap::new(), max };
        notes.alone(Self::shorten)?;
        Ok(notes)
    }

    /// How far `key` went.
    ///
    /// # Errors
    /// As [`LentKeys::open`]: others may have noted more.
    pub(super) fn reach(&mut self, key: Fingerprint) -> io::Result<Option<Reach>> {
        self.alone(|_| Ok(()))?;
        Ok(self.reaches.get(&key).copied())
    }

    /// Whether `more` keys beside those here may be remembered.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.reaches.len().saturating_add(more) <= self.max
    }

    /// All of them.
    pub(super) fn keys(&self) -> impl Iterator<Item = Fingerprint> {
        self.reaches.keys().copied()
    }

    /// Those whose numbers stand in state files.
    pub(super) fn in_files(&self) -> Vec<Fingerprint> {
        let in_file = |it: &Reach| it.sealed_below == IN_FILE || it.accepted_to == IN_FILE;
        self.reaches.iter().filter(|(_, it)| in_file(it)).map(|(key, _)| *key).collect()
    }

    /// Notes how far these went, and waits for the disk.
    ///
    /// # Errors
    /// The disk refuses; a part of them may be noted.
    pub(super) fn note(&mut self, news: &[(Fingerprint, Reach)]) -> io::Result<()> {
        if news.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = news.iter().flat_map(|(key, reach)| encode(*key, *reach)).collect();
        self.alone(|notes| {
            notes.file.write_all(&bytes)?;
            notes.file.sync_data()?;
            notes.catch_up()
        })
    }

    /// Does something while no other gateway looks at the file, and with all that is in it.
    fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        self.file.lock()?;
        while !is_current(&self.file, &self.path)? {
            // Somebody wrote it anew, a note a key.
            self.file = open_file(&self.path)?;
            self.file.lock()?;
            self.read = 0;
        }
        let done = self.catch_up().and_then(|()| work(self));
        self.file.unlock()?;
        done
    }

    /// Takes in what was appended since.
    fn catch_up(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(length.saturating_sub(self.read)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, self.read)?;
        let (notes, rest) = bytes.as_chunks::<NOTE_BYTES>();
        for note in notes {
            let damaged = || io::Error::new(io::ErrorKind::InvalidData, DAMAGED);
            let (key, reach) = decode(note).ok_or_else(damaged)?;
            self.reaches.insert(key, reach);
            self.read += NOTE_BYTES as u64;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // A note that a crash cut short: its key has its state files still.
        self.file.set_len(self.read)
    }

    /// Writes a note a key where there are many more.
    fn shorten(&mut self) -> io::Result<()> {
        let notes = self.read / NOTE_BYTES as u64;
        if notes < 2 * self.reaches.len() as u64 + 1024 {
            return Ok(());
        }
        let bytes: Vec<u8> = self.reaches.iter().flat_map(|it| encode(*it.0, *it.1)).collect();
        let next = self.path.with_extension("next");
        let mut file = open_file(&next)?;
        // What a crash may have left.
        file.set_len(0)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        // Locked before it is renamed: a gateway that waits for the old file finds the new one
        // locked.
        file.lock()?;
        fs::rename(&next, &self.path)?;
        if let Some(directory) = self.path.parent() {
            File::open(directory)?.sync_all()?;
        }
        let old = std::mem::replace(&mut self.file, file);
        self.read = bytes.len() as u64;
        old.unlock()
    }
}

const DAMAGED: &str = "keys-lent is damaged: nobody knows which keys front ends used. Move it \
                       away, and give every association of front ends a fresh key";

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Whether `file` is the one at `path` still.
fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode(key: Fingerprint, reach: Reach) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(&key.0);
    note[8..16].copy_from_slice(&reach.sealed_below.to_be_bytes());
    note[16..24].copy_from_slice(&reach.accepted_to.to_be_bytes());
    let checksum = crc32fast::hash(&note[..24]);
    note[24..].copy_from_slice(&checksum.to_be_bytes());
    note
}

fn decode(note: &[u8; NOTE_BYTES]) -> Option<(Fingerprint, Reach)> {
    let (body, checksum) = note.split_last_chunk::<4>()?;
    if crc32fast::hash(body).to_be_bytes() != *checksum {
        return None;
    }
    let (key, numbers) = body.split_first_chunk::<8>()?;
    let (sealed, accepted) = numbers.split_first_chunk::<8>()?;
    let reach = Reach {
        sealed_below: u64::from_be_bytes(*sealed),
        accepted_to: u64::from_be_bytes(accepted.try_into().ok()?),
    };
    Some((Fingerprint(*key), reach))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Fingerprint {
        Fingerprint(number.to_be_bytes())
    }

    fn reach(sealed_below: u64, accepted_to: u64) -> Reach {
        Reach { sealed_below, accepted_to }
    }

    #[test]
    fn the_last_note_of_a_key_holds_over_a_restart_and_for_whoever_shares_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = LentKeys::open(folder.path(), 10).unwrap();
        let mut second = LentKeys::open(folder.path(), 10).unwrap();
        first.note(&[(key(1), reach(IN_FILE, 0)), (key(2), reach(0, 7))]).unwrap();
        first.note(&[(key(1), reach(40, 0))]).unwrap();
        assert_eq!(second.reach(key(1)).unwrap(), Some(reach(40, 0)));
        second.note(&[(key(3), reach(1, 1))]).unwrap();
        assert_eq!(first.reach(key(3)).unwrap(), Some(reach(1, 1)));
        drop((first, second));
        let mut again = LentKeys::open(folder.path(), 10).unwrap();
        assert_eq!(again.reach(key(2)).unwrap(), Some(reach(0, 7)));
        assert_eq!(again.in_files(), []);
        assert!(again.has_room(7) && !again.has_room(8));
    }

    #[test]
    fn a_note_cut_short_spoils_no_other_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys-lent");
        let mut notes = LentKeys::open(folder.path(), 10).unwrap();
        notes.note(&[(key(1), reach(5, 0)), (key(2), reach(6, 0))]).unwrap();
        drop(notes);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..NOTE_BYTES + 9]).unwrap();
        let mut cut = LentKeys::open(folder.path(), 10).unwrap();
        assert_eq!(cut.reach(key(2)).unwrap(), None);
        cut.note(&[(key(3), reach(9, 0))]).unwrap();
        drop(cut);
        let mut cut = LentKeys::open(folder.path(), 10).unwrap();
        assert_eq!(cut.reach(key(1)).unwrap(), Some(reach(5, 0)));
        assert_eq!(cut.reach(key(3)).unwrap(), Some(reach(9, 0)));
        drop(cut);
        for byte in 0..NOTE_BYTES {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let error = LentKeys::open(folder.path(), 10).unwrap_err();
            assert!(error.to_string().contains("fresh key"), "{error}");
        }
    }

    #[test]
    fn many_notes_of_few_keys_become_few_and_nobody_loses_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys-lent");
        let mut notes = LentKeys::open(folder.path(), 10).unwrap();
        let many: Vec<_> = (0..1500).map(|number| (key(number % 3), reach(number, 0))).collect();
        notes.note(&many).unwrap();
        let mut other = LentKeys::open(folder.path(), 10).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * NOTE_BYTES as u64);
        assert_eq!(other.reach(key(2)).unwrap(), Some(reach(1499, 0)));
        // The first has the file that was replaced.
        notes.note(&[(key(2), reach(2000, 0))]).unwrap();
        assert_eq!(other.reach(key(2)).unwrap(), Some(reach(2000, 0)));
        drop((notes, other));
        let mut again = LentKeys::open(folder.path(), 10).unwrap();
        assert_eq!(again.reach(key(2)).unwrap(), Some(reach(2000, 0)));
    }
}
