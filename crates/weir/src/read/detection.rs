//! Captures through the detector, and what it finds to a file of EVE's events.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use weir_detect::fragments::Policy;
use weir_detect::{
    Alert, Alerts, Counters, Decision, Decoded, Detector, FlowTable, Limits, Packet, RuleSet,
};
use weir_port::capture::CaptureReader;
use weir_store::sink::eve::{self as sink, push};
use weir_wire::frame::Time;

use super::eve::{self, Event};
use super::layers::{Layer, Layers};

/// Flows at a time; beyond, the one that has been silent longest ends.
const FLOWS_MAX: usize = 1 << 18;
/// Flows that end with one packet, at most.
const EXPIRED_MAX: usize = 8;
/// Alerts of one packet.
const ALERTS_MAX: usize = 1 << 12;
/// Flows whose first drop is remembered, at most; those beyond are told of with each.
const DROPPED_MAX: usize = 1 << 20;

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
    layers: Layers,
    look: Look<W>,
}

struct Look<W> {
    rules: Arc<RuleSet>,
    detector: Detector,
    flows: FlowTable,
    alerts: Alerts,
    out: W,
    line: Vec<u8>,
    seen: Seen,
    options: Options,
    counters: BTreeMap<String, u64>,
    last: Time,
    /// Flows and directions of which a drop was told.
    dropped: HashSet<(u64, bool)>,
}

/// How captures are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keys the detector's tables.
    pub seed: u64,
    /// Whether packets are dropped as a gateway would, and dropped ones told of.
    pub is_inline: bool,
    /// Whether TCP connections are taken up where their beginning was not seen.
    pub midstream: bool,
    /// How fragments that overlap are put together.
    pub policy: Policy,
    /// Which events there are beside those of kind `alert`.
    pub events: Events,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    /// `flow`, when one ends.
    pub flow: bool,
    /// `netflow`: a flow's two sides.
    pub netflow: bool,
    /// `http`: transactions.
    pub http: bool,
    /// `anomaly`: what is odd about a packet.
    pub anomaly: bool,
    /// `stats`, at the end.
    pub stats: bool,
    /// Of the packets that a flow loses, the first of each side alone is told of.
    pub first_drops: bool,
    /// `community_id` in flows.
    pub community_id: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            flow: true,
            netflow: false,
            http: true,
            anomaly: true,
            stats: true,
            first_drops: false,
            community_id: true,
        }
    }
}

impl<W: Write> Detection<W> {
    /// A detector with `rules`, whose events go to `out` as EVE.
    ///
    /// # Errors
    /// The matcher has no memory for its scans.
    pub fn new(rules: RuleSet, options: Options, out: W) -> anyhow::Result<Self> {
        let rules = Arc::new(rules);
        let Options { seed, midstream, .. } = options;
        let limits = Limits { flows: FLOWS_MAX, seed, midstream, ..Limits::default() };
        let mut detector = Detector::new(rules.clone(), limits)?;
        detector.keep_records();
        let mut flows = FlowTable::new(limits);
        flows.keep_records();
        let look = Look {
            detector,
            rules,
            flows,
            alerts: Alerts::new(ALERTS_MAX),
            out,
            line: Vec::new(),
            seen: Seen::default(),
            options,
            counters: BTreeMap::new(),
            last: Time::default(),
            dropped: HashSet::new(),
        };
        Ok(Self { layers: Layers::new(options.policy, seed), look })
    }

    /// Looks at every packet of `path`.
    ///
    /// # Errors
    /// The capture cannot be read to its end, or the events not be written.
    pub fn read(&mut self, path: &PathBuf) -> anyhow::Result<()> {
        let mut reader = CaptureReader::open(path)?;
        loop {
            let Self { layers, look } = self;
            let count = reader.next_batch(&mut |frames| {
                for frame in frames {
                    look.seen.packets += 1;
                    look.last = frame.meta.time;
                    let (now, link, length) =
                        (frame.meta.time, frame.meta.link, frame.meta.original_len);
                    layers.take(now, frame.bytes(), link, length, &mut |it| look.packet(now, it));
                }
            })?;
            look.write()?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// What was seen, when all is written.
    ///
    /// # Errors
    /// The events cannot be written.
    pub fn finish(self) -> io::Result<Seen> {
        let Self { layers, mut look } = self;
        look.flows.flush(&mut look.detector);
        look.ended();
        if look.options.events.stats {
            look.stats(layers.counters);
        }
        look.write()?;
        look.out.flush()?;
        look.seen.detector = look.detector.counters();
        look.seen.alerts_lost = look.alerts.overflow();
        Ok(look.seen)
    }
}

impl<W: Write> Look<W> {
    fn packet(&mut self, now: Time, layer: &Layer<'_>) {
        let decoded = Some(Decoded { vlans: layer.vlans, events: &layer.events });
        let packet = Packet { bytes: layer.bytes, parsed: &layer.parsed, decoded };
        let Self { flows, detector, alerts, .. } = self;
        let decision = match layer.has_flow() {
            true => flows.inspect(detector, now, &packet, alerts),
            false => detector.inspect_alone(now, &packet, alerts),
        };
        let is_dropped = self.options.is_inline && decision != Decision::Pass;
        let alerts: Vec<Alert> = self.alerts.drain().collect();
        for alert in &alerts {
            self.alert(alert, layer, &packet, decision);
        }
        if self.options.events.anomaly {
            for event in &layer.events {
                self.anomaly(now, layer, event.name());
            }
        }
        if is_dropped {
            self.drop_event(now, layer, &packet, &alerts, decision);
        }
        if self.options.is_inline {
            self.count(if is_dropped { "ips.blocked" } else { "ips.accepted" });
        }
        self.flows.expire(now, EXPIRED_MAX, &mut self.detector);
        self.ended();
    }

    fn count(&mut self, name: &str) {
        *self.counters.entry(name.to_owned()).or_default() += 1;
    }

    fn push(&mut self, event: Event) {
        push(&mut self.line, event);
    }

    fn alert(&mut self, alert: &Alert, layer: &Layer<'_>, packet: &Packet<'_>, fate: Decision) {
        let mut event = sink::alert_event(alert, &self.rules);
        eve::describe(&mut event, self.seen.packets, layer);
        let stream = match alert.is_stream {
            true => self.flows.stream(&self.detector, packet),
            false => None,
        };
        let own = layer.parsed.payload(layer.bytes);
        eve::put_bytes(&mut event, layer, stream.as_deref().unwrap_or(own), stream.is_some());
        if self.options.is_inline {
            let is_pass = self.rules.rule(alert.rule).action == weir_detect::Action::Pass;
            event.insert("verdict".into(), verdict(fate, is_pass));
        }
        self.push(event);
        self.seen.alerts += 1;
        self.count("detect.alert");
    }

    fn anomaly(&mut self, now: Time, layer: &Layer<'_>, name: &str) {
        let mut event = eve::of_packet(now, "anomaly", self.seen.packets, layer);
        let kind = if name.starts_with("stream.") { "stream" } else { "decode" };
        event.insert("anomaly".into(), serde_json::json!({ "type": kind, "event": name }));
        self.push(event);
    }

    /// A packet went no further.
    fn drop_event(
        &mut self,
        now: Time,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        alerts: &[Alert],
        fate: Decision,
    ) {
        let reason = if self.detector.dropped_by_flow() { "flow drop" } else { "rules" };
        self.count(&format!("ips.drop_reason.{}", reason.replace(' ', "_")));
        let view = match layer.has_flow() {
            true => self.flows.view(&self.detector, packet),
            false => None,
        };
        let mut event = eve::of_packet(now, "drop", self.seen.packets, layer);
        if let Some(view) = view {
            let id = sink::flow_id(&view);
            if self.options.events.first_drops
                && self.dropped.len() < DROPPED_MAX
                && !self.dropped.insert((id, view.to_server))
            {
                return;
            }
            event.insert("flow_id".into(), id.into());
            let direction = if view.to_server { "to_server" } else { "to_client" };
            event.insert("direction".into(), direction.into());
            event.insert("flow".into(), sink::flow_object(&view));
        }
        let length = layer.parsed.end - u32::from(layer.parsed.network_offset);
        let drop = serde_json::json!({
            "len": length,
            "tos": layer.parsed.traffic_class,
            "ttl": layer.parsed.hop_limit,
            "reason": reason,
        });
        event.insert("drop".into(), drop);
        let blocking = |it: &&Alert| it.blocked != weir_detect::Blocked::No;
        if let Some(alert) = alerts.iter().find(blocking) {
            event.insert("alert".into(), sink::alert_object(alert, &self.rules));
        }
        event.insert("verdict".into(), verdict(fate, false));
        self.push(event);
    }

    /// Tells of what has ended.
    fn ended(&mut self) {
        let http = self.detector.take_http();
        let records = self.flows.take_ended();
        let Events { flow, netflow, http: with_http, community_id, .. } = self.options.events;
        let mut http = http;
        for record in records {
            if flow {
                self.push(eve::flow(&record, community_id));
            }
            if netflow {
                eve::netflow(&record).into_iter().for_each(|it| self.push(it));
            }
            http.extend(record.http);
        }
        if with_http {
            http.iter().for_each(|it| self.push(eve::http(self.last, it)));
        }
    }

    fn stats(&mut self, decoder: BTreeMap<String, u64>) {
        let mut counters = std::mem::take(&mut self.counters);
        counters.extend(decoder.into_iter().map(|(name, count)| {
            match name.strip_prefix("event.stream.") {
                Some(stream) => (format!("stream.{stream}"), count),
                None => (format!("decoder.{name}"), count),
            }
        }));
        let seen = self.detector.counters();
        counters.insert("tcp.reassembly_gap".into(), seen.stream_gaps);
        for name in ["flow_bypassed.local_pkts", "flow_bypassed.local_bytes", "detect.alert"] {
            counters.entry(name.into()).or_default();
        }
        let event = eve::stats(self.last, &counters);
        self.push(event);
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// What became of the packet in the end.
fn verdict(fate: Decision, is_pass: bool) -> serde_json::Value {
    match fate {
        Decision::Pass if is_pass => serde_json::json!({ "action": "pass" }),
        Decision::Pass => serde_json::json!({ "action": "alert" }),
        Decision::Drop { .. } => serde_json::json!({ "action": "drop" }),
        Decision::Reject { .. } => {
            serde_json::json!({ "action": "drop", "reject-target": "to_client" })
        }
    }
}
