//! What every port can do: hand over a batch of frames, take a batch of frames, say what it lost.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;

use weir_wire::frame::{Frame, Offload};

/// Frames in one call of [`Port::receive`], at most.
pub const BATCH: usize = 64;

/// A frame to send, gathered from pieces so that nothing is copied in user space.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The pieces, in order; together one Ethernet frame (or super-packet).
    pub parts: &'a [IoSlice<'a>],
    /// What is left to the port: checksum and segmentation.
    pub offload: Offload,
}

/// What became of a transmitted batch: `sent + dropped` is the length of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Frames that the kernel took.
    pub sent: u64,
    /// Frames it refused for good (queue full, device down, too large); counted by reason in
    /// [`PortCounters`].
    pub dropped: u64,
}

/// Totals since the port was opened. Frames are counted as the port hands them over: a super-packet
/// is one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames handed to the caller.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames the kernel took.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Lost in the kernel before we saw them because our ring or queue was full.
    pub lost_ring_full: u64,
    /// Received cut short because no buffer could hold them, or with
    /// metadata that contradict them; not handed over.
    pub lost_truncated: u64,
    /// Not sent: the device's queue was full.
    pub send_queue_full: u64,
    /// Not sent: larger than the device allows.
    pub send_too_large: u64,
    /// Not sent: the device is down or gone, or any other refusal.
    pub send_refused: u64,
    /// Lost by the device or its driver, as the kernel's own interface counters say.
    pub device_dropped: u64,
    /// Sends that the device dropped and told us of: its own counters have them, too.
    pub refused_by_device: u64,
}

/// A way in and out of the gateway.
///
/// Contract: `receive` never blocks; it passes at most [`BATCH`] frames, each with at least
/// 128 bytes of headroom and 64 of tailroom, to `handle` once, and takes their buffers back when
/// that returns. Ports differ only in the kernel interface below them; a port over a port
/// (`layer/`) adds tracing, faults or recording.
pub trait Port {
    /// The interface or file it stands for.
    fn name(&self) -> &str;

    /// Passes the frames that wait, at most [`BATCH`], to `handle`; returns how many. Zero: none
    /// waits, and `handle` was not called.
    ///
    /// # Errors
    /// The device or file can no longer be read at all. A bad frame is counted, not an error.
    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize>;

    /// Sends `frames` in order. A frame that cannot be sent is counted and does not stop the rest.
    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted;

    /// Totals, read from the kernel where they live there.
    fn counters(&mut self) -> PortCounters;

    /// The same without `device_dropped`, which takes a question about the interface that may have
    /// to wait for others who change one: for threads that move packets ([`crate::DeviceLosses`]).
    fn own_counters(&mut self) -> PortCounters {
        self.counters()
    }

    /// Frames lost before they could be handed over, for want of room in memory of ours: cheap
    /// enough to ask often.
    fn lost_on_arrival(&mut self) -> u64 {
        let counters = self.counters();
        counters.lost_ring_full + counters.lost_truncated
    }

    /// What to poll for readability; `None` for files and memory.
    fn poll_fd(&self) -> Option<RawFd>;

    /// Frames that came to the receiver since it was opened: those that `receive` has taken, and
    /// those that the kernel had no room for. `None`: this port cannot tell.
    fn arrived_frames(&mut self) -> Option<u64> {
        None
    }

    /// Bytes of memory of transmitted frames that somebody below still holds: a queue, the device,
    /// a processor that has not come to them. Zero: whatever is sent next by whatever way cannot
    /// overtake them. `None`: this port cannot tell.
    fn unsent_bytes(&self) -> Option<u64> {
        None
    }

    /// From now on, sends every frame through the device's queueing discipline, where kernel
    /// programs at tc see it, or those frames past it that can be. A port that knows no such
    /// difference does nothing.
    fn set_through_discipline(&mut self, _through: bool) {}

    /// What the port has to complain of since it was last asked: above all `ENETDOWN` when its
    /// interface went down or away. Until it is asked, polling reports readiness.
    fn take_error(&mut self) -> Option<io::Error> {
        None
    }
}
