//! What a policy brings along, and what it leaves behind.

use crate::esp::icrc_tag::IcrcTag;
use crate::esp::open::{OpeningSa, OpeningState};
use crate::esp::seal::{SealingSa, SealingState};
use crate::peer::PeerId;

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

/// What one peer is to seal and open with.
#[derive(Debug)]
pub struct PeerChange {
    /// Whose keys neither handshakes agree on nor the kernel has.
    pub peer: PeerId,
    /// To seal with; `None`: nothing, and what belongs there is dropped.
    pub seal_spi: Option<u32>,
    /// To open with.
    pub open_spis: Vec<u32>,
    /// Those of them that it does not have yet.
    pub new: Associations,
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
    pub(crate) fn extend(&mut self, more: Self) {
        self.sealing.extend(more.sealing);
        self.opening.extend(more.opening);
    }

    pub(crate) fn add_sealing(&mut self, association: &SealingSa) {
        let reserved_until = association.next_sequence().0;
        self.sealing.push(SealingState { reserved_until, ..association.state() });
    }

    pub(crate) fn add_opening(&mut self, association: &mut OpeningSa) {
        let mut state = association.empty_state();
        association.snapshot(&mut state);
        self.opening.push(state);
    }
}
