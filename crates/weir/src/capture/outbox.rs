//! Between the thread that reads the ring and the one that writes the files: chunks go out full and
//! come back empty. A disk that pauses holds up the writer alone, until every chunk is on its way;
//! then the ring fills.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use weir_port::capture::InterfaceStatistics;
use weir_store::clock;
use weir_wire::frame::{Meta, Time};

use super::chunk::{CHUNK_BYTES, Chunk};
use super::files::{FileOptions, Files, Target, Totals};
use super::run::Ending;

/// Chunks in memory, at most: 64 MiB and a half, touched only when the disk falls behind.
const CHUNKS_MAX: usize = 64;
/// How long a disk may take for what is on its way, once the capture has been told to end.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The reader's side.
pub(super) struct Outbox {
    filling: Chunk,
    /// The one that came back last goes out first: it is still in the cache.
    spare: Vec<Chunk>,
    made: usize,
    orders: Option<Sender<Order>>,
    returned: Receiver<Chunk>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    header_len: u64,
    /// Where `filling` begins in its file, before compression.
    offset: u64,
    /// When the file at hand began.
    begun: Instant,
    /// The file at hand has packets.
    has_packets: bool,
    options: FileOptions,
}

/// What the writer is told.
struct Order {
    chunk: Chunk,
    then: Then,
    now: Time,
    statistics: InterfaceStatistics,
}

/// What comes after a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    /// End this file and begin the next.
    Rotate,
    /// End the last file.
    End,
}

/// What the writer tells.
struct Shared {
    has_failed: AtomicBool,
    state: Mutex<WriterState>,
}

/// Where the writer stands.
#[derive(Clone)]
pub(super) struct WriterState {
    pub(super) totals: Totals,
    /// The file at hand.
    pub(super) name: String,
    /// Files that are there.
    pub(super) paths: Vec<PathBuf>,
    /// Why it takes no more.
    pub(super) failure: Option<Ending>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    /// Begins the first file, and the thread that writes.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn open(options: FileOptions) -> Result<Self> {
        let files = Files::begin(options.clone())?;
        let header_len = files.header_len();
        let (orders, received) = channel();
        let (give_back, returned) = channel();
        let state = Mutex::new(state_of(&files));
        let shared = Arc::new(Shared { has_failed: AtomicBool::new(false), state });
        let mut writer = Writer { files, shared: Arc::clone(&shared), failed: false };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
            for order in received {
                let chunk = writer.carry_out(order);
                let _ = give_back.send(chunk);
            }
        })?;
        Ok(Self {
            filling: Chunk::new(),
            spare: Vec::new(),
            made: 1,
            orders: Some(orders),
            returned,
            shared,
            writer: Some(thread),
            header_len,
            offset: header_len,
            begun: clock::now(),
            has_packets: false,
            options,
        })
    }

    /// Adds one packet. False: it is too long for any file.
    pub(super) fn push(&mut self, meta: &Meta, packet: &[u8]) -> bool {
        self.filling.push(meta, packet)
    }

    /// Whether the chunk being filled must leave before another packet.
    pub(super) fn is_full(&self) -> bool {
        self.filling.len() >= CHUNK_BYTES
    }

    /// Whether it ought to leave, after a batch.
    pub(super) fn is_due(&self) -> bool {
        self.is_full() || self.is_size_reached() || self.is_too_old()
    }

    /// Whether something waits in memory.
    pub(super) fn is_waiting(&self) -> bool {
        !self.filling.is_empty()
    }

    /// Lets the chunk leave, and ends its file where that has its size or time. Blocks while every
    /// chunk is on its way; false: `stop` came and the disk takes nothing.
    pub(super) fn send(
        &mut self,
        now: Time,
        statistics: &InterfaceStatistics,
        stop: &AtomicBool,
    ) -> bool {
        let rotate = self.is_too_old() || self.is_size_reached() && !self.options.compress;
        if !rotate && self.is_full() && self.is_file() {
            self.filling.align_end(self.offset);
        }
        let Some(empty) = self.empty_chunk(stop) else { return false };
        self.has_packets |= self.filling.packets > 0;
        self.offset += self.filling.len() as u64;
        let chunk = std::mem::replace(&mut self.filling, empty);
        let then = if rotate { Then::Rotate } else { Then::GoOn };
        if rotate {
            (self.offset, self.begun, self.has_packets) = (self.header_len, clock::now(), false);
        }
        self.order(Order { chunk, then, now, statistics: *statistics });
        true
    }

    /// Why the writer takes no more, if so.
    pub(super) fn failure(&self) -> Option<Ending> {
        let failed = self.shared.has_failed.load(Ordering::Acquire);
        if failed { self.shared.state().failure.clone() } else { None }
    }

    /// Where the writer stands.
    pub(super) fn state(&self) -> WriterState {
        self.shared.state().clone()
    }

    /// Ends the last file and waits for it. Packets that a hanging disk took no account of are
    /// the caller's to count.
    pub(super) fn end(&mut self, now: Time, statistics: &InterfaceStatistics) -> WriterState {
        let chunk = std::mem::replace(&mut self.filling, Chunk::new());
        self.order(Order { chunk, then: Then::End, now, statistics: *statistics });
        self.orders = None;
        let deadline = clock::now() + LAST_PATIENCE;
        let hangs = loop {
            let left = deadline.saturating_duration_since(clock::now());
            match self.returned.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => break true,
            }
        };
        if let Some(writer) = self.writer.take_if(|_| !hangs) {
            let _ = writer.join();
        }
        let mut state = self.state();
        if hangs && state.failure.is_none() {
            let seconds = LAST_PATIENCE.as_secs();
            let what = format!("{}: took nothing for {seconds} s; given up", state.name);
            state.failure = Some(Ending::OutputFailed(what));
        }
        state
    }

    /// Only a file has a place that is worth aligning.
    fn is_file(&self) -> bool {
        !self.options.compress && matches!(self.options.target, Target::Files(_))
    }

    /// Only the writer knows what a compressed file has; a chunk is never larger than it may be.
    fn is_size_reached(&self) -> bool {
        let before = if self.options.compress { 0 } else { self.offset };
        let limit = self.options.limits.bytes;
        let has_packets = self.has_packets || self.filling.packets > 0;
        has_packets && limit.is_some_and(|limit| before + self.filling.len() as u64 >= limit)
    }

    fn is_too_old(&self) -> bool {
        let has_packets = self.has_packets || self.filling.packets > 0;
        has_packets && self.options.limits.age.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    fn empty_chunk(&mut self, stop: &AtomicBool) -> Option<Chunk> {
        self.spare.extend(self.returned.try_iter());
        if let Some(chunk) = self.spare.pop() {
            return Some(chunk);
        }
        if self.made < CHUNKS_MAX {
            self.made += 1;
            return Some(Chunk::new());
        }
        let mut told = None;
        loop {
            if let Ok(chunk) = self.returned.recv_timeout(LOOK) {
                return Some(chunk);
            }
            if stop.load(Ordering::Relaxed)
                && told.get_or_insert_with(clock::now).elapsed() > LAST_PATIENCE
            {
                return None;
            }
        }
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }
}

/// The writer's side.
struct Writer {
    files: Files,
    shared: Arc<Shared>,
    failed: bool,
}

impl Writer {
    /// Does what it is told, and gives the chunk back empty.
    fn carry_out(&mut self, order: Order) -> Chunk {
        let Order { mut chunk, then, now, statistics } = order;
        if !self.failed
            && let Err(failure) = self.try_to(&chunk, then, now, &statistics)
        {
            self.failed = true;
            self.shared.state().failure = Some(failure);
            self.shared.has_failed.store(true, Ordering::Release);
        }
        chunk.clear();
        let mut state = self.shared.state();
        let failure = state.failure.take();
        *state = WriterState { failure, ..state_of(&self.files) };
        chunk
    }

    fn try_to(
        &mut self,
        chunk: &Chunk,
        then: Then,
        now: Time,
        statistics: &InterfaceStatistics,
    ) -> Result<(), Ending> {
        let mut is_full = false;
        if !chunk.is_empty() {
            let written = self.files.write(chunk);
            is_full = written.map_err(|error| ending_of(&error, &self.files))?;
        }
        match then {
            Then::End => self.files.end(now, statistics).map_err(|it| ending_of(&it, &self.files)),
            Then::Rotate => self.rotate(now, statistics),
            Then::GoOn if is_full => self.rotate(now, statistics),
            Then::GoOn => Ok(()),
        }
    }

    fn rotate(&mut self, now: Time, statistics: &InterfaceStatistics) -> Result<(), Ending> {
        let rotated = self.files.rotate(now, statistics);
        rotated.map_err(|error| Ending::OutputFailed(format!("{error:#}")))
    }
}

fn state_of(files: &Files) -> WriterState {
    WriterState { totals: files.totals(), name: files.name(), paths: files.paths(), failure: None }
}

fn ending_of(error: &io::Error, files: &Files) -> Ending {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ending::OutputClosed,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let remedy = "make room, or keep only the last files (--rotate-size with --files)";
            Ending::OutputFailed(format!("{}: {error}; {remedy}", files.name()))
        }
        _ => Ending::OutputFailed(format!("{}: {error}", files.name())),
    }
}
