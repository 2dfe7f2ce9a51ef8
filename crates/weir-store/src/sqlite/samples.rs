//! What the store is told beside records: counters at one moment, and lines of the log book.

use std::collections::BTreeMap;

/// Counters at one moment. The values that come in are totals since the gateway's start; what is
/// stored is what they grew by.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When, nanoseconds since 1970.
    pub time_ns: u64,
    /// What was counted, by what it belongs to.
    pub scopes: Vec<Scope>,
    /// How the peers stand.
    pub peers: Vec<PeerState>,
}

/// What counters belong to.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Name of the pair of ports.
    pub pair: String,
    /// Of what kind.
    pub kind: ScopeKind,
    /// Its name: the interface, the peer.
    pub name: String,
    /// Counters by name, in packets unless the name says otherwise.
    pub counters: BTreeMap<String, u64>,
}

/// Of what kind a [`Scope`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// A host port.
    Host,
    /// A wire port.
    Wire,
    /// A peer.
    Peer,
    /// The pair's RDMA traffic.
    Rdma,
    /// Another exporter, whose records are collected.
    Exporter,
}

impl ScopeKind {
    /// Its name in the file and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Wire => "wire",
            Self::Peer => "peer",
            Self::Rdma => "rdma",
            Self::Exporter => "exporter",
        }
    }
}

/// How a peer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Name of the pair of ports.
    pub pair: String,
    /// Its name.
    pub peer: String,
    /// `up`, `dead`, ...
    pub state: String,
    /// Where it is, as far as is known.
    pub endpoint: Option<String>,
}

/// What was done to the gateway: a line of its log book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, nanoseconds since 1970.
    pub time_ns: u64,
    /// `gateway`, or who asked.
    pub who: String,
    /// What was done.
    pub what: String,
    /// How it ended.
    pub outcome: String,
}

/// Pair, kind and name of a scope, and a counter of it.
pub(super) type CounterKey = (String, &'static str, String, String);

/// What counters grew by since the sample before; a counter that fell began anew.
pub(super) fn grown(before: &mut BTreeMap<CounterKey, u64>, mut sample: Sample) -> Sample {
    let mut next = BTreeMap::new();
    for scope in &mut sample.scopes {
        for (name, value) in &mut scope.counters {
            let key = (scope.pair.clone(), scope.kind.name(), scope.name.clone(), name.clone());
            let earlier = before.get(&key).copied().unwrap_or(0);
            next.insert(key, *value);
            *value = value.checked_sub(earlier).unwrap_or(*value);
        }
    }
    *before = next;
    sample
}
