//! How the gateways of a machine stand: the types of `/api/v1/status`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::dto::PortAccount;
use crate::status;

/// All gateways of this machine.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StatusList {
    /// By name.
    pub gateways: Vec<GatewayStatus>,
}

/// A gateway.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct GatewayStatus {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Whether nothing is wrong.
    pub is_healthy: bool,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Seconds since it was ready.
    pub uptime_seconds: u64,
    /// Its pairs of ports.
    pub pairs: Vec<PairStatus>,
    /// What it remembers.
    pub store: Option<StoreStatus>,
}

/// A pair of ports.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PairStatus {
    pub name: String,
    pub driver: String,
    pub policy_epoch: u32,
    pub ports: Vec<PortAccount>,
    pub peers: u64,
    pub flows: u64,
    pub queue_pairs: u64,
    pub rdma_packets: u64,
    /// RDMA packets that were lost, by whose side.
    pub rdma_losses: status::Losses,
    pub plaintext_on_wire: u64,
    /// Of bytes received, the share that the kernel carried: 0 to 1.
    pub fast_share: Option<f64>,
}

/// A store.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct StoreStatus {
    pub records: u64,
    pub overflowed: u64,
    pub written: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    pub failure: Option<String>,
}

impl GatewayStatus {
    /// A gateway that answers.
    pub fn up(status: &status::Status) -> Self {
        let problems = problems(status);
        Self {
            name: status.name.clone(),
            is_up: true,
            is_healthy: problems.is_empty(),
            problems,
            version: status.version.clone(),
            uptime_seconds: status.uptime_seconds,
            pairs: status.pairs.iter().map(|it| PairStatus::of(&status.name, it)).collect(),
            store: status.store.as_ref().map(StoreStatus::of),
        }
    }

    /// One that does not, with why.
    pub fn down(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_up: false,
            is_healthy: false,
            problems: vec![format!("the gateway does not answer: {why}")],
            version: String::new(),
            uptime_seconds: 0,
            pairs: Vec::new(),
            store: None,
        }
    }
}

impl PairStatus {
    fn of(gateway: &str, pair: &status::Pair) -> Self {
        Self {
            name: pair.name.clone(),
            driver: pair.driver.clone(),
            policy_epoch: pair.policy_epoch,
            ports: PortAccount::all(gateway, pair),
            peers: pair.peers.len() as u64,
            flows: pair.flows,
            queue_pairs: pair.rdma.queue_pairs,
            rdma_packets: pair.rdma.packets,
            rdma_losses: pair.rdma.losses,
            plaintext_on_wire: pair.wire_proof.plaintext,
            fast_share: pair.fast_path.share_bytes,
        }
    }
}

impl StoreStatus {
    fn of(store: &status::Store) -> Self {
        Self {
            records: store.records,
            overflowed: store.overflowed,
            written: store.written,
            bytes: store.bytes,
            bytes_max: store.bytes_max,
            failure: store.failure.clone(),
        }
    }
}

/// What an operator should know, a sentence each.
fn problems(status: &status::Status) -> Vec<String> {
    let mut problems = Vec::new();
    if !status.adds_up {
        problems.push("the counters do not add up: please report it".to_owned());
    }
    for pair in &status.pairs {
        let name = &pair.name;
        if pair.wire_proof.plaintext > 0 {
            let count = pair.wire_proof.plaintext;
            problems.push(format!("pair {name}: {count} frames in plaintext came to the wire"));
        }
        for peer in pair.peers.iter().filter(|it| it.state() == "dead") {
            problems.push(format!("pair {name}: peer {} is dead", peer.name));
        }
    }
    if let Some(store) = &status.store {
        problems.extend(store.failure.iter().map(|why| format!("nothing is stored: {why}")));
        if let Some(aside) = &store.moved_aside {
            let aside = aside.display();
            problems.push(format!("the store was damaged; its old file is {aside}"));
        }
    }
    problems
}
