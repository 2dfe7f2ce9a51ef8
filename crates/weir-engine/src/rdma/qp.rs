//! One queue-pair conversation and what a packet adds to it.
//!
//! A direction carries up to three streams: requests (numbered by their sender), READ and atomic
//! responses (numbered by the other side's requests), and acknowledgments. Requests and responses
//! have a PSN tracker each; acknowledgments repeat numbers as they please.

use weir_wire::bth::{Opcode, Operation, Position, Psn, Service};
use weir_wire::ext::{self, NakCause, Syndrome};
use weir_wire::fastpath::{Slot, event};
use weir_wire::frame::Time;
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::{Parsed, Rdma, Transport};

use super::key::QueuePairKey;
use super::loss::{Charged, Losses, Trail};
use super::psn::{PsnOrder, PsnTracker};
use super::stage_data::StageData;
use crate::flow::{FlowDirection, FlowHandle};
use crate::meter::fold::{Notice, started};
use crate::verdict::Side;

/// R_Keys remembered per direction and record; further ones are only counted.
pub const REMOTE_KEYS_MAX: usize = 4;

/// Buckets of response times: bucket 0 is below 1 us (1024 ns), each further one twice as long.
pub const RESPONSE_TIME_BUCKETS: usize = 16;

/// What packets of a direction do, by the groups that records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationClass {
    /// SEND.
    Send,
    /// RDMA WRITE, and the ATOMIC WRITE and FLUSH that extend it.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Atomic request.
    Atomic,
    /// Acknowledgment, of an atomic too.
    Acknowledge,
    /// Congestion notification, reserved, RESYNC.
    Other,
}

impl OperationClass {
    /// All of them, in the order of [`DirectionCounters::classes`].
    pub const ALL: [Self; 7] = [
        Self::Send,
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Atomic,
        Self::Acknowledge,
        Self::Other,
    ];

    /// The class of an opcode.
    #[inline]
    pub const fn of(opcode: Opcode) -> Self {
        match opcode.operation() {
            Operation::Send => Self::Send,
            Operation::Write | Operation::AtomicWrite | Operation::Flush => Self::Write,
            Operation::ReadRequest => Self::ReadRequest,
            Operation::ReadResponse => Self::ReadResponse,
            Operation::Atomic => Self::Atomic,
            Operation::Acknowledge | Operation::AtomicAcknowledge => Self::Acknowledge,
            _ => Self::Other,
        }
    }

    /// Its name in JSON and CSV.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::ReadRequest => "read_request",
            Self::ReadResponse => "read_response",
            Self::Atomic => "atomic",
            Self::Acknowledge => "acknowledge",
            Self::Other => "other",
        }
    }
}

/// Counters for each cause of a NAK; reserved codes share the last.
pub const NAK_CAUSES: [NakCause; 6] = [
    NakCause::SequenceError,
    NakCause::InvalidRequest,
    NakCause::RemoteAccess,
    NakCause::RemoteOperational,
    NakCause::InvalidRdRequest,
    NakCause::Reserved(5),
];

/// Where a cause stands in [`NAK_CAUSES`].
pub(crate) fn nak_index(cause: NakCause) -> usize {
    NAK_CAUSES.iter().position(|known| *known == cause).unwrap_or(NAK_CAUSES.len() - 1)
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the link, its header included.
    pub bytes: u64,
}

/// One direction since its last record. In this order: what most packets change comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DirectionCounters {
    /// Packets whose ICRC was not checked.
    pub icrc_unchecked: u64,
    /// RDMA payload bytes, padding excluded.
    pub payload_bytes: u64,
    /// Messages whose last packet passed for the first time; a READ or an atomic is one message.
    pub messages: u64,
    /// Packets with the wrong ICRC.
    pub icrc_bad: u32,
    /// Packets marked Congestion Experienced (ECN 3), or FECN on RoCE v1 and InfiniBand.
    pub congestion_experienced: u32,
    /// R_Keys used by requests, as many as there is room for.
    pub remote_keys: [u32; REMOTE_KEYS_MAX],
    /// How many of `remote_keys` are set; one more than there is room for: there were others.
    pub remote_key_count: u8,
    /// Congestion notification packets.
    pub cnp: u32,
    /// By what the packets do, in the order of [`OperationClass::ALL`].
    pub classes: [Volume; OperationClass::ALL.len()],
    /// Requests by how long their answer took: see [`RESPONSE_TIME_BUCKETS`]. Only one request at a
    /// time is timed.
    pub response_times: [u32; RESPONSE_TIME_BUCKETS],
    /// Request packets whose number had been seen before: resent after they had passed here.
    pub retransmissions: u32,
    /// READ or atomic response packets whose number had been seen before.
    pub response_resends: u32,
    /// Times that request numbers were skipped.
    pub gaps: u32,
    /// Request numbers skipped: lost or overtaken before they came here.
    pub missing: u32,
    /// Of those, how many came later.
    pub late: u32,
    /// Request numbers farther off than any loss explains.
    pub jumps: u32,
    /// Where packets of this direction were lost or overtaken.
    pub losses: Losses,
    /// Refusals, in the order of [`NAK_CAUSES`].
    pub naks: [u32; NAK_CAUSES.len()],
    /// Receiver-not-ready answers.
    pub rnr_naks: u32,
    /// Packets that the kernel carried: no response to them is timed. A record's worth.
    pub fast_packets: u32,
}

impl DirectionCounters {
    /// Packets and bytes of all classes.
    pub fn total(&self) -> Volume {
        self.classes.iter().fold(Volume::default(), |sum, class| Volume {
            packets: sum.packets + class.packets,
            bytes: sum.bytes + class.bytes,
        })
    }

    /// Packets and bytes of one class.
    pub fn class(&self, class: OperationClass) -> Volume {
        self.classes[class as usize]
    }

    /// Time from request to answer, in nanoseconds, that `share` (0 to 1) of the timed requests did
    /// not exceed, rounded up to the bucket's end; `None` when none was timed.
    pub fn response_time_ns(&self, share: f64) -> Option<u64> {
        let timed: u64 = self.response_times.iter().map(|count| u64::from(*count)).sum();
        let rank = ((timed as f64 * share).ceil() as u64).clamp(1, timed.max(1));
        let mut below = 0;
        let bucket = self.response_times.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        })?;
        Some(1 << (10 + bucket))
    }

    fn note_remote_key(&mut self, key: u32) {
        let known = usize::from(self.remote_key_count).min(REMOTE_KEYS_MAX);
        if self.remote_keys[..known].contains(&key) {
            return;
        }
        if let Some(place) = self.remote_keys.get_mut(known) {
            *place = key;
        }
        self.remote_key_count = known as u8 + 1;
    }
}

/// One direction of a conversation.
///
/// In this order: what each packet changes lies together, so that it costs few lines of the cache.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Direction {
    /// From whom to which queue pair.
    pub key: QueuePairKey,
    /// What a later stage keeps.
    pub(crate) stage_data: StageData,
    /// UDP source port (RoCE v2).
    pub source_port: u16,
    /// The request being timed, or [`NOT_TIMED`], and when it passed.
    timed_psn: u32,
    /// The latest packet.
    pub last: Time,
    /// The 5-tuple of its packets (RoCE v2), so that it costs one look-up and not two.
    flow_handle: FlowHandle,
    pub(super) requests: PsnTracker<3>,
    /// Partition key of the latest packet.
    pub partition_key: u16,
    flow_way: Option<FlowDirection>,
    /// Whether its queue pair was counted among those addressed.
    pub(crate) is_destination_noted: bool,
    /// What was counted since the last record.
    pub counters: DirectionCounters,
    timed_at: Time,
    pub(super) responses: PsnTracker<1>,
    pub(super) trail: Trail,
    /// Of the latest datagram.
    queue_key: u32,
}

/// No sequence number.
const NOT_TIMED: u32 = u32::MAX;

/// How the two directions of a conversation were found to belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Joined {
    /// They were not: this is a half conversation.
    No,
    /// A response answered a request ([`super::pairing`]).
    ByData,
    /// A connection manager exchange named both queue pairs ([`super::cm`]).
    ByConnectionManager,
    /// The datagrams name both queue pairs.
    ByDatagram,
}

/// Both directions of a pair of queue pairs, or the one known.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Conversation {
    /// When the running record began.
    pub started: Time,
    /// Path MTU in bytes, once a packet showed it (or the connection manager said so); else zero.
    pub path_mtu: u16,
    /// How the directions were joined.
    pub joined: Joined,
    /// The transport service of the first packet.
    pub service: Service,
    /// Side of the gateway that the first direction comes from.
    pub side: Option<Side>,
    /// The direction seen first, then the other.
    pub(crate) first: Direction,
    pub(crate) second: Option<Direction>,
}

/// One RDMA packet, as the meter hands it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RdmaPacket<'a> {
    pub(crate) now: Time,
    pub(crate) side: Option<Side>,
    pub(crate) bytes: &'a [u8],
    pub(crate) parsed: &'a Parsed,
    pub(crate) rdma: &'a Rdma,
    pub(crate) wire_len: u32,
    pub(crate) icrc: IcrcStatus,
}

/// What one packet turned out to be, for the totals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noticed {
    pub(crate) request: Option<PsnOrder>,
    pub(crate) response_resent: bool,
    pub(crate) syndrome: Option<Syndrome>,
    pub(crate) congestion_experienced: bool,
    pub(crate) charged: Option<Charged>,
}

impl RdmaPacket<'_> {
    pub(crate) fn source_port(&self) -> u16 {
        match self.parsed.transport {
            Transport::Udp { source, .. } => source,
            _ => 0,
        }
    }

    fn is_marked(&self) -> bool {
        const FECN: u8 = 0x80;
        self.parsed.traffic_class & 3 == 3 || self.rdma.congestion & FECN != 0
    }
}

impl Direction {
    /// A direction of which nothing was counted.
    pub(crate) fn new(key: QueuePairKey, now: Time) -> Self {
        Self {
            key,
            stage_data: StageData::default(),
            source_port: 0,
            timed_psn: NOT_TIMED,
            last: now,
            flow_handle: FlowHandle::default(),
            requests: PsnTracker::default(),
            partition_key: 0,
            flow_way: None,
            is_destination_noted: false,
            counters: DirectionCounters::default(),
            timed_at: now,
            responses: PsnTracker::default(),
            trail: Trail::default(),
            queue_key: 0,
        }
    }

    /// The numbers that its requests and its responses go on with, as far as they are known.
    pub(crate) fn next_numbers(&self) -> [Option<Psn>; 2] {
        [self.requests.next(), self.responses.next()]
    }

    /// The 5-tuple of its packets with this UDP source port, if the latest was one of them.
    #[inline]
    pub(crate) fn flow(&self, source_port: u16) -> Option<(FlowHandle, FlowDirection)> {
        let way = self.flow_way.filter(|_| self.source_port == source_port)?;
        Some((self.flow_handle, way))
    }

    /// Remembers it.
    pub(crate) fn set_flow(&mut self, handle: FlowHandle, way: FlowDirection, source_port: u16) {
        (self.flow_handle, self.flow_way, self.source_port) = (handle, Some(way), source_port);
    }

    /// Q_Key of the latest datagram.
    pub fn queue_key(&self) -> Option<u32> {
        self.key.source_qp().map(|_| self.queue_key)
    }

    /// Whether a request with this number was sent lately.
    pub(crate) fn has_asked(&self, packet: &RdmaPacket<'_>) -> bool {
        self.requests.has_used(packet.rdma.psn)
    }

    /// Lets the requests start at a number agreed beforehand.
    pub(crate) fn start_at(&mut self, psn: Psn) {
        if !self.requests.is_started() {
            self.requests.start_at(psn);
        }
    }

    #[inline]
    fn count(&mut self, packet: &RdmaPacket<'_>) {
        let counters = &mut self.counters;
        let class = &mut counters.classes[OperationClass::of(packet.rdma.opcode) as usize];
        class.packets += 1;
        class.bytes += u64::from(packet.wire_len);
        counters.payload_bytes += u64::from(packet.rdma.payload_len);
        counters.congestion_experienced += u32::from(packet.is_marked());
        counters.icrc_bad += u32::from(packet.icrc == IcrcStatus::Invalid);
        counters.icrc_unchecked += u64::from(packet.icrc == IcrcStatus::Unchecked);
        self.last = self.last.max(packet.now);
        self.partition_key = packet.rdma.partition_key.0;
    }

    /// Counts what the kernel carried.
    pub(crate) fn fold(&mut self, counted: &Slot, last: Time) {
        let counters = &mut self.counters;
        for (class, more) in counters.classes.iter_mut().zip(&counted.classes) {
            class.packets += more.packets;
            class.bytes += more.bytes;
        }
        counters.payload_bytes += counted.payload_bytes;
        counters.messages += counted.messages;
        for (sum, naks) in counters.naks.iter_mut().zip(counted.naks) {
            *sum = sum.saturating_add(naks);
        }
        counters.rnr_naks = counters.rnr_naks.saturating_add(counted.rnr_naks);
        counters.cnp = counters.cnp.saturating_add(counted.cnp);
        let marked = u32::try_from(counted.marked).unwrap_or(u32::MAX);
        counters.congestion_experienced = counters.congestion_experienced.saturating_add(marked);
        counters.icrc_unchecked += counted.packets;
        let packets = u32::try_from(counted.packets).unwrap_or(u32::MAX);
        counters.fast_packets = counters.fast_packets.saturating_add(packets);
        let known = (counted.remote_key_count as usize).min(REMOTE_KEYS_MAX);
        counted.remote_keys[..known].iter().for_each(|key| counters.note_remote_key(*key));
        if counted.remote_key_count as usize > REMOTE_KEYS_MAX {
            counters.remote_key_count = REMOTE_KEYS_MAX as u8 + 1;
        }
        self.last = self.last.max(last);
        self.partition_key = counted.partition_key;
        if self.key.source_qp().is_some() {
            self.queue_key = counted.queue_key;
        }
        // Its answer may have been carried.
        self.timed_psn = NOT_TIMED;
        if let Some(next) = started(counted.request_next) {
            self.requests.advance_to(next);
        }
        if let Some(next) = started(counted.response_next) {
            self.responses.advance_to(next);
        }
    }

    /// Follows the numbers of a request, and says how many it uses; `path_mtu` zero: unknown. Of a
    /// packet that the kernel carried it is known which number was `expected`.
    #[inline]
    fn follow_request(
        &mut self,
        packet: &RdmaPacket<'_>,
        path_mtu: u16,
        expected: Option<Psn>,
    ) -> (PsnOrder, u32) {
        let rdma = packet.rdma;
        let mut psns = 1;
        let mut is_exact = true;
        if let Some(reth) = ext::reth(packet.bytes, rdma) {
            self.counters.note_remote_key(reth.remote_key.get());
            if rdma.opcode.operation() == Operation::ReadRequest {
                const PATH_MTU_MIN: u16 = 256;
                let mtu = if path_mtu == 0 { PATH_MTU_MIN } else { path_mtu };
                psns = reth.dma_length.get().div_ceil(u32::from(mtu)).clamp(1, 1 << 23);
                is_exact = path_mtu != 0 || psns == 1;
            }
        } else if let Some(atomic) = ext::atomic_eth(packet.bytes, rdma) {
            self.counters.note_remote_key(atomic.remote_key.get());
        }
        let order = match expected {
            None => self.requests.observe(rdma.psn, psns, is_exact),
            _ => self.requests.observe_after(expected, rdma.psn, psns, is_exact),
        };
        let counters = &mut self.counters;
        match order {
            PsnOrder::InOrder => {}
            PsnOrder::Gap { missing } => {
                counters.gaps += 1;
                counters.missing = counters.missing.saturating_add(missing);
            }
            PsnOrder::Late => counters.late += 1,
            PsnOrder::Seen => counters.retransmissions += 1,
            PsnOrder::Jump => counters.jumps += 1,
        }
        if order == PsnOrder::Seen {
            self.timed_psn = NOT_TIMED; // Which of the two would be answered cannot be told.
        } else {
            counters.messages += u64::from(rdma.opcode.ends_message());
            let is_answered = rdma.ack_request
                || matches!(rdma.opcode.operation(), Operation::ReadRequest | Operation::Atomic);
            if is_answered && self.timed_psn == NOT_TIMED {
                (self.timed_psn, self.timed_at) = (rdma.psn.value(), packet.now);
            }
        }
        (order, psns)
    }

    fn note_syndrome(&mut self, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Nak(cause) => self.counters.naks[nak_index(cause)] += 1,
            Syndrome::RnrNak { .. } => self.counters.rnr_naks += 1,
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => {}
        }
    }

    /// Ends the timing of the request that a response of the other direction answers.
    #[inline]
    fn answered(&mut self, packet: &RdmaPacket<'_>) {
        let psn = self.timed_psn;
        if psn == NOT_TIMED || packet.rdma.psn.distance(Psn::new(psn)) < 0 {
            return;
        }
        self.timed_psn = NOT_TIMED;
        let bucket =
            (packet.now.since_ns(self.timed_at) >> 10).checked_ilog2().map_or(0, |log| log + 1);
        let bucket = (bucket as usize).min(RESPONSE_TIME_BUCKETS - 1);
        self.counters.response_times[bucket] += 1;
    }
}

impl Conversation {
    /// A half conversation.
    pub(crate) fn new(first: Direction, service: Service, now: Time, side: Option<Side>) -> Self {
        let joined = Joined::No;
        Self { first, second: None, joined, service, started: now, side, path_mtu: 0 }
    }

    /// The direction seen first, and the other one if it is known.
    pub fn directions(&self) -> impl Iterator<Item = &Direction> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// The latest packet of either direction.
    pub fn last(&self) -> Time {
        self.directions().map(|direction| direction.last).max().unwrap_or(self.started)
    }

    /// Whether the other direction is unknown. Does not look at it: its memory is far.
    pub fn is_half(&self) -> bool {
        self.joined == Joined::No
    }

    /// Side of the gateway that direction `side` (0: the first) comes in by.
    pub(crate) fn ingress(&self, side: usize) -> Option<Side> {
        self.side.map(|first| if side == 0 { first } else { first.opposite() })
    }

    /// Whether anything was counted since the last record.
    pub fn is_counting(&self) -> bool {
        self.total().packets > 0
    }

    /// Begins the next record.
    pub(crate) fn restart(&mut self, now: Time) {
        self.started = now;
        for direction in std::iter::once(&mut self.first).chain(&mut self.second) {
            direction.counters = DirectionCounters::default();
        }
    }

    /// Lets the latest packet of each direction be of `now`: the clock was set back.
    pub(crate) fn rewind_to(&mut self, now: Time) {
        for direction in std::iter::once(&mut self.first).chain(&mut self.second) {
            direction.last = direction.last.min(now);
        }
    }

    /// Packets and bytes of both directions since the last record.
    pub fn total(&self) -> Volume {
        self.directions().map(|direction| direction.counters.total()).fold(
            Volume::default(),
            |sum, one| Volume { packets: sum.packets + one.packets, bytes: sum.bytes + one.bytes },
        )
    }

    #[inline]
    pub(crate) fn direction_mut(&mut self, side: usize) -> &mut Direction {
        match side {
            0 => &mut self.first,
            _ => self.second.as_mut().unwrap_or(&mut self.first),
        }
    }

    pub(super) fn other_mut(&mut self, side: usize) -> Option<&mut Direction> {
        if side == 1 { Some(&mut self.first) } else { self.second.as_mut() }
    }

    /// Counts a packet of direction `side` (0: the first).
    #[inline]
    pub(crate) fn observe(&mut self, side: usize, packet: &RdmaPacket<'_>) -> Noticed {
        let opcode = packet.rdma.opcode;
        self.learn_path_mtu(packet);
        let congestion_experienced = packet.is_marked();
        let mut noticed = Noticed { congestion_experienced, ..Noticed::default() };
        let direction = self.direction_mut(side);
        direction.count(packet);
        match opcode.service() {
            Service::ReliableConnection | Service::ExtendedReliableConnection => {}
            Service::UnreliableConnection => {
                if opcode.is_request() {
                    self.follow(side, packet, None, &mut noticed);
                }
                return noticed;
            }
            _ => {
                direction.count_unnumbered(packet, &mut noticed);
                return noticed;
            }
        }
        if opcode.is_request() {
            self.follow(side, packet, None, &mut noticed);
        } else if opcode.is_response() {
            if let Some(aeth) = ext::aeth(packet.bytes, packet.rdma) {
                let syndrome = aeth.syndrome();
                direction.note_syndrome(syndrome);
                noticed.syndrome = Some(syndrome);
            }
            if opcode.operation() != Operation::Acknowledge {
                let order = direction.responses.observe(packet.rdma.psn, 1, true);
                noticed.response_resent = order == PsnOrder::Seen;
                direction.counters.response_resends += u32::from(noticed.response_resent);
                noticed.charged = self.charge_response(side, packet, order);
            }
            if let Some(requester) = self.other_mut(side) {
                requester.answered(packet);
            }
            let charged = self.charge_answer(side, packet, noticed.syndrome, false);
            noticed.charged = noticed.charged.or(charged);
        }
        noticed
    }

    /// Follows a request of direction `side`.
    #[inline]
    fn follow(
        &mut self,
        side: usize,
        packet: &RdmaPacket<'_>,
        expected: Option<Psn>,
        noticed: &mut Noticed,
    ) {
        let path_mtu = self.path_mtu;
        let (order, count) = self.direction_mut(side).follow_request(packet, path_mtu, expected);
        noticed.request = Some(order);
        if order != PsnOrder::InOrder {
            noticed.charged = self.charge_request(side, packet, order, count);
        }
    }

    /// Takes in what a packet of direction `side` that the kernel carried says beyond its counts.
    pub(crate) fn notice(
        &mut self,
        side: usize,
        notice: &Notice<'_>,
        packet: &RdmaPacket<'_>,
    ) -> Noticed {
        let mut noticed = Noticed::default();
        self.learn_path_mtu(packet);
        let expected = started(notice.expected);
        if notice.kinds & event::REQUEST_PSN != 0 {
            self.follow(side, packet, expected, &mut noticed);
            self.direction_mut(side).timed_psn = NOT_TIMED;
        }
        if notice.kinds & event::NAK != 0 {
            // The refusal itself is among the kernel's counts.
            let syndrome = ext::aeth(packet.bytes, packet.rdma).map(|aeth| aeth.syndrome());
            noticed.charged = self.charge_answer(side, packet, syndrome, true);
        }
        let direction = self.direction_mut(side);
        if notice.kinds & event::RESPONSE_PSN != 0 {
            let order = direction.responses.observe_after(expected, packet.rdma.psn, 1, true);
            noticed.response_resent = order == PsnOrder::Seen;
            direction.counters.response_resends += u32::from(noticed.response_resent);
        }
        noticed
    }

    /// Non-final packets of a message are as long as the path MTU allows.
    #[inline]
    fn learn_path_mtu(&mut self, packet: &RdmaPacket<'_>) {
        let len = packet.rdma.payload_len;
        let is_full = matches!(packet.rdma.opcode.position(), Position::First | Position::Middle);
        if self.path_mtu == 0 && is_full && len.is_power_of_two() && (256..=4096).contains(&len) {
            self.path_mtu = len;
        }
    }
}

impl Direction {
    /// Datagrams, congestion notifications and reserved opcodes: their numbers say nothing here.
    /// (A datagram's number counts what its sender sent to anyone.)
    fn count_unnumbered(&mut self, packet: &RdmaPacket<'_>, noticed: &mut Noticed) {
        if packet.rdma.opcode == Opcode::CNP {
            self.counters.cnp += 1;
        }
        if packet.rdma.opcode.is_request() && packet.rdma.opcode.ends_message() {
            self.counters.messages += 1;
        }
        if let Some(deth) = ext::deth(packet.bytes, packet.rdma) {
            self.queue_key = deth.queue_key.get();
        }
        if let Some(aeth) = ext::aeth(packet.bytes, packet.rdma) {
            let syndrome = aeth.syndrome();
            self.note_syndrome(syndrome);
            noticed.syndrome = Some(syndrome);
        }
    }
}
