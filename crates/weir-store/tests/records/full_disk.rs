//! A spool on a disk that is full: what does not fit is counted, all else arrives.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::traffic::{self, INTERFACES, record};
use weir_store::sink::{Collector, EncoderOptions, Endpoint, Exporter, Item, Spooling};
use weir_wire::frame::Time;

const START: Time = Time(1_700_000_000_000_000_000);
const DISK_KIB: u32 = 256;

/// A small disk, gone when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={DISK_KIB}k");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        match command.output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            _ => {
                eprintln!("SKIPPED: a disk of {DISK_KIB} KiB needs root (mount -t tmpfs)");
                None
            }
        }
    }

    fn spool(&self) -> PathBuf {
        self.0.path().join("spool")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn what_a_full_disk_refuses_is_counted_and_all_else_arrives() {
    let Some(disk) = Disk::mount() else { return };
    let (items, _) = traffic::flows(8000, false, START);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    // The configured bound is far above what the disk holds.
    let exporter = exporter(&address, &disk.spool());
    send(&exporter, &items);
    let counted = || exporter.counters().remove(0);
    until(|| counted().records == items.len() as u64 && counted().data_records > 10_000);
    until(|| {
        let it = counted();
        it.data_records_lost > 0 && it.messages_spooled > 10
    });

    let listener = TcpListener::bind(&address).unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    until(|| counted().messages_waiting == 0 && counted().is_connected);
    // There is room again.
    let lost = counted().data_records_lost;
    send(&exporter, &items[..100]);
    let counters = exporter.stop().remove(0);
    assert_eq!(counters.data_records_lost, lost, "{counters:?}");
    let arrived = data_records(&reader.join().unwrap());
    assert_eq!(arrived, counters.data_records - lost, "{counters:?}");
}

fn exporter(address: &str, directory: &Path) -> Exporter {
    let spool = Spooling { directory: directory.to_owned(), bytes_max: 64 << 20 };
    let endpoint = Endpoint::Tcp(address.to_owned());
    let collector = Collector { endpoint, options: EncoderOptions::stream(), spool: Some(spool) };
    Exporter::start(&[collector], START).unwrap()
}

fn send(exporter: &Exporter, items: &[Item]) {
    let sender = exporter.sender(INTERFACES);
    items.iter().for_each(|item| sender.send_waiting(record(item)));
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not within a minute");
}

/// Data records in a stream of messages (RFC 7011 s3).
fn data_records(stream: &[u8]) -> u64 {
    const RECORD_BYTES: usize = 68;
    let (mut rest, mut records) = (stream, 0);
    while !rest.is_empty() {
        let at = |place: usize| usize::from(u16::from_be_bytes([rest[place], rest[place + 1]]));
        let (length, set) = (at(2), at(16));
        records += if set == 256 { (length - 20) / RECORD_BYTES } else { 0 };
        rest = &rest[length..];
    }
    records as u64
}
