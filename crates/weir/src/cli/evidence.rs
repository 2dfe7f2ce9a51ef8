//! `weir evidence`: the packets that a gateway remembers, in memory while it runs and on disk.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_port::FrameFilter;
use weir_store::evidence::{EvidenceFile, FlowEnd, FlowFilter, Label, files_in};
use weir_wire::frame::Time;

use super::capture::seconds;
use super::output::OutputFile;
use super::status::{ask_status, find_socket};
use super::terms::RdmaTerms;
use super::{EXIT_USAGE, WrongUse, print_json, records};
use crate::api::dto::{
    CutReport, CutRequest, EvidenceDiskSnapshot, EvidenceSnapshot, Request, Response,
};
use crate::daemon::control::socket::{self, Output};
use crate::daemon::pair::evidence::{self, Holding, Shard};
use crate::utc;

const HELP: &str = "\
A gateway with a table [evidence] in its configuration keeps the last packets of each pair of
ports: what the host said and heard, in clear, and what from the wire was dropped. The newest are
in memory; where `disk` names a folder, more are in files there, and outlive the gateway.

Examples:
  weir evidence list
  weir evidence cut --last 10 -w last.pcapng
  weir evidence cut --alert 17 -w alert.pcapng
  weir evidence cut --around 2026-01-31T23:59:58.5Z --window 2 -w then.pcapng
  weir evidence cut --qp 0x11 --qp 0x12 -w pair.pcapng
  weir evidence cut --flow 10.0.0.1-10.0.0.2:4791 -w flow.pcapng
  weir evidence cut --dropped -w - 'host 10.0.0.1' | tshark -r -
  weir evidence cut gw-a --last 10 -w last.pcapng host 10.0.0.1
  weir evidence cut --folder /var/lib/weir/evidence -w stopped.pcapng

A packet must meet every term given; of --qp, --opcode and --pkey given several times, one value.

Exit codes:
  0  done; a capture may be empty: the report says how many packets it has
  1  no gateway answers, it keeps no packets, or none of an alert's any more, the file cannot be
     written, or Ctrl-C
  2  the command line is wrong";

/// Where gateways keep their stores.
const STORES: &str = "/var/lib/weir/store";

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
    #[command(after_help = HELP)]
    List(ListArgs),
    /// Write chosen packets to a pcapng file, with direction and verdict
    #[command(after_help = HELP)]
    Cut(Box<CutArgs>),
}

/// Whose evidence.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// Only this pair of ports
    #[arg(long, value_name = "PAIR")]
    pub pair: Option<String>,
    /// Read the files in this folder; no gateway need run
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// The gateway's name; needed where several run
    #[arg(long, value_name = "NAME")]
    pub gateway: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
}

/// Arguments of `weir evidence list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The gateway's name; needed where several run
    #[arg(conflicts_with_all = ["gateway", "folder"])]
    pub name: Option<String>,
    /// Whose evidence.
    #[command(flatten)]
    pub source: Source,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir evidence cut`.
#[derive(Clone, Debug, Args)]
pub struct CutArgs {
    /// The pcapng file; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// The gateway's name, where one so called runs; then which packets, in pcap-filter's language
    /// (all words together are one expression)
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
    /// Only the last so many seconds; of files in a folder, the last that they hold
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub last: Option<Duration>,
    /// Only what was seen around this time, as alerts write it (RFC 3339) or in seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "last")]
    pub around: Option<u64>,
    /// How far around: so many seconds before and after
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub window: Duration,
    /// What belongs to the alert of this number, as `weir alerts` shows it: its flow, around its
    /// time
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["last", "around", "flow"])]
    pub alert: Option<u64>,
    /// Where gateways keep their stores, or a store.
    #[arg(
        long,
        value_name = "PATH",
        help = "Where gateways keep their stores, or a store: alerts are there [default: that of \
                the gateway that is asked, else /var/lib/weir/store]"
    )]
    pub store: Option<PathBuf>,
    /// Only packets of this flow.
    #[arg(
        long,
        value_name = "FLOW",
        value_parser = flow,
        help = "Only packets of this flow, both ways: ADDRESS[:PORT]-ADDRESS[:PORT] \
                (IPv6: [ADDRESS]:PORT)"
    )]
    pub flow: Option<FlowFilter>,
    /// RDMA terms.
    #[command(flatten)]
    pub terms: RdmaTerms,
    /// Only packets that were dropped
    #[arg(long)]
    pub dropped: bool,
    /// Whose evidence.
    #[command(flatten)]
    pub source: Source,
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
        EvidenceCommand::List(args) => match &args.source.folder {
            Some(folder) => list_folder(folder, args),
            None => list(args),
        },
        EvidenceCommand::Cut(args) => match args.alert {
            None => cut(args),
            Some(number) => cut(&args.of_alert(number)?),
        },
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
    let name = args.name.as_deref().or(args.source.gateway.as_deref());
    let snapshot = ask_status(&args.source.run_dir, name)?;
    let wanted = |name: &str| args.source.pair.as_ref().is_none_or(|pair| pair == name);
    let pairs: Vec<String> = snapshot.pairs.iter().map(|it| it.name.clone()).collect();
    let rings = snapshot.pairs.into_iter().filter(|it| wanted(&it.name)).filter_map(|pair| {
        let (host, wire) = (pair.host.interface, pair.wire.interface);
        pair.evidence.map(|evidence| Listed { pair: pair.name, host, wire, evidence })
    });
    let rings: Vec<Listed> = rings.collect();
    if args.json {
        print_json(&rings)?;
    } else {
        for Listed { pair, evidence, .. } in &rings {
            println!("pair {pair}: {}", describe(evidence));
            if let Some(disk) = &evidence.disk {
                println!("  {}", describe_disk(disk));
            }
        }
    }
    if !pairs.iter().any(|name| wanted(name)) {
        bail!("there is no such pair; there are: {}", pairs.join(", "));
    }
    if rings.is_empty() {
        bail!("this gateway keeps no packets: add a table [evidence] to its configuration");
    }
    Ok(ExitCode::SUCCESS)
}

/// A ring in one line.
pub(super) fn describe(ring: &EvidenceSnapshot) -> String {
    format!(
        "{}, {} packets in {:.1} of {} MiB; {} recorded, {} of them cut short, {} overwritten",
        age(ring.oldest_seconds),
        ring.packets,
        mib(ring.bytes),
        ring.capacity_bytes >> 20,
        ring.recorded,
        ring.cut,
        ring.overwritten
    )
}

/// A disk in one line.
pub(super) fn describe_disk(disk: &EvidenceDiskSnapshot) -> String {
    let failure = match &disk.failure {
        Some(failure) => format!("; NOT KEPT NOW: {failure}"),
        None => String::new(),
    };
    format!(
        "on disk {}, {} packets in {:.1} of {} MiB of {}; {} written, {} lost{failure}",
        age(disk.oldest_seconds),
        disk.packets,
        mib(disk.bytes),
        disk.capacity_bytes >> 20,
        disk.path.display(),
        disk.written,
        disk.lost,
    )
}

fn age(oldest_seconds: Option<f64>) -> String {
    oldest_seconds.map_or("empty".to_owned(), |it| format!("the last {it:.1} s"))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// One line of `weir evidence list --folder`.
#[derive(Serialize)]
struct Filed {
    gateway: String,
    pair: String,
    host: String,
    wire: String,
    worker: usize,
    path: PathBuf,
    packets: u64,
    bytes: u64,
    capacity_bytes: u64,
    /// RFC 3339, UTC.
    oldest: Option<String>,
    newest: Option<String>,
}

fn list_folder(folder: &Path, args: &ListArgs) -> Result<ExitCode> {
    let mut listed = Vec::new();
    for (path, file) in open_files(folder, &args.source)? {
        let extents = || file.slots().iter().map(|slot| slot.extent);
        let label = file.label().clone();
        listed.push(Filed {
            gateway: label.gateway,
            pair: label.pair,
            host: label.host,
            wire: label.wire,
            worker: label.worker,
            path,
            packets: extents().map(|it| it.packets).sum(),
            bytes: extents().map(|it| it.used as u64).sum(),
            capacity_bytes: file.capacity_bytes(),
            oldest: extents().map(|it| it.first.0).min().map(utc::written),
            newest: extents().map(|it| it.last.0).max().map(utc::written),
        });
    }
    if args.json {
        print_json(&listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    for file in &listed {
        let span = match (&file.oldest, &file.newest) {
            (Some(oldest), Some(newest)) => format!("{oldest} to {newest}"),
            _ => "empty".to_owned(),
        };
        println!(
            "gateway {} pair {}: {span}, {} packets in {:.1} of {} MiB of {}",
            file.gateway,
            file.pair,
            file.packets,
            mib(file.bytes),
            file.capacity_bytes >> 20,
            file.path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The files in `folder` that `source` wants; at least one.
fn open_files(folder: &Path, source: &Source) -> Result<Vec<(PathBuf, EvidenceFile)>> {
    let paths =
        files_in(folder).with_context(|| format!("{}: cannot read it", folder.display()))?;
    let mut files = Vec::new();
    for path in paths {
        let file = EvidenceFile::open(&path)?;
        let label = file.label();
        if source.pair.as_ref().is_none_or(|it| *it == label.pair)
            && source.gateway.as_ref().is_none_or(|it| *it == label.gateway)
        {
            files.push((path, file));
        }
    }
    if files.is_empty() {
        bail!("{}: no such evidence is there (files are called *.evidence)", folder.display());
    }
    Ok(files)
}

fn cut(args: &CutArgs) -> Result<ExitCode> {
    let to_output = args.write == Path::new("-");
    if to_output && io::stdout().is_terminal() {
        eprintln!("weir: packets are no text: pipe standard output, or give -w a file");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    check_words(args).map_err(|it| WrongUse(super::whole(&it)))?;
    // Before anybody goes to any trouble; and before signals are caught: a pipe that nobody reads
    // would wait for ever.
    let output = OutputFile::create(&args.write, args.force)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot watch for signals")?;
    }
    let taken = match &args.source.folder {
        Some(folder) => cut_folder(folder, args, &output, &stop),
        None => ask_cut(args, &output, &stop),
    };
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted; nothing was written to {}", args.write.display());
    }
    let report = taken?;
    if let (Some(number), 0) = (args.alert, report.packets) {
        bail!(
            "none of the packets of alert {number} is kept any more, or within {} s around it, or \
             is what else was asked for; nothing was written to {}",
            args.window.as_secs_f64(),
            args.write.display()
        );
    }
    output.keep()?;
    match (args.json, to_output) {
        (true, true) => eprintln!("{}", serde_json::to_string(&report)?),
        (true, false) => print_json(&report)?,
        (false, _) => eprintln!("{} packets, {} bytes", report.packets, report.bytes),
    }
    if report.unreadable > 0 && !args.json {
        let count = report.unreadable;
        eprintln!("weir: {count} pieces on disk were damaged or just being overwritten: left out");
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses words that are no expression, and says what else the first might have been.
fn check_words(args: &CutArgs) -> Result<()> {
    let (named, words) = args.words();
    let Some(first) = words.first() else { return Ok(()) };
    let Err(error) = FrameFilter::compile(&words.join(" ")) else { return Ok(()) };
    let error = anyhow::Error::from(error);
    if named.is_some() || args.source.folder.is_some() {
        return Err(error);
    }
    let run_dir = args.source.run_dir.display();
    Err(error.context(format!(
        "`{first}` is the name of no gateway that runs here (none so called in {run_dir}), nor the \
         beginning of an expression"
    )))
}

fn request(args: &CutArgs) -> CutRequest {
    let (_, words) = args.words();
    let window_ns = args.window.as_nanos() as u64;
    CutRequest {
        pair: args.source.pair.clone(),
        last_ms: args.last.map(|it| it.as_millis() as u64),
        from_ns: args.around.map(|it| it.saturating_sub(window_ns)),
        until_ns: args.around.map(|it| it.saturating_add(window_ns)),
        expression: (!words.is_empty()).then(|| words.join(" ")),
        flow: args.flow,
        queue_pairs: args.terms.qp.iter().map(|it| it.value()).collect(),
        opcodes: args.terms.opcode.iter().map(|it| it.0).collect(),
        partition_keys: args.terms.pkey.iter().map(|it| it.0).collect(),
        bad_icrc: args.terms.bad_icrc,
        nak: args.terms.nak,
        cnp: args.terms.cnp,
        dropped: args.dropped,
    }
}

impl CutArgs {
    /// The same for what belongs to an alert.
    fn of_alert(&self, number: u64) -> Result<Self> {
        let row = records::alert(&self.store(), self.words().0, number)?;
        let flow = FlowFilter::of_alert(&row);
        let mut source = self.source.clone();
        source.pair.get_or_insert(row.pair);
        Ok(Self { around: Some(row.time_ns), flow: Some(flow), source, ..self.clone() })
    }

    /// Where the alerts are: the store of the gateway that is asked, unless another is named.
    fn store(&self) -> PathBuf {
        let of_gateway = || {
            let snapshot = ask_status(&self.source.run_dir, self.words().0).ok()?;
            Some(snapshot.store?.path)
        };
        let named = self.store.clone();
        let found = named.or_else(|| of_gateway().filter(|_| self.source.folder.is_none()));
        found.unwrap_or_else(|| STORES.into())
    }

    /// Whose evidence, and the words of the expression: the first names a gateway where one so
    /// called runs, and nothing else says which is meant.
    fn words(&self) -> (Option<&str>, &[String]) {
        let Source { folder, gateway, run_dir, .. } = &self.source;
        let named = gateway.as_deref();
        match self.expression.split_first() {
            Some((first, rest))
                if named.is_none()
                    && folder.is_none()
                    && find_socket(run_dir, Some(first)).is_ok_and(|it| it.exists()) =>
            {
                (Some(first), rest)
            }
            _ => (named, &self.expression),
        }
    }
}

/// Has the gateway write it.
fn ask_cut(args: &CutArgs, output: &OutputFile, stop: &AtomicBool) -> Result<CutReport> {
    let socket = find_socket(&args.source.run_dir, args.words().0)?;
    let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
    let mut go_on = || {
        if let Some(bar) = &bar {
            bar.set_message(format!("cutting evidence, {:.1} MiB", mib(output.len())));
            bar.tick();
        }
        !stop.load(Ordering::Relaxed)
    };
    let request = Request::EvidenceCut(request(args));
    let asked = socket::ask_for_output(&socket, &request, output.file().as_fd(), &mut go_on);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let response = asked.with_context(|| {
        format!("no gateway answers at {}; is it running, and are you root?", socket.display())
    })?;
    match response {
        Response::Evidence(report) => Ok(report),
        Response::Error(error) => bail!("the gateway says: {error}"),
        _ => bail!("the gateway does not know of evidence: is it an older one?"),
    }
}

/// Writes it from the files themselves.
fn cut_folder(
    folder: &Path,
    args: &CutArgs,
    output: &OutputFile,
    stop: &Arc<AtomicBool>,
) -> Result<CutReport> {
    let files = open_files(folder, &args.source)?;
    let lasts = files.iter().flat_map(|(_, file)| file.slots()).map(|slot| slot.extent.last);
    let newest = lasts.max().unwrap_or_default();
    let mut holdings: BTreeMap<_, Holding> = BTreeMap::new();
    for (path, file) in &files {
        let Label { gateway, pair, host, wire, .. } = file.label().clone();
        let holding = holdings.entry((gateway, pair));
        let holding = holding.or_insert(Holding { host, wire, shards: Vec::new() });
        holding.shards.push(Shard::of_file(path));
    }
    let holdings: Vec<Holding> = holdings.into_values().collect();
    let file = output.file().try_clone().context("cannot write there")?;
    evidence::cut(Output::new(file, Arc::clone(stop)), &holdings, &request(args), Time(newest.0))
}

fn time(text: &str) -> Result<u64, String> {
    utc::read(text).ok_or_else(|| {
        format!("{text} is no time: write 2026-01-31T23:59:59.5Z, or seconds since 1970")
    })
}

fn flow(text: &str) -> Result<FlowFilter, String> {
    let wrong = || format!("{text} is no flow: write ADDRESS[:PORT]-ADDRESS[:PORT]");
    let (one, other) = text.split_once('-').ok_or_else(wrong)?;
    let ends = [end(one).ok_or_else(wrong)?, end(other).ok_or_else(wrong)?];
    Ok(FlowFilter { ends, protocol: None })
}

fn end(text: &str) -> Option<FlowEnd> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse() {
        return Some(FlowEnd { address, port: None });
    }
    let (address, port) = text.rsplit_once(':')?;
    let address = address.trim_matches(['[', ']']).parse().ok()?;
    Some(FlowEnd { address, port: Some(port.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn a_gateway_that_does_not_run_is_told_from_an_expression() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = folder.path().to_str().unwrap();
        let check = |words: &[&str]| {
            let start = ["cut", "-w", "x.pcapng", "--run-dir", run_dir];
            let args = [&start[..], words].concat();
            let args = CutArgs::augment_args(clap::Command::new("cut")).get_matches_from(args);
            check_words(&CutArgs::from_arg_matches(&args).unwrap())
        };
        check(&["host", "10.0.0.1"]).unwrap();
        check(&[]).unwrap();
        let error = check(&["gw-x", "host", "10.0.0.1"]).unwrap_err().to_string();
        assert!(error.starts_with("`gw-x` is the name of no gateway"), "{error}");
        let error = check(&["--gateway", "gw-x", "nonsense"]).unwrap_err().to_string();
        assert!(!error.contains("is the name of"), "{error}");
    }

    #[test]
    fn a_flow_is_written_as_two_ends() {
        let ends =
            |text: &str| flow(text).unwrap().ends.map(|it| (it.address.to_string(), it.port));
        let named = |address: &str, port| (address.to_owned(), port);
        let expected = [named("10.0.0.1", Some(7)), named("10.0.0.2", None)];
        assert_eq!(ends("10.0.0.1:7-10.0.0.2"), expected);
        let expected = [named("fd00::1", Some(7)), named("fd00::2", None)];
        assert_eq!(ends("[fd00::1]:7-fd00::2"), expected);
        for wrong in ["", "10.0.0.1", "a-b", "10.0.0.1:x-10.0.0.2"] {
            assert!(flow(wrong).is_err(), "{wrong}");
        }
    }
}
