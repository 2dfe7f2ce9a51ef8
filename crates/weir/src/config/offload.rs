//! A peer's `offload`: who does its ESP. What the NIC says to it is for `daemon/offload.rs` to ask;
//! the kernel's way is `daemon/kernel_esp`.

use serde::{Deserialize, Serialize};

use super::file::{self, Driver, Encapsulation, Mode, Selector};
use super::problem::Problems;

/// Peers of a pair whose ESP the kernel does, at most: each has an interface and a receive ring.
pub const KERNEL_PEERS_MAX: usize = 64;

/// The widest window that the kernel keeps (`XFRMA_REPLAY_ESN_MAX`), packets.
const REPLAY_WINDOW_MAX: u32 = 4096;

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
    /// The NIC as far as it can; else Weir, which says why.
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

    /// Whether the peer's associations are the kernel's, with or without a NIC beneath.
    pub const fn is_by_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Crypto)
    }
}

/// `offload` as it is meant. What the kernel's ESP does not do for a peer, or not as the pair says,
/// is refused with the reason.
pub(super) fn resolve(peer: &file::Peer, pair: &file::Pair, problems: &mut Problems) -> Offload {
    let Some(written) = &peer.offload else { return Offload::None };
    let offload = *written.get_ref();
    if !offload.is_by_kernel() {
        return offload;
    }
    let name = peer.name.get_ref();
    let is_between = peer.endpoint.is_some() && !pair.address.0.is_empty();
    let is_prefix = |it: &Selector| matches!(it, Selector::Prefix(_));
    let protects_prefixes = peer.protects.0.iter().all(|it| is_prefix(it.get_ref()));
    let window = peer.replay_window.as_ref().map_or(0, |it| *it.get_ref());
    let requires = peer.sealing.as_ref().is_none_or(|it| *it.get_ref() == file::Sealing::Require);
    // Of a key in a file no nonce may come twice, over restarts too, and a driver makes its own.
    let is_once = offload != Offload::Crypto || peer.public_key.is_some();
    let is_copied = pair.dscp_map.is_none() && pair.pcp_map.is_none();
    for (is_met, needs) in [
        (*peer.mode.get_ref() == Mode::Tunnel, "mode = \"tunnel\""),
        (is_once, "keys that are agreed on (`public_key`)"),
        (is_between, "an `endpoint` and an own `address`"),
        (protects_prefixes, "prefixes in `protects`"),
        (peer.encapsulation == Encapsulation::Esp, "encapsulation = \"esp\""),
        (requires, "sealing = \"require\""),
        (peer.extended_sequence != Some(false), "extended_sequence = true"),
        (window <= REPLAY_WINDOW_MAX, "a replay_window of at most 4096 packets"),
        (pair.driver == Driver::Packet, "driver = \"packet\" in its pair"),
        (pair.vlan.is_none(), "a pair without `vlan`"),
        (is_copied, "a pair without `dscp_map` and `pcp_map`"),
        (!pair.xfrm, "a pair without `xfrm`"),
    ] {
        if !is_met {
            problems.error(
                written.span(),
                format!("peer `{name}`: offload = \"{}\" needs {needs}", offload.name()),
                "write that, or offload = \"none\": Weir seals",
            );
        }
    }
    offload
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
