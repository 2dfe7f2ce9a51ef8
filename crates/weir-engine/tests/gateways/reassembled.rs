//! Several workers of one gateway: a datagram that comes in pieces to one of them is judged by the
//! one that has its flow, and its last piece waits for that.

use weir_engine::pipeline::Reassembled;

use super::inline::{ATTACKER, VICTIM, gateway, ipv4, sign, udp_payload};
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
    let [first, last] = pieces(number, text);
    assert_eq!(worker.receive(side, &[first]).len(), 1, "nothing is known yet");
    let received = worker.counters().side(side).received;
    assert_eq!(worker.receive(side, &[last]).len(), 0, "it waits");
    assert_eq!(worker.counters().side(side).received, received, "and is counted when it goes on");
    worker.engine.take_reassembled().expect("it is whole")
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
        Ok(()) => {
            let (mut piece, onward) = reassembled.piece();
            let frames = from_mut(&mut piece);
            worker.engine.go_on(worker.clock, onward, frames);
            collect(worker.engine.output(), frames)
        }
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
        assert_eq!(sent, [pieces(1, b"xxxxxxgood")[1].clone()], "as it came");
        assert_eq!(of_pieces.counters().side(side).forwarded, 2);

        let evil = complete(&mut of_pieces, side, 2, b"xxxxxxevil");
        assert!(settle(&mut of_pieces, &mut of_flow, evil).is_empty());
        assert_eq!(of_pieces.dropped(side, DropReason::Rule), 1);
        let mut alerts = 0;
        of_flow.engine.take_alerts(&mut |_, _| alerts += 1);
        assert_eq!(alerts, 2, "told by who has the flow");
        assert_eq!(of_flow.counters().side(side).received, 1, "who judges receives nothing");

        let alone = complete(&mut of_pieces, side, 3, b"xxxxxxevil");
        let [_, mut other] = workers();
        assert_eq!(settle(&mut of_pieces, &mut other, alone).len(), 1, "no flow was opened there");
    }
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
    let arrived = only(Destination::Host, b.receive(Side::Wire, &sealed));
    assert_eq!(arrived, [pieces(1, b"xxxxxxgood")[0].clone()]);
    let waiting = b.engine.take_reassembled().expect("it is whole");
    let [_, mut of_flow] = workers();
    let sent = only(Destination::Host, settle(&mut b, &mut of_flow, waiting));
    assert_eq!(sent, [pieces(1, b"xxxxxxgood")[1].clone()]);
    let wire = &b.counters().wire;
    assert_eq!((wire.opened, wire.received), (2, before.received + 2));
    let bytes: usize = sealed.iter().map(Vec::len).sum();
    let received = wire.received_bytes - before.received_bytes;
    assert_eq!(received, bytes as u64, "as they were received");
}

#[test]
fn more_than_may_wait_are_dropped_and_counted() {
    let [mut worker, _] = workers();
    for number in 0..=255 {
        let [first, last] = pieces(number, b"xxxxxxgood");
        worker.receive(Side::Wire, &[first, last]);
    }
    assert_eq!(worker.dropped(Side::Wire, DropReason::FlowQueueFull), 0);
    let mut one_more = pieces(0, b"xxxxxxgood");
    for piece in &mut one_more {
        piece[18] = 0x77;
        sign(piece);
    }
    worker.receive(Side::Wire, &one_more);
    assert_eq!(worker.dropped(Side::Wire, DropReason::FlowQueueFull), 1);
}

#[test]
fn a_worker_that_is_alone_judges_at_once() {
    let mut alone = gateway(RULES, |_| ());
    let [first, last] = pieces(1, b"xxxxxxgood");
    assert_eq!(alone.receive(Side::Wire, &[first, last]).len(), 2);
    assert!(alone.engine.take_reassembled().is_none());
}
