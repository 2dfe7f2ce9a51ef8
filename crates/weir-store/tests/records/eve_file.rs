//! EVE in a file: what the gateway adds to records, and what is said of a file that cannot be
//! written.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_detect::alert::FlowView;
use weir_detect::record::{FlowRecord, HttpRecord};
use weir_engine::access::{AccessAction, AccessEvent, Operation};
use weir_engine::detect::DetectionRecord;
use weir_engine::verdict::Side;
use weir_store::sink::eve_dns::DnsVersion;
use weir_store::sink::{AlertSink, EveFile, EvePlace, EveRecords};
use weir_wire::bth::Qpn;
use weir_wire::frame::Time;

/// For the writer to come up and to write; nothing depends on how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn file(path: &Path, fast: Option<&Path>) -> EveFile {
    EveFile {
        path: path.to_owned(),
        place: EvePlace::File,
        bytes_max: 1 << 20,
        records: EveRecords::All,
        fast: fast.map(Path::to_owned),
        dns: DnsVersion::default(),
    }
}

fn start(path: &Path, fast: Option<&Path>) -> AlertSink {
    AlertSink::start(Some(file(path, fast)), None, &[]).unwrap()
}

#[test]
fn records_name_the_interface_that_their_flow_came_by_and_the_time_of_their_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.json");
    let sink = start(&path, None);
    let sender = sink.sender("pair", ["host0", "wire0"]);
    let flow = |port| FlowView { port, ..FlowView::default() };
    let time = Time(1_000_000_007_000_000_000);
    for port in [Some(0), Some(1), None] {
        let record = FlowRecord { view: flow(port), last: time, ..FlowRecord::default() };
        sender.tell(DetectionRecord::Flow(record));
    }
    let http = HttpRecord { time, flow: flow(Some(1)), ..HttpRecord::default() };
    sender.tell(DetectionRecord::Http(http));
    let access = AccessEvent {
        time,
        side: Some(Side::Wire),
        line: None,
        action: AccessAction::Deny,
        dropped: None,
        from: [1; 16],
        to: [2; 16],
        destination_qp: Qpn::new(17),
        operation: Operation::Write,
        memory: None,
    };
    sender.send_access(access);
    drop(sink);
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let interfaces: Vec<_> = events.iter().map(|it| it["in_iface"].as_str()).collect();
    let wire = Some("wire0");
    assert_eq!(interfaces, [Some("host0"), wire, None, wire, wire, wire]);
    assert!(events.iter().all(|it| it["timestamp"] == "2001-09-09T01:46:47.000000+0000"));
}

#[test]
fn of_records_those_are_written_whose_kinds_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.json");
    let records = EveRecords::Kinds(["flow".to_owned(), "stats".to_owned()].into());
    let wanted = EveFile { records, ..file(&path, None) };
    let sink = AlertSink::start(Some(wanted), None, &[]).unwrap();
    let sender = sink.sender("pair", ["host0", "wire0"]);
    sender.tell(DetectionRecord::Http(HttpRecord::default()));
    sender.tell(DetectionRecord::Flow(FlowRecord::default()));
    sink.stats([("uptime".to_owned(), 1)].into());
    drop((sender, sink));
    let text = std::fs::read_to_string(&path).unwrap();
    let events = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let kinds: Vec<_> = events.map(|it| it["event_type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["flow", "stats"]);
}

#[test]
fn a_file_that_cannot_be_written_is_told_until_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.json");
    let sink = start(&path, Some(&folder.path().join("fast.log")));
    let wait = |what: &dyn Fn(&[String]) -> bool| {
        let end = Instant::now() + PATIENCE;
        while !what(&sink.counters().failures) {
            assert!(Instant::now() < end, "{:?}", sink.counters().failures);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert!(sink.counters().failures.is_empty());
    for name in ["eve.json", "fast.log"] {
        let path = folder.path().join(name);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
    }
    wait(&|it| it.len() == 2 && it[0].contains("eve.json") && it[1].contains("fast.log"));
    for name in ["eve.json", "fast.log"] {
        std::fs::remove_dir(folder.path().join(name)).unwrap();
    }
    wait(&|it| it.is_empty());
}

#[test]
fn a_pipe_that_nobody_reads_and_a_link_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    for (path, why) in [(&pipe, "a pipe that nobody reads"), (&link, "a symbolic link")] {
        let error = AlertSink::start(Some(file(path, None)), None, &[]).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let sink = start(&folder.path().join("eve.json"), None);
        let error = sink.change(Some(file(path, None))).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(file(&link, None).try_open().is_err());
}

#[test]
fn who_reads_a_pipe_reads_on_when_it_is_tried_and_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    let sink = start(&folder.path().join("eve.json"), None);
    let patience = Instant::now() + PATIENCE;
    assert_eq!(weir_store::sink::unfit(&pipe), None);
    file(&pipe, None).try_open().unwrap();
    while let Err(error) = sink.change(Some(file(&pipe, None))) {
        assert!(Instant::now() < patience, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    sink.stats([("uptime".to_owned(), 1)].into());
    drop(sink);
    let text = reader.join().unwrap();
    assert!(text.contains("\"uptime\":1"), "{text}");
}
