//! One pair of ports: its parts, and what the shell asks of it beside its batches.
//!
//! | part | what |
//! |---|---|
//! | `policy` | what it is told to do |
//! | `peers` | who is sealed to, by which associations ([`crate::peer`]) |
//! | `surroundings` | hosts and neighbours, and where they are |
//! | `plain` | the joint: what is in clear is metered and judged there |
//! | `nat` | clients under another address |
//! | `inbox` | handshakes that wait to be taken |
//! | `fast_path` | flows that the kernel carries |
//! | `reassembled` | pieces that wait for each other, and for what becomes of their datagram |
//! | `output`, `gather`, `answers` | what leaves |

use std::collections::VecDeque;

use weir_wire::frame::Time;

use crate::arrive::Inbox;
use crate::counters::Counters;
use crate::fastpath::FastPath;
use crate::meter::Meter;
use crate::mtu::AnswerLimit;
use crate::nat::Nat;
use crate::offload::gather::Gather;
use crate::output::Output;
use crate::peer::{Associations, Left, Nearby, PeerId, Peers};
use crate::plain::Plain;
use crate::policy::{Peer, Policy, mapped};
use crate::surroundings::Surroundings;

mod associations;
mod carried;
mod early;
mod keying;
mod metering;
mod reassembled;
mod status;
mod usage;

pub use associations::PolicyError;
pub use metering::Counted;
pub use reassembled::{Onward, Reassembled};
pub(crate) use reassembled::{Origin, Pieces};
pub use usage::{Usage, UsageDirection};

/// Bytes of the arena: a full batch of super-packets, cut, with room around each piece.
const ARENA_BYTES: usize = 8 << 20;

/// One pair of ports: policy, associations, tables and counters. Owned by one worker.
#[derive(Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) peers: Peers,
    pub(crate) surroundings: Surroundings,
    pub(crate) plain: Plain,
    /// `None`: clients are seen under their own addresses.
    pub(crate) nat: Option<Box<Nat>>,
    pub(crate) inbox: Inbox,
    /// `None`: every packet comes through here.
    pub(crate) fast_path: Option<Box<FastPath>>,
    pub(crate) pieces: Pieces,
    /// Some more than [`reassembled::REASSEMBLED_MAX`] at most.
    pub(crate) reassembled: VecDeque<Box<Reassembled>>,
    pub(crate) answers: AnswerLimit,
    pub(crate) gather: Gather,
    pub(crate) output: Output,
    pub(crate) counters: Counters,
    /// The last moment that we were told of.
    pub(crate) now: Time,
}

impl Engine {
    /// An engine for `policy`, with an association for each of its peers, that counts with `meter`.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn new(
        policy: Policy,
        associations: Associations,
        meter: Meter,
    ) -> Result<Self, PolicyError> {
        let mut engine = Self {
            policy: Policy::watch(0, policy.wire_mtu),
            peers: Peers::default(),
            surroundings: Surroundings::default(),
            plain: Plain::new(meter),
            nat: None,
            inbox: Inbox::default(),
            fast_path: None,
            pieces: Pieces::default(),
            reassembled: VecDeque::new(),
            answers: AnswerLimit::default(),
            gather: Gather::new(),
            output: Output::new(ARENA_BYTES),
            counters: Counters::default(),
            now: Time::default(),
        };
        engine.swap(policy, associations)?;
        Ok(engine)
    }

    /// Takes `policy` instead of the present one, whole or not at all. Associations that it still
    /// names go on, unless `associations` brings another of the same SPI. Tells how far those went
    /// that it does not.
    ///
    /// # Errors
    /// [`PolicyError`]; the present policy goes on.
    pub fn swap(
        &mut self,
        policy: Policy,
        associations: Associations,
    ) -> Result<Left, PolicyError> {
        self.check(&policy, &associations)?;
        self.plain.renew(&policy)?;
        self.release_pieces();
        self.surroundings.renew(&policy);
        self.nat = Nat::renewed(self.nat.take(), &policy);
        let before = std::mem::replace(&mut self.policy, policy);
        let Self { peers, policy, surroundings, now, .. } = self;
        let neighbours = &mut surroundings.neighbours;
        let mut nearby = Nearby { policy, neighbours, now: *now };
        Ok(peers.renew(&before, associations, &mut nearby))
    }

    /// Takes in one more peer, with the associations that it names, without a look at the others.
    ///
    /// # Errors
    /// [`PolicyError`]; nothing has changed.
    pub fn insert_peer(
        &mut self,
        peer: Peer,
        associations: Associations,
    ) -> Result<PeerId, PolicyError> {
        self.check_one(&peer, &associations)?;
        let (name, endpoint) = (peer.name.clone(), peer.endpoint);
        let ends_here = peer.ends_here();
        let inserted = self.policy.insert_peer(peer);
        let index = inserted.ok_or(PolicyError::PrefixTaken { peer: name })?;
        let Self { peers, policy, surroundings, now, .. } = self;
        surroundings.ending_here += usize::from(ends_here);
        if let Some(endpoint) = endpoint {
            surroundings.neighbours.add(endpoint);
        }
        let neighbours = &mut surroundings.neighbours;
        let mut nearby = Nearby { policy, neighbours, now: *now };
        Ok(peers.insert(index, &policy.peers[index], associations, &mut nearby))
    }

    /// Removes one peer and its associations, without a look at the others, and tells how far those
    /// went; `None`: it is gone already, whoever has its place now.
    pub fn remove_peer(&mut self, id: PeerId) -> Option<Left> {
        let index = self.peers.index(id)?;
        let gone = self.policy.remove_peer(index)?;
        if let Some(endpoint) = gone.endpoint {
            self.surroundings.neighbours.remove(endpoint);
        }
        self.surroundings.ending_here -= usize::from(gone.ends_here());
        if let Some(nat) = self.nat.as_mut().filter(|_| gone.mode.is_client()) {
            let policy = &self.policy;
            nat.retain(|client| policy.peer_for(&mapped(client.into())).is_some());
        }
        Some(self.peers.remove(index, &gone))
    }

    /// What the peer at `index` of the policy is known by for as long as it is there.
    pub fn peer_id(&self, index: usize) -> Option<PeerId> {
        self.peers.id_of(index)
    }

    /// The index in the policy of a peer that is still there.
    pub fn peer_index(&self, id: PeerId) -> Option<usize> {
        self.peers.index(id)
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
