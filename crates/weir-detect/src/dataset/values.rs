//! The values of sets while rules run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{ADDED_MAX, Change, Context, DatasetTest, Definition, Definitions, Kind, Verb};
use crate::shared::{CHANGES_MAX, Unshared};

/// Bytes that a value takes beside its own.
const OVERHEAD_BYTES: usize = 64;
/// What is known of values that one look found, at most; the rest of it is not told.
const FOUND_MAX: usize = 16;

/// Values as a file has them. Each has a number: its reputation, or the place of what is known of
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    numbers: HashMap<Vec<u8>, u32>,
    /// JSON.
    contexts: Vec<Arc<str>>,
}

impl Values {
    pub(super) fn put(&mut self, value: Vec<u8>, number: u32) {
        self.numbers.insert(value, number);
    }

    /// Puts a value of which that is known.
    pub(super) fn put_known(&mut self, value: Vec<u8>, context: Arc<str>) {
        self.numbers.insert(value, self.contexts.len() as u32);
        self.contexts.push(context);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.numbers.keys().map(Vec::as_slice)
    }
}

/// What is in a set now.
#[derive(Debug)]
pub(super) struct Set {
    name: Arc<str>,
    kind: Kind,
    /// What it began with, which all detectors have together.
    begun: Arc<Values>,
    /// Put since.
    added: HashSet<Vec<u8>>,
    added_bytes: usize,
    memory: usize,
    /// Taken from what it began with.
    removed: HashSet<Vec<u8>>,
    context: Option<Arc<str>>,
    kept: Option<Arc<str>>,
    /// Its values come from rules alone: other rules go on with what there is.
    is_dynamic: bool,
}

impl Set {
    pub(super) fn begin(definition: &Definition) -> Self {
        let [load, _] = &definition.files;
        Self {
            name: definition.name.clone(),
            kind: definition.kind,
            begun: Arc::clone(&definition.values),
            added: HashSet::new(),
            added_bytes: 0,
            memory: definition.memory,
            removed: HashSet::new(),
            context: definition.context.clone(),
            kept: definition.kept.clone(),
            is_dynamic: load.is_none(),
        }
    }

    fn goes_on_with(&self, before: &Self) -> bool {
        let alike =
            (&self.name, self.kind, &self.kept) == (&before.name, before.kind, &before.kept);
        alike && self.is_dynamic && before.is_dynamic
    }

    fn number(&self, value: &[u8]) -> Option<u32> {
        match self.begun.numbers.get(value) {
            Some(number) if !self.removed.contains(value) => Some(*number),
            _ => self.added.contains(value).then_some(0),
        }
    }

    /// Puts a value; `None`: it is there. Inside, whether there was room.
    fn put(&mut self, value: &[u8]) -> Option<bool> {
        if self.number(value).is_some() {
            return None;
        }
        if self.removed.remove(value) {
            return Some(true);
        }
        if !self.has_room(value) {
            return Some(false);
        }
        self.added_bytes += value.len() + OVERHEAD_BYTES;
        Some(self.added.insert(value.to_vec()))
    }

    fn has_room(&self, value: &[u8]) -> bool {
        let bytes = self.added_bytes + value.len() + OVERHEAD_BYTES;
        self.removed.contains(value) || (self.added.len() < ADDED_MAX && bytes <= self.memory)
    }

    /// Takes a value away; whether it was there.
    fn take(&mut self, value: &[u8]) -> bool {
        if self.added.remove(value) {
            self.added_bytes -= value.len() + OVERHEAD_BYTES;
            return true;
        }
        self.begun.numbers.contains_key(value) && self.removed.insert(value.to_vec())
    }
}

/// A value of a set, by the set's place, that was put (`Some(true)`) or taken away.
pub(crate) type Moved = ((usize, Vec<u8>), Option<bool>);

/// What values are in each set now, in one detector.
#[derive(Debug)]
pub(crate) struct Datasets {
    sets: Vec<Set>,
    /// What is known of values that the look at hand found.
    found: Vec<Context>,
    /// What the look at a rule changes, if all of it matches.
    waiting: Vec<(DatasetTest, Vec<u8>)>,
    unshared: Unshared<(usize, Vec<u8>), Option<bool>>,
    /// What files are to follow, where somebody keeps them.
    changes: Option<Vec<Change>>,
    /// Values and changes that found no room.
    lost: u64,
}

impl Datasets {
    pub(crate) fn new(definitions: &Definitions, seed: u64) -> Self {
        Self {
            sets: definitions.sets().collect(),
            found: Vec::new(),
            waiting: Vec::new(),
            unshared: Unshared::new(seed),
            changes: None,
            lost: 0,
        }
    }

    /// Goes on with the sets of other rules: those of the same name that no file fills keep what is
    /// in them. Returns their places by those that they had.
    pub(crate) fn swap(&mut self, definitions: &Definitions) -> Vec<Option<usize>> {
        let mut before = std::mem::take(&mut self.sets);
        self.found.clear();
        self.sets.extend(definitions.sets());
        let place_of = |old: &Set| self.sets.iter().position(|it| it.goes_on_with(old));
        let places: Vec<_> = before.iter().map(place_of).collect();
        for set in &mut self.sets {
            if let Some(place) = before.iter().position(|it| set.goes_on_with(it)) {
                let memory = set.memory;
                *set = Set { memory, ..before.swap_remove(place) };
            }
        }
        self.unshared.rename(|(place, value)| Some((places[place]?, value)));
        places
    }

    /// Keeps what is put and taken for other detectors from now on.
    pub(crate) fn share(&mut self) {
        self.unshared.share();
    }

    /// Keeps what files are to follow from now on.
    pub(crate) fn keep_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn take_shared(&mut self) -> Vec<Moved> {
        self.unshared.take()
    }

    /// Does what another detector did.
    pub(crate) fn add_shared(&mut self, moved: &[Moved]) {
        for ((place, value), is_set) in moved {
            let Some(set) = self.sets.get_mut(*place) else { continue };
            match is_set {
                Some(true) => self.lost += u64::from(set.put(value) == Some(false)),
                _ => drop(set.take(value)),
            }
        }
    }

    /// Values that found no room since this was asked last.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Another look begins.
    pub(crate) fn forget_found(&mut self) {
        self.found.clear();
        self.waiting.clear();
    }

    /// What is known of the values that the look found.
    pub(crate) fn found(&self) -> &[Context] {
        &self.found
    }

    /// Whether the value that `bytes` are is in the set as the test says, or can be put there or
    /// taken away, which waits for [`Datasets::commit`]: until all of the rule matches.
    pub(crate) fn holds(&mut self, test: DatasetTest, bytes: &[u8]) -> bool {
        let Some(set) = self.sets.get_mut(test.set) else { return false };
        let Some(value) = set.kind.seen(bytes) else { return false };
        let number = set.number(&value);
        match test.verb {
            Verb::IsSet => {
                if let (Some(number), Some(name)) = (number, &set.context)
                    && let Some(json) = set.begun.contexts.get(number as usize)
                    && self.found.len() < FOUND_MAX
                {
                    self.found.push(Context { name: Arc::clone(name), json: Arc::clone(json) });
                }
                number.is_some()
            }
            Verb::IsNotSet => number.is_none(),
            Verb::Set if number.is_some() => false,
            Verb::Set if !set.has_room(&value) => {
                self.lost += 1;
                false
            }
            Verb::Unset if number.is_none() => false,
            Verb::Set | Verb::Unset => {
                self.waiting.push((test, value));
                true
            }
            Verb::Reputation(numbers) => number.is_some_and(|it| numbers.contain(u64::from(it))),
        }
    }

    /// Changes that wait for the rest of the rule.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Those beyond the first so many are forgotten: the rest of the rule did not match.
    pub(crate) fn give_up(&mut self, first: usize) {
        self.waiting.truncate(first);
    }

    /// The rule matches: what waits is done.
    pub(crate) fn commit(&mut self) {
        for (test, value) in std::mem::take(&mut self.waiting) {
            let set = &mut self.sets[test.set];
            match test.verb {
                Verb::Set => match set.put(&value) {
                    Some(true) => self.note(test.set, value, true),
                    Some(false) => self.lost += 1,
                    None => {}
                },
                _ if set.take(&value) => self.note(test.set, value, false),
                _ => {}
            }
        }
    }

    /// Notes a change for the other detectors, and for the set's file.
    fn note(&mut self, place: usize, value: Vec<u8>, is_set: bool) {
        let set = &self.sets[place];
        if let (Some(changes), Some(file)) = (&mut self.changes, &set.kept) {
            if changes.len() < CHANGES_MAX {
                let line = set.kind.line(&value);
                changes.push(Change { file: Arc::clone(file), line, is_set });
            } else {
                self.lost += 1;
            }
        }
        self.unshared.change((place, value), |it| *it = Some(is_set));
    }
}
