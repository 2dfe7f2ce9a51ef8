//! Which of several rules decides a packet, and for how long. Expectations are Suricata 8.0.7's,
//! inline.

use weir_detect::{Alerts, Decision, Detector, Direction, FlowTable, Limits, Packet};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

use crate::bench::{Bench, CLIENT, SECOND, SERVER, load, udp};

fn inline(rules: &str) -> Bench {
    let limits = Limits { sees_all: true, refuses_conflicts: true, ..Limits::default() };
    let mut bench = Bench::with(rules, limits);
    bench.connect();
    bench
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: good\r\n\r\n";

#[test]
fn a_rule_that_lets_a_request_pass_takes_back_what_a_rule_about_its_packet_did() {
    for place in ["", "depth:3; "] {
        let mut bench = inline(&format!(
            "drop tcp any any -> any 80 (content:\"GET\"; {place}sid:1;)\n\
             pass http any any -> any any (http.host; content:\"good\"; sid:2;)"
        ));
        assert_eq!(bench.client(REQUEST), Decision::Pass, "{place}");
        assert_eq!(bench.alerted(), [], "{place}");
        assert_eq!(bench.client(b"GET"), Decision::Pass, "the flow passes");
    }
}

#[test]
fn a_rule_that_lets_a_packet_pass_for_its_side_says_nothing_of_the_answer() {
    let mut bench = inline(
        "pass tcp any any -> any 80 (flow:to_server; sid:1;)\n\
         drop tcp any 80 -> any any (content:\"evil\"; sid:2;)",
    );
    bench.client(REQUEST);
    assert!(matches!(bench.server(b"evil"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn a_rule_that_lets_the_beginning_of_a_stream_pass_lets_the_flow_pass() {
    let mut bench = inline(
        "pass tcp any any -> any 80 (content:\"GET\"; depth:3; sid:1;)\n\
         drop tcp any any -> any any (content:\"evil\"; sid:2;)",
    );
    bench.client(REQUEST);
    assert_eq!(bench.client(b"evil"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
}

#[test]
fn a_rule_about_the_beginning_of_a_stream_drops_what_comes_again_in_pieces() {
    for place in ["depth:4", "startswith", "offset:0"] {
        let rule = format!("drop tcp any any -> any any (content:\"evil\"; {place}; sid:1;)");
        let mut bench = inline(&rule);
        assert!(matches!(bench.client(b"evil"), Decision::Drop { .. }));
        for (ahead, piece) in [(-4, b"ev"), (-2, b"il")] {
            let again = bench.segment_at(Direction::Initiator, ahead, piece);
            assert!(matches!(again, Decision::Drop { .. }), "{place} {ahead}");
        }
        assert!(matches!(bench.client(b"other"), Decision::Drop { .. }), "{place}");
    }
}

#[test]
fn bits_are_put_however_often_a_rule_has_to_match_before_it_tells() {
    for often in [
        "threshold:type threshold, track by_src, count 5, seconds 60",
        "detection_filter:track by_src, count 5, seconds 60",
    ] {
        let mut bench = inline(&format!(
            "alert tcp any any -> any any (content:\"A\"; flowbits:set,x; {often}; sid:1;)\n\
             alert tcp any any -> any any (flowbits:isset,x; content:\"B\"; sid:2;)"
        ));
        bench.client(b"A");
        bench.client(b"B");
        assert_eq!(bench.alerted(), [2], "{often}");
    }
}

#[test]
fn what_a_rule_drops_with_its_packet_alone_is_dropped_when_it_comes_again() {
    let mut bench = inline("drop:packet tcp any any -> any any (content:\"evil\"; sid:1;)");
    bench.client(b"xxev");
    assert!(matches!(bench.client(b"il"), Decision::Drop { .. }));
    for (ahead, again) in
        [(-2, b"il".as_slice()), (-4, b"evil"), (-1, b"l"), (-1, b"ly"), (-2, b"i")]
    {
        let decision = bench.segment_at(Direction::Initiator, ahead, again);
        assert!(matches!(decision, Decision::Drop { .. }), "{ahead} {again:?}");
    }
    assert_eq!(bench.client(b"y"), Decision::Pass, "what follows waits at the receiver");
    assert_eq!(bench.segment_at(Direction::Initiator, -5, b"ev"), Decision::Pass);
}

#[test]
fn who_asks_for_a_bit_before_its_setter_has_its_turn_asks_in_vain() {
    let mut bench = inline(
        "drop udp any any -> any any (content:\"evil\"; flowbits:set,x; sid:90;)\n\
         pass udp any any -> any any (content:\"ev\"; flowbits:isset,x; sid:1;)",
    );
    assert!(matches!(bench.udp(b"evil"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [90]);
}

#[test]
fn a_rule_that_only_asks_something_of_packets_lets_one_packet_pass() {
    for asked in ["content:\"evil\";", "content:!\"good\"; flow:to_server;"] {
        let mut bench = Bench::new(&format!(
            "pass dns any any -> any any ({asked} sid:1;)\n\
             drop:packet ip any any -> any any (ttl:64; dsize:>25; sid:2;)"
        ));
        let query = |name: &[u8; 4]| {
            [b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x04", &name[..], b"\x03org\0\0\x01\0\x01"].concat()
        };
        assert_eq!(bench.udp(&query(b"evil")), Decision::Pass, "{asked}");
        assert!(matches!(bench.udp(&query(b"good")), Decision::Drop { .. }), "{asked}");
    }
}

#[test]
fn a_rule_about_a_side_of_an_application_acts_on_the_flow_unless_it_asks_for_bits() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (put, is_of_flow) in [
        ("", true),
        ("flowbits:set,x;", true),
        ("hostbits:set,x;", true),
        ("xbits:set,x,track ip_src;", true),
        ("flowbits:isnotset,x;", false),
        ("hostbits:isnotset,x;", false),
        ("xbits:isnotset,x,track ip_src;", false),
    ] {
        let mut bench = inline(&format!(
            "pass http any any -> any any (flow:to_server; {put} sid:1;)\n\
             alert http any any -> any any (flow:to_client; http.stat_code; content:\"2\"; sid:2;)"
        ));
        bench.client(REQUEST);
        bench.server(ANSWER);
        assert_eq!(bench.alerted().is_empty(), is_of_flow, "{put}");
    }
}

#[test]
fn a_rule_that_lets_so_many_pass_lets_no_more_pass() {
    let mut bench = inline(
        "pass udp any any -> any any (content:\"evil\"; \
         threshold:type limit, track by_src, count 2, seconds 60; sid:1;)\n\
         drop:packet udp any any -> any any (content:\"evil\"; sid:2;)",
    );
    let passed: Vec<bool> = (0..4).map(|_| bench.udp(b"evil") == Decision::Pass).collect();
    assert_eq!(passed, [true, true, false, false]);
}

#[test]
fn a_rule_that_tells_ever_more_rarely_drops_from_its_second_match_on() {
    let mut bench = inline(
        "drop:packet udp any any -> any any (content:\"evil\"; \
         threshold:type backoff, track by_flow, count 3, multiplier 2; sid:1;)",
    );
    let passed: Vec<bool> = (0..7).map(|_| bench.udp(b"evil") == Decision::Pass).collect();
    assert_eq!(passed, [true, false, false, false, false, false, false]);
    assert_eq!(bench.alerted(), [1, 1], "the third and the sixth");
}

#[test]
fn a_rule_that_names_exceptions_drops_the_flow_whatever_it_puts() {
    for put in ["", "flowbits:set,x; ", "xbits:set,x,track ip_src; "] {
        let mut bench = Bench::new(&format!("drop ip any any -> !192.0.2.1 any ({put}sid:1;)"));
        assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }), "{put}");
        let answer = udp(SERVER, CLIENT, 53, 40_000, b"b");
        assert!(
            matches!(bench.send(Direction::Responder, &answer), Decision::Drop { .. }),
            "{put}"
        );
    }
}

#[test]
fn rules_put_bits_although_one_before_them_lets_the_packet_pass() {
    let mut bench = inline(
        "pass udp any any -> any any (content:\"good\"; sid:1;)\n\
         drop:packet udp any any -> any any (content:\"seen\"; flowbits:set,x; sid:2;)\n\
         drop:packet udp any any -> any any (content:\"evil\"; flowbits:isset,x; sid:3;)",
    );
    assert_eq!(bench.udp(b"evil"), Decision::Pass);
    assert_eq!(bench.udp(b"good, seen"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
    assert!(matches!(bench.udp(b"evil"), Decision::Drop { .. }));
}

#[test]
fn what_passes_is_not_written_over() {
    let mut bench = inline(
        "pass udp any any -> any any (content:\"good\"; sid:1;)\n\
         alert udp any any -> any any (content:\"good\"; replace:\"evil\"; sid:2;)",
    );
    assert_eq!(bench.udp(b"good"), Decision::Pass);
    assert_eq!(bench.detector.take_replacements().count(), 0);
}

#[test]
fn rules_about_addresses_match_first_and_act_in_their_turn() {
    // The bit is there for a rule that drops, though that is before the rule that sets it.
    let set = "alert ip any any -> any any (flowbits:set,x; sid:2;)";
    let of = |rules: String| Bench::with(&rules, Limits { sees_all: true, ..Limits::default() });
    let mut bench = of(format!("{set}\ndrop udp any any -> any any (flowbits:isset,x; sid:1;)"));
    assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [1, 2]);
    // One that lets pass takes its alert back, and leaves the bit.
    let mut bench = of(format!("{set}\npass udp any any -> any any (content:\"a\"; sid:1;)"));
    assert_eq!(bench.udp(b"a"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
}

#[test]
fn who_is_to_be_answered_is_whichever_rule_drops_first() {
    for content in ["http.uri; content:\"evil\"; ", "content:\"GET\"; "] {
        let drop = match content.starts_with("http") {
            true => format!("drop http any any -> any any ({content}sid:2;)"),
            false => format!("drop tcp any any -> any any ({content}sid:2;)"),
        };
        let mut bench =
            inline(&format!("reject tcp any any -> any 80 (content:\"GET\"; sid:1;)\n{drop}"));
        let request = b"GET /evil HTTP/1.1\r\nHost: good\r\n\r\n";
        assert!(matches!(bench.client(request), Decision::Reject { .. }), "{content}");
    }
}

/// Packets that find their flows by themselves.
struct Table {
    flows: FlowTable,
    detector: Detector,
    now: Time,
}

impl Table {
    fn new(rules: &str) -> Self {
        let limits = Limits { sees_all: true, refuses_conflicts: true, ..Limits::default() };
        let detector = Detector::new(std::sync::Arc::new(load(rules).0), limits).unwrap();
        Self { flows: FlowTable::new(limits), detector, now: Time(1_700_000_000 * SECOND) }
    }

    fn send(&mut self, frame: &[u8]) -> Decision {
        let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet {
            bytes: frame,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: true,
            icrc: None,
            port: None,
        };
        self.now = self.now.plus_ns(1000);
        let mut alerts = Alerts::new(64);
        self.flows.inspect(&mut self.detector, self.now, &packet, &mut alerts)
    }

    fn segment(
        &mut self,
        of_client: bool,
        flags: u8,
        [at, ack]: [u32; 2],
        text: &[u8],
    ) -> Decision {
        let (client, server) = ((CLIENT, 40_000), (SERVER, 80));
        let (from, to) = if of_client { (client, server) } else { (server, client) };
        self.send(&crate::bench::tcp(from, to, flags, at, ack, text))
    }

    /// A connection that begins with such numbers.
    fn open(&mut self, [client, server]: [u32; 2]) {
        self.segment(true, 2, [client, 0], b"");
        self.segment(false, 18, [server, client + 1], b"");
        self.segment(true, 16, [client + 1, server + 1], b"");
    }
}

#[test]
fn what_passes_passes_no_longer_than_its_connection() {
    let rules = "pass tcp any any -> any any (content:\"good\"; sid:1;)\n\
                 drop tcp any any -> any any (content:\"evil\"; sid:2;)";
    for second in [[1000, 5000], [0x7000_0000, 0x2000_0000]] {
        let mut table = Table::new(rules);
        table.open([1000, 5000]);
        assert_eq!(table.segment(true, 24, [1001, 5001], b"good"), Decision::Pass);
        assert_eq!(table.segment(true, 24, [1005, 5001], b"evil"), Decision::Pass);
        table.segment(true, 17, [1009, 5001], b"");
        table.segment(false, 17, [5001, 1010], b"");
        table.open(second);
        let evil = table.segment(true, 24, second.map(|it| it + 1), b"evil");
        assert!(matches!(evil, Decision::Drop { .. }), "{second:?}");
    }
}

#[test]
fn what_rules_noted_of_a_connection_ends_with_its_clients_reset() {
    let mut table = Table::new(
        "alert tcp any any -> any any (content:\"good\"; flowbits:set,x; sid:1;)\n\
         drop tcp any any -> any any (content:\"evil\"; flowbits:isnotset,x; sid:2;)",
    );
    table.open([1000, 5000]);
    table.segment(true, 24, [1001, 5001], b"good");
    table.segment(true, 20, [1005, 5001], b"");
    table.open([0x7000_0000, 0x2000_0000]);
    let evil = table.segment(true, 24, [0x7000_0001, 0x2000_0001], b"evil");
    assert!(matches!(evil, Decision::Drop { .. }));
}

#[test]
fn datagrams_that_nobody_answers_are_a_flow_for_half_a_minute() {
    for (silent_s, passes) in [(25, true), (35, false)] {
        let mut table = Table::new(
            "pass:flow udp any any -> any any (content:\"good\"; sid:1;)\n\
             drop udp any any -> any any (content:\"evil\"; sid:2;)",
        );
        table.send(&udp(CLIENT, SERVER, 40_000, 7, b"good"));
        table.now = table.now.plus_ns(silent_s * SECOND);
        let evil = table.send(&udp(CLIENT, SERVER, 40_000, 7, b"evil"));
        assert_eq!(evil == Decision::Pass, passes, "after {silent_s} s");
    }
}
