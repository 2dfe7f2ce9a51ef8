//! What a rule asks of a flood: `flood:syn, by_dst, rate 2000, hold 10, prefix 24, times 5`.

use super::super::parts;
use super::TRICKLE;

/// Bits of an address; of an IPv4 one that is mapped, those before it.
const BITS: u8 = 128;
const BITS_BEFORE_V4: u8 = 96;
/// A network of IPv6 hosts, where a rule says how large one of IPv4 is.
const USUAL_PREFIX_V6: u8 = 64;

/// What a flood is made of. The gate in the kernel numbers them so, too
/// (weir-port/bpf/gate.bpf.h), but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodKind {
    /// TCP SYNs.
    Syn,
    /// UDP, RoCE and DNS answers apart.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// DNS answers that nobody asked for.
    Dns,
    /// READ requests and atomics.
    RdmaRead,
    /// WRITEs, by message.
    RdmaWrite,
    /// Requests for connections.
    Cm,
    /// Management datagrams.
    Mad,
    /// Congestion notifications.
    Cnp,
    /// First packets of flows, of any protocol.
    NewFlow,
}

/// Which packets of a kind count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counted {
    All,
    /// Notifications for data that nobody sent: no honest adapter sends one.
    Unasked,
    /// SYNs, less those whose connection is set up: what a SYN flood leaves behind, and a busy
    /// server does not.
    HalfOpen,
}

/// Names of kinds, and packets a second that are usual.
const KINDS: &[(&str, FloodKind, Counted, u32)] = &[
    ("syn", FloodKind::Syn, Counted::All, 2_000),
    ("half_open", FloodKind::Syn, Counted::HalfOpen, 500),
    ("udp", FloodKind::Udp, Counted::All, 20_000),
    ("icmp", FloodKind::Icmp, Counted::All, 1_000),
    ("dns", FloodKind::Dns, Counted::All, 1_000),
    ("rdma_read", FloodKind::RdmaRead, Counted::All, 1_000_000),
    ("rdma_write", FloodKind::RdmaWrite, Counted::All, 2_000_000),
    ("cm", FloodKind::Cm, Counted::All, 1_000),
    ("mad", FloodKind::Mad, Counted::All, 2_000),
    ("cnp", FloodKind::Cnp, Counted::All, 20_000),
    ("unasked_cnp", FloodKind::Cnp, Counted::Unasked, 1_000),
    ("new_flow", FloodKind::NewFlow, Counted::All, 10_000),
];

/// Whose packets are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Source,
    Destination,
}

/// A kind of flood that a rule has watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FloodWatch {
    pub(super) kind: FloodKind,
    pub(super) counted: Counted,
    pub(super) of: Of,
    /// Packets a second that are no flood yet.
    pub(super) rate: u32,
    /// Nor are so many times those that are usual for whom they are of; 0: none are learnt.
    pub(super) times: u32,
    /// Seconds of calm after which it is over.
    pub(super) hold_s: u32,
    /// Bits of IPv4 and IPv6 addresses that are alike among those that are counted together.
    prefixes: [u8; 2],
}

impl FloodWatch {
    pub(crate) fn kind(&self) -> FloodKind {
        self.kind
    }

    pub(in crate::behaviour) fn parse(value: &str) -> Result<Self, String> {
        let (mut of, mut rate, mut hold_s, mut times) = (Of::Source, None, 10, 0);
        let mut prefixes = [None; 2];
        let word = |word: &str| {
            of = match word {
                "by_src" => Of::Source,
                "by_dst" => Of::Destination,
                _ => return Err(format!("`{word}` behind flood: by_src or by_dst")),
            };
            Ok(())
        };
        let number = |name: &str, value: u32| {
            match name {
                "rate" => rate = Some(value),
                "hold" => hold_s = value,
                "times" => times = value,
                "prefix" => prefixes[0] = Some(value),
                "prefix6" => prefixes[1] = Some(value),
                _ => return false,
            }
            true
        };
        let first = parts(value, word, number)?;
        let (_, kind, counted, usual) = KINDS
            .iter()
            .find(|(name, ..)| *name == first)
            .ok_or_else(|| format!("`{first}` is no kind of flood"))?;
        let prefixes = prefixes_of(prefixes)?;
        let (kind, counted, rate) = (*kind, *counted, rate.unwrap_or(*usual));
        Ok(Self { kind, counted, of, rate, times, hold_s, prefixes })
    }

    /// Name of the kind in rules.
    pub(super) fn name(&self) -> &'static str {
        let is_it = |(_, kind, counted, _): &&(_, FloodKind, Counted, _)| {
            (*kind, *counted) == (self.kind, self.counted)
        };
        KINDS.iter().find(is_it).map_or("", |(name, ..)| name)
    }

    /// The network whose packets are counted together with the host's: its first address, and how
    /// many bits its addresses have in common.
    pub(super) fn network(&self, host: u128) -> (u128, u8) {
        let is_v4 = host >> 32 == 0xffff;
        let bits = self.prefixes[usize::from(!is_v4)];
        let mask = u128::MAX.checked_shl(u32::from(BITS - bits)).unwrap_or(0);
        (host & mask, bits)
    }

    /// A packet's source and destination, with the network in the place of the one that it counts.
    pub(crate) fn counted_of(&self, source: u128, destination: u128) -> (u128, u128) {
        match self.of {
            Of::Source => (self.network(source).0, destination),
            Of::Destination => (source, self.network(destination).0),
        }
    }

    /// What the buckets of a network are kept by.
    pub(super) fn key(&self, network: u128) -> impl std::hash::Hash {
        let kind = (self.kind, self.counted, self.of);
        (kind, self.rate, self.times, self.prefixes, network)
    }

    /// Whether it counts notifications alone for whose data none went the other way.
    pub(in crate::behaviour) fn is_unasked(&self) -> bool {
        self.counted == Counted::Unasked
    }

    /// Whether the gate in the kernel can tell its packets from others.
    pub(crate) fn is_for_gate(&self) -> bool {
        !self.is_unasked() && self.kind != FloodKind::NewFlow
    }

    /// Whether it looks for answers that nobody asked for: those come from port 53.
    pub(crate) fn is_dns(&self) -> bool {
        self.kind == FloodKind::Dns
    }

    /// Whether it counts requests on connections of RDMA, of whose answers the gate knows nothing.
    pub(crate) fn is_of_rdma(&self) -> bool {
        matches!(self.kind, FloodKind::RdmaRead | FloodKind::RdmaWrite)
    }

    /// Whether who was answered tells its packets from others, to the gate too.
    pub(crate) fn asks_for_answers(&self) -> bool {
        matches!(self.kind, FloodKind::Udp | FloodKind::Icmp | FloodKind::Dns)
    }
}

/// The lengths of prefixes that a rule names, of 128 bits.
fn prefixes_of(named: [Option<u32>; 2]) -> Result<[u8; 2], String> {
    let checked = |named: Option<u32>, most: u8| match named.map(u8::try_from) {
        None => Ok(None),
        Some(Ok(bits)) if bits <= most => Ok(Some(bits)),
        Some(_) => Err(format!("a prefix of more than {most} bits")),
    };
    let v4 = checked(named[0], BITS - BITS_BEFORE_V4)?;
    let v6 = checked(named[1], BITS)?.or(v4.map(|_| USUAL_PREFIX_V6));
    Ok([v4.map_or(BITS, |bits| bits + BITS_BEFORE_V4), v6.unwrap_or(BITS)])
}

/// A flood that goes on, and that may be dropped before a packet of it is looked at: a rule drops
/// all of it, whatever else its packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flood {
    /// What it is made of.
    pub kind: FloodKind,
    /// Whether it goes to the network, rather than comes from it.
    pub by_destination: bool,
    /// The network's first address; an IPv4 address mapped.
    pub network: [u8; 16],
    /// Bits that its addresses have in common, of 128: all of them, where it is one host.
    pub bits: u8,
    /// Of what goes there, only what this one sends.
    pub talker: Option<[u8; 16]>,
    pub(super) watch: FloodWatch,
}

impl Flood {
    /// The flood of `watch` that a packet belongs to.
    pub(super) fn of(watch: FloodWatch, source: u128, destination: u128, is_talker: bool) -> Self {
        let by_destination = watch.of == Of::Destination;
        let (network, bits) = watch.network(if by_destination { destination } else { source });
        Self {
            kind: watch.kind,
            by_destination,
            network: network.to_be_bytes(),
            bits,
            talker: is_talker.then(|| source.to_be_bytes()),
            watch,
        }
    }

    /// Packets a second that pass for all that, where it goes to the network: none of a talker's.
    pub fn trickle(&self) -> u32 {
        match self.talker {
            Some(_) => 0,
            None => (self.watch.rate / TRICKLE as u32).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> u128 {
        match text.parse().unwrap() {
            std::net::IpAddr::V4(it) => u128::from(it.to_ipv6_mapped()),
            std::net::IpAddr::V6(it) => u128::from(it),
        }
    }

    #[test]
    fn a_prefix_of_ipv4_does_not_take_ipv6_hosts_one_by_one() {
        let watch = FloodWatch::parse("syn, by_dst, prefix 24").unwrap();
        assert_eq!(watch.network(host("10.1.2.3")), (host("10.1.2.0"), 120));
        assert_eq!(watch.network(host("fd00::1:2")), (host("fd00::"), 64));
        let watch = FloodWatch::parse("syn, by_dst, prefix6 48").unwrap();
        assert_eq!(watch.network(host("10.1.2.3")), (host("10.1.2.3"), 128));
        assert_eq!(watch.network(host("fd00:0:1:2::3")), (host("fd00:0:1::"), 48));
    }

    #[test]
    fn what_is_no_flood_is_refused() {
        for wrong in ["syn, prefix 33", "syn, prefix6 129", "syn, prefix 0", "ack", "syn, by_net"] {
            assert!(FloodWatch::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(FloodWatch::parse("half_open, by_dst").unwrap().name(), "half_open");
        assert_eq!(FloodWatch::parse("unasked_cnp").unwrap().name(), "unasked_cnp");
    }
}
