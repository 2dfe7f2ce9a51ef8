//! Flows, bits, thresholds, reloads and bounds.

use std::sync::Arc;

use weir_detect::{Decision, Direction, Limits};

use crate::bench::{Bench, CLIENT, SECOND, SERVER, load, udp};

#[test]
fn a_connection_is_established_after_its_three_packets() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (flow:established,to_server; content:\"abc\"; sid:1;)\n\
         alert tcp any any -> any any (flow:established,to_client; content:\"abc\"; sid:2;)\n\
         alert tcp any any -> any any (flow:not_established; content:\"abc\"; sid:3;)",
    );
    bench.connect();
    bench.client(b"abc");
    assert_eq!(bench.alerted(), [1]);
    bench.server(b"abc");
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn a_segment_that_no_receiver_takes_hides_nothing_where_checksums_are_looked_at() {
    for (checks_segments, found) in [(true, [1].as_slice()), (false, &[])] {
        let rule = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)";
        let limits = Limits { checks_segments, ..Limits::default() };
        let mut bench = Bench::with(rule, limits);
        bench.connect();
        bench.spoiled(b"xxx");
        bench.client(b"att");
        bench.client(b"ack");
        assert_eq!(bench.alerted(), found, "{checks_segments}");
    }
}

#[test]
fn a_reset_that_no_receiver_takes_ends_no_connection() {
    let rule = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)";
    let limits = Limits { checks_segments: true, ..Limits::default() };
    let mut bench = Bench::with(rule, limits);
    bench.connect();
    bench.spoiled_with(4, b"");
    bench.client(b"attack");
    assert_eq!(bench.alerted(), [1]);
    assert_eq!(bench.detector.counters().wrong_checksums, 1);
}

#[test]
fn nor_does_one_with_a_wrong_ipv4_header_or_that_acknowledges_nothing() {
    let rule = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)";
    let limits = Limits { checks_segments: true, ..Limits::default() };
    let header: fn(&mut Vec<u8>) = |frame| frame[24] ^= 0x55;
    for (flags, change) in [(24, header), (8, |_| ()), (0, |_| ())] {
        let mut bench = Bench::with(rule, limits);
        bench.connect();
        bench.forged(flags, b"xxx", change);
        bench.client(b"att");
        bench.client(b"ack");
        assert_eq!(bench.alerted(), [1], "{flags}");
        let counters = bench.detector.counters();
        assert_eq!(counters.wrong_checksums + counters.unacceptable_segments, 1, "{flags}");
    }
}

#[test]
fn blank_lines_before_a_request_do_not_hide_it() {
    let rule = "alert http any any -> any any (http.uri; content:\"/evil\"; sid:1;)";
    for before in ["\r\n", "\n\n\n", " ", "\0", ""] {
        for method in ["GET", "G.ET", "~"] {
            let mut bench = Bench::new(rule);
            bench.connect();
            bench.client(before.as_bytes());
            bench.client(format!("{method} /evil HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(bench.alerted(), [1], "{before:?} {method}");
        }
    }
}

#[test]
fn a_checksum_that_is_left_to_an_adapter_counts_as_right() {
    let rules = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)\n\
         alert tcp any any -> any any (tcpv4-csum:invalid; sid:2;)";
    let limits = Limits { checks_segments: true, ..Limits::default() };
    let mut bench = Bench::with(rules, limits);
    bench.connect().is_verified = true;
    bench.spoiled(b"attack");
    assert_eq!(bench.alerted(), [1]);
    assert_eq!(bench.detector.counters().wrong_checksums, 0);
}

#[test]
fn a_flow_that_a_rule_dropped_stays_dropped_and_after_a_reload_too() {
    const RULES: &str = "drop tcp any any -> any any (flow:established; content:\"bad\"; sid:1;)";
    let mut bench = Bench::new(RULES);
    bench.connect();
    assert!(matches!(bench.client(b"bad"), Decision::Drop { .. }));
    assert!(matches!(bench.client(b"good"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [1], "the flow's later packets are dropped without an alert");
    let more = format!("alert ip any any -> any any (content:\"x\"; sid:5;)\n{RULES}");
    bench.detector.swap(Arc::new(load(&more).0)).unwrap();
    assert!(matches!(bench.client(b"good"), Decision::Drop { .. }));
    bench.detector.swap(Arc::new(load("").0)).unwrap();
    assert_eq!(bench.client(b"good"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
}

#[test]
fn bits_of_a_flow_join_rules() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"one\"; flowbits:set,seen; flowbits:noalert; \
         sid:1;)\n\
         alert udp any any -> any any (content:\"two\"; flowbits:isset,seen; sid:2;)\n\
         alert udp any any -> any any (content:\"two\"; flowbits:isnotset,seen; sid:3;)\n\
         alert udp any any -> any any (content:\"off\"; flowbits:unset,seen; noalert; sid:4;)",
    );
    for (payload, found) in
        [("two", [3].as_slice()), ("one", &[]), ("two", &[2]), ("off", &[]), ("two", &[3])]
    {
        bench.udp(payload.as_bytes());
        assert_eq!(bench.alerted(), found, "{payload}");
    }
}

#[test]
fn of_rules_alike_in_severity_the_lower_number_comes_first() {
    let rule = |sid: u32, priority: u8| {
        format!(
            "alert udp any any -> any any (content:\"a\"; flowbits:isnotset,told; \
             flowbits:set,told; priority:{priority}; sid:{sid};)\n"
        )
    };
    let first = |rules: &[String]| {
        let mut bench = Bench::new(&rules.concat());
        bench.udp(b"a");
        bench.alerted()
    };
    assert_eq!(first(&[rule(8, 2), rule(7, 2), rule(9, 2)]), [7], "whatever the order written");
    assert_eq!(first(&[rule(7, 2), rule(8, 1)]), [8], "but the more severe before");
}

#[test]
fn bits_of_hosts_outlive_flows_until_their_time() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"one\"; xbits:set,seen,track ip_src,expire 10; \
         sid:1;)\n\
         alert udp any any -> any any (content:\"two\"; xbits:isset,seen,track ip_src; sid:2;)",
    );
    bench.udp(b"one");
    bench.detector.release(std::mem::take(&mut bench.slot));
    bench.udp(b"two");
    assert_eq!(bench.alerted(), [1, 2]);
    bench.now = bench.now.plus_ns(11 * SECOND);
    bench.udp(b"two");
    assert_eq!(bench.alerted(), []);
}

#[test]
fn who_sets_a_bit_of_hosts_that_is_set_does_not_extend_its_time() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"one\"; xbits:set,seen,track ip_src,expire 10; \
         noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"two\"; xbits:isset,seen,track ip_src; sid:2;)",
    );
    let mut told_after = |seconds: u64, payload: &[u8]| {
        bench.now = bench.now.plus_ns(seconds * SECOND);
        bench.udp(payload);
        bench.alerted() == [2]
    };
    told_after(0, b"one");
    told_after(8, b"one");
    assert!(told_after(1, b"two") && !told_after(2, b"two"), "ten seconds, and no more");
    told_after(9, b"one");
    assert!(told_after(9, b"two"), "a bit that is over is set again");
}

#[test]
fn integers_of_a_flow_are_counted_and_compared() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"a\"; flowint:seen,+,1; noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"a\"; flowint:seen,>,2; sid:2;)",
    );
    for _ in 0..4 {
        bench.udp(b"a");
    }
    assert_eq!(bench.alerted(), [2, 2]);
}

#[test]
fn thresholds_limit_alerts_and_not_drops() {
    let mut bench = Bench::new(
        "drop udp any any -> any any (content:\"a\"; \
         threshold:type limit, track by_src, count 1, seconds 60; sid:1;)",
    );
    assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }));
    assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [1]);
    let mut bench = Bench::new(
        "drop udp any any -> any any (content:\"a\"; \
         detection_filter:track by_src, count 1, seconds 60; sid:1;)",
    );
    assert_eq!(bench.udp(b"a"), Decision::Pass);
    assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }));
}

#[test]
fn rules_of_addresses_alone_speak_once_a_direction() {
    let mut bench = Bench::new("alert ip 192.0.2.1 any -> any any (sid:1;)");
    bench.udp(b"a");
    bench.udp(b"b");
    bench.send(Direction::Responder, &udp(SERVER, CLIENT, 53, 40_000, b"c"));
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn a_packet_without_a_slot_is_looked_at_and_counted() {
    let limits = Limits { flows: 0, ..Limits::default() };
    let mut bench = Bench::with("drop udp any any -> any any (content:\"a\"; sid:1;)", limits);
    assert!(matches!(bench.udp(b"a"), Decision::Drop { .. }));
    assert_eq!(bench.detector.counters().packets_without_slot, 1);
}

#[test]
fn alerts_beyond_the_queue_are_counted() {
    let mut bench = Bench::new("alert udp any any -> any any (content:\"a\"; sid:1;)");
    for _ in 0..70 {
        bench.udp(b"a");
    }
    assert_eq!((bench.alerts.len(), bench.alerts.overflow()), (64, 6));
}

#[test]
fn a_transaction_has_bits_of_its_own_and_they_end_with_it() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.user_agent; content:\"bad\"; xbits:set,bad,track tx; \
         noalert; sid:1;)\n\
         alert http any any -> any any (http.method; content:\"GET\"; \
         xbits:isset,bad,track tx; sid:2;)\n\
         alert http any any -> any any (http.stat_code; content:\"404\"; \
         xbits:isset,bad,track tx; sid:3;)",
    );
    bench.connect();
    let ask = |agent: &str| format!("GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n");
    let answer = b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno";
    bench.client(ask("bad").as_bytes());
    assert_eq!(bench.alerted(), [2]);
    bench.server(answer);
    assert_eq!(bench.alerted(), [3]);
    bench.client(ask("good").as_bytes());
    bench.server(answer);
    assert_eq!(bench.alerted(), []);
    for wrong in ["isnotset,x,track tx", "toggle,x,track tx", "set,x,track ip_src,expire 0"] {
        let rule = format!(
            "alert http any any -> any any (http.uri; content:\"a\"; xbits:{wrong}; sid:1;)"
        );
        assert_eq!(crate::bench::refused(&rule), "xbits", "{wrong}");
    }
}

/// As Suricata 8.0.7 has it.
#[test]
fn of_several_bits_any_may_be_unset_and_what_is_set_has_one_name() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"one\"; flowbits:set,a; noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"all\"; flowbits:set,b; noalert; sid:2;)\n\
         alert udp any any -> any any (content:\"pair\"; flowbits:set,c|d; noalert; sid:3;)\n\
         alert udp any any -> any any (content:\"?\"; flowbits:isnotset,a|b; sid:4;)\n\
         alert udp any any -> any any (content:\"?\"; flowbits:isset,a|b; sid:5;)\n\
         alert udp any any -> any any (content:\"?\"; flowbits:isset,c|d; sid:6;)",
    );
    for (payload, found) in [("pair?", [4].as_slice()), ("one?", &[4, 5]), ("all?", &[5])] {
        bench.udp(payload.as_bytes());
        let mut sids = bench.alerted();
        sids.sort_unstable();
        assert_eq!(sids, found, "{payload}");
    }
}

/// As Suricata 8.0.7 has it.
#[test]
fn nothing_is_taken_from_a_counter_that_is_not_there() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"a\"; flowint:seen,-,1; noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"a\"; flowint:seen,isset; sid:2;)\n\
         alert udp any any -> any any (content:\"a\"; flowint:seen,notset; sid:3;)",
    );
    bench.udp(b"a");
    assert_eq!(bench.alerted(), [3]);
}

/// As Suricata 8.0.7 orders its rules.
#[test]
fn who_asks_for_xbits_comes_before_who_sets_them_in_the_same_packet() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"a\"; xbits:set,x,track ip_src; noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"a\"; xbits:isset,x,track ip_src; sid:2;)\n\
         alert udp any any -> any any (content:\"a\"; xbits:isnotset,x,track ip_src; sid:3;)",
    );
    bench.udp(b"a");
    assert_eq!(bench.alerted(), [3]);
    bench.udp(b"a");
    assert_eq!(bench.alerted(), [2]);
    // Nor does it look again where a bit of the flow was set.
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"a\"; flowbits:set,y; noalert; sid:1;)\n\
         alert udp any any -> any any (content:\"a\"; xbits:set,x,track ip_src; noalert; sid:2;)\n\
         alert udp any any -> any any (content:\"a\"; xbits:isset,x,track ip_src; sid:3;)",
    );
    bench.udp(b"a");
    assert_eq!(bench.alerted(), []);
}

/// As Suricata 8.0.7 orders its rules: the alerts of one packet tell the order.
#[test]
fn who_sets_for_others_comes_before_who_asks_kind_by_kind() {
    let rules = [
        "flowbits:set,f1; flowint:number,+,1",
        "flowbits:set,f2; xbits:isnotset,x1,track ip_src",
        "flowbits:set,f3",
        "flowbits:isnotset,f4; flowbits:set,f5",
        "flowbits:isnotset,f6; hostbits:set,h1,src",
        "flowbits:isnotset,f7",
        "flowint:other,+,1",
        "pcre:\"/(?P<flow_text>a)/\"",
        "pcre:\"/(?P<pkt_text>a)/\"",
        "hostbits:set,h2,src",
        "hostbits:set,h3,src; xbits:isnotset,x2,track ip_dst",
        "xbits:isnotset,x3,track ip_src",
        "xbits:isnotset,x4,track ip_pair",
        "hostbits:isnotset,h4,src",
        "xbits:set,x5,track ip_src",
    ];
    let text = |(place, it): (usize, &&str)| {
        format!("alert udp any any -> any any (content:\"a\"; {it}; sid:{};)\n", place + 1)
    };
    // Those that are alike go by number: the last two.
    let mut shuffled: Vec<String> = rules.iter().enumerate().map(text).collect();
    shuffled.rotate_left(7);
    shuffled.swap(1, 9);
    let mut bench = Bench::new(&shuffled.concat());
    bench.udp(b"a");
    let expected: Vec<u32> = (1..=rules.len() as u32).collect();
    assert_eq!(bench.alerted(), expected);
}

#[test]
fn what_flows_and_hosts_have_said_stays_when_rules_change() {
    let kept = "alert tcp any any -> any any (content:\"first\"; flowbits:set,seen; \
                xbits:set,met,track ip_pair,expire 60; noalert; sid:1;)\n\
                alert tcp any any -> any any (content:\"second\"; flowbits:isset,seen; sid:2;)\n\
                alert tcp any any -> any any (content:\"third\"; \
                xbits:isset,met,track ip_pair; sid:3;)\n\
                alert tcp any any -> any any (content:\"again\"; \
                detection_filter:track by_src, count 1, seconds 60; sid:4;)\n";
    let mut bench = Bench::new(kept);
    bench.connect();
    bench.client(b"first");
    bench.client(b"again");
    assert_eq!(bench.alerted(), []);
    // Others before them take other places, and bits other numbers.
    let more = "alert tcp any any -> any any (content:\"x\"; flowbits:set,a; noalert; sid:8;)\n\
                drop tcp any any -> any any (content:\"y\"; flowbits:isset,b; sid:9;)\n";
    bench.detector.swap(Arc::new(load(&[more, kept].concat()).0)).unwrap();
    bench.client(b"second");
    bench.client(b"third");
    bench.client(b"again");
    assert_eq!(bench.alerted(), [2, 3, 4]);
}

#[test]
fn bits_of_hosts_are_the_same_by_either_keyword() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (content:\"one\"; xbits:set,a,track ip_src; sid:1;)\n\
         alert udp any any -> any any (content:\"two\"; hostbits:isset,a,src; sid:2;)\n\
         alert udp any any -> any any (content:\"one\"; hostbits:set,b,dst; sid:3;)\n\
         alert udp any any -> any any (content:\"two\"; xbits:isset,b,track ip_dst; sid:4;)\n\
         alert udp any any -> any any (content:\"two\"; xbits:isset,b,track ip_pair; sid:5;)\n\
         alert udp any any -> any any (content:\"one\"; flowbits:set,c; sid:6;)\n\
         alert udp any any -> any any (content:\"two\"; xbits:isset,c,track ip_src; sid:7;)",
    );
    let mut told = |payload: &[u8]| {
        bench.udp(payload);
        let mut told = bench.alerted();
        told.sort_unstable();
        told
    };
    assert_eq!(told(b"one"), [1, 3, 6]);
    assert_eq!(told(b"two"), [2, 4]);
}

#[test]
fn of_a_stream_alone_is_any_packet_where_nothing_of_it_is_asked() {
    let mut bench = Bench::new(
        "alert udp any any -> any any (flow:only_stream; sid:1;)\n\
         alert udp any any -> any any (flow:only_stream; content:\"one\"; sid:2;)\n\
         alert ip any any -> any any (flow:only_stream; sid:3;)\n\
         alert tcp any any -> any any (flow:only_stream,established; sid:4;)\n\
         alert tcp-stream any any -> any any (flow:established; sid:5;)",
    );
    bench.udp(b"one");
    assert_eq!(bench.alerted(), [1, 3]);
    bench.slot = Default::default();
    bench.connect();
    bench.alerted();
    bench.client(b"one");
    assert_eq!(bench.alerted(), [4, 5]);
}
