//! Handshakes, on a thread of their own: public-key work never stands in a packet's way.
//!
//! ```text
//!   worker --datagrams, reports--> [1024] --> keying thread --orders--> [1024] --> worker
//!   supervisor --peers, questions--^          (engine's `Tunnel`)
//! ```
//!
//! Both queues are bounded. A datagram that finds one full is lost and counted, as the network
//! might have lost it; a report waits for the next tick, and associations wait in here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::SaParameters;
use weir_engine::esp::seal::SealingSa;
use weir_engine::pipeline::{Agreed, Engine};
use weir_engine::tunnel::key::{Identity, PublicKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::path_mtu::{PathMtuState, PathMtuStatus, ProbeMessage};
use weir_engine::tunnel::reach::Reach;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Install, KeyingCounters, Now, Report, Tunnel};
use weir_engine::tunnel::{PeerSettings, PeerState, PeerStatus};
use weir_port::Guard;

use super::kernel_esp::KernelEsp;
use super::worker::clock;

/// What waits for the thread, and what waits for the worker, at most.
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
    Report(PublicKey, Report),
    Configure(Peers),
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
    /// Those of them whose ESP the kernel does.
    pub by_kernel: HashSet<PublicKey>,
}

/// What the worker is told.
#[derive(Debug)]
enum Order {
    Send(Path, Vec<u8>),
    Install(Box<Agreed>),
    InstallInKernel(Box<Install>),
    Forget(PublicKey, u32),
    Close(PublicKey),
    Keepalive(PublicKey),
    Probe(PublicKey, ProbeMessage),
    PathMtu(PublicKey, u16),
    Hold(PublicKey, bool),
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
    orders: Receiver<Order>,
    overflowed: Arc<AtomicU64>,
    /// A report that found the queue full.
    held: Option<(PublicKey, Report)>,
    unsent: VecDeque<(Path, Vec<u8>, u32)>,
}

impl Keying {
    /// Starts the thread of pair `name`, without peers, and returns the worker's end.
    ///
    /// # Errors
    /// The kernel gives no thread or no random bytes.
    pub fn start(name: &str, identity: Identity) -> Result<(Self, KeyingEnd)> {
        let (notices, received) = sync_channel(QUEUE_MAX);
        let (sender, orders) = sync_channel(QUEUE_MAX);
        let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
        let entropy = move |bytes: &mut [u8]| {
            // Keys that could be guessed are worse than none: the thread ends, and keys expire.
            random.read_exact(bytes).expect("the kernel gives random bytes");
        };
        let overflowed = Arc::new(AtomicU64::new(0));
        let mut thread = Thread {
            tunnel: Tunnel::new(identity, Limits::default(), Box::new(entropy)),
            names: HashMap::new(),
            by_kernel: HashSet::new(),
            states: HashMap::new(),
            widths: HashMap::new(),
            agreed: HashMap::new(),
            reaches: HashMap::new(),
            orders: sender,
            backlog: VecDeque::new(),
            effects: Vec::new(),
            started: Instant::now(),
            overflowed: Arc::clone(&overflowed),
        };
        let thread = std::thread::Builder::new()
            .name(format!("keying {name}"))
            .spawn(move || thread.run(&received))?;
        let end = KeyingEnd {
            notices: notices.clone(),
            orders,
            overflowed,
            held: None,
            unsent: VecDeque::new(),
        };
        Ok((Self { notices, thread: Some(thread) }, end))
    }

    /// Takes these peers instead of the present ones.
    pub fn configure(&self, peers: Peers) {
        let _ = self.notices.send(Notice::Configure(peers));
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
    /// Carries out what the thread wants; true when the engine's output holds packets to send.
    pub fn obey(
        &mut self,
        engine: &mut Engine,
        mut kernel: Option<(&mut KernelEsp, &mut Guard)>,
    ) -> bool {
        let Ok(first) = self.orders.try_recv() else { return false };
        engine.begin();
        let rest = std::iter::from_fn(|| self.orders.try_recv().ok()).take(ORDERS_A_ROUND - 1);
        for order in std::iter::once(first).chain(rest) {
            match order {
                Order::Send(path, datagram) => {
                    if !engine.send_datagram(&path, &datagram) && self.unsent.len() < UNSENT_MAX {
                        self.unsent.push_back((path, datagram, TRIES));
                    }
                }
                Order::Install(agreed) => drop(engine.install(*agreed)),
                Order::InstallInKernel(install) => {
                    if let Some((kernel, guard)) = &mut kernel {
                        kernel.install(guard, engine, &install);
                    }
                }
                Order::Forget(peer, spi) => {
                    engine.forget(&peer, spi);
                    if let Some((kernel, guard)) = &mut kernel {
                        kernel.forget(guard, engine, &peer, spi);
                    }
                }
                Order::Close(peer) => {
                    engine.close(&peer);
                    if let Some((kernel, guard)) = &mut kernel {
                        kernel.close(guard, engine, &peer);
                    }
                }
                Order::Keepalive(peer) => engine.keepalive(&peer),
                Order::Probe(peer, message) => engine.send_probe(&peer, message),
                Order::PathMtu(peer, bytes) => engine.set_path_mtu(&peer, bytes),
                Order::Hold(peer, is_held) => engine.hold_in_clear(&peer, is_held),
            }
        }
        true
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
    pub fn pass_reports(&mut self, engine: &mut Engine) {
        let first = self.held.take();
        let Self { held, notices, .. } = self;
        let mut pass = |peer: PublicKey, report: Report| {
            *held = match notices.try_send(Notice::Report(peer, report)) {
                Err(TrySendError::Full(Notice::Report(peer, report))) => Some((peer, report)),
                _ => None,
            };
            held.is_none()
        };
        if first.is_some_and(|(peer, report)| !pass(peer, report)) {
            return;
        }
        engine.take_reports(&mut pass);
    }
}

struct Thread {
    tunnel: Tunnel,
    names: HashMap<PublicKey, String>,
    by_kernel: HashSet<PublicKey>,
    /// As they were logged last.
    states: HashMap<PublicKey, PeerState>,
    widths: HashMap<PublicKey, PathMtuStatus>,
    /// By peer and SPI of the opening association.
    agreed: HashMap<(PublicKey, u32), [SaParameters; 2]>,
    reaches: HashMap<PublicKey, Reach>,
    orders: SyncSender<Order>,
    backlog: VecDeque<Order>,
    effects: Vec<Effect>,
    started: Instant,
    overflowed: Arc<AtomicU64>,
}

impl Thread {
    fn run(&mut self, notices: &Receiver<Notice>) {
        let mut logged = Instant::now();
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
            if logged.elapsed() >= PATIENCE {
                logged = Instant::now();
                self.log(now);
            }
        }
    }

    fn now(&self) -> Now {
        let elapsed = self.started.elapsed().as_nanos();
        Now { elapsed_ns: u64::try_from(elapsed).unwrap_or(u64::MAX), unix_ns: clock().0 }
    }

    fn sleep(&self) -> Duration {
        let now = self.now().elapsed_ns;
        let due =
            self.tunnel.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let patience = if self.backlog.is_empty() { PATIENCE } else { Duration::from_millis(1) };
        due.unwrap_or(patience).min(patience)
    }

    fn take(&mut self, notice: Notice) -> bool {
        let now = self.now();
        let Self { tunnel, effects, .. } = self;
        match notice {
            Notice::Datagram(path, datagram) => tunnel.handle(now, &path, &datagram, effects),
            Notice::Report(peer, report) => tunnel.report(now, &peer, &report, effects),
            Notice::Configure(Peers { limits, peers, by_kernel }) => {
                self.by_kernel = by_kernel;
                self.names = peers.iter().map(|(name, it)| (it.public_key, name.clone())).collect();
                self.reaches.retain(|key, _| self.names.contains_key(key));
                let peers = peers.into_iter().map(|(_, settings)| settings).collect();
                tunnel.configure(now, limits, peers, effects);
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
        for effect in self.effects.drain(..) {
            let may_be_lost = self.backlog.len() >= BACKLOG_MAX;
            let order = match effect {
                Effect::Send { .. } | Effect::Keepalive { .. } | Effect::Probe { .. }
                    if may_be_lost =>
                {
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Effect::Send { path, datagram } => Order::Send(path, datagram),
                Effect::Install(install) => {
                    let keys = [install.seal.clone(), install.open.clone()];
                    let place = (install.peer, install.open.spi.value());
                    let order = match self.by_kernel.contains(&install.peer) {
                        true => Order::InstallInKernel(install),
                        false => match build(&install) {
                            Ok(agreed) => Order::Install(Box::new(agreed)),
                            Err(error) => {
                                tracing::error!(%error, "agreed keys cannot be used");
                                continue;
                            }
                        },
                    };
                    self.agreed.insert(place, keys);
                    order
                }
                Effect::Forget { peer, open_spi } => {
                    self.agreed.remove(&(peer, open_spi));
                    Order::Forget(peer, open_spi)
                }
                Effect::Close { peer } => {
                    self.agreed.retain(|(whose, _), _| *whose != peer);
                    Order::Close(peer)
                }
                Effect::Keepalive { peer } => Order::Keepalive(peer),
                Effect::Probe { peer, message } => Order::Probe(peer, message),
                Effect::PathMtu { peer, bytes } => Order::PathMtu(peer, bytes),
            };
            self.backlog.push_back(order);
        }
        while let Some(order) = self.backlog.pop_front() {
            if let Err(TrySendError::Full(order)) = self.orders.try_send(order) {
                self.backlog.push_front(order);
                return;
            }
        }
    }

    /// Says which peers came and went, and why one is refused; has the worker rely on them or not.
    fn log(&mut self, now: Now) {
        for status in self.tunnel.status(now) {
            let reach = self.reaches.entry(status.public_key).or_default();
            if let Some(is_held) = reach.update(now.elapsed_ns, status.state) {
                self.backlog.push_back(Order::Hold(status.public_key, is_held));
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

/// Expands the keys, which costs more than a worker should wait for.
fn build(install: &Install) -> Result<Agreed, weir_engine::esp::sa::SaError> {
    let Install { peer, role, path, seal, open, tags } = install;
    let (sealing, opening) = (SealingSa::new(seal, None)?, OpeningSa::new(open, None)?);
    let (peer, role, path, tags) = (*peer, *role, path.clone(), tags.clone());
    Ok(Agreed { peer, role, path, sealing, opening, tags })
}
