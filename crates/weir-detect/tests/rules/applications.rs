//! Streams, and what is spoken over them.

use weir_detect::{Decision, Direction, Limits, LoadOptions};

use crate::bench::{Bench, refused};

#[test]
fn a_content_is_found_across_segments_and_out_of_order() {
    let rule = "drop tcp any any -> any any (flow:established; content:\"badword\"; sid:1;)";
    let mut bench = Bench::new(rule);
    bench.connect();
    assert_eq!(bench.client(b"a ba"), Decision::Pass);
    assert_eq!(bench.client(b"dwo"), Decision::Pass);
    assert!(matches!(bench.client(b"rd"), Decision::Drop { .. }));
    let mut bench = Bench::new(rule);
    bench.connect();
    bench.segment_at(Direction::Initiator, 3, b"word");
    assert_eq!(bench.alerted(), []);
    bench.segment_at(Direction::Initiator, 0, b"bad");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn one_occurrence_alerts_once_and_each_further_one_again() {
    let mut bench = Bench::new("alert tcp any any -> any any (content:\"bad\"; sid:1;)");
    bench.connect();
    for payload in ["xbad", "y", "z", "bad", "b", "a", "d"] {
        bench.client(payload.as_bytes());
    }
    assert_eq!(bench.alerted(), [1, 1, 1]);
}

#[test]
fn a_depth_counts_from_the_beginning_of_the_stream_and_of_each_packet() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (flow:only_stream; content:\"bad\"; depth:3; sid:1;)\n\
         alert tcp any any -> any any (flow:no_stream; content:\"bad\"; depth:3; sid:2;)\n\
         alert tcp any any -> any any (dsize:3; content:\"bad\"; sid:3;)",
    );
    bench.connect();
    bench.client(b"xyz");
    bench.client(b"bad");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [2, 3]);
}

#[test]
fn contents_far_apart_in_time_are_joined() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (content:\"longer one\"; content:\"two\"; distance:0; \
         sid:1;)",
    );
    bench.connect();
    bench.client(b"longer one");
    bench.client(b" and ");
    assert_eq!(bench.alerted(), []);
    bench.client(b"two");
    assert_eq!(bench.alerted(), [1]);
}

const HTTP: &str = "\
    alert http any any -> any any (flow:established,to_server; http.method; content:\"GET\"; \
        http.uri; content:\"/secret\"; startswith; http.host; content:\"example.org\"; sid:1;)\n\
    alert http any any -> any any (content:\"/a\"; http_uri; content:\"evil\"; http_header; \
        nocase; sid:2;)\n\
    alert http any any -> any any (flow:to_client; http.stat_code; content:\"404\"; sid:3;)\n\
    alert http any any -> any any (flow:to_client; file.data; content:\"payload\"; sid:4;)\n\
    alert tcp any any -> any any (flow:established; content:\"User-Agent|3a| Evil\"; sid:5;)\n\
    alert http any any -> any any (http.header_names; content:\"|0d 0a|Host|0d 0a|\"; \
        startswith; http.uri; bsize:2; sid:6;)\n\
    alert http any any -> any any (urilen:2; http.method; content:\"POST\"; sid:7;)\n\
    alert http any any -> any any (http.request_body; content:\"hidden\"; sid:8;)\n\
    alert http any any -> any any (http.uri; pcre:\"/^\\/se[a-z]+t$/\"; sid:9;)";

#[test]
fn parts_of_requests_and_responses_are_looked_at_apart() {
    for piece in [1, 7, 1000] {
        let mut bench = Bench::new(HTTP);
        bench.connect();
        let mut said = |lines: &str| {
            let (side, text) = lines.split_at(1);
            let direction = if side == ">" { Direction::Initiator } else { Direction::Responder };
            for piece in text.as_bytes().chunks(piece) {
                bench.data(direction, piece);
            }
            let mut found = bench.alerted();
            found.sort_unstable();
            found
        };
        let get = ">GET /secret HTTP/1.1\r\nHost: Example.org\r\n\r\n";
        assert_eq!(said(get), [1, 9], "{piece}");
        let answer = "<HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\na payload";
        assert_eq!(said(answer), [3, 4]);
        let evil = ">GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: Evil\r\n\r\n";
        assert_eq!(said(evil), [2, 5, 6]);
        let post = ">POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\na hidden";
        assert_eq!(said(post), [6, 7, 8]);
    }
}

#[test]
fn the_length_of_a_stream_is_compared() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (stream_size:client,<,5; content:\"a\"; sid:1;)\n\
         alert tcp any any -> any any (stream_size:client,>,5; content:\"a\"; sid:2;)\n\
         alert tcp any any -> any any (stream_size:server,=,1; content:\"a\"; sid:3;)",
    );
    bench.connect();
    bench.client(b"xa");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 3]);
    bench.client(b"xxxa");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [2, 3]);
}

#[test]
fn an_end_that_is_said_by_absent_data_moves_with_its_content() {
    let mut bench = Bench::new(
        "alert http any any -> any any (content:\"abc\"; isdataat:!1,relative; http_uri; sid:1;)",
    );
    bench.connect();
    bench.client(b"GET /abcd HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(bench.alerted(), []);
    bench.client(b"GET /abc HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn what_is_not_the_end_may_be_absent_or_stand_before_it() {
    let mut bench = Bench::new(
        "alert http any any -> any any (content:!\".org\"; http_host; isdataat:!1,relative; \
         sid:1;)\n\
         alert http any any -> any any (http.host; content:!\".org\"; isdataat:!1,relative; \
         sid:2;)",
    );
    bench.connect();
    for (host, found) in [("a.org", [].as_slice()), ("a.net", &[1, 2]), ("a.org.net", &[1, 2])] {
        bench.client(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(bench.alerted(), found, "{host}");
    }
}

#[test]
fn a_rule_may_ask_of_the_stream_and_of_a_part_of_it() {
    let mut bench = Bench::new(
        "alert http any any -> any any (content:\"/a\"; http_uri; \
         content:\"HTTP/1.1|0d 0a|Host|3a| h\"; fast_pattern; sid:1;)",
    );
    bench.connect();
    for piece in b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n".chunks(9) {
        bench.client(piece);
    }
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn names_that_are_asked_for_are_looked_at() {
    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x04evil\x03org\0\0\x01\0\x01";
    let rules = "alert dns any any -> any any (dns.query; content:\"evil.org\"; endswith; sid:1;)\n\
         alert dns any any -> any any (dns.query; dotprefix; content:\".evil.org\"; endswith; \
         sid:2;)\n\
         alert dns any any -> any any (dns.query; content:\"www\"; bsize:3; sid:3;)\n\
         alert dns any any -> any any (content:\"|03|www\"; sid:4;)\n\
         alert http any any -> any any (content:\"|03|www\"; sid:5;)";
    let mut bench = Bench::new(rules);
    bench.udp(QUERY);
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 4]);
}

#[test]
fn server_names_of_tls_are_looked_at() {
    let name = b"evil.example.org";
    let mut body = vec![3, 3];
    body.extend([0; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    let length = name.len() as u16;
    for (count, then) in [(length + 9, &[0, 0][..]), (length + 5, &[]), (length + 3, &[0])] {
        body.extend(count.to_be_bytes());
        body.extend(then);
    }
    body.extend(length.to_be_bytes());
    body.extend(name);
    let mut hello = vec![22, 3, 1];
    hello.extend((body.len() as u16 + 4).to_be_bytes());
    hello.extend([1, 0]);
    hello.extend((body.len() as u16).to_be_bytes());
    hello.extend(body);
    let mut bench = Bench::new(
        "drop tls any any -> any any (tls.sni; content:\"example.org\"; endswith; sid:1;)\n\
         alert tls any any -> any any (tls.sni; content:\"other\"; sid:2;)",
    );
    bench.connect();
    let (first, second) = hello.split_at(50);
    assert_eq!(bench.client(first), Decision::Pass);
    assert!(matches!(bench.client(second), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn a_buffer_of_another_protocol_refuses_the_rule() {
    assert_eq!(
        refused("alert dns any any -> any any (http.uri; content:\"a\"; sid:1;)"),
        "http.uri"
    );
    assert_eq!(
        refused("alert tls any any -> any any (ssh.software; content:\"a\"; sid:1;)"),
        "ssh.software"
    );
}

#[test]
fn a_body_that_is_sent_compressed_is_looked_at_inflated() {
    use std::io::Write;
    let mut bench = Bench::new(
        "alert http any any -> any any (file.data; content:\"evil body\"; sid:1;)\n\
         alert http any any -> any any (http.response_body; content:\"evil body\"; sid:2;)",
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(b"an evil body, and an evil body").unwrap();
    let body = gzip.finish().unwrap();
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    bench.server(head.as_bytes());
    body.chunks(5).for_each(|it| _ = bench.server(it));
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
}

#[test]
fn headers_that_are_repeated_are_one() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.header; content:\"A: 1, 2|0d 0a|\"; sid:1;)\n\
         alert http any any -> any any (http.header; content:\"A: 2\"; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn headers_are_without_the_cookies_of_their_side() {
    let rules = ["a=1", "b=2"].map(|cookie| {
        let rule = |side, sid| {
            let asked = format!("flow:{side}; http.header; content:\"{cookie}\"; sid:{sid};");
            format!("alert http any any -> any any ({asked})\n")
        };
        let sids = if cookie == "a=1" { [1, 2] } else { [3, 4] };
        rule("to_server", sids[0]) + &rule("to_client", sids[1])
    });
    let mut bench = Bench::new(&rules.concat());
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nCookie: a=1\r\nSet-Cookie: b=2\r\n\r\n");
    bench.server(b"HTTP/1.1 200 OK\r\nCookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n");
    // As Suricata 8.0.7.
    assert_eq!(bench.alerted(), [3, 2]);
}

#[test]
fn http_is_told_whatever_its_first_method() {
    for (first, piece) in [("BITS_POST", 7), ("ARGENTINA", 1000), ("head", 40), ("X", 1)] {
        let mut bench = Bench::new(
            "alert http any any -> any any (http.method; content:\"/\"; sid:1;)\n\
             alert http any any -> any any (http.uri; content:\"/first-of-a-connection\"; sid:2;)\n\
             alert http any any -> any any (http.uri; content:\"/evil\"; sid:3;)",
        );
        bench.connect();
        let said = format!(
            "{first} /first-of-a-connection HTTP/1.1\r\nHost: h\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"
        );
        said.as_bytes().chunks(piece).for_each(|it| _ = bench.client(it));
        assert_eq!(bench.alerted(), [2, 3], "{first}");
    }
    for other in ["USER anonymous and no version in it\r\n", "\x01\x02 / HTTP/1.1\r\n"] {
        let mut bench = Bench::new("alert http any any -> any any (sid:1;)");
        bench.connect();
        bench.client(other.as_bytes());
        bench.client(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(bench.alerted(), [], "{other}");
    }
}

#[test]
fn what_a_server_answers_in_http_was_a_request() {
    // Suricata 8.0.7 tells of both sides of each, of the request with the client's next packet.
    for first in ["cmd=", "&a=1", "GET\0", "\x01", "(x", "GET:", ""] {
        let mut bench = Bench::new(
            "alert http any any -> any any (flow:to_server; http.host; content:\"e\"; sid:1;)\n\
             alert http any any -> any any (flow:to_client; http.stat_code; content:\"2\"; sid:2;)",
        );
        bench.connect();
        let request = format!("{first} /of-a-shell HTTP/1.1\r\nHost: example.org\r\n\r\n");
        bench.client(request.as_bytes());
        assert_eq!(bench.alerted(), [], "{first}");
        bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(bench.alerted(), [2], "{first}");
        bench.client(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(bench.alerted(), [1], "{first}");
    }
}

#[test]
fn http_at_the_port_of_dns_is_http() {
    for piece in [1, 1000] {
        let mut bench =
            Bench::new("alert http any any -> any 53 (http.uri; content:\"/evil\"; sid:1;)");
        bench.server_port = 53;
        bench.connect();
        b"GET /evil HTTP/1.1\r\n\r\n".chunks(piece).for_each(|it| _ = bench.client(it));
        assert_eq!(bench.alerted(), [1], "{piece}");
    }
}

#[test]
fn an_empty_host_is_none() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.uri; content:\"/a\"; http.host; \
         content:!\"example.org\"; sid:1;)\n\
         alert http any any -> any any (http.uri; content:\"/a\"; http.host.raw; \
         content:!\"example.org\"; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET /a HTTP/1.1\r\nHost: \r\n\r\n");
    assert_eq!(bench.alerted(), [2], "but as it came it is there");
    bench.client(b"GET /a HTTP/1.1\r\n\r\n");
    assert_eq!(bench.alerted(), []);
    bench.client(b"GET /a HTTP/1.1\r\nHost: other\r\n\r\n");
    assert_eq!(bench.alerted(), [1, 2]);
}

#[test]
fn ssh_is_told_by_its_first_line() {
    let mut bench = Bench::new(
        "alert ssh any any -> any any (ssh.proto; content:\"2.0\"; ssh.software; \
         content:\"Erlang/\"; startswith; sid:1;)",
    );
    bench.connect();
    bench.server(b"SSH-2.0-Erl");
    assert_eq!(bench.alerted(), []);
    bench.server(b"ang/5.2\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn a_dataset_holds_what_rules_put_there() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.query; dataset:set,seen,type string; sid:1;)\n\
         alert dns any any -> any any (dns.query; dataset:isset,seen; content:\"b\"; sid:2;)",
    );
    let query = |name: &[u8; 3]| {
        [b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03".as_slice(), name, b"\0\0\x01\0\x01"].concat()
    };
    bench.udp(&query(b"aaa"));
    bench.udp(&query(b"aaa"));
    bench.udp(&query(b"bbb"));
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 1, 2]);
}

#[test]
fn an_alert_about_a_datagrams_payload_tells_of_its_message() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (content:\"evil\"; sid:1;)\n\
         alert udp any any -> any any (content:\"evil\"; sid:2;)",
    );
    bench.udp(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\0\0\x01\0\x01");
    let told = bench.alerts.drain().map(|it| {
        let objects = it.transaction.map(|it| it.objects[0].0);
        (bench.detector.rules().rule(it.rule).sid, objects)
    });
    assert_eq!(told.collect::<Vec<_>>(), [(1, Some("dns")), (2, None)]);
}

#[test]
fn a_rule_puts_a_value_when_all_of_it_matches() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.query; dataset:set,seen,type string; content:\"b\"; \
         sid:1;)\n\
         alert dns any any -> any any (dns.query; dataset:set,seen; dns.opcode:5; sid:2;)\n\
         alert dns any any -> any any (dns.query; dataset:isset,seen; sid:3;)",
    );
    let query = |name: &[u8; 3]| {
        [b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03".as_slice(), name, b"\0\0\x01\0\x01"].concat()
    };
    for name in [b"aaa", b"aaa", b"bbb", b"bbb"] {
        bench.udp(&query(name));
    }
    assert_eq!(bench.alerted(), [1, 3, 3]);
}

#[test]
fn a_rule_of_both_sides_puts_what_the_request_says() {
    let mut bench = Bench::new(
        "alert http any any => any any (http.host; dataset:set,seen,type string; \
         http.stat_code; content:\"200\"; sid:1;)\n\
         alert http any any -> any any (http.host; dataset:isset,seen; sid:2;)",
    );
    bench.connect();
    for _ in 0..2 {
        bench.client(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    assert_eq!(bench.alerted(), [2, 1, 2]);
}

#[test]
fn nothing_is_looked_at_once_both_sides_of_tls_encrypt() {
    const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];
    const HELLO: &[u8] = &[22, 3, 3, 0, 4, 1, 0, 0, 0];
    let mut bench = Bench::new("alert tcp any any -> any any (content:\"evil\"; sid:1;)");
    bench.connect();
    bench.client(HELLO);
    bench.client(&[CHANGE, &[23, 3, 3, 0, 4], b"evil"].concat());
    assert_eq!(bench.alerted(), [1], "the server may still speak clear");
    bench.server(CHANGE);
    bench.client(&[&[23, 3, 3, 0, 4], b"evil".as_slice()].concat());
    assert_eq!(bench.alerted(), []);
}

#[test]
fn files_of_http_have_names_and_sizes() {
    let mut bench = Bench::new(
        "alert http any any -> any any (fileext:\"exe\"; flow:to_client; sid:1;)\n\
         alert http any any -> any any (file.name; content:\"/dir/\"; startswith; \
         filesize:>9; sid:2;)\n\
         alert http any any -> any any (filesize:11; sid:3;)\n\
         alert http any any -> any any (filename:\"up.doc\"; filesize:7; flow:to_server; sid:4;)\n\
         alert http1 any any -> any any (filesize:<11; flow:to_client; sid:5;)",
    );
    bench.connect();
    bench.client(b"GET /dir/a.exe HTTP/1.1\r\nHost: h\r\n\r\n");
    bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n");
    assert_eq!(bench.alerted(), [], "no file yet");
    bench.server(b"hello");
    assert_eq!(bench.alerted(), [1]);
    bench.server(b" world");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [2, 3]);
    let form = "--x\r\nContent-Disposition: form-data; name=f; filename=up.doc\r\n\r\n\
        content\r\n--x--\r\n";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=x\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    );
    bench.client(head.as_bytes());
    assert_eq!(bench.alerted(), [4]);
    // A response whose end is that of the connection.
    bench.server(b"HTTP/1.1 200 OK\r\n\r\nab");
    assert_eq!(bench.alerted(), []);
    bench.tcp(weir_detect::Direction::Responder, 17, b"");
    assert_eq!(bench.alerted(), [5]);
}

#[test]
fn a_file_longer_than_what_is_kept_of_it_has_its_digest() {
    let content: Vec<u8> = (0..300_000_u32).map(|it| (it % 251) as u8).collect();
    // As md5sum and sha256sum have it.
    let digests = [
        ("md5", "34fadf2975834e9a357ec41d3e6df067"),
        ("sha256", "3c65ea93424a9c362fec0e3a69ea36031e8a358441479dd665cc6110eabe7b08"),
    ];
    let rules = "alert http any any -> any any (filemd5:md5; sid:1;)\n\
                 alert http any any -> any any (filesha256:sha256; sid:2;)\n\
                 alert http any any -> any any (filemd5:!md5; sid:3;)";
    let files = digests.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let options = LoadOptions { files: files.into(), ..LoadOptions::default() };
    for encoding in ["", "Content-Encoding: gzip\r\n"] {
        let mut bench = Bench::loaded(rules, &options);
        let body = if encoding.is_empty() { content.clone() } else { gzipped(&content) };
        bench.connect();
        bench.client(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n");
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\n{encoding}Content-Length: {length}\r\n\r\n");
        bench.server(head.as_bytes());
        let (before, last) = body.split_at(length - 1);
        for piece in before.chunks(1400) {
            bench.server(piece);
            bench.client(b"");
        }
        assert_eq!(bench.alerted(), [], "it is not whole");
        bench.server(last);
        let mut found = bench.alerted();
        found.sort_unstable();
        assert_eq!(found, [1, 2], "{encoding}");
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A mail that is under way, an answer without a length: as both ends close, or one resets.
#[test]
fn what_an_application_leaves_is_told_once_when_its_connection_ends() {
    const FIN_ACK: u8 = 0x11;
    const RST_ACK: u8 = 0x14;
    let begun = |waits: bool| {
        let limits =
            Limits { sees_all: !waits, waits_for_acknowledgment: waits, ..Limits::default() };
        let mut bench =
            Bench::with("alert tcp any any -> any any (content:\"none\"; sid:1;)", limits);
        bench.server_port = 25;
        bench.detector.keep_records();
        bench.connect();
        bench.server(b"220 mx ESMTP\r\n");
        bench.client(b"HELO me\r\n");
        bench.server(b"250 ok\r\n");
        bench.client(b"MAIL FROM:<a@b.example>\r\n");
        bench.server(b"250 ok\r\n");
        bench.tcp(Direction::Initiator, 0x10, b"");
        assert!(bench.detector.take_units().is_empty(), "not yet");
        bench
    };
    let closed = [
        (Direction::Initiator, FIN_ACK),
        (Direction::Responder, FIN_ACK),
        (Direction::Initiator, 0x10),
    ];
    let reset = [(Direction::Responder, RST_ACK)];
    for (waits, end) in [(false, &closed[..]), (true, &closed), (true, &reset)] {
        let mut bench = begun(waits);
        for (direction, flags) in end {
            bench.tcp(*direction, *flags, b"");
            bench.next[*direction as usize] += u32::from(*flags == FIN_ACK);
        }
        let told: Vec<_> = bench.detector.take_units().iter().map(|it| it.kind).collect();
        assert_eq!(told, ["smtp"]);
        bench.tcp(Direction::Initiator, 0x10, b"");
        assert!(bench.detector.take_units().is_empty(), "once");
    }
}
