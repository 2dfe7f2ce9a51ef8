//! What the gateway is told to do, compiled, immutable and numbered by epoch.
//!
//! The configuration becomes a whole `Policy` or is refused; a worker swaps it between two batches.
//! Associations (keys, sequence numbers, replay windows) live beside it in the engine, because
//! they outlive a policy.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::access::AccessPolicy;
use crate::detect::Rules;
use crate::plain::Blocks;
use crate::tunnel::key::PublicKey;

mod frames;
mod marking;
mod own;
mod ranges;
mod reach;
mod selectors;

pub use frames::{FrameActions, FrameClass};
pub use marking::{DSCP_COUNT, Marking, PCP_COUNT};
pub use own::OwnAddress;
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

/// What happens to a frame that must be sealed, is not, and has come as far as the wire port: a
/// fault of ours.
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

/// An address prefix; IPv4 is kept mapped (::ffff:a.b.c.d/96+n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: u128,
    mask: u128,
    /// Whether it holds IPv6 alone, although mapped IPv4 addresses lie in it, as in ::/0.
    without_v4: bool,
}

/// Bits before a mapped IPv4 address: an IPv6 prefix of so many or more holds IPv4 alone or none.
const MAPPED_LEN: u32 = 96;

impl Prefix {
    /// Everything, IPv4 and IPv6.
    pub const ALL: Prefix = Prefix { address: 0, mask: 0, without_v4: false };

    /// `address/len`; bits behind the prefix are ignored. A length beyond the family's counts as a
    /// host prefix.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let (bits, len) = match address {
            IpAddr::V4(v4) => {
                (u128::from(v4.to_ipv6_mapped()), MAPPED_LEN + u32::from(len.min(32)))
            }
            IpAddr::V6(v6) => (u128::from(v6), u32::from(len.min(128))),
        };
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        Self { address: bits & mask, mask, without_v4: len < MAPPED_LEN }
    }

    /// Whether `address` (in the form of `Parsed`) lies inside.
    #[inline]
    pub fn contains(&self, address: &[u8; 16]) -> bool {
        let address = u128::from_be_bytes(*address);
        address & self.mask == self.address && !(self.without_v4 && is_mapped(address))
    }

    /// The narrower comes first; of equal lengths, what holds IPv6 alone before what holds both.
    fn rank(self) -> (std::cmp::Reverse<u32>, bool) {
        (std::cmp::Reverse(self.prefix_len()), !self.without_v4)
    }

    /// Its first address.
    pub fn first(&self) -> u128 {
        self.address
    }

    /// Bits that are fixed, 0 to 128.
    pub fn prefix_len(&self) -> u32 {
        self.mask.count_ones()
    }
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

/// The 16-byte form that `Parsed` uses: IPv4 mapped into IPv6.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address in `Parsed`'s 16 bytes.
pub(crate) fn address(bytes: &[u8; 16]) -> IpAddr {
    match weir_wire::ip::unmapped(bytes) {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        None => IpAddr::from(*bytes),
    }
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
    /// The outer headers' classes of traffic.
    pub marking: Marking,
    /// Whether the ICRC of every RDMA packet is verified.
    pub check_icrc: bool,
    /// Whether TCP segments for the host are gathered into super-packets: not where the host port
    /// sends none.
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
            marking: Marking::default(),
            check_icrc: true,
            gather: true,
            keying_port: None,
            masquerade: None,
            on_leak: OnLeak::default(),
            access: None,
            rules: None,
            exceptions: Exceptions::default(),
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

    /// Whether the peer of this index may send packets from `address`: whose it is, gets them too.
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

    /// SPIs of all associations that open, in the order of the peers.
    pub fn open_spis(&self) -> impl Iterator<Item = u32> {
        self.peers.iter().flat_map(|peer| peer.open_spis.iter().copied())
    }
}

fn is_mapped(address: u128) -> bool {
    address >> 32 == 0xffff
}

fn everything(peers: &[Peer]) -> Option<u32> {
    peers.iter().position(|peer| peer.everything).map(|index| index as u32)
}

#[cfg(test)]
mod tests {
    use super::selectors::COMPARED_MAX;
    use super::*;

    fn peer(name: &str, protects: &[(&str, u8)]) -> Peer {
        Peer {
            name: name.into(),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Esp,
            sealing: Sealing::Require,
            endpoint: None,
            protects: protects.iter().map(|(a, l)| Prefix::new(a.parse().unwrap(), *l)).collect(),
            everything: false,
            seal_spi: Some(256),
            open_spis: vec![257],
            agreed: None,
            kernel: None,
            rate_limit: None,
            reaches: Vec::new(),
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let policy = Policy::watch(1, 1500)
            .with_peers(vec![peer("site", &[("10.0.0.0", 8)]), peer("host", &[("10.1.2.3", 32)])]);
        let find = |a: &str| policy.peer_for(&mapped(a.parse().unwrap()));
        assert_eq!(find("10.1.2.3"), Some(1));
        assert_eq!(find("10.1.2.4"), Some(0));
        assert_eq!(find("11.0.0.1"), None);
        assert_eq!(find("fd00::1"), None);
    }

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix::new(text.parse().unwrap(), len)
    }

    #[test]
    fn a_front_end_puts_nothing_in_clear_that_a_peer_in_front_of_everything_must_seal() {
        let with = |sealing| {
            let everything = Peer { everything: true, sealing, ..peer("all", &[]) };
            let passed =
                vec![(prefix("10.2.0.0", 16), Route::Clear), (prefix("::", 0), Route::Clear)];
            let policy = Policy::watch(1, 1500).with_peers(vec![everything]);
            policy.with_front_end(vec![peer("ike", &[])], passed)
        };
        let address = mapped("10.2.0.1".parse().unwrap());
        let policy = with(Sealing::Require);
        assert_eq!(policy.route_to(&address), Some(Route::Peer(0)));
        assert!(policy.may_send(0, &address) && !policy.may_send(1, &address));
        assert_eq!(with(Sealing::Prefer).route_to(&address), Some(Route::Clear), "as it was asked");
    }

    #[test]
    fn a_front_ends_selectors_come_behind_the_configurations_in_their_own_order() {
        let selectors = || {
            vec![
                (prefix("10.2.2.0", 24), Route::Clear),
                (prefix("10.2.2.3", 32), Route::Drop),
                (prefix("10.2.0.0", 16), Route::Peer(0)),
                (prefix("0.0.0.0", 0), Route::Clear),
            ]
        };
        // A few prefixes are compared one by one, many are looked up.
        for further in [0, 3 * COMPARED_MAX as u32] {
            let hosts = (0..further).map(|n| peer("host", &[(&format!("172.16.0.{n}"), 32)]));
            let site = peer("site", &[("10.1.0.0", 16)]);
            let configured = [site].into_iter().chain(hosts).collect();
            let policy = Policy::watch(1, 1500)
                .with_peers(configured)
                .with_front_end(vec![peer("ike", &[("10.2.0.0", 16)])], selectors());
            let way = |a: &str| policy.route_to(&mapped(a.parse().unwrap()));
            assert_eq!(way("10.1.4.1"), Some(Route::Peer(0)), "never put in clear by a front end");
            assert_eq!(way("10.2.2.3"), Some(Route::Clear), "the first decides, not the longest");
            assert_eq!(way("10.2.3.1"), Some(Route::Peer(1 + further)));
            assert_eq!(way("11.0.0.1"), Some(Route::Clear));
            assert_eq!(way("fd00::1"), None);
        }
    }

    #[test]
    fn a_peer_may_send_from_what_no_other_has_a_longer_prefix_for() {
        let mut rest = peer("rest", &[]);
        (rest.protects, rest.everything) = (vec![Prefix::ALL], true);
        for further in [0, 3 * COMPARED_MAX] {
            let hosts = (0..further).map(|n| peer("host", &[(&format!("172.16.0.{n}"), 32)]));
            let site = peer("site", &[("10.1.0.0", 16)]);
            let peers = [rest.clone(), site].into_iter().chain(hosts).collect();
            let policy = Policy::watch(1, 1500).with_peers(peers);
            let may = |peer, a: &str| policy.may_send(peer, &mapped(a.parse().unwrap()));
            assert!(may(0, "10.2.0.1") && may(0, "fd00::1") && !may(0, "10.1.0.1"));
            assert!(may(1, "10.1.0.1") && !may(1, "10.2.0.1"));
        }
    }

    #[test]
    fn a_front_ends_peers_may_send_by_their_longest_prefix_and_never_for_a_configured_one() {
        let peers = vec![
            peer("wide", &[("10.0.0.0", 8)]),
            peer("narrow", &[("10.2.0.0", 16)]),
            peer("its twin", &[("10.2.0.0", 16)]),
        ];
        let selectors = vec![
            (prefix("10.3.0.0", 16), Route::Clear),
            (prefix("10.2.0.0", 16), Route::Peer(1)),
            (prefix("10.0.0.0", 8), Route::Peer(0)),
        ];
        let policy = Policy::watch(1, 1500)
            .with_peers(vec![peer("site", &[("10.1.0.0", 16)])])
            .with_front_end(peers, selectors);
        let may = |peer, a: &str| policy.may_send(peer, &mapped(a.parse().unwrap()));
        let who = |a: &str| (0..4).filter(|it| may(*it, a)).collect::<Vec<_>>();
        assert_eq!(who("10.9.0.1"), [1]);
        assert_eq!(who("10.2.0.1"), [2, 3], "policies of one network may lead to two peers");
        assert_eq!(who("10.1.0.1"), [0]);
        assert_eq!(who("10.3.0.1"), [0; 0], "what passes in clear is nobody's");
        assert_eq!(who("11.0.0.1"), [0; 0]);
    }

    #[test]
    fn thousands_of_prefixes_are_found_as_a_few_are() {
        let mut peers = vec![peer("site", &[("10.0.0.0", 8), ("fd00::", 16)])];
        for index in 0..3000_u32 {
            let [_, b, c, _] = (index * 7).to_be_bytes();
            let address = format!("10.{b}.{c}.{}", index % 250);
            peers.push(peer("host", &[(&address, if index % 2 == 0 { 32 } else { 24 })]));
        }
        let many = Policy::watch(1, 1500).with_peers(peers.clone());
        let mut one_by_one: Vec<(Prefix, usize)> = peers
            .iter()
            .enumerate()
            .flat_map(|(index, peer)| peer.protects.iter().map(move |it| (*it, index)))
            .collect();
        one_by_one.sort_by_key(|(prefix, _)| prefix.rank());
        for index in 0..5000_u32 {
            let [_, b, c, d] = (index * 13).to_be_bytes();
            let address = mapped(IpAddr::from([10, b, c, d]));
            let expected = one_by_one.iter().find(|(prefix, _)| prefix.contains(&address));
            assert_eq!(many.peer_for(&address), expected.map(|(_, peer)| *peer));
        }
        assert_eq!(many.peer_for(&mapped("fd00::7".parse().unwrap())), Some(0));
        assert_eq!(many.peer_for(&mapped("192.0.2.1".parse().unwrap())), None);
    }

    #[test]
    fn an_ipv4_default_route_holds_no_ipv6() {
        let all_v4 = Prefix::new("0.0.0.0".parse().unwrap(), 0);
        assert!(all_v4.contains(&mapped("203.0.113.9".parse().unwrap())));
        assert!(!all_v4.contains(&mapped("fd00::1".parse().unwrap())));
        assert!(Prefix::ALL.contains(&mapped("fd00::1".parse().unwrap())));
    }

    #[test]
    fn an_ipv6_default_route_holds_no_ipv4() {
        for len in [0, 1, 64, 80, 95] {
            let prefix = Prefix::new("::".parse().unwrap(), len);
            assert!(prefix.contains(&mapped("::1".parse().unwrap())), "::/{len}");
            assert!(!prefix.contains(&mapped("10.0.0.1".parse().unwrap())), "::/{len}");
        }
        let v4_in_v6 = Prefix::new("::ffff:10.0.0.0".parse().unwrap(), 104);
        assert!(v4_in_v6.contains(&mapped("10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn default_routes_of_both_families_and_everything_have_a_peer_each() {
        let all = || [peer("v6", &[("::", 0)]), peer("v4", &[("0.0.0.0", 0)])];
        let mut rest = peer("rest", &[]);
        rest.protects = vec![Prefix::ALL];
        // A few prefixes are compared one by one, many are looked up.
        for further in [0, 3 * COMPARED_MAX] {
            let hosts = (0..further).map(|n| peer("host", &[(&format!("10.0.0.{n}"), 32)]));
            let hosts: Vec<Peer> = hosts.collect();
            let find = |peers: Vec<Peer>, address: &str| {
                let policy = Policy::watch(1, 1500).with_peers([peers, hosts.clone()].concat());
                policy.peer_for(&mapped(address.parse().unwrap()))
            };
            let [v6, v4] = all();
            assert_eq!(find(all().to_vec(), "192.0.2.1"), Some(1));
            assert_eq!(find(all().to_vec(), "fd00::1"), Some(0));
            assert_eq!(find(vec![v6.clone()], "192.0.2.1"), None);
            assert_eq!(find(vec![rest.clone(), v6], "192.0.2.1"), Some(0));
            assert_eq!(find(vec![rest.clone(), v4], "fd00::1"), Some(0));
        }
    }

    #[test]
    fn a_peer_beyond_the_prefix_is_reached_by_the_next_hop() {
        let own = OwnAddress {
            addresses: vec![("192.0.2.1".parse().unwrap(), 24)],
            next_hop: Some("192.0.2.254".parse().unwrap()),
            ..OwnAddress::default()
        };
        let hop = |a: &str| own.hop_for(a.parse().unwrap()).to_string();
        assert_eq!(hop("192.0.2.9"), "192.0.2.9");
        assert_eq!(hop("198.51.100.1"), "192.0.2.254");
    }
}
