//! `weir evidence`: the packets that a running gateway remembers.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use weir_wire::bth::{Opcode, PartitionKey, Qpn};

use super::capture::{partition_key, queue_pair, seconds};
use super::print_json;
use super::status::{ask_status, find_socket};
use crate::api::dto::{CutReport, CutRequest, EvidenceSnapshot, Request, Response};
use crate::capture::opcode_named;
use crate::daemon::control;

const HELP: &str = "\
A gateway with a table [evidence] in its configuration keeps the last packets of each pair of ports
in memory: what the host said and heard, in clear, and what from the wire was dropped.

Examples:
  weir evidence list
  weir evidence cut --last 10 -w last.pcapng
  weir evidence cut --qp 0x11 --qp 0x12 -w pair.pcapng
  weir evidence cut --flow 10.0.0.1-10.0.0.2:4791 -w flow.pcapng
  weir evidence cut --dropped -w - 'host 10.0.0.1' | tshark -r -

Exit codes:
  0  done
  1  no gateway answers, it keeps no packets, or the file cannot be written
  2  the command line is wrong";

/// Arguments of `weir evidence`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct EvidenceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: EvidenceCommand,
}

/// The commands of `weir evidence`.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// Show what each pair of ports holds
    List(ListArgs),
    /// Write chosen packets to a pcapng file, with direction and verdict
    #[command(after_help = HELP)]
    Cut(CutArgs),
}

/// Arguments of `weir evidence list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The gateway's name; needed where several run
    pub name: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir evidence cut`.
#[derive(Debug, Args)]
pub struct CutArgs {
    /// The file; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// What to cut, in pcap-filter's language; all words together are one expression
    #[arg(value_name = "EXPRESSION", trailing_var_arg = true)]
    pub expression: Vec<String>,
    /// Only the last so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub last: Option<Duration>,
    /// Packets between two ends, both ways: ADDRESS[:PORT]-ADDRESS[:PORT], IPv6 as [ADDRESS]
    #[arg(long, value_name = "FLOW", value_parser = flow)]
    pub flow: Option<String>,
    /// RDMA packets to this queue pair, or from it where the packet says so (hex as 0x11)
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    pub qp: Vec<Qpn>,
    /// RDMA packets with this opcode: name (rc_write_only) or number
    #[arg(long, value_name = "OPCODE", value_parser = opcode_named)]
    pub opcode: Vec<Opcode>,
    /// RDMA packets with this partition key, membership bit included (0xffff)
    #[arg(long, value_name = "KEY", value_parser = partition_key)]
    pub pkey: Vec<PartitionKey>,
    /// RDMA packets whose ICRC is wrong
    #[arg(long)]
    pub bad_icrc: bool,
    /// RDMA negative acknowledgments, RNR NAKs included
    #[arg(long)]
    pub nak: bool,
    /// RDMA congestion notification packets
    #[arg(long)]
    pub cnp: bool,
    /// Only packets that were dropped
    #[arg(long)]
    pub dropped: bool,
    /// Only this pair of ports
    #[arg(long, value_name = "PAIR")]
    pub pair: Option<String>,
    /// The gateway's name; needed where several run
    #[arg(long, value_name = "NAME")]
    pub gateway: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Replace a file of the same name
    #[arg(long)]
    pub force: bool,
    /// Print the report as JSON (to standard error when packets go to standard output)
    #[arg(long)]
    pub json: bool,
}

/// Runs `weir evidence`.
///
/// # Errors
/// No gateway answers, it keeps no packets, or the file cannot be written.
pub fn run(args: &EvidenceArgs) -> Result<ExitCode> {
    match &args.command {
        EvidenceCommand::List(args) => list(args),
        EvidenceCommand::Cut(args) => cut(args),
    }
}

/// One line of `weir evidence list`.
#[derive(Serialize)]
struct Listed {
    pair: String,
    host: String,
    wire: String,
    #[serde(flatten)]
    evidence: EvidenceSnapshot,
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let snapshot = ask_status(&args.run_dir, args.name.as_deref())?;
    let rings = snapshot.pairs.into_iter().filter_map(|pair| {
        let (host, wire) = (pair.host.interface, pair.wire.interface);
        pair.evidence.map(|evidence| Listed { pair: pair.name, host, wire, evidence })
    });
    let rings: Vec<Listed> = rings.collect();
    if args.json {
        print_json(&rings)?;
    } else {
        for Listed { pair, evidence, .. } in &rings {
            println!("pair {pair}: {}", describe(evidence));
        }
    }
    if rings.is_empty() {
        bail!("this gateway keeps no packets: add a table [evidence] to its configuration");
    }
    Ok(ExitCode::SUCCESS)
}

/// A ring in one line.
pub(super) fn describe(ring: &EvidenceSnapshot) -> String {
    let age = ring.oldest_seconds.map_or("empty".to_owned(), |it| format!("the last {it:.1} s"));
    format!(
        "{age}, {} packets in {:.1} of {} MiB; {} recorded, {} cut, {} overwritten",
        ring.packets,
        ring.bytes as f64 / f64::from(1 << 20),
        ring.capacity_bytes >> 20,
        ring.recorded,
        ring.cut,
        ring.overwritten
    )
}

fn cut(args: &CutArgs) -> Result<ExitCode> {
    let to_output = args.write == Path::new("-");
    // Before the gateway goes to any trouble.
    let target = (!to_output).then(|| create(&args.write, args.force)).transpose()?;
    let words = (!args.expression.is_empty()).then(|| format!("({})", args.expression.join(" ")));
    let flow = args.flow.as_ref().map(|it| format!("({it})"));
    let terms: Vec<String> = words.into_iter().chain(flow).collect();
    let request = CutRequest {
        pair: args.pair.clone(),
        last_ms: args.last.map(|it| it.as_millis() as u64),
        expression: (!terms.is_empty()).then(|| terms.join(" and ")),
        queue_pairs: args.qp.iter().map(|it| it.value()).collect(),
        opcodes: args.opcode.iter().map(|it| it.0).collect(),
        partition_keys: args.pkey.iter().map(|it| it.0).collect(),
        bad_icrc: args.bad_icrc,
        nak: args.nak,
        cnp: args.cnp,
        dropped: args.dropped,
    };
    let result = take(args, request, target);
    if result.is_err() && !to_output && fs::metadata(&args.write).is_ok_and(|it| it.len() == 0) {
        let _ = fs::remove_file(&args.write);
    }
    let mut report = result?;
    report.path.clone_from(&args.write);
    match (args.json, to_output) {
        (true, true) => eprintln!("{}", serde_json::to_string(&report)?),
        (true, false) => print_json(&report)?,
        (false, _) => eprintln!("{} packets, {} bytes", report.packets, report.bytes),
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the gateway cut, and takes the file from where it put it.
fn take(args: &CutArgs, request: CutRequest, target: Option<File>) -> Result<CutReport> {
    let socket = find_socket(&args.run_dir, args.gateway.as_deref())?;
    let response = control::ask(&socket, Request::EvidenceCut(request)).with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    let report = match response {
        Response::Evidence(report) => report,
        Response::Error(error) => bail!("the gateway says: {error}"),
        Response::Status(_) => bail!("the gateway does not know of evidence: is it an older one?"),
    };
    let source = File::open(&report.path)
        .with_context(|| format!("{}: cannot take the cut", report.path.display()));
    let _ = fs::remove_file(&report.path);
    let mut source = source?;
    let copied = match target {
        Some(mut file) => io::copy(&mut source, &mut file),
        None => io::copy(&mut source, &mut io::stdout().lock()),
    };
    copied.with_context(|| format!("{}: cannot write it", args.write.display()))?;
    Ok(report)
}

fn create(path: &Path, force: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{}: there is such a file; --force overwrites it", path.display())
        }
        _ => anyhow::anyhow!("{}: cannot write there: {error}", path.display()),
    })
}

/// `10.0.0.1:7-10.0.0.2` as pcap-filter has it: both ways.
fn flow(text: &str) -> Result<String, String> {
    let wrong = || format!("{text} is no flow: write ADDRESS[:PORT]-ADDRESS[:PORT]");
    let (one, other) = text.split_once('-').ok_or_else(wrong)?;
    let (one, other) = (end(one).ok_or_else(wrong)?, end(other).ok_or_else(wrong)?);
    let way = |from: &(IpAddr, Option<u16>), to: &(IpAddr, Option<u16>)| {
        let port = |side: &str, port: Option<u16>| {
            port.map(|it| format!(" and {side} port {it}")).unwrap_or_default()
        };
        format!(
            "src host {}{} and dst host {}{}",
            from.0,
            port("src", from.1),
            to.0,
            port("dst", to.1)
        )
    };
    Ok(format!("({}) or ({})", way(&one, &other), way(&other, &one)))
}

fn end(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse() {
        return Some((address, None));
    }
    let (address, port) = text.rsplit_once(':')?;
    Some((address.trim_matches(['[', ']']).parse().ok()?, Some(port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_both_its_ways() {
        assert_eq!(
            flow("10.0.0.1:7-10.0.0.2").unwrap(),
            "(src host 10.0.0.1 and src port 7 and dst host 10.0.0.2) or \
             (src host 10.0.0.2 and dst host 10.0.0.1 and dst port 7)"
        );
        assert!(flow("[fd00::1]:7-fd00::2").unwrap().contains("src host fd00::1 and src port 7"));
        for wrong in ["", "10.0.0.1", "a-b", "10.0.0.1:x-10.0.0.2"] {
            assert!(flow(wrong).is_err(), "{wrong}");
        }
    }
}
