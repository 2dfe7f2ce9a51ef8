//! The state directory over restarts, crashes and damage.

use weir_store::clock;

use super::slot::{HEAD_BYTES, MAGIC};
use super::*;

const KEY: Fingerprint = Fingerprint([7; 8]);

fn store(directory: &Path) -> StateStore {
    StateStore::open(directory, "gw", LostState::Refuse).unwrap()
}

fn reserve(store: &StateStore, until: u64) {
    let wanted = SealingState { fingerprint: KEY, reserved_until: until };
    store.reserver().wait(vec![wanted]).unwrap();
}

fn state_file(directory: &Path, kind: &str) -> PathBuf {
    directory.join(format!("{kind}-{KEY}.state"))
}

#[test]
fn ivs_of_an_installation_begin_as_none_before_with_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let [key, other] = [Fingerprint([1; 8]), Fingerprint([2; 8])];
    let mut store = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap();
    assert!(!store.note_iv(key, IvPrefix([0, 0])).unwrap(), "Weir's own begin so");
    assert!(store.note_iv(key, IvPrefix([1, 2])).unwrap());
    assert!(!store.note_iv(key, IvPrefix([1, 2])).unwrap());
    assert!(store.note_iv(other, IvPrefix([1, 2])).unwrap(), "another key");
    drop(store);
    let mut store = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap();
    assert!(!store.note_iv(key, IvPrefix([1, 2])).unwrap(), "after a restart");
    assert!(store.note_iv(key, IvPrefix([2, 1])).unwrap());
}

#[test]
fn a_new_key_begins_and_a_used_one_goes_on_where_the_disk_says() {
    let directory = tempfile::tempdir().unwrap();
    for (before, until) in [(None, 100), (Some(100), 200), (Some(200), 300)] {
        let mut store = store(directory.path());
        let state = store.sealing(KEY).unwrap();
        assert_eq!(state.map(|it| it.reserved_until), before);
        store.settle().unwrap();
        reserve(&store, until);
    }
}

#[test]
fn what_a_copy_of_the_machine_knows_too_is_refused_and_fresh_keys_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let [opened, lent, fresh] = [1, 2, 3].map(|byte| Fingerprint([byte; 8]));
    let mut first = store(folder.path());
    first.sealing(KEY).unwrap();
    first.opening(opened).unwrap();
    first.admit(lent, 0).unwrap();
    first.lend_sealing(lent).unwrap();
    first.settle().unwrap();
    first.take_back(&[lent]).unwrap();
    assert_eq!(first.distrust().unwrap(), 3);
    assert!(matches!(first.sealing(KEY), Err(StateError::Cloned(KEY))), "at once");
    drop(first);
    let mut second = store(folder.path());
    assert!(matches!(second.sealing(KEY), Err(StateError::Cloned(KEY))), "by a later start");
    assert!(matches!(second.opening(opened), Err(StateError::Cloned(_))));
    second.admit(lent, 0).unwrap();
    assert!(matches!(second.lend_sealing(lent), Err(StateError::Cloned(_))));
    assert_eq!(second.sealing(fresh).unwrap(), None);
    assert_eq!(second.distrust().unwrap(), 4, "once more, with the fresh one");
    drop(second);
    let mut forgetting = StateStore::open(folder.path(), "gw", LostState::DangerForget).unwrap();
    assert!(forgetting.sealing(KEY).is_ok());
}

#[test]
fn damaged_blocks_are_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["blocks.json", "blocks-gw.json"] {
        std::fs::write(folder.path().join(name), "{\"blocks\": [").unwrap();
        let error = StateStore::open(folder.path(), "gw", LostState::Refuse).unwrap_err();
        let error = error.to_string();
        let what = format!("{name} is damaged: EOF");
        assert!(error.contains(&what) && error.contains("weir block add"), "{error}");
    }
}

#[test]
fn lost_or_damaged_state_of_a_used_key_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    first.sealing(KEY).unwrap();
    first.settle().unwrap();
    reserve(&first, 100);
    drop(first);
    let path = state_file(directory.path(), "seal");
    let whole = fs::read(&path).unwrap();
    for damage in [None, Some(vec![]), Some(vec![0; 100])] {
        match damage {
            None => fs::remove_file(&path).unwrap(),
            Some(bytes) => fs::write(&path, bytes).unwrap(),
        }
        for _attempt in 0..2 {
            let error = store(directory.path()).sealing(KEY).unwrap_err().to_string();
            assert!(error.contains("--danger-forget-state"), "{error}");
        }
        let mut forgetting =
            StateStore::open(directory.path(), "gw", LostState::DangerForget).unwrap();
        assert_eq!(forgetting.sealing(KEY).unwrap(), None);
        forgetting.settle().unwrap();
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(store(directory.path()).sealing(KEY).unwrap().unwrap().reserved_until, 100);
}

#[test]
fn a_damaged_slot_leaves_the_one_before_and_skips_what_it_may_have_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    first.sealing(KEY).unwrap();
    first.settle().unwrap();
    reserve(&first, 100);
    reserve(&first, 200);
    drop(first);
    let path = state_file(directory.path(), "seal");
    let whole = fs::read(&path).unwrap();
    let newest = whole.windows(8).enumerate().filter(|(_, it)| *it == MAGIC).map(|(at, _)| at);
    let newest = newest.max_by_key(|at| whole[at + 8..at + 16].to_vec()).unwrap();
    for offset in 0..HEAD_BYTES + 32 {
        let mut damaged = whole.clone();
        damaged[newest + offset] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let state = store(directory.path()).sealing(KEY).unwrap().unwrap();
        let skipped = 100 + RESERVATION_MAX;
        assert_eq!(state.reserved_until, skipped, "byte {offset}: the lost one may have been used");
    }
}

#[test]
fn accepted_numbers_are_there_again_without_a_clean_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    let (mut file, state) = first.opening(KEY).unwrap();
    assert_eq!(state, None);
    first.settle().unwrap();
    let replay =
        weir_engine::esp::replay::ReplayState { highest: 77, window: 64, accepted: vec![1, 2] };
    let accepted = OpeningState { fingerprint: KEY, replay };
    let mut record = Vec::new();
    accepted.encode(&mut record);
    file.write(&record).unwrap();
    // What a killed process leaves: the file as it is, nobody's lock.
    let copy = tempfile::tempdir().unwrap();
    for name in ["keys-used".into(), format!("open-{KEY}.state")] {
        fs::copy(directory.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let (_, state) = store(copy.path()).opening(KEY).unwrap();
    assert_eq!(state, Some(accepted));
}

#[test]
fn one_key_serves_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    first.sealing(KEY).unwrap();
    first.sealing(KEY).expect("a reload asks again");
    let mut second = store(directory.path());
    assert!(matches!(second.sealing(KEY), Err(StateError::InUse(KEY))));
}

#[test]
fn numbers_of_an_unknown_key_are_refused_and_of_one_that_is_not_settled() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path());
    let wanted = SealingState { fingerprint: KEY, reserved_until: 5 };
    assert!(store.reserver().wait(vec![wanted]).is_err());
    store.sealing(KEY).unwrap();
    assert!(store.reserver().wait(vec![wanted]).is_err(), "a crash would forget the key");
    store.settle().unwrap();
    store.reserver().wait(vec![wanted]).unwrap();
}

/// `count` keys, each with both of its files.
fn begin(store: &mut StateStore, count: u8) -> Vec<SealingState> {
    let key = |byte| Fingerprint([byte; 8]);
    let begun = (0..count).map(|byte| {
        store.opening(key(byte)).unwrap();
        assert_eq!(store.sealing(key(byte)).unwrap(), None, "no number was used");
        SealingState { fingerprint: key(byte), reserved_until: 100 }
    });
    begun.collect()
}

fn copied(from: &Path, files: impl Iterator<Item = String>) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for name in files {
        fs::copy(from.join(&name), to.path().join(&name)).unwrap();
    }
    to
}

/// More keys than are waited for one by one; a power failure leaves any part of what was not
/// waited for, and the ledger cut anywhere.
#[test]
fn whenever_a_batch_is_cut_short_no_key_is_lost_and_none_has_used_a_number() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    let wanted = begin(&mut first, 20);
    let names = || {
        let listed = fs::read_dir(directory.path()).unwrap();
        let names = listed.map(|it| it.unwrap().file_name().into_string().unwrap());
        names.filter(|it| it.ends_with(".state"))
    };
    for kept in 0..4 {
        let some = names().enumerate().filter(|(index, _)| index % 4 <= kept);
        let left = copied(directory.path(), some.map(|(_, name)| name));
        let mut again = store(left.path());
        begin(&mut again, 20);
        again.settle().unwrap();
        again.reserver().wait(wanted.clone()).unwrap();
    }
    first.settle().unwrap();
    let ledger = fs::read(directory.path().join("keys-used")).unwrap();
    assert_eq!(ledger.iter().filter(|byte| **byte == b'\n').count(), 40);
    for end in (0..ledger.len()).step_by(31) {
        let left = copied(directory.path(), names());
        fs::write(left.path().join("keys-used"), &ledger[..end]).unwrap();
        let mut again = store(left.path());
        begin(&mut again, 20);
        again.settle().unwrap();
        drop(again);
        let whole = store(left.path()).used.clone();
        assert!(first.used.iter().all(|name| whole.contains(name)), "cut at {end}");
    }
    first.reserver().wait(wanted.clone()).unwrap();
    drop(first);
    let mut last = store(directory.path());
    for state in wanted {
        assert_eq!(last.sealing(state.fingerprint).unwrap(), Some(state));
    }
}

/// `cargo test -p weir --lib a_thousand_keys -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_thousand_keys_begin() {
    let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let mut store = store(directory.path());
    let begun = clock::now();
    let mut wanted = Vec::new();
    for number in 0..1000_u64 {
        let fingerprint = Fingerprint(number.to_be_bytes());
        store.opening(fingerprint).unwrap();
        store.sealing(fingerprint).unwrap();
        wanted.push(SealingState { fingerprint, reserved_until: 1 << 20 });
    }
    store.settle().unwrap();
    store.reserver().wait(wanted).unwrap();
    println!("1000 keys begun, numbers reserved: {} ms", begun.elapsed().as_millis());
}

/// What fails to reach the disk is tried again in the same place, and what is there stays.
#[test]
fn a_record_counts_when_it_is_on_the_disk_and_the_one_before_stays_until_then() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = store(directory.path());
    let (mut file, _) = first.opening(KEY).unwrap();
    let record = |reserved_until| {
        let mut record = Vec::new();
        SealingState { fingerprint: KEY, reserved_until }.encode(&mut record);
        record
    };
    file.write(&record(1)).unwrap();
    for attempt in 2..6 {
        file.write_next(&record(attempt)).unwrap();
    }
    let bytes = fs::read(state_file(directory.path(), "open")).unwrap();
    let has = |wanted: u64| bytes.windows(record(wanted).len()).any(|it| it == record(wanted));
    assert!(has(1) && has(5) && !has(4));
    file.advance();
    file.advance();
    file.write_next(&record(6)).unwrap();
    let bytes = fs::read(state_file(directory.path(), "open")).unwrap();
    let has = |wanted: u64| bytes.windows(record(wanted).len()).any(|it| it == record(wanted));
    assert!(has(5) && has(6) && !has(1));
}

fn stamp(directory: &Path) -> PathBuf {
    directory.join("a-to-b.key.used")
}

#[test]
fn an_emptied_directory_is_told_from_a_first_start_by_the_stamp_beside_the_key() {
    let (keys, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut first = store(directory.path());
    assert_eq!(first.sealing_of_file(KEY, &stamp(keys.path())).unwrap(), None, "a first start");
    assert!(!stamp(keys.path()).exists(), "nothing is used yet");
    first.settle().unwrap();
    assert!(stamp(keys.path()).exists());
    reserve(&first, 100);
    drop(first);
    let mut second = store(directory.path());
    let state = second.sealing_of_file(KEY, &stamp(keys.path())).unwrap().unwrap();
    assert_eq!(state.reserved_until, 101, "and on it goes");
    second.settle().unwrap();
    drop(second);
    for entry in fs::read_dir(directory.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for _attempt in 0..2 {
        let mut emptied = store(directory.path());
        for _reload in 0..2 {
            let error = emptied.sealing_of_file(KEY, &stamp(keys.path())).unwrap_err().to_string();
            assert!(error.contains("a nonce could repeat") && error.contains("emptied"), "{error}");
            assert!(error.contains("--danger-forget-state"), "{error}");
        }
        let other = Fingerprint([9; 8]);
        emptied.sealing_of_file(other, &keys.path().join("fresh.key.used")).unwrap();
        emptied.settle().expect("a fresh key begins");
    }
    let mut forgetting = StateStore::open(directory.path(), "gw", LostState::DangerForget).unwrap();
    let state = forgetting.sealing_of_file(KEY, &stamp(keys.path())).unwrap().unwrap();
    assert_eq!(state.reserved_until, 102, "at least where it began last");
    forgetting.settle().unwrap();
}

#[test]
fn a_directory_that_was_restored_from_before_the_last_start_is_refused() {
    let (keys, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stamp = stamp(keys.path());
    let mut backup = None;
    for until in [100, 200, 300] {
        let mut store = store(directory.path());
        store.sealing_of_file(KEY, &stamp).unwrap();
        store.settle().unwrap();
        reserve(&store, until);
        drop(store);
        let names = ["keys-used".to_owned(), format!("seal-{KEY}.state")];
        backup.get_or_insert_with(|| copied(directory.path(), names.into_iter()));
    }
    let restored = backup.unwrap();
    let error = store(restored.path()).sealing_of_file(KEY, &stamp).unwrap_err();
    assert!(error.to_string().contains("restored from a backup"), "{error}");
}

#[test]
fn a_new_key_whose_use_cannot_be_noted_does_not_seal_and_one_in_use_does() {
    let directory = tempfile::tempdir().unwrap();
    // No folder, nobody's permission: root may write everywhere else.
    let nowhere = directory.path().join("keys-used/a-to-b.key.used");
    let mut first = store(directory.path());
    assert!(first.sealing_of_file(KEY, &nowhere).is_err());
    let nowhere = directory.path().join("missing/a-to-b.key.used");
    first.sealing_of_file(KEY, &nowhere).unwrap();
    let error = first.settle().unwrap_err().to_string();
    assert!(error.contains("ReadWritePaths"), "{error}");
    let wanted = SealingState { fingerprint: KEY, reserved_until: 100 };
    assert!(first.reserver().wait(vec![wanted]).is_err(), "it is not settled");
    drop(first);
    let used = tempfile::tempdir().unwrap();
    let mut older = store(used.path());
    older.sealing(KEY).unwrap();
    older.settle().unwrap();
    reserve(&older, 100);
    drop(older);
    let mut now = store(used.path());
    now.sealing_of_file(KEY, &nowhere).unwrap().unwrap();
    now.settle().expect("as before there were stamps");
}
