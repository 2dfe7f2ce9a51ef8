//! RDMA as a protocol of rules.

use weir_detect::{Decision, Direction, Limits, Unseen};
use weir_wire::icrc::IcrcStatus;

use crate::bench::{Bench, CLIENT, SECOND, SERVER, refused, roce, udp};

/// The sids that match one RoCE packet.
fn of_packet(rules: &str, frame: &[u8]) -> Vec<u32> {
    let mut bench = Bench::new(rules);
    bench.send(Direction::Initiator, frame);
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

const RETH: [u8; 16] = [0, 0, 0, 0, 0, 0, 0x10, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 8];

#[test]
fn an_operation_is_dropped_by_its_opcode_and_others_pass() {
    let mut bench =
        Bench::new("drop rdma any any -> any any (msg:\"READ\"; rdma.opcode:read_request; sid:2;)");
    let read = roce(0x0c, 7, 1, &RETH);
    let send = roce(0x04, 7, 2, b"hello ok");
    assert!(matches!(bench.send(Direction::Initiator, &read), Decision::Drop { .. }));
    assert_eq!(bench.send(Direction::Initiator, &send), Decision::Pass);
    assert!(matches!(bench.send(Direction::Initiator, &read), Decision::Drop { .. }));
    assert_eq!(bench.alerted(), [2, 2]);
}

#[test]
fn fields_of_the_transport_headers_are_compared() {
    let rules = "alert rdma any any -> any any (rdma.opcode:0x0c; sid:1;)\n\
                 alert rdma any any -> any any (rdma.opcode:!read_request; sid:2;)\n\
                 alert rdma any any -> any any (rdma.dest_qp:7; sid:3;)\n\
                 alert rdma any any -> any any (rdma.dest_qp:>7; sid:4;)\n\
                 alert rdma any any -> any any (rdma.rkey:0xdeadbeef; sid:5;)\n\
                 alert rdma any any -> any any (rdma.length:8; sid:6;)\n\
                 alert rdma any any -> any any (rdma.psn:5; sid:7;)\n\
                 alert rdma any any -> any any (rdma.pkey:0xffff; sid:8;)\n\
                 alert rdma any any -> any any (rdma.qkey:0x11111111; sid:9;)\n\
                 alert rdma any any -> any any (rdma.icrc:invalid; sid:10;)\n\
                 alert rdma any any -> any any (rdma.icrc:valid; sid:11;)\n\
                 alert rdma any any -> any any (rdma.syndrome:nak; sid:12;)";
    assert_eq!(of_packet(rules, &roce(0x0c, 7, 5, &RETH)), [1, 3, 5, 6, 7, 8, 10]);
}

#[test]
fn a_datagram_has_a_source_queue_pair_and_a_nak_a_syndrome() {
    let rules = "alert rdma any any -> any any (rdma.src_qp:9; rdma.qkey:0x11111111; sid:1;)\n\
                 alert rdma any any -> any any (rdma.syndrome:nak; sid:2;)\n\
                 alert rdma any any -> any any (rdma.syndrome:0x62; sid:3;)";
    let deth = [0x11, 0x11, 0x11, 0x11, 0, 0, 0, 9];
    assert_eq!(of_packet(rules, &roce(0x64, 7, 5, &deth)), [1]);
    assert_eq!(of_packet(rules, &roce(0x11, 7, 5, &[0x62, 0, 0, 1])), [2, 3]);
    assert_eq!(of_packet(rules, &roce(0x11, 7, 5, &[0x1f, 0, 0, 1])), []);
}

/// Requests of an extended reliable connection have an XRCETH behind the BTH, its answers none.
#[test]
fn extended_reliable_connections_have_the_fields_of_reliable_ones() {
    let rules = "alert rdma any any -> any any (rdma.opcode:read_request; sid:1;)\n\
                 alert rdma any any -> any any (rdma.opcode:rc_rdma_read_request; sid:2;)\n\
                 alert rdma any any -> any any (rdma.opcode:xrc_rdma_read_request; sid:3;)\n\
                 alert rdma any any -> any any (rdma.rkey:0xdeadbeef; rdma.length:8; sid:4;)\n\
                 alert rdma any any -> any any (rdma.syndrome:0x62; sid:5;)\n\
                 alert rdma any any -> any any (rdma.opcode:atomic; rdma.rkey:7; sid:6;)\n\
                 alert rdma any any -> any any (content:\"hello\"; depth:5; sid:7;)";
    let behind = |header: &[u8], rest: &[u8]| [&[0, 0, 0, 5], header, rest].concat();
    assert_eq!(of_packet(rules, &roce(0xac, 7, 5, &behind(&RETH, b""))), [1, 3, 4]);
    assert_eq!(of_packet(rules, &roce(0xb1, 7, 5, &[0x62, 0, 0, 1])), [5]);
    let atomic = [&[0; 8][..], &7_u32.to_be_bytes(), &[0; 16]].concat();
    assert_eq!(of_packet(rules, &roce(0xb4, 7, 5, &behind(&atomic, b""))), [6]);
    assert_eq!(of_packet(rules, &roce(0xaa, 7, 5, &behind(&RETH, b"hello ok"))), [4, 7]);
    assert_eq!(of_packet(rules, &roce(0xa4, 7, 5, &behind(b"", b"hello ok"))), [7]);
    assert_eq!(of_packet(rules, &roce(0xb0, 7, 5, b"\0\0\0\x01hello ok")), [7], "a response");
}

#[test]
fn contents_are_looked_for_in_the_payload_of_the_operation() {
    let rules = "alert rdma any any -> any any (content:\"hello\"; depth:5; sid:1;)\n\
                 alert rdma any any -> any any (rdma.opcode:send; content:\"ok\"; endswith; \
                 sid:2;)\n\
                 alert udp any any -> any 4791 (content:\"hello\"; sid:3;)";
    assert_eq!(of_packet(rules, &roce(0x04, 7, 2, b"hello ok")), [1, 2, 3]);
}

// Packets of reliable connections by their place in the message.
const SEND_FIRST: u8 = 0x00;
const SEND_MIDDLE: u8 = 0x01;
const SEND_LAST: u8 = 0x02;
const SEND_ONLY: u8 = 0x04;
const WRITE_FIRST: u8 = 0x06;
const WRITE_LAST: u8 = 0x08;
const RESPONSE_FIRST: u8 = 0x0d;
const RESPONSE_LAST: u8 = 0x0f;

/// Opcode, PSN, and what stands behind the BTH.
type Sent<'a> = (u8, u32, &'a [u8]);

/// The sids that packets of one sender match, each.
fn of_packets(bench: &mut Bench, packets: &[Sent<'_>]) -> Vec<Vec<u32>> {
    let each = packets.iter().map(|(opcode, psn, behind)| {
        bench.send(Direction::Initiator, &roce(*opcode, 7, *psn, behind));
        bench.alerted()
    });
    each.collect()
}

#[test]
fn a_content_may_lie_in_several_packets_of_an_operation() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)\n\
                 alert rdma any any -> any any (content:\"one\"; content:\"two\"; distance:2; \
                 sid:2;)\n\
                 alert rdma any any -> any any (content:\"secret\"; offset:6; depth:6; sid:3;)\n\
                 alert rdma any any -> any any (content:\"ret!\"; depth:4; sid:4;)\n\
                 alert rdma any any -> any any (content:\"two\"; endswith; sid:5;)";
    let mut bench = Bench::new(rules);
    let send = |psn| -> [Sent<'_>; 3] {
        [
            (SEND_FIRST, psn, b"one a se"),
            (SEND_MIDDLE, psn + 1, b"cret! .."),
            (SEND_LAST, psn + 2, b"two"),
        ]
    };
    let found = vec![vec![], vec![1, 3], vec![2, 5]];
    assert_eq!(of_packets(&mut bench, &send(5)), found);
    assert_eq!(of_packets(&mut bench, &send(8)), found, "the next operation by itself");
    let apart: [Sent<'_>; 2] = [(SEND_ONLY, 11, b"one a se"), (SEND_ONLY, 12, b"cret! two")];
    assert_eq!(of_packets(&mut bench, &apart), [vec![], vec![5]], "two operations");
}

#[test]
fn requests_and_responses_to_a_queue_pair_do_not_mix() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let packets: [Sent<'_>; 4] = [
        (SEND_FIRST, 5, b"..sec"),
        (RESPONSE_FIRST, 900, b"\0\0\0\0..sec"),
        (SEND_LAST, 6, b"ret"),
        (RESPONSE_LAST, 901, b"\0\0\0\0ret"),
    ];
    assert_eq!(of_packets(&mut Bench::new(rules), &packets), [vec![], vec![], vec![1], vec![1]]);
}

#[test]
fn what_the_first_packet_says_holds_for_its_operation() {
    let rules = "alert rdma any any -> any any (rdma.opcode:write; rdma.rkey:0xdeadbeef; \
                 rdma.length:8; content:\"late\"; sid:1;)\n\
                 alert rdma any any -> any any (rdma.rkey:0xdeadbeef; sid:2;)";
    let first = [&RETH[..], b"beg."].concat();
    let packets: [Sent<'_>; 2] = [(WRITE_FIRST, 5, &first), (WRITE_LAST, 6, b"late")];
    assert_eq!(of_packets(&mut Bench::new(rules), &packets), [vec![2], vec![1]]);
}

#[test]
fn a_packet_that_is_sent_again_takes_the_place_of_the_first() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let packets: [Sent<'_>; 5] = [
        (SEND_FIRST, 5, b"..sec"),
        (SEND_MIDDLE, 6, b"xxxxx"),
        (SEND_LAST, 8, b"behind a gap"),
        (SEND_MIDDLE, 6, b"ret.."),
        (SEND_LAST, 7, b"end"),
    ];
    let found = of_packets(&mut Bench::new(rules), &packets);
    assert_eq!(found, [vec![], vec![], vec![], vec![1], vec![]]);
}

#[test]
fn a_piece_that_was_dropped_is_dropped_again() {
    let mut bench = Bench::new("drop rdma any any -> any any (content:\"secret\"; sid:1;)");
    let first = roce(SEND_FIRST, 7, 5, b"..sec");
    let last = roce(SEND_LAST, 7, 6, b"ret");
    assert_eq!(bench.send(Direction::Initiator, &first), Decision::Pass);
    for _ in 0..3 {
        assert!(matches!(bench.send(Direction::Initiator, &last), Decision::Drop { .. }));
    }
    let other = roce(SEND_LAST, 7, 6, b"ond");
    assert_eq!(bench.send(Direction::Initiator, &other), Decision::Pass);
}

#[test]
fn no_packet_that_the_receiver_passes_over_parts_an_operation() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let (first, middle): (Sent<'_>, Sent<'_>) =
        ((SEND_FIRST, 5, b"..sec"), (SEND_MIDDLE, 6, b"....."));
    let between: [(&str, &[Sent<'_>]); 7] = [
        (
            "a first packet far ahead",
            &[first, (SEND_FIRST, 8_000_000, b"....."), (SEND_LAST, 6, b"ret")],
        ),
        ("another first packet", &[first, (SEND_FIRST, 5, b"....."), (SEND_LAST, 6, b"ret")]),
        (
            "the first packet twice",
            &[
                (SEND_FIRST, 4, b"....."),
                (SEND_MIDDLE, 5, b"..sec"),
                (SEND_FIRST, 4, b"....."),
                (SEND_LAST, 6, b"ret"),
            ],
        ),
        (
            "another packet of its PSN",
            &[
                (SEND_FIRST, 4, b"....."),
                (SEND_MIDDLE, 5, b"..sec"),
                (SEND_MIDDLE, 5, b"....."),
                (SEND_LAST, 6, b"ret"),
            ],
        ),
        (
            "an earlier packet twice",
            &[
                (SEND_FIRST, 3, b"....."),
                (SEND_MIDDLE, 4, b"ab..."),
                (SEND_MIDDLE, 5, b"..sec"),
                (SEND_MIDDLE, 4, b"ab..."),
                (SEND_LAST, 6, b"ret"),
            ],
        ),
        (
            "another last packet",
            &[
                first,
                (SEND_LAST, 6, b"....."),
                (SEND_FIRST, 900, b"....."),
                (SEND_LAST, 901, b"....."),
                (SEND_FIRST, 700, b"....."),
                (SEND_LAST, 701, b"....."),
                (SEND_LAST, 6, b"ret"),
            ],
        ),
        ("a last packet ahead of it", &[first, (SEND_LAST, 9, b"....."), (SEND_LAST, 6, b"ret")]),
    ];
    for (what, packets) in between {
        let found = of_packets(&mut Bench::new(rules), packets);
        assert_eq!(found.concat(), [1], "{what}");
    }
    let whole = [first, middle, middle, (SEND_LAST, 7, b"secret"), (SEND_LAST, 7, b"secret")];
    assert_eq!(of_packets(&mut Bench::new(rules), &whole)[3], [1]);
}

#[test]
fn a_packet_with_a_wrong_icrc_is_no_piece_and_no_evidence() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)\n\
                 drop rdma any any -> any any (rdma.event:key_guessing, count 2, \
                 seconds 10; sid:2;)";
    let limits = Limits { checks_segments: true, ..Limits::default() };
    // The ICRC of these packets is left 0.
    for (icrc, expected) in [(IcrcStatus::Invalid, vec![]), (IcrcStatus::Valid, vec![1, 2])] {
        let mut bench = Bench { icrc: Some(icrc), ..Bench::with(rules, limits) };
        bench.send(Direction::Initiator, &roce(SEND_FIRST, 7, 5, b"..sec"));
        bench.send(Direction::Initiator, &roce(SEND_LAST, 7, 6, b"ret"));
        for psn in 7..12 {
            let key = [&RETH[..8], &[psn as u8; 4], &RETH[12..]].concat();
            bench.send(Direction::Initiator, &roce(WRITE_FIRST, 7, psn, &key));
            let mut refusal = roce(0x11, 9, psn, &[0x62, 0, 0, 1]);
            let ends = refusal[26..34].to_vec();
            refusal[26..30].copy_from_slice(&ends[4..]);
            refusal[30..34].copy_from_slice(&ends[..4]);
            bench.send(Direction::Responder, &refusal);
        }
        let mut found = bench.alerted();
        found.dedup();
        assert_eq!(found, expected, "{icrc:?}");
    }
}

#[test]
fn no_operation_that_is_begun_in_vain_pushes_out_the_one_in_sequence() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let first: Sent<'_> = (SEND_FIRST, 10, b"..sec");
    let last: Sent<'_> = (SEND_LAST, 11, b"ret");
    let firsts = |psns: &[u32]| -> Vec<Sent<'_>> {
        psns.iter().map(|psn| -> Sent<'_> { (SEND_FIRST, *psn, b".....") }).collect()
    };
    let old: Vec<u32> = (0..10).chain(0xff_fff0..0xff_ffff).collect();
    let ahead: Vec<u32> = (0..20).map(|it| 5000 + 7 * it).collect();
    // Chains ahead that are shorter than what came before.
    let chains: Vec<Sent<'_>> = (0..20)
        .flat_map(|it| -> [Sent<'_>; 2] {
            let psn = 5000 + 7 * it;
            [(SEND_FIRST, psn, b"....."), (SEND_MIDDLE, psn + 1, b".....")]
        })
        .collect();
    let read: Sent<'_> = (0x0c, 6, &[&RETH[..14], &[4, 0]].concat());
    let before: Vec<Sent<'_>> = (0..5).map(|it| -> Sent<'_> { (SEND_ONLY, it, b"x") }).collect();
    let again: Vec<Sent<'_>> = (2..5).map(|it| -> Sent<'_> { (SEND_ONLY, it, b"x") }).collect();
    let whole: [Sent<'_>; 2] = [(SEND_FIRST, 5, b"....."), (SEND_MIDDLE, 6, b"..sec")];
    let cases: [(&str, Vec<Sent<'_>>); 6] = [
        ("old PSNs", [&[first][..], &firsts(&old), &[last]].concat()),
        ("PSNs ahead", [&[first][..], &firsts(&ahead), &[last]].concat()),
        (
            "several at once ahead",
            [&before[..], &whole, &chains, &[(SEND_LAST, 7, b"ret")]].concat(),
        ),
        (
            "behind what was sent again",
            [&before[..], &again, &whole, &chains, &[(SEND_LAST, 7, b"ret")]].concat(),
        ),
        (
            "within what is sent again",
            [&before[..], &whole, &again, &whole, &chains, &[(SEND_LAST, 7, b"ret")]].concat(),
        ),
        (
            "behind a READ of four packets",
            [&before[..], &[(SEND_ONLY, 5, b"x"), read, first], &chains, &[last]].concat(),
        ),
    ];
    for (what, packets) in cases {
        let found = of_packets(&mut Bench::new(rules), &packets);
        assert_eq!(found.concat(), [1], "{what}");
    }
}

/// A bench that drops what nobody could look at together with what follows it.
fn inline(rules: &str) -> Bench {
    let limits = Limits { refuses_conflicts: true, sees_all: true, ..Limits::default() };
    Bench::with(rules, limits)
}

#[test]
fn who_begins_more_than_is_looked_at_before_anybody_knows_his_psns_is_not_heard() {
    let rules = "drop rdma any any -> any any (content:\"secret\"; sid:1;)";
    let send = |bench: &mut Bench, (opcode, psn, behind): Sent<'_>| {
        bench.send(Direction::Initiator, &roce(opcode, 7, psn, behind))
    };
    for messages in 7..9 {
        let mut bench = inline(rules);
        send(&mut bench, (SEND_ONLY, 1_000, b"hello"));
        for psn in (0..messages).map(|it| 2_000 + it * 100) {
            send(&mut bench, (SEND_FIRST, psn, b"....."));
            send(&mut bench, (SEND_MIDDLE, psn + 1, b"....."));
        }
        let first = send(&mut bench, (SEND_FIRST, 10_000, b"..sec"));
        let decoy = send(&mut bench, (SEND_FIRST, 3_000, b"....."));
        let last = send(&mut bench, (SEND_LAST, 10_001, b"ret"));
        assert_eq!(decoy, Decision::Unseen(Unseen::Conflict), "{messages}");
        match messages {
            7 => assert!(matches!(last, Decision::Drop { .. })),
            _ => assert_eq!(first, Decision::Unseen(Unseen::Conflict)),
        }
    }
}

#[test]
fn honest_senders_may_begin_again_as_often_as_they_must() {
    let rules = "drop rdma any any -> any any (content:\"secret\"; sid:1;)";
    let pieces: Vec<[u8; 1024]> = (0..40).map(|it| [b'a' + it % 26; 1024]).collect();
    let piece = |psn: u32| -> Sent<'_> {
        let opcode = if psn == 0 { SEND_FIRST } else { SEND_MIDDLE };
        (opcode, psn, &pieces[psn as usize])
    };
    // Receivers that are not ready; packets that are lost behind the gateway.
    let from_the_first = (0..40).flat_map(|it| 0..10 + it % 3);
    let from_where_one_was_lost = (0..30).flat_map(|it| it..it + 10);
    let sequences: [Vec<u32>; 2] =
        [from_the_first.collect(), from_where_one_was_lost.chain(20..38).collect()];
    for psns in sequences {
        let mut bench = inline(rules);
        for psn in psns {
            let (opcode, psn, behind) = piece(psn);
            let frame = roce(opcode, 7, psn, behind);
            assert_eq!(bench.send(Direction::Initiator, &frame), Decision::Pass, "{psn}");
        }
    }
}

#[test]
fn what_is_of_another_service_than_the_queue_pair_parts_no_operation() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    const UC_SEND_FIRST: u8 = 0x20;
    const UC_SEND_MIDDLE: u8 = 0x21;
    let firsts = (0..20).map(|it| -> Sent<'_> { (UC_SEND_FIRST, 5_000 + 7 * it, b".....") });
    let middles = (6..30).map(|it| -> Sent<'_> { (UC_SEND_MIDDLE, it, &[b'.'; 1024]) });
    for decoys in [firsts.collect::<Vec<_>>(), middles.collect()] {
        let first: [Sent<'_>; 2] = [(UC_SEND_FIRST, 5, b"....."), (SEND_FIRST, 5, b"..sec")];
        let packets = [&first[..], &decoys, &[(SEND_LAST, 6, b"ret")]].concat();
        assert_eq!(of_packets(&mut Bench::new(rules), &packets).concat(), [1]);
    }
}

/// Each connection breaks off within a message, and the next begins with other PSNs.
#[test]
fn a_queue_pair_that_is_connected_again_and_again_is_heard() {
    let mut bench = inline("drop rdma any any -> any any (content:\"secret\"; sid:1;)");
    for connection in 0..30 {
        let psn = 0x10_0000 - 10_000 * connection;
        bench.now = bench.now.plus_ns(SECOND / 10);
        for frame in [roce(SEND_FIRST, 7, psn, b"....."), roce(SEND_MIDDLE, 7, psn + 1, b".....")] {
            assert_eq!(bench.send(Direction::Initiator, &frame), Decision::Pass, "{connection}");
        }
    }
}

/// The requester asks again for what did not come: the answer begins there.
#[test]
fn an_answer_that_is_taken_up_again_goes_on_with_what_came_before() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let behind = |text: &[u8]| [&[0; 4], text].concat();
    const RESPONSE_MIDDLE: u8 = 0x0e;
    const RESPONSE_ONLY: u8 = 0x10;
    let (begin, more) = (behind(b"....."), behind(b"ret.."));
    let before: [Sent<'_>; 2] = [(RESPONSE_FIRST, 5, &begin), (RESPONSE_MIDDLE, 6, b"..sec")];
    for opcode in [RESPONSE_FIRST, RESPONSE_ONLY] {
        let packets = [&before[..], &[(opcode, 7, &more)]].concat();
        let found = of_packets(&mut Bench::new(rules), &packets);
        assert_eq!(found, [vec![], vec![], vec![1]], "{opcode:#x}");
    }
    let apart = [&before[..], &[(RESPONSE_ONLY, 8, &more)]].concat();
    assert_eq!(of_packets(&mut Bench::new(rules), &apart).concat(), []);
}

#[test]
fn an_end_is_that_of_the_operation() {
    let rules = "drop rdma any any -> any any (content:\"tail\"; endswith; sid:1;)\n\
                 alert rdma any any -> any any (content:\"tail\"; isdataat:!1,relative; sid:2;)";
    let packets: [Sent<'_>; 3] =
        [(SEND_FIRST, 5, b".tail"), (SEND_MIDDLE, 6, b".tail"), (SEND_LAST, 7, b"..")];
    assert_eq!(of_packets(&mut Bench::new(rules), &packets).concat(), []);
    let packets: [Sent<'_>; 2] = [(SEND_FIRST, 5, b"...ta"), (SEND_LAST, 6, b"il")];
    assert_eq!(of_packets(&mut Bench::new(rules), &packets), [vec![], vec![1, 2]]);
}

#[test]
fn other_versions_of_what_was_sent_do_not_push_it_out() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    let texts: Vec<[u8; 5]> = (b'a'..=b'y').map(|it| [it; 5]).collect();
    let mut packets: Vec<Sent<'_>> = vec![(SEND_FIRST, 5, b"....."), (SEND_MIDDLE, 6, b"..sec")];
    packets.extend(texts.iter().map(|it| -> Sent<'_> { (SEND_MIDDLE, 6, it) }));
    packets.push((SEND_LAST, 7, b"ret"));
    assert_eq!(of_packets(&mut Bench::new(rules), &packets).concat(), [1]);
}

#[test]
fn a_connection_that_ended_within_an_operation_hides_nothing_of_the_next() {
    let rules = "alert rdma any any -> any any (content:\"secret\"; sid:1;)";
    // Its PSNs begin before those of the last one, and go over the end of their 24 bits.
    let packets: [Sent<'_>; 3] = [
        (SEND_FIRST, 0x10_0000, b"....."),
        (SEND_FIRST, 0xff_ffff, b"..sec"),
        (SEND_LAST, 0, b"ret"),
    ];
    assert_eq!(of_packets(&mut Bench::new(rules), &packets).concat(), [1]);
}

#[test]
fn an_operation_is_looked_at_together_for_four_kibibytes() {
    let rules = "alert rdma any any -> any any (content:\"begin\"; content:\"end\"; sid:1;)";
    let filler = [b'.'; 1024];
    for (middles, is_found) in [(3, true), (5, false)] {
        let mut packets: Vec<Sent<'_>> = vec![(SEND_FIRST, 5, b"begin")];
        packets.extend((0..middles).map(|it| (SEND_MIDDLE, 6 + it, &filler[..])));
        packets.push((SEND_LAST, 6 + middles, b"end"));
        let found = of_packets(&mut Bench::new(rules), &packets);
        assert_eq!(found.concat(), if is_found { vec![1] } else { vec![] }, "{middles}");
    }
}

#[test]
fn a_connection_request_is_told_by_its_management_datagram() {
    let rules = "alert rdma any any -> any any (rdma.cm:req; sid:1;)\n\
                 alert rdma any any -> any any (rdma.cm:rep,rej; sid:2;)\n\
                 alert rdma any any -> any any (rdma.mad:class 7, attribute 0x10; sid:3;)";
    let mut behind = vec![0x80, 1, 0, 0, 0, 0, 0, 1];
    let mut mad = vec![0_u8; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = 0x10;
    behind.extend(mad);
    assert_eq!(of_packet(rules, &roce(0x64, 1, 5, &behind)), [1, 3]);
}

/// A READ by a key, and whether a rule drops it.
fn is_dropped(bench: &mut Bench, key: u32) -> bool {
    let mut behind = RETH;
    behind[8..12].copy_from_slice(&key.to_be_bytes());
    let read = roce(0x0c, key, 1, &behind);
    matches!(bench.send(Direction::Initiator, &read), Decision::Drop { .. })
}

/// The server grants an access, or refuses it, with that syndrome.
fn answer(bench: &mut Bench, syndrome: u8) {
    let mut answer = vec![0x11, 0, 0xff, 0xff, 0, 0, 0, 8, 0, 0, 0, 1, syndrome, 0, 0, 1];
    answer.extend([0; 4]);
    let decision = bench.send(Direction::Responder, &udp(SERVER, CLIENT, 49_152, 4791, &answer));
    assert_eq!(decision, Decision::Pass, "who guesses is told of, and not who refuses");
}

#[test]
fn guesses_that_were_all_sent_before_the_first_refusal_are_told_with_the_next() {
    let rule =
        "drop rdma any any -> any any (rdma.event:key_guessing, count 5, seconds 10; sid:1;)";
    // Refused, seconds until the next new key, and whether that is dropped.
    for (refused, later_s, is_told) in
        [(5, 1, true), (5, 60, true), (100, 60, true), (4, 1, false), (5, 2 * 3600, false)]
    {
        let mut bench = Bench::new(rule);
        assert!(!is_dropped(&mut bench, 9_000));
        answer(&mut bench, 0);
        (1..=refused).for_each(|key| assert!(!is_dropped(&mut bench, key)));
        (0..refused).for_each(|_| answer(&mut bench, 0x62));
        bench.now = bench.now.plus_ns(later_s * SECOND);
        if refused < 16 {
            assert!(!is_dropped(&mut bench, 9_000), "a key that was granted before");
        }
        assert_eq!(is_dropped(&mut bench, 7_000), is_told, "{refused} {later_s}");
        let is_blocked = refused >= 5 && later_s < 10;
        assert_eq!(is_dropped(&mut bench, 7_000), is_blocked, "sent again: {refused} {later_s}");
        assert_eq!(is_dropped(&mut bench, 7_001), is_blocked, "another: {refused} {later_s}");
    }
}

#[test]
fn what_is_not_rdma_matches_no_rule_of_rdma() {
    let rules = "alert rdma any any -> any any (sid:1;)";
    assert_eq!(of_packet(rules, &udp(CLIENT, SERVER, 1, 2, b"abc")), []);
    assert_eq!(of_packet(rules, &roce(0x81, 7, 5, &[0; 16])), [1]);
}

#[test]
fn what_no_packet_can_have_is_refused() {
    for (asks, keyword) in [
        ("rdma any any -> any any (rdma.psn:0x1000000;", "rdma.psn"),
        ("rdma any any -> any any (rdma.dest_qp:>0xffffff;", "rdma.dest_qp"),
        ("rdma any any -> any any (rdma.rkey:0x100000000;", "rdma.rkey"),
        ("rdma any any -> any any (rdma.pkey:0x10000;", "rdma.pkey"),
        ("rdma any any -> any any (rdma.mad:class 256;", "rdma.mad"),
        ("tcp any any -> any any (rdma.opcode:send;", "rdma"),
        ("http any any -> any any (rdma.rkey:5;", "rdma"),
    ] {
        assert_eq!(refused(&format!("alert {asks} sid:1;)")), keyword, "{asks}");
    }
    let rules = "alert udp any any -> any any (rdma.psn:0xffffff; sid:1;)\n\
                 alert ip any any -> any any (rdma.mad:attribute 0xffff; sid:2;)";
    assert_eq!(of_packet(rules, &roce(SEND_ONLY, 1, 0xff_ffff, b"")), [1]);
}
