//! `weir witness` on the wire between two gateways, beside tcpdump, and the gateways' own proof.

use rustix::process::Signal;
use weir_lab::topology::{GATEWAY_MAC, GATEWAY_V4, WIRE_END_B, WIRE_PORT};
use weir_lab::traffic::bypass::{send_frames, stream};

use super::*;

/// A witness at work on the wire.
pub(super) fn witness(lab: &Lab, more: &[&str]) -> Running {
    let mut command = lab.wire().command(WEIR);
    command.args(["witness", "-i", WIRE_END_B, "--json"]).args(more);
    let mut running = Running::start(&mut command).unwrap();
    running.wait_for("a witness listens", PATIENCE).unwrap();
    running
}

/// Its report, and its exit code.
pub(super) fn testimony(running: Running) -> (Value, Option<i32>) {
    let finished = running.stop(Signal::INT).unwrap();
    let report = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", finished.stdout, finished.stderr));
    (report, finished.status.code())
}

fn between_gateways() -> Vec<String> {
    let addresses = GATEWAY_V4.iter().map(ToString::to_string);
    ["--between".to_owned()].into_iter().chain(addresses).collect()
}

#[test]
fn a_witness_sees_nothing_wrong_between_sealing_gateways() {
    let Some(Stand { _turn, lab }) = stand("a_witness_sees_nothing_wrong") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let between = between_gateways();
    let between: Vec<&str> = between.iter().map(String::as_str).collect();

    let wire = listen(&lab, 65_535);
    let running = witness(&lab, &between);
    let streamed = stream(&lab, &RoceStream::new(1024).unwrap(), 300, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    under_traffic(&lab, || pause(500));
    let (report, code) = testimony(running);
    let wire = wire.stop().unwrap();
    assert_sealed(&wire);
    assert_eq!((number(&report, "/violations"), number(&report, "/lost")), (0, 0), "{report:#}");
    assert_eq!(code, Some(0));
    // tcpdump listened before and after.
    let esp = number(&report, "/esp");
    assert!((300..=wire.count(ESP).unwrap()).contains(&esp), "{report:#}");
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        assert_eq!(number(&status, "/pairs/0/wire_proof/plaintext"), 0);
        let proved = number(&status, "/pairs/0/wire_proof/esp");
        assert!(proved > 300 || side == Side::B, "{status:#}");
        assert_eq!(status["pairs"][0]["wire_proof"]["adds_up"], true);
    }
}

#[test]
fn a_witness_finds_gateways_whose_policy_is_clear() {
    let Some(Stand { _turn, lab }) = stand("a_witness_finds_clear_gateways") else { return };
    let _gateways = sealing_gateways(&lab, &Setup::new(WEIR, Protection::Plain));
    let running = witness(&lab, &["--sealed", "10.0.0.0/8", "--allow", "arp"]);
    let wire = listen(&lab, 256);
    let report = ping_all(lab.host(Side::A), &lab.host_v4(Side::B).to_string(), 20, 56).unwrap();
    assert_eq!(report.answered, report.sent);
    let pings = wire.stop().unwrap().count("icmp").unwrap();
    let (report, code) = testimony(running);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(number(&report, "/plaintext"), pings, "{report:#}");
    assert!(pings >= 40);
}

#[test]
fn esp_of_more_associations_than_can_be_watched_is_no_proof() {
    const WATCHED: u32 = 4096;
    let Some(Stand { _turn, lab }) = stand("esp_of_more_associations") else { return };
    let [from, to] = GATEWAY_V4.map(|it| it.octets());
    let esp = |spi: u32| {
        let mut frame = [GATEWAY_MAC[1], GATEWAY_MAC[0]].concat();
        frame.extend([8, 0, 0x45, 0, 0, 80, 0, 0, 0x40, 0, 64, 50, 0, 0]);
        frame.extend([from, to, (256 + spi).to_be_bytes(), [0, 0, 0, 1]].concat());
        frame.resize(14 + 80, 0xa5);
        frame
    };
    for (made_up, code) in [(WATCHED, 0), (WATCHED + 2, 1)] {
        let between = between_gateways();
        let running = witness(&lab, &between.iter().map(String::as_str).collect::<Vec<_>>());
        let frames: Vec<Vec<u8>> = (0..made_up).map(esp).collect();
        send_frames(lab.gateway(Side::A), WIRE_PORT, &frames, 20_000).unwrap();
        pause(500);
        let (report, ended) = testimony(running);
        assert_eq!(number(&report, "/esp"), u64::from(made_up), "{report:#}");
        assert_eq!(number(&report, "/violations"), 0);
        assert_eq!(number(&report, "/unwatched_esp"), u64::from(made_up - WATCHED));
        assert_eq!((report["is_proof"].as_bool(), ended), (Some(code == 0), Some(code)));
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let output = Command::new(WEIR).args(["witness", "-i", "no-such-port"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no-such-port: no such interface"), "{said}");
    let output = Command::new(WEIR).args(["witness", "-i", "lo", "--allow", "gossip"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}
