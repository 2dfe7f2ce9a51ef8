//! Alternate paths of connections (IBTA Vol 1 s12.8): a connection that moved to one comes from
//! other addresses, to the same queue pairs.
//!
//! ```text
//!   REQ with an alternate path, REP that accepts it --> known from the beginning
//!   LAP, then APR that says "loaded" ----------------> known from then on; the earlier one ends
//!   DREQ --------------------------------------------> over
//! ```
//!
//! Both tables are bounded. At the bound a path is not followed, and counted: its packets are
//! judged as a stranger's.

use std::collections::HashMap;

use weir_wire::bth::Qpn;

use crate::rdma::QueuePairKey;

/// LAPs remembered until their APR comes; a power of two. A newer one takes the place of an older
/// one that hashes alike.
const PROPOSED: usize = 256;
/// Connections with an alternate path, at most.
const LOADED_MAX: usize = 4096;

/// The two directions of a path: to the queue pair of who was asked, and to who asked.
pub(super) type Directions = [QueuePairKey; 2];

#[derive(Clone, Copy, Debug)]
struct Proposed {
    hash: u64,
    /// Fingerprint of the asked queue pair by its first path.
    asked: u64,
    path: Directions,
}

/// What is proposed, and what is in force.
#[derive(Debug, Default)]
pub(super) struct Alternates {
    proposed: Vec<Option<Proposed>>,
    /// Fingerprints of both queue pairs by the alternate path, by either's fingerprint by the
    /// first.
    loaded: HashMap<u64, [u64; 2]>,
}

impl Alternates {
    /// A LAP came: `hash` is what its APR will be found by.
    pub(super) fn propose(&mut self, hash: u64, asked: u64, path: Directions) {
        if self.proposed.is_empty() {
            self.proposed = vec![None; PROPOSED];
        }
        self.proposed[hash as usize % PROPOSED] = Some(Proposed { hash, asked, path });
    }

    /// Takes what was proposed under `hash`: the asked queue pair, and the path.
    pub(super) fn take_proposed(&mut self, hash: u64) -> Option<(u64, Directions)> {
        let place = self.proposed.get_mut(hash as usize % PROPOSED)?;
        place.take_if(|it| it.hash == hash).map(|it| (it.asked, it.path))
    }

    /// Whether another connection's path finds room.
    pub(super) fn has_room(&self) -> bool {
        self.loaded.len() + 2 <= 2 * LOADED_MAX
    }

    /// Notes the path in force of the connection between `first`.
    pub(super) fn load(&mut self, first: [u64; 2], alternate: [u64; 2]) {
        for key in first {
            self.loaded.insert(key, alternate);
        }
    }

    /// Forgets the path of the connection between `first`, and returns it.
    pub(super) fn unload(&mut self, first: [u64; 2]) -> Option<[u64; 2]> {
        let [one, other] = first.map(|key| self.loaded.remove(&key));
        one.or(other)
    }
}

/// The path between `asker` and `asked` for a connection of these queue pairs, whose first path is
/// `like`; `None`: it is none, or no other one.
pub(super) fn path(
    like: QueuePairKey,
    [asker, asked]: [[u8; 16]; 2],
    [asker_qp, asked_qp]: [Qpn; 2],
) -> Option<Directions> {
    let is_one = asker != [0; 16] && asked != [0; 16];
    let to_asked = like.between(asker, asked, asked_qp);
    let is_other = [like.source(), like.destination()] != [asker, asked];
    (is_one && is_other).then(|| [to_asked, to_asked.reversed_to(asker_qp)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_is_taken_once_and_by_its_own_name() {
        let mut alternates = Alternates::default();
        let like = QueuePairKey::default();
        let path = path(like, [[1; 16], [2; 16]], [Qpn::new(3), Qpn::new(4)]).unwrap();
        assert_eq!(path.map(|it| it.destination_qp().value()), [4, 3]);
        assert_eq!(path[1].source(), [2; 16]);
        alternates.propose(7, 70, path);
        assert!(alternates.take_proposed(7 + PROPOSED as u64).is_none());
        assert_eq!(alternates.take_proposed(7).map(|it| it.0), Some(70));
        assert!(alternates.take_proposed(7).is_none());
    }

    #[test]
    fn a_path_ends_by_either_queue_pair_and_there_are_so_many_at_most() {
        let mut alternates = Alternates::default();
        for key in 0..LOADED_MAX as u64 {
            assert!(alternates.has_room());
            alternates.load([2 * key, 2 * key + 1], [key, key]);
        }
        assert!(!alternates.has_room());
        assert_eq!(alternates.unload([9, 8]), Some([4, 4]));
        assert!(alternates.has_room());
        assert_eq!(alternates.unload([8, 9]), None);
    }
}
