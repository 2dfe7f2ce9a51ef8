//! What rules ask of the flow, of bits that rules before have set, and of how often they matched.

use super::header::bounded;
use super::number::{Numbers, digits};

/// `flow`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTest {
    /// Some: must be established, or must not.
    pub(crate) established: Option<bool>,
    /// Some: from the initiator to the responder, or back.
    pub(crate) to_server: Option<bool>,
    /// Some: the stream alone, or never the stream.
    pub(crate) only_stream: Option<bool>,
    /// Some: how far a TCP connection must have come (`tcp.session`).
    pub(crate) phases: Option<Phases>,
    /// Each packet is looked at, though nothing but its ends decides (`flow:stateless`, `tcp:all`);
    /// else the first of a side is enough.
    pub(crate) is_of_each_packet: bool,
}

/// Phases of a TCP connection, any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    /// It is not established yet.
    pub(crate) setup: bool,
    /// It was established before the packet.
    pub(crate) established: bool,
    /// One side has said its last, and the other has not, or does so now.
    pub(crate) closing: bool,
}

impl Phases {
    /// `setup,closing`: without spaces, as Suricata has it.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let mut phases = Self::default();
        for word in value.split(',') {
            match word {
                "setup" => phases.setup = true,
                "established" => phases.established = true,
                "closing" => phases.closing = true,
                other => return Err(format!("`{other}` is no phase of a TCP connection")),
            }
        }
        Ok(phases)
    }
}

/// A bit, and what is to be done with it or asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BitTest {
    pub(crate) scope: BitScope,
    pub(crate) verb: BitVerb,
    /// One, or for a condition several of which one suffices.
    pub(crate) names: Vec<u32>,
    /// Seconds until it is forgotten.
    pub(crate) expire_s: u64,
    /// Of `xbits` that hosts have: who asks for them comes before who sets them.
    pub(crate) is_x: bool,
}

/// Whose bit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BitScope {
    Flow,
    Source,
    Destination,
    Pair,
    /// A transaction of a flow.
    Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitVerb {
    Set,
    Unset,
    Toggle,
    IsSet,
    IsNotSet,
    /// A counter of the flow (`flowint`): put to, moved by, compared with a number.
    Put(Amount),
    Add(Amount),
    Subtract(Amount),
    Compare(Amount, Comparison),
    IsDefined(bool),
}

impl BitVerb {
    pub(crate) fn is_condition(self) -> bool {
        matches!(self, Self::IsSet | Self::IsNotSet | Self::Compare(..) | Self::IsDefined(_))
    }
}

/// A number, or what another counter of the flow stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Fixed(i64),
    Counter(u32),
}

/// How a counter must stand to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn holds(self, counter: i64, number: i64) -> bool {
        match self {
            Self::Equal => counter == number,
            Self::NotEqual => counter != number,
            Self::Less => counter < number,
            Self::LessOrEqual => counter <= number,
            Self::Greater => counter > number,
            Self::GreaterOrEqual => counter >= number,
        }
    }
}

/// `stream_size`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSize {
    pub(crate) side: StreamSide,
    pub(crate) numbers: Numbers,
}

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamSide {
    Client,
    Server,
    Both,
    Either,
}

impl StreamSize {
    /// Whether the sides' streams are as long as the rule says.
    pub(crate) fn holds(&self, sizes: [u64; 2]) -> bool {
        let [client, server] = sizes.map(|size| self.numbers.contain(size));
        match self.side {
            StreamSide::Client => client,
            StreamSide::Server => server,
            StreamSide::Both => client && server,
            StreamSide::Either => client || server,
        }
    }
}

/// `stream_size:server,<,5`
pub(crate) fn stream_size(value: &str) -> Result<StreamSize, String> {
    let wrong = || format!("`{value}` behind stream_size: a side, a comparison and a number");
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let [side, comparison, number] = parts.as_slice() else { return Err(wrong()) };
    let side = match *side {
        "client" => StreamSide::Client,
        "server" => StreamSide::Server,
        "both" => StreamSide::Both,
        "either" => StreamSide::Either,
        _ => return Err(wrong()),
    };
    let number = digits(number).filter(|it| *it <= u32::MAX.into()).ok_or_else(wrong)?;
    let numbers = Numbers::compared(comparison, number).ok_or_else(wrong)?;
    Ok(StreamSize { side, numbers })
}

/// `flow.pkts`, `flow.bytes`, `flow.age`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowCount {
    pub(crate) what: Counted,
    pub(crate) side: StreamSide,
    pub(crate) numbers: Numbers,
}

/// What of a flow is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Packets,
    Bytes,
    Seconds,
}

impl FlowCount {
    /// Whether the counts of the two sides are as the rule says.
    pub(crate) fn holds(&self, counts: [u64; 2]) -> bool {
        StreamSize { side: self.side, numbers: self.numbers }.holds(counts)
    }
}

/// `flow.pkts:toserver,>10`, `flow.bytes_toclient:5`, `flow.age:>60`; `None`: none of these.
pub(crate) fn flow_count(name: &str, value: &str) -> Option<Result<FlowCount, String>> {
    let (name, side) = match name {
        "flow.pkts_toserver" => ("flow.pkts", "toserver"),
        "flow.pkts_toclient" => ("flow.pkts", "toclient"),
        "flow.bytes_toserver" => ("flow.bytes", "toserver"),
        "flow.bytes_toclient" => ("flow.bytes", "toclient"),
        _ => (name, ""),
    };
    let (what, bits) = match name {
        "flow.pkts" => (Counted::Packets, 32),
        "flow.bytes" => (Counted::Bytes, 64),
        "flow.age" => (Counted::Seconds, 32),
        _ => return None,
    };
    let (side, numbers) = match (side, what) {
        (_, Counted::Seconds) => ("either", value),
        ("", _) => value.split_once(',').unwrap_or(("", value)),
        (side, _) => (side, value),
    };
    let side = match side.trim() {
        "toserver" => StreamSide::Client,
        "toclient" => StreamSide::Server,
        "either" => StreamSide::Either,
        other => return Some(Err(format!("`{other}` behind {name}: toserver, toclient, either"))),
    };
    Some(Numbers::parse(numbers, bits).map(|numbers| FlowCount { what, side, numbers }))
}

/// Whom a rule says nothing of, though it acts (`suppress`).
#[derive(Clone, Debug)]
pub(crate) struct Suppression {
    pub(crate) of_source: bool,
    pub(crate) of_destination: bool,
    pub(crate) addresses: std::sync::Arc<super::ranges::Ranges>,
}

/// What a rule does instead, once it has matched too often (`rate_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateFilter {
    pub(crate) track: Track,
    pub(crate) count: u32,
    pub(crate) seconds: u32,
    pub(crate) action: super::Action,
    pub(crate) timeout_s: u32,
}

/// `threshold` and `detection_filter`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold {
    pub(crate) kind: ThresholdKind,
    pub(crate) track: Track,
    pub(crate) count: u32,
    pub(crate) seconds: u32,
    pub(crate) multiplier: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThresholdKind {
    Limit,
    Threshold,
    Both,
    Backoff,
    /// `detection_filter`: only what comes after `count` matches.
    Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    Source,
    Destination,
    Both,
    Rule,
    Flow,
}

/// Numbers for the names of bits, alike for all rules of a set.
#[derive(Debug, Default)]
pub(crate) struct BitNames(std::collections::HashMap<String, u32>);

impl BitNames {
    /// The names, by their numbers.
    pub(super) fn into_names(self) -> Vec<String> {
        let mut names: Vec<(String, u32)> = self.0.into_iter().collect();
        names.sort_unstable_by_key(|it| it.1);
        names.into_iter().map(|it| it.0).collect()
    }

    /// Of a text that an expression captures.
    pub(super) fn text(&mut self, name: &str) -> u32 {
        self.number(&format!("text {}", name.trim()))
    }

    fn number(&mut self, name: &str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

impl FlowTest {
    /// Takes in what another `flow` of the rule says: a second one goes with a first that says
    /// nothing but the side, or how the stream is looked at.
    pub(super) fn and(&mut self, other: Self) -> Result<(), String> {
        if self.established.is_some() || self.is_of_each_packet {
            return Err("said before: put all of it into one".to_owned());
        }
        let Self { established, to_server, only_stream, phases: _, is_of_each_packet } = other;
        let pairs = [(self.to_server, to_server), (self.only_stream, only_stream)];
        if pairs.iter().any(|(one, other)| one.is_some() && other.is_some() && one != other) {
            return Err("it does not go with what was said before".to_owned());
        }
        self.established = established;
        self.to_server = to_server.or(self.to_server);
        self.only_stream = only_stream.or(self.only_stream);
        self.is_of_each_packet = is_of_each_packet;
        Ok(())
    }
}

/// `flow:established,to_server`; and whether the packet must have come in fragments (`only_frag`)
/// or must not (`no_frag`).
pub(crate) fn flow(value: &str) -> Result<(FlowTest, Option<bool>), String> {
    const WORDS_MAX: usize = 3;
    let (mut test, mut fragments) = (FlowTest::default(), None);
    let (mut state, mut words) = (None, 0);
    for word in value.split(',').map(|it| it.trim().to_ascii_lowercase()) {
        let (said, is_so) = match word.as_str() {
            "established" => (&mut test.established, true),
            "not_established" => (&mut test.established, false),
            "stateless" => (&mut state, true),
            "to_server" | "from_client" => (&mut test.to_server, true),
            "to_client" | "from_server" => (&mut test.to_server, false),
            "only_stream" => (&mut test.only_stream, true),
            "no_stream" => (&mut test.only_stream, false),
            "no_frag" => (&mut fragments, false),
            "only_frag" => (&mut fragments, true),
            other => return Err(format!("`{other}` behind flow")),
        };
        words += 1;
        if said.replace(is_so).is_some() || words > WORDS_MAX {
            return Err(format!("`{value}`: each of state, side and stream once"));
        }
    }
    if state.is_some() && test.established.is_some() {
        return Err(format!("`{value}`: a state, and none"));
    }
    test.is_of_each_packet = state.is_some();
    Ok((test, fragments))
}

/// `flowbits`; `None` for `noalert`.
pub(crate) fn flow_bits(value: &str, names: &mut BitNames) -> Result<Option<BitTest>, String> {
    let (verb, name) = value.split_once(',').unwrap_or((value, ""));
    let verb = match verb.trim() {
        "noalert" => return Ok(None),
        other => bit_verb(other)?,
    };
    // What is set has one name, whatever stands in it.
    let bits: Vec<&str> = match verb.is_condition() {
        true => name.split('|').map(str::trim).filter(|it| !it.is_empty()).collect(),
        false => Some(name.trim()).filter(|it| !it.is_empty()).into_iter().collect(),
    };
    if bits.iter().any(|it| it.contains(char::is_whitespace)) {
        return Err(format!("`{value}` behind flowbits: a name with spaces"));
    }
    if bits.is_empty() {
        return Err(format!("`{value}` behind flowbits"));
    }
    let names = bits.into_iter().map(|it| names.number(it)).collect();
    Ok(Some(BitTest { scope: BitScope::Flow, verb, names, expire_s: 0, is_x: false }))
}

fn bit_verb(word: &str) -> Result<BitVerb, String> {
    Ok(match word {
        "set" => BitVerb::Set,
        "unset" => BitVerb::Unset,
        "toggle" => BitVerb::Toggle,
        "isset" => BitVerb::IsSet,
        "isnotset" => BitVerb::IsNotSet,
        other => return Err(format!("`{other}` is done to no bit")),
    })
}

/// `xbits:set,name,track ip_src,expire 60`, `xbits:set,name,track tx`
pub(crate) fn x_bits(value: &str, names: &mut BitNames) -> Result<Option<BitTest>, String> {
    const EXPIRE_S: u64 = 30;
    let mut parts = value.split(',').map(str::trim);
    let verb = parts.next().unwrap_or_default();
    if verb == "noalert" {
        return match parts.next() {
            None => Ok(None),
            Some(name) => Err(format!("`{name}` behind xbits:noalert")),
        };
    }
    let verb = bit_verb(verb)?;
    let is_name = |it: &&str| !it.is_empty() && !it.contains(char::is_whitespace);
    let name = parts.next().filter(is_name).ok_or("xbits without a name, of one word")?;
    let (mut scope, mut expire_s) = (None, None);
    for part in parts {
        match part.split_once(char::is_whitespace).map(|(word, it)| (word, it.trim())) {
            Some(("track", "ip_src")) => scope = Some(BitScope::Source),
            Some(("track", "ip_dst")) => scope = Some(BitScope::Destination),
            Some(("track", "ip_pair")) => scope = Some(BitScope::Pair),
            Some(("track", "tx")) => scope = Some(BitScope::Transaction),
            Some(("expire", seconds)) => expire_s = Some(bounded(seconds, u32::MAX.into())?),
            _ => return Err(format!("`{part}` behind xbits")),
        }
    }
    let scope = scope.ok_or("xbits without track")?;
    if scope == BitScope::Transaction && !matches!(verb, BitVerb::Set | BitVerb::IsSet) {
        return Err("a transaction's bit is set, or asked for (isset)".to_owned());
    }
    if expire_s == Some(0) {
        return Err("a bit that is forgotten at once".to_owned());
    }
    let expire_s = expire_s.unwrap_or(EXPIRE_S);
    let is_x = scope != BitScope::Transaction;
    Ok(Some(BitTest { scope, verb, names: vec![names.number(name)], expire_s, is_x }))
}

/// `hostbits:set,name,src`
pub(crate) fn host_bits(value: &str, names: &mut BitNames) -> Result<Option<BitTest>, String> {
    const EXPIRE_S: u64 = 300;
    let mut parts = value.split(',').map(str::trim);
    let verb = parts.next().unwrap_or_default();
    if verb == "noalert" {
        return Ok(None);
    }
    let verb = bit_verb(verb)?;
    let name = parts.next().filter(|it| !it.is_empty()).ok_or("hostbits without a name")?;
    let scope = match parts.next().unwrap_or("src") {
        "src" => BitScope::Source,
        "dst" => BitScope::Destination,
        other => return Err(format!("`{other}` behind hostbits")),
    };
    // They are xbits of the same name.
    let names = vec![names.number(name)];
    Ok(Some(BitTest { scope, verb, names, expire_s: EXPIRE_S, is_x: false }))
}

/// `flowint:name,+,1`, `flowint:name,>,other`
pub(crate) fn flow_integer(value: &str, names: &mut BitNames) -> Result<BitTest, String> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let wrong = || format!("`{value}` behind flowint");
    let mut counter = |name: &str| {
        let is_name = name.len() > 1 && name.starts_with(|it: char| it.is_ascii_alphabetic());
        is_name.then(|| names.number(&format!("integer {name}"))).ok_or_else(wrong)
    };
    let (name, verb) = match parts.as_slice() {
        // What stands behind it is passed over.
        [name, "isset" | "isdefined", ..] => (name, BitVerb::IsDefined(true)),
        [name, "notset" | "isnotset" | "isnotdefined", ..] => (name, BitVerb::IsDefined(false)),
        [name, operator, amount] => {
            let amount = match amount.starts_with(|it: char| it.is_ascii_digit()) {
                true => Amount::Fixed(bounded(amount, u32::MAX.into())? as i64),
                false => Amount::Counter(counter(amount)?),
            };
            let verb = match *operator {
                "=" => BitVerb::Put(amount),
                "+" => BitVerb::Add(amount),
                "-" => BitVerb::Subtract(amount),
                "==" => BitVerb::Compare(amount, Comparison::Equal),
                "!=" => BitVerb::Compare(amount, Comparison::NotEqual),
                "<" => BitVerb::Compare(amount, Comparison::Less),
                "<=" => BitVerb::Compare(amount, Comparison::LessOrEqual),
                ">" => BitVerb::Compare(amount, Comparison::Greater),
                ">=" => BitVerb::Compare(amount, Comparison::GreaterOrEqual),
                _ => return Err(wrong()),
            };
            (name, verb)
        }
        _ => return Err(wrong()),
    };
    let names = vec![counter(name)?];
    Ok(BitTest { scope: BitScope::Flow, verb, names, expire_s: 0, is_x: false })
}

/// `threshold:type limit, track by_src, count 1, seconds 60` and, with `is_filter`,
/// `detection_filter`.
pub(crate) fn threshold(value: &str, is_filter: bool) -> Result<Threshold, String> {
    let (mut kind, mut track, mut count, mut seconds, mut multiplier) =
        (is_filter.then_some(ThresholdKind::Filter), None, None, None, None);
    for part in value.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let wrong = || format!("`{part}` behind threshold");
        // Like Suricata, what is written behind the last option is passed over: a forgotten `;`.
        if kind.is_some() && track.is_some() && count.is_some() && seconds.or(multiplier).is_some()
        {
            break;
        }
        let mut words = part.split_whitespace();
        let (Some(word), Some(argument)) = (words.next(), words.next()) else {
            return Err(wrong());
        };
        let number = || bounded(argument, u32::MAX.into()).map(|it| it as u32);
        match word {
            "type" if !is_filter => {
                kind = Some(match argument {
                    "limit" => ThresholdKind::Limit,
                    "threshold" => ThresholdKind::Threshold,
                    "both" => ThresholdKind::Both,
                    "backoff" => ThresholdKind::Backoff,
                    _ => return Err(wrong()),
                });
            }
            "track" => {
                track = Some(match argument {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_both" => Track::Both,
                    "by_rule" => Track::Rule,
                    "by_flow" => Track::Flow,
                    _ => return Err(wrong()),
                });
            }
            "count" => count = Some(number()?),
            "seconds" => seconds = Some(number()?),
            "multiplier" => multiplier = Some(number()?),
            _ => return Err(wrong()),
        }
    }
    let kind = kind.ok_or("threshold without type")?;
    let track = track.ok_or("threshold without track")?;
    let count = count.ok_or("threshold without count")?;
    let (seconds, multiplier) = match (kind, seconds, multiplier) {
        (ThresholdKind::Backoff, None, Some(it @ 2..=0xffff)) if track == Track::Flow => (0, it),
        (ThresholdKind::Backoff, ..) => {
            return Err("backoff goes by_flow, with a multiplier of 2 to 65535".to_owned());
        }
        (_, Some(seconds), None) => (seconds, 1),
        _ => return Err("threshold with seconds, and without multiplier".to_owned()),
    };
    if is_filter && (count == 0 || seconds == 0 || matches!(track, Track::Both | Track::Rule)) {
        return Err("it counts by_src, by_dst or by_flow, to more than nothing".to_owned());
    }
    Ok(Threshold { kind, track, count: count.max(1), seconds, multiplier })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_says_each_thing_once() {
        for good in ["established", "To_Server, ESTABLISHED", "stateless,to_client,no_stream"] {
            assert!(flow(good).is_ok(), "{good}");
        }
        for wrong in [
            "",
            ",",
            "established,",
            "established,,to_server",
            "to_client,to_server",
            "to_server,from_client",
            "established,not_established",
            "established,stateless",
            "only_stream,no_stream",
            "no_frag,only_frag",
            "established,to_server,only_stream,no_frag",
            "established to_server",
        ] {
            assert!(flow(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_second_flow_adds_to_one_that_says_the_side() {
        let both = |one: &str, other: &str| {
            let (mut test, _) = flow(one).unwrap();
            test.and(flow(other).unwrap().0).map(|()| test)
        };
        let sum = both("to_server", "established").unwrap();
        assert_eq!((sum.to_server, sum.established), (Some(true), Some(true)));
        assert!(both("to_server", "from_client").is_ok() && both("only_stream", "no_frag").is_ok());
        assert!(both("to_server", "to_client").is_err());
        assert!(both("established", "to_server").is_err());
        assert!(both("stateless", "established").is_err());
    }
}
