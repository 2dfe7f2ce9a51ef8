//! The fast patterns of payloads, in sets of those that may matter to the packet at hand.
//!
//! A set for each direction, transport and kind of flow; of each set, patterns that may stand near
//! the beginning alone are apart, so that the bytes behind are looked at for the others only:
//!
//! ```text
//!  to the server -+- HTTP, port 80 -+- heads: within the first 16 bytes of a packet, of a stream
//!  to the client  |- DNS, port 53   `- free: anywhere in either
//!                 `- any other flow of TCP, of UDP, of others
//! ```
//!
//! A segment that its stream continues with is in both, and is looked through once
//! ([`PayloadGroups::scan_segment`]).

use std::collections::BTreeMap;

use crate::detector::Direction;
use crate::matcher::{MatcherError, Pattern, Patterns, Scratch};
use crate::rule::step::{Content, Fast, Step, Value};
use crate::rule::{Buffer, FastPattern, Protocol, Rule, RuleIndex};

/// Bytes from the beginning within which patterns with a place are looked for apart.
const HEAD_LEN: u64 = 16;

/// What most flows are, each with sets of its own: what is spoken, and at which port of the server.
/// More kinds make scans little faster and loading slower: a set takes 20 to 100 ms.
const KINDS: [(Transport, Option<Protocol>, u16); 2] =
    [(Transport::Tcp, Some(Protocol::Http), 80), (Transport::Udp, Some(Protocol::Dns), 53)];

/// What carries a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Other,
}

/// Patterns, and the rules that have each as their fast pattern.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) patterns: Patterns,
    /// By pattern.
    rules: Vec<Vec<RuleIndex>>,
    /// Length of the longest pattern.
    pub(crate) longest: usize,
}

impl Group {
    pub(crate) fn compile(wanted: BTreeMap<Pattern, Vec<RuleIndex>>) -> Result<Self, MatcherError> {
        let (patterns, rules): (Vec<Pattern>, Vec<_>) = wanted.into_iter().unzip();
        let longest = patterns.iter().map(|it| it.bytes.len()).max().unwrap_or_default();
        Ok(Self { patterns: Patterns::compile(&patterns)?, rules, longest })
    }

    /// Adds the rules whose pattern is in `bytes`.
    pub(crate) fn scan(&self, bytes: &[u8], scratch: &mut Scratch, found: &mut Vec<RuleIndex>) {
        let rules = &self.rules;
        self.patterns.scan(bytes, scratch, &mut |pattern| {
            found.extend_from_slice(&rules[pattern as usize]);
        });
    }

    /// Of what begins within the first bytes: what ends in the last `new` bytes of `window`, which
    /// stands behind `before` others.
    fn scan_head(
        &self,
        window: &[u8],
        (before, new): (u64, usize),
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        let start = window.len() - newest(window, new, self.longest).len();
        let end = usize::try_from(HEAD_LEN.saturating_sub(before)).unwrap_or_default();
        if let Some(head) = window.get(start..end.min(window.len())) {
            self.scan(head, scratch, found);
        }
    }
}

/// One set.
#[derive(Debug)]
struct Set {
    /// Of packets, of streams.
    heads: [Group; 2],
    free: Shared,
}

/// Patterns, and the rules about packets and about streams that have each as their fast pattern.
#[derive(Debug)]
struct Shared {
    patterns: Patterns,
    /// By pattern, of packets and of streams, each with where it ends at the latest.
    rules: Vec<[Vec<Placed>; 2]>,
    longest: usize,
}

/// A rule, and where its fast pattern ends at the latest.
type Placed = (RuleIndex, u64);

/// Candidates: rules about packets, rules about streams.
type Both<'a> = [&'a mut Vec<RuleIndex>; 2];

const PACKETS: usize = 0;
const STREAMS: usize = 1;

/// The flow that a payload belongs to, as far as it decides which rules may match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) transport: Transport,
    pub(crate) application: Option<Protocol>,
    /// The responder's.
    pub(crate) port: u16,
}

/// All sets: by direction, then [`KINDS`] and behind them one for any other flow of each transport.
#[derive(Debug, Default)]
pub(crate) struct PayloadGroups {
    sets: [Vec<Set>; 2],
}

impl PayloadGroups {
    /// Makes the sets for `rules`, each with its place in the order of evaluation.
    pub(crate) fn compile(rules: &[(RuleIndex, &Rule)]) -> Result<Self, MatcherError> {
        let mut groups = Self::default();
        for side in [Direction::Initiator, Direction::Responder] {
            for place in 0..KINDS.len() + 3 {
                let transport = transport(place);
                let fitting = || rules.iter().filter(|it| fits(it.1, side, place));
                let of_packets = fitting().filter(|it| is_of_packets(it.1, transport));
                let of_streams =
                    fitting().filter(|it| transport == Transport::Tcp && is_of_streams(it.1));
                groups.sets[side.index()].push(Set::compile(of_packets, of_streams)?);
            }
        }
        Ok(groups)
    }

    /// Adds the rules about packets whose pattern is in a packet's payload.
    pub(crate) fn scan_packet(
        &self,
        of_what: (Direction, Kind),
        payload: &[u8],
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        let Some(set) = self.set(of_what) else { return };
        set.free.scan_one(PACKETS, (payload, 0), scratch, found);
        set.heads[PACKETS].scan_head(payload, (0, payload.len()), scratch, found);
    }

    /// Adds the rules about streams whose pattern ends in the last `new` bytes of `window`, which
    /// stands behind `before` bytes of its stream.
    pub(crate) fn scan_stream(
        &self,
        of_what: (Direction, Kind),
        (window, before): (&[u8], u64),
        new: usize,
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        let Some(set) = self.set(of_what) else { return };
        let newest = newest(window, new, set.free.longest);
        let before_newest = before + (window.len() - newest.len()) as u64;
        set.free.scan_one(STREAMS, (newest, before_newest), scratch, found);
        set.heads[STREAMS].scan_head(window, (before, new), scratch, found);
    }

    /// Both for a packet whose payload is the end of `window`, and all that is new there. A pattern
    /// that lies over the payload's beginning counts for packets too, whose rules do not match it.
    pub(crate) fn scan_segment(
        &self,
        of_what: (Direction, Kind),
        (window, before): (&[u8], u64),
        new: usize,
        scratch: &mut Scratch,
        found: Both<'_>,
    ) {
        let Some(set) = self.set(of_what) else { return };
        let [packets, streams] = found;
        let both = [&mut *packets, &mut *streams];
        let newest = newest(window, new, set.free.longest);
        let before_newest = before + (window.len() - newest.len()) as u64;
        set.free.scan((newest, before_newest), scratch, both);
        let payload = &window[window.len() - new..];
        set.heads[PACKETS].scan_head(payload, (0, new), scratch, packets);
        set.heads[STREAMS].scan_head(window, (before, new), scratch, streams);
    }

    fn set(&self, (side, kind): (Direction, Kind)) -> Option<&Set> {
        self.sets[side.index()].get(kind.place())
    }

    /// Adds the rules about packets whose pattern lies over the border between the last `new` bytes
    /// of `window` and those of the packets before.
    pub(crate) fn scan_border(
        &self,
        of_what: (Direction, Kind),
        (window, new): (&[u8], usize),
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        let border = window.len().saturating_sub(new);
        let Some(set) = self.set(of_what).filter(|_| border > 0) else { return };
        let around = |longest: usize| {
            let over = longest.saturating_sub(1);
            &window[border.saturating_sub(over)..(border + over).min(window.len())]
        };
        set.free.scan_one(PACKETS, (around(set.free.longest), 0), scratch, found);
        let head = &set.heads[PACKETS];
        head.scan(around(head.longest), scratch, found);
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &Patterns> {
        let heads = self.sets.iter().flatten().flat_map(|it| &it.heads);
        let free = self.sets.iter().flatten().map(|it| &it.free.patterns);
        heads.map(|it| &it.patterns).chain(free)
    }
}

impl Set {
    fn compile<'r>(
        of_packets: impl Iterator<Item = &'r (RuleIndex, &'r Rule)>,
        of_streams: impl Iterator<Item = &'r (RuleIndex, &'r Rule)>,
    ) -> Result<Self, MatcherError> {
        let mut heads: [BTreeMap<_, Vec<_>>; 2] = Default::default();
        let mut free: BTreeMap<_, [Vec<Placed>; 2]> = BTreeMap::new();
        let all = of_packets.map(|it| (PACKETS, it)).chain(of_streams.map(|it| (STREAMS, it)));
        for (what, (index, rule)) in all {
            let Some(fast) = &rule.fast else { continue };
            let pattern = Pattern::of(fast);
            let end = end_of(rule, fast).unwrap_or(u64::MAX);
            match end <= HEAD_LEN {
                true => heads[what].entry(pattern).or_default().push(*index),
                false => free.entry(pattern).or_default()[what].push((*index, end)),
            }
        }
        let [packets, streams] = heads;
        let heads = [Group::compile(packets)?, Group::compile(streams)?];
        Ok(Self { heads, free: Shared::compile(free)? })
    }
}

impl Shared {
    fn compile(wanted: BTreeMap<Pattern, [Vec<Placed>; 2]>) -> Result<Self, MatcherError> {
        let (patterns, rules): (Vec<Pattern>, Vec<_>) = wanted.into_iter().unzip();
        let longest = patterns.iter().map(|it| it.bytes.len()).max().unwrap_or_default();
        Ok(Self { patterns: Patterns::compile(&patterns)?, rules, longest })
    }

    /// `bytes` stand behind `before` others of their stream. A rule about streams is none whose
    /// pattern stands where it cannot count: it would wait for more.
    fn scan(
        &self,
        (bytes, before): (&[u8], u64),
        scratch: &mut Scratch,
        [packets, streams]: Both<'_>,
    ) {
        self.patterns.scan_ends(bytes, scratch, &mut |pattern, end| {
            let [of_packets, of_streams] = &self.rules[pattern as usize];
            packets.extend(of_packets.iter().map(|it| it.0));
            streams.extend(placed(of_streams, before + end));
        });
    }

    fn scan_one(
        &self,
        what: usize,
        (bytes, before): (&[u8], u64),
        scratch: &mut Scratch,
        found: &mut Vec<RuleIndex>,
    ) {
        self.patterns.scan_ends(bytes, scratch, &mut |pattern, end| {
            let end = if what == STREAMS { before + end } else { 0 };
            found.extend(placed(&self.rules[pattern as usize][what], end));
        });
    }
}

/// The rules whose pattern may end there.
fn placed(rules: &[Placed], end: u64) -> impl Iterator<Item = RuleIndex> {
    rules.iter().filter(move |it| end <= it.1).map(|it| it.0)
}

/// The last `new` bytes of `window`, and those before that a pattern which ends there may begin in.
fn newest(window: &[u8], new: usize, longest: usize) -> &[u8] {
    &window[window.len() - (new + longest.saturating_sub(1)).min(window.len())..]
}

impl Kind {
    fn place(self) -> usize {
        let is_same = |it: &(Transport, Option<Protocol>, u16)| {
            *it == (self.transport, self.application, self.port)
        };
        let own = KINDS.iter().position(is_same);
        own.unwrap_or(KINDS.len() + self.transport as usize)
    }
}

/// What carries the payloads of the set at `place`.
fn transport(place: usize) -> Transport {
    match (KINDS.get(place), place.wrapping_sub(KINDS.len())) {
        (Some(kind), _) => kind.0,
        (None, 0) => Transport::Tcp,
        (None, 1) => Transport::Udp,
        _ => Transport::Other,
    }
}

fn is_of_packets(rule: &Rule, transport: Transport) -> bool {
    rule.needs_packet
        || rule.replaces
        || rule.is_of_operation()
        // Over anything but TCP there is no stream.
        || (rule.needs_stream
            && rule.flow.only_stream != Some(true)
            && transport != Transport::Tcp
            && !rule.is_of_application())
        || (rule.is_of_application() && transport == Transport::Udp)
}

fn is_of_streams(rule: &Rule) -> bool {
    rule.needs_stream || !rule.has_only_payload()
}

/// Whether the rule may match payloads of the set at `place`, sent by `side`.
fn fits(rule: &Rule, side: Direction, place: usize) -> bool {
    let header = &rule.header;
    let is_to_server = side == Direction::Initiator;
    let has_transport = match transport(place) {
        Transport::Tcp => !matches!(
            header.protocol,
            Protocol::Udp | Protocol::Icmp | Protocol::Icmpv6 | Protocol::Sctp
        ),
        Transport::Udp => !matches!(
            header.protocol,
            Protocol::Tcp
                | Protocol::TcpPacket
                | Protocol::TcpStream
                | Protocol::Icmp
                | Protocol::Icmpv6
                | Protocol::Sctp
        ),
        Transport::Other => true,
    };
    if !has_transport || rule.flow.to_server.is_some_and(|it| it != is_to_server) {
        return false;
    }
    let Some((_, application, port)) = KINDS.get(place) else { return true };
    let is_spoken = !header.protocol.is_application()
        || application.is_some_and(|it| header.protocol.means(it));
    let port = u128::from(*port);
    let (ports, others) = match is_to_server {
        true => (&header.destination_ports, &header.source_ports),
        false => (&header.source_ports, &header.destination_ports),
    };
    is_spoken && (ports.contains(port) || (header.is_both_ways && others.contains(port)))
}

/// Where a rule's fast pattern ends at the latest, of those that are looked for in payloads.
pub(crate) fn fast_end(rule: &Rule) -> u64 {
    let is_of_payload = |it: &&FastPattern| {
        let key = &rule.buffers[it.test].key;
        key.buffer == Buffer::Payload && key.transforms.is_empty()
    };
    let fast = rule.fast.as_ref().filter(is_of_payload);
    fast.and_then(|it| end_of(rule, it)).unwrap_or(u64::MAX)
}

/// Where the fast pattern ends at the latest, from the beginning of what is looked at.
fn end_of(rule: &Rule, fast: &FastPattern) -> Option<u64> {
    let ends = |content: &Content| {
        let offset = match content.offset {
            Some(Value::Fixed(offset)) => offset,
            Some(Value::Variable(_)) => return None,
            None => 0,
        };
        let depth = match content.depth {
            _ if content.starts => content.bytes.len() as i64,
            Some(Value::Fixed(depth)) => depth,
            _ => return None,
        };
        u64::try_from(offset.checked_add(depth)?).ok()
    };
    // The same bytes may stand in several contents: the last that may be meant decides.
    let mut end = Some(0);
    for step in &rule.buffers[fast.test].steps {
        let Step::Content(content) = step else { continue };
        let is_meant = match content.fast {
            Fast::Part(..) => true,
            _ => content.bytes == fast.bytes && content.is_nocase == fast.is_nocase,
        };
        if is_meant && !content.is_negated {
            let own = if content.is_relative() { None } else { ends(content) };
            end = end.zip(own).map(|(end, own)| end.max(own));
        }
    }
    end.filter(|it| *it > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::RuleSet;
    use crate::{LoadOptions, RuleSource, Variables};

    const HTTP: Kind =
        Kind { transport: Transport::Tcp, application: Some(Protocol::Http), port: 80 };
    const OTHER: Kind = Kind { transport: Transport::Tcp, application: None, port: 9 };

    fn sids(
        rules: &RuleSet,
        look: impl FnOnce(&PayloadGroups, &mut Scratch, &mut Vec<RuleIndex>),
    ) -> Vec<u32> {
        let mut found = Vec::new();
        look(rules.payloads(), &mut rules.scratch().unwrap(), &mut found);
        let mut sids: Vec<u32> = found.into_iter().map(|it| rules.rule(it).sid).collect();
        sids.sort_unstable();
        sids
    }

    fn rules() -> RuleSet {
        let text = "\
            alert tcp any any -> any any (flow:to_server; content:\"evil\"; sid:1;)\n\
            alert tcp any any -> any 21 (flow:to_server; content:\"evil\"; sid:2;)\n\
            alert tcp any 80 -> any any (flow:to_client; content:\"evil\"; sid:3;)\n\
            alert http any any -> any any (content:\"evil\"; sid:4;)\n\
            alert tls any any -> any any (content:\"evil\"; sid:5;)\n\
            alert tcp any any -> any any (content:\"evil\"; depth:9; sid:6;)\n";
        let source = RuleSource { name: "test".into(), text: text.into() };
        RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap().rules
    }

    #[test]
    fn sets_hold_what_may_match() {
        let rules = rules();
        let stream = |side, kind, before| {
            sids(&rules, |groups, scratch, found| {
                groups.scan_stream((side, kind), (b"..evil..", before), 8, scratch, found);
            })
        };
        assert_eq!(stream(Direction::Initiator, HTTP, 0), [1, 4, 6]);
        assert_eq!(stream(Direction::Responder, HTTP, 0), [3, 4, 6]);
        assert_eq!(stream(Direction::Initiator, OTHER, 0), [1, 2, 4, 5, 6]);
        assert_eq!(stream(Direction::Initiator, HTTP, 1000), [1, 4], "far from the beginning");
        let packet = sids(&rules, |groups, scratch, found| {
            groups.scan_packet((Direction::Initiator, OTHER), b"..evil..", scratch, found);
        });
        assert_eq!(packet, [6], "the others look at the stream");
    }

    #[test]
    fn a_segment_is_looked_through_once_for_both() {
        let rules = rules();
        let (mut packets, mut streams) = (Vec::new(), Vec::new());
        let (window, new) = (b"first evil..evil..", 8);
        rules.payloads().scan_segment(
            (Direction::Initiator, OTHER),
            (window, 0),
            new,
            &mut rules.scratch().unwrap(),
            [&mut packets, &mut streams],
        );
        let sids = |list: Vec<RuleIndex>| {
            let sids: std::collections::BTreeSet<u32> =
                list.into_iter().map(|it| rules.rule(it).sid).collect();
            sids.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(sids(packets), [6]);
        assert_eq!(sids(streams), [1, 2, 4, 5, 6]);
    }

    #[test]
    fn a_pattern_that_lies_over_a_border_is_found_with_its_last_byte() {
        let rules = rules();
        for new in 1..5 {
            let found = sids(&rules, |groups, scratch, found| {
                let side = (Direction::Initiator, HTTP);
                groups.scan_stream(side, (b"....evil", 300), new, scratch, found);
            });
            assert_eq!(found, [1, 4]);
        }
    }
}
