//! `weir doctor`: what this machine can do, and what to change.

use std::process::ExitCode;

use anyhow::Result;

use super::args::DoctorArgs;

/// Runs `weir doctor`.
///
/// # Errors
/// The machine cannot be read.
pub fn run(_args: &DoctorArgs) -> Result<ExitCode> {
    anyhow::bail!("no findings yet")
}
