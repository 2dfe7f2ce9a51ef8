//! From capture files to a filled meter.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_engine::meter::{Icrc, Meter, MeterLimits, Observation};
use weir_port::capture::{CaptureError, CaptureReader, CaptureStats};
use weir_wire::frame::{Frame, Time};
use weir_wire::parse::parse_frame;

/// Batches between two calls of the progress function.
const BATCHES_PER_PROGRESS: u64 = 256;

/// What all files together hold.
#[derive(Debug)]
pub struct Analysis {
    /// Totals, flows and conversations.
    pub meter: Meter,
    /// Each file, in the order given.
    pub files: Vec<FileOutcome>,
    /// The earliest and the latest packet.
    pub span: Option<(Time, Time)>,
}

/// What became of one file.
#[derive(Debug)]
pub struct FileOutcome {
    /// As named by the user; `-` is standard input.
    pub path: PathBuf,
    /// What was read of it.
    pub stats: CaptureStats,
    /// Why it could not be read, or not to its end. Everything before that place is counted.
    pub error: Option<CaptureError>,
}

impl Analysis {
    /// One of nothing yet; `seed` keys the meter's tables.
    pub fn new(seed: u128) -> Self {
        let meter = Meter::new(MeterLimits::for_captures(), seed);
        Self { meter, files: Vec::new(), span: None }
    }

    /// Whether every file was read to its end.
    pub fn is_complete(&self) -> bool {
        self.files.iter().all(|file| file.error.is_none() && file.stats.truncated_records == 0)
    }
}

/// Reads `files` one after the other into one meter. `progress` gets the bytes read of each file
/// now and then.
///
/// `seed` keys the meter's tables; it has no influence on the result.
pub fn analyse(
    files: &[PathBuf],
    icrc: Icrc,
    seed: u128,
    is_over: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Path, u64),
) -> Analysis {
    let mut analysis = Analysis::new(seed);
    for path in files {
        let mut stats = CaptureStats::default();
        let result = CaptureReader::open_until(path, Arc::clone(is_over)).and_then(|mut reader| {
            let result = analysis.read(&mut reader, icrc, &mut |bytes| progress(path, bytes));
            stats = reader.stats();
            result
        });
        analysis.files.push(FileOutcome { path: path.clone(), stats, error: result.err() });
    }
    analysis
}

impl Analysis {
    fn read(
        &mut self,
        reader: &mut CaptureReader,
        icrc: Icrc,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CaptureError> {
        let mut batches = 0;
        while reader.next_batch(&mut |frames| self.observe(frames, icrc))? > 0 {
            batches += 1;
            if batches % BATCHES_PER_PROGRESS == 0 {
                progress(reader.bytes_read());
            }
        }
        progress(reader.bytes_read());
        Ok(())
    }

    /// Takes in a batch of packets.
    pub fn observe(&mut self, frames: &mut [Frame<'_>], icrc: Icrc) {
        for frame in frames {
            let parsed = parse_frame(frame);
            let now = frame.meta.time;
            let (first, last) = self.span.get_or_insert((now, now));
            *first = (*first).min(now);
            *last = (*last).max(now);
            self.meter.observe(&Observation {
                now,
                side: None,
                bytes: frame.bytes(),
                parsed: &parsed,
                original_len: frame.meta.original_len,
                segments: 1,
                icrc,
            });
        }
    }
}
