//! What a detector tells beside its verdicts, where somebody takes it.

use std::sync::Arc;

use weir_wire::frame::Time;

use super::{Detector, Direction};
use crate::alert::TransactionView;
use crate::application::unit::Record;
use crate::buffers::event::AppEvent;
use crate::dataset::Change;
use crate::decode::Event;
use crate::evaluate::Evaluator;
use crate::flow::{Flow, FlowSlot};
use crate::record::{AnomalyRecord, ApplicationRecord, HttpRecord, SpokenBeside, UnitRecord};
use crate::rule::RuleIndex;
use crate::session::Closing;

impl Detector {
    /// Whether a flow's connection has ended, as far as it is followed.
    pub(crate) fn has_ended(&self, slot: FlowSlot) -> bool {
        let conversation = self.flows.taken(slot).and_then(|it| it.conversation.as_ref());
        conversation.is_some_and(|it| it.has_ended)
    }

    /// Tells of what an application leaves at its connection's end, with the packet that ends it,
    /// or what can be read of it, or begins another in its place.
    pub(super) fn end_applications(&mut self, now: Time, slot: FlowSlot) {
        let Some(flow) = self.flows.taken_mut(slot) else { return };
        let before = flow.conversation.as_mut().and_then(|it| it.take_before());
        let Evaluator { limits, records, units, told, parser_error, .. } = &mut self.evaluator;
        if records.is_none() && units.is_none() {
            return;
        }
        let mut tell = |flow: &mut Flow, (http, left): (Vec<HttpRecord>, Vec<Record>)| {
            let view = flow.view(Direction::Initiator);
            if let Some(records) = records {
                let told = |it| HttpRecord { time: now, flow: view, ..it };
                records.extend(http.into_iter().map(told));
            }
            if let Some(units) = units {
                units.extend(left.into_iter().map(|it| UnitRecord::new(now, flow, it, limits)));
            }
        };
        if let Some(mut before) = before {
            if let Some(number) = before.cut_request() {
                flow.told.transactions = flow.told.transactions.max(number + 1);
            }
            tell(flow, (before.records(limits.http_headers), before.end().records));
            let session = before.session_record(true, &limits.as_suricata);
            let protocol = flow.told.protocol;
            let flow = flow.view(Direction::Initiator);
            let record =
                |(kind, object)| ApplicationRecord { time: now, flow, protocol, kind, object };
            told.iter_mut().for_each(|it| it.extend(session.clone().map(record)));
            return;
        }
        let waits = limits.waits_for_acknowledgment;
        let has_given_up = limits.as_suricata.gives_up && parser_error.is_some();
        // Suricata inline waits until the flow is over, or nothing more can be read.
        let may_end = waits || limits.sees_all || has_given_up;
        let mut ends = || flow.conversation.as_mut().is_some_and(|it| it.ends_now(waits));
        if may_end && (has_given_up || ends()) {
            let left = flow.end_application(limits.http_headers);
            tell(flow, left);
        }
    }

    /// So much of what is odd about packets waits for [`Detector::take_anomalies`], at most; with
    /// 0 nothing does.
    pub fn keep_anomalies(&mut self, max: usize) {
        self.evaluator.tells_events = max > 0;
        self.anomalies_max = max;
        self.anomalies.reserve_exact(max);
    }

    /// What was odd about packets since this was asked last.
    pub fn take_anomalies(&mut self) -> impl Iterator<Item = AnomalyRecord> + '_ {
        self.anomalies.drain(..)
    }

    /// Keeps what is told of transactions and sessions, for [`Detector::take_http`] and
    /// [`Detector::take_told`], whether or not a rule looks into streams.
    pub fn keep_records(&mut self) {
        self.evaluator.records = Some(Vec::new());
        self.evaluator.units = Some(Vec::new());
        self.evaluator.told = Some(Vec::new());
        self.evaluator.looks_for_records = true;
    }

    /// Keeps frames for [`Detector::take_units`], whether rules ask for them or not.
    pub fn keep_frames(&mut self) {
        self.evaluator.tells_frames = true;
    }

    /// Keeps what comes to light for the sake of rules, for [`Detector::take_http`] and
    /// [`Detector::take_told`].
    pub fn keep_what_rules_see(&mut self) {
        self.evaluator.records.get_or_insert_default();
        self.evaluator.told.get_or_insert_default();
        self.evaluator.units.get_or_insert_default();
    }

    /// Transactions of other applications than HTTP that ended since this was asked last.
    pub fn take_units(&mut self) -> Vec<UnitRecord> {
        self.evaluator.units.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Messages and sessions of other applications since this was asked last.
    pub fn take_told(&mut self) -> Vec<ApplicationRecord> {
        self.evaluator.told.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Transactions of HTTP that ended since this was asked last.
    pub fn take_http(&mut self) -> Vec<HttpRecord> {
        self.evaluator.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps what rules put into sets that are kept in files, or take from them, for
    /// [`Detector::take_dataset_changes`].
    pub fn keep_dataset_changes(&mut self) {
        self.evaluator.sets.keep_changes();
    }

    /// What rules put into such sets, and took from them, since this was asked last.
    pub fn take_dataset_changes(&mut self) -> Vec<Change> {
        self.evaluator.sets.take_changes()
    }

    /// Whether the last packet was a segment that has no place in its connection, where
    /// [`refuses_invalid`](super::Limits::refuses_invalid).
    pub fn is_refused(&self) -> bool {
        self.place.is_refused
    }

    /// Whether the last packet is no part of its connection, as far as that is known.
    pub fn is_ignored(&self) -> bool {
        self.place.is_ignored
    }

    /// Whether the last packet came behind the end of its connection, as Suricata has it: what was
    /// acknowledged before is looked at with it.
    pub fn is_behind_end(&self) -> bool {
        self.place.closing == Closing::Behind
    }

    /// Whether the last packet has reset its connection, as Suricata has it: what its sender has
    /// said is looked at with it.
    pub fn has_reset(&self) -> bool {
        self.place.closing == Closing::Reset
    }

    /// What was odd about the last packet in its stream.
    pub fn stream_events(&self) -> &[Event] {
        &self.evaluator.stream_events
    }

    /// What was odd about messages that the last packet brought further, and the number of the
    /// transaction, where it is known.
    pub fn app_events(&self) -> &[(AppEvent, Option<u64>)] {
        &self.evaluator.app_events
    }

    /// What is spoken in the last packet's flow, if its parser has given up with that packet.
    pub fn parser_error(&self) -> Option<&'static str> {
        self.evaluator.parser_error
    }

    /// Whether the last packet was dropped because its flow was before.
    pub fn dropped_by_flow(&self) -> bool {
        self.evaluator.by_flow
    }

    /// Whether the last packet was dropped for what the other end of its flow sent before.
    pub fn dropped_by_other(&self) -> bool {
        self.evaluator.by_flow && !self.evaluator.by_sender
    }

    /// The rule that has let the last packet pass: what later ones say of it is not told.
    pub fn passed_by(&self) -> Option<RuleIndex> {
        self.evaluator.passed_by
    }

    /// Whether the last packet brings nothing, and its sender's stream was acknowledged before:
    /// what is told with it waits for no acknowledgment.
    pub fn is_heard_out(&self) -> bool {
        self.evaluator.is_heard_out
    }

    /// Whether the last packet's payload is encrypted, so that no rule has seen it.
    pub fn is_opaque(&self) -> bool {
        self.evaluator.is_opaque
    }

    /// Whether the last packet is behind one that a rule with `tag` matched, as it wants it; once.
    pub fn take_tagged(&mut self) -> bool {
        self.evaluator.take_tagged()
    }

    /// Whether a rule has let the last packet pass.
    pub fn is_passed(&self) -> bool {
        self.evaluator.is_passed
    }

    /// Whether the last packet was dropped because a rule matched too often.
    pub fn dropped_by_rate(&self) -> bool {
        self.evaluator.by_rate
    }

    /// The first in their order of the rules that drop the last packet.
    pub fn dropper(&self) -> Option<RuleIndex> {
        self.evaluator.dropper
    }

    /// What is told of a flow's transaction as it stands now, with texts as alerts have them, and
    /// of the files that this side sends with it.
    pub(crate) fn transaction(
        &self,
        slot: FlowSlot,
        direction: Direction,
        number: u64,
    ) -> Option<TransactionView> {
        let conversation = self.flows.taken(slot)?.conversation.as_ref()?;
        if let Some((objects, files)) = conversation.told_now(number, direction.index()) {
            let (number, objects) = (Some(number), Arc::new(objects));
            let (progress, led_by_client) = ([""; 2], None);
            return Some(TransactionView { number, objects, progress, led_by_client, files });
        }
        self.evaluator.tell_of(conversation.so_far(number, direction.index())?, number)
    }

    /// What is spoken in a flow beside that.
    pub(crate) fn beside(&self, slot: FlowSlot) -> SpokenBeside {
        let waits = self.evaluator.limits.waits_for_acknowledgment;
        self.flows.taken(slot).map(|it| it.beside(waits)).unwrap_or_default()
    }
}
