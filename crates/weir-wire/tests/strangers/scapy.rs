//! scapy builds what we parse, and parses what we build. tshark reads scapy's packets too.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, process};

use weir_wire::arp::ArpPacket;
use weir_wire::bth::{Bth, Opcode};
use weir_wire::checksum;
use weir_wire::ethernet::{EthernetHeader, ethertype};
use weir_wire::ext::{self, Reth};
use weir_wire::frame::Link;
use weir_wire::icmp::IcmpHeader;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::ip::{Ipv4Header, Ipv6Header, mapped, protocol};
use weir_wire::parse::{
    Fault, Fragment, MacAddress, Network, Parsed, Transport, TunnelKind, parse, parse_inner,
};
use weir_wire::tcp::{TcpHeader, mss_offset};
use weir_wire::udp::UdpHeader;
use zerocopy::IntoBytes;
use zerocopy::network_endian::{U16, U32, U64};

use crate::captures::{self, Packet};
use crate::tshark;

/// A Python that has scapy: the first of the usual ones.
fn python() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let probe =
            Command::new(python).args(["-c", "import scapy"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        eprintln!("SKIPPED: python3 with scapy is not installed");
    }
    found
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers/packets.py")
}

/// A file of scapy's packets, removed at the end.
struct Built {
    file: PathBuf,
    packets: BTreeMap<String, Packet>,
}

impl Built {
    fn new(test: &str) -> Option<Self> {
        let file = env::temp_dir().join(format!("weir-wire-{test}-{}.pcap", process::id()));
        let output =
            Command::new(python()?).arg(script()).arg("build").arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names = String::from_utf8(output.stdout).unwrap();
        let packets = names.lines().map(String::from).zip(captures::packets(&file)).collect();
        Some(Self { file, packets })
    }

    fn parsed(&self, name: &str) -> (&[u8], Parsed) {
        let packet = &self.packets[name];
        (&packet.bytes, packet.parsed())
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[test]
fn tshark_and_we_read_the_same_from_what_scapy_built() {
    let Some(built) = Built::new("tshark") else { return };
    if tshark::is_installed() {
        tshark::compare(&built.file, &captures::packets(&built.file));
    }
}

#[test]
fn packets_without_ethernet_are_read_as_tshark_reads_them() {
    let Some(python) = python() else { return };
    for link_type in [101, 113, 276] {
        let name = format!("weir-wire-link-{link_type}-{}.pcap", process::id());
        let file = env::temp_dir().join(name);
        let mut command = Command::new(python);
        command.arg(script()).arg("link").arg(&file).arg(link_type.to_string());
        assert!(command.status().unwrap().success());
        let packets = captures::packets(&file);
        assert_eq!(packets.len(), 4);
        for packet in &packets {
            let parsed = packet.parsed();
            assert_eq!(parsed.fault, None);
            let source = MacAddress([2, 0, 0, 0, 0, 1]);
            assert_eq!(parsed.link.source == source, link_type != 101);
        }
        if tshark::is_installed() {
            tshark::compare(&file, &packets);
        }
        let _ = fs::remove_file(&file);
    }
}

#[test]
fn nothing_that_scapy_builds_is_malformed() {
    let Some(built) = Built::new("faults") else { return };
    for (name, packet) in &built.packets {
        assert_eq!(packet.parsed().fault, None, "{name}");
    }
}

#[test]
fn vlan_tags_are_kept_outermost_first() {
    let Some(built) = Built::new("vlan") else { return };
    let (_, parsed) = built.parsed("qinq");
    assert_eq!(parsed.link.vlan_count, 2);
    assert_eq!(parsed.link.vlan_tci, [3 << 13 | 100, 5 << 13 | 7]);
    assert_eq!(parsed.link.ethertype, ethertype::IPV4);
    assert_eq!(parsed.network_offset, 22);
    assert!(matches!(parsed.transport, Transport::Tcp { destination: 2000, .. }));
}

#[test]
fn tunnels_open_on_their_inner_packet() {
    let Some(built) = Built::new("tunnels") else { return };
    let expected = [
        ("vxlan", TunnelKind::Vxlan, 0x12_3456, [192, 168, 0, 1]),
        ("geneve", TunnelKind::Geneve, 0xab_cdef, [192, 168, 0, 1]),
        ("geneve ip", TunnelKind::Geneve, 1, [10, 1, 0, 1]),
        ("gre", TunnelKind::Gre, 0xcafe, [1, 1, 1, 1]),
        ("gre ethernet", TunnelKind::Gre, 0x99, [192, 168, 0, 1]),
        ("erspan 1", TunnelKind::Erspan, 0, [192, 168, 0, 1]),
        ("erspan 2", TunnelKind::Erspan, 77, [192, 168, 0, 1]),
        ("erspan 3", TunnelKind::Erspan, 78, [192, 168, 0, 1]),
    ];
    for (name, kind, id, inner_source) in expected {
        let (bytes, parsed) = built.parsed(name);
        assert_eq!(parsed.source, mapped([10, 1, 0, 1]), "{name}");
        let tunnel = parsed.tunnel.expect(name);
        assert_eq!((tunnel.kind, tunnel.id), (kind, id), "{name}");
        let inner = parse_inner(bytes, &parsed, &tunnel, bytes.len() as u32);
        assert_eq!(inner.source, mapped(inner_source), "{name}");
        assert_eq!(inner.fault, None, "{name}");
    }
}

#[test]
fn transports_are_found_behind_options_extension_headers_and_ah() {
    let Some(built) = Built::new("extensions") else { return };
    for name in ["ipv6 extensions", "ah"] {
        let (_, parsed) = built.parsed(name);
        assert_eq!(parsed.protocol, protocol::TCP, "{name}");
        assert!(matches!(parsed.transport, Transport::Tcp { source: 1000, .. }), "{name}");
    }
    let (_, parsed) = built.parsed("ipv4 options");
    assert!(matches!(parsed.transport, Transport::Udp { destination: 2000, .. }));
    let (bytes, parsed) = built.parsed("tcp options");
    let header = &bytes[usize::from(parsed.transport_offset)..usize::from(parsed.payload_offset)];
    let mss = mss_offset(header).expect("the option is there");
    assert_eq!(header[mss..mss + 2], 8960u16.to_be_bytes());
}

#[test]
fn only_first_fragments_have_a_transport() {
    let Some(built) = Built::new("fragments") else { return };
    let (_, first) = built.parsed("fragment 0");
    assert_eq!(first.fragment, Some(Fragment { id: 0x1234, offset: 0, more: true }));
    assert!(matches!(first.transport, Transport::Udp { .. }));
    let (_, last) = built.parsed("fragment 2");
    assert_eq!(last.fragment, Some(Fragment { id: 0x1234, offset: 800, more: false }));
    assert_eq!((last.transport, last.protocol), (Transport::None, protocol::UDP));
    let (_, first) = built.parsed("fragment6 0");
    assert_eq!(first.fragment.map(|piece| (piece.id, piece.offset)), Some((0xabcd_0123, 0)));
    assert!(matches!(first.transport, Transport::Udp { .. }));
    let (_, later) = built.parsed("fragment6 1");
    assert!(later.fragment.is_some_and(|piece| piece.offset > 0));
    assert_eq!((later.transport, later.protocol), (Transport::None, protocol::UDP));
    let (bytes, parsed) = built.parsed("fragment roce");
    assert_eq!(parsed.rdma.expect("the BTH is there").icrc_offset, None);
    assert_eq!(icrc::check(bytes, &parsed), IcrcStatus::Unchecked);
}

#[test]
fn esp_is_told_from_ike_and_keepalives() {
    let Some(built) = Built::new("esp") else { return };
    let esp = |in_udp| Transport::Esp { spi: 0xc0ff_ee01, sequence: 0x1001, in_udp };
    assert_eq!(built.parsed("esp").1.transport, esp(false));
    assert_eq!(built.parsed("esp6").1.transport, esp(false));
    assert_eq!(built.parsed("esp in udp").1.transport, esp(true));
    for name in ["ike", "keepalive"] {
        let (_, parsed) = built.parsed(name);
        assert!(matches!(parsed.transport, Transport::Udp { source: 4500, .. }), "{name}");
    }
}

#[test]
fn opcodes_have_the_names_that_scapy_gives_them() {
    let Some(python) = python() else { return };
    let output = Command::new(python).arg(script()).arg("opcodes").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().count() > 50, "{table}");
    for line in table.lines() {
        let (number, name) = line.split_once(' ').unwrap();
        let opcode = Opcode(number.parse().unwrap());
        let ours = opcode.name().to_uppercase().replace(' ', "_");
        let ours = ours.replace("CMPSWAP", "COMPARE_SWAP").replace("FETCHADD", "FETCH_ADD");
        assert_eq!(ours, name, "{opcode:?}");
    }
}

#[test]
fn roce_extended_headers_have_the_lengths_scapy_was_told() {
    let Some(built) = Built::new("roce") else { return };
    let mut checked = 0;
    for (name, packet) in built.packets.iter().filter(|(name, _)| name.starts_with("roce 0x")) {
        let parsed = packet.parsed();
        let rdma = parsed.rdma.expect(name);
        let [_, opcode, extension] = name.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let opcode = Opcode(u8::from_str_radix(&opcode[2..], 16).unwrap());
        assert_eq!(rdma.opcode, opcode);
        assert_eq!(opcode.extensions_len().to_string(), extension, "{opcode}");
        let padded_len = rdma.payload_len + u16::from(rdma.pad_count());
        assert!(padded_len == 12 || padded_len == 0, "{opcode}");
        assert!(rdma.payload(&packet.bytes).iter().all(|byte| *byte == b'p'), "{opcode}");
        assert_eq!(icrc::check(&packet.bytes, &parsed), IcrcStatus::Valid, "{opcode}");
        checked += 1;
    }
    assert!(checked > 30);
    for name in ["roce ack 4", "roce ipv4 options", "vlan roce", "cnp"] {
        let (bytes, parsed) = built.parsed(name);
        assert_eq!(icrc::check(bytes, &parsed), IcrcStatus::Valid, "{name}");
    }
    let (bytes, parsed) = built.parsed("roce ack 4");
    let aeth = ext::aeth(bytes, &parsed.rdma.unwrap()).expect("an AETH");
    assert_eq!(aeth.syndrome(), ext::Syndrome::Nak(ext::NakCause::SequenceError));
    let (bytes, parsed) = built.parsed("cnp");
    assert_eq!(parsed.rdma.map(|rdma| (rdma.opcode, rdma.payload_len)), Some((Opcode::CNP, 16)));
    assert_eq!(parsed.end as usize, bytes.len());
    assert_eq!(built.parsed("sport 4791 is not roce").1.rdma, None);
}

#[test]
fn link_padding_lies_behind_the_end() {
    let Some(built) = Built::new("padding") else { return };
    let (bytes, parsed) = built.parsed("arp");
    assert_eq!((bytes.len(), parsed.end, parsed.network), (60, 42, Network::Arp));
    assert_eq!(parsed.source, mapped([10, 1, 0, 1]));
    let (bytes, parsed) = built.parsed("keepalive");
    assert_eq!((bytes.len(), parsed.end), (60, 43));
    assert_eq!(parsed.payload(bytes), [0xff]);
    let (_, parsed) = built.parsed("stp");
    assert!(ethertype::is_length(parsed.link.ethertype));
}

#[test]
fn a_length_beyond_the_packet_is_malformed_and_a_missing_rest_truncated() {
    let Some(built) = Built::new("lengths") else { return };
    let (bytes, parsed) = built.parsed("udp");
    let mut bytes = bytes.to_vec();
    let whole_len = bytes.len() as u32;
    let cut = parse(&bytes[..50], Link::Ethernet, whole_len);
    assert_eq!((cut.fault, cut.end), (Some(Fault::Truncated), 50));
    assert!(matches!(cut.transport, Transport::Udp { .. }));
    let udp_len = usize::from(parsed.transport_offset) + 4;
    bytes[udp_len] = 0xff;
    assert_eq!(parse(&bytes, Link::Ethernet, whole_len).fault, Some(Fault::Malformed));
    bytes[16] = 0xff; // IPv4 total length
    let long = parse(&bytes, Link::Ethernet, whole_len);
    assert_eq!((long.fault, long.transport), (Some(Fault::Malformed), Transport::None));
}

const SOURCE: [u8; 4] = [10, 0, 0, 1];
const DESTINATION: [u8; 4] = [10, 0, 0, 2];

fn ethernet(kind: u16) -> Vec<u8> {
    EthernetHeader {
        destination: MacAddress([2, 0, 0, 0, 0, 2]),
        source: MacAddress([2, 0, 0, 0, 0, 1]),
        ethertype: U16::new(kind),
    }
    .as_bytes()
    .to_vec()
}

fn over_ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = Ipv4Header {
        version_and_len: 0x45,
        traffic_class: 0x20,
        total_len: U16::new((Ipv4Header::LEN + payload.len()) as u16),
        id: U16::new(7),
        fragment: U16::new(Ipv4Header::DONT_FRAGMENT),
        ttl: 64,
        protocol,
        checksum: U16::ZERO,
        source: SOURCE,
        destination: DESTINATION,
    };
    ip.checksum = U16::new(checksum::ipv4_header(ip.as_bytes()));
    [&ethernet(ethertype::IPV4), ip.as_bytes(), payload].concat()
}

fn tcp_frame() -> Vec<u8> {
    let mut tcp = TcpHeader {
        source: U16::new(1234),
        destination: U16::new(80),
        sequence: U32::new(77),
        acknowledgment: U32::new(0),
        data_offset: 0x50,
        flags: weir_wire::tcp::flags::SYN,
        window: U16::new(500),
        checksum: U16::ZERO,
        urgent: U16::ZERO,
    };
    let payload = b"odd";
    let length = (TcpHeader::LEN + payload.len()) as u16;
    let sum = checksum::pseudo_header_v4(SOURCE, DESTINATION, protocol::TCP, length);
    tcp.checksum = U16::new(sum.with(tcp.as_bytes()).with(payload).checksum());
    over_ipv4(protocol::TCP, &[tcp.as_bytes(), payload].concat())
}

fn udp6_frame() -> Vec<u8> {
    let (source, destination) = ([0xfd; 16], [0xfe; 16]);
    let payload = b"hello";
    let length = (UdpHeader::LEN + payload.len()) as u16;
    let mut udp = UdpHeader {
        source: U16::new(1234),
        destination: U16::new(9999),
        length: U16::new(length),
        checksum: U16::ZERO,
    };
    let sum = checksum::pseudo_header_v6(&source, &destination, protocol::UDP, u32::from(length));
    udp.checksum = U16::new(sum.with(udp.as_bytes()).with(payload).udp_checksum());
    let ip = Ipv6Header {
        version_class_flow: U32::new(6 << 28 | 0x12 << 20 | 0x34567),
        payload_len: U16::new(length),
        next_header: protocol::UDP,
        hop_limit: 9,
        source,
        destination,
    };
    [&ethernet(ethertype::IPV6), ip.as_bytes(), udp.as_bytes(), payload].concat()
}

fn roce_frame() -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::RC_WRITE_ONLY.0,
        flags: 0x40,
        partition_key: U16::new(0xffff),
        congestion_and_qp: U32::new(0x11),
        ack_and_psn: U32::new(1 << 31 | 0x123),
    };
    let reth = Reth {
        virtual_address: U64::new(0x1000),
        remote_key: U32::new(0x22),
        dma_length: U32::new(8),
    };
    let rest = [bth.as_bytes(), reth.as_bytes(), b"abcdefgh", &[0; icrc::ICRC_LEN]].concat();
    let udp = UdpHeader {
        source: U16::new(0xc000),
        destination: U16::new(weir_wire::udp::PORT_ROCE_V2),
        length: U16::new((UdpHeader::LEN + rest.len()) as u16),
        checksum: U16::ZERO,
    };
    let mut frame = over_ipv4(protocol::UDP, &[udp.as_bytes(), &rest].concat());
    let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
    assert!(icrc::write(&mut frame, &parsed));
    frame
}

fn icmp_frame() -> Vec<u8> {
    let rest = U32::new(0x0001_0002);
    let mut icmp = IcmpHeader { kind: 8, code: 0, checksum: U16::ZERO, rest };
    icmp.checksum = U16::new(checksum::Sum::new().with(icmp.as_bytes()).checksum());
    over_ipv4(protocol::ICMP, icmp.as_bytes())
}

fn arp_frame() -> Vec<u8> {
    let arp = ArpPacket {
        hardware_kind: U16::new(1),
        protocol_kind: U16::new(ethertype::IPV4),
        hardware_len: 6,
        protocol_len: 4,
        operation: U16::new(ArpPacket::REQUEST),
        sender_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        sender_ip: SOURCE,
        target_mac: MacAddress::default(),
        target_ip: DESTINATION,
    };
    [&ethernet(ethertype::ARP), arp.as_bytes()].concat()
}

#[test]
fn scapy_reads_what_we_build_and_builds_the_same() {
    let Some(python) = python() else { return };
    let frames = [
        (tcp_frame(), "TCP(sport=1234, dport=80, seq=77, ack=0, dataofs=5, reserved=0, flags=2"),
        (udp6_frame(), "UDP(sport=1234, dport=9999, len=13"),
        (roce_frame(), "BTH(opcode=10, solicited=0, migreq=1"),
        (icmp_frame(), "ICMP(type=8, code=0"),
        (arp_frame(), "psrc='10.0.0.1'"),
    ];
    let mut child = Command::new(python)
        .arg(script())
        .arg("judge")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (frame, _) in &frames {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(stdin, "{hex}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let verdicts = String::from_utf8(output.stdout).unwrap();
    assert_eq!(verdicts.lines().count(), frames.len());
    for ((frame, expected), verdict) in frames.iter().zip(verdicts.lines()) {
        assert!(verdict.starts_with("same "), "{verdict}\nour bytes: {frame:02x?}");
        assert!(verdict.contains(expected), "{verdict} lacks {expected}");
    }
}
