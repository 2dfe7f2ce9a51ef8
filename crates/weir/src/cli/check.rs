//! `weir check`: what is wrong with a configuration.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::args::CheckArgs;
use super::{EXIT_USAGE, print_json};
use crate::config::problem::Severity;
use crate::config::{self, KeyAccess, Problems};
use crate::daemon::control::{alert_files, preflight};
use crate::machine::Machine;

#[derive(Serialize)]
struct CheckReport {
    accepted: bool,
    #[serde(flatten)]
    problems: Problems,
}

/// Runs `weir check`.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &CheckArgs) -> Result<ExitCode> {
    let (problems, pairs) = match config::load(&args.file, KeyAccess::IfPermitted) {
        Ok(loaded) => {
            let mut problems = loaded.problems;
            for what in preflight::missing_ports(&loaded.settings) {
                problems.warning_in_file(what, "`weir up` waits for it, and then fails");
            }
            alert_files::check(&loaded.settings, &mut problems);
            if let Ok(machine) = Machine::read() {
                preflight::check_mtu(&loaded.settings, &machine, &mut problems);
                preflight::check_mirrors(&loaded.settings, &machine, &mut problems);
            }
            (problems, loaded.settings.pairs.len())
        }
        Err(problems) => (problems, 0),
    };
    let accepted = !problems.refused();
    if args.json {
        print_json(&CheckReport { accepted, problems })?;
    } else {
        eprint!("{problems}");
        let file = args.file.display();
        if accepted {
            let warnings = problems.count(Severity::Warning);
            println!("{file}: accepted; pairs: {pairs}, warnings: {warnings}");
        } else {
            eprintln!("{file}: refused; errors: {}", problems.count(Severity::Error));
        }
    }
    Ok(if accepted { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) })
}
