//! `weir verify`: test folders in suricata-verify's format, run by our detector and judged by what
//! they say of EVE's events.
//!
//! ```text
//!   DIR --case--> capture, rules, settings --run--> events --outputs--> files --check--> passed,
//!                                                                                 or why not
//! ```

pub mod beside;
pub mod case;
pub mod check;
mod dress;
mod http;
mod outputs;
mod run;
mod timeouts;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use case::Skipped;
use check::Made;

/// Folders within folders, at most.
const DEPTH_MAX: usize = 8;

/// What became of all tests.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Tests all of whose checks hold.
    pub passed: u64,
    /// Tests with one that does not.
    pub failed: u64,
    /// Tests that are not for us.
    pub skipped: u64,
    /// Each of them.
    pub cases: Vec<Outcome>,
}

/// What became of a test.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Its folder, from where was looked.
    pub name: String,
    /// `passed`, `failed` or `skipped`.
    pub result: &'static str,
    /// Why, where it did not pass; where it did, which rules did not run.
    pub reason: String,
}

/// Runs every test below `folder`, or those before `is_over`.
///
/// # Errors
/// A folder cannot be read, or there is no test. A test that cannot be run is one that failed.
pub fn run(folder: &Path, is_over: &AtomicBool) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    for test in tests(folder)?.into_iter().take_while(|_| !is_over.load(Relaxed)) {
        let name = name(&test, folder);
        let (result, reason) = match one(&test) {
            Ok(Ok(Judged { reasons, refused })) if reasons.is_empty() => {
                ("passed", refused.join("; "))
            }
            Ok(Ok(Judged { reasons, .. })) => ("failed", reasons.join("; ")),
            Ok(Err(Skipped(why))) => ("skipped", why),
            Err(error) => ("failed", format!("{error:#}")),
        };
        match result {
            "passed" => report.passed += 1,
            "failed" => report.failed += 1,
            _ => report.skipped += 1,
        }
        report.cases.push(Outcome { name, result, reason });
    }
    Ok(report)
}

/// The tests at `folder` or below it, in the order of their names.
fn tests(folder: &Path) -> Result<Vec<PathBuf>> {
    let folders = find(folder)?;
    if folders.is_empty() {
        bail!("{}: no folder with a test.yaml is there or below", folder.display());
    }
    Ok(folders)
}

/// What a test is called: its folder, below `folder`; where it is that, its own name.
fn name(test: &Path, folder: &Path) -> String {
    let below = test.strip_prefix(folder).ok().filter(|it| !it.as_os_str().is_empty());
    let own = || fs::canonicalize(test).ok()?.file_name().map(PathBuf::from);
    below.map(Path::to_owned).or_else(own).as_deref().unwrap_or(test).display().to_string()
}

/// Folders are looked into once, whatever links lead to them: the nearest first.
fn find(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let mut level = vec![folder.to_owned()];
    for _ in 0..=DEPTH_MAX {
        let mut below = Vec::new();
        for folder in level {
            if !seen.insert(fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone())) {
                continue;
            }
            let entries =
                fs::read_dir(&folder).with_context(|| format!("cannot read {folder:?}"))?;
            let inside: Vec<PathBuf> = entries.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
            below.extend(inside.into_iter().filter(|it| it.is_dir()));
            if folder.join("test.yaml").is_file() {
                found.push(folder);
            }
        }
        below.sort();
        level = below;
    }
    found.sort();
    Ok(found)
}

/// What is said of a test that ran.
#[derive(Default)]
struct Judged {
    /// Why it fails; empty: it passes.
    reasons: Vec<String>,
    /// Rules that did not run, and why.
    refused: Vec<String>,
}

impl From<Vec<String>> for Judged {
    fn from(reasons: Vec<String>) -> Self {
        Self { reasons, ..Self::default() }
    }
}

fn one(folder: &Path) -> Result<Result<Judged, Skipped>> {
    let case = match case::read(folder)? {
        Ok(case) => case,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let made = tempfile::tempdir().context("no folder for what a test makes")?;
    let [before, between] = &case.scripts;
    let shell = |events: &[Value], scripts: &[String]| -> Option<String> {
        let made = Made { events, folder: made.path(), test: folder };
        scripts.iter().find_map(|it| made.shell(it).err())
    };
    if let Some(why) = shell(&[], before) {
        return Ok(Ok(vec![why].into()));
    }
    let run::Run { events, refused, log, is_refused } = run::run(&case, made.path())?;
    let is_fatal = case.is_strict || (case.is_usual && case.exit_code != 0);
    let code = i64::from(is_refused || (is_fatal && !refused.is_empty()));
    if code != case.exit_code {
        let mut reasons = vec![format!("it ends with {code}, not {}", case.exit_code)];
        reasons.extend(refused);
        return Ok(Ok(reasons.into()));
    }
    outputs::write(&case, &events, made.path())?;
    outputs::write_log(&log, made.path())?;
    if let Some(why) = shell(&events, between) {
        return Ok(Ok(vec![why].into()));
    }
    let events: Vec<Value> = outputs::of_eve_json(&case, &events).cloned().collect();
    let looked_at = Made { events: &events, folder: made.path(), test: folder };
    let mut reasons: Vec<String> = case
        .checks
        .iter()
        .filter_map(|(kind, check)| check::failed(kind, check, &looked_at))
        .collect();
    if !reasons.is_empty() {
        reasons.extend(refused.iter().cloned());
    }
    Ok(Ok(Judged { reasons, refused }))
}
