//! `weir vpn openvpn`: files for OpenVPN's own daemons, one server and one client a tunnel.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use zeroize::Zeroizing;

use super::write_secret;
use crate::cli::print_json;
use crate::config::address::Prefix;
use crate::config::openvpn::{FILE_ENDING, TunnelFile};

/// Bits of the network of one tunnel: OpenVPN's least for a server.
const TUNNEL_BITS: u32 = 29;

const OPENVPN_HELP: &str = "\
Each tunnel is a server of its own, with its own UDP port, network and keys; its client's file holds
all that the client needs. Both ends know each other by certificates' fingerprints (OpenVPN 2.6),
which the program `openssl` makes. A gateway whose configuration has

  [pair.openvpn]
  tunnels = \"DIR\"

runs the servers, and what comes out of the tunnels is metered and judged like everything else.

Examples:
  weir vpn openvpn --tunnels 16 --remote gw-a.example -o tunnels
  weir vpn openvpn --tunnels 20 --one-server --remote gw-a.example -o tunnels
  weir vpn openvpn --tunnels 1 --static-key --remote gw-a.example -o old
  weir vpn openvpn --tunnels 1 --remote 192.0.2.1 --cipher chacha20-poly1305 --mtu 1400 \\
      --route 10.0.0.0/8 -o tunnel

Exit codes:
  0  the files are written
  1  it failed; no file is left";

/// Arguments of `weir vpn openvpn`.
#[derive(Debug, Args)]
#[command(after_help = OPENVPN_HELP)]
pub struct OpenVpnArgs {
    /// How many tunnels, of one client each
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub tunnels: u16,
    /// One server with a pool for all clients instead of one each
    #[arg(long)]
    pub one_server: bool,
    /// One key for both ends instead of certificates: no forward secrecy, AES-256-CBC, routes in
    /// the client's file. For old clients
    #[arg(long, conflicts_with_all = ["one_server", "cipher"])]
    pub static_key: bool,
    /// Where clients reach the servers: a name or an address
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub remote: String,
    /// UDP port of the first tunnel; the others follow
    #[arg(long, default_value_t = 1194, value_parser = clap::value_parser!(u16).range(1024..))]
    pub port: u16,
    /// The network that tunnels get theirs of (IPv4), eight addresses each
    #[arg(long, default_value = "10.98.0.0/16")]
    pub network: Prefix,
    /// A network that clients send by the tunnel (IPv4); several are given one by one
    #[arg(long, value_name = "NETWORK")]
    pub route: Vec<Prefix>,
    /// What packets are sealed with
    #[arg(long, value_enum, default_value_t = Cipher::Aes256Gcm)]
    pub cipher: Cipher,
    /// The largest packet inside a tunnel, bytes
    #[arg(long, default_value_t = 1376, value_parser = clap::value_parser!(u16).range(576..=9000))]
    pub mtu: u16,
    /// The folder for the files (made with mode 700; theirs is 600)
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print the tunnels as JSON
    #[arg(long)]
    pub json: bool,
}

/// A cipher of OpenVPN's data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "they are called what they are")]
pub enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Cipher {
    fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "CHACHA20-POLY1305",
        }
    }
}

/// A name or address that can say nothing else in OpenVPN's file.
fn host(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(legal) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is no name and no address of a host")),
    }
}

/// A tunnel as `--json` prints it.
#[derive(Debug, Serialize)]
struct Tunnel {
    server: PathBuf,
    client: PathBuf,
    port: u16,
    network: String,
}

/// The place of a server: port, first address and length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerAddress {
    port: u16,
    network: Ipv4Addr,
    bits: u32,
}

pub(super) fn openvpn(args: &OpenVpnArgs) -> Result<ExitCode> {
    let places: Vec<ServerAddress> = match args.one_server {
        true => vec![pool(args)?],
        false => (0..args.tunnels).map(|number| place(args, number)).collect::<Result<_>>()?,
    };
    let routes: Vec<String> = args.route.iter().map(route).collect::<Result<_>>()?;
    let folder = &args.output;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut written = Vec::new();
    let mut tunnels = Vec::new();
    for (number, place) in (1..).zip(places) {
        match write_server(args, number, place, &routes, &mut written) {
            Ok(more) => tunnels.extend(more),
            Err(error) => {
                written.iter().for_each(|path| drop(fs::remove_file(path)));
                return Err(error);
            }
        }
    }
    if args.json {
        print_json(&tunnels)?;
        return Ok(ExitCode::SUCCESS);
    }
    for Tunnel { server, client, port, network } in tunnels {
        println!("{} {} port {port} network {network}", server.display(), client.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The place of the server of the tunnel with this number, from 0.
fn place(args: &OpenVpnArgs, number: u16) -> Result<ServerAddress> {
    let port = args.port.checked_add(number).context("not so many ports behind --port")?;
    let IpAddr::V4(first) = args.network.network() else { bail!("--network is not IPv4") };
    let spare_bits = TUNNEL_BITS.saturating_sub(u32::from(args.network.length_bits()));
    let is_wide = u32::from(args.network.length_bits()) <= TUNNEL_BITS;
    let room = if is_wide { 1_u64 << spare_bits } else { 0 };
    ensure!(u64::from(number) < room, "{} has room for {room} tunnels", args.network);
    let offset = u32::from(number) << (32 - TUNNEL_BITS);
    Ok(ServerAddress {
        port,
        network: Ipv4Addr::from(u32::from(first) + offset),
        bits: TUNNEL_BITS,
    })
}

/// The place of the server for all clients: network, server, broadcast and each client need one.
fn pool(args: &OpenVpnArgs) -> Result<ServerAddress> {
    let IpAddr::V4(network) = args.network.network() else { bail!("--network is not IPv4") };
    let bits = u32::from(args.network.length_bits());
    let room = (1_u64 << 32_u32.saturating_sub(bits)).saturating_sub(3);
    ensure!(
        bits <= TUNNEL_BITS && u64::from(args.tunnels) <= room,
        "{} has room for {room} clients",
        args.network
    );
    Ok(ServerAddress { port: args.port, network, bits })
}

/// A network as OpenVPN writes it.
fn route(network: &Prefix) -> Result<String> {
    let IpAddr::V4(first) = network.network() else { bail!("--route {network} is not IPv4") };
    Ok(format!("{first} {}", mask(u32::from(network.length_bits()))))
}

fn mask(length_bits: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - length_bits).unwrap_or_default())
}

/// Writes the files of a server and of its clients; `written` learns of each.
fn write_server(
    args: &OpenVpnArgs,
    number: u16,
    place: ServerAddress,
    routes: &[String],
    written: &mut Vec<PathBuf>,
) -> Result<Vec<Tunnel>> {
    let server = args.output.join(format!("server-{number}.conf"));
    let clients = if args.one_server { 1..=args.tunnels } else { number..=number };
    let client = |number: u16| args.output.join(format!("client-{number}.conf"));
    let mut write = |path: &Path, text: &str| {
        write_secret(path, text.as_bytes())?;
        written.push(path.to_owned());
        anyhow::Ok(())
    };
    if args.static_key {
        let key = static_key()?;
        let [of_server, of_client] = static_texts(args, number, place, routes, &key)?;
        write(&server, &of_server)?;
        write(&client(number), &of_client)?;
    } else {
        let own = Certified::make(&format!("server-{number}"))?;
        let mut fingerprints = String::new();
        for number in clients.clone() {
            let keys = Certified::make(&format!("client-{number}"))?;
            writeln!(fingerprints, "{}", keys.fingerprint)?;
            let head = format!(
                "# A client of tunnel {number}\nclient\ndev tun\n{}remote {} {}\nnobind\n",
                common(args),
                args.remote,
                place.port,
            );
            write(&client(number), &with_keys(&head, &keys, &own.fingerprint))?;
        }
        let head = server_head(args, number, place, routes)?;
        write(&server, &with_keys(&head, &own, fingerprints.trim()))?;
    }
    let network = format!("{}/{}", place.network, place.bits);
    let tunnel = TunnelFile {
        server: PathBuf::from(format!("server-{number}.conf")),
        device: device(number),
        port: place.port,
        networks: vec![network.parse().map_err(anyhow::Error::msg)?],
        mtu: args.mtu,
        limit: None,
        reach: Vec::new(),
    };
    // Last: a tunnel is known by it.
    let text = toml::to_string(&tunnel).context("a tunnel as TOML")?;
    write(&args.output.join(format!("tunnel-{number}.{FILE_ENDING}")), &text)?;
    let of = |number| Tunnel {
        server: server.clone(),
        client: client(number),
        port: place.port,
        network: network.clone(),
    };
    Ok(clients.map(of).collect())
}

fn device(number: u16) -> String {
    format!("weir-ovpn{number}")
}

/// What both ends say.
fn common(args: &OpenVpnArgs) -> String {
    format!("proto udp\ndata-ciphers {}\ntun-mtu {}\n", args.cipher.name(), args.mtu)
}

fn server_head(
    args: &OpenVpnArgs,
    number: u16,
    ServerAddress { port, network, bits }: ServerAddress,
    routes: &[String],
) -> Result<String> {
    let mut head = format!(
        "# The server of tunnel {number}\ndev {}\ndev-type tun\n{}port {port}\n\
         topology subnet\nserver {network} {}\ndh none\nkeepalive 10 60\n",
        device(number),
        common(args),
        mask(bits),
    );
    for route in routes {
        writeln!(head, "push \"route {route}\"")?;
    }
    Ok(head)
}

fn with_keys(head: &str, own: &Certified, others: &str) -> Zeroizing<String> {
    Zeroizing::new(format!(
        "{head}persist-tun\nverb 3\n{}<peer-fingerprint>\n{others}\n</peer-fingerprint>\n",
        own.inline().as_str(),
    ))
}

/// The files of both ends where one key is for all: the server's, the client's.
fn static_texts(
    args: &OpenVpnArgs,
    number: u16,
    place: ServerAddress,
    routes: &[String],
    key: &str,
) -> Result<[Zeroizing<String>; 2]> {
    let [server, client] = [1, 2].map(|it| Ipv4Addr::from(u32::from(place.network) + it));
    let both = format!(
        "proto udp\ncipher AES-256-CBC\nauth SHA256\ntun-mtu {}\nkeepalive 10 60\npersist-tun\n\
         verb 3\n",
        args.mtu
    );
    let secret = format!("<secret>\n{}\n</secret>\n", key.trim());
    let mut of_client = Zeroizing::new(format!(
        "# The client of tunnel {number}\ndev tun\nremote {} {}\nnobind\n\
         ifconfig {client} {server}\n{both}",
        args.remote, place.port
    ));
    for route in routes {
        writeln!(of_client, "route {route}")?;
    }
    of_client.push_str(&secret);
    let of_server = Zeroizing::new(format!(
        "# The server of tunnel {number}\ndev {}\ndev-type tun\nport {}\n\
         ifconfig {server} {client}\n{both}{secret}",
        device(number),
        place.port
    ));
    Ok([of_server, of_client])
}

/// A key for both ends, as OpenVPN makes it.
fn static_key() -> Result<Zeroizing<String>> {
    let said = Command::new("openvpn")
        .args(["--genkey", "secret", "/dev/stdout"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run `openvpn`: is it installed?")?;
    let key = Zeroizing::new(String::from_utf8(said.stdout).context("openvpn prints no text")?);
    ensure!(key.contains("BEGIN OpenVPN Static key"), "openvpn makes no key");
    Ok(key)
}

/// A key and a certificate of its own.
struct Certified {
    /// Both, as PEM.
    pem: Zeroizing<String>,
    fingerprint: String,
}

impl Certified {
    fn make(name: &str) -> Result<Self> {
        let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                       -days 3650 -keyout - -out - -subj";
        let mut arguments: Vec<&str> = request.split_whitespace().collect();
        let subject = format!("/CN={name}");
        arguments.push(&subject);
        let pem = Zeroizing::new(openssl(&arguments, b"")?);
        let said = openssl(&["x509", "-noout", "-fingerprint", "-sha256"], pem.as_bytes())?;
        let (_, fingerprint) = said.trim().split_once('=').context("openssl names none")?;
        Ok(Self { fingerprint: fingerprint.to_owned(), pem })
    }

    /// As they stand in OpenVPN's file.
    fn inline(&self) -> Zeroizing<String> {
        let at = self.pem.find("-----BEGIN CERTIFICATE").unwrap_or(self.pem.len());
        let (key, certificate) = self.pem.split_at(at);
        Zeroizing::new(format!(
            "<key>\n{}\n</key>\n<cert>\n{}\n</cert>\n",
            key.trim(),
            certificate.trim()
        ))
    }
}

/// What `openssl` prints; keys go through pipes alone.
fn openssl(arguments: &[&str], input: &[u8]) -> Result<String> {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run `openssl`: is it installed?")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input)?;
    }
    let said = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "openssl {}: {}", arguments[0], complaint.trim());
    String::from_utf8(said.stdout).context("openssl prints no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(network: &str) -> OpenVpnArgs {
        OpenVpnArgs {
            tunnels: 16,
            one_server: false,
            static_key: false,
            remote: "gw".into(),
            port: 1194,
            network: network.parse().unwrap(),
            route: Vec::new(),
            cipher: Cipher::Aes256Gcm,
            mtu: 1500,
            output: PathBuf::from("unused"),
            json: false,
        }
    }

    #[test]
    fn tunnels_have_ports_and_networks_of_their_own_until_the_network_is_used_up() {
        let args = args("10.98.0.0/28");
        let at =
            |port, last| ServerAddress { port, network: Ipv4Addr::new(10, 98, 0, last), bits: 29 };
        assert_eq!(place(&args, 0).unwrap(), at(1194, 0));
        assert_eq!(place(&args, 1).unwrap(), at(1195, 8));
        assert!(place(&args, 2).unwrap_err().to_string().contains("room for 2 tunnels"));
        let ports = OpenVpnArgs { port: u16::MAX, ..self::args("10.0.0.0/8") };
        assert!(place(&ports, 0).is_ok() && place(&ports, 1).is_err());
        assert!(place(&self::args("10.98.0.0/30"), 0).is_err());
        assert_eq!(pool(&self::args("10.98.0.0/27")).unwrap().bits, 27);
        assert!(pool(&self::args("10.98.0.0/28")).unwrap_err().to_string().contains("13 clients"));
    }

    #[test]
    fn a_host_is_no_line_of_a_file() {
        assert!(host("gw-a.example").is_ok() && host("fd00::1").is_ok());
        assert!(host("gw\nscript-security 2").is_err() && host("").is_err());
        assert_eq!(route(&"0.0.0.0/0".parse().unwrap()).unwrap(), "0.0.0.0 0.0.0.0");
        assert_eq!(route(&"10.0.0.0/8".parse().unwrap()).unwrap(), "10.0.0.0 255.0.0.0");
    }
}
