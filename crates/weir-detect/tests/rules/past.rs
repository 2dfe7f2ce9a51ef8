//! Requests that servers answer, and that rules about HTTP have to see: inline, however they come.

use weir_detect::Limits;

use crate::bench::Bench;

const RULE: &str = "drop http any any -> any any (http.uri; content:\"/evil\"; sid:1;)";

/// Whether the rule sees the evil request among such pieces.
fn is_seen(pieces: &[&[u8]]) -> bool {
    is_seen_by(RULE, pieces)
}

fn is_seen_by(rule: &str, pieces: &[&[u8]]) -> bool {
    let mut bench =
        Bench::with(rule, Limits { sees_all: true, refuses_conflicts: true, ..Limits::default() });
    bench.connect();
    for piece in pieces {
        bench.client(piece);
        bench.server(b"");
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

#[test]
fn a_request_behind_one_of_an_unknown_method_is_looked_at_however_long_that_is() {
    let long = [b"PURGE /", "a".repeat(5000).as_bytes(), b" HTTP/1.1\r\n\r\n"].concat();
    assert!(is_seen(&[&long[..1400], &long[1400..2800], &long[2800..], EVIL]));
    let word = ["PURGE".repeat(30).as_bytes(), b" / HTTP/1.1\r\n\r\n"].concat();
    assert!(is_seen(&[&word, EVIL]));
}

#[test]
fn a_method_that_a_tabulator_ends_is_one() {
    assert!(is_seen(&[b"GET\t/evil HTTP/1.1\r\nHost: a\r\n\r\n"]));
    assert!(is_seen(&[b"PURGE\t/evil\tHTTP/1.1\r\nHost: a\r\n\r\n"]));
}

#[test]
fn a_request_of_an_unknown_method_behind_another_is_looked_at() {
    let behind = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPURGE /evil HTTP/1.1\r\n\r\n";
    assert!(is_seen(&[behind]));
    for cut in 28..behind.len() - 2 {
        assert!(is_seen(&[&behind[..cut], &behind[cut..]]), "{cut}");
    }
    let posted = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxxPURGE /evil HTTP/1.1\r\n\r\n";
    assert!(is_seen(&[posted]));
}

#[test]
fn a_request_behind_one_for_a_tunnel_is_looked_at_before_the_proxy_answers() {
    let connect = b"CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n";
    assert!(is_seen(&[connect, EVIL]));
    assert!(is_seen(&[&[&connect[..], EVIL].concat()]));
    assert!(is_seen(&[connect, b"\x16\x03\x01 no\r\nmore\r\n", EVIL]));
}

#[test]
fn a_request_behind_what_is_given_up_is_looked_at() {
    let posted = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for size in [&b"0x0\r\n\r\n"[..], b"+0\r\n\r\n", b"g\r\n\r\n", b"5\r\nabcde\r\nx\r\n"] {
        assert!(is_seen(&[posted, size, EVIL]), "{size:?}");
        assert!(is_seen(&[&[posted, size, EVIL].concat()]), "{size:?}");
    }
    let header = [b"GET / HTTP/1.1\r\nX: ", "a".repeat(20_000).as_bytes(), b"\r\n\r\n"].concat();
    let pieces: Vec<&[u8]> = header.chunks(1400).chain([EVIL]).collect();
    assert!(is_seen(&pieces));
}

#[test]
fn a_request_of_http2_before_many_frames_in_one_piece_is_looked_at() {
    // RFC 9113 s6.2, RFC 7541: ":method GET", ":path /evil" as it is; then WINDOW_UPDATE.
    let head = b"\0\0\x08\x01\x05\0\0\0\x01\x82\x04\x05/evil";
    let update = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let (begin, evil) = ([&begin[..], head].concat(), update.repeat(300));
    assert!(is_seen(&[&begin]));
    assert!(is_seen(&[&[begin, evil].concat()]));
}

#[test]
fn an_open_request_of_http2_is_looked_at_however_much_else_is_between() {
    const RULE: &str = "drop http any any -> any any (http.method; content:\"POST\"; \
         http.request_body; content:\"evil\"; sid:1;)";
    // ":method POST", ":path /".
    let open = [0, 0, 2, 1, 4, 0, 0, 0, 1, 0x83, 0x84];
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let begin = [&begin[..], &open].concat();
    let evil = b"\0\0\x04\0\x01\0\0\0\x01evil";
    assert!(is_seen_by(RULE, &[&begin, evil]));
    let pings = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0".repeat(257);
    assert!(is_seen_by(RULE, &[&begin, &pings, evil]), "PING");
    // Others that the client resets.
    let reset = |number: u16| {
        let [high, low] = (2 * number + 3).to_be_bytes();
        let headers = [0, 0, 2, 1, 4, 0, 0, high, low, 0x83, 0x84];
        let reset = [0, 0, 4, 3, 0, 0, 0, high, low, 0, 0, 0, 8];
        [&headers[..], &reset].concat()
    };
    let resets: Vec<u8> = (0..300).flat_map(reset).collect();
    assert!(is_seen_by(RULE, &[&begin, &resets, evil]), "RST_STREAM");
}
