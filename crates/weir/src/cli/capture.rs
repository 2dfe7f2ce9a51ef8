//! `weir capture`: packets of one interface into files, and every one accounted for.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::terms::RdmaTerms;
use super::{EXIT_USAGE, print_json};
use crate::capture::{
    Counts, Ending, FileLimits, NamePattern, Plan, Progress, RecordingReport, Target, capture,
};
use crate::source::Driver;

const HELP: &str = "\
Examples:
  weir capture -i p0 -w trace.pcapng
  weir capture -i p0 -w trace.pcapng 'host 10.0.0.1 and udp port 4791'
  weir capture -i p0 -w naks.pcapng --nak --seconds 60
  weir capture -i p0 -w 'ring-%n-%t.pcapng' --rotate-size 1G --files 10 --zstd
  weir capture -i p0 -w - --qp 0x11 | tshark -r -

The expression is pcap-filter's (compiled by libpcap, applied in the kernel: what it rejects is
counted nowhere). RDMA options are applied to what it takes; a packet must meet each of them, and of
an option given several times one value; --bad-icrc, --nak and --cnp mean any of those given.

Received = written + filtered out + after the end + lost by Weir; lost by the kernel (ring full:
give more with --ring-size) and by the device come before that. A super-packet is stored whole, as
one packet. VLAN tags are stored. Where the NIC's driver has a private flag `sniffer` (mlx5 with
NVIDIA's driver), it is set, and cleared at the end; this has not been tried on such a NIC.

In a file name, %n is the file's number, %t the UTC time of its beginning, %i the interface.

Exit codes:
  0  ended as asked; the report says what was lost
  1  it could not begin, or the output failed, or the interface went away
  2  the command line is wrong";

/// Arguments of `weir capture`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CaptureArgs {
    /// The interface
    #[arg(short, long, value_name = "PORT")]
    pub interface: String,
    /// The pcapng file; `-` is standard output, `/dev/null` measures
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// What to capture, in pcap-filter's language; all words together are one expression
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
    /// RDMA terms.
    #[command(flatten)]
    pub terms: RdmaTerms,
    /// Keep only the first bytes of each packet
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub snap: Option<u32>,
    /// End after this many packets are taken
    #[arg(short, long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Begin a new file when one has this size (500K, 100M, 2G; powers of 1024)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rotate_size: Option<u64>,
    /// Begin a new file when one is this old
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub rotate_seconds: Option<Duration>,
    /// Keep this many files, and remove the oldest
    #[arg(long, visible_alias = "ring", value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub files: Option<u32>,
    /// Compress by zstd; Wireshark reads it so. The name should end in `.zst`
    #[arg(long)]
    pub zstd: bool,
    /// Replace files of the same name; without it they stay, and the capture does not begin
    #[arg(long)]
    pub force: bool,
    /// How packets are taken: beside the host's own stack, or in its place
    #[arg(long, value_enum, default_value = "packet")]
    pub driver: Driver,
    /// Memory that holds packets until they are read [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub ring_size: Option<u64>,
    /// Only what is for this machine: do not make the interface promiscuous
    #[arg(long)]
    pub no_promiscuous: bool,
    /// Print the report as JSON (to standard error when packets go to standard output)
    #[arg(long)]
    pub json: bool,
}

/// Runs `weir capture`.
///
/// # Errors
/// It cannot begin.
pub fn run(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(problem) => {
            eprintln!("weir: {problem}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot watch for signals")?;
    }
    let mut teller = Teller { interface: &args.interface, bar: None };
    let report = capture(&plan, &stop, &mut teller);
    if let Some(bar) = teller.bar {
        bar.finish_and_clear();
    }
    let report = report?;
    match (args.json, &plan.target) {
        (true, Target::StandardOutput) => eprintln!("{}", serde_json::to_string(&report)?),
        (true, Target::Files(_)) => print_json(&report)?,
        (false, _) => eprint!("{}", text(&report)),
    }
    match &report.ending {
        Ending::AsAsked | Ending::OutputClosed => return Ok(ExitCode::SUCCESS),
        Ending::OutputFailed(reason) => eprintln!("weir: {reason}"),
        Ending::InterfaceGone => eprintln!("weir: {}: the interface is gone", args.interface),
    }
    Ok(ExitCode::FAILURE)
}

fn plan(args: &CaptureArgs) -> Result<Plan, String> {
    let limits = FileLimits {
        bytes: args.rotate_size,
        age: args.rotate_seconds,
        keep: args.files.map(|count| count as usize),
    };
    let to_output = args.write == Path::new("-");
    if to_output && limits.rotates() {
        return Err("standard output cannot be rotated: give -w a file name".to_owned());
    }
    if limits.keep.is_some() && !limits.rotates() {
        return Err("--files needs --rotate-size or --rotate-seconds".to_owned());
    }
    if to_output && io::stdout().is_terminal() {
        return Err("packets are no text: pipe standard output, or give -w a file".to_owned());
    }
    let target = if to_output {
        Target::StandardOutput
    } else {
        Target::Files(NamePattern::new(&args.write, limits.rotates())?)
    };
    Ok(Plan {
        interface: args.interface.clone(),
        driver: args.driver,
        expression: (!args.expression.is_empty()).then(|| args.expression.join(" ")),
        selection: args.terms.selection(),
        snap_bytes: args.snap,
        target,
        limits,
        compress: args.zstd,
        overwrite: args.force,
        count: args.count,
        duration: args.seconds,
        ring_bytes: args.ring_size,
        promiscuous: !args.no_promiscuous,
    })
}

/// Tells the user on standard error, with a line that changes where that is a terminal.
struct Teller<'a> {
    interface: &'a str,
    bar: Option<ProgressBar>,
}

impl Progress for Teller<'_> {
    fn started(&mut self, file: &str) {
        eprintln!("weir: capturing {} into {file}; Ctrl-C ends it", self.interface);
        self.bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
    }

    fn counted(&mut self, counts: &Counts, file: &str, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.tick();
            bar.set_message(format!(
                "{} received, {} written ({:.1} MB, {file}), {} lost",
                counts.received,
                counts.written,
                bytes as f64 / 1e6,
                counts.lost()
            ));
        }
    }

    fn warned(&mut self, warning: &str) {
        eprintln!("weir: {warning}");
    }
}

fn text(report: &RecordingReport) -> String {
    let Counts { received, written, filtered_out, after_end, .. } = report.packets;
    let Counts { lost_by_weir, lost_by_kernel, lost_by_device, cut, .. } = report.packets;
    let mut text = format!("{received:>12} received\n{written:>12} written");
    text += &format!(" ({} bytes, {:.1} s)", report.bytes, report.seconds);
    if cut > 0 {
        text += &format!(", {cut} of them cut short");
    }
    text.push('\n');
    for (count, what) in [
        (filtered_out, "filtered out by the RDMA options"),
        (after_end, "still waiting when the count was reached"),
    ] {
        if count > 0 {
            text += &format!("{count:>12} {what}\n");
        }
    }
    let hint = if lost_by_kernel > 0 { " (ring full: give more by --ring-size)" } else { "" };
    text += &format!("{lost_by_weir:>12} lost by weir (not written)\n");
    text += &format!("{lost_by_kernel:>12} lost by the kernel{hint}\n");
    text += &format!("{lost_by_device:>12} lost by the device\n");
    if report.kernel_filter {
        text += "What the filter in the kernel rejected is in no count.\n";
    }
    text
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0);
    value
        .and_then(|value| Duration::try_from_secs_f64(value).ok())
        .ok_or_else(|| format!("{text} is no number of seconds above 0"))
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| format!("{text} is no size (500K, 100M, 2G)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("500"), Ok(500));
        assert_eq!(size("2K"), Ok(2048));
        assert_eq!(size("3g"), Ok(3 << 30));
        for wrong in ["", "K", "0", "-1", "1T", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_above_zero() {
        assert!(seconds("0").is_err() && seconds("nan").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
