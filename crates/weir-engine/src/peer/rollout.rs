//! A peer whose traffic need not be sealed yet: what passes in clear, and that it is told of.
//!
//! | [`Sealing`] | to the peer | from the peer |
//! |---|---|---|
//! | `Observe` | clear | clear or sealed |
//! | `Prefer` | sealed; clear without keys, or while held | clear or sealed |
//! | `Require` | sealed or dropped | sealed or dropped |
//!
//! Each address belongs to one peer, whose setting alone decides. A packet that is sealed pays for
//! all this with one flag, read where its association is.

use std::collections::BTreeMap;

use weir_wire::frame::Frame;

use super::Peers;
use crate::counters::ClearCounters;
use crate::policy::{Policy, Sealing};

/// What one peer is sent and may send in clear.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rollout {
    sealing: Sealing,
    /// Whether its packets are tagged: none is ever sealed.
    is_tagged: bool,
    /// Whether it has keys, and does not answer.
    is_held: bool,
    /// Whether nothing is sealed to it, whatever its keys: by the three above.
    is_clear: bool,
    /// What was last told of it: whether packets are sealed to it.
    told: Option<bool>,
    pub(super) counters: ClearCounters,
}

impl Rollout {
    pub(crate) fn new(sealing: Sealing, is_tagged: bool) -> Self {
        Self {
            sealing,
            is_tagged,
            is_held: false,
            is_clear: is_tagged || sealing == Sealing::Observe,
            told: None,
            counters: ClearCounters::default(),
        }
    }

    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.is_clear
    }

    /// Whether it is to be sent plaintext at present: by its policy, or because it is held.
    pub(crate) fn is_off(&self) -> bool {
        match self.sealing {
            Sealing::Observe => true,
            Sealing::Prefer => self.is_held,
            Sealing::Require => false,
        }
    }

    fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.is_clear = self.is_tagged || self.is_off();
    }

    /// Goes on under another policy.
    fn go_on(&mut self, before: Rollout) {
        self.counters = before.counters;
        self.told = before.told;
        self.hold(before.is_held);
    }
}

/// Packets to a peer are sealed from now on, or are so no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealingChange {
    /// Its name.
    pub peer: String,
    /// What its policy says.
    pub sealing: Sealing,
    /// Whether packets to it are sealed now.
    pub is_sealed: bool,
    /// Whether it has keys, and does not answer.
    pub is_held: bool,
    /// What passed in clear so far.
    pub counters: ClearCounters,
}

impl Peers {
    /// The peer has keys and does not answer, or answers again. Where its sealing is preferred,
    /// packets to it go in clear, or sealed again.
    pub(crate) fn hold_in_clear(&mut self, index: usize, is_held: bool) {
        if let Some(entry) = self.get_mut(index) {
            entry.rollout.hold(is_held);
        }
    }

    /// Peers that need not be sealed to, and that are, or are no more, since the last call.
    pub(crate) fn take_sealing_changes(
        &mut self,
        policy: &Policy,
        take: &mut dyn FnMut(SealingChange),
    ) {
        for (index, it) in self.iter_mut() {
            let Some(peer) = policy.peers.get(index) else { continue };
            let is_sealed = it.protects();
            if peer.sealing == Sealing::Require {
                it.rollout.told = None;
                continue;
            }
            if it.rollout.told.replace(is_sealed) == Some(is_sealed) {
                continue;
            }
            take(SealingChange {
                peer: peer.name.clone(),
                sealing: peer.sealing,
                is_sealed,
                is_held: it.rollout.is_held,
                counters: it.rollout.counters,
            });
        }
    }

    /// What goes on under the next policy, by the peers' names.
    pub(super) fn take_rollouts(&self, policy: &Policy) -> BTreeMap<String, Rollout> {
        let peers = self.iter().filter_map(|(index, it)| Some((policy.peers.get(index)?, it)));
        let lasting = peers.filter(|(peer, it)| {
            peer.sealing != Sealing::Require || it.rollout.is_held || it.rollout.counters.last.0 > 0
        });
        lasting.map(|(peer, it)| (peer.name.clone(), it.rollout)).collect()
    }

    pub(super) fn restore_rollouts(&mut self, policy: &Policy, before: &BTreeMap<String, Rollout>) {
        for (index, it) in self.iter_mut() {
            let name = policy.peers.get(index).map(|peer| &peer.name);
            if let Some(before) = name.and_then(|name| before.get(name)) {
                it.rollout.go_on(*before);
            }
        }
    }
}

impl Rollout {
    /// Counts a packet that is sent in clear; sealed, it would have been too big, or not.
    pub(crate) fn count_sent(&mut self, frame: &Frame<'_>, too_big: bool) {
        let counters = &mut self.counters;
        counters.sent_packets += 1;
        counters.sent_bytes += frame.len() as u64;
        counters.too_big_packets += u64::from(too_big);
        touch(counters, frame);
    }

    /// Counts a packet that came in clear.
    pub(crate) fn count_received(&mut self, frame: &Frame<'_>) {
        let counters = &mut self.counters;
        counters.received_packets += 1;
        counters.received_bytes += frame.len() as u64;
        touch(counters, frame);
    }
}

fn touch(counters: &mut ClearCounters, frame: &Frame<'_>) {
    counters.last = frame.meta.time;
    if counters.first.0 == 0 {
        counters.first = counters.last;
    }
}
