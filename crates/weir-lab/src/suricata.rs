//! The real Suricata, of Debian's unstable suite in a root of its own, as a peer of detection.
//!
//! `cargo xtask packages bench` makes the root (debootstrap, 340 MB) in `~/.cache/weir/suricata`.
//! What it is to read is put into a folder of it, and it runs there by chroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::netns::Namespace;
use crate::process::{self, Running};

/// Where the root is, below the home directory.
const ROOT: &str = ".cache/weir/suricata";
/// The folder of a run, in the root.
const FOLDER: &str = "weir";
const PATIENCE: Duration = Duration::from_secs(900);

/// How a program read a capture.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Seconds from start to end.
    pub seconds: f64,
    /// The most memory that it took, MiB.
    pub peak_mib: f64,
}

/// Suricata, ready to run.
#[derive(Debug)]
pub struct Suricata {
    root: PathBuf,
    version: String,
}

/// The root that it is installed in, where it is.
pub fn root() -> Option<PathBuf> {
    let root = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(ROOT);
    root.join("usr/bin/suricata").exists().then_some(root)
}

impl Suricata {
    /// The one that is installed, with `rules` (one file), its configuration and its classes.
    ///
    /// # Errors
    /// There is no root; says how to make it.
    pub fn with(rules: &str, configuration: &Path, classes: &Path) -> Result<Self> {
        let root = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(ROOT);
        if !root.join("usr/bin/suricata").exists() {
            bail!("no Suricata in {}: run `cargo xtask packages bench`", root.display());
        }
        let mut asked = Command::new("chroot");
        let said = process::run(asked.arg(&root).args(["suricata", "-V"]), PATIENCE)?.stdout;
        let version = said.split_whitespace().find(|it| it.starts_with(char::is_numeric));
        let version = version.unwrap_or("of unknown version").to_owned();
        let folder = root.join(FOLDER);
        fs::create_dir_all(folder.join("log"))?;
        fs::write(folder.join("all.rules"), rules)?;
        fs::copy(configuration, folder.join("suricata.yaml")).context("its configuration")?;
        fs::copy(classes, folder.join("classification.config")).context("its classes")?;
        Ok(Self { root, version })
    }

    /// Its name and version.
    pub fn name(&self) -> String {
        format!("Suricata {}", self.version)
    }

    /// Reads `capture` with one thread.
    ///
    /// # Errors
    /// It fails.
    pub fn read(&self, capture: &Path) -> Result<Run> {
        fs::copy(capture, self.root.join(FOLDER).join("read.pcap"))?;
        let line = format!(
            "cd /{FOLDER} && exec suricata -c suricata.yaml -S all.rules -l log -k none \
             --runmode single -r read.pcap"
        );
        let mut command = Command::new("/usr/bin/time");
        command.args(["-f", "%M", "chroot"]).arg(&self.root).args(["sh", "-c", &line]);
        timed(&mut command)
    }
}

/// What it told of a capture.
#[derive(Debug)]
pub struct Told {
    /// Lines of EVE.
    pub eve: String,
    /// Its log: what it did not load, and why.
    pub log: String,
}

impl Suricata {
    /// Reads `capture` as [`Suricata::read`] does; what it tells.
    ///
    /// # Errors
    /// It fails.
    pub fn told(&self, capture: &Path) -> Result<Told> {
        let log = self.root.join(FOLDER).join("log");
        fs::remove_dir_all(&log)?;
        fs::create_dir(&log)?;
        self.read(capture)?;
        let read = |name: &str| fs::read_to_string(log.join(name)).context(name.to_owned());
        Ok(Told { eve: read("eve.json")?, log: read("suricata.log")? })
    }

    /// Starts to copy packets between two ports of `namespace`, as `configuration` says, in which
    /// they are called `host` and `wire`. It passes packets once it has read its rules.
    ///
    /// # Errors
    /// It does not start.
    pub fn inline(
        &self,
        namespace: &Namespace,
        configuration: &Path,
        host: &str,
        wire: &str,
    ) -> Result<Running> {
        let text = fs::read_to_string(configuration).context("its configuration")?;
        let mut named = String::new();
        for line in text.lines() {
            let port = line.split_once("interface: ").or_else(|| line.split_once("copy-iface: "));
            let name = port.map(|(_, name)| name.trim());
            named += &match name {
                Some("host") => line.replace(" host", &format!(" {host}")),
                Some("wire") => line.replace(" wire", &format!(" {wire}")),
                _ => line.to_owned(),
            };
            named.push('\n');
        }
        fs::write(self.root.join(FOLDER).join("suricata-ips.yaml"), named)?;
        let root = self.root.display();
        // Mounts of its own, which end with it.
        let line = format!(
            "mount --make-rprivate / && mount --bind /proc {root}/proc && \
             mount --rbind /sys {root}/sys && exec chroot {root} sh -c 'cd /{FOLDER} && exec \
             suricata -c suricata-ips.yaml -S all.rules -l log -k none --af-packet \
             --runmode workers'"
        );
        Running::start(namespace.command("unshare").args(["-m", "sh", "-c", &line]))
    }
}

/// Runs a command under `time -f %M`.
///
/// # Errors
/// It fails, or `time` is not installed.
pub fn timed(command: &mut Command) -> Result<Run> {
    let begun = Instant::now();
    let finished = process::run(command, PATIENCE)?;
    let seconds = begun.elapsed().as_secs_f64();
    let kib = finished.stderr.lines().rev().find_map(|line| line.trim().parse::<f64>().ok());
    let peak_mib = kib.context("`time` said nothing of memory")? / 1024.0;
    Ok(Run { seconds, peak_mib })
}
