//! Alerts that are suppressed stay stored and counted, and are left out by who asks for it.

use std::path::Path;
use std::time::Duration;

use super::stores::{SECOND_NS, address, alert, now_s, start};
use weir_store::sqlite::{AlertFilter, AlertRow, Range, Reader, Suppression, SuppressionChange};

fn host(last: u8) -> [u8; 16] {
    address(last.into())
}

fn begin(sid: u32, source: Option<u8>, since_s: u64, until_s: u64) -> SuppressionChange {
    SuppressionChange::Begin(Suppression {
        sid,
        source: source.map(|last| (host(last), host(last))),
        since_ns: since_s * SECOND_NS,
        until_ns: until_s * SECOND_NS,
        who: "soc".into(),
        reason: "a drill".into(),
    })
}

/// Rule, last byte of the source, and seconds since `start_s` of the alerts that `filter` chooses.
fn found(path: &Path, start_s: u64, suppressed: Option<bool>) -> Vec<(u32, u8, u64)> {
    let reader = Reader::open(path).unwrap();
    let range = Range { from_s: 0, until_s: now_s() + 3600 };
    let filter = AlertFilter { suppressed, ..AlertFilter::default() };
    let rows = reader.alerts(range, &filter, 100).unwrap();
    assert!(rows.iter().all(|row| suppressed.is_none_or(|it| it == row.is_suppressed)));
    let of = |row: &AlertRow| (row.sid, row.source[15], row.time_ns / SECOND_NS - start_s);
    let mut found: Vec<_> = rows.iter().map(of).collect();
    found.sort_unstable();
    found
}

#[test]
fn alerts_of_a_signature_are_left_out_from_then_until_its_end_by_source_or_from_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let at = now_s() - 1000;
    let store = start(&path);
    store.suppress(begin(7, Some(1), at + 100, at + 200));
    store.suppress(begin(8, None, at + 100, at + 200));
    let alerts = store.alerts();
    for (sid, source) in [(7, 1), (7, 2), (8, 1), (8, 2), (9, 1)] {
        for second in [99, 100, 199, 200] {
            alerts.send(alert(sid, source, at + second));
        }
    }
    assert_eq!(store.stop().alerts_lost, 0);
    let hidden = found(&path, at, Some(true));
    assert_eq!(
        hidden,
        [(7, 1, 100), (7, 1, 199), (8, 1, 100), (8, 1, 199), (8, 2, 100), (8, 2, 199)]
    );
    assert_eq!(found(&path, at, Some(false)).len(), 20 - hidden.len());
    assert_eq!(found(&path, at, None).len(), 20, "all are stored");
    let reader = Reader::open(&path).unwrap();
    let range = Range { from_s: 0, until_s: now_s() };
    let signatures = reader.signatures(range, &AlertFilter::default(), 10).unwrap();
    let mut counted: Vec<_> =
        signatures.iter().map(|row| (row.sid, row.alerts, row.suppressed)).collect();
    counted.sort_unstable();
    assert_eq!(counted, [(7, 8, 2), (8, 8, 4), (9, 4, 0)], "and counted");
    let shown = AlertFilter { suppressed: Some(false), ..AlertFilter::default() };
    let (_, slices) = reader.alert_slices(range, &shown).unwrap();
    assert_eq!(slices.iter().map(|it| it.alerts).sum::<u64>(), 14);
}

#[test]
fn a_suppression_goes_on_when_it_is_said_again_and_ends_when_it_is_lifted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let at = now_s() - 1000;
    let store = start(&path);
    store.suppress(begin(7, None, at, at + 100));
    store.suppress(begin(7, None, at + 50, at + 500));
    store.suppress(begin(7, Some(3), at, at + 900));
    let is_written = || match Reader::open(&path) {
        Ok(reader) => reader.suppressions((at + 90) * SECOND_NS).is_ok_and(|it| it.len() == 2),
        Err(_) => false,
    };
    while !is_written() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // What was written is not written again with what comes later.
    store.suppress(SuppressionChange::End {
        sid: 7,
        source: None,
        time_ns: (at + 300) * SECOND_NS,
    });
    std::thread::sleep(Duration::from_millis(1200));
    for second in [0, 120, 299, 300, 450] {
        store.alerts().send(alert(7, 1, at + second));
    }
    store.stop();
    assert_eq!(found(&path, at, Some(true)), [(7, 1, 0), (7, 1, 120), (7, 1, 299)]);
    let reader = Reader::open(&path).unwrap();
    let in_force = |second: u64| {
        let rows = reader.suppressions((at + second) * SECOND_NS).unwrap();
        rows.iter()
            .map(|it| (it.source.is_some(), it.until_ns / SECOND_NS - at))
            .collect::<Vec<_>>()
    };
    assert_eq!(in_force(200), [(false, 300), (true, 900)]);
    assert_eq!(in_force(300), [(true, 900)]);
    assert!(in_force(900).is_empty());
}
