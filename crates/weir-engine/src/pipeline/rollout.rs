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
use weir_wire::parse::Parsed;

use super::{Engine, send_whole};
use crate::counters::ClearCounters;
use crate::meter::FlowPlace;
use crate::output::Destination;
use crate::policy::{Mode, Sealing};
use crate::tunnel::key::PublicKey;
use crate::verdict::{DropReason, Side, Verdict};

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
    counters: ClearCounters,
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

impl Engine {
    /// A packet for a peer that none is sealed to at present.
    #[cold]
    pub(super) fn send_unsealed(
        &mut self,
        peer: usize,
        index: u32,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        if let Mode::IcrcTag(terms) = self.policy.peers[peer].mode {
            return self.send_tagged(terms, peer, index, frame, parsed);
        }
        self.send_without_keys(peer, index, frame, parsed)
    }

    /// A packet for a peer that there is nothing to protect with at present.
    pub(super) fn send_without_keys(
        &mut self,
        peer: usize,
        index: u32,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        if self.sealing[peer].association.is_none() {
            self.sealing[peer].wanted = Some([parsed.source, parsed.destination]);
            self.want(peer, frame, parsed);
        }
        if !self.policy.may_be_clear(peer) {
            return Err(DropReason::NoAssociation);
        }
        Ok(self.send_in_clear(peer, index, frame, parsed))
    }

    /// A packet for a peer, as it is.
    pub(super) fn send_in_clear(
        &mut self,
        peer: usize,
        index: u32,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Verdict {
        // Connections that begin now must fit when they are sealed later.
        self.clamp(peer, frame, parsed);
        let is_cut = frame.meta.offload.segmentation.is_some();
        let too_big = !is_cut && !self.sealing[peer].fits(parsed, frame.len());
        let counters = &mut self.sealing[peer].rollout.counters;
        counters.sent_packets += 1;
        counters.sent_bytes += frame.len() as u64;
        counters.too_big_packets += u64::from(too_big);
        touch(counters, frame);
        send_whole(&mut self.output, Destination::Wire, index, frame);
        Verdict::Unsealed
    }

    /// A packet in clear of a peer that may send such.
    #[cold]
    pub(super) fn take_unsealed(
        &mut self,
        peer: usize,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        self.plain.pass(Side::Wire, frame, parsed, &mut FlowPlace::default())?;
        self.clamp(peer, frame, parsed);
        let counters = &mut self.sealing[peer].rollout.counters;
        counters.received_packets += 1;
        counters.received_bytes += frame.len() as u64;
        touch(counters, frame);
        Ok(Verdict::Unsealed)
    }

    /// The peer has keys and does not answer, or answers again. Where its sealing is preferred,
    /// packets to it go in clear, or sealed again.
    pub fn hold_in_clear(&mut self, peer: &PublicKey, is_held: bool) {
        let Some(index) = self.index_of(peer) else { return };
        self.sealing[index].rollout.hold(is_held);
    }

    /// What passed in clear to and from the peer of this index.
    pub fn clear_counters(&self, peer: usize) -> ClearCounters {
        self.sealing[peer].rollout.counters
    }

    /// Whether packets to the peer of this index are sealed, or tagged, at present.
    pub fn is_sealed_to(&self, peer: usize) -> bool {
        self.sealing[peer].protects()
    }

    /// Peers that need not be sealed to, and that are, or are no more, since the last call.
    pub fn take_sealing_changes(&mut self, take: &mut dyn FnMut(SealingChange)) {
        for (peer, it) in self.policy.peers.iter().zip(&mut self.sealing) {
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
    pub(super) fn take_rollouts(&self) -> BTreeMap<String, Rollout> {
        let peers = self.policy.peers.iter().zip(&self.sealing);
        let lasting = peers.filter(|(peer, it)| {
            peer.sealing != Sealing::Require || it.rollout.is_held || it.rollout.counters.last.0 > 0
        });
        lasting.map(|(peer, it)| (peer.name.clone(), it.rollout)).collect()
    }

    pub(super) fn restore_rollouts(&mut self, before: BTreeMap<String, Rollout>) {
        for (peer, it) in self.policy.peers.iter().zip(&mut self.sealing) {
            if let Some(before) = before.get(&peer.name) {
                it.rollout.go_on(*before);
            }
        }
    }
}

fn touch(counters: &mut ClearCounters, frame: &Frame<'_>) {
    counters.last = frame.meta.time;
    if counters.first.0 == 0 {
        counters.first = counters.last;
    }
}
