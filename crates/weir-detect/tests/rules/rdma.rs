//! RDMA as a protocol of rules.

use weir_detect::{Decision, Direction};

use crate::bench::{Bench, CLIENT, SERVER, roce, udp};

/// The sids that match one RoCE packet.
fn of_packet(rules: &str, frame: &[u8]) -> Vec<u32> {
    let mut bench = Bench::new(rules);
    bench.send(Direction::Initiator, frame);
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

const RETH: [u8; 16] = [0, 0, 0, 0, 0, 0, 0x10, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 8];

#[test]
fn an_operation_is_dropped_by_its_opcode_and_others_pass() {
    let mut bench =
        Bench::new("drop rdma any any -> any any (msg:\"READ\"; rdma.opcode:read_request; sid:2;)");
    let read = roce(0x0c, 7, 1, &RETH);
    let send = roce(0x04, 7, 2, b"hello ok");
    assert!(matches!(bench.send(Direction::Initiator, &read), Decision::Drop { .. }));
    assert_eq!(bench.send(Direction::Initiator, &send), Decision::Pass);
    assert!(matches!(bench.send(Direction::Initiator, &read), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [2, 2]);
}

#[test]
fn fields_of_the_transport_headers_are_compared() {
    let rules = "alert rdma any any -> any any (rdma.opcode:0x0c; sid:1;)\n\
                 alert rdma any any -> any any (rdma.opcode:!read_request; sid:2;)\n\
                 alert rdma any any -> any any (rdma.dest_qp:7; sid:3;)\n\
                 alert rdma any any -> any any (rdma.dest_qp:>7; sid:4;)\n\
                 alert rdma any any -> any any (rdma.rkey:0xdeadbeef; sid:5;)\n\
                 alert rdma any any -> any any (rdma.length:8; sid:6;)\n\
                 alert rdma any any -> any any (rdma.psn:5; sid:7;)\n\
                 alert rdma any any -> any any (rdma.pkey:0xffff; sid:8;)\n\
                 alert rdma any any -> any any (rdma.qkey:0x11111111; sid:9;)\n\
                 alert rdma any any -> any any (rdma.icrc:invalid; sid:10;)\n\
                 alert rdma any any -> any any (rdma.icrc:valid; sid:11;)\n\
                 alert rdma any any -> any any (rdma.syndrome:nak; sid:12;)";
    assert_eq!(of_packet(rules, &roce(0x0c, 7, 5, &RETH)), [1, 3, 5, 6, 7, 8, 10]);
}

#[test]
fn a_datagram_has_a_source_queue_pair_and_a_nak_a_syndrome() {
    let rules = "alert rdma any any -> any any (rdma.src_qp:9; rdma.qkey:0x11111111; sid:1;)\n\
                 alert rdma any any -> any any (rdma.syndrome:nak; sid:2;)\n\
                 alert rdma any any -> any any (rdma.syndrome:0x62; sid:3;)";
    let deth = [0x11, 0x11, 0x11, 0x11, 0, 0, 0, 9];
    assert_eq!(of_packet(rules, &roce(0x64, 7, 5, &deth)), [1]);
    assert_eq!(of_packet(rules, &roce(0x11, 7, 5, &[0x62, 0, 0, 1])), [2, 3]);
    assert_eq!(of_packet(rules, &roce(0x11, 7, 5, &[0x1f, 0, 0, 1])), []);
}

#[test]
fn contents_are_looked_for_in_the_payload_of_the_operation() {
    let rules = "alert rdma any any -> any any (content:\"hello\"; depth:5; sid:1;)\n\
                 alert rdma any any -> any any (rdma.opcode:send; content:\"ok\"; endswith; \
                 sid:2;)\n\
                 alert udp any any -> any 4791 (content:\"hello\"; sid:3;)";
    assert_eq!(of_packet(rules, &roce(0x04, 7, 2, b"hello ok")), [1, 2, 3]);
}

#[test]
fn a_connection_request_is_told_by_its_management_datagram() {
    let rules = "alert rdma any any -> any any (rdma.cm:req; sid:1;)\n\
                 alert rdma any any -> any any (rdma.cm:rep,rej; sid:2;)\n\
                 alert rdma any any -> any any (rdma.mad:class 7, attribute 0x10; sid:3;)";
    let mut behind = vec![0x80, 1, 0, 0, 0, 0, 0, 1];
    let mut mad = vec![0_u8; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = 0x10;
    behind.extend(mad);
    assert_eq!(of_packet(rules, &roce(0x64, 1, 5, &behind)), [1, 3]);
}

#[test]
fn what_is_not_rdma_matches_no_rule_of_rdma() {
    let rules = "alert rdma any any -> any any (sid:1;)";
    assert_eq!(of_packet(rules, &udp(CLIENT, SERVER, 1, 2, b"abc")), []);
    assert_eq!(of_packet(rules, &roce(0x81, 7, 5, &[0; 16])), [1]);
}
