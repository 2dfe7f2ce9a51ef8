//! One pair of ports, one engine, one thread: moves frames between the ports until told to stop.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use weir_engine::esp::open::{OpeningSa, OpeningState};
use weir_engine::esp::sa::Fingerprint;
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_port::{Guard, GuardMode, PacketOptions, PacketPort, Port, TapOptions, TapPort};
use weir_wire::frame::Time;

use super::plan::{AssociationPlan, PairPlan};
use super::relay::{Ports, Relay};
use super::show;
use super::state::{Reserved, Reserver, StateFile};
use crate::api::dto::PairSnapshot;
use crate::config::settings::{Driver, Limits, OnFailure, Pair};

/// Commands that wait for a worker, at most.
const COMMANDS_MAX: usize = 16;

/// How long a worker sleeps when nothing comes; commands and its own packets wait no longer.
const IDLE: Duration = Duration::from_millis(20);

/// Rounds without a frame before the worker sleeps. To be woken costs more than these rounds, and
/// whoever else wants the core gets it in between.
const IDLE_ROUNDS: u32 = 40;

/// Between two ticks: heartbeat, questions for neighbours, flows that end.
const TICK_NS: u64 = 100_000_000;

/// The longest name of an interface.
const INTERFACE_NAME_MAX: usize = 15;

/// What a worker can be told.
#[derive(Debug)]
pub enum WorkerCommand {
    /// From the next batch on, this plan. Associations that it keeps go on with their numbers.
    Swap(Box<PairPlan>),
    /// Send the counters.
    Snapshot(Sender<PairSnapshot>),
    /// End, after the batch at hand.
    Stop,
}

/// All that a worker needs to start.
#[derive(Debug)]
pub struct WorkerSetup {
    /// The ports and how to drive them.
    pub pair: Pair,
    /// What passes when this process is dead.
    pub on_failure: OnFailure,
    /// Bounds of its tables.
    pub limits: Limits,
    /// What it does first.
    pub plan: PairPlan,
    /// Whom to ask for sequence numbers.
    pub reserver: Reserver,
}

/// A running worker.
#[derive(Debug)]
pub struct WorkerHandle {
    /// The pair's name.
    pub name: String,
    commands: SyncSender<WorkerCommand>,
    thread: JoinHandle<Result<()>>,
}

impl WorkerHandle {
    /// Shuts the ports for everybody else, opens them and starts to move frames.
    ///
    /// # Errors
    /// A port cannot be opened, or the plan cannot be carried out.
    pub fn start(setup: WorkerSetup) -> Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let name = setup.pair.name.clone();
        let mut worker = Worker::new(setup, received)?;
        let thread =
            std::thread::Builder::new().name(format!("pair {name}")).spawn(move || worker.run())?;
        Ok(Self { name, commands, thread })
    }

    /// Tells it something; false when it ended or does not take commands any more.
    pub fn tell(&self, command: WorkerCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Whether it ended, which it does by itself only when a port is lost.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Why it ended.
    pub fn join(self) -> Result<()> {
        let panicked = |_| Err(anyhow::anyhow!("the worker of pair {} panicked", self.name));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// An opening association's file and the memory to write it from.
struct Kept {
    fingerprint: Fingerprint,
    file: StateFile,
    state: OpeningState,
    record: Vec<u8>,
}

struct Worker {
    pair: Pair,
    relay: Relay,
    guard: Guard,
    commands: Receiver<WorkerCommand>,
    /// Beside the engine's peers, by index.
    kept: Vec<Kept>,
    keeping_fails: bool,
    reserver: Reserver,
    answer: Sender<Reserved>,
    answers: Receiver<Reserved>,
    asked: Vec<Fingerprint>,
    ticked: Time,
}

impl Worker {
    fn new(setup: WorkerSetup, commands: Receiver<WorkerCommand>) -> Result<Self> {
        let WorkerSetup { pair, on_failure, limits, plan, reserver } = setup;
        let mode = match on_failure {
            OnFailure::Closed => GuardMode::Closed,
            OnFailure::Open => GuardMode::OpenOnFailure,
        };
        let guard = Guard::attach(&pair.host, &pair.wire, mode)?;
        let meter = Meter::new(
            MeterLimits {
                flows_max: limits.flows as usize,
                conversations_max: limits.conversations as usize,
                ..MeterLimits::default()
            },
            seed()?,
        );
        let ports = open_ports(&pair, &plan)?;
        let (associations, keeping) = begin(plan.associations, &[], &[], &reserver)?;
        let engine = Engine::new(plan.policy, associations, meter)?;
        let (answer, answers) = channel();
        Ok(Self {
            pair,
            relay: Relay::new(ports, engine),
            guard,
            commands,
            kept: go_on(keeping, Vec::new()),
            keeping_fails: false,
            reserver,
            answer,
            answers,
            asked: Vec::new(),
            ticked: Time::default(),
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut idle_rounds = 0;
        loop {
            loop {
                match self.commands.try_recv() {
                    Ok(WorkerCommand::Swap(plan)) => self.swap(*plan),
                    Ok(WorkerCommand::Snapshot(answer)) => {
                        let _ = answer.send(self.snapshot());
                    }
                    Ok(WorkerCommand::Stop) | Err(TryRecvError::Disconnected) => return Ok(()),
                    Err(TryRecvError::Empty) => break,
                }
            }
            self.reserve();
            let Self { relay, kept, keeping_fails, .. } = self;
            let moved = relay.round(&mut |engine| keep(engine, kept, keeping_fails))?;
            let now = clock();
            if now.since_ns(self.ticked) >= TICK_NS || now < self.ticked {
                self.ticked = now;
                self.relay.tick(now);
                self.relay.engine().expire(now, &mut |_| {});
                self.guard.heartbeat()?;
            }
            if moved > 0 {
                idle_rounds = 0;
            } else if idle_rounds < IDLE_ROUNDS {
                idle_rounds += 1;
                std::hint::spin_loop();
            } else {
                self.relay.wait(IDLE)?;
            }
        }
    }

    /// Takes a plan whole, or says why not and goes on as before.
    fn swap(&mut self, plan: PairPlan) {
        let PairPlan { policy, associations } = plan;
        let epoch = policy.epoch;
        let engine = self.relay.engine();
        let sealing: Vec<Fingerprint> =
            engine.sealing_associations().map(|it| it.state().fingerprint).collect();
        let begun = begin(associations, &sealing, &self.kept, &self.reserver);
        let taken = begun.and_then(|(associations, keeping)| {
            engine.swap(policy, associations)?;
            Ok(keeping)
        });
        match taken {
            Ok(keeping) => {
                self.kept = go_on(keeping, std::mem::take(&mut self.kept));
                self.relay.tick(clock());
            }
            Err(error) => tracing::error!("plan {epoch} refused: {error:#}"),
        }
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

    fn snapshot(&mut self) -> PairSnapshot {
        let guard = self.guard.counters().unwrap_or_default();
        show::pair(&self.pair, &mut self.relay, &guard, clock())
    }
}

/// Writes the replay state of associations that accepted packets. False: it could not be written.
fn keep(engine: &mut Engine, kept: &mut [Kept], keeping_fails: &mut bool) -> bool {
    for (association, kept) in engine.opening_associations().zip(kept) {
        if !association.is_dirty() {
            continue;
        }
        association.snapshot(&mut kept.state);
        kept.state.encode(&mut kept.record);
        if let Err(error) = kept.file.write(&kept.record) {
            if !std::mem::replace(keeping_fails, true) {
                tracing::error!(%error, "replay state cannot be kept: what is opened is withheld");
            }
            return false;
        }
    }
    *keeping_fails = false;
    true
}

/// Whose replay state a peer's opening association has.
enum Keeping {
    /// That of an association which runs already under this key.
    Running(Fingerprint),
    /// Its own.
    New(Kept),
}

/// Associations that the engine does not have yet, and who keeps the state of those that open.
/// Those that run under the same key, in `sealing` and `opening`, go on.
fn begin(
    plans: Vec<AssociationPlan>,
    sealing: &[Fingerprint],
    opening: &[Kept],
    reserver: &Reserver,
) -> Result<(Associations, Vec<Keeping>)> {
    let mut associations = Associations::default();
    let mut keeping = Vec::new();
    for plan in plans {
        let context = || format!("peer {}", plan.peer);
        if !sealing.contains(&plan.seal.fingerprint()) {
            let mut new =
                SealingSa::new(&plan.seal, plan.sealing_state.as_ref()).with_context(context)?;
            if let Some(wanted) = new.reservation_needed() {
                new.extend_reservation(&reserver.wait(wanted).with_context(context)?);
            }
            associations.sealing.push(new);
        }
        let fingerprint = plan.open.fingerprint();
        if opening.iter().any(|kept| kept.fingerprint == fingerprint) {
            keeping.push(Keeping::Running(fingerprint));
            continue;
        }
        let new = OpeningSa::new(&plan.open, plan.opening_state.as_ref()).with_context(context)?;
        let state = new.empty_state();
        let record = Vec::new();
        keeping.push(Keeping::New(Kept { fingerprint, file: plan.opening_file, state, record }));
        associations.opening.push(new);
    }
    Ok((associations, keeping))
}

/// The state that is kept from now on, beside the peers, from what was kept so far.
fn go_on(keeping: Vec<Keeping>, mut old: Vec<Kept>) -> Vec<Kept> {
    let kept = keeping.into_iter().map(|keeping| match keeping {
        Keeping::New(kept) => kept,
        Keeping::Running(key) => {
            let running = old.iter().position(|kept| kept.fingerprint == key);
            old.swap_remove(running.expect("two peers never share a key"))
        }
    });
    kept.collect()
}

fn open_ports(pair: &Pair, plan: &PairPlan) -> Result<Ports> {
    if pair.driver != Driver::Packet {
        bail!("pair {}: only driver = \"packet\" moves frames in this version", pair.name);
    }
    let open = |interface: &str| -> Result<Box<dyn Port + Send>> {
        Ok(Box::new(PacketPort::open(interface, PacketOptions::default())?))
    };
    let own = match &plan.policy.own {
        None => None,
        Some(own) => {
            let mut name = format!("weir-{}", pair.name);
            name.truncate(INTERFACE_NAME_MAX);
            let options = TapOptions {
                mtu: plan.policy.wire_mtu.into(),
                mac: Some(own.mac.0),
                addresses: own.addresses.clone(),
                ..TapOptions::default()
            };
            Some(Box::new(TapPort::open(&name, &options)?) as Box<dyn Port + Send>)
        }
    };
    Ok(Ports { host: open(&pair.host)?, wire: open(&pair.wire)?, own })
}

/// The clock that frames are stamped with.
fn clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Random bits that key the flow tables: nobody outside can make their entries collide.
fn seed() -> Result<u128> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(u128::from_ne_bytes(bytes))
}
