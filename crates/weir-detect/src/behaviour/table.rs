//! A table of fixed size: an entry that finds its places taken replaces the oldest of them.

use std::hash::{BuildHasher, Hash};

use weir_wire::frame::Time;

use crate::state::Keyed;

/// Places that a key may have.
const WAYS: usize = 8;

/// Entries by the hash of their key, under a secret: who does not know it cannot aim at the place
/// of another, and two keys share one hash with a chance of 2^-64.
#[derive(Debug)]
pub(super) struct Table<V> {
    slots: Vec<Slot<V>>,
    keyed: Keyed,
}

#[derive(Clone, Copy, Debug)]
struct Slot<V> {
    /// 0: free.
    key: u64,
    last: Time,
    value: V,
}

impl<V: Default + Clone> Table<V> {
    /// A table for `capacity` entries, a power of two.
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        let free = Slot { key: 0, last: Time(0), value: V::default() };
        Self { slots: vec![free; capacity.next_power_of_two().max(WAYS)], keyed: Keyed(seed) }
    }

    /// What stands for `key` in this table, and in all that have its seed.
    pub(super) fn key(&self, key: impl Hash) -> u64 {
        self.keyed.hash_one(key).max(1)
    }

    fn ways(&mut self, key: u64) -> &mut [Slot<V>] {
        let sets = self.slots.len() / WAYS;
        let first = (key as usize % sets) * WAYS;
        &mut self.slots[first..first + WAYS]
    }

    /// The entry of `key`, if there is one.
    pub(super) fn get(&mut self, key: impl Hash) -> Option<&mut V> {
        self.get_key(self.key(key))
    }

    /// The same by what stands for the key.
    pub(super) fn get_key(&mut self, key: u64) -> Option<&mut V> {
        self.ways(key).iter_mut().find(|it| it.key == key).map(|it| &mut it.value)
    }

    /// The entry of `key`, and whether it is new.
    pub(super) fn enter(&mut self, now: Time, key: impl Hash) -> (&mut V, bool) {
        self.enter_key(now, self.key(key))
    }

    /// The same by what stands for the key.
    pub(super) fn enter_key(&mut self, now: Time, key: u64) -> (&mut V, bool) {
        let ways = self.ways(key);
        let known = ways.iter().position(|it| it.key == key);
        let oldest = || {
            let places = ways.iter().enumerate();
            places.min_by_key(|(_, it)| (it.key != 0, it.last)).map_or(0, |(at, _)| at)
        };
        let slot = &mut ways[known.unwrap_or_else(oldest)];
        if known.is_none() {
            *slot = Slot { key, last: now, value: V::default() };
        }
        slot.last = now;
        (&mut slot.value, known.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_what_was_used_longest_ago() {
        let mut table: Table<u32> = Table::new(WAYS, 7);
        for key in 0..WAYS as u32 {
            *table.enter(Time(key.into()), key).0 = key + 1;
        }
        table.enter(Time(100), 0_u32);
        assert!(table.enter(Time(101), 99_u32).1, "a new one");
        assert_eq!(table.get(0_u32), Some(&mut 1), "used since");
        assert_eq!(table.get(1_u32), None, "the oldest left");
        assert_eq!(table.get(2_u32), Some(&mut 3));
    }
}
