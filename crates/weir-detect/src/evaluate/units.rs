//! Rules against units, and what is told of them.

use weir_wire::frame::Time;

use super::{Evaluator, Scene, Sight};
use crate::alert::{Alert, Alerts, TransactionView};
use crate::application::unit::{FileState, Record, Said, Unit};
use crate::buffers::http;
use crate::conversation::{Message, MessageUpdate};
use crate::detector::{Decision, Direction};
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::record::UnitRecord;

/// Records that wait to be taken, at most; those beyond are not told.
const UNITS_MAX: usize = 4096;

impl Evaluator {
    /// A unit that came further: each rule matches a transaction of a side once.
    pub(super) fn unit(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        unit: &Unit,
        payload: &[u8],
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let message = Message::Unit(unit);
        self.gather(scene, message, None);
        let events = unit.events.as_slice();
        let mut new = flow.new_events(events, unit.number);
        if unit.is_aside {
            new.clear();
        }
        self.gather_odd(scene, (events, &new), Some(unit.number));
        self.settle(scene);
        let (side, number) = (scene.direction.index(), unit.number);
        self.transaction = Some(told_of_unit(unit));
        let sight =
            Sight { payload: Some(Bytes::whole(payload)), message: Some(message), is_stream: true };
        let candidates = std::mem::take(&mut self.candidates);
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            let is_of_messages = rule.is_of_messages(!scene.view.is_tcp());
            let is_open = is_of_messages && !flow.is_matched(*index, side, number);
            if is_open && self.matches(rule, flow, scene, sight) {
                flow.match_unit(*index, side, number);
                self.act((rule, *index, sight), flow, scene, alerts, decision);
            }
        }
        self.candidates = candidates;
        self.transaction = None;
    }

    /// Alerts of a datagram's payload about its application tell of the message that it is.
    pub(super) fn tell_message_of_packet(
        &self,
        flow: &Flow,
        scene: &Scene<'_>,
        told: &MessageUpdate,
        alerts: &mut Alerts,
    ) {
        let lacks = |it: &Alert| {
            it.transaction.is_none() && scene.rules.rule(it.rule).header.protocol.is_application()
        };
        let mut lacking =
            alerts.from(self.first_alert).iter_mut().filter(|it| lacks(it)).peekable();
        if scene.view.is_tcp() || lacking.peek().is_none() {
            return;
        }
        let transaction = match told {
            MessageUpdate::Dns(message) => {
                self.tell_of(Message::Dns(message), flow.told.last_transaction())
            }
            MessageUpdate::Unit(unit) => Some(told_of_unit(unit)),
            _ => None,
        };
        lacking.for_each(|it| it.transaction = transaction.clone());
    }

    /// Keeps what is told of files that a side of HTTP has sent.
    pub(super) fn keep_files(
        &mut self,
        flow: &Flow,
        scene: &Scene<'_>,
        number: u64,
        transaction: &mut http::Transaction,
    ) {
        if self.units.is_none() {
            return;
        }
        let side = scene.direction.index();
        let mut said = Said::default();
        for file in transaction.take_files(side) {
            let told = transaction.told(side, &file);
            let objects = vec![("http", transaction.object())];
            let is_whole = file.size.is_some();
            let state = if is_whole { FileState::Closed } else { FileState::Truncated };
            said.records.push(Record::file_in(state, number, objects, &told));
        }
        self.keep_said(flow, scene.now, said);
    }

    /// Keeps what units tell beside themselves.
    pub(super) fn keep_said(&mut self, flow: &Flow, now: Time, said: Said) {
        for announced in said.announced {
            let mut ends = [flow.initiator.address, flow.responder.address];
            // Whatever address was named, its own client is meant.
            if announced.is_active {
                ends.reverse();
            }
            let parent = flow.view(Direction::Initiator).key();
            self.expected.add(self.limits.seed, ends, announced, parent);
        }
        let Some(units) = &mut self.units else { return };
        for record in said.records {
            if units.len() < UNITS_MAX {
                units.push(UnitRecord::new(now, flow, record, &self.limits));
            }
        }
    }
}

/// What alerts tell of a unit.
pub(super) fn told_of_unit(unit: &Unit) -> TransactionView {
    TransactionView {
        number: Some(unit.number),
        objects: unit.objects.clone(),
        progress: [""; 2],
        led_by_client: None,
        files: unit.files.clone(),
    }
}
