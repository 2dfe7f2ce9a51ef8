//! The control thread of a pair: what asks the kernel, and so may take long, stands in no packet's
//! way.
//!
//! ```text
//!   every 100 ms: all workers live --> the guard's heartbeat
//!                 mirrors: the kernel's copies, ports that went and came back
//!                 steering: what the kernel could not be told before
//!             --> Report: what guard and kernel counted, for any reader
//!   supervisor: mirrors of a plan --commands--> taken before and after the workers take theirs
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_port::guard::GuardCounters;
use weir_port::{Guard, Interface, KernelMirrors};

use super::mirror::{self, MirrorControl, MirrorCounters};
use super::sharing::Sharing;
use crate::config::settings::{Driver, Pair};

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);

/// A worker that gave no sign of life for so many ticks hangs, and the guard hears nothing: half
/// of what the guard waits.
const SILENT_TICKS_MAX: u32 = 5;

/// Commands that wait, at most.
const COMMANDS_MAX: usize = 4;

/// How long the thread may take to obey: it may just be opening ports.
const OBEY_TIMEOUT: Duration = Duration::from_secs(5);

/// A pair's guard, which the control thread has, and worker 0 where the kernel does some peer's
/// ESP. No packet waits for it.
#[derive(Clone, Debug)]
pub struct SharedGuard(Arc<Mutex<Guard>>);

impl SharedGuard {
    /// For several threads.
    pub fn new(guard: Guard) -> Self {
        Self(Arc::new(Mutex::new(guard)))
    }

    /// Waits for whoever has it.
    pub fn lock(&self) -> MutexGuard<'_, Guard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's signs of life: raised with each of its ticks.
pub type Pulse = Arc<AtomicU64>;

/// What the thread saw last.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the guard dropped and let pass.
    pub guard: GuardCounters,
    /// What the kernel copied, by the mirrors' names.
    pub mirrors: Vec<(String, MirrorCounters)>,
    /// When it began to look: all in it was so then or later.
    pub taken: Instant,
}

enum Command {
    /// End the mirrors of other settings than these.
    Keep(Vec<mirror::Settings>, Sender<()>),
    /// Begin these too.
    Add(Vec<MirrorControl>, Sender<()>),
    Stop,
}

/// The running thread.
#[derive(Debug)]
pub struct PairControl {
    commands: SyncSender<Command>,
    report: Arc<Mutex<Report>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl PairControl {
    /// Starts to look after `pair`, with `mirrors` at work before this returns. The workers give
    /// their signs of life by `pulses`.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        pair: &Pair,
        guard: SharedGuard,
        mirrors: Vec<MirrorControl>,
        pulses: Vec<Pulse>,
        sharing: Option<Arc<Mutex<Sharing>>>,
    ) -> Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let mut thread = Thread {
            host: pair.host.clone(),
            // Frames that AF_XDP takes never come to the kernel's mirrors.
            kernel_mirrors: (pair.driver != Driver::Xdp).then(|| guard.lock().mirrors().clone()),
            guard,
            mirrors: Vec::new(),
            pulses: pulses.into_iter().map(|pulse| (pulse, 0, 0)).collect(),
            sharing,
            report: Arc::new(Mutex::new(Report {
                guard: GuardCounters::default(),
                mirrors: Vec::new(),
                taken: Instant::now(),
            })),
        };
        thread.add(mirrors);
        thread.tick()?;
        let report = Arc::clone(&thread.report);
        let name = format!("control {}", pair.name);
        let run = move || thread.run(&received);
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { commands, report, thread: Some(thread) })
    }

    /// What it saw last.
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the mirrors of other settings than these, which is done when this returns.
    ///
    /// # Errors
    /// The thread has ended, or does not obey.
    pub fn keep_mirrors(&self, settings: Vec<mirror::Settings>) -> Result<()> {
        self.obey(|done| Command::Keep(settings, done))
    }

    /// Begins these mirrors too, which is done when this returns.
    ///
    /// # Errors
    /// As [`PairControl::keep_mirrors`].
    pub fn add_mirrors(&self, mirrors: Vec<MirrorControl>) -> Result<()> {
        self.obey(|done| Command::Add(mirrors, done))
    }

    fn obey(&self, command: impl FnOnce(Sender<()>) -> Command) -> Result<()> {
        let (done, is_done) = channel();
        self.commands.send(command(done)).ok().context("the pair's control thread has ended")?;
        is_done.recv_timeout(OBEY_TIMEOUT).context("the pair's control thread does not answer")
    }

    /// Whether it ended, which it does by itself only when it cannot reach the guard.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Has it end, and waits for it.
    ///
    /// # Errors
    /// Why it ended.
    pub fn join(mut self) -> Result<()> {
        self.end().unwrap_or(Ok(()))
    }

    fn end(&mut self) -> Option<Result<()>> {
        let thread = self.thread.take()?;
        // Fails where it has ended.
        let _ = self.commands.send(Command::Stop);
        let panicked = |_| Err(anyhow::anyhow!("a pair's control thread panicked"));
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for PairControl {
    /// When a gateway does not come to live, what was put into the kernel goes with it.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

struct Thread {
    host: String,
    guard: SharedGuard,
    kernel_mirrors: Option<KernelMirrors>,
    mirrors: Vec<MirrorControl>,
    /// With what each said last, and for how many ticks it said no more.
    pulses: Vec<(Pulse, u64, u32)>,
    sharing: Option<Arc<Mutex<Sharing>>>,
    report: Arc<Mutex<Report>>,
}

impl Thread {
    fn run(&mut self, commands: &Receiver<Command>) -> Result<()> {
        let mut next = Instant::now() + TICK;
        loop {
            match commands.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Command::Keep(settings, done)) => {
                    self.mirrors.retain(|it| settings.contains(it.settings()));
                    let _ = done.send(());
                }
                Ok(Command::Add(mirrors, done)) => {
                    self.add(mirrors);
                    let _ = done.send(());
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + TICK;
                    self.tick()?;
                }
            }
        }
    }

    fn add(&mut self, mirrors: Vec<MirrorControl>) {
        let host_mtu = Interface::find(&self.host).and_then(|it| it.mtu()).unwrap_or(u32::MAX);
        for mut mirror in mirrors {
            if let Some(kernel) = &self.kernel_mirrors {
                mirror.offer(kernel, host_mtu);
            }
            self.mirrors.push(mirror);
        }
    }

    fn tick(&mut self) -> Result<()> {
        if self.all_live() {
            self.guard.lock().heartbeat()?;
        }
        self.mirrors.iter_mut().for_each(MirrorControl::tick);
        if let Some(sharing) = &self.sharing {
            sharing.lock().unwrap_or_else(PoisonError::into_inner).retry();
        }
        let taken = Instant::now();
        let guard = self.guard.lock().counters().unwrap_or_default();
        let mirrors = self.mirrors.iter().map(|it| (it.settings().name.clone(), it.counters()));
        let mirrors = mirrors.collect();
        let report = Report { guard, mirrors, taken };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
        Ok(())
    }

    fn all_live(&mut self) -> bool {
        for (pulse, last, silent_ticks) in &mut self.pulses {
            let now = pulse.load(Ordering::Relaxed);
            *silent_ticks = if now == *last { *silent_ticks + 1 } else { 0 };
            *last = now;
        }
        self.pulses.iter().all(|(_, _, silent_ticks)| *silent_ticks <= SILENT_TICKS_MAX)
    }
}
