//! What is odd about what is spoken: `app-layer-event`.

use weir_detect::{Decision, Direction};

use crate::bench::{Bench, refused};

const HTTP: &str = "\
    alert http any any -> any any (flow:established,to_server; \
        app-layer-event:http.missing_host_header; sid:1;)\n\
    alert http any any -> any any (flow:established,to_server; \
        app-layer-event:http.request_header_host_invalid; sid:2;)\n\
    alert http any any -> any any (flow:established,to_client; \
        app-layer-event:http.unable_to_match_response_to_request; sid:3;)\n\
    alert http any any -> any any (flow:established; \
        app-layer-event:http.response_header_repetition; sid:4;)\n\
    alert http any any -> any any (app-layer-event:http.request_body_unexpected; http.uri; \
        content:\"/a\"; sid:5;)";

#[test]
fn what_is_odd_about_http_is_told_once_a_transaction() {
    for piece in [7, 1000] {
        let mut bench = Bench::new(HTTP);
        bench.connect();
        let mut said = |direction: Direction, text: &str| {
            for piece in text.as_bytes().chunks(piece) {
                bench.data(direction, piece);
            }
            bench.alerted()
        };
        let (client, server) = (Direction::Initiator, Direction::Responder);
        assert_eq!(said(client, "GET /a HTTP/1.1\r\n\r\n"), [1], "{piece}");
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(said(server, answer), []);
        assert_eq!(said(client, "GET /b HTTP/1.1\r\nHost: a b\r\n\r\n"), [2]);
        let repeated = "HTTP/1.1 200 OK\r\nA: b\r\na: c\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(said(server, repeated), [4]);
        assert_eq!(said(server, answer), [3]);
    }
}

#[test]
fn more_than_a_request_is_its_body_and_odd() {
    let mut bench = Bench::new(HTTP);
    bench.connect();
    bench.client(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nand more\n");
    assert_eq!(bench.alerted(), [5]);
}

/// As Suricata 8.0.7 has it.
#[test]
fn heads_that_end_early_or_have_no_version_are_odd() {
    let rules = "\
        alert http any any -> any any (app-layer-event:http.request_line_incomplete; sid:1;)\n\
        alert http any any -> any any (app-layer-event:http.request_line_missing_protocol; \
            sid:2;)\n\
        alert http any any -> any any (app-layer-event:http.request_field_missing_colon; \
            sid:3;)\n\
        alert http any any -> any any (app-layer-event:http.abnormal_ce_header; sid:4;)\n\
        alert ip any any -> any any (app-layer-event:applayer_detect_protocol_only_one_direction; \
            sid:5;)";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (request, found) in [
        ("GET /a", [1].as_slice()),
        ("GET /\r\n\r\nabc", &[2]),
        ("GET / HTTP/1.1\r\nfoo\r\nb", &[3]),
        ("GET / HTTP/1.1\r\nfoo\r\n", &[]),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: identity\r\n\r\n", &[4]),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n", &[]),
        ("SUBSCRIBE / HTTP/1.1\r\nHost: a\r\n\r\n", &[5]),
        ("merge / HTTP/1.1\r\nHost: a\r\n\r\n", &[]),
    ] {
        let mut bench = Bench::new(rules);
        bench.connect();
        bench.client(request.as_bytes());
        bench.server(answer);
        bench.tcp(Direction::Initiator, 16, b"");
        let mut alerted = bench.alerted();
        alerted.dedup();
        assert_eq!(alerted, found, "{request:?}");
    }
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"GET /a");
    bench.tcp(Direction::Initiator, 17, b"");
    assert_eq!(bench.alerted(), [], "whoever ends a line himself");
}

/// As in Suricata 8.0.7.
#[test]
fn a_second_greeting_of_mail_is_odd_and_an_unasked_reply_or_a_long_command_is_not() {
    let rules = "\
        alert smtp any any -> any any (app-layer-event:smtp.duplicate_fields; sid:1;)\n\
        alert smtp any any -> any any (app-layer-event:smtp.unable_to_match_reply_with_request; \
            sid:2;)\n\
        alert smtp any any -> any any (app-layer-event:smtp.max_command_line_len_exceeded; sid:3;)";
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.server(b"220 m ESMTP\r\n");
    bench.client(b"EHLO a\r\n");
    bench.server(b"250 m\r\n250 unasked\r\n");
    bench.client(format!("NOOP {}\r\n", "x".repeat(600)).as_bytes());
    bench.server(b"250 m\r\n");
    assert_eq!(bench.alerted(), []);
    bench.client(b"EHLO a\r\n");
    assert_eq!(bench.alerted(), [1]);
}

/// What has no room for what it announces, Suricata takes for no DNS.
#[test]
fn dns_that_announces_more_than_there_is_room_for_is_looked_at_and_not_odd() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.query; content:\"a\"; sid:1;)\n\
         alert dns any any -> any any (app-layer-event:dns.z_flag_set; sid:2;)\n\
         alert dns any any -> any any (app-layer-event:dns.invalid_additionals; sid:3;)",
    );
    bench.udp(b"\x12\x34\x01\x40\0\x01\0\0\0\0\0\x41\x01a\0\0\x01\0\x01");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn sides_that_speak_different_languages_are_told_of() {
    let rules = "\
        alert ip any any -> any any (flow:established; \
            app-layer-event:applayer_mismatch_protocol_both_directions; sid:1;)\n\
        drop ip any any -> any any (flow:established; \
            app-layer-event:applayer_detect_protocol_only_one_direction; sid:2;)";
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\n\r\n");
    bench.server(b"SSH-2.0-OpenSSH_6.6.1\r\n");
    assert_eq!(bench.alerted(), [1]);
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\n\r\n");
    let odd = bench.server(b"nothing that anybody knows\r\n");
    assert!(matches!(odd, Decision::Drop { .. }));
}

#[test]
fn what_is_odd_about_dns_tls_and_ssh_is_told() {
    let rules = "\
        alert dns any any -> any any (app-layer-event:dns.z_flag_set; sid:1;)\n\
        alert dns any any -> any any (app-layer-event:dns.invalid_additionals; sid:2;)\n\
        alert tls any any -> any any (flow:established; app-layer-event:tls.invalid_record_type; \
            sid:3;)\n\
        alert ssh any any -> any any (app-layer-event:ssh.invalid_banner; sid:4;)";
    let mut bench = Bench::new(rules);
    bench.udp(b"\x12\x34\x01\x40\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01");
    bench.udp(b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01");
    assert_eq!(bench.alerted(), [1, 2]);
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"\x16\x03\x01\0\x2a\x01\0\0\x26\x03\x03abcdefghabcdefghabcdefghabcdefgh");
    bench.client(b"\0\0\x02\x13\x01\x01\0");
    bench.client(b"\x1e\x03\x01\0\x01a");
    assert_eq!(bench.alerted(), [3]);
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"SSH-2.0\r\n");
    assert_eq!(bench.alerted(), [4]);
}

#[test]
fn an_event_of_another_protocol_refuses_the_rule() {
    let rule = "alert tls any any -> any any (app-layer-event:http.missing_host_header; sid:1;)";
    assert_eq!(refused(rule), "protocol");
    let rule = "alert http any any -> any any (app-layer-event:http.no_such_thing; sid:1;)";
    assert_eq!(refused(rule), "app-layer-event");
}

#[test]
fn a_client_of_smtp_that_does_not_wait_for_a_reply_is_odd() {
    const RULE: &str = "alert smtp any any -> any any \
        (app-layer-event:smtp.invalid_pipelined_sequence; sid:1;)";
    let alerted = |lines: &[(Direction, &str)]| {
        let mut bench = Bench::new(RULE);
        bench.server_port = 25;
        bench.connect();
        bench.server(b"220 m\r\n");
        bench.client(b"EHLO c\r\n");
        bench.server(b"250 PIPELINING\r\n");
        lines.iter().for_each(|(direction, text)| _ = bench.data(*direction, text.as_bytes()));
        bench.alerted()
    };
    let (client, server) = (Direction::Initiator, Direction::Responder);
    assert_eq!(alerted(&[(client, "STARTTLS\r\nNOOP\r\n")]), [1]);
    assert_eq!(alerted(&[(client, "DATA\r\na: b\r\n")]), [1]);
    assert_eq!(alerted(&[(client, "MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n")]), []);
    assert_eq!(alerted(&[(client, "DATA\r\n"), (server, "354\r\n"), (client, "a: b\r\n")]), []);
}

#[test]
fn a_client_of_smtp_that_does_not_wait_for_its_welcome_is_odd() {
    let alerted = |lines: &[(Direction, &str)]| {
        let mut bench = Bench::new(
            "alert smtp any any -> any any (flow:to_client; \
             app-layer-event:smtp.no_server_welcome_message; sid:1;)\n\
             alert smtp any any -> any any (flow:to_client; \
             app-layer-event:smtp.invalid_reply; sid:2;)\n\
             alert smtp any any -> any any (flow:to_server; \
             app-layer-event:smtp.invalid_reply; sid:3;)",
        );
        bench.server_port = 25;
        bench.connect();
        lines.iter().for_each(|(direction, text)| _ = bench.data(*direction, text.as_bytes()));
        bench.alerted()
    };
    let (client, server) = (Direction::Initiator, Direction::Responder);
    let rest = [(server, "250 ok\r\n"), (client, "NOOP\r\n")];
    let of = |first: &[(Direction, &'static str)]| alerted(&[first, &rest].concat());
    assert_eq!(of(&[(server, "220 hi\r\n"), (client, "HELO a\r\n")]), []);
    assert_eq!(of(&[(client, "HELO a\r\n"), (server, "220 hi\r\n")]), [1, 2, 3]);
    assert_eq!(of(&[(client, "HELO a\r\n")]), [1], "it is not welcomed at all");
}

/// What follows a refused `DATA` are commands again, however many others came before it.
#[test]
fn a_refused_data_of_smtp_is_known_among_any_number_of_commands() {
    const RULES: &str = "\
        alert smtp any any -> any any (smtp.mail_from; content:\"evil@\"; sid:1;)\n\
        alert smtp any any -> any any (app-layer-event:smtp.data_command_rejected; sid:2;)";
    let begun = || {
        let mut bench = Bench::new(RULES);
        bench.server_port = 25;
        bench.connect();
        bench.server(b"220 m\r\n");
        bench.client(b"EHLO c\r\n");
        bench.server(b"250 PIPELINING\r\n");
        bench
    };
    for others in [0, 1, 63, 64, 65, 1000] {
        let mut bench = begun();
        bench.client(("NOOP\r\n".repeat(others) + "DATA\r\n").as_bytes());
        bench.server(("250 ok\r\n".repeat(others) + "503 no\r\n").as_bytes());
        assert_eq!(bench.alerted(), [2], "{others}");
        bench.client(b"MAIL FROM:<evil@a>\r\n");
        assert_eq!(bench.alerted(), [1, 2], "{others}: a refusal is either side's to look at");
    }
    // The mail of one that is taken stays a mail, whichever before it was refused.
    for others in [0, 64, 1000] {
        let mut bench = begun();
        bench.client(("DATA\r\n.\r\n".repeat(1 + others) + "DATA\r\n").as_bytes());
        bench.server(("503 no\r\n500 what?\r\n".repeat(1 + others) + "354 go\r\n").as_bytes());
        bench.client(b"Subject: a\r\n\r\nMAIL FROM:<evil@a>\r\n");
        assert!(!bench.alerted().contains(&1), "{others}");
    }
}
