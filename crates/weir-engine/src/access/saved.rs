//! Whom queue pairs belong to, as it is kept over a restart: 41 bytes each. Fingerprints mean
//! nothing without the meter's seed, which has to be kept beside them.

use super::owners::{ANYBODY, Owner, Owners};
use crate::verdict::Side;

/// Owners looked at in one turn, at most: some tens of microseconds.
const LOOKED_AT_A_TURN: u32 = 1024;

/// One owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedOwner {
    key: u64,
    peer: u64,
    partner: u64,
    service: u64,
    comm_ids: [u32; 2],
    /// Behind the host port.
    is_hosts: bool,
    is_counted: bool,
    /// By connection managers.
    is_connected: bool,
}

impl SavedOwner {
    /// Bytes of one.
    pub const LEN: usize = 41;

    /// As it is written.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (at, word) in [self.key, self.peer, self.partner, self.service].iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.comm_ids[0].to_le_bytes());
        bytes[36..40].copy_from_slice(&self.comm_ids[1].to_le_bytes());
        let flags = [self.is_hosts, self.is_counted, self.is_connected];
        bytes[40] = flags.iter().rev().fold(0, |sum, it| sum << 1 | u8::from(*it));
        bytes
    }

    /// The inverse of [`SavedOwner::to_bytes`].
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_le_bytes(word)
        };
        let flag = |bit: u8| bytes[40] & bit != 0;
        let ids = word(4);
        Self {
            key: word(0),
            peer: word(1),
            partner: word(2),
            service: word(3),
            comm_ids: [ids as u32, (ids >> 32) as u32],
            is_hosts: flag(1),
            is_counted: flag(2),
            is_connected: flag(4),
        }
    }

    /// Whether connection managers named it, and not a first packet.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn of(owner: &Owner, is_connected: bool) -> Self {
        let Owner { key, peer, partner, service, comm_ids, is_counted, .. } = *owner;
        let is_hosts = owner.lives == Side::Host;
        Self { key, peer, partner, service, comm_ids, is_hosts, is_counted, is_connected }
    }

    /// The owner, and whether connection managers named it.
    pub(super) fn owner(&self) -> (Owner, bool) {
        let lives = if self.is_hosts { Side::Host } else { Side::Wire };
        let owner = Owner {
            partner: self.partner,
            service: self.service,
            comm_ids: self.comm_ids,
            is_counted: self.is_counted && self.peer != ANYBODY,
            ..Owner::new(self.key, self.peer, lives)
        };
        (owner, self.is_connected)
    }
}

/// How far a walk over all owners came. The default: to its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct SavingPlace(u32);

impl SavingPlace {
    /// Appends some of the owners, those that ended and alternate paths left out; says whether
    /// there are more.
    pub(super) fn some(&mut self, tables: [&Owners; 2], out: &mut Vec<SavedOwner>) -> bool {
        let [connected, learnt] = tables;
        let all = connected.places() + learnt.places();
        let until = self.0.saturating_add(LOOKED_AT_A_TURN).min(all);
        for at in self.0..until {
            let (table, at, is_connected) = match at.checked_sub(connected.places()) {
                None => (connected, at, true),
                Some(at) => (learnt, at, false),
            };
            if let Some(owner) = table.at_place(at).filter(|it| !it.is_closed() && !it.is_path) {
                out.push(SavedOwner::of(owner, is_connected));
            }
        }
        self.0 = until;
        until < all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        for flags in 0..8u8 {
            let saved = SavedOwner {
                key: 1 << 63 | 5,
                peer: 6,
                partner: 7,
                service: 0x0106_1144,
                comm_ids: [0xfeed_beef, 9],
                is_hosts: flags & 1 != 0,
                is_counted: flags & 2 != 0,
                is_connected: flags & 4 != 0,
            };
            assert_eq!(SavedOwner::from_bytes(&saved.to_bytes()), saved);
            let (owner, is_connected) = saved.owner();
            assert_eq!(SavedOwner::of(&owner, is_connected), saved);
        }
    }
}
