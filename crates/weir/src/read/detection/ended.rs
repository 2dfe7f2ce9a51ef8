//! Flows that ended, and messages: what is told of them, and when.

use std::io::Write;

use serde_json::{Value, json};
use weir_detect::Packet;
use weir_detect::alert::FlowView;
use weir_detect::record::{ApplicationRecord, FlowRecord, HttpRecord, UnitRecord};
use weir_store::sink::eve as sink;
use weir_wire::parse::Transport;

use super::super::eve::{self, Event};
use super::super::events::Events;
use super::super::exception::{Cause, Exception};
use super::super::layers::Layer;
use super::{Look, Options};

/// TCP's number.
const TCP: u8 = 6;

impl<W: Write> Look<W> {
    /// Tells of what has ended.
    pub(super) fn ended(&mut self) {
        let http = self.detector.take_http();
        let told = self.detector.take_told();
        let (mut late_http, mut late) = (Vec::new(), Vec::new());
        let records = self.flows.take_ended();
        let units = self.detector.take_units();
        let Events { flow, netflow, community_seed, .. } = self.options.events;
        let is_inline = self.options.is_inline;
        units.iter().for_each(|it| self.unit(it, false));
        for mut record in records {
            let id = sink::flow_id(&record.view);
            self.sent.remove(&id);
            let exception = self.exceptions.remove(&id);
            if let Some((cause, Some(policy))) = exception {
                self.mark(&mut record, cause, policy);
            }
            self.counts.flow(&record);
            record.units.iter().for_each(|it| self.unit(it, true));
            let left = self.waiting.end(sink::flow_id(&record.view));
            left.into_iter().for_each(|it| self.push_late(it));
            let noted = eve::noted(record.marks.clone());
            if flow && !record.is_untold {
                let mut event = eve::flow(&record, community_seed);
                if self.options.tells_failed && record.has_failed && record.application.is_none() {
                    event.insert("app_proto".into(), "failed".into());
                }
                if !noted.is_empty() {
                    event.insert("metadata".into(), noted.clone().into());
                }
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
                for mut event in eve::netflow(&record) {
                    if record.has_failed && record.application.is_none() {
                        event.insert("app_proto".into(), "failed".into());
                    }
                    if !noted.is_empty() {
                        event.insert("metadata".into(), noted.clone().into());
                    }
                    self.push(event);
                }
            }
            late_http.extend(record.http);
            late.extend(record.applications);
        }
        http.iter().for_each(|it| self.http(it, false));
        late_http.iter().for_each(|it| self.http(it, true));
        told.iter().for_each(|it| self.application(it, false));
        late.iter().for_each(|it| self.application(it, true));
    }

    /// What an exception makes of a flow's record: of one made with the first packet no rule has
    /// told anything, and what is not looked at counts as handed on.
    fn mark(&self, record: &mut FlowRecord, cause: Cause, policy: Exception) {
        let is_seen = policy == Exception::Reject && !self.options.is_inline;
        let is_whole = !matches!(policy, Exception::DropPacket | Exception::PassPacket);
        record.is_alerted &= cause != Cause::Midstream || is_seen || !is_whole;
        if policy == Exception::Bypass {
            record.view.bypassed.get_or_insert_default();
        }
    }

    fn http(&mut self, record: &HttpRecord, is_over: bool) {
        if self.options.events.applications.tells("http") {
            let mut event = eve::http(self.last, record);
            if !record.is_of_http2 {
                self.choose_headers(&mut event["http"]);
            }
            self.message(event, (&record.flow, TCP), is_over);
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
    fn application(&mut self, record: &ApplicationRecord, is_over: bool) {
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
            self.message(event, (&record.flow, record.protocol), is_over);
        }
    }

    /// A transaction that ended.
    fn unit(&mut self, record: &UnitRecord, is_over: bool) {
        if self.options.events.applications.tells(record.kind) {
            self.message(eve::unit(record), (&record.flow, record.protocol), is_over);
        }
    }

    /// Tells of a message that the packet at hand brought, unless its flow `is_over`.
    fn message(&mut self, event: Event, (flow, protocol): (&FlowView, u8), is_over: bool) {
        let id = sink::flow_id(flow);
        match self.at {
            _ if is_over && protocol == TCP => self.push_late(event),
            Some((at, to_server)) if self.options.waits && protocol == TCP && at == id => {
                let no_room = self.waiting.hold(id, to_server, event);
                no_room.into_iter().for_each(|it| self.push_with_packet(it));
            }
            _ => self.push_with_packet(event),
        }
    }

    fn push_with_packet(&mut self, mut event: Event) {
        if self.source == "wire/pcap" {
            event.insert("pcap_cnt".into(), self.seen.packets.into());
        }
        event.insert("pkt_src".into(), self.source.into());
        if !self.vlans.ids().is_empty() {
            event.insert("vlan".into(), self.vlans.ids().into());
        }
        if !self.noted.is_empty() {
            event.insert("metadata".into(), self.noted.clone().into());
        }
        if let Some(ether) = &self.ether {
            event.insert("ether".into(), ether.clone());
        }
        self.push(event);
    }

    /// Tells of a message behind the last packet of its flow.
    pub(super) fn push_late(&mut self, mut event: Event) {
        event.insert("pkt_src".into(), "stream (flow timeout)".into());
        self.push(event);
    }

    /// Tells of messages that the packet at hand acknowledges.
    pub(super) fn tell_acknowledged(&mut self, layer: &Layer<'_>, packet: &Packet<'_>) {
        if !self.options.waits || !matches!(layer.parsed.transport, Transport::Tcp { .. }) {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let id = sink::flow_id(&view);
        self.at = Some((id, view.to_server));
        let told = self.waiting.take(id, view.to_server);
        told.into_iter().for_each(|it| self.push_with_packet(it));
    }
}
