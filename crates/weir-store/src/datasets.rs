//! Files of the sets that rules change (`dataset` with `state` or `save`).
//!
//! ```text
//!  rules ----KeptSet---> DatasetKeeper's thread --once a minute, and in the end--> FOLDER/FILE
//!  workers --Change----------^  (bounded, never waits)
//! ```
//!
//! A file is replaced whole: who reads it finds the values of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock;

use weir_detect::dataset::{Change, KeptSet};

/// Between two writings of what has changed.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// Batches of changes, ten a second of each worker, that wait for the thread.
const QUEUE_BATCHES: usize = 64;

/// The values of a file.
#[derive(Debug, Default)]
struct Lines {
    lines: BTreeSet<String>,
    is_changed: bool,
}

/// Sets and their files.
#[derive(Debug)]
pub struct DatasetFiles {
    folder: PathBuf,
    /// By their names in the folder.
    files: BTreeMap<Arc<str>, Lines>,
}

impl DatasetFiles {
    /// Sets whose files are in `folder`, which is made with the first of them.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, files: BTreeMap::new() }
    }

    /// Takes in the sets that rules have; those that are known already stay as they are.
    pub fn begin(&mut self, sets: impl IntoIterator<Item = KeptSet>) {
        for set in sets {
            self.files.entry(set.file).or_insert_with(|| Lines {
                lines: set.lines.into_iter().collect(),
                is_changed: !set.is_loaded,
            });
        }
    }

    /// Does what a rule did to a set.
    pub fn change(&mut self, change: Change) {
        let Some(file) = self.files.get_mut(&change.file) else { return };
        file.is_changed |= match change.is_set {
            true => file.lines.insert(change.line),
            false => file.lines.remove(&change.line),
        };
    }

    /// Writes what has changed since it was written last. A file that cannot be written is tried
    /// again the next time.
    ///
    /// # Errors
    /// The first file that could not be written, and why; the others were.
    pub fn write(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let mut failed = None;
        for (name, file) in self.files.iter_mut().filter(|it| it.1.is_changed) {
            let path = self.folder.join(&**name);
            match replace(&path, &file.lines) {
                Ok(()) => file.is_changed = false,
                Err(error) => failed = failed.or(Some((path, error))),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Writes a file beside, and puts it in the place of the one before.
fn replace(path: &Path, lines: &BTreeSet<String>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut out = BufWriter::new(File::create(&beside)?);
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&beside, path)
}

enum Message {
    Sets(Vec<KeptSet>),
    Changes(Vec<Change>),
    Stop,
}

/// Hands changes over; one for each worker.
#[derive(Clone, Debug)]
pub struct DatasetSender {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl DatasetSender {
    /// Hands over what a worker's rules did. Never waits: what finds the queue full is missing in
    /// the files, which is said there.
    pub fn send(&self, changes: Vec<Change>) {
        let count = changes.len() as u64;
        if count > 0 && self.queue.try_send(Message::Changes(changes)).is_err() {
            self.lost.fetch_add(count, Relaxed);
        }
    }
}

/// The thread that keeps the files.
#[derive(Debug)]
pub struct DatasetKeeper {
    sender: DatasetSender,
    thread: Option<JoinHandle<()>>,
}

impl DatasetKeeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(folder: PathBuf) -> io::Result<Self> {
        let (queue, incoming) = sync_channel(QUEUE_BATCHES);
        let lost = Arc::new(AtomicU64::new(0));
        let files = DatasetFiles::new(folder);
        let work = Work { incoming, files, lost: Arc::clone(&lost), said: 0 };
        let thread = std::thread::Builder::new().name("datasets".into()).spawn(|| work.run())?;
        Ok(Self { sender: DatasetSender { queue, lost }, thread: Some(thread) })
    }

    /// Takes in the sets of the rules that run from now on.
    pub fn begin(&self, sets: impl Iterator<Item = KeptSet>) {
        // It ends with this alone.
        let _ = self.sender.queue.send(Message::Sets(sets.collect()));
    }

    /// A sender for one worker.
    pub fn sender(&self) -> DatasetSender {
        self.sender.clone()
    }
}

impl Drop for DatasetKeeper {
    fn drop(&mut self) {
        // Behind the changes that wait.
        let _ = self.sender.queue.send(Message::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that keeps datasets panicked");
        }
    }
}

struct Work {
    incoming: Receiver<Message>,
    files: DatasetFiles,
    lost: Arc<AtomicU64>,
    /// Of the changes that were lost, those that were told of.
    said: u64,
}

impl Work {
    fn run(mut self) {
        let mut next = clock::now() + WRITE_EVERY;
        loop {
            match self.incoming.recv_timeout(next.saturating_duration_since(clock::now())) {
                Ok(Message::Sets(sets)) => self.files.begin(sets),
                Ok(Message::Changes(changes)) => {
                    changes.into_iter().for_each(|it| self.files.change(it));
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return self.write(),
                Err(RecvTimeoutError::Timeout) => {
                    self.write();
                    next = clock::now() + WRITE_EVERY;
                }
            }
        }
    }

    fn write(&mut self) {
        if let Err((path, error)) = self.files.write() {
            tracing::warn!(%error, path = %path.display(), "a dataset cannot be written");
        }
        let lost = self.lost.load(Relaxed);
        if lost > self.said {
            tracing::warn!(values = lost - self.said, "datasets changed too fast for their files");
            self.said = lost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(file: &str, lines: &[&str], is_loaded: bool) -> KeptSet {
        let lines = lines.iter().map(|it| (*it).to_owned()).collect();
        KeptSet { file: file.into(), lines, is_loaded }
    }

    fn change(file: &str, line: &str, is_set: bool) -> Change {
        Change { file: file.into(), line: line.into(), is_set }
    }

    #[test]
    fn a_file_has_what_it_had_and_what_rules_did() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join("sets").join(name);
        let mut files = DatasetFiles::new(folder.path().join("sets"));
        files.begin([set("a", &["one", "two"], true), set("b", &["x"], false)]);
        files.write().unwrap();
        assert!(!path("a").exists(), "nothing changed");
        assert_eq!(fs::read_to_string(path("b")).unwrap(), "x\n");
        files.change(change("a", "three", true));
        files.change(change("a", "one", false));
        files.change(change("nobody", "x", true));
        // Rules that are loaded again begin nothing anew.
        files.begin([set("a", &[], true)]);
        files.write().unwrap();
        assert_eq!(fs::read_to_string(path("a")).unwrap(), "three\ntwo\n");
        assert!(!path("a.new").exists() && !path("nobody").exists());
    }

    #[test]
    fn what_cannot_be_written_is_told_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = DatasetFiles::new(folder.path().to_owned());
        files.begin([set("a", &["x"], false)]);
        fs::create_dir(folder.path().join("a")).unwrap();
        let (path, _) = files.write().unwrap_err();
        assert_eq!(path, folder.path().join("a"));
        fs::remove_dir(&path).unwrap();
        files.write().unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "x\n");
    }

    #[test]
    fn the_keeper_writes_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = DatasetKeeper::start(folder.path().to_owned()).unwrap();
        keeper.begin([set("a", &[], true)].into_iter());
        keeper.sender().send(vec![change("a", "x", true)]);
        drop(keeper);
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "x\n");
    }
}
