//! Everything that CI runs, with one plain line at the end.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::{packages, skips, suite};

/// Runs every step; all of them, also after one has failed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut good = true;
    let mut step = |name: &str, action: &mut dyn FnMut() -> Result<bool>| -> Result<bool> {
        println!("== {name}");
        let started = Instant::now();
        let passed = action()?;
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("== {name}: {verdict}, {} s", started.elapsed().as_secs());
        good &= passed;
        Ok(passed)
    };
    step("fmt", &mut || {
        let status =
            Command::new(&cargo).args(["fmt", "--all", "--check"]).current_dir(root).status();
        Ok(status.context("cannot run cargo")?.success())
    })?;
    step("tidy", &mut || crate::tidy::run(root))?;
    step("licences and sources", &mut || crate::terms::run(root, &cargo))?;
    let mut tests = None;
    let before = suite::worked()?;
    step("build", &mut || {
        tests = suite::build(root, &cargo)?;
        Ok(tests.is_some())
    })?;
    let of_build = suite::worked()? - before;
    let (mut tally, mut of_tests) = (Tally::default(), Duration::ZERO);
    if let Some(built) = tests {
        step("tests and docs", &mut || {
            let (good, worked) = built.run(root, &cargo, &mut tally)?;
            of_tests = worked;
            Ok(good)
        })?;
    }
    print_worked(of_build, of_tests)?;
    for reason in &tally.skipped {
        println!("SKIPPED: {reason}");
    }
    if packages::are_complete() {
        for reason in skips::unknown(&tally.skipped) {
            println!("FAILED: a skip that is not in xtask/skips.txt: {reason}");
            good = false;
        }
    }
    for name in &tally.unsteady {
        println!("UNSTEADY: {name} failed, and passed when it ran again alone");
    }
    let (skipped, unsteady) = (tally.skipped.len(), tally.unsteady.len());
    let Tally { passed, failed, .. } = tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped, {unsteady} unsteady");
    Ok(good && tally.failed == 0)
}

/// Prints the processor time so far, and what these took of it.
fn print_worked(of_build: Duration, of_tests: Duration) -> Result<()> {
    let all = suite::worked()?;
    let rest = all.saturating_sub(of_build + of_tests);
    let [all, of_build, of_tests, rest] = [all, of_build, of_tests, rest].map(|it| it.as_secs());
    println!(
        "processor time: {all} s, {of_build} of the build, {of_tests} of the tests, {rest} of \
         docs and the rest"
    );
    Ok(())
}
