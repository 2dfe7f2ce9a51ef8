//! What follows from a rule that matched: bits, thresholds, the alert, the packet's fate.

use std::sync::Arc;

use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Transport;

use super::{Evaluator, Scene, Sight};
use crate::alert::{Alert, Alerts, Blocked, End, RdmaView, Text, TextScope, TransactionView};
use crate::conversation::Message;
use crate::detector::{Decision, Detector, Direction, Unseen};
use crate::flow::{Change, Effect, Flow, TEXTS_MAX};
use crate::headers::Headers;
use crate::packet::View;
use crate::rdma::remote_key;
use crate::record::DropRecord;
use crate::rule::{
    Action, Amount, BitScope, BitTest, BitVerb, Protocol, Rule, RuleIndex, Scope, Threshold,
    ThresholdKind, Track, Untold,
};
use crate::ruleset::RuleSet;
use crate::state::Verdict;
use crate::value::Object;

/// Bytes of a text that is told with an alert, at most.
const TEXT_LEN_MAX: usize = 2048;

impl Detector {
    /// Rules that would have dropped the last packet, if they were not only tried.
    pub fn would_drop(&self) -> &[RuleIndex] {
        &self.evaluator.would_drop
    }

    /// The last packet, where it is dropped and no alert tells of it; once for each side of a flow.
    pub fn untold_drop(&self) -> Option<DropRecord> {
        self.evaluator.untold_drop
    }
}

impl Evaluator {
    /// Forgets what is told of the packet before, whether or not rules look at the next one.
    pub(crate) fn forget(&mut self) {
        self.refused = None;
        self.is_opaque = false;
        self.parser_error = None;
        self.would_drop.clear();
        self.replacements.clear();
        self.untold_drop = None;
    }

    /// What becomes of a packet that no rule need look at.
    pub(super) fn settled(
        &mut self,
        rules: &RuleSet,
        now: Time,
        flow: &mut Flow,
        direction: Direction,
        view: &View<'_>,
    ) -> Option<Decision> {
        let is_gone = flow.dropped_by.is_some() || flow.blocked_by.is_some();
        (self.by_flow, self.by_rate, self.dropper) = (is_gone, false, None);
        self.passed_by = None;
        self.by_sender = self.by_flow && flow.dropped_from == Some(direction);
        self.is_passed = false;
        if let Some(rule) = flow.dropped_by {
            self.note_drop(now, "flow drop", view, flow, direction);
            return Some(Decision::Drop { rule });
        }
        // Other settings may run since.
        flow.is_cut_off &= self.limits.refuses_parser_errors && !self.limits.only_watches;
        if flow.is_cut_off {
            self.note_drop(now, "exception policy flow drop", view, flow, direction);
            return Some(Decision::Unseen(Unseen::ParserError));
        }
        if flow.is_bypassed {
            self.counters.bypassed += 1;
            flow.bypass(direction, view);
            return Some(Decision::Pass);
        }
        if rules.needs().signs_alone && view.signs == 0 && !self.tells() {
            return Some(Decision::Pass);
        }
        (flow.is_passed && !self.narrates()).then_some(Decision::Pass)
    }

    /// Whether applications are looked into although no rule asks for that.
    fn tells(&self) -> bool {
        self.limits.refuses_parser_errors || self.narrates()
    }

    /// Whether what is spoken is told, whatever rules say of it.
    pub(super) fn narrates(&self) -> bool {
        let writes = self.records.is_some() || self.told.is_some();
        writes || self.tells_events || self.tells_frames
    }

    /// Whether somebody takes what is told of applications.
    pub(crate) fn tells_of_applications(&self) -> bool {
        self.records.is_some() || self.told.is_some() || self.units.is_some()
    }

    /// What follows from a rule that matched.
    pub(super) fn act(
        &mut self,
        (rule, index, sight): (&Rule, RuleIndex, Sight<'_>),
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.note_match((rule, index, sight), flow, scene);
        self.conclude((rule, index, sight), flow, scene, alerts, decision);
    }

    /// What a rule puts as soon as it matches, whatever is decided of the packet.
    pub(super) fn note_match(
        &mut self,
        (rule, index, sight): (&Rule, RuleIndex, Sight<'_>),
        flow: &mut Flow,
        scene: &Scene<'_>,
    ) {
        self.puts_off = self.is_put_off(&sight);
        self.keep_captured(flow, scene);
        self.sets.commit();
        if !self.is_let_pass(index) {
            self.keep_replaced((rule, index), sight);
        }
        self.put_bits((rule, index), flow, scene);
        if rule.bypasses && !self.put_off(flow, scene.direction, Effect::Bypass) {
            flow.is_bypassed = true;
        }
        flow.told.is_untold |= rule.untold == Some(Untold::Flow);
    }

    /// Whether a rule before this one lets the packet at hand pass.
    pub(super) fn is_let_pass(&self, index: RuleIndex) -> bool {
        self.passes.is_some() && index > self.passer
    }

    /// Thresholds, alert and action of a rule that matched, unless one before it lets the packet
    /// pass.
    pub(super) fn conclude(
        &mut self,
        (rule, index, sight): (&Rule, RuleIndex, Sight<'_>),
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.puts_off = self.is_put_off(&sight);
        if self.is_let_pass(index) {
            return;
        }
        self.is_rated = false;
        let (verdict, action) = match rule.is_suppressed(scene) {
            // It counts for nothing (docs/adr/0304), and is done as beyond a limit.
            true => (Verdict::Silent, rule.action),
            false => self.counted((rule, index), flow, scene),
        };
        if verdict == Verdict::NoMatch {
            self.counters.suppressed += 1;
            return;
        }
        self.put_tags((rule, index), flow, scene.direction);
        let usually = (sight.is_stream && !rule.is_of_spoken()) || rule.is_of_flow();
        let is_of_flow = rule.scope.map_or(usually, |it| it == Scope::Flow);
        // What is to pass says nothing of that; that it does not, it says.
        let is_silent = rule.is_silent && (action == rule.action || rule.action != Action::Pass);
        let is_told = verdict == Verdict::Alert && !is_silent;
        let blocked = match action {
            // Until its time is over only flows pass, from their next packet on.
            Action::Pass if verdict == Verdict::Silent => {
                if is_of_flow && self.puts_off.is_none() {
                    flow.pass_instead(index);
                    flow.is_passed = true;
                }
                return;
            }
            Action::Pass => {
                if rule.tells_pass && is_told {
                    self.tell(index, Blocked::No, sight, flow, scene, alerts);
                }
                self.let_pass(index, flow, alerts, decision);
                let is_of_flow = is_of_flow || self.is_of_stream_too(rule, flow, scene);
                // What an earlier rule dropped is not let pass for the rest of its flow.
                self.passes = Some(is_of_flow && *decision == Decision::Pass);
                return;
            }
            Action::Drop | Action::Reject if rule.is_tried => {
                self.would_drop.push(index);
                Blocked::Would
            }
            Action::Drop => Blocked::Dropped,
            Action::Reject => Blocked::Rejected,
            Action::Alert => Blocked::No,
        };
        if is_told {
            self.tell(index, blocked, sight, flow, scene, alerts);
        }
        self.counters.suppressed += u64::from(!is_told);
        if matches!(blocked, Blocked::Dropped | Blocked::Rejected) {
            self.drop_packet((rule, index, sight), (blocked, is_of_flow), flow, scene, decision);
        }
    }

    /// A rule drops the packet, and perhaps the rest of its flow.
    fn drop_packet(
        &mut self,
        (rule, index, sight): (&Rule, RuleIndex, Sight<'_>),
        (blocked, is_of_flow): (Blocked, bool),
        flow: &mut Flow,
        scene: &Scene<'_>,
        decision: &mut Decision,
    ) {
        // What follows in a flow that is looked at no further goes on.
        let ends = is_of_flow && !rule.bypasses;
        if ends && !self.put_off(flow, scene.direction, Effect::Drop(index)) {
            flow.drop_by(index, &self.limits);
        }
        self.withholds |= !is_of_flow && sight.is_stream;
        if index < self.passer {
            // What it drops is not let pass for the rest of its flow either.
            self.passes = self.passes.map(|_| false);
        }
        // The first in their order counts, whichever is looked at first.
        if self.dropper.is_none_or(|it| index < it) {
            (self.dropper, self.by_rate) = (Some(index), self.is_rated);
        }
        // Who is to be answered is, whoever else drops.
        let new = blocked.decision(index);
        *decision = match (*decision, new) {
            (Decision::Pass, _) | (Decision::Drop { .. }, Decision::Reject { .. }) => new,
            (Decision::Drop { rule }, Decision::Drop { .. })
            | (Decision::Reject { rule }, Decision::Reject { .. })
                if index < rule =>
            {
                new
            }
            (before, _) => before,
        };
    }

    /// What the rule's thresholds say of one more match, and what is done then.
    fn counted(
        &mut self,
        (rule, index): (&Rule, RuleIndex),
        flow: &mut Flow,
        scene: &Scene<'_>,
    ) -> (Verdict, Action) {
        let mut verdict = Verdict::Alert;
        for threshold in [&rule.filter, &rule.threshold].into_iter().flatten() {
            verdict = self.threshold(index, threshold, flow, scene);
            if verdict == Verdict::NoMatch {
                return (verdict, rule.action);
            }
        }
        (verdict, self.rated(rule, index, flow, scene))
    }

    fn put_bits(&mut self, (rule, index): (&Rule, RuleIndex), flow: &mut Flow, scene: &Scene<'_>) {
        for bit in rule.bits.iter().filter(|it| !it.verb.is_condition()) {
            self.put_bit(bit, flow, scene);
            self.first_putter = self.first_putter.min(index);
        }
    }

    /// A rule lets the packet pass, unless what it does waits.
    fn let_pass(
        &mut self,
        index: RuleIndex,
        flow: &mut Flow,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.passer = index;
        if self.puts_off.is_none() {
            self.passed_by = self.passed_by.or(Some(index));
            self.pass_instead(index, flow, alerts, decision);
        }
    }

    /// A packet is decided by the first of its rules in the order of their actions, whichever of
    /// its parts is looked at first: a rule that lets it pass takes back what later ones did.
    pub(super) fn pass_instead(
        &mut self,
        index: RuleIndex,
        flow: &mut Flow,
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.would_drop.retain(|it| *it < index);
        self.replacements.retain(|it| it.rule <= index);
        let taken_back = alerts.take_back(self.first_alert, |it| it.rule > index);
        // One that is told both ways was counted once.
        self.counters.alerts = self.counters.alerts.saturating_sub(taken_back as u64);
        if taken_back > 0 && alerts.len() == self.first_alert {
            flow.told.is_alerted = self.was_alerted;
        }
        if let Decision::Drop { rule } | Decision::Reject { rule } = *decision
            && rule > index
        {
            *decision = Decision::Pass;
            self.dropper = None;
            flow.pass_instead(index);
        }
    }

    /// Keeps what there is to tell of a packet that is dropped without an alert, once a side.
    pub(crate) fn note_drop(
        &mut self,
        now: Time,
        reason: &'static str,
        view: &View<'_>,
        flow: &mut Flow,
        direction: Direction,
    ) {
        if !std::mem::replace(&mut flow.is_drop_told[direction.index()], true) {
            self.untold_drop = Some(DropRecord::new(now, reason, view, flow, direction));
        }
    }

    /// Whether a rule about packets and streams that matched the packet matches the stream that it
    /// continues: then it goes for the flow.
    fn is_of_stream_too(&mut self, rule: &Rule, flow: &mut Flow, scene: &Scene<'_>) -> bool {
        let is_of_both = self.looks_at_packets(rule) && rule.needs_stream && rule.has_payload();
        if !(is_of_both && rule.scope.is_none() && self.continues) {
            return false;
        }
        let Some(conversation) = flow.conversation.take() else { return false };
        let window = conversation.window(scene.direction.index());
        let is_matched = self.matches(rule, flow, scene, Sight::of_stream(window));
        flow.conversation = Some(conversation);
        is_matched
    }

    /// A rule that has matched the packet matches the stream that it continues.
    pub(super) fn act_for_flow(
        &self,
        (rule, index): (&Rule, RuleIndex),
        flow: &mut Flow,
        decision: Decision,
    ) {
        if let Decision::Drop { rule: by } | Decision::Reject { rule: by } = decision
            && by == index
            && rule.scope.is_none()
            && flow.dropped_by.is_none()
        {
            flow.drop_by(index, &self.limits);
        }
    }

    /// Bytes that a rule about what is said has dropped with one packet are dropped when they come
    /// again, in whatever packets: nobody looks at them as new ones then.
    pub(super) fn drop_again(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
        (decision, goes_on): (&mut Decision, bool),
    ) {
        let side = scene.direction.index();
        let Some(conversation) = &mut flow.conversation else { return };
        match *decision {
            Decision::Drop { rule } | Decision::Reject { rule } if self.withholds => {
                let has_room = conversation.withhold(side, scene.view, rule);
                flow.dropped_by = flow.dropped_by.or((!has_room).then_some(rule));
            }
            Decision::Pass if goes_on => {
                let Some(rule) = conversation.withholds(side, scene.view) else { return };
                let sight = Sight { payload: None, message: None, is_stream: true };
                self.forget_look();
                self.tell(rule, Blocked::Dropped, sight, flow, scene, alerts);
                *decision = Decision::Drop { rule };
            }
            _ => {}
        }
    }

    /// Keeps what the rule's expressions captured where the rule says.
    fn keep_captured(&mut self, flow: &mut Flow, scene: &Scene<'_>) {
        let captured = std::mem::take(&mut self.captured);
        for (kept, name, text) in captured.iter() {
            match kept {
                TextScope::Flow => self.note(flow, scene, Change::Text(*name, text.to_vec())),
                TextScope::Packet => {
                    // A packet keeps each text of a name.
                    let is_known = self.of_packet.iter().any(|it| it.0 == *name && it.1 == *text);
                    let has_room = self.of_packet.len() < TEXTS_MAX;
                    if !is_known && has_room {
                        self.of_packet.push((*name, text.clone()));
                    }
                    self.counters.bits_lost += u64::from(!is_known && !has_room);
                }
                TextScope::Alert => {}
            }
            // Rules that wait for a text may match now.
            self.bits_put = true;
        }
        self.captured = captured;
    }

    /// Texts that are told with an alert: its own, and those of the packet.
    fn texts(&self, rules: &RuleSet) -> Vec<Text> {
        let own = self.captured.iter().filter(|it| it.0 == TextScope::Alert);
        let own = own.filter_map(|it| Text::named(it.0, (it.1, &it.2), rules));
        own.chain(self.texts_of_packet(rules)).collect()
    }

    /// Texts that rules captured of the packet at hand.
    pub(crate) fn texts_of_packet(&self, rules: &RuleSet) -> Vec<Text> {
        let texts = self.of_packet.iter();
        texts.filter_map(|it| Text::named(TextScope::Packet, (it.0, &it.1), rules)).collect()
    }

    fn tell(
        &mut self,
        index: RuleIndex,
        blocked: Blocked,
        sight: Sight<'_>,
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
    ) {
        self.counters.alerts += 1;
        flow.told.is_alerted = true;
        let number = match sight.message {
            Some(Message::Dns(_)) => flow.told.last_transaction(),
            _ => self.number,
        };
        let told = match sight.message {
            Some(Message::Frame(frame, update)) => self.told_of_frame(flow, frame, update),
            _ => self.transaction.clone(),
        };
        let transaction = told.or_else(|| self.tell_of(sight.message?, number));
        let is_stream = sight.is_stream;
        let texts = self.texts(scene.rules);
        let contexts = self.sets.found().to_vec();
        let alert = alert(index, blocked, flow, scene);
        // Rules about packets hear later of what is spoken.
        let spoken = if is_stream { scene.application } else { scene.heard };
        let application = spoken.map(Protocol::name);
        let is_rated = self.is_rated;
        let alert =
            Alert { is_rated, is_stream, application, transaction, texts, contexts, ..alert };
        if self.limits.as_suricata.tells_both_ways {
            let rule = scene.rules.rule(index);
            let header = &rule.header;
            let place = |it: &End| (u128::from_be_bytes(it.address), it.port);
            let (from, to) = (place(&alert.source), place(&alert.destination));
            let has_ports = scene.view.is_tcp() || scene.view.is_of(Protocol::Udp);
            // Both share a threshold, of which this is one.
            if rule.threshold.is_none() && header.is_twice(from, to, has_ports) {
                alerts.push(Alert { is_other_way: true, ..alert.clone() });
            }
        }
        alerts.push(alert);
    }

    /// What a rule does now, which is something else while it matches too often.
    fn rated(&mut self, rule: &Rule, index: RuleIndex, flow: &Flow, scene: &Scene<'_>) -> Action {
        let Some(rate) = &rule.rate else { return rule.action };
        let hosts = tracked(rate.track, rule, flow, scene);
        let is_often = self.thresholds.rate(scene.now, index, rate, hosts);
        self.counters.thresholds_lost += self.thresholds.take_lost();
        self.counters.thresholds_lost += u64::from(is_often.is_none());
        self.is_rated = is_often == Some(true);
        if self.is_rated { rate.action } else { rule.action }
    }

    fn threshold(
        &mut self,
        index: RuleIndex,
        threshold: &Threshold,
        flow: &mut Flow,
        scene: &Scene<'_>,
    ) -> Verdict {
        if threshold.kind == ThresholdKind::Backoff {
            return flow.backs_off(index, threshold.count, threshold.multiplier);
        }
        let rule = scene.rules.rule(index);
        let hosts = tracked(threshold.track, rule, flow, scene);
        let counted = self.thresholds.count(scene.now, index, threshold, hosts);
        self.counters.thresholds_lost += self.thresholds.take_lost();
        counted.unwrap_or_else(|| {
            self.counters.thresholds_lost += 1;
            Verdict::Alert
        })
    }

    pub(super) fn bit_holds(&self, bit: &BitTest, flow: &Flow, scene: &Scene<'_>) -> bool {
        let is_set = |name: &u32| match bit.scope {
            BitScope::Flow => flow.notes().has_bit(*name),
            BitScope::Transaction => {
                self.looked_at.is_some_and(|it| flow.transaction_has_bit(it, *name))
            }
            scope => self.host_bits.has(scene.now, *name, hosts(scope, scene.view)),
        };
        let integer = || bit.names.first().and_then(|it| flow.notes().integer(*it));
        match bit.verb {
            BitVerb::IsSet => bit.names.iter().any(is_set),
            BitVerb::IsNotSet => !bit.names.iter().all(is_set),
            BitVerb::Compare(with, how) => {
                integer().is_some_and(|it| how.holds(it, amount(with, flow)))
            }
            BitVerb::IsDefined(wanted) => integer().is_some() == wanted,
            _ => true,
        }
    }

    /// Changes what is noted of the flow, for rules about packets once that takes effect.
    fn note(&mut self, flow: &mut Flow, scene: &Scene<'_>, change: Change) {
        match self.puts_off {
            Some(_) => _ = self.put_off(flow, scene.direction, Effect::Note(change.clone())),
            None => flow.note_for_others(&change),
        }
        self.counters.bits_lost += u64::from(!flow.note(&change));
    }

    fn put_bit(&mut self, bit: &BitTest, flow: &mut Flow, scene: &Scene<'_>) {
        let Some(name) = bit.names.first().copied() else { return };
        // Rules that ask for `xbits` had their turn before.
        self.bits_put |= !bit.is_x;
        let is_set = match (bit.verb, bit.scope) {
            (BitVerb::Put(value), _) => {
                return self.note(flow, scene, Change::Integer(name, amount(value, flow)));
            }
            (BitVerb::Add(by), _) => {
                return self.note(flow, scene, Change::Add(name, amount(by, flow)));
            }
            (BitVerb::Subtract(by), _) => {
                return self.note(flow, scene, Change::Subtract(name, amount(by, flow)));
            }
            (BitVerb::Set, _) => true,
            (BitVerb::Toggle, BitScope::Flow) => {
                return self.note(flow, scene, Change::Toggle(name));
            }
            (BitVerb::Toggle, BitScope::Transaction) => {
                !self.looked_at.is_some_and(|it| flow.transaction_has_bit(it, name))
            }
            (BitVerb::Toggle, scope) => {
                !self.host_bits.has(scene.now, name, hosts(scope, scene.view))
            }
            _ => false,
        };
        let has_room = match (bit.scope, is_set) {
            (BitScope::Flow, _) => return self.note(flow, scene, Change::Bit(name, is_set)),
            (BitScope::Transaction, _) => {
                if let Some(number) = self.looked_at {
                    flow.put_bit_of_transaction(number, name, is_set);
                }
                true
            }
            (scope, true) => {
                let hosts = hosts(scope, scene.view);
                self.host_bits.set(scene.now, name, hosts, bit.expire_s)
            }
            (scope, false) => {
                self.host_bits.unset(name, hosts(scope, scene.view));
                true
            }
        };
        self.counters.bits_lost += u64::from(!has_room) + self.host_bits.take_lost();
    }

    /// What is told with an alert of a message that is no unit.
    pub(crate) fn tell_of(&self, message: Message<'_>, number: u64) -> Option<TransactionView> {
        let (told, progress) = self.told_of(message, number)?;
        let number = (!matches!(message, Message::Frame(..))).then_some(number);
        let files = match message {
            Message::Http(http, side) => http.told_files(side, number.unwrap_or_default()),
            _ => Vec::new(),
        };
        let led_by_client = match message {
            Message::Tls(session, _) => session.settled_by().map(|side| side == 0),
            _ => None,
        };
        let objects = Arc::new(vec![told]);
        Some(TransactionView { number, objects, progress, led_by_client, files })
    }

    /// What alerts tell of a message, by the name of EVE's object, and how far it has come.
    pub(crate) fn told_of(
        &self,
        message: Message<'_>,
        number: u64,
    ) -> Option<((&'static str, Object), [&'static str; 2])> {
        let (name, mut object) = message.object(number, &self.limits.as_suricata)?;
        object.shorten(TEXT_LEN_MAX);
        if let (Message::Http(http, _), true) = (message, self.limits.as_suricata.tells_bodies) {
            http.put_bodies(&mut object);
        }
        Some(((name, object), message.progress()))
    }
}

impl Blocked {
    /// What becomes of a packet that is blocked so.
    fn decision(self, rule: RuleIndex) -> Decision {
        match self {
            Self::Rejected => Decision::Reject { rule },
            _ => Decision::Drop { rule },
        }
    }
}

/// A counter that is not there stands at nothing.
fn amount(amount: Amount, flow: &Flow) -> i64 {
    match amount {
        Amount::Fixed(number) => number,
        Amount::Counter(name) => flow.notes().integer(name).unwrap_or_default(),
    }
}

/// Whose matches are counted together.
fn tracked(track: Track, rule: &Rule, flow: &Flow, scene: &Scene<'_>) -> (u128, u128) {
    // Of a flood of a network's, the network is one.
    let ends = (scene.view.source, scene.view.destination);
    let watch = rule.flood_watch();
    let (source, destination) = watch.map_or(ends, |it| it.counted_of(ends.0, ends.1));
    match track {
        Track::Source => (source, 0),
        Track::Destination => (destination, 1),
        // Whichever of both sends.
        Track::Both => (source.min(destination), source.max(destination)),
        Track::Rule => (0, 0),
        Track::Flow => (
            u128::from_be_bytes(flow.initiator.address)
                ^ u128::from(flow.initiator.port) << 64
                ^ u128::from(flow.responder.port),
            u128::from_be_bytes(flow.responder.address) ^ u128::from(flow.start.0),
        ),
    }
}

impl Rule {
    /// Whether nothing is said of this packet's ends.
    fn is_suppressed(&self, scene: &Scene<'_>) -> bool {
        self.suppressions.iter().any(|it| {
            (it.of_source && it.addresses.contains(scene.view.source))
                || (it.of_destination && it.addresses.contains(scene.view.destination))
        })
    }
}

/// Whose bit it is; a pair is one in either order.
fn hosts(scope: BitScope, view: &View<'_>) -> (u128, u128) {
    let (source, destination) = (view.source, view.destination);
    match scope {
        BitScope::Source => (source, 0),
        BitScope::Destination => (destination, 0),
        _ => (source.min(destination), source.max(destination)),
    }
}

fn alert(index: RuleIndex, blocked: Blocked, flow: &Flow, scene: &Scene<'_>) -> Alert {
    let view = scene.view;
    Alert {
        time: scene.now,
        rule: index,
        blocked,
        source: End { address: view.parsed.source, port: view.source_port },
        destination: End { address: view.parsed.destination, port: view.destination_port },
        protocol: view.parsed.protocol,
        headers: Headers::of(view.bytes, view.parsed),
        icmp: match view.transport() {
            Transport::Icmp { kind, code } => Some((kind, code)),
            _ => None,
        },
        application: None,
        flow: flow.view(scene.direction),
        is_stream: false,
        is_other_way: false,
        is_rated: false,
        rdma: rdma_view(view),
        flood: None,
        tunnel: None,
        transaction: None,
        texts: Vec::new(),
        contexts: Vec::new(),
    }
}

fn rdma_view(view: &View<'_>) -> Option<RdmaView> {
    let rdma = view.parsed.rdma.as_ref()?;
    Some(RdmaView {
        encapsulation: rdma.encapsulation,
        opcode: rdma.opcode.0,
        destination_qp: rdma.destination_qp.value(),
        source_qp: ext::deth(view.bytes, rdma).map(|it| it.source_qp().value()),
        psn: rdma.psn.value(),
        partition_key: rdma.partition_key.0,
        remote_key: remote_key(view.bytes, view.parsed),
        syndrome: ext::aeth(view.bytes, rdma).map(|it| it.syndrome_byte()),
        length: ext::reth(view.bytes, rdma).map(|it| it.dma_length.get()),
    })
}
