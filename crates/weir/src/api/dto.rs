//! The snapshot of a gateway: the JSON of `weir status`. Names and units are an interface; inner
//! types may change behind it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_engine::counters::SideCounters;
use weir_engine::policy::FrameClass;
use weir_engine::proof::WireProof;
use weir_engine::verdict::DropReason;
use weir_port::PortCounters;
use weir_store::evidence::FlowFilter;

pub use super::access::{AccessLineSnapshot, AccessSnapshot, AccessStateSnapshot};
use super::blocks::{BlocksRequest, BlocksSnapshot};
pub use super::configure::{
    ConfigurationSnapshot, ConfigurationState, ConfigureRequest, RunningConfiguration,
};
pub use super::detection::{
    AlertsSnapshot, DetectionSnapshot, InsideSnapshot, RuleDropsSnapshot, SinkSnapshot,
};
pub use super::join::WorkerSnapshot;
pub use super::keys::{AssociationKey, KeysRequest};
pub use super::peers::{
    KernelEspSnapshot, KeyingSnapshot, OffloadSnapshot, OpenVpnClientSnapshot, OpenVpnSnapshot,
    PathMtuSnapshot, PeerKeyingSnapshot, PeerSnapshot, RolloutSnapshot, TagSnapshot,
};
pub use super::port::PortSnapshot;
pub use super::store::StoreSnapshot;
use super::suppress::SuppressRequest;

/// One request, one line of JSON to the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Answered by [`Response::Status`].
    Status,
    /// Answered by [`Response::Evidence`] when all is written to the file that is passed beside the
    /// request (SCM_RIGHTS).
    EvidenceCut(CutRequest),
    /// Answered by [`Response::Keys`].
    Keys(KeysRequest),
    /// Read the configuration again. Answered by [`Response::Configuration`] or
    /// [`Response::Refused`].
    Reload(ReloadRequest),
    /// Answered by [`Response::Configuration`].
    Configuration,
    /// Keep what is on trial. Answered by [`Response::Configuration`].
    Confirm,
    /// Block, allow, or say who is. Answered by [`Response::Blocks`].
    Blocks(BlocksRequest),
    /// The same for somebody whom `weir serve` let in, who stands in the log book.
    Operate {
        /// Who.
        by: String,
        /// What.
        blocks: BlocksRequest,
    },
    /// Say of a stored alert that it was seen, or why, for somebody whom `weir serve` let in.
    /// Answered by [`Response::Noted`].
    Remark {
        /// Who.
        by: String,
        /// Its number in the store.
        alert: u64,
        /// Whether nobody need look at it any more.
        is_acknowledged: bool,
        /// In his words.
        comment: String,
    },
    /// Suppress alerts, or show them again, for who stands in the log book. Answered by
    /// [`Response::Suppressed`].
    Suppress {
        /// Who.
        by: String,
        /// What.
        suppression: SuppressRequest,
    },
    /// Tell or change the configuration for somebody whom `weir serve` let in.
    Configure {
        /// Who.
        by: String,
        /// What.
        configure: ConfigureRequest,
    },
    /// [`Request::EvidenceCut`] for somebody whom `weir serve` let in.
    Evidence {
        /// Who.
        by: String,
        /// Which packets.
        cut: CutRequest,
    },
    /// Take back what is on trial, now. Answered by [`Response::Configuration`].
    Rollback,
}

/// How a configuration is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ReloadRequest {
    /// It is taken back after so many milliseconds unless it is confirmed; absent: it stays.
    pub confirm_within_ms: Option<u64>,
}

/// Which packets of the evidence rings are wanted. Several values of one term: any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct CutRequest {
    /// Of this pair; absent: of all.
    pub pair: Option<String>,
    /// The last so many milliseconds; absent: all.
    pub last_ms: Option<u64>,
    /// Nothing before this time, nanoseconds since 1970.
    pub from_ns: Option<u64>,
    /// Nothing after this time, nanoseconds since 1970.
    pub until_ns: Option<u64>,
    /// pcap-filter(7).
    pub expression: Option<String>,
    /// Packets of this flow, whatever carries them.
    pub flow: Option<FlowFilter>,
    /// RDMA packets to (datagrams: or from) these queue pairs.
    pub queue_pairs: Vec<u32>,
    /// RDMA packets with these opcodes.
    pub opcodes: Vec<u8>,
    /// RDMA packets with these partition keys.
    pub partition_keys: Vec<u16>,
    /// RDMA packets whose ICRC is wrong.
    pub bad_icrc: bool,
    /// RDMA negative acknowledgments.
    pub nak: bool,
    /// RDMA congestion notifications.
    pub cnp: bool,
    /// Only what was dropped.
    pub dropped: bool,
}

/// A capture that was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct CutReport {
    /// Packets in it.
    pub packets: u64,
    /// Its size.
    pub bytes: u64,
    /// Pieces (of 1 MiB, at most) of evidence on disk that could not be read: damaged by a crash,
    /// or overwritten meanwhile.
    #[serde(default)]
    pub unreadable: u64,
}

/// One answer, one line of JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// The gateway's counters.
    Status(Box<Snapshot>),
    /// A capture is there.
    Evidence(CutReport),
    /// The keys in use.
    Keys(Vec<AssociationKey>),
    /// How the configuration stands.
    Configuration(ConfigurationSnapshot),
    /// The same with its text, for `weir serve`.
    Configured(RunningConfiguration),
    /// Who is blocked and allowed.
    Blocks(BlocksSnapshot),
    /// The number of the alert that something was said of.
    Noted(u64),
    /// It is in force within a second.
    Suppressed,
    /// What is wrong with the configuration; the one before stays in force.
    Refused(String),
    /// Why there is none.
    Error(String),
}

/// A gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// The gateway's name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When this was so, nanoseconds since 1970.
    #[serde(default)]
    pub taken_ns: u64,
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// `closed` or `open`.
    pub on_failure: String,
    /// Configurations accepted since the start, the first included.
    pub reloads_accepted: u64,
    /// Configurations refused since the start.
    pub reloads_refused: u64,
    /// The configuration in force.
    #[serde(default)]
    pub configuration: ConfigurationSnapshot,
    /// Whether every frame received by every port has a verdict.
    pub adds_up: bool,
    /// Its pairs of ports.
    pub pairs: Vec<PairSnapshot>,
    /// What it remembers; absent without `[store]`.
    #[serde(default)]
    pub store: Option<StoreSnapshot>,
    /// What became of rules' alerts; absent without `[rules]`.
    #[serde(default)]
    pub alerts: Option<AlertsSnapshot>,
    /// Its collectors of flow records.
    #[serde(default)]
    pub exports: Vec<ExportSnapshot>,
}

/// A collector of flow records.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ExportSnapshot {
    /// Its address, with the transport.
    pub collector: String,
    /// Whether it can be reached; by UDP, whether its name is known.
    pub is_connected: bool,
    /// Records handed over by the meters.
    pub records: u64,
    /// Of those, lost because the queue was full.
    pub overflowed: u64,
    /// Of those, without a form in the collector's format.
    pub without_form: u64,
    /// Data records encoded; a flow may be two.
    pub data_records: u64,
    /// Of those, lost: not sent, and no room for them on disk.
    pub data_records_lost: u64,
    /// Messages given to the network.
    pub messages_sent: u64,
    /// Messages waiting in memory and on disk.
    pub messages_waiting: u64,
    /// Messages sent twice, because their connection was lost before they were acknowledged.
    pub messages_resent: u64,
}

/// A pair of ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct PairSnapshot {
    /// Its name.
    pub name: String,
    /// `packet` or `xdp`.
    pub driver: String,
    /// Number of the policy in force; each accepted configuration raises it.
    pub policy_epoch: u32,
    /// Frames from the host.
    pub host: SideSnapshot,
    /// Frames from the wire.
    pub wire: SideSnapshot,
    /// Packets that the kernel's ESP opened for peers, all their xfrm interfaces together; absent
    /// where there is none.
    #[serde(default)]
    pub kernel: Option<SideSnapshot>,
    /// What the last check before the wire found.
    #[serde(default)]
    pub wire_proof: WireProofSnapshot,
    /// The gateways it seals to.
    pub peers: Vec<PeerSnapshot>,
    /// RDMA seen in clear, on both sides.
    pub rdma: RdmaSnapshot,
    /// Frames of the gateway's own: questions for neighbours, ICMP, from its kernel.
    pub own_sent: u64,
    /// Frames of the gateway's kernel that did not go out.
    pub own_refused: u64,
    /// TCP MSS options lowered.
    pub mss_clamped: u64,
    /// RDMA connection requests whose path MTU was lowered.
    pub path_mtu_clamped: u64,
    /// ICMP "too big" answers sent.
    pub too_big_answered: u64,
    /// Packets that were too big, might be cut, and were.
    #[serde(default)]
    pub too_big_cut: u64,
    /// ECN marks carried from the outer to the inner header.
    pub ce_combined: u64,
    /// The outer DSCP of packets with this one inside, where it is another.
    #[serde(default)]
    pub dscp_map: BTreeMap<u8, u8>,
    /// The outer VLAN priority, likewise.
    #[serde(default)]
    pub pcp_map: BTreeMap<u8, u8>,
    /// Packets for the host, not delivered because their replay state could not be written.
    pub withheld: u64,
    /// Handshakes; absent where no keys are agreed.
    #[serde(default)]
    pub keying: Option<KeyingSnapshot>,
    /// What the kernel carries without this process.
    #[serde(default)]
    pub fast_path: FastPathSnapshot,
    /// Flows in the table.
    pub flows: u64,
    /// Flows that a full table pushed out.
    pub flows_evicted: u64,
    /// The last packets, where they are kept.
    #[serde(default)]
    pub evidence: Option<EvidenceSnapshot>,
    /// What lines of access decided; absent where there are none.
    #[serde(default)]
    pub access: Option<AccessSnapshot>,
    /// What rules did; absent where there are none.
    #[serde(default)]
    pub detection: Option<DetectionSnapshot>,
    /// What was found inside of packets.
    #[serde(default)]
    pub inside: InsideSnapshot,
    /// Copies of packets.
    #[serde(default)]
    pub mirrors: Vec<MirrorSnapshot>,
    /// Seconds since the workers published these counters: they do ten times a second.
    #[serde(default)]
    pub age_seconds: f64,
    /// Seconds since the look at all peers and carried flows began that is shown: thousands take
    /// longer.
    #[serde(default)]
    pub peers_age_seconds: f64,
    /// Those of several workers, each by itself; all above is their sum. Empty with one.
    #[serde(default)]
    pub workers: Vec<WorkerSnapshot>,
}

/// An evidence ring.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct EvidenceSnapshot {
    /// Packets in it.
    pub packets: u64,
    /// Their bytes in memory.
    pub bytes: u64,
    /// What it can hold.
    pub capacity_bytes: u64,
    /// Packets recorded since the start.
    pub recorded: u64,
    /// Of those, kept short of their length.
    pub cut: u64,
    /// Of those, forgotten to make room.
    pub overwritten: u64,
    /// Age of the oldest packet in it.
    pub oldest_seconds: Option<f64>,
    /// What is kept on disk besides.
    #[serde(default)]
    pub disk: Option<EvidenceDiskSnapshot>,
}

/// Evidence on disk.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct EvidenceDiskSnapshot {
    /// The file.
    pub path: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// What it can hold; 0 until it could be opened.
    pub capacity_bytes: u64,
    /// Packets written since the start, in whole pieces.
    pub written: u64,
    /// Packets that the disk did not take: it was too slow, full or failed.
    pub lost: u64,
    /// Age of the oldest packet in it.
    pub oldest_seconds: Option<f64>,
    /// Why nothing is kept now, if so.
    pub failure: Option<String>,
}

/// A mirror.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct MirrorSnapshot {
    /// Its name.
    pub name: String,
    /// The interface that copies leave by.
    pub port: String,
    /// Whether the kernel makes the copies; else the gateway does.
    #[serde(default)]
    pub by_kernel: bool,
    /// Packets that were chosen, mirrored and dropped ones; of an encapsulated super-packet its
    /// segments.
    pub chosen: u64,
    /// Copies that the port took.
    pub mirrored: u64,
    /// Of those, cut short.
    pub truncated: u64,
    /// Copies that the port did not take: the sum of those that follow.
    pub dropped: u64,
    /// Its queue was full.
    #[serde(default)]
    pub dropped_queue_full: u64,
    /// Larger than it takes.
    #[serde(default)]
    pub dropped_too_large: u64,
    /// It was down or gone.
    #[serde(default)]
    pub dropped_port_down: u64,
}

/// The frames that came to the wire port, as a check found them that reads only their bytes. All
/// zero in a pair that seals nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct WireProofSnapshot {
    /// Frames looked at = the sum of all below, `plaintext_dropped` being part of `plaintext`.
    pub checked: u64,
    /// ESP, over IP or in UDP.
    pub esp: u64,
    /// RoCE to tagged peers without its ordinary ICRC. Only who has the key can tell whether what
    /// stands there is the right tag.
    #[serde(default)]
    pub tagged: u64,
    /// Handshakes of the native keying.
    pub keying: u64,
    /// The gateway's own ARP, neighbour discovery, ICMP and IKE.
    pub own: u64,
    /// Of a kind that `[pair.frames]` lets pass; kinds without any are absent.
    pub clear_by_kind: BTreeMap<String, u64>,
    /// To addresses that the policy leaves in clear.
    pub clear_by_policy: u64,
    /// Should have been sealed and was not.
    pub plaintext: u64,
    /// Of `plaintext`: did not leave (`on_leak = "drop"`).
    pub plaintext_dropped: u64,
    /// Headers of the last of them.
    pub plaintext_last: Option<String>,
    /// Whether the sum holds.
    pub adds_up: bool,
}

impl WireProofSnapshot {
    /// From the check itself.
    pub fn new(proof: &WireProof) -> Self {
        let counters = proof.counters();
        let by_kind =
            FrameClass::ALL.iter().map(|it| (it.name(), counters.clear_by_class[*it as usize]));
        Self {
            checked: counters.checked,
            esp: counters.esp,
            tagged: counters.tagged,
            keying: counters.keying,
            own: counters.own,
            clear_by_kind: nonzero(by_kind),
            clear_by_policy: counters.clear_by_policy,
            plaintext: counters.plaintext,
            plaintext_dropped: counters.plaintext_dropped,
            plaintext_last: proof.last_plaintext().map(ToString::to_string),
            adds_up: counters.adds_up(),
        }
    }
}

/// One side of a pair: received = forwarded + sealed + opened + tagged + handed + clear +
/// unsealed + punted + consumed + dropped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct SideSnapshot {
    /// The interface.
    pub interface: String,
    /// `up`, `down` (the interface or its link), or `gone`.
    #[serde(default)]
    pub link: String,
    /// Frames received; a super-packet is one.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Passed on unchanged.
    pub forwarded: u64,
    /// Of `forwarded`, carried by the kernel's fast path.
    #[serde(default)]
    pub fast: u64,
    /// Their bytes.
    #[serde(default)]
    pub fast_bytes: u64,
    /// Sealed and passed on.
    pub sealed: u64,
    /// Opened and passed on.
    pub opened: u64,
    /// Passed on in clear by the list of exceptions.
    pub clear: u64,
    /// Passed on in clear, to or from a peer that need not be sealed to yet.
    #[serde(default)]
    pub unsealed: u64,
    /// Passed on with a tag in the place of the ICRC, or with the ICRC put back.
    #[serde(default)]
    pub tagged: u64,
    /// Handed to the kernel's ESP: from the host to be sealed, from the wire to be opened.
    #[serde(default)]
    pub handed: u64,
    /// Handed to the gateway's own kernel.
    pub punted: u64,
    /// Taken in by the engine.
    pub consumed: u64,
    /// Dropped, for any reason.
    pub dropped: u64,
    /// Of `dropped`: in the kernel, before they were received.
    #[serde(default)]
    pub dropped_early: u64,
    /// Of `dropped`, by reason; reasons that did not happen are absent.
    pub dropped_by_reason: BTreeMap<String, u64>,
    /// Of `clear`, by kind of frame; absent likewise.
    pub clear_by_kind: BTreeMap<String, u64>,
    /// Whether the sum holds.
    pub adds_up: bool,
    /// What the gateway machine's own network stack wanted to send there, and the guard dropped.
    pub guard_dropped: u64,
    /// Copies for that stack of frames that the gateway received, which the guard took off; no
    /// loss.
    #[serde(default)]
    pub kernel_copies: u64,
    /// What the port itself counts.
    pub port: PortSnapshot,
    /// The NIC's counters of pause frames (global and per priority), by its driver's names; those
    /// that are zero are absent, all where the driver has none.
    #[serde(default)]
    pub pause: BTreeMap<String, u64>,
}

impl SideSnapshot {
    /// From the engine's counters and the port's.
    pub fn new(interface: &str, counters: &SideCounters, port: PortCounters) -> Self {
        let by_reason = DropReason::ALL.iter().map(|it| (it.name(), counters.dropped_for(*it)));
        let by_kind =
            FrameClass::ALL.iter().map(|it| (it.name(), counters.clear_by_class[*it as usize]));
        Self {
            link: String::new(),
            interface: interface.to_owned(),
            received: counters.received,
            received_bytes: counters.received_bytes,
            forwarded: counters.forwarded,
            fast: counters.fast,
            fast_bytes: counters.fast_bytes,
            sealed: counters.sealed,
            opened: counters.opened,
            clear: counters.clear,
            unsealed: counters.unsealed,
            tagged: counters.tagged,
            handed: counters.handed,
            punted: counters.punted,
            consumed: counters.consumed,
            dropped: counters.dropped_total(),
            dropped_early: counters.early,
            dropped_by_reason: nonzero(by_reason),
            clear_by_kind: nonzero(by_kind),
            adds_up: counters.adds_up(),
            guard_dropped: 0,
            kernel_copies: 0,
            port: port.into(),
            pause: BTreeMap::new(),
        }
    }

    /// Sums the verdicts up again, from what is shown.
    pub fn verdicts(&self) -> u64 {
        let protected = self.sealed + self.opened + self.tagged + self.handed;
        let passed = self.forwarded + protected + self.clear + self.unsealed;
        let dropped: u64 = self.dropped_by_reason.values().sum();
        passed + self.punted + self.consumed + dropped
    }
}

/// The fast path of a pair.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct FastPathSnapshot {
    /// `off`, `tc` or `auto`, as configured.
    pub setting: String,
    /// `open`, or why nothing is carried.
    pub state: String,
    /// Of all frames forwarded, the share that it carried: 0 to 1. Absent when none were.
    pub share_frames: Option<f64>,
    /// The same of bytes received.
    pub share_bytes: Option<f64>,
    /// Directions of flows in the kernel's table.
    pub flows: u64,
    /// Directions that find room there.
    pub flows_max: u64,
    /// Directions put into it since the start.
    pub installed: u64,
    /// Directions taken out of it.
    pub removed: u64,
    /// Packets on the slow path because the table was full.
    pub refused_packets: u64,
    /// Copies of packets that the kernel handed up: NAKs, TCP's SYN, FIN and RST, sequence numbers
    /// out of order, congestion notifications.
    pub events: u64,
    /// Copies lost because nobody took them in time: what they say is missing from records.
    pub events_lost: u64,
    /// Carried frames that are missing in the evidence, because nobody took their heads in time.
    pub heads_lost: u64,
    /// Times that all flows went back to the slow path at once: reloads, halts.
    pub voided: u64,
    /// Times that one direction was held back so that flows could change over.
    pub holds: u64,
    /// The kernel's rules at the two ports.
    pub rules: Vec<RuleSnapshot>,
}

/// A tc rule of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RuleSnapshot {
    /// The port.
    pub interface: String,
    /// `ingress` or `egress`.
    pub direction: String,
    /// The program.
    pub program: String,
    /// `in_hw`, `not_in_hw`, or `unstated`.
    pub placement: String,
}

fn nonzero<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// RDMA traffic; the same names as in `weir read --json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct RdmaSnapshot {
    /// Packets with a base transport header.
    pub packets: u64,
    /// Of them, RoCE v1.
    pub roce_v1: u64,
    /// Of them, RoCE v2.
    pub roce_v2: u64,
    /// Queue pairs seen.
    pub queue_pairs: u64,
    /// Packets by opcode name.
    pub opcodes: BTreeMap<String, u64>,
    /// Invariant CRC right.
    pub icrc_ok: u64,
    /// Invariant CRC wrong.
    pub icrc_bad: u64,
    /// Not checked: a fragment, cut short, or switched off.
    pub icrc_unchecked: u64,
    /// Negative acknowledgements by cause.
    pub naks: BTreeMap<String, u64>,
    /// Receiver-not-ready.
    pub rnr_naks: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Where packets were lost.
    #[serde(default)]
    pub losses: LossSnapshot,
    /// Congestion notification packets.
    pub cnp: u64,
}

/// Where RDMA packets were lost, judged by their sequence numbers (docs/adr/0021).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LossSnapshot {
    /// Between the host and the gateway.
    pub host_side: u64,
    /// In the gateway.
    pub gateway: u64,
    /// Between the gateway and whoever is beyond the wire.
    pub wire_side: u64,
    /// Packets from the host that others had overtaken when they came.
    pub host_side_overtaken: u64,
    /// Packets from the wire likewise.
    pub wire_side_overtaken: u64,
}

#[cfg(test)]
mod tests {
    use weir_engine::verdict::Verdict;

    use super::*;

    #[test]
    fn a_side_shows_every_verdict_and_adds_up() {
        let mut counters = SideCounters::default();
        counters.count(100, Verdict::Forward);
        counters.count(100, Verdict::Clear(FrameClass::Arp));
        counters.count(100, Verdict::Unsealed);
        counters.count(100, Verdict::Tagged);
        for reason in DropReason::ALL {
            counters.count(100, Verdict::Drop(*reason));
        }
        let side = SideSnapshot::new("p0", &counters, PortCounters::default());
        assert_eq!(side.received, 4 + DropReason::ALL.len() as u64);
        assert_eq!(side.verdicts(), side.received);
        assert!(side.adds_up);
        assert_eq!(side.clear_by_kind, BTreeMap::from([("arp".to_owned(), 1)]));
    }

    #[test]
    fn a_snapshot_survives_its_json() {
        let snapshot = Snapshot {
            name: "gw".into(),
            pairs: vec![PairSnapshot::default()],
            ..Default::default()
        };
        let line = serde_json::to_string(&Response::Status(Box::new(snapshot.clone()))).unwrap();
        assert!(!line.contains('\n'));
        let Ok(Response::Status(read)) = serde_json::from_str(&line) else { panic!("{line}") };
        assert_eq!(*read, snapshot);
    }
}
