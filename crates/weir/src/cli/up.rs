//! `weir up`: a gateway in the foreground.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use rustix::process::DumpableBehavior;
use tracing_subscriber::EnvFilter;

use super::args::UpArgs;
use super::{EXIT_NOT_CONFIRMED, EXIT_USAGE};
use crate::daemon::control::preflight::Administration;
use crate::daemon::control::supervisor::{self, Failure, Options};
use crate::daemon::keys::state::LostState;

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
    raise_file_limit();
    keep_memory_to_ourselves();
    let options = Options {
        // Others ask where it is, from folders of their own.
        file: std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone()),
        administration: if args.force { Administration::Force } else { Administration::Protect },
        lost_state: if args.danger_forget_state {
            LostState::DangerForget
        } else {
            LostState::Refuse
        },
        confirm_within: args.confirm_within,
        wait: Duration::from_secs(args.wait),
    };
    match supervisor::run(&options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failure::Configuration(problems)) => {
            eprint!("{problems}");
            Ok(ExitCode::from(EXIT_USAGE))
        }
        Err(Failure::NotConfirmed(why)) => {
            eprintln!("weir: {why}");
            Ok(ExitCode::from(EXIT_NOT_CONFIRMED))
        }
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Every association with a key of its own keeps two files open, and a process may open 1024 unless
/// it asks for more.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}

/// Nobody of the same user reads our memory, and no core file holds keys: the systemd unit says so
/// too, but not everybody starts us by it.
fn keep_memory_to_ourselves() {
    let behavior = DumpableBehavior::NotDumpable;
    if let Err(error) = rustix::process::set_dumpable_behavior(behavior) {
        tracing::warn!(%error, "a core file of this process would hold keys");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_core_file_holds_keys() {
        keep_memory_to_ourselves();
        let now = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(now, DumpableBehavior::NotDumpable);
    }
}
