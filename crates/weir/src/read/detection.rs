//! Captures through the detector: a flow table of their own in the place of the gateway's.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use weir_detect::{Alerts, Counters, Detector, Direction, Limits, Packet, RuleSet, Seat};
use weir_port::capture::CaptureReader;
use weir_store::sink::eve;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Transport, parse_frame};
use weir_wire::tcp::flags;

/// Flows at a time; beyond, those that have been quiet longest end.
const FLOWS_MAX: usize = 1 << 18;
/// A flow that was quiet for so long has ended.
const QUIET_NS: u64 = 600_000_000_000;
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
    flows: HashMap<Key, Entry>,
    alerts: Alerts,
    out: W,
    line: Vec<u8>,
    seen: Seen,
}

/// Both ends of a flow, the lesser first; or one direction of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    ends: [([u8; 16], u32); 2],
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    seat: Seat,
    /// Whether the end that is first in the key sent the first packet.
    first_is_initiator: bool,
    last: Time,
    has_ended: bool,
}

impl<W: Write> Detection<W> {
    /// A detector with `rules`, whose alerts go to `out` as EVE.
    ///
    /// # Errors
    /// The matcher has no memory for its scans.
    pub fn new(rules: RuleSet, seed: u64, out: W) -> anyhow::Result<Self> {
        let rules = Arc::new(rules);
        let limits = Limits { flows: FLOWS_MAX, seed, ..Limits::default() };
        Ok(Self {
            detector: Detector::new(rules.clone(), limits)?,
            rules,
            flows: HashMap::new(),
            alerts: Alerts::new(ALERTS_MAX),
            out,
            line: Vec::new(),
            seen: Seen::default(),
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
        let (key, from_first) = key(parsed);
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&key) {
            self.make_room(now);
        }
        let new = Entry {
            seat: Seat::default(),
            first_is_initiator: from_first,
            last: now,
            has_ended: false,
        };
        let entry = self.flows.entry(key).or_insert(new);
        let is_quiet = now.since_ns(entry.last) > QUIET_NS;
        if is_quiet || (entry.has_ended && begins(parsed)) {
            self.detector.release(entry.seat);
            *entry = new;
        }
        entry.last = now;
        entry.has_ended |= ends(parsed);
        let direction = match entry.first_is_initiator == from_first {
            true => Direction::Initiator,
            false => Direction::Responder,
        };
        let packet = Packet { bytes, parsed };
        self.detector.inspect(now, &mut entry.seat, direction, &packet, &mut self.alerts);
    }

    /// Ends the quietest half of the flows.
    fn make_room(&mut self, now: Time) {
        let mut quiet: Vec<u64> = self.flows.values().map(|it| now.since_ns(it.last)).collect();
        let half = quiet.len() / 2;
        let (_, median, _) = quiet.select_nth_unstable(half);
        let median = *median;
        let detector = &mut self.detector;
        self.flows.retain(|_, it| {
            let stays = now.since_ns(it.last) < median;
            if !stays {
                detector.release(it.seat);
            }
            stays
        });
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

/// The flow of a packet, and whether the end that is first in the key sent it.
fn key(parsed: &Parsed) -> (Key, bool) {
    if let Some(rdma) = &parsed.rdma {
        let ends =
            [(parsed.source, 0), (parsed.destination, rdma.destination_qp.value() | 1 << 31)];
        return (Key { ends, protocol: parsed.protocol }, true);
    }
    let (source, destination) = match parsed.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source.into(), destination.into())
        }
        _ => (0, 0),
    };
    let (from, to) = ((parsed.source, source), (parsed.destination, destination));
    let from_first = from <= to;
    let ends = if from_first { [from, to] } else { [to, from] };
    (Key { ends, protocol: parsed.protocol }, from_first)
}

fn begins(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. }
        if flags & (self::flags::SYN | self::flags::ACK) == self::flags::SYN)
}

fn ends(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Tcp { flags, .. }
        if flags & (self::flags::RST | self::flags::FIN) != 0)
}
