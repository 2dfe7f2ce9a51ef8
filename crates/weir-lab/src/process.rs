//! Child processes that end with their guard, and tools run to their end in bounded time.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGINT, SIGQUIT};

use crate::interrupt;

/// What a child may take to end after it was asked to.
const ENDING: Duration = Duration::from_secs(30);
/// The same when nobody waits for what it has to say; then it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Debian packages of the tools the lab calls, for the error when one is missing.
const PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("ethtool", "ethtool"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("swanctl", "strongswan-swanctl"),
    ("openvpn", "openvpn"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("capinfos", "wireshark-common"),
    ("dumpcap", "wireshark-common"),
    ("netsniff-ng", "netsniff-ng"),
    ("wg", "wireguard-tools"),
    ("softflowd", "softflowd"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("modprobe", "kmod"),
    ("perf", "linux-perf"),
    ("rdma", "iproute2"),
    ("ib_write_bw", "perftest"),
    ("ib_read_bw", "perftest"),
    ("ib_send_bw", "perftest"),
    ("softflowctl", "softflowd"),
    ("nfcapd", "nfdump"),
    ("nfdump", "nfdump"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-common"),
];

/// A running child. Dropping it ends the child: asked first, killed after a grace.
///
/// It runs in a process group of its own, so that a Ctrl-C at the terminal reaches the lab alone
/// and the lab ends its children in its own order. The kernel kills it if the lab dies undropped.
/// SIGINT and SIGQUIT end it unless it handles them, also where this process ignores them.
#[derive(Debug)]
pub struct Running {
    child: Child,
    label: String,
    output: File,
    errors: File,
    detached: bool,
}

/// What a tool said.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Running {
    /// Starts `command`, its output kept for [`Running::stdout`] and [`Running::stderr`].
    ///
    /// Start children from a thread that lives as long as they should: the kernel's
    /// end-with-the-parent rule counts from the thread.
    ///
    /// # Errors
    /// The program is missing (names its package) or cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::start_with_input(command, "")
    }

    /// The same, with `input` as its standard input.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub fn start_with_input(command: &mut Command, input: &str) -> Result<Self> {
        let label = label(command);
        let output = tempfile::tempfile().context("no temporary file for a child's output")?;
        let errors = tempfile::tempfile().context("no temporary file for a child's errors")?;
        if input.is_empty() {
            command.stdin(Stdio::null());
        } else {
            let mut file = tempfile::tempfile().context("no temporary file for a child's input")?;
            file.write_all(input.as_bytes())?;
            file.seek(SeekFrom::Start(0))?;
            command.stdin(file);
        }
        pass_on_no_ignored_signals();
        let child = command
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| missing(command))?;
        Ok(Self { child, label, output, errors, detached: false })
    }

    /// Its process id (also its process group).
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The command line, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// All it has written to standard output so far.
    pub fn stdout(&self) -> String {
        read_all(&self.output)
    }

    /// All it has written to standard error so far.
    pub fn stderr(&self) -> String {
        read_all(&self.errors)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// The kernel refuses to say.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until its output (either stream) holds `mark`, at most for `limit`.
    ///
    /// # Errors
    /// It ended first (its own words are in the error), the limit passed, or a signal came.
    pub fn wait_for(&mut self, mark: &str, limit: Duration) -> Result<()> {
        let what = format!("'{mark}' from `{}`", self.label);
        interrupt::until(&what, limit, || {
            if self.stderr().contains(mark) || self.stdout().contains(mark) {
                return Ok(true);
            }
            match self.child.try_wait()? {
                Some(status) => {
                    bail!("`{}` ended ({status}): {}", self.label, self.stderr().trim())
                }
                None => Ok(false),
            }
        })
    }

    /// Leaves it running when the guard goes.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("a child has a process id")?;
        rustix::process::kill_process(pid, signal)
            .with_context(|| format!("cannot signal `{}`", self.label))
    }

    /// Waits for its end, at most for `limit`; then it is killed.
    ///
    /// # Errors
    /// The limit passed or a signal came.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let what = format!("end of `{}`", self.label);
        let mut status = None;
        interrupt::until(&what, limit, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        let status = status.context("an ended child has a status")?;
        Ok(Finished { status, stdout: self.stdout(), stderr: self.stderr() })
    }

    /// Asks it to end by `signal` and waits until it has.
    ///
    /// # Errors
    /// As [`Running::finish`].
    pub fn stop(self, signal: Signal) -> Result<Finished> {
        // Who ended by itself has no ears.
        let _ = self.signal(signal);
        self.finish(ENDING)
    }

    /// Asks it to end by `signal`, and kills it when it has not within `patience`.
    ///
    /// # Errors
    /// A signal came.
    pub fn end(mut self, signal: Signal, patience: Duration) -> Result<Finished> {
        let _ = self.signal(signal);
        let end = Instant::now() + patience;
        while self.is_running()? && Instant::now() < end {
            interrupt::sleep(interrupt::POLL)?;
        }
        self.stop(Signal::KILL)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.detached || !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Polled without the interrupt flag: cleaning also runs after Ctrl-C.
        let _ = self.signal(Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(interrupt::POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Itself when it succeeded.
    ///
    /// # Errors
    /// It did not: its own words.
    pub fn success(self, label: &str) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        let words = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        Err(anyhow!("`{label}` failed ({}): {}", describe(self.status), words.trim()))
    }
}

/// Runs `command` to its end, at most for `limit`, and demands success.
///
/// # Errors
/// Missing, failed (its own words), too long, or interrupted.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    run_with_input(command, "", limit)
}

/// The same, with `input` as its standard input.
///
/// # Errors
/// As [`run`].
pub fn run_with_input(command: &mut Command, input: &str, limit: Duration) -> Result<Finished> {
    let running = Running::start_with_input(command, input)?;
    let label = running.label.clone();
    running.finish(limit)?.success(&label)
}

/// Whether a tool stands in the path.
pub fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Resident memory of a process, MiB.
///
/// # Errors
/// There is no such process.
pub fn resident_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// The most that it ever had.
///
/// # Errors
/// There is no such process.
pub fn peak_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmHWM:")
}

fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} has ended"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).with_context(|| format!("process {pid} has no memory"))
}

/// Checks that every tool is installed.
///
/// # Errors
/// One is missing; says which Debian packages bring them.
pub fn require(tools: &[&str]) -> Result<()> {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !installed(tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|tool| package(tool)).collect();
    packages.dedup();
    bail!("missing: {}; try `apt-get install {}`", missing.join(", "), packages.join(" "));
}

/// A shell without job control has the programs that it starts in the background ignore SIGINT and
/// SIGQUIT, and their children inherit that. A handler is not inherited, so an ignored signal gets
/// one that does nothing: it is still ignored here, and has its default effect on children.
fn pass_on_no_ignored_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        for signal in [SIGINT, SIGQUIT] {
            if ignored.unwrap_or(0) & 1 << (signal - 1) != 0 {
                // A refusal leaves it as it was: such children end when they are killed.
                let _ = signal_hook::flag::register(signal, AtomicBool::default().into());
            }
        }
    });
}

fn package(tool: &str) -> &str {
    PACKAGES.iter().find(|(name, _)| *name == tool).map_or(tool, |(_, package)| package)
}

fn missing(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    format!("cannot start `{program}`; try `apt-get install {}`", package(&program))
}

fn label(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown end".to_owned(),
    }
}

fn read_all(file: &File) -> String {
    // The child writes through a descriptor that shares this one's position: read by offset.
    use std::os::unix::fs::FileExt;
    let mut bytes = Vec::new();
    let mut chunk = [0; 16384];
    while let Ok(count @ 1..) = file.read_at(&mut chunk, bytes.len() as u64) {
        bytes.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
