//! `mode = "wireguard"` at a `[[peer]]`: another concentrator, WireGuard's own or a Weir's, whose
//! client this gateway is. Its port is that of `[keying]`.

use super::combine;
use super::file::{Mode, Pair, Peer};
use super::problem::Problems;

/// What such a peer needs, and what WireGuard has no word for.
pub(super) fn check(peer: &Peer, pair: &Pair, problems: &mut Problems) {
    if *peer.mode.get_ref() != Mode::WireGuard {
        return;
    }
    for needs in combine::lacks("mode = \"wireguard\"", peer, pair) {
        problems.error(
            peer.mode.span(),
            format!("peer `{}` in wireguard mode needs {needs}", peer.name.get_ref()),
            "see docs/guide/vpn.md, \"The other end\"",
        );
    }
}
