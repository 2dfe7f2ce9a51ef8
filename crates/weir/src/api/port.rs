//! What the status shows of a port.

use serde::{Deserialize, Serialize};
use weir_port::PortCounters;

/// What a port counts; see [`PortCounters`] for the meaning of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "documented at `PortCounters`, whose fields these are")]
pub struct PortSnapshot {
    pub received_frames: u64,
    pub received_bytes: u64,
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub lost_ring_full: u64,
    pub lost_truncated: u64,
    pub send_queue_full: u64,
    pub send_too_large: u64,
    pub send_refused: u64,
    pub device_dropped: u64,
    /// Taken off `device_dropped`, where both are known.
    #[serde(skip)]
    pub refused_by_device: u64,
}

impl PortSnapshot {
    /// Losses by name, with what each means; those that did not happen are left out.
    pub fn losses(&self) -> Vec<(&'static str, u64, &'static str)> {
        [
            ("lost_ring_full", self.lost_ring_full, "The ring was full before Weir saw the frame."),
            ("lost_truncated", self.lost_truncated, "No buffer could hold the frame."),
            ("send_queue_full", self.send_queue_full, "The device's queue was full."),
            ("send_too_large", self.send_too_large, "Larger than the device allows."),
            ("send_refused", self.send_refused, "The device was down or gone."),
            ("device_dropped", self.device_dropped, "The device or its driver lost it."),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .collect()
    }
}

impl From<PortCounters> for PortSnapshot {
    fn from(port: PortCounters) -> Self {
        Self {
            received_frames: port.received_frames,
            received_bytes: port.received_bytes,
            sent_frames: port.sent_frames,
            sent_bytes: port.sent_bytes,
            lost_ring_full: port.lost_ring_full,
            lost_truncated: port.lost_truncated,
            send_queue_full: port.send_queue_full,
            send_too_large: port.send_too_large,
            send_refused: port.send_refused,
            device_dropped: port.device_dropped,
            refused_by_device: port.refused_by_device,
        }
    }
}
