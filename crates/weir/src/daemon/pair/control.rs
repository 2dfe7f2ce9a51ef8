//! The control thread of a pair: what asks the kernel, and so may take long, stands in no packet's
//! way.
//!
//! ```text
//!   every 100 ms: all workers live --> the guard's heartbeat
//!                 mirrors: the kernel's copies, ports that went and came back
//!                 what the ports' devices lost
//!                 peers whose ESP the kernel or a NIC does: what their associations did
//!                 steering: what the kernel could not be told before
//!             --> Report: what guard and kernel counted, for any reader
//!   supervisor: mirrors of a plan --commands--> taken before and after the workers take theirs
//!   worker: associations for the kernel --commands--> carried out one by one
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_port::guard::GuardCounters;
use weir_port::{DeviceLosses, DeviceLost, Guard, Interface, KernelMirrors};
use weir_store::clock;

use crate::api::dto::PeerSnapshot;
use crate::config::settings::{Driver, Pair};
use crate::daemon::keys::state::Reserver;
use crate::daemon::pair::kernel_esp::{KernelControl, KernelEsp, KernelOrder, ToKernel};
use crate::daemon::pair::mirror::{self, MirrorControl, MirrorCounters};
use crate::daemon::pair::sharing::Sharing;

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);

/// A worker that gave no sign of life for so many ticks hangs, and the guard hears nothing: half
/// of what the guard waits.
const SILENT_TICKS_MAX: u32 = 5;

/// Commands that wait, at most.
const COMMANDS_MAX: usize = 4;

/// How long the thread may take to obey: it may just be opening ports.
const OBEY_TIMEOUT: Duration = Duration::from_secs(5);

/// A worker's signs of life: raised with each of its ticks.
pub type Pulse = Arc<AtomicU64>;

/// What the thread saw last.
#[derive(Clone, Debug)]
pub struct ControlReport {
    /// What the guard dropped and let pass.
    pub guard: GuardCounters,
    /// What the kernel copied, by the mirrors' names.
    pub mirrors: Vec<(String, MirrorCounters)>,
    /// What the kernel's ESP did, by peer.
    pub kernel: Vec<PeerSnapshot>,
    /// What devices or their drivers lost.
    pub devices: Devices<DeviceLost>,
    /// When it began to look: all in it was so then or later.
    pub taken: Instant,
}

impl ControlReport {
    /// Before the first look.
    fn nothing() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            guard: GuardCounters::default(),
            mirrors: Vec::new(),
            kernel: Vec::new(),
            devices: Devices::default(),
            taken: clock::now(),
        }))
    }
}

/// What the thread looks after.
#[derive(Debug)]
pub struct LookedAfter {
    /// Of the pair's ports.
    pub guard: Guard,
    /// At work before [`PairControl::start`] returns.
    pub mirrors: Vec<MirrorControl>,
    /// By which each worker gives its signs of life.
    pub pulses: Vec<Pulse>,
    /// `None` with one worker.
    pub sharing: Option<Arc<Mutex<Sharing>>>,
}

/// One of something for each device of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Devices<T> {
    /// The host port's.
    pub host: T,
    /// The wire port's.
    pub wire: T,
}

/// What the thread can be told.
pub(super) enum Command {
    /// End the mirrors of other settings than these.
    Keep(Vec<mirror::Settings>, Sender<()>),
    /// Begin these too.
    Add(Vec<MirrorControl>, Sender<()>),
    /// Have the kernel do this.
    Kernel(KernelOrder),
    Stop,
}

/// The running thread.
#[derive(Debug)]
pub struct PairControl {
    commands: SyncSender<Command>,
    report: Arc<Mutex<ControlReport>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl PairControl {
    /// Starts to look after what `pair` has, and after the ESP that the kernel does, whose numbers
    /// are reserved by who is beside it. Returns the worker's way to that.
    ///
    /// # Errors
    /// A port is gone, or there is no thread.
    pub fn start(
        pair: &Pair,
        LookedAfter { guard, mirrors, pulses, sharing }: LookedAfter,
        kernel: Option<(KernelEsp, Reserver)>,
    ) -> Result<(Self, Option<ToKernel>)> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let kernel = kernel.map(|(esp, reserver)| {
            let commands = commands.clone();
            let pass = move |order| match commands.try_send(Command::Kernel(order)) {
                Err(TrySendError::Full(Command::Kernel(order))) => Some(order),
                _ => None,
            };
            KernelControl::new(esp, reserver, Box::new(pass))
        });
        let (kernel, to_kernel) = kernel.unzip();
        let mut thread = Thread {
            host: pair.host.clone(),
            // Frames that AF_XDP takes never come to the kernel's mirrors.
            kernel_mirrors: (pair.driver != Driver::Xdp).then(|| guard.mirrors().clone()),
            guard,
            mirrors: Vec::new(),
            pulses: pulses.into_iter().map(|pulse| (pulse, 0, 0)).collect(),
            sharing,
            kernel,
            devices: Devices {
                host: DeviceLosses::open(&pair.host)?,
                wire: DeviceLosses::open(&pair.wire)?,
            },
            report: ControlReport::nothing(),
        };
        thread.add(mirrors);
        thread.tick()?;
        let report = Arc::clone(&thread.report);
        let name = format!("control {}", pair.name);
        let run = move || {
            let result = thread.run(&received);
            thread.end();
            result
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok((Self { commands, report, thread: Some(thread) }, to_kernel))
    }

    /// What it saw last.
    pub fn report(&self) -> ControlReport {
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

#[cfg(test)]
impl PairControl {
    /// One whose commands a test carries out.
    pub(super) fn played() -> (Self, Receiver<Command>) {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        (Self { commands, report: ControlReport::nothing(), thread: None }, received)
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
    guard: Guard,
    kernel_mirrors: Option<KernelMirrors>,
    mirrors: Vec<MirrorControl>,
    /// With what each said last, and for how many ticks it said no more.
    pulses: Vec<(Pulse, u64, u32)>,
    sharing: Option<Arc<Mutex<Sharing>>>,
    kernel: Option<KernelControl>,
    devices: Devices<DeviceLosses>,
    report: Arc<Mutex<ControlReport>>,
}

impl Thread {
    fn run(&mut self, commands: &Receiver<Command>) -> Result<()> {
        let mut next = clock::now() + TICK;
        loop {
            match commands.recv_timeout(next.saturating_duration_since(clock::now())) {
                Ok(Command::Keep(settings, done)) => {
                    self.mirrors.retain(|it| settings.contains(it.settings()));
                    let _ = done.send(());
                }
                Ok(Command::Add(mirrors, done)) => {
                    self.add(mirrors);
                    let _ = done.send(());
                }
                Ok(Command::Kernel(order)) => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.obey(&mut self.guard, order);
                    }
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    next = clock::now() + TICK;
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
            self.guard.heartbeat()?;
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.tick(&mut self.guard);
        }
        self.mirrors.iter_mut().for_each(MirrorControl::tick);
        if let Some(sharing) = &self.sharing {
            sharing.lock().unwrap_or_else(PoisonError::into_inner).retry();
        }
        let taken = clock::now();
        let guard = self.guard.counters().unwrap_or_default();
        let mirrors = self.mirrors.iter().map(|it| (it.settings().name.clone(), it.counters()));
        let mirrors = mirrors.collect();
        let kernel = self.kernel.as_ref().map(KernelControl::show).unwrap_or_default();
        let Devices { host, wire } = &mut self.devices;
        // A port that is gone takes its workers with it.
        let lost = |device: &mut DeviceLosses| device.read().unwrap_or_default();
        let devices = Devices { host: lost(host), wire: lost(wire) };
        let report = ControlReport { guard, mirrors, kernel, devices, taken };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
        Ok(())
    }

    /// The workers have ended.
    fn end(&mut self) {
        if let Some(kernel) = self.kernel.take()
            && let Err(error) = kernel.stop(&mut self.guard)
        {
            tracing::error!("what the kernel did for peers stays there: {error:#}");
        }
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
