//! `weir reload`, `weir confirm`, `weir rollback`: change a running gateway's configuration, on
//! trial if so asked.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::SIGINT;

use super::status::find_socket;
use super::terminal::shown;
use super::{EXIT_NOT_CONFIRMED, EXIT_USAGE, print_json};
use crate::api::dto::{
    ConfigurationSnapshot, ConfigurationState, ReloadRequest, Request, Response,
};
use crate::daemon::control::socket;
use crate::rules::SEE_REFUSED;

/// The shortest and the longest trial.
const TRIAL_SECONDS: [f64; 2] = [1.0, 86_400.0];

/// Between two looks at how the trial stands.
const LOOK: Duration = Duration::from_millis(250);

const RELOAD_HELP: &str = "\
The gateway takes the file of its `weir up` as a whole, or not at all; no packet is lost. SIGHUP
does the same, without an answer.

With --confirm-within, the new configuration is on trial: unless it is confirmed in time, the
gateway goes back to the last confirmed one by itself, and connections that it cut live on. On a
terminal, the command waits: Enter confirms, Ctrl-C takes back; if the terminal itself is cut off,
nobody confirms. Elsewhere, or with --no-wait, it returns at once, and `weir confirm` or `weir
rollback` decide.

While a configuration is unconfirmed, no other is taken. One that was taken back is not taken again
but with --confirm-within. Key files of the configuration before must stay where they are.

Examples:
  weir reload
  weir reload gw-a --confirm-within 60s
  weir reload gw-a --confirm-within 5m --no-wait && check-everything && weir confirm gw-a

Exit codes:
  0  in force; with --confirm-within on a terminal: confirmed
  1  no gateway answers, or it cannot take this configuration now
  2  the command line or the configuration is wrong; the one before stays in force
  3  it was taken back";

pub(super) const CONFIRM_HELP: &str = "\
Example:
  weir confirm gw-a

Exit codes:
  0  confirmed
  1  no gateway answers, or nothing waits to be confirmed";

pub(super) const ROLLBACK_HELP: &str = "\
Where no configuration was ever confirmed before it, the gateway ends.

Example:
  weir rollback gw-a

Exit codes:
  0  taken back
  1  no gateway answers, or nothing is unconfirmed";

/// Arguments of `weir reload`.
#[derive(Debug, Args)]
#[command(after_help = RELOAD_HELP)]
pub struct ReloadArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub gateway: ConfirmArgs,
    /// Take the configuration back unless it is confirmed within so long (90s, 2m, 1h)
    #[arg(long, value_name = "TIME", value_parser = trial)]
    pub confirm_within: Option<Duration>,
    /// Do not wait for the confirmation, on a terminal either
    #[arg(long, requires = "confirm_within")]
    pub no_wait: bool,
}

/// Arguments of `weir confirm` and `weir rollback`.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// The gateway's name; needed where several run
    pub name: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Print how the configuration stands as JSON
    #[arg(long)]
    pub json: bool,
}

/// How long a trial lasts: `90s`, `2m`, `1h`; a bare number is seconds.
pub(super) fn trial(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = digits.parse::<f64>().ok().map(|value| value * unit);
    let [least, most] = TRIAL_SECONDS;
    seconds
        .filter(|seconds| (least..=most).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is no time for a trial: write 1s to 24h (90s, 2m, 1h)"))
}

/// Runs `weir reload`.
///
/// # Errors
/// No gateway answers, or it cannot take a configuration now.
pub fn run(args: &ReloadArgs) -> Result<ExitCode> {
    let socket = find_socket(&args.gateway.run_dir, args.gateway.name.as_deref())?;
    let confirm_within_ms = args.confirm_within.map(|it| it.as_millis() as u64);
    let may_wait = args.confirm_within.is_some()
        && !args.no_wait
        && !args.gateway.json
        && io::stdin().is_terminal();
    // From before the question on, so that no Ctrl-C leaves a trial to itself.
    let interrupted = Arc::new(AtomicBool::new(false));
    if may_wait {
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
    }
    let request = Request::Reload(ReloadRequest { confirm_within_ms });
    let taken = match ask(&socket, request)? {
        Response::Configuration(configuration) => configuration,
        Response::Refused(problems) => {
            eprint!("{problems}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        other => return Err(unexpected(other)),
    };
    if may_wait {
        return wait(&socket, &taken, &interrupted);
    }
    show(&taken, args.gateway.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir confirm`.
///
/// # Errors
/// No gateway answers, or nothing waits to be confirmed.
pub fn run_confirm(args: &ConfirmArgs) -> Result<ExitCode> {
    decide(args, Request::Confirm)
}

/// Runs `weir rollback`.
///
/// # Errors
/// No gateway answers, or nothing is unconfirmed.
pub fn run_rollback(args: &ConfirmArgs) -> Result<ExitCode> {
    decide(args, Request::Rollback)
}

fn decide(args: &ConfirmArgs, request: Request) -> Result<ExitCode> {
    let socket = find_socket(&args.run_dir, args.name.as_deref())?;
    show(&configuration(&socket, request)?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn ask(socket: &Path, request: Request) -> Result<Response> {
    socket::ask(socket, &request).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })
}

/// What the gateway at `socket` answers; `None`: none runs there.
///
/// # Errors
/// It does not answer as it should.
pub(super) fn ask_if_running(socket: &Path, request: Request) -> Result<Option<Response>> {
    match socket::ask(socket, &request) {
        Ok(response) => Ok(Some(response)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context(format!("the gateway at {} fails", socket.display())),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn configuration(socket: &Path, request: Request) -> Result<ConfigurationSnapshot> {
    match ask(socket, request)? {
        Response::Configuration(configuration) => Ok(configuration),
        other => Err(unexpected(other)),
    }
}

fn unexpected(response: Response) -> anyhow::Error {
    match response {
        Response::Error(error) => anyhow::anyhow!("the gateway says: {error}"),
        _ => anyhow::anyhow!("the gateway answers another question: is it an older one?"),
    }
}

fn show(configuration: &ConfigurationSnapshot, json: bool) -> Result<()> {
    match json {
        true => print_json(configuration),
        false => Ok(writeln!(io::stdout().lock(), "{}", words(configuration))?),
    }
}

/// How a configuration stands, for people; and what is warned of in its rules.
fn words(it: &ConfigurationSnapshot) -> String {
    let mut words = how_it_stands(it);
    for warning in &it.rules_warnings {
        words += &format!("\nwarning: {}", shown(warning));
    }
    // A gateway from before the update says only how many.
    if it.rules_warnings.is_empty() && it.rules_refused > 0 {
        words += &format!("\nwarning: {} rules do not run; {SEE_REFUSED}", it.rules_refused);
    }
    words
}

fn how_it_stands(it: &ConfigurationSnapshot) -> String {
    let path = it.path.display();
    match (it.state, it.seconds_left, &it.rolled_back_because) {
        (ConfigurationState::Stopping, _, why) => format!(
            "{}; there is none before it, and the gateway ends",
            why.as_deref().unwrap_or("the configuration was taken back")
        ),
        (ConfigurationState::Restarting, _, why) => format!(
            "{}; the gateway starts again with the one before",
            why.as_deref().unwrap_or("the configuration was taken back")
        ),
        (_, Some(seconds), _) => format!(
            "configuration {} is in force, UNCONFIRMED: it is taken back in {seconds:.0} s unless \
             `weir confirm` is said",
            it.epoch
        ),
        (_, None, Some(why)) => {
            format!("{why}; configuration {} is in force: {path}", it.epoch)
        }
        (_, None, None) => format!("configuration {} is in force: {path}", it.epoch),
    }
}

/// Stays until the trial ends, by whom and how ever.
fn wait(
    socket: &Path,
    taken: &ConfigurationSnapshot,
    interrupted: &AtomicBool,
) -> Result<ExitCode> {
    let entered = entered();
    println!("{}", words(taken));
    println!("Enter keeps it; Ctrl-C takes it back.");
    loop {
        let has_entered = match entered.recv_timeout(LOOK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            // The terminal is gone. So may be who sat at it: the time runs.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(LOOK);
                false
            }
        };
        let request = match (interrupted.swap(false, Ordering::Relaxed), has_entered) {
            (true, _) => Request::Rollback,
            (false, true) => Request::Confirm,
            (false, false) => Request::Configuration,
        };
        let now = configuration(socket, request)?;
        if let Some(seconds) = now.seconds_left.filter(|_| now.epoch == taken.epoch) {
            print!("\r{seconds:3.0} s left ");
            io::stdout().flush()?;
            continue;
        }
        println!("\r{}", words(&now));
        if now.rollbacks == taken.rollbacks && now.epoch == taken.epoch {
            return Ok(ExitCode::SUCCESS);
        }
        if now.rollbacks == taken.rollbacks {
            bail!("another configuration was taken meanwhile");
        }
        return Ok(ExitCode::from(EXIT_NOT_CONFIRMED));
    }
}

/// A word for each line that is entered.
fn entered() -> Receiver<()> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_err() || sender.send(()).is_err() {
                return;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_warned_of_in_rules_is_said() {
        let mut it = ConfigurationSnapshot { epoch: 2, ..ConfigurationSnapshot::default() };
        assert_eq!(words(&it), "configuration 2 is in force: ");
        it.rules_refused = 3;
        assert!(words(&it).contains("in force: \nwarning: 3 rules do not run; `weir rules check"));
        it.rules_warnings = vec!["no rule runs: nothing is looked for".into()];
        assert!(words(&it).ends_with("in force: \nwarning: no rule runs: nothing is looked for"));
    }

    #[test]
    fn a_trial_lasts_from_a_second_to_a_day() {
        assert_eq!(trial("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(trial("90"), Ok(Duration::from_secs(90)));
        assert_eq!(trial("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(trial("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "s", "0", "0.5", "25h", "-1m", "1d", "nan", "inf"] {
            assert!(trial(wrong).is_err(), "{wrong}");
        }
    }
}
