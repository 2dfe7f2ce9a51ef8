//! The embedded store as a gateway uses it and as a reader finds it: what was acknowledged is
//! there, whatever happened to the process, the disk or the file.

use super::{stores, traffic};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_engine::meter::Record;
use weir_store::sink::{Exporter, Item};
use weir_store::sqlite::{
    AlertFilter, AlertNote, AlertRow, FlowRow, PeerState, Range, Reader, RecordFilter, Retention,
    Sample, Scope, ScopeKind, Store, StoreCounters, StoreError, StoreOptions,
};
use weir_wire::frame::Time;

/// Set for the child that is killed: where it writes.
const CHILD: &str = "WEIR_STORE_TEST_CHILD";

const DAY_S: u64 = 86_400;

fn options(path: &Path) -> StoreOptions {
    let retention = Retention {
        size_bytes_max: 256 << 20,
        records_s: DAY_S,
        minutes_s: 2 * DAY_S,
        hours_s: 3 * DAY_S,
    };
    StoreOptions { path: path.to_owned(), group: None, retention }
}

fn start(path: &Path) -> Store {
    Store::start(options(path), vec!["port0".to_owned()]).unwrap()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn lately() -> Time {
    Time((now_s() - 60) * 1_000_000_000)
}

fn always() -> Range {
    Range { from_s: 0, until_s: now_s() + 3600 }
}

/// Waits for a state that comes by itself; minutes, for a machine that is busy.
#[track_caller]
fn until(store: &Store, wanted: impl Fn(&StoreCounters) -> bool) -> StoreCounters {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let counters = store.counters();
        if wanted(&counters) {
            return counters;
        }
        assert!(Instant::now() < end, "{counters:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Hands over all items, as fast as the store takes them.
fn send_all(store: &Store, items: &[Item]) {
    let sender = store.sender(0);
    for batch in items.chunks(1000) {
        batch.iter().for_each(|item| sender.send(*item));
        until(store, |it| it.records - it.written - it.overflowed < 4000);
    }
}

/// All of them, by SQLite itself: a reader's answers are bounded.
fn flow_count(path: &Path) -> usize {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let count = connection.query_row("SELECT count(*) FROM flow", [], |row| row.get::<_, i64>(0));
    count.unwrap() as usize
}

#[test]
fn records_are_read_back_as_the_meter_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/gw.sqlite");
    let (items, _) = traffic::flows(50, true, lately());
    let store = start(&path);
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);

    let reader = Reader::open(&path).unwrap();
    let rows = reader.flows(always(), &RecordFilter::default(), 10_000).unwrap();
    assert_eq!(rows.len(), items.len());
    for item in &items {
        let Record::Flow(flow) = traffic::record(item) else { panic!("{item:?}") };
        let out = &flow.counters[flow.initiator.index()];
        let found = rows.iter().find(|row| {
            row.started_ns == flow.started.0 && row.packets == out.packets && row.bytes == out.bytes
        });
        let row = found.unwrap_or_else(|| panic!("{flow:?}"));
        assert_eq!(row.protocol, flow.key.protocol());
        assert_eq!(row.reply_bytes + row.bytes, flow.total().bytes);
        assert_eq!((row.pair.as_str(), row.side.as_deref()), ("port0", Some("host")));
    }
    let tcp = RecordFilter { protocol: Some(6), ..RecordFilter::default() };
    let tcp = reader.flows(always(), &tcp, 10_000).unwrap();
    assert!(tcp.iter().all(|row| row.protocol == 6) && !tcp.is_empty());
    let one =
        RecordFilter { addresses: Some((rows[0].source, rows[0].source)), ..Default::default() };
    let of_one = reader.flows(always(), &one, 10_000).unwrap();
    assert!(of_one.iter().all(|row| [row.source, row.destination].contains(&rows[0].source)));
    assert!(!of_one.is_empty());
    assert_eq!(store.stop().lost, 0);
}

#[test]
fn records_of_one_flow_are_one_row_when_they_are_grouped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    let mut total = 0;
    for seconds in [120, 60] {
        let start = Time((now_s() - seconds) * 1_000_000_000);
        let (items, _) = traffic::flows(30, true, start);
        for item in &items {
            let Record::Flow(flow) = traffic::record(item) else { panic!("{item:?}") };
            total += flow.total().bytes;
        }
        send_all(&store, &items);
        until(&store, |it| it.written == it.records);
    }
    let reader = Reader::open(&path).unwrap();
    let all = reader.flows(always(), &RecordFilter::default(), 1000).unwrap();
    let grouped = RecordFilter { is_grouped: true, ..RecordFilter::default() };
    let rows = reader.flows(always(), &grouped, 1000).unwrap();
    assert_eq!((all.len(), rows.len()), (60, 30));
    assert_eq!(rows.iter().map(|row| row.bytes + row.reply_bytes).sum::<u64>(), total);
    assert!(rows.iter().all(|row| row.reason == "several" && row.started_ns < row.last_ns));
    let flags = |rows: &[FlowRow]| rows.iter().fold(0, |sum, row| sum | row.tcp_flags);
    assert_eq!(flags(&rows), flags(&all));
    assert!(reader.conversations(always(), &grouped, 10).unwrap().is_empty());
}

#[test]
fn roll_ups_have_the_sums_of_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let (items, _) = traffic::flows(200, true, lately());
    let store = start(&path);
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    let reader = Reader::open(&path).unwrap();
    let total: u64 = items
        .iter()
        .map(|item| match traffic::record(item) {
            Record::Flow(flow) => flow.total().bytes,
            Record::Conversation(_) => 0,
        })
        .sum();
    // By minutes for an hour, by hours for days.
    for span_s in [3600, 5 * DAY_S] {
        let range = Range { from_s: now_s() - span_s, until_s: now_s() + 60 };
        let talkers = reader.talkers(range, None, None, 10_000).unwrap();
        assert_eq!(talkers.iter().map(|it| it.sent_bytes).sum::<u64>(), total);
        assert_eq!(talkers.iter().map(|it| it.received_bytes).sum::<u64>(), total);
        let tcp = reader.talkers(range, Some("tcp"), None, 10_000).unwrap();
        assert!(tcp.len() < talkers.len() && !tcp.is_empty());
    }
}

#[test]
fn conversations_of_captures_are_stored_with_their_queue_pairs() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut names: Vec<_> = std::fs::read_dir(captures)
        .unwrap()
        .flatten()
        .filter_map(|it| it.file_name().into_string().ok())
        .filter(|it| it.ends_with(".pcap") || it.ends_with(".pcapng"))
        .collect();
    names.sort();
    let items: Vec<Item> = names.iter().flat_map(|name| traffic::capture(name)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    // Captures are older than what is kept.
    let mut options = options(&path);
    options.retention.records_s = 100 * 365 * DAY_S;
    let store = Store::start(options, vec!["port0".to_owned()]).unwrap();
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    let reader = Reader::open(&path).unwrap();
    let rows = reader.conversations(always(), &RecordFilter::default(), 10_000).unwrap();
    let is_conversation = |it: &&Item| matches!(traffic::record(it), Record::Conversation(_));
    assert_eq!(rows.len(), items.iter().filter(is_conversation).count());
    assert!(!rows.is_empty());
    let bytes: u64 = rows.iter().map(|row| row.bytes + row.reply_bytes).sum();
    let expected: u64 = items
        .iter()
        .map(|item| match traffic::record(item) {
            Record::Conversation(conversation) => conversation.total().bytes,
            Record::Flow(_) => 0,
        })
        .sum();
    assert_eq!(bytes, expected);
    let wanted = RecordFilter { queue_pair: Some(rows[0].destination_qp), ..Default::default() };
    let found = reader.conversations(always(), &wanted, 10_000).unwrap();
    assert!(found.contains(&rows[0]));
}

fn sample(time_s: u64, received: u64, state: &str) -> Sample {
    let counters = [("received".to_owned(), received), ("idle".to_owned(), 0)].into();
    let scope = Scope { pair: "port0".into(), kind: ScopeKind::Host, name: "p0".into(), counters };
    let peer = PeerState {
        pair: "port0".into(),
        peer: "gw-b".into(),
        state: state.into(),
        endpoint: None,
    };
    Sample { time_ns: time_s * 1_000_000_000, scopes: vec![scope], peers: vec![peer] }
}

#[test]
fn counters_are_stored_as_what_they_grew_by_and_peers_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let start_s = now_s() / 3600 * 3600 - 1800;
    let store = start(&path);
    for (second, received, state) in
        [(0, 100, "up"), (1, 150, "up"), (10, 160, "dead"), (11, 160, "up"), (60, 5, "up")]
    {
        store.sample(sample(start_s + second, received, state));
    }
    let path = store.counters().path;
    store.stop();
    let reader = Reader::open(&path).unwrap();
    let range = Range { from_s: start_s, until_s: start_s + 120 };
    let (resolution, rows) = reader.counters(range).unwrap();
    assert_eq!(resolution, 10);
    let rows: Vec<_> =
        rows.iter().map(|it| (it.time_s - start_s, it.name.as_str(), it.value)).collect();
    // The last one fell: the gateway's counters began anew.
    assert_eq!(rows, [(0, "received", 150), (10, "received", 10), (60, "received", 5)]);
    let (resolution, rows) =
        reader.counters(Range { from_s: start_s - 10 * DAY_S, ..range }).unwrap();
    assert_eq!((resolution, rows.len(), rows[0].value), (3600, 1, 165));
    let states = reader.peer_states(range, 100).unwrap();
    let states: Vec<_> = states.iter().map(|it| it.state.as_str()).collect();
    assert_eq!(states, ["up", "dead", "up"]);
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        write_for_ever(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    for _ in 0..3 {
        let before = if path.exists() { flow_count(&path) as u64 } else { 0 };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::what_was_acknowledged_survives_kill_9", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Some(count) = line.rsplit("written ").next().and_then(|it| it.parse().ok()) {
                acknowledged = count;
            }
            if acknowledged >= 700 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(acknowledged >= 700, "the child wrote {acknowledged}");
        let found = flow_count(&path) as u64;
        assert!(found >= before + acknowledged, "{found} of {before} + {acknowledged}");
    }
}

/// The child's part: ends by being killed.
fn write_for_ever(path: &Path) -> ! {
    let (items, _) = traffic::flows(50, false, lately());
    let store = start(path);
    loop {
        send_all(&store, &items);
        println!("\nwritten {}", store.counters().written);
        assert!(store.counters().records < 5000, "nobody killed it");
    }
}

#[test]
fn a_newer_store_is_left_alone_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    start(&path).stop();
    let raise = rusqlite::Connection::open(&path).unwrap();
    raise.pragma_update(None, "user_version", 999).unwrap();
    drop(raise);
    let before = std::fs::read(&path).unwrap();
    let store = start(&path);
    let (items, _) = traffic::flows(10, false, lately());
    items.iter().for_each(|item| store.sender(0).send(*item));
    let counters = until(&store, |it| it.failure.is_some());
    assert!(counters.failure.unwrap().contains("a newer Weir"));
    let last = store.stop();
    assert_eq!((last.written, last.lost), (0, items.len() as u64));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(matches!(Reader::open(&path), Err(StoreError::Newer { found: 999, .. })));
}

#[test]
fn a_damaged_store_is_moved_aside_and_a_new_one_begins() {
    for damage in
        [b"this is no database at all, and long enough to be read".repeat(200), vec![0; 9000]]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gw.sqlite");
        std::fs::write(&path, &damage).unwrap();
        let store = start(&path);
        let (items, _) = traffic::flows(10, false, lately());
        items.iter().for_each(|item| store.sender(0).send(*item));
        let counters = until(&store, |it| it.written == items.len() as u64);
        assert_eq!(counters.failure, None);
        let aside = counters.moved_aside.expect("it is said");
        assert_eq!(std::fs::read(aside).unwrap(), damage);
        assert_eq!(flow_count(&path), items.len());
    }
}

#[test]
fn a_store_damaged_in_its_middle_loses_no_new_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let (items, _) = traffic::flows(3000, false, lately());
    let store = start(&path);
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    store.stop();
    let mut bytes = std::fs::read(&path).unwrap();
    let len = bytes.len();
    bytes[4096..len].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let store = start(&path);
    items.iter().take(10).for_each(|item| store.sender(0).send(*item));
    let counters = until(&store, |it| it.written == 10);
    assert!(counters.moved_aside.is_some());
    assert_eq!(flow_count(&path), 10);
}

#[test]
fn a_store_that_is_moved_away_is_whole_and_what_follows_stands_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("gw.sqlite"), folder.path().join("away.sqlite"));
    let store = start(&path);
    let (items, _) = traffic::flows(300, false, lately());
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    std::fs::rename(&path, &away).unwrap();
    send_all(&store, &items[..7]);
    until(&store, |it| it.written == items.len() as u64 + 7);
    assert_eq!((flow_count(&away), flow_count(&path)), (items.len(), 7));
    // Likewise where another store is put there, and where it is removed.
    std::fs::rename(&away, &path).unwrap();
    send_all(&store, &items[..5]);
    until(&store, |it| it.written == items.len() as u64 + 12);
    assert_eq!(flow_count(&path), items.len() + 5);
    std::fs::remove_file(&path).unwrap();
    send_all(&store, &items[..3]);
    until(&store, |it| it.written == items.len() as u64 + 15);
    assert_eq!(flow_count(&path), 3);
    let counters = store.stop();
    assert_eq!((counters.lost, counters.failure, counters.moved_aside), (0, None, None));
}

#[test]
fn a_database_of_another_program_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.sqlite");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(other);
    let store = start(&path);
    let counters = until(&store, |it| it.failure.is_some());
    assert!(counters.failure.unwrap().contains("another program"));
    store.stop();
    let other = rusqlite::Connection::open(&path).unwrap();
    let tables = "SELECT count(*) FROM sqlite_schema";
    assert_eq!(other.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn the_file_stays_within_its_size_and_the_oldest_records_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let mut options = options(&path);
    options.retention.size_bytes_max = 4 << 20;
    let store = Store::start(options, vec!["port0".to_owned()]).unwrap();
    // Half of them in another minute, hour and perhaps day: sums of their own.
    let (begin, mut sent) = ((now_s() / 3600 * 3600 - 5) * 1_000_000_000, 0);
    // They take little, and the many that come after them do not push them out.
    let alerts = store.alerts();
    assert!((0..20).all(|number| alerts.send(stores::alert(number, 1, now_s()))));
    for round in 0..10 {
        let start = Time(begin + round * 1_000_000_000);
        let (items, _) = traffic::flows(5000, false, start);
        send_all(&store, &items);
        sent += items.len() as u64;
    }
    let counters = until(&store, |it| it.written + it.overflowed == sent);
    assert_eq!(counters.overflowed, 0);
    store.stop();
    assert!(std::fs::metadata(&path).unwrap().len() <= 4 << 20);
    let reader = Reader::open(&path).unwrap();
    let rows = reader.flows(always(), &RecordFilter::default(), 10_000).unwrap();
    // Nor do sums push records out.
    assert!(rows.len() > 4000, "{}", rows.len());
    // The newest of what was written are there.
    let newest = rows[0].last_ns;
    assert!(newest > begin + 9_000_000_000, "{newest}");
    assert_eq!(reader.alerts(always(), &AlertFilter::default(), 100).unwrap().len(), 20);
}

#[test]
fn a_file_that_is_nearly_full_takes_more_at_once_than_is_kept_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let mut options = options(&path);
    options.retention.size_bytes_max = 2 << 20;
    let store = Store::start(options, vec!["port0".to_owned()]).unwrap();
    // A transaction of 4096 records wants more than 200 KiB.
    let (items, _) = traffic::flows(30_000, false, lately());
    let sender = store.sender(0);
    for batch in items.chunks(20_000) {
        batch.iter().for_each(|item| sender.send(*item));
        until(&store, |it| it.records == it.written + it.overflowed);
    }
    let counters = until(&store, |it| it.failure.is_none());
    assert_eq!(counters.lost, 0);
    store.stop();
    assert!(std::fs::metadata(&path).unwrap().len() <= 2 << 20);
}

#[test]
fn records_that_are_too_old_go_and_their_hours_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let old = Time((now_s() - 2 * DAY_S - 7200) * 1_000_000_000);
    let store = start(&path);
    let (items, _) = traffic::flows(20, false, old);
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    store.stop();
    assert_eq!(flow_count(&path), items.len());
    // The next start looks at once.
    let store = start(&path);
    until(&store, |it| it.bytes > 0);
    store.stop();
    assert_eq!(flow_count(&path), 0);
    let reader = Reader::open(&path).unwrap();
    let talkers = |span_s| {
        let range = Range { from_s: now_s() - span_s, until_s: now_s() };
        reader.talkers(range, None, None, 100).unwrap().len()
    };
    assert!(talkers(3 * DAY_S) > 0);
}

#[test]
fn a_reader_sees_a_store_that_is_being_written_and_can_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    let (items, _) = traffic::flows(100, false, lately());
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    assert_eq!(flow_count(&path), items.len());
    send_all(&store, &items);
    until(&store, |it| it.written == 2 * items.len() as u64);
    assert_eq!(flow_count(&path), 2 * items.len());
}

#[test]
fn a_store_has_one_writer_and_the_next_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let (items, _) = traffic::flows(10, false, lately());
    let first = start(&path);
    send_all(&first, &items);
    until(&first, |it| it.written == items.len() as u64);
    let second = start(&path);
    send_all(&second, &items[..5]);
    let counters = until(&second, |it| it.failure.is_some());
    assert!(counters.failure.unwrap().contains("written by another gateway or `weir collect`"));
    send_all(&first, &items);
    until(&first, |it| it.written == 2 * items.len() as u64);
    assert_eq!(second.counters().written, 0);
    first.stop();
    until(&second, |it| it.written == 5 && it.failure.is_none());
    assert_eq!(flow_count(&path), 2 * items.len() + 5);
}

#[test]
fn a_store_on_a_disk_that_is_read_only_is_read_and_its_writer_says_so() {
    let Some(disk) = Disk::mount(8192) else { return };
    let path = disk.0.path().join("100 % of gw?.sqlite");
    let (items, _) = traffic::flows(100, false, lately());
    let store = start(&path);
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    // As a gateway leaves it that is killed: what came last stands in the log.
    let log = PathBuf::from(format!("{}-wal", path.display()));
    let unfinished = disk.0.path().join("unfinished.sqlite");
    std::fs::copy(&path, &unfinished).unwrap();
    std::fs::copy(log, disk.0.path().join("unfinished.sqlite-wal")).unwrap();
    store.stop();
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", path.display())).unwrap();
    }
    let mut remount = Command::new("mount");
    let remounted = remount.args(["-o", "remount,ro"]).arg(disk.0.path()).status().unwrap();
    assert!(remounted.success());
    let flows = Reader::open(&path).unwrap().flows(always(), &RecordFilter::default(), 1000);
    assert_eq!(flows.unwrap().len(), items.len());
    let said = Reader::open(&unfinished).unwrap_err().to_string();
    assert!(said.contains("Copy both to a folder"), "{said}");
    let store = start(&path);
    let counters = until(&store, |it| it.failure.is_some());
    assert!(counters.failure.as_ref().unwrap().contains("Read-only file system"), "{counters:?}");
    store.stop();
}

#[test]
fn a_store_that_is_being_made_says_so_and_so_does_one_of_before_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    std::fs::write(&path, "").unwrap();
    let filter = RecordFilter { exporter: Some("192.0.2.7".to_owned()), ..RecordFilter::default() };
    let ask = || Reader::open(&path).unwrap().flows(always(), &filter, 1);
    assert!(ask().unwrap_err().to_string().contains("it is being made"));
    start(&path).stop();
    assert_eq!(ask().unwrap(), []);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("ALTER TABLE flow DROP COLUMN exporter").unwrap();
    assert!(ask().unwrap_err().to_string().contains("of an earlier version"));
}

#[test]
fn a_record_goes_to_the_store_beside_the_collectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    let exporter = Exporter::start(&[], lately()).unwrap();
    let sender = exporter.sender(traffic::INTERFACES).with_store(store.sender(0));
    let (items, _) = traffic::flows(10, false, lately());
    items.iter().for_each(|item| sender.send(traffic::record(item)));
    until(&store, |it| it.written == items.len() as u64);
    assert_eq!(flow_count(&path), items.len());
}

/// A small disk, gone when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size_kib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size_kib}k");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        match command.output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            _ => {
                eprintln!("SKIPPED: a disk of {size_kib} KiB needs root (mount -t tmpfs)");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged_and_writing_goes_on_when_there_is_room() {
    let Some(disk) = Disk::mount(2048) else { return };
    let path: PathBuf = disk.0.path().join("gw.sqlite");
    let ballast = disk.0.path().join("ballast");
    let store = start(&path);
    let (items, _) = traffic::flows(500, false, lately());
    send_all(&store, &items);
    until(&store, |it| it.written == items.len() as u64);
    // Another program fills the disk.
    let mut size = 2048 << 10;
    while size > 512 && std::fs::write(&ballast, vec![1; size]).is_err() {
        size -= 512;
    }
    let sender = store.sender(0);
    let (more, _) = traffic::flows(3000, false, lately());
    more.iter().for_each(|item| sender.send(*item));
    let counters = until(&store, |it| it.failure.is_some());
    let acknowledged = counters.written;
    assert!(flow_count(&path) as u64 >= acknowledged);
    std::fs::remove_file(&ballast).unwrap();
    let sent = (items.len() + more.len()) as u64;
    let counters = until(&store, |it| it.failure.is_none() && it.written + it.overflowed == sent);
    assert_eq!(flow_count(&path) as u64, counters.written);
}

#[test]
fn alerts_are_found_by_rule_severity_action_and_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    let time_ns = lately().0;
    let alert = |sid, severity, action: &str, last| AlertRow {
        number: 0,
        note: None,
        is_suppressed: false,
        time_ns: time_ns + u64::from(sid),
        pair: "port0".into(),
        sid,
        severity,
        action: action.into(),
        signature: format!("rule {sid}"),
        category: "test".into(),
        protocol: "TCP".into(),
        source: std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets(),
        source_port: 40_000,
        destination: [0; 16],
        destination_port: 80,
        event: "{\"event_type\":\"alert\"}".into(),
    };
    let sender = store.alerts();
    let sent = [alert(1, 1, "blocked", 1), alert(2, 2, "allowed", 2), alert(3, 3, "allowed", 3)];
    assert!(sent.iter().all(|row| sender.send(row.clone())));
    assert_eq!(store.stop().alerts_lost, 0);
    let reader = Reader::open(&path).unwrap();
    let found = |filter: AlertFilter| -> Vec<u32> {
        let rows = reader.alerts(always(), &filter, 10).unwrap();
        assert!(rows.iter().all(|row| row.number > 0));
        let as_sent = |row: &AlertRow| AlertRow { number: 0, ..row.clone() };
        assert!(rows.iter().all(|row| sent.contains(&as_sent(row))));
        rows.iter().map(|row| row.sid).collect()
    };
    assert_eq!(found(AlertFilter::default()), [3, 2, 1], "the latest first");
    assert_eq!(found(AlertFilter { sid: Some(2), ..Default::default() }), [2]);
    assert_eq!(found(AlertFilter { severity: Some(2), ..Default::default() }), [2, 1]);
    assert_eq!(found(AlertFilter { action: Some("blocked".into()), ..Default::default() }), [1]);
    let addresses = Some((sent[1].source, sent[2].source));
    assert_eq!(found(AlertFilter { addresses, ..Default::default() }), [3, 2]);
    let pair = Some("other".to_owned());
    assert!(found(AlertFilter { pair, ..Default::default() }).is_empty());
}

#[test]
fn what_is_said_of_an_alert_stays_with_it_and_of_none_with_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.sqlite");
    let store = start(&path);
    store.alerts().send(AlertRow {
        number: 0,
        note: None,
        is_suppressed: false,
        time_ns: lately().0,
        pair: "port0".into(),
        sid: 1,
        severity: 1,
        action: "blocked".into(),
        signature: "rule".into(),
        category: "test".into(),
        protocol: "TCP".into(),
        source: [1; 16],
        source_port: 0,
        destination: [2; 16],
        destination_port: 0,
        event: "{}".into(),
    });
    store.stop();
    let note = |alert, comment: &str| AlertNote {
        alert,
        time_ns: lately().0,
        who: "soc".into(),
        is_acknowledged: true,
        comment: comment.into(),
    };
    let store = start(&path);
    [note(1, "first"), note(1, "second"), note(2, "of none")]
        .into_iter()
        .for_each(|it| store.alert_note(it));
    store.stop();
    let reader = Reader::open(&path).unwrap();
    let rows = reader.alerts(always(), &AlertFilter::default(), 10).unwrap();
    assert_eq!(rows.len(), 1);
    let said = rows[0].note.as_ref().unwrap();
    assert_eq!((said.comment.as_str(), said.is_acknowledged), ("second", true));
    assert!(reader.has_alert(1).unwrap() && !reader.has_alert(2).unwrap());
}
