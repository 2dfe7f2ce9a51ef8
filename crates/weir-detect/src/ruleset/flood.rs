//! Rules about floods: what they watch, and whether the kernel's gate can drop it for them.

use crate::behaviour::{FloodWatch, Watch};
use crate::rule::{Action, FlowTest, HeaderTest, Rule};

impl Rule {
    /// The flood that it asks for.
    pub(crate) fn flood_watch(&self) -> Option<FloodWatch> {
        self.tests.iter().find_map(|it| match it {
            HeaderTest::Sign { watch: Watch::Flood(watch), .. } => Some(*watch),
            _ => None,
        })
    }

    /// The flood that it drops, if nothing else is asked of a packet than what the kernel's gate
    /// can tell.
    pub(super) fn flood(&self) -> Option<FloodWatch> {
        let header = &self.header;
        let [HeaderTest::Sign { watch: Watch::Flood(watch), .. }] = self.tests[..] else {
            return None;
        };
        let is_any = header.source.is_all()
            && header.destination.is_all()
            && header.destination_ports.is_all()
            && (header.source_ports.is_all() || watch.is_dns());
        let is_alone = self.flow == FlowTest::default()
            && self.flow_counts.is_empty()
            && self.stream_sizes.is_empty()
            && self.buffers.is_empty()
            && self.bits.is_empty()
            && self.filter.is_none()
            && self.suppressions.is_empty()
            && self.rate.is_none();
        let drops =
            self.action == Action::Drop && !self.is_tried && !header.protocol.is_application();
        (drops && is_any && is_alone && watch.is_for_gate()).then_some(watch)
    }
}
