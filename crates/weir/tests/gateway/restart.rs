//! `kill -9` and restart: no nonce is used twice, no old packet is accepted again.

use std::collections::{BTreeMap, HashSet};

use rustix::process::Signal;
use weir_lab::observe::{Capture, Captured};
use weir_lab::topology::{GATEWAY_MAC, HOST_DEVICE, Side, WIRE_END_B};
use weir_lab::traffic::bypass::{send_frames, stream};

use super::*;

/// One ESP packet over IPv4, as the wire carried it (RFC 4303 s2, RFC 4106 s3).
pub(super) struct Esp {
    pub(super) source: [u8; 6],
    pub(super) spi: [u8; 4],
    sequence: [u8; 4],
    pub(super) initialisation_vector: [u8; 8],
    frame: Vec<u8>,
}

pub(super) fn esp_packets(wire: &Captured) -> Vec<Esp> {
    let read = |frame: Vec<u8>| {
        let is_esp = frame.get(12..15)? == [8, 0, 0x45] && *frame.get(23)? == 50;
        let (source, esp) = (frame.get(6..12)?.try_into().ok()?, frame.get(34..50)?);
        is_esp.then(|| Esp {
            source,
            spi: esp[..4].try_into().unwrap(),
            sequence: esp[4..8].try_into().unwrap(),
            initialisation_vector: esp[8..].try_into().unwrap(),
            frame: frame.clone(),
        })
    };
    wire.frames().unwrap().into_iter().filter_map(read).collect()
}

#[test]
fn a_killed_gateway_never_seals_twice_with_one_sequence_number_or_nonce() {
    let Some(Stand { _turn, lab }) = stand("a_killed_gateway_never_seals_twice") else { return };
    let setup = sealed();
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    let wire = listen(&lab, 128);
    under_traffic(&lab, || {
        wait_until_it_flows(&lab);
        for _ in 0..4 {
            gateways.end(Side::A, Signal::KILL).unwrap();
            gateways.start_again(&lab, &setup, Side::A).unwrap();
            wait_until_it_flows(&lab);
            pause(400);
        }
    });
    let (mut sequences, mut nonces) = (HashSet::new(), HashSet::new());
    let mut sent: BTreeMap<[u8; 6], u64> = BTreeMap::new();
    for esp in esp_packets(&wire.stop().unwrap()) {
        *sent.entry(esp.source).or_default() += 1;
        assert!(sequences.insert((esp.spi, esp.sequence)), "{:?} again", esp.sequence);
        let nonce = esp.initialisation_vector;
        assert!(nonces.insert((esp.spi, nonce)), "{nonce:?} again");
    }
    assert!(sent[&GATEWAY_MAC[0]] > 500, "enough was sealed: {sent:?}");
}

#[test]
fn a_killed_gateway_accepts_nothing_that_it_opened_before() {
    let Some(Stand { _turn, lab }) = stand("a_killed_gateway_accepts_nothing_again") else {
        return;
    };
    let setup = sealed();
    let mut gateways = sealing_gateways(&lab, &setup);
    let mut frames = RoceStream::new(256).unwrap();
    let wire = listen(&lab, 65535);
    let first = stream(&lab, &frames, 300, 1000).unwrap();
    assert!(first.is_exact(), "{first:?}");
    let recorded: Vec<Vec<u8>> = esp_packets(&wire.stop().unwrap())
        .into_iter()
        .filter(|esp| esp.source == GATEWAY_MAC[0])
        .map(|esp| esp.frame)
        .collect();
    assert!(recorded.len() >= 300);

    gateways.end(Side::B, Signal::KILL).unwrap();
    gateways.start_again(&lab, &setup, Side::B).unwrap();
    let file = lab.folder().join("host-b.pcap");
    let host = Capture::start(lab.host(Side::B), HOST_DEVICE, &file, 256).unwrap();
    send_frames(lab.wire(), WIRE_END_B, &recorded, 2000).unwrap();
    let replays = |status: &Value| {
        let by_reason = &status["pairs"][0]["wire"]["dropped_by_reason"];
        let of = |name: &str| by_reason[name].as_u64().unwrap_or(0);
        of("replay_duplicate") + of("replay_old")
    };
    wait_status(&gateways, Side::B, |status| replays(status) == recorded.len() as u64);
    let host = host.stop().unwrap();
    assert_eq!(host.count("udp dst port 4791").unwrap(), 0, "a replay was delivered");

    wait_until_it_flows(&lab);
    frames.next_frame();
    let fresh = stream(&lab, &frames, 300, 1000).unwrap();
    assert!(fresh.is_exact(), "{fresh:?}");
}
