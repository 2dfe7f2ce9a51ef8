//! Sealed datagrams that leave together: what the wire and the far gateway get of them.

use weir_lab::topology::{WIRE_END_B, WIRE_PORT};
use weir_lab::traffic::bypass::stream;

use super::*;

const FRAMES: u64 = 4000;
const RATE_PER_SECOND: u32 = 40_000;

/// A column of the wire's ESP in UDP from gateway A.
fn column(wire: &Captured, field: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(wire.file()).args(["-o", "udp.check_checksum:TRUE"]);
    command.args(["-Y", "udp.port == 4500 && ip.src == 192.168.77.1", "-T", "fields", "-e", field]);
    let said = process::run(&mut command, PATIENCE).unwrap().stdout;
    said.lines().map(str::to_owned).collect()
}

#[test]
fn equal_datagrams_leave_together_and_each_is_a_packet_on_the_wire() {
    let test = "equal_datagrams_leave_together_and_each_is_a_packet_on_the_wire";
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    // The kernel makes the checksums, so that tshark has something to check.
    lab.gateway(Side::A).run(&format!("ethtool -K {WIRE_PORT} tx off")).unwrap();
    let setup = Setup { protection: Protection::SealedInUdp, ..sealed() };
    let gateways = sealing_gateways(&lab, &setup);
    let wire = listen(&lab, 9100);
    let roce = RoceStream::new(1024).unwrap();
    let streamed = stream(&lab, &roce, FRAMES, RATE_PER_SECOND).unwrap();
    assert!(streamed.is_exact() && streamed.sent >= FRAMES, "{streamed:?}");
    let captured = wire.stop().unwrap();

    let lens = column(&captured, "frame.len");
    assert!(lens.len() as u64 >= streamed.sent, "{} frames", lens.len());
    // RoCE in Ethernet in EtherIP in ESP in UDP: one frame each.
    let sealed = lens.iter().filter(|len| *len == "1162").count() as u64;
    assert_eq!(sealed, streamed.sent, "{:?}", &lens[..10]);
    // tshark's words for right, and for none: what left by itself.
    let [good, not_present] = ["1", "3"];
    let checksums = column(&captured, "udp.checksum.status");
    assert!(checksums.iter().all(|it| it == good || it == not_present), "a wrong UDP checksum");
    let joined = checksums.iter().filter(|it| *it == good).count();
    assert!(joined > 1000, "{joined} left together");
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(number(&status, "/pairs/0/wire_proof/plaintext"), 0);
    assert!(number(&status, "/pairs/0/wire_proof/esp") >= streamed.sent);
}

#[test]
fn a_wire_that_cuts_nothing_carries_them_together_to_a_gateway_that_does() {
    let test = "a_wire_that_cuts_nothing_carries_them_together_to_a_gateway_that_does";
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    for side in Side::BOTH {
        lab.gateway(side).run(&format!("ethtool -K {WIRE_PORT} tx-udp-segmentation on")).unwrap();
    }
    for end in [WIRE_END_A, WIRE_END_B] {
        lab.wire().run(&format!("ethtool -K {end} tx-udp-segmentation on")).unwrap();
    }
    let setup = Setup { protection: Protection::SealedInUdp, ..sealed() };
    let gateways = sealing_gateways(&lab, &setup);
    let wire = listen(&lab, 128);
    let before = number(&gateways.status(Side::B).unwrap(), "/pairs/0/wire/opened");
    let roce = RoceStream::new(1024).unwrap();
    let streamed = stream(&lab, &roce, FRAMES, RATE_PER_SECOND).unwrap();
    assert!(streamed.is_exact() && streamed.sent >= FRAMES, "{streamed:?}");

    let captured = wire.stop().unwrap();
    let lens: Vec<usize> =
        column(&captured, "frame.len").iter().map(|it| it.parse().unwrap()).collect();
    assert!(lens.iter().any(|len| *len > 9014), "none came together: {:?}", &lens[..10]);
    assert!((lens.len() as u64) < streamed.sent / 2, "{} frames", lens.len());
    let status = gateways.status(Side::B).unwrap();
    assert!(number(&status, "/pairs/0/wire/opened") >= before + streamed.sent);
}
