//! What test programs say, summed up.

use std::collections::BTreeSet;

/// Passed, failed and skipped tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Test programs that came to their end.
    pub(crate) results: u64,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// What tests said about tools or privilege that they miss, and those that never run here.
    pub(crate) skipped: BTreeSet<String>,
    /// Tests that failed, and passed when they ran again alone.
    pub(crate) unsteady: BTreeSet<String>,
    /// Whether the lines of a failure are passing by.
    in_failures: bool,
}

impl Tally {
    /// Takes in a line of a test program, and says whether a reader wants to see it.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        if let Some((_, said)) = line.split_once("SKIPPED: ") {
            self.skipped.insert(said.trim().to_owned());
        }
        if let Some((name, reason)) = line.split_once(" ... ignored") {
            let name = name.strip_prefix("test ").unwrap_or(name);
            self.skipped.insert(format!("{name}{reason}"));
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_failures = false;
            self.results += 1;
            self.passed += count(result, " passed");
            self.failed += count(result, " failed");
            return true;
        }
        if line == "failures:" {
            self.in_failures = true;
        }
        self.in_failures || line.ends_with("... FAILED")
    }

    /// Counts a program that ended without a result.
    pub(crate) fn died(&mut self) {
        self.in_failures = false;
        self.failed += 1;
    }
}

/// The number in front of `word`.
fn count(result: &str, word: &str) -> u64 {
    let before = result.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
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
        assert_eq!((tally.results, tally.passed, tally.failed), (2, 42, 1));
        let skipped = ["b needs root", "c, runs for an hour"].map(str::to_owned);
        assert_eq!(tally.skipped, BTreeSet::from(skipped));
        let hidden = [0, 1, 3, 4, 5, 6, 11];
        assert!(shown.iter().enumerate().all(|(at, shown)| *shown != hidden.contains(&at)));
    }
}
