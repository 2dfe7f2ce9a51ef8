//! What a policy brings along, and why it may be refused.

use std::collections::HashSet;

use super::Engine;
use crate::detect::NoMemory;
use crate::esp::icrc_tag::IcrcTag;
use crate::esp::open::{OpeningSa, OpeningState};
use crate::esp::seal::{SealingSa, SealingState};
use crate::policy::{Mode, Policy};

/// Associations that are new, or whose key changed. Those of a running engine that the policy still
/// names are kept and must not be among them: their sequence numbers go on.
#[derive(Debug, Default)]
pub struct Associations {
    /// To peers; found by SPI.
    pub sealing: Vec<SealingSa>,
    /// From peers.
    pub opening: Vec<OpeningSa>,
    /// Of peers whose packets are tagged by shared keys, by name. Who is not named keeps its own.
    pub tags: Vec<(String, IcrcTag)>,
}

/// How far the keys went that a new policy uses no more, or under another name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Of each that sealed: the number that it would have used next.
    pub sealing: Vec<SealingState>,
    /// Of each that opened: what was accepted.
    pub opening: Vec<OpeningState>,
}

impl Left {
    pub(super) fn add_sealing(&mut self, association: &SealingSa) {
        let reserved_until = association.next_sequence().0;
        self.sealing.push(SealingState { reserved_until, ..association.state() });
    }

    pub(super) fn add_opening(&mut self, association: &mut OpeningSa) {
        let mut state = association.empty_state();
        association.snapshot(&mut state);
        self.opening.push(state);
    }
}

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
        let sealing = self.sealing.iter().filter_map(|peer| peer.association.as_ref());
        let sealing: HashSet<_> = sealing.chain(&new.sealing).map(|sa| sa.spi().value()).collect();
        let opening = self.opening.iter().map(|it| &it.association);
        let opening: HashSet<_> = opening.chain(&new.opening).map(|sa| sa.spi().value()).collect();
        for peer in &policy.peers {
            let unsealed = peer.seal_spi.filter(|spi| !sealing.contains(spi));
            let unopened = peer.open_spis.iter().copied().find(|spi| !opening.contains(spi));
            if let Some(spi) = unsealed.or(unopened) {
                return Err(PolicyError::NoAssociation { peer: peer.name.clone(), spi });
            }
            if matches!(peer.mode, Mode::IcrcTag(_)) && peer.agreed.is_none() {
                let mut new = new.tags.iter().map(|(name, _)| name);
                if !self.has_tag(&peer.name) && !new.any(|name| *name == peer.name) {
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

    /// A key that seals, or sealed until this very change, goes on in the association that it has:
    /// another would begin before it ends.
    fn refuse_second_counter(&self, new: &Associations) -> Result<(), PolicyError> {
        let key = |it: &SealingSa| it.state().fingerprint;
        let sealing = self.sealing.iter().filter_map(|peer| peer.association.as_ref());
        let mut keys: HashSet<_> = sealing.map(key).collect();
        match new.sealing.iter().find(|it| !keys.insert(key(it))) {
            Some(second) => Err(PolicyError::KeySealsAlready { spi: second.spi().value() }),
            None => Ok(()),
        }
    }
}
