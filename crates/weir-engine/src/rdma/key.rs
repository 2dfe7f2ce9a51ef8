//! What identifies one direction of queue-pair traffic.

use weir_wire::bth::Qpn;
use weir_wire::parse::{Encapsulation, Parsed, Rdma};

use crate::flow::HashSeed;
use crate::flow::key::{address, vlan_identifiers};

/// One direction of queue-pair traffic: from an address to a queue pair at another address.
///
/// Datagrams also name the queue pair that sent them (DETH), so the key of the other direction is
/// known from the packet itself. Connected packets do not; their `source_qp` is none here, and
/// [`super::pairing`] finds the other direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueuePairKey {
    /// Source address, destination address, then queue pairs and encapsulation, then VLANs.
    words: [u64; 6],
}

const HAS_SOURCE_QP: u64 = 1 << 8;

impl QueuePairKey {
    /// The key of a packet; `source_qp` is the DETH's, for datagrams.
    #[inline]
    pub fn of(parsed: &Parsed, rdma: &Rdma, source_qp: Option<Qpn>) -> Self {
        let source = u128::from_be_bytes(parsed.source);
        let destination = u128::from_be_bytes(parsed.destination);
        let queue_pairs = u64::from(rdma.destination_qp.value()) << 40
            | source_qp.map_or(0, |qpn| u64::from(qpn.value()) << 16 | HAS_SOURCE_QP)
            | rdma.encapsulation as u64;
        Self {
            words: [
                (source >> 64) as u64,
                source as u64,
                (destination >> 64) as u64,
                destination as u64,
                queue_pairs,
                u64::from(vlan_identifiers(&parsed.link)),
            ],
        }
    }

    /// The direction against this one, from `source_qp` of this one's destination.
    pub fn reversed_to(&self, destination_qp: Qpn) -> Self {
        let [high, low, other_high, other_low, queue_pairs, vlans] = self.words;
        let queue_pairs = u64::from(destination_qp.value()) << 40 | queue_pairs & 0xff;
        Self { words: [other_high, other_low, high, low, queue_pairs, vlans] }
    }

    /// A direction that travels as this one, from `source` to `queue_pair` at `destination`.
    pub(crate) fn between(&self, source: [u8; 16], destination: [u8; 16], queue_pair: Qpn) -> Self {
        let halves = |it: [u8; 16]| {
            let number = u128::from_be_bytes(it);
            [(number >> 64) as u64, number as u64]
        };
        let ([high, low], [other_high, other_low]) = (halves(source), halves(destination));
        let queue_pairs = u64::from(queue_pair.value()) << 40 | self.words[4] & 0xff;
        Self { words: [high, low, other_high, other_low, queue_pairs, self.words[5]] }
    }

    /// The key of datagrams that answer these; `None` for connected queue pairs.
    pub fn answer(&self) -> Option<Self> {
        let source_qp = self.source_qp()?;
        let mut key = self.reversed_to(source_qp);
        key.words[4] |= u64::from(self.destination_qp().value()) << 16 | HAS_SOURCE_QP;
        Some(key)
    }

    /// Its hash under `seed`.
    #[inline]
    pub fn hash(&self, seed: &HashSeed) -> u64 {
        seed.hash(&self.words)
    }

    /// A 64-bit stand-in for the destination queue pair: its address, number and encapsulation.
    pub(crate) fn destination_fingerprint(&self, seed: &HashSeed) -> u64 {
        let [_, _, high, low, queue_pairs, vlans] = self.words;
        seed.hash(&[high, low, queue_pairs >> 40 << 8 | queue_pairs & 0xff, vlans])
    }

    /// A hash of the request numbered `psn` from end to end, queue pairs left out.
    pub(crate) fn request_hash(&self, psn: u32, seed: &HashSeed) -> u64 {
        let [high, low, other_high, other_low, queue_pairs, vlans] = self.words;
        let tail = u64::from(psn) << 32 | (queue_pairs & 0xff) << 24 | vlans;
        seed.hash(&[high, low, other_high, other_low, tail])
    }

    /// [`Self::request_hash`] of the request that a response of this direction answers.
    pub(crate) fn answered_hash(&self, psn: u32, seed: &HashSeed) -> u64 {
        self.reversed_to(Qpn::new(0)).request_hash(psn, seed)
    }

    /// Who sends (IPv4 mapped, IPv6, GID, or LID in the last two bytes).
    pub fn source(&self) -> [u8; 16] {
        address(self.words[0], self.words[1])
    }

    /// Whom to.
    pub fn destination(&self) -> [u8; 16] {
        address(self.words[2], self.words[3])
    }

    /// The queue pair it is for.
    pub fn destination_qp(&self) -> Qpn {
        Qpn::new((self.words[4] >> 40) as u32)
    }

    /// The queue pair it is from, for datagrams.
    pub fn source_qp(&self) -> Option<Qpn> {
        (self.words[4] & HAS_SOURCE_QP != 0).then(|| Qpn::new((self.words[4] >> 16) as u32))
    }

    /// How it travels.
    pub fn encapsulation(&self) -> Encapsulation {
        match self.words[4] & 0xff {
            0 => Encapsulation::RoceV1,
            1 => Encapsulation::RoceV2,
            _ => Encapsulation::InfiniBand,
        }
    }

    /// Outer and inner VLAN identifiers, zero where there is no tag.
    pub fn vlans(&self) -> [u16; 2] {
        [(self.words[5] >> 12 & 0xfff) as u16, (self.words[5] & 0xfff) as u16]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::bth::{Opcode, PartitionKey, Psn};

    fn key(encapsulation: Encapsulation, source_qp: Option<u32>) -> QueuePairKey {
        let parsed = Parsed { source: [1; 16], destination: [2; 16], ..Parsed::default() };
        let rdma = Rdma {
            encapsulation,
            opcode: Opcode(4),
            destination_qp: Qpn::new(0xab_cdef),
            psn: Psn::new(0),
            partition_key: PartitionKey(0xffff),
            flags: 0,
            congestion: 0,
            ack_request: false,
            bth_offset: 0,
            payload_offset: 0,
            payload_len: 0,
            icrc_offset: None,
        };
        QueuePairKey::of(&parsed, &rdma, source_qp.map(Qpn::new))
    }

    #[test]
    fn a_key_says_what_went_into_it() {
        for encapsulation in
            [Encapsulation::RoceV1, Encapsulation::RoceV2, Encapsulation::InfiniBand]
        {
            let key = key(encapsulation, Some(0x12_3456));
            assert_eq!((key.source(), key.destination()), ([1; 16], [2; 16]));
            assert_eq!(key.destination_qp(), Qpn::new(0xab_cdef));
            assert_eq!(key.source_qp(), Some(Qpn::new(0x12_3456)));
            assert_eq!(key.encapsulation(), encapsulation);
        }
        assert_eq!(key(Encapsulation::RoceV2, None).source_qp(), None);
        assert_eq!(key(Encapsulation::RoceV2, Some(0)).source_qp(), Some(Qpn::new(0)));
    }

    #[test]
    fn the_answer_to_the_answer_is_the_question() {
        let question = key(Encapsulation::RoceV2, Some(17));
        let answer = question.answer().expect("a datagram names its sender");
        assert_eq!((answer.destination_qp(), answer.source()), (Qpn::new(17), [2; 16]));
        assert_eq!(answer.answer(), Some(question));
    }
}
