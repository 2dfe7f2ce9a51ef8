//! Who says what a rule asks for: it is looked at with that side's messages alone, and matches each
//! once; and buffers of which a message has several. Expectations are Suricata 8.0.7's.

use weir_detect::Direction;

use crate::bench::{Bench, CLIENT, SERVER, udp};

#[test]
fn a_command_is_matched_once_and_its_reply_once() {
    let mut bench = Bench::new(
        "alert ftp any any -> any any (ftp.command; content:\"USER\"; sid:1;)\n\
         alert ftp any any -> any any (ftp.completion_code; content:\"331\"; sid:2;)\n\
         alert ftp any any -> any any (ftp.reply_received:no; sid:3;)\n\
         alert ftp any any -> any any (ftp.reply_received:yes; sid:4;)\n\
         alert ftp any any -> any any (ftp.completion_code; content:\"220\"; sid:5;)\n\
         alert ftp any any -> any any (flow:to_server; ftp.mode:active; sid:6;)\n\
         alert ftp any any -> any any (ftp.mode:active; sid:7;)\n\
         alert ftp any any -> any any (ftp.command; content:\"PORT\"; ftp.mode:active; sid:8;)",
    );
    bench.server_port = 21;
    bench.connect();
    bench.server(b"220 ftp ready\r\n");
    bench.client(b"USER a\r\n");
    assert_eq!(bench.alerted(), [1], "the greeting answers nobody");
    bench.server(b"331 password\r\n");
    assert_eq!(bench.alerted(), [2, 4]);
    bench.client(b"PORT 192,0,2,1,4,1\r\n");
    assert_eq!(bench.alerted(), []);
    bench.server(b"200 ok\r\n");
    assert_eq!(bench.alerted(), [4, 7]);
    bench.client(b"RETR a\r\n");
    assert_eq!(bench.alerted(), [6, 7, 8], "the client's packet after the reply");
    bench.server(b"150 opening\r\n");
    assert_eq!(bench.alerted(), [3], "the transfer begins");
    bench.server(b"226 done\r\n");
    assert_eq!(bench.alerted(), [4]);
}

#[test]
fn what_mqtt_answers_is_looked_at_with_who_asked() {
    let mut bench = Bench::new(
        "alert mqtt any any -> any any (mqtt.reason_code:0; sid:1;)\n\
         alert mqtt any any -> any any (flow:to_client; mqtt.reason_code:0; sid:2;)\n\
         alert mqtt any any -> any any (mqtt.qos:0; sid:3;)\n\
         alert mqtt any any -> any any (app-layer-event:mqtt.unintroduced_message; sid:4;)",
    );
    bench.server_port = 1883;
    bench.connect();
    let ping = b"\xc0\0";
    bench.client(b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02id");
    bench.client(ping);
    assert_eq!(bench.alerted(), [3, 3, 4], "nobody has let the client in");
    bench.server(b"\x20\x02\0\0");
    assert_eq!(bench.alerted(), []);
    bench.client(ping);
    assert_eq!(bench.alerted(), [3, 1]);
    bench.server(b"\xd0\0");
    assert_eq!(bench.alerted(), []);
}

/// A message with these counts and what follows them.
fn dns(counts: [u8; 4], flags: u8, rest: &[&[u8]]) -> Vec<u8> {
    let counts = counts.into_iter().flat_map(|it| [0, it]);
    [1, 2, flags, 0].into_iter().chain(counts).chain(rest.concat()).collect()
}

#[test]
fn a_buffer_that_is_named_again_may_be_another() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.query; content:\"one\"; dns.query; content:\"two\"; \
         sid:1;)\n\
         alert dns any any -> any any (dns.query; content:\"one\"; content:\"two\"; sid:2;)\n\
         alert dns any any -> any any (dns.queries.rrname; content:\"one\"; dns.queries.rrname; \
         content:\"two\"; sid:3;)",
    );
    let (one, two) = (b"\x03one\x03net\0\0\x01\0\x01", b"\x03two\x03net\0\0\x01\0\x01");
    bench.udp(&dns([2, 0, 0, 0], 1, &[one, two]));
    assert_eq!(bench.alerted(), [1, 3]);
    bench.udp(&dns([1, 0, 0, 0], 1, &[one]));
    assert_eq!(bench.alerted(), []);

    let mut bench = Bench::new(
        "alert http any any -> any any (http.request_header; content:\"one\"; \
         http.request_header; content:\"two\"; sid:1;)\n\
         alert http any any -> any any (http.host; content:\"one\"; http.host; content:\"two\"; \
         sid:2;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: one\r\nA: two\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn names_that_records_have_for_data_are_names_of_the_response() {
    const NAME: &[u8] = b"\x06target\x03net\0";
    let rules = "alert dns any any -> any any (dns.response.rrname; content:\"target\"; sid:1;)\n\
                 alert dns any any -> any any (dns.answers.rrname; content:\"target\"; sid:2;)";
    for (kind, before, is_name) in [
        (2, &b""[..], true),
        (5, b"", true),
        (6, b"", true),
        (12, b"", true),
        (15, b"\0\x01", true),
        (16, b"", false),
        (33, b"\0\x01\0\x01\0\x01", false),
        (39, b"", false),
    ] {
        let mut bench = Bench::new(rules);
        let head = [0, kind, 0, 1, 0, 0, 0, 9, 0, (before.len() + NAME.len()) as u8];
        let question = b"\x01a\0\0\x01\0\x01";
        bench.udp(&dns([1, 0, 0, 0], 1, &[question]));
        let answer = dns([1, 1, 0, 0], 0x81, &[question, b"\x01a\0", &head, before, NAME]);
        bench.send(Direction::Responder, &udp(SERVER, CLIENT, 53, 40_000, &answer));
        assert_eq!(bench.alerted() == [1], is_name, "{kind}");
    }
}

#[test]
fn the_root_has_no_name_to_look_at() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.query; bsize:0; sid:1;)\n\
         alert dns any any -> any any (dns.query; content:!\"a\"; sid:2;)",
    );
    bench.udp(&dns([1, 0, 0, 0], 1, &[b"\0\0\x02\0\x01"]));
    assert_eq!(bench.alerted(), []);
}
