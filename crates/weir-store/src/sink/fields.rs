//! Information elements of 5-tuple records: which there are, how long, and what stands in them.
//!
//! A template is a list of [`Field`]s; the list writes both the template and the records, so the
//! two cannot disagree. Element numbers: IANA "IP Flow Information Export (IPFIX) Entities", whose
//! first 127 are NetFlow v9's (RFC 3954 s8).

use weir_engine::flow::{FlowCounters, FlowDirection, Reason};
use weir_engine::meter::FlowRecord;
use weir_engine::verdict::Side;
use weir_wire::frame::Time;

use super::encoder::Interfaces;

/// Whose number an element has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IANA's.
    Iana(u16),
    /// The same of the opposite direction (RFC 5103 s6.1).
    Reverse(u16),
    /// One of `docs/ipfix-rdma.md`, under the enterprise number of [`super::EncoderOptions`].
    Rdma(u16),
}

/// The enterprise number that marks a reverse element (RFC 5103 s6.1).
pub const REVERSE_ENTERPRISE: u32 = 29305;

/// One field of a template.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    /// Its name in the registry or in `docs/ipfix-rdma.md`.
    pub name: &'static str,
    /// Its number.
    pub element: Element,
    /// Its length in bytes.
    pub length: u16,
    /// What stands in it.
    pub value: Value<T>,
}

/// Where a field's value comes from.
#[derive(Clone, Copy, Debug)]
pub enum Value<T> {
    /// A number; the greatest that fits when it does not.
    Number(fn(&T) -> u64),
    /// An address; of an IPv4-mapped one the last four bytes where the field has four.
    Address(fn(&T) -> [u8; 16]),
}

impl<T> Field<T> {
    pub(crate) const fn number(
        name: &'static str,
        element: Element,
        length: u16,
        value: fn(&T) -> u64,
    ) -> Self {
        Self { name, element, length, value: Value::Number(value) }
    }

    pub(crate) const fn address(
        name: &'static str,
        element: Element,
        length: u16,
        value: fn(&T) -> [u8; 16],
    ) -> Self {
        Self { name, element, length, value: Value::Address(value) }
    }

    /// Appends the value of `view`.
    pub(crate) fn write(&self, view: &T, out: &mut Vec<u8>) {
        let length = usize::from(self.length);
        match self.value {
            Value::Address(address) => out.extend_from_slice(&address(view)[16 - length..]),
            Value::Number(number) => {
                let most = if length >= 8 { u64::MAX } else { (1 << (8 * length)) - 1 };
                let bytes = number(view).min(most).to_be_bytes();
                out.extend_from_slice(&bytes[8 - length..]);
            }
        }
    }
}

/// Bytes of a record of `fields`.
pub(crate) fn record_bytes<T>(fields: &[Field<T>]) -> usize {
    fields.iter().map(|field| usize::from(field.length)).sum()
}

/// One direction of a [`FlowRecord`], as a record of its own sees it.
#[derive(Clone, Copy, Debug)]
pub struct FlowView {
    /// The record.
    pub record: FlowRecord,
    /// The direction that is "forward" here.
    pub direction: FlowDirection,
    /// Where the record was made.
    pub interfaces: Interfaces,
    /// When the exporter started: what system uptimes count from.
    pub boot: Time,
}

impl FlowView {
    /// Counters of the forward direction.
    pub fn forward(&self) -> &FlowCounters {
        &self.record.counters[self.direction.index()]
    }

    /// Counters of the other direction.
    pub fn reverse(&self) -> &FlowCounters {
        &self.record.counters[self.direction.reversed().index()]
    }

    /// Address and port that the forward direction comes from.
    pub fn source(&self) -> ([u8; 16], u16) {
        match self.direction {
            FlowDirection::AToB => (self.record.key.address_a(), self.record.key.port_a()),
            FlowDirection::BToA => (self.record.key.address_b(), self.record.key.port_b()),
        }
    }

    /// Address and port that it goes to.
    pub fn destination(&self) -> ([u8; 16], u16) {
        let reversed = Self { direction: self.direction.reversed(), ..*self };
        reversed.source()
    }

    /// Bytes of `counters` without link headers: what octet counters mean (RFC 7012, element 1).
    /// Exact for packets that were neither padded nor coalesced on their way to the meter.
    pub fn network_octets(&self, counters: &FlowCounters) -> u64 {
        let tags = self.record.key.vlans().iter().filter(|vlan| **vlan != 0).count() as u64;
        let headers = counters.packets.saturating_mul(ETHERNET_BYTES + VLAN_TAG_BYTES * tags);
        counters.bytes.saturating_sub(headers)
    }

    /// Interface index that the forward direction comes in by; zero: not known.
    pub fn ingress(&self) -> u32 {
        self.interfaces.of(self.ingress_side())
    }

    /// Interface index that it leaves by.
    pub fn egress(&self) -> u32 {
        self.interfaces.of(self.ingress_side().map(opposite))
    }

    fn ingress_side(&self) -> Option<Side> {
        let side = self.record.side?;
        Some(if self.direction == self.record.initiator { side } else { opposite(side) })
    }

    /// Milliseconds of `time` since the exporter started, modulo 2^32 (RFC 3954 s5.1).
    pub fn uptime_ms(&self, time: Time) -> u32 {
        uptime_ms(self.boot, time)
    }
}

const ETHERNET_BYTES: u64 = 14;
const VLAN_TAG_BYTES: u64 = 4;

pub(crate) fn opposite(side: Side) -> Side {
    match side {
        Side::Host => Side::Wire,
        Side::Wire => Side::Host,
    }
}

/// Milliseconds from `boot` to `time`, modulo 2^32; both are cut to milliseconds first, so that a
/// collector that adds them up gets `time` back. What lies before `boot` counts as `boot`.
pub(crate) fn uptime_ms(boot: Time, time: Time) -> u32 {
    (time.0 / NS_PER_MS).saturating_sub(boot.0 / NS_PER_MS) as u32
}

pub(crate) const NS_PER_MS: u64 = 1_000_000;
pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// flowEndReason (RFC 5102 s5.11.3): 1 idle, 2 active, 3 end of flow, 4 forced end, 5 lack of
/// resources.
pub(crate) fn end_reason(reason: Reason) -> u64 {
    match reason {
        Reason::Idle => 1,
        Reason::Active => 2,
        Reason::Superseded => 3,
        Reason::Flushed => 4,
        Reason::Evicted => 5,
    }
}

/// Whether an address is IPv4 in IPv6's form.
pub fn is_ipv4(address: &[u8; 16]) -> bool {
    address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

use Element::{Iana, Reverse};

type FlowField = Field<FlowView>;

const SOURCE_V4: FlowField = Field::address("sourceIPv4Address", Iana(8), 4, |it| it.source().0);
const DESTINATION_V4: FlowField =
    Field::address("destinationIPv4Address", Iana(12), 4, |it| it.destination().0);
const SOURCE_V6: FlowField = Field::address("sourceIPv6Address", Iana(27), 16, |it| it.source().0);
const DESTINATION_V6: FlowField =
    Field::address("destinationIPv6Address", Iana(28), 16, |it| it.destination().0);
const SOURCE_PORT: FlowField =
    Field::number("sourceTransportPort", Iana(7), 2, |it| it.source().1.into());
const DESTINATION_PORT: FlowField =
    Field::number("destinationTransportPort", Iana(11), 2, |it| it.destination().1.into());
const PROTOCOL: FlowField =
    Field::number("protocolIdentifier", Iana(4), 1, |it| it.record.key.protocol().into());
const VLAN: FlowField = Field::number("vlanId", Iana(58), 2, |it| it.record.key.vlans()[0].into());
const CUSTOMER_VLAN: FlowField =
    Field::number("dot1qCustomerVlanId", Iana(245), 2, |it| it.record.key.vlans()[1].into());
const INGRESS: FlowField = Field::number("ingressInterface", Iana(10), 4, |it| it.ingress().into());
const EGRESS: FlowField = Field::number("egressInterface", Iana(14), 4, |it| it.egress().into());
const OCTETS: FlowField =
    Field::number("octetDeltaCount", Iana(1), 8, |it| it.network_octets(it.forward()));
const PACKETS: FlowField = Field::number("packetDeltaCount", Iana(2), 8, |it| it.forward().packets);
const LINK_OCTETS: FlowField =
    Field::number("layer2OctetDeltaCount", Iana(352), 8, |it| it.forward().bytes);
const TCP_FLAGS: FlowField =
    Field::number("tcpControlBits", Iana(6), 1, |it| it.forward().tcp_flags.into());
const TRAFFIC_CLASS: FlowField =
    Field::number("ipClassOfService", Iana(5), 1, |it| it.forward().traffic_class.into());
const END_REASON: FlowField =
    Field::number("flowEndReason", Iana(136), 1, |it| end_reason(it.record.reason));
const START_MS: FlowField =
    Field::number("flowStartMilliseconds", Iana(152), 8, |it| it.record.started.0 / NS_PER_MS);
const END_MS: FlowField =
    Field::number("flowEndMilliseconds", Iana(153), 8, |it| it.record.last.0 / NS_PER_MS);
const START_UPTIME: FlowField =
    Field::number("flowStartSysUpTime", Iana(22), 4, |it| it.uptime_ms(it.record.started).into());
const END_UPTIME: FlowField =
    Field::number("flowEndSysUpTime", Iana(21), 4, |it| it.uptime_ms(it.record.last).into());
const BIFLOW_DIRECTION: FlowField = Field::number("biflowDirection", Iana(239), 1, |_| INITIATOR);
const REVERSE_OCTETS: FlowField =
    Field::number("reverseOctetDeltaCount", Reverse(1), 8, |it| it.network_octets(it.reverse()));
const REVERSE_PACKETS: FlowField =
    Field::number("reversePacketDeltaCount", Reverse(2), 8, |it| it.reverse().packets);
const REVERSE_LINK_OCTETS: FlowField =
    Field::number("reverseLayer2OctetDeltaCount", Reverse(352), 8, |it| it.reverse().bytes);
const REVERSE_TCP_FLAGS: FlowField =
    Field::number("reverseTcpControlBits", Reverse(6), 1, |it| it.reverse().tcp_flags.into());
const REVERSE_TRAFFIC_CLASS: FlowField =
    Field::number("reverseIpClassOfService", Reverse(5), 1, |it| it.reverse().traffic_class.into());

/// biflowDirection (RFC 5103 s6.3): the source is who began.
const INITIATOR: u64 = 1;

/// NetFlow v9, IPv4.
pub(crate) static NETFLOW_V4: &[FlowField] = &[
    SOURCE_V4,
    DESTINATION_V4,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    INGRESS,
    EGRESS,
    START_UPTIME,
    END_UPTIME,
    PACKETS,
    OCTETS,
];

/// NetFlow v9, IPv6.
pub(crate) static NETFLOW_V6: &[FlowField] = &[
    SOURCE_V6,
    DESTINATION_V6,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    INGRESS,
    EGRESS,
    START_UPTIME,
    END_UPTIME,
    PACKETS,
    OCTETS,
];

/// IPFIX, one direction, IPv4.
pub(crate) static IPFIX_V4: &[FlowField] = &[
    SOURCE_V4,
    DESTINATION_V4,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    CUSTOMER_VLAN,
    INGRESS,
    EGRESS,
    START_MS,
    END_MS,
    END_REASON,
    PACKETS,
    OCTETS,
    LINK_OCTETS,
];

/// IPFIX, one direction, IPv6.
pub(crate) static IPFIX_V6: &[FlowField] = &[
    SOURCE_V6,
    DESTINATION_V6,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    CUSTOMER_VLAN,
    INGRESS,
    EGRESS,
    START_MS,
    END_MS,
    END_REASON,
    PACKETS,
    OCTETS,
    LINK_OCTETS,
];

/// IPFIX, both directions (RFC 5103), IPv4.
pub(crate) static BIFLOW_V4: &[FlowField] = &[
    SOURCE_V4,
    DESTINATION_V4,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    CUSTOMER_VLAN,
    INGRESS,
    EGRESS,
    START_MS,
    END_MS,
    END_REASON,
    BIFLOW_DIRECTION,
    PACKETS,
    OCTETS,
    LINK_OCTETS,
    REVERSE_PACKETS,
    REVERSE_OCTETS,
    REVERSE_LINK_OCTETS,
    REVERSE_TCP_FLAGS,
    REVERSE_TRAFFIC_CLASS,
];

/// IPFIX, both directions (RFC 5103), IPv6.
pub(crate) static BIFLOW_V6: &[FlowField] = &[
    SOURCE_V6,
    DESTINATION_V6,
    SOURCE_PORT,
    DESTINATION_PORT,
    PROTOCOL,
    TRAFFIC_CLASS,
    TCP_FLAGS,
    VLAN,
    CUSTOMER_VLAN,
    INGRESS,
    EGRESS,
    START_MS,
    END_MS,
    END_REASON,
    BIFLOW_DIRECTION,
    PACKETS,
    OCTETS,
    LINK_OCTETS,
    REVERSE_PACKETS,
    REVERSE_OCTETS,
    REVERSE_LINK_OCTETS,
    REVERSE_TCP_FLAGS,
    REVERSE_TRAFFIC_CLASS,
];
