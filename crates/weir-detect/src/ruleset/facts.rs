//! What rules look at, found out once.

use crate::rule::{
    BitScope, BitTest, BitVerb, Buffer, FlowTest, HeaderTest, Hook, Protocol, Rule, Step,
};

/// What a rule looks at, found out once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    is_of_application: bool,
    has_payload: bool,
    has_only_payload: bool,
    is_of_addresses: bool,
    is_of_decision: bool,
    hears_speech: bool,
    is_of_operation: bool,
    is_of_messages: bool,
    is_of_spoken: bool,
    asks_bits: bool,
    asks_of_flow: bool,
    puts_something: bool,
}

impl Facts {
    pub(crate) fn of(rule: &Rule) -> Self {
        let mut buffers = rule.buffers.iter().map(|it| it.key.buffer);
        let is_of_packets = |it| crate::buffers::protocol(it).is_none();
        let has_only_payload = rule.units.is_empty() && buffers.clone().all(is_of_packets);
        let header = &rule.header;
        // Who asks for `xbits` has its turn before who sets them, and no other.
        let asks = |it: &BitTest| it.verb.is_condition() && !it.is_x;
        let asks_bits = rule.bits.iter().any(asks) || !rule.texts.is_empty();
        let is_of_each_packet =
            rule.bits.iter().any(BitTest::is_of_each_packet) || !rule.texts.is_empty();
        // What belongs to no flow counts as to the server.
        let to_server = rule.flow.to_server.filter(|it| *it);
        let of_none =
            FlowTest { only_stream: rule.flow.only_stream, to_server, ..FlowTest::default() };
        let is_of_addresses = rule.tests.iter().all(is_of_ends)
            && !header.excepts
            && rule.flow_counts.is_empty()
            && rule.flow == FlowTest::default()
            && rule.stream_sizes.is_empty()
            && rule.buffers.is_empty()
            && rule.spoken.is_empty()
            && rule.messages.is_empty()
            && rule.app_events.is_empty()
            && !rule.bypasses
            && rule.untold.is_none()
            && rule.hook.is_none()
            && !is_of_each_packet
            && !header.protocol.is_application()
            && header.protocol != Protocol::Rdma;
        let asks_of_messages =
            !has_only_payload || !rule.messages.is_empty() || !rule.app_events.is_empty();
        let is_of_state = rule.hook.is_some_and(|it| it != Hook::FlowStart);
        let is_of_messages =
            asks_of_messages || rule.untold.is_some() || header.is_transactional || is_of_state;
        let asks_what_is_spoken = !rule.spoken.is_empty()
            && rule.buffers.is_empty()
            && rule.messages.is_empty()
            && rule.app_events.is_empty();
        Self {
            is_of_application: header.protocol.is_application() || asks_of_messages,
            has_payload: buffers.any(|it| it == Buffer::Payload),
            has_only_payload,
            is_of_addresses,
            is_of_decision: asks_what_is_spoken
                && rule.tests.is_empty()
                && rule.flow.established.is_none()
                && rule.flow.phases.is_none()
                && !rule.flow.is_of_each_packet
                && rule.flow_counts.is_empty()
                && rule.stream_sizes.is_empty()
                && rule.texts.is_empty()
                && !rule.bits.iter().any(|it| it.verb.is_condition()),
            hears_speech: asks_what_is_spoken,
            is_of_operation: header.protocol == Protocol::Rdma && !rule.needs_packet,
            is_of_messages,
            is_of_spoken: header.protocol.is_application()
                && rule.buffers.is_empty()
                && !is_of_messages,
            asks_bits,
            asks_of_flow: rule.flow != of_none
                || rule.hook == Some(Hook::FlowStart)
                || !rule.flow_counts.is_empty()
                || rule.bits.iter().any(|it| it.scope == BitScope::Flow && it.verb.is_condition()),
            puts_something: rule.bits.iter().any(|it| !it.verb.is_condition())
                || rule.buffers.iter().flat_map(|it| &it.steps).any(Step::puts_something)
                || rule.bypasses
                || rule.untold.is_some(),
        }
    }
}

impl Rule {
    /// Whether it asks something of the flow that a packet belongs to.
    pub(crate) fn asks_of_flow(&self) -> bool {
        self.facts.asks_of_flow
    }

    /// Whether it leaves something by matching alone, whatever is decided of the packet.
    pub(crate) fn puts_something(&self) -> bool {
        self.facts.puts_something
    }

    /// Whether it asks something of an application, or of its buffers.
    pub(crate) fn is_of_application(&self) -> bool {
        self.facts.is_of_application
    }

    /// The applications that it asks something of.
    pub(super) fn applications(&self) -> Vec<Protocol> {
        let own = self.header.protocol;
        if own.is_application() {
            return vec![own];
        }
        let of_buffers =
            self.buffers.iter().flat_map(|it| crate::buffers::protocols(it.key.buffer));
        let of_units = self.units.iter().flat_map(|it| it.protocols().iter().copied());
        let of_messages = self.messages.iter().map(|it| it.protocol());
        let mut all: Vec<Protocol> = of_buffers.chain(of_units).chain(of_messages).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it asks something of the payload.
    pub(crate) fn has_payload(&self) -> bool {
        self.facts.has_payload
    }

    /// Whether it asks nothing of an application's buffers.
    pub(crate) fn has_only_payload(&self) -> bool {
        self.facts.has_only_payload
    }

    /// Whether it asks for what only many packets tell.
    pub(super) fn asks_for_sign(&self) -> bool {
        self.tests.iter().any(|it| matches!(it, HeaderTest::Sign { .. }))
    }

    /// Whether nothing but addresses and protocol decides.
    pub(crate) fn is_of_addresses(&self) -> bool {
        self.facts.is_of_addresses
    }

    /// Whether it is about messages of an application: a datagram that is one counts as such for
    /// rules that ask only what is spoken.
    pub(crate) fn is_of_messages(&self, is_datagram: bool) -> bool {
        self.facts.is_of_messages || (is_datagram && self.facts.is_of_spoken)
    }

    /// Whether it matches every packet of a flow in which its application is spoken, if nothing of
    /// the packet itself forbids.
    pub(crate) fn is_of_spoken(&self) -> bool {
        self.facts.is_of_spoken
    }

    /// Whether it asks for nothing but what is spoken: it matches when that is decided.
    pub fn is_of_decision(&self) -> bool {
        self.facts.is_of_decision
    }

    /// Whether it asks of each packet what is spoken by then, and nothing of what is said.
    pub(crate) fn hears_speech(&self) -> bool {
        self.facts.hears_speech && !self.facts.is_of_decision
    }

    /// Whether it looks into the payload of an RDMA operation, whatever its packets.
    pub(crate) fn is_of_operation(&self) -> bool {
        self.facts.is_of_operation
    }

    /// Whether it asks how evenly the values of all bytes are spread, and for no text.
    pub(crate) fn weighs_all(&self) -> bool {
        self.fast.is_none()
            && self.buffers.iter().flat_map(|it| &it.steps).any(|it| it.is_entropy())
    }

    /// Whether something must not be in what it looks at.
    pub(crate) fn excludes(&self) -> bool {
        self.buffers.iter().flat_map(|it| &it.steps).any(|it| it.is_negated())
    }

    /// Whether it may hold of some bytes and no more once others follow them.
    pub fn may_pass(&self) -> bool {
        self.excludes() || self.buffers.iter().flat_map(|it| &it.steps).any(Step::asks_end)
    }

    /// Whether it asks for bits or integers.
    pub(crate) fn asks_bits(&self) -> bool {
        self.facts.asks_bits
    }

    /// Whether nothing but addresses, ports and protocol decides.
    fn is_of_ends(&self) -> bool {
        let has_bits = match self.header.excepts {
            true => self.bits.iter().any(BitTest::is_of_each_packet),
            false => !self.bits.is_empty(),
        };
        let are_of_ends =
            self.tests.is_empty() || self.header.excepts && self.tests.iter().all(is_of_ends);
        are_of_ends
            && self.buffers.is_empty()
            && !has_bits
            && self.flow == FlowTest::default()
            && self.flow_counts.is_empty()
            && self.stream_sizes.is_empty()
            && self.texts.is_empty()
    }

    /// Whether nothing but what is spoken decides, and which side speaks; what it puts changes
    /// nothing about that.
    fn is_of_side(&self) -> bool {
        let of_side = FlowTest { to_server: self.flow.to_server, ..FlowTest::default() };
        self.tests.is_empty()
            && self.buffers.is_empty()
            && !self.bits.iter().any(|it| it.is_of_each_packet() || it.verb.is_condition())
            && self.flow == of_side
            && self.flow_counts.is_empty()
            && self.stream_sizes.is_empty()
            && self.texts.is_empty()
    }

    /// Whether what it does to a packet goes for the rest of the flow: it looked at more than the
    /// packet, or at nothing but addresses and ports.
    pub(crate) fn is_of_flow(&self) -> bool {
        let is_of_application =
            self.is_of_messages(false) || (self.is_of_application() && self.is_of_side());
        let is_of_what_is_said = is_of_application || self.is_of_decision();
        is_of_what_is_said || self.is_of_addresses() || self.is_of_ports()
    }

    /// Whether ports and addresses decide, and neither side nor state.
    fn is_of_ports(&self) -> bool {
        use Protocol as P;
        let is_icmp = matches!(self.protocol(), P::Icmp | P::Icmpv4 | P::Icmpv6);
        (is_icmp || matches!(self.protocol(), P::Tcp | P::Udp | P::Ip | P::Ipv4 | P::Ipv6))
            && self.is_of_ends()
            && self.spoken.is_empty()
            && (self.filter.is_none() || self.header.excepts)
    }
}

/// Whether it asks no more of a packet than from where it comes, and where it goes.
fn is_of_ends(test: &HeaderTest) -> bool {
    use HeaderTest as T;
    matches!(test, T::Reputation(_) | T::IpProtocol(_) | T::IpVersion(_))
}

impl BitTest {
    /// Whether a rule has to look at each packet for it. Bits of hosts are no more than addresses,
    /// and who sets one of a flow does it once, too.
    pub(crate) fn is_of_each_packet(&self) -> bool {
        let is_of_hosts = !matches!(self.scope, BitScope::Flow | BitScope::Transaction);
        !is_of_hosts && self.verb != BitVerb::Set
    }
}
