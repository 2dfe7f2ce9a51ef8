//! `weir access check`, `explain` and `test`: what lines of a configuration do, without a gateway.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use weir_engine::access::{
    AccessPolicy, Asked, Hits, Lacking, LineNumber, Oddity, Operation, QueuePairType,
};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{Policy, mapped};
use weir_engine::verdict::Side;
use weir_port::capture::CaptureReader;
use weir_store::clock;
use weir_wire::frame::Time;
use weir_wire::parse::MacAddress;

use crate::cli::running::Target;
use crate::cli::{EXIT_USAGE, print_json};
use crate::config::access::{party, terms};
use crate::utc;

pub(super) const CHECK_HELP: &str = "\
Shadowed: another line, which does the same, decides before it whatever it matches. Contradicted:
the other does the opposite. Dead: several lines before it decide together. Idle: it and all lines
after it do what the default does.

Examples:
  weir access check /etc/weir/gw-a.toml
  weir access check                       the lines that the running gateway has in force

Exit codes:
  0  no line is odd
  1  some are, or no gateway answers
  2  the configuration is refused";

/// Which configuration.
#[derive(Debug, Args)]
struct Which {
    /// The configuration; left out: what a running gateway has in force
    file: Option<PathBuf>,
    /// That gateway's name; needed where several run
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    gateway: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    run_dir: PathBuf,
}

impl Which {
    fn target(&self) -> Target<'_> {
        let Self { file, gateway, run_dir } = self;
        Target { file: file.as_deref(), gateway: gateway.as_deref(), run_dir }
    }
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    of: Which,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) const EXPLAIN_HELP: &str = "\
Beside the line that decides it names the lines before it that would decide otherwise if one thing
were different: who asks or is asked, what, the kind of queue pair, service, VLAN, P_Key or time.

Examples:
  weir access explain /etc/weir/gw-a.toml --from 10.1.0.7 --to 10.0.0.1 --op write
  weir access explain gw-a.toml --from 10.1.0.7 --to 10.0.0.1 --op connect --service nvme-of
  weir access explain --from 10.1.0.7 --to 10.0.0.1 --op write
      by the lines that the running gateway has in force

Exit codes:
  0  it would pass
  1  it would be dropped, or no gateway answers
  2  the configuration is refused, or the command line is wrong";

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    of: Which,
    /// Who asks: an address or a GID
    #[arg(long, value_name = "ADDRESS")]
    from: IpAddr,
    /// Whose queue pair and memory it is
    #[arg(long, value_name = "ADDRESS")]
    to: IpAddr,
    /// send, send_imm, write, read, atomic, multicast, connect or other
    #[arg(long, value_name = "OPERATION", value_parser = operation)]
    op: Operation,
    /// The service of the connection: nvme-of, tcp/4420, 0x...; left out: of none that is known
    #[arg(long, value_parser = service)]
    service: Option<u64>,
    /// rc, uc, ud, xrc or dct
    #[arg(long, value_name = "TYPE", default_value = "rc", value_parser = qp_type)]
    qp_type: QueuePairType,
    /// The outer VLAN; left out: no tag
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = terms::vlan)]
    vlan: u16,
    /// The P_Key, as 0x8005; left out: of no partition that a line names
    #[arg(long, value_name = "P_KEY", value_parser = terms::partition)]
    p_key: Option<u16>,
    /// MAC addresses of who asks and whom, where lines name such
    #[arg(long, value_name = "MAC", num_args = 2, value_parser = mac)]
    macs: Option<Vec<MacAddress>>,
    /// When, as 2026-12-31T18:00:00Z; left out: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// The pair of ports; needed where several have lines
    #[arg(long)]
    pair: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) const TEST_HELP: &str = "\
Every packet of the capture is judged as a gateway would, which looks at it alone: a sender that was
denied would have gone on otherwise. Packets are allowed or denied; what could not be read and would
be dropped as access_unreadable is denied. The line `default` stands for what no line matches.

Example:
  weir access test /etc/weir/gw-a.toml yesterday.pcapng --json

Exit codes:
  0  judged
  1  the capture cannot be read, or the configuration has no lines
  2  the configuration is refused";

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The configuration
    file: PathBuf,
    /// A capture: pcap, pcapng or ERF
    capture: PathBuf,
    /// The pair of ports; needed where several have lines
    #[arg(long)]
    pair: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

fn operation(text: &str) -> Result<Operation, String> {
    let named = text.replace('-', "_");
    let found = Operation::ALL.into_iter().find(|it| it.name() == named);
    found.ok_or_else(|| {
        let names = Operation::ALL.map(Operation::name).join(", ");
        format!("there is no operation {text}; there are {names}")
    })
}

fn service(text: &str) -> Result<u64, String> {
    let found = terms::services_of(text).and_then(|it| it.first().map(|it| it.first));
    found.ok_or_else(|| "write nvme-of, nfs-rdma, iser, smb-direct, tcp/PORT or 0x...".to_owned())
}

fn qp_type(text: &str) -> Result<QueuePairType, String> {
    let found = QueuePairType::ALL.into_iter().find(|it| it.name() == text);
    found.ok_or_else(|| "there are rc, uc, ud, xrc and dct".to_owned())
}

fn mac(text: &str) -> Result<MacAddress, String> {
    party::mac(text).ok_or_else(|| "write it as 02:77:00:00:00:0a".to_owned())
}

fn time(text: &str) -> Result<u64, String> {
    utc::read(text).ok_or_else(|| "write it as 2026-12-31T18:00:00Z".to_owned())
}

/// Every pair that has lines.
struct Lines(Vec<(String, Arc<AccessPolicy>)>);

impl Lines {
    /// Those of a configuration; `None`: it is refused, and all was said.
    ///
    /// # Errors
    /// No gateway answers that was to say what it has in force.
    fn of(target: Target<'_>) -> Result<Option<Self>> {
        match target.source()?.and_then(|source| source.understand()) {
            Ok((settings, _)) => {
                let pairs = settings.pairs.into_iter();
                let lines = pairs.filter_map(|pair| Some((pair.name, pair.access?)));
                Ok(Some(Self(lines.collect())))
            }
            Err(problems) => {
                eprint!("{problems}");
                Ok(None)
            }
        }
    }

    /// Those of the pair called `name`, or of the only one.
    fn only(self, name: Option<&str>) -> Result<(String, Arc<AccessPolicy>)> {
        let mut found: Vec<_> =
            self.0.into_iter().filter(|(pair, _)| name.is_none_or(|name| name == pair)).collect();
        if found.len() > 1 {
            let names: Vec<_> = found.iter().map(|(pair, _)| pair.as_str()).collect();
            bail!("several pairs have lines of access; --pair names one of {}", names.join(", "));
        }
        found.pop().context("no lines of access there: [[access]] in the configuration makes one")
    }
}

#[derive(Serialize)]
struct Odd<'l> {
    pair: &'l str,
    line: &'l str,
    is: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'l str>,
}

pub(super) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let Some(lines) = Lines::of(args.of.target())? else { return Ok(ExitCode::from(EXIT_USAGE)) };
    let mut odd = Vec::new();
    for (pair, policy) in &lines.0 {
        let name = |line: usize| &*policy.lines()[line].name;
        odd.extend(policy.oddities().into_iter().map(|(line, oddity)| {
            let (is, by) = match oddity {
                Oddity::Shadowed { by } => ("shadowed", Some(name(by))),
                Oddity::Contradicted { by } => ("contradicted", Some(name(by))),
                Oddity::Dead => ("dead", None),
                Oddity::Idle => ("idle", None),
            };
            Odd { pair, line: name(line), is, by }
        }));
    }
    if args.json {
        print_json(&odd)?;
    } else {
        for Odd { pair, line, is, by } in &odd {
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            println!("pair {pair}: line {line} is {is}{by}");
        }
        if odd.is_empty() {
            let count: usize = lines.0.iter().map(|(_, policy)| policy.lines().len()).sum();
            println!("{count} lines, none of them odd");
        }
    }
    Ok(if odd.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Explained<'l> {
    pair: &'l str,
    from: IpAddr,
    to: IpAddr,
    operation: &'static str,
    /// What happens.
    action: &'static str,
    /// The line that decides; absent: the default does.
    line: Option<&'l str>,
    /// Its place among the lines, from 1.
    number: Option<usize>,
    /// What would decide without that line.
    otherwise: Option<Otherwise<'l>>,
    /// Lines before it that would decide otherwise if one thing were different.
    would_change: Vec<WouldChange<'l>>,
}

#[derive(Serialize)]
struct WouldChange<'l> {
    line: &'l str,
    action: &'static str,
    /// The key of the line that does not fit.
    lacks: &'static str,
}

/// Lines that would change the verdict which are told of, at most.
const CHANGES_MAX: usize = 10;

#[derive(Serialize)]
struct Otherwise<'l> {
    action: &'static str,
    line: Option<&'l str>,
}

pub(super) fn explain(args: &ExplainArgs) -> Result<ExitCode> {
    let Some(lines) = Lines::of(args.of.target())? else { return Ok(ExitCode::from(EXIT_USAGE)) };
    let (pair, policy) = lines.only(args.pair.as_deref())?;
    let [from, to] = [args.from, args.to].map(mapped);
    let now = Time(args.at.unwrap_or_else(|| clock::time().0));
    let asked = Asked {
        qp_type: Some(args.qp_type),
        service: args.service,
        vlan: args.vlan,
        partition: args.p_key,
        macs: args.macs.as_ref().and_then(|it| it.as_slice().try_into().ok()),
        now,
        ..Asked::NOTHING
    };
    let decided = policy.decide_one(&from, &to, args.op, &asked);
    let line = decided.index().map(|index| &policy.lines()[index]);
    let next = policy.matching(&from, &to, args.op, &asked).find(|it| Some(*it) != decided.index());
    let otherwise = line.is_some().then(|| match next.map(|next| &policy.lines()[next]) {
        Some(next) => Otherwise { action: next.action.name(), line: Some(&next.name) },
        None => Otherwise { action: policy.default_action().name(), line: None },
    });
    let (action, _) = policy.action_of(decided);
    let until = decided.index().unwrap_or(policy.lines().len());
    let near = policy.near_misses(&from, &to, args.op, &asked, until);
    let changes = |(line, lacking): (usize, Lacking)| {
        let line = &policy.lines()[line];
        let differs = line.action.passes() != action.passes();
        let lacks = lacking.name();
        differs.then(|| WouldChange { line: &line.name, action: line.action.name(), lacks })
    };
    let explained = Explained {
        would_change: near.filter_map(changes).take(CHANGES_MAX).collect(),
        pair: &pair,
        from: args.from,
        to: args.to,
        operation: args.op.name(),
        action: action.name(),
        line: line.map(|line| &*line.name),
        number: decided.index().map(|index| index + 1),
        otherwise,
    };
    if args.json {
        print_json(&explained)?;
    } else {
        say(&explained, policy.lines().len());
    }
    Ok(if action.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(explained: &Explained<'_>, count: usize) {
    let Explained { pair, from, to, operation, action, .. } = explained;
    match (explained.line, explained.number) {
        (Some(line), Some(number)) => {
            println!(
                "{action}: {operation} from {from} to {to}, by line {line} ({number} of {count}) \
                 of pair {pair}"
            );
        }
        _ => println!(
            "{action}: {operation} from {from} to {to}, by the default of pair {pair}: no line \
             matches"
        ),
    }
    if let Some(Otherwise { action, line }) = &explained.otherwise {
        let by = line.map_or("the default".to_owned(), |line| format!("line {line}"));
        println!("without that line: {action}, by {by}");
    }
    for WouldChange { line, action, lacks } in &explained.would_change {
        println!("line {line} would {action} it, but for its `{lacks}`");
    }
}

#[derive(Serialize)]
struct Judged {
    packets: u64,
    allowed: u64,
    denied: u64,
    lines: Vec<JudgedLine>,
}

#[derive(Serialize)]
struct JudgedLine {
    name: String,
    action: &'static str,
    messages: u64,
    packets: u64,
}

pub(super) fn test(args: &TestArgs) -> Result<ExitCode> {
    let target = Target { file: Some(&args.file), gateway: None, run_dir: Path::new("") };
    let Some(lines) = Lines::of(target)? else { return Ok(ExitCode::from(EXIT_USAGE)) };
    let (_, policy) = lines.only(args.pair.as_deref())?;
    let judged = judge(&policy, &args.capture)?;
    if args.json {
        print_json(&judged)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Judged { packets, allowed, denied, lines } = &judged;
    println!("{packets} packets: {allowed} allowed, {denied} denied");
    println!("{:>14} {:>14}  {:<10}  line", "messages", "packets", "action");
    for JudgedLine { name, action, messages, packets } in lines {
        println!("{messages:>14} {packets:>14}  {action:<10}  {name}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Has an engine with these lines alone judge every packet of `capture`.
fn judge(policy: &Arc<AccessPolicy>, capture: &Path) -> Result<Judged> {
    let mut watch = Policy::watch(1, u16::MAX);
    watch.check_icrc = false;
    let lines = AccessPolicy::new(policy.lines().to_vec(), policy.default_action());
    let lines = lines.with_state(policy.state()).with_psn(policy.psn());
    watch.access = Some(Arc::new(lines.from_one_side()));
    // No seed: nobody who could make entries collide waits for the answer.
    let meter = Meter::new(MeterLimits::for_captures(), 0);
    let mut engine = Engine::new(watch, Associations::default(), meter)?;
    let mut packets = 0;
    let read = || format!("cannot read {}", capture.display());
    let mut reader = CaptureReader::open(capture).with_context(read)?;
    let mut take = |frames: &mut [weir_wire::frame::Frame<'_>]| {
        let Some(now) = frames.last().map(|frame| frame.meta.time) else { return };
        packets += frames.len() as u64;
        engine.process(now, Side::Wire, frames);
        // Pieces that go on go nowhere.
        while engine.take_reassembled().is_some() {}
        while engine.take_access_event().is_some() {}
        engine.expire(now, &mut |_| {});
    };
    while reader.next_batch(&mut take).with_context(read)? > 0 {}
    let access = engine.access().context("an engine with lines has them")?;
    let line = |(number, hits): (LineNumber, Hits)| JudgedLine {
        name: number.index().map_or("default".into(), |at| policy.lines()[at].name.to_string()),
        action: policy.action_of(number).0.name(),
        messages: hits.messages,
        packets: hits.packets,
    };
    let lines = access.hits_by_line().map(line).collect();
    let denied = engine.counters().wire.dropped_total();
    Ok(Judged { packets, allowed: packets - denied, denied, lines })
}
