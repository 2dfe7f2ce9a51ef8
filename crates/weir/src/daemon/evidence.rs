//! Cutting a capture out of the evidence rings.
//!
//! The workers share what their rings hold; a thread of its own looks through it and writes a
//! pcapng beside the control socket, where whoever asked takes it from. Neither the workers nor
//! the main loop wait for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weir_engine::verdict::Verdict;
use weir_port::capture::{Direction, PacketNote};
use weir_port::{CaptureFormat, CaptureWriter, FrameFilter};
use weir_store::evidence::{Evidence, EvidenceCounters, Place, Snapshot};
use weir_wire::bth::{Opcode, PartitionKey, Qpn};
use weir_wire::frame::{Frame, Link, Meta, Time};

use crate::api::dto::{CutReport, CutRequest, EvidenceSnapshot};
use crate::capture::Selection;

const NS_PER_MS: u64 = 1_000_000;

/// What one pair holds.
pub struct Holding {
    /// Interface towards the host.
    pub host: String,
    /// Interface towards the fabric.
    pub wire: String,
    /// Its packets.
    pub packets: Snapshot,
}

/// What `weir status` shows of a ring.
pub fn show(counters: &EvidenceCounters, now: Time) -> EvidenceSnapshot {
    EvidenceSnapshot {
        packets: counters.packets,
        bytes: counters.bytes,
        capacity_bytes: counters.capacity_bytes,
        recorded: counters.recorded,
        cut: counters.cut,
        overwritten: counters.overwritten,
        oldest_seconds: counters.oldest.map(|time| now.since_ns(time) as f64 / 1e9),
    }
}

/// Removes what earlier cuts left in `directory` because nobody took it.
pub fn clean(directory: &Path, gateway: &str) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mark = format!("{gateway}.evidence-");
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&mark) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes what `request` wants of `holdings` to a new file at `path`, which only its owner may
/// read.
///
/// # Errors
/// A wrong expression, or the file cannot be written; then there is none.
pub fn cut(
    path: PathBuf,
    holdings: &[Holding],
    request: &CutRequest,
    now: Time,
) -> Result<CutReport> {
    let wanted = Wanted::new(request, now)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("{}: cannot write there", path.display()))?;
    match write(file, holdings, &wanted) {
        Ok((packets, bytes)) => Ok(CutReport { path, packets, bytes }),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error).with_context(|| format!("{}: cannot write it whole", path.display()))
        }
    }
}

fn write(file: File, holdings: &[Holding], wanted: &Wanted) -> io::Result<(u64, u64)> {
    let names = holdings.iter().flat_map(|it| [&it.host, &it.wire]);
    let interfaces: Vec<_> = names.map(|name| (name.as_str(), Link::Ethernet)).collect();
    let sink = BufWriter::with_capacity(1 << 18, file);
    let mut writer = CaptureWriter::new(sink, CaptureFormat::PcapNg, &interfaces)?;
    let mut packets = 0;
    let mut scratch = Vec::new();
    for (index, holding) in holdings.iter().enumerate() {
        for evidence in holding.packets.packets() {
            if !wanted.takes(&evidence, &mut scratch) {
                continue;
            }
            let (side, direction) = match evidence.place {
                Place::FromHost => (0, Direction::Inbound),
                Place::ToHost => (0, Direction::Outbound),
                Place::FromWire => (1, Direction::Inbound),
            };
            let comment = comment(evidence.verdict);
            let note = PacketNote { direction: Some(direction), comment: Some(&comment) };
            let meta = Meta {
                time: evidence.time,
                original_len: evidence.original_len,
                ..Meta::default()
            };
            writer.write(2 * index as u32 + side, &meta, &[evidence.bytes], note)?;
            packets += 1;
        }
    }
    let file = writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok((packets, file.metadata()?.len()))
}

/// What becomes the packet's comment.
fn comment(verdict: Option<Verdict>) -> String {
    match verdict {
        None => "no verdict yet".to_owned(),
        Some(Verdict::Forward) => "forwarded".to_owned(),
        Some(Verdict::Sealed) => "sealed".to_owned(),
        Some(Verdict::Opened) => "opened".to_owned(),
        Some(Verdict::Clear(class)) => format!("passed in clear: {}", class.name()),
        Some(Verdict::Punt) => "punted".to_owned(),
        Some(Verdict::Consumed) => "consumed".to_owned(),
        Some(Verdict::Unsealed) => "unsealed".to_owned(),
        Some(Verdict::Drop(reason)) => format!("dropped: {}", reason.name()),
    }
}

/// What is looked for.
struct Wanted {
    since: Option<Time>,
    dropped: bool,
    filter: Option<FrameFilter>,
    selection: Selection,
}

impl Wanted {
    fn new(request: &CutRequest, now: Time) -> Result<Self> {
        let expression = request.expression.as_deref();
        let since = |ms: u64| Time(now.0.saturating_sub(ms.saturating_mul(NS_PER_MS)));
        Ok(Self {
            since: request.last_ms.map(since),
            dropped: request.dropped,
            filter: expression.map(FrameFilter::compile).transpose()?,
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

    fn takes(&self, evidence: &Evidence<'_>, scratch: &mut Vec<u8>) -> bool {
        if self.since.is_some_and(|since| evidence.time < since)
            || self.dropped && !matches!(evidence.verdict, Some(Verdict::Drop(_)))
            || self
                .filter
                .as_ref()
                .is_some_and(|filter| !filter.takes(evidence.bytes, evidence.original_len))
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
