//! EVE at Unix sockets, for listeners that are not there all the time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_store::sink::eve_dns::DnsVersion;
use weir_store::sink::{AlertSink, EveFile, EvePlace, EveRecords};

/// For others to come up and to write; nothing depends on how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn sink(path: &Path, place: EvePlace) -> AlertSink {
    let path = path.to_owned();
    let file = EveFile {
        path,
        place,
        bytes_max: 1 << 20,
        records: EveRecords::All,
        fast: None,
        dns: DnsVersion::default(),
    };
    AlertSink::start(Some(file), None, &[]).unwrap()
}

/// An event of about so many KiB.
fn event(number: u64, kib: usize) -> BTreeMap<String, u64> {
    let padding = (0..kib).map(|it| (format!("{it:0>1000}"), 0));
    padding.chain([("number".to_owned(), number)]).collect()
}

fn number(line: &[u8]) -> u64 {
    let event: Value = serde_json::from_slice(line).unwrap();
    assert_eq!(event["event_type"], "stats");
    event["stats"]["number"].as_u64().unwrap()
}

#[track_caller]
fn wait<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who connects to `path` next.
fn accept(path: &Path) -> BufReader<UnixStream> {
    let listener = UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = wait("a connection", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    std::fs::remove_file(path).unwrap();
    BufReader::new(stream)
}

fn next(stream: &mut BufReader<UnixStream>) -> u64 {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).unwrap();
    number(&line)
}

#[test]
fn events_wait_for_a_listener_and_those_beyond_the_bound_are_counted() {
    /// 12 MiB.
    const EVENTS: u64 = 192;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve");
    let sink = sink(&path, EvePlace::Stream);
    (0..EVENTS).for_each(|it| sink.stats(event(it, 64)));
    wait("a loss", || (sink.counters().records_lost > 0).then_some(()));
    let failures = || Some(sink.counters().failures).filter(|it| !it.is_empty());
    let failures = wait("its reason", failures);
    assert!(failures[0].contains("nobody listens"), "{failures:?}");
    let mut stream = accept(&path);
    let mut heard = vec![next(&mut stream)];
    while heard.len() as u64 + sink.counters().records_lost < EVENTS {
        heard.push(next(&mut stream));
    }
    assert!(heard.len() > 64 && heard.is_sorted_by(|one, other| one < other), "{heard:?}");
    // A listener that goes, and another that comes.
    drop(stream);
    sink.stats(event(EVENTS, 1));
    assert_eq!(next(&mut accept(&path)), EVENTS);
}

#[test]
fn each_datagram_is_one_event_and_one_that_is_too_long_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve");
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let sink = sink(&path, EvePlace::Datagrams);
    for (number, kib) in [(1, 1), (2, 4096), (3, 1)] {
        sink.stats(event(number, kib));
    }
    let mut buffer = vec![0; 1 << 20];
    let mut heard = || {
        let length = listener.recv(&mut buffer).unwrap();
        number(&buffer[..length])
    };
    assert_eq!([heard(), heard()], [1, 3]);
    assert_eq!(sink.counters().records_lost, 1);
}

#[test]
fn a_syslog_gets_each_event_as_a_message_of_local5() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let sink = sink(&path, EvePlace::Syslog);
    for expected in [7, 8] {
        sink.stats(event(expected, 0));
        let mut message = [0; 4096];
        let length = listener.recv(&mut message).unwrap();
        let head = format!("<174>weir[{}]: ", std::process::id());
        let event = message[..length].strip_prefix(head.as_bytes()).expect("its head");
        assert!(event.ends_with(b"}"), "no line feed");
        assert_eq!(number(event), expected);
    }
    assert_eq!(sink.counters().records_lost, 0);
}
