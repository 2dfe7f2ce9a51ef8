//! What the gateway remembers and publishes: the store, a sample of all counters a second, and the
//! socket on which `weir serve` reads the last of them.
//!
//! The socket answers to the group of the store, says one thing whoever asks, and reads nothing:
//! no key, no configuration and no command can be had there.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use rustix::fs::{Gid, chown};
use weir_serve::{account, query};
use weir_store::clock;
use weir_store::names::Names;
use weir_store::sqlite::{
    AlertNote, AlertStore, Event, PeerState, Reader, SUPPRESSIONS_MAX, Sample, Scope, ScopeKind,
    Store, StoreCounters, StoreOptions, StoreSender, Suppression, SuppressionChange,
};

use crate::api::dto::{PairSnapshot, PeerSnapshot, RdmaSnapshot, SideSnapshot, Snapshot};
use crate::api::suppress::SuppressRequest;
use crate::config::Settings;
use crate::config::address::Prefix;
use crate::daemon::control::status_socket::StatusSocket;

/// Between two samples.
const SAMPLE_AFTER: Duration = Duration::from_secs(1);

/// After so long a suppression is in the store.
const STORED_AFTER_NS: u64 = 10_000_000_000;

/// A group may open files in a folder by name.
const PASS: u32 = 0o010;

/// A group may also list the folder.
const LIST_AND_PASS: u32 = 0o050;

/// A gateway's memory.
#[derive(Debug)]
pub struct Recorder {
    store: Store,
    socket: StatusSocket<Snapshot>,
    sampled: Option<Instant>,
    /// Suppressions that may not be in the store yet.
    begun: Mutex<Vec<Suppression>>,
}

impl Recorder {
    /// Starts what `[store]` asks for; `None`: nothing.
    ///
    /// # Errors
    /// The group does not exist, or the run directory cannot be written. A store that cannot be
    /// used is no error, but said in the status.
    pub fn start(settings: &Settings) -> Result<Option<Self>> {
        let Some(wanted) = &settings.store else { return Ok(None) };
        let group = wanted.group.as_deref().map(account::group).transpose()?;
        if let Some(group) = group {
            let gateway = &settings.gateway;
            let_in(&gateway.run_dir, group, LIST_AND_PASS)?;
            if wanted.path.starts_with(&gateway.state_dir) {
                let_in(&gateway.state_dir, group, PASS)?;
            }
        }
        let options =
            StoreOptions { path: wanted.path.clone(), group, retention: wanted.retention };
        let pairs = settings.pairs.iter().map(|pair| pair.name.clone()).collect();
        let store = Store::start(options, pairs).context("cannot start the store's thread")?;
        let path = settings.gateway.status_socket();
        let socket = StatusSocket::open(&path, group)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let recorder = Self { store, socket, sampled: None, begun: Mutex::default() };
        recorder.name(settings);
        recorder.note("gateway", "start", "ready");
        Ok(Some(recorder))
    }

    /// Stores what `who` says of an alert.
    pub fn remark(&self, who: &str, alert: u64, is_acknowledged: bool, comment: &str) {
        let [who, comment] = [who, comment].map(str::to_owned);
        let time_ns = clock::time().0;
        self.store.alert_note(AlertNote { alert, time_ns, who, is_acknowledged, comment });
    }

    /// Stores that `who` suppresses alerts, or shows them again.
    ///
    /// # Errors
    /// The store cannot be read, or has its fill of them.
    pub fn suppress(&self, who: &str, request: &SuppressRequest) -> Result<()> {
        let time_ns = clock::time().0;
        let range = |source: &Option<Prefix>| {
            source.map(|it| query::addresses(&it.to_string()).map_err(Error::msg)).transpose()
        };
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|it| time_ns.saturating_sub(it.since_ns) < STORED_AFTER_NS);
        let in_force = Reader::open(&self.store.counters().path)?.suppressions(time_ns)?;
        let change = match request {
            SuppressRequest::Begin { sid, source, seconds, reason } => {
                let source = range(source)?;
                let is_known = in_force.iter().any(|it| (it.sid, it.source) == (*sid, source));
                ensure!(
                    is_known || in_force.len() < SUPPRESSIONS_MAX,
                    "there are {SUPPRESSIONS_MAX} suppressions: end some"
                );
                begun.push(Suppression {
                    sid: *sid,
                    source,
                    since_ns: time_ns,
                    until_ns: time_ns.saturating_add(seconds.saturating_mul(1_000_000_000)),
                    who: who.to_owned(),
                    reason: reason.clone(),
                });
                SuppressionChange::Begin(begun[begun.len() - 1].clone())
            }
            SuppressRequest::End { sid, source } => {
                let (sid, source) = (*sid, range(source)?);
                let is_known = in_force.iter().chain(&*begun);
                ensure!(
                    is_known.into_iter().any(|it| (it.sid, it.source) == (sid, source)),
                    "that is not suppressed: `weir alerts suppressions` says what is"
                );
                begun.retain(|it| (it.sid, it.source) != (sid, source));
                SuppressionChange::End { sid, source, time_ns }
            }
        };
        self.store.suppress(change);
        Ok(())
    }

    /// Stores what addresses are called.
    pub fn name(&self, settings: &Settings) {
        self.store.labels(settings.labels.clone());
    }

    /// A sender for the records of the pair of this index.
    pub fn sender(&self, pair: usize) -> StoreSender {
        self.store.sender(pair)
    }

    /// Whom records are about.
    pub fn names(&self) -> &Names {
        self.store.names()
    }

    /// A sender for alerts.
    pub fn alerts(&self) -> AlertStore {
        self.store.alerts()
    }

    /// How the store does.
    pub fn counters(&self) -> StoreCounters {
        self.store.counters()
    }

    /// Whether it is time for a sample.
    pub fn is_due(&self, now: Instant) -> bool {
        self.sampled.is_none_or(|last| now.duration_since(last) >= SAMPLE_AFTER)
    }

    /// Stores and publishes a snapshot.
    pub fn take(&mut self, snapshot: Snapshot, now: Instant) {
        self.sampled = Some(now);
        self.store.sample(sample(&snapshot, clock::time().0));
        self.socket.publish(snapshot);
    }

    /// Writes a line into the log book.
    pub fn note(&self, who: &str, what: &str, outcome: &str) {
        let time_ns = clock::time().0;
        let [who, what, outcome] = [who, what, outcome].map(str::to_owned);
        self.store.event(Event { time_ns, who, what, outcome });
    }

    /// Writes what is left.
    pub fn stop(self) {
        self.note("gateway", "stop", "stopped");
        drop(self.socket);
        let StoreCounters { path, records, written, overflowed, lost, failure, .. } =
            self.store.stop();
        let (path, failure) = (path.display(), failure.as_deref());
        tracing::info!(%path, records, written, overflowed, lost, failure, "store closed");
    }
}

/// Gives `group` the `rights` to a folder. What is in it stays the owner's alone, file by file.
fn let_in(folder: &Path, group: u32, rights: u32) -> Result<()> {
    let change = || -> io::Result<()> {
        let found = std::fs::metadata(folder)?;
        let mode = found.mode() & 0o7777;
        // Whoever may look at all needs no more, and a unit that made it so needs no CAP_CHOWN.
        if mode & 0o005 == 0o005 {
            return Ok(());
        }
        if found.gid() != group {
            chown(folder, None, Some(Gid::from_raw(group)))?;
        }
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | rights))
    };
    change().with_context(|| {
        let folder = folder.display();
        format!("cannot let group {group} into {folder}; see docs/guide/operate.md, systemd")
    })
}

/// What counters a snapshot holds, for the store.
fn sample(snapshot: &Snapshot, time_ns: u64) -> Sample {
    let mut sample = Sample { time_ns, ..Sample::default() };
    for pair in &snapshot.pairs {
        let mut add = |kind, name: &str, counters| {
            let (pair, name) = (pair.name.clone(), name.to_owned());
            sample.scopes.push(Scope { pair, kind, name, counters });
        };
        add(ScopeKind::Host, &pair.host.interface, side_counters(&pair.host));
        add(ScopeKind::Wire, &pair.wire.interface, side_counters(&pair.wire));
        add(ScopeKind::Rdma, "rdma", rdma_counters(&pair.rdma));
        for peer in &pair.peers {
            add(ScopeKind::Peer, &peer.name, peer_counters(peer));
        }
        sample.peers.extend(pair.peers.iter().map(|peer| peer_state(pair, peer)));
    }
    sample
}

fn named<const N: usize>(counters: [(&str, u64); N]) -> BTreeMap<String, u64> {
    let kept = counters.into_iter().filter(|(_, count)| *count > 0);
    kept.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn side_counters(side: &SideSnapshot) -> BTreeMap<String, u64> {
    let mut counters = named([
        ("received", side.received),
        ("received_bytes", side.received_bytes),
        ("forwarded", side.forwarded),
        ("fast", side.fast),
        ("sealed", side.sealed),
        ("opened", side.opened),
        ("clear", side.clear),
        ("unsealed", side.unsealed),
        ("tagged", side.tagged),
        ("handed", side.handed),
        ("punted", side.punted),
        ("consumed", side.consumed),
        ("dropped", side.dropped),
        ("guard_dropped", side.guard_dropped),
        ("sent_frames", side.port.sent_frames),
        ("sent_bytes", side.port.sent_bytes),
    ]);
    let reasons = side.dropped_by_reason.iter();
    counters.extend(reasons.map(|(reason, count)| (format!("dropped.{reason}"), *count)));
    let losses = side.port.losses();
    counters.extend(losses.into_iter().map(|(name, count, _)| (format!("port.{name}"), count)));
    counters
}

fn rdma_counters(rdma: &RdmaSnapshot) -> BTreeMap<String, u64> {
    named([
        ("packets", rdma.packets),
        ("icrc_bad", rdma.icrc_bad),
        ("retransmissions", rdma.retransmissions),
        ("rnr_naks", rdma.rnr_naks),
        ("naks", rdma.naks.values().sum()),
        ("cnp", rdma.cnp),
        ("lost_host_side", rdma.losses.host_side),
        ("lost_gateway", rdma.losses.gateway),
        ("lost_wire_side", rdma.losses.wire_side),
    ])
}

fn peer_counters(peer: &PeerSnapshot) -> BTreeMap<String, u64> {
    named([
        ("sealed_packets", peer.sealed_packets),
        ("sealed_bytes", peer.sealed_bytes),
        ("opened_packets", peer.opened_packets),
        ("opened_bytes", peer.opened_bytes),
    ])
}

/// A peer whose keys are configured is up once something authentic came from it.
fn peer_state(pair: &PairSnapshot, peer: &PeerSnapshot) -> PeerState {
    let keying = peer.keying.as_ref();
    let state = match keying {
        Some(keying) => keying.state.clone(),
        None if peer.last_seen_seconds.is_some() => "up".to_owned(),
        None => "silent".to_owned(),
    };
    PeerState {
        pair: pair.name.clone(),
        peer: peer.name.clone(),
        state,
        endpoint: keying.and_then(|it| it.endpoint.clone()),
    }
}
