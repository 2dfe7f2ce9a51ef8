//! `weir vpn`: standard WireGuard clients of a gateway are made, listed and revoked.

mod limit;
mod list;
mod openvpn;
mod rotate;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use rustix::fs::FlockOperation;
use serde::Serialize;
use weir_engine::tunnel::key::{Identity, KEY_LEN};
use zeroize::Zeroizing;

use super::print_json;
use super::reload;
use super::running::Target;
use crate::api::dto::{OpenVpnSnapshot, PeerSnapshot, ReloadRequest, Request, Response};
use crate::config::address::Prefix;
use crate::config::rate::Rate;
use crate::config::reach::Reach;
use crate::config::vpn::{Client, free_addresses};
use crate::config::{Settings, keying, settings};

const VPN_HELP: &str = "\
Clients are standard ones: wireguard-go, the kernel's, or an app that reads WireGuard's files. Each
is a file in the folder `clients` of the configuration's [pair.vpn]. A running gateway takes changes
at once, without losing a packet of the others. Without a configuration, clients are the running
gateway's.

Examples:
  weir vpn add laptop
  weir vpn add /etc/weir/gw-a.toml laptop -o laptop.conf
  weir vpn add /etc/weir/gw-a.toml guest --expires 30d --limit 50M --qr
  weir vpn add /etc/weir/gw-a.toml phone --route 0.0.0.0/0 --route ::/0 --dns 10.0.0.53
  weir vpn list /etc/weir/gw-a.toml
  weir vpn show /etc/weir/gw-a.toml laptop
  weir vpn rotate /etc/weir/gw-a.toml laptop -o laptop.conf
  weir vpn limit /etc/weir/gw-a.toml guest 20M
  weir vpn reach /etc/weir/gw-a.toml guest 10.0.0.5,tcp/443 10.0.0.53,udp/53
  weir vpn revoke /etc/weir/gw-a.toml laptop

Exit codes:
  0  done
  1  it failed; nothing was changed, unless it says so
  2  the command line or the configuration is wrong";

/// Arguments of `weir vpn`.
#[derive(Debug, Args)]
#[command(after_help = VPN_HELP)]
pub struct VpnArgs {
    /// What to do with clients.
    #[command(subcommand)]
    pub command: VpnCommand,
}

/// The commands of `weir vpn`.
#[derive(Debug, Subcommand)]
pub enum VpnCommand {
    /// Make a client, and print the file that it is configured with
    #[command(allow_missing_positional = true)]
    Add(AddArgs),
    /// List the clients
    List(ListArgs),
    /// Show one client: its addresses, its last handshake, what it sent and received
    #[command(allow_missing_positional = true)]
    Show(ClientArgs),
    /// Give a client new keys, and print its new file; the old one stops working
    #[command(allow_missing_positional = true)]
    Rotate(RotateArgs),
    /// Change how much a client may send and be sent; its session goes on
    Limit(limit::LimitArgs),
    /// Change where a client may send; its session goes on
    Reach(limit::ReachArgs),
    /// Remove a client: it is cut off at once
    #[command(allow_missing_positional = true)]
    Revoke(ClientArgs),
    /// Write servers' and clients' files for OpenVPN's own daemons
    #[command(name = "openvpn")]
    OpenVpn(openvpn::OpenVpnArgs),
}

/// Arguments of `weir vpn add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub client: ClientArgs,
    /// Write the client's file here (mode 600) instead of printing it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Cut the client off after so long (12h, 30d) or at a time (2026-12-31T18:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    pub expires: Option<jiff::Timestamp>,
    /// A network that this client sends by the tunnel, instead of the configuration's `routes`;
    /// several are given one by one, 0.0.0.0/0 and ::/0 are everything
    #[arg(long, value_name = "NETWORK")]
    pub route: Vec<Prefix>,
    /// A name server for this client, instead of the configuration's `dns`
    #[arg(long, value_name = "ADDRESS")]
    pub dns: Vec<IpAddr>,
    /// Bits a second that the client may send, and as many that it may be sent (50M, 1.5G)
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Rate>,
    /// Where alone the client may send (10.0.0.0/28, 10.0.0.5,tcp/443, 10.0.0.5,icmp); several are
    /// given one by one; what goes elsewhere is dropped
    #[arg(long, value_name = "WHERE")]
    pub reach: Vec<Reach>,
    /// Print the file as a QR code too, which WireGuard's apps read from the screen
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
}

/// Arguments of `weir vpn rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub client: ClientArgs,
    /// Write the client's new file here (mode 600) instead of printing it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the file as a QR code too
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
}

/// Arguments that name a client.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub of: ListArgs,
    /// The client's name
    pub name: String,
}

impl ClientArgs {
    fn place(&self) -> Result<VpnPair> {
        VpnPair::find(self.of.config.as_deref(), &self.of.options)
    }
}

/// Arguments that name a pair of a configuration.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The gateway's configuration; left out: that of the running gateway
    pub config: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub options: WhereArgs,
}

/// Options that name a gateway and a pair.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// The pair; needed where several have [pair.vpn]
    #[arg(long)]
    pub pair: Option<String>,
    /// The running gateway's name, where several run
    #[arg(long, value_name = "NAME")]
    pub gateway: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

impl WhereArgs {
    /// The configuration in `config`, or in force.
    fn settings(&self, config: Option<&Path>) -> Result<Settings> {
        let Self { gateway, run_dir, .. } = self;
        let target = Target { file: config, gateway: gateway.as_deref(), run_dir };
        let (settings, _) = target.source()?.and_then(|it| it.understand()).map_err(refused)?;
        Ok(settings)
    }
}

/// A client as `weir vpn --json` prints it. Its private key is in `config` of `add` alone.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    public_key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Rate>,
    /// Where it may send; none: anywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reach: Vec<Reach>,
    /// What a running gateway says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<Counters>,
    /// The daemon of a tunnel of OpenVPN, as a running gateway tells of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    openvpn: Option<OpenVpnSnapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    /// Whether a running gateway has taken the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<bool>,
}

/// What a client did since the gateway started.
#[derive(Clone, Debug, Serialize)]
struct Counters {
    /// Where it is; absent before its first handshake.
    endpoint: Option<String>,
    last_handshake_seconds: Option<f64>,
    last_seen_seconds: Option<f64>,
    received_packets: u64,
    received_bytes: u64,
    sent_packets: u64,
    sent_bytes: u64,
    /// Packets from sources that are not its own, dropped.
    refused_packets: u64,
    /// Packets that exceeded its limit, both ways, dropped.
    denied_packets: u64,
    limited_packets: u64,
}

impl Counters {
    fn of(peer: PeerSnapshot) -> Self {
        let keying = peer.keying.unwrap_or_default();
        Self {
            endpoint: keying.endpoint,
            last_handshake_seconds: keying.last_handshake_seconds,
            last_seen_seconds: peer.last_seen_seconds,
            received_packets: peer.opened_packets,
            received_bytes: peer.opened_bytes,
            sent_packets: peer.sealed_packets,
            sent_bytes: peer.sealed_bytes,
            refused_packets: peer.refused_packets,
            denied_packets: peer.denied_packets,
            limited_packets: peer.limited_packets,
        }
    }
}

/// What the gateway says of all that come and go, if it runs.
fn clients_of(settings: &Settings) -> Result<Vec<PeerSnapshot>> {
    let gateway = &settings.gateway;
    let socket = gateway.control_socket();
    let Some(Response::Status(snapshot)) = reload::ask_if_running(&socket, Request::Status)? else {
        return Ok(Vec::new());
    };
    let peers = snapshot.pairs.into_iter().flat_map(|it| it.peers);
    Ok(peers.filter(|it| it.is_client).collect())
}

/// Runs `weir vpn`.
///
/// # Errors
/// The configuration has no such pair, a file cannot be written, the gateway refuses.
pub fn run(args: &VpnArgs) -> Result<ExitCode> {
    match &args.command {
        VpnCommand::Add(args) => add(args),
        VpnCommand::List(args) => list::list(args),
        VpnCommand::Show(args) => show(args),
        VpnCommand::Rotate(args) => rotate::rotate(args),
        VpnCommand::Limit(args) => limit::limit(args),
        VpnCommand::Reach(args) => limit::reach(args),
        VpnCommand::Revoke(args) => revoke(args),
        VpnCommand::OpenVpn(args) => openvpn::openvpn(args),
    }
}

/// A configuration's pair with clients.
struct VpnPair {
    settings: Settings,
    vpn: settings::Vpn,
}

impl VpnPair {
    fn find(config: Option<&Path>, options: &WhereArgs) -> Result<Self> {
        let settings = options.settings(config)?;
        let pairs = settings.pairs.iter().filter(|it| it.vpn.is_some());
        let is_named = |it: &&settings::Pair| options.pair.as_ref().is_none_or(|of| *of == it.name);
        let mut named = pairs.filter(is_named);
        let (first, more) = (named.next(), named.next());
        let file = config.map_or(settings.gateway.name.as_str().into(), |it| it.to_string_lossy());
        let pair = match (first, more) {
            (Some(pair), None) => pair,
            (Some(_), Some(_)) => {
                bail!("{file} has several pairs with [pair.vpn]; name one: --pair")
            }
            (None, _) => {
                bail!("{file} has no such pair with [pair.vpn]; docs/guide/vpn.md has one")
            }
        };
        let vpn = pair.vpn.clone().context("looked for above")?;
        Ok(Self { settings, vpn })
    }

    /// Keeps others from changing the clients meanwhile.
    fn lock(&self) -> Result<File> {
        let folder = &self.vpn.clients;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let lock =
            File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    fn clients(&self) -> Result<Vec<(String, Client)>> {
        Client::read_all(&self.vpn.clients).map_err(anyhow::Error::msg)
    }

    /// Has the gateway read its configuration again, if it runs; says whether it does.
    fn put_in_force(&self) -> Result<bool> {
        let gateway = &self.settings.gateway;
        let socket = gateway.control_socket();
        let request = Request::Reload(ReloadRequest { confirm_within_ms: None });
        match reload::ask_if_running(&socket, request)? {
            None => Ok(false),
            Some(Response::Configuration(_)) => Ok(true),
            Some(Response::Refused(problems)) => {
                bail!("the gateway refuses its configuration:\n{problems}")
            }
            Some(Response::Error(error)) => bail!("the gateway says: {error}"),
            Some(_) => bail!("the gateway answers another question: is it an older one?"),
        }
    }
}

fn refused(problems: crate::config::Problems) -> anyhow::Error {
    anyhow::anyhow!("the configuration is wrong:\n{problems}")
}

fn add(args: &AddArgs) -> Result<ExitCode> {
    let name = &args.client.name;
    check_name(name)?;
    let place = args.client.place()?;
    let keying = place.settings.keying.as_ref().context("the configuration has no [keying]")?;
    let gateway = keying::read_identity(&keying.identity_file)
        .map_err(|error| anyhow::anyhow!("{error}; {}", error.remedy()))?;
    let _lock = place.lock()?;
    let clients = place.clients()?;
    let is_known = clients.iter().any(|(other, _)| other == name)
        || place.settings.pairs.iter().flat_map(|it| &it.peers).any(|it| it.name == *name);
    ensure!(!is_known, "there is a client or peer `{name}` already");
    let held: BTreeSet<IpAddr> =
        clients.iter().flat_map(|(_, it)| &it.addresses).map(|it| it.network()).collect();
    let addresses = free_addresses(&place.vpn.pool, &held).map_err(|pool| {
        anyhow::anyhow!("no address is left in {pool}; revoke clients, or widen `pool`")
    })?;
    let secret = random_key()?;
    let identity = Identity::new(secret.clone()).context("the cipher library refuses the key")?;
    let preshared = random_key()?;
    let client = Client {
        public_key: keying::public_text(&identity.public()),
        addresses,
        created: rfc3339(jiff::Timestamp::now()),
        expires: args.expires.map(rfc3339),
        routes: args.route.clone(),
        dns: args.dns.clone(),
        limit: args.limit,
        reach: args.reach.clone(),
    };
    let config = client_config(name, &client, &secret, &preshared, &gateway, &place);
    // The client's own file first: what it holds is nowhere else.
    if let Some(path) = &args.output {
        write_secret(path, config.as_bytes())?;
    }
    if let Err(error) = enter(&place, name, &client, &preshared) {
        args.output.iter().for_each(|path| drop(fs::remove_file(path)));
        return Err(error);
    }
    let in_force = match place.put_in_force() {
        Ok(in_force) => in_force,
        Err(error) => {
            remove(&place, name)?;
            args.output.iter().for_each(|path| drop(fs::remove_file(path)));
            return Err(error.context(format!("client `{name}` was not added")));
        }
    };
    if args.client.of.options.json {
        print_json(&Shown {
            config: args.output.is_none().then(|| config.to_string()),
            in_force: Some(in_force),
            ..shown(name, &client)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    hand_over(name, &config, args.output.as_deref(), args.qr, in_force)
}

/// Tells the operator a client's file, or where it is.
fn hand_over(
    name: &str,
    config: &str,
    output: Option<&Path>,
    qr: bool,
    in_force: bool,
) -> Result<ExitCode> {
    match output {
        Some(path) => eprintln!("wrote {}: bring it to the client by a safe way", path.display()),
        None => print!("{config}"),
    }
    if qr {
        let code = qrcode::QrCode::new(config).context("the file is too long for a QR code")?;
        let shown = code.render::<qrcode::render::unicode::Dense1x2>().build();
        println!("{shown}");
    }
    if !in_force {
        eprintln!("the gateway does not run; it will know `{name}` when it starts");
    }
    Ok(ExitCode::SUCCESS)
}

fn rfc3339(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time to come: a duration from now on (`12h`, `30d`), a day, or RFC 3339.
fn expiry(text: &str) -> Result<jiff::Timestamp, String> {
    let wrong = || format!("`{text}` is no time: write 12h, 30d or 2026-12-31T18:00:00Z");
    let unit = match text.as_bytes().last() {
        Some(b's') => Some(1),
        Some(b'm') => Some(60),
        Some(b'h') => Some(3600),
        Some(b'd') => Some(86_400),
        _ => None,
    };
    let now = jiff::Timestamp::now();
    let time = match unit {
        Some(unit) => {
            let count: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
            let seconds = count.checked_mul(unit).ok_or_else(wrong)?;
            now.checked_add(jiff::SignedDuration::from_secs(seconds)).map_err(|_| wrong())?
        }
        None => text.parse().map_err(|_| wrong())?,
    };
    if time <= now {
        return Err(format!("`{text}` is over already"));
    }
    Ok(time)
}

fn show(args: &ClientArgs) -> Result<ExitCode> {
    let all = list::all(&args.of)?;
    let shown = all.into_iter().find(|it| it.name == args.name);
    let shown = shown.with_context(|| format!("there is no client or tunnel `{}`", args.name))?;
    if args.of.options.json {
        print_json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    if shown.openvpn.is_some() {
        list::print(&shown);
        return Ok(ExitCode::SUCCESS);
    }
    let name = &shown.name;
    println!("client      {name}");
    println!("addresses   {}", shown.addresses.join(", "));
    println!("public key  {}", shown.public_key);
    println!("created     {}", shown.created);
    println!("limit       {}", shown.limit.map_or("none".to_owned(), |it| format!("{it}bit/s")));
    let reach = shown.reach.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    println!("may reach   {}", if reach.is_empty() { "anywhere" } else { &reach });
    println!("expires     {}", shown.expires.as_deref().unwrap_or("when it is revoked"));
    let Some(counters) = shown.counters else {
        println!("the gateway does not run, or does not serve it: no counters");
        return Ok(ExitCode::SUCCESS);
    };
    let ago = |it: Option<f64>| it.map_or("never".to_owned(), |it| format!("{it:.0} s ago"));
    println!("endpoint    {}", counters.endpoint.as_deref().unwrap_or("not known yet"));
    println!("handshake   {}", ago(counters.last_handshake_seconds));
    println!("last heard  {}", ago(counters.last_seen_seconds));
    println!(
        "received    {} packets, {} bytes",
        counters.received_packets, counters.received_bytes
    );
    println!("sent        {} packets, {} bytes", counters.sent_packets, counters.sent_bytes);
    println!("refused     {} packets: not its addresses", counters.refused_packets);
    println!("denied      {} packets: to where it may not send", counters.denied_packets);
    println!("limited     {} packets: more than its limit", counters.limited_packets);
    Ok(ExitCode::SUCCESS)
}

fn revoke(args: &ClientArgs) -> Result<ExitCode> {
    let place = args.place()?;
    let _lock = place.lock()?;
    let clients = place.clients()?;
    let client = clients.iter().find(|(name, _)| *name == args.name);
    let (name, client) = client.with_context(|| format!("there is no client `{}`", args.name))?;
    remove(&place, name)?;
    let in_force = place
        .put_in_force()
        .with_context(|| format!("client `{name}` is removed, and still served until a reload"))?;
    if args.of.options.json {
        print_json(&Shown { in_force: Some(in_force), ..shown(name, client) })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(name: &str, client: &Client) -> Shown {
    Shown {
        name: name.to_owned(),
        addresses: client.addresses.iter().map(ToString::to_string).collect(),
        public_key: client.public_key.clone(),
        created: client.created.clone(),
        expires: client.expires.clone(),
        limit: client.limit,
        reach: client.reach.clone(),
        counters: None,
        openvpn: None,
        config: None,
        in_force: None,
    }
}

/// Puts the client into the folder: its secret first, for it is known by its file.
fn enter(place: &VpnPair, name: &str, client: &Client, preshared: &[u8; KEY_LEN]) -> Result<()> {
    let folder = &place.vpn.clients;
    let secret = Zeroizing::new(format!("{}\n", keying::secret_text(preshared).as_str()));
    let path = Client::secret_file(folder, name);
    // What a broken attempt left belongs to no client.
    let _ = fs::remove_file(&path);
    write_secret(&path, secret.as_bytes())?;
    write_client(folder, name, client)
}

/// Writes the client's file, whole or not at all.
fn write_client(folder: &Path, name: &str, client: &Client) -> Result<()> {
    let text = toml::to_string(client).context("a client as TOML")?;
    let fresh = folder.join(format!(".{name}.new"));
    let _ = fs::remove_file(&fresh);
    write_secret(&fresh, text.as_bytes())?;
    fs::rename(&fresh, Client::file(folder, name))?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn remove(place: &VpnPair, name: &str) -> Result<()> {
    let folder = &place.vpn.clients;
    let path = Client::file(folder, name);
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    let _ = fs::remove_file(Client::secret_file(folder, name));
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// The client's file, as `wg-quick` reads it.
fn client_config(
    name: &str,
    client: &Client,
    secret: &[u8; KEY_LEN],
    preshared: &[u8; KEY_LEN],
    gateway: &Identity,
    place: &VpnPair,
) -> Zeroizing<String> {
    let join = |list: Vec<String>| list.join(", ");
    let vpn = &place.vpn;
    let addresses = join(client.addresses.iter().map(ToString::to_string).collect());
    let dns = if client.dns.is_empty() { &vpn.dns } else { &client.dns };
    let dns = match dns.is_empty() {
        true => String::new(),
        false => format!("DNS = {}\n", join(dns.iter().map(ToString::to_string).collect())),
    };
    let routes = if client.routes.is_empty() { &vpn.routes } else { &client.routes };
    let routes = match routes.is_empty() {
        true => "0.0.0.0/0, ::/0".to_owned(),
        false => join(routes.iter().map(ToString::to_string).collect()),
    };
    Zeroizing::new(format!(
        "# {name} of {}\n[Interface]\nPrivateKey = {}\nAddress = {addresses}\n{dns}\n[Peer]\n\
         PublicKey = {}\nPresharedKey = {}\nEndpoint = {}\nAllowedIPs = {routes}\n\
         PersistentKeepalive = 25\n",
        place.settings.gateway.name,
        keying::secret_text(secret).as_str(),
        keying::public_text(&gateway.public()),
        keying::secret_text(preshared).as_str(),
        vpn.endpoint,
    ))
}

fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(legal);
    ensure!(is_name, "`{name}` is no name: use 1 to 64 letters, digits, `-` or `_`");
    Ok(())
}

fn random_key() -> Result<Zeroizing<[u8; KEY_LEN]>> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    let source = File::open("/dev/urandom");
    source.and_then(|mut it| it.read_exact(&mut key[..])).context("cannot read /dev/urandom")?;
    Ok(key)
}

fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file
        .with_context(|| format!("cannot make {} (a key is never overwritten)", path.display()))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(())
}
