//! Where one more detector stands: a file of its own, and one line that puts it here.

use std::fmt::Debug;

use weir_wire::frame::Frame;
use weir_wire::parse::Parsed;

use crate::verdict::{DropReason, Side};

/// Looks at every packet in clear, behind the blocks and before the meter, and may drop it.
/// `examples/ttl_detector.rs` has a whole one.
pub trait Judge: Debug + Send {
    /// Says whether a packet that came in by `side` goes on. Called for each packet, so it
    /// allocates nothing; without a judge this costs one branch.
    ///
    /// # Errors
    /// Why it is dropped: then it is not counted by the meter.
    fn judge(&mut self, side: Side, frame: &Frame<'_>, parsed: &Parsed) -> Result<(), DropReason>;
}
