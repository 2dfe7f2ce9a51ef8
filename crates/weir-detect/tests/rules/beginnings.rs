//! What is spoken is told although something comes before it that receivers pass over.

use weir_detect::Direction::{self, Initiator as Client, Responder as Server};
use weir_detect::Limits;

use crate::bench::Bench;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A connection that begins with such packets, each SYN sent once or again.
fn begun(rules: &str, limits: Limits, packets: &[(Direction, u8)]) -> Bench {
    let mut bench = Bench::with(rules, limits);
    let first = bench.next;
    for (direction, flags) in packets {
        let side = *direction as usize;
        bench.next[side] = first[side] + u32::from(flags & SYN == 0);
        bench.tcp(*direction, *flags, b"");
        bench.next[side] = first[side] + 1;
    }
    bench
}

const ESTABLISHED: &str = "alert http any any -> any any (flow:established,to_server; http.uri; \
    content:\"evil\"; sid:1;)
    alert http any any -> any any (flow:established,to_client; file.data; content:\"evil\"; sid:2;)
    alert tcp any any -> any any (flow:established,to_server; content:\"GET\"; sid:3;)
    alert tcp any any -> any any (flow:established,to_client; content:\"200 OK\"; sid:4;)";
const REQUEST: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn data_with_the_last_of_a_handshake_are_those_of_a_connection() {
    for sees_all in [false, true] {
        let limits = Limits { sees_all, ..Limits::default() };
        let packets = [(Client, SYN), (Server, SYN | ACK)];
        let mut bench = begun(ESTABLISHED, limits, &packets);
        bench.client(REQUEST);
        bench.server(RESPONSE);
        let mut alerted = bench.alerted();
        alerted.sort();
        assert_eq!(alerted, [1, 2, 3, 4], "{sees_all}");
        // A server that does not wait for the acknowledgment: its client takes what it says.
        let mut bench = begun(ESTABLISHED, limits, &packets);
        bench.server(RESPONSE);
        assert_eq!(bench.alerted(), [4, 2], "{sees_all}");
    }
}

#[test]
fn a_server_that_begins_instead_of_answering_is_heard() {
    // RFC 9293 s3.5, figure 7; and what hosts answer to a server that does as if.
    let ways: [&[(Direction, u8)]; 4] = [
        &[(Client, SYN), (Server, SYN), (Client, SYN | ACK), (Server, ACK)],
        &[(Client, SYN), (Server, ACK), (Server, SYN), (Client, SYN | ACK), (Server, ACK)],
        &[(Client, SYN), (Server, SYN), (Client, SYN | ACK), (Server, SYN | ACK)],
        &[(Client, SYN), (Server, SYN), (Server, SYN | ACK), (Client, ACK)],
    ];
    for (way, packets) in ways.iter().enumerate() {
        for sees_all in [false, true] {
            let limits = Limits { sees_all, ..Limits::default() };
            let mut bench = begun(ESTABLISHED, limits, packets);
            bench.client(REQUEST);
            bench.server(RESPONSE);
            let mut alerted = bench.alerted();
            alerted.sort();
            assert_eq!(alerted, [1, 2, 3, 4], "{way} {sees_all}");
        }
    }
}

#[test]
fn a_hello_request_before_the_hello_does_not_hide_the_server_name() {
    let rule = "alert tls any any -> any any (tls.sni; content:\"evil\"; sid:1;)";
    let mut hello = vec![1, 0, 0, 56, 3, 3];
    hello.extend([0; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 13, 0, 0, 0, 9, 0, 7, 0, 0, 4]);
    hello.extend(b"evil");
    let record = |message: &[u8]| [&[22, 3, 1, 0, message.len() as u8], message].concat();
    let in_own = [record(&[0; 4]), record(&hello)].concat();
    let in_one = record(&[&[0; 4], hello.as_slice()].concat());
    for bytes in [in_own, in_one] {
        for piece in [1, 5, 1000] {
            let mut bench = Bench::new(rule);
            bench.connect();
            bytes.chunks(piece).for_each(|it| _ = bench.client(it));
            assert_eq!(bench.alerted(), [1], "{piece}");
        }
    }
}

#[test]
fn a_hello_is_read_whatever_version_its_record_names() {
    let rule = "alert tls any any -> any any (tls.sni; content:\"evil\"; sid:1;)";
    let mut hello = vec![22, 3, 0, 0, 60, 1, 0, 0, 56, 3, 3];
    hello.extend([0; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 13, 0, 0, 0, 9, 0, 7, 0, 0, 4]);
    hello.extend(b"evil");
    for minor in [0, 4, 5, 0x7f, 0xff] {
        for piece in [1, 1000] {
            hello[2] = minor;
            let mut bench = Bench::new(rule);
            bench.connect();
            hello.chunks(piece).for_each(|it| _ = bench.client(it));
            assert_eq!(bench.alerted(), [1], "{minor} {piece}");
        }
    }
}

#[test]
fn many_blanks_before_a_request_do_not_hide_it() {
    let rule = "alert http any any -> any any (http.uri; content:\"evil\"; sid:1;)";
    for blank in ["\r\n", "\n", " ", "\t", "\0"] {
        for (count, piece) in [(4000, 1), (10_000, 1400), (100_000, 1000), (20_000, 65_000)] {
            let mut bench = Bench::new(rule);
            bench.connect();
            let said = [&blank.repeat(count), "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            for piece in said.as_bytes().chunks(piece) {
                bench.client(piece);
                bench.server(b"");
            }
            assert_eq!(bench.alerted(), [1], "{blank:?} {count} {piece}");
        }
    }
}

#[test]
fn what_a_client_of_ftp_says_first_does_not_hide_the_session() {
    let rule = "alert ftp any any -> any any (ftp.command; content:\"USER\"; sid:1;)";
    let first =
        ["", "\r\n", "\n", " ", "\r\n\r\n", "NOOP\r\n", "what no server knows, at length\r\n"];
    for (port, greeting) in [(21, "220 hi\r\n"), (21, "220-hi\r\n"), (2121, "220 (hi)\r\n")] {
        for first in first {
            let mut bench = Bench::new(rule);
            bench.server_port = port;
            bench.connect();
            bench.server(greeting.as_bytes());
            bench.client(first.as_bytes());
            bench.client(b"USER a\r\n");
            assert_eq!(bench.alerted(), [1], "{port} {first:?}");
        }
    }
    let mut bench = Bench::new(rule);
    bench.server_port = 21;
    bench.connect();
    bench.client(b"\r\nUSER a\r\n");
    assert_eq!(bench.alerted(), [1]);
}

/// A connection that is older than the gateway, or was silent until it was forgotten: each of its
/// packets is looked at as one of a connection.
#[test]
fn inline_packets_of_older_connections_are_those_of_a_connection() {
    let rules =
        "alert tcp any any -> any any (flow:established,to_server; content:\"evil\"; sid:1;)";
    let seen = |limits: Limits, flags: u8| {
        let mut bench = Bench::with(rules, limits);
        bench.tcp(Client, flags, b"evil");
        bench.alerted()
    };
    let inline = Limits { sees_all: true, ..Limits::default() };
    assert_eq!(seen(inline, ACK), [1]);
    assert_eq!(seen(inline, ACK | 4), [], "a reset");
    assert_eq!(seen(Limits { refuses_midstream: true, ..inline }, ACK), []);
    assert_eq!(seen(Limits::default(), ACK), []);
    // A SYN into it: the server tells that it knows better, and goes on.
    let mut bench = begun(rules, inline, &[(Client, SYN), (Server, ACK)]);
    bench.client(b"evil");
    assert_eq!(bench.alerted(), [1]);
}
