//! The flow table: one entry per 5-tuple, bounded, the least recently active leaves first.

use weir_wire::fastpath::Slot;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Transport};

use super::index::Index;
use super::slab::{SLOT_OVERHEAD_BYTES, Slab};
use super::{FlowDirection, FlowKey, HashSeed};
use crate::verdict::Side;

/// Where a flow's entry lies. It goes stale when the flow leaves; a stale handle finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHandle {
    at: u32,
    generation: u32,
}

/// One direction of a flow since its last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packets; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// Bytes on the link, its header included.
    pub bytes: u64,
    /// Packets marked Congestion Experienced (RFC 3168 s5).
    pub congestion_experienced: u64,
    /// Fragments (each piece of a fragmented packet).
    pub fragments: u64,
    /// All TCP flags seen, or-ed.
    pub tcp_flags: u8,
    /// DSCP and ECN of the latest packet.
    pub traffic_class: u8,
    /// Of `packets`, those that the kernel carried.
    pub fast_packets: u64,
}

/// What the table knows of one flow.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// Which.
    pub key: FlowKey,
    hash: u64,
    /// When the running record began: the first packet after the last record.
    pub started: Time,
    /// The latest packet.
    pub last: Time,
    /// Counters, by [`FlowDirection::index`].
    pub counters: [FlowCounters; 2],
    /// Who sent the flow's first packet.
    pub initiator: FlowDirection,
    /// Side of the gateway that packet came in by; `None` for captures.
    pub side: Option<Side>,
}

// One million flows at 400 bytes each, the index (two 8-byte slots a key, up to four) included.
const _: () = assert!(size_of::<FlowEntry>() + SLOT_OVERHEAD_BYTES + 4 * 8 <= 400);

impl FlowEntry {
    /// Whether anything was counted since the last record.
    pub fn is_counting(&self) -> bool {
        self.counters.iter().any(|direction| direction.packets > 0)
    }

    /// Begins the next record.
    pub(crate) fn restart(&mut self, now: Time) {
        self.started = now;
        self.counters = Default::default();
    }

    /// Counts what the kernel carried.
    pub(crate) fn fold(
        &mut self,
        direction: FlowDirection,
        last: Time,
        counted: &Slot,
        packets: u64,
        bytes: u64,
    ) {
        self.last = self.last.max(last);
        let counters = &mut self.counters[direction.index()];
        counters.packets += packets;
        counters.fast_packets += packets;
        counters.bytes += bytes;
        counters.congestion_experienced += counted.ecn_marked;
        counters.traffic_class = counted.traffic_class;
        counters.tcp_flags |= counted.tcp_flags as u8;
    }

    /// Counts a frame of `bytes` on the link that stands for `packets`.
    #[inline]
    pub(crate) fn count(
        &mut self,
        direction: FlowDirection,
        now: Time,
        parsed: &Parsed,
        packets: u64,
        bytes: u32,
    ) {
        let tcp_flags = match parsed.transport {
            Transport::Tcp { flags, .. } => flags,
            _ => 0,
        };
        let counted = FlowCounters {
            packets,
            bytes: u64::from(bytes),
            fragments: u64::from(parsed.fragment.is_some()),
            tcp_flags,
            traffic_class: parsed.traffic_class,
            ..FlowCounters::default()
        };
        self.add(direction, now, &counted);
    }

    /// Adds packets of one traffic class, the last of them at `last`.
    #[inline]
    pub(crate) fn add(&mut self, direction: FlowDirection, last: Time, counted: &FlowCounters) {
        self.last = self.last.max(last);
        let counters = &mut self.counters[direction.index()];
        counters.packets += counted.packets;
        counters.bytes += counted.bytes;
        if counted.traffic_class & 3 == 3 {
            counters.congestion_experienced += counted.packets;
        }
        counters.fragments += counted.fragments;
        counters.traffic_class = counted.traffic_class;
        counters.tcp_flags |= counted.tcp_flags;
    }
}

/// Places remembered of flows that were looked for lately.
const RECENT_COUNT: usize = 256;

/// Flows by 5-tuple.
#[derive(Debug)]
pub struct FlowTable {
    seed: HashSeed,
    index: Index,
    entries: Slab<FlowEntry>,
    /// Where the flow of a key's [`FlowKey::mix`] was last found: spares busy flows the keyed hash
    /// and the probe. A wrong guess costs one comparison.
    recent: [u32; RECENT_COUNT],
}

/// What [`FlowTable::enter`] did.
#[derive(Debug)]
pub(crate) enum Entered {
    /// The flow was known.
    Known(FlowHandle),
    /// It is new.
    New(FlowHandle),
}

impl FlowTable {
    /// An empty table for `limit` flows. Memory is reserved, not touched.
    pub fn new(limit: usize, seed: HashSeed) -> Self {
        let (index, entries) = (Index::new(limit), Slab::new(limit));
        Self { seed, index, entries, recent: [0; RECENT_COUNT] }
    }

    /// Flows in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The flow of `key`, if it is known.
    pub fn find(&self, key: &FlowKey) -> Option<FlowHandle> {
        let at = self.index.find(key.hash(&self.seed), |at| self.entries.value(at).key == *key)?;
        Some(self.handle(at))
    }

    /// The flow behind a handle, if it is still there.
    pub fn entry(&self, handle: FlowHandle) -> Option<&FlowEntry> {
        self.is_current(handle).then(|| self.entries.value(handle.at))
    }

    /// The flow behind a handle, to change; this does not count as activity.
    pub fn entry_mut(&mut self, handle: FlowHandle) -> Option<&mut FlowEntry> {
        self.is_current(handle).then(|| self.entries.value_mut(handle.at))
    }

    /// All flows, the most recently active first.
    pub fn iter(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// The flow of `key`, marked as active now, if it was looked for lately.
    #[inline]
    pub(crate) fn recent(
        &mut self,
        key: &FlowKey,
        now: Time,
    ) -> Option<(FlowHandle, &mut FlowEntry)> {
        let at = self.recent[usize::from(key.mix()) % RECENT_COUNT];
        let generation = self.entries.find(at, |entry| entry.key == *key)?;
        Some((FlowHandle { at, generation }, self.entries.touch(at, now)))
    }

    /// The flow of `key`, entered if it is new. `leave` gets each flow that had to make room.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        key: &FlowKey,
        direction: FlowDirection,
        now: Time,
        side: Option<Side>,
        leave: &mut dyn FnMut(&FlowEntry),
    ) -> Entered {
        let hash = key.hash(&self.seed);
        match self.index.find(hash, |at| self.entries.value(at).key == *key) {
            Some(at) => {
                self.recent[usize::from(key.mix()) % RECENT_COUNT] = at;
                Entered::Known(self.handle(at))
            }
            None => {
                let entry = FlowEntry {
                    key: *key,
                    hash,
                    started: now,
                    last: now,
                    counters: Default::default(),
                    initiator: direction,
                    side,
                };
                Entered::New(self.add(entry, now, leave))
            }
        }
    }

    fn add(
        &mut self,
        entry: FlowEntry,
        now: Time,
        leave: &mut dyn FnMut(&FlowEntry),
    ) -> FlowHandle {
        if let Some(oldest) = self.entries.oldest().filter(|_| self.entries.is_full()) {
            leave(self.remove(oldest));
        }
        let hash = entry.hash;
        let at = self.entries.insert(entry, now);
        while let Err(in_the_way) = self.index.insert(hash, at) {
            leave(self.remove(in_the_way));
        }
        self.handle(at)
    }

    /// The flow behind a handle, marked as active now.
    #[inline]
    pub(crate) fn touch(&mut self, handle: FlowHandle, now: Time) -> Option<&mut FlowEntry> {
        self.is_current(handle).then(|| self.entries.touch(handle.at, now))
    }

    /// The least recently active flow.
    pub(crate) fn oldest(&self) -> Option<FlowHandle> {
        self.entries.oldest().map(|at| self.handle(at))
    }

    /// Takes a flow out and returns what was known of it.
    pub(crate) fn take(&mut self, handle: FlowHandle) -> Option<&FlowEntry> {
        self.is_current(handle).then(|| self.remove(handle.at))
    }

    fn remove(&mut self, at: u32) -> &FlowEntry {
        self.index.remove(self.entries.value(at).hash, at);
        self.entries.remove(at)
    }

    #[inline]
    fn is_current(&self, handle: FlowHandle) -> bool {
        self.entries.is_current(handle.at, handle.generation)
    }

    #[inline]
    fn handle(&self, at: u32) -> FlowHandle {
        FlowHandle { at, generation: self.entries.generation(at) }
    }
}
