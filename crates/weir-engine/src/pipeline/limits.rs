//! What a peer may send and be sent in a second.

use weir_wire::frame::Frame;

use super::Engine;
use crate::limit::{RateLimit, Way};
use crate::verdict::DropReason;

impl Engine {
    /// Drops what is more than its peer may send or be sent.
    #[inline]
    pub(super) fn limit(
        &mut self,
        peer: usize,
        way: Way,
        frame: &Frame<'_>,
    ) -> Result<(), DropReason> {
        let admits = |it: &mut Box<RateLimit>| it.admits(way, frame.meta.time, frame.len());
        let admitted = self.sealing[peer].limit.as_mut().is_none_or(admits);
        if admitted { Ok(()) } else { Err(DropReason::RateLimit) }
    }
}
