//! TCP throughput by iperf3.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::netns::{Namespace, SHORT};
use crate::process::Running;

/// One TCP run.
#[derive(Clone, Debug)]
pub struct TcpReport {
    /// What the receiver got, Gb/s of payload.
    pub gbps: f64,
    /// Bytes of payload that the receiver got.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// The congestion control that the sender used.
    pub congestion_control: String,
}

/// How long or how much to send.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// Seconds.
    Seconds(u32),
    /// Bytes of payload.
    Bytes(u64),
}

/// One TCP stream from `client` to `server` at `address`; congestion control pinned to cubic.
///
/// # Errors
/// iperf3 is missing or fails (its own words), or used another congestion control.
pub fn tcp(
    client: &Namespace,
    server: &Namespace,
    address: IpAddr,
    extent: Extent,
) -> Result<TcpReport> {
    let address = address.to_string();
    let mut command = server.command("iperf3");
    command.args(["-s", "-1", "--forceflush", "-B", &address]);
    let mut listening = Running::start(&mut command)?;
    listening.wait_for("Server listening", SHORT)?;

    let mut command = client.command("iperf3");
    command.args(["-c", &address, "-C", "cubic", "-J", "--connect-timeout", "20000"]);
    let limit = match extent {
        Extent::Seconds(seconds) => {
            command.args(["-t", &seconds.to_string()]);
            Duration::from_secs(u64::from(seconds) + 40)
        }
        Extent::Bytes(bytes) => {
            command.args(["-n", &bytes.to_string()]);
            Duration::from_secs(60)
        }
    };
    let finished = Running::start(&mut command)?.finish(limit)?;
    parse(&finished.stdout)
}

/// The first port of streams that run together.
const TOGETHER_PORT: u16 = 5300;

/// A TCP stream at once from each of `sources` (`ADDRESS%DEVICE`) in `client` to `address` in
/// `server`; Gb/s that the receiver got of all.
///
/// # Errors
/// As [`tcp`].
pub fn tcp_together(
    client: &Namespace,
    server: &Namespace,
    address: IpAddr,
    sources: &[String],
    seconds: u32,
) -> Result<f64> {
    let (address, seconds) = (address.to_string(), seconds.to_string());
    let ports = (TOGETHER_PORT..).map(|it| it.to_string());
    let mut listening = Vec::new();
    for (port, _) in ports.clone().zip(sources) {
        let mut command = server.command("iperf3");
        command.args(["-s", "-1", "--forceflush", "-B", &address, "-p", &port]);
        listening.push(Running::start(&mut command)?);
    }
    for server in &mut listening {
        server.wait_for("Server listening", SHORT)?;
    }
    let mut running = Vec::new();
    for (port, source) in ports.zip(sources) {
        let mut command = client.command("iperf3");
        command.args(["-c", &address, "-C", "cubic", "-J", "--connect-timeout", "20000"]);
        command.args(["-p", &port, "-B", source, "-t", &seconds]);
        running.push(Running::start(&mut command)?);
    }
    let limit = Duration::from_secs(60);
    running.into_iter().map(|it| Ok(parse(&it.finish(limit)?.stdout)?.gbps)).sum()
}

/// Tries to connect where nothing answers; for a firewall to count.
///
/// # Errors
/// iperf3 is missing, or it connected.
pub fn tcp_refused(client: &Namespace, address: IpAddr) -> Result<()> {
    let mut command = client.command("iperf3");
    command.args(["-c", &address.to_string(), "--connect-timeout", "1500"]);
    let finished = Running::start(&mut command)?.finish(SHORT)?;
    if finished.status.success() {
        bail!("a connection that the firewall should stop came to be");
    }
    Ok(())
}

fn parse(said: &str) -> Result<TcpReport> {
    let report: Value = serde_json::from_str(said).context("iperf3 speaks JSON")?;
    if let Some(reason) = report["error"].as_str() {
        bail!("iperf3: {reason}");
    }
    let end = &report["end"];
    let received = &end["sum_received"];
    let rate = received["bits_per_second"].as_f64().context("iperf3 reports a rate")?;
    let congestion_control = end["sender_tcp_congestion"].as_str().unwrap_or("unknown").to_owned();
    if congestion_control != "cubic" {
        bail!("iperf3 used {congestion_control} where cubic was asked for");
    }
    Ok(TcpReport {
        gbps: rate / 1e9,
        bytes: received["bytes"].as_u64().unwrap_or(0),
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        congestion_control,
    })
}
