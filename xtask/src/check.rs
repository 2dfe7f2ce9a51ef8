//! Everything that CI runs, one step after the other, with one plain line at the end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

/// Passed, failed and skipped tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    /// What tests said about tools or privilege that they miss, and those that never run here.
    skipped: BTreeSet<String>,
    /// Whether the lines of a failure are passing by.
    in_failures: bool,
}

impl Tally {
    /// Takes in a line of a test program, and says whether a reader wants to see it.
    fn take(&mut self, line: &str) -> bool {
        if let Some((_, said)) = line.split_once("SKIPPED: ") {
            self.skipped.insert(said.trim().to_owned());
        }
        if let Some((name, reason)) = line.split_once(" ... ignored") {
            let name = name.strip_prefix("test ").unwrap_or(name);
            self.skipped.insert(format!("{name}{reason}"));
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_failures = false;
            self.passed += count(result, " passed");
            self.failed += count(result, " failed");
            return true;
        }
        if line == "failures:" {
            self.in_failures = true;
        }
        self.in_failures || line.ends_with("... FAILED")
    }
}

/// The number in front of `word`.
fn count(result: &str, word: &str) -> u64 {
    let before = result.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

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
    step("tests", &mut || test(root, &cargo, &mut tally))?;
    for reason in &tally.skipped {
        println!("SKIPPED: {reason}");
    }
    let skipped = tally.skipped.len();
    println!("{} passed, {} failed, {skipped} skipped", tally.passed, tally.failed);
    Ok(good && tally.failed == 0)
}

/// Runs all tests; everything they said goes to `target/test.log`.
fn test(root: &Path, cargo: &str, tally: &mut Tally) -> Result<bool> {
    let path = root.join("target/test.log");
    let mut log =
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    // One pipe for both streams keeps their order; `--show-output` shows what passing tests said.
    let (reader, writer) = std::io::pipe()?;
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .context("cannot run cargo")?;
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}")?;
        let from_cargo = ["Compiling ", "Running ", "Doc-tests ", "error", "warning"];
        let from_cargo = from_cargo.iter().any(|word| line.trim_start().starts_with(word));
        if tally.take(&line) || from_cargo {
            println!("{line}");
        }
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_skips_are_named_once() {
        let mut tally = Tally::default();
        let said = [
            "running 3 tests",
            "test a ... ok",
            "test b ... FAILED",
            "successes:",
            "SKIPPED: b needs root",
            "test b ... SKIPPED: b needs root",
            "test c ... ignored, runs for an hour",
            "failures:",
            "thread 'b' panicked",
            "test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "successes:",
        ];
        let shown: Vec<bool> = said.iter().map(|line| tally.take(line)).collect();
        assert_eq!((tally.passed, tally.failed), (42, 1));
        let skipped = ["b needs root", "c, runs for an hour"].map(str::to_owned);
        assert_eq!(tally.skipped, BTreeSet::from(skipped));
        let hidden = [0, 1, 3, 4, 5, 6, 11];
        assert!(shown.iter().enumerate().all(|(at, shown)| *shown != hidden.contains(&at)));
    }
}
