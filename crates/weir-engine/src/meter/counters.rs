//! Totals over everything the meter saw.

use weir_wire::bth::{Opcode, Qpn};
use weir_wire::ext::{NakCause, Syndrome};
use weir_wire::fastpath::{Slot, kind};
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::{Encapsulation, Fault, Parsed, Rdma};

use crate::flow::HashSeed;
use crate::flow::index::Index;
use crate::rdma::QueuePairKey;
use crate::rdma::loss::Finding;
use crate::rdma::psn::PsnOrder;
use crate::rdma::qp::{NAK_CAUSES, Noticed, nak_index};
use crate::verdict::Side;

/// Totals since the meter was made. Cheap to copy; read them as often as you like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// Their bytes on the link, as the wire had them (captures may hold fewer).
    pub bytes: u64,
    /// Of those, carried by the kernel: counted there, with nothing of their payload looked at.
    pub fast_packets: u64,
    /// Packets of which the capture holds less than the wire did.
    pub truncated: u64,
    /// Packets whose headers contradict themselves or their length.
    pub malformed: u64,
    /// Flows (5-tuples) that began. A flow that returns after its record counts again.
    pub flows: u64,
    /// Flows that left before their time because the table was full.
    pub flows_evicted: u64,
    /// Conversations that left before their time because the table was full.
    pub conversations_evicted: u64,
    /// Records lost because nobody took them in time.
    pub records_lost: u64,
    /// RDMA.
    pub rdma: RdmaTotals,
}

/// RDMA's share of [`Totals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaTotals {
    /// RDMA packets.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// RDMA payload bytes, padding excluded.
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
    /// Packets not checked: cut short, fragments, or checking was off.
    pub icrc_unchecked: u64,
    /// Distinct queue pairs that packets were addressed to: (destination address, queue pair
    /// number), QP0 and QP1 included, the multicast number and congestion notifications left out.
    pub queue_pairs: u64,
    /// Conversations, half ones included.
    pub conversations: u64,
    /// Packets by opcode byte.
    pub opcodes: [u64; 256],
    /// Refusals by cause, in the order of [`NAK_CAUSES`].
    pub naks: [u64; NAK_CAUSES.len()],
    /// Receiver-not-ready answers.
    pub rnr_naks: u64,
    /// Request packets of connected queue pairs whose number had been seen before.
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
    /// Where packets were lost or overtaken, by the side that they came in by (of captures, which
    /// have no sides, all stand with the host's).
    pub losses: [LossTotals; 2],
    /// Congestion notification packets.
    pub cnp: u64,
    /// Packets marked Congestion Experienced.
    pub congestion_experienced: u64,
    /// Responses whose requester could not be told from others.
    pub pairings_ambiguous: u64,
}

/// Losses of RDMA packets of one way through the gateway; see [`crate::rdma::Losses`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTotals {
    /// Lost before they came here.
    pub before: u64,
    /// Dropped or lost by the gateway.
    pub inside: u64,
    /// Losses after they left here.
    pub after: u64,
    /// Overtaken before they came here.
    pub overtaken: u64,
}

impl Default for RdmaTotals {
    fn default() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            payload_bytes: 0,
            roce_v1: 0,
            roce_v2: 0,
            infiniband: 0,
            icrc_ok: 0,
            icrc_bad: 0,
            icrc_unchecked: 0,
            queue_pairs: 0,
            conversations: 0,
            opcodes: [0; 256],
            naks: [0; NAK_CAUSES.len()],
            rnr_naks: 0,
            retransmissions: 0,
            response_resends: 0,
            psn_gaps: 0,
            psn_missing: 0,
            psn_late: 0,
            psn_jumps: 0,
            losses: Default::default(),
            cnp: 0,
            congestion_experienced: 0,
            pairings_ambiguous: 0,
        }
    }
}

impl Totals {
    #[inline]
    pub(crate) fn count(&mut self, parsed: &Parsed, packets: u64, wire_len: u32, is_cut: bool) {
        self.packets += packets;
        self.bytes += u64::from(wire_len);
        self.truncated += u64::from(is_cut || parsed.fault == Some(Fault::Truncated));
        self.malformed += u64::from(parsed.fault == Some(Fault::Malformed));
    }
}

impl RdmaTotals {
    /// Losses of both ways together.
    pub fn losses_total(&self) -> LossTotals {
        let [host, wire] = self.losses;
        LossTotals {
            before: host.before + wire.before,
            inside: host.inside + wire.inside,
            after: host.after + wire.after,
            overtaken: host.overtaken + wire.overtaken,
        }
    }

    /// Losses between the gateway and what is on this side of it, both ways.
    pub fn lost_at(&self, side: Side) -> u64 {
        let [from_host, from_wire] = self.losses;
        match side {
            Side::Host => from_host.before + from_wire.after,
            Side::Wire => from_wire.before + from_host.after,
        }
    }

    /// Counts a finding about packets that came in by `side`, of which `own` were ours to lose.
    pub(crate) fn charge(&mut self, side: Side, finding: Finding, own: u32) {
        let losses = &mut self.losses[side as usize];
        let own = u64::from(own);
        losses.inside += own;
        match finding {
            Finding::Before(packets) => losses.before += u64::from(packets) - own,
            Finding::After => losses.after += 1 - own,
            Finding::Inside => losses.inside += 1,
            Finding::Overtaken => {
                losses.before = losses.before.saturating_sub(1);
                losses.overtaken += 1;
            }
        }
    }

    /// Opcodes seen, with their packets, by number.
    pub fn opcodes_seen(&self) -> impl Iterator<Item = (Opcode, u64)> {
        (0..=255u8)
            .map(|byte| (Opcode(byte), self.opcodes[usize::from(byte)]))
            .filter(|(_, packets)| *packets > 0)
    }

    /// Causes of refusals, with how often each was seen.
    pub fn naks_by_cause(&self) -> impl Iterator<Item = (NakCause, u64)> {
        NAK_CAUSES.into_iter().zip(self.naks)
    }

    #[inline]
    pub(crate) fn count(&mut self, rdma: &Rdma, wire_len: u32, icrc: IcrcStatus) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
        self.payload_bytes += u64::from(rdma.payload_len);
        match rdma.encapsulation {
            Encapsulation::RoceV1 => self.roce_v1 += 1,
            Encapsulation::RoceV2 => self.roce_v2 += 1,
            Encapsulation::InfiniBand => self.infiniband += 1,
        }
        match icrc {
            IcrcStatus::Valid => self.icrc_ok += 1,
            IcrcStatus::Invalid => self.icrc_bad += 1,
            IcrcStatus::Unchecked => self.icrc_unchecked += 1,
        }
        self.opcodes[usize::from(rdma.opcode.0)] += 1;
        self.cnp += u64::from(rdma.opcode == Opcode::CNP);
    }

    /// Counts what the kernel carried; its opcodes come apart.
    pub(crate) fn fold(&mut self, kind: u8, counted: &Slot) {
        self.packets += counted.packets;
        self.bytes += counted.bytes;
        self.payload_bytes += counted.payload_bytes;
        match kind {
            kind::ROCE_V1 => self.roce_v1 += counted.packets,
            _ => self.roce_v2 += counted.packets,
        }
        self.icrc_unchecked += counted.packets;
        self.cnp += u64::from(counted.cnp);
        self.rnr_naks += u64::from(counted.rnr_naks);
        for (sum, naks) in self.naks.iter_mut().zip(counted.naks) {
            *sum += u64::from(naks);
        }
        self.congestion_experienced += counted.marked;
    }

    #[inline]
    pub(crate) fn notice(&mut self, noticed: &Noticed) {
        match noticed.request {
            None | Some(PsnOrder::InOrder) => {}
            Some(PsnOrder::Gap { missing }) => {
                self.psn_gaps += 1;
                self.psn_missing += u64::from(missing);
            }
            Some(PsnOrder::Late) => self.psn_late += 1,
            Some(PsnOrder::Seen) => self.retransmissions += 1,
            Some(PsnOrder::Jump) => self.psn_jumps += 1,
        }
        self.response_resends += u64::from(noticed.response_resent);
        self.congestion_experienced += u64::from(noticed.congestion_experienced);
        match noticed.syndrome {
            Some(Syndrome::Nak(cause)) => self.naks[nak_index(cause)] += 1,
            Some(Syndrome::RnrNak { .. }) => self.rnr_naks += 1,
            None | Some(Syndrome::Ack { .. } | Syndrome::Reserved(_)) => {}
        }
    }
}

/// The distinct queue pairs addressed so far, up to a bound; from there on the count stands still.
#[derive(Debug)]
pub(crate) struct QueuePairs {
    index: Index,
    fingerprints: Vec<u64>,
    limit: usize,
}

impl QueuePairs {
    pub(crate) fn new(limit: usize) -> Self {
        Self { index: Index::new(limit), fingerprints: Vec::with_capacity(limit), limit }
    }

    pub(crate) fn note(&mut self, key: &QueuePairKey, seed: &HashSeed) {
        if key.destination_qp() == Qpn::MULTICAST {
            return;
        }
        let fingerprint = key.destination_fingerprint(seed);
        let known = |at: u32| self.fingerprints[at as usize] == fingerprint;
        let is_known = self.index.find(fingerprint, known).is_some();
        if is_known || self.fingerprints.len() == self.limit {
            return;
        }
        if self.index.insert(fingerprint, self.fingerprints.len() as u32).is_ok() {
            self.fingerprints.push(fingerprint);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.fingerprints.len() as u64
    }
}
