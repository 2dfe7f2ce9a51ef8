//! `weir block` and `weir allow`: drop what an address sends, or never drop it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::status::find_socket;
use super::{WrongUse, print_json};
use crate::api::blocks::{BlocksRequest, BlocksSnapshot};
use crate::api::dto::{Request, Response};
use crate::api::suppress::REASON_MAX;
use crate::config::address::Prefix;
use crate::daemon::control::socket;
use crate::utc;

const BLOCK_HELP: &str = "\
What a blocked address sends is dropped as `blocked`, by either port, sealed or in clear, before
anything else looks at it; what is sent to it passes. Blocks outlive a restart. An address on the
allow list is dropped by no block (`weir allow`). Several prefixes, up to 1,000, are one change:
where one of them is refused none is blocked or removed.

Examples:
  weir block add 192.0.2.7 --ttl 1h --reason \"guesses keys\"
  weir block add 198.51.100.0/24 2001:db8::/32
  xargs -n 1000 weir block add --ttl 1d < addresses.txt
  weir block list --json
  weir block remove 192.0.2.7

Exit codes:
  0  done
  1  no gateway answers, or there is no such block
  2  the command line is wrong";

const ALLOW_HELP: &str = "\
What an allowed address sends is dropped by no block and no rule; alerts still tell of it, as what
would have been dropped. Lines of access and the seal hold for it as for all others.

Examples:
  weir allow add 192.0.2.9 --reason \"the scanner of our own\"
  weir allow list

Exit codes:
  0  done
  1  no gateway answers, or it is not on the list
  2  the command line is wrong";

/// Arguments of `weir block`.
#[derive(Debug, Args)]
#[command(after_help = BLOCK_HELP)]
pub struct BlockArgs {
    #[command(subcommand)]
    command: BlockCommand,
}

/// Arguments of `weir allow`.
#[derive(Debug, Args)]
#[command(after_help = ALLOW_HELP)]
pub struct AllowArgs {
    #[command(subcommand)]
    command: AllowCommand,
}

#[derive(Debug, Subcommand)]
enum BlockCommand {
    /// Drop what an address or prefix sends
    Add {
        /// 192.0.2.7, 198.51.100.0/24, 2001:db8::/32, or a GID
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,
        /// For so long (90s, 10m, 1h, 7d); left out: until it is removed
        #[arg(long, value_name = "TIME", value_parser = ttl)]
        ttl: Option<Duration>,
        /// Why, for who reads the list
        #[arg(long, default_value = "", hide_default_value = true, value_parser = reason)]
        reason: String,
        /// Block everybody too, where the prefix says so (0.0.0.0/0, ::/0)
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Say who is blocked, and how much was dropped
    List {
        /// The gateway's name; needed where several run
        #[arg(value_name = "NAME", conflicts_with = "name")]
        named: Option<String>,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Drop it no longer
    Remove {
        /// As `weir block list` shows it
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
}

#[derive(Debug, Subcommand)]
enum AllowCommand {
    /// Never drop what an address or prefix sends
    Add {
        /// 192.0.2.9, 198.51.100.0/24, 2001:db8::/32, or a GID
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,
        /// Why, for who reads the list
        #[arg(long, default_value = "", hide_default_value = true, value_parser = reason)]
        reason: String,
        /// Allow everybody too, where the prefix says so (0.0.0.0/0, ::/0)
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Say who is never dropped
    List {
        /// The gateway's name; needed where several run
        #[arg(value_name = "NAME", conflicts_with = "name")]
        named: Option<String>,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Judge it like others
    Remove {
        /// As `weir allow list` shows it
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
}

#[derive(Clone, Debug, Args)]
struct GatewayArgs {
    /// The gateway's name; needed where several run
    #[arg(long = "gateway", value_name = "NAME")]
    name: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    run_dir: PathBuf,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl GatewayArgs {
    /// The same, of the gateway that is named without an option, if one is.
    fn or(&self, named: &Option<String>) -> Self {
        Self { name: self.name.clone().or_else(|| named.clone()), ..self.clone() }
    }
}

/// Ten years.
const TTL_MAX_S: u64 = 3650 * 86_400;

/// Why, as the gateway takes it.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let is_fit = text.chars().count() <= REASON_MAX && !text.contains(char::is_control);
    is_fit.then(|| text.to_owned()).ok_or_else(|| {
        format!("write at most {REASON_MAX} characters of text, none of them a control character")
    })
}

/// A time: `90s`, `10m`, `1h`, `7d`; a bare number is seconds.
fn ttl(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|it| it.checked_mul(unit));
    let seconds = seconds.filter(|it| (1..=TTL_MAX_S).contains(it));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        format!(
            "`{text}` is no time: 90s, 10m, 1h, 7d, at most 3650d; left out: until it is removed"
        )
    })
}

/// Runs `weir block`.
///
/// # Errors
/// No gateway answers, or it refuses.
pub fn run_block(args: &BlockArgs) -> Result<ExitCode> {
    let (requests, gateway): (Vec<_>, _) = match &args.command {
        BlockCommand::Add { prefixes, ttl, reason, force, gateway } => {
            must_be_forced(prefixes, *force, "nothing would pass; --force blocks it")?;
            let request = |prefix: &Prefix| BlocksRequest::Block {
                prefix: *prefix,
                ttl_s: ttl.map(|it| it.as_secs()),
                reason: reason.clone(),
                force: *force,
            };
            (prefixes.iter().map(request).collect(), gateway.clone())
        }
        BlockCommand::List { named, gateway } => (vec![BlocksRequest::List], gateway.or(named)),
        BlockCommand::Remove { prefixes, gateway } => {
            let request = |prefix: &Prefix| BlocksRequest::Unblock { prefix: *prefix };
            (prefixes.iter().map(request).collect(), gateway.clone())
        }
    };
    run(requests, &gateway, show_blocks, |lists| print_json(&lists.blocks))
}

/// Runs `weir allow`.
///
/// # Errors
/// No gateway answers, or it refuses.
pub fn run_allow(args: &AllowArgs) -> Result<ExitCode> {
    let (requests, gateway): (Vec<_>, _) = match &args.command {
        AllowCommand::Add { prefixes, reason, force, gateway } => {
            let what = "no block and no rule would drop anything; --force allows it";
            must_be_forced(prefixes, *force, what)?;
            let request = |prefix: &Prefix| BlocksRequest::Allow {
                prefix: *prefix,
                reason: reason.clone(),
                force: *force,
            };
            (prefixes.iter().map(request).collect(), gateway.clone())
        }
        AllowCommand::List { named, gateway } => (vec![BlocksRequest::List], gateway.or(named)),
        AllowCommand::Remove { prefixes, gateway } => {
            let request = |prefix: &Prefix| BlocksRequest::Disallow { prefix: *prefix };
            (prefixes.iter().map(request).collect(), gateway.clone())
        }
    };
    run(requests, &gateway, show_allowed, |lists| print_json(&lists.allowed))
}

/// Changes that are asked for at once, at most: what a request of the control socket has room for.
const AT_ONCE_MAX: usize = 1000;

/// Asks for them, as many as there is room for at once, and says what is so then; of those that are
/// asked for together all are granted or none.
fn run(
    requests: Vec<BlocksRequest>,
    gateway: &GatewayArgs,
    show: impl Fn(&BlocksSnapshot) -> Result<()>,
    print_json: impl Fn(&BlocksSnapshot) -> Result<()>,
) -> Result<ExitCode> {
    let mut lists = BlocksSnapshot::default();
    for (chunk, requests) in requests.chunks(AT_ONCE_MAX).enumerate() {
        let answer = match requests {
            [one] => ask(one.clone(), gateway),
            several => ask(BlocksRequest::All { requests: several.to_vec() }, gateway)
                .with_context(|| format!("none of these {} is changed", several.len())),
        };
        if answer.is_err() && gateway.json && chunk > 0 {
            print_json(&lists)?;
        }
        lists = answer?;
        for request in requests {
            if let Some(but) = but(request, &lists) {
                eprintln!("weir: warning: {but}");
            }
            match done(request) {
                _ if gateway.json => {}
                Some(done) => println!("{done}"),
                None => show(&lists)?,
            }
        }
    }
    if gateway.json {
        print_json(&lists)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is so once a request was granted; `None`: nothing changes, and the list is asked for.
fn done(request: &BlocksRequest) -> Option<String> {
    Some(match request {
        BlocksRequest::List | BlocksRequest::All { .. } => return None,
        BlocksRequest::Block { prefix, ttl_s: None, .. } => {
            format!("{prefix} is blocked until it is removed")
        }
        BlocksRequest::Block { prefix, ttl_s: Some(seconds), .. } => {
            format!("{prefix} is blocked for {seconds} s")
        }
        BlocksRequest::Unblock { prefix } => format!("{prefix} is blocked no longer"),
        BlocksRequest::Allow { prefix, .. } => {
            format!("{prefix} is dropped by no block and no rule")
        }
        BlocksRequest::Disallow { prefix } => format!("{prefix} is judged like others"),
    })
}

/// Refuses everybody where nobody says that everybody is meant.
fn must_be_forced(prefixes: &[Prefix], force: bool, what: &str) -> Result<(), WrongUse> {
    match prefixes.iter().find(|it| it.length_bits() == 0) {
        Some(prefix) if !force => {
            Err(WrongUse(format!("{prefix} is everybody: {what} all the same")))
        }
        _ => Ok(()),
    }
}

/// What is otherwise than who asked may think, by lists as they are now.
fn but(request: &BlocksRequest, lists: &BlocksSnapshot) -> Option<String> {
    let (prefix, known): (_, Vec<Prefix>) = match request {
        BlocksRequest::Block { prefix, .. } => {
            (prefix, lists.allowed.iter().map(|it| it.prefix).collect())
        }
        BlocksRequest::Unblock { prefix } => {
            (prefix, lists.blocks.iter().map(|it| it.prefix).collect())
        }
        _ => return None,
    };
    let is_within =
        |it: &&Prefix| it.length_bits() <= prefix.length_bits() && it.contains(prefix.network());
    let around = known.iter().find(is_within);
    let inside = known.iter().filter(|it| it.overlaps(prefix)).count();
    Some(match (request, around, inside) {
        (_, None, 0) => return None,
        (BlocksRequest::Block { .. }, Some(around), _) => {
            format!("nothing of {prefix} is dropped: {around} is on the allow list")
        }
        (BlocksRequest::Block { .. }, None, count) => {
            format!("{count} on the allow list are within {prefix}: nothing of them is dropped")
        }
        (_, Some(around), _) => format!("{prefix} is still blocked by {around}"),
        (_, None, count) => format!("{count} within {prefix} are still blocked of their own"),
    })
}

fn ask(request: BlocksRequest, gateway: &GatewayArgs) -> Result<BlocksSnapshot> {
    let socket = find_socket(&gateway.run_dir, gateway.name.as_deref())?;
    let answer = socket::ask(&socket, &Request::Blocks(request)).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    match answer {
        Response::Blocks(lists) => {
            if let Some(warning) = &lists.warning {
                eprintln!("weir: warning: {warning}");
            }
            Ok(lists)
        }
        Response::Error(why) => bail!(why),
        other => bail!("the gateway answered something else: {other:?}"),
    }
}

fn show_blocks(lists: &BlocksSnapshot) -> Result<()> {
    let mut out = io::stdout().lock();
    if lists.blocks.is_empty() {
        return writeln!(out, "nobody is blocked").map_err(Into::into);
    }
    writeln!(out, "{:<30}{:>12}{:>12}{:>14}  since, why", "blocked", "left", "packets", "bytes")?;
    for it in &lists.blocks {
        let left = it.seconds_left.map_or("-".to_owned(), |seconds| format!("{seconds} s"));
        let (prefix, since) = (it.prefix.to_string(), utc::shown(it.since_ns));
        let (packets, bytes, why) = (it.packets, it.bytes, &it.reason);
        writeln!(out, "{prefix:<30}{left:>12}{packets:>12}{bytes:>14}  {since} {why}")?;
    }
    Ok(())
}

fn show_allowed(lists: &BlocksSnapshot) -> Result<()> {
    let mut out = io::stdout().lock();
    if lists.allowed.is_empty() {
        return writeln!(out, "nobody is on the allow list").map_err(Into::into);
    }
    writeln!(out, "{:<30}  since, why", "allowed")?;
    for it in &lists.allowed {
        let since = utc::shown(it.since_ns);
        writeln!(out, "{:<30}  {since} {}", it.prefix.to_string(), it.reason)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::blocks::{AllowedEntry, BlockEntry};

    #[test]
    fn what_the_allow_list_or_another_block_makes_of_it_is_said() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let lists = |blocks: &[&str], allowed: &[&str]| BlocksSnapshot {
            blocks: blocks
                .iter()
                .map(|it| BlockEntry {
                    prefix: prefix(it),
                    since_ns: 0,
                    seconds_left: None,
                    reason: String::new(),
                    packets: 0,
                    bytes: 0,
                })
                .collect(),
            allowed: allowed
                .iter()
                .map(|it| AllowedEntry { prefix: prefix(it), since_ns: 0, reason: String::new() })
                .collect(),
            warning: None,
        };
        let block = |text: &str| BlocksRequest::Block {
            prefix: prefix(text),
            ttl_s: None,
            reason: String::new(),
            force: false,
        };
        let unblock = |text: &str| BlocksRequest::Unblock { prefix: prefix(text) };
        let said = but(&block("10.77.0.1"), &lists(&["10.77.0.1"], &["10.77.0.0/24"])).unwrap();
        assert!(said.starts_with("nothing of 10.77.0.1/32 is dropped"), "{said}");
        let said = but(&block("10.77.0.0/24"), &lists(&["10.77.0.0/24"], &["10.77.0.1"])).unwrap();
        assert!(said.starts_with("1 on the allow list"), "{said}");
        let said = but(&unblock("10.77.0.1"), &lists(&["10.77.0.0/24"], &[])).unwrap();
        assert_eq!(said, "10.77.0.1/32 is still blocked by 10.77.0.0/24");
        assert!(but(&unblock("10.77.0.0/24"), &lists(&["10.77.0.1"], &[])).is_some());
        assert!(but(&unblock("10.77.0.1"), &lists(&["10.78.0.0/24"], &["10.77.0.1"])).is_none());
        assert!(but(&BlocksRequest::List, &lists(&["10.77.0.1"], &["10.77.0.1"])).is_none());
    }
}
