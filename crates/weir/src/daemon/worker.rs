//! One pair of ports, one engine, one thread: moves frames between the ports until told to stop.

use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use super::plan::PairPlan;
use super::state::Reserver;
use crate::api::dto::PairSnapshot;
use crate::config::settings::{Limits, Pair};

/// Commands that wait for a worker, at most.
const COMMANDS_MAX: usize = 16;

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
    /// Opens the ports and starts to move frames.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub fn start(setup: WorkerSetup) -> Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let name = setup.pair.name.clone();
        let thread = std::thread::Builder::new()
            .name(format!("pair {name}"))
            .spawn(move || run(setup, &received))?;
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

fn run(setup: WorkerSetup, commands: &Receiver<WorkerCommand>) -> Result<()> {
    let mut plan = setup.plan;
    loop {
        match commands.recv_timeout(Duration::from_millis(100)) {
            Ok(WorkerCommand::Swap(next)) => plan = *next,
            Ok(WorkerCommand::Snapshot(answer)) => {
                let snapshot = PairSnapshot {
                    name: setup.pair.name.clone(),
                    policy_epoch: plan.policy.epoch,
                    ..PairSnapshot::default()
                };
                let _ = answer.send(snapshot);
            }
            Ok(WorkerCommand::Stop) => return Ok(()),
            Err(_) => {}
        }
    }
}
