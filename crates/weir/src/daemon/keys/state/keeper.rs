//! The thread that waits for the disk, and how workers ask it for sequence numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::time::Duration;

use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingState;
use weir_store::clock;

use super::slot::StateFile;

/// Files that are each waited for. For more, the whole file system is, once: its other writers
/// cost less than a journal's commit for every file.
const SYNCED_ALONE_MAX: usize = 8;

/// How long a start waits for the disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often accepted numbers reach the disk itself; a power failure loses at most this much.
const SYNC_PERIOD: Duration = Duration::from_secs(1);

/// Asks for sequence numbers; for workers, which never wait for a disk.
#[derive(Clone, Debug)]
pub struct Reserver {
    pub(super) keeper: SyncSender<Work>,
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
pub(super) enum Work {
    /// Reserve numbers of this key in this file, which has reserved those below a mark.
    KeepSealing(Fingerprint, StateFile, u64),
    Sync(Arc<File>),
    /// The key is used no more.
    Forget(Fingerprint, Vec<Arc<File>>),
    Reserve(SealingState, Sender<Reserved>),
    ReserveAll(Vec<SealingState>, Sender<io::Result<()>>),
    End,
}

/// The thread that waits for the disk.
pub(super) struct Keeper {
    folder: Arc<File>,
    sealing: BTreeMap<Fingerprint, Sealing>,
    opening: Vec<Arc<File>>,
    record: Vec<u8>,
}

/// A key whose numbers are reserved here.
struct Sealing {
    file: StateFile,
    /// Numbers below it are reserved, by whomever.
    mark: u64,
}

impl Keeper {
    pub(super) fn new(folder: Arc<File>) -> Self {
        Self { folder, sealing: BTreeMap::new(), opening: Vec::new(), record: Vec::new() }
    }

    pub(super) fn run(mut self, work: &Receiver<Work>) {
        let mut synced = clock::now();
        loop {
            match work.recv_timeout(SYNC_PERIOD.saturating_sub(synced.elapsed())) {
                Ok(Work::KeepSealing(key, file, mark)) => {
                    // The same file again, by a reload: the one at hand knows its generation.
                    self.sealing.entry(key).or_insert(Sealing { file, mark });
                }
                Ok(Work::Forget(key, files)) => {
                    self.sealing.remove(&key);
                    self.opening.retain(|it| !files.iter().any(|gone| Arc::ptr_eq(gone, it)));
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
                    synced = clock::now();
                }
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    fn reserve(&mut self, wanted: SealingState) -> Reserved {
        match self.reserve_all(&[wanted]) {
            Ok(()) => Reserved::Granted(wanted),
            Err(error) => {
                let key = wanted.fingerprint;
                tracing::error!(%key, %error, "sequence numbers cannot be reserved");
                Reserved::Refused(key)
            }
        }
    }

    /// Writes the marks, waits for the disk, and only then lets them count.
    fn reserve_all(&mut self, wanted: &[SealingState]) -> io::Result<()> {
        let Self { folder, sealing, record, .. } = self;
        for state in wanted {
            let key = state.fingerprint;
            let Sealing { file, mark } = sealing.get_mut(&key).ok_or_else(|| {
                io::Error::other(format!("no number of key {key} is reserved: it is not on disk"))
            })?;
            // A mark on the disk never goes back.
            SealingState { reserved_until: state.reserved_until.max(*mark), ..*state }
                .encode(record);
            file.write_next(record)?;
        }
        let files = wanted.iter().filter_map(|it| Some(&*sealing.get(&it.fingerprint)?.file.file));
        sync(&files.collect::<Vec<_>>(), folder)?;
        for state in wanted {
            if let Some(Sealing { file, mark }) = sealing.get_mut(&state.fingerprint) {
                file.advance();
                *mark = state.reserved_until.max(*mark);
            }
        }
        Ok(())
    }

    fn sync(&self) {
        let files: Vec<_> = self.opening.iter().map(|file| &**file).collect();
        if !files.is_empty()
            && let Err(error) = sync(&files, &self.folder)
        {
            tracing::error!(%error, "accepted sequence numbers do not reach the disk");
        }
    }
}

/// Waits until `files` of the directory `folder`, and their names, are on the disk. An error that
/// befell one of them since `folder` was opened is told, by `syncfs` too (Linux 5.8).
pub(super) fn sync(files: &[&File], folder: &File) -> io::Result<()> {
    if files.len() > SYNCED_ALONE_MAX {
        rustix::fs::syncfs(folder)?;
    } else {
        files.iter().try_for_each(|file| file.sync_data())?;
    }
    folder.sync_all()
}
