//! What a receiver does not take hides nothing that it reads (RFC 9293 s3.10.7.4, RFC 7323 s5.3),
//! and what it takes early is looked at (RFC 7413).

use weir_detect::{Decision, Direction, Limits};
use weir_wire::checksum::Sum;

use crate::bench::{Bench, CLIENT, SERVER, udp};

const RULE: &str = "alert tcp any any -> any any (flow:established,to_server; \
                    content:\"attack\"; sid:1;)";
const SYN: u8 = 2;
const ACK: u8 = 16;
const SHIFT_0: &[u8] = &[3, 3, 0, 1];

/// Numbers of a segment.
#[derive(Clone, Copy)]
struct At {
    sequence: u32,
    acknowledgment: u32,
    window: u16,
}

const fn at(sequence: u32, acknowledgment: u32) -> At {
    At { sequence, acknowledgment, window: 1000 }
}

fn timestamps(value: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat()
}

fn send(
    bench: &mut Bench,
    side: Direction,
    flags: u8,
    at: At,
    options: &[u8],
    payload: &[u8],
) -> Decision {
    let (client, server) = ((CLIENT, 40_000_u16), (SERVER, 80_u16));
    let (from, to) = if side == Direction::Initiator { (client, server) } else { (server, client) };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((40 + options.len() as u16 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([from.0, to.0].concat());
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    frame.extend([at.sequence.to_be_bytes(), at.acknowledgment.to_be_bytes()].concat());
    frame.extend([(5 + options.len() as u8 / 4) << 4, flags]);
    frame.extend(at.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(options);
    frame.extend(payload);
    bench.send(side, &frame)
}

fn client(bench: &mut Bench, at: At, options: &[u8], payload: &[u8]) -> Decision {
    send(bench, Direction::Initiator, ACK, at, options, payload)
}

/// A connection whose sides begin at 1000 and 5000 and have room for 1000 bytes.
fn connected(limits: Limits, options: &[u8]) -> Bench {
    let mut bench = Bench::with(RULE, limits);
    send(&mut bench, Direction::Initiator, SYN, at(1000, 0), options, b"");
    send(&mut bench, Direction::Responder, SYN | ACK, at(5000, 1001), options, b"");
    client(&mut bench, at(1001, 5001), options, b"");
    bench
}

#[test]
fn data_with_numbers_that_no_receiver_takes_stand_for_none_of_the_stream() {
    let stamped = timestamps(500);
    for (what, options, bad, bad_options) in [
        ("acknowledges what was not sent", SHIFT_0, at(1001, 5002), SHIFT_0),
        ("acknowledges what was long before", SHIFT_0, at(1001, 2000), SHIFT_0),
        ("is older than what came before", &stamped, at(1001, 5001), &timestamps(498)),
    ] {
        let limits = Limits { sees_all: true, ..Limits::default() };
        let mut bench = connected(limits, options);
        client(&mut bench, bad, bad_options, b"xxx");
        client(&mut bench, at(1001, 5001), options, b"att");
        client(&mut bench, at(1004, 5001), options, b"ack");
        assert_eq!(bench.alerted(), [1], "{what}");
        assert_eq!(bench.detector.counters().unacceptable_segments, 1, "{what}");
    }
}

#[test]
fn a_timestamp_that_means_nothing_to_the_receiver_hides_nothing() {
    let (early, late) = (timestamps(5), timestamps(1 << 30));
    let stamped = timestamps(1000);
    let broken = [&[2, 0, 0, 0][..], &timestamps(3)].concat();
    for (what, options, first, then) in [
        ("not agreed", SHIFT_0, (ACK, at(1001, 5001), late.as_slice(), ""), early.as_slice()),
        ("without acknowledgment", &stamped, (8, at(1001, 5001), &late, "x"), &stamped),
        ("a repetition", &stamped, (ACK, at(1000, 5001), &late, ""), &stamped),
        ("behind a broken option", &stamped, (ACK, at(1001, 5001), &stamped, ""), &broken),
        ("older by one", &stamped, (ACK, at(1001, 5001), &stamped, ""), &timestamps(999)),
    ] {
        let mut bench = connected(Limits::default(), options);
        let (flags, place, options, payload) = first;
        send(&mut bench, Direction::Initiator, flags, place, options, payload.as_bytes());
        client(&mut bench, at(1001, 5001), then, b"att");
        client(&mut bench, at(1004, 5001), then, b"ack");
        assert_eq!(bench.alerted(), [1], "{what}");
    }
}

#[test]
fn data_behind_the_receivers_window_are_none_of_the_stream_until_it_opens() {
    let mut bench = connected(Limits::default(), SHIFT_0);
    client(&mut bench, at(2001, 5001), SHIFT_0, b"xxxxxx");
    client(&mut bench, at(1001, 5001), SHIFT_0, &[b'.'; 1000]);
    send(&mut bench, Direction::Responder, ACK, at(5001, 2001), SHIFT_0, b"");
    client(&mut bench, at(2001, 5001), SHIFT_0, b"attack");
    assert_eq!(bench.alerted(), [1]);
    assert_eq!(bench.detector.counters().unacceptable_segments, 1);
}

#[test]
fn what_is_left_out_of_the_stream_is_looked_at_as_a_packet() {
    let mut bench = connected(Limits { sees_all: true, ..Limits::default() }, SHIFT_0);
    client(&mut bench, at(1001, 5002), SHIFT_0, b"attack");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn who_watches_a_capture_believes_acknowledgments_of_what_it_missed() {
    let mut bench = connected(Limits::default(), SHIFT_0);
    client(&mut bench, at(1001, 5901), SHIFT_0, b"att");
    client(&mut bench, at(1004, 5901), SHIFT_0, b"ack");
    assert_eq!(bench.alerted(), [1]);
    assert_eq!(bench.detector.counters().unacceptable_segments, 0);
}

#[test]
fn of_several_beginnings_the_one_counts_that_the_server_answers() {
    for (syns, answered) in [([1000, 700_000], 1000), ([700_000, 1000], 1000)] {
        let mut bench = Bench::new(RULE);
        for syn in syns {
            send(&mut bench, Direction::Initiator, SYN, at(syn, 0), SHIFT_0, b"");
        }
        send(&mut bench, Direction::Responder, SYN | ACK, at(5000, answered + 1), SHIFT_0, b"");
        // No server answers that any more.
        send(&mut bench, Direction::Initiator, SYN, at(90_000, 0), SHIFT_0, b"");
        client(&mut bench, at(answered + 1, 5001), SHIFT_0, b"att");
        client(&mut bench, at(answered + 4, 5001), SHIFT_0, b"ack");
        assert_eq!(bench.alerted(), [1], "{syns:?}");
    }
}

#[test]
fn of_several_answers_the_one_counts_that_the_client_takes() {
    let rule = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)";
    for (others, before) in [(8000, true), (8000, false), (4_000_000_000, true)] {
        for acknowledged in [1001, 6001] {
            let mut bench = Bench::new(rule);
            let answer = |bench: &mut Bench, at: At| {
                send(bench, Direction::Responder, SYN | ACK, at, SHIFT_0, b"");
            };
            send(&mut bench, Direction::Initiator, SYN, at(1000, 0), SHIFT_0, b"");
            answer(&mut bench, at(5000, 1001));
            if before {
                answer(&mut bench, at(others, acknowledged));
            }
            client(&mut bench, at(1001, 5001), SHIFT_0, b"");
            if !before {
                answer(&mut bench, at(others, acknowledged));
            }
            client(&mut bench, at(1001, 5001), SHIFT_0, b"att");
            client(&mut bench, at(1004, 5001), SHIFT_0, b"ack");
            for (at, said) in [(at(5001, 1007), b"att"), (at(5004, 1007), b"ack")] {
                send(&mut bench, Direction::Responder, ACK, at, SHIFT_0, said);
            }
            assert_eq!(bench.alerted(), [1, 1], "{others} {before} {acknowledged}");
        }
    }
}

#[test]
fn a_server_that_knows_a_connection_no_longer_begins_another() {
    let mut bench = connected(Limits::default(), SHIFT_0);
    client(&mut bench, at(1001, 5001), SHIFT_0, b"before");
    send(&mut bench, Direction::Initiator, SYN, at(900_000, 0), SHIFT_0, b"");
    send(&mut bench, Direction::Responder, SYN | ACK, at(8000, 900_001), SHIFT_0, b"");
    client(&mut bench, at(900_001, 8001), SHIFT_0, b"att");
    client(&mut bench, at(900_004, 8001), SHIFT_0, b"ack");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn data_with_a_syn_are_part_of_the_stream_where_the_server_takes_them() {
    const COOKIE: &[u8] = &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
    const NONE: &[u8] = &[34, 2, 1, 1];
    for (what, options, early, acknowledged, then) in [
        ("taken", COOKIE, "att", 1004, "ack"),
        ("all of it", COOKIE, "attack", 1007, ""),
        ("not taken: it comes again", COOKIE, "xxx", 1001, "attack"),
        ("asks for a cookie: not taken", NONE, "xxx", 1001, "attack"),
    ] {
        let mut bench = Bench::new(RULE);
        let syn = at(1000, 0);
        send(&mut bench, Direction::Initiator, SYN, syn, options, early.as_bytes());
        let answer = at(5000, acknowledged);
        send(&mut bench, Direction::Responder, SYN | ACK, answer, SHIFT_0, b"");
        for (index, byte) in then.bytes().enumerate() {
            client(&mut bench, at(acknowledged + index as u32, 5001), SHIFT_0, &[byte]);
        }
        assert_eq!(bench.alerted(), [1], "{what}");
    }
}

#[test]
fn bytes_behind_a_datagrams_length_are_none_of_its_payload() {
    let rules = "alert udp any any -> any any (content:\"TRAIL\"; sid:1;)\n\
                 alert udp any any -> any any (dsize:8; content:\"abcd\"; endswith; sid:2;)\n\
                 alert udp any any -> any any (udpv4-csum:valid; sid:3;)";
    let mut bench = Bench::new(rules);
    let mut frame = udp(CLIENT, SERVER, 40_000, 53, b"evilabcd");
    frame.extend(b"TRAIL");
    let length = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    let sum = weir_wire::checksum::pseudo_header_v4(CLIENT, SERVER, 17, 16);
    frame[40..42].fill(0);
    let checksum = sum.with(&frame[34..50]).udp_checksum();
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    bench.send(Direction::Initiator, &frame);
    let mut alerted = bench.alerted();
    alerted.sort_unstable();
    assert_eq!(alerted, [2, 3]);
}

/// A segment of IPv6 whose checksum is over other addresses than its header's.
fn routed(kind: u8, extension: &[u8], ends: [[u8; 16]; 2], summed: [[u8; 16]; 2]) -> Vec<u8> {
    let mut tcp = [40_000_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat();
    tcp.extend([0; 8]);
    tcp.extend([0x50, ACK, 4, 0, 0, 0, 0, 0]);
    tcp.extend(b"attack");
    let sum = weir_wire::checksum::Sum::new().with(&summed.concat());
    let checksum = sum.with_u16(6).with_u32(tcp.len() as u32).with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend(((extension.len() + tcp.len()) as u16).to_be_bytes());
    frame.extend([kind, 64]);
    frame.extend([ends.concat(), extension.to_vec(), tcp].concat());
    frame
}

#[test]
fn a_checksum_is_over_the_last_hop_of_a_route_and_the_home_of_who_is_away() {
    const ROUTING: u8 = 43;
    const OPTIONS: u8 = 60;
    let [from, to, other] = [1, 2, 9].map(|last| {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, last);
        address
    });
    let route = |kind, left| [&[6, 2, kind, left, 0, 0, 0, 0][..], &other].concat();
    let home = [&[6, 2, 1, 2, 0, 0, 0xc9, 16][..], &other].concat();
    for (what, kind, extension, summed, wrong) in [
        ("segment routing", ROUTING, route(4, 1), [from, other], 0),
        ("over the next hop", ROUTING, route(4, 1), [from, to], 0),
        ("at its last hop", ROUTING, route(4, 0), [from, other], 1),
        ("mobile", ROUTING, route(2, 1), [from, other], 0),
        ("away from home", OPTIONS, home.clone(), [other, to], 0),
        ("over neither", OPTIONS, home, [from, other], 1),
    ] {
        let limits = Limits { checks_segments: true, ..Limits::default() };
        let mut bench = Bench::with(RULE, limits);
        bench.send(Direction::Initiator, &routed(kind, &extension, [from, to], summed));
        assert_eq!(bench.detector.counters().wrong_checksums, wrong, "{what}");
    }
}

/// Where all comes by here, what comes with a SYN is looked at as what the server may take, which
/// some do without a cookie (Linux: tcp_fastopen 0x200); its answer tells.
#[test]
fn what_comes_with_a_syn_counts_if_the_answer_acknowledges_it() {
    let limits = Limits { sees_all: true, ..Limits::default() };
    for (early, acknowledged, then) in [("att", 1004, "ack"), ("xxx", 1001, "attack")] {
        let mut bench = Bench::with(RULE, limits);
        send(&mut bench, Direction::Initiator, SYN, at(1000, 0), &[], early.as_bytes());
        send(&mut bench, Direction::Responder, SYN | ACK, at(5000, acknowledged), &[], b"");
        client(&mut bench, at(acknowledged, 5001), &[], b"");
        client(&mut bench, at(acknowledged, 5001), &[], then.as_bytes());
        assert_eq!(bench.alerted(), [1], "{early}");
    }
}

#[test]
fn what_comes_with_a_syn_in_a_connection_counts_for_nothing() {
    for (flags, acknowledged) in [(SYN, 0), (SYN | ACK, 5001)] {
        let limits = Limits { sees_all: true, ..Limits::default() };
        let mut bench = connected(limits, SHIFT_0);
        let place = at(1000, acknowledged);
        send(&mut bench, Direction::Initiator, flags, place, SHIFT_0, b"xxxxxx");
        client(&mut bench, at(1001, 5001), SHIFT_0, b"att");
        client(&mut bench, at(1004, 5001), SHIFT_0, b"ack");
        assert_eq!(bench.alerted(), [1], "{flags}");
    }
}

#[test]
fn what_comes_with_the_servers_syn_counts_if_the_client_acknowledges_it() {
    let rule = RULE.replace("to_server", "to_client");
    let limits = Limits { sees_all: true, ..Limits::default() };
    for (early, acknowledged, then) in [("att", 5004, "ack"), ("xxx", 5001, "attack")] {
        let mut bench = Bench::with(&rule, limits);
        send(&mut bench, Direction::Initiator, SYN, at(1000, 0), &[], b"");
        send(&mut bench, Direction::Responder, SYN | ACK, at(5000, 1001), &[], early.as_bytes());
        client(&mut bench, at(1001, acknowledged), &[], b"");
        let place = at(acknowledged, 1001);
        send(&mut bench, Direction::Responder, ACK, place, &[], then.as_bytes());
        assert_eq!(bench.alerted(), [1], "{early}");
    }
}

/// Which SYN reached the server, and what it took, is known when it answers: too late for rules.
#[test]
fn syns_of_which_one_has_data_and_that_differ_are_refused() {
    for (what, first, second, passes) in [
        ("again", (1000, "attack"), (1000, "attack"), true),
        ("again without its data", (1000, "attack"), (1000, ""), true),
        ("another without data", (1000, ""), (3000, ""), true),
        ("another without data behind some", (1000, "xxx"), (3000, ""), true),
        ("the same with data now", (1000, ""), (1000, "attack"), true),
        ("longer", (1000, "att"), (1000, "attack"), false),
        ("shorter", (1000, "attack"), (1000, "att"), false),
        ("other data", (1000, "xxxxxx"), (1000, "attack"), false),
        ("another behind it", (900, "xxx"), (1000, "attack"), false),
        ("another behind it without data", (995, "xxxxx"), (1000, ""), false),
        ("another with data", (1000, ""), (995, "xxxxx"), false),
    ] {
        let mut bench = Bench::with(RULE, INLINE());
        let mut syn = |(number, data): (u32, &str)| {
            let place = at(number, 0);
            send(&mut bench, Direction::Initiator, SYN, place, &[], data.as_bytes())
        };
        assert_eq!(syn(first), Decision::Pass, "{what}");
        assert_eq!(syn(second) == Decision::Pass, passes, "{what}");
    }
}

#[test]
fn a_syn_with_data_in_a_connection_is_refused() {
    let mut bench = connected(INLINE(), SHIFT_0);
    client(&mut bench, at(1001, 5001), SHIFT_0, b"att");
    for (number, data, passes) in [(9000, "xxx", false), (1000, "xxx", false), (9000, "", true)] {
        let place = at(number, 0);
        let judged = send(&mut bench, Direction::Initiator, SYN, place, SHIFT_0, data.as_bytes());
        assert_eq!(judged == Decision::Pass, passes, "{number} {data}");
    }
    client(&mut bench, at(1004, 5001), SHIFT_0, b"ack");
    assert_eq!(bench.alerted(), [1]);
}

/// A probe of a closed window, which meets it as it opens: the acknowledgment says that it was
/// taken.
#[test]
fn a_byte_for_which_there_seemed_to_be_no_room_counts_once_it_is_acknowledged() {
    for (acknowledged, then) in [(2002, "ttack"), (2001, "attack")] {
        let mut bench = connected(Limits::default(), SHIFT_0);
        client(&mut bench, at(1001, 5001), SHIFT_0, &[b'.'; 1000]);
        client(&mut bench, at(2001, 5001), SHIFT_0, b"a");
        let place = at(5001, acknowledged);
        send(&mut bench, Direction::Responder, ACK, place, SHIFT_0, b"");
        client(&mut bench, at(acknowledged, 5001), SHIFT_0, then.as_bytes());
        assert_eq!(bench.alerted(), [1], "{then}");
    }
}

const INLINE: fn() -> Limits =
    || Limits { sees_all: true, refuses_conflicts: true, ..Limits::default() };

/// Which of two probes met the window as it opened, nobody knows.
#[test]
fn probes_of_a_closed_window_that_differ_are_refused() {
    let mut bench = connected(INLINE(), SHIFT_0);
    client(&mut bench, at(1001, 5001), SHIFT_0, &[b'.'; 1000]);
    for (byte, passes) in [(b"x", true), (b"a", false), (b"x", true)] {
        let probe = client(&mut bench, at(2001, 5001), SHIFT_0, byte);
        assert_eq!(probe == Decision::Pass, passes, "{byte:?}");
    }
}

/// The window opens, or the server says what was acknowledged, before they arrive.
#[test]
fn data_that_their_receiver_may_take_a_moment_later_are_refused() {
    let mut bench = connected(INLINE(), SHIFT_0);
    client(&mut bench, at(1001, 5001), SHIFT_0, &[b'.'; 1000]);
    for (place, data, passes) in [
        (at(2001, 5001), &b"attac"[..], false),
        (at(2002, 5001), b"t", false),
        (at(2001, 5001), b"", true),
        (at(1500, 5004), b".....", false),
        (at(2001, 5001), b"a", true),
        (at(1500, 5001), b".....", true),
    ] {
        let judged = client(&mut bench, place, SHIFT_0, data);
        assert_eq!(judged == Decision::Pass, passes, "{data:?}");
    }
    send(&mut bench, Direction::Responder, ACK, at(5001, 2002), SHIFT_0, b"tick");
    assert_eq!(client(&mut bench, at(2002, 5005), SHIFT_0, b"ttack"), Decision::Pass);
    assert_eq!(bench.alerted(), [1]);
}

/// It says where a byte is that comes later.
#[test]
fn urgency_is_refused_without_data_and_with_a_pointer_to_nothing() {
    const URG: u8 = 32;
    for side in [Direction::Initiator, Direction::Responder] {
        let mut bench = connected(INLINE(), SHIFT_0);
        let place = if side == Direction::Initiator { at(1001, 5001) } else { at(5001, 1001) };
        let odd = send(&mut bench, side, ACK | URG, place, SHIFT_0, b"");
        assert!(matches!(odd, Decision::Unseen(_)), "{odd:?}");
    }
}

#[test]
fn what_is_refused_tells_no_timestamp() {
    let mut bench = connected(INLINE(), &timestamps(100));
    client(&mut bench, at(1001, 5001), &timestamps(101), b"GET ");
    // Other bytes in their place, from far ahead.
    let decoy = client(&mut bench, at(1001, 5001), &timestamps(1 << 30), b"PUT ");
    assert!(matches!(decoy, Decision::Unseen(_)), "{decoy:?}");
    client(&mut bench, at(1005, 5001), &timestamps(102), b"attack");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn inline_data_that_are_older_than_what_went_before_go_no_further() {
    let mut bench = connected(INLINE(), &timestamps(100));
    client(&mut bench, at(1001, 5001), &timestamps(1 << 30), b"a");
    let old = client(&mut bench, at(1002, 5001), &timestamps(101), b"attack");
    assert!(matches!(old, Decision::Unseen(_)), "what told the newer one may not have arrived");
}

#[test]
fn the_first_piece_of_a_datagram_is_no_segment() {
    let mut bench = Bench::with(
        "drop http any any -> any any (http.uri; content:\"/attack\"; sid:1;)",
        INLINE(),
    );
    bench.connect();
    bench.client(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    const FIN: u8 = 1;
    bench.forged(FIN | ACK, b"", |frame| {
        // More fragments, and may be fragmented.
        frame[20] = 0x20;
        frame[24..26].fill(0);
        let checksum = Sum::new().with(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    });
    bench.client(b"GET /attack HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn an_end_that_may_not_have_arrived_ends_no_look() {
    let mut bench = Bench::with(
        "drop http any any -> any any (http.uri; content:\"/attack\"; sid:1;)\n\
         drop:packet tcp any any -> any any (flags:F+; dsize:4; sid:2;)",
        INLINE(),
    );
    bench.connect();
    bench.client(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    const FIN: u8 = 1;
    bench.tcp(Direction::Initiator, FIN | ACK, b"GET ");
    assert_eq!(bench.alerted(), [2]);
    bench.client(b"GET /attack HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(bench.alerted(), [1]);
}

#[test]
fn what_comes_with_a_reset_is_looked_at_by_itself() {
    let rules = "alert tcp any any -> any any (content:\"Denied\"; sid:1;)\n\
                 alert tcp-stream any any -> any any (content:\"Denied\"; sid:2;)\n\
                 alert tcp-pkt any any -> any any (content:\"Denied\"; sid:3;)\n\
                 alert tcp any any -> any any (content:\"Access Denied\"; sid:4;)\n\
                 alert tcp any any -> any any (flow:only_stream; content:\"Denied\"; sid:5;)";
    let mut bench = Bench::new(rules);
    bench.connect();
    bench.client(b"Access ");
    bench.tcp(Direction::Initiator, 0x14, b"Denied");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
}
