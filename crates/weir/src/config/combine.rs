//! What goes with what: the engine's rows ([`weir_engine::protect::rows`]) against what a file has.

use weir_engine::protect::rows::{self, Cannot, Given, Row};

use super::file::{Driver, Encapsulation, Mode, Pair, Peer, Sealing, Selector, Unprotected};
use super::offload::{NIC_WINDOW_MAX, Offload};

/// The widest window that the kernel keeps (`XFRMA_REPLAY_ESN_MAX`), packets.
const KERNEL_WINDOW_MAX: u32 = 4096;

/// What the row of this name needs, and `peer` and its pair do not have.
pub(super) fn lacks(name: &str, peer: &Peer, pair: &Pair) -> Vec<&'static str> {
    let met = refusals(name).filter(|(given, _)| holds_for(*given, peer, pair));
    met.map(|(_, needs)| *needs).collect()
}

/// The same of what a whole pair is asked for.
pub(super) fn pair_lacks(name: &str, pair: &Pair, peers: &[&Peer]) -> Vec<&'static str> {
    let met = refusals(name).filter(|(given, _)| match given {
        Given::Peers => !peers.is_empty(),
        given => holds_in(*given, pair),
    });
    met.map(|(_, needs)| *needs).collect()
}

fn refusals(name: &str) -> impl Iterator<Item = &'static Cannot> {
    rows::row(name).into_iter().flat_map(Row::refusals)
}

fn holds_for(given: Given, peer: &Peer, pair: &Pair) -> bool {
    let window = peer.replay_window.as_ref().map_or(0, |it| *it.get_ref());
    let is_prefix = |it: &Selector| matches!(it, Selector::Prefix(_));
    let has_prefixes = peer.protects.0.iter().all(|it| is_prefix(it.get_ref()));
    match given {
        Given::NoTunnel => *peer.mode.get_ref() != Mode::Tunnel,
        Given::KeysInFiles => peer.public_key.is_none(),
        Given::Borrowed => peer.endpoint.is_none() || pair.address.0.is_empty(),
        Given::Everything => !has_prefixes,
        Given::EndpointInside => has_prefixes && !is_steerable(peer),
        Given::InUdp => peer.encapsulation != Encapsulation::Esp,
        Given::MayBeClear => {
            peer.sealing.as_ref().is_some_and(|it| *it.get_ref() != Sealing::Require)
        }
        Given::ShortSequence => peer.extended_sequence == Some(false),
        Given::WindowOverKernel => window > KERNEL_WINDOW_MAX,
        Given::WindowOverNic => window > NIC_WINDOW_MAX,
        Given::Offload => peer.offload.as_ref().is_some_and(|it| *it.get_ref() != Offload::None),
        Given::MlKem => peer.ml_kem == Some(true),
        Given::Peers => true,
        given => holds_in(given, pair),
    }
}

fn holds_in(given: Given, pair: &Pair) -> bool {
    match given {
        Given::Xdp => pair.driver == Driver::Xdp,
        Given::DefaultSeal => {
            pair.default.as_ref().is_some_and(|it| *it.get_ref() == Unprotected::Seal)
        }
        Given::Vlan => pair.vlan.is_some(),
        Given::ClassMaps => pair.dscp_map.is_some() || pair.pcp_map.is_some(),
        Given::FrontEnd => pair.xfrm,
        Given::Workers => pair.workers.as_ref().is_some_and(|it| *it.get_ref() > 1),
        Given::NoAddress => pair.address.0.is_empty(),
        _ => false,
    }
}

/// Whether a NIC that matches packets by the peer's networks leaves alone what the gateways say to
/// each other. Linux has no associations of one family in the other for NICs.
fn is_steerable(peer: &Peer) -> bool {
    let Some(endpoint) = peer.endpoint.as_ref().map(|it| *it.get_ref()) else { return true };
    peer.protects.0.iter().all(|it| match it.get_ref() {
        Selector::Prefix(prefix) => {
            prefix.network().is_ipv4() == endpoint.is_ipv4() && !prefix.contains(endpoint)
        }
        _ => false,
    })
}
