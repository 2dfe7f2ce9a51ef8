//! Weir as the client of a concentrator: `mode = "wireguard"` at a peer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::gateways::{configure, run_folder};
use crate::netns::SHORT;
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, HOST_PORT, HOST_V4, Lab, Plan, Side, WIRE_PORT};
use crate::vpn::{Concentrator, PORT};
use crate::{interrupt, wireguard};

/// A tunnel that is not up by then will not be.
const UP: Duration = Duration::from_secs(30);

/// A lab whose host B reaches host A by a Weir that is the client of a concentrator.
///
/// ```text
///   host A ---- the concentrator ==== WireGuard ==== weir, mode = "wireguard" ---- host B
/// ```
#[derive(Debug)]
pub struct Tunnelled {
    lab: Lab,
    // Held for their drop.
    _concentrator: Ended,
    _client: Running,
}

/// Who ends the tunnel before host A.
#[derive(Debug)]
enum Ended {
    Weir { _gateway: Concentrator },
    WireguardGo { _daemon: Running },
}

impl Tunnelled {
    /// Both ends are Weir's.
    ///
    /// # Errors
    /// A gateway does not start, or the tunnel does not come up.
    pub fn by_weir(program: &Path) -> Result<Self> {
        let lab = Lab::build(Plan::default())?;
        let (identity, public) = identity(&lab, program, "client")?;
        let clients = lab.folder().join("clients");
        fs::create_dir_all(&clients)?;
        let secret = clients.join("client.psk");
        let mut command = Command::new(program);
        process::run(command.args(["keys", "preshared"]).arg(&secret), SHORT)?;
        let [_, host] = HOST_V4;
        let text = format!(
            "public_key = \"{public}\"\naddresses = [\"{host}/32\"]\n\
             created = \"2026-01-01T00:00:00Z\"\n"
        );
        fs::write(clients.join("client.toml"), text)?;
        let gateway = Concentrator::start(&lab, program, "")?;
        let concentrator = public_key(program, &lab.folder().join("gw-a.identity"))?;
        let secret = format!("preshared_key_file = \"{}\"\n", secret.display());
        let client = client(&lab, program, &identity, &concentrator, &secret)?;
        Self::up(Self { lab, _concentrator: Ended::Weir { _gateway: gateway }, _client: client })
    }

    /// The concentrator is wireguard-go.
    ///
    /// # Errors
    /// The same, or wireguard-go or wireguard-tools are missing.
    pub fn by_wireguard_go(program: &Path) -> Result<Self> {
        process::require(&["wg"])?;
        let lab = Lab::build(Plan::default())?;
        let (identity, public) = identity(&lab, program, "client")?;
        let key = lab.folder().join("concentrator.key");
        let secret = process::run(Command::new("wg").arg("genkey"), SHORT)?.stdout;
        fs::write(&key, &secret)?;
        let mut command = Command::new("wg");
        let own = process::run_with_input(command.arg("pubkey"), &secret, SHORT)?.stdout;
        let (gateway, port) = (lab.gateway(Side::A), format!("wgs{}", lab.id()));
        let mut command = gateway.command(&wireguard::program()?.display().to_string());
        let daemon = Running::start(command.args(["-f", &port]))?;
        let socket = format!("/var/run/wireguard/{port}.sock");
        interrupt::until("wireguard-go's port", SHORT, || Ok(Path::new(&socket).exists()))?;
        let ([near, far], [address, _]) = (HOST_V4, GATEWAY_V4);
        gateway.run(&format!(
            "wg set {port} private-key {} listen-port {PORT} peer {public} allowed-ips {far}/32",
            key.display()
        ))?;
        // Hosts are one subnet: the gateway answers for the far one, as Weir does.
        gateway.set(&[
            ("net.ipv4.ip_forward", "1"),
            (&format!("net.ipv4.conf.{HOST_PORT}.proxy_arp"), "1"),
        ])?;
        let mtu = lab.plan().wire_mtu - wireguard::OVERHEAD;
        gateway.ip(&format!(
            "addr add {address}/24 dev {WIRE_PORT}\nroute add {near}/32 dev {HOST_PORT}\n\
             link set {port} mtu {mtu} up\nroute add {far}/32 dev {port}\n"
        ))?;
        let client = client(&lab, program, &identity, own.trim(), "")?;
        let concentrator = Ended::WireguardGo { _daemon: daemon };
        Self::up(Self { lab, _concentrator: concentrator, _client: client })
    }

    /// Where it stands.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    fn up(self) -> Result<Self> {
        let [near, _] = HOST_V4;
        let host = self.lab.host(Side::B);
        interrupt::until("the tunnel", UP, || {
            Ok(host.run(&format!("ping -c 1 -W 1 {near}")).is_ok())
        })?;
        Ok(self)
    }
}

/// An identity file and its public key.
fn identity(lab: &Lab, program: &Path, name: &str) -> Result<(PathBuf, String)> {
    let file = lab.folder().join(format!("{name}.identity"));
    let mut command = Command::new(program);
    process::run(command.args(["keys", "identity"]).arg(&file), SHORT)?;
    let public = public_key(program, &file)?;
    Ok((file, public))
}

fn public_key(program: &Path, file: &Path) -> Result<String> {
    let mut command = Command::new(program);
    Ok(process::run(command.args(["keys", "public"]).arg(file), SHORT)?.stdout.trim().to_owned())
}

/// Weir at side B, the client of `concentrator` at side A.
fn client(
    lab: &Lab,
    program: &Path,
    identity: &Path,
    concentrator: &str,
    peer_lines: &str,
) -> Result<Running> {
    let ([near, _], [remote, own]) = (HOST_V4, GATEWAY_V4);
    let text = format!(
        "[gateway]\nname = \"gw-b\"\nstate_dir = \"{}\"\nrun_dir = \"{}\"\n\n\
         [keying]\nidentity_file = \"{}\"\n\n\
         [[pair]]\nhost = \"{HOST_PORT}\"\nwire = \"{WIRE_PORT}\"\naddress = \"{own}/24\"\n\n\
         [[peer]]\nname = \"concentrator\"\nmode = \"wireguard\"\nendpoint = \"{remote}\"\n\
         public_key = \"{concentrator}\"\nprotects = [\"{near}/32\"]\n{peer_lines}",
        lab.folder().join("state-client").display(),
        run_folder(lab, Side::B).display(),
        identity.display(),
    );
    let config = configure(lab, Side::B, &text)?;
    let mut command = lab.gateway(Side::B).command(&program.display().to_string());
    Running::start(command.arg("up").arg(config))
}
