//! Two gateways in a lab: `weir up` in each gateway namespace, driven as an operator would, by its
//! command line alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use crate::interrupt;
use crate::netns::SHORT;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, HOST_PORT, HOST_V4, HOST_V6, Lab, Side, WIRE_PORT};

/// A gateway that does not answer by then will not; thirty thousand rules take a while.
const START: Duration = Duration::from_secs(60);
/// Names of the two gateways, as configurations and control sockets have them.
pub const NAMES: [&str; 2] = ["gw-a", "gw-b"];

/// What the gateways do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Forward everything as it is, counted.
    Plain,
    /// Seal everything, whole Ethernet frames (EtherIP in ESP), between addresses of their own.
    Sealed,
    /// The same in UDP, so that equal frames that follow each other leave together.
    SealedInUdp,
    /// Seal IP packets in tunnel mode, outer addresses borrowed from the hosts; the hosts' ARP and
    /// neighbour discovery pass in clear.
    BorrowedTunnel,
    /// The same in transport mode.
    BorrowedTransport,
    /// Tag RoCE packets in the place of their ICRC; all else passes in clear.
    Tagged,
}

/// Where the gateways' keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// `weir keys generate`: a file for each direction.
    Files,
    /// Handshakes between their identities, with a preshared key.
    Handshakes {
        /// More lines of each gateway's `[keying]`.
        lines: String,
        /// More lines of each gateway's `[[peer]]`.
        peer_lines: String,
    },
}

impl KeySource {
    /// Handshakes by Weir's defaults.
    pub fn handshakes() -> Self {
        Self::Handshakes { lines: String::new(), peer_lines: String::new() }
    }
}

/// How the gateways are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `weir` program.
    pub program: PathBuf,
    /// What they do.
    pub protection: Protection,
    /// The kernel interface that moves frames: `packet` or `xdp`; absent: Weir's default.
    pub driver: Option<String>,
    /// More lines of each gateway's `[[pair]]`.
    pub pair_lines: String,
    /// More tables of each gateway's configuration.
    pub tables: String,
    /// Where keys come from, when they seal.
    pub keys: KeySource,
    /// The cipher of keys from files: `aes-256-gcm` or `aes-128-gcm`.
    pub cipher: String,
    /// More tables of gateway A's configuration.
    pub tables_of_a: String,
    /// Whether they may be [detached](Gateways::detach): such gateways survive a killed lab until
    /// the lab is swept.
    pub outlives_lab: bool,
}

impl Setup {
    /// Gateways by Weir's defaults, which end with the lab.
    pub fn new(program: impl Into<PathBuf>, protection: Protection) -> Self {
        Self {
            program: program.into(),
            protection,
            driver: None,
            pair_lines: String::new(),
            tables: String::new(),
            keys: KeySource::Files,
            cipher: "aes-256-gcm".to_owned(),
            tables_of_a: String::new(),
            outlives_lab: false,
        }
    }
}

/// Two running gateways. Dropping it ends them, unless they were [detached](Gateways::detach).
#[derive(Debug)]
pub struct Gateways {
    daemons: [Running; 2],
    program: PathBuf,
    run_folders: [PathBuf; 2],
}

impl Gateways {
    /// Starts both and waits until they answer.
    ///
    /// # Errors
    /// One does not start or answer; its own words.
    pub fn start(lab: &Lab, setup: &Setup) -> Result<Self> {
        Self::start_configured(lab, setup, &configurations(lab, setup)?)
    }

    /// The same, with configurations as [`configurations`] makes them, changed.
    ///
    /// # Errors
    /// As [`Gateways::start`].
    pub fn start_configured(lab: &Lab, setup: &Setup, texts: &[String; 2]) -> Result<Self> {
        // Gateways make it for themselves alone, and `weir serve` must pass.
        fs::create_dir_all(lab.folder().join("state"))?;
        for side in Side::BOTH {
            configure(lab, side, &texts[side.index()])?;
        }
        let daemons = [launch(lab, setup, Side::A)?, launch(lab, setup, Side::B)?];
        let run_folders = Side::BOTH.map(|side| run_folder(lab, side));
        let mut gateways = Self { daemons, program: setup.program.clone(), run_folders };
        for side in Side::BOTH {
            gateways.wait_ready(side)?;
        }
        Ok(gateways)
    }

    /// Ends one by `signal`, without waiting for more than its end.
    ///
    /// # Errors
    /// It does not end.
    pub fn end(&mut self, side: Side, signal: Signal) -> Result<()> {
        let daemon = &mut self.daemons[side.index()];
        daemon.signal(signal)?;
        interrupt::until("end of a gateway", START, || Ok(!daemon.is_running()?))
    }

    /// Starts one again that has ended, and waits until it answers.
    ///
    /// # Errors
    /// As [`Gateways::start`].
    pub fn start_again(&mut self, lab: &Lab, setup: &Setup, side: Side) -> Result<()> {
        self.daemons[side.index()] = launch(lab, setup, side)?;
        self.wait_ready(side)
    }

    /// What `weir status --json` says of a gateway.
    ///
    /// # Errors
    /// It does not answer, or its counters do not add up.
    pub fn status(&self, side: Side) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(["status", NAMES[side.index()], "--json", "--run-dir"]);
        command.arg(&self.run_folders[side.index()]);
        let said = process::run(&mut command, SHORT)?.stdout;
        serde_json::from_str(&said).context("`weir status --json` speaks JSON")
    }

    /// What `weir status` says of a gateway, for people.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status_text(&self, side: Side) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["status", NAMES[side.index()], "--run-dir"]);
        command.arg(&self.run_folders[side.index()]);
        Ok(process::run(&mut command, SHORT)?.stdout)
    }

    /// What `weir drops` says of a gateway, for people.
    ///
    /// # Errors
    /// It does not answer.
    pub fn drops(&self, side: Side) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["drops", NAMES[side.index()], "--run-dir"]);
        command.arg(&self.run_folders[side.index()]);
        Ok(process::run(&mut command, SHORT)?.stdout)
    }

    /// What `weir access hits --json` says of a gateway.
    ///
    /// # Errors
    /// It does not answer.
    pub fn access_hits(&self, side: Side) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(["access", "hits", "--gateway", NAMES[side.index()], "--json", "--run-dir"]);
        command.arg(&self.run_folders[side.index()]);
        let said = process::run(&mut command, SHORT)?.stdout;
        serde_json::from_str(&said).context("`weir access hits --json` speaks JSON")
    }

    /// Has a gateway read its configuration again, `tables` added to it.
    ///
    /// # Errors
    /// It refuses them; its own words.
    pub fn add_tables(&self, lab: &Lab, side: Side, tables: &str) -> Result<()> {
        let file = lab.folder().join(format!("{}.toml", NAMES[side.index()]));
        let before = fs::read_to_string(&file)?;
        configure(lab, side, &(before + tables))?;
        let mut command = Command::new(&self.program);
        command.args(["reload", NAMES[side.index()], "--run-dir"]);
        command.arg(&self.run_folders[side.index()]);
        process::run(&mut command, SHORT)?;
        Ok(())
    }

    /// Leaves them running.
    pub fn detach(self) {
        self.daemons.into_iter().for_each(Running::detach);
    }

    /// Process ids.
    pub fn process_ids(&self) -> [u32; 2] {
        [self.daemons[0].id(), self.daemons[1].id()]
    }

    /// What a gateway has logged.
    pub fn log(&self, side: Side) -> String {
        self.daemons[side.index()].stderr()
    }

    /// The daemon of one side, for those who want to stop or kill it.
    pub fn daemon(&mut self, side: Side) -> &mut Running {
        &mut self.daemons[side.index()]
    }

    fn wait_ready(&mut self, side: Side) -> Result<()> {
        let waited = interrupt::until("answer from a gateway", START, || {
            let daemon = &mut self.daemons[side.index()];
            if !daemon.is_running()? {
                bail!("`{}` ended: {}", daemon.label(), daemon.stderr().trim());
            }
            Ok(self.status(side).is_ok())
        });
        waited.with_context(|| format!("{}: {}", NAMES[side.index()], self.log(side).trim()))
    }
}

/// Both configurations, with fresh keys where `setup` seals.
///
/// # Errors
/// `weir keys generate` fails; its own words.
pub fn configurations(lab: &Lab, setup: &Setup) -> Result<[String; 2]> {
    let keys = match setup.protection {
        Protection::Plain => None,
        _ => Some(Keys::make(lab, setup)?),
    };
    let mut texts = Side::BOTH.map(|side| configuration(lab, side, setup, keys.as_ref()));
    texts[Side::A.index()] += &setup.tables_of_a;
    Ok(texts)
}

/// Writes the file that a gateway reads at its start and at SIGHUP; returns where.
///
/// # Errors
/// The disk refuses.
pub fn configure(lab: &Lab, side: Side, text: &str) -> Result<PathBuf> {
    let file = lab.folder().join(format!("{}.toml", NAMES[side.index()]));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn launch(lab: &Lab, setup: &Setup, side: Side) -> Result<Running> {
    let program = setup.program.display().to_string();
    let mut command = match setup.outlives_lab {
        true => lab.gateway(side).lasting_command(&program),
        false => lab.gateway(side).command(&program),
    };
    let file = lab.folder().join(format!("{}.toml", NAMES[side.index()]));
    Running::start(command.arg("up").arg(file))
}

/// The gateways' keys, made by `weir keys`.
enum Keys {
    /// By the side that seals: key file and SPI.
    Files([(PathBuf, u64); 2]),
    /// One for both, of tags.
    Shared(PathBuf),
    /// By side: identity file and public key. What both share; more lines.
    Identities { by_side: [(PathBuf, String); 2], preshared: PathBuf },
}

impl Keys {
    fn make(lab: &Lab, setup: &Setup) -> Result<Self> {
        let folder = lab.folder().join("keys");
        // Keys that exist are never overwritten; a lab makes fresh ones for each start.
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_dir_all(lab.folder().join("state"));
        match setup.keys {
            KeySource::Files if setup.protection == Protection::Tagged => {
                let file = folder.join("shared.tag");
                preshared(&file, &setup.program)?;
                Ok(Self::Shared(file))
            }
            KeySource::Files => Self::generate(&folder, setup),
            KeySource::Handshakes { .. } => Self::identities(&folder, &setup.program),
        }
    }

    fn identities(folder: &Path, program: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let identity = |name: &str| -> Result<(PathBuf, String)> {
            let file = folder.join(format!("{name}.identity"));
            let mut command = Command::new(program);
            let said = process::run(command.args(["keys", "identity"]).arg(&file), SHORT)?.stdout;
            Ok((file, said.trim().to_owned()))
        };
        let by_side = [identity(NAMES[0])?, identity(NAMES[1])?];
        let file = folder.join("shared.psk");
        preshared(&file, program)?;
        Ok(Self::Identities { by_side, preshared: file })
    }

    fn generate(folder: &Path, setup: &Setup) -> Result<Self> {
        let mut command = Command::new(&setup.program);
        command.args(["keys", "generate", NAMES[0], NAMES[1], "--cipher", &setup.cipher]);
        command.args(["--json", "--directory"]).arg(folder);
        let said = process::run(&mut command, SHORT)?.stdout;
        let made: Value = serde_json::from_str(&said).context("`weir keys` speaks JSON")?;
        let of = |name: &str| -> Result<(PathBuf, u64)> {
            let list = made.as_array().or_else(|| made["keys"].as_array());
            let key = list.into_iter().flatten().find(|key| key["from"] == name);
            let key = key.with_context(|| format!("no key from {name} in {said}"))?;
            let file = key["key_file"].as_str().context("a key has a file")?;
            Ok((PathBuf::from(file), key["spi"].as_u64().context("a key has an SPI")?))
        };
        Ok(Self::Files([of(NAMES[0])?, of(NAMES[1])?]))
    }
}

/// A secret that both gateways share.
fn preshared(file: &Path, program: &Path) -> Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let mut command = Command::new(program);
    process::run(command.args(["keys", "preshared"]).arg(file), SHORT)?;
    Ok(())
}

/// Where a gateway keeps its control socket and its locks: two gateways of a lab share one machine,
/// but are to believe otherwise.
pub fn run_folder(lab: &Lab, side: Side) -> PathBuf {
    lab.folder().join("run").join(NAMES[side.index()])
}

fn configuration(lab: &Lab, side: Side, setup: &Setup, keys: Option<&Keys>) -> String {
    let name = NAMES[side.index()];
    let state_folder = lab.folder().join("state").join(name);
    let mut text = format!(
        "[gateway]\n\
         name = \"{name}\"\n\
         state_dir = \"{}\"\n\
         run_dir = \"{}\"\n\
         \n\
         [[pair]]\n\
         host = \"{HOST_PORT}\"\n\
         wire = \"{WIRE_PORT}\"\n\
         {}",
        state_folder.display(),
        run_folder(lab, side).display(),
        setup.pair_lines,
    );
    if let Some(driver) = &setup.driver {
        text += &format!("driver = \"{driver}\"\n");
    }
    if matches!(setup.protection, Protection::Plain | Protection::Sealed | Protection::SealedInUdp)
    {
        text += &format!("address = \"{}/24\"\n", GATEWAY_V4[side.index()]);
    }
    match keys {
        None => text + "default = \"forward\"\n" + &setup.tables,
        Some(keys) => text + &peer(side, setup, keys) + &setup.tables,
    }
}

/// The `[[peer]]` of the gateway on `side`.
fn peer(side: Side, setup: &Setup, keys: &Keys) -> String {
    let other = side.other().index();
    let protection = setup.protection;
    let hosts = format!("protects = [\"{}/32\", \"{}/128\"]\n", HOST_V4[other], HOST_V6[other]);
    let place = match protection {
        Protection::BorrowedTunnel => format!("mode = \"tunnel\"\n{hosts}"),
        Protection::BorrowedTransport => format!("mode = \"transport\"\n{hosts}"),
        Protection::Tagged => {
            let tag = match keys {
                Keys::Shared(file) => format!("key_file = \"{}\", ", file.display()),
                _ => String::new(),
            };
            format!(
                "mode = \"icrc-tag\"\nweaker_than_esp = true\ntag = {{ {tag}other = \"clear\" }}\n\
                 {hosts}"
            )
        }
        Protection::Plain | Protection::Sealed | Protection::SealedInUdp => {
            let in_udp = protection == Protection::SealedInUdp;
            let udp = if in_udp { "encapsulation = \"udp\"\n" } else { "" };
            let endpoint = GATEWAY_V4[other];
            format!(
                "endpoint = \"{endpoint}\"\nmode = \"ethernet\"\nprotects = \"everything\"\n{udp}"
            )
        }
    };
    let keys = match (keys, &setup.keys) {
        (Keys::Shared(_), _) => String::new(),
        (Keys::Files(by_sender), _) => {
            let association = |sender: Side| {
                let (file, spi) = &by_sender[sender.index()];
                let cipher = &setup.cipher;
                format!(
                    "{{ spi = {spi}, cipher = \"{cipher}\", key_file = \"{}\" }}",
                    file.display()
                )
            };
            format!("seal = {}\nopen = {}\n", association(side), association(side.other()))
        }
        (Keys::Identities { by_side, preshared }, source) => {
            let (lines, peer_lines) = match source {
                KeySource::Handshakes { lines, peer_lines } => {
                    (lines.as_str(), peer_lines.as_str())
                }
                KeySource::Files => ("", ""),
            };
            format!(
                "public_key = \"{}\"\npreshared_key_file = \"{}\"\n{peer_lines}\n\
                 [keying]\nidentity_file = \"{}\"\n{lines}",
                by_side[other].1,
                preshared.display(),
                by_side[side.index()].0.display(),
            )
        }
    };
    format!("\n[[peer]]\nname = \"{}\"\n{place}{keys}", NAMES[other])
}
