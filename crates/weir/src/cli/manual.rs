//! `weir manual`: the command line's own description as manual pages and shell completions, so that
//! they cannot say anything else than `--help`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::args::Arguments;

const HELP: &str = "\
FOLDER gets man1/weir.1 and a page for each command (`man weir-up`), and in completions/ what bash,
zsh and fish want to know. `make install` puts them where they are looked for.

Example:
  weir manual /tmp/weir && man /tmp/weir/man1/weir-up.1

Exit codes:
  0  done
  1  the folder cannot be written";

/// Arguments of `weir manual`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ManualArgs {
    /// Where to write; made if it is absent
    pub folder: PathBuf,
}

/// Runs `weir manual`.
///
/// # Errors
/// The folder cannot be written.
pub fn run(args: &ManualArgs) -> Result<ExitCode> {
    let failed = || format!("cannot write to {}", args.folder.display());
    let (pages, completions) = (args.folder.join("man1"), args.folder.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Arguments::command(), "weir", &completions)
            .with_context(failed)?;
    }
    clap_mangen::generate_to(Arguments::command(), &pages).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}
