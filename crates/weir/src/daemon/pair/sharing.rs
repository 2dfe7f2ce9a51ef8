//! Which workers share what, as the kernel's steering program is told (docs/adr/0025, 0110): how
//! many share the flows of each peer, and which one has the associations of front ends.
//!
//! What several workers share comes from the configuration or, where keys are agreed, from the last
//! handshake. Worker 0 alone does the work of peers of front ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Result;
use weir_port::Steering;

use crate::config::settings::{Pair, Protects, Unprotected};

/// A prefix as the steering has it: the address IPv4-mapped, and the bits that count.
pub type SteeredPrefix = ([u8; 16], u8);

/// By peer: what lies behind it, and how many workers share that by the configuration.
type Peers = BTreeMap<String, (Vec<SteeredPrefix>, usize)>;

/// The steering of one pair, and what it was told.
#[derive(Debug)]
pub struct Sharing {
    steering: Steering,
    /// What the kernel's tables hold.
    told: BTreeMap<SteeredPrefix, usize>,
    told_spis: BTreeSet<u32>,
    /// Whether the kernel takes ESP in UDP for something that is opened.
    told_openings: bool,
    peers: Peers,
    /// Of the plan that is about to be in force.
    next: Option<Peers>,
    /// By peer: how many share its flows by its last handshake.
    agreed: BTreeMap<String, usize>,
    /// What lies behind the peers of front ends.
    front_end: Vec<SteeredPrefix>,
    front_end_spis: BTreeSet<u32>,
    /// The kernel's tables could not be written.
    is_behind: bool,
}

impl Sharing {
    /// For the peers of `pair`.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn new(steering: Steering, pair: &Pair) -> Result<Self> {
        let mut sharing = Self {
            steering,
            told: BTreeMap::new(),
            told_spis: BTreeSet::new(),
            told_openings: false,
            peers: peers(pair),
            next: None,
            agreed: BTreeMap::new(),
            front_end: Vec::new(),
            front_end_spis: BTreeSet::new(),
            is_behind: false,
        };
        sharing.tell()?;
        Ok(sharing)
    }

    /// Makes room for the peers of `pair` before the workers have them: worker 0 gets the flows of
    /// a new peer, which is right under any plan, and what fewer are to share, fewer do.
    ///
    /// # Errors
    /// The kernel's table cannot be written; it then goes by the peers that there are.
    pub fn prepare(&mut self, pair: &Pair) -> Result<()> {
        let next = peers(pair);
        let wanted = wanted(&next, &self.agreed, &self.front_end);
        if !next.is_empty() {
            self.open(true)?;
        }
        let told = wanted.iter().try_for_each(|(reach, workers)| {
            let now = self.told.get(reach).copied().unwrap_or(1);
            self.share(*reach, now.min(*workers))
        });
        match told {
            Ok(()) => self.next = Some(next),
            Err(_) => self.discard(),
        }
        told
    }

    /// Goes by the peers that there are, instead of those that were prepared for.
    pub fn discard(&mut self) {
        self.next = None;
        self.is_behind = self.tell().is_err();
    }

    /// Takes the peers that were prepared for instead of the present ones; their workers have them
    /// now. What handshakes agreed stays.
    pub fn commit(&mut self) {
        if let Some(next) = self.next.take() {
            self.peers = next;
            self.agreed.retain(|name, _| self.peers.contains_key(name));
            self.try_to_tell();
        }
    }

    /// Has worker 0 do all that front ends want: flows to these prefixes, and ESP of these SPIs.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn steer_front_end(
        &mut self,
        reaches: Vec<SteeredPrefix>,
        spis: BTreeSet<u32>,
    ) -> Result<()> {
        (self.front_end, self.front_end_spis) = (reaches, spis);
        self.tell()
    }

    /// Tells the kernel what it could not be told before.
    pub fn retry(&mut self) {
        if self.is_behind {
            self.try_to_tell();
        }
    }

    /// Has `workers` share the flows of `peer`, as a handshake agreed.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn agree(&mut self, peer: &str, workers: usize) -> Result<()> {
        match self.agreed.insert(peer.to_owned(), workers) {
            Some(before) if before == workers => Ok(()),
            _ => self.tell(),
        }
    }

    /// The same, unless fewer share them already.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn lower(&mut self, peer: &str, workers: usize) -> Result<()> {
        match self.agreed.get(peer) {
            Some(before) if *before > workers => self.agree(peer, workers),
            _ => Ok(()),
        }
    }

    /// Flows that the table does not know go to worker 0 or to fewer workers than could serve them,
    /// which each has what it needs for: so nothing is lost until the next attempt.
    fn try_to_tell(&mut self) {
        let told = self.tell();
        if let (Err(error), false) = (&told, self.is_behind) {
            tracing::error!("frames are not shared out as configured, tried again: {error:#}");
        }
        self.is_behind = told.is_err();
    }

    fn tell(&mut self) -> Result<()> {
        self.open(!self.peers.is_empty() || !self.front_end_spis.is_empty())?;
        let wanted = wanted(&self.peers, &self.agreed, &self.front_end);
        for (reach, workers) in &wanted {
            self.share(*reach, *workers)?;
        }
        let gone: Vec<SteeredPrefix> =
            self.told.keys().filter(|it| !wanted.contains_key(*it)).copied().collect();
        for (address, bits) in gone {
            self.steering.forget(address, bits)?;
            self.told.remove(&(address, bits));
        }
        let new: Vec<u32> = self.front_end_spis.difference(&self.told_spis).copied().collect();
        for spi in new {
            self.steering.take_spi(spi, 0)?;
            self.told_spis.insert(spi);
        }
        let gone: Vec<u32> = self.told_spis.difference(&self.front_end_spis).copied().collect();
        for spi in gone {
            self.steering.forget_spi(spi)?;
            self.told_spis.remove(&spi);
        }
        Ok(())
    }

    fn open(&mut self, opens: bool) -> Result<()> {
        if self.told_openings != opens {
            self.steering.open_in_udp(opens)?;
            self.told_openings = opens;
        }
        Ok(())
    }

    fn share(&mut self, reach: SteeredPrefix, workers: usize) -> Result<()> {
        if self.told.get(&reach) != Some(&workers) {
            self.steering.share(reach.0, reach.1, workers)?;
            self.told.insert(reach, workers);
        }
        Ok(())
    }
}

fn peers(pair: &Pair) -> Peers {
    let of = |peer: &crate::config::settings::Peer| {
        let mut reaches = match &peer.protects {
            Protects::Everything => vec![([0; 16], 0)],
            Protects::Prefixes(list) => {
                list.iter().map(|it| reach(it.network(), it.length_bits())).collect()
            }
        };
        if pair.unprotected == Unprotected::Seal {
            reaches.push(([0; 16], 0));
        }
        (peer.name.clone(), (reaches, peer.workers))
    };
    // What comes back to the address of masqueraded clients belongs where they are opened.
    let masquerade = pair.vpn.as_ref().and_then(|vpn| vpn.masquerade);
    let masquerade = masquerade.map(|it| (String::new(), (vec![reach(it.into(), 32)], 1)));
    pair.peers.iter().map(of).chain(masquerade).collect()
}

/// How the steering has a prefix.
fn reach(network: IpAddr, bits: u8) -> SteeredPrefix {
    match network {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96 + bits),
        IpAddr::V6(v6) => (v6.octets(), bits),
    }
}

fn wanted(
    peers: &Peers,
    agreed: &BTreeMap<String, usize>,
    front_end: &[SteeredPrefix],
) -> BTreeMap<SteeredPrefix, usize> {
    let of_peer = |(name, (reaches, configured)): (&String, &(Vec<SteeredPrefix>, usize))| {
        let workers = *agreed.get(name).unwrap_or(configured);
        reaches.iter().map(move |reach| (*reach, workers)).collect::<Vec<_>>()
    };
    let front_end = front_end.iter().map(|reach| (*reach, 1));
    // Of two that lie behind the same prefix, the front end's counts.
    peers.iter().flat_map(of_peer).chain(front_end).collect()
}
