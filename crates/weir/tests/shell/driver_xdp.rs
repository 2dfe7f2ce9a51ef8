//! Two gateways that move frames by AF_XDP, in a lab of five namespaces. Judges: ping, and the
//! bytes of recorded RoCE frames on arrival. Needs root; says so and passes where there is none.

use std::path::PathBuf;
use std::time::Duration;

use weir_lab::gateways::{Gateways, Protection, Setup};
use weir_lab::interrupt;
use weir_lab::topology::{HOST_DEVICE, Lab, Plan, Side};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::ping::{ping, ping_all};
use weir_lab::traffic::{Kind, bypass};

#[test]
fn pings_and_roce_frames_cross_sealed_gateways_by_af_xdp_byte_for_byte() {
    let lab = match Lab::build(Plan::default()) {
        Ok(lab) => lab,
        Err(reason) => {
            eprintln!("SKIPPED: gateways by AF_XDP: {reason:#}");
            return;
        }
    };
    for side in Side::BOTH {
        // XDP does not see that a veth's sender left a checksum unfinished.
        let off = format!("ethtool -K {HOST_DEVICE} tx off tso off gso off");
        lab.host(side).run(&off).expect("ethtool");
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_weir"));
    let setup = Setup { driver: Some("xdp".to_owned()), ..Setup::new(program, Protection::Sealed) };
    let gateways = Gateways::start(&lab, &setup).expect("both start");
    let target = lab.host_v4(Side::B).to_string();
    let answered = || Ok(ping(lab.host(Side::A), &target, 2, 56)?.answered > 0);
    interrupt::until("answer through the gateways", Duration::from_secs(30), answered)
        .expect("they find each other");
    for payload_len in [56, 8000] {
        let report = ping_all(lab.host(Side::A), &target, 5, payload_len).expect("ping runs");
        assert_eq!((report.sent, report.answered), (5, 5), "{payload_len} bytes");
    }
    for kind in [Kind::RoceV2, Kind::RoceV1] {
        let frames = planned(kind, 300).expect("planned");
        let exchange = bypass::exchange(&lab, &frames, 2000).expect("exchanged");
        assert!(exchange.is_exact(), "{}: {exchange:?}", kind.name());
    }
    let status = gateways.status(Side::A).expect("it answers");
    assert_eq!(status["pairs"][0]["driver"], "xdp");
    assert_eq!(status["adds_up"], true);
}
