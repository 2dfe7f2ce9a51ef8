//! Everything that CI runs, with one plain line at the end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::{packages, skips, suite};

/// A step of cargo that runs beside the tests, which wait more than they work.
struct Beside {
    name: &'static str,
    words: &'static [&'static str],
}

/// In turn: cargo builds one thing at a time in a target folder.
const BESIDE: [Beside; 2] = [
    // The fuzz targets too, which nobody builds here: their sanitisers need a nightly compiler.
    Beside {
        name: "clippy",
        words: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    },
    Beside {
        name: "doc",
        words: &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"],
    },
];

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
    let lints = thread::scope(|scope| -> Result<_> {
        let lints = scope.spawn(|| BESIDE.map(|it| it.run(root, &cargo)));
        if let Some(built) = tests {
            step("tests", &mut || {
                let (good, worked) = built.run(root, &cargo, &mut tally)?;
                of_tests = worked;
                Ok(good)
            })?;
        }
        Ok(lints.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    for (Beside { name, .. }, ended) in BESIDE.iter().zip(lints) {
        let (passed, took, said) = ended?;
        let verdict = if passed { "ok" } else { "FAILED" };
        if !passed {
            println!("{said}");
        }
        println!("== {name}: {verdict}, {} s beside the tests", took.as_secs());
        good &= passed;
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
         clippy, doc and the rest"
    );
    Ok(())
}

impl Beside {
    /// Whether it succeeded, how long it took, and what it said.
    fn run(&self, root: &Path, cargo: &str) -> Result<(bool, Duration, String)> {
        let started = Instant::now();
        let output = Command::new("nice")
            .args(["-n", "5", cargo])
            .args(self.words)
            .current_dir(root)
            // Its C++ is not compiled for who links no fuzz target.
            .env("CUSTOM_LIBFUZZER_PATH", root.join("target/libfuzzer.a"))
            // Names of private items in the docs of public ones are for who reads the code.
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run cargo for {}", self.name))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.success(), started.elapsed(), said))
    }
}
