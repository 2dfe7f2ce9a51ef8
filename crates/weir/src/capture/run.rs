//! The loop: receive a batch, select, gather, write, rotate.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;
use weir_port::capture::InterfaceStatistics;
use weir_port::{Interface, KernelFilter, PacketOptions, PacketPort, Port, wait};
use weir_wire::frame::{Frame, Time};

use super::counts::Counts;
use super::files::{FileLimits, FileOptions, Files, Target};
use super::select::Selection;
use super::sniffer::Sniffer;

/// What to capture, and where to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The interface, in the calling thread's network namespace.
    pub interface: String,
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
    /// Kernel memory for the ring.
    pub ring_bytes: usize,
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
pub struct Report {
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
/// The longest wait for a packet, so that signals and times are seen.
const WAIT: Duration = Duration::from_millis(100);
/// Where packets come fast, what a few hundred microseconds bring is taken at once: to be woken for
/// each packet would cost both processors a system call's worth. Not yet measured by itself.
const NAP: Duration = Duration::from_micros(500);
/// What stays in the buffer no longer, where packets are few.
const STALE: Duration = Duration::from_secs(1);
/// Around a frame in its slot: headers, head and tail room.
const SLOT_OVERHEAD_BYTES: usize = 384;
const ETHERNET_BYTES: usize = 14;

/// Captures until it is told to stop, or what `plan` says comes true.
///
/// # Errors
/// It cannot begin: no such interface, no privilege, a wrong expression, a file that cannot be
/// created.
pub fn capture(plan: &Plan, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Report> {
    let filter = kernel_filter(plan)?;
    let files = Files::begin(FileOptions {
        interface: plan.interface.clone(),
        target: plan.target.clone(),
        limits: plan.limits,
        compress: plan.compress,
        overwrite: plan.overwrite,
    })?;
    let (_sniffer, warning) = Sniffer::set(&plan.interface);
    if let Some(warning) = warning {
        progress.warned(&warning);
    }
    let port = open(plan, filter)?;
    progress.started(&files.name());
    let now = Instant::now();
    let mut capture = Capture {
        plan,
        port,
        files,
        counts: Counts::default(),
        ending: None,
        flushed: now,
        looked: now,
    };
    let begin = now;
    capture.run(stop, begin, progress)?;
    capture.finish();
    let totals = capture.files.totals();
    Ok(Report {
        interface: plan.interface.clone(),
        packets: capture.counts,
        bytes: totals.bytes,
        files: capture.files.paths(),
        kernel_filter: plan.expression.is_some() || !plan.selection.is_everything(),
        ending: capture.ending.unwrap_or(Ending::AsAsked),
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Cuts in the kernel only what need not be looked at whole.
fn kernel_filter(plan: &Plan) -> Result<KernelFilter> {
    let filter = match &plan.expression {
        Some(expression) => KernelFilter::compile(&plan.interface, expression)?,
        None if plan.selection.is_everything() => KernelFilter::everything(),
        None => KernelFilter::rdma(),
    };
    Ok(match plan.snap_bytes {
        Some(bytes) if plan.selection.is_everything() => filter.with_snap_len(bytes),
        _ => filter,
    })
}

fn open(plan: &Plan, filter: KernelFilter) -> Result<PacketPort> {
    let mtu = Interface::find(&plan.interface).and_then(|it| it.mtu());
    let mtu = mtu.with_context(|| format!("{}: no such interface", plan.interface))?;
    let whole = mtu as usize + ETHERNET_BYTES;
    let frame_len = match plan.snap_bytes {
        Some(bytes) if plan.selection.is_everything() => whole.min(bytes as usize),
        _ => whole,
    };
    Ok(PacketPort::open(
        &plan.interface,
        PacketOptions {
            ring_slots: (plan.ring_bytes / (frame_len + SLOT_OVERHEAD_BYTES)).max(64),
            slot_frame_len: Some(frame_len),
            promiscuous: plan.promiscuous,
            outgoing: true,
            filter: Some(filter),
            accept_cut: true,
            ..PacketOptions::default()
        },
    )?)
}

struct Capture<'p> {
    plan: &'p Plan,
    port: PacketPort,
    files: Files,
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
        let mut since_pause = 0;
        while self.ending.is_none() && !stop.load(Ordering::Relaxed) && !self.is_count_reached() {
            let now = Instant::now();
            if self.plan.duration.is_some_and(|limit| now - begin >= limit) {
                break;
            }
            if now - self.looked >= LOOK {
                self.looked = now;
                self.look();
                progress.counted(&self.counts, &self.files.name(), self.files.totals().bytes);
            }
            let taken = self.receive()?;
            since_pause += taken;
            if self.files.is_full() && self.ending.is_none() {
                self.rotate();
            }
            if taken == 0 {
                self.pause(now, since_pause)?;
                since_pause = 0;
            }
        }
        Ok(())
    }

    fn is_count_reached(&self) -> bool {
        self.plan.count.is_some_and(|count| taken_for_files(&self.counts) >= count)
    }

    /// Takes one batch; how many it had.
    fn receive(&mut self) -> Result<usize> {
        let Self { plan, port, files, counts, ending, .. } = self;
        let taken = port.receive(&mut |frames| {
            for frame in frames.iter() {
                if let Err(error) = take(plan, files, counts, ending, frame) {
                    *ending = Some(ending_of(&error, files));
                }
            }
        });
        taken.with_context(|| format!("{}: cannot receive", plan.interface))
    }

    /// Nothing waits in the ring.
    fn pause(&mut self, now: Instant, since_pause: usize) -> Result<()> {
        let to_reader = self.plan.target == Target::StandardOutput;
        if now - self.flushed >= if to_reader { WAIT } else { STALE } {
            self.flushed = now;
            if let Err(error) = self.files.flush() {
                self.ending = Some(ending_of(&error, &self.files));
            }
        }
        if since_pause >= weir_port::BATCH {
            std::thread::sleep(NAP);
            return Ok(());
        }
        let descriptors: Vec<_> = self.port.poll_fd().into_iter().collect();
        let ready = wait(&descriptors, WAIT).context("cannot wait for packets")?;
        if ready && self.port.take_error().is_some() {
            // An interface that only went down may come up again.
            match Interface::find(&self.plan.interface) {
                Ok(_) => std::thread::sleep(WAIT),
                Err(_) => self.ending = Some(Ending::InterfaceGone),
            }
        }
        Ok(())
    }

    fn rotate(&mut self) {
        self.look();
        let statistics = statistics_of(&self.counts);
        if let Err(error) = self.files.rotate(time_now(), &statistics) {
            self.ending = Some(Ending::OutputFailed(format!("{error:#}")));
        }
    }

    /// Reads what only the kernel and the files know.
    fn look(&mut self) {
        let port = self.port.counters();
        let totals = self.files.totals();
        self.counts.lost_by_kernel = port.lost_ring_full + port.lost_truncated;
        self.counts.lost_by_device = port.device_dropped;
        self.counts.written = totals.written;
    }

    /// Takes what still waits in the ring, ends the file, and settles the counts.
    fn finish(&mut self) {
        // Without this, a fast sender could keep us here for ever.
        let closed = self.port.stop_receiving();
        while closed.is_ok() && self.receive().is_ok_and(|taken| taken > 0) {}
        self.look();
        if self.ending.as_ref().is_none_or(|it| *it == Ending::InterfaceGone)
            && let Err(error) = self.files.end(time_now(), &statistics_of(&self.counts))
        {
            self.ending = Some(ending_of(&error, &self.files));
        }
        self.look();
        self.counts.lost_by_weir += self.files.totals().lost;
    }
}

/// Decides one frame's fate.
fn take(
    plan: &Plan,
    files: &mut Files,
    counts: &mut Counts,
    ending: &Option<Ending>,
    frame: &Frame<'_>,
) -> io::Result<()> {
    counts.received += 1;
    if !plan.selection.takes(frame) {
        counts.filtered_out += 1;
        return Ok(());
    }
    if plan.count.is_some_and(|count| taken_for_files(counts) > count) {
        counts.after_end += 1;
        return Ok(());
    }
    if ending.as_ref().is_some_and(|it| *it != Ending::InterfaceGone) {
        counts.lost_by_weir += 1;
        return Ok(());
    }
    let bytes = frame.bytes();
    let bytes = match plan.snap_bytes {
        Some(snap) => &bytes[..bytes.len().min(snap as usize)],
        None => bytes,
    };
    counts.cut += u64::from((bytes.len() as u32) < frame.meta.original_len);
    files.push(&frame.meta, bytes)
}

/// Packets that went towards a file, whatever became of them there.
fn taken_for_files(counts: &Counts) -> u64 {
    counts.received - counts.filtered_out - counts.after_end
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

fn time_now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(since.as_nanos() as u64)
}
