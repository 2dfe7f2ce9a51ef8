//! What must hold for any input of the `streams` fuzz target: a byte for the server's port (its low
//! bit: 53, else 80), then pieces of one TCP connection. A piece is a byte whose bit 0 says who
//! sends and whose bits 1 to 3 where it begins, against the end of what its sender has sent; a
//! byte for its length; its bytes.

use std::sync::{Arc, OnceLock};

use weir_detect::{
    Alerts, Detector, FlowTable, Limits, LoadOptions, Packet, RuleSet, RuleSource, Variables,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

/// Sequence numbers wrap soon.
const BEGINNING: u32 = u32::MAX - 300;

/// A rule for every buffer, so that each is filled.
const RULES: &str = r#"
alert tcp any any -> any any (content:"evil"; sid:1;)
alert tcp any any -> any any (flow:established; content:"a"; depth:9; content:"b"; distance:1; sid:2;)
alert http any any -> any any (http.uri; content:"a"; sid:3;)
alert http any any -> any any (http.header; content:"a"; http.header_names; content:"a"; sid:4;)
alert http any any -> any any (http.cookie; content:"a"; http.host; content:"a"; sid:5;)
alert http any any -> any any (http.request_body; content:"a"; sid:6;)
alert http any any -> any any (file.data; content:"a"; content:"b"; distance:0; sid:7;)
alert http any any -> any any (http.start; content:"a"; http.request_line; pcre:"/a+b/"; sid:8;)
alert http any any -> any any (http.stat_code; content:"2"; http.response_line; content:"O"; sid:9;)
alert tls any any -> any any (tls.sni; content:"a"; sid:10;)
alert tls any any -> any any (tls.cert_subject; content:"a"; tls.cert_issuer; content:"a"; sid:11;)
alert tls any any -> any any (tls.certs; content:"a"; tls.cert_serial; content:"0"; sid:12;)
alert tls any any -> any any (ja3.hash; content:"a"; ja3.string; content:"7"; sid:13;)
alert tls any any -> any any (ja3s.hash; content:"a"; tls.cert_fingerprint; content:"a"; sid:14;)
alert dns any any -> any any (dns.query; to_sha256; content:"a"; sid:15;)
alert ssh any any -> any any (ssh.proto; content:"2"; ssh.software; content:"a"; sid:16;)
alert dns any any -> any any (dns.query; dataset:set,names,type string; sid:17;)
"#;

fn rules() -> Arc<RuleSet> {
    static RULE_SET: OnceLock<Arc<RuleSet>> = OnceLock::new();
    let made = RULE_SET.get_or_init(|| {
        let source = RuleSource { name: "streams".into(), text: RULES.into() };
        let loaded =
            RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
        assert_eq!(loaded.report.refused, []);
        Arc::new(loaded.rules)
    });
    made.clone()
}

pub(crate) fn exercise(input: &[u8]) {
    let limits = Limits { flows: 2, ..Limits::default() };
    let Ok(mut detector) = Detector::new(rules(), limits) else { return };
    let (mut table, mut alerts) = (FlowTable::new(limits), Alerts::new(8));
    let Some((port, mut rest)) = input.split_first() else { return };
    let port = if port & 1 == 1 { 53 } else { 80 };
    let mut sent = [BEGINNING.wrapping_add(1); 2];
    let mut packets = 0;
    let mut send = |side: usize, sequence: u32, flags: u8, payload: &[u8]| {
        let frame = segment(side, port, sequence, flags, payload);
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet { bytes: &frame, parsed: &parsed, decoded: None };
        packets += 1;
        table.inspect(&mut detector, Time(packets), &packet, &mut alerts);
    };
    send(0, BEGINNING, 2, b"");
    send(1, BEGINNING, 0x12, b"");
    send(0, sent[0], 0x10, b"");
    while let [how, length, behind @ ..] = rest {
        let (payload, after) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = after;
        let side = usize::from(how & 1);
        // At the end, ahead of it, or over what was sent before.
        let start = match how >> 1 & 7 {
            0..=3 => sent[side],
            4 => sent[side].wrapping_add(7),
            5 => sent[side].wrapping_add(1 << 20),
            6 => sent[side].wrapping_sub(5),
            _ => sent[side].wrapping_sub(100),
        };
        send(side, start, 0x18, payload);
        if how >> 1 & 7 < 4 {
            sent[side] = sent[side].wrapping_add(payload.len() as u32);
        }
    }
    let counters = detector.counters();
    assert_eq!(counters.packets, packets);
    assert_eq!(counters.alerts, alerts.len() as u64 + alerts.overflow());
    table.flush(&mut detector);
    assert_eq!(detector.flows(), 0);
}

fn segment(side: usize, port: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    let ends = [([10, 0, 0, 1], 1024_u16), ([192, 0, 2, 1], port)];
    let (from, to) = (ends[side], ends[1 - side]);
    frame.extend(from.0.into_iter().chain(to.0));
    frame.extend(from.1.to_be_bytes().into_iter().chain(to.1.to_be_bytes()));
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}
