//! `weir read`: captures through the gateway's own engine.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_engine::meter::Icrc;
use weir_store::sink::{Collector, Exporter, Interfaces, TlsFiles};
use weir_wire::frame::Time;

use super::EXIT_USAGE;
use crate::config::export;
use crate::config::file::ExportFormat;
use crate::config::rules::Digest;
use crate::read::events::EVENT_KINDS;
use crate::read::{Analysis, CaptureReport, analyse, csv, text};

mod detection;

const HELP: &str = "\
Examples:
  weir read capture.pcapng
  weir read --json *.pcap | jq .rdma.opcodes
  weir read --conversations --csv capture.pcap > conversations.csv
  weir read --export udp://192.0.2.9:4739 capture.pcap
  tcpdump -i eth0 -w - | weir read -
  weir read --rules /etc/weir/rules --eve eve.json capture.pcap
  weir read --eve - capture.pcap | jq 'select(.event_type == \"dns\")'

Reads pcap and pcapng, micro- and nanoseconds, either byte order, ERF records. All files are one
analysis; a file that cannot be read (further) is reported on standard error, and the rest counts.

Exit codes:
  0  every file was read to its end
  1  a file could not be read, or not to its end
  2  the command line is wrong";

/// Arguments of `weir read`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReadArgs {
    /// The captures; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print everything as one JSON object
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// List the flows (5-tuples), the largest first
    #[arg(long)]
    pub flows: bool,
    /// List the queue-pair conversations, the largest first
    #[arg(long)]
    pub conversations: bool,
    /// Print the list as CSV
    #[arg(long)]
    pub csv: bool,
    /// Send the records to a collector: udp://HOST:PORT or tcp://HOST:PORT
    #[arg(long, value_name = "COLLECTOR")]
    pub export: Option<String>,
    /// The format to export
    #[arg(long, value_enum, default_value = "ipfix", requires = "export")]
    pub export_format: ExportFormat,
    /// Look at the packets with these detection rules: a file, or a folder of *.rules
    #[arg(long, value_name = "PATH", requires = "eve")]
    #[arg(conflicts_with_all = ["export", "csv", "flows", "conversations"])]
    pub rules: Vec<PathBuf>,
    /// Write the alerts there, and flows, anomalies and what is spoken, as EVE JSON; `-` is
    /// standard output. Without --rules there are no alerts
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["export", "csv", "flows", "conversations"])]
    pub eve: Option<PathBuf>,
    /// Kinds of events to write beside alerts and drops, by EVE's names, commas between them: all,
    /// unless it is given; `alert`: no others
    #[arg(long, value_name = "KINDS", value_delimiter = ',', requires = "eve")]
    #[arg(value_parser = PossibleValuesParser::new(EVENT_KINDS))]
    pub types: Vec<String>,
    /// Version of `dns` objects to write there: 3, as Suricata 8 writes them, or 2, as before
    #[arg(long, value_name = "VERSION", requires = "eve", default_value = "3")]
    #[arg(value_parser = PossibleValuesParser::new(["2", "3"]))]
    pub dns_version: String,
    /// Whose headers to write there in full, in `http` events: request, response, both with a comma
    /// between them
    #[arg(long, value_name = "WHOSE", value_delimiter = ',', requires = "eve")]
    #[arg(value_parser = PossibleValuesParser::new(["request", "response"]))]
    pub http_headers: Vec<String>,
    /// Digests of files to write there beside those that rules ask for, commas between them
    #[arg(long, value_name = "DIGESTS", value_delimiter = ',', requires = "eve")]
    pub digests: Vec<Digest>,
    /// A suricata.yaml whose address and port groups and reputations the rules use
    #[arg(long, value_name = "FILE", requires = "rules")]
    pub variables: Option<PathBuf>,
    /// A file of addresses and nets that $NAME in rules stands for, such as Spamhaus' drop.txt
    #[arg(long = "list", requires = "rules", value_name = "NAME=FILE",
          value_parser = super::rules::list)]
    pub lists: Vec<(String, PathBuf)>,
    /// A MaxMind database (.mmdb) of countries, for rules with `geoip`
    #[arg(long, value_name = "FILE", requires = "rules")]
    pub geoip: Option<PathBuf>,
    /// No rule finds the checksums of IP, TCP, UDP and ICMP wrong, and TCP segments with wrong ones
    /// are part of their connection: for captures taken on the sending machine, whose adapter
    /// computes them (Suricata's -k none)
    #[arg(long, requires = "eve")]
    pub no_checksums: bool,
    /// Packets are of one flow that differ by their VLANs alone: for captures of links that carry
    /// each direction in another VLAN (Suricata's vlan.use-for-tracking: no)
    #[arg(long, requires = "eve")]
    pub ignore_vlans: bool,
    /// Read and write the sets of values that rules keep (`dataset` with `state` or `save`) in this
    /// folder; without it they begin empty and are written nowhere
    #[arg(long, value_name = "DIR", requires = "rules")]
    pub datasets: Option<PathBuf>,
    /// Do not compute ICRCs: they count as unchecked
    #[arg(long)]
    pub no_icrc: bool,
}

/// Runs `weir read`.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &ReadArgs) -> anyhow::Result<ExitCode> {
    if args.csv && args.flows == args.conversations {
        eprintln!("weir: --csv prints one list: give it with either --flows or --conversations");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if let Some(eve) = &args.eve {
        return detection::run(args, eve);
    }
    let icrc = if args.no_icrc { Icrc::Skip } else { Icrc::Check };
    let bar = progress_bar(args);
    let (mut done, mut current) = (0, None);
    let is_over = interrupted()?;
    let mut analysis = analyse(&args.files, icrc, random_seed(), &is_over, &mut |path, bytes| {
        if let Some(bar) = &bar {
            if current.as_deref() != Some(path) {
                done = bar.position();
                current = Some(path.to_path_buf());
            }
            bar.set_position(done + bytes);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    for error in analysis.files.iter().filter_map(|file| file.error.as_ref()) {
        eprintln!("weir: {error}");
    }
    for file in analysis.files.iter().filter(|file| file.stats.truncated_records > 0) {
        eprintln!("weir: {}: it ends within a packet", file.path.display());
    }
    let mut out = io::stdout().lock();
    out.write_all(render(args, &analysis)?.as_bytes())?;
    out.flush()?;
    if let Some(collector) = &args.export {
        export(collector, args.export_format, &mut analysis)?;
    }
    let is_complete = analysis.is_complete() && !says_interrupted(args, &is_over);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What Ctrl-C sets: what was read until then is told, as by tcpdump. The second one ends the
/// program.
pub(super) fn interrupted() -> anyhow::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            128 + signal,
            Arc::clone(&is_over),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&is_over)))
        .context("cannot watch for signals")?;
    }
    Ok(is_over)
}

/// Whether Ctrl-C ended it before the end, and says so. What is read while it is captured ends so.
fn says_interrupted(args: &ReadArgs, is_over: &AtomicBool) -> bool {
    let is_live = args.files.iter().any(|it| it.as_os_str() == "-");
    let is_over = is_over.load(Ordering::Relaxed) && !is_live;
    if is_over {
        eprintln!("weir: interrupted: what comes behind that was not read");
    }
    is_over
}

/// Sends every record to `collector`. It begins with the captures' first packet: NetFlow counts
/// time from there, and by 32 bits, so records older than 49 days need IPFIX.
fn export(collector: &str, format: ExportFormat, analysis: &mut Analysis) -> anyhow::Result<()> {
    let endpoint = export::endpoint(collector, TlsFiles::default())
        .map_err(|(what, remedy)| anyhow::anyhow!("{what}; {remedy}"))?;
    let options = export::options(&endpoint, format);
    let boot = analysis.span.map_or(Time::default(), |(first, _)| first);
    let exporter = Exporter::start(&[Collector { endpoint, options, spool: None }], boot)?;
    let sender = exporter.sender(Interfaces::default());
    analysis.meter.flush(&mut |record| sender.send_waiting(record));
    for counters in exporter.stop() {
        eprintln!(
            "weir: {}: {} records as {} data records in {} messages, {} without a form, {} lost",
            counters.collector,
            counters.records,
            counters.data_records,
            counters.messages_sent,
            counters.without_form,
            counters.data_records_lost
        );
    }
    Ok(())
}

fn render(args: &ReadArgs, analysis: &Analysis) -> anyhow::Result<String> {
    let mut report = CaptureReport::of(analysis);
    if args.json {
        report.flow_list = args.flows.then(|| CaptureReport::flows_of(analysis));
        report.conversation_list =
            args.conversations.then(|| CaptureReport::conversations_of(analysis));
        return Ok(serde_json::to_string_pretty(&report)? + "\n");
    }
    if !args.flows && !args.conversations {
        let (flows, conversations) =
            (CaptureReport::flows_of(analysis), CaptureReport::conversations_of(analysis));
        return Ok(text::summary(&report, &flows, &conversations));
    }
    let mut out = String::new();
    if args.flows {
        let flows = CaptureReport::flows_of(analysis);
        out += &if args.csv { csv::flows(&flows) } else { text::flow_list(&flows) };
    }
    if args.conversations {
        let list = CaptureReport::conversations_of(analysis);
        out += &if args.csv { csv::conversations(&list) } else { text::conversation_list(&list) };
    }
    Ok(out)
}

/// A bar on standard error, when somebody is looking and all sizes are known.
fn progress_bar(args: &ReadArgs) -> Option<ProgressBar> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let sizes = args.files.iter().map(|path| Some(std::fs::metadata(path).ok()?.len()));
    let total: u64 = sizes.sum::<Option<u64>>()?;
    let template = "{bar:40} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).ok()?;
    Some(ProgressBar::new(total).with_style(style))
}

/// 128 bits from the standard library's own source of randomness for hash maps.
pub(super) fn random_seed() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}
