//! What a pair's front ends (`xfrm = true`) are left to decide.

use super::file::{Pair, Peer, Selector};
use super::problem::Problems;

/// Warns where nothing is: the configuration's prefixes come first.
pub(super) fn check(pair: &Pair, peers: &[&Peer], problems: &mut Problems) {
    if !pair.xfrm {
        return;
    }
    let selectors = peers.iter().flat_map(|peer| &peer.protects.0);
    let mut everything = selectors.filter(|it| *it.get_ref() == Selector::Everything);
    if let Some(everything) = everything.next() {
        problems.warning(
            everything.span(),
            "xfrm = true beside a peer that protects everything: policies of front ends decide \
             nothing",
            "list the prefixes behind the peer, or leave `xfrm` out",
        );
    }
}
