//! What `weir read` says, as plain values: the JSON is this, and text and CSV are made from it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use weir_engine::flow::{FlowDirection, Reason};
use weir_engine::meter::{ConversationRecord, DirectionRecord, FlowRecord, Totals};
use weir_engine::rdma::qp::REMOTE_KEYS_MAX;
use weir_engine::rdma::{Joined, NAK_CAUSES, OperationClass, QueuePairKey};
use weir_wire::bth::Service;
use weir_wire::frame::Time;
use weir_wire::parse::Encapsulation;

use super::analysis::{Analysis, FileOutcome};

/// The whole answer. Times are nanoseconds since the Unix epoch.
#[derive(Debug, Serialize)]
pub struct CaptureReport {
    /// The captures.
    pub files: Vec<File>,
    /// The earliest packet.
    pub first_ns: Option<u64>,
    /// The latest packet.
    pub last_ns: Option<u64>,
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets of which the capture holds less than the wire did.
    pub truncated: u64,
    /// Packets whose headers contradict themselves or their length.
    pub malformed: u64,
    /// 5-tuples, both directions one flow.
    pub flows: u64,
    /// Flows and conversations that are counted but not listed, for want of room.
    pub not_listed: u64,
    /// RDMA.
    pub rdma: Rdma,
    /// The flows, when asked for, the largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_list: Option<Vec<Flow>>,
    /// The queue-pair conversations, when asked for, the largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_list: Option<Vec<Conversation>>,
}

/// One capture.
#[derive(Debug, Serialize)]
pub struct File {
    /// As named by the user.
    pub name: String,
    /// Packets read.
    pub packets: u64,
    /// Packets of a link type that is not read.
    pub skipped: u64,
    /// Records cut short by the end of the file.
    pub cut_records: u64,
    /// Why it was not read to its end.
    pub error: Option<String>,
}

/// RDMA's share.
#[derive(Debug, Serialize)]
pub struct Rdma {
    /// RDMA packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// RDMA payload bytes.
    pub payload_bytes: u64,
    /// Packets of RoCE v1.
    pub roce_v1: u64,
    /// Packets of RoCE v2.
    pub roce_v2: u64,
    /// Packets of native InfiniBand.
    pub infiniband: u64,
    /// Packets with the right ICRC.
    pub icrc_ok: u64,
    /// Packets with the wrong one.
    pub icrc_bad: u64,
    /// Packets not checked.
    pub icrc_unchecked: u64,
    /// Distinct (destination address, destination queue pair), QP0 and QP1 included; multicast and
    /// congestion notifications left out.
    pub queue_pairs: u64,
    /// Queue-pair conversations, half ones included.
    pub conversations: u64,
    /// Packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Refusals by cause.
    pub naks: BTreeMap<&'static str, u64>,
    /// Receiver-not-ready answers.
    pub rnr_naks: u64,
    /// Request packets whose number had been seen before.
    pub retransmissions: u64,
    /// READ and atomic response packets whose number had been seen before.
    pub response_resends: u64,
    /// Times that request numbers were skipped.
    pub psn_gaps: u64,
    /// Request numbers skipped.
    pub psn_missing: u64,
    /// Of those, how many came later.
    pub psn_late: u64,
    /// Request numbers farther off than any loss explains.
    pub psn_jumps: u64,
    /// Packets lost before the place of capture.
    pub lost_before: u64,
    /// Losses behind it: a packet or more each.
    pub lost_after: u64,
    /// Packets overtaken by others before it.
    pub overtaken_before: u64,
    /// Congestion notification packets.
    pub cnp: u64,
    /// Packets marked Congestion Experienced.
    pub congestion_experienced: u64,
}

/// One 5-tuple. `a` sent its first packet.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// Address of the end that began.
    pub address_a: String,
    /// Its port.
    pub port_a: u16,
    /// Address of the other end.
    pub address_b: String,
    /// Its port.
    pub port_b: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// VLAN identifiers, outermost first.
    pub vlans: Vec<u16>,
    /// First packet.
    pub first_ns: u64,
    /// Last packet.
    pub last_ns: u64,
    /// Packets from a to b.
    pub packets_ab: u64,
    /// Bytes from a to b.
    pub bytes_ab: u64,
    /// Packets from b to a.
    pub packets_ba: u64,
    /// Bytes from b to a.
    pub bytes_ba: u64,
    /// TCP flags seen from a to b, or-ed.
    pub tcp_flags_ab: u8,
    /// TCP flags seen from b to a, or-ed.
    pub tcp_flags_ba: u8,
    /// Packets marked Congestion Experienced, both ways.
    pub congestion_experienced: u64,
}

/// One queue-pair conversation.
#[derive(Debug, Serialize)]
pub struct Conversation {
    /// `rc`, `uc`, `ud`, `rd`, `xrc`, `cnp` or `other`.
    pub service: &'static str,
    /// `roce_v1`, `roce_v2` or `infiniband`.
    pub encapsulation: &'static str,
    /// How its directions were joined: `data`, `cm`, `datagram`; `no`: only one is known.
    pub joined: &'static str,
    /// Path MTU in bytes, where it showed.
    pub path_mtu: Option<u16>,
    /// First packet.
    pub first_ns: u64,
    /// Last packet.
    pub last_ns: u64,
    /// The directions known: one or two.
    pub directions: Vec<Direction>,
}

/// One direction of a conversation.
#[derive(Debug, Serialize)]
pub struct Direction {
    /// Who sends.
    pub source: String,
    /// The queue pair it is from, where packets say so (datagrams) or the other direction does.
    pub source_qp: Option<u32>,
    /// Whom to.
    pub destination: String,
    /// The queue pair it is for.
    pub destination_qp: u32,
    /// UDP source port (RoCE v2).
    pub source_port: Option<u16>,
    /// Partition key of the latest packet.
    pub partition_key: u16,
    /// Q_Key of the latest datagram.
    pub queue_key: Option<u32>,
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// RDMA payload bytes.
    pub payload_bytes: u64,
    /// Packets and bytes by what they do.
    pub operations: BTreeMap<&'static str, Volume>,
    /// Messages whose last packet passed.
    pub messages: u64,
    /// R_Keys used by requests.
    pub remote_keys: Vec<u32>,
    /// Whether there were more R_Keys than are listed.
    pub remote_keys_more: bool,
    /// Request packets whose number had been seen before.
    pub retransmissions: u32,
    /// READ and atomic response packets whose number had been seen before.
    pub response_resends: u32,
    /// Times that request numbers were skipped.
    pub psn_gaps: u32,
    /// Request numbers skipped.
    pub psn_missing: u32,
    /// Of those, how many came later.
    pub psn_late: u32,
    /// Request numbers farther off than any loss explains.
    pub psn_jumps: u32,
    /// Packets lost before the place of capture.
    pub lost_before: u32,
    /// Losses behind it: a packet or more each.
    pub lost_after: u32,
    /// Packets overtaken by others before it.
    pub overtaken_before: u32,
    /// Refusals by cause.
    pub naks: BTreeMap<&'static str, u32>,
    /// Receiver-not-ready answers.
    pub rnr_naks: u32,
    /// Congestion notification packets.
    pub cnp: u32,
    /// Packets marked Congestion Experienced.
    pub congestion_experienced: u32,
    /// Packets with the wrong ICRC.
    pub icrc_bad: u32,
    /// Median time from request to answer, rounded up to a power of two.
    pub response_time_median_ns: Option<u64>,
    /// 99th percentile of it, likewise.
    pub response_time_p99_ns: Option<u64>,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl CaptureReport {
    /// The report of an analysis, without lists.
    pub fn of(analysis: &Analysis) -> Self {
        let totals = analysis.meter.totals();
        let time = |pick: fn((Time, Time)) -> Time| analysis.span.map(|span| pick(span).0);
        Self {
            files: analysis.files.iter().map(File::of).collect(),
            first_ns: time(|span| span.0),
            last_ns: time(|span| span.1),
            packets: totals.packets,
            bytes: totals.bytes,
            truncated: totals.truncated,
            malformed: totals.malformed,
            flows: totals.flows,
            not_listed: totals.flows_evicted + totals.conversations_evicted,
            rdma: Rdma::of(&totals),
            flow_list: None,
            conversation_list: None,
        }
    }

    /// All flows of an analysis, the largest first.
    pub fn flows_of(analysis: &Analysis) -> Vec<Flow> {
        let entries = analysis.meter.flows().iter();
        let mut records: Vec<_> = entries.map(|one| FlowRecord::of(one, Reason::Flushed)).collect();
        records.sort_by_key(|record| (std::cmp::Reverse(record.total().bytes), record.started));
        records.iter().map(Flow::of).collect()
    }

    /// All conversations of an analysis that carried a packet, the largest first.
    pub fn conversations_of(analysis: &Analysis) -> Vec<Conversation> {
        let entries = analysis.meter.conversations().iter().filter(|one| one.is_counting());
        let mut records: Vec<_> =
            entries.map(|one| ConversationRecord::of(one, Reason::Flushed)).collect();
        records.sort_by_key(|record| (std::cmp::Reverse(record.total().bytes), record.started));
        records.iter().map(Conversation::of).collect()
    }
}

impl File {
    fn of(file: &FileOutcome) -> Self {
        Self {
            name: file.path.display().to_string(),
            packets: file.stats.packets,
            skipped: file.stats.skipped_packets,
            cut_records: file.stats.truncated_records,
            error: file.error.as_ref().map(ToString::to_string),
        }
    }
}

impl Rdma {
    fn of(totals: &Totals) -> Self {
        let rdma = &totals.rdma;
        let losses = rdma.losses_total();
        Self {
            packets: rdma.packets,
            bytes: rdma.bytes,
            payload_bytes: rdma.payload_bytes,
            roce_v1: rdma.roce_v1,
            roce_v2: rdma.roce_v2,
            infiniband: rdma.infiniband,
            icrc_ok: rdma.icrc_ok,
            icrc_bad: rdma.icrc_bad,
            icrc_unchecked: rdma.icrc_unchecked,
            queue_pairs: rdma.queue_pairs,
            conversations: rdma.conversations,
            opcodes: rdma.opcodes_seen().map(|(code, count)| (code.to_string(), count)).collect(),
            naks: rdma
                .naks_by_cause()
                .filter(|(_, count)| *count > 0)
                .map(|(cause, count)| (cause.name(), count))
                .collect(),
            rnr_naks: rdma.rnr_naks,
            retransmissions: rdma.retransmissions,
            response_resends: rdma.response_resends,
            psn_gaps: rdma.psn_gaps,
            psn_missing: rdma.psn_missing,
            psn_late: rdma.psn_late,
            psn_jumps: rdma.psn_jumps,
            lost_before: losses.before,
            lost_after: losses.after,
            overtaken_before: losses.overtaken,
            cnp: rdma.cnp,
            congestion_experienced: rdma.congestion_experienced,
        }
    }
}

impl Flow {
    fn of(record: &FlowRecord) -> Self {
        let key = &record.key;
        let ends = [(key.address_a(), key.port_a()), (key.address_b(), key.port_b())];
        let (from, to) = match record.initiator {
            FlowDirection::AToB => (0, 1),
            FlowDirection::BToA => (1, 0),
        };
        let (there, back) = (record.counters[from], record.counters[to]);
        Self {
            address_a: ip_text(ends[from].0),
            port_a: ends[from].1,
            address_b: ip_text(ends[to].0),
            port_b: ends[to].1,
            protocol: key.protocol(),
            vlans: key.vlans().into_iter().filter(|vlan| *vlan != 0).collect(),
            first_ns: record.started.0,
            last_ns: record.last.0,
            packets_ab: there.packets,
            bytes_ab: there.bytes,
            packets_ba: back.packets,
            bytes_ba: back.bytes,
            tcp_flags_ab: there.tcp_flags,
            tcp_flags_ba: back.tcp_flags,
            congestion_experienced: there.congestion_experienced + back.congestion_experienced,
        }
    }
}

impl Conversation {
    fn of(record: &ConversationRecord) -> Self {
        let second = record.second.as_ref();
        let partner = |other: Option<&DirectionRecord>| other.map(|one| one.key.destination_qp());
        let mut directions =
            vec![Direction::of(&record.first, partner(second).map(|qpn| qpn.value()))];
        directions.extend(second.map(|second| {
            Direction::of(second, partner(Some(&record.first)).map(|qpn| qpn.value()))
        }));
        Self {
            service: service_name(record.service),
            encapsulation: encapsulation_name(record.first.key.encapsulation()),
            joined: match record.joined {
                Joined::No => "no",
                Joined::ByData => "data",
                Joined::ByConnectionManager => "cm",
                Joined::ByDatagram => "datagram",
            },
            path_mtu: (record.path_mtu != 0).then_some(record.path_mtu),
            first_ns: record.started.0,
            last_ns: record.last.0,
            directions,
        }
    }

    /// Packets of all directions.
    pub fn packets(&self) -> u64 {
        self.directions.iter().map(|direction| direction.packets).sum()
    }

    /// Bytes of all directions.
    pub fn bytes(&self) -> u64 {
        self.directions.iter().map(|direction| direction.bytes).sum()
    }
}

impl Direction {
    fn of(record: &DirectionRecord, partner_qp: Option<u32>) -> Self {
        let (key, counters) = (&record.key, &record.counters);
        let total = counters.total();
        let used = OperationClass::ALL.map(|class| (class.name(), counters.class(class)));
        let keys_known = usize::from(counters.remote_key_count);
        Self {
            source: address_text(key, key.source()),
            source_qp: key.source_qp().map(|qpn| qpn.value()).or(partner_qp),
            destination: address_text(key, key.destination()),
            destination_qp: key.destination_qp().value(),
            source_port: (record.source_port != 0).then_some(record.source_port),
            partition_key: record.partition_key,
            queue_key: record.queue_key,
            packets: total.packets,
            bytes: total.bytes,
            payload_bytes: counters.payload_bytes,
            operations: used
                .into_iter()
                .filter(|(_, volume)| volume.packets > 0)
                .map(|(name, one)| (name, Volume { packets: one.packets, bytes: one.bytes }))
                .collect(),
            messages: counters.messages,
            remote_keys: counters.remote_keys[..keys_known.min(REMOTE_KEYS_MAX)].to_vec(),
            remote_keys_more: keys_known > REMOTE_KEYS_MAX,
            retransmissions: counters.retransmissions,
            response_resends: counters.response_resends,
            psn_gaps: counters.gaps,
            psn_missing: counters.missing,
            psn_late: counters.late,
            psn_jumps: counters.jumps,
            lost_before: counters.losses.before,
            lost_after: counters.losses.after,
            overtaken_before: counters.losses.overtaken,
            naks: NAK_CAUSES
                .into_iter()
                .zip(counters.naks)
                .filter(|(_, count)| *count > 0)
                .map(|(cause, count)| (cause.name(), count))
                .collect(),
            rnr_naks: counters.rnr_naks,
            cnp: counters.cnp,
            congestion_experienced: counters.congestion_experienced,
            icrc_bad: counters.icrc_bad,
            response_time_median_ns: counters.response_time_ns(0.5),
            response_time_p99_ns: counters.response_time_ns(0.99),
        }
    }
}

fn service_name(service: Service) -> &'static str {
    match service {
        Service::ReliableConnection => "rc",
        Service::UnreliableConnection => "uc",
        Service::ReliableDatagram => "rd",
        Service::UnreliableDatagram => "ud",
        Service::ExtendedReliableConnection => "xrc",
        Service::CongestionNotification => "cnp",
        Service::Other => "other",
    }
}

fn encapsulation_name(encapsulation: Encapsulation) -> &'static str {
    match encapsulation {
        Encapsulation::RoceV1 => "roce_v1",
        Encapsulation::RoceV2 => "roce_v2",
        Encapsulation::InfiniBand => "infiniband",
    }
}

/// An address as people write it: IPv4, IPv6 (also for GIDs), or a LID in hexadecimal.
fn address_text(key: &QueuePairKey, address: [u8; 16]) -> String {
    let (head, [high, low]) = (&address[..14], [address[14], address[15]]);
    if key.encapsulation() == Encapsulation::InfiniBand && head.iter().all(|byte| *byte == 0) {
        return format!("lid {:#06x}", u16::from_be_bytes([high, low]));
    }
    ip_text(address)
}

fn ip_text(address: [u8; 16]) -> String {
    let address = Ipv6Addr::from(address);
    match address.to_ipv4_mapped() {
        Some(mapped) => Ipv4Addr::to_string(&mapped),
        None => address.to_string(),
    }
}
