//! Strangers read the frames that the lab makes: tshark and scapy.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use weir_lab::process::installed;
use weir_lab::traffic::Kind;
use weir_lab::traffic::frames::{Planned, planned};

fn write_pcap(path: &Path, frames: &[Planned]) {
    let mut file = File::create(path).expect("a file");
    let words = |list: &[u32]| list.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    file.write_all(&words(&[0xa1b2c3d4, 0x0004_0002, 0, 0, 65535, 1])).expect("written");
    for frame in frames {
        let len = frame.bytes.len() as u32;
        file.write_all(&words(&[0, 0, len, len])).expect("written");
        file.write_all(&frame.bytes).expect("written");
    }
}

fn tshark_fields(path: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-r"]).arg(path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_reads_the_same_transport_from_roce_v1_as_from_v2() {
    if !installed("tshark") {
        return eprintln!("SKIPPED: tshark_reads_the_same_transport needs tshark");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let read = |kind: Kind| {
        let path = folder.path().join(kind.name());
        write_pcap(&path, &planned(kind, 1).expect("planned"));
        let fields = ["infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp"];
        (tshark_fields(&path, &fields), tshark_fields(&path, &["frame.protocols"]))
    };
    let (v2, _) = read(Kind::RoceV2);
    let (v1, protocols) = read(Kind::RoceV1);
    assert!(v2.len() > 300 && v2.iter().all(|line| line.starts_with(|c: char| c.is_ascii_digit())));
    assert_eq!(v1, v2);
    assert!(protocols.iter().all(|line| line.starts_with("eth:ethertype:infiniband")));
}

#[test]
fn tshark_reads_mireles_s_frame_as_in_his_figure() {
    if !installed("tshark") {
        return eprintln!("SKIPPED: tshark_reads_mireles_s_frame needs tshark");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prebuilt");
    write_pcap(&path, &planned(Kind::TcpPrebuilt, 1).expect("planned"));
    let fields = ["tcp.srcport", "tcp.dstport", "ip.src", "ip.dst", "ip.checksum.status"];
    assert_eq!(tshark_fields(&path, &fields), ["2048\t22992\t10.77.0.1\t10.77.0.2\t2"]);
}

#[test]
fn scapy_computes_the_same_icrc() {
    const SCRIPT: &str = "
import sys
from scapy.all import Ether, UDP, rdpcap
from scapy.contrib.roce import BTH
wrong = checked = 0
for packet in rdpcap(sys.argv[1]):
    if BTH in packet and packet.haslayer(UDP) and packet.type == 0x800:
        checked += 1
        wrong += packet[BTH].compute_icrc(bytes(packet[BTH])[:-4]) != bytes(packet)[-4:]
print(checked, wrong)
";
    let has_scapy = Command::new("/usr/bin/python3").args(["-c", "import scapy"]).output();
    if !has_scapy.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: scapy_computes_the_same_icrc needs python3-scapy");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frames");
    write_pcap(&path, &planned(Kind::RoceV2, 1).expect("planned"));
    let output = Command::new("/usr/bin/python3").args(["-c", SCRIPT]).arg(&path).output();
    let output = output.expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<u32> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(numbers.len() == 2 && numbers[0] > 200, "scapy said {said}{errors}");
    assert_eq!(numbers[1], 0, "of {} frames", numbers[0]);
}
