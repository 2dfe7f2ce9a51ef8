//! A ring's packets on disk: filled segments go by a queue to a thread that writes them, shared
//! with the ring and not copied. A disk that is slow, full or gone costs packets on disk, counted,
//! and never holds up the worker.
//!
//! Once a second a segment that fills slowly is written as far as it is, so that a killed gateway
//! leaves all but its last second.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_wire::frame::Time;

use super::file::{EvidenceFileError, SlotFile};
use super::segment::Segment;
use super::{EvidenceRing, Extent, Label, SLOT_BYTES, SLOTS_MIN, SegmentId};
use crate::clock;

/// Segments of a ring that cannot wait for the disk: the one being filled, the one in the writer's
/// hand, and one between. All others may, so that the ring comes round to none that is held and a
/// disk may pause for as long as the ring lasts.
const SEGMENTS_NOT_WAITING: usize = 3;
/// A slow segment is written so often, in calls of [`EvidenceDisk::tick`].
const TICKS_TO_WRITE: u32 = 10;
/// Between two tries to use a disk that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long to wait for a writer that is just ending, as after a reload.
const HANDOVER: Duration = Duration::from_secs(2);
/// How long a disk may take for what is on its way, at the end.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// Between two times at which the disk is asked for what it was given.
const SYNC: Duration = Duration::from_secs(1);

/// Where packets are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder; made where it is not there.
    pub folder: PathBuf,
    /// What a pair's file may take, [`SLOTS_MIN`] segments at least.
    pub bytes: u64,
}

/// What a disk holds and held. Recorded since the disk is there = written + lost + what waits: the
/// packets of a few segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// The file.
    pub path: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// What it can hold; 0 until it could be opened.
    pub capacity_bytes: u64,
    /// Packets in segments written whole since the start.
    pub written: u64,
    /// Packets that the disk did not take: it was too slow, full or failed.
    pub lost: u64,
    /// When the oldest packet in it was seen.
    pub oldest: Option<Time>,
    /// Why nothing is kept now, if so.
    pub failure: Option<String>,
}

/// The worker's end.
#[derive(Debug)]
pub struct EvidenceDisk {
    options: DiskOptions,
    queue: SyncSender<Piece>,
    ended: Receiver<()>,
    shared: Arc<Shared>,
    path: PathBuf,
    /// The ring's segment that is not handed over whole, and how far it is.
    next: u64,
    begun: usize,
    ticks: u32,
}

#[derive(Debug)]
enum Piece {
    /// A segment that will not grow.
    Whole(Arc<Segment>),
    /// A segment's records from `at` on; it grows.
    Part { segment: SegmentId, at: usize, records: Vec<u8>, extent: Extent },
}

#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    holds: (u64, u64, Option<Time>),
    capacity_bytes: u64,
    failure: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EvidenceDisk {
    /// Starts to keep what `ring` records from its current segment on. A disk that cannot be used
    /// is tried again every second.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(options: DiskOptions, label: Label, ring: &EvidenceRing) -> std::io::Result<Self> {
        let (queue, pieces) = sync_channel(ring.segments.len() - SEGMENTS_NOT_WAITING);
        let (end, ended) = channel();
        let shared = Arc::new(Shared::default());
        let path = options.folder.join(label.file_name());
        let mut writer = Writer {
            folder: options.folder.clone(),
            label,
            slots: slots_of(options.bytes),
            file: None,
            next_try: clock::now(),
            growing: Segment::new(SegmentId::default()),
            synced: clock::now(),
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new().name("evidence".into()).spawn(move || {
            writer.run(&pieces);
            // Nobody may wait for it.
            let _ = end.send(());
        })?;
        let next = ring.current.number;
        Ok(Self { options, queue, ended, shared, path, next, begun: 0, ticks: 0 })
    }

    /// How it was made.
    pub fn options(&self) -> &DiskOptions {
        &self.options
    }

    /// Hands over what `ring` filled. Call it when every packet has its verdict.
    #[inline]
    pub fn follow(&mut self, ring: &EvidenceRing) {
        while self.next < ring.current.number {
            if let Some(segment) = ring.segment(self.next) {
                self.hand_over(segment);
            }
            (self.next, self.begun) = (self.next + 1, 0);
        }
    }

    /// Hands over what a segment that fills slowly has. Call it ten times a second.
    pub fn tick(&mut self, ring: &EvidenceRing) {
        self.ticks += 1;
        if self.ticks < TICKS_TO_WRITE {
            return;
        }
        self.ticks = 0;
        self.follow(ring);
        let segment = ring.current();
        let Some(records) = segment.records().get(self.begun..).filter(|it| !it.is_empty()) else {
            return;
        };
        let (at, extent) = (self.begun, segment.extent);
        let piece = Piece::Part { segment: segment.id, at, records: records.to_vec(), extent };
        if self.queue.try_send(piece).is_ok() {
            self.begun = extent.used;
        }
    }

    /// What it holds and held.
    pub fn counters(&self) -> DiskCounters {
        let State { holds: (packets, bytes, oldest), capacity_bytes, failure } =
            self.shared.state().clone();
        DiskCounters {
            path: self.path.clone(),
            packets,
            bytes,
            capacity_bytes,
            written: self.shared.written.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            oldest,
            failure,
        }
    }

    /// Hands over the rest of `ring`, for a disk that is to keep nothing more of it.
    pub fn finish(mut self, ring: &EvidenceRing) -> Ending {
        self.follow(ring);
        if ring.current().extent.packets > 0 {
            self.hand_over(ring.current());
        }
        Ending { ended: self.ended }
    }

    fn hand_over(&self, segment: &Arc<Segment>) {
        if self.queue.try_send(Piece::Whole(Arc::clone(segment))).is_err() {
            self.shared.lost.fetch_add(segment.extent.packets, Ordering::Relaxed);
        }
    }
}

/// A disk that is given nothing more.
#[derive(Debug)]
pub struct Ending {
    ended: Receiver<()>,
}

impl Ending {
    /// Waits until the disk has what is on its way. False: it took ten seconds and has not.
    pub fn wait(self) -> bool {
        self.ended.recv_timeout(LAST_PATIENCE) != Err(RecvTimeoutError::Timeout)
    }
}

/// Slots of a file that takes at most `bytes`.
fn slots_of(bytes: u64) -> usize {
    ((bytes / SLOT_BYTES as u64) as usize).saturating_sub(1).max(SLOTS_MIN)
}

/// The thread that waits for the disk.
struct Writer {
    folder: PathBuf,
    label: Label,
    slots: usize,
    /// Absent while it cannot be used.
    file: Option<SlotFile>,
    next_try: Instant,
    /// What was written of a segment that grows.
    growing: Segment,
    synced: Instant,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(&mut self, pieces: &Receiver<Piece>) {
        self.try_to_open();
        for piece in pieces {
            match piece {
                Piece::Whole(segment) => {
                    let is_kept = self.keep(&segment, 0);
                    let counter = if is_kept { &self.shared.written } else { &self.shared.lost };
                    counter.fetch_add(segment.extent.packets, Ordering::Relaxed);
                }
                Piece::Part { segment, at, records, extent } => {
                    self.keep_part(segment, at, &records, extent);
                }
            }
            if let Some(file) = &self.file {
                let (holds, capacity_bytes) = (file.holds(), file.capacity_bytes());
                let mut state = self.shared.state();
                (state.holds, state.capacity_bytes) = (holds, capacity_bytes);
            }
        }
        if let Some(file) = &self.file {
            let _ = file.sync();
        }
    }

    /// What it is given in parts it puts together.
    fn keep_part(&mut self, segment: SegmentId, at: usize, records: &[u8], extent: Extent) {
        if self.growing.id != segment {
            self.growing.begin(segment);
        }
        // A part before it is missing: the whole segment will come.
        if self.growing.extent.used == at {
            self.growing.extend(records, extent);
            let growing = std::mem::replace(&mut self.growing, Segment::empty());
            self.keep(&growing, at);
            self.growing = growing;
        }
    }

    /// Whether the segment, which was written up to `from`, is on its way to the disk.
    fn keep(&mut self, segment: &Segment, from: usize) -> bool {
        if self.file.is_none() && clock::now() >= self.next_try {
            self.try_to_open();
        }
        let Some(file) = &mut self.file else { return false };
        let mut result = file.write(segment.id, segment.extent, segment.pages(), from);
        if result.is_ok() && self.synced.elapsed() >= SYNC {
            self.synced = clock::now();
            result = file.sync();
        }
        result.map_err(|error| self.fail(&error)).is_ok()
    }

    fn try_to_open(&mut self) {
        let begun = clock::now();
        let opened = loop {
            match SlotFile::open(&self.folder, &self.label, self.slots) {
                Err(EvidenceFileError::InUse(_)) if begun.elapsed() < HANDOVER => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => break opened,
            }
        };
        match opened {
            Ok(file) => {
                let mut state = self.shared.state();
                (state.holds, state.capacity_bytes) = (file.holds(), file.capacity_bytes());
                if state.failure.take().is_some() {
                    let lost = self.shared.lost.load(Ordering::Relaxed);
                    let path = self.folder.join(self.label.file_name());
                    tracing::info!(path = %path.display(), lost, "evidence is kept on disk again");
                }
                self.file = Some(file);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Gives the disk a rest, and says so once.
    fn fail(&mut self, error: &EvidenceFileError) {
        self.file = None;
        self.next_try = clock::now() + RETRY;
        let text = error.to_string();
        let mut state = self.shared.state();
        if state.failure.is_none() {
            tracing::error!("evidence is not kept on disk: {text}; tried again every second");
        }
        state.failure = Some(text);
    }
}

/// Files of pairs in `folder`, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "evidence"))
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use weir_engine::verdict::{DropReason, Verdict};

    use super::super::{CapturePoint, EvidenceFile, EvidenceOptions, SEGMENT_BYTES, packets};
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn label() -> Label {
        let text = |it: &str| it.to_owned();
        Label {
            gateway: text("gw"),
            pair: text("p"),
            host: text("h0"),
            wire: text("w0"),
            worker: 0,
        }
    }

    fn ring(born: u64) -> EvidenceRing {
        let options = EvidenceOptions { bytes: 16 * SEGMENT_BYTES, snap_bytes: usize::MAX };
        EvidenceRing::new(options, Time(born))
    }

    fn disk(folder: &Path, mib: u64, ring: &EvidenceRing) -> EvidenceDisk {
        let options = DiskOptions { folder: folder.to_owned(), bytes: mib << 20 };
        EvidenceDisk::start(options, label(), ring).unwrap()
    }

    fn record(ring: &mut EvidenceRing, number: u64) {
        let bytes = number.to_le_bytes().repeat(125);
        let mark = ring.record(Time(number), CapturePoint::FromHost, 1500, &bytes);
        ring.decide(mark, Verdict::Drop(DropReason::ReplayOld));
    }

    /// The numbers of the packets in the file, the oldest first.
    #[track_caller]
    fn numbers(folder: &Path) -> Vec<u64> {
        let file = EvidenceFile::open(&folder.join(label().file_name())).unwrap();
        assert_eq!(*file.label(), label());
        let (mut numbers, mut records) = (Vec::new(), Vec::new());
        for slot in file.slots() {
            if !file.read(slot, &mut records).unwrap() {
                continue;
            }
            assert!(EvidenceFile::knows_verdicts(slot));
            for packet in packets(&records) {
                assert_eq!(packet.bytes, packet.time.0.to_le_bytes().repeat(125));
                assert_eq!(packet.original_len, 1500);
                assert_eq!(packet.verdict, Some(Verdict::Drop(DropReason::ReplayOld)));
                numbers.push(packet.time.0);
            }
        }
        numbers
    }

    /// As [`Ending::wait`], on a disk that others write to as well.
    #[track_caller]
    fn ended(ending: Ending) {
        assert_ne!(ending.ended.recv_timeout(DEADLINE), Err(RecvTimeoutError::Timeout));
    }

    #[track_caller]
    fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = clock::now();
        while !is_so() {
            assert!(begun.elapsed() < DEADLINE, "no {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Records, and gives the disk the time that a network leaves it.
    fn feed(ring: &mut EvidenceRing, disk: &mut EvidenceDisk, numbers: std::ops::Range<u64>) {
        let done = |disk: &EvidenceDisk| disk.counters().written + disk.counters().lost;
        let (begin, before) = (numbers.start, done(disk));
        for number in numbers {
            record(ring, number);
            disk.follow(ring);
            if number % 1000 == 0 {
                // At most six segments wait.
                wait("written segments", || number - begin < done(disk) - before + 6000);
            }
        }
    }

    #[test]
    fn the_newest_packets_survive_every_end_of_the_gateway_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut recorded = 0;
        for life in 1..=3 {
            let mut ring = ring(life);
            let mut disk = disk(folder.path(), 12, &ring);
            feed(&mut ring, &mut disk, recorded..recorded + 9000);
            recorded += 9000;
            let shared = Arc::clone(&disk.shared);
            ended(disk.finish(&ring));
            assert_eq!(shared.written.load(Ordering::Relaxed), 9000);
            let kept = numbers(folder.path());
            let first = recorded - kept.len() as u64;
            assert!(kept.iter().copied().eq(first..recorded), "life {life}");
            assert!(kept.len() as u64 >= recorded.min(9000), "life {life}: {}", kept.len());
        }
        let len = fs::metadata(folder.path().join(label().file_name())).unwrap().len();
        assert!(len <= 12 << 20, "{len}");
    }

    #[test]
    fn a_killed_gateway_leaves_all_but_its_last_second() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = ring(1);
        let mut disk = disk(folder.path(), 12, &ring);
        for number in 0..30 {
            record(&mut ring, number);
            // A second.
            (0..TICKS_TO_WRITE).for_each(|_| disk.tick(&ring));
            wait("file", || disk.counters().packets > number);
            assert_eq!(numbers(folder.path()), (0..=number).collect::<Vec<_>>());
        }
        assert_eq!(disk.counters().written, 0, "the segment is not full");
    }

    #[test]
    fn a_disk_that_fails_costs_packets_and_is_taken_up_again() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        fs::write(&folder, "in the way").unwrap();
        let mut ring = ring(1);
        let mut disk = disk(&folder, 12, &ring);
        wait("failure", || disk.counters().failure.is_some());
        feed(&mut ring, &mut disk, 0..6000);
        wait("loss", || disk.counters().lost >= 5000);
        assert!(disk.counters().failure.unwrap().contains("make this folder"));
        fs::remove_file(&folder).unwrap();
        let mut next = 6000;
        wait("recovery", || {
            feed(&mut ring, &mut disk, next..next + 1100);
            next += 1100;
            disk.counters().failure.is_none() && disk.counters().written > 0
        });
        let lost = disk.counters().lost;
        let shared = Arc::clone(&disk.shared);
        ended(disk.finish(&ring));
        assert_eq!(lost, shared.lost.load(Ordering::Relaxed));
        assert_eq!(lost + shared.written.load(Ordering::Relaxed), next);
        let kept = numbers(&folder);
        let ends = (kept.first(), kept.last());
        assert!(kept.iter().copied().eq(lost..next), "{ends:?} of {lost} to {next}");
    }

    #[test]
    fn damaged_slots_are_passed_over_and_foreign_files_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(label().file_name());
        let mut ring = ring(1);
        let mut first = disk(folder.path(), 12, &ring);
        feed(&mut ring, &mut first, 0..5000);
        ended(first.finish(&ring));
        let all = numbers(folder.path());
        // A record of the second slot, and the head of the third.
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"damage", 4096 + SLOT_BYTES as u64 + 8000).unwrap();
        file.write_all_at(b"damage", 4096 + 2 * SLOT_BYTES as u64 + 40).unwrap();
        let left = numbers(folder.path());
        assert!(left.len() < all.len() - 2000 && left.iter().all(|it| all.contains(it)));

        let text = "somebody's notes".repeat(1000);
        fs::write(&path, &text).unwrap();
        assert!(matches!(EvidenceFile::open(&path), Err(EvidenceFileError::Foreign(_))));
        let second = disk(folder.path(), 12, &ring);
        wait("refusal", || second.counters().failure.is_some());
        assert!(second.counters().failure.unwrap().contains("move it away"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn evidence_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join(label().file_name())).unwrap();
        let refused = SlotFile::open(folder.path(), &label(), 8);
        assert!(matches!(refused, Err(EvidenceFileError::Io { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    }

    #[test]
    fn a_file_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let _first = SlotFile::open(folder.path(), &label(), 8).unwrap();
        let second = SlotFile::open(folder.path(), &label(), 8);
        assert!(matches!(second, Err(EvidenceFileError::InUse(_))));
    }

    #[test]
    fn another_size_keeps_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = ring(1);
        let mut recorded = 0;
        for (mib, at_least) in [(12, 4000), (20, 8000), (20, 12_000), (10, 4000), (10, 7000)] {
            let mut disk = disk(folder.path(), mib, &ring);
            feed(&mut ring, &mut disk, recorded..recorded + 4000);
            recorded += 4000;
            ended(disk.finish(&ring));
            let kept = numbers(folder.path());
            assert!(kept.is_sorted() && kept.len() >= at_least, "{mib} MiB: {}", kept.len());
            assert_eq!(kept.last(), Some(&(recorded - 1)));
        }
    }
}
