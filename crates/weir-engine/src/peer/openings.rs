//! What opens packets: every association of every peer, found by SPI.
//!
//! ```text
//!   [ named by the policy, in its order | agreed by handshakes, in any order ]
//!                                       ^ `named`
//! ```
//!
//! Those in front are kept in their order, because their replay state is kept in files in that
//! order. One that leaves them leaves a gap; gaps are closed when they are as many as the rest. The
//! last of those behind fills the place of one that leaves there.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::counters::PeerCounters;
use crate::esp::open::OpeningSa;

/// Finds associations by SPI. SPIs are ours to choose, so nobody else can make them collide.
type BySpi = HashMap<u32, u32, BuildHasherDefault<SpiHasher>>;

/// So many gaps are not worth closing.
const GAPS_MIN: usize = 64;

/// One association that opens what a peer sends.
#[derive(Debug)]
pub(crate) struct OpeningPeer {
    /// Index of the peer in the policy.
    pub(crate) peer: usize,
    pub(crate) association: OpeningSa,
    /// ESP in UDP: address and port that the last authentic packet came from.
    pub(crate) came_from: Option<([u8; 16], u16)>,
    pub(crate) counters: PeerCounters,
    /// Whether its key was agreed by a handshake.
    pub(crate) is_agreed: bool,
}

impl OpeningPeer {
    /// An association that opened nothing yet; its peer is set by who takes it in.
    pub(crate) fn new(association: OpeningSa) -> Self {
        Self {
            peer: 0,
            association,
            came_from: None,
            counters: PeerCounters::default(),
            is_agreed: false,
        }
    }

    /// One whose key was agreed.
    pub(crate) fn agreed(association: OpeningSa) -> Self {
        Self { is_agreed: true, ..Self::new(association) }
    }

    fn spi(&self) -> u32 {
        self.association.spi().value()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    places: Vec<Option<OpeningPeer>>,
    by_spi: BySpi,
    /// Places of those that the policy names, gaps included.
    named: usize,
    /// Of them, empty ones.
    gaps: usize,
}

impl Openings {
    /// The place of what opens packets of `spi`.
    #[inline]
    pub(crate) fn find(&self, spi: u32) -> Option<usize> {
        self.by_spi.get(&spi).map(|at| *at as usize)
    }

    /// Whether `at` is the place of what opens packets of `spi`.
    #[inline]
    pub(crate) fn is_at(&self, at: usize, spi: u32) -> bool {
        matches!(self.places.get(at), Some(Some(it)) if it.association.spi().value() == spi)
    }

    #[inline]
    pub(crate) fn at(&self, at: usize) -> Option<&OpeningPeer> {
        self.places.get(at)?.as_ref()
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, at: usize) -> Option<&mut OpeningPeer> {
        self.places.get_mut(at)?.as_mut()
    }

    /// What opens packets of `spi`.
    pub(crate) fn of_spi(&self, spi: u32) -> Option<&OpeningPeer> {
        self.at(self.find(spi)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpeningPeer> {
        self.places.iter().flatten()
    }

    /// Those that the policy names, in its order.
    pub(crate) fn named(&mut self) -> impl Iterator<Item = &mut OpeningPeer> {
        self.places[..self.named].iter_mut().flatten()
    }

    /// Those whose keys were agreed: the peers' indices and the SPIs.
    pub(crate) fn agreed(&self) -> impl Iterator<Item = (usize, u32)> {
        self.iter().filter(|it| it.is_agreed).map(|it| (it.peer, it.spi()))
    }

    /// Takes one in: behind those that the policy names, or as the last of them.
    pub(crate) fn insert(&mut self, opening: OpeningPeer) {
        let is_named = !opening.is_agreed;
        self.by_spi.insert(opening.spi(), self.places.len() as u32);
        self.places.push(Some(opening));
        if is_named {
            let last = self.places.len() - 1;
            self.swap(self.named, last);
            self.named += 1;
        }
        if self.gaps > self.named / 2 + GAPS_MIN {
            self.close_gaps();
        }
    }

    /// Removes what opens packets of `spi`.
    pub(crate) fn remove(&mut self, spi: u32) -> Option<OpeningPeer> {
        let place = self.by_spi.remove(&spi)? as usize;
        if place < self.named {
            self.gaps += 1;
            return self.places[place].take();
        }
        let gone = self.places.swap_remove(place);
        self.note(place);
        gone
    }

    /// Takes all of them out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = OpeningPeer> {
        self.by_spi.clear();
        (self.named, self.gaps) = (0, 0);
        std::mem::take(&mut self.places).into_iter().flatten()
    }

    /// Half of the places in front are empty: the rest moves up, in its order.
    fn close_gaps(&mut self) {
        let all: Vec<OpeningPeer> = self.drain().collect();
        let (agreed, named): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_agreed);
        named.into_iter().chain(agreed).for_each(|it| self.insert(it));
    }

    fn swap(&mut self, a: usize, b: usize) {
        if a != b {
            self.places.swap(a, b);
            self.note(a);
            self.note(b);
        }
    }

    /// What is at `place` is found there.
    fn note(&mut self, place: usize) {
        if let Some(Some(opening)) = self.places.get(place) {
            self.by_spi.insert(opening.spi(), place as u32);
        }
    }
}

/// Spreads numbers that may lie next to each other.
#[derive(Debug, Default)]
struct SpiHasher(u64);

impl Hasher for SpiHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
