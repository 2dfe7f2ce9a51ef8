//! The command line of `weir-lab`, which `weir lab` and `weir prove` start, as git finds its
//! commands: so its usage texts say `weir`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde::Serialize;

mod lab;
mod prove;

/// The command line is wrong.
const EXIT_USAGE: u8 = 2;

/// Test hosts, traffic, measurements and experiments for Weir.
#[derive(Debug, Parser)]
#[command(name = "weir-lab", bin_name = "weir", version, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try it all on this machine: test hosts, traffic, gateways, in network namespaces
    Lab(lab::LabArgs),
    /// Run a designed experiment in the lab, and report it with statistics
    Prove(prove::ProveArgs),
}

/// Runs the command that the process was started with.
pub(crate) fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Lab(args) => lab::run(args),
        Command::Prove(args) => prove::run(args),
    };
    result.unwrap_or_else(|error| {
        if closed_by_reader(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("weir: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints `value` as JSON, indented, for scripts.
fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// `weir prove --list | head` is no failure.
fn closed_by_reader(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(|it| it.io_error_kind());
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// The gateways' program, `weir`, which stands beside this one.
fn gateway_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let program = own.with_file_name("weir");
    if !program.is_file() {
        bail!("no {}: build or install `weir` beside weir-lab", program.display());
    }
    Ok(program)
}
