//! `weir lab bench`: all figures, of the lab and in memory, each beside its peer in the same run.
//!
//! Pairs are interleaved (peer, ours, peer, ours ...), so that a machine that gets slower or faster
//! meanwhile does so for both. A figure is a median with the whole interval it was seen in. Nothing
//! here is a test: a slow machine gives small numbers, not failures.

mod access;
mod carrying;
mod changing;
mod clients;
mod detecting;
mod flooding;
mod inline;
mod judging;
mod latency;
mod listening;
mod memory;
mod operating;
mod polling;
mod rate;
mod reading;
mod watching;

use std::fmt::Debug;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::gateways::{Gateways, Protection, Setup};
use crate::topology::{self, Lab, Plan, Side};
use crate::traffic::iperf::{self, Extent, TcpReport};
use crate::wireguard::{self, Tunnel};
use crate::{interrupt, openvpn, process, strongswan};

/// Interleaved rounds of each pair.
const ROUNDS: usize = 3;
/// Seconds of one TCP run.
const TCP_SECONDS: u32 = 5;
/// A share near one needs many pairs: a single run here swings by a tenth.
const SHARE_ROUNDS: usize = 11;
const SHARE_SECONDS: u32 = 2;
/// What the lab's benches call.
const TOOLS: [&str; 2] = ["iperf3", "nft"];
/// What an idle gateway may take to settle.
const SETTLE: Duration = Duration::from_secs(2);

/// How to run the benches.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weir` program; a release build.
    pub program: PathBuf,
    /// Only figures whose name begins so.
    pub only: Option<String>,
    /// Where the lines go; a file that is there is replaced.
    pub output: PathBuf,
    /// One short round of each: shows that it runs, not what it measures.
    pub quick: bool,
    /// The gateways' driver; absent: Weir's default.
    pub driver: Option<String>,
}

/// One line of the result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Which.
    pub name: String,
    /// The median.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What it is compared with; empty when nothing is.
    pub peer: String,
    /// The peer's median, same unit.
    pub peer_value: Option<f64>,
    /// `value / peer_value`.
    pub ratio: Option<f64>,
    /// What prints it again.
    pub command: String,
    /// Interval, retransmissions, and what else a reader must know.
    pub note: String,
}

/// A bench: the names of its figures begin with one of its own.
struct Bench {
    names: &'static [&'static str],
    run: fn(&Options) -> Result<Vec<Figure>>,
}

const BENCHES: [Bench; 38] = [
    Bench { names: &["seal_memory", "open_memory"], run: memory::seal_and_open },
    Bench { names: &["meter_memory_mpps", "meter_icrc_gbps"], run: memory::meter },
    Bench { names: &["million_flows_bytes_each", "expiry_spike_us"], run: memory::flows },
    Bench { names: &["read_vs_softflowd"], run: reading::against_softflowd },
    Bench { names: &["lab_plain_gbps"], run: plain },
    Bench { names: &["lab_sealed_gbps"], run: sealed },
    Bench { names: &["lab_sealed_esp_gbps"], run: sealed_without_udp },
    Bench { names: &["lab_sealed_vs_wireguard_go"], run: sealed_against_wireguard },
    Bench { names: &["lab_sealed_1500_gbps"], run: sealed_1500 },
    Bench { names: &["lab_sealed_1500_esp_gbps"], run: sealed_1500_without_udp },
    Bench { names: &["lab_sealed_vs_openvpn", "lab_sealed_1500_vs_openvpn"], run: openvpn },
    Bench { names: &["lab_sealed_vs_libipsec", "lab_sealed_1500_vs_libipsec"], run: libipsec },
    Bench { names: &["lab_sealed_roce_kpps"], run: rate::sealed_roce },
    Bench { names: &["lab_sealed_roce_esp_kpps"], run: rate::esp_roce },
    Bench { names: &["lab_tagged_roce_kpps"], run: rate::tagged_roce },
    Bench { names: &["added_latency"], run: latency::added },
    Bench { names: &["capture_lossless_kpps"], run: listening::capture },
    Bench { names: &["meter_lossless_kpps"], run: listening::meter },
    Bench { names: &["fastpath_vs_bridge"], run: carrying::against_bridge },
    Bench { names: &["see_cost_share"], run: carrying::seeing },
    Bench { names: &["mirror_cost_share"], run: watching::mirror },
    Bench { names: &["evidence_cost_share"], run: watching::evidence },
    Bench {
        names: &["rules_load_s", "rules_rss_mib", "detect_mixed"],
        run: detecting::beside_suricata,
    },
    Bench { names: &["conformance"], run: judging::conformance },
    Bench { names: &["changed_rules"], run: changing::changed },
    Bench {
        names: &["ips_vs_suricata_stream", "ips_vs_suricata_http", "ips_stream_super_packets_gbps"],
        run: inline::beside_suricata,
    },
    Bench { names: &["detect_roce_share"], run: detecting::roce },
    Bench {
        names: &[
            "access_cost_share",
            "access_added_latency_us",
            "access_bytes_per_qp",
            "access_setup_per_s",
        ],
        run: memory::access,
    },
    Bench {
        names: &["access_lab_cost_share", "access_lab_added_latency_us"],
        run: access::beside_none,
    },
    Bench {
        names: &["flood_delay_ms", "flood_collateral_share", "flood_roce_share"],
        run: flooding::floods,
    },
    Bench {
        names: &["handshakes_per_core", "peers_bytes_each", "idle_peers_slowdown"],
        run: memory::keying,
    },
    Bench { names: &["vpn_peer_bytes_each", "vpn_16_tunnels_share"], run: memory::clients },
    Bench { names: &["vpn_stream_vs_wireguard_go"], run: clients::stream },
    Bench { names: &["vpn_sweep"], run: clients::sweep },
    Bench { names: &["idle_rss_mib"], run: idle_memory },
    Bench {
        names: &["store_records_per_s", "store_query_ms_p95", "serve_rss_mib", "dashboard_home_ms"],
        run: operating::store,
    },
    Bench { names: &["gateway_cost_share_operate"], run: operating::cost },
    Bench { names: &["lab_status_10000"], run: polling::status },
];

/// Names of all figures, or what they begin with.
pub fn names() -> impl Iterator<Item = &'static str> {
    BENCHES.iter().flat_map(|bench| bench.names).copied()
}

impl Bench {
    /// Whether it prints a figure whose name begins with `only`.
    fn prints(&self, only: &str) -> bool {
        self.names.iter().any(|name| name.starts_with(only) || only.starts_with(name))
    }
}

/// Runs the benches that `options` asks for, prints each figure and writes it to the file. One that
/// cannot run says why and does not stop the others.
///
/// # Errors
/// No bench has such a name, one failed (after all have had their turn), the file cannot be
/// written, or a signal came.
pub fn run(options: &Options) -> Result<()> {
    let only = options.only.as_deref().unwrap_or("");
    let chosen: Vec<&Bench> = BENCHES.iter().filter(|bench| bench.prints(only)).collect();
    if chosen.is_empty() {
        bail!("no bench is called {only}; there are {}", names().collect::<Vec<_>>().join(", "));
    }
    let mut file = create(&options.output)?;
    let mut failed = Vec::new();
    println!("{}", heading());
    for bench in chosen {
        match (bench.run)(options) {
            Ok(figures) => {
                for figure in figures.iter().filter(|it| it.name.starts_with(only)) {
                    println!("{}", row(figure));
                    writeln!(file, "{}", serde_json::to_string(figure)?)?;
                }
            }
            Err(reason) => {
                interrupt::check()?;
                let name = bench.names[0];
                println!("{name:<32} could not run: {reason:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "could not run: {}", failed.join(", "));
    Ok(())
}

impl Options {
    fn rounds(&self, full: usize) -> usize {
        if self.quick { 1 } else { full }
    }

    fn tcp_seconds(&self) -> u32 {
        if self.quick { 1 } else { TCP_SECONDS }
    }
}

impl Figure {
    fn new(name: &str, unit: &str, ours: &Samples) -> Self {
        Self {
            name: name.to_owned(),
            value: rounded(ours.median()),
            unit: unit.to_owned(),
            peer: String::new(),
            peer_value: None,
            ratio: None,
            command: format!("make bench ONLY={name}"),
            note: ours.interval(),
        }
    }

    fn against(mut self, peer: &str, theirs: &Samples) -> Self {
        let median = theirs.median();
        self.peer = peer.to_owned();
        self.ratio = Some(rounded(self.value / median));
        self.peer_value = Some(rounded(median));
        self.note += &format!("; peer {}", theirs.interval());
        self
    }

    fn noted(mut self, note: &str) -> Self {
        self.note += &format!("; {note}");
        self
    }
}

/// Repeated measurements of one thing.
#[derive(Clone, Debug, Default)]
struct Samples(Vec<f64>);

impl Samples {
    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            len if len.is_multiple_of(2) => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
            len => sorted[len / 2],
        }
    }

    fn interval(&self) -> String {
        let low = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{low:.2} to {high:.2} in {} runs", self.0.len())
    }
}

/// A path between two hosts that stands for as long as it is measured.
struct Route {
    lab: Lab,
    gateways: Option<Gateways>,
    // Held for its drop.
    _tunnel: Option<Box<dyn Debug>>,
}

impl Route {
    fn bridge() -> Result<Self> {
        let plan = Plan { gateways: topology::Gateways::Bridge, ..Plan::default() };
        process::require(&TOOLS)?;
        Ok(Self { lab: Lab::build(plan)?, gateways: None, _tunnel: None })
    }

    fn weir(options: &Options, protection: Protection) -> Result<Self> {
        Self::weir_in(options, protection, Plan::default())
    }

    fn weir_in(options: &Options, protection: Protection, plan: Plan) -> Result<Self> {
        process::require(&TOOLS)?;
        let lab = Lab::build(plan)?;
        let setup =
            Setup { driver: options.driver.clone(), ..Setup::new(&options.program, protection) };
        let gateways = Gateways::start(&lab, &setup)?;
        Ok(Self { lab, gateways: Some(gateways), _tunnel: None })
    }

    fn wireguard() -> Result<Self> {
        Self::wireguard_in(Plan::default())
    }

    fn wireguard_in(plan: Plan) -> Result<Self> {
        wireguard::program()?;
        Self::tunnel(plan, Tunnel::start)
    }

    /// Routed gateways, and between them what `start` starts.
    fn tunnel<T: Debug + 'static>(
        plan: Plan,
        start: impl FnOnce(&Lab) -> Result<T>,
    ) -> Result<Self> {
        process::require(&TOOLS)?;
        let lab = Lab::build(Plan { gateways: topology::Gateways::Routed, ..plan })?;
        let tunnel = start(&lab)?;
        Ok(Self { lab, gateways: None, _tunnel: Some(Box::new(tunnel)) })
    }

    fn tcp(&self, seconds: u32) -> Result<TcpReport> {
        let address = IpAddr::V4(self.lab.host_v4(Side::B));
        let extent = Extent::Seconds(seconds);
        iperf::tcp(self.lab.host(Side::A), self.lab.host(Side::B), address, extent)
    }
}

/// TCP over both paths in turn: (ours, theirs, note on retransmissions).
fn interleaved_tcp(
    options: &Options,
    ours: &Route,
    theirs: &Route,
) -> Result<(Samples, Samples, String)> {
    interleaved_tcp_of(options, options.tcp_seconds(), ROUNDS, ours, theirs)
}

/// The throughput of `ours` as a share of that of `theirs`, pair by pair.
fn share_of_tcp(
    options: &Options,
    name: &str,
    ours: &Route,
    theirs: &Route,
    what: &str,
) -> Result<Figure> {
    let seconds = if options.quick { 1 } else { SHARE_SECONDS };
    let (with, without, note) = interleaved_tcp_of(options, seconds, SHARE_ROUNDS, ours, theirs)?;
    let shares = with.0.iter().zip(&without.0).map(|(with, without)| with / without).collect();
    let rates = format!("{:.2} against {:.2} Gb/s", with.median(), without.median());
    let figure = Figure::new(name, "share", &Samples(shares));
    Ok(figure.noted(&format!("{what}; {rates}; {note}")))
}

fn interleaved_tcp_of(
    options: &Options,
    seconds: u32,
    rounds: usize,
    ours: &Route,
    theirs: &Route,
) -> Result<(Samples, Samples, String)> {
    let (mut our_samples, mut their_samples) = (Samples::default(), Samples::default());
    let (mut our_resent, mut their_resent) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds(rounds) {
        let report = theirs.tcp(seconds)?;
        their_samples.0.push(report.gbps);
        their_resent.push(report.retransmits);
        let report = ours.tcp(seconds)?;
        our_samples.0.push(report.gbps);
        our_resent.push(report.retransmits);
    }
    let note = format!(
        "one TCP stream, cubic, MTU {}, {seconds} s; retransmits {our_resent:?}, \
         peer {their_resent:?}",
        ours.lab.plan().wire_mtu
    );
    Ok((our_samples, their_samples, note))
}

fn plain(options: &Options) -> Result<Vec<Figure>> {
    let (bridge, weir) = (Route::bridge()?, Route::weir(options, Protection::Plain)?);
    let (ours, theirs, note) = interleaved_tcp(options, &weir, &bridge)?;
    let figure = Figure::new("lab_plain_gbps", "Gb/s", &ours);
    Ok(vec![figure.against("Linux bridge", &theirs).noted(&note)])
}

/// By ESP in UDP, as the tunnels of others: its packets leave together (docs/adr/0030).
fn sealed(options: &Options) -> Result<Vec<Figure>> {
    sealed_beside_clear(options, Protection::SealedInUdp, "lab_sealed_gbps")
}

/// By ESP straight over IP.
fn sealed_without_udp(options: &Options) -> Result<Vec<Figure>> {
    sealed_beside_clear(options, Protection::Sealed, "lab_sealed_esp_gbps")
}

fn sealed_beside_clear(options: &Options, how: Protection, name: &str) -> Result<Vec<Figure>> {
    let plain = Route::weir(options, Protection::Plain)?;
    let sealed = Route::weir(options, how)?;
    let (ours, theirs, note) = interleaved_tcp(options, &sealed, &plain)?;
    let figure = Figure::new(name, "Gb/s", &ours);
    Ok(vec![figure.against("Weir forwarding in clear", &theirs).noted(&note)])
}

fn sealed_against_wireguard(options: &Options) -> Result<Vec<Figure>> {
    let (wireguard, weir) = (Route::wireguard()?, Route::weir(options, Protection::SealedInUdp)?);
    let (ours, theirs, note) = interleaved_tcp(options, &weir, &wireguard)?;
    let figure = Figure::new("lab_sealed_vs_wireguard_go", "Gb/s", &ours);
    Ok(vec![figure.against(&wireguard::name(), &theirs).noted(&note)])
}

/// MTU 1500 at the hosts and on the wire.
fn narrow() -> Plan {
    Plan { host_mtu: 1500, wire_mtu: 1500, ..Plan::default() }
}

fn openvpn(options: &Options) -> Result<Vec<Figure>> {
    against_tunnel(options, "openvpn", "OpenVPN", openvpn::Tunnel::start)
}

fn libipsec(options: &Options) -> Result<Vec<Figure>> {
    against_tunnel(options, "libipsec", "strongSwan kernel-libipsec", strongswan::Tunnel::start)
}

/// One TCP stream at both MTUs beside a tunnel of others'.
fn against_tunnel<T: Debug + 'static>(
    options: &Options,
    name: &str,
    peer: &str,
    start: fn(&Lab) -> Result<T>,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (sealed, plan) in [("lab_sealed", Plan::default()), ("lab_sealed_1500", narrow())] {
        let tunnel = Route::tunnel(plan, start)?;
        let weir = Route::weir_in(options, Protection::SealedInUdp, plan)?;
        let (ours, theirs, note) = interleaved_tcp(options, &weir, &tunnel)?;
        let figure = Figure::new(&format!("{sealed}_vs_{name}"), "Gb/s", &ours);
        figures.push(figure.against(peer, &theirs).noted(&note));
    }
    Ok(figures)
}

fn sealed_1500(options: &Options) -> Result<Vec<Figure>> {
    sealed_1500_by(options, Protection::SealedInUdp, "lab_sealed_1500_gbps")
}

fn sealed_1500_without_udp(options: &Options) -> Result<Vec<Figure>> {
    sealed_1500_by(options, Protection::Sealed, "lab_sealed_1500_esp_gbps")
}

fn sealed_1500_by(options: &Options, how: Protection, name: &str) -> Result<Vec<Figure>> {
    let wireguard = Route::wireguard_in(narrow())?;
    let weir = Route::weir_in(options, how, narrow())?;
    let (ours, theirs, note) = interleaved_tcp(options, &weir, &wireguard)?;
    let figure = Figure::new(name, "Gb/s", &ours);
    Ok(vec![figure.against(&wireguard::name(), &theirs).noted(&note)])
}

fn idle_memory(options: &Options) -> Result<Vec<Figure>> {
    let weir = Route::weir(options, Protection::Sealed)?;
    interrupt::sleep(SETTLE)?;
    let gateways = weir.gateways.as_ref().context("Weir's path has gateways")?;
    let resident = gateways.process_ids().map(process::resident_mib);
    let samples = Samples(resident.into_iter().collect::<Result<_>>()?);
    let figure = Figure::new("idle_rss_mib", "MiB", &samples);
    Ok(vec![figure.noted("resident memory of each of the two idle sealing gateways")])
}

fn create(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn heading() -> String {
    let columns = ["figure", "value", "unit", "peer", "peer value", "ratio"];
    let [name, value, unit, peer, peer_value, ratio] = columns;
    format!("{name:<32}{value:>10} {unit:<6} {peer:<26}{peer_value:>10}{ratio:>8}  note")
}

fn row(figure: &Figure) -> String {
    let optional = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.2}"));
    format!(
        "{:<32}{:>10.2} {:<6} {:<26}{:>10}{:>8}  {}",
        figure.name,
        figure.value,
        figure.unit,
        figure.peer,
        optional(figure.peer_value),
        optional(figure.ratio),
        figure.note
    )
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_median_with_its_interval_and_its_peer_s() {
        let (ours, theirs) = (Samples(vec![5.0, 9.0, 6.0]), Samples(vec![2.0, 4.0]));
        let figure = Figure::new("lab_x", "Gb/s", &ours).against("peer", &theirs);
        assert_eq!((figure.value, figure.peer_value, figure.ratio), (6.0, Some(3.0), Some(2.0)));
        assert_eq!(figure.note, "5.00 to 9.00 in 3 runs; peer 2.00 to 4.00 in 2 runs");
        assert_eq!(figure.command, "make bench ONLY=lab_x");
    }

    #[test]
    fn a_figure_survives_its_line() {
        let figure = Figure::new("lab_x", "Gb/s", &Samples(vec![1.0]));
        let line = serde_json::to_string(&figure).expect("written");
        assert_eq!(serde_json::from_str::<Figure>(&line).expect("read"), figure);
    }

    #[test]
    fn a_bench_is_found_by_its_group_its_name_and_one_figure() {
        let found = |only: &str| BENCHES.iter().filter(|bench| bench.prints(only)).count();
        assert_eq!(found(""), BENCHES.len());
        assert_eq!(found("seal_memory_1400"), 1);
        assert_eq!(found("lab_sealed_roce_kpps_1024"), 1);
        assert_eq!(found("lab_sealed"), 9);
        assert_eq!(found("nothing"), 0);
    }

    #[test]
    fn an_unknown_bench_is_refused_by_name() {
        let options = Options {
            program: PathBuf::new(),
            only: Some("lab_nothing".to_owned()),
            output: PathBuf::new(),
            quick: true,
            driver: None,
        };
        let error = run(&options).expect_err("no such bench").to_string();
        assert!(error.contains("lab_nothing") && error.contains("lab_plain_gbps"), "{error}");
    }
}
