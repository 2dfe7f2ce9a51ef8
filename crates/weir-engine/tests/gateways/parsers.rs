//! Flows whose application's parser gives up, where exceptions drop those: from there on.

use weir_detect::record::DropRecord;
use weir_engine::detect::{DetectionRecord, RuleMode};
use weir_engine::plain::Blocks;

use super::inline::{ATTACKER, VICTIM, gateway, ipv4, segment, udp_payload};
use super::*;

const RULE: &str = "alert ip any any -> any any (content:\"evil\"; sid:1;)";
const SYN: u8 = 2;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;
const BANNER: &[u8] = b"SSH-2.0-a\r\n";
/// A packet of one byte: SSH has none that is so short.
const BROKEN: &[u8] = b"\0\0\0\x01....";

fn drops_errors(policy: &mut Policy) {
    let rules = policy.rules.as_mut().unwrap();
    rules.limits.refuses_parser_errors = true;
    rules.tells_records = true;
}

/// The client's SYN, and a segment for each thing that it says.
fn connection(said: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut sequence = 1000;
    let mut segments = vec![segment(999, SYN, b"")];
    for bytes in said {
        segments.push(segment(sequence, PSH_ACK, bytes));
        sequence += bytes.len() as u32;
    }
    segments
}

/// A segment of the server, which has got no data yet.
fn answer(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0, 80, 0x30, 0x39];
    tcp.extend([sequence, 1000].map(u32::to_be_bytes).concat());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    ipv4(VICTIM, ATTACKER, 6, 0, &tcp)
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(port, payload))
}

fn told(gateway: &mut Gateway) -> Vec<DropRecord> {
    let mut told = Vec::new();
    gateway.engine.take_detection_records(&mut |record| {
        if let DetectionRecord::Drop(drop) = record {
            told.push(drop);
        }
    });
    told
}

fn alerts(gateway: &mut Gateway) -> usize {
    let mut alerts = 0;
    gateway.engine.take_alerts(&mut |_, _| alerts += 1);
    alerts
}

#[test]
fn unless_exceptions_drop_it_a_flow_goes_on_and_rules_look_at_it() {
    let mut gateway = gateway(RULE, |_| ());
    let sent = connection(&[BANNER, BROKEN, b"evil"]);
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), sent.len());
    assert_eq!(alerts(&mut gateway), 1);
}

#[test]
fn the_packet_at_which_a_parser_gives_up_is_dropped_and_the_rest_of_its_flow() {
    let mut gateway = gateway(RULE, drops_errors);
    let sent = connection(&[BANNER, BROKEN, b"evil", b"more"]);
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), 2, "up to the banner");
    assert_eq!(gateway.dropped(Side::Wire, DropReason::ParserError), 3);
    assert!(gateway.receive(Side::Host, &[answer(5000, PSH_ACK, b"what?")]).is_empty());
    assert_eq!(gateway.dropped(Side::Host, DropReason::ParserError), 1);
    assert_eq!(alerts(&mut gateway), 0, "nobody looks at the rest");
    // One record a side, in Suricata's words.
    let told: Vec<_> = told(&mut gateway).iter().map(|it| (it.reason, it.application)).collect();
    let [error, later] = ["applayer error", "exception policy flow drop"];
    assert_eq!(told, [(error, Some("ssh")), (later, Some("ssh"))]);
    // Others are of other flows.
    assert_eq!(gateway.receive(Side::Wire, &[datagram(9, b"evil")]).len(), 1);
}

#[test]
fn a_dropped_flow_is_not_begun_anew_by_who_is_dropped() {
    let mut gateway = gateway(RULE, drops_errors);
    let [begun, said @ ..] = &connection(&[BANNER, BROKEN])[..] else { unreachable!() };
    gateway.receive(Side::Wire, from_ref(begun));
    gateway.receive(Side::Host, &[answer(4999, SYN | ACK, b"")]);
    gateway.receive(Side::Wire, &[&[segment(1000, ACK, b"")], said].concat());
    assert_eq!(gateway.dropped(Side::Wire, DropReason::ParserError), 1);
    let reset = segment(1000 + BANNER.len() as u32, 4, b"");
    assert!(gateway.receive(Side::Wire, &[reset, segment(4999, SYN, b"")]).is_empty());
    assert!(gateway.receive(Side::Wire, &[segment(5000, PSH_ACK, BANNER)]).is_empty());
}

#[test]
fn a_datagram_that_cannot_be_read_is_dropped_alone() {
    const NTP: &[u8] = &[0x23; 48];
    for (drops, arrive) in [(false, 4), (true, 2)] {
        let set = |policy: &mut Policy| {
            if drops {
                drops_errors(policy)
            }
        };
        let mut gateway = gateway(RULE, set);
        let sent = [NTP, &NTP[..4], NTP, b"evil"].map(|it| datagram(123, it));
        assert_eq!(gateway.receive(Side::Wire, &sent).len(), arrive);
        let dropped = gateway.dropped(Side::Wire, DropReason::ParserError);
        assert_eq!(dropped, 4 - arrive as u64);
    }
}

#[test]
fn a_flow_of_a_host_on_the_allow_list_goes_on_both_ways_and_is_looked_at() {
    let blocks = std::sync::Arc::new(Blocks::default());
    blocks.replace(&[], &[Prefix::new(IpAddr::from(ATTACKER), 32)]);
    let mut gateway = gateway(RULE, |policy| {
        drops_errors(policy);
        policy.blocks = Some(blocks);
    });
    let sent = connection(&[BANNER, BROKEN, b"evil"]);
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), sent.len());
    assert_eq!(gateway.receive(Side::Host, &[answer(5000, PSH_ACK, b"what?")]).len(), 1);
    assert_eq!(alerts(&mut gateway), 1);
}

#[test]
fn who_watches_is_told_how_much_would_be_dropped_and_goes_on_looking() {
    let mut gateway = gateway(RULE, |policy| {
        drops_errors(policy);
        let rules = policy.rules.as_mut().unwrap();
        rules.mode = RuleMode::Watch;
        rules.limits.only_watches = true;
    });
    let sent = connection(&[BANNER, BROKEN, b"evil"]);
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), sent.len());
    assert_eq!(gateway.engine.detection().unwrap().would_drop(), 2);
    assert_eq!((alerts(&mut gateway), told(&mut gateway).len()), (1, 0));
}

#[test]
fn what_a_rule_lets_pass_is_not_parsed() {
    let rules = "pass tcp any any -> any 80 (sid:2;)";
    let mut gateway = gateway(rules, drops_errors);
    let sent = connection(&[BANNER, BROKEN, b"more"]);
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), sent.len());
}
