//! Compiled rules: the order of evaluation, and the fast patterns of each buffer.

use std::collections::BTreeMap;

use crate::addresses::{AddressMap, AddressMapBuilder, is_selective};
use crate::behaviour::Watch;
use crate::matcher::{MatcherError, Pattern, Patterns, Scratch};
use crate::rule::{Buffer, BufferKey, FlowTest, HeaderTest, Protocol, Rule, RuleIndex};

/// Rules ready to run; shared by all workers.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    descriptions: BTreeMap<String, String>,
    groups: BTreeMap<BufferKey, Group>,
    bare: Bare,
    needs: Needs,
    /// By number.
    bit_names: Vec<String>,
    watches: Vec<Watch>,
}

/// What the rules of a set need of the detector, so that no more is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Some rule looks at the stream, or at what is spoken over it.
    pub(crate) streams: bool,
    /// Some rule looks at an application's buffers.
    pub(crate) applications: bool,
    /// Some rule asks what is odd about a packet.
    pub(crate) events: bool,
}

/// The fast patterns of one buffer.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) patterns: Patterns,
    /// By pattern, the rules that have it as their fast pattern.
    rules_of_pattern: Vec<Vec<RuleIndex>>,
    /// Length of the longest pattern.
    pub(crate) longest: usize,
}

/// Rules without a fast pattern, by what they look at.
#[derive(Debug, Default)]
pub(crate) struct Bare {
    /// Rules for any packet, by protocol.
    by_protocol: BTreeMap<Protocol, Vec<RuleIndex>>,
    /// Rules of addresses alone: looked at on a flow's first packet each way.
    pub(crate) addresses: Vec<RuleIndex>,
    /// Rules of either kind that name few addresses, by those.
    by_source: AddressMap,
    by_destination: AddressMap,
    /// Rules that look at the stream.
    pub(crate) streams: Vec<RuleIndex>,
    /// Rules that ask something of an application's buffers, or of its presence.
    pub(crate) applications: Vec<RuleIndex>,
}

impl RuleSet {
    pub(crate) fn compile(
        rules: Vec<Rule>,
        descriptions: BTreeMap<String, String>,
    ) -> Result<Self, MatcherError> {
        let mut wanted: BTreeMap<BufferKey, BTreeMap<Pattern, Vec<RuleIndex>>> = BTreeMap::new();
        let mut bare = Bare::default();
        let mut needs = Needs::default();
        let mut sources = AddressMapBuilder::default();
        let mut destinations = AddressMapBuilder::default();
        for (index, rule) in rules.iter().enumerate() {
            let index = RuleIndex(index as u32);
            needs.streams |= rule.needs_stream;
            needs.events |= rule.tests.iter().any(|it| matches!(it, HeaderTest::Event(_)));
            let is_application = rule.is_of_application();
            needs.applications |= is_application;
            if rule.fast.is_none() && rule.needs_stream && rule.has_payload() {
                bare.streams.push(index);
            }
            match &rule.fast {
                Some(fast) => {
                    let pattern = Pattern { bytes: fast.bytes.to_vec(), is_nocase: fast.is_nocase };
                    let key = rule.buffers[fast.test].key.clone();
                    wanted.entry(key).or_default().entry(pattern).or_default().push(index);
                }
                None if is_application => bare.applications.push(index),
                None if is_selective(&rule.header.source) => {
                    sources.add(&rule.header.source, index);
                    if rule.header.is_both_ways {
                        destinations.add(&rule.header.source, index);
                    }
                }
                None if is_selective(&rule.header.destination) => {
                    destinations.add(&rule.header.destination, index);
                    if rule.header.is_both_ways {
                        sources.add(&rule.header.destination, index);
                    }
                }
                None if rule.is_of_addresses() => bare.addresses.push(index),
                None => bare.by_protocol.entry(rule.protocol()).or_default().push(index),
            }
        }
        (bare.by_source, bare.by_destination) = (sources.build(), destinations.build());
        let mut groups = BTreeMap::new();
        for (key, patterns) in wanted {
            let (patterns, rules_of_pattern): (Vec<Pattern>, Vec<_>) = patterns.into_iter().unzip();
            let longest = patterns.iter().map(|it| it.bytes.len()).max().unwrap_or_default();
            let patterns = Patterns::compile(&patterns)?;
            groups.insert(key, Group { patterns, rules_of_pattern, longest });
        }
        Ok(Self {
            rules,
            descriptions,
            groups,
            bare,
            needs,
            bit_names: Vec::new(),
            watches: Vec::new(),
        })
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules in the order of evaluation.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The rule at `index`, which came from this set.
    #[inline]
    pub fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.0 as usize]
    }

    /// The rule of this set that has the same number as `other`, of another set, and blocks too.
    pub(crate) fn same_blocking_rule(&self, other: &Rule) -> Option<RuleIndex> {
        let name = (other.generator, other.sid);
        let same = self.rules.iter().position(|it| (it.generator, it.sid) == name)?;
        self.rules[same].action.is_blocking().then_some(RuleIndex(same as u32))
    }

    /// What the class of a rule means, in words: EVE's `category`.
    pub fn category(&self, rule: &Rule) -> &str {
        self.descriptions.get(&rule.class).map_or("", String::as_str)
    }

    /// Bytes that the fast patterns take.
    pub fn pattern_bytes(&self) -> usize {
        self.groups.values().map(|it| it.patterns.size_bytes()).sum()
    }

    pub(crate) fn name_bits(&mut self, names: Vec<String>) {
        self.bit_names = names;
    }

    pub(crate) fn set_watches(&mut self, watches: Vec<Watch>) {
        self.watches = watches;
    }

    /// What its rules have watched, by the bit that says so.
    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// The name of a flow's bit.
    pub(crate) fn bit_name(&self, bit: u32) -> Option<&str> {
        self.bit_names.get(bit as usize).map(String::as_str)
    }

    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    pub(crate) fn group(&self, key: &BufferKey) -> Option<&Group> {
        self.groups.get(key)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&BufferKey, &Group)> {
        self.groups.iter()
    }

    pub(crate) fn bare(&self) -> &Bare {
        &self.bare
    }

    pub(crate) fn scratch(&self) -> Result<Scratch, MatcherError> {
        let databases: Vec<&Patterns> = self.groups.values().map(|it| &it.patterns).collect();
        Scratch::new(&databases)
    }
}

impl Group {
    pub(crate) fn rules_of(&self, pattern: u32) -> &[RuleIndex] {
        self.rules_of_pattern.get(pattern as usize).map_or(&[], Vec::as_slice)
    }
}

impl Bare {
    pub(crate) fn of(&self, protocol: Protocol) -> &[RuleIndex] {
        self.by_protocol.get(&protocol).map_or(&[], Vec::as_slice)
    }

    /// Rules that name one of the addresses, among few.
    pub(crate) fn of_ends(
        &self,
        source: u128,
        destination: u128,
    ) -> impl Iterator<Item = RuleIndex> + '_ {
        let (by_source, by_destination) =
            (self.by_source.of(source), self.by_destination.of(destination));
        by_source.iter().chain(by_destination).copied()
    }
}

impl Rule {
    /// Whether it asks something of an application, or of its buffers.
    pub(crate) fn is_of_application(&self) -> bool {
        self.header.protocol.is_application()
            || self.buffers.iter().any(|it| crate::buffers::protocol(it.key.buffer).is_some())
    }

    /// Whether it asks something of the payload.
    pub(crate) fn has_payload(&self) -> bool {
        self.buffers.iter().any(|it| it.key.buffer == Buffer::Payload)
    }

    /// Whether it asks nothing of an application's buffers.
    pub(crate) fn has_only_payload(&self) -> bool {
        self.buffers.iter().all(|it| crate::buffers::protocol(it.key.buffer).is_none())
    }

    /// Whether nothing but addresses and protocol decides.
    pub(crate) fn is_of_addresses(&self) -> bool {
        let header = &self.header;
        self.tests.iter().all(|it| matches!(it, HeaderTest::Reputation(_)))
            && self.flow_counts.is_empty()
            && self.flow == FlowTest::default()
            && self.stream_sizes.is_empty()
            && self.buffers.is_empty()
            && self.bits.iter().all(|it| !it.verb.is_condition())
            && header.source_ports.is_all()
            && header.destination_ports.is_all()
            && !matches!(header.protocol, Protocol::TcpPacket | Protocol::TcpStream)
            && !matches!(header.protocol, Protocol::Rdma | Protocol::PacketHeader)
    }
}

/// The payload as it is.
pub(crate) fn payload_key() -> BufferKey {
    BufferKey { buffer: Buffer::Payload, transforms: Vec::new() }
}
