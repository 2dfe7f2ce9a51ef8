//! What is told of packets that are dropped and that no alert tells of, for EVE's `drop`.

use std::sync::Arc;

use weir_detect::headers::TransportFields;
use weir_detect::record::DropRecord;
use weir_engine::detect::DetectionRecord;
use weir_engine::plain::{Block, Blocks};
use weir_engine::policy::{Exception, Exceptions};

use super::inline::{ATTACKER, EVIL, OWN, SECOND_NS, VICTIM, gateway, ipv4, segment, sign};
use super::inline::{udp_payload, vxlan};
use super::*;

fn told(gateway: &mut Gateway) -> Vec<DropRecord> {
    let mut told = Vec::new();
    gateway.engine.take_detection_records(&mut |record| {
        if let DetectionRecord::Drop(drop) = record {
            told.push(drop);
        }
    });
    told
}

fn reasons(gateway: &mut Gateway) -> Vec<&'static str> {
    told(gateway).into_iter().map(|it| it.reason).collect()
}

fn tells(policy: &mut Policy) {
    policy.rules.as_mut().unwrap().tells_records = true;
}

fn hello(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    ipv4(from, to, 17, 0, &udp_payload(99, b"hello"))
}

#[test]
fn of_flows_that_a_rule_says_nothing_of_and_of_arp_nothing_is_told() {
    let rules =
        "config udp any any -> any 98 (config:logging disable,type flow,scope flow; sid:2;)";
    let mut gateway = gateway(rules, tells);
    let arp = [
        &HOST_A[..],
        &HOST_B,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &HOST_B,
        &ATTACKER,
        &[0; 6],
        &VICTIM,
    ];
    let untold = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(98, b"hello"));
    gateway.receive(Side::Wire, &[untold, hello(ATTACKER, VICTIM), arp.concat()]);
    gateway.engine.end_detection_flows();
    let mut ports = Vec::new();
    gateway.engine.take_detection_records(&mut |record| {
        if let DetectionRecord::Flow(flow) = record {
            ports.push(flow.view.responder.port);
        }
    });
    assert_eq!(ports, [99]);
}

#[test]
fn a_blocked_source_is_told_of_once_a_second_on_every_way() {
    let blocks = Arc::new(Blocks::default());
    let mut gateway = gateway(EVIL, |policy| {
        policy.blocks = Some(Arc::clone(&blocks));
        tells(policy);
    });
    let block = Arc::new(Block::new(Prefix::new(IpAddr::from(ATTACKER), 32), None));
    blocks.replace(&[block], &[]);
    let ways = [hello(ATTACKER, VICTIM), hello(ATTACKER, OWN), vxlan(&hello(ATTACKER, VICTIM))];
    for (number, frame) in (1..).zip(&ways) {
        gateway.clock = gateway.clock.plus_ns(SECOND_NS);
        for _ in 0..3 {
            assert!(gateway.receive(Side::Wire, from_ref(frame)).is_empty());
        }
        let told = told(&mut gateway);
        let [record] = told[..] else { panic!("{number}: {told:?}") };
        assert_eq!((record.reason, record.flow), ("blocked", None));
        assert_eq!(record.source.address, mapped(IpAddr::from(ATTACKER)), "{number}");
        assert_eq!((record.protocol, record.destination.port), (17, 99), "{number}");
        assert_eq!(record.headers.transport, TransportFields::Udp { length: 13 }, "{number}");
        assert_eq!(gateway.dropped(Side::Wire, DropReason::Blocked), 3 * number);
    }
    // Who else is dropped in this second is told of too.
    let other = [192, 0, 2, 67];
    let block = |it| Arc::new(Block::new(Prefix::new(IpAddr::from(it), 32), None));
    blocks.replace(&[block(ATTACKER), block(other)], &[]);
    gateway.receive(Side::Wire, &[hello(other, VICTIM), hello(ATTACKER, VICTIM)]);
    assert_eq!(told(&mut gateway).len(), 1);
    assert_eq!(gateway.engine.take_lost_records(), 0);
}

#[test]
fn what_is_beyond_the_bound_of_a_second_is_counted_as_lost() {
    let blocks = Arc::new(Blocks::default());
    let mut gateway = gateway(EVIL, |policy| {
        policy.blocks = Some(Arc::clone(&blocks));
        tells(policy);
    });
    let block = Block::new(Prefix::new(IpAddr::from([172, 16, 0, 0]), 16), None);
    blocks.replace(&[Arc::new(block)], &[]);
    // Of a second, for the clock goes on with each batch.
    let frames: Vec<_> =
        (0..300_u16).map(|it| hello([172, 16, (it >> 8) as u8, it as u8], VICTIM)).collect();
    let before = gateway.clock;
    frames.chunks(50).for_each(|it| assert!(gateway.receive(Side::Wire, it).is_empty()));
    assert_eq!(before.0 / SECOND_NS, gateway.clock.0 / SECOND_NS);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Blocked), 300);
    assert_eq!((told(&mut gateway).len(), gateway.engine.take_lost_records()), (256, 44));
}

#[test]
fn what_exceptions_drop_of_streams_is_told_once_a_side() {
    let rule = "alert tcp any any -> any any (content:\"evil\"; sid:1;)";
    let mut gateway = gateway(rule, |policy| {
        tells(policy);
        let limits = &mut policy.rules.as_mut().unwrap().limits;
        (limits.refuses_midstream, limits.refuses_gaps, limits.refuses_conflicts) =
            (true, true, true);
    });
    for _ in 0..3 {
        assert!(gateway.receive(Side::Wire, &[segment(1000, 0x18, b"x")]).is_empty());
    }
    let unseen = told(&mut gateway);
    let [record] = unseen[..] else { panic!("{unseen:?}") };
    assert_eq!((record.reason, record.destination.port), ("stream_unseen", 80));
    assert!(record.flow.is_some_and(|it| it.packets[0] > 0), "{record:?}");
    let of_port = |port: u16, mut segment: Vec<u8>| {
        segment[34..36].copy_from_slice(&port.to_be_bytes());
        segment
    };
    let sent = [
        segment(1999, 2, b""),
        segment(2000, 0x18, b".."),
        segment(2000, 0x18, b"!!"),
        segment(2000, 0x18, b"??"),
    ];
    let sent = sent.map(|it| of_port(2, it));
    assert_eq!(gateway.receive(Side::Wire, &sent).len(), 2);
    assert_eq!(reasons(&mut gateway), ["stream_conflict"]);
    let ahead = |it: u32| of_port(3, segment(3001 + it * 1000, 0x18, &[b'x'; 1000]));
    gateway.receive(Side::Wire, &[of_port(3, segment(2999, 2, b""))]);
    for number in 0..300 {
        gateway.receive(Side::Wire, &[ahead(number)]);
    }
    assert!(gateway.dropped(Side::Wire, DropReason::StreamGap) > 1);
    assert_eq!(reasons(&mut gateway), ["stream_gap"]);
}

#[test]
fn what_exceptions_drop_of_pieces_and_layers_is_told() {
    let exceptions = Exceptions { layers: Exception::Drop, fragments: Exception::Drop };
    let mut gateway = gateway(EVIL, |policy| {
        policy.exceptions = exceptions;
        tells(policy);
    });
    let within = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let deep = (0..30).fold(hello(ATTACKER, VICTIM), |it, _| within(&it));
    assert!(gateway.receive(Side::Wire, &[deep]).is_empty());
    assert_eq!(reasons(&mut gateway), ["tunnel_too_deep"]);
    // More pieces that wait than there is room for.
    const MORE: u16 = 0x2000;
    for number in 0..=4096_u16 {
        let mut first = ipv4(ATTACKER, VICTIM, 17, MORE, &udp_payload(99, &[b'x'; 16]));
        first[18..20].copy_from_slice(&number.to_be_bytes());
        sign(&mut first);
        gateway.receive(Side::Wire, &[first]);
    }
    assert_eq!(gateway.dropped(Side::Wire, DropReason::FragmentsFull), 1);
    let full = told(&mut gateway);
    let [record] = full[..] else { panic!("{full:?}") };
    let ends = [record.source.address, record.destination.address];
    assert_eq!((record.reason, record.protocol), ("fragments_full", 17));
    assert_eq!(ends, [ATTACKER, VICTIM].map(|it| mapped(IpAddr::from(it))));
    // Those that are left wait in vain.
    for _ in 0..21 {
        gateway.tick();
    }
    assert!(gateway.dropped(Side::Wire, DropReason::FragmentsLate) > 4000);
    let late = reasons(&mut gateway);
    assert!((1..=3).contains(&late.len()), "{late:?}");
    assert!(late.iter().all(|it| *it == "fragments_late"), "{late:?}");
}

#[test]
fn nothing_is_told_where_nobody_wants_records() {
    let drop_it = Exceptions { layers: Exception::Drop, ..Exceptions::default() };
    let mut gateway = gateway(EVIL, |policy| policy.exceptions = drop_it);
    let within = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let deep = (0..30).fold(hello(ATTACKER, VICTIM), |it, _| within(&it));
    assert!(gateway.receive(Side::Wire, &[deep]).is_empty());
    assert_eq!(gateway.dropped(Side::Wire, DropReason::TunnelTooDeep), 1);
    assert_eq!((told(&mut gateway).len(), gateway.engine.take_lost_records()), (0, 0));
}
