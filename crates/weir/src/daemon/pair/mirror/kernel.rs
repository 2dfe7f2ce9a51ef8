//! A mirror left to the kernel (docs/adr/0029).

use weir_port::{
    CloneCounters, FrameFilter, Guard, Interface, KernelMirror, KernelMirrors, RunningMirror,
};

use super::{ETHERNET_LEN, MirrorCounters, Settings, Tunnel};
use crate::config::settings::MirrorDirection;

/// A mirror that the kernel may make, and does while its port is there.
pub(super) struct InKernel {
    mirrors: KernelMirrors,
    port: String,
    /// The host's longest packet.
    host_mtu: u32,
    /// With what it had counted at the last look, each loss by its reason.
    running: Option<(RunningMirror, CloneCounters)>,
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) sent: bool,
    pub(super) dropped: bool,
    /// The kernel cannot put outer headers around a copy.
    pub(super) refused: bool,
}

impl InKernel {
    /// `None`: the kernel cannot make these copies. It makes them of whole packets, all or
    /// those of a filter, and onto a port that no guard shuts.
    pub(super) fn new(settings: &Settings, mirrors: &KernelMirrors, host_mtu: u32) -> Option<Self> {
        let Settings { queue_pairs, snap_bytes, port, .. } = settings;
        let is_simple = queue_pairs.is_empty() && snap_bytes.is_none();
        let is_shut = Guard::is_attached(port).unwrap_or(true);
        let is_able = is_simple && !is_shut;
        let port = port.clone();
        is_able.then(|| Self { mirrors: mirrors.clone(), port, host_mtu, running: None })
    }

    /// Has copies made from now on, if the port, of `mtu`, takes the host's longest.
    pub(super) fn start(
        &mut self,
        settings: &Settings,
        filter: Option<&FrameFilter>,
        tunnel: Option<&Tunnel>,
        mtu: usize,
    ) {
        if mtu < self.host_mtu as usize {
            return;
        }
        let len_max = (mtu + ETHERNET_LEN) as u32;
        let outer = tunnel.map(|it| it.outer(len_max));
        if outer == Some(None) {
            return;
        }
        let direction = settings.direction;
        let wanted = KernelMirror {
            port: &settings.port,
            from_host: direction != MirrorDirection::ToHost,
            to_host: direction != MirrorDirection::FromHost,
            filter,
            outer: outer.flatten(),
        };
        match self.mirrors.start(&wanted) {
            Ok(running) => self.running = running.map(|it| (it, CloneCounters::default())),
            Err(error) => {
                let (name, port) = (&settings.name, &settings.port);
                tracing::warn!(mirror = name, port, %error, "the gateway makes the copies itself");
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// What became of copies since the start.
    pub(super) fn counters(&self) -> MirrorCounters {
        let clones = self.now().unwrap_or_default();
        let dropped = lost(&clones);
        MirrorCounters {
            chosen: clones.taken + dropped,
            mirrored: clones.taken,
            truncated: clones.truncated,
            dropped,
            queue_full: clones.queue_full,
            too_large: 0,
            port_down: clones.port_down,
        }
    }

    /// The kernel's counts, each loss by its reason: a port that is down has a queue that takes
    /// nothing, and the kernel says no more.
    fn now(&self) -> Option<CloneCounters> {
        let (running, seen) = self.running.as_ref()?;
        let now = running.counters().ok()?;
        let is_up = Interface::find(&self.port).and_then(|it| it.is_running()).unwrap_or(false);
        let port_down = if is_up { 0 } else { lost(&now).saturating_sub(lost(seen)) };
        let port_down = (seen.port_down + port_down).max(now.port_down);
        Some(CloneCounters { queue_full: lost(&now) - port_down, port_down, ..now })
    }

    /// Has no more copies made. Returns the last counters.
    pub(super) fn stop(&mut self) -> MirrorCounters {
        if let Some((running, _)) = &self.running {
            running.end();
        }
        let last = self.counters();
        self.running = None;
        last
    }

    /// What happened since the last look.
    pub(super) fn look(&mut self) -> Look {
        let Some(now) = self.now() else { return Look::default() };
        let Some((_, seen)) = &mut self.running else { return Look::default() };
        let look = Look {
            sent: now.taken > seen.taken,
            dropped: lost(&now) > lost(seen),
            refused: now.refused > 0,
        };
        *seen = now;
        look
    }
}

fn lost(clones: &CloneCounters) -> u64 {
    clones.queue_full + clones.port_down
}
