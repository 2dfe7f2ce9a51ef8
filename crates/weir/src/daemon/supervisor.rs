//! The life of a gateway: start in an order in which no plaintext can pass, run, reload as a whole
//! or not at all, stop.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use weir_store::sink::{Exporter, Interfaces};

use super::bystanders::Bystanders;
use super::control::{ControlSocket, Question};
use super::evidence::{self, Holding};
use super::front_end::{Base, FrontEnd};
use super::front_end_socket::ClientEvent;
use super::keying::{Keying, KeyingEnd, Peers};
use super::lock::Locks;
use super::mirror::Mirror;
use super::notify::{self, Watchdog};
use super::plan::{self, PairPlan};
use super::preflight::{self, Administration};
use super::prepare::{self, Prepared};
use super::show;
use super::state::{LostState, StateStore};
use super::worker::{self, NextMirror, WorkerCommand, WorkerHandle, WorkerSetup};
use crate::api::dto::{CutRequest, PairSnapshot, Request, Response, Snapshot};
use crate::config::policy::keyed_peers;
use crate::config::settings::{self, OnFailure, Pair};
use crate::config::{self, KeyAccess, Keys, Loaded, Problems, Settings};
use crate::machine::Machine;

/// How often the workers are looked at.
const TICK: Duration = Duration::from_millis(500);

/// The same while front ends have something to look after.
const FRONT_END_TICK: Duration = Duration::from_millis(100);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub file: PathBuf,
    /// Whether administrative ports may be taken.
    pub administration: Administration,
    /// What lost state does.
    pub lost_state: LostState,
}

/// Why a gateway did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration, or what it says about this machine, is wrong.
    #[error("{0}")]
    Configuration(Problems),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

enum Event {
    Signal(i32),
    Question(Question),
    /// Of the front ends of the pair of this index.
    FrontEnd(usize, ClientEvent),
}

/// Runs a gateway until a signal ends it.
///
/// # Errors
/// [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let (settings, keys) = accept(&options.file, options.administration)?;
    let mut gateway = Gateway::start(options.clone(), settings, &keys)?;
    drop(keys);
    let result = gateway.serve();
    notify::stopping();
    gateway.stop()?;
    Ok(result?)
}

/// A configuration that this machine can run, with its keys. Warnings go to the log.
fn accept(file: &Path, administration: Administration) -> Result<(Settings, Keys), Failure> {
    let Loaded { settings, keys, mut problems } =
        config::load(file, KeyAccess::Needed).map_err(Failure::Configuration)?;
    let machine = Machine::read().context("cannot read the machine's interfaces")?;
    preflight::check(&settings, &machine, administration, &mut problems);
    if problems.refused() {
        return Err(Failure::Configuration(problems));
    }
    for warning in &problems.problems {
        tracing::warn!(remedy = %warning.remedy, "{}", warning.what);
    }
    let keys = keys.context("the keys were not read")?;
    Ok((settings, keys))
}

struct Gateway {
    options: Options,
    settings: Settings,
    epoch: u32,
    reloads_refused: u64,
    started: Instant,
    watchdog: Watchdog,
    events: Receiver<Event>,
    signals: Handle,
    // Dropped in this order: nobody asks, nobody works, all is on the disk, the next may start.
    control: Option<ControlSocket>,
    /// Beside `workers`.
    front_ends: Vec<Option<FrontEnd>>,
    front_ends_ticked: Instant,
    workers: Vec<WorkerHandle>,
    /// Beside the workers; a pair without `[keying]` has none.
    keying: Vec<Option<Keying>>,
    exporter: Exporter,
    store: StateStore,
    cuts: u64,
    _locks: Locks,
}

impl Gateway {
    fn start(options: Options, settings: Settings, keys: &Keys) -> Result<Self> {
        let run_dir = &settings.gateway.run_dir;
        std::fs::create_dir_all(run_dir)
            .with_context(|| format!("cannot make {}; are you root?", run_dir.display()))?;
        let locks = Locks::take(run_dir, &lock_names(&settings))?;
        let mut store = StateStore::open(&settings.gateway.state_dir, options.lost_state)?;
        let machine = Machine::read()?;
        let epoch = 1;
        let plans = plan::plans(&settings, keys, &machine, &mut store, epoch)?;
        evidence::clean(run_dir, &settings.gateway.name);
        let exporter = Exporter::start(&settings.collectors, worker::clock())
            .context("cannot export flow records")?;

        let (sender, events) = channel();
        let signals = watch_signals(sender.clone())?;
        let (keying, mut ends) = start_keying(&settings, keys)?;
        let mut bases = Vec::new();
        let workers = settings
            .pairs
            .iter()
            .zip(plans)
            .enumerate()
            .map(|(place, (pair, plan))| {
                let context = || format!("pair {}", pair.name);
                let (limits, reserver) = (settings.limits, store.reserver());
                let plan = prepare::prepare(plan, &[], &reserver).with_context(context)?;
                bases.push(Base::of(&plan));
                let index = |name| machine.link(name).map_or(0, |link| link.index);
                let (host, wire) = (index(&pair.host), index(&pair.wire));
                let records = exporter.sender(Interfaces { host, wire });
                let (pair, on_failure) = (pair.clone(), settings.gateway.on_failure);
                let bystanders = bystanders_of(&pair.name, &settings)?;
                let setup = WorkerSetup {
                    pair,
                    on_failure,
                    limits,
                    bystanders,
                    plan,
                    reserver,
                    records,
                    keying: ends[place].take(),
                };
                WorkerHandle::start(setup).with_context(context)
            })
            .collect::<Result<_>>()?;
        configure_keying(&settings, keys, &keying);
        let front_ends = open_front_ends(&settings, bases, &sender)?;
        let control = open_control(&settings, sender)?;
        let started = Instant::now();
        announce(&settings);
        Ok(Self {
            watchdog: Watchdog::from_environment(started),
            options,
            settings,
            epoch,
            reloads_refused: 0,
            started,
            events,
            signals,
            control: Some(control),
            front_ends,
            front_ends_ticked: started,
            workers,
            keying,
            exporter,
            store,
            cuts: 0,
            _locks: locks,
        })
    }

    /// Waits for signals, questions and the workers' ends.
    fn serve(&mut self) -> Result<()> {
        loop {
            let active = self.front_ends.iter().flatten().any(FrontEnd::is_active);
            match self.events.recv_timeout(if active { FRONT_END_TICK } else { TICK }) {
                Ok(Event::Signal(SIGHUP)) => self.reload(),
                Ok(Event::Signal(signal)) => {
                    tracing::info!(signal, "stopping; nothing passes from now on");
                    return Ok(());
                }
                Ok(Event::Question(question)) => self.answer(question),
                Ok(Event::FrontEnd(pair, event)) => {
                    if let Some(front_end) = &mut self.front_ends[pair] {
                        front_end.handle(event, &mut self.workers[pair]);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("signals are no longer watched"),
            }
            if let Some(ended) = self.workers.iter().position(WorkerHandle::is_finished) {
                let worker = self.workers.remove(ended);
                let name = worker.name.clone();
                worker.join().with_context(|| format!("pair {name} lost its ports"))?;
                bail!("the worker of pair {name} ended by itself");
            }
            let now = Instant::now();
            if active && now.duration_since(self.front_ends_ticked) >= FRONT_END_TICK {
                self.front_ends_ticked = now;
                for (front_end, worker) in self.front_ends.iter_mut().zip(&mut self.workers) {
                    front_end.iter_mut().for_each(|it| it.tick(worker));
                }
            }
            if self.watchdog.is_due(now) && self.snapshot().is_ok() {
                self.watchdog.alive(now);
            }
        }
    }

    fn answer(&mut self, question: Question) {
        let Question { request, answer } = question;
        let result = match request {
            Request::Status => self.snapshot().map(|it| Response::Status(Box::new(it))),
            Request::EvidenceCut(request) => match self.cut_evidence(request, answer.clone()) {
                // The answer comes from a thread of its own.
                Ok(()) => return,
                Err(error) => Err(error),
            },
        };
        let _ = answer.send(result.unwrap_or_else(|it| Response::Error(format!("{it:#}"))));
    }

    /// Has the evidence written and `answer` told.
    fn cut_evidence(&mut self, request: CutRequest, answer: Sender<Response>) -> Result<()> {
        let wanted = |name: &str| request.pair.as_ref().is_none_or(|pair| pair == name);
        let mut holdings = Vec::new();
        for (worker, pair) in self.workers.iter().zip(&self.settings.pairs) {
            if !wanted(&pair.name) {
                continue;
            }
            if let Some(packets) = worker.evidence()? {
                let (host, wire) = (pair.host.clone(), pair.wire.clone());
                holdings.push(Holding { host, wire, packets });
            }
        }
        if holdings.is_empty() {
            bail!(
                "no packets are kept: add a table [evidence] to the configuration, or name a pair"
            );
        }
        self.cuts += 1;
        let gateway = &self.settings.gateway;
        let file = format!("{}.evidence-{}-{}.pcapng", gateway.name, std::process::id(), self.cuts);
        let path = gateway.run_dir.join(file);
        let now = worker::clock();
        std::thread::Builder::new().name("evidence".into()).spawn(move || {
            let report = evidence::cut(path, &holdings, &request, now);
            let response = match report {
                Ok(report) => Response::Evidence(report),
                Err(error) => Response::Error(format!("{error:#}")),
            };
            let _ = answer.send(response);
        })?;
        Ok(())
    }

    /// Takes the configuration in as a whole, or says why not and goes on with the one at hand.
    fn reload(&mut self) {
        notify::reloading();
        match self.try_reload() {
            Ok(()) => tracing::info!(epoch = self.epoch, "configuration accepted"),
            Err(failure) => {
                self.reloads_refused += 1;
                tracing::error!(
                    "configuration refused, the one before stays in force:\n{failure:#}"
                );
            }
        }
        notify::ready(&format!("configuration {}", self.epoch));
    }

    fn try_reload(&mut self) -> Result<(), Failure> {
        let (settings, keys) = accept(&self.options.file, self.options.administration)?;
        if let Some(what) = needs_restart(&self.settings, &settings) {
            return Err(anyhow::anyhow!("{what} changed: that needs a restart").into());
        }
        let mut prepared = self.prepare(&settings, &keys)?;
        let bases: Vec<Base> = prepared.iter().map(Base::of).collect();
        for (front_end, prepared) in self.front_ends.iter().zip(&mut prepared) {
            front_end.iter().for_each(|it| it.extend(prepared));
        }
        let mirrors = self.next_mirrors(&settings)?;
        for (worker, plan) in self.workers.iter_mut().zip(prepared) {
            let Err(error) = worker.offer(plan) else { continue };
            let error = error.context(format!("pair {}", worker.name));
            for worker in &self.workers {
                worker.tell(WorkerCommand::Discard);
            }
            return Err(error.into());
        }
        for worker in &mut self.workers {
            // False: it has ended, and its end is the gateway's. Half a configuration never stays.
            worker.commit();
        }
        configure_keying(&settings, &keys, &self.keying);
        for (front_end, base) in self.front_ends.iter_mut().zip(bases) {
            front_end.iter_mut().for_each(|it| it.set_base(base.clone()));
        }
        for (worker, mirrors) in self.workers.iter().zip(mirrors) {
            worker.tell(WorkerCommand::Mirrors(mirrors));
        }
        self.settings = settings;
        self.epoch += 1;
        Ok(())
    }

    /// All pairs' plans, with everything that can be refused behind them.
    fn prepare(&mut self, settings: &Settings, keys: &Keys) -> Result<Vec<Prepared>> {
        let machine = Machine::read().context("cannot read the machine's interfaces")?;
        let plans = plan::plans(settings, keys, &machine, &mut self.store, self.epoch + 1)?;
        let running: Vec<_> = self.workers.iter().map(WorkerHandle::running).collect();
        prepare::refuse_moved_keys(&plans, &running)?;
        let reserver = self.store.reserver();
        let prepare = |(worker, plan): (&WorkerHandle, PairPlan)| {
            prepare::prepare(plan, worker.running(), &reserver)
                .with_context(|| format!("pair {}", worker.name))
        };
        self.workers.iter().zip(plans).map(prepare).collect()
    }

    /// Every pair's mirrors: those that stay, and new ones, open.
    fn next_mirrors(&self, settings: &Settings) -> Result<Vec<Vec<NextMirror>>> {
        let next = |mirror: &settings::Mirror| {
            if self.settings.mirrors.contains(mirror) {
                return Ok(NextMirror::Kept(mirror.clone()));
            }
            Ok(NextMirror::New(Box::new(Mirror::open(mirror)?)))
        };
        let pairs = settings.pairs.iter();
        pairs.map(|pair| mirrors_of(&pair.name, settings).map(next).collect()).collect()
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let mut pairs: Vec<PairSnapshot> =
            self.workers.iter().map(WorkerHandle::snapshot).collect::<Result<_>>()?;
        for (pair, keying) in pairs.iter_mut().zip(&self.keying) {
            if let Some(status) = keying.as_ref().and_then(Keying::status) {
                show::add_keying(pair, &status);
            }
        }
        let gateway = &self.settings.gateway;
        let adds_up = pairs
            .iter()
            .flat_map(|pair| [&pair.host, &pair.wire])
            .all(|side| side.received == side.verdicts())
            && pairs.iter().all(|pair| pair.wire_proof.adds_up);
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: gateway.name.clone(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            on_failure: match gateway.on_failure {
                OnFailure::Closed => "closed".to_owned(),
                OnFailure::Open => "open".to_owned(),
            },
            reloads_accepted: u64::from(self.epoch),
            reloads_refused: self.reloads_refused,
            adds_up,
            pairs,
            exports: self.exporter.counters().into_iter().map(show::export).collect(),
        })
    }

    fn stop(mut self) -> Result<()> {
        self.signals.close();
        // Questions that arrive from here on find nobody.
        drop(std::mem::replace(&mut self.events, channel().1));
        drop(self.control.take());
        self.front_ends.clear();
        for worker in &self.workers {
            worker.tell(WorkerCommand::Stop);
        }
        for worker in self.workers.drain(..) {
            worker.join()?;
        }
        for export in self.exporter.stop() {
            tracing::info!(?export, "export ended");
        }
        Ok(())
    }
}

/// The sockets of the pairs that have front ends, beside the pairs.
fn open_front_ends(
    settings: &Settings,
    bases: Vec<Base>,
    events: &Sender<Event>,
) -> Result<Vec<Option<FrontEnd>>> {
    let pairs = settings.pairs.iter().zip(bases).enumerate();
    let open = |(index, (pair, base)): (usize, (&Pair, Base))| {
        let path = settings.gateway.front_end_socket(&pair.name);
        let events = events.clone();
        let tell = move |event| events.send(Event::FrontEnd(index, event)).is_ok();
        pair.xfrm.then(|| FrontEnd::open(pair, path, base, tell)).transpose()
    };
    pairs.map(open).collect()
}

/// One gateway a name, one gateway an interface; an interface's name is its own in each network
/// namespace.
fn lock_names(settings: &Settings) -> Vec<String> {
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let interfaces = settings.pairs.iter().flat_map(|pair| [&pair.host, &pair.wire]);
    let mut names: Vec<String> =
        interfaces.map(|name| format!("port-{name}-{namespace}")).collect();
    names.push(settings.gateway.name.clone());
    names
}

fn open_control(settings: &Settings, events: Sender<Event>) -> Result<ControlSocket> {
    let socket = settings.gateway.control_socket();
    ControlSocket::open(&socket, move |it| events.send(Event::Question(it)).is_ok())
        .with_context(|| format!("cannot open {}", socket.display()))
}

/// Says that all is up.
fn announce(settings: &Settings) {
    if settings.gateway.on_failure == OnFailure::Open {
        tracing::warn!("on_failure = \"open\": without this process, traffic passes unseen");
    }
    tracing::info!(name = settings.gateway.name, pairs = settings.pairs.len(), "ready");
    notify::ready(&format!("{} pairs of ports", settings.pairs.len()));
}

/// Who watches a pair, with the mirrors open.
fn bystanders_of(pair: &str, settings: &Settings) -> Result<Bystanders> {
    let mirrors = mirrors_of(pair, settings).map(Mirror::open).collect::<Result<_>>()?;
    Ok(Bystanders::new(settings.evidence, mirrors))
}

fn mirrors_of<'s>(
    pair: &str,
    settings: &'s Settings,
) -> impl Iterator<Item = &'s settings::Mirror> {
    settings.mirrors.iter().filter(move |mirror| mirror.pair == pair)
}

/// What differs that a running gateway cannot change.
fn needs_restart(old: &Settings, new: &Settings) -> Option<String> {
    if old.gateway != new.gateway {
        return Some("[gateway]".into());
    }
    if old.collectors != new.collectors {
        return Some("[[export]]".into());
    }
    if old.keying != new.keying {
        return Some("[keying]".into());
    }
    if old.limits != new.limits {
        return Some("[limits]".into());
    }
    if old.evidence != new.evidence {
        return Some("[evidence]".into());
    }
    let ports = |pairs: &[Pair]| -> Vec<_> {
        pairs
            .iter()
            .map(|it| {
                let ports = (it.name.clone(), it.host.clone(), it.wire.clone());
                (ports, it.driver, it.xfrm, it.fastpath)
            })
            .collect()
    };
    (ports(&old.pairs) != ports(&new.pairs))
        .then(|| "the list of pairs, their ports, `xfrm` or `fastpath`".into())
}

/// A thread for each pair's handshakes where keys are agreed at all, and the workers' ends.
type Started = (Vec<Option<Keying>>, Vec<Option<KeyingEnd>>);

fn start_keying(settings: &Settings, keys: &Keys) -> Result<Started> {
    let Some(secrets) = &keys.secrets else {
        return Ok(settings.pairs.iter().map(|_| (None, None)).unzip());
    };
    let started = settings.pairs.iter().map(|pair| {
        let (keying, end) = Keying::start(&pair.name, secrets.identity.clone())
            .with_context(|| format!("pair {}", pair.name))?;
        Ok((Some(keying), Some(end)))
    });
    Ok(started.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

/// Tells the threads their peers.
fn configure_keying(settings: &Settings, keys: &Keys, threads: &[Option<Keying>]) {
    let (Some(keying), Some(secrets)) = (&settings.keying, &keys.secrets) else { return };
    for (pair, thread) in settings.pairs.iter().zip(threads) {
        let Some(thread) = thread else { continue };
        let peers = keyed_peers(pair, keying.port, secrets);
        thread.configure(Peers { limits: keying.limits, peers });
    }
}

fn watch_signals(events: Sender<Event>) -> Result<Handle> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let handle = signals.handle();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(handle)
}
