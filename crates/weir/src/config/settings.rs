//! What a configuration means: typed, with units, every default filled in and the whole consistent.
//! A `Settings` exists only if nothing in the file was wrong.

use std::net::IpAddr;
use std::path::PathBuf;

pub use super::file::{
    Cipher, Driver, Encapsulation, FrameAction, Icrc, Mode, OnFailure, Unprotected,
};

use super::address::{InterfaceAddress, Prefix};
use super::key::KeySource;

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
}

impl Settings {
    /// Every association of every peer.
    pub fn associations(&self) -> impl Iterator<Item = &Association> {
        self.pairs.iter().flat_map(|pair| &pair.peers).flat_map(|peer| [&peer.seal, &peer.open])
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
    /// Where endpoints outside `addresses`' networks are reached, one a family at most.
    pub next_hops: Vec<IpAddr>,
    /// VLAN identifier (1-4094) put outside sealed packets.
    pub vlan: Option<u16>,
    /// Greatest RoCE path MTU in use behind this pair, in bytes of payload (256-4096).
    pub roce_mtu_bytes: Option<u16>,
    /// Whether invariant CRCs are recomputed.
    pub icrc: Icrc,
    /// What happens to packets that no peer protects.
    pub unprotected: Unprotected,
    /// Link-local and group traffic.
    pub frames: FramePolicy,
    /// The gateways that this pair seals to; none: it only watches.
    pub peers: Vec<Peer>,
}

impl Pair {
    /// Whether packets leave as they came, and nothing is sealed.
    pub fn monitors_only(&self) -> bool {
        self.peers.is_empty()
    }
}

/// What happens to each kind of link-local and group traffic.
///
/// Defaults, by what the pair does:
///
/// | kind | only watches | a peer in `ethernet` mode | other modes | because |
/// |---|---|---|---|---|
/// | neighbour (ARP, ND) | clear | seal | clear | hosts resolve each other through the tunnel; without one they resolve the fabric's next hop |
/// | lldp, lacp, stp | clear | drop | drop | they speak to the next bridge, name the host, and make a far bridge look near |
/// | eapol | clear | drop | drop | credentials; `clear` where the switch demands 802.1X of the host |
/// | pause (PFC too) | clear | drop | drop | made and consumed by the link's two ends; the gateway's ports make their own |
/// | ptp | clear | seal | drop | time may be secret, and sealing delays it by the same in both directions |
/// | link_local (other 01-80-C2-00-00-0x) | clear | drop | drop | never crosses a bridge (IEEE 802.1D s7.12.6) |
/// | multicast, broadcast | clear | seal | drop | only a tunnel of whole frames has a place for them |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePolicy {
    /// ARP and IPv6 neighbour discovery of the hosts.
    pub neighbour: FrameAction,
    /// IEEE 802.1AB, EtherType 0x88cc.
    pub lldp: FrameAction,
    /// IEEE 802.1AX and other slow protocols, EtherType 0x8809.
    pub lacp: FrameAction,
    /// IEEE 802.1X, EtherType 0x888e.
    pub eapol: FrameAction,
    /// IEEE 1588 over Ethernet, EtherType 0x88f7.
    pub ptp: FrameAction,
    /// MAC control: pause and priority flow control, EtherType 0x8808.
    pub pause: FrameAction,
    /// Spanning tree: LLC to 01-80-C2-00-00-00.
    pub stp: FrameAction,
    /// Anything else to 01-80-C2-00-00-00 to -0F.
    pub link_local: FrameAction,
    /// Other group addresses.
    pub multicast: FrameAction,
    /// Broadcast other than ARP.
    pub broadcast: FrameAction,
}

impl FramePolicy {
    /// The defaults of a pair that only watches: a wire.
    pub const MONITOR: Self = Self::all(FrameAction::Clear);

    /// The defaults of a pair with a peer that carries whole frames.
    pub const ETHERNET: Self = Self {
        neighbour: FrameAction::Seal,
        ptp: FrameAction::Seal,
        multicast: FrameAction::Seal,
        broadcast: FrameAction::Seal,
        ..Self::all(FrameAction::Drop)
    };

    /// The defaults of a pair that seals IP packets.
    pub const IP: Self = Self { neighbour: FrameAction::Clear, ..Self::all(FrameAction::Drop) };

    const fn all(action: FrameAction) -> Self {
        Self {
            neighbour: action,
            lldp: action,
            lacp: action,
            eapol: action,
            ptp: action,
            pause: action,
            stp: action,
            link_local: action,
            multicast: action,
            broadcast: action,
        }
    }
}

/// Another gateway.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Unique in the gateway.
    pub name: String,
    /// Its outer address; `None`: the inner packet's own (bump in the wire).
    pub endpoint: Option<IpAddr>,
    /// What ESP carries.
    pub mode: Mode,
    /// What carries ESP.
    pub encapsulation: Encapsulation,
    /// What lies behind it.
    pub protects: Protects,
    /// Packets of the anti-replay window.
    pub replay_window_packets: u32,
    /// 64-bit sequence numbers (RFC 4303 s2.2.1). On by default: at 10 M packets/s 32 bits last
    /// seven minutes.
    pub extended_sequence: bool,
    /// To the peer.
    pub seal: Association,
    /// From the peer.
    pub open: Association,
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
#[derive(Clone, Debug)]
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
}
