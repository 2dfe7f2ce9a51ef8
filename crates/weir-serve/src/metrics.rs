//! `/metrics`: the counters that gateways publish, in Prometheus' text format. Names and units are
//! an interface.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use crate::app::App;
use crate::dto::PortAccount;
use crate::status::{Pair, Side, Status};

/// Prometheus' text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of all gateways
pub(crate) async fn show(State(app): State<Arc<App>>) -> impl IntoResponse {
    let down = app.board.summaries().into_iter().filter(|it| !it.is_up).map(|it| it.name);
    let text = text(&app.board.statuses(), &down.collect::<Vec<_>>());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

/// A metric's lines, which stand together whatever gateway they are of.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    lines: String,
}

impl Metric {
    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: "counter", help, lines: String::new() }
    }

    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: "gauge", help, lines: String::new() }
    }

    fn add(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.lines, "{}{{{}}} {value}", self.name, labels.join(","));
    }

    fn write(&self, out: &mut String) {
        if !self.lines.is_empty() {
            let Self { name, kind, help, lines } = self;
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
    }
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn text(statuses: &[Status], down: &[String]) -> String {
    let mut out = String::new();
    gateway_metrics(statuses, down).iter().for_each(|it| it.write(&mut out));
    frame_metrics(statuses).iter().for_each(|it| it.write(&mut out));
    peer_metrics(statuses).iter().for_each(|it| it.write(&mut out));
    rdma_metrics(statuses).iter().for_each(|it| it.write(&mut out));
    detection_metrics(statuses).iter().for_each(|it| it.write(&mut out));
    collector_metrics(statuses).iter().for_each(|it| it.write(&mut out));
    out
}

fn gateway_metrics(statuses: &[Status], down: &[String]) -> Vec<Metric> {
    let mut up = Metric::gauge("weir_up", "Whether the gateway answers.");
    let mut info = Metric::gauge("weir_info", "The gateway's version; always 1.");
    let mut uptime = Metric::gauge("weir_uptime_seconds", "Seconds since it was ready.");
    let mut adds_up = Metric::gauge("weir_counters_add_up", "Whether every frame has a verdict.");
    let mut refused =
        Metric::counter("weir_reloads_refused_total", "Configurations that were refused.");
    let mut written = Metric::counter("weir_store_records_written_total", "Records on the disk.");
    let mut lost = Metric::counter(
        "weir_store_records_lost_total",
        "Records lost because the store could not take them in time.",
    );
    let mut bytes = Metric::gauge("weir_store_bytes", "Bytes in use in the store.");
    let mut failed = Metric::gauge("weir_store_failed", "Whether nothing is stored now.");
    for name in down {
        up.add(&[("gateway", name)], 0);
    }
    for status in statuses {
        let gateway = ("gateway", status.name.as_str());
        up.add(&[gateway], 1);
        info.add(&[gateway, ("version", &status.version)], 1);
        uptime.add(&[gateway], status.uptime_seconds);
        adds_up.add(&[gateway], u8::from(status.adds_up));
        refused.add(&[gateway], status.reloads_refused);
        if let Some(store) = &status.store {
            written.add(&[gateway], store.written);
            lost.add(&[gateway], store.overflowed);
            bytes.add(&[gateway], store.bytes);
            failed.add(&[gateway], u8::from(store.failure.is_some()));
        }
    }
    vec![up, info, uptime, adds_up, refused, written, lost, bytes, failed]
}

/// Each side of each pair, with the labels that tell it.
fn sides(statuses: &[Status]) -> impl Iterator<Item = ([(&str, &str); 3], &Pair, &Side)> {
    statuses.iter().flat_map(|status| {
        status.pairs.iter().flat_map(move |pair| {
            let sides = [("host", &pair.host), ("wire", &pair.wire)];
            sides.map(move |(name, side)| {
                let labels = [
                    ("gateway", status.name.as_str()),
                    ("pair", pair.name.as_str()),
                    ("side", name),
                ];
                (labels, pair, side)
            })
        })
    })
}

fn frame_metrics(statuses: &[Status]) -> Vec<Metric> {
    let mut received = Metric::counter(
        "weir_received_frames_total",
        "Frames received: accepted, bypassed and dropped ones; a super-packet is one.",
    );
    let mut bytes = Metric::counter("weir_received_bytes_total", "Their bytes.");
    let mut accepted = Metric::counter(
        "weir_accepted_frames_total",
        "Frames sealed, opened, forwarded or taken in, as the policy wants it.",
    );
    let mut bypassed = Metric::counter(
        "weir_bypassed_frames_total",
        "Frames passed in clear where the gateway seals.",
    );
    let mut dropped = Metric::counter("weir_dropped_frames_total", "Frames dropped, by reason.");
    let mut lost = Metric::counter(
        "weir_port_lost_frames_total",
        "Frames that a port lost before or after the gateway had them, by cause.",
    );
    let mut sealed = Metric::counter("weir_sealed_frames_total", "Frames sealed or tagged.");
    let mut fast = Metric::counter("weir_fast_frames_total", "Frames that the kernel carried.");
    for (labels, pair, side) in sides(statuses) {
        let [gateway, pair_label, name] = labels;
        received.add(&labels, side.received);
        bytes.add(&labels, side.received_bytes);
        let account = PortAccount::of(gateway.1, &pair.name, name.1, side);
        accepted.add(&labels, account.accepted);
        bypassed.add(&labels, account.bypassed);
        sealed.add(&labels, side.sealed + side.tagged + side.handed);
        fast.add(&labels, side.fast);
        for (reason, count) in &side.dropped_by_reason {
            dropped.add(&[gateway, pair_label, name, ("reason", reason)], count);
        }
        for (cause, count) in side.port.losses() {
            lost.add(&[gateway, pair_label, name, ("cause", cause)], count);
        }
    }
    vec![received, bytes, accepted, bypassed, dropped, lost, sealed, fast]
}

fn peer_metrics(statuses: &[Status]) -> Vec<Metric> {
    let mut up = Metric::gauge("weir_peer_up", "Whether the peer is up.");
    let mut sealed = Metric::counter("weir_peer_sealed_packets_total", "ESP packets sent.");
    let mut sealed_bytes =
        Metric::counter("weir_peer_sealed_bytes_total", "Bytes of plaintext in them.");
    let mut opened = Metric::counter("weir_peer_opened_packets_total", "ESP packets opened.");
    let mut opened_bytes =
        Metric::counter("weir_peer_opened_bytes_total", "Bytes of plaintext in them.");
    for status in statuses {
        for pair in &status.pairs {
            for peer in &pair.peers {
                let labels = [
                    ("gateway", status.name.as_str()),
                    ("pair", pair.name.as_str()),
                    ("peer", peer.name.as_str()),
                ];
                up.add(&labels, u8::from(peer.state() == "up"));
                sealed.add(&labels, peer.sealed_packets);
                sealed_bytes.add(&labels, peer.sealed_bytes);
                opened.add(&labels, peer.opened_packets);
                opened_bytes.add(&labels, peer.opened_bytes);
            }
        }
    }
    vec![up, sealed, sealed_bytes, opened, opened_bytes]
}

fn rdma_metrics(statuses: &[Status]) -> Vec<Metric> {
    let mut packets = Metric::counter("weir_rdma_packets_total", "RDMA packets seen in clear.");
    let mut queue_pairs = Metric::gauge("weir_rdma_queue_pairs", "Queue pairs seen.");
    let mut icrc_bad = Metric::counter("weir_rdma_icrc_bad_total", "Wrong invariant CRCs.");
    let mut naks = Metric::counter("weir_rdma_naks_total", "Refusals, by cause.");
    let mut rnr = Metric::counter("weir_rdma_rnr_naks_total", "Receiver-not-ready answers.");
    let mut again = Metric::counter("weir_rdma_retransmissions_total", "Packets sent again.");
    let mut lost = Metric::counter("weir_rdma_lost_packets_total", "Lost packets, by whose side.");
    let mut cnp = Metric::counter("weir_rdma_cnp_total", "Congestion notification packets.");
    let mut flows = Metric::gauge("weir_flows", "Flows in the table.");
    let mut plaintext = Metric::counter(
        "weir_wire_plaintext_frames_total",
        "Frames that came to the wire in plaintext and should not have.",
    );
    for status in statuses {
        for pair in &status.pairs {
            let labels = [("gateway", status.name.as_str()), ("pair", pair.name.as_str())];
            let rdma = &pair.rdma;
            packets.add(&labels, rdma.packets);
            queue_pairs.add(&labels, rdma.queue_pairs);
            icrc_bad.add(&labels, rdma.icrc_bad);
            rnr.add(&labels, rdma.rnr_naks);
            again.add(&labels, rdma.retransmissions);
            cnp.add(&labels, rdma.cnp);
            flows.add(&labels, pair.flows);
            plaintext.add(&labels, pair.wire_proof.plaintext);
            for (cause, count) in &rdma.naks {
                naks.add(&[labels[0], labels[1], ("cause", cause)], count);
            }
            let losses = &rdma.losses;
            for (place, count) in [
                ("host_side", losses.host_side),
                ("gateway", losses.gateway),
                ("wire_side", losses.wire_side),
            ] {
                lost.add(&[labels[0], labels[1], ("place", place)], count);
            }
        }
    }
    vec![packets, queue_pairs, icrc_bad, naks, rnr, again, lost, cnp, flows, plaintext]
}

/// Rules, what they found, and the sinks that are told of it.
fn detection_metrics(statuses: &[Status]) -> Vec<Metric> {
    let mut rules = Metric::gauge("weir_rules", "Detection rules at work.");
    let mut refused = Metric::gauge("weir_rules_refused", "Detection rules that do not run.");
    let mut alerts = Metric::counter("weir_alerts_total", "Alerts of rules.");
    let mut lost = Metric::counter("weir_alerts_lost_total", "Alerts lost, by where.");
    let mut records = Metric::counter("weir_eve_records_lost_total", "Records lost to EVE.");
    let mut up = Metric::gauge("weir_sink_up", "0 while the sink takes nothing.");
    let mut events = Metric::counter("weir_sink_events_total", "Events, by what became of them.");
    let mut waiting = Metric::gauge("weir_sink_waiting_events", "Events that wait for the sink.");
    for status in statuses {
        let gateway = ("gateway", status.name.as_str());
        for pair in &status.pairs {
            let Some(detection) = &pair.detection else { continue };
            let labels = [gateway, ("pair", pair.name.as_str())];
            rules.add(&labels, detection.rules);
            alerts.add(&labels, detection.alerts);
            lost.add(&[labels[0], labels[1], ("where", "queue")], detection.alerts_lost);
        }
        if status.pairs.iter().any(|it| it.detection.is_some()) {
            refused.add(&[gateway], status.configuration.rules_refused);
        }
        let Some(told) = &status.alerts else { continue };
        lost.add(&[gateway, ("where", "eve")], told.lost);
        records.add(&[gateway], told.records_lost);
        for sink in &told.sinks {
            let labels = [gateway, ("sink", sink.to.as_str())];
            up.add(&labels, u8::from(sink.failure.is_none()));
            events.add(&[labels[0], labels[1], ("result", "sent")], sink.sent);
            events.add(&[labels[0], labels[1], ("result", "lost")], sink.lost);
            waiting.add(&labels, sink.waiting);
        }
    }
    vec![rules, refused, alerts, lost, records, up, events, waiting]
}

/// What `weir collect` was sent.
fn collector_metrics(statuses: &[Status]) -> Vec<Metric> {
    let mut messages = Metric::counter("weir_exporter_messages_total", "Messages that were read.");
    let mut records = Metric::counter("weir_exporter_records_total", "Records in them.");
    let mut lost = Metric::counter(
        "weir_exporter_lost_total",
        "Missing by sequence numbers: records (NetFlow v5, IPFIX) or messages (v9).",
    );
    let mut late = Metric::counter("weir_exporter_late_total", "Of those, what came later.");
    let mut restarts =
        Metric::counter("weir_exporter_restarts_total", "Times that its numbers began anew.");
    let mut unread = Metric::counter(
        "weir_exporter_unread_total",
        "Sets without template or not taken apart, malformed messages, records left out; by cause.",
    );
    let mut refused = Metric::counter(
        "weir_collector_refused_total",
        "Messages and connections that were not taken, by cause.",
    );
    for status in statuses {
        let Some(collector) = &status.collector else { continue };
        let gateway = ("gateway", status.name.as_str());
        for (cause, count) in &collector.refused {
            refused.add(&[gateway, ("cause", cause)], count);
        }
        for exporter in &collector.exporters {
            let domain = exporter.domain.to_string();
            let labels = [gateway, ("exporter", &exporter.exporter), ("domain", &domain)];
            for (name, count) in &exporter.counters {
                match name.as_str() {
                    "messages" => messages.add(&labels, count),
                    "records" => records.add(&labels, count),
                    "lost" => lost.add(&labels, count),
                    "late" => late.add(&labels, count),
                    "restarts" => restarts.add(&labels, count),
                    cause => {
                        unread.add(&[labels[0], labels[1], labels[2], ("cause", cause)], count)
                    }
                }
            }
        }
    }
    vec![messages, records, lost, late, restarts, unread, refused]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let status = Status { name: "a\"b\\c\nd".into(), ..Status::default() };
        let text = text(&[status], &[]);
        assert!(text.contains("weir_up{gateway=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
        assert_eq!(text.lines().filter(|it| it.starts_with("# TYPE weir_up ")).count(), 1);
    }

    #[test]
    fn a_sink_that_is_down_and_rules_that_do_not_run_are_told() {
        let status = serde_json::json!({
            "name": "gw-a",
            "pairs": [{ "name": "p", "detection": { "rules": 7, "alerts": 5, "alerts_lost": 1 } }],
            "alerts": { "lost": 2, "sinks": [
                { "to": "tcp://siem:514", "sent": 3, "waiting": 4, "failure": "refused" },
            ] },
            "configuration": { "rules_refused": 2 },
        });
        let text = text(&[serde_json::from_value(status).unwrap()], &[]);
        for line in [
            "weir_rules{gateway=\"gw-a\",pair=\"p\"} 7",
            "weir_rules_refused{gateway=\"gw-a\"} 2",
            "weir_alerts_total{gateway=\"gw-a\",pair=\"p\"} 5",
            "weir_alerts_lost_total{gateway=\"gw-a\",pair=\"p\",where=\"queue\"} 1",
            "weir_alerts_lost_total{gateway=\"gw-a\",where=\"eve\"} 2",
            "weir_sink_up{gateway=\"gw-a\",sink=\"tcp://siem:514\"} 0",
            "weir_sink_waiting_events{gateway=\"gw-a\",sink=\"tcp://siem:514\"} 4",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
