//! What a configuration means: typed, with units, every default filled in and the whole consistent.
//! A `Settings` exists only if nothing in the file was wrong.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use weir_engine::access::AccessPolicy;
use weir_engine::policy::{Action, FrameActions, FrameClass, Marking};
use weir_engine::tunnel::key::PublicKey;
use weir_store::evidence::{DiskOptions, EvidenceOptions};
use weir_store::sink::{Collector, Endpoint, SiemSink};
use weir_store::sqlite::Label;

pub use super::file::{
    Cipher, Driver, Encapsulation, FastPathMode, Icrc, MirrorDirection, Mode, OnFailure, OnLeak,
    Sealing, Unprotected,
};
pub use super::offload::Offload;
pub use super::rules::Detection;
pub use super::store::Store;

use super::address::{InterfaceAddress, Prefix};
use super::key::KeySource;
use super::reach::Reach;
pub use super::tag::{KeyedBy, OtherTraffic};

/// Packets of the anti-replay window. RFC 4303's least, 64, is less than what RDMA senders have in
/// flight over several paths: a late packet would be dropped and stall a queue pair. 1024 packets
/// of 4 KiB are 4 MiB, more than a fabric's delay times its bandwidth, and cost 128 bytes.
pub const REPLAY_WINDOW_DEFAULT: u32 = 1024;

/// The least anti-replay window (RFC 4303 s3.4.3).
pub const REPLAY_WINDOW_MIN: u32 = 64;

/// The greatest anti-replay window: 1 KiB of bitmap an association.
pub const REPLAY_WINDOW_MAX: u32 = 8192;

/// Entries of the flow table. A host of an RDMA fabric has thousands of flows; 65,536 leave room
/// for a scan and cost about 16 MiB.
pub const FLOWS_DEFAULT: u32 = 65_536;

/// Queue-pair conversations. Adapters hold more, but a host rarely talks on more than 16,384 at a
/// time.
pub const CONVERSATIONS_DEFAULT: u32 = 16_384;

/// The most entries of either table: about 1 GiB of memory.
pub const TABLE_ENTRIES_MAX: u32 = 4_194_304;

/// Directions of flows that the kernel carries: as many queue pairs as a host talks on at a time,
/// in 8 MiB of kernel memory.
pub const FAST_FLOWS_DEFAULT: u32 = 16_384;

/// The most: 128 MiB of kernel memory a pair.
pub const FAST_FLOWS_MAX: u32 = 262_144;

/// Seconds that a record runs, and that a flow may be silent: what collectors expect.
pub const ACTIVE_TIMEOUT_S_DEFAULT: u32 = 30;
/// See [`ACTIVE_TIMEOUT_S_DEFAULT`].
pub const IDLE_TIMEOUT_S_DEFAULT: u32 = 15;

/// The longest of either timeout: an hour, after which a record says little about when.
pub const TIMEOUT_S_MAX: u32 = 3600;

/// The least entries of either table.
pub const TABLE_ENTRIES_MIN: u32 = 64;

/// A whole, consistent configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This process.
    pub gateway: Gateway,
    /// Its pairs of ports, at least one.
    pub pairs: Vec<Pair>,
    /// Bounds of its tables.
    pub limits: Limits,
    /// What is kept of the last packets, a pair; `None`: nothing.
    pub evidence: Option<Evidence>,
    /// What is remembered; `None`: nothing.
    pub store: Option<Store>,
    /// Which rules look at packets; `None`: none.
    pub detection: Option<Detection>,
    /// Who gets copies of packets.
    pub mirrors: Vec<Mirror>,
    /// Who gets flow records.
    pub collectors: Vec<Collector>,
    /// Who is told of alerts.
    pub sinks: Vec<SiemSink>,
    /// What addresses are called.
    pub labels: Vec<Label>,
    /// How keys are agreed with peers that have a public key.
    pub keying: Option<Keying>,
}

impl Settings {
    /// Every association of every peer.
    pub fn associations(&self) -> impl Iterator<Item = &Association> {
        self.pairs.iter().flat_map(|pair| &pair.peers).flat_map(|peer| peer.associations())
    }

    /// The key file of every TLS certificate that collectors or sinks are shown.
    pub fn tls_keys(&self) -> impl Iterator<Item = &Path> {
        let exports = self.collectors.iter().filter_map(|collector| match &collector.endpoint {
            Endpoint::Tls(_, files) => Some(files),
            _ => None,
        });
        let files = exports.chain(self.sinks.iter().filter_map(|sink| sink.tls.as_ref()));
        files.filter_map(|files| files.certificate.as_ref()).map(|(_, key)| key.as_path())
    }
}

/// This process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Letters, digits, `-`, `_` and `.`; names the control socket.
    pub name: String,
    /// Holds what must survive: sequence reservations and replay state.
    pub state_dir: PathBuf,
    /// Holds the control socket and the lock. On a tmpfs by convention.
    pub run_dir: PathBuf,
    /// What passes when this process is dead.
    pub on_failure: OnFailure,
}

impl Gateway {
    /// The control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.run_dir.join(format!("{}.sock", self.name))
    }

    /// The socket that tells the status and nothing else.
    pub fn status_socket(&self) -> PathBuf {
        self.run_dir.join(format!("{}.status", self.name))
    }

    /// The socket by which addresses are blocked and nothing else is done.
    pub fn operate_socket(&self) -> PathBuf {
        self.run_dir.join(format!("{}.operate", self.name))
    }

    /// The folder of the sets that rules change.
    pub fn datasets(&self) -> PathBuf {
        self.state_dir.join(format!("datasets-{}", self.name))
    }

    /// The socket of a pair's front ends.
    pub fn front_end_socket(&self, pair: &str) -> PathBuf {
        self.run_dir.join(format!("{}.{pair}.xfrm", self.name))
    }
}

/// One host port and one wire port.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Unique in the gateway.
    pub name: String,
    /// Interface towards the host: plaintext.
    pub host: String,
    /// Interface towards the fabric.
    pub wire: String,
    /// The kernel interface that moves the frames.
    pub driver: Driver,
    /// Own outer addresses on the wire side, one a family at most. Empty: a bump in the wire, the
    /// outer addresses are those of the packets.
    pub addresses: Vec<InterfaceAddress>,
    /// Where endpoints outside `addresses`' networks are reached.
    pub next_hop: Option<IpAddr>,
    /// VLAN identifier (1-4094) put outside sealed packets; 0: a tag with the priority alone.
    pub vlan: Option<u16>,
    /// The classes of traffic that outer headers show.
    pub marking: Marking,
    /// Greatest RoCE path MTU in use behind this pair, in bytes of payload (256-4096).
    pub roce_mtu_bytes: Option<u16>,
    /// Whether invariant CRCs are recomputed.
    pub icrc: Icrc,
    /// What the last check before the wire does with plaintext.
    pub on_leak: OnLeak,
    /// Whether front ends (`ip xfrm`, IKE daemons) may install associations and policies.
    pub xfrm: bool,
    /// Whether the kernel carries flows that need no more than counting.
    pub fastpath: FastPathMode,
    /// Threads that share its flows, 1 to 16, each with associations of its own.
    pub workers: usize,
    /// What happens to packets that no peer protects.
    pub unprotected: Unprotected,
    /// Who may do what by RDMA; `None`: everybody everything.
    pub access: Option<Arc<AccessPolicy>>,
    /// Link-local and group traffic.
    pub frames: FrameActions,
    /// The gateways that this pair seals to, and clients; none: it only watches.
    pub peers: Vec<Peer>,
    /// Where its clients are.
    pub vpn: Option<Vpn>,
    /// Where its tunnels of OpenVPN are.
    pub openvpn: Option<OpenVpn>,
}

/// Tunnels of OpenVPN, whose daemons the gateway runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVpn {
    /// The folder of their files.
    pub tunnels: PathBuf,
    /// The address that the host sees clients under; none: that of [`Vpn`], or their own.
    pub masquerade: Option<Ipv4Addr>,
}

/// A daemon of OpenVPN and the device that its packets come and go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The daemon's configuration, with its keys.
    pub server: PathBuf,
    /// The tunnel device.
    pub device: String,
    /// The UDP port that it listens at.
    pub port: u16,
    /// The largest packet inside, bytes.
    pub mtu_bytes: u16,
}

/// Standard WireGuard clients of a pair.
#[derive(Clone, Debug)]
pub struct Vpn {
    /// The folder of their files.
    pub clients: PathBuf,
    /// Networks that they get addresses of, one each.
    pub pool: Vec<Prefix>,
    /// Where they reach the gateway: host and port, as their files say it.
    pub endpoint: String,
    /// Their name servers.
    pub dns: Vec<IpAddr>,
    /// What they send by the tunnel; none: everything.
    pub routes: Vec<Prefix>,
    /// When the next of them is cut off.
    pub next_expiry: Option<Timestamp>,
    /// The address that the host sees them under; none: their own.
    pub masquerade: Option<Ipv4Addr>,
}

impl Pair {
    /// Whether packets leave as they came, and nothing is sealed.
    pub fn monitors_only(&self) -> bool {
        self.peers.is_empty() && !self.xfrm && self.vpn.is_none() && self.openvpn.is_none()
    }

    /// The interface of the gateway's own kernel, there if the pair has an address.
    pub fn own_port(&self) -> String {
        /// The longest name of an interface.
        const INTERFACE_NAME_MAX: usize = 15;
        let mut name = format!("weir-{}", self.name);
        name.truncate(INTERFACE_NAME_MAX);
        name
    }
}

/// What a pair does; it decides the defaults for link-local and group traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairKind {
    /// No peer: it only watches.
    Monitor,
    /// A peer carries whole Ethernet frames.
    Ethernet,
    /// All peers carry IP packets.
    Ip,
}

/// What happens to each kind of link-local and group traffic unless configured.
///
/// | kind | `Monitor` | `Ethernet` | `Ip` | because |
/// |---|---|---|---|---|
/// | arp, neighbour_discovery | clear | seal | clear | hosts find each other through the tunnel; without a tunnel of frames they must find them on the fabric |
/// | lldp, lacp, stp | clear | drop | drop | they speak to the next bridge, name the host, and make a far bridge look near |
/// | eapol | clear | drop | drop | credentials; `clear` where the switch demands 802.1X of the host |
/// | pause (PFC too) | clear | drop | drop | made and consumed by a link's two ends; the gateway's ports make their own |
/// | link_local (other 01-80-C2-00-00-0x) | clear | drop | drop | never crosses a bridge (IEEE 802.1Q s8.6.3) |
/// | ptp | clear | seal | drop | time crosses the tunnel, delayed alike in both directions |
/// | multicast, broadcast | clear | seal | drop | only a tunnel of frames has a place for them |
pub fn default_frames(kind: PairKind) -> FrameActions {
    let mut actions = FrameActions::all_clear();
    if kind == PairKind::Monitor {
        return actions;
    }
    let (finding, group) = match kind {
        PairKind::Ethernet => (Action::Seal, Action::Seal),
        _ => (Action::Clear, Action::Drop),
    };
    for class in FrameClass::ALL {
        actions.set(
            class,
            match class {
                FrameClass::Arp | FrameClass::NeighbourDiscovery => finding,
                FrameClass::Ptp | FrameClass::Multicast | FrameClass::Broadcast => group,
                _ => Action::Drop,
            },
        );
    }
    actions
}

/// Another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Unique in the gateway.
    pub name: String,
    /// Its outer address; `None`: the inner packet's own (bump in the wire).
    pub endpoint: Option<IpAddr>,
    /// What ESP carries.
    pub mode: Mode,
    /// What carries ESP.
    pub encapsulation: Encapsulation,
    /// In UDP: whether each inner flow has an outer source port of its own.
    pub spread: bool,
    /// How strictly its traffic is sealed.
    pub sealing: Sealing,
    /// Who does its ESP.
    pub offload: Offload,
    /// With [`Offload::Auto`]: what the configuration lacks for a NIC to do its cipher.
    pub auto_lacks: Option<&'static str>,
    /// With [`Offload::Auto`]: a NIC takes its cipher. Whoever has one found out.
    pub is_in_nic: bool,
    /// Bits a second that it may send, and as many that it may be sent.
    pub rate_limit: Option<u64>,
    /// Where it may send; none: anywhere.
    pub reaches: Vec<Reach>,
    /// How its packets are tagged; `None`: they are sealed.
    pub tag: Option<Tagging>,
    /// What lies behind it.
    pub protects: Protects,
    /// Packets of the anti-replay window.
    pub replay_window_packets: u32,
    /// 64-bit sequence numbers (RFC 4303 s2.2.1). On by default: at 10 M packets/s 32 bits last
    /// seven minutes.
    pub extended_sequence: bool,
    /// Where its keys come from.
    pub keys: PeerKeys,
    /// Workers that both gateways have for it, where its keys are configured: SPIs and keys are
    /// those of the first of so many associations.
    pub workers: usize,
}

impl Peer {
    /// Whether its associations are the kernel's, with or without a NIC beneath.
    pub fn is_by_kernel(&self) -> bool {
        self.offload.is_by_kernel() || self.is_in_nic
    }

    /// The networks behind it, and the lengths of their prefixes.
    pub fn networks(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        let prefixes = match &self.protects {
            Protects::Everything => &[][..],
            Protects::Prefixes(list) => list,
        };
        prefixes.iter().map(|it| (it.network(), it.length_bits()))
    }

    /// Its two associations, to it and from it, where they are configured.
    pub fn configured(&self) -> Option<(&Association, &Association)> {
        match &self.keys {
            PeerKeys::Configured { seal, open } => Some((seal, open)),
            PeerKeys::Agreed { .. } | PeerKeys::Tagged { .. } | PeerKeys::Daemon(_) => None,
        }
    }

    /// The tunnel that leads to it, where a daemon seals.
    pub fn tunnel(&self) -> Option<&Tunnel> {
        match &self.keys {
            PeerKeys::Daemon(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    fn associations(&self) -> impl Iterator<Item = &Association> {
        self.configured().into_iter().flat_map(|(seal, open)| [seal, open])
    }
}

/// Where a peer's keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerKeys {
    /// From files.
    Configured {
        /// To the peer.
        seal: Association,
        /// From the peer.
        open: Association,
    },
    /// From handshakes.
    Agreed {
        /// Who it is.
        public_key: PublicKey,
        /// The file of what is shared beside.
        preshared: Option<PathBuf>,
        /// Whether ML-KEM-768 is mixed in.
        ml_kem: bool,
    },
    /// From files, for tags.
    Tagged {
        /// The file of the key in use.
        key: PathBuf,
        /// The file of another that is accepted.
        previous: Option<PathBuf>,
    },
    /// They are a daemon's affair.
    Daemon(Tunnel),
}

/// How a peer's packets are tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagging {
    /// What shares a key.
    pub keyed_by: KeyedBy,
    /// Seconds of an epoch, for keys from files.
    pub epoch_s: u32,
    /// What happens to packets that are not RoCE.
    pub other: OtherTraffic,
}

/// How keys are agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keying {
    /// Who we are.
    pub identity_file: PathBuf,
    /// UDP port of handshakes.
    pub port: u16,
    /// When keys are renewed, and how often a sign of life is sent.
    pub limits: weir_engine::tunnel::rekey::Limits,
    /// Whether the width of the paths to peers is searched.
    pub probe_path_mtu: bool,
}

/// What lies behind a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protects {
    /// Whatever no other peer of the pair protects.
    Everything,
    /// These networks; disjoint from the other peers'.
    Prefixes(Vec<Prefix>),
}

/// One direction's security association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// Security parameters index, above 255.
    pub spi: u32,
    /// The cipher.
    pub cipher: Cipher,
    /// Where its key is kept.
    pub key: KeySource,
}

/// Bounds of tables, per pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of the flow table; full, the flow that was idle longest goes.
    pub flows: u32,
    /// Queue-pair conversations; likewise.
    pub conversations: u32,
    /// A record ends after so many seconds; its flow goes on.
    pub active_timeout_s: u32,
    /// A flow ends after so many seconds without a packet.
    pub idle_timeout_s: u32,
    /// Directions of flows that the kernel carries at once; further ones take the slow path.
    pub fast_flows: u32,
}

/// What is kept of a pair's last packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// In memory.
    pub memory: EvidenceOptions,
    /// On disk too; `None`: not.
    pub disk: Option<DiskOptions>,
}

impl Evidence {
    /// What each of a pair's workers keeps: an equal share.
    pub fn share(&self, workers: usize) -> Self {
        let Self { memory, disk } = self;
        let disk_share =
            |it: &DiskOptions| DiskOptions { bytes: it.bytes / workers as u64, ..it.clone() };
        Self {
            memory: EvidenceOptions { bytes: memory.bytes / workers, ..*memory },
            disk: disk.as_ref().map(disk_share),
        }
    }
}

/// A copy of chosen packets of one pair, in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Unique in the gateway.
    pub name: String,
    /// The pair's name.
    pub pair: String,
    /// The interface that copies leave by.
    pub port: String,
    /// Which packets.
    pub direction: MirrorDirection,
    /// pcap-filter(7).
    pub filter: Option<String>,
    /// RDMA packets to these queue pairs, or from them where a packet says so; empty: all packets.
    pub queue_pairs: Vec<u32>,
    /// Bytes of each packet; absent: all.
    pub snap_bytes: Option<u32>,
    /// What a copy travels in; absent: as it is.
    pub tunnel: Option<MirrorTunnel>,
    /// Ports that no copy may leave by, whatever stands between.
    pub forbidden: Vec<ForbiddenPort>,
    /// Guards let its copies pass: they go by a wire that seals nothing, or are to leak.
    pub passes_guards: bool,
}

/// A port that copies must keep off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenPort {
    /// The interface.
    pub port: String,
    /// Why.
    pub because: Forbidden,
}

/// Why a port is forbidden to copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// The host is there.
    Host,
    /// The wire of a pair that seals.
    SealedWire,
    /// What is sent there, the gateway takes for its own kernel's.
    OwnKernel,
}

/// The way to a remote analyser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorTunnel {
    /// Its form.
    pub form: TunnelForm,
    /// Outer source.
    pub local: Ipv4Addr,
    /// Outer destination.
    pub remote: Ipv4Addr,
    /// The next station on the way there.
    pub remote_mac: [u8; 6],
    /// VXLAN network identifier, or ERSPAN session.
    pub id: u32,
}

/// What a copy travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelForm {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// ERSPAN type I.
    Erspan1,
    /// ERSPAN type II.
    Erspan2,
    /// ERSPAN type III.
    Erspan3,
}
