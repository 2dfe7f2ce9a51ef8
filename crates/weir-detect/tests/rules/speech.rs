//! What is spoken, by whom, and what is carried in what.

use weir_detect::Direction;

use crate::bench::{Bench, CLIENT, SERVER, refused, udp};

fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found.dedup();
    found
}

/// A client's hello without extensions, and a server's.
const HELLO: &[u8] =
    b"\x16\x03\x03\x00\x2d\x01\x00\x00\x29\x03\x03rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\
                       \x00\x00\x02\x00\x2f\x01\x00";

/// A connection of SMTP up to the answer to STARTTLS.
fn starttls(bench: &mut Bench) {
    bench.server_port = 25;
    bench.connect();
    bench.server(b"220 a\r\n");
    bench.client(b"EHLO a\r\n");
    bench.server(b"250 STARTTLS\r\n");
    bench.client(b"STARTTLS\r\n");
    bench.server(b"220 go\r\n");
}

#[test]
fn a_connection_that_changes_to_tls_has_spoken_two_applications() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-protocol:smtp; sid:1;)\n\
         alert tcp any any -> any any (app-layer-protocol:tls; sid:2;)\n\
         alert tcp any any -> any any (app-layer-protocol:smtp,original; \
         app-layer-event:applayer_no_tls_after_starttls; sid:3;)\n\
         alert tcp any any -> any any (app-layer-protocol:tls,final; flow:to_server; sid:4;)\n\
         alert tls any any -> any any (tls.version:1.2; sid:5;)",
    );
    starttls(&mut bench);
    assert_eq!(sorted(&mut bench), [1]);
    bench.client(&HELLO[..20]);
    bench.client(&HELLO[20..]);
    assert_eq!(sorted(&mut bench), [2, 4, 5]);
}

#[test]
fn who_goes_on_in_clear_behind_starttls_is_odd() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-event:applayer_no_tls_after_starttls; sid:1;)",
    );
    starttls(&mut bench);
    assert_eq!(sorted(&mut bench), []);
    bench.client(b"SSH-2.0-OpenSSH_9.6\r\n");
    assert_eq!(sorted(&mut bench), [1]);
}

#[test]
fn what_comes_with_the_answer_to_starttls_and_is_no_tls_is_odd() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-event:applayer_no_tls_after_starttls; sid:1;)\n\
         alert tcp any any -> any any (app-layer-event:applayer_unexpected_protocol; sid:2;)",
    );
    bench.server_port = 25;
    bench.connect();
    bench.server(b"220 a\r\n");
    bench.client(b"EHLO a\r\n");
    bench.server(b"250 STARTTLS\r\n");
    bench.client(b"STARTTLS\r\nMAIL FROM:<a@b>\r\n");
    assert_eq!(sorted(&mut bench), []);
    bench.server(b"220 go\r\n250 ok\r\n");
    assert_eq!(sorted(&mut bench), [1, 2]);
}

#[test]
fn that_nothing_known_is_spoken_takes_what_both_sides_say() {
    for port in [9999, 53] {
        let mut bench = Bench::new(
            "alert tcp any any -> any any (app-layer-protocol:failed; sid:1;)\n\
             alert tcp any any -> any any (app-layer-protocol:!tls; flow:established; sid:2;)\n\
             alert tcp any any -> any any (app-layer-protocol:unknown; flow:established; sid:3;)",
        );
        bench.server_port = port;
        bench.connect();
        bench.alerted();
        bench.client(&[0x90; 40]);
        assert_eq!(sorted(&mut bench), [3], "a client alone, port {port}");
        bench.server(&[0x91; 40]);
        assert_eq!(sorted(&mut bench), [1, 2], "port {port}");
        bench.client(&[0x92; 9]);
        assert_eq!(sorted(&mut bench), [1, 2], "decided for the client too");
        bench.client(&[0x92; 9]);
        assert_eq!(sorted(&mut bench), [2], "once decided");
    }
}

#[test]
fn rules_that_ask_more_than_what_is_spoken_match_each_packet() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (app-layer-protocol:dns; sid:1;)\n\
         alert udp any any -> any any (app-layer-protocol:dns; flow:stateless; sid:2;)\n\
         alert udp any any -> any any (app-layer-protocol:dns; dsize:>1; sid:3;)\n\
         alert udp any any -> any any (app-layer-protocol:dns; flowbits:set,a; sid:4;)",
    );
    const ASKED: &[u8] = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    let mut send = |bytes| {
        bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 53, bytes));
        sorted(&mut bench)
    };
    // As with Suricata, of a side the first two count.
    assert_eq!(send(ASKED), [1, 2, 3, 4]);
    assert_eq!(send(ASKED), [1, 2, 3, 4]);
    assert_eq!(send(ASKED), [2, 3]);
    assert_eq!(send(b"no message"), [2, 3], "what is no message ends nothing");
}

#[test]
fn what_is_spoken_all_along_was_not_there_before() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-protocol:http,original; sid:1;)\n\
         alert tcp any any -> any any (app-layer-protocol:http,final; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), [2]);
}

#[test]
fn no_stream_is_each_packet_alone_in_applications_too() {
    let mut bench = Bench::new(
        "alert http any any -> any any (flow:to_server,no_stream; content:\"Host\"; sid:1;)\n\
         alert http any any -> any any (flow:to_server; content:\"Host\"; sid:2;)\n\
         alert http any any -> any any (flow:to_server,no_stream; content:\"st:\"; offset:0; \
         depth:3; sid:3;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHo");
    bench.client(b"st: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), [2, 3]);
}

#[test]
fn what_is_asked_of_an_application_must_not_contradict_itself() {
    for rule in [
        "alert http any any -> any any (app-layer-protocol:http; sid:1;)",
        "alert tcp any any -> any any (app-layer-protocol:http; app-layer-protocol:smtp; sid:1;)",
        "alert tcp any any -> any any (app-layer-protocol:!http; app-layer-protocol:tls; sid:1;)",
        "alert tcp any any -> any any (app-layer-protocol:http,sideways; sid:1;)",
    ] {
        assert_eq!(refused(rule), "app-layer-protocol", "{rule}");
    }
}

#[test]
fn a_message_of_dns_and_what_carries_it_are_not_asked_for_at_once() {
    let rule = "alert doh2 any any -> any any (http.method; content:\"GET\"; dns.query; \
                content:\"a\"; sid:1;)";
    assert_eq!(refused(rule), "protocol");
}

/// A frame of HTTP/2, of the first stream unless it is the connection's.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let stream = if kind == 4 { 0 } else { 1 };
    let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";
const RULES: &str = "alert dns any any -> any any (dns.query; content:\"example\"; sid:1;)\n\
     alert doh2 any any -> any any (dns.query; content:\"example\"; sid:2;)\n\
     alert http2 any any -> any any (http.method; content:\"POST\"; sid:3;)\n\
     alert doh2 any any -> any any (http.method; content:\"POST\"; sid:4;)\n\
     alert doh2 any any -> any any (dns.opcode:0; sid:5;)\n\
     alert tcp any any -> any any (app-layer-protocol:doh2; sid:6;)";

#[test]
fn queries_in_bodies_of_http2_are_dns() {
    let mut bench = Bench::new(RULES);
    bench.connect();
    bench.client(&[PREFACE, &frame(4, 0, b"")].concat());
    bench.server(&frame(4, 0, b""));
    assert_eq!(sorted(&mut bench), []);
    // POST, `/`, and the type of what is sent.
    let headers = [b"\x83\x86\x84\x5f\x17".as_slice(), b"application/dns-message"].concat();
    bench.client(&[frame(1, 4, &headers), frame(0, 1, QUERY)].concat());
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn queries_in_targets_of_http2_are_dns() {
    let mut bench = Bench::new(RULES);
    bench.connect();
    let target = b"/dns-query?dns=AAABAAABAAAAAAAAB2V4YW1wbGUDb3JnAAABAAE";
    let headers = [b"\x82\x86\x44".as_slice(), &[target.len() as u8], target].concat();
    bench.client(&[PREFACE, &frame(4, 0, b""), &frame(1, 5, &headers)].concat());
    assert_eq!(sorted(&mut bench), [1, 2, 5, 6]);
}
