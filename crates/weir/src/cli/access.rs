//! `weir access`: what lines of access decide, and decided.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;

mod dry;
mod learn;

use super::print_json;
use super::status::ask_status;
use crate::api::dto::{AccessSnapshot, AccessStateSnapshot, PairSnapshot};

const HELP: &str = "\
Examples:
  weir access hits                  how often each line decided
  weir access check gw-a.toml       do all lines decide something?
  weir access explain gw-a.toml --from 10.1.0.7 --to 10.0.0.1 --op write
  weir access explain --from 10.1.0.7 --to 10.0.0.1 --op write
  weir access learn monday.pcapng -o lines.toml
  weir access learn --gateway gw-a --last 7d -o lines.toml
  weir access test gw-a.toml yesterday.pcapng
  weir access hits port0 --json | jq '.pairs[].lines[] | select(.packets > 0)'";

/// Arguments of `weir access`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct AccessArgs {
    /// What to do with lines of access.
    #[command(subcommand)]
    command: AccessCommand,
}

#[derive(Debug, Subcommand)]
enum AccessCommand {
    /// Show how often each line of a running gateway decided
    #[command(after_help = HITS_HELP)]
    Hits(HitsArgs),
    /// Find lines of a configuration that never decide, or change nothing
    #[command(after_help = dry::CHECK_HELP)]
    Check(dry::CheckArgs),
    /// Say which line of a configuration decides about an operation
    #[command(after_help = dry::EXPLAIN_HELP)]
    Explain(dry::ExplainArgs),
    /// Make lines out of what captures show, or what a gateway saw, ready to edit
    #[command(after_help = learn::HELP)]
    Learn(learn::LearnArgs),
    /// Judge a capture's packets by a configuration's lines, before any gateway does
    #[command(after_help = dry::TEST_HELP)]
    Test(dry::TestArgs),
}

const HITS_HELP: &str = "\
Lines stand in the order in which they are tried. Messages are counted by their first packets; a
reliable sender repeats a message that is denied, and each time counts.

Example:
  weir access hits port0

Exit codes:
  0  shown
  1  no gateway answers, or it has no such pair";

#[derive(Debug, Args)]
struct HitsArgs {
    /// Only of this pair of ports
    pair: Option<String>,
    /// The gateway's name; needed where several run
    #[arg(long, value_name = "NAME")]
    gateway: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    run_dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `weir access`.
///
/// # Errors
/// What the command wants cannot be had; its own words.
pub fn run(args: &AccessArgs) -> Result<ExitCode> {
    match &args.command {
        AccessCommand::Hits(args) => run_hits(args),
        AccessCommand::Check(args) => dry::check(args),
        AccessCommand::Explain(args) => dry::explain(args),
        AccessCommand::Learn(args) => learn::learn(args),
        AccessCommand::Test(args) => dry::test(args),
    }
}

/// The JSON of `weir access hits`.
#[derive(Serialize)]
struct Hits {
    pairs: Vec<PairHits>,
}

#[derive(Serialize)]
struct PairHits {
    pair: String,
    #[serde(flatten)]
    access: AccessSnapshot,
}

fn run_hits(args: &HitsArgs) -> Result<ExitCode> {
    let snapshot = ask_status(&args.run_dir, args.gateway.as_deref())?;
    let wanted = |pair: &PairSnapshot| args.pair.as_ref().is_none_or(|name| *name == pair.name);
    if let Some(name) = &args.pair
        && !snapshot.pairs.iter().any(wanted)
    {
        bail!("{} has no pair {name}; `weir status` names them", snapshot.name);
    }
    let with_lines = |pair: PairSnapshot| Some(PairHits { pair: pair.name, access: pair.access? });
    let pairs = snapshot.pairs.into_iter().filter(wanted).filter_map(with_lines);
    let hits = Hits { pairs: pairs.collect() };
    if args.json {
        print_json(&hits)?;
        return Ok(ExitCode::SUCCESS);
    }
    if hits.pairs.is_empty() {
        println!("there are no lines of access; [[access]] in the configuration makes one");
    }
    hits.pairs.iter().for_each(|it| print!("{}", table(it)));
    Ok(ExitCode::SUCCESS)
}

fn table(hits: &PairHits) -> String {
    let access = &hits.access;
    let mut text = format!("pair {}\n", hits.pair);
    let _ = writeln!(
        text,
        "{:>14} {:>14} {:>18}  {:<10}  line",
        "messages", "packets", "bytes", "action"
    );
    let mut row = |messages, packets, bytes, action: &str, name: &str| {
        let _ = writeln!(text, "{messages:>14} {packets:>14} {bytes:>18}  {action:<10}  {name}");
    };
    for line in &access.lines {
        let party = |it: &Option<String>| it.clone().unwrap_or_else(|| "any".to_owned());
        let about = format!("{}: {} to {}", line.name, party(&line.from), party(&line.to));
        row(line.messages, line.packets, line.bytes, &line.action, &about);
    }
    let AccessSnapshot { default_messages, default_packets, default_bytes, .. } = *access;
    row(default_messages, default_packets, default_bytes, &access.default_action, "(default)");
    if access.unreadable_packets > 0 {
        let _ = writeln!(text, "{:>29} packets could not be read", access.unreadable_packets);
    }
    for (count, what) in [
        (access.answered, "refusals were told to who asked"),
        (access.unanswered, "refusals could not be told"),
        (access.limited_packets, "packets were more than a line's limit"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count:>14} {what}");
        }
    }
    text += &owners(&access.state);
    if access.events_lost > 0 {
        let _ = writeln!(text, "{:>14} messages were counted, not told of", access.events_lost);
    }
    text
}

/// What was done about queue pair numbers, where there was anything.
fn owners(state: &AccessStateSnapshot) -> String {
    let said = [
        (state.queue_pairs, "queue pairs have an owner"),
        (state.connections, "connections were agreed"),
        (state.disconnects, "connections were ended"),
        (state.paths, "alternate paths were agreed"),
        (state.paths_missed, "alternate paths are not followed"),
        (state.forged, "packets came from others than the owner"),
        (state.unconnected, "packets had no connection"),
        (state.untracked, "directions passed without an owner: the table was full"),
        (state.refused, "connections were refused: the table was full"),
        (state.out_of_window, "packets had a number that nobody waits for"),
    ];
    let said = said.into_iter().filter(|(count, _)| *count > 0);
    said.map(|(count, what)| format!("{count:>29} {what}\n")).collect()
}
