//! Captures through the detector, and its alerts to a file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use weir_detect::{Alerts, Counters, Detector, FlowTable, Limits, Packet, RuleSet};
use weir_port::capture::CaptureReader;
use weir_store::sink::eve;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, parse_frame};

/// Flows at a time; beyond, the one that has been silent longest ends.
const FLOWS_MAX: usize = 1 << 18;
/// Flows that end with one packet, at most.
const EXPIRED_MAX: usize = 8;
/// Alerts of one batch of packets.
const ALERTS_MAX: usize = 1 << 16;

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets read.
    pub packets: u64,
    /// Alerts written.
    pub alerts: u64,
    /// Alerts that found no room.
    pub alerts_lost: u64,
    /// What the detector counted.
    pub detector: Counters,
}

/// A detector and the flows of captures.
pub struct Detection<W> {
    rules: Arc<RuleSet>,
    detector: Detector,
    flows: FlowTable,
    alerts: Alerts,
    out: W,
    line: Vec<u8>,
    seen: Seen,
    options: Options,
}

/// How captures are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keys the detector's tables.
    pub seed: u64,
    /// Whether packets are dropped as a gateway would, and dropped ones told of.
    pub is_inline: bool,
}

impl<W: Write> Detection<W> {
    /// A detector with `rules`, whose alerts go to `out` as EVE.
    ///
    /// # Errors
    /// The matcher has no memory for its scans.
    pub fn new(rules: RuleSet, options: Options, out: W) -> anyhow::Result<Self> {
        let rules = Arc::new(rules);
        let limits = Limits { flows: FLOWS_MAX, seed: options.seed, ..Limits::default() };
        Ok(Self {
            detector: Detector::new(rules.clone(), limits)?,
            rules,
            flows: FlowTable::new(limits),
            alerts: Alerts::new(ALERTS_MAX),
            out,
            line: Vec::new(),
            seen: Seen::default(),
            options,
        })
    }

    /// Looks at every packet of `path`.
    ///
    /// # Errors
    /// The capture cannot be read to its end, or the alerts not be written.
    pub fn read(&mut self, path: &PathBuf) -> anyhow::Result<()> {
        let mut reader = CaptureReader::open(path)?;
        loop {
            let count = reader.next_batch(&mut |frames| {
                for frame in frames {
                    let parsed = parse_frame(frame);
                    self.packet(frame.meta.time, frame.bytes(), &parsed);
                }
            })?;
            self.write()?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// What was seen, when all is written.
    ///
    /// # Errors
    /// The alerts cannot be written.
    pub fn finish(mut self) -> io::Result<Seen> {
        self.out.flush()?;
        self.seen.detector = self.detector.counters();
        self.seen.alerts_lost = self.alerts.overflow();
        Ok(self.seen)
    }

    fn packet(&mut self, now: Time, bytes: &[u8], parsed: &Parsed) {
        self.seen.packets += 1;
        let Self { flows, detector, alerts, .. } = self;
        flows.inspect(detector, now, &Packet { bytes, parsed }, alerts);
        flows.expire(now, EXPIRED_MAX, detector);
    }

    fn write(&mut self) -> io::Result<()> {
        for alert in self.alerts.drain() {
            self.line.clear();
            eve::write(&alert, &self.rules, &mut self.line);
            self.out.write_all(&self.line)?;
            self.seen.alerts += 1;
        }
        Ok(())
    }
}
