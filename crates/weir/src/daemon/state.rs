//! What must survive a crash, so that no sequence number is used and none accepted twice.
//!
//! ```text
//!   state_dir/keys-used               a line for each key ever used, by fingerprint, and for each
//!                                     beginning of IVs that a kernel sealed with
//!   state_dir/seal-FINGERPRINT.state  numbers below this may have been used
//!   state_dir/open-FINGERPRINT.state  numbers that were accepted
//! ```
//!
//! A state file has two slots, written in turn; a slot is magic, generation, boot identifier,
//! length, the engine's record, checksum. The newest whole slot counts. State belongs to key and
//! salt, not to the SPI: the nonce knows no SPI. The ledger tells a new key from one whose state
//! file was lost: the first is begun, the second refused. Keys are begun many at a time, and the
//! disk is waited for once: state files, then the ledger, then numbers. Whoever removes the whole
//! directory and keeps the keys repeats nonces; nothing here can know that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_engine::esp::open::OpeningState;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingState;
use weir_port::IvPrefix;

mod slot;

pub use slot::StateFile;

use slot::{boot_identifier, newest};

/// Requests that wait for the disk, at most.
const REQUESTS_MAX: usize = 1024;

/// Files that are each waited for. For more, the whole file system is, once: its other writers
/// cost less than a journal's commit for every file.
const SYNCED_ALONE_MAX: usize = 8;

/// How long a start waits for the disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often accepted numbers reach the disk itself; a power failure loses at most this much.
const SYNC_PERIOD: Duration = Duration::from_secs(1);

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
    held: BTreeMap<String, Arc<File>>,
    keeper: SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
}

/// The file of a key that was begun and is not on the disk yet: of a sealing key, for the keeper.
type Begun = Option<(Fingerprint, StateFile)>;

impl StateStore {
    /// Opens `directory`, makes it when it is not there, and starts the thread that waits for the
    /// disk.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn open(directory: &Path, lost: LostState) -> Result<Self, StateError> {
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
        let (keeper, work) = sync_channel(REQUESTS_MAX);
        let thread = std::thread::Builder::new()
            .name("state".into())
            .spawn({
                let keeper = Keeper::new(Arc::clone(&folder));
                move || keeper.run(&work)
            })
            .map_err(failed(directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            folder,
            lost,
            boot: boot_identifier(),
            ledger,
            used,
            begun: BTreeMap::new(),
            held: BTreeMap::new(),
            keeper,
            thread: Some(thread),
        })
    }

    /// A handle to ask for sequence numbers with.
    pub fn reserver(&self) -> Reserver {
        Reserver { keeper: self.keeper.clone() }
    }

    /// How far the numbers of a sealing key may have been used; `None` for a new key, of which none
    /// can be reserved before [`StateStore::settle`].
    ///
    /// # Errors
    /// [`StateError`].
    pub fn sealing(&mut self, key: Fingerprint) -> Result<Option<SealingState>, StateError> {
        let (mut file, record) = self.file("seal", key, |record| {
            SealingState::decode(record).is_ok_and(|state| state.fingerprint == key)
        })?;
        let state = record.and_then(|record| SealingState::decode(&record).ok());
        if state.is_none() {
            let mut record = Vec::new();
            SealingState { fingerprint: key, reserved_until: 0 }.encode(&mut record);
            let written = file.write(&record);
            self.done(&file.path, written)?;
        }
        let name = format!("seal-{key}");
        if state.is_some() && self.used.contains(&name) {
            let _ = self.keeper.send(Work::KeepSealing(key, file));
        } else {
            self.begun.insert(name, Some((key, file)));
        }
        Ok(state.filter(|state| state.reserved_until > 0))
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
        let (file, record) = self.file("open", key, |record| {
            OpeningState::decode(record).is_ok_and(|state| state.fingerprint == key)
        })?;
        let name = format!("open-{key}");
        if !self.used.contains(&name) {
            self.begun.insert(name, None);
        }
        let _ = self.keeper.send(Work::Sync(Arc::clone(&file.file)));
        Ok((file, record.and_then(|record| OpeningState::decode(&record).ok())))
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
        let files = self.begun.values().flatten().map(|(_, file)| &*file.file);
        let on_disk = sync(&files.collect::<Vec<_>>(), &self.folder);
        self.done(&self.directory, on_disk)?;
        let new = self.begun.keys().filter(|name| !self.used.contains(*name));
        let lines: String = new.flat_map(|name| [name, "\n"]).collect();
        let noted = self.ledger.write_all(lines.as_bytes()).and_then(|()| self.ledger.sync_all());
        self.done(&self.directory, noted)?;
        for (name, sealing) in std::mem::take(&mut self.begun) {
            self.used.insert(name);
            if let Some((key, file)) = sealing {
                let _ = self.keeper.send(Work::KeepSealing(key, file));
            }
        }
        Ok(())
    }

    /// The state file of a key and its newest record that `valid` takes.
    fn file(
        &mut self,
        kind: &str,
        key: Fingerprint,
        valid: impl Fn(&[u8]) -> bool,
    ) -> Result<(StateFile, Option<Vec<u8>>), StateError> {
        let name = format!("{kind}-{key}");
        let path = self.directory.join(format!("{name}.state"));
        let known = self.used.contains(&name);
        let existed = path.exists();
        let file = match self.held.get(&name) {
            Some(file) => Arc::clone(file),
            None => self.open_locked(&path, key)?,
        };
        let (generation, record) = self.done(&path, newest(&file, valid))?;
        let empty = self.done(&path, file.metadata())?.len() == 0;
        let problem = match (known, existed, record.is_some()) {
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
        let state = StateFile { file, path, generation, boot: self.boot, slot: Vec::new() };
        Ok((state, record))
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

/// Waits until `files` of the directory `folder`, and their names, are on the disk. An error that
/// befell one of them since `folder` was opened is told, by `syncfs` too (Linux 5.8).
fn sync(files: &[&File], folder: &File) -> io::Result<()> {
    if files.len() > SYNCED_ALONE_MAX {
        rustix::fs::syncfs(folder)?;
    } else {
        files.iter().try_for_each(|file| file.sync_data())?;
    }
    folder.sync_all()
}

/// Asks for sequence numbers; for workers, which never wait for a disk.
#[derive(Clone, Debug)]
pub struct Reserver {
    keeper: SyncSender<Work>,
}

/// What became of a request for numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// They are on the disk: extend the reservation.
    Granted(SealingState),
    /// The disk refused; ask again, later.
    Refused(Fingerprint),
}

impl Reserver {
    /// Asks for the numbers below `wanted.reserved_until`; the answer comes by `answer`. False:
    /// too many requests wait, ask again later.
    pub fn ask(&self, wanted: SealingState, answer: &Sender<Reserved>) -> bool {
        self.keeper.try_send(Work::Reserve(wanted, answer.clone())).is_ok()
    }

    /// Asks for all of them and waits: for the start of associations.
    ///
    /// # Errors
    /// The disk refuses, or takes longer than a minute; or a key was not settled.
    pub fn wait(&self, wanted: Vec<SealingState>) -> io::Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let (answer, answers) = channel();
        let asked = self.keeper.send(Work::ReserveAll(wanted, answer));
        let answer = asked.ok().and_then(|()| answers.recv_timeout(PATIENCE).ok());
        let silent = || Err(io::Error::other("sequence numbers could not be reserved on disk"));
        answer.unwrap_or_else(silent)
    }
}

#[derive(Debug)]
enum Work {
    KeepSealing(Fingerprint, StateFile),
    Sync(Arc<File>),
    Reserve(SealingState, Sender<Reserved>),
    ReserveAll(Vec<SealingState>, Sender<io::Result<()>>),
    End,
}

/// The thread that waits for the disk.
struct Keeper {
    folder: Arc<File>,
    sealing: BTreeMap<Fingerprint, StateFile>,
    opening: Vec<Arc<File>>,
    record: Vec<u8>,
}

impl Keeper {
    fn new(folder: Arc<File>) -> Self {
        Self { folder, sealing: BTreeMap::new(), opening: Vec::new(), record: Vec::new() }
    }

    fn run(mut self, work: &Receiver<Work>) {
        let mut synced = Instant::now();
        loop {
            match work.recv_timeout(SYNC_PERIOD.saturating_sub(synced.elapsed())) {
                Ok(Work::KeepSealing(key, file)) => {
                    // The same file again, by a reload: the one at hand knows its generation.
                    self.sealing.entry(key).or_insert(file);
                }
                Ok(Work::Sync(file)) => {
                    if !self.opening.iter().any(|other| Arc::ptr_eq(other, &file)) {
                        self.opening.push(file);
                    }
                }
                Ok(Work::Reserve(wanted, answer)) => {
                    let _ = answer.send(self.reserve(wanted));
                }
                Ok(Work::ReserveAll(wanted, answer)) => {
                    let _ = answer.send(self.reserve_all(&wanted));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.sync();
                    synced = Instant::now();
                }
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    fn reserve(&mut self, wanted: SealingState) -> Reserved {
        let key = wanted.fingerprint;
        let Some(file) = self.sealing.get_mut(&key) else { return Reserved::Refused(key) };
        wanted.encode(&mut self.record);
        match file.write(&self.record).and_then(|()| file.sync()) {
            Ok(()) => Reserved::Granted(wanted),
            Err(error) => {
                let path = file.path.display();
                tracing::error!(%path, %error, "sequence numbers cannot be reserved");
                Reserved::Refused(key)
            }
        }
    }

    fn reserve_all(&mut self, wanted: &[SealingState]) -> io::Result<()> {
        let Self { folder, sealing, record, .. } = self;
        for state in wanted {
            let key = state.fingerprint;
            let file = sealing.get_mut(&key).ok_or_else(|| {
                io::Error::other(format!("no number of key {key} is reserved: it is not on disk"))
            })?;
            state.encode(record);
            file.write(record)?;
        }
        let files = wanted.iter().filter_map(|it| Some(&*sealing.get(&it.fingerprint)?.file));
        sync(&files.collect::<Vec<_>>(), folder)
    }

    fn sync(&self) {
        for file in &self.opening {
            if let Err(error) = file.sync_data() {
                tracing::error!(%error, "accepted sequence numbers do not reach the disk");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::slot::{HEAD_BYTES, MAGIC};
    use super::*;

    const KEY: Fingerprint = Fingerprint([7; 8]);

    fn store(directory: &Path) -> StateStore {
        StateStore::open(directory, LostState::Refuse).unwrap()
    }

    fn reserve(store: &StateStore, until: u64) {
        let wanted = SealingState { fingerprint: KEY, reserved_until: until };
        store.reserver().wait(vec![wanted]).unwrap();
    }

    fn state_file(directory: &Path, kind: &str) -> PathBuf {
        directory.join(format!("{kind}-{KEY}.state"))
    }

    #[test]
    fn ivs_of_an_installation_begin_as_none_before_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let [key, other] = [Fingerprint([1; 8]), Fingerprint([2; 8])];
        let mut store = StateStore::open(folder.path(), LostState::Refuse).unwrap();
        assert!(!store.note_iv(key, IvPrefix([0, 0])).unwrap(), "Weir's own begin so");
        assert!(store.note_iv(key, IvPrefix([1, 2])).unwrap());
        assert!(!store.note_iv(key, IvPrefix([1, 2])).unwrap());
        assert!(store.note_iv(other, IvPrefix([1, 2])).unwrap(), "another key");
        drop(store);
        let mut store = StateStore::open(folder.path(), LostState::Refuse).unwrap();
        assert!(!store.note_iv(key, IvPrefix([1, 2])).unwrap(), "after a restart");
        assert!(store.note_iv(key, IvPrefix([2, 1])).unwrap());
    }

    #[test]
    fn a_new_key_begins_and_a_used_one_goes_on_where_the_disk_says() {
        let directory = tempfile::tempdir().unwrap();
        for (before, until) in [(None, 100), (Some(100), 200), (Some(200), 300)] {
            let mut store = store(directory.path());
            let state = store.sealing(KEY).unwrap();
            assert_eq!(state.map(|it| it.reserved_until), before);
            store.settle().unwrap();
            reserve(&store, until);
        }
    }

    #[test]
    fn lost_or_damaged_state_of_a_used_key_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        first.sealing(KEY).unwrap();
        first.settle().unwrap();
        reserve(&first, 100);
        drop(first);
        let path = state_file(directory.path(), "seal");
        let whole = fs::read(&path).unwrap();
        for damage in [None, Some(vec![]), Some(vec![0; 100])] {
            match damage {
                None => fs::remove_file(&path).unwrap(),
                Some(bytes) => fs::write(&path, bytes).unwrap(),
            }
            for _attempt in 0..2 {
                let error = store(directory.path()).sealing(KEY).unwrap_err().to_string();
                assert!(error.contains("--danger-forget-state"), "{error}");
            }
            let mut forgetting =
                StateStore::open(directory.path(), LostState::DangerForget).unwrap();
            assert_eq!(forgetting.sealing(KEY).unwrap(), None);
            forgetting.settle().unwrap();
        }
        fs::write(&path, whole).unwrap();
        assert_eq!(store(directory.path()).sealing(KEY).unwrap().unwrap().reserved_until, 100);
    }

    #[test]
    fn a_half_written_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        first.sealing(KEY).unwrap();
        first.settle().unwrap();
        reserve(&first, 100);
        reserve(&first, 200);
        drop(first);
        let path = state_file(directory.path(), "seal");
        let whole = fs::read(&path).unwrap();
        let newest = whole.windows(8).enumerate().filter(|(_, it)| *it == MAGIC).map(|(at, _)| at);
        let newest = newest.max_by_key(|at| whole[at + 8..at + 16].to_vec()).unwrap();
        for offset in 0..HEAD_BYTES + 32 {
            let mut damaged = whole.clone();
            damaged[newest + offset] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let state = store(directory.path()).sealing(KEY).unwrap().unwrap();
            assert_eq!(state.reserved_until, 100, "byte {offset}");
        }
    }

    #[test]
    fn accepted_numbers_are_there_again_without_a_clean_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        let (mut file, state) = first.opening(KEY).unwrap();
        assert_eq!(state, None);
        first.settle().unwrap();
        let replay =
            weir_engine::esp::replay::ReplayState { highest: 77, window: 64, accepted: vec![1, 2] };
        let accepted = OpeningState { fingerprint: KEY, replay };
        let mut record = Vec::new();
        accepted.encode(&mut record);
        file.write(&record).unwrap();
        // What a killed process leaves: the file as it is, nobody's lock.
        let copy = tempfile::tempdir().unwrap();
        for name in ["keys-used".into(), format!("open-{KEY}.state")] {
            fs::copy(directory.path().join(&name), copy.path().join(&name)).unwrap();
        }
        let (_, state) = store(copy.path()).opening(KEY).unwrap();
        assert_eq!(state, Some(accepted));
    }

    #[test]
    fn one_key_serves_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        first.sealing(KEY).unwrap();
        first.sealing(KEY).expect("a reload asks again");
        let mut second = store(directory.path());
        assert!(matches!(second.sealing(KEY), Err(StateError::InUse(KEY))));
    }

    #[test]
    fn numbers_of_an_unknown_key_are_refused_and_of_one_that_is_not_settled() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = store(directory.path());
        let wanted = SealingState { fingerprint: KEY, reserved_until: 5 };
        assert!(store.reserver().wait(vec![wanted]).is_err());
        store.sealing(KEY).unwrap();
        assert!(store.reserver().wait(vec![wanted]).is_err(), "a crash would forget the key");
        store.settle().unwrap();
        store.reserver().wait(vec![wanted]).unwrap();
    }

    /// `count` keys, each with both of its files.
    fn begin(store: &mut StateStore, count: u8) -> Vec<SealingState> {
        let key = |byte| Fingerprint([byte; 8]);
        let begun = (0..count).map(|byte| {
            store.opening(key(byte)).unwrap();
            assert_eq!(store.sealing(key(byte)).unwrap(), None, "no number was used");
            SealingState { fingerprint: key(byte), reserved_until: 100 }
        });
        begun.collect()
    }

    fn copied(from: &Path, files: impl Iterator<Item = String>) -> tempfile::TempDir {
        let to = tempfile::tempdir().unwrap();
        for name in files {
            fs::copy(from.join(&name), to.path().join(&name)).unwrap();
        }
        to
    }

    /// More keys than are waited for one by one; a power failure leaves any part of what was not
    /// waited for, and the ledger cut anywhere.
    #[test]
    fn whenever_a_batch_is_cut_short_no_key_is_lost_and_none_has_used_a_number() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        let wanted = begin(&mut first, 20);
        let names = || {
            let listed = fs::read_dir(directory.path()).unwrap();
            let names = listed.map(|it| it.unwrap().file_name().into_string().unwrap());
            names.filter(|it| it.ends_with(".state"))
        };
        for kept in 0..4 {
            let some = names().enumerate().filter(|(index, _)| index % 4 <= kept);
            let left = copied(directory.path(), some.map(|(_, name)| name));
            let mut again = store(left.path());
            begin(&mut again, 20);
            again.settle().unwrap();
            again.reserver().wait(wanted.clone()).unwrap();
        }
        first.settle().unwrap();
        let ledger = fs::read(directory.path().join("keys-used")).unwrap();
        assert_eq!(ledger.iter().filter(|byte| **byte == b'\n').count(), 40);
        for end in (0..ledger.len()).step_by(31) {
            let left = copied(directory.path(), names());
            fs::write(left.path().join("keys-used"), &ledger[..end]).unwrap();
            let mut again = store(left.path());
            begin(&mut again, 20);
            again.settle().unwrap();
            drop(again);
            let whole = store(left.path()).used.clone();
            assert!(first.used.iter().all(|name| whole.contains(name)), "cut at {end}");
        }
        first.reserver().wait(wanted.clone()).unwrap();
        drop(first);
        let mut last = store(directory.path());
        for state in wanted {
            assert_eq!(last.sealing(state.fingerprint).unwrap(), Some(state));
        }
    }

    /// `cargo test -p weir --lib a_thousand_keys -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn a_thousand_keys_begin() {
        let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let mut store = store(directory.path());
        let begun = Instant::now();
        let mut wanted = Vec::new();
        for number in 0..1000_u64 {
            let fingerprint = Fingerprint(number.to_be_bytes());
            store.opening(fingerprint).unwrap();
            store.sealing(fingerprint).unwrap();
            wanted.push(SealingState { fingerprint, reserved_until: 1 << 20 });
        }
        store.settle().unwrap();
        store.reserver().wait(wanted).unwrap();
        println!("1000 keys begun, numbers reserved: {} ms", begun.elapsed().as_millis());
    }
}
