//! Two gateways keyed by `ip xfrm` alone.

use weir_lab::observe::{Capture, ESP};
use weir_lab::topology::{HOST_V4, WIRE_END_A};

use super::*;

/// The set-up of Mireles's thesis: transport mode between two hosts, word for word but for the
/// addresses.
pub(crate) fn transport(from: &str, to: &str, back: bool, spi: u32, key: &str) -> [String; 2] {
    let direction = if back { "in" } else { "out" };
    [
        format!(
            "ip xfrm state add src {from} dst {to} proto esp spi {spi:#x} reqid 1 mode transport \
             aead 'rfc4106(gcm(aes))' {key} 128"
        ),
        format!(
            "ip xfrm policy add src {from} dst {to} dir {direction} \
             tmpl src {from} dst {to} proto esp reqid 1 mode transport"
        ),
    ]
}

#[test]
fn ip_xfrm_word_for_word_seals_between_two_gateways() {
    let Some(Stand { lab, _turn }) = stand("ip xfrm", Plan::default(), &[]) else { return };
    let gateways = gateways(&lab, "default = \"drop\"\n");
    let [a, b] = HOST_V4.map(|it| it.to_string());
    let keys = ["0x".to_owned() + &"1a".repeat(20), "0x".to_owned() + &"2b".repeat(36)];
    for side in Side::BOTH {
        for line in transport(&a, &b, side == Side::B, 0x1001, &keys[0]).iter().chain(&transport(
            &b,
            &a,
            side == Side::A,
            0x1002,
            &keys[1],
        )) {
            xfrm(&lab, side, line);
        }
    }
    wait_for_ping(&lab, &b);
    let file = lab.folder().join("wire.pcap");
    let wire = Capture::start(lab.wire(), WIRE_END_A, &file, 256).unwrap();
    let report = ping(lab.host(Side::A), &b, 10, 1000).unwrap();
    assert_eq!(report.answered, 10, "{}", gateways.log(Side::A));
    let wire = wire.stop().unwrap();
    assert!(wire.count(ESP).unwrap() >= 20);
    assert_eq!(wire.count("icmp").unwrap(), 0, "in clear");
    let shown = xfrm(&lab, Side::A, "ip -s xfrm state");
    for word in ["rfc4106(gcm(aes))", "0x00001001", "mode transport", "reqid 1", "(INF)(bytes)"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}
