//! What detection costs: rules beside Suricata, RoCE with all its detectors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_detect::matcher::{Patterns, Scratch};
use weir_detect::{LoadOptions, RuleSet, RuleSource, Variables};
use weir_wire::frame::Link;
use weir_wire::parse::parse;

use super::rate::{PAYLOADS, Search, highest_rate_of};
use super::{Figure, Options, Route, Samples};
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::process;
use crate::suricata::{Run, Suricata, timed};
use crate::topology::{Lab, Plan, Side};
use crate::traffic::frames::RoceStream;
use crate::traffic::hostile::{Campaign, Hostile};

/// Others' rules, which are read where they lie.
pub(super) const RULES: &str = "../shared/rules";
/// How a real Suricata was run with them, and the mix.
pub(super) const JUDGED: &str = "../shared/conformance/suricata-eve";
/// MB of the mix.
const MIX_MB: &str = "300";
/// Searches of the highest rate with rules, and as many without.
const SEARCHES: usize = 5;

/// Our own rules.
pub(super) fn own_rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules")
}

/// All rules below `folder` in one file, in the order of their paths.
pub(super) fn joined(folder: &Path) -> Result<String> {
    let mut listed = Command::new("find");
    listed.arg(folder).args(["-name", "*.rules"]);
    let said = process::run(&mut listed, Duration::from_secs(10))?.stdout;
    let mut paths: Vec<&str> = said.lines().collect();
    paths.sort_unstable();
    let mut text = String::new();
    for path in paths {
        text += &String::from_utf8_lossy(&fs::read(path).with_context(|| path.to_owned())?);
        text.push('\n');
    }
    ensure!(!text.is_empty(), "no rules in {}", folder.display());
    Ok(text)
}

fn ours(options: &Options, rules: &Path, capture: &Path, eve: &Path) -> Result<Run> {
    let mut command = Command::new("/usr/bin/time");
    command.args(["-f", "%M"]).arg(&options.program).arg("read").arg("--rules").arg(rules);
    // Suricata's configuration there tells alerts alone.
    timed(command.args(["--no-checksums", "--types", "alert"]).arg("--eve").arg(eve).arg(capture))
}

/// Loading all of ../shared/rules, and reading a mix of traffic with them, beside Suricata.
pub(super) fn beside_suricata(options: &Options) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let text = joined(Path::new(RULES))?;
    fs::write(path("all.rules"), &text)?;
    let judged = Path::new(JUDGED);
    let classes = Path::new(RULES).join("et-open-2025-09/classification.config");
    let suricata = Suricata::with(&text, &judged.join("suricata.yaml"), &classes)?;
    let mut make = Command::new("python3");
    make.arg(judged.join("mix.py")).arg("--out").arg(path("mix.pcap"));
    let mib = if options.quick { "5" } else { MIX_MB };
    process::run(make.args(["--mb", mib]), Duration::from_secs(120))?;
    let one =
        Campaign { hostile: Hostile::UdpFlood, is_benign: true, count: 1, sources: 1, seed: 1 };
    let mix = fs::read(path("mix.pcap"))?;
    let packets = pcap_frames(&mix).count();
    let first = one.frames().remove(0).bytes;
    let mut bytes = mix[..24].to_vec();
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((first.len() as u32).to_le_bytes().repeat(2));
    bytes.extend(first);
    fs::write(path("one.pcap"), bytes)?;
    let mut samples: [Samples; 6] = Default::default();
    let (mut bare, matcher) = (Samples::default(), Matcher::of(&text)?);
    for _ in 0..options.rounds(3) {
        bare.0.push(packets as f64 / matcher.scan(&mix)?.as_secs_f64() / 1000.0);
        let theirs = suricata.read(&path("one.pcap"))?;
        let ours_one = ours(options, &path("all.rules"), &path("one.pcap"), &path("eve.json"))?;
        let their_mix = suricata.read(&path("mix.pcap"))?;
        let our_mix = ours(options, &path("all.rules"), &path("mix.pcap"), &path("eve.json"))?;
        let rate = |all: Run, load: Run| packets as f64 / (all.seconds - load.seconds) / 1000.0;
        for (sample, value) in samples.iter_mut().zip([
            ours_one.seconds,
            theirs.seconds,
            ours_one.peak_mib,
            theirs.peak_mib,
            rate(our_mix, ours_one),
            rate(their_mix, theirs),
        ]) {
            sample.0.push(value);
        }
    }
    let [load, their_load, memory, their_memory, rate, their_rate] = samples;
    let name = suricata.name();
    let rules = "all of ../shared/rules, from start to the end of a capture of one packet";
    Ok(vec![
        Figure::new("rules_load_s", "s", &load).against(&name, &their_load).noted(rules),
        Figure::new("rules_rss_mib", "MiB", &memory).against(&name, &their_memory).noted(rules),
        Figure::new("detect_mixed_vs_suricata", "kpps", &rate)
            .against(&name, &their_rate)
            .noted(&format!("{packets} packets of mix.py, one thread each, loading taken off")),
        Figure::new("detect_mixed_bare_matcher", "kpps", &bare).noted(&format!(
            "Hyperscan alone: all {} fast patterns in one set, over each packet's payload",
            matcher.count
        )),
    ])
}

/// The matcher alone, with the fast patterns of all rules.
struct Matcher {
    patterns: Patterns,
    count: usize,
}

impl Matcher {
    fn of(rules: &str) -> Result<Self> {
        let source = RuleSource { name: "all".to_owned(), text: rules.to_owned() };
        let loaded = RuleSet::load(&[source], &Variables::default(), &LoadOptions::default())?;
        let patterns = loaded.rules.fast_patterns();
        Ok(Self { count: patterns.len(), patterns: Patterns::compile(&patterns)? })
    }

    /// How long it takes over the payloads of a capture.
    fn scan(&self, mix: &[u8]) -> Result<Duration> {
        let mut payloads = Vec::new();
        for frame in pcap_frames(mix) {
            let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
            let payload = usize::from(parsed.payload_offset);
            payloads.push(frame.get(payload..).unwrap_or_default());
        }
        let mut scratch = Scratch::new(&[&self.patterns])?;
        let (begin, mut found) = (Instant::now(), 0_u64);
        for payload in payloads {
            self.patterns.scan(payload, &mut scratch, &mut |_| found += 1);
        }
        let took = begin.elapsed();
        ensure!(found > 0, "the matcher found nothing");
        Ok(took)
    }
}

/// The packets of a classic capture in this machine's order.
fn pcap_frames(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes.get(24..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = rest.get(8..12)?;
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let frame = rest.get(16..16 + len)?;
        rest = &rest[16 + len..];
        Some(frame)
    })
}

/// A route with these rules at the gateways of `sides`; the last of them tells its alerts.
pub(super) fn with_rules(
    options: &Options,
    files: &[&str],
    sides: &[Side],
    eve: &str,
) -> Result<Route> {
    process::require(&super::TOOLS)?;
    let lab = Lab::build(Plan::default())?;
    let paths: Vec<_> = files.iter().map(|it| own_rules().join(it).display().to_string()).collect();
    let setup =
        Setup { driver: options.driver.clone(), ..Setup::new(&options.program, Protection::Plain) };
    let mut texts = configurations(&lab, &setup)?;
    if !files.is_empty() {
        let paths: Vec<_> = paths.iter().map(|it| format!("{it:?}")).collect();
        let table = format!("\n[rules]\npaths = [{}]\n", paths.join(", "));
        sides.iter().for_each(|side| texts[side.index()] += &table);
    }
    if let (false, Some(side)) = (eve.is_empty(), sides.last()) {
        let path = lab.folder().join(eve).display().to_string();
        texts[side.index()] += &format!("eve = {path:?}\n");
    }
    let gateways = Gateways::start_configured(&lab, &setup, &texts)?;
    Ok(Route { lab, gateways: Some(gateways), _tunnel: None })
}

/// RoCE in bulk with every detector of `rules/rdma.rules` at one gateway, as a share of that
/// without.
pub(super) fn roce(options: &Options) -> Result<Vec<Figure>> {
    let on = with_rules(options, &["rdma.rules"], &[Side::A], "")?;
    let off = with_rules(options, &[], &[], "")?;
    let search = if options.quick { Search::QUICK } else { Search::FULL };
    let mut figures = Vec::new();
    for payload in PAYLOADS {
        let name = format!("detect_roce_share_{payload}");
        if options.only.as_ref().is_some_and(|only| !name.starts_with(only)) {
            continue;
        }
        let (mut without, mut with, mut limits) =
            (Samples::default(), Samples::default(), Vec::new());
        // In turn: one search is a step or two off, and the machine is not the same for long.
        for round in 0..options.rounds(SEARCHES) {
            // A queue pair of its own each time: its numbers begin anew.
            let queue_pair = RoceStream::QUEUE_PAIR + round as u32;
            let stream = || RoceStream::reliable(payload, queue_pair);
            without.0.push(highest_rate_of(&off.lab, stream()?, search)?.0.median());
            let (rate, limit) = highest_rate_of(&on.lab, stream()?, search)?;
            with.0.push(rate.median());
            limits.push(limit);
        }
        let limit = limits.join(", ");
        let figure = Figure::new(&name, "kpps", &with);
        let note =
            format!("RC SEND Only, {payload} bytes, rules/rdma.rules on at one gateway; {limit}");
        figures.push(figure.against("Weir without rules", &without).noted(&note));
    }
    Ok(figures)
}
