//! What a worker does: a whole policy with its associations and their kept state.

use std::net::IpAddr;

use std::sync::Arc;

use anyhow::{Context, Result};
use weir_engine::esp::icrc_tag::IcrcTag;
use weir_engine::esp::open::OpeningState;
use weir_engine::esp::sa::SaParameters;
use weir_engine::esp::seal::SealingState;
use weir_engine::policy::{self, OwnAddress, Policy};
use weir_port::Hop;
use weir_wire::parse::MacAddress;

use crate::config::policy::{WirePort, associations, policy};
use crate::config::settings::{Offload, Pair, Peer};
use crate::config::tag::tags;
use crate::config::{Keys, Settings};
use crate::daemon::keys::state::{StateFile, StateStore};
use crate::daemon::pair::kernel_esp::nic::{Nic, Work};
use crate::daemon::pair::kernel_esp::{KernelKeys, KernelPlan};
use crate::machine::{Link, Machine};
use weir_store::entropy::seed;

/// A plan of one worker of a pair. Replaced as a whole.
#[derive(Debug)]
pub struct PairPlan {
    /// What decides about packets.
    pub policy: Policy,
    /// Its associations, a pair of them for each peer of the policy, in the same order.
    pub associations: Vec<AssociationPlan>,
    /// What tags the packets of peers whose key is in a file, by name.
    pub tags: Vec<(String, IcrcTag)>,
    /// Peers whose ESP the kernel does, in the order of the policy's.
    pub kernel: Vec<KernelPlan>,
}

/// A peer's two associations, and where they go on.
///
/// A worker that has an association with the same parameters keeps the one that it has; `state`
/// is for new ones.
#[derive(Debug)]
pub struct AssociationPlan {
    /// The peer's name.
    pub peer: String,
    /// To the peer.
    pub seal: SaParameters,
    /// Numbers used so far; `None` for a new key.
    pub sealing_state: Option<SealingState>,
    /// From the peer.
    pub open: SaParameters,
    /// Numbers accepted so far; `None` for a new key.
    pub opening_state: Option<OpeningState>,
    /// Where accepted numbers are kept, before their packets are delivered.
    pub opening_file: StateFile,
}

/// The plan of `pair` for its `worker`, numbered `epoch`, whose tables `seed` keys; keys that it
/// begins are not on the disk yet.
///
/// # Errors
/// The wire port is gone, or kept state cannot be used.
fn plan(
    pair: &Pair,
    settings: &Settings,
    keys: &Keys,
    machine: &Machine,
    store: &mut StateStore,
    (epoch, worker, seed): (u32, usize, u64),
) -> Result<PairPlan> {
    let wire = machine
        .link(&pair.wire)
        .with_context(|| format!("interface `{}` is not there", pair.wire))?;
    let mut policy = policy(pair, settings.keying.as_ref(), wire_port(wire), epoch, worker);
    policy.host_mtu = machine.link(&pair.host).map_or(u16::MAX, mtu_bytes);
    if let Some(detection) = &settings.detection {
        policy.rules = detection.of_worker(pair.workers, seed);
        policy.exceptions = detection.exceptions;
        policy.tunnels = detection.tunnels;
    }
    policy.blocks = Some(Arc::clone(store.blocks.shared()));
    let (mut by_weir, mut by_kernel, mut kernel) = (Vec::new(), Vec::new(), Vec::new());
    for peer in associations(pair, keys, worker)? {
        let (opening_file, opening_state) = store.opening(peer.open.fingerprint())?;
        let associations = AssociationPlan {
            sealing_state: store.sealing_of_file(peer.seal.fingerprint(), &peer.stamp)?,
            peer: peer.peer,
            seal: peer.seal,
            open: peer.open,
            opening_state,
            opening_file,
        };
        let of_peer = |it: &&policy::Peer| it.kernel.is_some() && it.name == associations.peer;
        match policy.peers.iter().any(|it| of_peer(&it)) {
            true => by_kernel.push(associations),
            false => by_weir.push(associations),
        }
    }
    let mut by_kernel = by_kernel.into_iter();
    let has_esp = |peer: &&policy::Peer| peer.mode == policy::Mode::Tunnel;
    for peer in policy.peers.iter().filter(|peer| peer.kernel.is_some()).filter(has_esp) {
        let keys = match peer.agreed {
            Some(identity) => KernelKeys::Agreed(identity),
            // In the order of the policy's peers, as these are.
            None => KernelKeys::Files(by_kernel.next().context("a peer has no keys")?.into()),
        };
        let to = hop(policy.own.as_ref(), peer.endpoint)
            .context("the kernel's ESP needs addresses of one family outside")?;
        let written = pair.peers.iter().find(|it| it.name == peer.name);
        let nic = written.and_then(|it| nic(it, wire.index));
        kernel.push(KernelPlan { peer: peer.name.clone(), to, keys, nic });
    }
    Ok(PairPlan { policy, associations: by_weir, tags: tags(pair, keys)?, kernel })
}

/// What the NIC beneath is to do for a peer whose ESP the kernel does.
fn nic(peer: &Peer, interface: u32) -> Option<Nic> {
    let (work, is_demanded) = match peer.offload {
        Offload::None | Offload::Kernel => return None,
        Offload::Crypto => (Work::Cipher, true),
        Offload::Packet => (Work::Everything(peer.networks().collect()), true),
        Offload::Auto => (Work::Cipher, false),
    };
    Some(Nic::new(interface, work, is_demanded))
}

/// Where the sealed packets of a peer at `endpoint` go.
fn hop(own: Option<&OwnAddress>, endpoint: Option<IpAddr>) -> Option<Hop> {
    let (own, destination) = (own?, endpoint?);
    let (source, hop) = (own.source_for(destination)?, own.hop_for(destination));
    Some(Hop { source, destination, hop })
}

/// The plans of every pair, a worker each, in the order of the settings.
///
/// # Errors
/// As `plan`.
pub fn plans(
    settings: &Settings,
    keys: &Keys,
    machine: &Machine,
    store: &mut StateStore,
    epoch: u32,
) -> Result<Vec<Vec<PairPlan>>> {
    let mut of_pair = |pair: &Pair| {
        // One for all workers: they tell each other what they count by fingerprints.
        let seed = seed()? as u64;
        let plan = |worker| plan(pair, settings, keys, machine, store, (epoch, worker, seed));
        let plans = (0..pair.workers).map(plan).collect::<Result<_>>();
        plans.with_context(|| format!("pair {}", pair.name))
    };
    let plans = settings.pairs.iter().map(&mut of_pair).collect::<Result<_>>()?;
    store.settle()?;
    Ok(plans)
}

fn wire_port(link: &Link) -> WirePort {
    WirePort { mac: MacAddress(link.mac.unwrap_or_default()), mtu_bytes: mtu_bytes(link) }
}

fn mtu_bytes(link: &Link) -> u16 {
    u16::try_from(link.mtu_bytes).unwrap_or(u16::MAX)
}
