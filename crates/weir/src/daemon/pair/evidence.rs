//! Cutting a capture out of evidence: what the rings of a running gateway hold and what is on disk.
//!
//! The workers share what their rings hold; a thread of its own looks through it and writes a
//! pcapng to the file that whoever asked has passed. Neither the workers nor the main loop wait
//! for it.

mod merge;
mod recorder;

pub use recorder::{EvidenceRecorder, Settings};

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use weir_engine::esp::spread::WORKERS_MAX;
use weir_engine::verdict::Verdict;
use weir_port::capture::{Direction, PacketNote};
use weir_port::{CaptureFormat, CaptureWriter, FrameFilter};
use weir_store::evidence::{
    CapturePoint, DiskCounters, Evidence, EvidenceCounters, Extent, FlowFilter, Label, Snapshot,
};
use weir_wire::bth::{Opcode, PartitionKey, Qpn};
use weir_wire::frame::{Frame, Link, Meta, Time};

use crate::api::dto::{CutReport, CutRequest, EvidenceDiskSnapshot, EvidenceSnapshot};
use crate::capture::Selection;
use crate::config::settings::Pair;

const NS_PER_MS: u64 = 1_000_000;

/// Cuts that are written at the same time, at most: each may hold a ring's size in memory.
const CUTS_MAX: usize = 4;

/// What one pair holds.
pub struct Holding {
    /// Interface towards the host.
    pub host: String,
    /// Interface towards the fabric.
    pub wire: String,
    /// One for each worker.
    pub shards: Vec<Shard>,
}

/// What one worker holds.
pub struct Shard {
    /// Its file, where evidence is kept on disk.
    pub disk: Option<PathBuf>,
    /// Its packets in memory.
    pub memory: Snapshot,
}

/// Whose packets a worker's file holds.
pub fn label(gateway: &str, pair: &Pair, worker: usize) -> Label {
    let (pair, host, wire) = (pair.name.clone(), pair.host.clone(), pair.wire.clone());
    Label { gateway: gateway.to_owned(), pair, host, wire, worker }
}

/// What a pair of `gateway` holds, of whose workers `memory` holds the newest packets; the rest is
/// in `folder`, with what workers left there that the pair has no more.
pub fn holding(
    gateway: &str,
    pair: &Pair,
    folder: Option<&Path>,
    memory: Vec<Snapshot>,
) -> Holding {
    let file = |worker| folder.map(|it| it.join(label(gateway, pair, worker).file_name()));
    let running = memory.len();
    let shards = memory.into_iter().enumerate();
    let shards = shards.map(|(worker, memory)| Shard { disk: file(worker), memory });
    let left = (running..WORKERS_MAX as usize).filter_map(file).filter(|path| path.exists());
    let left = left.map(|path| Shard::of_file(&path));
    Holding {
        host: pair.host.clone(),
        wire: pair.wire.clone(),
        shards: shards.chain(left).collect(),
    }
}

/// What `weir status` shows of a ring and the disk behind it.
pub fn show(ring: &EvidenceCounters, disk: Option<DiskCounters>, now: Time) -> EvidenceSnapshot {
    let age = |oldest: Option<Time>| oldest.map(|time| now.since_ns(time) as f64 / 1e9);
    EvidenceSnapshot {
        packets: ring.packets,
        bytes: ring.bytes,
        capacity_bytes: ring.capacity_bytes,
        recorded: ring.recorded,
        cut: ring.cut,
        overwritten: ring.overwritten,
        oldest_seconds: age(ring.oldest),
        disk: disk.map(|disk| EvidenceDiskSnapshot {
            path: disk.path,
            packets: disk.packets,
            bytes: disk.bytes,
            capacity_bytes: disk.capacity_bytes,
            written: disk.written,
            lost: disk.lost,
            oldest_seconds: age(disk.oldest),
            failure: disk.failure,
        }),
    }
}

/// Who may cut at the same time.
#[derive(Debug, Default)]
pub struct CutTurns(Arc<AtomicUsize>);

/// Given back when dropped.
#[derive(Debug)]
pub struct CutTurn(Arc<AtomicUsize>);

impl CutTurns {
    /// A turn for one cut.
    ///
    /// # Errors
    /// Too many are at it.
    pub fn take(&self) -> Result<CutTurn> {
        let turn = CutTurn(Arc::clone(&self.0));
        if turn.0.fetch_add(1, Ordering::AcqRel) >= CUTS_MAX {
            bail!("{CUTS_MAX} cuts are being written already; wait for one of them");
        }
        Ok(turn)
    }
}

impl Drop for CutTurn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Writes what `request` wants of `holdings` to `output`, of each pair the oldest first; the last
/// seconds are those before `now`. A reader who closes a pipe early ends it, without an error.
///
/// # Errors
/// A wrong expression, or the output cannot be written.
pub fn cut(
    output: impl Write,
    holdings: &[Holding],
    request: &CutRequest,
    now: Time,
) -> Result<CutReport> {
    let wanted = Wanted::new(request, now)?;
    let names = holdings.iter().flat_map(|it| [&it.host, &it.wire]);
    let interfaces: Vec<_> = names.map(|name| (name.as_str(), Link::Ethernet)).collect();
    let sink = BufWriter::with_capacity(1 << 18, Counting { sink: output, bytes: 0 });
    let writer = CaptureWriter::new(sink, CaptureFormat::PcapNg, &interfaces);
    let mut cutter = Cutter {
        writer: writer.context("cannot write there")?,
        wanted,
        scratch: Vec::new(),
        report: CutReport::default(),
    };
    let taken = holdings
        .iter()
        .enumerate()
        .try_for_each(|(index, holding)| cutter.take(2 * index as u32, holding))
        .and_then(|()| cutter.writer.flush());
    match taken {
        // Whoever reads it has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        taken => taken.context("cannot write it whole")?,
    }
    cutter.report.bytes = cutter.writer.sink().get_ref().bytes;
    Ok(cutter.report)
}

struct Counting<W> {
    sink: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

struct Cutter<W: Write> {
    writer: CaptureWriter<W>,
    wanted: Wanted,
    scratch: Vec<u8>,
    report: CutReport,
}

impl<W: Write> Cutter<W> {
    /// What the pair's workers hold, in time order.
    fn take(&mut self, interface: u32, holding: &Holding) -> io::Result<()> {
        let Self { writer, wanted, scratch, report } = self;
        let mut unreadable = 0;
        let mut packets = 0;
        let taken = merge::in_time_order(&holding.shards, wanted, &mut unreadable, |evidence| {
            if !wanted.takes(evidence, scratch) {
                return Ok(());
            }
            packets += 1;
            write(writer, interface, evidence)
        });
        report.packets += packets;
        report.unreadable += unreadable;
        taken
    }
}

/// Writes a packet of the pair whose host has the number `interface`, and whose wire the next.
fn write<W: Write>(
    writer: &mut CaptureWriter<W>,
    interface: u32,
    evidence: &Evidence<'_>,
) -> io::Result<()> {
    let (side, direction) = match evidence.point {
        CapturePoint::FromHost => (0, Direction::Inbound),
        CapturePoint::ToHost => (0, Direction::Outbound),
        CapturePoint::FromWire => (1, Direction::Inbound),
    };
    let comment = comment(evidence);
    let note = PacketNote { direction: Some(direction), comment: Some(&comment) };
    let original_len = evidence.original_len;
    let meta = Meta { time: evidence.time, original_len, ..Meta::default() };
    writer.write(interface + side, &meta, &[evidence.bytes], note)
}

/// What becomes the packet's comment.
fn comment(evidence: &Evidence<'_>) -> String {
    match evidence.verdict {
        // Rules tell of a packet before its fate is known.
        None if evidence.is_told => {
            "kept whole for an alert: its short copy says its fate".to_owned()
        }
        None => "verdict unknown".to_owned(),
        Some(Verdict::Forward) => "forwarded".to_owned(),
        Some(Verdict::Sealed) => "sealed".to_owned(),
        Some(Verdict::Opened) => "opened".to_owned(),
        Some(Verdict::Clear(class)) => format!("passed in clear: {}", class.name()),
        Some(Verdict::Punt) => "punted".to_owned(),
        Some(Verdict::Consumed) => "consumed".to_owned(),
        Some(Verdict::Unsealed) => "unsealed".to_owned(),
        Some(Verdict::Tagged) => "tagged".to_owned(),
        Some(Verdict::Handed) => "handed to the kernel's ESP".to_owned(),
        Some(Verdict::Held) => {
            "held: what became of it is said of the piece that made its datagram whole".to_owned()
        }
        Some(Verdict::Drop(reason)) => format!("dropped: {}", reason.name()),
    }
}

/// What is looked for.
struct Wanted {
    from: Time,
    until: Time,
    dropped: bool,
    filter: Option<FrameFilter>,
    flow: Option<FlowFilter>,
    selection: Selection,
}

impl Wanted {
    fn new(request: &CutRequest, now: Time) -> Result<Self> {
        let expression = request.expression.as_deref();
        let from = Time(request.from_ns.unwrap_or(0));
        let since = |ms: u64| Time(now.0.saturating_sub(ms.saturating_mul(NS_PER_MS)));
        Ok(Self {
            from: request.last_ms.map(since).unwrap_or_default().max(from),
            until: Time(request.until_ns.unwrap_or(u64::MAX)),
            dropped: request.dropped,
            filter: expression.map(FrameFilter::compile).transpose()?,
            flow: request.flow,
            selection: Selection {
                queue_pairs: request.queue_pairs.iter().map(|it| Qpn::new(*it)).collect(),
                opcodes: request.opcodes.iter().map(|it| Opcode(*it)).collect(),
                partition_keys: request.partition_keys.iter().map(|it| PartitionKey(*it)).collect(),
                bad_icrc: request.bad_icrc,
                nak: request.nak,
                cnp: request.cnp,
            },
        })
    }

    /// Whether a piece may hold something wanted.
    fn may_be_in(&self, extent: &Extent) -> bool {
        extent.last >= self.from && extent.first <= self.until
    }

    fn takes(&self, evidence: &Evidence<'_>, scratch: &mut Vec<u8>) -> bool {
        if evidence.time < self.from
            || evidence.time > self.until
            || self.dropped && !matches!(evidence.verdict, Some(Verdict::Drop(_)))
            || self
                .filter
                .as_ref()
                .is_some_and(|filter| !filter.takes(evidence.bytes, evidence.original_len))
            || self.flow.is_some_and(|flow| !flow.takes(evidence.bytes, evidence.original_len))
        {
            return false;
        }
        if self.selection.is_everything() {
            return true;
        }
        scratch.clear();
        scratch.extend(evidence.bytes);
        let original_len = evidence.original_len;
        let meta = Meta { time: evidence.time, original_len, ..Meta::default() };
        let len = scratch.len();
        self.selection.takes(&Frame::new(scratch, 0, len, meta))
    }
}
