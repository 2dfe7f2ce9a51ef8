//! Traffic past the hosts' kernels as an experiment: who sees it, who stops it, who seals it.

mod guests;
mod suricata;

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::load::Meter;
use super::steps::Stage;
use crate::observe::{Capture, Captured, ESP, Firewall};
use crate::process;
use crate::strongswan;
use crate::topology::{GATEWAY_MAC, HOST_DEVICE, HOST_MAC, Lab, Side, WIRE_END_A, text_mac};
use crate::traffic::frames::planned;
use crate::traffic::{Kind, bypass, ping};

/// Enough of a frame to tell its kind, also in a tunnel.
const SNAP_LEN: u32 = 128;
/// A rate at which no observer loses frames.
const RATE_PER_SECOND: u32 = 1000;
/// Echo requests stand for what goes through the kernels; they are few, because each waits.
const PINGS_MAX: u32 = 100;

/// One kind of traffic from host A to host B.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    traffic: Traffic,
    /// Frames, at least.
    frames: u32,
}

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Traffic {
    /// ICMP echo, through the kernels: the comparison.
    Ping,
    RoceV2,
    RoceV1,
    TcpPrebuilt,
}

/// What the traffic itself reports.
struct Sent {
    /// Both directions, and of them arrived as sent.
    all: u64,
    intact: u64,
    /// By host A.
    by_a: u64,
    /// Against the firewall's rule, and of them stopped.
    tried: u64,
    stopped: u64,
}

impl Traffic {
    fn kind(self) -> Kind {
        match self {
            Traffic::Ping => Kind::Ping,
            Traffic::RoceV2 => Kind::RoceV2,
            Traffic::RoceV1 => Kind::RoceV1,
            Traffic::TcpPrebuilt => Kind::TcpPrebuilt,
        }
    }
}

impl Observe {
    pub(super) fn require(&self) -> Result<()> {
        ensure!((1..=100_000).contains(&self.frames), "observe: 1 to 100000 frames");
        process::require(&["tcpdump", "nft", "ping"])
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        f64::from(self.frames) / f64::from(RATE_PER_SECOND) + 8.0
    }

    pub(super) fn words(&self) -> String {
        format!(
            "Host A sends {} frames of the trial's kind ({PINGS_MAX} at most of ping), while \
             tcpdump listens on host A and on the wire, Suricata on host A where it is installed, \
             and an nftables rule on host B counts and \
             drops what its kernel sees of the kind; what host B receives is compared byte by byte",
            self.frames
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        if stage.guests().is_ok() {
            return guests::run(self, stage);
        }
        let kind = self.traffic.kind();
        let before = stage.gateway_received()?;
        let lab = stage.lab()?;
        let meter = Meter::start(lab)?;
        let listen = |name: &str, namespace, port| {
            Capture::start(namespace, port, &stage.raw.join(name), SNAP_LEN)
        };
        let host = listen("host-a.pcap", lab.host(Side::A), HOST_DEVICE)?;
        let wire = listen("wire.pcap", lab.wire(), WIRE_END_A)?;
        let suricata = suricata::Listening::start(lab, kind)?;
        let inner = stage.path.as_ref().is_some_and(|path| path.is_host_ipsec());
        let sent = match self.traffic {
            Traffic::Ping => self.ping(lab, inner)?,
            _ => self.past_the_kernel(lab)?,
        };
        let alerted = suricata.map(suricata::Listening::stop).transpose()?;
        let (host, wire) = (host.stop()?, wire.stop()?);
        let after = stage.gateway_received()?;
        let load = meter.finish();
        for (captured, place) in [(&host, "host A"), (&wire, "the wire")] {
            let missed = captured.dropped_by_kernel;
            ensure!(missed == 0, "tcpdump on {place} missed {missed} frames: no count is true");
        }
        // A gateway also receives what hosts ask for addresses: more than all is all.
        let weir = after.saturating_sub(before).min(sent.by_a);
        self.take(stage, kind, &sent, [&host, &wire], weir)?;
        if let Some(alerted) = alerted {
            let percent = 100.0 * alerted.min(sent.by_a) as f64 / sent.by_a as f64;
            stage.measured.values.insert("host_suricata".to_owned(), percent);
        }
        stage.measured.load = Some(load);
        Ok(())
    }

    fn take(
        &self,
        stage: &mut Stage<'_>,
        kind: Kind,
        sent: &Sent,
        [host, wire]: [&Captured; 2],
        weir: u64,
    ) -> Result<()> {
        let [host_mac, gateway_mac] = [HOST_MAC[0], GATEWAY_MAC[0]].map(text_mac);
        let clear = format!("({}) and ether src {host_mac}", kind.capture_filter());
        let sealed = format!("({ESP}) and (ether src {host_mac} or ether src {gateway_mac})");
        let (saw, in_clear) = (host.count(&clear)?, wire.count(&clear)?);
        let sealed = wire.count(&sealed)?.min(sent.by_a);
        let counts = json!({
            "sent": sent.all, "intact": sent.intact, "sent_by_host_a": sent.by_a,
            "host_a_tcpdump": saw, "wire_in_clear": in_clear, "wire_sealed": sealed,
            "host_b_firewall_tried": sent.tried, "host_b_firewall_stopped": sent.stopped,
            "gateway_a_received": weir,
        });
        fs::write(stage.raw.join("counts.json"), format!("{counts:#}\n"))?;
        ensure!(sent.by_a > 0 && sent.all > 0 && sent.tried > 0, "nothing was sent");
        let shares = [
            ("arrived", sent.intact, sent.all),
            ("host_tcpdump", saw, sent.by_a),
            ("host_firewall", sent.stopped, sent.tried),
            ("weir", weir, sent.by_a),
            ("wire_clear", in_clear, sent.by_a),
            ("wire_sealed", sealed, sent.by_a),
        ];
        for (name, part, whole) in shares {
            let percent = 100.0 * part as f64 / whole as f64;
            stage.measured.values.insert(name.to_owned(), percent);
        }
        Ok(())
    }

    /// Once to arrive; before, once against the firewall, which would stop it.
    fn ping(&self, lab: &Lab, inner: bool) -> Result<Sent> {
        let target = match inner {
            true => strongswan::INNER_V4[1],
            false => lab.host_v4(Side::B),
        };
        let (host, target) = (lab.host(Side::A), target.to_string());
        let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE)?;
        let stopped = ping::ping(host, &target, 5, 56)?;
        let (tried, stopped) = (stopped.sent, firewall.stopped(Kind::Ping)?);
        drop(firewall);
        let report = ping::ping(host, &target, self.frames.min(PINGS_MAX), 56)?;
        let (all, intact) = (report.sent, report.answered);
        // The captures hold both rounds.
        Ok(Sent { all, intact, by_a: report.sent + tried, tried, stopped })
    }

    fn past_the_kernel(&self, lab: &Lab) -> Result<Sent> {
        let kind = self.traffic.kind();
        let frames = planned(kind, self.frames as usize)?;
        let by_a = frames.iter().filter(|frame| frame.from == Side::A).count() as u64;
        let firewall = Firewall::raise(lab.host(Side::B), HOST_DEVICE)?;
        let exchange = bypass::exchange(lab, &frames, RATE_PER_SECOND)?;
        let stopped = firewall.stopped(kind).context("the firewall's count")?;
        ensure!(exchange.refused == 0, "a host's port refused {} frames", exchange.refused);
        let (all, intact) = (exchange.sent, exchange.intact.saturating_sub(exchange.altered));
        Ok(Sent { all, intact, by_a, tried: by_a, stopped })
    }
}
