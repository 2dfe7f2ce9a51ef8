//! An attack, or its benign twin, on a host behind a gateway that runs the shipped rules: when it
//! is told, what of it is stopped, what a connection beside it keeps.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, ensure};
use serde::Deserialize;
use serde_json::json;

use super::steps::Stage;
use crate::eve::alerts_since;
use crate::process;
use crate::topology::{HOST_DEVICE, Side};
use crate::traffic::bypass;
use crate::traffic::hostile::{Campaign, Hostile};
use crate::traffic::iperf::{self, Extent};

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
}

/// The attack, or what only looks like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Twin {
    Attack,
    Benign,
}

/// Frames a second of an attack.
fn rate(hostile: Hostile) -> u32 {
    use Hostile::*;
    match hostile {
        SynFlood => 50_000,
        ReadFlood | WriteFlood | CnpFlood | UdpFlood => 60_000,
        IcmpFlood | DnsFlood => 20_000,
        StateSaturation | SideChannel => 5_000,
        CmFlood => 5_000,
        QpExhaustion => 500,
        Scan => 200,
        _ => 2_000,
    }
}

impl Attack {
    fn hostile(&self) -> Result<Hostile> {
        Hostile::from_name(&format!("attack-{}", self.kind)).map(|(hostile, _)| hostile)
    }

    /// Frames a second: a flood's twin is the same, slowly.
    fn rate(&self) -> Result<u32> {
        let hostile = self.hostile()?;
        let is_slow = self.twin == Twin::Benign && hostile.is_flood();
        Ok(rate(hostile) / if is_slow { 100 } else { 1 })
    }

    pub(super) fn require(&self) -> Result<()> {
        ensure!((2..=600).contains(&self.seconds), "attack: 2 to 600 seconds");
        self.hostile()?;
        process::require(&["iperf3"])
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        f64::from(self.seconds) + 5.0
    }

    pub(super) fn words(&self) -> String {
        format!(
            "The attack of the trial, or its benign twin, is sent by host B past its kernel for \
             {} s; beside it host B sends host A one TCP stream. What the gateway of host A drops \
             by rules is counted, and the time of its first alert behind the first frame",
            self.seconds
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let (hostile, rate) = (self.hostile()?, self.rate()?);
        let count = (rate * self.seconds) as usize;
        let is_benign = self.twin == Twin::Benign;
        // RDMA knows whom it talks to: senders that change are refused by the responder.
        let is_of_ip = matches!(
            hostile,
            Hostile::SynFlood | Hostile::UdpFlood | Hostile::IcmpFlood | Hostile::DnsFlood
        );
        let sources = if is_of_ip { self.sources } else { 1 };
        let campaign = Campaign { hostile, is_benign, count, sources, seed: 17 };
        let frames = campaign.frames();
        let lab = stage.lab()?;
        let attacker = frames.iter().filter(|frame| frame.from == Side::B).count() as f64;
        let before = stage.gateway_dropped_by_rules()?;
        let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let beside = std::thread::scope(|scope| {
            let attack = scope.spawn(|| match hostile.is_flood() {
                true => bypass::pour(lab, Side::B, HOST_DEVICE, &frames, rate).map(drop),
                false => bypass::exchange(lab, &frames, rate).map(drop),
            });
            let (client, server) = (lab.host(Side::B), lab.host(Side::A));
            let address = lab.host_v4(Side::A).into();
            let report = iperf::tcp(client, server, address, Extent::Seconds(self.seconds));
            let ended = attack.join().map_err(|_| anyhow!("the attack's thread ended early"))?;
            ended.and(report)
        })?;
        let dropped = stage.gateway_dropped_by_rules()?.saturating_sub(before);
        // The last alerts are on their way to the file.
        crate::interrupt::sleep(Duration::from_millis(1500))?;
        let delays = alerts_since(&lab.folder().join("eve.json"), begun)?;
        let raw = json!({
            "frames": frames.len(), "of_attacker": attacker, "rate": rate, "dropped": dropped,
            "alerts_ms": delays, "beside_gbps": beside.gbps, "retransmits": beside.retransmits,
        });
        fs::write(stage.raw.join("counts.json"), format!("{raw:#}\n"))?;
        let values = &mut stage.measured.values;
        values.insert("alerts".to_owned(), delays.len() as f64);
        values.insert("blocked".to_owned(), 100.0 * dropped as f64 / attacker);
        values.insert("beside".to_owned(), beside.gbps);
        if let Some(first) = delays.first() {
            values.insert("delay".to_owned(), *first);
        }
        Ok(())
    }
}
