//! What a mirror needs beside its copies, looked after by the pair's control thread: who makes
//! them, and a port that went and comes back.
//!
//! ```text
//!   control thread: MirrorControl --ports, who copies--> shared <-- Mirror, one a worker
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use weir_port::{FrameFilter, Interface, KernelMirrors};

use super::kernel::InKernel;
use super::{MirrorCounters, Opened, Refused, Settings, Tunnel, open_port};
use crate::config::settings::MirrorDirection;

/// A device is looked for again so many ticks (of 100 ms) after it was lost.
const RETRY_TICKS: u32 = 10;

/// What the control thread and the workers have of a mirror together.
#[derive(Default)]
pub(super) struct Shared {
    /// Whether the kernel makes the copies.
    pub(super) by_kernel: AtomicBool,
    /// Nothing of a worker's last batch got out: is the device still there?
    is_suspect: AtomicBool,
    /// Raised when `ports` changed.
    pub(super) generation: AtomicU64,
    /// It was said that copies do not get out.
    has_complained: AtomicBool,
    /// By worker: what it sends by from now on. `None`: the device is gone, or it has it already.
    ports: Mutex<Vec<Option<Opened>>>,
}

impl Shared {
    /// Says once that copies do not get out, whoever makes them, and once that they do again. When
    /// none did the control thread looks for the device.
    pub(super) fn note(&self, settings: &Settings, sent: bool, dropped: bool) {
        let (mirror, port) = (&settings.name, &settings.port);
        let has_complained = self.has_complained.load(Ordering::Relaxed);
        if dropped && !has_complained {
            self.has_complained.store(true, Ordering::Relaxed);
            tracing::warn!(mirror, port, "copies are dropped: the port is full or down");
        } else if sent && !dropped && has_complained {
            self.has_complained.store(false, Ordering::Relaxed);
            tracing::info!(mirror, "copies get out again");
        }
        if dropped && !sent {
            self.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    /// What `worker` sends by from now on.
    pub(super) fn take_port(&self, worker: usize) -> Option<Opened> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.get_mut(worker).and_then(Option::take)
    }

    fn put_ports(&self, next: Vec<Option<Opened>>) {
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = next;
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// A mirror, for the control thread.
pub struct MirrorControl {
    settings: Settings,
    filter: Option<FrameFilter>,
    tunnel: Option<Tunnel>,
    shared: Arc<Shared>,
    workers: usize,
    /// Of the device; absent while that is gone.
    device: Option<(i32, usize)>,
    ticks_to_retry: u32,
    /// Who may make the copies instead.
    kernel: Option<InKernel>,
    /// What the kernel copied until it stopped.
    counters: MirrorCounters,
    /// Why the port that came back is not taken, as far as it was said.
    refused: Option<String>,
}

impl fmt::Debug for MirrorControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorControl").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl MirrorControl {
    /// For a mirror whose `workers` send by the device of this index and MTU.
    pub(super) fn new(
        settings: &Settings,
        filter: Option<FrameFilter>,
        tunnel: Option<Tunnel>,
        (shared, workers): (Arc<Shared>, usize),
        device: (i32, usize),
    ) -> Self {
        Self {
            settings: settings.clone(),
            filter,
            tunnel,
            shared,
            workers,
            device: Some(device),
            ticks_to_retry: 0,
            kernel: None,
            counters: MirrorCounters::default(),
            refused: None,
        }
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What became of the kernel's copies.
    pub fn counters(&self) -> MirrorCounters {
        let mut counters = self.counters;
        counters += self.kernel.as_ref().map(InKernel::counters).unwrap_or_default();
        counters
    }

    /// Lets the kernel make the copies from now on, where it can; `host_mtu` is the host's.
    pub fn offer(&mut self, kernel: &KernelMirrors, host_mtu: u32) {
        if self.kernel.is_none() {
            self.kernel = InKernel::new(&self.settings, kernel, host_mtu);
            self.start_in_kernel();
        }
    }

    /// Looks after the kernel's copies, and after a port that was lost. Call it ten times a second.
    pub fn tick(&mut self) {
        self.look_after_kernel();
        if self.shared.is_suspect.swap(false, Ordering::Relaxed)
            && let Some((index, _)) = self.device
        {
            let now = Interface::find(&self.settings.port).and_then(|it| it.index());
            if !now.is_ok_and(|now| now == index) {
                self.stop_in_kernel();
                self.device = None;
                self.shared.put_ports((0..self.workers).map(|_| None).collect());
            }
        }
        if self.device.is_some() {
            return;
        }
        self.ticks_to_retry = self.ticks_to_retry.saturating_sub(1);
        if self.ticks_to_retry > 0 {
            return;
        }
        self.ticks_to_retry = RETRY_TICKS;
        match (0..self.workers).map(|_| open_port(&self.settings)).collect::<Result<Vec<_>>>() {
            Ok(opened) => self.take_ports(opened),
            Err(error) => self.say_refusal(&error),
        }
    }

    fn take_ports(&mut self, opened: Vec<Opened>) {
        let Some(Opened { index, mtu, mac, .. }) = opened.first() else { return };
        self.tunnel = self.settings.tunnel.map(|it| Tunnel::new(it, *mac));
        (self.device, self.refused) = (Some((*index, *mtu)), None);
        self.start_in_kernel();
        self.shared.put_ports(opened.into_iter().map(Some).collect());
    }

    fn start_in_kernel(&mut self) {
        let (Some(kernel), Some((_, mtu))) = (&mut self.kernel, self.device) else { return };
        kernel.start(&self.settings, self.filter.as_ref(), self.tunnel.as_ref(), mtu);
        self.shared.by_kernel.store(kernel.is_running(), Ordering::Relaxed);
    }

    /// The workers copy from now on, a moment before the kernel does no more: a packet in between
    /// is copied twice rather than not at all.
    fn stop_in_kernel(&mut self) {
        self.shared.by_kernel.store(false, Ordering::Relaxed);
        if let Some(kernel) = &mut self.kernel {
            self.counters += kernel.stop();
        }
    }

    /// Notes whether the kernel's copies get out, and takes back what it cannot make.
    fn look_after_kernel(&mut self) {
        let Some(kernel) = &mut self.kernel else { return };
        let look = kernel.look();
        if look.refused {
            self.stop_in_kernel();
            self.kernel = None;
            let name = &self.settings.name;
            tracing::warn!(
                mirror = name,
                "the kernel could not encapsulate a packet: the gateway makes the copies now"
            );
        }
        self.shared.note(&self.settings, look.sent, look.dropped);
    }

    /// Says once why a port that came back is not taken.
    fn say_refusal(&mut self, error: &anyhow::Error) {
        let Some(Refused(why)) = error.downcast_ref() else { return };
        if self.refused.as_ref() != Some(why) {
            tracing::error!(mirror = self.settings.name, "nothing is copied: {why}");
            self.refused = Some(why.clone());
        }
    }
}

/// Whether a mirror of these settings that the kernel makes needs to see what goes to the host.
pub(super) fn needs_what_the_host_hears(settings: &Settings) -> bool {
    settings.direction != MirrorDirection::FromHost
}
