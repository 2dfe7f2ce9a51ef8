//! What the user may type. `--help`, usage errors and their exit code come from here alone.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};

use super::access::AccessArgs;
use super::beside::BesideArgs;
use super::block::{AllowArgs, BlockArgs};
use super::capture::CaptureArgs;
use super::collect::CollectArgs;
use super::evidence::EvidenceArgs;
use super::explain::ExplainArgs;
use super::guard::GuardArgs;
use super::init::InitArgs;
use super::manual::ManualArgs;
use super::meter::MeterArgs;
use super::read::ReadArgs;
use super::records::{AlertArgs, ConversationArgs, FlowArgs, TalkerArgs};
use super::reload::{ConfirmArgs, ReloadArgs, trial};
use super::rules::RulesArgs;
use super::sa::SaArgs;
use super::serve::ServeArgs;
use super::top::TopArgs;
use super::verify::VerifyArgs;
use super::vpn::VpnArgs;
use super::witness::WitnessArgs;

const MAIN_HELP: &str = "\
Examples:
  weir doctor                        can this machine be a gateway?
  weir keys generate gw-a gw-b       make the keys of two gateways
  weir check /etc/weir/gw-a.toml     is the configuration right?
  weir up /etc/weir/gw-a.toml        run it
  weir status                        what does it do?
  weir reload --confirm-within 60s   a risky change, taken back unless `weir confirm` comes

Exit codes:
  0  done
  1  it failed, or what was asked for is not so
  2  the command line or the configuration is wrong";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A transparent security gateway for RDMA networks.
///
/// Weir stands between a host port and a wire port. It sees every packet and every queue pair,
/// seals what leaves, and drops what must not pass, each drop with its reason and counter.
#[derive(Debug, Parser)]
#[command(version, styles = STYLES, after_help = MAIN_HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a gateway in the foreground, as a service manager wants it
    #[command(after_help = UP_HELP)]
    Up(UpArgs),
    /// Drop what an address sends, for a time or until it is let in again
    Block(BlockArgs),
    /// Never drop what an address sends, whatever blocks and rules say
    Allow(AllowArgs),
    /// Have a running gateway read its configuration again
    Reload(ReloadArgs),
    /// Keep the configuration that is on trial
    #[command(after_help = super::reload::CONFIRM_HELP)]
    Confirm(ConfirmArgs),
    /// Take back the configuration that is on trial, now
    #[command(after_help = super::reload::ROLLBACK_HELP)]
    Rollback(ConfirmArgs),
    /// Shut a configuration's ports before any gateway runs, or open them again
    Guard(GuardArgs),
    /// Write a commented configuration to begin with, from what this machine has
    Init(InitArgs),
    /// Find everything that is wrong with a configuration, without privilege
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Say what this machine's kernel, ports and cipher can do, and what to change
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Capture an interface's packets into files, and account for every one
    Capture(CaptureArgs),
    /// Count what passes an interface, by flow and by queue pair
    Meter(MeterArgs),
    /// Analyse captures with the gateway's own engine
    Read(ReadArgs),
    /// Say of detection rules which run, and what stops the others
    Rules(RulesArgs),
    /// Run others' tests of detection (suricata-verify's format) and say which pass
    Verify(VerifyArgs),
    /// Show the counters of a running gateway
    #[command(after_help = STATUS_HELP)]
    Status(StatusCommandArgs),
    /// Check from outside that a wire between gateways carries nothing in plaintext
    Witness(WitnessArgs),
    /// List what a running gateway dropped, with the meaning of every reason
    #[command(after_help = DROPS_HELP)]
    Drops(StatusArgs),
    /// Say what a drop reason means and what to do about it
    Explain(ExplainArgs),
    /// Write manual pages and shell completions into a folder
    Manual(ManualArgs),
    /// List flows that gateways remember
    Flows(FlowArgs),
    /// List queue-pair conversations that gateways remember
    Conversations(ConversationArgs),
    /// List the alerts of rules that gateways remember
    Alerts(AlertArgs),
    /// List the addresses that sent and received most
    TopTalkers(TalkerArgs),
    /// Show what this machine's gateways do, at a glance, in a terminal
    Top(TopArgs),
    /// Show what this machine's gateways do and did: dashboard, API, metrics
    Serve(ServeArgs),
    /// Take NetFlow and IPFIX of other exporters into a store, for the same commands to show
    Collect(CollectArgs),
    /// Show what the lines of access decided: who may do what by RDMA
    Access(AccessArgs),
    /// Take out the packets that a running gateway remembers
    Evidence(EvidenceArgs),
    /// Try it all on this machine: test hosts, traffic, gateways, in network namespaces
    #[command(disable_help_flag = true)]
    Lab(BesideArgs),
    /// Run a designed experiment in the lab, and report it with statistics
    #[command(disable_help_flag = true)]
    Prove(BesideArgs),
    /// Make identities of gateways, and keys for security associations
    #[command(after_help = KEYS_HELP)]
    Keys(KeysArgs),
    /// Tell the secret keys of a running gateway's associations, so that Wireshark can decrypt
    Sa(SaArgs),
    /// Let `ip xfrm` or an IKE daemon install associations in a running gateway
    #[command(after_help = XFRM_HELP)]
    Xfrm(XfrmArgs),
    /// Make, show, renew and revoke VPN clients of a gateway (WireGuard); files for OpenVPN
    Vpn(VpnArgs),
}

const UP_HELP: &str = "\
Signals:
  SIGHUP           read the configuration again: as a whole, or not at all; no packet is lost
  SIGTERM, SIGINT  stop; nothing passes from then on

With --confirm-within, the configuration is on trial: unless `weir confirm` comes in time, the last
confirmed one is put in force again. Where none was ever confirmed, the gateway ends, and its ports
are as they were before: open, or shut by a guard. A gateway that is stopped or killed during a
trial starts again with the last confirmed configuration, and never by itself with what was taken
back.

The log goes to standard error. Its level is `info`, or what WEIR_LOG says (`WEIR_LOG=debug`).

Examples:
  weir up /etc/weir/gw-a.toml
  weir up /etc/weir/gw-a.toml --confirm-within 2m

Exit codes:
  0  stopped by a signal
  1  it could not start, or a port was lost
  2  the command line or the configuration is wrong
  3  the configuration was taken back, and there is none before it";

/// Arguments of `weir up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The configuration; `weir check --help` shows one
    pub file: PathBuf,
    /// Take ports even if they carry the default route or an ssh session: this machine may become
    /// unreachable
    #[arg(long)]
    pub force: bool,
    /// Start sealing with a key whose record of used sequence numbers is lost, damaged or older
    /// than the stamp beside the key. Whoever
    /// recorded the earlier packets can then read them and forge new ones, if a number repeats.
    /// Make new keys instead
    #[arg(long)]
    pub danger_forget_state: bool,
    /// Take the configuration back unless it is confirmed within so long (90s, 2m, 1h)
    #[arg(long, value_name = "TIME", value_parser = trial)]
    pub confirm_within: Option<Duration>,
    /// Wait so long for ports to appear and to be up; then fail
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub wait: u64,
}

const CHECK_HELP: &str = "\
Every problem is shown at once, each with line, column and remedy. Key files that this user may
not read are passed over with a warning. Where the interfaces exist, their MTU is checked too.

A configuration:
  [gateway]
  name = \"gw-a\"

  [[pair]]
  host = \"pf0hpf\"
  wire = \"p0\"
  address = \"192.0.2.1/24\"
  roce_mtu = 4096

  [[peer]]
  name = \"gw-b\"
  endpoint = \"192.0.2.2\"
  mode = \"ethernet\"                # or \"tunnel\", \"transport\"
  protects = \"everything\"          # or prefixes: [\"10.0.0.0/24\"]
  seal = { spi = 0x1001, key_file = \"a-to-b.key\" }
  open = { spi = 0x1002, key_file = \"b-to-a.key\" }

Example:
  weir check /etc/weir/gw-a.toml

Exit codes:
  0  it can be used (there may be warnings)
  2  it is refused";

/// Arguments of `weir check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration
    pub file: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    pub json: bool,
}

const DOCTOR_HELP: &str = "\
Without interfaces, all that could be ports are looked at. Speeds are measured on one core, in
about two seconds; nothing on the machine is changed.

Example:
  weir doctor pf0hpf p0

Exit codes:
  0  a gateway can run here (there may be advice)
  1  something must be changed first";

/// Arguments of `weir doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Interfaces to look at
    pub interfaces: Vec<String>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

const STATUS_HELP: &str = "\
Examples:
  weir status                       the only gateway on this machine
  weir status gw-a --json | jq '.pairs[].rdma.queue_pairs'

  weir status gw-a --check || page the operator

Exit codes:
  0  shown, the counters add up, and nothing came to the wire in plaintext that must be sealed;
     with --check: every link is up, every gateway that is a peer is reached, the store works, rules
     run where [rules] are, and the last configuration was not taken back; what is not so is named.
     What was lost since the start (alerts, records) is no more than a warning on standard error
  1  no gateway answers, or one of these is not so";

const DROPS_HELP: &str = "\
Example:
  weir drops gw-a

Exit codes:
  0  shown
  1  no gateway answers";

/// Arguments of `weir status`.
#[derive(Debug, Args)]
pub struct StatusCommandArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub status: StatusArgs,
    /// Print only what is wrong: nothing where all is well
    #[arg(long)]
    pub check: bool,
    /// Print it again every second; with --json, a line each
    #[arg(long, conflicts_with = "check")]
    pub watch: bool,
}

/// Arguments of `weir status` and `weir drops`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway's name; needed where several run
    pub name: Option<String>,
    /// Where gateways keep their control sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

const XFRM_HELP: &str = "\
Runs a program whose requests to the kernel's IPsec (NETLINK_XFRM) go to the gateway: the pair
needs `xfrm = true` in its configuration. A library is preloaded, so the program must be linked
dynamically and not be setuid. Associations and policies end with the gateway, as they would with
a kernel.

Examples:
  weir xfrm -- ip xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 0x1001 mode transport \\
      aead 'rfc4106(gcm(aes))' 0x$(xxd -p -l 20 /dev/urandom) 128
  weir xfrm -- ip xfrm policy add src 10.0.0.1 dst 10.0.0.2 dir out \\
      tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode transport
  weir xfrm -- ip -s xfrm state
  weir xfrm -- /usr/lib/ipsec/charon

Exit codes:
  the program's own
  1  no gateway with front ends, or no such program
  2  the command line is wrong";

/// Arguments of `weir xfrm`.
#[derive(Debug, Args)]
pub struct XfrmArgs {
    /// The pair of ports, or GATEWAY.PAIR; needed where several have front ends
    #[arg(long, value_name = "PAIR")]
    pub pair: Option<String>,
    /// Where gateways keep their sockets
    #[arg(long, default_value = "/run/weir", value_name = "DIRECTORY")]
    pub run_dir: PathBuf,
    /// Where the library is kept that is preloaded; not on a file system mounted `noexec`
    #[arg(long, default_value = "/var/lib/weir", value_name = "DIRECTORY")]
    pub library_dir: PathBuf,
    /// The program and its arguments, after `--`
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

const KEYS_HELP: &str = "\
Two gateways that agree on keys by themselves, each with an identity of its own:
  weir keys identity /etc/weir/gw-a.identity    prints the public key for gw-b's [[peer]]
  weir keys preshared /etc/weir/ab.psk          optional: a secret that both share

Two gateways with keys in files:
  weir keys generate gw-a gw-b --directory /etc/weir/keys";

/// Arguments of `weir keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// What to do with keys.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// The commands of `weir keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a gateway's identity and print its public key
    #[command(after_help = KEYS_IDENTITY_HELP)]
    Identity(KeysFileArgs),
    /// Print the public key of an identity
    #[command(after_help = KEYS_PUBLIC_HELP)]
    Public(KeysFileArgs),
    /// Make a secret that two gateways share beside their identities
    #[command(after_help = KEYS_PRESHARED_HELP)]
    Preshared(KeysFileArgs),
    /// Make a key for each direction between two gateways, and show how to configure them
    #[command(after_help = KEYS_GENERATE_HELP)]
    Generate(KeysGenerateArgs),
}

const KEYS_IDENTITY_HELP: &str = "\
The file (mode 600; never overwritten) holds one line of base64, as `wg genkey` prints it. It stays
on its gateway. Name it by `identity_file` in [keying]; the other gateways' [[peer]] gets what this
prints as `public_key`.

Example:
  weir keys identity /etc/weir/gw-a.identity

Exit codes:
  0  made
  1  the file exists already or cannot be written";

const KEYS_PUBLIC_HELP: &str = "\
Example:
  weir keys public /etc/weir/gw-a.identity

Exit codes:
  0  printed
  1  the file cannot be read or holds no identity";

const KEYS_PRESHARED_HELP: &str = "\
With it, whoever breaks X25519 or steals an identity still cannot read what is sealed. Copy the file
to the other gateway by a safe way, and name it by `preshared_key_file` at both [[peer]]s.

Example:
  weir keys preshared /etc/weir/ab.psk

Exit codes:
  0  made
  1  the file exists already or cannot be written";

/// Arguments of the `weir keys` commands about one file.
#[derive(Debug, Args)]
pub struct KeysFileArgs {
    /// The file of the secret
    pub file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

const KEYS_GENERATE_HELP: &str = "\
Writes DIRECTORY/A-to-B.key and DIRECTORY/B-to-A.key (mode 600; files that exist are never
overwritten) and prints the lines for both configurations, with random SPIs. Copy both files to
both gateways by a safe way. A key file holds one line of hex: key, then 4 bytes of salt.

Example:
  weir keys generate gw-a gw-b --directory /etc/weir/keys

Exit codes:
  0  made
  1  a file exists already or cannot be written";

/// Arguments of `weir keys generate`.
#[derive(Debug, Args)]
pub struct KeysGenerateArgs {
    /// One gateway's name
    pub one: String,
    /// The other gateway's name
    pub other: String,
    /// Where to put the files
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// aes-256-gcm or aes-128-gcm
    #[arg(long, default_value = "aes-256-gcm", value_name = "CIPHER")]
    #[arg(value_parser = ["aes-256-gcm", "aes-128-gcm"])]
    pub cipher: String,
    /// Print file names and SPIs as JSON
    #[arg(long)]
    pub json: bool,
}
