//! Rules at the joint: floods, also on the gateway itself, that are over in the end; tunnels,
//! judged by what they carry.

use std::sync::Arc;

use weir_detect::tunnels::Ports;
use weir_detect::{
    Expected, Flood, FloodKind, Limits, LoadOptions, RuleSet, RuleSource, Variables,
};
use weir_engine::detect::{DetectionRecord, RuleMode, Rules};
use weir_engine::fastpath::{Command, FastPath};
use weir_engine::plain::{Block, Blocks};
use weir_engine::policy::{Exception, Exceptions};
use weir_wire::checksum::Sum;

use super::*;

pub(super) const ATTACKER: [u8; 4] = [192, 0, 2, 66];
pub(super) const VICTIM: [u8; 4] = [10, 1, 0, 1];
pub(super) const OWN: [u8; 4] = [10, 9, 0, 1];
pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const EVIL: &str = "drop udp any any -> any 99 (content:\"evil\"; sid:1;)";

pub(super) fn gateway(rules: &str, change: impl FnOnce(&mut Policy)) -> Gateway {
    let source = RuleSource { name: "test".into(), text: rules.to_owned() };
    let loaded = RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
    assert!(loaded.report.refused.is_empty(), "{:?}", loaded.report.refused);
    let mut policy = Policy::watch(1, WIRE_MTU);
    policy.own = Some(OwnAddress {
        mac: MacAddress(GATEWAY_A),
        addresses: vec![(IpAddr::from(OWN), 24)],
        ..OwnAddress::default()
    });
    let set = Arc::new(loaded.rules);
    let limits = Limits { flows: 4096, ..Limits::default() };
    policy.rules = Some(Rules {
        set,
        mode: RuleMode::Enforce,
        limits,
        tells_records: false,
        expected: Expected::default(),
    });
    change(&mut policy);
    let meter = Meter::new(MeterLimits::default(), 7);
    let engine = Engine::new(policy, Associations::default(), meter).unwrap();
    Gateway::of(engine, Time(1_700_000_000 * SECOND_NS))
}

/// An IPv4 packet in an Ethernet frame; `flags` is the word of fragments.
pub(super) fn ipv4(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    flags: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [HOST_A, HOST_B].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0x12, 0x34]);
    frame.extend(flags.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(payload);
    sign(&mut frame);
    frame
}

/// Gives the frame's IPv4 header its checksum.
pub(super) fn sign(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = Sum::new().with(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

pub(super) fn udp_payload(port: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    [&[0x30, 0x39], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0], payload].concat()
}

pub(super) fn syn(from: [u8; 4], to: [u8; 4], number: u32) -> Vec<u8> {
    let port = (1024 + number % 60_000) as u16;
    let mut tcp = port.to_be_bytes().to_vec();
    tcp.extend([0, 80]);
    tcp.extend(number.wrapping_mul(2_654_435_761).to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0]);
    ipv4(from, to, 6, 0, &tcp)
}

/// So many SYNs from other addresses each, within so many milliseconds; how many got through.
pub(super) fn flood(gateway: &mut Gateway, to: [u8; 4], count: u32, over_ms: u64) -> usize {
    let step = over_ms * 1_000_000 / u64::from(count);
    let mut through = 0;
    for number in 0..count {
        gateway.clock = gateway.clock.plus_ns(step);
        let source = (0x0b00_0000 + number).to_be_bytes();
        let number = number.wrapping_add(gateway.clock.0 as u32);
        through += gateway.receive(Side::Wire, &[syn(source, to, number)]).len();
    }
    through
}

pub(super) const SYN_FLOOD: &str =
    "drop tcp any any -> any any (flood:syn, by_dst, rate 1000, hold 3; sid:9;)";

/// A port on its way may fill it up to 60 bytes, with which its receiver takes it.
#[test]
fn a_packet_that_says_it_is_longer_than_its_frame_goes_no_further_where_rules_judge() {
    let mut longer = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"evil"));
    longer[17] += 2;
    sign(&mut longer);
    let mut longer_v6 = [HOST_A, HOST_B].concat();
    longer_v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 14, 17, 64]);
    longer_v6.extend([0xfd; 32]);
    longer_v6.extend(udp_payload(99, b"evil"));
    for packet in [longer, longer_v6] {
        for side in [Side::Host, Side::Wire] {
            let mut judging = gateway(EVIL, |it| it.rules.as_mut().unwrap().tells_records = true);
            assert!(judging.receive(side, from_ref(&packet)).is_empty());
            assert_eq!(judging.dropped(side, DropReason::Malformed), 1);
            let mut told = Vec::new();
            judging.engine.take_detection_records(&mut |it| told.push(it));
            let [DetectionRecord::Drop(drop)] = &told[..] else { panic!("{told:?}") };
            assert_eq!(drop.reason, "malformed");
            let mut watching =
                gateway(EVIL, |it| it.rules.as_mut().unwrap().mode = RuleMode::Watch);
            assert_eq!(watching.receive(side, from_ref(&packet)).len(), 1);
            let mut without = gateway(EVIL, |it| it.rules = None);
            assert_eq!(without.receive(side, from_ref(&packet)).len(), 1);
        }
    }
}

#[test]
fn a_flood_on_the_gateway_itself_is_stopped_and_over_when_it_is() {
    let mut gateway = gateway(SYN_FLOOD, |_| ());
    let through = flood(&mut gateway, OWN, 5000, 1000);
    // Half a second of its rate, and a tenth of it.
    assert!((500..800).contains(&through), "{through}");
    assert_eq!(gateway.counters().wire.punted, through as u64);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 5000 - through as u64);
    // Slower than half of the rate for longer than it holds: the last ones pass again.
    flood(&mut gateway, OWN, 1200, 4000);
    assert_eq!(flood(&mut gateway, OWN, 300, 1000), 300, "the attack is over");
}

#[test]
fn a_flood_that_a_bare_rule_drops_may_be_dropped_before_and_ends_by_what_is_told() {
    let mut gateway = gateway(SYN_FLOOD, |_| ());
    flood(&mut gateway, VICTIM, 2000, 500);
    let mut floods = Vec::new();
    gateway.engine.take_floods(&mut |flood| floods.push(flood));
    let [told] = floods[..] else { panic!("{floods:?}") };
    assert_eq!((told.kind, told.by_destination, told.trickle()), (FloodKind::Syn, true, 100));
    assert_eq!(told.network, mapped(IpAddr::from(VICTIM)));
    flood(&mut gateway, VICTIM, 100, 50);
    gateway.engine.take_floods(&mut |flood| panic!("asked for again: {flood:?}"));
    let before = gateway.engine.detection().unwrap().drops().next().unwrap().packets;
    let mut now = gateway.clock;
    for _ in 0..50 {
        now = now.plus_ns(100_000_000);
        assert!(gateway.engine.flood_goes_on(now, &told, 400), "4,000 a second are dropped");
    }
    let after = gateway.engine.detection().unwrap().drops().next().unwrap().packets;
    assert_eq!(after - before, 50 * 400, "they count as the rule's");
    gateway.engine.note_early_drops(Side::Wire, DropReason::Rule, 20_000, 1_200_000);
    let counters = &gateway.counters().wire;
    assert!(counters.adds_up() && counters.early == 20_000, "{counters:?}");
    let ticks = (0..100).take_while(|_| {
        now = now.plus_ns(100_000_000);
        gateway.engine.flood_goes_on(now, &told, 1)
    });
    assert!((29..45).contains(&ticks.count()), "over after three seconds");
    assert!(!gateway.engine.flood_goes_on(now, &told, 1), "nobody holds it any more");
}

#[test]
fn of_a_flood_that_few_hosts_send_theirs_is_dropped_and_others_pass() {
    let mut gateway = gateway(SYN_FLOOD, |_| ());
    let (mut bots, mut honest) = (0, 0);
    for number in 0..20_000_u32 {
        gateway.clock = gateway.clock.plus_ns(100_000);
        let bot = [10, 66, 0, (number % 40) as u8];
        bots += gateway.receive(Side::Wire, &[syn(bot, VICTIM, number)]).len();
        if number % 100 == 99 {
            let host = [10, 67, 0, (number / 100) as u8];
            honest += gateway.receive(Side::Wire, &[syn(host, VICTIM, number)]).len();
        }
    }
    assert!(bots < 700, "half a second of the rate: {bots}");
    assert!(honest >= 194, "{honest} of 200");
    let mut floods = Vec::new();
    gateway.engine.take_floods(&mut |flood| floods.push(flood));
    assert!((38..=46).contains(&floods.len()), "{}", floods.len());
    let network = mapped(IpAddr::from(VICTIM));
    for flood in &floods {
        assert_eq!((flood.network, flood.bits, flood.by_destination), (network, 128, true));
    }
    let is_bot = |it: &&Flood| it.talker.is_some_and(|it| it[12..15] == [10, 66, 0]);
    assert!(floods.iter().filter(is_bot).count() >= 38, "{floods:?}");
    // As long as they are told of, the flood is theirs; silent for three seconds, it is over.
    let mut now = gateway.clock;
    for flood in &floods {
        assert!(gateway.engine.flood_goes_on(now, flood, 50));
    }
    now = now.plus_ns(4_000_000_000);
    for flood in &floods {
        assert!(!gateway.engine.flood_goes_on(now, flood, 0));
    }
}

#[test]
fn who_sends_a_syn_again_gets_through_a_flood_that_several_rules_tell() {
    let rules =
        include_str!("../../../../rules/flood.rules").replace("classtype:attempted-dos; ", "");
    let rules = rules.replace("classtype:attempted-recon; ", "");
    let mut gateway = gateway(&rules, |_| ());
    flood(&mut gateway, VICTIM, 30_000, 1000);
    let honest = |number: u32| syn([10, 67, 0, number as u8], VICTIM, number);
    let mut first = 0;
    for number in 0..20 {
        first += gateway.receive(Side::Wire, &[honest(number)]).len();
    }
    assert!(first < 5, "the flood leaves no room: {first}");
    flood(&mut gateway, VICTIM, 30_000, 1000);
    let again: usize = (0..20).map(|it| gateway.receive(Side::Wire, &[honest(it)]).len()).sum();
    assert!(again >= 19, "{again} of 20");
}

#[test]
fn a_flood_on_all_hosts_of_a_network_is_one() {
    let rule = "drop tcp any any -> any any (flood:syn, by_dst, prefix 24, rate 1000; sid:9;)";
    let mut gateway = gateway(rule, |_| ());
    let mut through = 0;
    for number in 0..5_000_u32 {
        gateway.clock = gateway.clock.plus_ns(200_000);
        let source = (0x0b00_0000 + number).to_be_bytes();
        let [a, b, c, _] = VICTIM;
        let to = [a, b, c, number as u8];
        through += gateway.receive(Side::Wire, &[syn(source, to, number)]).len();
    }
    assert!((500..800).contains(&through), "{through}");
    let mut floods = Vec::new();
    gateway.engine.take_floods(&mut |flood| floods.push(flood));
    let [told] = floods[..] else { panic!("{floods:?}") };
    assert_eq!((told.bits, told.talker), (96 + 24, None));
}

#[test]
fn where_a_rule_asks_for_more_or_one_lets_pass_nothing_is_dropped_before() {
    let narrow = "drop tcp any any -> any 80 (flood:syn, by_dst, rate 1000; sid:9;)";
    let passes = format!("pass tcp 10.7.7.7 any -> any any (sid:8;)\n{SYN_FLOOD}");
    for rules in [narrow, &passes] {
        let mut gateway = gateway(rules, |_| ());
        let through = flood(&mut gateway, VICTIM, 2000, 500);
        assert!(through < 1000, "{rules}");
        gateway.engine.take_floods(&mut |flood| panic!("{rules}: {flood:?}"));
    }
}

#[test]
fn who_is_blocked_does_not_reach_the_gateway_itself() {
    let blocks = Arc::new(Blocks::default());
    let mut gateway = gateway(EVIL, |policy| policy.blocks = Some(Arc::clone(&blocks)));
    let question = ipv4(ATTACKER, OWN, 17, 0, &udp_payload(99, b"hello"));
    assert_eq!(gateway.receive(Side::Wire, from_ref(&question)).len(), 1);
    let block = Arc::new(Block::new(Prefix::new(IpAddr::from(ATTACKER), 32), None));
    blocks.replace(&[block], &[]);
    assert_eq!(gateway.receive(Side::Wire, from_ref(&question)).len(), 0);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Blocked), 1);
}

/// `inner`, an Ethernet frame, in VXLAN.
pub(super) fn vxlan(inner: &[u8]) -> Vec<u8> {
    let header = [8, 0, 0, 0, 0, 0, 7, 0];
    ipv4([10, 3, 0, 1], [10, 3, 0, 2], 17, 0, &udp_payload(4789, &[&header, inner].concat()))
}

/// Puts a frame into another.
pub(super) type Wrap<'w> = &'w dyn Fn(&[u8]) -> Vec<u8>;

#[test]
fn what_tunnels_carry_is_judged_as_it_were_outside() {
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    let good = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so good"));
    let gre = |inner: &[u8]| {
        let payload = [&[0, 0, 8, 0], &inner[14..]].concat();
        ipv4([10, 3, 0, 1], [10, 3, 0, 2], 47, 0, &payload)
    };
    let within = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let nested = |inner: &[u8]| vxlan(&gre(inner));
    let ways: [Wrap<'_>; 4] = [&vxlan, &gre, &within, &nested];
    let mut gateway = gateway(EVIL, |_| ());
    let carriers = [(17, 4789, 1), (47, 0, 1), (4, 0, 1), (17, 4789, 2)];
    for (number, (way, carrier)) in (1..).zip(ways.into_iter().zip(carriers)) {
        assert_eq!(gateway.receive(Side::Wire, &[way(&good)]).len(), 1, "{number}");
        assert_eq!(gateway.receive(Side::Wire, &[way(&evil)]).len(), 0, "{number}");
        assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), number);
        let mut told = Vec::new();
        gateway.engine.take_alerts(&mut |alert, _| told.push((alert.source, alert.tunnel)));
        let [(source, Some(tunnel))] = told[..] else { panic!("{number}: {told:?}") };
        assert_eq!(source.address, mapped(IpAddr::from(ATTACKER)));
        assert_eq!(tunnel.source.address, mapped(IpAddr::from([10, 3, 0, 1])), "{number}");
        assert_eq!((tunnel.protocol, tunnel.destination.port, tunnel.depth), carrier, "{number}");
    }
    gateway.receive(Side::Wire, &[evil]);
    gateway.engine.take_alerts(&mut |alert, _| assert_eq!(alert.tunnel, None));
    assert_eq!(gateway.engine.inside_counters().carried, 10);
}

#[test]
fn datagrams_are_looked_into_at_the_ports_that_are_named() {
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    let header = [8, 0, 0, 0, 0, 0, 7, 0];
    let datagram = udp_payload(8472, &[&header[..], &evil].concat());
    let elsewhere = ipv4([10, 3, 0, 1], [10, 3, 0, 2], 17, 0, &datagram);
    let mut usual = gateway(EVIL, |_| ());
    assert_eq!(usual.receive(Side::Wire, &[vxlan(&evil), elsewhere.clone()]).len(), 1);
    let mut other = gateway(EVIL, |policy| {
        policy.tunnels.vxlan = Ports::of(&[8472]).unwrap();
    });
    assert_eq!(other.receive(Side::Wire, &[vxlan(&evil), elsewhere]).len(), 1);
    assert_eq!(other.dropped(Side::Wire, DropReason::Rule), 1);
}

#[test]
fn what_comes_from_the_port_of_esp_in_udp_is_a_datagram_to_rules() {
    let by_port = "drop udp any any -> any 53 (sid:1;)";
    let by_dns = "drop dns any any -> any any (dns.query; content:\"evil\"; sid:1;)";
    let by_first = "drop udp any 4500 -> any any (content:\"|01 02|\"; depth:2; sid:1;)";
    let query = b"\x01\x02\x01\0\0\x01\0\0\0\0\0\0\x04evil\x03org\0\0\x01\0\x01";
    let mut datagram = udp_payload(53, query);
    datagram[..2].copy_from_slice(&4500_u16.to_be_bytes());
    let frame = ipv4(ATTACKER, VICTIM, 17, 0, &datagram);
    for rule in [by_port, by_dns, by_first] {
        let mut gateway = gateway(rule, |_| ());
        assert_eq!(gateway.receive(Side::Wire, from_ref(&frame)).len(), 0, "{rule}");
        let mut told = Vec::new();
        gateway.engine.take_alerts(&mut |alert, _| told.push(alert.clone()));
        assert_eq!((told[0].source.port, told[0].destination.port), (4500, 53), "{rule}");
    }
    // To a port of tunnels.
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    let mut carrier = udp_payload(8472, &[&[8, 0, 0, 0, 0, 0, 7, 0], &evil[..]].concat());
    carrier[..2].copy_from_slice(&4500_u16.to_be_bytes());
    let mut gateway = gateway(EVIL, |policy| policy.tunnels.vxlan = Ports::of(&[8472]).unwrap());
    let carrier = ipv4([10, 3, 0, 1], [10, 3, 0, 2], 17, 0, &carrier);
    assert_eq!(gateway.receive(Side::Wire, &[carrier]).len(), 0);
}

#[test]
fn what_comes_to_the_port_of_roce_from_another_s_is_a_datagram_too() {
    let answer = b"\x01\x02\x81\x80\0\x01\0\0\0\0\0\0\x04evil\x03org\0\0\x01\0\x01";
    let from = |port: u16| {
        let mut datagram = udp_payload(4791, answer);
        datagram[..2].copy_from_slice(&port.to_be_bytes());
        ipv4(ATTACKER, VICTIM, 17, 0, &datagram)
    };
    let by_place = "drop udp any any -> any any (content:\"|01 02|\"; depth:2; sid:1;)";
    let by_dns = "drop dns any any -> any any (content:\"evil\"; sid:1;)";
    // The last has the port of an adapter, but no right ICRC.
    for (rule, port) in [(by_place, 53), (by_dns, 53), (by_place, 0xc001)] {
        let mut gateway = gateway(rule, |_| ());
        assert_eq!(gateway.receive(Side::Wire, &[from(port)]).len(), 0, "{rule} {port}");
    }
    let mut gateway = gateway("alert udp any any -> any any (sid:1;)", |_| ());
    assert_eq!(gateway.receive(Side::Wire, &[from(53)]).len(), 1);
    let mut told = 0;
    gateway.engine.take_alerts(&mut |_, _| told += 1);
    assert_eq!(told, 1, "by either way, once");
}

#[test]
fn what_stands_behind_labels_tags_and_in_sessions_is_judged() {
    let path = [[0x89, 0x4f, 0, 6, 1, 1].as_slice(), &[0; 20]].concat();
    let tags: [&[u8]; 5] = [
        &path,
        &[0x88, 0x47, 0, 0, 0x11, 0x40],
        &[0x88, 0x47, 0, 0, 0x10, 0x40, 0, 0, 0x11, 0x40],
        &[0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21],
        &[0x89, 0x26, 0, 1, 0, 2, 8, 0],
    ];
    for tag in tags {
        let within = |payload: &[u8]| {
            let mut frame = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, payload));
            frame.splice(12..14, tag.iter().copied());
            frame
        };
        let mut gateway = gateway(EVIL, |_| ());
        let passed = gateway.receive(Side::Wire, &[within(b"so evil"), within(b"so good")]);
        assert_eq!(passed.len(), 1, "{tag:x?}");
        assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 1, "{tag:x?}");
        let mut told = Vec::new();
        gateway.engine.take_alerts(&mut |alert, _| told.push(alert.clone()));
        assert_eq!((told.len(), told[0].destination.port), (1, 99), "{tag:x?}");
    }
}

#[test]
fn what_is_odd_is_told_of_the_packet_that_a_tunnel_carries() {
    let mut gateway = gateway(EVIL, |policy| {
        policy.rules.as_mut().unwrap().limits.anomalies = 16;
    });
    let within = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let good = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so good"));
    let odd = ipv4(ATTACKER, VICTIM, 1, 0, &[200, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(gateway.receive(Side::Wire, &[within(&good), within(&odd)]).len(), 2);
    let mut told = Vec::new();
    gateway.engine.take_detection_records(&mut |record| told.push(record));
    let [DetectionRecord::Anomaly(odd)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(odd.event.names().1, "decoder.icmpv4.unknown_type");
    assert_eq!(odd.source.address, mapped(IpAddr::from(ATTACKER)));
}

#[test]
fn layers_beyond_the_bound_meet_the_exception() {
    let deep = (0..30).fold(ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"evil")), |it, _| {
        ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &it[14..])
    });
    let mut lenient = gateway(EVIL, |_| ());
    assert_eq!(lenient.receive(Side::Wire, from_ref(&deep)).len(), 1);
    assert_eq!(lenient.engine.inside_counters().too_deep, 1);
    let drop_it = Exceptions { layers: Exception::Drop, ..Exceptions::default() };
    let mut strict = gateway(EVIL, |policy| policy.exceptions = drop_it);
    assert_eq!(strict.receive(Side::Wire, &[deep]).len(), 0);
    assert_eq!(strict.dropped(Side::Wire, DropReason::TunnelTooDeep), 1);
    // More tags than are walked over: nobody knows what follows.
    let mut tagged = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"evil"));
    tagged.splice(12..12, [0x81, 0, 0, 7].repeat(3));
    assert_eq!(lenient.receive(Side::Wire, from_ref(&tagged)).len(), 1);
    assert_eq!(lenient.engine.inside_counters().too_deep, 2);
    assert_eq!(strict.receive(Side::Wire, &[tagged]).len(), 0);
}

pub(super) fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0x30, 0x39, 0, 80];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    ipv4(ATTACKER, VICTIM, 6, 0, &tcp)
}

#[test]
fn an_elephant_is_looked_at_no_further_and_goes_on_being_counted() {
    let rule = "drop tcp any any -> any any (content:\"evil\"; sid:1;)";
    let set_bypass = |policy: &mut Policy| {
        policy.rules.as_mut().unwrap().limits.bypass_bytes = Some(10_000);
    };
    let mut gateway = gateway(rule, set_bypass);
    let mut pass = |sequence: u32, payload: &[u8]| {
        gateway.receive(Side::Wire, &[segment(sequence, 0x18, payload)]).len()
    };
    for number in 0..10 {
        assert_eq!(pass(1000 + number * 1000, &[b'x'; 1000]), 1);
    }
    assert_eq!(pass(11_000, b"evil"), 1, "nobody looks any more");
    // The one that went beyond the bound, and this.
    assert_eq!(gateway.engine.detection().unwrap().counters().bypassed, 2);
    assert!(gateway.engine.meter().flows().len() == 1, "it is counted all the same");
}

#[test]
fn a_connection_where_an_elephant_was_is_carried_by_nobody_and_looked_at() {
    let rule = "drop tcp any any -> any any (content:\"evil\"; sid:1;)";
    let set_bypass = |policy: &mut Policy| {
        policy.rules.as_mut().unwrap().limits.bypass_bytes = Some(10_000);
    };
    let mut gateway = gateway(rule, set_bypass);
    gateway.engine.set_fast_path(Some(FastPath::new(64, 7)));
    for number in 0..12 {
        let sent = segment(1000 + number * 1000, 0x18, &[b'x'; 1000]);
        assert_eq!(gateway.receive(Side::Wire, &[sent]).len(), 1);
    }
    let table = |gateway: &mut Gateway| gateway.engine.fast_path().unwrap().next_command();
    let Some(Command::Install(install)) = table(&mut gateway) else { panic!("it is settled") };
    gateway.engine.fast_path().unwrap().installed(install.number, 1);
    gateway.receive(Side::Wire, &[segment(13_000, 4, b""), segment(70_000, 2, b"")]);
    let removed = Command::Remove { key: install.key, number: install.number };
    assert_eq!(table(&mut gateway), Some(removed));
    assert_eq!(gateway.receive(Side::Wire, &[segment(70_001, 0x18, b"evil")]).len(), 0);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 1);
}

#[test]
fn a_connection_whose_beginning_nobody_saw_meets_the_exception() {
    let rule = "alert tcp any any -> any any (content:\"evil\"; sid:1;)";
    let mut lenient = gateway(rule, |_| ());
    assert_eq!(lenient.receive(Side::Wire, &[segment(1000, 0x18, b"x")]).len(), 1);
    let strict = |policy: &mut Policy| {
        policy.rules.as_mut().unwrap().limits.refuses_midstream = true;
    };
    let mut strict = gateway(rule, strict);
    assert_eq!(strict.receive(Side::Wire, &[segment(1000, 0x18, b"x")]).len(), 0);
    assert_eq!(strict.dropped(Side::Wire, DropReason::StreamUnseen), 1);
    // Its ends open a new one.
    let anew = [segment(1999, 2, b""), segment(2000, 0x18, b"x")];
    assert_eq!(strict.receive(Side::Wire, &anew).len(), 2);
}

#[test]
fn ports_tell_who_the_server_of_an_older_connection_is() {
    let rule = "drop tcp any any -> any any \
                (flow:established,to_server; content:\"evil\"; sid:1;)\n\
                drop tcp any any -> any 40001 (flow:to_server; content:\"evil\"; sid:2;)";
    let segment = |from: [u8; 4], to: [u8; 4], ports: [u16; 2], at: u8, flags: u8, data: &[u8]| {
        let mut tcp = ports.map(u16::to_be_bytes).concat();
        tcp.extend([0, 0, 0, at, 0, 0, 3, 0xe8, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        ipv4(from, to, 6, 0, &[&tcp, data].concat())
    };
    let answer = |ports| segment(VICTIM, ATTACKER, ports, 9, 0x18, b"evil");
    let mut it = gateway(rule, |policy| policy.rules.as_mut().unwrap().limits.sees_all = true);
    // The server is heard of first.
    assert_eq!(it.receive(Side::Host, &[answer([80, 40_000])]).len(), 1);
    let asked = segment(ATTACKER, VICTIM, [40_000, 80], 9, 0x18, b"evil");
    assert_eq!(it.receive(Side::Wire, &[asked]).len(), 0);
    assert_eq!(it.dropped(Side::Wire, DropReason::Rule), 1);
    // Of others, who is heard of first is the client: he may have chosen his port.
    assert_eq!(it.receive(Side::Host, &[answer([80, 8080])]).len(), 0);
    assert_eq!(it.receive(Side::Host, &[answer([700, 2049])]).len(), 0);
    // And of what begins, whatever its ports are.
    let opening = segment(VICTIM, ATTACKER, [20, 40_001], 8, 2, b"");
    assert_eq!(it.receive(Side::Host, &[opening]).len(), 1);
    assert_eq!(it.receive(Side::Host, &[answer([20, 40_001])]).len(), 0);
}

#[test]
fn data_that_finds_no_room_behind_a_gap_meets_the_exception() {
    let rule = "alert tcp any any -> any any (content:\"evil\"; sid:1;)";
    let ahead = |it: u32| segment(1001 + it * 1000, 0x18, &[b'x'; 1000]);
    for (is_strict, arrive) in [(false, 300), (true, 262)] {
        let set = |policy: &mut Policy| {
            policy.rules.as_mut().unwrap().limits.refuses_gaps = is_strict;
        };
        let mut gateway = gateway(rule, set);
        gateway.receive(Side::Wire, &[segment(999, 2, b"")]);
        let arrived: usize =
            (0..300).map(|it| gateway.receive(Side::Wire, &[ahead(it)]).len()).sum();
        assert_eq!(arrived, arrive);
        assert_eq!(gateway.dropped(Side::Wire, DropReason::StreamGap), 300 - arrive as u64);
    }
}

#[test]
fn rules_that_only_watch_take_what_they_would_drop_into_its_stream() {
    let rule = "alert tcp any any -> any any (content:\"xxevil\"; sid:1;)";
    for (mode, arrive, would_drop, alerts) in
        [(RuleMode::Enforce, 3, 0, 0), (RuleMode::Watch, 5, 2, 1)]
    {
        let set = |policy: &mut Policy| {
            let rules = policy.rules.as_mut().unwrap();
            rules.mode = mode;
            rules.limits.refuses_conflicts = true;
            rules.limits.only_watches = mode == RuleMode::Watch;
        };
        let mut gateway = gateway(rule, set);
        // Others in a place where some came, and some that are urgent.
        let mut urgent = segment(1002, 0x38, b"xx");
        urgent[53] = 1;
        let sent = [
            segment(999, 2, b""),
            segment(1000, 0x18, b".."),
            segment(1000, 0x18, b"!!"),
            urgent,
            segment(1004, 0x18, b"evil"),
        ];
        assert_eq!(gateway.receive(Side::Wire, &sent).len(), arrive);
        assert_eq!(gateway.engine.detection().unwrap().would_drop(), would_drop);
        let mut told = 0;
        gateway.engine.take_alerts(&mut |_, _| told += 1);
        assert_eq!(told, alerts, "what was left out is a gap");
    }
}
