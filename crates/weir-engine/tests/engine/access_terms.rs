//! What else a line may ask for: the service of a connection, the kind of queue pair, the time.

use super::judged::cm::{Exchange, asks, serves};
use super::judged::{self, Gateway, b_to_a};
use super::talk::{A, B, End, Packet};
use weir_engine::access::{
    AccessAction, Hours, Limits, Line, Operation, Operations, QueuePairType, QueuePairTypes,
    Services, Terms,
};
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::bth::Opcode;
use weir_wire::frame::Time;

/// rdma_cm's identifier of a TCP port.
const fn tcp(port: u16) -> u64 {
    0x0106_0000 | port as u64
}

fn of_service(name: &str, service: u64, action: AccessAction) -> Line {
    let services = [Services { first: service, last: service }].into();
    Line { terms: Terms { services, ..Terms::default() }, ..b_to_a(name, &[], action) }
}

mod services {
    use super::*;

    #[test]
    fn a_service_that_a_line_allows_is_connected_to_and_used_and_no_other() {
        let line = of_service("nvme", tcp(4420), AccessAction::Allow);
        let mut gateway = Gateway::with(vec![line], AccessAction::Deny);
        let other = Exchange { service_id: tcp(4421), ..Exchange::of(B, A) };
        gateway.takes(Side::Wire, other.request(), Err(DropReason::AccessDenied));
        gateway.connects(&Exchange { service_id: tcp(4420), ..Exchange::of(B, A) });
        gateway.passes(&[B.send_only(100), B.write_only(101)]);
        gateway.denies(&[End { to_qp: 0xc, ..B }.send_only(1)]);
        // The line is about what B asks of A.
        gateway.denies(&[A.send_only(500)]);
    }

    #[test]
    fn the_server_s_own_requests_are_of_the_service_too() {
        let back = Line {
            from: judged::host(1),
            to: judged::host(2),
            ..of_service("target-writes", tcp(4420), AccessAction::Allow)
        };
        let lines = vec![of_service("nvme", tcp(4420), AccessAction::Allow), back];
        let mut gateway = Gateway::with(lines, AccessAction::Deny);
        gateway.connects(&Exchange { service_id: tcp(4420), ..Exchange::of(B, A) });
        gateway.passes(&[A.write_only(500)]);
    }

    #[test]
    fn a_service_that_a_line_denies_is_refused_and_others_pass() {
        let line = of_service("no-iser", tcp(3260), AccessAction::Deny);
        let mut gateway = Gateway::with(vec![line], AccessAction::Allow);
        let iser = Exchange { service_id: tcp(3260), ..Exchange::of(B, A) };
        gateway.takes(Side::Wire, iser.request(), Err(DropReason::AccessDenied));
        gateway.connects(&Exchange { service_id: tcp(4420), ..Exchange::of(B, A) });
        gateway.passes(&[B.write_only(100)]);
        // Queue pairs that nobody saw connected serve nothing that is known.
        gateway.passes(&[End { to_qp: 0xc, ..B }.write_only(1)]);
    }

    #[test]
    fn a_request_that_contradicts_an_earlier_one_names_no_service() {
        let writes = Line {
            operations: Operations::of([Operation::Write]),
            ..of_service("nvme", tcp(4420), AccessAction::Allow)
        };
        let connects = b_to_a("connects", &[Operation::Connect], AccessAction::Allow);
        let mut gateway = Gateway::with(vec![writes, connects], AccessAction::Deny);
        let first = Exchange { service_id: tcp(4421), ..Exchange::of(B, A) };
        let nvme = Exchange { service_id: tcp(4420), ..first };
        gateway.takes(Side::Wire, first.request(), Ok(()));
        gateway.takes(Side::Wire, nvme.request(), Err(DropReason::AccessUnreadable));
        gateway.takes(Side::Wire, first.request(), Ok(()));
        gateway.takes(Side::Host, first.reply(), Ok(()));
        gateway.denies(&[B.write_only(100)]);
        // Nor after the answer, which may be repeated.
        gateway.takes(Side::Wire, first.disconnect(), Ok(()));
        gateway.takes(Side::Wire, nvme.request(), Err(DropReason::AccessUnreadable));
        gateway.takes(Side::Host, first.reply(), Ok(()));
        gateway.denies(&[B.write_only(101)]);
        gateway.wait_ms(601_000);
        gateway.connects(&nvme);
        gateway.passes(&[B.write_only(102)]);
    }

    #[test]
    fn a_request_with_another_icrc_is_none() {
        let line = of_service("nvme", tcp(4420), AccessAction::Allow);
        let mut gateway = Gateway::with(vec![line], AccessAction::Deny);
        let exchange = Exchange { service_id: tcp(4420), ..Exchange::of(B, A) };
        let mut damaged = exchange.request();
        *damaged.last_mut().unwrap() ^= 1;
        gateway.takes(Side::Wire, damaged, Ok(()));
        gateway.takes(Side::Host, exchange.reply(), Ok(()));
        gateway.denies(&[B.write_only(100)]);
    }

    #[test]
    fn datagrams_of_a_named_service_are_judged_by_it() {
        let line = of_service("directory", 7, AccessAction::Allow);
        let connects = Line {
            operations: Operations::of([Operation::Connect]),
            ..of_service("other", 8, AccessAction::Allow)
        };
        let mut gateway = Gateway::with(vec![line, connects], AccessAction::Deny);
        let ask = Packet { source_qp: 0xb, ..B.datagram(1) };
        gateway.denies(&[ask]);
        gateway.takes(Side::Wire, asks(B, 7), Ok(()));
        gateway.takes(Side::Host, serves(A, 0xa, 7), Ok(()));
        gateway.denies(&[Packet { source_qp: 0xc, ..End { to_qp: 0xd, ..B }.datagram(1) }]);
        // What was decided of a direction before is asked anew.
        gateway.passes(&[ask, Packet { source_qp: 0xe, ..B.datagram(1) }]);
        gateway.takes(Side::Wire, asks(B, 8), Ok(()));
        gateway.takes(Side::Host, serves(A, 0xa, 8), Ok(()));
        gateway.denies(&[ask]);
    }
}

#[test]
fn a_line_for_one_kind_of_queue_pair_leaves_the_others() {
    let kinds = QueuePairTypes::of([QueuePairType::Uc]);
    let line = Line {
        terms: Terms { qp_types: kinds, ..Terms::default() },
        ..b_to_a("no-uc", &[Operation::Send], AccessAction::Deny)
    };
    let mut gateway = Gateway::with(vec![line], AccessAction::Allow);
    gateway.denies(&[B.uc_send_only(1)]);
    gateway.passes(&[B.send_only(1)]);
    gateway.passes(&[Packet { source_qp: 0xb, ..B.datagram(1) }]);
    gateway.passes(&[Packet { opcode: Opcode::XRC_SEND_ONLY, ..B.datagram(1) }]);
    gateway.denies(&[B.uc_send_only(2)]);
}

#[test]
fn what_manufacturers_opcodes_ask_is_of_dct() {
    let kinds = QueuePairTypes::of([QueuePairType::Dct]);
    let terms = Terms { qp_types: kinds, ..Terms::default() };
    let line = Line { terms, ..b_to_a("dct", &[], AccessAction::Deny) };
    let mut gateway = Gateway::with(vec![line], AccessAction::Allow);
    let asks = |opcode| Packet { opcode: Opcode(opcode), ..B.send_only(1) };
    gateway.passes(&[B.send_only(1)]);
    for opcode in [0xc0, 0xca, 0xe4, 0xff] {
        gateway.denies(&[asks(opcode)]);
    }
    for reserved in [0x80, 0x9f] {
        gateway.passes(&[asks(reserved)]);
    }
}

#[test]
fn a_line_that_ends_decides_no_more_and_what_it_decided_is_forgotten() {
    let mut gateway = Gateway::with(vec![], AccessAction::Deny);
    let terms = Terms { expires: Some(gateway.now.plus_ns(1_500_000_000)), ..Terms::default() };
    let line = Line { terms, ..b_to_a("for-now", &[], AccessAction::Allow) };
    gateway.reload(vec![line], AccessAction::Deny);
    gateway.passes(&[B.write_only(1)]);
    gateway.wait_ms(1_400);
    gateway.passes(&[B.write_only(2)]);
    gateway.wait_ms(200);
    gateway.denies(&[B.write_only(3)]);
}

#[test]
fn a_line_holds_in_its_hours() {
    // 2023-11-14 was a Tuesday; the gateway's clock begins at 22:13:20 UTC.
    let hours = [Hours { days: 0b10, from: 22 * 60 + 15, until: 22 * 60 + 17 }].into();
    let terms = Terms { hours, ..Terms::default() };
    let line = Line { terms, ..b_to_a("tuesdays", &[], AccessAction::Allow) };
    let mut gateway = Gateway::with(vec![line], AccessAction::Deny);
    assert_eq!(gateway.now, Time(1_700_000_000_000_000_000));
    gateway.denies(&[B.write_only(1)]);
    gateway.wait_ms(100_000);
    gateway.passes(&[B.write_only(2)]);
    gateway.wait_ms(120_000);
    gateway.denies(&[B.write_only(3)]);
}

mod limits {
    use super::*;

    fn limited(limits: Limits) -> Gateway {
        let line = Line { limits: Some(limits), ..b_to_a("some", &[], AccessAction::Allow) };
        Gateway::with(vec![line], AccessAction::Allow)
    }

    impl Gateway {
        /// How many of the packets pass.
        fn passing(&mut self, packets: impl IntoIterator<Item = Packet>) -> usize {
            let mut pass = |packet| self.verdicts(&[packet]) == [Verdict::Forward];
            packets.into_iter().filter(|it| pass(*it)).count()
        }
    }

    #[test]
    fn messages_of_a_source_are_limited_and_another_s_are_not() {
        let mut gateway = limited(Limits { messages: Some(10), ..Limits::default() });
        assert_eq!(gateway.passing((0..50).map(|psn| B.send_only(psn))), 10);
        gateway.drops(&[B.send_only(50)], DropReason::AccessLimit);
        let told = gateway.events();
        assert_eq!(told.len(), 41, "each that was too much");
        assert_eq!(told[40].line.as_deref(), Some("some"));
        assert_eq!((told[40].dropped, told[40].passes()), (Some(DropReason::AccessLimit), false));
        gateway.passes(&[End { host: 3, ..B }.send_only(1)]);
        gateway.wait_ms(1_000);
        assert_eq!(gateway.passing((51..99).map(|psn| B.send_only(psn))), 10);
        assert_eq!(gateway.engine.access().unwrap().limited_packets(), 40 + 1 + 38);
    }

    #[test]
    fn reads_are_limited_by_what_they_ask_for() {
        let mut gateway = limited(Limits { read_bytes: Some(100_000), ..Limits::default() });
        assert_eq!(gateway.passing((0..50).map(|psn| B.read(psn, 10_000))), 10);
        gateway.passes(&[B.send_only(90)]);
    }

    #[test]
    fn bits_are_limited_by_source_and_by_queue_pair() {
        let bits = B.send_only(0).bytes().len() as u64 * 8;
        let other = End { to_qp: 0xd, ..B };
        let both =
            |from: u32| (from..from + 20).flat_map(|psn| [B.send_only(psn), other.send_only(psn)]);
        let mut gateway = limited(Limits { source_bits: Some(bits * 10), ..Limits::default() });
        assert_eq!(gateway.passing(both(0)), 10);
        let mut gateway = limited(Limits { queue_pair_bits: Some(bits * 10), ..Limits::default() });
        assert_eq!(gateway.passing(both(0)), 20);
    }

    #[test]
    fn connections_are_limited_by_the_second_and_by_how_many_stand() {
        let exchange = |number: u32| {
            let (requester, responder) =
                (End { to_qp: 100 + number, ..B }, End { to_qp: 200 + number, ..A });
            Exchange { ids: [number, number], ..Exchange::of(requester, responder) }
        };
        let mut gateway = limited(Limits { connects: Some(3), ..Limits::default() });
        (0..3).for_each(|it| gateway.takes(Side::Wire, exchange(it).request(), Ok(())));
        gateway.takes(Side::Wire, exchange(3).request(), Err(DropReason::AccessLimit));
        let mut gateway = limited(Limits { queue_pairs: Some(2), ..Limits::default() });
        (0..2).for_each(|it| gateway.connects(&exchange(it)));
        gateway.takes(Side::Wire, exchange(2).request(), Err(DropReason::AccessLimit));
        gateway.takes(Side::Wire, exchange(0).disconnect(), Ok(()));
        gateway.connects(&exchange(2));
    }

    #[test]
    fn connections_that_stand_at_another_worker_count_and_those_of_both_count_once() {
        let exchange = |number: u32| {
            let (requester, responder) =
                (End { to_qp: 100 + number, ..B }, End { to_qp: 200 + number, ..A });
            Exchange { ids: [number, number], ..Exchange::of(requester, responder) }
        };
        let mut workers = [(); 2].map(|()| {
            let limits = Limits { queue_pairs: Some(2), ..Limits::default() };
            let line = Line { limits: Some(limits), ..b_to_a("some", &[], AccessAction::Allow) };
            let mut worker = Gateway::with(vec![line], AccessAction::Allow);
            worker.engine.set_one_of_several();
            worker
        });
        let tell = |workers: &mut [Gateway; 2]| {
            let told = workers.each_mut().map(|it| it.engine.take_counted());
            for (hearer, counted) in workers.iter_mut().rev().zip(&told) {
                let now = hearer.now;
                counted.iter().for_each(|it| hearer.engine.add_counted(it, now));
            }
        };
        workers[0].connects(&exchange(0));
        workers[1].connects(&exchange(1));
        tell(&mut workers);
        for worker in &mut workers {
            worker.takes(Side::Wire, exchange(2).request(), Err(DropReason::AccessLimit));
        }
        tell(&mut workers);
        workers[0].takes(Side::Wire, exchange(0).disconnect(), Ok(()));
        tell(&mut workers);
        workers[1].connects(&exchange(2));
        tell(&mut workers);
        workers[0].takes(Side::Wire, exchange(3).request(), Err(DropReason::AccessLimit));
    }
}
