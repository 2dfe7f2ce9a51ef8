//! What rules note of a flow: bits, integers, and texts that their expressions captured.

use super::{BITS_MAX, TEXTS_MAX};
use crate::heap::heap_size;
use crate::ruleset::Successors;

/// Counters have 32 bits, and go round.
const WRAPS: i64 = u32::MAX as i64;

/// Notes of a flow; all by the numbers of their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    bits: Vec<u32>,
    integers: Vec<(u32, i64)>,
    texts: Vec<(u32, Vec<u8>)>,
}
heap_size!(Notes { texts });

/// What a rule does to a flow's notes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Sets a bit, or unsets it.
    Bit(u32, bool),
    /// Sets a bit that is not set, and unsets one that is.
    Toggle(u32),
    /// Gives an integer a value.
    Integer(u32, i64),
    /// Adds to an integer, from 0 on.
    Add(u32, i64),
    /// Takes from an integer, if there is one of that name.
    Subtract(u32, i64),
    /// Keeps a text, in the place of the one of that name.
    Text(u32, Vec<u8>),
}

impl Notes {
    pub(crate) fn clear(&mut self) {
        self.bits.clear();
        self.integers.clear();
        self.texts.clear();
    }

    pub(crate) fn bits(&self) -> &[u32] {
        &self.bits
    }

    pub(crate) fn has_bit(&self, bit: u32) -> bool {
        self.bits.contains(&bit)
    }

    pub(crate) fn integers(&self) -> &[(u32, i64)] {
        &self.integers
    }

    pub(crate) fn integer(&self, name: u32) -> Option<i64> {
        self.integers.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    pub(crate) fn texts(&self) -> &[(u32, Vec<u8>)] {
        &self.texts
    }

    /// Makes a change; whether there was room for it.
    pub(crate) fn make(&mut self, change: &Change) -> bool {
        match change {
            Change::Bit(bit, is_set) => return self.put_bit(*bit, *is_set),
            Change::Toggle(bit) => return self.put_bit(*bit, !self.has_bit(*bit)),
            Change::Text(name, text) => return put_text(&mut self.texts, *name, text),
            Change::Integer(name, value) => return self.put_integer(*name, *value),
            Change::Add(name, by) => {
                let sum = self.integer(*name).unwrap_or_default() + by;
                return self.put_integer(*name, sum & WRAPS);
            }
            Change::Subtract(name, by) => {
                let known = self.integers.iter_mut().find(|it| it.0 == *name);
                known.into_iter().for_each(|it| it.1 = (it.1 - by) & WRAPS);
            }
        }
        true
    }

    fn put_bit(&mut self, bit: u32, is_set: bool) -> bool {
        match (self.bits.iter().position(|it| *it == bit), is_set) {
            (Some(place), false) => _ = self.bits.swap_remove(place),
            (None, true) if self.bits.len() == BITS_MAX => return false,
            (None, true) => self.bits.push(bit),
            _ => {}
        }
        true
    }

    fn put_integer(&mut self, name: u32, value: i64) -> bool {
        let has_room = self.integers.len() < BITS_MAX;
        match self.integers.iter_mut().find(|it| it.0 == name) {
            Some(known) => known.1 = value,
            None if !has_room => return false,
            None => self.integers.push((name, value)),
        }
        true
    }

    /// Other rules run from here on, which may have other numbers for the names.
    pub(crate) fn rename(&mut self, successors: &Successors) {
        let name = |it: u32| successors.bit(it);
        self.bits = self.bits.drain(..).filter_map(name).collect();
        self.integers =
            self.integers.drain(..).filter_map(|it| Some((name(it.0)?, it.1))).collect();
        self.texts = self.texts.drain(..).filter_map(|it| Some((name(it.0)?, it.1))).collect();
    }
}

/// Adds a text, or puts it in the place of the one of that name; whether there was room.
fn put_text(texts: &mut Vec<(u32, Vec<u8>)>, name: u32, text: &[u8]) -> bool {
    let has_room = texts.len() < TEXTS_MAX;
    match texts.iter_mut().find(|it| it.0 == name) {
        Some(known) => known.1 = text.to_vec(),
        None if has_room => texts.push((name, text.to_vec())),
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_round_and_nothing_is_taken_from_one_that_is_not_there() {
        let mut notes = Notes::default();
        assert!(notes.make(&Change::Subtract(1, 5)));
        assert_eq!(notes.integer(1), None);
        assert!(notes.make(&Change::Add(1, WRAPS)) && notes.make(&Change::Add(1, 2)));
        assert_eq!(notes.integer(1), Some(1));
        assert!(notes.make(&Change::Subtract(1, 2)));
        assert_eq!(notes.integer(1), Some(WRAPS));
    }

    #[test]
    fn there_is_room_for_so_many_notes_and_no_more() {
        let mut notes = Notes::default();
        let most = BITS_MAX as u32;
        assert!((0..most).all(|it| notes.make(&Change::Bit(it, true))));
        assert!(!notes.make(&Change::Bit(most, true)) && notes.make(&Change::Bit(0, true)));
        assert!((0..most).all(|it| notes.make(&Change::Add(it, 1))));
        assert!(!notes.make(&Change::Add(most, 1)) && notes.make(&Change::Add(0, 1)));
        let mut kept = 0;
        while notes.make(&Change::Text(kept, vec![0])) {
            kept += 1;
        }
        assert_eq!(kept, TEXTS_MAX as u32);
    }
}
