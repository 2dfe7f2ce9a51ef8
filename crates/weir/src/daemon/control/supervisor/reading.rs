//! Configurations are read and checked by a thread of their own: tens of thousands of rules take
//! seconds to compile, in which the supervisor answers and looks after all else (docs/adr/0223).
//!
//! ```text
//!   SIGHUP, `weir reload`, operators --> thread `configuration` --Read--> taken, or refused
//!   `weir sa export` --------------------^  its keys are told, and nothing is taken
//! ```
//!
//! One is read at a time. Who asks meanwhile is refused; a signal is remembered.

use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Context;
use weir_engine::esp::secret::wipe_stack;

use super::{Accepted, Event, Failure, Gateway, accept, load};
use crate::api::dto::{KeysRequest, Response};
use crate::config::Source;
use crate::config::rules::Detection;
use crate::daemon::control::notify;
use crate::daemon::control::preflight::Administration;

/// As the main thread has.
const STACK_BYTES: usize = 8 << 20;

/// Who wants a configuration read, and what for.
pub(super) enum Wanted {
    /// A signal says that it is to be taken.
    Signal,
    /// It is to be taken, on trial for so long.
    Reload { within: Option<Duration>, answer: Sender<Response> },
    /// An operator asks what is wrong with it.
    Check { by: String, what: String, answer: Sender<Response> },
    /// An operator has it taken on trial.
    Try { within: Duration, by: String, what: String, answer: Sender<Response> },
    /// The keys in use are to be told: the gateway keeps them only expanded.
    Keys { request: KeysRequest, answer: Sender<Response> },
}

impl Wanted {
    fn within(&self) -> Option<Duration> {
        match self {
            Self::Signal | Self::Check { .. } | Self::Keys { .. } => None,
            Self::Reload { within, .. } => *within,
            Self::Try { within, .. } => Some(*within),
        }
    }

    /// Whether what is read is not to be in force.
    fn is_to_look(&self) -> bool {
        matches!(self, Self::Check { .. } | Self::Keys { .. })
    }

    fn refuse(self, why: &str) {
        let answer = match self {
            Self::Signal => return,
            Self::Reload { answer, .. }
            | Self::Check { answer, .. }
            | Self::Try { answer, .. }
            | Self::Keys { answer, .. } => answer,
        };
        let _ = answer.send(Response::Error(why.to_owned()));
    }
}

/// What came of reading one.
pub(super) struct Read {
    next: Result<Accepted, Failure>,
    /// What is in force, read again but for its rules: where a trial may lead back to.
    way_back: Option<Result<Accepted, Failure>>,
}

/// Which configuration is being read.
pub(super) struct Readings {
    events: Sender<Event>,
    wanted: Option<Wanted>,
    /// A signal came meanwhile.
    again: bool,
}

impl Readings {
    pub(super) fn new(events: Sender<Event>) -> Self {
        Self { events, wanted: None, again: false }
    }

    /// The gateway ends: who waits is told.
    pub(super) fn end(&mut self) {
        if let Some(wanted) = self.wanted.take() {
            wanted.refuse("the gateway ended before it had read the configuration");
        }
    }

    /// Reads `source`, and what is `in_force` where a way back is wanted; has this machine judge
    /// them where they are to be `checked`.
    fn start(
        &mut self,
        source: Source,
        in_force: Option<(Source, Option<Detection>)>,
        checked: Option<Administration>,
    ) -> anyhow::Result<()> {
        let events = self.events.clone();
        let read = move || {
            let accept = |source, kept: Option<&Detection>| match checked {
                Some(administration) => accept(source, kept, administration),
                None => load(source, kept).map(|(loaded, _)| loaded),
            };
            let next = accept(source, None);
            let way_back = in_force.filter(|_| next.is_ok());
            let way_back = way_back.map(|(source, kept)| accept(source, kept.as_ref()));
            let read = Box::new(Read { next, way_back });
            // Keys passed over this stack.
            wipe_stack();
            // The gateway may have ended.
            drop(events.send(Event::Read(read)));
        };
        let thread = std::thread::Builder::new().name("configuration".into());
        thread.stack_size(STACK_BYTES).spawn(read).context("no thread to read it")?;
        Ok(())
    }
}

impl Gateway {
    /// Reads the gateway's file for `wanted`.
    pub(super) fn read_file(&mut self, wanted: Wanted) {
        match Source::read(&self.options.file) {
            Ok(source) => self.read(source, wanted),
            Err(problems) => self.conclude(wanted, Err(Failure::Configuration(problems))),
        }
    }

    /// Has `source` read for `wanted`, who hears of it when that is done.
    pub(super) fn read(&mut self, source: Source, wanted: Wanted) {
        match (&self.readings.wanted, &wanted) {
            (None, _) => {}
            (Some(_), Wanted::Signal) => {
                self.readings.again = true;
                return;
            }
            (Some(_), _) => {
                return wanted.refuse("another configuration is being read; ask again in a moment");
            }
        }
        if !wanted.is_to_look() {
            notify::reloading();
        }
        let within = wanted.within();
        let may_be = if wanted.is_to_look() { Ok(()) } else { self.may_take() };
        // A machine that has changed is no reason not to tell the keys.
        let is_checked = !matches!(wanted, Wanted::Keys { .. });
        let checked = is_checked.then_some(self.options.administration);
        let begun = may_be.and_then(|()| {
            let in_force = within.map(|_| (self.source.clone(), self.settings.detection.clone()));
            Ok(self.readings.start(source, in_force, checked)?)
        });
        match begun {
            Ok(()) => self.readings.wanted = Some(wanted),
            Err(failure) => self.conclude(wanted, Err(failure)),
        }
    }

    /// Takes what was read, if that was wanted.
    pub(super) fn was_read(&mut self, read: Read) {
        let Some(wanted) = self.readings.wanted.take() else { return };
        let Read { next, way_back } = read;
        let within = wanted.within();
        let taken = match next {
            Ok(read) if wanted.is_to_look() => {
                if let Wanted::Keys { request, answer } = &wanted {
                    let keys = self.keys(request, &read.keys).map(Response::Keys);
                    let failed = |error| Response::Error(format!("{error:#}"));
                    let _ = answer.send(keys.unwrap_or_else(failed));
                }
                Ok(())
            }
            next => next.and_then(|next| {
                self.may_take_again(&next, within)?;
                self.may_lose_rules(&next)?;
                let way_back = way_back.transpose()?;
                let trial = within.zip(way_back.map(Box::new));
                self.take(next, trial)
            }),
        };
        self.conclude(wanted, taken);
        if std::mem::take(&mut self.readings.again) {
            self.read_file(Wanted::Signal);
        }
    }

    /// Tells who wanted it, and the log book, how it ended.
    fn conclude(&mut self, wanted: Wanted, result: Result<(), Failure>) {
        match wanted {
            Wanted::Signal => self.reloaded(&result),
            Wanted::Reload { answer, .. } => {
                self.reloaded(&result);
                let response = match result {
                    Ok(()) => self.configuration_response(),
                    Err(Failure::Configuration(problems)) => {
                        Response::Refused(problems.to_string())
                    }
                    Err(failure) => Response::Error(format!("{:#}", anyhow::Error::from(failure))),
                };
                let _ = answer.send(response);
            }
            Wanted::Check { by, what, answer } => {
                let problems = Ok(result.err().map(|it| it.to_string()));
                let _ = answer.send(self.configured(&by, &what, false, problems));
            }
            Wanted::Keys { answer, .. } => {
                if let Err(failure) = result {
                    let why = format!("the configuration cannot be read: {failure:#}");
                    let _ = answer.send(Response::Error(why));
                }
            }
            Wanted::Try { by, what, answer, .. } => {
                let done = match result {
                    Ok(()) => Ok(None),
                    Err(Failure::Configuration(problems)) => Ok(Some(problems.to_string())),
                    Err(failure) => Err(failure.into()),
                };
                notify::ready(&format!("configuration {}", self.epoch));
                self.tell_of_trial();
                let _ = answer.send(self.configured(&by, &what, true, done));
            }
        }
    }

    /// Says how a reload ended.
    fn reloaded(&mut self, result: &Result<(), Failure>) {
        match result {
            Ok(()) => {
                tracing::info!(epoch = self.epoch, "configuration accepted");
                self.note("reload", "accepted");
            }
            Err(failure) => {
                self.reloads_refused += 1;
                self.note("reload", "refused");
                tracing::error!(
                    "configuration refused, the one before stays in force:\n{failure:#}"
                );
            }
        }
        notify::ready(&format!("configuration {}", self.epoch));
        self.tell_of_trial();
    }
}
