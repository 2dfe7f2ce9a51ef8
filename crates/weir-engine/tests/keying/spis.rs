//! An SPI that is drawn is nobody else's: no other peer's, and none of a key that the configuration
//! names.

use std::collections::{BTreeSet, VecDeque};

use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::{Entropy, PresharedKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, PeerActivity, Tunnel};

use super::floods::at;
use super::workers::spis;
use super::world::{MS, PORT, SECOND, Seeded, Setup, World, identity, terms};

/// Draws these SPIs first.
struct Drawing {
    rest: Seeded,
    spis: VecDeque<u32>,
}

impl Entropy for Drawing {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.rest.fill(bytes);
        if let Ok(spi) = <&mut [u8; 4]>::try_from(bytes)
            && let Some(drawn) = self.spis.pop_front()
        {
            *spi = drawn.to_be_bytes();
        }
    }
}

/// The SPIs of two initiations, to a peer each.
fn spis_of_initiations(draws: &[u32], named: &[u32], workers: u8) -> Vec<u32> {
    let entropy = Drawing { rest: Seeded(1), spis: draws.iter().copied().collect() };
    let mut tunnel = Tunnel::new(identity(1), Limits::default(), Box::new(entropy));
    let path = Path::to([203, 0, 113, 2].into(), PORT);
    let peers = [2, 3].map(|number| PeerSettings {
        public_key: identity(number).public(),
        preshared: PresharedKey::none(),
        path: None,
        terms: Terms { workers, ..terms(false) },
        replay_window: 64,
        path_mtu_max: 0,
    });
    tunnel.avoid(at(0), BTreeSet::from_iter(named.iter().copied()));
    tunnel.configure(at(0), Limits::default(), peers.into(), &mut Vec::new());
    let mut spis = Vec::new();
    for number in [2, 3] {
        let mut effects = Vec::new();
        let wanted = PeerActivity { wanted: Some(Some(path.clone())), ..PeerActivity::default() };
        tunnel.note_activity(at(SECOND), &identity(number).public(), &wanted, &mut effects);
        tunnel.tick(at(SECOND), &mut effects);
        spis.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Send { datagram, .. } => {
                Some(u32::from_le_bytes(datagram[4..8].try_into().unwrap()))
            }
            _ => None,
        }));
    }
    spis
}

#[test]
fn an_spi_that_a_peer_or_a_named_key_has_is_drawn_again() {
    let drawn = spis_of_initiations(&[0x5000, 0x6000, 0x6000, 0x5000, 0x7000], &[0x5000], 1);
    assert_eq!(drawn, [0x6000, 0x7000]);
}

#[test]
fn with_several_workers_none_of_their_spis_is_a_named_one() {
    let drawn = spis_of_initiations(&[0x5001, 0x6002, 0x7003], &[0x500f], 4);
    assert_eq!(drawn, [0x6000, 0x7000]);
}

/// Packets go to the worker that the named association has from then on, in the lab that is worker
/// 0; here they are lost until the keys are others.
#[test]
fn a_session_whose_spi_a_front_end_names_gives_way_to_another_in_each_worker() {
    for (workers, worker) in [(1, 0), (4, 0), (4, 3)] {
        let of = |side| Setup { terms: Terms { workers, ..terms(false) }, ..Setup::new(side) };
        let mut world = World::new([of(0), of(1)]);
        world.run(2 * SECOND);
        let (_, before) = world.status(0).spis.unwrap();
        let named = before + worker;
        world.name(0, named);
        world.run(300 * MS);
        let (_, after) = world.status(0).spis.unwrap();
        assert!(!(after..=after | 15).contains(&named), "{workers} workers: {named:#x} is kept");
        for side in 0..2 {
            let marks: Vec<_> = (0..32).map(|_| world.send(side)).collect();
            assert!(!spis(&world).contains(&named), "nobody seals by it");
            world.deliver_all();
            assert_eq!(world.received(1 - side), marks, "{workers} workers");
        }
    }
}

#[test]
fn a_name_that_nobody_else_has_changes_no_keys() {
    let mut world = World::connected();
    let (_, before) = world.status(0).spis.unwrap();
    world.name(0, before ^ 1);
    world.run(SECOND);
    assert_eq!(world.status(0).spis.unwrap().1, before);
}
