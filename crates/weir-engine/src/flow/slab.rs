//! Entries in one block of memory, linked from the least to the most recently active.
//!
//! The block is reserved whole and touched entry by entry, so an idle table costs no memory. The
//! order is exact to one tick (134 ms): a busy entry moves to the front once a tick, not per
//! packet.

use weir_wire::frame::Time;

/// No entry.
const NONE: u32 = u32::MAX;

/// A tick of the order of activity, as a power of two of nanoseconds.
const TICK_NS_LOG2: u32 = 27;

/// Fields are in the order in which a packet reads them; the beginning of the value comes next.
#[derive(Clone, Debug)]
#[repr(C)]
struct Slot<T> {
    /// Neighbour that was active later; the next free slot when this one is free.
    newer: u32,
    older: u32,
    /// When it was last moved to the front.
    tick: u32,
    /// Odd while occupied. A handle holds it, so that a stale handle finds nothing.
    generation: u32,
    value: T,
}

/// Bytes that an entry takes beside its value.
pub(crate) const SLOT_OVERHEAD_BYTES: usize = 16;

/// Entries, at most `limit`.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    limit: usize,
    len: usize,
    free: u32,
    newest: u32,
    oldest: u32,
}

impl<T> Slab<T> {
    /// An empty slab for `limit` entries.
    pub(crate) fn new(limit: usize) -> Self {
        assert!((1..=1 << 30).contains(&limit), "a table holds 1 to 2^30 entries");
        let slots = Vec::with_capacity(limit);
        Self { slots, limit, len: 0, free: NONE, newest: NONE, oldest: NONE }
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing can be added before something leaves.
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.limit
    }

    /// Adds `value` as the most recently active; the caller has made room.
    pub(crate) fn insert(&mut self, value: T, now: Time) -> u32 {
        assert!(!self.is_full(), "the caller makes room first");
        let at = if self.free == NONE {
            let slot = Slot { value, newer: NONE, older: NONE, tick: 0, generation: 0 };
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let at = self.free;
            let slot = &mut self.slots[at as usize];
            self.free = slot.newer;
            slot.value = value;
            at
        };
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.tick = tick(now);
        self.len += 1;
        self.link_newest(at);
        at
    }

    /// Takes entry `at` out; its value stays readable until its place is used again.
    pub(crate) fn remove(&mut self, at: u32) -> &T {
        self.unlink(at);
        self.len -= 1;
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.newer = self.free;
        self.free = at;
        &self.slots[at as usize].value
    }

    /// The entry, marked as active now.
    #[inline]
    pub(crate) fn touch(&mut self, at: u32, now: Time) -> &mut T {
        if self.slots[at as usize].tick != tick(now) {
            self.slots[at as usize].tick = tick(now);
            if self.newest != at {
                self.unlink(at);
                self.link_newest(at);
            }
        }
        &mut self.slots[at as usize].value
    }

    /// The entry.
    #[inline]
    pub(crate) fn value(&self, at: u32) -> &T {
        &self.slots[at as usize].value
    }

    /// The entry, to change, without counting as activity.
    #[inline]
    pub(crate) fn value_mut(&mut self, at: u32) -> &mut T {
        &mut self.slots[at as usize].value
    }

    /// Which occupation of the place this is.
    #[inline]
    pub(crate) fn generation(&self, at: u32) -> u32 {
        self.slots[at as usize].generation
    }

    /// Whether place `at` is still occupied as it was in `generation`.
    #[inline]
    pub(crate) fn is_current(&self, at: u32, generation: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| slot.generation == generation)
    }

    /// The generation of the entry at place `at`, if there is one and `is_it` accepts it.
    #[inline]
    pub(crate) fn find(&self, at: u32, is_it: impl FnOnce(&T) -> bool) -> Option<u32> {
        let slot = self.slots.get(at as usize)?;
        (slot.generation % 2 == 1 && is_it(&slot.value)).then_some(slot.generation)
    }

    /// Whether place `at` holds an entry.
    pub(crate) fn is_occupied(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| slot.generation % 2 == 1)
    }

    /// Has a look at every entry, in no order.
    pub(crate) fn for_each_mut(&mut self, mut look: impl FnMut(&mut T)) {
        self.slots
            .iter_mut()
            .filter(|it| it.generation % 2 == 1)
            .for_each(|it| look(&mut it.value));
    }

    /// Places that were ever used: entries lie below.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The least recently active entry.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// All entries, the most recently active first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            let at = std::mem::replace(&mut next, slot.older);
            Some((at, &slot.value))
        })
    }

    fn link_newest(&mut self, at: u32) {
        let previous = std::mem::replace(&mut self.newest, at);
        let slot = &mut self.slots[at as usize];
        slot.newer = NONE;
        slot.older = previous;
        match self.slots.get_mut(previous as usize) {
            Some(slot) => slot.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.slots[at as usize].newer, self.slots[at as usize].older);
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }
}

fn tick(now: Time) -> u32 {
    (now.0 >> TICK_NS_LOG2) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A list, most recent first, is the model; every operation happens in a tick of its own.
        #[test]
        fn the_order_is_the_order_of_activity(
            operations in prop::collection::vec((0usize..16, 0u8..3), 0..200),
        ) {
            let mut slab = Slab::new(8);
            let mut model: Vec<(u32, usize)> = Vec::new();
            for (step, (which, operation)) in operations.into_iter().enumerate() {
                let now = Time((step as u64) << TICK_NS_LOG2);
                match operation {
                    0 if !slab.is_full() => model.insert(0, (slab.insert(which, now), which)),
                    1 if !model.is_empty() => {
                        let entry = model.remove(which % model.len());
                        slab.touch(entry.0, now);
                        model.insert(0, entry);
                    }
                    2 if !model.is_empty() => {
                        let entry = model.remove(which % model.len());
                        prop_assert_eq!(*slab.remove(entry.0), entry.1);
                    }
                    _ => {}
                }
                let order: Vec<_> = slab.iter().map(|(at, v)| (at, *v)).collect();
                prop_assert_eq!(order, &model[..]);
                prop_assert_eq!(slab.oldest(), model.last().map(|entry| entry.0));
                prop_assert_eq!(slab.len(), model.len());
            }
        }
    }

    #[test]
    fn a_handle_to_a_place_used_again_is_stale() {
        let mut slab = Slab::new(2);
        let at = slab.insert('a', Time(0));
        let generation = slab.generation(at);
        assert!(slab.is_current(at, generation));
        slab.remove(at);
        assert!(!slab.is_current(at, generation));
        assert_eq!(slab.insert('b', Time(0)), at, "the place is used again");
        assert!(!slab.is_current(at, generation));
    }
}
