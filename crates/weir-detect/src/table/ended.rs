//! Flows that ended, for who wants to know.

use super::{Entry, Key};
use crate::alert::End;
use crate::detector::Detector;
use crate::flow::FlowSlot;
use crate::record::{EndReason, FlowRecord};

/// Flows that wait to be taken, at most; those beyond are not told of.
const ENDED_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Ended {
    /// What there is to tell of them, where somebody takes it.
    pub(super) records: Option<Vec<FlowRecord>>,
    /// Between whom those were that went past the rules.
    pub(super) returned: Vec<[End; 2]>,
}

impl Ended {
    /// Gives the slot back.
    pub(super) fn take(
        &mut self,
        key: Key,
        entry: Entry,
        reason: EndReason,
        detector: &mut Detector,
    ) {
        self.note_return(&key, entry.slot, detector);
        if let Some(records) = self.records.as_mut().filter(|it| it.len() < ENDED_MAX) {
            records.extend(detector.record(entry.slot).map(|it| FlowRecord { reason, ..it }));
        }
        detector.release(entry.slot);
    }

    /// Somebody is to look at a flow again, if it was looked at for so long that nobody did.
    pub(super) fn note_return(&mut self, key: &Key, slot: FlowSlot, detector: &Detector) {
        if detector.is_long(slot) && self.returned.len() < ENDED_MAX {
            self.returned.push(key.ends.map(|(address, port)| End { address, port: port as u16 }));
        }
    }
}
