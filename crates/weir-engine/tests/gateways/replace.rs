//! Texts that rules replace: in the packet that leaves, whose checksum is right.

use weir_engine::detect::RuleMode;
use weir_engine::plain::Blocks;
use weir_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};

use super::inline::{gateway, ipv4, vxlan};
use super::*;

const CLIENT: [u8; 4] = [192, 0, 2, 7];
const SERVER: [u8; 4] = [10, 1, 0, 1];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Where what IPv4 carries begins in these frames, and where IPv6's.
const BEHIND_V4: usize = 34;
const BEHIND_V6: usize = 54;

/// A header of TCP or UDP in front of `payload`, and the sum over all of it without a pseudo
/// header's.
fn transport(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0x9c, 0x40, 0, 99].to_vec();
    match protocol {
        TCP => bytes.extend([0, 0, 3, 0xe9, 0, 0, 0, 9, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]),
        _ => bytes.extend([(8 + payload.len() as u16).to_be_bytes(), [0, 0]].concat()),
    }
    bytes.extend(payload);
    bytes
}

fn checksum_at(protocol: u8) -> usize {
    if protocol == TCP { 16 } else { 6 }
}

fn pseudo(frame: &[u8], protocol: u8) -> Sum {
    let part = |from: usize, length: usize| &frame[from..from + length];
    match frame[12..14] {
        [8, 0] => {
            let length = (frame.len() - BEHIND_V4) as u16;
            let ends = [26, 30].map(|at| part(at, 4).try_into().unwrap());
            pseudo_header_v4(ends[0], ends[1], protocol, length)
        }
        _ => {
            let length = (frame.len() - BEHIND_V6) as u32;
            let ends: [[u8; 16]; 2] = [22, 38].map(|at| part(at, 16).try_into().unwrap());
            pseudo_header_v6(&ends[0], &ends[1], protocol, length)
        }
    }
}

fn behind(frame: &[u8]) -> usize {
    if frame[12..14] == [8, 0] { BEHIND_V4 } else { BEHIND_V6 }
}

/// Gives the frame's TCP or UDP its checksum.
fn signed(mut frame: Vec<u8>, protocol: u8) -> Vec<u8> {
    let at = behind(&frame);
    let field = at + checksum_at(protocol);
    frame[field..field + 2].fill(0);
    let checksum = pseudo(&frame, protocol).with(&frame[at..]).udp_checksum();
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    signed(ipv4(CLIENT, SERVER, protocol, 0, &transport(protocol, payload)), protocol)
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let carried = transport(protocol, payload);
    let mut frame = [HOST_A, HOST_B].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((carried.len() as u16).to_be_bytes());
    frame.extend([protocol, 64]);
    for last in [7, 1] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(carried);
    signed(frame, protocol)
}

fn is_right(frame: &[u8], protocol: u8) -> bool {
    pseudo(frame, protocol).with(&frame[behind(frame)..]).folded() == u16::MAX
}

/// The one frame that leaves.
fn passed(gateway: &mut Gateway, frame: Vec<u8>) -> Vec<u8> {
    let sent = gateway.receive(Side::Wire, &[frame]);
    let [(_, Sent { bytes, .. })] = &sent[..] else { panic!("{sent:?}") };
    bytes.clone()
}

fn replaced(gateway: &Gateway) -> [u64; 2] {
    gateway.engine.detection().unwrap().replaced()
}

const RULE: &str =
    "alert ip any any -> any any (content:\"evil\"; nocase; replace:\"good\"; sid:1;)";

#[test]
fn the_packet_leaves_with_the_new_text_and_a_right_checksum() {
    for (is_v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
        let frame =
            |protocol, text: &[u8]| if is_v6 { v6(protocol, text) } else { v4(protocol, text) };
        // At even and odd places, and at the end of an odd length.
        for text in ["evil", "xEvil", "xxevilx", "xxxeviL", "12345evil, evil"] {
            let mut gateway = gateway(RULE, |_| ());
            let arrived = passed(&mut gateway, frame(protocol, text.as_bytes()));
            let at = text.to_lowercase().find("evil").unwrap();
            let wanted = format!("{}good{}", &text[..at], &text[at + 4..]);
            assert_eq!(arrived, frame(protocol, wanted.as_bytes()), "{protocol} {text}");
            assert!(is_right(&arrived, protocol), "{protocol} {text}");
            assert_eq!(replaced(&gateway), [1, 0]);
            let harmless = frame(protocol, b"nothing to see");
            assert_eq!(passed(&mut gateway, harmless.clone()), harmless);
        }
    }
}

#[test]
fn a_checksum_that_is_wrong_absent_or_left_to_an_adapter_stays_so() {
    let mut gateway = gateway(RULE, |_| ());
    let mut wrong = v4(TCP, b"so evil");
    wrong[BEHIND_V4 + 16] ^= 0x55;
    assert!(!is_right(&passed(&mut gateway, wrong), TCP));
    let mut absent = v4(UDP, b"so evil");
    absent[BEHIND_V4 + 6..BEHIND_V4 + 8].fill(0);
    let arrived = passed(&mut gateway, absent);
    assert_eq!(arrived[BEHIND_V4 + 6..], *b"\0\0so good");
    // The sum of the pseudo header alone: whoever completes it sums up the new text.
    let mut partial = v4(TCP, b"so evil");
    let sum = pseudo(&partial, TCP).folded();
    partial[BEHIND_V4 + 16..BEHIND_V4 + 18].copy_from_slice(&sum.to_be_bytes());
    let (start, field) = (BEHIND_V4 as u16, BEHIND_V4 as u16 + 16);
    let checksum = Some(PartialChecksum { start, field });
    let offload = Offload { checksum, ..Offload::default() };
    let sent = gateway.receive_offloaded(Side::Host, &[Sent { bytes: partial, offload }]);
    let [(_, Sent { bytes, offload })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(bytes[BEHIND_V4 + 20..], *b"so good");
    match offload.checksum {
        Some(_) => assert_eq!(bytes[BEHIND_V4 + 16..BEHIND_V4 + 18], sum.to_be_bytes()),
        None => assert!(is_right(bytes, TCP)),
    }
}

#[test]
fn a_rule_replaces_where_all_of_it_matches_and_what_passes_before_it_stays() {
    let text = b"one two three two";
    let arrive = |rules: &str| passed(&mut gateway(rules, |_| ()), v4(UDP, text)).split_off(42);
    let rule = |options: &str| format!("alert udp any any -> any any ({options} sid:2;)");
    for (options, arrived) in [
        (r#"content:"two"; replace:"TWO"; offset:5;"#, "one two three TWO"),
        (r#"content:"two"; replace:"TWO"; content:"three"; replace:"drei!";"#, "one TWO drei! two"),
        (r#"content:"two"; replace:"TWO"; content:"four";"#, "one two three two"),
        (r#"content:"two"; replace:"TWO"; content:"|20|three"; within:6;"#, "one TWO three two"),
        (
            r#"content:"two"; content:"two"; distance:0; replace:"|00 22|\;";"#,
            "one two three \0\"\x3b",
        ),
    ] {
        assert_eq!(arrive(&rule(options)), arrived.as_bytes(), "{options}");
    }
    let replaces = rule(r#"content:"two"; replace:"TWO";"#);
    let pass = "pass udp any any -> any any (content:\"one\"; sid:1;)";
    assert_eq!(arrive(&format!("{replaces}\n{pass}")), text, "the one that lets pass is first");
    let other = r#"(content:"o three"; replace:"......."; sid:3;)"#;
    let both = format!("{replaces}\nalert udp any any -> any any {other}");
    assert_eq!(arrive(&both), b"one TW....... two", "the later rule counts where they overlap");
}

#[test]
fn nothing_is_replaced_where_rules_only_watch_and_for_who_is_spared() {
    let frame = || v4(TCP, b"so evil");
    let watches = |policy: &mut Policy| policy.rules.as_mut().unwrap().mode = RuleMode::Watch;
    let mut watching = gateway(RULE, watches);
    assert_eq!(passed(&mut watching, frame()), frame());
    let blocks = std::sync::Arc::new(Blocks::default());
    blocks.replace(&[], &[Prefix::new(IpAddr::from(CLIENT), 32)]);
    let mut sparing = gateway(RULE, |policy| policy.blocks = Some(blocks));
    assert_eq!(passed(&mut sparing, frame()), frame());
    assert_eq!([replaced(&watching), replaced(&sparing)], [[0, 0]; 2]);
}

#[test]
fn what_a_tunnel_carries_or_came_in_pieces_is_told_and_counted_as_it_is() {
    let mut gateway = gateway(RULE, |_| ());
    let carried = vxlan(&v4(UDP, b"so evil"));
    assert_eq!(passed(&mut gateway, carried.clone()), carried);
    let whole = transport(UDP, &[b"xxxxxxxxso evil ".as_slice(), &[b'x'; 16]].concat());
    let piece = |part: &[u8], word: u16| ipv4(CLIENT, SERVER, UDP, word, part);
    let pieces = [piece(&whole[..24], 0x2000), piece(&whole[24..], 3)];
    let arrived: Vec<_> =
        gateway.receive(Side::Wire, &pieces).into_iter().map(|it| it.1.bytes).collect();
    assert_eq!(arrived, pieces);
    // The tunnel's packet is looked at as well as what it carries.
    assert_eq!(replaced(&gateway), [0, 3]);
    let mut told = 0;
    gateway.engine.take_alerts(&mut |_, _| told += 1);
    assert_eq!(told, 3);
}

#[test]
fn a_segment_that_is_sent_again_is_replaced_again_and_one_text_over_two_only_told() {
    let rule = "alert tcp any any -> any 99 (content:\"evil\"; replace:\"good\"; sid:1;)";
    let mut gateway = gateway(rule, |_| ());
    let segment = |ahead: u32, payload: &[u8]| {
        let mut frame = v4(TCP, payload);
        frame[BEHIND_V4 + 4..BEHIND_V4 + 8].copy_from_slice(&(1001 + ahead).to_be_bytes());
        signed(frame, TCP)
    };
    let mut syn = segment(0, b"");
    syn[BEHIND_V4 + 4..BEHIND_V4 + 12].copy_from_slice(&[0, 0, 3, 0xe8, 0, 0, 0, 0]);
    syn[BEHIND_V4 + 13] = 2;
    passed(&mut gateway, signed(syn, TCP));
    for _ in 0..2 {
        assert_eq!(passed(&mut gateway, segment(0, b"an evil")), segment(0, b"an good"));
    }
    for (ahead, half) in [(7, b"  ev"), (11, b"il  ")] {
        assert_eq!(passed(&mut gateway, segment(ahead, half)), segment(ahead, half));
    }
    assert_eq!(replaced(&gateway), [2, 0]);
    let mut told = 0;
    gateway.engine.take_alerts(&mut |_, _| told += 1);
    assert_eq!(told, 3, "the text over two segments too");
}

#[test]
fn what_rdma_carries_is_told_and_stays_for_its_icrc() {
    // A SEND of one packet.
    let bth = [4, 0, 0xff, 0xff, 0, 0, 0, 0x17, 0, 0, 0, 9];
    let datagram = [&bth[..], b"so evil.", &[0; 4]].concat();
    let mut packet = [[0xc0, 1], [0x12, 0xb7]].concat();
    packet.extend([(8 + datagram.len() as u16).to_be_bytes(), [0, 0]].concat());
    packet.extend(datagram);
    let packet = ipv4(CLIENT, SERVER, UDP, 0, &packet);
    let rule = "alert udp any any -> any any (content:\"evil\"; replace:\"good\"; sid:1;)";
    let mut gateway = gateway(rule, |_| ());
    assert_eq!(passed(&mut gateway, packet.clone()), packet);
    assert_eq!(replaced(&gateway), [0, 1]);
}
