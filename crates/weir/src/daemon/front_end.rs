//! Front ends of a pair: `ip xfrm` and IKE daemons under `weir xfrm` speak NETLINK_XFRM to a Unix
//! socket here, and their associations and policies reach the pair's worker as a policy does,
//! behind what the configuration says.
//!
//! ```text
//!   accept thread --one thread a client--> supervisor: FrontEnd::handle --offer, commit--> worker
//!                                          answers, notices --> clients
//!                                          FrontEnd::tick <---- usage, wanted ------------ worker
//! ```
//!
//! An acknowledgement is sent when the worker has what it acknowledges. Nothing is kept on disk:
//! associations end with this process, as a kernel's do.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use weir_engine::esp::open::{OpeningSa, OpeningState};
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::{Fingerprint, SaParameters};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::pipeline::Associations;
use weir_engine::policy::Policy;
use weir_xfrm::database::{Answer, Asker, Notice, Xfrm};
use weir_xfrm::plan::{Place, Plan};
use weir_xfrm::state::State;

use super::front_end_socket::{Client, ClientEvent, FrontEndSocket};
use super::prepare::{NextKept, Prepared, Running};
use super::worker::WorkerHandle;
use crate::config::settings::Pair;

/// The first word of a greeting; netlink begins with a length, which is never 0.
const GREETING: u32 = 0;
const GREETING_VERSION: u32 = 1;
const OPTION_WORDS: u32 = 1;
const OPTION_CAPPED: u32 = 2;

/// The databases of a pair's front ends, and what of them runs.
#[derive(Debug)]
pub struct FrontEnd {
    pair: String,
    xfrm: Xfrm,
    plan: Plan,
    base: Base,
    sealing: BTreeMap<u32, Fingerprint>,
    opening: BTreeMap<u32, Fingerprint>,
    clients: BTreeMap<u64, Listener>,
    random: File,
    _socket: FrontEndSocket,
}

/// What the configuration says, without front ends.
#[derive(Clone, Debug)]
pub struct Base {
    policy: Policy,
    running: Vec<Running>,
    kept: Vec<Fingerprint>,
}

impl Base {
    /// The configured part of a plan.
    pub fn of(prepared: &Prepared) -> Self {
        let kept = prepared.kept.iter().filter_map(|next| match next {
            NextKept::Running(fingerprint) => Some(*fingerprint),
            NextKept::New(kept) => Some(kept.fingerprint),
            NextKept::Nowhere => None,
        });
        Self {
            policy: prepared.policy.clone(),
            running: prepared.running.clone(),
            kept: kept.collect(),
        }
    }

    fn place(&self) -> Place {
        let own = self.policy.own.iter().flat_map(|own| &own.addresses);
        let peers = self.policy.peers.iter();
        let spis = peers.flat_map(|peer| peer.seal_spi.iter().chain(&peer.open_spis));
        Place {
            own: own.map(|(address, _)| *address).collect(),
            taken_spis: spis.copied().collect(),
        }
    }
}

#[derive(Debug)]
struct Listener {
    client: Arc<Client>,
    asker: Asker,
    groups: u32,
}

impl FrontEnd {
    /// Opens the socket of `pair` at `path`; its clients' words arrive by `events`, which returns
    /// false when the daemon has ended.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(
        pair: &Pair,
        path: PathBuf,
        base: Base,
        events: impl Fn(ClientEvent) -> bool + Clone + Send + 'static,
    ) -> Result<Self> {
        let socket = FrontEndSocket::open(&path, events)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let random = File::open("/dev/urandom").context("cannot read /dev/urandom")?;
        Ok(Self {
            pair: pair.name.clone(),
            xfrm: Xfrm::new(base.place()),
            plan: Plan::default(),
            base,
            sealing: BTreeMap::new(),
            opening: BTreeMap::new(),
            clients: BTreeMap::new(),
            random,
            _socket: socket,
        })
    }

    /// Whether there is anything to look after.
    pub fn is_active(&self) -> bool {
        !self.xfrm.states().is_empty() || !self.xfrm.policies().is_empty()
    }

    /// Takes in what a client did.
    pub fn handle(&mut self, event: ClientEvent, worker: &mut WorkerHandle) {
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
                let (asker, client) = (listener.asker, listener.client.clone());
                let Self { xfrm, random, .. } = self;
                let mut bits = || {
                    let mut bytes = [0; 4];
                    let _ = random.read_exact(&mut bytes);
                    u32::from_ne_bytes(bytes)
                };
                let answer = xfrm.handle(seconds(), asker, &datagram, &mut bits);
                if answer.changed {
                    self.apply(worker);
                }
                for datagram in &answer.datagrams {
                    client.send(datagram);
                }
                self.spread(&answer.notices);
            }
        }
    }

    /// Looks after limits, wanted associations and moved peers. Call it ten times a second.
    pub fn tick(&mut self, worker: &mut WorkerHandle) {
        let usage = match worker.usage() {
            Ok(usage) => usage,
            Err(error) => {
                tracing::warn!(pair = self.pair, "front end: {error:#}");
                return;
            }
        };
        let now = seconds();
        let Answer { notices, changed, .. } = self.xfrm.tick(now, &usage.associations);
        self.spread(&notices);
        for (peer, [source, destination]) in usage.wanted {
            let Some(index) = peer.checked_sub(self.base.policy.peers.len()) else { continue };
            let Some(Some(policy)) = self.plan.acquire_for.get(index) else { continue };
            let (from, to) = (ip(&source), ip(&destination));
            if self.hears(weir_xfrm::uapi::group::ACQUIRE) {
                let notice = self.xfrm.acquire(now, *policy, from, to);
                self.spread(notice.as_slice());
            }
        }
        if changed {
            self.apply(worker);
        }
    }

    /// Puts what front ends have behind a configuration that is about to be in force.
    pub fn extend(&self, prepared: &mut Prepared) {
        let plan = &self.plan;
        let policy = prepared.policy.clone();
        prepared.policy = policy.with_front_end(plan.peers.clone(), plan.selectors.clone());
        prepared.kept.extend(plan.opening.iter().map(|_| NextKept::Nowhere));
    }

    /// A new configuration is in force.
    pub fn set_base(&mut self, base: Base) {
        self.xfrm.set_place(base.place());
        self.base = base;
    }

    /// Has the worker do what the databases say.
    fn apply(&mut self, worker: &mut WorkerHandle) {
        let plan = self.xfrm.plan();
        let states = self.xfrm.states();
        let running = |places: &[usize]| -> BTreeMap<u32, Fingerprint> {
            let of = |place: &usize| Some((states[*place].spi(), states[*place].fingerprint()?));
            places.iter().filter_map(of).collect()
        };
        let (sealing, opening) = (running(&plan.sealing), running(&plan.opening));
        let is_new = |state: &State, there: &BTreeMap<u32, Fingerprint>| {
            there.get(&state.spi()).copied() != state.fingerprint()
        };
        let mut associations = Associations::default();
        for state in plan.sealing.iter().map(|place| &states[*place]) {
            if is_new(state, &self.sealing) {
                warn_of_shared_key(states, state, &self.pair);
                associations.sealing.extend(sealer(state));
            }
        }
        for state in plan.opening.iter().map(|place| &states[*place]) {
            if is_new(state, &self.opening) {
                associations.opening.extend(opener(state));
            }
        }
        let base = self.base.clone();
        let mut prepared = Prepared {
            policy: base.policy,
            associations,
            kept: base.kept.into_iter().map(NextKept::Running).collect(),
            running: base.running,
            kernel: Vec::new(),
        };
        self.plan = plan;
        self.extend(&mut prepared);
        match worker.offer(prepared) {
            Ok(()) => {
                worker.commit();
                (self.sealing, self.opening) = (sealing, opening);
            }
            Err(error) => {
                tracing::error!(
                    pair = self.pair,
                    "front end: its change is not in force: {error:#}"
                );
            }
        }
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

/// An association that begins after what its key is known to have sealed. Its numbers need no disk:
/// they last as long as this process.
fn sealer(state: &State) -> Option<SealingSa> {
    let parameters = state.parameters.as_ref()?;
    let fingerprint = parameters.fingerprint();
    let first = (state.sealed_before > 0).then(|| SealingState {
        fingerprint,
        reserved_until: state.sealed_before.saturating_add(1),
    });
    let mut association = SealingSa::new(parameters, first.as_ref()).ok()?;
    association.extend_reservation(&SealingState { fingerprint, reserved_until: u64::MAX });
    Some(association)
}

fn opener(state: &State) -> Option<OpeningSa> {
    let parameters = state.parameters.as_ref()?;
    let kept = (state.opened_before > 0).then(|| accepted_before(parameters, state.opened_before));
    OpeningSa::new(parameters, kept.as_ref()).ok()
}

/// All numbers up to `highest` count as accepted.
fn accepted_before(parameters: &SaParameters, highest: u64) -> OpeningState {
    let window = parameters.replay_window;
    let accepted = vec![u64::MAX; window as usize / 64];
    let replay = ReplayState { highest, window, accepted };
    OpeningState { fingerprint: parameters.fingerprint(), replay }
}

/// The kernel takes it without a word; both ends would then use the same nonces.
fn warn_of_shared_key(states: &[State], state: &State, pair: &str) {
    let others = states.iter().filter(|it| it.spi() != state.spi());
    if let Some(other) = others.into_iter().find(|it| it.fingerprint() == state.fingerprint()) {
        tracing::warn!(
            pair,
            "associations {:#x} and {:#x} have one key: if both ends seal with it, nonces repeat \
             and AES-GCM is broken; give each direction a key of its own",
            state.spi(),
            other.spi(),
        );
    }
}

fn ip(bytes: &[u8; 16]) -> IpAddr {
    IpAddr::from(*bytes).to_canonical()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
