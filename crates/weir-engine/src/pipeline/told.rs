//! What one worker of a pair hears and the others must know (docs/adr/0025): where hosts and
//! neighbours are. Frames that tell it come to one worker; packets for them come to all.
//!
//! Nothing is kept with one worker. With several, what changed waits here, once an address, until
//! it is taken: as much as the tables hold that it is of.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_wire::frame::Time;
use weir_wire::parse::{MacAddress, Parsed};

use super::Engine;
use crate::ingress::HOSTS_MAX;

/// What waits to be told, at most: every host, and as many neighbours.
const TOLD_MAX: usize = 2 * HOSTS_MAX;

/// Where somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
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
pub(super) struct News(Option<BTreeMap<Who, MacAddress>>);

impl News {
    fn add(&mut self, who: Who, mac: MacAddress) {
        let Some(waiting) = &mut self.0 else { return };
        if waiting.len() < TOLD_MAX || waiting.contains_key(&who) {
            waiting.insert(who, mac);
        }
    }
}

impl Engine {
    /// Has it keep what the other workers of its pair must know.
    pub fn set_one_of_several(&mut self) {
        self.news.0.get_or_insert_default();
    }

    /// Whether something waits to be told.
    pub fn has_news(&self) -> bool {
        self.news.0.as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// The next that the others must know.
    pub fn take_news(&mut self) -> Option<Told> {
        let (who, mac) = self.news.0.as_mut()?.pop_first()?;
        Some(Told { who, mac })
    }

    /// Keeps what could not be told yet, unless there is something newer.
    pub fn keep_news(&mut self, told: Told) {
        if let Some(waiting) = &mut self.news.0 {
            waiting.entry(told.who).or_insert(told.mac);
        }
    }

    /// Takes in what another worker told.
    pub fn hear(&mut self, told: Told, now: Time) {
        match told.who {
            Who::Host(address) => drop(self.hosts.note(address, told.mac)),
            Who::Neighbour(hop) => {
                if self.neighbours.note(hop, told.mac, now) {
                    self.refresh(now);
                }
            }
        }
    }

    /// A host spoke for the first time, or from another MAC address.
    #[cold]
    pub(super) fn tell_host(&mut self, parsed: &Parsed) {
        self.news.add(Who::Host(parsed.source), parsed.link.source);
    }

    /// Somebody on the wire said where it is; whether it is a hop of ours, others may be asking.
    #[cold]
    pub(super) fn tell_neighbour(&mut self, parsed: &Parsed, bytes: &[u8]) {
        if self.news.0.is_some()
            && let Some((hop, mac)) = crate::neighbour::claim(parsed, bytes)
        {
            self.news.add(Who::Neighbour(hop), mac);
        }
    }
}
