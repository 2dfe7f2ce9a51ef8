//! The snapshot of a gateway: the JSON of `weir status`. Names and units are an interface; inner
//! types may change behind it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_engine::counters::{PeerCounters, SideCounters};
use weir_engine::policy::FrameClass;
use weir_engine::proof::WireProof;
use weir_engine::verdict::DropReason;
use weir_port::PortCounters;

/// One request, one line of JSON to the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Answered by [`Response::Status`].
    Status,
    /// Answered by [`Response::Evidence`].
    EvidenceCut(CutRequest),
}

/// Which packets of the evidence rings are wanted. Several values of one term: any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct CutRequest {
    /// Of this pair; absent: of all.
    pub pair: Option<String>,
    /// The last so many milliseconds; absent: all.
    pub last_ms: Option<u64>,
    /// pcap-filter(7).
    pub expression: Option<String>,
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
    /// Where it is; whoever asked takes it away.
    pub path: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Its size.
    pub bytes: u64,
}

/// One answer, one line of JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// The gateway's counters.
    Status(Box<Snapshot>),
    /// A capture is there.
    Evidence(CutReport),
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
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// `closed` or `open`.
    pub on_failure: String,
    /// Configurations accepted since the start, the first included.
    pub reloads_accepted: u64,
    /// Configurations refused since the start.
    pub reloads_refused: u64,
    /// Whether every frame received by every port has a verdict.
    pub adds_up: bool,
    /// Its pairs of ports.
    pub pairs: Vec<PairSnapshot>,
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
    /// ECN marks carried from the outer to the inner header.
    pub ce_combined: u64,
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
    /// Copies of packets.
    #[serde(default)]
    pub mirrors: Vec<MirrorSnapshot>,
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
    /// Of those, cut to the snap length.
    pub cut: u64,
    /// Of those, forgotten to make room.
    pub overwritten: u64,
    /// Age of the oldest packet in it.
    pub oldest_seconds: Option<f64>,
}

/// A mirror.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct MirrorSnapshot {
    /// Its name.
    pub name: String,
    /// The interface that copies leave by.
    pub port: String,
    /// Packets that were chosen: mirrored and dropped ones.
    pub chosen: u64,
    /// Copies that the port took.
    pub mirrored: u64,
    /// Of those, cut.
    pub truncated: u64,
    /// Copies that the port did not take.
    pub dropped: u64,
}

/// The frames that came to the wire port, as a check found them that reads only their bytes. All
/// zero in a pair that seals nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct WireProofSnapshot {
    /// Frames looked at = esp + keying + own + clear_by_kind + clear_by_policy + plaintext.
    pub checked: u64,
    /// ESP, over IP or in UDP.
    pub esp: u64,
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

/// One side of a pair: received = forwarded + sealed + opened + clear + punted + consumed +
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct SideSnapshot {
    /// The interface.
    pub interface: String,
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
    /// Handed to the gateway's own kernel.
    pub punted: u64,
    /// Taken in by the engine.
    pub consumed: u64,
    /// Dropped, for any reason.
    pub dropped: u64,
    /// Of `dropped`, by reason; reasons that did not happen are absent.
    pub dropped_by_reason: BTreeMap<String, u64>,
    /// Of `clear`, by kind of frame; absent likewise.
    pub clear_by_kind: BTreeMap<String, u64>,
    /// Whether the sum holds.
    pub adds_up: bool,
    /// What the kernel programs of a sealing gateway kept from its own network stack.
    pub guard_dropped: u64,
    /// What the port itself counts.
    pub port: PortSnapshot,
}

impl SideSnapshot {
    /// From the engine's counters and the port's.
    pub fn new(interface: &str, counters: &SideCounters, port: PortCounters) -> Self {
        let by_reason = DropReason::ALL.iter().map(|it| (it.name(), counters.dropped_for(*it)));
        let by_kind =
            FrameClass::ALL.iter().map(|it| (it.name(), counters.clear_by_class[*it as usize]));
        Self {
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
            punted: counters.punted,
            consumed: counters.consumed,
            dropped: counters.dropped_total(),
            dropped_by_reason: nonzero(by_reason),
            clear_by_kind: nonzero(by_kind),
            adds_up: counters.adds_up(),
            guard_dropped: 0,
            port: port.into(),
        }
    }

    /// Sums the verdicts up again, from what is shown.
    pub fn verdicts(&self) -> u64 {
        let passed = self.forwarded + self.sealed + self.opened + self.clear + self.unsealed;
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

/// What a port counts; see [`PortCounters`] for the meaning of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "documented at `PortCounters`, whose fields these are")]
pub struct PortSnapshot {
    pub received_frames: u64,
    pub received_bytes: u64,
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub lost_ring_full: u64,
    pub lost_truncated: u64,
    pub send_queue_full: u64,
    pub send_too_large: u64,
    pub send_refused: u64,
    pub device_dropped: u64,
}

impl PortSnapshot {
    /// Losses by name, with what each means; those that did not happen are left out.
    pub fn losses(&self) -> Vec<(&'static str, u64, &'static str)> {
        [
            ("lost_ring_full", self.lost_ring_full, "The ring was full before Weir saw the frame."),
            ("lost_truncated", self.lost_truncated, "No buffer could hold the frame."),
            ("send_queue_full", self.send_queue_full, "The device's queue was full."),
            ("send_too_large", self.send_too_large, "Larger than the device allows."),
            ("send_refused", self.send_refused, "The device was down or gone."),
            ("device_dropped", self.device_dropped, "The device or its driver lost it."),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .collect()
    }
}

impl From<PortCounters> for PortSnapshot {
    fn from(port: PortCounters) -> Self {
        Self {
            received_frames: port.received_frames,
            received_bytes: port.received_bytes,
            sent_frames: port.sent_frames,
            sent_bytes: port.sent_bytes,
            lost_ring_full: port.lost_ring_full,
            lost_truncated: port.lost_truncated,
            send_queue_full: port.send_queue_full,
            send_too_large: port.send_too_large,
            send_refused: port.send_refused,
            device_dropped: port.device_dropped,
        }
    }
}

/// One peer's associations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct PeerSnapshot {
    /// The peer's name.
    pub name: String,
    /// SPI of the association to it; 0 while there is none.
    pub seal_spi: u32,
    /// SPI of the newest association from it; 0 while there is none.
    pub open_spi: u32,
    /// ESP packets sent.
    pub sealed_packets: u64,
    /// Bytes of plaintext in them.
    pub sealed_bytes: u64,
    /// ESP packets opened.
    pub opened_packets: u64,
    /// Bytes of plaintext in them.
    pub opened_bytes: u64,
    /// The next sequence number to be sent.
    pub sequence_next: u64,
    /// First number that is not yet reserved on disk.
    pub sequence_reserved_until: u64,
    /// Numbers left before a new key is needed.
    pub sequence_remaining: u64,
    /// The highest sequence number received.
    pub sequence_received: u64,
    /// Seconds since the last authentic packet; absent when there was none since the start.
    pub last_seen_seconds: Option<f64>,
    /// How its keys come about; absent where they are configured.
    #[serde(default)]
    pub keying: Option<PeerKeyingSnapshot>,
    /// What passes in clear; absent where all is sealed or dropped.
    #[serde(default)]
    pub rollout: Option<RolloutSnapshot>,
}

/// A peer that need not be sealed to yet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct RolloutSnapshot {
    /// `observe` or `prefer`.
    pub sealing: String,
    /// Whether packets to it are sealed at present.
    pub is_sealed: bool,
    /// Packets sent to it in clear; a super-packet is one.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets taken from it in clear.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Of those sent: too big to be sealed.
    pub too_big_packets: u64,
    /// Seconds since the first of all these; absent when there was none.
    pub first_seconds: Option<f64>,
    /// Seconds since the last.
    pub last_seconds: Option<f64>,
}

/// A peer whose keys are agreed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct PeerKeyingSnapshot {
    /// Who it is, in base64.
    pub public_key: String,
    /// `idle`, `connecting`, `up` or `dead`.
    pub state: String,
    /// Where it is, as far as is known.
    pub endpoint: Option<String>,
    /// Seconds since the last handshake that came to keys.
    pub last_handshake_seconds: Option<f64>,
    /// Handshakes that came to keys since the start.
    pub handshakes: u64,
    /// All of them but the first.
    pub rekeys: u64,
    /// Initiations in a row that it did not answer.
    pub unanswered: u32,
    /// Why its last initiation was refused.
    pub refused_because: Option<String>,
}

/// A pair's handshakes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct KeyingSnapshot {
    /// Frames sent in clear: handshake datagrams.
    pub frames_sent: u64,
    /// Handshake datagrams taken out of the wire's frames.
    pub frames_received: u64,
    /// Empty ESP packets sent as signs of life.
    pub keepalives_sent: u64,
    /// Peers that moved to another address.
    pub peers_moved: u64,
    /// Handshakes that came to keys.
    pub handshakes: u64,
    /// Initiations sent.
    pub initiations_sent: u64,
    /// Responses sent.
    pub responses_sent: u64,
    /// Cookies sent, under load.
    pub cookies_sent: u64,
    /// Cookies received.
    pub cookies_received: u64,
    /// Datagrams looked at.
    pub received: u64,
    /// Of them, no message of a handshake.
    pub malformed: u64,
    /// Of them, for another public key.
    pub mac1_wrong: u64,
    /// Of them, forged, late, or by another preshared key.
    pub not_authentic: u64,
    /// Of them, of an identity that is no peer.
    pub unknown_peer: u64,
    /// Of them, seen before.
    pub replayed: u64,
    /// Of them, from a peer that is configured otherwise.
    pub mismatched: u64,
    /// Of them, too many.
    pub refused: u64,
    /// Lost because a queue was full.
    pub overflowed: u64,
    /// Whether initiations need cookies at present.
    pub is_loaded: bool,
}

impl PeerSnapshot {
    /// The part that the engine's counters hold.
    pub fn new(name: &str, seal_spi: u32, open_spi: u32, counters: &PeerCounters) -> Self {
        Self {
            name: name.to_owned(),
            seal_spi,
            open_spi,
            sealed_packets: counters.sealed_packets,
            sealed_bytes: counters.sealed_bytes,
            opened_packets: counters.opened_packets,
            opened_bytes: counters.opened_bytes,
            ..Self::default()
        }
    }
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
    /// Congestion notification packets.
    pub cnp: u64,
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
        for reason in DropReason::ALL {
            counters.count(100, Verdict::Drop(*reason));
        }
        let side = SideSnapshot::new("p0", &counters, PortCounters::default());
        assert_eq!(side.received, 3 + DropReason::ALL.len() as u64);
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
