//! Rules that reject: who is answered, how, and who is not.

use weir_wire::checksum::Sum;
use weir_wire::tcp::flags::SYN;

use super::inline::{ATTACKER, VICTIM, gateway, ipv4, udp_payload, vxlan};
use super::*;

/// A TCP segment from the attacker, from port 12345.
fn segment(port: u16, flags: u8, [at, ack]: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let mut tcp = [[0x30, 0x39], port.to_be_bytes()].concat();
    tcp.extend(at.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let sum = Sum::new().with_u16(6).with_u32(tcp.len() as u32);
    let sum = sum.with(&ATTACKER).with(&VICTIM).with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(ATTACKER, VICTIM, 6, 0, &tcp)
}

#[test]
fn what_a_tunnel_carries_is_rejected_without_an_answer() {
    let rules = "reject udp any any -> any 99 (content:\"evil\"; sid:1;)\n\
                 reject tcp any any -> any 80 (flags:S; sid:2;)";
    let ip = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let carriers: [&dyn Fn(&[u8]) -> Vec<u8>; 2] = [&vxlan, &ip];
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    for side in [Side::Wire, Side::Host] {
        let mut gateway = gateway(rules, |_| ());
        for inner in [&evil, &segment(80, SYN, [7, 0], b"")] {
            let answered = gateway.receive(side, from_ref(inner));
            assert_eq!(answered.len(), 1, "outside of a tunnel");
            for carry in carriers {
                assert!(gateway.receive(side, &[carry(inner)]).is_empty());
            }
        }
        assert_eq!(gateway.dropped(side, DropReason::Rule), 6);
    }
}

#[test]
fn teredo_is_rejected_without_an_answer() {
    let mut gateway = gateway("reject udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let udp = udp_payload(99, b"so evil");
    let mut inner = vec![0x60, 0, 0, 0, 0, udp.len() as u8, 17, 64];
    inner.extend([0xfe; 16]);
    inner.extend([0xfd; 16]);
    inner.extend(udp);
    let teredo = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(3544, &inner));
    assert!(gateway.receive(Side::Wire, &[teredo]).is_empty());
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 1);
}

#[test]
fn a_datagram_in_pieces_is_answered_for_it_is_in_no_tunnel() {
    let mut gateway = gateway("reject udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let datagram = udp_payload(99, b"xxxxxxxxevil");
    let (first, last) = datagram.split_at(16);
    let pieces =
        [(0x2000, first), (2, last)].map(|(flags, it)| ipv4(ATTACKER, VICTIM, 17, flags, it));
    let answer = only(Destination::Wire, gateway.receive(Side::Wire, &pieces));
    assert_eq!((answer.len(), &answer[0][34..36]), (1, &[3, 13][..]));
}
