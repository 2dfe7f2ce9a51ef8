//! Why a policy, or a peer, may be refused.

use std::collections::HashSet;

use super::Engine;
use crate::detect::NoMemory;
use crate::esp::seal::SealingSa;
use crate::peer::Associations;
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
        self.refuse_second_counter(new)?;
        self.plain.check(policy)?;
        let sealing = self.peers.iter().filter_map(|(_, peer)| peer.association.as_ref());
        let sealing: HashSet<_> = sealing.chain(&new.sealing).map(|sa| sa.spi().value()).collect();
        let opening = self.peers.openings.iter().map(|it| &it.association);
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
        if !new.sealing.is_empty() {
            self.refuse_second_counter(new)?;
        }
        let sealing: Vec<u32> = new.sealing.iter().map(|sa| sa.spi().value()).collect();
        let opening: Vec<u32> = new.opening.iter().map(|sa| sa.spi().value()).collect();
        let is_free = |spi: &&u32| self.peers.openings.of_spi(**spi).is_none();
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

    /// A key that seals, or sealed until this very change, goes on in the association that it has:
    /// another would begin before it ends.
    fn refuse_second_counter(&self, new: &Associations) -> Result<(), PolicyError> {
        let key = |it: &SealingSa| it.state().fingerprint;
        let sealing = self.peers.iter().filter_map(|(_, peer)| peer.association.as_ref());
        let mut keys: HashSet<_> = sealing.map(key).collect();
        match new.sealing.iter().find(|it| !keys.insert(key(it))) {
            Some(second) => Err(PolicyError::KeySealsAlready { spi: second.spi().value() }),
            None => Ok(()),
        }
    }
}
