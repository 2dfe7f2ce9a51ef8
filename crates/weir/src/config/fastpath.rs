//! What a pair's `fastpath` may be.

use super::file::{self, Driver, FastPathMode};
use super::problem::Problems;

/// `tc` is a demand: it is refused where nothing could ever be carried.
pub(super) fn check(
    pair: &file::Pair,
    peers: &[&file::Peer],
    problems: &mut Problems,
) -> FastPathMode {
    let Some(fastpath) = &pair.fastpath else { return FastPathMode::default() };
    let demanded = *fastpath.get_ref() == FastPathMode::Tc;
    if demanded && pair.driver == Driver::Xdp {
        problems.error(
            fastpath.span(),
            "driver = \"xdp\" takes all frames before tc could carry any",
            "write fastpath = \"off\", or driver = \"packet\"",
        );
    }
    if demanded && !peers.is_empty() {
        problems.error(
            fastpath.span(),
            "this pair seals, and nothing of a pair that seals goes on the fast path",
            "write fastpath = \"off\", or \"auto\" to have it whenever there is no peer",
        );
    }
    *fastpath.get_ref()
}
