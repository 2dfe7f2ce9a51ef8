//! What queries give. Times are nanoseconds since 1970 unless a name says otherwise; addresses are
//! 16 bytes as in [`weir_wire::parse::Parsed::source`].

use rusqlite::Row;

use super::notes::AlertNote;

/// A flow's record: a span of a 5-tuple, seen from who sent its first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `FlowRecord`, by the same names")]
pub struct FlowRow {
    pub started_ns: u64,
    pub last_ns: u64,
    /// Name of the pair of ports.
    pub pair: String,
    pub protocol: u8,
    pub source: [u8; 16],
    pub source_port: u16,
    pub destination: [u8; 16],
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
    pub reason: String,
    /// The VPN client that sends or answers.
    pub source_peer: Option<String>,
    pub destination_peer: Option<String>,
    /// Who told of it; absent: the gateway saw it itself.
    pub exporter: Option<String>,
}

/// A conversation's record: a span of a queue pair's talk with another, seen from who sent first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `ConversationRecord`, by the same names")]
pub struct ConversationRow {
    pub started_ns: u64,
    pub last_ns: u64,
    /// Name of the pair of ports.
    pub pair: String,
    /// `roce_v1`, `roce_v2` or `infiniband`.
    pub encapsulation: String,
    /// `rc`, `uc`, `ud`, `rd`, `xrc`, `cnp` or `other`.
    pub service: String,
    pub source: [u8; 16],
    pub source_qp: Option<u32>,
    pub destination: [u8; 16],
    pub destination_qp: u32,
    pub vlan: u16,
    pub partition_key: u16,
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
    /// The VPN client that asks or is asked.
    pub source_peer: Option<String>,
    pub destination_peer: Option<String>,
    /// Who told of it; absent: the gateway saw it itself.
    pub exporter: Option<String>,
    /// The exporter's number of the conversation, not stored: what joins its two directions.
    pub flow_id: Option<u64>,
}

/// A record that another exporter told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Of a flow.
    Flow(FlowRow),
    /// Of a conversation.
    Conversation(ConversationRow),
}

impl Collected {
    /// Says who told of it, and of which of its domains.
    pub fn belongs_to(&mut self, exporter: &str, domain: &str) {
        let (own, pair) = match self {
            Self::Flow(row) => (&mut row.exporter, &mut row.pair),
            Self::Conversation(row) => (&mut row.exporter, &mut row.pair),
        };
        *own = Some(exporter.to_owned());
        domain.clone_into(pair);
    }
}

impl ConversationRow {
    /// Takes in the record of the other direction.
    pub fn add_reply(&mut self, other: &Self) {
        self.reply_packets = other.packets;
        self.reply_bytes = other.bytes;
        self.reply_payload_bytes = other.payload_bytes;
        self.reply_messages = other.messages;
        self.started_ns = self.started_ns.min(other.started_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.path_mtu = self.path_mtu.max(other.path_mtu);
        self.response_ns = self.response_ns.max(other.response_ns);
        let sums = [
            (&mut self.send_bytes, other.send_bytes),
            (&mut self.write_bytes, other.write_bytes),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.atomic_bytes, other.atomic_bytes),
            (&mut self.retransmissions, other.retransmissions),
            (&mut self.naks, other.naks),
            (&mut self.rnr_naks, other.rnr_naks),
            (&mut self.cnp, other.cnp),
            (&mut self.congestion_marks, other.congestion_marks),
            (&mut self.missing, other.missing),
            (&mut self.icrc_bad, other.icrc_bad),
        ];
        for (own, other) in sums {
            *own = own.saturating_add(other);
        }
    }
}

/// What an address sent and received, by kind of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TalkerRow {
    pub address: [u8; 16],
    /// `rdma`, `tcp`, `udp`, `icmp` or `other`; absent: all.
    pub kind: Option<String>,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub received_packets: u64,
    pub received_bytes: u64,
    /// Addresses that it talked with.
    pub peers: u64,
}

/// What a counter grew by in a slice of time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CounterRow {
    pub time_s: u64,
    pub pair: String,
    /// A [`super::ScopeKind`]'s name.
    pub scope: String,
    pub scope_name: String,
    pub name: String,
    pub value: u64,
}

/// A peer's state from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PeerStateRow {
    pub time_ns: u64,
    pub pair: String,
    pub peer: String,
    pub state: String,
    pub endpoint: Option<String>,
}

/// A line of the log book.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct EventRow {
    pub time_ns: u64,
    pub who: String,
    pub what: String,
    pub outcome: String,
}

/// SQLite's integers are signed; counters are stored by their bits.
fn unsigned(row: &Row<'_>, name: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(name).map(|value| value as u64)
}

impl FlowRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let count = |name| unsigned(row, name);
        Ok(Self {
            started_ns: count("started_ns")?,
            last_ns: count("last_ns")?,
            pair: row.get("pair_name")?,
            protocol: row.get("protocol")?,
            source: row.get("source")?,
            source_port: row.get("source_port")?,
            destination: row.get("destination")?,
            destination_port: row.get("destination_port")?,
            vlan: row.get("vlan")?,
            side: row.get("side")?,
            packets: count("packets")?,
            bytes: count("bytes")?,
            reply_packets: count("reply_packets")?,
            reply_bytes: count("reply_bytes")?,
            tcp_flags: row.get("tcp_flags")?,
            congestion_marks: count("congestion_marks")?,
            fast_packets: count("fast_packets")?,
            reason: row.get("reason")?,
            source_peer: row.get("source_peer")?,
            destination_peer: row.get("destination_peer")?,
            exporter: row.get("exporter")?,
        })
    }
}

impl ConversationRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let count = |name| unsigned(row, name);
        Ok(Self {
            started_ns: count("started_ns")?,
            last_ns: count("last_ns")?,
            pair: row.get("pair_name")?,
            encapsulation: row.get("encapsulation")?,
            service: row.get("service")?,
            source: row.get("source")?,
            source_qp: row.get("source_qp")?,
            destination: row.get("destination")?,
            destination_qp: row.get("destination_qp")?,
            vlan: row.get("vlan")?,
            partition_key: row.get("partition_key")?,
            path_mtu: row.get("path_mtu")?,
            side: row.get("side")?,
            packets: count("packets")?,
            bytes: count("bytes")?,
            payload_bytes: count("payload_bytes")?,
            messages: count("messages")?,
            reply_packets: count("reply_packets")?,
            reply_bytes: count("reply_bytes")?,
            reply_payload_bytes: count("reply_payload_bytes")?,
            reply_messages: count("reply_messages")?,
            send_bytes: count("send_bytes")?,
            write_bytes: count("write_bytes")?,
            read_bytes: count("read_bytes")?,
            atomic_bytes: count("atomic_bytes")?,
            retransmissions: count("retransmissions")?,
            naks: count("naks")?,
            rnr_naks: count("rnr_naks")?,
            cnp: count("cnp")?,
            congestion_marks: count("congestion_marks")?,
            missing: count("missing")?,
            icrc_bad: count("icrc_bad")?,
            response_ns: row.get::<_, Option<i64>>("response_ns")?.map(|ns| ns as u64),
            reason: row.get("reason")?,
            source_peer: row.get("source_peer")?,
            destination_peer: row.get("destination_peer")?,
            exporter: row.get("exporter")?,
            flow_id: None,
        })
    }
}

impl CounterRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            time_s: unsigned(row, "time_s")?,
            pair: row.get("pair")?,
            scope: row.get("kind")?,
            scope_name: row.get("scope_name")?,
            name: row.get("name")?,
            value: unsigned(row, "value")?,
        })
    }
}

impl PeerStateRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            time_ns: unsigned(row, "time_ns")?,
            pair: row.get("pair")?,
            peer: row.get("peer")?,
            state: row.get("state")?,
            endpoint: row.get("endpoint")?,
        })
    }
}

/// What one host asked of another by RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRow {
    /// Who asked.
    pub source: [u8; 16],
    /// Whom.
    pub destination: [u8; 16],
    /// For what: a sum of [`AskedRow::SEND`] and its like.
    pub asked: u8,
    /// In so many messages.
    pub messages: u64,
}

impl AskedRow {
    /// SEND, with or without immediate data.
    pub const SEND: u8 = 1;
    /// RDMA WRITE.
    pub const WRITE: u8 = 2;
    /// RDMA READ.
    pub const READ: u8 = 4;
    /// Atomics.
    pub const ATOMIC: u8 = 8;

    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let messages: i64 = row.get("messages")?;
        Ok(Self {
            source: row.get("source")?,
            destination: row.get("destination")?,
            asked: row.get("asked")?,
            messages: messages as u64,
        })
    }
}

/// A rule that matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of EVE's alerts, by the names of the API")]
pub struct AlertRow {
    /// From one on; zero: none was drawn yet.
    pub number: u64,
    /// What was last said of it.
    pub note: Option<AlertNote>,
    /// Whether nobody wanted to see it when it came.
    pub is_suppressed: bool,
    pub time_ns: u64,
    /// Name of the pair of ports.
    pub pair: String,
    pub sid: u32,
    /// 1 is the most severe.
    pub severity: u8,
    /// `allowed`, `blocked` or `would_block`.
    pub action: String,
    pub signature: String,
    pub category: String,
    /// As EVE's `proto`.
    pub protocol: String,
    pub source: [u8; 16],
    pub source_port: u16,
    pub destination: [u8; 16],
    pub destination_port: u16,
    /// EVE's event, whole, as JSON.
    pub event: String,
}

impl AlertRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: unsigned(row, "id")?,
            note: AlertNote::of(row)?,
            is_suppressed: row.get("is_suppressed")?,
            time_ns: unsigned(row, "time_ns")?,
            pair: row.get("pair")?,
            sid: row.get("sid")?,
            severity: row.get("severity")?,
            action: row.get("action")?,
            signature: row.get("signature")?,
            category: row.get("category")?,
            protocol: row.get("protocol")?,
            source: row.get("source")?,
            source_port: row.get("source_port")?,
            destination: row.get("destination")?,
            destination_port: row.get("destination_port")?,
            event: row.get("event")?,
        })
    }
}

impl EventRow {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            time_ns: unsigned(row, "time_ns")?,
            who: row.get("who")?,
            what: row.get("what")?,
            outcome: row.get("outcome")?,
        })
    }
}
