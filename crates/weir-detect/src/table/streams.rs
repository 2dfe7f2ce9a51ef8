//! What is asked of the streams of connections.

use super::FlowTable;
use crate::detector::{Detector, Packet};
use crate::rule::RuleIndex;

impl FlowTable {
    /// The last bytes of the stream that a packet belongs to, of its sender's side: with `is_whole`
    /// those too that the receiver has not acknowledged.
    pub fn stream(
        &self,
        detector: &Detector,
        packet: &Packet<'_>,
        is_whole: bool,
    ) -> Option<Vec<u8>> {
        let (key, from_first) = self.key(packet);
        let entry = self.entries.get(&key)?;
        detector.stream(entry.slot, entry.direction(from_first), is_whole)
    }

    /// Whether that stream, all of it, still has what a rule has found in it.
    pub fn holds_still(
        &self,
        detector: &mut Detector,
        packet: &Packet<'_>,
        rule: RuleIndex,
    ) -> bool {
        let (key, from_first) = self.key(packet);
        let Some(entry) = self.entries.get(&key) else { return true };
        detector.holds_still(entry.slot, entry.direction(from_first), rule)
    }

    /// The sequence number with which that stream goes on.
    pub fn next_number(&self, detector: &Detector, packet: &Packet<'_>) -> Option<u32> {
        let (key, from_first) = self.key(packet);
        let entry = self.entries.get(&key)?;
        detector.next_number(entry.slot, entry.direction(from_first))
    }
}
