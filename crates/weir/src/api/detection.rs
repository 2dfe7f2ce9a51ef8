//! What the status says of rules that look at packets.

use serde::{Deserialize, Serialize};
use weir_engine::detect::{Detection, RuleMode};
use weir_engine::plain::InsideCounters;
use weir_store::sink::{AlertCounters, AlertSink, SiemCounters};

/// What the rules of a pair did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct DetectionSnapshot {
    /// `enforce` or `watch`.
    pub mode: String,
    /// Rules at work.
    pub rules: u64,
    /// Packets looked at.
    pub packets: u64,
    /// Alerts, those included that found no room.
    pub alerts: u64,
    /// Alerts that found no room to wait in.
    pub alerts_lost: u64,
    /// Packets that rules would have dropped, in mode `watch`.
    pub would_drop: u64,
    /// Flows that state is kept of.
    pub flows: u64,
    /// Flows that were forgotten before their time: for want of room, or of memory.
    pub flows_evicted: u64,
    /// Bytes of memory that flows hold for what they say; `memory_mib` bounds them.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Looks at packets that were cut short by a bound: docs/guide/detect.md, Bounds.
    pub bounds_reached: u64,
    /// TCP segments with a wrong checksum, which are no part of their connection.
    pub wrong_checksums: u64,
    /// TCP segments that their receiver does not take for their numbers; likewise.
    pub unacceptable_segments: u64,
    /// Packets that were not looked at: their connection was for long enough (`bypass_mib`).
    pub bypassed: u64,
    /// Texts that rules replaced in packets (`replace`).
    pub replaced: u64,
    /// Texts that were not: in tunnels, pieces of datagrams and RDMA.
    pub not_replaced: u64,
    /// Answers to packets that rules reject (`reject`) which were sent.
    pub answers: u64,
    /// Those that were not: there are 1,000 a second and worker at most.
    pub answers_left_out: u64,
    /// What was odd about packets, with `eve_anomalies`.
    pub anomalies: u64,
    /// Of that, what found no room to wait in.
    pub anomalies_lost: u64,
    /// Rules that dropped packets, or would have, in the order of evaluation.
    pub drops: Vec<RuleDropsSnapshot>,
}

/// A rule that dropped packets, or would have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct RuleDropsSnapshot {
    /// Its number.
    pub sid: u32,
    /// Its message.
    pub signature: String,
    /// How many packets.
    pub packets: u64,
    /// Of those, packets that passed: it would have dropped them.
    #[serde(default)]
    pub would_drop: u64,
}

/// What became of all pairs' alerts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct AlertsSnapshot {
    /// Alerts handed over by workers.
    pub alerts: u64,
    /// Of those, written to the file of EVE.
    pub written: u64,
    /// Of those, lost: too many at once, or the file cannot be written.
    pub lost: u64,
    /// Records of flows and transactions, for the file of EVE.
    pub records: u64,
    /// Of those, lost: they make room for alerts.
    pub records_lost: u64,
    /// Lines of `fast.log` that could not be written.
    pub fast_lost: u64,
    /// Files that cannot be written now, and why.
    pub failures: Vec<String>,
    /// What sinks were told.
    pub sinks: Vec<SinkSnapshot>,
}

/// One `[[sink]]`. events = sent + lost + waiting, and those under way.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct SinkSnapshot {
    /// Where to.
    pub to: String,
    /// Events that its filter let through.
    pub events: u64,
    /// Of those, handed to the network.
    pub sent: u64,
    /// Of those, lost: too many at once, a full spool, or a network that refuses.
    pub lost: u64,
    /// On disk, until it is there again.
    pub waiting: u64,
    /// Sent once more, because a connection broke.
    pub repeated: u64,
    /// Why there is no connection now.
    pub failure: Option<String>,
}

impl AlertsSnapshot {
    /// For people: a line, and one for each sink.
    pub fn lines(&self) -> String {
        let Self { alerts, written, lost, records, records_lost, fast_lost, failures, sinks } =
            self;
        let mut text = format!(
            "alerts: {alerts}, of them {written} written, {lost} lost; {records} records, of them \
             {records_lost} lost\n"
        );
        if *fast_lost > 0 {
            text += &format!("fast.log: {fast_lost} alerts lost\n");
        }
        for failure in failures {
            text += &format!("alerts: NOT WRITTEN NOW: {failure}\n");
        }
        for SinkSnapshot { to, events, sent, lost, waiting, repeated, failure } in sinks {
            text += &format!(
                "sink {to}: {events} events since the start, {sent} sent, {waiting} wait, {lost} \
                 lost; {repeated} repeated\n"
            );
            if let Some(failure) = failure {
                text += &format!("sink {to}: DOWN: {failure}\n");
            }
        }
        text
    }
}

impl DetectionSnapshot {
    /// For people.
    pub fn line(&self) -> String {
        let Self { rules, mode, packets, alerts, would_drop, .. } = self;
        let Self { flows_evicted, bounds_reached, alerts_lost, .. } = self;
        if *rules == 0 {
            return "  rules: NONE RUNS: nothing is looked for\n".to_owned();
        }
        let may = if mode == "watch" { "only watch" } else { mode };
        let passed = match would_drop {
            0 => String::new(),
            count => format!(", {count} packets passed that rules drop"),
        };
        let mut text = format!("  rules: {rules} run and {may}; {packets} packets, ");
        text += &format!("{alerts} alerts{passed}\n");
        if *alerts_lost > 0 {
            text += &format!(
                "  rules: {alerts_lost} ALERTS LOST of these: more came at once than could wait\n"
            );
        }
        // What rules may have missed.
        if flows_evicted + bounds_reached > 0 {
            text += &format!(
                "  rules: {flows_evicted} flows forgotten before their time, {bounds_reached} \
                 looks cut short by a bound\n"
            );
        }
        text
    }

    /// What one worker's rules did.
    pub fn new(detection: &Detection) -> Self {
        let counters = detection.counters();
        let mode = match detection.mode() {
            RuleMode::Enforce => "enforce",
            RuleMode::Watch => "watch",
        };
        let drops = detection.drops().map(|it| RuleDropsSnapshot {
            sid: it.sid,
            signature: it.message.to_owned(),
            packets: it.packets,
            would_drop: it.would_drop,
        });
        let [replaced, not_replaced] = detection.replaced();
        let answers = detection.answers();
        Self {
            mode: mode.to_owned(),
            rules: detection.rules().len() as u64,
            packets: counters.packets,
            alerts: counters.alerts,
            alerts_lost: detection.alerts_lost(),
            would_drop: detection.would_drop(),
            flows: detection.flows() as u64,
            flows_evicted: detection.flows_evicted(),
            memory_bytes: detection.memory() as u64,
            bounds_reached: counters.candidates_lost
                + counters.evaluations_given_up
                + counters.pcre_limits
                + counters.stream_gaps
                + counters.bits_lost
                + counters.thresholds_lost,
            wrong_checksums: counters.wrong_checksums,
            unacceptable_segments: counters.unacceptable_segments,
            bypassed: counters.bypassed,
            replaced,
            not_replaced,
            answers: answers.given,
            answers_left_out: answers.left_out,
            anomalies: counters.anomalies,
            anomalies_lost: counters.anomalies_lost,
            drops: drops.collect(),
        }
    }

    /// Adds what another worker's rules did.
    pub(super) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.packets, more.packets),
            (&mut self.alerts, more.alerts),
            (&mut self.alerts_lost, more.alerts_lost),
            (&mut self.would_drop, more.would_drop),
            (&mut self.flows, more.flows),
            (&mut self.flows_evicted, more.flows_evicted),
            (&mut self.memory_bytes, more.memory_bytes),
            (&mut self.bounds_reached, more.bounds_reached),
            (&mut self.wrong_checksums, more.wrong_checksums),
            (&mut self.unacceptable_segments, more.unacceptable_segments),
            (&mut self.bypassed, more.bypassed),
            (&mut self.replaced, more.replaced),
            (&mut self.not_replaced, more.not_replaced),
            (&mut self.answers, more.answers),
            (&mut self.answers_left_out, more.answers_left_out),
            (&mut self.anomalies, more.anomalies),
            (&mut self.anomalies_lost, more.anomalies_lost),
        ] {
            *sum += more;
        }
        for more in &more.drops {
            match self.drops.iter_mut().find(|it| it.sid == more.sid) {
                Some(same) => {
                    same.packets += more.packets;
                    same.would_drop += more.would_drop;
                }
                None => self.drops.push(more.clone()),
            }
        }
    }
}

/// What lines of access and rules found inside of packets: what tunnels carry, and datagrams that
/// came in pieces.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct InsideSnapshot {
    /// Packets that others carried.
    pub carried: u64,
    /// Datagrams that were whole with their last piece.
    pub assembled: u64,
    /// Packets with more layers than are looked at: the exception `layers`.
    pub too_deep: u64,
    /// Datagrams of which pieces were given up: the exception `fragments`.
    pub given_up: u64,
}

impl InsideSnapshot {
    /// For people; nothing where nothing was looked into.
    pub fn line(&self) -> String {
        let Self { carried, assembled, too_deep, given_up } = self;
        if *self == Self::default() {
            return String::new();
        }
        format!(
            "  inside: {carried} packets that others carried, {assembled} datagrams put together; \
             {too_deep} too deep, {given_up} given up\n"
        )
    }

    /// Adds what another worker found.
    pub(super) fn add(&mut self, more: &Self) {
        self.carried += more.carried;
        self.assembled += more.assembled;
        self.too_deep += more.too_deep;
        self.given_up += more.given_up;
    }
}

impl From<InsideCounters> for InsideSnapshot {
    fn from(counters: InsideCounters) -> Self {
        let InsideCounters { carried, assembled, too_deep, given_up } = counters;
        Self { carried, assembled, too_deep, given_up }
    }
}

impl From<&AlertSink> for AlertsSnapshot {
    fn from(sink: &AlertSink) -> Self {
        let AlertCounters { alerts, written, lost, records, records_lost, fast_lost, failures } =
            sink.counters();
        let of = |(to, it): (String, SiemCounters)| SinkSnapshot {
            to,
            events: it.events,
            sent: it.sent,
            lost: it.lost,
            waiting: it.waiting,
            repeated: it.repeated,
            failure: it.failure,
        };
        let sinks = sink.sinks().into_iter().map(of).collect();
        Self { alerts, written, lost, records, records_lost, fast_lost, failures, sinks }
    }
}
