//! An SPI that is drawn is nobody else's: no other peer's, and none of a key that the configuration
//! names.

use std::collections::{BTreeSet, VecDeque};

use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::key::{Entropy, PresharedKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Report, Tunnel};

use super::floods::at;
use super::world::{PORT, SECOND, Seeded, identity, terms};

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
fn spis_of_initiations(draws: &[u32], named: &[u32]) -> Vec<u32> {
    let entropy = Drawing { rest: Seeded(1), spis: draws.iter().copied().collect() };
    let mut tunnel = Tunnel::new(identity(1), Limits::default(), Box::new(entropy));
    let path = Path::to([203, 0, 113, 2].into(), PORT);
    let peers = [2, 3].map(|number| PeerSettings {
        public_key: identity(number).public(),
        preshared: PresharedKey::none(),
        path: None,
        terms: terms(false),
        replay_window: 64,
        path_mtu_max: 0,
    });
    tunnel.avoid(BTreeSet::from_iter(named.iter().copied()));
    tunnel.configure(at(0), Limits::default(), peers.into(), &mut Vec::new());
    let mut spis = Vec::new();
    for number in [2, 3] {
        let mut effects = Vec::new();
        let wanted = Report { wanted: Some(Some(path.clone())), ..Report::default() };
        tunnel.report(at(SECOND), &identity(number).public(), &wanted, &mut effects);
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
    let drawn = spis_of_initiations(&[0x5000, 0x6000, 0x6000, 0x5000, 0x7000], &[0x5000]);
    assert_eq!(drawn, [0x6000, 0x7000]);
}
