//! All lines of a pair, and which of them decides: the first that matches.

use weir_wire::frame::Time;

use super::index::Index;
use super::limits::Limits;
use super::lines::{AccessAction, LINES_MAX, Line, LineNumber, Operation, Operations};
use super::state::AccessState;
use super::terms::Asked;
use super::windows::PsnCheck;

/// All lines of a pair.
#[derive(Debug)]
pub struct AccessPolicy {
    lines: Vec<Line>,
    default: AccessAction,
    by_from: Index,
    by_to: Index,
    /// Numbers of the lines by their names.
    by_name: Vec<u16>,
    state: AccessState,
    is_one_sided: bool,
    /// Whether any line names kinds of queue pairs, services, or what [`Self::names_links`] says.
    names_terms: bool,
    /// Whether any line names MAC addresses or partitions, as terms or as members.
    names_links: bool,
    psn: PsnCheck,
    /// Lines that do not always hold.
    timed: Vec<u16>,
    /// Whether anybody is told of a refusal.
    rejects: bool,
}

/// Which line decides about each operation of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decisions([LineNumber; Operation::COUNT]);

impl Default for Decisions {
    fn default() -> Self {
        Self([LineNumber::DEFAULT; Operation::COUNT])
    }
}

impl Decisions {
    /// The line that decides about `operation`.
    #[inline]
    pub fn of(&self, operation: Operation) -> LineNumber {
        self.0[operation as usize]
    }

    /// Lets line `number` decide about `operation`.
    pub(super) fn decide(&mut self, operation: Operation, number: LineNumber) {
        self.0[operation as usize] = number;
    }
}

/// What keeps a line from deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// Somebody else asks.
    From,
    /// Somebody else is asked.
    To,
    /// Something else is asked.
    Operation,
    /// Another kind of queue pair.
    QueuePairType,
    /// Another service, or none that is known.
    Service,
    /// Another VLAN.
    Vlan,
    /// Another partition.
    Partition,
    /// Another time.
    Time,
}

impl Lacking {
    /// What it is called in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Lacking::From => "from",
            Lacking::To => "to",
            Lacking::Operation => "operations",
            Lacking::QueuePairType => "qp_type",
            Lacking::Service => "service",
            Lacking::Vlan => "vlan",
            Lacking::Partition => "p_key",
            Lacking::Time => "hours",
        }
    }
}

impl PartialEq for AccessPolicy {
    /// All else follows from these.
    fn eq(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.default, it.state, it.is_one_sided, it.psn);
        of(self) == of(other) && self.lines == other.lines
    }
}

impl Eq for AccessPolicy {}

impl AccessPolicy {
    /// The first [`LINES_MAX`] of `lines`; what none of them matches goes by `default`. This is
    /// where the work is done: make it away from where packets wait.
    pub fn new(mut lines: Vec<Line>, default: AccessAction) -> Self {
        lines.truncate(LINES_MAX);
        let by_from = Index::new(&lines, |line| &line.from);
        let by_to = Index::new(&lines, |line| &line.to);
        let mut by_name: Vec<u16> = (0..lines.len() as u16).collect();
        by_name.sort_by_key(|number| &lines[usize::from(*number)].name);
        // Which VLAN it is in is a part of what tells a queue pair.
        let names_marks = |it: &Line| {
            let marks = [it.from.marks(), it.to.marks()];
            marks.iter().any(|it| !it.macs.is_empty() || !it.partitions.is_empty())
        };
        let names_links = lines.iter().any(|it| names_marks(it) || it.terms.name_partitions());
        let names_terms = names_links || lines.iter().any(|line| line.terms.are_named());
        let timed = (0..).zip(&lines).filter(|(_, line)| line.terms.are_timed());
        let timed = timed.map(|(number, _)| number).collect();
        let (state, is_one_sided) = (AccessState::Off, false);
        let rejects = lines.iter().any(|line| line.action == AccessAction::Reject);
        Self {
            lines,
            default,
            by_from,
            by_to,
            by_name,
            state,
            is_one_sided,
            names_terms,
            names_links,
            psn: PsnCheck::default(),
            timed,
            rejects,
        }
    }

    /// The same, that cares how queue pairs were set up.
    pub fn with_state(self, state: AccessState) -> Self {
        Self { state, ..self }
    }

    /// The same, that does `psn` about packets whose number nobody waits for.
    pub fn with_psn(self, psn: PsnCheck) -> Self {
        Self { psn, ..self }
    }

    /// What happens to packets whose number nobody waits for.
    #[inline]
    pub fn psn(&self) -> PsnCheck {
        self.psn
    }

    /// Whether any line names MAC addresses or partitions: what decides may then change between
    /// two packets of a queue pair.
    #[inline]
    pub(super) fn names_links(&self) -> bool {
        self.names_links
    }

    /// The same, for a capture: all packets seem to come in by one port.
    pub fn from_one_side(self) -> Self {
        Self { is_one_sided: true, ..self }
    }

    /// What happens to packets that do not fit how their queue pair was set up.
    pub fn state(&self) -> AccessState {
        self.state
    }

    /// Whether it can be told which port somebody is behind.
    pub(super) fn knows_sides(&self) -> bool {
        !self.is_one_sided
    }

    /// Whether any line names kinds of queue pairs or services.
    pub(super) fn names_terms(&self) -> bool {
        self.names_terms
    }

    /// Whether any line does not always hold.
    pub(super) fn is_timed(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Whether anybody is told of a refusal.
    #[inline]
    pub(super) fn rejects(&self) -> bool {
        self.rejects
    }

    /// Of the lines that do not always hold, whether each holds at `now`; and when to look again.
    pub(super) fn holding(&self, now: Time) -> (Vec<bool>, Time) {
        let terms = || self.timed.iter().map(|number| &self.lines[usize::from(*number)].terms);
        let again = terms().map(|it| it.look_again(now)).min().unwrap_or(Time(u64::MAX));
        (terms().map(|it| it.hold(now)).collect(), again)
    }

    /// In their order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// For what no line matches.
    pub fn default_action(&self) -> AccessAction {
        self.default
    }

    /// What `number` does, and whether it is logged.
    #[inline]
    pub fn action_of(&self, number: LineNumber) -> (AccessAction, bool) {
        match number.index().and_then(|index| self.lines.get(index)) {
            Some(line) => (line.action, line.log),
            None => (self.default, false),
        }
    }

    /// How much of it `number` lets pass.
    #[inline]
    pub(super) fn limits_of(&self, number: LineNumber) -> Option<&Limits> {
        self.lines.get(number.index()?)?.limits.as_ref()
    }

    /// Which lines decide about what `from` does to `to`, addresses in the form of `Parsed`.
    ///
    /// Connection management serves what is done with the connection: it passes where either of
    /// the two may do anything to the other, unless a line names it, or the service that is asked
    /// for.
    pub fn decide(&self, from: &[u8; 16], to: &[u8; 16], asked: &Asked) -> Decisions {
        let mut decisions = self.first_lines(from, to, asked);
        let connect = decisions.of(Operation::Connect);
        let named = connect.index().is_some_and(|it| self.lines[it].names_connections());
        if !named && !self.passes(connect) {
            let back = self.first_lines(to, from, &asked.turned());
            let served = Operation::SERVED.iter();
            let mut both = served.flat_map(|it| [decisions.of(*it), back.of(*it)]);
            if let Some(number) = both.find(|number| self.passes(*number)) {
                decisions.decide(Operation::Connect, number);
            }
        }
        decisions
    }

    /// The line that decides whether `from` may do `operation` to `to`.
    pub fn decide_one(
        &self,
        from: &[u8; 16],
        to: &[u8; 16],
        operation: Operation,
        asked: &Asked,
    ) -> LineNumber {
        self.decide(from, to, asked).of(operation)
    }

    /// Each line that has the name and action of one of `before`, with that one's number.
    pub(super) fn in_common<'p>(
        &'p self,
        before: &'p AccessPolicy,
    ) -> impl Iterator<Item = (usize, usize)> {
        let mut others = before.by_name.iter().map(|it| usize::from(*it)).peekable();
        self.by_name.iter().map(|it| usize::from(*it)).filter_map(move |number| {
            let line = &self.lines[number];
            while others.next_if(|it| before.lines[*it].name < line.name).is_some() {}
            let is_same = |it: &usize| {
                let other = &before.lines[*it];
                (&other.name, other.action) == (&line.name, line.action)
            };
            others.peek().copied().filter(is_same).map(|other| (number, other))
        })
    }

    /// Lines that may hold all that line `number` does, and others, in their order.
    pub(super) fn perhaps_covering(&self, number: usize) -> impl Iterator<Item = usize> {
        let line = &self.lines[number];
        let by_from = self.by_from.concerning_first(line.from.prefixes());
        let by_to = self.by_to.concerning_first(line.to.prefixes());
        let fewer = if by_from.len() <= by_to.len() { by_from } else { by_to };
        fewer.map(usize::from)
    }

    /// Lines that match when `from` does `operation` to `to`, in their order: the first decides.
    pub fn matching(
        &self,
        from: &[u8; 16],
        to: &[u8; 16],
        operation: Operation,
        asked: &Asked,
    ) -> impl Iterator<Item = usize> {
        let matches = move |(_, line): &(usize, &Line)| {
            line.operations.contains(operation)
                && line.from.holds_either(from, asked, 0)
                && line.to.holds_either(to, asked, 1)
                && line.terms.are_met(asked, line.action.passes())
        };
        self.lines.iter().enumerate().filter(matches).map(|(number, _)| number)
    }

    /// Lines before number `before` that would decide if one thing were otherwise, and what.
    pub fn near_misses(
        &self,
        from: &[u8; 16],
        to: &[u8; 16],
        operation: Operation,
        asked: &Asked,
        before: usize,
    ) -> impl Iterator<Item = (usize, Lacking)> {
        let lacking = move |(number, line): (usize, &Line)| {
            let ends = [
                (!line.from.holds_either(from, asked, 0), Lacking::From),
                (!line.to.holds_either(to, asked, 1), Lacking::To),
                (!line.operations.contains(operation), Lacking::Operation),
            ];
            let terms = line.terms.lacking(asked, line.action.passes());
            let mut all = ends.into_iter().chain(terms).filter(|it| it.0).map(|it| it.1);
            let first = all.next()?;
            all.next().is_none().then_some((number, first))
        };
        self.lines.iter().enumerate().take(before).filter_map(lacking)
    }

    fn passes(&self, number: LineNumber) -> bool {
        self.action_of(number).0.passes()
    }

    /// The first line for each operation that names these addresses and it.
    fn first_lines(&self, from: &[u8; 16], to: &[u8; 16], asked: &Asked) -> Decisions {
        let mut decisions = Decisions::default();
        let mut open = Operations::ALL;
        let by_from = self.by_from.concerning(from);
        let by_to = self.by_to.concerning(to);
        let are_by_from = by_from.len() <= by_to.len();
        for number in if are_by_from { by_from } else { by_to } {
            let line = &self.lines[usize::from(number)];
            let decided = line.operations.and(open);
            let is_from = || line.from.holds_either(from, asked, 0);
            let is_to = || line.to.holds_either(to, asked, 1);
            // The index vouches for one end, unless that is named by marks.
            let end = if are_by_from { &line.from } else { &line.to };
            let vouched = end.marks().is_empty();
            let matches =
                (vouched && are_by_from || is_from()) && (vouched && !are_by_from || is_to());
            if decided.is_empty() || !matches || !line.terms.are_met(asked, line.action.passes()) {
                continue;
            }
            decided.iter().for_each(|it| decisions.decide(it, LineNumber(number)));
            open = open.without(decided);
            if open.is_empty() {
                break;
            }
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;
    use weir_wire::parse::MacAddress;

    use super::super::lines::{Marks, Party};
    use super::super::terms::Terms;
    use super::*;
    use crate::policy::Prefix;

    const ASKED: Asked = Asked::NOTHING;
    const A: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    const B: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];

    fn host(text: &str) -> Party {
        Party::new(vec![Prefix::new(text.parse::<IpAddr>().unwrap(), 32)])
    }

    fn line(operations: Operations, action: AccessAction) -> Line {
        let (from, to) = (host("10.0.0.2"), host("10.0.0.1"));
        let terms = Terms::default();
        Line { name: "line".into(), from, to, operations, terms, limits: None, action, log: false }
    }

    #[test]
    fn the_first_line_that_matches_decides_and_else_the_default() {
        let read = line(Operations::of([Operation::Read]), AccessAction::Allow);
        let all = line(Operations::ALL, AccessAction::Deny);
        let policy = AccessPolicy::new(vec![read, all], AccessAction::Allow);
        assert_eq!(policy.decide_one(&B, &A, Operation::Read, &ASKED).index(), Some(0));
        assert_eq!(policy.decide_one(&B, &A, Operation::Write, &ASKED).index(), Some(1));
        assert_eq!(policy.decide_one(&A, &B, Operation::Write, &ASKED), LineNumber::DEFAULT);
    }

    #[test]
    fn connections_may_be_made_where_they_serve_something() {
        let read = line(Operations::of([Operation::Read]), AccessAction::Allow);
        let policy = AccessPolicy::new(vec![read.clone()], AccessAction::Deny);
        for (from, to) in [(&B, &A), (&A, &B)] {
            assert_eq!(policy.decide_one(from, to, Operation::Connect, &ASKED).index(), Some(0));
        }
        let nothing = AccessPolicy::new(vec![], AccessAction::Deny);
        assert_eq!(nothing.decide_one(&B, &A, Operation::Connect, &ASKED), LineNumber::DEFAULT);
        let connect = line(Operations::of([Operation::Connect]), AccessAction::Deny);
        let named = AccessPolicy::new(vec![connect, read], AccessAction::Deny);
        let decided = named.decide_one(&B, &A, Operation::Connect, &ASKED);
        assert_eq!(named.action_of(decided).0, AccessAction::Deny);
    }

    #[test]
    fn lines_are_found_again_by_name_and_action() {
        let named =
            |name: &str, action| Line { name: name.into(), ..line(Operations::ALL, action) };
        let (allow, deny) = (AccessAction::Allow, AccessAction::Deny);
        let old =
            AccessPolicy::new(vec![named("b", allow), named("a", allow), named("c", deny)], deny);
        let new = AccessPolicy::new(
            vec![named("c", deny), named("d", deny), named("b", deny), named("a", allow)],
            deny,
        );
        let mut common: Vec<_> = new.in_common(&old).collect();
        common.sort_unstable();
        assert_eq!(common, [(0, 2), (3, 1)]);
    }

    /// A prefix of few bits, so that many hold each other.
    fn prefix() -> impl Strategy<Value = Prefix> {
        let v4 = (any::<u8>(), 0u8..=8)
            .prop_map(|(low, len)| Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, low)), 24 + len));
        let v6 = (0u8..=1, prop_oneof![Just(0u8), Just(1), Just(128)])
            .prop_map(|(low, len)| Prefix::new(IpAddr::V6(u128::from(low).into()), len));
        prop_oneof![6 => v4, 1 => v6, 1 => Just(Prefix::ALL)]
    }

    fn mac() -> impl Strategy<Value = MacAddress> {
        (0u8..3).prop_map(|last| MacAddress([2, 0, 0, 0, 0, last]))
    }

    fn party() -> impl Strategy<Value = Party> {
        let macs = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(mac(), 1..3)];
        (prop::collection::vec(prefix(), 0..4), macs, few(), few()).prop_map(
            |(prefixes, macs, vlans, partitions)| {
                Party::with_marks(prefixes, Marks { macs, vlans, partitions })
            },
        )
    }

    fn few() -> impl Strategy<Value = Vec<u16>> {
        prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(0u16..3, 1..3)]
    }

    fn terms() -> impl Strategy<Value = Terms> {
        (few(), few()).prop_map(|(vlans, partitions)| Terms {
            vlans: vlans.into(),
            partitions: partitions.into(),
            ..Terms::default()
        })
    }

    fn asked() -> impl Strategy<Value = Asked> {
        (0u16..3, 0u16..3, mac(), mac()).prop_map(|(vlan, partition, from, to)| Asked {
            vlan,
            partition: Some(partition),
            macs: Some([from, to]),
            ..ASKED
        })
    }

    fn some_line() -> impl Strategy<Value = Line> {
        (party(), party(), any::<u8>(), any::<bool>(), terms()).prop_map(
            |(from, to, bits, allows, terms)| Line {
                name: "".into(),
                from,
                to,
                operations: Operations::of(
                    Operation::ALL.into_iter().filter(|it| bits >> *it as u8 & 1 == 1),
                ),
                action: if allows { AccessAction::Allow } else { AccessAction::Deny },
                terms,
                limits: None,
                log: false,
            },
        )
    }

    fn address() -> impl Strategy<Value = [u8; 16]> {
        let v4 = any::<u8>().prop_map(|low| Ipv4Addr::new(10, 0, 0, low).to_ipv6_mapped().octets());
        prop_oneof![4 => v4, 1 => (0u128..3).prop_map(u128::to_be_bytes)]
    }

    proptest! {
        #[test]
        fn the_index_finds_the_line_that_a_walk_over_all_finds(
            lines in prop::collection::vec(some_line(), 0..24), from in address(), to in address(),
            asked in asked(),
        ) {
            let policy = AccessPolicy::new(lines.clone(), AccessAction::Deny);
            let found = policy.first_lines(&from, &to, &asked);
            let macs = asked.macs.unwrap();
            let holds = |party: &Party, address: &[u8; 16], mac: MacAddress| {
                party.is_any()
                    || party.prefixes().iter().any(|it| it.contains(address))
                    || party.marks().macs.contains(&mac)
                    || party.marks().vlans.contains(&asked.vlan)
                    || party.marks().partitions.contains(&asked.partition.unwrap())
            };
            let is_in = |list: &[u16], it: u16| list.is_empty() || list.contains(&it);
            for operation in Operation::ALL {
                let first = lines.iter().position(|line| {
                    line.operations.contains(operation)
                        && holds(&line.from, &from, macs[0])
                        && holds(&line.to, &to, macs[1])
                        && is_in(&line.terms.vlans, asked.vlan)
                        && is_in(&line.terms.partitions, asked.partition.unwrap())
                });
                prop_assert_eq!(found.of(operation).index(), first);
            }
        }
    }
}
