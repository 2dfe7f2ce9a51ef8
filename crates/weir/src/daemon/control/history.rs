//! Configurations that were accepted, tried and taken back, as files in the state directory.
//!
//! ```text
//!   NAME.last-confirmed.toml   the way back: accepted without a trial, or confirmed
//!   NAME.unconfirmed.toml      on trial; it is there exactly as long as the trial lasts
//!   NAME.rolled-back.toml      taken back; not taken again but for another trial
//!   NAME.*.rules               beside the last two: a digest of the rules that they name
//! ```
//!
//! Every step is one rename: at any moment, a crash leaves the state before it or after it. The
//! texts are the operator's, byte for byte, mode 600 (a key may stand in them).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::config::settings::Gateway;

/// The three files of one gateway.
#[derive(Clone, Debug)]
pub struct History {
    directory: PathBuf,
    name: String,
}

impl History {
    /// The history of `gateway`. Who writes to it holds the gateway's lock.
    ///
    /// # Errors
    /// The state directory cannot be made.
    pub fn open(gateway: &Gateway) -> Result<Self> {
        let directory = gateway.state_dir.clone();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}; are you root?", directory.display()))?;
        Ok(Self { directory, name: gateway.name.clone() })
    }

    /// Where the last confirmed configuration is.
    pub fn last_confirmed_path(&self) -> PathBuf {
        self.path("last-confirmed")
    }

    /// Where the one is that was taken back last.
    pub fn rolled_back_path(&self) -> PathBuf {
        self.path("rolled-back")
    }

    /// The last confirmed configuration; `None`: there was none.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn last_confirmed(&self) -> Result<Option<String>> {
        read(&self.last_confirmed_path())
    }

    /// Whether `text`, with the rules of this digest, is what was taken back last. Rules that
    /// cannot be read count as the same: nothing is taken for them.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn was_rolled_back(&self, text: &str, rules: impl FnOnce() -> Option<u64>) -> Result<bool> {
        if read(&self.rolled_back_path())?.is_none_or(|it| it != text) {
            return Ok(false);
        }
        // One from before the update has no digest.
        let Some(digest) = read(&self.digest_path("rolled-back"))? else { return Ok(true) };
        Ok(rules().is_none_or(|it| it.to_string() == digest))
    }

    /// Notes that `text` is in force without a trial.
    ///
    /// # Errors
    /// The disk refuses; what was confirmed before stays noted.
    pub fn accept(&self, text: &str) -> Result<()> {
        match self.last_confirmed()?.is_some_and(|it| it == text) {
            true => Ok(()),
            false => self.write("last-confirmed", text),
        }
    }

    /// Notes, before it is in force, that `text` is on trial, with the rules of this digest.
    ///
    /// # Errors
    /// The disk refuses: then there must be no trial.
    pub fn begin(&self, text: &str, rules: u64) -> Result<()> {
        self.write_file(&self.digest_path("unconfirmed"), &rules.to_string())?;
        self.write("unconfirmed", text)
    }

    /// The trial never began: what was to be tried could not be.
    pub fn discard(&self) {
        if let Err(error) = fs::remove_file(self.path("unconfirmed")) {
            tracing::warn!(%error, "{} cannot be removed", self.path("unconfirmed").display());
        }
        let _ = fs::remove_file(self.digest_path("unconfirmed"));
    }

    /// What is on trial is the last confirmed one from now on.
    ///
    /// # Errors
    /// The disk refuses: the trial goes on.
    pub fn confirm(&self) -> Result<()> {
        let text = read(&self.path("unconfirmed"))?;
        let rules = read(&self.digest_path("unconfirmed"))?.and_then(|it| it.parse().ok());
        self.rename("unconfirmed", "last-confirmed")?;
        // What was taken back once and is confirmed now may be taken again.
        if text.is_some_and(|it| self.was_rolled_back(&it, || rules).unwrap_or(false)) {
            let _ = fs::remove_file(self.rolled_back_path());
            let _ = fs::remove_file(self.digest_path("rolled-back"));
        }
        let _ = fs::remove_file(self.digest_path("unconfirmed"));
        Ok(())
    }

    /// What is on trial is taken back.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn roll_back(&self) -> Result<()> {
        // First: after a crash between the two, all is done once more.
        let to = self.digest_path("rolled-back");
        match fs::rename(self.digest_path("unconfirmed"), &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot write {}", to.display()))
            }
            _ => self.rename("unconfirmed", "rolled-back"),
        }
    }

    /// Whether a process ended while a configuration was on trial; if so it is taken back now.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn was_interrupted(&self) -> Result<bool> {
        let found = self.path("unconfirmed").exists();
        if found {
            self.roll_back()?;
        }
        Ok(found)
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}.toml", self.name))
    }

    fn digest_path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}.rules", self.name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let to = self.path(to);
        fs::rename(self.path(from), &to)
            .and_then(|()| self.sync())
            .with_context(|| format!("cannot write {}", to.display()))
    }

    fn write(&self, kind: &str, text: &str) -> Result<()> {
        self.write_file(&self.path(kind), text)
    }

    fn write_file(&self, path: &Path, text: &str) -> Result<()> {
        let new = path.with_added_extension("new");
        let write = || -> io::Result<()> {
            let _ = fs::remove_file(&new);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            self.sync()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::settings::OnFailure;

    fn history() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway {
            name: "gw".into(),
            state_dir: folder.path().join("state"),
            run_dir: folder.path().into(),
            on_failure: OnFailure::Closed,
        };
        let history = History::open(&gateway).unwrap();
        (folder, history)
    }

    #[test]
    fn what_is_confirmed_is_the_way_back_and_what_is_taken_back_is_remembered() {
        let (_folder, history) = history();
        assert_eq!(history.last_confirmed().unwrap(), None);
        history.accept("one").unwrap();
        history.begin("two", 7).unwrap();
        assert_eq!(history.last_confirmed().unwrap().as_deref(), Some("one"));
        history.roll_back().unwrap();
        let was_rolled_back = |rules| history.was_rolled_back("two", || rules).unwrap();
        assert!(was_rolled_back(Some(7)));
        assert!(!was_rolled_back(Some(8)), "its rules changed");
        assert!(was_rolled_back(None), "nobody knows what its rules say now");
        assert_eq!(history.last_confirmed().unwrap().as_deref(), Some("one"));
        history.begin("two", 8).unwrap();
        history.confirm().unwrap();
        assert!(was_rolled_back(Some(7)), "other rules were confirmed");
        history.begin("two", 7).unwrap();
        history.confirm().unwrap();
        assert_eq!(history.last_confirmed().unwrap().as_deref(), Some("two"));
        assert!(!was_rolled_back(Some(7)), "it was confirmed since");
    }

    #[test]
    fn a_trial_that_nobody_ended_is_taken_back_once() {
        let (_folder, history) = history();
        history.accept("one").unwrap();
        assert!(!history.was_interrupted().unwrap());
        history.begin("two", 7).unwrap();
        assert!(history.was_interrupted().unwrap());
        assert!(history.was_rolled_back("two", || Some(7)).unwrap());
        assert!(!history.was_interrupted().unwrap());
    }

    #[test]
    fn a_trial_that_could_not_begin_leaves_nothing() {
        let (_folder, history) = history();
        history.begin("two", 7).unwrap();
        history.discard();
        assert!(!history.was_interrupted().unwrap());
        assert!(!history.was_rolled_back("two", || Some(7)).unwrap());
    }

    #[test]
    fn the_files_are_the_owners_alone() {
        let (_folder, history) = history();
        history.accept("key").unwrap();
        let mode = fs::metadata(history.last_confirmed_path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
