//! What the detector says of a packet that a rule matches: plain values, for whoever writes them.

use std::ops::Range;
use std::sync::Arc;

use weir_wire::frame::Time;
use weir_wire::parse::{Encapsulation, Parsed};

use crate::behaviour::FloodView;
use crate::dataset::Context;
use crate::headers::Headers;
use crate::packet::ports;
use crate::rule::RuleIndex;
use crate::ruleset::RuleSet;
use crate::value::Object;

/// Alerts that wait to be taken, at most; those beyond are counted and lost.
#[derive(Debug)]
pub struct Alerts {
    waiting: Vec<Alert>,
    capacity: usize,
    overflow: u64,
}

impl Alerts {
    /// Room for `capacity` alerts.
    pub fn new(capacity: usize) -> Self {
        Self { waiting: Vec::with_capacity(capacity), capacity, overflow: 0 }
    }

    /// Takes out what waits, in the order in which it came.
    pub fn drain(&mut self) -> impl Iterator<Item = Alert> + '_ {
        self.waiting.drain(..)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many found no room since the beginning.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Those that wait, from the `first` on.
    pub(crate) fn from(&mut self, first: usize) -> &mut [Alert] {
        self.waiting.get_mut(first..).unwrap_or_default()
    }

    /// Takes back those from the `first` on that are such; how many.
    pub(crate) fn take_back(&mut self, first: usize, is_such: impl Fn(&Alert) -> bool) -> usize {
        let first = first.min(self.waiting.len());
        self.waiting.extract_if(first.., |it| is_such(it)).count()
    }

    /// Takes back what follows those at `told` and tells of the same rules.
    pub(crate) fn take_back_told(&mut self, told: Range<usize>) {
        let rules: Vec<RuleIndex> = self.waiting[told.clone()].iter().map(|it| it.rule).collect();
        self.take_back(told.end, |it| rules.contains(&it.rule));
    }

    /// Of those that wait, all from the `first` on tell what would have been: the packet passes.
    pub fn spare_from(&mut self, first: usize) {
        for alert in self.waiting.iter_mut().skip(first) {
            if alert.blocked != Blocked::No {
                alert.blocked = Blocked::Would;
            }
        }
    }

    /// Of those that wait, all from the `first` on are of a packet that was carried so.
    pub fn carried_from(&mut self, first: usize, tunnel: TunnelView) {
        self.waiting.iter_mut().skip(first).for_each(|it| it.tunnel = Some(tunnel));
    }

    pub(crate) fn push(&mut self, alert: Alert) {
        if self.waiting.len() == self.capacity {
            self.overflow += 1;
        } else {
            self.waiting.push(alert);
        }
    }
}

/// What became of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// It passed.
    No,
    /// This rule dropped it.
    Dropped,
    /// This rule dropped it and wants its sender told.
    Rejected,
    /// It passed; this rule would have dropped it, if the gateway did not only watch.
    Would,
}

/// One end of a packet or flow. IPv4 addresses are mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Address, GID or LID.
    pub address: [u8; 16],
    /// TCP's or UDP's port; 0 where there is none.
    pub port: u16,
}

/// A rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// When the packet came.
    pub time: Time,
    /// The rule, in the set that the detector ran at that time.
    pub rule: RuleIndex,
    /// What became of the packet by this rule.
    pub blocked: Blocked,
    /// Who sent the packet.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// IP's protocol number; 0 where there is no IP.
    pub protocol: u8,
    /// Of its packet.
    pub headers: Headers,
    /// Type and code, of a message of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// What is spoken, where it is known: `http`, `dns`, `tls`.
    pub application: Option<&'static str>,
    /// The flow so far.
    pub flow: FlowView,
    /// Whether the stream matched, not the packet.
    pub is_stream: bool,
    /// It is told a second time, for the other direction of a rule of `<>`.
    pub is_other_way: bool,
    /// The rule matches so often that `rate_filter` says what it does.
    pub is_rated: bool,
    /// Set when the packet is RDMA.
    pub rdma: Option<RdmaView>,
    /// The flood that the packet belongs to, if the rule asks for one.
    pub flood: Option<FloodView>,
    /// What carries the packet, if it is carried; put by who takes it out.
    pub tunnel: Option<TunnelView>,
    /// The transaction that matched, of applications that are told in units.
    pub transaction: Option<TransactionView>,
    /// What the rule's expressions captured for this alert, and those so far of the packet.
    pub texts: Vec<Text>,
    /// What sets of values know of those that the rule found there (`dataset` in JSON).
    pub contexts: Vec<Context>,
}

/// A text that an expression captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Where it is kept.
    pub kept: TextScope,
    /// The name that the rule gives it.
    pub name: String,
    /// As captured, 1,024 bytes at most.
    pub bytes: Vec<u8>,
}

impl Text {
    /// What was captured, by the number that rules have for its name.
    pub(crate) fn named(
        kept: TextScope,
        (name, bytes): (u32, &[u8]),
        rules: &RuleSet,
    ) -> Option<Self> {
        let name = rules.bit_name(name)?.strip_prefix("text ")?.to_owned();
        Some(Self { kept, name, bytes: bytes.to_vec() })
    }
}

/// How long a text that was captured is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextScope {
    /// As long as the flow: `flow:name`.
    Flow,
    /// For the rest of the rules that look at the packet: `pkt:name`.
    Packet,
    /// With the alert: `alert:name`.
    Alert,
}

/// A transaction so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView {
    /// Its number in its flow; `None`: a frame, which is no transaction's.
    pub number: Option<u64>,
    /// What is told of it, by the names of EVE's objects.
    pub objects: Arc<Vec<(&'static str, Object)>>,
    /// How far its client, and its server, have come; empty where that is not told.
    pub progress: [&'static str; 2],
    /// Whether its client's words, or its server's, have brought both so far.
    pub led_by_client: Option<bool>,
    /// The files that the packet's side sends with it, so far.
    pub files: Vec<Object>,
}

/// A flow so far, this packet included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowView {
    /// Who sent its first packet.
    pub initiator: End,
    /// The other.
    pub responder: End,
    /// When its first packet came.
    pub start: Time,
    /// Packets of the initiator and of the responder.
    pub packets: [u64; 2],
    /// Bytes, likewise.
    pub bytes: [u64; 2],
    /// Whether the initiator sent this packet.
    pub to_server: bool,
    /// By which of two ports what the initiator sends comes, 0 or 1; the responder's comes by the
    /// other.
    pub port: Option<u8>,
    /// The flow that announced it, as FTP's do those for data.
    pub parent: Option<FlowKey>,
    /// Packets of each side, and bytes of each, that passed without a look, where it is looked at
    /// no further.
    pub bypassed: Option<[[u64; 2]; 2]>,
    /// What is spoken, `tls` or `ssh`, if it has come so far that it is encrypted.
    pub encrypted: Option<&'static str>,
}

/// What tells a flow from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKey {
    /// Who sent its first packet.
    pub initiator: End,
    /// The other.
    pub responder: End,
    /// When its first packet came.
    pub start: Time,
}

impl FlowView {
    /// Which flow it is.
    pub fn key(&self) -> FlowKey {
        let Self { initiator, responder, start, .. } = *self;
        FlowKey { initiator, responder, start }
    }
}

/// The outermost of the packets that carry another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelView {
    /// Who sent it.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// IP's protocol number.
    pub protocol: u8,
    /// How many carry the packet: this one, and those in between.
    pub depth: u8,
}

impl TunnelView {
    /// Of a packet that carries another `depth` times over.
    pub fn of(bytes: &[u8], parsed: &Parsed, depth: u8) -> Self {
        let (source, destination) = ports(parsed, bytes);
        Self {
            source: End { address: parsed.source, port: source },
            destination: End { address: parsed.destination, port: destination },
            protocol: parsed.protocol,
            depth,
        }
    }
}

/// What an RDMA packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaView {
    /// How it travels.
    pub encapsulation: Encapsulation,
    /// Opcode; its name is [`weir_wire::bth::Opcode::name`].
    pub opcode: u8,
    /// Destination queue pair.
    pub destination_qp: u32,
    /// Source queue pair, of a datagram.
    pub source_qp: Option<u32>,
    /// Packet sequence number.
    pub psn: u32,
    /// Partition key.
    pub partition_key: u16,
    /// R_Key, where it brings one.
    pub remote_key: Option<u32>,
    /// Syndrome, of an acknowledgment.
    pub syndrome: Option<u8>,
    /// Bytes of the whole message, where it says so.
    pub length: Option<u32>,
}
