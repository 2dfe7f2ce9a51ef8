//! A configuration that comes by the operators' socket: the gateway's file is as it was until
//! somebody confirms.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Gid, Uid, chown};

use super::Gateway;
use super::reading::Wanted;
use crate::api::dto::{ConfigureRequest, Response, RunningConfiguration};
use crate::config::Source;

/// Seconds of a trial, at least and at most.
const TRIAL_S: std::ops::RangeInclusive<u64> = 5..=86_400;

impl Gateway {
    /// Does what is asked, and writes into the log book for whom. What is to be read first is
    /// answered later.
    pub(super) fn configure(
        &mut self,
        by: String,
        request: ConfigureRequest,
        answer: Sender<Response>,
    ) {
        let what = request.to_string();
        let is_change = !matches!(request, ConfigureRequest::Show);
        let done = match request {
            ConfigureRequest::Show => Ok(None),
            ConfigureRequest::Check { text } => {
                let source = self.candidate(text);
                return self.read(source, Wanted::Check { by, what, answer });
            }
            ConfigureRequest::Try { text, within_s } => match self.may_try(within_s) {
                Ok(within) => {
                    let source = self.candidate(text);
                    return self.read(source, Wanted::Try { within, by, what, answer });
                }
                Err(error) => Err(error),
            },
            ConfigureRequest::Confirm => self.keep_text().map(|()| None),
            ConfigureRequest::Rollback => self.roll_back_asked().map(|_| None),
        };
        let _ = answer.send(self.configured(&by, &what, is_change, done));
    }

    /// What `done` came to, told to who asked and, of a change, to the log book.
    pub(super) fn configured(
        &mut self,
        by: &str,
        what: &str,
        is_change: bool,
        done: Result<Option<String>>,
    ) -> Response {
        if is_change {
            let outcome = match &done {
                Ok(None) => "done".to_owned(),
                Ok(Some(problems)) => format!("refused: {problems}"),
                Err(error) => format!("{error:#}"),
            };
            self.told(by, what, &outcome);
            tracing::info!(by, what, outcome, "the configuration, by the operators' socket");
        }
        let holds_key = self.settings.associations().any(|it| it.key.is_inline());
        match done {
            Ok(problems) => Response::Configured(RunningConfiguration {
                configuration: self.configuration(),
                text: (!holds_key).then(|| self.source.text.clone()),
                problems,
            }),
            Err(error) => Response::Error(format!("{error:#}")),
        }
    }

    /// Writes into the log book what was asked, by whom, and how it ended.
    pub(super) fn told(&self, by: &str, what: &str, outcome: &str) {
        self.alerts.note(by, what, outcome);
        if let Some(recorder) = &self.recorder {
            recorder.note(by, what, outcome);
        }
    }

    /// A text in the place of the gateway's file.
    fn candidate(&self, text: String) -> Source {
        let path = self.options.file.clone();
        let directory = path.parent().unwrap_or(Path::new(".")).to_owned();
        Source { path, directory, text }
    }

    /// Whether a text may be tried, and for how long.
    fn may_try(&self, within_s: u64) -> Result<Duration> {
        ensure!(
            TRIAL_S.contains(&within_s),
            "within_s = {within_s}: write {} to {}",
            TRIAL_S.start(),
            TRIAL_S.end()
        );
        if self.settings.associations().any(|it| it.key.is_inline()) {
            bail!("a key stands in the configuration: put it into a file first, by hand");
        }
        // Tried now, since at the confirmation it would be too late to learn that it cannot be
        // written.
        let beside = beside(&self.options.file);
        written(&beside, &self.options.file, "")?;
        fs::remove_file(&beside).with_context(|| format!("{}", beside.display()))?;
        Ok(Duration::from_secs(within_s))
    }

    /// Writes what is on trial into the gateway's file, and confirms it.
    fn keep_text(&mut self) -> Result<()> {
        ensure!(self.trial.is_some(), "nothing waits to be confirmed");
        let file = &self.options.file;
        let before = fs::read_to_string(file).unwrap_or_default();
        if before != self.source.text {
            let beside = beside(file);
            written(&beside, file, &self.source.text)?;
            fs::rename(&beside, file)
                .with_context(|| format!("cannot replace {}", file.display()))?;
        }
        self.confirm()
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// A file at `path` with `text`, on the disk, for those who may read `like`.
fn written(path: &Path, like: &Path, text: &str) -> Result<()> {
    let failed = || {
        format!(
            "cannot write {}: the gateway must be able to write beside its configuration",
            path.display()
        )
    };
    let metadata = fs::metadata(like).with_context(failed)?;
    let _ = fs::remove_file(path);
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut new = new.with_context(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).with_context(failed)?;
    let owner = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
    chown(path, Some(owner.0), Some(owner.1)).with_context(failed)?;
    let mode = fs::Permissions::from_mode(metadata.permissions().mode() & 0o777);
    fs::set_permissions(path, mode).with_context(failed)
}
