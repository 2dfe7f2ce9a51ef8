//! Flows that ended, and messages: what is told of them, and when.

use std::io::Write;

use serde_json::{Value, json};
use weir_detect::alert::FlowView;
use weir_detect::record::{ApplicationRecord, FlowRecord, HttpRecord, UnitRecord};
use weir_detect::{Packet, Vlans};
use weir_store::sink::eve as sink;

use super::super::eve::{self, Event};
use super::super::events::Events;
use super::super::exception::{Cause, Exception};
use super::super::layers::Layer;
use super::held::FLOW_TIMEOUT;
use super::macs;
use super::waiting::Segment;
use super::{Look, Options};

/// TCP's number.
const TCP: u8 = 6;

/// What is told of HTTP where more is asked for.
const HTTP_EXTENDED: [&str; 7] =
    ["http_refer", "http_method", "protocol", "status", "status_string", "redirect", "length"];

impl<W: Write> Look<W> {
    /// Tells of what has ended.
    pub(super) fn ended(&mut self) {
        let http = self.detector.take_http();
        let told = self.detector.take_told();
        let records = self.flows.take_ended();
        let mut units = std::mem::take(&mut self.units);
        units.extend(self.detector.take_units());
        // Files are told behind the exchange that moved them.
        http.iter().for_each(|it| self.http(it, None));
        units.iter().for_each(|it| self.unit(it, None));
        told.iter().for_each(|it| self.application(it, None));
        records.into_iter().for_each(|it| self.flow(it));
        self.late_texts.clear();
    }

    /// Tells of a flow that ended, behind what was said in it.
    fn flow(&mut self, mut record: FlowRecord) {
        let Events { flow, netflow, community_seed, .. } = self.options.events;
        let is_inline = self.options.is_inline;
        let id = sink::flow_id(&record.view);
        self.noted = record.marks.as_deref().cloned().map(eve::noted).unwrap_or_default();
        self.sent.remove(&id);
        self.sealed.remove(&id);
        let macs = self.macs.end(id);
        self.tell_held_of(&record.view);
        self.tell_odd_late(id, record.vlans);
        let exception = self.exceptions.remove(&id);
        if let Some((_, Some(Exception::Bypass))) = exception {
            // What is not looked at counts as handed on, and Suricata lets go of what was said.
            record.view.bypassed.get_or_insert_default();
            record.transactions = 0;
        }
        self.counts.flow(&record);
        let (over, left) = (Some(record.vlans), self.waiting.end(id));
        // Nobody answered who could have taken in what was said.
        let Options { waits, midstream, as_ips, as_suricata, .. } = &self.options;
        let (waits, as_ips) = (*waits && !midstream && !as_suricata.follows_one_side, *as_ips);
        let begins = record.protocol == TCP && !record.is_midstream;
        let is_unheard = waits && begins && record.view.packets[1] == 0;
        match is_unheard {
            true => record.application = None,
            false => left.into_iter().for_each(|it| self.push_late(it, record.vlans)),
        }
        // Of what was dropped nobody knows how it would have ended.
        if !(is_unheard || record.is_dropped && as_ips) {
            record.http.iter().for_each(|it| self.http(it, over));
            record.units.iter().for_each(|it| self.unit(it, over));
            record.applications.iter().for_each(|it| self.application(it, over));
        }
        if self.options.tells_failed {
            self.alerts_at_end(&record);
        }
        // What other flows say is told without them.
        let noted = std::mem::take(&mut self.noted);
        if flow && !record.is_untold {
            let mut event = eve::flow(&record, community_seed);
            if self.options.tells_failed && record.has_failed && record.application.is_none() {
                event.insert("app_proto".into(), "failed".into());
            }
            event.extend(noted.clone());
            macs::put(&mut event, macs.as_ref(), 0);
            let usual = record.is_midstream.then_some((Cause::Midstream, None));
            let exception = exception.filter(|it| it.0 != Cause::Settled).or(usual);
            if let (Some(flow), Some((cause, policy))) = (event.get_mut("flow"), exception) {
                let name = policy.map_or("ignore", Exception::name);
                let what = json!({ "target": cause.name(), "policy": name });
                flow["exception_policy"] = json!([what]);
                if let Some(action) = policy.and_then(|it| it.action(is_inline)) {
                    flow["action"] = action.into();
                }
            }
            self.push(event);
        }
        if netflow {
            for (side, mut event) in eve::netflow(&record, community_seed) {
                macs::put(&mut event, macs.as_ref(), side);
                // As by Suricata: when the flow was found to be over.
                event.insert("timestamp".into(), sink::timestamp(self.last).into());
                if record.has_failed && record.application.is_none() {
                    event.insert("app_proto".into(), "failed".into());
                }
                event.extend(noted.clone());
                self.push(event);
            }
        }
    }

    /// Alerts of rules that ask what is spoken alone, about a connection that nobody closed.
    fn alerts_at_end(&mut self, record: &FlowRecord) {
        for alert in self.rules.clone().at_end(record) {
            let mut event = sink::alert_event(&alert, &self.rules);
            let is_mapped = record.view.initiator.address.starts_with(&[0; 10]);
            event.insert("ip_v".into(), if is_mapped { 4 } else { 6 }.into());
            event.insert("verdict".into(), json!({ "action": "alert" }));
            event.insert("stream".into(), 0.into());
            self.seen.alerts += 1;
            self.count("detect.alert");
            self.push_late(event, record.vlans);
        }
    }

    fn http(&mut self, record: &HttpRecord, over: Option<Vlans>) {
        let applications = &self.options.events.applications;
        let is_apart = record.is_of_http2 && applications.is_http2_apart;
        if applications.tells(if is_apart { "http2" } else { "http" }) {
            let mut event = eve::http(self.last, record);
            if self.options.http_brief
                && !record.is_of_http2
                && let Some(http) = event.get_mut("http").and_then(Value::as_object_mut)
            {
                HTTP_EXTENDED.iter().for_each(|it| drop(http.remove(*it)));
            }
            if !record.is_of_http2 {
                self.choose_headers(&mut event["http"]);
            }
            self.message(event, (&record.flow, TCP), over);
        }
    }

    /// Leaves out headers that nobody asked for.
    fn choose_headers(&self, http: &mut Value) {
        let Options { http_headers, http_custom, .. } = &self.options;
        let Some(http) = http.as_object_mut() else { return };
        for (name, is_whole) in ["request_headers", "response_headers"].iter().zip(http_headers) {
            let Some(Value::Array(headers)) = http.get_mut(*name) else { continue };
            let is_asked = |it: &Value| {
                let name = it["name"].as_str().unwrap_or_default().to_ascii_lowercase();
                http_custom.contains(&name)
            };
            headers.retain(|it| *is_whole || is_asked(it));
            if headers.is_empty() && !is_whole {
                http.remove(*name);
            }
        }
    }

    /// A message, or a session.
    fn application(&mut self, record: &ApplicationRecord, over: Option<Vlans>) {
        let applications = &self.options.events.applications;
        if !applications.tells(record.kind) {
            return;
        }
        let mut event = eve::application(record);
        if let Some(tls) = event.get_mut("tls") {
            match &applications.tls {
                Some(wanted) => eve::choose_tls(tls, wanted),
                None => eve::choose_tls(tls, &eve::USUAL_TLS),
            }
        }
        for event in applications.dns.events(event) {
            self.message(event, (&record.flow, record.protocol), over);
        }
    }

    /// A transaction that ended.
    fn unit(&mut self, record: &UnitRecord, over: Option<Vlans>) {
        if self.options.events.applications.tells(record.kind) {
            self.message(eve::unit(record), (&record.flow, record.protocol), over);
        }
    }

    /// Tells of a message that the packet at hand brought, or, with its VLANs, a flow that is over.
    fn message(&mut self, event: Event, (flow, protocol): (&FlowView, u8), over: Option<Vlans>) {
        let id = sink::flow_id(flow);
        if let Some(vlans) = over.filter(|_| protocol == TCP) {
            return self.push_late(event, vlans);
        }
        match self.at {
            Some((at, to_server, segment)) if self.options.waits && protocol == TCP && at == id => {
                let sides = [to_server, flow.to_server];
                let no_room = self.waiting.hold(id, (sides, segment.end), event);
                no_room.into_iter().for_each(|it| self.push_with_packet(it));
            }
            _ => self.push_with_packet(event),
        }
    }

    fn push_with_packet(&mut self, mut event: Event) {
        let is_of_packet = !self.is_flushed(&event);
        if is_of_packet && self.source == "wire/pcap" {
            event.insert("pcap_cnt".into(), self.seen.packets.into());
        }
        let source = if is_of_packet { self.source } else { "stream (detect/log)" };
        event.insert("pkt_src".into(), source.into());
        if !self.vlans.ids().is_empty() {
            event.insert("vlan".into(), self.vlans.ids().into());
        }
        event.extend(self.noted.clone());
        if let Some(ether) = &self.ether {
            event.insert("ether".into(), ether.clone());
        }
        self.push(event);
    }

    /// Whether it is of HTTP in a flow that has gone on in something else: Suricata ends that with
    /// a packet of its own.
    fn is_flushed(&self, event: &Event) -> bool {
        let waits = self.options.waits || self.options.as_ips;
        if !waits || event.get("proto").is_none_or(|it| it != "TCP") {
            return false;
        }
        let is_of_http = event.get("event_type").is_some_and(|it| it == "http");
        let is_http2 =
            || event.get("http").is_some_and(|it| it.get("version") == Some(&json!("2")));
        match self.spoken {
            Some("http2") => is_of_http && !is_http2(),
            Some("websocket") => is_of_http,
            _ => false,
        }
    }

    /// Tells of a message behind the last packet of its flow.
    pub(super) fn push_late(&mut self, event: Event, vlans: Vlans) {
        self.push_made_up(event, vlans, FLOW_TIMEOUT);
    }

    /// Tells of a message with a packet that is made up for it.
    pub(super) fn push_made_up(&mut self, mut event: Event, vlans: Vlans, source: &str) {
        if !vlans.ids().is_empty() {
            event.insert("vlan".into(), vlans.ids().into());
        }
        // It is told when the flow is found to be over.
        event.insert("timestamp".into(), sink::timestamp(self.last).into());
        event.insert("pkt_src".into(), source.into());
        for (name, noted) in &self.noted {
            event.entry(name.clone()).or_insert_with(|| noted.clone());
        }
        self.push(event);
    }

    /// Tells of messages that the packet at hand acknowledges.
    pub(super) fn tell_acknowledged(&mut self, layer: &Layer<'_>, packet: &Packet<'_>) {
        let Some(segment) = Segment::of(layer) else { return };
        if !self.options.waits || self.detector.is_ignored() {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let id = sink::flow_id(&view);
        let is_alone = self.is_alone(packet);
        self.at = (!is_alone).then_some((id, view.to_server, segment));
        let mut told = self.waiting.take(id, view.to_server, segment);
        if is_alone || self.flows.has_ended(&self.detector, packet) {
            // Nobody says more that could acknowledge it.
            told.extend(self.waiting.end(id));
            self.at = None;
        }
        for mut event in told {
            event.insert("timestamp".into(), sink::timestamp(self.last).into());
            self.answer(&mut event, packet);
            self.push_with_packet(event);
        }
    }

    /// A file that was sent with a request tells of what has come of the answer by now.
    fn answer(&self, event: &mut Event, packet: &Packet<'_>) {
        let Some(number) = event.get("fileinfo").and_then(|it| it["tx_id"].as_u64()) else {
            return;
        };
        let of_client = (number, true);
        let Some(now) = self.flows.transaction(&self.detector, packet, of_client) else { return };
        if let ([("http", now)], Some(told)) = (&now.objects[..], event.get_mut("http")) {
            *told = sink::object(now);
        }
    }
}
