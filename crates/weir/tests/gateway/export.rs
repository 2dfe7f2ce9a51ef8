//! `[[export]]` in a running gateway: nfcapd, a TCP and a TLS collector get what passed, through a
//! reload and while one of them is away. And `tc netem` as the one who loses packets.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use rustix::process::Signal;
use weir_lab::gateways::configurations;
use weir_lab::topology::{Side, WIRE_END_B};

use super::*;

const UDP_PORT: u16 = 2055;
const TCP_PORT: u16 = 4739;
const FRAMES: u64 = 1500;
const RATE_PER_SECOND: u32 = 5000;

const EXPORTS: &str = "
[limits]
active_timeout_s = 2
idle_timeout_s = 1

[[export]]
collector = \"udp://127.0.0.1:2055\"
format = \"ipfix\"

[[export]]
collector = \"tcp://127.0.0.1:4739\"
format = \"ipfix\"
";

/// A collector that reads IPFIX from one connection after the other.
struct TcpCollector {
    streams: Arc<Mutex<Vec<Vec<u8>>>>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TcpCollector {
    /// One in the network of gateway A.
    fn start(lab: &Lab, streams: Arc<Mutex<Vec<Vec<u8>>>>) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let name = lab.gateway(Side::A).name().to_owned();
        let thread = thread::spawn({
            let (streams, is_ended) = (Arc::clone(&streams), Arc::clone(&is_ended));
            move || {
                weir_lab::netns::Namespace::kept(&name).enter().unwrap();
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, TCP_PORT)).unwrap();
                listener.set_nonblocking(true).unwrap();
                ready.send(()).unwrap();
                while !is_ended.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => read(stream, &streams, &is_ended),
                        Err(_) => thread::sleep(Duration::from_millis(10)),
                    }
                }
            }
        });
        is_ready.recv().unwrap();
        Self { streams, is_ended, thread: Some(thread) }
    }

    /// Packets of the RoCE stream in all records read so far.
    fn roce_packets(&self) -> u64 {
        let streams = self.streams.lock().unwrap();
        streams.iter().map(|stream| roce_packets(stream)).sum()
    }
}

impl Drop for TcpCollector {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn read(mut stream: TcpStream, streams: &Mutex<Vec<Vec<u8>>>, is_ended: &AtomicBool) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let at = {
        let mut streams = streams.lock().unwrap();
        streams.push(Vec::new());
        streams.len() - 1
    };
    let mut buffer = vec![0; 1 << 16];
    while !is_ended.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => streams.lock().unwrap()[at].extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// Packets to UDP port 4791 in the records of template 256 (docs/ipfix-rdma.md; RFC 7011 s3).
fn roce_packets(stream: &[u8]) -> u64 {
    const RECORD_BYTES: usize = 68;
    let at =
        |bytes: &[u8], place: usize| usize::from(bytes[place]) << 8 | usize::from(bytes[place + 1]);
    let (mut rest, mut packets) = (stream, 0);
    while rest.len() >= 16 && rest.len() >= at(rest, 2) {
        let (message, next) = rest.split_at(at(rest, 2));
        let mut sets = &message[16..];
        while sets.len() >= 4 {
            let (set, next) = sets.split_at(at(sets, 2));
            if at(set, 0) == 256 {
                for record in set[4..].chunks_exact(RECORD_BYTES) {
                    let count = u64::from_be_bytes(record[44..52].try_into().unwrap());
                    packets += if at(record, 10) == 4791 { count } else { 0 };
                }
            }
            sets = next;
        }
        rest = next;
    }
    packets
}

/// nfcapd at work in gateway A's network, and what it stored.
struct Nfcapd {
    daemon: Running,
    folder: PathBuf,
}

impl Nfcapd {
    fn start(lab: &Lab) -> Self {
        let folder = lab.folder().join("nfcapd");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = lab.gateway(Side::A).command("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", &UDP_PORT.to_string(), "-t", "3600", "-w"]);
        let daemon = Running::start(command.arg(&folder)).unwrap();
        let listens = || {
            let said = lab.gateway(Side::A).run("ss -Hlun")?.stdout;
            Ok(said.contains(&format!(":{UDP_PORT}")))
        };
        interrupt::until("nfcapd that listens", PATIENCE, listens).unwrap();
        Self { daemon, folder }
    }

    /// Ends it; packets to UDP port 4791 that it stored.
    fn stop(self) -> u64 {
        self.daemon.stop(Signal::INT).unwrap();
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(&self.folder).args(["-o", "json", "dst port 4791"]);
        let said = process::run(&mut command, PATIENCE).unwrap().stdout;
        let flows: Value = serde_json::from_str(&said).unwrap();
        flows.as_array().unwrap().iter().map(|it| number(it, "/in_packets")).sum()
    }
}

#[track_caller]
fn wait_for_packets(collector: &TcpCollector, gateways: &Gateways, wanted: u64) {
    let waited = interrupt::until("records at the TCP collector", PATIENCE, || {
        Ok(collector.roce_packets() >= wanted)
    });
    if let Err(error) = waited {
        let got = collector.roce_packets();
        panic!("{error:#}: {got} of {wanted}; {:#}", gateways.status(Side::A).unwrap()["exports"]);
    }
    assert_eq!(collector.roce_packets(), wanted);
}

#[test]
fn collectors_store_what_passed_through_a_reload_and_an_absence() {
    let Some(Stand { _turn, lab }) = stand("collectors_store_what_passed") else { return };
    if let Err(missing) = process::require(&["nfcapd", "nfdump", "ss"]) {
        eprintln!("SKIPPED: collectors_store_what_passed: {missing}");
        return;
    }
    lab.gateway(Side::A).ip("link set lo up").unwrap();
    let nfcapd = Nfcapd::start(&lab);
    let streams = Arc::new(Mutex::new(Vec::new()));
    let collector = TcpCollector::start(&lab, Arc::clone(&streams));
    let plain = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &plain).unwrap().map(|text| text + EXPORTS);
    let mut gateways = Gateways::start_configured(&lab, &plain, &texts).unwrap();
    wait_until_it_flows(&lab);

    let mut stream = RoceStream::new(256).unwrap();
    let mut sent = blast(&lab, &mut stream, FRAMES, RATE_PER_SECOND).unwrap().sent;
    wait_for_packets(&collector, &gateways, sent);

    // It goes; the gateway reads its configuration again; traffic goes on.
    drop(collector);
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == 2);
    sent += blast(&lab, &mut stream, FRAMES, RATE_PER_SECOND).unwrap().sent;
    let status = wait_status(&gateways, Side::A, |it| {
        number(it, "/exports/1/messages_waiting") > 0 && it["exports"][1]["is_connected"] == false
    });
    assert_eq!(number(&status, "/exports/1/data_records_lost"), 0);
    assert_eq!(number(&status, "/pairs/0/host/dropped"), 0, "traffic does not care");
    let complaints = gateways.log(Side::A).matches("not reached").count();
    assert!(complaints <= 1, "{}", gateways.log(Side::A));

    // It is back, and misses nothing.
    let collector = TcpCollector::start(&lab, streams);
    wait_for_packets(&collector, &gateways, sent);
    let status =
        wait_status(&gateways, Side::A, |it| number(it, "/exports/1/messages_waiting") == 0);
    for export in 0..2 {
        let count = |name: &str| number(&status, &format!("/exports/{export}/{name}"));
        assert_eq!((count("overflowed"), count("data_records_lost")), (0, 0), "{status:#}");
    }
    gateways.end(Side::A, Signal::TERM).unwrap();
    drop(collector);
    assert_eq!(nfcapd.stop(), sent, "nfcapd was there all the time");
}

/// A certificate for localhost that signs itself, and its key, by openssl.
fn certificate(folder: &Path) -> [PathBuf; 2] {
    let files = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"]);
    openssl.arg("-out").arg(&files[0]).arg("-keyout").arg(&files[1]);
    process::run(&mut openssl, PATIENCE).unwrap();
    files
}

#[test]
fn a_collector_behind_tls_stores_what_passed_and_one_that_is_not_it_gets_nothing() {
    let Some(Stand { _turn, lab }) = stand("a_collector_behind_tls") else { return };
    if let Err(missing) = process::require(&["openssl"]) {
        return eprintln!("SKIPPED: a_collector_behind_tls: {missing}");
    }
    lab.gateway(Side::A).ip("link set lo up").unwrap();
    let (ours, others) = (lab.folder().join("ours"), lab.folder().join("others"));
    let [trusted, stranger] = [&ours, &others].map(|folder| {
        std::fs::create_dir_all(folder).unwrap();
        certificate(folder)
    });
    let mut exports = String::from("\n[limits]\nactive_timeout_s = 2\nidle_timeout_s = 1\n");
    let mut collectors = Vec::new();
    for (port, [certificate, key]) in [(4740, &trusted), (4741, &stranger)] {
        exports += &format!(
            "\n[[export]]\ncollector = \"tls://localhost:{port}\"\nformat = \"ipfix\"\n\
             authority_file = \"{}\"\n",
            trusted[0].display()
        );
        let stored = lab.folder().join(format!("{port}.ipfix"));
        let mut server = lab.gateway(Side::A).command("openssl");
        server.args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}"), "-cert"]);
        server.arg(certificate).arg("-key").arg(key);
        // It ends with its input.
        server.stdin(Stdio::piped()).stdout(File::create(&stored).unwrap()).stderr(Stdio::null());
        collectors.push((server.spawn().unwrap(), stored));
    }
    let plain = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &plain).unwrap().map(|text| text + &exports);
    let mut gateways = Gateways::start_configured(&lab, &plain, &texts).unwrap();
    wait_until_it_flows(&lab);
    let mut stream = RoceStream::new(256).unwrap();
    let sent = blast(&lab, &mut stream, FRAMES, RATE_PER_SECOND).unwrap().sent;
    let stored = |at: usize| roce_packets(&std::fs::read(&collectors[at].1).unwrap());
    interrupt::until("records behind TLS", PATIENCE, || Ok(stored(0) >= sent)).unwrap();
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["exports"][0]["is_connected"], true);
    assert_eq!(number(&status, "/exports/0/data_records_lost"), 0);
    assert_eq!(status["exports"][1]["is_connected"], false, "{status:#}");
    gateways.end(Side::A, Signal::TERM).unwrap();
    assert_eq!((stored(0), std::fs::read(&collectors[1].1).unwrap().len()), (sent, 0));
    for (mut server, _) in collectors {
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

#[test]
fn what_netem_loses_between_two_gateways_is_charged_to_the_wire() {
    let Some(Stand { _turn, lab }) = stand("what_netem_loses") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let mut stream = RoceStream::new(512).unwrap();
    let mut sent = blast(&lab, &mut stream, 50, RATE_PER_SECOND).unwrap().sent;
    let netem = |verb: &str, how: &str| {
        lab.wire().run(&format!("tc qdisc {verb} dev {WIRE_END_B} root {how}"))
    };
    if netem("add", "netem loss 5%").is_err() {
        eprintln!("SKIPPED: what_netem_loses: this kernel has no netem");
        return;
    }
    sent += blast(&lab, &mut stream, 2000, RATE_PER_SECOND).unwrap().sent;
    // What is still on its way meets the same fate; then a few that arrive, so that the last gap
    // shows.
    pause(500);
    netem("del", "").unwrap();
    sent += blast(&lab, &mut stream, 50, RATE_PER_SECOND).unwrap().sent;
    let at_b = wait_status(&gateways, Side::B, |it| {
        let lost = number(it, "/pairs/0/rdma/losses/wire_side");
        number(it, "/pairs/0/rdma/packets") + lost == sent
    });
    assert!(number(&at_b, "/pairs/0/rdma/losses/wire_side") > 0, "{at_b:#}");
    let at_a = gateways.status(Side::A).unwrap();
    assert_eq!(number(&at_a, "/pairs/0/rdma/packets"), sent);
    assert_eq!(number(&at_a, "/pairs/0/rdma/losses/wire_side"), 0, "nobody told it");
    for (status, names) in [(&at_a, ["host_side", "gateway"]), (&at_b, ["host_side", "gateway"])] {
        for name in names {
            assert_eq!(number(status, &format!("/pairs/0/rdma/losses/{name}")), 0, "{status:#}");
        }
    }
}
