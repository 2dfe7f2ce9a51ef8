//! Both ends of the tunnels, by whose they are.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64ct::{Base64, Encoding};
use weir_engine::tunnel::key::{Identity, PresharedKey, PublicKey};

use super::swarm::{self, Swarm};
use super::{By, Compression, Endpoint, Tunnels};
use crate::gateways::{configure, run_folder};
use crate::interrupt;
use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};
use crate::topology::{GATEWAY_V4, HOST_DEVICE, HOST_PORT, HOST_V4, Lab, Side, WIRE_PORT};
use crate::vpn::{Client, Concentrator, POOL, PORT};
use crate::wireguard;

/// A tunnel that is not up by then will not be.
const UP: Duration = Duration::from_secs(60);
/// Of gateway A on host A's side, where the kernel forwards.
const NEAR_V4: &str = "10.77.0.254";
/// The first port of OpenVPN's processes.
const OPENVPN_PORT: u16 = 20_000;
/// Addresses of clients that are one process.
const SWARM: &str = "10.100.0.0/16";
/// Addresses of the last byte that are used.
const BYTE_MAX: usize = 250;

/// Tunnels that stand. Dropping it ends them.
pub(super) struct Ends {
    by: By,
    /// Where streams come from: an address and its device, or an address.
    pub(super) sources: Vec<String>,
    /// Programs where the tunnels end; those of clients.
    servers: Vec<Running>,
    others: Vec<Running>,
    concentrator: Option<u32>,
    /// All clients in one process, where there are too many for processes of their own.
    pub(super) swarm: Option<Swarm>,
    // Held for their drop, clients first.
    _clients: Vec<Client>,
    _concentrator: Option<Concentrator>,
}

/// The address of tunnel `number` behind the Weir of `side`.
pub(super) fn behind_weir(side: Side, number: usize) -> Ipv4Addr {
    let first = 16 * (1 + side.index());
    Ipv4Addr::new(10, 77, (first + number / BYTE_MAX) as u8, (number % BYTE_MAX + 1) as u8)
}

impl Ends {
    pub(super) fn start(step: &Tunnels, lab: &Lab, program: &Path) -> Result<Self> {
        let mut ends = Self {
            by: step.by,
            sources: Vec::new(),
            servers: Vec::new(),
            others: Vec::new(),
            concentrator: None,
            swarm: None,
            _clients: Vec::new(),
            _concentrator: None,
        };
        match step.by {
            By::WeirEsp => ends.weir_esp(step, lab, program)?,
            By::WeirWireguard => ends.weir_wireguard(step, lab, program)?,
            By::WireguardGo => ends.wireguard_go(step, lab)?,
            _ => ends.openvpn(step, lab)?,
        }
        Ok(ends)
    }

    /// Where streams begin.
    pub(super) fn clients<'a>(&self, lab: &'a Lab) -> &'a Namespace {
        match self.by {
            By::WeirEsp => lab.host(Side::B),
            _ => lab.gateway(Side::B),
        }
    }

    pub(super) fn endpoint_processes(&self) -> Vec<u32> {
        self.servers.iter().map(Running::id).chain(self.concentrator).collect()
    }

    /// Waits until something goes through each; of very many, through the first, last and middle.
    pub(super) fn wait_up(&self, lab: &Lab) -> Result<()> {
        if self.swarm.is_some() {
            // Each has had its answer.
            return Ok(());
        }
        let count = self.sources.len();
        let some = [0, count / 2, count - 1];
        let all: Vec<usize> = if count > 16 { some.into() } else { (0..count).collect() };
        for number in all {
            let source = &self.sources[number];
            let from = source.split_once('%').map_or(source.as_str(), |(_, device)| device);
            let target = match self.by {
                By::WeirEsp => behind_weir(Side::A, number),
                _ => HOST_V4[0],
            };
            interrupt::until(&format!("an answer through tunnel {}", number + 1), UP, || {
                let ping = format!("ping -c 1 -W 1 -I {from} {target}");
                Ok(self.clients(lab).run(&ping).is_ok())
            })
            .with_context(|| self.words())?;
        }
        Ok(())
    }

    fn words(&self) -> String {
        let all = self.servers.iter().chain(&self.others);
        let said = all.map(|it| format!("$ {}\n{}{}", it.label(), it.stdout(), it.stderr()));
        said.collect::<Vec<_>>().join("\n")
    }

    /// What the programs said, among the raw data.
    pub(super) fn save_words(&self, raw: &Path) -> Result<()> {
        fs::write(raw.join("tunnels.txt"), self.words())?;
        Ok(())
    }

    fn weir_wireguard(&mut self, step: &Tunnels, lab: &Lab, program: &Path) -> Result<()> {
        if step.is_swarm() {
            return self.swarm_to_weir(step, lab, program);
        }
        let mut gateway = Concentrator::start(lab, program, "")?;
        self.concentrator = Some(gateway.daemon().id());
        for number in 0..step.tunnels as usize {
            let file = gateway.add(&format!("client-{number}"))?;
            self.client(step, lab, number, &file)?;
        }
        self._concentrator = Some(gateway);
        Ok(())
    }

    fn client(&mut self, step: &Tunnels, lab: &Lab, number: usize, file: &str) -> Result<()> {
        let client = Client::start(lab, number, file)?;
        let port = client.port();
        Client::namespace(lab).ip(&format!("link set {port} mtu {}\n", step.mtu))?;
        self.sources.push(format!("{}%{port}", client.address()));
        self._clients.push(client);
        Ok(())
    }

    /// Clients as files, as `weir vpn add` makes them.
    fn swarm_to_weir(&mut self, step: &Tunnels, lab: &Lab, program: &Path) -> Result<()> {
        let identities = swarm::identities(step.tunnels as usize)?;
        let clients = lab.folder().join("clients");
        fs::create_dir_all(&clients)?;
        let (preshared, secret_text) = swarm::preshared();
        for (number, identity) in identities.iter().enumerate() {
            let file = clients.join(format!("client-{number}.toml"));
            let text = format!(
                "public_key = \"{}\"\naddresses = [\"{}/32\"]\n\
                 created = \"2026-01-01T00:00:00Z\"\n",
                Base64::encode_string(&identity.public().0),
                swarm::address(number),
            );
            fs::write(file, text)?;
            let secret = clients.join(format!("client-{number}.psk"));
            fs::write(&secret, format!("{secret_text}\n"))?;
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        }
        let mut gateway = Concentrator::start(lab, program, "")?;
        self.concentrator = Some(gateway.daemon().id());
        self._concentrator = Some(gateway);
        lab.host(Side::A).ip(&format!("route add {SWARM} dev {HOST_DEVICE}\n"))?;
        let mut command = Command::new(program);
        command.args(["keys", "public"]).arg(lab.folder().join("gw-a.identity"));
        let server = process::run(&mut command, SHORT)?.stdout;
        self.connect_swarm(lab, &identities, server.trim(), preshared)
    }

    fn connect_swarm(
        &mut self,
        lab: &Lab,
        identities: &[Identity],
        server: &str,
        preshared: PresharedKey,
    ) -> Result<()> {
        let namespace = lab.gateway(Side::B);
        let [_, own] = GATEWAY_V4;
        namespace.ip(&format!("addr replace {own}/24 dev {WIRE_PORT}\n"))?;
        let mut key = [0; 32];
        let decoded = Base64::decode(server, &mut key);
        decoded.ok().with_context(|| format!("the server's key is no key: {server}"))?;
        let server = swarm::Server { public: PublicKey(key), preshared };
        self.swarm = Some(Swarm::connect(namespace, identities, &server)?);
        Ok(())
    }

    fn swarm_to_wireguard_go(
        &mut self,
        step: &Tunnels,
        lab: &Lab,
        (server, port, public): (&Namespace, &str, &str),
    ) -> Result<()> {
        let identities = swarm::identities(step.tunnels as usize)?;
        let mut text = String::new();
        let (preshared, secret_text) = swarm::preshared();
        for (number, identity) in identities.iter().enumerate() {
            text += &format!(
                "[Peer]\nPublicKey = {}\nPresharedKey = {secret_text}\nAllowedIPs = {}/32\n",
                Base64::encode_string(&identity.public().0),
                swarm::address(number)
            );
        }
        let file = lab.folder().join("peers.conf");
        fs::write(&file, text)?;
        server.run(&format!("wg addconf {port} {}", file.display()))?;
        server.ip(&format!("route add {SWARM} dev {port}\n"))?;
        self.connect_swarm(lab, &identities, public, preshared)
    }

    fn wireguard_go(&mut self, step: &Tunnels, lab: &Lab) -> Result<()> {
        let server = endpoint(step, lab, &[POOL])?;
        let (secret, public) = key_pair()?;
        let port = format!("wgs{}", lab.id().replace('.', "x"));
        let mut command = server.command(&wireguard::program()?.display().to_string());
        self.servers.push(Running::start(command.args(["-f", &port]))?);
        let socket = format!("/var/run/wireguard/{port}.sock");
        interrupt::until("wireguard-go's port", SHORT, || Ok(Path::new(&socket).exists()))?;
        let key = lab.folder().join("server.key");
        fs::write(&key, &secret)?;
        server.run(&format!("wg set {port} private-key {} listen-port {PORT}", key.display()))?;
        server
            .ip(&format!("link set {port} mtu {} up\nroute add {POOL} dev {port}\n", step.mtu))?;
        if step.is_swarm() {
            return self.swarm_to_wireguard_go(step, lab, (server, &port, &public));
        }
        for number in 0..step.tunnels as usize {
            let (secret, client) = key_pair()?;
            let own = format!("10.99.0.{}", number + 1);
            server.run(&format!("wg set {port} peer {client} allowed-ips {own}/32"))?;
            let file = format!(
                "[Interface]\nPrivateKey = {secret}\nAddress = {own}/32\n\n[Peer]\n\
                 PublicKey = {public}\nEndpoint = {}:{PORT}\nAllowedIPs = 10.77.0.0/24\n",
                GATEWAY_V4[0]
            );
            self.client(step, lab, number, &file)?;
        }
        Ok(())
    }

    /// As the paper had it: a process at both ends of each tunnel, one static key.
    fn openvpn(&mut self, step: &Tunnels, lab: &Lab) -> Result<()> {
        let server = endpoint(step, lab, &["10.98.0.0/16"])?;
        let client = lab.gateway(Side::B);
        client.ip(&format!("addr add {}/24 dev {WIRE_PORT}\n", GATEWAY_V4[1]))?;
        let key = lab.folder().join("static.key");
        let mut command = Command::new("openvpn");
        process::run(command.args(["--genkey", "secret"]).arg(&key), SHORT)?;
        for number in 0..step.tunnels as usize {
            for side in Side::BOTH {
                let place = if side == Side::A { server } else { client };
                let mut command = place.command("openvpn");
                command.args(openvpn_arguments(step, side, number)).arg("--secret").arg(&key);
                let running = Running::start(&mut command)?;
                if side == Side::A { &mut self.servers } else { &mut self.others }.push(running);
            }
            self.sources.push(format!("10.98.{number}.2%ovpn{number}"));
        }
        for daemon in self.servers.iter_mut().chain(&mut self.others) {
            daemon.wait_for("Initialization Sequence Completed", UP)?;
        }
        for number in 0..step.tunnels {
            client.ip(&format!("route append 10.77.0.0/24 dev ovpn{number}\n"))?;
        }
        Ok(())
    }

    fn weir_esp(&mut self, step: &Tunnels, lab: &Lab, program: &Path) -> Result<()> {
        let count = step.tunnels as usize;
        let keys = lab.folder().join("keys");
        fs::create_dir_all(&keys)?;
        let mut random = crate::study::order::Draws::new(u64::from(std::process::id()));
        for number in 0..count {
            for side in Side::BOTH {
                // AES-256 and 4 bytes of salt, for a lab that ends with its trial.
                let words: Vec<String> =
                    (0..9).map(|_| format!("{:08x}", random.bits() as u32)).collect();
                let file = keys.join(key_name(side, number));
                fs::write(&file, words.concat() + "\n")?;
                fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
            }
        }
        for side in Side::BOTH {
            let text = weir_configuration(lab, side, count, &keys);
            let file = configure(lab, side, &text)?;
            let mut command = lab.gateway(side).command(&program.display().to_string());
            let running = Running::start(command.arg("up").arg(file))?;
            if side == Side::A { &mut self.servers } else { &mut self.others }.push(running);
        }
        for daemon in self.servers.iter_mut().chain(&mut self.others) {
            daemon.wait_for("ready", UP)?;
        }
        for side in Side::BOTH {
            let mut lines = String::new();
            for number in 0..count {
                lines += &format!("addr add {}/32 dev {HOST_DEVICE}\n", behind_weir(side, number));
            }
            let other = side.other();
            let first = 16 * (1 + other.index());
            // By one neighbour: a thousand would overflow the kernel's table of them.
            lines += &format!(
                "route add 10.77.{first}.0/20 via {} dev {HOST_DEVICE} congctl cubic\n",
                HOST_V4[other.index()]
            );
            lab.host(side).ip(&lines)?;
        }
        self.sources = (0..count).map(|it| behind_weir(Side::B, it).to_string()).collect();
        Ok(())
    }
}

/// The namespace where tunnels end, on the wire by the gateway's address; host A has routes back
/// into `networks`.
fn endpoint<'a>(step: &Tunnels, lab: &'a Lab, networks: &[&str]) -> Result<&'a Namespace> {
    let ([own, _], gateway, host) = (GATEWAY_V4, lab.gateway(Side::A), lab.host(Side::A));
    if step.endpoint == Endpoint::Host {
        gateway.ip(&format!(
            "link add br0 type bridge stp_state 0 mcast_snooping 0\n\
             link set {HOST_PORT} master br0\nlink set {WIRE_PORT} master br0\nlink set br0 up\n"
        ))?;
        host.ip(&format!("addr add {own}/24 dev {HOST_DEVICE}\n"))?;
        return Ok(host);
    }
    gateway.set(&[("net.ipv4.ip_forward", "1")])?;
    gateway.ip(&format!(
        "addr add {own}/24 dev {WIRE_PORT}\naddr add {NEAR_V4}/32 dev {HOST_PORT}\n\
         route add {}/32 dev {HOST_PORT}\n",
        HOST_V4[0]
    ))?;
    for network in networks {
        host.ip(&format!("route add {network} via {NEAR_V4}\n"))?;
    }
    Ok(gateway)
}

fn openvpn_arguments(step: &Tunnels, side: Side, number: usize) -> Vec<String> {
    let (own, other) = (side.index(), side.other().index());
    let port = OPENVPN_PORT + number as u16;
    let cipher = step.by.openvpn_cipher().unwrap_or("none");
    let mut line = format!(
        "--dev ovpn{number} --dev-type tun --proto udp4 --local {} --remote {} --lport {port} \
         --rport {port} --ifconfig 10.98.{number}.{} 10.98.{number}.{} --cipher {cipher} \
         --tun-mtu {} --mssfix 0 --disable-dco --verb 3",
        GATEWAY_V4[own],
        GATEWAY_V4[other],
        own + 1,
        other + 1,
        step.mtu,
    );
    if cipher == "none" {
        // No encryption at all is what the paper compares with: no authentication either.
        line += " --auth none";
    }
    if step.compression == Compression::Lz4V2 {
        line += " --compress lz4-v2 --allow-compression yes";
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// A WireGuard key pair.
fn key_pair() -> Result<(String, String)> {
    let secret = process::run(Command::new("wg").arg("genkey"), SHORT)?.stdout;
    let mut command = Command::new("wg");
    let public = process::run_with_input(command.arg("pubkey"), &secret, SHORT)?.stdout;
    ensure!(!public.trim().is_empty(), "wg gave no key");
    Ok((secret.trim().to_owned(), public.trim().to_owned()))
}

/// The key that `sender` seals tunnel `number` with.
fn key_name(sender: Side, number: usize) -> String {
    format!("{sender:?}{number}.key")
}

fn weir_configuration(lab: &Lab, side: Side, count: usize, keys: &Path) -> String {
    let other = side.other();
    let mut text = format!(
        "[gateway]\nname = \"gw-{side:?}\"\nstate_dir = \"{}\"\nrun_dir = \"{}\"\n\n\
         [[pair]]\nhost = \"{HOST_PORT}\"\nwire = \"{WIRE_PORT}\"\naddress = \"{}/24\"\n",
        lab.folder().join(format!("state{side:?}")).display(),
        run_folder(lab, side).display(),
        GATEWAY_V4[side.index()],
    );
    for number in 0..count {
        let association = |sender: Side| {
            format!(
                "{{ spi = {}, cipher = \"aes-256-gcm\", key_file = \"{}\" }}",
                0x1_0000 + 2 * number + sender.index(),
                keys.join(key_name(sender, number)).display()
            )
        };
        // Hosts find each other through the first tunnel.
        let host = HOST_V4[other.index()];
        let host = if number == 0 { format!("\"{host}/32\", ") } else { String::new() };
        text += &format!(
            "\n[[peer]]\nname = \"tunnel-{number}\"\nendpoint = \"{}\"\nmode = \"tunnel\"\n\
             protects = [{host}\"{}/32\"]\nseal = {}\nopen = {}\n",
            GATEWAY_V4[other.index()],
            behind_weir(other, number),
            association(side),
            association(other),
        );
    }
    text
}
