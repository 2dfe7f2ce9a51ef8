//! Programs that listen to a cable, and what they take of what is sent: `weir capture` and `weir
//! meter`, tcpdump, dumpcap, tshark, netsniff-ng, softflowd.
//!
//! ```text
//!   [ sender inside the kernel ] tx0 ---- veth ---- rx0 [ one tool at a time ]
//! ```
//!
//! Between both there may be a gateway, and the tool at its port ([`between`]).
//!
//! One sender for all. Every tool has the same memory for its ring where it lets one choose, and is
//! judged by what it says it has counted (to /dev/null) or by what capinfos finds in its file.

mod between;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use weir_port::stream::{StreamFrame, stream};

use self::between::Between;
pub(crate) use self::between::{Carrier, Mirror};
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{self, Finished, Running};
use crate::traffic::bypass::on_own_thread;

/// Memory for each tool's ring.
pub(crate) const RING_MIB: u32 = 256;
const SENDING: &str = "tx0";
const LISTENING: &str = "rx0";
/// What a tool may take to begin, beyond saying so.
const SETTLE: Duration = Duration::from_millis(300);
/// libpcap hands over a block that is not full after its reader's timeout, tcpdump's is a second.
const RETIRE: Duration = Duration::from_millis(1200);
/// Enough to tell what rate the sender reaches; at low rates, those of a fifth of a second.
const PROBE_FRAMES: u32 = 20_000;
/// OVS tells of flows once a second, and when they have been idle for one.
const FLOWS: Duration = Duration::from_secs(6);
/// What a tool may take to end: some still write.
const END: Duration = Duration::from_secs(60);

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    /// By a packet socket, as the peers do.
    WeirCapture,
    WeirCaptureXdp,
    WeirMeter,
    WeirMeterXdp,
    Tcpdump,
    Dumpcap,
    Tshark,
    #[serde(rename = "netsniff-ng")]
    Netsniff,
    /// A flow probe: it counts and keeps no packet.
    Softflowd,
    /// Open vSwitch's own NetFlow to nfcapd: it counts and keeps no packet.
    OvsNetflow,
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
        carrier: Carrier,
        mirror: Mirror,
        program: &Path,
        tool: Option<Tool>,
    ) -> Result<Self> {
        let mut cable = Self::ends()?;
        let ends = (&cable.sender, &cable.listener);
        let has_netflow = tool == Some(Tool::OvsNetflow);
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
        tool: Option<Tool>,
        frame: &StreamFrame,
        target: &Path,
        (count, rate): (u32, u32),
    ) -> Result<Trial> {
        // What an earlier tool left to be written would be this one's burden.
        process::run(&mut Command::new("sync"), END)?;
        let mut listening = None;
        if let Some(tool) = tool {
            if tool == Tool::OvsNetflow {
                std::fs::create_dir_all(flows(target))?;
            }
            let mut running = Running::start(&mut tool.command(self, program, target))?;
            running.wait_for(tool.mark(), END)?;
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
            let by_libpcap = matches!(tool, Tool::Tcpdump | Tool::Dumpcap | Tool::Tshark);
            interrupt::sleep(match tool {
                Tool::OvsNetflow => FLOWS,
                _ if by_libpcap => RETIRE,
                _ => SETTLE,
            })?;
            let said = if tool == Tool::Softflowd { self.softflowd_says(target)? } else { None };
            running.signal(Signal::INT)?;
            let finished = running.finish(END)?;
            counted = match said {
                Some(said) => said,
                None => tool.counted(&finished, target)?,
            };
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

    /// What a flow probe says that it has looked at.
    fn softflowd_says(&self, target: &Path) -> Result<Option<u64>> {
        let socket = control(target);
        let line = format!("softflowctl -c {} statistics", socket.display());
        let said = self.watched().0.run(&line)?.stdout;
        let number = said.lines().find_map(|line| line.trim().strip_prefix("Packets processed:"));
        let number = number.with_context(|| format!("softflowctl says no number: {said}"))?;
        Ok(Some(number.trim().parse()?))
    }
}

fn frames_of(namespace: &Namespace, port: &str) -> Result<u64> {
    let said = namespace.run(&format!("cat /sys/class/net/{port}/statistics/rx_packets"))?.stdout;
    said.trim().parse().context("the kernel counts in numbers")
}

/// softflowd's socket, beside what would be its file.
fn control(target: &Path) -> PathBuf {
    match target == Path::new("/dev/null") {
        true => std::env::temp_dir().join(format!("weir-softflowd-{}", std::process::id())),
        false => target.with_extension("ctl"),
    }
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
    /// Its command line's beginning.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::WeirCapture => "weir capture --driver packet",
            Tool::WeirCaptureXdp => "weir capture --driver xdp",
            Tool::WeirMeter => "weir meter --driver packet",
            Tool::WeirMeterXdp => "weir meter --driver xdp",
            Tool::Tcpdump => "tcpdump",
            Tool::Dumpcap => "dumpcap",
            Tool::Netsniff => "netsniff-ng",
            Tool::Tshark => "tshark",
            Tool::Softflowd => "softflowd",
            Tool::OvsNetflow => "nfcapd",
        }
    }

    /// Whether it is Weir's.
    pub(crate) fn is_ours(self) -> bool {
        self.captures() || self.meters()
    }

    fn captures(self) -> bool {
        matches!(self, Tool::WeirCapture | Tool::WeirCaptureXdp)
    }

    fn meters(self) -> bool {
        matches!(self, Tool::WeirMeter | Tool::WeirMeterXdp)
    }

    /// Whether it can be run here.
    ///
    /// # Errors
    /// It is missing; says so.
    pub(crate) fn require(self) -> Result<()> {
        match self {
            it if it.is_ours() => Ok(()),
            Tool::Softflowd => process::require(&["softflowd", "softflowctl"]),
            Tool::Dumpcap => process::require(&["dumpcap", "capinfos"]),
            Tool::OvsNetflow => process::require(&["nfcapd", "nfdump", "ovs-vswitchd"]),
            it => process::require(&[it.name(), "capinfos"]),
        }
    }

    fn command(self, cable: &Cable, program: &Path, target: &Path) -> Command {
        let (program, line) = match self {
            it if it.is_ours() => {
                let line = self.name().trim_start_matches("weir ");
                (program.to_owned(), format!("{line} --json --ring-size {RING_MIB}M"))
            }
            // As root it would give up the right to write here.
            Tool::Tcpdump => {
                (PathBuf::from("tcpdump"), format!("-n -Z root -B {}", RING_MIB * 1024))
            }
            Tool::Dumpcap => (PathBuf::from("dumpcap"), format!("-q -B {RING_MIB}")),
            Tool::Tshark => (PathBuf::from("tshark"), format!("-q -B {RING_MIB}")),
            Tool::Softflowd => {
                let socket = control(target);
                let line = format!("-d -v 9 -n 127.0.0.1:9995 -c {0} -p {0}.pid", socket.display());
                (PathBuf::from("softflowd"), line)
            }
            Tool::OvsNetflow => {
                let folder = flows(target);
                let line = format!(
                    "-w {} -p {} -b 127.0.0.1 -t 86400",
                    folder.display(),
                    between::NETFLOW_PORT
                );
                (PathBuf::from("nfcapd"), line)
            }
            // It was ours, or this.
            _ => (PathBuf::from("netsniff-ng"), format!("--silent --ring-size {RING_MIB}MiB")),
        };
        let (place, port) = cable.watched();
        let mut command = place.command(&program.to_string_lossy());
        command.args(line.split(' '));
        if self != Tool::OvsNetflow {
            command.args(["-i", port]);
        }
        match self {
            Tool::Softflowd | Tool::OvsNetflow => {}
            it if it.meters() => {}
            it if it.captures() => {
                command.arg("--force").arg("-w").arg(target);
            }
            Tool::Netsniff => {
                command.arg("-o").arg(target);
            }
            _ => {
                command.arg("-w").arg(target);
            }
        }
        command
    }

    /// What it says when it listens.
    fn mark(self) -> &'static str {
        match self {
            Tool::WeirCapture | Tool::WeirCaptureXdp => "capturing",
            Tool::WeirMeter | Tool::WeirMeterXdp => "metering",
            Tool::Tshark => "Capturing on",
            Tool::Softflowd => "starting data collection",
            Tool::Tcpdump => "listening on",
            Tool::Dumpcap => "File:",
            Tool::Netsniff => "Running!",
            Tool::OvsNetflow => "Startup",
        }
    }

    /// Packets that it has taken.
    fn counted(self, finished: &Finished, target: &Path) -> Result<u64> {
        if self == Tool::OvsNetflow {
            return flow_packets(target);
        }
        if !self.meters() && target != Path::new("/dev/null") {
            let mut capinfos = Command::new("capinfos");
            let counted = process::run(capinfos.args(["-M", "-T", "-r", "-c"]).arg(target), END)?;
            let word = counted.stdout.split_whitespace().last().and_then(|it| it.parse().ok());
            return word.with_context(|| format!("capinfos: {}", counted.stdout));
        }
        let words = format!("{}\n{}", finished.stdout, finished.stderr);
        let number = match self {
            Tool::Tcpdump | Tool::Tshark => before(&words, "packets captured"),
            // It said so on its socket.
            Tool::Softflowd | Tool::OvsNetflow => None,
            Tool::Netsniff => before(&words, "packets passed filter"),
            // Behind a line that it wrote over.
            Tool::Dumpcap => words
                .split_once("Packets captured: ")
                .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok()),
            Tool::WeirCapture | Tool::WeirCaptureXdp => json(&finished.stdout, "/packets/written"),
            Tool::WeirMeter | Tool::WeirMeterXdp => {
                let checked = json(&finished.stdout, "/rdma/icrc_ok");
                ensure!(checked == json(&finished.stdout, "/packets"), "wrong ICRCs: {words}");
                checked
            }
        };
        number.with_context(|| format!("{} says no number: {words}", self.name()))
    }
}

/// Where nfcapd writes.
fn flows(target: &Path) -> PathBuf {
    control(target).with_extension("flows")
}

/// Packets of the flows that nfcapd has written.
fn flow_packets(target: &Path) -> Result<u64> {
    let folder = flows(target);
    let mut command = Command::new("nfdump");
    command.arg("-R").arg(&folder).args(["-q", "-N", "-o", "fmt:%pkt"]);
    let said = process::run(&mut command, END)?.stdout;
    std::fs::remove_dir_all(&folder)?;
    if said.contains("No matching flows") {
        return Ok(0);
    }
    let counts = said.lines().map(str::trim).filter(|it| !it.is_empty());
    counts.map(|it| it.parse::<u64>().with_context(|| format!("nfdump says {it}"))).sum()
}

/// The number that stands before `mark`.
fn before(words: &str, mark: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains(mark))?;
    line.split_whitespace().next()?.parse().ok()
}

fn json(text: &str, pointer: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.pointer(pointer)?.as_u64()
}
