//! The peer to beat: wireguard-go doing the gateways' job in the same namespaces.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::netns::SHORT;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, Gateways, Lab, Side};

const PORT: u16 = 51820;
/// What WireGuard adds over IPv6 at most, as `wg-quick` reckons it.
pub(crate) const OVERHEAD: u32 = 80;

/// Two wireguard-go processes with a tunnel between them. Dropping it ends them.
#[derive(Debug)]
pub struct Tunnel {
    daemons: Vec<Running>,
}

impl Tunnel {
    /// Starts the tunnel in a lab built with [`Gateways::Routed`].
    ///
    /// # Errors
    /// wireguard-go or wireguard-tools are missing, or the tunnel does not come up.
    pub fn start(lab: &Lab) -> Result<Self> {
        ensure!(lab.plan().gateways == Gateways::Routed, "wireguard-go needs routed gateways");
        process::require(&["wg"])?;
        let program = program()?;
        let mut keys = Vec::new();
        for side in Side::BOTH {
            let file = lab.folder().join(format!("wireguard{side:?}.key"));
            let secret = process::run(Command::new("wg").arg("genkey"), SHORT)?.stdout;
            fs::write(&file, &secret)?;
            let mut command = Command::new("wg");
            let public = process::run_with_input(command.arg("pubkey"), &secret, SHORT)?.stdout;
            keys.push((file, public.trim().to_owned()));
        }
        let mut daemons = Vec::new();
        for side in Side::BOTH {
            // The control socket's name is the port's, and its folder is the machine's.
            let port = format!("wg{side:?}{}", lab.id());
            let gateway = lab.gateway(side);
            let mut command = gateway.command(&program.display().to_string());
            // Its own event loop wants both cores, as the gateways under test have.
            let daemon = Running::start(command.args(["-f", &port]))?;
            crate::interrupt::until("wireguard-go's port", SHORT, || {
                Ok(PathBuf::from(format!("/var/run/wireguard/{port}.sock")).exists())
            })?;
            daemons.push(daemon);
            let own = &keys[side.index()].0.display().to_string();
            let peer = &keys[side.other().index()].1;
            let (remote, endpoint) = (1 + side.other().index(), GATEWAY_V4[side.other().index()]);
            gateway.run(&format!(
                "wg set {port} private-key {own} listen-port {PORT} peer {peer} \
                 allowed-ips 10.77.{remote}.0/24 endpoint {endpoint}:{PORT}"
            ))?;
            let mtu = lab.plan().wire_mtu - OVERHEAD;
            gateway.ip(&format!(
                "link set {port} mtu {mtu} up\nroute add 10.77.{remote}.0/24 dev {port}\n"
            ))?;
        }
        Ok(Self { daemons })
    }

    /// Resident memory of both processes, MiB.
    ///
    /// # Errors
    /// One has ended.
    pub fn resident_mib(&self) -> Result<f64> {
        self.daemons.iter().map(|daemon| process::resident_mib(daemon.id())).sum()
    }
}

/// The newest: `wireguard` (`go install golang.zx2c4.com/wireguard@latest`), or else
/// `wireguard-go` (Debian's is of 2022).
///
/// # Errors
/// Neither is there; says how to get it.
pub fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let go = std::env::var_os("GOPATH").map_or_else(|| home.join("go"), PathBuf::from);
    let folders: Vec<PathBuf> =
        [go.join("bin")].into_iter().chain(std::env::split_paths(&path)).collect();
    let named = |name: &'static str| folders.iter().map(move |folder| folder.join(name));
    let mut candidates = named("wireguard").chain(named("wireguard-go"));
    candidates.find(|candidate| candidate.is_file()).context(
        "no wireguard-go; try `go install golang.zx2c4.com/wireguard@latest` or \
         `apt-get install wireguard-go`",
    )
}

/// boringtun, another userspace implementation: `boringtun-cli`.
///
/// # Errors
/// It is not there; says how to get it.
pub fn boringtun() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let mut folders = [home.join(".cargo/bin")].into_iter().chain(std::env::split_paths(&path));
    folders
        .find_map(|folder| Some(folder.join("boringtun-cli")).filter(|it| it.is_file()))
        .context("no boringtun-cli; try `cargo install boringtun-cli --locked`")
}

/// What to call it beside a figure: `wireguard-go`, and its version as its module or itself says.
pub fn name() -> String {
    let version = || {
        let program = program().ok()?;
        let mut go = Command::new("go");
        let module = process::run(go.args(["version", "-m"]).arg(&program), SHORT).ok();
        let of_module = module.and_then(|said| {
            let line =
                said.stdout.lines().find_map(|it| it.trim().strip_prefix("mod\t"))?.to_owned();
            line.split_whitespace().nth(1).map(str::to_owned)
        });
        of_module.or_else(|| {
            let said = process::run(Command::new(&program).arg("--version"), SHORT).ok()?;
            said.stdout.lines().next()?.split_whitespace().nth(1).map(str::to_owned)
        })
    };
    version().map_or_else(|| "wireguard-go".to_owned(), |it| format!("wireguard-go {it}"))
}
