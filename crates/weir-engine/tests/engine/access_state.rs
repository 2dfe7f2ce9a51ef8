//! Whom a queue pair number belongs to: connections that managers agreed, and first packets.

use std::sync::Arc;

use super::judged::Gateway;
use super::judged::cm::{Exchange, asks, message, serves};
use super::talk::{A, B, End, Packet};
use weir_detect::{Expected, Limits, LoadOptions, RuleSet, RuleSource, Variables};
use weir_engine::access::{
    AccessAction, AccessPolicy, AccessState, Line, Operation, Operations, Party, Terms,
};
use weir_engine::detect::{RuleMode, Rules};
use weir_engine::pipeline::Associations;
use weir_engine::verdict::{DropReason, Side};
use weir_wire::cm::{MESSAGE_LEN, attribute};
use weir_wire::frame::Link;
use weir_wire::icrc;
use weir_wire::parse::parse;

/// A third host, on the wire as B is, that speaks to A's queue pair.
const C: End = End { host: 3, ..B };

fn gateway(state: AccessState) -> Gateway {
    Gateway::with_state(vec![], AccessAction::Allow, state)
}

/// The same, with a rule beside.
fn with_rule(state: AccessState, rule: &str) -> Gateway {
    let source = RuleSource { name: "test".into(), text: rule.to_owned() };
    let loaded = RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
    let mut gateway = gateway(state);
    let mut policy = gateway.engine.policy().clone();
    policy.rules = Some(Rules {
        set: Arc::new(loaded.rules),
        mode: RuleMode::Enforce,
        limits: Limits { flows: 64, ..Limits::default() },
        tells_records: false,
        expected: Expected::default(),
    });
    gateway.engine.swap(policy, Associations::default()).unwrap();
    gateway
}

fn b_to_a() -> Exchange {
    Exchange::of(B, A)
}

mod learn {
    use super::*;

    #[test]
    fn the_same_number_from_another_source_is_forged_both_ways() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.write_only(1), B.send_only(2)]);
        gateway.passes(&[A.ack(2)]);
        let forged = [C.write_only(3), C.ack(1), C.read_first(1), C.nak(1, 2), C.cnp(0)];
        for packet in forged {
            gateway.drops(&[packet], DropReason::QpForged);
        }
        gateway.passes(&[B.write_only(3)]);
        // The other way: host 4, behind A's port, speaks to B's queue pair.
        gateway.takes(Side::Host, End { host: 4, ..A }.ack(3).bytes(), Err(DropReason::QpForged));
        assert_eq!(gateway.engine.access().unwrap().state_counters().forged, 6);
        let told = gateway.events();
        assert_eq!(told.len(), 6, "each of them");
        assert_eq!((told[0].dropped, &told[0].line), (Some(DropReason::QpForged), &None));
        assert_eq!((told[0].operation, told[1].operation), (Operation::Write, Operation::Other));
        assert!(told[0].memory.is_some() && told.iter().all(|it| !it.passes()));
    }

    #[test]
    fn a_packet_that_may_not_pass_shows_nobody_s_queue_pair() {
        let lines = vec![Line {
            name: "sends".into(),
            from: Party::any(),
            to: Party::any(),
            operations: Operations::of([Operation::Send]),
            terms: Terms::default(),
            limits: None,
            action: AccessAction::Allow,
            log: false,
        }];
        let mut gateway = Gateway::with_state(lines, AccessAction::Deny, AccessState::Learn);
        for _ in 0..2 {
            gateway.drops(&[C.write_only(1)], DropReason::AccessDenied);
        }
        gateway.passes(&[B.send_only(1)]);
        gateway.drops(&[C.send_only(2)], DropReason::QpForged);
        // What one may not do takes nothing from who may do other things.
        gateway.drops(&[B.write_only(2)], DropReason::AccessDenied);
        gateway.passes(&[B.send_only(2)]);
        gateway.drops(&[C.send_only(3)], DropReason::QpForged);
    }

    #[test]
    fn nor_does_one_that_a_rule_drops() {
        let rule = "drop rdma 10.0.0.3 any -> any any (sid:1;)";
        let mut gateway = with_rule(AccessState::Learn, rule);
        gateway.drops(&[C.send_only(1)], DropReason::Rule);
        gateway.passes(&[B.send_only(1)]);
        gateway.drops(&[C.send_only(2)], DropReason::QpForged);
    }

    #[test]
    fn the_owner_s_address_by_the_other_port_is_forged() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.write_only(1)]);
        // B is behind the wire; the host cannot speak in its name.
        gateway.takes(Side::Host, B.write_only(2).bytes(), Err(DropReason::QpForged));
        gateway.takes(Side::Host, B.ack(2).bytes(), Err(DropReason::QpForged));
        gateway.passes(&[B.write_only(2)]);
    }

    #[test]
    fn a_silent_owner_yields_and_one_that_talks_does_not() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.write_only(1)]);
        gateway.wait_ms(14_000);
        gateway.passes(&[B.write_only(2)]);
        gateway.wait_ms(14_000);
        gateway.drops(&[C.write_only(3)], DropReason::QpForged);
        gateway.wait_ms(2_000);
        gateway.passes(&[C.write_only(3)]);
        gateway.drops(&[B.write_only(3)], DropReason::QpForged);
    }

    #[test]
    fn one_whose_address_a_stranger_used_first_has_it_back_when_the_stranger_is_silent() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.takes(Side::Host, B.write_only(1).bytes(), Ok(()));
        for _ in 0..3 {
            gateway.wait_ms(6_000);
            gateway.drops(&[B.write_only(2)], DropReason::QpForged);
        }
        gateway.takes(Side::Host, B.write_only(2).bytes(), Ok(()));
        for _ in 0..2 {
            gateway.wait_ms(8_000);
            gateway.drops(&[B.write_only(3)], DropReason::QpForged);
        }
        gateway.wait_ms(8_000);
        gateway.passes(&[B.write_only(3)]);
        gateway.takes(Side::Host, B.write_only(4).bytes(), Err(DropReason::QpForged));
    }

    #[test]
    fn datagrams_show_the_port_that_their_queue_pair_is_behind() {
        let mut gateway = gateway(AccessState::Learn);
        let from = |end: End, source_qp| Packet { source_qp, ..end.datagram(1) };
        gateway.passes(&[from(B, 0xb)]);
        gateway.passes(&[from(C, 0xb)]);
        gateway.passes(&[from(A, 0xa)]);
        gateway.takes(Side::Host, from(B, 0xb).bytes(), Err(DropReason::QpForged));
    }

    #[test]
    fn a_sequence_number_that_wraps_changes_no_owner() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.send_only(0xff_fffe), B.send_only(0xff_ffff), B.send_only(0)]);
        gateway.drops(&[C.send_only(1)], DropReason::QpForged);
        gateway.passes(&[B.send_only(1)]);
    }

    #[test]
    fn connection_managers_know_better_than_first_packets() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[C.write_only(1)]);
        gateway.connects(&b_to_a());
        gateway.passes(&[B.write_only(100)]);
        gateway.drops(&[C.write_only(2)], DropReason::QpForged);
        gateway.wait_ms(60_000);
        gateway.drops(&[C.write_only(3)], DropReason::QpForged);
    }

    #[test]
    fn owners_are_kept_over_a_reload() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.write_only(1)]);
        gateway.reload_with(
            AccessPolicy::new(vec![], AccessAction::Allow).with_state(AccessState::Learn),
        );
        gateway.drops(&[C.write_only(2)], DropReason::QpForged);
    }

    #[test]
    fn a_flood_of_first_packets_is_bounded_and_passes() {
        let mut gateway = gateway(AccessState::Learn);
        gateway.passes(&[B.write_only(1)]);
        for to_qp in 0x1000..0x1000 + 140_000 {
            gateway.passes(&[End { to_qp, ..C }.write_only(1)]);
        }
        let access = gateway.engine.access().unwrap();
        assert!(access.queue_pairs() <= 2 * 65_536, "{}", access.queue_pairs());
    }
}

mod strict {
    use super::*;

    #[test]
    fn a_thousand_connections_are_set_up_at_once() {
        let mut gateway = gateway(AccessState::Strict);
        let exchanges: Vec<_> = (0..1000)
            .map(|number| Exchange {
                requester: End { to_qp: 5000 + number, ..B },
                responder: End { to_qp: 9000 + number, ..A },
                ids: [20_000 + number, 30_000 + number],
                ..b_to_a()
            })
            .collect();
        exchanges.iter().for_each(|it| gateway.takes(Side::Wire, it.request(), Ok(())));
        exchanges.iter().for_each(|it| gateway.takes(Side::Host, it.reply(), Ok(())));
    }

    #[test]
    fn nothing_passes_before_the_connection_and_all_of_it_after() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.drops(&[B.write_only(100)], DropReason::AccessNoConnection);
        gateway.takes(Side::Wire, b_to_a().request(), Ok(()));
        gateway.drops(&[B.write_only(100)], DropReason::AccessNoConnection);
        gateway.takes(Side::Host, b_to_a().reply(), Ok(()));
        gateway.passes(&[B.write_only(100), B.read(101, 64)]);
        gateway.passes(&[A.ack(100), A.send_only(500)]);
        gateway.drops(&[C.write_only(102)], DropReason::QpForged);
        gateway.drops(&[End { to_qp: 0xc, ..B }.send_only(1)], DropReason::AccessNoConnection);
    }

    #[test]
    fn managers_messages_that_a_rule_drops_make_and_end_no_connection() {
        let connect = |rule: &str| {
            let mut gateway = with_rule(AccessState::Strict, rule);
            gateway.connects(&b_to_a());
            gateway.passes(&[B.write_only(100)]);
            gateway
        };
        let stranger = Exchange { ids: [81, 82], ..Exchange::of(C, End { peer: 3, ..A }) };
        let mut gateway = connect("drop rdma any any -> 10.0.0.3 any (rdma.cm:rep; sid:1;)");
        gateway.takes(Side::Wire, stranger.request(), Ok(()));
        gateway.takes(Side::Host, stranger.reply(), Err(DropReason::Rule));
        gateway.drops(&[C.write_only(100)], DropReason::QpForged);
        gateway.passes(&[B.write_only(101)]);
        let mut gateway = connect("drop rdma any any -> any any (rdma.cm:dreq; sid:1;)");
        gateway.takes(Side::Wire, b_to_a().disconnect(), Err(DropReason::Rule));
        gateway.wait_ms(3_000);
        gateway.passes(&[B.write_only(101)]);
        let mut gateway = connect("drop rdma 10.0.0.3 any -> any any (rdma.cm:req; sid:1;)");
        gateway.takes(Side::Wire, stranger.request(), Err(DropReason::Rule));
        gateway.takes(Side::Host, stranger.reply(), Err(DropReason::AccessNoConnection));
        gateway.passes(&[B.write_only(101)]);
    }

    #[test]
    fn connections_stand_however_long_they_are_silent() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.connects(&b_to_a());
        gateway.wait_ms(24 * 3_600_000);
        gateway.passes(&[B.write_only(100)]);
    }

    #[test]
    fn a_disconnect_ends_it_and_the_numbers_may_be_used_at_once() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.connects(&b_to_a());
        gateway.passes(&[B.write_only(100)]);
        gateway.takes(Side::Wire, b_to_a().disconnect(), Ok(()));
        let next = Exchange { ids: [81, 82], ..Exchange::of(C, End { peer: 3, ..A }) };
        gateway.connects(&next);
        gateway.passes(&[C.write_only(100)]);
        gateway.drops(&[B.write_only(101)], DropReason::QpForged);
    }

    #[test]
    fn a_connection_that_its_requester_refuses_is_none_and_one_in_use_stands() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.connects(&b_to_a());
        let stranger = Exchange::of(C, End { peer: 3, ..A });
        gateway.takes(Side::Wire, stranger.confirm(attribute::REJ), Ok(()));
        gateway.passes(&[B.write_only(100)]);
        gateway.takes(Side::Wire, b_to_a().confirm(attribute::REJ), Ok(()));
        gateway.wait_ms(3_000);
        gateway.drops(&[B.write_only(101)], DropReason::AccessNoConnection);
        gateway.connects(&b_to_a());
        gateway.takes(Side::Wire, b_to_a().confirm(attribute::RTU), Ok(()));
        gateway.takes(Side::Wire, b_to_a().confirm(attribute::REJ), Ok(()));
        gateway.wait_ms(3_000);
        gateway.passes(&[B.write_only(100)]);
    }

    #[test]
    fn what_is_under_way_passes_after_a_disconnect_for_a_moment() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.connects(&b_to_a());
        gateway.takes(Side::Wire, b_to_a().disconnect(), Ok(()));
        gateway.passes(&[A.ack(100)]);
        gateway.wait_ms(3_000);
        gateway.drops(&[A.ack(100)], DropReason::AccessNoConnection);
    }

    #[test]
    fn a_stranger_s_disconnect_ends_nothing() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.connects(&b_to_a());
        let stranger = Exchange::of(C, End { peer: 3, ..A });
        gateway.takes(Side::Wire, stranger.disconnect(), Ok(()));
        let guessed = Exchange { ids: [71, 73], ..b_to_a() };
        gateway.takes(Side::Wire, guessed.disconnect(), Ok(()));
        gateway.takes(Side::Host, b_to_a().disconnect(), Ok(()));
        gateway.wait_ms(3_000);
        gateway.passes(&[B.write_only(100)]);
        assert_eq!(gateway.engine.access().unwrap().state_counters().disconnects, 0);
    }

    #[test]
    fn a_request_in_another_s_name_is_forged() {
        let mut gateway = gateway(AccessState::Strict);
        // It comes from C, and says that it is B's.
        let mut forged = b_to_a().request();
        forged[29] = 3;
        let parsed = parse(&forged, Link::Ethernet, forged.len() as u32);
        assert!(icrc::write(&mut forged, &parsed));
        gateway.takes(Side::Wire, forged, Err(DropReason::QpForged));
        gateway.takes(Side::Host, b_to_a().reply(), Err(DropReason::AccessNoConnection));
    }

    #[test]
    fn a_reply_from_the_requester_s_side_is_forged() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.takes(Side::Wire, b_to_a().request(), Ok(()));
        gateway.takes(Side::Wire, b_to_a().reply(), Err(DropReason::QpForged));
        gateway.drops(&[B.write_only(100)], DropReason::AccessNoConnection);
    }

    #[test]
    fn a_reply_that_is_repeated_passes_and_one_without_its_request_does_not() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.takes(Side::Host, b_to_a().reply(), Err(DropReason::AccessNoConnection));
        gateway.connects(&b_to_a());
        gateway.takes(Side::Host, b_to_a().reply(), Ok(()));
        gateway.passes(&[B.write_only(100)]);
    }

    #[test]
    fn a_flood_of_requests_is_bounded_and_the_next_connection_is_made() {
        let mut gateway = gateway(AccessState::Strict);
        for id in 0..20_000 {
            let flood = Exchange { ids: [id, 0], ..Exchange::of(C, End { peer: 3, ..A }) };
            gateway.takes(Side::Wire, flood.request(), Ok(()));
        }
        gateway.connects(&b_to_a());
        gateway.passes(&[B.write_only(100)]);
        assert_eq!(gateway.engine.access().unwrap().queue_pairs(), 2);
    }

    #[test]
    fn messages_cut_or_of_no_known_kind_pass_and_change_nothing() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.takes(Side::Wire, message(B, 0x7777, &[0xff; MESSAGE_LEN]), Ok(()));
        for attribute in [attribute::RTU, attribute::DREQ, attribute::REJ, attribute::LAP] {
            gateway.takes(Side::Wire, message(B, attribute, &[0xff; MESSAGE_LEN]), Ok(()));
        }
        let mad = End { to_qp: 1, ..B }.datagram(1);
        gateway.passes(&[Packet { source_qp: 1, ..mad }]);
        assert_eq!(gateway.engine.access().unwrap().queue_pairs(), 0);
    }

    #[test]
    fn datagrams_go_where_a_service_was_named_and_back() {
        let mut gateway = gateway(AccessState::Strict);
        let to_server = Packet { source_qp: 0xb, ..B.datagram(1) };
        let back = Packet { source_qp: 0xa, ..A.datagram(1) };
        gateway.drops(&[to_server], DropReason::AccessNoConnection);
        gateway.takes(Side::Host, serves(A, 0xa, 7), Err(DropReason::AccessNoConnection));
        gateway.takes(Side::Wire, asks(B, 7), Ok(()));
        gateway.takes(Side::Wire, serves(A, 0xa, 7), Err(DropReason::AccessNoConnection));
        gateway.takes(Side::Host, serves(A, 0xa, 8), Err(DropReason::AccessNoConnection));
        gateway.takes(Side::Wire, asks(B, 7), Ok(()));
        gateway.takes(Side::Host, serves(A, 0xa, 7), Ok(()));
        gateway.takes(Side::Host, serves(A, 0xa, 7), Ok(()));
        gateway.passes(&[to_server]);
        gateway.passes(&[back]);
        let other = End { to_qp: 0xd, ..A };
        gateway.drops(
            &[Packet { source_qp: 0xa, ..other.datagram(1) }],
            DropReason::AccessNoConnection,
        );
    }

    #[test]
    fn datagrams_do_not_pass_for_a_queue_pair_that_is_known_behind_their_own_port() {
        let mut gateway = gateway(AccessState::Strict);
        gateway.takes(Side::Wire, asks(B, 7), Ok(()));
        gateway.takes(Side::Host, serves(A, 0xa, 7), Ok(()));
        // In the name of host 4, which is behind A's port.
        let forged = Packet { source_qp: 0xd, ..End { host: 4, ..B }.datagram(1) };
        gateway.passes(&[forged]);
        let to_host_4 = End { peer: 4, to_qp: 0xd, ..B };
        gateway.drops(
            &[Packet { source_qp: 0xb, ..to_host_4.datagram(1) }],
            DropReason::AccessNoConnection,
        );
    }

    #[test]
    fn connections_made_while_nobody_cared_stand_when_somebody_does() {
        let mut gateway = gateway(AccessState::Off);
        gateway.connects(&b_to_a());
        gateway.passes(&[C.write_only(1)]);
        gateway.reload_with(
            AccessPolicy::new(vec![], AccessAction::Allow).with_state(AccessState::Strict),
        );
        gateway.passes(&[B.write_only(100)]);
        gateway.drops(&[C.write_only(2)], DropReason::QpForged);
    }
}
