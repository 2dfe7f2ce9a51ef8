//! What ESP in transport mode leaves open, said where it is configured.
//!
//! Addresses stay outside of what is authenticated (RFC 4303 s3.1.1). Who can change packets on the
//! way can lead an authentic payload to another host that the same key serves, or let it come from
//! another. Between two hosts there is no other.

use super::file::{Mode, Peer, Selector};
use super::problem::Problems;

/// Warns where more than one host of a family is behind a peer in transport mode.
pub(super) fn check(peer: &Peer, problems: &mut Problems) {
    if *peer.mode.get_ref() != Mode::Transport {
        return;
    }
    let prefixes = || {
        peer.protects.0.iter().filter_map(|selector| match selector.get_ref() {
            Selector::Prefix(prefix) => Some((*prefix, selector.span())),
            Selector::Everything => None,
        })
    };
    for is_v4 in [true, false] {
        let mut of_family = prefixes().filter(|(it, _)| it.network().is_ipv4() == is_v4);
        let host_bits = if is_v4 { 32 } else { 128 };
        let Some((first, span)) = of_family.next() else { continue };
        if first.length_bits() == host_bits && of_family.next().is_none() {
            continue;
        }
        problems.warning(
            span,
            format!(
                "peer `{}` in transport mode protects several hosts by one key, which does not \
                 bind their addresses: who changes packets on the way can exchange the hosts",
                peer.name.get_ref()
            ),
            "use mode = \"tunnel\", which seals addresses too (20 or 40 bytes more a packet), or \
             give each host a [[peer]] of its own",
        );
        return;
    }
}
