//! A peer's `offload`: who does its ESP. What the NIC says to it is for `daemon/offload.rs` to ask;
//! the kernel's way is `daemon/kernel_esp`.

use serde::{Deserialize, Serialize};

use super::file::{self, Driver, Encapsulation, Mode, Selector, Unprotected};
use super::problem::Problems;

/// Peers of a pair whose ESP the kernel does, at most: each has an interface and a receive ring.
pub const KERNEL_PEERS_MAX: usize = 64;

/// The widest window that the kernel keeps (`XFRMA_REPLAY_ESN_MAX`), packets.
const REPLAY_WINDOW_MAX: u32 = 4096;
/// The widest window of mlx5 (`mlx5e_xfrm_validate_state`), packets.
pub const NIC_WINDOW_MAX: u32 = 256;

/// Who does a peer's ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Weir, in this process.
    #[default]
    None,
    /// The kernel, in software, by an xfrm interface.
    Kernel,
    /// The NIC its AES-GCM, the kernel the rest; a gateway that cannot have it does not start.
    Crypto,
    /// The NIC all of it; likewise.
    Packet,
    /// [`Self::Crypto`] where the NIC takes it; else Weir, which says why.
    Auto,
}

impl Offload {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kernel => "kernel",
            Self::Crypto => "crypto",
            Self::Packet => "packet",
            Self::Auto => "auto",
        }
    }

    /// Whether the peer's associations are the kernel's, with or without a NIC beneath, whatever a
    /// NIC says.
    pub const fn is_by_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Crypto | Self::Packet)
    }
}

/// `offload` as it is meant. What the kernel's ESP does not do for a peer, or not as the pair says,
/// is refused with the reason; of `auto`, the first such thing is told beside.
pub(super) fn resolve(
    peer: &file::Peer,
    pair: &file::Pair,
    problems: &mut Problems,
) -> (Offload, Option<&'static str>) {
    let Some(written) = &peer.offload else { return (Offload::None, None) };
    let offload = *written.get_ref();
    match offload {
        Offload::None => return (offload, None),
        Offload::Auto => {
            let is_shared = pair.workers.as_ref().is_some_and(|it| *it.get_ref() > 1);
            let shared = is_shared.then_some("a pair with one worker");
            return (offload, lacks(Offload::Crypto, peer, pair).first().copied().or(shared));
        }
        _ => {}
    }
    let name = peer.name.get_ref();
    for needs in lacks(offload, peer, pair) {
        problems.error(
            written.span(),
            format!("peer `{name}`: offload = \"{}\" needs {needs}", offload.name()),
            "write that, or offload = \"none\": Weir seals",
        );
    }
    (offload, None)
}

/// What `offload` needs and does not have.
fn lacks(offload: Offload, peer: &file::Peer, pair: &file::Pair) -> Vec<&'static str> {
    let is_between = peer.endpoint.is_some() && !pair.address.0.is_empty();
    let is_prefix = |it: &Selector| matches!(it, Selector::Prefix(_));
    let protects_prefixes = peer.protects.0.iter().all(|it| is_prefix(it.get_ref()));
    let window = peer.replay_window.as_ref().map_or(0, |it| *it.get_ref());
    let requires = peer.sealing.as_ref().is_none_or(|it| *it.get_ref() == file::Sealing::Require);
    // Of a key in a file no nonce may come twice, over restarts too, and a driver makes its own.
    let is_once = offload == Offload::Kernel || peer.public_key.is_some();
    let is_copied = pair.dscp_map.is_none() && pair.pcp_map.is_none();
    let by_nic = offload == Offload::Packet;
    let takes_the_rest = pair.default.as_ref().is_some_and(|it| *it.get_ref() == Unprotected::Seal);
    let all = [
        (*peer.mode.get_ref() == Mode::Tunnel, "mode = \"tunnel\""),
        (is_once, "keys that are agreed on (`public_key`)"),
        (is_between, "an `endpoint` and an own `address`"),
        (protects_prefixes, "prefixes in `protects`"),
        (
            !by_nic || !protects_prefixes || is_steerable(peer),
            "networks of its endpoint's family in `protects`, none with the endpoint in it (the \
             NIC would seal handshakes too)",
        ),
        (peer.encapsulation == Encapsulation::Esp, "encapsulation = \"esp\""),
        (requires, "sealing = \"require\""),
        (peer.extended_sequence != Some(false), "extended_sequence = true"),
        (window <= REPLAY_WINDOW_MAX, "a replay_window of at most 4096 packets"),
        (!by_nic || window <= NIC_WINDOW_MAX, "a replay_window of at most 256 packets"),
        (pair.driver == Driver::Packet, "driver = \"packet\" in its pair"),
        (!by_nic || !takes_the_rest, "a pair without default = \"seal\""),
        (pair.vlan.is_none(), "a pair without `vlan`"),
        (is_copied, "a pair without `dscp_map` and `pcp_map`"),
        (!pair.xfrm, "a pair without `xfrm`"),
    ];
    all.into_iter().filter(|(is_met, _)| !is_met).map(|(_, needs)| needs).collect()
}

/// Whether a NIC that matches packets by the peer's networks leaves alone what the gateways say to
/// each other. Linux has no associations of one family in the other for NICs.
fn is_steerable(peer: &file::Peer) -> bool {
    let Some(endpoint) = peer.endpoint.as_ref().map(|it| *it.get_ref()) else { return true };
    peer.protects.0.iter().all(|it| match it.get_ref() {
        Selector::Prefix(prefix) => {
            prefix.network().is_ipv4() == endpoint.is_ipv4() && !prefix.contains(endpoint)
        }
        _ => false,
    })
}

/// At most [`KERNEL_PEERS_MAX`] of a pair's peers.
pub(super) fn check_count(pair: &file::Pair, peers: &[&file::Peer], problems: &mut Problems) {
    let by_kernel =
        |peer: &&&file::Peer| peer.offload.as_ref().is_some_and(|it| it.get_ref().is_by_kernel());
    if peers.iter().filter(by_kernel).count() > KERNEL_PEERS_MAX {
        let what = format!("more than {KERNEL_PEERS_MAX} peers whose ESP is the kernel's");
        problems.error(pair.host.span(), what, "write offload = \"none\" at some of them");
    }
}
