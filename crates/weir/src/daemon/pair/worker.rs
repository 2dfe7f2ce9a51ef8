//! One pair of ports, one engine, one thread: moves frames between the ports until told to stop.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use weir_engine::esp::sa::Fingerprint;
use weir_engine::pipeline::{Engine, Left, PeerChange, PolicyError};
use weir_store::clock;
use weir_store::datasets::DatasetSender;
use weir_store::evidence::Label;
use weir_store::sink::{AlertSender, RecordSender};
use weir_wire::frame::Time;

use crate::config::settings::{Limits, OnFailure, Pair};
pub(in crate::daemon) use crate::daemon::control::show;
use crate::daemon::keys::keying::KeyingEnd;
use crate::daemon::keys::owners::OwnerKeeper;
use crate::daemon::keys::state::{Reserved, Reserver};
use crate::daemon::pair::alerts;
use crate::daemon::pair::bystanders::Bystanders;
use crate::daemon::pair::control::Pulse;
use crate::daemon::pair::evidence::EvidenceRecorder;
use crate::daemon::pair::exchange::Exchange;
use crate::daemon::pair::fast_path::FastPathControl;
use crate::daemon::pair::gate::GateWatch;
use crate::daemon::pair::kernel_esp::ToKernel;
use crate::daemon::pair::mirror::Mirror;
use crate::daemon::pair::moderation::Moderation;
use crate::daemon::pair::prepare::{NextReplayFile, Prepared, ReplayFile};
use crate::daemon::pair::publish::Publisher;
use crate::daemon::pair::relay::Relay;
use crate::daemon::pair::tables;
use crate::daemon::pair::workers::WorkerParts;
use crate::daemon::watch::access_log::AccessLog;
use crate::daemon::watch::forgeries::ForgeryAlarm;
use crate::daemon::watch::leak::LeakAlarm;
use crate::daemon::watch::rollout::RolloutLog;
use weir_store::entropy::seed;

mod handle;

pub use handle::{AssociationChange, WorkerCommand, WorkerHandle, WorkerUsage};

/// How long a worker sleeps when nothing comes; commands and its own packets wait no longer.
const IDLE: Duration = Duration::from_millis(20);

/// Rounds without a frame before the worker of a busy pair sleeps. To be woken costs more than
/// these rounds, and whoever else wants the core gets it in between.
const IDLE_ROUNDS: u32 = 40;

/// A pair is busy when its worker was woken this soon. One that sleeps longer sleeps at once: its
/// rounds would keep the core from whom the last frame was for.
const BUSY_SLEEP_NS: u64 = 100_000;

/// How much later than asked for the kernel may end a worker's sleep.
const TIMER_SLACK_NS: u64 = 1000;

/// Between two ticks: heartbeat, questions for neighbours, flows that end.
const TICK_NS: u64 = 100_000_000;

/// Between two turns of ending idle flows while there are more: a million take 16 seconds, and the
/// exporters' queues are never flooded.
const EXPIRE_NS: u64 = 1_000_000;

/// All that a worker needs to start.
pub struct WorkerSetup {
    /// The ports and how to drive them.
    pub pair: Pair,
    /// What passes when this process is dead.
    pub on_failure: OnFailure,
    /// Bounds of its tables.
    pub limits: Limits,
    /// Whose packets its evidence holds.
    pub label: Label,
    /// What it does first.
    pub plan: Prepared,
    /// Whom to ask for sequence numbers.
    pub reserver: Reserver,
    /// Where records of flows go.
    pub records: RecordSender,
    /// Where alerts of rules go.
    pub alerts: AlertSender,
    /// Where goes what rules do to sets that are kept.
    pub datasets: DatasetSender,
    /// The other end of its handshakes.
    pub keying: Option<KeyingEnd>,
    /// Whom queue pairs belonged to before, and who keeps that.
    pub owners: OwnerKeeper,
}

struct Worker {
    pair: Pair,
    label: Label,
    relay: Relay,
    /// Where the kernel does some peer's ESP.
    /// Its signs of life for the control thread.
    pulse: Pulse,
    /// The other workers of the pair.
    exchange: Option<Exchange>,
    /// Peers whose ESP the kernel does.
    kernel: Option<ToKernel>,
    gate: Option<GateWatch>,
    fast_path: Option<FastPathControl>,
    /// Why there is no fast path.
    why_not: Option<String>,
    commands: Receiver<WorkerCommand>,
    /// Beside the engine's opening associations; those of front ends are kept nowhere.
    replay_files: Vec<ReplayFile>,
    prepared: Option<Prepared>,
    replay_write_fails: bool,
    reserver: Reserver,
    records: RecordSender,
    alerts: AlertSender,
    datasets: DatasetSender,
    keying: Option<KeyingEnd>,
    answer: Sender<Reserved>,
    answers: Receiver<Reserved>,
    asked: Vec<Fingerprint>,
    ticked: Time,
    /// When idle flows were ended last, while there are more of them.
    expired: Option<Time>,
    leaks: LeakAlarm,
    forgeries: ForgeryAlarm,
    access_log: AccessLog,
    owners: OwnerKeeper,
    rollout: RolloutLog,
    publisher: Publisher,
}

impl Worker {
    fn new(
        setup: WorkerSetup,
        parts: WorkerParts,
        commands: Receiver<WorkerCommand>,
    ) -> Result<Self> {
        let label = setup.label;
        let WorkerSetup { pair, limits, plan, reserver, records, alerts, datasets, .. } = setup;
        let (keying, owners) = (setup.keying, setup.owners);
        let WorkerParts {
            number,
            ports,
            pulse,
            kernel,
            mut fast_path,
            why_not,
            exchange,
            gate,
            ..
        } = parts;
        let meter = tables::meter(&limits, pair.workers, owners.seed());
        let replay_files = plan.replay_files.into_iter().filter_map(NextReplayFile::into_new);
        let mut engine = Engine::new(plan.policy, plan.associations, meter)?;
        engine.restore_owners(owners.restored(), clock::time());
        if exchange.is_some() {
            engine.set_one_of_several();
        }
        if let Some(fast_path) = &fast_path {
            engine.set_fast_path(Some(fast_path.table(seed()?)));
        }
        let (answer, answers) = channel();
        let bystanders = Bystanders::new(plan.bystanders.unwrap_or_default(), &label);
        let mut relay = Relay::new(ports, engine, bystanders);
        show_kernel(&mut relay);
        if let Some(fast_path) = &mut fast_path {
            fast_path.set_watched(&mut relay);
            fast_path.open(relay.engine().policy());
        }
        Ok(Self {
            pair,
            label,
            relay,
            pulse,
            exchange,
            kernel,
            gate: gate.map(|gate| GateWatch::new(gate, number)),
            fast_path,
            why_not,
            commands,
            replay_files: replay_files.collect(),
            prepared: None,
            replay_write_fails: false,
            reserver,
            records,
            alerts,
            datasets,
            keying,
            answer,
            answers,
            asked: Vec::new(),
            ticked: Time::default(),
            expired: None,
            leaks: LeakAlarm::default(),
            forgeries: ForgeryAlarm::default(),
            access_log: AccessLog::default(),
            owners,
            rollout: RolloutLog::default(),
            publisher: Publisher::default(),
        })
    }

    fn run(&mut self) -> Result<()> {
        let (mut idle_rounds, mut idle_rounds_max) = (0, IDLE_ROUNDS);
        let mut moderation = Moderation::default();
        // Short sleeps are to be short: by itself the kernel lets them last 50 us longer. It
        // refuses nobody this.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        loop {
            if !self.obey()? {
                self.end();
                return Ok(());
            }
            self.reserve();
            let Self { relay, replay_files, replay_write_fails, fast_path, .. } = self;
            fast_path.iter_mut().for_each(|fast_path| fast_path.before_round(relay));
            let moved = relay.round(&mut |engine| {
                write_replay_state(engine, replay_files, replay_write_fails)
            })?;
            fast_path.iter_mut().for_each(|fast_path| fast_path.after_round(relay));
            self.key();
            let now = clock::time();
            match &mut self.exchange {
                Some(exchange) => exchange.pass(&mut self.relay, now),
                None => self.relay.release(now),
            }
            if now.since_ns(self.ticked) >= TICK_NS || now < self.ticked {
                self.tick(now)?;
            } else if self.expired.is_some_and(|last| now.since_ns(last) >= EXPIRE_NS) {
                self.end_idle_flows(now);
            }
            self.look_at_slice(now);
            if moved.total() > 0 {
                idle_rounds = 0;
                if let Some(pause) = moderation.after(moved.total(), now) {
                    std::thread::sleep(pause);
                }
            } else if idle_rounds < idle_rounds_max {
                idle_rounds += 1;
                std::hint::spin_loop();
            } else {
                let is_at_work = self.expired.is_some() || self.publisher.is_at_work();
                let idle = if is_at_work { Duration::from_nanos(EXPIRE_NS) } else { IDLE };
                let nap = self.fast_path.as_ref().map_or(idle, |fast_path| fast_path.nap(idle));
                self.relay.wait(self.exchange.as_ref().map(Exchange::bell), nap)?;
                self.exchange.iter_mut().for_each(Exchange::awake);
                let is_busy = clock::time().since_ns(now) < BUSY_SLEEP_NS;
                idle_rounds_max = if is_busy { IDLE_ROUNDS } else { 0 };
            }
        }
    }

    /// Does what it was told; false: it is to end.
    fn obey(&mut self) -> Result<bool> {
        loop {
            match self.commands.try_recv() {
                Ok(WorkerCommand::Prepare(plan, answer)) => {
                    let _ = answer.send(self.prepare(*plan));
                }
                Ok(WorkerCommand::Commit(answer)) => {
                    let _ = answer.send(self.commit()?);
                }
                Ok(WorkerCommand::Discard) => self.prepared = None,
                Ok(WorkerCommand::Change(changes, answer)) => {
                    let _ = answer.send(self.change(changes));
                }
                Ok(WorkerCommand::Evidence(answer)) => {
                    let evidence = &self.relay.bystanders().evidence;
                    let _ = answer.send(evidence.as_ref().map(EvidenceRecorder::snapshot));
                }
                Ok(WorkerCommand::Usage(answer)) => {
                    let engine = self.relay.engine();
                    let wanted = engine.take_wanted().collect();
                    let associations = engine.usage().collect();
                    let _ = answer.send(WorkerUsage { associations, wanted });
                }
                Ok(WorkerCommand::Stop) | Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => return Ok(true),
            }
        }
    }

    /// Ten times a second.
    fn tick(&mut self, now: Time) -> Result<()> {
        self.ticked = now;
        self.relay.tick(now);
        let wanted = self.relay.bystanders().want_whole_packets();
        if self.fast_path.as_ref().is_some_and(|fast_path| fast_path.is_watched() != wanted) {
            // The kernel gave a mirror back, or took it again: what it carries goes past us.
            self.tell_fast_path();
        }
        show_kernel(&mut self.relay);
        self.alarm(now);
        self.owners.tick(self.relay.engine().access(), now);
        if let Some(kernel) = &self.kernel {
            kernel.tell_hops(self.relay.engine());
        }
        if let Some(exchange) = &self.exchange {
            exchange.tell_counted(self.relay.engine());
        }
        self.report_keyed();
        alerts::pass_on(&mut self.relay, &self.alerts, &self.datasets);
        let Self { relay, fast_path, rollout, pair, .. } = self;
        rollout.look(&pair.name, relay.engine(), now);
        if let Some(fast_path) = fast_path {
            fast_path.tick(relay)?;
        }
        if let Some(gate) = &mut self.gate {
            gate.tick(self.relay.engine(), now);
        }
        self.end_idle_flows(now);
        self.pulse.fetch_add(1, Ordering::Relaxed);
        self.publisher.begin(self.fast_path.as_ref(), clock::now());
        self.publish();
        Ok(())
    }

    /// Lets the kernel carry nothing more, and hands over what is kept in memory.
    fn end(&mut self) {
        let Self { relay, records, alerts, datasets, fast_path, .. } = self;
        if let Some(fast_path) = fast_path {
            fast_path.close(relay);
        }
        self.owners.finish(relay.engine().access());
        relay.engine().flush(&mut |record| records.send(record));
        relay.engine().end_detection_flows();
        alerts::pass_on(relay, alerts, datasets);
        self.access_log.look(&self.pair.name, relay.engine(), alerts, clock::time());
        if let Some(evidence) = relay.bystanders().evidence.take() {
            evidence.finish();
        }
    }

    /// Has a few idle flows end; notes whether there are more.
    fn end_idle_flows(&mut self, now: Time) {
        let Self { relay, records, .. } = self;
        let is_left = relay.engine().expire(now, &mut |record| records.send(record));
        self.expired = is_left.then_some(now);
    }

    /// Tells the fast path whether somebody wants to see packets.
    fn tell_fast_path(&mut self) {
        let Self { relay, fast_path, .. } = self;
        if let Some(fast_path) = fast_path {
            fast_path.set_watched(relay);
        }
    }

    /// Whether the engine can take the plan; then it waits for [`Worker::commit`].
    fn prepare(&mut self, prepared: Prepared) -> Result<(), PolicyError> {
        self.prepared = None;
        self.relay.engine().check(&prepared.policy, &prepared.associations)?;
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Puts the prepared plan in force.
    ///
    /// # Errors
    /// None that [`Worker::prepare`] lets through.
    fn commit(&mut self) -> Result<Left> {
        let Prepared { policy, associations, replay_files, bystanders, .. } =
            self.prepared.take().context("nothing is prepared")?;
        // Rules may go, and what they told of is not to go with them.
        alerts::pass_on(&mut self.relay, &self.alerts, &self.datasets);
        let Self { relay, fast_path, .. } = self;
        if let Some(fast_path) = fast_path {
            fast_path.close(relay);
        }
        let left = relay.engine().swap(policy, associations)?;
        relay.renew_proof();
        self.publisher.begin_anew();
        if let Some(fast_path) = fast_path {
            fast_path.open(relay.engine().policy());
        }
        let old = std::mem::take(&mut self.replay_files).into_iter();
        let mut old: HashMap<_, _> = old.map(|file| (file.fingerprint, file)).collect();
        for next in replay_files {
            self.replay_files.push(match next {
                NextReplayFile::New(file) => file,
                NextReplayFile::Running(key) => {
                    old.remove(&key).context("a running association has no file")?
                }
            });
        }
        if let Some(next) = bystanders {
            self.relay.bystanders().change(next, &self.label);
            show_kernel(&mut self.relay);
            self.tell_fast_path();
        }
        self.relay.tick(clock::time());
        Ok(left)
    }

    /// Has peers use other associations.
    ///
    /// # Errors
    /// The engine does not take them; nothing has changed.
    fn change(&mut self, changes: Vec<AssociationChange>) -> Result<Left, PolicyError> {
        let engine = self.relay.engine();
        let mut files = Vec::new();
        let mut of_engine = Vec::with_capacity(changes.len());
        for change in changes {
            let AssociationChange { peer, seal_spi, open_spis, new, replay_files } = change;
            let peer = engine.peer_id(peer);
            let peer = peer.ok_or(PolicyError::NotAlone { peer: String::new() })?;
            of_engine.push(PeerChange { peer, seal_spi, open_spis, new });
            files.extend(replay_files);
        }
        let left = engine.change_associations(of_engine)?;
        let gone: HashSet<_> = left.opening.iter().map(|state| state.fingerprint).collect();
        // New ones open behind those that there are, and so are their files.
        self.replay_files.retain(|file| !gone.contains(&file.fingerprint));
        self.replay_files.extend(files);
        Ok(left)
    }

    /// Asks for sequence numbers where they run short, and takes in what was granted.
    fn reserve(&mut self) {
        for answer in self.answers.try_iter() {
            let (key, granted) = match answer {
                Reserved::Granted(state) => (state.fingerprint, Some(state)),
                Reserved::Refused(key) => (key, None),
            };
            self.asked.retain(|asked| *asked != key);
            let Some(state) = granted else { continue };
            for association in self.relay.engine().sealing_associations() {
                if association.state().fingerprint == key {
                    association.extend_reservation(&state);
                }
            }
        }
        for association in self.relay.engine().sealing_associations() {
            let Some(wanted) = association.reservation_needed() else { continue };
            if !self.asked.contains(&wanted.fingerprint) && self.reserver.ask(wanted, &self.answer)
            {
                self.asked.push(wanted.fingerprint);
            }
        }
    }

    /// Carries out what handshakes want, and hands their datagrams over.
    fn key(&mut self) {
        let Self { relay, keying, kernel, .. } = self;
        if let Some(kernel) = kernel {
            kernel.take_updates(relay.engine());
        }
        let Some(keying) = keying else { return };
        if relay.engine().has_datagrams() {
            keying.pass_datagrams(relay.engine());
        }
        if keying.obey(relay.engine(), kernel.as_mut()) {
            relay.send_own();
        }
    }

    /// Ten times a second: what happened to peers, and datagrams that had to wait.
    fn report_keyed(&mut self) {
        let Self { relay, keying, .. } = self;
        let Some(keying) = keying else { return };
        keying.pass_activity(relay.engine());
        if keying.retry(relay.engine()) {
            relay.send_own();
        }
    }

    /// Says aloud what must not be.
    fn alarm(&mut self, now: Time) {
        self.leaks.look(&self.pair.name, self.relay.proof(), now);
        self.forgeries.look(&self.pair.name, self.relay.engine(), now);
        self.access_log.look(&self.pair.name, self.relay.engine(), &self.alerts, now);
    }

    /// Between two rounds: some more of what is to be published.
    fn look_at_slice(&mut self, now: Time) {
        let Self { publisher, relay, fast_path, .. } = self;
        if publisher.step(relay.engine(), fast_path.as_mut(), now) {
            self.publish();
        }
    }

    /// Publishes the counters, with the peers as they were seen last.
    fn publish(&mut self) {
        let Self { pair, relay, fast_path, why_not, .. } = self;
        let fast_path = show::fast_path(pair, relay, fast_path.as_ref(), why_not.as_deref());
        let snapshot = show::pair(pair, relay, fast_path, clock::time());
        self.publisher.publish(snapshot);
    }
}

/// Writes the replay state of associations that accepted packets. False: it could not be written.
fn write_replay_state(
    engine: &mut Engine,
    replay_files: &mut [ReplayFile],
    replay_write_fails: &mut bool,
) -> bool {
    for (association, replay) in engine.opening_associations().zip(replay_files) {
        if !association.is_dirty() {
            continue;
        }
        association.snapshot(&mut replay.state);
        replay.state.encode(&mut replay.record);
        if let Err(error) = replay.file.write(&replay.record) {
            if !std::mem::replace(replay_write_fails, true) {
                tracing::error!(%error, "replay state cannot be kept: what is opened is withheld");
            }
            return false;
        }
    }
    *replay_write_fails = false;
    true
}

/// Has what the host hears pass the kernel's mirrors, where there are any.
fn show_kernel(relay: &mut Relay) {
    let mirrors = &relay.bystanders().mirrors;
    let is_shown = mirrors.iter().any(Mirror::shows_kernel_what_the_host_hears);
    relay.show_kernel_what_the_host_hears(is_shown);
}
