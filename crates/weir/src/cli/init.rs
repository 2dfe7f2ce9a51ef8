//! `weir init`: a commented configuration to begin with, from what this machine has.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::config;
use crate::machine::{Link, Machine};

const HELP: &str = "\
Looks at this machine's interfaces and writes a configuration with a pair of them. Nothing passes
by it yet: it seals to nobody and drops what no peer protects, until you add a [[peer]], as the
comments in it say. Ports are those that you name, or the only two without an address.

Examples:
  weir init                                       writes /etc/weir/gateway.toml
  weir init gw-a.toml --name gw-a --host pf0hpf --wire p0
  weir check gw-a.toml

Exit codes:
  0  written
  1  the file is there (--force), or no two ports can be told
  2  the command line is wrong";

/// InfiniBand's packet sizes, the largest first.
const ROCE_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// Headers of RoCE and of what seals it, rounded up; `weir check` knows it to the byte.
const OVERHEAD_BYTES: u32 = 200;

/// Interfaces that are listed, at most.
const LISTED_MAX: usize = 32;

/// Arguments of `weir init`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct InitArgs {
    /// The file to write
    #[arg(default_value = "/etc/weir/gateway.toml", value_name = "FILE")]
    pub file: PathBuf,
    /// The gateway's name
    #[arg(long, default_value = "gw-a", value_name = "NAME", value_parser = name)]
    pub name: String,
    /// The port towards the host
    #[arg(long, value_name = "INTERFACE", requires = "wire")]
    pub host: Option<String>,
    /// The port towards the fabric
    #[arg(long, value_name = "INTERFACE", requires = "host")]
    pub wire: Option<String>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

/// Runs `weir init`.
///
/// # Errors
/// The file is there, no two ports can be told, or it cannot be written.
pub fn run(args: &InitArgs) -> Result<ExitCode> {
    let machine = Machine::read().context("cannot read this machine's interfaces")?;
    let (host, wire) = ports(args, &machine)?;
    let text = configuration(args, &machine, host, wire);
    if let Some(folder) = args.file.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut options = OpenOptions::new();
    options.write(true).mode(0o640);
    if args.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let shown = args.file.display();
    let mut file = match options.open(&args.file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} is there: give another name, or --force to write over it")
        }
        opened => opened.with_context(|| format!("cannot write {shown}"))?,
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    println!("{shown}: host {}, wire {}; next: weir check {shown}", host.name, wire.name);
    Ok(ExitCode::SUCCESS)
}

fn name(text: &str) -> Result<String, &'static str> {
    if config::is_name(text) { Ok(text.to_owned()) } else { Err(config::OF_NAMES) }
}

/// The ports that are named, or the only two that can be meant.
fn ports<'m>(args: &InitArgs, machine: &'m Machine) -> Result<(&'m Link, &'m Link)> {
    if let (Some(host), Some(wire)) = (&args.host, &args.wire) {
        let found = |name: &str| {
            machine.link(name).with_context(|| format!("there is no interface {name}: `ip link`"))
        };
        let (host, wire) = (found(host)?, found(wire)?);
        if host.index == wire.index {
            bail!("{} cannot be both ports", host.name);
        }
        return Ok((host, wire));
    }
    let free: Vec<&Link> = machine.links.iter().filter(|it| is_free(it)).collect();
    match free[..] {
        // By convention a DPU's host representor begins with `pf` and its uplink with `p`.
        [one, other] if other.name.starts_with("pf") => Ok((other, one)),
        [one, other] => Ok((one, other)),
        _ => {
            let names: Vec<_> = free.iter().take(LISTED_MAX).map(|it| it.name.as_str()).collect();
            bail!(
                "name the ports with --host and --wire; without an address are: {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )
        }
    }
}

/// Whether an interface is Ethernet that the machine itself does not use. Every interface that is
/// up has an IPv6 address of its link.
fn is_free(link: &Link) -> bool {
    let is_own = |it: &std::net::IpAddr| match it {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    // The loopback's address is all zeros.
    let is_ethernet = link.mac.is_some_and(|mac| mac != [0; 6]);
    let is_port = is_ethernet && matches!(link.kind.as_deref(), None | Some("veth"));
    is_port && link.controller.is_none() && !link.addresses.iter().any(is_own)
}

/// `text` as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn configuration(args: &InitArgs, machine: &Machine, host: &Link, wire: &Link) -> String {
    let mut text = String::from(
        "# Written by `weir init`. docs/guide/rollout.md says how to go on.\n#\n\
         # Interfaces of this machine when it was written:\n",
    );
    for link in machine.links.iter().filter(|it| it.mac.is_some()).take(LISTED_MAX) {
        let state = if link.up && link.carrier { "up" } else { "down" };
        let clean: String = link.name.chars().filter(|it| !it.is_control()).collect();
        let kind = link.kind.as_deref().unwrap_or("hardware");
        let _ = writeln!(text, "#   {clean}: {kind}, MTU {}, {state}", link.mtu_bytes);
    }
    let _ = write!(
        text,
        "\n[gateway]\nname = {}\n\n[[pair]]\nhost = {}        # towards the host, MTU {}\n\
         wire = {}        # towards the fabric, MTU {}\n",
        quoted(&args.name),
        quoted(&host.name),
        host.mtu_bytes,
        quoted(&wire.name),
        wire.mtu_bytes,
    );
    text.push_str(
        "default = \"drop\"      # what no peer protects; \"forward\" lets it by, if [rules] do\n",
    );
    let fits = ROCE_MTUS.iter().find(|it| **it + OVERHEAD_BYTES <= wire.mtu_bytes);
    match fits {
        Some(bytes) => {
            let _ = writeln!(
                text,
                "roce_mtu = {bytes}      # the largest that the wire carries sealed"
            );
            if *bytes < ROCE_MTUS[0] {
                text.push_str("# For RoCE packets of 4096 bytes the wire needs an MTU of 4300:\n");
                let _ = writeln!(text, "#   ip link set {} mtu 9000", wire.name);
            }
        }
        None => text.push_str("# roce_mtu: the wire's MTU is too small for any RoCE packet\n"),
    }
    text.push_str(
        "# address = \"192.0.2.1/24\"   # the gateway's own, where peers reach it\n\n\
         [store]               # remember flows, alerts, counters: weir serve, weir flows\n\
         # group = \"weir\"       # who may read it: the group of `weir serve`\n\n\
         # To seal to another gateway: make an identity with\n\
         #   weir keys identity /etc/weir/gateway.identity\n\
         # which prints the public key for the other's file, and take the comments away:\n#\n\
         # [keying]\n# identity_file = \"/etc/weir/gateway.identity\"\n#\n\
         # [[peer]]\n# name = \"gw-b\"\n# endpoint = \"192.0.2.2\"\n# mode = \"ethernet\"\n\
         # protects = \"everything\"\n# encapsulation = \"udp\"\n\
         # public_key = \"...\"     # as `weir keys identity` printed it there\n\n\
         # Detection by rules, and where its alerts go:\n\
         # [rules]\n# paths = [\"/etc/weir/rules\"]\n#\n\
         # [[sink]]\n# to = \"tcp://192.0.2.9:514\"\n# format = \"syslog\"\n",
    );
    text
}
