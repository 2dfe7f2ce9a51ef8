//! What detection costs: rules beside Suricata, RoCE with all its detectors, floods.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use weir_detect::matcher::{Patterns, Scratch};
use weir_detect::{LoadOptions, RuleSet, RuleSource, Variables};
use weir_wire::frame::Link;
use weir_wire::parse::parse;

use super::rate::{PAYLOADS, Search, highest_rate_of, share_of};
use super::{Figure, Options, Route, Samples};
use crate::eve::alerts_since;
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::process;
use crate::suricata::{Run, Suricata, timed};
use crate::topology::{HOST_DEVICE, Lab, Plan, Side};
use crate::traffic::bypass;
use crate::traffic::frames::RoceStream;
use crate::traffic::hostile::{Campaign, Hostile};
use crate::traffic::iperf::{self, Extent};

/// Others' rules, which are read where they lie.
pub(super) const RULES: &str = "../shared/rules";
/// How a real Suricata was run with them, and the mix.
pub(super) const JUDGED: &str = "../shared/conformance/suricata-eve";
/// MB of the mix.
const MIX_MB: &str = "300";
/// Seconds of a flood, and of the connection beside it.
const FLOOD_SECONDS: u32 = 4;
/// RoCE packets a second beside a flood.
const ROCE_BESIDE: u32 = 50_000;
/// Searches of the highest rate with rules, and as many without.
const SEARCHES: usize = 5;

/// Our own rules.
fn own_rules() -> PathBuf {
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
fn with_rules(options: &Options, files: &[&str], sides: &[Side], eve: &str) -> Result<Route> {
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

/// Each flood: how long until it is told, and what a connection beside it keeps of what it has when
/// the same generator's packets are dropped at its own port.
pub(super) fn floods(options: &Options) -> Result<Vec<Figure>> {
    let kinds = [
        ("syn", Hostile::SynFlood, 50_000),
        ("udp", Hostile::UdpFlood, 100_000),
        ("icmp", Hostile::IcmpFlood, 50_000),
        ("dns", Hostile::DnsFlood, 50_000),
        ("cm", Hostile::CmFlood, 20_000),
        ("cnp", Hostile::CnpFlood, 100_000),
    ];
    let files = ["rdma.rules", "flood.rules", "classification.config"];
    let (mut figures, rounds) = (Vec::new(), options.rounds(3));
    let is_asked = |name: &str| {
        let figures = ["flood_delay_ms", "flood_collateral_share", "flood_roce_share"];
        let figures = figures.map(|it| format!("{it}_{name}"));
        options.only.as_ref().is_none_or(|only| figures.iter().any(|it| it.starts_with(only)))
    };
    for (name, hostile, rate) in kinds.into_iter().filter(|it| is_asked(it.0)) {
        let [mut delays, mut kept, mut alone, mut roce_kept, mut roce_alone]: [Samples; 5] =
            Default::default();
        for round in 0..rounds {
            let count = (rate * FLOOD_SECONDS) as usize;
            // A gateway of its own each round, which knows of no flood yet.
            let route = with_rules(options, &files, &Side::BOTH, "eve")?;
            let sources = 0;
            let seed = round as u64 + 1;
            let frames = Campaign { hostile, is_benign: false, count, sources, seed }.frames();
            alone.0.push(beside(&route.lab, &frames, rate, true, tcp)?);
            roce_alone.0.push(beside(&route.lab, &frames, rate, true, roce_beside)?);
            let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
            kept.0.push(beside(&route.lab, &frames, rate, false, tcp)?);
            delays.0.extend(alerts_since(&route.lab.folder().join("eve"), begun)?.first());
            roce_kept.0.push(beside(&route.lab, &frames, rate, false, roce_beside)?);
        }
        let note = format!(
            "{rate} packets/s for {FLOOD_SECONDS} s, another source each; rules at both gateways"
        );
        figures.push(Figure::new(&format!("flood_delay_ms_{name}"), "ms", &delays).noted(&note));
        let figure = Figure::new(&format!("flood_collateral_share_{name}"), "Gb/s", &kept);
        let peer = "the flood dropped at its own port";
        figures.push(figure.against(peer, &alone).noted(&format!("one TCP stream beside; {note}")));
        let figure = Figure::new(&format!("flood_roce_share_{name}"), "%", &roce_kept);
        let beside = format!("of {ROCE_BESIDE} RoCE packets/s beside, the other way; {note}");
        figures.push(figure.against(peer, &roce_alone).noted(&beside));
    }
    Ok(figures)
}

/// Gb/s of one TCP stream from host B to host A.
fn tcp(lab: &Lab) -> Result<f64> {
    let (from, to) = (lab.host(Side::B), lab.host(Side::A));
    let extent = Extent::Seconds(FLOOD_SECONDS - 1);
    Ok(iperf::tcp(from, to, lab.host_v4(Side::A).into(), extent)?.gbps)
}

/// Percent of a RoCE stream from host A that comes to host B.
fn roce_beside(lab: &Lab) -> Result<f64> {
    let stream = RoceStream::reliable(PAYLOADS[0], RoceStream::QUEUE_PAIR)?;
    share_of(lab, stream, ROCE_BESIDE, f64::from(FLOOD_SECONDS - 1))
}

/// What `measured` gives while `frames` are sent from host B; dropped at its port, where it is so.
fn beside(
    lab: &Lab,
    frames: &[crate::traffic::frames::Planned],
    rate: u32,
    at_port: bool,
    measured: fn(&Lab) -> Result<f64>,
) -> Result<f64> {
    let host = lab.host(Side::B);
    let device = if at_port { "weir-sink0" } else { HOST_DEVICE };
    if at_port {
        host.ip(&format!(
            "link add {device} type veth peer name weir-sink1\nlink set {device} up"
        ))?;
    }
    let result = std::thread::scope(|scope| {
        let flood = scope.spawn(|| bypass::pour(lab, Side::B, device, frames, rate));
        let report = measured(lab);
        let poured = flood.join().map_err(|_| anyhow::anyhow!("the flood's thread ended early"))?;
        poured.and(report)
    });
    if at_port {
        host.ip(&format!("link del {device}"))?;
    }
    result
}
