//! `weir guard`: the ports of a configuration, shut for everybody before a gateway runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use weir_port::{Guard, GuardMode, Interface};
use weir_store::clock;

use super::{EXIT_USAGE, print_json};
use crate::config::settings::{OnFailure, Pair};
use crate::config::{Settings, Source};
use crate::daemon::control::lock::all_locks;

/// Between two looks for an interface that is not there yet.
const LOOK: Duration = Duration::from_millis(100);

const GUARD_HELP: &str = "\
The guard is a kernel program at both ends (tc ingress and egress) of each port. It drops what the
machine's own kernel would take from the port or send to it: its addresses, bridges, routes and
forwarding, macvlans, packet sockets that use the queueing discipline. It outlives this command and
every gateway; `weir up` replaces it in one step, without a gap, and leaves its own behind, so that
the ports stay shut when a gateway stops or dies.

It does not stop what does not come by tc: listening (tcpdump sees frames before it), programs that
send past the queueing discipline (AF_XDP, PACKET_QDISC_BYPASS), XDP programs that redirect, and
what a NIC forwards by itself (rules in an eSwitch, SR-IOV, RDMA).

Run it at boot, before the network comes up: deploy/systemd/weir-guard@.service.

Examples:
  weir guard on /etc/weir/gw-a.toml --wait 30    wait so many seconds for the ports to appear
  weir guard show /etc/weir/gw-a.toml
  weir guard off /etc/weir/gw-a.toml             open the ports again, without a gateway

Exit codes:
  0  done; `show`: every port is shut
  1  it failed; `show`: a port is open
  2  the command line or the configuration is wrong";

/// Arguments of `weir guard`.
#[derive(Debug, Args)]
#[command(after_help = GUARD_HELP)]
pub struct GuardArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GuardCommand,
}

/// The commands of `weir guard`.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// Shut the ports
    On {
        /// The configuration whose ports are meant
        file: PathBuf,
        /// Wait so long for the ports to appear
        #[arg(long, default_value_t = 0, value_name = "SECONDS")]
        wait: u64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Open the ports again: what the kernel would pass, passes
    Off {
        /// The configuration whose ports are meant
        file: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say which ports are shut
    Show {
        /// The configuration whose ports are meant
        file: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A port and whether it is shut.
#[derive(Debug, Serialize)]
struct PortState {
    pair: String,
    interface: String,
    is_there: bool,
    is_shut: bool,
    /// What the kernel has there, whatever the file says.
    guard: GuardState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum GuardState {
    None,
    Closed,
    OpenOnFailure,
}

fn guard_of(port: &str) -> Result<GuardState> {
    Ok(match Guard::mode_of(port)? {
        None => GuardState::None,
        Some(GuardMode::Closed) => GuardState::Closed,
        Some(GuardMode::OpenOnFailure) => GuardState::OpenOnFailure,
    })
}

/// Runs `weir guard`.
///
/// # Errors
/// A port is not there, the kernel refuses, or a gateway runs that `off` would open.
pub fn run(args: &GuardArgs) -> Result<ExitCode> {
    let (GuardCommand::On { file, json, .. }
    | GuardCommand::Off { file, json }
    | GuardCommand::Show { file, json }) = &args.command;
    // Keys are not read: at boot they may be elsewhere, and ports need none.
    let settings = match Source::read(file).and_then(|source| source.understand()) {
        Ok((settings, _)) => settings,
        Err(problems) => {
            eprint!("{problems}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    match &args.command {
        GuardCommand::On { wait, .. } => on(&settings, Duration::from_secs(*wait))?,
        GuardCommand::Off { .. } => off(&settings)?,
        GuardCommand::Show { .. } => {
            let all = show(&settings, *json)?;
            return Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    show(&settings, *json)?;
    Ok(ExitCode::SUCCESS)
}

fn on(settings: &Settings, patience: Duration) -> Result<()> {
    if settings.gateway.on_failure == OnFailure::Open {
        bail!("on_failure = \"open\": this gateway's ports are to pass everything without it");
    }
    // What is there is shut before the rest is waited for.
    let until = clock::now() + patience;
    let mut missing: Vec<&Pair> = settings.pairs.iter().collect();
    loop {
        let mut still = Vec::new();
        for pair in missing {
            match ports(pair).into_iter().find(|port| !is_there(port)) {
                Some(port) => still.push((pair, port)),
                None => shut(settings, pair)?,
            }
        }
        let Some((_, port)) = still.first() else { return Ok(()) };
        if clock::now() >= until {
            bail!("{port} is not there: `ip link` lists the interfaces; --wait SECONDS waits");
        }
        missing = still.into_iter().map(|(pair, _)| pair).collect();
        std::thread::sleep(LOOK);
    }
}

fn ports(pair: &Pair) -> [&str; 2] {
    [&pair.host, &pair.wire]
}

fn is_there(port: &str) -> bool {
    Interface::find(port).and_then(|it| it.index()).is_ok()
}

/// Shuts the ports of `pair`; those of a running gateway are shut by its own guard.
fn shut(settings: &Settings, pair: &Pair) -> Result<()> {
    let _locks = match all_locks(settings) {
        Ok(locks) => locks,
        Err(error) => {
            for port in ports(pair) {
                match guard_of(port)? {
                    GuardState::Closed => {}
                    GuardState::None => return Err(error.context(format!("{port} stays open"))),
                    GuardState::OpenOnFailure => {
                        let what =
                            "passes everything once its gateway ends (on_failure = \"open\")";
                        return Err(error.context(format!("{port} {what}")));
                    }
                }
            }
            return Ok(());
        }
    };
    Guard::attach(&pair.host, &pair.wire, GuardMode::Closed)?;
    Ok(())
}

fn off(settings: &Settings) -> Result<()> {
    let _locks = all_locks(settings).context("the ports stay shut while a gateway runs on them")?;
    for pair in &settings.pairs {
        for port in ports(pair).into_iter().filter(|port| is_there(port)) {
            Guard::detach(port, port)?;
        }
    }
    Ok(())
}

/// Whether every port is shut, said.
fn show(settings: &Settings, json: bool) -> Result<bool> {
    let mut states = Vec::new();
    for pair in &settings.pairs {
        for interface in ports(pair) {
            let is_there = is_there(interface);
            let guard = if is_there { guard_of(interface)? } else { GuardState::None };
            states.push(PortState {
                pair: pair.name.clone(),
                interface: interface.to_owned(),
                is_there,
                // One that fails open shuts only while its gateway lives.
                is_shut: guard == GuardState::Closed,
                guard,
            });
        }
    }
    if json {
        print_json(&states)?;
    } else {
        for state in &states {
            let word = match (state.is_there, state.guard) {
                (false, _) => "not there",
                (true, GuardState::Closed) => "shut",
                (true, GuardState::None) => "OPEN",
                (true, GuardState::OpenOnFailure) => "OPEN once its gateway ends",
            };
            println!("pair {}: {} is {word}", state.pair, state.interface);
        }
    }
    Ok(states.iter().all(|it| it.is_shut))
}
