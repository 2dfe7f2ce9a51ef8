//! Reads the recorded captures that the tests judge by: classic pcap, and ERF records inside it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use weir_wire::frame::Link;
use weir_wire::parse::{Parsed, parse};

/// One packet of a capture.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) original_len: u32,
    pub(crate) link: Link,
}

impl Packet {
    pub(crate) fn parsed(&self) -> Parsed {
        parse(&self.bytes, self.link, self.original_len)
    }
}

/// The folder of captures that are part of the project.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce")
}

/// Every capture: the project's own, and those shared beside the workspace where they are.
pub(crate) fn files() -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let mut folders = vec![folder()];
    if shared.is_dir() {
        folders.extend([shared.join("public"), shared]);
    } else {
        eprintln!("SKIPPED: no folder ../shared/captures beside the workspace");
    }
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("the folder can be read"))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort_by_key(|path| path.file_name().map(OsStr::to_os_string));
    files.dedup_by(|a, b| a.file_name() == b.file_name());
    assert!(files.len() >= 4, "the captures are there: {files:?}");
    files
}

/// The packets of a little-endian pcap file.
pub(crate) fn packets(path: &Path) -> Vec<Packet> {
    let file = fs::read(path).expect("the capture can be read");
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert!(matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d), "{path:?}: little-endian pcap");
    let kind = word(20) & 0xffff;
    let mut at = 24;
    let mut packets = Vec::new();
    while at < file.len() {
        let (present, original_len) = (word(at + 8) as usize, word(at + 12));
        let bytes = &file[at + 16..at + 16 + present];
        packets.push(match kind {
            197 => infiniband_in_erf(bytes),
            kind => Packet { bytes: bytes.to_vec(), original_len, link: link(kind) },
        });
        at += 16 + present;
    }
    packets
}

fn link(kind: u32) -> Link {
    match kind {
        1 => Link::Ethernet,
        101 => Link::Ip,
        113 => Link::LinuxSll,
        276 => Link::LinuxSll2,
        247 => Link::InfiniBand,
        other => panic!("link type {other}"),
    }
}

/// An ERF record of type 21: a header of 16 bytes, then the packet, padded.
fn infiniband_in_erf(record: &[u8]) -> Packet {
    assert_eq!(record[8], 21, "InfiniBand without extension headers");
    let wire_len = u16::from_be_bytes([record[14], record[15]]);
    let bytes = &record[16..];
    let bytes = bytes[..bytes.len().min(usize::from(wire_len))].to_vec();
    Packet { bytes, original_len: u32::from(wire_len), link: Link::InfiniBand }
}
