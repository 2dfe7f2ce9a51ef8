use proptest::prelude::*;
use weir_wire::checksum::{Sum, ipv4_header, pseudo_header_v4};
use weir_wire::frame::{PartialChecksum, Time};

use super::table::CLIENT_PORTS_MAX;
use super::*;

const CLIENT: [u8; 4] = [10, 9, 0, 2];
const OTHER: [u8; 4] = [10, 9, 0, 3];
const HOST: [u8; 4] = [10, 0, 0, 1];
const MASQUERADE: [u8; 4] = [10, 0, 0, 250];
const SECOND: u64 = 1_000_000_000;
const NOW: Time = Time(1000 * SECOND);

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

fn nat() -> Nat {
    Nat::new(MASQUERADE)
}

/// An IPv4 packet around `transport`, its header's checksum right.
fn ip(protocol: u8, source: [u8; 4], destination: [u8; 4], transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
    bytes.extend(source);
    bytes.extend(destination);
    bytes.extend(transport);
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    set(&mut bytes, 10, 0);
    let sum = ipv4_header(&bytes[..20]);
    set(&mut bytes, 10, sum);
    bytes
}

fn set(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn address(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes[at..at + 4].try_into().unwrap()
}

/// The sum over what the transport checksum of a packet covers; all ones where it is right.
fn covered(bytes: &[u8]) -> u16 {
    let pseudo = match bytes[9] {
        1 => Sum::new(),
        protocol => {
            let len = bytes.len() as u16 - 20;
            pseudo_header_v4(address(bytes, 12), address(bytes, 16), protocol, len)
        }
    };
    pseudo.with(&bytes[20..]).folded()
}

#[track_caller]
fn is_right(bytes: &[u8]) {
    assert_eq!(Sum::new().with(&bytes[..20]).folded(), u16::MAX, "the header's checksum");
    assert_eq!(covered(bytes), u16::MAX, "the transport's checksum");
}

fn with_checksum(mut bytes: Vec<u8>, field: usize) -> Vec<u8> {
    let sum = !covered(&bytes);
    set(&mut bytes, 20 + field, sum);
    bytes
}

fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8, text: &[u8]) -> Vec<u8> {
    let mut transport = vec![0; 20];
    set(&mut transport, 0, from.1);
    set(&mut transport, 2, to.1);
    (transport[12], transport[13]) = (0x50, flags);
    transport.extend(text);
    with_checksum(ip(6, from.0, to.0, &transport), 16)
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), text: &[u8]) -> Vec<u8> {
    let mut transport = vec![0; 8];
    set(&mut transport, 0, from.1);
    set(&mut transport, 2, to.1);
    set(&mut transport, 4, 8 + text.len() as u16);
    transport.extend(text);
    with_checksum(ip(17, from.0, to.0, &transport), 6)
}

fn echo(kind: u8, from: [u8; 4], to: [u8; 4], number: u16) -> Vec<u8> {
    let mut transport = vec![kind, 0, 0, 0, 0, 0, 0, 1, 9, 9];
    set(&mut transport, 4, number);
    with_checksum(ip(1, from, to, &transport), 2)
}

/// An ICMP error of this kind that speaks of `told`.
fn error(kind: u8, from: [u8; 4], to: [u8; 4], told: &[u8]) -> Vec<u8> {
    let transport = [&[kind, 1, 0, 0, 0, 0, 0, 0], told].concat();
    with_checksum(ip(1, from, to, &transport), 2)
}

/// The outer port that a client's UDP port gets.
fn outer(nat: &mut Nat, now: Time, client: ([u8; 4], u16)) -> Result<u16, DropReason> {
    let mut bytes = udp(client, (HOST, 53), b"?");
    nat.outbound(now, &mut bytes, None)?;
    Ok(word(&bytes, 20))
}

#[test]
fn tcp_goes_out_under_the_outer_address_and_its_answer_comes_back() {
    let mut nat = nat();
    let mut asked = tcp((CLIENT, 40_000), (HOST, 80), SYN, b"");
    nat.outbound(NOW, &mut asked, None).unwrap();
    assert_eq!((address(&asked, 12), word(&asked, 20)), (MASQUERADE, 40_000), "the port is free");
    is_right(&asked);
    let mut answer = tcp((HOST, 80), (MASQUERADE, 40_000), SYN | ACK, b"hello");
    nat.inbound(NOW, &mut answer, None).unwrap();
    assert_eq!((address(&answer, 16), word(&answer, 22)), (CLIENT, 40_000));
    is_right(&answer);
}

#[test]
fn two_clients_with_one_port_get_two_and_one_client_keeps_its_for_all_it_speaks_to() {
    let mut nat = nat();
    let first = outer(&mut nat, NOW, (CLIENT, 5000)).unwrap();
    let second = outer(&mut nat, NOW, (OTHER, 5000)).unwrap();
    assert_eq!(first, 5000);
    assert_ne!(second, first);
    let mut elsewhere = udp((OTHER, 5000), ([10, 0, 0, 7], 123), b"");
    nat.outbound(NOW, &mut elsewhere, None).unwrap();
    assert_eq!(word(&elsewhere, 20), second);
    let mut answer = udp((HOST, 53), (MASQUERADE, second), b"!");
    nat.inbound(NOW, &mut answer, None).unwrap();
    assert_eq!((address(&answer, 16), word(&answer, 22)), (OTHER, 5000));
    is_right(&answer);
    let low = outer(&mut nat, NOW, (CLIENT, 80)).unwrap();
    assert!(low >= 1024, "{low}");
}

#[test]
fn a_missing_udp_checksum_stays_missing_and_an_unfinished_one_can_be_finished() {
    let mut nat = nat();
    let mut bytes = udp((CLIENT, 7), (HOST, 53), b"x");
    set(&mut bytes, 26, 0);
    nat.outbound(NOW, &mut bytes, None).unwrap();
    assert_eq!(word(&bytes, 26), 0);
    let port = word(&bytes, 20);

    let mut answer = udp((HOST, 53), (MASQUERADE, port), b"yes");
    let len = answer.len() as u16 - 20;
    let pseudo = pseudo_header_v4(HOST, MASQUERADE, 17, len).folded();
    set(&mut answer, 26, pseudo);
    let partial = Some(PartialChecksum { start: 34, field: 40 });
    nat.inbound(NOW, &mut answer, partial).unwrap();
    let sum = Sum::new().with(&answer[20..]).udp_checksum();
    set(&mut answer, 26, sum);
    assert_eq!(address(&answer, 16), CLIENT);
    is_right(&answer);
}

#[test]
fn echoes_are_told_apart_by_their_numbers_and_only_clients_ask() {
    let mut nat = nat();
    let mut numbers = Vec::new();
    for client in [CLIENT, OTHER] {
        let mut asked = echo(8, client, HOST, 2000);
        nat.outbound(NOW, &mut asked, None).unwrap();
        is_right(&asked);
        let mut answer = echo(0, HOST, MASQUERADE, word(&asked, 24));
        nat.inbound(NOW, &mut answer, None).unwrap();
        is_right(&answer);
        assert_eq!((address(&answer, 16), word(&answer, 24)), (client, 2000));
        numbers.push(word(&asked, 24));
    }
    assert_ne!(numbers[0], numbers[1]);
    let mut asked = echo(8, HOST, MASQUERADE, 2000);
    let before = asked.clone();
    assert_eq!(nat.inbound(NOW, &mut asked, None), Err(DropReason::NatNoMapping));
    assert_eq!(asked, before, "what is dropped has not changed");
}

#[test]
fn what_nobody_asked_for_and_what_cannot_be_translated_is_dropped_and_the_rest_left_alone() {
    let mut nat = nat();
    let mut stranger = tcp((HOST, 80), (MASQUERADE, 40_000), SYN, b"");
    assert_eq!(nat.inbound(NOW, &mut stranger, None), Err(DropReason::NatNoMapping));
    let mut low = udp((HOST, 80), (MASQUERADE, 53), b"");
    assert_eq!(nat.inbound(NOW, &mut low, None), Err(DropReason::NatNoMapping));
    let mut gre = ip(47, CLIENT, HOST, &[0; 20]);
    assert_eq!(nat.outbound(NOW, &mut gre, None), Err(DropReason::NatProtocol));
    let mut short = ip(6, CLIENT, HOST, &[0; 10]);
    assert_eq!(nat.outbound(NOW, &mut short, None), Err(DropReason::NatProtocol));
    let mut wrong = tcp((CLIENT, 1), (HOST, 2), SYN, b"");
    wrong[0] = 0x4f;
    assert_eq!(nat.outbound(NOW, &mut wrong[..40], None), Err(DropReason::Malformed));
    let mut direct = udp((HOST, 80), (OTHER, 53), b"");
    let before = direct.clone();
    nat.inbound(NOW, &mut direct, None).unwrap();
    assert_eq!(direct, before);
}

#[test]
fn later_fragments_follow_the_first_and_without_it_they_are_dropped() {
    let mut nat = nat();
    let whole = udp((CLIENT, 9000), (HOST, 53), &[7; 64]);
    let fragment = |offset: u16, more: bool, text: &[u8]| {
        let mut bytes = ip(17, CLIENT, HOST, text);
        set(&mut bytes, 6, u16::from(more) << 13 | offset);
        set(&mut bytes, 10, 0);
        let sum = ipv4_header(&bytes[..20]);
        set(&mut bytes, 10, sum);
        bytes
    };
    let mut first = fragment(0, true, &whole[20..60]);
    let mut second = fragment(5, false, &whole[60..]);
    assert_eq!(nat.outbound(NOW, &mut second, None), Err(DropReason::Fragment));
    nat.outbound(NOW, &mut first, None).unwrap();
    nat.outbound(NOW, &mut second, None).unwrap();
    assert_eq!(address(&second, 12), MASQUERADE);
    let joined = ip(17, MASQUERADE, HOST, &[&first[20..], &second[20..]].concat());
    is_right(&joined);
    let mut late = fragment(5, false, &whole[60..]);
    let later = Time(NOW.0 + 60 * SECOND);
    assert_eq!(nat.outbound(later, &mut late, None), Err(DropReason::Fragment));
}

#[test]
fn icmp_errors_speak_of_what_their_receiver_sent() {
    let mut nat = nat();
    for told in [
        tcp((CLIENT, 4000), (HOST, 80), SYN, b""),
        udp((CLIENT, 4001), (HOST, 53), b"text"),
        echo(8, CLIENT, HOST, 4002),
    ] {
        let mut sent = told.clone();
        nat.outbound(NOW, &mut sent, None).unwrap();
        for len in [28, sent.len()] {
            let router = [10, 0, 0, 254];
            let mut answer = error(3, router, MASQUERADE, &sent[..len]);
            nat.inbound(NOW, &mut answer, None).unwrap();
            is_right(&answer);
            assert_eq!((address(&answer, 12), address(&answer, 16)), (router, CLIENT));
            assert_eq!(answer[28..], told[..len], "its own packet, as it sent that");
        }
        let mut damaged = error(3, HOST, MASQUERADE, &sent);
        damaged[30] ^= 1;
        assert_eq!(nat.inbound(NOW, &mut damaged, None), Err(DropReason::Malformed));
    }
    // The client's own, of what the host sent to it.
    let mut told = udp((HOST, 53), (CLIENT, 4001), b"late");
    let mut closed = error(3, CLIENT, HOST, &told);
    nat.outbound(NOW, &mut closed, None).unwrap();
    is_right(&closed);
    assert_eq!(address(&closed, 12), MASQUERADE);
    nat.inbound(NOW, &mut told, None).unwrap();
    assert_eq!(closed[28..], udp((HOST, 53), (MASQUERADE, 4001), b"late"), "as the host sent it");
    let foreign = udp((HOST, 53), (CLIENT, 4999), b"");
    let mut unknown = error(3, CLIENT, HOST, &foreign);
    assert_eq!(nat.outbound(NOW, &mut unknown, None), Err(DropReason::NatNoMapping));
}

#[test]
fn one_client_cannot_use_up_everybodys_ports_and_what_is_there_goes_on() {
    let mut nat = nat();
    let held = CLIENT_PORTS_MAX as u16;
    for port in 0..held {
        outer(&mut nat, NOW, (CLIENT, 2000 + port)).unwrap();
    }
    assert_eq!(outer(&mut nat, NOW, (CLIENT, 1)), Err(DropReason::NatFull));
    assert_eq!(outer(&mut nat, NOW, (CLIENT, 2000)), Ok(2000));
    outer(&mut nat, NOW, (OTHER, 1)).unwrap();
    // After five minutes without a packet they are free again, whether swept or not.
    let later = Time(NOW.0 + 301 * SECOND);
    for _ in 0..40 {
        nat.expire(later);
    }
    outer(&mut nat, later, (CLIENT, 1)).unwrap();
}

#[test]
fn all_ports_in_use_refuse_new_flows_until_some_are_free() {
    let mut nat = nat();
    let client = |index: u32| [10, 9, 1 + (index / 8000) as u8, 1];
    let mut given = std::collections::HashSet::new();
    for index in 0..64_512_u32 {
        let port = (index % 8000) as u16 + 1024;
        let outer = outer(&mut nat, NOW, (client(index), port)).unwrap();
        assert!(outer >= 1024 && given.insert(outer), "{outer} twice");
    }
    assert_eq!(outer(&mut nat, NOW, (OTHER, 1)), Err(DropReason::NatFull));
    nat.retain(|it| it != client(0));
    let found = outer(&mut nat, NOW, (OTHER, 1));
    assert!(found.is_ok(), "a revoked client's ports are free at once");
}

#[test]
fn timeouts_are_those_that_the_rfcs_demand() {
    let alive = |nat: &mut Nat, at: u64, mut packet: Vec<u8>| {
        nat.inbound(Time(NOW.0 + at * SECOND), &mut packet, None).is_ok()
    };
    for (at, expected) in [(299, true), (301, false)] {
        let mut nat = nat();
        outer(&mut nat, NOW, (CLIENT, 5000)).unwrap();
        assert_eq!(alive(&mut nat, at, udp((HOST, 53), (MASQUERADE, 5000), b"")), expected);
    }
    let back = |flags| tcp((HOST, 80), (MASQUERADE, 5000), flags, b"");
    let established = || {
        let mut nat = nat();
        for flags in [SYN, ACK] {
            nat.outbound(NOW, &mut tcp((CLIENT, 5000), (HOST, 80), flags, b""), None).unwrap();
            nat.inbound(NOW, &mut back(flags | ACK), None).unwrap();
        }
        nat
    };
    for (at, expected) in [(7439, true), (7441, false)] {
        assert_eq!(alive(&mut established(), at, back(ACK)), expected, "{at} s, established");
    }
    for (at, expected) in [(239, true), (241, false)] {
        let mut closed = established();
        closed.inbound(NOW, &mut back(FIN | ACK), None).unwrap();
        closed.inbound(NOW, &mut back(ACK), None).unwrap();
        assert_eq!(alive(&mut closed, at, back(ACK)), expected, "{at} s, closed");
        let mut half = nat();
        half.outbound(NOW, &mut tcp((CLIENT, 5000), (HOST, 80), SYN, b""), None).unwrap();
        assert_eq!(alive(&mut half, at, back(SYN | ACK)), expected, "{at} s, half open");
    }
}

proptest! {
    #[test]
    fn what_went_out_comes_back_to_who_sent_it(
        port in 1_u16..,
        remote in 1_u16..,
        text in prop::collection::vec(any::<u8>(), 0..64),
        damage in any::<bool>(),
        is_tcp in any::<bool>(),
    ) {
        let mut nat = nat();
        outer(&mut nat, NOW, (OTHER, port)).unwrap();
        let make = |from, to| match is_tcp {
            true => tcp(from, to, ACK, &text),
            false => udp(from, to, &text),
        };
        let mut sent = make((CLIENT, port), (HOST, remote));
        if damage {
            sent[21] ^= 0x10;
        }
        let was_right = covered(&sent) == u16::MAX;
        let port = word(&sent, 20);
        nat.outbound(NOW, &mut sent, None).unwrap();
        prop_assert_eq!(covered(&sent) == u16::MAX, was_right, "a wrong checksum stays wrong");
        let mut answer = make((HOST, remote), (MASQUERADE, word(&sent, 20)));
        nat.inbound(NOW, &mut answer, None).unwrap();
        prop_assert_eq!(answer, make((HOST, remote), (CLIENT, port)));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..100),
        is_ip in any::<bool>(),
        out in any::<bool>(),
    ) {
        let mut nat = nat();
        outer(&mut nat, NOW, (CLIENT, 1024)).unwrap();
        if is_ip && bytes.len() > 20 {
            bytes[0] = 0x45;
            let len = bytes.len() as u16;
            set(&mut bytes, 2, len);
            bytes[12..16].copy_from_slice(&CLIENT);
            bytes[16..20].copy_from_slice(&MASQUERADE);
            bytes[9] %= 18;
        }
        let before = bytes.clone();
        let done = match out {
            true => nat.outbound(NOW, &mut bytes, None),
            false => nat.inbound(NOW, &mut bytes, None),
        };
        if done.is_err() {
            prop_assert_eq!(bytes, before);
        }
    }
}
