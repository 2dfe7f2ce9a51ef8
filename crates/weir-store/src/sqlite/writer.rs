//! The thread that writes, and the bounded queues that lead to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::clock::Look;
use super::files::Files;
use super::labels::Label;
use super::notes::AlertNote;
use super::numbers::Numbers;
use super::rollup::advance::Rollup;
use super::rows::{AlertRow, Collected};
use super::samples::{CounterKey, Event, Sample, grown};
use super::schema::{self, StoreError};
use super::suppressions::SuppressionChange;
use super::{columns, insert, retention};
use crate::clock;
use crate::names::Names;
use crate::sink::Item;

/// Records that wait for the thread: what a full meter hands over at once, twice.
const QUEUE_RECORDS: usize = 8192;

/// Alerts that wait: those of a few ticks of a worker.
const QUEUE_ALERTS: usize = 8192;

/// Records of other exporters that wait: the thread looks every [`TICK`], a record is a few hundred
/// bytes.
const QUEUE_COLLECTED: usize = 16_384;

/// Samples and events that wait: a minute of samples.
const QUEUE_NOTES: usize = 64;

/// Records of a transaction, at most.
const BATCH_RECORDS: usize = 4096;

/// How long a record may wait for others to fill its transaction.
const COMMIT_AFTER: Duration = Duration::from_millis(500);

/// Between two looks at the queues.
const TICK: Duration = Duration::from_millis(50);

/// Until a store that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Between two times that sums follow the records.
const ROLL_UP_AFTER: Duration = Duration::from_secs(2);

/// Records on the disk that wait for the sums before those two seconds are over.
const ROLL_UP_RECORDS: u64 = 32_768;

/// Between two looks at what is too old or too much.
const RETAIN_AFTER: Duration = Duration::from_secs(30);

/// How long a stop may take to write what is left.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// How long and how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of the file, at most: SQLite refuses more. From nine tenths of it on, the oldest
    /// records go.
    pub size_bytes_max: u64,
    /// Seconds that records of flows and conversations, and counters of ten seconds, are kept.
    pub records_s: u64,
    /// Seconds that roll-ups of a minute are kept.
    pub minutes_s: u64,
    /// Seconds that roll-ups of an hour, events and peers' states are kept.
    pub hours_s: u64,
}

/// A store and how to keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The file.
    pub path: PathBuf,
    /// Group number that may read it; absent: its owner alone.
    pub group: Option<u32>,
    /// Its bounds.
    pub retention: Retention,
}

/// How the store does. records = written + overflowed + lost + those under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// The file.
    pub path: PathBuf,
    /// Records handed over.
    pub records: u64,
    /// Of those, lost because the queue was full.
    pub overflowed: u64,
    /// Of those, on the disk.
    pub written: u64,
    /// Of those, lost because the store could not be used until the end.
    pub lost: u64,
    /// Samples and events lost because their queue was full.
    pub notes_lost: u64,
    /// Alerts lost likewise.
    pub alerts_lost: u64,
    /// Bytes in use in the file.
    pub bytes: u64,
    /// Bytes that it may have.
    pub bytes_max: u64,
    /// Why nothing is stored now, if so.
    pub failure: Option<String>,
    /// A damaged file that was moved aside since the start.
    pub moved_aside: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Shared {
    records: AtomicU64,
    overflowed: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
    notes_lost: AtomicU64,
    alerts_lost: AtomicU64,
    bytes: AtomicU64,
    is_stopping: AtomicBool,
    numbers: Numbers,
    trouble: Mutex<Trouble>,
}

#[derive(Clone, Debug, Default)]
struct Trouble {
    failure: Option<String>,
    moved_aside: Option<PathBuf>,
}

/// Hands records of one pair of ports to the store.
#[derive(Clone, Debug)]
pub struct StoreSender {
    pair: u16,
    queue: SyncSender<(u16, Item)>,
    shared: Arc<Shared>,
}

impl StoreSender {
    /// Copies a record. Never waits: a full queue is counted.
    pub fn send(&self, item: Item) {
        self.shared.records.fetch_add(1, Relaxed);
        if self.queue.try_send((self.pair, item)).is_err() {
            self.shared.overflowed.fetch_add(1, Relaxed);
        }
    }
}

/// Hands records of other exporters to the store.
#[derive(Clone, Debug)]
pub struct CollectedStore {
    queue: SyncSender<Collected>,
    shared: Arc<Shared>,
}

impl CollectedStore {
    /// Stores a row. Never waits: a full queue is counted.
    pub fn send(&self, row: Collected) {
        self.shared.records.fetch_add(1, Relaxed);
        if self.queue.try_send(row).is_err() {
            self.shared.overflowed.fetch_add(1, Relaxed);
        }
    }
}

/// Hands alerts to the store.
#[derive(Clone, Debug)]
pub struct AlertStore {
    queue: SyncSender<AlertRow>,
    shared: Arc<Shared>,
}

impl AlertStore {
    /// A number for an alert, which no other has; none while no file is open.
    pub fn draw(&self) -> Option<u64> {
        self.shared.numbers.draw()
    }

    /// Stores an alert; whether it will be. Never waits: a full queue is counted.
    pub fn send(&self, alert: AlertRow) -> bool {
        let is_taken = self.queue.try_send(alert).is_ok();
        if !is_taken {
            self.shared.alerts_lost.fetch_add(1, Relaxed);
        }
        is_taken
    }
}

enum Note {
    Sample(Box<Sample>),
    Event(Event),
    Labels(Vec<Label>),
    OfAlert(AlertNote),
    Suppression(SuppressionChange),
}

/// A gateway's store.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    records: SyncSender<(u16, Item)>,
    notes: SyncSender<Note>,
    alerts: SyncSender<AlertRow>,
    collected: SyncSender<Collected>,
    shared: Arc<Shared>,
    names: Names,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Starts the thread, which opens the file; a file that cannot be used is no error here, but
    /// [`StoreCounters::failure`]. Records come from `pairs`, by their place in that list.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn start(options: StoreOptions, pairs: Vec<String>) -> std::io::Result<Self> {
        let (shared, names) = (Arc::new(Shared::default()), Names::default());
        let (records, incoming) = sync_channel(QUEUE_RECORDS);
        let (notes, incoming_notes) = sync_channel(QUEUE_NOTES);
        let (alerts, incoming_alerts) = sync_channel(QUEUE_ALERTS);
        let (collected, incoming_collected) = sync_channel(QUEUE_COLLECTED);
        let work = Work {
            options: options.clone(),
            shared: Arc::clone(&shared),
            incoming,
            incoming_notes,
            incoming_alerts,
            incoming_collected,
            connection: None,
            files: Files::default(),
            retry_at: None,
            retained: clock::now(),
            looked: None,
            rollup: Rollup::new(options.retention.size_bytes_max),
            rolled_up: clock::now(),
            not_rolled_up: 0,
            before: BTreeMap::new(),
            pending: Pending { pairs, names: names.clone(), ..Pending::default() },
            oldest: None,
            refusals: 0,
        };
        let thread = std::thread::Builder::new().name("store".into()).spawn(move || work.run())?;
        let thread = Some(thread);
        Ok(Self { options, records, notes, alerts, collected, shared, names, thread })
    }

    /// Whom records are about: what is told there is written from then on.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A sender for the records of the pair at `index` of the list given at the start.
    pub fn sender(&self, index: usize) -> StoreSender {
        let pair = u16::try_from(index).unwrap_or(u16::MAX);
        StoreSender { pair, queue: self.records.clone(), shared: Arc::clone(&self.shared) }
    }

    /// A sender for alerts.
    pub fn alerts(&self) -> AlertStore {
        AlertStore { queue: self.alerts.clone(), shared: Arc::clone(&self.shared) }
    }

    /// A sender for records of other exporters.
    pub fn collected(&self) -> CollectedStore {
        CollectedStore { queue: self.collected.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Stores what counters grew by. Never waits.
    pub fn sample(&self, sample: Sample) {
        self.note(Note::Sample(Box::new(sample)));
    }

    /// Stores a line of the log book. Never waits.
    pub fn event(&self, event: Event) {
        self.note(Note::Event(event));
    }

    /// Stores what an operator says of an alert. Never waits.
    pub fn alert_note(&self, note: AlertNote) {
        self.note(Note::OfAlert(note));
    }

    /// Stores that alerts are suppressed, or are not any more. Never waits.
    pub fn suppress(&self, change: SuppressionChange) {
        self.note(Note::Suppression(change));
    }

    /// Stores what addresses are called, in the place of what was stored before. Never waits.
    pub fn labels(&self, labels: Vec<Label>) {
        self.note(Note::Labels(labels));
    }

    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.shared.notes_lost.fetch_add(1, Relaxed);
        }
    }

    /// How it does.
    pub fn counters(&self) -> StoreCounters {
        let Self { shared, options, .. } = self;
        let trouble = shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StoreCounters {
            path: options.path.clone(),
            records: shared.records.load(Relaxed),
            overflowed: shared.overflowed.load(Relaxed),
            written: shared.written.load(Relaxed),
            lost: shared.lost.load(Relaxed),
            notes_lost: shared.notes_lost.load(Relaxed),
            alerts_lost: shared.alerts_lost.load(Relaxed),
            bytes: shared.bytes.load(Relaxed),
            bytes_max: options.retention.size_bytes_max,
            failure: trouble.failure,
            moved_aside: trouble.moved_aside,
        }
    }

    /// Writes what is left and ends, within a few seconds.
    pub fn stop(mut self) -> StoreCounters {
        self.end();
        self.counters()
    }

    fn end(&mut self) {
        self.shared.is_stopping.store(true, Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's thread panicked");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the next transaction writes.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) pairs: Vec<String>,
    pub(super) names: Names,
    pub(super) records: Vec<(u16, Item)>,
    pub(super) samples: Vec<Sample>,
    pub(super) events: Vec<Event>,
    pub(super) alerts: Vec<AlertRow>,
    pub(super) collected: Vec<Collected>,
    pub(super) labels: Option<Vec<Label>>,
    pub(super) notes: Vec<AlertNote>,
    pub(super) suppressions: Vec<SuppressionChange>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.samples.is_empty()
            && self.events.is_empty()
            && self.alerts.is_empty()
            && self.collected.is_empty()
            && self.labels.is_none()
            && self.notes.is_empty()
            && self.suppressions.is_empty()
    }

    /// What comes by the queue of notes.
    fn few(&self) -> usize {
        self.samples.len() + self.events.len() + self.notes.len() + self.suppressions.len()
    }

    fn clear(&mut self) {
        self.records.clear();
        self.samples.clear();
        self.events.clear();
        self.alerts.clear();
        self.collected.clear();
        self.labels = None;
        self.notes.clear();
        self.suppressions.clear();
    }
}

struct Work {
    options: StoreOptions,
    shared: Arc<Shared>,
    incoming: Receiver<(u16, Item)>,
    incoming_notes: Receiver<Note>,
    incoming_alerts: Receiver<AlertRow>,
    incoming_collected: Receiver<Collected>,
    connection: Option<Connection>,
    /// Which files `connection` has open.
    files: Files,
    /// The store failed, and is left alone until then.
    retry_at: Option<Instant>,
    retained: Instant,
    looked: Option<Look>,
    rollup: Rollup,
    rolled_up: Instant,
    /// Records that were written since, at least.
    not_rolled_up: u64,
    /// Counters of the sample before.
    before: BTreeMap<CounterKey, u64>,
    pending: Pending,
    /// When the oldest of `pending` came.
    oldest: Option<Instant>,
    /// How often the file at its bound refused `pending`.
    refusals: u64,
}

impl Work {
    fn run(mut self) {
        let mut deadline = None;
        loop {
            let is_stopping = self.shared.is_stopping.load(Relaxed);
            let is_drained = self.take();
            if self.is_due(is_stopping) {
                self.commit();
            }
            self.roll_up(is_stopping && is_drained);
            if self.connection.is_some() && self.retained.elapsed() >= RETAIN_AFTER {
                self.retain();
            }
            if is_stopping {
                let deadline = *deadline.get_or_insert_with(|| clock::now() + STOP_TIMEOUT);
                let is_done = is_drained && self.pending.is_empty() && self.not_rolled_up == 0;
                if is_done || clock::now() >= deadline {
                    break;
                }
                if self.retry_at.is_some() {
                    std::thread::sleep(TICK);
                }
            }
        }
        let left = self.pending.records.len()
            + self.pending.collected.len()
            + self.incoming.try_iter().count()
            + self.incoming_collected.try_iter().count();
        self.shared.lost.fetch_add(left as u64, Relaxed);
        self.shared.numbers.end(self.connection.as_ref());
        if let Some(connection) = self.connection.take() {
            // All of it in one file, for whoever copies it. What fails stays in the log.
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
    }

    /// Takes what has come, as far as a transaction goes. Whether the queue was empty.
    fn take(&mut self) -> bool {
        for note in self.incoming_notes.try_iter().take(QUEUE_NOTES) {
            if self.pending.few() >= 2 * QUEUE_NOTES {
                self.shared.notes_lost.fetch_add(1, Relaxed);
                continue;
            }
            match note {
                Note::Sample(sample) => {
                    let grown = grown(&mut self.before, *sample);
                    self.pending.samples.push(grown);
                }
                Note::Event(event) => self.pending.events.push(event),
                Note::OfAlert(note) => self.pending.notes.push(note),
                Note::Suppression(change) => self.pending.suppressions.push(change),
                Note::Labels(labels) => self.pending.labels = Some(labels),
            }
        }
        let room = BATCH_RECORDS.saturating_sub(self.pending.alerts.len());
        self.pending.alerts.extend(self.incoming_alerts.try_iter().take(room));
        let room = BATCH_RECORDS.saturating_sub(self.pending.collected.len());
        self.pending.collected.extend(self.incoming_collected.try_iter().take(room));
        let mut is_drained = false;
        if self.pending.records.len() < BATCH_RECORDS {
            match self.incoming.recv_timeout(TICK) {
                Ok(first) => self.pending.records.push(first),
                Err(_) => is_drained = true,
            }
            while self.pending.records.len() < BATCH_RECORDS {
                match self.incoming.try_recv() {
                    Ok(item) => self.pending.records.push(item),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
        } else {
            // The store is not to be used, and the queue counts what it cannot take.
            std::thread::sleep(TICK);
        }
        if self.oldest.is_none() && !self.pending.is_empty() {
            self.oldest = Some(clock::now());
        }
        is_drained
    }

    fn is_due(&self, is_stopping: bool) -> bool {
        if self.retry_at.is_some_and(|at| clock::now() < at) && !is_stopping {
            return false;
        }
        let is_old = self.oldest.is_some_and(|oldest| oldest.elapsed() >= COMMIT_AFTER);
        let is_full = self.pending.records.len() >= BATCH_RECORDS
            || self.pending.collected.len() >= BATCH_RECORDS;
        is_old || is_full || self.connection.is_none() || is_stopping && !self.pending.is_empty()
    }

    /// Writes what is pending. What fails stays, and is tried again.
    fn commit(&mut self) {
        if self.connection.is_some() && self.files.are_others(&self.options.path) {
            self.let_go();
        }
        if self.connection.is_none() {
            match schema::open(&self.options) {
                Ok((connection, files)) => {
                    (self.connection, self.files) = (Some(connection), files);
                    // What the process before wrote and did not add up.
                    self.not_rolled_up = ROLL_UP_RECORDS;
                    self.retain();
                }
                Err(error) => return self.fail(error),
            }
        }
        let Some(connection) = &mut self.connection else { return };
        let numbers = &self.shared.numbers;
        let written = numbers.reserve(connection).and_then(|()| {
            for alert in self.pending.alerts.iter_mut().filter(|it| it.number == 0) {
                alert.number = numbers.draw().unwrap_or_default();
            }
            if self.pending.is_empty() { Ok(()) } else { insert::write(connection, &self.pending) }
        });
        match written {
            Ok(()) => {
                let written = self.pending.records.len() + self.pending.collected.len();
                self.shared.written.fetch_add(written as u64, Relaxed);
                self.not_rolled_up += written as u64;
                self.pending.clear();
                self.oldest = None;
                self.refusals = 0;
                self.succeed();
            }
            Err(error) => {
                // A transaction may want more than the tenth that is kept free.
                let retention = &self.options.retention;
                let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                let mut has_room = false;
                if is_full && retention::met_own_bound(connection, retention) {
                    self.refusals += 1;
                    let made = retention::make_room(connection, retention, 1 + self.refusals);
                    has_room = made.is_ok() && self.refusals < 10;
                }
                self.fail(StoreError::Sqlite { path: self.options.path.clone(), error });
                if has_room {
                    self.retry_at = None;
                }
            }
        }
    }

    /// Leaves a file that was moved away, or replaced, for what stands in its place.
    fn let_go(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let path = self.options.path.display();
        tracing::warn!(%path, "the store was moved away or replaced: going on in its place");
        self.files.close(connection, &self.options.path);
        self.files = Files::default();
    }

    /// Adds up what was written, every two seconds, or when it is much.
    fn roll_up(&mut self, is_last: bool) {
        let is_due = self.rolled_up.elapsed() >= ROLL_UP_AFTER
            || self.not_rolled_up >= ROLL_UP_RECORDS
            || is_last && self.not_rolled_up > 0;
        let is_left_alone = self.retry_at.is_some_and(|at| clock::now() < at);
        let Some(connection) = self.connection.as_mut().filter(|_| is_due && !is_left_alone) else {
            return;
        };
        self.rolled_up = clock::now();
        let advanced = self.rollup.advance(connection).and_then(|is_more| {
            // The blocks of a store of an earlier version need not be made before a stop.
            Ok(columns::advance(connection)? && !is_last || is_more)
        });
        match advanced {
            Ok(true) => self.not_rolled_up = self.not_rolled_up.max(ROLL_UP_RECORDS),
            Ok(false) => self.not_rolled_up = 0,
            Err(error) => {
                let retention = &self.options.retention;
                if error.sqlite_error_code() == Some(ErrorCode::DiskFull)
                    && retention::met_own_bound(connection, retention)
                {
                    // What does not become free is said by the failure that follows.
                    let _ = retention::make_room(connection, retention, 2);
                }
                self.fail(StoreError::Sqlite { path: self.options.path.clone(), error });
            }
        }
    }

    fn retain(&mut self) {
        self.retained = clock::now();
        let Some(connection) = &mut self.connection else { return };
        let now = Look { wall_s: clock::seconds() as i64, at: self.retained };
        match retention::apply(connection, &self.options.retention, &mut self.looked, now) {
            Ok(bytes) => self.shared.bytes.store(bytes, Relaxed),
            Err(error) => {
                self.fail(StoreError::Sqlite { path: self.options.path.clone(), error });
            }
        }
    }

    fn succeed(&mut self) {
        self.retry_at = None;
        let mut trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.failure.take().is_some() {
            tracing::info!(path = %self.options.path.display(), "the store is written again");
        }
    }

    fn fail(&mut self, error: StoreError) {
        self.retry_at = Some(clock::now() + RETRY_AFTER);
        let mut trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let text = error.to_string();
        if trouble.failure.as_ref() != Some(&text) {
            tracing::error!(%error, "nothing is stored for now; the gateway goes on");
        }
        trouble.failure = Some(text);
        if error.is_damage() {
            self.connection = None;
            self.files = Files::default();
            match schema::move_aside(&self.options.path) {
                Ok(aside) => {
                    let path = aside.display();
                    tracing::error!(%path, "the store was damaged: moved there, a new one begins");
                    trouble.moved_aside = Some(aside);
                    self.retry_at = None;
                }
                Err(error) => tracing::error!(%error, "a damaged store cannot be moved aside"),
            }
        }
    }
}
