//! Captures through the detector, and what it finds to a file of EVE's events.

mod checksums;
mod ended;
mod excepted;
mod fate;
mod held;
mod known;
mod macs;
mod options;
mod pseudo;
mod waiting;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use weir_detect::alert::{FlowView, Text};
use weir_detect::record::{Oddity, UnitRecord};
use weir_detect::{
    Alert, Alerts, Blocked, Counters, Decision, Detector, FlowTable, LoadReport, Packet, Refusal,
    RuleSet, Vlans,
};
use weir_port::capture::CaptureReader;
use weir_store::datasets::DatasetFiles;
use weir_store::sink::eve::{self as sink, push};
use weir_store::sink::eve_record::{flow_community_id, put_beside};
use weir_wire::checksum::unfinished;
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Network, Parsed, Transport};

use super::eve::{self, Event};
pub use super::exception::Exception;
use super::exception::{Cause, Fate};
use super::layers::{Layer, Layers};
use super::stats::Counts;
pub use checksums::Checksums;
use held::HeldOddity;
pub use options::Options;
use waiting::{Segment, Waiting};

/// Flows that end with one packet, at most.
const EXPIRED_MAX: usize = 8;
/// Alerts of one packet.
const ALERTS_MAX: usize = 1 << 12;
/// Flows whose first drop is remembered, at most; those beyond are told of with each.
const DROPPED_MAX: usize = 1 << 20;
/// Flows of which alerts wait, at most; further alerts are told at once.
const HELD_MAX: usize = 1 << 16;
/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets read.
    pub packets: u64,
    /// Of them, those of which the capture holds a part alone.
    pub truncated: u64,
    /// Packets that the end of a capture cuts off; not read.
    pub cut_records: u64,
    /// Packets of a link type that is not read.
    pub skipped: u64,
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
    /// A rule has let the packet at hand pass.
    is_passed: bool,
    /// An exception has the sender of the packet at hand told that it is refused.
    is_answered: bool,
    /// An exception was made of its flow before.
    is_excepted: bool,
    /// What the packet at hand carries is dropped, and it with that.
    is_inner_dropped: bool,
    /// The same, whether or not anything is dropped.
    is_inner_condemned: bool,
    /// With the packet at hand its flow is looked at no further, for it is long.
    is_left: bool,
    /// The same, for it is encrypted.
    is_bypassed: bool,
    /// The packet at hand is dropped, or would be by who does not only watch.
    is_condemned: bool,
    alerts: Alerts,
    out: W,
    line: Vec<u8>,
    seen: Seen,
    options: Options,
    counts: Counts,
    /// Rules that run, that do not, and that themselves say that they are not for us.
    rules_read: [u64; 3],
    last: Time,
    /// Alerts about streams that wait until the receiver has acknowledged what they are about,
    /// by flow.
    held: HashMap<u64, Vec<Held>>,
    /// What was told of transactions with the packet at hand.
    units: Vec<UnitRecord>,
    /// Events of messages that wait to be acknowledged.
    waiting: Waiting,
    /// What is odd about messages likewise, with its side, by flow.
    odd: HashMap<u64, Vec<HeldOddity>>,
    /// The flow of the packet at hand, whether its client sent it, and its place in TCP.
    at: Option<(u64, bool, Segment)>,
    /// Where the packet at hand is from, its VLANs, and where it is told the addresses of its
    /// frame.
    source: &'static str,
    vlans: Vlans,
    ether: Option<Value>,
    /// The addresses of all its frames, by flow.
    macs: macs::Macs,
    /// What rules have noted of its flow, and what is spoken in that.
    noted: Event,
    spoken: Option<&'static str>,
    /// What they captured of earlier packets of which it brings the alerts.
    late_texts: Vec<Text>,
    /// Flows that an exception was made of.
    exceptions: HashMap<u64, (Cause, Option<Exception>)>,
    /// Connections that are encrypted, and were looked at once more for it.
    sealed: HashSet<u64>,
    /// The link type that the capture names.
    capture_link: Option<u32>,
    /// Bytes that the sides of connections have sent, where that ends the look at them.
    sent: HashMap<u64, [u64; 2]>,
    /// Flows and directions of which a drop was told.
    dropped: HashSet<(u64, bool)>,
    /// Sets that rules change, where they are to be written.
    datasets: Option<DatasetFiles>,
}

/// An alert about a stream. Who only watches says nothing of bytes before their receiver has
/// acknowledged them: he may never have got them.
struct Held {
    alert: Alert,
    /// Of the packet that brought the bytes.
    bytes: Vec<u8>,
    link: Link,
    parsed: Parsed,
    vlans: Vlans,
    /// Sequence number behind them.
    end: u32,
    is_acknowledged: bool,
}

impl<W: Write> Detection<W> {
    /// A detector with `rules`, whose events go to `out` as EVE.
    ///
    /// # Errors
    /// The matcher has no memory for its scans.
    pub fn new(rules: RuleSet, options: Options, out: W) -> anyhow::Result<Self> {
        let rules = Arc::new(rules);
        let limits = options.limits();
        let mut detector = Detector::new(rules.clone(), limits)?;
        if options.events.applications.tells_any() {
            detector.keep_records();
        } else if options.waits {
            detector.keep_what_rules_see();
        }
        // Every unit of every connection: for who names them alone.
        options.events.applications.names("frame").then(|| detector.keep_frames());
        let mut flows = FlowTable::new(limits);
        flows.keep_records();
        let datasets = options.datasets.clone().map(|folder| {
            let mut files = DatasetFiles::new(folder);
            files.begin(rules.kept_sets());
            detector.keep_dataset_changes();
            files
        });
        let mut layers = Layers::new(options.policy, options.seed);
        layers.set_hosts(rules.hosts().clone());
        layers.wait(&options.as_suricata.timeouts);
        layers.open(options.tunnels, options.layers_max);
        if options.as_suricata.knows_no_more {
            layers.know_no_more();
        }
        if options.checksums == Checksums::Trusted {
            layers.take_wrong_headers();
        }
        let look = Look {
            detector,
            rules,
            flows,
            is_passed: false,
            is_answered: false,
            is_excepted: false,
            is_inner_dropped: false,
            is_inner_condemned: false,
            is_left: false,
            is_bypassed: false,
            is_condemned: false,
            alerts: Alerts::new(ALERTS_MAX),
            out,
            line: Vec::new(),
            seen: Seen::default(),
            options,
            counts: Counts::default(),
            rules_read: [0; 3],
            last: Time::default(),
            held: HashMap::new(),
            units: Vec::new(),
            odd: HashMap::new(),
            waiting: Waiting::default(),
            at: None,
            source: "wire/pcap",
            vlans: Vlans::default(),
            ether: None,
            macs: macs::Macs::default(),
            noted: Event::new(),
            spoken: None,
            late_texts: Vec::new(),
            exceptions: HashMap::new(),
            sealed: HashSet::new(),
            capture_link: None,
            sent: HashMap::new(),
            dropped: HashSet::new(),
            datasets,
        };
        Ok(Self { layers, look })
    }

    /// What became of its rules is told with the counters.
    pub fn tell_rules(&mut self, report: &LoadReport) {
        let is_skipped = |it: &&Refusal| it.keyword == "requires";
        let skipped = report.refused.iter().filter(is_skipped).count() as u64;
        let failed = report.refused.len() as u64 - skipped;
        self.look.rules_read = [report.runnable, failed, skipped];
    }

    /// Looks at every packet of `path`.
    ///
    /// # Errors
    /// The capture cannot be read to its end, or the events not be written.
    pub fn read(&mut self, path: &PathBuf, is_over: &Arc<AtomicBool>) -> anyhow::Result<()> {
        self.look.capture_link = eve::named_link(path);
        let mut reader = CaptureReader::open_until(path, Arc::clone(is_over))?;
        loop {
            let Self { layers, look } = self;
            let count = reader.next_batch(&mut |frames| {
                for frame in frames {
                    if look.guess_checksums() {
                        layers.take_wrong_headers();
                    }
                    look.seen.packets += 1;
                    let is_part = frame.meta.original_len as usize > frame.bytes().len();
                    look.seen.truncated += u64::from(is_part);
                    look.last = frame.meta.time;
                    let (now, link, length) =
                        (frame.meta.time, frame.meta.link, frame.meta.original_len);
                    layers.take(now, frame.bytes(), link, length, &mut |it| look.packet(now, it));
                }
            })?;
            look.write()?;
            if count == 0 {
                let stats = reader.stats();
                look.seen.cut_records += stats.truncated_records;
                look.seen.skipped += stats.skipped_packets;
                return Ok(());
            }
        }
    }

    /// What was seen, when all is written.
    ///
    /// # Errors
    /// The events, or a set, cannot be written.
    pub fn finish(self) -> anyhow::Result<Seen> {
        let Self { layers, mut look } = self;
        look.tell_held();
        look.at = None;
        look.flows.flush(&mut look.detector);
        look.ended();
        let left = look.waiting.end_all();
        left.into_iter().for_each(|it| look.push_late(it, Vlans::default()));
        if look.options.events.stats {
            look.stats(layers.counters());
        }
        look.write()?;
        look.out.flush()?;
        if let Some(mut files) = look.datasets.take() {
            files.write().map_err(|(path, error)| {
                anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
            })?;
        }
        look.seen.detector = look.detector.counters();
        look.seen.alerts_lost = look.alerts.overflow();
        Ok(look.seen)
    }
}

impl<W: Write> Look<W> {
    /// Whether its checksum counts as right, whatever it is.
    fn is_verified(&self, layer: &Layer<'_>) -> bool {
        self.options.checksums == Checksums::Guessed
            && unfinished(layer.bytes, layer.parsed.network_offset.into()).is_some()
    }

    /// Looks at a packet with the bytes that it has.
    fn packet_as_it_is(&mut self, now: Time, layer: &Layer<'_>) {
        let decoded = Some(layer.decoded());
        let (is_rebuilt, is_verified) = (layer.is_rebuilt(), self.is_verified(layer));
        let Layer { bytes, parsed, source, .. } = layer;
        let packet =
            Packet { bytes, parsed, decoded, is_rebuilt, is_verified, icrc: None, port: None };
        let Self { flows, detector, alerts, .. } = self;
        let has_flow = layer.has_flow() && (!layer.is_complaint() || flows.knows(&packet));
        let decision = match has_flow {
            true => flows.inspect(detector, now, &packet, alerts),
            false => detector.inspect_alone(now, &packet, alerts),
        };
        let decision = self.condemned(layer, decision);
        let is_dropped = self.options.is_inline && decision != Decision::Pass;
        self.is_condemned = decision != Decision::Pass;
        // Who only watches drops nothing, though rules go by what they would drop.
        let decision = if self.options.is_inline { decision } else { Decision::Pass };
        (self.at, self.source, self.vlans) = (None, source, layer.vlans);
        // For events of applications alone.
        if self.options.events.applications.tells_any() {
            self.noted = self.noted_of(&packet);
            self.spoken = self.flows.application(&self.detector, &packet);
        }
        let tells_ether = self.options.events.ethernet && layer.link == Link::Ethernet;
        self.ether = tells_ether.then(|| eve::ether(bytes, parsed));
        if let (true, Some(view)) = (tells_ether, self.flows.view(&self.detector, &packet)) {
            self.macs.note(&view, parsed);
        }
        self.counts.packet(parsed.transport);
        let mut alerts: Vec<Alert> = self.alerts.drain().collect();
        let fate = self.exception(layer, &packet);
        self.is_answered = matches!(fate, Some(Fate::Rejected(_) | Fate::Answered));
        if let Some(fate @ (Fate::Dropped(_) | Fate::Rejected(_) | Fate::Bypassed)) = fate {
            return self.unseen(now, (layer, &packet), !alerts.is_empty(), fate);
        }
        let is_let_pass = fate == Some(Fate::Unseen);
        if is_let_pass && !alerts.is_empty() {
            self.flows.take_back_alerts(&mut self.detector, &packet);
            alerts.clear();
        }
        let is_dropped = is_dropped && !is_let_pass;
        self.is_passed = self.detector.is_passed();
        self.is_left = self.bypass_long(layer, &packet);
        self.is_bypassed = self.is_to_bypass(&packet);
        if !self.held.is_empty() {
            self.answer_held();
            self.acknowledge(layer, &packet, &mut alerts);
            if !self.late_texts.is_empty() {
                self.noted = self.noted_of(&packet);
            }
        }
        self.forget_held(&packet);
        self.tell_or_hold(&mut alerts, layer, &packet, decision);
        (self.is_passed, self.is_left, self.is_bypassed) = (false, false, false);
        self.tell_odd(now, layer, &packet);
        self.anomalies(now, layer, &packet);
        self.tell_arp(now, layer);
        self.tell_tagged(now, layer, &packet);
        self.tell_fate(now, (layer, &packet), (decision, is_dropped), &alerts);
        self.bypass_encrypted(&packet);
        self.tell_acknowledged(layer, &packet);
        // Suricata's flows are found to be over when their next packet comes.
        if !self.options.as_suricata.wants_handshakes {
            self.flows.expire(now, EXPIRED_MAX, &mut self.detector);
        }
        self.ended();
    }

    /// A packet that a rule has tagged.
    fn tell_tagged(&mut self, now: Time, layer: &Layer<'_>, packet: &Packet<'_>) {
        if !self.detector.take_tagged() || !self.options.events.tagged {
            return;
        }
        let mut event = eve::of_packet(now, "packet", self.seen.packets, layer);
        if let Some(view) = self.flows.view(&self.detector, packet).filter(|_| layer.has_flow()) {
            sink::put_flow_id(&mut event, &view);
        }
        self.put_marks(&mut event, packet);
        eve::put_packet(&mut event, (layer, layer.bytes), self.capture_link);
        self.push(event);
    }

    /// A request or an answer of ARP.
    fn tell_arp(&mut self, now: Time, layer: &Layer<'_>) {
        let is_wanted = self.options.events.arp && layer.parsed.network == Network::Arp;
        let Some(arp) = is_wanted.then(|| eve::arp_object(layer)).flatten() else { return };
        let mut event = eve::of_packet(now, "arp", self.seen.packets, layer);
        event.insert("arp".into(), arp);
        self.push(event);
    }

    /// What is odd about the packet, its place in its stream, and what is spoken.
    fn anomalies(&mut self, now: Time, layer: &Layer<'_>, packet: &Packet<'_>) {
        let of_stream: Vec<_> = self.detector.stream_events().to_vec();
        for event in of_stream {
            self.count(event.name());
            if self.options.tells_failed || !event.is_common() {
                let odd = Oddity::Packet(event);
                let Some(event) = self.anomaly(now, layer, packet, odd) else { continue };
                let untold = match odd.names().0 {
                    "applayer" => self.hold_oddity(layer, packet, odd, event),
                    _ => Some(event),
                };
                untold.into_iter().for_each(|it| self.push(it));
            }
        }
        for event in &layer.events {
            let event = self.anomaly(now, layer, packet, Oddity::Packet(*event));
            event.into_iter().for_each(|it| self.push(it));
        }
        let of_messages: Vec<_> = self.detector.app_events().to_vec();
        for event in of_messages {
            let odd = Oddity::Message(event.0, event.1);
            let Some(event) = self.anomaly(now, layer, packet, odd) else { continue };
            let untold = self.hold_oddity(layer, packet, odd, event);
            untold.into_iter().for_each(|it| self.push(it));
        }
    }

    fn count(&mut self, name: &str) {
        self.counts.add(name);
    }

    fn push(&mut self, event: Event) {
        push(&mut self.line, event);
    }

    fn alert(
        &mut self,
        alert: &Alert,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        (fate, alerts): (Decision, &[Alert]),
    ) {
        let mut event = sink::alert_event(alert, &self.rules);
        let is_alone = layer.is_complaint() && !self.flows.knows(packet);
        if is_alone || !layer.has_flow() {
            let of_flow = ["direction", "flow", "flow_id", "community_id"];
            of_flow.iter().for_each(|it| drop(event.remove(*it)));
        } else {
            self.name_flow(&mut event, &alert.flow, layer);
        }
        // Ports are the packet's own, and what says that another did not arrive has none.
        let flow = event.get_mut("flow").filter(|_| layer.is_complaint());
        if let Some(flow) = flow.and_then(Value::as_object_mut) {
            flow.retain(|name, _| !matches!(name.as_str(), "src_port" | "dest_port"));
        }
        eve::describe(&mut event, self.seen.packets, layer);
        if let Some(action) = self.action(alert) {
            event["alert"]["action"] = action.into();
        }
        // What is told when a flow is over has no packet of its own.
        let own = match eve::is_piece(&layer.parsed) || held::is_made_up(layer) {
            true => &[][..],
            false => layer.payload(),
        };
        let mut stream = None;
        let id = |it: &FlowView| sink::flow_id(it);
        let known = self.flows.view(&self.detector, packet).as_ref().map(id);
        if held::is_made_up(layer) && known != Some(id(&alert.flow)) {
            // Its flow is over, and perhaps another is in its place.
            event.extend(self.noted.clone());
        } else {
            if alert.is_stream {
                let is_whole = !(self.options.waits || self.options.as_ips);
                stream = self.flows.stream(&self.detector, packet, is_whole);
            }
            self.put_marks(&mut event, packet);
            let is_piece = layer.parsed.fragment.is_some();
            if alert.application.is_none() && self.options.tells_failed && !is_piece {
                let has_failed = self.flows.has_failed(&self.detector, packet);
                has_failed.then(|| event.insert("app_proto".into(), "failed".into()));
            }
            put_beside(&mut event, &self.flows.beside(&self.detector, packet));
        }
        let said = stream.as_deref().filter(|it| !it.is_empty());
        let most = self.options.payload_max.unwrap_or(usize::MAX);
        let said = said.map(|it| &it[..it.len().min(most)]);
        let payload = said.unwrap_or(own);
        eve::put_payload(&mut event, payload, stream.is_some());
        let is_known = known == Some(id(&alert.flow));
        self.put_bytes(&mut event, layer, packet, is_known);
        let is_pass =
            self.is_passed || self.rules.rule(alert.rule).action == weir_detect::Action::Pass;
        event.insert("verdict".into(), self.verdict(fate, is_pass, alerts, layer));
        if self.is_left || self.is_bypassed {
            eve::put_bypassed(&mut event);
        }
        self.push(event);
        self.seen.alerts += 1;
        self.count("detect.alert");
    }

    /// What an alert says of its packet, where that is not what its rule says.
    fn action(&self, alert: &Alert) -> Option<&'static str> {
        let is_answered = self.rules.rule(alert.rule).answered.is_some();
        match alert.is_rated {
            // As by Suricata: what becomes of the packet, or would.
            true => Some(if self.is_condemned { "blocked" } else { "allowed" }),
            // Who watches alone drops nothing, and answers all the same.
            false if is_answered && alert.blocked != Blocked::Would => Some("blocked"),
            false => (!self.options.is_inline).then_some("allowed"),
        }
    }

    /// The event of what is odd, if it is to be told.
    fn anomaly(
        &self,
        now: Time,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        odd: Oddity,
    ) -> Option<Event> {
        let wanted = self.options.events.anomaly;
        let is_wanted = match odd.names().0 {
            "applayer" => wanted.applayer,
            "stream" => wanted.stream,
            _ => wanted.decode,
        };
        if !is_wanted {
            return None;
        }
        let mut event = eve::of_packet(now, "anomaly", self.seen.packets, layer);
        let application = self.flows.application(&self.detector, packet);
        let view = self.flows.view(&self.detector, packet).filter(|_| layer.has_flow());
        // As with Suricata, which names a frame's addresses here only where that is asked for.
        if !self.options.events.ethernet {
            event.remove("ether");
        }
        if let Some(view) = view {
            self.name_flow(&mut event, &view, layer);
        }
        odd.transaction().map(|it| event.insert("tx_id".into(), it.into()));
        event.insert("anomaly".into(), eve::anomaly_object(odd, application));
        self.put_marks(&mut event, packet);
        Some(event)
    }

    /// Names the flow of a packet: here, and as other tools do.
    fn name_flow(&self, event: &mut Event, view: &FlowView, layer: &Layer<'_>) {
        sink::put_flow_id(event, view);
        // A message that another packet did not arrive is of that one's flow, and not of its kind.
        let seed = self.options.events.community_seed.filter(|_| !layer.is_complaint());
        if let Some(seed) = seed {
            let (icmp, spi) = match layer.parsed.transport {
                Transport::Icmp { kind, code } => (Some((kind, code)), None),
                Transport::Esp { spi, in_udp: false, .. } => (None, Some(spi)),
                _ => (None, None),
            };
            let FlowView { initiator, responder, .. } = *view;
            let of_answer = FlowView { initiator: responder, responder: initiator, ..*view };
            let view = if icmp.is_some() && !view.to_server { &of_answer } else { view };
            let id = flow_community_id(view, layer.parsed.protocol, icmp, spi, seed);
            event.insert("community_id".into(), id.into());
        }
    }

    /// What rules have noted of the packet's flow, and captured of it and of the packet.
    fn put_marks(&self, event: &mut Event, packet: &Packet<'_>) {
        event.extend(self.noted_of(packet));
    }

    fn noted_of(&self, packet: &Packet<'_>) -> Event {
        let mut marks = self.flows.marks(&self.detector, packet);
        let is_new = |it: &&Text| !marks.texts.contains(it);
        let late: Vec<_> = self.late_texts.iter().filter(is_new).cloned().collect();
        marks.texts.extend(late);
        eve::noted(marks)
    }

    fn stats(&mut self, decoder: BTreeMap<String, u64>) {
        let Options { is_inline, midstream, .. } = self.options;
        let mut counters = std::mem::take(&mut self.counts).into_map(is_inline, midstream);
        counters.extend(decoder.into_iter().map(|(name, count)| {
            match name.strip_prefix("event.stream.") {
                Some(stream) => (format!("stream.{stream}"), count),
                None if name.starts_with("defrag.") => (name, count),
                None => (format!("decoder.{name}"), count),
            }
        }));
        let seen = self.detector.counters();
        counters.insert("detect.alerts_suppressed".into(), seen.suppressed);
        counters.insert("tcp.reassembly_gap".into(), seen.stream_gaps);
        let [overlaps, differ] = seen.stream_overlaps;
        *counters.entry("tcp.overlap".into()).or_default() += overlaps;
        *counters.entry("tcp.overlap_diff_data".into()).or_default() += differ;
        counters.insert("tcp.stream_depth_reached".into(), seen.stream_depths);
        counters.insert("tcp.invalid_checksum".into(), seen.wrong_checksums);
        let mut event = eve::stats(self.last, &counters);
        if let Some(stats) = event.get_mut("stats") {
            let [loaded, failed, skipped] = self.rules_read;
            stats["detect"]["engines"] = json!([{
                "id": 0,
                "rules_loaded": loaded,
                "rules_failed": failed,
                "rules_skipped": skipped,
            }]);
        }
        self.push(event);
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(files) = &mut self.datasets {
            self.detector.take_dataset_changes().into_iter().for_each(|it| files.change(it));
        }
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}
