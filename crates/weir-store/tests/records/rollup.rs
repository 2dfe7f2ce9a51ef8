//! Sums by dimension: they are those of the records whatever happened between, and stay small.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::stores::{address, now_s, start};
use weir_store::sqlite::{
    Collected, ConversationRow, Event, FlowRow, GroupBy, Label, Order, Range, Reader,
    SCHEMA_VERSION, Sample, Scope, ScopeKind, Store, Volumes,
};

/// Set for the child that is killed: where it writes.
const CHILD: &str = "WEIR_ROLLUP_TEST_CHILD";

const DAY_S: u64 = 86_400;

/// A flow from host `number` to host zero that ended at `last_s`.
fn flow(number: u32, last_s: u64, bytes: u64) -> Collected {
    Collected::Flow(FlowRow {
        started_ns: last_s * 1_000_000_000,
        last_ns: last_s * 1_000_000_000 + 5,
        pair: "domain 1".to_owned(),
        protocol: 6,
        source: address(number),
        source_port: 40_000,
        destination: address(0),
        destination_port: 443,
        packets: 1,
        bytes,
        reply_packets: 1,
        reply_bytes: 1,
        reason: "active".to_owned(),
        exporter: Some("192.0.2.1".to_owned()),
        ..FlowRow::default()
    })
}

fn send(store: &Store, rows: impl IntoIterator<Item = Collected>) {
    let sender = store.collected();
    for row in rows {
        while store.counters().records - store.counters().written > 4000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        sender.send(row);
    }
    until(|| store.counters().written == store.counters().records);
    assert_eq!(store.counters().overflowed, 0);
}

/// Minutes, for a machine that is busy.
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "it did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sql<T: rusqlite::types::FromSql>(path: &Path, text: &str) -> T {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row(text, [], |row| row.get(0)).unwrap()
}

/// Whether the file has it; it may not be made yet.
fn holds(path: &Path, condition: &str) -> bool {
    let Ok(connection) = rusqlite::Connection::open(path) else { return false };
    let sql = format!("SELECT {condition}");
    connection.query_row(&sql, [], |row| row.get::<_, bool>(0)).is_ok_and(|it| it)
}

/// Whether so many flows are in the sums.
fn has_summed(path: &Path, flows: u64) -> bool {
    let summed = "EXISTS (SELECT 1 FROM rollup_state WHERE name = 'flow' AND value = ";
    holds(path, &format!("{summed}{flows})"))
}

/// Bytes by source, and those of the rest.
fn by_source(path: &Path, range: Range) -> (BTreeMap<[u8; 16], u64>, u64) {
    let reader = Reader::open(path).unwrap();
    let answer = reader
        .volumes(Volumes::Flows, GroupBy::Source, range, None, (Order::Bytes, 10_000))
        .unwrap();
    let rows = answer.rows.into_iter().map(|row| (row.source.unwrap(), row.bytes));
    (rows.collect(), answer.rest_bytes)
}

#[test]
fn sums_of_any_span_are_those_of_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let begin = (now_s() - 3 * DAY_S) / DAY_S * DAY_S;
    let store = start(&path);
    // Out of order, some hours late, over two days and a half.
    let flows: Vec<(u32, u64, u64)> = (0..30_000_u64)
        .map(|it| ((it % 97) as u32 + 1, begin + it * 7 + it % 13 * 900, 100 + it % 1000))
        .collect();
    send(&store, flows.iter().map(|(number, last_s, bytes)| flow(*number, *last_s, *bytes)));
    for is_stopped in [false, true] {
        for (from_s, until_s) in
            [(0, 2 * DAY_S + 7200), (3540, 40_020), (90_000, 90_060), (60, 180)]
        {
            let range = Range { from_s: begin + from_s, until_s: begin + until_s };
            let wanted = of_flows(&flows, range);
            assert_eq!(by_source(&path, range), (wanted, 0), "{from_s} {until_s} {is_stopped}");
        }
        if !is_stopped {
            until(|| has_summed(&path, 30_000));
        }
    }
    let coarse = "SELECT count(DISTINCT slice_s) FROM rollup";
    assert_eq!(sql::<i64>(&path, coarse), 4, "minutes, ten minutes, hours, days");
    store.stop();
}

/// A gateway's state at `time_s`, since whose start `received` packets came.
fn sample(time_s: u64, received: u64) -> Sample {
    let counters = [("received".to_owned(), received)].into();
    let scope = Scope { pair: "port0".into(), kind: ScopeKind::Host, name: "p0".into(), counters };
    Sample { time_ns: time_s * 1_000_000_000, scopes: vec![scope], peers: vec![] }
}

/// Bytes by source of `flows` that ended within `range`.
fn of_flows(flows: &[(u32, u64, u64)], range: Range) -> BTreeMap<[u8; 16], u64> {
    let mut wanted = BTreeMap::new();
    for (number, last_s, bytes) in flows {
        if (range.from_s..range.until_s).contains(last_s) {
            *wanted.entry(address(*number)).or_default() += bytes;
        }
    }
    wanted
}

#[test]
fn a_clock_that_steps_by_days_loses_nothing_and_its_sums_are_those_of_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let now = now_s() / 60 * 60;
    // A day behind, right, a day ahead, two days back, right.
    let clocks = [now - DAY_S, now, now + DAY_S, now - DAY_S, now];
    let (store, mut flows) = (start(&path), Vec::new());
    for (turn, clock) in clocks.iter().enumerate() {
        let turn = turn as u64;
        let own = (0..900_u64).map(|it| ((it % 20) as u32 + 1, clock + it, 100 + 7 * it + turn));
        flows.extend(own.clone());
        send(&store, own.map(|(number, last_s, bytes)| flow(number, last_s, bytes)));
        store.sample(sample(*clock, 100 * (turn + 1)));
        let event = Event {
            time_ns: clock * 1_000_000_000,
            who: "gateway".into(),
            what: format!("step {turn}"),
            outcome: "done".into(),
        };
        store.event(event);
        // The sums have followed before the clock steps again.
        until(|| has_summed(&path, flows.len() as u64));
    }
    let all = Range { from_s: now - 3 * DAY_S, until_s: now + 3 * DAY_S };
    let spans = clocks.map(|clock| Range { from_s: clock, until_s: clock + 600 });
    let days = clocks.map(|clock| Range { from_s: clock - 7200, until_s: clock + DAY_S - 7200 });
    let check = |when: &str| {
        for range in spans.into_iter().chain(days).chain([all]) {
            let offset = range.from_s as i64 - now as i64;
            assert_eq!(by_source(&path, range), (of_flows(&flows, range), 0), "{when}, {offset}");
        }
    };
    check("while it is written");
    store.stop();
    check("after its end");
    start(&path).stop();
    check("after the next start");
    assert_eq!(sql::<i64>(&path, "SELECT count(*) FROM flow"), flows.len() as i64);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.events(all, 100).unwrap().len(), clocks.len());
    // What the counter grew by, wherever the clock stood.
    let (_, rows) = reader.counters(all).unwrap();
    assert_eq!(rows.iter().map(|it| it.value).sum::<u64>(), 100 * clocks.len() as u64);
}

#[test]
fn sums_beyond_all_integers_stay_at_the_greatest_and_harm_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let (store, time_s) = (start(&path), now_s() / 3600 * 3600 - 3600);
    // In two transactions, so that they meet in the file.
    for count in [4, 8] {
        send(&store, (0..4).map(|_| flow(1, time_s, u64::MAX / 2)));
        until(|| has_summed(&path, count));
    }
    send(&store, [flow(2, time_s, 7), flow(2, time_s + 3000, 8)]);
    store.stop();
    let range = Range { from_s: time_s - 60, until_s: time_s + 3600 };
    let (sums, rest) = by_source(&path, range);
    assert_eq!((sums[&address(1)], sums[&address(2)], rest), (i64::MAX as u64, 15, 0));
    let talkers = Reader::open(&path).unwrap().talkers(range, None, None, 10).unwrap();
    assert_eq!(talkers.len(), 3);
}

#[test]
fn a_slice_keeps_its_greatest_keys_and_the_rest_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let begin = (now_s() - DAY_S) / 3600 * 3600;
    let store = start(&path);
    // The greatest come last.
    let bytes = |number: u32| u64::from(number) * 10;
    send(&store, (1..=5000).map(|number| flow(number, begin + 1, bytes(number))));
    let range = Range { from_s: begin, until_s: begin + 3600 };
    send(&store, [flow(1, begin + 5 * 3600, 1)]);
    until(|| has_summed(&path, 5001));
    let (rows, rest) = by_source(&path, range);
    assert_eq!(rows.len(), 2048);
    assert!((2953..=5000).all(|number| rows[&address(number)] == bytes(number)));
    let named: u64 = rows.values().sum();
    let all: u64 = (1..=5000).map(bytes).sum();
    // Each flow was answered by a byte.
    assert_eq!(named + rest, all + 5000 - 2048);
    // Who comes late joins the rest, and nothing is lost.
    send(&store, [flow(9000, begin + 30, 7), flow(5000, begin + 31, 3)]);
    store.stop();
    let (rows, later) = by_source(&path, range);
    assert_eq!((rows[&address(5000)], later), (bytes(5000) + 3, rest + 8));
    let slices = "SELECT max(n) FROM (SELECT count(*) AS n FROM rollup WHERE key > x'' \
                  GROUP BY slice_s, dimension, time_s)";
    assert_eq!(sql::<i64>(&path, slices), 2048);
}

#[test]
fn queue_pairs_exporters_and_names_are_added_up_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let (store, time_s) = (start(&path), now_s() - 600);
    let names = [None, Some("red".to_owned()), None, None];
    store.labels(vec![Label { first: address(0), last: address(1), names }]);
    until(|| holds(&path, "(SELECT count(*) FROM label) = 1"));
    send(&store, [flow(1, time_s, 10), flow(2, time_s, 20)]);
    let conversation = |slowest| {
        Collected::Conversation(ConversationRow {
            last_ns: time_s * 1_000_000_000,
            pair: "domain 1".to_owned(),
            encapsulation: "roce_v2".to_owned(),
            service: "rc".to_owned(),
            source: address(1),
            source_qp: Some(17),
            destination: address(2),
            destination_qp: 18,
            bytes: 100,
            retransmissions: 3,
            response_ns: Some(slowest),
            ..ConversationRow::default()
        })
    };
    send(&store, [conversation(900), conversation(400)]);
    store.stop();
    let reader = Reader::open(&path).unwrap();
    let range = Range { from_s: time_s - 60, until_s: time_s + 60 };
    let ask = |of, by, label: Option<&str>| {
        let label = label.map(|it| it.parse().unwrap());
        reader.volumes(of, by, range, label.as_ref(), (Order::Bytes, 100)).unwrap().rows
    };
    let [pair] = ask(Volumes::Conversations, GroupBy::QueuePair, None).try_into().unwrap();
    assert_eq!((pair.source_qp, pair.destination_qp), (Some(17), Some(18)));
    assert_eq!((pair.records, pair.bytes, pair.retransmissions), (2, 200, 6));
    assert_eq!(pair.response_ns, Some(900), "the slowest of both");
    let [exporter] = ask(Volumes::Flows, GroupBy::Exporter, None).try_into().unwrap();
    assert_eq!((exporter.exporter.as_deref(), exporter.bytes), (Some("192.0.2.1"), 30));
    let [label] = ask(Volumes::Flows, GroupBy::Label, None).try_into().unwrap();
    assert_eq!((label.label.as_deref(), label.records), (Some("tenant=red"), 2));
    for by in [GroupBy::Source, GroupBy::Service, GroupBy::Label] {
        assert!(!ask(Volumes::Flows, by, Some("red")).is_empty());
        assert!(ask(Volumes::Flows, by, Some("blue")).is_empty());
    }
}

#[test]
fn what_was_acknowledged_is_in_the_sums_after_kill_9_and_once() {
    if let Some(path) = std::env::var_os(CHILD) {
        let store = start(Path::new(&path));
        loop {
            send(&store, (1..=200).map(|number| flow(number, now_s() - 100, 10)));
            println!("\nwritten {}", store.counters().written);
            assert!(store.counters().records < 60_000, "nobody killed it");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rollup::what_was_acknowledged_is_in_the_sums_after_kill_9_and_once"])
            .arg("--nocapture")
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut counts = lines.filter_map(|it| it.strip_prefix("written ")?.parse::<u64>().ok());
        assert!(counts.any(|count| count >= 1000));
        child.kill().unwrap();
        child.wait().unwrap();
        let stored: i64 = sql(&path, "SELECT sum(bytes) FROM flow");
        let range = Range { from_s: 0, until_s: now_s() + 60 };
        let sum = || by_source(&path, range).0.values().sum::<u64>();
        assert_eq!(sum(), stored as u64, "those that are in no slice yet included");
        start(&path).stop();
        assert_eq!(sum(), stored as u64, "after the next start");
    }
    let [behind, last]: [i64; 2] =
        ["SELECT value FROM rollup_state WHERE name = 'flow'", "SELECT max(id) FROM flow"]
            .map(|it| sql(&path, it));
    assert_eq!(behind, last);
}

#[test]
fn a_store_of_the_version_before_gives_its_sums_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let recent_s = now_s() / 3600 * 3600 - 3600;
    let (store, old_s) = (start(&path), recent_s - 10 * 3600);
    send(&store, [flow(1, recent_s + 60, 10), flow(2, recent_s + 120, 20)]);
    store.stop();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch(&format!(
        "DROP TABLE rollup; DROP TABLE rollup_state; DROP TABLE stretch; DROP TABLE suppression;
         DROP TRIGGER flow_removed; DROP TABLE flow_block;
         DROP TRIGGER conversation_removed; DROP TABLE conversation_block;
         DROP TABLE alert_number; ALTER TABLE conversation DROP COLUMN source_peer;
         ALTER TABLE conversation DROP COLUMN destination_peer;
         CREATE TABLE talk (
            resolution_s INTEGER NOT NULL, time_s INTEGER NOT NULL, pair INTEGER NOT NULL,
            kind TEXT NOT NULL, a BLOB NOT NULL, b BLOB NOT NULL,
            a_packets INTEGER NOT NULL, a_bytes INTEGER NOT NULL,
            b_packets INTEGER NOT NULL, b_bytes INTEGER NOT NULL,
            PRIMARY KEY (resolution_s, time_s, pair, kind, a, b)) WITHOUT ROWID;
         INSERT INTO talk
            SELECT 3600, {old_s}, 1, 'tcp', destination, source, 1, 500, 2, 700 FROM flow;
         INSERT INTO talk
            SELECT 3600, {recent_s}, 1, 'tcp', destination, source, 1, 1, 1, bytes FROM flow;
         PRAGMA user_version = 7;"
    ))
    .unwrap();
    drop(raw);
    let range = Range { from_s: old_s, until_s: now_s() };
    let before = Reader::open(&path).unwrap().talkers(range, None, None, 10).unwrap();
    assert_eq!(before.len(), 3, "a reader needs no new tables");
    start(&path).stop();
    assert_eq!(sql::<i64>(&path, "PRAGMA user_version"), SCHEMA_VERSION);
    let talkers = Reader::open(&path).unwrap().talkers(range, Some("tcp"), None, 10).unwrap();
    let sent = |number| talkers.iter().find(|it| it.address == address(number)).unwrap().sent_bytes;
    // The old hour from the old table, the new one from the records: neither twice.
    assert_eq!([sent(0), sent(1), sent(2)], [1000 + 2, 700 + 10, 700 + 20]);
    assert_eq!(talkers.iter().map(|it| it.peers).max(), Some(2));
}
