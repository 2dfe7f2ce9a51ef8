//! Alerts about streams that wait until the receiver has acknowledged what they are about.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use weir_detect::alert::{FlowView, Text, TextScope};
use weir_detect::record::Oddity;
use weir_detect::{Alert, Decision, Decoded, Packet, RuleIndex, Vlans};
use weir_store::sink::eve as sink;
use weir_wire::frame::Time;
use weir_wire::parse::Transport;

use super::super::eve::{self, Event};
use super::super::layers::Layer;
use super::pseudo::pseudo_packet;
use super::waiting::Segment;
use super::{ALERTS_MAX, HELD_MAX, Held, Look};

/// Suricata's name of what is told when a flow is over.
pub(super) const FLOW_TIMEOUT: &str = "stream (flow timeout)";
/// The same of what is told when a connection is encrypted.
const SEALED: &str = "stream (detect/log)";
/// Of a flow so much waits that is odd, at most; what is beyond is told at once.
const ODD_MAX: usize = 1 << 10;

/// What is odd about a message that nobody has acknowledged.
pub(super) struct HeldOddity {
    to_server: bool,
    /// The sequence number behind what it is about.
    end: u32,
    odd: Oddity,
    /// As it is told if nobody ever does.
    event: Event,
}

/// In which order one packet's alerts are told, and which of too many: those of earlier rules, of a
/// rule that about its last transaction, as by Suricata.
pub(super) fn precedence(alert: &Alert) -> (RuleIndex, Reverse<Option<u64>>) {
    let number = alert.transaction.as_ref().and_then(|it| it.number);
    (alert.rule, Reverse(number))
}

impl<W: Write> Look<W> {
    /// Tells alerts, but for those that wait until their receiver has acknowledged what they are
    /// about: they come with a later packet, and are counted with its alerts.
    pub(super) fn tell_or_hold(
        &mut self,
        alerts: &mut Vec<Alert>,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        decision: Decision,
    ) {
        let looks_at_once = self.looks_at_once(packet);
        if let (false, Transport::Tcp { sequence, .. }) = (looks_at_once, layer.parsed.transport)
            && self.held.len() < HELD_MAX
        {
            let is_of_stream = |it: &Alert| it.is_stream;
            let (held, told) = std::mem::take(alerts).into_iter().partition(is_of_stream);
            *alerts = told;
            let held: Vec<Alert> = held;
            held.iter().for_each(|it| self.hold(it, layer, sequence));
        }
        alerts.sort_by_key(precedence);
        self.cut(alerts);
        for alert in &*alerts {
            self.alert(alert, layer, packet, (decision, alerts));
        }
    }

    /// Whether what a packet says counts when its receiver has acknowledged it. Of some receivers
    /// nothing is seen.
    pub(super) fn waits_for_other(&self, packet: &Packet<'_>) -> bool {
        self.options.waits && !self.is_alone(packet)
    }

    /// Whether alerts about what a packet's sender says come with that packet.
    fn looks_at_once(&self, packet: &Packet<'_>) -> bool {
        !self.waits_for_other(packet) || self.detector.is_heard_out()
    }

    /// Whether a packet's sender alone is seen, and was before.
    pub(super) fn is_alone(&self, packet: &Packet<'_>) -> bool {
        let view = || self.flows.view(&self.detector, packet);
        self.flows.is_alone(&self.detector, packet)
            && view().is_some_and(|it| it.packets[0] + it.packets[1] > 1)
    }

    /// Keeps an alert until the receiver has acknowledged what it is about.
    pub(super) fn hold(&mut self, alert: &Alert, layer: &Layer<'_>, sequence: u32) {
        let length = layer.payload().len() as u32;
        let held = Held {
            alert: alert.clone(),
            bytes: layer.bytes.to_vec(),
            link: layer.link,
            parsed: layer.parsed,
            vlans: layer.vlans,
            end: sequence.wrapping_add(length),
            is_acknowledged: false,
        };
        self.held.entry(sink::flow_id(&alert.flow)).or_default().push(held);
    }

    /// Of one packet no more alerts are told than are asked for: the first of `alerts`, which have
    /// their order.
    pub(super) fn cut(&mut self, alerts: &mut Vec<Alert>) {
        let most = self.options.alerts_max.unwrap_or(ALERTS_MAX);
        if alerts.len() > most {
            (most..alerts.len()).for_each(|_| self.count("detect.alert_queue_overflow"));
            alerts.truncate(most);
        }
    }

    /// The same of alerts that have waited, and of those that the packet itself brings.
    fn cut_together(
        &mut self,
        told: &mut Vec<Alert>,
        alerts: &mut Vec<Alert>,
        packet: &Packet<'_>,
    ) {
        let most = self.options.alerts_max.unwrap_or(ALERTS_MAX);
        let waits = !self.looks_at_once(packet);
        let is_told = |it: &Alert| !(waits && it.is_stream);
        let own = alerts.iter().filter(|it| is_told(it));
        let all = told.iter().chain(own).map(precedence).enumerate();
        let mut order: Vec<_> = all.map(|(place, it)| (it, place)).collect();
        if order.len() > most {
            order.sort_unstable();
            let over: HashSet<usize> = order.drain(most..).map(|(_, place)| place).collect();
            over.iter().for_each(|_| self.count("detect.alert_queue_overflow"));
            let mut places = 0..;
            let mut has_room = || places.next().is_some_and(|it| !over.contains(&it));
            told.retain(|_| has_room());
            alerts.retain(|it| !is_told(it) || has_room());
        }
    }

    /// A packet of a flow of which alerts wait: those about what was acknowledged are told with
    /// the sender's next packet, which `alerts` are about; each rule once.
    pub(super) fn acknowledge(
        &mut self,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        alerts: &mut Vec<Alert>,
    ) {
        let (is_behind, has_reset) = (self.detector.is_behind_end(), self.detector.has_reset());
        if self.detector.is_ignored() && !is_behind {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let Transport::Tcp { acknowledgment, .. } = layer.parsed.transport else { return };
        let id = sink::flow_id(&view);
        let Some(held) = self.held.remove(&id) else { return };
        let (mut left, mut told) = (Vec::new(), Vec::new());
        let looked_at = self.flows.looked_at(&self.detector, packet);
        let (is_opaque, is_alone) = (self.detector.is_opaque(), self.is_alone(packet));
        for mut one in held {
            let rule = self.rules.rule(one.alert.rule);
            let is_of_bytes = rule.is_of_stream();
            let is_due = looked_at.is_none_or(|it| it.wrapping_sub(one.end) as i32 >= 0)
                || is_behind
                || has_reset;
            if one.alert.flow.to_server != view.to_server {
                if !one.is_acknowledged
                    && !is_behind
                    && acknowledgment.wrapping_sub(one.end) < 1 << 31
                {
                    one.is_acknowledged = true;
                    self.bring_up_to_date(&mut one.alert, packet, true);
                }
                left.push(one);
            } else if is_opaque && rule.looks_into_streams() {
                // By now nobody looks into it any more.
            } else if is_of_bytes
                && is_due
                && !self.flows.holds_still(&mut self.detector, packet, one.alert.rule)
            {
                // More came, and it is so no longer.
            } else if (one.is_acknowledged || has_reset || is_alone) && (is_due || !is_of_bytes) {
                told.push(Alert { flow: view, time: self.last, ..one.alert });
            } else {
                left.push(one);
            }
        }
        if !left.is_empty() {
            self.held.insert(id, left);
        }
        let mut seen = HashSet::new();
        told.retain(|it| {
            !self.rules.rule(it.rule).is_of_stream() || seen.insert((it.rule, it.is_other_way))
        });
        alerts.retain(|it| it.is_stream || !seen.contains(&(it.rule, it.is_other_way)));
        let passed_by = self.detector.passed_by();
        told.retain(|it| passed_by.is_none_or(|by| it.rule <= by));
        self.cut_together(&mut told, alerts, packet);
        told.iter_mut().for_each(|it| self.bring_up_to_date(it, packet, false));
        self.late_texts = texts_of(&told);
        if told.is_empty() {
            return;
        }
        // All alerts of a packet say to whom it is answered.
        let all: Vec<Alert> = told.iter().chain(&*alerts).cloned().collect();
        for alert in &told {
            self.alert(alert, layer, packet, (Decision::Pass, &all));
        }
    }

    /// Transactions that the packet at hand has ended: alerts about them that wait tell their
    /// answers.
    pub(super) fn answer_held(&mut self) {
        self.units = self.detector.take_units();
        for unit in &self.units {
            let (Some(number), Some(object)) = (unit.number, unit.objects.first()) else {
                continue;
            };
            let Some(held) = self.held.get_mut(&sink::flow_id(&unit.flow)) else { continue };
            for transaction in held.iter_mut().filter_map(|it| it.alert.transaction.as_mut()) {
                let is_of_it = transaction.number == Some(number)
                    && transaction.objects.first().is_some_and(|it| it.0 == object.0);
                if is_of_it && transaction.objects.len() == unit.objects.len() {
                    transaction.objects = Arc::new(unit.objects.clone());
                } else if is_of_it {
                    Arc::make_mut(&mut transaction.objects)[0] = object.clone();
                }
            }
        }
    }

    /// What came while an alert waited is told with it: how far its own side has come by what is
    /// acknowledged of that, or what the other has answered.
    fn bring_up_to_date(&self, alert: &mut Alert, packet: &Packet<'_>, is_own: bool) {
        let to_server = alert.flow.to_server;
        let Some(transaction) = &mut alert.transaction else { return };
        let Some(number) = transaction.number else { return };
        let of_side = (number, to_server);
        let Some(now) = self.flows.transaction(&self.detector, packet, of_side) else { return };
        if now.objects.len() > 1 && now.objects.len() == transaction.objects.len() {
            // Parsers tell of a transaction what it has come to.
            (transaction.objects, transaction.files) = (now.objects, now.files);
            return;
        }
        let [object] = &now.objects[..] else { return };
        if transaction.objects.first().is_none_or(|it| it.0 != object.0) {
            return;
        }
        let side = usize::from(to_server != is_own);
        let has_changed = [0, 1].map(|it| transaction.progress[it] != now.progress[it]);
        let own = usize::from(!to_server);
        match now.led_by_client {
            _ if is_own => {}
            // What brought both further is not acknowledged.
            Some(by_client) if by_client == to_server && has_changed[own] => return,
            Some(by_client) if by_client != to_server => {
                transaction.progress[own] = now.progress[own];
            }
            _ => {}
        }
        transaction.progress[side] = now.progress[side];
        // What of its own side nobody has acknowledged is not told.
        let is_of_side = if is_own { !has_changed[1 - side] } else { has_changed[side] };
        if is_of_side {
            Arc::make_mut(&mut transaction.objects)[0] = object.clone();
        }
        // Nobody knows the parts of a form that was let go.
        if is_own && !now.files.is_empty() {
            transaction.files = now.files;
        }
    }

    /// Keeps what is odd about a message over TCP until its receiver has acknowledged it, where
    /// that counts; gives the event back where it does not, or there is no room.
    pub(super) fn hold_oddity(
        &mut self,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        odd: Oddity,
        event: Event,
    ) -> Option<Event> {
        let Some(Segment { end, .. }) = Segment::of(layer) else { return Some(event) };
        if !self.waits_for_other(packet) || self.odd.len() >= HELD_MAX {
            return Some(event);
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return Some(event) };
        let list = self.odd.entry(sink::flow_id(&view)).or_default();
        if list.len() >= ODD_MAX {
            return Some(event);
        }
        list.push(HeldOddity { to_server: view.to_server, end, odd, event });
        None
    }

    /// Tells what is odd about messages that the packet acknowledges.
    pub(super) fn tell_odd(&mut self, now: Time, layer: &Layer<'_>, packet: &Packet<'_>) {
        if self.odd.is_empty() || self.detector.is_ignored() {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let id = sink::flow_id(&view);
        let Some(list) = self.odd.remove(&id) else { return };
        let segment = Segment::of(layer);
        let is_told = |it: &HeldOddity| {
            it.to_server != view.to_server && segment.is_none_or(|one| one.hears(it.end))
        };
        let (told, left): (Vec<_>, Vec<_>) = list.into_iter().partition(is_told);
        if !left.is_empty() {
            self.odd.insert(id, left);
        }
        for one in told {
            let event = self.anomaly(now, layer, packet, one.odd);
            event.into_iter().for_each(|it| self.push(it));
        }
    }

    /// Tells what is odd about messages of a flow that is over, which nobody has acknowledged.
    pub(super) fn tell_odd_late(&mut self, flow: u64, vlans: Vlans) {
        for mut one in self.odd.remove(&flow).unwrap_or_default() {
            one.event.remove("pcap_cnt");
            self.push_late(one.event, vlans);
        }
    }

    /// Forgets alerts that wait in vain, with a packet of their flow.
    pub(super) fn forget_held(&mut self, packet: &Packet<'_>) {
        if self.is_left || self.detector.has_reached_depth() {
            self.forget_unheard(packet);
        }
        if let Some(from) = self.detector.changed_from() {
            self.forget_rewritten(packet, from);
        }
        self.forget_passed(packet);
    }

    /// Of a flow that a rule lets pass, alerts of rules behind that one wait in vain.
    fn forget_passed(&mut self, packet: &Packet<'_>) {
        let Some(by) = self.detector.passed_by() else { return };
        if !self.flows.is_let_pass(&self.detector, packet) {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        if let Some(held) = self.held.get_mut(&sink::flow_id(&view)) {
            held.retain(|it| it.alert.rule <= by);
        }
    }

    /// Alerts that wait about bytes that their receiver takes for others, the first of them the one
    /// numbered `from`, are about nothing.
    fn forget_rewritten(&mut self, packet: &Packet<'_>, from: u32) {
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        if let Some(held) = self.held.get_mut(&sink::flow_id(&view)) {
            let rules = &self.rules;
            let is_heard = |it: &Held| {
                let is_before = from.wrapping_sub(it.end) as i32 >= 0;
                is_before || it.is_acknowledged && !rules.rule(it.alert.rule).is_of_stream()
            };
            held.retain(|it| is_heard(it) || it.alert.flow.to_server != view.to_server);
        }
    }

    /// No rule looks further at the stream of a packet's side, or nobody at its flow: alerts about
    /// it wait in vain.
    fn forget_unheard(&mut self, packet: &Packet<'_>) {
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let (rules, is_left) = (&self.rules, self.is_left);
        if let Some(held) = self.held.get_mut(&sink::flow_id(&view)) {
            held.retain(|it| {
                let is_other = it.alert.flow.to_server != view.to_server;
                !is_left && (is_other || !rules.rule(it.alert.rule).is_of_stream())
            });
        }
    }

    /// The capture ends, and with it the streams.
    pub(super) fn tell_held(&mut self) {
        self.detector.forget_packet();
        let held = std::mem::take(&mut self.held).into_values();
        let mut held: Vec<Held> = held.flat_map(|it| self.at_end(it)).collect();
        held.sort_by_key(|it| (it.alert.time, it.alert.rule));
        held.into_iter().for_each(|it| self.tell_late(it, None, FLOW_TIMEOUT));
        self.is_passed = false;
    }

    /// The flow of this view is over, and with it its streams.
    pub(super) fn tell_held_of(&mut self, over: &FlowView) {
        let Some(held) = self.held.remove(&sink::flow_id(over)) else { return };
        self.detector.forget_packet();
        let is_passed = std::mem::take(&mut self.is_passed);
        let held = self.at_end(held).into_iter();
        held.for_each(|it| self.tell_late(it, Some(over), FLOW_TIMEOUT));
        self.is_passed = is_passed;
    }

    /// Tells what waits of a connection that goes on, and that nobody looks into any further.
    pub(super) fn flush(&mut self, flow: u64) {
        for event in self.waiting.end(flow) {
            self.push_made_up(event, self.vlans, SEALED);
        }
        let Some(held) = self.held.remove(&flow) else { return };
        self.detector.forget_packet();
        let is_passed = std::mem::take(&mut self.is_passed);
        self.at_end(held).into_iter().for_each(|it| self.tell_late(it, None, SEALED));
        self.is_passed = is_passed;
    }

    /// What is told of a flow's alerts that wait until its end. The rest of a stream is looked at
    /// once.
    fn at_end(&mut self, mut of_flow: Vec<Held>) -> Vec<Held> {
        let most = self.options.alerts_max.unwrap_or(ALERTS_MAX);
        let place = |it: &Held| (it.alert.flow.to_server, it.alert.rule, it.alert.is_other_way);
        of_flow.sort_by_key(place);
        of_flow.dedup_by(|later, one| {
            place(later) == place(one) && self.rules.rule(one.alert.rule).is_of_stream()
        });
        for of_side in of_flow.chunk_by(|a, b| a.alert.flow.to_server == b.alert.flow.to_server) {
            let lost = of_side.len().saturating_sub(most);
            (0..lost).for_each(|_| self.count("detect.alert_queue_overflow"));
        }
        let mut told = [0; 2];
        of_flow.retain(|it| {
            let told = &mut told[usize::from(it.alert.flow.to_server)];
            *told += 1;
            *told <= most
        });
        of_flow
    }

    /// The packet of an alert, whose flow is known still or not. What is told when a flow is over
    /// has one that was made up, and no payload of its own.
    pub(super) fn put_bytes(
        &self,
        event: &mut Event,
        layer: &Layer<'_>,
        packet: &Packet<'_>,
        is_known: bool,
    ) {
        if !is_made_up(layer) {
            return eve::put_packet(event, (layer, layer.bytes), self.capture_link);
        }
        let Some(Segment { end, .. }) = Segment::of(layer) else { return };
        let next = self.flows.next_number(&self.detector, packet).filter(|_| is_known);
        let next = next.unwrap_or(end);
        let bytes = pseudo_packet(&layer.parsed, next);
        eve::put_packet(event, (layer, &bytes), self.capture_link);
        if !event.contains_key("payload") {
            event.remove("payload_length");
        }
    }

    /// Tells an alert at the end of its flow, which is known still, or is `over`.
    fn tell_late(&mut self, held: Held, over: Option<&FlowView>, source: &'static str) {
        let Held { mut alert, bytes, link, parsed, vlans, .. } = held;
        let decoded = Some(Decoded::new(vlans, &[]));
        let (is_rebuilt, is_verified) = (false, true);
        let packet = Packet {
            bytes: &bytes,
            parsed: &parsed,
            decoded,
            is_rebuilt,
            is_verified,
            icrc: None,
            port: None,
        };
        let layer = Layer {
            bytes: &bytes,
            link,
            parsed,
            vlans,
            events: Vec::new(),
            source,
            outer: None,
            depth: 0,
            is_carrier: false,
            payload: None,
        };
        if let Some(over) = over {
            alert.flow = FlowView { to_server: alert.flow.to_server, ..*over };
        } else {
            if let Some(view) = self.flows.view(&self.detector, &packet) {
                alert.flow = view;
            }
            // What the server said, and nobody acknowledged, is looked at behind the client's.
            if !alert.flow.to_server {
                self.bring_up_to_date(&mut alert, &packet, false);
            }
            self.bring_up_to_date(&mut alert, &packet, true);
            let spoken = self.flows.application(&self.detector, &packet);
            alert.application = alert.application.or(spoken);
            self.is_passed = self.flows.take_all_effect(&mut self.detector, &packet);
        }
        alert.time = self.last;
        let fate = (Decision::Pass, std::slice::from_ref(&alert));
        self.late_texts = texts_of(std::slice::from_ref(&alert));
        self.alert(&alert, &layer, &packet, fate);
    }
}

/// Whether it is no packet of the capture: Suricata makes one up for what it tells then.
pub(super) fn is_made_up(layer: &Layer<'_>) -> bool {
    matches!(layer.source, FLOW_TIMEOUT | SEALED)
}

/// What rules captured of the packets that these alerts are about.
fn texts_of(alerts: &[Alert]) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    for text in alerts.iter().flat_map(|it| &it.texts).filter(|it| it.kept == TextScope::Packet) {
        if !texts.contains(text) {
            texts.push(text.clone());
        }
    }
    texts
}
