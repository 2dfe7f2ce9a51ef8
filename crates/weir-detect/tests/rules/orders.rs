//! Which of several rules decides a packet, and for how long. Expectations are Suricata 8.0.7's,
//! inline.

use weir_detect::{Decision, Limits};

use crate::bench::Bench;

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
            let again = bench.segment_at(weir_detect::Direction::Initiator, ahead, piece);
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
        let decision = bench.segment_at(weir_detect::Direction::Initiator, ahead, again);
        assert!(matches!(decision, Decision::Drop { .. }), "{ahead} {again:?}");
    }
    assert_eq!(bench.client(b"y"), Decision::Pass, "what follows waits at the receiver");
    assert_eq!(bench.segment_at(weir_detect::Direction::Initiator, -5, b"ev"), Decision::Pass);
}
