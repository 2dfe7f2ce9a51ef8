//! `weir lab`: test hosts, traffic and gateways on this machine.

use std::process::ExitCode;

use clap::Args;

/// Arguments of `weir lab`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  weir lab")]
pub struct LabArgs {}

/// Runs `weir lab`.
///
/// # Errors
/// The lab cannot be built.
pub fn run(_args: LabArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("there is no lab yet")
}
