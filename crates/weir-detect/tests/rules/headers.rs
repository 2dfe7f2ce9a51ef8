//! Addresses, ports and header fields.

use weir_detect::{Decision, Direction};

use crate::bench::{Bench, CLIENT, SERVER, udp};

/// The sids that match a datagram of the client.
fn of_datagram(rules: &str) -> Vec<u32> {
    let mut bench = Bench::new(rules);
    bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 53, b"abc"));
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

#[test]
fn addresses_and_ports_of_both_ends_are_compared_in_direction() {
    let rules = "alert udp 192.0.2.1 any -> 10.0.0.0/8 53 (sid:1;)\n\
                 alert udp 10.0.0.2 any -> 192.0.2.1 any (sid:2;)\n\
                 alert udp 10.0.0.2 53 <> 192.0.2.1 any (sid:3;)\n\
                 alert udp $EXTERNAL_NET 1024: -> $HOME_NET ![80,443] (sid:4;)\n\
                 alert udp any any -> any !53 (sid:5;)\n\
                 alert tcp any any -> any any (sid:6;)\n\
                 alert ip any any -> any any (sid:7;)";
    assert_eq!(of_datagram(rules), [1, 3, 4, 7]);
}

/// As Suricata 8.0.7 does.
#[test]
fn a_piece_of_an_ipv6_datagram_is_ip_and_no_more() {
    let rules = "alert icmp any any -> any any (ttl:64; sid:1;)\n\
                 alert icmpv6 any any -> any any (ttl:64; sid:2;)\n\
                 alert ipv6 any any -> any any (ttl:64; sid:3;)";
    for (header, found) in [(44, [3].as_slice()), (58, &[1, 2, 3])] {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 24];
        frame.extend([header, 64]);
        frame.extend([0x20; 32]);
        // The first piece of an ICMPv6 message.
        let piece = [58, 0, 0, 1, 0, 0, 0, 7];
        frame.extend(if header == 44 { &piece[..] } else { &[] });
        frame.extend([128, 0, 1, 2]);
        frame.resize(14 + 40 + 24, 0);
        let mut bench = Bench::new(rules);
        bench.send(Direction::Initiator, &frame);
        let mut sids = bench.alerted();
        sids.sort_unstable();
        assert_eq!(sids, found, "{header}");
    }
}

#[test]
fn fields_of_ip_are_compared() {
    let rules = "alert ip any any -> any any (ttl:64; sid:1;)\n\
                 alert ip any any -> any any (ttl:<64; sid:2;)\n\
                 alert ip any any -> any any (id:4660; sid:3;)\n\
                 alert ip any any -> any any (ip_proto:udp; sid:4;)\n\
                 alert ip any any -> any any (ip_proto:!17; sid:5;)\n\
                 alert ip any any -> any any (fragbits:D; sid:6;)\n\
                 alert ip any any -> any any (fragbits:M; sid:7;)\n\
                 alert ip any any -> any any (sameip; sid:8;)\n\
                 alert ip any any -> any any (ipv4.hdr; content:\"|12 34|\"; offset:4; depth:2; \
                 sid:9;)";
    assert_eq!(of_datagram(rules), [1, 3, 4, 6, 9]);
}

#[test]
fn flags_of_tcp_are_compared_with_modifiers() {
    let mut bench = Bench::new(
        "alert tcp any any -> any any (flags:S; sid:1;)\n\
         alert tcp any any -> any any (flags:S+; sid:2;)\n\
         alert tcp any any -> any any (flags:!A; sid:3;)\n\
         alert tcp any any -> any any (flags:SA,12; sid:4;)",
    );
    bench.tcp(Direction::Initiator, 2, b"");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
    bench.tcp(Direction::Responder, 0x12 | 0x40, b"");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [2, 4]);
}

/// As Suricata 8.0.7 does: a rule of ends alone matches once a side, unless it says otherwise.
#[test]
fn rules_of_all_packets_match_each() {
    let rules = "alert ip any any -> any any (sid:1;)\n\
                 alert ip:all any any -> any any (sid:2;)\n\
                 alert udp:all any any -> any any (sid:3;)\n\
                 alert tcp:all any any -> any any (sid:4;)\n\
                 alert udp any any -> any any (flow:stateless; sid:5;)\n\
                 alert udp:all 192.0.2.1 any -> any any (sid:6;)\n\
                 alert tcp-stream:all any any -> any any (sid:7;)\n\
                 alert tcp-stream any any -> any any (flow:to_server; sid:8;)";
    let mut bench = Bench::new(rules);
    let mut found = |frame: &[u8]| {
        bench.send(Direction::Initiator, frame);
        let mut sids = bench.alerted();
        sids.sort_unstable();
        sids
    };
    let datagram = udp(CLIENT, SERVER, 40_000, 53, b"abc");
    assert_eq!(found(&datagram), [1, 2, 3, 5, 6]);
    assert_eq!(found(&datagram), [2, 3, 5, 6]);
    let mut bench = Bench::new(rules);
    bench.connect();
    let mut sids = bench.alerted();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 2, 2, 4, 4, 4, 7, 7, 7, 8, 8]);
}

/// What a rule of all packets drops is that packet, and not what follows in its flow.
#[test]
fn a_rule_of_all_packets_drops_packets() {
    let mut bench = Bench::new("drop udp:all any any -> any any (sid:1;)");
    for _ in 0..3 {
        assert!(matches!(bench.udp(b"abc"), Decision::Drop { .. }));
        assert_eq!(bench.alerted(), [1], "each is told");
    }
}

/// What a rule says of its scope counts for more than what it looks at.
#[test]
fn a_rule_may_say_how_far_its_action_goes() {
    let is_dropped = |it: Decision| matches!(it, Decision::Drop { .. });
    // Of one packet: the next one goes on.
    let mut bench = Bench::new("drop:packet tcp any any -> any any (content:\"evil\"; sid:1;)");
    bench.connect();
    assert!(is_dropped(bench.client(b"evil")) && !is_dropped(bench.client(b"good")));
    // Of the flow, though the rule asks of one packet.
    let mut bench = Bench::new("drop:flow udp any any -> any any (dsize:4; sid:1;)");
    assert!(is_dropped(bench.udp(b"evil")) && is_dropped(bench.udp(b"well")));
    assert_eq!(bench.alerted(), [1], "what is dropped is looked at no more");
    // A pass, likewise: of one packet, and of the flow.
    let evil = "drop udp any any -> any any (content:\"evil\"; sid:2;)";
    for (scope, is_passed) in [("packet", false), ("flow", true)] {
        let pass = format!("pass:{scope} udp any any -> any any (content:\"good\"; sid:1;)");
        let mut bench = Bench::new(&format!("{pass}\n{evil}"));
        assert!(!is_dropped(bench.udp(b"good")));
        assert_eq!(is_dropped(bench.udp(b"evil")), !is_passed, "{scope}");
    }
}

/// As Suricata 8.0.7 refuses and takes them.
#[test]
fn numbers_fit_into_the_field_that_they_are_compared_with() {
    let takes = |options: &str| {
        let rule = format!("alert ip any any -> any any ({options}; sid:1;)");
        crate::bench::load(&rule).1.refused.is_empty()
    };
    for (keyword, most) in [
        ("dsize", 65_535),
        ("ttl", 255),
        ("itype", 255),
        ("icode", 255),
        ("id", 65_535),
        ("icmp_id", 65_535),
        ("tcp.seq", 4_294_967_295),
        ("tcp.mss", 65_535),
        ("tcp.wscale", 255),
        ("vlan.id", 4095),
        ("vlan.layers", 3),
        ("fragoffset", 65_535),
        ("ip_proto", 255),
        ("urilen", 65_535),
        ("dns.opcode", 255),
        ("dns.rcode", 65_535),
        ("mqtt.qos", 2),
        ("mqtt.flags", 255),
        ("dnp3_ind", 65_535_u64),
        ("krb5_msg_type", 255),
        ("snmp.version", 4_294_967_295),
    ] {
        assert!(takes(&format!("{keyword}:{most}")), "{keyword}:{most}");
        assert!(!takes(&format!("{keyword}:{}", most + 1)), "{keyword}:{most} + 1");
    }
    for right in ["urilen:5<>6", "dsize:1kb", "dhcp.leasetime:1kb", "tos:X10", "ipopts:RR"] {
        assert!(takes(right), "{right}");
    }
    for right in ["ftp.reply_received:on", "filestore:ssn", "filesize:1kb<>2kb"] {
        assert!(takes(right), "{right}");
    }
    for wrong in ["id:0x5", "icmp_seq:5<>7", "ip_proto:>=5", "mqtt.type:1,2"] {
        assert!(!takes(wrong), "{wrong}");
    }
}

/// As Suricata 8.0.7 does.
#[test]
fn only_tcp_has_streams_and_only_what_is_there_another_length() {
    let rules = "alert ip any any -> any any (stream_size:both,=,0; sid:1;)\n\
                 alert udp any any -> any any (stream_size:client,<,9; sid:2;)\n\
                 alert udp any any -> any any (dsize:!5; sid:3;)\n\
                 alert udp any any -> any any (dsize:<5; sid:4;)";
    assert_eq!(of_datagram(rules), [3, 4]);
    let mut bench = Bench::new(rules);
    bench.udp(b"");
    assert_eq!(bench.alerted(), [4]);
}

/// As Suricata 8.0.7 does: it looks one layer further than a packet has, where there is 0.
#[test]
fn the_layer_behind_the_last_one_counts_as_vlan_0() {
    let rules = "alert ip any any -> any any (vlan.id:!5,1; sid:1;)\n\
                 alert ip any any -> any any (vlan.id:0,1; sid:2;)\n\
                 alert ip any any -> any any (vlan.id:0,2; sid:3;)\n\
                 alert ip any any -> any any (vlan.id:0,0; sid:4;)";
    assert_eq!(of_datagram(rules), []);
    let mut frame = udp(CLIENT, SERVER, 40_000, 53, b"abc");
    frame.splice(12..12, [0x81, 0, 0, 7]);
    let mut bench = Bench::new(rules);
    bench.send(Direction::Initiator, &frame);
    assert_eq!(bench.alerted(), [1, 2]);
}

/// As Suricata 8.0.7 does: what it carries is looked at when it is whole.
#[test]
fn a_piece_of_a_datagram_has_a_protocol_and_no_ports_and_no_header() {
    let rules = "alert udp any any -> any any (msg:\"any\"; sid:1;)\n\
                 alert udp any any -> any 53 (msg:\"port\"; sid:2;)\n\
                 alert udp any any -> any !54 (msg:\"other port\"; sid:3;)\n\
                 alert icmp any any -> any any (msg:\"any\"; sid:4;)\n\
                 alert icmp any any -> any any (itype:8; sid:5;)\n\
                 alert tcp any any -> any any (msg:\"any\"; sid:6;)\n\
                 alert tcp any any -> any any (flags:S; sid:7;)\n\
                 alert rdma any any -> any any (msg:\"any\"; sid:8;)";
    let with = |protocol: u8, carried: &[u8]| {
        let mut frame = udp(CLIENT, SERVER, 40_000, 53, &[b'a'; 64]);
        frame[23] = protocol;
        frame[34..34 + carried.len()].copy_from_slice(carried);
        frame
    };
    let mut syn = [0; 20];
    (syn[12], syn[13]) = (0x50, 2);
    let roce = crate::bench::roce(4, 1, 1, b"data");
    for (frame, whole, piece) in [
        (with(17, &[]), vec![1, 2, 3], vec![1]),
        (with(1, &[8, 0, 0, 0]), vec![4, 5], vec![4]),
        (with(6, &syn), vec![6, 7], vec![6]),
        (roce, vec![1, 3, 8], vec![1]),
    ] {
        let found = |more_follow: bool| {
            let mut frame = frame.clone();
            frame[20] |= if more_follow { 0x20 } else { 0 };
            let mut bench = Bench::new(rules);
            bench.send(Direction::Initiator, &frame);
            let mut found = bench.alerted();
            found.sort_unstable();
            found
        };
        assert_eq!((found(false), found(true)), (whole, piece));
    }
}
