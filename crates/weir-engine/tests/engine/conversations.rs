//! What the meter makes of RDMA conversations, spoken in the language of `talk`.

use std::collections::BTreeSet;

use super::talk::{A, B, End, Packet, Talk};
use proptest::prelude::*;
use weir_engine::flow::FlowEntry;
use weir_engine::meter::{ConversationRecord, MeterLimits, RdmaTotals, Reason, Record};
use weir_engine::rdma::{DirectionCounters, Joined, OperationClass};
use weir_wire::bth::Qpn;

fn heard(packets: impl IntoIterator<Item = Packet>) -> Talk {
    let mut talk = Talk::new(MeterLimits::default());
    talk.hear(packets);
    talk
}

fn rdma(packets: impl IntoIterator<Item = Packet>) -> RdmaTotals {
    heard(packets).meter.totals().rdma
}

/// Every conversation, in the order of its first packet.
fn conversations(talk: &Talk) -> Vec<ConversationRecord> {
    let all = talk.meter.conversations().iter();
    let mut records: Vec<_> = all.map(|one| ConversationRecord::of(one, Reason::Flushed)).collect();
    records.sort_by_key(|record| record.started);
    records
}

/// The only conversation's two directions.
fn both(talk: &Talk) -> (DirectionCounters, DirectionCounters) {
    let [one] = conversations(talk).try_into().expect("one conversation");
    let second = one.second.expect("both directions");
    (one.first.counters, second.counters)
}

mod joining {
    use super::*;

    #[test]
    fn an_acknowledged_request_makes_two_directions_one_conversation() {
        let talk = heard([A.write_only(100), B.ack(100)]);
        let [one] = conversations(&talk).try_into().expect("one conversation");
        assert_eq!(one.joined, Joined::ByData);
        assert_eq!(one.first.key.destination_qp(), Qpn::new(0xb));
        assert_eq!(one.second.unwrap().key.destination_qp(), Qpn::new(0xa));
        let totals = talk.meter.totals().rdma;
        assert_eq!((totals.queue_pairs, totals.conversations), (2, 1));
    }

    #[test]
    fn a_read_response_and_an_atomic_acknowledgment_join_too() {
        assert_eq!(rdma([A.read(5, 4096), B.read_first(5)]).conversations, 1);
        assert_eq!(rdma([A.fetch_add(5), B.atomic_ack(5)]).conversations, 1);
    }

    #[test]
    fn a_response_that_nobody_asked_for_stays_alone() {
        let talk = heard([A.write_only(100), B.ack(101)]);
        assert!(conversations(&talk).iter().all(|one| one.joined == Joined::No));
        assert_eq!(talk.meter.totals().rdma.conversations, 2);
    }

    #[test]
    fn an_answer_that_comes_too_late_joins_nothing() {
        let mut talk = heard([A.write_only(100)]);
        talk.wait_ms(3000);
        talk.hear([B.ack(100)]);
        assert_eq!(talk.meter.totals().rdma.conversations, 2);
    }

    #[test]
    fn requests_between_other_addresses_are_no_match() {
        let elsewhere = End { host: 3, ..A };
        assert_eq!(rdma([elsewhere.write_only(100), B.ack(100)]).conversations, 2);
    }

    /// Queue pairs that all start at number 0 (some libraries do so) and use one UDP port.
    #[test]
    fn queue_pairs_in_step_are_not_joined_until_one_steps_ahead() {
        let other_a = End { to_qp: 0x1b, ..A };
        let other_b = End { to_qp: 0x1a, ..B };
        let mut talk = heard([A.write_only(0), other_a.write_only(0), B.ack(0), other_b.ack(0)]);
        let totals = talk.meter.totals().rdma;
        assert_eq!((totals.conversations, totals.pairings_ambiguous), (4, 2));
        talk.hear([A.write_only(1), B.ack(1)]);
        assert_eq!(talk.meter.totals().rdma.conversations, 3);
        talk.hear([other_a.write_only(1), other_b.ack(1)]);
        assert_eq!(talk.meter.totals().rdma.conversations, 2, "the other one is all that is left");
        let joined = conversations(&talk)
            .iter()
            .map(|one| (one.first.key.destination_qp(), one.second.unwrap().key.destination_qp()))
            .collect::<Vec<_>>();
        let qp = Qpn::new;
        assert_eq!(joined, [(qp(0xb), qp(0xa)), (qp(0x1b), qp(0x1a))]);
    }

    #[test]
    fn queue_pairs_in_step_are_told_apart_by_their_udp_port() {
        let other_a = End { to_qp: 0x1b, port: 50_002, ..A };
        let other_b = End { to_qp: 0x1a, port: 50_002, ..B };
        let totals = rdma([A.write_only(0), other_a.write_only(0), other_b.ack(0), B.ack(0)]);
        assert_eq!((totals.conversations, totals.pairings_ambiguous), (2, 0));
    }

    #[test]
    fn datagrams_name_both_ends() {
        let there = Packet { source_qp: 0xa, ..A.datagram(0) };
        let back = Packet { source_qp: 0xb, ..B.datagram(0) };
        let talk = heard([there, back]);
        assert_eq!(conversations(&talk)[0].joined, Joined::ByDatagram);
        assert_eq!(talk.meter.totals().rdma.conversations, 1);
    }

    #[test]
    fn two_senders_to_one_datagram_queue_pair_are_two_conversations_and_one_queue_pair() {
        let totals = rdma([
            Packet { source_qp: 5, ..A.datagram(0) },
            Packet { source_qp: 6, ..A.datagram(0) },
        ]);
        assert_eq!((totals.conversations, totals.queue_pairs), (2, 1));
    }
}

mod counting {
    use super::*;

    #[test]
    fn a_message_of_four_packets_is_one_message() {
        let talk = heard([
            A.write_first(10),
            A.write_middle(11),
            A.write_middle(12),
            A.write_last(13),
            B.ack(13),
        ]);
        let (there, back) = both(&talk);
        assert_eq!(there.messages, 1);
        assert_eq!(there.class(OperationClass::Write).packets, 4);
        assert_eq!(there.payload_bytes, 3 * 1024 + 500);
        assert_eq!(back.class(OperationClass::Acknowledge).packets, 1);
        assert_eq!(back.messages, 0);
        assert_eq!(conversations(&talk)[0].path_mtu, 1024);
    }

    #[test]
    fn a_packet_lost_before_us_is_missing_and_then_late() {
        // 11 is lost on its way to us; the responder refuses 12; the requester goes back.
        let talk = heard([
            A.write_only(10),
            A.write_only(12),
            B.ack(10),
            B.nak(11, 0),
            A.write_only(11),
            A.write_only(12),
            B.ack(12),
        ]);
        let (there, back) = both(&talk);
        assert_eq!((there.gaps, there.missing, there.late), (1, 1, 1));
        assert_eq!(there.retransmissions, 1, "12 had passed here");
        assert_eq!(there.messages, 3, "a resent message is the same message");
        assert_eq!(back.naks, [1, 0, 0, 0, 0, 0]);
        let totals = talk.meter.totals().rdma;
        assert_eq!((totals.retransmissions, totals.psn_missing, totals.psn_late), (1, 1, 1));
    }

    #[test]
    fn a_packet_lost_behind_us_is_a_retransmission_without_a_gap() {
        let talk =
            heard([A.write_only(10), B.ack(10), A.write_only(11), A.write_only(11), B.ack(11)]);
        let (there, _) = both(&talk);
        assert_eq!((there.retransmissions, there.gaps, there.missing), (1, 0, 0));
    }

    #[test]
    fn each_refusal_is_counted_by_its_cause() {
        let refusals = (0..=6).map(|code| B.nak(code.into(), code));
        let totals = rdma(refusals.chain([B.rnr(1), B.rnr(2)]));
        assert_eq!(totals.naks, [1, 1, 1, 1, 1, 2]);
        assert_eq!(totals.rnr_naks, 2);
    }

    #[test]
    fn a_read_uses_a_number_per_response_packet() {
        let talk = heard([
            A.read(10, 3000),
            B.read_first(10),
            B.read_middle(11),
            B.read_last(12),
            A.write_only(13),
            A.read(14, 3000),
            A.write_only(17),
        ]);
        let (there, back) = both(&talk);
        assert_eq!((there.gaps, there.retransmissions, there.messages), (0, 0, 4));
        assert_eq!(back.class(OperationClass::ReadResponse).packets, 3);
        assert_eq!(back.response_resends, 0);
    }

    #[test]
    fn a_read_asked_again_is_a_retransmission_and_its_responses_are_resent() {
        let answer = [B.read_first(10), B.read_middle(11), B.read_last(12)];
        let talk = heard(
            [A.read(10, 3000)].into_iter().chain(answer).chain([A.read(10, 3000)]).chain(answer),
        );
        let (there, back) = both(&talk);
        assert_eq!((there.retransmissions, back.response_resends), (1, 3));
    }

    #[test]
    fn unreliable_packets_that_are_lost_leave_gaps() {
        let totals = rdma([A.uc_send_only(1), A.uc_send_only(2), A.uc_send_only(5)]);
        assert_eq!((totals.psn_gaps, totals.psn_missing, totals.retransmissions), (1, 2, 0));
    }

    #[test]
    fn the_numbers_of_datagrams_say_nothing() {
        let totals = rdma([A.datagram(1), A.datagram(9), A.datagram(1)]);
        assert_eq!((totals.psn_gaps, totals.retransmissions, totals.psn_jumps), (0, 0, 0));
    }

    #[test]
    fn numbers_from_far_off_are_jumps_and_not_loss() {
        let totals = rdma([A.write_only(10), A.write_only(0x60_0000), A.write_only(11)]);
        assert_eq!((totals.psn_jumps, totals.psn_missing, totals.retransmissions), (2, 0, 0));
    }

    #[test]
    fn congestion_shows_in_marks_and_notifications() {
        let marked = Packet { ecn: 3, ..A.write_only(11) };
        let talk = heard([A.write_only(10), B.ack(10), marked, B.cnp(0)]);
        let (there, back) = both(&talk);
        assert_eq!((there.congestion_experienced, back.cnp), (1, 1));
        let totals = talk.meter.totals().rdma;
        assert_eq!((totals.congestion_experienced, totals.cnp), (1, 1));
    }

    #[test]
    fn a_notification_alone_shows_no_queue_pair() {
        let mut talk = heard([B.cnp(0)]);
        assert_eq!(talk.meter.totals().rdma.queue_pairs, 0);
        talk.hear([B.send_only(1)]);
        assert_eq!(talk.meter.totals().rdma.queue_pairs, 1);
    }

    #[test]
    fn a_wrong_icrc_is_counted_where_it_came_from() {
        let damaged = Packet { is_damaged: true, ..A.write_only(11) };
        let talk = heard([A.write_only(10), B.ack(10), damaged]);
        let (there, back) = both(&talk);
        assert_eq!((there.icrc_bad, back.icrc_bad), (1, 0));
        let totals = talk.meter.totals().rdma;
        assert_eq!((totals.icrc_ok, totals.icrc_bad, totals.icrc_unchecked), (2, 1, 0));
    }

    #[test]
    fn remote_keys_are_listed_up_to_a_bound_that_shows() {
        let writes = (0..3).map(|key| Packet { remote_key: key, ..A.write_only(key) });
        let talk = heard(writes.clone().chain(writes));
        let first = conversations(&talk)[0].first.counters;
        assert_eq!((first.remote_keys, first.remote_key_count), ([0, 1, 2, 0], 3));
        let talk = heard((0..9).map(|key| Packet { remote_key: key, ..A.write_only(key) }));
        let first = conversations(&talk)[0].first.counters;
        assert_eq!((first.remote_keys, first.remote_key_count), ([0, 1, 2, 3], 5));
    }

    #[test]
    fn the_time_to_an_answer_is_taken_at_the_requester() {
        let mut talk = heard([A.write_only(1), B.ack(1), A.write_only(2)]);
        talk.wait_ms(1);
        talk.hear([B.ack(2)]);
        let (there, back) = both(&talk);
        // The first answer joined the two, too late to time it.
        assert_eq!(there.response_time_ns(0.5), Some(1 << 20), "1.001 ms, rounded up to 2^20 ns");
        assert_eq!(back.response_time_ns(0.5), None);
    }

    #[test]
    fn a_conversation_and_its_5_tuples_agree() {
        let talk = heard([A.write_only(1), B.ack(1), A.write_only(2), B.ack(2), A.write_only(3)]);
        let (there, back) = both(&talk);
        let mut flows: Vec<_> = talk
            .meter
            .flows()
            .iter()
            .map(|flow| flow.counters[0].packets + flow.counters[1].packets)
            .collect();
        flows.sort_unstable();
        assert_eq!(flows, [back.total().packets, there.total().packets]);
        assert_eq!(talk.meter.totals().flows, 2, "both directions send to port 4791");
    }
}

mod records {
    use super::*;

    fn limits() -> MeterLimits {
        MeterLimits { flows_max: 4, conversations_max: 4, ..MeterLimits::default() }
    }

    fn expired(talk: &mut Talk) -> Vec<ConversationRecord> {
        let mut records = Vec::new();
        talk.meter.expire(talk.now, 64, &mut |record| {
            if let Record::Conversation(record) = record {
                records.push(*record);
            }
        });
        records
    }

    #[test]
    fn silence_ends_a_record() {
        let mut talk = heard([A.write_only(1), B.ack(1)]);
        talk.wait_ms(14_900);
        assert_eq!(expired(&mut talk), []);
        talk.wait_ms(200);
        let [record] = expired(&mut talk).try_into().expect("one record");
        assert_eq!((record.reason, record.total().packets), (Reason::Idle, 2));
        assert!(talk.meter.conversations().is_empty() && talk.meter.flows().is_empty());
    }

    #[test]
    fn a_long_conversation_leaves_records_that_add_up() {
        let mut talk = heard([]);
        let mut records = Vec::new();
        for psn in 0..200 {
            talk.hear([A.write_only(psn), B.ack(psn)]);
            talk.wait_ms(1000);
            records.extend(expired(&mut talk));
        }
        assert_eq!(records.len(), 6, "one each 30 s");
        assert!(records.iter().all(|record| record.reason == Reason::Active));
        assert!(records.windows(2).all(|pair| pair[0].last < pair[1].started));
        talk.meter.flush(&mut |record| {
            if let Record::Conversation(record) = record {
                records.push(*record);
            }
        });
        assert_eq!(records.iter().map(|record| record.total().packets).sum::<u64>(), 400);
        assert_eq!(talk.meter.totals().rdma.retransmissions, 0, "numbers go on across records");
        assert_eq!(talk.meter.totals().rdma.conversations, 1);
    }

    #[test]
    fn at_the_bound_the_least_recently_active_leaves_and_says_so() {
        let mut talk = Talk::new(limits());
        let end = |qp| End { to_qp: qp, port: qp as u16, ..A };
        for qp in 0..4 {
            talk.hear([end(qp).write_only(1)]);
            talk.wait_ms(200);
        }
        talk.hear([end(0).write_only(2)]);
        talk.wait_ms(200);
        talk.hear([end(9).write_only(1)]);
        let [record] = expired(&mut talk).try_into().expect("one record");
        assert_eq!(record.first.key.destination_qp(), Qpn::new(1));
        assert_eq!(record.reason, Reason::Evicted);
        let totals = talk.meter.totals();
        assert_eq!((totals.conversations_evicted, totals.flows_evicted), (1, 1));
    }

    #[test]
    fn many_that_end_together_leave_a_bounded_number_a_call() {
        let one = |n: u32| End { to_qp: 0x100 + n, port: 1000 + n as u16, ..A }.write_only(n);
        let mut talk = heard((0..300).map(one));
        talk.wait_ms(60_000);
        let (mut records, mut calls) = (0, 0);
        loop {
            let mut here = 0;
            let is_left = talk.meter.expire(talk.now, 64, &mut |_| here += 1);
            assert!(here <= 2 * 64, "{here} in one call");
            (records, calls) = (records + here, calls + 1);
            if !is_left {
                break;
            }
        }
        assert_eq!((records, calls), (600, 5), "a flow and a conversation each");
    }

    #[test]
    fn a_clock_set_back_neither_ends_nor_keeps_a_record_for_ever() {
        let mut talk = heard([A.write_only(1), B.ack(1)]);
        talk.now = weir_wire::frame::Time(1_000_000_000);
        assert_eq!(expired(&mut talk), []);
        talk.wait_ms(14_000);
        assert_eq!(expired(&mut talk), []);
        talk.wait_ms(2000);
        assert_eq!(expired(&mut talk).len(), 1);
    }

    #[test]
    fn records_that_nobody_takes_are_lost_and_counted() {
        let mut talk = Talk::new(MeterLimits { records_max: 10, ..limits() });
        talk.hear((0..40).map(|qp| End { to_qp: qp, port: qp as u16, ..A }.write_only(1)));
        let totals = talk.meter.totals();
        assert_eq!((totals.conversations_evicted, totals.flows_evicted), (36, 36));
        assert_eq!(totals.records_lost, 2 * (36 - 10));
    }

    #[test]
    fn expiry_does_no_more_than_it_is_asked_to() {
        let mut talk = heard((0..40).map(|qp| End { to_qp: qp, ..A }.write_only(1)));
        talk.wait_ms(60_000);
        let mut ended = 0;
        talk.meter.expire(talk.now, 7, &mut |record| {
            ended += u32::from(matches!(record, Record::Conversation(_)));
        });
        assert_eq!(ended, 7);
        assert_eq!(talk.meter.conversations().len(), 33);
    }

    #[test]
    fn a_handle_of_a_flow_that_left_finds_nothing() {
        let mut talk = heard([]);
        let flow = talk.hear([A.write_only(1)]).flow.expect("RoCE v2 has a 5-tuple");
        let again = talk.hear([A.write_only(2)]).flow.expect("still");
        assert_eq!(again, flow);
        talk.wait_ms(60_000);
        expired(&mut talk);
        assert!(talk.meter.flows().entry(flow).is_none());
        let anew = talk.hear([A.write_only(3)]).flow.expect("a new entry");
        assert_ne!(anew, flow);
        let packets = |entry: &FlowEntry| entry.counters.map(|it| it.packets).iter().sum::<u64>();
        assert_eq!(talk.meter.flows().entry(anew).map(packets), Some(1));
    }
}

proptest! {
    /// A requester goes back N whenever the responder misses a packet. Each transmission may be
    /// lost before or behind us. The model is the set of numbers that passed us; those before the
    /// very first one may have passed before we listened, and count as seen.
    #[test]
    fn what_passed_before_is_a_retransmission_and_nothing_else_is(
        start in 0u32..1 << 24,
        losses in prop::collection::vec(0u8..20, 60..300),
    ) {
        let (mut talk, mut passed) = (Talk::new(MeterLimits::default()), BTreeSet::new());
        let (mut next, mut expected, mut repeats) = (0u32, 0u32, 0u64);
        for fate in losses {
            let is_lost_before = fate == 0;
            if !is_lost_before {
                talk.hear([A.write_only(start.wrapping_add(next))]);
                let is_old = passed.first().is_some_and(|first| next < *first);
                repeats += u64::from(is_old || !passed.insert(next));
            }
            let arrives = fate > 1;
            if arrives && next == expected {
                expected += 1;
            }
            // The sender learns of a loss four packets later.
            next = if next >= expected + 4 { expected } else { next + 1 };
        }
        let totals = talk.meter.totals().rdma;
        let skipped = passed.last().map_or(0, |last| last - passed.first().unwrap() + 1) as u64;
        prop_assert_eq!(totals.retransmissions, repeats);
        prop_assert_eq!(totals.psn_missing - totals.psn_late, skipped - passed.len() as u64);
        prop_assert_eq!(totals.psn_jumps, 0);
    }
}
