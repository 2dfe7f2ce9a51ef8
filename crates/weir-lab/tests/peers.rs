//! The other peers work: OpenVPN and strongSwan's user-space ESP carry traffic between the hosts,
//! sealed on the wire.

use anyhow::Result;
use weir_lab::observe::Capture;
use weir_lab::topology::{Gateways, Lab, Plan, Side, WIRE_END_A};
use weir_lab::traffic::{Kind, ping};
use weir_lab::{openvpn, process, strongswan};

#[test]
fn openvpn_carries_and_seals() {
    if let Err(reason) = process::require(&["openvpn", "openssl"]) {
        return eprintln!("SKIPPED: openvpn_carries_and_seals: {reason:#}");
    }
    carries_and_seals("openvpn_carries_and_seals", openvpn::Tunnel::start, "udp port 1194", 9000);
}

#[test]
fn libipsec_carries_and_seals() {
    if let Err(reason) = strongswan::available() {
        return eprintln!("SKIPPED: libipsec_carries_and_seals: {reason:#}");
    }
    let (start, sealed) = (strongswan::Tunnel::start, "udp port 4500");
    carries_and_seals("libipsec_carries_and_seals", start, sealed, strongswan::DEVICE_MTU);
}

/// Packets nearly as large as the wire or `device_mtu` lets them be come through whole.
fn carries_and_seals<T>(test: &str, start: fn(&Lab) -> Result<T>, sealed: &str, device_mtu: u32) {
    for mtu in [9000, 1500] {
        let gateways = Gateways::Routed;
        let plan = Plan { gateways, host_mtu: mtu, wire_mtu: mtu, ..Plan::default() };
        let lab = match Lab::build(plan) {
            Ok(lab) => lab,
            Err(reason) => return eprintln!("SKIPPED: {test}: {reason:#}"),
        };
        let _tunnel = start(&lab).expect("the tunnel comes up");
        let file = lab.folder().join("wire.pcap");
        let capture = Capture::start(lab.wire(), WIRE_END_A, &file, 256).expect("tcpdump listens");
        let target = lab.host_v4(Side::B).to_string();
        for payload_len in [56, mtu.min(device_mtu) - 200] {
            let report = ping::ping_all(lab.host(Side::A), &target, 10, payload_len).expect("ping");
            assert_eq!(report.answered, 10, "MTU {mtu}, {payload_len} bytes");
        }
        let captured = capture.stop().expect("tcpdump accounts");
        assert_eq!(captured.count(Kind::Ping.capture_filter()).expect("counted"), 0);
        assert!(captured.count(sealed).expect("counted") >= 40, "each in one packet");
        assert_eq!(captured.count("ip[6:2] & 0x3fff != 0").expect("counted"), 0, "fragments");
    }
}
