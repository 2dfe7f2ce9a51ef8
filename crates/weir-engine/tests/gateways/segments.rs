//! TCP segments with wrong checksums: no receiver takes them, so they hide nothing from rules.

use weir_wire::checksum::pseudo_header_v4;

use super::inline::{gateway, ipv4};
use super::*;

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 7], 40_000);
const SERVER: ([u8; 4], u16) = ([10, 1, 0, 1], 80);
const ATTACK: &str =
    "drop tcp any any -> any any (flow:established,to_server; content:\"attack\"; sid:1;)";
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Where TCP's header and its checksum stand in these frames.
const TCP: usize = 14 + 20;
const CHECKSUM: usize = TCP + 16;

/// A segment, with the checksum that its sender computes.
fn segment(
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    flags: u8,
    [sequence, acknowledgment]: [u32; 2],
    payload: &[u8],
) -> Vec<u8> {
    let mut tcp = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    tcp.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let sum = pseudo_header_v4(from.0, to.0, 6, tcp.len() as u16);
    let checksum = sum.with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    ipv4(from.0, to.0, 6, 0, &tcp)
}

fn data(ahead: u32, payload: &[u8]) -> Vec<u8> {
    segment(CLIENT, SERVER, ACK | 8, [1001 + ahead, 5001], payload)
}

fn spoiled(mut segment: Vec<u8>) -> Vec<u8> {
    segment[CHECKSUM] ^= 0x55;
    segment
}

/// A gateway that looks at checksums, and has seen a connection begin.
fn connected() -> Gateway {
    let checks = |policy: &mut Policy| {
        policy.rules.as_mut().unwrap().limits.checks_segments = true;
    };
    let mut gateway = gateway(ATTACK, checks);
    for (side, segment) in [
        (Side::Host, segment(CLIENT, SERVER, SYN, [1000, 0], b"")),
        (Side::Wire, segment(SERVER, CLIENT, SYN | ACK, [5000, 1001], b"")),
        (Side::Host, segment(CLIENT, SERVER, ACK, [1001, 5001], b"")),
    ] {
        assert_eq!(gateway.receive(side, &[segment]).len(), 1);
    }
    gateway
}

fn wrong_checksums(gateway: &Gateway) -> u64 {
    gateway.engine.detection().unwrap().counters().wrong_checksums
}

#[test]
fn a_segment_that_no_receiver_takes_passes_and_hides_no_attack() {
    let mut gateway = connected();
    for segment in [spoiled(data(0, b"xxx")), data(0, b"att")] {
        assert_eq!(gateway.receive(Side::Host, &[segment]).len(), 1);
    }
    assert_eq!(gateway.receive(Side::Host, &[data(3, b"ack")]).len(), 0);
    assert_eq!(gateway.dropped(Side::Host, DropReason::Rule), 1);
    assert_eq!(wrong_checksums(&gateway), 1);
}

#[test]
fn what_a_port_says_is_unfinished_verified_or_several_segments_is_part_of_the_stream() {
    let partial = PartialChecksum { start: TCP as u16, field: CHECKSUM as u16 };
    let (kind, ecn) = (SegmentKind::TcpV4, false);
    let segmentation = Segmentation { kind, segment_len: 2, header_len: TCP as u16 + 20, ecn };
    for offload in [
        Offload { checksum: Some(partial), ..Offload::default() },
        Offload { checksum_verified: true, ..Offload::default() },
        Offload { segmentation: Some(segmentation), ..Offload::default() },
    ] {
        let mut gateway = connected();
        let begin = Sent { bytes: spoiled(data(0, b"att")), offload };
        assert_eq!(gateway.receive_offloaded(Side::Host, &[begin]).len(), 1, "{offload:?}");
        assert_eq!(gateway.receive(Side::Host, &[data(3, b"ack")]).len(), 0, "{offload:?}");
        assert_eq!(wrong_checksums(&gateway), 0, "{offload:?}");
    }
}
