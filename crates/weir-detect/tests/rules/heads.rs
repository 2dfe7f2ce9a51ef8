//! Heads of HTTP whose end does not come, or comes late. Expectations are what Suricata 8.0.7
//! alerts on with the same packets; at a FIN, it waits for the connection's last packet.

use weir_detect::{AsSuricata, Decision, Direction, Limits};

use crate::bench::Bench;

const FIN_ACK: u8 = 17;
const RST_ACK: u8 = 20;

/// Rules of requests: 1 to 4 look at the line, 5 and 6 at a header, 7 to 10 at all of them.
const RULES: &str = "\
    alert http any any -> any any (http.method; content:\"GET\"; sid:1;)\n\
    alert http any any -> any any (http.uri; content:\"/evil\"; sid:2;)\n\
    alert http any any -> any any (http.request_line; content:\"GET /evil\"; sid:3;)\n\
    alert http any any -> any any (http.method; content:!\"PUT\"; sid:4;)\n\
    alert http any any -> any any (http.user_agent; content:\"robot\"; sid:5;)\n\
    alert http any any -> any any (http.uri; content:\"/evil\"; http.accept; content:\"a\"; \
     sid:6;)\n\
    alert http any any -> any any (http.header; content:\"Host\"; sid:7;)\n\
    alert http any any -> any any (http.uri; content:\"/evil\"; http.header; \
     content:\"Host\"; sid:8;)\n\
    alert http any any -> any any (http.host; content:\"abc\"; sid:9;)\n\
    alert http any any -> any any (http.start; content:\"GET\"; sid:10;)";

/// The sids that alerted since this was asked last, in order of their numbers.
fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

fn begun(rules: &str) -> Bench {
    let mut bench = Bench::new(rules);
    bench.connect();
    bench
}

#[test]
fn a_header_is_known_when_a_byte_of_the_next_has_come() {
    let mut bench = begun(RULES);
    bench.client(b"POST /x HTTP/1.1\r\nUser-Agent: robot\r\n");
    assert!(!sorted(&mut bench).contains(&5), "it may go on in the next line");
    bench.client(b"C");
    assert_eq!(sorted(&mut bench), [5]);
}

#[test]
fn a_line_is_looked_at_when_it_is_whole_and_headers_when_the_next_has_come() {
    let mut bench = begun(RULES);
    for (piece, found) in [
        ("GET /evil HT", [].as_slice()),
        ("TP/1.1\r\n", &[1, 2, 3, 4]),
        ("Host: abc\r\nUser-Agent: ro", &[]),
        ("bot\r\n", &[]),
        ("Accept: a\r\n", &[5]),
        ("\r\n", &[6, 7, 8, 9, 10]),
    ] {
        bench.client(piece.as_bytes());
        assert_eq!(sorted(&mut bench), found, "{piece:?}");
    }
    bench.client(b"GET /evil HTTP/1.1\r\nHost: abc\r\nUser-Agent: robot\r\nAccept: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_header_that_goes_on_is_not_looked_at_before_its_end() {
    let mut bench = begun("alert http any any -> any any (http.user_agent; bsize:5; sid:1;)");
    bench.client(b"GET / HTTP/1.1\r\nUser-Agent: robot\r\n");
    bench.client(b" two\r\n");
    bench.client(b"Host: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), []);
}

#[test]
fn a_request_is_dropped_by_its_line() {
    let mut bench = begun("drop http any any -> any any (http.uri; content:\"/evil\"; sid:1;)");
    assert_eq!(bench.client(b"GET /evil HTTP/1.1\r"), Decision::Pass);
    assert!(matches!(bench.client(b"\nHost: a\r\n"), Decision::Drop { .. }));
    assert!(matches!(bench.client(b"\r\n"), Decision::Drop { .. }));
    assert_eq!(sorted(&mut bench), [1]);
}

#[test]
fn a_head_that_its_side_ends_is_looked_at_as_far_as_it_came() {
    for flags in [FIN_ACK, RST_ACK] {
        let mut bench = begun(RULES);
        bench.client(b"GET /evil HTTP/1.1\r\nHost: abc\r\nAccept: a\r\n");
        assert_eq!(sorted(&mut bench), [1, 2, 3, 4]);
        bench.tcp(Direction::Initiator, flags, b"");
        // Whom it is for is not settled.
        assert_eq!(sorted(&mut bench), [6, 7, 8, 10], "{flags}");
    }
    let mut bench = begun(RULES);
    bench.client(b"GET /evil HT");
    bench.tcp(Direction::Initiator, RST_ACK, b"");
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4, 10]);
}

#[test]
fn a_reset_that_its_receiver_does_not_believe_ends_no_head() {
    let mut bench = begun(RULES);
    bench.client(b"GET / HTTP/1.1\r\nHost: abc\r\n");
    for _ in 0..3 {
        bench.tcp(Direction::Initiator, RST_ACK, b"");
    }
    assert_eq!(sorted(&mut bench), [1, 4, 7, 10]);
    bench.client(b"User-Agent: robot\r\n\r\n");
    assert_eq!(sorted(&mut bench), [5, 9]);
}

#[test]
fn a_response_is_looked_at_likewise() {
    let mut bench = begun(
        "alert http any any -> any any (http.stat_code; content:\"200\"; sid:1;)\n\
         alert http any any -> any any (http.response_line; content:\"OK\"; sid:2;)\n\
         alert http any any -> any any (http.server; content:\"srv\"; sid:3;)\n\
         alert http any any -> any any (http.location; content:\"loc\"; sid:4;)\n\
         alert http any any -> any any (flow:to_client; http.header; content:\"srv\"; sid:5;)\n\
         alert http any any -> any any (file.data; content:\"res\"; sid:6;)",
    );
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for (piece, found) in [
        ("HTTP/1.1 200 O", [].as_slice()),
        ("K\r\n", &[1, 2]),
        ("Server: srv\r\nLocation: loc\r\n", &[3]),
        ("Content-Length: 3\r\n\r\n", &[4, 5]),
        ("res", &[6]),
    ] {
        bench.server(piece.as_bytes());
        assert_eq!(sorted(&mut bench), found, "{piece:?}");
    }
}

#[test]
fn a_response_belongs_to_the_request_that_has_begun() {
    let mut bench = begun(
        "alert http any any -> any any (http.uri; content:\"/evil\"; sid:1;)\n\
         alert http1 any any -> any any (app-layer-event:http.request_header_invalid; sid:2;)\n\
         alert http any any => any any (http.uri; content:\"/evil\"; http.stat_code; \
         content:\"200\"; sid:3;)",
    );
    bench.client(b"GET /evil HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(sorted(&mut bench), [1]);
    bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(sorted(&mut bench), [3]);
    bench.client(b"\r\n");
    assert_eq!(sorted(&mut bench), []);
}

#[test]
fn nothing_is_absent_from_a_head_that_goes_on() {
    let mut bench = begun(
        "alert http any any -> any any (http.user_agent; absent; sid:1;)\n\
         alert http1:request_headers any any -> any any (sid:2;)\n\
         alert http1:request_line any any -> any any (sid:3;)\n\
         alert http1:request_complete any any -> any any (sid:4;)\n\
         alert http1:response_line any any -> any any (sid:5;)",
    );
    bench.client(b"GET / HTTP/1.1\r\n");
    assert_eq!(sorted(&mut bench), [2, 3]);
    bench.client(b"Host: a\r\nX: y\r\n");
    assert_eq!(sorted(&mut bench), [2]);
    bench.tcp(Direction::Initiator, FIN_ACK, b"");
    bench.tcp(Direction::Responder, FIN_ACK, b"");
    assert_eq!(sorted(&mut bench), [1, 2, 4]);
}

/// Each byte could be worth a look at all of the head.
#[test]
fn a_long_head_is_not_looked_at_with_each_of_its_lines() {
    let mut bench = begun(RULES);
    bench.client(b"GET / HTTP/1.1\r\n");
    let before = bench.detector.counters().evaluations;
    for _ in 0..10_000 {
        bench.client(b"A:\r\n");
    }
    let looks = bench.detector.counters().evaluations - before;
    assert!(looks < 200, "{looks}");
}

const WITHOUT: &str = "alert http any any -> any any (http.request_body; content:\"evil\"; \
     content:!\"good\"; sid:1;)\n\
     alert http any any -> any any (file.data; content:\"evil\"; pcre:!\"/good/\"; \
     flow:to_client; sid:2;)";

/// Suricata does so too, but for the second case when it stands inline.
#[test]
fn what_must_not_be_in_a_body_is_waited_for_as_long_as_its_side_goes_on() {
    for (flags, ends) in [(FIN_ACK, true), (RST_ACK, true), (16, false)] {
        let mut bench = begun(WITHOUT);
        bench.client(b"POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\nevil");
        bench.client(b"xxxx");
        assert_eq!(sorted(&mut bench), [0; 0]);
        bench.server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nevil");
        assert_eq!(sorted(&mut bench), [0; 0]);
        bench.tcp(Direction::Responder, flags, b"");
        assert_eq!(sorted(&mut bench), [2][..usize::from(ends)]);
        bench.tcp(Direction::Initiator, flags, b"");
        assert_eq!(sorted(&mut bench), [1][..usize::from(ends)]);
    }
}

#[test]
fn inline_nothing_is_waited_for() {
    let mut bench = Bench::with(WITHOUT, Limits { sees_all: true, ..Limits::default() });
    bench.connect();
    bench.client(b"POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\nevil");
    assert_eq!(sorted(&mut bench), [1]);
    bench.server(b"HTTP/1.1 200 OK\r\n\r\nx");
    bench.server(b"ev");
    bench.server(b"il");
    assert_eq!(sorted(&mut bench), [2], "with its last byte");
}

/// Suricata reads no further; a server that takes no body with GET does.
#[test]
fn what_a_head_says_of_its_body_in_a_way_that_nobody_knows_hides_no_request() {
    for header in ["Content-Length: x", "Content-Length:", "Transfer-Encoding: gzip"] {
        for is_apart in [false, true] {
            let mut bench =
                begun("alert http any any -> any any (http.uri; content:\"evil\"; sid:1;)");
            let first = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
            let next = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
            match is_apart {
                true => {
                    bench.client(first.as_bytes());
                    bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    bench.client(next.as_bytes());
                }
                false => drop(bench.client((first + next).as_bytes())),
            }
            assert_eq!(sorted(&mut bench), [1], "{header} {is_apart}");
        }
    }
}

/// Asked: Suricata 8.0.7, which sees what the second asks for only if the body comes in
/// another packet.
#[test]
fn headers_behind_a_body_are_looked_at_and_hide_none_before_it() {
    let mut bench = begun(
        "alert http any any -> any any (http.header; content:\"X-Behind: evil\"; sid:1;)\n\
         alert http any any -> any any (http.user_agent; content:\"robot\"; bsize:5; sid:2;)\n\
         alert http any any -> any any (http.host; content:\"abc\"; bsize:3; sid:3;)\n\
         alert http any any -> any any (http.header_names; content:\"Host|0d 0a|\"; \
         content:\"X-Behind|0d 0a 0d 0a|\"; sid:4;)\n\
         alert http any any -> any any (http.start; content:\"robot, other|0d 0a|\"; sid:5;)",
    );
    bench.client(
        b"POST / HTTP/1.1\r\nHost: abc\r\nUser-Agent: robot\r\nTransfer-Encoding: chunked\r\n\r\n\
          1\r\na\r\n0\r\nHost: other\r\nUser-Agent: other\r\nX-Behind: evil\r\n\r\n",
    );
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4, 5]);
}

/// Rules of what stands at the end of heads, and of what follows them.
const BEHIND: &str = "\
    alert http any any -> any any (http.user_agent; content:\"robot\"; sid:1;)\n\
    alert http any any -> any any (http.host; content:\"abc\"; sid:2;)\n\
    alert http any any -> any any (flow:to_server; file.data; content:\"evil\"; sid:3;)\n\
    alert http any any -> any any (flow:to_client; file.data; content:\"evil\"; sid:4;)";

#[test]
fn headers_behind_many_others_or_behind_a_line_of_blanks_are_known() {
    let many: String = (0..900).map(|it| format!("a{it}:1\r\n")).collect();
    for before in [&many, "A: b\r\n \r\n", "A: b\r\n\t \r\n"] {
        let headers = "Host: abc\r\nUser-Agent: robot\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "2\r\nev\r\n2\r\nil\r\n0\r\n\r\n";
        let mut bench = begun(BEHIND);
        bench.client(["POST / HTTP/1.1\r\n", before, headers, body].concat().as_bytes());
        bench.server(["HTTP/1.1 200 OK\r\n", before, headers, body].concat().as_bytes());
        assert_eq!(sorted(&mut bench), [1, 2, 3, 4], "{before}");
    }
}

#[test]
fn whom_a_request_is_for_is_known_whatever_its_scheme() {
    let mut bench = begun(BEHIND);
    bench.client(b"GET h2+a.b://abc/ HTTP/1.1\r\nHost: other\r\n\r\n");
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn who_switches_protocols_unasked_goes_on_in_this_one() {
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for asked in ["", "Upgrade: b\r\n"] {
        for upgrade in ["", "Upgrade: h2c\r\n", "Upgrade: websocket\r\n"] {
            let mut bench = begun(BEHIND);
            bench.client(["GET / HTTP/1.1\r\nHost: a\r\n", asked, "\r\n"].concat().as_bytes());
            let switch = ["HTTP/1.1 101 Switching\r\n", upgrade, "\r\n"].concat();
            bench.server([&switch, RESPONSE].concat().as_bytes());
            assert_eq!(bench.alerted().contains(&4), asked.is_empty(), "{asked} {upgrade}");
        }
    }
}

#[test]
fn a_body_without_a_head_is_looked_at_to_its_end() {
    let mut bench = begun(BEHIND);
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    bench.server(b"ICY 200 OK\r\nA: b\r\n\r\nevil");
    bench.tcp(Direction::Responder, FIN_ACK, b"");
    bench.client(b"");
    assert_eq!(bench.alerted(), [4]);
}

/// Another `Cookie` may follow, and both are one: who acts on the first alone lets the second by.
#[test]
fn a_cookie_is_looked_at_with_all_headers_by_gateways_and_with_its_line_as_by_suricata() {
    let rule = "alert http any any -> any any (http.cookie; content:\"a=1\"; endswith; sid:1;)";
    for (cuts_heads, found) in [(false, &[][..]), (true, &[1])] {
        let as_suricata = AsSuricata { cuts_heads, ..AsSuricata::default() };
        let mut bench = Bench::with(rule, Limits { as_suricata, ..Limits::default() });
        bench.connect();
        bench.client(b"GET / HTTP/1.1\r\nCookie: a=1\r\nC");
        assert_eq!(sorted(&mut bench), found);
        bench.client(b"ookie: evil\r\n\r\n");
        assert_eq!(sorted(&mut bench), []);
    }
}

/// Whatever line a value begins in, and whatever stands between it and its name.
#[test]
fn a_header_is_the_same_however_it_is_folded() {
    const RULES: &str = "\
        alert http any any -> any any (http.host; content:\"bad.host\"; bsize:8; sid:1;)\n\
        alert http any any -> any any (http.user_agent; content:\"Evil\"; startswith; sid:2;)\n\
        alert http any any -> any any (http.header; content:\"Host|3a| bad.host|0d 0a|\"; sid:3;)";
    for (headers, found) in [
        ("Host: bad.host\r\nUser-Agent: Evil\r\n", &[1, 2, 3][..]),
        ("Host:\r\n bad.host\r\nUser-Agent: \r\n\tEvil\r\n", &[1, 2, 3]),
        ("Host:\n bad.host\r\nUser-Agent:\r\n  \r\n Evil\r\n", &[1, 2, 3]),
        ("Host\r\n : bad.host\r\nUser-Agent\n :Evil\r\n", &[1, 2, 3]),
        ("Host:\x0bbad.host\r\nUser-Agent:\x0c\x0bEvil\r\n", &[1, 2, 3]),
        // What goes on is the header that came last, which stands with the first of its name.
        ("X: a\r\nHost: bad.host\r\nX: b\r\n c\r\nUser-Agent: Evil\r\n", &[1, 2, 3]),
    ] {
        let mut bench = begun(RULES);
        bench.client(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes());
        assert_eq!(sorted(&mut bench), found, "{headers:?}");
    }
}
