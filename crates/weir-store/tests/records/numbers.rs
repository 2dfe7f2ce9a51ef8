//! The number of an alert is drawn before it is written anywhere, and leads to it in the store.

use std::path::Path;
use std::time::{Duration, Instant};

use super::stores::{alert, now_s, start};
use weir_store::sqlite::{AlertFilter, AlertRow, AlertStore, Range, Reader};

/// A number, once the store has opened its file.
fn draw(alerts: &AlertStore) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match alerts.draw() {
            Some(number) => return number,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => panic!("no number"),
        }
    }
}

/// Rule and number of all alerts, the latest first.
fn stored(path: &Path) -> Vec<(u32, u64)> {
    let range = Range { from_s: 0, until_s: now_s() + 60 };
    let reader = Reader::open(path).unwrap();
    let rows = reader.alerts(range, &AlertFilter::default(), 100).unwrap();
    rows.iter().map(|row: &AlertRow| (row.sid, row.number)).collect()
}

#[test]
fn numbers_lead_to_their_alerts_and_go_on_over_restarts_and_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = start(&path);
        let alerts = store.alerts();
        for sid in [10, 11] {
            let number = draw(&alerts);
            let sid = sid + round * 10;
            let row = AlertRow { number, ..alert(sid, 1, now_s() - 60 + u64::from(sid)) };
            assert!(alerts.send(row));
            expected.insert(0, (sid, number));
        }
        store.stop();
        assert_eq!(stored(&path), expected);
        assert_eq!(alerts.draw(), None, "nobody would store it");
    }
    // A clean stop gives back what was reserved.
    let numbers: Vec<u64> = expected.iter().rev().map(|it| it.1).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    // Those of alerts that went are not given again.
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("DELETE FROM alert", []).unwrap();
    drop(raw);
    let store = start(&path);
    assert_eq!(draw(&store.alerts()), 7);
}

#[test]
fn a_row_without_a_number_or_with_that_of_another_gets_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    let alerts = store.alerts();
    let number = draw(&alerts);
    let at = now_s() - 60;
    assert!(alerts.send(AlertRow { number, ..alert(1, 1, at) }));
    assert!(alerts.send(AlertRow { number, ..alert(2, 1, at + 1) }));
    assert!(alerts.send(alert(3, 1, at + 2)));
    assert_eq!(store.stop().alerts_lost, 0);
    let stored = stored(&path);
    let sids: Vec<u32> = stored.iter().map(|it| it.0).collect();
    assert_eq!(sids, [3, 2, 1]);
    assert_eq!(stored[2].1, number);
    let mut numbers: Vec<u64> = stored.iter().map(|it| it.1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{stored:?}");
}
