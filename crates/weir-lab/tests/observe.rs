//! The strangers that count: each sees what passes, and the firewall stops what the kernel sees.

use std::net::IpAddr;

use weir_lab::observe::{Capture, Firewall};
use weir_lab::topology::{Gateways, HOST_DEVICE, Lab, Plan, Side, WIRE_END_A};
use weir_lab::traffic::iperf::{self, Extent};
use weir_lab::traffic::{Kind, ping};

fn bridged(test: &str) -> Option<Lab> {
    match Lab::build(Plan { gateways: Gateways::Bridge, ..Plan::default() }) {
        Ok(lab) => Some(lab),
        Err(reason) => {
            eprintln!("SKIPPED: {test}: {reason:#}");
            None
        }
    }
}

#[test]
fn the_wire_shows_each_ping_once_and_nothing_of_the_gateways() {
    let Some(lab) = bridged("the_wire_shows_each_ping_once") else { return };
    let file = lab.folder().join("wire.pcap");
    let capture = Capture::start(lab.wire(), WIRE_END_A, &file, 256).expect("tcpdump listens");
    let target = lab.host_v4(Side::B).to_string();
    let report = ping::ping(lab.host(Side::A), &target, 10, 56).expect("ping counts");
    let captured = capture.stop().expect("tcpdump accounts");
    assert_eq!((report.sent, report.answered), (10, 10));
    assert_eq!(captured.dropped_by_kernel, 0);
    assert_eq!(captured.count(Kind::Ping.capture_filter()).expect("counted"), 20);
    // Hosts announce their IPv6 groups whenever they like; gateways and wire send nothing at all.
    let others = "not icmp and not arp and not dst net ff00::/8 and not icmp6";
    assert_eq!(captured.count(others).expect("counted"), 0);
    let strangers = "not ether src 02:77:00:00:00:0a and not ether src 02:77:00:00:00:0b";
    assert_eq!(captured.count(strangers).expect("counted"), 0);
    assert!(captured.contains(&[0x10, 0x11, 0x12, 0x13, 0x14, 0x15]).expect("grep"), "in clear");
    assert!(!captured.contains(&[0x10, 0x11, 0x12, 0x13, 0x14, 0x16]).expect("grep"), "unsaid");
}

#[test]
fn the_wire_shows_real_tcp_frames_not_super_packets() {
    let Some(lab) = bridged("the_wire_shows_real_tcp_frames") else { return };
    let file = lab.folder().join("wire.pcap");
    let capture = Capture::start(lab.wire(), WIRE_END_A, &file, 96).expect("tcpdump listens");
    let address = IpAddr::V4(lab.host_v4(Side::B));
    let (a, b) = (lab.host(Side::A), lab.host(Side::B));
    let report = iperf::tcp(a, b, address, Extent::Bytes(20_000_000)).expect("iperf3 runs");
    let captured = capture.stop().expect("tcpdump accounts");
    assert_eq!(report.congestion_control, "cubic");
    let frames = captured.count("tcp src portrange 1024-65535 and dst port 5201").expect("counted");
    assert!(frames >= report.bytes / 8960, "{frames} frames for {} bytes", report.bytes);
    assert_eq!(captured.count("greater 9015").expect("counted"), 0, "longer than the MTU");
}

#[test]
fn a_host_firewall_stops_what_the_kernel_sees() {
    let Some(lab) = bridged("a_host_firewall_stops_what_the_kernel_sees") else { return };
    let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE).expect("nftables");
    let target = lab.host_v4(Side::B);
    let report = ping::ping(lab.host(Side::A), &target.to_string(), 4, 56).expect("ping counts");
    assert_eq!((report.sent, report.answered), (4, 0));
    assert_eq!(firewall.stopped(Kind::Ping).expect("counted"), 4);
    iperf::tcp_refused(lab.host(Side::A), IpAddr::V4(target)).expect("no connection");
    assert!(firewall.stopped(Kind::Tcp).expect("counted") >= 1);
    assert_eq!(firewall.stopped(Kind::RoceV2).expect("counted"), 0);
    drop(firewall);
    let report = ping::ping(lab.host(Side::A), &target.to_string(), 2, 56).expect("ping counts");
    assert_eq!(report.answered, 2, "the rules went with their guard");
}
