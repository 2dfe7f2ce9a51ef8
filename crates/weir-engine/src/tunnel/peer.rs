//! What is known of one peer: its keys, its sessions, its last signs of life.

use arrayvec::ArrayVec;

use super::cookie::{Cookie, MacKeys};
use super::handshake::{Attempt, Mismatch, Role, Terms, Timestamp};
use super::key::{PresharedKey, PublicKey};
use super::message::MAC_LEN;
use super::path::Path;
use super::path_mtu::{PathMtu, PathMtuStatus, ProbeMessage};
use super::rekey::{self, Limits, OPENING_MAX};
use super::state::Effect;
use crate::policy::Mode;

/// A peer as it is configured.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Who it is.
    pub public_key: PublicKey,
    /// What both share beside.
    pub preshared: PresharedKey,
    /// Where it is, when that is known.
    pub path: Option<Path>,
    /// What must be alike at both ends.
    pub terms: Terms,
    /// Packets of the replay window of what opens its packets.
    pub replay_window: u32,
    /// The largest outer IP packet that the wire port sends, bytes: what the path carries of it is
    /// searched. 0: it is not.
    pub path_mtu_max: u16,
}

/// Whether a peer can be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// No keys, and nobody asked for any, or nobody knows where the peer is.
    Idle,
    /// No keys yet; initiations are under way.
    Connecting,
    /// Keys, and recent signs of life.
    Up,
    /// Initiations go unanswered.
    Dead,
}

impl PeerState {
    /// The name in the status and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            PeerState::Idle => "idle",
            PeerState::Connecting => "connecting",
            PeerState::Up => "up",
            PeerState::Dead => "dead",
        }
    }
}

/// One peer at one moment. Ages in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Who.
    pub public_key: PublicKey,
    /// Whether it can be spoken to.
    pub state: PeerState,
    /// Where its last authentic packet came from, or its configured endpoint.
    pub path: Option<Path>,
    /// Since the last handshake that came to keys.
    pub handshake_age_ns: Option<u64>,
    /// Since its last authentic packet.
    pub heard_age_ns: Option<u64>,
    /// Handshakes that came to keys; all but the first of a connection are rekeys.
    pub handshakes: u64,
    /// Initiations in a row that nobody answered.
    pub unanswered: u32,
    /// SPIs of the session in use: to seal, to open.
    pub spis: Option<(u32, u32)>,
    /// Why the peer's last initiation was refused.
    pub mismatch: Option<Mismatch>,
    /// How wide the path to it is.
    pub path_mtu: PathMtuStatus,
}

/// Reports and orders pass each other on their way for less than so long.
const CROSSED_NS: u64 = 1_000_000_000;

/// A pair of associations a worker: the SPIs are worker 0's, and those of the others follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) seal_spi: u32,
    pub(super) open_spi: u32,
    pub(super) workers: u8,
    pub(super) made_ns: u64,
    pub(super) renew_ns: u64,
    /// Sealed by worker 0's association.
    pub(super) first_packets: u64,
    /// Sealed by the association that sealed most.
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Session {
    pub(super) fn new(
        limits: &Limits,
        role: Role,
        (seal_spi, open_spi, workers): (u32, u32, u8),
        now_ns: u64,
        jitter: u8,
    ) -> Self {
        let after = limits.renew_after_ns(role == Role::Responder, jitter);
        Self {
            seal_spi,
            open_spi,
            workers,
            made_ns: now_ns,
            renew_ns: now_ns.saturating_add(after),
            first_packets: 0,
            packets: 0,
            bytes: 0,
        }
    }
}

/// An initiation that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) attempt: Box<Attempt>,
    pub(super) open_spi: u32,
    pub(super) mac1: [u8; MAC_LEN],
    pub(super) retry_ns: u64,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) settings: PeerSettings,
    pub(super) macs: MacKeys,
    pub(super) path: Option<Path>,
    /// The latest that it initiated with: an older one is a replay.
    pub(super) latest: Timestamp,
    pub(super) responded_ns: Option<u64>,
    /// The SPI and mac1 of our last answer: a loaded initiator replies to it with a cookie.
    pub(super) answered: Option<(u32, [u8; MAC_LEN])>,
    pub(super) cookie: Option<Cookie>,
    pub(super) waiting: Option<Waiting>,
    /// When to begin, without a session.
    pub(super) begin_ns: Option<u64>,
    pub(super) unanswered: u32,
    pub(super) current: Option<Session>,
    /// What was in use before, and since when it is not.
    pub(super) before: Option<(Session, u64)>,
    /// Made by us as responder; in use from the initiator's first packet on.
    pub(super) pending: Option<Session>,
    /// SPIs that still open, and since when they exist; oldest first.
    pub(super) old: ArrayVec<(u32, u64), OPENING_MAX>,
    pub(super) heard_ns: Option<u64>,
    pub(super) sealed_ns: u64,
    pub(super) handshakes: u64,
    pub(super) handshake_ns: Option<u64>,
    pub(super) mismatch: Option<Mismatch>,
    pub(super) path_mtu: PathMtu,
    /// The width that the data path was told.
    pub(super) told_mtu: u16,
    /// Sealed by the sessions before the one in use.
    pub(super) bytes_before: u64,
    /// Its place in the order of deadlines.
    pub(super) deadline_ns: Option<u64>,
}

impl Peer {
    pub(super) fn new(settings: PeerSettings, begin_ns: Option<u64>) -> Self {
        Self {
            macs: MacKeys::new(&settings.public_key),
            path: settings.path.clone(),
            settings,
            latest: Timestamp::default(),
            responded_ns: None,
            answered: None,
            cookie: None,
            waiting: None,
            begin_ns,
            unanswered: 0,
            current: None,
            before: None,
            pending: None,
            old: ArrayVec::new(),
            heard_ns: None,
            sealed_ns: 0,
            handshakes: 0,
            handshake_ns: None,
            mismatch: None,
            path_mtu: PathMtu::default(),
            told_mtu: 0,
            bytes_before: 0,
            deadline_ns: None,
        }
    }

    /// Our SPIs that mean it.
    pub(super) fn spis(&self) -> impl Iterator<Item = u32> {
        let sessions = self.current.iter().chain(&self.pending).map(|it| it.open_spi);
        let waiting = self.waiting.iter().map(|it| it.open_spi);
        sessions.chain(waiting).chain(self.old.iter().map(|(spi, _)| *spi))
    }

    /// Plaintext sealed so far, as far as it was reported.
    pub(super) fn sealed_bytes(&self) -> u64 {
        self.bytes_before + self.current.map_or(0, |it| it.bytes)
    }

    /// Takes in what an association sealed so far: its SPI, packets and bytes. Who only heard
    /// something tells it too.
    pub(super) fn note_sealed(
        &mut self,
        limits: &Limits,
        now_ns: u64,
        (spi, packets, bytes): (u32, u64, u64),
    ) {
        self.go_back(now_ns, spi);
        let Some(current) = &mut self.current else { return };
        let worker = spi.wrapping_sub(current.seal_spi);
        // Signs of life go by worker 0, whatever the others send: its packets confirm.
        if worker == 0 && packets > current.first_packets {
            current.first_packets = packets;
            self.sealed_ns = now_ns;
        }
        if worker < current.workers.into() {
            current.packets = current.packets.max(packets);
            current.bytes = current.bytes.max(bytes);
            if limits.is_worn(packets, bytes) && self.waiting.is_none() {
                self.begin_ns = Some(now_ns);
            }
        }
    }

    /// Two handshakes, one of each side, may end in either order, and a report cross an order on
    /// its way: then the data path seals by the session before, and what it seals by counts.
    fn go_back(&mut self, now_ns: u64, spi: u32) {
        let Some((before, since_ns)) = self.before.filter(|(it, _)| it.seal_spi == spi) else {
            return;
        };
        let Some(current) = self.current.filter(|_| now_ns.saturating_sub(since_ns) > CROSSED_NS)
        else {
            return;
        };
        let Some(old) = self.old.iter_mut().find(|(spi, _)| *spi == before.open_spi) else {
            return;
        };
        *old = (current.open_spi, current.made_ns);
        self.bytes_before = self.bytes_before.saturating_sub(before.bytes) + current.bytes;
        self.current = Some(before);
        self.before = Some((current, now_ns));
    }

    /// Goes on with the search for the path's width.
    pub(super) fn probe(&mut self, now_ns: u64, effects: &mut Vec<Effect>) {
        let (sealed, peer) = (self.sealed_bytes(), self.settings.public_key);
        self.path_mtu.serve(now_ns, sealed, |probe| {
            effects.push(Effect::Probe { peer, message: ProbeMessage::Ask(probe) });
        });
        self.tell_path_mtu(effects);
    }

    /// Tells the data path a width that is another than it knows.
    pub(super) fn tell_path_mtu(&mut self, effects: &mut Vec<Effect>) {
        let bytes = self.path_mtu.in_force();
        if bytes > 0 && std::mem::replace(&mut self.told_mtu, bytes) != bytes {
            effects.push(Effect::PathMtu { peer: self.settings.public_key, bytes });
        }
    }

    /// Whether a handshake is due for the session in use.
    pub(super) fn needs_renewal(&self, limits: &Limits, now_ns: u64) -> bool {
        let Some(current) = &self.current else { return false };
        let silent = self.silent_ns(limits).is_some_and(|at| now_ns >= at);
        let is_old = self.renewal_ns(current).is_some_and(|at| now_ns >= at);
        is_old || limits.is_worn(current.packets, current.bytes) || silent
    }

    /// Whether it is a standard client, which is silent while there is nothing to say.
    pub(super) fn is_client(&self) -> bool {
        self.settings.terms.mode == Mode::WireGuard
    }

    /// When a session is old enough to be renewed; a client's only while it is in use, for it
    /// renews its own.
    fn renewal_ns(&self, current: &Session) -> Option<u64> {
        let is_used = self.sealed_ns.saturating_add(rekey::CLIENT_ANSWERS_NS) >= current.renew_ns;
        (!self.is_client() || is_used).then_some(current.renew_ns)
    }

    /// When the peer has been silent for too long.
    fn silent_ns(&self, limits: &Limits) -> Option<u64> {
        if self.is_client() {
            let heard = self.heard_ns.max(self.current.map(|it| it.made_ns))?;
            return (self.sealed_ns > heard).then(|| heard + rekey::CLIENT_ANSWERS_NS);
        }
        let since = self.heard_ns.max(self.current.map(|it| it.made_ns))?;
        Some(since.saturating_add(limits.silence_ns()?))
    }

    /// When the next sign of life is due.
    pub(super) fn keepalive_ns(&self, limits: &Limits) -> Option<u64> {
        if self.is_client() {
            let heard = self.heard_ns.filter(|heard| *heard > self.sealed_ns)?;
            return self.current.is_some().then(|| heard + rekey::CLIENT_KEEPALIVE_NS);
        }
        let due = self.sealed_ns.saturating_add(limits.keepalive_ns);
        (self.current.is_some() && limits.keepalive_ns > 0).then_some(due)
    }

    /// When to look at it again.
    pub(super) fn next_ns(&self, limits: &Limits) -> Option<u64> {
        let expires = |since: u64| since.saturating_add(limits.expire_after_ns());
        let mut next = [self.begin_ns, self.waiting.as_ref().map(|it| it.retry_ns)]
            .into_iter()
            .flatten()
            .chain(self.old.first().map(|(_, since)| expires(*since)))
            .chain(self.pending.map(|it| expires(it.made_ns)))
            .chain(self.keepalive_ns(limits))
            .min();
        if let Some(current) = &self.current {
            let path_mtu = self.path_mtu.due_ns();
            next = next.into_iter().chain([expires(current.made_ns)]).chain(path_mtu).min();
            if self.waiting.is_none() && self.path.is_some() {
                let renewal = [self.renewal_ns(current), self.silent_ns(limits)];
                next = next.into_iter().chain(renewal.into_iter().flatten()).min();
            }
        }
        next
    }

    pub(super) fn status(&self, limits: &Limits, now_ns: u64) -> PeerStatus {
        let silent = self.silent_ns(limits).is_some_and(|at| now_ns >= at);
        let state = match (&self.current, self.unanswered) {
            (_, n) if n >= rekey::ATTEMPTS_UNTIL_DEAD && (silent || self.current.is_none()) => {
                PeerState::Dead
            }
            (Some(_), _) => PeerState::Up,
            (None, _) if self.waiting.is_some() || self.pending.is_some() => PeerState::Connecting,
            (None, _) => PeerState::Idle,
        };
        let age = |at: u64| now_ns.saturating_sub(at);
        PeerStatus {
            public_key: self.settings.public_key,
            state,
            path: self.path.clone(),
            handshake_age_ns: self.handshake_ns.map(age),
            heard_age_ns: self.heard_ns.map(age),
            handshakes: self.handshakes,
            unanswered: self.unanswered,
            spis: self.current.map(|it| (it.seal_spi, it.open_spi)),
            mismatch: self.mismatch,
            path_mtu: self.path_mtu.status(),
        }
    }
}
