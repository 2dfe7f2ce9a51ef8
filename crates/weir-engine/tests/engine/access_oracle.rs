//! The engine's verdicts, kept by queue pair and found again after reloads, against a judge that
//! looks at every line for every packet.

use std::net::IpAddr;

use super::judged::Gateway;
use super::talk::{End, Packet};
use proptest::prelude::*;
use weir_engine::access::{
    AccessAction, AccessPolicy, Asked, Line, Marks, Operation, Operations, Party, PsnCheck,
    QueuePairType, QueuePairTypes, Terms,
};
use weir_engine::policy::{Prefix, mapped};
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::{Link, Offload};
use weir_wire::icrc;
use weir_wire::parse::{MacAddress, parse};

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    Packet { from: u8, to: u8, qp: u32, what: usize, p_key: u16, mac: u8 },
    Reload(Vec<Line>, bool),
}

/// Each kind of packet: what it asks, over which kind of queue pair.
const KINDS: [(Option<Operation>, Option<QueuePairType>); 7] = [
    (Some(Operation::Send), Some(QueuePairType::Rc)),
    (Some(Operation::Write), Some(QueuePairType::Rc)),
    (Some(Operation::Read), Some(QueuePairType::Rc)),
    (Some(Operation::Atomic), Some(QueuePairType::Rc)),
    (Some(Operation::Send), Some(QueuePairType::Uc)),
    (Some(Operation::Send), Some(QueuePairType::Ud)),
    (None, None),
];

fn packet(end: End, what: usize, psn: u32) -> Packet {
    match what {
        0 => end.send_only(psn),
        1 => end.write_only(psn),
        2 => end.read(psn, 64),
        3 => end.fetch_add(psn),
        4 => end.uc_send_only(psn),
        5 => Packet { source_qp: 7, ..end.datagram(psn) },
        _ => end.ack(psn),
    }
}

fn line() -> impl Strategy<Value = Line> {
    let hosts = prop_oneof![1 => Just(vec![]), 3 => prop::collection::vec(1u8..5, 1..3)];
    let party = (hosts, prop::option::weighted(0.2, 1u8..4)).prop_map(|(hosts, mac)| {
        let prefix = |host| Prefix::new(IpAddr::from([10, 0, 0, host]), 32);
        let macs = mac.map(|last| MacAddress([2, 0, 0, 0, 0, last]));
        let marks = Marks { macs: macs.into_iter().collect(), ..Marks::default() };
        Party::with_marks(hosts.into_iter().map(prefix).collect(), marks)
    });
    let kinds = prop::sample::subsequence(QueuePairType::ALL.to_vec(), 1..4);
    let terms = (prop::option::weighted(0.3, kinds), prop::option::weighted(0.3, 0u16..3))
        .prop_map(|(kinds, partition)| Terms {
            qp_types: kinds.map_or(QueuePairTypes::ALL, QueuePairTypes::of),
            partitions: partition.into_iter().collect(),
            ..Terms::default()
        });
    let actions = prop::sample::select(AccessAction::ALL.to_vec());
    (party.clone(), party, any::<u8>(), terms, actions).prop_map(
        |(from, to, bits, terms, action)| Line {
            name: "".into(),
            from,
            to,
            operations: Operations::of(
                Operation::ALL.into_iter().filter(|it| bits >> *it as u8 & 1 == 1),
            ),
            terms,
            limits: None,
            action,
            log: false,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let packet = (1u8..4, 1u8..4, 1u32..3, 0..KINDS.len(), 0u16..3, 1u8..4).prop_map(
        |(from, to, qp, what, p_key, mac)| Step::Packet { from, to, qp: qp + 9, what, p_key, mac },
    );
    let reload = (prop::collection::vec(line(), 0..8), any::<bool>())
        .prop_map(|(lines, allows)| Step::Reload(lines, allows));
    prop_oneof![12 => packet, 1 => reload]
}

fn default_of(allows: bool) -> AccessAction {
    if allows { AccessAction::Allow } else { AccessAction::Deny }
}

proptest! {
    #[test]
    fn what_is_kept_of_a_queue_pair_is_what_its_lines_say_now(
        lines in prop::collection::vec(line(), 0..8),
        allows in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let policy = |lines: &[Line], allows| {
            AccessPolicy::new(lines.to_vec(), default_of(allows)).with_psn(PsnCheck::Off)
        };
        let mut gateway = Gateway::with(vec![], AccessAction::Allow);
        let mut judge = policy(&lines, allows);
        gateway.reload_with(policy(&lines, allows));
        for (psn, step) in (0..).zip(steps) {
            let (from, to, qp, what, p_key, mac) = match step {
                Step::Reload(lines, allows) => {
                    judge = policy(&lines, allows);
                    gateway.reload_with(policy(&lines, allows));
                    continue;
                }
                Step::Packet { from, to, qp, what, p_key, mac } => (from, to, qp, what, p_key, mac),
            };
            let end = End { host: from, peer: to, to_qp: qp, port: 50_001 };
            let mut bytes = packet(end, what, psn).bytes();
            bytes[11] = mac;
            bytes[44..46].copy_from_slice(&(0x8000 | p_key).to_be_bytes());
            let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
            prop_assert!(icrc::write(&mut bytes, &parsed));
            let (operation, qp_type) = KINDS[what];
            let asked = Asked {
                qp_type,
                partition: Some(p_key),
                macs: Some([MacAddress([2, 0, 0, 0, 0, mac]), MacAddress([2, 0, 0, 0, 0, to])]),
                now: gateway.now,
                ..Asked::NOTHING
            };
            let [source, destination] =
                [from, to].map(|it| mapped(IpAddr::from([10, 0, 0, it])));
            let passes = operation.is_none_or(|operation| {
                let first = judge.matching(&source, &destination, operation, &asked).next();
                let action = first.map_or(judge.default_action(), |it| judge.lines()[it].action);
                action.passes()
            });
            let verdict = gateway.verdict_of(Side::Wire, bytes, Offload::default());
            let expected = match passes {
                true => Verdict::Forward,
                false => Verdict::Drop(DropReason::AccessDenied),
            };
            prop_assert_eq!(verdict, expected, "{:?} of {} to {} {:?}", operation, from, to, asked);
        }
    }
}
