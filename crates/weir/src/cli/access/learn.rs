//! `weir access learn`: lines out of what was seen in captures, grouped, ready to edit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use weir_engine::access::{Operation, asked};
use weir_port::capture::CaptureReader;
use weir_wire::parse::parse;

use crate::cli::output::OutputFile;

pub(super) const HELP: &str = "\
Each line allows what one group of hosts was seen to ask of another: what is in the captures is
taken for right. Look at the lines before they are enforced; `weir access test` says what they would
deny of another day. Connections need no line of their own, answers neither.

Examples:
  weir capture pf0hpf -w monday.pcapng --seconds 3600
  weir access learn monday.pcapng -o lines.toml

Exit codes:
  0  written
  1  a capture cannot be read, or has no RDMA
  2  the command line is wrong";

#[derive(Debug, Args)]
pub(super) struct LearnArgs {
    /// Captures of what is right
    #[arg(required = true, value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// Write the lines there, `-` for standard output
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    output: PathBuf,
    /// Replace a file of that name
    #[arg(long)]
    force: bool,
}

/// Pairs of hosts that are remembered, at most: more lines are nobody's to read.
const PAIRS_MAX: usize = 100_000;

/// An address or a GID, as the parser gives it.
type Host = [u8; 16];
/// Names of operations.
type Operations<'a> = Vec<&'a str>;
/// What one host asked of another: messages by operation.
type Seen = BTreeMap<(Host, Host), BTreeMap<&'static str, u64>>;
/// Who asked the same of a host, and how many messages.
type Askers<'a> = BTreeMap<(Host, Operations<'a>), (BTreeSet<Host>, u64)>;
/// Of which hosts the same ones asked the same.
type Asked<'a> = BTreeMap<(BTreeSet<Host>, Operations<'a>), (Vec<Host>, u64)>;

pub(super) fn learn(args: &LearnArgs) -> Result<ExitCode> {
    let mut seen = Seen::new();
    for path in &args.captures {
        let mut reader =
            CaptureReader::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        while reader.next_batch(&mut |frames| {
            for frame in frames.iter() {
                take(&mut seen, frame.bytes(), frame.meta.link, frame.meta.original_len);
            }
        })? > 0
        {
            if seen.len() > PAIRS_MAX {
                bail!("more than {PAIRS_MAX} pairs of hosts speak RDMA there");
            }
        }
    }
    if seen.is_empty() {
        bail!("nobody asks anything by RDMA there");
    }
    let output = OutputFile::create(&args.output, args.force)?;
    std::io::Write::write_all(&mut output.file(), text(&seen).as_bytes())?;
    output.keep()?;
    Ok(ExitCode::SUCCESS)
}

fn take(seen: &mut Seen, bytes: &[u8], link: weir_wire::frame::Link, original_len: u32) {
    let parsed = parse(bytes, link, original_len);
    let Some(rdma) = &parsed.rdma else { return };
    let Some(operation) = asked(&parsed, rdma).filter(|it| *it != Operation::Connect) else {
        return;
    };
    let messages = seen.entry((parsed.source, parsed.destination)).or_default();
    *messages.entry(operation.name()).or_default() += u64::from(rdma.opcode.starts_message());
    if operation == Operation::SendImmediate {
        // Only the last packet of such a message says what it is.
        messages.entry(Operation::Send.name()).or_default();
    }
}

/// The lines: who asks the same of the same hosts is in one.
fn text(seen: &Seen) -> String {
    // By whom they ask and what: who asks.
    let mut by_target = Askers::new();
    for ((from, to), messages) in seen {
        let operations = messages.keys().copied().collect();
        let (sources, count) = by_target.entry((*to, operations)).or_default();
        sources.insert(*from);
        *count += messages.values().sum::<u64>();
    }
    let mut lines = Asked::new();
    for ((to, operations), (sources, count)) in by_target {
        let (targets, sum) = lines.entry((sources, operations)).or_default();
        targets.push(to);
        *sum += count;
    }
    let mut text = String::from(
        "# Learnt from what was seen. Put these lines into the gateway's configuration, and\n\
         #   access_default = \"deny\"\n\
         # into the [[pair]]; with \"would_deny\" lines one can be tried first.\n",
    );
    for (number, ((from, operations), (to, messages))) in (1..).zip(&lines) {
        let list = |hosts: &mut dyn Iterator<Item = &Host>| {
            let shown: Vec<_> = hosts.map(|it| format!("\"{}\"", address(it))).collect();
            format!("[{}]", shown.join(", "))
        };
        let operations: Vec<_> = operations.iter().map(|it| format!("\"{it}\"")).collect();
        let _ = write!(
            text,
            "\n[[access]]                       # {messages} messages\nname = \"learnt-{number}\"\n\
             from = {}\nto = {}\noperations = [{}]\naction = \"allow\"\n",
            list(&mut from.iter()),
            list(&mut to.iter()),
            operations.join(", "),
        );
    }
    text
}

/// IPv4 as such, anything else as IPv6 or a GID is written.
fn address(bytes: &Host) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*bytes)).to_canonical()
}
