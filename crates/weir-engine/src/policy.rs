//! What the gateway is told to do, compiled, immutable and numbered by epoch.
//!
//! The configuration becomes a whole `Policy` or is refused; a worker swaps it between two batches.
//! Associations (keys, sequence numbers, replay windows) live beside it in the engine, because
//! they outlive a policy.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use weir_wire::parse::MacAddress;

use crate::tunnel::key::PublicKey;

mod marking;

pub use marking::{DSCP_COUNT, Marking, PCP_COUNT};

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

/// Frames that no address selector decides: link-local protocols, address resolution, group
/// traffic. Told apart by destination MAC and EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameClass {
    /// LLDP (EtherType 0x88cc).
    Lldp,
    /// Slow protocols: LACP, marker (0x8809).
    Lacp,
    /// 802.1X (0x888e).
    Eapol,
    /// PTP over Ethernet (0x88f7).
    Ptp,
    /// MAC control: pause, PFC (0x8808).
    Pause,
    /// Spanning tree and other 802.3 LLC frames to 01:80:c2:00:00:00.
    Stp,
    /// Anything else to 01:80:c2:00:00:00 .. 0f, which a bridge never forwards.
    LinkLocal,
    /// ARP.
    Arp,
    /// IPv6 neighbour and router discovery (ICMPv6 133 to 137).
    NeighbourDiscovery,
    /// Broadcast that is none of the above.
    Broadcast,
    /// Multicast that is none of the above.
    Multicast,
}

impl FrameClass {
    /// All classes, in counter order.
    pub const ALL: [FrameClass; 11] = [
        FrameClass::Lldp,
        FrameClass::Lacp,
        FrameClass::Eapol,
        FrameClass::Ptp,
        FrameClass::Pause,
        FrameClass::Stp,
        FrameClass::LinkLocal,
        FrameClass::Arp,
        FrameClass::NeighbourDiscovery,
        FrameClass::Broadcast,
        FrameClass::Multicast,
    ];

    /// The name in configuration, counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            FrameClass::Lldp => "lldp",
            FrameClass::Lacp => "lacp",
            FrameClass::Eapol => "eapol",
            FrameClass::Ptp => "ptp",
            FrameClass::Pause => "pause",
            FrameClass::Stp => "stp",
            FrameClass::LinkLocal => "link_local",
            FrameClass::Arp => "arp",
            FrameClass::NeighbourDiscovery => "neighbour_discovery",
            FrameClass::Broadcast => "broadcast",
            FrameClass::Multicast => "multicast",
        }
    }
}

/// The action for each [`FrameClass`], by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameActions(pub [Action; FrameClass::ALL.len()]);

impl FrameActions {
    /// Everything in clear: a gateway that only watches.
    pub const fn all_clear() -> Self {
        Self([Action::Clear; FrameClass::ALL.len()])
    }

    /// A sealing gateway's defaults: what a bridge never forwards ends here; the rest is sealed.
    pub const fn sealing() -> Self {
        use Action::{Drop, Seal};
        Self([Drop, Drop, Drop, Drop, Drop, Drop, Drop, Seal, Seal, Seal, Seal])
    }

    /// The action for one class.
    pub const fn of(&self, class: FrameClass) -> Action {
        self.0[class as usize]
    }

    /// Changes the action for one class.
    pub const fn set(&mut self, class: FrameClass, action: Action) {
        self.0[class as usize] = action;
    }
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
    /// No ESP: RoCE packets carry a tag in the place of their ICRC, and are otherwise in clear.
    IcrcTag(TagTerms),
}

impl Mode {
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
}

/// A peer whose ESP the gateway's kernel does.
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
pub enum Way {
    /// To the peer of this index, sealed.
    Peer(u16),
    /// Past every peer, in clear.
    Clear,
    /// Nowhere.
    Drop,
}

/// The gateway's own place on the wire side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddress {
    /// The wire port's MAC address.
    pub mac: MacAddress,
    /// Own addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where to send what is not on a local prefix.
    pub next_hop: Option<IpAddr>,
    /// VLAN of the outer frames; 0: a tag that carries no more than the priority.
    pub vlan: Option<u16>,
}

impl OwnAddress {
    /// The own address of `peer`'s family.
    pub fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().map(|(address, _)| *address).find(|a| a.is_ipv4() == peer.is_ipv4())
    }

    /// Whose MAC address a packet to `peer` needs: the peer's, or the next hop's.
    pub fn hop_for(&self, peer: IpAddr) -> IpAddr {
        let bytes = mapped(peer);
        let local = self.addresses.iter().any(|(a, len)| {
            a.is_ipv4() == peer.is_ipv4() && Prefix::new(*a, *len).contains(&bytes)
        });
        match self.next_hop {
            Some(hop) if !local && hop.is_ipv4() == peer.is_ipv4() => hop,
            _ => peer,
        }
    }

    /// Whether `group` is the solicited-node group (RFC 4291 s2.7.1) of an own address.
    pub fn is_solicited_group(&self, group: &[u8; 16]) -> bool {
        const PREFIX: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
        group.starts_with(&PREFIX)
            && self
                .addresses
                .iter()
                .any(|(own, _)| own.is_ipv6() && mapped(*own)[13..] == group[13..])
    }

    /// Whether `address` is one of our own.
    pub fn holds(&self, address: &[u8; 16]) -> bool {
        self.addresses.iter().any(|(own, _)| mapped(*own) == *address)
    }
}

/// The 16-byte form that `Parsed` uses: IPv4 mapped into IPv6.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
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
    /// What the last check before the wire does with plaintext.
    pub on_leak: OnLeak,
    /// The first that holds the address decides.
    selectors: Vec<(Prefix, Way)>,
    /// Peers' prefixes where they are many: by mask, longest first, then by address.
    by_mask: Vec<(Mask, ByAddress)>,
    /// The peer for frames without an address.
    everything: Option<u16>,
}

/// So many prefixes are compared one by one; more of them are looked up, a hash for each length of
/// prefix that occurs.
const COMPARED_MAX: usize = 16;

/// What prefixes looked up in one table share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask {
    mask: u128,
    without_v4: bool,
}

type ByAddress = HashMap<u128, Way, BuildHasherDefault<AddressHasher>>;

/// Spreads addresses. Who sends packets chooses what is looked up and not what is in the table, so
/// nobody can make its entries collide.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(*byte));
        }
    }

    #[inline]
    fn write_u128(&mut self, address: u128) {
        let mixed =
            (address as u64 ^ (address >> 64) as u64 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
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
            on_leak: OnLeak::default(),
            selectors: Vec::new(),
            by_mask: Vec::new(),
            everything: None,
        }
    }

    /// Puts `peers` in and orders their prefixes, longest first.
    pub fn with_peers(mut self, peers: Vec<Peer>) -> Self {
        self.selectors = peers
            .iter()
            .enumerate()
            .flat_map(|(index, peer)| {
                peer.protects.iter().map(move |p| (*p, Way::Peer(index as u16)))
            })
            .collect();
        self.selectors.sort_by_key(|(prefix, _)| prefix.rank());
        if self.selectors.len() > COMPARED_MAX {
            for (prefix, way) in std::mem::take(&mut self.selectors) {
                let mask = Mask { mask: prefix.mask, without_v4: prefix.without_v4 };
                if self.by_mask.last().is_none_or(|(last, _)| *last != mask) {
                    self.by_mask.push((mask, ByAddress::default()));
                }
                if let Some((_, ways)) = self.by_mask.last_mut() {
                    ways.entry(prefix.address).or_insert(way);
                }
            }
        }
        self.everything = everything(&peers);
        self.peers = peers;
        self
    }

    /// Puts `peers` behind those there are, and `selectors`, in this order, before those there
    /// are; the indices in them count from the first of `peers`.
    pub fn with_front_end(mut self, peers: Vec<Peer>, selectors: Vec<(Prefix, Way)>) -> Self {
        let first = self.peers.len() as u16;
        let shifted = selectors.into_iter().map(|(prefix, way)| match way {
            Way::Peer(index) => (prefix, Way::Peer(first + index)),
            way => (prefix, way),
        });
        self.selectors.splice(0..0, shifted);
        self.peers.extend(peers);
        self.everything = everything(&self.peers);
        self
    }

    /// Where packets to `address`, on the far side, belong.
    #[inline]
    pub fn way_to(&self, address: &[u8; 16]) -> Option<Way> {
        let found = self.selectors.iter().find(|(prefix, _)| prefix.contains(address));
        match found {
            Some((_, way)) => Some(*way),
            None => self.look_up(u128::from_be_bytes(*address)),
        }
    }

    fn look_up(&self, address: u128) -> Option<Way> {
        let is_v4 = is_mapped(address);
        let masks = self.by_mask.iter().filter(|(it, _)| !(it.without_v4 && is_v4));
        let mut found = masks.filter_map(|(it, ways)| ways.get(&(address & it.mask)));
        found.next().copied()
    }

    /// The peer in front of `address`.
    #[inline]
    pub fn peer_for(&self, address: &[u8; 16]) -> Option<usize> {
        match self.way_to(address)? {
            Way::Peer(index) => Some(usize::from(index)),
            Way::Clear | Way::Drop => None,
        }
    }

    /// The peer for frames without an address.
    pub fn peer_for_everything(&self) -> Option<usize> {
        self.everything.map(usize::from)
    }

    /// Whether packets to and from the peer of this index may be in clear on the wire.
    #[inline]
    pub fn may_be_clear(&self, peer: usize) -> bool {
        self.peers[peer].sealing != Sealing::Require
    }

    /// Whether plaintext from the wire may pass at all.
    pub fn seals(&self) -> bool {
        !self.peers.is_empty()
    }

    /// SPIs of all associations that open, in the order of the peers.
    pub fn open_spis(&self) -> impl Iterator<Item = u32> {
        self.peers.iter().flat_map(|peer| peer.open_spis.iter().copied())
    }
}

fn is_mapped(address: u128) -> bool {
    address >> 32 == 0xffff
}

fn everything(peers: &[Peer]) -> Option<u16> {
    peers.iter().position(|peer| peer.everything).map(|index| index as u16)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_front_ends_selectors_come_first_in_their_own_order() {
        let configured = Policy::watch(1, 1500).with_peers(vec![peer("site", &[("10.1.0.0", 16)])]);
        let prefix = |text: &str, len| Prefix::new(text.parse().unwrap(), len);
        let policy = configured.with_front_end(
            vec![peer("ike", &[("10.0.0.0", 8)])],
            vec![
                (prefix("10.1.2.0", 24), Way::Clear),
                (prefix("10.1.2.3", 32), Way::Drop),
                (prefix("10.1.3.0", 24), Way::Peer(0)),
            ],
        );
        let way = |a: &str| policy.way_to(&mapped(a.parse().unwrap()));
        assert_eq!(way("10.1.2.3"), Some(Way::Clear), "the first decides, not the longest");
        assert_eq!(way("10.1.3.1"), Some(Way::Peer(1)));
        assert_eq!(way("10.1.4.1"), Some(Way::Peer(0)));
        assert_eq!(way("11.0.0.1"), None);
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
