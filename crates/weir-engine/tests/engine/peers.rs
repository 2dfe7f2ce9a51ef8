//! One peer comes or goes among many: nobody else is touched, and an id that is stale is found out.

use std::net::IpAddr;

use proptest::prelude::*;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Agreed, Associations, Engine, Left, PeerChange, PeerId, PolicyError};
use weir_engine::policy::{
    Action, Encapsulation, Mode, OwnAddress, Peer, Policy, Prefix, Sealing, mapped,
};
use weir_engine::tunnel::handshake::Role;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::path::Path;
use weir_wire::parse::MacAddress;

const MANY: u32 = 100_000;

fn engine() -> Engine {
    let mut policy = Policy::watch(1, 1500);
    policy.default = Action::Drop;
    policy.keying_port = Some(51820);
    policy.own = Some(OwnAddress {
        mac: MacAddress([2, 0, 0, 0, 1, 1]),
        addresses: vec![("192.0.2.1".parse().unwrap(), 24)],
        ..OwnAddress::default()
    });
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy, Associations::default(), meter).unwrap()
}

fn inside(number: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 + number).to_be_bytes())
}

fn client(number: u32) -> Peer {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key[31] = 1;
    Peer {
        name: format!("client-{number}"),
        mode: Mode::WireGuard,
        encapsulation: Encapsulation::Esp,
        sealing: Sealing::Require,
        endpoint: None,
        protects: vec![Prefix::new(inside(number), 32)],
        everything: false,
        seal_spi: None,
        open_spis: Vec::new(),
        agreed: Some(PublicKey(key)),
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }
}

/// One whose keys are in files.
fn site(spi: u32) -> (Peer, Associations) {
    let material = |salt: u8| (0..36).map(|byte| byte ^ spi as u8 ^ salt).collect::<Vec<u8>>();
    let key = |spi, salt| SaParameters::new(Spi::new(spi).unwrap(), &material(salt)).unwrap();
    let peer = Peer {
        name: format!("site-{spi}"),
        mode: Mode::Tunnel,
        endpoint: Some(IpAddr::from([192, 0, 2, 2 + (spi % 200) as u8])),
        protects: vec![Prefix::new(IpAddr::from([172, 16, spi as u8, 0]), 24)],
        seal_spi: Some(spi),
        open_spis: vec![spi + 0x1_0000],
        agreed: None,
        ..client(spi)
    };
    let associations = Associations {
        sealing: vec![SealingSa::new(&key(spi, 0x80), None).unwrap()],
        opening: vec![OpeningSa::new(&key(spi + 0x1_0000, 0x40), None).unwrap()],
        ..Associations::default()
    };
    (peer, associations)
}

type Names = (Option<u32>, Vec<u32>);

fn change_to(peer: PeerId, (seal_spi, open_spis): Names, new: Associations) -> PeerChange {
    PeerChange { peer, seal_spi, open_spis, new }
}

fn change_one(
    engine: &mut Engine,
    peer: PeerId,
    names: Names,
    new: Associations,
) -> Result<Left, PolicyError> {
    engine.change_associations(vec![change_to(peer, names, new)])
}

fn add(engine: &mut Engine, number: u32) -> PeerId {
    engine.insert_peer(client(number), Associations::default()).unwrap()
}

#[test]
fn a_peer_among_a_hundred_thousand_comes_and_goes_alone() {
    let mut engine = engine();
    let ids: Vec<PeerId> = (0..MANY).map(|number| add(&mut engine, number)).collect();
    let find = |engine: &Engine, number| engine.policy().peer_for(&mapped(inside(number)));
    for number in [0, 1, 777, MANY - 1] {
        assert_eq!(find(&engine, number), engine.peer_index(ids[number as usize]));
    }
    assert!(engine.remove_peer(ids[777]).is_some());
    assert_eq!(find(&engine, 777), None);
    assert_eq!(engine.peer_index(ids[777]), None);
    assert!(engine.remove_peer(ids[777]).is_none(), "it is gone already");
    let other = add(&mut engine, MANY);
    assert_eq!(engine.peer_index(other), Some(777), "in the place that was left");
    assert_eq!(engine.peer_index(ids[777]), None, "and the old id does not mean it");
    assert!(engine.remove_peer(ids[777]).is_none());
    assert_eq!(find(&engine, MANY), Some(777));
    assert_eq!(find(&engine, 778), Some(778), "nobody else has moved");
    assert_eq!(engine.policy().peers[777].name, format!("client-{MANY}"));
}

#[test]
fn a_second_owner_of_a_prefix_or_a_key_is_refused_and_nothing_changes() {
    let mut engine = engine();
    let first = add(&mut engine, 1);
    let same_prefix = Peer { agreed: client(2).agreed, ..client(1) };
    let refused = engine.insert_peer(same_prefix, Associations::default()).unwrap_err();
    assert!(matches!(refused, PolicyError::PrefixTaken { .. }), "{refused}");
    let same_key = Peer { protects: client(2).protects, ..client(1) };
    let refused = engine.insert_peer(same_key, Associations::default()).unwrap_err();
    assert!(matches!(refused, PolicyError::NotAlone { .. }), "{refused}");
    let (without_keys, _) = site(0x1001);
    let refused = engine.insert_peer(without_keys, Associations::default()).unwrap_err();
    assert!(matches!(refused, PolicyError::NoAssociation { .. }), "{refused}");
    assert_eq!(engine.policy().peers.len(), 1);
    assert_eq!(engine.peer_index(first), Some(0));
}

#[test]
fn a_peer_of_named_keys_tells_how_far_they_went_and_the_rest_keeps_its_order() {
    let mut engine = engine();
    add(&mut engine, 1);
    let ids: Vec<PeerId> = (0..200u32)
        .map(|number| {
            let (peer, associations) = site(0x1000 + number);
            engine.insert_peer(peer, associations).unwrap()
        })
        .collect();
    for gone in (0..200).filter(|number| number % 4 != 0) {
        let left = engine.remove_peer(ids[gone]).unwrap();
        assert_eq!(left.sealing[0].reserved_until, 1);
        assert_eq!(left.opening.len(), 1);
    }
    let (peer, associations) = site(0x1000 + 200);
    engine.insert_peer(peer, associations).unwrap();
    let order: Vec<u32> = engine.opening_associations().map(|it| it.spi().value()).collect();
    let stay = (0..=200).filter(|number| number % 4 == 0).map(|number| 0x1_1000 + number);
    assert_eq!(order, stay.collect::<Vec<u32>>());
    let mut spis: Vec<u32> = engine.policy().open_spis().collect();
    spis.sort_unstable();
    assert_eq!(spis, order, "as the policy has them");
    let unique = engine.usage().count();
    assert_eq!(unique, 2 * order.len());
}

#[test]
fn the_associations_of_one_peer_change_and_nobody_else_is_touched() {
    let mut engine = engine();
    let ids: Vec<PeerId> = (0..6u32)
        .map(|number| {
            let (peer, associations) = site(0x1000 + number);
            engine.insert_peer(peer, associations).unwrap()
        })
        .collect();
    let order = |engine: &mut Engine| -> Vec<u32> {
        engine.opening_associations().map(|it| it.spi().value()).collect()
    };
    let before = order(&mut engine);
    // A new one to seal with, and one more that opens: the one before stays for what is under way.
    let (_, new) = site(0x2077);
    let names = (Some(0x2077), vec![0x1_1002, 0x1_2077]);
    let left = change_one(&mut engine, ids[2], names.clone(), new).unwrap();
    assert_eq!((left.sealing.len(), left.opening.len()), (1, 0));
    assert_eq!(order(&mut engine), [&before[..], &[0x1_2077]].concat(), "new ones come last");
    let peer = &engine.policy().peers[2];
    assert_eq!((peer.seal_spi, peer.open_spis.clone()), names);
    // It goes, too, and the peer has nothing to seal with.
    let nothing = Associations::default();
    let left = change_one(&mut engine, ids[2], (None, vec![0x1_2077]), nothing).unwrap();
    assert_eq!((left.sealing.len(), left.opening.len()), (1, 1));
    let stay: Vec<u32> = before.iter().copied().filter(|it| *it != 0x1_1002).collect();
    assert_eq!(order(&mut engine), [&stay[..], &[0x1_2077]].concat());
    assert_eq!(engine.usage().count(), 5 + 6, "what the others have");
}

/// Keys with a client whose packets come by `spi`.
fn keys_with(number: u32, spi: u32) -> Agreed {
    let material: Vec<u8> = (0..36).map(|byte| byte ^ number as u8 ^ 0x80).collect();
    let key = |spi| SaParameters::new(Spi::new(spi).unwrap(), &material).unwrap();
    Agreed {
        peer: client(number).agreed.unwrap(),
        role: Role::Initiator,
        path: Path::to([198, 51, 100, 7].into(), 51820),
        sealing: SealingSa::new(&key(0x9000 + number), None).unwrap(),
        opening: OpeningSa::new(&key(spi), None).unwrap(),
        tags: None,
    }
}

#[test]
fn an_spi_that_a_named_key_has_is_no_clients_and_the_client_agrees_anew() {
    const SPI: u32 = 0x1_1000;
    let with_site = |engine: &mut Engine| {
        let (peer, associations) = site(0x1000);
        engine.insert_peer(peer, associations).unwrap()
    };
    let lost = |engine: &mut Engine| {
        let mut lost = Vec::new();
        engine.take_activity(&mut |peer, activity| {
            lost.extend(activity.lost.then_some(peer));
            true
        });
        lost
    };
    let come_first = |engine: &mut Engine| {
        with_site(engine);
        assert!(!engine.install(keys_with(7, SPI)));
    };
    let come_alone = |engine: &mut Engine| {
        assert!(engine.install(keys_with(7, SPI)));
        with_site(engine);
    };
    let change = |engine: &mut Engine| {
        let (peer, Associations { sealing, .. }) = site(0x1000);
        let sealing = Associations { sealing, ..Associations::default() };
        let id = engine.insert_peer(Peer { open_spis: vec![], ..peer }, sealing).unwrap();
        assert!(engine.install(keys_with(7, SPI)));
        let (_, Associations { opening, .. }) = site(0x1000);
        let opening = Associations { opening, ..Associations::default() };
        change_one(engine, id, (Some(0x1000), vec![SPI]), opening).unwrap();
    };
    let come_with_a_policy = |engine: &mut Engine| {
        assert!(engine.install(keys_with(7, SPI)));
        let (peer, associations) = site(0x1000);
        let peers = [&engine.policy().peers[..], &[peer]].concat();
        let policy = engine.policy().clone().with_peers(peers);
        let refused = engine.swap(policy.clone(), Associations::default()).unwrap_err();
        assert!(matches!(refused, PolicyError::NoAssociation { .. }), "a client's is none of it");
        engine.swap(policy, associations).unwrap();
    };
    let ways: [&dyn Fn(&mut Engine); 4] = [&come_first, &come_alone, &change, &come_with_a_policy];
    for (number, way) in ways.iter().enumerate() {
        let mut engine = engine();
        add(&mut engine, 7);
        way(&mut engine);
        assert_eq!(lost(&mut engine), [client(7).agreed.unwrap()], "way {number}");
        assert!(engine.install(keys_with(7, 0x7777)), "and another is none's");
        assert_eq!(lost(&mut engine), [], "way {number}");
        let only_client = vec![engine.policy().peers[0].clone()];
        let policy = engine.policy().clone().with_peers(only_client);
        let left = engine.swap(policy, Associations::default()).unwrap();
        assert_eq!(left.opening.len(), 1, "way {number}: the named key opened by its SPI");
    }
}

#[test]
fn associations_of_several_peers_change_at_once_or_not_at_all() {
    let mut engine = engine();
    let ids: Vec<PeerId> = (0..4u32)
        .map(|number| {
            let (peer, associations) = site(0x1000 + number);
            engine.insert_peer(peer, associations).unwrap()
        })
        .collect();
    let before: Vec<u32> = engine.policy().open_spis().collect();
    let renewed =
        |at: usize, spi: u32| change_to(ids[at], (Some(spi), vec![spi + 0x1_0000]), site(spi).1);
    let twice = vec![renewed(1, 0x2011), renewed(3, 0x2011)];
    let refused = engine.change_associations(twice).unwrap_err();
    assert!(matches!(refused, PolicyError::KeySealsAlready { spi: 0x2011 }), "{refused}");
    let without_seal = |it: PeerChange| {
        let new = Associations { sealing: Vec::new(), ..it.new };
        PeerChange { seal_spi: None, new, ..it }
    };
    let twice = vec![without_seal(renewed(1, 0x2011)), without_seal(renewed(3, 0x2011))];
    let refused = engine.change_associations(twice).unwrap_err();
    assert!(matches!(refused, PolicyError::NoAssociation { spi: 0x1_2011, .. }), "{refused}");
    let names = (Some(0x4000), vec![]);
    let second_fails = vec![renewed(1, 0x2011), change_to(ids[3], names, Associations::default())];
    let refused = engine.change_associations(second_fails).unwrap_err();
    assert!(matches!(refused, PolicyError::NoAssociation { spi: 0x4000, .. }), "{refused}");
    assert_eq!(engine.policy().open_spis().collect::<Vec<_>>(), before, "nothing has changed");
    let left = engine.change_associations(vec![renewed(1, 0x2011), renewed(3, 0x2033)]).unwrap();
    assert_eq!((left.sealing.len(), left.opening.len()), (2, 2));
    let order: Vec<u32> = engine.opening_associations().map(|it| it.spi().value()).collect();
    assert_eq!(order, [0x1_1000, 0x1_1002, 0x1_2011, 0x1_2033], "new ones come last");
    let seals: Vec<_> = engine.policy().peers.iter().map(|it| it.seal_spi.unwrap()).collect();
    assert_eq!(seals, [0x1000, 0x2011, 0x1002, 0x2033]);
}

#[test]
fn a_change_that_needs_more_than_the_peer_brings_is_refused_and_nothing_changes() {
    let mut engine = engine();
    let ids = [0x1000, 0x1001].map(|spi| {
        let (peer, associations) = site(spi);
        engine.insert_peer(peer, associations).unwrap()
    });
    let names = (Some(0x1000), vec![0x1_1000]);
    let mut change = |seal: Option<u32>, open: &[u32], new: Associations| {
        change_one(&mut engine, ids[0], (seal, open.to_vec()), new).unwrap_err()
    };
    let refused = change(Some(0x3000), &[0x1_1000], Associations::default());
    assert!(matches!(refused, PolicyError::NoAssociation { spi: 0x3000, .. }), "{refused}");
    let refused = change(Some(0x1000), &[0x1_1001], Associations::default());
    assert!(matches!(refused, PolicyError::NoAssociation { spi: 0x1_1001, .. }), "{refused}");
    let (_, again) = site(0x1000);
    let refused = change(Some(0x1000), &[0x1_1000], Associations { opening: vec![], ..again });
    assert!(matches!(refused, PolicyError::KeySealsAlready { spi: 0x1000 }), "{refused}");
    let (_, of_other) = site(0x1001);
    let of_other = Associations { sealing: vec![], ..of_other };
    let refused = change(Some(0x1000), &[0x1_1000, 0x1_1001], of_other);
    assert!(matches!(refused, PolicyError::NoAssociation { spi: 0x1_1001, .. }), "{refused}");
    let peer = &engine.policy().peers[0];
    assert_eq!((peer.seal_spi, peer.open_spis.clone()), names);
    assert_eq!(engine.usage().count(), 4);
    let id = ids[0];
    assert!(engine.remove_peer(id).is_some());
    let gone = change_one(&mut engine, id, names, Associations::default());
    assert!(gone.is_err(), "somebody else may have its place");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However peers come and go, addresses lead where a policy made at once would lead them.
    #[test]
    fn selectors_kept_in_step_are_those_of_a_whole_policy(
        steps in proptest::collection::vec((0u32..40, 0u8..4), 1..120)
    ) {
        let mut engine = engine();
        let mut there: Vec<(u32, PeerId)> = Vec::new();
        for (number, len) in steps {
            match there.iter().position(|(it, _)| *it == number) {
                Some(at) => {
                    let (_, id) = there.swap_remove(at);
                    prop_assert!(engine.remove_peer(id).is_some());
                }
                None => {
                    let len = 32 - 4 * len;
                    let protects = vec![Prefix::new(inside(number * 7), len)];
                    let peer = Peer { protects, ..client(number) };
                    if let Ok(id) = engine.insert_peer(peer, Associations::default()) {
                        there.push((number, id));
                    }
                }
            }
        }
        let peers = engine.policy().peers.clone();
        let whole = engine.policy().clone().with_peers(peers);
        for number in 0..300 {
            let address = mapped(inside(number));
            let (found, wanted) = (engine.policy().peer_for(&address), whole.peer_for(&address));
            prop_assert_eq!(found, wanted);
            prop_assert!(found.is_none_or(|it| !engine.policy().peers[it].is_vacant()));
        }
    }
}
