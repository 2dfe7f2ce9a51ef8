//! The loop: receive a batch, select, gather, write, rotate.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use weir_port::Interface;
use weir_port::capture::InterfaceStatistics;
use weir_store::clock;
use weir_wire::frame::Frame;

use super::counts::Counts;
use super::files::{FileLimits, FileOptions, Target};
use super::outbox::{Outbox, WriterState};
use super::select::Selection;
use super::sniffer::Sniffer;
use crate::source::{Driver, Listening, Source, WAIT};

/// What to capture, and where to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The interface, in the calling thread's network namespace.
    pub interface: String,
    /// How packets are taken off it.
    pub driver: Driver,
    /// pcap-filter(7), applied in the kernel.
    pub expression: Option<String>,
    /// RDMA terms, applied here.
    pub selection: Selection,
    /// Bytes kept of each packet; absent: all.
    pub snap_bytes: Option<u32>,
    /// Where to.
    pub target: Target,
    /// When a new file begins.
    pub limits: FileLimits,
    /// Compress by zstd.
    pub compress: bool,
    /// Replace a file of the same name.
    pub overwrite: bool,
    /// End after so many packets written.
    pub count: Option<u64>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Memory for the ring; absent: what suits the driver.
    pub ring_bytes: Option<u64>,
    /// Capture what is for other stations too.
    pub promiscuous: bool,
}

/// Why a capture ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// A signal, `--count` or `--seconds`.
    AsAsked,
    /// Nobody reads our output any more.
    OutputClosed,
    /// The output takes no more; why.
    OutputFailed(String),
    /// The interface is gone.
    InterfaceGone,
}

/// What a capture did.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingReport {
    /// Of which interface.
    pub interface: String,
    /// Every packet's fate.
    pub packets: Counts,
    /// Bytes in all files, headers included, those removed since too.
    pub bytes: u64,
    /// The files that are there, the oldest first.
    pub files: Vec<PathBuf>,
    /// Whether a filter in the kernel rejected packets that no count knows.
    pub kernel_filter: bool,
    /// Why it ended.
    pub ending: Ending,
    /// How long it took.
    pub seconds: f64,
}

/// Told by and by, while a capture runs.
pub trait Progress {
    /// Packets are captured from this moment on, into `file`.
    fn started(&mut self, file: &str);
    /// About every half second.
    fn counted(&mut self, counts: &Counts, file: &str, bytes: u64);
    /// Something to know that does not stop the capture.
    fn warned(&mut self, warning: &str);
}

/// Between two looks at the kernel's counters.
const LOOK: Duration = Duration::from_millis(500);
/// A packet socket's ring where none is asked for.
const PACKET_RING: u64 = 256 << 20;
/// What stays in the buffer no longer, where packets are few.
const STALE: Duration = Duration::from_secs(1);
/// Captures until it is told to stop, or what `plan` says comes true.
///
/// # Errors
/// It cannot begin: no such interface, no privilege, a wrong expression, a file that cannot be
/// created.
pub fn capture(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<RecordingReport> {
    plan.target.check_free(&plan.interface, plan.overwrite)?;
    let (_sniffer, warning) = Sniffer::set(&plan.interface);
    if let Some(warning) = warning {
        progress.warned(&warning);
    }
    let listening = Listening {
        interface: &plan.interface,
        driver: plan.driver,
        expression: plan.expression.as_deref(),
        snap_bytes: plan.snap_bytes,
        only_rdma: !plan.selection.is_everything(),
        promiscuous: plan.promiscuous,
        ring_bytes: plan.ring_bytes,
    };
    let source = Source::open(&listening, PACKET_RING)?;
    // What cannot begin leaves no file.
    let outbox = Outbox::open(FileOptions {
        interface: plan.interface.clone(),
        target: plan.target.clone(),
        limits: plan.limits,
        compress: plan.compress,
        overwrite: plan.overwrite,
    })?;
    progress.started(&outbox.state().name);
    let now = clock::now();
    let mut capture = Capture {
        plan,
        source,
        outbox,
        counts: Counts::default(),
        ending: None,
        flushed: now,
        looked: now,
    };
    let begin = now;
    capture.run(stop, begin, progress)?;
    let written = capture.finish();
    Ok(RecordingReport {
        interface: plan.interface.clone(),
        packets: capture.counts,
        bytes: written.totals.bytes,
        files: written.paths,
        kernel_filter: plan.expression.is_some() || !plan.selection.is_everything(),
        ending: capture.ending.unwrap_or(Ending::AsAsked),
        seconds: begin.elapsed().as_secs_f64(),
    })
}

struct Capture<'p> {
    plan: &'p Plan,
    source: Source,
    outbox: Outbox,
    counts: Counts,
    ending: Option<Ending>,
    flushed: Instant,
    looked: Instant,
}

impl Capture<'_> {
    fn run(
        &mut self,
        stop: &AtomicBool,
        begin: Instant,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        while self.ending.is_none() && !stop.load(Ordering::Relaxed) && !self.is_count_reached() {
            let now = clock::now();
            if self.plan.duration.is_some_and(|limit| now - begin >= limit) {
                break;
            }
            if now - self.looked >= LOOK {
                self.looked = now;
                let (name, bytes) = self.look();
                progress.counted(&self.counts, &name, bytes);
            }
            let taken = self.receive(stop);
            if self.outbox.is_due() {
                self.send(stop);
            }
            if taken == 0 {
                self.pause(now, stop)?;
            }
        }
        Ok(())
    }

    fn is_count_reached(&self) -> bool {
        self.plan.count.is_some_and(|count| taken_for_files(&self.counts) >= count)
    }

    /// Takes one batch; how many it had.
    fn receive(&mut self, stop: &AtomicBool) -> usize {
        let Self { plan, source, outbox, counts, ending, .. } = self;
        let mut fails = ending.as_ref().is_some_and(|it| *it != Ending::InterfaceGone);
        let received = source.receive(&mut |frames| {
            for frame in frames.iter() {
                take(plan, outbox, counts, fails, frame);
                // A batch of super-packets fills several chunks.
                if outbox.is_full() && !fails {
                    fails = !outbox.send(clock::time(), &statistics_of(counts), stop);
                }
            }
        });
        received.unwrap_or(0)
    }

    /// Hands what was gathered to the writer.
    fn send(&mut self, stop: &AtomicBool) {
        if !self.outbox.send(clock::time(), &statistics_of(&self.counts), stop) {
            let what = format!("{}: takes nothing; given up", self.outbox.state().name);
            self.ending = Some(Ending::OutputFailed(what));
        }
        if let Some(failure) = self.outbox.failure() {
            self.ending = Some(failure);
        }
    }

    /// Nothing waits in the ring.
    fn pause(&mut self, now: Instant, stop: &AtomicBool) -> Result<()> {
        let to_reader = self.plan.target == Target::StandardOutput;
        if now - self.flushed >= if to_reader { WAIT } else { STALE } {
            self.flushed = now;
            if self.outbox.is_waiting() {
                self.send(stop);
            }
        }
        if self.source.wait()?.is_some() {
            // An interface that only went down may come up again.
            match Interface::find(&self.plan.interface) {
                Ok(_) => std::thread::sleep(WAIT),
                Err(_) => self.ending = Some(Ending::InterfaceGone),
            }
        }
        if let Some(failure) = self.outbox.failure() {
            self.ending = Some(failure);
        }
        Ok(())
    }

    /// Reads what only the kernel and the writer know; the file at hand, and all bytes written.
    fn look(&mut self) -> (String, u64) {
        self.look_at_kernel();
        let state = self.outbox.state();
        self.counts.written = state.totals.written;
        (state.name, state.totals.bytes)
    }

    fn look_at_kernel(&mut self) {
        let port = self.source.counters();
        self.counts.lost_by_kernel = port.lost_ring_full + port.lost_truncated;
        self.counts.lost_by_device = port.device_dropped;
    }

    /// Takes what still waits in the ring, ends the file, and settles the counts.
    fn finish(&mut self) -> WriterState {
        let closed = self.source.close();
        let told = AtomicBool::new(true);
        while closed.as_ref().is_ok_and(|until| self.receive(&told) > 0 || clock::now() < *until) {
            if self.outbox.is_due() {
                self.send(&told);
            }
            self.source.wait_for_last();
        }
        self.look_at_kernel();
        let state = self.outbox.end(clock::time(), &statistics_of(&self.counts));
        if self.ending.as_ref().is_none_or(|it| *it == Ending::InterfaceGone)
            && state.failure.is_some()
        {
            self.ending.clone_from(&state.failure);
        }
        self.counts.written = state.totals.written;
        // Whatever a writer that gave up did not write, from its own count and in its chunks.
        self.counts.lost_by_weir = taken_for_files(&self.counts) - state.totals.written;
        state
    }
}

/// Decides one frame's fate.
fn take(plan: &Plan, outbox: &mut Outbox, counts: &mut Counts, fails: bool, frame: &Frame<'_>) {
    counts.received += 1;
    if !plan.selection.takes(frame) {
        counts.filtered_out += 1;
        return;
    }
    if plan.count.is_some_and(|count| taken_for_files(counts) > count) {
        counts.after_end += 1;
        return;
    }
    if fails {
        return;
    }
    let bytes = frame.bytes();
    let bytes = match plan.snap_bytes {
        Some(snap) => &bytes[..bytes.len().min(snap as usize)],
        None => bytes,
    };
    if outbox.push(&frame.meta, bytes) {
        counts.cut += u64::from((bytes.len() as u32) < frame.meta.original_len);
    }
}

/// Packets that went towards a file, whatever became of them there.
fn taken_for_files(counts: &Counts) -> u64 {
    counts.received - counts.filtered_out - counts.after_end
}

fn statistics_of(counts: &Counts) -> InterfaceStatistics {
    let dropped = counts.lost_by_kernel + counts.lost_by_device;
    InterfaceStatistics {
        received: counts.received + dropped,
        dropped,
        accepted: counts.received + counts.lost_by_kernel,
        dropped_by_system: counts.lost_by_kernel,
        delivered: counts.received,
    }
}
