//! Network namespaces that go when their guard does.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use rustix::thread::LinkNameSpaceType;

use crate::process::{self, Finished};

/// Where iproute2 keeps names of namespaces.
pub(crate) const FOLDER: &str = "/run/netns";

/// A configuration command takes no longer.
pub(crate) const SHORT: Duration = Duration::from_secs(20);

/// One network namespace with a name, as `ip netns` knows it. Dropping it ends the processes in it
/// and removes it, unless it was [kept](Namespace::keep).
#[derive(Debug)]
pub struct Namespace {
    name: String,
    kept: bool,
}

impl Namespace {
    /// Creates it, its loopback up.
    ///
    /// # Errors
    /// No privilege, or the name is taken.
    pub fn create(name: &str) -> Result<Self> {
        let mut command = Command::new("ip");
        process::run(command.args(["netns", "add", name]), SHORT)
            .context("namespaces need root (CAP_SYS_ADMIN)")?;
        let namespace = Self { name: name.to_owned(), kept: false };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// One that exists, to stay when the guard goes.
    pub fn kept(name: &str) -> Self {
        Self { name: name.to_owned(), kept: true }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Leaves it standing when the guard goes.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// `program`, to be started inside. It is killed if the thread that starts it dies.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        command.args(["setpriv", "--pdeathsig", "KILL", "--", program]);
        command
    }

    /// `program`, to be started inside and to outlive the lab (`--keep`).
    pub fn lasting_command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Moves the calling thread inside, for good: use a thread of its own. Sockets opened there
    /// stay there.
    ///
    /// # Errors
    /// The namespace is gone, or no privilege.
    pub fn enter(&self) -> Result<()> {
        let file = File::open(Path::new(FOLDER).join(&self.name))
            .with_context(|| format!("namespace {} is gone", self.name))?;
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(file.as_fd(), kind)
            .with_context(|| format!("cannot enter namespace {}", self.name))
    }

    /// Runs a command line (split at blanks) inside, to its end.
    ///
    /// # Errors
    /// It failed; its own words.
    pub fn run(&self, line: &str) -> Result<Finished> {
        let mut words = line.split_whitespace();
        let program = words.next().context("a command line has a first word")?;
        process::run(self.command(program).args(words), SHORT)
    }

    /// Runs iproute2 commands, one a line (`link set lo up`), in one call.
    ///
    /// # Errors
    /// One failed; its own words.
    pub fn ip(&self, lines: &str) -> Result<Finished> {
        let mut command = Command::new("ip");
        process::run_with_input(command.args(["-n", &self.name, "-batch", "-"]), lines, SHORT)
    }

    /// Writes kernel settings below `/proc/sys` inside, named as sysctl names them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, settings: &[(&str, &str)]) -> Result<()> {
        // The kernel shows a thread the settings of its own namespace.
        let write = || -> Result<()> {
            self.enter()?;
            for (key, value) in settings {
                let file = Path::new("/proc/sys").join(key.replace('.', "/"));
                fs::write(&file, value).with_context(|| format!("cannot set {key} to {value}"))?;
            }
            Ok(())
        };
        let written = thread::scope(|scope| scope.spawn(write).join());
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.kept {
            remove(&self.name);
        }
    }
}

/// Ends the processes of a namespace, removes it, and says whether it is gone. Works on what
/// another process left behind.
pub fn remove(name: &str) -> bool {
    end_processes(name);
    // Straight from the standard library: cleaning must not stop at the interrupt flag.
    let removed = Command::new("ip").args(["netns", "del", name]).output();
    removed.is_ok_and(|output| output.status.success()) || !Path::new(FOLDER).join(name).exists()
}

/// Names of the namespaces that begin with `prefix`.
pub fn list(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

fn processes(name: &str) -> Vec<Pid> {
    let listed = Command::new("ip").args(["netns", "pids", name]).output();
    let text = listed.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
}

fn end_processes(name: &str) {
    for signal in [Signal::TERM, Signal::KILL] {
        let found = processes(name);
        if found.is_empty() {
            return;
        }
        for pid in &found {
            let _ = rustix::process::kill_process(*pid, signal);
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && !processes(name).is_empty() {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
