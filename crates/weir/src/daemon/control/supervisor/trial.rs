//! A configuration on trial: in force, and taken back by itself unless it is confirmed in time.
//!
//! ```text
//!   up, reload --confirm-within--> unconfirmed --confirm--> the last confirmed one
//!                                       |
//!       time is up, `weir rollback`, stop, crash and restart
//!                                       v
//!       the last confirmed one again; without one: the gateway ends, and the ports are as before
//! ```
//!
//! The way back is read and checked before anything is tried, and kept ready in memory, with the
//! rules that ran: their files may have changed with what is tried. What was taken back is not
//! taken again by itself: neither by a restart nor by SIGHUP. The files behind this are
//! `history`'s; the clock is the monotonic one.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use weir_port::{Guard, GuardMode, Interface};
use weir_store::clock;

use super::again::Left;
use super::parts::rules_digest;
use super::{Accepted, End, Failure, Gateway, Options, accept, accept_for_start, needs_restart};
use crate::api::dto::{ConfigurationSnapshot, ConfigurationState, Response};
use crate::config::settings::Detection;
use crate::config::{Settings, Source, rules};
use crate::daemon::control::history::History;
use crate::daemon::control::lock::{Locks, PATIENCE, name_lock};
use crate::daemon::control::notify;

/// What a gateway begins with.
pub(super) struct Start {
    pub(super) accepted: Accepted,
    pub(super) history: History,
    /// On trial for so long.
    pub(super) within: Option<Duration>,
    pub(super) way_back: Option<Box<Accepted>>,
    /// Why it is not what the file says.
    pub(super) rolled_back: Option<String>,
    pub(super) rollbacks: u64,
    pub(super) name_lock: Locks,
    /// What the gateway before leaves, where this one goes on for it.
    pub(super) left: Option<Left>,
}

/// The file, or the last confirmed configuration where the file's was taken back.
pub(super) fn choose(options: &Options) -> Result<Start, Failure> {
    let source = Source::read(&options.file).map_err(Failure::Configuration)?;
    let (settings, _) = source.understand().map_err(Failure::Configuration)?;
    let name_lock = name_lock(&settings, PATIENCE)?;
    let history = History::open(&settings.gateway)?;
    let was_interrupted = history.was_interrupted()?;
    let digest = || rules::digest(&settings).ok();
    let was_rolled_back = history.was_rolled_back(&source.text, digest)?;
    let last = history.last_confirmed()?.map(|text| Source {
        path: history.last_confirmed_path(),
        directory: source.directory.clone(),
        text,
    });
    let within = options.confirm_within;
    let returns = match was_interrupted {
        true => was_rolled_back || last.is_some(),
        false => was_rolled_back && within.is_none(),
    };
    let start = |accepted, way_back, rolled_back: Option<String>| Start {
        accepted,
        within: within.filter(|_| rolled_back.is_none()),
        way_back,
        rollbacks: u64::from(was_interrupted),
        rolled_back,
        history: history.clone(),
        name_lock,
        left: None,
    };
    if !returns {
        let accepted = accept_for_start(source, None, options, options.wait)?;
        let way_back = last.filter(|_| within.is_some());
        let way_back = way_back.map(|it| accept(it, None, options.administration)).transpose()?;
        return Ok(start(accepted, way_back.map(Box::new), None));
    }
    let because = match was_interrupted {
        true => "the gateway ended while a configuration was unconfirmed",
        false => "nobody confirmed it when it was tried, and it has not changed since",
    };
    let file = options.file.display();
    let Some(last) = last else {
        return Err(Failure::NotConfirmed(format!(
            "{file} was taken back: {because}. Nothing was ever confirmed to go back to; change \
             it, or try it again with --confirm-within"
        )));
    };
    let why = format!("{file} was taken back: {because}");
    tracing::error!("{why}. The last confirmed configuration is used: {}", last.path.display());
    Ok(start(accept_for_start(last, None, options, options.wait)?, None, Some(why)))
}

/// A new start with the way back.
pub(super) fn start_back(back: Accepted, why: String, rollbacks: u64) -> Result<Start> {
    Ok(Start {
        name_lock: name_lock(&back.settings, PATIENCE)?,
        history: History::open(&back.settings.gateway)?,
        accepted: back,
        within: None,
        way_back: None,
        rolled_back: Some(why),
        rollbacks,
        left: None,
    })
}

/// Notes that `text` is in force without a trial. Without the note, the gateway runs all the same.
pub(super) fn note_accepted(history: &History, text: &str) {
    if let Err(error) = history.accept(text) {
        tracing::warn!("the configuration in force is not noted as confirmed: {error:#}");
    }
}

/// What is in force is on trial.
pub(super) struct Trial {
    within: Duration,
    deadline: Instant,
    pub(super) way_back: Option<Box<Accepted>>,
}

impl Trial {
    /// One that ends `within` from now.
    pub(super) fn begin(within: Duration, way_back: Option<Box<Accepted>>) -> Self {
        Self { within, deadline: clock::now() + within, way_back }
    }

    /// How long to sleep, `tick` at most.
    pub(super) fn wait(&self, tick: Duration) -> Duration {
        self.left().min(tick)
    }

    /// Until it is taken back.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(clock::now())
    }
}

impl Gateway {
    /// Whether anything may be taken now.
    pub(super) fn may_take(&self) -> Result<(), Failure> {
        if let Some(trial) = &self.trial {
            return Err(anyhow::anyhow!(
                "configuration {} is unconfirmed for another {} s: `weir confirm {name}` or `weir \
                 rollback {name}` first",
                self.epoch,
                trial.left().as_secs(),
                name = self.settings.gateway.name,
            )
            .into());
        }
        Ok(())
    }

    /// Whether `next` may be taken, on trial if `within` says so.
    pub(super) fn may_take_again(
        &self,
        next: &Accepted,
        within: Option<Duration>,
    ) -> Result<(), Failure> {
        let Accepted { source, settings, .. } = next;
        let digest = || Some(rules_digest(settings));
        if within.is_none() && self.history.was_rolled_back(&source.text, digest)? {
            return Err(anyhow::anyhow!(
                "{} was taken back before and has not changed since, nor have its rules: change \
                 it, or try it again with `weir reload --confirm-within 60s`",
                source.path.display()
            )
            .into());
        }
        Ok(())
    }

    /// Whether `next` still has rules, if rules run and it says that they do: files that are being
    /// replaced, or were moved, are not to leave everything unseen.
    ///
    /// # Errors
    /// It has none any more.
    pub(super) fn may_lose_rules(&self, next: &Accepted) -> Result<(), Failure> {
        let count = |it: &Detection| it.set.as_ref().map_or(0, |it| it.len());
        let before = self.settings.detection.as_ref().map_or(0, count);
        match &next.settings.detection {
            Some(detection) if before > 0 && count(detection) == 0 => Err(anyhow::anyhow!(
                "[rules] names no rule any more, and {before} run: name some, or take [rules] out \
                 of {} to look for nothing",
                next.source.path.display()
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Takes `next`, on trial where that has a time and a way back.
    pub(super) fn take(
        &mut self,
        next: Accepted,
        trial: Option<(Duration, Box<Accepted>)>,
    ) -> Result<(), Failure> {
        let Some((within, way_back)) = trial else {
            self.apply(next)?;
            self.rolled_back = None;
            note_accepted(&self.history, &self.source.text);
            return Ok(());
        };
        self.history.accept(&self.source.text)?;
        self.history.begin(&next.source.text, rules_digest(&next.settings))?;
        self.apply(next).inspect_err(|_| self.history.discard())?;
        self.rolled_back = None;
        self.trial = Some(Trial::begin(within, Some(way_back)));
        Ok(())
    }

    /// `weir confirm`.
    pub(super) fn confirm(&mut self) -> Result<()> {
        if self.trial.is_none() {
            bail!("nothing waits to be confirmed{}", self.rolled_back_words());
        }
        self.history.confirm()?;
        (self.trial, self.before, self.rolled_back) = (None, None, None);
        tracing::info!(epoch = self.epoch, "configuration confirmed");
        notify::ready(&format!("configuration {}", self.epoch));
        Ok(())
    }

    /// `weir rollback`.
    pub(super) fn roll_back_asked(&mut self) -> Result<Response> {
        if self.trial.is_none() {
            bail!("nothing is unconfirmed{}", self.rolled_back_words());
        }
        self.end = self.roll_back("`weir rollback` asked for it");
        Ok(self.configuration_response())
    }

    fn rolled_back_words(&self) -> String {
        self.rolled_back.as_ref().map(|why| format!("; {why}")).unwrap_or_default()
    }

    /// Takes back what is on trial once its time is up.
    pub(super) fn end_of_trial(&mut self) -> Option<End> {
        let trial = self.trial.as_ref().filter(|trial| trial.left().is_zero())?;
        let why = format!("nobody confirmed it within {} s", trial.within.as_secs_f64());
        self.roll_back(&why)
    }

    /// Takes back what is on trial: in place where that can be, or else by an end.
    fn roll_back(&mut self, because: &str) -> Option<End> {
        let trial = self.trial.take()?;
        let why = format!("configuration {} was taken back: {because}", self.epoch);
        tracing::error!("{why}");
        if let Err(error) = self.history.roll_back() {
            tracing::error!("a restart would not know that it was taken back: {error:#}");
        }
        self.rollbacks += 1;
        self.rolled_back = Some(why.clone());
        let Some(back) = trial.way_back else { return Some(End::NotConfirmed(why)) };
        if needs_restart(&self.settings, &back.settings).is_some() {
            return Some(End::Restart(back, why));
        }
        match self.apply(*back) {
            Ok(()) => {
                tracing::info!(epoch = self.epoch, "the last confirmed configuration is in force");
                notify::alarm(&why);
                None
            }
            Err(failure) => {
                // Neither configuration can be used: nothing passes until an operator acts.
                tracing::error!("the last confirmed configuration is not taken:\n{failure:#}");
                let words = format!("{why}, and the one before is not taken: {failure:#}");
                Some(End::NotConfirmed(words))
            }
        }
    }

    /// Says how to keep what is on trial.
    pub(super) fn tell_of_trial(&self) {
        let Some(trial) = &self.trial else { return };
        let (name, seconds) = (&self.settings.gateway.name, trial.left().as_secs_f64().ceil());
        let words = format!(
            "configuration {} is UNCONFIRMED: it is taken back in {seconds} s unless `weir \
             confirm {name}` is said",
            self.epoch
        );
        tracing::warn!("{words}");
        notify::alarm(&words);
    }

    /// How the configuration in force stands.
    pub(super) fn configuration(&self) -> ConfigurationSnapshot {
        let state = match (&self.end, &self.trial) {
            (Some(End::Restart(..) | End::Again(..)), _) => ConfigurationState::Restarting,
            (Some(_), _) => ConfigurationState::Stopping,
            (None, Some(_)) => ConfigurationState::Unconfirmed,
            (None, None) => ConfigurationState::Confirmed,
        };
        let detection = self.settings.detection.as_ref();
        ConfigurationSnapshot {
            epoch: self.epoch,
            state,
            path: self.source.path.clone(),
            directory: self.source.directory.clone(),
            seconds_left: self.trial.as_ref().map(|trial| trial.left().as_secs_f64()),
            rollbacks: self.rollbacks,
            rolled_back_because: self.rolled_back.clone(),
            rules_refused: detection.map_or(0, |it| it.refused as u64),
            rules_warnings: detection.map(|it| it.warnings.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn configuration_response(&self) -> Response {
        Response::Configuration(self.configuration())
    }
}

/// Ports as they were before a gateway took them for the first time.
pub(super) struct PortsBefore(Vec<PairBefore>);

struct PairBefore {
    host: String,
    wire: String,
    is_shut: bool,
    ipv6: Vec<(Interface, String)>,
}

impl PortsBefore {
    /// The ports of `settings`, at this moment.
    pub(super) fn of(settings: &Settings) -> Self {
        let pairs = settings.pairs.iter().map(|pair| {
            let ports = [&pair.host, &pair.wire];
            // What cannot be read counts as shut: nothing is opened by mistake.
            let is_shut = ports.iter().any(|port| Guard::is_attached(port).unwrap_or(true));
            let ipv6 = |port: &&String| {
                let interface = Interface::find(port).ok()?;
                let setting = interface.ipv6_setting()?;
                Some((interface, setting))
            };
            let ipv6 = ports.iter().filter_map(ipv6).collect();
            PairBefore { host: pair.host.clone(), wire: pair.wire.clone(), is_shut, ipv6 }
        });
        Self(pairs.collect())
    }

    /// Makes them so again.
    pub(super) fn restore(self) {
        for PairBefore { host, wire, is_shut, ipv6 } in self.0 {
            let restored = match is_shut {
                true => Guard::attach(&host, &wire, GuardMode::Closed).map(drop),
                false => Guard::detach(&host, &wire),
            };
            match restored {
                Ok(()) if is_shut => tracing::warn!("{host} and {wire} stay shut, as before"),
                Ok(()) => tracing::warn!("{host} and {wire} are open to the kernel, as before"),
                Err(error) => tracing::error!("{host} and {wire} are not as before: {error}"),
            }
            for (interface, setting) in ipv6.iter().filter(|_| !is_shut) {
                if let Err(error) = interface.set_ipv6(setting) {
                    tracing::error!(%error, "IPv6 of a port is not as before");
                }
            }
        }
    }
}
