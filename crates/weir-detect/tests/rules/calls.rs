//! Numbers in the byte order of DCE/RPC's calls (`dce`). Expectations are what Suricata 8.0.7
//! alerts on with the same packets, whose numbers have their lowest byte first; with the others it
//! gives up at the first.

use crate::bench::{Bench, refused};

/// A message of that kind.
fn message(kind: u8, is_little: bool, body: &[u8]) -> Vec<u8> {
    let number = |it: u16| if is_little { it.to_le_bytes() } else { it.to_be_bytes() };
    let order = if is_little { 0x10 } else { 0 };
    let length = number(16 + body.len() as u16);
    [&[5, 0, kind, 3, order, 0, 0, 0], &length[..], &[0; 6], body].concat()
}

/// A rule of these options against a call with arguments `MK 01 02 abcdefgh`: how often it alerts.
fn alerts(options: &str, is_little: bool) -> usize {
    let mut bench = Bench::new(&format!("alert tcp any any -> any any ({options} sid:1;)"));
    bench.server_port = 135;
    bench.connect();
    let bind = [&[0; 8], &[0; 4][..]].concat();
    bench.client(&message(11, is_little, &bind));
    bench.server(&message(12, is_little, &[0; 16]));
    bench.alerted();
    bench.client(&message(0, is_little, b"\0\0\0\0\0\0\0\0MK\x01\x02abcdefgh"));
    bench.alerted().len()
}

#[test]
fn arguments_say_themselves_which_byte_comes_first() {
    for (options, of_little, of_big) in [
        ("dce_stub_data; byte_test:2,=,0x0201,2,dce;", 1, 0),
        ("dce_stub_data; byte_test:2,=,0x0102,2,dce;", 0, 1),
        ("dce_stub_data; content:\"MK\"; byte_test:2,=,0x0201,0,relative,dce;", 1, 0),
        ("dce_stub_data; byte_extract:2,2,v,dce; byte_test:2,=,v,2,little;", 1, 0),
        ("dce_stub_data; byte_extract:2,2,v,dce; byte_test:2,=,v,2;", 0, 1),
        ("dce_stub_data; byte_jump:1,3,dce; content:\"c\"; within:1;", 1, 1),
    ] {
        assert_eq!(alerts(options, true), of_little, "{options}");
        assert_eq!(alerts(options, false), of_big, "{options}");
    }
}

#[test]
fn elsewhere_the_highest_byte_comes_first_and_the_rule_is_about_calls() {
    for (options, found) in [
        ("content:\"MK\"; byte_test:2,=,0x0102,0,relative,dce;", 1),
        ("content:\"MK\"; byte_test:2,=,0x0201,0,relative,dce;", 0),
        (
            "dce_stub_data; content:\"MK\"; pkt_data; content:\"MK\"; \
             byte_test:2,=,0x0102,0,relative,dce;",
            1,
        ),
    ] {
        assert_eq!(alerts(options, true), found, "{options}");
    }
    let rule = |options| format!("alert tcp any any -> any any ({options} sid:1;)");
    for (options, found) in [
        ("http.uri; byte_test:2,=,0x2f65,0,dce;", 1),
        ("content:\"GET\"; byte_test:1,=,0x20,0,relative,dce;", 0),
    ] {
        let mut bench = Bench::new(&rule(options));
        bench.connect();
        bench.client(b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(bench.alerted().len(), found, "{options}");
    }
}

#[test]
fn who_asks_for_two_orders_or_is_about_something_else_is_refused() {
    for (protocol, options) in [
        ("tcp", "byte_test:2,=,1,0,dce,big;"),
        ("tcp", "byte_test:2,=,1,0,little,dce;"),
        ("tcp", "byte_jump:2,0,dce,string,dec;"),
        ("tcp", "byte_extract:2,0,a,dce,little;"),
        ("tcp", "byte_math:bytes 2,offset 0,oper +,rvalue 1,result a,endian dce;"),
        ("tcp", "http.uri; byte_extract:2,0,a,dce;"),
        ("http", "byte_test:2,=,1,0,dce;"),
        ("http", "content:\"x\"; byte_jump:2,0,relative,dce;"),
    ] {
        let rule = format!("alert {protocol} any any -> any any ({options} sid:1;)");
        assert!(refused(&rule).starts_with("byte_"), "{rule}");
    }
}
