//! `weir meter`: what passes an interface, by flow and by queue pair, without a file and without
//! being a gateway.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_engine::meter::Icrc;
use weir_port::Interface;
use weir_store::clock;

use super::capture::{seconds, size};
use super::print_json;
use super::read::random_seed;
use crate::read::{Analysis, CaptureReport, text};
use crate::source::{Driver, Listening, Source, WAIT};

const HELP: &str = "\
Examples:
  weir meter -i p0
  weir meter -i p0 --interval 5 'udp port 4791'
  weir meter -i p0 --seconds 10 --json | jq .rdma
  weir meter -i p0 --seconds 10 --conversations
  weir meter -i span0 --driver xdp

Counts are since the beginning. What the kernel lost because the ring was full is said in every
report: give more by --ring-size. With --interval and --json, each report is one line.

Exit codes:
  0  ended as asked
  1  it could not begin, or the interface went away
  2  the command line is wrong";

/// Arguments of `weir meter`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct MeterArgs {
    /// The interface
    #[arg(short, long, value_name = "PORT")]
    pub interface: String,
    /// What to count, in pcap-filter's language; all words together are one expression
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
    /// End after this many seconds; without it, Ctrl-C ends it
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Report every so many seconds too, not only at the end
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// List the flows (5-tuples), the largest first
    #[arg(long)]
    pub flows: bool,
    /// List the queue-pair conversations, the largest first
    #[arg(long)]
    pub conversations: bool,
    /// How packets are taken: beside the host's own stack, or in its place
    #[arg(long, value_enum, default_value = "packet")]
    pub driver: Driver,
    /// Do not compute ICRCs: they count as unchecked
    #[arg(long)]
    pub no_icrc: bool,
    /// Memory that holds packets until they are counted [default: 64M, by AF_XDP 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub ring_size: Option<u64>,
    /// Only what is for this machine: do not make the interface promiscuous
    #[arg(long)]
    pub no_promiscuous: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// A packet socket's ring where none is asked for.
const PACKET_RING: u64 = 64 << 20;

/// What a meter says.
#[derive(Debug, Serialize)]
struct MeterReport {
    interface: String,
    seconds: f64,
    /// Packets that the kernel's filter took: counted and lost.
    heard: u64,
    lost_by_kernel: u64,
    lost_by_device: u64,
    #[serde(flatten)]
    report: CaptureReport,
}

/// Runs `weir meter`.
///
/// # Errors
/// It cannot begin, or the interface goes away.
pub fn run(args: &MeterArgs) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot watch for signals")?;
    }
    let expression = args.expression.join(" ");
    let listening = Listening {
        interface: &args.interface,
        driver: args.driver,
        expression: (!expression.is_empty()).then_some(&expression),
        snap_bytes: None,
        only_rdma: false,
        promiscuous: !args.no_promiscuous,
        ring_bytes: args.ring_size,
    };
    let source = Source::open(&listening, PACKET_RING)?;
    eprintln!("weir: metering {}; Ctrl-C ends it", args.interface);
    let begun = clock::now();
    let mut metering = Metering { args, source, analysis: Analysis::new(random_seed()), begun };
    let is_there = metering.run(&stop)?;
    metering.report(true)?;
    if !is_there {
        eprintln!("weir: {}: the interface is gone", args.interface);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

struct Metering<'a> {
    args: &'a MeterArgs,
    source: Source,
    analysis: Analysis,
    begun: Instant,
}

impl Metering<'_> {
    /// Counts until it is told to stop; false: the interface is gone.
    fn run(&mut self, stop: &AtomicBool) -> anyhow::Result<bool> {
        let icrc = if self.args.no_icrc { Icrc::Skip } else { Icrc::Check };
        let mut reported = self.begun;
        while !stop.load(Ordering::Relaxed) {
            let now = clock::now();
            if self.args.seconds.is_some_and(|limit| now - self.begun >= limit) {
                break;
            }
            if self.args.interval.is_some_and(|interval| now - reported >= interval) {
                reported = now;
                self.report(false)?;
            }
            let Self { source, analysis, .. } = &mut *self;
            if source.receive(&mut |frames| analysis.observe(frames, icrc))? > 0 {
                continue;
            }
            if self.source.wait()?.is_some() {
                match Interface::find(&self.args.interface) {
                    Ok(_) => std::thread::sleep(WAIT),
                    Err(_) => return Ok(false),
                }
            }
        }
        self.finish(icrc);
        Ok(true)
    }

    /// Counts what still waits in the ring.
    fn finish(&mut self, icrc: Icrc) {
        let Self { source, analysis, .. } = self;
        let closed = source.close();
        let mut receive = |source: &mut Source| {
            source.receive(&mut |frames| analysis.observe(frames, icrc)).unwrap_or(0)
        };
        while closed.as_ref().is_ok_and(|until| receive(source) > 0 || clock::now() < *until) {
            source.wait_for_last();
        }
    }

    fn report(&mut self, is_last: bool) -> anyhow::Result<()> {
        let Self { args, source, analysis, begun } = self;
        let counters = source.counters();
        let lost_by_kernel = counters.lost_ring_full + counters.lost_truncated;
        let mut report = CaptureReport::of(analysis);
        let list_all = args.json || args.flows || args.conversations;
        let flows = (args.flows || !list_all).then(|| CaptureReport::flows_of(analysis));
        let conversations =
            (args.conversations || !list_all).then(|| CaptureReport::conversations_of(analysis));
        if args.json {
            (report.flow_list, report.conversation_list) = (flows, conversations);
            let report = MeterReport {
                interface: args.interface.clone(),
                seconds: begun.elapsed().as_secs_f64(),
                heard: report.packets + lost_by_kernel,
                lost_by_kernel,
                lost_by_device: counters.device_dropped,
                report,
            };
            if is_last && args.interval.is_none() {
                return print_json(&report);
            }
            writeln!(io::stdout().lock(), "{}", serde_json::to_string(&report)?)?;
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let hint = if lost_by_kernel > 0 { " (ring full: give more by --ring-size)" } else { "" };
        writeln!(
            out,
            "{}, {:.1} s: {lost_by_kernel} lost by the kernel{hint}, {} by the device",
            args.interface,
            begun.elapsed().as_secs_f64(),
            counters.device_dropped,
        )?;
        let shown = match (args.flows, args.conversations, flows, conversations) {
            (false, false, Some(flows), Some(conversations)) => {
                text::summary(&report, &flows, &conversations)
            }
            (_, _, flows, conversations) => {
                let flows = flows.map(|list| text::flow_list(&list)).unwrap_or_default();
                flows + &conversations.map(|it| text::conversation_list(&it)).unwrap_or_default()
            }
        };
        out.write_all(shown.as_bytes())?;
        Ok(())
    }
}
