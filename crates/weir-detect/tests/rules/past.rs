//! Requests that servers answer, and that rules about HTTP have to see: inline, however they come.

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
fn a_request_is_looked_at() {
    assert!(is_seen(&[EVIL]));
    assert!(is_seen(&[b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", EVIL]));
}
