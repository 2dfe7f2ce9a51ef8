//! What is told of a flow, at its end and with each alert.

use super::{Flow, Tcp};
use crate::alert::FlowView;
use crate::application::unit::Record;
use crate::detector::{Direction, Limits};
use crate::record::{ApplicationRecord, FlowRecord, HttpRecord, UnitRecord};
use crate::rule::Protocol;

impl Flow {
    /// What is told of a connection's applications when it ends: of HTTP, and of others.
    pub(crate) fn end_application(
        &mut self,
        http_headers: [bool; 2],
    ) -> (Vec<HttpRecord>, Vec<Record>) {
        let Some(conversation) = &mut self.conversation else { return Default::default() };
        if let Some(number) = conversation.cut_request() {
            self.told.transactions = self.told.transactions.max(number + 1);
        }
        (conversation.records(http_headers), conversation.end().records)
    }

    /// What is told of it when it ends; `narrates`: of what was said in it too.
    pub(crate) fn record(&mut self, limits: &Limits, narrates: bool) -> FlowRecord {
        let view = self.view(Direction::Initiator);
        let (http, mut units) = match narrates {
            true => self.end_application(limits.http_headers),
            false => Default::default(),
        };
        let told = self.told;
        let dialogue = self.dialogue.as_mut().filter(|_| narrates);
        units.extend(dialogue.map(|it| it.end()).unwrap_or_default().records);
        let unit = |it| UnitRecord::new(told.last, self, it, limits);
        let units = units.into_iter().map(unit).collect();
        let conversation = self.conversation.as_mut();
        let session = conversation.and_then(|it| it.session_record(true, &limits.as_suricata));
        let applications = session.map(|(kind, object)| ApplicationRecord {
            time: told.last,
            flow: view,
            protocol: told.protocol,
            kind,
            object,
        });
        FlowRecord {
            view,
            units,
            http: http
                .into_iter()
                .map(|it| HttpRecord { time: told.last, flow: view, ..it })
                .collect(),
            applications: applications.into_iter().collect(),
            last: told.last,
            protocol: told.protocol,
            application: told.application,
            beside: self.beside(false),
            transactions: told.transactions,
            transactions_before: told.transactions_before,
            has_failed: told.has_failed,
            tcp_flags: told.tcp_flags,
            tcp_passed: told.tcp_passed,
            is_established: self.tcp == Tcp::Established,
            has_gap: told.has_gap,
            is_midstream: told.is_midstream,
            is_followed: told.is_followed,
            followed_to: self.session.as_ref().and_then(|it| it.state()),
            icmp: told.icmp,
            is_refused: told.icmp[1].is_some() && !told.has_answered,
            hop_limits: told.hop_limits,
            spi: told.spi,
            vlans: told.vlans,
            is_alerted: told.is_alerted,
            is_dropped: self.is_dropped() || self.blocked_by.is_some() || self.is_to_drop(),
            is_passed: (self.is_passed || self.is_to_pass()) && self.blocked_by.is_none(),
            is_untold: told.is_untold,
            ..FlowRecord::default()
        }
    }

    pub(crate) fn view(&self, direction: Direction) -> FlowView {
        FlowView {
            initiator: self.initiator,
            responder: self.responder,
            start: self.start,
            packets: self.packets,
            bytes: self.bytes,
            to_server: direction == Direction::Initiator,
            port: self.told.port,
            parent: self.parent.as_deref().copied(),
            bypassed: match &self.bypassed {
                Some(counted) => Some(**counted),
                None => self.is_bypassed.then(Default::default),
            },
            encrypted: self.conversation.as_ref().and_then(|it| it.encrypted()).map(Protocol::name),
        }
    }
}
