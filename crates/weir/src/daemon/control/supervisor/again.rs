//! A new start in the same process with the configuration in force, when a port became another
//! interface or lost its guard (`port_watch`). Everything is opened anew, as after a crash, and no
//! traffic passes meanwhile. A trial goes on, and remembers which ports there were before it. The
//! same happens when the machine turns out to be a copy of another (`vm_watch`), so that its agreed
//! keys are not used by both.

use std::time::Duration;

use super::trial::{PortsBefore, Start, Trial};
use super::{End, Failure, Gateway, Options, accept_for_start};
use crate::config::Source;
use crate::config::rules::Detection;
use crate::daemon::control::history::History;
use crate::daemon::control::lock::{PATIENCE, name_lock};
use crate::daemon::pair::workers::PairWorkers;
use crate::daemon::watch::port_watch::PortWatch;

/// Ports that were there a moment ago, and are not any more, are waited for so long.
const WAIT: Duration = Duration::from_secs(5);

/// What one start hands to the next.
pub(super) struct Again {
    source: Source,
    rules: Option<Detection>,
    trial: Option<Trial>,
    rolled_back: Option<String>,
    rollbacks: u64,
    left: Left,
}

/// What goes on between two gateways of one process.
#[derive(Default)]
pub(super) struct Left {
    pub(super) before: Option<PortsBefore>,
    /// Shuts ports until the next gateway has a watch of its own.
    pub(super) watch: Option<PortWatch>,
}

impl Gateway {
    /// Ends all sealing at once, refuses the keys that a copy of this machine has too, and begins
    /// anew, which agrees on new ones.
    pub(super) fn begin_as_copy(&mut self) -> anyhow::Result<End> {
        self.workers.iter().for_each(PairWorkers::stop);
        let keys = self.store.distrust()?;
        tracing::error!(
            keys,
            "this machine was cloned or went back to a snapshot: all keys of files and front ends \
             that it knows are refused from now on, and all is opened anew"
        );
        self.note("new VM generation", "keys refused");
        Ok(End::Again(Box::new(self.leave())))
    }

    /// Leaves what a new start needs; this gateway then ends, with no trial of its own.
    pub(super) fn leave(&mut self) -> Again {
        Again {
            source: self.source.clone(),
            rules: self.settings.detection.clone(),
            trial: self.trial.take(),
            rolled_back: self.rolled_back.take(),
            rollbacks: self.rollbacks,
            left: Left { before: self.before.take(), watch: self.watch.take() },
        }
    }
}

/// A start with what was left.
///
/// # Errors
/// A port went again, or this machine cannot run the configuration any more.
pub(super) fn start_again(again: Again, options: &Options) -> Result<Start, Failure> {
    let Again { source, rules, trial, rolled_back, rollbacks, left } = again;
    let accepted = accept_for_start(source, rules.as_ref(), options, WAIT)?;
    let within = trial.as_ref().map(Trial::left);
    Ok(Start {
        name_lock: name_lock(&accepted.settings, PATIENCE)?,
        history: History::open(&accepted.settings.gateway)?,
        accepted,
        within,
        way_back: trial.and_then(|trial| trial.way_back),
        rolled_back,
        rollbacks,
        left: Some(left),
    })
}
