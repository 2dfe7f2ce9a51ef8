//! `weir verify`: others' tests of detection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Args;

use super::print_json;
use super::read::interrupted;
use crate::verify;
use crate::verify::beside::{self, BesideReport, Compared};

const HELP: &str = "\
DIR is a folder of tests as suricata-verify has them, or one test: test.yaml, rules, a capture, and
the part of suricata.yaml that the test needs. Each test runs in a detector of its own. Commands of
the shell that a test holds are run, in a folder for what it makes: look at strangers' tests first.

With --beside a Suricata runs each test as well, and what one of the two tells and the other does
not is printed; what the tests check is not looked at. Tests with scripts, or with a command that
is not Suricata's, are left out. Not compared are flow_id, pcap_filename, the time of a flow's
event, and, where Suricata tells none of them, community_id, ether, flow and verdict.

Examples:
  weir verify suricata-verify/tests --json | jq '.cases[] | select(.result != \"passed\")'
  weir verify my-tests --beside suricata

Exit codes:
  0  every test passed, or is not for us; with --beside, both ran and nothing differs
  1  some failed, there are none, or Ctrl-C ended it; with --beside, something differs or nothing
     was compared
  2  the command line is wrong";

/// Differences of a test that are printed.
const SHOWN_MAX: usize = 20;

/// Arguments of `weir verify`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct VerifyArgs {
    /// A folder of tests, or a test
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Run each test in this Suricata as well, and print how the events differ
    #[arg(long, value_name = "PROGRAM")]
    pub beside: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `weir verify`.
///
/// # Errors
/// The folder cannot be read.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if let Some(program) = &args.beside {
        return beside(args, program);
    }
    let is_over = interrupted()?;
    let report = verify::run(&args.folder, &is_over)?;
    if args.json {
        print_json(&report)?;
    } else {
        for case in report.cases.iter().filter(|it| !it.reason.is_empty()) {
            println!("{}: {}: {}", case.result, case.name, case.reason);
        }
        let verify::VerifyReport { passed, failed, skipped, .. } = report;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    Ok(if report.failed == 0 { ended(&is_over) } else { ExitCode::FAILURE })
}

fn beside(args: &VerifyArgs, program: &Path) -> anyhow::Result<ExitCode> {
    let tell = |it: &Compared| {
        if args.json {
            return;
        }
        if matches!(it.result, "skipped" | "failed") {
            println!("{}: {}: {}", it.result, it.name, it.reason);
        }
        it.differences.iter().take(SHOWN_MAX).for_each(|one| println!("{}: {one}", it.name));
        if let Some(more) = it.differences.len().checked_sub(SHOWN_MAX).filter(|it| *it > 0) {
            println!("{}: and {more} more, which --json shows", it.name);
        }
    };
    let is_over = interrupted()?;
    let report = beside::run(&args.folder, program, &is_over, tell)?;
    if args.json {
        print_json(&report)?;
    } else {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let all = report.cases.iter().flat_map(|it| &it.differences);
        all.flat_map(|it| it.shared()).for_each(|it| *counts.entry(it).or_default() += 1);
        counts.iter().for_each(|(what, count)| println!("{count:6} {what}"));
        let BesideReport { program, alike, differ, skipped, failed, .. } = &report;
        println!(
            "beside {program}: {alike} alike, {differ} differ, {skipped} skipped, {failed} failed"
        );
    }
    let is_alike = report.differ == 0 && report.failed == 0 && report.alike > 0;
    Ok(if is_alike { ended(&is_over) } else { ExitCode::FAILURE })
}

/// How it ends where nothing is wrong: by Ctrl-C, which is said, or by itself.
fn ended(is_over: &AtomicBool) -> ExitCode {
    if is_over.load(Relaxed) {
        eprintln!("weir: interrupted: the other tests were not run");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
