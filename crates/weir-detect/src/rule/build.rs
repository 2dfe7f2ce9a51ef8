//! A statement to a rule, or the keyword that stops it.

use super::form;
use super::header::HeaderTest;
use super::hook;
use super::keywords::{Collected, Refused, fast_rank};
use super::replace;
use super::state::BitNames;
use super::step::{Fast, Step};
use super::syntax::{Setting, Statement};
use super::variables::Groups;
use super::{
    Absence, Action, Answered, Buffer, BufferKey, BufferTest, FastPattern, Header, Protocol, Rule,
    Scope, Transform, UnitTest,
};

/// What is alike for all rules of a set.
pub(super) struct Context<'a> {
    pub(super) groups: Groups<'a>,
    pub(super) bits: BitNames,
    pub(super) known: super::keywords::Known<'a>,
    pub(super) classes: &'a std::collections::BTreeMap<String, u32>,
}

/// The rule that `statement` is.
pub(super) fn build(statement: &Statement<'_>, context: &mut Context<'_>) -> Result<Rule, Refused> {
    let named = hook::parse(statement.protocol);
    let protocol = named.as_ref().ok().map(|it| it.0);
    let mut collected = collect(statement, protocol, context)?;
    // Such a rule only says what is told of what it matches.
    let (word, scope) = scope(statement.action)?;
    let is_config = word.eq_ignore_ascii_case("config");
    if is_config != collected.untold.is_some() {
        return Err(Refused::new("config", "the action and the keyword go together"));
    }
    let action = action(if is_config { "alert" } else { word })?;
    if scope.is_some() && action == Action::Alert {
        return Err(Refused::new("action", "only `drop`, `pass` and `reject` say how far they go"));
    }
    let (protocol, hook) = named?;
    let header = header(statement, collected.protocol(protocol), context)?;
    let sid = collected.sid.ok_or_else(|| Refused::new("sid", "a rule needs a sid"))?;
    collected.finish()?;
    collected.settle_stream()?;
    let by_class = context.classes.get(&collected.class).copied();
    let (needs_packet, needs_stream) = needs(&header, &collected);
    let mut rule = Rule {
        action,
        scope,
        generator: collected.generator.unwrap_or(1),
        sid,
        revision: collected.revision,
        message: collected.message,
        class: collected.class,
        priority: collected.priority.or(by_class).unwrap_or(3),
        metadata: collected.metadata,
        references: collected.references,
        target: collected.target,
        answered: answered(word),
        bypasses: collected.bypasses,
        untold: collected.untold,
        spoken: collected.spoken,
        stream_of: collected.stream_of,
        messages: collected.messages,
        units: collected.units,
        app_events: collected.app_events,
        header,
        hook: collected.hook.or(hook),
        flow: collected.flow,
        tests: collected.tests,
        buffers: collected.buffers,
        bits: collected.bits,
        stream_sizes: collected.stream_sizes,
        texts: collected.texts,
        threshold: collected.threshold,
        filter: collected.filter,
        is_silent: collected.is_silent || is_config,
        tags: collected.tags,
        tells_pass: collected.tells_pass,
        is_tried: false,
        flow_counts: collected.flow_counts,
        suppressions: Vec::new(),
        rate: None,
        fast: None,
        facts: crate::ruleset::Facts::default(),
        replaces: false,
        needs_packet,
        needs_stream,
    };
    settle(&mut rule)?;
    Ok(rule)
}

/// Checks what the rule says together, and finds out what follows from it.
fn settle(rule: &mut Rule) -> Result<(), Refused> {
    check_packet(rule)?;
    hook::settle(rule)?;
    if asks_nothing_said(rule) {
        // Of a stream as such there is nothing to look at.
        if rule.header.protocol == Protocol::TcpStream {
            rule.header.protocol = Protocol::Tcp;
        }
        if rule.flow.only_stream.take().is_some() {
            (rule.needs_packet, rule.needs_stream) = (true, false);
        }
    }
    check_buffers(rule)?;
    rule.facts = crate::ruleset::Facts::of(rule);
    replace::settle(rule)?;
    rule.fast = fast_pattern(rule);
    Ok(())
}

/// What the options say.
fn collect(
    statement: &Statement<'_>,
    protocol: Option<Protocol>,
    context: &mut Context<'_>,
) -> Result<Collected, Refused> {
    let mut collected = Collected::of(protocol);
    let mut refused: Option<Refused> = None;
    // Keywords are known in either case.
    let names: Vec<String> =
        statement.options.iter().map(|it| it.name.to_ascii_lowercase()).collect();
    let values = statement.options.iter().map(|it| it.value);
    let options: Vec<Setting<'_>> =
        names.iter().zip(values).map(|(name, value)| Setting { name, value }).collect();
    for (index, option) in options.iter().enumerate() {
        // The description is read to its end, so that a refusal names the sid.
        let result = form::check(&options[..index], option)
            .and_then(|()| collected.take(option, &mut context.bits, &mut context.known));
        if let Err(why) = result {
            // What is not for us need not be understood.
            let is_first = refused.is_none() || why.keyword == "requires";
            refused = if is_first { Some(why) } else { refused };
        }
    }
    refused.map_or(Ok(collected), Err)
}

/// Whether ends, flow and state decide.
fn asks_nothing_said(rule: &Rule) -> bool {
    rule.buffers.is_empty()
        && rule.units.is_empty()
        && rule.messages.is_empty()
        && rule.app_events.is_empty()
}

/// The action's word, and how far it goes if that stands behind it.
fn scope(action: &str) -> Result<(&str, Option<Scope>), Refused> {
    let Some((word, scope)) = action.split_once(':') else { return Ok((action, None)) };
    match scope {
        "packet" => Ok((word, Some(Scope::Packet))),
        "flow" => Ok((word, Some(Scope::Flow))),
        other => {
            let why = format!("`{other}` behind `{word}:`: it is `packet` or `flow`");
            Err(Refused::new("action", why))
        }
    }
}

fn action(name: &str) -> Result<Action, Refused> {
    let unknown = || Refused::new("action", format!("no action `{name}`"));
    Action::from_name(name).ok_or_else(unknown)
}

/// Whom a rule of that action answers.
fn answered(action: &str) -> Option<Answered> {
    match action.to_ascii_lowercase().as_str() {
        "reject" | "rejectsrc" => Some(Answered::Sender),
        "rejectdst" => Some(Answered::Receiver),
        "rejectboth" => Some(Answered::Both),
        _ => None,
    }
}

fn header(
    statement: &Statement<'_>,
    protocol: Protocol,
    context: &mut Context<'_>,
) -> Result<Header, Refused> {
    let groups = &mut context.groups;
    let address = |why| Refused::new("address", why);
    let port = |why| Refused::new("port", why);
    Ok(Header {
        protocol,
        source: groups.addresses(statement.source).map_err(address)?,
        destination: groups.addresses(statement.destination).map_err(address)?,
        source_ports: groups.ports(statement.source_ports).map_err(port)?,
        destination_ports: groups.ports(statement.destination_ports).map_err(port)?,
        is_both_ways: statement.is_both_ways,
        is_transactional: statement.is_transactional,
        excepts: groups.excepts(statement.source) || groups.excepts(statement.destination),
    })
}

/// Whether contents of the payload stand in packets, in the stream, or in either: a TCP rule looks
/// at the stream, and at packets too where it says how far from their beginning.
fn needs(header: &Header, collected: &Collected) -> (bool, bool) {
    let payload = collected.buffers.iter().find(|it| it.key.buffer == Buffer::Payload);
    let of_packets =
        collected.tests.iter().any(HeaderTest::is_of_packet) || !collected.flow_counts.is_empty();
    let is_stream = header.protocol.may_be_of_tcp() || header.protocol.is_application();
    match (header.protocol, collected.flow.only_stream, payload) {
        (Protocol::TcpStream, _, _) => (false, true),
        (Protocol::TcpPacket, _, _) | (Protocol::Tcp, Some(false), _) => (true, false),
        (protocol, Some(true), _) if protocol.may_be_of_tcp() => (false, true),
        (_, None, Some(_)) if is_stream && of_packets => (true, false),
        (_, None, Some(payload)) if is_stream => {
            let has_place = payload.steps.iter().any(|step| {
                matches!(step, Step::Content(it)
                    if it.depth.is_some() || it.offset.is_some() || it.starts)
            });
            // How much came is asked of each packet as well.
            (has_place || !collected.stream_sizes.is_empty(), true)
        }
        (protocol, Some(true), Some(_)) if protocol.is_application() => (false, true),
        // Of an operation, whose packets bring it piece by piece.
        (Protocol::Rdma, _, Some(_))
            if !collected.tests.iter().any(|it| matches!(it, HeaderTest::PayloadLen { .. })) =>
        {
            (false, false)
        }
        _ => (true, false),
    }
}

impl Rule {
    /// Whether streams are followed for its sake: for payload of TCP too, of which what is
    /// encrypted is none.
    pub(crate) fn asks_for_stream(&self) -> bool {
        let is_length = |it: &HeaderTest| matches!(it, HeaderTest::PayloadLen { .. });
        let asks_payload = self.has_payload() || self.tests.iter().any(is_length);
        let protocol = self.header.protocol;
        let is_of_tcp = protocol == Protocol::TcpPacket || protocol.may_be_of_tcp();
        self.needs_stream || !self.stream_sizes.is_empty() || (asks_payload && is_of_tcp)
    }
}

/// Whether what the rule asks of packets is of packets of its protocol.
fn check_packet(rule: &Rule) -> Result<(), Refused> {
    let payload = rule.buffers.iter().find(|it| it.key.buffer == Buffer::Payload);
    if payload.is_some_and(|it| it.steps.iter().any(|it| matches!(it, Step::Size(_)))) {
        return Err(Refused::new("bsize", "of a buffer, which is to be named; see `dsize`"));
    }
    use Protocol as P;
    let own = rule.header.protocol;
    let asks_whose = rule.flow.to_server == Some(false) || rule.flow.established == Some(true);
    if own == P::Rdma && asks_whose {
        const WHY: &str = "packets of RDMA are of no connection between a client and a server: \
                           name addresses, or operations (`rdma.opcode`)";
        return Err(Refused::new("flow", WHY));
    }
    let is_ip = matches!(own, P::Ip | P::Ipv4 | P::Ipv6 | P::PacketHeader | P::Rdma);
    if !is_ip && rule.tests.iter().any(|it| matches!(it, HeaderTest::IpProtocol(_))) {
        return Err(Refused::new("ip_proto", "the rule names its protocol: write `ip`"));
    }
    let is_of_rdma = |it: &HeaderTest| matches!(it, HeaderTest::Rdma(_));
    if !is_ip && own != P::Udp && rule.tests.iter().any(is_of_rdma) {
        return Err(Refused::new("rdma", "no packet of the rule's protocol is RDMA: write `rdma`"));
    }
    let is_in_vain =
        |it: &HeaderTest| matches!(it, HeaderTest::Sign { watch, .. } if !watch.may_be_of(own));
    if rule.tests.iter().any(is_in_vain) {
        let why = "no packet of the rule's protocol is what it watches for: write another";
        return Err(Refused::new("protocol", why));
    }
    let headers = || rule.buffers.iter().map(|it| it.key.buffer).filter(|it| it.is_header());
    let is_address = |it: &Buffer| matches!(it, Buffer::IpSource | Buffer::IpDestination);
    let asks_packets = !rule.tests.iter().all(HeaderTest::goes_with_stream)
        || !rule.flow_counts.is_empty()
        || !headers().all(|it| is_address(&it));
    if own == P::TcpStream && (asks_packets || rule.flow.only_stream == Some(false)) {
        return Err(Refused::new("tcp-stream", "it asks for what packets have: write `tcp`"));
    }
    if rule.flow.only_stream == Some(true) && asks_packets {
        return Err(Refused::new("flow", "of the stream alone, and it asks for what packets have"));
    }
    if asks_packets && asks_of_messages(rule) {
        let why = "what packets have does not go with what is read of an application's messages";
        return Err(Refused::new("packet", why));
    }
    if own == P::TcpPacket && rule.flow.only_stream == Some(true) {
        return Err(Refused::new("flow", "of packets, not the stream: write `tcp`"));
    }
    let is_other = |it: &Buffer| match it {
        Buffer::TcpHeader => !is_ip && !matches!(own, P::Tcp | P::TcpPacket),
        Buffer::UdpHeader => !is_ip && own != P::Udp,
        Buffer::Icmpv4Header => !is_ip && !matches!(own, P::Icmp | P::Icmpv4),
        Buffer::Icmpv6Header => !is_ip && !matches!(own, P::Icmp | P::Icmpv6),
        _ => false,
    };
    match headers().find(|it| !own.is_application() && is_other(it)) {
        Some(buffer) => Err(Refused::new(buffer.name(), "the rule's protocol has no such header")),
        None => Ok(()),
    }
}

/// Whether the rule looks at what is read of an application's messages.
fn asks_of_messages(rule: &Rule) -> bool {
    let is_read = |it: &BufferTest| {
        let buffer = it.key.buffer;
        crate::buffers::protocol(buffer).is_some() || matches!(buffer, Buffer::Frame(_))
    };
    !(rule.units.is_empty() && rule.messages.is_empty() && rule.app_events.is_empty())
        || rule.buffers.iter().any(is_read)
}

/// Whether contents can stand in what is made of their buffer, which for some has no capitals, or
/// no blanks. Not to be there is no contradiction but of a host, which is always small.
fn check_made(test: &BufferTest) -> Result<(), Refused> {
    let BufferKey { buffer, transforms } = &test.key;
    let is_host = *buffer == Buffer::HttpHost && transforms.is_empty();
    let is_lost = |it: &Step| {
        let Step::Content(content) = it else { return false };
        let has_capitals = content.bytes.iter().any(u8::is_ascii_uppercase);
        let never = |it: &Transform| match it {
            Transform::ToLowercase => has_capitals,
            Transform::ToUppercase => content.bytes.iter().any(u8::is_ascii_lowercase),
            Transform::StripWhitespace => content.bytes.iter().any(is_blank),
            Transform::CompressWhitespace => {
                content.bytes.windows(2).any(|it| it.iter().all(is_blank))
            }
            _ => false,
        };
        (is_host && (has_capitals || content.is_nocase))
            || (!content.is_negated && transforms.iter().any(never))
    };
    match test.steps.iter().any(is_lost) {
        true => Err(Refused::new("content", "what is looked at is never written so")),
        false => Ok(()),
    }
}

fn is_blank(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0x0b
}

fn check_buffers(rule: &mut Rule) -> Result<(), Refused> {
    rule.buffers.iter().try_for_each(check_made)?;
    let own = rule.header.protocol;
    let mut asked = rule.messages.iter().map(|it| it.protocol());
    let mut odd = rule.app_events.iter().map(|it| it.protocol());
    let is_carrier = matches!(
        own,
        Protocol::Tcp
            | Protocol::TcpStream
            | Protocol::Udp
            | Protocol::Ip
            | Protocol::Ipv4
            | Protocol::Ipv6
    );
    let fits = |of: Protocol| is_carrier || own.carries(of);
    if !asked.all(fits) || !odd.all(fits) {
        return Err(Refused::new("protocol", "the keyword belongs to another than the rule's"));
    }
    let is_asked = |it: &UnitTest| it.protocols().iter().any(|of| own.means(*of));
    if rule.units.iter().any(|it| !is_carrier && !is_asked(it)) {
        return Err(Refused::new("protocol", "the keyword belongs to another than the rule's"));
    }
    for test in &rule.buffers {
        // `alert tcp` with an application's buffer is that application's.
        let fits = match crate::buffers::protocol(test.key.buffer) {
            None => true,
            Some(wanted) => {
                is_carrier || own.carries(wanted) || crate::buffers::is_of(test.key.buffer, own)
            }
        };
        if !fits {
            let name = test.key.buffer.name();
            return Err(Refused::new(name, "the rule's protocol has no such buffer"));
        }
    }
    if rule.header.is_transactional {
        return check_transactional(rule);
    }
    check_sides(rule)?;
    let is_raw_header =
        |it: &BufferTest| it.key.buffer == Buffer::HttpHeaderRaw && it.key.transforms.is_empty();
    if rule.flow.to_server.is_none() && rule.buffers.iter().any(is_raw_header) {
        let why = "say whose in `flow`: to_server or to_client";
        return Err(Refused::new("http.header.raw", why));
    }
    // Of DNS over HTTP/2 the message and the transaction are looked at one after the other.
    let mut wanted = rule.buffers.iter().filter_map(|it| crate::buffers::protocol(it.key.buffer));
    if own == Protocol::Doh2 && wanted.clone().any(|it| it == Protocol::Dns) {
        let asks_http = wanted.any(|it| it != Protocol::Dns);
        if asks_http {
            return Err(Refused::new("protocol", "DNS, or the HTTP/2 that carries it"));
        }
    }
    rule.flow.to_server = rule.flow.to_server.or_else(|| side_asked(rule));
    check_frame(rule)
}

/// Frames are looked at alone: they are no part of a transaction.
fn check_frame(rule: &Rule) -> Result<(), Refused> {
    let Some(kind) = rule.frame() else { return Ok(()) };
    let is_alone = rule.buffers.iter().all(|it| it.key.buffer == Buffer::Frame(kind))
        && rule.messages.is_empty()
        && rule.units.is_empty()
        && rule.app_events.is_empty();
    let of_frames = |it: &BufferTest| it.absence == Absence::Fails;
    match is_alone && rule.buffers.iter().all(of_frames) {
        true => Ok(()),
        false => Err(Refused::new("frame", "nothing else of the stream goes with a frame")),
    }
}

/// The side whose messages alone a rule is looked at with, by what it asks of them.
fn side_asked(rule: &Rule) -> Option<bool> {
    let of =
        |it: &BufferTest| crate::buffers::said_by(it.key.buffer).or(it.side.map(|side| side == 0));
    rule.buffers.iter().find_map(of).or_else(|| rule.units.iter().find_map(UnitTest::said_by))
}

/// A rule about both sides of a transaction asks something of either, and of nothing else.
fn check_transactional(rule: &mut Rule) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused::new("=>", why));
    let own = rule.header.protocol;
    let is_of_http = |it: &BufferTest| crate::buffers::is_of(it.key.buffer, Protocol::Http);
    let is_http = matches!(own, Protocol::Http | Protocol::Http1 | Protocol::Http2)
        || (own == Protocol::Tcp && rule.buffers.iter().all(is_of_http));
    if !is_http {
        return refused("both sides of a transaction are looked at together of HTTP alone");
    }
    if !rule.messages.is_empty() || !rule.units.is_empty() || !rule.app_events.is_empty() {
        return refused("it asks for numbers or events of one side alone: use `->`");
    }
    if rule.flow.to_server.is_some() {
        return refused("such a rule looks at both sides: leave the side out of `flow`");
    }
    for test in &mut rule.buffers {
        let buffer = test.key.buffer;
        let of_buffer = crate::buffers::to_server(buffer).map(|it| usize::from(!it));
        test.side = of_buffer.or(test.side);
        if crate::buffers::protocol(buffer).is_none() {
            let why = "it is one packet's, and the rule is about a request and its answer";
            return Err(Refused::new(buffer.name(), why));
        }
        if test.side.is_none() {
            let why = "say whose it is: `file.data:to_server`, `file.data:to_client`";
            return Err(Refused::new(buffer.name(), why));
        }
    }
    let has = |side| rule.buffers.iter().any(|it| it.side == Some(side));
    if !has(0) || !has(1) {
        return refused("it asks of one side alone: use `->`");
    }
    Ok(())
}

/// There must be a side that says what is in all buffers of a rule, and that it looks at.
fn check_sides(rule: &Rule) -> Result<(), Refused> {
    let of = |it: &BufferTest| {
        let side = crate::buffers::said_by(it.key.buffer).or(it.side.map(|side| side == 0))?;
        Some((it.key.buffer, side))
    };
    let whose = |to_server| if to_server { "clients" } else { "servers" };
    let mut found: Option<(Buffer, bool)> = None;
    for (buffer, side) in rule.buffers.iter().filter_map(of) {
        let name = buffer.name();
        let (here, there) = (whose(side), whose(!side));
        match (found, rule.flow.to_server) {
            (Some((other, known)), _) if known != side => {
                let other = other.name();
                let why = format!(
                    "{here} say it and {there} say {other}: no message has both; write `=>` for \
                     a request and its answer, or two rules, of which one sets a bit that the \
                     other asks for"
                );
                return Err(Refused::new(name, why));
            }
            (_, Some(asked)) if asked != side => {
                let why = format!("{here} say it, and by its `flow` the rule looks at {there}");
                return Err(Refused::new(name, why));
            }
            _ => found = found.or(Some((buffer, side))),
        }
    }
    Ok(())
}

/// Chooses the content that all buffers are searched for at once: the one that the rule names, else
/// the longest; none that need not be there because its buffer need not (`absent:or_else`).
fn fast_pattern(rule: &mut Rule) -> Option<FastPattern> {
    let mut best: Option<((u8, usize), usize, usize)> = None;
    for (test_index, test) in rule.buffers.iter().enumerate() {
        if test.side == Some(1) || test.absence != Absence::Fails {
            continue;
        }
        for (step_index, step) in test.steps.iter().enumerate() {
            let Step::Content(content) = step else { continue };
            let Some(rank) = fast_rank(content) else { continue };
            if best.is_none_or(|(known, ..)| rank > known) {
                best = Some((rank, test_index, step_index));
            }
        }
    }
    let (_, test, step) = best?;
    let steps = &mut rule.buffers[test].steps;
    let Step::Content(content) = &mut steps[step] else { return None };
    let bytes = match content.fast {
        Fast::Part(first, length) => {
            let first = usize::from(first);
            content.bytes[first..first + usize::from(length)].into()
        }
        _ => content.bytes.clone(),
    };
    Some(FastPattern { test, bytes, is_nocase: content.is_nocase })
}
