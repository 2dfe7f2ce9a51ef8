//! `weir read`: captures through the gateway's own engine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Arguments of `weir read`.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The captures
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

/// Runs `weir read`.
///
/// # Errors
/// A capture cannot be read.
pub fn run(args: ReadArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("cannot read {} captures yet", args.files.len())
}
