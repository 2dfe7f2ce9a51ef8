//! What the elements of a record mean: a row of the store.
//!
//! Numbers are IANA's (NetFlow v9's are the first 127 of them), their reverse forms (RFC 5103) and
//! those of `docs/ipfix-rdma.md`.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use netflow_parser::static_versions::v5;
use netflow_parser::variable_versions::ipfix::lookup::IPFixField;
use netflow_parser::{FieldValue, IpfixFlowRecord, V9FlowRecord};

use crate::sink::fields::Element::{self, Iana, Rdma, Reverse};
use crate::sink::fields::REVERSE_ENTERPRISE;
use crate::sink::rdma::UNKNOWN_QUEUE_PAIR;
use crate::sqlite::{Collected, ConversationRow, FlowRow};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The most that a count of a record can be: a terabit a second for half a day. Whoever tells of
/// more tells stories, and they must not overflow what adds them up.
const COUNT_MAX: u64 = 1 << 52;

/// Link header that octet counters leave out (IANA element 1 counts from the IP header on).
const ETHERNET_BYTES: u64 = 14;

/// IANA's numbers that are read.
const IANA: &[u16] = &[
    1, 2, 4, 6, 7, 8, 11, 12, 21, 22, 23, 24, 27, 28, 58, 61, 85, 86, 136, 148, 150, 151, 152, 153,
    154, 155, 156, 157, 158, 159, 160, 352,
];

/// What fields of a template mean, by what the parser calls them.
#[derive(Debug)]
pub(super) struct Meanings(HashMap<IPFixField, Element>);

impl Meanings {
    pub(super) fn new(enterprise: u32) -> Self {
        let iana = IANA.iter().map(|it| (IPFixField::new(*it, None), Iana(*it)));
        let reverse =
            [1, 2, 6, 352].map(|it| (IPFixField::new(it, Some(REVERSE_ENTERPRISE)), Reverse(it)));
        let rdma = (1..=57).map(|it| (IPFixField::new(it, Some(enterprise)), Rdma(it)));
        Self(iana.chain(reverse).chain(rdma).collect())
    }
}

/// A record's elements, as numbers: addresses have 16 bytes, all else is at most as long.
#[derive(Debug, Default)]
pub(super) struct Elements(Vec<(Element, u128)>);

impl Elements {
    pub(super) fn of_ipfix(record: &IpfixFlowRecord, meanings: &Meanings) -> Self {
        let known = record.iter().filter_map(|(field, value)| {
            let element = meanings.0.get(field)?;
            number(value).map(|bits| (*element, bits))
        });
        Self(known.collect())
    }

    pub(super) fn of_v9(record: &V9FlowRecord) -> Self {
        let known = record.iter().filter_map(|(field, value)| {
            let element = u16::from(*field);
            let bits = number(value)?;
            IANA.contains(&element).then_some((Iana(element), bits))
        });
        Self(known.collect())
    }

    /// Whether it says that its packets were seen where they leave the exporter.
    pub(super) fn is_egress(&self) -> bool {
        self.find(Iana(61)) == Some(1)
    }

    fn find(&self, wanted: Element) -> Option<u128> {
        self.0.iter().find(|(element, _)| *element == wanted).map(|(_, bits)| *bits)
    }

    fn bits(&self, wanted: Element) -> Option<u64> {
        self.find(wanted).map(|bits| u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Of packets, bytes or the like, [`COUNT_MAX`] at most.
    fn count(&self, wanted: Element) -> Option<u64> {
        self.bits(wanted).map(|it| it.min(COUNT_MAX))
    }

    fn of(&self, wanted: Element) -> u64 {
        self.count(wanted).unwrap_or(0)
    }

    fn rdma(&self, number: u16) -> u64 {
        self.of(Rdma(number))
    }

    fn small(&self, wanted: Element) -> u16 {
        u16::try_from(self.of(wanted)).unwrap_or(u16::MAX)
    }

    /// An address, IPv4 mapped.
    fn address(&self, v4: u16, v6: u16) -> Option<[u8; 16]> {
        if let Some(bits) = self.find(Iana(v4)) {
            return Some(mapped(Ipv4Addr::from_bits(bits as u32)));
        }
        self.find(Iana(v6)).map(u128::to_be_bytes)
    }

    fn link_bytes(&self, octets: &[Element], link: Element, packets: u64) -> u64 {
        let of_network = || {
            let octets = octets.iter().find_map(|it| self.count(*it)).unwrap_or(0);
            octets.saturating_add(packets.saturating_mul(ETHERNET_BYTES))
        };
        self.count(link).unwrap_or_else(of_network)
    }
}

fn mapped(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

/// A value as the bytes on the wire, big-endian; `None`: longer than an address.
fn number(value: &FieldValue) -> Option<u128> {
    let mut bytes = Vec::with_capacity(16);
    value.write_be_bytes(&mut bytes).ok()?;
    if bytes.len() > 16 {
        return None;
    }
    Some(bytes.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}

/// When a message was made, by the exporter's clock.
#[derive(Debug)]
pub(super) struct Stamp {
    exported_ns: u64,
    /// When the exporter started; absent: it did not say.
    boot_ns: Option<u64>,
    now_ns: u64,
}

impl Stamp {
    pub(super) fn new(export_s: u32, uptime_ms: Option<u32>, now_ns: u64) -> Self {
        let exported_ns = u64::from(export_s) * NS_PER_S;
        let boot_ns = uptime_ms.map(|ms| exported_ns.saturating_sub(u64::from(ms) * NS_PER_MS));
        Self { exported_ns, boot_ns, now_ns }
    }

    pub(super) fn of_v5(header: &v5::Header, now_ns: u64) -> Self {
        let exported_ns = u64::from(header.unix_secs) * NS_PER_S + u64::from(header.unix_nsecs);
        let uptime_ns = u64::from(header.sys_up_time) * NS_PER_MS;
        Self { exported_ns, boot_ns: Some(exported_ns.saturating_sub(uptime_ns)), now_ns }
    }

    /// A record of NetFlow v5.
    pub(super) fn v5(&self, flow: &v5::FlowSet) -> FlowRow {
        let time = |ms: u32| {
            let boot_ns = self.boot_ns.unwrap_or(self.exported_ns);
            boot_ns.saturating_add(u64::from(ms) * NS_PER_MS)
        };
        let packets = u64::from(flow.d_pkts);
        FlowRow {
            started_ns: self.within(time(flow.first)),
            last_ns: self.within(time(flow.last)),
            protocol: flow.protocol_number,
            source: mapped(flow.src_addr),
            source_port: flow.src_port,
            destination: mapped(flow.dst_addr),
            destination_port: flow.dst_port,
            packets,
            bytes: u64::from(flow.d_octets).saturating_add(packets * ETHERNET_BYTES),
            tcp_flags: flow.tcp_flags,
            reason: "exported".to_owned(),
            ..FlowRow::default()
        }
    }

    /// A row of `elements`; `None`: they name no addresses.
    pub(super) fn row(&self, elements: &Elements) -> Option<Collected> {
        let source = elements.address(8, 27)?;
        let destination = elements.address(12, 28)?;
        let (started_ns, last_ns) = self.times(elements);
        if elements.find(Rdma(3)).is_some() {
            let row = conversation(elements);
            return Some(Collected::Conversation(ConversationRow {
                source,
                destination,
                started_ns,
                last_ns,
                ..row
            }));
        }
        let count =
            |numbers: &[u16]| numbers.iter().find_map(|it| elements.count(Iana(*it))).unwrap_or(0);
        let (packets, reply_packets) = (count(&[2, 86, 24]), elements.of(Reverse(2)));
        let octets = [Iana(1), Iana(85), Iana(23)];
        let reply_bytes = match reply_packets {
            0 => 0,
            packets => elements.link_bytes(&[Reverse(1)], Reverse(352), packets),
        };
        Some(Collected::Flow(FlowRow {
            started_ns,
            last_ns,
            protocol: elements.of(Iana(4)) as u8,
            source,
            source_port: elements.small(Iana(7)),
            destination,
            destination_port: elements.small(Iana(11)),
            vlan: elements.small(Iana(58)),
            packets,
            bytes: elements.link_bytes(&octets, Iana(352), packets),
            reply_packets,
            reply_bytes,
            tcp_flags: (elements.of(Iana(6)) | elements.of(Reverse(6))) as u8,
            reason: reason(elements.of(Iana(136))).to_owned(),
            ..FlowRow::default()
        }))
    }

    fn times(&self, elements: &Elements) -> (u64, u64) {
        let time = |seconds: u16, ms: u16, micro: u16, nano: u16, uptime: u16, delta: u16| {
            let absolute = elements
                .bits(Iana(ms))
                .map(|it| it.saturating_mul(NS_PER_MS))
                .or_else(|| elements.bits(Iana(seconds)).map(|it| it.saturating_mul(NS_PER_S)))
                .or_else(|| elements.bits(Iana(micro)).map(ntp_ns))
                .or_else(|| elements.bits(Iana(nano)).map(ntp_ns));
            let boot_ns = elements.bits(Iana(160)).map(|ms| ms.saturating_mul(NS_PER_MS));
            let relative = || {
                let boot_ns = boot_ns.or(self.boot_ns)?;
                let ms = elements.bits(Iana(uptime))?;
                Some(boot_ns.saturating_add(ms.saturating_mul(NS_PER_MS)))
            };
            let before = || {
                let ago_us = elements.bits(Iana(delta))?;
                Some(self.exported_ns.saturating_sub(ago_us.saturating_mul(1000)))
            };
            absolute.or_else(relative).or_else(before).unwrap_or(self.exported_ns)
        };
        let last = self.within(time(151, 153, 155, 157, 21, 159));
        (self.within(time(150, 152, 154, 156, 22, 158)).min(last), last)
    }

    /// A time that the exporter says. One from the future, or from before its message by more than
    /// a day, is a clock that is wrong: records with it would never, or at once, be too old.
    fn within(&self, time_ns: u64) -> u64 {
        let is_sane = time_ns <= self.now_ns + 60 * NS_PER_S
            && time_ns >= self.now_ns.saturating_sub(86_400 * NS_PER_S);
        if is_sane { time_ns } else { self.now_ns }
    }
}

/// NTP's format (RFC 7011 s6.1.9, s6.1.10): seconds since 1900, and a fraction.
fn ntp_ns(bits: u64) -> u64 {
    const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
    let seconds = (bits >> 32).saturating_sub(SECONDS_1900_TO_1970);
    seconds * NS_PER_S + (((bits & 0xffff_ffff) * NS_PER_S) >> 32)
}

fn reason(number: u64) -> &'static str {
    match number {
        1 => "idle",
        2 => "active",
        3 => "superseded",
        4 => "flushed",
        5 => "evicted",
        _ => "exported",
    }
}

/// One direction of a conversation; addresses and times are the caller's.
fn conversation(elements: &Elements) -> ConversationRow {
    let rdma = |number| elements.rdma(number);
    let naks = (31..=35).map(rdma).fold(0, u64::saturating_add);
    ConversationRow {
        encapsulation: match rdma(1) {
            1 => "roce_v1",
            2 => "roce_v2",
            _ => "infiniband",
        }
        .to_owned(),
        service: match rdma(2) {
            0 => "rc",
            1 => "uc",
            2 => "rd",
            3 => "ud",
            4 => "cnp",
            5 => "xrc",
            _ => "other",
        }
        .to_owned(),
        source_qp: Some(rdma(4)).filter(|it| *it < UNKNOWN_QUEUE_PAIR).map(|it| it as u32),
        destination_qp: rdma(3) as u32 & 0x00ff_ffff,
        vlan: elements.small(Iana(58)),
        partition_key: elements.small(Rdma(5)),
        path_mtu: elements.small(Rdma(7)),
        packets: rdma(52),
        bytes: rdma(53),
        payload_bytes: rdma(9),
        messages: rdma(10),
        send_bytes: rdma(12),
        write_bytes: rdma(14),
        read_bytes: rdma(18),
        atomic_bytes: rdma(20),
        retransmissions: rdma(25),
        naks,
        rnr_naks: rdma(37),
        cnp: rdma(38),
        congestion_marks: rdma(39),
        missing: rdma(28),
        icrc_bad: rdma(40),
        response_ns: Some(rdma(45)).filter(|it| *it > 0),
        reason: reason(elements.of(Iana(136))).to_owned(),
        flow_id: elements.bits(Iana(148)),
        ..ConversationRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_of_a_record_is_more_than_can_be_and_times_are_as_they_were() {
        let (now_ns, all) = (1_700_000_000 * NS_PER_S, u128::from(u64::MAX));
        let stamp = Stamp::new(1_700_000_000, None, now_ns);
        let ends = [(Iana(8), 1), (Iana(12), 2), (Iana(153), u128::from(now_ns / NS_PER_MS - 7))];
        let flow = [(Iana(1), all), (Iana(2), all), (Reverse(2), all), (Reverse(1), all)];
        let Some(Collected::Flow(row)) = stamp.row(&Elements([&ends[..], &flow].concat())) else {
            panic!("a flow")
        };
        assert_eq!((row.packets, row.reply_packets), (COUNT_MAX, COUNT_MAX));
        assert_eq!([row.bytes, row.reply_bytes], [15 * COUNT_MAX; 2]);
        assert_eq!(row.last_ns, now_ns - 7 * NS_PER_MS);
        let pair = [(Rdma(3), 18), (Rdma(53), all), (Rdma(25), all), (Iana(148), all)];
        let row = stamp.row(&Elements([&ends[..], &pair].concat()));
        let Some(Collected::Conversation(row)) = row else { panic!("a conversation") };
        assert_eq!((row.bytes, row.retransmissions), (COUNT_MAX, COUNT_MAX));
        assert_eq!(row.flow_id, Some(u64::MAX), "it is no count");
    }
}
