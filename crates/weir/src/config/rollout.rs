//! A peer's `sealing`: which of the steps of a roll-out it may be at.

use super::file::{Mode, Peer};
use super::problem::Problems;
use super::settings::Sealing;

/// `sealing` as it is meant, with a warning where plaintext may pass.
pub(super) fn resolve(peer: &Peer, problems: &mut Problems) -> Sealing {
    let Some(written) = &peer.sealing else { return Sealing::Require };
    let (sealing, name) = (*written.get_ref(), peer.name.get_ref());
    let is_tagged = *peer.mode.get_ref() == Mode::IcrcTag;
    match sealing {
        Sealing::Require => {}
        Sealing::Prefer if is_tagged && peer.public_key.is_none() => problems.warning(
            written.span(),
            format!(
                "peer `{name}`: what it sends is taken tagged or not, and nothing tells whether it \
                 can check the tags that it is sent"
            ),
            "let it come as far as \"observe\" with the same key first; then \"require\"",
        ),
        Sealing::Prefer if peer.public_key.is_none() => problems.error(
            written.span(),
            format!(
                "peer `{name}` has keys in files and sealing = \"prefer\": nothing tells whether \
                 it can open what is sealed"
            ),
            "give it a `public_key` instead of `seal` and `open` (`weir keys identity`): a \
             handshake tells; or go from \"observe\" to \"require\" at both ends at once",
        ),
        Sealing::Prefer => problems.warning(
            written.span(),
            format!("peer `{name}`: its traffic passes in clear whenever it cannot be sealed"),
            "write sealing = \"require\" when `weir status` shows no more packets in clear",
        ),
        Sealing::Observe => problems.warning(
            written.span(),
            format!("peer `{name}`: its traffic passes in clear, and is only counted"),
            "write sealing = \"prefer\" when `weir status` shows its keys as `up`",
        ),
    }
    sealing
}
