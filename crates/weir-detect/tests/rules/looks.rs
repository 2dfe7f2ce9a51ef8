//! At what a rule looks: packets, streams, ends; each as often as Suricata does.

use weir_detect::{Direction, Limits};

use crate::bench::{Bench, CLIENT, SERVER, udp};

/// How often a rule alerts of a connection in which the client says `so ev` and `il`, and the
/// server `so evil`.
fn of_connection(rule: &str) -> usize {
    let mut bench = Bench::new(&format!("alert {rule}"));
    bench.connect();
    bench.client(b"so ev");
    bench.server(b"");
    bench.client(b"il");
    bench.server(b"");
    bench.server(b"so evil");
    bench.alerted().len()
}

#[test]
fn contents_beside_what_a_packet_says_of_itself_stand_in_that_packet() {
    for (options, alerts) in [
        ("content:\"evil\";", 2),
        ("ttl:64; content:\"evil\";", 1),
        ("fragoffset:0; content:\"evil\";", 1),
        ("flow.pkts_toserver:>0; content:\"evil\";", 1),
        ("tcpv4-csum:valid; content:\"evil\";", 2),
        ("content:\"evil\"; offset:3; depth:4;", 2),
        ("flow:only_stream; content:\"evil\";", 2),
        ("flow:no_stream; content:\"evil\";", 1),
    ] {
        for protocol in ["tcp", "ip", "ip4", "pkthdr"] {
            let rule = format!("{protocol} any any -> any any ({options} sid:1;)");
            assert_eq!(of_connection(&rule), alerts, "{rule}");
        }
    }
}

#[test]
fn an_empty_packet_has_no_payload_to_look_into() {
    for options in ["content:!\"evil\";", "content:!\"zzz\";", "isdataat:!9;"] {
        let mut bench = Bench::new(&format!("alert ip any any -> any any ({options} sid:1;)"));
        bench.udp(b"");
        bench.connect();
        assert_eq!(bench.alerted(), [], "{options}");
        bench.client(b"so");
        assert_eq!(bench.alerted(), [1], "{options}");
    }
}

#[test]
fn a_rule_of_ends_looks_once_at_each_side_and_one_of_exceptions_at_each_packet() {
    const PACKETS: usize = 8;
    for (header, options, alerts) in [
        ("any any -> any any", "", 2),
        ("any any -> any 80", "", 1),
        ("any any -> any !99", "", 2),
        ("any any <> any 80", "", 2),
        ("any any -> any any", "l3_proto:ip4;", 2),
        ("!10.9.9.9 any -> any any", "", PACKETS),
        ("any any -> any any", "flow:stateless;", PACKETS),
    ] {
        let rule = format!("tcp {header} ({options} sid:1;)");
        assert_eq!(of_connection(&rule), alerts, "{rule}");
    }
}

#[test]
fn a_rule_of_ends_looks_at_the_flows_that_were_there_before_it() {
    let mut bench = Bench::new("alert tcp any any -> any 99 (sid:1;)");
    bench.connect();
    let rules = crate::bench::load("alert tcp any any -> any 80 (sid:2;)").0;
    bench.detector.swap(std::sync::Arc::new(rules)).unwrap();
    bench.client(b"a");
    bench.client(b"b");
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn fields_of_ipv4_are_none_of_ipv6s() {
    let rules = "alert ip any any -> any any (tos:0; sid:1;)\n\
                 alert ip any any -> any any (fragoffset:0; sid:2;)\n\
                 alert ip any any -> any any (ttl:64; sid:3;)";
    let mut bench = Bench::new(rules);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8];
    frame.extend([17, 64]);
    frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    bench.send(Direction::Initiator, &frame);
    assert_eq!(bench.alerted(), [3]);
}

/// `datagram` in so many bytes of SCTP or GRE, or a piece of it.
fn carried(protocol: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = udp(CLIENT, SERVER, 1, 2, payload);
    frame.drain(34..42);
    frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    (frame[20], frame[23]) = (flags, protocol);
    frame[24..26].fill(0);
    let checksum = weir_wire::checksum::Sum::new().with(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[test]
fn what_is_in_a_tunnel_or_in_pieces_is_looked_at_by_itself() {
    const SCTP: u8 = 132;
    const GRE: u8 = 47;
    const MORE: u8 = 0x20;
    let rules = "alert ip any any -> any any (content:\"evil\"; sid:1;)\n\
                 alert ip any !80 -> any !99 (sid:2;)\n\
                 alert ip any any -> any any (flow:not_established; sid:3;)";
    let sctp = [&[3, 232, 7, 208, 0, 0, 0, 0, 0, 0, 0, 0][..], b"evil"].concat();
    let datagram = [&[0, 1, 0, 2, 0, 40, 0, 0][..], b"evil"].concat();
    for (protocol, flags, payload, sids) in [
        (SCTP, 0, sctp.as_slice(), [1, 2, 3].as_slice()),
        (17, MORE, &datagram, &[]),
        (GRE, 0, b"\x00\x00\x12\x34evil", &[3]),
    ] {
        let mut bench = Bench::new(rules);
        bench.send(Direction::Initiator, &carried(protocol, flags, payload));
        let mut alerted = bench.alerted();
        alerted.sort_unstable();
        assert_eq!(alerted, sids, "{protocol}");
    }
}

#[test]
fn who_waits_for_acknowledgments_tells_of_packet_and_stream() {
    let rule = "alert tcp any any -> any any (content:\"evil\"; depth:9; sid:1;)";
    for (waits_for_acknowledgment, alerts) in [(false, 1), (true, 2)] {
        let mut bench = Bench::with(rule, Limits { waits_for_acknowledgment, ..Limits::default() });
        bench.connect();
        bench.client(b"so evil");
        assert_eq!(bench.alerted().len(), alerts);
    }
}

/// What is alerted to with each of: a request, its acknowledgment, two more segments of the client.
fn with_a_request(rules: &str, waits_for_acknowledgment: bool) -> [Vec<u32>; 4] {
    const ACK: u8 = 16;
    let limits = Limits { waits_for_acknowledgment, ..Limits::default() };
    let mut bench = Bench::with(rules, limits);
    bench.connect();
    bench.alerted();
    bench.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let with_request = bench.alerted();
    let mut of_segment = |direction| {
        bench.tcp(direction, ACK, b"");
        bench.alerted()
    };
    let [server, client] = [Direction::Responder, Direction::Initiator];
    [with_request, of_segment(server), of_segment(client), of_segment(client)]
}

#[test]
fn who_waits_for_acknowledgments_has_rules_about_messages_take_effect_with_them() {
    let seen = "alert http any any -> any any (http.uri; content:\"/a\"; flowbits:set,seen; \
                noalert; sid:1;)\n\
                alert tcp-pkt any any -> any any (flowbits:isset,seen; sid:2;)\n\
                alert http any any -> any any (http.host; flowbits:isset,seen; content:\"h\"; \
                sid:3;)";
    // Rules about messages see at once what others of them did.
    assert_eq!(with_a_request(seen, true), [vec![3], vec![], vec![], vec![2]]);
    assert_eq!(with_a_request(seen, false), [vec![3], vec![2], vec![2], vec![2]]);

    let bytes = "alert tcp any any -> any any (content:\"GET /a\"; flowbits:set,seen; noalert; \
                 sid:1;)\n\
                 alert tcp-pkt any any -> any any (flowbits:isset,seen; sid:2;)";
    assert_eq!(with_a_request(bytes, true), [vec![], vec![], vec![2], vec![2]]);
    assert_eq!(with_a_request(bytes, false), [vec![2], vec![2], vec![2], vec![2]]);

    let pass = "pass http any any -> any any (http.uri; content:\"/a\"; sid:1;)\n\
                alert tcp-pkt any any -> any any (dsize:<999; sid:2;)";
    // With the packet that it takes effect with, as if it were about that.
    assert_eq!(with_a_request(pass, true), [vec![2], vec![2], vec![], vec![]]);
    assert_eq!(with_a_request(pass, false), [vec![], vec![], vec![], vec![]]);
}

#[test]
fn who_waits_for_acknowledgments_knows_with_them_what_is_encrypted() {
    const ACK: u8 = 16;
    let rule = "alert tcp-pkt any any -> any any (dsize:>0; sid:1;)";
    for (waits_for_acknowledgment, behind) in [(false, vec![]), (true, vec![1])] {
        let mut bench = Bench::with(rule, Limits { waits_for_acknowledgment, ..Limits::default() });
        bench.server_port = 443;
        bench.connect();
        bench.client(b"\x16\x03\x03\x00\x04\x01\x00\x00\x00\x14\x03\x03\x00\x01\x01");
        bench.server(b"\x16\x03\x03\x00\x04\x02\x00\x00\x00\x14\x03\x03\x00\x01\x01");
        let data = b"\x17\x03\x03\x00\x04abcd";
        bench.alerted();
        bench.server(data);
        assert_eq!(bench.alerted(), [1]);
        bench.server(data);
        assert_eq!(bench.alerted(), behind);
        bench.tcp(Direction::Initiator, ACK, b"");
        bench.server(data);
        assert_eq!(bench.alerted(), []);
    }
}

#[test]
fn the_size_of_a_stream_is_known_to_rules_of_packets() {
    let rule =
        "alert tcp-pkt any any -> any any (stream_size:client,>,3; content:\"evil\"; sid:1;)";
    let mut bench = Bench::new(rule);
    bench.connect();
    bench.client(b"evil");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn what_is_shorter_than_a_rule_wants_has_no_entropy() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.user_agent; entropy:bytes 5, value >= 0; sid:1;)\n\
         alert http any any -> any any (http.user_agent; entropy:bytes 5, value != 7; sid:2;)\n\
         alert http any any -> any any (http.user_agent; entropy:bytes 3, value >= 0; sid:3;)\n\
         alert http any any -> any any (pcre:\"/H\\.Example/Z\"; sid:4;)\n\
         alert http any any -> any any (pcre:\"/h\\.example/Z\"; sid:5;)",
    );
    bench.connect();
    bench.client(b"GET / HTTP/1.1\r\nHost: H.Example\r\nUser-Agent: abc\r\n\r\n");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [3, 4]);
}

#[test]
fn the_entropy_of_a_stream_is_that_of_what_was_said() {
    let rule = "alert tcp any any -> any any (entropy:value > 1; sid:1;)";
    let mut bench = Bench::new(rule);
    bench.connect();
    bench.client(b"aaaa");
    assert_eq!(bench.alerted(), []);
    bench.client(b"bcd");
    assert_eq!(bench.alerted(), [1]);
}

/// As Suricata 8.0.7 alerts.
#[test]
fn bits_of_a_message_are_seen_with_the_next_packet_and_those_of_a_stream_at_once() {
    for (sets, found) in [
        ("http.uri; content:\"/a\"", [3].as_slice()),
        ("http.header; content:\"Host\"", &[3]),
        ("content:\"GET\"", &[1, 2, 3]),
    ] {
        let mut bench = Bench::new(&format!(
            "alert http any any -> any any (flowbits:isset,seen; sid:1;)\n\
             alert tcp any any -> any any (dsize:>1; flowbits:isset,seen; sid:2;)\n\
             alert http any any -> any any (http.user_agent; content:\"x\"; \
             flowbits:isset,seen; sid:3;)\n\
             alert http any any -> any any ({sets}; flowbits:set,seen; noalert; sid:4;)"
        ));
        bench.connect();
        bench.client(b"GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\n\r\n");
        let mut at_once = bench.alerted();
        at_once.sort_unstable();
        assert_eq!(at_once, found, "{sets}");
        bench.tcp(Direction::Responder, 16, b"");
        assert_eq!(bench.alerted(), [1], "{sets}");
    }
}

/// How often a rule that looks at bits alone alerts, of three packets of the client and two of the
/// server, as Suricata 8.0.7 does. A rule about the first packet has put the bits.
#[test]
fn bits_of_hosts_alone_are_looked_at_once_a_side_and_those_of_flows_with_each_packet() {
    for (options, alerts) in [
        ("xbits:isset,x,track ip_pair;", 1),
        ("xbits:isnotset,none,track ip_pair;", 2),
        ("xbits:unset,none,track ip_pair;", 2),
        ("xbits:isset,x,track ip_pair; flowbits:set,b;", 1),
        ("xbits:isset,x,track ip_pair; flow:to_server;", 3),
        ("hostbits:isset,h,dst;", 1),
        ("hostbits:isnotset,none,src;", 2),
        ("flowbits:isset,f;", 5),
        ("flowbits:set,b;", 2),
        ("flowbits:unset,b;", 5),
        ("flowbits:toggle,b;", 5),
    ] {
        let mut bench = Bench::new(&format!(
            "alert ip any any -> any any (flags:S; xbits:set,x,track ip_pair; hostbits:set,h,src; \
             flowbits:set,f; noalert; sid:1;)\n\
             alert tcp any any -> any any ({options} sid:2;)"
        ));
        bench.connect();
        bench.server(b"");
        bench.client(b"");
        assert_eq!(bench.alerted().len(), alerts, "{options}");
    }
}

/// A rule whose content has a place waits for nothing once that is behind: more than a thousand
/// would push out those that wait with reason.
#[test]
fn contents_found_where_they_cannot_count_wait_for_nothing() {
    use std::fmt::Write;
    let mut rules = String::from(
        "alert tcp any any -> any any (content:\"evil\"; fast_pattern; content:\"good\"; \
         distance:0; sid:9000;)\n",
    );
    let mut said = ".".repeat(300);
    for number in 0..1100 {
        let rest = format!("depth:100; pcre:\"/neverthere/\"; sid:{};", number + 1);
        writeln!(rules, "alert tcp any any -> any any (content:\"~{number:04}\"; {rest})").unwrap();
        write!(said, "~{number:04}").unwrap();
    }
    said += "evil and then";
    let mut bench = Bench::new(&rules);
    bench.connect();
    bench.client(said.as_bytes());
    bench.client(b"and good");
    assert_eq!(bench.alerted(), [9000]);
    assert_eq!(bench.detector.counters().candidates_lost, 0);
}

#[test]
fn a_content_counts_once_beside_an_entropy_whatever_other_rules_look_for() {
    let long = "x".repeat(70);
    let rules = format!(
        "alert tcp any any -> any any (content:\"evil\"; entropy:value > 0; sid:1;)\n\
         alert tcp any any -> any any (content:\"evil\"; sid:2;)\n\
         alert tcp any any -> any any (content:\"{long}\"; sid:3;)"
    );
    let mut bench = Bench::new(&rules);
    bench.connect();
    for piece in ["an evil thing", "x0", "x1", "x2", "x3"] {
        bench.client(piece.as_bytes());
    }
    assert_eq!(bench.alerted(), [1, 2]);
}
