//! Which peer an address leads to, and from which addresses a peer may send.

use super::selectors::COMPARED_MAX;
use super::*;

fn peer(name: &str, protects: &[(&str, u8)]) -> Peer {
    Peer {
        name: name.into(),
        mode: Mode::Tunnel,
        encapsulation: Encapsulation::Esp,
        sealing: Sealing::Require,
        endpoint: None,
        protects: protects.iter().map(|(a, l)| Prefix::new(a.parse().unwrap(), *l)).collect(),
        everything: false,
        seal_spi: Some(256),
        open_spis: vec![257],
        agreed: None,
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }
}

#[test]
fn the_longest_prefix_wins() {
    let policy = Policy::watch(1, 1500)
        .with_peers(vec![peer("site", &[("10.0.0.0", 8)]), peer("host", &[("10.1.2.3", 32)])]);
    let find = |a: &str| policy.peer_for(&mapped(a.parse().unwrap()));
    assert_eq!(find("10.1.2.3"), Some(1));
    assert_eq!(find("10.1.2.4"), Some(0));
    assert_eq!(find("11.0.0.1"), None);
    assert_eq!(find("fd00::1"), None);
}

fn prefix(text: &str, len: u8) -> Prefix {
    Prefix::new(text.parse().unwrap(), len)
}

#[test]
fn a_front_end_puts_nothing_in_clear_that_a_peer_in_front_of_everything_must_seal() {
    let with = |sealing| {
        let everything = Peer { everything: true, sealing, ..peer("all", &[]) };
        let passed = vec![(prefix("10.2.0.0", 16), Route::Clear), (prefix("::", 0), Route::Clear)];
        let policy = Policy::watch(1, 1500).with_peers(vec![everything]);
        policy.with_front_end(vec![peer("ike", &[])], passed)
    };
    let address = mapped("10.2.0.1".parse().unwrap());
    let policy = with(Sealing::Require);
    assert_eq!(policy.route_to(&address), Some(Route::Peer(0)));
    assert!(policy.may_send(0, &address) && !policy.may_send(1, &address));
    assert_eq!(with(Sealing::Prefer).route_to(&address), Some(Route::Clear), "as it was asked");
}

#[test]
fn a_front_ends_selectors_come_behind_the_configurations_in_their_own_order() {
    let selectors = || {
        vec![
            (prefix("10.2.2.0", 24), Route::Clear),
            (prefix("10.2.2.3", 32), Route::Drop),
            (prefix("10.2.0.0", 16), Route::Peer(0)),
            (prefix("0.0.0.0", 0), Route::Clear),
        ]
    };
    // A few prefixes are compared one by one, many are looked up.
    for further in [0, 3 * COMPARED_MAX as u32] {
        let hosts = (0..further).map(|n| peer("host", &[(&format!("172.16.0.{n}"), 32)]));
        let site = peer("site", &[("10.1.0.0", 16)]);
        let configured = [site].into_iter().chain(hosts).collect();
        let policy = Policy::watch(1, 1500)
            .with_peers(configured)
            .with_front_end(vec![peer("ike", &[("10.2.0.0", 16)])], selectors());
        let way = |a: &str| policy.route_to(&mapped(a.parse().unwrap()));
        assert_eq!(way("10.1.4.1"), Some(Route::Peer(0)), "never put in clear by a front end");
        assert_eq!(way("10.2.2.3"), Some(Route::Clear), "the first decides, not the longest");
        assert_eq!(way("10.2.3.1"), Some(Route::Peer(1 + further)));
        assert_eq!(way("11.0.0.1"), Some(Route::Clear));
        assert_eq!(way("fd00::1"), None);
    }
}

#[test]
fn a_peer_may_send_from_what_no_other_has_a_longer_prefix_for() {
    let mut rest = peer("rest", &[]);
    (rest.protects, rest.everything) = (vec![Prefix::ALL], true);
    for further in [0, 3 * COMPARED_MAX] {
        let hosts = (0..further).map(|n| peer("host", &[(&format!("172.16.0.{n}"), 32)]));
        let site = peer("site", &[("10.1.0.0", 16)]);
        let peers = [rest.clone(), site].into_iter().chain(hosts).collect();
        let policy = Policy::watch(1, 1500).with_peers(peers);
        let may = |peer, a: &str| policy.may_send(peer, &mapped(a.parse().unwrap()));
        assert!(may(0, "10.2.0.1") && may(0, "fd00::1") && !may(0, "10.1.0.1"));
        assert!(may(1, "10.1.0.1") && !may(1, "10.2.0.1"));
    }
}

#[test]
fn a_front_ends_peers_may_send_by_their_longest_prefix_and_never_for_a_configured_one() {
    let peers = vec![
        peer("wide", &[("10.0.0.0", 8)]),
        peer("narrow", &[("10.2.0.0", 16)]),
        peer("its twin", &[("10.2.0.0", 16)]),
    ];
    let selectors = vec![
        (prefix("10.3.0.0", 16), Route::Clear),
        (prefix("10.2.0.0", 16), Route::Peer(1)),
        (prefix("10.0.0.0", 8), Route::Peer(0)),
    ];
    let policy = Policy::watch(1, 1500)
        .with_peers(vec![peer("site", &[("10.1.0.0", 16)])])
        .with_front_end(peers, selectors);
    let may = |peer, a: &str| policy.may_send(peer, &mapped(a.parse().unwrap()));
    let who = |a: &str| (0..4).filter(|it| may(*it, a)).collect::<Vec<_>>();
    assert_eq!(who("10.9.0.1"), [1]);
    assert_eq!(who("10.2.0.1"), [2, 3], "policies of one network may lead to two peers");
    assert_eq!(who("10.1.0.1"), [0]);
    assert_eq!(who("10.3.0.1"), [0; 0], "what passes in clear is nobody's");
    assert_eq!(who("11.0.0.1"), [0; 0]);
}

#[test]
fn thousands_of_prefixes_are_found_as_a_few_are() {
    let mut peers = vec![peer("site", &[("10.0.0.0", 8), ("fd00::", 16)])];
    for index in 0..3000_u32 {
        let [_, b, c, _] = (index * 7).to_be_bytes();
        let address = format!("10.{b}.{c}.{}", index % 250);
        peers.push(peer("host", &[(&address, if index % 2 == 0 { 32 } else { 24 })]));
    }
    let many = Policy::watch(1, 1500).with_peers(peers.clone());
    let mut one_by_one: Vec<(Prefix, usize)> = peers
        .iter()
        .enumerate()
        .flat_map(|(index, peer)| peer.protects.iter().map(move |it| (*it, index)))
        .collect();
    one_by_one.sort_by_key(|(prefix, _)| prefix.rank());
    for index in 0..5000_u32 {
        let [_, b, c, d] = (index * 13).to_be_bytes();
        let address = mapped(IpAddr::from([10, b, c, d]));
        let expected = one_by_one.iter().find(|(prefix, _)| prefix.contains(&address));
        assert_eq!(many.peer_for(&address), expected.map(|(_, peer)| *peer));
    }
    assert_eq!(many.peer_for(&mapped("fd00::7".parse().unwrap())), Some(0));
    assert_eq!(many.peer_for(&mapped("192.0.2.1".parse().unwrap())), None);
}

#[test]
fn an_ipv4_default_route_holds_no_ipv6() {
    let all_v4 = Prefix::new("0.0.0.0".parse().unwrap(), 0);
    assert!(all_v4.contains(&mapped("203.0.113.9".parse().unwrap())));
    assert!(!all_v4.contains(&mapped("fd00::1".parse().unwrap())));
    assert!(Prefix::ALL.contains(&mapped("fd00::1".parse().unwrap())));
}

#[test]
fn an_ipv6_default_route_holds_no_ipv4() {
    for len in [0, 1, 64, 80, 95] {
        let prefix = Prefix::new("::".parse().unwrap(), len);
        assert!(prefix.contains(&mapped("::1".parse().unwrap())), "::/{len}");
        assert!(!prefix.contains(&mapped("10.0.0.1".parse().unwrap())), "::/{len}");
    }
    let v4_in_v6 = Prefix::new("::ffff:10.0.0.0".parse().unwrap(), 104);
    assert!(v4_in_v6.contains(&mapped("10.0.0.1".parse().unwrap())));
}

#[test]
fn default_routes_of_both_families_and_everything_have_a_peer_each() {
    let all = || [peer("v6", &[("::", 0)]), peer("v4", &[("0.0.0.0", 0)])];
    let mut rest = peer("rest", &[]);
    rest.protects = vec![Prefix::ALL];
    // A few prefixes are compared one by one, many are looked up.
    for further in [0, 3 * COMPARED_MAX] {
        let hosts = (0..further).map(|n| peer("host", &[(&format!("10.0.0.{n}"), 32)]));
        let hosts: Vec<Peer> = hosts.collect();
        let find = |peers: Vec<Peer>, address: &str| {
            let policy = Policy::watch(1, 1500).with_peers([peers, hosts.clone()].concat());
            policy.peer_for(&mapped(address.parse().unwrap()))
        };
        let [v6, v4] = all();
        assert_eq!(find(all().to_vec(), "192.0.2.1"), Some(1));
        assert_eq!(find(all().to_vec(), "fd00::1"), Some(0));
        assert_eq!(find(vec![v6.clone()], "192.0.2.1"), None);
        assert_eq!(find(vec![rest.clone(), v6], "192.0.2.1"), Some(0));
        assert_eq!(find(vec![rest.clone(), v4], "fd00::1"), Some(0));
    }
}

#[test]
fn a_peer_beyond_the_prefix_is_reached_by_the_next_hop() {
    let own = OwnAddress {
        addresses: vec![("192.0.2.1".parse().unwrap(), 24)],
        next_hop: Some("192.0.2.254".parse().unwrap()),
        ..OwnAddress::default()
    };
    let hop = |a: &str| own.hop_for(a.parse().unwrap()).to_string();
    assert_eq!(hop("192.0.2.9"), "192.0.2.9");
    assert_eq!(hop("198.51.100.1"), "192.0.2.254");
}
