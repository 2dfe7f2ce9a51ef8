//! What must survive a crash, so that no sequence number is used and none accepted twice.
//!
//! ```text
//!   state_dir/keys-used               a line for each key ever used, by fingerprint, and for each
//!                                     beginning of IVs that a kernel sealed with, and each key
//!                                     that a copy of this machine may use (`cloned`)
//!   state_dir/seal-FINGERPRINT.state  numbers below this may have been used
//!   state_dir/open-FINGERPRINT.state  numbers that were accepted
//!   state_dir/keys-lent               how far each key went that a front end brought
//! ```
//!
//! This is the one place that knows how far a key went, wherever it comes from: a file, or a front
//! end (`lending`). Keys of handshakes are fresh each time, and never come here.
//!
//! A state file has two slots, written in turn; a slot is magic, generation, boot identifier,
//! length, the engine's record, checksum. The newest whole slot counts. State belongs to key and
//! salt, not to the SPI: the nonce knows no SPI. The ledger tells a new key from one whose state
//! file was lost: the first is begun, the second refused. Keys are begun many at a time, and the
//! disk is waited for once: state files, then the ledger, then numbers. A directory that was
//! emptied knows nothing of a key that was used; a stamp beside the key's file does (`stamp`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use weir_engine::esp::nonce::RESERVATION_BLOCK;
use weir_engine::esp::open::OpeningState;
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingState;
use weir_port::IvPrefix;

use crate::config::settings::Gateway;
use crate::daemon::control::blocks::BlockBook;

mod cloned;
mod keeper;
mod lending;
mod lent;
mod slot;
mod stamp;

pub use keeper::{Reserved, Reserver};
pub use slot::StateFile;

use keeper::{Keeper, Work, sync};
use lending::Lent;
use lent::{IN_FILE, LentKeys, Reach};
use slot::{Newest, boot_identifier, newest};

/// Requests that wait for the disk, at most.
const REQUESTS_MAX: usize = 1024;

/// Numbers that one reservation may have covered, at most; see [`StateStore::sealing`].
const RESERVATION_MAX: u64 = 1 << 24;
const _: () = assert!(RESERVATION_BLOCK <= RESERVATION_MAX);

/// Why state cannot be used. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The disk refuses.
    #[error("cannot keep state in {path}: {error}; make `state_dir` writable for root")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file of blocks and of who is never blocked is not as it was written.
    #[error(
        "{path} is damaged: {error}. Restore it from a backup; or remove it, which lifts all \
         blocks and forgets who is never blocked, and say them again (`weir block add`, `weir \
         allow add`)"
    )]
    Blocks {
        /// The file.
        path: PathBuf,
        /// Where.
        error: io::Error,
    },
    /// Another process uses the key.
    #[error("key {0} is in use by another gateway of this state directory; give each its own keys")]
    InUse(Fingerprint),
    /// The key was used, and nobody knows how far.
    #[error(
        "the key with fingerprint {fingerprint} was used before, and its state file {path} is \
         {what}: a nonce could repeat. Make new keys on both gateways (`weir keys generate`), or \
         accept the danger with --danger-forget-state"
    )]
    Lost {
        /// Which key.
        fingerprint: Fingerprint,
        /// Where its state should be.
        path: PathBuf,
        /// `missing` or `damaged`.
        what: &'static str,
    },
    /// The stamp beside a key's file knows more than the state directory.
    #[error(
        "the key with fingerprint {fingerprint} was used before ({stamp}), and {path} knows \
         nothing of it or less: `state_dir` was emptied, restored from a backup, or is another \
         one, and a nonce could repeat. Make new keys on both gateways (`weir keys generate`), or \
         accept the danger with --danger-forget-state"
    )]
    Behind {
        /// Which key.
        fingerprint: Fingerprint,
        /// Where its state should be.
        path: PathBuf,
        /// Who says so.
        stamp: PathBuf,
    },
    /// It cannot be noted beside a new key's file that it is used.
    #[error(
        "cannot note in {path} that its key is used from now on: {error}; lost state would go \
         unnoticed. Let root write there (systemd: ReadWritePaths=), or keep keys elsewhere"
    )]
    Unstamped {
        /// The stamp.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The machine is a copy of one that used the key, or that one uses it still.
    #[error(
        "the key with fingerprint {0} was in use when this machine was cloned or went back to a \
         snapshot (the hypervisor said so): a nonce could repeat. Make new keys on both gateways \
         (`weir keys generate`; an IKE daemon makes new ones after a restart), or accept the \
         danger with --danger-forget-state"
    )]
    Cloned(Fingerprint),
    /// A front end brought the key.
    #[error(
        "the key with fingerprint {0} is in use by a front end (`ip xfrm`, an IKE daemon); make \
         another for the configuration (`weir keys generate`)"
    )]
    Lent(Fingerprint),
    /// The key is one of the configuration's, or of another front end.
    #[error(
        "the key is in use by the configuration or by another pair, and AES-GCM dies of a number \
         used twice; give each association a key of its own"
    )]
    Taken,
    /// The key sealed, and is to open, or the other way round.
    #[error("the key was used the other way round; give each direction a key of its own")]
    Turned,
    /// More keys cannot be remembered.
    #[error(
        "front ends brought {} keys, and no more can be remembered: `keys-lent` in `state_dir` is \
         full. Stop the gateway, move that file away, and give every association a fresh key",
        lent::KEYS_MAX
    )]
    Full,
}

/// Whether lost state stops the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostState {
    /// Yes.
    Refuse,
    /// No: it begins anew, and a nonce may repeat.
    DangerForget,
}

/// The state directory. One per process.
#[derive(Debug)]
pub struct StateStore {
    directory: PathBuf,
    folder: Arc<File>,
    lost: LostState,
    boot: [u8; 16],
    ledger: File,
    used: BTreeSet<String>,
    /// By name, as the ledger will have it.
    begun: BTreeMap<String, Begun>,
    /// To be written when what was begun is on the disk.
    stamps: Vec<Stamp>,
    held: BTreeMap<String, Arc<File>>,
    /// How far front ends' keys went that have no state files.
    notes: LentKeys,
    /// Keys that front ends have now.
    lent: HashMap<Fingerprint, Lent>,
    /// Who is blocked, and who never is.
    pub blocks: BlockBook,
    keeper: SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
}

/// What a stamp is to say.
#[derive(Debug)]
struct Stamp {
    path: PathBuf,
    key: Fingerprint,
    number: u64,
    /// The key was never used.
    is_new: bool,
}

/// A key that was begun and is not on the disk yet.
#[derive(Debug)]
struct Begun {
    key: Fingerprint,
    /// To wait for, where there is something in it.
    file: Option<Arc<File>>,
    /// Of a sealing key, for the keeper, and its mark.
    sealing: Option<(StateFile, u64)>,
}

impl StateStore {
    /// Opens a gateway's directory: see [`StateStore::open`].
    ///
    /// # Errors
    /// [`StateError`].
    pub fn of(gateway: &Gateway, lost: LostState) -> Result<Self, StateError> {
        Self::open(&gateway.state_dir, &gateway.name, lost)
    }

    /// Opens `directory` for a gateway, makes it when it is not there, and starts the thread that
    /// waits for the disk.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn open(directory: &Path, gateway: &str, lost: LostState) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| StateError::Io { path, error }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed(directory))?;
        let path = directory.join("keys-used");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(failed(&path))?,
        };
        let used = text.lines().map(str::to_owned).collect();
        let mut ledger = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed(&path))?;
        if !text.is_empty() && !text.ends_with('\n') {
            // Its last line was cut short by a crash; the key of it has used no number.
            ledger.write_all(b"\n").map_err(failed(&path))?;
        }
        let folder = Arc::new(File::open(directory).map_err(failed(directory))?);
        let notes = LentKeys::open(directory, lent::KEYS_MAX).map_err(failed(directory))?;
        let blocks = BlockBook::open(directory, gateway).map_err(|error| {
            let path = BlockBook::source(directory, gateway);
            match error.kind() {
                io::ErrorKind::InvalidData => StateError::Blocks { path, error },
                _ => StateError::Io { path, error },
            }
        })?;
        let (keeper, work) = sync_channel(REQUESTS_MAX);
        let thread = std::thread::Builder::new()
            .name("state".into())
            .spawn({
                let keeper = Keeper::new(Arc::clone(&folder));
                move || keeper.run(&work)
            })
            .map_err(failed(directory))?;
        let mut store = Self {
            directory: directory.to_owned(),
            folder,
            lost,
            boot: boot_identifier(),
            ledger,
            used,
            begun: BTreeMap::new(),
            stamps: Vec::new(),
            held: BTreeMap::new(),
            notes,
            blocks,
            lent: HashMap::new(),
            keeper,
            thread: Some(thread),
        };
        store.take_back_left()?;
        Ok(store)
    }

    /// A handle to ask for sequence numbers with.
    pub fn reserver(&self) -> Reserver {
        Reserver { keeper: self.keeper.clone() }
    }

    /// How far the numbers of a sealing key may have been used; `None` for a new key, of which none
    /// can be reserved before [`StateStore::settle`].
    ///
    /// Where the newest record is all that is whole, one that came after it may have been lost: as
    /// many numbers as it can have reserved are skipped.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn sealing(&mut self, key: Fingerprint) -> Result<Option<SealingState>, StateError> {
        self.refuse_lent(key)?;
        self.begin_sealing(key, 0)
    }

    /// The same for a key in a file, whose `stamp` must not know more than this directory. Begins
    /// one number later at each start, which the stamp has from then on.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn sealing_of_file(
        &mut self,
        key: Fingerprint,
        stamp: &Path,
    ) -> Result<Option<SealingState>, StateError> {
        self.refuse_lent(key)?;
        if self.held.contains_key(&format!("seal-{key}")) {
            return self.begin_sealing(key, 0);
        }
        let stamped = self.done(stamp, stamp::read(stamp, key))?;
        let before = self.reach_of_sealing(key)?;
        if let Some(stamped) = stamped.filter(|stamped| *stamped > before) {
            if self.lost == LostState::Refuse {
                let (path, stamp) = (self.path("seal", key), stamp.to_owned());
                return Err(StateError::Behind { fingerprint: key, path, stamp });
            }
            tracing::error!(%key, stamped, "state forgotten by request: nonces may repeat");
        }
        let next = before.max(stamped.unwrap_or(0)).saturating_add(1);
        let state = self.begin_sealing(key, next)?;
        let is_new = stamped.is_none() && before == 0;
        self.stamps.push(Stamp { path: stamp.to_owned(), key, number: next, is_new });
        Ok(state)
    }

    fn begin_sealing(
        &mut self,
        key: Fingerprint,
        at_least: u64,
    ) -> Result<Option<SealingState>, StateError> {
        self.refuse_cloned(key)?;
        let name = format!("seal-{key}");
        let note = self.note_of(key)?;
        let known = note.map_or(self.used.contains(&name), |it| it.sealed_below == IN_FILE);
        let (mut file, found) = self.file("seal", key, known, |record| {
            SealingState::decode(record).is_ok_and(|state| state.fingerprint == key)
        })?;
        let noted = note.map_or(0, |it| if known { 0 } else { it.sealed_below });
        let kept = sealed_below(&found).unwrap_or(0).max(noted);
        let mark = kept.max(at_least);
        let state = SealingState { fingerprint: key, reserved_until: mark };
        let is_new = found.record.is_none();
        if is_new || mark > kept {
            let mut record = Vec::new();
            state.encode(&mut record);
            // A new one into both slots: from now on, one that is not whole was damaged.
            let both = if is_new { file.write(&record) } else { Ok(()) };
            let written = both.and_then(|()| file.write(&record));
            self.done(&file.path, written)?;
        }
        if !is_new && mark == kept && known {
            let _ = self.keeper.send(Work::KeepSealing(key, file, mark));
        } else {
            let synced = Some(Arc::clone(&file.file));
            let begun = Begun { key, file: synced, sealing: Some((file, mark)) };
            self.begun.insert(name, begun);
        }
        // Numbers begin with 1.
        Ok((mark > 1).then_some(state))
    }

    /// Which numbers of an opening key were accepted (`None`: a new key), and the file to write
    /// more to.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn opening(
        &mut self,
        key: Fingerprint,
    ) -> Result<(StateFile, Option<OpeningState>), StateError> {
        self.refuse_lent(key)?;
        self.begin_opening(key)
    }

    fn begin_opening(
        &mut self,
        key: Fingerprint,
    ) -> Result<(StateFile, Option<OpeningState>), StateError> {
        self.refuse_cloned(key)?;
        let name = format!("open-{key}");
        let note = self.note_of(key)?;
        let known = note.map_or(self.used.contains(&name), |it| it.accepted_to == IN_FILE);
        let (mut file, found) = self.file("open", key, known, |record| {
            OpeningState::decode(record).is_ok_and(|state| state.fingerprint == key)
        })?;
        let mut state = found.record.and_then(|record| OpeningState::decode(&record).ok());
        let noted = note.map_or(0, |it| if known { 0 } else { it.accepted_to });
        let mut synced = None;
        if noted > state.as_ref().map_or(0, |it| it.replay.highest) {
            let kept = OpeningState { fingerprint: key, replay: ReplayState::up_to(noted) };
            let mut record = Vec::new();
            kept.encode(&mut record);
            let written = file.write(&record);
            self.done(&file.path, written)?;
            synced = Some(Arc::clone(&file.file));
            state = Some(kept);
        }
        if !known {
            self.begun.insert(name, Begun { key, file: synced, sealing: None });
        }
        let _ = self.keeper.send(Work::Sync(Arc::clone(&file.file)));
        Ok((file, state))
    }

    /// Notes on disk that a kernel seals with IVs that begin so, and waits for it; false: such IVs
    /// were there before, or are what Weir's own begin with.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn note_iv(&mut self, key: Fingerprint, prefix: IvPrefix) -> Result<bool, StateError> {
        let line = format!("iv-{key}-{:04x}", u16::from_be_bytes(prefix.0));
        if prefix.0 == [0; 2] || self.used.contains(&line) {
            return Ok(false);
        }
        let noted = writeln!(self.ledger, "{line}").and_then(|()| self.ledger.sync_all());
        self.done(&self.directory, noted)?;
        Ok(self.used.insert(line))
    }

    /// Waits until all keys that were begun are on the disk, and known there as used.
    ///
    /// # Errors
    /// [`StateError::Io`]; they stay begun, and no number of theirs can be reserved.
    pub fn settle(&mut self) -> Result<(), StateError> {
        if self.begun.is_empty() {
            return Ok(());
        }
        // Before the ledger knows the keys: a crash in between repeats nothing.
        let files = self.begun.values().filter_map(|begun| begun.file.as_deref());
        let on_disk = sync(&files.collect::<Vec<_>>(), &self.folder);
        self.done(&self.directory, on_disk)?;
        self.write_stamps()?;
        self.note_begun()?;
        for (name, Begun { key, sealing, .. }) in std::mem::take(&mut self.begun) {
            if !self.lent.contains_key(&key) {
                self.used.insert(name);
            }
            if let Some((file, mark)) = sealing {
                let _ = self.keeper.send(Work::KeepSealing(key, file, mark));
            }
        }
        Ok(())
    }

    /// Stamps the keys in files that were begun. One that sealed before seals without, since older
    /// versions wrote none.
    fn write_stamps(&mut self) -> Result<(), StateError> {
        while let Some(Stamp { path, key, number, is_new }) = self.stamps.last() {
            match stamp::write(path, *key, *number) {
                Err(error) if *is_new && self.lost == LostState::Refuse => {
                    let (path, key) = (path.clone(), *key);
                    self.stamps.pop();
                    // It used no number, and holds up no other key.
                    self.remove_files(key);
                    return Err(StateError::Unstamped { path, error });
                }
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%key, "{path}: {error}: lost state of the key goes unnoticed");
                }
                Ok(()) => {}
            }
            self.stamps.pop();
        }
        Ok(())
    }

    /// Has both ledgers know what was begun.
    fn note_begun(&mut self) -> Result<(), StateError> {
        let mut lines = String::new();
        let mut notes: BTreeMap<Fingerprint, Reach> = BTreeMap::new();
        for (name, begun) in &self.begun {
            let key = begun.key;
            let is_lent = self.lent.contains_key(&key);
            if !is_lent && !self.used.contains(name) {
                lines += &format!("{name}\n");
            }
            let known = self.notes.reach(key).map_err(|error| self.failed(error))?;
            if known.is_none() && !is_lent {
                continue;
            }
            // Of a key that has a note, that alone counts.
            let in_file = |kind| match self.used.contains(&format!("{kind}-{key}")) {
                true => IN_FILE,
                false => 0,
            };
            let by_ledger =
                || Reach { sealed_below: in_file("seal"), accepted_to: in_file("open") };
            let note = notes.entry(key).or_insert_with(|| known.unwrap_or_else(by_ledger));
            match begun.sealing {
                Some(_) => note.sealed_below = IN_FILE,
                None => note.accepted_to = IN_FILE,
            }
        }
        if !lines.is_empty() {
            let noted = self.ledger.write_all(lines.as_bytes());
            let noted = noted.and_then(|()| self.ledger.sync_all());
            self.done(&self.directory, noted)?;
        }
        let notes: Vec<_> = notes.into_iter().collect();
        let noted = self.notes.note(&notes);
        self.done(&self.directory, noted)
    }

    /// The state file of a key and its newest record that `valid` takes.
    fn file(
        &mut self,
        kind: &str,
        key: Fingerprint,
        known: bool,
        valid: impl Fn(&[u8]) -> bool,
    ) -> Result<(StateFile, Newest), StateError> {
        let name = format!("{kind}-{key}");
        let path = self.path(kind, key);
        let existed = path.exists();
        let file = match self.held.get(&name) {
            Some(file) => Arc::clone(file),
            None => self.open_locked(&path, key)?,
        };
        let found = self.done(&path, newest(&file, valid))?;
        let empty = self.done(&path, file.metadata())?.len() == 0;
        let problem = match (known, existed, found.record.is_some()) {
            (_, _, true) => None,
            (true, false, _) => Some("missing"),
            // A file without a record is one that was begun, unless something was in it.
            (_, true, false) if !empty || (known && kind == "seal") => Some("damaged"),
            _ => None,
        };
        if let Some(what) = problem {
            if self.lost == LostState::Refuse {
                if !existed {
                    let _ = fs::remove_file(&path);
                }
                return Err(StateError::Lost { fingerprint: key, path, what });
            }
            tracing::error!(%key, what, "state forgotten by request: nonces may repeat");
        }
        self.held.insert(name, Arc::clone(&file));
        let Newest { generation, .. } = found;
        let (boot, slot) = (self.boot, Vec::new());
        let state = StateFile { file, path, generation, boot, slot, is_written: false };
        Ok((state, found))
    }

    fn path(&self, kind: &str, key: Fingerprint) -> PathBuf {
        self.directory.join(format!("{kind}-{key}.state"))
    }

    fn failed(&self, error: io::Error) -> StateError {
        StateError::Io { path: self.directory.clone(), error }
    }

    fn open_locked(&self, path: &Path, key: Fingerprint) -> Result<Arc<File>, StateError> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let file = self.done(path, opened)?;
        match file.try_lock() {
            Ok(()) => Ok(Arc::new(file)),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse(key)),
            Err(TryLockError::Error(error)) => self.done(path, Err(error)),
        }
    }

    fn done<T>(&self, path: &Path, result: io::Result<T>) -> Result<T, StateError> {
        result.map_err(|error| StateError::Io { path: path.to_owned(), error })
    }
}

impl Drop for StateStore {
    /// Waits until everything is on the disk.
    fn drop(&mut self) {
        let _ = self.keeper.send(Work::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Closing does not unlock while a process that is just being started still has a copy.
        for file in self.held.values() {
            let _ = file.unlock();
        }
    }
}

/// Below which number a sealing key was used, by its state file; `None`: it holds nothing.
fn sealed_below(found: &Newest) -> Option<u64> {
    let state = SealingState::decode(found.record.as_ref()?).ok()?;
    let lost = if found.is_alone { RESERVATION_MAX } else { 0 };
    Some(state.reserved_until.saturating_add(lost))
}

/// The highest number accepted with an opening key, by its state file.
fn accepted_to(found: &Newest) -> u64 {
    let state = found.record.as_ref().and_then(|record| OpeningState::decode(record).ok());
    state.map_or(0, |state| state.replay.highest)
}

#[cfg(test)]
mod tests;
