//! `weir access learn`: lines out of what was seen in captures, or by a gateway, grouped, ready to
//! edit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use weir_engine::access::{Operation, asked, is_group};
use weir_port::capture::CaptureReader;
use weir_serve::gateways::Places;
use weir_serve::query;
use weir_store::sqlite::AskedRow;
use weir_wire::parse::parse;

use crate::cli::output::OutputFile;
use crate::cli::records::seconds;

pub(super) const HELP: &str = "\
Each line allows what one group of hosts was seen to ask of another: what is in the captures, or in
the store of a gateway that has a table [store], is taken for right. A store does not tell SEND with
immediate data from SEND; conversations under way are in it after `active_timeout_s`. Look at the
lines before they are enforced; `weir access test` says what they would deny of another day.
Connections need no line of their own, answers neither.

Examples:
  weir capture -i pf0hpf -w monday.pcapng --seconds 3600
  weir access learn monday.pcapng -o lines.toml
  weir access learn --gateway gw-a --last 7d -o lines.toml
  weir access learn

Exit codes:
  0  written
  1  a capture or a store cannot be read, or has no RDMA
  2  the command line is wrong";

#[derive(Debug, Args)]
pub(super) struct LearnArgs {
    /// Captures of what is right; without any, and without --gateway: what this machine's gateway
    /// saw
    #[arg(value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// A gateway, running or not, that saw what is right
    #[arg(long, value_name = "NAME")]
    gateway: Option<String>,
    /// Where gateways keep their stores, or a store; several allowed
    #[arg(long, default_value = "/var/lib/weir/store", value_name = "PATH")]
    store: Vec<PathBuf>,
    /// Of the gateway: only this pair of ports
    #[arg(long, value_name = "NAME")]
    pair: Option<String>,
    /// Of the gateway: the last so long (90s, 10m, 6h, 7d)
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = seconds)]
    last: u64,
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
    let gateway = match &args.gateway {
        None if args.captures.is_empty() => Some(only_store(args)?),
        named => named.clone(),
    };
    if let Some(gateway) = gateway {
        take_stored(&mut seen, &gateway, args)?;
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

fn places(args: &LearnArgs) -> Places {
    Places { run_folders: Vec::new(), stores: args.store.clone() }
}

/// The only gateway that has a store.
fn only_store(args: &LearnArgs) -> Result<String> {
    let stores = places(args).stores();
    let mut names = stores.keys();
    match (names.next(), names.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => bail!(
            "name a capture, or add a table [store] to a gateway's configuration: no gateway has a \
             store here"
        ),
        _ => {
            let names: Vec<&str> = stores.keys().map(String::as_str).collect();
            bail!("several gateways have a store; --gateway names one of {}", names.join(", "))
        }
    }
}

/// What `gateway` stored.
fn take_stored(seen: &mut Seen, gateway: &str, args: &LearnArgs) -> Result<()> {
    let places = places(args);
    if !places.stores().contains_key(gateway) {
        bail!(
            "no store of gateway {gateway}: add a table [store] to its configuration, or say \
             --store"
        );
    }
    let range = query::range(None, None, Some(args.last)).map_err(|said| anyhow!(said))?;
    let (rows, problems) = query::each(&places, Some(gateway), |_, reader| {
        reader.asked(range, args.pair.as_deref(), PAIRS_MAX as u32 + 1)
    });
    if let Some(problem) = problems.first() {
        bail!("{problem}");
    }
    if rows.len() > PAIRS_MAX {
        bail!(
            "more than {PAIRS_MAX} pairs of hosts spoke RDMA there: say --pair, or a shorter --last"
        );
    }
    for AskedRow { source, destination, asked, messages } in rows {
        let of_pair = seen.entry((source, destination)).or_default();
        for operation in stored_operations(asked, is_group(&destination)) {
            of_pair.entry(operation.name()).or_default();
        }
        // Counted together: with the first of them.
        if let Some(count) = of_pair.values_mut().next() {
            *count += messages;
        }
    }
    Ok(())
}

/// The operations behind a store's bits.
fn stored_operations(asked: u8, is_to_group: bool) -> Vec<Operation> {
    let sends: &[Operation] = match is_to_group {
        true => &[Operation::Multicast],
        false => &[Operation::Send, Operation::SendImmediate],
    };
    let bits = [
        (AskedRow::SEND, sends),
        (AskedRow::WRITE, &[Operation::Write]),
        (AskedRow::READ, &[Operation::Read]),
        (AskedRow::ATOMIC, &[Operation::Atomic]),
    ];
    let were_asked = bits.into_iter().filter(|(bit, _)| asked & bit != 0);
    were_asked.flat_map(|(_, operations)| operations).copied().collect()
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
