//! What is odd about connections, what receivers believe, and what rules say of flows as such.

use weir_detect::hosts::System;
use weir_detect::{Decision, Direction, Limits};

use crate::bench::{Bench, refused};

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn with_event(name: &str) -> Bench {
    Bench::new(&format!("alert tcp any any -> any any (stream-event:{name}; sid:1;)"))
}

#[test]
fn a_connection_as_it_should_be_is_not_odd() {
    let names = [
        "est_packet_out_of_window",
        "est_invalid_ack",
        "pkt_invalid_ack",
        "3whs_wrong_seq_wrong_ack",
        "pkt_retransmission",
        "fin_out_of_window",
        "lastack_invalid_ack",
    ];
    for name in names {
        let mut bench = with_event(name);
        bench.connect();
        bench.client(b"hello");
        bench.server(b"world");
        bench.client(b"again");
        bench.tcp(Direction::Initiator, ACK | 1, b"");
        assert_eq!(bench.alerted(), [], "{name}");
    }
}

#[test]
fn what_lies_beyond_the_window_is_told() {
    let mut bench = with_event("est_packet_out_of_window");
    bench.connect();
    bench.client(b"hello");
    bench.segment_at(Direction::Initiator, 100_000, b"far");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn what_is_odd_is_kept_within_a_bound_although_no_rule_asks() {
    let rule = "alert tcp any any -> any any (content:\"never said\"; sid:1;)";
    let mut bench = Bench::with(rule, Limits { anomalies: 2, ..Limits::default() });
    bench.connect();
    bench.client(b"hello");
    assert_eq!(bench.detector.take_anomalies().count(), 0);
    let mut far = || {
        bench.segment_at(Direction::Initiator, 100_000, b"far");
        bench.detector.counters().anomalies_lost
    };
    assert_eq!([far(), far(), far()], [0, 0, 1]);
    let odd: Vec<_> = bench.detector.take_anomalies().map(|it| it.event.names().1).collect();
    assert_eq!(odd, ["stream.est_packet_out_of_window"; 2]);
    bench.detector.keep_anomalies(0);
    bench.segment_at(Direction::Initiator, 100_000, b"far");
    assert_eq!((bench.detector.counters().anomalies, bench.alerted()), (3, vec![]));
}

#[test]
fn another_beginning_within_a_connection_is_told() {
    let mut bench = with_event("est_syn_resend_diff_seq");
    bench.connect();
    bench.tcp(Direction::Initiator, SYN, b"");
    assert_eq!(bench.alerted(), [1]);
    let mut bench = with_event("3whs_synack_in_wrong_direction");
    bench.tcp(Direction::Initiator, SYN, b"");
    bench.tcp(Direction::Initiator, SYN | ACK, b"");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn who_goes_on_after_its_own_reset_did_not_send_it() {
    let mut bench = with_event("suspected_rst_inject");
    bench.connect();
    bench.tcp(Direction::Responder, RST | ACK, b"");
    assert_eq!(bench.alerted(), []);
    bench.server(b"still here");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn the_receiver_decides_which_of_two_segments_counts() {
    let rules = "alert tcp-stream any any -> any any (content:\"EVIL\"; sid:1;)";
    let alerts = |system: System| {
        let mut bench = Bench::towards(rules, system);
        bench.connect();
        bench.client(b"GOOD");
        bench.segment_at(Direction::Initiator, -4, b"EVIL");
        bench.alerted()
    };
    assert_eq!(alerts(System::OldLinux), [1]);
    assert_eq!(alerts(System::Last), [1]);
    assert_eq!(alerts(System::Windows), []);
    assert_eq!(alerts(System::Bsd), []);
}

#[test]
fn what_was_acknowledged_stays() {
    let rules = "alert tcp-stream any any -> any any (content:\"EVIL\"; sid:1;)";
    let mut bench = Bench::towards(rules, System::Last);
    bench.connect();
    bench.client(b"GOOD");
    bench.tcp(Direction::Responder, ACK, b"");
    bench.segment_at(Direction::Initiator, -4, b"EVIL");
    assert_eq!(bench.alerted(), []);
}

#[test]
fn a_bypassed_flow_is_looked_at_no_further() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (content:\"go\"; bypass; sid:1;)\n\
         drop tcp any any -> any any (content:\"bad\"; sid:2;)",
    );
    bench.connect();
    bench.client(b"go");
    assert_eq!(bench.client(b"bad"), Decision::Pass);
    assert_eq!(bench.alerted(), [1]);
    assert_eq!(bench.detector.counters().bypassed, 1);
}

#[test]
fn what_is_spoken_can_be_asked() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (app-layer-protocol:http; content:\"GET\"; sid:1;)\n\
         alert tcp any any -> any any (app-layer-protocol:!http; content:\"GET\"; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn an_absent_buffer_is_one_that_is_not_there() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.referer; absent; sid:1;)\n\
         alert http any any -> any any (http.user_agent; absent:or_else; content:\"me\"; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: me\r\n\r\n");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
    bench.client(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nReferer: b\r\n\r\n");
    assert_eq!(bench.alerted(), []);
}

#[test]
fn numbers_in_messages_of_dns_can_be_asked() {
    let mut bench = Bench::new(
        "alert dns any any -> any any (dns.rrtype:16; sid:1;)\n\
         alert dns any any -> any any (dns.opcode:!0; sid:2;)",
    );
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x10\x00\x01";
    bench.udp(query);
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn odd_flags_of_dns_are_told() {
    const RULES: &str = "alert dns any any -> any any (app-layer-event:dns.z_flag_set; sid:1;)\n\
        alert dns any any -> any any (app-layer-event:dns.invalid_opcode; sid:2;)";
    let query = |flags: u16| {
        let rest = b"\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x10\x00\x01";
        [&[0x12, 0x34][..], &flags.to_be_bytes(), rest].concat()
    };
    let told = [(0x0140, vec![1]), (0x0100, vec![]), (0x4900, vec![2]), (0x81c0, vec![1])];
    let mut bench = Bench::new(RULES);
    for (flags, expected) in &told {
        bench.udp(&query(*flags));
        assert_eq!(bench.alerted(), *expected, "{flags:#x} by UDP");
    }
    let mut bench = Bench::new(RULES);
    bench.server_port = 53;
    bench.connect();
    for (flags, expected) in &told {
        let message = query(*flags);
        bench.client(&[&(message.len() as u16).to_be_bytes()[..], &message].concat());
        assert_eq!(bench.alerted(), *expected, "{flags:#x} by TCP");
    }
    let of_http = "alert http any any -> any any (app-layer-event:http.uri_host_ambiguous; sid:1;)";
    assert_eq!(refused(of_http), "app-layer-event");
}

#[test]
fn a_rule_for_another_version_is_refused() {
    let with = |requires: &str| {
        format!("alert tcp any any -> any any (requires:{requires}; content:\"a\"; sid:1;)")
    };
    assert_eq!(refused(&with("version >= 9.0.0")), "requires");
    assert_eq!(refused(&with("feature lua")), "requires");
    assert_eq!(refused(&with("version >= 7.0.0 < 8")), "requires");
    Bench::new(&with("version >= 7.0.4 < 8 | >= 8.0.1"));
    Bench::new(&with("keyword ja4.hash"));
}

#[test]
fn a_key_is_taken_off_before_the_look() {
    let rule =
        "alert http any any -> any any (http.request_body; xor:\"0f\"; content:\"evil\"; sid:1;)";
    let mut bench = Bench::new(rule);
    bench.connect();
    let body: Vec<u8> = b"evil".iter().map(|it| it ^ 0x0f).collect();
    let head = b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
    bench.client(&[head.as_slice(), &body].concat());
    assert_eq!(bench.alerted(), [1]);
}

/// As Suricata 8.0.7 tells it: of a connection that has begun and is not over.
#[test]
fn a_reset_that_brings_data_is_told() {
    for side in [Direction::Initiator, Direction::Responder] {
        let mut bench = with_event("rst_with_data");
        bench.tcp(side, RST | ACK, b"data");
        assert_eq!(bench.alerted(), []);
        bench.connect();
        bench.client(b"hello");
        bench.tcp(side, RST | ACK, b"data");
        assert_eq!(bench.alerted(), [1]);
        bench.tcp(side, RST | ACK, b"data");
        assert_eq!(bench.alerted(), []);
        let mut bench = with_event("rst_with_data");
        bench.connect();
        bench.tcp(side, RST | ACK, b"");
        assert_eq!(bench.alerted(), []);
    }
}

#[test]
fn a_rule_that_drops_and_bypasses_drops_one_packet() {
    for rule in [
        "drop tcp any any -> any any (content:\"go\"; bypass; sid:1;)",
        "drop http any any -> any any (http.uri; content:\"go\"; bypass; sid:1;)",
        "drop:flow tcp any any -> any any (content:\"go\"; bypass; sid:1;)",
        "reject tcp any any -> any any (content:\"go\"; bypass; sid:1;)",
    ] {
        let mut bench = Bench::new(rule);
        bench.connect();
        assert_ne!(bench.client(b"GET /go HTTP/1.1\r\n\r\n"), Decision::Pass, "{rule}");
        assert_eq!(bench.server(b"HTTP/1.1 204\r\n\r\n"), Decision::Pass, "{rule}");
        assert_eq!(bench.client(b"GET /go HTTP/1.1\r\n\r\n"), Decision::Pass, "{rule}");
        assert_eq!((bench.alerted(), bench.detector.counters().bypassed), (vec![1], 2), "{rule}");
    }
}
