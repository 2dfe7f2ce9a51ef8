//! `weir verify`: others' tests of detection.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::print_json;
use crate::verify;

const HELP: &str = "\
DIR is a folder of tests as suricata-verify has them, or one test: test.yaml, rules, a capture, and
the part of suricata.yaml that the test needs. Each test runs in a detector of its own. Commands of
the shell that a test holds are run, in a folder for what it makes: look at strangers' tests first.

Example:
  weir verify suricata-verify/tests --json | jq '.cases[] | select(.result != \"passed\")'

Exit codes:
  0  every test passed, or is not for us
  1  some failed, or there are none
  2  the command line is wrong";

/// Arguments of `weir verify`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct VerifyArgs {
    /// A folder of tests, or a test
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `weir verify`.
///
/// # Errors
/// The folder cannot be read.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let report = verify::run(&args.folder)?;
    if args.json {
        print_json(&report)?;
    } else {
        for case in report.cases.iter().filter(|it| it.result != "passed") {
            println!("{}: {}: {}", case.result, case.name, case.reason);
        }
        let verify::VerifyReport { passed, failed, skipped, .. } = report;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
