//! What lines of access let past the gateway, carried by the kernel.

use super::judged::{Gateway, b_to_a};
use super::talk::{A, B, End, Packet};
use weir_engine::access::{
    AccessAction, AccessPolicy, AccessState, Limits, Line, Operation, PsnCheck, QueuePairType,
    QueuePairTypes, Terms,
};
use weir_engine::fastpath::{Command, FastPath};

fn gateway(policy: AccessPolicy) -> Gateway {
    let mut gateway = Gateway::with(vec![], AccessAction::Allow);
    gateway.reload_with(policy);
    gateway.engine.set_fast_path(Some(FastPath::new(64, 7)));
    gateway
}

/// Whether the kernel is asked to carry what this end says, after many packets of it.
fn is_carried(gateway: &mut Gateway, packet: impl Fn(u32) -> Packet) -> bool {
    (0..1100).for_each(|psn| gateway.passes(&[packet(psn)]));
    let command = gateway.engine.fast_path().unwrap().next_command();
    matches!(command, Some(Command::Install(_)))
}

fn all(action: AccessAction) -> Line {
    b_to_a("all", &[], action)
}

#[test]
fn a_direction_that_may_do_everything_is_carried() {
    let mut gateway =
        gateway(AccessPolicy::new(vec![all(AccessAction::Allow)], AccessAction::Deny));
    assert!(is_carried(&mut gateway, |psn| B.write_only(psn)));
}

#[test]
fn one_that_may_not_do_everything_is_looked_at() {
    let writes = b_to_a("writes", &[Operation::Write], AccessAction::Deny);
    let mut gateway = gateway(AccessPolicy::new(vec![writes], AccessAction::Allow));
    assert!(!is_carried(&mut gateway, |psn| B.send_only(psn)));
    gateway.denies(&[B.write_only(2000)]);
    // The other way nothing is denied.
    assert!(is_carried(&mut gateway, |psn| A.send_only(psn)));
}

#[test]
fn what_is_counted_limited_told_of_or_may_change_is_looked_at() {
    let allow = || all(AccessAction::Allow);
    let limits = Limits { messages: Some(1 << 40), ..Limits::default() };
    let rc = Terms { qp_types: QueuePairTypes::of([QueuePairType::Rc]), ..Terms::default() };
    let ends = Terms { expires: Some(weir_wire::frame::Time(u64::MAX)), ..Terms::default() };
    let policy = |line| AccessPolicy::new(vec![line], AccessAction::Deny);
    for (why, policy) in [
        ("log", policy(Line { log: true, ..allow() })),
        ("limit", policy(Line { limits: Some(limits), ..allow() })),
        ("would_deny", policy(all(AccessAction::WouldDeny))),
        ("qp_type", policy(Line { terms: rc, ..allow() })),
        ("expires", policy(Line { terms: ends, ..allow() })),
        ("state", policy(allow()).with_state(AccessState::Learn)),
        ("psn", policy(allow()).with_psn(PsnCheck::Drop)),
    ] {
        let mut gateway = gateway(policy);
        assert!(!is_carried(&mut gateway, |psn| B.write_only(psn)), "{why}");
    }
}

#[test]
fn datagrams_that_make_connections_are_looked_at() {
    let mut gateway = gateway(AccessPolicy::new(vec![], AccessAction::Allow));
    let manager = End { to_qp: 1, ..B };
    assert!(!is_carried(&mut gateway, |psn| Packet { source_qp: 1, ..manager.datagram(psn) }));
}
