//! What is shown, kept as a trace that opens in Perfetto (ui.perfetto.dev): the JSON of Chrome's
//! trace events. A gateway is a process, its rates are counters, each queue pair is a track.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_serve::dto::Conversation;
use weir_serve::gateways::Places;
use weir_serve::live::Point;
use weir_serve::query;
use weir_store::sqlite::{ROWS_MAX, Range, RecordFilter};

use crate::utc;

/// Points of a recording: a day of one gateway. The latest are left out beyond it.
const POINTS_MAX: usize = 86_400;

/// A recording.
#[derive(Debug)]
pub(super) struct Trace {
    path: PathBuf,
    from_s: u64,
    /// The last point of each gateway before it began.
    before: BTreeMap<String, u64>,
    points: BTreeMap<(String, u64), Point>,
}

impl Trace {
    /// Begins one that goes to `path` when it ends.
    ///
    /// # Errors
    /// The file cannot be written: better said now than later.
    pub(super) fn begin(path: &Path, now_s: u64, points: &[Point]) -> io::Result<Self> {
        File::create(path)?;
        let before = points.iter().map(|it| (it.gateway.clone(), it.time_ms)).collect();
        Ok(Self { path: path.to_owned(), from_s: now_s, before, points: BTreeMap::new() })
    }

    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes in what is new among `points`.
    pub(super) fn add(&mut self, points: &[Point]) {
        for point in points {
            let is_new = self.before.get(&point.gateway).is_none_or(|it| point.time_ms > *it);
            if is_new && self.points.len() < POINTS_MAX {
                let key = (point.gateway.clone(), point.time_ms);
                self.points.entry(key).or_insert_with(|| point.clone());
            }
        }
    }

    /// Writes it, with the records of queue pairs that ended meanwhile.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn end(self, places: &Places, now_s: u64) -> io::Result<()> {
        let range = Range { from_s: self.from_s, until_s: now_s + 1 };
        let (records, _) = query::each(places, None, |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.conversations(range, &RecordFilter::default(), ROWS_MAX)?;
            Ok(rows.into_iter().map(|row| Conversation::of(name, row, &labels)).collect())
        });
        let mut out = BufWriter::new(File::create(&self.path)?);
        serde_json::to_writer(&mut out, &json!({ "traceEvents": events(&self.points, &records) }))?;
        out.flush()
    }
}

/// All events, in no order: whoever reads them sorts.
fn events(points: &BTreeMap<(String, u64), Point>, records: &[Conversation]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut processes = BTreeMap::new();
    let mut process = |gateway: &str, events: &mut Vec<Value>| -> usize {
        let next = processes.len() + 1;
        *processes.entry(gateway.to_owned()).or_insert_with(|| {
            let args = json!({ "name": gateway });
            events.push(json!({ "ph": "M", "name": "process_name", "pid": next, "args": args }));
            next
        })
    };
    for point in points.values() {
        let pid = process(&point.gateway, &mut events);
        for (name, value) in [
            ("from hosts, bit/s", point.out_bits),
            ("from wire, bit/s", point.in_bits),
            ("dropped, frames/s", point.dropped),
            ("bypassed, frames/s", point.bypassed),
        ] {
            events.push(json!({
                "ph": "C", "name": name, "pid": pid, "ts": point.time_ms * 1000,
                "args": { "value": value },
            }));
        }
    }
    let mut tracks = BTreeMap::new();
    for record in records {
        let pid = process(&record.gateway, &mut events);
        let source_qp = record.source_qp.map_or("?".to_owned(), |it| it.to_string());
        let name = format!(
            "{} QP {source_qp} > {} QP {}",
            record.source, record.destination, record.destination_qp
        );
        let next = tracks.len() + 1;
        let tid = *tracks.entry((pid, name.clone())).or_insert_with(|| {
            let args = json!({ "name": name });
            let thread = "thread_name";
            events
                .push(json!({ "ph": "M", "name": thread, "pid": pid, "tid": next, "args": args }));
            next
        });
        events.push(slice(record, pid, tid));
    }
    events
}

/// A record as a slice of its queue pair's track.
fn slice(record: &Conversation, pid: usize, tid: usize) -> Value {
    let microseconds = |text: &str| utc::read(text).unwrap_or_default() / 1000;
    let (start, end) = (microseconds(&record.started), microseconds(&record.last));
    json!({
        "ph": "X", "name": format!("{} bytes", record.bytes), "cat": record.service,
        "pid": pid, "tid": tid, "ts": start, "dur": end.saturating_sub(start).max(1),
        "args": {
            "bytes": record.bytes, "reply_bytes": record.reply_bytes,
            "messages": record.messages, "response_ns": record.response_ns,
            "retransmissions": record.retransmissions, "missing": record.missing,
            "naks": record.naks, "rnr_naks": record.rnr_naks, "cnp": record.cnp,
            "congestion_marks": record.congestion_marks,
        },
    })
}
