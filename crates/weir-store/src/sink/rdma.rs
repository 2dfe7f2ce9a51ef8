//! Information elements of queue-pair conversations, as `docs/ipfix-rdma.md` describes them.
//!
//! A conversation becomes one record a direction: enterprise elements have no reverse form
//! (RFC 5103 s6.1 reverses IANA's only). `flowId` is the same in both, and each names both queue
//! pairs where they are known.
//!
//! Packets and bytes stand in enterprise elements only: RoCE v2 packets are in the 5-tuple records
//! too, and a collector that adds up IANA's counters must not count them twice.

use weir_engine::meter::{ConversationRecord, DirectionRecord};
use weir_engine::rdma::Joined;
use weir_engine::verdict::Side;
use weir_wire::bth::Service;
use weir_wire::parse::Encapsulation;

use super::encoder::Interfaces;
use super::fields::Element::{Iana, Rdma};
use super::fields::{Field, NS_PER_MS, end_reason, opposite};

/// A queue pair that is not known.
pub const UNKNOWN_QUEUE_PAIR: u64 = 0xffff_ffff;

/// UDP destination port of RoCE v2 (IBTA Annex A17).
const ROCE_V2_PORT: u64 = 4791;

/// One direction of a [`ConversationRecord`].
#[derive(Clone, Copy, Debug)]
pub struct RdmaView {
    /// The record.
    pub record: ConversationRecord,
    /// Whether this is the direction seen second.
    pub is_second: bool,
    /// The same for both directions.
    pub flow_id: u64,
    /// Where the record was made.
    pub interfaces: Interfaces,
}

impl RdmaView {
    /// The direction that this record is of.
    pub fn own(&self) -> &DirectionRecord {
        match &self.record.second {
            Some(second) if self.is_second => second,
            _ => &self.record.first,
        }
    }

    /// The queue pair that sends: named by the datagram, or the one that the other direction
    /// is for.
    fn source_queue_pair(&self) -> u64 {
        let other =
            if self.is_second { Some(&self.record.first) } else { self.record.second.as_ref() };
        let named = self.own().key.source_qp();
        named
            .or(other.map(|other| other.key.destination_qp()))
            .map_or(UNKNOWN_QUEUE_PAIR, |qpn| qpn.value().into())
    }

    fn ingress_side(&self) -> Option<Side> {
        let side = self.record.side?;
        Some(if self.is_second { opposite(side) } else { side })
    }

    fn is_roce_v2(&self) -> bool {
        self.own().key.encapsulation() == Encapsulation::RoceV2
    }

    fn class_packets(&self, class: usize) -> u64 {
        self.own().counters.classes[class].packets
    }

    fn class_bytes(&self, class: usize) -> u64 {
        self.own().counters.classes[class].bytes
    }

    /// The R_Keys that are kept, one after the other; zeros behind them.
    fn remote_keys(&self) -> [u8; 16] {
        let counters = &self.own().counters;
        let known = usize::from(counters.remote_key_count);
        let mut out = [0; 16];
        for (place, key) in out.chunks_exact_mut(4).zip(counters.remote_keys).take(known) {
            place.copy_from_slice(&key.to_be_bytes());
        }
        out
    }

    fn response_time_ns(&self, share: f64) -> u64 {
        self.own().counters.response_time_ns(share).unwrap_or(0)
    }
}

fn service_number(service: Service) -> u64 {
    match service {
        Service::ReliableConnection => 0,
        Service::UnreliableConnection => 1,
        Service::ReliableDatagram => 2,
        Service::UnreliableDatagram => 3,
        Service::CongestionNotification => 4,
        Service::ExtendedReliableConnection => 5,
        Service::Other => 255,
    }
}

fn encapsulation_number(encapsulation: Encapsulation) -> u64 {
    match encapsulation {
        Encapsulation::RoceV1 => 1,
        Encapsulation::RoceV2 => 2,
        Encapsulation::InfiniBand => 3,
    }
}

fn joined_number(joined: Joined) -> u64 {
    match joined {
        Joined::No => 0,
        Joined::ByData => 1,
        Joined::ByConnectionManager => 2,
        Joined::ByDatagram => 3,
    }
}

type RdmaField = Field<RdmaView>;

/// Addresses in front of [`ELEMENTS`], IPv4.
pub(crate) static ADDRESSES_V4: &[RdmaField] = &[
    Field::address("sourceIPv4Address", Iana(8), 4, |it| it.own().key.source()),
    Field::address("destinationIPv4Address", Iana(12), 4, |it| it.own().key.destination()),
];

/// Addresses in front of [`ELEMENTS`]: IPv6, a GID, or a LID in the last two bytes.
pub(crate) static ADDRESSES_V6: &[RdmaField] = &[
    Field::address("sourceIPv6Address", Iana(27), 16, |it| it.own().key.source()),
    Field::address("destinationIPv6Address", Iana(28), 16, |it| it.own().key.destination()),
];

/// All that follows the addresses.
pub static ELEMENTS: &[RdmaField] = &[
    Field::number("protocolIdentifier", Iana(4), 1, |it| if it.is_roce_v2() { 17 } else { 0 }),
    Field::number("sourceTransportPort", Iana(7), 2, |it| it.own().source_port.into()),
    Field::number("destinationTransportPort", Iana(11), 2, |it| {
        if it.is_roce_v2() { ROCE_V2_PORT } else { 0 }
    }),
    Field::number("vlanId", Iana(58), 2, |it| it.own().key.vlans()[0].into()),
    Field::number("ingressInterface", Iana(10), 4, |it| it.interfaces.of(it.ingress_side()).into()),
    Field::number("egressInterface", Iana(14), 4, |it| {
        it.interfaces.of(it.ingress_side().map(opposite)).into()
    }),
    Field::number("flowId", Iana(148), 8, |it| it.flow_id),
    Field::number("flowStartMilliseconds", Iana(152), 8, |it| it.record.started.0 / NS_PER_MS),
    Field::number("flowEndMilliseconds", Iana(153), 8, |it| it.record.last.0 / NS_PER_MS),
    Field::number("flowEndReason", Iana(136), 1, |it| end_reason(it.record.reason)),
    Field::number("rdmaEncapsulation", Rdma(1), 1, |it| {
        encapsulation_number(it.own().key.encapsulation())
    }),
    Field::number("rdmaService", Rdma(2), 1, |it| service_number(it.record.service)),
    Field::number("rdmaDestinationQueuePair", Rdma(3), 4, |it| {
        it.own().key.destination_qp().value().into()
    }),
    Field::number("rdmaSourceQueuePair", Rdma(4), 4, RdmaView::source_queue_pair),
    Field::number("rdmaPartitionKey", Rdma(5), 2, |it| it.own().partition_key.into()),
    Field::number("rdmaQueueKey", Rdma(6), 4, |it| it.own().queue_key.unwrap_or(0).into()),
    Field::number("rdmaPathMtu", Rdma(7), 2, |it| it.record.path_mtu.into()),
    Field::number("rdmaJoined", Rdma(8), 1, |it| joined_number(it.record.joined)),
    Field::number("rdmaPackets", Rdma(52), 8, |it| it.own().counters.total().packets),
    Field::number("rdmaOctets", Rdma(53), 8, |it| it.own().counters.total().bytes),
    Field::number("rdmaPayloadOctets", Rdma(9), 8, |it| it.own().counters.payload_bytes),
    Field::number("rdmaMessages", Rdma(10), 8, |it| it.own().counters.messages),
    Field::number("rdmaSendPackets", Rdma(11), 8, |it| it.class_packets(0)),
    Field::number("rdmaSendOctets", Rdma(12), 8, |it| it.class_bytes(0)),
    Field::number("rdmaWritePackets", Rdma(13), 8, |it| it.class_packets(1)),
    Field::number("rdmaWriteOctets", Rdma(14), 8, |it| it.class_bytes(1)),
    Field::number("rdmaReadRequestPackets", Rdma(15), 8, |it| it.class_packets(2)),
    Field::number("rdmaReadResponsePackets", Rdma(17), 8, |it| it.class_packets(3)),
    Field::number("rdmaReadResponseOctets", Rdma(18), 8, |it| it.class_bytes(3)),
    Field::number("rdmaAtomicPackets", Rdma(19), 8, |it| it.class_packets(4)),
    Field::number("rdmaAtomicOctets", Rdma(20), 8, |it| it.class_bytes(4)),
    Field::number("rdmaAcknowledgePackets", Rdma(21), 8, |it| it.class_packets(5)),
    Field::number("rdmaOtherPackets", Rdma(23), 8, |it| it.class_packets(6)),
    Field::number("rdmaRetransmissions", Rdma(25), 4, |it| {
        it.own().counters.retransmissions.into()
    }),
    Field::number("rdmaResponseResends", Rdma(26), 4, |it| {
        it.own().counters.response_resends.into()
    }),
    Field::number("rdmaSequenceGaps", Rdma(27), 4, |it| it.own().counters.gaps.into()),
    Field::number("rdmaMissing", Rdma(28), 4, |it| it.own().counters.missing.into()),
    Field::number("rdmaLate", Rdma(29), 4, |it| it.own().counters.late.into()),
    Field::number("rdmaSequenceJumps", Rdma(30), 4, |it| it.own().counters.jumps.into()),
    Field::number("rdmaNakSequenceError", Rdma(31), 4, |it| it.own().counters.naks[0].into()),
    Field::number("rdmaNakInvalidRequest", Rdma(32), 4, |it| it.own().counters.naks[1].into()),
    Field::number("rdmaNakRemoteAccess", Rdma(33), 4, |it| it.own().counters.naks[2].into()),
    Field::number("rdmaNakRemoteOperational", Rdma(34), 4, |it| it.own().counters.naks[3].into()),
    Field::number("rdmaNakOther", Rdma(35), 4, |it| {
        let naks = &it.own().counters.naks;
        u64::from(naks[4]) + u64::from(naks[5])
    }),
    Field::number("rdmaReceiverNotReady", Rdma(37), 4, |it| it.own().counters.rnr_naks.into()),
    Field::number("rdmaCongestionNotifications", Rdma(38), 4, |it| it.own().counters.cnp.into()),
    Field::number("rdmaCongestionExperienced", Rdma(39), 4, |it| {
        it.own().counters.congestion_experienced.into()
    }),
    Field::number("rdmaIcrcBad", Rdma(40), 4, |it| it.own().counters.icrc_bad.into()),
    Field::number("rdmaIcrcUnchecked", Rdma(41), 8, |it| it.own().counters.icrc_unchecked),
    Field::number("rdmaResponsesTimed", Rdma(42), 8, |it| {
        it.own().counters.response_times.iter().map(|count| u64::from(*count)).sum()
    }),
    Field::number("rdmaResponseTimeMedian", Rdma(43), 8, |it| it.response_time_ns(0.5)),
    Field::number("rdmaResponseTime99", Rdma(45), 8, |it| it.response_time_ns(0.99)),
    Field::number("rdmaRemoteKeyCount", Rdma(47), 1, |it| {
        it.own().counters.remote_key_count.into()
    }),
    Field::address("rdmaRemoteKeys", Rdma(48), 16, RdmaView::remote_keys),
    Field::number("rdmaLostBefore", Rdma(54), 4, |it| it.own().counters.losses.before.into()),
    Field::number("rdmaLostInside", Rdma(55), 4, |it| it.own().counters.losses.inside.into()),
    Field::number("rdmaLostAfter", Rdma(56), 4, |it| it.own().counters.losses.after.into()),
    Field::number("rdmaOvertakenBefore", Rdma(57), 4, |it| {
        it.own().counters.losses.overtaken.into()
    }),
];

/// Fields that tshark takes in a template unless told otherwise.
const FIELDS_MAX: usize = 60;

const _: () = {
    assert!(ADDRESSES_V4.len() + ELEMENTS.len() <= FIELDS_MAX);
    use weir_engine::rdma::{NAK_CAUSES, OperationClass};
    assert!(OperationClass::ALL.len() == 7 && NAK_CAUSES.len() == 6, "elements 11-24, 31-35");
};
