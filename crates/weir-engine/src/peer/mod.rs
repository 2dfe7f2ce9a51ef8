//! The peers of a pair: one table, and the life of their associations.
//!
//! | found by | with |
//! |---|---|
//! | an address behind it | [`Policy::peer_for`], kept in step with the table |
//! | SPI | [`Openings`] |
//! | its own outer address | [`Peers::at_endpoint`] |
//! | its public key | [`Peers::index_of`] |
//! | what was told of it before | [`PeerId`]: stale once another has its place |
//!
//! A peer keeps its index for as long as it is there. One comes or goes without a look at the
//! others; a whole policy ([`renew`]) is the way of the configuration.
//!
//! This module knows what peers are. What is done to their packets is [`crate::protect`]'s.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use weir_wire::frame::{Frame, Time};

use crate::counters::{ClearCounters, PeerCounters, TagCounters};
use crate::esp::seal::SealingSa;
use crate::neighbour::Neighbours;
use crate::policy::{self, Policy};
use crate::tunnel::key::PublicKey;
use crate::verdict::DropReason;

mod agreed;
mod associations;
mod entry;
mod kernel;
pub mod life;
mod limit;
mod openings;
mod path;
mod renew;
mod rollout;
mod sources;
mod tags;

pub use agreed::Agreed;
pub(crate) use agreed::link_of;
pub use associations::{Associations, Left, PeerChange};
pub(crate) use entry::{HOP_LIMIT, PeerEntry};
pub(crate) use kernel::KernelPeers;
pub(crate) use limit::Heading;
pub(crate) use openings::{OpeningPeer, Openings};
pub use rollout::SealingChange;
pub(crate) use sources::Sources;
pub(crate) use tags::TaggedPeer;

/// A peer of an engine, for as long as it is there: another that gets its place has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

/// Who has been where, and what peers were told apart by.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    entry: Option<PeerEntry>,
}

/// All peers, beside `policy.peers`, by index.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Slot>,
    pub(crate) openings: Openings,
    /// Those whose ESP the kernel does.
    pub(crate) kernel: KernelPeers,
    by_identity: HashMap<PublicKey, u32>,
    by_endpoint: BTreeSet<(IpAddr, u32)>,
    /// Those that something happened to since the last report.
    noted: Vec<PeerId>,
    /// Behind the last peer whose keys the policy names.
    named_until: usize,
    /// When ICMP was last looked at.
    heeded: Time,
}

/// What it takes to know where a peer is on the wire.
pub(crate) struct Nearby<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) neighbours: &'a mut Neighbours,
    pub(crate) now: Time,
}

impl Peers {
    /// The peer at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&PeerEntry> {
        self.slots.get(index)?.entry.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut PeerEntry> {
        self.slots.get_mut(index)?.entry.as_mut()
    }

    /// All, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &PeerEntry)> {
        self.slots.iter().enumerate().filter_map(|(index, it)| Some((index, it.entry.as_ref()?)))
    }

    /// The same, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut PeerEntry)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(index, it)| Some((index, it.entry.as_mut()?)))
    }

    /// Places for peers, vacant ones included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The index of the peer with this public key.
    pub(crate) fn index_of(&self, peer: &PublicKey) -> Option<usize> {
        self.by_identity.get(peer).map(|index| *index as usize)
    }

    /// Indices of the peers at this outer address.
    pub(crate) fn at_endpoint(&self, endpoint: IpAddr) -> impl Iterator<Item = usize> {
        let all = (endpoint, 0)..=(endpoint, u32::MAX);
        self.by_endpoint.range(all).map(|(_, index)| *index as usize)
    }

    /// What the peer at `index` is known by for as long as it is there.
    pub(crate) fn id_of(&self, index: usize) -> Option<PeerId> {
        let slot = self.slots.get(index)?;
        slot.entry.as_ref().map(|_| PeerId { index: index as u32, generation: slot.generation })
    }

    /// The index of a peer that is still there.
    pub(crate) fn index(&self, id: PeerId) -> Option<usize> {
        let index = id.index as usize;
        (self.id_of(index) == Some(id)).then_some(index)
    }

    /// Puts one peer in at `index`, which is vacant or the next behind all, with its associations.
    pub(crate) fn insert(
        &mut self,
        index: usize,
        peer: &policy::Peer,
        associations: Associations,
        nearby: &mut Nearby<'_>,
    ) -> PeerId {
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let sealing = associations.sealing.into_iter().next();
        let wire_mtu = nearby.policy.wire_mtu;
        let mut entry = PeerEntry::new(peer, sealing, wire_mtu, PeerCounters::default());
        entry.refresh(nearby.policy.own.as_ref(), nearby.neighbours, nearby.now);
        if let Some((_, tag)) = associations.tags.into_iter().next() {
            entry.tag = Some(Box::new(TaggedPeer::shared(tag)));
        }
        for association in associations.opening {
            self.make_way(association.spi().value());
            self.openings.insert(OpeningPeer { peer: index, ..OpeningPeer::new(association) });
        }
        self.put(index, entry, peer);
        if peer.agreed.is_none() {
            self.named_until = self.named_until.max(index + 1);
        }
        PeerId { index: index as u32, generation: self.slots[index].generation }
    }

    /// Removes one peer and its associations, and tells how far they went.
    pub(crate) fn remove(&mut self, index: usize, peer: &policy::Peer) -> Left {
        let mut left = Left::default();
        let Some(slot) = self.slots.get_mut(index) else { return left };
        let Some(entry) = slot.entry.take() else { return left };
        slot.generation = slot.generation.wrapping_add(1);
        if let Some(endpoint) = entry.endpoint() {
            self.by_endpoint.remove(&(endpoint, index as u32));
        }
        if let Some(identity) = peer.agreed {
            self.by_identity.remove(&identity);
        }
        let agreed = entry.agreed.iter().flat_map(|it| it.life.spis());
        for spi in peer.open_spis.iter().copied().chain(agreed) {
            let Some(mut opening) = self.openings.remove(spi) else { continue };
            if !opening.is_agreed {
                left.add_opening(&mut opening.association);
            }
        }
        if let (Some(association), None) = (&entry.association, peer.agreed) {
            left.add_sealing(association);
        }
        left
    }

    /// Takes from one peer what opens `gone` and, unless that is of `seal_spi`, what seals, and
    /// gives it `new` ones. Tells how far those went that it has no more.
    pub(crate) fn change_associations(
        &mut self,
        index: usize,
        seal_spi: Option<u32>,
        gone: &[u32],
        new: Associations,
    ) -> Left {
        let mut left = Left::default();
        for spi in gone {
            let Some(mut opening) = self.openings.remove(*spi) else { continue };
            left.add_opening(&mut opening.association);
        }
        for association in new.opening {
            self.make_way(association.spi().value());
            self.openings.insert(OpeningPeer { peer: index, ..OpeningPeer::new(association) });
        }
        let Some(entry) = self.get_mut(index) else { return left };
        let stays = |it: &SealingSa| Some(it.spi().value()) == seal_spi;
        let sealing = new.sealing.into_iter().next();
        if sealing.is_some() || !entry.association.as_ref().is_none_or(stays) {
            if let Some(before) = entry.association.take() {
                left.add_sealing(&before);
            }
            entry.counters = PeerCounters::default();
            entry.wanted = None;
        }
        if let Some(association) = sealing {
            entry.seal_with(association);
        }
        left
    }

    /// Fills a place, and has the peer found there.
    fn put(&mut self, index: usize, entry: PeerEntry, peer: &policy::Peer) {
        if let Some(endpoint) = entry.endpoint() {
            self.by_endpoint.insert((endpoint, index as u32));
        }
        if let Some(identity) = peer.agreed {
            self.by_identity.insert(identity, index as u32);
        }
        self.slots[index].entry = Some(entry);
    }

    /// Drops what is more than the peer may send or be sent.
    #[inline]
    pub(crate) fn limit(
        &mut self,
        index: usize,
        way: Heading,
        frame: &Frame<'_>,
    ) -> Result<(), DropReason> {
        let limit = self.get_mut(index).and_then(|it| it.limit.as_mut());
        let admitted = limit.is_none_or(|it| it.admits(way, frame.meta.time, frame.len()));
        if admitted { Ok(()) } else { Err(DropReason::RateLimit) }
    }

    /// What was sealed to the peer at `index` and opened from it, by the associations that it has.
    pub(crate) fn counters(&self, index: usize, peer: &policy::Peer) -> PeerCounters {
        let Some(entry) = self.get(index) else { return PeerCounters::default() };
        if let Some(counters) = self.kernel.counters(index) {
            let limited_packets = entry.limit.as_ref().map_or(0, |it| it.dropped_packets);
            return PeerCounters { limited_packets, ..counters };
        }
        PeerCounters {
            sealed_packets: entry.counters.sealed_packets,
            sealed_bytes: entry.counters.sealed_bytes,
            last_sealed: entry.counters.last_sealed,
            limited_packets: entry.limit.as_ref().map_or(0, |it| it.dropped_packets),
            ..self.opened_by(entry, peer)
        }
    }

    /// What passed in clear to and from the peer at `index`.
    pub(crate) fn clear_counters(&self, index: usize) -> ClearCounters {
        self.get(index).map(|it| it.rollout.counters).unwrap_or_default()
    }

    /// What was done about the tags of the peer at `index`; `None`: its packets carry none.
    pub(crate) fn tag_counters(&self, index: usize) -> Option<TagCounters> {
        Some(self.get(index)?.tag.as_ref()?.counters)
    }

    /// Writes outer headers anew where the next hop's MAC address is new.
    pub(crate) fn refresh(&mut self, nearby: &Nearby<'_>) {
        let own = nearby.policy.own.as_ref();
        for (_, entry) in self.iter_mut() {
            entry.refresh(own, nearby.neighbours, nearby.now);
        }
    }
}
