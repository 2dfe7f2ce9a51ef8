//! A packet as rules look at it: addresses, ports, payload, header fields.

use std::ops::RangeInclusive;

use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::ip::{Ipv4Header, protocol};
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp::flags;
use zerocopy::FromBytes;

use crate::behaviour::Signs;
use crate::checksums;
use crate::decode::Event;
use crate::detector::{Counters, Decoded, Direction, Limits, Packet};
use crate::icmp;
use crate::rdma::operation::Head;
use crate::rule::{Buffer, Header, HeaderTest, Protocol, VlanLayer};
use crate::session::Closing;

/// A packet and what the walk found in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) parsed: &'a Parsed,
    pub(crate) payload: &'a [u8],
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) vlans: Vlans,
    /// What is odd about it.
    pub(crate) events: &'a [Event],
    /// It was put together from fragments.
    pub(crate) is_rebuilt: bool,
    /// Its transport checksum counts as right, whatever it is.
    pub(crate) is_verified: bool,
    /// Its ICRC is wrong: whoever it is for drops it (IBTA Vol 1 s7.8).
    pub(crate) is_damaged: bool,
    pub(crate) icrc: Option<IcrcStatus>,
    /// By which of two ports it came, where that is known.
    pub(crate) port: Option<u8>,
    /// A TCP segment that no receiver takes, for its checksum is wrong.
    pub(crate) is_spoiled: bool,
    /// A TCP segment that has no place in its connection, and is to go no further.
    pub(crate) is_refused: bool,
    /// How it stands to the end of its connection.
    pub(crate) closing: Closing,
    /// Its payload is encrypted, or a packet, and not looked at.
    pub(crate) is_opaque: bool,
    /// More of its side's stream is looked at with it, though it brings nothing itself.
    pub(crate) has_stream: bool,
    /// What it belongs to, of all that rules have watched.
    pub(crate) signs: Signs,
    /// What the RDMA operation is that it is looked at as a piece of.
    pub(crate) operation: Option<Head>,
}

/// What is quickly seen of a packet, so that most rules need no look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gist {
    /// Of those below.
    pub(crate) signs: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

impl Gist {
    pub(crate) const PAYLOAD: u8 = 1;
    pub(crate) const EVENT: u8 = 2;
    pub(crate) const TO_SERVER: u8 = 4;
    pub(crate) const TO_CLIENT: u8 = 8;
    pub(crate) const ESTABLISHED: u8 = 16;
    pub(crate) const NOT_ESTABLISHED: u8 = 32;
    /// Something over many packets is seen with it.
    pub(crate) const SIGN: u8 = 64;
}

/// VLANs that a packet is in, the outermost first; three at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlans {
    ids: [u16; 3],
    count: u8,
}

impl Vlans {
    /// Those of a packet that the walk saw.
    pub fn of(parsed: &Parsed) -> Self {
        let mut vlans = Self::default();
        let tags = parsed.link.vlan_tci.iter().take(parsed.link.vlan_count.into());
        tags.for_each(|tci| vlans.push(*tci));
        vlans
    }

    /// Adds the next inner one, by its tag; one for which there is no room is left out.
    pub fn push(&mut self, tci: u16) {
        if let Some(place) = self.ids.get_mut(usize::from(self.count)) {
            *place = tci & 0xfff;
            self.count += 1;
        }
    }

    /// Their numbers.
    pub fn ids(&self) -> &[u16] {
        &self.ids[..usize::from(self.count)]
    }
}

impl<'a> View<'a> {
    /// A packet of which a decoder knows that.
    pub(crate) fn of(packet: &Packet<'a>, decoded: &Decoded<'a>) -> Self {
        let view = Self::new(packet.bytes, packet.parsed, decoded.vlans, decoded.events);
        let Packet { is_rebuilt, is_verified, icrc, port, .. } = *packet;
        let is_opaque = decoded.is_carrier;
        let said = decoded.payload.and_then(|[from, to]| packet.bytes.get(from..to));
        let payload = said.unwrap_or(view.payload);
        Self { payload, is_rebuilt, is_verified, icrc, port, is_opaque, ..view }
    }

    /// Looks at the checksum of a TCP segment, and at the ICRC of a packet of RDMA, if `limits` ask
    /// for that.
    pub(crate) fn checked(self, limits: Option<&Limits>) -> Self {
        let Some(limits) = limits.filter(|it| it.checks_segments) else { return self };
        if self.parsed.rdma.is_some() {
            let icrc = self.icrc.unwrap_or_else(|| icrc::check(self.bytes, self.parsed));
            return Self { is_damaged: icrc == IcrcStatus::Invalid, ..self };
        }
        let is_wrong = || checksums::is_segment_wrong(self.bytes, self.parsed, limits);
        let is_spoiled = !self.is_verified && is_wrong();
        Self { is_spoiled, ..self }
    }

    /// Whether it is a TCP segment that its receiver does not get, or does not take.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_spoiled || self.is_refused
    }

    /// Counts it if its receiver drops it for its checksum.
    pub(crate) fn count_wrong(&self, counters: &mut Counters) {
        counters.wrong_checksums += u64::from(self.is_spoiled);
        counters.wrong_icrcs += u64::from(self.is_damaged);
    }

    pub(crate) fn new(
        bytes: &'a [u8],
        parsed: &'a Parsed,
        vlans: Vlans,
        events: &'a [Event],
    ) -> Self {
        let (source_port, destination_port) = ports(parsed, bytes);
        let payload = match &parsed.rdma {
            Some(rdma) => rdma.payload(bytes),
            None => said(parsed, bytes),
        };
        Self {
            bytes,
            parsed,
            payload,
            source: u128::from_be_bytes(parsed.source),
            destination: u128::from_be_bytes(parsed.destination),
            source_port,
            destination_port,
            vlans,
            events,
            is_rebuilt: false,
            is_verified: false,
            is_damaged: false,
            icrc: None,
            port: None,
            is_spoiled: false,
            is_refused: false,
            has_stream: false,
            closing: Closing::None,
            is_opaque: false,
            signs: 0,
            operation: None,
        }
    }

    /// What is quickly seen of it, in a flow.
    pub(crate) fn gist(&self, direction: Direction, is_established: bool) -> Gist {
        let mut signs = match direction {
            Direction::Initiator => Gist::TO_SERVER,
            Direction::Responder => Gist::TO_CLIENT,
        };
        signs |= if is_established { Gist::ESTABLISHED } else { Gist::NOT_ESTABLISHED };
        if self.has_payload() {
            signs |= Gist::PAYLOAD;
        }
        if !self.events.is_empty() {
            signs |= Gist::EVENT;
        }
        if self.signs != 0 {
            signs |= Gist::SIGN;
        }
        Gist { signs, source_port: self.source_port, destination_port: self.destination_port }
    }

    /// Whether rules about payloads look at it.
    pub(crate) fn has_payload(&self) -> bool {
        (!self.payload.is_empty() || self.has_stream) && !self.is_opaque
    }

    /// Whether the packet is of `protocol`; one of an application is told by its stage instead.
    pub(crate) fn is_of(&self, protocol: Protocol) -> bool {
        let parsed = self.parsed;
        let is_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
        // Suricata knows of an IPv6 piece only that it is IP.
        let is_piece = parsed.network == Network::Ipv6 && parsed.fragment.is_some();
        let carries = |number: u8| is_ip && !is_piece && parsed.protocol == number;
        match protocol {
            Protocol::PacketHeader => true,
            Protocol::Ip => is_ip || parsed.rdma.is_some(),
            Protocol::Ipv4 => parsed.network == Network::Ipv4,
            Protocol::Ipv6 => parsed.network == Network::Ipv6,
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => {
                self.is_tcp() || carries(protocol::TCP)
            }
            Protocol::Udp => carries(17),
            Protocol::Icmp => carries(1) || carries(58),
            Protocol::Icmpv4 => carries(1),
            Protocol::Icmpv6 => carries(58),
            Protocol::Sctp => carries(protocol::SCTP),
            Protocol::Rdma => parsed.rdma.is_some() && parsed.fragment.is_none(),
            application => {
                let is_udp = carries(17);
                (self.is_tcp() && !application.is_of_datagrams_alone())
                    || (is_udp && application.is_of_datagrams())
            }
        }
    }

    /// Whether it is a piece of a datagram, which belongs to no flow until it is whole.
    pub(crate) fn is_piece(&self) -> bool {
        self.parsed.fragment.is_some()
    }

    /// Whether it carries what an application may say.
    pub(crate) fn may_speak(&self) -> bool {
        !self.is_piece() && (self.is_tcp() || self.is_of(Protocol::Udp))
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.transport(), Transport::Tcp { .. })
    }

    /// What a packet carries. A piece carries nothing: what the first one begins with is looked at
    /// with the whole datagram, as in Suricata.
    pub(crate) fn transport(&self) -> Transport {
        if self.is_piece() { Transport::None } else { self.parsed.transport }
    }

    /// Whether addresses and ports are as `header` says, in one direction or, if it says so, the
    /// other. Of a transaction it says them of the request.
    pub(crate) fn fits(&self, header: &Header, is_answer: bool) -> bool {
        // Those of a header that cannot be are 0.
        let has_ports = self.source_port != 0
            || self.destination_port != 0
            || self.is_of(Protocol::Tcp)
            || self.is_of(Protocol::Udp);
        let has_ports = has_ports && !self.is_piece();
        let one_way = |from, to| header.is_between(from, to, has_ports);
        let (source, destination) =
            ((self.source, self.source_port), (self.destination, self.destination_port));
        if header.is_transactional && is_answer {
            return one_way(destination, source);
        }
        one_way(source, destination) || (header.is_both_ways && one_way(destination, source))
    }

    /// Whether a field of the headers is as the rule says; a field that the packet lacks is none.
    pub(crate) fn holds(&self, test: &HeaderTest) -> bool {
        let ipv4 = || self.ipv4();
        let icmp = |at: usize| match self.transport() {
            Transport::Icmp { kind, code } if icmp::has_id(self.parsed.network, kind, code) => {
                self.icmp_word(at)
            }
            _ => None,
        };
        match test {
            HeaderTest::PayloadLen { numbers, is_there, .. } => {
                // One that nobody sees has a length, for who does not ask for a payload.
                let is_length = !is_there && (self.payload.is_empty() || numbers.contain(0));
                (self.has_payload() || is_length) && numbers.contain(self.payload.len() as u64)
            }
            HeaderTest::Ttl(numbers) => numbers.contain(self.parsed.hop_limit.into()),
            HeaderTest::TrafficClass(numbers) => {
                let is_v6 = self.parsed.network == Network::Ipv6;
                !is_v6 && numbers.contain(self.parsed.traffic_class.into())
            }
            HeaderTest::Ipv4Id(numbers) => {
                ipv4().is_some_and(|it| numbers.contain(it.id.get().into()))
            }
            HeaderTest::IpProtocol(numbers) => {
                let is_piece = self.parsed.network == Network::Ipv6 && self.is_piece();
                let own = if is_piece { protocol::FRAGMENT } else { self.parsed.protocol };
                // Of IPv4 the header's: an authentication header is none of its extensions.
                numbers.contain(ipv4().map_or(own, |it| it.protocol).into())
            }
            HeaderTest::FragmentBits { bits, how } => ipv4().is_some_and(|it| {
                let word = it.fragment.get();
                how.hold_of_fragment((word >> 13) as u8, *bits)
            }),
            HeaderTest::FragmentOffset(numbers) => {
                let offset = self.parsed.fragment.map(|it| it.offset / 8);
                // Only pieces of IPv6 have one.
                let is_v6 = self.parsed.network == Network::Ipv6;
                offset.or((!is_v6).then_some(0)).is_some_and(|it| numbers.contain(it.into()))
            }
            HeaderTest::IpOption(wanted) => self.has_ip_option(*wanted),
            HeaderTest::SameAddress => self.source == self.destination,
            HeaderTest::TcpFlags { bits, ignored, how } => match self.transport() {
                Transport::Tcp { flags, .. } => how.hold_of_segment(flags, *bits, *ignored),
                _ => false,
            },
            HeaderTest::TcpSequence(numbers) => match self.transport() {
                Transport::Tcp { sequence, .. } => numbers.contain(sequence.into()),
                _ => false,
            },
            HeaderTest::TcpAcknowledgment(numbers) => match self.transport() {
                Transport::Tcp { acknowledgment, .. } => numbers.contain(acknowledgment.into()),
                _ => false,
            },
            HeaderTest::TcpWindow(numbers) => self
                .tcp_header()
                .and_then(|it| it.get(14..16))
                .is_some_and(|it| numbers.contain(u16::from_be_bytes([it[0], it[1]]).into())),
            HeaderTest::TcpMss(numbers) => self.mss().is_some_and(|it| numbers.contain(it.into())),
            HeaderTest::IcmpType(numbers) => match self.transport() {
                Transport::Icmp { kind, .. } => numbers.contain(kind.into()),
                _ => false,
            },
            HeaderTest::IcmpCode(numbers) => match self.transport() {
                Transport::Icmp { code, .. } => numbers.contain(code.into()),
                _ => false,
            },
            HeaderTest::IcmpId(numbers) => icmp(4).is_some_and(|it| numbers.contain(it)),
            HeaderTest::IcmpSequence(numbers) => icmp(6).is_some_and(|it| numbers.contain(it)),
            _ => self.holds_more(test),
        }
    }

    /// The same, for what is not a field of a header.
    fn holds_more(&self, test: &HeaderTest) -> bool {
        match test {
            HeaderTest::IpVersion(numbers) => match self.parsed.network {
                Network::Ipv4 => numbers.contain(4),
                Network::Ipv6 => numbers.contain(6),
                _ => false,
            },
            HeaderTest::Rebuilt(wanted) => {
                self.parsed.fragment.is_none() && self.is_rebuilt == *wanted
            }
            HeaderTest::Rpc(test) => {
                (self.is_tcp() || self.is_of(Protocol::Udp))
                    && test.holds(self.payload, self.is_tcp())
            }
            HeaderTest::Event(event) => self.events.contains(event),
            HeaderTest::TcpShift(numbers) => {
                self.tcp_shift().is_some_and(|it| numbers.contain(it.into()))
            }
            HeaderTest::VlanCount(numbers) => numbers.contain(self.vlans.ids().len() as u64),
            HeaderTest::Vlan { numbers, layer } => {
                let ids = self.vlans.ids();
                let is_one =
                    |at: usize| ids.get(at).is_some_and(|it| numbers.contain((*it).into()));
                match layer {
                    VlanLayer::Any => (0..ids.len()).any(is_one),
                    VlanLayer::All => !ids.is_empty() && (0..ids.len()).all(is_one),
                    // The first layer that a packet has not behind others counts as 0.
                    VlanLayer::At(at) if *at >= 0 => {
                        let behind = (!ids.is_empty()).then_some(&0);
                        let id = ids.iter().chain(behind).nth(*at as usize);
                        id.is_some_and(|it| numbers.contain((*it).into()))
                    }
                    VlanLayer::At(at) => {
                        ids.len().checked_sub(at.unsigned_abs().into()).is_some_and(is_one)
                    }
                }
            }
            HeaderTest::Icmpv6Mtu(numbers) => match self.transport() {
                Transport::Icmp { kind: 2, .. } if self.parsed.protocol == 58 => {
                    let word = |at| self.icmp_word(at);
                    let mtu = word(4).zip(word(6)).map(|(high, low)| high << 16 | low);
                    mtu.is_some_and(|it| numbers.contain(it))
                }
                _ => false,
            },
            HeaderTest::Checksum { of, is_valid } => {
                let found = checksums::is_valid(*of, self.bytes, self.parsed);
                let is_left = self.is_verified && of.is_transport();
                found.map(|it| it || is_left) == Some(*is_valid)
            }
            HeaderTest::Reputation(test) => test.holds(self.source, self.destination),
            HeaderTest::Country(test) => test.holds(self.source, self.destination),
            HeaderTest::Sign { bit, .. } => self.signs >> bit & 1 == 1,
            HeaderTest::Rdma(test) => test.holds(self.bytes, self.parsed, self.operation),
            _ => false,
        }
    }

    /// The bytes of a buffer that a packet's headers fill.
    pub(crate) fn header_buffer(&self, buffer: Buffer) -> Option<&'a [u8]> {
        let network = usize::from(self.parsed.network_offset);
        let transport = usize::from(self.parsed.transport_offset);
        let payload = usize::from(self.parsed.payload_offset);
        let end = self.parsed.end as usize;
        let is_icmp = matches!(self.transport(), Transport::Icmp { .. });
        let range = match buffer {
            Buffer::IpSource | Buffer::IpDestination => {
                let address = match buffer {
                    Buffer::IpSource => &self.parsed.source,
                    _ => &self.parsed.destination,
                };
                return match self.parsed.network {
                    Network::Ipv4 => address.get(12..),
                    Network::Ipv6 => Some(address),
                    _ => None,
                };
            }
            Buffer::Ipv4Header if self.parsed.network == Network::Ipv4 => network..transport,
            Buffer::Ipv6Header if self.parsed.network == Network::Ipv6 => {
                // As Suricata has it: without the header of a fragment.
                let of_fragment = if self.parsed.fragment.is_some() { 8 } else { 0 };
                network..transport.saturating_sub(of_fragment)
            }
            Buffer::TcpHeader if self.is_tcp() => transport..payload,
            Buffer::UdpHeader
                if self.is_of(Protocol::Udp) && self.transport() != Transport::None =>
            {
                transport..transport + 8
            }
            Buffer::Icmpv4Header if is_icmp && self.parsed.protocol == 1 => {
                let message = self.bytes.get(transport..end)?;
                transport..(transport + icmp::header_len(message)).min(end)
            }
            Buffer::Icmpv6Header if is_icmp && self.parsed.protocol == 58 => {
                transport..transport + 8
            }
            _ => return None,
        };
        self.bytes.get(range)
    }

    fn ipv4(&self) -> Option<&Ipv4Header> {
        if self.parsed.network != Network::Ipv4 {
            return None;
        }
        let bytes = self.bytes.get(usize::from(self.parsed.network_offset)..)?;
        Ipv4Header::ref_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    fn tcp_header(&self) -> Option<&[u8]> {
        let start = usize::from(self.parsed.transport_offset);
        let header = self.bytes.get(start..usize::from(self.parsed.payload_offset))?;
        self.is_tcp().then_some(header)
    }

    fn mss(&self) -> Option<u16> {
        let header = self.tcp_header()?;
        let at = weir_wire::tcp::mss_offset(header)?;
        Some(u16::from_be_bytes([header[at], *header.get(at + 1)?]))
    }

    fn icmp_word(&self, at: usize) -> Option<u64> {
        let start = usize::from(self.parsed.transport_offset) + at;
        let word = self.bytes.get(start..start + 2)?;
        Some(u16::from_be_bytes([word[0], word[1]]).into())
    }

    /// A segment's window, as it is written.
    pub(crate) fn tcp_window(&self) -> u16 {
        let bytes = self.tcp_header().and_then(|it| it.get(14..16));
        bytes.map_or(0, |it| u16::from_be_bytes([it[0], it[1]]))
    }

    /// How the sender of a SYN shifts its windows, if it does.
    pub(crate) fn tcp_shift(&self) -> Option<u8> {
        const WINDOW_SCALE: u8 = 3;
        self.tcp_option(WINDOW_SCALE, 3..=3)?.get(2).copied()
    }

    /// Whether it is a SYN, or the answer to one.
    pub(crate) fn is_syn(&self) -> bool {
        let Transport::Tcp { flags: seen, .. } = self.parsed.transport else { return false };
        seen & flags::SYN != 0
    }

    /// Whether it is a SYN with data that asks for TCP Fast Open: some servers take them without
    /// a cookie too, and their answer tells (RFC 7413 s4.1).
    pub(crate) fn has_early_data(&self) -> bool {
        let Transport::Tcp { flags: seen, .. } = self.parsed.transport else { return false };
        seen & (flags::SYN | flags::ACK) == flags::SYN
            && !self.payload.is_empty()
            && self.asks_early()
    }

    /// Whether a segment has the option of TCP Fast Open.
    pub(crate) fn asks_early(&self) -> bool {
        const FAST_OPEN: u8 = 34;
        self.tcp_option(FAST_OPEN, 2..=u8::MAX).is_some()
    }

    /// The timestamps option of a TCP segment: value and echo.
    pub(crate) fn tcp_timestamps(&self) -> Option<(u32, u32)> {
        const TIMESTAMPS: u8 = 8;
        // Of several the last counts (Linux).
        let option = self.tcp_options(TIMESTAMPS, 10..=10).last()?;
        let number = |at: usize| option.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
        number(2).zip(number(6))
    }

    /// The first TCP option of that kind with such a length, from its kind on.
    fn tcp_option(&self, kind: u8, lengths: RangeInclusive<u8>) -> Option<&[u8]> {
        self.tcp_options(kind, lengths).next()
    }

    /// All of them. Behind a length that none can have, receivers read no further.
    fn tcp_options(
        &self,
        kind: u8,
        lengths: RangeInclusive<u8>,
    ) -> impl Iterator<Item = &[u8]> + '_ {
        let mut rest = self.tcp_header().and_then(|it| it.get(20..)).unwrap_or_default();
        std::iter::from_fn(move || {
            loop {
                let (found, behind) = match rest {
                    [1, behind @ ..] => (&rest[..1], behind),
                    [] | [0, ..] | [_] | [_, 0 | 1, ..] => return None,
                    [_, length, ..] => rest.split_at_checked(usize::from(*length))?,
                };
                rest = behind;
                if matches!(found, [it, length, ..] if *it == kind && lengths.contains(length)) {
                    return Some(found);
                }
            }
        })
    }

    /// Whether it is the last of its side in its connection.
    pub(crate) fn closes(&self) -> bool {
        let ends = flags::FIN | flags::RST;
        matches!(self.transport(), Transport::Tcp { flags, .. } if flags & ends != 0)
    }

    /// Whether it ends its connection at once.
    pub(crate) fn is_reset(&self) -> bool {
        matches!(self.transport(), Transport::Tcp { flags, .. } if flags & flags::RST != 0)
    }

    /// Whether a TCP segment says that there are urgent data (RFC 9293 s3.8.5). With a pointer of
    /// 0, Linux takes its first byte for urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        let Transport::Tcp { flags: seen, .. } = self.parsed.transport else { return false };
        seen & flags::URG != 0
    }

    fn has_ip_option(&self, wanted: u8) -> bool {
        let Some(header) = self.ipv4() else { return false };
        let start = usize::from(self.parsed.network_offset);
        let range = start + Ipv4Header::LEN..start + header.header_len();
        let mut options = self.bytes.get(range).unwrap_or_default();
        if wanted == u8::MAX {
            return !options.is_empty();
        }
        while let [kind, rest @ ..] = options {
            if *kind == wanted {
                return true;
            }
            let length = match kind {
                0 => return false,
                1 => 1,
                _ => usize::from(rest.first().copied().unwrap_or_default()).max(2),
            };
            options = options.get(length..).unwrap_or_default();
        }
        false
    }
}

/// What a packet of IP says: what stands behind the transport's header, and for messages of ICMP
/// behind what their type has there ([`icmp`]). A piece says nothing until the datagram is whole,
/// and who carries packets leaves it to them.
pub fn said<'a>(parsed: &Parsed, bytes: &'a [u8]) -> &'a [u8] {
    if parsed.fragment.is_some() || carries_packets(parsed) {
        return &[];
    }
    if parsed.protocol == protocol::UDP {
        return checksums::datagram(parsed, bytes);
    }
    let start = icmp::payload_offset(parsed, bytes);
    let start = start.unwrap_or(usize::from(parsed.payload_offset));
    let left = bytes.get(start..parsed.end as usize).unwrap_or_default();
    &left[header_len(parsed, left.len())..]
}

/// Of the bytes that the walk left, so many are a header's, as in Suricata 8.0.7: SCTP has twelve
/// (RFC 9260 s3), and what stands behind "no next header" is nothing's (RFC 8200 s4.7).
fn header_len(parsed: &Parsed, left: usize) -> usize {
    let is_v6 = parsed.network == Network::Ipv6;
    match parsed.protocol {
        protocol::SCTP => left.min(12),
        protocol::NO_NEXT_HEADER if is_v6 => left,
        _ => 0,
    }
}

/// Whether it is a tunnel of IP: what is in it is looked at by itself.
fn carries_packets(parsed: &Parsed) -> bool {
    matches!(parsed.protocol, protocol::IPV4 | protocol::IPV6 | protocol::GRE)
}

/// Its ports. A piece of a datagram has none: what the first begins with is looked at, and told,
/// with the whole, as in Suricata.
pub(crate) fn ports(parsed: &Parsed, bytes: &[u8]) -> (u16, u16) {
    match parsed.transport {
        _ if parsed.fragment.is_some() => (0, 0),
        Transport::None if parsed.protocol == protocol::SCTP => {
            match bytes.get(usize::from(parsed.transport_offset)..) {
                Some([a, b, c, d, ..]) => {
                    (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
                }
                _ => (0, 0),
            }
        }
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source, destination)
        }
        _ => (0, 0),
    }
}
