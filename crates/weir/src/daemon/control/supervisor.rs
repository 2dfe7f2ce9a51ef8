//! The life of a gateway: start in an order in which no plaintext can pass, run, reload as a whole
//! or not at all, stop. What is read by a thread of its own: `reading`; what is in force unless
//! nobody confirms it: `trial`; what somebody asks: `questions`.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Handle;
use weir_engine::esp::secret::wipe_stack;
use weir_port::Shutter;
use weir_store::clock;
use weir_store::datasets::DatasetKeeper;
use weir_store::sink::{AlertSink, Exporter};

use crate::api::dto::{PairSnapshot, Response, Snapshot};
use crate::config::rules::Detection;
use crate::config::settings::{self, OnFailure, Pair};
use crate::config::{KeyAccess, Keys, Loaded, Problems, Settings, Source};
use crate::daemon::control::history::History;
use crate::daemon::control::lock::{Locks, PATIENCE, port_locks};
use crate::daemon::control::notify::{self, Watchdog};
use crate::daemon::control::openvpn::Tunnels;
use crate::daemon::control::preflight::{self, Administration};
use crate::daemon::control::recorder::Recorder;
use crate::daemon::control::show;
use crate::daemon::control::socket::{ControlSocket, Question};
use crate::daemon::keys::front_end::{Base, FrontEnd};
use crate::daemon::keys::front_end_socket::ClientEvent;
use crate::daemon::keys::keying::Keying;
use crate::daemon::keys::state::{LostState, StateStore};
use crate::daemon::pair::evidence::CutTurns;
use crate::daemon::pair::kernel_esp;
use crate::daemon::pair::mirror::MirrorControl;
use crate::daemon::pair::offload::{self, Answered};
use crate::daemon::pair::plan::{self, PairPlan};
use crate::daemon::pair::prepare::{self, Prepared};
use crate::daemon::pair::workers::PairWorkers;
use crate::daemon::watch::port_watch::PortWatch;
use crate::daemon::watch::vm_watch::VmWatch;
use crate::machine::Machine;
use again::{Again, Left, start_again};
use blocks::CONTROL;
use needs_restart::needs_restart;
use parts::{
    Sinks, announce, begin_datasets, bystanders, change_alerts, configure_keying, mirrors_of,
    open_control, open_front_ends, rules_digest, start_alerts, start_datasets, start_exporter,
    start_keying, start_workers, tell_names, try_alerts, watch_ports, watch_signals, watch_vm,
};
use reading::{Read, Readings, Wanted};
use trial::{PortsBefore, Start, Trial};

mod again;
mod blocks;
mod configure;
mod leaving;
mod needs_restart;
mod parts;
mod questions;
mod reading;
mod stats;
mod trial;

/// How often the workers are looked at.
const TICK: Duration = Duration::from_millis(500);

/// The same while front ends have something to look after.
const FRONT_END_TICK: Duration = Duration::from_millis(100);

/// The same while somebody waits for counters.
const STATUS_TICK: Duration = Duration::from_millis(10);

/// How long a question waits for fresh counters. Those of 10,000 peers take 1.5 s.
const STATUS_WAIT: Duration = Duration::from_secs(4);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub file: PathBuf,
    /// Whether administrative ports may be taken.
    pub administration: Administration,
    /// What lost state does.
    pub lost_state: LostState,
    /// The configuration is taken back unless it is confirmed within so long.
    pub confirm_within: Option<Duration>,
    /// Ports that are not there yet, or are down, are waited for so long.
    pub wait: Duration,
}

/// Why a gateway did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration, or what it says about this machine, is wrong.
    #[error("{0}")]
    Configuration(Problems),
    /// The configuration was not confirmed in time, and there is none to go back to.
    #[error("{0}")]
    NotConfirmed(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

enum Event {
    Signal(i32),
    Question(Box<Question>),
    /// A configuration was read.
    Read(Box<Read>),
    /// Of the front ends of the pair of this index.
    FrontEnd(usize, ClientEvent),
    /// A port is not what it was; why.
    Ports(String),
    /// The machine is a copy.
    Cloned,
}

/// Why a gateway's life ended.
enum End {
    /// A signal.
    Stopped,
    /// Its configuration was taken back, and there is none before it.
    NotConfirmed(String),
    /// Its configuration was taken back for one that takes a new start; why.
    Restart(Box<Accepted>, String),
    /// All is to be opened anew, as it is configured.
    Again(Box<Again>),
}

/// A configuration that this machine can run.
struct Accepted {
    source: Source,
    settings: Settings,
    keys: Keys,
}

/// Runs a gateway until a signal ends it.
///
/// # Errors
/// [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut start = trial::choose(options)?;
    loop {
        let gateway = Gateway::start(options.clone(), start)?;
        let rollbacks = gateway.rollbacks;
        match gateway.live()? {
            End::Stopped => return Ok(()),
            End::NotConfirmed(why) => return Err(Failure::NotConfirmed(why)),
            End::Restart(back, why) => start = trial::start_back(*back, why, rollbacks + 1)?,
            End::Again(again) => start = start_again(*again, options)?,
        }
    }
}

/// The same once its ports are there and up, which they have `wait` to be.
fn accept_for_start(
    source: Source,
    kept: Option<&Detection>,
    options: &Options,
    wait: Duration,
) -> Result<Accepted, Failure> {
    let (settings, _) = source.understand().map_err(Failure::Configuration)?;
    preflight::wait_for_ports(&settings, wait)?;
    accept(source, kept, options.administration)
}

/// `source` with its keys, if this machine can run it, and with the rules of `kept` where there are
/// such. Warnings go to the log.
fn accept(
    source: Source,
    kept: Option<&Detection>,
    administration: Administration,
) -> Result<Accepted, Failure> {
    let (accepted, mut problems) = load(source, kept)?;
    let machine = Machine::read().context("cannot read the machine's interfaces")?;
    preflight::check(&accepted.settings, &machine, administration, &mut problems);
    if problems.refused() {
        return Err(Failure::Configuration(problems));
    }
    for warning in &problems.problems {
        tracing::warn!(remedy = %warning.remedy, "{}", warning.what);
    }
    Ok(accepted)
}

/// `source` with its keys, whether or not this machine can run it; and what warnings there are.
fn load(source: Source, kept: Option<&Detection>) -> Result<(Accepted, Problems), Failure> {
    let Loaded { settings, keys, problems } =
        source.load_with(KeyAccess::Needed, kept).map_err(Failure::Configuration)?;
    let keys = keys.context("the keys were not read")?;
    Ok((Accepted { source, settings, keys }, problems))
}

/// Removes what a killed gateway left in the kernel; numbers that it accepted stay so.
fn take_over_left(settings: &Settings, plans: &mut [Vec<PairPlan>]) -> Result<()> {
    for (pair, plan) in settings.pairs.iter().zip(plans) {
        let left = kernel_esp::remove_left(&pair.wire)?;
        plan.iter_mut().for_each(|plan| kernel_esp::take_over(plan, &left));
    }
    Ok(())
}

struct Gateway {
    options: Options,
    /// What is in force.
    source: Source,
    settings: Settings,
    history: History,
    /// What is in force is on trial.
    trial: Option<Trial>,
    /// The ports as they were before a first configuration that is on trial.
    before: Option<PortsBefore>,
    rollbacks: u64,
    /// Why the last trial was taken back; until something else is accepted.
    rolled_back: Option<String>,
    /// What a command decided.
    end: Option<End>,
    epoch: u32,
    reloads_refused: u64,
    started: Instant,
    watchdog: Watchdog,
    events: Receiver<Event>,
    readings: Readings,
    signals: Handle,
    // Dropped in this order: questions end, workers end, everything is written to disk, and last
    // the locks are released, so that another gateway may start.
    control: Vec<ControlSocket>,
    /// Beside `workers`.
    front_ends: Vec<Option<FrontEnd>>,
    front_ends_ticked: Instant,
    stats_told: Instant,
    workers: Vec<PairWorkers>,
    tunnels: Tunnels,
    watch: Option<PortWatch>,
    _vm_watch: VmWatch,
    /// Beside the workers; a pair without `[keying]` has none.
    keying: Vec<Option<Keying>>,
    /// What the kernel answered about peers whose ESP the NIC is to do.
    offloads: Vec<Answered>,
    exporter: Exporter,
    recorder: Option<Recorder>,
    alerts: AlertSink,
    datasets: DatasetKeeper,
    store: StateStore,
    cuts: CutTurns,
    /// Questions that wait for counters newer than themselves: when each came, and where its
    /// answer goes.
    status_asked: Vec<(Instant, Sender<Response>)>,
    _locks: [Locks; 2],
}

impl Gateway {
    fn start(options: Options, start: Start) -> Result<Self> {
        let history = start.history.clone();
        if start.left.is_some() {
            // All is noted; without a start, an unconfirmed configuration is taken back by the
            // next.
            return Self::open(options, start);
        }
        if start.within.is_none() {
            let text = start.accepted.source.text.clone();
            let gateway = Self::open(options, start)?;
            trial::note_accepted(&history, &text);
            return Ok(gateway);
        }
        let rules = rules_digest(&start.accepted.settings);
        history.begin(&start.accepted.source.text, rules)?;
        Self::open(options, start).inspect_err(|_| history.discard())
    }

    fn open(options: Options, start: Start) -> Result<Self> {
        let Start { accepted, history, within, way_back, rolled_back, rollbacks, name_lock, left } =
            start;
        let Accepted { source, mut settings, ref keys } = accepted;
        let locks = [name_lock, port_locks(&settings, PATIENCE)?];
        let first_trial = within.is_some() && way_back.is_none() && left.is_none();
        let Left { before, watch: watch_before } = left.unwrap_or_default();
        let before = before.or_else(|| first_trial.then(|| PortsBefore::of(&settings)));
        let mut store = StateStore::of(&settings.gateway, options.lost_state)?;
        let machine = Machine::read()?;
        let offloads = offload::ask(&mut settings, &machine, None)?;
        let mut plans = plan::plans(&settings, keys, &machine, &mut store, 1)?;
        take_over_left(&settings, &mut plans)?;
        let (exporter, recorder) = (start_exporter(&settings)?, Recorder::start(&settings)?);
        let (sender, events) = channel();
        let signals = watch_signals(sender.clone())?;
        let (keying, ends) = start_keying(&settings, keys)?;
        // Loaded before anything passes, so that what follows the ports' opening takes no time.
        let shutter = Shutter::load()?;
        let alerts = start_alerts(&settings, recorder.as_ref())?;
        let (mut tunnels, datasets) = (Tunnels::make(&settings)?, start_datasets(&settings)?);
        let sinks = Sinks::of(&exporter, recorder.as_ref(), &alerts, &datasets);
        let (workers, bases) = start_workers(&settings, &machine, plans, ends, &mut store, sinks)?;
        let watch = Some(watch_ports(&settings, shutter, &sender)?);
        drop(watch_before);
        configure_keying(&settings, keys, &keying, &workers);
        tunnels.start(&settings)?;
        let front_ends = open_front_ends(&settings, bases, &sender)?;
        let vm_watch = watch_vm(&sender)?;
        let control = open_control(&settings, sender.clone())?;
        let (started, readings) = (announce(&settings), Readings::new(sender));
        let gateway = Self {
            watchdog: Watchdog::from_environment(started),
            options,
            source,
            settings,
            history,
            trial: within.map(|within| Trial::begin(within, way_back)),
            before,
            rollbacks,
            rolled_back,
            end: None,
            epoch: 1,
            reloads_refused: 0,
            started,
            events,
            readings,
            signals,
            control,
            front_ends,
            front_ends_ticked: started,
            stats_told: started,
            workers,
            tunnels,
            watch,
            _vm_watch: vm_watch,
            keying,
            offloads,
            exporter,
            recorder,
            alerts,
            datasets,
            store,
            cuts: CutTurns::default(),
            status_asked: Vec::new(),
            _locks: locks,
        };
        gateway.tell_of_trial();
        Ok(gateway)
    }

    /// Serves, and stops.
    fn live(mut self) -> Result<End> {
        let end = self.serve();
        match end {
            // The service manager would wait for the process's end, and see to it.
            Ok(End::Restart(..) | End::Again(..)) => notify::reloading(),
            _ => notify::stopping(),
        }
        let was_unconfirmed = self.trial.is_some();
        let (before, history) = (self.before.take(), self.history.clone());
        self.stop()?;
        if was_unconfirmed {
            tracing::warn!("it ends unconfirmed: its configuration is taken back");
            history.roll_back()?;
        }
        if let (Ok(End::Stopped | End::NotConfirmed(_)), Some(before)) = (&end, before) {
            before.restore();
        }
        end
    }

    /// Waits for signals, questions and the workers' ends.
    fn serve(&mut self) -> Result<End> {
        loop {
            let active = self.front_ends.iter().flatten().any(FrontEnd::is_active);
            let tick = match (self.status_asked.is_empty(), active) {
                (false, _) => STATUS_TICK,
                (_, true) => FRONT_END_TICK,
                _ => TICK,
            };
            match self.events.recv_timeout(self.trial.as_ref().map_or(tick, |it| it.wait(tick))) {
                Ok(Event::Signal(SIGHUP)) => self.read_file(Wanted::Signal),
                Ok(Event::Signal(signal)) => {
                    tracing::info!(signal, "stopping; nothing passes from now on");
                    return Ok(End::Stopped);
                }
                Ok(Event::Question(question)) => self.answer(*question),
                Ok(Event::Read(read)) => self.was_read(*read),
                Ok(Event::FrontEnd(pair, event)) => {
                    if let Some(front_end) = &mut self.front_ends[pair] {
                        front_end.handle(event, &mut self.workers[pair], &mut self.store);
                    }
                }
                Ok(Event::Ports(why)) => {
                    tracing::warn!("all is opened anew: {why}");
                    return Ok(End::Again(Box::new(self.leave())));
                }
                Ok(Event::Cloned) => return self.begin_as_copy(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("signals are no longer watched"),
            }
            wipe_stack();
            if let Some(ended) = self.workers.iter().position(PairWorkers::is_finished) {
                let worker = self.workers.remove(ended);
                let name = worker.name.clone();
                worker.join().with_context(|| format!("pair {name} lost its ports"))?;
                bail!("the worker of pair {name} ended by itself");
            }
            if let Some(end) = self.end.take().or_else(|| self.end_of_trial()) {
                return Ok(end);
            }
            let now = clock::now();
            self.store.blocks.tick();
            self.end_clients();
            if active && now.duration_since(self.front_ends_ticked) >= FRONT_END_TICK {
                self.front_ends_ticked = now;
                for (front_end, workers) in self.front_ends.iter_mut().zip(&mut self.workers) {
                    let store = &mut self.store;
                    front_end.iter_mut().for_each(|it| it.tick(workers, store));
                }
            }
            self.leave_spis_to_front_ends();
            self.tunnels.tick(now);
            self.record(now);
            self.tell_stats(now);
            self.answer_status(now);
            if self.watchdog.is_due(now) && self.workers.iter().all(|it| it.snapshot().is_ok()) {
                self.watchdog.alive(now);
            }
        }
    }

    /// Tells the handshakes of each pair which SPIs its front ends have.
    fn leave_spis_to_front_ends(&mut self) {
        for (front_end, keying) in self.front_ends.iter_mut().zip(&self.keying) {
            if let (Some(front_end), Some(keying)) = (front_end, keying)
                && let Some(spis) = front_end.take_new_spis()
            {
                keying.leave_to_front_ends(spis);
            }
        }
    }

    /// Stores and publishes the counters when it is time.
    fn record(&mut self, now: Instant) {
        if !self.recorder.as_ref().is_some_and(|it| it.is_due(now)) {
            return;
        }
        if let (Ok(snapshot), Some(recorder)) = (self.snapshot(), &mut self.recorder) {
            recorder.take(snapshot, now);
        }
    }

    /// Writes what was asked and how it ended into the log book.
    fn note(&self, what: &str, outcome: &str) {
        self.told(CONTROL, what, outcome);
    }

    /// Puts `next` in force in place of what is.
    fn apply(&mut self, mut next: Accepted) -> Result<(), Failure> {
        offload::keep_decided(&mut next.settings, &self.settings);
        if let Some(what) = needs_restart(&self.settings, &next.settings) {
            return Err(anyhow::anyhow!("{what} changed: that needs a restart").into());
        }
        let Accepted { source, mut settings, keys } = next;
        let machine = Machine::read().context("cannot read the machine's interfaces")?;
        let offloads = offload::ask(&mut settings, &machine, Some(&self.offloads))?;
        let mut prepared = self.prepare(&settings, &keys)?;
        let bases: Vec<Vec<Base>> =
            prepared.iter().map(|plans| plans.iter().map(Base::of).collect()).collect();
        for (front_end, prepared) in self.front_ends.iter().zip(&mut prepared) {
            front_end.iter().for_each(|it| it.extend(prepared));
        }
        let mirrors = self.add_bystanders(&mut prepared, &settings)?;
        try_alerts(&settings, &self.settings)?;
        let of_pairs = settings.pairs.iter().zip(prepared).zip(mirrors);
        for (workers, ((pair, plans), (wanted, new))) in self.workers.iter_mut().zip(of_pairs) {
            let offered = workers.offer(plans).and_then(|()| workers.offer_rest(pair, wanted, new));
            let Err(error) = offered else { continue };
            let error = error.context(format!("pair {}", workers.name));
            self.workers.iter_mut().for_each(PairWorkers::discard);
            return Err(error.into());
        }
        for workers in &mut self.workers {
            // An error means that a worker has ended; the gateway then ends too. How far its
            // associations went is on disk, and they go on there.
            let _ = workers.commit();
        }
        configure_keying(&settings, &keys, &self.keying, &self.workers);
        for (front_end, bases) in self.front_ends.iter_mut().zip(bases) {
            front_end.iter_mut().for_each(|it| it.set_bases(bases.clone()));
        }
        if let Err(error) = change_alerts(&self.alerts, &settings) {
            tracing::error!(%error, "alerts go on to the file before");
        }
        if let Some(recorder) = &self.recorder {
            recorder.name(&settings);
        }
        tell_names(&settings, self.recorder.as_ref(), &self.alerts);
        begin_datasets(&settings, &self.datasets);
        (self.source, self.settings) = (source, settings);
        self.offloads = offloads;
        self.epoch += 1;
        Ok(())
    }

    /// All pairs' plans, with everything that can be refused behind them.
    fn prepare(&mut self, settings: &Settings, keys: &Keys) -> Result<Vec<Vec<Prepared>>> {
        let machine = Machine::read().context("cannot read the machine's interfaces")?;
        let plans = plan::plans(settings, keys, &machine, &mut self.store, self.epoch + 1)?;
        let mut pairs = self.workers.iter().zip(&plans);
        if pairs.any(|(workers, plans)| workers.has_other_kernel_keys(plans)) {
            bail!("the key of a peer with offload = \"kernel\" changed: that needs a restart");
        }
        let running: Vec<_> = self.workers.iter().flat_map(PairWorkers::running).collect();
        prepare::refuse_moved_keys(&plans.iter().flatten().collect::<Vec<_>>(), &running)?;
        let reserver = self.store.reserver();
        let prepare = |(workers, plans): (&PairWorkers, Vec<PairPlan>)| {
            let of_each = plans.into_iter().zip(workers.running());
            of_each
                .map(|(plan, running)| prepare::prepare(plan, running, &reserver))
                .collect::<Result<_>>()
                .with_context(|| format!("pair {}", workers.name))
        };
        self.workers.iter().zip(plans).map(prepare).collect()
    }

    /// Adds to the plans of each pair who is to watch: mirrors that stay, and new ones, open.
    /// Returns, by pair, the settings of all mirrors, and of new ones what the control thread gets.
    fn add_bystanders(
        &self,
        prepared: &mut [Vec<Prepared>],
        settings: &Settings,
    ) -> Result<Vec<(Vec<settings::Mirror>, Vec<MirrorControl>)>> {
        let add = |(pair, plans): (&Pair, &mut Vec<Prepared>)| {
            let (next, new) = bystanders(pair, settings, &self.settings.mirrors)?;
            plans.iter_mut().zip(next).for_each(|(plan, next)| plan.bystanders = Some(next));
            Ok((mirrors_of(pair, settings).cloned().collect(), new))
        };
        settings.pairs.iter().zip(prepared).map(add).collect()
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let mut pairs: Vec<PairSnapshot> =
            self.workers.iter().map(PairWorkers::snapshot).collect::<Result<_>>()?;
        for (pair, keying) in pairs.iter_mut().zip(&self.keying) {
            if let Some(status) = keying.as_ref().and_then(Keying::status) {
                show::add_keying(pair, &status);
            }
            show::add_offload(pair, &self.offloads);
        }
        self.tunnels.show(&mut pairs);
        pairs.iter_mut().for_each(show::add_pauses);
        pairs.iter_mut().for_each(show::add_rules);
        let gateway = &self.settings.gateway;
        let adds_up = pairs
            .iter()
            .flat_map(|pair| [&pair.host, &pair.wire].into_iter().chain(&pair.kernel))
            .all(|side| side.received == side.verdicts())
            && pairs.iter().all(|pair| pair.wire_proof.adds_up);
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: gateway.name.clone(),
            pid: std::process::id(),
            taken_ns: clock::time().0,
            uptime_seconds: self.started.elapsed().as_secs(),
            on_failure: match gateway.on_failure {
                OnFailure::Closed => "closed".to_owned(),
                OnFailure::Open => "open".to_owned(),
            },
            reloads_accepted: u64::from(self.epoch),
            reloads_refused: self.reloads_refused,
            configuration: self.configuration(),
            adds_up,
            pairs,
            store: self.recorder.as_ref().map(|it| it.counters().into()),
            alerts: (self.settings.detection.is_some() || !self.settings.sinks.is_empty())
                .then(|| (&self.alerts).into()),
            exports: self.exporter.counters().into_iter().map(show::export).collect(),
        })
    }

    fn stop(mut self) -> Result<()> {
        self.signals.close();
        self.readings.end();
        // Questions that arrive from here on get no answer.
        drop(std::mem::replace(&mut self.events, channel().1));
        self.control.clear();
        self.front_ends.clear();
        self.workers.iter().for_each(PairWorkers::stop);
        for worker in self.workers.drain(..) {
            worker.join()?;
        }
        // Before the store: what still waits for this thread goes there too.
        self.alerts.note("gateway", "stop", "stopped");
        drop(self.alerts);
        if let Some(recorder) = self.recorder.take() {
            recorder.stop();
        }
        for export in self.exporter.stop() {
            tracing::info!(?export, "export ended");
        }
        Ok(())
    }
}
