//! An attack, or its benign twin, on a host behind a gateway that runs the shipped rules: when it
//! is told, what of it is stopped, what a connection beside it keeps.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use serde_json::json;

use super::steps::Stage;
use crate::eve::alerts_since;
use crate::process;
use crate::topology::{HOST_DEVICE, Lab, Side};
use crate::traffic::bypass;
use crate::traffic::frames::Planned;
use crate::traffic::hostile::{Campaign, Hostile};
use crate::traffic::iperf::{self, Extent, TcpReport};

/// A port whose other end is down.
const SINK: &str = "weir-sink";

/// One attack.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// As `weir lab send --kind attack-NAME` calls it.
    kind: String,
    twin: Twin,
    /// How long.
    seconds: u32,
    /// Addresses that a flood comes from; 0: another each time.
    sources: u32,
    /// Frames a second, by kind.
    rates: BTreeMap<String, u32>,
    /// Of a flood's rate, what its benign twin has.
    twin_share: f64,
}

/// The attack, or what only looks like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Twin {
    Attack,
    Benign,
}

impl Attack {
    fn hostile(&self) -> Result<Hostile> {
        Hostile::from_name(&format!("attack-{}", self.kind)).map(|(hostile, _)| hostile)
    }

    /// Frames a second: a flood's twin is the same, slowly.
    fn rate(&self) -> Result<u32> {
        let rate = self.rates.get(&self.kind).copied();
        let rate = rate.with_context(|| format!("rates: none is said for {}", self.kind))?;
        let is_slow = self.twin == Twin::Benign && self.hostile()?.is_flood();
        Ok(if is_slow { (f64::from(rate) * self.twin_share) as u32 } else { rate })
    }

    pub(super) fn require(&self) -> Result<()> {
        ensure!((2..=600).contains(&self.seconds), "attack: 2 to 600 seconds");
        ensure!(self.rate()? > 0, "attack: {} has a rate of zero", self.kind);
        process::require(&["iperf3"])
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        2.0 * f64::from(self.seconds) + 6.0
    }

    pub(super) fn words(&self) -> String {
        format!(
            "The attack of the trial, or its benign twin, is sent by host B past its kernel for \
             {} s; beside it host B sends host A one TCP stream. What the gateway of host A drops \
             by rules is counted, and the time of its first alert behind the first frame. Before \
             that, the same stream runs while the same generator's frames are dropped at a port \
             of their own: what the stream then lost more is collateral",
            self.seconds
        )
    }

    fn campaign(&self) -> Result<Campaign> {
        let (hostile, rate) = (self.hostile()?, self.rate()?);
        // RDMA knows whom it talks to: senders that change are refused by the responder.
        let is_of_ip = matches!(
            hostile,
            Hostile::SynFlood | Hostile::UdpFlood | Hostile::IcmpFlood | Hostile::DnsFlood
        );
        let sources = if is_of_ip { self.sources } else { 1 };
        let is_benign = self.twin == Twin::Benign;
        let count = (rate * self.seconds) as usize;
        Ok(Campaign { hostile, is_benign, count, sources, seed: 17 })
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let frames = self.campaign()?.frames();
        let lab = stage.lab()?;
        let attacker = frames.iter().filter(|frame| frame.from == Side::B).count() as f64;
        let alone = self.alone(lab, &frames)?;
        let before = stage.gateway_dropped_by_rules()?;
        let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let meter = stage.meter()?;
        let beside = self.beside(lab, &frames)?;
        let load = meter.finish();
        let dropped = stage.gateway_dropped_by_rules()?.saturating_sub(before);
        // The last alerts are on their way to the file.
        crate::interrupt::sleep(Duration::from_millis(1500))?;
        let delays = alerts_since(&lab.folder().join("eve.json"), begun)?;
        let raw = json!({
            "frames": frames.len(), "of_attacker": attacker, "rate": self.rate()?,
            "dropped": dropped, "alerts_ms": delays, "beside_gbps": beside.gbps,
            "beside_generator_alone_gbps": alone.gbps, "retransmits": beside.retransmits,
        });
        fs::write(stage.raw.join("counts.json"), format!("{raw:#}\n"))?;
        ensure!(alone.gbps > 0.0, "the stream beside the generator carried nothing");
        let values = &mut stage.measured.values;
        values.insert("alerts".to_owned(), delays.len() as f64);
        values.insert("blocked".to_owned(), 100.0 * dropped as f64 / attacker);
        values.insert("beside".to_owned(), beside.gbps);
        values.insert("collateral".to_owned(), 100.0 * (1.0 - beside.gbps / alone.gbps));
        if self.twin == Twin::Benign {
            values.insert("false_alarms".to_owned(), delays.len() as f64);
        } else if let Some(first) = delays.first() {
            values.insert("delay".to_owned(), *first);
        }
        stage.measured.load = Some(load);
        Ok(())
    }

    /// The stream beside the attack.
    fn beside(&self, lab: &Lab, frames: &[Planned]) -> Result<TcpReport> {
        let (is_flood, rate) = (self.hostile()?.is_flood(), self.rate()?);
        together(lab, self.seconds, || match is_flood {
            true => bypass::pour(lab, Side::B, HOST_DEVICE, frames, rate).map(drop),
            false => bypass::exchange(lab, frames, rate).map(drop),
        })
    }

    /// The stream beside the generator, whose frames go nowhere: what it costs the processors.
    fn alone(&self, lab: &Lab, frames: &[Planned]) -> Result<TcpReport> {
        let host = lab.host(Side::B);
        host.ip(&format!("link add {SINK} type veth peer name {SINK}p\nlink set {SINK} up\n"))?;
        let rate = self.rate()?;
        let report = together(lab, self.seconds, || {
            bypass::pour(lab, Side::B, SINK, frames, rate).map(drop)
        });
        host.ip(&format!("link del {SINK}\n"))?;
        report
    }
}

/// One TCP stream from host B to host A while `act` acts on a thread of its own.
fn together(lab: &Lab, seconds: u32, act: impl FnOnce() -> Result<()> + Send) -> Result<TcpReport> {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        let (client, server) = (lab.host(Side::B), lab.host(Side::A));
        let address = lab.host_v4(Side::A).into();
        let report = iperf::tcp(client, server, address, Extent::Seconds(seconds));
        let ended = acting.join().map_err(|_| anyhow!("the generator's thread ended early"))?;
        ended.and(report)
    })
}
