//! What a worker publishes of itself, for any reader, without being asked (docs/adr/0065).
//!
//! ```text
//!   tick (100 ms) --> counters of the pair ------------------+--> Publication --> Board
//!   round, round, ... --> Sweep: a slice of peers, of flows -+                      |
//!   status, drops, recorder, serve <-------- latest, with its age ------------------+
//! ```
//!
//! No lock is held while anything is built, and no round of packets waits for more than a slice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_engine::pipeline::Engine;
use weir_store::clock;
use weir_wire::frame::Time;

use crate::api::dto::{PairSnapshot, PeerSnapshot};
use crate::daemon::control::show;
use crate::daemon::pair::fast_path::FastPathControl;

/// Peers shown between two rounds.
pub const PEERS_A_SLICE: usize = 64;

/// A sweep over all peers begins so long after the last one ended, for each of them: what it costs
/// stays at a hundredth of a core.
const REST_A_PEER: Duration = Duration::from_micros(100);

/// Some peers in the order of the policy.
type Slice = Arc<Vec<PeerSnapshot>>;

/// What one worker published at one moment.
#[derive(Debug)]
pub struct Publication {
    /// The pair, its peers left out.
    pair: PairSnapshot,
    peers: Vec<Slice>,
    /// When `pair` was so.
    taken: Instant,
    /// Everything in it was so at this time or later.
    complete_since: Instant,
}

impl Publication {
    /// The pair and its peers, and how old they are at `now`.
    pub fn snapshot(&self, now: Instant) -> PairSnapshot {
        let peers = self.peers.iter().flat_map(|slice| slice.iter().cloned());
        let age = |since| now.saturating_duration_since(since).as_secs_f64();
        PairSnapshot {
            peers: peers.collect(),
            age_seconds: age(self.taken),
            peers_age_seconds: age(self.complete_since),
            ..self.pair.clone()
        }
    }

    /// When its counters were taken.
    pub fn taken(&self) -> Instant {
        self.taken
    }

    /// Whether nothing in it is older than `asked`.
    pub fn is_newer_than(&self, asked: Instant) -> bool {
        self.complete_since > asked
    }
}

/// Where a worker's latest publication is.
#[derive(Debug, Default)]
pub struct Board(Mutex<Option<Arc<Publication>>>);

impl Board {
    /// The latest; `None` before the first.
    pub fn latest(&self) -> Option<Arc<Publication>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts `next` in the place of the latest, which is returned.
    fn publish(&self, next: Arc<Publication>) -> Option<Arc<Publication>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(next)
    }
}

/// A worker's way to its board.
#[derive(Debug, Default)]
pub struct Publisher {
    board: Arc<Board>,
    sweep: Option<Sweep>,
    /// Of the last whole sweep, and when that began.
    peers: Vec<Slice>,
    complete_since: Option<Instant>,
    /// When the next sweep may begin.
    rests_until: Option<Instant>,
    /// Slices that nobody reads any more: they are freed as they were made, one a round.
    old: Vec<Slice>,
}

/// A look at all peers and all flows that the kernel carries, in slices.
#[derive(Debug)]
struct Sweep {
    begun: Instant,
    peers: Vec<Slice>,
    /// Peers that were looked at.
    seen: usize,
    /// Slots of the fast path that are left.
    slots: usize,
}

impl Publisher {
    /// Where readers find what is published.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Another policy is in force: a sweep over the peers of the one before means nothing.
    pub fn begin_anew(&mut self) {
        (self.sweep, self.rests_until) = (None, None);
    }

    /// Whether slices are left, for which a worker without packets should not sleep long.
    pub fn is_at_work(&self) -> bool {
        self.sweep.is_some() || !self.old.is_empty()
    }

    /// Begins a sweep where it is time for one. Call it each tick.
    pub fn begin(&mut self, fast_path: Option<&FastPathControl>, now: Instant) {
        if self.sweep.is_some() || self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        let slots = fast_path.map_or(0, FastPathControl::carried);
        self.sweep = Some(Sweep { begun: now, peers: Vec::new(), seen: 0, slots });
    }

    /// Looks at the next slice; true when the sweep is whole with it and is to be published.
    pub fn step(
        &mut self,
        engine: &mut Engine,
        fast_path: Option<&mut FastPathControl>,
        now: Time,
    ) -> bool {
        self.old.pop();
        let Some(sweep) = &mut self.sweep else { return false };
        if let Some(fast_path) = fast_path.filter(|_| sweep.slots > 0) {
            sweep.slots -= fast_path.fold_some(engine).clamp(1, sweep.slots);
        }
        let count = engine.policy().peers.len();
        if sweep.seen < count {
            let until = count.min(sweep.seen + PEERS_A_SLICE);
            sweep.peers.push(Arc::new(show::peers(engine, sweep.seen..until, now)));
            sweep.seen = until;
        }
        if sweep.seen < count || sweep.slots > 0 {
            return false;
        }
        self.complete_since = Some(sweep.begun);
        self.peers = std::mem::take(&mut sweep.peers);
        self.rests_until = Some(clock::now() + REST_A_PEER * count as u32);
        self.sweep = None;
        true
    }

    /// Publishes `pair` with the peers of the last whole sweep; nothing before the first.
    pub fn publish(&mut self, pair: PairSnapshot) {
        let Some(complete_since) = self.complete_since else { return };
        let peers = self.peers.clone();
        let next = Publication { pair, peers, taken: clock::now(), complete_since };
        // Whoever reads the one before frees it.
        if let Some(before) = self.board.publish(Arc::new(next)).and_then(Arc::into_inner) {
            let is_gone = |(at, slice): &(usize, Slice)| {
                self.peers.get(*at).is_none_or(|now| !Arc::ptr_eq(slice, now))
            };
            let gone = before.peers.into_iter().enumerate().filter(is_gone);
            self.old.extend(gone.map(|(_, slice)| slice));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::meter::{Meter, MeterLimits};
    use weir_engine::pipeline::Associations;
    use weir_engine::policy::{Encapsulation, Mode, Peer, Policy, Prefix, Sealing};
    use weir_engine::tunnel::key::PublicKey;

    use super::*;

    const PEERS: usize = 3 * PEERS_A_SLICE + 1;

    fn engine() -> Engine {
        let peer = |index: usize| Peer {
            name: format!("peer-{index}"),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Esp,
            sealing: Sealing::Require,
            endpoint: None,
            protects: vec![Prefix::new([10, 0, (index >> 8) as u8, index as u8].into(), 32)],
            everything: false,
            seal_spi: None,
            open_spis: Vec::new(),
            agreed: Some(PublicKey([index as u8; 32])),
            kernel: None,
            rate_limit: None,
            reaches: Vec::new(),
        };
        let mut policy = Policy::watch(1, 1500);
        policy.keying_port = Some(51840);
        let policy = policy.with_peers((0..PEERS).map(peer).collect());
        let meter = Meter::new(MeterLimits::default(), 7);
        Engine::new(policy, Associations::default(), meter).unwrap()
    }

    fn step(publisher: &mut Publisher, engine: &mut Engine) -> bool {
        publisher.step(engine, None, Time(1))
    }

    #[test]
    fn what_is_published_holds_all_peers_and_is_younger_than_a_question_before_it() {
        let (mut engine, mut publisher) = (engine(), Publisher::default());
        let before = clock::now();
        publisher.publish(PairSnapshot::default());
        assert!(publisher.board().latest().is_none(), "no peer was looked at yet");
        publisher.begin(None, before + Duration::from_nanos(1));
        // Four slices: a round waits for no more than one.
        let whole: Vec<bool> = (0..4).map(|_| step(&mut publisher, &mut engine)).collect();
        assert_eq!(whole, [false, false, false, true]);
        publisher.publish(PairSnapshot { flows: 5, ..PairSnapshot::default() });
        let latest = publisher.board().latest().unwrap();
        assert!(latest.is_newer_than(before));
        assert!(!latest.is_newer_than(clock::now() + Duration::from_secs(1)));
        let snapshot = latest.snapshot(clock::now());
        assert_eq!((snapshot.flows, snapshot.peers.len()), (5, PEERS));
        assert_eq!(snapshot.peers[PEERS - 1].name, format!("peer-{}", PEERS - 1));
    }

    #[test]
    fn counters_published_during_a_sweep_do_not_pass_for_new_peers() {
        let (mut engine, mut publisher) = (engine(), Publisher::default());
        publisher.begin(None, clock::now());
        while !step(&mut publisher, &mut engine) {}
        publisher.publish(PairSnapshot::default());
        let asked = clock::now();
        publisher.begin_anew();
        publisher.begin(None, asked + Duration::from_nanos(1));
        assert!(!step(&mut publisher, &mut engine));
        publisher.publish(PairSnapshot::default());
        assert!(!publisher.board().latest().unwrap().is_newer_than(asked));
        while !step(&mut publisher, &mut engine) {}
        publisher.publish(PairSnapshot::default());
        assert!(publisher.board().latest().unwrap().is_newer_than(asked));
        // The slices of before are freed one a round.
        assert!(publisher.is_at_work());
        assert!((0..4).all(|_| !step(&mut publisher, &mut engine)));
        assert!(!publisher.is_at_work());
    }
}
