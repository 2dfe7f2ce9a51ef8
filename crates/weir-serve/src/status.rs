//! A gateway's status, as much of it as is shown here: what `weir status --json` prints, read with
//! defaults, so that gateways of other versions can be looked at too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gateway at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Status {
    pub version: String,
    pub name: String,
    pub taken_ns: u64,
    pub uptime_seconds: u64,
    pub on_failure: String,
    pub adds_up: bool,
    pub reloads_refused: u64,
    pub pairs: Vec<Pair>,
    pub store: Option<Store>,
    pub alerts: Option<Alerts>,
    pub configuration: Configuration,
    /// What `weir collect` tells of itself.
    pub collector: Option<Collector>,
}

/// A collector of others' records.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir collect --json`")]
pub struct Collector {
    pub exporters: Vec<ExporterCounters>,
    /// Messages, and connections, that were not read, by why.
    pub refused: BTreeMap<String, u64>,
}

/// What became of what one exporter sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir collect --json`")]
pub struct ExporterCounters {
    pub exporter: String,
    pub domain: u32,
    pub counters: BTreeMap<String, u64>,
}

/// A pair of ports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Pair {
    pub name: String,
    pub driver: String,
    pub policy_epoch: u32,
    pub host: Side,
    pub wire: Side,
    pub kernel: Option<Side>,
    pub wire_proof: WireProof,
    pub peers: Vec<Peer>,
    pub rdma: Rdma,
    pub flows: u64,
    pub fast_path: FastPath,
    pub access: Option<Access>,
    pub evidence: Option<Evidence>,
    pub detection: Option<Detection>,
}

/// What rules found.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Detection {
    pub rules: u64,
    pub alerts: u64,
    pub alerts_lost: u64,
}

/// What became of alerts and of records that are told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Alerts {
    pub written: u64,
    pub lost: u64,
    pub records_lost: u64,
    pub sinks: Vec<Sink>,
}

/// What became of events for one sink.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Sink {
    pub to: String,
    pub sent: u64,
    pub lost: u64,
    pub waiting: u64,
    /// Why there is no connection.
    pub failure: Option<String>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Configuration {
    pub rules_refused: u64,
}

/// What lines of access decided.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Access {
    pub default_action: String,
    pub default_messages: u64,
    pub default_packets: u64,
    pub default_bytes: u64,
    pub lines: Vec<AccessLine>,
}

/// What one line decided.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct AccessLine {
    pub name: String,
    pub action: String,
    pub messages: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// Packets that are remembered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Evidence {
    pub packets: u64,
    pub bytes: u64,
    pub capacity_bytes: u64,
    pub oldest_seconds: Option<f64>,
    pub disk: Option<EvidenceDisk>,
}

/// Those on disk.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct EvidenceDisk {
    pub packets: u64,
    pub bytes: u64,
    pub oldest_seconds: Option<f64>,
}

/// One side of a pair.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Side {
    pub interface: String,
    pub received: u64,
    pub received_bytes: u64,
    pub forwarded: u64,
    pub fast: u64,
    pub sealed: u64,
    pub opened: u64,
    pub clear: u64,
    pub unsealed: u64,
    pub tagged: u64,
    pub handed: u64,
    pub punted: u64,
    pub consumed: u64,
    pub dropped: u64,
    pub dropped_by_reason: BTreeMap<String, u64>,
    pub adds_up: bool,
    pub guard_dropped: u64,
    pub port: Port,
}

/// What a port itself counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Port {
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub lost_ring_full: u64,
    pub lost_truncated: u64,
    pub send_queue_full: u64,
    pub send_too_large: u64,
    pub send_refused: u64,
    pub device_dropped: u64,
}

impl Port {
    /// Losses by name.
    pub fn losses(&self) -> [(&'static str, u64); 6] {
        [
            ("lost_ring_full", self.lost_ring_full),
            ("lost_truncated", self.lost_truncated),
            ("send_queue_full", self.send_queue_full),
            ("send_too_large", self.send_too_large),
            ("send_refused", self.send_refused),
            ("device_dropped", self.device_dropped),
        ]
    }
}

/// The check of what came to the wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct WireProof {
    pub checked: u64,
    pub plaintext: u64,
    pub plaintext_dropped: u64,
}

/// A peer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Peer {
    pub name: String,
    pub sealed_packets: u64,
    pub sealed_bytes: u64,
    pub opened_packets: u64,
    pub opened_bytes: u64,
    pub sequence_remaining: u64,
    pub last_seen_seconds: Option<f64>,
    pub keying: Option<Keying>,
}

/// How a peer's keys come about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Keying {
    pub state: String,
    pub endpoint: Option<String>,
    pub last_handshake_seconds: Option<f64>,
    pub rekeys: u64,
    pub unanswered: u32,
    pub refused_because: Option<String>,
    pub path_mtu: PathMtu,
}

/// How large a packet the path to a peer carries.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct PathMtu {
    pub bytes: u16,
    pub state: String,
    pub black_holes: u64,
}

impl Peer {
    /// `up`, `silent`, or what its handshakes say.
    pub fn state(&self) -> &str {
        match &self.keying {
            Some(keying) => &keying.state,
            None if self.last_seen_seconds.is_some() => "up",
            None => "silent",
        }
    }
}

/// RDMA seen in clear.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Rdma {
    pub packets: u64,
    pub queue_pairs: u64,
    pub icrc_bad: u64,
    pub naks: BTreeMap<String, u64>,
    pub rnr_naks: u64,
    pub retransmissions: u64,
    pub losses: Losses,
    pub cnp: u64,
}

/// Where RDMA packets were lost, judged by their sequence numbers (docs/adr/0021).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct Losses {
    /// Between the host and the gateway.
    pub host_side: u64,
    /// In the gateway.
    pub gateway: u64,
    /// Between the gateway and whoever is beyond the wire.
    pub wire_side: u64,
}

/// The kernel's fast path.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct FastPath {
    pub setting: String,
    pub state: String,
    pub share_bytes: Option<f64>,
}

/// The store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names of `weir status --json`")]
pub struct Store {
    pub path: PathBuf,
    pub records: u64,
    pub overflowed: u64,
    pub written: u64,
    pub notes_lost: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    pub failure: Option<String>,
    pub moved_aside: Option<PathBuf>,
}
