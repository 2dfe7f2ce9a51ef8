//! With a policy that seals, no plaintext reaches the wire, whatever becomes of the gateways.

use rustix::process::Signal;
use weir_lab::gateways::{Gateways, configurations, configure};
use weir_lab::observe::ESP;
use weir_lab::topology::Side;

use super::*;

#[test]
fn nothing_leaves_in_clear_before_at_or_after_start_reload_crash_and_end() {
    let Some(Stand { _turn, lab }) = stand("nothing_leaves_in_clear") else { return };
    let setup = sealed();
    let wire = listen(&lab, 512);
    under_traffic(&lab, || {
        pause(500);
        let texts = configurations(&lab, &setup).unwrap();
        let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
        wait_until_it_flows(&lab);
        for side in Side::BOTH {
            reload(&lab, &mut gateways, side, &texts[side.index()]);
        }
        wait_until_it_flows(&lab);
        for signal in [Signal::KILL, Signal::TERM] {
            for side in Side::BOTH {
                gateways.end(side, signal).unwrap();
                pause(300);
                gateways.start_again(&lab, &setup, side).unwrap();
                pause(300);
            }
            wait_until_it_flows(&lab);
        }
        for (side, signal) in [(Side::A, Signal::KILL), (Side::B, Signal::TERM)] {
            gateways.end(side, signal).unwrap();
        }
        pause(500);
    });
    let wire = wire.stop().unwrap();
    assert!(wire.count(ESP).unwrap() > 500, "traffic was sealed meanwhile");
    assert_sealed(&wire);
}

/// A broken file is refused, a changed one is taken.
fn reload(lab: &Lab, gateways: &mut Gateways, side: Side, text: &str) {
    configure(lab, side, &format!("{text}colour = \"red\"\n")).unwrap();
    gateways.daemon(side).signal(Signal::HUP).unwrap();
    wait_status(gateways, side, |status| status["reloads_refused"] == 1);
    configure(lab, side, &text.replace("[[pair]]", "[[pair]]\nicrc = \"off\"")).unwrap();
    gateways.daemon(side).signal(Signal::HUP).unwrap();
    wait_status(gateways, side, |status| status["pairs"][0]["policy_epoch"] == 2);
}
