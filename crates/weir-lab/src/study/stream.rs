//! TCP streams by iperf3 as an experiment: every second of every run is kept, at the receiver.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::load::Meter;
use super::steps::Stage;
use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};
use crate::topology::{HOST_V4, Side};
use crate::{interrupt, stats, strongswan};

/// iperf3's port.
const PORT: u16 = 5201;
/// What an emulated machine may take more.
const GUEST_PATIENCE: Duration = Duration::from_secs(60);
/// A last interval shorter than this share of a second is no sample.
const WHOLE: f64 = 0.9;

/// TCP streams from host A to host B.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iperf3 {
    /// How long they run; as many samples.
    pub(super) seconds: u32,
    /// First samples that do not count.
    #[serde(default)]
    omit: u32,
    /// How many at once.
    #[serde(default = "one")]
    streams: u32,
    /// Largest segment of TCP, bytes; absent: as the MTU allows.
    mss: Option<u32>,
    /// `a-to-b` or `b-to-a`.
    #[serde(default)]
    direction: Direction,
    /// What iperf3 may take beyond its time before it counts as hung, seconds.
    #[serde(default = "thirty")]
    patience: u32,
}

/// Who sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    #[default]
    AToB,
    BToA,
}

fn one() -> u32 {
    1
}

fn thirty() -> u32 {
    30
}

impl Iperf3 {
    pub(super) fn require(&self) -> Result<()> {
        ensure!(self.seconds > self.omit, "iperf3: no sample is left of {} s", self.seconds);
        ensure!(self.seconds <= 3600, "iperf3: {} s is more than an hour", self.seconds);
        ensure!((1..=128).contains(&self.streams), "iperf3: 1 to 128 streams");
        process::require(&["iperf3"])
    }

    pub(super) fn words(&self) -> String {
        let Self { seconds, omit, streams, .. } = self;
        format!(
            "iperf3 sends TCP (cubic) for {seconds} s over {streams} stream(s); each second at the \
             receiver is a sample, the first {omit} are dropped"
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let (client, server) = match self.direction {
            Direction::AToB => (Side::A, Side::B),
            Direction::BToA => (Side::B, Side::A),
        };
        if stage.guests().is_ok() {
            return self.run_in_guests(stage, client, server);
        }
        let lab = stage.lab()?;
        let inner = stage.path.as_ref().is_some_and(|path| path.is_host_ipsec());
        let address = match inner {
            true => strongswan::INNER_V4[server.index()],
            false => lab.host_v4(server),
        };
        let address = address.to_string();
        let mut listening = listen(lab.host(server), &address)?;
        let mut meter = stage.meter()?;
        let mut sending = Running::start(&mut self.client(lab.host(client), &address))?;
        let status = wait(self, &mut sending, &mut meter, stage.tick);
        let client_said = sending.stdout();
        // A server whose client failed waits for ever.
        let server_ended = status.is_ok()
            && interrupt::until("end of iperf3's server", SHORT, || Ok(!listening.is_running()?))
                .is_ok();
        fs::write(stage.raw.join("iperf3-sender.json"), &client_said)?;
        fs::write(stage.raw.join("iperf3-receiver.json"), listening.stdout())?;
        fs::write(stage.raw.join("iperf3-errors.txt"), sending.stderr() + &listening.stderr())?;
        status?;
        sent_by_cubic(&client_said)?;
        ensure!(server_ended, "iperf3's server did not end with its client");
        self.take(stage, &client_said, &listening.stdout())?;
        stage.measured.load = Some(meter.finish());
        Ok(())
    }

    fn take(&self, stage: &mut Stage<'_>, client_said: &str, server_said: &str) -> Result<()> {
        let samples = self.samples(server_said)?;
        let counted = &samples[self.omit as usize..];
        stage.measured.values.insert("gbps".to_owned(), stats::mean(counted));
        stage.measured.values.insert("retransmits".to_owned(), retransmits(client_said)?);
        stage.measured.samples.insert("gbps".to_owned(), counted.to_vec());
        Ok(())
    }

    /// Between emulated machines: good for ratios of what their kernels do, not for rates.
    fn run_in_guests(&self, stage: &mut Stage<'_>, client: Side, server: Side) -> Result<()> {
        let meter = stage.meter()?;
        let raw = stage.raw.to_owned();
        let seconds = Duration::from_secs(u64::from(self.seconds));
        let limit = seconds + Duration::from_secs(u64::from(self.patience)) + GUEST_PATIENCE;
        let guests = stage.guests()?;
        let serving = guests[server.index()].start("exec iperf3 -s -1 -J -i 1")?;
        let wait = format!(
            "timeout 60 sh -c 'until ss -Hltn sport = :{PORT} | grep -q .; do sleep 0.2; done'"
        );
        guests[server.index()].run(&wait, limit)?.success().context("the guest's iperf3")?;
        let mut line = format!(
            "exec iperf3 -c {} -C cubic -J -i 1 -t {} -P {}",
            HOST_V4[server.index()],
            self.seconds,
            self.streams
        );
        if let Some(mss) = self.mss {
            line += &format!(" -M {mss}");
        }
        let sent = guests[client.index()].run(&line, limit)?;
        let received = serving.finish(GUEST_PATIENCE)?;
        fs::write(raw.join("iperf3-sender.json"), &sent.output)?;
        fs::write(raw.join("iperf3-receiver.json"), &received.output)?;
        sent_by_cubic(&sent.output)?;
        self.take(stage, &sent.output, &received.output)?;
        stage.measured.load = Some(meter.finish());
        Ok(())
    }

    fn client(&self, host: &Namespace, address: &str) -> std::process::Command {
        let mut command = host.command("iperf3");
        command.args(["-c", address, "-C", "cubic", "-J", "-i", "1", "--connect-timeout", "20000"]);
        command.args(["-t", &self.seconds.to_string(), "-P", &self.streams.to_string()]);
        if let Some(mss) = self.mss {
            command.args(["-M", &mss.to_string()]);
        }
        command
    }

    /// Gb/s of every second at the receiver.
    fn samples(&self, said: &str) -> Result<Vec<f64>> {
        ensure!(!said.trim().is_empty(), "iperf3's server ended without a report");
        let report: Value = serde_json::from_str(said).context("iperf3's server speaks no JSON")?;
        if let Some(reason) = report["error"].as_str() {
            bail!("iperf3's server: {reason}");
        }
        let intervals = report["intervals"].as_array().context("iperf3 reports no intervals")?;
        let mut samples = Vec::new();
        for interval in intervals {
            let sum = &interval["sum"];
            let lasted = sum["seconds"].as_f64().context("an interval has no length")?;
            if lasted >= WHOLE {
                let rate = sum["bits_per_second"].as_f64().context("an interval has no rate")?;
                samples.push(rate / 1e9);
            }
        }
        // The receiver's clock begins a moment after the sender's: its last second may be short.
        let wanted = self.seconds.saturating_sub(1).max(self.omit + 1) as usize;
        ensure!(
            samples.len() >= wanted,
            "iperf3 reported {} samples where {} s give {wanted} at least",
            samples.len(),
            self.seconds
        );
        samples.truncate(self.seconds as usize);
        ensure!(samples.iter().any(|sample| *sample > 0.0), "nothing arrived");
        Ok(samples)
    }
}

/// Starts the server and waits until it listens: with `-J` it says nothing before its end.
fn listen(host: &Namespace, address: &str) -> Result<Running> {
    let mut command = host.command("iperf3");
    command.args(["-s", "-1", "-J", "-i", "1", "-B", address]);
    let mut server = Running::start(&mut command)?;
    let listens = format!(":{PORT:04X} 00000000:0000 0A");
    interrupt::until("iperf3's server that listens", SHORT, || {
        if !server.is_running()? {
            bail!("iperf3's server ended: {}{}", server.stdout().trim(), server.stderr().trim());
        }
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", server.id()))?;
        Ok(table.contains(&listens))
    })?;
    Ok(server)
}

fn wait(
    run: &Iperf3,
    sending: &mut Running,
    meter: &mut Meter,
    tick: &mut dyn FnMut(f64),
) -> Result<()> {
    let seconds = Duration::from_secs(u64::from(run.seconds));
    let mut asked = 0_u32;
    let patience = Duration::from_secs(u64::from(run.patience));
    interrupt::until("end of iperf3", seconds + patience, || {
        meter.poll();
        asked += 1;
        if asked.is_multiple_of(20) {
            tick((meter.elapsed().as_secs_f64() / seconds.as_secs_f64()).min(1.0));
        }
        Ok(!sending.is_running()?)
    })
}

fn sender_report(said: &str) -> Result<Value> {
    ensure!(!said.trim().is_empty(), "iperf3 ended without a report");
    let report: Value = serde_json::from_str(said).context("iperf3 speaks no JSON")?;
    if let Some(reason) = report["error"].as_str() {
        bail!("iperf3: {reason}");
    }
    Ok(report)
}

fn sent_by_cubic(said: &str) -> Result<()> {
    let report = sender_report(said)?;
    let used = report["end"]["sender_tcp_congestion"].as_str().unwrap_or("nothing");
    ensure!(used == "cubic", "iperf3 used {used} where cubic was asked for");
    Ok(())
}

fn retransmits(said: &str) -> Result<f64> {
    let report = sender_report(said)?;
    let count = report["end"]["sum_sent"]["retransmits"].as_f64();
    count.context("iperf3 reports no retransmissions")
}
