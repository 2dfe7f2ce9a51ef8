//! What a running gateway is made of, started one by one: workers, front ends, handshakes, signals,
//! control socket.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use weir_engine::policy::mapped;
use weir_port::Shutter;
use weir_serve::account;
use weir_store::clock;
use weir_store::datasets::DatasetKeeper;
use weir_store::sink::{AlertSink, EveFile, Exporter, Interfaces, RecordSender};

use super::Event;
use crate::config::file::Mode;
use crate::config::policy::keyed_peers;
use crate::config::settings::{self, OnFailure, Pair, PeerKeys};
use crate::config::{Keys, Settings};
use crate::daemon::control::recorder::Recorder;
use crate::daemon::control::socket::{self, ControlSocket, Rights};
use crate::daemon::control::{alert_files, notify};
use crate::daemon::keys::front_end::{Base, FrontEnd};
use crate::daemon::keys::keying::{Keying, KeyingEnd, Peers};
use crate::daemon::keys::owners::OwnerStore;
use crate::daemon::keys::state::StateStore;
use crate::daemon::pair::evidence;
use crate::daemon::pair::mirror::{Mirror, MirrorControl};
use crate::daemon::pair::plan::PairPlan;
use crate::daemon::pair::prepare;
use crate::daemon::pair::prepare::{NextBystanders, NextMirror};
use crate::daemon::pair::worker::WorkerSetup;
use crate::daemon::pair::workers::PairWorkers;
use crate::daemon::watch::port_watch::PortWatch;
use crate::daemon::watch::vm_watch::VmWatch;
use crate::machine::Machine;

/// Where records go.
#[derive(Clone, Copy)]
pub(super) struct Sinks<'a> {
    exporter: &'a Exporter,
    recorder: Option<&'a Recorder>,
    alerts: &'a AlertSink,
    datasets: &'a DatasetKeeper,
}

impl<'a> Sinks<'a> {
    pub(super) fn of(
        exporter: &'a Exporter,
        recorder: Option<&'a Recorder>,
        alerts: &'a AlertSink,
        datasets: &'a DatasetKeeper,
    ) -> Self {
        Self { exporter, recorder, alerts, datasets }
    }

    /// The way there from a worker of the pair of this index.
    fn sender(self, pair: usize, interfaces: Interfaces) -> RecordSender {
        let sender = self.exporter.sender(interfaces);
        match self.recorder {
            Some(recorder) => sender.with_store(recorder.sender(pair)),
            None => sender,
        }
    }
}

/// What sends records of flows.
pub(super) fn start_exporter(settings: &Settings) -> Result<Exporter> {
    Exporter::start(&settings.collectors, clock::time()).context("cannot export flow records")
}

/// By which other rules are told apart; 0 without rules.
pub(super) fn rules_digest(settings: &Settings) -> u64 {
    settings.detection.as_ref().map_or(0, |it| it.digest)
}

/// Where `[rules]` have alerts written.
fn eve_file(settings: &Settings) -> Option<EveFile> {
    settings.detection.as_ref().and_then(|it| it.eve.clone())
}

/// The thread that writes alerts.
pub(super) fn start_alerts(settings: &Settings, recorder: Option<&Recorder>) -> Result<AlertSink> {
    let file = eve_file(settings);
    let path = file.as_ref().map(|it| it.path.display().to_string()).unwrap_or_default();
    let store = recorder.map(Recorder::alerts);
    let sink = file
        .as_ref()
        .map_or(Ok(()), alert_files::make_folders)
        .and_then(|()| AlertSink::start(file, store, &settings.sinks))
        .with_context(|| format!("cannot write alerts to {path}, or to a [[sink]]"))?;
    tell_names(settings, recorder, &sink);
    sink.note("gateway", "start", "ready");
    Ok(sink)
}

/// Opens the files that `next` names for alerts, and makes them, as a start does; not those that
/// are in use already.
pub(super) fn try_alerts(next: &Settings, before: &Settings) -> Result<()> {
    let file = eve_file(next).filter(|it| eve_file(before).as_ref() != Some(it));
    let Some(file) = file else { return Ok(()) };
    alert_files::make_folders(&file)
        .and_then(|()| file.try_open())
        .with_context(|| format!("cannot write alerts to {}", file.path.display()))
}

/// Has alerts written where `settings` say from now on.
pub(super) fn change_alerts(alerts: &AlertSink, settings: &Settings) -> std::io::Result<()> {
    let file = eve_file(settings);
    file.as_ref().map_or(Ok(()), alert_files::make_folders)?;
    alerts.change(file)
}

/// The thread that keeps the sets that rules change.
pub(super) fn start_datasets(settings: &Settings) -> Result<DatasetKeeper> {
    let keeper = DatasetKeeper::start(settings.gateway.datasets());
    let keeper = keeper.context("no thread for datasets")?;
    begin_datasets(settings, &keeper);
    Ok(keeper)
}

/// Tells it the sets of the rules that run.
pub(super) fn begin_datasets(settings: &Settings, keeper: &DatasetKeeper) {
    if let Some(rules) = settings.detection.as_ref().and_then(|it| it.set.as_ref()) {
        keeper.begin(rules.kept_sets());
    }
}

/// Hands the names of VPN clients to alerts and records, which know only their addresses.
pub(super) fn tell_names(settings: &Settings, recorder: Option<&Recorder>, alerts: &AlertSink) {
    let peers = settings.pairs.iter().flat_map(|pair| &pair.peers);
    let clients: Vec<([u8; 16], Arc<str>)> = peers
        .filter(|peer| matches!(peer.mode, Mode::WireGuard | Mode::OpenVpn))
        .flat_map(|peer| peer.networks().map(|it| (it, Arc::from(peer.name.as_str()))))
        .flat_map(|(network, name)| {
            named_addresses(network).into_iter().map(move |it| (it, Arc::clone(&name)))
        })
        .collect();
    for names in recorder.map(Recorder::names).into_iter().chain([alerts.names()]) {
        names.renew(clients.iter().cloned());
    }
}

/// The addresses of a client's network by which it is named: those of a tunnel, or the client's
/// own. A wider network belongs to nobody in particular.
fn named_addresses((address, bits): (IpAddr, u8)) -> Vec<[u8; 16]> {
    /// A tunnel's pool of this length or more names its addresses.
    const POOL_BITS_MIN: u8 = 24;
    match address {
        IpAddr::V4(first) if bits >= POOL_BITS_MIN => {
            let count = 1_u32 << (32 - bits);
            (0..count).map(|it| mapped(Ipv4Addr::from(u32::from(first) + it).into())).collect()
        }
        IpAddr::V6(_) if bits == 128 => vec![mapped(address)],
        _ => Vec::new(),
    }
}

/// The workers of each pair, and what its front ends begin with in each of them.
pub(super) fn start_workers(
    settings: &Settings,
    machine: &Machine,
    plans: Vec<Vec<PairPlan>>,
    ends: Vec<Vec<KeyingEnd>>,
    store: &mut StateStore,
    sinks: Sinks<'_>,
) -> Result<(Vec<PairWorkers>, Vec<Vec<Base>>)> {
    let (mut workers, mut bases) = (Vec::new(), Vec::new());
    for (number, ((pair, plans), ends)) in settings.pairs.iter().zip(plans).zip(ends).enumerate() {
        let context = || format!("pair {}", pair.name);
        let index = |name| machine.link(name).map_or(0, |link| link.index);
        let (mut setups, mut ends) = (Vec::new(), ends.into_iter());
        let kept = OwnerStore::open(&settings.gateway, &pair.name).with_context(context)?;
        let mut owners = kept.keepers(pair.workers).into_iter();
        let (next, mirrors) = bystanders(pair, settings, &[])?;
        for (worker, (plan, next)) in plans.into_iter().zip(next).enumerate() {
            let mut plan = prepare::prepare(plan, &[], &store.reserver()).with_context(context)?;
            plan.bystanders = Some(next);
            let interfaces = Interfaces { host: index(&pair.host), wire: index(&pair.wire) };
            setups.push(WorkerSetup {
                pair: pair.clone(),
                on_failure: settings.gateway.on_failure,
                limits: settings.limits,
                label: evidence::label(&settings.gateway.name, pair, worker),
                plan,
                reserver: store.reserver(),
                records: sinks.sender(number, interfaces),
                alerts: sinks.alerts.sender(&pair.name, [&pair.host, &pair.wire]),
                datasets: sinks.datasets.sender(),
                keying: ends.next(),
                owners: owners.next().context("a worker has a keeper of owners")?,
            });
        }
        bases.push(setups.iter().map(|it| Base::of(&it.plan)).collect());
        workers.push(PairWorkers::start(setups, mirrors, store).with_context(context)?);
    }
    Ok((workers, bases))
}

/// The sockets of the pairs that have front ends, beside the pairs.
pub(super) fn open_front_ends(
    settings: &Settings,
    bases: Vec<Vec<Base>>,
    events: &Sender<Event>,
) -> Result<Vec<Option<FrontEnd>>> {
    let pairs = settings.pairs.iter().zip(bases).enumerate();
    let open = |(index, (pair, bases)): (usize, (&Pair, Vec<Base>))| {
        let path = settings.gateway.front_end_socket(&pair.name);
        let events = events.clone();
        let tell = move |event| events.send(Event::FrontEnd(index, event)).is_ok();
        pair.xfrm.then(|| FrontEnd::open((index, pair), path, bases, tell)).transpose()
    };
    pairs.map(open).collect()
}

/// The control socket, and that of operators where `[store] operate` wants it.
pub(super) fn open_control(
    settings: &Settings,
    events: Sender<Event>,
) -> Result<Vec<ControlSocket>> {
    let path = settings.gateway.control_socket();
    let failed = |path: &Path| format!("cannot open {}", path.display());
    let (own, theirs) = (events.clone(), events);
    let socket =
        ControlSocket::open(&path, move |it| own.send(Event::Question(Box::new(it))).is_ok());
    let mut sockets = vec![socket.with_context(|| failed(&path))?];
    if let Some(wanted) = settings.store.as_ref().filter(|it| it.operate) {
        let group = account::group(wanted.group.as_deref().unwrap_or_default())?;
        let path = settings.gateway.operate_socket();
        let ask = move |it| theirs.send(Event::Question(Box::new(it))).is_ok();
        let rights = if wanted.administer { Rights::Administer } else { Rights::Operate };
        let socket = socket::open_for_operators(&path, (group, rights), ask);
        sockets.push(socket.with_context(|| failed(&path))?);
    }
    Ok(sockets)
}

/// Watches the ports for as long as what is returned lives.
pub(super) fn watch_ports(
    settings: &Settings,
    shutter: Shutter,
    events: &Sender<Event>,
) -> Result<PortWatch> {
    let events = events.clone();
    // Nobody listens between two gateways of one process: the next looks itself.
    PortWatch::start(settings, shutter, move |why| drop(events.send(Event::Ports(why))))
}

/// Watches for copies of this machine until the returned value is dropped.
pub(super) fn watch_vm(events: &Sender<Event>) -> Result<VmWatch> {
    let events = events.clone();
    VmWatch::start(move || drop(events.send(Event::Cloned)))
}

/// Says that all is up; returns since when.
pub(super) fn announce(settings: &Settings) -> Instant {
    if settings.gateway.on_failure == OnFailure::Open {
        tracing::warn!("on_failure = \"open\": without this process, traffic passes unseen");
    }
    tracing::info!(name = settings.gateway.name, pairs = settings.pairs.len(), "ready");
    notify::ready(&format!("{} pairs of ports", settings.pairs.len()));
    clock::now()
}

/// The bystanders of each worker of `pair`: mirrors that are `running` already, newly opened ones,
/// and a share of its evidence. Also returns what the control thread needs of the new mirrors.
pub(super) fn bystanders(
    pair: &Pair,
    settings: &Settings,
    running: &[settings::Mirror],
) -> Result<(Vec<NextBystanders>, Vec<MirrorControl>)> {
    let evidence = settings.evidence.as_ref().map(|it| it.share(pair.workers));
    let one = || NextBystanders { mirrors: Vec::new(), evidence: evidence.clone() };
    let mut of_workers: Vec<_> = (0..pair.workers).map(|_| one()).collect();
    let mut controls = Vec::new();
    for mirror in mirrors_of(pair, settings) {
        if running.contains(mirror) {
            let running = || NextMirror::Running(mirror.clone());
            of_workers.iter_mut().for_each(|it| it.mirrors.push(running()));
            continue;
        }
        let (control, opened) = Mirror::open(mirror, pair.workers)?;
        controls.push(control);
        for (of_worker, mirror) in of_workers.iter_mut().zip(opened) {
            of_worker.mirrors.push(NextMirror::New(Box::new(mirror)));
        }
    }
    Ok((of_workers, controls))
}

pub(super) fn mirrors_of<'s>(
    pair: &'s Pair,
    settings: &'s Settings,
) -> impl Iterator<Item = &'s settings::Mirror> {
    settings.mirrors.iter().filter(|mirror| mirror.pair == pair.name)
}

/// A thread for each pair's handshakes where keys are agreed at all, and the workers' ends.
pub(super) type Started = (Vec<Option<Keying>>, Vec<Vec<KeyingEnd>>);

pub(super) fn start_keying(settings: &Settings, keys: &Keys) -> Result<Started> {
    let Some(secrets) = &keys.secrets else {
        return Ok(settings.pairs.iter().map(|_| (None, Vec::new())).unzip());
    };
    let started = settings.pairs.iter().map(|pair| {
        let (keying, ends) = Keying::start(&pair.name, pair.workers, secrets.identity.clone())
            .with_context(|| format!("pair {}", pair.name))?;
        Ok((Some(keying), ends))
    });
    Ok(started.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

/// Tells the threads their peers.
pub(super) fn configure_keying(
    settings: &Settings,
    keys: &Keys,
    threads: &[Option<Keying>],
    workers: &[PairWorkers],
) {
    let (Some(keying), Some(secrets)) = (&settings.keying, &keys.secrets) else { return };
    let machine = Machine::read().unwrap_or_default();
    for ((pair, thread), workers) in settings.pairs.iter().zip(threads).zip(workers) {
        let Some(thread) = thread else { continue };
        let wire_mtu_bytes =
            machine.link(&pair.wire).map(|it| u16::try_from(it.mtu_bytes).unwrap_or(u16::MAX));
        let peers = keyed_peers(pair, keying, secrets, wire_mtu_bytes);
        let by_kernel = pair.peers.iter().filter(|peer| peer.is_by_kernel());
        let by_kernel = by_kernel.filter_map(|peer| match &peer.keys {
            PeerKeys::Agreed { public_key, .. } => Some(*public_key),
            PeerKeys::Configured { .. } | PeerKeys::Tagged { .. } | PeerKeys::Daemon(_) => None,
        });
        let named_spis = pair.peers.iter().filter_map(|peer| Some(peer.configured()?.1.spi));
        thread.configure(Peers {
            limits: keying.limits,
            peers,
            sharing: workers.sharing(),
            by_kernel: by_kernel.collect(),
            named_spis: named_spis.collect(),
        });
    }
}

pub(super) fn watch_signals(events: Sender<Event>) -> Result<Handle> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let handle = signals.handle();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(handle)
}
