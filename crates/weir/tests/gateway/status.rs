//! `weir status` and `weir drops` against what tcpdump counted.

use weir_lab::topology::{HOST_DEVICE, Side, WIRE_END_B};
use weir_lab::traffic::bypass::{self, send_frames};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, tcp};

use super::*;

#[test]
fn counters_add_up_under_load_and_agree_with_the_wire() {
    let Some(Stand { _turn, lab }) = stand("counters_add_up_under_load") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    // A host may speak by itself (neighbours, routers) while tcpdump begins and while it ends: what
    // it must have seen lies between the inner two readings, what it can have seen in the outer.
    let earlier = at_rest(&gateways);
    let wire = listen(&lab, 128);
    // What one gateway says before the other listens, nobody receives.
    let before = at_rest(&gateways);
    under_traffic(&lab, || {
        for _ in 0..3 {
            assert_eq!(tcp::transfer(&lab, 4 << 20).unwrap(), 4 << 20);
            for side in Side::BOTH {
                assert_adds_up(&gateways.status(side).unwrap());
            }
        }
    });
    let statuses = at_rest(&gateways);
    let wire = wire.stop().unwrap();
    let later = at_rest(&gateways);
    assert_eq!(wire.dropped_by_kernel, 0);
    let count = |all: &[Value; 2], side: Side, name: &str| {
        number(&all[side.index()], &format!("/pairs/0/wire/{name}"))
    };
    let grown = |side: Side, name: &str| count(&statuses, side, name) - count(&before, side, name);
    let sent = |side: Side| grown(side, "port/sent_frames");
    for side in Side::BOTH {
        let received = grown(side, "port/received_frames");
        let lost = grown(side, "port/lost_ring_full") + grown(side, "port/lost_truncated");
        assert_eq!(sent(side.other()), received + lost, "{side:?}: {statuses:#?}");
        assert_eq!(received, grown(side, "received"));
        assert_adds_up(&statuses[side.index()]);
    }
    assert!(sent(Side::A) > 1000);
    let all_sent = |all: &[Value; 2]| -> u64 {
        Side::BOTH.map(|side| count(all, side, "port/sent_frames")).iter().sum()
    };
    let seen = wire.count("").unwrap();
    let sure = all_sent(&statuses) - all_sent(&before);
    let possible = all_sent(&later) - all_sent(&earlier);
    assert!((sure..=possible).contains(&seen), "{seen} seen, {sure} to {possible} sent");
}

#[test]
fn every_drop_is_shown_under_its_reason() {
    let Some(Stand { _turn, lab }) = stand("every_drop_is_shown") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let mut lldp = vec![0; 60];
    lldp[..14].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, 9, 0x88, 0xcc]);
    send_frames(lab.host(Side::A), HOST_DEVICE, &[lldp], 1000).unwrap();
    let plain = RoceStream::new(256).unwrap().next_frame().to_vec();
    send_frames(lab.wire(), WIRE_END_B, &[plain.clone(), plain], 1000).unwrap();
    let dropped = |side: Side, port: &str, reason: &str, count: u64| {
        let path = format!("/pairs/0/{port}/dropped_by_reason/{reason}");
        wait_status(&gateways, side, |it| it.pointer(&path).is_some_and(|it| *it == count));
        let shown = gateways.drops(side).unwrap();
        assert!(shown.contains(reason), "{shown}");
    };
    dropped(Side::A, "host", "link_protocol", 1);
    dropped(Side::B, "wire", "not_sealed", 2);
}

#[test]
fn copies_that_the_guard_keeps_from_the_kernel_are_no_drops() {
    let Some(Stand { _turn, lab }) = stand("copies_are_no_drops") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(ping_all(lab.host(Side::A), &target, 50, 200).unwrap().answered, 50);
    let status = wait_status(&gateways, Side::A, |it| {
        number(it, "/pairs/0/host/received") >= 50 && number(it, "/pairs/0/host/kernel_copies") > 0
    });
    let of = |name: &str| number(&status, &format!("/pairs/0/host/{name}"));
    assert!(of("kernel_copies") >= of("received") / 2, "{status:#}");
    // What its own stack says by itself, if anything.
    assert!(of("guard_dropped") < 50, "{status:#}");
    let shown = gateways.status_text(Side::A).unwrap();
    assert!(shown.contains("kernel copies removed"), "{shown}");
}

/// What the README's tour sends.
#[test]
fn a_clean_run_shows_opcodes_and_neither_retransmissions_nor_losses() {
    let Some(Stand { _turn, lab }) = stand("a_clean_run_shows_opcodes") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let exchange = bypass::exchange(&lab, &planned(Kind::RoceV2, 300).unwrap(), 2000).unwrap();
    assert!(exchange.is_exact(), "{exchange:?}");
    for side in Side::BOTH {
        let status = wait_status(&gateways, side, |it| number(it, "/pairs/0/rdma/packets") >= 300);
        let rdma = &status["pairs"][0]["rdma"];
        assert_eq!(rdma["retransmissions"], 0, "{rdma:#}");
        let losses = rdma["losses"].as_object().unwrap();
        assert!(losses.values().all(|it| *it == 0), "{rdma:#}");
        let shown = gateways.status_text(side).unwrap();
        assert!(shown.contains("RC ") && shown.contains("0 retransmissions"), "{shown}");
    }
}

#[track_caller]
fn assert_adds_up(status: &Value) {
    assert_eq!(status["adds_up"], true, "{status:#}");
    for port in ["host", "wire"] {
        let side = &status["pairs"][0][port];
        let parts = ["forwarded", "sealed", "opened", "clear", "punted", "consumed", "dropped"];
        let sum: u64 = parts.iter().map(|part| side[part].as_u64().unwrap()).sum();
        assert_eq!(side["received"], sum, "{side:#}");
    }
}
