//! A pure bump in the wire: gateways without an address of their own, ESP between the hosts'.

use weir_lab::observe::NEIGHBOUR;
use weir_lab::topology::{HOST_V4, Side};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, bypass, tcp};

use super::*;

const TRANSFER_BYTES: usize = 8 << 20;

#[test]
fn tunnel_mode_without_an_address_carries_everything_under_the_hosts_addresses() {
    carries_everything(Protection::BorrowedTunnel);
}

#[test]
fn transport_mode_without_an_address_carries_everything_under_the_hosts_addresses() {
    carries_everything(Protection::BorrowedTransport);
}

fn carries_everything(protection: Protection) {
    let Some(Stand { _turn, lab }) = stand(&format!("{protection:?}")) else { return };
    let wire = listen(&lab, 512);
    let gateways = sealing_gateways(&lab, &Setup::new(WEIR, protection));
    let host = lab.host(Side::A);
    for target in [lab.host_v4(Side::B).to_string(), HOST_V6[1].to_string()] {
        for payload_len in [56, 4000] {
            let report = ping_all(host, &target, 10, payload_len).unwrap();
            assert_eq!(report.answered, report.sent, "{target} {payload_len}");
        }
    }
    assert_eq!(tcp::transfer(&lab, TRANSFER_BYTES).unwrap(), TRANSFER_BYTES as u64);
    let frames = planned(Kind::RoceV2, 300).unwrap();
    let exchange = bypass::exchange(&lab, &frames, 2000).unwrap();
    assert!(exchange.is_exact(), "{exchange:?}; {}", gateways.drops(Side::A).unwrap());

    let wire = wire.stop().unwrap();
    assert_eq!(wire.dropped_by_kernel, 0);
    let clear = format!("not ({ESP}) and not ({NEIGHBOUR})");
    assert_eq!(wire.count(&clear).unwrap(), 0, "in clear, besides address resolution");
    assert!(!wire.contains(&ROCE_MARK).unwrap());
    let between = |a: String, b: String, protocol: &str| {
        format!("{protocol} proto 50 and ((src {a} and dst {b}) or (src {b} and dst {a}))")
    };
    let v4 = between(HOST_V4[0].to_string(), HOST_V4[1].to_string(), "ip");
    let v6 = between(HOST_V6[0].to_string(), HOST_V6[1].to_string(), "ip6");
    let [v4, v6] = [v4, v6].map(|filter| wire.count(&filter).unwrap());
    assert!(v4 > 500 && v6 > 20, "{v4} and {v6}");
    assert_eq!(v4 + v6, wire.count(ESP).unwrap(), "outer addresses are the hosts'");
}
