//! What one host does to another, over all queue pairs between them.

use weir_wire::bth::{Operation, Psn};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use super::{NS_PER_S, Signs};

/// R_Keys that are remembered.
const KEYS: usize = 16;
/// P_Keys and Q_Keys that are remembered, of each.
const MANY_KEYS: usize = 64;
/// Refusals by which no later request was told of yet are remembered for so long.
const REFUSED_NS: u64 = 3600 * NS_PER_S;
/// Addresses among which a host that listens to a cache alternates, at most.
const LINES: usize = 4;
/// One in so many of a run's READs may be of the same address as the one before.
const REPEATS_SHARE: u32 = 8;
/// Accesses whose answers are waited for, of one pair of hosts.
const ASKED: usize = 8;
/// R_Keys of which it is remembered where they may be used.
const REGIONS: usize = 4;

/// One direction between two hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    /// When its first packet came; 0: none came.
    pub(super) first: Time,
    /// When it last brought requests or data.
    pub(super) data: Time,
    /// Counts connections that began: what was known of queue pairs is void.
    pub(super) epoch: u32,
    /// The last PSN that was far from what its queue pair expects.
    pub(super) candidate: Option<Psn>,
    /// Bytes that it brought in answers and that make up no KiB yet: see `exfiltration`.
    pub(super) answered_bytes: u32,
    /// Connections asked for by this direction, whose data is news: see `exfiltration`.
    pub(super) has_asked: bool,
    pub(super) remote_keys: Keys,
    /// Watches for which enough accesses were refused, since the last request that is told by them,
    /// and when the last one was.
    refused: (Signs, Time),
    pub(super) partitions: KeySet,
    pub(super) queue_keys: KeySet,
    pub(super) reads: SmallReads,
    pub(super) accesses: Accesses,
}

/// A request to read or change memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) key: u32,
    pub(super) address: u64,
    /// What it asks for comes with a READ's response.
    is_read: bool,
    /// The PSNs of its first packet and its last: one of the two is answered.
    psns: [Psn; 2],
}

impl Access {
    /// What a request asks for whose answer says whether it is granted: none on an unreliable
    /// connection, which has no answers.
    pub(super) fn of(bytes: &[u8], rdma: &Rdma) -> Option<Self> {
        if let Some(it) = ext::atomic_eth(bytes, rdma) {
            let (key, address) = (it.remote_key.get(), it.virtual_address.get());
            return Some(Self { key, address, is_read: false, psns: [rdma.psn; 2] });
        }
        let reth = ext::reth(bytes, rdma)?;
        let packets = match (rdma.opcode.operation(), u32::from(rdma.payload_len)) {
            (Operation::Write, payload @ 1..) => reth.dma_length.get().div_ceil(payload),
            _ => 1,
        };
        let last = rdma.psn.add(packets.saturating_sub(1));
        let (key, address) = (reth.remote_key.get(), reth.virtual_address.get());
        let is_read = rdma.opcode.operation() == Operation::ReadRequest;
        Some(Self { key, address, is_read, psns: [rdma.psn, last] })
    }
}

/// The last accesses that were asked for, and where R_Keys were granted and refused: who has a
/// valid key and guesses addresses is refused outside of what was granted to him.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accesses {
    asked: [Option<Access>; ASKED],
    next: u8,
    regions: [Option<Region>; REGIONS],
    next_region: u8,
    /// Something was refused.
    pub(super) is_refused: bool,
}

/// Where an R_Key was used.
#[derive(Clone, Copy, Debug)]
struct Region {
    key: u32,
    is_refused: bool,
    /// The first and last address that was granted.
    granted: Option<(u64, u64)>,
}

impl Region {
    fn has_granted(&self, address: u64) -> bool {
        self.granted.is_some_and(|(low, high)| (low..=high).contains(&address))
    }
}

impl Accesses {
    /// Waits for the answer to an access, unless nothing would come of it: what is sent behind a
    /// guess has it not forgotten.
    pub(super) fn ask(&mut self, access: Access) {
        let is_granted = |it: &Region| it.key == access.key && it.has_granted(access.address);
        if !self.regions.iter().flatten().any(is_granted) {
            self.asked[usize::from(self.next)] = Some(access);
            self.next = (self.next + 1) % ASKED as u8;
        }
    }

    /// Takes a refusal in.
    pub(super) fn refuse(&mut self, psn: Psn) {
        self.is_refused = true;
        if let Some(access) = self.take(|it| it.psns.contains(&psn)) {
            self.region(access.key).is_refused = true;
        }
    }

    /// Takes an answer in: the response to a READ, or to what asks for none.
    pub(super) fn grant(&mut self, psn: Psn, is_read: bool) {
        let is_of = |it: &Access| it.psns.contains(&psn) && it.is_read == is_read;
        let Some(access) = self.take(is_of) else { return };
        let region = self.region(access.key);
        let (low, high) = region.granted.unwrap_or((access.address, access.address));
        region.granted = Some((low.min(access.address), high.max(access.address)));
    }

    /// The access that is answered. Nobody knows which, if it may be one of several: answers do
    /// not name the queue pair that was asked.
    fn take(&mut self, is_of: impl Fn(&Access) -> bool) -> Option<Access> {
        let mut found = self.asked.iter_mut().filter(|it| it.is_some_and(|it| is_of(&it)));
        let first = found.next()?.take();
        let mut is_alone = true;
        for other in found {
            (*other, is_alone) = (None, false);
        }
        first.filter(|_| is_alone)
    }

    fn region(&mut self, key: u32) -> &mut Region {
        let known = self.regions.iter().position(|it| it.is_some_and(|it| it.key == key));
        let place = known.unwrap_or_else(|| {
            let place = usize::from(self.next_region);
            self.next_region = (self.next_region + 1) % REGIONS as u8;
            self.regions[place] = None;
            place
        });
        self.regions[place].get_or_insert(Region { key, is_refused: false, granted: None })
    }

    /// Whether an access is by a key that was refused, outside of where it was granted.
    pub(super) fn is_guess(&self, access: &Access) -> bool {
        let of_key = |it: &&Region| it.key == access.key && it.is_refused;
        let Some(region) = self.regions.iter().flatten().find(of_key) else { return false };
        !region.has_granted(access.address)
    }
}

impl Pair {
    /// Enough accesses were refused for those watches.
    pub(super) fn refuse(&mut self, now: Time, signs: Signs) {
        self.refused = (self.refused.0 | signs, now);
    }

    /// The watches for which enough were refused since this was asked last.
    pub(super) fn take_refused(&mut self, now: Time) -> Signs {
        let (signs, last) = std::mem::take(&mut self.refused);
        if now.since_ns(last) < REFUSED_NS { signs } else { 0 }
    }
}

/// The last few different values of a field.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keys {
    keys: [u32; KEYS],
    count: u8,
}

impl Keys {
    pub(super) fn contains(&self, key: u32) -> bool {
        self.keys[..usize::from(self.count).min(KEYS)].contains(&key)
    }

    /// Remembers a key; whether it is new, and not the first.
    pub(super) fn add(&mut self, key: u32) -> bool {
        if self.contains(key) {
            return false;
        }
        self.keys[usize::from(self.count) % KEYS] = key;
        // Counts on from KEYS to twice of it and back: full stays full.
        self.count =
            if usize::from(self.count) + 1 == 2 * KEYS { KEYS as u8 } else { self.count + 1 };
        self.count > 1
    }
}

/// Different values of a field, by what stands for each under a secret: the one that was used for
/// the longest time no more is forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySet {
    /// From the one that was used last.
    keys: [u16; MANY_KEYS],
    count: u8,
}

impl Default for KeySet {
    fn default() -> Self {
        Self { keys: [0; MANY_KEYS], count: 0 }
    }
}

impl KeySet {
    /// Remembers a key by what stands for it; whether it is new, and not the first.
    pub(super) fn add(&mut self, hash: u64) -> bool {
        let key = hash as u16;
        let count = usize::from(self.count);
        let known = self.keys[..count].iter().position(|it| *it == key);
        if known == Some(0) {
            return false;
        }
        let place = known.unwrap_or(count.min(MANY_KEYS - 1));
        self.keys[..=place].rotate_right(1);
        self.keys[0] = key;
        self.count = self.count.max(place as u8 + 1);
        known.is_none() && self.count > 1
    }
}

/// A run of small READs that go back and forth between few addresses (Pythia: they time what is in
/// the adapter's cache).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmallReads {
    addresses: [u64; LINES],
    known: u8,
    last: u64,
    run: u32,
    /// READs of the address before them.
    repeats: u32,
}

impl SmallReads {
    /// Takes a READ's address in; how long the run is now.
    pub(super) fn take(&mut self, address: u64, is_small: bool) -> u32 {
        let known = &self.addresses[..usize::from(self.known)];
        let is_known = known.contains(&address);
        let is_repeat = address == self.last && self.run > 0;
        self.repeats += u32::from(is_repeat);
        // Who polls repeats most of them; a few hide nobody.
        if is_repeat && is_small && self.repeats <= self.run / REPEATS_SHARE {
            return self.run;
        }
        if !is_small || is_repeat || (!is_known && known.len() == LINES) {
            *self = Self::default();
        }
        if !is_known && is_small {
            self.addresses[usize::from(self.known)] = address;
            self.known += 1;
        }
        self.last = address;
        self.run = self.run.saturating_add(u32::from(is_small));
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_new_once_and_the_oldest_are_forgotten() {
        let mut keys = Keys::default();
        assert!(!keys.add(7), "the first is no change");
        assert!(!keys.add(7) && keys.add(8));
        for key in 100..100 + 3 * KEYS as u32 {
            assert!(keys.add(key));
        }
        assert!(!keys.contains(7) && keys.contains(147) && keys.contains(132));
        assert!(!keys.contains(131));
    }

    #[test]
    fn a_few_keys_are_new_once_in_any_order_and_guesses_are_mostly_new() {
        let mut keys = KeySet::default();
        let new = (0..3_000).filter(|it| keys.add(it % 60));
        assert_eq!(new.count(), 59);
        let mut keys = KeySet::default();
        let hash = |it: u64| it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        assert!((0..5_000).filter(|it| keys.add(hash(*it))).count() > 4_950);
    }

    #[test]
    fn only_small_reads_that_alternate_between_few_addresses_make_a_run() {
        let run = |addresses: &mut dyn Iterator<Item = u64>| {
            let mut reads = SmallReads::default();
            addresses.map(|it| reads.take(it, true)).max().unwrap()
        };
        assert_eq!(run(&mut (0..1000).map(|it| it % 3 * 64)), 1000);
        assert!(run(&mut (0..1000).map(|_| 64)) <= 1, "a poll");
        assert!(run(&mut (0..1000).map(|it| it * 64)) <= LINES as u32, "a scan");
        let with_repeats = |each: u64| {
            let turns = (0..1000).flat_map(move |it| {
                [it % 2 * 64; 2].into_iter().take(if it % each == 0 { 2 } else { 1 })
            });
            run(&mut turns.into_iter())
        };
        assert!(with_repeats(20) > 800, "a repeat now and then hides nothing");
        assert!(with_repeats(2) < 10, "a poll of two");
        let mut reads = SmallReads::default();
        assert_eq!(reads.take(0, true), 1);
        assert_eq!(reads.take(64, false), 0, "a large one ends it");
    }

    fn access(psn: u32, key: u32, address: u64) -> Access {
        Access { key, address, is_read: true, psns: [Psn::new(psn), Psn::new(psn + 2)] }
    }

    #[test]
    fn a_key_that_was_refused_is_guessed_with_outside_of_where_it_was_granted() {
        let mut accesses = Accesses::default();
        for (psn, address) in [(10, 0x1000), (20, 0x8000)] {
            accesses.ask(access(psn, 7, address));
            accesses.grant(Psn::new(psn + 2), true);
        }
        assert!(!accesses.is_guess(&access(0, 7, 0x9000)), "nothing was refused yet");
        accesses.ask(access(30, 7, 0x9000));
        accesses.refuse(Psn::new(31));
        assert!(accesses.is_refused && !accesses.is_guess(&access(0, 7, 0xa000)), "of another");
        accesses.refuse(Psn::new(30));
        assert!(accesses.is_guess(&access(0, 7, 0xa000)) && accesses.is_guess(&access(0, 7, 0)));
        assert!(!accesses.is_guess(&access(0, 7, 0x4000)));
        assert!(!accesses.is_guess(&access(0, 8, 0xa000)));
        for key in 100..200 {
            accesses.ask(access(key, key, 0));
            accesses.grant(Psn::new(key), true);
        }
        assert!(!accesses.is_guess(&access(0, 7, 0xa000)), "forgotten");
    }

    #[test]
    fn what_is_sent_beside_a_guess_does_not_grant_it() {
        let begun = || {
            let mut accesses = Accesses::default();
            for (psn, address) in [(1, 0x1000), (4, 0x8000)] {
                accesses.ask(access(psn, 7, address));
                accesses.grant(Psn::new(psn), true);
            }
            accesses.ask(access(10, 7, 0xf000));
            accesses
        };
        let mut accesses = begun();
        (0..100).for_each(|it| accesses.ask(access(20 + it, 7, 0x2000 + u64::from(it))));
        accesses.refuse(Psn::new(10));
        assert!(accesses.is_guess(&access(0, 7, 0xf000)), "valid READs behind it");
        let mut accesses = begun();
        accesses.grant(Psn::new(10), false);
        accesses.refuse(Psn::new(10));
        assert!(accesses.is_guess(&access(0, 7, 0xf000)), "another's acknowledgment");
        let mut accesses = begun();
        accesses.ask(access(10, 9, 0));
        accesses.grant(Psn::new(10), true);
        accesses.ask(access(30, 7, 0xf100));
        accesses.refuse(Psn::new(30));
        assert!(accesses.is_guess(&access(0, 7, 0xf000)), "nobody knows whose answer it was");
    }
}
