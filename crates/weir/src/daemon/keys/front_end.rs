//! Front ends of a pair: `ip xfrm` and IKE daemons under `weir xfrm` speak NETLINK_XFRM to a Unix
//! socket here, and their associations and policies reach the pair's workers as a policy does,
//! behind what the configuration says. An association has one sequence and one window, so worker 0
//! alone has it; the others know the policies, and the steering gives them none of these packets
//! (docs/adr/0110).
//!
//! ```text
//!   accept thread --one thread a client--> supervisor: FrontEnd::handle --offer, commit--> worker
//!                                          answers, notices --> clients
//!                                          FrontEnd::tick <---- usage, wanted ------------ worker
//! ```
//!
//! An acknowledgement is sent when the worker has what it acknowledges. Associations end with this
//! process, as a kernel's do; how far their keys went is kept on disk as that of keys in files
//! (`state`), and a key that comes back goes on there (docs/adr/0036).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use weir_engine::esp::open::{OpeningSa, OpeningState};
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::pipeline::{Associations, Left};
use weir_engine::policy::{Peer, Policy, Route};
use weir_store::clock;
use weir_xfrm::database::{Answer, Asker, Notice, Outside, Xfrm};
use weir_xfrm::plan::{ChangedPeers, GatewayAddresses, Plan};
use weir_xfrm::refusal::{Errno, Refusal};
use weir_xfrm::state::State;
use zeroize::Zeroizing;

use crate::config::settings::Pair;
use crate::daemon::keys::front_end_socket::{Client, ClientEvent, FrontEndSocket};
use crate::daemon::keys::state::{StateError, StateStore};
use crate::daemon::pair::prepare::{NextReplayFile, Prepared, ReplayFile, Running, Terms};
use crate::daemon::pair::sharing::SteeredPrefix;
use crate::daemon::pair::worker::AssociationChange;
use crate::daemon::pair::workers::PairWorkers;
use weir_store::entropy;

/// The first word of a greeting; netlink begins with a length, which is never 0.
const GREETING: u32 = 0;
const GREETING_VERSION: u32 = 1;
const OPTION_WORDS: u32 = 1;
const OPTION_CAPPED: u32 = 2;

/// The databases of a pair's front ends, and what of them runs.
#[derive(Debug)]
pub struct FrontEnd {
    pair: String,
    /// Its number among those of the gateway.
    number: usize,
    xfrm: Xfrm,
    /// What is in force.
    plan: Plan,
    /// What the configuration says, for each worker.
    bases: Vec<Base>,
    /// What worker 0 has, by SPI.
    sealing: BTreeMap<u32, Terms>,
    opening: BTreeMap<u32, Terms>,
    /// Handshakes have not heard yet which SPIs these are.
    has_new_spis: bool,
    /// Keys whose associations were removed, which the worker or the disk has still.
    leaving: Vec<Fingerprint>,
    /// Why what the databases say is not in force as a whole.
    behind: Option<Behind>,
    clients: BTreeMap<u64, Listener>,
    random: File,
    _socket: FrontEndSocket,
}

/// What the configuration says, without front ends.
#[derive(Clone, Debug)]
pub struct Base {
    policy: Policy,
    running: Vec<Running>,
    replay_files: Vec<Fingerprint>,
}

impl Base {
    /// The configured part of a plan.
    pub fn of(prepared: &Prepared) -> Self {
        let replay_files = prepared.replay_files.iter().map(|next| match next {
            NextReplayFile::Running(fingerprint) => *fingerprint,
            NextReplayFile::New(file) => file.fingerprint,
        });
        Self {
            policy: prepared.policy.clone(),
            running: prepared.running.clone(),
            replay_files: replay_files.collect(),
        }
    }
}

fn place(bases: &[Base]) -> GatewayAddresses {
    let own = bases[0].policy.own.iter().flat_map(|own| &own.addresses);
    let peers = bases.iter().flat_map(|base| &base.policy.peers);
    let spis = peers.flat_map(|peer| peer.seal_spi.iter().chain(&peer.open_spis));
    GatewayAddresses {
        own: own.map(|(address, _)| *address).collect(),
        taken_spis: spis.copied().collect(),
    }
}

#[derive(Debug)]
struct Listener {
    client: Arc<Client>,
    asker: Asker,
    groups: u32,
}

impl FrontEnd {
    /// Opens the socket of `pair`, the gateway's `number`th, at `path`; its clients' words arrive
    /// by
    /// `events`, which returns false when the daemon has ended.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(
        (number, pair): (usize, &Pair),
        path: PathBuf,
        bases: Vec<Base>,
        events: impl Fn(ClientEvent) -> bool + Clone + Send + 'static,
    ) -> Result<Self> {
        let socket = FrontEndSocket::open(&path, events)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let random = entropy::source()?;
        Ok(Self {
            pair: pair.name.clone(),
            number,
            xfrm: Xfrm::new(place(&bases)),
            plan: Plan::default(),
            bases,
            sealing: BTreeMap::new(),
            opening: BTreeMap::new(),
            has_new_spis: false,
            leaving: Vec::new(),
            behind: None,
            clients: BTreeMap::new(),
            random,
            _socket: socket,
        })
    }

    /// Whether there is anything to look after.
    pub fn is_active(&self) -> bool {
        let is_empty = self.xfrm.states().is_empty() && self.xfrm.policies().is_empty();
        !is_empty || self.is_to_retry()
    }

    /// Takes in what a client did.
    pub fn handle(
        &mut self,
        event: ClientEvent,
        workers: &mut PairWorkers,
        store: &mut StateStore,
    ) {
        match event {
            ClientEvent::Opened(client) => {
                let (asker, groups) = (Asker::default(), 0);
                self.clients.insert(client.number(), Listener { client, asker, groups });
            }
            ClientEvent::Closed(number) => {
                self.clients.remove(&number);
            }
            ClientEvent::Said(number, datagram) => {
                let Some(listener) = self.clients.get_mut(&number) else { return };
                if let Some(greeting) = greeting(&datagram) {
                    (listener.asker, listener.groups) = greeting;
                    return;
                }
                // A key may be in it.
                let datagram = Zeroizing::new(datagram);
                let (asker, client) = (listener.asker, listener.client.clone());
                let Self { xfrm, random, number, .. } = self;
                let mut gateway = Gateway { random, store: &mut *store, owner: *number };
                let answer = xfrm.handle(clock::seconds(), asker, &datagram, &mut gateway);
                if answer.changed {
                    self.apply(workers, store);
                }
                for datagram in &answer.datagrams {
                    client.send(datagram);
                }
                self.spread(&answer.notices);
            }
        }
    }

    /// Looks after limits, wanted associations and moved peers. Call it ten times a second.
    pub fn tick(&mut self, workers: &mut PairWorkers, store: &mut StateStore) {
        let usage = match workers.usage() {
            Ok(usage) => usage,
            Err(error) => {
                tracing::warn!(pair = self.pair, "front end: {error:#}");
                return;
            }
        };
        let now = clock::seconds();
        let Answer { notices, changed, .. } = self.xfrm.tick(now, &usage.associations);
        self.spread(&notices);
        for (peer, [source, destination]) in usage.wanted {
            let Some(index) = peer.checked_sub(self.bases[0].policy.peers.len()) else { continue };
            let Some(Some(policy)) = self.plan.acquire_for.get(index) else { continue };
            let (from, to) = (ip(&source), ip(&destination));
            if self.hears(weir_xfrm::uapi::group::ACQUIRE) {
                let notice = self.xfrm.acquire(now, *policy, from, to);
                self.spread(notice.as_slice());
            }
        }
        if changed || self.is_to_retry() {
            self.apply(workers, store);
        }
    }

    /// The SPIs by which associations open, where they changed since this was asked last.
    pub fn take_new_spis(&mut self) -> Option<BTreeSet<u32>> {
        let has_new_spis = std::mem::take(&mut self.has_new_spis);
        has_new_spis.then(|| self.opening.keys().copied().collect())
    }

    /// Puts what front ends have behind a configuration that is about to be in force, a plan a
    /// worker.
    pub fn extend(&self, prepared: &mut [Prepared]) {
        let plan = &self.plan;
        for (worker, prepared) in prepared.iter_mut().enumerate() {
            prepared.policy = behind(prepared.policy.clone(), plan, worker);
        }
        let running = opening_spis(plan).filter_map(|spi| self.opening.get(&spi));
        prepared[0]
            .replay_files
            .extend(running.map(|it| NextReplayFile::Running(it.fingerprint())));
    }

    /// A new configuration is in force.
    pub fn set_bases(&mut self, bases: Vec<Base>) {
        self.xfrm.set_place(place(&bases));
        self.bases = bases;
    }

    fn is_to_retry(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.may_pass)
    }

    /// Has the workers do what the databases say, and keeps on disk how far the keys went that are
    /// gone. What cannot be is told once, and tried again where that may help.
    fn apply(&mut self, workers: &mut PairWorkers, store: &mut StateStore) {
        self.leaving.extend(self.xfrm.take_removed());
        let behind = match self.try_apply(workers, store) {
            Ok(behind) => behind,
            Err(error) => Some(Behind::of(&error)),
        };
        if let Some(Behind { why, .. }) = behind.as_ref().filter(|_| behind != self.behind) {
            tracing::error!(pair = self.pair, "front end: its change is not in force: {why}");
        }
        self.behind = behind;
    }

    /// What could not be done: an association is missing.
    fn try_apply(
        &mut self,
        workers: &mut PairWorkers,
        store: &mut StateStore,
    ) -> Result<Option<Behind>> {
        let plan = self.xfrm.plan();
        // A key that changes its SPI or its numbering is let go before it is taken up again: only
        // then it is known how far it went.
        let changing = self.changing(&plan);
        if !changing.is_empty() {
            let without = plan.without(self.xfrm.states(), &changing);
            self.put_in_force(without, workers, store)?;
        }
        let behind = self.put_in_force(plan, workers, store)?;
        if !self.leaving.is_empty() {
            let states = self.xfrm.states().iter();
            let there: HashSet<_> = states.filter_map(State::fingerprint).collect();
            self.leaving.retain(|key| !there.contains(key));
        }
        store.take_back(&self.leaving)?;
        self.leaving.clear();
        Ok(behind)
    }

    /// Associations (places in the database) whose keys the worker already has, with another SPI
    /// or numbering.
    fn changing(&self, plan: &Plan) -> BTreeSet<usize> {
        let running = self.sealing.values().chain(self.opening.values());
        let running: HashMap<_, _> = running.map(|terms| (terms.fingerprint(), terms)).collect();
        let is_other = |place: &usize| {
            let wanted = terms(&self.xfrm.states()[*place]);
            wanted.is_some_and(|it| running.get(&it.fingerprint()).is_some_and(|had| **had != it))
        };
        plan.sealing.iter().chain(&plan.opening).copied().filter(is_other).collect()
    }

    /// Puts `plan` in force, without the associations that cannot be made. Returns why they
    /// cannot.
    fn put_in_force(
        &mut self,
        plan: Plan,
        workers: &mut PairWorkers,
        store: &mut StateStore,
    ) -> Result<Option<Behind>> {
        let mut new = New::default();
        for place in &plan.sealing {
            let state = &self.xfrm.states()[*place];
            if !has(&self.sealing, state) {
                new.add((*place, state), sealer(state, store));
            }
        }
        for place in &plan.opening {
            let state = &self.xfrm.states()[*place];
            if !has(&self.opening, state) {
                new.add((*place, state), opener(state, store));
            }
        }
        new.reserve(store);
        let New { associations, mut replay_files, refused, why, .. } = new;
        let plan = match refused.is_empty() {
            true => plan,
            false => plan.without(self.xfrm.states(), &refused),
        };
        let states = self.xfrm.states();
        let running = |places: &[usize]| -> BTreeMap<u32, Terms> {
            places.iter().filter_map(|it| Some((states[*it].spi(), terms(&states[*it])?))).collect()
        };
        let (sealing, opening) = (running(&plan.sealing), running(&plan.opening));
        let left = match self.changes(&plan, &associations) {
            Some(changed) => {
                let changes = self.divide(&changed, &plan, associations, replay_files);
                if changes.is_empty() { Left::default() } else { workers.change(changes)? }
            }
            None => {
                let mut prepared = self.on_bases(&plan);
                let next = &mut prepared[0].replay_files;
                for terms in opening_spis(&plan).filter_map(|spi| opening.get(&spi)) {
                    let key = terms.fingerprint();
                    let file = replay_files.remove(&key).map(NextReplayFile::New);
                    next.push(file.unwrap_or(NextReplayFile::Running(key)));
                }
                prepared[0].associations = associations;
                if let Err(error) = workers.offer(prepared) {
                    workers.discard();
                    return Err(error);
                }
                workers.commit()?
            }
        };
        self.has_new_spis |= !opening.keys().eq(self.opening.keys());
        (self.plan, self.sealing, self.opening) = (plan, sealing, opening);
        store.note_left(&left);
        // The others know the policies by now: what still comes to them is dropped, never passed.
        let (reaches, spis) = (reaches(&self.plan), self.opening.keys().copied().collect());
        workers.steer_front_end(reaches, spis)?;
        Ok(why)
    }

    /// The peers whose associations are others by `plan`, where that is all and what is `new` is
    /// theirs: a key that is new under the SPI of one that leaves takes a whole plan.
    fn changes(&self, plan: &Plan, new: &Associations) -> Option<ChangedPeers> {
        let changed = self.plan.changed_peers(plan)?;
        let is_gained =
            new.sealing.iter().all(|it| changed.sealing.contains_key(&it.spi().value()))
                && new.opening.iter().all(|it| changed.opening.contains_key(&it.spi().value()));
        is_gained.then_some(changed)
    }

    /// Divides `new` among the peers of `changed`, as commands for worker 0. The replay files are
    /// in the order in which the engine takes the associations.
    fn divide(
        &self,
        changed: &ChangedPeers,
        plan: &Plan,
        new: Associations,
        mut files: BTreeMap<Fingerprint, ReplayFile>,
    ) -> Vec<AssociationChange> {
        let first = self.bases[0].policy.peers.len();
        let mut changes: BTreeMap<usize, AssociationChange> = BTreeMap::new();
        for index in &changed.peers {
            let Peer { seal_spi, open_spis, .. } = plan.peers[*index].clone();
            let (new, replay_files) = (Associations::default(), Vec::new());
            let peer = first + index;
            let change = AssociationChange { peer, seal_spi, open_spis, new, replay_files };
            changes.insert(*index, change);
        }
        for association in new.sealing {
            let index = changed.sealing.get(&association.spi().value());
            if let Some(change) = index.and_then(|it| changes.get_mut(it)) {
                change.new.sealing.push(association);
            }
        }
        for association in new.opening {
            let index = changed.opening.get(&association.spi().value());
            if let Some(change) = index.and_then(|it| changes.get_mut(it)) {
                change.replay_files.extend(files.remove(&association.empty_state().fingerprint));
                change.new.opening.push(association);
            }
        }
        changes.into_values().collect()
    }

    /// A plan for each worker without new associations: those that run go on.
    fn on_bases(&self, plan: &Plan) -> Vec<Prepared> {
        let bases = self.bases.iter().cloned().enumerate();
        let prepared = bases.map(|(worker, Base { policy, running, replay_files })| Prepared {
            policy: behind(policy, plan, worker),
            associations: Associations::default(),
            replay_files: replay_files.into_iter().map(NextReplayFile::Running).collect(),
            running,
            kernel: Vec::new(),
            bystanders: None,
        });
        prepared.collect()
    }

    fn hears(&self, group: u32) -> bool {
        self.clients.values().any(|it| it.groups & bit(group) != 0)
    }

    fn spread(&self, notices: &[Notice]) {
        for notice in notices {
            for listener in self.clients.values().filter(|it| it.groups & bit(notice.group) != 0) {
                listener.client.send(&notice.datagram);
            }
        }
    }
}

/// `policy`, and behind it what front ends want, as a worker has it: worker 0 alone has their
/// associations.
fn behind(policy: Policy, plan: &Plan, worker: usize) -> Policy {
    let mut peers = plan.peers.clone();
    if worker > 0 {
        for peer in &mut peers {
            (peer.seal_spi, peer.open_spis) = (None, Vec::new());
        }
    }
    policy.with_front_end(peers, plan.selectors.clone())
}

/// What lies behind the peers of front ends.
fn reaches(plan: &Plan) -> Vec<SteeredPrefix> {
    let selected = plan.selectors.iter();
    let selected =
        selected.filter_map(|(prefix, way)| matches!(way, Route::Peer(_)).then_some(prefix));
    let protected = plan.peers.iter().flat_map(|peer| &peer.protects);
    selected.chain(protected).map(|it| (it.first().to_be_bytes(), it.prefix_len() as u8)).collect()
}

fn bit(group: u32) -> u32 {
    1 << (group - 1)
}

/// What a client says of itself: see `struct greeting` of the preloaded library.
fn greeting(datagram: &[u8]) -> Option<(Asker, u32)> {
    let words: Vec<u32> = datagram
        .chunks_exact(4)
        .map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]))
        .collect();
    let [GREETING, GREETING_VERSION, port, groups, options] = words[..] else { return None };
    let asker = Asker {
        port,
        wants_words: options & OPTION_WORDS != 0,
        caps_acknowledgements: options & OPTION_CAPPED != 0,
    };
    Some((asker, groups))
}

/// What a front end's database asks of its gateway.
struct Gateway<'a> {
    random: &'a mut File,
    store: &'a mut StateStore,
    owner: usize,
}

impl Outside for Gateway<'_> {
    fn random(&mut self) -> u32 {
        let mut bytes = [0; 4];
        let _ = self.random.read_exact(&mut bytes);
        u32::from_ne_bytes(bytes)
    }

    fn admit(&mut self, key: Fingerprint) -> Result<(), Refusal> {
        self.store.admit(key, self.owner).map_err(|error| {
            let errno = match error {
                StateError::Full => Errno::ENOBUFS,
                StateError::Io { .. } => Errno::EIO,
                _ => Errno::EEXIST,
            };
            Refusal::new(errno, error.to_string())
        })
    }
}

/// Associations that the worker does not have yet.
#[derive(Default)]
struct New {
    associations: Associations,
    replay_files: BTreeMap<Fingerprint, ReplayFile>,
    /// Where in the database all of these are.
    places: Vec<usize>,
    /// Those that cannot be.
    refused: BTreeSet<usize>,
    why: Option<Behind>,
}

/// Why something is not in force.
#[derive(Debug, PartialEq, Eq)]
struct Behind {
    why: String,
    /// Another attempt may do.
    may_pass: bool,
}

impl Behind {
    fn of(error: &anyhow::Error) -> Self {
        let is_final = match error.downcast_ref::<StateError>() {
            Some(StateError::Io { .. }) | None => false,
            Some(_) => true,
        };
        Self { why: format!("{error:#}"), may_pass: !is_final }
    }
}

enum Made {
    Sealing(SealingSa),
    Opening(OpeningSa, ReplayFile),
}

impl New {
    fn add(&mut self, (place, state): (usize, &State), made: Result<Made>) {
        self.places.push(place);
        match made.with_context(|| format!("association {:#x}", state.spi())) {
            Ok(Made::Sealing(sealing)) => self.associations.sealing.push(sealing),
            Ok(Made::Opening(opening, file)) => {
                self.replay_files.insert(file.fingerprint, file);
                self.associations.opening.push(opening);
            }
            Err(error) => {
                self.refused.insert(place);
                self.why = Some(Behind::of(&error));
            }
        }
    }

    /// Has their keys and first numbers on the disk; else none of them can be.
    fn reserve(&mut self, store: &mut StateStore) {
        let sealing = &mut self.associations.sealing;
        let wanted: Vec<_> = sealing.iter().map(SealingSa::reservation_needed).collect();
        let on_disk = store.settle().map_err(anyhow::Error::from).and_then(|()| {
            Ok(store.reserver().wait(wanted.iter().flatten().copied().collect())?)
        });
        if let Err(error) = on_disk {
            self.why = Some(Behind::of(&error));
            self.refused.extend(self.places.drain(..));
            (self.associations, self.replay_files) = Default::default();
            return;
        }
        for (association, wanted) in sealing.iter_mut().zip(&wanted) {
            if let Some(granted) = wanted {
                association.extend_reservation(granted);
            }
        }
    }
}

fn terms(state: &State) -> Option<Terms> {
    Some(Terms::of(state.fingerprint()?, state.parameters.as_ref()?))
}

/// Whether the worker has this very association.
fn has(running: &BTreeMap<u32, Terms>, state: &State) -> bool {
    running.get(&state.spi()).copied() == terms(state)
}

/// In the order in which the engine has them.
fn opening_spis(plan: &Plan) -> impl Iterator<Item = u32> {
    plan.peers.iter().flat_map(|peer| peer.open_spis.iter().copied())
}

/// An association that begins where its key ended, or behind what the front end says.
fn sealer(state: &State, store: &mut StateStore) -> Result<Made> {
    let parameters = state.parameters.as_ref().context("it has no key")?;
    let fingerprint = parameters.fingerprint();
    let before = store.lend_sealing(fingerprint)?.map_or(0, |it| it.reserved_until);
    let told = if state.sealed_before > 0 { state.sealed_before.saturating_add(1) } else { 0 };
    let first = SealingState { fingerprint, reserved_until: before.max(told) };
    Ok(Made::Sealing(SealingSa::new(parameters, Some(&first))?))
}

/// The same, with the numbers that it accepted; up to what the front end says, all count so.
fn opener(state: &State, store: &mut StateStore) -> Result<Made> {
    let parameters = state.parameters.as_ref().context("it has no key")?;
    let fingerprint = parameters.fingerprint();
    let (file, before) = store.lend_opening(fingerprint)?;
    let highest = before.as_ref().map_or(0, |it| it.replay.highest);
    let told = (state.opened_before > highest)
        .then(|| OpeningState { fingerprint, replay: ReplayState::up_to(state.opened_before) });
    let opening = OpeningSa::new(parameters, told.as_ref().or(before.as_ref()))?;
    let replay_file =
        ReplayFile { fingerprint, file, state: opening.empty_state(), record: Vec::new() };
    Ok(Made::Opening(opening, replay_file))
}

fn ip(bytes: &[u8; 16]) -> IpAddr {
    IpAddr::from(*bytes).to_canonical()
}
