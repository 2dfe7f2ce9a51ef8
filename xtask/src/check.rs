//! Everything that CI runs, one step after the other, with one plain line at the end.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::{packages, skips, suite};

/// Runs every step; all of them, also after one has failed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut good = true;
    let mut step = |name: &str, action: &mut dyn FnMut() -> Result<bool>| -> Result<()> {
        println!("== {name}");
        let started = Instant::now();
        let passed = action()?;
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("== {name}: {verdict}, {} s", started.elapsed().as_secs());
        good &= passed;
        Ok(())
    };
    let call = |arguments: &[&str]| -> Result<bool> {
        let status = Command::new(&cargo).args(arguments).current_dir(root).status();
        Ok(status.context("cannot run cargo")?.success())
    };
    step("fmt", &mut || call(&["fmt", "--all", "--check"]))?;
    step("tidy", &mut || crate::tidy::run(root))?;
    step("clippy", &mut || {
        call(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    })?;
    let mut tally = Tally::default();
    step("tests", &mut || suite::run(root, &cargo, &mut tally))?;
    for reason in &tally.skipped {
        println!("SKIPPED: {reason}");
    }
    if packages::are_complete() {
        for reason in skips::unknown(&tally.skipped) {
            println!("FAILED: a skip that is not in xtask/skips.txt: {reason}");
            good = false;
        }
    }
    let skipped = tally.skipped.len();
    println!("{} passed, {} failed, {skipped} skipped", tally.passed, tally.failed);
    Ok(good && tally.failed == 0)
}
