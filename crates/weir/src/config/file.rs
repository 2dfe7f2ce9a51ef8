//! The configuration file as it is written: TOML, one struct a table, every key known, every value
//! with its place in the text. What the values mean together is decided in `settings`.
//!
//! The format, whole (defaults in brackets; `several` takes one string or a list of them):
//!
//! ```toml
//! [gateway]                       # this gateway process
//! name = "gw-a"                   # part of the names of the control socket and the state files
//! state_dir = "/var/lib/weir"     # [/var/lib/weir] folder: sequence reservations, replay state
//! run_dir = "/run/weir"           # [/run/weir] folder: control socket and lock
//! on_failure = "closed"           # [closed] closed: a dead gateway passes nothing | open: it
//! #                                 passes everything; only for gateways that seal nothing
//!
//! [[pair]]                        # one host port and one wire port; several pairs allowed
//! name = "port0"                  # [the host interface's name]
//! host = "pf0hpf"                 # interface towards the host: plaintext
//! wire = "p0"                     # interface towards the fabric
//! driver = "packet"               # [packet] packet (AF_PACKET) | xdp (AF_XDP)
//! address = ["192.0.2.1/24"]      # [none: bump in the wire] own outer IP addresses; several
//! next_hop = "192.0.2.254"        # [none] router to endpoints outside the network of `address`
//! vlan = 100                      # [none] VLAN ID of sealed packets; 0: priority tag, no VLAN
//! dscp_map = { "26" = 34 }        # [copied] maps inner to outer DSCP; see `dscp_map` below
//! pcp_map = { "3" = 5 }           # [copied] maps inner to outer VLAN priority (PCP); see below
//! roce_mtu = 4096                 # [none] RoCE path MTU, bytes; sealed, it must fit the wire MTU
//! icrc = "check"                  # [check] check each ICRC and count wrong ones | off
//! on_leak = "drop"                # [drop] drop | alert (pass): plaintext found by the last check
//! xfrm = true                     # [false] `weir xfrm` may install associations and policies
//! default = "drop"                # [drop] drop | seal | forward: packets that no peer protects
//! fastpath = "off"                # [off] off | tc | auto: the kernel forwards flows once judged
//! workers = 1                     # [1] threads that share the pair's flows, 1 to 16: workers.md
//! access_default = "allow"        # [allow] allow | deny: RDMA that no [[access]] line matches
//! access_state = "off"            # [off] off | learn | strict: owners of queue pairs; see below
//! access_psn = "count"            # [count] off | count | under_attack | drop: PSNs out of window
//!
//! [pair.frames]                   # link-local, group traffic: seal | clear | drop; [clear] in a
//! #                                 pair that only watches, else [with "ethernet" peer / without]
//! lldp = "drop"                   # [drop / drop] likewise lacp, eapol, pause (with PFC), stp,
//! #                                 link_local (other 01-80-C2-00-00-0x)
//! multicast = "drop"              # [seal / drop] IP and RoCE: by IP address or GID, not by MAC
//! broadcast = "drop"              # [seal / drop] IP: 255.255.255.255; a subnet's: by `protects`
//! arp = "seal"                    # [seal / clear] likewise neighbour_discovery (IPv6)
//! ptp = "seal"                    # [seal / drop] time synchronisation
//!
//! [pair.vpn]                      # serves standard WireGuard clients; needs [keying]
//! clients = "/etc/weir/clients"   # folder with a file for each client: see `weir vpn add`
//! pool = ["10.9.0.0/24"]          # networks from which clients get their addresses; several
//! endpoint = "gw-a.example:51840" # where clients reach the gateway, with the port of [keying]
//! routes = ["10.0.0.0/8"]         # [everything] what clients send through the tunnel; several
//! dns = ["10.0.0.53"]             # [none] name servers for the clients; several
//! masquerade = "10.0.0.250"       # [none] the host sees clients under this address, IPv4
//!
//! [pair.openvpn]                  # serves OpenVPN clients: the gateway runs OpenVPN's daemons
//! tunnels = "/etc/weir/tunnels"   # folder that `weir vpn openvpn` wrote
//! masquerade = "10.0.0.250"       # [that of pair.vpn, or none] the same, for OpenVPN clients
//!
//! [[peer]]                        # another gateway
//! name = "gw-b"
//! pair = "port0"                  # [the only pair]
//! endpoint = "192.0.2.2"          # its outer address; omit it in a bump in the wire
//! mode = "ethernet"               # ethernet (EtherIP) | tunnel | transport | icrc-tag | wireguard
//! weaker_than_esp = true          # icrc-tag only, and required there; see icrc-tag below
//! tag = { other = "drop" }        # icrc-tag only: keys, epochs, what is not RoCE; see there
//! encapsulation = "esp"           # [esp] esp (directly in IP) | udp (port 4500)
//! spread = true                   # [true with `public_key`] UDP: one source port per inner flow
//! sealing = "require"             # [require] require | prefer | observe: roll-out, see rollout.md
//! offload = "none"                # [none] none: Weir does ESP | kernel: in software | crypto: the
//! #                                 NIC does the cipher, kernel the rest | packet: the NIC does
//! #                                 all of ESP | auto: crypto if the NIC supports it, else none
//! protects = ["everything"]       # "everything", or the prefixes behind the peer; several
//! replay_window = 1024            # [1024] packets; a multiple of 64, from 64 to 8192
//! extended_sequence = true        # [true] 64-bit sequence numbers; false: 32-bit
//! public_key = "..."              # the peer's public key: keys by handshakes; needs [keying]
//! preshared_key_file = "ab.psk"   # [none] an additional secret, the same at both gateways
//! ml_kem = false                  # [false] add ML-KEM-768 to handshakes; same at both gateways
//! #                                 Without `public_key`: keys in files, or `key = "HEX"` in place
//! #                                 of `key_file`: then this file must be as private
//! workers = 1                     # [1] the smaller of the two gateways' numbers of workers
//! seal = { spi = 0x1000, cipher = "aes-256-gcm", key_file = "a-to-b.key" }
//! open = { spi = 0x1010, cipher = "aes-256-gcm", key_file = "b-to-a.key" }
//!
//! [keying]                        # key agreement by handshakes, with peers that have `public_key`
//! identity_file = "gw-a.identity" # this gateway's private key; `weir keys identity` makes it
//! port = 51840                    # [51840] UDP port of handshakes; the same at all gateways
//! rekey_after_s = 120             # [120] make new keys after so many seconds,
//! rekey_after_mib = 1048576       # [1048576] or after so many MiB of sealed plaintext,
//! rekey_after_packets = 4294967296  # [2^32] or after so many packets
//! keepalive_ms = 2000             # [2000] milliseconds between keepalives; 0: none
//! probe_path_mtu = true           # [true] probe for the largest packet that each path carries
//!
//! [limits]
//! flows = 65536                   # [65536] entries of the flow table, per pair
//! conversations = 16384           # [16384] queue-pair conversations, per pair
//! active_timeout_s = 30           # [30] seconds until a flow's record ends; the flow goes on
//! idle_timeout_s = 15             # [15] a flow ends after so many seconds without a packet
//! fast_flows = 16384              # [16384] flow directions on the fast path, per pair
//!
//! [evidence]                      # keeps the last packets; without this table, none are kept
//! memory_mib = 64                 # [64] MiB of memory per pair, 8 at least; 0: keep nothing
//! snap = 384                      # [384] bytes kept of each packet; 0: whole packets
//! disk = "/var/lib/weir/evidence" # [none] folder that keeps more of them, also over a restart
//! disk_mib = 1024                 # [1024] MiB of disk per pair, allocated at once
//!
//! [store]                         # stores flows, conversations, counters; without it: nothing
//! path = "gw-a.sqlite"            # [state_dir/store/NAME.sqlite] the SQLite file
//! group = "weir"                  # [none] group that may read it and the status: `weir serve`'s
//! operate = true                  # [false] that group may also block addresses; needs `group`
//! administer = true               # [false] and take evidence, change this file; needs `operate`
//! size_mib = 1024                 # [1024] maximum; at 9/10 of it, the oldest records are deleted
//! records_days = 7                # [7] records; roll-ups: hours_days [400], minutes_days [31]
//!
//! [rules]                         # detection: rules inspect each packet in clear; see `[rules]`
//!
//! [[mirror]]                      # a copy of what the host sends and receives; several allowed
//! name = "ids"                    # unique
//! pair = "port0"                  # [the only pair]
//! port = "mon0"                   # interface through which the copies leave
//! direction = "both"              # [both] both | from_host | to_host
//! filter = "udp port 4791"        # [all] pcap-filter expression, as for `weir capture`
//! queue_pairs = [17]              # [all] only RDMA packets to these (datagrams: to or from these)
//! snap = 0                        # [0: whole] bytes copied of each packet
//! encapsulation = "vxlan"         # [none] none | vxlan | erspan1 | erspan2 | erspan3
//! local = "192.0.2.1"             # with encapsulation: outer source address, IPv4
//! remote = "192.0.2.9"            # with encapsulation: outer destination address, IPv4
//! remote_mac = "02:00:00:00:00:09"  # MAC address of `remote`, or of the router on the way there
//! id = 7                          # [1] VXLAN network ID (24 bits) or ERSPAN session ID (10 bits)
//! leak_plaintext_on_wire = false  # [false] true: `port` may be a wire port of a sealing gateway
//!
//! [[sink]]                        # alerts to a SIEM; [[sink]] and [[label]] are described below
//! [[access]]                      # who may do what by RDMA; described below, with [[group]]
//!
//! [[export]]                      # a collector of flow records; several allowed
//! collector = "udp://192.0.2.9:2055"  # udp | tcp | tls
//! format = "ipfix"                # netflow5 | netflow9 | ipfix; NetFlow only over UDP
//! biflow = false                  # [false] IPFIX: both directions in one record (RFC 5103)
//! domain = 1                      # [1] observation domain ID (NetFlow 9: source ID)
//! enterprise = 32473              # [32473, for examples] enterprise number of the RDMA elements
//! message_bytes = 1400            # [1400; TCP, TLS: 8192] maximum size of a message
//! template_seconds = 60           # [60] UDP: seconds between retransmissions of the templates
//! authority_file = "ca.pem"       # TLS: PEM file of CAs that may sign the collector's certificate
//! certificate_file = "gw.pem"     # [none] TLS: the gateway's own certificate, with `key_file`
//! spool_mib = 64                  # [64] TCP, TLS: MiB spooled on disk while the collector is down
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_engine::access::LINES_MAX;

pub use super::export::{Export, ExportFormat};
pub use super::fastpath::FastPathMode;
pub use super::several::Several;

use super::access::{self, AccessDefault, AccessPsnMode, AccessStateMode};
use super::address::{InterfaceAddress, Prefix};
use super::marking;
use super::offload::Offload;
use super::problem::{Problems, in_words};
use super::rules;
use super::{labels, sinks, store, tag};

/// `[[peer]]` tables, at most; a file with more is refused before anything is built from it. Well
/// below the 65,536 that the engine could number.
pub const PEERS_MAX: usize = 16_384;

/// Tables of any other kind, at most; likewise.
pub const TABLES_MAX: usize = 1024;

/// Bytes of a configuration file, at most: 2 KiB a peer.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// A whole file. A table that could not be read is missing here and named in the problems.
#[derive(Debug, Default)]
pub struct File {
    /// `[gateway]`.
    pub gateway: Option<Gateway>,
    /// `[[pair]]`, each with the place of its header.
    pub pairs: Vec<(Range<usize>, Pair)>,
    /// `[[peer]]`, likewise.
    pub peers: Vec<(Range<usize>, Peer)>,
    /// `[keying]`.
    pub keying: Option<Keying>,
    /// `[limits]`.
    pub limits: Option<Limits>,
    /// `[evidence]`.
    pub evidence: Option<Evidence>,
    /// `[store]`.
    pub store: Option<store::Written>,
    /// `[rules]`.
    pub rules: Option<rules::Written>,
    /// `[[mirror]]`, each with the place of its header.
    pub mirrors: Vec<(Range<usize>, Mirror)>,
    /// `[[group]]`, likewise.
    pub groups: Vec<(Range<usize>, access::Group)>,
    /// `[[access]]`, likewise.
    pub access: Vec<(Range<usize>, access::Line)>,
    /// `[[export]]`, each with the place of its header.
    pub exports: Vec<(Range<usize>, Export)>,
    /// `[[sink]]`, likewise.
    pub sinks: Vec<(Range<usize>, sinks::Written)>,
    /// `[[label]]`, likewise.
    pub labels: Vec<(Range<usize>, labels::Written)>,
}

/// `[gateway]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Gateway {
    pub name: Spanned<String>,
    pub state_dir: Option<Spanned<PathBuf>>,
    pub run_dir: Option<Spanned<PathBuf>>,
    pub on_failure: Option<Spanned<OnFailure>>,
}

/// What a dead gateway does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// It passes nothing: what a seal is worth anything with.
    #[default]
    Closed,
    /// It passes everything; for gateways that only watch.
    Open,
}

/// `[[pair]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Pair {
    pub name: Option<Spanned<String>>,
    pub host: Spanned<String>,
    pub wire: Spanned<String>,
    #[serde(default)]
    pub driver: Driver,
    #[serde(default)]
    pub address: Several<InterfaceAddress>,
    pub next_hop: Option<Spanned<IpAddr>>,
    pub vlan: Option<Spanned<u16>>,
    pub dscp_map: Option<marking::Written>,
    pub pcp_map: Option<marking::Written>,
    pub roce_mtu: Option<Spanned<u16>>,
    #[serde(default)]
    pub icrc: Icrc,
    #[serde(default)]
    pub on_leak: OnLeak,
    #[serde(default)]
    pub xfrm: bool,
    pub default: Option<Spanned<Unprotected>>,
    pub fastpath: Option<Spanned<FastPathMode>>,
    pub workers: Option<Spanned<u32>>,
    pub access_default: Option<Spanned<AccessDefault>>,
    pub access_state: Option<Spanned<AccessStateMode>>,
    pub access_psn: Option<Spanned<AccessPsnMode>>,
    #[serde(default)]
    pub frames: Frames,
    pub vpn: Option<Vpn>,
    pub openvpn: Option<OpenVpn>,
}

/// `[pair.vpn]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Vpn {
    pub clients: Spanned<PathBuf>,
    #[serde(default)]
    pub pool: Several<Prefix>,
    pub endpoint: Spanned<String>,
    #[serde(default)]
    pub routes: Several<Prefix>,
    #[serde(default)]
    pub dns: Several<IpAddr>,
    pub masquerade: Option<Spanned<Ipv4Addr>>,
}

/// `[pair.openvpn]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct OpenVpn {
    pub tunnels: Spanned<PathBuf>,
    pub masquerade: Option<Spanned<Ipv4Addr>>,
}

/// The kernel interface that moves the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// AF_PACKET rings: works on every device, and moves RoCE-sized frames best.
    #[default]
    Packet,
    /// AF_XDP: for NICs whose driver has native XDP, by all receive queues. No super-packets. A
    /// veth does not say that a local sender left a checksum unfinished: there, switch the sender's
    /// `tx` checksum and segmentation offloads off.
    Xdp,
}

/// Whether every packet's invariant CRC is recomputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Icrc {
    /// Yes: a wrong one is counted. Costs one pass over the packet.
    #[default]
    Check,
    /// No: packets are counted as unchecked.
    Off,
}

/// What the last check before the wire does with a frame that must be sealed and is not. There is
/// an alarm and a count in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLeak {
    /// It does not leave.
    #[default]
    Drop,
    /// It leaves: for those who would rather leak than lose.
    Alert,
}

/// What happens to what no peer protects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unprotected {
    /// Dropped and counted: nothing leaves that nobody thought of.
    #[default]
    Drop,
    /// Sealed to the pair's only peer.
    Seal,
    /// Passed on as it is.
    Forward,
}

/// `[pair.frames]`: absent keys take the default of the pair's kind.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "documented at `settings::default_frames`")]
pub struct Frames {
    pub lldp: Option<Spanned<FrameAction>>,
    pub lacp: Option<Spanned<FrameAction>>,
    pub eapol: Option<Spanned<FrameAction>>,
    pub ptp: Option<Spanned<FrameAction>>,
    pub pause: Option<Spanned<FrameAction>>,
    pub stp: Option<Spanned<FrameAction>>,
    pub link_local: Option<Spanned<FrameAction>>,
    pub arp: Option<Spanned<FrameAction>>,
    pub neighbour_discovery: Option<Spanned<FrameAction>>,
    pub multicast: Option<Spanned<FrameAction>>,
    pub broadcast: Option<Spanned<FrameAction>>,
}

/// What happens to one kind of link-local or group traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameAction {
    /// Sealed to the peer that carries whole Ethernet frames.
    Seal,
    /// Passed on in clear, and counted in the list of what was.
    Clear,
    /// Dropped, and counted.
    Drop,
}

/// `[[peer]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Peer {
    pub name: Spanned<String>,
    pub pair: Option<Spanned<String>>,
    pub endpoint: Option<Spanned<IpAddr>>,
    pub mode: Spanned<Mode>,
    pub weaker_than_esp: Option<Spanned<bool>>,
    pub tag: Option<Spanned<tag::Written>>,
    #[serde(default)]
    pub encapsulation: Encapsulation,
    pub spread: Option<Spanned<bool>>,
    pub sealing: Option<Spanned<Sealing>>,
    pub offload: Option<Spanned<Offload>>,
    pub protects: Several<Selector>,
    pub replay_window: Option<Spanned<u32>>,
    pub extended_sequence: Option<bool>,
    pub public_key: Option<Spanned<String>>,
    pub preshared_key_file: Option<Spanned<PathBuf>>,
    pub ml_kem: Option<bool>,
    pub workers: Option<Spanned<u32>>,
    pub seal: Option<Spanned<Association>>,
    pub open: Option<Spanned<Association>>,
}

/// `[keying]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Keying {
    pub identity_file: Spanned<PathBuf>,
    pub port: Option<Spanned<u16>>,
    pub rekey_after_s: Option<Spanned<u32>>,
    pub rekey_after_mib: Option<Spanned<u64>>,
    pub rekey_after_packets: Option<Spanned<u64>>,
    pub keepalive_ms: Option<Spanned<u32>>,
    pub probe_path_mtu: Option<bool>,
}

/// What ESP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Whole Ethernet frames, by EtherIP in ESP (RFC 3378): RoCE v1 and ARP need it.
    Ethernet,
    /// Whole IP packets (RFC 4303 s3.1.2).
    Tunnel,
    /// IP payloads under the packet's own addresses (RFC 4303 s3.1.1).
    Transport,
    /// No ESP: a tag in the place of RoCE's ICRC, weaker than ESP.
    #[serde(rename = "icrc-tag")]
    IcrcTag,
    /// Whole IP packets in WireGuard's data messages: clients of `[pair.vpn]`, and other
    /// concentrators.
    WireGuard,
    /// Whole IP packets by a tunnel device, sealed by a daemon: tunnels of `[pair.openvpn]`, and no
    /// word for a `[[peer]]`.
    #[serde(skip)]
    OpenVpn,
}

/// What carries ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// IP itself, protocol 50: 8 bytes less, and what NICs can offload.
    #[default]
    Esp,
    /// UDP port 4500 (RFC 3948): passes address translation and spreads over paths.
    Udp,
}

/// How strictly a peer's traffic is sealed: the steps of a roll-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sealing {
    /// Not at all: it passes in clear, and what would be sealed is counted.
    Observe,
    /// When the peer can, and in clear when it cannot; either is taken from it.
    Prefer,
    /// Sealed or dropped, both ways.
    #[default]
    Require,
}

/// What lies behind a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Selector {
    /// Whatever the pair carries.
    Everything,
    /// Packets to (sealing) and from (opening) these addresses.
    Prefix(Prefix),
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "everything" {
            return Ok(Self::Everything);
        }
        text.parse()
            .map(Self::Prefix)
            .map_err(|error| format!("{error}; `protects` takes prefixes or \"everything\""))
    }
}

/// `seal = { ... }` or `open = { ... }`: one direction's security association.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Association {
    pub spi: Spanned<u32>,
    #[serde(default)]
    pub cipher: Cipher,
    pub key_file: Option<Spanned<PathBuf>>,
    pub key: Option<Spanned<String>>,
}

/// AES-GCM with a 128-bit ICV (RFC 4106).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Cipher {
    /// 16 bytes of key, 4 of salt.
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// 32 bytes of key, 4 of salt. The default: it costs 10-20 % of the other's speed and outlives
    /// it.
    #[default]
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
}

/// `[limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Limits {
    pub flows: Option<Spanned<u32>>,
    pub conversations: Option<Spanned<u32>>,
    pub active_timeout_s: Option<Spanned<u32>>,
    pub idle_timeout_s: Option<Spanned<u32>>,
    pub fast_flows: Option<Spanned<u32>>,
}

/// `[evidence]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Evidence {
    pub memory_mib: Option<Spanned<u32>>,
    pub snap: Option<u32>,
    pub disk: Option<Spanned<PathBuf>>,
    pub disk_mib: Option<Spanned<u32>>,
}

/// `[[mirror]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Mirror {
    pub name: Spanned<String>,
    pub pair: Option<Spanned<String>>,
    pub port: Spanned<String>,
    #[serde(default)]
    pub direction: MirrorDirection,
    pub filter: Option<Spanned<String>>,
    pub queue_pairs: Option<Spanned<Vec<u32>>>,
    pub snap: Option<u32>,
    #[serde(default)]
    pub encapsulation: MirrorEncapsulation,
    pub local: Option<Spanned<Ipv4Addr>>,
    pub remote: Option<Spanned<Ipv4Addr>>,
    pub remote_mac: Option<Spanned<String>>,
    pub id: Option<Spanned<u32>>,
    #[serde(default)]
    pub leak_plaintext_on_wire: bool,
}

/// Which packets are copied, seen from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorDirection {
    /// All.
    #[default]
    Both,
    /// What it says.
    FromHost,
    /// What it hears.
    ToHost,
}

/// What a copy travels in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorEncapsulation {
    /// Nothing: an analyser is on the port's cable.
    #[default]
    None,
    /// VXLAN (RFC 7348), UDP port 4789.
    Vxlan,
    /// ERSPAN type I (draft-foschiano-erspan): GRE alone.
    Erspan1,
    /// ERSPAN type II, with a session and numbers.
    Erspan2,
    /// ERSPAN type III, with time stamps too.
    Erspan3,
}

/// Reads `source`. Every table is read by itself, so that the problems of all of them come to
/// light in one go.
pub fn parse(source: &str, problems: &mut Problems) -> File {
    let (document, errors) = DeTable::parse_recoverable(source);
    for error in &errors {
        let what = format!("not TOML: {}", error.message().trim());
        let remedy = "see https://toml.io; `weir check --help` shows the tables";
        problems.error(error.span().unwrap_or(0..0), what, remedy);
    }
    let mut file = File::default();
    if problems.refused() {
        return file;
    }
    for (name, value) in document.into_inner() {
        match name.get_ref().as_ref() {
            "gateway" => file.gateway = table(value, problems),
            "keying" => file.keying = table(value, problems),
            "limits" => file.limits = table(value, problems),
            "store" => file.store = table(value, problems),
            "rules" => file.rules = table(value, problems),
            "evidence" => file.evidence = table(value, problems),
            "mirror" => file.mirrors = tables("mirror", value, problems),
            "pair" => file.pairs = tables("pair", value, problems),
            "peer" => file.peers = tables("peer", value, problems),
            "group" => file.groups = tables("group", value, problems),
            "access" => file.access = tables("access", value, problems),
            "export" => file.exports = tables("export", value, problems),
            "sink" => file.sinks = tables("sink", value, problems),
            "label" => file.labels = tables("label", value, problems),
            unknown => problems.error(
                name.span(),
                format!("unknown table `{unknown}`"),
                "the tables are [gateway], [[pair]], [[peer]], [keying], [[export]], [[mirror]], \
                 [[access]], [[group]], [rules], [evidence], [store], [[sink]], [[label]] and \
                 [limits]",
            ),
        }
    }
    file
}

fn tables<T: DeserializeOwned>(
    name: &str,
    value: Spanned<DeValue<'_>>,
    problems: &mut Problems,
) -> Vec<(Range<usize>, T)> {
    let span = value.span();
    let DeValue::Array(list) = value.into_inner() else {
        problems.error(span, format!("`{name}` is no list of tables"), format!("write [[{name}]]"));
        return Vec::new();
    };
    let most = match name {
        "peer" => PEERS_MAX,
        "access" => LINES_MAX,
        _ => TABLES_MAX,
    };
    if list.len() > most {
        let what = format!("{} tables [[{name}]]", list.len());
        let remedy = format!("at most {most} are possible: divide them among several gateways");
        problems.error(span, what, remedy);
        return Vec::new();
    }
    list.into_iter()
        .filter_map(|value| {
            let span = value.span();
            table(value, problems).map(|table| (span, table))
        })
        .collect()
}

/// Reads one table. An unknown key is named and taken out, and the rest read on; any other error
/// ends the table.
fn table<T: DeserializeOwned>(value: Spanned<DeValue<'_>>, problems: &mut Problems) -> Option<T> {
    let mut value = value;
    let table_span = value.span();
    loop {
        let error = match T::deserialize(toml::de::ValueDeserializer::from(value.clone())) {
            Ok(table) => return Some(table),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(table_span.clone());
        let (what, remedy) = explain(error.message());
        let unknown = what.starts_with("unknown field");
        problems.error(span.clone(), what, remedy);
        if !unknown || problems.full() || !remove(value.get_mut(), &span) {
            return None;
        }
    }
}

/// Takes the key at `span` out of `value`; false when there is none.
fn remove(value: &mut DeValue<'_>, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => {
            let found = table.keys().find(|key| key.span() == *span).cloned();
            match found {
                Some(key) => table.remove(&key).is_some(),
                None => table.iter_mut().any(|(_, inner)| remove(inner.get_mut(), span)),
            }
        }
        _ => false,
    }
}

/// Parts the library's text into what is wrong and what would be right.
fn explain(message: &str) -> (String, String) {
    for expected in [", expected one of ", ", expected "] {
        if let Some((what, right)) = message.split_once(expected) {
            let one_of = if expected.contains("one of") { "one of " } else { "" };
            return (what.to_owned(), format!("write {one_of}{}", in_words(right)));
        }
    }
    if let Some((what, remedy)) = message.split_once("; ") {
        return (what.to_owned(), remedy.to_owned());
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return (message.to_owned(), format!("add {field} to this table"));
    }
    (message.to_owned(), "`weir check --help` shows the format".to_owned())
}
