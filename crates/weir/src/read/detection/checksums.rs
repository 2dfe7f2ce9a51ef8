//! What is made of checksums in captures.

use std::io::Write;

use super::Look;

/// Packets after which wrong checksums are counted, and what part of them they may not be: as
/// Suricata has it.
const CHECKSUMS_SAMPLED: u64 = 1000;
const CHECKSUMS_WRONG_SHARE: u64 = 10;

/// What is made of TCP checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// All count as right.
    #[default]
    Trusted,
    /// A segment with a wrong one is no part of its connection.
    Verified,
    /// Likewise, but those that are left to an adapter count as right; and all, once a tenth of the
    /// first thousand packets was wrong (Suricata's `auto`): the capture was made on the sender.
    Guessed,
}

impl<W: Write> Look<W> {
    /// Looks at checksums no more, from now on, if many were wrong; whether that is so.
    pub(super) fn guess_checksums(&mut self) -> bool {
        let is_due =
            self.options.checksums == Checksums::Guessed && self.seen.packets == CHECKSUMS_SAMPLED;
        let counters = self.detector.counters();
        let wrong = counters.wrong_checksums + counters.wrong_icrcs;
        let are_trusted = is_due && wrong * CHECKSUMS_WRONG_SHARE >= CHECKSUMS_SAMPLED;
        if are_trusted {
            self.detector.check_segments(false);
        }
        are_trusted
    }
}
