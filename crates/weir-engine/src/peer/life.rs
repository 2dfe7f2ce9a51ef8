//! The life of the associations with one peer, whoever has their keys: the engine, for tags and for
//! ESP, or the kernel and a NIC beneath.
//!
//! ```text
//!                  initiator                         responder
//!   install        opens, and seals at once          opens; what seals waits
//!   confirm        -                                 its first packet came: what waited seals
//!   install again  the one before opens on           the same
//!   full           the oldest goes                   the same
//!   forget, close  opens no longer                   the same; what waited for it is gone
//! ```
//!
//! When keys are made anew and when they end is for [`crate::tunnel`] to say, which counts them by
//! the same [`OPENING_MAX`].

use arrayvec::ArrayVec;

use crate::tunnel::handshake::Role;
use crate::tunnel::rekey::OPENING_MAX;

/// Associations of one peer that open, at most: those that the handshakes count, and one on its way
/// out.
pub const OPENING_PLACES: usize = OPENING_MAX + 1;

/// The associations with one peer. `O` is what is kept beside the SPI of one that opens, `S` is
/// what seals.
#[derive(Debug)]
pub struct Life<O, S> {
    /// Oldest first.
    open: ArrayVec<(u32, O), OPENING_PLACES>,
    /// SPI that opens, and what seals as soon as a packet came by it.
    waiting: Option<(u32, S)>,
}

impl<O, S> Default for Life<O, S> {
    fn default() -> Self {
        Self { open: ArrayVec::new(), waiting: None }
    }
}

impl<O, S> Life<O, S> {
    /// The SPI that must be forgotten before another association is installed; `None`: there is
    /// room.
    pub fn leaves_next(&self) -> Option<u32> {
        self.open.first().filter(|_| self.open.is_full()).map(|(spi, _)| *spi)
    }

    /// New associations: `open_spi` opens from now on. Returns what seals from now on, if anything
    /// new does. Without room ([`Life::leaves_next`]) nothing of it is kept.
    #[must_use = "it seals from now on"]
    pub fn install(&mut self, role: Role, open_spi: u32, open: O, seal: S) -> Option<S> {
        self.open.try_push((open_spi, open)).ok()?;
        match role {
            Role::Initiator => Some(seal),
            Role::Responder => {
                self.waiting = Some((open_spi, seal));
                None
            }
        }
    }

    /// A packet came by `open_spi`. Returns what seals from now on, if that waited for it.
    #[must_use = "it seals from now on"]
    pub fn confirm(&mut self, open_spi: u32) -> Option<S> {
        self.waiting.take_if(|(waits_for, _)| *waits_for == open_spi).map(|(_, seal)| seal)
    }

    /// Whether something waits for the first packet by `open_spi`.
    #[inline]
    pub fn awaits(&self, open_spi: u32) -> bool {
        self.waiting.as_ref().is_some_and(|(waits_for, _)| *waits_for == open_spi)
    }

    /// `open_spi` opens no longer, and nothing waits for it. Returns what was kept beside it.
    pub fn forget(&mut self, open_spi: u32) -> Option<O> {
        self.waiting.take_if(|(waits_for, _)| *waits_for == open_spi);
        let place = self.open.iter().position(|(spi, _)| *spi == open_spi)?;
        Some(self.open.remove(place).1)
    }

    /// Nothing waits any longer; returns the SPIs that open, each of which is to be forgotten.
    pub fn close(&mut self) -> ArrayVec<u32, OPENING_PLACES> {
        self.waiting = None;
        self.spis().collect()
    }

    /// SPIs that open, oldest first.
    pub fn spis(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.open.iter().map(|(spi, _)| *spi)
    }

    /// What opens, oldest first.
    pub fn opening(&self) -> impl DoubleEndedIterator<Item = (u32, &O)> {
        self.open.iter().map(|(spi, open)| (*spi, open))
    }

    /// The same, to change what is kept beside.
    pub fn opening_mut(&mut self) -> impl DoubleEndedIterator<Item = (u32, &mut O)> {
        self.open.iter_mut().map(|(spi, open)| (*spi, open))
    }

    /// Whether nothing opens.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiator_seals_at_once_and_a_responder_when_the_first_packet_came() {
        let mut life: Life<(), char> = Life::default();
        assert_eq!(life.install(Role::Initiator, 1, (), 'a'), Some('a'));
        assert_eq!(life.install(Role::Responder, 2, (), 'b'), None);
        assert!(life.awaits(2) && !life.awaits(1));
        assert_eq!(life.confirm(1), None, "an old association tells nothing of the new one");
        assert_eq!(life.confirm(2), Some('b'));
        assert_eq!(life.confirm(2), None, "once");
        assert!(life.spis().eq([1, 2]));
    }

    #[test]
    fn a_later_handshake_replaces_what_waits_and_a_forgotten_one_never_seals() {
        let mut life: Life<(), char> = Life::default();
        assert_eq!(life.install(Role::Responder, 1, (), 'a'), None);
        assert_eq!(life.install(Role::Responder, 2, (), 'b'), None);
        assert_eq!(life.confirm(1), None);
        assert_eq!(life.forget(2), Some(()));
        assert_eq!(life.confirm(2), None);
        assert_eq!(life.forget(2), None);
    }

    #[test]
    fn at_the_bound_the_oldest_leaves() {
        let mut life: Life<u32, char> = Life::default();
        for spi in 1..=OPENING_PLACES as u32 {
            assert_eq!(life.leaves_next(), None);
            assert!(life.install(Role::Initiator, spi, spi * 10, 'x').is_some());
        }
        assert_eq!(life.leaves_next(), Some(1));
        assert_eq!(life.install(Role::Initiator, 99, 0, 'x'), None, "no room");
        assert_eq!(life.forget(1), Some(10));
        assert!(life.install(Role::Initiator, 99, 0, 'x').is_some());
        assert_eq!(life.close().as_slice(), [2, 3, 4, 5, 99]);
    }
}
