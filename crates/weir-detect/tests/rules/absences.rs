//! `absent`: when a message is known to have no such buffer. Expectations are what Suricata 8.0.7
//! alerts on for the same packets.

use weir_detect::{Decision, Direction};

use crate::bench::{Bench, CLIENT, SERVER, udp};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The sids that alerted since this was asked last, in order of their numbers.
fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

/// Rules of these options, numbered from 1.
fn rules(protocol: &str, options: &[&str]) -> String {
    let rule = |(at, it)| format!("alert {protocol} any any -> any any ({it} sid:{at};)\n");
    (1..).zip(options).map(rule).collect()
}

#[test]
fn what_may_be_absent_need_not_be_there_to_match() {
    let mut bench = Bench::new(&rules(
        "http",
        &[
            "http.user_agent; absent:or_else; content:\"robot\";",
            "http.cookie; absent:or_else; content:\"robot\";",
            "http.request_body; absent:or_else; content:\"robot\";",
            "http.method; content:\"GET\"; http.user_agent; absent:or_else; content:\"robot\";",
            "http.server; absent:or_else; content:\"robot\";",
        ],
    ));
    bench.connect();
    bench.client(GET);
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4]);
    bench.server(OK);
    assert_eq!(sorted(&mut bench), [2, 5]);
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a robot\r\nCookie: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), [1, 3, 4]);
    bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: man\r\nSet-Cookie: a\r\n\r\n");
    assert_eq!(sorted(&mut bench), []);
}

/// The request is odd, and its server acknowledges it before it answers.
#[test]
fn a_response_lacks_nothing_before_it_came() {
    let mut bench = Bench::new(
        "drop http any any -> any any (flow:to_client; http.server; absent; sid:1;)\n\
         alert http any any -> any any (http.stat_code; absent; sid:2;)\n\
         alert http any any -> any any (http.cookie; absent; sid:3;)\n\
         alert http any any -> any any (file.data; absent; flow:to_client; sid:4;)\n\
         alert http any any -> any any (http.response_header; absent; sid:5;)",
    );
    const ACK: u8 = 16;
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\nX-A: c\r\n\r\n");
    assert_eq!(sorted(&mut bench), [3]);
    bench.tcp(Direction::Responder, ACK, b"");
    assert_eq!(sorted(&mut bench), []);
    let full = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: s\r\n\r\n";
    assert_eq!(bench.server(full), Decision::Pass);
    assert_eq!(sorted(&mut bench), [3, 4]);
    bench.client(GET);
    assert_eq!(sorted(&mut bench), [3]);
    assert_ne!(bench.server(OK), Decision::Pass);
    assert_eq!(sorted(&mut bench), [1, 3, 4]);
}

#[test]
fn a_body_is_absent_when_none_can_come_any_more() {
    let mut bench = Bench::new(&rules(
        "http",
        &["http.request_body; absent;", "file.data; absent;", "http.header; absent;"],
    ));
    bench.connect();
    bench.client(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
    bench.client(b"ab");
    assert_eq!(bench.alerted(), [], "it was still to come");
    bench.server(OK);
    assert_eq!(bench.alerted(), [2]);
    bench.client(GET);
    assert_eq!(sorted(&mut bench), [1, 2]);
    bench.server(b"HTTP/1.1 204 No\r\n\r\n");
    assert_eq!(sorted(&mut bench), [2, 3], "without headers the buffer is none");
}

#[test]
fn an_empty_host_is_there_as_it_came() {
    let mut bench =
        Bench::new(&rules("http", &["http.host.raw; bsize:0;", "http.host.raw; absent;"]));
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: \r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
    bench.client(b"GET / HTTP/1.1\r\nA: b\r\n\r\n");
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn names_of_dns_are_never_said_to_be_absent() {
    let mut bench = Bench::new(&rules(
        "dns",
        &[
            "dns.query; absent;",
            "dns.answers.rrname; absent;",
            "dns.authorities.rrname; absent;",
            "dns.response.rrname; absent;",
            "dns.query; absent:or_else; content:\"a\";",
        ],
    ));
    let head = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    let mut message = [&head[..], b"\x01a\x00\x00\x01\x00\x01"].concat();
    bench.udp(&message);
    assert_eq!(bench.alerted(), [5]);
    message[2] = 0x81;
    let frame = udp(SERVER, CLIENT, 53, 40_000, &message);
    bench.send(Direction::Responder, &frame);
    assert_eq!(bench.alerted(), []);
}

#[test]
fn a_mail_lacks_what_it_has_not_when_it_is_over() {
    let mut bench = Bench::new(&rules(
        "smtp",
        &[
            "smtp.mail_from; absent;",
            "email.subject; absent;",
            "email.from; absent;",
            "email.from; absent:or_else; content:\"example\";",
        ],
    ));
    bench.server_port = 25;
    bench.connect();
    bench.server(b"220 a\r\n");
    for line in ["EHLO b", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "DATA"] {
        bench.client(format!("{line}\r\n").as_bytes());
        bench.server(if line == "DATA" { b"354 go on\r\n" } else { b"250 ok\r\n" });
    }
    bench.client(b"Subject: x\r\n\r\n");
    assert_eq!(bench.alerted(), []);
    bench.client(b"text\r\n.\r\n");
    assert_eq!(sorted(&mut bench), [3, 4]);
    // A transaction that ends without a mail; Suricata waits for the connection to close.
    bench.client(b"NOOP\r\n");
    bench.client(b"QUIT\r\n");
    assert_eq!(sorted(&mut bench), [1, 2, 3, 4]);
}

#[test]
fn sessions_of_other_protocols_lack_nothing_of_the_other_side() {
    let mut bench = Bench::new(&rules(
        "ftp",
        &["ftp.command; absent;", "ftp.command_data; absent;", "ftp.reply; absent;"],
    ));
    bench.server_port = 21;
    bench.connect();
    bench.server(b"220 ftp ready\r\n");
    bench.client(b"SYST\r\n");
    bench.server(b"215 UNIX\r\n");
    assert_eq!(bench.alerted(), []);
    let mut bench = Bench::new(&rules(
        "sip",
        &["sip.method; absent;", "sip.stat_code; absent;", "sip.user_agent; absent;"],
    ));
    bench.server_port = 5060;
    bench.connect();
    bench.client(b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(bench.alerted(), [3]);
    bench.server(b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(bench.alerted(), [3]);
}
