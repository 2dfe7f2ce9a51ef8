//! How many workers share the flows of each peer, as the steering is told (docs/adr/0025): what the
//! configuration says, or, where keys are agreed, what the last handshake did.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use weir_port::Steering;

use crate::config::settings::{Pair, Protects, Unprotected};

/// What lies behind a peer, as the steering has it: IPv4 mapped, and the bits that count.
type Reach = ([u8; 16], u8);

/// The steering of one pair, and what it was told.
#[derive(Debug)]
pub struct Sharing {
    steering: Steering,
    told: BTreeMap<Reach, usize>,
    /// By peer: what lies behind it, and how many workers share that by the configuration.
    peers: BTreeMap<String, (Vec<Reach>, usize)>,
    /// By peer: how many do by its last handshake.
    agreed: BTreeMap<String, usize>,
}

impl Sharing {
    /// For the peers of `pair`.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn new(steering: Steering, pair: &Pair) -> Result<Self> {
        let (told, peers, agreed) = Default::default();
        let mut sharing = Self { steering, told, peers, agreed };
        sharing.configure(pair)?;
        Ok(sharing)
    }

    /// Takes the peers of `pair` instead of the present ones. What handshakes agreed stays.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn configure(&mut self, pair: &Pair) -> Result<()> {
        let of = |peer: &crate::config::settings::Peer| {
            let mut reaches = match &peer.protects {
                Protects::Everything => vec![([0; 16], 0)],
                Protects::Prefixes(list) => list
                    .iter()
                    .map(|prefix| match prefix.network() {
                        IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96 + prefix.length_bits()),
                        IpAddr::V6(v6) => (v6.octets(), prefix.length_bits()),
                    })
                    .collect(),
            };
            if pair.unprotected == Unprotected::Seal {
                reaches.push(([0; 16], 0));
            }
            (peer.name.clone(), (reaches, peer.workers))
        };
        self.peers = pair.peers.iter().map(of).collect();
        self.agreed.retain(|name, _| self.peers.contains_key(name));
        self.tell()
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

    fn tell(&mut self) -> Result<()> {
        let Self { steering, told, peers, agreed } = self;
        let wanted: BTreeMap<Reach, usize> = peers
            .iter()
            .flat_map(|(name, (reaches, configured))| {
                let workers = agreed.get(name).unwrap_or(configured);
                reaches.iter().map(|reach| (*reach, *workers))
            })
            .collect();
        for ((address, bits), workers) in &wanted {
            if told.get(&(*address, *bits)) != Some(workers) {
                steering.share(*address, *bits, *workers)?;
            }
        }
        for (address, bits) in told.keys().filter(|it| !wanted.contains_key(*it)) {
            steering.forget(*address, *bits)?;
        }
        *told = wanted;
        Ok(())
    }
}
