//! A change of the whole policy: what goes on, what is new, and what is left.
//!
//! | keys from | go on by |
//! |---|---|
//! | files and front ends | SPI |
//! | handshakes | the peer's public key |
//! | files of tag keys | the peer's name |

use std::collections::{BTreeMap, HashMap, HashSet};

use super::agreed::add;
use super::{Associations, Left, Nearby, OpeningPeer, PeerEntry, Peers, TaggedPeer};
use crate::counters::PeerCounters;
use crate::esp::icrc_tag::IcrcTag;
use crate::esp::seal::SealingSa;
use crate::policy::{Mode, Policy};
use crate::tunnel::key::PublicKey;

/// What survives a change of policy: a peer, and what opens.
type Survivors = HashMap<PublicKey, (PeerEntry, Vec<OpeningPeer>)>;

/// What survives a change of policy, by the peers' names.
type Tags = BTreeMap<String, Box<TaggedPeer>>;

/// What the policy names, by SPI.
#[derive(Default)]
struct Named {
    sealing: BTreeMap<u32, (SealingSa, PeerCounters)>,
    opening: BTreeMap<u32, OpeningPeer>,
}

impl Peers {
    /// Takes the peers of `nearby`'s policy in place of those of `before`. Associations that it
    /// still names go on, unless `associations` brings another of the same SPI.
    pub(crate) fn renew(
        &mut self,
        before: &Policy,
        associations: Associations,
        nearby: &mut Nearby<'_>,
    ) -> Left {
        let policy = nearby.policy;
        let mut left = Left::default();
        let rollouts = self.take_rollouts(before);
        let tags = self.take_tags(before);
        let survivors = self.take_survivors(before);
        let mut named = self.take_named();
        named.add(associations.sealing, associations.opening, &mut left);
        self.by_identity.clear();
        self.by_endpoint.clear();
        self.noted.clear();
        self.fit(before, policy);
        for (index, peer) in policy.peers.iter().enumerate().filter(|(_, it)| !it.is_vacant()) {
            let (association, counters) =
                peer.seal_spi.and_then(|spi| named.sealing.remove(&spi)).unzip();
            let counters = counters.unwrap_or_default();
            self.put(index, PeerEntry::new(peer, association, policy.wire_mtu, counters), peer);
            for opening in peer.open_spis.iter().filter_map(|spi| named.opening.remove(spi)) {
                self.openings.insert(OpeningPeer { peer: index, ..opening });
            }
        }
        named.sealing.values().for_each(|(association, _)| left.add_sealing(association));
        named.opening.values_mut().for_each(|it| left.add_opening(&mut it.association));
        let last = policy.peers.iter().rposition(|peer| peer.agreed.is_none());
        self.named_until = last.map_or(0, |last| last + 1);
        self.kernel.renew(policy);
        self.restore(survivors, nearby);
        self.restore_rollouts(policy, &rollouts);
        self.restore_tags(policy, tags, associations.tags);
        left
    }

    /// Empties all places, and has as many as `policy` has. Ids of peers that keep their place and
    /// name stay true.
    fn fit(&mut self, before: &Policy, policy: &Policy) {
        let name = |policy: &Policy, at: usize| policy.peers.get(at).map(|it| it.name.clone());
        self.slots.resize_with(policy.peers.len().max(self.slots.len()), Default::default);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.entry = None;
            let stays = name(before, index) == name(policy, index);
            slot.generation = slot.generation.wrapping_add(u32::from(!stays));
        }
    }

    fn take_named(&mut self) -> Named {
        let mut named = Named::default();
        for (_, entry) in self.iter_mut() {
            let Some(association) = entry.association.take() else { continue };
            named.sealing.insert(association.spi().value(), (association, entry.counters));
        }
        named.opening.extend(self.openings.drain().map(|it| (it.association.spi().value(), it)));
        named
    }

    /// Parts what agreed peers have from the rest.
    fn take_survivors(&mut self, before: &Policy) -> Survivors {
        let mut openings: HashMap<usize, Vec<OpeningPeer>> = HashMap::new();
        let agreed: HashSet<u32> = self.openings.agreed().map(|it| it.1).collect();
        for spi in agreed {
            let Some(opening) = self.openings.remove(spi) else { continue };
            openings.entry(opening.peer).or_default().push(opening);
        }
        let mut survivors = Survivors::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(wanted) = before.peers.get(index) else { continue };
            let Some(identity) = wanted.agreed else { continue };
            let opening = openings.remove(&index).unwrap_or_default();
            // The kernel has the associations of some.
            if (opening.is_empty() && wanted.kernel.is_none()) || slot.entry.is_none() {
                continue;
            }
            if let Some(entry) = slot.entry.take() {
                survivors.insert(identity, (entry, opening));
            }
        }
        survivors
    }

    /// Gives agreed peers of the new policy what they had.
    fn restore(&mut self, mut survivors: Survivors, nearby: &mut Nearby<'_>) {
        for index in 0..self.slots.len() {
            let identity = nearby.policy.peers.get(index).and_then(|it| it.agreed);
            let Some(identity) = identity else { continue };
            let Some((before, openings)) = survivors.remove(&identity) else { continue };
            let moved = before.endpoint().filter(|_| nearby.policy.own.is_some());
            if !self.get_mut(index).is_some_and(|it| it.go_on(before)) {
                continue;
            }
            let mut is_lost = false;
            for opening in openings {
                // The policy names a key with this SPI now.
                if self.openings.find(opening.association.spi().value()).is_none() {
                    self.openings.insert(OpeningPeer { peer: index, ..opening });
                } else if let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) {
                    add(&mut agreed.opened_before, &opening.counters);
                    is_lost = true;
                }
            }
            if let Some(endpoint) = moved {
                self.move_to(index, endpoint, None, nearby);
            }
            self.note_again(index);
            if is_lost {
                self.lose(index);
            }
        }
    }

    /// Parts what tagged peers of the present policy have from the rest; those whose keys are
    /// agreed go with their associations.
    fn take_tags(&mut self, before: &Policy) -> Tags {
        let mut tags = Tags::new();
        for (index, entry) in self.iter_mut() {
            let Some(peer) = before.peers.get(index).filter(|it| it.agreed.is_none()) else {
                continue;
            };
            if let Some(tag) = entry.tag.take() {
                tags.insert(peer.name.clone(), tag);
            }
        }
        tags
    }

    /// Gives tagged peers of the new policy the keys that are `new`, or those that they had.
    fn restore_tags(&mut self, policy: &Policy, mut before: Tags, new: Vec<(String, IcrcTag)>) {
        let mut new: BTreeMap<String, IcrcTag> = new.into_iter().collect();
        for (index, entry) in self.iter_mut() {
            let Some(peer) = policy.peers.get(index) else { continue };
            if !matches!(peer.mode, Mode::IcrcTag(_)) || peer.agreed.is_some() {
                continue;
            }
            let before = before.remove(&peer.name);
            entry.tag = match new.remove(&peer.name) {
                Some(tag) => {
                    let counters = before.map(|it| it.counters).unwrap_or_default();
                    Some(Box::new(TaggedPeer { tag, counters }))
                }
                None => before,
            };
        }
    }

    /// Whether the peer of this name has tag keys of a file to go on with.
    pub(crate) fn has_tag(&self, policy: &Policy, name: &str) -> bool {
        self.iter().any(|(index, it)| {
            let peer = policy.peers.get(index);
            it.tag.is_some() && peer.is_some_and(|it| it.name == name && it.agreed.is_none())
        })
    }

    /// The associations that seal and that the policy names.
    pub(crate) fn named_sealing(&mut self) -> impl Iterator<Item = &mut SealingSa> {
        let slots = self.slots.iter_mut().take(self.named_until);
        let entries = slots.filter_map(|it| it.entry.as_mut());
        entries.filter(|it| it.agreed.is_none()).filter_map(|it| it.association.as_mut())
    }
}

impl Named {
    fn add(
        &mut self,
        sealing: Vec<SealingSa>,
        opening: Vec<crate::esp::open::OpeningSa>,
        left: &mut Left,
    ) {
        for association in sealing {
            let new = (association, PeerCounters::default());
            if let Some((old, _)) = self.sealing.insert(new.0.spi().value(), new) {
                left.add_sealing(&old);
            }
        }
        for association in opening {
            let new = OpeningPeer::new(association);
            if let Some(mut old) = self.opening.insert(new.association.spi().value(), new) {
                left.add_opening(&mut old.association);
            }
        }
    }
}
