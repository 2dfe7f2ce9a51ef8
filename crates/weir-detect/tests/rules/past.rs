//! Requests that servers answer, and that rules about HTTP have to see: inline, however they come.

#![allow(clippy::disallowed_methods, reason = "one test measures")]

use std::time::{Duration, Instant};

use weir_detect::Limits;

use crate::bench::Bench;

const RULE: &str = "drop http any any -> any any (http.uri; content:\"/evil\"; sid:1;)";

/// Whether the rule sees the evil request among such pieces.
fn is_seen(pieces: &[&[u8]]) -> bool {
    let mut bench =
        Bench::with(RULE, Limits { sees_all: true, refuses_conflicts: true, ..Limits::default() });
    bench.connect();
    for piece in pieces {
        bench.client(piece);
    }
    !bench.alerted().is_empty()
}

const EVIL: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_request_before_many_others_in_one_piece_is_looked_at() {
    let others = b"GET / HTTP/1.1\r\n\r\n".repeat(70);
    assert!(others.len() < 1400);
    assert!(is_seen(&[&[EVIL, &others].concat()]));
}

#[test]
fn a_request_behind_one_for_a_tunnel_is_looked_at() {
    let connect = b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(is_seen(&[&[connect, EVIL].concat()]));
    assert!(is_seen(&[connect, EVIL]));
}

#[test]
fn a_request_behind_one_with_a_long_line_is_looked_at() {
    let long = [b"PURGE /", "a".repeat(4200).as_bytes(), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut pieces: Vec<&[u8]> = long.chunks(1400).collect();
    pieces.push(EVIL);
    assert!(is_seen(&pieces));
}

#[test]
fn a_request_behind_one_with_a_long_method_is_looked_at() {
    let long = ["A".repeat(129).as_bytes(), b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    assert!(is_seen(&[&long, EVIL]));
}

#[test]
fn a_request_with_tabs_is_looked_at() {
    assert!(is_seen(&[b"GET\t/evil\tHTTP/1.1\r\nHost: a\r\n\r\n"]));
}

#[test]
fn a_request_of_another_method_behind_one_in_the_same_piece_is_looked_at() {
    assert!(is_seen(&[
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPURGE /evil HTTP/1.1\r\nHost: a\r\n\r\n"
    ]));
}

#[test]
fn a_request_behind_a_chunk_of_an_odd_size_is_looked_at() {
    for size in ["zz", "+3", "-1", "0x3", "3_0"] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let odd = format!("{head}{size}\r\nabc\r\n0\r\n\r\n");
        assert!(is_seen(&[odd.as_bytes(), EVIL]), "{size}");
    }
}

#[test]
fn time_does_not_grow_with_the_square_of_the_body() {
    let rules = "drop http any any -> any any (http.request_body; content:\"aaaa\"; \
         content:\"bbbb\"; distance:0; sid:1;)\n\
        drop http any any -> any any (http.request_body; content:\"aaaa\"; \
         pcre:\"/a+c/\"; sid:2;)\n";
    let mut bench = Bench::with(rules, Limits { sees_all: true, ..Limits::default() });
    bench.connect();
    bench.client(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let mut last = Duration::ZERO;
    for round in 0..6 {
        for _ in 0..10 {
            bench.client(&[b'a'; 1400]);
        }
        let start = Instant::now();
        for _ in 0..100 {
            bench.client(b"a");
        }
        last = start.elapsed() / 100;
        println!("{} bytes: {last:?} a byte", (round + 1) * 14_100);
    }
    assert!(last.as_micros() < 200, "{last:?}");
}

#[test]
fn a_request_of_http2_before_many_frames_in_one_piece_is_looked_at() {
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let block = [b"\x82\x86\x04\x05".as_slice(), b"/evil"].concat();
    let headers = [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1], block.as_slice()].concat();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings].concat();
    assert!(is_seen(&[&preface, &headers]));
    // As a super-packet, or behind a gap that is filled.
    assert!(is_seen(&[&preface, &[headers.as_slice(), &settings.repeat(260)].concat()]));
}

#[test]
fn a_request_is_looked_at() {
    assert!(is_seen(&[EVIL]));
    assert!(is_seen(&[b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", EVIL]));
}
