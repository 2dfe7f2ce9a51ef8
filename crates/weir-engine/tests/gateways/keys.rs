//! Keys that change while packets flow, and keys that leave.

use super::*;

#[test]
fn while_keys_change_both_old_and_new_packets_are_opened() {
    let (mut a, mut b) = pair(Mode::Ethernet, true);
    let send = |a: &mut Gateway| only(Destination::Wire, a.receive(Side::Host, &[udp(9)]));
    let on_the_way = send(&mut a);
    let receiver = Associations { opening: vec![opening(0x2003)], ..Associations::default() };
    rekey(&mut b, Some(0x1002), &[0x1001, 0x2003], receiver);
    let sender = Associations { sealing: vec![sealing(0x2003)], ..Associations::default() };
    rekey(&mut a, Some(0x2003), &[0x1002], sender);
    let fresh = send(&mut a);
    for packets in [&fresh, &on_the_way] {
        assert_eq!(b.receive(Side::Wire, packets).len(), 1);
    }
    let opened: Vec<_> = b.engine.usage().map(|it| (it.spi.value(), it.packets)).collect();
    assert_eq!(opened, [(0x1002, 0), (0x1001, 1), (0x2003, 1)]);
    assert_eq!(b.engine.peer_counters(0).opened_packets, 2);
    rekey(&mut b, Some(0x1002), &[0x2003], Associations::default());
    assert!(b.receive(Side::Wire, &on_the_way).is_empty());
    assert_eq!(b.dropped(Side::Wire, DropReason::UnknownSpi), 1);
}

#[test]
fn a_key_that_seals_gets_no_second_counter_and_what_left_tells_how_far_it_went() {
    let (mut a, _) = pair(Mode::Ethernet, true);
    for _ in 0..3 {
        a.receive(Side::Host, &[udp(9)]);
    }
    let mut peers = a.engine.policy().peers.clone();
    peers[0].seal_spi = Some(0x2001);
    let other_spi = a.engine.policy().clone().with_peers(peers.clone());
    for spi in [0x1001, 0x2001] {
        let new = Associations { sealing: vec![sealing(spi)], ..Associations::default() };
        let refused = a.engine.swap(other_spi.clone(), new).unwrap_err();
        assert!(refused.to_string().contains("key of its own"), "{refused}");
    }
    peers[0].seal_spi = None;
    let without = a.engine.policy().clone().with_peers(peers);
    let left = a.engine.swap(without, Associations::default()).unwrap();
    let [sealed] = left.sealing[..] else { panic!("{left:?}") };
    assert_eq!(sealed.reserved_until, 4, "the next number");
    assert_eq!((sealed.fingerprint, left.opening.len()), (parameters(0x1001).fingerprint(), 0));
    let new = Associations { sealing: vec![sealing(0x2001)], ..Associations::default() };
    a.engine.swap(other_spi, new).expect("it is free again");
}
