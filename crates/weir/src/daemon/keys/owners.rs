//! Whom queue pairs belong to, kept over a restart: what lines of access learnt from connection
//! managers and from first packets.
//!
//! ```text
//!   worker --a piece a tick, never waits--> thread of the pair --> state_dir/owners-*.state
//! ```
//!
//! The file is whole or it is not taken: magic and version, the seed of the meter's tables (without
//! it fingerprints mean nothing), when it was written, the owners of each worker, a checksum. One
//! that is damaged, of another version or too old is ignored with a word. It is written within
//! seconds of a change, and at the end. A killed gateway knows what was so a few seconds before.
//!
//! Each worker gets its own back, for it alone hears when their connections end. Where there were
//! more or fewer workers, each may hear of any, and gets all.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use weir_engine::access::{Access, SavedOwner, SavingPlace};
use weir_engine::esp::spread::WORKERS_MAX;
use weir_store::clock;
use weir_wire::frame::Time;

use crate::config::settings::Gateway;
use weir_store::entropy;

/// Begins each file; the last byte is the format's version.
const MAGIC: &[u8; 8] = b"weirown\x02";
/// Magic, seed, time, number of workers; how many owners each has comes behind.
const HEAD_LEN: usize = 8 + 16 + 8 + 4;
const COUNT_LEN: usize = 4;
const CHECKSUM_LEN: usize = 4;

/// Owners in a file, at most: 11 MiB. Of more, those beyond are forgotten at a restart, with a
/// word.
const OWNERS_MAX: usize = 1 << 18;

/// Pieces that wait for the thread, at most. Is there no room, the walk begins anew.
const PIECES_MAX: usize = 64;

/// Between two walks over changed owners.
const WALK_NS: u64 = 2_000_000_000;

/// An owner that connection managers named is forgotten after so long, as a silent one is.
const CONNECTED_MAX_NS: u64 = 3_600_000_000_000;
/// One that a first packet named. It yields after 15 s of silence in its new life.
const LEARNT_MAX_NS: u64 = 60_000_000_000;

/// What was read for one pair, and the thread that writes it again.
pub(in crate::daemon) struct OwnerStore {
    seed: u128,
    /// By worker.
    restored: Vec<Arc<[SavedOwner]>>,
    writer: Arc<Writer>,
}

impl OwnerStore {
    /// Reads what is kept of the pair of this name, and starts its thread.
    ///
    /// # Errors
    /// There are no random numbers, or no more threads.
    pub(in crate::daemon) fn open(gateway: &Gateway, pair: &str) -> Result<Self> {
        let path = gateway.state_dir.join(format!("owners-{}-{pair}.state", gateway.name));
        let (seed, restored) = match read(&path, clock::time()) {
            Ok(Some((seed, owners))) => (seed, owners),
            Ok(None) => (entropy::seed()?, Vec::new()),
            Err(why) => {
                let path = path.display();
                tracing::warn!(%path, "owners of queue pairs are learnt anew: the file {why}");
                (entropy::seed()?, Vec::new())
            }
        };
        let writer = Arc::new(Writer::start(path, seed)?);
        let restored = restored.into_iter().map(Arc::from).collect();
        Ok(Self { seed, restored, writer })
    }

    /// An end for each of so many workers.
    pub(in crate::daemon) fn keepers(&self, workers: usize) -> Vec<OwnerKeeper> {
        let all = || self.restored.iter().flat_map(|it| it.iter().copied()).collect();
        let restored = match self.restored.len() == workers {
            true => self.restored.clone(),
            false => vec![all(); workers],
        };
        let keeper = |(worker, restored)| OwnerKeeper {
            worker,
            seed: self.seed,
            restored,
            writer: Arc::clone(&self.writer),
            walk: None,
            begun: Time::default(),
            changes: 0,
        };
        restored.into_iter().enumerate().map(keeper).collect()
    }
}

/// A worker's end.
pub struct OwnerKeeper {
    worker: usize,
    seed: u128,
    restored: Arc<[SavedOwner]>,
    writer: Arc<Writer>,
    /// How far the walk over all owners came that is under way.
    walk: Option<SavingPlace>,
    begun: Time,
    /// What had changed when the last walk began.
    changes: u64,
}

impl OwnerKeeper {
    /// The seed for the worker's meter.
    pub fn seed(&self) -> u128 {
        self.seed
    }

    /// Owners of the life before that the worker may hear of.
    pub fn restored(&self) -> &[SavedOwner] {
        &self.restored
    }

    /// Ten times a second: hands over another piece, if there is anything new.
    pub fn tick(&mut self, access: Option<&Access>, now: Time) {
        let Some(access) = access else { return };
        let is_due = now.since_ns(self.begun) >= WALK_NS || now < self.begun;
        if self.walk.is_none() && is_due && access.owners_changes() != self.changes {
            (self.begun, self.changes) = (now, access.owners_changes());
            self.walk = Some(SavingPlace::default());
        }
        let Some(place) = &mut self.walk else { return };
        let mut owners = Vec::new();
        let is_last = !access.save_some(place, &mut owners);
        let piece = Piece { worker: self.worker, owners, is_last };
        if !self.writer.offer(piece) {
            // Begins anew, after the pause.
            self.changes = self.changes.wrapping_sub(1);
            self.walk = None;
        } else if is_last {
            self.walk = None;
        }
    }

    /// Hands over all of them; the worker ends. Returns when they are on the disk, if it was the
    /// last of its pair.
    pub fn finish(&mut self, access: Option<&Access>) {
        let Some(access) = access else { return };
        let (mut place, mut is_last) = (SavingPlace::default(), false);
        // What a walk under way has told is void.
        self.writer.send(Piece::begin(self.worker));
        while !is_last {
            let mut owners = Vec::new();
            is_last = !access.save_some(&mut place, &mut owners);
            self.writer.send(Piece { worker: self.worker, owners, is_last });
        }
    }
}

/// Some of a worker's owners.
struct Piece {
    worker: usize,
    owners: Vec<SavedOwner>,
    is_last: bool,
}

impl Piece {
    fn begin(worker: usize) -> Self {
        Self { worker, owners: Vec::new(), is_last: true }
    }
}

struct Writer {
    /// Taken when the last worker goes.
    pieces: Mutex<Option<SyncSender<Piece>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    fn start(path: PathBuf, seed: u128) -> Result<Self> {
        let (pieces, incoming) = sync_channel(PIECES_MAX);
        let name = "queue pair owners".to_owned();
        let work = move || write_all(&path, seed, &incoming);
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Self { pieces: Mutex::new(Some(pieces)), thread: Mutex::new(Some(thread)) })
    }

    fn sender(&self) -> Option<SyncSender<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Without waiting; says whether it was taken.
    fn offer(&self, piece: Piece) -> bool {
        self.sender().is_some_and(|it| it.try_send(piece).is_ok())
    }

    fn send(&self, piece: Piece) {
        if let Some(sender) = self.sender() {
            let _ = sender.send(piece);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.pieces.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|it| it.join().is_err()) {
            tracing::error!("the thread that keeps owners of queue pairs panicked");
        }
    }
}

/// Writes the file whenever a worker has told of all its owners and no more waits.
fn write_all(path: &Path, seed: u128, incoming: &Receiver<Piece>) {
    // By worker: what it has told so far, and all that it told before.
    let mut told: Vec<[Vec<SavedOwner>; 2]> = Vec::new();
    let mut fails = false;
    while let Ok(piece) = incoming.recv() {
        let mut is_new = false;
        for piece in std::iter::once(piece).chain(incoming.try_iter()) {
            if told.len() <= piece.worker {
                told.resize_with(piece.worker + 1, Default::default);
            }
            let [under_way, whole] = &mut told[piece.worker];
            let room = OWNERS_MAX.saturating_sub(under_way.len());
            under_way.extend(piece.owners.into_iter().take(room));
            if piece.is_last {
                *whole = std::mem::take(under_way);
                is_new = true;
            }
        }
        if !is_new {
            continue;
        }
        let whole: Vec<&[SavedOwner]> = told.iter().map(|it| it[1].as_slice()).collect();
        match write(path, seed, clock::time(), &whole) {
            Ok(()) => fails = false,
            Err(error) if !std::mem::replace(&mut fails, true) => {
                let path = path.display();
                tracing::error!(%path, "owners of queue pairs cannot be kept: {error:#}");
            }
            Err(_) => {}
        }
    }
}

fn write(path: &Path, seed: u128, now: Time, owners: &[&[SavedOwner]]) -> Result<()> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(seed.to_le_bytes());
    bytes.extend(now.0.to_le_bytes());
    bytes.extend((owners.len() as u32).to_le_bytes());
    let mut room = OWNERS_MAX;
    let owners: Vec<&[SavedOwner]> = owners
        .iter()
        .map(|it| {
            let taken = &it[..it.len().min(room)];
            room -= taken.len();
            taken
        })
        .collect();
    owners.iter().for_each(|it| bytes.extend((it.len() as u32).to_le_bytes()));
    owners.iter().flat_map(|it| it.iter()).for_each(|it| bytes.extend(it.to_bytes()));
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let draft = path.with_extension("draft");
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(|| format!("cannot write {}", draft.display()))?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    fs::rename(&draft, path)?;
    Ok(())
}

/// A seed, and the owners of each worker.
type Kept = (u128, Vec<Vec<SavedOwner>>);

/// What is in the file, if there is one.
///
/// # Errors
/// What is wrong with it.
fn read(path: &Path, now: Time) -> Result<Option<Kept>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let counts_len = WORKERS_MAX as usize * COUNT_LEN;
    let longest = HEAD_LEN + counts_len + OWNERS_MAX * SavedOwner::LEN + CHECKSUM_LEN;
    let mut bytes = Vec::new();
    let read = file.take(longest as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    let damaged = || "is damaged".to_owned();
    let body_len = bytes.len().checked_sub(CHECKSUM_LEN).ok_or_else(damaged)?;
    let (body, checksum) = bytes.split_at(body_len);
    if body.len() < HEAD_LEN || crc32fast::hash(body).to_le_bytes() != *checksum {
        return Err(damaged());
    }
    let (head, body) = body.split_at(HEAD_LEN);
    if &head[..8] != MAGIC {
        return Err("is of another version".to_owned());
    }
    let number = |at: usize, len: usize| {
        head[at..at + len].iter().rev().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte))
    };
    let (seed, written, workers) = (number(8, 16), Time(number(24, 8) as u64), number(32, 4));
    let (counts, owners) =
        body.split_at_checked(workers as usize * COUNT_LEN).ok_or_else(damaged)?;
    let (counts, _) = counts.as_chunks();
    let counts: Vec<usize> = counts.iter().map(|it| u32::from_le_bytes(*it) as usize).collect();
    if owners.len() != counts.iter().sum::<usize>() * SavedOwner::LEN {
        return Err(damaged());
    }
    let age = now.since_ns(written);
    if now < written || age > CONNECTED_MAX_NS {
        return Err("is too old, or of the future".to_owned());
    }
    let (owners, _) = owners.as_chunks();
    let mut owners = owners.iter().map(SavedOwner::from_bytes);
    let lasts = |it: &SavedOwner| it.is_connected() || age <= LEARNT_MAX_NS;
    let of_worker = |count| owners.by_ref().take(count).filter(lasts).collect();
    Ok(Some((seed, counts.into_iter().map(of_worker).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_700_000_000_000_000_000);

    fn owner(number: u8, is_connected: bool) -> SavedOwner {
        let mut bytes = [number; SavedOwner::LEN];
        bytes[SavedOwner::LEN - 1] = if is_connected { 4 } else { 0 };
        SavedOwner::from_bytes(&bytes)
    }

    #[test]
    fn owners_are_read_as_they_were_written_and_learnt_ones_do_not_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners-gw-pair.state");
        assert_eq!(read(&path, NOW), Ok(None));
        let all = [vec![owner(1, true), owner(2, false)], vec![], vec![owner(3, false)]];
        write(&path, 77 << 90, NOW, &all.each_ref().map(Vec::as_slice)).unwrap();
        assert_eq!(read(&path, NOW.plus_ns(1_000_000)), Ok(Some((77 << 90, all.to_vec()))));
        let later = read(&path, NOW.plus_ns(LEARNT_MAX_NS + 1)).unwrap().unwrap();
        assert_eq!(later.1, [vec![owner(1, true)], vec![], vec![]]);
        assert!(read(&path, NOW.plus_ns(CONNECTED_MAX_NS + 1)).is_err());
        assert!(read(&path, Time(NOW.0 - 1)).is_err());
    }

    #[test]
    fn each_worker_gets_its_own_back_and_all_of_them_where_there_are_others() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::start(folder.path().join("owners"), 5).unwrap();
        let restored = [vec![owner(1, true)], vec![owner(2, true), owner(3, true)]];
        let restored = restored.map(Arc::from).to_vec();
        let store = OwnerStore { seed: 5, restored, writer: Arc::new(writer) };
        let counts = |workers: usize| -> Vec<usize> {
            store.keepers(workers).iter().map(|it| it.restored().len()).collect()
        };
        assert_eq!([counts(1), counts(2), counts(3)], [vec![3], vec![1, 2], vec![3, 3, 3]]);
    }

    #[test]
    fn a_file_with_one_bit_wrong_or_cut_short_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners-gw-pair.state");
        write(&path, 5, NOW, &[&[owner(1, true)]]).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(read(&path, NOW).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&path, NOW).is_err(), "{at} bytes");
        }
    }
}
