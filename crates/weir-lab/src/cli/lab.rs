//! `weir lab`: test hosts, traffic and gateways on this machine, in network namespaces.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use weir_lab::gateways::{Gateways, KeySource, Protection, Setup};
use weir_lab::topology::{self, Lab, Plan};
use weir_lab::traffic::frames::Planned;
use weir_lab::traffic::hostile::{Campaign, Hostile};
use weir_lab::traffic::{Kind, bypass, frames};
use weir_lab::{bench, demo, interrupt, rules, thresholds};
use weir_port::capture::{CaptureFormat, CaptureWriter, PacketNote};
use weir_wire::frame::{Link, Meta, Offload, Time};

use super::{gateway_program, print_json};

const LAB_HELP: &str = "\
The lab is five network namespaces: host A - gateway A - wire - gateway B - host B. It needs root,
and leaves nothing behind, also after Ctrl-C.

Examples:
  weir lab demo                       all of it, in about a minute
  weir lab demo --rdma                the same with real RDMA between two small virtual machines
  weir lab up && weir lab send --kind roce-v1 --count 1000 && weir lab down";

/// Arguments of `weir lab`.
#[derive(Debug, Args)]
#[command(after_help = LAB_HELP)]
pub(crate) struct LabArgs {
    /// What to do in the lab.
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Show every kind of traffic, sealed, counted by tcpdump and nftables
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Build a lab with running gateways and leave it standing
    #[command(after_help = UP_HELP)]
    Up(UpArgs),
    /// Remove the lab that was left standing, by `weir lab up` or a killed process
    #[command(after_help = DOWN_HELP)]
    Down(DownArgs),
    /// Send frames past the hosts' kernels through the lab that stands, and compare what arrives
    #[command(after_help = SEND_HELP)]
    Send(SendArgs),
    /// Where the rules' thresholds stand between attacks and their benign twins
    #[command(after_help = THRESHOLDS_HELP)]
    Thresholds(ThresholdsArgs),
    /// Measure everything beside its peers; `make bench` runs it
    #[command(hide = true)]
    Bench(BenchArgs),
}

const DEMO_HELP: &str = "\
Example:
  weir lab demo --keep

Exit codes:
  0  the wire carried ESP only, and everything arrived exactly as sent
  1  it did not, or the lab could not be built";

#[derive(Debug, Args)]
struct DemoArgs {
    /// Leave the lab standing, and say how to look around
    #[arg(long)]
    keep: bool,
    /// Real RDMA: perftest and rping between two Soft-RoCE guests (about two minutes)
    #[arg(long)]
    rdma: bool,
    /// MTU of hosts and wire
    #[arg(long, default_value_t = 9000, value_name = "BYTES")]
    mtu: u32,
    /// The gateways' driver
    #[arg(long, value_parser = ["packet", "xdp"], value_name = "DRIVER")]
    driver: Option<String>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

const UP_HELP: &str = "\
Example:
  weir lab up --plain
  weir lab up --access && weir lab send --kind rdma-write
  weir lab up --rules && weir lab send --kind attack-rdma
  weir lab up --shipped-rules && weir lab send --kind attack-key-guessing

Exit codes:
  0  it stands
  1  it could not be built";

#[derive(Debug, Args)]
struct UpArgs {
    /// Gateways that forward in clear, instead of sealing
    #[arg(long)]
    plain: bool,
    /// Give gateway A two lines of access: host B may READ from host A, and may not WRITE
    #[arg(long)]
    access: bool,
    /// Give gateway A two rules that drop: attack-tcp and attack-rdma of `weir lab send`
    #[arg(long)]
    rules: bool,
    /// Give gateway A all rules that Weir ships, for attack-NAME of `weir lab send`; READ and WRITE
    /// floods begin at 20,000 messages a second, for a lab sends no millions
    #[arg(long, conflicts_with = "rules")]
    shipped_rules: bool,
    /// Where keys come from: files, or native handshakes between the gateways
    #[arg(long, default_value = "files", value_parser = ["files", "native"], value_name = "SOURCE")]
    keys: String,
    /// MTU of hosts and wire
    #[arg(long, default_value_t = 9000, value_name = "BYTES")]
    mtu: u32,
    /// The gateways' driver
    #[arg(long, value_parser = ["packet", "xdp"], value_name = "DRIVER")]
    driver: Option<String>,
}

const DOWN_HELP: &str = "\
Removes the lab that stands, if there is one. Where several stand, some may be somebody else's: name
the one to remove, or say --all. A lab that a running program works in is never removed.

Examples:
  weir lab down
  weir lab down 14990

Exit codes:
  0  it is gone, or none stood
  1  several stand, or others than the one named, or a namespace does not go away";

#[derive(Debug, Args)]
struct DownArgs {
    /// The lab, as `weir lab down` lists them
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// All labs that nobody works in
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

const SEND_HELP: &str = "\
Kinds:
  roce-v2       the RDMA packets of real captures (CM, SEND, WRITE, READ, atomics; IPv4 and IPv6)
  roce-v1       the same packets under Ethernet type 0x8915
  tcp-prebuilt  TCP/IP frames built by hand, as in Mireles 2020
  rdma-read     host B reads host A's memory: requests and answers
  rdma-write    host B writes to host A's memory, three packets each
  attack-tcp    host B asks host A for /etc/shadow, a TCP segment each; benign-tcp: for a page
  attack-rdma   host B's atomics on host A's memory; rdma-read is their harmless twin
  attack-NAME   what rules/rdma.rules and rules/flood.rules tell, decided by --seed; benign-NAME is
                its harmless twin. NAME: psn-injection, psn-conflict, invalid-request, the same
                three with uc- before, write-length, key-guessing, psn-conflict and those two with
                xrc- before, address-guessing, qp-exhaustion, idle-queue-pairs, exfiltration,
                port-change, address-conflict, guid-conflict, state-saturation, key-saturation,
                pipeline-saturation, rnr-flood, rogue-sm, pkey-guessing, qkey-guessing,
                side-channel, forged-cnp, read-flood, write-flood, cm-flood, mad-flood, cnp-flood,
                syn-flood, udp-flood, icmp-flood, dns-flood, half-open-flood, carpet-flood,
                ack-flood, scan.
                Without --count and --rate each is sent as its rule tells it, and its twin as none
                does; exfiltration waits ten minutes for its second host, in captures alone.
                While what is no RDMA is sent, the hosts' kernels hear nothing at all

Example:
  weir lab send --kind roce-v2 --count 1000 --rate 2000
  weir lab send --kind attack-key-guessing --seed 7 --write guesses.pcapng

Exit codes:
  0  every frame arrived byte for byte, or the capture is written
  1  some did not, or no lab stands";

/// Frames, and how many a second, where nothing else is said.
const COUNT: u32 = 1000;
const RATE: u32 = 2000;

/// The frames of a kind.
fn planned(args: &SendArgs) -> Result<Vec<Planned>> {
    match campaign(args) {
        Some(campaign) => Ok(campaign.frames()),
        None => {
            let kind = Kind::from_name(&args.kind).with_context(|| {
                let names: Vec<&str> = Hostile::ALL.iter().map(|it| it.0).collect();
                format!("attack-NAME and benign-NAME are of {}", names.join(", "))
            })?;
            frames::planned(kind, args.count.unwrap_or(COUNT) as usize)
        }
    }
}

fn campaign(args: &SendArgs) -> Option<Campaign> {
    let (hostile, is_benign) = Hostile::from_name(&args.kind).ok()?;
    let count = args.count.unwrap_or(hostile.usual(is_benign).0) as usize;
    Some(Campaign { hostile, is_benign, count, sources: args.sources, seed: args.seed })
}

/// Frames a second.
fn rate(args: &SendArgs) -> u32 {
    let usual = campaign(args).map(|it| it.hostile.usual(it.is_benign).1);
    args.rate.or(usual).unwrap_or(RATE)
}

#[derive(Debug, Args)]
struct SendArgs {
    /// What to send
    #[arg(long, default_value = "roce-v2")]
    kind: String,
    /// Frames, at least; captures are sent whole [default: 1000, of attack-NAME its own]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    count: Option<u32>,
    /// Frames a second [default: 2000, of attack-NAME its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Addresses that a flood comes from; 0: another each time
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=50_000))]
    sources: u32,
    /// Decides all that is random in attack-NAME and benign-NAME
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Write the frames to a capture, --rate a second, instead of sending them; needs no lab
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The lab, where several stand: its id, as `weir lab up` told it
    #[arg(long, value_name = "ID", conflicts_with = "write")]
    lab: Option<String>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

const THRESHOLDS_HELP: &str = "\
Nothing is sent: campaigns go through the detector in simulated time. docs/thresholds.md keeps the
table of the even seeds; tests judge the shipped rules by odd ones.

Example:
  weir lab thresholds psn-injection key-guessing --seeds 2,4,6

Exit codes:
  0  each threshold lies between what the benign twin and what the attack reaches
  1  one does not, or a rule does not run";

#[derive(Debug, Args)]
struct ThresholdsArgs {
    /// Attacks, as of `weir lab send --kind attack-NAME` [default: all]
    names: Vec<String>,
    /// Seeds that campaigns are made by
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 6, 8, 10], value_name = "N,...")]
    seeds: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// Only figures whose name begins so
    only: Option<String>,
    /// One short round of each, to see that it runs
    #[arg(long)]
    quick: bool,
    /// Where a line a figure goes
    #[arg(long, default_value = "target/bench.jsonl", value_name = "FILE")]
    output: PathBuf,
    /// The gateways' driver
    #[arg(long, value_parser = ["packet", "xdp"], value_name = "DRIVER")]
    driver: Option<String>,
}

/// Runs `weir lab`.
///
/// # Errors
/// The lab cannot be built, or a signal came; nothing is left behind.
pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    match args.command {
        LabCommand::Demo(args) => run_demo(&args),
        LabCommand::Up(args) => run_up(&args),
        LabCommand::Down(args) => run_down(&args),
        LabCommand::Send(args) => run_send(&args),
        LabCommand::Thresholds(args) => run_thresholds(&args),
        LabCommand::Bench(args) => {
            let BenchArgs { only, quick, output, driver } = args;
            bench::run(&bench::Options {
                program: gateway_program()?,
                only,
                output,
                quick,
                driver,
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_demo(args: &DemoArgs) -> Result<ExitCode> {
    let options = demo::Options {
        program: gateway_program()?,
        keep: args.keep,
        rdma: args.rdma,
        mtu: args.mtu,
        driver: args.driver.clone(),
    };
    let report = demo::run(&options, &mut |line| eprintln!("- {line}"))?;
    if args.json {
        print_json(&report)?;
    } else {
        print!("{}", demo::text(&report));
    }
    if let Some(words) = &report.look_around {
        eprintln!("\n{words}");
    }
    Ok(if report.is_true() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_up(args: &UpArgs) -> Result<ExitCode> {
    let program = gateway_program()?;
    let mut lab = Lab::build(Plan { host_mtu: args.mtu, wire_mtu: args.mtu, ..Plan::default() })?;
    let protection = if args.plain { Protection::Plain } else { Protection::Sealed };
    let mut tables_of_a = String::new();
    if args.access {
        tables_of_a += &demo::access_lines(&lab);
    }
    if args.rules {
        tables_of_a += &demo::detection_tables(&lab)?;
    }
    if args.shipped_rules {
        tables_of_a += &rules::shipped(lab.folder(), true)?;
    }
    let setup = Setup {
        driver: args.driver.clone(),
        outlives_lab: true,
        tables_of_a,
        keys: if args.keys == "native" { KeySource::handshakes() } else { KeySource::Files },
        ..Setup::new(&program, protection)
    };
    let gateways = Gateways::start(&lab, &setup)?;
    gateways.detach();
    lab.keep();
    let UpArgs { access, rules, shipped_rules, .. } = *args;
    let given = demo::Given { access, rules, shipped_rules };
    writeln!(io::stdout(), "{}", demo::how_to_look_around(&lab, &program, given))?;
    Ok(ExitCode::SUCCESS)
}

fn run_down(args: &DownArgs) -> Result<ExitCode> {
    let standing = topology::abandoned();
    let removed = match (&args.id, args.all) {
        (Some(id), _) => topology::remove_abandoned(id)?,
        (None, true) => topology::sweep()?,
        (None, false) => match only(&standing)? {
            Some(id) => topology::remove_abandoned(id)?,
            None => Vec::new(),
        },
    };
    if let Some(id) = args.id.as_ref().filter(|_| removed.is_empty() && !standing.is_empty()) {
        anyhow::bail!("no lab {id} is left standing; there are: {}", standing.join(", "));
    }
    if removed.is_empty() {
        println!("no lab was left standing");
    }
    removed.iter().for_each(|name| println!("removed {name}"));
    Ok(ExitCode::SUCCESS)
}

/// The lab that is meant where none is named: of several, perhaps others' own, none.
fn only(standing: &[String]) -> Result<Option<&String>> {
    match standing {
        [] => Ok(None),
        [id] => Ok(Some(id)),
        several => anyhow::bail!(
            "several labs stand, perhaps not all yours: {}; name one, or say --all",
            several.join(", ")
        ),
    }
}

fn run_thresholds(args: &ThresholdsArgs) -> Result<ExitCode> {
    let known = |name: &String| {
        let bare = name.strip_prefix("attack-").unwrap_or(name);
        let found = Hostile::ALL.iter().find(|it| it.0 == bare);
        found.with_context(|| format!("no attack is called {bare}"))
    };
    let chosen: Vec<_> = match args.names.is_empty() {
        true => Hostile::ALL.iter().collect(),
        false => args.names.iter().map(known).collect::<Result<_>>()?,
    };
    let mut intervals = Vec::new();
    for (name, hostile) in chosen {
        eprintln!("{name}");
        intervals.push(thresholds::interval(name, *hostile, &args.seeds)?);
    }
    match args.json {
        true => print_json(&intervals)?,
        false => print!("{}", thresholds::table(&intervals)),
    }
    let is_right = intervals.iter().all(thresholds::Interval::is_between);
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_send(args: &SendArgs) -> Result<ExitCode> {
    let frames = planned(args)?;
    if let Some(path) = &args.write {
        write_capture(path, &frames, args)?;
        eprintln!("{} frames of {} written to {}", frames.len(), args.kind, path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let lab = Lab::standing(args.lab.as_deref())?;
    let exchange = bypass::exchange(&lab, &frames, rate(args))?;
    if args.json {
        print_json(&exchange)?;
    } else {
        println!(
            "{} frames of {} sent past the hosts' kernels: {} arrived byte for byte, {} altered, \
             {} refused by the sending port",
            exchange.sent, args.kind, exchange.intact, exchange.altered, exchange.refused
        );
    }
    Ok(if exchange.is_exact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes frames as if they had been sent, so many a second, from 2026-01-01 00:00 UTC on.
fn write_capture(path: &Path, frames: &[Planned], args: &SendArgs) -> Result<()> {
    const BEGIN_S: u64 = 1_767_225_600;
    let (campaign, rate) = (campaign(args), u64::from(rate(args)));
    let evenly = |number: u64| number * 1_000_000_000 / rate;
    let sent_ns = |number| campaign.map_or_else(|| evenly(number), |it| it.sent_ns(number, rate));
    let shown = path.display();
    let create = || -> std::io::Result<()> {
        let interfaces = [("host A's port", Link::Ethernet)];
        let mut writer = CaptureWriter::create(path, CaptureFormat::PcapNg, &interfaces)?;
        for (number, frame) in (0..).zip(frames) {
            let time = Time(BEGIN_S * 1_000_000_000 + sent_ns(number));
            let (link, offload) = (Link::Ethernet, Offload::default());
            let meta = Meta { time, original_len: frame.bytes.len() as u32, link, offload };
            writer.write(0, &meta, &[&frame.bytes], PacketNote::default())?;
        }
        writer.finish().map(drop)
    };
    create().with_context(|| format!("cannot write {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_labs_none_is_taken_down_unless_it_is_named() {
        let labs = ["4711-0".to_owned(), "4712-0".to_owned()];
        assert_eq!(only(&labs[..0]).unwrap(), None);
        assert_eq!(only(&labs[..1]).unwrap(), Some(&labs[0]));
        let refused = only(&labs).unwrap_err().to_string();
        assert!(refused.contains("4711-0, 4712-0") && refused.contains("--all"), "{refused}");
    }
}
