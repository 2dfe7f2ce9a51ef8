//! Events of packets behind one that a rule with `tag` matched, and of ARP: as Suricata 8.0.7 has
//! them, which was asked with the same packets.

use std::path::Path;

use crate::verify::frame;
use crate::verify_decoding::{datagram, failing};

/// A datagram between such hosts and ports.
fn said(hosts: [u8; 2], ports: [u16; 2], text: &str) -> Vec<u8> {
    frame(17, hosts, &datagram(ports, text.len() as u16 + 8, text.as_bytes()))
}

#[test]
fn packets_that_a_rule_tags_are_told_those_of_a_flow_or_of_a_host() {
    let there = [1000, 2000];
    let back = [2000, 1000];
    let frames = [
        said([1, 2], there, "start"),
        said([2, 1], back, "ans1"),
        said([1, 2], there, "more1"),
        said([1, 2], [1001, 2000], "other flow"),
        said([1, 3], [1002, 2000], "other host"),
        said([3, 2], [1003, 2000], "third"),
        said([2, 1], back, "ans2"),
        said([1, 2], there, "start again"),
        said([2, 1], back, "ans3"),
        said([2, 3], [2000, 1003], "ans4"),
    ];
    let mut wrong = Vec::new();
    for (number, (tag, told)) in [
        ("tag:session", [2, 3, 7, 8, 9].as_slice()),
        ("tag:session,3,packets", &[2, 3, 9]),
        ("tag:session,0,packets", &[]),
        ("tag:session,100,bytes", &[2, 9]),
        ("tag:host,3,packets", &[2, 3, 9, 10]),
        ("tag:host,6,packets", &[2, 3, 4, 6, 7, 8, 9, 10]),
        ("tag:host,6,packets,src", &[2, 3, 4, 5, 7, 8, 9]),
        ("noalert; tag:session,4,packets", &[2, 3, 7, 8, 9]),
    ]
    .into_iter()
    .enumerate()
    {
        let rules =
            format!("alert udp any any -> any any (content:\"start\"; depth:5; {tag}; sid:1;)");
        let mut events = vec![("event_type: packet".to_owned(), told.len() as u32)];
        let one = |it: &u32| (format!("event_type: packet, pcap_cnt: {it}"), 1);
        events.extend(told.iter().map(one));
        wrong.extend(failing(&format!("tag{number}"), "-k none", &frames, &rules, &events));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// ARP for IPv4 over Ethernet, from the first host to the second.
fn arp(operation: u8) -> Vec<u8> {
    let ends = [2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
    let mac = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6];
    [&mac[..], &[0, 1, 8, 0, 6, 4, 0, operation], &ends].concat()
}

#[test]
fn requests_and_answers_of_arp_are_told_and_what_is_odd_about_it_is_odd_of_a_stream() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("decoding/arp");
    std::fs::create_dir_all(&folder).unwrap();
    let settings = "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      \
                    types:\n      - arp\n      - anomaly:\n          \
                    types: {decode: yes, stream: yes}\n";
    std::fs::write(folder.join("suricata.yaml"), settings).unwrap();
    let frames: Vec<Vec<u8>> = [1, 2, 3, 4, 5].map(arp).into();
    let ends = "arp.hw_type: ethernet, arp.proto_type: ipv4, arp.src_mac: '02:00:00:00:00:01', \
                arp.src_ip: 10.0.0.1, arp.dest_mac: '02:00:00:00:00:02', arp.dest_ip: 10.0.0.2";
    let told = ["request", "reply", "request_reverse", "reply_reverse"];
    let mut events: Vec<(String, u32)> = (1..)
        .zip(told)
        .map(|(at, it)| (format!("event_type: arp, pcap_cnt: {at}, arp.opcode: {it}, {ends}"), 1))
        .collect();
    events.push(("event_type: arp".to_owned(), 4));
    let odd = "event_type: anomaly, pcap_cnt: 5, anomaly.type: stream, \
               anomaly.event: decoder.arp.unsupported_opcode";
    events.push((odd.to_owned(), 1));
    assert_eq!(failing("arp", "-k none", &frames, "", &events), Vec::<serde_json::Value>::new());
}
