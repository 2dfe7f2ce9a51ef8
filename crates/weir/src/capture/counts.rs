//! What became of every packet.

use serde::Serialize;

/// Packets (super-packets count once), by their fate. [`Counts::add_up`] relates them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Handed over by the kernel: its filter took them, and its ring had room.
    pub received: u64,
    /// In files, whole blocks of them.
    pub written: u64,
    /// Received, and not asked for by the RDMA options.
    pub filtered_out: u64,
    /// Received after the last one asked for (`--count`): they were waiting in the ring.
    pub after_end: u64,
    /// Lost by us: received and wanted, but the disk or the reader of our output took them not.
    pub lost_by_weir: u64,
    /// Lost in the kernel, past its filter: the ring was full.
    pub lost_by_kernel: u64,
    /// Lost by the device or its driver before any tap, as its own counters say. Without a reader
    /// above the device (an address, a bridge), some kernels count here what they had no use for.
    pub lost_by_device: u64,
    /// Of those written: shorter than they were, by `--snap` or for want of room in the ring.
    pub cut: u64,
}

impl Counts {
    /// received = written + filtered out + after the end + lost by Weir.
    pub fn add_up(&self) -> bool {
        self.received == self.written + self.filtered_out + self.after_end + self.lost_by_weir
    }

    /// What did not get into a file and should have.
    pub fn lost(&self) -> u64 {
        self.lost_by_weir + self.lost_by_kernel + self.lost_by_device
    }
}
