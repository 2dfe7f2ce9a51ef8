//! What one worker of a pair hears and the others must know (docs/adr/0025): where hosts and
//! neighbours are. Frames that tell it come to one worker; packets for them come to all.
//!
//! Nothing is kept with one worker. With several, what changed waits here, once an address, until
//! it is taken: as much as the tables hold that it is of.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_wire::parse::{MacAddress, Parsed};

use super::hosts::HOSTS_MAX;

/// What waits to be told, at most: every host, and as many neighbours.
const TOLD_MAX: usize = 2 * HOSTS_MAX;

/// Where somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Who.
    pub who: Who,
    /// Its MAC address.
    pub mac: MacAddress,
}

/// Whose place is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A host on the host port, by its address (IPv4 mapped).
    Host([u8; 16]),
    /// A neighbour on the wire that answered.
    Neighbour(IpAddr),
}

/// What waits to be told.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Option<BTreeMap<Who, MacAddress>>);

impl Sightings {
    /// Keeps what the other workers of a pair must know from now on.
    pub(crate) fn keep(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Whether something waits to be told.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// The next that the others must know.
    pub(crate) fn take(&mut self) -> Option<Sighting> {
        let (who, mac) = self.0.as_mut()?.pop_first()?;
        Some(Sighting { who, mac })
    }

    /// Takes back what could not be told yet, unless there is something newer.
    pub(crate) fn put_back(&mut self, told: Sighting) {
        if let Some(waiting) = &mut self.0 {
            waiting.entry(told.who).or_insert(told.mac);
        }
    }

    /// A host spoke for the first time, or from another MAC address.
    #[cold]
    pub(super) fn host(&mut self, parsed: &Parsed) {
        self.add(Who::Host(parsed.source), parsed.link.source);
    }

    /// Somebody on the wire said where it is; whether it is a hop of ours, others may be asking.
    #[cold]
    pub(super) fn neighbour(&mut self, parsed: &Parsed, bytes: &[u8]) {
        if self.0.is_some()
            && let Some((hop, mac)) = crate::neighbour::claim(parsed, bytes)
        {
            self.add(Who::Neighbour(hop), mac);
        }
    }

    fn add(&mut self, who: Who, mac: MacAddress) {
        let Some(waiting) = &mut self.0 else { return };
        if waiting.len() < TOLD_MAX || waiting.contains_key(&who) {
            waiting.insert(who, mac);
        }
    }
}
