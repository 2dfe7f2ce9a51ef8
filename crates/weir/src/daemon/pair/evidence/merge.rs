//! One pair's packets out of the shards of its workers, in time order.
//!
//! ```text
//!   worker 0: [disk: older segments][memory: newer ones] --+
//!   worker 1: [disk][memory] ------------------------------+--> the packet with the earliest time
//!   ...                                                 ---+
//! ```
//!
//! Within a shard the order stays what the worker recorded: times of the host's and the wire's
//! batches overlap a little there.

use std::path::Path;
use std::vec;

use weir_store::evidence::{Evidence, EvidenceFile, Slot, Snapshot, packets};

use super::{Shard, Wanted};

/// The next packets of one shard.
pub(super) struct Cursor<'s> {
    disk: Option<(EvidenceFile, vec::IntoIter<Slot>)>,
    memory: Box<dyn Iterator<Item = &'s [u8]> + 's>,
    chunk: Chunk<'s>,
    /// Where the next packet's record begins in it.
    at: usize,
}

/// Records that are being read.
enum Chunk<'s> {
    Disk { records: Vec<u8>, knows_verdicts: bool },
    Memory(&'s [u8]),
}

impl<'s> Cursor<'s> {
    /// Before the first packet of `shard`. Files and slots that cannot be read are added to
    /// `unreadable`; those with nothing wanted are passed over.
    pub(super) fn new(shard: &'s Shard, wanted: &Wanted, unreadable: &mut u64) -> Self {
        let mut cursor = Self {
            disk: shard.disk.as_deref().and_then(|path| open(path, shard, wanted, unreadable)),
            memory: Box::new(shard.memory.records()),
            chunk: Chunk::Memory(&[]),
            at: 0,
        };
        cursor.find_chunk(unreadable);
        cursor
    }

    /// The next packet; `None` at the end.
    pub(super) fn head(&self) -> Option<Evidence<'_>> {
        let (records, knows_verdicts) = match &self.chunk {
            Chunk::Disk { records, knows_verdicts } => (&records[..], *knows_verdicts),
            Chunk::Memory(records) => (*records, true),
        };
        let mut evidence = packets(records.get(self.at..)?).next()?;
        evidence.verdict = evidence.verdict.filter(|_| knows_verdicts);
        Some(evidence)
    }

    /// Goes behind the next packet.
    pub(super) fn advance(&mut self, unreadable: &mut u64) {
        self.at += self.head().map_or(0, |it| it.record_bytes());
        self.find_chunk(unreadable);
    }

    /// Goes on to the next chunk that has a packet, when this one has none left.
    fn find_chunk(&mut self, unreadable: &mut u64) {
        while self.head().is_none() {
            self.at = 0;
            if let Some(chunk) = self.read_slot(unreadable) {
                self.chunk = chunk;
            } else if let Some(records) = self.memory.next() {
                self.chunk = Chunk::Memory(records);
            } else {
                self.chunk = Chunk::Memory(&[]);
                return;
            }
        }
    }

    /// The next slot that can be read.
    fn read_slot(&mut self, unreadable: &mut u64) -> Option<Chunk<'s>> {
        let (file, slots) = self.disk.as_mut()?;
        for slot in slots {
            let mut records = Vec::new();
            if matches!(file.read(&slot, &mut records), Ok(true)) {
                let knows_verdicts = EvidenceFile::knows_verdicts(&slot);
                return Some(Chunk::Disk { records, knows_verdicts });
            }
            *unreadable += 1;
        }
        None
    }
}

/// The file at `path`, with those of its slots that may hold something wanted and are not in
/// memory.
fn open(
    path: &Path,
    shard: &Shard,
    wanted: &Wanted,
    unreadable: &mut u64,
) -> Option<(EvidenceFile, vec::IntoIter<Slot>)> {
    let Ok(file) = EvidenceFile::open(path) else {
        // The memory is worth having.
        *unreadable += 1;
        return None;
    };
    let is_wanted =
        |slot: &&Slot| !shard.memory.covers(slot.segment) && wanted.may_be_in(&slot.extent);
    let slots: Vec<Slot> = file.slots().iter().filter(is_wanted).copied().collect();
    Some((file, slots.into_iter()))
}

/// Hands the packets of `shards` to `take`, the earliest first, until it fails.
///
/// # Errors
/// What `take` returns.
pub(super) fn in_time_order<E>(
    shards: &[Shard],
    wanted: &Wanted,
    unreadable: &mut u64,
    mut take: impl FnMut(&Evidence<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursors: Vec<_> =
        shards.iter().map(|shard| Cursor::new(shard, wanted, unreadable)).collect();
    loop {
        let heads = cursors.iter().enumerate();
        let earliest = heads.filter_map(|(number, it)| Some((it.head()?.time, number))).min();
        let Some((_, number)) = earliest else { return Ok(()) };
        if let Some(evidence) = cursors[number].head() {
            take(&evidence)?;
        }
        cursors[number].advance(unreadable);
    }
}

impl Shard {
    /// Of a file that nobody writes to.
    pub fn of_file(path: &Path) -> Self {
        Self { disk: Some(path.to_owned()), memory: Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use weir_store::evidence::{CapturePoint, EvidenceOptions, EvidenceRing, SEGMENT_BYTES};
    use weir_wire::frame::Time;

    use super::*;
    use crate::api::dto::CutRequest;

    /// A shard of packets at these times, each with its time as its content.
    fn shard(times: impl Iterator<Item = u64>) -> Shard {
        let options = EvidenceOptions { bytes: 8 * SEGMENT_BYTES, snap_bytes: 1000 };
        let mut ring = EvidenceRing::new(options, Time(1));
        for time in times {
            let packet = time.to_ne_bytes().repeat(125);
            ring.record(Time(time), CapturePoint::FromHost, packet.len() as u32, &packet);
        }
        Shard { disk: None, memory: ring.snapshot() }
    }

    fn merged(shards: &[Shard]) -> Vec<u64> {
        let wanted = Wanted::new(&CutRequest::default(), Time(u64::MAX)).unwrap();
        let (mut times, mut unreadable) = (Vec::new(), 0);
        in_time_order(shards, &wanted, &mut unreadable, |evidence| {
            assert_eq!(evidence.bytes[..8], evidence.time.0.to_ne_bytes());
            times.push(evidence.time.0);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(unreadable, 0);
        times
    }

    #[test]
    fn packets_of_all_workers_come_out_in_the_order_of_their_times() {
        // More than a segment each.
        let shards = [
            shard((0..6000).filter(|time| time % 3 == 0)),
            shard(std::iter::empty()),
            shard((0..6000).filter(|time| time % 3 != 0)),
        ];
        assert!(merged(&shards).into_iter().eq(0..6000));
    }

    #[test]
    fn a_worker_whose_clock_went_back_keeps_its_order_and_loses_nothing() {
        let shards = [shard([5, 2, 9].into_iter()), shard([3, 4, 10].into_iter())];
        assert_eq!(merged(&shards), [3, 4, 5, 2, 9, 10]);
    }
}
