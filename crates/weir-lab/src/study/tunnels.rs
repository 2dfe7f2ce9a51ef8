//! Many tunnels at once, as an experiment: what goes through each, what the machine's processors
//! and the endpoint's memory do meanwhile, and whether packets are cut on the wire.
//!
//! ```text
//!   host A ---- gateway A ==== wire ==== gateway B ---- host B
//!   endpoint    or endpoint here          clients (WireGuard, OpenVPN), or the other Weir of
//!                                         ESP tunnels whose streams host B sends
//! ```

mod ends;
mod flows;
mod swarm;
mod watch;

use std::fs;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::json;

use self::ends::Ends;
use self::watch::Watch;
use super::load::Meter;
use super::steps::Stage;
use crate::topology::{Lab, Plan};
use crate::{interrupt, process, stats, wireguard};

/// Tunnels of one trial, at most.
const TUNNELS_MAX: u32 = 1000;

/// Tunnels of one kind, a TCP stream through each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnels {
    by: By,
    tunnels: u32,
    /// Inside the tunnels, bytes.
    mtu: u32,
    seconds: u32,
    /// Of the wire, bytes.
    wire_mtu: u32,
    /// What a tunnel must carry to be counted as keeping it, Mb/s.
    wanted_mbps: f64,
    /// Above so many tunnels, one process sends all streams.
    one_process_above: u32,
    #[serde(default)]
    endpoint: Endpoint,
    #[serde(default)]
    compression: Compression,
}

/// Whose tunnels, and what seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    #[serde(rename = "openvpn-aes-256-cbc")]
    OpenVpnAes256Cbc,
    #[serde(rename = "openvpn-aes-128-cbc")]
    OpenVpnAes128Cbc,
    #[serde(rename = "openvpn-none")]
    OpenVpnNone,
    /// ESP between two Weir gateways, an association a tunnel.
    #[serde(rename = "weir-aes-256-gcm")]
    WeirEsp,
    /// wireguard-go's clients, which end in Weir.
    #[serde(rename = "weir-chacha20")]
    WeirWireguard,
    /// wireguard-go's clients, which end in wireguard-go.
    #[serde(rename = "wireguard-go-chacha20")]
    WireguardGo,
}

/// Where the tunnels end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Endpoint {
    #[default]
    Gateway,
    Host,
}

/// Of OpenVPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Compression {
    #[default]
    #[serde(rename = "off")]
    Off,
    #[serde(rename = "lz4-v2")]
    Lz4V2,
}

impl By {
    /// OpenVPN's name of what seals, where it is OpenVPN.
    fn openvpn_cipher(self) -> Option<&'static str> {
        match self {
            By::OpenVpnAes256Cbc => Some("AES-256-CBC"),
            By::OpenVpnAes128Cbc => Some("AES-128-CBC"),
            By::OpenVpnNone => Some("none"),
            By::WeirEsp | By::WeirWireguard | By::WireguardGo => None,
        }
    }
}

impl Tunnels {
    pub(super) fn require(&self) -> Result<()> {
        let Self { by, tunnels, mtu, seconds, wire_mtu, endpoint, compression, .. } = self;
        let most = self.one_process_above;
        ensure!((1..=TUNNELS_MAX).contains(tunnels), "tunnels: 1 to {TUNNELS_MAX}");
        ensure!((1280..=65535).contains(mtu), "tunnels: an MTU of 1280 to 65535");
        ensure!((2..=3600).contains(seconds), "tunnels: 2 to 3600 seconds");
        ensure!((1500..=9000).contains(wire_mtu), "tunnels: a wire_mtu of 1500 to 9000");
        ensure!((1..=64).contains(&most), "tunnels: one_process_above 1 to 64");
        let is_openvpn = by.openvpn_cipher().is_some();
        ensure!(
            is_openvpn || *compression == Compression::Off,
            "only OpenVPN compresses: exclude it for others"
        );
        let ends_in_weir = matches!(by, By::WeirEsp | By::WeirWireguard);
        ensure!(
            !ends_in_weir || *endpoint == Endpoint::Gateway,
            "Weir is a gateway: exclude the host as its endpoint"
        );
        ensure!(
            !is_openvpn || *tunnels <= most,
            "{most} tunnels of {by:?} at most: each has a process at both ends"
        );
        ensure!(
            mtu <= wire_mtu || is_openvpn,
            "only OpenVPN takes packets larger than the wire's MTU of {wire_mtu}: exclude it"
        );
        process::require(&["iperf3", "tc", "ping"])?;
        match by {
            By::WeirEsp => Ok(()),
            By::WeirWireguard | By::WireguardGo => {
                wireguard::program()?;
                process::require(&["wg"])
            }
            _ => process::require(&["openvpn"]),
        }
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        let each = if self.by == By::WeirEsp { 0.01 } else { 0.4 };
        f64::from(self.seconds) + 6.0 + each * f64::from(self.tunnels)
    }

    pub(super) fn words(&self) -> String {
        format!(
            "The trial's tunnels, and for {} s a TCP stream (cubic) through each, all at once: by \
             iperf3, a process a stream. Above {} tunnels one process simulates all \
             clients: of ESP with TCP streams, of WireGuard with handshakes of their own and UDP \
             of at most 55 Mb/s each. Each second at the receiver is a sample. Beside \
             them: busy processors, memory of the endpoint's programs, and frames on the wire that \
             are fragments, by tc's counters",
            self.seconds, self.one_process_above
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let host_mtu = if self.by == By::WeirEsp { self.mtu } else { self.wire_mtu };
        let plan = Plan { host_mtu, wire_mtu: self.wire_mtu, ..Plan::default() };
        stage.build_lab(plan)?;
        let (program, raw) = (stage.program, stage.raw);
        let (lab, tick) = stage.lab_and_tick()?;
        let mut ends = Ends::start(self, lab, program)?;
        ends.wait_up(lab)?;
        let wire = watch::Wire::count(lab)?;
        let mut meter = Meter::start(lab)?;
        let mut watch = Watch::begin(ends.endpoint_processes());
        let streams = flows::run(self, lab, &mut ends, raw, &mut |elapsed| {
            meter.poll();
            watch.poll();
            tick((elapsed / f64::from(self.seconds)).min(1.0));
            interrupt::check()
        });
        let load = meter.finish();
        let (frames, fragments) = wire.counts()?;
        ends.save_words(raw)?;
        let streams = streams?;
        self.take(stage, &streams, &watch, (frames, fragments))?;
        stage.measured.load = Some(load);
        Ok(())
    }

    fn take(
        &self,
        stage: &mut Stage<'_>,
        streams: &[Vec<f64>],
        watch: &Watch,
        (frames, fragments): (u64, u64),
    ) -> Result<()> {
        let means: Vec<f64> = streams.iter().map(|it| stats::mean(it) * 1000.0).collect();
        let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
        let at = |second: usize| streams.iter().filter_map(|it| it.get(second)).sum::<f64>();
        let together: Vec<f64> = (0..longest).map(at).collect();
        let counts = json!({
            "mbps_by_tunnel": means, "frames_on_the_wire": frames, "of_them_fragments": fragments,
        });
        fs::write(stage.raw.join("counts.json"), format!("{counts:#}\n"))?;
        ensure!(means.len() == self.tunnels as usize, "{} tunnels had a stream", means.len());
        ensure!(means.iter().all(|it| it.is_finite()), "a tunnel has no whole second");
        ensure!(means.iter().any(|it| *it > 0.0), "nothing arrived");
        ensure!(frames > 0, "nothing was on the wire");
        let keeping = means.iter().filter(|it| **it >= self.wanted_mbps).count();
        let values = [
            ("gbps", stats::mean(&together)),
            ("each", stats::mean(&means)),
            ("slowest", means.iter().copied().fold(f64::INFINITY, f64::min)),
            ("keeping", keeping as f64),
            ("fragments", 100.0 * fragments as f64 / frames as f64),
            ("busy", stats::mean(&watch.busy())),
            ("memory", watch.memory_mib.iter().copied().fold(0.0, f64::max)),
        ];
        for (name, value) in values {
            stage.measured.values.insert(name.to_owned(), value);
        }
        let samples = &mut stage.measured.samples;
        samples.insert("gbps".to_owned(), together);
        samples.insert("memory".to_owned(), watch.memory_mib.clone());
        samples.insert("busy".to_owned(), watch.busy());
        for (number, processor) in watch.processors.iter().enumerate() {
            let mean = stats::mean(processor);
            stage.measured.values.insert(format!("processor_{number}"), mean);
            samples.insert(format!("processor_{number}"), processor.clone());
        }
        Ok(())
    }

    /// Whether all clients of WireGuard are one process.
    fn is_swarm(&self) -> bool {
        let is_wireguard = matches!(self.by, By::WeirWireguard | By::WireguardGo);
        is_wireguard && self.tunnels > self.one_process_above
    }

    /// Where the servers' streams arrive.
    fn target(&self, lab: &Lab, number: usize) -> std::net::Ipv4Addr {
        match self.by {
            By::WeirEsp => ends::behind_weir(crate::topology::Side::A, number),
            _ => lab.host_v4(crate::topology::Side::A),
        }
    }
}
