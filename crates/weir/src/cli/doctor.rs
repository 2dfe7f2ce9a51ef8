//! `weir doctor`: what this machine can do, and what to change.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use super::args::DoctorArgs;
use super::print_json;
use crate::doctor::{self, Finding, Grade};

#[derive(Serialize)]
struct DoctorReport {
    healthy: bool,
    findings: Vec<Finding>,
}

/// Runs `weir doctor`.
///
/// # Errors
/// The kernel does not tell its interfaces.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let findings =
        doctor::examine(&args.interfaces).context("cannot read the machine's interfaces")?;
    let healthy = findings.iter().all(|finding| finding.grade != Grade::Problem);
    if args.json {
        print_json(&DoctorReport { healthy, findings })?;
    } else {
        print(&findings);
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(findings: &[Finding]) {
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = &finding.area;
            println!("{area}");
        }
        let mark = match finding.grade {
            Grade::Good => " ",
            Grade::Advice => "?",
            Grade::Problem => "!",
        };
        println!("{mark} {}: {}", finding.name, finding.found);
    }
    let changes: Vec<&Finding> = findings.iter().filter(|it| it.change.is_some()).collect();
    if !changes.is_empty() {
        println!("\nwhat to change (! first)");
    }
    for grade in [Grade::Problem, Grade::Advice] {
        for finding in changes.iter().filter(|it| it.grade == grade) {
            let mark = if grade == Grade::Problem { "!" } else { "?" };
            let change = finding.change.as_deref().unwrap_or_default();
            println!("{mark} {}, {}: {change}", finding.area, finding.name);
        }
    }
}
