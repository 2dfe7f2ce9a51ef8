//! `weir top` in a terminal: tmux types the keys and reads the screen.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_engine::meter::{Icrc, Meter, MeterLimits, Observation};
use weir_engine::verdict::Side;
use weir_port::capture::CaptureReader;
use weir_store::sink::{Interfaces, Item};
use weir_store::sqlite::{AlertRow, Retention, Store, StoreOptions};
use weir_wire::frame::{Frame, Time};
use weir_wire::parse::parse_frame;

/// Two hosts' queue pairs that write.
const CAPTURE: &str = "rc-write-rdmacm.pcap";

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// For the screen to change; nothing depends on how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal of its own server, so that nobody else's is touched.
struct Terminal(String);

impl Terminal {
    fn start(folder: &Path) -> Self {
        let terminal = Self(format!("weir-top-{}", std::process::id()));
        let command = format!(
            "cd {0} && {WEIR} top --run-dir {0} --store {0}; echo left; sleep 600",
            folder.display()
        );
        terminal.tmux(&["new-session", "-d", "-x", "140", "-y", "30", &command]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.0, "-f", "/dev/null"]).args(arguments);
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// The screen, once it shows `text`.
    #[track_caller]
    fn wait(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < end, "no `{text}` in:\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Answers as a gateway's status socket does: each second a thousand frames more.
fn gateway(folder: &Path) {
    let listener = UnixListener::bind(folder.join("gw-a.status")).unwrap();
    let looks = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let look = looks.fetch_add(1, Ordering::Relaxed) + 1;
            let dropped = BTreeMap::from([("no_policy", 7)]);
            let status = json!({
                "version": "0.1.0", "name": "gw-a", "taken_ns": look * 1_000_000_000,
                "uptime_seconds": look, "adds_up": true,
                "pairs": [{
                    "name": "port0", "flows": 3, "rdma": {"queue_pairs": 64},
                    "host": {"received": 1000 * look, "received_bytes": 125_000 * look,
                             "dropped": 7, "dropped_by_reason": dropped},
                    "peers": [{"name": "gw-b\u{1b}[31m", "sealed_bytes": 4_100_000_000_u64,
                               "keying": {"state": "up", "endpoint": "192.0.2.7:51840",
                                          "last_handshake_seconds": 71.0,
                                          "path_mtu": {"bytes": 9000, "state": "found"}}}],
                }],
            });
            let _ = stream.and_then(|mut it| writeln!(it, "{status}"));
        }
    });
}

fn store(folder: &Path) {
    let retention =
        Retention { size_bytes_max: 64 << 20, records_s: 600, minutes_s: 600, hours_s: 600 };
    let options = StoreOptions { path: folder.join("gw-a.sqlite"), group: None, retention };
    let store = Store::start(options, vec!["port0".into()]).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    store.alerts().send(AlertRow {
        number: 0,
        note: None,
        is_suppressed: false,
        time_ns: now.as_nanos() as u64 - 1_000_000_000,
        pair: "port0".into(),
        sid: 7,
        severity: 1,
        action: "blocked".into(),
        signature: "keys are guessed\u{1b}]0;title\u{7}".into(),
        category: "attempt".into(),
        protocol: "UDP".into(),
        source: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1],
        source_port: 50_000,
        destination: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2],
        destination_port: 4791,
        event: "{}".into(),
    });
    assert_eq!(store.stop().lost, 0);
}

/// What a capture's queue pairs did, as if it were now.
fn conversation(folder: &Path) {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut reader = CaptureReader::open(capture.join(CAPTURE)).unwrap();
    let mut meter = Meter::new(MeterLimits::for_captures(), 1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Time(now.as_nanos() as u64);
    let mut read = |frames: &mut [Frame<'_>]| {
        for frame in frames {
            let parsed = parse_frame(frame);
            let (bytes, original_len) = (frame.bytes(), frame.meta.original_len);
            let (side, icrc) = (Some(Side::Host), Icrc::Check);
            let parsed = &parsed;
            meter.observe(&Observation {
                now,
                side,
                bytes,
                parsed,
                original_len,
                segments: 1,
                icrc,
            });
        }
    };
    while reader.next_batch(&mut read).unwrap() > 0 {}
    let retention =
        Retention { size_bytes_max: 64 << 20, records_s: 600, minutes_s: 600, hours_s: 600 };
    let options = StoreOptions { path: folder.join("gw-a.sqlite"), group: None, retention };
    let store = Store::start(options, vec!["port0".into()]).unwrap();
    let sender = store.sender(0);
    meter.flush(&mut |record| sender.send(Item::of(record, Interfaces::default())));
    let counters = store.stop();
    assert!(counters.written > 0 && counters.lost == 0, "{counters:?}");
}

/// The trace has the counters and the queue pair, in the form of trace events.
fn traced(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|it| it["ph"] == kind).collect::<Vec<_>>();
    let rates: Vec<_> =
        of("C").into_iter().filter(|it| it["name"] == "from hosts, bit/s").collect();
    assert!(!rates.is_empty() && rates.iter().all(|it| it["args"]["value"] == 1e6), "{rates:?}");
    let slices = of("X");
    assert!(!slices.is_empty(), "{text}");
    for slice in slices {
        let is_own = |it: &&serde_json::Value| {
            it["pid"] == slice["pid"] && (it["tid"] == slice["tid"] || it["tid"].is_null())
        };
        let names: Vec<_> = of("M").into_iter().filter(is_own).collect();
        assert_eq!(names.len(), 2, "its gateway and its queue pair have names: {names:?}");
        assert!(slice["ts"].as_u64() > Some(1_600_000_000_000_000), "{slice}");
        assert!(slice["dur"].as_u64() >= Some(1) && slice["args"]["bytes"].as_u64() > Some(0));
    }
}

#[test]
fn top_shows_rates_and_each_table_and_leaves_by_a_key() {
    let tmux = Command::new("tmux").arg("-V").stdout(Stdio::null()).status();
    if tmux.is_err() {
        eprintln!("SKIPPED: tmux is not installed: apt install tmux");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    gateway(folder.path());
    store(folder.path());
    let terminal = Terminal::start(folder.path());
    // A thousand frames and a megabit a second, whatever the time between two looks was.
    let screen = terminal.wait("1.0 Mb/s");
    assert!(screen.contains("1.0 k/s") && screen.contains("gw-a healthy"), "{screen}");
    assert!(screen.contains("64 queue pairs, 3 flows, 1 of 1 peers up"), "{screen}");
    terminal.press("3");
    let screen = terminal.wait("192.0.2.7:51840");
    assert!(screen.contains("71 s") && screen.contains("9000"), "{screen}");
    assert!(screen.contains("gw-b\u{fffd}[31m"), "a name steers nothing: {screen}");
    terminal.press("Tab");
    let screen = terminal.wait("keys are guessed");
    assert!(screen.contains("10.0.0.2 4791") && screen.contains("blocked"), "{screen}");
    terminal.press("5");
    let screen = terminal.wait("no_policy");
    assert!(screen.contains("gw-a port0 host"), "{screen}");
    terminal.press("r");
    terminal.wait("recording");
    // Points of two seconds at least, and the queue pair's record.
    conversation(folder.path());
    std::thread::sleep(Duration::from_secs(3));
    terminal.press("r");
    terminal.wait("recorded to weir-top.trace.json");
    traced(&folder.path().join("weir-top.trace.json"));
    terminal.press("p");
    terminal.wait("standing still");
    terminal.press("q");
    terminal.wait("left");
}

#[test]
fn top_says_what_is_missing() {
    let output = Command::new(WEIR).args(["top", "--run-dir", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("weir status --json"), "{said}");
}
