//! That this machine is not a copy: cloned while it runs, or taken back to a snapshot. Two machines
//! then have one memory, and would use the same numbers under the same keys.
//!
//! ```text
//!   hypervisor: new generation --> kernel: uevent --> all workers stop
//!       --> keys of files and front ends are refused --> a new start agrees on new keys
//! ```

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use weir_port::VmGeneration;

/// Woken by the kernel, and by the end; beyond that, there is nothing to look at.
const PAUSE: Duration = Duration::from_secs(3600);

/// Watches until it is dropped.
#[derive(Debug)]
pub(in crate::daemon) struct VmWatch {
    /// Its end wakes the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl VmWatch {
    /// Has `tell` called each time that the machine turns out to be a copy. Linux tells since 6.8.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub(in crate::daemon) fn start(tell: impl Fn() + Send + 'static) -> Result<Self> {
        let events = VmGeneration::open().context("cannot hear of a new VM generation")?;
        let (stopped, stop) = pipe()?;
        let thread = std::thread::Builder::new().name("vm".into());
        let thread = thread.spawn(move || watch(events, &stopped, tell))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

fn watch(mut events: VmGeneration, stopped: &PipeReader, tell: impl Fn()) {
    let descriptors = [stopped.as_raw_fd(), events.poll_fd()];
    loop {
        let is_woken = weir_port::wait(&descriptors, PAUSE).unwrap_or(false);
        if events.take() {
            tell();
        }
        // Nothing is ever written into the pipe: it ends.
        if is_woken && weir_port::wait(&descriptors[..1], Duration::ZERO).unwrap_or(true) {
            return;
        }
    }
}

impl Drop for VmWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It neither fails nor waits for anybody.
            let _ = thread.join();
        }
    }
}
