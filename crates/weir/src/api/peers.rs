//! What the status says of the gateways and front ends that we share keys with.

use serde::{Deserialize, Serialize};
use weir_engine::counters::PeerCounters;

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
    /// Authentic packets that were dropped, because their source is not the peer's.
    #[serde(default)]
    pub refused_packets: u64,
    /// Authentic packets that were dropped, because its list of access does not lead there.
    #[serde(default)]
    pub denied_packets: u64,
    /// Packets that were dropped, both ways, because they exceeded its rate.
    #[serde(default)]
    pub limited_packets: u64,
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
    /// Seconds since the last packet was sealed to it; absent when there was none since the start.
    #[serde(default)]
    pub last_sealed_seconds: Option<f64>,
    /// Whether it is a VPN client, which comes and goes.
    #[serde(default)]
    pub is_client: bool,
    /// How its keys come about; absent where they are configured.
    #[serde(default)]
    pub keying: Option<PeerKeyingSnapshot>,
    /// What passes in clear; absent where all is sealed or dropped.
    #[serde(default)]
    pub rollout: Option<RolloutSnapshot>,
    /// Whether its ESP is the NIC's; absent where nobody asks for that.
    #[serde(default)]
    pub offload: Option<OffloadSnapshot>,
    /// What the kernel does for it; absent where Weir seals.
    #[serde(default)]
    pub kernel: Option<KernelEspSnapshot>,
    /// The daemon that seals for it; absent where there is none.
    #[serde(default)]
    pub openvpn: Option<OpenVpnSnapshot>,
    /// What was done about its tags; absent where it is sealed to.
    #[serde(default)]
    pub tag: Option<TagSnapshot>,
}

/// A daemon of OpenVPN that the gateway runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct OpenVpnSnapshot {
    /// `starting`, `listening` (for who shares a static key), `serving`, or `ended`, until it is
    /// started again.
    pub state: String,
    /// Its process; absent while there is none.
    pub pid: Option<u32>,
    /// How often it ended by itself.
    pub restarts: u64,
    /// The UDP port that it listens at.
    pub port: u16,
    /// The tunnel device.
    pub device: String,
    /// The last that it said, its lists of clients aside.
    pub last_line: String,
    /// Who is connected: the first 1,024.
    pub clients: Vec<OpenVpnClientSnapshot>,
}

/// A client that is connected, as OpenVPN tells of it once a second.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct OpenVpnClientSnapshot {
    /// The common name of its certificate.
    pub name: String,
    /// Where it is: address and port.
    pub endpoint: String,
    /// Its address inside the tunnel.
    pub address: String,
    /// Bytes on the wire from it.
    pub received_bytes: u64,
    /// Bytes on the wire to it.
    pub sent_bytes: u64,
    /// Since when (seconds since 1970).
    pub connected_unix_seconds: u64,
}

/// A peer whose RoCE packets carry a tag in the place of their ICRC: weaker than ESP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct TagSnapshot {
    /// `queue-pair` or `partition`.
    pub keyed_by: String,
    /// `drop` or `clear`: packets that are not RoCE.
    pub other: String,
    /// Whether packets to it are tagged at present.
    pub is_tagging: bool,
    /// Packets that were given a tag.
    pub tagged_packets: u64,
    /// Their bytes.
    pub tagged_bytes: u64,
    /// Packets whose tag was right.
    pub restored_packets: u64,
    /// Their bytes.
    pub restored_bytes: u64,
    /// Packets with an ordinary ICRC that were dropped.
    pub foreign: u64,
    /// Packets with a wrong tag.
    pub forged: u64,
    /// Packets with the tag of an epoch that has ended or not begun.
    pub old_epoch: u64,
    /// Packets that were not looked at, because of too many of the two above.
    pub limited: u64,
    /// Packets to it in clear.
    pub clear_sent_packets: u64,
    /// Packets from it in clear.
    pub clear_received_packets: u64,
    /// Seconds since the last right tag; absent when there was none since the start.
    pub last_restored_seconds: Option<f64>,
}

/// A peer whose ESP somebody wants the NIC to do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct OffloadSnapshot {
    /// `auto`, as the configuration has it.
    pub asked: String,
    /// Whether the NIC does it.
    pub in_hw: bool,
    /// `crypto` or `packet`: what the NIC took when it was asked; absent: nothing.
    pub nic_takes: Option<String>,
    /// Why Weir does it.
    pub reason: String,
}

/// A peer whose ESP the kernel does. Since the start, as the kernel counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct KernelEspSnapshot {
    /// The xfrm interface.
    pub interface: String,
    /// Packets that it sealed. The first of each start stays with the guard.
    pub sealed_packets: u64,
    /// Bytes of plaintext in them.
    pub sealed_bytes: u64,
    /// Of those, packets that the guard saw leave by the wire port, ESP of this association.
    pub left_packets: u64,
    /// Packets that it opened.
    pub opened_packets: u64,
    /// Bytes of plaintext in them.
    pub opened_bytes: u64,
    /// Packets that it dropped as replays, or too late for its window.
    pub replayed: u64,
    /// Packets that failed its integrity check.
    pub forged: u64,
    /// The last sequence number that it used.
    pub sequence_sent: u64,
    /// It has lost its associations: nothing passes.
    pub is_lost: bool,
    /// A NIC took the last of its associations.
    pub in_nic: bool,
    /// Packets that left for a NIC to seal and that it does not say to have sealed. Above 0
    /// nothing passes until a restart.
    pub unsealed_packets: u64,
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
    /// Where it is, as far as is known; of a VPN client with its port.
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
    /// How large a packet the path to it carries.
    #[serde(default)]
    pub path_mtu: PathMtuSnapshot,
}

/// The width of a path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct PathMtuSnapshot {
    /// The largest outer IP packet that is sent, bytes; 0 where nobody asks.
    pub bytes: u16,
    /// `off`, `searching`, `found` or `unanswered`.
    pub state: String,
    /// How often the path swallowed what it had carried.
    pub black_holes: u64,
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
    /// Questions about the width of paths and answers to them, sealed.
    #[serde(default)]
    pub path_probes_sent: u64,
    /// ICMP messages that called a packet of ours too large. They cause a question and no more.
    #[serde(default)]
    pub too_large_heard: u64,
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
            refused_packets: counters.refused_packets,
            denied_packets: counters.denied_packets,
            limited_packets: counters.limited_packets,
            ..Self::default()
        }
    }
}
