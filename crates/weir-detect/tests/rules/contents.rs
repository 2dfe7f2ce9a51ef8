//! Contents and what stands beside them, over the payload of one datagram.

use weir_detect::headers::NetworkFields;
use weir_detect::hosts::System;
use weir_detect::{Decision, LoadOptions, RuleIndex, RuleSet, RuleSource, Variables};

use crate::bench::{Bench, refused};

/// Whether a rule with `options` matches a datagram with `payload`.
fn matches(options: &str, payload: &[u8]) -> bool {
    let rule = format!("alert udp any any -> any any ({options} sid:1;)");
    let mut bench = Bench::new(&rule);
    bench.udp(payload);
    bench.alerted() == [1]
}

#[track_caller]
fn expect(options: &str, hits: &[&[u8]], misses: &[&[u8]]) {
    for payload in hits {
        assert!(matches(options, payload), "{options} on {}", payload.escape_ascii());
    }
    for payload in misses {
        assert!(!matches(options, payload), "{options} on {}", payload.escape_ascii());
    }
}

#[test]
fn a_content_is_found_anywhere_and_in_its_case() {
    expect(r#"content:"abc";"#, &[b"abc", b"xxabcxx"], &[b"ab", b"ABC", b""]);
    expect(r#"content:"aBc"; nocase;"#, &[b"ABC", b"xabc"], &[b"ab"]);
    expect(r#"content:"|00 01|a|ff|";"#, &[b"\x00\x01a\xff"], &[b"\x00\x01A\xff"]);
    expect(r#"content:!"abc"; content:"x";"#, &[b"x"], &[b"xabc"]);
    expect(r#"content:!"abc";"#, &[b"x"], &[b"xabc"]);
}

#[test]
fn offset_and_depth_bound_where_a_content_lies() {
    expect(r#"content:"abc"; depth:3;"#, &[b"abcx"], &[b"xabc"]);
    expect(r#"content:"abc"; offset:2;"#, &[b"xxabc", b"xxxabc"], &[b"xabc"]);
    expect(r#"content:"abc"; offset:2; depth:4;"#, &[b"xxabc", b"xxxabc"], &[b"xxxxabc", b"abc"]);
    expect(r#"content:"abc"; depth:4; offset:2;"#, &[b"xxabc", b"xxxabc"], &[b"xxxxabc", b"abc"]);
    expect(r#"content:"abc"; startswith;"#, &[b"abcx"], &[b"xabc"]);
    expect(r#"content:"abc"; endswith;"#, &[b"abc", b"xabc", b"abcabc"], &[b"abcx"]);
    expect(r#"content:!"abc"; depth:3; content:"x";"#, &[b"xabc"], &[b"abcx"]);
}

#[test]
fn distance_and_within_count_from_the_last_match() {
    expect(r#"content:"a"; content:"b"; distance:0;"#, &[b"ab", b"axxb"], &[b"ba"]);
    expect(r#"content:"a"; content:"b"; distance:2;"#, &[b"axxb"], &[b"axb"]);
    expect(r#"content:"a"; content:"b"; within:1;"#, &[b"ab", b"axab"], &[b"axb"]);
    expect(r#"content:"a"; content:"b"; distance:1; within:2;"#, &[b"axb", b"axxb"], &[b"ab"]);
    expect(r#"content:"bcd"; content:"bc"; distance:-3; within:2;"#, &[b"abcd"], &[b"bcxd"]);
    expect(r#"content:"a"; content:!"b"; within:1;"#, &[b"ac", b"a"], &[b"ab"]);
}

#[test]
fn another_occurrence_is_tried_when_what_follows_does_not_fit() {
    expect(
        r#"content:"a"; content:"b"; within:1; content:"c"; within:1;"#,
        &[b"abxabc"],
        &[b"abab"],
    );
    expect(r#"pcre:"/a./"; content:"c"; within:1;"#, &[b"axbaxc"], &[b"axbaxb"]);
}

#[test]
fn data_is_there_or_not() {
    expect(r#"content:"a"; isdataat:2,relative;"#, &[b"axx"], &[b"ax"]);
    expect(r#"content:"a"; isdataat:!1,relative;"#, &[b"xa"], &[b"ax"]);
    expect(r#"isdataat:3;"#, &[b"1234"], &[b"123"]);
    expect(r#"dsize:3;"#, &[b"123"], &[b"12", b"1234"]);
    expect(r#"dsize:>3;"#, &[b"1234"], &[b"123"]);
    expect(r#"dsize:2<>5;"#, &[b"123", b"1234"], &[b"12", b"12345"]);
    expect(r#"dsize:2-5;"#, &[b"123", b"1234"], &[b"12", b"12345"]);
    expect(r#"dsize:!2-5;"#, &[b"12", b"12345", b""], &[b"123", b"1234"]);
    expect(r#"dsize:&6=2;"#, &[b"12", b"123"], &[b"1", b"1234"]);
    expect(r#"dsize:!3;"#, &[b"12"], &[b"123", b""]);
    expect(r#"dsize:!2<>4;"#, &[b"12", b""], &[b"123"]);
}

#[test]
fn numbers_in_the_payload_are_tested() {
    expect(r#"byte_test:2,=,0x102,0;"#, &[b"\x01\x02"], &[b"\x02\x01", b"\x01"]);
    expect(r#"byte_test:2,=,0x102,0,little;"#, &[b"\x02\x01"], &[b"\x01\x02"]);
    expect(r#"byte_test:1,>,5,1;"#, &[b"x\x06"], &[b"x\x05"]);
    expect(r#"byte_test:1,!&,1,0;"#, &[b"\x02"], &[b"\x03"]);
    expect(r#"content:"a"; byte_test:1,<,5,0,relative;"#, &[b"a\x04"], &[b"a\x05", b"a"]);
    expect(r#"byte_test:3,=,123,0,string,dec;"#, &[b"123", b" 123"[1..].into()], &[b"124", b"abc"]);
    expect(r#"byte_test:0,=,123,1,string,dec;"#, &[b"x123", b"x123y"], &[b"x1234", b"xa", b"x"]);
    expect(r#"byte_test:4,=,0x1f,0,string,hex;"#, &[b"0x1f", b"001f"], &[b"0x1e"]);
    expect(r#"byte_test:1,=,3,0,bitmask 0xf0;"#, &[b"\x3f"], &[b"\x4f"]);
}

#[test]
fn numbers_in_the_payload_lead_on() {
    expect(r#"byte_jump:1,0,relative; content:"z"; within:1;"#, &[b"\x02xxz"], &[b"\x01xxz"]);
    expect(r#"byte_jump:1,0,from_beginning; content:"z"; within:1;"#, &[b"\x02xz"], &[b"\x01xz"]);
    expect(r#"byte_jump:1,0,align; content:"z"; within:1;"#, &[b"\x01xxxxz"], &[b"\x01xz"]);
    expect(
        r#"byte_jump:1,0,multiplier 2,post_offset -1; content:"z"; within:1;"#,
        &[b"\x01xz"],
        &[b"\x02xz"],
    );
    expect(r#"byte_jump:1,0; isdataat:0,relative;"#, &[b"\x01xz"], &[b"\xffxz"]);
}

/// As Suricata 8.0.7 reads them, with `strtoull`.
#[test]
fn digits_say_their_base_and_sign() {
    expect("byte_test:4,=,31,0,string;", &[b"0x1F", b"0X1f", b"  31"], &[b"001F"]);
    expect("byte_test:3,=,8,0,string;", &[b"010", b"8  "], &[b"10 "]);
    expect("byte_test:3,=,10,0,string,dec;", &[b"010", b"+10", b"\x0b10"], &[b"0x1"]);
    expect("byte_test:2,=,18446744073709551615,0,string;", &[b"-1"], &[b"-2", b"- "]);
    expect("byte_test:2,<,12,0,string,hex;", &[b"0x1F", b"0xg"], &[b"1F", b"zz"]);
    expect("byte_test:20,>,0,0,string;", &[b"18446744073709551615"], &[b"18446744073709551616"]);
}

/// As Suricata 8.0.7 has them.
#[test]
fn places_are_rounded_up_and_a_jump_of_no_bytes_may_begin_behind_the_last() {
    let two = r#"byte_extract:1,0,v,align 2; content:"b"; offset:v; depth:1;"#;
    expect(two, &[b"\x05aaaaab", b"\x02ab"], &[b"\x05aaaab"]);
    let four = r#"byte_extract:1,0,v,align 4; content:"b"; offset:v; depth:1;"#;
    expect(four, &[b"\x03aaab", b"\x05aaaaaaab"], &[b"\x02ab"]);
    let back = r#"content:"c"; byte_jump:0,0,relative,post_offset -3; content:"b"; within:2;"#;
    expect(back, &[b"abc", b"abcd"], &[b"aac"]);
    expect("byte_jump:0,3;", &[b"abc"], &[b"ab"]);
}

/// As Suricata 8.0.7 has them.
#[test]
fn numbers_of_64_bits_are_whole_but_as_places() {
    let (top, beyond) = (*b"\xff\xff\xff\xff\xff\xff\xff\xffa", *b"\0\0\0\x01\0\0\0\0a");
    expect("byte_test:8,=,18446744073709551615,0;", &[&top], &[&beyond]);
    expect("byte_extract:8,0,v; isdataat:!v;", &[&top, &beyond], &[b"\0\0\0\0\0\0\0\0a"]);
    expect(r#"byte_extract:8,0,v; content:"a"; offset:v;"#, &[&beyond], &[&top]);
    expect(r#"byte_extract:8,0,v; content:"a"; depth:v;"#, &[&top], &[&beyond]);
}

/// As Suricata 8.0.7 reckons.
#[test]
fn a_bit_mask_of_byte_math_is_for_the_result() {
    let math = |what: &str| format!("byte_math:bytes 1, offset 0, {what}, result r; ");
    let one = |what| math(what) + "byte_test:1,=,r,1;";
    expect(&one("oper +, rvalue 1, bitmask 0xf0"), &[b"\x0f\x01", b"\x1f\x02"], &[b"\x10\x02"]);
    expect(&one("oper <<, rvalue 64"), &[b"\x05\0"], &[b"\x05\x05"]);
    expect(&one("oper >>, rvalue 65"), &[b"\x05\0"], &[b"\x05\x05"]);
    let below = math("oper -, rvalue 2") + "byte_test:1,<,r,0;";
    expect(&below, &[b"\x01"], &[b"\x03"]);
    let by_name = "byte_extract:1,0,n; byte_math:bytes n, offset 1, oper +, rvalue 0, result r; \
                   byte_test:1,>=,r,1;";
    expect(by_name, &[b"\x01\x01"], &[b"\0\x01", b"\x05\0\0\0\0\0"]);
}

/// As in Suricata 8.0.7.
#[test]
fn what_base64_decode_makes_is_looked_at_behind_base64_data_alone() {
    let data = r#"base64_decode; base64_data; content:"abcdef";"#;
    expect(data, &[b"YWJjZGVm"], &[b"YW\r\n JjZGVm", b"YWJj\0ZGVm", b"YWJjZ"]);
    expect(r#"base64_decode:bytes 5; content:"Y";"#, &[], &[b"YWJjZGVm"]);
}

/// As Suricata 8.0.7 has it.
#[test]
fn a_dollar_of_pcre_is_a_line_before_the_end_too_unless_it_is_the_end_alone() {
    expect(r#"pcre:"/a$/";"#, &[b"xa", b"xa\n"], &[b"a\nb"]);
    expect(r#"pcre:"/a$/E";"#, &[b"xa"], &[b"xa\n", b"a\nb"]);
    expect(r#"pcre:"/a$/mE";"#, &[b"xa", b"xa\n", b"a\nb"], &[b"ab"]);
}

/// What Suricata 8.0.7 refuses, and what it takes.
#[test]
fn places_and_factors_have_bounds() {
    let refuses = |options: &str| {
        let rule = format!("alert udp any any -> any any ({options}; sid:1;)");
        !crate::bench::load(&rule).1.refused.is_empty()
    };
    let content = r#"content:"a"; content:"b"; "#;
    for (options, most) in [("offset", 65535), ("depth", 65535), ("distance", 1 << 20)] {
        assert!(!refuses(&format!("{content}{options}:{most}")), "{options}:{most}");
        assert!(refuses(&format!("{content}{options}:{}", most + 1)), "{options}:{most} + 1");
    }
    for wrong in [
        r#"content:"a"; offset:-1"#,
        r#"content:"a"; content:"b"; within:1048577"#,
        "isdataat:-1",
        "isdataat:65536",
        "isdataat:0x5",
        "byte_jump:4,65536",
        "byte_jump:4,0,multiplier 0",
        "byte_jump:4,0,post_offset 65536",
        "byte_extract:4,32768,v",
        "byte_extract:4,0,v,multiplier 65536",
        "byte_extract:4,0,v,align",
        "byte_extract:21,0,v,string",
        "byte_test:4,=,1,0,hex",
        "byte_test:4,=,1,0,bitmask 0x1ffffffff",
        "byte_math:bytes 4, offset 0, oper +, rvalue 1, result r, little",
        "byte_math:bytes 4, oper +, rvalue 1, result r",
        "byte_math:bytes 4, offset 0, oper +, rvalue 4294967296, result r",
    ] {
        assert!(refuses(wrong), "{wrong}");
    }
    for right in [
        "isdataat:65535",
        "byte_jump:4,-65535,multiplier 65535",
        "byte_extract:0,0,v",
        "byte_math:bytes 4, offset 0, oper +, rvalue 1, result r, endian little",
        r#"content:"abc"; fast_pattern:3,0"#,
        r#"pcre:" /a/E""#,
        r#"pcre:"/a/,flow:x""#,
        r#"Content:"abc"; NOCASE; Dsize:1kb"#,
    ] {
        assert!(!refuses(right), "{right}");
    }
}

#[test]
fn what_was_read_is_used_by_name() {
    expect(r#"byte_extract:1,0,n; content:"z"; offset:n;"#, &[b"\x02xz"], &[b"\x03xz"]);
    expect(r#"byte_extract:1,0,n; byte_test:1,=,n,1;"#, &[b"\x07\x07"], &[b"\x07\x08"]);
    expect(r#"byte_extract:1,0,n; content:"z"; distance:n; within:1;"#, &[b"\x01xz"], &[b"\x02xz"]);
    expect(
        r#"byte_math:bytes 1, offset 0, oper +, rvalue 2, result n; byte_test:1,=,n,1;"#,
        &[b"\x03\x05"],
        &[b"\x03\x04"],
    );
    assert_eq!(
        refused(r#"alert udp any any -> any any (content:"a"; offset:n; sid:1;)"#),
        "offset"
    );
}

#[test]
fn expressions_know_look_around_back_references_and_limits() {
    expect(r#"pcre:"/^a(b+)c\1$/";"#, &[b"abbcbb"], &[b"abbcb"]);
    expect(r#"pcre:"/a(?!b)/i";"#, &[b"Ac"], &[b"Ab"]);
    expect(r#"content:"a"; pcre:"/^b/R";"#, &[b"ab"], &[b"acb"]);
    expect(r#"pcre:!"/b/"; content:"a";"#, &[b"a"], &[b"ab"]);
    for pcre in [r#"pcre:"/^(a+)+\d$/""#, r#"pcre:!"/^(a+)+\d$/""#] {
        let mut bench = Bench::new(&format!("alert udp any any -> any any ({pcre}; sid:1;)"));
        bench.udp(&[b'a'; 64]);
        assert_eq!(bench.alerted(), [], "{pcre}: nobody knows");
        assert!(bench.detector.counters().pcre_limits > 0);
    }
}

#[test]
fn encoded_text_is_looked_at_decoded() {
    expect(
        r#"content:"x="; base64_decode:bytes 8, relative; base64_data; content:"hello"; depth:5;"#,
        // It is decoded behind the first content alone, as in Suricata 8.0.7.
        &[b"x=aGVsbG8="],
        &[b"x=aGVsbG4=", b"x=, x=aGVsbG8="],
    );
}

/// As in Suricata 8.0.7, of the address of a request and of its body alike.
#[test]
fn base64_behind_a_content_is_that_of_the_buffer_in_which_the_content_stands() {
    let data = "base64_data; content:\"hello\";";
    let mut bench = Bench::new(&format!(
        "alert tcp any any -> any any (content:\"u=\"; http_uri; \
         base64_decode:bytes 8, offset 0, relative; {data} sid:1;)\n\
         alert tcp any any -> any any (content:\"b=\"; http_client_body; \
         base64_decode:bytes 8, offset 2; {data} sid:2;)\n\
         alert tcp any any -> any any (content:\"none=\"; http_client_body; \
         base64_decode:bytes 8; {data} sid:3;)",
    ));
    bench.connect();
    bench.client(b"POST /?u=aGVsbG8= HTTP/1.1\r\nContent-Length: 10\r\n\r\nb=aGVsbG8=");
    bench.client(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nnone=");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
}

#[test]
fn drop_stops_the_packet_and_pass_stops_the_rules() {
    let mut bench = Bench::new(
        "drop udp any any -> any any (content:\"bad\"; sid:1;)\n\
         pass udp any any -> any any (content:\"good\"; sid:2;)\n\
         alert udp any any -> any any (content:\"a\"; sid:3;)",
    );
    assert!(matches!(bench.udp(b"bad"), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [1, 3]);
    assert_eq!(bench.udp(b"bad but good a"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
    assert_eq!(bench.udp(b"a"), Decision::Pass);
    assert_eq!(bench.alerted(), [3]);
}

#[test]
fn a_rule_that_is_tried_tells_what_it_would_drop_and_hides_no_other() {
    let rules = "drop udp any any -> any any (content:\"bad\"; sid:1;)\n\
                 drop udp any any -> any any (content:\"worse\"; sid:2;)\n\
                 pass udp any any -> any any (content:\"good\"; sid:3;)";
    let options = LoadOptions { would_drop: [1].into(), ..LoadOptions::default() };
    let mut bench = Bench::loaded(rules, &options);
    assert_eq!(bench.udp(b"bad"), Decision::Pass);
    assert_eq!(bench.detector.would_drop(), [RuleIndex(1)]);
    assert_eq!(bench.alerted(), [1]);
    assert!(matches!(bench.udp(b"bad and worse"), Decision::Drop { rule: RuleIndex(2) }));
    assert_eq!(bench.alerted(), [1, 2]);
    let mut bench = Bench::loaded(rules, &options);
    assert_eq!(bench.udp(b"bad but good"), Decision::Pass);
    assert_eq!(bench.alerted(), []);
    assert_eq!(bench.detector.would_drop(), []);
    // Nothing of it is left where no rule looks at the next packet.
    bench.udp(b"bad");
    assert_eq!(bench.detector.would_drop(), [RuleIndex(1)]);
    bench.detector.swap(Bench::new("").detector.rules().clone()).unwrap();
    assert_eq!(bench.detector.would_drop(), []);
}

#[test]
fn a_rule_that_is_disabled_is_as_one_in_a_comment() {
    let rules = "alert udp any any -> any any (content:\"bad\"; sid:1;)\n\
                 alert udp any any -> any any (content:\"bad\"; sid:2;)\n\
                 alert udp any any -> any any (msg:\"sid:2;\"; content:\"bad\"; nothing; sid:3;)\n\
                 alert dns any any -> any any (dns.query; dataset:set,one,type md5; sid:5;)\n\
                 alert dns any any -> any any (dns.query; dataset:set,one,type string; sid:6;)";
    let options = LoadOptions { disabled: [1, 3, 4, 5].into(), ..LoadOptions::default() };
    let source = RuleSource { name: "a.rules".to_owned(), text: rules.to_owned() };
    let loaded = RuleSet::load(&[source], &Variables::default(), &options).unwrap();
    let report = loaded.report;
    assert_eq!((report.rules, report.enabled, report.runnable), (5, 2, 2));
    assert!(report.refused.is_empty(), "{report:?}");
    assert_eq!(report.idle, ["disable: there is no rule 4"]);
    let mut bench = Bench::loaded(rules, &options);
    bench.udp(b"bad");
    assert_eq!(bench.alerted(), [2]);
}

#[test]
fn a_drop_without_an_alert_is_told_once_a_side() {
    let mut bench = Bench::new(
        "drop udp any any -> any any (content:\"bad\"; threshold:type limit, track by_src, \
         count 1, seconds 60; sid:1;)",
    );
    bench.udp(b"bad");
    assert_eq!((bench.alerted(), bench.detector.untold_drop()), (vec![1], None));
    bench.udp(b"bad");
    assert_eq!(bench.alerted(), []);
    assert_eq!(bench.detector.untold_drop(), None, "its side was told of by the alert");
    let mut bench = Bench::new("drop udp any any -> any any (content:\"bad\"; noalert; sid:1;)");
    bench.udp(b"bad");
    let drop = bench.detector.untold_drop().expect("it is told");
    assert_eq!(drop.reason, "rules", "{drop:?}");
    assert!(matches!(drop.headers.network, NetworkFields::Ipv4 { length: 31, .. }), "{drop:?}");
    bench.udp(b"bad");
    assert_eq!(bench.detector.untold_drop(), None);
}

#[test]
fn half_a_rule_never_runs() {
    for (rule, keyword) in [
        (r#"alert udp any any -> any any (content:"a"; no_such:1; sid:1;)"#, "no_such"),
        (r#"alert quux any any -> any any (content:"a"; sid:1;)"#, "protocol:quux"),
        (r#"alert udp any any -> any any (pcre:"/(/"; sid:1;)"#, "pcre"),
        (r#"alert udp $NOWHERE any -> any any (sid:1;)"#, "address"),
        (r#"alert udp any any -> any any (content:"a";)"#, "sid"),
        (r#"alert udp any any -> any any (nocase; sid:1;)"#, "nocase"),
        (r#"alert udp any any -> any any (content:"abc"; depth:2; sid:1;)"#, "content"),
    ] {
        assert_eq!(refused(rule), keyword, "{rule}");
    }
}

#[test]
fn of_rules_of_one_number_the_newest_revision_runs() {
    let mut bench = Bench::towards(
        "alert tcp any any -> any any (content:\"old\"; sid:1; rev:2;)\n\
         alert tcp any any -> any any (content:\"new\"; sid:1; rev:3;)\n\
         alert tcp any any -> any any (content:\"older\"; sid:1; rev:1;)",
        System::default(),
    );
    bench.connect();
    bench.client(b"old older");
    assert_eq!(bench.alerted(), []);
    bench.client(b" new");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn rules_that_no_message_can_match_are_refused() {
    for (options, keyword) in [
        ("http.uri; content:\"a\"; http.stat_code; content:\"200\";", "http.stat_code"),
        ("flow:to_client; http.uri; content:\"a\";", "http.uri"),
        ("http.stat_code; content:\"200\"; flow:established,to_server;", "http.stat_code"),
        ("http.uri; content:\"a\"; file.data:to_client; content:\"b\";", "file.data"),
        ("content:\"a\"; fast_pattern; content:\"b\"; fast_pattern;", "fast_pattern"),
        ("content:\"a\"; fast_pattern; http.uri; content:\"b\"; fast_pattern;", "fast_pattern"),
    ] {
        let rule = format!("alert http any any -> any any ({options} sid:1;)");
        assert_eq!(refused(&rule), keyword, "{options}");
    }
    let rule = "alert ftp any any -> any any (flow:to_client; ftp.command; content:\"a\"; sid:1;)";
    assert_eq!(refused(rule), "ftp.command");
}

#[test]
fn a_rule_about_a_request_and_its_answer_asks_something_of_both() {
    for (options, keyword) in [
        ("http.uri; content:\"a\";", "=>"),
        ("flow:to_client; http.uri; content:\"a\"; http.stat_code; content:\"200\";", "=>"),
        ("http.uri; content:\"a\"; file.data; content:\"b\";", "file.data"),
        ("http.uri; content:\"a\"; content:\"b\"; pkt_data; content:\"c\";", "pkt_data"),
        ("http.uri; content:\"a\"; http.stat_code; content:\"2\"; filesize:>1;", "=>"),
    ] {
        let rule = format!("alert http any any => any any ({options} sid:1;)");
        assert_eq!(refused(&rule), keyword, "{options}");
    }
    let rule = "alert dns any any => any any (dns.query; content:\"a\"; sid:1;)";
    assert_eq!(refused(rule), "=>");
}

#[test]
fn a_rule_of_ip_looks_into_whatever_is_carried() {
    let rules = "alert ip any any -> any any (content:\"evil\"; sid:1;)\n\
                 alert ipv4 any any -> any any (content:\"evil\"; sid:2;)\n\
                 alert ip any any -> any any (content:\"evil\"; depth:9; sid:3;)";
    let mut bench = Bench::new(rules);
    bench.udp(b"so evil");
    let mut udp = bench.alerted();
    udp.sort_unstable();
    assert_eq!(udp, [1, 2, 3]);
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"so ev");
    bench.client(b"il");
    let mut tcp = bench.alerted();
    tcp.sort_unstable();
    assert_eq!(tcp, [1, 2, 3]);
}

#[test]
fn another_occurrence_is_tried_for_a_content_that_follows_behind_other_steps() {
    for rule in [
        "content:\"ab\"; byte_test:1,>,0,0; content:\"c\"; within:1;",
        "content:\"ab\"; isdataat:3; content:\"c\"; within:1;",
        "content:\"ab\"; content:\"c\"; within:1;",
        "pcre:\"/ab/\"; isdataat:3; pcre:\"/^c/R\";",
    ] {
        let mut bench = Bench::new(&format!("alert udp any any -> any any ({rule} sid:1;)"));
        bench.udp(b"ab ab abc");
        assert_eq!(bench.alerted(), [1], "{rule}");
    }
}

#[test]
fn what_is_dropped_goes_on_once_its_rule_names_others() {
    let rule =
        |addresses: &str| format!("drop tcp {addresses} any -> any any (content:\"evil\"; sid:1;)");
    let mut bench = Bench::new(&rule("!192.0.2.77"));
    bench.connect();
    assert!(matches!(bench.client(b"evil"), Decision::Drop { .. }));
    let swap = |bench: &mut Bench, rule: &str| {
        bench.detector.swap(Bench::new(rule).detector.rules().clone()).unwrap();
    };
    swap(&mut bench, &rule("any"));
    assert!(matches!(bench.client(b"good"), Decision::Drop { .. }), "it names its sender still");
    swap(&mut bench, &rule("192.0.2.77"));
    assert_eq!(bench.client(b"good"), Decision::Pass);
}

#[test]
fn packets_of_encrypted_connections_have_no_payload_whatever_other_rules_there_are() {
    const BEGUN: &[u8] = b"SSH-2.0-a\r\n\0\0\0\x0c\x0a\x15\0\0\0\0\0\0\0\0\0\0";
    for other in ["", "alert tcp any any -> any any (content:\"never\"; sid:2;)"] {
        let mut bench = Bench::new(&format!(
            "alert tcp-pkt any any -> any any (content:\"evil\"; sid:1;)\n{other}"
        ));
        bench.connect();
        bench.client(BEGUN);
        bench.server(BEGUN);
        bench.client(b"evil");
        bench.server(b"evil");
        bench.client(b"evil");
        assert_eq!(bench.alerted(), [], "with `{other}`");
    }
}

/// Only the last bytes of so long a content are looked for with all others'.
#[test]
fn a_long_content_is_found_however_its_stream_is_cut() {
    let long = "0123456789".repeat(20);
    let rules = format!(
        "alert tcp any any -> any any (content:\"{long}\"; sid:1;)\n\
         alert tcp any any -> any any (content:\"{long}\"; depth:200; sid:2;)\n\
         alert http any any -> any any (file.data; content:\"{long}\"; sid:3;)\n\
         alert tcp any any -> any any (content:\"x{}\"; sid:4;)",
        &long[..199]
    );
    for step in [1, 7, 63, 64, 65, 199, 300] {
        let mut bench = Bench::new(&rules);
        bench.connect();
        for piece in long.as_bytes().chunks(step) {
            bench.client(piece);
        }
        let mut found = bench.alerted();
        found.sort_unstable();
        assert_eq!(found, [1, 2], "in pieces of {step}");
        let mut bench = Bench::new(&rules);
        bench.connect();
        bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{long}");
        for piece in answer.as_bytes().chunks(step) {
            bench.server(piece);
        }
        let mut found = bench.alerted();
        found.sort_unstable();
        assert_eq!(found, [1, 3], "in pieces of {step}");
    }
}
