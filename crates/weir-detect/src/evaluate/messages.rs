//! Rules against messages: those that are whole when they are told, and transactions of HTTP.

use super::{Evaluator, Scene, Sight};
use crate::alert::Alerts;
use crate::buffers::{self, http};
use crate::conversation::{Message, MessageUpdate};
use crate::detector::{Decision, Direction};
use crate::flow::Flow;
use crate::inspect::Bytes;
use crate::packet::Gist;
use crate::record::HttpRecord;
use crate::rule::{Buffer, Protocol, Untold};

impl Evaluator {
    /// The number of the transaction that a message belongs to, in its flow.
    pub(super) fn number_of(&mut self, told: &MessageUpdate) -> u64 {
        match told {
            MessageUpdate::Http(number) => *number,
            MessageUpdate::Unit(unit) => unit.number,
            MessageUpdate::Dns(_) => {
                self.messages += 1;
                self.messages
            }
            MessageUpdate::Tls
            | MessageUpdate::Ssh
            | MessageUpdate::State
            | MessageUpdate::Odd(_) => 0,
        }
    }

    /// A message that is whole when it is told.
    pub(super) fn message(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        message: Message<'_>,
        payload: &[u8],
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        self.note_message(flow, scene, message);
        self.gather(scene, message, None);
        if let Message::Dns(message) = message {
            let number = flow.told.last_transaction();
            let events = message.events.as_slice();
            let new = flow.new_events(events, number);
            self.gather_odd(scene, (events, &new), Some(number));
        }
        let sight =
            Sight { payload: Some(Bytes::whole(payload)), message: Some(message), is_stream: true };
        let is_datagram = !scene.view.is_tcp();
        self.each(flow, scene, alerts, decision, &|rule| {
            rule.is_of_messages(is_datagram).then_some(sight)
        });
    }

    /// Whether nobody hears who answers this side: of a connection's first packet it is not known
    /// yet.
    fn speaks_alone(&self, flow: &Flow, side: usize) -> bool {
        let is_first =
            self.limits.waits_for_acknowledgment && flow.packets[0] + flow.packets[1] == 1;
        !is_first && flow.session.as_ref().is_some_and(|it| it.is_alone(side))
    }

    /// A transaction that came further: rules may have to wait for the rest of it.
    pub(super) fn transaction(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        (number, transaction): (u64, &mut http::Transaction),
        payload: &[u8],
        alerts: &mut Alerts,
        decision: &mut Decision,
    ) {
        let side = scene.direction.index();
        let fresh = transaction.fresh(side, &self.limits);
        let [is_complete, is_cut] = [transaction.is_complete(side), transaction.is_cut(side)];
        let is_unanswered = is_complete && self.speaks_alone(flow, side);
        if (transaction.is_over() || transaction.is_of_connection() || is_unanswered)
            && let Some(records) = &mut self.records
        {
            let (time, flow) = (scene.now, flow.view(Direction::Initiator));
            let record = transaction.record(self.limits.http_headers);
            records.extend(record.map(|it| HttpRecord { time, flow, number, ..it }));
        }
        self.keep_files(flow, scene, number, transaction);
        let events = transaction.fresh_events(side);
        let events = events.to_vec();
        let mut new = flow.new_events(&events, number);
        new.append(&mut transaction.take_again(side));
        self.gather_odd(scene, (&events, &new), Some(number));
        if !fresh.headers && fresh.body.is_none() && !is_complete && !is_cut && events.is_empty() {
            return;
        }
        transaction.come_further(side);
        let message = Message::Http(transaction, side);
        self.number = number;
        self.gather(scene, message, Some(fresh));
        self.candidates.extend_from_slice(&transaction.waiting[side]);
        if side == 1 {
            self.candidates.extend_from_slice(&transaction.asked);
        }
        self.settle(scene);
        let candidates = std::mem::take(&mut self.candidates);
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            if !rule.is_of_messages(false) || transaction.is_matched(*index, rule, side) {
                continue;
            }
            let message = Some(Message::Http(transaction, side));
            let sight = Sight { payload: Some(Bytes::whole(payload)), message, is_stream: true };
            if rule.header.is_transactional && side == 1 && !transaction.asked.contains(index) {
                continue;
            }
            if self.matches(rule, flow, scene, sight) {
                if rule.header.is_transactional && side == 0 {
                    transaction.ask(*index);
                    self.sets.commit();
                    continue;
                }
                self.act((rule, *index, sight), flow, scene, alerts, decision);
                transaction.note_match(side, *index);
                transaction.is_told |= rule.untold == Some(Untold::Transaction);
            } else if !is_complete && rule.fast.is_some() {
                self.counters.candidates_lost += u64::from(!transaction.wait(side, *index));
            }
        }
        if !self.limits.as_suricata.tells_bodies {
            transaction.let_go(side);
        }
        self.number = 0;
        self.candidates = candidates;
    }

    /// Rules whose fast pattern is in a buffer of the message, of those that are `fresh`, and rules
    /// without one.
    pub(super) fn gather(
        &mut self,
        scene: &Scene<'_>,
        message: Message<'_>,
        fresh: Option<http::Fresh>,
    ) {
        let Self { candidates, scratch, .. } = self;
        let side = scene.direction.index();
        for (key, group) in scene.rules.message_groups(side) {
            if !buffers::is_of(key.buffer, message.protocol()) {
                continue;
            }
            let is_body = http::is_body(key.buffer);
            let from: usize = match fresh {
                Some(fresh) if is_body || key.buffer == Buffer::FileName => match fresh.body {
                    None => continue,
                    // What was looked through before has been.
                    Some(from) if is_body && key.transforms.is_empty() => from,
                    Some(_) => 0,
                },
                Some(fresh) if !fresh.headers => continue,
                _ => 0,
            };
            let mut scan = |bytes: &[u8]| {
                let from = from.saturating_sub(group.longest.saturating_sub(1)).min(bytes.len());
                let bytes = buffers::apply(&bytes[from..], &key.transforms);
                group.scan(&bytes, scratch, candidates);
                false
            };
            match message {
                // Patterns of bodies are looked for here too, and what is in a part of a form is
                // in its body, unless it is transformed.
                Message::Http(transaction, side) if key.buffer == Buffer::FileData => {
                    scan(transaction.body(side));
                    if !key.transforms.is_empty() {
                        message.each(key.buffer, &mut scan);
                    }
                }
                _ => _ = message.each(key.buffer, &mut scan),
            }
        }
        let gist = scene.view.gist(scene.direction, true);
        let gist = Gist { signs: !(Gist::TO_SERVER | Gist::TO_CLIENT) | gist.signs, ..gist };
        let bare = scene.rules.bare();
        bare.of_messages(message.protocol(), gist, candidates);
        if scene.application == Some(Protocol::Doh2) {
            bare.of_messages(Protocol::Doh2, gist, candidates);
        }
    }
}
