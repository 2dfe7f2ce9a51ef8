//! The keying of one pair of ports, with all its peers, as a state machine without I/O.
//!
//! ```text
//!   handle(datagram) --+                       +--> Send: a datagram for a peer
//!   tick()           --+--> peers, deadlines --+--> Install, Forget, Close: associations
//!   note_activity()  --+                       +--> Keepalive: an empty ESP packet
//!
//!                  initiator                             responder
//!   Idle --------- initiation -------------------------> checks MACs, cookie, identity, timestamp
//!   Connecting                                           pending: opens, does not seal yet
//!        <-------- response ---------------------------
//!   Up: opens and seals
//!        --------- first ESP packet (a keepalive) -----> Up: seals with the new key from here on
//! ```
//!
//! Both may initiate at once: each handshake stands for itself, and each end seals with the one
//! that was confirmed last while it opens both.

use std::collections::{BTreeMap, BTreeSet};

pub use super::effect::{Effect, Install, PeerActivity};

use super::cookie::{Admission, Cookie, Doorkeeper, MacKeys};
use super::handshake::{self, Agreement, Parties, Protocol, Role, Timestamp};
use super::key::{Entropy, Identity, PublicKey};
use super::message::{self, Macs, Message};
use super::path::Path;
use super::path_mtu::ProbeMessage;
use super::peer::{Peer, PeerSettings, PeerStatus, Session, Waiting};
use super::rekey::{self, Limits, OPENING_MAX};
use crate::esp::sa::{SaError, SaParameters, Spi};
use crate::esp::spread::SPI_WORKER_MASK;
use crate::policy::Mode;

mod spis;

/// Between two responses to one peer.
const RESPONSE_PERIOD_NS: u64 = 20_000_000;

/// A response is confirmed by then, or its initiator is gone.
const CONFIRM_WITHIN_NS: u64 = 5_000_000_000;

/// First initiations of so many peers begin at once; the others follow each after that much time.
const START_PERIOD_NS: u64 = 500_000;

/// The moment, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since any moment; never runs backwards. All timers go by it.
    pub elapsed_ns: u64,
    /// Nanoseconds since 1970, which may jump. Only initiations' timestamps come of it.
    pub unix_ns: u64,
}

/// What happened to datagrams and handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyingCounters {
    /// Datagrams received.
    pub received: u64,
    /// Of them, no message of ours.
    pub malformed: u64,
    /// For another public key, or from one who does not know ours.
    pub mac1_wrong: u64,
    /// Forged, damaged, late, or by another preshared key.
    pub not_authentic: u64,
    /// Of an identity that is no peer.
    pub unknown_peer: u64,
    /// Initiations no newer than one seen before.
    pub replayed: u64,
    /// From a peer that is configured otherwise.
    pub mismatched: u64,
    /// Too many: of one address under load, or of one peer.
    pub refused: u64,
    /// Initiations sent.
    pub initiations_sent: u64,
    /// Responses sent.
    pub responses_sent: u64,
    /// Cookies sent, under load.
    pub cookies_sent: u64,
    /// Cookies received.
    pub cookies_received: u64,
    /// Handshakes that came to keys.
    pub handshakes: u64,
}

/// The keying of one pair of ports.
pub struct Tunnel {
    identity: Identity,
    macs: MacKeys,
    limits: Limits,
    peers: Vec<Peer>,
    by_key: BTreeMap<PublicKey, u32>,
    /// Our SPIs, those of initiations under way included.
    by_spi: BTreeMap<u32, u32>,
    /// SPIs of ours that handshakes have no part in.
    named_spis: BTreeSet<u32>,
    deadlines: BTreeSet<(u64, u32)>,
    doorkeeper: Doorkeeper,
    /// The last timestamp sent, nanoseconds since 1970.
    stamped_ns: u64,
    entropy: Box<dyn Entropy + Send>,
    counters: KeyingCounters,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tunnel({:?}, {} peers)", self.identity, self.peers.len())
    }
}

/// What costs public-key work.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Initiation,
    Answer,
}

impl Tunnel {
    /// A gateway with this identity and no peers.
    pub fn new(identity: Identity, limits: Limits, entropy: Box<dyn Entropy + Send>) -> Self {
        Self {
            macs: MacKeys::new(&identity.public()),
            identity,
            limits,
            peers: Vec::new(),
            by_key: BTreeMap::new(),
            by_spi: BTreeMap::new(),
            named_spis: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            doorkeeper: Doorkeeper::new(),
            stamped_ns: 0,
            entropy,
            counters: KeyingCounters::default(),
        }
    }

    /// Takes these peers instead of the present ones, and these limits. A peer whose settings stay
    /// goes on with its sessions; one whose key, preshared key or terms changed begins anew.
    pub fn configure(
        &mut self,
        now: Now,
        limits: Limits,
        peers: Vec<PeerSettings>,
        effects: &mut Vec<Effect>,
    ) {
        self.limits = limits;
        let mut before: BTreeMap<PublicKey, Peer> =
            self.peers.drain(..).map(|peer| (peer.settings.public_key, peer)).collect();
        (self.by_key, self.by_spi, self.deadlines) = Default::default();
        for (index, settings) in peers.into_iter().enumerate() {
            let key = settings.public_key;
            let kept = before.remove(&key).filter(|it| goes_on(&it.settings, &settings));
            let begin = now.elapsed_ns + START_PERIOD_NS * index as u64;
            let peer = match kept {
                Some(mut peer) => {
                    if peer.settings.path != settings.path {
                        peer.path = settings.path.clone();
                    }
                    Peer { settings, deadline_ns: None, ..peer }
                }
                None => {
                    effects.push(Effect::Close { peer: key });
                    let begin = settings.path.is_some().then_some(begin);
                    Peer::new(settings, begin)
                }
            };
            let mut peer = peer;
            if peer.path_mtu.set_max(peer.settings.path_mtu_max) && peer.current.is_some() {
                peer.path_mtu.begin(now.elapsed_ns);
            }
            self.by_key.insert(key, index as u32);
            self.by_spi.extend(peer.spis().map(|spi| (spi, index as u32)));
            self.peers.push(peer);
            self.schedule(index);
        }
    }

    /// Takes in a datagram that came to the keying port along `path`.
    pub fn handle(&mut self, now: Now, path: &Path, datagram: &[u8], effects: &mut Vec<Effect>) {
        self.counters.received += 1;
        match message::parse(datagram) {
            None => self.counters.malformed += 1,
            Some(Message::Initiation { sender, noise, macs }) => {
                if self.admit(now, path, (Kind::Initiation, sender), &macs, effects) {
                    self.initiated(now, path, sender, noise, effects);
                }
            }
            Some(Message::Response { sender, receiver, noise, macs }) => {
                if !self.awaits(receiver) {
                    self.counters.not_authentic += 1;
                } else if self.admit(now, path, (Kind::Answer, sender), &macs, effects)
                    && self.responded(now, path, (sender, receiver), noise, effects).is_none()
                {
                    self.doorkeeper.count(now.elapsed_ns);
                    self.counters.not_authentic += 1;
                }
            }
            Some(Message::CookieReply { receiver, nonce, sealed }) => {
                if self.keep_cookie(now, receiver, nonce, sealed).is_none() {
                    self.counters.not_authentic += 1;
                }
            }
        }
    }

    /// Does what is due. Call it at [`Tunnel::next_deadline`], or more often.
    pub fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some((at, index)) = self.deadlines.first().copied() {
            if at > now.elapsed_ns {
                break;
            }
            self.serve(now, index as usize, effects);
            let peer = &mut self.peers[index as usize];
            // What is still due stays so until a packet or a moment changes it.
            let next = peer.next_ns(&self.limits).map(|it| it.max(now.elapsed_ns + 1_000_000));
            self.place(index as usize, next);
        }
    }

    /// The next moment, by the clock that never jumps, at which [`Tunnel::tick`] has work.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes in what the data path saw of `key`.
    pub fn note_activity(
        &mut self,
        now: Now,
        key: &PublicKey,
        activity: &PeerActivity,
        effects: &mut Vec<Effect>,
    ) {
        let Some(index) = self.by_key.get(key).map(|it| *it as usize) else { return };
        let peer = &mut self.peers[index];
        if let Some(spi) = activity.confirmed
            && let Some(session) = peer.pending.take_if(|it| it.open_spi == spi)
        {
            self.put_in_use(now, index, session, effects);
        }
        let peer = &mut self.peers[index];
        if let Some(sealed) = activity.sealed {
            peer.note_sealed(&self.limits, now.elapsed_ns, sealed);
        }
        if activity.lost {
            self.lose(now, index, effects);
            return;
        }
        if activity.heard {
            peer.heard_ns = Some(now.elapsed_ns);
            peer.unanswered = 0;
        }
        if let Some(path) = &activity.moved_to {
            peer.path = Some(path.lasting());
            peer.path_mtu.forget();
            peer.path_mtu.begin(now.elapsed_ns);
        }
        if let Some(probe) = activity.probed {
            let (peer, message) = (peer.settings.public_key, ProbeMessage::Answer(probe));
            effects.push(Effect::Probe { peer, message });
        }
        if let Some(probe) = activity.probe_answered {
            peer.path_mtu.answered(now.elapsed_ns, probe, peer.sealed_bytes());
        }
        if activity.too_large {
            peer.path_mtu.hinted(now.elapsed_ns);
        }
        peer.tell_path_mtu(effects);
        if let Some(path) = &activity.wanted
            && peer.current.is_none()
        {
            if peer.path.is_none() || path.is_some() {
                peer.path = path.clone();
            }
            if peer.waiting.is_none() && peer.path.is_some() {
                let planned = peer.begin_ns.unwrap_or(u64::MAX);
                peer.begin_ns = Some(planned.min(now.elapsed_ns));
            }
        }
        self.schedule(index);
    }

    /// Every peer, in the order of the configuration.
    pub fn status(&self, now: Now) -> impl Iterator<Item = PeerStatus> {
        self.peers.iter().map(move |peer| peer.status(&self.limits, now.elapsed_ns))
    }

    /// What happened so far.
    pub fn counters(&self) -> KeyingCounters {
        self.counters
    }

    /// Whether initiations need cookies at present.
    pub fn is_loaded(&self, now: Now) -> bool {
        self.doorkeeper.is_loaded(now.elapsed_ns)
    }

    /// Whether an answer to this SPI is waited for: no other is worth public-key work.
    fn awaits(&self, receiver: u32) -> bool {
        let peer = self.by_spi.get(&receiver).map(|it| &self.peers[*it as usize]);
        let waiting = peer.and_then(|it| it.waiting.as_ref());
        waiting.is_some_and(|it| it.open_spi == receiver)
    }

    fn admit(
        &mut self,
        now: Now,
        path: &Path,
        (kind, sender): (Kind, u32),
        macs: &Macs<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if !self.macs.check(macs) {
            self.counters.mac1_wrong += 1;
            return false;
        }
        let Self { doorkeeper, entropy, .. } = self;
        let (now_ns, entropy) = (now.elapsed_ns, entropy.as_mut());
        let admission = match kind {
            Kind::Initiation => doorkeeper.admit(now_ns, &path.remote, macs, entropy),
            Kind::Answer => doorkeeper.admit_answer(now_ns, &path.remote, macs, entropy),
        };
        match admission {
            Admission::Work => return true,
            Admission::Refuse => self.counters.refused += 1,
            Admission::SendCookie => {
                let reply = doorkeeper.reply(&self.macs, &path.remote, macs, entropy);
                if let Some((nonce, sealed)) = reply {
                    self.counters.cookies_sent += 1;
                    let datagram = message::cookie_reply(sender, &nonce, &sealed);
                    effects.push(Effect::Send { path: path.clone(), datagram });
                }
            }
        }
        false
    }

    fn initiated(
        &mut self,
        now: Now,
        path: &Path,
        sender: u32,
        noise: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let seed = self.entropy.seed();
        let protocol = match noise.len() {
            message::WIREGUARD_INITIATION_LEN => Protocol::WireGuard,
            _ => Protocol::Esp,
        };
        let Ok(offer) = handshake::receive(protocol, &self.identity, noise, seed) else {
            self.counters.not_authentic += 1;
            return;
        };
        let Some(index) = self.by_key.get(&offer.peer).map(|it| *it as usize) else {
            self.counters.unknown_peer += 1;
            return;
        };
        let peer = &mut self.peers[index];
        if offer.timestamp <= peer.latest {
            self.counters.replayed += 1;
            return;
        }
        let soon = |at: u64| now.elapsed_ns.saturating_sub(at) < RESPONSE_PERIOD_NS;
        if peer.responded_ns.is_some_and(soon) {
            self.counters.refused += 1;
            return;
        }
        peer.latest = offer.timestamp;
        peer.mismatch = offer.check(peer.settings.terms).err();
        if peer.mismatch.is_some() {
            self.counters.mismatched += 1;
            return;
        }
        peer.responded_ns = Some(now.elapsed_ns);
        let workers = peer.settings.terms.workers;
        let Ok((noise, agreement)) = offer.respond(&peer.settings.preshared, workers) else {
            self.counters.not_authentic += 1;
            return;
        };
        let Ok(seal) = Spi::new(sender) else {
            self.counters.malformed += 1;
            return;
        };
        let open = self.draw_spi(index);
        if self.install(now, index, Role::Responder, (seal, open), (&agreement, path), effects) {
            let mut datagram = message::response(open.value(), sender, &noise);
            let peer = &self.peers[index];
            let cookie = peer.cookie.as_ref().and_then(|it| it.at(now.elapsed_ns));
            let mac1 = peer.macs.finish(&mut datagram, cookie);
            self.peers[index].answered = Some((open.value(), mac1));
            self.counters.responses_sent += 1;
            effects.push(Effect::Send { path: path.clone(), datagram });
        } else {
            self.by_spi.remove(&open.value());
        }
        self.schedule(index);
    }

    fn responded(
        &mut self,
        now: Now,
        path: &Path,
        (sender, receiver): (u32, u32),
        noise: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Option<()> {
        let index = *self.by_spi.get(&receiver)? as usize;
        let peer = &mut self.peers[index];
        let waiting = peer.waiting.as_mut().filter(|it| it.open_spi == receiver)?;
        let agreement = waiting.attempt.finish(noise).ok()?;
        let (seal, open) = (Spi::new(sender).ok()?, Spi::new(receiver).ok()?);
        peer.waiting = None;
        peer.unanswered = 0;
        peer.mismatch = None;
        peer.heard_ns = Some(now.elapsed_ns);
        peer.path = Some(path.lasting());
        if !self.install(now, index, Role::Initiator, (seal, open), (&agreement, path), effects) {
            self.by_spi.remove(&receiver);
            self.schedule(index);
            return None;
        }
        effects.push(Effect::Keepalive { peer: self.peers[index].settings.public_key });
        self.schedule(index);
        Some(())
    }

    fn keep_cookie(
        &mut self,
        now: Now,
        receiver: u32,
        nonce: &[u8; 24],
        sealed: &[u8],
    ) -> Option<()> {
        let peer = &mut self.peers[*self.by_spi.get(&receiver)? as usize];
        let initiation = peer.waiting.as_ref().map(|it| (it.open_spi, it.mac1));
        let mut sent = initiation.into_iter().chain(peer.answered);
        let (_, mac1) = sent.find(|(open_spi, _)| *open_spi == receiver)?;
        let bytes = peer.macs.open_cookie(nonce, sealed, &mac1)?;
        peer.cookie = Some(Cookie { bytes, since_ns: now.elapsed_ns });
        self.counters.cookies_received += 1;
        Some(())
    }

    /// Hands new associations out and books them; false when the library refuses them.
    fn install(
        &mut self,
        now: Now,
        index: usize,
        role: Role,
        (seal, open): (Spi, Spi),
        (agreement, path): (&Agreement, &Path),
        effects: &mut Vec<Effect>,
    ) -> bool {
        let peer = &mut self.peers[index];
        let (window, terms) = (peer.settings.replay_window, peer.settings.terms);
        let of_worker = |worker: u8| {
            let spi = |base: Spi| Spi::new(base.value() | u32::from(worker));
            let (seal, open) = (spi(seal)?, spi(open)?);
            let parameters = match terms.protocol() {
                Protocol::Esp => agreement.associations(seal, open)?,
                Protocol::WireGuard => agreement.data_associations(seal, open),
            };
            Ok(parameters.map(|it| SaParameters { replay_window: window, ..it }))
        };
        let is_base = |spi: Spi| spi.value() & SPI_WORKER_MASK == 0;
        if agreement.workers > 1 && !(is_base(seal) && is_base(open)) {
            return false;
        }
        let Ok([seal_parameters, open_parameters]) = of_worker(0) else { return false };
        let Ok(more) = (1..agreement.workers).map(of_worker).collect::<Result<Vec<_>, SaError>>()
        else {
            return false;
        };
        let is_tagged = matches!(peer.settings.terms.mode, Mode::IcrcTag(_));
        let tags = is_tagged.then(|| agreement.tag_keys(seal, open)).transpose();
        let Ok(tags) = tags else { return false };
        self.counters.handshakes += 1;
        peer.handshakes += 1;
        peer.handshake_ns = Some(now.elapsed_ns);
        // An initiator that died meanwhile never confirms; then it is on this side to begin.
        // A client begins by itself.
        let alone = role == Role::Responder && peer.current.is_none() && !peer.is_client();
        peer.begin_ns = alone.then_some(now.elapsed_ns + CONFIRM_WITHIN_NS);
        if peer.path.is_none() {
            peer.path = Some(path.lasting());
        }
        effects.push(Effect::Install(Box::new(Install {
            peer: peer.settings.public_key,
            role,
            path: path.clone(),
            seal: seal_parameters,
            open: open_parameters,
            more,
            tags,
        })));
        let mut jitter = [0];
        self.entropy.fill(&mut jitter);
        let spis = (seal.value(), open.value(), agreement.workers);
        let session = Session::new(&self.limits, role, spis, now.elapsed_ns, jitter[0]);
        match role {
            Role::Initiator => self.put_in_use(now, index, session, effects),
            Role::Responder => {
                if let Some(before) = self.peers[index].pending.replace(session) {
                    self.supersede(index, before, effects);
                }
            }
        }
        true
    }

    /// `session` seals from now on; the one before still opens.
    fn put_in_use(&mut self, now: Now, index: usize, session: Session, effects: &mut Vec<Effect>) {
        let peer = &mut self.peers[index];
        peer.sealed_ns = now.elapsed_ns;
        peer.begin_ns = None;
        if let Some(waiting) = peer.waiting.take() {
            self.by_spi.remove(&waiting.open_spi);
        }
        peer.path_mtu.begin(now.elapsed_ns);
        if peer.settings.terms.workers > 1 {
            let Session { open_spi, workers, .. } = session;
            effects.push(Effect::InUse { peer: peer.settings.public_key, open_spi, workers });
        }
        if let Some(before) = peer.current.replace(session) {
            peer.bytes_before += before.bytes;
            peer.before = Some((before, now.elapsed_ns));
            self.supersede(index, before, effects);
        }
    }

    fn supersede(&mut self, index: usize, session: Session, effects: &mut Vec<Effect>) {
        let peer = &mut self.peers[index];
        peer.old.push((session.open_spi, session.made_ns));
        // Beside these are the one in use and the one that waits.
        if peer.old.len() > OPENING_MAX - 2 {
            let (open_spi, _) = peer.old.remove(0);
            self.by_spi.remove(&open_spi);
            effects.push(Effect::Forget { peer: peer.settings.public_key, open_spi });
        }
    }

    /// Does what is due for one peer.
    fn serve(&mut self, now: Now, index: usize, effects: &mut Vec<Effect>) {
        self.expire(now, index, effects);
        let peer = &mut self.peers[index];
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now.elapsed_ns);
        if due(peer.keepalive_ns(&self.limits)) {
            peer.sealed_ns = now.elapsed_ns;
            effects.push(Effect::Keepalive { peer: peer.settings.public_key });
        }
        if peer.current.is_some() {
            peer.probe(now.elapsed_ns, effects);
        }
        let again = due(peer.waiting.as_ref().map(|it| it.retry_ns));
        let renew = peer.waiting.is_none() && peer.needs_renewal(&self.limits, now.elapsed_ns);
        if again || renew || due(peer.begin_ns) {
            peer.begin_ns = None;
            if peer.is_client() && peer.unanswered >= rekey::CLIENT_ATTEMPTS_MAX {
                self.leave_alone(index);
                return;
            }
            self.initiate(now, index, effects);
        }
    }

    /// A client that does not answer is gone: nothing is tried until a packet wants it again.
    fn leave_alone(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.unanswered = 0;
        if let Some(waiting) = peer.waiting.take() {
            self.by_spi.remove(&waiting.open_spi);
        }
    }

    fn expire(&mut self, now: Now, index: usize, effects: &mut Vec<Effect>) {
        let peer = &mut self.peers[index];
        let key = peer.settings.public_key;
        let life = self.limits.expire_after_ns();
        let ended = |since: u64| now.elapsed_ns.saturating_sub(since) >= life;
        let mut gone = Vec::new();
        peer.old.retain(|(spi, since)| {
            gone.extend(ended(*since).then_some(*spi));
            !ended(*since)
        });
        gone.extend(peer.pending.take_if(|it| ended(it.made_ns)).map(|it| it.open_spi));
        if let Some(session) = peer.current.take_if(|it| ended(it.made_ns)) {
            gone.push(session.open_spi);
            effects.push(Effect::Close { peer: key });
            peer.path_mtu.forget();
        }
        for open_spi in gone {
            self.by_spi.remove(&open_spi);
            effects.push(Effect::Forget { peer: key, open_spi });
        }
    }

    /// All keys of a peer are gone: others are wanted, and not sooner than somebody who does not
    /// answer would be asked again.
    fn lose(&mut self, now: Now, index: usize, effects: &mut Vec<Effect>) {
        let peer = &mut self.peers[index];
        let sessions = peer.current.take().into_iter().chain(peer.pending.take());
        let gone: Vec<u32> =
            sessions.map(|it| it.open_spi).chain(peer.old.drain(..).map(|(spi, _)| spi)).collect();
        peer.path_mtu.forget();
        if peer.waiting.is_none() && peer.path.is_some() {
            peer.begin_ns = Some(now.elapsed_ns + rekey::RETRY_NS);
        }
        effects.push(Effect::Close { peer: peer.settings.public_key });
        for spi in gone {
            self.by_spi.remove(&spi);
        }
        self.schedule(index);
    }

    fn initiate(&mut self, now: Now, index: usize, effects: &mut Vec<Effect>) {
        if let Some(waiting) = self.peers[index].waiting.take() {
            self.by_spi.remove(&waiting.open_spi);
        }
        let Some(path) = self.peers[index].path.clone() else { return };
        self.stamped_ns = now.unix_ns.max(self.stamped_ns + 1);
        let open_spi = self.draw_spi(index).value();
        let seed = self.entropy.seed();
        let mut jitter = [0];
        self.entropy.fill(&mut jitter);
        let peer = &mut self.peers[index];
        let parties = Parties {
            protocol: peer.settings.terms.protocol(),
            identity: &self.identity,
            peer: &peer.settings.public_key,
            preshared: &peer.settings.preshared,
        };
        let timestamp = Timestamp::new(self.stamped_ns);
        let begun = handshake::attempt(parties, peer.settings.terms, timestamp, seed);
        let Ok((attempt, noise)) = begun else { return };
        let mut datagram = message::initiation(open_spi, &noise);
        let cookie = peer.cookie.as_ref().and_then(|it| it.at(now.elapsed_ns));
        let mac1 = peer.macs.finish(&mut datagram, cookie);
        peer.unanswered = peer.unanswered.saturating_add(1);
        let retry_ns = now.elapsed_ns + rekey::retry_ns(peer.unanswered, jitter[0]);
        peer.waiting = Some(Waiting { attempt: Box::new(attempt), open_spi, mac1, retry_ns });
        self.counters.initiations_sent += 1;
        effects.push(Effect::Send { path, datagram });
    }

    fn schedule(&mut self, index: usize) {
        let next = self.peers[index].next_ns(&self.limits);
        self.place(index, next);
    }

    fn place(&mut self, index: usize, next: Option<u64>) {
        let peer = &mut self.peers[index];
        let before = std::mem::replace(&mut peer.deadline_ns, next);
        if before == next {
            return;
        }
        if let Some(at) = before {
            self.deadlines.remove(&(at, index as u32));
        }
        if let Some(at) = next {
            self.deadlines.insert((at, index as u32));
        }
    }
}

/// Whether a peer with other settings is still the same one.
fn goes_on(before: &PeerSettings, after: &PeerSettings) -> bool {
    before.preshared == after.preshared
        && before.terms == after.terms
        && before.replay_window == after.replay_window
}
