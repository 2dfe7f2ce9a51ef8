//! IP over InfiniBand (RFC 4391) in captures, as `weir read --rules` and `weir verify` have it;
//! tshark says who speaks with whom.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_wire::frame::Link;
use weir_wire::{icrc, parse::parse};

use crate::verify::{packet, verified};
use crate::verify_decoding::{datagram, piece};

/// Link types of captures (tcpdump.org).
const ERF: u32 = 197;
const IPOIB: u32 = 242;
const INFINIBAND: u32 = 247;

/// Opcodes of messages that are one packet (IBTA Vol 1 s9.2).
const RC_SEND: u8 = 0x04;
const RC_WRITE: u8 = 0x0a;
const UC_SEND: u8 = 0x24;
const UD_SEND: u8 = 0x64;
const UD_SEND_IMMEDIATE: u8 = 0x65;

const V4: [u8; 4] = [8, 0, 0, 0];
const V6: [u8; 4] = [0x86, 0xdd, 0, 0];
const ARP: [u8; 4] = [8, 6, 0, 0];

const RULES: &str = "alert udp any any -> any 47001 (content:\"weir\"; sid:1;)\n\
                     alert rdma any any -> any any (content:\"weir\"; sid:2;)\n";

/// A datagram of IPv4 that the first rule matches.
fn v4() -> Vec<u8> {
    packet(17, [1, 2], &datagram([47000, 47001], 13, b"weir!"))
}

/// One of IPv6.
fn v6() -> Vec<u8> {
    let ends = [[0xfd; 16], [0xfc; 16]].concat();
    [&[0x60, 0, 0, 0, 0, 13, 17, 64][..], &ends, &datagram([47000, 47001], 13, b"weir!")].concat()
}

/// Who has 192.0.2.2? asks 192.0.2.1, between link addresses of 20 bytes.
fn arp() -> Vec<u8> {
    let head = [0, 32, 8, 0, 20, 4, 0, 1];
    let asks = [&[0, 0, 0, 0x50][..], &[0xfe; 16], &[192, 0, 2, 1]].concat();
    [&head[..], &asks, &[0; 20], &[192, 0, 2, 2]].concat()
}

/// A packet of native InfiniBand with such a payload, from LID 1 to LID 2, or behind a GRH.
fn native(opcode: u8, is_global: bool, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let padding = payload.len().wrapping_neg() % 4;
    let mut behind = vec![opcode, (padding as u8) << 4, 0xff, 0xff, 0, 0, 0, 0x48, 0, 0, 0, 1];
    match opcode {
        UD_SEND => behind.extend([0, 0, 0x0b, 0x1b, 0, 0, 0, 0x50]),
        UD_SEND_IMMEDIATE => behind.extend([0, 0, 0x0b, 0x1b, 0, 0, 0, 0x50, 0, 0, 0, 0]),
        RC_WRITE => behind.extend([0; 16]),
        _ => {}
    }
    behind.extend(payload);
    behind.extend(vec![0; padding + 4]);
    let mut route = vec![0x60, 0, 0, 0, 0, behind.len() as u8, 0x1b, 64];
    route.extend([[0xfd; 16], [0xfc; 16]].concat());
    let route = if is_global { &route[..] } else { &[] };
    let words = ((8 + route.len() + behind.len()) / 4) as u8;
    let local = [0, if is_global { 3 } else { 2 }, 0, 2, 0, words, 0, 1];
    let mut bytes = [&local, route, &behind, &[0; 2]].concat();
    let parsed = parse(&bytes, Link::InfiniBand, bytes.len() as u32);
    assert!(icrc::write(&mut bytes, &parsed), "{parsed:?}");
    bytes
}

/// A packet of link type 242 as those have it who write such captures.
fn for_whom(behind: &[&[u8]]) -> Vec<u8> {
    [&[0; 20][..], &[0, 0, 0, 0x48], &[0xfe; 16], &behind.concat()].concat()
}

/// Writes a capture of that link type; native packets of ERF behind its records' headers.
fn written(file: &Path, link: u32, packets: &[Vec<u8>]) {
    let head = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, link];
    let mut bytes = head.map(u32::to_le_bytes).concat();
    for (second, packet) in (1_700_000_000_u32..).zip(packets) {
        let length = packet.len() as u16;
        let record = [
            &[0; 4][..],
            &second.to_le_bytes(),
            &[21, 4],
            &(length + 16).to_be_bytes(),
            &[0; 2],
            &length.to_be_bytes(),
        ];
        let packet = [if link == ERF { record.concat() } else { vec![] }, packet.clone()].concat();
        let length = packet.len() as u32;
        bytes.extend([second, 0, length, length].map(u32::to_le_bytes).concat());
        bytes.extend(packet);
    }
    fs::write(file, bytes).unwrap();
}

/// What is told of such packets.
fn told(folder: &Path, link: u32, packets: &[Vec<u8>]) -> (PathBuf, Vec<Value>) {
    let capture = folder.join("a.pcap");
    written(&capture, link, packets);
    let events = read(folder, &capture, RULES);
    (capture, events)
}

/// What is told of a capture.
fn read(folder: &Path, capture: &Path, rules: &str) -> Vec<Value> {
    let [written, eve] = ["a.rules", "eve.json"].map(|it| folder.join(it));
    fs::write(&written, rules).unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--types", "alert,flow,arp,anomaly,stats"]);
    weir.arg("--rules").arg(&written).arg("--eve").arg(&eve).arg(capture);
    let output = weir.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&eve).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn alerts(events: &[Value], sid: u64) -> Vec<&Value> {
    events.iter().filter(|it| it["alert"]["signature_id"] == sid).collect()
}

/// What was counted of packets by that name.
fn counted(events: &[Value], name: &str) -> u64 {
    let stats = events.iter().find(|it| it["event_type"] == "stats").expect("totals");
    stats["stats"]["decoder"][name].as_u64().unwrap_or_default()
}

/// The first values of such fields, as tshark prints them for each packet; `None`, loudly, where it
/// is not installed.
fn tshark<const N: usize>(file: &Path, fields: [&str; N]) -> Option<Vec<[String; N]>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"]).arg(file);
    fields.iter().for_each(|it| _ = command.args(["-e", it]));
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let mut values = line.split('\t').map(str::to_owned);
        [(); N].map(|()| values.next().unwrap_or_default())
    };
    Some(text.lines().map(row).collect())
}

#[test]
fn who_speaks_inside_is_who_tshark_says_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let route = &native(UD_SEND, true, &[])[8..48];
    let (four, six) = (["ip.src", "ip.dst"], ["ipv6.src", "ipv6.dst"]);
    for (name, link, packet, fields) in [
        ("for a link address", IPOIB, for_whom(&[&V4, &v4()]), four),
        ("for a link address, IPv6", IPOIB, for_whom(&[&V6, &v6()]), six),
        ("behind a GRH", IPOIB, [route, &V4, &v4()].concat(), four),
        ("a datagram", ERF, native(UD_SEND, false, &[&V4, &v4()]), four),
        ("a datagram, IPv6", ERF, native(UD_SEND, false, &[&V6, &v6()]), six),
        ("a datagram with a GRH", ERF, native(UD_SEND, true, &[&V4, &v4()]), four),
        ("connected", ERF, native(RC_SEND, false, &[&V4, &v4()]), four),
        ("connected, not reliable", ERF, native(UC_SEND, true, &[&V6, &v6()]), six),
    ] {
        let (capture, events) = told(folder.path(), link, &[packet]);
        let [alert] = alerts(&events, 1)[..] else { panic!("{name}: {events:#?}") };
        let [source, destination] = fields;
        let fields = [source, destination, "udp.srcport", "udp.dstport"];
        let Some(judged) = tshark(&capture, fields) else { return };
        let address = |end: &str| {
            let address: IpAddr = alert[end].as_str().unwrap().parse().unwrap();
            address.to_string()
        };
        let port = |end: &str| alert[end].to_string();
        let ours = [address("src_ip"), address("dest_ip"), port("src_port"), port("dest_port")];
        assert_eq!([ours], judged[..], "{name}");
    }
    let (capture, events) = told(folder.path(), ERF, &[native(UD_SEND, false, &[&ARP, &arp()])]);
    let arp = &events.iter().find(|it| it["event_type"] == "arp").expect("ARP")["arp"];
    let fields = ["arp.src.proto_ipv4", "arp.dst.proto_ipv4", "arp.opcode", "arp.hw.size"];
    let Some(judged) = tshark(&capture, fields) else { return };
    let [judged] = &judged[..] else { panic!("{judged:?}") };
    assert_eq!(*judged, ["192.0.2.1", "192.0.2.2", "1", "20"]);
    assert_eq!([&arp["src_ip"], &arp["dest_ip"]], [&judged[0], &judged[1]]);
    assert_eq!([&arp["opcode"], &arp["hw_type"]], ["request", "infiniband"]);
    assert_eq!(arp["src_mac"], format!("00:00:00:50{}", ":fe".repeat(16)));
}

/// An old sample of Endace's: a subnet's management, and pings.
#[test]
fn in_a_strangers_capture_the_same_packets_are_found_as_by_tshark() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("WEIR_SHARED").map_or(beside, Into::into);
    let capture = shared.join("captures/public/native-infiniband-erf.pcap");
    let folder = tempfile::tempdir().unwrap();
    if !capture.exists() {
        eprintln!("SKIPPED: {} is not there", capture.display());
        return;
    }
    // Each packet, and not each flow.
    let rules = "alert ip any any -> any any (ttl:>0; sid:1;)\n";
    let events = read(folder.path(), &capture, rules);
    let number = |it: &Value| it["tunnel"]["pcap_cnt"].to_string();
    let address = |it: &Value| match it.as_str().unwrap().parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(error) => panic!("{it}: {error}"),
    };
    let told = alerts(&events, 1).into_iter().filter(|it| it["pkt_src"] != "wire/pcap");
    let mut ours: Vec<[String; 3]> =
        told.map(|it| [number(it), address(&it["src_ip"]), address(&it["dest_ip"])]).collect();
    let asked = events.iter().filter(|it| it["event_type"] == "arp");
    ours.extend(asked.map(|it| {
        let arp = &it["arp"];
        [number(it), address(&arp["src_ip"]), address(&arp["dest_ip"])]
    }));
    let mut judged = Vec::new();
    for [source, destination] in [
        ["ip.src", "ip.dst"],
        ["ipv6.src", "ipv6.dst"],
        ["arp.src.proto_ipv4", "arp.dst.proto_ipv4"],
    ] {
        let Some(rows) = tshark(&capture, ["frame.number", source, destination]) else { return };
        judged.extend(rows.into_iter().filter(|it| !it[1].is_empty()));
    }
    ours.sort();
    judged.sort();
    assert_eq!(ours, judged);
    assert_eq!(ours.len(), 17);
}

/// tcpdump.org says that link type 242 begins so; tshark 4.0 does not read it.
#[test]
fn link_type_242_may_begin_with_its_header_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_, events) = told(folder.path(), IPOIB, &[[&V4[..], &v4()].concat()]);
    let [alert] = alerts(&events, 1)[..] else { panic!("{events:#?}") };
    assert_eq!(alert["packet_info"]["linktype"], 242);
    assert_eq!((&alert["pkt_src"], &alert["tunnel"]), (&"wire/pcap".into(), &Value::Null));
    assert_eq!(["ipoib", "ipv4", "udp", "invalid"].map(|it| counted(&events, it)), [1, 1, 1, 0]);
}

#[test]
fn the_packet_inside_has_a_flow_and_the_one_around_it_is_rdma_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let packets = [native(UD_SEND, false, &[&V4, &v4()]), native(UD_SEND, false, &[&V4, &v4()])];
    let (_, events) = told(folder.path(), INFINIBAND, &packets);
    let ([inside, _], [around, _]) = (&alerts(&events, 1)[..], &alerts(&events, 2)[..]) else {
        panic!("{events:#?}")
    };
    assert_eq!([&inside["proto"], &inside["pkt_src"]], ["UDP", "ipoib encapsulation"]);
    assert_eq!(inside["payload_printable"], "weir!", "padding and ICRC are none of it");
    assert_eq!(inside["packet_info"]["linktype_name"], "RAW");
    let tunnel = &inside["tunnel"];
    assert_eq!([&tunnel["proto"], &tunnel["pkt_src"]], ["IPoIB", "wire/pcap"]);
    assert_eq!([&tunnel["depth"], &tunnel["pcap_cnt"]], [1, 1]);
    assert_eq!(tunnel["src_ip"], around["src_ip"]);
    assert_eq!([&around["proto"], &around["rdma"]["operation"]], ["RDMA", "UD SEND Only"]);
    let flows = events.iter().filter(|it| it["event_type"] == "flow");
    let flows: Vec<_> = flows
        .map(|it| (&it["proto"], &it["flow"]["pkts_toserver"], &it["flow"]["bytes_toserver"]))
        .map(|(protocol, packets, bytes)| (protocol.as_str().unwrap(), packets, bytes))
        .collect();
    let bytes_around = 2 * packets[0].len();
    for flow in [("UDP", 2, 2 * v4().len()), ("RDMA", 2, bytes_around)] {
        let flow = (flow.0, &Value::from(flow.1), &Value::from(flow.2));
        assert!(flows.contains(&flow), "{flow:?} of {flows:?}");
    }
    assert_eq!(flows.len(), 2);
    let counts = ["pkts", "infiniband", "ipoib", "ipv4", "udp"].map(|it| counted(&events, it));
    assert_eq!((counts, counted(&events, "bytes")), ([2; 5], bytes_around as u64));
}

/// The reserved bytes are nobody's business, and what follows the packet is not read.
#[test]
fn what_a_receiver_takes_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    for payload in [[&[8, 0, 0xab, 0xcd], &v4()[..], &[]], [&V4, &v4(), b"more"]] {
        let (_, events) = told(folder.path(), INFINIBAND, &[native(UD_SEND, true, &payload)]);
        assert_eq!([1, 2].map(|sid| alerts(&events, sid).len()), [1, 1]);
    }
}

#[test]
fn what_does_not_fit_is_rdma_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let changed = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        packet
    };
    let ud = |header: [u8; 4], packet: Vec<u8>| native(UD_SEND, false, &[&header, &packet]);
    for (name, packet) in [
        ("a version that is none", ud(V4, changed(v4(), 0, 0x55))),
        ("a header that is too short", ud(V4, changed(v4(), 0, 0x44))),
        ("more than there is", ud(V4, changed(v4(), 3, v4()[3] + 1))),
        ("less than its header", ud(V4, changed(v4(), 3, 19))),
        ("another's type", ud(V6, v4())),
        ("more of IPv6 than there is", ud(V6, changed(v6(), 5, 14))),
        ("a type that IPoIB has not", ud([0x81, 0, 0, 0], v4())),
        ("nothing behind the header", ud(V4, b"weir"[..4].to_vec())),
        ("Ethernet's ARP", ud(ARP, [&changed(arp(), 1, 1)[..], b"weir"].concat())),
        ("an ARP that ends early", ud(ARP, [&arp()[..50], b"weir"].concat())),
        ("a datagram with immediate data", native(UD_SEND_IMMEDIATE, false, &[&V4, &v4()])),
        ("a write", native(RC_WRITE, false, &[&V4, &v4()])),
    ] {
        let (_, events) = told(folder.path(), INFINIBAND, &[packet]);
        assert_eq!([1, 2].map(|sid| alerts(&events, sid).len()), [0, 1], "{name}: {events:#?}");
        let none = ["ipoib", "ipv4", "ipv6", "arp", "udp", "invalid"];
        assert_eq!(none.map(|it| counted(&events, it)), [0; 6], "{name}");
        assert!(events.iter().all(|it| it["event_type"] != "anomaly"), "{name}: {events:#?}");
    }
}

/// IPoIB does not run over RoCE: there Ethernet carries IP.
#[test]
fn over_roce_nothing_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let native = native(UD_SEND, false, &[&V4, &v4()]);
    // From the BTH to the ICRC.
    let message = &native[8..native.len() - 2];
    let udp = datagram([49152, 4791], 8 + message.len() as u16, message);
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &packet(17, [1, 2], &udp)];
    let (_, events) = told(folder.path(), 1, &[frame.concat()]);
    assert_eq!([1, 2].map(|sid| alerts(&events, sid).len()), [0, 1]);
}

#[test]
fn pieces_and_tunnels_inside_are_looked_into_too() {
    let folder = tempfile::tempdir().unwrap();
    let whole = datagram([47000, 47001], 13, b"weir!");
    let pieces = [piece(0, true, &whole[..8]), piece(1, false, &whole[8..])];
    let packets = pieces.map(|it| native(UD_SEND, false, &[&V4, &it[14..]]));
    let (_, events) = told(folder.path(), INFINIBAND, &packets);
    let [alert] = alerts(&events, 1)[..] else { panic!("{events:#?}") };
    assert_eq!([&alert["pkt_src"], &alert["tunnel"]["proto"]], ["defrag", "IPoIB"]);

    let frame = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &[2; 12], &[8, 0], &v4()].concat();
    let vxlan = packet(17, [3, 4], &datagram([9, 4789], 8 + frame.len() as u16, &frame));
    let (_, events) = told(folder.path(), INFINIBAND, &[native(RC_SEND, true, &[&V4, &vxlan])]);
    let [alert] = alerts(&events, 1)[..] else { panic!("{events:#?}") };
    assert_eq!([&alert["pkt_src"], &alert["src_ip"]], ["vxlan encapsulation", "192.0.2.1"]);
    assert_eq!(
        [&alert["tunnel"]["proto"], &alert["tunnel"]["depth"]],
        [&Value::from("IPoIB"), &2.into()]
    );
}

#[test]
fn what_is_in_too_many_others_is_not_looked_at_which_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let around = |inner: Vec<u8>| {
        let mut outer = packet(4, [5, 6], &[]);
        outer[2..4].copy_from_slice(&(20 + inner.len() as u16).to_be_bytes());
        [outer, inner].concat()
    };
    for (layers, found, told_of) in [(14, 1, 0), (20, 0, 1)] {
        let deep = (0..layers).fold(v4(), |inner, _| around(inner));
        let packets = [native(UD_SEND, false, &[&V4, &deep])];
        let (_, events) = told(folder.path(), INFINIBAND, &packets);
        assert_eq!(alerts(&events, 1).len(), found, "{layers}");
        assert_eq!(counted(&events, "too_many_layers"), told_of, "{layers}");
        assert_eq!(counted(&events, "ipoib"), 1, "{layers}");
    }
}

#[test]
fn a_test_of_weir_verify_may_have_such_a_capture() {
    for (name, link, packet) in [
        ("ipoib", IPOIB, for_whom(&[&V4, &v4()])),
        ("native", INFINIBAND, native(UD_SEND, true, &[&V4, &v4()])),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        written(&folder.path().join("in.pcap"), link, &[packet]);
        put("test.rules", RULES);
        put(
            "test.yaml",
            "args: ['-k none']\nchecks:\n  - filter: {count: 1, match: {event_type: alert, \
             alert.signature_id: 1, dest_port: 47001}}\n",
        );
        assert_eq!(verified(folder.path())["passed"], 1, "{name}");
    }
}
