//! What the gate in the kernel drops before it is received, and its part in what is counted.

use weir_detect::Flood;
use weir_detect::dataset::Change;
use weir_wire::frame::Time;

use super::Engine;
use crate::detect::{DetectionRecord, RuleMode, ToldPacket};
use crate::verdict::{DropReason, Side};

impl Engine {
    /// Hands over the floods that may be dropped before they are received, since the last call.
    pub fn take_floods(&mut self, take: &mut dyn FnMut(Flood)) {
        if let Some(detection) = self.plain.detection_mut() {
            detection.take_floods(take);
        }
    }

    /// Takes in how many packets of such a flood were dropped; whether that is to go on.
    pub fn flood_goes_on(&mut self, now: Time, flood: &Flood, packets: u64) -> bool {
        let detection = self.plain.detection_mut();
        detection.is_some_and(|it| it.dropped_early(now, flood, packets))
    }

    /// The flood is dropped here: the gate has no room, or does so for another worker.
    pub fn release_flood(&mut self, flood: &Flood) {
        if let Some(detection) = self.plain.detection_mut() {
            detection.release_flood(flood);
        }
    }

    /// Counts frames that were dropped at a port before they were received.
    pub fn note_early_drops(&mut self, side: Side, reason: DropReason, frames: u64, bytes: u64) {
        self.counters.side_mut(side).count_early(reason, frames, bytes);
    }

    /// Hands over what detection tells beside alerts.
    pub fn take_detection_records(&mut self, take: &mut dyn FnMut(DetectionRecord)) {
        if let Some(detection) = self.plain.detection_mut() {
            detection.take_records(take);
        }
    }

    /// Records of packets that were dropped for which there was no room, since the last call.
    pub fn take_lost_records(&mut self) -> u64 {
        self.plain.detection_mut().map(|it| it.take_lost_records()).unwrap_or_default()
    }

    /// What rules put into sets that are kept in files, or took from them, since the last call.
    pub fn take_dataset_changes(&mut self) -> Vec<Change> {
        let detection = self.plain.detection_mut();
        detection.map(|it| it.take_dataset_changes()).unwrap_or_default()
    }

    /// The packets that rules told of since the last call, whole, as far as there was room.
    pub fn take_told_packets(&mut self) -> Vec<ToldPacket> {
        let detection = self.plain.detection_mut();
        detection.map(|it| it.take_told_packets()).unwrap_or_default()
    }

    /// Ends the flows that detection keeps: when the gateway does.
    pub fn end_detection_flows(&mut self) {
        if let Some(detection) = self.plain.detection_mut() {
            detection.end_flows();
        }
    }

    /// Whether the gate is to remember who was answered.
    pub fn asks_for_answers(&self) -> bool {
        let detection = self.plain.detection();
        detection.is_some_and(|it| it.mode() == RuleMode::Enforce && it.rules().asks_for_answers())
    }
}
