//! A worker as others have it: what it can be told, and how it answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_engine::esp::sa::Fingerprint;
use weir_engine::pipeline::{Associations, Left, PolicyError, Usage};
use weir_store::evidence::Snapshot;

use super::{Worker, WorkerSetup};
use crate::daemon::pair::kernel_esp::KernelPlan;
use crate::daemon::pair::plan::PairPlan;
use crate::daemon::pair::prepare::{Prepared, ReplayFile, Running};
use crate::daemon::pair::publish::{Board, Publication};
use crate::daemon::pair::workers::WorkerParts;

/// Commands that wait for a worker, at most.
const COMMANDS_MAX: usize = 16;

/// How long a worker may take to answer; a batch takes microseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What a worker can be told.
pub enum WorkerCommand {
    /// Say whether this plan can be taken, and hold it.
    Prepare(Box<Prepared>, Sender<Result<(), PolicyError>>),
    /// From the next batch on, the plan that is held. Associations that it keeps go on with their
    /// numbers; tell how far the others went.
    Commit(Sender<Left>),
    /// Forget the plan that is held.
    Discard,
    /// Have peers use other associations; tell how far those went that they have no more.
    Change(Vec<AssociationChange>, Sender<Result<Left, PolicyError>>),
    /// Send what the evidence ring holds; nothing where there is none.
    Evidence(Sender<Option<Snapshot>>),
    /// Send what front ends must know.
    Usage(Sender<WorkerUsage>),
    /// End, after the batch at hand.
    Stop,
}

/// Other associations of one peer, which nothing else of a plan depends on.
#[derive(Debug)]
pub struct AssociationChange {
    /// The peer's index in the policy in force.
    pub peer: usize,
    /// What is to seal.
    pub seal_spi: Option<u32>,
    /// What is to open.
    pub open_spis: Vec<u32>,
    /// Those of them that the peer has not.
    pub new: Associations,
    /// Where the numbers are kept that the new ones accept.
    pub replay_files: Vec<ReplayFile>,
}

/// What a worker's associations did.
#[derive(Debug, Default)]
pub struct WorkerUsage {
    /// Each association.
    pub associations: Vec<Usage>,
    /// Peers that a packet wanted an association of, with its source and destination.
    pub wanted: Vec<(usize, [[u8; 16]; 2])>,
}

/// A running worker.
#[derive(Debug)]
pub struct WorkerHandle {
    /// The pair's name.
    pub name: String,
    commands: SyncSender<WorkerCommand>,
    board: Arc<Board>,
    /// Until somebody waited for its end.
    thread: Option<JoinHandle<Result<()>>>,
    /// What it runs, and what it runs once it is told [`WorkerCommand::Commit`].
    running: Vec<Running>,
    next_running: Vec<Running>,
    /// Keys of the associations that the kernel has.
    by_kernel: Vec<[Fingerprint; 2]>,
}

impl WorkerHandle {
    /// Starts to move frames with `parts`.
    ///
    /// # Errors
    /// The plan cannot be carried out.
    pub fn start(setup: WorkerSetup, parts: WorkerParts) -> Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let name = setup.pair.name.clone();
        let running = setup.plan.running.clone();
        let by_kernel = parts.by_kernel.clone();
        let thread_name = match parts.number {
            0 => format!("pair {name}"),
            number => format!("pair {name} {number}"),
        };
        let mut worker = Worker::new(setup, parts, received)?;
        let board = worker.publisher.board();
        let thread = std::thread::Builder::new().name(thread_name).spawn(move || worker.run())?;
        let thread = Some(thread);
        Ok(Self { name, commands, board, thread, running, next_running: Vec::new(), by_kernel })
    }

    /// The associations that it runs.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// Whether the kernel has other keys than `plan` wants: those stay as they are until a restart.
    pub fn has_other_kernel_keys(&self, plan: &PairPlan) -> bool {
        let keys = plan.kernel.iter().filter_map(KernelPlan::fingerprints);
        !keys.eq(self.by_kernel.iter().copied())
    }

    /// Has it hold `plan` until [`WorkerHandle::commit`] or [`WorkerCommand::Discard`].
    ///
    /// # Errors
    /// It cannot take this plan, or does not answer.
    pub fn offer(&mut self, plan: Prepared) -> Result<()> {
        let next_running = plan.running.clone();
        let (answer, answers) = channel();
        if !self.tell(WorkerCommand::Prepare(Box::new(plan), answer)) {
            bail!("takes no commands");
        }
        answers.recv_timeout(ANSWER_TIMEOUT).context("does not answer")??;
        self.next_running = next_running;
        Ok(())
    }

    /// Has it put the plan that it holds in force. What is received then, by
    /// [`WorkerHandle::settled`], says how far the associations went that it has no more.
    pub fn commit(&mut self) -> Receiver<Left> {
        self.running = std::mem::take(&mut self.next_running);
        let (answer, answers) = channel();
        // False: it has ended, and nothing will be received.
        self.tell(WorkerCommand::Commit(answer));
        answers
    }

    /// Has peers use other associations.
    ///
    /// # Errors
    /// It cannot, and nothing has changed; or it does not answer.
    pub fn change(&self, changes: Vec<AssociationChange>) -> Result<Left> {
        let (answer, answers) = channel();
        if !self.tell(WorkerCommand::Change(changes, answer)) {
            bail!("takes no commands");
        }
        Ok(answers.recv_timeout(ANSWER_TIMEOUT).context("does not answer")??)
    }

    /// Waits until a plan is in force.
    ///
    /// # Errors
    /// The worker has ended, or does not answer.
    pub fn settled(answers: &Receiver<Left>) -> Result<Left> {
        answers.recv_timeout(ANSWER_TIMEOUT).context("does not put its plan in force")
    }

    /// The counters that it published last.
    ///
    /// # Errors
    /// It has published none for longer than it may be silent.
    pub fn latest(&self) -> Result<Arc<Publication>> {
        let latest = self.board.latest();
        latest
            .filter(|it| it.taken().elapsed() < ANSWER_TIMEOUT)
            .with_context(|| format!("pair {} does not answer", self.name))
    }

    /// What its associations did, and what it lacks.
    ///
    /// # Errors
    /// It does not answer.
    pub fn usage(&self) -> Result<WorkerUsage> {
        let (answer, answers) = channel();
        if !self.tell(WorkerCommand::Usage(answer)) {
            bail!("pair {} takes no commands", self.name);
        }
        answers.recv_timeout(ANSWER_TIMEOUT).context("does not answer")
    }

    /// What its evidence ring holds; `None`: it has none.
    ///
    /// # Errors
    /// It does not answer.
    pub fn evidence(&self) -> Result<Option<Snapshot>> {
        let (answer, answers) = channel();
        if !self.tell(WorkerCommand::Evidence(answer)) {
            bail!("pair {} takes no commands", self.name);
        }
        let answer = answers.recv_timeout(ANSWER_TIMEOUT);
        answer.with_context(|| format!("pair {} does not answer", self.name))
    }

    /// Tells it something; false when it ended or does not take commands any more.
    pub fn tell(&self, command: WorkerCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Whether it ended, which it does by itself only when a port is lost.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Why it ended.
    pub fn join(mut self) -> Result<()> {
        let panicked = |_| Err(anyhow::anyhow!("the worker of pair {} panicked", self.name));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }
}

#[cfg(test)]
impl WorkerHandle {
    /// One whose commands a test carries out.
    pub(in crate::daemon::pair) fn played() -> (Self, Receiver<WorkerCommand>) {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let handle = Self {
            name: "played".to_owned(),
            commands,
            board: Arc::default(),
            thread: None,
            running: Vec::new(),
            next_running: Vec::new(),
            by_kernel: Vec::new(),
        };
        (handle, received)
    }
}

impl Drop for WorkerHandle {
    /// When a gateway does not come to live, what its workers put into the kernel goes with them.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // False: it has ended.
        let _ = self.commands.send(WorkerCommand::Stop);
        let _ = thread.join();
    }
}
