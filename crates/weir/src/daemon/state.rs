//! What must survive a crash, so that no sequence number is used and none accepted twice.
//!
//! ```text
//!   state_dir/keys-used               a line for each key ever used, by fingerprint
//!   state_dir/seal-FINGERPRINT.state  numbers below this may have been used
//!   state_dir/open-FINGERPRINT.state  numbers that were accepted
//! ```
//!
//! A state file has two slots, written in turn; a slot is magic, generation, boot identifier,
//! length, the engine's record, checksum. The newest whole slot counts. State belongs to key and
//! salt, not to the SPI: the nonce knows no SPI. The ledger tells a new key from one whose state
//! file was lost: the first is begun, the second refused. Whoever removes the whole directory and
//! keeps the keys repeats nonces; nothing here can know that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_engine::esp::open::OpeningState;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingState;
use weir_engine::esp::state::RECORD_LEN_MAX;

/// Bytes of a slot: a page, so that no write touches both.
const SLOT_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"weirSLT1";
/// Magic, generation, boot identifier, record length.
const HEAD_BYTES: usize = 8 + 8 + 16 + 4;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(HEAD_BYTES + RECORD_LEN_MAX + CHECKSUM_BYTES <= SLOT_BYTES);

/// Requests that wait for the disk, at most.
const REQUESTS_MAX: usize = 1024;

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
    lost: LostState,
    boot: [u8; 16],
    ledger: File,
    used: BTreeSet<String>,
    held: BTreeMap<String, Arc<File>>,
    keeper: SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
}

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
        let used = match fs::read_to_string(&path) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(failed(&path)(error)),
        };
        let ledger = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed(&path))?;
        let (keeper, work) = sync_channel(REQUESTS_MAX);
        let thread = std::thread::Builder::new()
            .name("state".into())
            .spawn(move || Keeper::default().run(&work))
            .map_err(failed(directory))?;
        let boot = boot_identifier();
        let directory = directory.to_owned();
        let (held, thread) = (BTreeMap::new(), Some(thread));
        Ok(Self { directory, lost, boot, ledger, used, held, keeper, thread })
    }

    /// A handle to ask for sequence numbers with.
    pub fn reserver(&self) -> Reserver {
        Reserver { keeper: self.keeper.clone() }
    }

    /// How far the numbers of a sealing key may have been used; `None` for a new key.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn sealing(&mut self, key: Fingerprint) -> Result<Option<SealingState>, StateError> {
        let (mut file, record) = self.file("seal", key, |record| {
            SealingState::decode(record).is_ok_and(|state| state.fingerprint == key)
        })?;
        let state = record.and_then(|record| SealingState::decode(&record).ok());
        if state.is_none() {
            // On the disk before the ledger knows the key: a crash in between repeats nothing.
            let mut record = Vec::new();
            SealingState { fingerprint: key, reserved_until: 0 }.encode(&mut record);
            let written = file.write(&record).and_then(|()| file.sync());
            self.done(&file.path, written)?;
        }
        self.remember("seal", key)?;
        let _ = self.keeper.send(Work::KeepSealing(key, file));
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
        self.remember("open", key)?;
        let _ = self.keeper.send(Work::Sync(Arc::clone(&file.file)));
        Ok((file, record.and_then(|record| OpeningState::decode(&record).ok())))
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

    /// Notes in the ledger, on the disk, that a key is used.
    fn remember(&mut self, kind: &str, key: Fingerprint) -> Result<(), StateError> {
        let name = format!("{kind}-{key}");
        if self.used.contains(&name) {
            return Ok(());
        }
        let written = writeln!(self.ledger, "{name}")
            .and_then(|()| self.ledger.sync_all())
            .and_then(|()| File::open(&self.directory)?.sync_all());
        self.done(&self.directory, written)?;
        self.used.insert(name);
        Ok(())
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

/// One key's file.
#[derive(Debug)]
pub struct StateFile {
    file: Arc<File>,
    path: PathBuf,
    generation: u64,
    boot: [u8; 16],
    slot: Vec<u8>,
}

impl StateFile {
    /// Writes a record, as `SealingState::encode` and `OpeningState::encode` make it, to the page
    /// cache: a killed process loses nothing, a power failure may. Allocates the first time only.
    ///
    /// # Errors
    /// The disk is full or gone; the record before it is still there.
    pub fn write(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > RECORD_LEN_MAX {
            return Err(io::Error::other("record longer than a slot"));
        }
        let generation = self.generation + 1;
        self.slot.clear();
        self.slot.extend_from_slice(&MAGIC);
        self.slot.extend_from_slice(&generation.to_be_bytes());
        self.slot.extend_from_slice(&self.boot);
        self.slot.extend_from_slice(&(record.len() as u32).to_be_bytes());
        self.slot.extend_from_slice(record);
        let checksum = crc32fast::hash(&self.slot);
        self.slot.extend_from_slice(&checksum.to_be_bytes());
        self.file.write_all_at(&self.slot, generation % 2 * SLOT_BYTES as u64)?;
        self.generation = generation;
        Ok(())
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The generation and record of the newest whole slot, and 0 and none when there is none.
fn newest(file: &File, valid: impl Fn(&[u8]) -> bool) -> io::Result<(u64, Option<Vec<u8>>)> {
    let mut best = (0, None);
    for slot in 0..2 {
        let mut bytes = vec![0; SLOT_BYTES];
        let mut length = 0;
        while length < SLOT_BYTES {
            let offset = (slot * SLOT_BYTES + length) as u64;
            match file.read_at(&mut bytes[length..], offset)? {
                0 => break,
                count => length += count,
            }
        }
        if let Some((generation, record)) = read_slot(&bytes[..length])
            && generation > best.0
            && valid(record)
        {
            best = (generation, Some(record.to_vec()));
        }
    }
    Ok(best)
}

fn read_slot(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (_boot, rest) = rest.split_first_chunk::<16>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let checksum = rest.first_chunk::<CHECKSUM_BYTES>()?;
    let covered = &bytes[..HEAD_BYTES + record.len()];
    let right = crc32fast::hash(covered).to_be_bytes() == *checksum;
    right.then_some((u64::from_be_bytes(*generation), record))
}

/// Which start of the machine wrote a slot, for those who read the files after a power failure.
fn boot_identifier() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let mut identifier = [0; 16];
    for (byte, pair) in identifier.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    identifier
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

    /// Asks and waits: for the start of an association.
    ///
    /// # Errors
    /// The disk refuses, or takes longer than ten seconds.
    pub fn wait(&self, wanted: SealingState) -> io::Result<SealingState> {
        let (answer, answers) = channel();
        let asked = self.keeper.send(Work::Reserve(wanted, answer));
        let answer = asked.ok().and_then(|()| answers.recv_timeout(Duration::from_secs(10)).ok());
        match answer {
            Some(Reserved::Granted(state)) => Ok(state),
            _ => Err(io::Error::other("sequence numbers could not be reserved on disk")),
        }
    }
}

#[derive(Debug)]
enum Work {
    KeepSealing(Fingerprint, StateFile),
    Sync(Arc<File>),
    Reserve(SealingState, Sender<Reserved>),
    End,
}

/// The thread that waits for the disk.
#[derive(Default)]
struct Keeper {
    sealing: BTreeMap<Fingerprint, StateFile>,
    opening: Vec<Arc<File>>,
    record: Vec<u8>,
}

impl Keeper {
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
    use super::*;

    const KEY: Fingerprint = Fingerprint([7; 8]);

    fn store(directory: &Path) -> StateStore {
        StateStore::open(directory, LostState::Refuse).unwrap()
    }

    fn reserve(store: &StateStore, until: u64) {
        let wanted = SealingState { fingerprint: KEY, reserved_until: until };
        assert_eq!(store.reserver().wait(wanted).unwrap(), wanted);
    }

    fn state_file(directory: &Path, kind: &str) -> PathBuf {
        directory.join(format!("{kind}-{KEY}.state"))
    }

    #[test]
    fn a_new_key_begins_and_a_used_one_goes_on_where_the_disk_says() {
        let directory = tempfile::tempdir().unwrap();
        for (before, until) in [(None, 100), (Some(100), 200), (Some(200), 300)] {
            let mut store = store(directory.path());
            let state = store.sealing(KEY).unwrap();
            assert_eq!(state.map(|it| it.reserved_until), before);
            reserve(&store, until);
        }
    }

    #[test]
    fn lost_or_damaged_state_of_a_used_key_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        first.sealing(KEY).unwrap();
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
        }
        fs::write(&path, whole).unwrap();
        assert_eq!(store(directory.path()).sealing(KEY).unwrap().unwrap().reserved_until, 100);
    }

    #[test]
    fn a_half_written_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(directory.path());
        first.sealing(KEY).unwrap();
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
    fn numbers_of_an_unknown_key_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let wanted = SealingState { fingerprint: KEY, reserved_until: 5 };
        assert!(store.reserver().wait(wanted).is_err());
    }
}
