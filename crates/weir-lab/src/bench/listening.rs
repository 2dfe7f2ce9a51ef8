//! The highest rate that a listener takes without losing a packet, found by bisection: `weir
//! capture` and `weir meter` beside tcpdump, dumpcap and netsniff-ng.
//!
//! ```text
//!   [ sender inside the kernel ] tx0 ---- veth ---- rx0 [ one tool at a time ]
//! ```
//!
//! One sender for all. Every tool has the same memory for its ring, and is
//! judged by what it says it has counted (to /dev/null) or by what capinfos finds in its file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use weir_port::stream::{StreamFrame, stream};

use super::{Figure, Options, Samples};
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{self, Finished, Running};
use crate::traffic::bypass::on_own_thread;
use crate::traffic::frames::RoceStream;

/// Bytes of a frame as the figure is named, and of the RoCE payload that comes nearest: RoCE v2
/// frames have 58 bytes more than their payload, a multiple of 4.
const SIZES: [(usize, usize); 2] = [(1442, 1384), (128, 68)];
/// Memory for each tool's ring.
const RING_MIB: u32 = 256;
const SENDING: &str = "tx0";
const LISTENING: &str = "rx0";
/// Frames of the first trial, which goes as fast as it can.
const FRAMES_FIRST: u32 = 3_000_000;
/// Frames of any trial.
const FRAMES_MAX: f64 = 4_000_000.0;
/// What a tool may take to begin, beyond saying so.
const SETTLE: Duration = Duration::from_millis(300);
/// libpcap hands over a block that is not full after its reader's timeout, tcpdump's is a second.
const RETIRE: Duration = Duration::from_millis(1200);
/// What a tool may take to end: some still write.
const END: Duration = Duration::from_secs(60);

/// How thoroughly to search.
#[derive(Clone, Copy)]
struct Search {
    seconds: f64,
    /// Halvings after the first trial.
    steps: usize,
    /// Times that the found rate may be lowered until it holds once more.
    confirmations: usize,
}

impl Search {
    const FULL: Search = Search { seconds: 2.0, steps: 5, confirmations: 3 };
    const QUICK: Search = Search { seconds: 0.3, steps: 1, confirmations: 1 };
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    WeirCapture(Driver),
    WeirMeter(Driver),
    Tcpdump,
    Dumpcap,
    Netsniff,
}

/// How Weir takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// A packet socket, as the peers have.
    Packet,
    Xdp,
}

/// `capture_lossless_kpps_*`.
pub(super) fn capture(options: &Options) -> Result<Vec<Figure>> {
    let cable = Cable::new()?;
    let folder = options.output.parent().context("the results lie in a folder")?;
    let folder = tempfile::tempdir_in(folder).context("no folder for captures")?;
    let file = folder.path().join("capture");
    let tools = with_peers([Driver::Packet, Driver::Xdp].map(Tool::WeirCapture));
    let mut figures = Vec::new();
    for (size, payload) in SIZES {
        for (target, path) in [("null", Path::new("/dev/null")), ("disk", &file)] {
            let rates = cable.compare(options, &tools, payload, path)?;
            let name = format!("capture_lossless_kpps_{size}_{target}");
            figures.push(figure(&name, payload, &rates));
        }
    }
    Ok(figures)
}

/// `meter_lossless_kpps_*`.
pub(super) fn meter(options: &Options) -> Result<Vec<Figure>> {
    let cable = Cable::new()?;
    let tools = with_peers([Driver::Xdp, Driver::Packet].map(Tool::WeirMeter));
    let mut figures = Vec::new();
    for (size, payload) in SIZES {
        let rates = cable.compare(options, &tools, payload, Path::new("/dev/null"))?;
        let name = format!("meter_lossless_kpps_{size}");
        let figure = figure(&name, payload, &rates);
        figures.push(figure.noted(
            "weir checks every ICRC; peers capture to /dev/null; by AF_XDP the host does \
             not get its packets, which beside the other tools it does",
        ));
    }
    Ok(figures)
}

fn with_peers([first, second]: [Tool; 2]) -> [Tool; 5] {
    [first, second, Tool::Tcpdump, Tool::Dumpcap, Tool::Netsniff]
}

/// The first of `rates` beside the best of the others.
fn figure(name: &str, payload: usize, rates: &[Found]) -> Figure {
    let [ours, peers @ ..] = rates else { unreachable!("weir and its peers were measured") };
    let is_peer = |it: &&Found| !matches!(it.tool, Tool::WeirCapture(_) | Tool::WeirMeter(_));
    let best = peers.iter().filter(is_peer).max_by(|a, b| a.kpps.total_cmp(&b.kpps));
    let samples = |found: &Found| Samples(vec![found.kpps]);
    let mut figure = Figure::new(name, "kpps", &samples(ours));
    if let Some(best) = best {
        figure = figure.against(best.tool.name(), &samples(best));
    }
    let all: Vec<String> = rates
        .iter()
        .map(|it| format!("{} {:.0} (limited by {})", it.tool.name(), it.kpps, it.limit))
        .collect();
    figure.noted(&format!(
        "{}; RoCE v2 frames of {} bytes, rings of {RING_MIB} MiB, offloads off, GRO on at the \
         listening veth only because it makes it poll (RoCE is not merged)",
        all.join(", "),
        payload + 58
    ))
}

/// What a search found.
struct Found {
    tool: Tool,
    kpps: f64,
    limit: &'static str,
}

/// Bounds of a search, frames a second.
struct Bounds {
    tool: Tool,
    good: f64,
    bad: f64,
    limit: &'static str,
}

/// Two namespaces and a veth between them.
struct Cable {
    sender: Namespace,
    listener: Namespace,
}

impl Cable {
    fn new() -> Result<Self> {
        process::require(&["ip", "ethtool", "tcpdump", "dumpcap", "netsniff-ng", "capinfos"])?;
        let name = |end: &str| format!("weir-cable-{}-{end}", std::process::id());
        let sender = Namespace::create(&name("tx"))?;
        let listener = Namespace::create(&name("rx"))?;
        for end in [&sender, &listener] {
            let quiet = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
            end.set(&quiet.map(|key| (key, "1")))?;
        }
        sender.ip(&format!(
            "link add {SENDING} type veth peer name {LISTENING} netns {}\nlink set {SENDING} up",
            listener.name()
        ))?;
        listener.ip(&format!("link set {LISTENING} up"))?;
        sender.run(&format!("ethtool -K {SENDING} tso off gso off gro off"))?;
        listener.run(&format!("ethtool -K {LISTENING} tso off gso off gro on"))?;
        Ok(Self { sender, listener })
    }

    /// The rates of all tools, searched in step, so that a machine that gets slower does so for
    /// each.
    fn compare(
        &self,
        options: &Options,
        tools: &[Tool],
        payload: usize,
        target: &Path,
    ) -> Result<Vec<Found>> {
        let search = if options.quick { Search::QUICK } else { Search::FULL };
        let frame = RoceStream::new(payload)?.first().clone();
        let trial = |tool: Tool, rate: f64| {
            let seconds = FRAMES_MAX.min(rate * search.seconds);
            let count = if rate == 0.0 { FRAMES_FIRST } else { seconds as u32 };
            self.trial(options, tool, &frame, target, count, rate as u32)
        };
        let mut all = Vec::new();
        for tool in tools {
            let Trial { achieved, lost } = trial(*tool, 0.0)?;
            let (good, limit) = if lost == 0 { (achieved, "the sender") } else { (0.0, "itself") };
            all.push(Bounds { tool: *tool, good, bad: achieved, limit });
        }
        for _ in 0..search.steps {
            for bounds in all.iter_mut().filter(|it| it.good < it.bad) {
                let Trial { achieved, lost } =
                    trial(bounds.tool, (bounds.good + bounds.bad) / 2.0)?;
                if lost == 0 {
                    bounds.good = achieved.min(bounds.bad);
                } else {
                    bounds.bad = achieved.min(bounds.bad);
                }
            }
        }
        all.into_iter().map(|bounds| confirmed(bounds, search, &trial)).collect()
    }

    fn trial(
        &self,
        options: &Options,
        tool: Tool,
        frame: &StreamFrame,
        target: &Path,
        count: u32,
        rate: u32,
    ) -> Result<Trial> {
        // What an earlier tool left to be written would be this one's burden.
        process::run(&mut Command::new("sync"), END)?;
        let mut listening = Running::start(&mut tool.command(self, options, target))?;
        listening.wait_for(tool.mark(), END)?;
        interrupt::sleep(SETTLE)?;
        let sent = on_own_thread(|| {
            self.sender.enter()?;
            Ok(stream(SENDING, frame, 0, count, rate)?)
        })?;
        let by_libpcap = matches!(tool, Tool::Tcpdump | Tool::Dumpcap);
        interrupt::sleep(if by_libpcap { RETIRE } else { SETTLE })?;
        listening.signal(Signal::INT)?;
        let finished = listening.finish(END)?;
        let counted = tool.counted(&finished, target)?;
        if target != Path::new("/dev/null") {
            std::fs::remove_file(target)?;
        }
        let achieved = sent.sent as f64 / sent.elapsed.as_secs_f64();
        Ok(Trial { achieved, lost: sent.sent.saturating_sub(counted) })
    }
}

struct Trial {
    achieved: f64,
    lost: u64,
}

/// The rate, lowered until it holds once more.
fn confirmed(
    bounds: Bounds,
    search: Search,
    trial: &impl Fn(Tool, f64) -> Result<Trial>,
) -> Result<Found> {
    let Bounds { tool, good, mut limit, .. } = bounds;
    let mut rate = good;
    for _ in 0..search.confirmations {
        if rate == 0.0 {
            break;
        }
        let Trial { achieved, lost } = trial(tool, rate)?;
        if lost == 0 {
            return Ok(Found { tool, kpps: achieved.min(rate) / 1000.0, limit });
        }
        rate *= 0.9;
        limit = "itself";
    }
    Ok(Found { tool, kpps: rate / 1000.0, limit: "itself, not confirmed" })
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::WeirCapture(Driver::Packet) => "weir capture --driver packet",
            Tool::WeirCapture(Driver::Xdp) => "weir capture --driver xdp",
            Tool::WeirMeter(Driver::Packet) => "weir meter --driver packet",
            Tool::WeirMeter(Driver::Xdp) => "weir meter --driver xdp",
            Tool::Tcpdump => "tcpdump",
            Tool::Dumpcap => "dumpcap",
            Tool::Netsniff => "netsniff-ng",
        }
    }

    fn command(self, cable: &Cable, options: &Options, target: &Path) -> Command {
        let (program, line) = match self {
            Tool::WeirCapture(_) | Tool::WeirMeter(_) => {
                let line = self.name().trim_start_matches("weir ");
                (options.program.clone(), format!("{line} --json --ring-size {RING_MIB}M"))
            }
            // As root it would give up the right to write here.
            Tool::Tcpdump => {
                (PathBuf::from("tcpdump"), format!("-n -Z root -B {}", RING_MIB * 1024))
            }
            Tool::Dumpcap => (PathBuf::from("dumpcap"), format!("-q -B {RING_MIB}")),
            Tool::Netsniff => {
                (PathBuf::from("netsniff-ng"), format!("--silent --ring-size {RING_MIB}MiB"))
            }
        };
        let mut command = cable.listener.command(&program.to_string_lossy());
        command.args(line.split(' ')).args(["-i", LISTENING]);
        match self {
            Tool::WeirMeter(_) => {}
            Tool::WeirCapture(_) => {
                command.arg("--force").arg("-w").arg(target);
            }
            Tool::Netsniff => {
                command.arg("-o").arg(target);
            }
            _ => {
                command.arg("-w").arg(target);
            }
        }
        command
    }

    /// What it says when it listens.
    fn mark(self) -> &'static str {
        match self {
            Tool::WeirCapture(_) => "capturing",
            Tool::WeirMeter(_) => "metering",
            Tool::Tcpdump => "listening on",
            Tool::Dumpcap => "File:",
            Tool::Netsniff => "Running!",
        }
    }

    /// Packets that it has taken.
    fn counted(self, finished: &Finished, target: &Path) -> Result<u64> {
        if !matches!(self, Tool::WeirMeter(_)) && target != Path::new("/dev/null") {
            let mut capinfos = Command::new("capinfos");
            let counted = process::run(capinfos.args(["-M", "-T", "-r", "-c"]).arg(target), END)?;
            let word = counted.stdout.split_whitespace().last().and_then(|it| it.parse().ok());
            return word.with_context(|| format!("capinfos: {}", counted.stdout));
        }
        let words = format!("{}\n{}", finished.stdout, finished.stderr);
        let number = match self {
            Tool::Tcpdump => before(&words, "packets captured"),
            Tool::Netsniff => before(&words, "packets passed filter"),
            // Behind a line that it wrote over.
            Tool::Dumpcap => words
                .split_once("Packets captured: ")
                .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok()),
            Tool::WeirCapture(_) => json(&finished.stdout, "/packets/written"),
            Tool::WeirMeter(_) => {
                let checked = json(&finished.stdout, "/rdma/icrc_ok");
                ensure!(checked == json(&finished.stdout, "/packets"), "wrong ICRCs: {words}");
                checked
            }
        };
        number.with_context(|| format!("{} says no number: {words}", self.name()))
    }
}

/// The number that stands before `mark`.
fn before(words: &str, mark: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains(mark))?;
    line.split_whitespace().next()?.parse().ok()
}

fn json(text: &str, pointer: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.pointer(pointer)?.as_u64()
}
