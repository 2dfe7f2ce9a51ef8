//! From a key's hash to where its entry lies: linear probing over 8-byte slots.
//!
//! The slots are taken zeroed at start, so that the kernel gives memory only for those in use. At
//! most half of them are ever occupied; a probe ends after [`PROBE_MAX`] slots whatever happens.

/// Slots looked at, at most. At half load a run this long does not occur by chance.
pub(crate) const PROBE_MAX: usize = 128;

/// Where entries lie, by hash. A slot: the hash's low 32 bits, and the value plus one (0: empty).
#[derive(Debug)]
pub(crate) struct Index {
    slots: Vec<u64>,
    mask: usize,
}

impl Index {
    /// An index for `key_count` keys.
    pub(crate) fn new(key_count: usize) -> Self {
        let slot_count = slot_count(key_count);
        Self { slots: vec![0; slot_count], mask: slot_count - 1 }
    }

    /// Its bytes.
    pub(crate) const fn bytes(key_count: usize) -> usize {
        slot_count(key_count) * size_of::<u64>()
    }

    /// The value under `hash` that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = hash as u32;
        for step in 0..PROBE_MAX {
            let slot = self.slots[(tag as usize + step) & self.mask];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == tag && is_it(slot as u32 - 1) {
                return Some(slot as u32 - 1);
            }
        }
        None
    }

    /// Adds `value`, whose key is not in the index.
    ///
    /// # Errors
    /// The probe is as long as it may get; returned is a value that stands in the way, which the
    /// caller may remove and try again.
    pub(crate) fn insert(&mut self, hash: u64, value: u32) -> Result<(), u32> {
        let tag = hash as u32;
        for step in 0..PROBE_MAX {
            let slot = &mut self.slots[(tag as usize + step) & self.mask];
            if *slot == 0 {
                *slot = u64::from(tag) << 32 | u64::from(value + 1);
                return Ok(());
            }
        }
        Err(self.slots[tag as usize & self.mask] as u32 - 1)
    }

    /// Lets the slot that holds `old` under `hash` hold `new`.
    pub(crate) fn repoint(&mut self, hash: u64, old: u32, new: u32) {
        if let Some(place) = self.place(hash, old) {
            self.slots[place] = u64::from(hash as u32) << 32 | u64::from(new + 1);
        }
    }

    /// Takes `value` out and closes the run behind it, so that no probe needs a tombstone.
    pub(crate) fn remove(&mut self, hash: u64, value: u32) {
        let Some(mut hole) = self.place(hash, value) else { return };
        let mut next = hole;
        loop {
            next = (next + 1) & self.mask;
            let slot = self.slots[next];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & self.mask;
            if next.wrapping_sub(home) & self.mask >= next.wrapping_sub(hole) & self.mask {
                self.slots[hole] = slot;
                hole = next;
            }
        }
        self.slots[hole] = 0;
    }

    fn place(&self, hash: u64, value: u32) -> Option<usize> {
        let wanted = u64::from(hash as u32) << 32 | u64::from(value + 1);
        let home = hash as u32 as usize;
        (0..PROBE_MAX).map(|step| (home + step) & self.mask).find(|at| self.slots[*at] == wanted)
    }
}

const fn slot_count(key_count: usize) -> usize {
    let least = if key_count < 8 { 8 } else { key_count };
    (least * 2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A map with keys 0..40 is the model; hashes collide on purpose (eight values of them).
        #[test]
        fn an_index_behaves_like_a_map(
            operations in prop::collection::vec((0u32..40, 0u8..3), 0..400),
        ) {
            let mut index = Index::new(64);
            let mut model = BTreeMap::new();
            let hash = |key: u32| u64::from(key % 8) << 29 | u64::from(key % 8);
            for (key, operation) in operations {
                let known = model.contains_key(&key);
                match operation {
                    0 if !known => {
                        index.insert(hash(key), key).expect("fewer keys than the longest probe");
                        model.insert(key, key);
                    }
                    1 if known => {
                        index.remove(hash(key), model[&key]);
                        model.remove(&key);
                    }
                    2 if known => {
                        let old = model[&key];
                        index.repoint(hash(key), old, old + 1000);
                        model.insert(key, old + 1000);
                    }
                    _ => {}
                }
                for key in 0..40 {
                    let found = index.find(hash(key), |value| value % 1000 == key);
                    prop_assert_eq!(found, model.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn a_collision_flood_ends_at_the_longest_probe() {
        let mut index = Index::new(4096);
        for value in 0..PROBE_MAX as u32 {
            index.insert(0, value).expect("within the longest probe");
        }
        assert_eq!(index.insert(0, 9999), Err(0), "it names the entry in its way");
        index.remove(0, 0);
        assert_eq!(index.insert(0, 9999), Ok(()));
        assert_eq!(index.find(0, |value| value == 0), None);
    }
}
