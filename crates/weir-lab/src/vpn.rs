//! A VPN client of a gateway: wireguard-go, configured with what `weir vpn add` printed.
//!
//! ```text
//!   host A ---- gateway A (weir, [pair.vpn]) ==== wire ==== gateway B's namespace: wireguard-go
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::gateways::{configure, run_folder};
use crate::interrupt;
use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, HOST_DEVICE, HOST_PORT, Lab, Side, WIRE_PORT};
use crate::wireguard;

/// The network that clients get addresses of.
pub const POOL: &str = "10.99.0.0/24";
/// The same of IPv6.
pub const POOL_V6: &str = "fd99::/64";
/// Port of the gateway's handshakes and data.
pub const PORT: u16 = 51840;
/// A gateway that does not answer by then will not.
const START: std::time::Duration = std::time::Duration::from_secs(20);

/// A gateway for clients, at side A of a lab with empty gateways.
#[derive(Debug)]
pub struct Concentrator {
    daemon: Running,
    program: PathBuf,
    config: PathBuf,
    run_folder: PathBuf,
}

impl Concentrator {
    /// Starts it; `pair_lines` are more lines of its `[[pair]]`. The host gets a route to the
    /// clients.
    ///
    /// # Errors
    /// It does not start; its own words.
    pub fn start(lab: &Lab, program: &Path, pair_lines: &str) -> Result<Self> {
        Self::start_with(lab, program, pair_lines, "")
    }

    /// The same; `vpn_lines` are more lines of its `[pair.vpn]`.
    ///
    /// # Errors
    /// As of [`Concentrator::start`].
    pub fn start_with(
        lab: &Lab,
        program: &Path,
        pair_lines: &str,
        vpn_lines: &str,
    ) -> Result<Self> {
        let identity = lab.folder().join("gw-a.identity");
        let mut command = Command::new(program);
        process::run(command.args(["keys", "identity"]).arg(&identity), SHORT)?;
        let [own, _] = GATEWAY_V4;
        let folder = lab.folder();
        let run_folder = run_folder(lab, Side::A);
        let text = format!(
            "[gateway]\nname = \"gw-a\"\nstate_dir = \"{}\"\nrun_dir = \"{}\"\n\n\
             [keying]\nidentity_file = \"{}\"\n\n\
             [[pair]]\nhost = \"{HOST_PORT}\"\nwire = \"{WIRE_PORT}\"\naddress = \"{own}/24\"\n\
             {pair_lines}\n[pair.vpn]\nclients = \"{}\"\npool = [\"{POOL}\", \"{POOL_V6}\"]\n\
             endpoint = \"{own}:{PORT}\"\nroutes = [\"10.77.0.0/24\", \"fd77::/64\"]\n{vpn_lines}",
            folder.join("state-vpn").display(),
            run_folder.display(),
            identity.display(),
            folder.join("clients").display(),
        );
        let config = configure(lab, Side::A, &text)?;
        lab.host(Side::A).ip(&format!("route add {POOL} dev {HOST_DEVICE}\n"))?;
        let mut command = lab.gateway(Side::A).command(&program.display().to_string());
        let daemon = Running::start(command.arg("up").arg(&config))?;
        let mut gateway = Self { daemon, program: program.to_owned(), config, run_folder };
        interrupt::until("answer from the gateway", START, || {
            if !gateway.daemon.is_running()? {
                bail!("it ended: {}", gateway.daemon.stderr().trim());
            }
            Ok(gateway.status().is_ok())
        })?;
        Ok(gateway)
    }

    /// `weir status --json`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> Result<serde_json::Value> {
        let mut command = Command::new(&self.program);
        command.args(["status", "gw-a", "--json", "--run-dir"]).arg(&self.run_folder);
        let said = process::run(&mut command, SHORT)?.stdout;
        serde_json::from_str(&said).context("`weir status --json` speaks JSON")
    }

    /// `weir vpn add NAME`: the client's file.
    ///
    /// # Errors
    /// Its own words.
    pub fn add(&self, name: &str) -> Result<String> {
        Ok(self.vpn("add", &[name])?.stdout)
    }

    /// `weir vpn COMMAND CONFIG ARGUMENTS`.
    ///
    /// # Errors
    /// Its own words.
    pub fn vpn(&self, command: &str, arguments: &[&str]) -> Result<process::Finished> {
        let mut weir = Command::new(&self.program);
        weir.args(["vpn", command]).arg(&self.config).args(arguments);
        process::run(&mut weir, SHORT)
    }

    /// The gateway's process.
    pub fn daemon(&mut self) -> &mut Running {
        &mut self.daemon
    }

    /// Starts it again after its end.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self, lab: &Lab) -> Result<()> {
        let mut command = lab.gateway(Side::A).command(&self.program.display().to_string());
        self.daemon = Running::start(command.arg("up").arg(&self.config))?;
        interrupt::until("answer from the gateway", START, || Ok(self.status().is_ok()))
    }
}

/// A client: wireguard-go in gateway B's namespace, which is on the wire.
#[derive(Debug)]
pub struct Client {
    daemon: Running,
    port: String,
    addresses: Vec<String>,
}

impl Client {
    /// Starts it with the file that `weir vpn add` printed. `number` tells clients of one lab
    /// apart.
    ///
    /// # Errors
    /// wireguard-go or wireguard-tools are missing, or refuse the file.
    pub fn start(lab: &Lab, number: usize, file: &str) -> Result<Self> {
        let program = wireguard::program()?;
        Self::start_by(lab, number, file, &program, &["-f"])
    }

    /// The same by another program, which is told `arguments` and the port's name, and takes its
    /// configuration from `wg` as wireguard-go does.
    ///
    /// # Errors
    /// As [`Client::start`].
    pub fn start_by(
        lab: &Lab,
        number: usize,
        file: &str,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        process::require(&["wg"])?;
        let namespace = Self::namespace(lab);
        let port = format!("wgc{number}{}", lab.id().replace('.', "x"));
        if number == 0 {
            let [_, own] = GATEWAY_V4;
            namespace
                .ip(&format!("addr add {own}/24 dev {WIRE_PORT}\nlink set {WIRE_PORT} up\n"))?;
        }
        let value = |key: &str| -> Result<String> {
            let line =
                file.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
            Ok(line.with_context(|| format!("no {key} in {file}"))?.trim().to_owned())
        };
        // What `wg-quick` does with a file: addresses and routes by iproute2, the rest by `wg`.
        let address = value("Address")?;
        let bare: Vec<&str> = file.lines().filter(|it| !it.starts_with("Address")).collect();
        let path = lab.folder().join(format!("client{number}.conf"));
        fs::write(&path, bare.join("\n") + "\n")?;
        let mut command = namespace.command(&program.display().to_string());
        let daemon = Running::start(command.args(arguments).arg(&port))?;
        interrupt::until("the client's port", SHORT, || {
            Ok(PathBuf::from(format!("/var/run/wireguard/{port}.sock")).exists())
        })?;
        namespace.run(&format!("wg setconf {port} {}", path.display()))?;
        let several = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let mut lines = format!("link set {port} mtu 1420 up\n");
        for address in several(&address) {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            lines += &format!("addr add {address} dev {port}{nodad}\n");
        }
        for network in several(&value("AllowedIPs")?) {
            lines += &format!("route append {network} dev {port}\n");
        }
        namespace.ip(&lines)?;
        let bare = |it: &String| it.split('/').next().unwrap_or_default().to_owned();
        let addresses = several(&address).iter().map(bare).collect();
        Ok(Self { daemon, port, addresses })
    }

    /// Where clients are.
    pub fn namespace(lab: &Lab) -> &Namespace {
        lab.gateway(Side::B)
    }

    /// Its IPv4 address inside the tunnel.
    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Its IPv6 address inside the tunnel.
    pub fn address_v6(&self) -> &str {
        &self.addresses[1]
    }

    /// What `wg show PORT WHAT` says: `latest-handshakes`, `transfer`.
    ///
    /// # Errors
    /// `wg`'s own words.
    pub fn wg(&self, lab: &Lab, what: &str) -> Result<String> {
        Ok(Self::namespace(lab).run(&format!("wg show {} {what}", self.port))?.stdout)
    }

    /// Its process.
    pub fn daemon(&mut self) -> &mut Running {
        &mut self.daemon
    }

    /// Its port's name.
    pub fn port(&self) -> &str {
        &self.port
    }
}
