//! RoCE with a tag in the place of its ICRC: judged on the middle wire by scapy, in the hosts byte
//! by byte.

use rustix::process::Signal;
use weir_lab::gateways::{KeySource, configurations, configure};
use weir_lab::topology::{HOST_V4, WIRE_END_B};
use weir_lab::traffic::bypass::{exchange, send_frames, stream};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, tcp};
use weir_wire::frame::Link;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::parse;

use super::witness::{testimony, witness};
use super::*;

/// What a witness is told of the hosts.
const TAGGED_HOSTS: [&str; 2] = ["--tagged", "10.0.0.0/8"];
const ROCE: &str = "udp dst port 4791";

fn tagged() -> Setup {
    Setup::new(WEIR, Protection::Tagged)
}

/// RoCE v2 frames of a capture whose ICRC scapy computes as it stands there, and others.
const SCAPY: &str = r#"
import sys
from scapy.all import Ether, rdpcap
from scapy.contrib.roce import BTH
counts = [0, 0]
for packet in rdpcap(sys.argv[1]):
    if BTH not in packet:
        continue
    raw = bytes(packet)
    again = Ether(raw)
    again[BTH].icrc = None
    counts[bytes(again) != raw] += 1
print(*counts)
"#;

/// What a stranger says: right ICRCs and wrong ones. `None`: there is no stranger.
fn judged(wire: &Captured) -> Option<[u64; 2]> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|it| {
        let probe = Command::new(it).args(["-c", "import scapy"]).output();
        probe.is_ok_and(|output| output.status.success())
    });
    let mut command = Command::new(found.unwrap_or("python3"));
    let output = command.args(["-c", SCAPY]).arg(wire.file()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let mut counts = said.split_whitespace().map(|it| it.parse().ok());
    let (Some(Some(right)), Some(Some(wrong))) = (counts.next(), counts.next()) else {
        let words = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED: scapy as judge of ICRCs: {}", words.lines().last().unwrap_or(""));
        return None;
    };
    Some([right, wrong])
}

/// The same by Weir's own reader.
fn read(wire: &Captured) -> Value {
    let mut command = Command::new(WEIR);
    command.args(["read", "--json"]).arg(wire.file());
    serde_json::from_str(&process::run(&mut command, PATIENCE).unwrap().stdout).unwrap()
}

fn has_icrc(bytes: &[u8]) -> bool {
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    icrc::check(bytes, &parsed) == IcrcStatus::Valid
}

#[test]
fn every_icrc_is_wrong_on_the_wire_and_right_at_the_receiver_and_nothing_is_lost() {
    let Some(Stand { _turn, lab }) = stand("every_icrc_is_wrong_on_the_wire") else { return };
    let gateways = sealing_gateways(&lab, &tagged());
    let wire = listen(&lab, 65_535);
    for kind in [Kind::RoceV2, Kind::RoceV1] {
        let frames = planned(kind, 300).unwrap();
        let exchanged = exchange(&lab, &frames, 2000).unwrap();
        assert!(exchanged.is_exact(), "{exchanged:?}; {}", gateways.drops(Side::A).unwrap());
    }
    let streamed = stream(&lab, &RoceStream::new(4096).unwrap(), 1000, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let wire = wire.stop().unwrap();
    assert_eq!(wire.dropped_by_kernel, 0);
    let roce = wire
        .frames()
        .unwrap()
        .into_iter()
        .filter(|it| parse(it, Link::Ethernet, it.len() as u32).rdma.is_some());
    let [right, wrong] = roce.fold([0, 0], |[right, wrong], it| match has_icrc(&it) {
        true => [right + 1, wrong],
        false => [right, wrong + 1],
    });
    assert_eq!(right, 0, "of {wrong}");
    assert!(wrong > 1600, "{wrong}");
    let report = read(&wire);
    assert_eq!(number(&report, "/rdma/icrc_ok"), 0, "{report:#}");
    assert_eq!(number(&report, "/rdma/icrc_bad"), wrong as u64);
    if let Some([right, wrong]) = judged(&wire) {
        assert_eq!(right, 0, "scapy calls {wrong} wrong");
        assert!(wrong > 1000, "{wrong}");
    }
    for (side, verb) in [(Side::A, "tagged"), (Side::B, "restored")] {
        let status = gateways.status(side).unwrap();
        let peer = &status["pairs"][0]["peers"][0]["tag"];
        assert!(peer[format!("{verb}_packets")].as_u64().unwrap() > 1000, "{peer:#}");
        assert_eq!(number(&status, "/pairs/0/rdma/icrc_bad"), 0, "the meter sees what hosts see");
        assert_eq!(number(&status, "/pairs/0/wire_proof/plaintext"), 0);
        assert!(number(&status, "/pairs/0/wire_proof/tagged") > 100, "{status:#}");
        assert_eq!(status["pairs"][0]["wire"]["dropped"], 0, "{status:#}");
    }
}

#[test]
fn a_witness_sees_that_no_roce_packet_has_its_ordinary_icrc_and_the_one_that_has() {
    let Some(Stand { _turn, lab }) = stand("a_witness_of_tags") else { return };
    let gateways = sealing_gateways(&lab, &tagged());
    let running = witness(&lab, &TAGGED_HOSTS);
    let streamed = stream(&lab, &RoceStream::new(4096).unwrap(), 300, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let (report, code) = testimony(running);
    assert_eq!((number(&report, "/violations"), number(&report, "/lost")), (0, 0), "{report:#}");
    assert_eq!(number(&report, "/tagged"), 300, "{report:#}");
    assert_eq!(code, Some(0), "{report:#}");

    drop(gateways);
    let _gateways = sealing_gateways(&lab, &Setup::new(WEIR, Protection::Plain));
    let running = witness(&lab, &TAGGED_HOSTS);
    let streamed = stream(&lab, &RoceStream::new(1024).unwrap(), 5, 1000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let (report, code) = testimony(running);
    assert_eq!((number(&report, "/untagged"), number(&report, "/violations")), (5, 5));
    assert_eq!(code, Some(1), "{report:#}");
}

#[test]
fn what_is_not_roce_passes_in_clear_or_not_at_all() {
    let Some(Stand { _turn, lab }) = stand("what_is_not_roce_passes_in_clear") else { return };
    let setup = tagged();
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    assert_eq!(tcp::transfer(&lab, 1 << 20).unwrap(), 1 << 20);
    for side in Side::BOTH {
        let text = texts[side.index()].replace("other = \"clear\"", "other = \"drop\"");
        configure(&lab, side, &text).unwrap();
        gateways.daemon(side).signal(Signal::HUP).unwrap();
        wait_status(&gateways, side, |it| it["pairs"][0]["peers"][0]["tag"]["other"] == "drop");
    }
    let lost = ping(lab.host(Side::A), &HOST_V4[1].to_string(), 3, 56).unwrap();
    assert_eq!(lost.answered, 0);
    let status = gateways.status(Side::A).unwrap();
    assert!(number(&status, "/pairs/0/host/dropped_by_reason/tag_not_roce") >= 3, "{status:#}");
    let streamed = stream(&lab, &RoceStream::new(1024).unwrap(), 200, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
}

#[test]
fn a_forger_on_the_wire_is_dropped_counted_told_of_and_limited() {
    let Some(Stand { _turn, lab }) = stand("a_forger_on_the_wire_is_dropped") else { return };
    let gateways = sealing_gateways(&lab, &tagged());
    let wire = listen(&lab, 65_535);
    let streamed = stream(&lab, &RoceStream::new(1024).unwrap(), 100, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}");
    let heard: Vec<Vec<u8>> =
        wire.stop().unwrap().frames().unwrap().into_iter().filter(|it| it.len() > 1024).collect();
    assert_eq!(heard.len(), 100);

    // A guess, a hundred times: 64 are looked at, and some more as seconds pass.
    let forged: Vec<Vec<u8>> = heard
        .iter()
        .map(|it| {
            let mut it = it.clone();
            it[100] ^= 1;
            it
        })
        .collect();
    send_frames(lab.wire(), WIRE_END_B, &forged, 5000).unwrap();
    let reasons = |status: &Value| status["pairs"][0]["wire"]["dropped_by_reason"].clone();
    let count = |reasons: &Value, name: &str| reasons[name].as_u64().unwrap_or(0);
    let status = wait_status(&gateways, Side::B, |it| {
        let reasons = reasons(it);
        count(&reasons, "tag_forged") + count(&reasons, "tag_failure_limit") >= 100
    });
    let reasons = reasons(&status);
    assert!((64..100).contains(&count(&reasons, "tag_forged")), "{reasons}");
    let told = || Ok(gateways.log(Side::B).contains("WRONG TAGS"));
    interrupt::until("alarm", PATIENCE, told).unwrap();

    // Untagged packets are told apart and cost nothing.
    let mut stream_of_a_stranger = RoceStream::new(64).unwrap();
    let plain: Vec<Vec<u8>> =
        (0..200).map(|_| stream_of_a_stranger.next_frame().to_vec()).collect();
    send_frames(lab.wire(), WIRE_END_B, &plain, 5000).unwrap();
    wait_status(&gateways, Side::B, |it| {
        it["pairs"][0]["peers"][0]["tag"]["foreign"].as_u64() == Some(200)
    });
}

#[test]
fn agreed_keys_tag_through_rekeys_without_a_lost_packet() {
    let Some(Stand { _turn, lab }) = stand("agreed_keys_tag_through_rekeys") else { return };
    let lines = "rekey_after_s = 1\n".to_owned();
    let keys = KeySource::Handshakes { lines, peer_lines: String::new() };
    let gateways = sealing_gateways(&lab, &Setup { keys, ..tagged() });
    for side in Side::BOTH {
        // Without traffic to a host nobody knows whose address to borrow: pings told it.
        wait_status(&gateways, side, |it| it["pairs"][0]["peers"][0]["tag"]["is_tagging"] == true);
    }
    let handshakes = |side| {
        let status = gateways.status(side).unwrap();
        number(&status, "/pairs/0/peers/0/keying/handshakes")
    };
    let before = handshakes(Side::A);
    let wire = listen(&lab, 256);
    const FRAMES: u64 = 12_000;
    let streamed = stream(&lab, &RoceStream::new(1024).unwrap(), FRAMES, 2000).unwrap();
    assert!(streamed.is_exact(), "{streamed:?}; {}", gateways.drops(Side::B).unwrap());
    assert!(handshakes(Side::A) > before, "keys were renewed under way");
    let wire = wire.stop().unwrap();
    assert_eq!(wire.count(ROCE).unwrap(), FRAMES);
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        assert_eq!(status["pairs"][0]["wire"]["dropped"], 0, "{status:#}");
    }
}
