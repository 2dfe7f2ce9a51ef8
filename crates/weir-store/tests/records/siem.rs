//! Events as others receive them: rsyslog and syslog-ng by UDP, TCP and TLS, and decoders of GELF
//! in Python and of others.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_store::sink::siem_text::SiemEvent;
use weir_store::sink::{Siem, SiemCounters, SiemFormat, SiemSink, TlsFiles};

use super::judges::{self, SyslogNg, Transport};

/// For others to come up and to write; nothing depends on how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);

const HOSTILE: &str = "a\"b]c\\d\n<134>1 - forged - - - - x";

fn event(number: usize, severity: u8) -> SiemEvent {
    // Too long for one datagram, of GELF.
    let digits = if number == 7 { 4000 } else { 1 };
    let padding: String = (0..digits).map(|it| (it * it * 7919 + number).to_string()).collect();
    let event = json!({
        "event_type": "alert", "src_ip": "10.0.0.1", "number": number,
        "alert": {"signature": HOSTILE, "severity": severity},
        "padding": padding,
    });
    SiemEvent {
        kind: "alert",
        timestamp: "2026-01-31T08:00:00.123456Z".into(),
        seconds: 1_769_846_400.123_456,
        severity,
        summary: HOSTILE.into(),
        event: event.as_object().unwrap().clone(),
    }
}

fn sink(address: String, format: SiemFormat, spool: Option<PathBuf>) -> SiemSink {
    let spool = spool.map(|path| (path, 16 << 20));
    SiemSink { address, spool, tls: None, format, severity_max: 3, host: "gw-a".into() }
}

#[track_caller]
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn counters(siem: &Siem) -> SiemCounters {
    siem.counters().remove(0).1
}

/// rsyslog of its own configuration, on loopback.
struct Rsyslog(Child);

impl Rsyslog {
    fn start(folder: &Path, udp: u16, tcp: u16) -> Self {
        Self::start_with(folder, udp, tcp, "", "")
    }

    /// With this certificate of `folder`, which is its own authority.
    fn start_tls(folder: &Path, udp: u16, tcp: u16) -> Self {
        let driver = format!(
            "global(DefaultNetstreamDriver=\"gtls\" \
             DefaultNetstreamDriverCAFile=\"{0}/certificate.pem\" \
             DefaultNetstreamDriverCertFile=\"{0}/certificate.pem\" \
             DefaultNetstreamDriverKeyFile=\"{0}/key.pem\")\n",
            folder.display()
        );
        let module = "StreamDriver.Name=\"gtls\" StreamDriver.Mode=\"1\" \
                      StreamDriver.AuthMode=\"anon\"";
        Self::start_with(folder, udp, tcp, &driver, module)
    }

    fn start_with(folder: &Path, udp: u16, tcp: u16, driver: &str, of_tcp: &str) -> Self {
        let out = folder.join("received");
        let configuration = folder.join("rsyslog.conf");
        let text = format!(
            "{driver}global(workDirectory=\"{0}\" maxMessageSize=\"32k\" \
                    parser.escapeControlCharactersOnReceive=\"on\")\n\
             module(load=\"imudp\")\nmodule(load=\"imtcp\" {of_tcp})\n\
             input(type=\"imudp\" address=\"127.0.0.1\" port=\"{udp}\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{tcp}\")\n\
             template(name=\"t\" type=\"string\" string=\"%pri%|%timereported:::date-rfc3339%|\
              %hostname%|%app-name%|%msgid%|%structured-data%|%msg%\\n\")\n\
             action(type=\"omfile\" file=\"{1}\" template=\"t\")\n",
            folder.display(),
            out.display()
        );
        fs::write(&configuration, text).unwrap();
        let mut command = Command::new("rsyslogd");
        command.args(["-n", "-iNONE", "-f"]).arg(&configuration);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self(child)
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_ports() -> (u16, u16) {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    (udp, tcp)
}

/// The lines that are whole: it may be writing one.
fn lines(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("received")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// The events' numbers; each line must be what RFC 5424 makes of it.
fn numbers(folder: &Path) -> Vec<usize> {
    let number = |line: &String| {
        let parts: Vec<&str> = line.splitn(7, '|').collect();
        let time = parts[1].replace("+00:00", "Z");
        assert_eq!((parts[0], time.as_str()), ("132", "2026-01-31T08:00:00.123456Z"));
        assert_eq!(parts[2..5], ["gw-a", "weir", "alert"]);
        let structured = parts[5];
        assert!(structured.contains(r#"alert_signature="a\"b\]c\\d <134>1 "#), "{structured}");
        let message: Value = serde_json::from_str(parts[6].trim()).unwrap();
        assert_eq!(message["alert"]["signature"], HOSTILE);
        message["number"].as_u64().unwrap() as usize
    };
    lines(folder).iter().map(number).collect()
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    let is_there = command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed: apt install rsyslog");
    }
    is_there
}

#[test]
fn rsyslog_takes_what_the_filter_lets_through_by_udp() {
    if !is_there("rsyslogd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (udp, tcp) = free_ports();
    let _rsyslog = Rsyslog::start(folder.path(), udp, tcp);
    wait("rsyslog", || std::net::TcpStream::connect(("127.0.0.1", tcp)).is_ok());
    let siem = Siem::start(&[sink(format!("127.0.0.1:{udp}"), SiemFormat::Syslog, None)]).unwrap();
    siem.send(&event(1, 2));
    siem.send(&event(2, 4));
    siem.send(&event(3, 2));
    wait("both events", || numbers(folder.path()).len() == 2);
    assert_eq!(numbers(folder.path()), [1, 3]);
    let SiemCounters { events, sent, lost, .. } = counters(&siem);
    assert_eq!((events, sent, lost), (2, 2, 0));
}

#[test]
fn rsyslog_by_tcp_gets_all_events_whenever_it_is_down() {
    if !is_there("rsyslogd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let (udp, tcp) = free_ports();
    let all = [sink(format!("127.0.0.1:{tcp}"), SiemFormat::Syslog, Some(spool))];
    let siem = Siem::start(&all).unwrap();
    // Nobody is there yet.
    (100..120).for_each(|number| siem.send(&event(number, 2)));
    wait("twenty on disk", || counters(&siem).waiting == 20);
    // What waits outlives the gateway.
    drop(siem);
    let siem = Siem::start(&all).unwrap();
    let rsyslog = Rsyslog::start(folder.path(), udp, tcp);
    wait("twenty events", || numbers(folder.path()).len() == 20);
    (120..140).for_each(|number| siem.send(&event(number, 2)));
    wait("forty events", || numbers(folder.path()).len() >= 40);
    drop(rsyslog);
    (140..160).for_each(|number| siem.send(&event(number, 2)));
    wait("those for nobody on disk", || counters(&siem).waiting >= 20);
    let _rsyslog = Rsyslog::start(folder.path(), udp, tcp);
    let got = || numbers(folder.path()).into_iter().collect::<BTreeSet<_>>();
    wait("sixty events", || got().len() == 60);
    assert_eq!(counters(&siem).lost, 0);
}

/// A certificate for localhost that signs itself, by openssl; its key is beside it.
fn certificate(folder: &Path) -> PathBuf {
    let certificate = folder.join("certificate.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2", "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success(), "openssl req");
    certificate
}

#[test]
fn rsyslog_by_tls_gets_all_events_and_a_stranger_gets_none() {
    let driver = "/usr/lib/x86_64-linux-gnu/rsyslog/lmnsd_gtls.so";
    if !is_there("rsyslogd") || !is_there("openssl") {
        return;
    }
    if !Path::new(driver).exists() {
        return eprintln!("SKIPPED: rsyslog has no TLS: apt install rsyslog-gnutls");
    }
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (udp, tcp) = free_ports();
    certificate(folder.path());
    let sink = |authorities: PathBuf, name: &str| SiemSink {
        tls: Some(TlsFiles { authorities, certificate: None }),
        ..sink(format!("localhost:{tcp}"), SiemFormat::Syslog, Some(folder.path().join(name)))
    };
    let all = [sink(folder.path().join("certificate.pem"), "spool")];
    let siem = Siem::start(&all).unwrap();
    (100..120).for_each(|number| siem.send(&event(number, 2)));
    wait("twenty on disk", || counters(&siem).waiting == 20);
    let rsyslog = Rsyslog::start_tls(folder.path(), udp, tcp);
    wait("twenty events", || numbers(folder.path()).len() == 20);
    // Another authority did not sign this one's certificate: it learns nothing.
    let stranger = Siem::start(&[sink(certificate(other.path()), "other")]).unwrap();
    stranger.send(&event(500, 2));
    (120..140).for_each(|number| siem.send(&event(number, 2)));
    wait("forty events", || numbers(folder.path()).len() >= 40);
    drop(rsyslog);
    (140..160).for_each(|number| siem.send(&event(number, 2)));
    wait("those for nobody on disk", || counters(&siem).waiting >= 20);
    let _rsyslog = Rsyslog::start_tls(folder.path(), udp, tcp);
    let got = || numbers(folder.path()).into_iter().collect::<BTreeSet<_>>();
    wait("sixty events", || got().len() == 60);
    assert_eq!(counters(&siem).lost, 0);
    assert_eq!((counters(&stranger).sent, counters(&stranger).waiting), (0, 1));
}

#[test]
fn syslog_ng_takes_what_the_filter_lets_through_by_udp() {
    let Some(root) = SyslogNg::root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (udp, _) = free_ports();
    let _syslog_ng = SyslogNg::start(&root, folder.path(), Transport::Udp, udp);
    let siem = Siem::start(&[sink(format!("127.0.0.1:{udp}"), SiemFormat::Syslog, None)]).unwrap();
    // The first one that it gets says that it is there.
    wait("syslog-ng", || {
        siem.send(&event(0, 2));
        !numbers(folder.path()).is_empty()
    });
    siem.send(&event(1, 2));
    siem.send(&event(2, 4));
    siem.send(&event(3, 2));
    wait("the last one", || numbers(folder.path()).contains(&3));
    let got: BTreeSet<_> = numbers(folder.path()).into_iter().collect();
    assert_eq!(got, BTreeSet::from([0, 1, 3]));
}

/// Twenty events for nobody yet, twenty for who is there, twenty for who was killed.
fn syslog_ng_gets_all(transport: Transport) {
    let Some(root) = SyslogNg::root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_, tcp) = free_ports();
    let authorities = certificate(folder.path());
    let tls = TlsFiles { authorities, certificate: None };
    let spool = Some(folder.path().join("spool"));
    let siem = Siem::start(&[SiemSink {
        tls: matches!(transport, Transport::Tls).then_some(tls),
        ..sink(format!("localhost:{tcp}"), SiemFormat::Syslog, spool)
    }])
    .unwrap();
    let start = || SyslogNg::start(&root, folder.path(), transport, tcp);
    let got = || numbers(folder.path()).into_iter().collect::<BTreeSet<_>>();
    (100..120).for_each(|number| siem.send(&event(number, 2)));
    wait("twenty on disk", || counters(&siem).waiting == 20);
    let syslog_ng = start();
    wait("twenty events", || got().len() == 20);
    (120..140).for_each(|number| siem.send(&event(number, 2)));
    wait("forty events", || got().len() == 40);
    drop(syslog_ng);
    (140..160).for_each(|number| siem.send(&event(number, 2)));
    wait("those for nobody on disk", || counters(&siem).waiting >= 20);
    let _syslog_ng = start();
    wait("sixty events", || got().len() == 60);
    assert_eq!(counters(&siem).lost, 0);
}

#[test]
fn syslog_ng_by_tcp_gets_all_events_whenever_it_is_down() {
    syslog_ng_gets_all(Transport::Tcp);
}

#[test]
fn syslog_ng_by_tls_gets_all_events_whenever_it_is_down() {
    syslog_ng_gets_all(Transport::Tls);
}

/// Reads each connection to its end.
fn listener() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Arc::<Mutex<String>>::default();
    let said = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut text = String::new();
            let _ = stream.unwrap().read_to_string(&mut text);
            said.lock().unwrap().push_str(&text);
        }
    });
    (address, heard)
}

/// A sink whose lines are JSON.
fn lines_to(address: &str, folder: &Path) -> [SiemSink; 1] {
    [sink(address.to_owned(), SiemFormat::Eve, Some(folder.join("spool")))]
}

fn of_lines(text: &str) -> Vec<u64> {
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.map(|it| it["number"].as_u64().unwrap()).collect()
}

#[test]
fn what_is_sent_last_before_a_stop_arrives_once() {
    let folder = tempfile::tempdir().unwrap();
    let (address, heard) = listener();
    for number in 100..200 {
        let siem = Siem::start(&lines_to(&address, folder.path())).unwrap();
        siem.send(&event(number, 2));
    }
    wait("a hundred lines", || heard.lock().unwrap().lines().count() >= 100);
    assert_eq!(of_lines(&heard.lock().unwrap()), (100..200).collect::<Vec<_>>());
}

#[test]
fn syslog_ng_gets_by_tls_what_is_sent_last_before_a_stop() {
    let Some(root) = SyslogNg::root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_, tcp) = free_ports();
    let tls = TlsFiles { authorities: certificate(folder.path()), certificate: None };
    let spool = Some(folder.path().join("spool"));
    let all = [SiemSink {
        tls: Some(tls),
        ..sink(format!("localhost:{tcp}"), SiemFormat::Syslog, spool)
    }];
    let _syslog_ng = SyslogNg::start(&root, folder.path(), Transport::Tls, tcp);
    wait("syslog-ng", || TcpStream::connect(("127.0.0.1", tcp)).is_ok());
    for number in 100..130 {
        let siem = Siem::start(&all).unwrap();
        siem.send(&event(number, 2));
    }
    wait("thirty events", || numbers(folder.path()).len() >= 30);
    assert_eq!(numbers(folder.path()), (100..130).collect::<Vec<_>>());
}

#[test]
fn what_a_sink_that_reads_nothing_was_sent_waits_for_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = deaf.local_addr().unwrap().to_string();
    let siem = Siem::start(&lines_to(&address, folder.path())).unwrap();
    siem.send(&event(100, 2));
    wait("one given to the network", || counters(&siem).sent == 1);
    drop(siem);
    let (address, heard) = listener();
    let siem = Siem::start(&lines_to(&address, folder.path())).unwrap();
    wait("it given to the next", || counters(&siem).sent == 1);
    drop(siem);
    wait("what the listener hears", || !heard.lock().unwrap().is_empty());
    assert_eq!(of_lines(&heard.lock().unwrap()), [100]);
}

#[test]
fn a_sink_is_down_until_it_is_known_to_take_events() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let siem = Siem::start(&[sink(nobody.clone(), SiemFormat::Syslog, None)]).unwrap();
    wait("what the system says of a port that nobody has", || {
        siem.send(&event(100, 2));
        counters(&siem).failure.is_some()
    });
    let _somebody = UdpSocket::bind(&nobody).unwrap();
    wait("a datagram that is taken", || {
        siem.send(&event(101, 2));
        counters(&siem).failure.is_none()
    });
    let folder = tempfile::tempdir().unwrap();
    let (address, _heard) = listener();
    let siem = Siem::start(&lines_to(&address, folder.path())).unwrap();
    wait("a connection", || counters(&siem).failure.is_none());
}

/// More than a connection holds and than wait in memory: all of it goes to disk meanwhile.
#[test]
fn a_sink_that_stands_still_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = deaf.local_addr().unwrap().to_string();
    let siem = Siem::start(&lines_to(&address, folder.path())).unwrap();
    let is_taken = |siem: &Siem| {
        let SiemCounters { events, sent, lost, waiting, repeated, .. } = counters(siem);
        lost == 0 && sent + waiting == events + repeated
    };
    for round in 0..6 {
        (0..50).for_each(|_| siem.send(&event(7, 2)));
        (0..2000).for_each(|number| siem.send(&event(100 + 2000 * round + number, 2)));
        wait("all of them taken", || is_taken(&siem));
    }
    assert_eq!(counters(&siem).lost, 0);
}

/// Set for the child that is killed: where it spools, and to whom it would send.
const CHILD: &str = "WEIR_SIEM_TEST_CHILD";

#[test]
fn what_waits_outlives_a_gateway_that_is_killed() {
    let all = |address: &str, spool: &Path| {
        [sink(address.to_owned(), SiemFormat::Syslog, Some(spool.to_owned()))]
    };
    if let Ok(said) = std::env::var(CHILD) {
        let (address, spool) = said.split_once(' ').unwrap();
        let siem = Siem::start(&all(address, Path::new(spool))).unwrap();
        (100..200).for_each(|number| siem.send(&event(number, 2)));
        wait("all on disk", || counters(&siem).waiting == 100);
        println!("\nwaiting");
        // Ends by being killed.
        std::thread::sleep(PATIENCE);
        panic!("nobody killed it");
    }
    if !is_there("rsyslogd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let (udp, tcp) = free_ports();
    let address = format!("127.0.0.1:{tcp}");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "siem::what_waits_outlives_a_gateway_that_is_killed", "--nocapture"])
        .env(CHILD, format!("{address} {}", spool.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "waiting"), "the child ended early");
    child.kill().unwrap();
    child.wait().unwrap();
    let _rsyslog = Rsyslog::start(folder.path(), udp, tcp);
    let siem = Siem::start(&all(&address, &spool)).unwrap();
    wait("all of them", || numbers(folder.path()).len() >= 100);
    assert_eq!(numbers(folder.path()), (100..200).collect::<Vec<_>>());
    assert_eq!(counters(&siem).lost, 0);
}

/// Reads GELF as Graylog does and prints a message a line: of datagrams, or of a stream.
const GELF_READER: &str = r#"
import json, socket, sys, zlib
kind = sys.argv[1]
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
here.bind(("127.0.0.1", 0))
if kind == "tcp": here.listen()
print(here.getsockname()[1], flush=True)
def tell(message):
    message = json.loads(message)
    assert message["version"] == "1.1" and message["host"] and message["short_message"]
    assert isinstance(message["timestamp"], float) and 0 <= message["level"] <= 7
    print(json.dumps(message), flush=True)
if kind == "udp":
    parts = {}
    while True:
        data = here.recv(65535)
        if data[:2] == b"\x1e\x0f":
            number, count = data[10], data[11]
            own = parts.setdefault(data[2:10], {})
            own[number] = data[12:]
            if len(own) < count: continue
            data = b"".join(own[it] for it in range(count))
        tell(zlib.decompress(data))
else:
    peer, rest = here.accept()[0], b""
    while True:
        rest += peer.recv(65535)
        while b"\0" in rest:
            message, rest = rest.split(b"\0", 1)
            tell(message)
"#;

fn python(kind: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", GELF_READER, kind]);
    command
}

/// What a decoder, which prints its port and then each message, makes of ten events.
fn gelf(decoder: Command, spool: Option<PathBuf>) {
    gelf_to(decoder, |port| sink(format!("127.0.0.1:{port}"), SiemFormat::Gelf, spool));
}

/// The same, by a sink of its port.
fn gelf_to(mut decoder: Command, sink: impl FnOnce(&str) -> SiemSink) {
    let mut reader = decoder.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(reader.stdout.take().unwrap()).lines();
    let port = said.next().unwrap().unwrap();
    let siem = Siem::start(&[sink(&port)]).unwrap();
    // The seventh is too long for one datagram.
    (0..10).for_each(|number| siem.send(&event(number, 2)));
    let mut messages: Vec<Value> =
        (0..10).map(|_| serde_json::from_str(&said.next().unwrap().unwrap()).unwrap()).collect();
    // Who unpacks several at a time prints them as they are ready.
    messages.sort_by_key(|it| it["_number"].as_u64());
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(message["_number"], number);
        assert_eq!((&message["version"], &message["host"]), (&"1.1".into(), &"gw-a".into()));
        assert_eq!(message["short_message"], HOSTILE);
        assert_eq!(message["_alert_signature"], HOSTILE);
        assert_eq!(message["level"], 4);
        let wanted = event(number, 2);
        assert_eq!(message["_padding"], wanted.event["padding"]);
    }
    let _ = reader.kill();
    let _ = reader.wait();
    assert_eq!(counters(&siem).lost, 0);
}

#[test]
fn a_decoder_of_gelf_reads_compressed_datagrams_and_chunks() {
    gelf(python("udp"), None);
}

#[test]
fn a_decoder_of_gelf_reads_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    gelf(python("tcp"), Some(folder.path().join("spool")));
}

#[test]
fn graygelf_reads_compressed_datagrams_and_chunks() {
    let (udp, _) = free_ports();
    let Some(graygelf) = judges::graygelf(udp) else { return };
    gelf(graygelf, None);
}

#[test]
fn graylog_s_own_decoder_reads_what_comes_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let Some(decoder) = judges::gelf_by_tls(folder.path()) else { return };
    if !is_there("openssl") {
        return;
    }
    let tls = Some(TlsFiles { authorities: certificate(folder.path()), certificate: None });
    let spool = Some(folder.path().join("spool"));
    gelf_to(decoder, |port| SiemSink {
        tls,
        ..sink(format!("localhost:{port}"), SiemFormat::Gelf, spool)
    });
}
