//! Forms of rules that Suricata 8.0.7 refuses, and those that it takes.

use crate::bench::{load, refused};

/// The rule with these options, and what goes before them.
fn runs(header: &str, options: &str) -> bool {
    let sid = if options.contains("sid:") { "" } else { "sid:1;" };
    load(&format!("{header} ({options} {sid})")).1.runnable == 1
}

const TCP: &str = "alert tcp any any -> any any";

#[test]
fn what_suricata_refuses_is_refused() {
    const LIMIT: &str = "threshold:type limit,track by_src,count 1,seconds 5;";
    const FILTER: &str = "detection_filter:track by_src,count 1,seconds 5;";
    for (one, other) in [(LIMIT, LIMIT), (LIMIT, FILTER), (FILTER, LIMIT), (FILTER, FILTER)] {
        assert!(!runs(TCP, &format!("content:\"a\"; {one} {other}")), "{one} {other}");
    }
    for wrong in [
        "msg:\"a\"; msg:\"b\";",
        "msg:a;",
        "sid:0;",
        "sid:1; sid:1;",
        "rev:1; rev:2;",
        "rev:0;",
        "noalert:1;",
        "bypass:1;",
        "tag:foo,1,packets;",
        "flow;",
        "flow:to_client,to_server;",
        "flow:established; flow:to_server;",
        "flow:no_frag; flow:established;",
        "fragbits;",
        "flags:;",
        "target:src_ip; target:dest_ip;",
        "bsize:4;",
        "content:\"a\"; bsize:4;",
        "pkt_data; content:\"a\"; bsize:4;",
    ] {
        assert!(!runs(TCP, wrong), "{wrong}");
    }
}

#[test]
fn a_content_and_its_place_are_said_once_and_whole() {
    for wrong in [
        "content:\"a\",nocase;",
        "content:\"a\"x;",
        "content:\"a;",
        "content:\"a\"b\";",
        "content:!!\"a\";",
        "content:\"a\u{fffd}\";",
        "content:\"a\u{1}\";",
        "uricontent:\"a\",nocase;",
        "content:\"a\"; depth:2; depth:3;",
        "content:\"a\"; offset:2; offset:3;",
        "content:\"a\"; distance:2; distance:3;",
        "content:\"a\"; within:2; within:3;",
        "content:\"a\"; nocase; nocase;",
        "content:\"a\"; nocase:1;",
        "content:\"a\"; startswith; startswith;",
        "content:\"a\"; startswith; depth:3;",
        "content:\"a\"; depth:3; startswith;",
        "content:\"a\"; depth:3; http_uri; depth:4;",
        "content:\"b\"; content:\"a\"; distance:1; depth:3;",
    ] {
        assert!(!runs(TCP, wrong), "{wrong}");
    }
}

#[test]
fn what_suricata_takes_runs() {
    for right in [
        "flow:Established,TO_SERVER;",
        "flow:to_server; flow:established;",
        "target:src_ip; target:src_ip;",
        "priority:256;",
        "tls_store:a;",
        "msg:\"caf\u{fffd}\";",
        "content:! \"a\\\"b\"; content:\"caf\u{e9}\"; endswith; endswith;",
        "content:\"a\"; depth:3; offset:1; content:\"b\"; distance:1; within:3;",
        "tag:session; tag:host,5,seconds,src; noalert; noalert;",
        // Behind an application's buffer the last one counts.
        "http.uri; content:\"a\"; threshold:type limit,track by_src,count 1,seconds 5; \
         threshold:type limit,track by_src,count 1,seconds 5;",
    ] {
        assert!(runs(TCP, right), "{right}");
    }
    for action in ["Alert", "DROP", "Pass", "RejectBoth", "drop:packet", "DROP:flow", "pass:flow"] {
        assert!(runs(&format!("{action} tcp any any -> any any"), ""), "{action}");
    }
}

#[test]
fn only_what_decides_about_packets_says_how_far_it_goes() {
    for action in ["alert:flow", "alert:packet", "config:flow", "drop:Flow", "drop:tx", "drop:"] {
        assert!(!runs(&format!("{action} tcp any any -> any any"), ""), "{action}");
    }
}

/// Suricata takes these; here they would mean something else, and are refused: hooks at which
/// rules match twice, bits that are nobody's and that no rule finds set.
#[test]
fn what_would_mean_something_else_is_refused() {
    for hook in ["pre_flow", "pre_stream"] {
        assert!(!runs(&format!("alert tcp:{hook} any any -> any any"), ""), "{hook}");
    }
    assert!(!runs(TCP, "xbits:set,a;"));
}

#[test]
fn a_rule_asks_of_packets_what_its_protocol_has() {
    for rule in [
        "tcp any any -> any any (ip_proto:6;",
        "tcp-stream any any -> any any (ttl:64; content:\"a\";",
        "tcp-stream any any -> any any (flow.pkts_toserver:1;",
        "tcp-pkt any any -> any any (flow:only_stream; content:\"a\";",
        "udp any any -> any any (tcp.hdr; content:\"a\";",
        "icmp any any -> any any (udp.hdr; content:\"a\";",
    ] {
        refused(&format!("alert {rule} sid:1;)"));
    }
    for rule in [
        "ip any any -> any any (ip_proto:6;",
        "ip any any -> any any (tcp.hdr; content:\"a\";",
        "ip4 any any -> any any (http.uri; content:\"a\";",
        "ip6 any any -> any any (dns.query; content:\"a\";",
    ] {
        assert!(load(&format!("alert {rule} sid:1;)")).1.refused.is_empty(), "{rule}");
    }
}

#[test]
fn a_buffer_that_is_named_is_asked_something() {
    const HTTP: &str = "alert http any any -> any any";
    for wrong in [
        "http.uri; http.uri; content:\"a\";",
        "http.uri; http.method; content:\"a\";",
        "http.method; content:\"a\"; http.uri;",
        "http.uri; pkt_data; content:\"a\";",
        "http.method; urilen:5;",
        "http.uri; absent:or_else;",
        "http.uri; absent; absent;",
        "http.uri; content:\"a\"; absent:or_else;",
        "pkt_data; absent;",
        "http.uri; absent:or_else; content:\"a\"; fast_pattern;",
        "http.header.raw; content:\"a\";",
    ] {
        assert!(!runs(HTTP, wrong), "{wrong}");
    }
    for right in [
        "pkt_data; pkt_data; content:\"a\";",
        "http.method; content:\"a\"; pkt_data;",
        "http.uri; absent:or_else; pcre:\"/a/\";",
        "http.uri; to_lowercase; absent;",
        "http.header.raw; content:\"a\"; flow:to_server;",
    ] {
        assert!(runs(HTTP, right), "{right}");
    }
}

#[test]
fn a_content_can_stand_in_what_is_made_of_its_buffer() {
    const HTTP: &str = "alert http any any -> any any";
    for wrong in [
        "http.uri; to_lowercase; content:\"A\";",
        "http.uri; to_lowercase; content:\"A\"; nocase;",
        "http.uri; to_lowercase; url_decode; content:\"A\";",
        "http.uri; to_uppercase; content:\"a\";",
        "http.uri; strip_whitespace; content:\"a b\";",
        "http.uri; compress_whitespace; content:\"a  b\";",
        "http.host; content:\"A\";",
        "http.host; content:!\"A\";",
        "http.host; content:\"a\"; nocase;",
    ] {
        assert!(!runs(HTTP, wrong), "{wrong}");
    }
    for right in [
        "http.uri; to_lowercase; content:!\"A\";",
        "http.uri; to_uppercase; content:\"A\"; nocase;",
        "http.uri; compress_whitespace; content:\"a b\";",
        "http.host; dotprefix; content:\"A\";",
    ] {
        assert!(runs(HTTP, right), "{right}");
    }
}

#[test]
fn who_looks_at_the_stream_alone_asks_nothing_of_packets() {
    for wrong in ["dsize:5;", "content:\"a\"; dsize:5;", "content:\"a\"; ttl:64;"] {
        assert!(!runs(TCP, &format!("flow:only_stream; {wrong}")), "{wrong}");
    }
    assert!(runs(TCP, "flow:no_stream; content:\"a\"; dsize:5;"));
    assert!(runs(TCP, "flow:only_stream; content:\"a\"; stream_size:client,>,5;"));
}

/// As Suricata 8.0.7 loads them.
#[test]
fn what_counts_and_what_follows_something_must_fit() {
    const MATH: &str = "byte_math:bytes 1,offset 0,oper +,rvalue 1,result a,relative;";
    let math = |before: &str| format!("{before} {MATH}");
    for good in [
        "detection_filter:track by_flow,count 2,seconds 60;",
        "detection_filter:seconds 60,count 2,track by_dst;",
        "threshold:type limit,track by_both,count 0,seconds 0;",
        "threshold:type backoff,track by_flow,count 2,multiplier 3;",
        "threshold:type limit,count 1,seconds 120,track by_src reference:url,example.org/a;",
        "threshold:type limit,track by_src,count 1,seconds 120 foo;",
        "content:\"x\"; pcre:\"/a/R\";",
        "http.uri; pcre:\"/a/R\";",
        "pcre:\"/b/U\"; pcre:\"/a/RU\";",
        &math(""),
        &math("byte_jump:1,0;"),
        &math("http.uri; content:!\"b\";"),
        &math("http.uri; pcre:\"/b/\";"),
        &math("http.uri; content:\"b\"; http.method; content:\"c\"; http.uri;"),
    ] {
        assert!(runs(TCP, good), "{good}");
    }
    for wrong in [
        "detection_filter:track by_both,count 2,seconds 60;",
        "detection_filter:track by_rule,count 2,seconds 60;",
        "detection_filter:track by_src,count 0,seconds 60;",
        "detection_filter:track by_src,count 2,seconds 0;",
        "threshold:type limit,track by_src,count 2,multiplier 3,seconds 6;",
        "threshold:type backoff,track by_src,count 2,multiplier 3;",
        "threshold:type backoff,track by_flow,count 2,multiplier 1;",
        "threshold:type backoff,track by_flow,count 2,seconds 60;",
        "byte_jump:1,0; pcre:\"/a/R\";",
        "content:\"x\"; http_uri; pcre:\"/a/R\";",
        "content:\"x\"; pcre:\"/a/RU\";",
        &math("http.uri;"),
        &math("content:\"b\"; http.uri; byte_jump:1,0;"),
        &math("base64_decode; base64_data;"),
    ] {
        assert!(!runs(TCP, wrong), "{wrong}");
    }
}

#[test]
fn what_is_replaced_is_as_long_and_stands_in_the_payload_of_packets() {
    for right in [
        "content:\"abc\"; replace:\"x|00|y\";",
        "content:\"abc\"; nocase; replace:\"xyz\"; offset:3;",
        "pkt_data; content:\"abc\"; replace:\"xyz\";",
        "flow:established,to_server; content:\"a\"; content:\"b\"; distance:1; replace:\"c\";",
    ] {
        assert!(runs(TCP, right), "{right}");
    }
    for wrong in [
        "replace:\"abc\";",
        "content:\"abc\"; replace:\"ab\";",
        "content:\"abc\"; replace:abc;",
        "content:\"abc\"; replace:!\"xyz\";",
        "content:!\"abc\"; replace:\"xyz\";",
        "http.uri; content:\"abc\"; replace:\"xyz\";",
        "http.uri; content:\"abc\"; pkt_data; content:\"abc\"; replace:\"xyz\";",
        "flow:only_stream; content:\"abc\"; replace:\"xyz\";",
    ] {
        assert!(!runs(TCP, wrong), "{wrong}");
    }
    let abc = "content:\"abc\"; replace:\"xyz\";";
    for (protocol, may) in [("udp", true), ("ip", true), ("http", true), ("tcp-pkt", true)]
        .into_iter()
        .chain([("tcp-stream", false), ("icmp", false), ("rdma", false)])
    {
        assert_eq!(runs(&format!("alert {protocol} any any -> any any"), abc), may, "{protocol}");
    }
}

#[test]
fn a_rule_about_the_stream_asks_for_what_is_said_and_for_nothing_of_packets() {
    const STREAM: &str = "alert tcp-stream any any -> any any";
    for right in [
        "http.uri; content:\"a\";",
        "http.uri; content:\"a\"; pkt_data; content:\"b\";",
        "smb.share; content:\"a\";",
        "app-layer-event:http.missing_host_header;",
        "urilen:5;",
        "ssl_state:client_hello;",
        "app-layer-protocol:http;",
        "stream-event:est_invalid_ack;",
        "tcpv4-csum:invalid;",
        "content:\"a\"; stream_size:client,>,5;",
    ] {
        assert!(runs(STREAM, right), "{right}");
    }
    for wrong in [
        "itype:8;",
        "content:\"a\"; itype:8;",
        "icmp_id:8;",
        "ttl:8;",
        "sameip;",
        "rpc:100000,*,*;",
        "tcp.mss:100;",
        "tcp.wscale:1;",
        "tcp.hdr; content:\"a\";",
        "flow.pkts:toserver,>3;",
        "http.uri; content:\"a\"; ttl:8;",
    ] {
        assert!(!runs(STREAM, wrong), "{wrong}");
        assert!(!runs(TCP, &format!("flow:only_stream; {wrong}")), "{wrong}");
    }
}

#[test]
fn a_payload_has_room_for_what_must_not_be_in_it() {
    const UDP: &str = "alert udp any any -> any any";
    for wrong in [
        "content:\"abcde\"; dsize:4;",
        "content:!\"abcde\"; dsize:4;",
        "content:!\"abcde\"; dsize:<4;",
        "content:!\"abcde\"; dsize:2<>4;",
        "content:!\"abcde\"; offset:1; dsize:5;",
    ] {
        assert!(!runs(UDP, wrong), "{wrong}");
    }
    assert!(runs(UDP, "content:!\"abcd\"; dsize:4;"));
    assert!(runs("alert dns any any -> any any", "dns.query; bsize:4; content:!\"abcde\";"));
}

#[test]
fn a_stream_as_a_frame_is_asked_for_contents_alone() {
    for (header, right) in [
        ("alert tls any any -> any any", "frame:stream; content:\"a\";"),
        (TCP, "frame:tls.stream; content:\"a\";"),
        ("alert http1 any any -> any any", "frame:http1.stream; content:\"a\"; depth:4;"),
        ("alert ftp any any -> any any", "frame:ftp.stream; pcre:\"/a/\";"),
        ("alert dns any any -> any any", "frame:dns.stream; content:\"a\";"),
    ] {
        assert!(runs(header, right), "{right}");
    }
    for (header, wrong) in [
        (TCP, "frame:stream; content:\"a\";"),
        (TCP, "frame:tcp.stream; content:\"a\";"),
        (TCP, "frame:tls.stream;"),
        (TCP, "frame:tls.stream; content:\"a\"; tls.sni; content:\"b\";"),
        (TCP, "content:\"b\"; frame:tls.stream; content:\"a\";"),
        ("alert udp any any -> any any", "frame:dns.stream; content:\"a\";"),
        ("alert smb any any -> any any", "frame:tls.stream; content:\"a\";"),
    ] {
        assert!(!runs(header, wrong), "{wrong}");
    }
}

#[test]
fn forms_that_suricata_takes_and_refuses() {
    let right = [
        "content:\"a\"; isdataat:+5,relative;",
        "byte_math:bytes 1, offset 0, oper /, rvalue 0, result r;",
        "flowint:name,isset,1;",
        "pcre:\"!/GET/\";",
        "http.response_body; pcre:\"/a/Q\";",
        "http.uri; pcre:\"/a/U\";",
        "tos:\"5\";",
        "dns.query; content:\"a\"; stream_size:client,>,3;",
        "noalert; alert;",
    ];
    let wrong = [
        "http.uri; content:\"a\"; ttl:5;",
        "http.uri; content:\"a\"; tcp.hdr; content:\"b\";",
        "app-layer-event:http.missing_host_header; flags:S;",
        "http.host; pcre:\"/a/U\";",
        "pcre:\"/a/UH\";",
        "ttl:\"5\";",
        "metadata:\"a b\";",
        "byte_jump:2,0,from_beginning,from_end;",
        "xbits:noalert,name,track ip_src;",
        "http.uri; pcrexform:\"(a)(b)\"; content:\"b\";",
    ];
    for option in right {
        assert!(runs("alert ip any any -> any any", option), "{option}");
    }
    for option in wrong {
        assert!(!runs("alert ip any any -> any any", option), "{option}");
    }
}

#[test]
fn what_no_packet_of_the_rules_protocol_is_part_of_is_not_watched_for() {
    for (protocol, right, wrong) in [
        ("tcp", "flood:syn", "flood:icmp"),
        ("icmp", "flood:icmp", "flood:rdma_read"),
        ("udp", "flood:dns", "flood:half_open"),
        ("rdma", "flood:cnp", "flood:syn"),
        ("rdma", "rdma.event:key_guessing", "flood:udp"),
        ("tcp", "flood:new_flow", "rdma.event:key_guessing"),
        ("ip", "rdma.event:key_guessing", "flood:nothing"),
    ] {
        let rule = |what: &str| format!("drop {protocol} any any -> any any ({what}; sid:1;)");
        assert_eq!(load(&rule(right)).1.runnable, 1, "{protocol}: {right}");
        assert_eq!(load(&rule(wrong)).1.runnable, 0, "{protocol}: {wrong}");
    }
}
