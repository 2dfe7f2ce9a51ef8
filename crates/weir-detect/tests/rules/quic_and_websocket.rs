//! Rules about hellos in QUIC, WebSocket's messages and POP3.

use weir_detect::Direction;

use crate::bench::{Bench, CLIENT, SERVER, udp};

/// A client's first packets, of a version 1 connection: the end of its hello, and the beginning.
const SECOND_PIECE: &str = "\
    c60000000108a54dca182530bb1d056d132cded600402f1b64fd3e6f26a1ad0f175ce0b710698c459089dc22\
    316a5279c89cb0080dd7694539018309aba8b326fe6fc9c648d1";
/// See there.
const FIRST_PIECE: &str = "\
    c90000000108a54dca182530bb1d056d132cded600405010d94cccaaa0a06413070285b61a8f3a2458d9c56d\
    7fbc1a4c4f86fd0a24367bea2d5251d709907151200528a652057e03b553e990d309a624cf81538f0b0d131b\
    d45e7440546bc8fb61ce2593fa98e6";
/// The server's hello.
const ANSWER: &str = "\
    c300000001056d132cded606237b2ed91e3f00404633226f47c167759f83edac4ae2e4c2b7aa7aeee0a05f63\
    63b4e31c7dda5b86d109ee7980ffa6dda8e695fe57d31ad4dec80009872683dd9b26b503b4cf8902501968c0\
    20afd5";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |it: u8| char::from(it).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|it| digit(it[0]) << 4 | digit(it[1])).collect()
}

fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

#[test]
fn a_hello_in_quic_is_read_from_its_pieces() {
    let mut bench = Bench::new(
        "alert quic any any -> any any (quic.sni; content:\"example.org\"; sid:1;)\n\
         alert udp any any -> any any (ja3.string; content:\"771,4865,0-16-43,,\"; sid:2;)\n\
         alert quic any any -> any any (ja4.hash; content:\"q13d0103h3_\"; startswith; sid:3;)\n\
         alert quic any any -> any any (quic.version; content:\"|00 00 00 01|\"; \
         flow:to_client; sid:4;)\n\
         alert quic any any -> any any (ja3s.string; content:\"771,4865,43\"; sid:5;)\n\
         alert tls any any -> any any (ja3.string; content:\"771\"; sid:6;)\n\
         alert quic any any -> any any (app-layer-event:quic.failed_decrypt; sid:7;)",
    );
    let client = |it: &[u8]| udp(CLIENT, SERVER, 40_000, 443, it);
    bench.send(Direction::Initiator, &client(&bytes(SECOND_PIECE)));
    assert_eq!(sorted(&mut bench), []);
    bench.send(Direction::Initiator, &client(&bytes(FIRST_PIECE)));
    assert_eq!(sorted(&mut bench), [1, 2, 3]);
    let answer = udp(SERVER, CLIENT, 443, 40_000, &bytes(ANSWER));
    bench.send(Direction::Responder, &answer);
    assert_eq!(sorted(&mut bench), [4, 5]);
}

#[test]
fn a_packet_of_quic_that_was_changed_is_odd() {
    let mut bench = Bench::new(
        "alert quic any any -> any any (app-layer-event:quic.failed_decrypt; sid:1;)\n\
         alert quic any any -> any any (quic.sni; content:\"example.org\"; sid:2;)",
    );
    let mut changed = bytes(FIRST_PIECE);
    *changed.last_mut().unwrap() ^= 1;
    for datagram in [changed, bytes(FIRST_PIECE), bytes(SECOND_PIECE)] {
        bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 443, &datagram));
    }
    assert_eq!(bench.alerted(), [1, 2], "what follows is read");
}

#[test]
fn what_a_server_passes_over_hides_no_hello_behind_it() {
    let junk: &[u8] = b"\x00junk";
    let sip: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a\r\n\r\n";
    for (decoy, count) in [(junk, 4), (junk, 300), (sip, 1)] {
        let mut bench =
            Bench::new("alert quic any any -> any any (quic.sni; content:\"example.org\"; sid:1;)");
        let mut client = |it: &[u8]| {
            bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 443, it));
            bench.alerted()
        };
        for _ in 0..count {
            client(decoy);
        }
        client(&bytes(SECOND_PIECE));
        // Another one between its pieces.
        client(decoy);
        assert_eq!(client(&bytes(FIRST_PIECE)), [1], "{decoy:x?} {count}");
    }
}

#[test]
fn a_server_that_answers_in_http_behind_its_upgrade_is_not_expected_to() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-event:applayer_unexpected_protocol; sid:1;)",
    );
    let upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    bench.connect();
    bench.client(b"GET /chat HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n");
    bench.server(upgraded);
    assert_eq!(bench.alerted(), []);
    bench.server(upgraded);
    assert_eq!(bench.alerted(), [1]);
    bench.server(upgraded);
    assert_eq!(bench.alerted(), []);
}

#[test]
fn messages_of_websocket_are_looked_at_behind_the_upgrade() {
    let mut bench = Bench::new(
        "alert websocket any any -> any any (websocket.payload; content:\"swordfish\"; sid:1;)\n\
         alert websocket any any -> any any (websocket.opcode:text; websocket.flags:!fin; sid:2;)\n\
         alert websocket any any -> any any (websocket.mask:16909060; websocket.opcode:close; \
         sid:3;)\n\
         alert http any any -> any any (flow:to_client; http.stat_code; content:\"101\"; sid:4;)\n\
         alert http any any -> any any (http.uri; content:\"/chat\"; sid:5;)\n\
         alert tcp any any -> any any (websocket.payload; content:\"sword\"; bsize:5; sid:6;)",
    );
    bench.connect();
    bench.client(b"GET /chat HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(sorted(&mut bench), [5]);
    // A frame comes with the answer, in two pieces.
    bench.server(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\r\n\x01\x05swo");
    assert_eq!(sorted(&mut bench), [4]);
    bench.server(b"rd");
    assert_eq!(sorted(&mut bench), [2, 6]);
    bench.server(b"\x80\x04fish\x8a\x00");
    assert_eq!(sorted(&mut bench), [1]);
    bench.client(b"\x88\x82\x01\x02\x03\x04\x02\xea");
    assert_eq!(sorted(&mut bench), [3]);
}

#[test]
fn what_is_odd_about_pop3_is_asked_for() {
    let mut bench = Bench::new(
        "alert pop3 any any -> any any (app-layer-event:pop3.unknown_command; sid:1;)\n\
         alert pop3 any any -> any any (content:\"secret\"; sid:2;)",
    );
    bench.server_port = 110;
    bench.connect();
    bench.server(b"+OK ready\r\n");
    bench.client(b"USER bob\r\nPASS secret\r\n");
    assert_eq!(sorted(&mut bench), [2]);
    bench.client(b"XYZZY\r\n");
    assert_eq!(sorted(&mut bench), [1]);
}
