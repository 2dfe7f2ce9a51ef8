//! Lines of access as they are written: who may do what to whose memory.

use std::sync::Arc;

use weir_wire::parse::MacAddress;

use super::limits::Limits;
use super::terms::{Asked, Terms};
use crate::policy::Prefix;

/// Lines in one policy, at most.
pub const LINES_MAX: usize = 1 << 15;

/// Prefixes in all parties of a policy's lines, each as often as it is in one, at most: they take
/// about 100 MiB.
pub const MEMBERS_MAX: usize = 1 << 20;

/// What a requester asks of another queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// SEND, without immediate data.
    Send,
    /// SEND with immediate data. Only the last packet of a message says so.
    SendImmediate,
    /// RDMA WRITE, ATOMIC WRITE and FLUSH.
    Write,
    /// RDMA READ.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
    /// A datagram to a group.
    Multicast,
    /// A management datagram, to queue pair 1: connections are made and ended by these.
    Connect,
    /// What the opcode does not tell: reserved ones, and those that are a manufacturer's own.
    Other,
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// All of them, by number.
    pub const ALL: [Operation; Self::COUNT] = [
        Operation::Send,
        Operation::SendImmediate,
        Operation::Write,
        Operation::Read,
        Operation::Atomic,
        Operation::Multicast,
        Operation::Connect,
        Operation::Other,
    ];

    /// Those that a connection between two queue pairs serves.
    pub(super) const SERVED: [Operation; 5] = [
        Operation::Send,
        Operation::SendImmediate,
        Operation::Write,
        Operation::Read,
        Operation::Atomic,
    ];

    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::SendImmediate => "send_imm",
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Atomic => "atomic",
            Operation::Multicast => "multicast",
            Operation::Connect => "connect",
            Operation::Other => "other",
        }
    }
}

/// A set of [`Operation`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// Every one.
    pub const ALL: Operations = Operations(0xff);

    /// Not one.
    pub const NONE: Operations = Operations(0);

    /// Those of `list`.
    pub fn of(list: impl IntoIterator<Item = Operation>) -> Self {
        Self(list.into_iter().fold(0, |set, it| set | 1 << it as u8))
    }

    /// Whether it holds `operation`.
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & 1 << operation as u8 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that `other` lacks.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(move |it| self.contains(*it))
    }
}

/// What a line does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessAction {
    /// It passes.
    Allow,
    /// It is dropped.
    Deny,
    /// It passes, counted and told of as if it were dropped: for trying a line.
    WouldDeny,
    /// It is dropped, and its sender told so in the responder's name.
    Reject,
}

impl AccessAction {
    /// All of them.
    pub const ALL: [AccessAction; 4] =
        [AccessAction::Allow, AccessAction::Deny, AccessAction::WouldDeny, AccessAction::Reject];

    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            AccessAction::Allow => "allow",
            AccessAction::Deny => "deny",
            AccessAction::WouldDeny => "would_deny",
            AccessAction::Reject => "reject",
        }
    }

    /// Whether what it matches goes on.
    pub const fn passes(self) -> bool {
        match self {
            AccessAction::Allow | AccessAction::WouldDeny => true,
            AccessAction::Deny | AccessAction::Reject => false,
        }
    }
}

/// Members that are named by what their frames and packets bear, whatever their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// MAC addresses, of who asks or is asked.
    pub macs: Vec<MacAddress>,
    /// Outer VLANs, 0 for frames without a tag.
    pub vlans: Vec<u16>,
    /// Partitions: the low 15 bits of P_Keys.
    pub partitions: Vec<u16>,
}

impl Marks {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.macs.is_empty() && self.vlans.is_empty() && self.partitions.is_empty()
    }

    /// Takes in those of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.macs.extend_from_slice(&other.macs);
        self.vlans.extend_from_slice(&other.vlans);
        self.partitions.extend_from_slice(&other.partitions);
    }

    /// In order, each once, as they are looked up.
    fn sort(&mut self) {
        self.macs.sort_unstable();
        self.macs.dedup();
        for list in [&mut self.vlans, &mut self.partitions] {
            list.sort_unstable();
            list.dedup();
        }
    }

    /// Whether the packet bears one of them, at this end: 0 for who asks, 1 for who is asked.
    fn are_borne(&self, asked: &Asked, end: usize) -> bool {
        let is_mac = |macs: [MacAddress; 2]| self.macs.binary_search(&macs[end]).is_ok();
        asked.macs.is_some_and(is_mac)
            || self.vlans.binary_search(&asked.vlan).is_ok()
            || asked.partition.is_some_and(|it| self.partitions.binary_search(&it).is_ok())
    }

    /// Whether all of `other` are among them.
    fn cover(&self, other: &Self) -> bool {
        let all =
            |mine: &[u16], others: &[u16]| others.iter().all(|it| mine.binary_search(it).is_ok());
        other.macs.iter().all(|it| self.macs.binary_search(it).is_ok())
            && all(&self.vlans, &other.vlans)
            && all(&self.partitions, &other.partitions)
    }
}

/// Who is at one end of a line, by addresses and by marks. Lines may share one: a clone is no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    prefixes: Arc<[Prefix]>,
    /// In order.
    marks: Arc<Marks>,
    /// The same addresses, sorted and apart: first and last of each run.
    ranges: Arc<[(u128, u128)]>,
    /// As the configuration names it.
    name: Option<Arc<str>>,
}

impl Party {
    /// Everybody.
    pub fn any() -> Self {
        let marks = Arc::default();
        Self { prefixes: Arc::new([]), marks, ranges: Arc::new([]), name: None }
    }

    /// Those in `prefixes`; none of them: everybody.
    pub fn new(prefixes: Vec<Prefix>) -> Self {
        Self::with_marks(prefixes, Marks::default())
    }

    /// Those in `prefixes` and those whose packets bear one of `marks`; none of either: everybody.
    pub fn with_marks(prefixes: Vec<Prefix>, mut marks: Marks) -> Self {
        marks.sort();
        let mut ranges: Vec<_> = prefixes.iter().flat_map(Prefix::ranges).collect();
        ranges.sort_unstable();
        let mut apart: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match apart.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => apart.push((first, last)),
            }
        }
        Self { prefixes: prefixes.into(), marks: marks.into(), ranges: apart.into(), name: None }
    }

    /// The same, called `name` where it is told of.
    pub fn called(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// What it is called: groups, `peer:laptop`, addresses; `None`: nothing.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its members that are named otherwise than by addresses, in order.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// As they were named.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    /// Whether it is everybody.
    pub fn is_any(&self) -> bool {
        self.prefixes.is_empty() && self.marks.is_empty()
    }

    /// Whether who has `address` is among them, or who bears what `asked` knows of this end: 0 for
    /// who asks, 1 for who is asked.
    #[inline]
    pub(super) fn holds_either(&self, address: &[u8; 16], asked: &Asked, end: usize) -> bool {
        self.holds(address) || (!self.marks.is_empty() && self.marks.are_borne(asked, end))
    }

    /// Whether `address`, in the form of `Parsed`, is among them.
    pub fn holds(&self, address: &[u8; 16]) -> bool {
        let address = u128::from_be_bytes(*address);
        let behind = self.ranges.partition_point(|(first, _)| *first <= address);
        self.is_any() || (behind > 0 && self.ranges[behind - 1].1 >= address)
    }

    /// Whether all of `other` are among them.
    pub fn covers(&self, other: &Party) -> bool {
        let holds = |(first, last): &(u128, u128)| {
            let behind = self.ranges.partition_point(|it| it.0 <= *first);
            behind > 0 && self.ranges[behind - 1].1 >= *last
        };
        let covers = other.ranges.iter().all(holds) && self.marks.cover(&other.marks);
        self.is_any() || (!other.is_any() && covers)
    }

    /// Whether somebody is in both.
    pub fn meets(&self, other: &Party) -> bool {
        let overlaps = |(first, last): &(u128, u128)| {
            let behind = self.ranges.partition_point(|it| it.0 <= *last);
            behind > 0 && self.ranges[behind - 1].1 >= *first
        };
        // Who bears a mark may have any address.
        let is_open = |it: &Party| it.is_any() || !it.marks.is_empty();
        is_open(self) || is_open(other) || other.ranges.iter().any(overlaps)
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name in `weir access hits` and in events, unique in its policy.
    pub name: Arc<str>,
    /// Who asks.
    pub from: Party,
    /// Whose queue pair, and memory, it is.
    pub to: Party,
    /// What it asks.
    pub operations: Operations,
    /// Over which queue pairs, and when.
    pub terms: Terms,
    /// How much of it passes.
    pub limits: Option<Limits>,
    /// What then happens.
    pub action: AccessAction,
    /// Whether each message that it decides about gives an event; denied ones always do.
    pub log: bool,
}

impl Line {
    /// Whether it is meant to decide about connections, and not only by naming no operations.
    pub(super) fn names_connections(&self) -> bool {
        self.operations != Operations::ALL || !self.terms.services.is_empty()
    }
}

/// Which line decided: its index, or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineNumber(pub(super) u16);

impl LineNumber {
    /// No line matched: the policy's default decided.
    pub const DEFAULT: LineNumber = LineNumber(u16::MAX);

    /// The line's index; `None`: the default.
    pub fn index(self) -> Option<usize> {
        (self != Self::DEFAULT).then_some(usize::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn party(list: &[(&str, u8)]) -> Party {
        let prefix = |(text, len): &(&str, u8)| Prefix::new(text.parse().unwrap(), *len);
        Party::new(list.iter().map(prefix).collect())
    }

    fn address(text: &str) -> [u8; 16] {
        match text.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    #[test]
    fn a_party_holds_what_its_prefixes_hold_and_no_neighbour() {
        let some = party(&[("10.0.0.0", 24), ("10.0.0.128", 25), ("10.0.2.7", 32), ("fd00::", 8)]);
        for (text, holds) in [
            ("10.0.0.0", true),
            ("10.0.0.255", true),
            ("10.0.1.0", false),
            ("10.0.2.7", true),
            ("10.0.2.8", false),
            ("fdff::1", true),
            ("fe00::", false),
        ] {
            assert_eq!(some.holds(&address(text)), holds, "{text}");
        }
        assert!(Party::any().holds(&address("192.0.2.1")));
    }

    #[test]
    fn everything_of_ipv6_holds_no_ipv4() {
        let v6 = party(&[("::", 0)]);
        assert!(v6.holds(&address("::1")) && v6.holds(&address("ffff::")));
        assert!(!v6.holds(&address("10.0.0.1")));
    }

    #[test]
    fn parties_cover_and_meet_by_their_addresses() {
        let (all, net) = (Party::any(), party(&[("10.0.0.0", 24)]));
        let (half, far) = (party(&[("10.0.0.128", 25)]), party(&[("10.0.9.0", 24)]));
        assert!(all.covers(&net) && net.covers(&half) && !half.covers(&net) && !net.covers(&all));
        assert!(net.meets(&half) && half.meets(&net) && net.meets(&all) && !net.meets(&far));
        let halves = party(&[("10.0.0.0", 25), ("10.0.9.0", 24)]);
        assert!(net.meets(&halves) && !net.covers(&halves));
    }
}
