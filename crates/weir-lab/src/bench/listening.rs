//! The highest rate that a listener takes without losing a packet, found by bisection: `weir
//! capture` and `weir meter` beside tcpdump, dumpcap and netsniff-ng.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Figure, Options, Samples};
use crate::listeners::{Cable, Tool, Trial};
use crate::traffic::frames::RoceStream;

/// Bytes of a frame as the figure is named, and of the RoCE payload that comes nearest: RoCE v2
/// frames have 58 bytes more than their payload, a multiple of 4.
const SIZES: [(usize, usize); 2] = [(1442, 1384), (128, 68)];
/// Frames of the first trial, which goes as fast as it can.
const FRAMES_FIRST: u32 = 3_000_000;
/// Frames of any trial.
const FRAMES_MAX: f64 = 4_000_000.0;

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

/// `capture_lossless_kpps_*`.
pub(super) fn capture(options: &Options) -> Result<Vec<Figure>> {
    let tools = with_peers(["weir-capture", "weir-capture-xdp"])?;
    let cable = Cable::new()?;
    let folder = options.output.parent().context("the results lie in a folder")?;
    let folder = tempfile::tempdir_in(folder).context("no folder for captures")?;
    let file = folder.path().join("capture");
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
    let tools = with_peers(["weir-meter-xdp", "weir-meter"])?;
    let cable = Cable::new()?;
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

/// Weir's and their peers, as the study `monitoring` runs them.
fn with_peers(ours: [&'static str; 2]) -> Result<Vec<Named>> {
    let names = ours.into_iter().chain(["tcpdump", "dumpcap", "netsniff-ng"]);
    let named = names.map(|name| Ok(Named { name, tool: Tool::shipped(name)? }));
    let tools: Vec<Named> = named.collect::<Result<_>>()?;
    tools.iter().try_for_each(|it| it.tool.require())?;
    Ok(tools)
}

/// A tool by its name in the study.
#[derive(Clone)]
struct Named {
    name: &'static str,
    tool: Tool,
}

/// The first of `rates` beside the best of the others.
fn figure(name: &str, payload: usize, rates: &[Found]) -> Figure {
    let [ours, peers @ ..] = rates else { unreachable!("weir and its peers were measured") };
    let is_peer = |it: &&Found| !it.tool.tool.is_ours();
    let best = peers.iter().filter(is_peer).max_by(|a, b| a.kpps.total_cmp(&b.kpps));
    let samples = |found: &Found| Samples(vec![found.kpps]);
    let mut figure = Figure::new(name, "kpps", &samples(ours));
    if let Some(best) = best {
        figure = figure.against(best.tool.name, &samples(best));
    }
    let all: Vec<String> = rates
        .iter()
        .map(|it| format!("{} {:.0} (limited by {})", it.tool.name, it.kpps, it.limit))
        .collect();
    figure.noted(&format!(
        "{}; RoCE v2 frames of {} bytes, rings of 256 MiB, offloads off, GRO on at the \
         listening veth only because it makes it poll (RoCE is not merged)",
        all.join(", "),
        payload + 58
    ))
}

/// What a search found.
struct Found {
    tool: Named,
    kpps: f64,
    limit: &'static str,
}

/// Bounds of a search, frames a second.
struct Bounds {
    tool: Named,
    good: f64,
    bad: f64,
    limit: &'static str,
}

impl Cable {
    /// The rates of all tools, searched in step, so that a machine that gets slower does so for
    /// each.
    fn compare(
        &self,
        options: &Options,
        tools: &[Named],
        payload: usize,
        target: &Path,
    ) -> Result<Vec<Found>> {
        let search = if options.quick { Search::QUICK } else { Search::FULL };
        let frame = RoceStream::new(payload)?.first().clone();
        let trial = |tool: &Named, rate: f64| {
            let seconds = FRAMES_MAX.min(rate * search.seconds);
            let count = if rate == 0.0 { FRAMES_FIRST } else { seconds as u32 };
            let tool = Some(&tool.tool);
            self.trial(&options.program, tool, &frame, target, (count, rate as u32))
        };
        let mut all = Vec::new();
        for tool in tools {
            let found = trial(tool, 0.0)?;
            let (achieved, lost) = (found.achieved(), found.lost());
            let (good, limit) = if lost == 0 { (achieved, "the sender") } else { (0.0, "itself") };
            all.push(Bounds { tool: tool.clone(), good, bad: achieved, limit });
        }
        for _ in 0..search.steps {
            for bounds in all.iter_mut().filter(|it| it.good < it.bad) {
                let found = trial(&bounds.tool, (bounds.good + bounds.bad) / 2.0)?;
                let achieved = found.achieved();
                if found.lost() == 0 {
                    bounds.good = achieved.min(bounds.bad);
                } else {
                    bounds.bad = achieved.min(bounds.bad);
                }
            }
        }
        all.into_iter().map(|bounds| confirmed(bounds, search, &trial)).collect()
    }
}

/// The rate, lowered until it holds once more.
fn confirmed(
    bounds: Bounds,
    search: Search,
    trial: &impl Fn(&Named, f64) -> Result<Trial>,
) -> Result<Found> {
    let Bounds { tool, good, mut limit, .. } = bounds;
    let mut rate = good;
    for _ in 0..search.confirmations {
        if rate == 0.0 {
            break;
        }
        let found = trial(&tool, rate)?;
        if found.lost() == 0 {
            return Ok(Found { tool, kpps: found.achieved().min(rate) / 1000.0, limit });
        }
        rate *= 0.9;
        limit = "itself";
    }
    Ok(Found { tool, kpps: rate / 1000.0, limit: "itself, not confirmed" })
}
