//! What an engine tells of itself.

use super::{Engine, Usage, UsageDirection};
use crate::counters::{ClearCounters, Counters, PeerCounters, TagCounters};
use crate::esp::open::OpeningSa;
use crate::esp::seal::SealingSa;
use crate::output::Output;
use crate::peer::SealingChange;

impl Engine {
    /// All counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The output of the last call.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// What was sealed to the peer of this index and opened from it, by the associations that it
    /// has.
    pub fn peer_counters(&self, peer: usize) -> PeerCounters {
        self.peers.counters(peer, &self.policy.peers[peer])
    }

    /// What passed in clear to and from the peer of this index.
    pub fn clear_counters(&self, peer: usize) -> ClearCounters {
        self.peers.clear_counters(peer)
    }

    /// What was done about the tags of the peer of this index; `None`: its packets carry none.
    pub fn tag_counters(&self, peer: usize) -> Option<TagCounters> {
        self.peers.tag_counters(peer)
    }

    /// Whether packets to the peer of this index are sealed, or tagged, at present.
    pub fn is_sealed_to(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|it| it.protects())
    }

    /// Peers that need not be sealed to, and that are, or are no more, since the last call.
    pub fn take_sealing_changes(&mut self, take: &mut dyn FnMut(SealingChange)) {
        self.peers.take_sealing_changes(&self.policy, take);
    }

    /// The association that seals to the peer of this index, when it has one.
    pub fn sealing_association(&self, peer: usize) -> Option<&SealingSa> {
        self.peers.get(peer)?.association.as_ref()
    }

    /// The associations that seal and that the policy names, to extend their reservations.
    pub fn sealing_associations(&mut self) -> impl Iterator<Item = &mut SealingSa> {
        self.peers.named_sealing()
    }

    /// The associations that open and that the policy names, in the order of its peers and of their
    /// SPIs, to keep their replay state before a batch is delivered.
    pub fn opening_associations(&mut self) -> impl Iterator<Item = &mut OpeningSa> {
        self.peers.openings.named().map(|it| &mut it.association)
    }

    /// The highest sequence number that was accepted under the SPI of an association that opens.
    pub fn highest_received(&self, spi: u32) -> Option<u64> {
        Some(self.peers.openings.of_spi(spi)?.association.highest().0)
    }

    /// What each association did.
    pub fn usage(&self) -> impl Iterator<Item = Usage> {
        let sealing = self.peers.iter().filter_map(|(_, peer)| {
            let association = peer.association.as_ref()?;
            Some(Usage {
                spi: association.spi(),
                packets: peer.counters.sealed_packets,
                bytes: peer.counters.sealed_bytes,
                sequence: association.next_sequence().0.saturating_sub(1),
                direction: UsageDirection::Sealing,
            })
        });
        let opening = self.peers.openings.iter().map(|it| Usage {
            spi: it.association.spi(),
            packets: it.counters.opened_packets,
            bytes: it.counters.opened_bytes,
            sequence: it.association.highest().0,
            direction: UsageDirection::Opening { came_from: it.came_from },
        });
        sealing.chain(opening)
    }

    /// Peers that a packet wanted an association of since the last call, with its source and
    /// destination.
    pub fn take_wanted(&mut self) -> impl Iterator<Item = (usize, [[u8; 16]; 2])> {
        self.peers.iter_mut().filter_map(|(index, it)| Some((index, it.wanted.take()?)))
    }
}
