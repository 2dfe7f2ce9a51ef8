//! Rules that reject: who is answered, how, and who is not.

use weir_engine::detect::Answers;
use weir_wire::checksum::Sum;
use weir_wire::parse::Parsed;
use weir_wire::tcp::flags::{ACK, PSH, RST, SYN};

use super::inline::{ATTACKER, OWN, VICTIM, Wrap, gateway, ipv4, udp_payload, vxlan};
use super::wireguard::ends;
use super::*;

/// A TCP segment from the attacker, from port 12345.
fn segment(port: u16, flags: u8, [at, ack]: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let mut tcp = [[0x30, 0x39], port.to_be_bytes()].concat();
    tcp.extend(at.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let sum = Sum::new().with_u16(6).with_u32(tcp.len() as u32);
    let sum = sum.with(&ATTACKER).with(&VICTIM).with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(ATTACKER, VICTIM, 6, 0, &tcp)
}

#[test]
fn what_a_tunnel_carries_is_rejected_without_an_answer() {
    let rules = "reject udp any any -> any 99 (content:\"evil\"; sid:1;)\n\
                 reject tcp any any -> any 80 (flags:S; sid:2;)";
    let ip = |inner: &[u8]| ipv4([10, 3, 0, 1], [10, 3, 0, 2], 4, 0, &inner[14..]);
    let carriers: [Wrap<'_>; 2] = [&vxlan, &ip];
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    for side in [Side::Wire, Side::Host] {
        let mut gateway = gateway(rules, |_| ());
        for inner in [&evil, &segment(80, SYN, [7, 0], b"")] {
            let answered = gateway.receive(side, from_ref(inner));
            assert_eq!(answered.len(), 1, "outside of a tunnel");
            for carry in carriers {
                assert!(gateway.receive(side, &[carry(inner)]).is_empty());
            }
        }
        assert_eq!(gateway.dropped(side, DropReason::Rule), 6);
    }
}

#[test]
fn teredo_is_rejected_without_an_answer() {
    let mut gateway = gateway("reject udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let udp = udp_payload(99, b"so evil");
    let mut inner = vec![0x60, 0, 0, 0, 0, udp.len() as u8, 17, 64];
    inner.extend([0xfe; 16]);
    inner.extend([0xfd; 16]);
    inner.extend(udp);
    let teredo = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(3544, &inner));
    assert!(gateway.receive(Side::Wire, &[teredo]).is_empty());
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 1);
}

#[test]
fn a_datagram_in_pieces_is_answered_for_it_is_in_no_tunnel() {
    let mut gateway = gateway("reject udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let datagram = udp_payload(99, b"xxxxxxxxevil");
    let (first, last) = datagram.split_at(16);
    let pieces =
        [(0x2000, first), (2, last)].map(|(flags, it)| ipv4(ATTACKER, VICTIM, 17, flags, it));
    let answer = only(Destination::Wire, gateway.receive(Side::Wire, &pieces));
    assert_eq!((answer.len(), &answer[0][34..36]), (1, &[3, 13][..]));
}

/// What was sent, each with its fields; checksums are right.
fn read(sent: Vec<(Destination, Sent)>) -> Vec<(Destination, Vec<u8>, Parsed)> {
    let read = |(to, Sent { bytes, .. }): (Destination, Sent)| {
        let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
        assert_eq!((parsed.fault, bytes.len()), (None, parsed.end as usize));
        assert_eq!(Sum::new().with(&bytes[14..34]).checksum(), 0);
        (to, bytes, parsed)
    };
    sent.into_iter().map(read).collect()
}

#[test]
fn a_reset_goes_to_the_ends_that_the_rule_names() {
    use Destination::{Host, Wire};
    let bad = segment(80, ACK | PSH, [1000, 2000], b"bad");
    // Source and destination, sequence, acknowledgment, flags.
    let to_sender = ([VICTIM, ATTACKER], (80, 12345), [2000, 0], RST);
    let to_receiver = ([ATTACKER, VICTIM], (12345, 80), [1000, 2000], RST | ACK);
    for (side, back, on) in [(Side::Wire, Wire, Host), (Side::Host, Host, Wire)] {
        for (action, expected) in [
            ("reject", vec![(back, to_sender)]),
            ("rejectsrc", vec![(back, to_sender)]),
            ("rejectdst", vec![(on, to_receiver)]),
            ("rejectboth", vec![(back, to_sender), (on, to_receiver)]),
        ] {
            let rule = format!("{action} tcp any any -> any 80 (content:\"bad\"; sid:1;)");
            let answers = read(gateway(&rule, |_| ()).receive(side, from_ref(&bad)));
            let found: Vec<_> = answers
                .iter()
                .map(|(to, bytes, parsed)| {
                    let Transport::Tcp { source, destination, sequence, acknowledgment, flags } =
                        parsed.transport
                    else {
                        panic!("{parsed:?}")
                    };
                    let pseudo = Sum::new().with_u16(6).with_u32(20).with(&bytes[26..34]);
                    assert_eq!(pseudo.with(&bytes[34..]).checksum(), 0);
                    let macs = [parsed.link.source.0, parsed.link.destination.0];
                    let is_back = *to == back;
                    assert_eq!(macs, if is_back { [HOST_A, HOST_B] } else { [HOST_B, HOST_A] });
                    let ends = [parsed.source, parsed.destination]
                        .map(|it| [it[12], it[13], it[14], it[15]]);
                    (*to, (ends, (source, destination), [sequence, acknowledgment], flags))
                })
                .collect();
            assert_eq!(found, expected, "{action} {side:?}");
        }
    }
}

#[test]
fn a_reset_of_a_syn_is_next_for_who_has_taken_another_copy() {
    let mut gateway = gateway("rejectdst tcp any any -> any 80 (flags:S; sid:1;)", |_| ());
    let answers = read(gateway.receive(Side::Wire, &[segment(80, SYN, [1000, 0], b"")]));
    let Transport::Tcp { sequence, flags, .. } = answers[0].2.transport else { panic!() };
    assert_eq!((answers.len(), sequence, flags), (1, 1001, RST));
}

#[test]
fn a_thousand_answers_a_second_are_given_and_the_others_counted() {
    let mut gateway = gateway("reject udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"evil"));
    let answered: usize =
        (0..1001).map(|_| gateway.receive(Side::Wire, from_ref(&evil)).len()).sum();
    let answers = gateway.engine.detection().unwrap().answers();
    assert_eq!((answered, answers), (1000, Answers { given: 1000, left_out: 1 }));
}

#[test]
fn icmp_tells_the_receiver_of_what_it_would_have_sent() {
    let mut gateway =
        gateway("rejectboth udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let evil = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil"));
    let answers = read(gateway.receive(Side::Wire, from_ref(&evil)));
    let destinations: Vec<_> = answers.iter().map(|it| it.0).collect();
    assert_eq!(destinations, [Destination::Wire, Destination::Host]);
    for (to, bytes, parsed) in answers {
        assert_eq!(bytes[34..36], [3, 13], "administratively prohibited");
        assert_eq!(Sum::new().with(&bytes[34..]).checksum(), 0);
        let (from, of) = match to {
            Destination::Wire => (VICTIM, ATTACKER),
            _ => (ATTACKER, VICTIM),
        };
        assert_eq!([&parsed.source[12..], &parsed.destination[12..]], [&from[..], &of[..]]);
        let quoted = &bytes[42..];
        assert_eq!(Sum::new().with(&quoted[..20]).checksum(), 0);
        assert_eq!([&quoted[12..16], &quoted[16..20]], [&of[..], &from[..]]);
        let ports = if of == ATTACKER { [12345, 99] } else { [99, 12345_u16] };
        assert_eq!(quoted[20..24], ports.map(u16::to_be_bytes).concat());
    }
}

#[test]
fn an_answer_to_the_far_end_is_sealed_as_the_packet_would_have_been() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let mut policy = a.engine.policy().clone();
    let rules = "rejectboth tcp any any -> any 80 (content:\"bad\"; sid:1;)";
    policy.rules = gateway(rules, |_| ()).engine.policy().rules.clone();
    a.engine.swap(policy, Associations::default()).unwrap();
    a.tick();
    let bad = segment(80, ACK | PSH, [1000, 2000], b"bad");
    let sent = a.receive(Side::Host, &[bad]);
    let [(Destination::Host, _), (Destination::Wire, sealed)] = &sent[..] else {
        panic!("{sent:?}")
    };
    let outer = parse(&sealed.bytes, Link::Ethernet, sealed.bytes.len() as u32);
    assert!(matches!(outer.transport, Transport::Esp { .. }));
    let arrived = read(b.receive(Side::Wire, from_ref(&sealed.bytes)));
    let Transport::Tcp { sequence, flags, .. } = arrived[0].2.transport else { panic!() };
    assert_eq!((arrived[0].0, sequence, flags), (Destination::Host, 1000, RST | ACK));
}

#[test]
fn nobody_is_told_where_the_gateway_itself_is_the_receiver() {
    let mut gateway = gateway("rejectdst udp any any -> any 99 (content:\"evil\"; sid:1;)", |_| ());
    let evil = ipv4(ATTACKER, OWN, 17, 0, &udp_payload(99, b"so evil"));
    assert!(gateway.receive(Side::Wire, &[evil]).is_empty());
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 1);
}

#[test]
fn no_group_is_answered_and_nobody_in_its_name() {
    let rules = "rejectboth ip any any -> any any (content:\"evil\"; sid:1;)";
    for (from, to) in [
        (ATTACKER, [224, 0, 0, 5]),
        (ATTACKER, [255; 4]),
        ([0; 4], VICTIM),
        ([127, 0, 0, 1], VICTIM),
        ([239, 1, 1, 1], VICTIM),
    ] {
        let mut gateway = gateway(rules, |_| ());
        let mut tcp = segment(80, PSH | ACK, [7, 1], b"so evil");
        tcp[26..30].copy_from_slice(&from);
        tcp[30..34].copy_from_slice(&to);
        tcp[24..26].fill(0);
        let sum = Sum::new().with(&tcp[14..34]).checksum();
        tcp[24..26].copy_from_slice(&sum.to_be_bytes());
        let udp = ipv4(from, to, 17, 0, &udp_payload(99, b"so evil"));
        assert!(gateway.receive(Side::Wire, &[tcp, udp]).is_empty(), "{from:?} {to:?}");
        assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 2);
    }
    // By its frame alone.
    let mut gateway = gateway(rules, |_| ());
    let mut tcp = segment(80, PSH | ACK, [7, 1], b"so evil");
    tcp[..6].fill(0xff);
    assert!(gateway.receive(Side::Wire, &[tcp]).is_empty());
}

#[test]
fn an_answer_within_a_session_of_pppoe_has_its_own_length() {
    for packet in [
        segment(80, PSH | ACK, [7, 1], b"so evil"),
        ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"so evil")),
    ] {
        let mut gateway =
            gateway("reject ip any any -> any any (content:\"evil\"; sid:1;)", |_| ());
        let mut framed = packet[..12].to_vec();
        framed.extend([0x88, 0x64, 0x11, 0, 0, 7]);
        framed.extend((packet.len() as u16 - 14 + 2).to_be_bytes());
        framed.extend([0, 0x21]);
        framed.extend(&packet[14..]);
        let answers = gateway.receive(Side::Wire, &[framed]);
        let [(_, answer)] = answers.as_slice() else { panic!("{} answers", answers.len()) };
        let answer = &answer.bytes;
        let [high, low] = [answer[18], answer[19]];
        assert_eq!(usize::from(u16::from_be_bytes([high, low])), answer.len() - 20);
        assert_eq!(answer[12..18], [0x88, 0x64, 0x11, 0, 0, 7]);
    }
}

/// A UDP packet with that text, to port 99 or from there.
fn datagram(from: [u8; 4], to: [u8; 4], port: u16, text: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(from, to, 17, 0, &udp_payload(port, text));
    packet[..12].copy_from_slice(&[GATEWAY_B, HOST_B].concat());
    packet
}

#[test]
fn a_host_is_answered_by_the_address_that_it_knows_a_client_by() {
    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const HOST: [u8; 4] = [10, 0, 0, 2];
    const MASQUERADE: [u8; 4] = [10, 0, 0, 77];
    let [mut client, mut b] = ends();
    let mut policy = b.engine.policy().clone();
    policy.masquerade = Some(MASQUERADE.into());
    let rules = "rejectboth udp any any -> any any (content:\"evil\"; sid:1;)";
    policy.rules = gateway(rules, |_| ()).engine.policy().rules.clone();
    b.engine.swap(policy, Associations::default()).unwrap();
    let question = only(Destination::Wire, b.tick());
    only(Destination::Punt, b.receive(Side::Wire, &[arp_answer(&question[0], GATEWAY_A)]));
    let asks = datagram(CLIENT, HOST, 99, b"hello");
    let sealed = only(Destination::Wire, client.receive(Side::Host, &[asks]));
    let asked = only(Destination::Host, b.receive(Side::Wire, &sealed));
    assert_eq!(asked[0][26..30], MASQUERADE);
    let port = u16::from_be_bytes([asked[0][34], asked[0][35]]);
    let says = datagram(HOST, MASQUERADE, port, b"evil");
    let answers = b.receive(Side::Host, &[says]);
    let [(Destination::Host, to_host), (Destination::Wire, to_client)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!([&to_host.bytes[26..30], &to_host.bytes[58..62]], [MASQUERADE; 2]);
    assert_eq!(to_host.bytes[64..66], port.to_be_bytes(), "the packet as the host sent it");
    let arrived = only(Destination::Host, client.receive(Side::Wire, from_ref(&to_client.bytes)));
    assert_eq!([&arrived[0][26..30], &arrived[0][30..34]], [HOST, CLIENT]);
}
