//! Keys agreed between two gateways: traffic of every kind, keys renewed under it, one killed.

use rustix::process::Signal;
use weir_lab::gateways::KeySource;
use weir_lab::observe::NEIGHBOUR;
use weir_lab::topology::Side;
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, bypass, tcp};

use super::*;

const TRANSFER_BYTES: usize = 8 << 20;
/// What handshakes look like from outside.
const HANDSHAKES: &str = "udp port 51840";

pub(super) fn keyed(protection: Protection, lines: &str, peer_lines: &str) -> Setup {
    let (lines, peer_lines) = (lines.to_owned(), peer_lines.to_owned());
    Setup { keys: KeySource::Handshakes { lines, peer_lines }, ..Setup::new(WEIR, protection) }
}

fn handshakes(status: &Value) -> u64 {
    number(status, "/pairs/0/keying/handshakes")
}

#[test]
fn agreed_keys_carry_everything_and_the_wire_shows_esp_and_counted_handshakes() {
    carries_everything(Protection::Sealed, "");
}

#[test]
fn agreed_keys_with_ml_kem_carry_everything() {
    carries_everything(Protection::Sealed, "ml_kem = true\n");
}

#[test]
fn a_bump_in_the_wire_agrees_on_keys_under_its_hosts_addresses() {
    carries_everything(Protection::BorrowedTunnel, "");
}

#[test]
fn a_bump_in_the_wire_agrees_on_keys_for_transport_mode() {
    carries_everything(Protection::BorrowedTransport, "");
}

fn carries_everything(protection: Protection, peer_lines: &str) {
    let Some(Stand { _turn, lab }) = stand(&format!("keyed {protection:?}")) else { return };
    let wire = listen(&lab, 512);
    let gateways = sealing_gateways(&lab, &keyed(protection, "", peer_lines));
    let target = lab.host_v4(Side::B).to_string();
    let report = ping_all(lab.host(Side::A), &target, 20, 4000).unwrap();
    assert_eq!(report.answered, report.sent);
    assert_eq!(tcp::transfer(&lab, TRANSFER_BYTES).unwrap(), TRANSFER_BYTES as u64);
    let frames = planned(Kind::RoceV2, 300).unwrap();
    let exchange = bypass::exchange(&lab, &frames, 2000).unwrap();
    assert!(exchange.is_exact(), "{exchange:?}; {}", gateways.drops(Side::A).unwrap());

    let up = "/pairs/0/peers/0/keying/state";
    let statuses = Side::BOTH
        .map(|side| wait_status(&gateways, side, |it| it.pointer(up).is_some_and(|it| it == "up")));
    drop(gateways);
    let wire = wire.stop().unwrap();
    assert_eq!(wire.dropped_by_kernel, 0);
    let clear = format!("not ({ESP}) and not ({HANDSHAKES}) and not ({NEIGHBOUR})");
    assert_eq!(wire.count(&clear).unwrap(), 0, "in clear, besides handshakes and neighbours");
    assert!(!wire.contains(&ROCE_MARK).unwrap());
    let counted: u64 = statuses.iter().map(|it| number(it, "/pairs/0/keying/frames_sent")).sum();
    let seen = wire.count(HANDSHAKES).unwrap();
    assert!(seen >= 2 && counted >= 2 && seen >= counted, "{seen} seen, {counted} counted");
}

#[test]
fn keys_are_renewed_under_traffic_and_not_one_packet_is_lost() {
    let Some(Stand { _turn, lab }) = stand("keys_are_renewed_under_traffic") else { return };
    let setup = keyed(Protection::Sealed, "rekey_after_s = 1\n", "");
    let gateways = sealing_gateways(&lab, &setup);
    let before = gateways.status(Side::A).unwrap();
    let mut frames = RoceStream::new(512).unwrap();
    let (mut sent, mut arrived, mut rounds) = (0, 0, 0);
    loop {
        let exchange = bypass::stream(&lab, &frames, 1500, 2000).unwrap();
        assert!(exchange.is_exact(), "{exchange:?}\n{}", gateways.drops(Side::A).unwrap());
        (sent, arrived, rounds) = (sent + 1500, arrived + 1500, rounds + 1);
        frames.next_frame();
        let report =
            ping_all(lab.host(Side::A), &lab.host_v4(Side::B).to_string(), 20, 200).unwrap();
        assert_eq!(report.answered, report.sent);
        if handshakes(&gateways.status(Side::A).unwrap()) >= handshakes(&before) + 4 {
            break;
        }
        assert!(rounds < 60, "{:#}", gateways.status(Side::A).unwrap());
    }
    assert_eq!(sent, arrived);
    for side in Side::BOTH {
        let drops = gateways.status(side).unwrap();
        for reason in ["unknown_spi", "authentication", "replay_old", "replay_duplicate"] {
            let path = format!("/pairs/0/wire/dropped_by_reason/{reason}");
            assert!(drops.pointer(&path).is_none(), "{reason}: {drops:#}");
        }
    }
}

#[test]
fn a_killed_gateway_agrees_on_new_keys_and_nothing_is_sealed_twice() {
    let Some(Stand { _turn, lab }) = stand("a_killed_gateway_agrees_on_new_keys") else { return };
    let setup = keyed(Protection::Sealed, "", "");
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    let wire = listen(&lab, 128);
    under_traffic(&lab, || {
        wait_until_it_flows(&lab);
        for side in [Side::A, Side::B, Side::A] {
            gateways.end(side, Signal::KILL).unwrap();
            gateways.start_again(&lab, &setup, side).unwrap();
            wait_until_it_flows(&lab);
        }
    });
    let mut seen = std::collections::HashSet::new();
    let mut spis = std::collections::HashSet::new();
    let packets = restart::esp_packets(&wire.stop().unwrap());
    for esp in &packets {
        spis.insert(esp.spi);
        assert!(seen.insert((esp.spi, esp.initialisation_vector)), "a nonce again");
    }
    assert!(packets.len() > 100 && spis.len() >= 8, "{} by {} SPIs", packets.len(), spis.len());
}

#[test]
fn a_silent_peer_is_called_dead_and_ml_kem_on_one_side_is_named() {
    let Some(Stand { _turn, lab }) = stand("a_silent_peer_is_called_dead") else { return };
    let setup = keyed(Protection::Sealed, "", "");
    let mut gateways = sealing_gateways(&lab, &setup);
    gateways.end(Side::B, Signal::KILL).unwrap();
    let state = |wanted: &'static str| {
        move |status: &Value| status["pairs"][0]["peers"][0]["keying"]["state"] == wanted
    };
    wait_status(&gateways, Side::A, state("dead"));

    let file = lab.folder().join("gw-b.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("[keying]", "ml_kem = true\n[keying]")).unwrap();
    gateways.start_again(&lab, &setup, Side::B).unwrap();
    let named = |status: &Value| {
        let why = &status["pairs"][0]["peers"][0]["keying"]["refused_because"];
        why.as_str().is_some_and(|why| why.contains("ml_kem = true"))
    };
    wait_status(&gateways, Side::A, named);
}
