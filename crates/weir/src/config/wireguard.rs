//! `mode = "wireguard"` at a [[peer]]: another concentrator, WireGuard's own or a Weir's, whose
//! client this gateway is. Its port is that of `[keying]`.

use super::file::{Mode, Pair, Peer, Sealing};
use super::offload::Offload;
use super::problem::Problems;

/// What such a peer needs, and what WireGuard has no word for.
pub(super) fn check(peer: &Peer, pair: &Pair, problems: &mut Problems) {
    if *peer.mode.get_ref() != Mode::WireGuard {
        return;
    }
    let offload = peer.offload.as_ref().map_or(Offload::None, |it| *it.get_ref());
    for (is_met, needs) in [
        (peer.public_key.is_some(), "its `public_key`: WireGuard knows no other keys"),
        (!pair.address.0.is_empty(), "an `address` of the pair to speak from"),
        (peer.sealing.as_ref().is_none_or(|it| *it.get_ref() == Sealing::Require), "no `sealing`"),
        (offload == Offload::None, "no `offload`: its packets are no ESP"),
        (peer.ml_kem != Some(true), "no `ml_kem`, of which standard WireGuard knows nothing"),
    ] {
        if !is_met {
            problems.error(
                peer.mode.span(),
                format!("peer `{}` in wireguard mode needs {needs}", peer.name.get_ref()),
                "see docs/guide/vpn.md, \"The other end\"",
            );
        }
    }
}
