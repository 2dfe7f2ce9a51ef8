//! Whom opened packets may come from.

use weir_wire::parse::Parsed;

use crate::classify::has_address;
use crate::policy::Policy;

/// Whom opened packets may come from, under one policy: from behind the peer that sealed them, and
/// from behind no other that has a longer prefix. Packets to there would go to that one.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The last peer, and an address that it may send from: most packets are of the same few flows.
    last: Option<(usize, [u8; 16])>,
}

impl Sources {
    /// Whether the packet comes from behind the peer of this index.
    #[inline]
    pub(crate) fn are_of(&mut self, policy: &Policy, peer: usize, inner: &Parsed) -> bool {
        if !has_address(inner) {
            return policy.peers[peer].everything;
        }
        if self.last == Some((peer, inner.source)) {
            return true;
        }
        let may_send = policy.may_send(peer, &inner.source);
        if may_send {
            self.last = Some((peer, inner.source));
        }
        may_send
    }
}
