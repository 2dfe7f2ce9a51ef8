//! What tests in suricata-verify's format say of packets that are taken apart, and put together:
//! as Suricata 8.0.7 does it, which was asked.

use std::path::Path;

use serde_json::Value;

use crate::applications::write_capture;
use crate::verify::{frame, packet, segment, verified};

/// How often rules are to have alerted, and with what beside their number.
type Alerts<'a> = &'a [(u32, &'a str, u32)];

/// Runs one test of such frames; what fails.
fn failures(name: &str, frames: &[Vec<u8>], rules: &str, alerts: Alerts<'_>) -> Vec<Value> {
    let alerts = alerts.iter().map(|(sid, what, count)| {
        (format!("event_type: alert, alert.signature_id: {sid}{what}"), *count)
    });
    failing(name, "-k none", frames, rules, &alerts.collect::<Vec<_>>())
}

/// The same, of events of any kind, so many of each.
pub(crate) fn failing(
    name: &str,
    args: &str,
    frames: &[Vec<u8>],
    rules: &str,
    events: &[(String, u32)],
) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("decoding").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    write_capture(&folder.join("in.pcap"), frames);
    std::fs::write(folder.join("test.rules"), rules).unwrap();
    let inline = if name.ends_with("_ips") { "--simulate-ips" } else { "" };
    let filters = events
        .iter()
        .map(|(what, count)| format!("  - filter: {{count: {count}, match: {{{what}}}}}\n"));
    let test = format!("args: ['{args} {inline}']\nchecks:\n{}", filters.collect::<String>());
    std::fs::write(folder.join("test.yaml"), test).unwrap();
    let report = verified(&folder);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "{report:#}");
    cases.iter().filter(|it| it["result"] != "passed").cloned().collect()
}

/// The same, inline too.
fn both(name: &str, frames: &[Vec<u8>], rules: &str, alerts: Alerts<'_>) -> [Vec<Value>; 2] {
    [name.to_owned(), format!("{name}_ips")].map(|it| failures(&it, frames, rules, alerts))
}

const NONE: [Vec<Value>; 2] = [Vec::new(), Vec::new()];

pub(crate) fn datagram(ports: [u16; 2], length: u16, payload: &[u8]) -> Vec<u8> {
    let [from, to] = ports.map(u16::to_be_bytes);
    [&from[..], &to, &length.to_be_bytes(), &[0, 0], payload].concat()
}

/// A piece of a datagram of IPv4, from such an eighth of its bytes on.
pub(crate) fn piece(eighth: u8, more: bool, data: &[u8]) -> Vec<u8> {
    let mut piece = frame(17, [1, 2], data);
    let header = &mut piece[14..34];
    (header[6], header[7]) = (if more { 0x20 } else { 0 }, eighth);
    header[10..12].fill(0);
    let sum: u32 = header.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1])).sum();
    header[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    piece
}

#[test]
fn a_piece_has_no_ports_and_the_last_is_no_more_looked_at_than_the_whole() {
    let whole = datagram([1000, 53], 40, &[b'a'; 32]);
    let frames = [piece(0, true, &whole[..16]), piece(2, false, &whole[16..])];
    let rules = "alert udp any any -> any any (sid:1;)\n\
                 alert ip any any -> any any (fragoffset:>0; sid:2;)\n";
    let looked_at: Alerts<'_> = &[
        (1, ", src_port: 0, dest_port: 0", 2),
        (1, ", src_port: 1000, dest_port: 53", 1),
        (2, ", pcap_cnt: 2", 1),
    ];
    assert_eq!(both("pieces", &frames, rules, looked_at), NONE);
    let whole = "alert icmp any any -> any any (msg:\"all\"; sid:1;)\n";
    let mut echo = piece(0, true, &[8, 0, 0, 0, 0, 1, 0, 2]);
    (echo[23], echo[25]) = (1, echo[25].wrapping_add(16));
    assert_eq!(both("echo", &[echo], whole, &[(1, ", not-has-key: icmp_type", 1)]), NONE);
    let rules = &format!("{rules}drop udp any any -> any 53 (dsize:32; sid:3;)\n");
    let dropped: Alerts<'_> = &[(1, ", src_port: 0", 1), (1, ", src_port: 1000", 1), (2, "", 0)];
    assert_eq!(both("pieces_dropped", &frames, rules, dropped), NONE);
}

#[test]
fn no_more_is_seen_of_a_packet_than_suricata_takes_apart() {
    let inner = packet(17, [3, 4], &datagram([1000, 53], 18, b"weir weir!"));
    let in_frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], &inner[..]].concat();
    let udp = |port, head: &[u8], carried: &[u8]| {
        let payload = [head, carried].concat();
        frame(17, [1, 2], &datagram([port, port], 8 + payload.len() as u16, &payload))
    };
    let mut labelled = in_frame.clone();
    labelled.splice(12..14, [0x88, 0x47, 0, 0, 0x71, 64]);
    let datagram_of_few = datagram([9, 53], 12, b"weir");
    let with_options = |options: [u8; 4]| {
        let mut frame = frame(17, [1, 2], &[&options[..], &datagram_of_few].concat());
        frame[14] = 0x46;
        frame
    };
    let authenticated = [&[17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], &[0; 12][..], &inner[20..]];
    let six = [&[0x60, 0, 0, 0, 0, 18, 17, 64], &[0xfd; 32][..], &inner[20..]].concat();
    let rules = "alert ip any any -> any any (ttl:64; sid:1;)\n\
                 alert ip any any -> any any (content:\"weir\"; sid:2;)\n\
                 alert ip any any -> any any (dsize:0; sid:3;)\n\
                 alert ip any any -> any any (dsize:<1000; sid:4;)\n\
                 alert udp any any -> any 53 (sid:5;)\n";
    for (name, frame, [one, payload, none, some, port]) in [
        ("vxlan", udp(4789, &[8, 0, 0, 0, 0, 0, 5, 0], &in_frame), [2, 1, 0, 2, 1]),
        ("vxlan_of_nothing", udp(4789, &[8, 0, 0, 0, 0, 0, 5, 0], &[b'w'; 40]), [1, 0, 0, 1, 0]),
        ("geneve", udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 5, 0], &in_frame), [2, 1, 0, 2, 1]),
        ("teredo", udp(3544, &[], &six), [2, 1, 0, 2, 1]),
        ("teredo_named", udp(3544, &[&[0, 1][..], &[0; 11]].concat(), &six), [1, 1, 0, 1, 0]),
        ("igmp", frame(2, [1, 2], b"weir weir"), [1, 0, 1, 1, 0]),
        ("etherip", frame(97, [1, 2], &[&[0x30, 0], &in_frame[..]].concat()), [1, 0, 1, 1, 0]),
        ("six_in_four", frame(58, [1, 2], &[b'w'; 40]), [1, 0, 1, 1, 0]),
        ("authentication", frame(51, [1, 2], &authenticated.concat()), [1, 0, 1, 1, 0]),
        ("label", labelled, [0; 5]),
        ("options_that_end_nowhere", with_options([7, 32, 4, 0]), [0; 5]),
        ("options_that_are_wrong", with_options([7, 3, 5, 0]), [1, 1, 0, 1, 1]),
        ("too_long", frame(17, [1, 2], &datagram([9, 53], 99, b"weir")), [1, 0, 1, 1, 0]),
    ] {
        let alerts = [(1, "", one), (2, "", payload), (3, "", none), (4, "", some), (5, "", port)];
        assert_eq!(both(name, &[frame], rules, &alerts), NONE);
    }
}

#[test]
fn other_bytes_in_the_place_of_earlier_ones_are_told_as_by_suricata() {
    let rules = "alert tcp any any -> any any \
                 (stream-event:reassembly_overlap_different_data; sid:1;)\n";
    let said = |from: u32, to: u32, byte: u8| {
        segment(false, [10 + from, 21], 0x18, &vec![byte; (to - from) as usize])
    };
    let heard = |until: u32| segment(true, [21, 10 + until], 0x10, &[]);
    let begun = [
        segment(false, [10, 0], 0x02, &[]),
        segment(true, [20, 11], 0x12, &[]),
        segment(false, [11, 21], 0x10, &[]),
        said(1, 5, b'a'),
        said(5, 9, b'b'),
        said(9, 13, b'c'),
    ];
    let of_last = [(12, 13), (13, 15)];
    for (name, heard_until, parts, [watched, inline]) in [
        ("same_place", None, &[(5, 9)][..], [0, 1]),
        ("shorter", None, &[(5, 8)], [1, 1]),
        ("two_at_once", None, &[(5, 13)], [1, 1]),
        ("of_what_is_had", Some(13), &[(5, 8)], [0, 0]),
        ("of_all_that_is_had", Some(13), &[(5, 13)], [1, 1]),
        ("of_the_last_that_is_had", Some(13), &[(9, 13)], [0, 1]),
        ("of_some_that_is_had", Some(7), &[(6, 9)], [1, 1]),
        ("keeps_alive", None, &of_last, [0, 0]),
        ("keeps_alive_and_more", None, &[(12, 14)], [1, 1]),
    ] {
        let mut frames = begun.to_vec();
        frames.extend(heard_until.map(heard));
        frames.extend(parts.iter().map(|it| said(it.0, it.1, b'x')));
        frames.push(heard(17));
        for (name, count) in [(name.to_owned(), watched), (format!("{name}_ips"), inline)] {
            let stats = format!(
                "event_type: stats, stats.tcp.overlap: {inline}, \
                 stats.tcp.overlap_diff_data: {watched}"
            );
            let checks = [("event_type: alert".to_owned(), count), (stats, 1)];
            let failed = failing(&name, "-k none", &frames, rules, &checks);
            assert_eq!(failed, [Value::Null; 0], "{name}");
        }
    }
}

/// A segment with the checksum that it should have.
fn summed(mut segment: Vec<u8>) -> Vec<u8> {
    let length = (segment.len() - 34) as u32;
    let odd = [segment[26..].to_vec(), vec![0; segment.len() % 2]].concat();
    let halves = odd.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum: u32 = halves.sum::<u32>() + 6 + length;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    segment[50..52].copy_from_slice(&(!sum as u16).to_be_bytes());
    segment
}

/// What is odd about the beginning of a connection.
const ODD_BEGINNINGS: &str = "\
alert tcp any any -> any any (stream-event:3whs_synack_with_wrong_ack; sid:1;)
alert tcp any any -> any any (stream-event:fin_syn; sid:3;)
alert tcp any any -> any any (stream-event:3whs_wrong_seq_wrong_ack; sid:2;)
";

#[test]
fn a_connection_is_followed_from_an_answered_syn_on() {
    let ask = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let tell = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let asked = 11 + ask.len() as u32;
    let early = |option: &[u8]| {
        let mut syn = segment(false, [10, 0], 0x02, &[option, ask].concat());
        syn[46] = 0x50 + ((option.len() as u8) << 2);
        syn
    };
    let answer = |acknowledged| segment(true, [20, acknowledged], 0x12, &[]);
    let asks = segment(false, [11, 21], 0x18, ask);
    let rest = |said: &[Vec<u8>]| {
        let tells = [segment(true, [21, asked], 0x18, tell)];
        let heard = [segment(false, [asked, 21 + tell.len() as u32], 0x10, &[])];
        [said, &tells, &heard].concat()
    };
    let thanks = segment(false, [asked, 21], 0x10, &[]);
    // Its checksum is none.
    let wrong = segment(false, [10, 0], 0x02, &[]);
    let behind = rest(&[answer(11), asks.clone()]);
    let wrong = [vec![wrong], behind.into_iter().map(summed).collect()].concat();
    let unseen = "'flow.exception_policy[0].target': stream_midstream, \
                  'flow.exception_policy[0].policy'";
    let dropped = &format!("flow.action: drop, {unseen}: drop_flow");
    for (name, frames, flow, [http, events, inline_http]) in [
        ("early", rest(&[early(&[]), answer(asked), thanks.clone()]), "flow.state: new", [0, 1, 0]),
        (
            "early_again",
            rest(&[early(&[]), answer(11), asks.clone()]),
            "flow.state: established",
            [1, 0, 1],
        ),
        (
            "fast_open",
            rest(&[early(&[34, 2, 1, 1]), answer(asked), thanks]),
            "flow.state: established",
            [1, 0, 1],
        ),
        (
            "fast_open_again",
            rest(&[early(&[34, 2, 1, 1]), answer(11), asks.clone()]),
            "flow.state: established",
            [1, 0, 1],
        ),
        (
            "ends_at_once",
            rest(&[segment(false, [10, 0], 0x03, &[]), answer(11), asks.clone()]),
            unseen,
            [0, 0, 0],
        ),
        ("wrong", wrong, unseen, [0, 0, 0]),
    ] {
        let args = if name == "wrong" { "" } else { "-k none" };
        let watched = if flow == unseen { format!("{unseen}: ignore") } else { flow.to_owned() };
        let inline = if flow == unseen { dropped } else { flow };
        for (name, flow, http) in
            [(name.to_owned(), &*watched, http), (format!("{name}_ips"), inline, inline_http)]
        {
            let checks = [
                (format!("event_type: flow, {flow}"), 1),
                ("event_type: http".to_owned(), http),
                ("event_type: alert".to_owned(), events),
            ];
            let failed = failing(&name, args, &frames, ODD_BEGINNINGS, &checks);
            assert_eq!(failed, [Value::Null; 0], "{name}");
        }
    }
}

#[test]
fn a_connection_on_the_ports_of_another_and_what_is_refused_are_told_of() {
    let begun = |at: u32| {
        [
            segment(false, [at, 0], 0x02, &[]),
            segment(true, [20, at + 1], 0x12, &[]),
            segment(false, [at + 1, 21], 0x10, &[]),
        ]
    };
    let ended = [
        segment(false, [11, 21], 0x11, &[]),
        segment(true, [21, 12], 0x11, &[]),
        segment(false, [12, 22], 0x10, &[]),
    ];
    let frames = [&begun(10)[..], &ended, &begun(90_000)].concat();
    let told = [
        ("event_type: flow, flow.reason: tcp_reuse, tcp.state: closed".to_owned(), 1),
        ("event_type: flow, tcp.state: established".to_owned(), 1),
        ("event_type: stats, stats.flow.tcp_reuse: 1, stats.tcp.urg: 0".to_owned(), 1),
    ];
    let none = "alert udp any any -> any any (sid:1;)\n";
    assert_eq!(failing("reused", "-k none", &frames, none, &told), [Value::Null; 0]);
    // It is nowhere near what the client waits for, and points to urgent data.
    let refused = segment(true, [90_000, 0], 0x24, &[]);
    let frames = [&begun(10)[..], &[refused]].concat();
    let told = [
        ("event_type: flow, tcp.state: established, tcp.tcp_flags_tc: '36'".to_owned(), 1),
        ("event_type: stats, stats.tcp.urg: 1, stats.tcp.rst: 1".to_owned(), 1),
    ];
    for name in ["refused", "refused_ips"] {
        assert_eq!(failing(name, "-k none", &frames, none, &told), [Value::Null; 0], "{name}");
    }
}

/// A frame with such tags before its type.
fn tagged(tags: &[u8], mut frame: Vec<u8>) -> Vec<u8> {
    let bytes: Vec<u8> = tags.iter().flat_map(|it| [0x81, 0, 0, *it]).collect();
    frame.splice(12..12, bytes);
    frame
}

#[test]
fn layers_are_counted_as_by_suricata_and_what_is_deeper_is_not_looked_at() {
    let plain = || frame(17, [1, 2], &datagram([1000, 2000], 12, b"abcd"));
    let rules = "alert ip any any -> any any (sid:1;)\n\
                 alert pkthdr any any -> any any (decode-event:vlan.too_many_layers; sid:2;)\n";
    let alerts =
        |sid: u32, count: u32| (format!("event_type: alert, alert.signature_id: {sid}"), count);
    // Three tags are known, and one more hides what it stands before.
    for (tags, seen) in [(&[7, 9, 10][..], 1), (&[7, 9, 10, 11], 0)] {
        let events = [alerts(1, seen), alerts(2, 1 - seen)];
        let failed = failing("tags", "-k none", &[tagged(tags, plain())], rules, &events);
        assert_eq!(failed, Vec::<Value>::new(), "{tags:?}");
    }
    // The capture, the frame, each tag and the packet are one each.
    for (tags, most, seen) in [(&[][..], 3, 1), (&[], 2, 0), (&[7, 9], 5, 1), (&[7, 9], 4, 0)] {
        let args = format!("-k none --set decoder.max-layers={most}");
        let events = [alerts(1, seen)];
        let failed = failing("layers", &args, &[tagged(tags, plain())], rules, &events);
        assert_eq!(failed, Vec::<Value>::new(), "{tags:?} {most}");
    }
}

#[test]
fn what_icmp_carries_begins_behind_its_header_which_is_longer_for_some_types() {
    let message = |kind: u8, length: usize| {
        let mut message = vec![kind, 0, 0, 0, 1, 2, 0, 0];
        message.extend((b'a'..=b'z').take(length));
        frame(1, [1, 2], &message)
    };
    let rules = "alert icmp any any -> any any (content:\"a\"; sid:1;)\n\
                 alert icmp any any -> any any (content:\"m\"; depth:1; sid:2;)\n\
                 alert icmp any any -> any any (dsize:0; sid:3;)\n\
                 alert icmp any any -> any any (flow:to_server; sid:4;)\n\
                 alert icmp any any -> any any (flow:to_client; sid:5;)\n\
                 alert icmp any any -> any any (icmp_id:258; sid:6;)\n";
    // Of an echo and of times; a router's advertisement that is its header alone; an error, which
    // belongs to no flow, and has no number.
    let cases: [(&str, Vec<u8>, [u32; 6]); 4] = [
        ("echo", message(8, 20), [1, 0, 0, 1, 0, 1]),
        ("times", message(13, 20), [0, 1, 0, 1, 0, 1]),
        ("routers", message(9, 8), [0, 0, 1, 1, 0, 0]),
        ("error", message(3, 20), [1, 0, 0, 1, 0, 0]),
    ];
    for (name, frame, counts) in cases {
        let wanted: Vec<_> = counts.iter().zip(1..).map(|(count, sid)| (sid, "", *count)).collect();
        assert_eq!(failures(name, &[frame], rules, &wanted), Vec::<Value>::new(), "{name}");
    }
}
