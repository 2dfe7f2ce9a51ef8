//! From clear to sealed without an outage: observe, prefer, require, under traffic.

use rustix::process::Signal;
use weir_lab::gateways::{KeySource, configurations, configure};
use weir_lab::observe::NEIGHBOUR;
use weir_lab::topology::Side;
use weir_lab::traffic::bypass::stream_while;

use super::*;

const HANDSHAKES: &str = "udp port 51840";
const OBSERVE: &str = "sealing = \"observe\"\n";

fn observing() -> Setup {
    let (lines, peer_lines) = (String::new(), OBSERVE.to_owned());
    let keys = KeySource::Handshakes { lines, peer_lines };
    Setup { keys, ..Setup::new(WEIR, Protection::Sealed) }
}

/// The side's configuration with another `sealing`, taken by SIGHUP.
#[track_caller]
fn step(lab: &Lab, gateways: &mut Gateways, side: Side, text: &str, sealing: &str) {
    let before = number(&gateways.status(side).unwrap(), "/pairs/0/policy_epoch");
    let text = text.replace(OBSERVE, &format!("sealing = \"{sealing}\"\n"));
    configure(lab, side, &text).unwrap();
    gateways.daemon(side).signal(Signal::HUP).unwrap();
    wait_status(gateways, side, |it| it["pairs"][0]["policy_epoch"] == before + 1);
}

fn up(status: &Value) -> bool {
    status["pairs"][0]["peers"][0]["keying"]["state"] == "up"
}

fn sealed_now(status: &Value) -> bool {
    status["pairs"][0]["peers"][0]["rollout"]["is_sealed"] == true
}

#[test]
fn observe_prefer_require_on_both_ends_loses_no_packet_and_ends_with_esp_alone() {
    let Some(Stand { _turn, lab }) = stand("a_roll_out_loses_no_packet") else { return };
    let setup = observing();
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    for side in Side::BOTH {
        wait_status(&gateways, side, up);
        let status = gateways.status(side).unwrap();
        assert_eq!(number(&status, "/pairs/0/host/sealed"), 0, "only observed");
        assert!(number(&status, "/pairs/0/peers/0/rollout/sent_packets") > 0);
    }
    let wire = listen(&lab, 256);
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, 5000, || {
        pause(300);
        for sealing in ["prefer", "require"] {
            for side in Side::BOTH {
                step(&lab, &mut gateways, side, &texts[side.index()], sealing);
            }
            if sealing == "prefer" {
                for side in Side::BOTH {
                    wait_status(&gateways, side, sealed_now);
                }
            }
        }
        // And some by ESP alone.
        pause(1000);
    })
    .unwrap();
    assert!(streamed.sent > 4000, "{streamed:?}");
    assert!(streamed.is_exact(), "{streamed:?}\n{}", gateways.drops(Side::A).unwrap());
    let during = wire.stop().unwrap();
    let clear = format!("not ({ESP}) and not ({HANDSHAKES}) and not ({NEIGHBOUR})");
    assert!(during.count(&clear).unwrap() > 0, "it began in clear");
    assert!(during.count(ESP).unwrap() > 1000, "and was sealed under way");

    let wire = listen(&lab, 256);
    let report = ping_all(lab.host(Side::A), &lab.host_v4(Side::B).to_string(), 20, 200).unwrap();
    assert_eq!(report.answered, report.sent);
    let after = wire.stop().unwrap();
    let clear = format!("not ({ESP}) and not ({HANDSHAKES}) and not {}", own_arp());
    assert_eq!(after.count(&clear).unwrap(), 0, "ESP only");
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        assert!(status["pairs"][0]["peers"][0]["rollout"].is_null(), "{status:#}");
        assert!(status["pairs"][0]["wire"]["dropped_by_reason"]["not_sealed"].is_null());
    }
}

/// The gateways' own address resolution, in tcpdump's words.
fn own_arp() -> String {
    format!("({})", gateways_neighbour())
}

#[test]
fn prefer_seals_when_the_peer_comes_and_takes_clear_from_a_peer_that_observes() {
    let Some(Stand { _turn, lab }) = stand("prefer_seals_when_the_peer_comes") else { return };
    let setup = observing();
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    step(&lab, &mut gateways, Side::A, &texts[0], "prefer");
    wait_status(&gateways, Side::A, |it| up(it) && sealed_now(it));
    let target = lab.host_v4(Side::B).to_string();
    let report = ping_all(lab.host(Side::A), &target, 10, 200).unwrap();
    assert_eq!(report.answered, report.sent, "sealed there, in clear back");

    // B ends and starts again: A finds it dead, then alive.
    gateways.end(Side::B, Signal::KILL).unwrap();
    wait_status(&gateways, Side::A, |it| !sealed_now(it));
    let told = || Ok(gateways.log(Side::A).contains("IN CLEAR"));
    interrupt::until("word that it passes in clear", PATIENCE, told).unwrap();
    gateways.start_again(&lab, &setup, Side::B).unwrap();
    wait_until_it_flows(&lab);
    wait_status(&gateways, Side::A, sealed_now);
    let report = ping_all(lab.host(Side::A), &target, 10, 200).unwrap();
    assert_eq!(report.answered, report.sent);

    // What requires takes no plaintext from it.
    step(&lab, &mut gateways, Side::A, &texts[0], "require");
    let lost = ping(lab.host(Side::A), &target, 3, 200).unwrap();
    assert_eq!(lost.answered, 0, "B answers in clear, A drops it");
    let status = gateways.status(Side::A).unwrap();
    assert!(number(&status, "/pairs/0/wire/dropped_by_reason/not_sealed") >= 3);
}
