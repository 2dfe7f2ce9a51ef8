//! The capture reader and writer, judged by Wireshark's tools (tshark, editcap, capinfos) on real
//! captures, and by damaged files on what it promises for them.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_port::capture::{CaptureStats, Direction, PACKET_LEN_MAX, PacketNote};
use weir_port::{CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter, Port};
use weir_wire::frame::{Link, Meta, Time};

/// A packet as any reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    time_ns: u64,
    original_len: u32,
    link: Link,
    bytes: Vec<u8>,
}

fn read(path: impl AsRef<Path>) -> (Vec<Seen>, CaptureStats) {
    let (seen, stats, error) = drain(CaptureReader::open(path).expect("a capture"));
    assert!(error.is_none(), "{error:?}");
    (seen, stats)
}

fn drain(mut reader: CaptureReader) -> (Vec<Seen>, CaptureStats, Option<CaptureError>) {
    let mut seen = Vec::new();
    let error = loop {
        let batch = reader.next_batch(&mut |frames| {
            for frame in frames.iter() {
                seen.push(Seen {
                    time_ns: frame.meta.time.0,
                    original_len: frame.meta.original_len,
                    link: frame.meta.link,
                    bytes: frame.bytes().to_vec(),
                });
            }
        });
        match batch {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
    };
    assert_eq!(reader.next_batch(&mut |_| panic!("after the end")).unwrap(), 0);
    (seen, reader.stats(), error)
}

/// Every capture at hand; none when the folder is not there.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let mut found = Vec::new();
    for folder in [root.clone(), root.join("public")] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()));
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    found.sort();
    if found.is_empty() {
        eprintln!("SKIPPED: ../shared/captures is not here");
    }
    found
}

fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is not installed (apt install tshark)");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("a tool that `have` found");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `(time, captured length)` of each packet as tshark reports them.
fn tshark_packets(path: &Path) -> Vec<(u64, usize)> {
    let mut command = Command::new("tshark");
    command.args(["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.cap_len", "-r"]).arg(path);
    let parse = |line: &str| {
        let (time, len) = line.split_once('\t').expect("two fields");
        let (seconds, fraction) = time.split_once('.').expect("a decimal time");
        let nanoseconds: u64 = fraction.parse().expect("nine digits");
        (seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds, len.parse().unwrap())
    };
    run(&mut command).lines().map(parse).collect()
}

#[test]
fn every_capture_reads_as_tshark_reads_it() {
    if !have("tshark") {
        return;
    }
    for path in captures() {
        let (seen, stats) = read(&path);
        let judged = tshark_packets(&path);
        assert_eq!(stats.packets as usize, judged.len(), "{path:?}");
        assert_eq!((stats.truncated_records, stats.skipped_packets), (0, 0), "{path:?}");
        if seen.iter().any(|packet| packet.link == Link::InfiniBand) {
            continue; // tshark reports the ERF record, we the packet in it
        }
        let ours: Vec<_> = seen.iter().map(|packet| (packet.time_ns, packet.bytes.len())).collect();
        assert_eq!(ours, judged, "{path:?}");
    }
}

#[test]
fn erf_infiniband_capture_holds_43_packets() {
    let Some(path) =
        captures().into_iter().find(|path| path.ends_with("native-infiniband-erf.pcap"))
    else {
        return;
    };
    let (seen, _) = read(path);
    assert_eq!(seen.len(), 43);
    assert!(seen.iter().all(|packet| packet.link == Link::InfiniBand));
    for packet in &seen {
        // The LRH's own length field (IBTA vol. 1 section 7.7.8): words before the VCRC.
        let words = usize::from(u16::from_be_bytes([packet.bytes[4], packet.bytes[5]]) & 0x7ff);
        assert_eq!(packet.bytes.len(), words * 4 + 2);
    }
}

#[test]
fn every_format_that_editcap_writes_reads_the_same() {
    if !have("editcap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for path in captures() {
        let (expected, _) = read(&path);
        for format in ["pcap", "nsecpcap", "modpcap", "pcapng"] {
            let converted = folder.path().join(format!("converted.{format}"));
            run(Command::new("editcap").args(["-F", format]).arg(&path).arg(&converted));
            let (seen, _) = read(&converted);
            assert_eq!(seen, expected, "{path:?} as {format}");
        }
    }
}

#[test]
fn snapped_packets_keep_their_original_length() {
    if !have("editcap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for path in captures().into_iter().filter(|path| !path.ends_with("native-infiniband-erf.pcap"))
    {
        let (expected, _) = read(&path);
        for format in ["pcap", "pcapng"] {
            let snapped = folder.path().join("snapped");
            run(Command::new("editcap").args(["-s", "60", "-F", format]).arg(&path).arg(&snapped));
            let (seen, _) = read(&snapped);
            assert_eq!(seen.len(), expected.len());
            for (seen, whole) in seen.iter().zip(&expected) {
                assert_eq!(seen.original_len as usize, whole.bytes.len());
                assert_eq!(seen.bytes, whole.bytes[..whole.bytes.len().min(60)]);
            }
        }
    }
}

/// A packet train of awkward lengths, without any file at hand.
fn train() -> Vec<(Meta, Vec<u8>)> {
    (0..200u64)
        .map(|number| {
            let len = [0, 1, 14, 60, 61, 62, 63, 64, 1514, 9014, 65_549][number as usize % 11];
            let bytes = (0..len).map(|i| (i as u64 * 7 + number) as u8).collect();
            let time = Time(1_700_000_000_123_456_789 + number * 1_001);
            (Meta { time, original_len: len as u32, ..Meta::default() }, bytes)
        })
        .collect()
}

fn written(format: CaptureFormat, link: Link) -> Vec<u8> {
    let ports = [("pf0hpf", link), ("p0", link)];
    let mut writer = CaptureWriter::new(Vec::new(), format, &ports).unwrap();
    for (number, (meta, bytes)) in train().iter().enumerate() {
        let note = PacketNote {
            direction: Some(if number % 2 == 0 { Direction::Inbound } else { Direction::Outbound }),
            comment: Some("a remark").filter(|_| number % 3 == 0),
        };
        let (front, rest) = bytes.split_at(bytes.len() / 3);
        writer.write(number as u32 % 2, meta, &[front, rest], note).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let [sll, sll2] = [Link::LinuxSll, Link::LinuxSll2];
        for link in [Link::Ethernet, Link::Ip, sll, sll2, Link::InfiniBand, Link::Ipoib] {
            let file = written(format, link);
            let reader = CaptureReader::from_source("memory", Cursor::new(file)).unwrap();
            let (seen, _, error) = drain(reader);
            assert!(error.is_none());
            assert_eq!(seen.len(), train().len());
            for (seen, (meta, bytes)) in seen.iter().zip(train()) {
                assert_eq!((seen.time_ns, &seen.bytes), (meta.time.0, &bytes));
                assert_eq!(seen.link, link);
            }
        }
    }
}

#[test]
fn tshark_reads_what_is_written() {
    if !have("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let path = folder.path().join("written");
        fs::write(&path, written(format, Link::Ethernet)).unwrap();
        let expected: Vec<_> = train().iter().map(|(meta, b)| (meta.time.0, b.len())).collect();
        assert_eq!(tshark_packets(&path), expected);
    }
    let fields = ["-T", "fields", "-e", "frame.interface_name", "-e", "frame.comment"];
    let path = folder.path().join("written");
    let shown = run(Command::new("tshark").args(fields).arg("-r").arg(&path));
    let lines: Vec<_> = shown.lines().take(4).collect();
    assert_eq!(lines, ["pf0hpf\ta remark", "p0\t", "pf0hpf\t", "p0\ta remark"]);
}

/// The same pcap file in the other byte order.
fn swapped(pcap: &[u8]) -> Vec<u8> {
    let mut out = pcap.to_vec();
    let mut reverse = |range: std::ops::Range<usize>| out[range].reverse();
    reverse(0..4);
    reverse(4..6);
    reverse(6..8);
    for at in [8, 12, 16, 20] {
        reverse(at..at + 4);
    }
    let mut at = 24;
    while at < pcap.len() {
        let len = u32::from_le_bytes(pcap[at + 8..at + 12].try_into().unwrap()) as usize;
        for field in 0..4 {
            reverse(at + 4 * field..at + 4 * field + 4);
        }
        at += 16 + len;
    }
    out
}

#[test]
fn byte_swapped_file_reads_the_same() {
    for path in captures() {
        let (expected, _) = read(&path);
        let file = swapped(&fs::read(&path).unwrap());
        let (seen, _, error) =
            drain(CaptureReader::from_source("swapped", Cursor::new(file)).unwrap());
        assert!(error.is_none());
        assert_eq!(seen, expected, "{path:?}");
    }
}

/// A source that gives a few bytes at a time, as a pipe does.
struct Trickle {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl std::io::Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.step.min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[test]
fn records_cut_by_block_boundaries_arrive_whole() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let bytes = written(format, Link::Ethernet);
        for step in [97, 4096, 65_521, 1 << 20] {
            let source = Trickle { bytes: bytes.clone(), at: 0, step };
            let (seen, _, error) = drain(CaptureReader::from_source("pipe", source).unwrap());
            assert!(error.is_none());
            let expected: Vec<_> = train().into_iter().map(|(_, bytes)| bytes).collect();
            assert!(seen.iter().map(|s| &s.bytes).eq(&expected), "{format:?}, {step} at a time");
        }
    }
}

#[test]
fn file_cut_anywhere_delivers_all_whole_records_and_counts_the_cut_one() {
    for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
        let mut writer = CaptureWriter::new(Vec::new(), format, &[("p0", Link::Ethernet)]).unwrap();
        let body = writer.sink().len();
        let mut ends = Vec::new();
        for (meta, bytes) in train().iter().filter(|(_, bytes)| bytes.len() < 100).take(12) {
            writer.write(0, meta, &[bytes], PacketNote::default()).unwrap();
            ends.push(writer.sink().len());
        }
        let whole = writer.finish().unwrap();
        for len in body..=whole.len() {
            let cut = Cursor::new(whole[..len].to_vec());
            let (seen, stats, error) = drain(CaptureReader::from_source("cut", cut).unwrap());
            assert!(error.is_none(), "{format:?} {len}: {error:?}");
            let complete = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(seen.len(), complete, "{format:?} cut at {len}");
            let at_border = len == body || ends.contains(&len);
            assert_eq!(stats.truncated_records, u64::from(!at_border), "{format:?} cut at {len}");
        }
    }
}

fn error_of(bytes: Vec<u8>) -> String {
    match CaptureReader::from_source("bad.pcap", Cursor::new(bytes)) {
        Err(error) => error.to_string(),
        Ok(reader) => drain(reader).2.expect("an error").to_string(),
    }
}

#[test]
fn hostile_length_is_an_error_at_its_place_after_what_was_good() {
    let mut file = written(CaptureFormat::Pcap, Link::Ethernet);
    let good = file.len();
    file.extend([0; 8]);
    file.extend((PACKET_LEN_MAX as u32 + 1).to_le_bytes());
    file.extend(u32::MAX.to_le_bytes());
    let (seen, _, error) = drain(CaptureReader::from_source("f", Cursor::new(file)).unwrap());
    assert_eq!(seen.len(), train().len());
    let error = error.expect("an error").to_string();
    assert!(error.starts_with(&format!("f: byte {good}: a record claims 262145 bytes")), "{error}");
}

#[test]
fn what_is_no_capture_is_refused_with_a_remedy() {
    assert!(error_of(Vec::new()).contains("empty"));
    assert!(error_of(vec![0xd4, 0xc3]).contains("2 bytes"));
    assert!(error_of(b"\x1f\x8b\x08 and so on, to the end of this".to_vec()).contains("gzip -dc"));
    assert!(error_of(b"PK\x03\x04 and so on, to the end of this".to_vec()).contains("editcap"));
    let mut usb = written(CaptureFormat::Pcap, Link::Ethernet);
    usb[20] = 189;
    assert!(error_of(usb).contains("link type 189 is not supported"));
    assert!(CaptureReader::open("/nonexistent/a.pcap").is_err());
}

/// A pcapng block of any kind.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len()) as u32;
    let mut bytes = Vec::new();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(body);
    bytes.extend(len.to_le_bytes());
    bytes
}

const SECTION: [u8; 16] =
    [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn drain_bytes(bytes: Vec<u8>) -> (Vec<Seen>, CaptureStats, Option<CaptureError>) {
    drain(CaptureReader::from_source("made", Cursor::new(bytes)).unwrap())
}

#[test]
fn simple_and_obsolete_packet_blocks_are_read() {
    let mut file = block(0x0a0d_0d0a, &SECTION);
    file.extend(block(1, &words(&[101, 6])));
    file.extend(block(3, &[words(&[9]), vec![0x45, 1, 2, 3, 4, 5, 0, 0]].concat()));
    let old = words(&[0, 1, 2, 4, 4]);
    file.extend(block(2, &[old, vec![0x60, 9, 9, 9]].concat()));
    let (seen, _, error) = drain_bytes(file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen[0].bytes, [0x45, 1, 2, 3, 4, 5]);
    assert_eq!((seen[0].original_len, seen[0].link), (9, Link::Ip));
    assert_eq!(seen[1].bytes, [0x60, 9, 9, 9]);
    assert_eq!(seen[1].time_ns, ((1 << 32) + 2) * 1000);
}

#[test]
fn interfaces_have_their_own_clock_and_unknown_ones_are_counted() {
    let mut file = block(0x0a0d_0d0a, &SECTION);
    let seconds = [words(&[1, 0]), words(&[0x0001_0009, 0, 0])].concat();
    file.extend(block(1, &seconds));
    file.extend(block(1, &words(&[189, 0])));
    file.extend(block(6, &words(&[0, 0, 77, 4, 4, 0x0403_0201])));
    file.extend(block(6, &words(&[1, 0, 77, 4, 4, 0x0403_0201])));
    let (seen, stats, error) = drain_bytes(file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].time_ns, stats.skipped_packets), (77_000_000_000, 1));
}

#[test]
fn foreign_blocks_of_any_size_are_skipped_unread() {
    let mut file = block(0x0a0d_0d0a, &SECTION);
    file.extend(block(0xbad, &vec![0; 5 << 20]));
    file.extend(block(1, &words(&[1, 0])));
    file.extend(block(6, &words(&[0, 0, 0, 4, 4, 0x0403_0201])));
    let (seen, _, error) = drain_bytes(file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen.len(), 1);
}

#[test]
fn damaged_blocks_are_errors_with_their_place() {
    let section = block(0x0a0d_0d0a, &SECTION);
    let interface = block(1, &words(&[1, 0]));
    for (damage, said) in [
        (block(6, &words(&[7, 0, 0, 0, 0])), "interface 7"),
        (block(6, &words(&[0, 0, 0, 99, 99])), "claims 99 bytes, it has 0"),
        (block(6, &words(&[0])), "too short"),
        (words(&[6, 8, 8]), "claims 8 bytes"),
        (words(&[6, 0xffff_fff0, 8]), "more than"),
        ([words(&[6, 32]), vec![0; 20], words(&[33])].concat(), "lengths"),
    ] {
        let file = [section.clone(), interface.clone(), damage].concat();
        let error = drain_bytes(file).2.expect(said).to_string();
        let place = format!("made: byte {}:", section.len() + interface.len());
        assert!(error.contains(said) && error.starts_with(&place), "{error}");
    }
}

#[test]
fn capture_port_gives_every_packet_the_promised_room() {
    let file = written(CaptureFormat::PcapNg, Link::Ethernet);
    let reader = CaptureReader::from_source("made", Cursor::new(file)).unwrap();
    let mut port = CapturePort::new(reader);
    let mut seen = Vec::new();
    while port
        .receive(&mut |frames| {
            for frame in frames.iter() {
                assert!(frame.headroom() >= 128 && frame.tailroom() >= 64);
                seen.push(frame.bytes().to_vec());
            }
        })
        .unwrap()
        > 0
    {}
    assert!(seen.iter().eq(train().iter().map(|(_, bytes)| bytes)));
    assert_eq!(port.counters().received_frames, 200);
}
