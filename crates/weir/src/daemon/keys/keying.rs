//! Handshakes, on a thread of their own: public-key work never stands in a packet's way.
//!
//! ```text
//!   worker --datagrams, activity--> [1024] --> keying thread --orders--> [1024] --> worker
//!   supervisor --peers, questions--^          (engine's `Tunnel`)
//! ```
//!
//! Of several workers each tells what its peers did, and has a queue of its own (`order_queue`);
//! worker 0 sends what there is to send. All queues are bounded. A datagram that finds one full is
//! lost and counted, as the network might have lost it; peers' activity waits for the next tick,
//! and associations wait in here.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaError, SaParameters};
use weir_engine::esp::seal::SealingSa;
use weir_engine::esp::secret::wipe_stack;
use weir_engine::pipeline::{Agreed, Engine};
use weir_engine::tunnel::key::{Identity, PublicKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::path_mtu::{PathMtuState, PathMtuStatus, ProbeMessage};
use weir_engine::tunnel::reach::Reach;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Install, KeyingCounters, Now, PeerActivity, Tunnel};
use weir_engine::tunnel::{PeerSettings, PeerState, PeerStatus};
use weir_store::clock;

use crate::daemon::keys::order_queue::{OrderQueues, Orders};
use crate::daemon::pair::kernel_esp::{KernelOrder, ToKernel};
use crate::daemon::pair::sharing::Sharing;
use weir_store::entropy;

/// What waits for the thread, at most.
const QUEUE_MAX: usize = 1024;

/// Orders taken by the worker between two batches, at most.
const ORDERS_A_ROUND: usize = 64;

/// What is kept here while the worker's queue is full. Beyond it, datagrams and signs of life are
/// lost; associations never are.
const BACKLOG_MAX: usize = 4096;

/// Notices taken before deadlines are looked at again.
const NOTICES_A_ROUND: usize = 64;

/// The longest sleep.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a status may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Datagrams that wait in the worker until the neighbour has answered, at most, and how often they
/// are tried, ten times a second.
const UNSENT_MAX: usize = 64;
const TRIES: u32 = 10;

/// What the thread is told.
#[derive(Debug)]
enum Notice {
    Datagram(Path, Vec<u8>),
    Activity(PublicKey, PeerActivity),
    Configure(Peers),
    FrontEnds(BTreeSet<u32>),
    Status(Sender<KeyingStatus>),
    Keys(Sender<Vec<AgreedKeys>>),
    Stop,
}

/// The peers of a pair whose keys are agreed.
#[derive(Debug)]
pub struct Peers {
    /// When their keys are renewed.
    pub limits: Limits,
    /// They, and their names in the configuration.
    pub peers: Vec<(String, PeerSettings)>,
    /// Who shares their flows out among several workers.
    pub sharing: Option<Arc<Mutex<Sharing>>>,
    /// Those of them whose ESP the kernel does.
    pub by_kernel: HashSet<PublicKey>,
    /// SPIs by which the configuration's own associations open.
    pub named_spis: BTreeSet<u32>,
}

/// What a worker is told.
#[derive(Debug)]
pub(in crate::daemon) enum Order {
    Send(Path, Vec<u8>),
    Install(Box<Agreed>),
    Confirm(PublicKey, u32),
    Move(PublicKey, Path),
    InstallInKernel(Box<Install>),
    Forget(PublicKey, u32),
    Close(PublicKey),
    Keepalive(PublicKey),
    Probe(PublicKey, ProbeMessage),
    PathMtu(PublicKey, u16),
    Hold(PublicKey, bool),
    /// To nobody: has so many workers share the peer's flows, in its turn.
    Share(PublicKey, usize),
}

/// The keying of a pair at one moment.
#[derive(Clone, Debug, Default)]
pub struct KeyingStatus {
    /// By name.
    pub peers: HashMap<String, PeerStatus>,
    /// What happened to datagrams.
    pub counters: KeyingCounters,
    /// Whether initiations need cookies at present.
    pub is_loaded: bool,
    /// Datagrams lost because a queue was full.
    pub overflowed: u64,
}

/// The associations of one agreement. Kept only as long as the engine may use them, which has the
/// same keys expanded; wiped then.
#[derive(Clone, Debug)]
pub struct AgreedKeys {
    /// The peer's name.
    pub peer: String,
    /// To the peer.
    pub seal: SaParameters,
    /// From the peer.
    pub open: SaParameters,
}

/// The running thread, for the supervisor.
#[derive(Debug)]
pub struct Keying {
    notices: SyncSender<Notice>,
    thread: Option<JoinHandle<()>>,
}

/// The worker's end of both queues.
#[derive(Debug)]
pub struct KeyingEnd {
    notices: SyncSender<Notice>,
    orders: Orders,
    overflowed: Arc<AtomicU64>,
    /// Activity that found the queue full.
    held: Option<(PublicKey, PeerActivity)>,
    unsent: VecDeque<(Path, Vec<u8>, u32)>,
}

impl Keying {
    /// Starts the thread of pair `name`, without peers, and returns the ends of its `workers`.
    ///
    /// # Errors
    /// The kernel gives no thread or no random bytes.
    pub fn start(name: &str, workers: usize, identity: Identity) -> Result<(Self, Vec<KeyingEnd>)> {
        let (notices, received) = sync_channel(QUEUE_MAX);
        let (queues, orders) = OrderQueues::of(workers);
        let mut random = entropy::source()?;
        let entropy = move |bytes: &mut [u8]| {
            // Keys that could be guessed are worse than none: the thread ends, and keys expire.
            random.read_exact(bytes).expect("the kernel gives random bytes");
        };
        let overflowed = Arc::new(AtomicU64::new(0));
        let mut thread = Thread {
            tunnel: Tunnel::new(identity, Limits::default(), Box::new(entropy)),
            named_spis: BTreeSet::new(),
            front_ends_spis: BTreeSet::new(),
            names: HashMap::new(),
            by_kernel: HashSet::new(),
            states: HashMap::new(),
            widths: HashMap::new(),
            agreed: HashMap::new(),
            reaches: HashMap::new(),
            queues,
            sharing: None,
            effects: Vec::new(),
            started: clock::now(),
            overflowed: Arc::clone(&overflowed),
        };
        let thread = std::thread::Builder::new()
            .name(format!("keying {name}"))
            .spawn(move || thread.run(&received))?;
        let end = |orders| KeyingEnd {
            notices: notices.clone(),
            orders,
            overflowed: Arc::clone(&overflowed),
            held: None,
            unsent: VecDeque::new(),
        };
        let ends = orders.into_iter().map(end).collect();
        Ok((Self { notices, thread: Some(thread) }, ends))
    }

    /// Takes these peers instead of the present ones.
    pub fn configure(&self, peers: Peers) {
        let _ = self.notices.send(Notice::Configure(peers));
    }

    /// Leaves these SPIs to the front ends, by which their associations open.
    pub fn leave_to_front_ends(&self, spis: BTreeSet<u32>) {
        let _ = self.notices.send(Notice::FrontEnds(spis));
    }

    /// The keys in use; `None` when the thread does not answer.
    pub fn keys(&self) -> Option<Vec<AgreedKeys>> {
        let (answer, answers) = channel();
        self.notices.send(Notice::Keys(answer)).ok()?;
        answers.recv_timeout(ANSWER_TIMEOUT).ok()
    }

    /// How the peers are; `None` when the thread does not answer.
    pub fn status(&self) -> Option<KeyingStatus> {
        let (answer, answers) = channel();
        self.notices.send(Notice::Status(answer)).ok()?;
        answers.recv_timeout(ANSWER_TIMEOUT).ok()
    }
}

impl Drop for Keying {
    fn drop(&mut self) {
        let _ = self.notices.send(Notice::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl KeyingEnd {
    /// Carries out what the thread wants; true when the engine's output holds packets to send. What
    /// the kernel is to do is done before the next order is looked at.
    pub fn obey(&mut self, engine: &mut Engine, mut kernel: Option<&mut ToKernel>) -> bool {
        let is_busy =
            |kernel: &Option<&mut ToKernel>| kernel.as_ref().is_some_and(|it| it.is_busy());
        if is_busy(&kernel) {
            return false;
        }
        let Some(mut order) = self.orders.next() else { return false };
        engine.begin();
        for obeyed in 1.. {
            self.obey_one(engine, &mut kernel, order);
            let next = || self.orders.next();
            match (obeyed < ORDERS_A_ROUND && !is_busy(&kernel)).then(next).flatten() {
                Some(next) => order = next,
                None => {
                    self.orders.obeyed(obeyed);
                    break;
                }
            }
        }
        true
    }

    fn obey_one(&mut self, engine: &mut Engine, kernel: &mut Option<&mut ToKernel>, order: Order) {
        let mut order_kernel = |engine: &Engine, order| {
            if let Some(kernel) = kernel {
                kernel.order(engine, order);
            }
        };
        match order {
            Order::Send(path, datagram) => {
                if !engine.send_datagram(&path, &datagram) && self.unsent.len() < UNSENT_MAX {
                    self.unsent.push_back((path, datagram, TRIES));
                }
            }
            Order::Install(agreed) => drop(engine.install(*agreed)),
            Order::Confirm(peer, spi) => engine.confirm_with(&peer, spi),
            Order::Move(peer, path) => engine.move_peer(&peer, &path),
            Order::InstallInKernel(install) => order_kernel(engine, KernelOrder::Install(install)),
            Order::Forget(peer, spi) => {
                engine.forget(&peer, spi);
                order_kernel(engine, KernelOrder::Forget(peer, spi));
            }
            Order::Close(peer) => {
                engine.close(&peer);
                order_kernel(engine, KernelOrder::Close(peer));
            }
            Order::Keepalive(peer) => engine.keepalive(&peer),
            Order::Probe(peer, message) => engine.send_probe(&peer, message),
            Order::PathMtu(peer, bytes) => engine.set_path_mtu(&peer, bytes),
            Order::Hold(peer, is_held) => engine.hold_in_clear(&peer, is_held),
            Order::Share(..) => {}
        }
    }

    /// Sends again what had to wait for a neighbour; true as for [`KeyingEnd::obey`].
    pub fn retry(&mut self, engine: &mut Engine) -> bool {
        if self.unsent.is_empty() {
            return false;
        }
        engine.begin();
        for _ in 0..self.unsent.len() {
            let Some((path, datagram, tries)) = self.unsent.pop_front() else { break };
            if !engine.send_datagram(&path, &datagram) && tries > 1 {
                self.unsent.push_back((path, datagram, tries - 1));
            }
        }
        true
    }

    /// Passes datagrams on.
    pub fn pass_datagrams(&self, engine: &mut Engine) {
        for (path, datagram) in engine.take_datagrams() {
            if self.notices.try_send(Notice::Datagram(path, datagram)).is_err() {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Passes on what happened to peers.
    pub fn pass_activity(&mut self, engine: &mut Engine) {
        let first = self.held.take();
        let Self { held, notices, .. } = self;
        let mut pass = |peer: PublicKey, activity: PeerActivity| {
            *held = match notices.try_send(Notice::Activity(peer, activity)) {
                Err(TrySendError::Full(Notice::Activity(peer, activity))) => Some((peer, activity)),
                _ => None,
            };
            held.is_none()
        };
        if first.is_some_and(|(peer, activity)| !pass(peer, activity)) {
            return;
        }
        engine.take_activity(&mut pass);
    }
}

struct Thread {
    tunnel: Tunnel,
    /// Of the configuration, and of front ends.
    named_spis: BTreeSet<u32>,
    front_ends_spis: BTreeSet<u32>,
    names: HashMap<PublicKey, String>,
    by_kernel: HashSet<PublicKey>,
    /// As they were logged last.
    states: HashMap<PublicKey, PeerState>,
    widths: HashMap<PublicKey, PathMtuStatus>,
    /// By peer and SPI of the opening association.
    agreed: HashMap<(PublicKey, u32), [SaParameters; 2]>,
    reaches: HashMap<PublicKey, Reach>,
    queues: OrderQueues,
    sharing: Option<Arc<Mutex<Sharing>>>,
    effects: Vec<Effect>,
    started: Instant,
    overflowed: Arc<AtomicU64>,
}

impl Thread {
    fn run(&mut self, notices: &Receiver<Notice>) {
        let mut logged = clock::now();
        loop {
            match notices.recv_timeout(self.sleep()) {
                Ok(notice) => {
                    let rest = std::iter::from_fn(|| notices.try_recv().ok());
                    for notice in std::iter::once(notice).chain(rest).take(NOTICES_A_ROUND) {
                        if !self.take(notice) {
                            return;
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.now();
            self.tunnel.tick(now, &mut self.effects);
            self.carry_out();
            wipe_stack();
            if logged.elapsed() >= PATIENCE {
                logged = clock::now();
                self.log(now);
            }
        }
    }

    fn now(&self) -> Now {
        let elapsed = self.started.elapsed().as_nanos();
        Now { elapsed_ns: u64::try_from(elapsed).unwrap_or(u64::MAX), unix_ns: clock::time().0 }
    }

    fn sleep(&self) -> Duration {
        let now = self.now().elapsed_ns;
        let due =
            self.tunnel.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let patience = if self.queues.is_empty() { PATIENCE } else { Duration::from_millis(1) };
        due.unwrap_or(patience).min(patience)
    }

    fn take(&mut self, notice: Notice) -> bool {
        let now = self.now();
        let Self { tunnel, effects, .. } = self;
        match notice {
            Notice::Datagram(path, datagram) => tunnel.handle(now, &path, &datagram, effects),
            Notice::Activity(peer, activity) => {
                tunnel.note_activity(now, &peer, &activity, effects);
                if let (Some(path), 2..) = (activity.moved_to, self.queues.count()) {
                    self.all(|| Order::Move(peer, path.clone()));
                }
            }
            Notice::Configure(Peers { limits, peers, sharing, by_kernel, named_spis }) => {
                self.named_spis = named_spis;
                tunnel.avoid(now, self.named_spis.union(&self.front_ends_spis).copied().collect());
                self.sharing = sharing;
                self.by_kernel = by_kernel;
                self.names = peers.iter().map(|(name, it)| (it.public_key, name.clone())).collect();
                self.reaches.retain(|key, _| self.names.contains_key(key));
                let peers = peers.into_iter().map(|(_, settings)| settings).collect();
                tunnel.configure(now, limits, peers, effects);
            }
            Notice::FrontEnds(spis) => {
                self.front_ends_spis = spis;
                tunnel.avoid(now, self.named_spis.union(&self.front_ends_spis).copied().collect());
            }
            Notice::Keys(answer) => drop(answer.send(self.agreed_keys())),
            Notice::Status(answer) => drop(answer.send(self.status(now))),
            Notice::Stop => return false,
        }
        self.carry_out();
        true
    }

    fn agreed_keys(&self) -> Vec<AgreedKeys> {
        let named = |((key, _), [seal, open]): (&(PublicKey, u32), &[SaParameters; 2])| {
            let peer = self.names.get(key)?.clone();
            Some(AgreedKeys { peer, seal: seal.clone(), open: open.clone() })
        };
        self.agreed.iter().filter_map(named).collect()
    }

    fn status(&self, now: Now) -> KeyingStatus {
        let named = |peer: PeerStatus| Some((self.names.get(&peer.public_key)?.clone(), peer));
        KeyingStatus {
            peers: self.tunnel.status(now).filter_map(named).collect(),
            counters: self.tunnel.counters(),
            is_loaded: self.tunnel.is_loaded(now),
            overflowed: self.overflowed.load(Ordering::Relaxed),
        }
    }

    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            let may_be_lost = self.queues.waiting() >= BACKLOG_MAX;
            match effect {
                Effect::Send { .. } | Effect::Keepalive { .. } | Effect::Probe { .. }
                    if may_be_lost =>
                {
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                }
                Effect::Send { path, datagram } => self.queues.tell(0, Order::Send(path, datagram)),
                Effect::Install(install) => self.install(*install),
                Effect::InUse { peer, open_spi, workers } => {
                    self.put_in_use(peer, open_spi, workers);
                }
                Effect::Forget { peer, open_spi } => {
                    for (worker, number) in (0..self.queues.count()).zip(0..) {
                        self.agreed.remove(&(peer, open_spi | number));
                        self.queues.tell(worker, Order::Forget(peer, open_spi | number));
                    }
                }
                Effect::Close { peer } => {
                    self.agreed.retain(|(whose, _), _| *whose != peer);
                    self.all(|| Order::Close(peer));
                }
                Effect::Keepalive { peer } => self.queues.tell(0, Order::Keepalive(peer)),
                Effect::Probe { peer, message } => {
                    self.queues.tell(0, Order::Probe(peer, message));
                }
                Effect::PathMtu { peer, bytes } => self.all(|| Order::PathMtu(peer, bytes)),
            }
        }
        let Self { queues, sharing, names, .. } = self;
        queues.pass(|order| match order {
            Order::Share(peer, workers) => {
                share(sharing.as_deref(), names.get(&peer), |sharing, name| {
                    sharing.agree(name, workers)
                });
                None
            }
            order => Some(order),
        });
    }

    /// Tells every worker.
    fn all(&mut self, order: impl Fn() -> Order) {
        for worker in 0..self.queues.count() {
            self.queues.tell(worker, order());
        }
    }

    /// Has every worker put its associations in place, worker 0 when all others have; or the one
    /// worker that there is then, the kernel.
    fn install(&mut self, install: Install) {
        if self.by_kernel.contains(&install.peer) {
            let keys = [install.seal.clone(), install.open.clone()];
            self.agreed.insert((install.peer, install.open.spi.value()), keys);
            self.queues.tell(0, Order::InstallInKernel(Box::new(install)));
            return;
        }
        let Install { peer, role, path, seal, open, more, tags } = install;
        let all = std::iter::once([seal, open]).chain(more);
        let built = all.map(|[seal, open]| {
            let (sealing, opening) = (SealingSa::new(&seal, None)?, OpeningSa::new(&open, None)?);
            Ok(((open.spi.value(), [seal, open]), sealing, opening))
        });
        let built = match built.collect::<Result<Vec<_>, SaError>>() {
            Ok(built) => built,
            Err(error) => {
                tracing::error!(%error, "agreed keys cannot be used");
                return;
            }
        };
        for (worker, ((spi, keys), sealing, opening)) in built.into_iter().enumerate().rev() {
            self.agreed.insert((peer, spi), keys);
            let (path, tags) = (path.clone(), tags.clone());
            let agreed = Agreed { peer, role, path, sealing, opening, tags };
            match worker {
                0 => self.queues.tell_first_when_all_obeyed(Order::Install(Box::new(agreed))),
                worker if worker < self.queues.count() => {
                    self.queues.tell(worker, Order::Install(Box::new(agreed)));
                }
                _ => {}
            }
        }
    }

    /// Has `workers` share what goes to `peer`: no more than that at once, and all of them when
    /// they seal.
    fn put_in_use(&mut self, peer: PublicKey, open_spi: u32, workers: u8) {
        share(self.sharing.as_deref(), self.names.get(&peer), |sharing, name| {
            sharing.lower(name, workers.into())
        });
        for (worker, number) in (1..self.queues.count()).zip(1..) {
            self.queues.tell(
                worker,
                match number < u32::from(workers) {
                    true => Order::Confirm(peer, open_spi | number),
                    false => Order::Close(peer),
                },
            );
        }
        self.queues.tell_first_when_all_obeyed(Order::Share(peer, workers.into()));
    }

    /// Says which peers came and went, and why one is refused; has the worker rely on them or not.
    fn log(&mut self, now: Now) {
        let mut held = Vec::new();
        for status in self.tunnel.status(now) {
            let reach = self.reaches.entry(status.public_key).or_default();
            if let Some(is_held) = reach.update(now.elapsed_ns, status.state) {
                held.push((status.public_key, is_held));
            }
            let Some(name) = self.names.get(&status.public_key) else { continue };
            let before = self.widths.insert(status.public_key, status.path_mtu);
            log_width(name, status.path_mtu, before.unwrap_or_default());
            let before = self.states.insert(status.public_key, status.state);
            if before == Some(status.state) {
                continue;
            }
            match (status.state, status.mismatch) {
                (PeerState::Up, _) => tracing::info!(peer = name, "keys are agreed"),
                (PeerState::Dead, Some(why)) => {
                    tracing::warn!(peer = name, %why, "no keys can be agreed");
                }
                (PeerState::Dead, None) => {
                    tracing::warn!(peer = name, "does not answer; initiations go on");
                }
                (PeerState::Idle | PeerState::Connecting, _) => {}
            }
        }
        for (peer, is_held) in held {
            self.all(|| Order::Hold(peer, is_held));
        }
    }
}

/// Says what the path to a peer was found to carry, and when it carries less than before.
fn log_width(peer: &str, now: PathMtuStatus, before: PathMtuStatus) {
    if now == before {
        return;
    }
    let bytes = now.in_force_bytes;
    if now.black_holes > before.black_holes {
        tracing::warn!(peer, bytes, "its path swallows packets that it carried; searching anew");
    } else if now.state == PathMtuState::Found {
        tracing::info!(peer, bytes, "path MTU");
    } else if now.state == PathMtuState::Unanswered {
        tracing::warn!(peer, bytes, "answers no probe of its path's MTU; the wire port's holds");
    }
}

/// Tells the steering of a pair with several workers of a peer.
fn share(
    sharing: Option<&Mutex<Sharing>>,
    peer: Option<&String>,
    tell: impl FnOnce(&mut Sharing, &str) -> Result<()>,
) {
    let (Some(sharing), Some(peer)) = (sharing, peer) else { return };
    let mut sharing = sharing.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = tell(&mut sharing, peer) {
        tracing::error!(peer, "its frames are not steered as agreed: {error:#}");
    }
}
