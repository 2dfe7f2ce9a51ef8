//! What a policy brings along, and why it may be refused.

use crate::esp::icrc_tag::IcrcTag;
use crate::esp::open::OpeningSa;
use crate::esp::seal::SealingSa;

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
}
