//! Whom a queue pair number belongs to: the address that it was set up with, and the port that its
//! host is behind.
//!
//! ```text
//!   REP passes ----> connected: both queue pairs, each with the other's address
//!   first packet --> learnt:    its destination, with the source's address
//!   datagram ------> learnt:    its source, with nobody's
//! ```
//!
//! Both tables are bounded. At the bound an owner leaves whose conversation is silent; is none of
//! [`CANDIDATES`], the newcomer is not taken.

use std::collections::HashMap;

use weir_wire::frame::Time;

use crate::flow::index::Index;
use crate::flow::slab::{SLOT_OVERHEAD_BYTES, Slab};
use crate::rdma::{ConversationHandle, ConversationTable};
use crate::verdict::Side;

/// An owner that first packets named yields after so long a silence.
pub(super) const LEARNT_SILENT_NS: u64 = 15_000_000_000;
/// One that connection managers named, where first packets may name another.
pub(super) const CONNECTED_SILENT_NS: u64 = 3_600_000_000_000;
/// So long after DREQ what is still under way may pass.
const LINGER_NS: u64 = 2_000_000_000;
/// Owners asked whether they are silent, at most, when there is no room.
const CANDIDATES: usize = 8;

/// Instead of an address: a datagram queue pair talks to anybody.
pub(super) const ANYBODY: u64 = 0;
/// Instead of a service: nobody said which.
pub(super) const NO_SERVICE: u64 = u64::MAX;

/// Whom a queue pair belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// A fingerprint of the queue pair: address, number, VLANs.
    pub(super) key: u64,
    /// A fingerprint of the address that it talks to, or [`ANYBODY`].
    pub(super) peer: u64,
    /// The other queue pair of its connection; 0: unknown.
    pub(super) partner: u64,
    /// What its connection serves.
    pub(super) service: u64,
    /// The managers' names for the connection, that of this queue pair's own first.
    pub(super) comm_ids: [u32; 2],
    /// Where what decides about packets to it is kept: the conversation, and whether in its second
    /// direction.
    pub(super) judged: Option<(ConversationHandle, bool)>,
    /// The port that its host is behind.
    pub(super) lives: Side,
    /// Whether it counts among the connections that its peer asked for.
    pub(super) is_counted: bool,
    /// Whether it is by an alternate path, which is the connection's by its managers' word alone:
    /// it takes nothing from anybody.
    pub(super) is_path: bool,
    /// Whether whoever asked for the path is still to speak on it. Until then nothing goes to him.
    pub(super) waits: bool,
    /// When DREQ came, in units of 2^27 ns; 0: it did not.
    pub(super) closed: u32,
    /// Since when nothing was heard of it that its conversation would show, likewise.
    pub(super) silent: u32,
}

/// Bytes of an owner and its place in the table.
pub(super) const OWNER_BYTES: usize = size_of::<Owner>() + SLOT_OVERHEAD_BYTES;

impl Owner {
    pub(super) fn new(key: u64, peer: u64, lives: Side) -> Self {
        Self {
            key,
            peer,
            partner: 0,
            service: NO_SERVICE,
            comm_ids: [0; 2],
            judged: None,
            lives,
            is_counted: false,
            is_path: false,
            waits: false,
            closed: 0,
            silent: 0,
        }
    }

    /// The same, with what decides about its packets at `judged`.
    pub(super) fn judged_at(mut self, judged: (ConversationHandle, u8)) -> Self {
        self.hear(judged);
        self
    }

    /// Where what decides about packets to it is kept: conversation and direction.
    fn judged(&self) -> Option<(ConversationHandle, u8)> {
        self.judged.map(|(handle, is_second)| (handle, u8::from(is_second)))
    }

    /// What the connection serves, if its managers said so.
    pub(super) fn service(&self) -> Option<u64> {
        (self.service != NO_SERVICE).then_some(self.service)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed != 0
    }

    /// Whether DREQ came so long ago that nothing of it is under way.
    pub(super) fn has_ended(&self, now: Time) -> bool {
        self.is_closed() && since(now, self.closed) > LINGER_NS
    }

    /// Whether it gives the number up, having been silent for `silence_ns`, to whose packet is
    /// counted at `other`.
    pub(super) fn yields(
        &mut self,
        now: Time,
        silence_ns: u64,
        conversations: &ConversationTable,
        other: (ConversationHandle, u8),
    ) -> bool {
        self.is_closed() || self.silence(now, conversations, other) >= silence_ns
    }

    /// How long nothing was heard of it. Begins anew when its conversation leaves the meter, and
    /// where `other` has its addresses and comes by the other port: then both are counted alike.
    fn silence(
        &mut self,
        now: Time,
        conversations: &ConversationTable,
        other: (ConversationHandle, u8),
    ) -> u64 {
        let shown = self.judged().filter(|it| *it != other);
        let last = shown.and_then(|(handle, direction)| {
            let conversation = conversations.entry(handle)?;
            Some(conversation.directions().nth(usize::from(direction))?.last)
        });
        match last {
            Some(last) => now.since_ns(last),
            None if self.silent == 0 => {
                self.silent = coarse(now);
                0
            }
            None => since(now, self.silent),
        }
    }

    /// A packet of its own came.
    fn hear(&mut self, judged: (ConversationHandle, u8)) {
        (self.judged, self.silent) = (Some((judged.0, judged.1 != 0)), 0);
    }
}

/// Connections at other workers that are counted here, at most.
const ELSEWHERE_MAX: usize = 1 << 18;
/// Changes that wait to be told, at most; those beyond are not.
const UNTOLD_MAX: usize = 1 << 16;

/// There is no room, and nobody who would make any.
pub(super) struct Full;

/// Owners by queue pair.
#[derive(Debug)]
pub(super) struct Owners {
    index: Index,
    entries: Slab<Owner>,
    changes: u64,
    /// By requester: connections that stand, here and at other workers.
    counts: HashMap<u64, u32>,
    /// Connections that stand at other workers: who asked for each, by its queue pair.
    elsewhere: HashMap<u64, u64>,
    /// Of connections here, what other workers have not heard of; `None`: there are none.
    untold: Option<HashMap<u64, ConnectionChange>>,
}

/// A connection that was made or has ended at one worker, by fingerprints that are the same at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionChange {
    queue_pair: u64,
    requester: u64,
    stands: bool,
}

impl Owners {
    /// An empty table for `limit` queue pairs. Memory is reserved, not touched.
    pub(super) fn new(limit: usize) -> Self {
        let (index, entries) = (Index::new(limit), Slab::new(limit));
        let (counts, elsewhere) = (HashMap::new(), HashMap::new());
        Self { index, entries, changes: 0, counts, elsewhere, untold: None }
    }

    /// Keeps for other workers which connections stand, from now on.
    pub(super) fn share(&mut self) {
        self.untold.get_or_insert_default();
    }

    /// What other workers have not heard of.
    pub(super) fn take_connections(&mut self) -> Vec<ConnectionChange> {
        self.untold.iter_mut().flat_map(|it| it.drain().map(|(_, change)| change)).collect()
    }

    /// Takes in what another worker told. A connection that all know of an earlier life is counted
    /// once, and has ended when it has for the worker that it came to.
    pub(super) fn note_connections(&mut self, changes: &[ConnectionChange]) {
        for change in changes {
            let here = self.find(change.queue_pair).filter(|at| self.owner(*at).is_counted);
            match (change.stands, here) {
                (true, Some(_)) => {}
                (true, None) if self.elsewhere.len() < ELSEWHERE_MAX => {
                    let before = self.elsewhere.insert(change.queue_pair, change.requester);
                    before.into_iter().for_each(|it| self.count_down(it));
                    *self.counts.entry(change.requester).or_default() += 1;
                }
                (true, None) => {}
                (false, here) => {
                    // One that was heard of here is ours to end.
                    if let Some(at) = here.filter(|at| self.owner(*at).judged.is_none()) {
                        let owner = self.entries.value_mut(at);
                        owner.is_counted = false;
                        let requester = owner.peer;
                        self.count_down(requester);
                    }
                    if let Some(requester) = self.elsewhere.remove(&change.queue_pair) {
                        self.count_down(requester);
                    }
                }
            }
        }
    }

    fn count_down(&mut self, requester: u64) {
        if let Some(count) = self.counts.get_mut(&requester) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&requester);
            }
        }
    }

    fn tell(&mut self, queue_pair: u64, requester: u64, stands: bool) {
        if let Some(untold) = &mut self.untold
            && (untold.len() < UNTOLD_MAX || untold.contains_key(&queue_pair))
        {
            untold.insert(queue_pair, ConnectionChange { queue_pair, requester, stands });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Owners lie at places below this.
    pub(super) fn places(&self) -> u32 {
        self.entries.places()
    }

    /// The owner at a place, if there is one.
    pub(super) fn at_place(&self, at: u32) -> Option<&Owner> {
        self.entries.is_occupied(at).then(|| self.entries.value(at))
    }

    /// How often it changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds an owner of an earlier life, where there is room and nobody has its queue pair.
    pub(super) fn restore(&mut self, owner: Owner, now: Time) {
        if self.entries.is_full() || self.find(owner.key).is_some() {
            return;
        }
        self.add(owner, now);
    }

    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.find(key, |at| self.entries.value(at).key == key)
    }

    pub(super) fn owner(&self, at: u32) -> &Owner {
        self.entries.value(at)
    }

    pub(super) fn owner_mut(&mut self, at: u32) -> &mut Owner {
        self.entries.value_mut(at)
    }

    /// Marks the owner as active, its packets judged at `judged`.
    pub(super) fn hear(&mut self, at: u32, now: Time, judged: (ConversationHandle, u8)) {
        self.entries.touch(at, now).hear(judged);
    }

    /// Connections that stand which this address asked for.
    pub(super) fn count_of(&self, requester: u64) -> u32 {
        self.counts.get(&requester).copied().unwrap_or(0)
    }

    /// DREQ came; returns where its packets were judged.
    pub(super) fn close(&mut self, at: u32, now: Time) -> Option<(ConversationHandle, u8)> {
        self.uncount(at);
        self.changes += 1;
        let owner = self.entries.value_mut(at);
        owner.closed = coarse(now);
        owner.judged()
    }

    fn uncount(&mut self, at: u32) {
        let owner = self.entries.value_mut(at);
        if !std::mem::take(&mut owner.is_counted) {
            return;
        }
        let (key, requester) = (owner.key, owner.peer);
        self.count_down(requester);
        self.tell(key, requester, false);
    }

    /// Takes an owner out and returns where its packets were judged.
    pub(super) fn remove(&mut self, at: u32) -> Option<(ConversationHandle, u8)> {
        self.uncount(at);
        self.changes += 1;
        let owner = *self.entries.remove(at);
        self.index.remove(owner.key, at);
        owner.judged()
    }

    /// Adds an owner, whose key is not in the table.
    ///
    /// # Errors
    /// [`Full`].
    pub(super) fn insert(
        &mut self,
        owner: Owner,
        now: Time,
        conversations: &ConversationTable,
    ) -> Result<(), Full> {
        if self.entries.is_full() {
            self.make_room(now, conversations)?;
        }
        if self.add(owner, now) { Ok(()) } else { Err(Full) }
    }

    /// Adds one where there is room; says whether the index had a place for it.
    fn add(&mut self, owner: Owner, now: Time) -> bool {
        let at = self.entries.insert(owner, now);
        if self.index.insert(owner.key, at).is_err() {
            self.entries.remove(at);
            return false;
        }
        self.changes += 1;
        if owner.is_counted {
            self.count(owner);
        }
        true
    }

    /// Counts a connection that stands here, and at another worker no longer.
    fn count(&mut self, owner: Owner) {
        if let Some(before) = self.elsewhere.remove(&owner.key) {
            self.count_down(before);
        }
        *self.counts.entry(owner.peer).or_default() += 1;
        self.tell(owner.key, owner.peer, true);
    }

    fn make_room(&mut self, now: Time, conversations: &ConversationTable) -> Result<(), Full> {
        for _ in 0..CANDIDATES {
            let Some(at) = self.entries.oldest() else { break };
            let owner = self.entries.value_mut(at);
            let heard = owner.judged.and_then(|(handle, _)| conversations.entry(handle));
            if heard.is_none_or(|it| now.since_ns(it.last()) >= LEARNT_SILENT_NS) {
                self.remove(at);
                return Ok(());
            }
            self.entries.touch(at, now);
        }
        Err(Full)
    }
}

fn coarse(time: Time) -> u32 {
    ((time.0 >> 27) as u32).max(1)
}

fn since(now: Time, earlier: u32) -> u64 {
    u64::from(coarse(now).wrapping_sub(earlier) as i32 as u32 & 0x7fff_ffff) << 27
}
