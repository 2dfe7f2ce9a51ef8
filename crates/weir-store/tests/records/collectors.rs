//! Collectors that others wrote are the judges: what they stored equals what was sent.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::traffic::{self, INTERFACES, Sums, add, record};
use serde_json::Value;
use weir_store::sink::{
    Collector, CollectorCounters, EncoderOptions, Endpoint, Exporter, Format, Item,
};
use weir_wire::frame::Time;

const FLOWS: u32 = 700;

#[test]
fn nfdump_stores_what_netflow_5_sent() {
    let (items, sums) = traffic::flows(FLOWS, false, now());
    judged_by_nfdump(EncoderOptions::datagrams(Format::Netflow5), &items, &sums);
}

#[test]
fn nfdump_stores_what_netflow_9_sent() {
    let (items, sums) = traffic::flows(FLOWS, true, now());
    judged_by_nfdump(EncoderOptions::datagrams(Format::Netflow9), &items, &sums);
}

#[test]
fn nfdump_stores_what_ipfix_sent() {
    let (items, sums) = traffic::flows(FLOWS, true, now());
    judged_by_nfdump(EncoderOptions::datagrams(Format::Ipfix), &items, &sums);
}

#[test]
fn pmacct_stores_what_each_format_sent() {
    let Some(nfacctd) = program("nfacctd") else { return };
    for format in [Format::Netflow5, Format::Netflow9, Format::Ipfix] {
        let (items, sums) = traffic::flows(FLOWS, format != Format::Netflow5, now());
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let stored = folder.path().join("stored.json");
        let configuration = folder.path().join("nfacctd.conf");
        let text = format!(
            "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nplugins: print\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto\nprint_output: json\n\
             print_output_file: {}\nprint_refresh_time: 3600\nprint_history: 1h\n\
             plugin_buffer_size: 102400\nplugin_pipe_size: 10240000\n",
            stored.display()
        );
        std::fs::write(&configuration, text).unwrap();
        let daemon = Daemon::start(Command::new(&nfacctd).arg("-f").arg(&configuration), port);
        export(&udp(port, EncoderOptions::datagrams(format)), &items);
        daemon.stop(port);
        // Its plugin writes when it hears that the core ended.
        let text = lines_of(&stored, sums.len());
        let names = ["ip_src", "ip_dst", "port_src", "port_dst", "ip_proto"];
        assert_equal(&json_lines(&text, names), &sums);
    }
}

#[test]
fn goflow2_stores_what_each_format_sent() {
    let Some(goflow2) = program("goflow2") else { return };
    for format in [Format::Netflow5, Format::Netflow9, Format::Ipfix] {
        let (items, sums) = traffic::flows(FLOWS, format != Format::Netflow5, now());
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let stored = folder.path().join("stored.json");
        let mut command = Command::new(&goflow2);
        // One worker: several may take data up before the templates that came with it.
        command.args(["-listen", &format!("netflow://127.0.0.1:{port}?workers=1")]);
        command.args(["-addr", "", "-format", "json", "-transport", "file", "-transport.file"]);
        let daemon = Daemon::start(command.arg(&stored), port);
        export(&udp(port, EncoderOptions::datagrams(format)), &items);
        let text = lines_of(&stored, sums.len());
        daemon.stop(port);
        let names = ["src_addr", "dst_addr", "src_port", "dst_port", "proto"];
        assert_equal(&json_lines(&text, names), &sums);
    }
}

/// What a collector wrote to `path`, when there are `count` lines of it; what there is after 60 s.
fn lines_of(path: &Path, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..600 {
        text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count && text.ends_with('\n') {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    text
}

/// Sums of JSON objects, one a line, with these names for the tuple.
fn json_lines(text: &str, names: [&str; 5]) -> Sums {
    let mut found = Sums::new();
    for line in text.lines() {
        let flow: Value = serde_json::from_str(line).expect("JSON");
        let address = |name: &str| flow[name].as_str().unwrap().parse().unwrap();
        let protocol = match flow[names[4]].as_str().map(str::to_lowercase).as_deref() {
            Some("tcp") => 6,
            Some("udp") => 17,
            _ => number(&flow[names[4]]) as u8,
        };
        let tuple = (
            address(names[0]),
            address(names[1]),
            number(&flow[names[2]]) as u16,
            number(&flow[names[3]]) as u16,
            protocol,
        );
        add(&mut found, tuple, number(&flow["packets"]), number(&flow["bytes"]));
    }
    found
}

fn judged_by_nfdump(options: EncoderOptions, items: &[Item], sums: &Sums) {
    let Some(nfcapd) = program("nfcapd") else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = Command::new(nfcapd);
    command.args(["-b", "127.0.0.1", "-B", "8388608", "-p", &port.to_string(), "-t", "3600", "-w"]);
    let daemon = Daemon::start(command.arg(folder.path()), port);
    let counters = export(&udp(port, options), items);
    daemon.stop(port);
    let stored = Command::new("nfdump")
        .arg("-R")
        .arg(folder.path())
        .args(["-o", "json"])
        .output()
        .expect("nfdump comes with nfcapd");
    let stored: Value = serde_json::from_slice(&stored.stdout).expect("nfdump speaks JSON");
    let mut found = Sums::new();
    for flow in stored.as_array().unwrap() {
        let address = |end: &str| {
            let of = |version| flow[format!("{end}{version}_addr")].as_str();
            of(4).or(of(6)).unwrap().parse().unwrap()
        };
        let tuple = (
            address("src"),
            address("dst"),
            number(&flow["src_port"]) as u16,
            number(&flow["dst_port"]) as u16,
            number(&flow["proto"]) as u8,
        );
        add(&mut found, tuple, number(&flow["in_packets"]), number(&flow["in_bytes"]));
    }
    assert_equal(&found, sums);
    let records: u64 = sums.values().map(|sum| sum.records).sum();
    assert_eq!((counters.data_records, counters.data_records_lost), (records, 0));
}

fn assert_equal(found: &Sums, sent: &Sums) {
    for (tuple, sum) in sent {
        assert_eq!(found.get(tuple), Some(sum), "{tuple:?}, {} stored", found.len());
    }
    assert_eq!(found.len(), sent.len());
}

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{value}"))
}

fn udp(port: u16, options: EncoderOptions) -> Collector {
    Collector { endpoint: Endpoint::Udp(format!("127.0.0.1:{port}")), options, spool: None }
}

fn export(collector: &Collector, items: &[Item]) -> CollectorCounters {
    let boot = Time(now().0 - 3_600_000_000_000);
    let exporter = Exporter::start(std::slice::from_ref(collector), boot).unwrap();
    let sender = exporter.sender(INTERFACES);
    for item in items {
        sender.send(record(item));
    }
    drop(sender);
    let counters = exporter.stop().remove(0);
    assert_eq!(counters.records, items.len() as u64);
    assert_eq!((counters.overflowed, counters.messages_lost), (0, 0));
    counters
}

fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Where `name` is; `None`, said aloud, when it is not installed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let folders = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), Path::new(&home).join("go/bin")]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// A collector process on a UDP port of the loopback interface.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut daemon = Self(child);
        while waiting_bytes(port).is_none() {
            assert_eq!(daemon.0.try_wait().unwrap(), None, "the collector ended by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    /// Lets it read what arrived, and ends it in order.
    fn stop(mut self, port: u16) {
        while waiting_bytes(port) != Some(0) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Its socket is empty; the datagram it took last may still be under way in its hands.
        std::thread::sleep(Duration::from_millis(500));
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes in the receive queue of UDP port `port`; `None` when nobody has it.
fn waiting_bytes(port: u16) -> Option<u64> {
    let tables = ["/proc/net/udp", "/proc/net/udp6"];
    let text: String = tables.iter().flat_map(std::fs::read_to_string).collect();
    let suffix = format!(":{port:04X}");
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next()?.ends_with(&suffix).then_some(())?;
        let (_, queued) = words.nth(2)?.split_once(':')?;
        u64::from_str_radix(queued, 16).ok()
    })
}
