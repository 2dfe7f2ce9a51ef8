//! What floods cost who is beside them: how soon they are told, and what a TCP stream and a RoCE
//! stream keep of what they have while the same generator runs and is dropped at its own port.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use rustix::process::Signal;

use super::detecting::{own_rules, with_rules};
use super::rate::{PAYLOADS, share_of};
use super::{Figure, Options, Route, Samples};
use crate::eve::alerts_since;
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{self, Running};
use crate::topology::{
    GATEWAY_MAC, GATEWAY_V4, HOST_DEVICE, HOST_MAC, Lab, Side, WIRE_END_A, text_mac,
};
use crate::traffic::bypass;
use crate::traffic::frames::{Planned, RoceStream};
use crate::traffic::hostile::{Campaign, Hostile};
use crate::traffic::iperf::{self, Extent};

/// Seconds of a flood, and of the connection beside it.
const FLOOD_SECONDS: u32 = 4;
/// RoCE packets a second beside a flood.
const ROCE_BESIDE: u32 = 50_000;
/// Who sends from the wire itself.
const ON_WIRE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 9);
const RULES: [&str; 3] = ["rdma.rules", "flood.rules", "classification.config"];
/// So much lower are the rates of RDMA's rules where no generator here reaches them.
const LOWERED: u32 = 100;

/// A flood, and who makes it.
#[derive(Clone, Copy)]
enum Flood {
    /// Our generator, another source each time but of READs and WRITEs, so many packets a second.
    Made { hostile: Hostile, rate: u32, is_lowered: bool },
    /// `hping3 -i u20 -S -p 80`, as the Amsterdam paper has it, so many packets within so many
    /// seconds: from the wire, or from host B through its gateway, which has no rules.
    Hping { count: u32, seconds: u32, to_gateway: bool, forges: bool, is_behind: bool },
}

const FLOODS: [(&str, Flood); 13] = [
    ("syn", made(Hostile::SynFlood, 50_000)),
    ("udp", made(Hostile::UdpFlood, 100_000)),
    ("icmp", made(Hostile::IcmpFlood, 50_000)),
    ("dns", made(Hostile::DnsFlood, 50_000)),
    ("cm", made(Hostile::CmFlood, 20_000)),
    ("cnp", made(Hostile::CnpFlood, 100_000)),
    ("carpet", made(Hostile::CarpetFlood, 150_000)),
    ("half_open", made(Hostile::HalfOpenFlood, 1_500)),
    ("read", Flood::Made { hostile: Hostile::ReadFlood, rate: 100_000, is_lowered: true }),
    ("write", Flood::Made { hostile: Hostile::WriteFlood, rate: 160_000, is_lowered: true }),
    (
        "hping_own",
        Flood::Hping {
            count: 50_000,
            seconds: 20,
            to_gateway: true,
            forges: false,
            is_behind: false,
        },
    ),
    ("hping_60s", long_hping(false)),
    ("hping_60s_behind", long_hping(true)),
];

const fn made(hostile: Hostile, rate: u32) -> Flood {
    Flood::Made { hostile, rate, is_lowered: false }
}

const fn long_hping(is_behind: bool) -> Flood {
    Flood::Hping { count: 3_000_000, seconds: 60, to_gateway: false, forges: true, is_behind }
}

/// Each flood's figures.
pub(super) fn floods(options: &Options) -> Result<Vec<Figure>> {
    let is_asked = |name: &str| {
        let figures = ["flood_delay_ms", "flood_collateral_share", "flood_roce_share"];
        let figures = figures.map(|it| format!("{it}_{name}"));
        options.only.as_ref().is_none_or(|only| figures.iter().any(|it| it.starts_with(only)))
    };
    let mut figures = Vec::new();
    for (name, flood) in FLOODS.into_iter().filter(|it| is_asked(it.0)) {
        if matches!(flood, Flood::Hping { .. }) {
            process::require(&["hping3"])?;
        }
        figures.extend(flood.figures(options, name)?);
    }
    Ok(figures)
}

impl Flood {
    fn figures(&self, options: &Options, name: &str) -> Result<Vec<Figure>> {
        let [mut delays, mut kept, mut alone, mut roce_kept, mut roce_alone]: [Samples; 5] =
            Default::default();
        let (mut sent, mut dropped) = (0, 0);
        let folder = tempfile::tempdir()?;
        let is_long = matches!(self, Self::Hping { seconds: 60.., .. });
        for round in 0..options.rounds(if is_long { 1 } else { 3 }) {
            // A gateway of its own each round, which knows of no flood yet.
            let route = self.route(options, folder.path())?;
            let lab = &route.lab;
            let frames = self.frames(round as u64 + 1);
            alone.0.push(self.beside(lab, &frames, true, Self::tcp)?.1);
            roce_alone.0.push(self.beside(lab, &frames, true, Self::roce)?.1);
            let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
            let (poured, gbps) = self.beside(lab, &frames, false, Self::tcp)?;
            kept.0.push(gbps);
            delays.0.extend(alerts_since(&lab.folder().join("eve"), begun)?.first());
            let (again, share) = self.beside(lab, &frames, false, Self::roce)?;
            roce_kept.0.push(share);
            sent += poured + again;
            dropped += dropped_by_rules(&route)?;
        }
        let stopped = 100.0 * dropped as f64 / (sent as f64).max(1.0);
        let note = format!("{}; {stopped:.1} % of it dropped", self.says());
        let figure = Figure::new(&format!("flood_collateral_share_{name}"), "Gb/s", &kept);
        let peer = "the flood dropped at its own port";
        let roce = Figure::new(&format!("flood_roce_share_{name}"), "%", &roce_kept);
        let beside = format!("of {ROCE_BESIDE} RoCE packets/s beside, the other way; {note}");
        let all = format!(
            "{note}; beside it {:.2} of {:.2} Gb/s, and of RoCE {:.1} of {:.1} %",
            kept.median(),
            alone.median(),
            roce_kept.median(),
            roce_alone.median()
        );
        Ok(vec![
            Figure::new(&format!("flood_delay_ms_{name}"), "ms", &delays).noted(&all),
            figure.against(peer, &alone).noted(&format!("one TCP stream beside; {note}")),
            roce.against(peer, &roce_alone).noted(&beside),
        ])
    }

    /// In words, for a figure's note.
    fn says(&self) -> String {
        match self {
            Self::Made { rate, is_lowered, .. } => {
                let sources = if *is_lowered { "one source" } else { "other sources" };
                let lowered = format!(", rates of RDMA's rules divided by {LOWERED}");
                format!(
                    "{rate} packets/s for {FLOOD_SECONDS} s, {sources}; rules at both \
                     gateways{}",
                    if *is_lowered { &lowered } else { "" }
                )
            }
            Self::Hping { count, seconds, to_gateway, forges, is_behind } => format!(
                "hping3 -i u20 -S -p 80 -c {count}{}, {seconds} s at most, from {} to {}; rules at \
                 that gateway",
                if *forges { " --rand-source" } else { "" },
                if *is_behind { "behind a gateway without rules" } else { "the wire" },
                if *to_gateway { "a gateway's own address" } else { "the host behind a gateway" },
            ),
        }
    }

    /// Gateways with rules, and what of the flood they judge.
    fn route(&self, options: &Options, folder: &Path) -> Result<Route> {
        let [rdma, tcp_ip, classes] = RULES;
        match self {
            Self::Made { is_lowered: false, .. } => with_rules(options, &RULES, &Side::BOTH, "eve"),
            Self::Made { .. } => {
                with_rules(options, &[&lowered(folder)?, tcp_ip, classes], &Side::BOTH, "eve")
            }
            Self::Hping { is_behind, .. } => {
                let route = with_rules(options, &[rdma, tcp_ip, classes], &[Side::A], "eve")?;
                if !is_behind {
                    join_wire(&route.lab)?;
                }
                Ok(route)
            }
        }
    }

    /// Who sends it, and by which device.
    fn sender<'a>(&self, lab: &'a Lab) -> (&'a Namespace, &'static str) {
        match self {
            Self::Hping { is_behind: false, .. } => (lab.wire(), WIRE_END_A),
            _ => (lab.host(Side::B), HOST_DEVICE),
        }
    }

    fn frames(&self, seed: u64) -> Vec<Planned> {
        let Self::Made { hostile, rate, .. } = *self else { return Vec::new() };
        let count = (rate * FLOOD_SECONDS) as usize;
        // Reliable queue pairs are of somebody: nobody answers to a forged address.
        let is_rdma = matches!(hostile, Hostile::ReadFlood | Hostile::WriteFlood);
        let sources = u32::from(is_rdma);
        Campaign { hostile, is_benign: false, count, sources, seed }.frames()
    }

    fn seconds_beside(&self) -> u32 {
        match self {
            Self::Hping { seconds: 60.., .. } => 55,
            _ => FLOOD_SECONDS - 1,
        }
    }

    /// Gb/s of one TCP stream from host B to host A.
    fn tcp(&self, lab: &Lab) -> Result<f64> {
        let (from, to) = (lab.host(Side::B), lab.host(Side::A));
        let extent = Extent::Seconds(self.seconds_beside());
        Ok(iperf::tcp(from, to, lab.host_v4(Side::A).into(), extent)?.gbps)
    }

    /// Percent of a RoCE stream from host A that comes to host B.
    fn roce(&self, lab: &Lab) -> Result<f64> {
        let stream = RoceStream::reliable(PAYLOADS[0], RoceStream::QUEUE_PAIR)?;
        share_of(lab, stream, ROCE_BESIDE, f64::from(self.seconds_beside()))
    }

    /// What `measured` gives while the flood is sent, and dropped at its sender's port where it is
    /// so; packets of it that were sent come first.
    fn beside(
        &self,
        lab: &Lab,
        frames: &[Planned],
        at_port: bool,
        measured: fn(&Self, &Lab) -> Result<f64>,
    ) -> Result<(u64, f64)> {
        let sink = at_port.then(|| Sink::put(lab, self)).transpose()?;
        thread::scope(|scope| {
            let device = sink.as_ref().map_or(self.sender(lab).1, |it| it.device);
            let flood = scope.spawn(move || self.pour(lab, frames, device));
            let report = measured(self, lab);
            let poured = flood.join().map_err(|_| anyhow!("the flood's thread ended early"))?;
            Ok((poured?, report?))
        })
    }

    fn pour(&self, lab: &Lab, frames: &[Planned], device: &str) -> Result<u64> {
        match self {
            Self::Made { rate, .. } => {
                Ok(bypass::pour(lab, Side::B, device, frames, *rate)?.sent as u64)
            }
            Self::Hping { count, seconds, to_gateway, forges, .. } => {
                let [gateway, _] = GATEWAY_V4;
                let target = if *to_gateway { gateway } else { lab.host_v4(Side::A) };
                let mut hping = self.sender(lab).0.command("hping3");
                hping.args(["-q", "-i", "u20", "-S", "-p", "80", "-c", &count.to_string()]);
                hping.args(forges.then_some("--rand-source")).arg(target.to_string());
                let mut running = Running::start(&mut hping)?;
                let end = Instant::now() + Duration::from_secs((*seconds).into());
                while running.is_running()? && Instant::now() < end {
                    interrupt::sleep(Duration::from_millis(50))?;
                }
                // It says how many it sent whether it is asked to end or does by itself.
                let said = running.stop(Signal::INT)?.stderr;
                sent_by_hping(&said).with_context(|| format!("hping3 says {said:?}"))
            }
        }
    }
}

/// Packets that hping3 says it sent.
fn sent_by_hping(said: &str) -> Option<u64> {
    let (before, _) = said.split_once(" packets transmitted")?;
    before.rsplit(char::is_whitespace).next()?.parse().ok()
}

/// Makes the wire one who may send: it has an address there, and knows gateway A and host A.
fn join_wire(lab: &Lab) -> Result<()> {
    let host = lab.host_v4(Side::A);
    let [gateway, _] = GATEWAY_V4;
    let [host_mac, gateway_mac] = [HOST_MAC, GATEWAY_MAC].map(|it| text_mac(it[Side::A.index()]));
    lab.wire().ip(&format!(
        "addr add {ON_WIRE}/24 dev {WIRE_END_A}\nroute add {host}/32 dev {WIRE_END_A}\n\
         neigh add {gateway} dev {WIRE_END_A} lladdr {gateway_mac}\n\
         neigh add {host} dev {WIRE_END_A} lladdr {host_mac}\n"
    ))?;
    Ok(())
}

/// Where a flood ends at its sender's own port.
struct Sink<'a> {
    sender: &'a Namespace,
    device: &'static str,
}

impl<'a> Sink<'a> {
    fn put(lab: &'a Lab, flood: &Flood) -> Result<Self> {
        let (sender, port) = flood.sender(lab);
        match flood {
            Flood::Made { .. } => {
                let device = "weir-sink0";
                sender.ip(&format!(
                    "link add {device} type veth peer name weir-sink1\nlink set {device} up"
                ))?;
                Ok(Self { sender, device })
            }
            // hping3 asks the kernel for the way: it is dropped where it leaves.
            Flood::Hping { .. } => {
                nft(
                    sender,
                    &format!(
                        "table netdev weir_sink {{\n chain egress {{\n  type filter hook egress \
                         device \"{port}\" priority 0;\n  tcp dport 80 drop\n }}\n}}\n"
                    ),
                )?;
                Ok(Self { sender, device: port })
            }
        }
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        let device = self.device;
        let undone = match device {
            HOST_DEVICE | WIRE_END_A => nft(self.sender, "delete table netdev weir_sink\n"),
            _ => self.sender.ip(&format!("link del {device}")).map(drop),
        };
        if let Err(error) = undone {
            eprintln!("{device} goes with the lab: {error}");
        }
    }
}

fn nft(sender: &Namespace, text: &str) -> Result<()> {
    let mut command = sender.command("nft");
    process::run_with_input(command.args(["-f", "-"]), text, Duration::from_secs(10)).map(drop)
}

/// RDMA's rules with lower rates, in `folder`; the path.
fn lowered(folder: &Path) -> Result<String> {
    let text = fs::read_to_string(own_rules().join(RULES[0]))?;
    let mut lowered = String::new();
    for line in text.lines() {
        lowered += &match line.split_once(", rate ") {
            Some((before, behind)) if line.contains("flood:rdma_") => {
                let digits = behind.find(|it: char| !it.is_ascii_digit()).unwrap_or(behind.len());
                let (rate, behind) = behind.split_at(digits);
                format!("{before}, rate {}{behind}", rate.parse::<u32>()? / LOWERED)
            }
            _ => line.to_owned(),
        };
        lowered.push('\n');
    }
    let path = folder.join(RULES[0]);
    fs::write(&path, lowered)?;
    Ok(path.display().to_string())
}

/// Packets that rules dropped at both gateways.
fn dropped_by_rules(route: &Route) -> Result<u64> {
    let gateways = route.gateways.as_ref().context("the route has gateways")?;
    let mut sum = 0;
    for side in Side::BOTH {
        let status = gateways.status(side)?;
        for port in ["host", "wire"] {
            let dropped = status.pointer(&format!("/pairs/0/{port}/dropped_by_reason/rule"));
            sum += dropped.and_then(serde_json::Value::as_u64).unwrap_or_default();
        }
    }
    Ok(sum)
}
