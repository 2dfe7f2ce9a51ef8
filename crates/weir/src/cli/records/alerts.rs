//! `weir alerts`: which rules matched, and whose alerts nobody wants to see for a while.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use weir_serve::dto::Alert;
use weir_serve::gateways::Places;
use weir_serve::query;
use weir_serve::suppressions::{SECONDS_MAX, Suppression};
use weir_store::clock;
use weir_store::sqlite::{AlertFilter, AlertRow, LabelFilter, ROWS_MAX};

use super::print::print;
use super::{RecordArgs, check_rights, each, range, seconds};
use crate::api::dto::{Request, Response};
use crate::api::suppress::SuppressRequest;
use crate::cli::WrongUse;
use crate::cli::block::reason;
use crate::cli::status::find_socket;
use crate::config::address::Prefix;
use crate::daemon::control::socket;

/// Arguments of `weir alerts`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AlertArgs {
    #[command(subcommand)]
    command: Option<AlertsCommand>,
    #[command(flatten)]
    records: RecordArgs,
    /// Show those that are suppressed too
    #[arg(long)]
    suppressed: bool,
    /// Only this pair of ports
    #[arg(long, value_name = "NAME")]
    pair: Option<String>,
    /// Only the rule of this number
    #[arg(long, value_name = "NUMBER")]
    sid: Option<u32>,
    /// At least as severe; 1 is the most
    #[arg(long, value_name = "NUMBER")]
    severity: Option<u8>,
    /// What became of the packet
    #[arg(long, value_parser = ["allowed", "blocked", "would_block"], value_name = "ACTION")]
    action: Option<String>,
    /// An end's address or prefix
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    address: Option<([u8; 16], [u8; 16])>,
    /// An end called so by a label: NAME, or KIND=NAME (host, tenant, job, rail)
    #[arg(long, value_name = "NAME")]
    label: Option<LabelFilter>,
}

#[derive(Debug, Subcommand)]
enum AlertsCommand {
    /// Leave the alerts of a rule out for a while: they stay stored and counted
    #[command(after_help = SUPPRESS_HELP)]
    Suppress {
        #[command(flatten)]
        which: Which,
        /// For so long (90s, 10m, 6h, 7d)
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        time_s: u64,
        /// Why, for who reads the list
        #[arg(long, default_value = "", hide_default_value = true, value_parser = reason)]
        reason: String,
    },
    /// Show those that come from now on; those of the time that was suppressed stay left out
    Unsuppress {
        #[command(flatten)]
        which: Which,
    },
    /// Say what is suppressed, by whom and until when
    Suppressions {
        #[command(flatten)]
        records: RecordArgs,
    },
}

const SUPPRESS_HELP: &str = "\
What a suppressed rule blocks is blocked all the same, and its alerts go to EVE and SIEMs as ever:
they are only left out where alerts are looked at, until the time is over or `unsuppress` is said.
What came before stays; what came meanwhile is shown by `weir alerts --suppressed` alone.

Examples:
  weir alerts suppress --sid 2001219 --for 7d --reason \"the scanner of our own\"
  weir alerts suppress --sid 2001219 --source 10.0.0.7 --for 8h
  weir alerts suppressions
  weir alerts unsuppress --sid 2001219

Exit codes:
  0  done
  1  no gateway answers, it has no table [store], or what is to be shown again is not suppressed
  2  the command line is wrong";

/// Which alerts, of which gateway.
#[derive(Debug, Args)]
struct Which {
    /// The rule's number
    #[arg(long, value_name = "NUMBER")]
    sid: u32,
    /// Only what comes from this address or prefix
    #[arg(long, value_name = "ADDRESS")]
    source: Option<Prefix>,
    /// The gateway's name; needed where several run
    #[arg(long = "gateway", value_name = "NAME")]
    name: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    run_dir: PathBuf,
}

/// Runs `weir alerts`.
///
/// # Errors
/// No store can be read.
pub fn run_alerts(args: &AlertArgs) -> Result<ExitCode> {
    match &args.command {
        None => {}
        Some(AlertsCommand::Suppress { which, time_s, reason }) => {
            let (sid, source, seconds) = (which.sid, which.source, *time_s);
            if seconds > SECONDS_MAX {
                return Err(WrongUse(format!("--for {seconds} s: ten years at most")).into());
            }
            let reason = reason.clone();
            return ask(which, SuppressRequest::Begin { sid, source, seconds, reason });
        }
        Some(AlertsCommand::Unsuppress { which }) => {
            let (sid, source) = (which.sid, which.source);
            return ask(which, SuppressRequest::End { sid, source });
        }
        Some(AlertsCommand::Suppressions { records }) => return suppressions(records),
    }
    let filter = AlertFilter {
        number: None,
        pair: args.pair.clone(),
        sid: args.sid,
        severity: args.severity,
        action: args.action.clone(),
        addresses: args.address,
        label: args.label.clone(),
        suppressed: (!args.suppressed).then_some(false),
    };
    let records = &args.records;
    let range = range(records)?;
    let (mut rows, problems) = each(records, |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.alerts(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Alert::of(name, row, &labels)).collect())
    })?;
    rows.sort_by(|a, b| b.time.cmp(&a.time));
    if !args.suppressed {
        let filter = AlertFilter { suppressed: Some(true), ..filter };
        let (hidden, _) = each(records, |_, reader| reader.alerts(range, &filter, ROWS_MAX))?;
        if !hidden.is_empty() {
            eprintln!("weir: {} more are suppressed: `--suppressed` shows them", hidden.len());
        }
    }
    print(records, rows, &problems, |alert| {
        let end = |address: &str, port: u16| match port {
            0 => address.to_owned(),
            port => format!("{address} {port}"),
        };
        vec![
            ("number", alert.number.to_string()),
            ("time", alert.time.clone()),
            ("gateway", alert.gateway.clone()),
            ("severity", alert.severity.to_string()),
            ("action", alert.action.clone()),
            ("from", end(&alert.source, alert.source_port)),
            ("from is", alert.source_names.to_string()),
            ("to", end(&alert.destination, alert.destination_port)),
            ("to is", alert.destination_names.to_string()),
            ("protocol", alert.protocol.clone()),
            ("sid", alert.sid.to_string()),
            ("signature", alert.signature.clone()),
        ]
    })
}

/// Asks the gateway, as root.
fn ask(which: &Which, suppression: SuppressRequest) -> Result<ExitCode> {
    let socket = find_socket(&which.run_dir, which.name.as_deref())?;
    let request = Request::Suppress { by: "control socket".to_owned(), suppression };
    let answer = socket::ask(&socket, &request).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    match answer {
        Response::Suppressed => Ok(ExitCode::SUCCESS),
        Response::Error(why) => bail!(why),
        other => bail!("the gateway answered something else: {other:?}"),
    }
}

/// `weir alerts suppressions`.
fn suppressions(records: &RecordArgs) -> Result<ExitCode> {
    let since = clock::wall().duration_since(UNIX_EPOCH)?;
    let now_ns = since.as_nanos() as u64;
    let (rows, problems) = each(records, |name, reader| {
        let (rows, labels) = (reader.suppressions(now_ns)?, reader.labels()?);
        Ok(rows.into_iter().map(|row| Suppression::of(name, row, &labels)).collect())
    })?;
    print(records, rows, &problems, |it| {
        vec![
            ("sid", it.sid.to_string()),
            ("from", it.source.clone().unwrap_or_else(|| "anywhere".to_owned())),
            ("named", it.source_names.to_string()),
            ("until", it.until.clone()),
            ("gateway", it.gateway.clone()),
            ("who", it.who.clone()),
            ("why", it.reason.clone()),
        ]
    })
}

/// The alert of this number in the store of `gateway`, which may be left out where there is one.
///
/// # Errors
/// There is no such store or alert, or several gateways have one of this number.
pub fn alert(store: &Path, gateway: Option<&str>, number: u64) -> Result<AlertRow> {
    let places = Places { run_folders: Vec::new(), stores: vec![store.to_owned()] };
    if places.stores().is_empty() {
        check_rights(&places.stores)?;
        bail!("no store in {}: say --store, or --around and --flow", store.display());
    }
    let filter = AlertFilter { number: Some(number), ..AlertFilter::default() };
    let ever = query::range(Some(0), None, None).map_err(|said| anyhow!(said))?;
    let (mut rows, problems) =
        query::each(&places, gateway, |_, reader| reader.alerts(ever, &filter, 1));
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        (Some(_), false) => bail!("several gateways have an alert {number}: say --gateway"),
        (None, _) if problems.is_empty() => {
            bail!("no alert has the number {number}: `weir alerts --last 24h` shows them")
        }
        (None, _) => bail!("{}", problems.join("; ")),
    }
}
