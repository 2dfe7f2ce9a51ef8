//! That each port stays the interface that the gateway opened, under its name, with a guard.
//!
//! A driver or devlink reload, a virtual function made again, a move to another namespace and back:
//! under the old name there is a new interface, of which sockets, rings and guard know nothing, and
//! on which the machine's own kernel may speak. The kernel's word about links and tc wakes a thread
//! of its own, that no traffic delays; it looks once a second besides.
//!
//! ```text
//!   new, or without a guard --> shut at once --> all ports there and up --> a new start
//! ```

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_port::{Guard, GuardError, Interface, LinkEvents, Shutter};
use weir_store::clock;

use crate::config::Settings;
use crate::daemon::control::show::link;

/// Between two looks without a word from the kernel.
const LOOK: Duration = Duration::from_secs(1);

/// After a look that found something wrong, the next comes this soon.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A new start is asked for at most this often, so that a program that keeps removing the guard
/// cannot keep the gateway busy with starts.
const STARTS_APART: Duration = Duration::from_secs(1);

/// Watches until it is dropped.
#[derive(Debug)]
pub(in crate::daemon) struct PortWatch {
    /// Its end wakes the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl PortWatch {
    /// Watches the ports of `settings`, as they are now, in the calling thread's network namespace,
    /// and has `shutter` shut them. `tell` hears why a new start is needed once it can be made.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub(in crate::daemon) fn start(
        settings: &Settings,
        shutter: Shutter,
        tell: impl Fn(String) + Send + 'static,
    ) -> Result<Self> {
        let names = settings.pairs.iter().flat_map(|pair| [&pair.host, &pair.wire]);
        let mut watched = Watched {
            ports: names.map(|name| Port::now(name)).collect(),
            shutter,
            since: clock::now(),
            reason: None,
        };
        let events = LinkEvents::open().context("cannot hear of changed links")?;
        let (stopped, stop) = pipe()?;
        let thread = std::thread::Builder::new().name("ports".into());
        let thread = thread.spawn(move || watched.watch(events, &stopped, tell))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for PortWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It neither fails nor waits for anybody.
            let _ = thread.join();
        }
    }
}

struct Watched {
    ports: Vec<Port>,
    shutter: Shutter,
    since: Instant,
    /// Why a new start is needed.
    reason: Option<String>,
}

/// A port by its name.
struct Port {
    name: String,
    /// The interface that has the name; `None`: none has.
    index: Option<i32>,
    /// How its link stood.
    link: &'static str,
}

/// What became of a port since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Gone,
    Anew,
    Unguarded,
}

impl Watched {
    fn watch(&mut self, mut events: LinkEvents, stopped: &PipeReader, tell: impl Fn(String)) {
        loop {
            let is_well = self.look();
            self.tell_if_ready(&tell);
            let pause = if is_well && self.reason.is_none() { LOOK } else { LOOK_AGAIN };
            let descriptors = [stopped.as_raw_fd(), events.poll_fd()];
            let is_woken = weir_port::wait(&descriptors, pause).unwrap_or(false);
            events.take();
            // Nothing is ever written into the pipe: it ends.
            if is_woken && weir_port::wait(&descriptors[..1], Duration::ZERO).unwrap_or(true) {
                return;
            }
        }
    }

    /// Shuts what has no guard. False: something stayed open.
    fn look(&mut self) -> bool {
        let mut is_well = true;
        for port in &mut self.ports {
            let (change, index) = port.look();
            let name = &port.name;
            let link = link(name);
            match (std::mem::replace(&mut port.link, link), link) {
                ("up", "down") => tracing::warn!(port = name, "the link is down"),
                ("down", "up") => tracing::info!(port = name, "the link is up again"),
                _ => {}
            }
            let what = match change {
                Change::None => continue,
                Change::Gone => {
                    port.index = None;
                    tracing::error!(port = name, "the interface is gone; nothing passes there");
                    continue;
                }
                Change::Anew => format!("{name} is another interface than before"),
                Change::Unguarded => format!("somebody took the guard from {name}"),
            };
            match self.shutter.shut(name) {
                Ok(()) => {
                    port.index = index;
                    tracing::error!("{what}; it is shut, and the gateway starts anew");
                    self.reason.get_or_insert(what);
                }
                Err(error) => {
                    // Gone again, as a rule: the next look tells.
                    tracing::error!("{what}, and CANNOT BE SHUT: {error}");
                    is_well = false;
                }
            }
        }
        is_well
    }

    /// A start before all ports are there and up would fail.
    fn tell_if_ready(&mut self, tell: &impl Fn(String)) {
        let is_ready =
            |port: &Port| Interface::find(&port.name).is_ok_and(|it| it.is_up().unwrap_or(false));
        if self.reason.is_some()
            && self.since.elapsed() >= STARTS_APART
            && self.ports.iter().all(is_ready)
        {
            self.since = clock::now();
            self.reason.take().into_iter().for_each(tell);
        }
    }
}

impl Port {
    fn now(name: &str) -> Self {
        Self { name: name.to_owned(), index: index(name), link: link(name) }
    }

    /// What changed, and the interface that has the name now.
    fn look(&self) -> (Change, Option<i32>) {
        let now = index(&self.name);
        let change = match (self.index, now) {
            (None, None) => Change::None,
            (Some(_), None) => Change::Gone,
            (before, Some(now)) if before != Some(now) => Change::Anew,
            // One that cannot be asked is gone by the next look.
            _ => match Guard::is_attached(&self.name) {
                Ok(true) | Err(GuardError::Interface { .. }) => Change::None,
                _ => Change::Unguarded,
            },
        };
        (change, now)
    }
}

fn index(name: &str) -> Option<i32> {
    Interface::find(name).and_then(|it| it.index()).ok()
}
