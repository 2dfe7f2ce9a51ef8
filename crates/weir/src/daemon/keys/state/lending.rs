//! Keys that front ends bring. They are kept as keys in files are, from the moment that an
//! association of theirs seals or opens until it is removed; then a note in `keys-lent` takes the
//! place of their state files, and they go on from it when they come back.
//!
//! ```text
//!   admit --> lend_sealing, lend_opening --> settle --> note_left <-- the worker has it no more
//!     ^                                                     |
//!     +---- keys-lent <---- take_back <---------------------+
//! ```

use std::fs;
use std::io;

use weir_engine::esp::open::OpeningState;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingState;
use weir_engine::pipeline::Left;

use super::keeper::Work;
use super::lent::{IN_FILE, KEYS_MAX, Reach};
use super::slot::{Newest, StateFile, newest};
use super::{StateError, StateStore, accepted_to, sealed_below};

/// A key that a front end has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    /// Which.
    owner: usize,
    /// Where numbers stopped when the worker last let go of it; then the file's mark is beyond.
    next: Option<u64>,
}

impl StateStore {
    /// Whether the front end numbered `owner` may use `key`, which is its alone from now on until
    /// [`StateStore::take_back`].
    ///
    /// # Errors
    /// [`StateError`]: somebody else has the key, or no more can be remembered.
    pub fn admit(&mut self, key: Fingerprint, owner: usize) -> Result<(), StateError> {
        if let Some(lent) = self.lent.get(&key) {
            return if lent.owner == owner { Ok(()) } else { Err(StateError::Taken) };
        }
        if ["seal", "open"].iter().any(|kind| self.held.contains_key(&format!("{kind}-{key}"))) {
            return Err(StateError::Taken);
        }
        let known = self.notes.reach(key);
        let is_known = self.done(&self.directory, known)?.is_some();
        if !is_known && !self.notes.has_room(self.lent.len() + 1) {
            return Err(StateError::Full);
        }
        self.lent.insert(key, Lent { owner, next: None });
        Ok(())
    }

    /// As [`StateStore::sealing`], of an admitted key that the worker does not have.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn lend_sealing(&mut self, key: Fingerprint) -> Result<Option<SealingState>, StateError> {
        if self.reach_now(key)?.accepted_to > 0 {
            return Err(StateError::Turned);
        }
        let state = self.begin_sealing(key, 0)?;
        let next = self.lent.get_mut(&key).ok_or(StateError::Taken)?.next.take();
        Ok(match next {
            Some(next) => Some(SealingState { fingerprint: key, reserved_until: next }),
            None => state,
        })
    }

    /// As [`StateStore::opening`], of an admitted key that the worker does not have.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn lend_opening(
        &mut self,
        key: Fingerprint,
    ) -> Result<(StateFile, Option<OpeningState>), StateError> {
        if !self.lent.contains_key(&key) {
            return Err(StateError::Taken);
        }
        // 1: it was to seal, and did not.
        if self.reach_now(key)?.sealed_below > 1 {
            return Err(StateError::Turned);
        }
        self.begin_opening(key)
    }

    /// The worker has let go of these. What was accepted is in its file already.
    pub fn note_left(&mut self, left: &Left) {
        for state in &left.sealing {
            if let Some(lent) = self.lent.get_mut(&state.fingerprint) {
                lent.next = Some(state.reserved_until);
            }
        }
    }

    /// Front ends have removed the associations of these keys, and the worker has let go of them:
    /// notes how far they went, waits for the disk, and removes their files.
    ///
    /// # Errors
    /// [`StateError`]; they stay lent.
    pub fn take_back(&mut self, keys: &[Fingerprint]) -> Result<(), StateError> {
        let mut notes = Vec::new();
        let lent: Vec<_> = keys.iter().filter(|key| self.lent.contains_key(key)).collect();
        for key in &lent {
            let reach = self.reach_now(**key)?;
            if reach != Reach::default() {
                notes.push((**key, reach));
            }
        }
        self.note(&notes)?;
        for key in lent {
            self.lent.remove(key);
            self.remove_files(*key);
        }
        Ok(())
    }

    /// The same for what a gateway that is gone left behind. What another one of this directory has
    /// is not touched; what was lost or damaged stays so, and the key is refused.
    pub(super) fn take_back_left(&mut self) -> Result<(), StateError> {
        let mut notes = Vec::new();
        for key in self.notes.in_files() {
            let reach = self.note_of(key)?.unwrap_or_default();
            let sides = [("seal", reach.sealed_below), ("open", reach.accepted_to)];
            let in_files = sides.iter().filter(|(_, number)| *number == IN_FILE);
            let whole = in_files.map(|(kind, _)| {
                let path = self.path(kind, key);
                Ok(path.exists() && self.open_locked(&path, key).map(|file| file.unlock()).is_ok())
            });
            if !whole.collect::<Result<Vec<_>, StateError>>()?.into_iter().all(|is| is) {
                continue;
            }
            match self.reach_now(key) {
                Ok(reach) if reach.sealed_below < IN_FILE && reach.accepted_to < IN_FILE => {
                    notes.push((key, reach));
                }
                _ => tracing::warn!(%key, "state of a front end's key is damaged: it is refused"),
            }
        }
        self.note(&notes)?;
        notes.iter().for_each(|(key, _)| self.remove_files(*key));
        Ok(())
    }

    fn note(&mut self, notes: &[(Fingerprint, Reach)]) -> Result<(), StateError> {
        let had_room = self.notes.has_room(KEYS_MAX / 4);
        let noted = self.notes.note(notes);
        self.done(&self.directory, noted)?;
        if had_room && !self.notes.has_room(KEYS_MAX / 4) {
            tracing::warn!(
                "keys-lent is three quarters full: when it is full, front ends get no new keys"
            );
        }
        Ok(())
    }

    /// How far a key went by the notes alone.
    pub(super) fn note_of(&mut self, key: Fingerprint) -> Result<Option<Reach>, StateError> {
        let reach = self.notes.reach(key);
        self.done(&self.directory, reach)
    }

    /// How far a key went, by its files too. [`IN_FILE`]: nobody knows, for the file is lost.
    fn reach_now(&mut self, key: Fingerprint) -> Result<Reach, StateError> {
        let mut reach = self.note_of(key)?.unwrap_or_default();
        if let Some(found) = self.found("seal", key, |record| {
            SealingState::decode(record).is_ok_and(|it| it.fingerprint == key)
        })? {
            reach.sealed_below = outweigh(reach.sealed_below, sealed_below(&found));
        }
        if let Some(found) = self.found("open", key, |record| {
            OpeningState::decode(record).is_ok_and(|it| it.fingerprint == key)
        })? {
            reach.accepted_to = outweigh(reach.accepted_to, Some(accepted_to(&found)));
        }
        if let Some(next) = self.lent.get(&key).and_then(|lent| lent.next) {
            reach.sealed_below = next;
        }
        Ok(reach)
    }

    /// Below which number a sealing key may have been used; 0: it was not, or nobody knows.
    pub(super) fn reach_of_sealing(&mut self, key: Fingerprint) -> Result<u64, StateError> {
        Ok(Some(self.reach_now(key)?.sealed_below).filter(|it| *it != IN_FILE).unwrap_or(0))
    }

    /// What a state file holds; `None`: it is not there.
    fn found(
        &self,
        kind: &str,
        key: Fingerprint,
        valid: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Newest>, StateError> {
        let path = self.path(kind, key);
        match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let file = self.done(&path, opened)?;
                self.done(&path, newest(&file, valid)).map(Some)
            }
        }
    }

    pub(super) fn remove_files(&mut self, key: Fingerprint) {
        let mut gone = Vec::new();
        for kind in ["seal", "open"] {
            let name = format!("{kind}-{key}");
            self.begun.remove(&name);
            if let Some(file) = self.held.remove(&name) {
                let _ = file.unlock();
                gone.push(file);
            }
            // What cannot be removed is outweighed by the note.
            let _ = fs::remove_file(self.path(kind, key));
        }
        let _ = self.keeper.send(Work::Forget(key, gone));
    }

    pub(super) fn refuse_lent(&self, key: Fingerprint) -> Result<(), StateError> {
        match self.lent.contains_key(&key) {
            true => Err(StateError::Lent(key)),
            false => Ok(()),
        }
    }
}

/// A note's number beside a file's.
fn outweigh(noted: u64, by_file: Option<u64>) -> u64 {
    match by_file {
        Some(by_file) if noted == IN_FILE => by_file,
        _ => noted.max(by_file.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::daemon::keys::state::LostState;

    const KEY: Fingerprint = Fingerprint([7; 8]);
    const OTHER: Fingerprint = Fingerprint([8; 8]);
    /// A front end.
    const PAIR: usize = 0;

    fn store(directory: &Path) -> StateStore {
        StateStore::open(directory, "gw", LostState::Refuse).unwrap()
    }

    /// Has the key seal: from which number on.
    fn seal(store: &mut StateStore, key: Fingerprint, block: u64) -> u64 {
        store.admit(key, PAIR).unwrap();
        let first = store.lend_sealing(key).unwrap().map_or(1, |it| it.reserved_until);
        store.settle().unwrap();
        let wanted = SealingState { fingerprint: key, reserved_until: first + block };
        store.reserver().wait(vec![wanted]).unwrap();
        first
    }

    fn left(key: Fingerprint, next: u64) -> Left {
        let state = SealingState { fingerprint: key, reserved_until: next };
        Left { sealing: vec![state], opening: Vec::new() }
    }

    fn accept(store: &mut StateStore, key: Fingerprint, highest: u64) -> u64 {
        store.admit(key, PAIR).unwrap();
        let (mut file, state) = store.lend_opening(key).unwrap();
        store.settle().unwrap();
        let replay = weir_engine::esp::replay::ReplayState::up_to(highest);
        let mut record = Vec::new();
        OpeningState { fingerprint: key, replay }.encode(&mut record);
        file.write(&record).unwrap();
        state.map_or(0, |it| it.replay.highest)
    }

    fn files(directory: &Path) -> usize {
        let names = fs::read_dir(directory).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|it| it.to_string_lossy().ends_with(".state")).count()
    }

    #[test]
    fn a_key_goes_on_where_the_worker_let_go_of_it_and_else_behind_what_was_reserved() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path());
        assert_eq!(seal(&mut store, KEY, 1000), 1);
        store.note_left(&left(KEY, 40));
        assert_eq!(seal(&mut store, KEY, 1000), 40, "the policy went and came");
        assert_eq!(seal(&mut store, KEY, 1000), 1040, "nobody said how far it went");
        store.note_left(&left(KEY, 1100));
        store.take_back(&[KEY]).unwrap();
        assert_eq!(files(folder.path()), 0, "a note took their place");
        assert_eq!(seal(&mut store, KEY, 1000), 1100, "removed, and added again");
        store.take_back(&[KEY]).unwrap();
        assert_eq!(seal(&mut store, KEY, 10), 2100, "what was reserved counts as used");
    }

    #[test]
    fn a_mark_on_the_disk_never_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(folder.path());
        seal(&mut first, KEY, 1000);
        first.note_left(&left(KEY, 5));
        assert_eq!(seal(&mut first, KEY, 10), 5);
        drop(first);
        assert_eq!(seal(&mut store(folder.path()), KEY, 10), 1001);
    }

    #[test]
    fn after_a_crash_and_after_an_end_keys_go_on_and_leave_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(folder.path());
        seal(&mut first, KEY, 1000);
        accept(&mut first, OTHER, 77);
        assert_eq!(files(folder.path()), 2);
        drop(first);
        let mut second = store(folder.path());
        assert_eq!(files(folder.path()), 0, "tidied at the start");
        assert_eq!(seal(&mut second, KEY, 1000), 1001);
        assert_eq!(accept(&mut second, OTHER, 78), 77);
        second.take_back(&[KEY, OTHER]).unwrap();
        drop(second);
        let mut third = store(folder.path());
        assert_eq!(seal(&mut third, KEY, 1), 2001);
        assert_eq!(accept(&mut third, OTHER, 79), 78);
    }

    #[test]
    fn a_key_in_a_file_and_a_front_ends_know_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(folder.path());
        first.sealing(KEY).unwrap();
        first.settle().unwrap();
        let wanted = SealingState { fingerprint: KEY, reserved_until: 500 };
        first.reserver().wait(vec![wanted]).unwrap();
        assert!(matches!(first.admit(KEY, PAIR), Err(StateError::Taken)), "in use");
        drop(first);
        let mut second = store(folder.path());
        assert_eq!(seal(&mut second, KEY, 100), 500);
        assert!(matches!(second.sealing(KEY), Err(StateError::Lent(KEY))));
        assert!(matches!(second.admit(KEY, PAIR + 1), Err(StateError::Taken)), "another pair");
        second.take_back(&[KEY]).unwrap();
        assert_eq!(second.sealing(KEY).unwrap().unwrap().reserved_until, 600, "a file again");
        second.settle().unwrap();
        let wanted = SealingState { fingerprint: KEY, reserved_until: 900 };
        second.reserver().wait(vec![wanted]).unwrap();
        drop(second);
        fs::copy(folder.path().join("keys-lent"), folder.path().join("kept")).unwrap();
        let mut third = store(folder.path());
        assert_eq!(third.sealing(KEY).unwrap().unwrap().reserved_until, 900);
        drop(third);
        // The files of a moment ago are lost: the older note does not stand for them.
        fs::rename(folder.path().join("kept"), folder.path().join("keys-lent")).unwrap();
        fs::remove_file(folder.path().join(format!("seal-{KEY}.state"))).unwrap();
        assert!(matches!(store(folder.path()).sealing(KEY), Err(StateError::Lost { .. })));
    }

    #[test]
    fn one_key_never_goes_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path());
        seal(&mut store, KEY, 1000);
        store.note_left(&left(KEY, 2));
        assert!(matches!(store.lend_opening(KEY), Err(StateError::Turned)));
        store.take_back(&[KEY]).unwrap();
        store.admit(KEY, PAIR).unwrap();
        assert!(matches!(store.lend_opening(KEY), Err(StateError::Turned)), "by the note");
        accept(&mut store, OTHER, 3);
        assert!(matches!(store.lend_sealing(OTHER), Err(StateError::Turned)));
        let third = Fingerprint([9; 8]);
        accept(&mut store, third, 0);
        assert_eq!(seal(&mut store, third, 1), 1, "it was to open, and did not");
    }

    #[test]
    fn lost_state_of_a_front_ends_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(folder.path());
        seal(&mut first, KEY, 1000);
        accept(&mut first, OTHER, 5);
        drop(first);
        for (kind, key) in [("seal", KEY), ("open", OTHER)] {
            fs::remove_file(folder.path().join(format!("{kind}-{key}.state"))).unwrap();
        }
        let mut second = store(folder.path());
        for key in [KEY, OTHER] {
            second.admit(key, PAIR).unwrap();
        }
        assert!(matches!(second.lend_sealing(KEY), Err(StateError::Lost { .. })));
        assert!(matches!(second.lend_opening(OTHER), Err(StateError::Lost { .. })));
    }

    #[test]
    fn what_another_gateway_of_the_directory_has_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = store(folder.path());
        seal(&mut first, KEY, 1000);
        let mut second = store(folder.path());
        assert_eq!(files(folder.path()), 1, "not tidied");
        second.admit(KEY, PAIR).unwrap();
        assert!(matches!(second.lend_sealing(KEY), Err(StateError::InUse(KEY))));
        first.note_left(&left(KEY, 30));
        first.take_back(&[KEY]).unwrap();
        assert_eq!(seal(&mut second, KEY, 1000), 30, "as soon as the first has removed it");
    }
}
