//! Programs that listen to a cable, and what they take of what is sent. Which those are, their
//! command lines and where they say what they took stand in `studies/monitoring.toml`.
//!
//! ```text
//!   [ sender inside the kernel ] tx0 ---- veth ---- rx0 [ one tool at a time ]
//! ```
//!
//! Between both there may be a gateway, and the tool at its port ([`between`]).
//!
//! One sender for all. Every tool is judged by what it says it has counted (to /dev/null) or by
//! what capinfos finds in its file.

mod between;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use weir_port::stream::{StreamFrame, stream};

use self::between::Between;
pub(crate) use self::between::{Forwarder, Mirror};
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{self, Running};
use crate::study::catalogue;
use crate::study::design::Study;
use crate::traffic::bypass::on_own_thread;

const SENDING: &str = "tx0";
const LISTENING: &str = "rx0";
/// What a tool may take to begin, beyond saying so.
const SETTLE: Duration = Duration::from_millis(300);
/// Enough to tell what rate the sender reaches; at low rates, those of a fifth of a second.
const PROBE_FRAMES: u32 = 20_000;
/// What a tool may take to end: some still write.
const END: Duration = Duration::from_secs(60);

/// A program that listens, in the words of a study's file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    /// Its command line: `$port` is where it listens, `$file` where it writes, `$folder` an empty
    /// one of the trial's; `weir` is the program that the study runs.
    command: String,
    /// What it says when it listens.
    ready: String,
    /// How many packets it took.
    taken: Taken,
    /// Programs that it needs beside its own.
    #[serde(default)]
    needs: Vec<String>,
    /// What it may take to see the last frame, milliseconds.
    #[serde(default = "settle_ms")]
    settle_ms: u64,
    /// Whether it takes Open vSwitch's NetFlow, at UDP port 9996, and no packets.
    #[serde(default)]
    pub(crate) netflow: bool,
}

fn settle_ms() -> u64 {
    SETTLE.as_millis() as u64
}

/// Where the number of packets stands, in what a tool says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Taken {
    /// Not in its own words but in those of this command, asked while it runs.
    ask: Option<String>,
    /// The same, asked when it has ended.
    ask_at_end: Option<String>,
    /// In which form.
    #[serde(flatten)]
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// It begins the line that has these words.
    Before(String),
    /// It follows these words.
    After(String),
    /// It is JSON, and these places (RFC 6901) have it, all the same.
    Json(Vec<String>),
    /// Each line is a number; these words say that there is none.
    SumUnless(String),
}

/// Two namespaces and a veth between them, or a gateway.
#[derive(Debug)]
pub(crate) struct Cable {
    // First: it ends before its cables.
    between: Option<Between>,
    sender: Namespace,
    listener: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Result<Self> {
        let cable = Self::ends()?;
        cable.sender.ip(&format!(
            "link add {SENDING} type veth peer name {LISTENING} netns {}\n",
            cable.listener.name()
        ))?;
        cable.ready()
    }

    /// With a gateway between both; tools then listen there, at its port or its mirror's.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn through(
        carrier: Forwarder,
        mirror: Mirror,
        program: &Path,
        has_netflow: bool,
    ) -> Result<Self> {
        let mut cable = Self::ends()?;
        let ends = (&cable.sender, &cable.listener);
        let between = Between::start(ends, (carrier, mirror), program, has_netflow)?;
        cable.between = Some(between);
        cable.ready()
    }

    fn ends() -> Result<Self> {
        process::require(&["ip", "ethtool"])?;
        let name = |end: &str| format!("weir-cable-{}-{end}", std::process::id());
        let sender = Namespace::create(&name("tx"))?;
        let listener = Namespace::create(&name("rx"))?;
        for end in [&sender, &listener] {
            let quiet = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
            end.set(&quiet.map(|key| (key, "1")))?;
        }
        Ok(Self { between: None, sender, listener })
    }

    fn ready(self) -> Result<Self> {
        let Self { sender, listener, .. } = &self;
        sender.ip(&format!("link set {SENDING} up"))?;
        listener.ip(&format!("link set {LISTENING} up"))?;
        sender.run(&format!("ethtool -K {SENDING} tso off gso off gro off"))?;
        listener.run(&format!("ethtool -K {LISTENING} tso off gso off gro on"))?;
        Ok(self)
    }

    /// Its namespaces, by their part in an experiment.
    pub(crate) fn places(&self) -> Vec<(&Namespace, &'static str)> {
        let mut places = vec![(&self.sender, "generator"), (&self.listener, "hosts")];
        places.extend(self.between.as_ref().map(|it| (&it.gateway, "gateways")));
        places
    }

    /// Where tools listen, and the port whose frames they should take.
    fn watched(&self) -> (&Namespace, &'static str) {
        match &self.between {
            None => (&self.listener, LISTENING),
            Some(it) if it.mirrors => (&it.gateway, between::MIRRORED),
            Some(it) => (&it.gateway, between::NEAR),
        }
    }

    /// Sends `count` frames, `rate` of them a second (0: as fast as it can), while `tool` listens
    /// and writes to `target`; without a tool nobody listens.
    ///
    /// # Errors
    /// A tool is missing, does not begin or end, or says no number.
    pub(crate) fn trial(
        &self,
        program: &Path,
        tool: Option<&Tool>,
        frame: &StreamFrame,
        target: &Path,
        (count, rate): (u32, u32),
    ) -> Result<Trial> {
        // What an earlier tool left to be written would be this one's burden.
        process::run(&mut Command::new("sync"), END)?;
        let folder = tempfile::tempdir()?;
        let mut listening = None;
        if let Some(tool) = tool {
            let command = &mut tool.command(self, program, target, folder.path());
            let mut running = Running::start(command)?;
            running.wait_for(&tool.ready, END)?;
            interrupt::sleep(SETTLE)?;
            listening = Some((tool, running));
        }
        let before = self.received()?;
        let passed_before = self.passed()?;
        let sent = on_own_thread(|| {
            self.sender.enter()?;
            Ok(stream(SENDING, frame, 0, count, rate)?)
        })?;
        if self.between.is_some() {
            // What waits in the gateway's queues is on its way.
            interrupt::sleep(SETTLE)?;
        }
        let delivered = self.received()? - before;
        let passed = self.passed()? - passed_before;
        let mut counted = 0;
        if let Some((tool, running)) = listening {
            interrupt::sleep(Duration::from_millis(tool.settle_ms))?;
            let (place, port) = self.watched();
            let ask = |line: &Option<String>| -> Result<Option<String>> {
                let line = line.as_ref().map(|it| Tool::filled(it, port, target, folder.path()));
                line.map(|line| Ok(place.run(&line)?.stdout)).transpose()
            };
            let asked = ask(&tool.taken.ask)?;
            running.signal(Signal::INT)?;
            let finished = running.finish(END)?;
            let own = match &tool.taken.form {
                Form::Json(_) => finished.stdout,
                _ => format!("{}\n{}", finished.stdout, finished.stderr),
            };
            let said = asked.or(ask(&tool.taken.ask_at_end)?).unwrap_or(own);
            counted = tool.counted(&said, target)?;
            if target != Path::new("/dev/null") && target.is_file() {
                std::fs::remove_file(target)?;
            }
        }
        let seconds = sent.elapsed.as_secs_f64();
        Ok(Trial { sent: sent.sent, seconds, delivered, passed, counted })
    }

    /// Frames that have come to where they enter the gateway; without one, as [`Cable::received`].
    fn passed(&self) -> Result<u64> {
        match &self.between {
            None => self.received(),
            Some(it) => frames_of(&it.gateway, between::NEAR),
        }
    }

    /// Frames a second that the sender reaches of `rate`, by a moment of sending while nobody
    /// listens.
    ///
    /// # Errors
    /// Nothing can be sent.
    pub(crate) fn reached(&self, frame: &StreamFrame, rate: u32) -> Result<f64> {
        let sent = on_own_thread(|| {
            self.sender.enter()?;
            Ok(stream(SENDING, frame, 0, PROBE_FRAMES.min(rate / 5).max(64), rate)?)
        })?;
        Ok(sent.sent as f64 / sent.elapsed.as_secs_f64().max(1e-6))
    }

    /// Frames that have come to the listening port, by the kernel's count.
    fn received(&self) -> Result<u64> {
        frames_of(&self.listener, LISTENING)
    }
}

fn frames_of(namespace: &Namespace, port: &str) -> Result<u64> {
    let said = namespace.run(&format!("cat /sys/class/net/{port}/statistics/rx_packets"))?.stdout;
    said.trim().parse().context("the kernel counts in numbers")
}

/// What became of what was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Frames sent.
    pub(crate) sent: u64,
    /// How long that took.
    pub(crate) seconds: f64,
    /// Of them, those that came to the listening port.
    pub(crate) delivered: u64,
    /// Of them, those that came to the gateway, where there is one; else as `delivered`.
    pub(crate) passed: u64,
    /// Of them, those that the tool took.
    pub(crate) counted: u64,
}

impl Trial {
    /// Frames a second that were sent.
    pub(crate) fn achieved(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    /// Frames that the tool did not take.
    pub(crate) fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.counted)
    }
}

impl Tool {
    /// The one of this name of the shipped study `monitoring`.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn shipped(name: &str) -> Result<Self> {
        let study = Study::parse(&catalogue::find("monitoring")?)?;
        let programs = study.settings.get("programs").cloned();
        let program = programs.as_ref().and_then(|it| it.get(name)).cloned();
        let program = program.with_context(|| format!("monitoring has no program {name}"))?;
        Ok(Self::deserialize(program)?)
    }

    fn program(&self) -> &str {
        self.command.split_whitespace().next().unwrap_or_default()
    }

    /// Whether it is Weir's.
    pub(crate) fn is_ours(&self) -> bool {
        self.program() == "weir"
    }

    /// Whether it can be run here.
    ///
    /// # Errors
    /// It is missing; says so.
    pub(crate) fn require(&self) -> Result<()> {
        ensure!(!self.program().is_empty(), "a program has no command");
        let own = (!self.is_ours()).then(|| self.program());
        let needs: Vec<&str> =
            own.into_iter().chain(self.needs.iter().map(String::as_str)).collect();
        process::require(&needs)
    }

    /// A line of the study's file, with what `$port` and the like stand for.
    fn filled(line: &str, port: &str, target: &Path, folder: &Path) -> String {
        line.replace("$port", port)
            .replace("$file", &target.to_string_lossy())
            .replace("$folder", &folder.to_string_lossy())
    }

    fn command(&self, cable: &Cable, program: &Path, target: &Path, folder: &Path) -> Command {
        let (place, port) = cable.watched();
        let line = Self::filled(&self.command, port, target, folder);
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let mut command = match self.is_ours() {
            true => place.command(&program.to_string_lossy()),
            false => place.command(first),
        };
        command.args(words);
        command
    }

    /// Packets that it has taken, by what it `said` or was asked.
    fn counted(&self, said: &str, target: &Path) -> Result<u64> {
        // What is in a file counts, not what was promised.
        if self.command.contains("$file") && target != Path::new("/dev/null") {
            let mut capinfos = Command::new("capinfos");
            let counted = process::run(capinfos.args(["-M", "-T", "-r", "-c"]).arg(target), END)?;
            let word = counted.stdout.split_whitespace().last().and_then(|it| it.parse().ok());
            return word.with_context(|| format!("capinfos: {}", counted.stdout));
        }
        let number = self.taken.form.number(said)?;
        number.with_context(|| format!("{} says no number: {said}", self.program()))
    }
}

impl Form {
    /// The number in `said`, where there is one.
    fn number(&self, said: &str) -> Result<Option<u64>> {
        Ok(match self {
            Form::Before(mark) => before(said, mark),
            // Behind a line that it may have written over.
            Form::After(mark) => said
                .split_once(mark.as_str())
                .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok()),
            Form::Json(places) => {
                let numbers: Vec<_> = places.iter().map(|it| json(said, it)).collect();
                ensure!(numbers.windows(2).all(|it| it[0] == it[1]), "{places:?} differ: {said}");
                numbers.first().copied().flatten()
            }
            Form::SumUnless(none) if said.contains(none) => Some(0),
            Form::SumUnless(_) => {
                let lines = said.lines().map(str::trim).filter(|it| !it.is_empty());
                let number = |it: &str| it.parse::<u64>().with_context(|| format!("it says {it}"));
                Some(lines.map(number).sum::<Result<u64>>()?)
            }
        })
    }
}

/// The number that stands before `mark`.
fn before(words: &str, mark: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains(mark))?;
    line.split_whitespace().next()?.parse().ok()
}

fn json(text: &str, pointer: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.pointer(pointer)?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(form: &str, said: &str) -> Option<u64> {
        let taken: Taken = toml::from_str(form).unwrap();
        taken.form.number(said).unwrap()
    }

    #[test]
    fn numbers_are_found_where_the_file_says() {
        let said = "10 packets captured\n12 packets received by filter\n";
        assert_eq!(number("before = 'packets captured'", said), Some(10));
        assert_eq!(number("after = 'Packets captured: '", "..\rPackets captured: 7\n"), Some(7));
        assert_eq!(number("json = ['/a/b']", "{\"a\": {\"b\": 3}}"), Some(3));
        assert_eq!(number("sum_unless = 'No flows'", "  4\n 5\n"), Some(9));
        assert_eq!(number("sum_unless = 'No flows'", "No flows\n"), Some(0));
        assert_eq!(number("before = 'packets captured'", "nothing"), None);
        let taken: Taken = toml::from_str("json = ['/a', '/b']").unwrap();
        assert!(taken.form.number("{\"a\": 1, \"b\": 2}").is_err(), "they differ");
        assert!(toml::from_str::<Taken>("ask = 'x'").is_err(), "it says no form");
    }

    #[test]
    fn the_shipped_programs_are_whole() {
        for name in ["weir-capture", "weir-meter-xdp", "tcpdump", "dumpcap", "netsniff-ng"] {
            assert_eq!(Tool::shipped(name).unwrap().is_ours(), name.starts_with("weir"), "{name}");
        }
        assert!(Tool::shipped("wireshark").is_err());
    }
}
