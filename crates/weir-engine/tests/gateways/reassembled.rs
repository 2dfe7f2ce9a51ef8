//! Datagrams in pieces: all pieces wait until they make a datagram and that was judged, be it by
//! another worker of the gateway, which has its flow.

use weir_engine::detect::RuleMode;
use weir_engine::pipeline::Reassembled;
use weir_engine::policy::{Exception, Exceptions};

use super::inline::{ATTACKER, EVIL, OWN, VICTIM, gateway, ipv4, sign, udp_payload, vxlan};
use super::*;

/// What says `open` opens its flow; what says `evil` there is dropped.
const RULES: &str = "alert udp any any -> any 99 (content:\"open\"; flowbits:set,opened; sid:1;)\n\
     drop udp any any -> any 99 (content:\"evil\"; flowbits:isset,opened; sid:2;)";

/// The worker that pieces come to, and the one that has their flow.
fn workers() -> [Gateway; 2] {
    [(); 2].map(|()| {
        let mut worker = gateway(RULES, |_| ());
        worker.engine.set_one_of_several();
        worker
    })
}

fn pieces(number: u8, text: &[u8]) -> [Vec<u8>; 2] {
    let datagram = udp_payload(99, text);
    let (first, last) = datagram.split_at(16);
    [(0x2000, first), (2, last)].map(|(flags, payload)| {
        let mut piece = ipv4(ATTACKER, VICTIM, 17, flags, payload);
        piece[19] = number;
        sign(&mut piece);
        piece
    })
}

/// Both pieces come to `worker`; what waits then.
fn complete(worker: &mut Gateway, side: Side, number: u8, text: &[u8]) -> Box<Reassembled> {
    let received = worker.counters().side(side).received;
    for piece in pieces(number, text) {
        assert_eq!(worker.receive(side, &[piece]).len(), 0, "it waits");
    }
    assert_eq!(worker.counters().side(side).received, received, "and is counted when it goes on");
    worker.elsewhere.pop_front().expect("it is whole")
}

/// `judge` judges; what `worker` sends then.
fn settle(
    worker: &mut Gateway,
    judge: &mut Gateway,
    mut reassembled: Box<Reassembled>,
) -> Vec<(Destination, Sent)> {
    match judge.engine.judge_reassembled(judge.clock, &reassembled) {
        Err(reason) => {
            worker.engine.drop_reassembled(&reassembled, reason);
            Vec::new()
        }
        Ok(()) => worker.go_on(&mut reassembled),
    }
}

#[test]
fn a_datagram_is_judged_in_the_state_of_its_flow_which_another_worker_has() {
    for side in [Side::Host, Side::Wire] {
        let [mut of_pieces, mut of_flow] = workers();
        let whole = ipv4(ATTACKER, VICTIM, 17, 0, &udp_payload(99, b"open"));
        assert_eq!(of_flow.receive(side, &[whole]).len(), 1);
        let destination = if side == Side::Host { Destination::Wire } else { Destination::Host };

        let good = complete(&mut of_pieces, side, 1, b"xxxxxxgood");
        let sent = only(destination, settle(&mut of_pieces, &mut of_flow, good));
        assert_eq!(sent, pieces(1, b"xxxxxxgood"), "as they came");
        assert_eq!(of_pieces.counters().side(side).forwarded, 2);

        let evil = complete(&mut of_pieces, side, 2, b"xxxxxxevil");
        assert!(settle(&mut of_pieces, &mut of_flow, evil).is_empty());
        assert_eq!(of_pieces.dropped(side, DropReason::Rule), 2, "both pieces");
        let mut alerts = 0;
        of_flow.engine.take_alerts(&mut |_, _| alerts += 1);
        assert_eq!(alerts, 2, "told by who has the flow");
        assert_eq!(of_flow.counters().side(side).received, 1, "who judges receives nothing");

        let alone = complete(&mut of_pieces, side, 3, b"xxxxxxevil");
        let [_, mut other] = workers();
        assert_eq!(settle(&mut of_pieces, &mut other, alone).len(), 2, "no flow was opened there");
    }
}

/// Its receiver would put what went on together with pieces of the next one of this number.
#[test]
fn of_a_datagram_of_which_a_piece_does_not_fit_nothing_goes_on() {
    const DF: u16 = 0x4000;
    let long = usize::from(WIRE_MTU - 20) & !7;
    let datagram = udp_payload(99, &vec![b'.'; 2 * long - 8]);
    let places = [(DF | 0x2000, 0..long), ((long / 8) as u16, long..datagram.len())];
    let pieces = places.map(|(flags, part)| {
        let mut piece = ipv4(ATTACKER, VICTIM, 17, flags, &datagram[part]);
        sign(&mut piece);
        piece
    });
    // Sealed, the first would have to be cut, which its sender forbids.
    let (mut sealing, _) = pair(Mode::Ethernet, true);
    let mut policy = sealing.engine.policy().clone();
    policy.rules = gateway(RULES, |_| ()).engine.policy().rules.clone();
    sealing.engine.swap(policy, Associations::default()).unwrap();
    assert!(sealing.receive(Side::Host, &pieces[..1]).is_empty());
    let sent = only(Destination::Host, sealing.receive(Side::Host, &pieces[1..]));
    assert_eq!(sent.len(), 1, "its sender is told");
    assert_eq!(sealing.dropped(Side::Host, DropReason::TooBig), 2);

    // In clear they fit, but for a longer one.
    let mut clear = gateway(RULES, |_| ());
    assert_eq!(clear.receive(Side::Host, &pieces).len(), 2);
    let mut jumbo = ipv4(ATTACKER, VICTIM, 17, 0x2000, &datagram[..long + 8]);
    let mut last = ipv4(ATTACKER, VICTIM, 17, (long / 8) as u16 + 1, &datagram[long + 8..]);
    sign(&mut jumbo);
    sign(&mut last);
    let sent = clear.receive(Side::Host, &[last.clone(), jumbo.clone()]);
    assert_eq!(only(Destination::Wire, sent), [jumbo.clone()], "its port refuses it");
    assert_eq!(clear.dropped(Side::Host, DropReason::TooBig), 1);

    // From a wire that carries more than the host's port does.
    let mut policy = clear.engine.policy().clone();
    policy.host_mtu = WIRE_MTU;
    clear.engine.swap(policy, Associations::default()).unwrap();
    assert_eq!(clear.receive(Side::Wire, &pieces).len(), 2);
    let sent = clear.receive(Side::Wire, &[last, jumbo.clone()]);
    assert_eq!(only(Destination::Host, sent), [jumbo]);
    assert_eq!(clear.dropped(Side::Wire, DropReason::TooBig), 1);
}

#[test]
fn a_rule_about_ports_alone_looks_at_the_whole_though_it_has_seen_the_first_piece() {
    let mut one = gateway("drop udp any any -> any 99 (sid:1;)", |_| ());
    for piece in pieces(1, b"no matter") {
        assert!(one.receive(Side::Host, &[piece]).is_empty());
    }
    assert_eq!(one.dropped(Side::Host, DropReason::Rule), 2, "both pieces");
}

#[test]
fn a_piece_that_another_peer_sealed_goes_on_as_it_was_opened() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let sealed = {
        let [first, last] = pieces(1, b"xxxxxxgood");
        only(Destination::Wire, a.receive(Side::Host, &[first, last]))
    };
    let mut policy = b.engine.policy().clone();
    policy.rules = gateway(RULES, |_| ()).engine.policy().rules.clone();
    b.engine.swap(policy, Associations::default()).unwrap();
    b.engine.set_one_of_several();
    let before = b.counters().wire.clone();
    assert!(b.receive(Side::Wire, &sealed).is_empty());
    let waiting = b.elsewhere.pop_front().expect("it is whole");
    let [_, mut of_flow] = workers();
    let sent = only(Destination::Host, settle(&mut b, &mut of_flow, waiting));
    assert_eq!(sent, pieces(1, b"xxxxxxgood"));
    let wire = &b.counters().wire;
    assert_eq!((wire.opened, wire.received), (2, before.received + 2));
    let bytes: usize = sealed.iter().map(Vec::len).sum();
    let received = wire.received_bytes - before.received_bytes;
    assert_eq!(received, bytes as u64, "as they were received");
}

#[test]
fn more_than_may_wait_are_dropped_and_counted() {
    let [mut worker, _] = workers();
    let of = |number: u16| {
        let mut pieces = pieces(number as u8, b"xxxxxxgood");
        for piece in &mut pieces {
            piece[18] = (number >> 8) as u8;
            sign(piece);
        }
        pieces
    };
    let batch: Vec<_> = (0..=256).flat_map(of).collect();
    worker.receive(Side::Wire, &batch);
    assert_eq!(worker.elsewhere.len(), 256);
    assert_eq!(worker.dropped(Side::Wire, DropReason::FlowQueueFull), 2, "both pieces of the last");
}

#[test]
fn a_worker_that_is_alone_judges_at_once() {
    for side in [Side::Host, Side::Wire] {
        let mut alone = gateway(EVIL, |_| ());
        let good = pieces(1, b"xxxxxxgood");
        assert_eq!(alone.receive(side, &good[..1]).len(), 0, "nothing is known yet");
        let there = if side == Side::Host { Destination::Wire } else { Destination::Host };
        assert_eq!(only(there, alone.receive(side, &good[1..])), good);
        assert_eq!(alone.receive(side, &pieces(2, b"xxxxxxevil")).len(), 0);
        assert_eq!(alone.dropped(side, DropReason::Rule), 2);
        assert_eq!(alone.counters().side(side).forwarded, 2);
        assert_eq!(alone.engine.inside_counters().assembled, 2);
    }
}

/// A host that did not get the piece that made the datagram whole puts another in its place.
#[test]
fn a_piece_that_comes_after_its_datagram_was_judged_waits_for_another_whole() {
    let mut gateway = gateway(EVIL, |_| ());
    let good = pieces(1, b"xxxxxxgood");
    let [first, evil] = pieces(1, b"xxxxxxevil");
    assert_eq!(only(Destination::Host, gateway.receive(Side::Wire, &good)), good);
    assert_eq!(gateway.receive(Side::Wire, from_ref(&evil)).len(), 0, "of what is it a piece?");
    assert_eq!(gateway.receive(Side::Wire, from_ref(&first)).len(), 0);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 2, "of this");
}

/// A receiver discards it and waits for the honest piece, which must not have passed as part of
/// something harmless.
#[test]
fn a_piece_that_says_it_is_longer_than_its_frame_makes_no_datagram_whole() {
    let longer = pieces(1, b"xxxxxxgood").map(|mut piece| {
        piece[17] += 8;
        sign(&mut piece);
        piece
    });
    let [first, last] = pieces(1, b"xxxxxxevil");
    for (refuses, refused) in [(true, 2), (false, 0)] {
        for side in [Side::Host, Side::Wire] {
            let mut gateway = gateway(EVIL, |it| {
                it.rules.as_mut().unwrap().limits.refuses_conflicts = refuses;
            });
            let sent = [&longer[0], &last, &first, &longer[1]]
                .map(|piece| gateway.receive(side, from_ref(piece)).len());
            assert_eq!(sent.iter().sum::<usize>(), 2 - refused);
            assert_eq!(gateway.dropped(side, DropReason::FragmentConflict), refused as u64);
            assert_eq!(gateway.dropped(side, DropReason::Rule), 2);
        }
    }
}

#[test]
fn pieces_without_the_others_are_dropped_when_their_time_is_over() {
    let mut gateway = gateway(EVIL, |_| ());
    let [first, last] = pieces(1, b"xxxxxxgood");
    assert_eq!(gateway.receive(Side::Wire, &[first]).len(), 0);
    for _ in 0..21 {
        assert!(gateway.tick().is_empty());
    }
    assert_eq!(gateway.dropped(Side::Wire, DropReason::FragmentsLate), 1);
    assert_eq!(gateway.receive(Side::Wire, &[last]).len(), 0, "it begins anew");
}

#[test]
fn pieces_without_room_meet_the_exception() {
    let first = |number: u16| {
        let mut first = pieces(0, b"xxxxxxgood")[0].clone();
        first[18..20].copy_from_slice(&number.to_be_bytes());
        sign(&mut first);
        first
    };
    for (fragments, gone) in [(Exception::Pass, (1, 0)), (Exception::Drop, (0, 1))] {
        let exceptions = Exceptions { fragments, ..Exceptions::default() };
        let mut gateway = gateway(EVIL, |policy| policy.exceptions = exceptions);
        let sent = (0..=4096).flat_map(|it| gateway.receive(Side::Wire, &[first(it)])).count();
        let dropped = gateway.dropped(Side::Wire, DropReason::FragmentsFull);
        assert_eq!((sent, dropped), gone);
    }
}

#[test]
fn rules_that_only_watch_hold_nothing_back() {
    let watch = |policy: &mut Policy| policy.rules.as_mut().unwrap().mode = RuleMode::Watch;
    let mut watching = gateway(EVIL, watch);
    for piece in pieces(1, b"xxxxxxevil") {
        assert_eq!(watching.receive(Side::Wire, from_ref(&piece)).len(), 1);
    }
    // What waits goes on when rules begin to watch, or are gone.
    for change in [&watch as &dyn Fn(&mut Policy), &|policy| policy.rules = None] {
        let mut gateway = gateway(EVIL, |_| ());
        let [first, last] = pieces(1, b"xxxxxxgood");
        assert!(gateway.receive(Side::Wire, from_ref(&first)).is_empty());
        let mut policy = gateway.engine.policy().clone();
        change(&mut policy);
        gateway.engine.swap(policy, Associations::default()).unwrap();
        assert_eq!(only(Destination::Host, gateway.release()), [first]);
        assert_eq!(only(Destination::Host, gateway.receive(Side::Wire, from_ref(&last))), [last]);
    }
}

#[test]
fn what_carries_a_piece_waits_with_it() {
    let mut gateway = gateway(EVIL, |_| ());
    let good = pieces(1, b"xxxxxxgood").map(|it| vxlan(&it));
    let evil = pieces(2, b"xxxxxxevil").map(|it| vxlan(&it));
    assert_eq!(gateway.receive(Side::Wire, &good[..1]).len(), 0);
    assert_eq!(only(Destination::Host, gateway.receive(Side::Wire, &good[1..])), good);
    assert_eq!(gateway.receive(Side::Wire, &evil).len(), 0);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 2);
    // In pieces itself.
    let cut = |number: u8, carrier: &[u8]| {
        let (first, last) = carrier[34..].split_at(24);
        [(0x2000, first), (3, last)].map(|(flags, payload)| {
            let mut piece = ipv4([10, 3, 0, 1], [10, 3, 0, 2], 17, flags, payload);
            piece[19] = number;
            sign(&mut piece);
            piece
        })
    };
    let good = [cut(1, &good[0]), cut(2, &good[1])].concat();
    assert_eq!(gateway.receive(Side::Wire, &good[..3]).len(), 0);
    assert_eq!(only(Destination::Host, gateway.receive(Side::Wire, &good[3..])), good);
    let evil = [cut(3, &evil[0]), cut(4, &evil[1])].concat();
    assert_eq!(gateway.receive(Side::Wire, &evil).len(), 0);
    assert_eq!(gateway.dropped(Side::Wire, DropReason::Rule), 2 + 4);
}

#[test]
fn pieces_for_the_gateway_itself_wait_too() {
    let mut gateway = gateway(EVIL, |_| ());
    let to_us = |text: &[u8]| {
        pieces(1, text).map(|mut piece| {
            piece[..6].copy_from_slice(&GATEWAY_A);
            piece[30..34].copy_from_slice(&OWN);
            sign(&mut piece);
            piece
        })
    };
    let good = to_us(b"xxxxxxgood");
    assert_eq!(gateway.receive(Side::Wire, &good[..1]).len(), 0);
    assert_eq!(only(Destination::Punt, gateway.receive(Side::Wire, &good[1..])), good);
    assert_eq!(gateway.receive(Side::Wire, &to_us(b"xxxxxxevil")).len(), 0);
    assert_eq!(gateway.counters().wire.punted, 2);
}
