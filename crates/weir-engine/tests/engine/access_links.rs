//! Lines that name MAC addresses, VLANs and partitions; owners over a restart.

use std::net::IpAddr;
use std::sync::Arc;

use super::judged::cm::Exchange;
use super::judged::{self, Gateway, b_to_a};
use super::talk::{A, B, End, Packet};
use weir_engine::access::{
    AccessAction, AccessPolicy, AccessState, Line, Marks, Operation, Party, SavingPlace, Terms,
};
use weir_engine::policy::Prefix;
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::{Link, Offload};
use weir_wire::icrc;
use weir_wire::parse::{MacAddress, parse};

/// The packet with another P_Key, source MAC address and VLAN tag.
fn altered(packet: Packet, p_key: u16, mac: Option<u8>, vlan: Option<u16>) -> Vec<u8> {
    let mut bytes = packet.bytes();
    bytes[14 + 20 + 8 + 2..14 + 20 + 8 + 4].copy_from_slice(&p_key.to_be_bytes());
    if let Some(last) = mac {
        bytes[11] = last;
    }
    if let Some(vlan) = vlan {
        let tag = [0x81, 0, (vlan >> 8) as u8, vlan as u8];
        bytes.splice(12..12, tag);
    }
    let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
    assert!(icrc::write(&mut bytes, &parsed));
    bytes
}

fn passes(gateway: &mut Gateway, bytes: Vec<u8>) -> bool {
    gateway.verdicts_on(Side::Wire, &[bytes], Offload::default()) == [Verdict::Forward]
}

fn allowing(terms: Terms, from: Party) -> Gateway {
    let line = Line { terms, from, ..b_to_a("some", &[Operation::Write], AccessAction::Allow) };
    Gateway::with(vec![line], AccessAction::Deny)
}

#[test]
fn a_partition_is_asked_of_each_packet_whoever_the_member() {
    let terms = Terms { partitions: Arc::new([5]), ..Terms::default() };
    let mut gateway = allowing(terms, judged::host(2));
    for (p_key, is_in) in
        [(0x8005, true), (0x8006, false), (5, true), (0xffff, false), (0x8005, true)]
    {
        let packet = altered(B.write_only(1), p_key, None, None);
        assert_eq!(passes(&mut gateway, packet), is_in, "{p_key:#x}");
    }
}

#[test]
fn a_vlan_is_another_network() {
    let terms = Terms { vlans: Arc::new([0, 100]), ..Terms::default() };
    let mut gateway = allowing(terms, judged::host(2));
    for (vlan, is_in) in [(None, true), (Some(100), true), (Some(101), false), (Some(0), true)] {
        let packet = altered(B.write_only(1), 0xffff, None, vlan);
        assert_eq!(passes(&mut gateway, packet), is_in, "{vlan:?}");
    }
}

#[test]
fn a_mac_address_is_asked_of_each_packet() {
    let party = Party::with_marks(
        vec![],
        Marks { macs: vec![MacAddress([2, 0, 0, 0, 0, 2])], ..Marks::default() },
    );
    let mut gateway = allowing(Terms::default(), party);
    for (mac, is_it) in [(2, true), (9, false), (2, true), (9, false)] {
        let packet = altered(B.write_only(1), 0xffff, Some(mac), None);
        assert_eq!(passes(&mut gateway, packet), is_it, "{mac}");
    }
}

#[test]
fn members_by_address_and_by_mac_address_are_together() {
    let prefix = Prefix::new(IpAddr::from([10, 0, 0, 7]), 32);
    let party = Party::with_marks(
        vec![prefix],
        Marks { macs: vec![MacAddress([2, 0, 0, 0, 0, 2])], ..Marks::default() },
    );
    let mut gateway = allowing(Terms::default(), party);
    let host = |host| End { host, ..B }.write_only(1);
    assert!(passes(&mut gateway, altered(host(7), 0xffff, Some(9), None)));
    assert!(passes(&mut gateway, altered(host(8), 0xffff, Some(2), None)));
    assert!(!passes(&mut gateway, altered(host(8), 0xffff, Some(9), None)));
}

#[test]
fn members_by_vlan_and_by_partition_are_asked_of_each_packet() {
    let prefix = Prefix::new(IpAddr::from([10, 0, 0, 7]), 32);
    let marks = Marks { vlans: vec![100, 7], partitions: vec![5], ..Marks::default() };
    let mut gateway = allowing(Terms::default(), Party::with_marks(vec![prefix], marks));
    let host = |host| End { host, ..B }.write_only(1);
    for (number, p_key, vlan, is_in) in [
        (7, 0xffff, None, true),
        (8, 0xffff, None, false),
        (8, 0xffff, Some(100), true),
        (8, 0xffff, Some(101), false),
        (8, 0x8005, None, true),
        (8, 0xffff, None, false),
        (8, 0x0005, Some(101), true),
    ] {
        let packet = altered(host(number), p_key, None, vlan);
        assert_eq!(passes(&mut gateway, packet), is_in, "{number} {p_key:#x} {vlan:?}");
    }
}

#[test]
fn owners_are_restored_with_their_services_in_a_life_of_the_same_seed() {
    let strict = || AccessPolicy::new(vec![], AccessAction::Allow).with_state(AccessState::Strict);
    let mut before = Gateway::with_state(vec![], AccessAction::Allow, AccessState::Strict);
    let exchange = Exchange::of(B, A);
    for (side, bytes) in [(Side::Wire, exchange.request()), (Side::Host, exchange.reply())] {
        assert_eq!(before.verdicts_on(side, &[bytes], Offload::default()), [Verdict::Forward]);
    }
    let (mut place, mut saved) = (SavingPlace::default(), Vec::new());
    while before.engine.access().unwrap().save_some(&mut place, &mut saved) {}
    assert_eq!(saved.len(), 2, "both queue pairs");

    let mut after = Gateway::with_state(vec![], AccessAction::Allow, AccessState::Strict);
    after.drops(&[B.write_only(1)], DropReason::AccessNoConnection);
    after.engine.restore_owners(&saved, after.now);
    after.passes(&[B.write_only(1)]);
    after.passes(&[A.send_only(1)]);
    let forged = End { host: 3, ..B }.write_only(2);
    after.drops(&[forged], DropReason::QpForged);
    // DREQ of its own ends it, as ever.
    let ends = exchange.disconnect();
    assert_eq!(after.verdicts_on(Side::Wire, &[ends], Offload::default()), [Verdict::Forward]);
    after.wait_ms(3_000);
    after.drops(&[B.write_only(3)], DropReason::AccessNoConnection);
    after.reload_with(strict());
}
