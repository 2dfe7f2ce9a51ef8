//! The peer works: wireguard-go carries traffic between the hosts, sealed on the wire.

use weir_lab::observe::Capture;
use weir_lab::topology::{Gateways, Lab, Plan, Side, WIRE_END_A};
use weir_lab::traffic::{Kind, ping};
use weir_lab::wireguard::{self, Tunnel};

#[test]
fn wireguard_go_carries_and_seals() {
    if let Err(reason) = wireguard::program() {
        return eprintln!("SKIPPED: wireguard_go_carries_and_seals: {reason:#}");
    }
    let lab = match Lab::build(Plan { gateways: Gateways::Routed, ..Plan::default() }) {
        Ok(lab) => lab,
        Err(reason) => return eprintln!("SKIPPED: wireguard_go_carries_and_seals: {reason:#}"),
    };
    let _tunnel = Tunnel::start(&lab).expect("the tunnel comes up");
    let file = lab.folder().join("wire.pcap");
    let capture = Capture::start(lab.wire(), WIRE_END_A, &file, 256).expect("tcpdump listens");
    let target = lab.host_v4(Side::B).to_string();
    let report = ping::ping_all(lab.host(Side::A), &target, 10, 56).expect("ping counts");
    let captured = capture.stop().expect("tcpdump accounts");
    assert_eq!(report.answered, 10);
    assert_eq!(captured.count(Kind::Ping.capture_filter()).expect("counted"), 0);
    assert!(captured.count("udp port 51820").expect("counted") >= 20);
}
