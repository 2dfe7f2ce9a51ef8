//! The command line: `args` defines it, a file a command runs it.
//!
//! Exit codes, of every command: 0 done; 1 it failed, or what was asked for is not so; 2 the
//! command line or the configuration is wrong; 3 the configuration was taken back (`weir up`, `weir
//! reload`).

pub mod args;

pub mod access;
pub mod beside;
pub mod block;
pub mod capture;
pub mod check;
pub mod collect;
pub mod doctor;
pub mod drops;
pub mod evidence;
pub mod explain;
pub mod guard;
mod health;
pub mod init;
pub mod keys;
pub mod manual;
pub mod meter;
pub mod output;
mod parquet;
pub mod read;
pub mod records;
pub mod reload;
pub mod rules;
mod running;
pub mod sa;
pub mod serve;
pub mod status;
mod terminal;
pub mod terms;
pub mod top;
pub mod up;
pub mod verify;
pub mod vpn;
mod watch;
pub mod witness;
pub mod xfrm;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use args::{Arguments, Command};

/// The command line or the configuration is wrong.
pub const EXIT_USAGE: u8 = 2;

/// What is wrong with a command line that could be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUse(pub(crate) String);

/// The configuration was on trial, and was taken back.
pub const EXIT_NOT_CONFIRMED: u8 = 3;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    end_where_output_ends();
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Up(args) => up::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Evidence(args) => evidence::run(&args),
        Command::Guard(args) => guard::run(&args),
        Command::Block(args) => block::run_block(&args),
        Command::Allow(args) => block::run_allow(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Confirm(args) => reload::run_confirm(&args),
        Command::Rollback(args) => reload::run_rollback(&args),
        Command::Meter(args) => meter::run(&args),
        Command::Read(args) => read::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Sa(args) => sa::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Witness(args) => witness::run(&args),
        Command::Access(args) => access::run(&args),
        Command::Drops(args) => drops::run(&args),
        Command::Flows(args) => records::run_flows(&args),
        Command::Conversations(args) => records::run_conversations(&args),
        Command::Alerts(args) => records::run_alerts(&args),
        Command::TopTalkers(args) => records::run_talkers(&args),
        Command::Top(args) => top::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Manual(args) => manual::run(&args),
        Command::Lab(args) => beside::run("lab", &args),
        Command::Prove(args) => beside::run("prove", &args),
        Command::Keys(args) => keys::run(&args),
        Command::Xfrm(args) => xfrm::run(&args),
        Command::Vpn(args) => vpn::run(&args),
    };
    result.unwrap_or_else(|error| {
        if closed_by_reader(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("weir: {}", whole(&error));
        if error.is::<WrongUse>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
    })
}

/// An error with its causes, but for those that it quotes itself.
fn whole(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// `println!` panics where nobody reads any more (`weir rules check PATH | head`), or the disk is
/// full: the process then ends as others do, without a word or with one.
fn end_where_output_ends() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        match said.strip_prefix("failed printing to stdout: ") {
            Some(error) if error.contains("Broken pipe") => std::process::exit(0),
            Some(error) => {
                // Where standard error cannot be written either, the code says it.
                let _ = writeln!(io::stderr(), "weir: standard output cannot be written: {error}");
                std::process::exit(1);
            }
            None => usual(panic),
        }
    }));
}

/// Prints `value` as JSON, indented, for scripts.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = terminal::json(&serde_json::to_string_pretty(value)?);
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// `weir status | head` is no failure.
fn closed_by_reader(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(|it| it.io_error_kind());
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_that_is_quoted_is_said_once() {
        let cause = || io::Error::other("gone");
        let error = Err::<(), _>(cause()).context("cannot read x").unwrap_err();
        assert_eq!(whole(&error), "cannot read x: gone");
        let error = Err::<(), _>(cause()).context("x: cannot open: gone").unwrap_err();
        assert_eq!(whole(&error), "x: cannot open: gone");
    }
}
