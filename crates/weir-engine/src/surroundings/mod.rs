//! Who is where: the hosts behind the host port, and the neighbours on the wire.

use weir_wire::frame::{Frame, Time};
use weir_wire::parse::Parsed;

use crate::neighbour::Neighbours;
use crate::policy::Policy;

mod hosts;
mod sightings;

pub(crate) use hosts::HostAddresses;
pub(crate) use sightings::Sightings;
pub use sightings::{Sighting, Who};

/// Both, and what the other workers of the pair must know of them.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) neighbours: Neighbours,
    pub(crate) hosts: HostAddresses,
    pub(crate) sightings: Sightings,
    /// Peers whose tunnels end at an own address: then hosts' MAC addresses must be known.
    pub(crate) ending_here: usize,
    /// The neighbours' version that the peers' outer headers are of.
    refreshed: u64,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            neighbours: Neighbours::default(),
            hosts: HostAddresses::default(),
            sightings: Sightings::default(),
            ending_here: 0,
            refreshed: u64::MAX,
        }
    }
}

impl Surroundings {
    /// Asks for the neighbours that `policy` needs.
    pub(crate) fn renew(&mut self, policy: &Policy) {
        self.neighbours = Neighbours::new(policy, &self.neighbours);
        self.ending_here = policy.peers.iter().filter(|it| it.ends_here()).count();
    }

    /// Whether outer headers must be written anew, once for each change.
    pub(crate) fn take_change(&mut self) -> bool {
        let version = self.neighbours.version();
        std::mem::replace(&mut self.refreshed, version) != version
    }

    /// Takes in where a frame of the host's came from.
    #[inline]
    pub(crate) fn learn_host(&mut self, parsed: &Parsed) {
        if self.ending_here > 0 && self.hosts.learn(parsed) {
            self.sightings.host(parsed);
        }
    }

    /// Takes in what a frame for the gateway itself says about a neighbour; whether it told of a
    /// hop of ours.
    pub(crate) fn learn_neighbour(
        &mut self,
        now: Time,
        parsed: &Parsed,
        frame: &Frame<'_>,
    ) -> bool {
        let has_learnt = self.neighbours.learn(parsed, frame.bytes(), now);
        self.sightings.neighbour(parsed, frame.bytes());
        has_learnt
    }

    /// Takes in what another worker told; whether it told of a hop of ours.
    pub(crate) fn hear(&mut self, told: Sighting, now: Time) -> bool {
        match told.who {
            Who::Host(address) => {
                self.hosts.note(address, told.mac);
                false
            }
            Who::Neighbour(hop) => self.neighbours.note(hop, told.mac, now),
        }
    }
}
