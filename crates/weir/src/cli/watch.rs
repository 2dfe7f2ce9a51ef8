//! `weir status --watch`: the status, again every second.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::args::StatusArgs;
use super::status::{ask_status, table};

/// The gateway publishes its counters ten times as often.
const EVERY: Duration = Duration::from_secs(1);

/// Cursor home, and all below it erased (ECMA-48): flickers less than to erase first.
const HOME: &str = "\x1b[H\x1b[2J";

/// Prints until it is interrupted, nobody reads on, or the gateway ends.
///
/// # Errors
/// No gateway answers, or standard output is closed.
pub(super) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let is_terminal = io::stdout().is_terminal();
    loop {
        let snapshot = ask_status(&args.run_dir, args.name.as_deref())?;
        let mut out = io::stdout().lock();
        if args.json {
            serde_json::to_writer(&mut out, &snapshot)?;
            writeln!(out)?;
        } else {
            let before = if is_terminal { HOME } else { "" };
            writeln!(out, "{before}{}", table(&snapshot))?;
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(EVERY);
    }
}
