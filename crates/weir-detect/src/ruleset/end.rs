//! Rules that ask of a connection what is spoken and nothing else match once more a side when it
//! ends before both sides have closed it (Suricata's `stream (flow timeout)`).

use weir_wire::frame::Link;
use weir_wire::parse::parse;

use super::RuleSet;
use crate::alert::{Alert, Blocked, End};
use crate::detector::Direction;
use crate::headers::Headers;
use crate::packet::{View, Vlans};
use crate::record::FlowRecord;
use crate::rule::{Action, Protocol, Rule, RuleIndex};

/// TCP's number.
const TCP: u8 = 6;
/// What IPv4's addresses begin with where they are mapped.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl RuleSet {
    /// Alerts of such rules about a connection that ended so, its client's side first.
    pub fn at_end(&self, record: &FlowRecord) -> Vec<Alert> {
        let is_over = matches!(record.tcp_state(), "closed" | "time_wait");
        let is_open =
            record.protocol == TCP && record.is_followed && !is_over && !record.is_dropped;
        let protocol = record.application.and_then(Protocol::from_name).filter(|_| is_open);
        let Some(protocol) = protocol else { return Vec::new() };
        let mut alerts = Vec::new();
        for direction in [Direction::Initiator, Direction::Responder] {
            let mut ends = [record.view.initiator, record.view.responder];
            if direction == Direction::Responder {
                ends.reverse();
            }
            let bytes = segment(ends);
            let parsed = parse(&bytes, Link::Ip, bytes.len() as u32);
            let view = View::new(&bytes, &parsed, Vlans::default(), &[]);
            let mut found: Vec<RuleIndex> = Vec::new();
            self.bare().of_spoken(protocol, view.gist(direction, true), &mut found);
            found.sort_unstable();
            let is_answer = direction == Direction::Responder;
            found.retain(|it| {
                let rule = self.rule(*it);
                let to_server = rule.flow.to_server.is_none_or(|it| it != is_answer);
                to_server && rule.asks_speech_alone() && view.fits(&rule.header, is_answer)
            });
            // Whoever is passed raises no alert.
            let passed = found.iter().position(|it| self.rule(*it).action == Action::Pass);
            found.truncate(passed.unwrap_or(found.len()));
            alerts.extend(found.into_iter().map(|it| alert(it, record, ends, is_answer)));
        }
        alerts
    }
}

impl Rule {
    /// Whether it asks nothing but what is spoken, from where to where.
    fn asks_speech_alone(&self) -> bool {
        let flow = &self.flow;
        self.tests.is_empty()
            && self.bits.is_empty()
            && self.hook.is_none()
            && !self.is_silent
            && self.threshold.is_none()
            && flow.established.is_none()
            && flow.phases.is_none()
            && !flow.is_of_each_packet
            && self.flow_counts.is_empty()
            && self.stream_sizes.is_empty()
            && self.texts.is_empty()
    }
}

fn alert(rule: RuleIndex, record: &FlowRecord, ends: [End; 2], is_answer: bool) -> Alert {
    Alert {
        time: record.last,
        rule,
        blocked: Blocked::No,
        source: ends[0],
        destination: ends[1],
        protocol: record.protocol,
        headers: Headers::default(),
        icmp: None,
        application: record.application,
        flow: crate::alert::FlowView { to_server: !is_answer, ..record.view },
        is_other_way: false,
        is_rated: false,
        is_stream: false,
        rdma: None,
        flood: None,
        tunnel: None,
        transaction: None,
        texts: Vec::new(),
        contexts: Vec::new(),
    }
}

/// A segment without data between these ends.
fn segment([source, destination]: [End; 2]) -> Vec<u8> {
    let v4 = |it: &End| it.address.strip_prefix(&MAPPED).map(<[u8]>::to_vec);
    let mut bytes = match (v4(&source), v4(&destination)) {
        (Some(source), Some(destination)) => {
            [&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0][..], &source, &destination].concat()
        }
        _ => {
            let head: &[u8] = &[0x60, 0, 0, 0, 0, 20, TCP, 64];
            [head, &source.address, &destination.address].concat()
        }
    };
    bytes.extend(source.port.to_be_bytes());
    bytes.extend(destination.port.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    bytes
}
