//! Traffic by a program that the study's file names: iperf, hping3, trafgen and the like. What
//! arrives at the other host counts, by its kernel's counters, whatever the program says.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::json;

use super::steps::Stage;
use crate::netns::Namespace;
use crate::process::{self, Running};
use crate::topology::{HOST_DEVICE, HOST_MAC, Side, text_mac};
use crate::{interrupt, stats, strongswan};

/// For a server to say that it is there, and for programs to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at the counters.
const SECOND: Duration = Duration::from_secs(1);

/// One program for so long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// One of `programs`.
    generator: String,
    /// Programs that send, by name.
    programs: BTreeMap<String, Generator>,
    /// How long.
    seconds: u32,
    /// Seconds at the beginning that do not count.
    #[serde(default)]
    omit: u32,
}

/// A program that sends, in the words of a study's file. In its lines, `$target` is the address of
/// who receives, `$device` the sender's device, `$mac` and `$target_mac` the two ends' MAC
/// addresses, `$seconds` how long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generator {
    /// Its command line, at host A. When the time is over it is ended by SIGINT, and killed 5 s
    /// after that.
    command: String,
    /// What must listen at host B before, if anything.
    server: Option<String>,
    /// What that says when it does.
    ready: Option<String>,
}

impl Generator {
    fn programs(&self) -> Vec<&str> {
        let lines = [Some(&self.command), self.server.as_ref()].into_iter().flatten();
        lines.filter_map(|it| it.split_whitespace().next()).collect()
    }
}

impl Generate {
    fn program(&self) -> Result<&Generator> {
        let names = || self.programs.keys().cloned().collect::<Vec<_>>().join(", ");
        let found = self.programs.get(&self.generator);
        found.with_context(|| {
            format!("no program is called {}; there are {}", self.generator, names())
        })
    }

    pub(super) fn require(&self) -> Result<()> {
        ensure!(self.seconds > self.omit, "generate: no second is left of {}", self.seconds);
        ensure!(self.seconds <= 3600, "generate: {} s is more than an hour", self.seconds);
        let programs = self.program()?.programs();
        ensure!(!programs.is_empty(), "generate: {} has no command", self.generator);
        process::require(&programs)
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        f64::from(self.seconds) + 2.0
    }

    pub(super) fn words(&self) -> String {
        format!(
            "The trial's program sends from host A to host B for {} s; what arrives at host B's \
             device each second, by its kernel's counters, is a sample, the first {} are dropped",
            self.seconds, self.omit
        )
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let is_inner = stage.path.as_ref().is_some_and(|path| path.is_host_ipsec());
        let raw = stage.raw.to_owned();
        let mut meter = stage.meter()?;
        let (lab, tick) = stage.lab_and_tick()?;
        let (sender, receiver) = (lab.host(Side::A), lab.host(Side::B));
        let target = match is_inner {
            true => strongswan::INNER_V4[Side::B.index()].to_string(),
            false => lab.host_v4(Side::B).to_string(),
        };
        let fill = |line: &str| {
            // The longer name first.
            line.replace("$target_mac", &text_mac(HOST_MAC[Side::B.index()]))
                .replace("$target", &target)
                .replace("$device", HOST_DEVICE)
                .replace("$mac", &text_mac(HOST_MAC[Side::A.index()]))
                .replace("$seconds", &self.seconds.to_string())
        };
        let program = self.program()?;
        let server = program.server.as_ref().map(|it| start(receiver, &fill(it))).transpose()?;
        let server = match (server, &program.ready) {
            (Some(mut server), Some(ready)) => {
                server.wait_for(ready, PATIENCE)?;
                Some(server)
            }
            (server, _) => server,
        };
        let sending = start(sender, &fill(&program.command))?;
        let mut counts = vec![Count::of(receiver)?];
        let begun = Instant::now();
        for second in 1..=self.seconds {
            let end = begun + SECOND * second;
            while Instant::now() < end {
                interrupt::sleep(end.saturating_duration_since(Instant::now()).min(SECOND / 5))?;
                meter.poll();
            }
            counts.push(Count::of(receiver)?);
            tick(f64::from(second) / f64::from(self.seconds));
        }
        // hping3 prints where it is told to end, in the midst of printing too: then it never ends.
        let sent = sending.end(Signal::INT, PATIENCE / 4)?;
        let heard = server.map(|it| it.stop(Signal::INT)).transpose()?;
        let load = meter.finish();
        fs::write(raw.join("generator.txt"), format!("{}\n{}", sent.stdout, sent.stderr))?;
        if let Some(heard) = heard {
            fs::write(raw.join("server.txt"), format!("{}\n{}", heard.stdout, heard.stderr))?;
        }
        self.take(stage, &counts)?;
        stage.measured.load = Some(load);
        Ok(())
    }

    fn take(&self, stage: &mut Stage<'_>, counts: &[Count]) -> Result<()> {
        let by_second = |of: fn(&Count, &Count) -> f64| -> Vec<f64> {
            let all = counts.windows(2).map(|it| of(&it[0], &it[1]));
            all.skip(self.omit as usize).collect()
        };
        let gbps = by_second(|from, to| 8e-9 * (to.bytes - from.bytes) as f64 / to.since(from));
        let kpps = by_second(|from, to| 1e-3 * (to.frames - from.frames) as f64 / to.since(from));
        let raw = json!({ "gbps": gbps, "kpps": kpps });
        fs::write(stage.raw.join("counts.json"), format!("{raw:#}\n"))?;
        ensure!(kpps.iter().any(|it| *it > 0.0), "{}: nothing arrived", self.generator);
        for (name, samples) in [("gbps", gbps), ("kpps", kpps)] {
            stage.measured.values.insert(name.to_owned(), stats::mean(&samples));
            stage.measured.samples.insert(name.to_owned(), samples);
        }
        Ok(())
    }
}

/// What came to a host's device until a moment.
struct Count {
    at: Instant,
    frames: u64,
    bytes: u64,
}

impl Count {
    fn of(host: &Namespace) -> Result<Self> {
        let folder = format!("/sys/class/net/{HOST_DEVICE}/statistics");
        let said = host.run(&format!("cat {folder}/rx_packets {folder}/rx_bytes"))?.stdout;
        let mut numbers = said.split_whitespace().map(str::parse::<u64>);
        let mut number = || numbers.next().context("the kernel counts")?.context("in numbers");
        Ok(Self { at: Instant::now(), frames: number()?, bytes: number()? })
    }

    fn since(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }
}

fn start(host: &Namespace, line: &str) -> Result<Running> {
    let mut words = line.split_whitespace();
    let mut command = host.command(words.next().unwrap_or_default());
    Running::start(command.args(words))
}
