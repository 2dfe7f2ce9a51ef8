//! Honest connections of which the gateway sees one side, or whose ports are used again: they pass,
//! and are looked at by the sides that they have.

use weir_detect::Limits;
use weir_engine::policy::{Exception, Exceptions};
use weir_wire::checksum::Sum;
use weir_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

use super::inline::{ATTACKER, VICTIM, gateway, ipv4};
use super::*;

const RULES: &str = "drop tcp any any -> any 80 (content:\"evil\"; flow:to_server; sid:1;)";
const CLIENT: u16 = 4000;
const SERVER: u16 = 80;

fn strict(rules: &str) -> Gateway {
    gateway(rules, |policy| {
        let limits = &mut policy.rules.as_mut().unwrap().limits;
        *limits =
            Limits { sees_all: true, checks_segments: true, refuses_conflicts: true, ..*limits };
    })
}

/// A segment of the client's, from the wire, or of the server's.
fn segment(of_client: bool, flags: u8, [at, ack]: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let (ends, ports) = match of_client {
        true => ([ATTACKER, VICTIM], [CLIENT, SERVER]),
        false => ([VICTIM, ATTACKER], [SERVER, CLIENT]),
    };
    let mut tcp = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    tcp.extend(at.to_be_bytes());
    tcp.extend(if flags & ACK == 0 { 0 } else { ack }.to_be_bytes());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let sum = Sum::new().with_u16(6).with_u32(tcp.len() as u32);
    let sum = sum.with(&ends[0]).with(&ends[1]).with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(ends[0], ends[1], 6, 0, &tcp)
}

fn say(gateway: &mut Gateway, of_client: bool, flags: u8, numbers: [u32; 2], text: &[u8]) -> usize {
    let side = if of_client { Side::Wire } else { Side::Host };
    gateway.receive(side, &[segment(of_client, flags, numbers, text)]).len()
}

/// Numbers of a second connection on the same ports.
const SECONDS: [u32; 3] = [0x9000_0000, 0x1000_0000, 0x6000_0000];

#[test]
fn ports_are_used_again_where_only_the_server_is_seen() {
    for second in SECONDS {
        let gateway = &mut strict(RULES);
        let first = 0x5000_0000;
        for (flags, at, text) in [
            (SYN | ACK, first, b"".as_slice()),
            (ACK | PSH, first + 1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            (FIN | ACK, first + 39, b""),
            (SYN | ACK, second, b""),
            (ACK | PSH, second + 1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ] {
            assert_eq!(say(gateway, false, flags, [at, 77], text), 1, "{second:x} {flags} {at:x}");
        }
    }
}

#[test]
fn ports_are_used_again_where_only_the_client_is_seen() {
    for second in SECONDS {
        let gateway = &mut strict(RULES);
        let first = 0x5000_0000;
        for (flags, at, text) in [
            (SYN, first, b"".as_slice()),
            (ACK | PSH, first + 1, b"GET / HTTP/1.1\r\n\r\n"),
            // The server has reset it.
            (SYN, second, b""),
            (ACK | PSH, second + 1, b"GET / HTTP/1.1\r\n\r\n"),
        ] {
            assert_eq!(say(gateway, true, flags, [at, 77], text), 1, "{second:x} {flags} {at:x}");
        }
    }
}

/// Both sides are seen; `ends` is how the first connection ends.
fn again(ends: &[(bool, u8, [u32; 2])]) {
    for second in SECONDS {
        let gateway = &mut strict(RULES);
        let (c, s) = (0x5000_0000, 0x2000_0000);
        let mut both = |of_client, flags, numbers, text: &[u8], of: &str| {
            let passed = say(gateway, of_client, flags, numbers, text);
            assert_eq!(passed, 1, "{second:x} {of} {of_client} {flags}");
        };
        both(true, SYN, [c, 0], b"", "first");
        both(false, SYN | ACK, [s, c + 1], b"", "first");
        both(true, ACK, [c + 1, s + 1], b"", "first");
        both(true, ACK | PSH, [c + 1, s + 1], b"hello", "first");
        both(false, ACK | PSH, [s + 1, c + 6], b"world", "first");
        both(true, ACK, [c + 6, s + 6], b"", "first");
        for (of_client, flags, [at, ack]) in ends {
            let numbers = if *of_client { [c + at, s + ack] } else { [s + at, c + ack] };
            both(*of_client, *flags, numbers, b"", "end");
        }
        let (c, s) = (second, second ^ 0x3777_0000);
        both(true, SYN, [c, 0], b"", "second");
        both(false, SYN | ACK, [s, c + 1], b"", "second");
        both(true, ACK, [c + 1, s + 1], b"", "second");
        both(true, ACK | PSH, [c + 1, s + 1], b"hello", "second");
        both(false, ACK | PSH, [s + 1, c + 6], b"world", "second");
    }
}

#[test]
fn ports_are_used_again() {
    let fin = FIN | ACK;
    let closes = [(true, fin, [6, 6]), (false, fin, [6, 7]), (true, ACK, [7, 7])];
    again(&closes);
    again(&closes[..2]);
    again(&closes[..1]);
    again(&[]);
    again(&[(true, RST, [6, 0])]);
    again(&[(true, RST | ACK, [6, 6])]);
    again(&[(false, RST, [6, 6])]);
    again(&[(true, fin, [6, 6]), (false, RST, [6, 6])]);
    // Who has forgotten it is asked again.
    again(&[(true, SYN, [0x7000_0000, 0]), (false, ACK, [6, 6]), (true, RST, [6, 0])]);
}

#[test]
fn ports_that_were_only_asked_are_asked_again() {
    for second in SECONDS {
        let gateway = &mut strict(RULES);
        let (c, s) = (0x5000_0000, 0x2000_0000);
        for (of_client, flags, numbers, text) in [
            (true, SYN, [c, 0], b"".as_slice()),
            (false, SYN | ACK, [s, c + 1], b""),
            (true, RST, [c + 1, 0], b""),
            (true, SYN, [second, 0], b""),
            (false, SYN | ACK, [s + 0x3777_0000, second + 1], b""),
            (true, ACK, [second + 1, s + 0x3777_0001], b""),
            (true, ACK, [second + 1, s + 0x3777_0001], b"hello"),
            (false, ACK, [s + 0x3777_0001, second + 6], b"hello"),
        ] {
            assert_eq!(say(gateway, of_client, flags, numbers, text), 1, "{second:x} {flags}");
        }
    }
}

/// The second SYN reaches the gateway before the server's answer to the first.
#[test]
fn a_syn_that_is_sent_again_with_another_number_does_not_end_what_the_first_began() {
    let gateway = &mut strict(RULES);
    let (c, s, other) = (0x5000_0000, 0x2000_0000, 0x9000_0000);
    for (of_client, flags, numbers, text) in [
        (true, SYN, [c, 0], b"".as_slice()),
        (true, SYN, [other, 0], b""),
        (false, SYN | ACK, [s, c + 1], b""),
        (true, ACK, [c + 1, s + 1], b""),
        (true, ACK, [c + 1, s + 1], b"hello"),
    ] {
        assert_eq!(say(gateway, of_client, flags, numbers, text), 1, "{flags}");
    }
}

#[test]
fn who_keeps_a_connection_alive_by_a_byte_is_let_through() {
    let gateway = &mut strict(RULES);
    let (c, s) = (0x5000_0000, 0x2000_0000);
    for (of_client, flags, numbers, text) in [
        (true, SYN, [c, 0], b"".as_slice()),
        (false, SYN | ACK, [s, c + 1], b""),
        (true, ACK, [c + 1, s + 1], b""),
        (true, ACK, [c, s + 1], b"\0"),
        (false, ACK, [s + 1, c + 1], b""),
        (false, ACK, [s, c + 1], b"\0"),
        (true, ACK, [c + 1, s + 1], b""),
        (true, ACK, [c + 1, s + 1], b"hello"),
        (false, ACK, [s + 1, c + 6], b""),
        (true, ACK, [c + 5, s + 1], b"\0"),
    ] {
        assert_eq!(say(gateway, of_client, flags, numbers, text), 1, "{flags} {numbers:?}");
    }
}

/// A server says something to a port at which its client has not spoken yet: the connection that
/// follows is the client's nevertheless.
#[test]
fn a_server_that_speaks_first_does_not_become_the_client() {
    let mut spoiled = segment(false, ACK, [1, 1], b"x");
    spoiled[50] ^= 1;
    let reserved = segment(false, 0, [1, 1], b"");
    for before in [spoiled, reserved, segment(false, ACK, [1, 1], b"")] {
        let gateway = &mut strict(RULES);
        gateway.receive(Side::Host, &[before]);
        let (c, s) = (0x5000_0000, 0x2000_0000);
        say(gateway, true, SYN, [c, 0], b"");
        say(gateway, false, SYN | ACK, [s, c + 1], b"");
        say(gateway, true, ACK, [c + 1, s + 1], b"");
        say(gateway, true, ACK, [c + 1, s + 1], b"ev");
        assert_eq!(say(gateway, true, ACK, [c + 3, s + 1], b"il"), 0, "it is to the server");
    }
}

/// As by default: else some thousand frames carry a word past the rules.
#[test]
fn pieces_that_others_push_out_bring_no_word() {
    let drop_them = Exceptions { fragments: Exception::Drop, ..Exceptions::default() };
    let mut gateway = gateway(super::inline::EVIL, |policy| policy.exceptions = drop_them);
    let payload = super::inline::udp_payload(99, b"xxxxxxevil");
    // The word lies across the cut.
    let [head, tail] = [(0x2000, &payload[..16]), (2, &payload[16..])]
        .map(|(flags, it)| ipv4(ATTACKER, VICTIM, 17, flags, it));
    let mut arrived = Vec::new();
    for (round, part) in [&head, &tail].into_iter().enumerate() {
        arrived.extend(gateway.receive(Side::Wire, from_ref(part)));
        for number in 0..4096_u16 {
            let mut other = ipv4([192, 0, 2, 67], VICTIM, 17, 0x2001, &[0; 8]);
            let number = number + 0x2000 * round as u16;
            other[18..20].copy_from_slice(&number.to_be_bytes());
            super::inline::sign(&mut other);
            arrived.extend(gateway.receive(Side::Wire, &[other]));
        }
    }
    let parts = arrived.iter().filter(|it| it.1.bytes == head || it.1.bytes == tail).count();
    assert!(parts < 2, "both pieces go on, and nobody has judged them");
}
