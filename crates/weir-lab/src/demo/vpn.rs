//! A VPN client of a gateway: wireguard-go with the file that `weir vpn add` printed, in a lab of
//! its own.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::Options;
use crate::interrupt;
use crate::observe::Capture;
use crate::topology::{Lab, Plan, Side, WIRE_END_A};
use crate::traffic::iperf::{self, Extent};
use crate::traffic::ping;
use crate::vpn::{Client, Concentrator, PORT};

/// Echo requests that are counted.
const PINGS: u32 = 20;
/// Seconds of the throughput run.
const SECONDS: u32 = 3;
/// Enough of a frame for all headers.
const SNAP_LEN: u32 = 128;
/// A handshake and the neighbours' answers take no longer.
const START: Duration = Duration::from_secs(20);

/// What a client of the gateway saw.
#[derive(Debug, Default, Serialize)]
pub struct VpnReport {
    /// Its name.
    pub client: String,
    /// Its address inside the tunnel.
    pub address: String,
    /// Echo requests to the host behind the gateway, and how many were answered.
    pub pings: u64,
    /// Of them, answered.
    pub answered: u64,
    /// TCP from the client to the host, Gb/s of payload.
    pub gbps: f64,
    /// Packets that the gateway opened for the client, and sealed to it.
    pub opened_packets: u64,
    /// See above.
    pub sealed_packets: u64,
    /// Frames of the tunnel on the wire.
    pub wire_sealed: u64,
    /// IP packets on the wire in clear.
    pub wire_in_clear: u64,
}

pub(super) fn run(options: &Options) -> Result<VpnReport> {
    const NAME: &str = "laptop";
    let plan = Plan { host_mtu: options.mtu, wire_mtu: options.mtu, ..Plan::default() };
    let lab = Lab::build(plan)?;
    let gateway = Concentrator::start(&lab, &options.program, "")?;
    let wire = Capture::start(lab.wire(), WIRE_END_A, &lab.folder().join("vpn.pcap"), SNAP_LEN)?;
    let client = Client::start(&lab, 0, &gateway.add(NAME)?)?;
    let (from, host) = (Client::namespace(&lab), lab.host_v4(Side::A));
    interrupt::until("answer through the VPN", START, || {
        Ok(ping::ping(from, &host.to_string(), 1, 56)?.answered > 0)
    })?;
    let pings = ping::ping_all(from, &host.to_string(), PINGS, 56)?;
    let tcp = iperf::tcp(from, lab.host(Side::A), IpAddr::V4(host), Extent::Seconds(SECONDS))?;
    let wire = wire.stop()?;
    let status = gateway.status()?;
    let count = |name: &str| {
        let path = format!("/pairs/0/peers/0/{name}");
        status.pointer(&path).and_then(Value::as_u64).unwrap_or_default()
    };
    let sealed = format!("udp port {PORT}");
    Ok(VpnReport {
        client: NAME.to_owned(),
        address: client.address().to_owned(),
        pings: pings.sent,
        answered: pings.answered,
        gbps: tcp.gbps,
        opened_packets: count("opened_packets"),
        sealed_packets: count("sealed_packets"),
        wire_sealed: wire.count(&sealed)?,
        wire_in_clear: wire.count(&format!("ip and not ({sealed})"))?,
    })
}

impl VpnReport {
    /// What is not as it must be.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.answered != self.pings {
            let Self { answered, pings, .. } = self;
            failures.push(format!("VPN client: {answered} of {pings} pings were answered"));
        }
        if self.wire_in_clear > 0 {
            failures.push(format!("VPN client: {} packets in clear", self.wire_in_clear));
        }
        if self.opened_packets == 0 || self.wire_sealed == 0 {
            failures.push("VPN client: nothing went through the tunnel".to_owned());
        }
        failures
    }
}
