//! Connections that rules drop in vain: their host is on the allow list, or rules only watched.

use std::sync::Arc;

use weir_engine::detect::RuleMode;
use weir_engine::plain::Blocks;

use super::inline::{ATTACKER, VICTIM, gateway, ipv4, segment};
use super::*;

const RULE: &str = "drop tcp any any -> any any (content:\"evil\"; sid:1;)";
const SYN: u8 = 2;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;

/// The attacker's connection to the victim, in which it has said that.
fn connect(gateway: &mut Gateway, said: &[u8]) -> usize {
    let begun = gateway.receive(Side::Wire, &[segment(999, SYN, b"")]);
    assert_eq!(begun.len(), 1);
    assert_eq!(gateway.receive(Side::Host, &[answer(4999, 1000, SYN | ACK, b"")]).len(), 1);
    gateway.receive(Side::Wire, &[segment(1000, PSH_ACK, said)]).len()
}

/// A segment of the victim.
fn answer(sequence: u32, acknowledged: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0, 80, 0x30, 0x39];
    tcp.extend([sequence, acknowledged].map(u32::to_be_bytes).concat());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    ipv4(VICTIM, ATTACKER, 6, 0, &tcp)
}

fn allowing(host: [u8; 4]) -> Gateway {
    let blocks = Arc::new(Blocks::default());
    blocks.replace(&[], &[Prefix::new(IpAddr::from(host), 32)]);
    gateway(RULE, |policy| policy.blocks = Some(blocks))
}

#[test]
fn answers_to_a_host_on_the_allow_list_come_although_rules_drop_what_it_says() {
    let mut gateway = allowing(ATTACKER);
    assert_eq!(connect(&mut gateway, b"evil"), 1);
    assert_eq!(gateway.receive(Side::Host, &[answer(5000, 1004, PSH_ACK, b"well")]).len(), 1);
    assert_eq!(gateway.receive(Side::Wire, &[segment(1004, ACK, b"")]).len(), 1);
    assert_eq!(gateway.engine.detection().unwrap().would_drop(), 1, "that packet alone");
    // The other end is on no list.
    assert!(gateway.receive(Side::Host, &[answer(5004, 1004, PSH_ACK, b"evil")]).is_empty());
}

#[test]
fn what_the_other_end_said_stays_dropped_whatever_the_host_on_the_list_says() {
    let mut gateway = allowing(VICTIM);
    assert_eq!(connect(&mut gateway, b"evil"), 0);
    assert_eq!(gateway.receive(Side::Host, &[answer(5000, 1000, PSH_ACK, b"what?")]).len(), 1);
    assert!(gateway.receive(Side::Wire, &[segment(1000, PSH_ACK, b"live")]).is_empty());
}

#[test]
fn who_is_put_on_the_allow_list_is_answered_though_a_rule_had_dropped_him_before() {
    let blocks = Arc::new(Blocks::default());
    let mut gateway = gateway(RULE, |policy| policy.blocks = Some(Arc::clone(&blocks)));
    assert_eq!(connect(&mut gateway, b"evil"), 0);
    assert!(gateway.receive(Side::Host, &[answer(5000, 1000, PSH_ACK, b"what?")]).is_empty());
    blocks.replace(&[], &[Prefix::new(IpAddr::from(ATTACKER), 32)]);
    assert_eq!(gateway.receive(Side::Wire, &[segment(1000, PSH_ACK, b"evil")]).len(), 1);
    assert_eq!(gateway.receive(Side::Host, &[answer(5000, 1004, PSH_ACK, b"what?")]).len(), 1);
}

#[test]
fn what_rules_watched_is_not_held_against_a_connection_when_they_enforce() {
    let mut gateway = gateway(RULE, |policy| policy.rules.as_mut().unwrap().mode = RuleMode::Watch);
    assert_eq!(connect(&mut gateway, b"evil"), 1);
    let mut policy = gateway.engine.policy().clone();
    policy.rules.as_mut().unwrap().mode = RuleMode::Enforce;
    gateway.engine.swap(policy, Associations::default()).unwrap();
    let harmless = segment(1004, PSH_ACK, b"good");
    assert_eq!(gateway.receive(Side::Wire, &[harmless]).len(), 1);
    assert!(gateway.receive(Side::Wire, &[segment(1008, PSH_ACK, b"evil")]).is_empty());
}

#[test]
fn who_was_spared_or_only_watched_is_dropped_by_his_address_as_soon_as_he_is_not() {
    let rule = format!("drop ip {} any -> any any (sid:1;)", IpAddr::from(ATTACKER));
    let blocks = Arc::new(Blocks::default());
    blocks.replace(&[], &[Prefix::new(IpAddr::from(ATTACKER), 32)]);
    let mut gateway =
        super::inline::gateway(&rule, |policy| policy.blocks = Some(Arc::clone(&blocks)));
    assert_eq!(connect(&mut gateway, b"good"), 1);
    blocks.replace(&[], &[]);
    assert!(gateway.receive(Side::Wire, &[segment(1004, PSH_ACK, b"good")]).is_empty());

    let mut gateway = super::inline::gateway(&rule, |policy| {
        policy.rules.as_mut().unwrap().mode = RuleMode::Watch;
    });
    assert_eq!(connect(&mut gateway, b"good"), 1);
    let mut policy = gateway.engine.policy().clone();
    policy.rules.as_mut().unwrap().mode = RuleMode::Enforce;
    gateway.engine.swap(policy, Associations::default()).unwrap();
    assert!(gateway.receive(Side::Wire, &[segment(1004, PSH_ACK, b"good")]).is_empty());
}

#[test]
fn a_connection_that_a_reload_freed_is_held_against_who_is_dropped_next() {
    let blocks = Arc::new(Blocks::default());
    let mut gateway = gateway(RULE, |policy| policy.blocks = Some(Arc::clone(&blocks)));
    assert_eq!(connect(&mut gateway, b"evil"), 0);
    let enforced = gateway.engine.policy().clone();
    let others = "drop tcp 192.0.2.250 any -> any any (content:\"evil\"; sid:1;)";
    let mut freed = super::inline::gateway(others, |_| {}).engine.policy().clone();
    freed.blocks.clone_from(&enforced.blocks);
    for policy in [freed, enforced] {
        gateway.engine.swap(policy, Associations::default()).unwrap();
    }
    blocks.replace(&[], &[Prefix::new(IpAddr::from(ATTACKER), 32)]);
    assert!(gateway.receive(Side::Host, &[answer(5000, 1000, PSH_ACK, b"evil")]).is_empty());
    assert_eq!(gateway.receive(Side::Wire, &[segment(1000, PSH_ACK, b"good")]).len(), 1);
    assert!(gateway.receive(Side::Host, &[answer(5004, 1004, PSH_ACK, b"good")]).is_empty());
}
