//! What the gateway is told to do, compiled, immutable and numbered by epoch.
//!
//! The configuration becomes a whole `Policy` or is refused; a worker swaps it between two batches.
//! Associations (keys, sequence numbers, replay windows) live beside it in the engine, because
//! they outlive a policy.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_detect::tunnels::TunnelPorts;

use crate::access::AccessPolicy;
use crate::detect::Rules;
use crate::plain::Blocks;
use crate::tunnel::key::PublicKey;

mod frames;
mod marking;
mod own;
mod prefix;
mod ranges;
mod reach;
mod selectors;

pub use frames::{FrameActions, FrameClass};
pub use marking::{DSCP_COUNT, Marking, PCP_COUNT};
pub use own::OwnAddress;
pub(crate) use prefix::address;
pub use prefix::{Prefix, mapped};
pub use reach::{REACHES_MAX, Reach};
use selectors::Selectors;

/// What to do with a kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Seal it to the peer that the policy finds; drop it when there is none.
    Seal,
    /// Pass it in clear.
    Clear,
    /// Drop it.
    Drop,
}

/// What happens to a frame that reaches the wire port unsealed although it must be sealed, which is
/// a fault of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLeak {
    /// It does not leave.
    #[default]
    Drop,
    /// It leaves, counted and told of.
    Alert,
}

/// What an association carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole Ethernet frames, EtherIP (RFC 3378) in ESP. Needs an address of our own.
    Ethernet,
    /// IP packets in ESP in an outer IP header (RFC 4303 s3.1.2).
    Tunnel,
    /// The payload of IP packets (RFC 4303 s3.1.1).
    Transport,
    /// IP packets in WireGuard's data messages, in UDP from an own address: the peer is a standard
    /// client.
    WireGuard,
    /// IP packets by a tunnel device, at whose other end a daemon of the gateway's own seals them:
    /// OpenVPN's clients (docs/adr/0170).
    Device {
        /// The largest IP packet that it takes, bytes.
        mtu: u16,
    },
    /// No ESP: RoCE packets carry a tag in the place of their ICRC, and are otherwise in clear.
    IcrcTag(TagTerms),
}

impl Mode {
    /// Whether whole IP packets travel behind headers of our own or borrowed ones.
    pub fn is_tunnel(self) -> bool {
        matches!(self, Mode::Tunnel | Mode::WireGuard)
    }

    /// Whether who is behind it comes and goes, and has addresses that the gateway gave.
    pub fn is_client(self) -> bool {
        matches!(self, Mode::WireGuard | Mode::Device { .. })
    }

    /// Whether a daemon seals behind a device.
    pub fn is_device(self) -> bool {
        matches!(self, Mode::Device { .. })
    }

    /// Whether associations agreed on for `self` serve `other`.
    pub fn has_keys_of(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::IcrcTag(ours), Mode::IcrcTag(theirs)) => ours.keyed_by == theirs.keyed_by,
            _ => self == other,
        }
    }
}

/// How the packets of a peer are tagged ([`crate::esp::icrc_tag`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagTerms {
    /// What shares a key.
    pub keyed_by: KeyedBy,
    /// What happens to packets that are not RoCE.
    pub other: OtherTraffic,
}

/// What shares a key of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyedBy {
    /// A partition: whoever is in it is trusted not to speak for the others.
    Partition,
    /// Source, destination and destination queue pair.
    #[default]
    QueuePair,
}

/// What happens to packets of a tagged peer that have no ICRC to carry a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherTraffic {
    /// They are dropped, both ways.
    #[default]
    Drop,
    /// They pass in clear, both ways, unprotected.
    Clear,
}

/// What stands between the outer IP header and ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// Nothing: IP protocol 50.
    Esp,
    /// UDP port 4500 (RFC 3948).
    Udp,
    /// UDP port 4500, from a port of each inner flow's own: the fabric spreads flows over its
    /// paths, and keeps the order within each. Whoever opens must not compare source ports.
    UdpSpread,
    /// UDP between other ports: a translator stands between (RFC 3948 s2).
    UdpPorts {
        /// Our own port.
        source: u16,
        /// The peer's port, as we see it.
        destination: u16,
    },
}

/// How strictly a peer's traffic is sealed: the steps of a roll-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// Never: it passes in clear both ways, and what would be sealed is counted.
    Observe,
    /// When the peer can; else in clear, counted. What comes from it may be either.
    Prefer,
    /// Sealed or dropped, both ways.
    #[default]
    Require,
}

/// Another gateway, as the policy knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: String,
    /// What its associations carry.
    pub mode: Mode,
    /// How ESP travels to it.
    pub encapsulation: Encapsulation,
    /// How strictly its traffic is sealed.
    pub sealing: Sealing,
    /// Its outer address; `None` borrows the addresses of what is protected.
    pub endpoint: Option<IpAddr>,
    /// What lies behind it.
    pub protects: Vec<Prefix>,
    /// Whether frames without an address (RoCE v1, other EtherTypes) and group traffic go to it.
    pub everything: bool,
    /// SPI of the association that seals to it; `None`: there is none yet, and what belongs there
    /// is dropped as `no_association`.
    pub seal_spi: Option<u32>,
    /// SPIs of the associations that open what it sends: two while keys change.
    pub open_spis: Vec<u32>,
    /// Who it is, where keys are agreed by handshakes: associations come from there, and none are
    /// named above.
    pub agreed: Option<PublicKey>,
    /// Where the kernel does its ESP: in tunnel mode, and no SPI is named above.
    pub kernel: Option<KernelEsp>,
    /// Bits a second that it may send, and as many that it may be sent.
    pub rate_limit: Option<u64>,
    /// Where it may send; none: anywhere.
    pub reaches: Vec<Reach>,
}

impl Peer {
    /// The place of a peer that was removed: nothing leads to it.
    fn vacant() -> Self {
        Self {
            name: String::new(),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Esp,
            sealing: Sealing::Require,
            endpoint: None,
            protects: Vec::new(),
            everything: false,
            seal_spi: None,
            open_spis: Vec::new(),
            agreed: None,
            kernel: None,
            rate_limit: None,
            reaches: Vec::new(),
        }
    }

    /// Whether this is the place of a peer that was removed. A peer has a name.
    pub fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether what it is sent comes to an own address of ours and leaves by another than its own.
    pub(crate) fn ends_here(&self) -> bool {
        self.mode.is_client() || self.mode == Mode::Tunnel && self.endpoint.is_some()
    }
}

/// A peer whose packets come and go by an interface of their own: its ESP is the gateway's
/// kernel's, or a daemon seals ([`Mode::Device`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEsp {
    /// Its place among those peers, from 0, in the order of the policy's.
    pub place: u16,
    /// SPIs of the associations to and from it; `None`: they are agreed, and
    /// [`crate::pipeline::Engine::set_kernel_associations`] tells them.
    pub spis: Option<[u32; 2]>,
    /// An address of its networks, where a NIC does all of its ESP and seals nothing but what goes
    /// there (docs/adr/0035): what the gateway itself says to it goes to that address.
    pub nic_reaches: Option<IpAddr>,
}

/// Where packets with an address on the far side belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the peer of this index, sealed.
    Peer(u32),
    /// Past every peer, in clear.
    Clear,
    /// Nowhere.
    Drop,
}

/// What becomes of a packet that cannot be looked at as rules and lines want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exception {
    /// It passes, and is counted.
    #[default]
    Pass,
    /// It is dropped, by its cause.
    Drop,
}

/// By cause. Where there are lines of access, all are [`Exception::Drop`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// More packets within each other than are looked at.
    pub layers: Exception,
    /// A piece of a datagram for which there was no room, or no time.
    pub fragments: Exception,
}

/// All that decides about packets of one pair of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Counts up with each accepted configuration.
    pub epoch: u32,
    /// The other gateways.
    pub peers: Vec<Peer>,
    /// For what no peer protects.
    pub default: Action,
    /// For what no address decides.
    pub frames: FrameActions,
    /// Our own place on the wire; `None` is a pure bump in the wire.
    pub own: Option<OwnAddress>,
    /// Largest IP packet the wire carries, bytes.
    pub wire_mtu: u16,
    /// The same of the host port; `u16::MAX` where it is not known.
    pub host_mtu: u16,
    /// The outer headers' classes of traffic.
    pub marking: Marking,
    /// Whether the ICRC of every RDMA packet is verified.
    pub check_icrc: bool,
    /// Whether TCP segments that leave in clear are gathered into super-packets: not where ports
    /// send none.
    pub gather: bool,
    /// UDP port of the handshakes with peers whose keys are agreed.
    pub keying_port: Option<u16>,
    /// The IPv4 address that the host sees clients under; `None`: their own.
    pub masquerade: Option<Ipv4Addr>,
    /// What the last check before the wire does with plaintext.
    pub on_leak: OnLeak,
    /// Who may do what by RDMA; `None`: everybody everything.
    pub access: Option<Arc<AccessPolicy>>,
    /// Rules that look at every packet in clear; `None`: none.
    pub rules: Option<Rules>,
    /// What becomes of packets that cannot be looked into.
    pub exceptions: Exceptions,
    /// The UDP ports at which datagrams carry packets that rules and lines look at.
    pub tunnels: TunnelPorts,
    /// Who is blocked, whatever else is allowed; `None`: nobody.
    pub blocks: Option<Arc<Blocks>>,
    selectors: Selectors,
    /// The peer for frames without an address.
    everything: Option<u32>,
    /// Places in `peers` whose peers were removed.
    vacant: Vec<u32>,
}

impl Policy {
    /// A policy that passes everything and only watches.
    pub fn watch(epoch: u32, wire_mtu: u16) -> Self {
        Self {
            epoch,
            peers: Vec::new(),
            default: Action::Clear,
            frames: FrameActions::all_clear(),
            own: None,
            wire_mtu,
            host_mtu: u16::MAX,
            marking: Marking::default(),
            check_icrc: true,
            gather: true,
            keying_port: None,
            masquerade: None,
            on_leak: OnLeak::default(),
            access: None,
            rules: None,
            exceptions: Exceptions::default(),
            tunnels: TunnelPorts::default(),
            blocks: None,
            selectors: Selectors::default(),
            everything: None,
            vacant: Vec::new(),
        }
    }

    /// Puts `peers` in and orders their prefixes, longest first.
    pub fn with_peers(mut self, peers: Vec<Peer>) -> Self {
        self.selectors = Selectors::of(&peers);
        self.everything = everything(&peers);
        self.peers = peers;
        self
    }

    /// Puts `peers` behind those there are, and `selectors`, in this order, behind their prefixes;
    /// the indices in them count from the first of `peers`. What a selector would pass in clear is
    /// sealed all the same where a peer there is seals everything.
    pub fn with_front_end(mut self, peers: Vec<Peer>, selectors: Vec<(Prefix, Route)>) -> Self {
        let of_everything = self.everything.filter(|it| !self.may_be_clear(*it as usize));
        let first = self.peers.len() as u32;
        self.selectors.extend(first, &peers, selectors, of_everything.map(Route::Peer));
        self.peers.extend(peers);
        self.everything = everything(&self.peers);
        self
    }

    /// Puts one peer in, without a look at the others, and returns its index: a place that another
    /// left, or the next. Where associations are named, always the next: they are kept in order.
    /// `None`: one of its prefixes is another's, or another has everything.
    pub(crate) fn insert_peer(&mut self, peer: Peer) -> Option<usize> {
        let is_taken = peer.protects.iter().any(|it| self.selectors.has(it));
        if is_taken || peer.everything && self.everything.is_some() {
            return None;
        }
        let vacant = if peer.open_spis.is_empty() { self.vacant.pop() } else { None };
        let index = vacant.map_or(self.peers.len(), |it| it as usize);
        let way = Route::Peer(index as u32);
        peer.protects.iter().for_each(|it| self.selectors.insert(*it, way));
        if peer.everything {
            self.everything = Some(index as u32);
        }
        match self.peers.get_mut(index) {
            Some(place) => *place = peer,
            None => self.peers.push(peer),
        }
        Some(index)
    }

    /// Removes one peer, without a look at the others; its place stays, vacant.
    pub(crate) fn remove_peer(&mut self, index: usize) -> Option<Peer> {
        let place = self.peers.get_mut(index).filter(|it| !it.is_vacant())?;
        let gone = std::mem::replace(place, Peer::vacant());
        for prefix in &gone.protects {
            self.selectors.remove(prefix, Route::Peer(index as u32));
        }
        self.everything.take_if(|it| *it == index as u32);
        self.vacant.push(index as u32);
        Some(gone)
    }

    /// Where packets to `address`, on the far side, belong.
    #[inline]
    pub fn route_to(&self, address: &[u8; 16]) -> Option<Route> {
        self.selectors.route_to(address)
    }

    /// Whether the peer of this index may send packets from `address`, which holds when packets to
    /// that address go to this peer.
    pub fn may_send(&self, peer: usize, address: &[u8; 16]) -> bool {
        let is_from = self.selectors.is_from(peer as u32, address);
        is_from.unwrap_or(self.peers[peer].everything)
    }

    /// The peer in front of `address`.
    #[inline]
    pub fn peer_for(&self, address: &[u8; 16]) -> Option<usize> {
        match self.route_to(address)? {
            Route::Peer(index) => Some(index as usize),
            Route::Clear | Route::Drop => None,
        }
    }

    /// The peer for frames without an address.
    pub fn peer_for_everything(&self) -> Option<usize> {
        self.everything.map(|it| it as usize)
    }

    /// Whether packets to and from the peer of this index may be in clear on the wire.
    #[inline]
    pub fn may_be_clear(&self, peer: usize) -> bool {
        self.peers[peer].sealing != Sealing::Require
    }

    /// Whether plaintext from the wire may pass at all.
    pub fn seals(&self) -> bool {
        self.peers.len() > self.vacant.len()
    }

    /// Whether anybody is blocked: not only allowed.
    pub fn stops_anybody(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.stop_anybody())
    }

    /// SPIs of all associations that open, in the order of the peers.
    pub fn open_spis(&self) -> impl Iterator<Item = u32> {
        self.peers.iter().flat_map(|peer| peer.open_spis.iter().copied())
    }
}

fn everything(peers: &[Peer]) -> Option<u32> {
    peers.iter().position(|peer| peer.everything).map(|index| index as u32)
}

#[cfg(test)]
mod tests;
