//! `weir lab demo`: the gateways at work on every kind of traffic, counted by tools that are not
//! ours, and a table of what each of them saw.
//!
//! For each kind: tcpdump listens in both hosts and on the wire, host B has a firewall rule against
//! it, the traffic runs, and the counts are held against each other. Only what "Weir saw" is Weir's
//! own. The demo fails when a frame of a host crossed the wire in clear, or did not arrive as it
//! was sent.

mod access;
mod detect;
mod rdma;
mod screen;
mod show;
mod vpn;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use weir_wire::frame::Link;
use weir_wire::mad;
use weir_wire::parse::parse;

use crate::gateways::{Gateways, Protection, Setup};
use crate::observe::{Capture, Captured, ESP, Firewall, gateways_neighbour};
use crate::process;
use crate::topology::{HOST_DEVICE, HOST_MAC, HOST_V6, Lab, Plan, Side, WIRE_END_A, text_mac};
use crate::traffic::frames::planned;
use crate::traffic::iperf::{self, Extent, TcpReport};
use crate::traffic::{Kind, bypass, ping, tcp};

pub use access::{AccessReport, MemoryReport, lines as access_lines};
pub use detect::{AttackReport, DetectionReport, eve as eve_file, tables as detection_tables};
pub use rdma::{RdmaReport, RdmaRun};
pub use show::{Given, how_to_look_around};
pub use vpn::VpnReport;

/// Echo requests of each IP version.
const PINGS: u32 = 20;
/// Echo requests, or connection attempts, against the firewall.
const STOPPED_PINGS: u32 = 5;
/// Bytes of the TCP transfer that is counted frame by frame.
const TRANSFER_BYTES: usize = 16 << 20;
/// Frames of each kernel-bypass kind, at least.
const BYPASS_FRAMES: usize = 500;
const ETHERNET_LEN: usize = 14;
/// Bytes that a seal adds to a frame, at most.
const SEAL_LEN: usize = 128;
/// Slow enough for every observer on a machine that does everything at once.
const BYPASS_RATE_PER_SECOND: u32 = 2000;
/// Seconds of each throughput run.
const THROUGHPUT_SECONDS: u32 = 5;
/// Enough of a frame for all headers.
const SNAP_LEN: u32 = 256;

/// How to run the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weir` program.
    pub program: PathBuf,
    /// Leave the lab standing, gateways running.
    pub keep: bool,
    /// Real RDMA between two guests instead of frames sent past the kernel.
    pub rdma: bool,
    /// MTU of hosts and wire, bytes.
    pub mtu: u32,
    /// The gateways' driver; absent: Weir's default.
    pub driver: Option<String>,
}

/// All that the demo found.
#[derive(Debug, Default, Serialize)]
pub struct DemoReport {
    /// By kind of traffic.
    pub kinds: Vec<KindReport>,
    /// TCP throughput, gateways forwarding in clear.
    pub plain: Option<Throughput>,
    /// TCP throughput, gateways sealing.
    pub sealed: Option<Throughput>,
    /// RDMA on the other host's memory, judged by lines of access.
    pub access: Option<AccessReport>,
    /// Attacks and their harmless twins, judged by rules.
    pub detection: Option<DetectionReport>,
    /// A standard WireGuard client of a gateway.
    pub vpn: Option<VpnReport>,
    /// Real RDMA, when it was asked for.
    pub rdma: Option<RdmaReport>,
    /// What is not as it must be; empty when all is well.
    pub failures: Vec<String>,
    /// What can be typed while the lab stands; absent when it is gone.
    #[serde(skip)]
    pub look_around: Option<String>,
}

/// What became of one kind of traffic.
#[derive(Debug, Default, Serialize)]
pub struct KindReport {
    /// Its name.
    pub kind: String,
    /// Frames that host A sent: by tcpdump in host A for ordinary traffic (super-packets count as
    /// one), by the sending socket for bypass traffic.
    pub sent_by_host_a: u64,
    /// Of them, seen by host A's own tcpdump.
    pub host_a_tcpdump_saw: u64,
    /// Frames of host A seen by host B's tcpdump.
    pub host_b_tcpdump_saw: u64,
    /// Packets sent against host B's firewall rule, when known.
    pub firewall_tried: Option<u64>,
    /// Of them, stopped.
    pub firewall_stopped: u64,
    /// What gateway A counted meanwhile.
    pub weir: WeirSaw,
    /// What tcpdump counted on the wire meanwhile.
    pub wire: WireSaw,
    /// Things sent, both directions: frames, bytes (TCP) or echo requests.
    pub sent: u64,
    /// Of them, arrived exactly as sent (pings: answered).
    pub intact: u64,
    /// What these things are.
    pub unit: &'static str,
    /// Whether it goes past the hosts' kernels.
    pub bypasses_kernel: bool,
}

/// What gateway A counted during one kind of traffic, both directions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WeirSaw {
    /// ESP packets made.
    pub sealed_packets: u64,
    /// ESP packets opened.
    pub opened_packets: u64,
    /// RDMA packets.
    pub rdma_packets: u64,
    /// Queue pairs that were new.
    pub queue_pairs: u64,
    /// Packets whose invariant CRC was right.
    pub icrc_ok: u64,
    /// Packets whose invariant CRC was wrong.
    pub icrc_bad: u64,
    /// RDMA packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Frames dropped by either gateway, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// What tcpdump counted on the wire during one kind of traffic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WireSaw {
    /// All frames.
    pub frames: u64,
    /// ESP.
    pub esp: u64,
    /// In clear, allowed: ARP and neighbour discovery of the gateways.
    pub neighbour: u64,
    /// In clear: this kind of traffic.
    pub this_kind_in_clear: u64,
    /// In clear, and none of the above.
    pub others_in_clear: u64,
    /// Frames that the kernel could not give to tcpdump.
    pub missed: u64,
}

/// One TCP throughput run.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Gb/s of payload.
    pub gbps: f64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Congestion control, pinned.
    pub congestion_control: String,
}

impl DemoReport {
    /// Whether all is as it must be.
    pub fn is_true(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the demo; `progress` hears what is being done.
///
/// # Errors
/// The lab or the gateways do not come up, a tool is missing, or a signal came. A demo that ran and
/// found something wrong is no error: see [`DemoReport::failures`].
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<DemoReport> {
    process::require(&["ip", "tc", "ethtool", "nft", "ping", "iperf3", "tcpdump", "tshark"])?;
    if options.rdma {
        return rdma::run(options, progress);
    }
    progress("building five network namespaces: host A - gateway A - wire - gateway B - host B");
    let plan = Plan { host_mtu: options.mtu, wire_mtu: options.mtu, ..Plan::default() };
    let mut lab = Lab::build(plan)?;
    let setup = |protection: Protection| Setup {
        driver: options.driver.clone(),
        outlives_lab: options.keep && protection == Protection::Sealed,
        tables: if options.keep { screen::tables() } else { String::new() },
        ..Setup::new(&options.program, protection)
    };

    progress("gateways forward in clear: measuring TCP");
    let gateways = Gateways::start(&lab, &setup(Protection::Plain))?;
    let plain = throughput(&lab)?;
    drop(gateways);

    progress("gateways seal: measuring TCP");
    let gateways = Gateways::start(&lab, &setup(Protection::Sealed))?;
    let sealed = throughput(&lab)?;

    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        progress(&format!("gateways seal: {}", show::title(kind.name())));
        kinds.push(observe(&lab, &gateways, kind).with_context(|| kind.name())?);
    }
    progress("gateway A takes lines of access: host B may READ from host A, and may not WRITE");
    let access = access::run(&lab, &gateways)?;
    progress("gateway A takes rules: a request for a secret file, and atomics, are attacks");
    let detection = detect::run(&lab, &gateways)?;
    progress("a gateway of another lab ends a VPN client: wireguard-go, ping, TCP");
    let vpn = vpn::run(options)?;
    let (plain, sealed) = (Some(plain.into()), Some(sealed.into()));
    let mut failures: Vec<_> = kinds.iter().flat_map(failures).collect();
    failures.extend(access.failures());
    failures.extend(detection.failures());
    failures.extend(vpn.failures());
    let (access, detection, vpn) = (Some(access), Some(detection), Some(vpn));
    let look_around = match options.keep {
        true => Some(leave_standing(&mut lab, gateways, options)?),
        false => None,
    };
    Ok(DemoReport {
        kinds,
        plain,
        sealed,
        access,
        detection,
        vpn,
        rdma: None,
        failures,
        look_around,
    })
}

/// Leaves the lab with its gateways standing; says how to look around.
fn leave_standing(lab: &mut Lab, gateways: Gateways, options: &Options) -> Result<String> {
    let link = screen::open(lab, options)?;
    gateways.detach();
    lab.keep();
    let given = Given { access: true, rules: true, shipped_rules: false };
    let around = how_to_look_around(lab, &options.program, given);
    Ok(format!("{around}\n\nsee it in a browser on this machine:\n  {link}"))
}

/// The report as text.
pub fn text(report: &DemoReport) -> String {
    show::text(report)
}

fn throughput(lab: &Lab) -> Result<TcpReport> {
    let address = IpAddr::V4(lab.host_v4(Side::B));
    let extent = Extent::Seconds(THROUGHPUT_SECONDS);
    iperf::tcp(lab.host(Side::A), lab.host(Side::B), address, extent)
}

impl From<TcpReport> for Throughput {
    fn from(report: TcpReport) -> Self {
        let TcpReport { gbps, retransmits, congestion_control, .. } = report;
        Self { gbps, retransmits, congestion_control }
    }
}

/// What the traffic itself reports: how much was sent, and how much arrived as sent.
struct Outcome {
    sent: u64,
    intact: u64,
    sent_by_host_a: Option<u64>,
    unit: &'static str,
}

fn observe(lab: &Lab, gateways: &Gateways, kind: Kind) -> Result<KindReport> {
    let mut report = KindReport {
        kind: kind.name().to_owned(),
        bypasses_kernel: kind.bypasses_kernel(),
        ..KindReport::default()
    };
    if !kind.bypasses_kernel() {
        (report.firewall_tried, report.firewall_stopped) = against_firewall(lab, kind)?;
    }
    let before = [gateways.status(Side::A)?, gateways.status(Side::B)?];
    let listen = |name: &str, namespace, port| {
        Capture::start(namespace, port, &lab.folder().join(format!("{name}.pcap")), SNAP_LEN)
    };
    let host_a = listen("host-a", lab.host(Side::A), HOST_DEVICE)?;
    let host_b = listen("host-b", lab.host(Side::B), HOST_DEVICE)?;
    let wire = listen("wire", lab.wire(), WIRE_END_A)?;
    let outcome = if kind.bypasses_kernel() {
        // The rule stands while the traffic runs: past the kernel is past the rule.
        let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE)?;
        let outcome = send(lab, kind)?;
        report.firewall_tried = outcome.sent_by_host_a;
        report.firewall_stopped = firewall.stopped(kind)?;
        outcome
    } else {
        send(lab, kind)?
    };
    let (host_a, host_b, wire) = (host_a.stop()?, host_b.stop()?, wire.stop()?);
    let after = [gateways.status(Side::A)?, gateways.status(Side::B)?];

    let of_a = format!("({}) and ether src {}", kind.capture_filter(), text_mac(HOST_MAC[0]));
    report.host_a_tcpdump_saw = host_a.count(&of_a)?;
    report.host_b_tcpdump_saw = host_b.count(&of_a)?;
    report.sent_by_host_a = outcome.sent_by_host_a.unwrap_or(report.host_a_tcpdump_saw);
    report.wire = wire_saw(&wire, kind)?;
    report.weir = WeirSaw::between(&before, &after);
    (report.sent, report.intact, report.unit) = (outcome.sent, outcome.intact, outcome.unit);
    Ok(report)
}

fn send(lab: &Lab, kind: Kind) -> Result<Outcome> {
    match kind {
        Kind::Ping => {
            let target = lab.host_v4(Side::B).to_string();
            let v4 = ping::ping_all(lab.host(Side::A), &target, PINGS, 56)?;
            let v6 = ping::ping_all(lab.host(Side::A), &HOST_V6[1].to_string(), PINGS, 56)?;
            let (sent, intact) = (v4.sent + v6.sent, v4.answered + v6.answered);
            Ok(Outcome { sent, intact, sent_by_host_a: None, unit: "answered" })
        }
        Kind::Tcp => {
            let intact = tcp::transfer(lab, TRANSFER_BYTES)?;
            let sent = TRANSFER_BYTES as u64;
            Ok(Outcome { sent, intact, sent_by_host_a: None, unit: "bytes" })
        }
        _ => {
            let mut frames = planned(kind, BYPASS_FRAMES)?;
            // Longer ones find no room for what a seal adds; and where RDMA's longest do not,
            // gateways lower the path MTU that managers' messages agree on.
            let fits = lab.plan().wire_mtu as usize + ETHERNET_LEN - SEAL_LEN;
            let longest = frames.iter().map(|it| it.bytes.len()).max().unwrap_or_default();
            let is_small = longest > fits;
            frames.retain(|it| it.bytes.len() <= fits && !(is_small && is_managers(&it.bytes)));
            let by_a = frames.iter().filter(|frame| frame.from == Side::A).count() as u64;
            let exchange = bypass::exchange(lab, &frames, BYPASS_RATE_PER_SECOND)?;
            anyhow::ensure!(exchange.refused == 0, "a host's port refused frames: {exchange:?}");
            let intact = exchange.intact.saturating_sub(exchange.altered);
            let sent = exchange.sent;
            Ok(Outcome { sent, intact, sent_by_host_a: Some(by_a), unit: "frames" })
        }
    }
}

/// Whether a frame is a management datagram (to queue pair 1).
fn is_managers(frame: &[u8]) -> bool {
    let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
    parsed.rdma.as_ref().is_some_and(mad::is_management)
}

/// A host's firewall does stop what its kernel sees: tried and stopped.
fn against_firewall(lab: &Lab, kind: Kind) -> Result<(Option<u64>, u64)> {
    let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE)?;
    let target = lab.host_v4(Side::B);
    let tried = match kind {
        Kind::Ping => {
            let host = lab.host(Side::A);
            Some(ping::ping(host, &target.to_string(), STOPPED_PINGS, 56)?.sent)
        }
        _ => {
            iperf::tcp_refused(lab.host(Side::A), IpAddr::V4(target))?;
            None
        }
    };
    Ok((tried, firewall.stopped(kind)?))
}

fn wire_saw(wire: &Captured, kind: Kind) -> Result<WireSaw> {
    let clear = kind.capture_filter();
    let neighbour = gateways_neighbour();
    Ok(WireSaw {
        frames: wire.count("")?,
        esp: wire.count(ESP)?,
        neighbour: wire.count(&neighbour)?,
        this_kind_in_clear: wire.count(clear)?,
        others_in_clear: wire
            .count(&format!("not ({ESP}) and not ({neighbour}) and not ({clear})"))?,
        missed: wire.dropped_by_kernel,
    })
}

impl WeirSaw {
    /// The difference between two snapshots of both gateways.
    fn between(before: &[Value; 2], after: &[Value; 2]) -> Self {
        let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64);
        let delta = |path: &str| {
            let [old, new] = [&before[0], &after[0]].map(|it| number(it, path).unwrap_or(0));
            new.saturating_sub(old)
        };
        let mut dropped = BTreeMap::new();
        for (old, new) in before.iter().zip(after) {
            for side in ["host", "wire"] {
                let path = format!("/pairs/0/{side}/dropped_by_reason");
                merge(&mut dropped, old.pointer(&path), new.pointer(&path));
            }
        }
        let mut opcodes = BTreeMap::new();
        let path = "/pairs/0/rdma/opcodes";
        merge(&mut opcodes, before[0].pointer(path), after[0].pointer(path));
        Self {
            sealed_packets: delta("/pairs/0/peers/0/sealed_packets"),
            opened_packets: delta("/pairs/0/peers/0/opened_packets"),
            rdma_packets: delta("/pairs/0/rdma/packets"),
            queue_pairs: delta("/pairs/0/rdma/queue_pairs"),
            icrc_ok: delta("/pairs/0/rdma/icrc_ok"),
            icrc_bad: delta("/pairs/0/rdma/icrc_bad"),
            opcodes,
            dropped,
        }
    }
}

/// Adds what grew between two objects of counts.
fn merge(into: &mut BTreeMap<String, u64>, old: Option<&Value>, new: Option<&Value>) {
    for (name, count) in new.and_then(Value::as_object).into_iter().flatten() {
        let earlier = old.and_then(|old| old[name].as_u64()).unwrap_or(0);
        let grown = count.as_u64().unwrap_or(0).saturating_sub(earlier);
        if grown > 0 {
            *into.entry(name.clone()).or_default() += grown;
        }
    }
}

/// What is wrong with one kind's counts.
fn failures(report: &KindReport) -> Vec<String> {
    let KindReport { wire, kind, .. } = report;
    let mut failures = Vec::new();
    let clear = wire.this_kind_in_clear + wire.others_in_clear;
    if clear > 0 {
        failures.push(format!("{kind}: {clear} frames crossed the wire in clear"));
    }
    if wire.esp == 0 {
        failures.push(format!("{kind}: the wire carried no ESP"));
    }
    if wire.frames != wire.esp + wire.neighbour + clear {
        failures.push(format!("{kind}: the wire's frames do not add up: {wire:?}"));
    }
    if wire.missed > 0 {
        failures.push(format!("{kind}: tcpdump on the wire missed {} frames", wire.missed));
    }
    if report.intact != report.sent {
        let (intact, sent) = (report.intact, report.sent);
        failures.push(format!("{kind}: {intact} of {sent} arrived as sent"));
    }
    let seen = report.host_a_tcpdump_saw + report.host_b_tcpdump_saw + report.firewall_stopped;
    if report.bypasses_kernel && seen > 0 {
        failures.push(format!("{kind}: the hosts' own tools saw frames that bypass their kernels"));
    }
    failures
}
