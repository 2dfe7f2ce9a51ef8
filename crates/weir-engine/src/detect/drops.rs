//! Packets that were dropped and that no alert tells of, until somebody takes what is told of them.
//!
//! What rules drop, or what cannot be looked at of a stream, is told once for each side of a flow.
//! Where there is no flow, it is told once for each source, reason and second.

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_detect::record::DropRecord;
use weir_wire::frame::Time;
use weir_wire::parse::Parsed;

use crate::verdict::DropReason;

/// Records that wait until they are taken, at most; the status counts every packet.
pub(super) const WAITING_MAX: usize = 256;

/// Records of a second that are of no flow, at most.
pub(super) const OF_SOURCES_MAX: u32 = 256;

/// Places in which it is remembered who was told of: another one that comes to the same place is
/// told of again and again, within the bound of a second.
const PLACES: usize = 1024;

const NS_PER_S: u64 = 1_000_000_000;

/// Who was told of, why and in which second.
type Told = (([u8; 16], Option<DropReason>), u64);

/// What is told of packets that were dropped.
#[derive(Debug, Default)]
pub(super) struct Drops {
    /// Whether somebody wants to know.
    is_wanted: bool,
    waiting: Vec<DropRecord>,
    lost: u64,
    /// By source and reason; empty: nobody yet.
    told: Vec<Told>,
    /// The second that `left` is of.
    second: u64,
    /// Records of no flow that may still come in it.
    left: u32,
}

impl Drops {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    pub(super) fn set_wanted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// Keeps what is told of a packet of a flow.
    pub(super) fn keep(&mut self, record: DropRecord) {
        match self.is_wanted {
            true if self.waiting.len() < WAITING_MAX => self.waiting.push(record),
            true => self.lost += 1,
            false => {}
        }
    }

    /// Keeps what there is to tell of a packet that is of no flow, if it is the first of its source
    /// in this second.
    pub(super) fn keep_of_source(
        &mut self,
        now: Time,
        reason: DropReason,
        bytes: &[u8],
        parsed: &Parsed,
    ) {
        if !self.is_wanted {
            return;
        }
        let (key, second) = ((parsed.source, Some(reason)), now.0 / NS_PER_S);
        if self.told.is_empty() {
            self.told = vec![Told::default(); PLACES];
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let place = &mut self.told[hasher.finish() as usize % PLACES];
        if std::mem::replace(place, (key, second)) == (key, second) {
            return;
        }
        if std::mem::replace(&mut self.second, second) != second {
            self.left = OF_SOURCES_MAX;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.keep(DropRecord::of_packet(now, reason.name(), bytes, parsed));
            }
            None => self.lost += 1,
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = DropRecord> + '_ {
        self.waiting.drain(..)
    }

    /// Records that found no room since this was asked last.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(number: u16) -> Parsed {
        let mut source = [0; 16];
        source[14..].copy_from_slice(&number.to_be_bytes());
        Parsed { source, ..Parsed::default() }
    }

    fn keep(drops: &mut Drops, ms: u64, reason: DropReason, number: u16) {
        drops.keep_of_source(Time(ms * 1_000_000), reason, &[], &from(number));
    }

    #[test]
    fn a_source_is_told_of_once_a_second_and_reason() {
        let mut drops = Drops::new(true);
        for ms in [5_000, 5_400, 5_999, 6_000] {
            keep(&mut drops, ms, DropReason::Blocked, 1);
        }
        keep(&mut drops, 6_100, DropReason::FragmentsFull, 1);
        let told: Vec<_> = drops.drain().map(|it| (it.time.0 / 1_000_000, it.reason)).collect();
        assert_eq!(told, [(5_000, "blocked"), (6_000, "blocked"), (6_100, "fragments_full")]);
        assert_eq!(drops.take_lost(), 0, "the others are told of with the first");
    }

    #[test]
    fn what_is_beyond_a_bound_is_counted() {
        let mut drops = Drops::new(true);
        (0..300).for_each(|number| keep(&mut drops, 5_000, DropReason::Blocked, number));
        assert_eq!((drops.drain().count(), drops.take_lost()), (256, 44));
        // Taken within the second, it is the bound of the second that holds.
        (300..310).for_each(|number| keep(&mut drops, 5_001, DropReason::Blocked, number));
        assert_eq!((drops.drain().count(), drops.take_lost()), (0, 10));
        let record = DropRecord::of_packet(Time(0), "rules", &[], &from(1));
        (0..257).for_each(|_| drops.keep(record));
        assert_eq!((drops.drain().count(), drops.take_lost()), (256, 1));
        drops.set_wanted(false);
        drops.keep(record);
        assert_eq!((drops.drain().count(), drops.take_lost()), (0, 0), "nobody wants to know");
    }
}
