//! `weir collect`: records of other exporters into a store.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::{Access, access};
use serde_json::{Value, json};
use weir_serve::account;
use weir_serve::query;
use weir_store::clock;
use weir_store::collect::listen::{AddressRange, Listener, Refused};
use weir_store::collect::{Decoder, Source, SourceCounters};
use weir_store::sqlite::{Retention, Sample, Scope, ScopeKind, Store, StoreCounters, StoreOptions};

use crate::api::store::StoreSnapshot;
use crate::daemon::control::status_socket::StatusSocket;

/// In a folder of its own: that of the gateways is root's to write.
const STORE_DEFAULT: &str = "/var/lib/weir-collect/collector.sqlite";

/// Between two samples of the counters.
const SAMPLE_AFTER: Duration = Duration::from_secs(1);

/// Between two looks at the signals.
const TICK: Duration = Duration::from_millis(100);

const DAY_S: u64 = 86_400;

const HELP: &str = "\
Takes NetFlow v5, NetFlow v9 and IPFIX, the RDMA template of docs/ipfix-rdma.md included, from
switches, Open vSwitch, softflowd and other gateways. The records go to a store of the same form as
a gateway's: `weir flows`, `weir conversations`, `weir top-talkers`, `weir serve` show them beside
its own, with who told of them. What sequence numbers say is missing is counted by exporter.

Datagrams are neither sealed nor signed: say by --exporter who may export, and keep the port away
from others. At the end, the counters are printed: with --json as one object.

Examples:
  weir collect --listen 192.0.2.1:2055 --exporter 192.0.2.0/24 --user weir-collect --group weir
  weir collect --tcp 0.0.0.0:4739 --store /var/lib/weir-collect/racks.sqlite
  weir flows --gateway racks --exporter 192.0.2.7

Exit codes:
  0  ended by a signal
  1  an address is taken, the store's folder cannot be written to, or it would have run as the
     wrong user
  2  the command line is wrong";

/// Arguments of `weir collect`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CollectArgs {
    /// Where datagrams come in
    #[arg(long, default_value = "0.0.0.0:2055", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Take IPFIX over TCP there too
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub tcp: Option<SocketAddr>,
    /// Who may export: an address or prefix, several allowed; without it everybody may
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    pub exporter: Vec<AddressRange>,
    /// Leave out records that say egress: of exporters that tell of each packet twice, where it
    /// comes in and where it leaves, as Open vSwitch's IPFIX does
    #[arg(long)]
    pub ingress_only: bool,
    /// The store; its name is what is shown as the gateway
    #[arg(long, default_value = STORE_DEFAULT, value_name = "FILE")]
    pub store: PathBuf,
    /// Group that may read the store: that of `weir serve`
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Who to be once the port is open, when started as root: names or numbers. Its group is that
    /// of --group where it names none, and the store's folder is made for it where there is none
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// The store's size, at most
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    #[arg(value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    pub size_mib: u64,
    /// Days that records are kept
    #[arg(long, default_value_t = 7, value_name = "DAYS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3650))]
    pub records_days: u64,
    /// Enterprise number of the RDMA elements
    #[arg(long, default_value_t = 32_473, value_name = "NUMBER")]
    pub enterprise: u32,
    /// Print the counters as JSON at the end
    #[arg(long)]
    pub json: bool,
}

/// Runs `weir collect`.
///
/// # Errors
/// An address is taken, or the account cannot be had.
pub fn run(args: &CollectArgs) -> Result<ExitCode> {
    let with_colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(with_colours)
        .init();
    let is_ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_ended))?;
    }
    let group = args.group.as_deref().map(account::group).transpose()?;
    let datagrams = UdpSocket::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let bind = |address: SocketAddr| {
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))
    };
    let streams = args.tcp.map(bind).transpose()?;
    if let Some(user) = args.user.as_deref().filter(|_| account::is_root()) {
        let mut account = account::account(user)?;
        if let Some(group) = group.filter(|_| !user.contains(':')) {
            account.group = group;
        }
        make_folder(&args.store, (Some(account.user), Some(account.group)))?;
        account::become_account(account)?;
    }
    check_folder(&args.store)?;
    make_folder(&args.store, (None, group))?;
    let retention = Retention {
        size_bytes_max: args.size_mib << 20,
        records_s: args.records_days * DAY_S,
        minutes_s: 31 * DAY_S,
        hours_s: 400 * DAY_S,
    };
    let options = StoreOptions { path: args.store.clone(), group, retention };
    let store = Store::start(options, Vec::new()).context("cannot start the store's thread")?;
    let decoder = Decoder::new(args.enterprise).context("the parser refuses its bounds")?;
    let decoder = if args.ingress_only { decoder.ingress_only() } else { decoder };
    let listener =
        Listener::start(datagrams, streams, decoder, args.exporter.clone(), store.collected())
            .context("cannot start to listen")?;
    // Whoever waits for this line may have left.
    let _ = writeln!(std::io::stderr(), "collecting on {}", args.listen);
    let status = status_socket(&args.store, group);
    let started = clock::now();
    let mut sampled: Option<Instant> = None;
    while !is_ended.load(Ordering::Relaxed) {
        if sampled.is_none_or(|it| it.elapsed() >= SAMPLE_AFTER) {
            sampled = Some(clock::now());
            let sources = listener.sources();
            store.sample(sample(&sources));
            if let Some(socket) = &status {
                let told = told(&sources, &listener.refused(), &store.counters());
                socket.publish(as_gateway(args, started, told));
            }
        }
        std::thread::sleep(TICK);
    }
    drop(status);
    store.sample(sample(&listener.sources()));
    let (sources, refused) = (listener.sources(), listener.refused());
    drop(listener);
    let counters = store.stop();
    report(args, &sources, &refused, &counters)?;
    Ok(ExitCode::SUCCESS)
}

/// The folder that the store lies in.
fn folder_of(store: &Path) -> &Path {
    match store.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the store's folder where there is none, for that user and group, or for who runs this.
fn make_folder(store: &Path, (user, group): (Option<u32>, Option<u32>)) -> Result<()> {
    let folder = folder_of(store);
    if folder.exists() {
        return Ok(());
    }
    let make = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o750))?;
        chown(folder, user, group)
    };
    make().with_context(|| format!("cannot make {}", folder.display()))
}

/// Whether the store can be written: better said now than in the log, with nothing stored.
fn check_folder(store: &Path) -> Result<()> {
    let folder = folder_of(store);
    let is_there = folder.exists();
    // `col` lies in `.`, which is none of its ancestors.
    let nearest = folder.ancestors().find(|it| it.exists()).unwrap_or(Path::new("."));
    access(nearest, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from).with_context(|| {
        let (folder, what) = (folder.display(), if is_there { "written to" } else { "made" });
        format!(
            "{folder} cannot be {what} as this user: make it with this user as its owner, or name \
             another by --store"
        )
    })
}

/// Beside the store, where `weir serve` looks for it; nothing is stored the less without it.
fn status_socket(store: &Path, group: Option<u32>) -> Option<StatusSocket<Value>> {
    let path = store.with_extension("status");
    if UnixStream::connect(&path).is_ok() {
        tracing::warn!(path = %path.display(), "another `weir collect` tells its status there");
        return None;
    }
    let socket = StatusSocket::open(&path, group);
    let warn = |error| tracing::warn!(%error, path = %path.display(), "no status for `weir serve`");
    socket.map_err(warn).ok()
}

/// What `weir serve` is told: a gateway without ports, and what became of what was exported to it.
fn as_gateway(args: &CollectArgs, started: Instant, told: Value) -> Value {
    let name = args.store.file_stem().unwrap_or_default().to_string_lossy();
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "name": name,
        "taken_ns": clock::time().0,
        "uptime_seconds": started.elapsed().as_secs(),
        "adds_up": true,
        "store": told["store"],
    });
    status["collector"] = json!({ "exporters": told["exporters"], "refused": told["refused"] });
    status
}

fn sample(sources: &BTreeMap<Source, SourceCounters>) -> Sample {
    let scopes = sources.iter().map(|(source, counters)| Scope {
        pair: format!("domain {}", source.domain),
        kind: ScopeKind::Exporter,
        name: source.address.to_string(),
        counters: counters.named(),
    });
    Sample { time_ns: clock::time().0, scopes: scopes.collect(), peers: Vec::new() }
}

/// What was read, what was not, and what is stored.
fn told(
    sources: &BTreeMap<Source, SourceCounters>,
    refused: &Refused,
    store: &StoreCounters,
) -> Value {
    let exporters = sources.iter().map(|(source, counters)| {
        json!({
            "exporter": source.address, "domain": source.domain, "counters": counters.named(),
        })
    });
    let mut of_store = json!(StoreSnapshot::from(store.clone()));
    of_store["lost"] = store.lost.into();
    json!({
        "exporters": exporters.collect::<Vec<_>>(),
        "refused": {
            "strangers": refused.strangers,
            "beyond_bound": refused.beyond_bound,
            "foreign": refused.foreign,
            "connections": refused.connections,
        },
        "store": of_store,
    })
}

fn report(
    args: &CollectArgs,
    sources: &BTreeMap<Source, SourceCounters>,
    refused: &Refused,
    store: &StoreCounters,
) -> Result<()> {
    if args.json {
        return super::print_json(&told(sources, refused, store));
    }
    let mut out = std::io::stdout().lock();
    for (Source { address, domain }, it) in sources {
        writeln!(
            out,
            "{address} domain {domain}: {} records in {} messages, {} lost, {} late, {} restarts, \
             {} sets without template, {} undecoded, {} malformed, {} of egress left out",
            it.records,
            it.messages,
            it.lost,
            it.late,
            it.restarts,
            it.without_template,
            it.undecoded,
            it.malformed,
            it.egress
        )?;
    }
    writeln!(
        out,
        "refused: {} messages of strangers, {} beyond the bound of exporters, {} foreign, {} \
         connections\nstored: {} of {} records",
        refused.strangers,
        refused.beyond_bound,
        refused.foreign,
        refused.connections,
        store.written,
        store.records
    )?;
    Ok(())
}
