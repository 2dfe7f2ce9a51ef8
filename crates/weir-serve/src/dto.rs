//! What the API says: the types behind its OpenAPI document, which the command line prints too.
//! Times are RFC 3339 in UTC, addresses as people write them, counts in packets unless named.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddrV6};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use weir_store::sqlite::{
    AlertRow, ConversationRow, CounterRow, EventRow, FlowRow, Labels, Order, PeerStateRow,
    TalkerRow,
};

use crate::names::Names;
use crate::status;

pub use crate::standing::{GatewayStatus, PairStatus, StatusList, StoreStatus};

/// An error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, and what to do.
    pub error: String,
}

/// A flow's record: a span of a 5-tuple, seen from who sent its first packet.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Flow {
    pub gateway: String,
    pub pair: String,
    pub started: String,
    pub last: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or the number.
    pub protocol: String,
    pub source: String,
    pub source_port: u16,
    pub source_names: Names,
    pub destination_names: Names,
    pub destination: String,
    pub destination_port: u16,
    pub vlan: u16,
    /// `host` or `wire`: where its first packet came in.
    pub side: Option<String>,
    pub packets: u64,
    pub bytes: u64,
    pub reply_packets: u64,
    pub reply_bytes: u64,
    pub tcp_flags: u8,
    pub congestion_marks: u64,
    /// Of all packets, those that the kernel carried.
    pub fast_packets: u64,
    /// Why the record was made: `idle`, `active`, `evicted`, `superseded`, `flushed`.
    pub reason: String,
    /// The VPN client that is the source; absent where it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_peer: Option<String>,
    /// The same of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_peer: Option<String>,
    /// The exporter that told of it to `weir collect`; absent: the gateway saw it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter: Option<String>,
}

/// A record of a queue pair's talk with another, seen from who sent first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Conversation {
    pub gateway: String,
    pub pair: String,
    pub started: String,
    pub last: String,
    /// `roce_v1`, `roce_v2` or `infiniband`.
    pub encapsulation: String,
    /// `rc`, `uc`, `ud`, `rd`, `xrc`, `cnp` or `other`.
    pub service: String,
    pub source: String,
    /// Absent: nothing told it.
    pub source_qp: Option<u32>,
    pub source_names: Names,
    pub destination_names: Names,
    pub destination: String,
    pub destination_qp: u32,
    pub vlan: u16,
    pub partition_key: u16,
    /// Zero: not known.
    pub path_mtu: u16,
    pub side: Option<String>,
    pub packets: u64,
    pub bytes: u64,
    pub payload_bytes: u64,
    pub messages: u64,
    pub reply_packets: u64,
    pub reply_bytes: u64,
    pub reply_payload_bytes: u64,
    pub reply_messages: u64,
    pub send_bytes: u64,
    pub write_bytes: u64,
    pub read_bytes: u64,
    pub atomic_bytes: u64,
    pub retransmissions: u64,
    pub naks: u64,
    pub rnr_naks: u64,
    pub cnp: u64,
    pub congestion_marks: u64,
    /// Request numbers that never came.
    pub missing: u64,
    pub icrc_bad: u64,
    /// 99 of 100 timed requests were answered within so many nanoseconds.
    pub response_ns: Option<u64>,
    pub reason: String,
    /// The VPN client that is the source; absent where it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_peer: Option<String>,
    /// The same of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_peer: Option<String>,
    /// The exporter that told of it to `weir collect`; absent: the gateway saw it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter: Option<String>,
}

/// What an address sent and received.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Talker {
    pub gateway: String,
    pub address: String,
    pub names: Names,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub received_packets: u64,
    pub received_bytes: u64,
    /// Addresses that it talked with.
    pub peers: u64,
}

/// A rule that matched.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Alert {
    pub gateway: String,
    /// In the gateway's store.
    pub number: u64,
    /// An operator said that nobody need look at it any more.
    pub acknowledged: bool,
    /// In the operator's words.
    pub comment: Option<String>,
    /// Who said so last.
    pub noted_by: Option<String>,
    /// Its signature was suppressed when it came.
    pub suppressed: bool,
    pub pair: String,
    pub time: String,
    pub sid: u32,
    /// 1 is the most severe.
    pub severity: u8,
    /// `allowed`, `blocked` or `would_block`.
    pub action: String,
    pub signature: String,
    pub category: String,
    /// As EVE's `proto`.
    pub protocol: String,
    pub source: String,
    pub source_port: u16,
    pub source_names: Names,
    pub destination_names: Names,
    pub destination: String,
    pub destination_port: u16,
    /// The whole event as EVE has it.
    #[schema(value_type = Object)]
    pub event: Box<RawValue>,
}

/// What counters grew by, in slices of time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Counter {
    /// The gateway.
    pub gateway: String,
    /// Start of the slice, seconds since 1970.
    pub time_s: u64,
    /// Pair of ports.
    pub pair: String,
    /// `host`, `wire`, `peer` or `rdma`.
    pub scope: String,
    /// The interface or peer.
    pub scope_name: String,
    /// Counter.
    pub name: String,
    /// By how much.
    pub value: u64,
}

/// A list of rows.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Rows<T> {
    /// The rows, the latest or greatest first.
    pub rows: Vec<T>,
    /// Stores that did not answer, with why.
    pub problems: Vec<String>,
}

/// Counters of a range of time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Counters {
    /// Seconds of a slice.
    pub resolution_s: u64,
    /// By time.
    pub rows: Vec<Counter>,
    /// Stores that did not answer, with why.
    pub problems: Vec<String>,
}

/// Where all that a port received went: received = accepted + dropped + bypassed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PortAccount {
    /// The gateway.
    pub gateway: String,
    /// Pair of ports.
    pub pair: String,
    /// `host`, `wire` or `kernel`: where the frames came from.
    pub side: String,
    /// The interface.
    pub interface: String,
    /// Frames received.
    pub received: u64,
    /// Sealed, opened, forwarded or taken in, as the policy wants it.
    pub accepted: u64,
    /// Passed in clear where the gateway seals: exceptions, and peers that need not be sealed to.
    pub bypassed: u64,
    /// Dropped, for any reason.
    pub dropped: u64,
    /// Of `dropped`, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Frames that the port lost before or after the gateway had them; not in `received`.
    pub port_losses: BTreeMap<String, u64>,
    /// Whether the sum holds.
    pub adds_up: bool,
}

/// Drops since the gateways' start.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Drops {
    /// By port.
    pub ports: Vec<PortAccount>,
    /// What each reason that occurs means.
    pub meanings: BTreeMap<String, String>,
}

/// A peer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Tunnel {
    pub gateway: String,
    pub pair: String,
    pub peer: String,
    /// `up`, `silent`, `idle`, `connecting` or `dead`.
    pub state: String,
    pub endpoint: Option<String>,
    pub endpoint_names: Names,
    pub sealed_packets: u64,
    pub sealed_bytes: u64,
    pub opened_packets: u64,
    pub opened_bytes: u64,
    /// Sequence numbers left before a new key is needed.
    pub sequence_remaining: u64,
    pub last_seen_seconds: Option<f64>,
    /// How old the keys are; absent where they are configured.
    pub last_handshake_seconds: Option<f64>,
    pub rekeys: u64,
    /// Initiations in a row without an answer.
    pub unanswered: u32,
    /// Why the peer refused the last one.
    pub refused_because: Option<String>,
    /// The largest packet that the path carries, bytes; absent: nobody asks.
    pub path_mtu: Option<u16>,
    /// `off`, `searching`, `found` or `unanswered`.
    pub path_mtu_state: Option<String>,
}

/// A change of a peer's state.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TunnelChange {
    pub gateway: String,
    pub time: String,
    pub pair: String,
    pub peer: String,
    pub state: String,
    pub endpoint: Option<String>,
    pub endpoint_names: Names,
}

/// Peers, and how they came to be so.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Tunnels {
    /// As they are.
    pub tunnels: Vec<Tunnel>,
    /// What changed, the latest first.
    pub changes: Vec<TunnelChange>,
    /// Stores that did not answer, with why.
    pub problems: Vec<String>,
}

/// A line of a gateway's log book.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Event {
    pub gateway: String,
    pub time: String,
    pub who: String,
    pub what: String,
    pub outcome: String,
}

/// An address as people write it: IPv4, IPv6 (also for GIDs), or a LID in hexadecimal.
pub fn address_text(address: [u8; 16], is_lid: bool) -> String {
    if is_lid {
        let [.., high, low] = address;
        return format!("lid {:#06x}", u16::from_be_bytes([high, low]));
    }
    let address = Ipv6Addr::from(address);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |it| it.to_string())
}

/// RFC 3339 with milliseconds, of nanoseconds since 1970.
pub fn time_text(time_ns: u64) -> String {
    let time = Timestamp::from_nanosecond(time_ns.into()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn protocol_text(protocol: u8) -> String {
    match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => other.to_string(),
    }
}

impl Flow {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: FlowRow, labels: &Labels) -> Self {
        Self {
            gateway: gateway.to_owned(),
            pair: row.pair,
            started: time_text(row.started_ns),
            last: time_text(row.last_ns),
            protocol: protocol_text(row.protocol),
            source: address_text(row.source, false),
            source_port: row.source_port,
            source_names: Names::of(labels, row.source),
            destination_names: Names::of(labels, row.destination),
            destination: address_text(row.destination, false),
            destination_port: row.destination_port,
            vlan: row.vlan,
            side: row.side,
            packets: row.packets,
            bytes: row.bytes,
            reply_packets: row.reply_packets,
            reply_bytes: row.reply_bytes,
            tcp_flags: row.tcp_flags,
            congestion_marks: row.congestion_marks,
            fast_packets: row.fast_packets,
            reason: row.reason,
            source_peer: row.source_peer,
            destination_peer: row.destination_peer,
            exporter: row.exporter,
        }
    }

    /// By what rows of several stores are put in order, the greatest first.
    pub fn rank(&self, order: Order) -> (u64, String) {
        let value = match order {
            Order::Bytes => self.bytes.saturating_add(self.reply_bytes),
            Order::Packets => self.packets.saturating_add(self.reply_packets),
            _ => 0,
        };
        (value, self.last.clone())
    }

    /// An end as `address:port`, where the protocol has ports.
    pub fn end(address: &str, port: u16, protocol: &str) -> String {
        match (protocol, address.parse::<Ipv6Addr>()) {
            ("tcp" | "udp", Ok(v6)) => SocketAddrV6::new(v6, port, 0, 0).to_string(),
            ("tcp" | "udp", Err(_)) => format!("{address}:{port}"),
            _ => address.to_owned(),
        }
    }
}

impl Conversation {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: ConversationRow, labels: &Labels) -> Self {
        let is_lid = row.encapsulation == "infiniband";
        Self {
            gateway: gateway.to_owned(),
            pair: row.pair,
            started: time_text(row.started_ns),
            last: time_text(row.last_ns),
            service: row.service,
            source: address_text(row.source, is_lid),
            source_qp: row.source_qp,
            source_names: Names::of(labels, row.source),
            destination_names: Names::of(labels, row.destination),
            destination: address_text(row.destination, is_lid),
            destination_qp: row.destination_qp,
            encapsulation: row.encapsulation,
            vlan: row.vlan,
            partition_key: row.partition_key,
            path_mtu: row.path_mtu,
            side: row.side,
            packets: row.packets,
            bytes: row.bytes,
            payload_bytes: row.payload_bytes,
            messages: row.messages,
            reply_packets: row.reply_packets,
            reply_bytes: row.reply_bytes,
            reply_payload_bytes: row.reply_payload_bytes,
            reply_messages: row.reply_messages,
            send_bytes: row.send_bytes,
            write_bytes: row.write_bytes,
            read_bytes: row.read_bytes,
            atomic_bytes: row.atomic_bytes,
            retransmissions: row.retransmissions,
            naks: row.naks,
            rnr_naks: row.rnr_naks,
            cnp: row.cnp,
            congestion_marks: row.congestion_marks,
            missing: row.missing,
            icrc_bad: row.icrc_bad,
            response_ns: row.response_ns,
            reason: row.reason,
            source_peer: row.source_peer,
            destination_peer: row.destination_peer,
            exporter: row.exporter,
        }
    }
}

impl Conversation {
    /// By what rows of several stores are put in order, the greatest first.
    pub fn rank(&self, order: Order) -> (u64, String) {
        let value = match order {
            Order::Last => 0,
            Order::Bytes => self.bytes.saturating_add(self.reply_bytes),
            Order::Packets => self.packets.saturating_add(self.reply_packets),
            Order::Retransmissions => self.retransmissions,
            Order::Naks => self.naks,
            Order::Response => self.response_ns.unwrap_or_default(),
        };
        (value, self.last.clone())
    }
}

impl Alert {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: AlertRow, labels: &Labels) -> Self {
        let note = row.note.as_ref();
        Self {
            number: row.number,
            acknowledged: note.is_some_and(|it| it.is_acknowledged),
            comment: note.map(|it| it.comment.clone()).filter(|it| !it.is_empty()),
            noted_by: note.map(|it| it.who.clone()),
            suppressed: row.is_suppressed,
            gateway: gateway.to_owned(),
            pair: row.pair,
            time: time_text(row.time_ns),
            sid: row.sid,
            severity: row.severity,
            action: row.action,
            signature: row.signature,
            category: row.category,
            protocol: row.protocol,
            source: address_text(row.source, false),
            source_port: row.source_port,
            source_names: Names::of(labels, row.source),
            destination_names: Names::of(labels, row.destination),
            destination: address_text(row.destination, false),
            destination_port: row.destination_port,
            event: RawValue::from_string(row.event).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        }
    }
}

impl Talker {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: TalkerRow, labels: &Labels) -> Self {
        Self {
            gateway: gateway.to_owned(),
            address: address_text(row.address, false),
            names: Names::of(labels, row.address),
            sent_packets: row.sent_packets,
            sent_bytes: row.sent_bytes,
            received_packets: row.received_packets,
            received_bytes: row.received_bytes,
            peers: row.peers,
        }
    }
}

impl Counter {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: CounterRow) -> Self {
        Self {
            gateway: gateway.to_owned(),
            time_s: row.time_s,
            pair: row.pair,
            scope: row.scope,
            scope_name: row.scope_name,
            name: row.name,
            value: row.value,
        }
    }
}

impl TunnelChange {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: PeerStateRow, labels: &Labels) -> Self {
        Self {
            endpoint_names: Names::of_endpoint(labels, row.endpoint.as_deref()),
            gateway: gateway.to_owned(),
            time: time_text(row.time_ns),
            pair: row.pair,
            peer: row.peer,
            state: row.state,
            endpoint: row.endpoint,
        }
    }
}

impl Event {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: EventRow) -> Self {
        Self {
            gateway: gateway.to_owned(),
            time: time_text(row.time_ns),
            who: row.who,
            what: row.what,
            outcome: row.outcome,
        }
    }
}

impl PortAccount {
    /// From a side of `pair`.
    pub fn of(gateway: &str, pair: &str, name: &str, side: &status::Side) -> Self {
        let bypassed = side.clear + side.unsealed;
        let protected = side.sealed + side.opened + side.tagged + side.handed;
        let accepted = side.forwarded + protected + side.punted + side.consumed;
        let reasons: u64 = side.dropped_by_reason.values().sum();
        let losses = side.port.losses().into_iter().filter(|(_, count)| *count > 0);
        Self {
            gateway: gateway.to_owned(),
            pair: pair.to_owned(),
            side: name.to_owned(),
            interface: side.interface.clone(),
            received: side.received,
            accepted,
            bypassed,
            dropped: side.dropped,
            reasons: side.dropped_by_reason.clone(),
            port_losses: losses.map(|(name, count)| (name.to_owned(), count)).collect(),
            adds_up: side.received == accepted + bypassed + side.dropped && side.dropped == reasons,
        }
    }

    /// The sides of a pair.
    pub fn all(gateway: &str, pair: &status::Pair) -> Vec<Self> {
        let sides = [("host", Some(&pair.host)), ("wire", Some(&pair.wire))];
        let sides = sides.into_iter().chain([("kernel", pair.kernel.as_ref())]);
        sides.filter_map(|(name, side)| Some(Self::of(gateway, &pair.name, name, side?))).collect()
    }
}

impl Tunnel {
    /// The peers of a gateway, whose store has `labels`.
    pub fn all(gateway: &status::Status, labels: &Labels) -> Vec<Self> {
        let peers =
            gateway.pairs.iter().flat_map(|pair| pair.peers.iter().map(move |it| (pair, it)));
        let endpoint = |peer: &status::Peer| peer.keying.as_ref()?.endpoint.clone();
        let tunnel = |(pair, peer): (&status::Pair, &status::Peer)| Self {
            gateway: gateway.name.clone(),
            pair: pair.name.clone(),
            peer: peer.name.clone(),
            state: peer.state().to_owned(),
            endpoint: endpoint(peer),
            endpoint_names: Names::of_endpoint(labels, endpoint(peer).as_deref()),
            sealed_packets: peer.sealed_packets,
            sealed_bytes: peer.sealed_bytes,
            opened_packets: peer.opened_packets,
            opened_bytes: peer.opened_bytes,
            sequence_remaining: peer.sequence_remaining,
            last_seen_seconds: peer.last_seen_seconds,
            last_handshake_seconds: peer.keying.as_ref().and_then(|it| it.last_handshake_seconds),
            rekeys: peer.keying.as_ref().map_or(0, |it| it.rekeys),
            unanswered: peer.keying.as_ref().map_or(0, |it| it.unanswered),
            refused_because: peer.keying.as_ref().and_then(|it| it.refused_because.clone()),
            path_mtu: peer.keying.as_ref().map(|it| it.path_mtu.bytes).filter(|it| *it > 0),
            path_mtu_state: peer.keying.as_ref().map(|it| it.path_mtu.state.clone()),
        };
        peers.map(tunnel).collect()
    }
}
