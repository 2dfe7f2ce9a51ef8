//! The machine that a study ran on, as a reader needs to know it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::process::{self, Running};

/// A tool that does not tell its version by then is not asked again.
const ASKING: Duration = Duration::from_secs(5);

/// Tools whose versions matter, and how each tells it.
const TOOLS: &[(&str, &[&str])] = &[
    ("iperf3", &["--version"]),
    ("ip", &["-V"]),
    ("swanctl", &["--version"]),
    ("openvpn", &["--version"]),
    ("wg", &["--version"]),
    ("tcpdump", &["--version"]),
    ("dumpcap", &["--version"]),
    ("tshark", &["--version"]),
    ("netsniff-ng", &["--version"]),
    ("softflowd", &["-h"]),
    ("nfcapd", &["-V"]),
    ("nft", &["--version"]),
    ("perf", &["--version"]),
    ("ib_write_bw", &["--version"]),
    ("ovs-vswitchd", &["--version"]),
    ("qemu-system-x86_64", &["--version"]),
];

/// Offloads that change what a stream costs.
const OFFLOADS: &[&str] = &[
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "tx-checksumming",
    "rx-checksumming",
    "hw-tc-offload",
    "esp-hw-offload",
];

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's model.
    pub processor: String,
    /// How many of them.
    pub processors: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// The kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The frequency governor; absent where the machine has no cpufreq.
    pub governor: Option<String>,
    /// What runs below, where the machine is a guest.
    pub hypervisor: Option<String>,
    /// Weir's version.
    pub weir: String,
    /// SHA-256 of the program under test.
    pub weir_sha256: String,
    /// The commit of the checkout that holds the program; absent outside of one.
    pub commit: Option<String>,
    /// Tools by name, those that are installed.
    pub tools: BTreeMap<String, String>,
    /// Network adapters of the machine, with driver and offloads. The lab's own ports are veths,
    /// set as the methods say.
    #[serde(default)]
    pub adapters: Vec<String>,
}

impl Environment {
    /// Looks at this machine and at `program`.
    pub fn of_this_machine(program: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processor = field(&read("/proc/cpuinfo"), "model name", ':');
        let processor = processor.or_else(|| field(&read("/proc/cpuinfo"), "CPU part", ':'));
        let memory = field(&read("/proc/meminfo"), "MemTotal", ':').unwrap_or_default();
        let kib: u64 = memory.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        let hypervisor = read("/sys/class/dmi/id/sys_vendor").trim().to_owned();
        let guest = read("/proc/cpuinfo").contains(" hypervisor");
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            processor: processor.unwrap_or_else(|| "unknown".to_owned()),
            processors: read("/proc/cpuinfo").matches("processor\t:").count(),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default(),
            governor: Some(governor.trim().to_owned()).filter(|it| !it.is_empty()),
            hypervisor: guest
                .then(|| if hypervisor.is_empty() { "unnamed".into() } else { hypervisor }),
            weir: said(Command::new(program).arg("--version")).unwrap_or_default(),
            weir_sha256: fs::read(program).map(|bytes| sha256(&bytes)).unwrap_or_default(),
            commit: commit(program),
            tools: versions(),
            adapters: adapters(),
        }
    }
}

/// Adapters that a driver drives, with what `ethtool` says of their offloads.
fn adapters() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut all: Vec<String> = entries
        .filter_map(|entry| {
            let driver = fs::read_link(entry.path().join("device/driver")).ok()?;
            let name = entry.file_name().into_string().ok()?;
            let driver = driver.file_name()?.to_string_lossy().into_owned();
            Some(format!("{name} ({driver}): {}", offloads(&name)))
        })
        .collect();
    all.sort();
    all
}

fn offloads(name: &str) -> String {
    let mut command = Command::new("ethtool");
    command.args(["-k", name]);
    let finished = Running::start(&mut command).and_then(|it| it.finish(ASKING));
    let Ok(finished) = finished else { return "offloads unknown".to_owned() };
    let on = finished.stdout.lines().filter_map(|line| {
        let (feature, state) = line.trim().split_once(": ")?;
        (OFFLOADS.contains(&feature) && state.starts_with("on")).then_some(feature)
    });
    let on: Vec<&str> = on.collect();
    if on.is_empty() { "no offloads on".to_owned() } else { on.join(", ") }
}

/// SHA-256 as hex.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn field(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
}

fn versions() -> BTreeMap<String, String> {
    let installed = TOOLS.iter().filter(|(tool, _)| process::installed(tool));
    let versions = installed.filter_map(|(tool, arguments)| {
        Some(((*tool).to_owned(), said(Command::new(tool).args(*arguments))?))
    });
    versions.collect()
}

/// The line with its version in what a tool says, whatever its exit code.
fn said(command: &mut Command) -> Option<String> {
    let finished = Running::start(command).ok()?.finish(ASKING).ok()?;
    version_line(&(finished.stdout + &finished.stderr)).map(str::to_owned)
}

/// The first line with a number such as `1.2`, or else the first with anything at all: some tools
/// complain or explain how they are used before they tell their version.
fn version_line(words: &str) -> Option<&str> {
    let is_numbered = |line: &&str| {
        let digit = |it: u8| it.is_ascii_digit();
        line.as_bytes().windows(3).any(|it| digit(it[0]) && it[1] == b'.' && digit(it[2]))
    };
    let mut lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.clone().find(is_numbered).or_else(|| lines.next())
}

fn commit(program: &Path) -> Option<String> {
    let folder = program.parent()?.to_str()?;
    let git = |arguments: &[&str]| -> Option<String> {
        let mut command = Command::new("git");
        command.args(["-C", folder]).args(arguments);
        let finished = Running::start(&mut command).ok()?.finish(ASKING).ok()?;
        finished.status.success().then(|| finished.stdout.trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { head } else { format!("{head}, with changes") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_version_is_found_behind_what_it_says_first() {
        let complaint =
            "plugin 'x': failed to load - x_create not found\nstrongSwan 5.9.8 swanctl\n";
        assert_eq!(version_line(complaint), Some("strongSwan 5.9.8 swanctl"));
        assert_eq!(version_line("\nusage: tool\nThis is tool 1.1.0."), Some("This is tool 1.1.0."));
        assert_eq!(version_line("tool, of today\nmore"), Some("tool, of today"));
        assert_eq!(version_line("\n"), None);
    }
}
