//! Compiled rules: the order of evaluation, and the fast patterns of each buffer.

mod end;
mod facts;
mod flood;
mod successors;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::addresses::{AddressMap, AddressMapBuilder, is_selective};
use crate::behaviour::{FloodWatch, Watch};
use crate::buffers::event::AppEvent;
use crate::dataset::{Definitions, KeptSet};
use crate::digest::FileDigests;
use crate::frame::{AskedFrames, Frame, FrameKind};
use crate::hosts::Hosts;
use crate::matcher::{MatcherError, Pattern, Patterns, Scratch};
use crate::packet::{Gist, View};
use crate::payload::{Group, PayloadGroups};
use crate::rule::{Action, Buffer, BufferKey, HeaderTest, Hook, Protocol, Rule, RuleIndex};
pub(crate) use facts::Facts;
pub(crate) use successors::Successors;

/// Rules ready to run; shared by all workers.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    descriptions: BTreeMap<String, String>,
    /// The fast patterns of payloads as they are.
    payloads: PayloadGroups,
    /// Those of buffers of packets, and of payloads that are changed before.
    packet_groups: Vec<(BufferKey, Group)>,
    /// Those of buffers of applications: sent by clients, by servers.
    message_groups: [Vec<(BufferKey, Group)>; 2],
    /// Those of frames, likewise.
    frame_groups: [Vec<(BufferKey, Group)>; 2],
    /// Of each rule.
    prechecks: Vec<Precheck>,
    asked_frames: AskedFrames,
    bare: Bare,
    needs: Needs,
    /// By number.
    bit_names: Vec<String>,
    watches: Vec<Watch>,
    datasets: Definitions,
    hosts: Hosts,
    /// Some rule lets packets pass that others would drop.
    lets_pass: bool,
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
    /// Some rule looks into the payload of RDMA operations.
    pub(crate) operations: bool,
    /// Digests of files that some rule asks for.
    pub(crate) digests: FileDigests,
    /// Some rule looks at frames.
    pub(crate) frames: bool,
    /// Some rule asks how far a session has come.
    pub(crate) states: bool,
    /// Every rule asks for a sign of a flood, a scan or an attack, which most packets have not.
    pub(crate) signs_alone: bool,
}

impl Needs {
    fn add(&mut self, rule: &Rule) {
        self.streams |= rule.asks_for_stream();
        self.operations |= rule.is_of_operation();
        let asked = rule.units.iter().map(|it| it.digests());
        self.digests = asked.fold(self.digests, FileDigests::and);
        self.events |= rule.tests.iter().any(|it| matches!(it, HeaderTest::Event(_)));
        self.applications |= rule.is_of_application() || !rule.spoken.is_empty();
        let is_told =
            |it: &HeaderTest| matches!(it, HeaderTest::Event(it) if it.is_of_application());
        self.applications |= rule.tests.iter().any(is_told);
        self.frames |= rule.frame().is_some();
        self.states |= matches!(rule.hook, Some(Hook::State(_) | Hook::Compared { .. }));
    }
}

/// Rules without a fast pattern, by what they look at.
#[derive(Debug, Default)]
pub(crate) struct Bare {
    /// Rules for any packet, by protocol: those that some rule names.
    by_protocol: Vec<(Protocol, BareRules)>,
    /// Rules of addresses alone: looked at on a flow's first packet each way.
    pub(crate) addresses: Vec<RuleIndex>,
    /// Rules of either kind that name few addresses, by those.
    by_source: AddressMap,
    by_destination: AddressMap,
    /// Rules that look at the stream.
    streams: BareRules,
    /// Rules that ask something of an application's buffers, or of its presence.
    applications: BTreeMap<Protocol, BareRules>,
    /// Rules for any packet of a flow, by the application that is spoken in it.
    spoken: BTreeMap<Protocol, BareRules>,
    /// Rules that ask what is odd about a message, by the first that they name.
    app_events: BTreeMap<AppEvent, Vec<RuleIndex>>,
    /// Rules that look at frames.
    frames: BTreeMap<FrameKind, Vec<RuleIndex>>,
}

/// Rules, each with what is quickly seen of a packet that cannot match it; those that ask for the
/// same signs ([`Gist::signs`]) stand together.
#[derive(Debug, Default)]
struct BareRules(BTreeMap<u8, Vec<(RuleIndex, Precheck)>>);

/// Ports that a packet must have for a rule to be worth a look: from the first to the last.
#[derive(Clone, Copy, Debug)]
struct Precheck {
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
}

impl Precheck {
    /// With the signs that a packet must have, all of them.
    fn of(rule: &Rule) -> (u8, Self) {
        let mut signs = 0;
        if rule.has_payload() && !rule.needs_stream {
            signs |= Gist::PAYLOAD;
        }
        if rule.tests.iter().any(|it| matches!(it, HeaderTest::Event(_))) {
            signs |= Gist::EVENT;
        }
        if rule.asks_for_sign() {
            signs |= Gist::SIGN;
        }
        signs |= match rule.flow.to_server {
            Some(true) => Gist::TO_SERVER,
            Some(false) => Gist::TO_CLIENT,
            None => 0,
        };
        signs |= match rule.flow.established {
            Some(true) => Gist::ESTABLISHED,
            Some(false) => Gist::NOT_ESTABLISHED,
            None => 0,
        };
        let hull = |ports: &crate::rule::ranges::Ranges| {
            let first = ports.iter().next().map_or(1, |it| it.0);
            let last = ports.iter().last().map_or(0, |it| it.1);
            let bounded = |it: u128| u16::try_from(it).unwrap_or(u16::MAX);
            (bounded(first), bounded(last))
        };
        let any = (0, u16::MAX);
        let header = &rule.header;
        let (source_ports, destination_ports) = match header.is_both_ways || header.is_transactional
        {
            true => (any, any),
            false => (hull(&header.source_ports), hull(&header.destination_ports)),
        };
        (signs, Self { source_ports, destination_ports })
    }

    #[inline]
    fn holds(&self, gist: Gist) -> bool {
        let within = |(first, last): (u16, u16), port| first <= port && port <= last;
        within(self.destination_ports, gist.destination_port)
            && within(self.source_ports, gist.source_port)
    }
}

impl BareRules {
    fn push(&mut self, index: RuleIndex, rule: &Rule) {
        let (signs, precheck) = Precheck::of(rule);
        self.0.entry(signs).or_default().push((index, precheck));
    }

    fn add_to(&self, gist: Gist, found: &mut Vec<RuleIndex>) {
        let fitting = self.0.iter().filter(|(signs, _)| gist.signs & **signs == **signs);
        let rules = fitting.flat_map(|it| it.1);
        found.extend(rules.filter(|it| it.1.holds(gist)).map(|it| it.0));
    }
}

impl RuleSet {
    pub(crate) fn compile(
        rules: Vec<Rule>,
        descriptions: BTreeMap<String, String>,
    ) -> Result<Self, MatcherError> {
        crate::matcher::try_out()?;
        let mut wanted: [BTreeMap<BufferKey, BTreeMap<Pattern, Vec<RuleIndex>>>; OF_PACKETS + 1] =
            Default::default();
        let mut needs = Needs::default();
        let mut of_payloads = Vec::new();
        let bare = Bare::compile(&rules);
        for (index, rule) in rules.iter().enumerate() {
            let index = RuleIndex(index as u32);
            needs.add(rule);
            match &rule.fast {
                Some(fast) if rule.buffers[fast.test].key == payload_key() => {
                    of_payloads.push((index, rule));
                }
                Some(fast) => {
                    let pattern = Pattern::of(fast);
                    let key = &rule.buffers[fast.test].key;
                    for place in groups_of(rule, key.buffer) {
                        let group = wanted[place].entry(looked_for_in(key)).or_default();
                        group.entry(pattern.clone()).or_default().push(index);
                    }
                }
                None => {}
            }
        }
        let payloads = PayloadGroups::compile(&of_payloads)?;
        let mut compiled: [Vec<(BufferKey, Group)>; OF_PACKETS + 1] = Default::default();
        for (groups, compiled) in wanted.into_iter().zip(&mut compiled) {
            for (key, patterns) in groups {
                compiled.push((key, Group::compile(patterns)?));
            }
        }
        let [of_clients, of_servers, to_server, to_client, packet_groups] = compiled;
        let message_groups = [of_clients, of_servers];
        let frame_groups = [to_server, to_client];
        let prechecks = rules.iter().map(|it| Precheck::of(it).1).collect();
        let mut asked_frames = AskedFrames::default();
        rules.iter().for_each(|it| asked_frames.add(it));
        let lets_pass = rules.iter().any(|it| it.action == Action::Pass);
        needs.signs_alone = rules.iter().all(Rule::asks_for_sign);
        Ok(Self {
            lets_pass,
            rules,
            descriptions,
            payloads,
            packet_groups,
            message_groups,
            frame_groups,
            prechecks,
            asked_frames,
            bare,
            needs,
            bit_names: Vec::new(),
            watches: Vec::new(),
            datasets: Definitions::default(),
            hosts: Hosts::default(),
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

    /// The numbers of its rules, in their order.
    pub fn sids(&self) -> impl Iterator<Item = u32> + '_ {
        self.rules.iter().map(|it| it.sid)
    }

    /// The rule at `index`, which came from this set.
    #[inline]
    pub fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.0 as usize]
    }

    /// What the class of a rule means, in words: EVE's `category`.
    pub fn category(&self, rule: &Rule) -> &str {
        self.descriptions.get(&rule.class).map_or("", String::as_str)
    }

    /// Bytes that the fast patterns take.
    pub fn pattern_bytes(&self) -> usize {
        self.patterns().map(Patterns::size_bytes).sum()
    }

    pub(crate) fn name_bits(&mut self, names: Vec<String>) {
        self.bit_names = names;
    }

    pub(crate) fn set_watches(&mut self, watches: Vec<Watch>) {
        self.watches = watches;
    }

    pub(crate) fn set_datasets(&mut self, datasets: Definitions) {
        self.datasets = datasets;
    }

    pub(crate) fn set_hosts(&mut self, hosts: Hosts) {
        self.hosts = hosts;
    }

    /// What the hosts are that connections are between.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The sets that its rules name.
    pub(crate) fn datasets(&self) -> &Definitions {
        &self.datasets
    }

    /// Those of them that are to be kept in files, as they begin.
    pub fn kept_sets(&self) -> impl Iterator<Item = KeptSet> + '_ {
        self.datasets.kept()
    }

    /// What its rules have watched, by the bit that says so.
    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// The flood of which a rule drops every packet, where no rule lets packets pass.
    pub(crate) fn flood_of(&self, rule: RuleIndex) -> Option<FloodWatch> {
        self.rule(rule).flood().filter(|_| !self.lets_pass)
    }

    /// Whether a rule drops floods that tell themselves by going unanswered.
    pub fn asks_for_answers(&self) -> bool {
        self.rules.iter().filter_map(Rule::flood).any(|it| it.asks_for_answers())
    }

    /// The name of a flow's bit.
    pub(crate) fn bit_name(&self, bit: u32) -> Option<&str> {
        self.bit_names.get(bit as usize).map(String::as_str)
    }

    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    pub(crate) fn payloads(&self) -> &PayloadGroups {
        &self.payloads
    }

    pub(crate) fn packet_groups(&self) -> &[(BufferKey, Group)] {
        &self.packet_groups
    }

    /// Those that may be in what a side sends.
    pub(crate) fn message_groups(&self, side: usize) -> &[(BufferKey, Group)] {
        &self.message_groups[side]
    }

    /// Leaves those of `rules` that a packet of such ports may match.
    pub(crate) fn keep_fitting(&self, gist: Gist, rules: &mut Vec<RuleIndex>) {
        rules.retain(|it| self.prechecks[it.0 as usize].holds(gist));
    }

    /// Adds the rules that may match a frame that a side has sent.
    pub(crate) fn of_frame(
        &self,
        frame: &Frame,
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        let groups = self.frame_groups[frame.side].iter();
        for (key, group) in groups.filter(|it| it.0.buffer == Buffer::Frame(frame.kind)) {
            group.scan(&crate::buffers::apply(&frame.bytes, &key.transforms), scratch, found);
        }
        found.extend(self.bare.frames.get(&frame.kind).into_iter().flatten());
    }

    pub(crate) fn asked_frames(&self) -> &AskedFrames {
        &self.asked_frames
    }

    fn patterns(&self) -> impl Iterator<Item = &Patterns> {
        let others = self.packet_groups.iter();
        let others = others.chain(self.message_groups.iter().flatten());
        let others = others.chain(self.frame_groups.iter().flatten());
        self.payloads.patterns().chain(others.map(|it| &it.1.patterns))
    }

    pub(crate) fn bare(&self) -> &Bare {
        &self.bare
    }

    pub(crate) fn scratch(&self) -> Result<Scratch, MatcherError> {
        let databases: Vec<&Patterns> = self.patterns().collect();
        Scratch::new(&databases)
    }
}

impl Bare {
    fn compile(rules: &[Rule]) -> Self {
        let mut bare = Self::default();
        let mut by_protocol = BTreeMap::<Protocol, BareRules>::new();
        let mut sources = AddressMapBuilder::default();
        let mut destinations = AddressMapBuilder::default();
        let numbered = (0..).map(RuleIndex).zip(rules);
        for (index, rule) in numbered.filter(|it| it.1.fast.is_none()) {
            if rule.needs_stream && rule.has_payload() {
                bare.streams.push(index, rule);
            }
            let header = &rule.header;
            if let Some(kind) = rule.frame() {
                bare.frames.entry(kind).or_default().push(index);
            } else if let Some(event) = rule.app_events.first() {
                bare.app_events.entry(*event).or_default().push(index);
            } else if rule.is_of_application() {
                if !rule.is_of_messages(false) {
                    for spoken in Protocol::spoken().filter(|it| rule.protocol().means(*it)) {
                        bare.spoken.entry(spoken).or_default().push(index, rule);
                    }
                }
                let of_messages = rule.is_of_messages(true);
                for application in rule.applications().into_iter().filter(|_| of_messages) {
                    bare.applications.entry(application).or_default().push(index, rule);
                }
            } else if is_selective(&header.source) {
                sources.add(&header.source, index);
                if header.is_both_ways {
                    destinations.add(&header.source, index);
                }
            } else if is_selective(&header.destination) {
                destinations.add(&header.destination, index);
                if header.is_both_ways {
                    sources.add(&header.destination, index);
                }
            } else if rule.is_of_addresses() {
                bare.addresses.push(index);
            } else if rule.protocol() != Protocol::TcpStream {
                by_protocol.entry(rule.protocol()).or_default().push(index, rule);
            }
        }
        bare.by_protocol = by_protocol.into_iter().collect();
        (bare.by_source, bare.by_destination) = (sources.build(), destinations.build());
        bare
    }

    /// Adds the rules of the packet's protocols that may match it.
    pub(crate) fn of_packets(&self, view: &View<'_>, gist: Gist, found: &mut Vec<RuleIndex>) {
        for (_, rules) in self.by_protocol.iter().filter(|it| view.is_of(it.0)) {
            rules.add_to(gist, found);
        }
    }

    /// Adds the rules for packets of flows in which that is spoken.
    pub(crate) fn of_spoken(&self, of: Protocol, gist: Gist, found: &mut Vec<RuleIndex>) {
        if let Some(rules) = self.spoken.get(&of) {
            rules.add_to(gist, found);
        }
    }

    pub(crate) fn of_streams(&self, gist: Gist, found: &mut Vec<RuleIndex>) {
        self.streams.add_to(gist, found);
    }

    pub(crate) fn of_messages(&self, of: Protocol, gist: Gist, found: &mut Vec<RuleIndex>) {
        for (_, rules) in self.applications.iter().filter(|it| it.0.means(of)) {
            rules.add_to(gist, found);
        }
    }

    /// Adds the rules that ask for something odd.
    pub(crate) fn of_app_event(&self, event: AppEvent, found: &mut Vec<RuleIndex>) {
        found.extend(self.app_events.get(&event).into_iter().flatten());
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

/// Groups of fast patterns: of messages, of frames - each of clients, of servers - and of packets.
const OF_FRAMES: usize = 2;
const OF_PACKETS: usize = 4;

/// Those that have the fast pattern of such a rule. What either side may send is few, so that both
/// have it: a group of its own would be one look more.
fn groups_of(rule: &Rule, buffer: Buffer) -> Range<usize> {
    if crate::buffers::protocol(buffer).is_none() {
        return OF_PACKETS..OF_PACKETS + 1;
    }
    let first = if rule.frame().is_some() { OF_FRAMES } else { 0 };
    match rule.flow.to_server {
        Some(true) => first..first + 1,
        Some(false) => first + 1..first + 2,
        None => first..first + 2,
    }
}

/// The buffer that a fast pattern is looked for in: the bodies of HTTP's messages are files too,
/// and looked through once.
fn looked_for_in(key: &BufferKey) -> BufferKey {
    let buffer = match key.buffer {
        Buffer::HttpRequestBody | Buffer::HttpResponseBody => Buffer::FileData,
        other => other,
    };
    BufferKey { buffer, transforms: key.transforms.clone() }
}

/// The payload as it is.
fn payload_key() -> BufferKey {
    BufferKey { buffer: Buffer::Payload, transforms: Vec::new() }
}
