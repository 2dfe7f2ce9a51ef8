//! Why a policy, or a peer, may be refused.

use std::collections::{HashMap, HashSet};

use super::Engine;
use crate::detect::NoMemory;
use crate::esp::seal::SealingSa;
use crate::peer::{Associations, Left, PeerChange};
use crate::policy::{Mode, Peer, Policy};

/// Why a policy was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A peer has no association.
    #[error(
        "peer {peer:?} has no association with SPI {spi:#x}; give its key in the configuration"
    )]
    NoAssociation {
        /// The peer's name.
        peer: String,
        /// The SPI asked for.
        spi: u32,
    },
    /// A key would seal with two counters, and use numbers twice.
    #[error(
        "the association with SPI {spi:#x} has a key that seals already; give each association a \
         key of its own"
    )]
    KeySealsAlready {
        /// The second one's.
        spi: u32,
    },
    /// A peer whose packets are tagged by a shared key has none.
    #[error("peer {peer:?} has no key to tag with; give it in the configuration")]
    NoTagKey {
        /// The peer's name.
        peer: String,
    },
    /// One of its prefixes is another peer's, or another has everything.
    #[error("peer {peer:?}: one of its prefixes is another's; give every address to one peer")]
    PrefixTaken {
        /// The peer's name.
        peer: String,
    },
    /// It comes by a whole policy only: it has no name, or the key of another, or the kernel does
    /// its ESP.
    #[error(
        "peer {peer:?} cannot come alone; give it a name and key of its own, or swap the policy"
    )]
    NotAlone {
        /// The peer's name.
        peer: String,
    },
    /// Ethernet mode needs an address of our own to send from.
    #[error(
        "peer {peer:?}: mode \"ethernet\" needs `address` on the pair and `endpoint` on the peer"
    )]
    NothingToBorrow {
        /// The peer's name.
        peer: String,
    },
    /// There is no room to run the rules.
    #[error(transparent)]
    Rules(#[from] NoMemory),
}

impl Engine {
    /// Whether [`Engine::swap`] would take them.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn check(&self, policy: &Policy, new: &Associations) -> Result<(), PolicyError> {
        self.refuse_second_counter(&new.sealing)?;
        self.plain.check(policy)?;
        let sealing = self.peers.iter().filter_map(|(_, peer)| peer.association.as_ref());
        let sealing: HashSet<_> = sealing.chain(&new.sealing).map(|sa| sa.spi().value()).collect();
        let named = self.peers.openings.iter().filter(|it| !it.is_agreed);
        let opening = named.map(|it| &it.association);
        let opening: HashSet<_> = opening.chain(&new.opening).map(|sa| sa.spi().value()).collect();
        for peer in &policy.peers {
            let unsealed = peer.seal_spi.filter(|spi| !sealing.contains(spi));
            let unopened = peer.open_spis.iter().copied().find(|spi| !opening.contains(spi));
            if let Some(spi) = unsealed.or(unopened) {
                return Err(PolicyError::NoAssociation { peer: peer.name.clone(), spi });
            }
            if matches!(peer.mode, Mode::IcrcTag(_)) && peer.agreed.is_none() {
                let mut new = new.tags.iter().map(|(name, _)| name);
                if !self.peers.has_tag(&self.policy, &peer.name)
                    && !new.any(|name| *name == peer.name)
                {
                    return Err(PolicyError::NoTagKey { peer: peer.name.clone() });
                }
            }
            let placed = policy.own.is_some() && (peer.endpoint.is_some() || peer.agreed.is_some());
            if peer.mode == Mode::Ethernet && !placed {
                return Err(PolicyError::NothingToBorrow { peer: peer.name.clone() });
            }
        }
        Ok(())
    }

    /// The same for one more peer: what it brings is what it names, and nobody has that yet.
    pub(super) fn check_one(&self, peer: &Peer, new: &Associations) -> Result<(), PolicyError> {
        let name = || peer.name.clone();
        let has_its_key = peer.agreed.is_some_and(|it| self.peers.index_of(&it).is_some());
        if peer.is_vacant() || peer.kernel.is_some() || has_its_key {
            return Err(PolicyError::NotAlone { peer: name() });
        }
        self.refuse_second_counter(&new.sealing)?;
        let sealing: Vec<u32> = new.sealing.iter().map(|sa| sa.spi().value()).collect();
        let opening: Vec<u32> = new.opening.iter().map(|sa| sa.spi().value()).collect();
        // What handshakes agreed on makes way.
        let is_free = |spi: &&u32| self.peers.openings.of_spi(**spi).is_none_or(|it| it.is_agreed);
        let unsealed = peer.seal_spi.filter(|spi| sealing != [*spi]);
        let missing = peer.open_spis.iter().find(|spi| !opening.contains(spi));
        let taken = opening.iter().find(|spi| !is_free(spi) || !peer.open_spis.contains(spi));
        if let Some(spi) = unsealed.or(missing.or(taken).copied()) {
            return Err(PolicyError::NoAssociation { peer: name(), spi });
        }
        let is_tagged = matches!(peer.mode, Mode::IcrcTag(_)) && peer.agreed.is_none();
        if is_tagged && new.tags.is_empty() {
            return Err(PolicyError::NoTagKey { peer: name() });
        }
        let placed =
            self.policy.own.is_some() && (peer.endpoint.is_some() || peer.agreed.is_some());
        match peer.mode == Mode::Ethernet && !placed {
            true => Err(PolicyError::NothingToBorrow { peer: name() }),
            false => Ok(()),
        }
    }

    /// Has peers seal and open with other associations, each of which changes once, without a look
    /// at what the others have: those that they have and still name go on, the rest is new. Tells
    /// how far those went that they have no more.
    ///
    /// # Errors
    /// [`PolicyError`]; nothing has changed.
    pub fn change_associations(&mut self, changes: Vec<PeerChange>) -> Result<Left, PolicyError> {
        self.refuse_second_counter(changes.iter().flat_map(|it| &it.new.sealing))?;
        let mut indices = Vec::with_capacity(changes.len());
        let mut opening = HashSet::new();
        for change in &changes {
            let index = self.peers.index(change.peer);
            let index = index.ok_or(PolicyError::NotAlone { peer: String::new() })?;
            self.check_change(index, change)?;
            let mut new = change.new.opening.iter().map(|sa| sa.spi().value());
            if let Some(spi) = new.find(|spi| !opening.insert(*spi)) {
                let peer = self.policy.peers[index].name.clone();
                return Err(PolicyError::NoAssociation { peer, spi });
            }
            indices.push(index);
        }
        let mut left = Left::default();
        for (index, PeerChange { seal_spi, open_spis, new, .. }) in indices.into_iter().zip(changes)
        {
            let peer = &mut self.policy.peers[index];
            peer.seal_spi = seal_spi;
            let mut gone = std::mem::replace(&mut peer.open_spis, open_spis);
            gone.retain(|spi| !peer.open_spis.contains(spi));
            left.extend(self.peers.change_associations(index, seal_spi, &gone, new));
        }
        Ok(left)
    }

    fn check_change(&self, index: usize, change: &PeerChange) -> Result<(), PolicyError> {
        let PeerChange { seal_spi, open_spis, new, .. } = change;
        let peer = &self.policy.peers[index];
        let name = || peer.name.clone();
        if peer.agreed.is_some() || peer.kernel.is_some() || !new.tags.is_empty() {
            return Err(PolicyError::NotAlone { peer: name() });
        }
        let own = self.peers.get(index).and_then(|it| it.association.as_ref());
        let sealing: Vec<u32> = new.sealing.iter().map(|sa| sa.spi().value()).collect();
        let stays = |spi: u32| own.is_some_and(|it| it.spi().value() == spi);
        let unsealed = match (seal_spi, &sealing[..]) {
            (Some(spi), []) if stays(*spi) => None,
            (Some(spi), [new]) if new == spi => None,
            (None, []) => None,
            (spi, new) => spi.or(new.first().copied()),
        };
        let opening: Vec<u32> = new.opening.iter().map(|sa| sa.spi().value()).collect();
        let has = |spi: &u32| self.peers.openings.of_spi(*spi).map(|it| (it.peer, it.is_agreed));
        let missing =
            open_spis.iter().find(|it| !opening.contains(it) && has(it) != Some((index, false)));
        // What handshakes agreed on makes way.
        let is_taken = |spi: &u32| has(spi).is_some_and(|(_, is_agreed)| !is_agreed);
        let taken = opening.iter().find(|it| is_taken(it) || !open_spis.contains(it));
        match unsealed.or(missing.or(taken).copied()) {
            Some(spi) => Err(PolicyError::NoAssociation { peer: name(), spi }),
            None => Ok(()),
        }
    }

    /// A key that seals, or sealed until this very change, goes on in the association that it has:
    /// another would begin before it ends.
    fn refuse_second_counter<'a>(
        &self,
        new: impl IntoIterator<Item = &'a SealingSa>,
    ) -> Result<(), PolicyError> {
        let key = |it: &SealingSa| it.state().fingerprint;
        let mut keys = HashMap::new();
        for association in new {
            let spi = association.spi().value();
            if keys.insert(key(association), spi).is_some() {
                return Err(PolicyError::KeySealsAlready { spi });
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let mut sealing = self.peers.iter().filter_map(|(_, peer)| peer.association.as_ref());
        match sealing.find_map(|it| keys.get(&key(it))) {
            Some(spi) => Err(PolicyError::KeySealsAlready { spi: *spi }),
            None => Ok(()),
        }
    }
}
