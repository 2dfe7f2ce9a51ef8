//! Who is blocked and who never is: addresses that an operator names, each for its time.
//!
//! ```text
//!   operator -> Blocks::replace -> list (Arc) --generation--> every worker, with its next packet
//! ```
//!
//! A blocked source's packets are dropped as `blocked` before anything else looks at them. An
//! allowed source is dropped neither by a block nor by a rule: an allow list wins.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use weir_wire::frame::Time;
use weir_wire::parse::Parsed;

use crate::policy::Prefix;

/// Prefixes that are blocked or allowed, at most.
pub const BLOCKS_MAX: usize = 1 << 16;

/// Both lists, shared by all workers.
#[derive(Debug, Default)]
pub struct Blocks {
    generation: AtomicU64,
    blocked: AtomicU64,
    allowed: AtomicU64,
    list: RwLock<Arc<List>>,
    /// Who carries the lists further, and the change that each has carried out.
    followers: Mutex<Vec<Weak<AtomicU64>>>,
}

/// One prefix that is blocked.
#[derive(Debug)]
pub struct Block {
    /// Whose packets are dropped.
    pub prefix: Prefix,
    /// Until then; `None`: until it is removed.
    pub until: Option<Time>,
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Block {
    /// A block that has dropped nothing yet.
    pub fn new(prefix: Prefix, until: Option<Time>) -> Self {
        Self { prefix, until, packets: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Adds what was dropped for it before it was received.
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes that it dropped.
    pub fn dropped(&self) -> [u64; 2] {
        [&self.packets, &self.bytes].map(|it| it.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct List {
    blocked: ByLength<Arc<Block>>,
    allowed: ByLength<Prefix>,
}

/// Prefixes by their length, the longest first.
#[derive(Debug)]
struct ByLength<V>(Vec<(u32, HashMap<u128, V>)>);

impl<V> Default for ByLength<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> ByLength<V> {
    fn of(entries: impl Iterator<Item = (Prefix, V)>) -> Self {
        let mut lengths: Vec<(u32, HashMap<u128, V>)> = Vec::new();
        for (prefix, value) in entries {
            let length = prefix.prefix_len();
            let at = match lengths.iter().position(|(known, _)| *known == length) {
                Some(at) => at,
                None => {
                    lengths.push((length, HashMap::new()));
                    lengths.len() - 1
                }
            };
            lengths[at].1.insert(prefix.first(), value);
        }
        lengths.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
        Self(lengths)
    }

    /// What the prefixes that hold `address` have, the longest first.
    fn find(&self, address: u128) -> impl Iterator<Item = &V> {
        self.0.iter().filter_map(move |(length, entries)| {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            entries.get(&(address & mask))
        })
    }
}

impl PartialEq for Blocks {
    /// Whether they are the same lists, not only alike.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Blocks {}

impl Blocks {
    /// Blocks and allows these from now on; what a block has counted goes on where it is the same
    /// one.
    pub fn replace(&self, blocked: &[Arc<Block>], allowed: &[Prefix]) {
        let list = List {
            blocked: ByLength::of(blocked.iter().map(|it| (it.prefix, Arc::clone(it)))),
            allowed: ByLength::of(allowed.iter().map(|it| (*it, *it))),
        };
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
        self.blocked.store(blocked.len() as u64, Ordering::Relaxed);
        self.allowed.store(allowed.len() as u64, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes with every change of the lists.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// For who carries the lists into a kernel: there it writes the last change that it has carried
    /// out, by [`Blocks::generation`]. It follows until it lets go of it.
    pub fn follow(&self) -> Arc<AtomicU64> {
        let follower = Arc::new(AtomicU64::new(0));
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|it| it.strong_count() > 0);
        followers.push(Arc::downgrade(&follower));
        follower
    }

    /// Whether everybody who follows has carried out the last change.
    pub fn are_followed(&self) -> bool {
        let generation = self.generation();
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let live = followers.iter().filter_map(Weak::upgrade);
        live.into_iter().all(|it| it.load(Ordering::Acquire) >= generation)
    }

    /// Who is blocked and who is allowed, for who drops it before it is received.
    pub fn lists(&self) -> (Vec<Arc<Block>>, Vec<Prefix>) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let blocked = list.blocked.0.iter().flat_map(|(_, entries)| entries.values().cloned());
        let allowed = list.allowed.0.iter().flat_map(|(_, entries)| entries.values().copied());
        (blocked.collect(), allowed.collect())
    }

    /// Whether rules are to leave anybody alone.
    pub fn spare_anybody(&self) -> bool {
        self.allowed.load(Ordering::Relaxed) != 0
    }

    /// Whether anybody is blocked.
    pub fn stop_anybody(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }
}

/// One worker's view of the lists.
#[derive(Debug)]
pub(super) struct Gate {
    shared: Arc<Blocks>,
    generation: u64,
    list: Arc<List>,
}

impl Gate {
    pub(super) fn new(shared: &Arc<Blocks>) -> Self {
        let list = Arc::default();
        Self { shared: Arc::clone(shared), generation: u64::MAX, list }
    }

    /// Whether a packet of `len` bytes is dropped, which is counted.
    #[inline]
    pub(super) fn stops(&mut self, now: Time, parsed: &Parsed, len: u32) -> bool {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.renew(generation);
        }
        !self.list.blocked.0.is_empty() && self.is_blocked(now, parsed, len)
    }

    #[cold]
    fn renew(&mut self, generation: u64) {
        let list = self.shared.list.read().unwrap_or_else(PoisonError::into_inner);
        (self.list, self.generation) = (Arc::clone(&list), generation);
    }

    fn is_blocked(&self, now: Time, parsed: &Parsed, len: u32) -> bool {
        let source = u128::from_be_bytes(parsed.source);
        let mut blocks = self.list.blocked.find(source);
        let is_on = |it: &&Arc<Block>| {
            it.until.is_none_or(|until| now < until) && it.prefix.contains(&parsed.source)
        };
        let Some(block) = blocks.find(is_on) else {
            return false;
        };
        if self.spares(parsed) {
            return false;
        }
        block.packets.fetch_add(1, Ordering::Relaxed);
        block.bytes.fetch_add(len.into(), Ordering::Relaxed);
        true
    }

    /// Whether its source is never dropped.
    pub(super) fn spares(&self, parsed: &Parsed) -> bool {
        let allowed = &self.list.allowed;
        !allowed.0.is_empty()
            && allowed
                .find(u128::from_be_bytes(parsed.source))
                .any(|prefix| prefix.contains(&parsed.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix::new(text.parse().unwrap(), len)
    }

    fn from(text: &str) -> Parsed {
        let address: std::net::Ipv4Addr = text.parse().unwrap();
        Parsed { source: address.to_ipv6_mapped().octets(), ..Parsed::default() }
    }

    #[test]
    fn a_block_ends_with_its_time_and_an_allowed_source_passes() {
        let shared = Arc::new(Blocks::default());
        let mut gate = Gate::new(&shared);
        assert!(!gate.stops(Time(1), &from("192.0.2.7"), 64));
        let host = Arc::new(Block::new(prefix("192.0.2.7", 32), Some(Time(100))));
        let net = Arc::new(Block::new(prefix("192.0.2.0", 24), None));
        shared.replace(&[Arc::clone(&host), Arc::clone(&net)], &[prefix("192.0.2.9", 32)]);
        assert!(shared.stop_anybody());
        assert!(gate.stops(Time(99), &from("192.0.2.7"), 64));
        assert_eq!(host.dropped(), [1, 64], "the narrowest block counts it");
        assert!(gate.stops(Time(100), &from("192.0.2.7"), 64));
        assert_eq!((host.dropped(), net.dropped()), ([1, 64], [1, 64]), "its time is over");
        assert!(!gate.stops(Time(100), &from("192.0.2.9"), 64), "allowed");
        assert!(!gate.stops(Time(100), &from("192.0.3.7"), 64));
        shared.replace(&[], &[]);
        assert!(!gate.stops(Time(100), &from("192.0.2.8"), 64) && !shared.stop_anybody());
    }
}
