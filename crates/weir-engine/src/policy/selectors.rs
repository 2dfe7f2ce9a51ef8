//! Which peer an address lies behind: prefixes of the configuration, and behind them those of its
//! front ends.
//!
//! The configuration's longest prefix decides. Where it has none, a front end's policies decide in
//! their own order about what is sent; about what a peer may send, their longest prefixes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::prefix::{Prefix, is_mapped};
use super::{Peer, Route};

/// So many prefixes are compared one by one; more of them are looked up, a hash for each length of
/// prefix that occurs.
pub(super) const COMPARED_MAX: usize = 16;

/// All prefixes of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selectors {
    /// The configuration's, longest first.
    compared: Vec<(Prefix, Route)>,
    /// The same where they are many: by mask, longest first, then by address.
    by_mask: Vec<(Mask, ByAddress)>,
    /// The front ends', in their own order.
    front_end: Vec<(Prefix, Route)>,
    /// What front ends' peers may send from, and what passes them by; longest first.
    senders: Vec<(Prefix, Route)>,
}

/// What prefixes looked up in one table share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask {
    mask: u128,
    without_v4: bool,
}

impl Mask {
    fn of(prefix: &Prefix) -> Self {
        Self { mask: prefix.mask, without_v4: prefix.without_v4 }
    }

    /// As [`Prefix::rank`].
    fn rank(self) -> (std::cmp::Reverse<u32>, bool) {
        (std::cmp::Reverse(self.mask.count_ones()), !self.without_v4)
    }
}

type ByAddress = HashMap<u128, Route, BuildHasherDefault<AddressHasher>>;

/// Hashes addresses without a secret. That is safe: senders choose only what is looked up, never
/// what is in the table, so they cannot make its entries collide.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(*byte));
        }
    }

    #[inline]
    fn write_u128(&mut self, address: u128) {
        let mixed =
            (address as u64 ^ (address >> 64) as u64 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Selectors {
    /// Those of the configuration's `peers`.
    pub(super) fn of(peers: &[Peer]) -> Self {
        let mut all = protected(peers, 0);
        all.sort_by_key(|(prefix, _)| prefix.rank());
        Self::ordered(all)
    }

    /// Those of `all`, the narrower first.
    fn ordered(all: Vec<(Prefix, Route)>) -> Self {
        if all.len() <= COMPARED_MAX {
            return Self { compared: all, ..Self::default() };
        }
        let mut by_mask: Vec<(Mask, ByAddress)> = Vec::new();
        for (prefix, way) in all {
            let mask = Mask::of(&prefix);
            if by_mask.last().is_none_or(|(last, _)| *last != mask) {
                by_mask.push((mask, ByAddress::default()));
            }
            if let Some((_, ways)) = by_mask.last_mut() {
                ways.entry(prefix.address).or_insert(way);
            }
        }
        Self { by_mask, ..Self::default() }
    }

    /// Whether the configuration has this very prefix.
    pub(super) fn has(&self, prefix: &Prefix) -> bool {
        let is_same = |(it, ways): &(Mask, ByAddress)| {
            *it == Mask::of(prefix) && ways.contains_key(&prefix.address)
        };
        self.compared.iter().any(|(it, _)| it == prefix) || self.by_mask.iter().any(is_same)
    }

    /// Puts one more prefix of the configuration in its place.
    pub(super) fn insert(&mut self, prefix: Prefix, way: Route) {
        if self.by_mask.is_empty() {
            let at = self.compared.partition_point(|(it, _)| it.rank() <= prefix.rank());
            self.compared.insert(at, (prefix, way));
            if self.compared.len() > COMPARED_MAX {
                let many = Self::ordered(std::mem::take(&mut self.compared));
                self.by_mask = many.by_mask;
            }
            return;
        }
        let mask = Mask::of(&prefix);
        let at = self.by_mask.partition_point(|(it, _)| it.rank() < mask.rank());
        if self.by_mask.get(at).is_none_or(|(it, _)| *it != mask) {
            self.by_mask.insert(at, (mask, ByAddress::default()));
        }
        self.by_mask[at].1.entry(prefix.address).or_insert(way);
    }

    /// Removes a prefix of the configuration that leads `way`.
    pub(super) fn remove(&mut self, prefix: &Prefix, way: Route) {
        self.compared.retain(|it| *it != (*prefix, way));
        let of_mask = self.by_mask.iter().position(|(it, _)| *it == Mask::of(prefix));
        let Some(at) = of_mask else { return };
        let ways = &mut self.by_mask[at].1;
        if ways.get(&prefix.address) == Some(&way) {
            ways.remove(&prefix.address);
        }
        if ways.is_empty() {
            self.by_mask.remove(at);
        }
    }

    /// Puts `selectors` behind those there are, and what `peers`, the first of which has the index
    /// `first`, may send from. Where `instead` is given, it replaces [`Route::Clear`].
    pub(super) fn extend(
        &mut self,
        first: u32,
        peers: &[Peer],
        selectors: Vec<(Prefix, Route)>,
        instead: Option<Route>,
    ) {
        let clear = |way: Route| instead.filter(|_| way == Route::Clear).unwrap_or(way);
        let past = selectors.iter().filter(|(_, way)| !matches!(way, Route::Peer(_)));
        let past = past.map(|(prefix, way)| (*prefix, clear(*way)));
        self.senders.extend(protected(peers, first).into_iter().chain(past));
        self.senders.sort_by_key(|(prefix, _)| prefix.rank());
        self.front_end.extend(selectors.into_iter().map(|(prefix, way)| match way {
            Route::Peer(index) => (prefix, Route::Peer(first + index)),
            way => (prefix, clear(way)),
        }));
    }

    /// Where packets to `address`, on the far side, belong.
    #[inline]
    pub(super) fn route_to(&self, address: &[u8; 16]) -> Option<Route> {
        self.configured(address).or_else(|| {
            let found = self.front_end.iter().find(|(prefix, _)| prefix.contains(address));
            found.map(|(_, way)| *way)
        })
    }

    /// Whether packets from `address`, on the far side, belong to the peer of this index. `None`:
    /// to nobody.
    pub(super) fn is_from(&self, peer: u32, address: &[u8; 16]) -> Option<bool> {
        if let Some(way) = self.configured(address) {
            return Some(way == Route::Peer(peer));
        }
        let mut inside = self.senders.iter().filter(|(prefix, _)| prefix.contains(address));
        let (longest, way) = inside.next()?;
        // Two policies of the same networks may lead to two peers.
        let mut others = inside.take_while(|(prefix, _)| prefix.rank() == longest.rank());
        Some(*way == Route::Peer(peer) || others.any(|(_, way)| *way == Route::Peer(peer)))
    }

    #[inline]
    fn configured(&self, address: &[u8; 16]) -> Option<Route> {
        let found = self.compared.iter().find(|(prefix, _)| prefix.contains(address));
        match found {
            Some((_, way)) => Some(*way),
            None => self.look_up(u128::from_be_bytes(*address)),
        }
    }

    fn look_up(&self, address: u128) -> Option<Route> {
        let is_v4 = is_mapped(address);
        let masks = self.by_mask.iter().filter(|(it, _)| !(it.without_v4 && is_v4));
        let mut found = masks.filter_map(|(it, ways)| ways.get(&(address & it.mask)));
        found.next().copied()
    }
}

/// What `peers` protect; `first` is the index of the first of them.
fn protected(peers: &[Peer], first: u32) -> Vec<(Prefix, Route)> {
    let of_peer = |(peer, index): (&Peer, u32)| {
        peer.protects.iter().map(|it| (*it, Route::Peer(index))).collect::<Vec<_>>()
    };
    peers.iter().zip(first..).flat_map(of_peer).collect()
}
