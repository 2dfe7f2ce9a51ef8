//! Lines of a threshold.config, each held against what Suricata 8.0.7 says of the same packets.

use weir_detect::{Decision, Direction, LoadOptions, RuleSource};

use crate::bench::{Bench, CLIENT, SECOND, SERVER, udp};

const OTHER: [u8; 4] = [192, 0, 2, 9];

fn with(rule: &str, lines: &str) -> Bench {
    Bench::loaded(
        rule,
        &LoadOptions {
            filters: vec![RuleSource { name: "threshold.config".into(), text: lines.into() }],
            ..LoadOptions::default()
        },
    )
}

/// How many of so many packets of a host are dropped, and how many alert.
fn counted(bench: &mut Bench, source: [u8; 4], count: usize) -> (usize, usize) {
    let packet = udp(source, SERVER, 40_000, 53, b"bad");
    let (mut dropped, mut alerts) = (0, 0);
    for _ in 0..count {
        let decision = bench.send(Direction::Initiator, &packet);
        dropped += usize::from(matches!(decision, Decision::Drop { .. }));
        alerts += bench.alerted().len();
    }
    (dropped, alerts)
}

fn drop_with(counts: &str) -> String {
    format!("drop udp any any -> any any (content:\"bad\"; {counts} sid:1;)")
}

#[test]
fn what_is_suppressed_is_dropped_each_time_and_counts_for_nothing() {
    let line = "suppress gen_id 1, sig_id 1, track by_src, ip 192.0.2.1";
    for (counts, expected) in [
        ("threshold:type threshold, track by_dst, count 5, seconds 60;", [(4, 0), (0, 0)]),
        ("detection_filter:track by_dst, count 3, seconds 60;", [(4, 0), (0, 0)]),
        ("threshold:type limit, track by_rule, count 2, seconds 60;", [(4, 0), (3, 2)]),
    ] {
        let mut bench = with(&drop_with(counts), line);
        let found = [(CLIENT, 4), (OTHER, 3)].map(|it| counted(&mut bench, it.0, it.1));
        assert_eq!(found, expected, "{counts}");
    }
}

#[test]
fn a_rate_keeps_its_count_when_its_time_is_over() {
    let rule = "alert udp any any -> any any (content:\"bad\"; sid:1;)";
    let line = "rate_filter gen_id 1, sig_id 1, track by_src, count 3, seconds 60, \
                new_action drop, timeout 2";
    let mut bench = with(rule, line);
    let mut dropped = Vec::new();
    for _ in 0..16 {
        dropped.push(counted(&mut bench, CLIENT, 1).0);
        bench.now = bench.now.plus_ns(SECOND / 2);
    }
    assert_eq!(dropped, [0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1]);
}

#[test]
fn a_threshold_takes_the_place_of_a_filter_and_goes_before_a_rate() {
    let threshold = "threshold gen_id 1, sig_id 1, type limit, track by_src, count 1, seconds 60\n";
    let rate = "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 60, \
                new_action pass, timeout 60\n";
    let filter = "detection_filter:track by_src, count 3, seconds 60;";
    let limit = "threshold:type limit, track by_src, count 1, seconds 60;";
    for (counts, lines, expected) in [
        (filter, threshold.to_owned(), (8, 1)),
        (filter, rate.to_owned(), (5, 5)),
        (limit, rate.to_owned(), (8, 1)),
        ("", format!("{threshold}{rate}"), (8, 1)),
        ("", format!("{rate}{threshold}"), (8, 1)),
        (filter, threshold.replace("sig_id 1", "sig_id 0"), (5, 5)),
    ] {
        let mut bench = with(&drop_with(counts), &lines);
        assert_eq!(counted(&mut bench, CLIENT, 8), expected, "{counts} {lines}");
    }
}
