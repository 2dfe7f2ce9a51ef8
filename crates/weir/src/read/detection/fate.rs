//! What becomes of packets, and of alerts by that.

use std::io::Write;

use serde_json::json;
use weir_detect::headers::Headers;
use weir_detect::{Alert, Answered, Blocked, Decision, Packet, RuleIndex};
use weir_store::sink::eve as sink;
use weir_wire::frame::Time;
use weir_wire::parse::Transport;

use super::super::eve;
use super::super::layers::Layer;
use super::{DROPPED_MAX, Look};

impl<W: Write> Look<W> {
    /// Tells that the packet is dropped, if it is, or the one that it carries, and counts it.
    pub(super) fn tell_fate(
        &mut self,
        now: Time,
        (layer, packet): (&Layer<'_>, &Packet<'_>),
        (decision, is_dropped): (Decision, bool),
        alerts: &[Alert],
    ) {
        let is_inner_dropped = layer.outer.is_none() && std::mem::take(&mut self.is_inner_dropped);
        let is_refused = self.detector.is_refused();
        let is_gone = is_dropped || is_inner_dropped || is_refused;
        if is_gone {
            let reason = match () {
                () if is_refused => "stream error",
                () if is_inner_dropped => "tunnel packet drop",
                () if self.detector.dropped_by_flow() => "flow drop",
                () if self.detector.dropped_by_rate() => "threshold detection_filter",
                () => "rules",
            };
            let fate = match is_dropped {
                true => decision,
                false => Decision::Drop { rule: RuleIndex(0) },
            };
            self.drop_event(now, layer, packet, reason, alerts, fate);
        }
        if self.options.is_inline {
            self.count_fate(layer, if is_gone { "ips.blocked" } else { "ips.accepted" });
            if matches!(decision, Decision::Reject { .. }) && is_dropped {
                self.count("ips.rejected");
            }
        }
    }

    /// A packet went no further.
    pub(super) fn drop_event(
        &mut self,
        now: Time,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        reason: &str,
        alerts: &[Alert],
        fate: Decision,
    ) {
        if layer.outer.is_none() {
            self.count(&format!("ips.drop_reason.{}", reason.replace(' ', "_")));
        }
        if !self.options.events.drops {
            return;
        }
        // Of what a rule drops each packet is told, of a flow that is dropped the first each way.
        let is_by_rule = alerts.iter().any(|it| it.blocked != Blocked::No)
            || matches!(reason, "rules" | "threshold detection_filter");
        let view = match layer.has_flow() {
            true => self.flows.view(&self.detector, packet),
            false => None,
        };
        let mut event = eve::of_packet(now, "drop", self.seen.packets, layer);
        if let Some(view) = view {
            let id = sink::flow_id(&view);
            let dropper = alerts.iter().find(|it| it.blocked != Blocked::No);
            let transaction = dropper.and_then(|it| it.transaction.as_ref()?.number);
            transaction.map(|it| event.insert("tx_id".into(), it.into()));
            let is_of_flow = !matches!(reason, "tunnel packet drop" | "stream error");
            if self.options.events.first_drops
                && self.dropped.len() < DROPPED_MAX
                && !(self.dropped.insert((id, view.to_server)) && is_of_flow || is_by_rule)
            {
                return;
            }
            self.name_flow(&mut event, &view, layer);
            let direction = if view.to_server { "to_server" } else { "to_client" };
            event.insert("direction".into(), direction.into());
            event.insert("flow".into(), sink::flow_object(&view));
        }
        self.put_marks(&mut event, packet);
        let headers = Headers::of(layer.bytes, &layer.parsed);
        event.insert("drop".into(), sink::drop_object(&headers, reason));
        let decides = matches!(reason, "rules" | "threshold detection_filter");
        let dropper = self.detector.dropper().filter(|_| decides);
        // The first of those that are told.
        let is_dropper = |it: &&Alert| it.blocked != Blocked::No;
        let object = match (alerts.iter().find(is_dropper), dropper) {
            (Some(alert), _) => Some(sink::alert_object(alert, &self.rules)),
            // Its alert was held back, by a threshold or for being one too many.
            (None, Some(rule)) => Some(sink::rule_object(self.rules.rule(rule), true, &self.rules)),
            (None, None) => None,
        };
        if let Some(mut object) = object {
            // What a rule says of itself its alert tells.
            object.as_object_mut().map(|it| it.remove("metadata"));
            event.insert("alert".into(), object);
        }
        event.insert("verdict".into(), self.verdict(fate, false, alerts, layer));
        self.push(event);
    }

    /// What became of a packet in the end: of several rules that say so, one may drop it and
    /// another have its ends answered.
    pub(super) fn verdict(
        &self,
        fate: Decision,
        is_pass: bool,
        alerts: &[Alert],
        layer: &Layer<'_>,
    ) -> serde_json::Value {
        let mut verdict = match fate {
            Decision::Pass if is_pass => json!({ "action": "pass" }),
            Decision::Pass => json!({ "action": "alert" }),
            _ => json!({ "action": "drop" }),
        };
        let answered = alerts.iter().filter_map(|it| {
            let usual = (it.blocked == Blocked::Rejected).then_some(Answered::Sender);
            self.rules.rule(it.rule).answered.or(usual)
        });
        let by_exception = self.is_answered.then_some(Answered::Sender);
        if let Some(answered) = answered.chain(by_exception).min() {
            verdict["reject-target"] = match answered {
                Answered::Sender => "to_client",
                Answered::Receiver => "to_server",
                Answered::Both => "both",
            }
            .into();
            let is_tcp = matches!(layer.parsed.transport, Transport::Tcp { .. });
            verdict["reject"] = json!([if is_tcp { "tcp-reset" } else { "icmp-prohib" }]);
        }
        verdict
    }
}
