//! `weir up`: a gateway in the foreground.

use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::EnvFilter;

use super::EXIT_USAGE;
use super::args::UpArgs;
use crate::daemon::preflight::Administration;
use crate::daemon::state::LostState;
use crate::daemon::supervisor::{self, Failure, Options};

/// Runs `weir up`.
///
/// # Errors
/// The gateway cannot start, or a port was lost.
pub fn run(args: &UpArgs) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    let options = Options {
        file: args.file.clone(),
        administration: if args.force { Administration::Force } else { Administration::Protect },
        lost_state: if args.danger_forget_state {
            LostState::DangerForget
        } else {
            LostState::Refuse
        },
    };
    match supervisor::run(&options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failure::Configuration(problems)) => {
            eprint!("{problems}");
            Ok(ExitCode::from(EXIT_USAGE))
        }
        Err(Failure::Other(error)) => Err(error),
    }
}
