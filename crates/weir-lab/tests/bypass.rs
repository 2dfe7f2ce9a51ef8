//! Kernel-bypass traffic arrives byte for byte, unseen by the hosts' own tcpdump and firewall.

use weir_lab::observe::{Capture, Firewall};
use weir_lab::topology::{Gateways, HOST_DEVICE, Lab, Plan, Side, WIRE_END_A};
use weir_lab::traffic::frames::{RoceStream, planned};
use weir_lab::traffic::hostile::{Campaign, Hostile};
use weir_lab::traffic::{Kind, bypass};

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
fn bypass_traffic_is_intact_on_arrival_and_unseen_by_the_hosts_tcpdump_and_firewall() {
    let Some(lab) = bridged("bypass_traffic_is_intact_on_arrival") else { return };
    for kind in [Kind::RoceV2, Kind::RoceV1, Kind::TcpPrebuilt] {
        let frames = planned(kind, 100).expect("planned");
        let from_a = frames.iter().filter(|frame| frame.from == Side::A).count() as u64;
        let wire_file = lab.folder().join("wire.pcap");
        let hosts = Side::BOTH.map(|side| {
            let file = lab.folder().join(format!("host{side:?}.pcap"));
            Capture::start(lab.host(side), HOST_DEVICE, &file, 256).expect("tcpdump")
        });
        let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE).expect("nftables");
        let wire = Capture::start(lab.wire(), WIRE_END_A, &wire_file, 256).expect("tcpdump");
        let report = bypass::exchange(&lab, &frames, 5000).expect("exchanged");
        let wire = wire.stop().expect("accounts");
        assert_eq!(report.sent, frames.len() as u64, "{}", kind.name());
        assert!(report.is_exact(), "{}: {report:?}", kind.name());
        let sent_by_a = format!("({}) and ether src 02:77:00:00:00:0a", kind.capture_filter());
        assert_eq!(wire.count(&sent_by_a).expect("counted"), from_a, "{}", kind.name());
        for host in hosts {
            let host = host.stop().expect("accounts");
            assert_eq!(host.count(kind.capture_filter()).expect("counted"), 0, "{}", kind.name());
        }
        assert_eq!(firewall.stopped(kind).expect("counted"), 0, "{}", kind.name());
    }
}

#[test]
fn floods_and_scans_arrive_whoever_they_say_sent_them() {
    let Some(lab) = bridged("floods_and_scans_arrive") else { return };
    let kinds = [
        Hostile::SynFlood,
        Hostile::UdpFlood,
        Hostile::IcmpFlood,
        Hostile::DnsFlood,
        Hostile::HalfOpenFlood,
        Hostile::CarpetFlood,
        Hostile::AckFlood,
        Hostile::Scan,
    ];
    for (hostile, sources) in kinds.into_iter().flat_map(|it| [(it, 1), (it, 0)]) {
        for is_benign in [false, true] {
            let frames = Campaign { hostile, is_benign, count: 100, sources, seed: 7 }.frames();
            let report = bypass::exchange(&lab, &frames, 5000).expect("exchanged");
            assert_eq!(report.sent, frames.len() as u64, "{hostile:?}");
            assert!(report.is_exact(), "{hostile:?} from {sources}: {report:?}");
        }
    }
}

#[test]
fn a_stream_is_counted_frame_by_frame_at_the_receiving_host() {
    let Some(lab) = bridged("a_stream_is_counted_frame_by_frame") else { return };
    let counter = Firewall::raise(lab.host(Side::B), HOST_DEVICE).expect("nftables");
    let mut stream = RoceStream::new(1024).expect("a RoCE MTU");
    let blast = bypass::blast(&lab, &mut stream, 2000, 10_000).expect("sent");
    assert_eq!(blast.refused, 0);
    let arrived = || Ok(counter.stopped(Kind::RoceV2)? == blast.sent);
    weir_lab::interrupt::until("all frames", std::time::Duration::from_secs(10), arrived)
        .expect("every frame is counted");
}
