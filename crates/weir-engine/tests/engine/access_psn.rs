//! Numbers that no receiver could be waiting for.

use super::judged::Gateway;
use super::judged::cm::Exchange;
use super::talk::{A, B, Packet};
use weir_engine::access::{AccessAction, AccessPolicy, PsnCheck};
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::Offload;

fn gateway(check: PsnCheck) -> Gateway {
    let mut gateway = Gateway::with(vec![], AccessAction::Allow);
    gateway.reload_with(AccessPolicy::new(vec![], AccessAction::Allow).with_psn(check));
    gateway
}

fn outside(gateway: &Gateway) -> u64 {
    gateway.engine.access().unwrap().out_of_window_packets()
}

#[test]
fn injected_numbers_are_dropped_and_the_stream_goes_on_over_the_wrap() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.write_only(0xff_fffe)]);
    gateway.passes(&[A.ack(0xff_fffe)]);
    for psn in [0x80_0000, 0x10_0000, 0xff_ffff - 70_000] {
        gateway.drops(&[B.write_only(psn)], DropReason::AccessPsn);
        gateway.drops(&[A.ack(psn)], DropReason::AccessPsn);
    }
    gateway.passes(&[B.write_only(0xff_ffff), B.write_only(0), B.write_only(1)]);
    gateway.passes(&[A.ack(1)]);
    // Lost before us, overtaken, sent again.
    gateway.passes(&[B.write_only(9), B.write_only(2), B.write_only(0xff_ffff)]);
    assert_eq!(outside(&gateway), 6);
}

#[test]
fn by_default_they_are_counted_and_pass() {
    let mut gateway = Gateway::with(vec![], AccessAction::Allow);
    gateway.passes(&[B.write_only(1), B.write_only(0x80_0000), B.write_only(0x80_0001)]);
    assert_eq!(outside(&gateway), 1);
}

#[test]
fn a_sweep_over_all_numbers_neither_gets_through_nor_takes_the_window_along() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.send_only(1000)]);
    gateway.passes(&[A.ack(1000)]);
    let (mut passed, mut packet) = (0, B.send_only(0).bytes());
    for psn in (0..0x100_0000u32).step_by(997) {
        packet[14 + 20 + 8 + 9..14 + 20 + 8 + 12].copy_from_slice(&psn.to_be_bytes()[1..]);
        let verdicts = gateway.verdicts_on(Side::Wire, &[packet.clone()], Offload::default());
        passed += usize::from(verdicts == [Verdict::Forward]);
    }
    assert!(passed <= 2 * 65_536 / 997 + 2, "{passed} of 16,828 hit the window");
    gateway.passes(&[B.send_only(1001)]);
    gateway.passes(&[A.ack(1001)]);
}

#[test]
fn a_long_read_uses_its_numbers_and_may_begin_again_within() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.read(10, 1 << 30)]);
    gateway.passes(&[A.read_first(10)]);
    gateway.passes(&[A.read_middle(1_000_000)]);
    // The rest of it once more; and the next request, of a path MTU of 1024.
    gateway.passes(&[B.read(900_000, 1 << 28)]);
    gateway.passes(&[B.write_only(10 + (1 << 20))]);
    assert_eq!(outside(&gateway), 0);
}

#[test]
fn connection_managers_and_silence_let_a_stream_begin_elsewhere() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.write_only(0x70_0000)]);
    gateway.passes(&[A.ack(0x70_0000)]);
    gateway.drops(&[B.write_only(100)], DropReason::AccessPsn);
    let exchange = Exchange::of(B, A);
    for (side, bytes) in [(Side::Wire, exchange.request()), (Side::Host, exchange.reply())] {
        assert_eq!(gateway.verdicts_on(side, &[bytes], Offload::default()), [Verdict::Forward]);
    }
    // The REP names 100 as the first.
    gateway.drops(&[B.write_only(0x70_0001)], DropReason::AccessPsn);
    gateway.passes(&[B.write_only(100)]);
    gateway.wait_ms(18_000);
    gateway.passes(&[B.write_only(0x30_0000)]);
}

#[test]
fn datagrams_and_unreliable_connections_may_have_any_number() {
    let mut gateway = gateway(PsnCheck::Drop);
    let datagram = |psn| Packet { source_qp: 0xb, ..B.datagram(psn) };
    gateway.passes(&[B.uc_send_only(1), B.uc_send_only(0x80_0000)]);
    gateway.passes(&[datagram(1), datagram(0x80_0000)]);
}

#[test]
fn the_filter_wakes_up_under_attack_alone() {
    let mut gateway = gateway(PsnCheck::UnderAttack);
    gateway.passes(&[B.write_only(1)]);
    // A queue pair that is made again is no attack.
    gateway.passes(&[B.write_only(0x30_0000), B.write_only(0x30_0001)]);
    let sweep = |number: u32| B.write_only(number * 70_000 % 0x100_0000 + 0x50_0000);
    let dropped = (0..200).filter(|number| {
        let verdicts = gateway.verdicts(&[sweep(*number)]);
        verdicts == [Verdict::Drop(DropReason::AccessPsn)]
    });
    assert!(dropped.count() > 100);
}

#[test]
fn answers_that_nobody_asked_for_take_the_window_nowhere() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.write_only(1000)]);
    gateway.passes(&[A.ack(1000)]);
    for psn in (0..0x100_0000).step_by(60_000) {
        gateway.verdicts(&[A.ack(psn)]);
    }
    gateway.passes(&[B.write_only(1001)]);
    gateway.passes(&[A.ack(1001)]);
}

#[test]
fn a_packet_in_the_name_of_who_rests_does_not_shut_him_out() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.write_only(1000)]);
    gateway.passes(&[A.ack(1000)]);
    // The meter has forgotten the conversation.
    gateway.wait_ms(20_000);
    gateway.passes(&[B.write_only(0x80_0000)]);
    gateway.drops(&[B.write_only(0x40_0000)], DropReason::AccessPsn);
    gateway.passes(&[B.write_only(1001)]);
    gateway.passes(&[A.ack(1001)]);
    gateway.drops(&[B.write_only(0x80_0001)], DropReason::AccessPsn);
    gateway.passes(&[B.write_only(1002)]);
}

#[test]
fn a_filter_that_wakes_up_keeps_the_numbers_of_the_attacked() {
    let mut gateway = gateway(PsnCheck::UnderAttack);
    gateway.passes(&[B.write_only(1000)]);
    gateway.passes(&[A.ack(1000)]);
    for number in 0..200 {
        let psn = [0x20_0000, 0x60_0000, 0xa0_0000][number % 3];
        gateway.verdicts(&[B.write_only(psn)]);
    }
    gateway.drops(&[B.write_only(0x20_0000)], DropReason::AccessPsn);
    gateway.passes(&[B.write_only(1001)]);
    gateway.passes(&[A.ack(1001)]);
}

#[test]
fn who_did_not_look_at_numbers_knows_none() {
    let mut gateway = gateway(PsnCheck::Drop);
    gateway.passes(&[B.write_only(1000)]);
    gateway.passes(&[A.ack(1000)]);
    for check in [PsnCheck::Off, PsnCheck::Drop] {
        let policy = AccessPolicy::new(vec![], AccessAction::Allow).with_psn(check);
        gateway.reload_with(policy);
        gateway.passes(&[B.write_only(0x30_0000)]);
    }
}
