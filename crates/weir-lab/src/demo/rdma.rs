//! The demo with real RDMA: two Soft-RoCE guests run perftest and rping through sealing gateways.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{DemoReport, Options, SNAP_LEN, WeirSaw};
use crate::gateways::{Gateways, Protection, Setup};
use crate::observe::{Capture, ESP, gateways_neighbour};
use crate::topology::{HOST_V4, HOST_V6, Hosts, Lab, Plan, Side, WIRE_END_A};
use crate::vm::{Guest, GuestKernel, JobResult};

/// A run of any of the tools takes seconds; emulated machines are slow when the host is busy.
const RUN: Duration = Duration::from_secs(90);

/// A server whose client failed ends by itself within this, or not at all.
const ORPHAN: Duration = Duration::from_secs(10);
/// perftest measures the clock's rate before it reports, which an emulated CPU sometimes disturbs;
/// the transfer itself is done by then.
const UNCALIBRATED: &str = "Correlation coefficient";
/// How often an uncalibrated run is tried.
const ATTEMPTS: usize = 4;

/// Real RDMA through the gateways.
#[derive(Debug, Serialize)]
pub struct RdmaReport {
    /// The guests' kernel.
    pub kernel: String,
    /// One entry a tool.
    pub runs: Vec<RdmaRun>,
}

/// One tool's run between the guests.
#[derive(Debug, Serialize)]
pub struct RdmaRun {
    /// What ran in the guests, without the address.
    pub command: String,
    /// Whether both ends ended with success, by their own verdict.
    pub succeeded: bool,
    /// Megabytes a second, where the tool says so.
    pub megabytes_per_second: Option<f64>,
    /// ESP frames on the wire, by tcpdump.
    pub esp_frames: u64,
    /// Frames of the hosts in clear on the wire, by tcpdump.
    pub in_clear: u64,
    /// What gateway A saw of it.
    pub weir: WeirSaw,
}

/// What runs in the guests: the server's arguments; the client's are the same and the address.
struct Tool {
    server: String,
    client: String,
}

pub(super) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<DemoReport> {
    let kernel = GuestKernel::find()?;
    let plan = Plan {
        hosts: Hosts::Guests,
        host_mtu: options.mtu,
        wire_mtu: options.mtu,
        ..Plan::default()
    };
    let mut lab = Lab::build(plan)?;
    progress(&format!("booting two guests with Soft-RoCE (Linux {}, no KVM)", kernel.version()));
    let mut a = Guest::boot(&lab, Side::A, &kernel)?;
    let mut b = Guest::boot(&lab, Side::B, &kernel)?;
    let setup = Setup {
        driver: options.driver.clone(),
        outlives_lab: options.keep,
        tables: if options.keep { super::screen::tables() } else { String::new() },
        ..Setup::new(&options.program, Protection::Sealed)
    };
    let gateways = Gateways::start(&lab, &setup)?;
    a.wait_ready()?;
    b.wait_ready()?;
    let mut runs = Vec::new();
    for tool in tools() {
        progress(&format!("gateways seal: {} between the guests", tool.server));
        runs.push(observe(&lab, &gateways, &mut a, &mut b, &tool)?);
    }
    let failures = runs.iter().flat_map(failures).collect();
    let look_around = match options.keep {
        true => Some(super::leave_standing(&mut lab, gateways, options)?),
        false => None,
    };
    let rdma = Some(RdmaReport { kernel: kernel.version().to_owned(), runs });
    let kinds = Vec::new();
    Ok(DemoReport { kinds, rdma, failures, look_around, ..DemoReport::default() })
}

fn tools() -> Vec<Tool> {
    let (v4, v6) = (HOST_V4[1], HOST_V6[1]);
    let perftest = |name: &str| {
        let server = format!("{name} -d rxe0 -x 1 -m 1024 -n 300");
        Tool { client: format!("{server} {v4}"), server }
    };
    let rping = |address: &str| Tool {
        server: format!("rping -s -v -C 10 -a {address}"),
        client: format!("rping -c -v -C 10 -a {address}"),
    };
    let mut tools: Vec<Tool> =
        ["ib_write_bw", "ib_send_bw", "ib_read_bw"].into_iter().map(perftest).collect();
    tools.extend([rping(&v4.to_string()), rping(&v6.to_string())]);
    tools
}

fn observe(
    lab: &Lab,
    gateways: &Gateways,
    a: &mut Guest,
    b: &mut Guest,
    tool: &Tool,
) -> Result<RdmaRun> {
    let before = [gateways.status(Side::A)?, gateways.status(Side::B)?];
    let file = lab.folder().join("wire.pcap");
    let capture = Capture::start(lab.wire(), WIRE_END_A, &file, SNAP_LEN)?;
    let (mut client, mut server) = attempt(a, b, tool)?;
    for _ in 1..ATTEMPTS {
        if ![&client, &server].iter().any(|end| end.output.contains(UNCALIBRATED)) {
            break;
        }
        (client, server) = attempt(a, b, tool)?;
    }
    let captured = capture.stop()?;
    let after = [gateways.status(Side::A)?, gateways.status(Side::B)?];
    let clear = format!("not ({ESP}) and not ({})", gateways_neighbour());
    let succeeded = client.code == 0 && server.code == 0;
    if !succeeded {
        eprintln!("{}: {}{}", tool.client, client.output.trim(), server.output.trim());
    }
    Ok(RdmaRun {
        command: tool.server.clone(),
        succeeded,
        megabytes_per_second: bandwidth(&client.output),
        esp_frames: captured.count(ESP)?,
        in_clear: captured.count(&clear).context("counting the wire's frames")?,
        weir: WeirSaw::between(&before, &after),
    })
}

/// Runs the tool once: how the client ended, and the server.
fn attempt(a: &mut Guest, b: &mut Guest, tool: &Tool) -> Result<(JobResult, JobResult)> {
    let server = b.start(&tool.server)?;
    b.wait_for_rdma_server()?;
    let client = a.run(&tool.client, RUN)?;
    // One whose client failed may wait for another for ever.
    let limit = if client.code == 0 { RUN } else { ORPHAN };
    let server = b.finish_or_stop(server, limit)?;
    Ok((client, server))
}

/// The average bandwidth of perftest's one result line: bytes, iterations, peak, average, rate.
fn bandwidth(said: &str) -> Option<f64> {
    said.lines().find_map(|line| {
        let numbers: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() == 5).map(|numbers| numbers[3])
    })
}

fn failures(run: &RdmaRun) -> Vec<String> {
    let mut failures = Vec::new();
    if !run.succeeded {
        failures.push(format!("{}: it failed in the guests", run.command));
    }
    if run.in_clear > 0 {
        failures.push(format!("{}: {} frames crossed in clear", run.command, run.in_clear));
    }
    if run.esp_frames == 0 {
        failures.push(format!("{}: the wire carried no ESP", run.command));
    }
    if run.weir.rdma_packets == 0 || run.weir.icrc_bad > 0 {
        failures.push(format!("{}: Weir saw {:?}", run.command, run.weir));
    }
    failures
}
