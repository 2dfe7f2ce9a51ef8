//! What is told of a flow when it ends, of the transactions in it, and of what is odd.

use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp::flags::{FIN, RST, SYN};

use crate::alert::{End, FlowView};
use crate::application::unit::Record;
use crate::buffers::event::AppEvent;
use crate::decode::Event;
use crate::detector::{Direction, Limits, Marks};
use crate::flow::Flow;
use crate::headers::Headers;
use crate::packet::{View, Vlans, ports};
use crate::rule::Protocol;
pub use crate::value::{Object, Value};

/// Why a flow ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndReason {
    /// It was silent for long.
    Timeout,
    /// Another connection began on its ports.
    Reused,
    /// There was no room for it.
    Forced,
    /// There was nothing more to look at.
    #[default]
    Shutdown,
}

impl EndReason {
    /// As EVE's `flow.reason` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Reused => "tcp_reuse",
            Self::Forced => "forced",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What is spoken beside what a flow is told to speak in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpokenBeside {
    /// What each side spoke, where it is known and is something else.
    pub sides: [Option<&'static str>; 2],
    /// What was spoken before, where both sides agreed to go on in something else.
    pub original: Option<&'static str>,
    /// What they agreed on, where they speak something else.
    pub expected: Option<&'static str>,
}

/// A flow that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRecord {
    /// Its ends, beginning and size.
    pub view: FlowView,
    /// When its last packet came.
    pub last: Time,
    /// IP's protocol number; 0 where there is no IP.
    pub protocol: u8,
    /// What was spoken, where it is known.
    pub application: Option<&'static str>,
    /// What is spoken beside.
    pub beside: SpokenBeside,
    /// Transactions of what is spoken, as far as somebody looked at them.
    pub transactions: u64,
    /// Those of what was spoken before.
    pub transactions_before: u64,
    /// Whether it was looked for, and is none that is known here.
    pub has_failed: bool,
    /// TCP's flags of the initiator's and the responder's segments, together.
    pub tcp_flags: [u8; 2],
    /// Those of packets before the flow was dropped, if it was.
    pub tcp_passed: [u8; 2],
    /// Whether TCP's handshake was whole.
    pub is_established: bool,
    /// Whether bytes of the initiator's stream, and of the responder's, are missing for good.
    pub has_gap: [bool; 2],
    /// Whether its first segments were none of a connection's beginning.
    pub is_midstream: bool,
    /// Whether a connection of TCP was followed: its beginning was seen, or connections are taken
    /// up without.
    pub is_followed: bool,
    /// How far TCP was in the end, where each segment was followed.
    pub followed_to: Option<&'static str>,
    /// Type and code of each side's first ICMP message.
    pub icmp: [Option<(u8, u8)>; 2],
    /// Of the responder only ICMP's errors came.
    pub is_refused: bool,
    /// Security parameters index, of ESP.
    pub spi: Option<u32>,
    /// VLANs of its first packet, the outermost first.
    pub vlans: Vlans,
    /// Whether a rule alerted.
    pub is_alerted: bool,
    /// Whether a rule dropped the rest of it.
    pub is_dropped: bool,
    /// Whether a rule let the rest of it pass.
    pub is_passed: bool,
    /// Whether nothing is told of it: a rule says so (`config`), or it is ARP.
    pub is_untold: bool,
    /// What rules have noted of it.
    pub marks: Option<Box<Marks>>,
    /// The least and the greatest number of routers that packets of the initiator, and of the
    /// responder, could still pass; none where it sent none.
    pub hop_limits: [Option<(u8, u8)>; 2],
    /// Why it ended.
    pub reason: EndReason,
    /// HTTP's transactions that were not told of before.
    pub http: Vec<HttpRecord>,
    /// Transactions of other applications that were not told of before.
    pub units: Vec<UnitRecord>,
    /// Sessions of other applications, likewise.
    pub applications: Vec<ApplicationRecord>,
}

impl FlowRecord {
    /// As EVE's `flow.state` spells it.
    pub fn state(&self) -> &'static str {
        if self.view.bypassed.is_some() {
            return "bypassed";
        }
        if self.protocol != 6 {
            let is_answered = self.view.packets[1] > 0 && !self.is_refused;
            return if is_answered { "established" } else { "new" };
        }
        match self.tcp_state() {
            _ if !self.is_followed => "new",
            "closed" | "time_wait" | "last_ack" => "closed",
            "none" | "syn_sent" | "syn_recv" => "new",
            _ => "established",
        }
    }

    /// As EVE's `tcp.state` spells it.
    pub fn tcp_state(&self) -> &'static str {
        if let Some(state) = self.followed_to {
            return state;
        }
        let [client, server] = self.tcp_passed;
        match () {
            () if (client | server) & RST != 0 => "closed",
            () if client & server & FIN != 0 => "closed",
            () if client & FIN != 0 => "close_wait",
            () if server & FIN != 0 => "fin_wait1",
            () if self.is_established || self.is_midstream => "established",
            () if client & server & SYN != 0 => "syn_recv",
            () if client & SYN != 0 => "syn_sent",
            () => "none",
        }
    }
}

/// A transaction of HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRecord {
    /// When its last packet came.
    pub time: Time,
    /// Its flow; the direction is the request's.
    pub flow: FlowView,
    /// Number of the transaction in its connection.
    pub number: u64,
    /// Whether it is of HTTP/2.
    pub is_of_http2: bool,
    /// Parts of the request and response by EVE's names for them.
    pub object: Object,
}

/// A transaction of an application that is told in units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitRecord {
    /// When its last packet came.
    pub time: Time,
    /// Its flow; `to_server` says who sent it.
    pub flow: FlowView,
    /// IP's protocol number.
    pub protocol: u8,
    /// What is spoken.
    pub application: Option<&'static str>,
    /// EVE's `event_type`.
    pub kind: &'static str,
    /// Number of the transaction in its flow.
    pub number: Option<u64>,
    /// By the names of EVE's objects.
    pub objects: Vec<(&'static str, Object)>,
}

impl UnitRecord {
    pub(crate) fn new(time: Time, flow: &Flow, record: Record, limits: &Limits) -> Self {
        // Suricata tells of what a stream said when the other side acknowledges it, but inline.
        let is_heard_late = !limits.as_suricata.looks_at_pieces;
        let is_file = matches!(record.kind, "fileinfo" | "mqtt" | "frame");
        let is_turned = is_heard_late && flow.told.protocol == 6 && !is_file;
        let direction = match record.side {
            Some(side) if (side == 1) != is_turned => Direction::Responder,
            _ => Direction::Initiator,
        };
        Self {
            time,
            flow: flow.view(direction),
            protocol: flow.told.protocol,
            application: flow.told.application,
            kind: record.kind,
            number: record.number,
            objects: record.objects,
        }
    }
}

/// What was told of a message or session of an application other than HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationRecord {
    /// When its last packet came.
    pub time: Time,
    /// Its flow; `to_server` says who sent it.
    pub flow: FlowView,
    /// IP's protocol number.
    pub protocol: u8,
    /// EVE's `event_type`: `dns`, `tls`, `ssh`.
    pub kind: &'static str,
    /// By EVE's names.
    pub object: Object,
}

/// What is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// Something about a packet, or about its place in its stream.
    Packet(Event),
    /// Something about a message of an application, and its transaction's number, where that is
    /// known.
    Message(AppEvent, Option<u64>),
}

impl Oddity {
    /// EVE's `tx_id`.
    pub fn transaction(self) -> Option<u64> {
        match self {
            Self::Packet(_) => None,
            Self::Message(_, number) => number,
        }
    }

    /// EVE's `type`, `event` and, of applications, `layer`.
    pub fn names(self) -> (&'static str, String, Option<&'static str>) {
        match self {
            Self::Packet(event) if event.is_of_application() => {
                ("applayer", event.name().to_ascii_uppercase(), Some("proto_detect"))
            }
            // Suricata 8.0.7 numbers some behind what is odd about streams.
            Self::Packet(event)
                if ["stream.", "decoder.arp.", "decoder.too_many_layers"]
                    .iter()
                    .any(|it| event.name().starts_with(it)) =>
            {
                ("stream", event.name().to_owned(), None)
            }
            Self::Packet(event) => ("decode", event.name().to_owned(), None),
            Self::Message(event, _) => {
                let name = event.name().split_once('.').map_or(event.name(), |it| it.1);
                // As Suricata spells them: those of its older parsers are in capitals.
                let name = match event.protocol() {
                    Protocol::Http | Protocol::Tls | Protocol::Smtp | Protocol::Dnp3 => {
                        name.to_ascii_uppercase()
                    }
                    _ => name.to_owned(),
                };
                ("applayer", name, Some("proto_parser"))
            }
        }
    }
}

/// Something odd about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnomalyRecord {
    /// When the packet came.
    pub time: Time,
    /// What was odd.
    pub event: Oddity,
    /// What is spoken, where it is known.
    pub application: Option<&'static str>,
    /// Who sent it.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// IP's protocol number.
    pub protocol: u8,
    /// IP's version; 0 where there is no IP, or none that could be read.
    pub version: u8,
    /// Type and code of a message of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// The VLANs that it is in.
    pub vlans: Vlans,
    /// Its flow so far.
    pub flow: FlowView,
}

impl AnomalyRecord {
    pub(crate) fn new(
        time: Time,
        event: Oddity,
        view: &View<'_>,
        flow: &Flow,
        direction: Direction,
    ) -> Self {
        let parsed = view.parsed;
        Self {
            time,
            event,
            application: flow.told.application,
            source: End { address: parsed.source, port: view.source_port },
            destination: End { address: parsed.destination, port: view.destination_port },
            protocol: parsed.protocol,
            version: match parsed.network {
                Network::Ipv4 => 4,
                Network::Ipv6 => 6,
                _ => 0,
            },
            icmp: match parsed.transport {
                Transport::Icmp { kind, code } => Some((kind, code)),
                _ => None,
            },
            vlans: view.vlans,
            flow: flow.view(direction),
        }
    }
}

/// A packet that was dropped and no alert tells of: of its flow, the first of its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// When it came.
    pub time: Time,
    /// As EVE's `drop.reason` spells it: `flow drop`, its flow was dropped before; `rules`, a rule
    /// matched, and its threshold keeps it silent; `applayer error`, a parser has given up, and
    /// `exception policy flow drop`, one had before; others are given by who drops it.
    pub reason: &'static str,
    /// Who sent it.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// IP's protocol number; 0 where there is no IP.
    pub protocol: u8,
    /// Of its packet.
    pub headers: Headers,
    /// What is spoken, where it is known.
    pub application: Option<&'static str>,
    /// Its flow so far; `None`: it is of none.
    pub flow: Option<FlowView>,
}

impl DropRecord {
    /// Of a packet that no flow was found for.
    pub fn of_packet(time: Time, reason: &'static str, bytes: &[u8], parsed: &Parsed) -> Self {
        let datagram = parsed.datagram(bytes);
        let parsed = datagram.as_ref().unwrap_or(parsed);
        let (source_port, destination_port) = ports(parsed, bytes);
        Self {
            time,
            reason,
            source: End { address: parsed.source, port: source_port },
            destination: End { address: parsed.destination, port: destination_port },
            protocol: parsed.protocol,
            headers: Headers::of(bytes, parsed),
            application: None,
            flow: None,
        }
    }

    pub(crate) fn new(
        time: Time,
        reason: &'static str,
        view: &View<'_>,
        flow: &Flow,
        direction: Direction,
    ) -> Self {
        Self {
            application: flow.told.application,
            flow: Some(flow.view(direction)),
            ..Self::of_packet(time, reason, view.bytes, view.parsed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_established_once_its_responder_has_answered_by_more_than_errors() {
        let record = |packets: u64, is_refused: bool| FlowRecord {
            protocol: 17,
            view: FlowView { packets: [1, packets], ..FlowView::default() },
            is_refused,
            ..FlowRecord::default()
        };
        assert_eq!(record(0, false).state(), "new");
        assert_eq!(record(1, true).state(), "new");
        assert_eq!(record(1, false).state(), "established");
    }
}
