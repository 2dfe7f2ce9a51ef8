//! IPFIX over TCP and TLS: what a collector read from the stream, as tshark dissects it, equals
//! what was sent; a collector that was down, or hung up, misses nothing.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::traffic::{self, INTERFACES, Sums, add, record};
use weir_store::sink::{
    Collector, CollectorCounters, EncoderOptions, Endpoint, Exporter, Item, Spooling, TlsFiles,
};
use weir_wire::frame::Time;

#[test]
fn a_tcp_collector_reads_what_was_sent() {
    let (items, sums) = traffic::flows(700, false, now());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(Endpoint::Tcp(listener.local_addr().unwrap().to_string()), None);
    send(&exporter, &items);
    let reader = std::thread::spawn(move || read_to_end(listener.accept().unwrap().0));
    let counters = exporter.stop().remove(0);
    let stream = reader.join().unwrap();
    assert_eq!((counters.data_records_lost, counters.messages_waiting), (0, 0));
    if let Some(dissected) = dissect(&[stream]) {
        assert!(dissected == sums, "{} of {} as sent", dissected.len(), sums.len());
    }
}

#[test]
fn a_collector_that_was_down_gets_all_that_the_spool_held() {
    let (items, sums) = traffic::flows(6000, false, now());
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let spool = Spooling { directory: folder.path().join("spool"), bytes_max: 16 << 20 };
    let first = exporter(Endpoint::Tcp(address.clone()), Some(spool.clone()));
    send(&first, &items[..5000]);
    let counters = first.stop().remove(0);
    assert_eq!((counters.messages_sent, counters.data_records_lost), (0, 0));
    assert!(counters.messages_spooled > 50, "{counters:?}");
    // Another process takes over what the first one left, and adds to it.
    let second = exporter(Endpoint::Tcp(address.clone()), Some(spool));
    send(&second, &items[5000..]);
    let listener = TcpListener::bind(&address).unwrap();
    let reader = std::thread::spawn(move || read_to_end(listener.accept().unwrap().0));
    wait_until_sent(&second);
    let counters = second.stop().remove(0);
    let stream = reader.join().unwrap();
    assert_eq!((counters.data_records_lost, counters.messages_waiting), (0, 0), "{counters:?}");
    assert_eq!(sequence_errors(&stream), 0);
    if let Some(dissected) = dissect(&[stream]) {
        assert!(dissected == sums, "{} of {} as sent", dissected.len(), sums.len());
    }
}

#[test]
fn a_collector_that_hangs_up_gets_the_rest_and_templates_again() {
    let (items, sums) = traffic::flows(2000, false, now());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(Endpoint::Tcp(listener.local_addr().unwrap().to_string()), None);
    send(&exporter, &items[..1000]);
    let (mut accepted, _) = listener.accept().unwrap();
    let first = read_until_all(&mut accepted, &exporter);
    drop(accepted);
    send(&exporter, &items[1000..]);
    let reader = std::thread::spawn(move || read_to_end(listener.accept().unwrap().0));
    while exporter.counters()[0].connections < 2 || !exporter.counters()[0].is_connected {
        std::thread::sleep(Duration::from_millis(20));
    }
    let counters = exporter.stop().remove(0);
    let second = reader.join().unwrap();
    assert_eq!((counters.data_records_lost, counters.messages_waiting), (0, 0), "{counters:?}");
    assert_eq!(sequence_errors(&second), 0, "numbers begin anew with the session");
    let Some(dissected) = dissect(&[first, second]) else { return };
    assert!(dissected == sums, "{} of {} as sent", dissected.len(), sums.len());
}

#[test]
fn a_collector_that_stalls_holds_up_nobody_and_gets_everything_when_it_reads_again() {
    // More than the sockets of both ends take: what it does not read has to wait here.
    let (items, sums) = traffic::flows(80_000, false, now());
    let folder = tempfile::tempdir().unwrap();
    let spool = Spooling { directory: folder.path().join("spool"), bytes_max: 64 << 20 };
    let (stalls, reads) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
    let collectors = [&stalls, &reads].map(|listener| Collector {
        endpoint: Endpoint::Tcp(listener.as_ref().unwrap().local_addr().unwrap().to_string()),
        options: EncoderOptions::stream(),
        spool: Some(Spooling { directory: spool.directory.clone(), ..spool }),
    });
    let exporter = Exporter::start(&collectors, now()).unwrap();
    let (stalled, _) = stalls.unwrap().accept().unwrap();
    let beside = std::thread::spawn(move || read_to_end(reads.unwrap().accept().unwrap().0));
    send(&exporter, &items);
    let is_done = |it: &CollectorCounters| it.records == items.len() as u64;
    while !exporter.counters().iter().all(is_done) || exporter.counters()[1].messages_waiting > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let held = exporter.counters().remove(0);
    assert!(held.messages_waiting > 0 && held.messages_spooled > 0, "{held:?}");
    let late = std::thread::spawn(move || read_to_end(stalled));
    while exporter.counters()[0].messages_waiting > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    for counters in exporter.stop() {
        assert_eq!((counters.data_records_lost, counters.connections), (0, 1), "{counters:?}");
    }
    let streams = [late.join().unwrap(), beside.join().unwrap()];
    assert_eq!(streams.each_ref().map(|stream| sequence_errors(stream)), [0, 0]);
    // One is judged by tshark, and the other has the same records.
    let records = streams.each_ref().map(|stream| data_records(stream));
    assert_eq!(records[0], records[1]);
    let Some(dissected) = dissect(&streams[..1]) else { return };
    assert!(dissected == sums, "{} of {} as sent", dissected.len(), sums.len());
}

#[test]
fn a_tls_collector_reads_what_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(certificate) = certificate(folder.path()) else { return };
    let (items, sums) = traffic::flows(700, false, now());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let stored = folder.path().join("stored.ipfix");
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-naccept", "1", "-accept", &format!("127.0.0.1:{port}")])
        .arg("-cert")
        .arg(&certificate)
        .arg("-key")
        .arg(folder.path().join("key.pem"))
        // It ends with its input.
        .stdin(Stdio::piped())
        .stdout(File::create(&stored).unwrap())
        .spawn()
        .unwrap();
    let files = TlsFiles { authorities: certificate, certificate: None };
    let exporter = exporter(Endpoint::Tls(format!("localhost:{port}"), files), None);
    send(&exporter, &items);
    wait_until_sent(&exporter);
    let counters = exporter.stop().remove(0);
    server.wait().unwrap();
    assert_eq!((counters.data_records_lost, counters.messages_waiting), (0, 0), "{counters:?}");
    if let Some(dissected) = dissect(&[std::fs::read(stored).unwrap()]) {
        assert!(dissected == sums, "{} of {} as sent", dissected.len(), sums.len());
    }
}

#[test]
fn a_collector_with_another_certificate_gets_nothing() {
    let (trusted, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (Some(authority), Some(certificate)) =
        (certificate(trusted.path()), certificate(other.path()))
    else {
        return;
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let stored = other.path().join("stored.ipfix");
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}"), "-cert"])
        .arg(&certificate)
        .arg("-key")
        .arg(other.path().join("key.pem"))
        .stdin(Stdio::piped())
        .stdout(File::create(&stored).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let files = TlsFiles { authorities: authority, certificate: None };
    let exporter = exporter(Endpoint::Tls(format!("localhost:{port}"), files), None);
    send(&exporter, &traffic::flows(10, false, now()).0);
    while exporter.counters()[0].connections == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let counters = exporter.stop().remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(std::fs::read(stored).unwrap(), b"");
    assert_eq!(counters.messages_sent, 0);
    assert!(counters.data_records_lost > 0, "without a spool they are lost, and counted");
}

fn exporter(endpoint: Endpoint, spool: Option<Spooling>) -> Exporter {
    let collector = Collector { endpoint, options: EncoderOptions::stream(), spool };
    Exporter::start(&[collector], now()).unwrap()
}

fn send(exporter: &Exporter, items: &[Item]) {
    let sender = exporter.sender(INTERFACES);
    items.iter().for_each(|item| sender.send_waiting(record(item)));
}

fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether all records are in messages, and those with the network.
fn is_all_sent(exporter: &Exporter) -> bool {
    let CollectorCounters { data_records, messages_sent, messages_waiting, .. } =
        exporter.counters()[0];
    data_records > 0 && messages_sent > 0 && messages_waiting == 0
}

fn wait_until_sent(exporter: &Exporter) {
    let begun = Instant::now();
    while !is_all_sent(exporter) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", exporter.counters());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All that was sent, once nothing comes for longer than a record may wait for its message.
fn read_until_all(stream: &mut TcpStream, exporter: &Exporter) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", exporter.counters());
        match stream.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(_) if is_all_sent(exporter) => {
                let records = data_records(&bytes).len() as u64;
                if records == exporter.counters()[0].data_records {
                    return bytes;
                }
            }
            // Silent, and not done.
            Err(_) => {}
        }
    }
}

/// The data records of a stream, message by message.
fn data_records(stream: &[u8]) -> Vec<&[u8]> {
    const RECORD_BYTES: usize = 68;
    let (mut rest, mut records) = (stream, Vec::new());
    while !rest.is_empty() {
        let at = |place: usize| usize::from(u16::from_be_bytes([rest[place], rest[place + 1]]));
        let (length, set) = (at(2), at(16));
        if set == 256 {
            records.extend(rest[20..length].chunks_exact(RECORD_BYTES));
        }
        rest = &rest[length..];
    }
    records
}

/// Messages whose number is not that of the data records before them (RFC 7011 s3.1).
fn sequence_errors(stream: &[u8]) -> usize {
    const RECORD_BYTES: usize = 68;
    let (mut rest, mut records, mut errors) = (stream, 0, 0);
    while !rest.is_empty() {
        let at = |place: usize| u16::from_be_bytes([rest[place], rest[place + 1]]);
        let (length, number) = (usize::from(at(2)), u32::from(at(8)) << 16 | u32::from(at(10)));
        errors += usize::from(number != records);
        if at(16) == 256 {
            assert_eq!((length - 20) % RECORD_BYTES, 0, "one set of whole records");
            records += ((length - 20) / RECORD_BYTES) as u32;
        }
        rest = &rest[length..];
    }
    errors
}

/// A certificate for localhost that signs itself, by openssl; its key is beside it.
fn certificate(folder: &Path) -> Option<std::path::PathBuf> {
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
    match made {
        Ok(status) => assert!(status.success(), "openssl req"),
        Err(_) => {
            eprintln!("SKIPPED: openssl is not installed");
            return None;
        }
    }
    Some(certificate)
}

/// Sums by tuple of streams of messages, as tshark reads them.
fn dissect(streams: &[Vec<u8>]) -> Option<Sums> {
    const FIELDS: [&str; 7] =
        ["srcaddr", "dstaddr", "srcport", "dstport", "protocol", "packets", "octets"];
    let mut sums = Sums::new();
    for stream in streams {
        let mut file = tempfile::Builder::new().suffix(".ipfix").tempfile().unwrap();
        file.write_all(stream).unwrap();
        let mut command = Command::new("tshark");
        command.arg("-r").arg(file.path()).args(["-T", "fields", "-E", "separator=;"]);
        command.args(["-e", "_ws.malformed"]);
        for field in FIELDS {
            command.arg("-e").arg(format!("cflow.{field}"));
        }
        let Ok(output) = command.output() else {
            eprintln!("SKIPPED: tshark is not installed");
            return None;
        };
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let columns: Vec<Vec<&str>> =
                line.split(';').map(|column| column.split(',').collect()).collect();
            assert_eq!(columns[0][0], "", "malformed: {line}");
            let [source, destination, ports @ .., packets, octets] = &columns[1..] else {
                panic!("{line}")
            };
            for (index, source) in source.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
                let tuple = (
                    source.parse().unwrap(),
                    destination[index].parse().unwrap(),
                    ports[0][index].parse().unwrap(),
                    ports[1][index].parse().unwrap(),
                    ports[2][index].parse().unwrap(),
                );
                let number = |column: &[&str]| column[index].parse::<u64>().unwrap();
                add(&mut sums, tuple, number(packets), number(octets));
            }
        }
    }
    Some(sums)
}

#[test]
fn tshark_reads_queue_pair_conversations_by_their_template() {
    let items = traffic::capture("rc-write-rdmacm.pcap");
    let conversations = items.iter().filter(|it| matches!(it, Item::Conversation(..))).count();
    assert!(conversations > 0);
    let mut stream = Vec::new();
    let mut keep = |message: weir_store::sink::Message<'_>| stream.extend_from_slice(message.bytes);
    let mut encoder = weir_store::sink::Encoder::new(&EncoderOptions::stream(), now());
    encoder.templates(now(), &mut keep);
    for item in &items {
        encoder.add(item, now(), &mut keep);
    }
    encoder.flush(now(), &mut keep);
    let mut file = tempfile::Builder::new().suffix(".ipfix").tempfile().unwrap();
    file.write_all(&stream).unwrap();
    let output = Command::new("tshark").arg("-r").arg(file.path()).arg("-V").output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: tshark is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("Expert Info") && !text.contains("Malformed"), "{text}");
    assert!(text.matches("Flow Id: ").count() >= conversations, "{text}");
}
