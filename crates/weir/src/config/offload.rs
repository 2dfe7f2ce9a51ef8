//! A peer's `offload`: who does its ESP. What the NIC says to it is for `daemon/pair/offload.rs` to
//! ask; the kernel's way is `daemon/pair/kernel_esp`.

use serde::{Deserialize, Serialize};

use super::combine;
use super::file;
use super::problem::Problems;

/// Peers of a pair whose ESP the kernel does, at most: each has an interface and a receive ring.
pub const KERNEL_PEERS_MAX: usize = 64;

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
            return (offload, lacks(Offload::Crypto, peer, pair).first().copied());
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
    combine::lacks(&format!("offload = \"{}\"", offload.name()), peer, pair)
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
