//! `weir lab` and `weir prove`: a program of their own, `weir-lab`, which stands beside this one or
//! in PATH, as git finds its commands. No gateway needs it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

const PROGRAM: &str = "weir-lab";

/// Arguments of `weir lab` and `weir prove`, which their own program reads.
#[derive(Debug, Args)]
pub struct BesideArgs {
    /// What that program is told.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    rest: Vec<OsString>,
}

/// Becomes `weir-lab COMMAND ARGUMENTS...`.
///
/// # Errors
/// It is not installed.
pub fn run(command: &str, args: &BesideArgs) -> Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let start = |program: OsString| Command::new(program).arg(command).args(&args.rest).exec();
    let mut error = start(own.with_file_name(PROGRAM).into());
    if error.kind() == io::ErrorKind::NotFound {
        error = start(PROGRAM.into());
    }
    let remedy = format!(
        "cannot start `{PROGRAM}`, which `weir {command}` is part of: build it (cargo build \
         --release --bin {PROGRAM}) or install it beside `weir`"
    );
    Err(error).context(remedy)
}
